//! Cursor over a memtable, in both directions, while inserts go on.
//!
//! It remembers the leaf, its version and the slot. As long as the version holds, a step is a look
//! into the same leaf; when the leaf has changed, the cursor finds its place again by the key. So
//! an entry that was in the memtable before a step is never skipped by it, and keys only ascend
//! (or descend) whatever is inserted meanwhile.

#![allow(unsafe_code)]

use std::mem;
use std::sync::Arc;

use super::Memtable;
use super::entry::Target;
use super::tree::{Place, Tree};
use crate::Result;
use crate::read::internal::InternalIter;

/// See the module header. Keeps its memtable alive.
pub struct MemtableIter {
    /// Points into `table`; `'static` stands for "as long as `table` is held".
    place: Option<Place<'static>>,
    table: Arc<Memtable>,
}

impl MemtableIter {
    pub(super) fn new(table: Arc<Memtable>) -> MemtableIter {
        MemtableIter { place: None, table }
    }

    #[inline]
    fn go(&mut self, find: impl for<'a> FnOnce(&'a Tree, Option<Place<'a>>) -> Option<Place<'a>>) {
        let place = find(&self.table.tree, self.place);
        // SAFETY: what a place points to is freed by the memtable's drop only, and this cursor
        // holds the memtable by an `Arc`. The place is private, and `key` and `value` bind what
        // they give out to a borrow of the cursor.
        self.place = unsafe { mem::transmute::<Option<Place<'_>>, Option<Place<'static>>>(place) };
    }

    #[inline]
    fn place(&self) -> &Place<'_> {
        self.place.as_ref().expect("`key` and `value` are called only while valid")
    }
}

impl InternalIter for MemtableIter {
    #[inline]
    fn valid(&self) -> bool {
        self.place.is_some()
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.go(|tree, _| tree.first());
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.go(|tree, _| tree.last());
        Ok(())
    }

    fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.go(|tree, _| tree.at_or_after(&Target::of_internal(target)));
        Ok(())
    }

    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        self.go(|tree, _| tree.before(&Target::of_internal(target).just_after()));
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.go(|tree, place| place.and_then(|place| place.next(tree)));
        Ok(())
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.go(|tree, place| place.and_then(|place| place.prev(tree)));
        Ok(())
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.place().entry.internal_key()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.place().entry.value()
    }
}
