//! Scans of one moment beside writers, flushes, compactions and rollbacks.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dialsm_core::{Db, ReadOptions, ScanOptions, WriteBatch, WriteOptions};
use dialsm_io::{Env, OsEnv, SimEnv, SplitMix64};

use super::{eager, iterated, key, open, options, rest, value};

const PAIRS: u64 = 300;

/// Writes both halves of a pair in one batch, with the same value.
fn write(db: &Db, rng: &mut SplitMix64) {
    let mut batch = WriteBatch::new();
    for _ in 0..=rng.below(4) {
        let n = rng.below(PAIRS);
        let (one, other) = (key(n), key(n + PAIRS));
        if rng.chance(1, 5) {
            batch.delete(&one).expect("delete");
            batch.delete(&other).expect("delete");
        } else {
            let value = value(rng);
            batch.put(&one, &value).expect("put");
            batch.put(&other, &value).expect("put");
        }
    }
    db.write(&WriteOptions::default(), batch).expect("write");
}

/// Scans agree with iterators of the same moment, and see batches whole.
fn read(db: &Db, rng: &mut SplitMix64, ahead: &AtomicU64) {
    let snapshot = rng.chance(2, 3).then(|| db.snapshot());
    let read = ReadOptions { snapshot, fill_cache: rng.chance(1, 2), ..ReadOptions::default() };
    let scan_options = ScanOptions { batch_bytes: 200 + rng.below(5000) as usize, ..eager() };
    let mut scan = db.scan(&read, &scan_options).expect("scan");
    let rows = rest(&mut scan);
    ahead.fetch_add(u64::from(scan.is_ahead()), Ordering::Relaxed);
    if read.snapshot.is_some() {
        assert!(rows == iterated(db, &read, false), "a scan and an iterator differ");
    }
    let (first, second) = rows.split_at(rows.partition_point(|row| row.0 < key(PAIRS)));
    assert_eq!(first.len(), second.len(), "half a batch was seen");
    for (one, other) in first.iter().zip(second) {
        assert!(one.1 == other.1, "two halves of a batch differ");
    }
}

fn drive(env: &Arc<dyn Env>, dir: &Path, seed: u64, shards: usize, writes: u64, reads: u64) -> (Db, u64) {
    let db = open(env, dir, &options(shards, if shards > 1 { 300 } else { 0 }, 2));
    let mut rng = SplitMix64::new(seed);
    (0..200).for_each(|_| write(&db, &mut rng));
    let ahead = Arc::new(AtomicU64::new(0));
    let spawn = |name: &str, thread: u64, job: Box<dyn FnOnce(Db, SplitMix64) + Send>| {
        let (db, rng) = (db.clone(), SplitMix64::new(seed * 100 + thread));
        env.spawn(name, Box::new(move || job(db, rng))).expect("spawn")
    };
    let mut handles = Vec::new();
    for thread in 0..2 {
        let job = move |db: Db, mut rng: SplitMix64| (0..writes).for_each(|_| write(&db, &mut rng));
        handles.push(spawn("writer", thread, Box::new(job)));
        let counted = ahead.clone();
        let job = move |db: Db, mut rng: SplitMix64| (0..reads).for_each(|_| read(&db, &mut rng, &counted));
        handles.push(spawn("reader", 10 + thread, Box::new(job)));
    }
    let job = move |db: Db, mut rng: SplitMix64| {
        for _ in 0..reads / 4 {
            match rng.below(3) {
                0 => db.rollback().expect("roll back"),
                1 => db.compact_range(&Default::default(), None, None).expect("compact"),
                _ => db.flush().expect("flush"),
            }
        }
    };
    handles.push(spawn("housekeeper", 20, Box::new(job)));
    handles.into_iter().for_each(|handle| handle.join());
    let ahead = ahead.load(Ordering::Relaxed);
    (db, ahead)
}

#[test]
fn scans_beside_writers_are_of_one_moment() {
    for (seed, shards) in [(1, 4), (2, 8), (3, 1)] {
        let dir = tempfile::tempdir().expect("a directory");
        let os = OsEnv::new();
        let env: Arc<dyn Env> = os.clone();
        let (db, ahead) = drive(&env, dir.path(), seed, shards, 1500, 60);
        assert_eq!(os.panics(), 0, "a reader has panicked");
        assert!(ahead > 60, "only {ahead} scans were read ahead");
        let counters = db.metrics().counters;
        assert!(shards == 1 || counters.redirects > 500, "{counters:?}");
        assert!(shards == 1 || counters.clues_rolled_back > 20, "{counters:?}");
        db.close().expect("close");
    }
}

#[test]
fn scans_beside_writers_are_of_one_moment_in_a_simulation() {
    for seed in 0..6 {
        let sim = SimEnv::new(seed);
        if seed % 2 == 0 {
            sim.switch_at_io();
        }
        let env: Arc<dyn Env> = sim.clone();
        sim.run(|| {
            let (db, ahead) = drive(&env, Path::new("/db"), seed, [2, 4, 8][seed as usize % 3], 200, 12);
            assert!(ahead > 10, "only {ahead} scans were read ahead");
            let counters = db.metrics().counters;
            assert!(counters.redirects > 100, "{counters:?}");
            db.close().expect("close");
        });
        assert!(sim.live_threads().is_empty(), "threads are left: {:?}", sim.live_threads());
    }
}
