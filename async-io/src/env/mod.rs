//! Clock, seeds, background threads and every wait.
//!
//! Nothing above this crate parks a thread except through [`Event`]: in life that is a condition
//! variable, in a simulation it hands control to the one thread that may run next. Locks that are
//! held only over a few instructions, and never over a wait, a notify, a spawn or an I/O call, may
//! be ordinary ones: at each of those a simulation may let another thread go on, which would then
//! block on the lock outside the simulation's sight.
//!
//! Modules: `os` and `event` (the real thing), `signals`, `fork`, `sim` (one thread at a time, by a seed).

use std::sync::Arc;

use crate::error::Result;
use crate::fs::Fs;
use crate::ring::{AsyncIo, InlineIo, IoOptions};

mod event;
mod fork;
pub mod os;
mod signals;
pub mod sim;

pub use fork::Fork;

/// Nanoseconds on a clock that never goes back. The origin means nothing.
pub type Nanos = u64;

/// A boxed piece of background work.
pub type Job = Box<dyn FnOnce() + Send + 'static>;

/// All that a database needs from outside. One value serves many databases.
pub trait Env: Send + Sync + 'static {
    /// The file system.
    fn fs(&self) -> &Arc<dyn Fs>;

    /// Monotonic time.
    fn now(&self) -> Nanos;

    /// Wall-clock time in milliseconds since 1970, for humans only: nothing is decided by it.
    fn wall_ms(&self) -> u64;

    /// The same in microseconds.
    fn wall_us(&self) -> u64 {
        self.wall_ms().saturating_mul(1000)
    }

    /// Fresh random bits: the operating system's in life, the seed's in a simulation.
    fn random_u64(&self) -> u64;

    /// Starts a named thread with signals blocked.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) when the system refuses a thread; `job` is dropped.
    fn spawn(&self, name: &str, job: Job) -> Result<Box<dyn JobHandle>>;

    /// A new event counter.
    fn event(&self) -> Arc<dyn Event>;

    /// Lets time pass. Cut short by nothing.
    fn sleep(&self, nanos: Nanos);

    /// Gives up the processor once; in a simulation, a point at which another thread may go on.
    fn yield_now(&self);

    /// Fails with [`ErrorKind::Forked`](crate::ErrorKind::Forked) in a child process of the one
    /// that made this value.
    ///
    /// # Errors
    /// As said above.
    fn check_fork(&self) -> Result<()>;

    /// Starts a service for asynchronous I/O on this environment's files: one for each database.
    /// An environment that says nothing else gives one that is done when `submit` returns.
    ///
    /// # Errors
    /// `InvalidArgument` for options out of range, or when the system refuses even threads; that
    /// it refuses io_uring is no error.
    fn start_io(&self, options: &IoOptions) -> Result<Arc<dyn AsyncIo>> {
        let _ = options;
        Ok(Arc::new(InlineIo::new(self)))
    }
}

/// Waits until `is_over`, whose change `event` announces. For a service's end, which a drop may
/// wait for while its thread unwinds: in a dead simulation waits come back at once then, so real
/// time has to pass for the other threads to unwind, too.
pub(crate) fn wait_for_end(event: &dyn Event, is_over: impl Fn() -> bool) {
    loop {
        let seen = event.epoch();
        if is_over() {
            return;
        }
        event.wait(seen, None);
        if std::thread::panicking() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

/// A running background thread.
pub trait JobHandle: Send {
    /// Waits until the thread has ended. A panic in it was already contained and reported.
    fn join(self: Box<Self>);
}

/// An event counter ("eventcount"): waiters read the epoch, check their condition, then wait for
/// the epoch to move past what they read, so no wake-up is lost between check and wait.
pub trait Event: Send + Sync {
    /// The present epoch.
    fn epoch(&self) -> u64;

    /// Waits until the epoch differs from `seen`, or until `deadline` on the environment's clock.
    /// Returns whether the epoch moved.
    fn wait(&self, seen: u64, deadline: Option<Nanos>) -> bool;

    /// The same for somebody who waits for a ticket: in a simulation the schedule tells it from
    /// other waits, so that a test sees who waits for the disk.
    fn wait_for_ticket(&self, seen: u64, deadline: Option<Nanos>) -> bool {
        self.wait(seen, deadline)
    }

    /// Moves the epoch and wakes all waiters. Cheap when nobody waits. In a simulation another
    /// thread may go on here, so no ordinary lock may be held.
    fn notify(&self);
}
