//! The one budget of all memtables of a database, whatever their keyspaces.
//!
//! ```text
//!          active      sealed, not flushed yet
//!     |-------------|-------------------------|                            limit       5/4 limit
//!                                                switch the largest active one │  writers wait │
//! ```
//! A memtable is charged when a commit group that went into it is published. When its table is live it
//! counts as *retained* until that is durable, for it may have to be made again: of these there may be as
//! much again as the limit before writers wait, so that only a disk that falls far behind stops them.
//! Then it is given back: what readers pin after that is theirs and keeps no writer waiting.
//! Passing the limit switches the largest active memtable of any tree, one a group, until half of the
//! limit is sealed; a flush is due for each of those. So a full budget always has a flush that ends
//! it, or an active memtable to switch, which a waiting writer does by itself (rule 20).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dialsm_io::env::Nanos;
use parking_lot::Mutex;

use crate::events::{Events, StallBegin, StallEnd, Taken};
use crate::metrics::StallCause;

/// See the module header.
pub(crate) struct WriteBudget {
    limit: AtomicU64,
    /// Bytes of memtables that are written to.
    active: AtomicU64,
    /// Bytes of those that wait for their flush.
    sealed: AtomicU64,
    /// Bytes of those whose table is not durable yet.
    retained: AtomicU64,
    full: AtomicBool,
    /// Where stalls are told, those of this budget and, since all trees share it, those of the trees.
    pub(crate) events: Arc<Events>,
    has_told: AtomicBool,
    told: Mutex<Option<(Taken, Nanos)>>,
}

/// A memtable's share, kept in its buffer.
#[derive(Default)]
pub(crate) struct Charge {
    /// Changed only under the lock; read without it, because it seldom changes.
    bytes: AtomicU64,
    stage: Mutex<Stage>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Active,
    Sealed,
    Retained,
    Released,
}

impl WriteBudget {
    pub(crate) fn new(limit: u64, events: Arc<Events>) -> WriteBudget {
        WriteBudget {
            limit: AtomicU64::new(limit),
            active: AtomicU64::new(0),
            sealed: AtomicU64::new(0),
            retained: AtomicU64::new(0),
            full: AtomicBool::new(false),
            events,
            has_told: AtomicBool::new(false),
            told: Mutex::new(None),
        }
    }

    /// Changes the limit. The caller wakes writers.
    pub(crate) fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
        self.note();
    }

    fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Notes that a memtable holds `bytes` now.
    #[inline]
    pub(crate) fn charge(&self, charge: &Charge, bytes: u64) {
        if bytes > charge.bytes.load(Ordering::Relaxed) {
            self.charge_more(charge, bytes);
        }
    }

    #[cold]
    fn charge_more(&self, charge: &Charge, bytes: u64) {
        let stage = charge.stage.lock();
        let before = charge.bytes.load(Ordering::Relaxed);
        if bytes > before
            && let Some(part) = self.part(*stage)
        {
            charge.bytes.store(bytes, Ordering::Relaxed);
            part.fetch_add(bytes - before, Ordering::AcqRel);
            self.note();
        }
    }

    fn part(&self, stage: Stage) -> Option<&AtomicU64> {
        match stage {
            Stage::Active => Some(&self.active),
            Stage::Sealed => Some(&self.sealed),
            Stage::Retained => Some(&self.retained),
            Stage::Released => None,
        }
    }

    /// The memtable is sealed.
    pub(crate) fn seal(&self, charge: &Charge) {
        let mut stage = charge.stage.lock();
        if *stage == Stage::Active {
            let bytes = charge.bytes.load(Ordering::Relaxed);
            // In this order, so that the sum is never too small.
            self.sealed.fetch_add(bytes, Ordering::AcqRel);
            self.active.fetch_sub(bytes, Ordering::AcqRel);
            *stage = Stage::Sealed;
        }
    }

    /// The memtable is in a live table that is not durable. As [`WriteBudget::release`].
    pub(crate) fn retain(&self, charge: &Charge) -> bool {
        self.pass_on(charge, Stage::Retained)
    }

    /// The memtable is in durable tables, or gone with its keyspace. True if writers that waited may
    /// go on: the caller wakes them.
    pub(crate) fn release(&self, charge: &Charge) -> bool {
        self.pass_on(charge, Stage::Released)
    }

    fn pass_on(&self, charge: &Charge, next: Stage) -> bool {
        let mut stage = charge.stage.lock();
        if *stage == Stage::Released {
            return false;
        }
        let was_full = self.is_full();
        if let Some(part) = self.part(next) {
            part.fetch_add(charge.bytes.load(Ordering::Relaxed), Ordering::AcqRel);
        }
        if let Some(part) = self.part(*stage) {
            part.fetch_sub(charge.bytes.load(Ordering::Relaxed), Ordering::AcqRel);
        }
        *stage = next;
        self.note();
        was_full && !self.is_full()
    }

    /// Looks whether writers wait, and notes it.
    fn note(&self) {
        let limit = self.limit();
        let is_full = self.bytes() > limit + limit / 4 || self.retained() > limit;
        self.full.store(is_full, Ordering::Release);
        if !is_full && self.has_told.load(Ordering::Acquire) {
            self.end_stall();
        }
    }

    /// A writer waits for it.
    pub(crate) fn begin_stall(&self) {
        if !self.events.is_on() || self.has_told.load(Ordering::Acquire) {
            return;
        }
        {
            // Both under the lock: who ends it must not find one without the other.
            let mut told = self.told.lock();
            self.has_told.store(true, Ordering::Release);
            let event =
                StallBegin { keyspace: None, shard: None, cause: StallCause::Memtable, is_stopped: true };
            if told.is_none() {
                *told = Some((self.events.push_begin(event.into()), self.events.now()));
            }
        }
        self.events.ring();
    }

    /// Nobody does any more. Whoever frees the writers rings.
    #[cold]
    pub(crate) fn end_stall(&self) {
        let mut told = self.told.lock();
        self.has_told.store(false, Ordering::Release);
        if let Some((taken, since)) = told.take() {
            let duration_us = (self.events.now() - since) / 1000;
            let event = StallEnd { keyspace: None, shard: None, cause: StallCause::Memtable, duration_us };
            self.events.push_end(taken, event.into());
        }
    }

    /// As [`WriteBudget::is_full`], after a look at the sums: two who note at once may leave an old
    /// answer, which a writer must not wait on.
    pub(crate) fn is_still_full(&self) -> bool {
        self.note();
        self.is_full()
    }

    /// Bytes of memtables that are flushed into tables which are not durable.
    pub(crate) fn retained(&self) -> u64 {
        self.retained.load(Ordering::Acquire)
    }

    /// Bytes of all memtables that are not flushed.
    pub(crate) fn bytes(&self) -> u64 {
        self.active.load(Ordering::Acquire) + self.sealed.load(Ordering::Acquire)
    }

    /// Whether an active memtable should be switched though it is not full.
    #[inline]
    pub(crate) fn wants_switch(&self) -> bool {
        let limit = self.limit();
        self.bytes() > limit && self.sealed.load(Ordering::Acquire) < limit / 2
    }

    /// Whether writers wait.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_counts_until_it_is_flushed() {
        let budget = WriteBudget::new(1000, Events::none());
        let [a, b, c] = [Charge::default(), Charge::default(), Charge::default()];
        budget.charge(&a, 600);
        budget.charge(&b, 300);
        budget.charge(&b, 400);
        assert!(!budget.wants_switch() && !budget.is_full(), "at the limit, not past it");
        budget.charge(&b, 401);
        assert!(budget.wants_switch() && !budget.is_full());
        budget.seal(&a);
        assert!(!budget.wants_switch(), "more than half is on its way out");
        assert_eq!(budget.bytes(), 1001);
        budget.charge(&c, 300);
        assert!(budget.is_full());
        assert!(budget.release(&a) && !budget.is_full());
        assert!(!budget.release(&a), "given back once");
        assert_eq!(budget.bytes(), 701);
        budget.charge(&c, 310);
        budget.charge(&a, 9000);
        assert_eq!(budget.bytes(), 711, "nothing comes behind what was given back");
        assert!(!budget.release(&b), "dropped while active");
        budget.seal(&c);
        budget.charge(&c, 400);
        assert_eq!(budget.bytes(), 400, "a writer that was still inside");
        budget.release(&c);
        assert_eq!(budget.bytes(), 0);
    }
}
