//! Shared by the simulation and crash tests: small settings, a tapped file system, and a random
//! workload whose every state can be predicted.

#![allow(dead_code, reason = "each test binary uses its own part")]

mod switches;
pub(crate) mod tap;
pub(crate) mod workload;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use dialsm_core::options::Compression;
use dialsm_core::{Db, Options, ReadOptions, WriteOptions, merge_operator};
use dialsm_io::{Env, SimEnv, SplitMix64};
use switches::defaults;

/// Where the simulated database lives.
pub(crate) const DIR: &str = "/db";

/// Keys and values of a database.
pub(crate) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Settings under which a few hundred writes flush, compact and turn log segments over.
pub(crate) fn tiny() -> Options {
    Options {
        write_buffer_bytes: 64 << 10,
        write_buffers_max: 3,
        table_bytes: 64 << 10,
        level0_compaction_trigger: 2,
        level0_slowdown_trigger: 6,
        level0_stop_trigger: 8,
        level_base_bytes: 128 << 10,
        level_multiplier: 3.0,
        log_segment_bytes: 64 << 10,
        log_recycle_max: 2,
        block_cache_bytes: 1 << 20,
        compression: Compression::None,
        compression_bottom: Compression::Lz4,
        merge_operator: Some(merge_operator::append(b"+")),
        ..defaults()
    }
}

/// Opens the simulated database as `env` sees it.
pub(crate) fn open(env: &Arc<SimEnv>, options: &Options) -> dialsm_core::Result<Db> {
    let env: Arc<dyn Env> = env.clone();
    Db::open(env, Path::new(DIR), options.clone())
}

pub(crate) fn unsynced() -> WriteOptions {
    WriteOptions::default()
}

pub(crate) fn synced() -> WriteOptions {
    WriteOptions { sync: true, ..WriteOptions::default() }
}

/// All that the database holds, read forward; a pass backward must agree.
pub(crate) fn contents(db: &Db) -> dialsm_core::Result<Model> {
    let mut iter = db.iter(&ReadOptions::default())?;
    let mut found = Model::new();
    iter.seek_to_first()?;
    while iter.valid() {
        let before = found.insert(iter.key().to_vec(), iter.value().to_vec());
        assert!(before.is_none(), "a key came twice");
        iter.next()?;
    }
    let mut left = found.len();
    iter.seek_to_last()?;
    while iter.valid() {
        assert_eq!(found.get(iter.key()).map(Vec::as_slice), Some(iter.value()));
        left -= 1;
        iter.prev()?;
    }
    assert_eq!(left, 0, "the passes in the two directions differ");
    Ok(found)
}

/// Letters only, so that no value looks like a witness key.
pub(crate) fn letters(rng: &mut SplitMix64, len: u64) -> Vec<u8> {
    (0..len).map(|_| b'a' + rng.below(26) as u8).collect()
}
