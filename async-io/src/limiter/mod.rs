//! How many bytes may be under way to the disk at once, for whom first: a window that grows slowly
//! while the disk answers as fast as it ever did and shrinks at once when it doesn't, with a user's
//! cap in bytes per second on top.
//!
//! ```text
//!   job: permit = acquire(priority, bytes) -- waits in line, flush never --> write, submit the sync
//!         permit goes along with the durability request                            |
//!   window learns <-- give back (latency since `begin`) <-- dropped when durable --+
//! ```
//!
//! The laws are in `control`, which knows no clock; here are the lock, the event and the permits.
//! Bytes return when what they stand for is durable, or its job gave up: when the permit is dropped.
//!
//! Shared by as many databases as the caller likes.

mod control;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use parking_lot::Mutex;

use crate::env::{Env, Event, Nanos};
use crate::error::{Error, ErrorKind, Result};
use control::Control;
pub use control::{LimiterOptions, LimiterStats, Priority};

/// A bound on bytes under way; see the module's header.
pub struct Limiter {
    shared: Arc<Shared>,
}

struct Shared {
    env: Arc<dyn Env>,
    state: Mutex<State>,
    /// Moves when something is given back, granted to others, changed or closed.
    event: Arc<dyn Event>,
}

struct State {
    control: Control,
    is_closed: bool,
}

impl Limiter {
    /// A limiter on the environment's clock.
    ///
    /// # Errors
    /// `InvalidArgument` with every option that is out of range.
    pub fn new(env: &Arc<dyn Env>, options: LimiterOptions) -> Result<Limiter> {
        options.validate()?;
        let control = Control::new(options, env.now());
        let state = Mutex::new(State { control, is_closed: false });
        Ok(Limiter { shared: Arc::new(Shared { env: Arc::clone(env), state, event: env.event() }) })
    }

    /// Waits until `bytes` may be under way. [`Priority::Flush`] never waits. More bytes than the
    /// window has are granted when nothing else is under way. A deadline of 0 only tries.
    ///
    /// # Errors
    /// `TimedOut` when `deadline` passed on the environment's clock, `Closed` after
    /// [`Limiter::close`]; `Forked`.
    pub fn acquire(&self, priority: Priority, bytes: u64, deadline: Option<Nanos>) -> Result<Permit> {
        let shared = &self.shared;
        shared.env.check_fork()?;
        let number = {
            let now = shared.env.now();
            let mut state = shared.state.lock();
            if state.is_closed && priority != Priority::Flush {
                return Err(closed());
            }
            state.control.ask(now, priority, bytes)
        };
        let mut is_first_look = true;
        loop {
            let (seen, now) = (shared.event.epoch(), shared.env.now());
            let mut state = shared.state.lock();
            let (granted, again_at) = state.control.grant(now);
            let is_mine = state.control.take(number);
            let is_closed = state.is_closed;
            let is_over = is_closed || deadline.is_some_and(|at| at <= now);
            if is_over && !is_mine {
                state.control.withdraw(number);
            } else if is_first_look && !is_mine {
                state.control.note_wait(priority);
            }
            is_first_look = false;
            drop(state);
            // Others may have been granted theirs in their sleep, or fit now that this one left.
            if granted > 0 || (is_over && !is_mine) {
                shared.event.notify();
            }
            if is_mine {
                return Ok(Permit { shared: Arc::clone(shared), priority, bytes, begun: now, ok: true });
            }
            if is_over {
                return Err(if is_closed { closed() } else { timed_out() });
            }
            let until = [again_at, deadline].into_iter().flatten().min();
            shared.event.wait(seen, until);
        }
    }

    /// Changes the user's cap in bytes per second.
    ///
    /// # Errors
    /// `InvalidArgument` for 0, which would be a stop.
    pub fn set_user_rate(&self, bytes_per_second: Option<u64>) -> Result<()> {
        if bytes_per_second == Some(0) {
            return Err(Error::invalid("a cap of 0 bytes per second is a stop"));
        }
        let now = self.shared.env.now();
        self.shared.state.lock().control.set_cap(now, bytes_per_second);
        self.shared.event.notify();
        Ok(())
    }

    /// How many of `most` background jobs the disk is good for at present: 1 when the window is at
    /// its floor, all when it is at its ceiling.
    pub fn jobs(&self, most: usize) -> usize {
        self.shared.state.lock().control.jobs(most)
    }

    /// Its decisions so far and where it stands.
    pub fn stats(&self) -> LimiterStats {
        self.shared.state.lock().control.stats()
    }

    /// Sends all who wait home, and refuses everyone but flush from then on. Permits stay good.
    pub fn close(&self) {
        self.shared.state.lock().is_closed = true;
        self.shared.event.notify();
    }
}

#[cold]
fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the limiter was closed")
}

#[cold]
fn timed_out() -> Error {
    Error::new(ErrorKind::TimedOut, "the disk had no room for more before the deadline")
}

/// Bytes that may be under way; given back when dropped.
pub struct Permit {
    shared: Arc<Shared>,
    priority: Priority,
    bytes: u64,
    begun: Nanos,
    ok: bool,
}

impl Permit {
    /// Notes that its I/O begins now. Latency counts from here; without, from the grant on.
    pub fn begin(&mut self) {
        self.begun = self.shared.env.now();
    }

    /// Notes that the I/O failed or never was: nothing is learnt from how long it took.
    pub fn spoil(&mut self) {
        self.ok = false;
    }

    /// How many bytes it stands for.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        // A child of the process has nothing under way, and the lock may be held for ever there.
        if self.shared.env.check_fork().is_err() {
            return;
        }
        let now = self.shared.env.now();
        let mut state = self.shared.state.lock();
        state.control.give_back(now, self.priority, self.bytes, self.begun, self.ok);
        drop(state);
        self.shared.event.notify();
    }
}
