//! A router for tests that redirects at random, stalled or not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dialsm_core::routing::{Router, RouterObject, ShardState};

use crate::router::HashRouter;

/// Places keys as [`HashRouter`] does, and sends a share of all values to a shard drawn at random: the
/// same ones for the same seed, as long as the writes come in the same order.
pub struct ForcedRouter {
    permille: u64,
    drawn: AtomicU64,
}

impl ForcedRouter {
    /// Redirects `permille` of a thousand values.
    pub fn object(permille: u64, seed: u64) -> RouterObject {
        RouterObject(Arc::new(ForcedRouter { permille, drawn: AtomicU64::new(seed << 32) }))
    }

    /// The next number of the sequence (splitmix64).
    fn draw(&self) -> u64 {
        let mut z = self.drawn.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl Router for ForcedRouter {
    fn place(&self, hash_key: &[u8; 16], shards: u16, key: &[u8]) -> u16 {
        HashRouter.place(hash_key, shards, key)
    }

    fn fallback(&self, primary: u16, shards: &[ShardState]) -> Option<u16> {
        let drawn = self.draw();
        if drawn % 1000 >= self.permille {
            return None;
        }
        let others = shards.len() as u64 - 1;
        let step = 1 + (drawn >> 32) % others;
        Some(((u64::from(primary) + step) % shards.len() as u64) as u16)
    }

    fn shards_by_default(&self, background_jobs_max: usize) -> u16 {
        HashRouter.shards_by_default(background_jobs_max)
    }

    fn is_asked_always(&self) -> bool {
        true
    }
}
