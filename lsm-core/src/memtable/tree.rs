//! The memtable's index: a B+-tree over entries in the arena, with optimistic lock coupling.
//!
//! Why not a skiplist: a descent over half a million keys takes some 20 dependent cache misses
//! there, and two or three here; a leaf keeps the keys' heads in itself.
//!
//! A descent takes the version of a node, finds the child, takes the child's version, and only then
//! looks whether the node was still the same: so the child's version belongs to the time at which
//! the child covered the target. Whatever does not hold sends it back to the root.
//!
//! Invariants:
//! - Only one who holds a node's lock changes it. Locks are tried, never waited for while another
//!   is held, so there is no deadlock.
//! - A full inner node is split on the way down, so a leaf's parent always has room.
//! - A node splits only while its parent (or, for the root, its own lock) is held: who validated
//!   the parent after reading the child's version knows the child's range.
//! - The first leaf stays the first, and a split leaves its left part in place: leaves are only
//!   ever found by descending or by going right.
//!
//! Attacked by `tests::model_*` and, for the protocol, `tests::concurrent_*` (also under Miri).

use std::cmp::Ordering;
use std::sync::atomic::{self, AtomicPtr};

use super::arena::Arena;
use super::entry::{ENTRY_ALIGN, EntryRef, Target};
use super::node::{Backoff, Bound, Head, INNER_SLOTS, Inner, LEAF_SLOTS, Leaf, Locked, NODE_ALIGN, Node};
use crate::key::Comparator;

/// See the module header.
pub(super) struct Tree {
    order: Comparator,
    root: AtomicPtr<Head>,
    /// The leftmost leaf, for ever.
    first: AtomicPtr<Head>,
    /// A leaf near the right end, most of the time the last one: makes ascending inserts cheap.
    tail: AtomicPtr<Head>,
    nodes: Arena,
    entries: Arena,
}

/// How far ahead a scan fetches entries.
const PREFETCH_ENTRIES: usize = 8;

/// Where a descent came from.
struct Parent<'a> {
    inner: &'a Inner,
    version: u64,
    slot: usize,
}

/// An entry and where it stood when it was found.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    leaf: &'a Leaf,
    version: u64,
    slot: usize,
    pub(super) entry: EntryRef<'a>,
}

impl Tree {
    pub(super) fn new(order: Comparator) -> Tree {
        let nodes = Arena::new(NODE_ALIGN);
        let leaf = Node::Leaf(Leaf::new_in(&nodes)).as_raw();
        let [root, first, tail] = [leaf; 3].map(AtomicPtr::new);
        Tree { order, root, first, tail, nodes, entries: Arena::new(ENTRY_ALIGN) }
    }

    /// Bytes held from the allocator.
    pub(super) fn allocated(&self) -> usize {
        self.nodes.allocated() + self.entries.allocated()
    }

    pub(super) fn order(&self) -> &Comparator {
        &self.order
    }

    fn leaf_at<'a>(&'a self, hint: &'a AtomicPtr<Head>) -> &'a Leaf {
        match Node::load(hint) {
            Node::Leaf(leaf) => leaf,
            Node::Inner(_) => unreachable!("`first` and `tail` are only ever set to leaves"),
        }
    }

    // ---- search ----

    /// The leaf that the target falls into (see [`Inner::slot_of`]) and its version.
    #[inline]
    fn find_leaf(&self, target: &Target<'_>, bound: Bound) -> (&Leaf, u64) {
        let mut backoff = Backoff::default();
        loop {
            if let Some(found) = self.try_find_leaf(target, bound) {
                return found;
            }
            backoff.pause();
        }
    }

    #[inline]
    fn try_find_leaf(&self, target: &Target<'_>, bound: Bound) -> Option<(&Leaf, u64)> {
        let (mut node, mut version) = self.enter()?;
        loop {
            match node {
                Node::Leaf(leaf) => return Some((leaf, version)),
                Node::Inner(inner) => {
                    let slot = inner.slot_of(target, bound, &self.order)?;
                    (node, version) = Tree::step_down(inner, version, slot)?;
                }
            }
        }
    }

    /// The root and its version. A root that was split before its version was taken is noticed.
    #[inline]
    fn enter(&self) -> Option<(Node<'_>, u64)> {
        let root = Node::load(&self.root);
        let version = root.head().read_version();
        (self.root.load(atomic::Ordering::Acquire) == root.as_raw()).then_some((root, version))
    }

    #[inline]
    fn step_down(inner: &Inner, version: u64, slot: usize) -> Option<(Node<'_>, u64)> {
        let child = inner.child(slot)?;
        child.prefetch();
        let child_version = child.head().read_version();
        inner.head.is_still(version).then_some((child, child_version))
    }

    /// The first entry at or after the target; no place, for who needs none.
    #[inline(always)]
    pub(super) fn lookup(&self, target: &Target<'_>) -> Option<EntryRef<'_>> {
        loop {
            let (leaf, version) = self.find_leaf(target, Bound::UpTo);
            let len = leaf.head.len();
            let Some(slot) = leaf.count(len, target, Bound::Before, &self.order) else { continue };
            // The upper fence is the first entry of the next leaf.
            let entry = if slot < len { leaf.slots.entry(slot) } else { leaf.head.hi() };
            if leaf.head.is_still(version) {
                return entry;
            }
        }
    }

    /// The first entry.
    pub(super) fn first(&self) -> Option<Place<'_>> {
        let leaf = self.leaf_at(&self.first);
        Place::in_leaf(leaf, |len| (len > 0).then_some(0))
    }

    /// The last entry.
    pub(super) fn last(&self) -> Option<Place<'_>> {
        let mut leaf = self.leaf_at(&self.tail);
        loop {
            let place = Place::in_leaf(leaf, |len| len.checked_sub(1));
            match leaf.head.next() {
                Some(next) => leaf = next,
                None => return place,
            }
        }
    }

    /// The first entry at or after the target.
    pub(super) fn at_or_after(&self, target: &Target<'_>) -> Option<Place<'_>> {
        loop {
            let (leaf, version) = self.find_leaf(target, Bound::UpTo);
            let len = leaf.head.len();
            let Some(slot) = leaf.count(len, target, Bound::Before, &self.order) else { continue };
            let (entry, next) = (leaf.slots.entry(slot), leaf.head.next());
            if !leaf.head.is_still(version) {
                continue;
            }
            return match entry {
                Some(entry) if slot < len => Some(Place { leaf, version, slot, entry }),
                _ => next.map(Place::first_of),
            };
        }
    }

    /// The last entry before the target.
    pub(super) fn before(&self, target: &Target<'_>) -> Option<Place<'_>> {
        loop {
            let (leaf, version) = self.find_leaf(target, Bound::Before);
            let Some(count) = leaf.count(leaf.head.len(), target, Bound::Before, &self.order) else {
                continue;
            };
            // A leaf that begins before the target holds an entry before it, unless it is the
            // first one and begins nowhere.
            let slot = count.checked_sub(1);
            let entry = slot.and_then(|slot| leaf.slots.entry(slot));
            if leaf.head.is_still(version) {
                return slot.zip(entry).map(|(slot, entry)| Place { leaf, version, slot, entry });
            }
        }
    }

    // ---- insert ----

    /// Adds an entry. `false` if one equal in key, sequence and kind is there already.
    ///
    /// # Panics
    /// If key or value is longer than the format allows.
    #[inline]
    pub(super) fn insert(&self, user_key: &[u8], trailer: u64, value: &[u8]) -> bool {
        // Written first: its stores overlap with the loads of the descent.
        let entry = EntryRef::write(&self.entries, user_key, trailer, value);
        let target = Target { user_key, trailer };
        if self.append(entry, &target) {
            return true;
        }
        let mut backoff = Backoff::default();
        loop {
            if let Some(added) = self.try_insert(entry, &target) {
                return added;
            }
            backoff.pause();
        }
    }

    /// Adds `entry` to the last leaf if it belongs at its end and there is room.
    #[inline]
    fn append(&self, entry: EntryRef<'_>, target: &Target<'_>) -> bool {
        let leaf = self.leaf_at(&self.tail);
        let Some(version) = leaf.head.version_now() else { return false };
        let len = leaf.head.len();
        if len == 0 || len >= LEAF_SLOTS || leaf.head.next().is_some() {
            return false;
        }
        let word = leaf.head.word(target.user_key, &self.order);
        let is_behind_last = match leaf.slots.word(len - 1).cmp(&word) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => {
                leaf.slots.entry(len - 1).is_some_and(|last| target.order_of(last, &self.order).is_lt())
            }
        };
        if !is_behind_last {
            return false;
        }
        // Still at that version, it still is the last leaf: behind its end there is only room.
        let Some(_lock) = leaf.head.try_lock(version) else { return false };
        leaf.insert(len, entry, &self.order);
        true
    }

    /// `None`: something changed meanwhile, or a full inner node was split; try again.
    #[inline]
    fn try_insert(&self, entry: EntryRef<'_>, target: &Target<'_>) -> Option<bool> {
        let (mut node, mut version) = self.enter()?;
        let mut parent: Option<Parent<'_>> = None;
        let leaf = loop {
            match node {
                Node::Leaf(leaf) => break leaf,
                Node::Inner(inner) => {
                    let slot = inner.slot_of(target, Bound::UpTo, &self.order)?;
                    if inner.head.len() >= INNER_SLOTS {
                        self.split_inner(parent, inner, version, slot);
                        return None;
                    }
                    let child = Tree::step_down(inner, version, slot)?;
                    parent = Some(Parent { inner, version, slot });
                    (node, version) = child;
                }
            }
        };
        let len = leaf.head.len();
        let slot = leaf.count(len, target, Bound::Before, &self.order)?;
        if slot < len && leaf.slots.word(slot) == leaf.head.word(target.user_key, &self.order) {
            let here = leaf.slots.entry(slot)?;
            if target.order_of(here, &self.order).is_eq() {
                return leaf.head.is_still(version).then_some(false);
            }
        }
        let _lock = leaf.head.try_lock(version)?;
        if len < LEAF_SLOTS {
            leaf.insert(slot, entry, &self.order);
        } else {
            self.split_leaf(parent, leaf, slot, entry)?;
        }
        Some(true)
    }

    /// Splits `leaf`, full and locked, and adds `entry`, whose slot would be `slot`.
    #[cold]
    fn split_leaf(
        &self,
        parent: Option<Parent<'_>>,
        leaf: &Leaf,
        slot: usize,
        entry: EntryRef<'_>,
    ) -> Option<()> {
        let _parent_lock = Tree::lock_parent(parent.as_ref())?;
        // An entry at either end stands alone in its leaf: ascending (or descending) inserts leave
        // full leaves behind. Slot 0 occurs only in the first leaf.
        let at = match slot {
            0 => 0,
            LEAF_SLOTS => LEAF_SLOTS,
            _ => LEAF_SLOTS / 2,
        };
        let right = Leaf::new_in(&self.nodes);
        leaf.split_into(at, right);
        if slot >= at && slot > 0 {
            right.insert(slot - at, entry, &self.order);
        } else {
            leaf.insert(slot, entry, &self.order);
        }
        let separator = right.slots.entry(0).expect("the right part is never empty");
        right.head.set_fences(Some(separator), leaf.head.hi());
        leaf.head.set_fences(leaf.head.lo(), Some(separator));
        right.refresh(&self.order);
        leaf.refresh(&self.order);
        let next = leaf.head.next();
        right.head.set_next(next);
        leaf.head.set_next(Some(right));
        if next.is_none() {
            Node::Leaf(right).store(&self.tail);
        }
        self.attach(parent.as_ref(), Node::Leaf(leaf), separator, Node::Leaf(right));
        Some(())
    }

    /// Splits `inner`, full at `version`, unless something changed meanwhile. The descent was about
    /// to go to `slot`.
    #[cold]
    fn split_inner(&self, parent: Option<Parent<'_>>, inner: &Inner, version: u64, slot: usize) {
        let Some(_lock) = inner.head.try_lock(version) else { return };
        let Some(_parent_lock) = Tree::lock_parent(parent.as_ref()) else { return };
        // At an end of the node: as with leaves, leave a full node behind.
        let at = match slot {
            0 => 1,
            slot if slot == INNER_SLOTS - 1 => INNER_SLOTS - 1,
            _ => INNER_SLOTS / 2,
        };
        let right = Inner::new_in(&self.nodes, inner.head.level());
        inner.split_into(at, right);
        let separator = right.slots.entry(0).expect("only slot 0 of a node may be without an entry");
        right.head.set_fences(Some(separator), inner.head.hi());
        inner.head.set_fences(inner.head.lo(), Some(separator));
        right.refresh(&self.order);
        inner.refresh(&self.order);
        self.attach(parent.as_ref(), Node::Inner(inner), separator, Node::Inner(right));
    }

    /// The lock of a split node's parent; an empty one for the root, whose own lock is enough.
    fn lock_parent<'a>(parent: Option<&Parent<'a>>) -> Option<Option<Locked<'a>>> {
        match parent {
            None => Some(None),
            Some(parent) => parent.inner.head.try_lock(parent.version).map(Some),
        }
    }

    /// Makes `right`, which begins with `separator`, known above `left`. Under the parent's lock.
    fn attach(&self, parent: Option<&Parent<'_>>, left: Node<'_>, separator: EntryRef<'_>, right: Node<'_>) {
        match parent {
            Some(parent) => parent.inner.insert(parent.slot + 1, Some(separator), right, &self.order),
            None => {
                let root = Inner::new_in(&self.nodes, left.head().level() + 1);
                root.insert(0, None, left, &self.order);
                root.insert(1, Some(separator), right, &self.order);
                Node::Inner(root).store(&self.root);
            }
        }
    }
}

impl<'a> Place<'a> {
    /// The entry of `leaf` in the slot that `choose` picks, given their number.
    fn in_leaf(leaf: &'a Leaf, choose: impl Fn(usize) -> Option<usize>) -> Option<Place<'a>> {
        loop {
            let version = leaf.head.read_version();
            let slot = choose(leaf.head.len());
            let entry = slot.and_then(|slot| leaf.slots.entry(slot));
            if leaf.head.is_still(version) {
                return slot.zip(entry).map(|(slot, entry)| Place { leaf, version, slot, entry });
            }
        }
    }

    /// The first entry of a leaf that is not the first: there always is one, and it never changes.
    fn first_of(leaf: &'a Leaf) -> Place<'a> {
        let version = leaf.head.read_version();
        let entry = leaf.slots.entry(0).expect("a leaf behind the first holds its separator");
        Place { leaf, version, slot: 0, entry }
    }

    /// The entry behind this one.
    #[inline]
    pub(super) fn next(&self, tree: &'a Tree) -> Option<Place<'a>> {
        let Place { leaf, version, .. } = *self;
        let slot = self.slot + 1;
        if slot < leaf.head.len() {
            let entry = leaf.slots.entry(slot);
            if leaf.head.is_still(version)
                && let Some(entry) = entry
            {
                Place::prefetch_ahead(leaf, slot);
                return Some(Place { leaf, version, slot, entry });
            }
        } else {
            let next = leaf.head.next();
            if leaf.head.is_still(version) {
                return next.map(Place::first_of);
            }
        }
        // The leaf has changed since: find the place again by the key.
        tree.at_or_after(&Target::of(self.entry).just_after())
    }

    /// The entry before this one.
    #[inline]
    pub(super) fn prev(&self, tree: &'a Tree) -> Option<Place<'a>> {
        let Place { leaf, version, .. } = *self;
        if let Some(slot) = self.slot.checked_sub(1) {
            let entry = leaf.slots.entry(slot);
            if leaf.head.is_still(version)
                && let Some(entry) = entry
            {
                leaf.slots.prefetch_entry(slot.wrapping_sub(PREFETCH_ENTRIES));
                return Some(Place { leaf, version, slot, entry });
            }
        }
        tree.before(&Target::of(self.entry))
    }

    /// A scan waits for memory, not for the processor: fetch what it will come to.
    #[inline]
    fn prefetch_ahead(leaf: &Leaf, slot: usize) {
        let ahead = slot + PREFETCH_ENTRIES;
        if ahead < leaf.head.len() {
            leaf.slots.prefetch_entry(ahead);
        } else if let Some(next) = leaf.head.next() {
            next.slots.prefetch_entry(ahead - leaf.head.len().min(ahead));
        }
        if slot == 1
            && let Some(next) = leaf.head.next()
        {
            next.prefetch();
        }
    }
}
