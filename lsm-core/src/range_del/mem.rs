//! The range tombstones of a memtable: a list to append to, and what reads make of it.
//!
//! ```text
//! add ──► pending ──(first read that finds it not empty)──► a run, merged with runs of about its
//!                                                            size ──► MemCover, replaced as a whole
//! ```
//! A read costs one load where there are no tombstones, and two where none was added since the
//! last read. Runs grow as powers of two, so adding n tombstones with a read after each costs
//! n log n bounds sorted over all, where building one set anew each time would cost n * n; and a
//! look-up asks log n runs at most.
//!
//! INVARIANT: a tombstone whose `add` has returned is in every snapshot taken later by a thread that
//! learnt of it: `count` is raised last, and a snapshot with fewer is not used.
//!
//! The lock is held to add to the list, to copy it, and to replace it; sets are built outside. Two
//! reads that build at once both use what they built, and the first one's stays.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;

use super::{RangeDels, RangeTombstone};
use crate::callback::Watch;
use crate::key::Comparator;
use crate::types::SeqNo;

/// What one tombstone weighs beside its keys: the list's entry, and its share in the runs.
const TOMBSTONE_BYTES: usize = 320;

/// All tombstones of a memtable at one moment.
#[derive(Default)]
pub(crate) struct MemCover {
    /// Oldest and largest first.
    pub(crate) runs: Vec<Arc<RangeDels>>,
    count: usize,
}

impl MemCover {
    /// As [`RangeDels::cover`].
    pub(crate) fn cover(&self, key: &[u8], upto: SeqNo) -> SeqNo {
        self.runs.iter().map(|run| run.cover(key, upto)).max().unwrap_or(0)
    }

    /// One set of them all.
    pub(crate) fn merged(&self, comparator: &Comparator) -> RangeDels {
        RangeDels::new(comparator.clone(), self.runs.iter().flat_map(|run| run.iter()))
    }
}

#[derive(Default)]
struct List {
    runs: Vec<Arc<RangeDels>>,
    /// How many tombstones are in the runs.
    in_runs: usize,
    pending: Vec<RangeTombstone>,
}

/// See the module header.
#[derive(Default)]
pub(crate) struct MemRangeDels {
    /// How many were added.
    count: AtomicUsize,
    bytes: AtomicUsize,
    list: Mutex<List>,
    cached: ArcSwapOption<MemCover>,
}

impl MemRangeDels {
    /// Adds a tombstone, which must span something.
    pub(crate) fn add(&self, start: &[u8], end: &[u8], seqno: SeqNo) {
        let tombstone = RangeTombstone { start: Arc::from(start), end: Arc::from(end), seqno };
        let bytes = start.len() + end.len() + TOMBSTONE_BYTES;
        self.list.lock().pending.push(tombstone);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Release);
    }

    /// How many were added.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Bytes of memory, about.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// As [`RangeDels::cover`].
    #[inline(always)]
    pub(crate) fn cover(&self, comparator: &Comparator, key: &[u8], upto: SeqNo) -> SeqNo {
        match self.len() {
            0 => 0,
            count => self.cover_of(count, comparator, key, upto),
        }
    }

    #[inline(never)]
    fn cover_of(&self, count: usize, comparator: &Comparator, key: &[u8], upto: SeqNo) -> SeqNo {
        let cached = self.cached.load();
        match &*cached {
            Some(cover) if cover.count >= count => cover.cover(key, upto),
            _ => self.rebuild(comparator).cover(key, upto),
        }
    }

    /// All tombstones now; `None` if there are none.
    pub(crate) fn snapshot(&self, comparator: &Comparator) -> Option<Arc<MemCover>> {
        let count = self.len();
        if count == 0 {
            return None;
        }
        match self.cached.load_full() {
            Some(cover) if cover.count >= count => Some(cover),
            _ => Some(self.rebuild(comparator)),
        }
    }

    #[cold]
    fn rebuild(&self, comparator: &Comparator) -> Arc<MemCover> {
        let watch = Watch::begin(comparator);
        let (mut runs, in_runs, pending) = {
            let list = self.list.lock();
            (list.runs.clone(), list.in_runs, list.pending.clone())
        };
        let taken = pending.len();
        if taken > 0 {
            let mut size = taken;
            let mut merged = Vec::new();
            while let Some(run) = runs.pop_if(|run| run.len() < 2 * size) {
                size += run.len();
                merged.push(run);
            }
            let older = merged.iter().flat_map(|run| run.iter());
            runs.push(Arc::new(RangeDels::new(comparator.clone(), older.chain(pending))));
        }
        let cover = Arc::new(MemCover { runs, count: in_runs + taken });
        let mut list = self.list.lock();
        // Else another read has put other runs in meanwhile, or the comparator panicked; these serve
        // this read only.
        if list.in_runs == in_runs && watch.check().is_ok() {
            list.runs.clone_from(&cover.runs);
            list.pending.drain(..taken);
            list.in_runs += taken;
            self.cached.store(Some(cover.clone()));
        }
        cover
    }
}
