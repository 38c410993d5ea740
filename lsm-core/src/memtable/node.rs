//! Nodes of the memtable's tree, and the protocol by which they are read and written.
//!
//! ```text
//! Head   one cache line: version, len, skip, level, lo, hi, next
//! Leaf   Head, words[32], entries[32]                     576 bytes
//! Inner  Head, words[64], entries[64], children[64]      1600 bytes
//! ```
//! An entry's *word* is the 8 bytes of its user key behind the first `skip` bytes, as a number that
//! orders as the keys do ([`Comparator::prefix`]). Searches compare words side by side in the node
//! and follow an entry's pointer only where words are equal. All keys between the node's fences
//! `lo` (inclusive) and `hi` (exclusive) share their first `skip` bytes, so these decide nothing.
//! In an inner node `entries[i]` is the first entry below `children[i]`; slot 0 has none of use.
//!
//! The protocol is a seqlock per node. A writer takes the lock bit of `version`, writes, and stores
//! the next even version. A reader takes an even version, reads what it needs, and looks whether
//! the version is still the same; if not, what it read may be torn and is thrown away. Readers
//! write nothing.
//!
//! Invariants:
//! - All shared fields are atomics, so a torn read is a wrong value, not a data race. Entries are
//!   stored with Release and loaded with Acquire: even a pointer from a torn read leads to an entry
//!   that is wholly written; so with nodes.
//! - Nodes and entries are never freed or moved while the tree lives.
//! - Entries are only added: `entries[0]` of a leaf that is not the first is its `lo` and never
//!   changes.

#![allow(unsafe_code)]

use std::cmp::Ordering as Order;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

use super::arena::Arena;
use super::entry::{EntryRef, Target};
use super::prefetch;
use crate::key::Comparator;

/// Alignment that nodes need of their arena.
pub(super) const NODE_ALIGN: usize = 64;
/// Entries in a leaf. Small enough that all its cache lines can be fetched at once.
pub(super) const LEAF_SLOTS: usize = 32;
/// Children of an inner node.
pub(super) const INNER_SLOTS: usize = 64;
/// A node's words are made anew when its keys are found to share at least this many bytes more.
const SKIP_STEP_BYTES: usize = 4;
/// No more shared bytes than this are looked for, since that is done under the lock.
const SKIP_BYTES_MAX: usize = 1024;
/// How often a waiting thread looks again before it gives up the processor.
const SPINS_MAX: u32 = 64;

const LOCK_BIT: u64 = 1;

/// Which entries a search counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Bound {
    /// Those before the target.
    Before,
    /// Those before it, and the target itself.
    UpTo,
}

impl Bound {
    #[inline]
    fn takes(self, entry_to_target: Order) -> bool {
        match self {
            Bound::Before => entry_to_target.is_lt(),
            Bound::UpTo => entry_to_target.is_le(),
        }
    }
}

/// Waits a moment, longer each time. The lock waited for is held over some 100 instructions.
#[derive(Default)]
pub(super) struct Backoff(u32);

impl Backoff {
    #[inline]
    pub(super) fn pause(&mut self) {
        self.0 += 1;
        if self.0 < SPINS_MAX && !cfg!(miri) {
            std::hint::spin_loop();
        } else {
            // The holder has lost its processor. Not through `Env`: no thread of a simulation is ever
            // stopped while it holds a node, since no scheduling point lies in between.
            #[allow(clippy::disallowed_methods, reason = "see above")]
            std::thread::yield_now();
        }
    }
}

/// What both kinds of node start with.
#[repr(C, align(64))]
pub(super) struct Head {
    version: AtomicU64,
    len: AtomicU32,
    skip: AtomicU32,
    /// 0 for a leaf. Never changes.
    level: u32,
    lo: AtomicPtr<u8>,
    hi: AtomicPtr<u8>,
    /// Leaf to the right; null in inner nodes.
    next: AtomicPtr<Leaf>,
}

/// A node's lock; given back, with a new version, on drop.
pub(super) struct Locked<'a> {
    head: &'a Head,
    version: u64,
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        self.head.version.store(self.version + 2, Ordering::Release);
    }
}

impl Head {
    fn new(level: u32) -> Head {
        Head {
            version: AtomicU64::new(0),
            len: AtomicU32::new(0),
            skip: AtomicU32::new(0),
            level,
            lo: AtomicPtr::new(ptr::null_mut()),
            hi: AtomicPtr::new(ptr::null_mut()),
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// The version, waiting while a writer is at work.
    #[inline]
    pub(super) fn read_version(&self) -> u64 {
        let mut backoff = Backoff::default();
        loop {
            if let Some(version) = self.version_now() {
                return version;
            }
            backoff.pause();
        }
    }

    /// The version, unless a writer is at work.
    #[inline]
    pub(super) fn version_now(&self) -> Option<u64> {
        let version = self.version.load(Ordering::Acquire);
        (version & LOCK_BIT == 0).then_some(version)
    }

    /// Whether all that was read since `version` was taken belongs to that version.
    #[inline]
    pub(super) fn is_still(&self, version: u64) -> bool {
        // Pairs with the fence in `try_lock`: who saw a writer's store sees its lock bit too.
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == version
    }

    /// The lock, if the node is still at `version`. Never waits, so no order of locks matters.
    #[inline]
    pub(super) fn try_lock(&self, version: u64) -> Option<Locked<'_>> {
        self.version
            .compare_exchange(version, version | LOCK_BIT, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        fence(Ordering::Release);
        Some(Locked { head: self, version })
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed) as usize
    }

    pub(super) fn set_len(&self, len: usize) {
        self.len.store(len as u32, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn level(&self) -> u32 {
        self.level
    }

    /// The word of `user_key` in this node.
    #[inline]
    pub(super) fn word(&self, user_key: &[u8], order: &Comparator) -> u64 {
        let skip = self.skip.load(Ordering::Relaxed) as usize;
        // A key may be shorter only where a torn descent led to the wrong node.
        order.prefix(user_key.get(skip..).unwrap_or_default())
    }

    /// Lower fence: the separator left of this node; `None` in the leftmost.
    #[inline]
    pub(super) fn lo(&self) -> Option<EntryRef<'_>> {
        // SAFETY: fences are stored by `set_fences`, with Release, from entries of this tree.
        unsafe { EntryRef::from_raw(self.lo.load(Ordering::Acquire)) }
    }

    /// Upper fence: the first entry of the node to the right; `None` in the rightmost.
    #[inline]
    pub(super) fn hi(&self) -> Option<EntryRef<'_>> {
        // SAFETY: as in `lo`.
        unsafe { EntryRef::from_raw(self.hi.load(Ordering::Acquire)) }
    }

    pub(super) fn set_fences(&self, lo: Option<EntryRef<'_>>, hi: Option<EntryRef<'_>>) {
        let raw = |fence: Option<EntryRef<'_>>| fence.map_or(ptr::null_mut(), EntryRef::as_raw);
        self.lo.store(raw(lo), Ordering::Release);
        self.hi.store(raw(hi), Ordering::Release);
    }

    /// The leaf to the right.
    #[inline]
    pub(super) fn next(&self) -> Option<&Leaf> {
        let next = self.next.load(Ordering::Acquire);
        // SAFETY: null, or a whole leaf of this tree, stored with Release; it lives as this one does.
        unsafe { next.as_ref() }
    }

    pub(super) fn set_next(&self, next: Option<&Leaf>) {
        let next = next.map_or(ptr::null_mut(), |leaf| ptr::from_ref(leaf).cast_mut());
        self.next.store(next, Ordering::Release);
    }
}

/// The sorted part of a node: words and entries, side by side.
pub(super) struct Slots<const N: usize> {
    words: [AtomicU64; N],
    entries: [AtomicPtr<u8>; N],
}

impl<const N: usize> Slots<N> {
    fn new() -> Slots<N> {
        Slots {
            words: [const { AtomicU64::new(0) }; N],
            entries: [const { AtomicPtr::new(ptr::null_mut()) }; N],
        }
    }

    #[inline]
    pub(super) fn word(&self, at: usize) -> u64 {
        self.words[at].load(Ordering::Relaxed)
    }

    /// The entry in slot `at`. `None` shows a torn read.
    #[inline]
    pub(super) fn entry(&self, at: usize) -> Option<EntryRef<'_>> {
        // SAFETY: null, or stored by `set` with Release from an entry of this tree.
        unsafe { EntryRef::from_raw(self.entries.get(at)?.load(Ordering::Acquire)) }
    }

    #[inline]
    pub(super) fn set(&self, at: usize, word: u64, entry: Option<EntryRef<'_>>) {
        self.words[at].store(word, Ordering::Relaxed);
        self.entries[at].store(entry.map_or(ptr::null_mut(), EntryRef::as_raw), Ordering::Release);
    }

    /// Fetches the entry in slot `at` into the cache; an empty slot does no harm.
    #[inline]
    pub(super) fn prefetch_entry(&self, at: usize) {
        if let Some(entry) = self.entries.get(at) {
            prefetch::lines(entry.load(Ordering::Relaxed), 2);
        }
    }

    /// How many of the first `len` slots, slot `from` and up, lie before the target; `from` is
    /// added. `word` is the target's. `None` shows a torn read.
    #[inline]
    pub(super) fn count(
        &self,
        (from, len): (usize, usize),
        (word, target): (u64, &Target<'_>),
        bound: Bound,
        order: &Comparator,
    ) -> Option<usize> {
        let len = len.min(N);
        let first = self.count_words(from, len, word);
        if first >= len || self.word(first) != word {
            return Some(first);
        }
        if !bound.takes(target.order_of(self.entry(first)?, order)) {
            return Some(first);
        }
        self.count_equal(first + 1, len, (word, target), bound, order)
    }

    /// Binary search over the words without branches that could be mispredicted.
    #[inline]
    fn count_words(&self, from: usize, len: usize, word: u64) -> usize {
        let mut base = from;
        let mut rest = len.saturating_sub(from);
        while rest > 0 {
            let half = rest.div_ceil(2);
            let before = self.word(base + half - 1) < word;
            base = std::hint::select_unpredictable(before, base + half, base);
            rest = std::hint::select_unpredictable(before, rest - half, half - 1);
        }
        base
    }

    /// Binary search by whole keys among the slots from `low` up whose words equal the target's.
    fn count_equal(
        &self,
        mut low: usize,
        len: usize,
        (word, target): (u64, &Target<'_>),
        bound: Bound,
        order: &Comparator,
    ) -> Option<usize> {
        let mut high = low;
        while high < len && self.word(high) == word {
            high += 1;
        }
        while low < high {
            let middle = low.midpoint(high);
            if bound.takes(target.order_of(self.entry(middle)?, order)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Some(low)
    }

    /// Makes slot `at` free in a node of `len` entries. Under the lock.
    #[inline]
    fn open(&self, at: usize, len: usize) {
        for to in (at + 1..=len).rev() {
            self.words[to].store(self.word(to - 1), Ordering::Relaxed);
            let moved = self.entries[to - 1].load(Ordering::Relaxed);
            self.entries[to].store(moved, Ordering::Release);
        }
    }

    /// Copies slots `at..len` to the front of `right`, which no one else sees yet.
    fn copy_tail(&self, at: usize, len: usize, right: &Slots<N>) {
        for from in at..len {
            right.set(from - at, self.word(from), self.entry(from));
        }
    }

    /// Makes the words of slots `from..len` anew. Under the lock.
    fn remake_words(&self, head: &Head, from: usize, len: usize, order: &Comparator) {
        for at in from..len {
            let entry = self.entry(at).expect("slots below len are set, and the lock is held");
            self.words[at].store(head.word(entry.user_key(), order), Ordering::Relaxed);
        }
    }
}

/// Skips the bytes that all keys between the fences share, where that makes words tell more.
fn refresh_skip<const N: usize>(head: &Head, slots: &Slots<N>, from: usize, order: &Comparator) {
    let (Some(lo), Some(hi)) = (head.lo(), head.hi()) else { return };
    if matches!(order, Comparator::Custom(_)) {
        return;
    }
    let pairs = lo.user_key().iter().zip(hi.user_key()).take(SKIP_BYTES_MAX);
    let shared = pairs.take_while(|(a, b)| a == b).count();
    let skip = head.skip.load(Ordering::Relaxed) as usize;
    if shared >= skip + SKIP_STEP_BYTES {
        head.skip.store(shared as u32, Ordering::Relaxed);
        slots.remake_words(head, from, head.len(), order);
    }
}

/// A node at level 0; see the module header.
#[repr(C)]
pub(super) struct Leaf {
    pub(super) head: Head,
    pub(super) slots: Slots<LEAF_SLOTS>,
}

/// A node above the leaves; see the module header.
#[repr(C)]
pub(super) struct Inner {
    pub(super) head: Head,
    pub(super) slots: Slots<INNER_SLOTS>,
    children: [AtomicPtr<Head>; INNER_SLOTS],
}

impl Leaf {
    /// A new, empty leaf.
    pub(super) fn new_in(arena: &Arena) -> &Leaf {
        let at = arena.allocate(size_of::<Leaf>()).cast::<Leaf>();
        // SAFETY: the arena gave this many bytes, aligned to 64, to this call alone.
        unsafe { at.write(Leaf { head: Head::new(0), slots: Slots::new() }) };
        // SAFETY: just written; from now on only its atomics change. Lives as the arena does.
        unsafe { at.as_ref() }
    }

    /// How many of the first `len` entries lie before the target. `None` shows a torn read.
    #[inline]
    pub(super) fn count(
        &self,
        len: usize,
        target: &Target<'_>,
        bound: Bound,
        order: &Comparator,
    ) -> Option<usize> {
        let word = self.head.word(target.user_key, order);
        self.slots.count((0, len), (word, target), bound, order)
    }

    /// Puts `entry` into slot `at`. Under the lock; there is room.
    #[inline]
    pub(super) fn insert(&self, at: usize, entry: EntryRef<'_>, order: &Comparator) {
        let len = self.head.len();
        self.slots.open(at, len);
        self.slots.set(at, self.head.word(entry.user_key(), order), Some(entry));
        self.head.set_len(len + 1);
    }

    /// Moves the entries from slot `at` up to `right`, a new leaf. Under the lock.
    pub(super) fn split_into(&self, at: usize, right: &Leaf) {
        let len = self.head.len();
        right.head.skip.store(self.head.skip.load(Ordering::Relaxed), Ordering::Relaxed);
        self.slots.copy_tail(at, len, &right.slots);
        right.head.set_len(len - at);
        self.head.set_len(at);
    }

    /// See [`refresh_skip`]. Under the lock.
    pub(super) fn refresh(&self, order: &Comparator) {
        refresh_skip(&self.head, &self.slots, 0, order);
    }

    /// Fetches the whole leaf into the cache.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch::lines(ptr::from_ref(self).cast(), size_of::<Leaf>() / prefetch::LINE_BYTES);
    }
}

impl Inner {
    /// A new inner node without children; `level` counts from 1 just above the leaves.
    pub(super) fn new_in(arena: &Arena, level: u32) -> &Inner {
        let at = arena.allocate(size_of::<Inner>()).cast::<Inner>();
        let children = [const { AtomicPtr::new(ptr::null_mut()) }; INNER_SLOTS];
        // SAFETY: the arena gave this many bytes, aligned to 64, to this call alone.
        unsafe { at.write(Inner { head: Head::new(level), slots: Slots::new(), children }) };
        // SAFETY: just written; from now on only its atomics change. Lives as the arena does.
        unsafe { at.as_ref() }
    }

    /// The slot of the last child that begins before the target (`Before`) or at it (`UpTo`).
    /// `None` shows a torn read.
    #[inline]
    pub(super) fn slot_of(&self, target: &Target<'_>, bound: Bound, order: &Comparator) -> Option<usize> {
        let word = self.head.word(target.user_key, order);
        Some(self.slots.count((1, self.head.len()), (word, target), bound, order)? - 1)
    }

    /// The child in slot `at`. `None` shows a torn read.
    #[inline]
    pub(super) fn child(&self, at: usize) -> Option<Node<'_>> {
        let child = self.children.get(at)?.load(Ordering::Acquire);
        // SAFETY: null, or stored by `set_child` with Release from a node one level below.
        unsafe { Node::from_raw(child, self.head.level - 1) }
    }

    fn set_child(&self, at: usize, child: *mut Head) {
        self.children[at].store(child, Ordering::Release);
    }

    /// Puts `child` and its first entry into slot `at`. Under the lock; there is room.
    pub(super) fn insert(&self, at: usize, first: Option<EntryRef<'_>>, child: Node<'_>, order: &Comparator) {
        let len = self.head.len();
        self.slots.open(at, len);
        for to in (at + 1..=len).rev() {
            self.set_child(to, self.children[to - 1].load(Ordering::Relaxed));
        }
        let word = first.map_or(0, |entry| self.head.word(entry.user_key(), order));
        self.slots.set(at, word, first);
        self.set_child(at, child.as_raw());
        self.head.set_len(len + 1);
    }

    /// Moves the children from slot `at` up to `right`, a new node. Under the lock.
    pub(super) fn split_into(&self, at: usize, right: &Inner) {
        let len = self.head.len();
        right.head.skip.store(self.head.skip.load(Ordering::Relaxed), Ordering::Relaxed);
        self.slots.copy_tail(at, len, &right.slots);
        for from in at..len {
            right.set_child(from - at, self.children[from].load(Ordering::Relaxed));
        }
        right.head.set_len(len - at);
        self.head.set_len(at);
    }

    /// See [`refresh_skip`]. Under the lock.
    pub(super) fn refresh(&self, order: &Comparator) {
        refresh_skip(&self.head, &self.slots, 1, order);
    }
}

/// A node of either kind.
#[derive(Clone, Copy)]
pub(super) enum Node<'a> {
    Leaf(&'a Leaf),
    Inner(&'a Inner),
}

impl<'a> Node<'a> {
    /// The node at `raw`, or `None` for null.
    ///
    /// # Safety
    /// Unless null, `raw` came from [`Node::as_raw`] of a node at `level` that lives for `'a`, and
    /// the writes that made it happened before this call.
    #[inline]
    unsafe fn from_raw(raw: *mut Head, level: u32) -> Option<Node<'a>> {
        if level == 0 {
            // SAFETY: by the contract, null or a leaf: level 0 has no others.
            unsafe { raw.cast::<Leaf>().as_ref() }.map(Node::Leaf)
        } else {
            // SAFETY: by the contract, null or an inner node.
            unsafe { raw.cast::<Inner>().as_ref() }.map(Node::Inner)
        }
    }

    /// The node that a pointer of the tree itself, never null, leads to.
    #[inline]
    pub(super) fn load(pointer: &'a AtomicPtr<Head>) -> Node<'a> {
        let raw = pointer.load(Ordering::Acquire);
        // SAFETY: the tree sets its pointers by `as_raw` and `store` only, so never to null.
        let level = unsafe { (*raw).level };
        // SAFETY: as above; stored with Release; nodes live as the tree does, which owns `pointer`.
        unsafe { Node::from_raw(raw, level) }.expect("pointers of the tree are never null")
    }

    /// Makes `pointer` lead to this node.
    pub(super) fn store(self, pointer: &AtomicPtr<Head>) {
        pointer.store(self.as_raw(), Ordering::Release);
    }

    #[inline]
    pub(super) fn as_raw(self) -> *mut Head {
        match self {
            Node::Leaf(leaf) => ptr::from_ref(leaf).cast_mut().cast(),
            Node::Inner(inner) => ptr::from_ref(inner).cast_mut().cast(),
        }
    }

    #[inline]
    pub(super) fn head(self) -> &'a Head {
        match self {
            Node::Leaf(leaf) => &leaf.head,
            Node::Inner(inner) => &inner.head,
        }
    }

    /// Fetches what a search reads first.
    #[inline]
    pub(super) fn prefetch(self) {
        match self {
            Node::Leaf(leaf) => leaf.prefetch(),
            // Inner nodes are few and mostly cached; words behind the first lines come on demand.
            Node::Inner(inner) => prefetch::lines(ptr::from_ref(inner).cast(), 5),
        }
    }
}
