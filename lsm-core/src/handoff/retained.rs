//! Bytes of tables that only the hand-off still needs.
//!
//! A compaction reserves the bytes of its inputs when it is picked; they are retained from its install
//! until that step is settled. So the sum over running and unsettled compactions is bounded before
//! anything is written: it passes the bound only by one compaction larger than that, alone. Tables that
//! a reader holds after that are the reader's, and count nowhere here (rule 21).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// See the module header.
#[derive(Default)]
pub(crate) struct Retained {
    bytes: AtomicU64,
    peak: AtomicU64,
}

/// Bytes reserved; given back when dropped.
pub(crate) struct Reserved {
    owner: Arc<Retained>,
    bytes: u64,
}

impl Retained {
    /// Reserves `bytes` if they fit below `max`, or if nothing is reserved.
    pub(crate) fn try_reserve(self: &Arc<Retained>, bytes: u64, max: u64) -> Option<Reserved> {
        let fits = |held: u64| (held == 0 || held + bytes <= max).then_some(held + bytes);
        let held = self.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).ok()?;
        debug_assert!(held == 0 || held + bytes <= max, "more is retained than may be");
        self.peak.fetch_max(held + bytes, Ordering::AcqRel);
        Some(Reserved { owner: self.clone(), bytes })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// The most there ever was.
    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Acquire)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.owner.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_holds_but_for_one_alone() {
        let retained = Arc::new(Retained::default());
        let large = retained.try_reserve(300, 100).expect("alone");
        assert!(retained.try_reserve(1, 100).is_none());
        drop(large);
        let first = retained.try_reserve(60, 100).expect("fits");
        assert!(retained.try_reserve(41, 100).is_none());
        let second = retained.try_reserve(40, 100).expect("fits exactly");
        drop((first, second));
        assert_eq!((retained.bytes(), retained.peak()), (0, 300));
    }
}
