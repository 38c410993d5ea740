//! The scheduler of a simulation: real threads, of which exactly one holds the baton.
//!
//! ```text
//!             picked by the seed                 notify, deadline or end of the joined thread
//!   Ready ----------------------> (running) --> Waiting | Sleeping | Joining --> Ready
//!     ^                               |
//!     +---- any scheduling point -----+----> gone
//! ```
//!
//! Time stands still while anybody is ready. When nobody is, it jumps to the earliest deadline;
//! where there is none either, that is a deadlock: the simulation is then *dead*, each of its
//! threads unwinds from its wait, and the one in `run` panics with the list of who waits for what.
//!
//! A simulation that passes its limit of steps dies in the same way.
//!
//! INVARIANT: everything that decides what happens next (ready list, clock, random stream) is
//! touched only by the thread with the baton, so a run is a function of the seed. Thread and
//! event numbers are given out in the order of the calls that ask for them. Upheld here; attacked
//! by `env_sim.rs` in the tests, which compares whole schedules.

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::env::Nanos;
use crate::rng::SplitMix64;

/// Number of a thread within its simulation.
pub(super) type ThreadNo = u64;

/// How long the holder of the baton may stay away in real time before it counts as stuck on
/// something that the simulation does not see. No correct run depends on it.
const STUCK_AFTER: Duration = Duration::from_secs(if cfg!(miri) { 3600 } else { 60 });

/// How many waits a thread may ask of a dead simulation while it unwinds.
const DEAD_CALLS_MAX: u64 = 100_000;

/// What a thread of a dead simulation unwinds with.
struct Dead;

/// Whether a job ended because its simulation died, which is reported once, by `run`.
pub(super) fn is_dead(payload: &(dyn Any + Send)) -> bool {
    payload.is::<Dead>()
}

thread_local! {
    /// Which simulation this thread belongs to, and as which of its threads.
    static SELF: Cell<Option<(u64, ThreadNo)>> = const { Cell::new(None) };
}

static NEXT_SCHEDULER: AtomicU64 = AtomicU64::new(0);

/// What a thread without the baton waits for.
#[derive(Clone, Copy)]
pub(super) enum Wait {
    /// Nothing but its turn.
    Turn,
    /// A notify of that event.
    Event { number: u64, deadline: Option<Nanos> },
    /// A moment.
    Until(Nanos),
    /// The end of a thread.
    Join(ThreadNo),
}

impl Wait {
    fn deadline(self) -> Option<Nanos> {
        match self {
            Wait::Event { deadline, .. } => deadline,
            Wait::Until(at) => Some(at),
            Wait::Turn | Wait::Join(_) => None,
        }
    }
}

struct Thread {
    name: String,
    wait: Wait,
    baton: Arc<Condvar>,
}

pub(super) struct Core {
    pub(super) now: Nanos,
    /// For `random_u64`; a stream of its own, so that it does not shift the schedule.
    pub(super) dice: SplitMix64,
    pub(super) panics: Vec<String>,
    pub(super) switch_at_notify: bool,
    pub(super) trace: Option<String>,
    pub(super) digest: u64,
    seed: u64,
    choice: SplitMix64,
    threads: BTreeMap<ThreadNo, Thread>,
    running: Option<ThreadNo>,
    /// The thread in `run`.
    main: Option<ThreadNo>,
    threads_made: u64,
    events_made: u64,
    pub(super) steps: u64,
    /// More steps, and the simulation counts as one that does not come to an end.
    pub(super) steps_max: u64,
    dead: Option<String>,
    dead_calls: u64,
}

pub(super) struct Scheduler {
    id: u64,
    core: Mutex<Core>,
}

impl Scheduler {
    pub(super) fn new(seed: u64) -> Scheduler {
        let core = Core {
            now: 0,
            dice: SplitMix64::new(!seed),
            panics: Vec::new(),
            switch_at_notify: true,
            trace: None,
            digest: 0,
            seed,
            choice: SplitMix64::new(seed),
            threads: BTreeMap::new(),
            running: None,
            main: None,
            threads_made: 0,
            events_made: 0,
            steps: 0,
            steps_max: u64::MAX,
            dead: None,
            dead_calls: 0,
        };
        // The number only tells simulations of one process apart; nothing depends on its value.
        Scheduler { id: NEXT_SCHEDULER.fetch_add(1, Ordering::Relaxed), core: Mutex::new(core) }
    }

    pub(super) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock()
    }

    /// The number of the calling thread, if it is one of this simulation.
    pub(super) fn me(&self) -> Option<ThreadNo> {
        SELF.get().and_then(|(scheduler, thread)| (scheduler == self.id).then_some(thread))
    }

    /// Makes the calling thread the running one, under the name `main`.
    pub(super) fn enter(&self) {
        assert!(SELF.get().is_none(), "SimEnv::run inside a simulation");
        let mut core = self.core.lock();
        assert!(core.main.is_none(), "two SimEnv::run at once");
        let me = core.register("main");
        core.main = Some(me);
        core.running = Some(me);
        SELF.set(Some((self.id, me)));
    }

    /// Ends what `enter` began. Threads that are left stand still until the next `enter`.
    pub(super) fn leave(&self) {
        let me = self.me().expect("leave follows enter on the same thread");
        SELF.set(None);
        let mut core = self.core.lock();
        core.threads.remove(&me);
        core.running = None;
        core.main = None;
    }

    /// Adds a thread that will be ready at once; its body must call [`Scheduler::begin`].
    pub(super) fn register(&self, name: &str) -> ThreadNo {
        self.core.lock().register(name)
    }

    /// Takes back a registration whose thread could not be started.
    pub(super) fn unregister(&self, thread: ThreadNo) {
        self.core.lock().threads.remove(&thread);
    }

    /// First call of a registered thread: waits for its first turn. False in a dead simulation.
    pub(super) fn begin(&self, me: ThreadNo) -> bool {
        SELF.set(Some((self.id, me)));
        let mut core = self.core.lock();
        wait_for_turn(&mut core, me);
        core.dead.is_none()
    }

    /// Last call of a registered thread: hands the baton on for good.
    pub(super) fn end(&self, me: ThreadNo) {
        SELF.set(None);
        let mut core = self.core.lock();
        let from = core.threads.remove(&me).map_or_else(String::new, |t| t.name);
        core.make_ready(|wait| matches!(wait, Wait::Join(thread) if thread == me));
        if core.dead.is_none() && core.running == Some(me) {
            core.running = None;
            core.hand_over(me, &from, "end");
        }
    }

    /// A scheduling point: waits as told, and comes back when the seed picks this thread again.
    ///
    /// # Panics
    /// When the calling thread is not part of the simulation, or the simulation is dead (but
    /// never while unwinding already: then it comes back at once).
    pub(super) fn switch(&self, mut core: MutexGuard<'_, Core>, point: &str, wait: Wait) {
        let Some(me) = self.me() else {
            drop(core);
            panic!("{point} on a thread that is not in SimEnv::run and was not spawned by it");
        };
        if core.dead.is_none() {
            let thread = core.threads.get_mut(&me).expect("a thread is registered until its end");
            thread.wait = wait;
            let from = thread.name.clone();
            core.running = None;
            core.hand_over(me, &from, point);
            wait_for_turn(&mut core, me);
        }
        if core.dead.is_some() {
            unwind(core, me);
        }
    }

    /// Waits until `thread` has ended. False where the simulation died first.
    pub(super) fn join(&self, thread: ThreadNo) -> bool {
        loop {
            let core = self.core.lock();
            if core.dead.is_some() && std::thread::panicking() {
                return false;
            }
            if !core.threads.contains_key(&thread) {
                return true;
            }
            self.switch(core, "join", Wait::Join(thread));
        }
    }
}

/// Leaves a wait of a dead simulation.
fn unwind(mut core: MutexGuard<'_, Core>, me: ThreadNo) {
    let text = core.dead.clone().expect("called only when dead");
    core.dead_calls += 1;
    if core.dead_calls > DEAD_CALLS_MAX {
        eprintln!("a thread keeps waiting in a dead simulation; {text}");
        std::process::abort();
    }
    let is_main = core.main == Some(me);
    drop(core);
    if std::thread::panicking() {
        return;
    }
    if is_main {
        panic!("{text}");
    }
    // Without the panic hook: one message is enough.
    std::panic::resume_unwind(Box::new(Dead));
}

fn wait_for_turn(core: &mut MutexGuard<'_, Core>, me: ThreadNo) {
    while core.running != Some(me) && core.dead.is_none() {
        let baton = Arc::clone(&core.threads.get(&me).expect("a waiting thread is registered").baton);
        let steps = core.steps;
        let timed_out = baton.wait_for(core, STUCK_AFTER).timed_out();
        if let (true, Some(holder)) = (timed_out && core.steps == steps, core.running) {
            let name = core.threads.get(&holder).map_or("?", |t| t.name.as_str());
            eprintln!(
                "simulation stuck: thread {name} has reached no scheduling point for {STUCK_AFTER:?}; does \
                 it block on a lock that another thread holds over a wait, notify, spawn or I/O call?"
            );
            std::process::abort();
        }
    }
}

impl Core {
    fn register(&mut self, name: &str) -> ThreadNo {
        let number = self.threads_made;
        self.threads_made += 1;
        let thread = Thread { name: name.to_owned(), wait: Wait::Turn, baton: Arc::default() };
        self.threads.insert(number, thread);
        number
    }

    pub(super) fn next_event(&mut self) -> u64 {
        self.events_made += 1;
        self.events_made
    }

    /// Names of the threads that have not ended, in order of birth.
    pub(super) fn thread_names(&self) -> Vec<String> {
        self.threads.values().map(|t| t.name.clone()).collect()
    }

    pub(super) fn make_ready(&mut self, which: impl Fn(Wait) -> bool) {
        for thread in self.threads.values_mut() {
            if which(thread.wait) {
                thread.wait = Wait::Turn;
            }
        }
    }

    /// Moves the clock, never back, and readies who waited for that moment.
    pub(super) fn set_clock(&mut self, to: Nanos) {
        let now = self.now.max(to);
        self.now = now;
        self.make_ready(|wait| wait.deadline().is_some_and(|at| at <= now));
    }

    /// Picks who runs next and wakes it; finds the simulation dead where nobody can.
    fn hand_over(&mut self, from: ThreadNo, from_name: &str, point: &str) {
        let is_ready = |t: &&Thread| matches!(t.wait, Wait::Turn);
        let mut ready = self.threads.values().filter(is_ready).count() as u64;
        if ready == 0 {
            if let Some(at) = self.threads.values().filter_map(|t| t.wait.deadline()).min() {
                self.set_clock(at);
                ready = self.threads.values().filter(is_ready).count() as u64;
            } else {
                return self.die("deadlock in the simulation");
            }
        }
        if self.steps >= self.steps_max {
            return self.die("no end of the simulation");
        }
        let nth = self.choice.below(ready) as usize;
        let mut candidates = self.threads.iter().filter(|(_, t)| is_ready(t));
        let (&next, thread) = candidates.nth(nth).expect("fewer than were counted");
        self.running = Some(next);
        self.steps += 1;
        for word in [self.now, from, next, point.len() as u64] {
            self.digest = SplitMix64::new(self.digest ^ word).next_u64();
        }
        if let Some(trace) = &mut self.trace {
            writeln!(trace, "{} {point} {from_name} -> {}", self.now, thread.name)
                .expect("a string takes all");
        }
        if next != from {
            thread.baton.notify_one();
        }
    }

    fn die(&mut self, why: &str) {
        let mut text = format!("{why} (seed {}) at {} ns, after {} steps:", self.seed, self.now, self.steps);
        for thread in self.threads.values() {
            let what = match thread.wait {
                Wait::Event { number, .. } => format!("event {number}"),
                Wait::Join(other) => {
                    let name = self.threads.get(&other).map_or("?", |t| t.name.as_str());
                    format!("the end of {name}")
                }
                Wait::Turn | Wait::Until(_) => "its turn".to_owned(),
            };
            write!(text, " {} waits for {what};", thread.name).expect("a string takes all");
        }
        if std::thread::panicking() {
            // Whoever unwinds cannot panic again, so the text would be lost.
            eprintln!("{text}");
        }
        self.dead = Some(text);
        for thread in self.threads.values() {
            thread.baton.notify_one();
        }
    }
}
