//! Blocks read together, for look-ups of several keys and for seeks, against the same reads one by one.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{DIR, letters, tiny, unsynced};
use dialsm_core::merge_operator;
use dialsm_core::{
    CompactRangeOptions, Db, DbIterator, ErrorKind, FlushOptions, Keyspace, KeyspaceOptions, Options,
    ReadOptions, Slice, Snapshot,
};
use dialsm_io::{Env, Fault, FaultFs, Fs, OpKind, Rule, SimEnv, SplitMix64};

const EIO: i32 = 5;
const KEYS: u64 = 400;

fn key(n: u64) -> Vec<u8> {
    format!("key{n:05}").into_bytes()
}

/// A database of two keyspaces in a simulation, with a switch for its read calls.
struct Run {
    root: Arc<SimEnv>,
    faults: Arc<FaultFs>,
    db: Db,
    keyspaces: Vec<Keyspace>,
    rng: SplitMix64,
    snapshots: Vec<Snapshot>,
}

/// What a run has driven.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    multi_gets: u64,
    keys: u64,
    found: u64,
    seeks: u64,
    batched_by_multi_gets: u64,
    batched_by_seeks: u64,
    failed: u64,
    survived: u64,
    late: u64,
    fingerprint: u64,
}

impl Run {
    fn new(root: Arc<SimEnv>, seed: u64, cache_bytes: u64) -> Run {
        let faults = FaultFs::new(root.sim_fs().clone());
        let seen: Arc<dyn Fs> = faults.clone();
        let env: Arc<dyn Env> = root.on_fs(root.sim_fs().clone(), seen);
        let options = Options { block_cache_bytes: cache_bytes, block_bytes: 512, ..tiny() };
        let db = Db::open(env, Path::new(DIR), options).expect("open");
        let other =
            KeyspaceOptions { merge_operator: Some(merge_operator::append(b"-")), ..tiny().keyspace() };
        let other = db.create_keyspace("other", other).expect("create");
        let keyspaces = vec![db.default_keyspace(), other];
        Run { root, faults, db, keyspaces, rng: SplitMix64::new(seed), snapshots: Vec::new() }
    }

    fn write(&mut self) {
        let keyspace = &self.keyspaces[self.rng.below(2) as usize];
        let at = key(self.rng.below(KEYS));
        let value_bytes = self.rng.below(300);
        let value = letters(&mut self.rng, value_bytes);
        let options = unsynced();
        match self.rng.below(20) {
            0..=11 => self.db.put_in(&options, keyspace, &at, &value),
            12..=14 => self.db.delete_in(&options, keyspace, &at),
            15..=18 => self.db.merge_in(&options, keyspace, &at, &value),
            _ => {
                let from = self.rng.below(KEYS);
                let to = key(from + self.rng.below(12));
                self.db.delete_range_in(&options, keyspace, &key(from), &to)
            }
        }
        .expect("write");
        if self.rng.chance(1, 150) {
            self.db.flush_all(&FlushOptions::default()).expect("flush");
        }
        if self.rng.chance(1, 900) {
            let options = CompactRangeOptions::default();
            self.db.compact_range(&options, None, None).expect("compact");
        }
        if self.rng.chance(1, 200) {
            self.snapshots.push(self.db.snapshot());
            if self.snapshots.len() > 3 {
                let at = self.rng.below(3) as usize;
                self.snapshots.remove(at);
            }
        }
    }

    fn batched(&self) -> u64 {
        self.db.metrics().counters.batched_reads
    }

    fn read_options(&mut self) -> ReadOptions {
        let which = self.rng.below(self.snapshots.len() as u64 + 2) as usize;
        let snapshot = self.snapshots.get(which).cloned().unwrap_or_else(|| self.db.snapshot());
        let (fill_cache, verify_checksums) = (self.rng.chance(2, 3), self.rng.chance(5, 6));
        ReadOptions { snapshot: Some(snapshot), fill_cache, verify_checksums, ..ReadOptions::default() }
    }

    /// In no order, some twice, some absent.
    fn some_keys(&mut self) -> Vec<Vec<u8>> {
        let n = match self.rng.below(6) {
            0 => self.rng.below(3),
            5 => 600,
            _ => self.rng.below(80),
        };
        (0..n).map(|_| key(self.rng.below(KEYS + 20))).collect()
    }

    fn multi_get(&mut self, counts: &mut Counts) {
        let (options, keys) = (self.read_options(), self.some_keys());
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let keyspace = self.keyspaces[self.rng.below(2) as usize].clone();
        let single = |key: &&[u8]| self.db.get_in(&options, &keyspace, key).expect("get");
        // First or last: what the one brings into the cache the other finds.
        let first = self.rng.chance(1, 2);
        let mut want: Vec<Option<Slice>> = Vec::new();
        if first {
            want = keys.iter().map(single).collect();
        }
        let before = self.batched();
        let found = self.db.multi_get_in(&options, &keyspace, &keys).expect("multi_get");
        counts.batched_by_multi_gets += self.batched() - before;
        if !first {
            want = keys.iter().map(single).collect();
        }
        assert_eq!(found.len(), keys.len());
        assert!(found.iter().map(Option::as_deref).eq(want.iter().map(Option::as_deref)));
        counts.multi_gets += 1;
        counts.keys += keys.len() as u64;
        counts.found += found.iter().flatten().count() as u64;
        for value in found.iter().flatten() {
            counts.fingerprint = counts.fingerprint.wrapping_mul(31).wrapping_add(value.len() as u64);
        }
    }

    /// The same walk with and without.
    fn seeks(&mut self, counts: &mut Counts) {
        let options = self.read_options();
        let keyspace = self.keyspaces[self.rng.below(2) as usize].clone();
        let moves: Vec<(u64, Vec<u8>, u64)> =
            (0..6).map(|_| (self.rng.below(6), key(self.rng.below(KEYS + 20)), self.rng.below(12))).collect();
        let walks: Vec<Vec<(Vec<u8>, Vec<u8>)>> = ["true", "false"]
            .iter()
            .map(|batch| {
                self.db.set_options(&[("batch_reads", batch)]).expect("live");
                let before = self.batched();
                let mut iter = self.db.iter_in(&options, &keyspace).expect("iter");
                let walk = walk(&mut iter, &moves).expect("walk");
                drop(iter);
                match *batch {
                    "true" => counts.batched_by_seeks += self.batched() - before,
                    _ => assert_eq!(self.batched(), before),
                }
                walk
            })
            .collect();
        self.db.set_options(&[("batch_reads", "true")]).expect("live");
        assert!(walks[0] == walks[1]);
        counts.seeks += moves.len() as u64;
    }

    /// Reads while the n-th read call fails, for n = 1, 2, ..., until none does.
    fn failing(&mut self, counts: &mut Counts) {
        let options = ReadOptions { fill_cache: false, ..ReadOptions::default() };
        let keys: Vec<Vec<u8>> = (0..40).map(|_| key(self.rng.below(KEYS))).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let want = self.db.multi_get(&options, &keys).expect("multi_get");
        let moves = [(1, keys[0].to_vec(), 2), (2, keys[1].to_vec(), 3)];
        let walked = walk(&mut self.db.iter(&options).expect("iter"), &moves).expect("walk");
        for n in 1.. {
            let before = self.faults.injected();
            self.faults.add(Rule::nth(OpKind::Read, n, Fault::Errno(EIO)).on(".sst"));
            let found = self.db.multi_get(&options, &keys);
            let injected = self.faults.injected() - before;
            match found {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                    assert_eq!(injected, 1);
                    counts.failed += 1;
                }
                Ok(found) => {
                    assert_eq!(injected, 0, "a failed read went unnoticed");
                    assert!(found == want);
                }
            }
            self.faults.clear();
            assert!(self.db.multi_get(&options, &keys).expect("all is well again") == want);
            if injected == 0 {
                break;
            }
        }
        for n in 1.. {
            let before = self.faults.injected();
            self.faults.add(Rule::nth(OpKind::Read, n, Fault::Errno(EIO)).on(".sst"));
            let mut iter = self.db.iter(&options).expect("the tables are open");
            match walk(&mut iter, &moves) {
                Ok(found) => assert!(found == walked),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                    assert!(!iter.valid());
                }
            }
            let injected = self.faults.injected() - before;
            // A read that failed once is made again by the seek itself.
            counts.survived += injected;
            self.faults.clear();
            assert!(walk(&mut iter, &moves).expect("all is well again") == walked);
            if injected == 0 {
                break;
            }
        }
        if self.db.options().block_cache_bytes > 0 {
            return;
        }
        // Without a cache to fall back on, what fails for good is reported.
        self.faults.add(Rule::every(OpKind::Read, Fault::Errno(EIO)).on(".sst"));
        let mut iter = self.db.iter(&options).expect("the tables are open");
        assert_eq!(iter.seek(keys[0]).expect_err("no table can be read").kind(), ErrorKind::Io);
        assert!(!iter.valid());
        self.faults.clear();
        iter.seek(keys[0]).expect("seek");
    }

    /// Deadlines that have passed, and such as pass meanwhile.
    fn late(&mut self, counts: &mut Counts) {
        let keys: Vec<Vec<u8>> = (0..60).map(|_| key(self.rng.below(KEYS))).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        for ahead in [0, 1, 20_000, 200_000, 5_000_000_000] {
            let deadline = Some(self.root.now() + ahead);
            let options = ReadOptions { deadline, fill_cache: false, ..ReadOptions::default() };
            match self.db.multi_get(&options, &keys) {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::TimedOut);
                    assert!(Some(self.root.now()) >= deadline);
                    counts.late += 1;
                }
                Ok(_) => assert!(ahead > 0),
            }
        }
    }
}

fn walk(
    iter: &mut DbIterator,
    moves: &[(u64, Vec<u8>, u64)],
) -> dialsm_core::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut out = Vec::new();
    for (how, key, steps) in moves {
        match how {
            0 => iter.seek_to_first()?,
            1 | 4 => iter.seek(key)?,
            2 | 5 => iter.seek_for_prev(key)?,
            _ => iter.seek_to_last()?,
        }
        for step in 0..=*steps {
            if !iter.valid() {
                break;
            }
            out.push((iter.key().to_vec(), iter.value().to_vec()));
            if step % 5 < 3 { iter.next()? } else { iter.prev()? }
        }
        out.push((Vec::new(), Vec::new()));
    }
    Ok(out)
}

fn run(seed: u64) -> Counts {
    let mut counts = Counts::default();
    // No cache, one of a few blocks, one for all.
    let cache_bytes = [0, 20_000, 8 << 20][seed as usize % 3];
    let root = SimEnv::new(seed);
    root.run(|| {
        let mut run = Run::new(root.clone(), seed, cache_bytes);
        for round in 0..14 {
            (0..150).for_each(|_| run.write());
            (0..3).for_each(|_| run.multi_get(&mut counts));
            (0..2).for_each(|_| run.seeks(&mut counts));
            if round % 6 == 5 {
                run.db.flush_all(&FlushOptions::default()).expect("flush");
                run.db.wait_until_idle().expect("idle");
                run.failing(&mut counts);
                run.late(&mut counts);
            }
        }
        run.snapshots.clear();
        run.db.close().expect("close");
        counts.fingerprint ^= root.now();
    });
    counts
}

#[test]
fn reading_together_and_one_by_one_agree() {
    let mut sum = Counts::default();
    for seed in 0..6 {
        let counts = run(seed);
        println!("{seed}: {counts:?}");
        // Where all fits into the cache there is less to read.
        let least = if seed % 3 == 2 { 30 } else { 300 };
        assert!(counts.batched_by_multi_gets >= least && counts.batched_by_seeks >= least / 15, "{counts:?}");
        assert!(counts.multi_gets >= 40 && counts.seeks >= 100 && counts.found * 4 >= counts.keys);
        assert!(counts.failed >= 10 && counts.survived >= 4 && counts.late >= 1, "{counts:?}");
        sum.keys += counts.keys;
        sum.late += counts.late;
    }
    // A pool of threads answers sooner, so that fewer are late.
    let late = if common::tiny().use_io_uring { 24 } else { 10 };
    assert!(sum.keys >= 10_000 && sum.late >= late, "{sum:?}");
}

#[test]
fn the_same_seed_reads_the_same() {
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).fingerprint, run(4).fingerprint);
}

/// Cursors live longer than the service they read together through.
#[test]
fn a_cursor_reads_on_after_the_close() {
    let root = SimEnv::new(9);
    root.run(|| {
        let run = Run::new(root.clone(), 9, 0);
        run.db.set_options(&[("automatic_compaction", "false"), ("batch_reads", "true")]).expect("live");
        for n in 0..3 {
            (0..200).for_each(|i| run.db.put(&unsynced(), &key(i * 3 + n), &[7; 100]).expect("put"));
            run.db.flush().expect("flush");
        }
        let mut iter = run.db.iter(&ReadOptions::default()).expect("iter");
        iter.seek(&key(100)).expect("seek");
        let before = iter.read_stats();
        assert!(before.blocks_batched >= 2, "{before:?}");
        run.db.close().expect("close");
        iter.seek(&key(300)).expect("seek");
        assert_eq!(iter.key(), key(300));
        assert!(iter.read_stats().blocks_read > before.blocks_read);
        let closed = run.db.multi_get(&ReadOptions::default(), &[b"a", b"b"]).expect_err("closed");
        assert_eq!(closed.kind(), ErrorKind::Closed);
    });
}
