//! Memtable: the newest entries of a tree, sorted, in memory. Step W6 of a write, R3 of a read,
//! the source of F1.
//!
//! ```text
//! Memtable ── Tree (tree, node): B+-tree, words of keys in its leaves ──► entries (entry, arena)
//!    ├─ MemRangeDels (`range_del`): list of range tombstones, and what reads make of it
//!    ├─ Counters: striped, so that writers do not meet in them
//!    └─ MemtableIter (iter): cursor that stays right while inserts go on
//! ```
//! Inserts come from any thread, in any order of sequence numbers; reads take no lock and write
//! nothing. Entries are only added: a delete is an entry, and memory goes back when the memtable
//! is dropped.
//!
//! Invariants: an insert that has returned is found by every later read (on the same thread, or
//! one that learnt of it); two entries equal in key, sequence and kind are one, the first.
//!
//! Absent on purpose: what is visible (the caller brings the sequence), what an entry means (kinds
//! are only sorted by), and size limits (the caller switches memtables by [`Memtable::bytes_used`]).

mod arena;
mod counters;
mod entry;
mod iter;
mod node;
mod prefetch;
#[cfg(test)]
mod tests;
mod tree;

use std::sync::Arc;

pub use iter::MemtableIter;

use crate::key::{self, Comparator, Kind, SEEK_KIND};
use crate::range_del::{MemCover, MemRangeDels};
use crate::types::{SEQNO_MAX, SeqNo};
use counters::Counters;
use entry::Target;
use tree::Tree;

/// See the module header.
pub struct Memtable {
    tree: Tree,
    counters: Counters,
    range_dels: MemRangeDels,
}

/// What [`Memtable::get`] finds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Sequence number of the entry.
    pub seqno: SeqNo,
    /// Its kind, as a number; see [`Kind`].
    pub kind_byte: u8,
    /// Its value; lives as the memtable does.
    pub value: &'a [u8],
}

impl std::fmt::Debug for Entry<'_> {
    /// Shows no value: values stay out of logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Entry { seqno, kind_byte, value } = self;
        write!(f, "Entry(seqno {seqno}, kind {kind_byte}, {} bytes)", value.len())
    }
}

impl Memtable {
    /// An empty memtable; takes a few KiB.
    pub fn new(comparator: Comparator) -> Memtable {
        Memtable {
            tree: Tree::new(comparator),
            counters: Counters::default(),
            range_dels: MemRangeDels::default(),
        }
    }

    /// Adds an entry. One equal in key, sequence and kind to an earlier one is ignored. A range delete
    /// goes into the list of its own; one that spans nothing is ignored.
    ///
    /// # Panics
    /// If the key is longer than [`key::KEY_BYTES_MAX`], the value longer than
    /// [`key::VALUE_BYTES_MAX`], or `seqno` above [`SEQNO_MAX`]; and if the allocator is out of
    /// memory the process aborts.
    #[inline]
    pub fn insert(&self, user_key: &[u8], seqno: SeqNo, kind: Kind, value: &[u8]) {
        assert!(seqno <= SEQNO_MAX);
        if kind == Kind::RangeDelete {
            return self.insert_range_delete(user_key, value, seqno);
        }
        if self.tree.insert(user_key, key::trailer(seqno, kind as u8), value) {
            self.counters.add(user_key.len(), seqno, kind, value.len());
        }
    }

    #[cold]
    fn insert_range_delete(&self, start: &[u8], end: &[u8], seqno: SeqNo) {
        if self.comparator().compare(start, end).is_lt() {
            self.range_dels.add(start, end, seqno);
        }
    }

    /// The newest range tombstone over the key with a sequence number of at most `seqno`; 0 if there
    /// is none. One load where the memtable has no tombstones.
    #[inline(always)]
    pub fn range_cover(&self, user_key: &[u8], seqno: SeqNo) -> SeqNo {
        self.range_dels.cover(self.comparator(), user_key, seqno)
    }

    /// The range tombstones inserted so far; `None` if there are none.
    pub(crate) fn range_dels(&self) -> Option<Arc<MemCover>> {
        self.range_dels.snapshot(self.comparator())
    }

    /// How many range tombstones were inserted.
    pub fn range_deletes(&self) -> usize {
        self.range_dels.len()
    }

    /// The newest entry of the key with a sequence number of at most `seqno`.
    #[inline(always)]
    pub fn get(&self, user_key: &[u8], seqno: SeqNo) -> Option<Entry<'_>> {
        let target = Target { user_key, trailer: key::trailer(seqno, SEEK_KIND) };
        let entry = self.tree.lookup(&target)?;
        if self.tree.order().compare(entry.user_key(), user_key).is_ne() {
            return None;
        }
        let trailer = entry.trailer();
        Some(Entry { seqno: trailer >> 8, kind_byte: trailer as u8, value: entry.value() })
    }

    /// A cursor, not yet on an entry. It sees what is inserted while it moves.
    pub fn iter(self: &Arc<Self>) -> MemtableIter {
        MemtableIter::new(Arc::clone(self))
    }

    /// The order of its keys.
    pub fn comparator(&self) -> &Comparator {
        self.tree.order()
    }

    /// Bytes of memory held, unused rests of chunks included.
    pub fn bytes_used(&self) -> usize {
        size_of::<Memtable>() + self.tree.allocated() + self.range_dels.bytes()
    }

    /// Number of entries, range tombstones not counted. Like all counters, it may lag behind an insert that has not returned.
    pub fn entries(&self) -> usize {
        self.counters.entries()
    }

    /// Number of entries that are deletes of one key, single deletes included.
    pub fn deletes(&self) -> usize {
        self.counters.deletes()
    }

    /// Number of clue entries, and the bytes of their keys.
    pub(crate) fn clues(&self) -> (u64, u64) {
        self.counters.clues()
    }

    /// Whether no insert has returned.
    pub fn is_empty(&self) -> bool {
        self.entries() == 0 && self.range_deletes() == 0
    }

    /// The smallest and the largest sequence number of the entries, range tombstones not counted;
    /// `None` while there are none.
    pub fn seqno_range(&self) -> Option<(SeqNo, SeqNo)> {
        self.counters.seqno_range()
    }

    /// Bytes of all user keys.
    pub fn raw_key_bytes(&self) -> u64 {
        self.counters.key_bytes()
    }

    /// Bytes of all values.
    pub fn raw_value_bytes(&self) -> u64 {
        self.counters.value_bytes()
    }
}
