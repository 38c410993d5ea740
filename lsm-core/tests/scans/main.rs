//! Bulk scans: over shards with redirects, beside a model and beside iterators; with threads that read ahead and
//! without; in a simulation and with real threads.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

mod ends;
mod model;
mod pins;
mod seeks;
mod threads;

use std::path::Path;
use std::sync::Arc;

use dialsm::router::HashRouter;
use dialsm::testing::ForcedRouter;
use dialsm_core::options::Compression;
use dialsm_core::{Db, Options, ReadOptions, Scan, ScanBatch, ScanOptions, merge_operator};
use dialsm_io::{Env, SplitMix64};

/// Entries in order.
type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// A small tree that flushes and compacts often, cut into shards; of the values a share of a thousand is
/// redirected at random.
fn options(shards: usize, redirect_permille: u64, scan_threads: usize) -> Options {
    let forced = ForcedRouter::object(redirect_permille, shards as u64);
    Options {
        shards,
        scan_threads,
        write_buffer_bytes: 64 << 10,
        write_buffers_max: 3,
        table_bytes: 64 << 10,
        level0_compaction_trigger: 2,
        level_base_bytes: 128 << 10,
        level_multiplier: 3.0,
        block_bytes: 512,
        block_cache_bytes: 256 << 10,
        compression: Compression::None,
        compression_bottom: Compression::Lz4,
        merge_operator: Some(merge_operator::append(b"+")),
        router: Some(if redirect_permille > 0 { forced } else { HashRouter::object() }),
        ..Options::default()
    }
}

fn open(env: &Arc<dyn Env>, dir: &Path, options: &Options) -> Db {
    Db::open(env.clone(), dir, options.clone()).expect("open")
}

fn key(n: u64) -> Vec<u8> {
    format!("key{n:06}").into_bytes()
}

fn value(rng: &mut SplitMix64) -> Vec<u8> {
    let len = match rng.below(12) {
        0 => 0,
        1 => 1500 + rng.below(2000),
        _ => 3 + rng.below(150),
    };
    (0..len).map(|_| b'a' + rng.below(26) as u8).collect()
}

fn add_rows(batch: &ScanBatch, rows: &mut Rows) {
    rows.extend((0..batch.len()).map(|at| (batch.key(at).to_vec(), batch.value(at).to_vec())));
}

/// All that the scan still gives.
fn rest(scan: &mut Scan) -> Rows {
    let mut rows = Rows::new();
    while let Some(batch) = scan.next_batch().expect("a batch") {
        assert!(!batch.is_empty());
        add_rows(&batch, &mut rows);
    }
    assert!(scan.next_batch().expect("the end again").is_none());
    rows
}

/// All that an iterator shows.
fn iterated(db: &Db, options: &ReadOptions, backward: bool) -> Rows {
    let mut iter = db.iter(options).expect("iter");
    let mut rows = Rows::new();
    if backward { iter.seek_to_last() } else { iter.seek_to_first() }.expect("seek");
    while iter.valid() {
        rows.push((iter.key().to_vec(), iter.value().to_vec()));
        if backward { iter.prev() } else { iter.next() }.expect("step");
    }
    rows
}

/// Read ahead from the first batch on, in blocks so small that many pass.
fn eager() -> ScanOptions {
    ScanOptions { long_bytes: 0, batch_bytes: 600, ahead_bytes_max: 8 << 10, ..ScanOptions::default() }
}
