//! Bytes of tables that only the hand-off still needs.
//!
//! A compaction reserves the bytes of its inputs when it is picked; they are retained from its install
//! until that step is settled. So the sum over running and unsettled compactions is bounded before
//! anything is written: it passes the bound only by one compaction larger than that, alone. Tables that
//! a reader holds after that are the reader's, and count nowhere here (rule 21).
//!
//! Since a reservation lasts from the pick of a compaction until its step is settled, it also tells how
//! far rollbacks and collections are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::compaction::plan::Reason;

/// Compactions that put clues and redirected values to rights, from their pick until they are settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClueJobs {
    /// Rollbacks whose outputs are being written.
    pub rollbacks_running: usize,
    /// Rollbacks that are live and not settled.
    pub rollbacks_live: usize,
    /// Collections whose outputs are being written.
    pub collections_running: usize,
    /// Collections that are live and not settled.
    pub collections_live: usize,
}

/// Places in [`Retained::clue_jobs`].
const ROLLBACK: usize = 0;
const COLLECTION: usize = 2;

/// See the module header.
#[derive(Default)]
pub(crate) struct Retained {
    bytes: AtomicU64,
    peak: AtomicU64,
    /// In the order of [`ClueJobs`].
    clue_jobs: [AtomicUsize; 4],
}

/// Bytes reserved; given back when dropped.
pub(crate) struct Reserved {
    owner: Arc<Retained>,
    bytes: u64,
    /// The place among the owner's clue jobs, if it is one.
    job: Option<usize>,
}

impl Retained {
    /// Reserves `bytes` if they fit below `max`, or if nothing is reserved.
    pub(crate) fn try_reserve(
        self: &Arc<Retained>,
        bytes: u64,
        max: u64,
        reason: Reason,
    ) -> Option<Reserved> {
        let fits = |held: u64| (held == 0 || held + bytes <= max).then_some(held + bytes);
        let held = self.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).ok()?;
        debug_assert!(held == 0 || held + bytes <= max, "more is retained than may be");
        self.peak.fetch_max(held + bytes, Ordering::AcqRel);
        let job = match reason {
            Reason::Rollback => Some(ROLLBACK),
            Reason::Collect => Some(COLLECTION),
            _ => None,
        };
        if let Some(at) = job {
            self.clue_jobs[at].fetch_add(1, Ordering::AcqRel);
        }
        Some(Reserved { owner: self.clone(), bytes, job })
    }

    pub(crate) fn clue_jobs(&self) -> ClueJobs {
        let [rollbacks_running, rollbacks_live, collections_running, collections_live] =
            [0, 1, 2, 3].map(|at| self.clue_jobs[at].load(Ordering::Acquire));
        ClueJobs { rollbacks_running, rollbacks_live, collections_running, collections_live }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// The most there ever was.
    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Acquire)
    }
}

impl Reserved {
    /// The compaction's outputs are live.
    pub(crate) fn set_live(&mut self) {
        if let Some(at) = &mut self.job {
            self.owner.clue_jobs[*at + 1].fetch_add(1, Ordering::AcqRel);
            self.owner.clue_jobs[*at].fetch_sub(1, Ordering::AcqRel);
            *at += 1;
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(at) = self.job {
            self.owner.clue_jobs[at].fetch_sub(1, Ordering::AcqRel);
        }
        self.owner.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_holds_but_for_one_alone() {
        let retained = Arc::new(Retained::default());
        let reserve = |bytes| retained.try_reserve(bytes, 100, Reason::Manual);
        let large = reserve(300).expect("alone");
        assert!(reserve(1).is_none());
        drop(large);
        let first = reserve(60).expect("fits");
        assert!(reserve(41).is_none());
        let second = reserve(40).expect("fits exactly");
        drop((first, second));
        assert_eq!((retained.bytes(), retained.peak()), (0, 300));
    }
    #[test]
    fn rollbacks_and_collections_are_followed_until_they_are_settled() {
        let retained = Arc::new(Retained::default());
        let mut rollback = retained.try_reserve(1, 100, Reason::Rollback).expect("fits");
        let collection = retained.try_reserve(1, 100, Reason::Collect).expect("fits");
        let other = retained.try_reserve(1, 100, Reason::L0ToBase).expect("fits");
        let running = ClueJobs { rollbacks_running: 1, collections_running: 1, ..ClueJobs::default() };
        assert_eq!(retained.clue_jobs(), running);
        rollback.set_live();
        let live = ClueJobs { rollbacks_live: 1, collections_running: 1, ..ClueJobs::default() };
        assert_eq!(retained.clue_jobs(), live);
        drop((rollback, collection, other));
        assert_eq!((retained.clue_jobs(), retained.bytes()), (ClueJobs::default(), 0));
    }
}
