//! Chooses the next compaction (C1): a pure function of a version, a strategy, and the claims that
//! running jobs have on files. It reads no file and takes nothing: the caller claims the plan
//! before it asks again.
//!
//! ```text
//! most urgent level first, of those that are due (debt::scores)
//!   L0      move down the files that overlap nothing        fillseq never rewrites a byte
//!           else merge all that may leave with the base level
//!           else, while that is blocked, merge the newest runs among themselves
//!   deeper  the file that `Movement` puts first, with its overlap on the next level
//! ```
//! INVARIANTS (attacked by `simulation_keeps_recency_and_levels`, which runs jobs concurrently)
//! - I3: an L0 file leaves only together with, or after, every older L0 file that overlaps it; and
//!   the levels a plan passes over hold nothing in its hull.
//! - An intra-L0 plan's inputs are neighbours in epoch order among *all* L0 files, so its output,
//!   under its newest input's epoch, passes nobody.
//! - Two running jobs never write overlapping hulls to one level, though none of their inputs may
//!   overlap: an output may span a gap between the inputs it was made from.
//! - No input is claimed by another job.
//!
//! Absent: a second run over a table because of its tombstones alone (B093); they only make it
//! more attractive while its level is above its target, so every plan makes progress.

use std::ops::Range;
use std::sync::Arc;

use crate::compaction::debt::{LevelTargets, scores};
use crate::compaction::plan::{KeyHull, LevelInputs, Plan, Reason};
use crate::compaction::strategy::{Granularity, Layout, Movement, Strategy, Trigger};
use crate::key::Comparator;
use crate::types::SeqNo;
use crate::version::{Claim, KeyEnd, LEVELS, TableFile, Version};

/// Fewest runs that an intra-L0 merge takes: below that it reads slower and writes for nothing.
const INTRA_L0_FILES_MIN: usize = 4;

/// Fewest neighbouring runs of nothing but clues that are merged.
const CLUE_RUNS_MIN: usize = 3;

fn is_free_clues(file: &TableFile) -> bool {
    file.meta().is_clue_only() && !file.compacting()
}

/// How far above its trigger L0 has to be for an intra-L0 merge.
const INTRA_L0_SURPLUS: usize = 2;

/// The most urgent compaction that can run now, if any is due.
pub fn pick(version: &Version, strategy: &Strategy) -> Option<Plan> {
    // Other values need other code; the match makes their author come here.
    let (Trigger::SaturationOrL0Runs, Layout::OneLeveling, Granularity::File) =
        (strategy.trigger, strategy.layout, strategy.granularity);
    let targets = LevelTargets::of(version, strategy);
    let context = Context { version, strategy, running: Running::of(version) };
    for (level, score) in scores(version, strategy, &targets) {
        if score < 1.0 {
            break;
        }
        let plan = match level {
            0 => context
                .move_l0(targets.base)
                .or_else(|| context.l0_to_base(targets.base))
                .or_else(|| context.intra_l0()),
            _ => context.shrink_level(level),
        };
        if let Some(mut plan) = plan {
            plan.score = score;
            return Some(plan);
        }
    }
    context.merge_clues()
}

/// A compaction that replaces clues by what they stand for, if some with sequence numbers up to `last` can
/// be: all that may leave L0, where there are such clues in it, else a deeper table that has some. Of a table
/// that takes part all clues go, newer ones too.
pub fn pick_rollback(version: &Version, strategy: &Strategy, last: SeqNo) -> Option<Plan> {
    if !version.has_clues_up_to(last) {
        return None;
    }
    let base = LevelTargets::of(version, strategy).base;
    let context = Context { version, strategy, running: Running::of(version) };
    let has_clues = |file: &&Arc<TableFile>| file.meta().has_clues_up_to(last) && !file.compacting();
    let from_l0 = || context.all_l0(base).filter(|plan| plan.files().any(|(_, file)| has_clues(&file)));
    let deeper = || (1..LEVELS).find_map(|l| version.level(l).iter().find(has_clues).map(|file| (l, file)));
    let mut plan = from_l0().or_else(|| deeper().and_then(|(level, file)| context.rewrite(level, file)))?;
    plan.reason = Reason::Rollback;
    plan.score = 1.0;
    Some(plan)
}

/// Below which sequence redirected entries may go, where no tree of the keyspace has a clue any more, durable
/// or live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectFloors {
    /// The lowest durable floor of the keyspace's trees: all below it go.
    pub sure: SeqNo,
    /// The same without the trees that have no clue in memory: all below it go, too, unless the log that
    /// had their clues was lost. Those then wait for the other floor.
    pub likely: SeqNo,
}

/// A compaction of redirected entries that nobody needs: of a table whose entries are all below the floors.
/// Where a collection has left some it is not tried again before they are sure to go.
pub fn pick_collect(version: &Version, strategy: &Strategy, floors: CollectFloors) -> Option<Plan> {
    let base = LevelTargets::of(version, strategy).base;
    let context = Context { version, strategy, running: Running::of(version) };
    let is_due = |file: &&Arc<TableFile>| {
        let meta = file.meta();
        let floor = if file.is_collected() { floors.sure } else { floors.likely };
        meta.redirected > 0 && meta.seqno_max < floor && !file.compacting()
    };
    let from_l0 = || context.all_l0(base).filter(|plan| plan.files().any(|(_, file)| is_due(&file)));
    let deeper = || (1..LEVELS).find_map(|l| version.level(l).iter().find(is_due).map(|file| (l, file)));
    let mut plan = from_l0().or_else(|| deeper().and_then(|(level, file)| context.rewrite(level, file)))?;
    plan.reason = Reason::Collect;
    plan.score = 1.0;
    Some(plan)
}

/// What [`pick_range`] found.
#[derive(Debug)]
pub enum RangePick {
    /// Nothing to do: the range is empty, or lies on the target level already.
    Nothing,
    /// A running compaction holds part of it: ask again when one has ended.
    Busy,
    /// This does all of it.
    Plan(Box<Plan>),
}

/// One plan that merges everything in the user keys `lo..=hi` (`None`: unbounded), from L0 down to
/// `target` (`None`: the deepest level that holds some of it), into `target`. Each byte is written
/// once, where going down level by level would write it once a level; sub-compactions cut it up.
///
/// With `rewrite`, files that lie on the target level alone are rewritten too, which drops
/// tombstones and versions that nobody sees any more.
pub fn pick_range(
    version: &Version,
    strategy: &Strategy,
    lo: Option<&[u8]>,
    hi: Option<&[u8]>,
    target: Option<usize>,
    rewrite: bool,
) -> RangePick {
    let c = version.comparator();
    let deepest = (1..LEVELS).rev().find(|&l| !version.overlapping(l, lo, hi).is_empty());
    let base = LevelTargets::of(version, strategy).base;
    let target = target.or(deepest).unwrap_or(base).clamp(1, LEVELS - 1);
    let gather = |lo: Option<&[u8]>, hi: Option<KeyEnd<'_>>| -> Vec<LevelInputs> {
        (0..=target)
            .map(|l| LevelInputs { level: l as u8, files: version.meeting(l, lo, hi) })
            .filter(|i| !i.files.is_empty())
            .collect()
    };
    let count = |inputs: &[LevelInputs]| inputs.iter().map(|i| i.files.len()).sum::<usize>();
    let mut inputs = gather(lo, hi.map(KeyEnd::at));
    // The hull grows by what it meets until it meets nothing new.
    loop {
        let Some(hull) = KeyHull::of(c, inputs.iter().flat_map(|i| &i.files)) else {
            return RangePick::Nothing;
        };
        let wider = gather(Some(&hull.lo), Some(hull.end()));
        if count(&wider) == count(&inputs) {
            break;
        }
        inputs = wider;
    }
    if !rewrite && inputs.iter().all(|i| usize::from(i.level) == target) {
        return RangePick::Nothing;
    }
    let mut plan = Plan::new(version, inputs, target as u8, Reason::Manual);
    if plan.files().any(|(_, f)| f.compacting()) || Running::of(version).blocks(c, &plan) {
        return RangePick::Busy;
    }
    let gains = |f: &TableFile| {
        let m = f.meta();
        m.deletes > 0 || m.range_deletes > 0 || m.specials() > 0
    };
    let disjoint = plan.inputs.len() == 1 && (plan.inputs[0].level > 0 || plan.inputs[0].files.len() == 1);
    plan.trivial_move = !rewrite && disjoint && !plan.files().any(|(_, f)| gains(f));
    RangePick::Plan(Box::new(plan))
}

/// Running jobs: where each writes, and the hull of its inputs.
struct Running(Vec<(Claim, KeyHull)>);

impl Running {
    fn of(version: &Version) -> Running {
        let mut held: Vec<(Claim, &Arc<TableFile>)> = version
            .levels()
            .iter()
            .flat_map(|level| level.iter())
            .filter_map(|f| f.claim().map(|claim| (claim, f)))
            .collect();
        held.sort_by_key(|(claim, _)| *claim);
        let hulls = held.chunk_by(|a, b| a.0 == b.0).filter_map(|job| {
            let hull = KeyHull::of(version.comparator(), job.iter().map(|(_, f)| *f))?;
            Some((job[0].0, hull))
        });
        Running(hulls.collect())
    }

    /// Whether a running job writes to a level in `levels` within the hull.
    fn writes(&self, comparator: &Comparator, levels: Range<u8>, hull: &KeyHull) -> bool {
        self.0
            .iter()
            .any(|(claim, other)| levels.contains(&claim.output_level) && other.overlaps(comparator, hull))
    }

    /// Whether `plan` has to wait for a running job: one that writes to the plan's output level,
    /// or to a level that the plan passes over. L0 may overlap, so nothing blocks writing there.
    fn blocks(&self, comparator: &Comparator, plan: &Plan) -> bool {
        let first = (plan.inputs[0].level + 1).min(plan.output_level).max(1);
        self.writes(comparator, first..plan.output_level + 1, &plan.hull)
    }
}

struct Context<'a> {
    version: &'a Version,
    strategy: &'a Strategy,
    running: Running,
}

impl Context<'_> {
    fn comparator(&self) -> &Comparator {
        self.version.comparator()
    }

    fn overlapping(&self, level: usize, hull: &KeyHull) -> Vec<Arc<TableFile>> {
        self.version.meeting(level, Some(&hull.lo), Some(hull.end()))
    }

    fn hull_of_file(&self, file: &TableFile) -> KeyHull {
        let end = file.end();
        let (lo, hi) = (file.smallest_user().to_vec(), end.key.to_vec());
        KeyHull { lo, hi, hi_exclusive: !end.inclusive }
    }

    /// Whether a file may come to lie on `level` as it is: nothing there overlaps it, nobody is
    /// about to write there, and merging it further down will not be dear. A table of mostly
    /// tombstones, or with range tombstones, with nothing below is rewritten instead: moved, it would lie there for ever.
    fn fits(&self, from: usize, level: usize, file: &TableFile) -> bool {
        let hull = self.hull_of_file(file);
        if !self.overlapping(level, &hull).is_empty()
            || self.running.writes(self.comparator(), from as u8 + 1..level as u8 + 1, &hull)
        {
            return false;
        }
        let below = |l: usize| self.overlapping(l, &hull);
        if file.meta().range_deletes > 0 && (level + 1..LEVELS).all(|l| below(l).is_empty()) {
            return false;
        }
        if file.meta().deletes > file.meta().entries / 2 {
            return (level + 1..LEVELS).any(|l| !below(l).is_empty());
        }
        level + 1 == LEVELS
            || below(level + 1).iter().map(|f| f.file_bytes()).sum::<u64>()
                <= self.strategy.compaction_bytes_max
    }

    /// All L0 files that overlap no older L0 file and fit on the base level, to be moved there.
    fn move_l0(&self, base: usize) -> Option<Plan> {
        let (c, l0) = (self.comparator(), self.version.l0());
        let movable = |at: usize| {
            let file = &l0[at];
            let alone = l0[at + 1..].iter().all(|f| !f.meets(c, file));
            !file.compacting() && file.meta().clues == 0 && alone && self.fits(0, base, file)
        };
        let files: Vec<_> = (0..l0.len()).filter(|&at| movable(at)).map(|at| Arc::clone(&l0[at])).collect();
        if files.is_empty() {
            return None;
        }
        let inputs = vec![LevelInputs { level: 0, files }];
        let plan = Plan::new(self.version, inputs, base as u8, Reason::L0ToBase);
        Some(plan.into_move())
    }

    /// All L0 files that may leave, with the base level's files in their hull; nothing if they are all
    /// clues, which would stay where they are.
    fn l0_to_base(&self, base: usize) -> Option<Plan> {
        self.all_l0(base).filter(|plan| !plan.inputs[0].files.iter().all(|file| file.meta().is_clue_only()))
    }

    /// A table of a deeper level, written anew where it lies.
    fn rewrite(&self, level: usize, file: &Arc<TableFile>) -> Option<Plan> {
        let inputs = vec![LevelInputs { level: level as u8, files: vec![Arc::clone(file)] }];
        self.admit(Plan::new(self.version, inputs, level as u8, Reason::LevelSaturation))
    }

    /// Neighbours in L0 that hold nothing but clues become one run.
    fn merge_clues(&self) -> Option<Plan> {
        let l0 = self.version.l0();
        let mut runs = l0.chunk_by(|a, b| is_free_clues(a) && is_free_clues(b));
        let files = runs.find(|run| run.len() >= CLUE_RUNS_MIN && is_free_clues(&run[0]))?;
        let inputs = vec![LevelInputs { level: 0, files: files.to_vec() }];
        let mut plan = self.admit(Plan::new(self.version, inputs, 0, Reason::IntraL0))?;
        plan.score = 1.0;
        Some(plan)
    }

    /// All L0 files that may leave, with the base level's files in their hull.
    fn all_l0(&self, base: usize) -> Option<Plan> {
        let (c, l0) = (self.comparator(), self.version.l0());
        // From the oldest: a file stays if it is claimed, or an older one that stays overlaps it.
        let mut stays: Vec<&Arc<TableFile>> = Vec::new();
        let mut leaves = Vec::new();
        for file in l0.iter().rev() {
            let held = stays.iter().any(|f| f.meets(c, file));
            if file.compacting() || held {
                stays.push(file);
            } else {
                leaves.push(Arc::clone(file));
            }
        }
        leaves.reverse();
        let hull = KeyHull::of(c, &leaves)?;
        let mut inputs = vec![LevelInputs { level: 0, files: leaves }];
        let parents = self.overlapping(base, &hull);
        if !parents.is_empty() {
            inputs.push(LevelInputs { level: base as u8, files: parents });
        }
        self.admit(Plan::new(self.version, inputs, base as u8, Reason::L0ToBase))
    }

    /// The plan, unless a file is claimed or a running job is in its way.
    fn admit(&self, plan: Plan) -> Option<Plan> {
        let free =
            plan.files().all(|(_, f)| !f.compacting()) && !self.running.blocks(self.comparator(), &plan);
        free.then_some(plan)
    }

    /// The newest neighbours in L0 that nobody holds, as many as make each removed run cheaper.
    fn intra_l0(&self) -> Option<Plan> {
        let l0 = self.version.l0();
        if self.version.l0_depth() < self.strategy.l0_files + INTRA_L0_SURPLUS {
            return None;
        }
        let mut start = 0;
        while start < l0.len() {
            let idle = l0[start..].iter().take_while(|f| !f.compacting()).count();
            let count = worthwhile_runs(&l0[start..start + idle], self.strategy.compaction_bytes_max);
            if count >= INTRA_L0_FILES_MIN {
                let inputs = vec![LevelInputs { level: 0, files: l0[start..start + count].to_vec() }];
                return self.admit(Plan::new(self.version, inputs, 0, Reason::IntraL0));
            }
            start += idle + 1;
        }
        None
    }

    fn shrink_level(&self, level: usize) -> Option<Plan> {
        let idle = self.version.level(level).iter().filter(|f| !f.compacting());
        let mut ranked: Vec<(f64, &Arc<TableFile>)> = idle.map(|f| (self.rank(level, f), f)).collect();
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
        ranked.into_iter().find_map(|(_, file)| self.file_down(level, file))
    }

    /// The order in which files of a level go; least first.
    fn rank(&self, level: usize, file: &TableFile) -> f64 {
        match self.strategy.movement {
            Movement::LeastOverlapWithParent => {
                let below = self.version.level(level + 1);
                let range = below.meeting(self.comparator(), Some(file.smallest_user()), Some(file.end()));
                let bytes: u64 = below[range].iter().map(|f| f.file_bytes()).sum();
                bytes as f64 / file.compensated_bytes().max(1) as f64
            }
            Movement::Oldest => file.meta().seqno_max as f64,
            Movement::TombstoneDensity => -(file.meta().deletes as f64 / file.meta().entries.max(1) as f64),
        }
    }

    /// `file` to the next level, with what it overlaps there.
    fn file_down(&self, level: usize, file: &Arc<TableFile>) -> Option<Plan> {
        let one = |files| LevelInputs { level: level as u8, files };
        let output = level as u8 + 1;
        if self.fits(level, level + 1, file) {
            let inputs = vec![one(vec![Arc::clone(file)])];
            let plan = Plan::new(self.version, inputs, output, Reason::LevelSaturation);
            return Some(plan.into_move());
        }
        let parents = self.overlapping(level + 1, &self.hull_of_file(file));
        let mut inputs = vec![one(self.with_neighbours(level, file, &parents))];
        if !parents.is_empty() {
            inputs.push(LevelInputs { level: output, files: parents });
        }
        self.admit(Plan::new(self.version, inputs, output, Reason::LevelSaturation))
    }

    /// `file` and the idle files beside it that lie wholly within the hull of `parents`: they go
    /// down at the price of their own bytes.
    fn with_neighbours(
        &self,
        level: usize,
        file: &Arc<TableFile>,
        parents: &[Arc<TableFile>],
    ) -> Vec<Arc<TableFile>> {
        let c = self.comparator();
        let files = self.version.level(level);
        let at = files.first_reaching(c, file.smallest_user());
        let (mut start, mut end) = (at, at + 1);
        if let Some(hull) = KeyHull::of(c, parents) {
            let mut room = self.strategy.compaction_bytes_max.saturating_sub(
                parents.iter().map(|f| f.file_bytes()).sum::<u64>().saturating_add(file.file_bytes()),
            );
            let mut takes = |f: &TableFile| {
                let inside =
                    c.compare(&hull.lo, f.smallest_user()).is_le() && !f.end().is_after(c, &hull.end());
                let takes = inside && !f.compacting() && f.file_bytes() <= room;
                room -= if takes { f.file_bytes() } else { 0 };
                takes
            };
            while start > 0 && takes(&files[start - 1]) {
                start -= 1;
            }
            while end < files.len() && takes(&files[end]) {
                end += 1;
            }
        }
        files[start..end].to_vec()
    }
}

/// How many of these L0 files (newest first) to merge into one: as long as one more makes the
/// bytes written for each run that goes away fewer, and the sum stays within `bytes_max`. So a
/// large result of an earlier merge is not rewritten for the sake of a few small runs.
fn worthwhile_runs(files: &[Arc<TableFile>], bytes_max: u64) -> usize {
    let Some(first) = files.first() else { return 0 };
    let mut bytes = first.file_bytes();
    let mut best = u64::MAX;
    for (removed, file) in files.iter().enumerate().skip(1) {
        bytes = bytes.saturating_add(file.file_bytes());
        let each = bytes / removed as u64;
        if each > best || bytes > bytes_max {
            return removed;
        }
        best = each;
    }
    files.len()
}

#[cfg(test)]
mod tests;
