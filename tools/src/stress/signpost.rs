//! Where keys and values go in a run without log, so that the judge of a cut knows it.
//!
//! Without a log nothing but the floors of the trees tells what a power cut leaves, and they tell it only to one
//! who knows the trees of each operation, and the order of all of them. So users write one after the other,
//! each in its turn, and say before every batch where the values of others' shards are to go; flushes,
//! compactions, rollbacks, reads and checkpoints of the other users go on meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};

use dialsm::testing::ForcedRouter;
use dialsm_core::routing::{Router, RouterObject, ShardState};
use dialsm_io::{Env, Event};

use super::workload::place;

/// Values stay.
const NOWHERE: u16 = u16::MAX;

/// The router of a run without log, and the users' turns.
pub struct Signpost {
    target: AtomicU16,
    sent: AtomicU64,
    taken: AtomicBool,
    given_back: Arc<dyn Event>,
}

impl Signpost {
    /// Nobody's turn.
    pub fn new(env: &dyn Env) -> Arc<Signpost> {
        Arc::new(Signpost {
            target: AtomicU16::new(NOWHERE),
            sent: AtomicU64::new(0),
            taken: AtomicBool::new(false),
            given_back: env.event(),
        })
    }

    /// For the options.
    pub fn router(self: &Arc<Signpost>) -> RouterObject {
        RouterObject(self.clone())
    }

    /// Waits for a turn; values go to `target` until it ends.
    pub fn turn(&self, target: Option<u16>) -> Turn<'_> {
        loop {
            let seen = self.given_back.epoch();
            if !self.taken.swap(true, Ordering::AcqRel) {
                break;
            }
            self.given_back.wait(seen, None);
        }
        self.sent.store(0, Ordering::Release);
        self.target.store(target.unwrap_or(NOWHERE), Ordering::Release);
        Turn(self)
    }
}

/// A user's turn, given back when dropped.
pub struct Turn<'a>(&'a Signpost);

impl Turn<'_> {
    /// Values sent to another shard so far.
    pub fn sent(&self) -> u64 {
        self.0.sent.load(Ordering::Acquire)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.target.store(NOWHERE, Ordering::Release);
        self.0.taken.store(false, Ordering::Release);
        self.0.given_back.notify();
    }
}

impl Router for Signpost {
    fn place(&self, _: &[u8; 16], shards: u16, key: &[u8]) -> u16 {
        place(key, shards)
    }

    fn fallback(&self, primary: u16, _: &[ShardState]) -> Option<u16> {
        let target = self.target.load(Ordering::Acquire);
        if target == NOWHERE || target == primary {
            return None;
        }
        self.sent.fetch_add(1, Ordering::AcqRel);
        Some(target)
    }

    fn shards_by_default(&self, background_jobs_max: usize) -> u16 {
        ForcedRouter::object(0, 0).0.shards_by_default(background_jobs_max)
    }

    fn is_asked_always(&self) -> bool {
        true
    }
}
