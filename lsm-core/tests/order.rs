//! Keys in other orders than the bytewise one: random operations beside a model under each, how
//! often a user's comparator is called, and what happens when it panics or is no order.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

mod hostile;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use dialsm_core::key::{Comparator, UserComparator};
use dialsm_core::{
    CompactRangeOptions, Db, DbIterator, ErrorKind, Options, ReadOptions, Snapshot, WriteBatch, WriteOptions,
    merge_operator,
};
use dialsm_io::SimFs;

use hostile::{Rng, by_hand, contents, get, open_on, put, tiny};

/// By stem, then by the number at the end; equal numbers (`7`, `007`) by bytes.
struct NumberedNames;

fn split_number(key: &[u8]) -> (&[u8], u64) {
    let digits = key.iter().rev().take(9).take_while(|b| b.is_ascii_digit()).count();
    let (stem, number) = key.split_at(key.len() - digits);
    (stem, number.iter().fold(0, |n, digit| n * 10 + u64::from(digit - b'0')))
}

impl UserComparator for NumberedNames {
    fn name(&self) -> &str {
        "test.numbered-names"
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        split_number(a).cmp(&split_number(b)).then_with(|| a.cmp(b))
    }
    fn equal_is_identical(&self) -> bool {
        true
    }
}

struct CaseBlind;

impl UserComparator for CaseBlind {
    fn name(&self) -> &str {
        "test.case-blind"
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.iter().map(u8::to_ascii_lowercase).cmp(b.iter().map(u8::to_ascii_lowercase))
    }
}

/// An order under test: `rank` gives bytes that are in bytewise order as the keys are in this one.
struct Case {
    comparator: Comparator,
    rank: fn(&[u8]) -> Vec<u8>,
    key: fn(&mut Rng) -> Vec<u8>,
}

fn reverse() -> Case {
    Case {
        comparator: Comparator::ReverseBytewise,
        // Every byte complemented behind a 0, and a 1 at the end: so the longer key comes first.
        rank: |key| key.iter().flat_map(|b| [0, !b]).chain([1]).collect(),
        key: |rng| match rng.below(4) {
            0 => vec![[0x00, 0xff][rng.below(2) as usize]; rng.below(12) as usize],
            1 => rng.below(300).to_be_bytes().to_vec(),
            _ => format!("user{}", rng.below(300) * 37).into_bytes(),
        },
    }
}

fn numbered() -> Case {
    Case {
        comparator: Comparator::Custom(Arc::new(NumberedNames)),
        rank: |key| {
            let (stem, number) = split_number(key);
            let stem: Vec<u8> = stem.iter().flat_map(|b| [1, *b]).chain([0]).collect();
            [&stem[..], &number.to_be_bytes(), key].concat()
        },
        key: |rng| match rng.below(5) {
            0 => format!("{:04}", rng.below(300)).into_bytes(),
            1 => format!("row{:03}", rng.below(300)).into_bytes(),
            2 => vec![b'a'; rng.below(4) as usize],
            _ => format!("row{}", rng.below(300)).into_bytes(),
        },
    }
}

fn case_blind() -> Case {
    Case {
        comparator: Comparator::Custom(Arc::new(CaseBlind)),
        rank: |key| key.to_ascii_lowercase(),
        key: |rng| {
            let key = format!("key-of-{:03}", rng.below(400)).into_bytes();
            let upper = rng.next();
            key.iter()
                .enumerate()
                .map(|(i, b)| if upper >> i & 1 == 1 { b.to_ascii_uppercase() } else { *b })
                .collect()
        },
    }
}

/// From ranks to the key as it was written last, and its value.
type Ranked = BTreeMap<Vec<u8>, Entry>;

/// A key as it was written, and its value.
type Entry = (Vec<u8>, Vec<u8>);

#[derive(Default, Debug)]
struct Driven {
    hits: u64,
    steps: u64,
    respelled: u64,
    merges: u64,
    range_deletes: u64,
    range_deleted: u64,
    snapshot_reads: u64,
    flushes: u64,
    compactions: u64,
    reopens: u64,
}

struct Run {
    case: Case,
    fs: Arc<SimFs>,
    options: Options,
    db: Option<Db>,
    model: Ranked,
    snapshots: Vec<(Snapshot, Ranked)>,
    rng: Rng,
    driven: Driven,
}

impl Run {
    fn new(seed: u64, case: Case) -> Run {
        let options = Options {
            comparator: case.comparator.clone(),
            merge_operator: Some(merge_operator::append(b"+")),
            write_buffer_bytes: 64 << 10,
            subcompactions_max: 3,
            ..tiny()
        };
        let fs = SimFs::new(seed);
        let db = Some(open_on(fs.clone(), &options).expect("open"));
        let (model, snapshots) = (Ranked::new(), Vec::new());
        Run { case, fs, options, db, model, snapshots, rng: Rng(seed), driven: Driven::default() }
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("open")
    }

    fn key(&mut self) -> Vec<u8> {
        (self.case.key)(&mut self.rng)
    }

    fn step(&mut self) {
        match self.rng.below(1000) {
            0..500 => self.write(),
            500..850 => self.get(),
            850..950 => self.scan(),
            950..960 if self.snapshots.len() < 3 => {
                let snapshot = self.db().snapshot();
                self.snapshots.push((snapshot, self.model.clone()));
            }
            960..965 if !self.snapshots.is_empty() => {
                let at = self.rng.below(self.snapshots.len() as u64) as usize;
                self.snapshots.swap_remove(at);
            }
            965..970 => self.db().flush().expect("flush"),
            970..972 => self.compact(),
            972..974 => self.reopen(),
            _ => {}
        }
    }

    fn write(&mut self) {
        let mut batch = WriteBatch::new();
        for _ in 0..=self.rng.below(4) {
            let key = self.key();
            let rank = (self.case.rank)(&key);
            let kind = self.rng.below(16);
            if kind < 4 {
                batch.delete(&key).expect("delete");
                self.model.remove(&rank);
            } else if kind == 4 {
                self.delete_range(&mut batch, key, rank);
            } else if kind < 7 {
                let operand = self.rng.bytes(5);
                batch.merge(&key, &operand).expect("merge");
                let before = self.model.remove(&rank).map(|(_, value)| value);
                self.driven.merges += u64::from(before.is_some());
                let parts: Vec<Vec<u8>> = before.into_iter().chain([operand]).collect();
                self.model.insert(rank, (key, parts.join(&b'+')));
            } else {
                let len = [5, 40, 900][self.rng.below(3) as usize];
                let value = self.rng.bytes(len);
                batch.put(&key, &value).expect("put");
                if let Some((before, _)) = self.model.insert(rank, (key.clone(), value)) {
                    self.driven.respelled += u64::from(before != key);
                }
            }
        }
        self.db().write(&WriteOptions::default(), batch).expect("write");
    }

    /// Deletes a narrow range that starts at `key`.
    fn delete_range(&mut self, batch: &mut WriteBatch, key: Vec<u8>, rank: Vec<u8>) {
        let end = self.key();
        let end_rank = (self.case.rank)(&end);
        if end_rank < rank {
            return;
        }
        let gone: Vec<Vec<u8>> = self.model.range(rank..end_rank).map(|(rank, _)| rank.clone()).collect();
        if gone.len() > 30 {
            return;
        }
        batch.delete_range(&key, &end).expect("delete a range");
        self.driven.range_deletes += 1;
        self.driven.range_deleted += gone.len() as u64;
        gone.iter().for_each(|rank| drop(self.model.remove(rank)));
    }

    /// A state to read: the options for it, and the model of it.
    fn side(&mut self) -> (ReadOptions, Ranked) {
        if self.snapshots.is_empty() || self.rng.below(3) > 0 {
            return (ReadOptions::default(), self.model.clone());
        }
        self.driven.snapshot_reads += 1;
        let at = self.rng.below(self.snapshots.len() as u64) as usize;
        let (snapshot, model) = &self.snapshots[at];
        (ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::default() }, model.clone())
    }

    fn get(&mut self) {
        let (options, model) = self.side();
        let keys: Vec<Vec<u8>> = (0..4).map(|_| self.key()).collect();
        let wanted: Vec<Option<Vec<u8>>> = keys
            .iter()
            .map(|key| model.get(&(self.case.rank)(key)).map(|(_, value)| value.clone()))
            .collect();
        for (key, wanted) in keys.iter().zip(&wanted) {
            let found = self.db().get(&options, key).expect("get");
            assert_eq!(found.as_deref(), wanted.as_deref(), "key {key:?}");
        }
        let refs: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let found = self.db().multi_get(&options, &refs).expect("multi_get");
        assert!(found.iter().map(Option::as_deref).eq(wanted.iter().map(Option::as_deref)));
        self.driven.hits += wanted.iter().flatten().count() as u64;
    }

    fn scan(&mut self) {
        let (mut options, model) = self.side();
        let rank = self.case.rank;
        options.lower_bound = (self.rng.below(2) == 0).then(|| self.key());
        options.upper_bound = (self.rng.below(2) == 0).then(|| self.key());
        let low = options.lower_bound.as_deref().map(rank);
        let high = options.upper_bound.as_deref().map(rank);
        let inside: Vec<(&Vec<u8>, &Entry)> = model
            .iter()
            .filter(|(r, _)| low.as_ref().is_none_or(|l| *r >= l) && high.as_ref().is_none_or(|h| *r < h))
            .collect();
        let mut iter = self.db().iter(&options).expect("iter");
        let target = self.key();
        let sought = rank(&target);
        let mut at = match self.rng.below(4) {
            0 => {
                iter.seek_to_first().expect("first");
                inside.first().map(|_| 0)
            }
            1 => {
                iter.seek_to_last().expect("last");
                inside.len().checked_sub(1)
            }
            2 => {
                iter.seek(&target).expect("seek");
                inside.iter().position(|(r, _)| **r >= sought)
            }
            _ => {
                iter.seek_for_prev(&target).expect("seek_for_prev");
                inside.iter().rposition(|(r, _)| **r <= sought)
            }
        };
        let bias = 1 + self.rng.below(3);
        for _ in 0..self.rng.below(40) {
            assert_eq!(iter.valid(), at.is_some());
            let Some(here) = at else { break };
            let (_, (key, value)) = inside[here];
            assert_eq!((iter.key(), iter.value()), (&key[..], &value[..]));
            self.driven.steps += 1;
            if self.rng.below(4) < bias {
                iter.next().expect("next");
                at = (here + 1 < inside.len()).then_some(here + 1);
            } else {
                iter.prev().expect("prev");
                at = here.checked_sub(1);
            }
        }
    }

    fn compact(&mut self) {
        let options = CompactRangeOptions { rewrite_bottom: self.rng.below(2) == 0, ..Default::default() };
        let (a, b) = (self.key(), self.key());
        let (from, to) = if (self.case.rank)(&a) < (self.case.rank)(&b) { (a, b) } else { (b, a) };
        let bounds = (self.rng.below(2) == 0).then_some((&from[..], &to[..]));
        self.db().compact_range(&options, bounds.map(|b| b.0), bounds.map(|b| b.1)).expect("compact");
    }

    fn count_jobs(&mut self) {
        let metrics = self.db().metrics();
        self.driven.flushes += metrics.counters.flushes;
        self.driven.compactions += self.db().compactions();
    }

    fn reopen(&mut self) {
        self.count_jobs();
        self.snapshots.clear();
        drop(self.db.take());
        self.db = Some(open_on(self.fs.clone(), &self.options).expect("reopen"));
        self.driven.reopens += 1;
        self.check_all();
    }

    fn check_all(&self) {
        let walk = |forward: bool| {
            let mut found = Vec::new();
            let mut iter = self.db().iter(&ReadOptions::default()).expect("iter");
            if forward { iter.seek_to_first() } else { iter.seek_to_last() }.expect("an end");
            while iter.valid() {
                found.push((iter.key().to_vec(), iter.value().to_vec()));
                if forward { iter.next() } else { iter.prev() }.expect("a step");
            }
            found
        };
        let wanted: Vec<_> = self.model.values().cloned().collect();
        assert!(walk(true) == wanted, "forward");
        assert!(walk(false).into_iter().rev().eq(wanted), "backward");
    }

    fn finish(mut self, steps: u64) -> Driven {
        for _ in 0..steps {
            self.step();
        }
        self.check_all();
        self.db().verify(&mut |_, _| {}).expect("verify");
        self.count_jobs();
        println!("{:?}", self.driven);
        let d = std::mem::take(&mut self.driven);
        assert!(d.hits > steps / 4 && d.steps > steps / 2 && d.snapshot_reads > steps / 50, "{d:?}");
        assert!(d.merges > steps / 20 && d.range_deletes > 30 && d.range_deleted > 100, "{d:?}");
        assert!(d.flushes > steps / 500 && d.compactions > steps / 2000 && d.reopens > 5, "{d:?}");
        d
    }
}

const STEPS: u64 = 8_000;

#[test]
fn random_operations_in_reverse_order() {
    Run::new(1, reverse()).finish(STEPS);
}

#[test]
fn random_operations_in_an_order_of_numbered_names() {
    Run::new(2, numbered()).finish(STEPS);
}

#[test]
fn random_operations_where_different_bytes_are_equal() {
    let driven = Run::new(3, case_blind()).finish(STEPS);
    assert!(driven.respelled > STEPS / 4, "{driven:?}");
}

/// Versions of one key, spelled in turn in two ways, fill several tables' worth; a table must not end
/// between two of them.
#[test]
fn a_key_of_many_spellings_stays_in_one_table_of_a_level() {
    let options = Options {
        comparator: Comparator::Custom(Arc::new(CaseBlind)),
        automatic_compaction: false,
        ..tiny()
    };
    let db = open_on(SimFs::new(1), &options).expect("open");
    let mut held = Vec::new();
    // Values that no codec makes smaller: the versions are several times a table's size.
    let values: Vec<Vec<u8>> = (0..400).map(|i| Rng(i).bytes(1000)).collect();
    for (i, value) in values.iter().enumerate() {
        let key: &[u8] = if i % 2 == 0 { b"KEY" } else { b"key" };
        put(&db, key, value);
        held.push(db.snapshot());
    }
    put(&db, b"next", b"1");
    db.compact_range(&CompactRangeOptions::default(), None, None).expect("compact");
    db.verify(&mut |_, _| {}).expect("verify");
    for (i, snapshot) in held.into_iter().enumerate() {
        let options = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::default() };
        let mut iter = db.iter(&options).expect("iter");
        iter.seek_to_last().expect("last");
        let shown: &[u8] = if i % 2 == 0 { b"KEY" } else { b"key" };
        assert_eq!((iter.key(), iter.value()), (shown, &values[i][..]), "backward, write {i}");
        iter.seek_to_first().expect("first");
        assert_eq!((iter.key(), iter.value()), (shown, &values[i][..]), "forward, write {i}");
    }
}

/// Bytewise, but counting, and doing wrong when told to.
#[derive(Default)]
struct Probe {
    calls: AtomicU64,
    /// Panic at every call.
    panics: AtomicBool,
    /// Panic at keys that differ: no key by itself shows it.
    panics_at_pairs: AtomicBool,
    /// Call the first key greater, whatever the keys.
    all_greater: AtomicBool,
    /// Answer anything.
    chaos: AtomicBool,
    state: AtomicU64,
}

struct Probing(Arc<Probe>);

impl UserComparator for Probing {
    fn name(&self) -> &str {
        "test.probe"
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        self.0.calls.fetch_add(1, SeqCst);
        let pair = a != b && self.0.panics_at_pairs.load(SeqCst);
        if pair || self.0.panics.load(SeqCst) || a == b"poison" || b == b"poison" {
            // As a panic, but without a report of each.
            std::panic::resume_unwind(Box::new("told to"));
        }
        if self.0.all_greater.load(SeqCst) {
            return Ordering::Greater;
        }
        if self.0.chaos.load(SeqCst) {
            return match Rng(self.0.state.fetch_add(1, SeqCst)).below(3) {
                0 => Ordering::Less,
                1 => Ordering::Equal,
                _ => Ordering::Greater,
            };
        }
        a.cmp(b)
    }
    fn equal_is_identical(&self) -> bool {
        true
    }
}

fn probed(options: Options) -> (Arc<Probe>, Options) {
    let probe = Arc::new(Probe::default());
    let comparator = Comparator::Custom(Arc::new(Probing(probe.clone())));
    (probe, Options { comparator, ..options })
}

impl Probe {
    fn calls_of<T>(&self, act: impl FnOnce() -> T) -> (T, u64) {
        let before = self.calls.load(SeqCst);
        let result = act();
        (result, self.calls.load(SeqCst) - before)
    }
}

#[test]
fn a_comparator_is_not_called_without_need() {
    let (probe, options) = probed(by_hand());
    let fs = SimFs::new(1);
    let (db, calls) = probe.calls_of(|| open_on(fs.clone(), &options).expect("open"));
    assert_eq!(calls, 0, "an empty database");
    assert_eq!(probe.calls_of(|| get(&db, b"k")), (None, 0));
    assert_eq!(probe.calls_of(|| contents(&db).len()), (0, 0));
    // The key is asked once whether it can be compared.
    assert_eq!(probe.calls_of(|| put(&db, b"key500", b"v")).1, 1);
    assert!(probe.calls_of(|| get(&db, b"key500")).1 <= 2);
    for i in 0..1000 {
        put(&db, format!("key{i:03}").as_bytes(), b"value");
    }
    db.compact_range(&CompactRangeOptions::default(), None, None).expect("compact");
    let (_, calls) = probe.calls_of(|| get(&db, b"key501x"));
    let blocks = 1000 * 25 / 256;
    assert!(calls <= blocks, "opening the table checks the order of its index: {calls}");
    let (_, calls) = probe.calls_of(|| get(&db, b"key501x"));
    assert!(calls <= 2, "one table, whose filter says no: {calls}");
    let (value, calls) = probe.calls_of(|| get(&db, b"key501"));
    assert!(value.is_some());
    // Two for the table; then one by bisection for each bit of 1000 keys, and some in the block.
    assert!(calls <= 2 + 10 + 20, "{calls}");
    let steps = 100;
    let mut iter = db.iter(&ReadOptions::default()).expect("iter");
    let (_, calls) = probe.calls_of(|| walk(&mut iter, steps));
    assert!(calls <= steps + 20, "one a step: {calls}");
    drop(iter);
    drop(db);
    let (_, calls) = probe.calls_of(|| open_on(fs, &options).expect("reopen"));
    assert!(calls <= 4, "opening with one table and no log: {calls}");
}

fn walk(iter: &mut DbIterator, steps: u64) {
    iter.seek_to_first().expect("first");
    for _ in 1..steps {
        iter.next().expect("next");
    }
    assert!(iter.valid());
}

#[test]
fn a_key_that_the_comparator_panics_at_never_reaches_the_log() {
    let (_, options) = probed(by_hand());
    let fs = SimFs::new(1);
    let db = open_on(fs.clone(), &options).expect("open");
    for i in 0..100 {
        put(&db, format!("k{i}").as_bytes(), b"v");
    }
    let mut batch = WriteBatch::new();
    batch.put(b"beside", b"v").expect("put");
    batch.put(b"poison", b"v").expect("put");
    let error = db.write(&WriteOptions::default(), batch).expect_err("poison");
    assert_eq!(error.kind(), ErrorKind::Callback, "{error}");
    assert!(!error.to_string().contains("poison"), "a key in an error text");
    assert_eq!(get(&db, b"beside"), None, "the batch is refused whole");
    // Reads of that key fail by themselves and harm nobody.
    for stage in 0..2 {
        let error = db.get(&ReadOptions::default(), b"poison").expect_err("poison");
        assert_eq!(error.kind(), ErrorKind::Callback);
        let keys: [&[u8]; 3] = [b"k1", b"poison", b"k2"];
        assert_eq!(
            db.multi_get(&ReadOptions::default(), &keys).expect_err("poison").kind(),
            ErrorKind::Callback
        );
        let mut iter = db.iter(&ReadOptions::default()).expect("iter");
        assert_eq!(iter.seek(b"poison").expect_err("poison").kind(), ErrorKind::Callback);
        assert!(!iter.valid());
        iter.seek(b"k1").expect("another key");
        assert_eq!(iter.key(), b"k1");
        let bounded = ReadOptions { upper_bound: Some(b"poison".to_vec()), ..ReadOptions::default() };
        let sought = db.iter(&bounded).and_then(|mut iter| iter.seek_to_first());
        assert_eq!(sought.expect_err("poison").kind(), ErrorKind::Callback);
        put(&db, format!("more{stage}").as_bytes(), b"v");
        db.flush().expect("flush");
    }
    drop(db);
    assert_eq!(contents(&open_on(fs, &options).expect("reopen")).len(), 102);
}

/// A comparator that starts to panic in the middle of everything: each call returns, and what was
/// acknowledged is there after the next opening.
#[test]
fn a_comparator_that_panics_for_a_while_loses_nothing_and_blocks_nobody() {
    let (probe, options) = probed(tiny());
    let fs = SimFs::new(1);
    let db = open_on(fs.clone(), &options).expect("open");
    let acked: Arc<parking_lot::Mutex<Vec<u64>>> = Arc::default();
    let threads: Vec<_> = (0..4u64)
        .map(|thread| {
            let (db, acked, probe) = (db.clone(), acked.clone(), probe.clone());
            std::thread::spawn(move || {
                let mut failed = 0u64;
                for i in 0..3000u64 {
                    let n = i * 4 + thread;
                    let key = n.to_be_bytes();
                    if thread == 0 && i == 1500 {
                        probe.panics.store(true, SeqCst);
                    }
                    match db.put(&WriteOptions::default(), &key, &[thread as u8; 60]) {
                        Ok(()) => acked.lock().push(n),
                        Err(error) => {
                            let kinds = [ErrorKind::Callback, ErrorKind::Poisoned];
                            assert!(kinds.contains(&error.kind()), "{error}");
                            failed += 1;
                        }
                    }
                    if let Err(error) = db.get(&ReadOptions::default(), &key) {
                        assert_eq!(error.kind(), ErrorKind::Callback, "{error}");
                    }
                }
                failed
            })
        })
        .collect();
    let failed: u64 = threads.into_iter().map(|t| t.join().expect("no call may panic")).sum();
    assert!(failed > 1000, "{failed}");
    // Already as it is made, if a table has to be opened for it.
    let sought = db.iter(&ReadOptions::default()).and_then(|mut iter| iter.seek(b"x"));
    assert_eq!(sought.expect_err("it panics").kind(), ErrorKind::Callback);
    drop(db);
    let error = open_on(fs.clone(), &options).map(drop).expect_err("it still panics");
    assert_eq!(error.kind(), ErrorKind::Callback, "{error}");
    probe.panics.store(false, SeqCst);
    let db = open_on(fs, &options).expect("reopen");
    let acked = acked.lock();
    assert!(acked.len() >= 1500, "{}", acked.len());
    for n in &*acked {
        assert!(get(&db, &n.to_be_bytes()).is_some(), "an acknowledged write is lost");
    }
    put(&db, b"alive", b"1");
    db.compact_range(&CompactRangeOptions::default(), None, None).expect("compact");
    db.verify(&mut |_, _| {}).expect("verify");
}

/// Behind the log, in the memtable: the write fails, writes stop, and the next opening finds it.
#[test]
fn a_panic_in_an_insert_stops_writes_and_keeps_the_entry() {
    let (probe, options) = probed(by_hand());
    let fs = SimFs::new(1);
    let db = open_on(fs.clone(), &options).expect("open");
    (0..50).for_each(|i| put(&db, format!("k{i:02}").as_bytes(), b"v"));
    probe.panics_at_pairs.store(true, SeqCst);
    let write = || db.put(&WriteOptions::default(), b"k10x", b"v").expect_err("it panics").kind();
    assert_eq!(write(), ErrorKind::Callback);
    assert_eq!(write(), ErrorKind::Poisoned);
    probe.panics_at_pairs.store(false, SeqCst);
    assert_eq!(write(), ErrorKind::Poisoned, "until it is opened anew");
    assert_eq!(get(&db, b"k20"), Some(b"v".to_vec()), "reads go on");
    drop(db);
    let db = open_on(fs, &options).expect("reopen");
    assert_eq!(contents(&db).len(), 51);
    put(&db, b"alive", b"1");
    db.flush().expect("flush");
}

/// Reseeks that come down in front of what they were to pass: an error, not a loop without end.
#[test]
fn a_comparator_that_leads_in_a_circle_is_found_out() {
    let (probe, options) = probed(by_hand());
    let db = open_on(SimFs::new(1), &options).expect("open");
    put(&db, b"k", b"seen");
    let options = ReadOptions { snapshot: Some(db.snapshot()), ..ReadOptions::default() };
    (0..30).for_each(|_| put(&db, b"k", b"newer"));
    let mut iter = db.iter(&options).expect("iter");
    probe.all_greater.store(true, SeqCst);
    assert_eq!(iter.seek_to_first().expect_err("a circle").kind(), ErrorKind::Callback);
    probe.all_greater.store(false, SeqCst);
    iter.seek_to_first().expect("an order again");
    assert_eq!(iter.value(), b"seen");
}

/// In a flush or a compaction: nothing of it is installed.
#[test]
fn jobs_whose_comparator_panics_install_nothing() {
    for stage in 0..2 {
        let (probe, options) = probed(by_hand());
        let fs = SimFs::new(1);
        let db = open_on(fs.clone(), &options).expect("open");
        for table in 0..3 {
            for i in 0..200 {
                put(&db, format!("k{:04}", i * 3 + table).as_bytes(), b"v");
            }
            if stage == 1 {
                db.flush().expect("flush");
            }
        }
        probe.panics.store(true, SeqCst);
        let error = match stage {
            0 => db.flush(),
            _ => db.compact_range(&CompactRangeOptions::default(), None, None),
        };
        error.expect_err("it panics");
        probe.panics.store(false, SeqCst);
        assert_eq!(contents(&db).len(), 600, "what was there is read as before");
        drop(db);
        let db = open_on(fs, &options).expect("reopen");
        assert_eq!(contents(&db).len(), 600);
        db.compact_range(&CompactRangeOptions::default(), None, None).expect("compact");
        assert_eq!(contents(&db).len(), 600);
        db.verify(&mut |_, _| {}).expect("verify");
    }
}

/// Answers at random: every call comes back, with or without an error, and the entries are in the
/// log for an opening with a proper order.
#[test]
fn a_comparator_that_is_no_order_ends_every_call() {
    let mut refused = 0;
    for seed in 0..6 {
        let (probe, options) = probed(Options { subcompactions_max: 4, ..tiny() });
        let fs = SimFs::new(seed);
        let db = open_on(fs.clone(), &options).expect("open");
        let mut rng = Rng(seed);
        let mut acked = BTreeMap::new();
        probe.state.store(seed << 32, SeqCst);
        // While writing, too, or only while reading and compacting: then tables stay in order.
        let while_writing = seed % 2 == 0;
        for i in 0..3000u32 {
            probe.chaos.store(while_writing && i >= 1000, SeqCst);
            let key = format!("k{:04}", rng.below(2000)).into_bytes();
            match db.put(&WriteOptions::default(), &key, &i.to_le_bytes()) {
                Ok(()) => drop(acked.insert(key.clone(), i.to_le_bytes().to_vec())),
                Err(_) => refused += 1,
            }
            probe.chaos.store(i >= 1000, SeqCst);
            let _ = db.get(&ReadOptions::default(), &key);
            if i % 50 == 0 {
                wander(&db, &mut rng);
            }
            if i % 500 == 499 {
                let _ = db.compact_range(&CompactRangeOptions::default(), None, None);
            }
        }
        drop(db);
        let _ = open_on(fs.clone(), &options).map(drop);
        probe.chaos.store(false, SeqCst);
        let db = open_on(fs, &options).expect("reopen with an order");
        let found = contents(&db);
        for (key, value) in &acked {
            assert_eq!(found.get(key), Some(value), "an acknowledged write is lost");
        }
        db.verify(&mut |_, _| {}).expect("verify");
    }
    assert!(refused > 100, "{refused}");
}

/// Range deletes in a memtable, in level 0 and below.
fn covered(db: &Db) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut model = BTreeMap::new();
    for round in 0..4u32 {
        for i in (0..2000).filter(|i| i % 4 == round || i % 7 == 0) {
            let key = format!("k{i:04}").into_bytes();
            put(db, &key, &round.to_le_bytes());
            model.insert(key, round.to_le_bytes().to_vec());
        }
        for i in (round * 7..2000).step_by(40) {
            let (from, to) = (format!("k{i:04}").into_bytes(), format!("k{:04}", i + 11).into_bytes());
            db.delete_range(&WriteOptions::default(), &from, &to).expect("delete a range");
            model.retain(|key, _| *key < from || *key >= to);
        }
        match round {
            0 => db.compact_range(&CompactRangeOptions::default(), None, None).expect("compact"),
            1 | 2 => db.flush().expect("flush"),
            _ => {}
        }
    }
    model
}

/// Nothing that a panic has spoilt stays: neither sets of range tombstones nor open tables nor what a scan
/// knows.
#[test]
fn a_panic_under_range_deletes_leaves_nothing_behind() {
    let (probe, options) = probed(by_hand());
    let fs = SimFs::new(1);
    let db = open_on(fs.clone(), &options).expect("open");
    // The last tombstones are in no set yet.
    let model = covered(&db);
    let mut iter = db.iter(&ReadOptions::default()).expect("iter");
    let mut failed = 0;
    for round in 0..3 {
        for (at, key) in [&b"k0003"[..], b"k0777", b"k1999"].into_iter().enumerate() {
            probe.panics.store(true, SeqCst);
            let outcome = db.get(&ReadOptions::default(), key);
            assert_eq!(outcome.expect_err("it panics").kind(), ErrorKind::Callback);
            let sought = if (round + at) % 2 == 0 { iter.seek(key) } else { iter.seek_for_prev(key) };
            failed += u64::from(sought.is_err_and(|error| error.kind() == ErrorKind::Callback));
            probe.panics.store(false, SeqCst);
            assert_eq!(get(&db, key).as_ref(), model.get(key));
            iter.seek(key).expect("an order again");
            let next = model.range(key.to_vec()..).next();
            assert_eq!(iter.valid().then(|| (iter.key(), iter.value())), next.map(|(k, v)| (&k[..], &v[..])));
        }
        drop(iter);
        assert_eq!(contents(&db), model);
        iter = db.iter(&ReadOptions::default()).expect("iter");
    }
    assert_eq!(failed, 9);
    drop(iter);
    drop(db);
    // With no table open.
    let db = open_on(fs, &options).expect("reopen");
    probe.panics.store(true, SeqCst);
    for key in model.keys().step_by(50) {
        let outcome = db.get(&ReadOptions::default(), key);
        assert_eq!(outcome.expect_err("it panics").kind(), ErrorKind::Callback);
        assert!(db.iter(&ReadOptions::default()).and_then(|mut iter| iter.seek(key)).is_err());
    }
    probe.panics.store(false, SeqCst);
    assert_eq!(contents(&db), model);
    db.verify(&mut |_, _| {}).expect("verify");
}

/// Jumps over what range tombstones hide, by an order that is none: each scan comes back.
#[test]
fn scans_over_range_deletes_end_without_an_order() {
    let (probe, options) = probed(by_hand());
    let fs = SimFs::new(1);
    let db = open_on(fs.clone(), &options).expect("open");
    let model = covered(&db);
    assert_eq!(contents(&db), model);
    let before = db.metrics().counters.range_jumps;
    let mut rng = Rng(7);
    probe.chaos.store(true, SeqCst);
    for _ in 0..400 {
        wander(&db, &mut rng);
        let _ = db.get(&ReadOptions::default(), format!("k{:04}", rng.below(2000)).as_bytes());
    }
    probe.chaos.store(false, SeqCst);
    let jumps = db.metrics().counters.range_jumps - before;
    assert!(jumps > 100, "{jumps}");
    assert_eq!(contents(&db), model);
}

fn wander(db: &Db, rng: &mut Rng) {
    let key = |rng: &mut Rng| format!("k{:04}", rng.below(2000)).into_bytes();
    let options = ReadOptions {
        lower_bound: (rng.below(2) == 0).then(|| key(rng)),
        upper_bound: (rng.below(2) == 0).then(|| key(rng)),
        ..ReadOptions::default()
    };
    let Ok(mut iter) = db.iter(&options) else { return };
    for _ in 0..20 {
        let _ = match rng.below(6) {
            0 => iter.seek_to_first(),
            1 => iter.seek_to_last(),
            2 => iter.seek(&key(rng)),
            3 => iter.seek_for_prev(&key(rng)),
            4 if iter.valid() => iter.next(),
            _ if iter.valid() => iter.prev(),
            _ => Ok(()),
        };
    }
}

#[test]
fn names_of_the_users_objects_are_checked() {
    struct Named(&'static str);
    impl UserComparator for Named {
        fn name(&self) -> &str {
            assert!(self.0 != "panics", "told to");
            self.0
        }
        fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
            a.cmp(b)
        }
    }
    let open = |name, fs: &Arc<SimFs>| {
        let comparator = Comparator::Custom(Arc::new(Named(name)));
        open_on(fs.clone(), &Options { comparator, ..tiny() }).map(drop)
    };
    let fs = SimFs::new(1);
    assert_eq!(open("", &fs).expect_err("empty").kind(), ErrorKind::InvalidArgument);
    assert_eq!(open("dialsm.bytewise", &fs).expect_err("ours").kind(), ErrorKind::InvalidArgument);
    assert_eq!(open("panics", &fs).expect_err("it panics").kind(), ErrorKind::Callback);
    open("mine.v1", &fs).expect("a name of its own");
    let error = open("mine.v2", &fs).expect_err("another order");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("mine.v1") && error.message().contains("mine.v2"), "{error}");
}
