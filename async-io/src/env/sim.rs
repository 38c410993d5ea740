//! A simulated environment: same seed, same run.
//!
//! Threads are real, but one at a time runs, chosen by the seed at every wait, notify, sleep,
//! yield, spawn and join; the clock is virtual; the file system is a [`SimFs`]. A test runs its
//! own code inside [`SimEnv::run`], which makes its thread one of the simulation's. What is absent
//! on purpose: locks and atomics are no scheduling points, and calls on files only after
//! [`SimEnv::switch_at_io`], so races within code that calls nothing of [`Env`] are not explored
//! here (Miri and stress tests look there).

mod sched;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::os::{panic_text, spawn_thread};
use super::{Env, Event, Job, JobHandle, Nanos};
use crate::error::{Error, ErrorKind, Result};
use crate::fs::Fs;
use crate::fs::sim::SimFs;
use crate::ring::sim::{SimIo, SimIoOptions};
use crate::ring::{AsyncIo, IoOptions, start_pool};
use sched::{Scheduler, ThreadNo, Wait, is_dead};

/// Where the simulated wall clock starts: 2020-01-01, in milliseconds since 1970.
const WALL_START_MS: u64 = 1_577_836_800_000;

/// How the schedule calls a wait for a ticket.
const TICKET_WAIT: &str = "ticket";

/// A simulated environment.
pub struct SimEnv {
    scheduler: Arc<Scheduler>,
    sim_fs: Arc<SimFs>,
    fs: Arc<dyn Fs>,
}

impl SimEnv {
    /// A simulation with an empty file system; everything in it follows from `seed`.
    pub fn new(seed: u64) -> Arc<SimEnv> {
        let sim_fs = SimFs::new(seed);
        let fs: Arc<dyn Fs> = sim_fs.clone();
        Arc::new(SimEnv { scheduler: Arc::new(Scheduler::new(seed)), sim_fs, fs })
    }

    /// Another environment in the same simulation (clock, threads, seed) over another file
    /// system: the machine after a power cut. `seen` is what [`Env::fs`] gives: `sim_fs` itself, or
    /// a wrapper around it.
    pub fn on_fs(&self, sim_fs: Arc<SimFs>, seen: Arc<dyn Fs>) -> Arc<SimEnv> {
        Arc::new(SimEnv { scheduler: Arc::clone(&self.scheduler), sim_fs, fs: seen })
    }

    /// The file system, with its crash images.
    pub fn sim_fs(&self) -> &Arc<SimFs> {
        &self.sim_fs
    }

    /// Runs `body` as the simulation's thread `main`, and returns when it does. Threads it leaves
    /// behind stand still until the next `run`.
    ///
    /// # Panics
    /// When `body` does, when a job did and [`SimEnv::take_panics`] was not called since, when the
    /// simulation comes to a deadlock, and when called inside a simulation.
    pub fn run<R>(&self, body: impl FnOnce() -> R) -> R {
        self.scheduler.enter();
        let outcome = catch_unwind(AssertUnwindSafe(body));
        self.scheduler.leave();
        match outcome {
            Err(payload) => resume_unwind(payload),
            Ok(value) => {
                let panics = self.take_panics();
                assert!(panics.is_empty(), "jobs of the simulation panicked: {panics:?}");
                value
            }
        }
    }

    /// Starts a service for asynchronous I/O that behaves as told.
    ///
    /// # Errors
    /// `InvalidArgument` for options out of range, or when the system refuses a thread.
    pub fn start_sim_io(&self, options: SimIoOptions) -> Result<Arc<dyn AsyncIo>> {
        let env = self.on_fs(Arc::clone(&self.sim_fs), Arc::clone(&self.fs));
        Ok(SimIo::start(env, options)?)
    }

    /// Moves the clock on by hand.
    pub fn advance(&self, nanos: Nanos) {
        let mut core = self.scheduler.core();
        let to = core.now.saturating_add(nanos);
        core.set_clock(to);
        if self.scheduler.me().is_some() {
            self.scheduler.switch(core, "advance", Wait::Turn);
        }
    }

    /// The panics of jobs so far, as `thread: text`, and forgets them.
    pub fn take_panics(&self) -> Vec<String> {
        std::mem::take(&mut self.scheduler.core().panics)
    }

    /// Names of the threads that have not ended, in order of birth.
    pub fn live_threads(&self) -> Vec<String> {
        self.scheduler.core().thread_names()
    }

    /// Whether a notify lets another thread go on (the default), or only makes it ready.
    pub fn set_switch_at_notify(&self, on: bool) {
        self.scheduler.core().switch_at_notify = on;
    }

    /// Makes every call on the simulated file system a scheduling point, too, until its hooks are
    /// cleared. More interleavings, but also the duty to hold no ordinary lock over such a call.
    pub fn switch_at_io(&self) {
        let scheduler = Arc::clone(&self.scheduler);
        self.sim_fs.add_call_hook(Arc::new(move |_call| {
            if scheduler.me().is_some() {
                scheduler.switch(scheduler.core(), "io", Wait::Turn);
            }
        }));
    }

    /// How many steps the simulation may take, all in all: one that goes on for ever, its threads
    /// waking each other or waiting for a moment again and again, dies as a deadlock does.
    pub fn set_steps_max(&self, steps: u64) {
        self.scheduler.core().steps_max = steps;
    }

    /// Steps taken so far.
    pub fn steps(&self) -> u64 {
        self.scheduler.core().steps
    }

    /// Starts (with an empty one) or ends the recording of the schedule.
    pub fn set_tracing(&self, on: bool) {
        self.scheduler.core().trace = on.then(String::new);
    }

    /// The schedule since tracing was set: a line `time point from -> to` for every step. The point of
    /// a wait for a ticket is `ticket`.
    pub fn schedule(&self) -> String {
        self.scheduler.core().trace.clone().unwrap_or_default()
    }

    /// A hash of the whole schedule so far, kept whether traced or not.
    pub fn schedule_digest(&self) -> u64 {
        self.scheduler.core().digest
    }
}

impl Env for SimEnv {
    fn fs(&self) -> &Arc<dyn Fs> {
        &self.fs
    }

    fn now(&self) -> Nanos {
        self.scheduler.core().now
    }

    fn wall_ms(&self) -> u64 {
        self.wall_us() / 1000
    }

    fn wall_us(&self) -> u64 {
        WALL_START_MS * 1000 + self.now() / 1000
    }

    fn random_u64(&self) -> u64 {
        self.scheduler.core().dice.next_u64()
    }

    fn spawn(&self, name: &str, job: Job) -> Result<Box<dyn JobHandle>> {
        let thread = self.scheduler.register(name);
        let scheduler = Arc::clone(&self.scheduler);
        let shown = name.to_owned();
        let started = spawn_thread(name, move || run_job(&scheduler, thread, &shown, job));
        let handle = match started {
            Ok(handle) => handle,
            Err(e) => {
                self.scheduler.unregister(thread);
                return Err(Error::new(ErrorKind::Io, format!("spawn thread {name}: {e}")));
            }
        };
        if self.scheduler.me().is_some() {
            self.scheduler.switch(self.scheduler.core(), "spawn", Wait::Turn);
        }
        Ok(Box::new(SimJob { scheduler: Arc::clone(&self.scheduler), thread, handle }))
    }

    fn event(&self) -> Arc<dyn Event> {
        let number = self.scheduler.core().next_event();
        Arc::new(SimEvent { scheduler: Arc::clone(&self.scheduler), number, epoch: AtomicU64::new(0) })
    }

    fn sleep(&self, nanos: Nanos) {
        let core = self.scheduler.core();
        let wait = if nanos == 0 { Wait::Turn } else { Wait::Until(core.now.saturating_add(nanos)) };
        self.scheduler.switch(core, "sleep", wait);
    }

    fn yield_now(&self) {
        self.scheduler.switch(self.scheduler.core(), "yield", Wait::Turn);
    }

    fn check_fork(&self) -> Result<()> {
        Ok(())
    }

    /// The simulated service; without `use_ring` a pool whose threads are the simulation's.
    fn start_io(&self, options: &IoOptions) -> Result<Arc<dyn AsyncIo>> {
        if options.use_ring { self.start_sim_io(SimIoOptions::default()) } else { start_pool(self, options) }
    }
}

/// The body of a spawned thread.
fn run_job(scheduler: &Scheduler, thread: ThreadNo, name: &str, job: Job) {
    let alive = scheduler.begin(thread);
    let outcome = catch_unwind(AssertUnwindSafe(|| if alive { job() } else { drop(job) }));
    if let Err(payload) = outcome {
        if !is_dead(&*payload) {
            scheduler.core().panics.push(format!("{name}: {}", panic_text(&*payload)));
        }
        // What was thrown may panic once more when dropped.
        let _ = catch_unwind(AssertUnwindSafe(move || drop(payload)));
    }
    scheduler.end(thread);
}

struct SimJob {
    scheduler: Arc<Scheduler>,
    thread: ThreadNo,
    handle: std::thread::JoinHandle<()>,
}

impl JobHandle for SimJob {
    fn join(self: Box<Self>) {
        if self.scheduler.me() == Some(self.thread) {
            return;
        }
        if self.scheduler.join(self.thread) {
            // It has handed the baton on for good and only has to leave.
            self.handle.join().expect("the thread's body contains all panics");
        }
    }
}

struct SimEvent {
    scheduler: Arc<Scheduler>,
    number: u64,
    epoch: AtomicU64,
}

impl SimEvent {
    fn wait_at(&self, point: &str, seen: u64, deadline: Option<Nanos>) -> bool {
        let core = self.scheduler.core();
        let is_over = self.epoch() != seen || deadline.is_some_and(|at| at <= core.now);
        let wait = if is_over { Wait::Turn } else { Wait::Event { number: self.number, deadline } };
        self.scheduler.switch(core, point, wait);
        self.epoch() != seen
    }
}

impl Event for SimEvent {
    fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    fn wait(&self, seen: u64, deadline: Option<Nanos>) -> bool {
        self.wait_at("wait", seen, deadline)
    }

    fn wait_for_ticket(&self, seen: u64, deadline: Option<Nanos>) -> bool {
        self.wait_at(TICKET_WAIT, seen, deadline)
    }

    fn notify(&self) {
        let mut core = self.scheduler.core();
        self.epoch.fetch_add(1, Ordering::SeqCst);
        core.make_ready(|wait| matches!(wait, Wait::Event { number, .. } if number == self.number));
        if core.switch_at_notify && self.scheduler.me().is_some() {
            self.scheduler.switch(core, "notify", Wait::Turn);
        }
    }
}
