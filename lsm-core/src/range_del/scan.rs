//! Range tombstones along a scan: which entries of the merge they hide, and how far to jump.
//!
//! ```text
//! child 0   memtable        [b ............ p)@9        hides in child 0 what is older than 9
//! child 1   L0              c@4   f@5   m@3             all of it: moved to p without a look
//! child 2   L1              [a....d)@2  d@1   e@1  q@1  the same
//! ```
//! Between two bounds of any source nothing changes, so the answer for one key holds for all keys
//! up to the next bound: a step inside costs two comparisons. Crossing a bound asks every source
//! anew.
//!
//! A jump moves all *older* children to the end of the tombstone, because they hold nothing newer under
//! it (I3). Its own child may: that one is stepped, unless the tombstone is newer than all of it.
//!
//! The tombstones of a level's tables are found by the tables' key ranges, which include them; a
//! table is opened for them only when the scan comes into its range.

use std::sync::Arc;

use smallvec::SmallVec;

use super::RangeDels;
use crate::Result;
use crate::callback::Watch;
use crate::key::{Comparator, Kind, SEEK_KIND, append_internal, kind_byte_of, seqno_of, user_key};
use crate::read::landings::Landings;
use crate::types::{SEQNO_MAX, SeqNo};
use crate::version::{Level, TableFile};

/// Opens a table for its tombstones.
pub(crate) type OpenRangeDels = Box<dyn FnMut(&Arc<TableFile>) -> Result<Option<Arc<RangeDels>>> + Send>;

/// What range tombstones have cost and spared a scan so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RangeStats {
    /// Entries under a tombstone that were looked at one by one.
    pub covered: u64,
    /// Moves of all older sources past a tombstone.
    pub jumps: u64,
}

impl std::iter::Sum for RangeStats {
    fn sum<I: Iterator<Item = RangeStats>>(all: I) -> RangeStats {
        all.fold(RangeStats::default(), |a, b| RangeStats {
            covered: a.covered + b.covered,
            jumps: a.jumps + b.jumps,
        })
    }
}

enum Tombstones {
    Set(Arc<RangeDels>),
    /// Those of one level, and of its tables that have tombstones the open one.
    Level {
        level: Arc<Level>,
        open: OpenRangeDels,
        current: Option<(usize, Arc<RangeDels>)>,
    },
}

struct Source {
    /// Which child of the merge holds these tombstones.
    child: usize,
    /// No entry of that child that the reader may see is newer than this.
    entries_max: SeqNo,
    tombstones: Tombstones,
    /// The set in which the key asked for last lies, and its interval.
    set: Option<Arc<RangeDels>>,
    interval: usize,
}

/// A bound of what is known; `None` is open.
type Bound = Option<Arc<[u8]>>;

impl Source {
    /// The cover of `key`, and the bounds between which it is the same.
    fn locate(&mut self, comparator: &Comparator, key: &[u8], upto: SeqNo) -> Result<(SeqNo, Bound, Bound)> {
        let (set, low, high) = match &mut self.tombstones {
            Tombstones::Set(set) => (set.clone(), None, None),
            Tombstones::Level { level, open, current } => {
                let tables = level.with_range_deletes();
                let at = tables.partition_point(|t| !t.reaches(comparator, key));
                let before = at.checked_sub(1).map(|before| Arc::from(tables[before].largest_user()));
                let starts = |at: usize| tables.get(at).map(|t| Arc::from(t.smallest_user()));
                let inside = tables.get(at).filter(|t| comparator.compare(t.smallest_user(), key).is_le());
                let Some(table) = inside else {
                    self.set = None;
                    return Ok((0, before, starts(at)));
                };
                if current.as_ref().is_none_or(|(open, _)| *open != at) {
                    // The manifest says that it has some; a table without would hide nothing.
                    *current = open(table)?.map(|set| (at, set));
                }
                let Some((_, set)) = current else {
                    self.set = None;
                    return Ok((0, before, starts(at + 1)));
                };
                (set.clone(), before, starts(at + 1))
            }
        };
        let found = set.locate(key);
        let bounds = (found.low.cloned().or(low), found.high.cloned().or(high));
        let cover = found.interval.map_or(0, |interval| set.cover_at(interval, upto));
        self.interval = found.interval.unwrap_or(0);
        self.set = found.interval.is_some().then(|| set.clone());
        Ok((cover, bounds.0, bounds.1))
    }
}

/// A tombstone over the present key.
#[derive(Clone, Copy)]
struct Active {
    source: usize,
    child: usize,
    seqno: SeqNo,
}

/// What to do about an entry that is hidden.
pub(crate) enum Hidden {
    /// Step over it: its own source may hold newer entries under the tombstone.
    Step,
    /// Move the children from this one on to the target, if they are not past it.
    Jump(usize),
}

/// All range tombstones that a scan may meet.
pub(crate) struct ScanCover {
    comparator: Comparator,
    snapshot: SeqNo,
    /// By child, youngest first.
    sources: Vec<Source>,
    known: bool,
    low: Bound,
    high: Bound,
    active: SmallVec<[Active; 4]>,
    /// Where a jump goes, as an internal key.
    target: Vec<u8>,
    /// With a comparator of the user's.
    landings: Option<Landings>,
    /// No jump: it would pass redirected entries, too, which are never hidden.
    steps_only: bool,
    stats: RangeStats,
}

impl ScanCover {
    pub(crate) fn new(comparator: Comparator, snapshot: SeqNo) -> ScanCover {
        ScanCover {
            landings: matches!(comparator, Comparator::Custom(_)).then(Landings::default),
            comparator,
            snapshot,
            sources: Vec::new(),
            known: false,
            low: None,
            high: None,
            active: SmallVec::new(),
            target: Vec::new(),
            steps_only: false,
            stats: RangeStats::default(),
        }
    }

    /// The same for a tree in which a range tombstone may hide nothing but its own entries: those redirected
    /// there may still have clues, since a crash has taken the tombstone from their own shards.
    pub(crate) fn sparing_redirected(mut self) -> ScanCover {
        self.steps_only = true;
        self
    }

    /// Adds tombstones of `child`, a number not below that of the last call; no entry of the child up
    /// to the snapshot is newer than `entries_max`.
    pub(crate) fn add_set(&mut self, child: usize, set: Arc<RangeDels>, entries_max: SeqNo) {
        self.add(child, Tombstones::Set(set), entries_max);
    }

    /// The same of a level deeper than L0.
    pub(crate) fn add_level(&mut self, child: usize, level: Arc<Level>, open: OpenRangeDels) {
        self.add(child, Tombstones::Level { level, open, current: None }, SEQNO_MAX);
    }

    fn add(&mut self, child: usize, tombstones: Tombstones, entries_max: SeqNo) {
        debug_assert!(self.sources.last().is_none_or(|last| last.child <= child));
        self.sources.push(Source { child, entries_max, tombstones, set: None, interval: 0 });
    }

    /// Whether there is nothing to look at.
    pub(crate) fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    pub(crate) fn stats(&self) -> RangeStats {
        self.stats
    }

    /// Whether the entry `internal` of `child` is hidden, and what to do then.
    ///
    /// # Errors
    /// Those of opening a table.
    pub(crate) fn check(&mut self, internal: &[u8], child: usize, forward: bool) -> Result<Option<Hidden>> {
        let key = user_key(internal);
        let c = &self.comparator;
        let inside = self.known
            && self.low.as_ref().is_none_or(|low| c.compare(low, key).is_le())
            && self.high.as_ref().is_none_or(|high| c.compare(key, high).is_lt());
        if !inside {
            self.locate(key)?;
        }
        if self.active.is_empty() {
            return Ok(None);
        }
        let seqno = seqno_of(internal);
        let hides = |a: &&Active| a.child <= child && a.seqno > seqno;
        let Some(active) = self.active.iter().find(hides).copied() else { return Ok(None) };
        let native = Kind::from_u8(kind_byte_of(internal)).is_some_and(|kind| {
            !matches!(kind, Kind::RedirectedValue | Kind::RedirectedOperand | Kind::RangeDelete)
        });
        if !native {
            return Ok(None);
        }
        let source = &self.sources[active.source];
        let all = active.seqno > source.entries_max;
        if (active.child == child && !all) || self.steps_only {
            self.stats.covered += 1;
            return Ok(Some(Hidden::Step));
        }
        let set = source.set.as_ref().expect("a source with a cover has a set");
        let least = if all { source.entries_max } else { 0 };
        let edge = set.region(source.interval, self.snapshot, |cover| cover > least, forward);
        self.target.clear();
        append_internal(&mut self.target, edge, SEQNO_MAX, SEEK_KIND);
        self.stats.jumps += 1;
        Ok(Some(Hidden::Jump(if all { active.child } else { active.child + 1 })))
    }

    /// The merge's position as a walk over hidden entries begins (`None`), and after each jump on it.
    ///
    /// # Errors
    /// `Callback` if the user's comparator, which is no order, leads the walk in a circle.
    pub(crate) fn note_landing(&mut self, internal: Option<&[u8]>) -> Result<()> {
        match (&mut self.landings, internal) {
            (Some(landings), Some(internal)) => landings.note(internal),
            (Some(landings), None) => {
                landings.start();
                Ok(())
            }
            (None, _) => Ok(()),
        }
    }

    /// The internal key to which the last [`Hidden::Jump`] leads: forward the children seek to it,
    /// backward to the entry before it.
    pub(crate) fn target(&self) -> &[u8] {
        &self.target
    }

    /// Asks every source about `key`.
    fn locate(&mut self, key: &[u8]) -> Result<()> {
        self.known = false;
        self.active.clear();
        (self.low, self.high) = (None, None);
        let c = &self.comparator;
        let watch = Watch::begin(c);
        for (at, source) in self.sources.iter_mut().enumerate() {
            let (seqno, low, high) = source.locate(c, key, self.snapshot)?;
            if let Some(low) = low
                && self.low.as_ref().is_none_or(|known| c.compare(known, &low).is_lt())
            {
                self.low = Some(low);
            }
            if let Some(high) = high
                && self.high.as_ref().is_none_or(|known| c.compare(&high, known).is_lt())
            {
                self.high = Some(high);
            }
            if seqno > 0 {
                self.active.push(Active { source: at, child: source.child, seqno });
            }
        }
        // What a panic led to is not known: the scan fails, and may be positioned anew.
        self.known = watch.check().is_ok();
        Ok(())
    }
}
