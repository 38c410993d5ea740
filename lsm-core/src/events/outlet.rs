//! A bounded queue of events, and the thread that empties it.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dialsm_io::Env;
use dialsm_io::env::Nanos;
use parking_lot::Mutex;

use super::{Event, EventsDropped, Record};

/// Events that may wait, those included that only have their place so far.
pub(super) const WAITING_MAX: usize = 4096;

thread_local!(static DELIVERS: Cell<usize> = const { Cell::new(0) });

/// Who takes the events of an outlet.
pub(super) trait Sink {
    fn take(&mut self, record: &Record);

    /// Nothing waits just now.
    fn pause(&mut self) {}

    /// When it wants to be paused the next time though nothing happens.
    fn wakes_at(&self) -> Option<Nanos> {
        None
    }
}

#[derive(Default)]
struct Queue {
    records: VecDeque<Arc<Record>>,
    /// Ends to come of beginnings that were taken: each has its place.
    ends: usize,
    /// Left out since the last one that was taken.
    dropped: u64,
    /// No more will come.
    is_ending: bool,
    /// Nothing is delivered any more.
    is_shut: bool,
}

impl Queue {
    fn has_room(&self, places: usize) -> bool {
        !self.is_shut && self.records.len() + self.ends + places <= WAITING_MAX
    }

    /// Notes what was left out, where the next event comes in.
    fn note_dropped(&mut self, wall_us: u64) {
        if self.dropped > 0 && (self.is_ending || self.has_room(2)) {
            let event = Event::from(EventsDropped { count: std::mem::take(&mut self.dropped) });
            self.records.push_back(Arc::new(Record { wall_us, event }));
        }
    }
}

/// See the module header.
pub(super) struct Outlet {
    queue: Mutex<Queue>,
    wake: Arc<dyn dialsm_io::Event>,
    /// Something was put in and nobody has rung.
    is_unrung: AtomicBool,
    dropped: AtomicU64,
}

impl Outlet {
    pub(super) fn new(env: &dyn Env) -> Arc<Outlet> {
        Arc::new(Outlet {
            queue: Mutex::default(),
            wake: env.event(),
            is_unrung: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
        })
    }

    pub(super) fn push(&self, record: &Arc<Record>) {
        self.push_if_room(record, 0);
    }

    /// Takes a beginning, with the place of its end; or neither.
    pub(super) fn push_begin(&self, record: &Arc<Record>) -> bool {
        self.push_if_room(record, 1)
    }

    fn push_if_room(&self, record: &Arc<Record>, ends: usize) -> bool {
        let mut queue = self.queue.lock();
        queue.note_dropped(record.wall_us);
        let is_taken = queue.has_room(1 + ends);
        if is_taken {
            queue.records.push_back(record.clone());
            queue.ends += ends;
            self.is_unrung.store(true, Ordering::Release);
        } else if !queue.is_shut {
            queue.dropped += 1 + ends as u64;
            self.dropped.fetch_add(1 + ends as u64, Ordering::Relaxed);
        }
        is_taken
    }

    /// Takes the end of what [`Outlet::push_begin`] took.
    pub(super) fn push_end(&self, record: &Arc<Record>) {
        let mut queue = self.queue.lock();
        queue.ends -= 1;
        if !queue.is_shut {
            queue.records.push_back(record.clone());
            self.is_unrung.store(true, Ordering::Release);
        }
    }

    #[inline]
    pub(super) fn ring(&self) {
        if self.is_unrung.load(Ordering::Acquire) && self.is_unrung.swap(false, Ordering::AcqRel) {
            self.wake.notify();
        }
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Delivers until the end.
    pub(super) fn run(&self, sink: &mut dyn Sink) {
        DELIVERS.set(self.address());
        loop {
            let seen = self.wake.epoch();
            let (next, is_over) = {
                let mut queue = self.queue.lock();
                let next = queue.records.pop_front().filter(|_| !queue.is_shut);
                let is_over = next.is_none() && (queue.is_ending || queue.is_shut);
                (next, is_over)
            };
            match next {
                Some(record) => sink.take(&record),
                None => {
                    sink.pause();
                    if is_over {
                        return;
                    }
                    self.wake.wait(seen, sink.wakes_at());
                }
            }
        }
    }

    /// Nothing will be put in after `last`, which is always taken.
    pub(super) fn end(&self, last: Option<&Arc<Record>>) {
        {
            let mut queue = self.queue.lock();
            queue.is_ending = true;
            if let Some(last) = last {
                queue.note_dropped(last.wall_us);
                queue.records.push_back(last.clone());
            }
        }
        self.wake.notify();
    }

    /// Nothing is delivered any more: what is left is given up.
    pub(super) fn shut(&self) {
        let left = {
            let mut queue = self.queue.lock();
            queue.is_shut = true;
            std::mem::take(&mut queue.records)
        };
        drop(left);
    }

    /// Whether this thread runs it.
    pub(super) fn is_mine(&self) -> bool {
        DELIVERS.get() == self.address()
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

/// Which outlets have taken a beginning, and so get its end.
#[must_use]
pub(crate) struct Taken(u8);

impl Taken {
    pub(super) fn of(taken: impl Iterator<Item = bool>) -> Taken {
        Taken(taken.enumerate().map(|(at, is_taken)| u8::from(is_taken) << at).sum())
    }

    pub(super) fn among<'o>(&self, outlets: &'o [Arc<Outlet>]) -> impl Iterator<Item = &'o Arc<Outlet>> {
        let taken = self.0;
        outlets.iter().enumerate().filter(move |(at, _)| taken & (1 << at) != 0).map(|(_, outlet)| outlet)
    }
}
