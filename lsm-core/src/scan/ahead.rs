//! Shards of a long scan, each packed into blocks ahead of who reads it.
//!
//! ```text
//! worker ──► producer of shard i ──fill──► ready: block, block ──► Ahead i ─┐
//! worker ──► producer of shard j ──fill──► ready: block        ──► Ahead j ─┴─ merge ─ DbIter ─ batch
//!                 ▲                                                  │
//!                 └──── who finds no block and nobody at it ◄────────┘  fills one itself
//! ```
//! Nobody depends on a worker: the caller packs a block itself where none is ready and no worker is just at
//! it. So the scan goes on with workers that are busy elsewhere, with none, and when the database is closed.
//!
//! INVARIANTS
//! - A lane's blocks come in order and once each: its producer is in one pair of hands at a time, and what it
//!   has packed is put into the lane before the producer is.
//! - What is ahead is bounded: [`READY_MAX`] blocks a lane, of about `block_bytes_max` bytes, one in the making
//!   and one in the reader's hands. Blocks begin small and double, so that a scan that ends soon has wasted little.
//! - After [`Lanes::halt`] no worker touches a file for this scan (a closed database gives its lock away
//!   with its last iterator).
//! - A panic while packing ends the lane with an error, never with an end.
//! - Locks are held over a few instructions, and never over a fill, a wait or a notify.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dialsm_io::env::Nanos;
use dialsm_io::{Env, Event};
use parking_lot::Mutex;

use crate::key::Comparator;
use crate::range_del::scan::RangeStats;
use crate::read::internal::InternalIter;
use crate::scan::ScanBatch;
use crate::scan::producer::Producer;
use crate::scan::workers::ScanWorkers;
use crate::table::ReadStats;
use crate::{Error, ErrorKind, Result};

/// Blocks that wait in a lane.
const READY_MAX: usize = 2;

/// Size of a lane's first block, in bytes.
const BLOCK_BYTES_MIN: usize = 32 << 10;

/// What reading ahead needs.
pub(crate) struct Helpers {
    pub(crate) env: Arc<dyn Env>,
    pub(crate) workers: Arc<ScanWorkers>,
    /// Bytes that all lanes together may have ahead.
    pub(crate) bytes_max: usize,
}

/// All lanes of a scan.
pub(crate) struct Lanes {
    comparator: Comparator,
    lanes: Box<[Mutex<Lane>]>,
    /// Some lane has something new.
    changed: Arc<dyn Event>,
    halted: AtomicBool,
    env: Arc<dyn Env>,
    block_bytes_max: usize,
    workers: Arc<ScanWorkers>,
}

struct Lane {
    producer: Option<Box<Producer>>,
    /// Somebody packs; the producer is with them.
    busy: bool,
    /// A worker has been asked.
    asked: bool,
    ready: VecDeque<ScanBatch>,
    /// Blocks that were read, to be used again.
    spare: Vec<ScanBatch>,
    failed: Option<Error>,
    block_bytes: usize,
}

/// What a reader finds in a lane.
enum Found {
    Block,
    End,
    Failed(Error),
    /// Nothing is ready and nobody is at it.
    Producer(Box<Producer>, usize),
    /// Somebody is at it.
    Busy,
}

impl Lanes {
    /// Lanes for the producers.
    pub(crate) fn new(helpers: Helpers, comparator: Comparator, producers: Vec<Producer>) -> Arc<Lanes> {
        let Helpers { env, workers, bytes_max } = helpers;
        let changed = env.event();
        // However little is allowed, a block has an entry.
        let block_bytes_max = (bytes_max / (producers.len() * (READY_MAX + 2)).max(1)).max(1);
        let lane = |producer| {
            Mutex::new(Lane {
                producer: Some(Box::new(producer)),
                busy: false,
                asked: false,
                ready: VecDeque::with_capacity(READY_MAX),
                spare: Vec::new(),
                failed: None,
                block_bytes: BLOCK_BYTES_MIN.min(block_bytes_max),
            })
        };
        let lanes = producers.into_iter().map(lane).collect();
        Arc::new(Lanes {
            comparator,
            lanes,
            changed,
            halted: AtomicBool::new(false),
            env,
            block_bytes_max,
            workers,
        })
    }

    /// Asks a worker to pack ahead in lane `at`, if there is room and none has been asked.
    pub(crate) fn ask(self: &Arc<Lanes>, at: usize) {
        let is_due = {
            let mut lane = self.lanes[at].lock();
            let is_due = lane.has_work() && !lane.asked && !self.halted.load(Ordering::Relaxed);
            lane.asked |= is_due;
            is_due
        };
        if is_due {
            self.workers.queue(self.clone(), at);
        }
    }

    /// A worker's turn at lane `at`: packs one block.
    pub(crate) fn work(self: &Arc<Lanes>, at: usize) {
        let taken = {
            let mut lane = self.lanes[at].lock();
            lane.asked = false;
            let may = lane.has_work() && !self.halted.load(Ordering::Relaxed);
            if may { lane.take_producer() } else { None }
        };
        if let Some((producer, bytes)) = taken {
            self.pack(at, producer, bytes);
            self.ask(at);
        }
    }

    /// Packs one block with the producer taken from lane `at`, and puts both back.
    fn pack(&self, at: usize, mut producer: Box<Producer>, bytes: usize) {
        let mut block = self.lanes[at].lock().spare.pop().unwrap_or_default();
        let mut back = PutBack { lanes: self, at, done: None };
        let filled = producer.fill(&mut block, bytes, &self.halted);
        back.done = Some((producer, block, filled));
    }

    /// What lane `at` has for its reader; a block is put in place of `block`, whose memory is used again.
    fn take(&self, at: usize, block: &mut ScanBatch) -> Found {
        let mut lane = self.lanes[at].lock();
        if let Some(next) = lane.ready.pop_front() {
            let old = std::mem::replace(block, next);
            if lane.spare.len() < READY_MAX {
                lane.spare.push(old);
            }
            return Found::Block;
        }
        if let Some(error) = &lane.failed {
            return Found::Failed(error.clone());
        }
        if lane.busy {
            return Found::Busy;
        }
        if lane.producer.as_ref().is_none_or(|producer| producer.is_over()) {
            return Found::End;
        }
        lane.take_producer().map_or(Found::End, |(producer, bytes)| Found::Producer(producer, bytes))
    }

    /// Stops the packing, and returns when nobody is at it any more.
    fn halt(&self) {
        if self.env.check_fork().is_err() {
            // A child of fork() has none of the threads.
            return;
        }
        self.halted.store(true, Ordering::Relaxed);
        loop {
            let seen = self.changed.epoch();
            if self.lanes.iter().all(|lane| !lane.lock().busy) {
                return;
            }
            self.changed.wait(seen, None);
        }
    }
}

impl Lane {
    /// Whether a worker could pack a block.
    fn has_work(&self) -> bool {
        self.ready.len() < READY_MAX && self.producer.as_ref().is_some_and(|producer| !producer.is_over())
    }

    fn take_producer(&mut self) -> Option<(Box<Producer>, usize)> {
        let producer = self.producer.take()?;
        self.busy = true;
        Some((producer, self.block_bytes))
    }
}

/// Gives a lane back what was taken; without it, if packing panicked.
struct PutBack<'a> {
    lanes: &'a Lanes,
    at: usize,
    done: Option<(Box<Producer>, ScanBatch, Result<()>)>,
}

impl Drop for PutBack<'_> {
    fn drop(&mut self) {
        {
            let mut lane = self.lanes.lanes[self.at].lock();
            lane.busy = false;
            match self.done.take() {
                Some((producer, block, Ok(()))) => {
                    lane.producer = Some(producer);
                    let list = if block.is_empty() { None } else { Some(block) };
                    lane.ready.extend(list);
                    lane.block_bytes = (lane.block_bytes * 2).min(self.lanes.block_bytes_max);
                }
                Some((producer, _, Err(error))) => {
                    lane.producer = Some(producer);
                    lane.failed = Some(error);
                }
                None => {
                    let error = Error::new(ErrorKind::Internal, "reading ahead for a scan panicked");
                    lane.failed = Some(error);
                }
            }
        }
        self.lanes.changed.notify();
    }
}

/// One lane as a source: goes forward only.
pub(crate) struct Ahead {
    lanes: Arc<Lanes>,
    lane: usize,
    block: ScanBatch,
    row: usize,
    deadline: Option<Nanos>,
}

impl Ahead {
    /// The lanes as sources, each standing where its producer stood.
    ///
    /// # Errors
    /// As those of the producers.
    pub(crate) fn of(lanes: &Arc<Lanes>, deadline: Option<Nanos>) -> Result<Vec<Ahead>> {
        (0..lanes.lanes.len()).for_each(|at| lanes.ask(at));
        let ahead = |lane| {
            let block = ScanBatch::new();
            let mut ahead = Ahead { lanes: lanes.clone(), lane, block, row: 0, deadline };
            ahead.refill().map(|()| ahead)
        };
        (0..lanes.lanes.len()).map(ahead).collect()
    }

    /// Stops the packing for all lanes of the scan; they are good for nothing then but their numbers.
    pub(crate) fn halt(&self) {
        self.lanes.halt();
    }

    /// What range tombstones have cost and spared so far.
    pub(crate) fn range_stats(&self) -> RangeStats {
        let lane = self.lanes.lanes[self.lane].lock();
        lane.producer.as_ref().map_or_else(RangeStats::default, |producer| producer.source().range_stats())
    }

    /// To the first entry of the next block.
    #[cold]
    fn refill(&mut self) -> Result<()> {
        self.row = 0;
        loop {
            let seen = self.lanes.changed.epoch();
            match self.lanes.take(self.lane, &mut self.block) {
                Found::Block => {
                    self.lanes.ask(self.lane);
                    return Ok(());
                }
                Found::End => {
                    self.block.clear();
                    return Ok(());
                }
                Found::Failed(error) => {
                    self.block.clear();
                    return Err(error);
                }
                Found::Producer(producer, bytes) => self.lanes.pack(self.lane, producer, bytes),
                Found::Busy => {
                    self.lanes.env.check_fork()?;
                    if !self.lanes.changed.wait(seen, self.deadline) && self.deadline.is_some() {
                        self.block.clear();
                        return Err(Error::new(ErrorKind::TimedOut, "the read's deadline has passed"));
                    }
                }
            }
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        let gone = {
            let mut lane = self.lanes.lanes[self.lane].lock();
            (lane.producer.take(), std::mem::take(&mut lane.ready), std::mem::take(&mut lane.spare))
        };
        drop(gone);
    }
}

#[cold]
fn forward_only() -> Error {
    Error::new(ErrorKind::Internal, "a scan that is read ahead goes forward only")
}

impl InternalIter for Ahead {
    #[inline]
    fn valid(&self) -> bool {
        self.row < self.block.len()
    }

    fn seek_to_first(&mut self) -> Result<()> {
        Err(forward_only())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        Err(forward_only())
    }

    /// To a target ahead; what lies between was packed already, or is about to be.
    fn seek(&mut self, target: &[u8]) -> Result<()> {
        while self.valid() && self.lanes.comparator.compare_internal(self.key(), target).is_lt() {
            self.next()?;
        }
        Ok(())
    }

    fn seek_for_prev(&mut self, _target: &[u8]) -> Result<()> {
        Err(forward_only())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.row += 1;
        if self.row < self.block.len() { Ok(()) } else { self.refill() }
    }

    fn prev(&mut self) -> Result<()> {
        Err(forward_only())
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.block.key(self.row)
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.block.value(self.row)
    }

    fn add_stats(&self, to: &mut ReadStats) {
        if let Some(producer) = &self.lanes.lanes[self.lane].lock().producer {
            producer.source().add_stats(to);
        }
    }
}
