//! The event counter of the real environment.
//!
//! ```text
//!   waiter                              notifier
//!   W1 lock mutex                       N1 epoch += 1
//!   W2 waiters += 1                     N2 waiters == 0 ? -> done
//!   W3 epoch == seen ? else -> done     N3 lock mutex, unlock it
//!   W4 condvar wait (unlocks)           N4 wake all
//! ```
//!
//! INVARIANT (no lost wake-up): W2, W3, N1 and N2 are sequentially consistent, so they stand in
//! one order for all. If N2 comes before W2 then so does N1, and W3 sees the new epoch. Otherwise
//! N2 sees the waiter, and N3 cannot pass between W3 and W4, because the waiter holds the mutex
//! from before W3 until W4 has queued it: N4 finds it queued. Weaker orders would let each side
//! miss the other's write. Attacked by `ping_pong_loses_no_wake_up` and
//! `many_waiters_on_one_event` in `tests/env_os.rs`.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::{Event, Nanos};

pub(super) struct OsEvent {
    /// Where the environment's clock began.
    origin: Instant,
    epoch: AtomicU64,
    waiters: AtomicU32,
    mutex: Mutex<()>,
    condvar: Condvar,
}

impl OsEvent {
    pub(super) fn new(origin: Instant) -> OsEvent {
        OsEvent {
            origin,
            epoch: AtomicU64::new(0),
            waiters: AtomicU32::new(0),
            mutex: Mutex::new(()),
            condvar: Condvar::new(),
        }
    }
}

impl Event for OsEvent {
    fn epoch(&self) -> u64 {
        self.epoch.load(SeqCst)
    }

    fn wait(&self, seen: u64, deadline: Option<Nanos>) -> bool {
        if self.epoch() != seen {
            return true;
        }
        // A deadline past what the clock can express is none.
        let deadline = deadline.and_then(|at| self.origin.checked_add(Duration::from_nanos(at)));
        let mut guard = self.mutex.lock();
        self.waiters.fetch_add(1, SeqCst);
        let moved = loop {
            if self.epoch() != seen {
                break true;
            }
            match deadline {
                None => self.condvar.wait(&mut guard),
                Some(at) => {
                    if self.condvar.wait_until(&mut guard, at).timed_out() {
                        break self.epoch() != seen;
                    }
                }
            }
        };
        self.waiters.fetch_sub(1, SeqCst);
        moved
    }

    fn notify(&self) {
        self.epoch.fetch_add(1, SeqCst);
        if self.waiters.load(SeqCst) > 0 {
            drop(self.mutex.lock());
            self.condvar.notify_all();
        }
    }
}
