//! [`RingIo`]: the service on io_uring, and the choice between it and a pool.
//!
//! ```text
//!   submit --> intake (a list under a lock) --> the ring's thread: take on, push, enter, settle
//!      |            ^ asleep? ring the bell           |
//!      +------------+                                 +--> Ended (also by a panic): intake closed,
//!      +---> helper: pool of plain calls <-----------------what is left and all to come goes on here
//! ```
//!
//! INVARIANT (no lost wake-up): the thread says that it is going to sleep under the intake's lock,
//! having seen the list empty; who adds to the list sees that under the same lock and rings. The
//! bell keeps ringing until it is heard.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::driver::Driver;
use super::pool::{PoolIo, Pusher, Workers};
use super::task::{Front, Task, closed};
use super::uring::{Bell, Uring};
use super::{AsyncIo, IoKind, IoOp, IoOptions, IoStats, IoTicket, ReadAt};
use crate::env::{Env, Event, Fork, JobHandle, wait_for_end};
use crate::error::{Error, Result};
use crate::fs::Fs;

/// Threads that help a ring out; they sleep unless the file system has no descriptors to give.
const HELPERS: usize = 2;

/// How long the outcome of operations is waited for that the kernel still has after it took the
/// ring away, in milliseconds. A healthy disk answers long before.
const WIND_DOWN_MS: u32 = 30_000;

/// Starts the service of the operating system: a ring, or a pool where there can't be one.
///
/// # Errors
/// `InvalidArgument` for options out of range, and when the system refuses even threads.
pub(crate) fn start_os(
    env: &(impl Env + ?Sized),
    fork: &Fork,
    options: &IoOptions,
) -> Result<Arc<dyn AsyncIo>> {
    fork.check()?;
    if !(1..=4096).contains(&options.ring_entries) {
        return Err(Error::invalid(format!("ring_entries {} is not in 1..=4096", options.ring_entries)));
    }
    let refused = |e: std::io::Error| format!(" (io_uring refused: {e})");
    let opened = match (options.use_ring, options.pretend_refused) {
        (false, _) => Err(" (io_uring not asked for)".to_owned()),
        (true, Some(errno)) => Err(refused(std::io::Error::from_raw_os_error(errno))),
        // Two linked entries must find room; four are not worth fewer.
        (true, None) => Uring::open(options.ring_entries.max(4)).map_err(refused),
    };
    match opened {
        Ok(uring) => RingIo::start(env, fork, options, uring).map(|io| -> Arc<dyn AsyncIo> { io }),
        Err(why) => {
            PoolIo::start(env, fork.clone(), options.pool_threads, &why).map(|io| -> Arc<dyn AsyncIo> { io })
        }
    }
}

/// Starts a pool, in a simulation.
pub(crate) fn start_pool(env: &(impl Env + ?Sized), options: &IoOptions) -> Result<Arc<dyn AsyncIo>> {
    Ok(PoolIo::start(env, Fork::default(), options.pool_threads, "")?)
}

/// Lets reads in; those that the page cache can answer are over at once, `push` gets the others.
pub(super) fn read_cached_first(
    front: &Front,
    reads: Vec<ReadAt>,
    push: impl FnOnce(Vec<Task>),
) -> Vec<IoTicket> {
    let mut tickets = Vec::with_capacity(reads.len());
    let mut tasks = Vec::new();
    for ReadAt { file, buf, offset } in reads {
        match front.admit(IoOp::Read { file, buf, offset }, None) {
            Err(over) => tickets.push(over),
            Ok((mut task, ticket)) => {
                if task.read_cached() {
                    task.counts().cached.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    task.succeed();
                } else {
                    tasks.push(task);
                }
                tickets.push(ticket);
            }
        }
    }
    if !tasks.is_empty() {
        push(tasks);
    }
    tickets
}

/// The service.
pub(super) struct RingIo {
    front: Front,
    shared: Arc<Shared>,
    helper: Workers,
    fs: Arc<dyn Fs>,
    thread: Mutex<Option<Box<dyn JobHandle>>>,
}

struct Shared {
    intake: Mutex<Intake>,
    bell: Bell,
    helper: Pusher,
    /// Moves when the thread ends.
    event: Arc<dyn Event>,
}

struct Intake {
    tasks: Vec<Task>,
    is_open: bool,
    is_asleep: bool,
    /// The ring's end: tasks go to the helper.
    ring_is_gone: bool,
    thread_is_gone: bool,
    /// It is gone before its time.
    has_fallen_back: bool,
    report: String,
}

impl RingIo {
    pub(super) fn start(
        env: &(impl Env + ?Sized),
        fork: &Fork,
        options: &IoOptions,
        uring: Uring,
    ) -> Result<Arc<RingIo>> {
        let helper = Workers::start(env, HELPERS, "dialsm-help")?;
        let intake = Intake {
            tasks: Vec::new(),
            is_open: true,
            is_asleep: false,
            ring_is_gone: false,
            thread_is_gone: false,
            has_fallen_back: false,
            report: format!("I/O by io_uring, {} entries", options.ring_entries),
        };
        let shared = Arc::new(Shared {
            intake: Mutex::new(intake),
            bell: uring.bell(),
            helper: helper.pusher(),
            event: env.event(),
        });
        let ended = Ended(Arc::clone(&shared));
        let threads = options.pool_threads.clamp(1, 64) as u32;
        let started = env.spawn(
            "dialsm-ring",
            Box::new(move || {
                uring.limit_workers(threads);
                ended.work(uring);
            }),
        );
        let thread = match started {
            Ok(thread) => Mutex::new(Some(thread)),
            Err(e) => {
                helper.shutdown();
                return Err(e);
            }
        };
        let fs = Arc::clone(env.fs());
        Ok(Arc::new(RingIo { front: Front::new(env, fork.clone()), shared, helper, fs, thread }))
    }
}

impl Shared {
    fn push(&self, tasks: Vec<Task>) {
        let mut intake = self.intake.lock();
        if !intake.is_open {
            drop(intake);
            tasks.into_iter().for_each(|task| task.fail(closed()));
        } else if intake.ring_is_gone {
            drop(intake);
            tasks.into_iter().for_each(|task| self.helper.push(task));
        } else {
            intake.tasks.extend(tasks);
            let wake = std::mem::take(&mut intake.is_asleep);
            drop(intake);
            if wake {
                self.bell.ring();
            }
        }
    }

    /// From now on the helper has it all.
    fn give_up_ring(&self, why: &str) {
        let mut intake = self.intake.lock();
        if !intake.ring_is_gone {
            intake.ring_is_gone = true;
            intake.report.push_str(why);
            intake.has_fallen_back = !why.is_empty();
        }
        let tasks = std::mem::take(&mut intake.tasks);
        drop(intake);
        tasks.into_iter().for_each(|task| self.helper.push(task));
    }
}

/// The life of the ring's thread; its drop tells that it is over, however it ended.
struct Ended(Arc<Shared>);

impl Ended {
    fn work(self, uring: Uring) {
        let shared = &*self.0;
        let mut driver = Driver::new(uring, shared.helper.clone());
        loop {
            let (tasks, was_open) = {
                let mut intake = shared.intake.lock();
                (std::mem::take(&mut intake.tasks), intake.is_open)
            };
            driver.take_on(tasks);
            let pushed = driver.push();
            if !was_open && driver.is_idle() {
                return;
            }
            let wait = if pushed.is_all {
                let mut intake = shared.intake.lock();
                let nothing_new = intake.tasks.is_empty() && intake.is_open == was_open;
                intake.is_asleep = nothing_new;
                nothing_new
            } else {
                // Full. Nothing pushed since the last turn means that completions must make room.
                pushed.count == 0
            };
            if let Err(e) = driver.turn(wait) {
                shared.give_up_ring(&format!("; taken away by the kernel ({e}), plain calls since"));
                driver.wind_down(WIND_DOWN_MS, &|| std::thread::sleep(Duration::from_millis(1)));
                return;
            }
        }
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let is_panic = std::thread::panicking();
        self.0.give_up_ring(if is_panic { "; its thread panicked, plain calls since" } else { "" });
        self.0.intake.lock().thread_is_gone = true;
        self.0.event.notify();
    }
}

impl AsyncIo for RingIo {
    fn submit_and_notify(&self, op: IoOp, done: Option<Arc<dyn Event>>) -> IoTicket {
        match self.front.admit(op, done) {
            Err(over) => over,
            Ok((mut task, ticket)) => {
                if let IoOp::SyncDir { dir } = &task.op {
                    task.dir = self.fs.open_dir(dir);
                }
                self.shared.push(vec![task]);
                ticket
            }
        }
    }

    fn read_many(&self, reads: Vec<ReadAt>) -> Vec<IoTicket> {
        read_cached_first(&self.front, reads, |tasks| self.shared.push(tasks))
    }

    fn kind(&self) -> IoKind {
        if self.shared.intake.lock().has_fallen_back { IoKind::Pool } else { IoKind::Ring }
    }

    fn report(&self) -> String {
        self.shared.intake.lock().report.clone()
    }

    fn stats(&self) -> IoStats {
        self.front.counts().snapshot()
    }

    fn shutdown(&self) {
        if self.front.is_forked() {
            return;
        }
        self.front.close();
        self.shared.intake.lock().is_open = false;
        self.shared.bell.ring();
        wait_for_end(&*self.shared.event, || self.shared.intake.lock().thread_is_gone);
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.join();
        }
        // After the thread, which may have had work for it.
        self.helper.shutdown();
    }
}

impl Drop for RingIo {
    fn drop(&mut self) {
        if self.front.is_forked() {
            // The thread does not exist here; asking for it would hang.
            if let Some(mut thread) = self.thread.try_lock() {
                std::mem::forget(thread.take());
            }
            self.helper.forget_threads();
        } else {
            self.shutdown();
        }
    }
}
