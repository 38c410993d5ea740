//! Files and their names made durable in the background.
//!
//! ```text
//!   request(files, dir) --> line of files --> SyncData of each, a few at once, N bytes at most
//!                                                   | all files of the request synced
//!                                                   v
//!                            waiting for dir --> SyncDir: one for all who wait when it is submitted
//!                                                   |
//!                                  ticket <---------+   permits returned, event notified
//! ```
//!
//! Promises:
//! - **What a request covers** (rule 15): all writes to its files whose completion the caller had
//!   seen, and names made, moved or removed by calls that had returned, before `request` was
//!   called: every sync that counts for it is submitted later. Its directory is synced after its
//!   files, so that a name is not durable before what it names; a sync of the directory that was
//!   under way already does not count.
//! - **Order.** Syncs are submitted in the order of the requests, urgent ones first, but requests may end
//!   in any order: who needs an order (the ledger) keeps its own.
//! - **A sync that failed failed for ever.** That file, or directory, is never synced again through
//!   this service: each later request that names it gets the first error, because a retry that
//!   succeeded would prove nothing. Two syncs of one file never run at once, since the kernel may
//!   tell only one of them of an error. [`Durability::forget`] ends it, once the name is unlinked.
//! - **A request is never withdrawn.** Dropping its ticket drops nothing, and shutdown ends them all
//!   first (rule 13).
//! - **Bound.** The bytes of files whose sync is under way never exceed `in_flight_bytes_max`, but
//!   for one file larger than that, alone.
//!
//! One thread holds all state, so nothing here needs a lock but the list it takes requests from.
//! Absent on purpose: a timer that gathers requests; those that come while a sync is under way are
//! gathered by it.

mod work;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::env::{Env, Event, JobHandle, Nanos, wait_for_end};
use crate::error::{Error, ErrorKind, Result};
use crate::fs::File;
use crate::histogram::{Histogram, HistogramSnapshot};
use crate::limiter::Permit;
use crate::ring::AsyncIo;
use work::Work;

/// How to start a [`Durability`].
#[derive(Clone, Debug)]
pub struct DurabilityOptions {
    /// Bytes of files whose sync is under way, at most. 64 MiB by default.
    pub in_flight_bytes_max: u64,
    /// Files whose sync is under way, at most; at least 1. 16 by default.
    pub in_flight_files_max: usize,
}

impl Default for DurabilityOptions {
    fn default() -> DurabilityOptions {
        DurabilityOptions { in_flight_bytes_max: 64 << 20, in_flight_files_max: 16 }
    }
}

/// A file to be made durable.
pub struct DurableFile {
    /// The handle that wrote.
    pub file: Arc<dyn File>,
    /// How many unsynced bytes it is good for, for the bound; its length will do.
    pub bytes: u64,
}

/// What is to be made durable together.
#[derive(Default)]
pub struct DurableRequest {
    /// Files whose data is synced.
    pub files: Vec<DurableFile>,
    /// The directory with their names, synced after them.
    pub dir: Option<PathBuf>,
    /// Goes before the requests that are not urgent, as far as those were not submitted.
    pub is_urgent: bool,
    /// Given back when the request has ended; their latency counts from `request` on.
    pub permits: Vec<Permit>,
    /// Notified when the request has ended.
    pub notify: Option<Arc<dyn Event>>,
}

/// Numbers of a [`Durability`] since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DurabilityStats {
    /// Requests taken.
    pub request_count: u64,
    /// Requests that ended, failed ones included.
    pub ended_count: u64,
    /// Requests that ended in an error.
    pub failed_count: u64,
    /// Syncs of files submitted.
    pub file_sync_count: u64,
    /// Syncs of directories submitted.
    pub dir_sync_count: u64,
    /// Bytes of files whose sync is under way.
    pub in_flight_bytes: u64,
    /// The most that `in_flight_bytes` ever was.
    pub in_flight_bytes_peak: u64,
}

#[derive(Default)]
struct Counts {
    requests: AtomicU64,
    ended: AtomicU64,
    failed: AtomicU64,
    file_syncs: AtomicU64,
    dir_syncs: AtomicU64,
    bytes: AtomicU64,
    bytes_peak: AtomicU64,
}

/// The service; see the module's header. Dropping it shuts it down.
pub struct Durability {
    shared: Arc<Shared>,
    thread: Mutex<Option<Box<dyn JobHandle>>>,
}

struct Shared {
    env: Arc<dyn Env>,
    io: Arc<dyn AsyncIo>,
    options: DurabilityOptions,
    intake: Mutex<Intake>,
    /// Moves when a request comes, a sync is done, or the service closes: the thread waits for it.
    work_event: Arc<dyn Event>,
    /// Moves when a request or the thread has ended.
    done_event: Arc<dyn Event>,
    /// What failed once, by path, with the first error.
    failed: Mutex<BTreeMap<PathBuf, Error>>,
    counts: Counts,
    file_sync_ns: Histogram,
}

struct Intake {
    requests: Vec<Pending>,
    is_open: bool,
    is_gone: bool,
}

impl Durability {
    /// Starts the service and its thread.
    ///
    /// # Errors
    /// `InvalidArgument` for options out of range, or when the system refuses a thread.
    pub fn start(
        env: &Arc<dyn Env>,
        io: Arc<dyn AsyncIo>,
        options: DurabilityOptions,
    ) -> Result<Arc<Durability>> {
        if options.in_flight_files_max == 0 {
            return Err(Error::invalid("in_flight_files_max is 0"));
        }
        let shared = Arc::new(Shared {
            env: Arc::clone(env),
            io,
            options,
            intake: Mutex::new(Intake { requests: Vec::new(), is_open: true, is_gone: false }),
            work_event: env.event(),
            done_event: env.event(),
            failed: Mutex::default(),
            counts: Counts::default(),
            file_sync_ns: Histogram::new(),
        });
        let gone = Gone(Arc::clone(&shared));
        let thread = env.spawn("dialsm-sync", Box::new(move || gone.work()))?;
        Ok(Arc::new(Durability { shared, thread: Mutex::new(Some(thread)) }))
    }

    /// Asks for files and their directory to be made durable, and returns at once. Errors come
    /// through the ticket: those of the syncs, `Closed`, `Forked`.
    pub fn request(&self, mut request: DurableRequest) -> DurableTicket {
        let shared = &self.shared;
        let outcome = Arc::new(Outcome { is_done: AtomicBool::new(false), result: Mutex::new(None) });
        let ticket = DurableTicket { outcome: Arc::clone(&outcome), shared: Arc::clone(shared) };
        if let Err(e) = shared.env.check_fork() {
            // The permits and the event are the parent's; their locks are not to be touched.
            std::mem::forget(request);
            outcome.set(Err(e));
            return ticket;
        }
        shared.counts.requests.fetch_add(1, Ordering::Relaxed);
        request.permits.iter_mut().for_each(Permit::begin);
        let pending = Pending { request, outcome, shared: Arc::clone(shared) };
        let mut intake = shared.intake.lock();
        if intake.is_open && !intake.is_gone {
            intake.requests.push(pending);
            drop(intake);
            shared.work_event.notify();
        } else {
            drop(intake);
            pending.end(Err(Error::new(ErrorKind::Closed, "the durability service was shut down")));
        }
        ticket
    }

    /// Forgets that a sync of `path` failed: for names that were unlinked and may be used again.
    pub fn forget(&self, path: &Path) {
        self.shared.failed.lock().remove(path);
    }

    /// The error with which a sync of `path` failed, if one did.
    pub fn failure(&self, path: &Path) -> Option<Error> {
        self.shared.failed.lock().get(path).cloned()
    }

    /// Numbers since the start.
    pub fn stats(&self) -> DurabilityStats {
        let counts = &self.shared.counts;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        DurabilityStats {
            request_count: read(&counts.requests),
            ended_count: read(&counts.ended),
            failed_count: read(&counts.failed),
            file_sync_count: read(&counts.file_syncs),
            dir_sync_count: read(&counts.dir_syncs),
            in_flight_bytes: read(&counts.bytes),
            in_flight_bytes_peak: read(&counts.bytes_peak),
        }
    }

    /// How long syncs of files have taken, in nanoseconds, from their submission until their end was seen. Failed
    /// ones count, too.
    pub fn file_sync_ns(&self) -> HistogramSnapshot {
        self.shared.file_sync_ns.snapshot()
    }

    /// Refuses further requests, ends all that were taken, and returns when the thread is gone. The
    /// I/O service below stays; it must be shut down after this. In a child process nothing happens.
    pub fn shutdown(&self) {
        let shared = &self.shared;
        if shared.env.check_fork().is_err() {
            return;
        }
        shared.intake.lock().is_open = false;
        shared.work_event.notify();
        wait_for_end(&*shared.done_event, || shared.intake.lock().is_gone);
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.join();
        }
    }
}

impl Drop for Durability {
    fn drop(&mut self) {
        if self.shared.env.check_fork().is_err() {
            // The thread does not exist here; asking for it would hang.
            if let Some(mut thread) = self.thread.try_lock() {
                std::mem::forget(thread.take());
            }
        } else {
            self.shutdown();
        }
    }
}

/// The outcome of a request, now or later. Dropping it withdraws nothing.
pub struct DurableTicket {
    outcome: Arc<Outcome>,
    shared: Arc<Shared>,
}

struct Outcome {
    is_done: AtomicBool,
    result: Mutex<Option<Result<()>>>,
}

impl Outcome {
    fn set(&self, result: Result<()>) {
        *self.result.lock() = Some(result);
        self.is_done.store(true, Ordering::Release);
    }
}

impl DurableTicket {
    /// The outcome, if it is known; as often as asked. Never waits.
    pub fn outcome(&self) -> Option<Result<()>> {
        let is_done = self.outcome.is_done.load(Ordering::Acquire);
        if is_done { self.outcome.result.lock().clone() } else { None }
    }

    /// Waits until the outcome is known or `deadline` has passed on the environment's clock;
    /// returns whether it is. In a child process of the one that asked: false at once.
    pub fn wait_until(&self, deadline: Option<Nanos>) -> bool {
        loop {
            let seen = self.shared.done_event.epoch();
            if self.outcome.is_done.load(Ordering::Acquire) {
                return true;
            }
            if self.shared.env.check_fork().is_err() {
                return false;
            }
            if !self.shared.done_event.wait_for_ticket(seen, deadline) {
                return self.outcome.is_done.load(Ordering::Acquire);
            }
        }
    }

    /// Waits for the outcome.
    ///
    /// # Errors
    /// The first of the request's syncs that failed, now or earlier; `Closed`; `Forked` in a child
    /// process of the one that asked.
    pub fn wait(&self) -> Result<()> {
        self.wait_until(None);
        self.outcome().unwrap_or_else(|| {
            Err(Error::new(ErrorKind::Forked, "the request was made by the parent process"))
        })
    }
}

/// A request on its way. INVARIANT: it ends; dropped without an outcome it fails.
struct Pending {
    request: DurableRequest,
    outcome: Arc<Outcome>,
    shared: Arc<Shared>,
}

impl Pending {
    fn end(mut self, result: Result<()>) {
        self.finish(result);
    }

    fn finish(&mut self, result: Result<()>) {
        if self.outcome.is_done.load(Ordering::Acquire) {
            return;
        }
        let is_failed = result.is_err();
        let DurableRequest { files, mut permits, notify, .. } = std::mem::take(&mut self.request);
        if is_failed {
            permits.iter_mut().for_each(Permit::spoil);
        }
        // Bytes return and files close before anybody hears of it.
        drop((files, permits));
        self.shared.counts.ended.fetch_add(1, Ordering::Relaxed);
        self.shared.counts.failed.fetch_add(u64::from(is_failed), Ordering::Relaxed);
        self.outcome.set(result);
        self.shared.done_event.notify();
        if let Some(notify) = notify {
            notify.notify();
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.finish(Err(Error::new(ErrorKind::Internal, "the durability service gave the request up")));
    }
}

/// The life of the thread; its drop tells that it is over, however it ended.
struct Gone(Arc<Shared>);

impl Gone {
    fn work(self) {
        let shared = &self.0;
        let mut work = Work::new(Arc::clone(shared));
        loop {
            let seen = shared.work_event.epoch();
            let (requests, is_open) = {
                let mut intake = shared.intake.lock();
                (std::mem::take(&mut intake.requests), intake.is_open)
            };
            let is_news = !requests.is_empty();
            requests.into_iter().for_each(|request| work.take_on(request));
            let is_progress = work.reap();
            work.submit();
            if !is_open && work.is_idle() && !is_news {
                return;
            }
            if !is_news && !is_progress {
                shared.work_event.wait(seen, None);
            }
        }
    }
}

impl Drop for Gone {
    fn drop(&mut self) {
        let left = {
            let mut intake = self.0.intake.lock();
            intake.is_gone = true;
            std::mem::take(&mut intake.requests)
        };
        drop(left);
        self.0.done_event.notify();
    }
}
