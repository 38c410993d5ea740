//! The one scheduler of a database: worker threads that always take the most urgent job.
//!
//! Order, over all trees: a table that has to be made again, since the durable version waits for it; then
//! flush, since writers wait for it and it waits for nobody, the memtable that was sealed first; then
//! parts of a compaction that is already running; then the
//! compaction with the highest score. One worker is kept free of compactions, so that a flush never
//! waits for one (rule 21); where it helps with a part, it looks for a flush between entries and does it
//! first. A job that met a full disk is tried again on a timer; after a lasting error nothing runs any
//! more.
//! A job that panics counts as one: nobody may wait for it for ever.
//!
//! No worker waits for the disk but by writing to it: what they have written the hand-off makes durable
//! (`handoff`), and it unlinks files, too. How many compactions run at once follows the limiter's window, and
//! none starts whose inputs would have more retained than may be.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dialsm_io::env::Nanos;
use dialsm_io::{Env, Event, JobHandle};
use parking_lot::Mutex;

use crate::callback::Watch;
use crate::compaction::job::SubJobs;
use crate::compaction::plan::Plan;
use crate::compaction::reads::pick_for_reads;
use crate::compaction::{job, picker};
use crate::engine::Engine;
use crate::handoff::{Handoff, Redo, Reserved};
use crate::keyspace::Alive;
use crate::metrics::Counter;
use crate::tree::{Buffer, Tree, TreeState};
use crate::{Error, ErrorKind, Result, flush, rollback};

/// How long after a full disk the failed job is tried again.
pub(crate) const RETRY_AFTER: Nanos = 500_000_000;

/// What a worker may do.
enum Job {
    Redo(Redo),
    Flush(Arc<Tree>, Arc<Buffer>),
    Compact(Arc<Tree>, Box<Plan>, Option<Reserved>),
    Help(Arc<SubJobs>),
}

/// A compaction to run, with the room for its retained inputs.
pub(crate) type Picked<'a> = (&'a Arc<Tree>, Plan, Option<Reserved>);

#[derive(Default)]
struct State {
    running_flushes: usize,
    running_compactions: usize,
    /// Parts of running compactions that a free worker may take.
    offers: Vec<Arc<SubJobs>>,
    /// After a full disk: when to try again.
    retry_at: Option<Nanos>,
    stopping: bool,
    /// Indexes of the workers that run, and the index from which on they are to leave.
    workers: BTreeSet<usize>,
    workers_max: usize,
}

/// What is under way, in numbers.
pub(crate) struct Jobs {
    pub(crate) flushes: usize,
    pub(crate) compactions: usize,
    /// Workers that have not left.
    pub(crate) workers: usize,
    /// Compactions with parts that a free worker may take.
    pub(crate) offers: usize,
}

/// Workers and what they know of each other.
pub(crate) struct Scheduler {
    /// Something may have become possible.
    pub(crate) wake: Arc<dyn Event>,
    /// A job has ended.
    pub(crate) ended: Arc<dyn Event>,
    state: Mutex<State>,
    /// By their workers' indexes; also of those that have left.
    threads: Mutex<BTreeMap<usize, Box<dyn JobHandle>>>,
}

impl Scheduler {
    pub(crate) fn new(env: &dyn Env) -> Scheduler {
        Scheduler {
            wake: env.event(),
            ended: env.event(),
            state: Mutex::new(State::default()),
            threads: Mutex::new(BTreeMap::new()),
        }
    }

    /// Starts the workers.
    ///
    /// # Errors
    /// Those of the system; workers already started go on until [`Scheduler::stop`].
    pub(crate) fn start(engine: &Arc<Engine>) -> Result<()> {
        Handoff::start(engine)?;
        Scheduler::resize(engine, engine.options.load().background_jobs_max)
    }

    /// Lets `workers_max` workers run: starts the missing ones, those above it leave after their
    /// present job. One caller at a time.
    ///
    /// # Errors
    /// Those of the system; fewer workers run then.
    pub(crate) fn resize(engine: &Arc<Engine>, workers_max: usize) -> Result<()> {
        let scheduler = &engine.scheduler;
        let workers_max = workers_max.max(1);
        scheduler.state.lock().workers_max = workers_max;
        // Wakes those that are to leave.
        scheduler.wake.notify();
        for index in 0..workers_max {
            let is_missing = {
                let mut state = scheduler.state.lock();
                !state.stopping && state.workers.insert(index)
            };
            if !is_missing {
                continue;
            }
            let old = scheduler.threads.lock().remove(&index);
            if let Some(old) = old {
                // It has signed off, so this does not wait for a job.
                old.join();
            }
            let worker = engine.clone();
            let job = Box::new(move || run_worker(&worker, index));
            let thread = engine.env.spawn(&format!("dialsm-bg-{index}"), job).inspect_err(|_| {
                scheduler.state.lock().workers.remove(&index);
            })?;
            scheduler.threads.lock().insert(index, thread);
        }
        if scheduler.state.lock().stopping {
            // Whoever stops the database may have joined before our threads were on the list.
            scheduler.join_all();
        }
        Ok(())
    }

    fn join_all(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        threads.into_values().for_each(|thread| thread.join());
    }

    /// Lets running jobs end soon and joins the workers. They see `engine.closing`.
    pub(crate) fn stop(&self) {
        self.state.lock().stopping = true;
        self.wake.notify();
        self.join_all();
    }

    /// Offers parts of a compaction to free workers.
    pub(crate) fn offer(&self, parts: &Arc<SubJobs>) {
        self.state.lock().offers.push(parts.clone());
        self.wake.notify();
    }

    /// Takes the offer back.
    pub(crate) fn withdraw(&self, parts: &Arc<SubJobs>) {
        self.state.lock().offers.retain(|offer| !Arc::ptr_eq(offer, parts));
    }

    /// What is under way.
    pub(crate) fn jobs(&self) -> Jobs {
        let state = self.state.lock();
        Jobs {
            flushes: state.running_flushes,
            compactions: state.running_compactions,
            workers: state.workers.len(),
            offers: state.offers.len(),
        }
    }
}

fn run_worker(engine: &Arc<Engine>, index: usize) {
    loop {
        let seen = engine.scheduler.wake.epoch();
        {
            let mut state = engine.scheduler.state.lock();
            if state.stopping || index >= state.workers_max {
                state.workers.remove(&index);
                return;
            }
        }
        if engine.graveyard.len() > 0 {
            engine.handoff.wake.notify();
        }
        let (mut job, mut has_sealed) = (None, false);
        caught(engine, || {
            job = next_job(engine);
            has_sealed = job.is_none() && rollback::seal_clues(engine);
        });
        let Some(job) = job else {
            if has_sealed {
                continue;
            }
            engine.events.ring();
            let retry_at = engine.scheduler.state.lock().retry_at;
            let until = [retry_at, next_pause(engine)].into_iter().flatten().min();
            engine.scheduler.wake.wait(seen, until);
            continue;
        };
        caught(engine, || run(engine, job));
        engine.events.ring();
        engine.scheduler.ended.notify();
        // What has ended may have made several things possible; one worker is awake already.
        engine.scheduler.wake.notify();
    }
}

/// Does `work`; a panic stops the database as a lasting error does.
pub(crate) fn caught(engine: &Engine, work: impl FnOnce()) {
    // Nothing that the job was changing is relied on after this but what a crash would leave, too.
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        engine.error.latch_lasting("a background job", &panicked());
        engine.wake_writers();
    }
}

/// The error of a job that panicked.
pub(crate) fn panicked() -> Error {
    Error::new(ErrorKind::Internal, "it panicked")
}

fn run(engine: &Arc<Engine>, job: Job) {
    match job {
        Job::Redo(redo) => redo.run(engine),
        Job::Flush(tree, buffer) => {
            let result = flush::run(engine, &tree, &buffer);
            engine.scheduler.state.lock().running_flushes -= 1;
            note(engine, "a flush", result.and_then(|()| settle_at_once(engine)));
        }
        Job::Compact(tree, plan, reserved) => {
            let result = job::run(engine, &tree, &plan, reserved, None, false);
            engine.scheduler.state.lock().running_compactions -= 1;
            rollback::note(engine, &tree, &plan, &result);
            note(engine, "a compaction", result.and_then(|()| settle_at_once(engine)));
        }
        Job::Help(parts) => parts.run_one(engine, &|| flush_first(engine)),
    }
}

/// With deferred sync off the job that wrote a table settles it, too. What a full disk kept it from, the
/// settler tries again, until it succeeds.
fn settle_at_once(engine: &Engine) -> Result<()> {
    // After a lasting error, say of the directory's sync by another job, nothing is named any more.
    if engine.handoff.is_deferred(engine) || engine.error.is_lasting() {
        return Ok(());
    }
    let settled = engine.versions.settle(engine);
    if settled.as_ref().is_err_and(Error::is_passing) {
        engine.handoff.wake.notify();
        return Ok(());
    }
    settled
}

/// Latches or lifts what a job met.
pub(crate) fn note(engine: &Engine, what: &str, result: Result<()>) {
    match result {
        Ok(()) => engine.error.lift_passing(),
        Err(error) if error.kind() == ErrorKind::Cancelled => {}
        Err(error) => {
            engine.error.latch(what, &error);
            if error.is_passing() {
                engine.scheduler.state.lock().retry_at = Some(engine.env.now() + RETRY_AFTER);
            }
            engine.wake_writers();
        }
    }
}

/// Does a flush that is due: called by the worker whose turn it is while it helps with a compaction.
fn flush_first(engine: &Arc<Engine>) {
    if engine.error.is_lasting() || engine.closing.load(Ordering::Acquire) {
        return;
    }
    let alive = engine.keyspaces.alive();
    let (tree, buffer) = {
        let mut state = engine.scheduler.state.lock();
        if state.stopping || state.retry_at.is_some() {
            return;
        }
        let Some(due) = next_flush(&alive.trees) else { return };
        state.running_flushes += 1;
        due
    };
    run(engine, Job::Flush(tree.clone(), buffer));
    engine.scheduler.ended.notify();
    engine.scheduler.wake.notify();
}

fn next_job(engine: &Arc<Engine>) -> Option<Job> {
    let mut state = engine.scheduler.state.lock();
    if engine.error.is_lasting() || engine.closing.load(Ordering::Acquire) {
        // Or a time that has passed would keep workers from waiting.
        state.retry_at = None;
        return None;
    }
    let is_retry = state.retry_at.is_some();
    if state.retry_at.is_some_and(|at| engine.env.now() < at) {
        return None;
    }
    state.retry_at = None;
    let job = find_job(engine, &mut state);
    let is_at_rest = job.is_none() && state.running_flushes == 0 && state.running_compactions == 0;
    if is_retry && is_at_rest && !engine.handoff.is_to_retry() {
        // What met the full disk went with its keyspace: nobody's success would lift the error.
        engine.error.lift_passing();
    }
    job
}

fn find_job(engine: &Arc<Engine>, state: &mut State) -> Option<Job> {
    if let Some(redo) = engine.handoff.next_redo() {
        return Some(Job::Redo(redo));
    }
    let alive = engine.keyspaces.alive();
    if let Some((tree, buffer)) = next_flush(&alive.trees) {
        state.running_flushes += 1;
        return Some(Job::Flush(tree.clone(), buffer));
    }
    if let Some(offer) = state.offers.iter().find(|offer| offer.has_open()) {
        return Some(Job::Help(offer.clone()));
    }
    let most = engine.options.load().background_jobs_max.saturating_sub(1).max(1);
    let compactions_max = engine.handoff.limiter.jobs(most);
    if state.running_compactions >= compactions_max {
        return None;
    }
    let is_at_rest = state.running_compactions == 0 && state.running_flushes == 0;
    let picked = rollback::next_urgent(engine, &alive)
        .and_then(|urgent| if urgent.is_some() { Ok(urgent) } else { next_compaction(engine, &alive.trees) })
        .and_then(|picked| match picked {
            None if is_at_rest => next_calm(engine, &alive),
            picked => Ok(picked),
        });
    match picked {
        Ok(Some((tree, plan, reserved))) => {
            state.running_compactions += 1;
            Some(Job::Compact(tree.clone(), Box::new(plan), reserved))
        }
        Ok(None) => None,
        Err(error) => {
            engine.error.latch("picking a compaction", &error);
            None
        }
    }
}

/// The memtable that was sealed first, of those that may be flushed now.
fn next_flush(alive: &[Arc<Tree>]) -> Option<(&Arc<Tree>, Arc<Buffer>)> {
    let oldest = |tree: &Tree| tree.view_guard().sealed.last().filter(|buffer| buffer.is_quiet()).cloned();
    let mut found: Option<(&Arc<Tree>, Arc<Buffer>)> = None;
    for tree in alive {
        let Some(buffer) = oldest(tree) else { continue };
        let is_older = found.as_ref().is_none_or(|(_, other)| buffer.floor_after() < other.floor_after());
        if is_older && !tree.lock().flushing {
            found = Some((tree, buffer));
        }
    }
    let (tree, _) = found?;
    let mut state = tree.lock();
    // Looked up again under the lock: the tree may have been dropped.
    let buffer = oldest(tree).filter(|_| !state.flushing)?;
    state.flushing = true;
    Some((tree, buffer))
}

/// The compaction with the highest score of any tree, its inputs claimed.
///
/// # Errors
/// `Internal` if two plans want one table, `Callback` if the tree's comparator panics.
fn next_compaction<'a>(engine: &Engine, alive: &'a [Arc<Tree>]) -> Result<Option<Picked<'a>>> {
    let now = engine.env.now();
    let mut best: Option<(&Arc<Tree>, f64)> = None;
    if let [only] = alive {
        best = Some((only, 0.0));
    } else {
        for tree in alive {
            let Some(plan) = should_compact(tree, &tree.lock(), now) else { continue };
            if best.is_none_or(|(_, score)| plan.score > score) {
                best = Some((tree, plan.score));
            }
        }
    }
    let Some((tree, _)) = best else { return Ok(None) };
    claim(engine, tree, |state| should_compact(tree, state, now))
}

/// What `pick` finds under the tree's lock, its inputs claimed and room for them reserved.
///
/// # Errors
/// As [`next_compaction`].
pub(crate) fn claim<'a>(
    engine: &Engine,
    tree: &'a Arc<Tree>,
    pick: impl FnOnce(&TreeState) -> Option<Plan>,
) -> Result<Option<Picked<'a>>> {
    let mut state = tree.lock();
    let watch = Watch::begin(&tree.comparator);
    let Some(plan) = pick(&state) else { return Ok(None) };
    watch.check()?;
    if plan.is_suspect() {
        // The reaper is about to claim it. It never could if we took it again and again.
        return Ok(None);
    }
    let Ok(reserved) = reserve(engine, &plan) else { return Ok(None) };
    plan.claim(engine.next_job.fetch_add(1, Ordering::Relaxed))?;
    state.compactions_running += 1;
    Ok(Some((tree, plan, reserved)))
}

/// Reserves room for what the plan's inputs will have retained; a move retains nothing.
///
/// # Errors
/// `Busy` if there is none before something settles.
pub(crate) fn reserve(engine: &Engine, plan: &Plan) -> Result<Option<Reserved>> {
    if plan.trivial_move {
        return Ok(None);
    }
    let max = engine.options.load().retained_bytes_max;
    let reserved = engine.handoff.retained.try_reserve(plan.input_bytes(), max, plan.reason);
    if reserved.is_none() {
        engine.metrics.add(Counter::RetentionRefusals, 1);
    }
    reserved.map(Some).ok_or_else(|| Error::new(ErrorKind::Busy, "too much waits to become durable"))
}

/// The compaction that the tree wants most, if it may have one. Under the tree's lock.
fn may_compact(tree: &Tree, state: &TreeState) -> Option<Plan> {
    let options = tree.options.load();
    if !options.automatic_compaction || state.compactions_paused > 0 {
        return None;
    }
    picker::pick(&tree.view_guard().version, &options.strategy)
}

/// As [`may_compact`], but while a burst of writes lasts, with patience.
fn should_compact(tree: &Tree, state: &TreeState, now: Nanos) -> Option<Plan> {
    let plan = may_compact(tree, state)?;
    let options = tree.options.load();
    let stretched = || tree.patience.stretched(now, &options.strategy, options.write_buffer_bytes);
    match options.level0_patience.then(stretched).flatten() {
        Some(strategy) => picker::pick(&tree.view_guard().version, &strategy),
        None => Some(plan),
    }
}

/// What to do when nothing has to be done.
///
/// # Errors
/// As [`next_compaction`].
fn next_calm<'a>(engine: &Engine, alive: &'a Alive) -> Result<Option<Picked<'a>>> {
    if rollback::is_burst(engine) {
        return Ok(None);
    }
    let picked = rollback::next_calm(engine, alive)?;
    if picked.is_some() { Ok(picked) } else { next_for_reads(engine, alive) }
}

/// A merge that readers have paid for.
///
/// # Errors
/// As [`next_compaction`].
fn next_for_reads<'a>(engine: &Engine, alive: &'a Alive) -> Result<Option<Picked<'a>>> {
    for space in &alive.spaces {
        let spent = space.spent.total();
        for tree in &space.trees {
            let view = tree.view_guard();
            let deeper = view.version.levels()[1..].iter().filter(|level| !level.is_empty()).count();
            if view.version.l0_depth() + deeper < 2 {
                tree.spent_before.store(spent, Ordering::Relaxed);
                continue;
            }
            let since = spent.saturating_sub(tree.spent_before.load(Ordering::Relaxed));
            let picked = claim(engine, tree, |state| merge_for_reads(tree, state, since))?;
            if picked.is_some() {
                tree.spent_before.store(spent, Ordering::Relaxed);
                return Ok(picked);
            }
        }
    }
    Ok(None)
}

fn merge_for_reads(tree: &Tree, state: &TreeState, spent_ns: u64) -> Option<Plan> {
    let options = tree.options.load();
    if !options.read_compaction || !options.automatic_compaction || state.compactions_paused > 0 {
        return None;
    }
    pick_for_reads(&tree.view_guard().version, &options.strategy, spent_ns)
}

/// When the first burst of writes that some tree is patient for counts as over.
fn next_pause(engine: &Engine) -> Option<Nanos> {
    let now = engine.env.now();
    engine.keyspaces.alive_guard().trees.iter().filter_map(|tree| tree.patience.until(now)).min()
}

/// Whether nothing is left to do for now: no flush, no compaction, nothing to settle.
pub(crate) fn is_idle(engine: &Engine) -> bool {
    if engine.read_only {
        return true;
    }
    let state = engine.scheduler.state.lock();
    let is_calm = |tree: &Arc<Tree>| {
        let state = tree.lock();
        !state.flushing
            && state.compactions_running == 0
            && tree.view_guard().sealed.is_empty()
            && may_compact(tree, &state).is_none()
    };
    state.running_flushes == 0
        && state.running_compactions == 0
        && engine.handoff.is_idle()
        && !engine.versions.has_unsettled()
        && engine.keyspaces.alive().trees.iter().all(is_calm)
        && !rollback::is_due(engine)
}

/// Waits until [`is_idle`].
///
/// # Errors
/// The background error that keeps it from ever being so, or `Closed`.
pub(crate) fn wait_until_idle(engine: &Engine) -> Result<()> {
    loop {
        let seen = engine.scheduler.ended.epoch();
        engine.check_open()?;
        engine.error.check()?;
        if is_idle(engine) && (engine.read_only || !engine.versions.is_name_pending(engine)) {
            return Ok(());
        }
        engine.schedule();
        engine.scheduler.ended.wait(seen, Some(engine.env.now() + 50_000_000));
    }
}

/// Waits until nothing is left to settle.
///
/// # Errors
/// As [`wait_until_idle`].
pub(crate) fn wait_until_settled(engine: &Engine) -> Result<()> {
    loop {
        let seen = engine.scheduler.ended.epoch();
        engine.check_open()?;
        engine.error.check()?;
        if !engine.versions.has_unsettled() {
            return Ok(());
        }
        if !engine.handoff.is_deferred(engine) {
            engine.versions.settle(engine)?;
            continue;
        }
        engine.handoff.wake.notify();
        engine.scheduler.ended.wait(seen, Some(engine.env.now() + 5_000_000));
    }
}

/// The error of a job that stops because the database is closing, or its tree is gone.
pub(crate) fn cancelled() -> Error {
    Error::new(
        ErrorKind::Cancelled,
        "the job was stopped because the database is closing or its keyspace was dropped",
    )
}
