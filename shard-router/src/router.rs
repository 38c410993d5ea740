//! The router of DiaLSM: keyed-hash placement and the paper's choice of fallbacks.

use std::sync::Arc;

use dialsm_core::routing::{Router, RouterObject, ShardState};

use crate::placement::place;
use crate::redirect::choose;

/// See the module header.
#[derive(Clone, Copy, Debug, Default)]
pub struct HashRouter;

impl HashRouter {
    /// For [`Options::router`](crate::Options).
    pub fn object() -> RouterObject {
        RouterObject(Arc::new(HashRouter))
    }
}

impl Router for HashRouter {
    #[inline]
    fn place(&self, hash_key: &[u8; 16], shards: u16, key: &[u8]) -> u16 {
        place(hash_key, shards, key)
    }

    fn fallback(&self, primary: u16, shards: &[ShardState]) -> Option<u16> {
        choose(primary, shards)
    }

    /// Two for each background job, so that some are open while others are busy.
    fn shards_by_default(&self, background_jobs_max: usize) -> u16 {
        (2 * background_jobs_max).clamp(4, 16) as u16
    }
}
