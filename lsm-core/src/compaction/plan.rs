//! One compaction, decided: its inputs, where it writes, and what it may conclude about keys.
//!
//! A plan holds its files by reference count and so outlives the version it was made from.

use std::sync::Arc;

use crate::callback::sorted_by;
use crate::key::Comparator;
use crate::types::FileNumber;
use crate::version::{Claim, KeyEnd, LEVELS, Level, Removed, TableFile, Version};
use crate::{Error, ErrorKind, Result};

/// Why a plan was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// L0 has too many runs or bytes; they go to the base level.
    L0ToBase,
    /// L0 is due and its way down is blocked: its newest files become one.
    IntraL0,
    /// A level is above its target.
    LevelSaturation,
    /// The user asked for this range.
    Manual,
    /// An output could not be made durable and is made again.
    Redo,
    /// Clues are replaced by the values they stand for.
    Rollback,
    /// Redirected entries that nobody needs are to go.
    Collect,
    /// Readers have spent as much on many sorted runs as it costs to make one of them.
    Reads,
}

/// Input files of one level, in level order.
#[derive(Clone, Debug)]
pub struct LevelInputs {
    /// The level.
    pub level: u8,
    /// The files. Never empty.
    pub files: Vec<Arc<TableFile>>,
}

/// The user keys from the first to the last one of a set of files, their range tombstones included.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyHull {
    /// First user key.
    pub lo: Vec<u8>,
    /// Last user key.
    pub hi: Vec<u8>,
    /// `hi` is the end of a range tombstone, and not in the hull.
    pub hi_exclusive: bool,
}

impl std::fmt::Debug for KeyHull {
    /// Shows lengths only: keys stay out of logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let dots = if self.hi_exclusive { ".." } else { "..=" };
        write!(f, "KeyHull({} bytes{dots}{} bytes)", self.lo.len(), self.hi.len())
    }
}

impl KeyHull {
    /// The hull of `files`; `None` if there are none.
    pub fn of<'a>(
        comparator: &Comparator,
        files: impl IntoIterator<Item = &'a Arc<TableFile>>,
    ) -> Option<KeyHull> {
        let mut files = files.into_iter();
        let first = files.next()?;
        let (mut lo, mut end) = (first.smallest_user(), first.end());
        for file in files {
            if comparator.compare(file.smallest_user(), lo).is_lt() {
                lo = file.smallest_user();
            }
            if file.end().is_after(comparator, &end) {
                end = file.end();
            }
        }
        Some(KeyHull { lo: lo.to_vec(), hi: end.key.to_vec(), hi_exclusive: !end.inclusive })
    }

    /// Where it ends.
    pub fn end(&self) -> KeyEnd<'_> {
        KeyEnd { key: &self.hi, inclusive: !self.hi_exclusive }
    }

    /// Whether the hulls have a key in common.
    pub fn overlaps(&self, comparator: &Comparator, other: &KeyHull) -> bool {
        self.end().reaches(comparator, &other.lo) && other.end().reaches(comparator, &self.lo)
    }
}

/// A key range of a plan for one sub-compaction: from `start` (inclusive) to `end` (exclusive), and not
/// beyond `last`, user keys; `None` is the plan's own edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubRange {
    /// First user key, inclusive.
    pub start: Option<Vec<u8>>,
    /// End, exclusive.
    pub end: Option<Vec<u8>>,
    /// Last key, inclusive. Range tombstones end before it: where a table ends with a key, and not with
    /// one of them, it has none that goes on.
    pub last: Option<Vec<u8>>,
}

impl SubRange {
    /// Whether it has not ended before the user key.
    #[inline]
    pub fn reaches(&self, comparator: &Comparator, key: &[u8]) -> bool {
        self.last.as_ref().is_none_or(|last| comparator.compare(key, last).is_le())
    }
}

/// One compaction.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The inputs, younger levels first.
    pub inputs: Vec<LevelInputs>,
    /// Where the outputs go.
    pub output_level: u8,
    /// The L0 epoch of the outputs, if they go to L0: that of the newest input. Such a plan has
    /// one output table, however large.
    pub output_epoch: Option<u64>,
    /// The inputs move as they are; nothing is read or written.
    pub trivial_move: bool,
    /// Files one level below the output within the hull: an output table is cut before it overlaps
    /// too many of their bytes.
    pub grandparents: Vec<Arc<TableFile>>,
    /// Why it was made.
    pub reason: Reason,
    /// Its urgency; 1.0 is just due.
    pub score: f64,
    /// The user keys of all inputs.
    pub hull: KeyHull,
    comparator: Comparator,
    /// L0 files that stay and are older than the outputs (plans that write to L0 only).
    older_l0: Vec<Arc<TableFile>>,
    /// Levels below the output within the hull.
    below: Vec<Arc<Level>>,
}

impl Plan {
    /// A plan over `inputs` of `version`, which must not be empty.
    pub(crate) fn new(version: &Version, inputs: Vec<LevelInputs>, output_level: u8, reason: Reason) -> Plan {
        let comparator = version.comparator().clone();
        let hull = KeyHull::of(&comparator, inputs.iter().flat_map(|i| &i.files))
            .expect("a plan has at least one input file");
        let out = usize::from(output_level);
        let within = |level: usize| version.meeting(level, Some(&hull.lo), Some(hull.end()));
        let grandparents = if out > 0 && out + 1 < LEVELS { within(out + 1) } else { Vec::new() };
        let below = (out + 1..LEVELS)
            .filter(|&l| !version.level(l).meeting(&comparator, Some(&hull.lo), Some(hull.end())).is_empty())
            .map(|l| Arc::clone(version.level(l)))
            .collect();
        let (mut older_l0, mut output_epoch) = (Vec::new(), None);
        if out == 0 {
            let epochs = || inputs.iter().flat_map(|i| &i.files).map(|f| f.meta().epoch);
            output_epoch = epochs().max();
            let oldest = epochs().min().unwrap_or(0);
            older_l0 = version.l0().iter().filter(|f| f.meta().epoch < oldest).cloned().collect();
        }
        Plan {
            inputs,
            output_level,
            output_epoch,
            trivial_move: false,
            grandparents,
            reason,
            score: 0.0,
            hull,
            comparator,
            older_l0,
            below,
        }
    }

    /// The same plan as a move of its inputs.
    pub(crate) fn into_move(mut self) -> Plan {
        self.trivial_move = true;
        self
    }

    /// All input files with their levels, younger first.
    pub fn files(&self) -> impl Iterator<Item = (u8, &Arc<TableFile>)> {
        self.inputs.iter().flat_map(|i| i.files.iter().map(move |f| (i.level, f)))
    }

    /// Size of all inputs, in bytes.
    pub fn input_bytes(&self) -> u64 {
        self.files().map(|(_, f)| f.file_bytes()).sum()
    }

    /// What installing the plan takes out of the version.
    pub fn removed(&self) -> Vec<Removed> {
        self.files().map(|(level, f)| (level, f.number())).collect()
    }

    /// Numbers of the input files.
    pub fn numbers(&self) -> Vec<FileNumber> {
        self.files().map(|(_, f)| f.number()).collect()
    }

    /// Takes all inputs for `job` (below 2^56), or none of them.
    ///
    /// # Errors
    /// `Internal` if another job holds one: plans must be claimed before the next is picked.
    pub fn claim(&self, job: u64) -> Result<()> {
        let claim = Claim { job, output_level: self.output_level };
        for (at, (_, file)) in self.files().enumerate() {
            if !file.try_claim(claim) {
                self.files().take(at).for_each(|(_, f)| f.release_claim());
                let text = format!("file {} is claimed by two compactions", file.number());
                return Err(Error::new(ErrorKind::Internal, text));
            }
        }
        Ok(())
    }

    /// Gives all inputs back. Only after [`Plan::claim`] succeeded.
    pub fn release(&self) {
        self.files().for_each(|(_, f)| f.release_claim());
    }

    /// Whether the sync of an input failed, so that it has to be made again before it is read.
    pub(crate) fn is_suspect(&self) -> bool {
        self.files().any(|(_, f)| f.is_suspect())
    }

    /// Whether some input holds clues.
    pub fn has_clues(&self) -> bool {
        self.files().any(|(_, f)| f.meta().clues > 0)
    }

    /// Whether it takes entries out of L0.
    pub fn is_out_of_l0(&self) -> bool {
        self.output_level > 0 && self.inputs.iter().any(|input| input.level == 0)
    }

    /// The epoch of clues that stay in L0: that of the oldest input there, which nothing that stays and
    /// has a key in common with them is older than.
    pub(crate) fn clue_epoch(&self) -> u64 {
        let in_l0 = self.files().filter(|(level, _)| *level == 0);
        in_l0.map(|(_, file)| file.meta().epoch).min().unwrap_or(0)
    }

    /// Whether some input holds clues or redirected entries.
    pub fn has_specials(&self) -> bool {
        self.files().any(|(_, f)| f.meta().specials() > 0)
    }

    /// The test whether older data of a key may lie outside this plan. One for each
    /// sub-compaction.
    pub fn drop_below(&self) -> DropBelow {
        DropBelow {
            comparator: self.comparator.clone(),
            older_l0: self.older_l0.clone(),
            levels: self.below.iter().map(|level| (Arc::clone(level), 0)).collect(),
        }
    }

    /// Cuts the plan into at most `n` key ranges of about equal input bytes, at boundaries of
    /// input files; together they cover every key once. No user key is split.
    pub fn sub_ranges(&self, n: usize) -> Vec<SubRange> {
        let whole = || vec![SubRange { start: None, end: None, last: None }];
        let c = &self.comparator;
        let files: Vec<&Arc<TableFile>> = self.files().map(|(_, f)| f).collect();
        let order = sorted_by(c, files.len(), |at| files[at].smallest_user());
        let mut cuts: Vec<&[u8]> = order.into_iter().map(|at| files[at].smallest_user()).collect();
        cuts.dedup_by(|a, b| c.compare(a, b).is_eq());
        // Level 0 takes one table from a job: two could not share its epoch. So with clues that stay there.
        if n < 2 || cuts.len() < 2 || self.output_level == 0 || (self.is_out_of_l0() && self.has_clues()) {
            return whole();
        }
        // Bytes of each segment cuts[i]..cuts[i + 1]: a file is spread evenly over those it meets.
        let mut segments = vec![0.0f64; cuts.len()];
        for file in &files {
            let first = cuts.partition_point(|cut| c.compare(cut, file.smallest_user()).is_lt());
            let end = cuts.partition_point(|cut| file.reaches(c, cut));
            if end <= first {
                // Not in an order; the merge will find that out.
                continue;
            }
            let share = file.file_bytes() as f64 / (end - first) as f64;
            segments[first..end].iter_mut().for_each(|s| *s += share);
        }
        let total: f64 = segments.iter().sum();
        let (mut ranges, mut start, mut done) = (Vec::new(), None, 0.0);
        for (at, bytes) in segments.iter().enumerate() {
            let quota = total * (ranges.len() + 1) as f64 / n as f64;
            // Cut before a segment when that leaves the range nearer to its quota than after it.
            if at > 0 && ranges.len() + 1 < n && done + bytes / 2.0 >= quota {
                let cut = Some(cuts[at].to_vec());
                let start = std::mem::replace(&mut start, cut.clone());
                ranges.push(SubRange { start, end: cut, last: None });
            }
            done += bytes;
        }
        ranges.push(SubRange { start, end: None, last: None });
        ranges
    }
}

/// Tells whether older data of a key may lie below a plan's outputs: the condition under which a
/// tombstone has to be kept.
///
/// Holds for as long as the plan's inputs are claimed: what other jobs write meanwhile below the
/// outputs, they took from there, or from files that this plan's hull does not meet.
pub struct DropBelow {
    comparator: Comparator,
    older_l0: Vec<Arc<TableFile>>,
    /// Levels below, each with the first file that reaches the key last asked for.
    levels: Vec<(Arc<Level>, usize)>,
}

impl DropBelow {
    /// Whether older data of `key` may exist outside the plan. Ascending keys cost a few
    /// comparisons; others a search.
    #[inline]
    pub fn may_exist(&mut self, key: &[u8]) -> bool {
        let c = &self.comparator;
        if self.older_l0.iter().any(|f| f.spans(c, key)) {
            return true;
        }
        let mut found = false;
        for (level, at) in &mut self.levels {
            let reaches = |f: &Arc<TableFile>| f.reaches(c, key);
            let too_far = *at > 0 && reaches(&level[*at - 1]);
            let too_near = level.get(*at).is_some_and(|f| !reaches(f));
            if too_far || too_near {
                *at = level.first_reaching(c, key);
            }
            found |= level.get(*at).is_some_and(|f| c.compare(f.smallest_user(), key).is_le());
        }
        found
    }

    /// Whether older data of any key from `start` (inclusive) to `end` (exclusive) may exist outside
    /// the plan.
    pub(crate) fn may_exist_between(&self, start: &[u8], end: &[u8]) -> bool {
        let c = &self.comparator;
        let end = KeyEnd { key: end, inclusive: false };
        self.older_l0.iter().any(|f| f.overlaps(c, start, end))
            || self.levels.iter().any(|(level, _)| !level.meeting(c, Some(start), Some(end)).is_empty())
    }
}
