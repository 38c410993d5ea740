//! An operator that fails and panics for some keys at some times, under a random load: nothing is lost.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

#[path = "hostile/mod.rs"]
mod hostile;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dialsm_core::{
    CompactRangeOptions, Db, ErrorKind, MergeOperator, Options, ReadOptions, Snapshot, WriteOptions,
};
use hostile::{Model, Real, Rng, contents, tiny};

/// Joins operands with '+'; its mood says for which keys it fails, and for which it panics.
#[derive(Default)]
struct Moody {
    mood: AtomicU64,
    failed: AtomicU64,
    panicked: AtomicU64,
    folded: AtomicU64,
}

impl Moody {
    /// One in six keys panics in some mood, one in six fails.
    fn humour(&self, key: &[u8]) -> u64 {
        let mood = self.mood.load(Ordering::SeqCst);
        let sum: u64 = key.iter().map(|byte| u64::from(*byte)).sum();
        if mood == 0 { 5 } else { (sum * 31 + mood) % 6 }
    }

    fn is_bad(&self, key: &[u8]) -> bool {
        self.humour(key) < 2
    }

    fn join(&self, key: &[u8], parts: &[&[u8]]) -> Option<Vec<u8>> {
        match self.humour(key) {
            0 => {
                self.panicked.fetch_add(1, Ordering::Relaxed);
                // As a panic, but without its message on the screen thousands of times.
                std::panic::resume_unwind(Box::new("as the test asks"));
            }
            1 => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                None
            }
            _ => {
                self.folded.fetch_add(1, Ordering::Relaxed);
                Some(parts.join(&b'+'))
            }
        }
    }
}

impl MergeOperator for Moody {
    fn name(&self) -> &str {
        "moody"
    }

    fn full_merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.join(key, &[base.as_slice(), operands].concat())
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.join(key, operands)
    }
}

#[derive(Default, Debug)]
struct Driven {
    merges: u64,
    reads: u64,
    reads_failed: u64,
    scans_stopped: u64,
    seeks_past: u64,
    reopens: u64,
    moods: u64,
    flushes: u64,
    compactions: u64,
    folded: u64,
    merge_failures: u64,
}

struct Test {
    real: Real,
    operator: Arc<Moody>,
    options: Options,
    /// Absent for a moment in a reopening.
    db: Option<Db>,
    model: Model,
    snapshots: Vec<(Snapshot, Model)>,
    rng: Rng,
    driven: Driven,
}

impl Test {
    fn new(seed: u64) -> Test {
        let operator = Arc::new(Moody::default());
        let options =
            Options { merge_operator: Some(operator.clone()), level0_compaction_trigger: 2, ..tiny() };
        let real = Real::new();
        let db = Some(real.open(&options));
        let (rng, driven) = (Rng(seed), Driven::default());
        Test { real, operator, options, db, model: Model::new(), snapshots: Vec::new(), rng, driven }
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("open")
    }

    fn key(&mut self) -> Vec<u8> {
        format!("key{:03}", self.rng.below(400)).into_bytes()
    }

    fn step(&mut self) {
        let key = self.key();
        let options = WriteOptions::default();
        match self.rng.below(1000) {
            0..600 => {
                let n = 1 + self.rng.below(150) as usize;
                let operand = vec![b'a' + self.rng.below(26) as u8; n];
                self.db().merge(&options, &key, &operand).expect("a write never asks the operator");
                self.driven.merges += 1;
                match self.model.get_mut(&key) {
                    Some(value) => value.extend([b"+", &operand[..]].concat()),
                    None => drop(self.model.insert(key, operand)),
                }
            }
            600..650 => {
                self.db().put(&options, &key, b"put").expect("put");
                self.model.insert(key, b"put".to_vec());
            }
            650..750 => {
                self.db().delete(&options, &key).expect("delete");
                self.model.remove(&key);
            }
            750..930 => self.get(&key),
            930..960 => self.scan(&key),
            960..970 => {
                self.operator.mood.store(self.rng.below(12), Ordering::SeqCst);
                self.driven.moods += 1;
            }
            970..980 if self.snapshots.len() < 3 => {
                self.snapshots.push((self.db().snapshot(), self.model.clone()));
            }
            970..980 => drop(self.snapshots.remove(0)),
            980..984 => self.db().flush().expect("a flush minds no failing operator"),
            984..986 => {
                let options = CompactRangeOptions { rewrite_bottom: true, ..Default::default() };
                self.db().compact_range(&options, None, None).expect("nor does a compaction");
            }
            986..988 => self.reopen(),
            _ => {}
        }
    }

    fn side(&mut self) -> (ReadOptions, &Model) {
        match self.rng.below(3) {
            0 if !self.snapshots.is_empty() => {
                let at = self.rng.below(self.snapshots.len() as u64) as usize;
                let (snapshot, model) = &self.snapshots[at];
                (ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::default() }, model)
            }
            _ => (ReadOptions::default(), &self.model),
        }
    }

    fn get(&mut self, key: &[u8]) {
        let db = self.db().clone();
        let (options, model) = self.side();
        let expected = model.get(key).cloned();
        let found = db.get(&options, key);
        self.driven.reads += 1;
        match found {
            Ok(value) => assert_eq!(value.as_deref(), expected.as_deref()),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Callback);
                assert!(self.operator.is_bad(key) && expected.is_some());
                self.driven.reads_failed += 1;
            }
        }
    }

    /// Every key from `from` on is met in order, in either direction; one that can't be folded stops the
    /// cursor, and a seek goes past it.
    fn scan(&mut self, from: &[u8]) {
        let (db, operator) = (self.db().clone(), self.operator.clone());
        let forward = self.rng.below(2) == 0;
        let (options, model) = self.side();
        let expected: Vec<(Vec<u8>, Vec<u8>)> = match forward {
            true => model.range(from.to_vec()..).take(40).map(|(k, v)| (k.clone(), v.clone())).collect(),
            false => {
                model.range(..=from.to_vec()).rev().take(40).map(|(k, v)| (k.clone(), v.clone())).collect()
            }
        };
        let mut iter = db.iter(&options).expect("iter");
        let mut stopped = 0;
        let mut moved = if forward { iter.seek(from) } else { iter.seek_for_prev(from) };
        for (key, value) in &expected {
            match moved {
                Ok(()) => {
                    assert_eq!((iter.key(), iter.value()), (&key[..], &value[..]));
                    moved = if forward { iter.next() } else { iter.prev() };
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Callback);
                    assert!(operator.is_bad(key) && !iter.valid());
                    stopped += 1;
                    // The neighbour in the direction of the scan.
                    let mut past = key.clone();
                    moved = if forward {
                        past.push(0);
                        iter.seek(&past)
                    } else {
                        *past.last_mut().expect("not empty") -= 1;
                        past.push(0xff);
                        iter.seek_for_prev(&past)
                    };
                }
            }
        }
        self.driven.scans_stopped += u64::from(stopped > 0);
        self.driven.seeks_past += stopped;
    }

    fn count_jobs(&mut self) {
        let counters = self.db().metrics().counters;
        self.driven.flushes += counters.flushes;
        self.driven.folded += counters.operands_folded;
        self.driven.merge_failures += counters.merge_failures;
        self.driven.compactions += self.db().compactions();
    }

    fn reopen(&mut self) {
        self.snapshots.clear();
        self.count_jobs();
        if self.rng.below(2) == 0 {
            self.db().close().expect("close");
        }
        drop(self.db.take());
        self.db = Some(self.real.open(&self.options));
        self.driven.reopens += 1;
    }

    fn check_all(&mut self) {
        self.operator.mood.store(0, Ordering::SeqCst);
        assert!(contents(self.db()) == self.model, "something was lost");
        for (snapshot, model) in &self.snapshots {
            let options = ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::default() };
            let found: BTreeMap<_, _> =
                hostile::scan(self.db(), &options).expect("scan").into_iter().collect();
            assert!(found == *model, "something was lost for a snapshot");
        }
    }
}

#[test]
fn a_failing_operator_loses_nothing() {
    let mut test = Test::new(7);
    for round in 1..=12 {
        for _ in 0..2500 {
            test.step();
        }
        if round % 3 == 0 {
            test.check_all();
        }
    }
    test.check_all();
    test.count_jobs();
    println!("{:?}", test.driven);
    let (driven, operator) = (&test.driven, &test.operator);
    let count = |n: &AtomicU64| n.load(Ordering::Relaxed);
    assert!(driven.merges > 15_000 && driven.reads > 4_000 && driven.moods > 200, "{driven:?}");
    assert!(driven.reads_failed > 150 && driven.scans_stopped > 100, "{driven:?}");
    assert!(driven.seeks_past > 300 && driven.reopens > 20, "{driven:?}");
    assert!(driven.flushes > 60 && driven.compactions > 40, "{driven:?}");
    // Flushes and compactions met many failures that no read saw.
    assert!(driven.merge_failures > 500 && driven.folded > 5_000, "{driven:?}");
    assert!(
        count(&operator.failed) + count(&operator.panicked) >= driven.merge_failures + driven.reads_failed
    );
    assert!(count(&operator.panicked) > 500 && count(&operator.folded) > 5_000);
    test.db().verify(&mut |_, _| {}).expect("verify");
}
