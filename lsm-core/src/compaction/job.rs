//! A compaction from plan to settled edit.
//!
//! ```text
//! C2 cut the plan's key range into parts; this worker and free ones merge them
//! C3 merge the inputs   C4 drop what nobody sees   C5 write the outputs, submit their syncs
//! F3 live version: outputs in, inputs out          C6 the worker takes its next job
//! F4 outputs durable    F5 settle, then inputs unlinked when unused: the hand-off's
//! ```
//! The inputs are marked busy from the pick to the install, so that no other plan touches them.
//! A part that fails fails the job: its outputs are unlinked, the inputs stay live.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use dialsm_io::env::Nanos;
use dialsm_io::{Event, Priority};
use parking_lot::{Mutex, MutexGuard};

use super::clues::OtherShards;
use super::output::{Outputs, Written};
use super::plan::{LevelInputs, Plan, Reason, SubRange};
use super::visibility::CompactionIter;
use crate::background::{cancelled, panicked};
use crate::callback::Watch;
use crate::engine::Engine;
use crate::events::{Begun, Outcome};
use crate::handoff::{Reserved, Source};
use crate::invariants::check_installed;
use crate::key::user_key;
use crate::metrics::Counter;
use crate::range_del::RangeDels;
use crate::range_del::fragments::{Covering, Fragment, before, clip, needed};
use crate::read::internal::InternalIter;
use crate::read::level_iter::LevelIter;
use crate::read::merging_iter::MergingIter;
use crate::rollback;
use crate::table::IterSpec;
use crate::tree::{Tree, TreeState, TreeView};
use crate::types::{FileNumber, SeqNo};
use crate::version::set::Install;
use crate::version::{KeyEnd, Level, Removed, TableFile, Version};
use crate::{Error, ErrorKind, Result};

/// Looks for a reason to stop after so many entries.
const ENTRIES_BETWEEN_CHECKS: u32 = 1024;

/// Runs `plan`, whose inputs are marked busy, and gives them back, with what was `reserved` for them. The
/// result is live when this returns, or soon after, when its last writes are over; `wait` says to wait for
/// that here.
///
/// # Errors
/// Those of the files; `Cancelled` if the database is closing or `cancel` was set. The tree is as
/// it was then.
pub(crate) fn run(
    engine: &Arc<Engine>,
    tree: &Arc<Tree>,
    plan: &Plan,
    reserved: Option<Reserved>,
    cancel: Option<&Arc<AtomicBool>>,
    wait: bool,
) -> Result<()> {
    let clues = clue_ways(engine, plan);
    let (started, begun) = (engine.env.now(), Begun::compaction(&engine.events, tree, plan));
    let done = Done { tree: tree.clone(), plan: plan.clone(), clues, reserved, started, begun };
    if plan.trivial_move {
        engine.metrics.add(Counter::TrivialMoves, plan.files().count() as u64);
        return done.install(engine, Ok(Written::default()));
    }
    match merge_all(engine, tree, plan, clues, cancel) {
        Ok(written) => {
            if wait && engine.handoff.is_deferred(engine) {
                written.wait_written(engine);
            }
            let (what, waited) = ("a compaction", Counter::CompactionSyncNs);
            engine.handoff.when_written(engine, what, waited, written, move |e, w| done.install(e, w))
        }
        Err(error) => {
            if is_damage(&error) {
                // What the kernel could not write back it may have dropped before anybody hears of it.
                plan.files().for_each(|(_, table)| table.wait_synced(engine));
            }
            done.install(engine, Err(error))
        }
    }
}

/// Whether pages that the kernel has dropped may be behind it; without its first one a table is no table.
fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Foreign)
}

/// A compaction whose outputs are written.
struct Done {
    tree: Arc<Tree>,
    plan: Plan,
    clues: ClueWays,
    reserved: Option<Reserved>,
    started: Nanos,
    begun: Begun,
}

impl Done {
    /// F3; the inputs are free after it, whatever came out.
    fn install(mut self, engine: &Arc<Engine>, written: Result<Written>) -> Result<()> {
        let bytes = written.as_ref().map_or(0, Written::bytes);
        let reserved = self.reserved.take();
        let outcome = Outcome::of(&written);
        let installed = written
            .and_then(|written| install(engine, &self.tree, &self.plan, self.clues, written, reserved));
        {
            let mut state = self.tree.lock();
            // Before another compaction may begin that takes its tables.
            self.begun.end(&outcome.installed(&installed));
            self.plan.release();
            state.compactions_running -= 1;
            self.tree.refresh_stall(state);
        }
        // The inputs of a failed one are free again, and of the outputs of this others may be made; one of
        // the inputs may be a table that the reaper has to answer for.
        engine.schedule();
        engine.handoff.wake.notify();
        engine.events.ring();
        let is_suspect = self.plan.is_suspect();
        installed.map_err(|error| match is_suspect && is_damage(&error) {
            // Its bytes may be gone with its sync; it is made again, and then this is.
            true => cancelled(),
            false => error,
        })?;
        let ns = engine.env.now() - self.started;
        if !self.plan.trivial_move {
            let level = usize::from(self.plan.output_level);
            let shard = self.tree.id.shard;
            engine.metrics.add_compaction(shard, level, self.plan.input_bytes(), bytes, ns);
        }
        self.count_drains(engine, bytes, ns);
        Ok(())
    }

    /// Counts what left the levels above the outputs'. Where there are several, the time is the youngest one's.
    fn count_drains(&self, engine: &Engine, written: u64, ns: u64) {
        let input = self.plan.input_bytes();
        let drained = self.plan.inputs.iter().filter(|inputs| inputs.level < self.plan.output_level);
        let bytes = |inputs: &LevelInputs| inputs.files.iter().map(|file| file.file_bytes()).sum();
        let drained: Vec<(usize, u64)> = drained.map(|i| (usize::from(i.level), bytes(i))).collect();
        let total: u64 = drained.iter().map(|(_, bytes)| bytes).sum();
        let stayed = input - total;
        let survived = if self.plan.trivial_move { total } else { written.saturating_sub(stayed).min(total) };
        for (at, (level, bytes)) in drained.into_iter().enumerate() {
            let part = (u128::from(survived) * u128::from(bytes) / u128::from(total.max(1))) as u64;
            engine.metrics.add_drain(level, bytes, part, if at == 0 { ns } else { 0 });
        }
    }
}

/// What becomes of the clues that a compaction meets.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ClueWays {
    /// They are replaced by what they stand for.
    pub(crate) rolls_back: bool,
    /// Out of L0: those that are newer than all that leaves it stay there, as its oldest run (rule 4), in
    /// a table of their own; the rest goes down with the values.
    pub(crate) splits: bool,
}

/// The two kinds of tables that a compaction writes which splits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Values,
    Clues,
}

/// A compaction cut into parts by key.
pub(crate) struct SubJobs {
    tree: Arc<Tree>,
    plan: Plan,
    snapshots: Vec<SeqNo>,
    clues: ClueWays,
    /// Of a table that is made again: what belongs into it.
    class: Option<Class>,
    ranges: Vec<SubRange>,
    next: AtomicUsize,
    unfinished: AtomicUsize,
    results: Mutex<Vec<Option<Result<Written>>>>,
    done: Arc<dyn Event>,
    cancel: Option<Arc<AtomicBool>>,
}

impl SubJobs {
    /// Whether a part waits for a worker.
    pub(crate) fn has_open(&self) -> bool {
        self.next.load(Ordering::Acquire) < self.ranges.len()
    }

    /// Takes a part and runs it, if one is left; calls `between` now and then, between entries.
    pub(crate) fn run_one(&self, engine: &Arc<Engine>, between: &dyn Fn()) {
        let at = self.next.fetch_add(1, Ordering::AcqRel);
        let Some(range) = self.ranges.get(at) else { return };
        // Whoever waits for the parts waits for each of them, so none may be lost.
        let merge = || self.merge(engine, range, between);
        let result = catch_unwind(AssertUnwindSafe(merge)).unwrap_or_else(|_| Err(panicked()));
        self.results.lock()[at] = Some(result);
        self.unfinished.fetch_sub(1, Ordering::AcqRel);
        self.done.notify();
    }

    fn merge(&self, engine: &Arc<Engine>, range: &SubRange, between: &dyn Fn()) -> Result<Written> {
        let watch = Watch::begin(&self.tree.comparator);
        let meanwhile = || {
            between();
            self.check_cancelled(engine)
        };
        let plan = &self.plan;
        let out_of_l0 = plan.inputs.iter().any(|input| input.level == 0);
        let priority = match plan.reason {
            Reason::Redo => Priority::Flush,
            Reason::Manual => Priority::User,
            Reason::Rollback | Reason::Collect | Reason::Reads => Priority::Deep,
            _ if out_of_l0 => Priority::L0,
            _ => Priority::Deep,
        };
        let outputs = |level: usize, epoch: u64| {
            let outputs = Outputs::new(engine, &self.tree, level, epoch);
            let outputs = outputs.limited(priority, plan.input_bytes(), &meanwhile);
            if plan.reason == Reason::Redo { outputs.again() } else { outputs }
        };
        let values = outputs(usize::from(plan.output_level), plan.output_epoch.unwrap_or(0))
            .with_grandparents(&plan.grandparents);
        let clues =
            self.clues.splits.then(|| outputs(0, plan.output_epoch.unwrap_or(plan.clue_epoch())).aside());
        Written::watched(self.merge_into(engine, range, values, clues, &meanwhile), &watch, engine)
    }

    fn merge_into(
        &self,
        engine: &Arc<Engine>,
        range: &SubRange,
        outputs: Outputs<'_>,
        mut clues: Option<Outputs<'_>>,
        meanwhile: &dyn Fn() -> Result<()>,
    ) -> Result<Written> {
        let plan = &self.plan;
        let (covering, fragments, gone) = self.range_dels(engine, range)?;
        let source = open_inputs(engine, &self.tree, plan, &gone)?;
        let mut below = plan.drop_below();
        let zero_seqnos = plan.output_level > 0 && !plan.has_specials();
        let may_exist = move |key: &[u8]| below.may_exist(key);
        let order = self.tree.comparator.clone();
        let mut entries = CompactionIter::new(source, order, self.snapshots.clone(), zero_seqnos, may_exist)
            .merging(self.tree.merging.operator.clone())
            .covering(covering)
            .among(OtherShards::of(engine, &self.tree, self.clues.rolls_back));
        // Range tombstones leave L0 with the values.
        let mut outputs = outputs.with_range_dels(fragments);
        let mut until_check = ENTRIES_BETWEEN_CHECKS;
        entries.start(range.start.as_deref(), range.end.as_deref())?;
        while entries.valid() && range.reaches(&self.tree.comparator, user_key(entries.key())) {
            match clues.as_mut().filter(|_| entries.is_newest_clue()) {
                Some(clues) if self.class != Some(Class::Values) => {
                    clues.add(entries.key(), entries.value())?
                }
                None if self.class != Some(Class::Clues) => outputs.add(entries.key(), entries.value())?,
                // Of the other class than the table that is made again.
                _ => {}
            }
            until_check -= 1;
            if until_check == 0 {
                until_check = ENTRIES_BETWEEN_CHECKS;
                meanwhile()?;
            }
            entries.next()?;
        }
        let counts = entries.counts();
        counts.note(&engine.metrics, self.tree.id.shard);
        let mut written = match self.class {
            // Its range tombstones are in other tables.
            Some(Class::Clues) => Written::default(),
            _ => outputs.finish()?,
        };
        if let Some(clues) = clues {
            match clues.finish() {
                Ok(clues) => written.append(clues),
                Err(error) => {
                    written.discard(engine);
                    return Err(error);
                }
            }
        }
        written.rolled_back = counts.rolled_back;
        Ok(written)
    }

    /// The inputs' range tombstones within `range`: as they hide entries, and as they are written; and the
    /// tables all of whose entries there they hide, which need not be read.
    fn range_dels(
        &self,
        engine: &Arc<Engine>,
        range: &SubRange,
    ) -> Result<(Option<Covering>, Vec<Fragment>, Vec<FileNumber>)> {
        let (plan, c) = (&self.plan, &self.tree.comparator);
        let mut all = Vec::new();
        for (_, table) in plan.files().filter(|(_, table)| table.meta().range_deletes > 0) {
            let reader = engine.open_table(&self.tree, table)?;
            let tombstones = reader.range_dels().into_iter().flat_map(|set| set.iter());
            all.extend(tombstones.filter_map(|t| clip(c, t, range.start.as_deref(), range.end.as_deref())));
        }
        if all.is_empty() {
            return Ok((None, Vec::new(), Vec::new()));
        }
        let (set, below, mut dropped) = (RangeDels::new(c.clone(), all), plan.drop_below(), 0);
        let may_exist = |start: &[u8], end: &[u8]| below.may_exist_between(start, end);
        let mut fragments = needed(&set, &self.snapshots, may_exist, &mut dropped);
        if let Some(last) = &range.last {
            fragments = before(c, fragments, last);
        }
        engine.metrics.add(Counter::RangeDeletesDropped, dropped);
        let files = plan.files().map(|(_, table)| table);
        let gone: Vec<FileNumber> =
            files.filter(|table| self.is_hidden(&set, range, table)).map(|table| table.number()).collect();
        engine.metrics.add(Counter::RangeDeletedTables, gone.len() as u64);
        Ok((Some(Covering::new(c, set, &fragments)), fragments, gone))
    }

    /// Whether tombstones of one stripe with all of a table's entries hide these, as far as they lie in
    /// `range`.
    fn is_hidden(&self, set: &RangeDels, range: &SubRange, table: &TableFile) -> bool {
        let (c, meta) = (&self.tree.comparator, table.meta());
        let stripe = self.snapshots.partition_point(|snapshot| *snapshot < meta.seqno_min);
        let Some(&upto) = self.snapshots.get(stripe) else { return false };
        if meta.specials() > 0 {
            return false;
        }
        let start = table.smallest_user();
        let start = range.start.as_deref().filter(|s| c.compare(s, start).is_gt()).unwrap_or(start);
        let mut end = table.end();
        if let Some(key) = range.end.as_deref() {
            let cut = KeyEnd { key, inclusive: false };
            end = if end.is_after(c, &cut) { cut } else { end };
        }
        end.reaches(c, start) && set.covers_all(start, end, meta.seqno_max, upto)
    }

    fn check_cancelled(&self, engine: &Engine) -> Result<()> {
        let asked = self.cancel.as_ref().is_some_and(|cancel| cancel.load(Ordering::Relaxed));
        let is_over = engine.closing.load(Ordering::Relaxed)
            || self.tree.is_dropped()
            || (self.plan.reason == Reason::Rollback && rollback::is_to_abort(engine))
            || (self.plan.reason == Reason::Reads && rollback::is_burst(engine));
        if asked || is_over { Err(cancelled()) } else { Ok(()) }
    }
}

fn merge_all(
    engine: &Arc<Engine>,
    tree: &Arc<Tree>,
    plan: &Plan,
    clues: ClueWays,
    cancel: Option<&Arc<AtomicBool>>,
) -> Result<Written> {
    let watch = Watch::begin(&tree.comparator);
    let ranges = plan.sub_ranges(engine.options.load().subcompactions_max);
    watch.check()?;
    let jobs = sub_jobs(engine, tree, plan, ranges, (clues, None), cancel);
    if jobs.ranges.len() > 1 {
        engine.scheduler.offer(&jobs);
    }
    while jobs.has_open() {
        jobs.run_one(engine, &|| {});
    }
    engine.scheduler.withdraw(&jobs);
    loop {
        let seen = jobs.done.epoch();
        if jobs.unfinished.load(Ordering::Acquire) == 0 {
            break;
        }
        jobs.done.wait(seen, None);
    }
    let results = std::mem::take(&mut *jobs.results.lock());
    collect(engine, results)
}

/// What becomes of clues in a compaction by `plan`.
fn clue_ways(engine: &Engine, plan: &Plan) -> ClueWays {
    let rolls_back = plan.reason == Reason::Rollback;
    let is_capped = engine.options.load().clue_capping && plan.is_out_of_l0() && plan.has_clues();
    ClueWays { rolls_back, splits: is_capped && !rolls_back }
}

/// The part of `plan` that lies in the key span of `table`, merged on this thread: what the table is made
/// of, made again.
pub(crate) fn merge_span(
    engine: &Arc<Engine>,
    tree: &Arc<Tree>,
    plan: &Plan,
    table: &TableFile,
    clues: ClueWays,
) -> Result<Written> {
    // Nothing but clues is ever put back into L0 where they are split off.
    let class = if plan.output_level == 0 { Class::Clues } else { Class::Values };
    let end = table.end();
    let span = SubRange {
        start: Some(table.smallest_user().to_vec()),
        end: (!end.inclusive).then(|| end.key.to_vec()),
        last: end.inclusive.then(|| end.key.to_vec()),
    };
    let jobs = sub_jobs(engine, tree, plan, vec![span], (clues, clues.splits.then_some(class)), None);
    jobs.merge(engine, &jobs.ranges[0], &|| {})
}

fn sub_jobs(
    engine: &Arc<Engine>,
    tree: &Arc<Tree>,
    plan: &Plan,
    ranges: Vec<SubRange>,
    (clues, class): (ClueWays, Option<Class>),
    cancel: Option<&Arc<AtomicBool>>,
) -> Arc<SubJobs> {
    let parts = ranges.len();
    Arc::new(SubJobs {
        tree: tree.clone(),
        plan: plan.clone(),
        snapshots: engine.snapshots.for_job(engine.commit.visible()),
        clues,
        class,
        ranges,
        next: AtomicUsize::new(0),
        unfinished: AtomicUsize::new(parts),
        results: Mutex::new((0..parts).map(|_| None).collect()),
        done: engine.env.event(),
        cancel: cancel.cloned(),
    })
}

/// All outputs in key order; if a part failed, the files of the others are unlinked.
fn collect(engine: &Engine, results: Vec<Option<Result<Written>>>) -> Result<Written> {
    let mut outputs = Written::default();
    let mut failure = None;
    for result in results {
        match result.expect("no part is unfinished") {
            Ok(tables) => outputs.append(tables),
            Err(error) => failure = Some(error),
        }
    }
    let Some(error) = failure else { return Ok(outputs) };
    outputs.discard(engine);
    Err(error)
}

/// The merge of the inputs but for those that are `gone`.
fn open_inputs(
    engine: &Arc<Engine>,
    tree: &Arc<Tree>,
    plan: &Plan,
    gone: &[FileNumber],
) -> Result<MergingIter<Box<dyn InternalIter>>> {
    let spec = IterSpec::whole_table();
    let mut children: Vec<Box<dyn InternalIter>> = Vec::new();
    for input in &plan.inputs {
        if input.level == 0 {
            for table in input.files.iter().filter(|table| !gone.contains(&table.number())) {
                children.push(Box::new(engine.open_table(tree, table)?.iter(spec)));
            }
        } else {
            let left = input.files.iter().filter(|table| !gone.contains(&table.number()));
            let level = Arc::new(Level::new(left.cloned().collect()));
            let order = tree.comparator.clone();
            let (tables, tree) = (engine.clone(), tree.clone());
            let open = move |table: &Arc<TableFile>| Ok(tables.open_table(&tree, table)?.iter(spec));
            children.push(Box::new(LevelIter::new(order, level, None, None, open)));
        }
    }
    Ok(MergingIter::new(tree.comparator.clone(), children))
}

/// Makes the result live.
fn install(
    engine: &Engine,
    tree: &Arc<Tree>,
    plan: &Plan,
    clues: ClueWays,
    written: Written,
    reserved: Option<Reserved>,
) -> Result<()> {
    let removed = plan.removed();
    let mut leaving: Vec<Arc<TableFile>> = plan.files().map(|(_, table)| table.clone()).collect();
    let added: Vec<(u8, Arc<TableFile>)> = if plan.trivial_move {
        // The same tables on another level: not obsolete.
        std::mem::take(&mut leaving).into_iter().map(|table| (plan.output_level, table)).collect()
    } else {
        written.table_files(&tree.comparator)
    };
    if plan.reason == Reason::Collect {
        added.iter().for_each(|(_, table)| table.set_collected());
    }
    let source = Source::Merge(Arc::new(plan.inputs.clone()), clues);
    let state = tree.lock();
    if state.dropped {
        drop(state);
        written.discard(engine);
        return Err(cancelled());
    }
    let replaced = Replaced { removed, added, leaving, reserved };
    // (With a source of that kind nothing is to be done for tables that are durable already.)
    let (state, version) = replace(engine, tree, state, replaced, written, &source)?;
    drop(state);
    check_installed(engine, tree, &version)
}

/// What leaves a version, and what comes instead.
struct Replaced {
    removed: Vec<Removed>,
    added: Vec<(u8, Arc<TableFile>)>,
    leaving: Vec<Arc<TableFile>>,
    reserved: Option<Reserved>,
}

/// Makes tables live in the place of others, under the tree's lock. Gives the lock back, with the version that
/// has them; `written` is given up if they do not fit.
fn replace<'t>(
    engine: &Engine,
    tree: &'t Arc<Tree>,
    mut state: MutexGuard<'t, TreeState>,
    replaced: Replaced,
    written: Written,
    source: &Source,
) -> Result<(MutexGuard<'t, TreeState>, Arc<Version>)> {
    let Replaced { removed, added, leaving, reserved } = replaced;
    let version = match tree.view().version.apply(&removed, &added) {
        Ok(version) => Arc::new(version),
        Err(error) => {
            drop(state);
            written.discard(engine);
            return Err(internal(error));
        }
    };
    tree.publish(&mut state, |view| TreeView {
        active: view.active.clone(),
        sealed: view.sealed.clone(),
        version: version.clone(),
    });
    written.set_makers(tree, source);
    let install =
        Install { removed, added, version: version.clone(), floor: None, leaving, reserved, together: None };
    engine.versions.push(tree, &mut state, install);
    Ok((state, version))
}

/// A table that was made again, on its way into the place of the old one.
pub(crate) struct Swap {
    pub(crate) tree: Arc<Tree>,
    pub(crate) table: Arc<TableFile>,
    pub(crate) source: Source,
}

impl Swap {
    /// Makes the new tables live where the old one is.
    pub(crate) fn install(self, engine: &Arc<Engine>, written: Result<Written>) -> Result<()> {
        let written = written?;
        let (tree, number) = (&self.tree, self.table.number());
        let state = tree.lock();
        let view = tree.view();
        let found = view.version.all_tables().find(|(_, table)| table.number() == number);
        let Some(level) = found.map(|(level, _)| level).filter(|_| !state.dropped) else {
            drop(state);
            written.discard(engine);
            return Err(cancelled());
        };
        let (removed, added) = (vec![(level, number)], written.table_files_on(&tree.comparator, level));
        let replaced = Replaced { removed, added, leaving: vec![self.table.clone()], reserved: None };
        let (state, version) = replace(engine, tree, state, replaced, written, &self.source)?;
        tree.refresh_stall(state);
        engine.handoff.wake.notify();
        check_installed(engine, tree, &version)
    }
}

/// A plan whose result breaks the level order is a fault of ours, not of the data.
fn internal(error: Error) -> Error {
    Error::new(ErrorKind::Internal, format!("a compaction's result does not fit: {}", error.message()))
}
