//! Random operations beside an ordered map, and scans that stay open while these go on.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use dialsm_core::{
    CompactRangeOptions, Db, ReadOptions, Scan, ScanBatch, ScanOptions, Snapshot, WriteBatch, WriteOptions,
};
use dialsm_io::{Env, OsEnv, SimEnv, SplitMix64};

use super::{Rows, iterated, key, open, options, value};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const KEYS: u64 = 500;

#[derive(Default, Debug)]
struct Driven {
    scans: u64,
    rows: u64,
    /// Scans that ended while other threads read ahead for them.
    ahead: u64,
    backward: u64,
    at_snapshots: u64,
    over_writes: u64,
    compared_with_iterators: u64,
    range_deletes: u64,
    merges: u64,
    redirects: u64,
    rolled_back: u64,
    flushes: u64,
    compactions: u64,
}

/// A scan under way, and what it has to give yet.
struct Open {
    scan: Scan,
    options: ScanOptions,
    expected: VecDeque<(Vec<u8>, Vec<u8>)>,
    began_at: u64,
}

struct Run {
    db: Db,
    rng: SplitMix64,
    model: Model,
    snapshots: Vec<(Snapshot, Model)>,
    scans: Vec<Open>,
    batch: ScanBatch,
    writes: u64,
    driven: Driven,
}

impl Run {
    fn step(&mut self) {
        match self.rng.below(1000) {
            0..700 => self.write(),
            700..740 => self.begin_scan(),
            740..960 => self.go_on(),
            960..970 => self.take_snapshot(),
            970..976 => drop(self.snapshots.pop()),
            976..984 => self.db.flush().expect("flush"),
            984..986 => {
                let options = CompactRangeOptions::default();
                self.db.compact_range(&options, None, None).expect("compact");
            }
            986..990 => self.db.rollback().expect("roll back"),
            _ => self.compare_with_iterator(),
        }
    }

    fn write(&mut self) {
        let mut batch = WriteBatch::new();
        for _ in 0..=self.rng.below(6) {
            self.operation(&mut batch);
        }
        self.writes += 1;
        self.db.write(&WriteOptions::default(), batch).expect("write");
    }

    /// Some keys are merged, too; one in 30 operations removes a range.
    fn operation(&mut self, batch: &mut WriteBatch) {
        let n = self.rng.below(KEYS);
        let key = key(n);
        match self.rng.below(30) {
            0 => {
                let to = super::key(n + self.rng.below(12));
                batch.delete_range(&key, &to).expect("delete a range");
                let gone: Vec<Vec<u8>> = self.model.range(key..to).map(|row| row.0.clone()).collect();
                gone.iter().for_each(|key| drop(self.model.remove(key)));
                self.driven.range_deletes += 1;
            }
            1..7 => {
                batch.delete(&key).expect("delete");
                self.model.remove(&key);
            }
            7..16 if n.is_multiple_of(3) => {
                let operand = value(&mut self.rng);
                batch.merge(&key, &operand).expect("merge");
                let merged = self.model.entry(key);
                merged.and_modify(|value| value.push(b'+')).or_default().extend_from_slice(&operand);
                self.driven.merges += 1;
            }
            _ => {
                let value = value(&mut self.rng);
                batch.put(&key, &value).expect("put");
                self.model.insert(key, value);
            }
        }
    }

    fn take_snapshot(&mut self) {
        if self.snapshots.len() < 3 {
            self.snapshots.push((self.db.snapshot(), self.model.clone()));
        }
    }

    fn bound(&mut self) -> Option<Vec<u8>> {
        self.rng.chance(1, 3).then(|| key(self.rng.below(KEYS)))
    }

    fn scan_options(&mut self) -> ScanOptions {
        let rng = &mut self.rng;
        ScanOptions {
            entries_max: if rng.chance(1, 3) { 1 + rng.below(300) } else { 0 },
            backward: rng.chance(1, 6),
            batch_bytes: [0, 100, 2000, 20_000, 1 << 20][rng.below(5) as usize],
            batch_entries_max: if rng.chance(1, 3) { 1 + rng.below(50) as usize } else { 0 },
            long_bytes: [0, 0, 1, 3000, u64::MAX][rng.below(5) as usize],
            ahead_bytes_max: [0, 4 << 10, 64 << 10, 8 << 20][rng.below(4) as usize],
            start: self.bound(),
            end: self.bound(),
        }
    }

    fn read_options(&mut self) -> (ReadOptions, Model) {
        let side = self.rng.below(self.snapshots.len() as u64 + 2) as usize;
        let (snapshot, model) = match self.snapshots.get(side) {
            Some((snapshot, model)) => (Some(snapshot.clone()), model.clone()),
            None => (None, self.model.clone()),
        };
        self.driven.at_snapshots += u64::from(snapshot.is_some());
        let (lower_bound, upper_bound) = (self.bound(), self.bound());
        (ReadOptions { snapshot, lower_bound, upper_bound, ..ReadOptions::default() }, model)
    }

    fn begin_scan(&mut self) {
        if self.scans.len() >= 4 {
            return;
        }
        let (read, model) = self.read_options();
        let options = self.scan_options();
        let scan = self.db.scan(&read, &options).expect("scan");
        let expected = expected(&model, &read, &options);
        self.scans.push(Open { scan, options, expected: expected.into(), began_at: self.writes });
    }

    /// One batch of a scan that is under way, or all it has left; seldom, it is given up.
    fn go_on(&mut self) {
        if self.scans.is_empty() {
            return;
        }
        let at = self.rng.below(self.scans.len() as u64) as usize;
        if self.rng.chance(1, 40) {
            self.scans.swap_remove(at);
            return;
        }
        let to_the_end = self.rng.chance(1, 4);
        while self.take_batch(at) {
            if !to_the_end {
                return;
            }
        }
        let open = self.scans.swap_remove(at);
        self.driven.scans += 1;
        self.driven.ahead += u64::from(open.scan.is_ahead());
        self.driven.backward += u64::from(open.options.backward);
        self.driven.over_writes += u64::from(open.began_at != self.writes);
    }

    fn take_batch(&mut self, at: usize) -> bool {
        let Open { scan, options, expected, .. } = &mut self.scans[at];
        let mut fresh = ScanBatch::new();
        // The memory of another scan's batch is as good as new.
        let batch = if self.rng.chance(1, 2) { &mut self.batch } else { &mut fresh };
        if !scan.fill(batch).expect("a batch") {
            assert!(batch.is_empty());
            assert!(expected.is_empty(), "the scan ended {} entries early: {options:?}", expected.len());
            return false;
        }
        assert!(!batch.is_empty());
        for row in 0..batch.len() {
            let (key, value) = expected.pop_front().expect("no more than there are");
            assert_eq!(batch.key(row), key, "{options:?}");
            assert_eq!(batch.value(row), value, "{options:?}");
        }
        let last = batch.ends().last().map_or(0, |end| end[1]);
        assert_eq!((batch.bytes(), batch.data().len()), (last, last));
        let is_full = batch.bytes() >= options.batch_bytes || batch.len() == options.batch_entries_max;
        assert!(is_full || expected.is_empty(), "a batch of {} entries: {options:?}", batch.len());
        assert!(options.batch_entries_max == 0 || batch.len() <= options.batch_entries_max);
        self.driven.rows += batch.len() as u64;
        true
    }

    fn compare_with_iterator(&mut self) {
        let (mut read, model) = self.read_options();
        // Both of one moment.
        read.snapshot.get_or_insert_with(|| self.db.snapshot());
        let options = ScanOptions { start: None, end: None, entries_max: 0, ..self.scan_options() };
        let mut scan = self.db.scan(&read, &options).expect("scan");
        let shown = iterated(&self.db, &read, options.backward);
        assert!(super::rest(&mut scan) == shown, "a scan and an iterator differ: {options:?}");
        assert!(expected(&model, &read, &options) == shown, "an iterator and the model differ");
        self.driven.compared_with_iterators += 1;
    }
}

/// What a scan has to give.
fn expected(model: &Model, read: &ReadOptions, scan: &ScanOptions) -> Rows {
    let from = read.lower_bound.as_ref().max(scan.start.as_ref());
    let to = [&read.upper_bound, &scan.end].into_iter().flatten().min();
    if from.zip(to).is_some_and(|(from, to)| from >= to) {
        return Rows::new();
    }
    let range =
        (from.map_or(Bound::Unbounded, Bound::Included), to.map_or(Bound::Unbounded, Bound::Excluded));
    let rows = model.range::<Vec<u8>, _>(range).map(|(key, value)| (key.clone(), value.clone()));
    let most = if scan.entries_max == 0 { usize::MAX } else { scan.entries_max as usize };
    if scan.backward { rows.rev().take(most).collect() } else { rows.take(most).collect() }
}

fn drive(env: &Arc<dyn Env>, dir: &Path, seed: u64, shards: usize, threads: usize, steps: u64) -> Driven {
    let db = open(env, dir, &options(shards, if shards > 1 { 300 } else { 0 }, threads));
    let (rng, batch) = (SplitMix64::new(seed), ScanBatch::new());
    let (model, snapshots, scans, driven) = (Model::new(), Vec::new(), Vec::new(), Driven::default());
    let mut run = Run { db, rng, model, snapshots, scans, batch, writes: 0, driven };
    for _ in 0..steps {
        run.step();
    }
    let counters = run.db.metrics().counters;
    run.driven.redirects = counters.redirects;
    run.driven.rolled_back = counters.clues_rolled_back;
    run.driven.flushes = counters.flushes;
    run.driven.compactions = run.db.compactions();
    // The scans that are still open go on after the close.
    run.db.close().expect("close");
    while !run.scans.is_empty() {
        run.go_on();
    }
    run.driven
}

fn assert_driven(driven: &Driven, shards: usize, threads: usize) {
    println!("{shards} shards, {threads} threads: {driven:?}");
    assert!(driven.scans > 60 && driven.rows > 6000, "{driven:?}");
    assert!(driven.backward > 5 && driven.at_snapshots > 10 && driven.over_writes > 20, "{driven:?}");
    assert!(driven.range_deletes > 80 && driven.merges > 100, "{driven:?}");
    assert!(driven.compared_with_iterators > 10, "{driven:?}");
    assert!(driven.flushes > 5 && driven.compactions > 3, "{driven:?}");
    if threads > 0 {
        assert!(driven.ahead > 20, "{driven:?}");
    } else {
        assert_eq!(driven.ahead, 0, "{driven:?}");
    }
    if shards > 1 {
        assert!(driven.redirects > 500 && driven.rolled_back > 50, "{driven:?}");
    }
}

#[test]
fn random_scans_agree_with_the_model() {
    for (seed, (shards, threads)) in [(1, 2), (2, 1), (4, 0), (4, 2), (8, 3)].into_iter().enumerate() {
        let dir = tempfile::tempdir().expect("a directory");
        let env: Arc<dyn Env> = OsEnv::new();
        let driven = drive(&env, dir.path(), seed as u64, shards, threads, 3000);
        assert_driven(&driven, shards, threads);
    }
}

#[test]
fn random_scans_agree_with_the_model_in_a_simulation() {
    for (seed, (shards, threads)) in [(1, 1), (2, 2), (4, 2), (8, 1)].into_iter().enumerate() {
        let run = || {
            let sim = SimEnv::new(seed as u64);
            if seed % 2 == 0 {
                sim.switch_at_io();
            }
            let env: Arc<dyn Env> = sim.clone();
            let driven = sim.run(|| drive(&env, Path::new("/db"), 100 + seed as u64, shards, threads, 2000));
            assert!(sim.live_threads().is_empty(), "threads are left: {:?}", sim.live_threads());
            (driven, sim.schedule_digest())
        };
        let (driven, schedule) = run();
        assert_driven(&driven, shards, threads);
        if seed == 1 {
            assert_eq!(run().1, schedule, "the same seed gave another run");
        }
    }
}
