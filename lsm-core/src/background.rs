//! The one scheduler of a database: worker threads that always take the most urgent job.
//!
//! Order: flush before everything, since writers wait for it and it waits for nobody; then parts
//! of a compaction that is already running; then the compaction with the highest score. One worker
//! is kept free of compactions, so that a flush never waits for one (rule 21); where it helps with a
//! part, it looks for a flush between entries and does it first. A job that met a full disk is tried again on a timer; after a lasting error nothing runs any more.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dialsm_io::env::Nanos;
use dialsm_io::{Env, Event, JobHandle};
use parking_lot::Mutex;

use crate::compaction::job::SubJobs;
use crate::compaction::plan::Plan;
use crate::compaction::{job, picker};
use crate::engine::Engine;
use crate::flush::Flushed;
use crate::tree::{Buffer, Tree};
use crate::{Error, ErrorKind, Result, flush};

/// How long after a full disk the failed job is tried again.
const RETRY_AFTER: Nanos = 500_000_000;

/// Flushed tables whose sync may be under way or waiting; beyond that a flush syncs its own.
const SYNCS_MAX: usize = 4;

/// What a worker may do.
enum Job {
    Flush(Arc<Tree>, Arc<Buffer>),
    Compact(Arc<Tree>, Box<Plan>),
    Help(Arc<SubJobs>),
    Settle,
}

#[derive(Default)]
struct State {
    running_flushes: usize,
    running_compactions: usize,
    /// Parts of running compactions that a free worker may take.
    offers: Vec<Arc<SubJobs>>,
    /// Flushed tables that are live and wait for their sync, oldest first.
    unsynced: VecDeque<Flushed>,
    /// After a full disk: when to try again.
    retry_at: Option<Nanos>,
    stopping: bool,
    /// Compactions are held back: a caller wants the tree for itself.
    paused: usize,
    /// Indexes of the workers that run, and the index from which on they are to leave.
    workers: BTreeSet<usize>,
    workers_max: usize,
}

/// Workers and what they know of each other.
pub(crate) struct Scheduler {
    /// Something may have become possible.
    pub(crate) wake: Arc<dyn Event>,
    /// A job has ended.
    pub(crate) ended: Arc<dyn Event>,
    /// A table was flushed, files may go, or the syncing thread is to end.
    unsynced: Arc<dyn Event>,
    state: Mutex<State>,
    /// By their workers' indexes; also of those that have left.
    threads: Mutex<BTreeMap<usize, Box<dyn JobHandle>>>,
    syncer: Mutex<Option<Box<dyn JobHandle>>>,
}

impl Scheduler {
    pub(crate) fn new(env: &dyn Env) -> Scheduler {
        Scheduler {
            wake: env.event(),
            ended: env.event(),
            unsynced: env.event(),
            state: Mutex::new(State::default()),
            threads: Mutex::new(BTreeMap::new()),
            syncer: Mutex::new(None),
        }
    }

    /// Starts the workers.
    ///
    /// # Errors
    /// Those of the system; workers already started go on until [`Scheduler::stop`].
    pub(crate) fn start(engine: &Arc<Engine>) -> Result<()> {
        Scheduler::resize(engine, engine.options.load().background_jobs_max)?;
        let syncer = engine.clone();
        let thread = engine.env.spawn("dialsm-sync", Box::new(move || run_syncer(&syncer)))?;
        *engine.scheduler.syncer.lock() = Some(thread);
        Ok(())
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
        // Last, so that it syncs what the others have left.
        self.unsynced.notify();
        let syncer = self.syncer.lock().take();
        syncer.into_iter().for_each(|thread| thread.join());
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

    /// Jobs under way: flushes, compactions.
    pub(crate) fn running(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.running_flushes, state.running_compactions)
    }

    /// Workers that have not left.
    #[cfg(test)]
    pub(crate) fn workers(&self) -> usize {
        self.state.lock().workers.len()
    }

    /// Whether flushed tables wait for their sync.
    pub(crate) fn is_syncing(&self) -> bool {
        !self.state.lock().unsynced.is_empty()
    }

    /// Starts no automatic compaction until [`Scheduler::resume`].
    pub(crate) fn pause_compactions(&self) {
        self.state.lock().paused += 1;
    }

    pub(crate) fn resume(&self) {
        self.state.lock().paused -= 1;
        self.wake.notify();
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
            engine.scheduler.unsynced.notify();
        }
        let Some(job) = next_job(engine) else {
            let retry_at = engine.scheduler.state.lock().retry_at;
            engine.scheduler.wake.wait(seen, retry_at);
            continue;
        };
        run(engine, job);
        engine.scheduler.ended.notify();
        // What has ended may have made several things possible; one worker is awake already.
        engine.scheduler.wake.notify();
    }
}

/// The syncing thread. It unlinks one file at a time, so that no table waits long for its sync.
fn run_syncer(engine: &Arc<Engine>) {
    let scheduler = &engine.scheduler;
    loop {
        let seen = scheduler.unsynced.epoch();
        let (flushed, stopping) = {
            let state = scheduler.state.lock();
            (state.unsynced.front().cloned(), state.stopping)
        };
        let Some(flushed) = flushed else {
            if !engine.graveyard.bury_one(engine) {
                if stopping {
                    return;
                }
                scheduler.unsynced.wait(seen, None);
            }
            continue;
        };
        if engine.error.is_lasting() {
            // The queue of edits has stopped: the log and the durable version are what counts now.
            scheduler.state.lock().unsynced.clear();
        } else {
            note(engine, "a flush", flushed.settle(engine));
            scheduler.state.lock().unsynced.pop_front();
        }
        scheduler.ended.notify();
        scheduler.wake.notify();
    }
}

/// Leaves the sync to its thread, or does it here if that one is far behind.
fn settle_soon(engine: &Arc<Engine>, flushed: Flushed) {
    {
        let mut state = engine.scheduler.state.lock();
        if state.unsynced.len() < SYNCS_MAX {
            state.unsynced.push_back(flushed);
            drop(state);
            engine.scheduler.unsynced.notify();
            return;
        }
    }
    note(engine, "a flush", flushed.settle(engine));
}

fn run(engine: &Arc<Engine>, job: Job) {
    match job {
        Job::Flush(tree, buffer) => {
            let result = flush::run(engine, &tree, &buffer);
            engine.scheduler.state.lock().running_flushes -= 1;
            match result {
                Ok(flushed) => settle_soon(engine, flushed),
                Err(error) => note(engine, "a flush", Err(error)),
            }
        }
        Job::Compact(tree, plan) => {
            let result = job::run(engine, &tree, &plan, None);
            engine.scheduler.state.lock().running_compactions -= 1;
            note(engine, "a compaction", result);
        }
        Job::Help(parts) => parts.run_one(engine, &|| flush_first(engine)),
        Job::Settle => note(engine, "a manifest write", engine.versions.settle(engine)),
    }
}

/// Latches or lifts what a job met.
fn note(engine: &Engine, what: &str, result: Result<()>) {
    match result {
        Ok(()) => engine.error.lift_passing(),
        Err(error) if error.kind() == ErrorKind::Cancelled => {}
        Err(error) => {
            engine.error.latch(what, &error);
            if error.kind() == ErrorKind::NoSpace {
                engine.scheduler.state.lock().retry_at = Some(engine.env.now() + RETRY_AFTER);
            }
            engine.tree.stall.wake_all();
        }
    }
}

/// Does a flush that is due: called by the worker whose turn it is while it helps with a compaction.
fn flush_first(engine: &Arc<Engine>) {
    if engine.error.is_lasting() || engine.closing.load(Ordering::Acquire) {
        return;
    }
    let buffer = {
        let mut state = engine.scheduler.state.lock();
        if state.stopping || state.retry_at.is_some() {
            return;
        }
        let Some(buffer) = next_flush(&engine.tree) else { return };
        state.running_flushes += 1;
        buffer
    };
    run(engine, Job::Flush(engine.tree.clone(), buffer));
    engine.scheduler.ended.notify();
    engine.scheduler.wake.notify();
}

fn next_job(engine: &Arc<Engine>) -> Option<Job> {
    if engine.error.is_lasting() || engine.closing.load(Ordering::Acquire) {
        return None;
    }
    let mut state = engine.scheduler.state.lock();
    if let Some(at) = state.retry_at {
        if engine.env.now() < at {
            return None;
        }
        state.retry_at = None;
        if engine.versions.has_unsettled() {
            return Some(Job::Settle);
        }
    }
    let tree = &engine.tree;
    if let Some(buffer) = next_flush(tree) {
        state.running_flushes += 1;
        return Some(Job::Flush(tree.clone(), buffer));
    }
    let none_runs = state.running_flushes == 0 && state.running_compactions == 0;
    if none_runs && engine.versions.is_abandoned() {
        // A job of the user's thread ended without settling what it had installed.
        return Some(Job::Settle);
    }
    if let Some(offer) = state.offers.iter().find(|offer| offer.has_open()) {
        return Some(Job::Help(offer.clone()));
    }
    let options = engine.options.load();
    let compactions_max = options.background_jobs_max.saturating_sub(1).max(1);
    if state.running_compactions < compactions_max && state.paused == 0 && options.automatic_compaction {
        let mut tree_state = tree.lock();
        if let Some(plan) = picker::pick(&tree.view().version, &options.strategy) {
            if let Err(error) = plan.claim(engine.next_job.fetch_add(1, Ordering::Relaxed)) {
                engine.error.latch("picking a compaction", &error);
                return None;
            }
            tree_state.compactions_running += 1;
            state.running_compactions += 1;
            return Some(Job::Compact(tree.clone(), Box::new(plan)));
        }
    }
    None
}

/// The oldest sealed memtable, if it may be flushed now.
fn next_flush(tree: &Tree) -> Option<Arc<Buffer>> {
    let mut state = tree.lock();
    if state.flushing {
        return None;
    }
    let oldest = tree.view().sealed.last().cloned().filter(|buffer| buffer.is_quiet())?;
    state.flushing = true;
    Some(oldest)
}

/// Whether nothing is left to do for now: no flush, no compaction, nothing to settle.
pub(crate) fn is_idle(engine: &Engine) -> bool {
    if engine.read_only {
        return true;
    }
    let options = engine.options.load();
    let state = engine.scheduler.state.lock();
    let tree = engine.tree.lock();
    let view = engine.tree.view();
    state.running_flushes == 0
        && state.running_compactions == 0
        && state.unsynced.is_empty()
        && !tree.flushing
        && tree.compactions_running == 0
        && view.sealed.is_empty()
        && !engine.versions.has_unsettled()
        && (!options.automatic_compaction || picker::pick(&view.version, &options.strategy).is_none())
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
        if is_idle(engine) {
            return Ok(());
        }
        engine.schedule();
        engine.scheduler.ended.wait(seen, Some(engine.env.now() + 50_000_000));
    }
}

/// The error of a job that stops because the database is closing.
pub(crate) fn cancelled() -> Error {
    Error::new(ErrorKind::Cancelled, "the job was stopped because the database is closing")
}
