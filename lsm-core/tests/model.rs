//! Random operations beside an ordered map: get, both scan directions, bounds, snapshots, batches,
//! flush, compaction, reopening.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

#[path = "common/switches.rs"]
mod switches;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use dialsm_core::{
    CompactRangeOptions, Db, Options, ReadOptions, Snapshot, WriteBatch, WriteOptions, merge_operator,
    options::Compression,
};
use dialsm_io::{Env, OsEnv};
use switches::defaults;

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

/// One operation on a key.
enum Write {
    Put(Vec<u8>),
    Delete,
    SingleDelete,
    Merge(Vec<u8>),
}

#[derive(Default, Debug)]
struct Driven {
    gets: u64,
    range_deletes: u64,
    /// Keys that were there and that they removed.
    range_deleted_keys: u64,
    /// Entries left out, and pieces of tombstones dropped and cut, by flushes and compactions.
    range_deleted_entries: u64,
    range_deletes_dropped: u64,
    range_deletes_cut: u64,
    range_jumps: u64,
    /// Operands, and those among them on a key that has no value.
    merges: u64,
    merges_on_nothing: u64,
    single_deletes: u64,
    single_deletes_of_merged: u64,
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
    /// Keys of the third sort that were merged since they were last removed.
    merged: BTreeSet<Vec<u8>>,
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
            merged: BTreeSet::new(),
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
            0..600 => {
                let key = self.rng.key(self.key_space);
                let (db, options) = (self.db().clone(), WriteOptions::default());
                match self.choose(&key) {
                    Write::Put(value) => db.put(&options, &key, &value).expect("put"),
                    Write::Delete => db.delete(&options, &key).expect("delete"),
                    Write::SingleDelete => db.single_delete(&options, &key).expect("single delete"),
                    Write::Merge(operand) => db.merge(&options, &key, &operand).expect("merge"),
                }
            }
            600..640 => self.batch(),
            640..650 => {
                let (from, to) = self.choose_range();
                self.db().delete_range(&WriteOptions::default(), &from, &to).expect("delete a range");
            }
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

    /// An operation that the key's sort allows, done to the model already. Of three sorts the first is put
    /// and deleted, the second merged as well, the third put while absent only, merged and single deleted.
    fn choose(&mut self, key: &[u8]) -> Write {
        let there = self.model.contains_key(key);
        let dice = self.rng.below(12);
        let write = match key.iter().map(|byte| u64::from(*byte)).sum::<u64>() % 3 {
            0 if dice < 3 => Write::Delete,
            1 if dice < 2 => Write::Delete,
            1 if dice < 8 => Write::Merge(self.rng.value()),
            2 if there && dice < 5 => Write::SingleDelete,
            2 if there || dice < 5 => Write::Merge(self.rng.value()),
            _ => Write::Put(self.rng.value()),
        };
        match &write {
            Write::Put(value) => drop(self.model.insert(key.to_vec(), value.clone())),
            Write::Delete => drop(self.model.remove(key)),
            Write::SingleDelete => {
                self.model.remove(key);
                self.driven.single_deletes += 1;
                self.driven.single_deletes_of_merged += u64::from(self.merged.remove(key));
            }
            Write::Merge(operand) => {
                self.driven.merges += 1;
                self.driven.merges_on_nothing += u64::from(!there);
                self.merged.insert(key.to_vec());
                let value = self.model.entry(key.to_vec()).or_default();
                if there {
                    value.push(b'+');
                }
                value.extend_from_slice(operand);
            }
        }
        write
    }

    /// A range to remove, removed from the model already: a few neighbours mostly, seldom many, and
    /// some that hold nothing.
    fn choose_range(&mut self) -> (Vec<u8>, Vec<u8>) {
        let from = self.rng.key(self.key_space);
        let neighbours = [0, 1, 2, 6, 20][self.rng.below(5) as usize];
        let to = match self.rng.below(100) {
            0 => self.rng.key(self.key_space),
            _ => {
                self.model.range(from.clone()..).nth(neighbours).map_or_else(|| from.clone(), |e| e.0.clone())
            }
        };
        let (from, to) = if from <= to { (from, to) } else { (to, from) };
        let gone: Vec<Vec<u8>> = self.model.range(from.clone()..to.clone()).map(|e| e.0.clone()).collect();
        for key in &gone {
            self.model.remove(key);
            self.merged.remove(key);
        }
        self.driven.range_deletes += 1;
        self.driven.range_deleted_keys += gone.len() as u64;
        (from, to)
    }

    fn batch(&mut self) {
        let mut batch = WriteBatch::new();
        for _ in 0..=self.rng.below(12) {
            if self.rng.below(40) == 0 {
                let (from, to) = self.choose_range();
                batch.delete_range(&from, &to).expect("delete a range");
                continue;
            }
            let key = self.rng.key(self.key_space);
            match self.choose(&key) {
                Write::Put(value) => batch.put(&key, &value).expect("put"),
                Write::Delete => batch.delete(&key).expect("delete"),
                Write::SingleDelete => batch.single_delete(&key).expect("single delete"),
                Write::Merge(operand) => batch.merge(&key, &operand).expect("merge"),
            }
        }
        let sync = self.rng.below(8) == 0;
        self.db().write(&WriteOptions { sync, ..WriteOptions::default() }, batch).expect("write");
    }

    /// Which snapshot a read uses: none is the present.
    fn read_side(&mut self) -> Option<usize> {
        if self.snapshots.is_empty() || self.rng.below(3) != 0 {
            return None;
        }
        self.driven.snapshot_reads += 1;
        Some(self.rng.below(self.snapshots.len() as u64) as usize)
    }

    fn options_of(&self, side: Option<usize>) -> ReadOptions {
        ReadOptions { snapshot: side.map(|at| self.snapshots[at].0.clone()), ..ReadOptions::default() }
    }

    fn model_of(&self, side: Option<usize>) -> &Model {
        side.map_or(&self.model, |at| &self.snapshots[at].1)
    }

    fn get(&mut self) {
        let key = self.rng.key(self.key_space);
        self.driven.gets += 1;
        let side = self.read_side();
        let found = self.db().get(&self.options_of(side), &key).expect("get");
        assert_eq!(found.as_deref(), self.model_of(side).get(&key).map(Vec::as_slice), "key {key:?}");
    }

    fn scan(&mut self) {
        let side = self.read_side();
        let mut options = self.options_of(side);
        let mut rng = Rng(self.rng.next());
        let lower = (rng.below(2) == 0).then(|| rng.key(self.key_space));
        let upper = (rng.below(2) == 0).then(|| rng.key(self.key_space));
        options.lower_bound.clone_from(&lower);
        options.upper_bound.clone_from(&upper);
        let model = self.model_of(side);
        let from = lower.map_or(Bound::Unbounded, Bound::Included);
        let to = upper.map_or(Bound::Unbounded, Bound::Excluded);
        // A map refuses a range that ends before it starts; a cursor finds it empty.
        let first_after = |start: Bound<Vec<u8>>| {
            let start = tighter_start(&from, start);
            if is_empty(&start, &to) { None } else { model.range((start, to.clone())).next() }
        };
        let last_before = |end: Bound<Vec<u8>>| {
            let end = tighter_end(&to, end);
            if is_empty(&from, &end) { None } else { model.range((from.clone(), end)).next_back() }
        };
        let mut iter = self.db().iter(&options).expect("iter");
        let target = rng.key(self.key_space);
        let mut at = match rng.below(4) {
            0 => {
                iter.seek_to_first().expect("first");
                first_after(Bound::Unbounded)
            }
            1 => {
                iter.seek_to_last().expect("last");
                last_before(Bound::Unbounded)
            }
            2 => {
                iter.seek(&target).expect("seek");
                first_after(Bound::Included(target))
            }
            _ => {
                iter.seek_for_prev(&target).expect("seek_for_prev");
                last_before(Bound::Included(target))
            }
        };
        let forward_bias = 1 + rng.below(3);
        let mut steps = 0;
        for _ in 0..=rng.below(60) {
            assert_eq!(iter.valid(), at.is_some(), "after {steps} steps");
            let Some((key, value)) = at else { break };
            assert_eq!(iter.key(), key.as_slice());
            assert_eq!(iter.value(), value.as_slice());
            steps += 1;
            if rng.below(4) < forward_bias {
                iter.next().expect("next");
                at = first_after(Bound::Excluded(key.clone()));
            } else {
                iter.prev().expect("prev");
                at = last_before(Bound::Excluded(key.clone()));
            }
        }
        drop(iter);
        self.driven.scan_steps += steps;
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
        self.driven.range_deleted_entries += metrics.counters.range_deleted_entries;
        self.driven.range_deletes_dropped += metrics.counters.range_deletes_dropped;
        self.driven.range_deletes_cut += metrics.counters.range_deletes_cut;
        self.driven.range_jumps += metrics.counters.range_jumps;
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

/// The later of two range starts.
fn tighter_start(a: &Bound<Vec<u8>>, b: Bound<Vec<u8>>) -> Bound<Vec<u8>> {
    let key = |bound: &Bound<Vec<u8>>| match bound {
        Bound::Unbounded => None,
        Bound::Included(key) => Some((key.clone(), false)),
        Bound::Excluded(key) => Some((key.clone(), true)),
    };
    if key(a) > key(&b) { a.clone() } else { b }
}

/// The earlier of two range ends.
fn tighter_end(a: &Bound<Vec<u8>>, b: Bound<Vec<u8>>) -> Bound<Vec<u8>> {
    let key = |bound: &Bound<Vec<u8>>| match bound {
        Bound::Unbounded => (true, Vec::new(), false),
        Bound::Included(key) => (false, key.clone(), true),
        Bound::Excluded(key) => (false, key.clone(), false),
    };
    if key(a) < key(&b) { a.clone() } else { b }
}

/// Whether no key lies between the two.
fn is_empty(start: &Bound<Vec<u8>>, end: &Bound<Vec<u8>>) -> bool {
    match (start, end) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(a), Bound::Included(b)) => a > b,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a >= b,
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
        merge_operator: Some(merge_operator::append(b"+")),
        ..defaults()
    }
}

fn assert_driven(driven: &Driven, steps: u64) {
    assert!(driven.gets > steps / 10, "{driven:?}");
    assert!(driven.scan_steps > steps / 4, "{driven:?}");
    assert!(driven.flushes > steps / 1000 && driven.compactions > steps / 4000, "{driven:?}");
    assert!(driven.reopens > steps / 4000 && driven.snapshot_reads > steps / 100, "{driven:?}");
    assert!(driven.snapshots_over_compaction > steps / 4000, "{driven:?}");
    assert!(driven.merges > steps / 10 && driven.merges_on_nothing > steps / 50, "{driven:?}");
    assert!(driven.range_deletes > steps / 100 && driven.range_deleted_keys > steps / 50, "{driven:?}");
    assert!(driven.range_deleted_entries > steps / 100 && driven.range_jumps > steps / 100, "{driven:?}");
    assert!(driven.range_deletes_dropped > steps / 1000, "{driven:?}");
    assert!(driven.single_deletes > steps / 40 && driven.single_deletes_of_merged > steps / 80, "{driven:?}");
}

#[test]
fn random_operations_agree_with_the_model() {
    let steps = 90_000;
    let driven = Run::new(1, tiny(), 3000).finish(steps);
    assert_driven(&driven, steps);
    assert!(driven.range_deletes_cut > 2 || defaults().shards > 1, "{driven:?}");
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
        Options { write_buffers_max: 6, block_cache_bytes: 0, open_tables_max: 16, ..tiny() },
    ];
    for (seed, options) in settings.into_iter().enumerate() {
        let driven = Run::new(100 + seed as u64, options, 5000).finish(250_000);
        assert_driven(&driven, 250_000);
    }
}
