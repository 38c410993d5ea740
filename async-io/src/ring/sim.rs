//! The service of a simulation: a seed decides when an operation is done, in how many pieces, and
//! after which others.
//!
//! Each operation gets a moment at which its next piece happens; one thread of the simulation makes
//! the pieces happen in the order of those moments, by calls on the environment's file system. So
//! a power cut may find a write half done, a sync done before a write that was submitted earlier
//! (and not covering it), and completions in any order. What a piece leaves durable is decided by
//! [`SimFs`](crate::SimFs); errors come from the rules of a [`FaultFs`](crate::FaultFs) around it.

use std::sync::Arc;

use parking_lot::Mutex;

use super::task::{Front, Task, closed};
use super::{AsyncIo, BUF_ALIGN, IoKind, IoOp, IoStats, IoTicket};
use crate::env::{Env, Event, Fork, JobHandle, Nanos, wait_for_end};
use crate::error::{Error, Result};
use crate::rng::SplitMix64;

/// How the simulated disk behaves.
#[derive(Clone, Copy, Debug)]
pub struct SimIoOptions {
    /// A piece usually happens within this time after it was asked for. 200 µs by default.
    pub delay_max: Nanos,
    /// Of a thousand pieces so many are slow instead. 20 by default.
    pub slow_permille: u64,
    /// A slow piece happens within this time. 50 ms by default.
    pub slow_delay_max: Nanos,
    /// Of a thousand transfers so many are cut short and continued later. 200 by default.
    pub short_permille: u64,
}

impl Default for SimIoOptions {
    fn default() -> SimIoOptions {
        SimIoOptions {
            delay_max: 200_000,
            slow_permille: 20,
            slow_delay_max: 50_000_000,
            short_permille: 200,
        }
    }
}

/// The service.
pub(crate) struct SimIo {
    front: Front,
    shared: Arc<Shared>,
    thread: Mutex<Option<Box<dyn JobHandle>>>,
}

struct Shared {
    env: Arc<dyn Env>,
    state: Mutex<State>,
    /// Moves when an operation comes, the service closes, or its thread ends.
    event: Arc<dyn Event>,
    options: SimIoOptions,
}

struct State {
    /// When, in which order of asking, what.
    waiting: Vec<(Nanos, u64, Task)>,
    asked: u64,
    rng: SplitMix64,
    is_open: bool,
    is_gone: bool,
}

impl SimIo {
    pub(crate) fn start(env: Arc<dyn Env>, options: SimIoOptions) -> Result<Arc<SimIo>> {
        if [options.slow_permille, options.short_permille].iter().any(|n| *n > 1000) {
            return Err(Error::invalid("more than 1000 of a thousand"));
        }
        let rng = SplitMix64::new(env.random_u64());
        let state = State { waiting: Vec::new(), asked: 0, rng, is_open: true, is_gone: false };
        let (event, front) = (env.event(), Front::new(&*env, Fork::default()));
        let shared = Arc::new(Shared { env: Arc::clone(&env), state: Mutex::new(state), event, options });
        let gone = Gone(Arc::clone(&shared));
        let thread = env.spawn("sim-io", Box::new(move || gone.work()))?;
        Ok(Arc::new(SimIo { front, shared, thread: Mutex::new(Some(thread)) }))
    }
}

impl Shared {
    /// Gives a task its next moment.
    fn ask(&self, task: Task) {
        let now = self.env.now();
        let mut state = self.state.lock();
        if state.is_gone {
            drop(state);
            return task.fail(closed());
        }
        let is_slow = state.rng.chance(self.options.slow_permille, 1000);
        let most = if is_slow { self.options.slow_delay_max } else { self.options.delay_max };
        let at = now.saturating_add(state.rng.below(most.saturating_add(1).max(1)));
        let nth = state.asked;
        state.asked += 1;
        state.waiting.push((at, nth, task));
    }

    /// How much of `len` bytes the next piece is.
    fn piece(&self, len: usize) -> usize {
        let mut state = self.state.lock();
        if len > 1 && state.rng.chance(self.options.short_permille, 1000) {
            1 + state.rng.below(len as u64 - 1) as usize
        } else {
            len
        }
    }
}

/// Tells that the thread is gone, whatever ended it.
struct Gone(Arc<Shared>);

impl Gone {
    fn work(self) {
        let shared = &*self.0;
        loop {
            let (seen, now) = (shared.event.epoch(), shared.env.now());
            let mut state = shared.state.lock();
            let next = (0..state.waiting.len()).min_by_key(|i| (state.waiting[*i].0, state.waiting[*i].1));
            match next.map(|i| (i, state.waiting[i].0)) {
                None if !state.is_open => return,
                Some((i, at)) if at <= now => {
                    let (_, _, task) = state.waiting.swap_remove(i);
                    drop(state);
                    let left = task.op.buf().map_or(0, |buf| buf.len() - task.done);
                    let mut piece = shared.piece(left);
                    if task.op.file().is_some_and(|file| file.is_direct()) {
                        // Past the page cache a transfer ends between blocks.
                        piece = piece.next_multiple_of(BUF_ALIGN).min(left);
                    }
                    if let Some(task) = task.work(&**shared.env.fs(), piece.max(1)) {
                        if piece < left {
                            task.counts().short.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        }
                        shared.ask(task);
                    }
                }
                later => {
                    drop(state);
                    shared.event.wait(seen, later.map(|(_, at)| at));
                }
            }
        }
    }
}

impl Drop for Gone {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.is_gone = true;
        let left = std::mem::take(&mut state.waiting);
        drop(state);
        drop(left);
        self.0.event.notify();
    }
}

impl AsyncIo for SimIo {
    fn submit_and_notify(&self, op: IoOp, done: Option<Arc<dyn Event>>) -> IoTicket {
        match self.front.admit(op, done) {
            Err(over) => over,
            Ok((task, ticket)) => {
                self.shared.ask(task);
                self.shared.event.notify();
                ticket
            }
        }
    }

    fn kind(&self) -> IoKind {
        IoKind::Sim
    }

    fn report(&self) -> String {
        "I/O by a simulation".to_owned()
    }

    fn stats(&self) -> IoStats {
        self.front.counts().snapshot()
    }

    fn shutdown(&self) {
        self.front.close();
        self.shared.state.lock().is_open = false;
        self.shared.event.notify();
        wait_for_end(&*self.shared.event, || self.shared.state.lock().is_gone);
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.join();
        }
    }
}

impl Drop for SimIo {
    fn drop(&mut self) {
        self.shutdown();
    }
}
