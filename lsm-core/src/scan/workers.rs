//! Threads that read ahead for long scans: one small pool for all scans of a database.
//!
//! Started by the first scan that wants them, never more than the option says; stopped when the database
//! closes. They take lanes in the order in which those were queued, and pack one block of each at a time, so
//! that scans share them evenly. What nobody takes, the scan's own caller does (see `ahead`).

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use dialsm_io::{Env, Event, JobHandle};
use parking_lot::Mutex;

use crate::scan::ahead::Lanes;

/// See the module header.
pub(crate) struct ScanWorkers {
    state: Mutex<State>,
    /// A lane was queued, or the pool changes.
    wake: Arc<dyn Event>,
    threads: Mutex<Vec<Box<dyn JobHandle>>>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<(Arc<Lanes>, usize)>,
    started: usize,
    /// Workers with numbers from here on take nothing.
    workers_max: usize,
    stopping: bool,
}

impl ScanWorkers {
    pub(crate) fn new(env: &dyn Env) -> Arc<ScanWorkers> {
        let (state, threads) = (Mutex::default(), Mutex::default());
        Arc::new(ScanWorkers { state, wake: env.event(), threads })
    }

    /// Lets `workers_max` threads run, as far as the system gives them. How many there are.
    pub(crate) fn start(self: &Arc<ScanWorkers>, env: &dyn Env, workers_max: usize) -> usize {
        loop {
            let number = {
                let mut state = self.state.lock();
                state.workers_max = workers_max;
                if state.stopping {
                    return 0;
                }
                if state.started >= workers_max {
                    return workers_max;
                }
                state.started += 1;
                state.started - 1
            };
            let pool = self.clone();
            let job = Box::new(move || pool.run(number));
            let Ok(thread) = env.spawn(&format!("dialsm-scan-{number}"), job) else {
                // Numbers may then have a gap or come twice; they only say who rests when there are to be fewer.
                self.state.lock().started -= 1;
                return number;
            };
            self.threads.lock().push(thread);
            if self.state.lock().stopping {
                // Who stops the pool may have joined before this thread was on the list.
                self.join_all();
            }
        }
    }

    /// Queues lane `at`; the caller has seen to it that it is queued once.
    pub(crate) fn queue(&self, lanes: Arc<Lanes>, at: usize) {
        {
            let mut state = self.state.lock();
            if state.stopping {
                return;
            }
            state.queue.push_back((lanes, at));
        }
        self.wake.notify();
    }

    /// Ends the threads, after the block that each is just packing. More calls do no harm.
    pub(crate) fn stop(&self) {
        let left = {
            let mut state = self.state.lock();
            state.stopping = true;
            std::mem::take(&mut state.queue)
        };
        drop(left);
        self.wake.notify();
        self.join_all();
    }

    fn join_all(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        threads.into_iter().for_each(|thread| thread.join());
    }

    fn run(&self, number: usize) {
        loop {
            let seen = self.wake.epoch();
            let task = {
                let mut state = self.state.lock();
                if state.stopping {
                    return;
                }
                if number < state.workers_max { state.queue.pop_front() } else { None }
            };
            match task {
                // The lane has heard of a panic; the thread goes on.
                Some((lanes, at)) => drop(catch_unwind(AssertUnwindSafe(|| lanes.work(at)))),
                None => drop(self.wake.wait(seen, None)),
            }
        }
    }
}
