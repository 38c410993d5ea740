//! Range deletes: one entry that says that all keys from a start up to an end are gone.
//!
//! ```text
//! write     memtable ── list (mem) ──► runs of RangeDels, built when a read first needs them
//! flush     RangeDels ── per snapshot stripe the newest one of each fragment (fragments) ──► cut to
//! compact.  the table's share of the keys (fragments::Cutter) ──► section of the table
//! open      section ──► RangeDels, kept with the table's reader
//! get       RangeDels::cover of each source, on the way down       (read/get.rs)
//! scan      ScanCover (scan) inside the merge, which jumps         (read/merging_iter.rs)
//! ```
//! A *tombstone* here is `start` (inclusive), `end` (exclusive) and the sequence number of its
//! operation. It hides what is older than it: an entry is covered if a tombstone of the same or a
//! younger source spans its key, has a higher sequence number, and the reader sees it. *Cover* of
//! a key is the highest such sequence number; 0, which no operation has, stands for none.
//!
//! INVARIANTS
//! - A table holds tombstones only within the keys that it answers for in its level: its neighbours
//!   hold the rest. So a look-up never has to cut one, and asks no table but the key's own.
//!   Upheld by `fragments::Cutter`; attacked by `random_compactions_never_change_a_read`.
//! - The key range of a table in the manifest includes its tombstones (`TableFile`); an end that is
//!   a tombstone's is exclusive, so tables that only touch do not overlap.
//! - I3 holds for tombstones as for entries: a source that is older than a tombstone's holds nothing
//!   newer than it under it. So a covered look-up ends, and a scan may move all older sources past
//!   a tombstone without looking (`scan`).
//! - A Put with sequence 0 never shares a source with a tombstone over its key, nor lies above one
//!   (`compaction/visibility.rs`).
//!
//! Only native entries are covered; what is redirected to another shard is opaque there.

pub(crate) mod fragments;
mod mem;
pub(crate) mod scan;
mod set;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::types::SeqNo;

pub(crate) use mem::{MemCover, MemRangeDels};
pub use scan::RangeStats;
pub use set::RangeDels;

/// One range delete, or the part of it that some source holds.
#[derive(Clone, PartialEq, Eq)]
pub struct RangeTombstone {
    /// First user key that is gone.
    pub start: Arc<[u8]>,
    /// The user key before which it ends.
    pub end: Arc<[u8]>,
    /// The place of the operation in the order of all.
    pub seqno: SeqNo,
}

impl std::fmt::Debug for RangeTombstone {
    /// Shows lengths only: keys stay out of logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let RangeTombstone { start, end, seqno } = self;
        write!(f, "RangeTombstone({} bytes..{} bytes seqno {seqno})", start.len(), end.len())
    }
}
