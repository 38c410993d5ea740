//! The service of worker threads that make plain calls: where there is no ring, and beside a ring
//! for what it can't do.
//!
//! INVARIANT: a task that [`Workers::push`] accepted is run by some worker: workers end only when
//! the queue is closed *and* empty. What is refused comes back to be failed by its owner.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use super::task::{Front, Task, closed};
use super::{AsyncIo, IoKind, IoOp, IoStats, IoTicket, ReadAt};
use crate::env::{Env, Event, Fork, JobHandle, wait_for_end};
use crate::error::{Error, Result};
use crate::fs::Fs;

/// A queue and the threads that empty it.
pub(super) struct Workers {
    shared: Arc<Shared>,
    handles: Mutex<Vec<Box<dyn JobHandle>>>,
}

struct Shared {
    queue: Mutex<Queue>,
    /// Moves when a task comes, the queue closes, or a worker ends.
    event: Arc<dyn Event>,
    fs: Arc<dyn Fs>,
}

struct Queue {
    tasks: VecDeque<Task>,
    is_open: bool,
    workers_alive: usize,
}

impl Workers {
    /// Starts up to `threads` workers; fewer than asked for are enough, none is an error.
    pub(super) fn start(env: &(impl Env + ?Sized), threads: usize, name: &str) -> Result<Workers> {
        let queue = Queue { tasks: VecDeque::new(), is_open: true, workers_alive: 0 };
        let shared =
            Arc::new(Shared { queue: Mutex::new(queue), event: env.event(), fs: Arc::clone(env.fs()) });
        let mut handles = Vec::new();
        for no in 0..threads {
            shared.queue.lock().workers_alive += 1;
            let alive = Alive(Arc::clone(&shared));
            match env.spawn(&format!("{name}{no}"), Box::new(move || alive.work())) {
                Ok(handle) => handles.push(handle),
                Err(e) if handles.is_empty() => return Err(e),
                Err(_) => break,
            }
        }
        Ok(Workers { shared, handles: Mutex::new(handles) })
    }

    pub(super) fn pusher(&self) -> Pusher {
        Pusher(Arc::clone(&self.shared))
    }

    pub(super) fn push(&self, task: Task) {
        Pusher::push_to(&self.shared, task);
    }

    /// Lets the workers do all that was accepted and waits until they are gone.
    pub(super) fn shutdown(&self) {
        self.shared.queue.lock().is_open = false;
        self.shared.event.notify();
        wait_for_end(&*self.shared.event, || self.shared.queue.lock().workers_alive == 0);
        // Taken out first: no lock may be held over a join.
        let handles = std::mem::take(&mut *self.handles.lock());
        handles.into_iter().for_each(|handle| handle.join());
    }

    /// Lets go of threads that do not exist in this process, without asking for them.
    pub(super) fn forget_threads(&self) {
        if let Some(mut handles) = self.handles.try_lock() {
            std::mem::forget(std::mem::take(&mut *handles));
        }
    }
}

/// Hands tasks to workers without keeping them from ending.
#[derive(Clone)]
pub(super) struct Pusher(Arc<Shared>);

impl Pusher {
    pub(super) fn push(&self, task: Task) {
        Pusher::push_to(&self.0, task);
    }

    fn push_to(shared: &Shared, task: Task) {
        let mut queue = shared.queue.lock();
        if queue.is_open && queue.workers_alive > 0 {
            queue.tasks.push_back(task);
            drop(queue);
            shared.event.notify();
        } else {
            drop(queue);
            task.fail(closed());
        }
    }
}

/// Counts a worker as alive until it ends, by a panic too, or was never started.
struct Alive(Arc<Shared>);

impl Alive {
    fn work(self) {
        loop {
            let seen = self.0.event.epoch();
            let mut queue = self.0.queue.lock();
            let (task, is_open) = (queue.tasks.pop_front(), queue.is_open);
            drop(queue);
            match task {
                Some(task) => task.run(&*self.0.fs),
                None if !is_open => return,
                None => drop(self.0.event.wait(seen, None)),
            }
        }
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.workers_alive -= 1;
        // After the last one nobody would run them; their tickets end with an error.
        let left = if queue.workers_alive == 0 { std::mem::take(&mut queue.tasks) } else { VecDeque::new() };
        drop(queue);
        drop(left);
        self.0.event.notify();
    }
}

/// The service.
pub(super) struct PoolIo {
    front: Front,
    workers: Workers,
    report: String,
}

impl PoolIo {
    /// `why` is a remark for the report.
    pub(super) fn start(
        env: &(impl Env + ?Sized),
        fork: Fork,
        threads: usize,
        why: &str,
    ) -> Result<Arc<PoolIo>> {
        if !(1..=64).contains(&threads) {
            return Err(Error::invalid(format!("pool_threads {threads} is not in 1..=64")));
        }
        let workers = Workers::start(env, threads, "dialsm-io")?;
        let report = format!("I/O by a pool of {threads} threads{why}");
        Ok(Arc::new(PoolIo { front: Front::new(env, fork), workers, report }))
    }
}

impl AsyncIo for PoolIo {
    fn submit_and_notify(&self, op: IoOp, done: Option<Arc<dyn Event>>) -> IoTicket {
        match self.front.admit(op, done) {
            Err(over) => over,
            Ok((task, ticket)) => {
                self.workers.push(task);
                ticket
            }
        }
    }

    fn read_many(&self, reads: Vec<ReadAt>) -> Vec<IoTicket> {
        super::service::read_cached_first(&self.front, reads, |tasks| {
            tasks.into_iter().for_each(|task| self.workers.push(task));
        })
    }

    fn kind(&self) -> IoKind {
        IoKind::Pool
    }

    fn report(&self) -> String {
        self.report.clone()
    }

    fn stats(&self) -> IoStats {
        self.front.counts().snapshot()
    }

    fn shutdown(&self) {
        if !self.front.is_forked() {
            self.front.close();
            self.workers.shutdown();
        }
    }
}

impl Drop for PoolIo {
    fn drop(&mut self) {
        if self.front.is_forked() {
            self.workers.forget_threads();
        } else {
            self.workers.shutdown();
        }
    }
}
