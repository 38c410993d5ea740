//! How the states of shards are come by: through the hook that tells them to a router.
//!
//! ```text
//!   take (each look) ── wanted ──► the next group of writes asks its router, pressed or not
//!                                  ── fallback(states) ── kept for the next take
//! ```
//! It places and chooses as DiaLSM's own router does, which it asks. The states are copied once a look, by whoever
//! is the first to be routed after it; in between, all it costs is the reading of a flag. Nothing is told while no
//! write is routed, or where redirecting is off.

use dialsm::router::HashRouter;
use dialsm_core::Options;
use dialsm_core::routing::{Router, RouterObject, ShardState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Default)]
pub(super) struct ShardLooks {
    wanted: AtomicBool,
    seen: Mutex<Vec<ShardState>>,
}

impl ShardLooks {
    /// Makes one the router of a database that is opened with these options.
    pub(super) fn install(options: &mut Options) -> Arc<ShardLooks> {
        let looks = Arc::new(ShardLooks::default());
        options.router = Some(RouterObject(looks.clone()));
        looks
    }

    /// What was told after the last call, if anything was, and asks for more.
    pub(super) fn take(&self) -> Vec<ShardState> {
        let seen = std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner));
        self.wanted.store(true, Ordering::Relaxed);
        seen
    }
}

impl Router for ShardLooks {
    #[inline]
    fn place(&self, hash_key: &[u8; 16], shards: u16, key: &[u8]) -> u16 {
        HashRouter.place(hash_key, shards, key)
    }

    fn fallback(&self, primary: u16, shards: &[ShardState]) -> Option<u16> {
        if self.wanted.load(Ordering::Relaxed) && self.wanted.swap(false, Ordering::Relaxed) {
            *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = shards.to_vec();
            // Perhaps it is asked for the look's sake only: then the value stays, as it would have.
            if shards.get(usize::from(primary)).is_some_and(|shard| shard.is_open) {
                return None;
            }
        }
        HashRouter.fallback(primary, shards)
    }

    fn shards_by_default(&self, background_jobs_max: usize) -> u16 {
        HashRouter.shards_by_default(background_jobs_max)
    }

    fn is_asked_always(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_chooses_as_the_own_router_does_and_looks_when_it_is_told_to() {
        let state = |is_open, memtable_bytes| ShardState { is_open, memtable_bytes, ..ShardState::default() };
        let shards = [state(false, 9), state(true, 5), state(true, 1), state(true, 7)];
        let looks = ShardLooks::default();
        assert!(!looks.is_asked_always());
        assert_eq!(looks.fallback(0, &shards), HashRouter.fallback(0, &shards));
        assert!(looks.take().is_empty() && looks.is_asked_always());
        assert_eq!(looks.fallback(1, &shards), None, "an open shard keeps its values");
        assert!(!looks.is_asked_always());
        assert_eq!(looks.take(), shards);
        assert_eq!(looks.fallback(0, &shards), HashRouter.fallback(0, &shards));
        assert_eq!((looks.take().len(), looks.take().len()), (4, 0));
        assert_eq!(looks.place(&[3; 16], 8, b"key"), HashRouter.place(&[3; 16], 8, b"key"));
    }
}
