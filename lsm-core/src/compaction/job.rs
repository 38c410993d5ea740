//! A compaction from plan to settled edit.
//!
//! ```text
//! C2 cut the plan's key range into parts; this worker and free ones merge them
//! C3 merge the inputs   C4 drop what nobody sees   C5 write the outputs
//! F3 live version: outputs in, inputs out          F4 sync  F5 settle; C6 inputs unlinked when unused
//! ```
//! The inputs are marked busy from the pick to the install, so that no other plan touches them.
//! A part that fails fails the job: its outputs are unlinked, the inputs stay live.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use dialsm_io::Event;
use parking_lot::Mutex;

use super::output::{Outputs, Written};
use super::plan::{Plan, SubRange};
use super::visibility::CompactionIter;
use crate::background::cancelled;
use crate::engine::Engine;
use crate::invariants::check_installed;
use crate::metrics::Counter;
use crate::range_del::RangeDels;
use crate::range_del::fragments::{Covering, Fragment, clip, needed};
use crate::read::internal::InternalIter;
use crate::read::level_iter::LevelIter;
use crate::read::merging_iter::MergingIter;
use crate::table::IterSpec;
use crate::tree::{Tree, TreeView};
use crate::types::{FileNumber, SeqNo};
use crate::version::edit::TreeEdit;
use crate::version::set::Ticket;
use crate::version::{KeyEnd, Level, TableFile};
use crate::{Error, Result};

/// Looks for a reason to stop after so many entries.
const ENTRIES_BETWEEN_CHECKS: u32 = 1024;

/// Runs `plan`, whose inputs are marked busy, and gives them back.
///
/// # Errors
/// Those of the files; `Cancelled` if the database is closing or `cancel` was set. The tree is as
/// it was then, or, if only settling failed, the result is live and settles later.
pub(crate) fn run(
    engine: &Arc<Engine>,
    tree: &Arc<Tree>,
    plan: &Plan,
    cancel: Option<&Arc<AtomicBool>>,
) -> Result<()> {
    let started = engine.env.now();
    let result = if plan.trivial_move {
        engine.metrics.add(Counter::TrivialMoves, plan.files().count() as u64);
        Ok(None)
    } else {
        merge_all(engine, tree, plan, cancel).map(Some)
    };
    let installed = result.and_then(|outputs| {
        let ticket = install(engine, tree, plan, outputs.as_ref())?;
        Ok((outputs.unwrap_or_default(), ticket))
    });
    {
        let mut state = tree.lock();
        plan.release();
        state.compactions_running -= 1;
        tree.refresh_stall(engine, state);
    }
    let (outputs, ticket) = installed?;
    // The outputs are live: others may already compact them further.
    engine.schedule();
    let written_bytes = outputs.tables.iter().map(|meta| meta.file_bytes).sum();
    engine.versions.sync(engine, outputs, ticket)?;
    if !plan.trivial_move {
        let ns = engine.env.now() - started;
        let level = usize::from(plan.output_level);
        engine.metrics.add_compaction(level, plan.input_bytes(), written_bytes, ns);
    }
    engine.versions.settle(engine)
}

/// A compaction cut into parts by key.
pub(crate) struct SubJobs {
    tree: Arc<Tree>,
    plan: Plan,
    snapshots: Vec<SeqNo>,
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

    /// Takes a part and runs it, if one is left.
    pub(crate) fn run_one(&self, engine: &Arc<Engine>) {
        let at = self.next.fetch_add(1, Ordering::AcqRel);
        let Some(range) = self.ranges.get(at) else { return };
        let result = self.merge(engine, range);
        self.results.lock()[at] = Some(result);
        self.unfinished.fetch_sub(1, Ordering::AcqRel);
        self.done.notify();
    }

    fn merge(&self, engine: &Arc<Engine>, range: &SubRange) -> Result<Written> {
        let plan = &self.plan;
        let (covering, fragments, gone) = self.range_dels(engine, range)?;
        let source = open_inputs(engine, &self.tree, plan, &gone)?;
        let mut below = plan.drop_below();
        let zero_seqnos = plan.output_level > 0 && !plan.has_specials();
        let may_exist = move |key: &[u8]| below.may_exist(key);
        let order = self.tree.comparator.clone();
        let mut entries = CompactionIter::new(source, order, self.snapshots.clone(), zero_seqnos, may_exist)
            .merging(self.tree.merging.operator.clone())
            .covering(covering);
        let level = usize::from(plan.output_level);
        let mut outputs = Outputs::new(engine, &self.tree, level, plan.output_epoch.unwrap_or(0))
            .with_grandparents(&plan.grandparents)
            .with_range_dels(fragments);
        let mut until_check = ENTRIES_BETWEEN_CHECKS;
        entries.start(range.start.as_deref(), range.end.as_deref())?;
        while entries.valid() {
            outputs.add(entries.key(), entries.value())?;
            until_check -= 1;
            if until_check == 0 {
                until_check = ENTRIES_BETWEEN_CHECKS;
                self.check_cancelled(engine)?;
            }
            entries.next()?;
        }
        entries.counts().note(&engine.metrics);
        outputs.finish()
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
            let reader = engine.open_table(table)?;
            let tombstones = reader.range_dels().into_iter().flat_map(|set| set.iter());
            all.extend(tombstones.filter_map(|t| clip(c, t, range.start.as_deref(), range.end.as_deref())));
        }
        if all.is_empty() {
            return Ok((None, Vec::new(), Vec::new()));
        }
        let (set, below, mut dropped) = (RangeDels::new(c.clone(), all), plan.drop_below(), 0);
        let may_exist = |start: &[u8], end: &[u8]| below.may_exist_between(start, end);
        let fragments = needed(&set, &self.snapshots, may_exist, &mut dropped);
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
        if meta.specials > 0 {
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
        if asked || engine.closing.load(Ordering::Relaxed) { Err(cancelled()) } else { Ok(()) }
    }
}

fn merge_all(
    engine: &Arc<Engine>,
    tree: &Arc<Tree>,
    plan: &Plan,
    cancel: Option<&Arc<AtomicBool>>,
) -> Result<Written> {
    let ranges = plan.sub_ranges(engine.options.subcompactions_max);
    let parts = ranges.len();
    let jobs = Arc::new(SubJobs {
        tree: tree.clone(),
        plan: plan.clone(),
        snapshots: engine.snapshots.for_job(engine.commit.visible()),
        ranges,
        next: AtomicUsize::new(0),
        unfinished: AtomicUsize::new(parts),
        results: Mutex::new((0..parts).map(|_| None).collect()),
        done: engine.env.event(),
        cancel: cancel.cloned(),
    });
    if parts > 1 {
        engine.scheduler.offer(&jobs);
    }
    while jobs.has_open() {
        jobs.run_one(engine);
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
    tree: &Tree,
    plan: &Plan,
    gone: &[FileNumber],
) -> Result<MergingIter<Box<dyn InternalIter>>> {
    let spec = IterSpec::whole_table();
    let mut children: Vec<Box<dyn InternalIter>> = Vec::new();
    for input in &plan.inputs {
        if input.level == 0 {
            for table in input.files.iter().filter(|table| !gone.contains(&table.number())) {
                children.push(Box::new(engine.open_table(table)?.iter(spec)));
            }
        } else {
            let left = input.files.iter().filter(|table| !gone.contains(&table.number()));
            let level = Arc::new(Level::new(left.cloned().collect()));
            let tables = engine.clone();
            let open = move |table: &Arc<TableFile>| Ok(tables.open_table(table)?.iter(spec));
            children.push(Box::new(LevelIter::new(tree.comparator.clone(), level, None, None, open)));
        }
    }
    Ok(MergingIter::new(tree.comparator.clone(), children))
}

/// Makes the result live; `outputs` is `None` for a move.
fn install(engine: &Engine, tree: &Arc<Tree>, plan: &Plan, outputs: Option<&Written>) -> Result<Ticket> {
    let mut edit = TreeEdit { tree: tree.id, removed: plan.removed(), ..TreeEdit::default() };
    let mut leaving: Vec<Arc<TableFile>> = plan.files().map(|(_, table)| table.clone()).collect();
    let tables = match outputs {
        // The same tables on another level: not obsolete.
        None => std::mem::take(&mut leaving),
        Some(written) => {
            written.tables.iter().map(|meta| TableFile::new(&tree.comparator, meta.clone())).collect()
        }
    };
    let added: Vec<(u8, Arc<TableFile>)> =
        tables.into_iter().map(|table| (plan.output_level, table)).collect();
    edit.added = added.iter().map(|(level, table)| (*level, table.meta().describe())).collect();
    let mut state = tree.lock();
    let version = Arc::new(tree.view().version.apply(&edit.removed, &added).map_err(internal)?);
    tree.publish(&mut state, |view| TreeView {
        active: view.active.clone(),
        sealed: view.sealed.clone(),
        version: version.clone(),
    });
    let ticket = engine.versions.queue(tree, &mut state, edit, version.clone(), leaving);
    drop(state);
    check_installed(engine, tree, &version)?;
    Ok(ticket)
}

/// A plan whose result breaks the level order is a fault of ours, not of the data.
fn internal(error: Error) -> Error {
    Error::new(crate::ErrorKind::Internal, format!("a compaction's result does not fit: {}", error.message()))
}
