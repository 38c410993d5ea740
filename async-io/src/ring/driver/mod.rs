//! What the ring's thread does with completions: continues short transfers, repeats what did not
//! run, puts a sync behind the write it belongs to, and passes on what the ring can't do.
//!
//! ```text
//!   ready --push--> kernel --reap--> settle --+--> ticket: done, or failed
//!     ^                                       |
//!     +------ rest of a short transfer, ------+--> helper: plain calls on another thread, where
//!             what did not run                     the kernel has said "did not run" too often, or
//!                                                  a file past the page cache gets an unaligned part
//!
//!   a write with its sync:   all bytes written   short            failed
//!     sync 0                 done                rest, then sync  failed
//!     sync ECANCELED & co.   sync alone          rest, then sync  failed
//!     sync failed            failed              failed           failed
//! ```
//!
//! INVARIANT (rule 15): a sync that counts was submitted with, linked behind, the last bytes of its
//! write, or after they were reaped. Upheld by `Task::part` and `settle_write`; attacked by
//! `a_short_write_never_lets_its_sync_count` and by the conformance tests.
//!
//! Nothing here is unsafe, so Miri runs it all, over the fake kernel of `driver/tests.rs`.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering::Relaxed;

use super::kernel::{Completion, Kernel};
use super::pool::Pusher;
use super::task::{Part, Task};

/// How often in a row a part may come back without having run before plain calls take over. The
/// kernel says so for moments without memory; forever would be an endless loop.
const ATTEMPTS_MAX: u32 = 16;

pub(super) struct Driver<K> {
    kernel: K,
    ready: VecDeque<Task>,
    helper: Pusher,
}

/// What [`Driver::push`] did.
pub(super) struct Pushed {
    /// So many tasks were queued,
    pub(super) count: usize,
    /// and these were all that were ready.
    pub(super) is_all: bool,
}

/// Whether an error number says that the call did not run, or not to its end, and lost nothing.
fn did_not_run(res: i32) -> bool {
    matches!(-res, libc::EINTR | libc::EAGAIN | libc::ECANCELED)
}

impl<K: Kernel> Driver<K> {
    pub(super) fn new(kernel: K, helper: Pusher) -> Driver<K> {
        Driver { kernel, ready: VecDeque::new(), helper }
    }

    /// Takes on tasks. Those that the kernel can't do go to the helper.
    pub(super) fn take_on(&mut self, tasks: impl IntoIterator<Item = Task>) {
        for task in tasks {
            if self.kernel.can_do(&task) {
                self.ready.push_back(task);
            } else {
                self.help(task);
            }
        }
    }

    /// Whether every task taken on has left.
    pub(super) fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.kernel.in_flight() == 0
    }

    /// Queues as much as there is room for.
    pub(super) fn push(&mut self) -> Pushed {
        let mut count = 0;
        while let Some(task) = self.ready.pop_front() {
            // Looked at each time: a short transfer may leave a rest that is not aligned.
            if !task.is_fit_for_kernel() {
                self.help(task);
                continue;
            }
            if let Err(task) = self.kernel.push(task) {
                self.ready.push_front(task);
                return Pushed { count, is_all: false };
            }
            count += 1;
        }
        Pushed { count, is_all: true }
    }

    /// Hands over what is queued and settles what has completed, waiting for something to do so if
    /// told.
    ///
    /// # Errors
    /// Those after which only [`Driver::wind_down`] may be called.
    pub(super) fn turn(&mut self, wait: bool) -> io::Result<()> {
        self.kernel.enter(wait)?;
        while let Some(completion) = self.kernel.reap() {
            self.settle(completion);
        }
        Ok(())
    }

    /// The kernel has taken the ring away: what it never heard of goes to the helper, what it has
    /// is waited for by looking, `looks` times at most with a `pause` before each. Tasks that do
    /// not come back are given up and their memory leaked, for the kernel may still write there.
    pub(super) fn wind_down(&mut self, looks: u32, pause: &dyn Fn()) {
        let mut never_heard = self.kernel.take_back();
        never_heard.extend(self.ready.drain(..));
        never_heard.into_iter().for_each(|task| self.help(task));
        for _ in 0..looks {
            while let Some(completion) = self.kernel.reap() {
                self.settle(completion);
            }
            self.ready.drain(..).collect::<Vec<_>>().into_iter().for_each(|task| self.help(task));
            if self.kernel.in_flight() == 0 {
                return;
            }
            pause();
        }
        self.kernel.abandon();
    }

    fn help(&self, task: Task) {
        task.counts().helped.fetch_add(1, Relaxed);
        self.helper.push(task);
    }

    fn settle(&mut self, completion: Completion) {
        let Completion { task, part, res, sync_res } = completion;
        match part {
            Part::Transfer { is_write: false, .. } => self.settle_read(task, res),
            Part::Transfer { .. } => self.settle_write(task, res, sync_res),
            Part::SyncData | Part::SyncDir if res >= 0 => task.succeed(),
            Part::SyncData | Part::SyncDir if did_not_run(res) => self.again(task),
            Part::SyncData => task.fail_errno(-res, "sync"),
            Part::SyncDir => task.fail_errno(-res, "sync directory"),
        }
    }

    fn settle_read(&mut self, mut task: Task, res: i32) {
        match res {
            0 => task.succeed(),
            res if res < 0 => self.refused(task, -res, "read"),
            res => {
                task.done += res as usize;
                if task.is_transferred() { task.succeed() } else { self.go_on(task) }
            }
        }
    }

    fn settle_write(&mut self, mut task: Task, res: i32, sync_res: Option<i32>) {
        // A sync that ran and failed has cost this file its trust, whatever became of the write.
        if let Some(errno) = sync_res.filter(|res| *res < 0 && !did_not_run(*res)) {
            task.done += res.max(0) as usize;
            return task.fail_errno(-errno, "sync");
        }
        match res {
            // Not known to happen on a regular file; without this it would be an endless loop.
            0 => task.fail_errno(libc::EIO, "write of no bytes"),
            res if res < 0 => self.refused(task, -res, "write"),
            res => {
                task.done += res as usize;
                match (task.is_transferred(), sync_res) {
                    // A sync behind a short write does not count, though it may have run.
                    (false, _) => self.go_on(task),
                    (true, None | Some(0..)) => task.succeed(),
                    (true, Some(_)) => self.again(task),
                }
            }
        }
    }

    /// A transfer ended in an error.
    fn refused(&mut self, task: Task, errno: i32, what: &str) {
        match errno {
            errno if did_not_run(-errno) => self.again(task),
            // The file (or a filter before the kernel) knows only plain calls.
            libc::EOPNOTSUPP | libc::ENOSYS => self.help(task),
            errno => task.fail_errno(errno, what),
        }
    }

    /// Progress was made, and there is more to transfer.
    fn go_on(&mut self, mut task: Task) {
        task.attempts = 0;
        task.counts().short.fetch_add(1, Relaxed);
        self.ready.push_back(task);
    }

    /// Nothing was done, and nothing lost.
    fn again(&mut self, mut task: Task) {
        task.attempts += 1;
        task.counts().retried.fetch_add(1, Relaxed);
        if task.attempts > ATTEMPTS_MAX { self.help(task) } else { self.ready.push_back(task) }
    }
}
