//! The router of DiaLSM: keyed-hash placement and the paper's choice of fallbacks.

use std::sync::Arc;

use dialsm_core::routing::{Router, RouterObject, ShardState};

use crate::placement::place;
use crate::redirect::choose;

/// Shards of a database that is created without saying how many: more than one for each processor, so that
/// some are open while others are busy.
fn shards_by_default() -> u16 {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    (2 * cores).clamp(4, 16) as u16
}

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

    fn shards_by_default(&self) -> u16 {
        shards_by_default()
    }
}
