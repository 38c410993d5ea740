//! Durability hand-off: new tables are used at once and made durable behind everybody's back.
//!
//! ```text
//!  worker: merge, write ─ submit the sync ─ install: live ─ next job
//!                                │               │
//!  new_file    Writing ─▶ Syncing ─▶ Durable     ▼
//!  reaper      takes what has ended ◀─┘        ledger: steps of the tree, in order
//!  settler     moves the durable version, one record of the manifest ─▶ inputs may go
//!  redo        a table whose sync failed is made again from what it was made of
//! ```
//! The copy that counts until a table is settled is what it was made of: the log and the memtable of a
//! flush, the inputs of a compaction. Inputs that are kept for that are *retained*, and bounded: at the
//! bound the next compaction waits (not a flush, nor a table made again: rule 21).
//!
//! With `deferred_sync` off the thread that wrote a table syncs it before it is installed, as most
//! engines do.

pub(crate) mod ledger;
mod new_file;
mod reaper;
mod redo;
mod retained;
mod settler;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use dialsm_io::durable::{Durability, DurabilityOptions};
use dialsm_io::env::Nanos;
use dialsm_io::limiter::{Limiter, LimiterOptions, Permit, Priority};
use dialsm_io::{Env, ErrorKind, Event, JobHandle};
use parking_lot::Mutex;

use crate::Result;
use crate::background::cancelled;
use crate::compaction::job::ClueWays;
use crate::compaction::output::Written;
use crate::compaction::plan::LevelInputs;
use crate::engine::Engine;
use crate::metrics::Counter;
use crate::options::Options;
use crate::tree::{Buffer, Tree};

pub(crate) use new_file::NewFile;
pub(crate) use redo::Redo;
pub use retained::ClueJobs;
pub(crate) use retained::{Reserved, Retained};

/// The limiter's window never gets smaller than so many tables.
const WINDOW_TABLES_MIN: u64 = 2;

/// Differences in how long a table's sync takes that say nothing of the disk: processors are busy, and
/// tables are synced together.
const LATENCY_NOISE: Nanos = 50_000_000;

/// A flush may have to wait behind what is under way; for longer than this it should not.
const LATENCY_MAX: Nanos = 500_000_000;

/// How long one who waits for the limiter looks for nothing else.
const LIMITER_LOOK: Nanos = 5_000_000;

/// What a live table was made of, for as long as it may have to be made again.
pub(crate) struct Maker {
    pub(crate) tree: Arc<Tree>,
    pub(crate) source: Source,
}

#[derive(Clone)]
pub(crate) enum Source {
    Flush(Arc<FlushSource>),
    Merge(Arc<Vec<LevelInputs>>, ClueWays),
}

/// A memtable that is in live tables and stays in memory until they are durable.
pub(crate) struct FlushSource {
    pub(crate) buffer: Arc<Buffer>,
    /// How many of them are not durable.
    tables_left: AtomicUsize,
}

impl FlushSource {
    /// There are `count` tables more, made of it again.
    fn add_tables(&self, count: usize) {
        self.tables_left.fetch_add(count, Ordering::AcqRel);
    }

    /// They came to nothing.
    fn remove_tables(&self, count: usize) {
        self.tables_left.fetch_sub(count, Ordering::AcqRel);
    }
}

impl Source {
    /// That of the `tables` that a memtable became.
    pub(crate) fn of_flush(buffer: &Arc<Buffer>, tables: usize) -> Source {
        let tables_left = AtomicUsize::new(tables);
        Source::Flush(Arc::new(FlushSource { buffer: buffer.clone(), tables_left }))
    }
}

/// Done when all writes of a job's tables are reaped.
type Then = Box<dyn FnOnce(&Arc<Engine>, Result<Written>) -> Result<()> + Send>;

struct Waiting {
    what: &'static str,
    written: Written,
    then: Then,
}

#[derive(Default)]
struct State {
    /// Tables that are neither durable nor given up.
    files: Vec<Arc<NewFile>>,
    /// Jobs whose tables are not all written.
    waiting: Vec<Waiting>,
    /// Tables to be made again, for a worker to take.
    redos: VecDeque<Redo>,
    redos_running: usize,
    /// After a full disk: when to settle again.
    retry_at: Option<Nanos>,
    stopping: bool,
    /// The reaper is gone: nothing more becomes durable.
    is_reaped: bool,
}

/// What the engine shares of the hand-off.
pub(crate) struct Handoff {
    /// Moves when a write or sync has ended, or there is something else for the reaper.
    pub(crate) wake: Arc<dyn Event>,
    pub(crate) limiter: Limiter,
    pub(crate) retained: Arc<Retained>,
    durability: OnceLock<Arc<Durability>>,
    state: Mutex<State>,
    threads: Mutex<Vec<Box<dyn JobHandle>>>,
}

impl Handoff {
    pub(crate) fn new(env: &Arc<dyn Env>, options: &Options) -> Result<Handoff> {
        let rate = options.background_bytes_per_second;
        let ceiling_bytes = options.background_in_flight_bytes_max;
        let limiter = LimiterOptions {
            ceiling_bytes,
            // Bytes come back when a table is durable, so below two of them one waits for the other.
            floor_bytes: (WINDOW_TABLES_MIN * options.table_bytes).clamp(4 << 20, ceiling_bytes),
            noise: LATENCY_NOISE,
            latency_max: LATENCY_MAX,
            user_bytes_per_second: (rate > 0).then_some(rate),
            ..LimiterOptions::default()
        };
        Ok(Handoff {
            wake: env.event(),
            limiter: Limiter::new(env, limiter)?,
            retained: Arc::default(),
            durability: OnceLock::new(),
            state: Mutex::default(),
            threads: Mutex::default(),
        })
    }

    /// Starts what makes tables durable. Until then, in recovery, each is synced by who wrote it.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn start(engine: &Arc<Engine>) -> Result<()> {
        let durability = Durability::start(&engine.env, engine.io.clone(), DurabilityOptions::default())?;
        let _ = engine.handoff.durability.set(durability);
        for (name, work) in
            [("dialsm-reaper", reaper::run as fn(&Arc<Engine>)), ("dialsm-settler", settler::run)]
        {
            let own = engine.clone();
            let thread = engine.env.spawn(name, Box::new(move || work(&own)))?;
            engine.handoff.threads.lock().push(thread);
        }
        Ok(())
    }

    /// Ends the hand-off once the workers are gone: all that is under way is made durable and settled, as
    /// far as it can be.
    pub(crate) fn stop(&self) {
        self.state.lock().stopping = true;
        self.wake.notify();
        let threads = std::mem::take(&mut *self.threads.lock());
        threads.into_iter().for_each(|thread| thread.join());
        if let Some(durability) = self.durability.get() {
            durability.shutdown();
        }
        // What is left can't be made durable. Its makers hold the tree that holds the file.
        let files = std::mem::take(&mut self.state.lock().files);
        files.iter().for_each(|file| drop(file.take_maker()));
        self.state.lock().redos.clear();
    }

    pub(crate) fn durability(&self) -> Option<&Arc<Durability>> {
        self.durability.get()
    }

    /// Whether tables are made durable behind the back of who writes them.
    pub(crate) fn is_deferred(&self, engine: &Engine) -> bool {
        self.durability.get().is_some() && engine.options.load().deferred_sync
    }

    /// Takes on a table whose last write was submitted.
    pub(crate) fn take_on(&self, engine: &Engine, file: &Arc<NewFile>) {
        if self.is_deferred(engine) {
            // Its writes may be over: then the sync is submitted now, and not a merge later.
            file.advance(engine);
            file.set_listed();
            self.state.lock().files.push(file.clone());
            self.wake.notify();
        }
    }

    /// Waits until a table of about `bytes` may be begun; `meanwhile` is called now and then.
    ///
    /// # Errors
    /// `Cancelled` when the database is closing, or that of `meanwhile`.
    pub(crate) fn permit(
        &self,
        engine: &Engine,
        priority: Priority,
        bytes: u64,
        meanwhile: &dyn Fn() -> Result<()>,
    ) -> Result<Option<Permit>> {
        if !self.is_deferred(engine) {
            return Ok(None);
        }
        let since = engine.env.now();
        let permit = loop {
            let deadline = engine.env.now() + LIMITER_LOOK;
            match self.limiter.acquire(priority, bytes, Some(deadline)) {
                Ok(permit) => break permit,
                Err(error) if error.kind() == ErrorKind::TimedOut => meanwhile()?,
                Err(error) if error.kind() == ErrorKind::Closed => return Err(cancelled()),
                Err(error) => return Err(error),
            }
        };
        engine.metrics.add(Counter::LimiterWaitNs, engine.env.now() - since);
        Ok(Some(permit))
    }

    /// Goes on with `then` when readers may use all that was written: at once on this thread if they
    /// may, else on the reaper's. With deferred sync off it is made durable first, here; `waited` counts
    /// the time.
    ///
    /// # Errors
    /// Those of `then`, and of the sync; those met later are latched by the reaper.
    pub(crate) fn when_written(
        &self,
        engine: &Arc<Engine>,
        what: &'static str,
        waited: Counter,
        written: Written,
        then: impl FnOnce(&Arc<Engine>, Result<Written>) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        if !self.is_deferred(engine) {
            let since = engine.env.now();
            let synced = written.sync_here(engine);
            engine.metrics.add(waited, engine.env.now() - since);
            return match synced {
                Ok(()) => then(engine, Ok(written)),
                Err(error) => {
                    // A write that failed may be tried again, a sync never.
                    if !written.is_broken() {
                        engine.error.latch_lasting("the sync of a table", &error);
                    }
                    written.discard(engine);
                    then(engine, Err(error))
                }
            };
        }
        if written.is_written() {
            return then(engine, written.checked(engine));
        }
        self.state.lock().waiting.push(Waiting { what, written, then: Box::new(then) });
        self.wake.notify();
        Ok(())
    }

    /// Whether nothing is on its way.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.files.is_empty()
            && state.waiting.is_empty()
            && state.redos.is_empty()
            && state.redos_running == 0
    }

    /// Whether the manifest is to be written again after a full disk.
    pub(crate) fn is_to_retry(&self) -> bool {
        self.state.lock().retry_at.is_some()
    }

    /// Tables that are not durable yet.
    pub(crate) fn undurable_tables(&self) -> usize {
        self.state.lock().files.len()
    }

    /// A table that has to be made again, for a worker.
    pub(crate) fn next_redo(&self) -> Option<Redo> {
        let mut state = self.state.lock();
        let redo = state.redos.pop_front()?;
        state.redos_running += 1;
        Some(redo)
    }

    /// A redo has ended.
    pub(crate) fn redo_ended(&self) {
        self.state.lock().redos_running -= 1;
    }

    /// Asks for a table to be made again.
    fn ask_redo(&self, redo: Redo) {
        self.state.lock().redos.push_back(redo);
    }

    /// What a table was made of may go.
    pub(crate) fn let_go_of(engine: &Engine, file: &NewFile) {
        file.take_maker().into_iter().for_each(|maker| Handoff::let_go(engine, maker));
    }

    /// The table that was made of it is durable, or nothing names it.
    pub(crate) fn let_go(engine: &Engine, maker: Maker) {
        if let Source::Flush(source) = &maker.source
            && source.tables_left.fetch_sub(1, Ordering::AcqRel) == 1
            && engine.write_budget.release(&source.buffer.charge)
        {
            engine.wake_writers();
        }
    }

    /// Counts a table whose sync failed.
    fn note_failure(engine: &Engine) {
        engine.metrics.add(Counter::TableSyncFailures, 1);
    }
}
