//! What the ring's thread needs of a kernel: the seam at which tests put in one that is as unkind as
//! the documentation allows.

use std::io;
use std::time::Duration;

use super::task::{Part, Task};

/// A part of a task that was under way and is no more.
pub(super) struct Completion {
    /// Given back by the kernel: its file and buffer are the driver's again.
    pub(super) task: Task,
    /// What had been asked for.
    pub(super) part: Part,
    /// Bytes transferred, or 0, or a negative error number.
    pub(super) res: i32,
    /// The same for the sync that followed, where one was asked for.
    pub(super) sync_res: Option<i32>,
}

/// A queue of parts to the kernel and one of completions back.
///
/// INVARIANT: a task that was pushed is owned by the kernel's side, with its file and buffer, until
/// it comes back through `reap` or `take_back`, or is leaked by `abandon`.
pub(super) trait Kernel {
    /// Whether it has what it needs for this task: a descriptor.
    fn can_do(&self, task: &Task) -> bool;

    /// Queues the task's next part, with the sync that follows it where it has one.
    ///
    /// # Errors
    /// The task itself, when there is no room.
    // The error is the whole task on purpose: it must not be lost, nor boxed once per push.
    #[allow(clippy::result_large_err)]
    fn push(&mut self, task: Task) -> Result<(), Task>;

    /// Hands the kernel what is queued; with `wait` comes back only when something is to be reaped,
    /// somebody rang the bell, or a signal came.
    ///
    /// # Errors
    /// Those after which this kernel is of no use any more.
    fn enter(&mut self, wait: bool) -> io::Result<()>;

    /// The next completion that is there already.
    fn reap(&mut self) -> Option<Completion>;

    /// Tasks that were pushed and have not come back.
    fn in_flight(&self) -> usize;

    /// After a failed `enter`, and no `enter` may follow: the tasks of which the kernel never heard.
    fn take_back(&mut self) -> Vec<Task>;

    /// Gives up on those that are still with the kernel: their memory is leaked, their tickets end.
    fn abandon(&mut self);
}

/// What a ring is tried out by before anything is entrusted to it.
pub(super) trait Echo {
    /// Hands the kernel an operation that does nothing.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn send(&mut self) -> io::Result<()>;

    /// Whether that is over; waits for it no longer than told.
    fn has_come_back(&mut self, within: Duration) -> bool;
}

/// How often, and how long each time, the kernel is waited for when it is tried out. It is asked for
/// something that it does at once; a whole second is for monitors and emulators.
const LOOKS: u32 = 10;
const LOOK: Duration = Duration::from_millis(100);

/// Fails, after a second, where a kernel takes operations and never ends them.
///
/// # Errors
/// The kernel's refusal; `TimedOut` where it took the operation and gave nothing back.
pub(super) fn try_out(kernel: &mut impl Echo) -> io::Result<()> {
    kernel.send()?;
    match (0..LOOKS).any(|_| kernel.has_come_back(LOOK)) {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::TimedOut, "it took a no-op and never ended it")),
    }
}
