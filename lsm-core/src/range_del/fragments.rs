//! What a flush or a compaction writes of the range tombstones it met: who is still needed, and how
//! they are dealt out to the output tables.
//!
//! ```text
//! snapshots   5      20            inputs   [a ............... m)@4  [c ... f)@9   [d .. e)@12
//! fragments   [a, c) 4   [c, d) 9 4   [d, e) 12 4   [e, f) 9 4   [f, m) 4
//! ```
//! Of the tombstones over one piece of the keys only the newest of each snapshot stripe is needed,
//! as of the versions of a key; those above all snapshots stay as they are (rule 9 of the brief).
//! In the oldest stripe not even that one is, where nothing older is left below.
//!
//! ```text
//! points     b . . . d . . . . . . m . . . .
//! tables    |---- 1 ----|--- 2 ---|--- 3 ----|     cut where the next table's first key is
//! fragment      [c .....|.........|.. p)           each table gets its piece
//! ```
//! The first table reaches to the start of the range merged, the last to its end: nothing is lost in
//! gaps between the points of two tables.

use std::sync::Arc;

use super::{RangeDels, RangeTombstone};
use crate::key::Comparator;
use crate::types::{SEQNO_MAX, SeqNo};

/// A piece of the keys with the tombstones that are needed there, newest first. Never empty.
#[derive(Clone, Debug)]
pub(crate) struct Fragment {
    pub(crate) start: Arc<[u8]>,
    pub(crate) end: Arc<[u8]>,
    pub(crate) seqnos: Vec<SeqNo>,
}

impl Fragment {
    /// About how many bytes it takes in a table.
    fn bytes(&self) -> u64 {
        (self.seqnos.len() * (self.start.len() + self.end.len() + 16)) as u64
    }
}

/// The fragments of `set` to be written, in key order, equal neighbours joined. `snapshots` ascend,
/// the visible sequence among them; `may_exist` says whether older data may lie below in a piece
/// of the keys (inclusive, exclusive), and is asked in ascending order. Pieces that go because of it
/// are added to `dropped`.
pub(crate) fn needed(
    set: &RangeDels,
    snapshots: &[SeqNo],
    mut may_exist: impl FnMut(&[u8], &[u8]) -> bool,
    dropped: &mut u64,
) -> Vec<Fragment> {
    let mut out: Vec<Fragment> = Vec::new();
    let published = snapshots.last().copied().unwrap_or(0);
    for interval in 0..set.intervals() {
        let mut seqnos = set.newer_at(interval, published);
        let mut upto = published;
        loop {
            let seqno = set.cover_at(interval, upto);
            if seqno == 0 {
                break;
            }
            let stripe = snapshots.partition_point(|s| *s < seqno);
            if stripe == 0 && !may_exist(set.bound(interval), set.bound(interval + 1)) {
                *dropped += 1;
                break;
            }
            seqnos.push(seqno);
            let Some(before) = stripe.checked_sub(1) else { break };
            upto = snapshots[before];
        }
        if seqnos.is_empty() {
            continue;
        }
        let (start, end) = (set.bound(interval), set.bound(interval + 1));
        match out.last_mut() {
            Some(last) if Arc::ptr_eq(&last.end, start) && last.seqnos == seqnos => last.end = end.clone(),
            _ => out.push(Fragment { start: start.clone(), end: end.clone(), seqnos }),
        }
    }
    out
}

/// `tombstone` cut to the user keys from `start` (inclusive) to `end` (exclusive); `None` if nothing
/// of it lies there.
pub(crate) fn clip(
    comparator: &Comparator,
    mut tombstone: RangeTombstone,
    start: Option<&[u8]>,
    end: Option<&[u8]>,
) -> Option<RangeTombstone> {
    if let Some(start) = start
        && comparator.compare(&tombstone.start, start).is_lt()
    {
        tombstone.start = Arc::from(start);
    }
    if let Some(end) = end
        && comparator.compare(end, &tombstone.end).is_lt()
    {
        tombstone.end = Arc::from(end);
    }
    comparator.compare(&tombstone.start, &tombstone.end).is_lt().then_some(tombstone)
}

/// `fragments` as far as they lie before the user key `last`.
pub(crate) fn before(comparator: &Comparator, fragments: Vec<Fragment>, last: &[u8]) -> Vec<Fragment> {
    let mut kept = Vec::new();
    for mut fragment in fragments {
        if comparator.compare(last, &fragment.end).is_lt() {
            fragment.end = Arc::from(last);
        }
        if comparator.compare(&fragment.start, &fragment.end).is_lt() {
            kept.push(fragment);
        }
    }
    kept
}

/// Deals fragments out to tables, in key order.
pub(crate) struct Cutter {
    comparator: Comparator,
    fragments: Vec<Fragment>,
    /// The first fragment that is not dealt out whole.
    at: usize,
    /// Fragments before this one start in the present table, or before.
    passed: usize,
    /// Bytes of the fragments in the present table so far.
    bytes: u64,
    cuts: u64,
}

impl Cutter {
    pub(crate) fn new(comparator: Comparator, fragments: Vec<Fragment>) -> Cutter {
        Cutter { comparator, fragments, at: 0, passed: 0, bytes: 0, cuts: 0 }
    }

    /// The start of the next fragment that [`Cutter::pass`] was not told of.
    pub(crate) fn next_start(&self) -> Option<&Arc<[u8]>> {
        self.fragments.get(self.passed).map(|fragment| &fragment.start)
    }

    /// Puts the next fragment into the present table.
    pub(crate) fn pass(&mut self) {
        self.bytes += self.fragments[self.passed].bytes();
        self.passed += 1;
    }

    /// About how many bytes the fragments take in the present table.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Fragments that a boundary between two tables has cut so far.
    pub(crate) fn cuts(&self) -> u64 {
        self.cuts
    }

    /// The pieces before `end` (`None`: all that is left), as tombstones in order.
    pub(crate) fn take(&mut self, end: Option<&[u8]>) -> Vec<RangeTombstone> {
        let mut out = Vec::new();
        self.bytes = 0;
        while let Some(fragment) = self.fragments.get_mut(self.at) {
            let cut = end.filter(|end| self.comparator.compare(end, &fragment.end).is_lt());
            if cut.is_some_and(|cut| self.comparator.compare(cut, &fragment.start).is_le()) {
                break;
            }
            let until: Arc<[u8]> = cut.map_or_else(|| fragment.end.clone(), Arc::from);
            out.extend(fragment.seqnos.iter().map(|seqno| RangeTombstone {
                start: fragment.start.clone(),
                end: until.clone(),
                seqno: *seqno,
            }));
            if cut.is_some() {
                fragment.start = until;
                self.bytes = fragment.bytes();
                self.cuts += 1;
                break;
            }
            self.at += 1;
        }
        self.passed = self.passed.max(self.at);
        out
    }
}

/// Who covers ascending keys: a walk along a set instead of a search for each key.
pub(crate) struct CoverCursor {
    set: Arc<RangeDels>,
    comparator: Comparator,
    /// Bounds before this one are at or before the key.
    at: usize,
}

impl CoverCursor {
    pub(crate) fn new(set: Arc<RangeDels>, comparator: Comparator) -> CoverCursor {
        CoverCursor { set, comparator, at: 0 }
    }

    /// As [`RangeDels::cover`], of a key not before the last one asked for.
    #[inline]
    pub(crate) fn cover(&mut self, key: &[u8], upto: SeqNo) -> SeqNo {
        let intervals = self.set.intervals();
        while intervals > 0
            && self.at <= intervals
            && self.comparator.compare(self.set.bound(self.at), key).is_le()
        {
            self.at += 1;
        }
        match self.at.checked_sub(1) {
            Some(interval) if interval < intervals => self.set.cover_at(interval, upto),
            _ => 0,
        }
    }
}

/// The tombstones of a merge as they bear on its entries, asked in ascending order of keys.
pub(crate) struct Covering {
    /// All of the inputs.
    inputs: CoverCursor,
    /// Those that are written.
    kept: CoverCursor,
}

impl Covering {
    pub(crate) fn new(comparator: &Comparator, inputs: RangeDels, kept: &[Fragment]) -> Covering {
        let kept = kept.iter().flat_map(|fragment| {
            let Fragment { start, end, seqnos } = fragment;
            seqnos.iter().map(|seqno| RangeTombstone {
                start: start.clone(),
                end: end.clone(),
                seqno: *seqno,
            })
        });
        let kept = Arc::new(RangeDels::new(comparator.clone(), kept));
        Covering {
            inputs: CoverCursor::new(Arc::new(inputs), comparator.clone()),
            kept: CoverCursor::new(kept, comparator.clone()),
        }
    }

    /// The newest tombstone over `key` up to `upto`; 0 if there is none.
    #[inline]
    pub(crate) fn cover(&mut self, key: &[u8], upto: SeqNo) -> SeqNo {
        self.inputs.cover(key, upto)
    }

    /// Whether a tombstone over `key` is written.
    #[inline]
    pub(crate) fn is_kept(&mut self, key: &[u8]) -> bool {
        self.kept.cover(key, SEQNO_MAX) > 0
    }
}
