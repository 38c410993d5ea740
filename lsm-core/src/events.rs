//! What the engine tells of its background work: flushes, compactions, stalls, errors and the like.
//!
//! ```text
//!  where it happens ─ push, under whatever locks ─▶ queue ─ thread ─▶ listeners, one after the other (`deliver`)
//!                                                └▶ queue ─ thread ─▶ LOG (`info_log`)
//! ```
//! The obvious design, calling listeners where the event happens, would have them run under the locks of
//! trees and in the jobs that others wait for: a listener that writes would wait for the flush that it
//! holds up. So the engine only puts an event into a queue, and a thread of its own calls.
//!
//! Invariants:
//! - Putting an event into a queue waits for nobody and wakes nobody, so it may be done under any lock;
//!   `Events::ring`, which wakes, may not. Where nobody listens there is no queue, and either is one look.
//! - The queues are bounded: what does not fit is counted and left out, the engine never waits. Room
//!   for an end is kept when its beginning is taken, so a listener gets both or neither (`Taken`).
//! - Events of one tree are put in under its lock or by the job that may change it, and so come in order.
//! - `Events::stop` is called when nobody else emits any more, and nothing is delivered after it.
//!
//! `lsm-core/tests/events.rs` tries to break them.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dialsm_io::env::Nanos;
use dialsm_io::{Env, JobHandle};
use parking_lot::Mutex;

use crate::background::panicked;
use crate::engine::Engine;
use crate::metrics::StallCause;
use crate::options::Options;
use crate::tree::Tree;
use crate::types::TablePlace;
use crate::version::{TableFile, TableMeta};
use crate::{Error, ErrorKind, Result};

mod begun;
mod deliver;
mod info_log;
mod outlet;
mod text;
mod trace;

pub(crate) use begun::{Begun, Outcome};
pub(crate) use outlet::Taken;

use deliver::Listeners;
use outlet::Outlet;
use text::Field;

/// Hears of what an open database does in the background: an object of [`Options::listeners`].
///
/// Listeners are called by one thread of the database that does nothing else, one listener after the other in
/// the order of the options, one event after the other in the order in which they came about. The engine
/// holds no lock meanwhile and waits for no listener, so one may use the database like any other
/// thread: read, write, even while the event is that of a stall, and close it. But for this:
/// - Events wait in a queue while a listener is busy. Of 4096 that wait, later ones are left out, and a
///   beginning together with its end; [`EventsDropped`] then says how many.
/// - Closing the database, and dropping its last handle, delivers what waits and so waits for the listeners:
///   one must not wait for whoever closes. When it returns no listener runs, nor will; only if a listener
///   closes the database itself, what still waits is given up when its call returns.
/// - A listener that keeps a handle of the database keeps it open. The database lets go of its listeners
///   when it is closed.
/// - A listener that panics is called no more; it is counted in the property `dialsm.listener-panics`, and all
///   others go on.
///
/// Each beginning is followed by its end, at closing and after errors, too.
pub trait EventListener: Send + Sync {
    /// Something has happened, at `wall_us`: microseconds since 1970, of a clock that may be set.
    fn event(&self, event: &Event, wall_us: u64);
}

impl<F: Fn(&Event, u64) + Send + Sync> EventListener for F {
    fn event(&self, event: &Event, wall_us: u64) {
        self(event, wall_us);
    }
}

impl fmt::Debug for dyn EventListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventListener")
    }
}

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Writes have stopped for good, or a job has failed.
    Error,
    /// Something is out of order, and goes on.
    Warn,
    /// What happens all the time.
    Info,
    /// Single files.
    Debug,
}

impl Severity {
    /// As it stands in the LOG, five letters.
    pub(crate) fn tag(self) -> &'static str {
        match self {
            Severity::Error => "ERROR",
            Severity::Warn => "WARN ",
            Severity::Info => "INFO ",
            Severity::Debug => "DEBUG",
        }
    }
}

/// A table, as events name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableRef {
    /// The number of its file.
    pub number: u64,
    /// The level it is on.
    pub level: u8,
    /// Its size in bytes.
    pub bytes: u64,
}

impl TableRef {
    pub(crate) fn of((level, table): (u8, &Arc<TableFile>)) -> TableRef {
        TableRef { number: table.number().0, level, bytes: table.file_bytes() }
    }

    pub(crate) fn of_meta(level: u8, meta: &TableMeta) -> TableRef {
        TableRef { number: meta.number.0, level, bytes: meta.file_bytes }
    }
}

/// Makes the event enum, a struct for each event, and what is the same for all of them, from one list.
macro_rules! events {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident = $word:literal, $target:literal, $severity:expr => {
            $( $(#[doc = $field_doc:literal])+ $field:ident: $type:ty, )*
        }
    )+) => {
        /// What has happened. Times are in microseconds of a clock that is never set.
        #[derive(Clone, Debug)]
        #[non_exhaustive]
        pub enum Event { $( $(#[doc = $doc])+ $name($name), )+ }

        $(
            $(#[doc = $doc])+
            #[derive(Clone, Debug)]
            #[non_exhaustive]
            pub struct $name { $( $(#[doc = $field_doc])+ pub $field: $type, )* }

            impl From<$name> for Event {
                fn from(event: $name) -> Event {
                    Event::$name(event)
                }
            }
        )+

        impl Event {
            /// Its name in the LOG.
            pub fn name(&self) -> &'static str {
                match self { $( Event::$name(_) => $word, )+ }
            }

            /// How much it matters.
            pub fn severity(&self) -> Severity {
                match self {
                    $( Event::$name(event) => {
                        let severity: fn(&$name) -> Severity = $severity;
                        severity(event)
                    } )+
                }
            }

            /// Its fields as they stand in the LOG, in the order of the struct: `field=value` for each that has a value,
            /// a space between two. Text that would not be told from what follows is in quotes, with `\` before `"`
            /// and `\`, and control characters as in Rust: it is one line.
            pub fn fields(&self) -> String {
                let mut out = String::new();
                self.write_fields(&mut out);
                out.split_off(out.len().min(1))
            }

            /// Appends ` field=value` for each of its fields that has a value.
            pub(crate) fn write_fields(&self, out: &mut String) {
                match self {
                    $( Event::$name(event) => {
                        let _ = event;
                        $( event.$field.write(stringify!($field), out); )*
                    } )+
                }
            }

            /// Tells the `tracing` subscriber of this thread.
            pub(crate) fn trace(&self) {
                match self {
                    $( Event::$name(event) => {
                        let _ = event;
                        match self.severity() {
                            Severity::Error => tracing::event!(target: $target, tracing::Level::ERROR, event = $word $(, $field = event.$field.traced())*),
                            Severity::Warn => tracing::event!(target: $target, tracing::Level::WARN, event = $word $(, $field = event.$field.traced())*),
                            Severity::Info => tracing::event!(target: $target, tracing::Level::INFO, event = $word $(, $field = event.$field.traced())*),
                            Severity::Debug => tracing::event!(target: $target, tracing::Level::DEBUG, event = $word $(, $field = event.$field.traced())*),
                        }
                    } )+
                }
            }
        }
    };
}

/// The severity of the end of a job.
fn ended(error: &Option<Error>) -> Severity {
    match error {
        None => Severity::Info,
        Some(error) if error.kind() == ErrorKind::Cancelled => Severity::Info,
        Some(_) => Severity::Error,
    }
}

events! {
    /// The database is open: the first event of all but those of recovery's flushes.
    Opened = "opened", "dialsm::db", |_| Severity::Info => {
        /// The version of this library.
        version: &'static str,
        /// The version of the database's format.
        format: u32,
        /// Opened for reading only.
        read_only: bool,
        /// Its keyspaces.
        keyspaces: u64,
        /// The shards of each.
        shards: u16,
        /// The sequence number of the last write that was found.
        last_seqno: u64,
        /// Tables that were found, or made of the log.
        tables: u64,
        /// Their bytes.
        table_bytes: u64,
        /// Segments of the commit log that are kept.
        log_segments: u64,
        /// Their bytes.
        log_bytes: u64,
        /// How long opening took.
        duration_us: u64,
    }

    /// The database could not be opened.
    OpenFailed = "open_failed", "dialsm::db", |_| Severity::Error => {
        /// Why.
        error: Error,
    }

    /// The database is closed: the last event.
    Closed = "closed", "dialsm::db", |_| Severity::Info => {
        /// The sequence number of the last write.
        last_seqno: u64,
    }

    /// A memtable begins to be written as a table of level 0.
    FlushBegin = "flush_begin", "dialsm::flush", |_| Severity::Info => {
        /// Names the flush in its two events.
        job: u64,
        /// The keyspace.
        keyspace: Arc<str>,
        /// The shard of it.
        shard: u16,
        /// Entries of the memtable.
        entries: u64,
        /// Bytes of their keys and values.
        input_bytes: u64,
    }

    /// A flush has ended: its table is in use, and soon durable, or there is none.
    FlushEnd = "flush_end", "dialsm::flush", |event| ended(&event.error) => {
        /// That of its beginning.
        job: u64,
        /// The keyspace.
        keyspace: Arc<str>,
        /// The shard of it.
        shard: u16,
        /// What it became: one table, or none if nobody could see any of it.
        outputs: Vec<TableRef>,
        /// Bytes of that.
        output_bytes: u64,
        /// How long it took.
        duration_us: u64,
        /// Why there is no table; the memtable is there still, unless its keyspace was dropped.
        error: Option<Error>,
    }

    /// A compaction begins.
    CompactionBegin = "compaction_begin", "dialsm::compaction", |_| Severity::Info => {
        /// Names the compaction in its two events.
        job: u64,
        /// The keyspace.
        keyspace: Arc<str>,
        /// The shard of it.
        shard: u16,
        /// Why: `l0`, `intra_l0`, `level`, `manual`, `rollback`, `collect` or `redo`.
        cause: &'static str,
        /// The tables only move to another level; nothing is written.
        is_move: bool,
        /// Where the outputs go.
        output_level: u8,
        /// The tables that are merged.
        inputs: Vec<TableRef>,
        /// Bytes of them.
        input_bytes: u64,
    }

    /// A compaction has ended: its outputs are in use in the place of its inputs, or nothing has changed.
    CompactionEnd = "compaction_end", "dialsm::compaction", |event| ended(&event.error) => {
        /// That of its beginning.
        job: u64,
        /// The keyspace.
        keyspace: Arc<str>,
        /// The shard of it.
        shard: u16,
        /// As at its beginning.
        cause: &'static str,
        /// As at its beginning.
        is_move: bool,
        /// Where the outputs are.
        output_level: u8,
        /// The tables that were merged.
        inputs: Vec<TableRef>,
        /// Bytes of them.
        input_bytes: u64,
        /// What came of them.
        outputs: Vec<TableRef>,
        /// Bytes of that.
        output_bytes: u64,
        /// How long it took.
        duration_us: u64,
        /// Why nothing has changed; `Cancelled` if it was given up at closing, for a drop, or for the sake of
        /// writes.
        error: Option<Error>,
    }

    /// Redirected values begin to be brought home: the compaction of that number puts them in the place of
    /// their clues.
    RollbackBegin = "rollback_begin", "dialsm::rollback", |_| Severity::Info => {
        /// That of the compaction.
        job: u64,
        /// The keyspace.
        keyspace: Arc<str>,
        /// The shard that the values belong to.
        shard: u16,
        /// Clue entries in its inputs.
        clues: u64,
    }

    /// A rollback has ended.
    RollbackEnd = "rollback_end", "dialsm::rollback", |event| ended(&event.error) => {
        /// That of the compaction.
        job: u64,
        /// The keyspace.
        keyspace: Arc<str>,
        /// The shard that the values belong to.
        shard: u16,
        /// Values brought home; the other clues were obsolete.
        values: u64,
        /// How long it took.
        duration_us: u64,
        /// Why nothing has changed.
        error: Option<Error>,
    }

    /// Writes are slowed down or stopped from now on, at the door of one tree or, while the memtables of all
    /// trees are too large together, at all.
    StallBegin = "stall_begin", "dialsm::stall", |_| Severity::Warn => {
        /// The keyspace; none for all.
        keyspace: Option<Arc<str>>,
        /// The shard; none for all.
        shard: Option<u16>,
        /// Why.
        cause: StallCause,
        /// Stopped, and not only slowed down.
        is_stopped: bool,
    }

    /// A stall goes on, more or less strictly or for another cause.
    StallChanged = "stall_changed", "dialsm::stall", |_| Severity::Warn => {
        /// The keyspace.
        keyspace: Option<Arc<str>>,
        /// The shard.
        shard: Option<u16>,
        /// Why now.
        cause: StallCause,
        /// Stopped, and not only slowed down.
        is_stopped: bool,
    }

    /// Writes are free again.
    StallEnd = "stall_end", "dialsm::stall", |_| Severity::Info => {
        /// The keyspace; none for all.
        keyspace: Option<Arc<str>>,
        /// The shard; none for all.
        shard: Option<u16>,
        /// The last cause.
        cause: StallCause,
        /// How long it was since the beginning, whether anybody wrote or not.
        duration_us: u64,
    }

    /// From now on values of a shard go to others.
    RedirectOn = "redirect_on", "dialsm::redirect", |_| Severity::Info => {
        /// The keyspace.
        keyspace: Arc<str>,
        /// The shard under pressure.
        shard: u16,
        /// Where the first value went.
        fallback: u16,
    }

    /// The shard takes all of its values itself again.
    RedirectOff = "redirect_off", "dialsm::redirect", |_| Severity::Info => {
        /// The keyspace.
        keyspace: Arc<str>,
        /// The shard.
        shard: u16,
        /// How long it was.
        duration_us: u64,
    }

    /// New tables of a tree have become durable, with the manifest that names them: what they were made of
    /// may go.
    HandOff = "hand_off", "dialsm::hand_off", |_| Severity::Info => {
        /// The keyspace.
        keyspace: Arc<str>,
        /// The shard of it.
        shard: u16,
        /// Flushes and compactions that are settled with it.
        steps: u64,
        /// Tables that they made.
        files: u64,
        /// Bytes of those.
        bytes: u64,
        /// From when the first of them was used until now.
        delay_us: u64,
    }

    /// A table is written.
    TableCreated = "table_created", "dialsm::table", |_| Severity::Debug => {
        /// The keyspace.
        keyspace: Arc<str>,
        /// The shard of it.
        shard: u16,
        /// The table.
        table: TableRef,
        /// Its entries.
        entries: u64,
    }

    /// The file of a table that is not needed any more, or came to nothing, is removed, or was to be.
    TableDeleted = "table_deleted", "dialsm::table", |event| match event.error {
        None => Severity::Debug,
        Some(_) => Severity::Warn,
    } => {
        /// The number of its file.
        number: u64,
        /// Why the file is there still; the next opening removes it.
        error: Option<Error>,
    }

    /// The commit log goes on in a new segment.
    LogRotated = "log_rotated", "dialsm::log", |_| Severity::Info => {
        /// The number of its file.
        number: u64,
        /// Whether it overwrites the file of an older one.
        is_recycled: bool,
        /// The first sequence number in it.
        first_seqno: u64,
    }

    /// A fresh manifest is in force.
    ManifestRotated = "manifest_rotated", "dialsm::manifest", |_| Severity::Info => {
        /// The number of its file.
        number: u64,
        /// Its size in bytes.
        bytes: u64,
    }

    /// Something has failed that stops writes: for good, or, on a full disk, until it succeeds.
    BackgroundError = "background_error", "dialsm::error", |event| match event.is_lasting {
        true => Severity::Error,
        false => Severity::Warn,
    } => {
        /// What failed.
        job: Arc<str>,
        /// Only opening the database anew helps.
        is_lasting: bool,
        /// Why.
        error: Error,
    }

    /// What a full disk had stopped has succeeded: writes go on.
    ErrorLifted = "error_lifted", "dialsm::error", |_| Severity::Info => {}

    /// More happened than the listeners, or the LOG, could take: these events were left out here.
    EventsDropped = "events_dropped", "dialsm::events", |_| Severity::Warn => {
        /// How many.
        count: u64,
    }
}

/// An event with its time.
pub(crate) struct Record {
    pub(crate) wall_us: u64,
    pub(crate) event: Event,
}

/// Where the engine puts its events.
pub(crate) struct Events {
    env: Arc<dyn Env>,
    /// One for the listeners, one for the LOG; none where nobody wants to know.
    outlets: Vec<Arc<Outlet>>,
    /// Taken when the thread starts.
    listeners: Mutex<Option<Listeners>>,
    has_log: bool,
    next_job: AtomicU64,
    threads: Mutex<Vec<Box<dyn JobHandle>>>,
    pub(crate) listener_panics: Arc<AtomicU64>,
    pub(crate) log_failures: Arc<AtomicU64>,
}

impl Events {
    /// For a database that is being opened. Takes the listeners out of the options.
    pub(crate) fn new(env: &Arc<dyn Env>, options: &mut Options, read_only: bool) -> Arc<Events> {
        let mut listeners = std::mem::take(&mut options.listeners);
        listeners.extend(trace::listener());
        let has_log = !read_only && options.info_log_level != crate::options::InfoLogLevel::Off;
        let listener_panics = Arc::<AtomicU64>::default();
        let listeners = (!listeners.is_empty()).then(|| Listeners::new(listeners, listener_panics.clone()));
        let count = usize::from(listeners.is_some()) + usize::from(has_log);
        Arc::new(Events {
            env: env.clone(),
            outlets: (0..count).map(|_| Outlet::new(env.as_ref())).collect(),
            listeners: Mutex::new(listeners),
            has_log,
            next_job: AtomicU64::new(1),
            threads: Mutex::default(),
            listener_panics,
            log_failures: Arc::default(),
        })
    }

    /// Those of nobody.
    #[cfg(test)]
    pub(crate) fn none() -> Arc<Events> {
        let mut options = Options { info_log_level: crate::options::InfoLogLevel::Off, ..Options::default() };
        let env: Arc<dyn Env> = dialsm_io::SimEnv::new(0);
        Events::new(&env, &mut options, false)
    }

    /// Starts delivering, also what has been put in by now.
    ///
    /// # Errors
    /// Those of the system for threads.
    pub(crate) fn start(engine: &Arc<Engine>) -> Result<()> {
        let events = &engine.events;
        let mut outlets = events.outlets.iter().cloned();
        if let Some(mut listeners) = events.listeners.lock().take() {
            let outlet = outlets.next().expect("the listeners' outlet is the first");
            let work = Box::new(move || outlet.run(&mut listeners));
            let thread = engine.env.spawn("dialsm-events", work)?;
            events.threads.lock().push(thread);
        }
        if events.has_log {
            let outlet = outlets.next().expect("the outlet of the LOG is the last");
            let own = engine.clone();
            let work = Box::new(move || outlet.run(&mut info_log::InfoLog::new(own)));
            let thread = engine.env.spawn("dialsm-log", work)?;
            events.threads.lock().push(thread);
        }
        Ok(())
    }

    /// Delivers what is left, and `last`, and ends. Called by a listener it can't wait for that one, and gives
    /// up what is left.
    pub(crate) fn stop(&self, last: Event) {
        let last = self.is_on().then(|| self.record(last));
        self.outlets.iter().for_each(|outlet| outlet.end(last.as_ref()));
        let threads = std::mem::take(&mut *self.threads.lock());
        // They were started in the order of their outlets.
        for (outlet, thread) in self.outlets.iter().zip(threads) {
            match outlet.is_mine() {
                true => self.threads.lock().push(thread),
                false => thread.join(),
            }
        }
        self.outlets.iter().for_each(|outlet| outlet.shut());
        // Those that were never called, since opening has failed.
        drop(self.listeners.lock().take());
    }

    /// Waits for the listener that has closed the database, if that was one. Not for its own thread.
    pub(crate) fn join_closer(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        threads.into_iter().for_each(|thread| thread.join());
    }

    /// Whether this thread is one that delivers this database's events.
    pub(crate) fn is_delivering_here(&self) -> bool {
        self.outlets.iter().any(|outlet| outlet.is_mine())
    }

    /// Whether anybody wants to know.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        !self.outlets.is_empty()
    }

    /// Monotonic time.
    pub(crate) fn now(&self) -> Nanos {
        self.env.now()
    }

    /// Puts an event in. May be called under locks; somebody has to ring when they are free.
    #[inline]
    pub(crate) fn push(&self, event: impl FnOnce() -> Event) {
        if self.is_on() {
            let record = self.record(event());
            self.outlets.iter().for_each(|outlet| outlet.push(&record));
        }
    }

    /// Puts an event in and lets it be delivered. Not under locks.
    #[inline]
    pub(crate) fn emit(&self, event: impl FnOnce() -> Event) {
        self.push(event);
        self.ring();
    }

    /// As [`Events::push`], for the beginning of something.
    pub(crate) fn push_begin(&self, event: Event) -> Taken {
        let record = self.record(event);
        Taken::of(self.outlets.iter().map(|outlet| outlet.push_begin(&record)))
    }

    /// Changes what has begun, for those who were told so.
    pub(crate) fn push_between(&self, taken: &Taken, event: Event) {
        let record = self.record(event);
        taken.among(&self.outlets).for_each(|outlet| outlet.push(&record));
    }

    /// Ends what has begun, for those who were told so.
    pub(crate) fn push_end(&self, taken: Taken, event: Event) {
        let record = self.record(event);
        taken.among(&self.outlets).for_each(|outlet| outlet.push_end(&record));
    }

    /// Lets what was put in be delivered. Not under locks: in a simulation another thread may go on here.
    #[inline]
    pub(crate) fn ring(&self) {
        self.outlets.iter().for_each(|outlet| outlet.ring());
    }

    fn record(&self, event: Event) -> Arc<Record> {
        Arc::new(Record { wall_us: self.env.wall_us(), event })
    }

    fn next_job(&self) -> u64 {
        self.next_job.fetch_add(1, Ordering::Relaxed)
    }

    /// Events left out so far.
    pub(crate) fn dropped(&self) -> u64 {
        self.outlets.iter().map(|outlet| outlet.dropped()).sum()
    }
}

/// What was removed, or not.
pub(crate) fn table_deleted(engine: &Engine, (_, number): TablePlace, result: Result<()>) {
    engine.events.emit(|| TableDeleted { number: number.0, error: result.err() }.into());
}

/// Starts delivering and does what is left to do of an opening. If that fails, or panics, delivering ends: its
/// threads hold the engine, and with it the lock.
///
/// # Errors
/// Those of `work`, and of the system for threads.
pub(crate) fn during_open(engine: &Arc<Engine>, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let fail = |error: Error| engine.events.stop(OpenFailed { error }.into());
    match catch_unwind(AssertUnwindSafe(|| Events::start(engine).and_then(|()| work()))) {
        Ok(result) => result.inspect_err(|error| fail(error.clone())),
        Err(payload) => {
            fail(panicked());
            resume_unwind(payload)
        }
    }
}

/// The database is open.
pub(crate) fn opened(engine: &Engine, since: Nanos) {
    engine.events.emit(|| {
        let alive = engine.keyspaces.alive();
        let views: Vec<_> = alive.trees.iter().map(|tree| tree.view()).collect();
        let tables = || views.iter().flat_map(|view| view.version.all_tables());
        let (log_bytes, log_segments) = engine.log.size();
        Opened {
            version: env!("CARGO_PKG_VERSION"),
            format: engine.format_version,
            read_only: engine.read_only,
            keyspaces: alive.spaces.len() as u64,
            shards: engine.space.shards(),
            last_seqno: engine.commit.visible().load(Ordering::Acquire),
            tables: tables().count() as u64,
            table_bytes: tables().map(|(_, table)| table.file_bytes()).sum(),
            log_segments: log_segments as u64,
            log_bytes,
            duration_us: (engine.env.now() - since) / 1000,
        }
        .into()
    });
}

/// The database is closed: what has begun and goes on ends now. Nothing is delivered after this.
pub(crate) fn close(engine: &Engine) {
    let end = |tree: &Arc<Tree>| tree.end_events(&mut tree.lock());
    engine.keyspaces.alive().trees.iter().for_each(end);
    engine.write_budget.end_stall();
    engine.events.stop(Closed { last_seqno: engine.commit.visible().load(Ordering::Acquire) }.into());
}
