//! A set of range tombstones that does not change: who covers a key, as of a sequence number.
//!
//! ```text
//! tombstones        [a ........ f)@5   [c ... h)@9
//! bounds            a     c     f     h
//! intervals           0     1     2            between two bounds every key has the same answer
//!
//!                   node 1: all          a segment tree over the intervals: a tombstone is noted
//!                  /             \       at the few nodes that make up its range, so that n
//!             node 2: 1, 2     3: 0      tombstones take n log n notes, however they nest;
//!             /         \                lists of all tombstones of each interval would be
//!          4: 1        5: 2              n * n of them
//! ```
//! A look-up is a binary search for the interval (over 8-byte prefixes, keys only where these tie)
//! and, unless the reader sees the newest tombstone there, a walk from its leaf to the root.

use std::sync::Arc;

use super::RangeTombstone;
use crate::callback::sorted_by;
use crate::key::Comparator;
use crate::types::SeqNo;
use crate::version::KeyEnd;

/// See the module header.
pub struct RangeDels {
    comparator: Comparator,
    /// Ascending, no two equal.
    bounds: Vec<Arc<[u8]>>,
    /// [`Comparator::prefix`] of each bound.
    prefixes: Vec<u64>,
    /// Of each interval, the newest tombstone over it; 0 where there is none.
    newest: Vec<SeqNo>,
    /// `notes[ends[n - 1]..ends[n]]` are the sequence numbers noted at node n, descending.
    ends: Vec<usize>,
    notes: Vec<SeqNo>,
    /// The lowest node with a note: look-ups need not climb beyond.
    top: usize,
    /// As they were given, by position of their bounds.
    tombstones: Vec<(u32, u32, SeqNo)>,
    key_bytes: usize,
}

/// What is known about one key.
#[derive(Clone, Copy)]
pub(crate) struct Located<'a> {
    /// The interval; `None` outside all bounds.
    pub(crate) interval: Option<usize>,
    /// The bound at or before the key.
    pub(crate) low: Option<&'a Arc<[u8]>>,
    /// The bound after it.
    pub(crate) high: Option<&'a Arc<[u8]>>,
}

impl RangeDels {
    /// A set of these tombstones, in any order. Those that span nothing are left out.
    pub fn new(comparator: Comparator, tombstones: impl IntoIterator<Item = RangeTombstone>) -> RangeDels {
        let given: Vec<RangeTombstone> =
            tombstones.into_iter().filter(|t| comparator.compare(&t.start, &t.end).is_lt()).collect();
        let ends: Vec<&Arc<[u8]>> = given.iter().flat_map(|t| [&t.start, &t.end]).collect();
        let order = sorted_by(&comparator, ends.len(), |at| ends[at]);
        let mut bounds: Vec<Arc<[u8]>> = order.into_iter().map(|at| ends[at].clone()).collect();
        bounds.dedup_by(|a, b| comparator.compare(a, b).is_eq());
        // Where the user's order is none, a key may not be found; that must not lead out of the list.
        let last = bounds.len().saturating_sub(1);
        let at = |key: &[u8]| bounds.partition_point(|b| comparator.compare(b, key).is_lt()).min(last) as u32;
        let tombstones: Vec<(u32, u32, SeqNo)> =
            given.iter().map(|t| (at(&t.start), at(&t.end), t.seqno)).collect();
        let mut set = RangeDels {
            prefixes: bounds.iter().map(|b| comparator.prefix(b)).collect(),
            newest: vec![0; bounds.len().saturating_sub(1)],
            key_bytes: bounds.iter().map(|b| b.len()).sum(),
            comparator,
            bounds,
            ends: Vec::new(),
            notes: Vec::new(),
            top: 1,
            tombstones,
        };
        set.note_all();
        set
    }

    /// Notes every tombstone at the nodes that make up its range.
    fn note_all(&mut self) {
        let leaves = self.newest.len();
        let each_node = |lo: u32, hi: u32, with: &mut dyn FnMut(usize)| {
            let (mut lo, mut hi) = (lo as usize + leaves, hi as usize + leaves);
            while lo < hi {
                if lo % 2 == 1 {
                    with(lo);
                    lo += 1;
                }
                if hi % 2 == 1 {
                    hi -= 1;
                    with(hi);
                }
                (lo, hi) = (lo / 2, hi / 2);
            }
        };
        let mut counts = vec![0usize; 2 * leaves];
        for (lo, hi, _) in &self.tombstones {
            each_node(*lo, *hi, &mut |node| counts[node] += 1);
        }
        self.top = counts.iter().position(|count| *count > 0).unwrap_or(1).max(1);
        let mut next = Vec::with_capacity(counts.len());
        let mut sum = 0;
        for count in &counts {
            next.push(sum);
            sum += count;
        }
        self.notes = vec![0; sum];
        for (lo, hi, seqno) in &self.tombstones {
            each_node(*lo, *hi, &mut |node| {
                self.notes[next[node]] = *seqno;
                next[node] += 1;
            });
        }
        self.ends = next;
        let mut from = 0;
        for end in &self.ends {
            self.notes[from..*end].sort_unstable_by(|a, b| b.cmp(a));
            from = *end;
        }
        for interval in 0..leaves {
            self.newest[interval] =
                self.path(interval).filter_map(|list| list.first().copied()).max().unwrap_or(0);
        }
    }

    /// The notes of all nodes over an interval.
    fn path(&self, interval: usize) -> impl Iterator<Item = &[SeqNo]> {
        let mut node = interval + self.newest.len();
        std::iter::from_fn(move || {
            let here = (node >= self.top).then_some(node)?;
            node /= 2;
            // Node 0 is none, so there is one before it.
            Some(&self.notes[self.ends[here - 1]..self.ends[here]])
        })
    }

    /// Tombstones in the set.
    pub fn len(&self) -> usize {
        self.tombstones.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.tombstones.is_empty()
    }

    /// The tombstones, in the order in which they were given.
    pub fn iter(&self) -> impl Iterator<Item = RangeTombstone> {
        self.tombstones.iter().map(|(lo, hi, seqno)| RangeTombstone {
            start: self.bounds[*lo as usize].clone(),
            end: self.bounds[*hi as usize].clone(),
            seqno: *seqno,
        })
    }

    /// Bytes of memory, bounds included.
    pub fn memory_bytes(&self) -> usize {
        const BOUND_BYTES: usize = size_of::<Arc<[u8]>>() + 16 + 2 * size_of::<u64>();
        size_of::<RangeDels>()
            + self.key_bytes
            + self.bounds.len() * BOUND_BYTES
            + (self.ends.len() + self.notes.len()) * size_of::<u64>()
            + self.tombstones.len() * size_of::<(u32, u32, SeqNo)>()
    }

    /// How many bounds are at or before `key`.
    #[inline]
    fn bounds_up_to(&self, key: &[u8]) -> usize {
        let prefix = self.comparator.prefix(key);
        let low = self.prefixes.partition_point(|p| *p < prefix);
        let ties = self.prefixes[low..].partition_point(|p| *p == prefix);
        low + self.bounds[low..low + ties].partition_point(|b| self.comparator.compare(b, key).is_le())
    }

    /// The interval in which `key` lies; `None` outside all bounds.
    #[inline]
    fn interval_of(&self, key: &[u8]) -> Option<usize> {
        let at = self.bounds_up_to(key).checked_sub(1)?;
        (at < self.newest.len()).then_some(at)
    }

    /// The newest tombstone over `key` with a sequence number up to `upto`; 0 if there is none.
    #[inline]
    pub fn cover(&self, key: &[u8], upto: SeqNo) -> SeqNo {
        self.interval_of(key).map_or(0, |interval| self.cover_at(interval, upto))
    }

    /// As [`RangeDels::cover`], of every key in an interval.
    #[inline]
    pub(crate) fn cover_at(&self, interval: usize, upto: SeqNo) -> SeqNo {
        let newest = self.newest[interval];
        if newest <= upto { newest } else { self.older_cover(interval, upto) }
    }

    fn older_cover(&self, interval: usize, upto: SeqNo) -> SeqNo {
        let seen = |list: &[SeqNo]| list.get(list.partition_point(|s| *s > upto)).copied();
        self.path(interval).filter_map(seen).max().unwrap_or(0)
    }

    /// All tombstones over an interval that are newer than `above`, newest first.
    pub(crate) fn newer_at(&self, interval: usize, above: SeqNo) -> Vec<SeqNo> {
        let newer = |list: &'_ [SeqNo]| list.partition_point(|s| *s > above);
        let mut all: Vec<SeqNo> =
            self.path(interval).flat_map(|list| list[..newer(list)].iter().copied()).collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        all
    }

    /// Intervals in the set.
    pub(crate) fn intervals(&self) -> usize {
        self.newest.len()
    }

    /// Bound `i`: interval `i` lies between it and the next.
    pub(crate) fn bound(&self, i: usize) -> &Arc<[u8]> {
        &self.bounds[i]
    }

    /// The interval of `key` and its bounds.
    pub(crate) fn locate(&self, key: &[u8]) -> Located<'_> {
        let after = self.bounds_up_to(key);
        let at = after.checked_sub(1);
        Located {
            interval: at.filter(|at| *at < self.newest.len()),
            low: at.map(|at| &self.bounds[at]),
            high: self.bounds.get(after),
        }
    }

    /// Whether over every key from `start` (inclusive) to `end` lies a tombstone up to `upto` that is newer
    /// than `above`.
    pub(crate) fn covers_all(&self, start: &[u8], end: KeyEnd<'_>, above: SeqNo, upto: SeqNo) -> bool {
        let mut at = self.interval_of(start);
        while let Some(interval) = at.filter(|at| *at < self.newest.len()) {
            if self.cover_at(interval, upto) <= above {
                return false;
            }
            if !end.reaches(&self.comparator, &self.bounds[interval + 1]) {
                return true;
            }
            at = Some(interval + 1);
        }
        false
    }

    /// The bounds between which, around `interval`, each interval's cover passes `covers`.
    pub(crate) fn region(
        &self,
        interval: usize,
        upto: SeqNo,
        covers: impl Fn(SeqNo) -> bool,
        forward: bool,
    ) -> &Arc<[u8]> {
        let holds = |i: usize| covers(self.cover_at(i, upto));
        if forward {
            let mut end = interval + 1;
            while end < self.newest.len() && holds(end) {
                end += 1;
            }
            return &self.bounds[end];
        }
        let mut start = interval;
        while start > 0 && holds(start - 1) {
            start -= 1;
        }
        &self.bounds[start]
    }
}

impl std::fmt::Debug for RangeDels {
    /// Shows counts only: keys stay out of logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RangeDels({} tombstones, {} intervals)", self.len(), self.newest.len())
    }
}
