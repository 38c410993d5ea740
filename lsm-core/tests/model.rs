//! Random operations beside an ordered map: get, both scan directions, bounds, snapshots, batches,
//! flush, compaction, reopening.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use dialsm_core::{
    CompactRangeOptions, Db, Options, ReadOptions, Snapshot, WriteBatch, WriteOptions, options::Compression,
};
use dialsm_io::{Env, OsEnv};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A small generator of our own: the test must replay from its seed on every version of every crate.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn key(&mut self, space: u64) -> Vec<u8> {
        let n = self.below(space);
        match n % 7 {
            0 => format!("k{n:06}").into_bytes(),
            1 => n.to_be_bytes().to_vec(),
            2 => [b"same-long-prefix/".as_slice(), n.to_string().as_bytes()].concat(),
            3 => vec![0; (n % 9) as usize],
            4 => vec![0xff; (n % 9) as usize],
            _ => format!("user{}", n * 7919).into_bytes(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let len = match self.below(20) {
            0 => 0,
            1 => 3000 + self.below(6000),
            _ => self.below(120),
        };
        let byte = self.next() as u8;
        (0..len).map(|i| byte.wrapping_add(i as u8)).collect()
    }
}

#[derive(Default, Debug)]
struct Driven {
    gets: u64,
    scan_steps: u64,
    reopens: u64,
    snapshot_reads: u64,
    snapshots_over_compaction: u64,
    flushes: u64,
    trivial_moves: u64,
    compactions: u64,
}

struct Run {
    env: Arc<dyn Env>,
    dir: tempfile::TempDir,
    options: Options,
    db: Option<Db>,
    model: Model,
    snapshots: Vec<(Snapshot, Model, u64)>,
    rng: Rng,
    driven: Driven,
    key_space: u64,
}

impl Run {
    fn new(seed: u64, options: Options, key_space: u64) -> Run {
        let env: Arc<dyn Env> = OsEnv::new();
        let dir = tempfile::tempdir().expect("a temporary directory");
        let db = Db::open(env.clone(), dir.path(), options.clone()).expect("open");
        Run {
            env,
            dir,
            options,
            db: Some(db),
            model: Model::new(),
            snapshots: Vec::new(),
            rng: Rng(seed),
            driven: Driven::default(),
            key_space,
        }
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("open")
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn step(&mut self) {
        match self.rng.below(1000) {
            0..450 => {
                let (key, value) = (self.rng.key(self.key_space), self.rng.value());
                self.db().put(&WriteOptions::default(), &key, &value).expect("put");
                self.model.insert(key, value);
            }
            450..600 => {
                let key = self.rng.key(self.key_space);
                self.db().delete(&WriteOptions::default(), &key).expect("delete");
                self.model.remove(&key);
            }
            600..650 => self.batch(),
            650..900 => self.get(),
            900..960 => self.scan(),
            960..975 => {
                let snapshot = self.db().snapshot();
                if self.snapshots.len() < 4 {
                    let jobs = self.compactions_now();
                    self.snapshots.push((snapshot, self.model.clone(), jobs));
                }
            }
            975..985 if !self.snapshots.is_empty() => {
                let at = self.rng.below(self.snapshots.len() as u64) as usize;
                let (_, _, jobs) = self.snapshots.swap_remove(at);
                self.driven.snapshots_over_compaction += u64::from(self.compactions_now() > jobs);
            }
            985..990 => self.db().flush().expect("flush"),
            990..991 => self.compact(),
            991..992 => self.reopen(),
            _ => {}
        }
    }

    fn batch(&mut self) {
        let mut batch = WriteBatch::new();
        for _ in 0..=self.rng.below(12) {
            let key = self.rng.key(self.key_space);
            if self.rng.below(4) == 0 {
                batch.delete(&key).expect("delete");
                self.model.remove(&key);
            } else {
                let value = self.rng.value();
                batch.put(&key, &value).expect("put");
                self.model.insert(key, value);
            }
        }
        let sync = self.rng.below(8) == 0;
        self.db().write(&WriteOptions { sync, ..WriteOptions::default() }, batch).expect("write");
    }

    fn read_side(&mut self) -> (ReadOptions, Model) {
        if self.snapshots.is_empty() || self.rng.below(3) != 0 {
            return (ReadOptions::default(), self.model.clone());
        }
        self.driven.snapshot_reads += 1;
        let at = self.rng.below(self.snapshots.len() as u64) as usize;
        let (snapshot, model, _) = &self.snapshots[at];
        (ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::default() }, model.clone())
    }

    fn get(&mut self) {
        let key = self.rng.key(self.key_space);
        self.driven.gets += 1;
        if self.rng.below(3) != 0 || self.snapshots.is_empty() {
            let found = self.db().get(&ReadOptions::default(), &key).expect("get");
            assert_eq!(found.as_deref(), self.model.get(&key).map(Vec::as_slice), "key {key:?}");
        } else {
            let (options, model) = self.read_side();
            let found = self.db().get(&options, &key).expect("get");
            assert_eq!(found.as_deref(), model.get(&key).map(Vec::as_slice), "key {key:?}");
        }
    }

    fn scan(&mut self) {
        let (mut options, mut model) = self.read_side();
        if self.rng.below(2) == 0 {
            let lower = self.rng.key(self.key_space);
            model = model.split_off(&lower);
            options.lower_bound = Some(lower);
        }
        if self.rng.below(2) == 0 {
            let upper = self.rng.key(self.key_space);
            model.split_off(&upper);
            options.upper_bound = Some(upper);
        }
        let mut iter = self.db().iter(&options).expect("iter");
        let entries: Vec<(&Vec<u8>, &Vec<u8>)> = model.iter().collect();
        let target = self.rng.key(self.key_space);
        let mut at: isize = match self.rng.below(4) {
            0 => {
                iter.seek_to_first().expect("first");
                0
            }
            1 => {
                iter.seek_to_last().expect("last");
                entries.len() as isize - 1
            }
            2 => {
                iter.seek(&target).expect("seek");
                entries.partition_point(|(key, _)| **key < target) as isize
            }
            _ => {
                iter.seek_for_prev(&target).expect("seek_for_prev");
                entries.partition_point(|(key, _)| **key <= target) as isize - 1
            }
        };
        let forward_bias = 1 + self.rng.below(3);
        for _ in 0..=self.rng.below(60) {
            let expected = usize::try_from(at).ok().and_then(|at| entries.get(at));
            assert_eq!(iter.valid(), expected.is_some(), "at {at} of {}", entries.len());
            let Some((key, value)) = expected else { break };
            assert_eq!(iter.key(), key.as_slice());
            assert_eq!(iter.value(), value.as_slice());
            self.driven.scan_steps += 1;
            if self.rng.below(4) < forward_bias {
                iter.next().expect("next");
                at += 1;
            } else {
                iter.prev().expect("prev");
                at -= 1;
            }
        }
    }

    fn compact(&mut self) {
        let (from, to) = (self.rng.key(self.key_space), self.rng.key(self.key_space));
        let options = CompactRangeOptions { rewrite_bottom: self.rng.below(2) == 0, ..Default::default() };
        if self.rng.below(2) == 0 {
            self.db().compact_range(&options, None, None).expect("compact all");
        } else if from < to {
            self.db().compact_range(&options, Some(&from), Some(&to)).expect("compact");
        }
    }

    fn compactions_now(&self) -> u64 {
        self.db().compactions()
    }

    fn reopen(&mut self) {
        self.snapshots.clear();
        self.count_jobs();
        let db = self.db.take().expect("open");
        if self.rng.below(2) == 0 {
            db.close().expect("close");
        }
        drop(db);
        self.db = Some(Db::open(self.env.clone(), self.path(), self.options.clone()).expect("reopen"));
        self.driven.reopens += 1;
        self.check_all();
    }

    fn count_jobs(&mut self) {
        let metrics = self.db().metrics();
        self.driven.flushes += metrics.counters.flushes;
        self.driven.trivial_moves += metrics.counters.trivial_moves;
        self.driven.compactions += metrics.levels.iter().map(|level| level.compactions).sum::<u64>();
    }

    fn check_all(&mut self) {
        let mut iter = self.db().iter(&ReadOptions::default()).expect("iter");
        iter.seek_to_first().expect("first");
        for (key, value) in &self.model {
            assert!(iter.valid(), "ended before {key:?}");
            assert_eq!((iter.key(), iter.value()), (key.as_slice(), value.as_slice()));
            iter.next().expect("next");
        }
        assert!(!iter.valid());
        iter.seek_to_last().expect("last");
        for (key, value) in self.model.iter().rev() {
            assert!(iter.valid(), "ended before {key:?}");
            assert_eq!((iter.key(), iter.value()), (key.as_slice(), value.as_slice()));
            iter.prev().expect("prev");
        }
        assert!(!iter.valid());
    }

    fn finish(mut self, steps: u64) -> Driven {
        for _ in 0..steps {
            self.step();
        }
        self.check_all();
        self.db().verify(&mut |_, _| {}).expect("verify");
        self.count_jobs();
        println!("{:?}", self.driven);
        std::mem::take(&mut self.driven)
    }
}

fn tiny() -> Options {
    Options {
        write_buffer_bytes: 64 << 10,
        table_bytes: 64 << 10,
        level_base_bytes: 256 << 10,
        level_multiplier: 4.0,
        block_bytes: 256,
        log_segment_bytes: 64 << 10,
        block_cache_bytes: 1 << 20,
        compression: Compression::None,
        compression_bottom: Compression::Lz4,
        ..Options::default()
    }
}

fn assert_driven(driven: &Driven, steps: u64) {
    assert!(driven.gets > steps / 10, "{driven:?}");
    assert!(driven.scan_steps > steps / 4, "{driven:?}");
    assert!(driven.flushes > steps / 1000 && driven.compactions > steps / 4000, "{driven:?}");
    assert!(driven.reopens > steps / 4000 && driven.snapshot_reads > steps / 100, "{driven:?}");
    assert!(driven.snapshots_over_compaction > steps / 4000, "{driven:?}");
}

#[test]
fn random_operations_agree_with_the_model() {
    let steps = 60_000;
    let driven = Run::new(1, tiny(), 3000).finish(steps);
    assert_driven(&driven, steps);
}

#[test]
fn random_operations_with_one_entry_blocks() {
    let steps = 30_000;
    let options = Options { block_bytes: 64, block_restart_interval: 1, filter_bits_per_key: 0.0, ..tiny() };
    let driven = Run::new(2, options, 500).finish(steps);
    assert_driven(&driven, steps);
}

/// A million operations over four settings; by hand, minutes.
#[test]
#[ignore = "minutes; run by tools/deep-check.sh"]
fn a_million_operations() {
    let settings = [
        tiny(),
        Options { block_bytes: 64, block_restart_interval: 1, ..tiny() },
        Options { subcompactions_max: 4, background_jobs_max: 4, ..tiny() },
        Options { write_buffers_max: 6, block_cache_bytes: 0, open_tables_max: 8, ..tiny() },
    ];
    for (seed, options) in settings.into_iter().enumerate() {
        let driven = Run::new(100 + seed as u64, options, 5000).finish(250_000);
        assert_driven(&driven, 250_000);
    }
}
