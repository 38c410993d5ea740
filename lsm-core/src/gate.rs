//! A lock that may be held over I/O: waiting for it goes through the environment, so that a
//! simulation, which lets one thread run at a time, is never blocked by a thread it has put to
//! sleep. Short critical sections use ordinary mutexes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dialsm_io::{Env, Event};

/// Mutual exclusion without data of its own; the fields it guards stand behind mutexes that are
/// then never contended.
pub(crate) struct Gate {
    held: AtomicBool,
    freed: Arc<dyn Event>,
}

/// Proof of holding a [`Gate`]; dropping it lets the next one in.
pub(crate) struct GateGuard<'a>(&'a Gate);

impl Gate {
    pub(crate) fn new(env: &dyn Env) -> Gate {
        Gate { held: AtomicBool::new(false), freed: env.event() }
    }

    pub(crate) fn enter(&self) -> GateGuard<'_> {
        loop {
            let seen = self.freed.epoch();
            if self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return GateGuard(self);
            }
            self.freed.wait(seen, None);
        }
    }
}

impl Drop for GateGuard<'_> {
    fn drop(&mut self) {
        self.0.held.store(false, Ordering::Release);
        self.0.freed.notify();
    }
}
