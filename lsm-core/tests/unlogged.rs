//! Power cuts with the log off, over shards, with values redirected and rolled back.
//!
//! Each tree comes back to its own last flush. So a key has, after a cut, one of the versions that it had
//! since the last flush of all that had ended; no version from before, none that was never written, no error
//! from a clue without value, and a scan finds what look-ups find. With `atomic_flush` the whole database
//! comes back to one moment.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::{contents, open, tiny};
use dialsm::testing::ForcedRouter;
use dialsm_core::{CompactRangeOptions, Db, FlushOptions, Options, ReadOptions, WriteBatch, WriteOptions};
use dialsm_io::{CrashPolicy, SimEnv, SimFs, SplitMix64};
use parking_lot::Mutex;

type Key = Vec<u8>;

const KEYS: u64 = 60;

fn key(n: u64) -> Key {
    format!("key{n:03}").into_bytes()
}

/// Every state that the database went through, as the changes that lead from each to the next.
#[derive(Clone, Default)]
struct History {
    changes: Vec<Vec<(Key, Option<Vec<u8>>)>>,
    /// That many of them are durable.
    durable: usize,
}

impl History {
    fn state_after(&self, count: usize) -> BTreeMap<Key, Vec<u8>> {
        let mut state = BTreeMap::new();
        for (key, value) in self.changes[..count].iter().flatten() {
            match value {
                Some(value) => state.insert(key.clone(), value.clone()),
                None => state.remove(key),
            };
        }
        state
    }

    /// What each key may be after a cut.
    fn versions(&self) -> BTreeMap<Key, Vec<Option<Vec<u8>>>> {
        let base = self.state_after(self.durable);
        let mut versions: BTreeMap<Key, Vec<Option<Vec<u8>>>> =
            (0..KEYS).map(|n| (key(n), vec![base.get(&key(n)).cloned()])).collect();
        for (key, value) in self.changes[self.durable..].iter().flatten() {
            versions.get_mut(key).expect("a known key").push(value.clone());
        }
        versions
    }
}

struct Cut {
    image: Arc<SimFs>,
    history: History,
}

#[derive(Default, Debug)]
struct Driven {
    cuts: u64,
    lost_changes: u64,
    redirects: u64,
    rolled_back: u64,
    collected: u64,
    flushes: u64,
    compactions: u64,
}

struct Test {
    env: Arc<SimEnv>,
    options: Options,
    rng: SplitMix64,
    driven: Driven,
}

impl Test {
    /// Writes for a while and takes cuts at file calls.
    fn generation(&mut self, fs: &Arc<SimFs>, history: History) -> Vec<Cut> {
        let machine = self.env.on_fs(fs.clone(), fs.clone());
        let history = Arc::new(Mutex::new(history));
        let cuts: Arc<Mutex<Vec<Cut>>> = Arc::default();
        let (image_of, shared, taken) = (fs.clone(), history.clone(), cuts.clone());
        let dice = Mutex::new(SplitMix64::new(self.rng.next_u64()));
        fs.add_call_hook(Arc::new(move |_| {
            let mut dice = dice.lock();
            if dice.chance(1, 25) {
                let image = image_of.crash_image(CrashPolicy::Random(dice.next_u64()));
                taken.lock().push(Cut { image, history: shared.lock().clone() });
            }
        }));
        if self.rng.chance(1, 2) {
            machine.switch_at_io();
        }
        let db = open(&machine, &self.options).expect("open");
        for _ in 0..120 {
            self.step(&db, &history);
        }
        let counters = db.metrics().counters;
        self.driven.redirects += counters.redirects;
        self.driven.rolled_back += counters.clues_rolled_back;
        self.driven.collected += counters.redirected_dropped;
        self.driven.flushes += counters.flushes;
        self.driven.compactions += db.compactions();
        drop(db);
        fs.clear_call_hooks();
        let image = fs.crash_image(CrashPolicy::DropUnsynced);
        let mut cuts = std::mem::take(&mut *cuts.lock());
        cuts.push(Cut { image, history: history.lock().clone() });
        cuts
    }

    fn step(&mut self, db: &Db, history: &Mutex<History>) {
        let rng = &mut self.rng;
        let write = WriteOptions::default();
        match rng.below(40) {
            0 => {
                let count = history.lock().changes.len();
                db.flush_all(&FlushOptions::default()).expect("flush");
                history.lock().durable = count;
            }
            1 => db.flush_with(&FlushOptions { wait: false, ..FlushOptions::default() }).expect("flush"),
            2 => db.compact_range(&CompactRangeOptions::default(), None, None).expect("compact"),
            3 => db.rollback().expect("rollback"),
            4..10 => {
                let n = rng.below(KEYS);
                history.lock().changes.push(vec![(key(n), None)]);
                db.delete(&write, &key(n)).expect("delete");
            }
            10 => {
                let (from, to) = (rng.below(KEYS), rng.below(KEYS));
                let (from, to) = (from.min(to), from.max(to));
                history.lock().changes.push((from..to).map(|n| (key(n), None)).collect());
                db.delete_range(&write, &key(from), &key(to)).expect("delete range");
            }
            _ => {
                let mut batch = WriteBatch::new();
                let mut change = Vec::new();
                for _ in 0..1 + rng.below(4) {
                    let n = rng.below(KEYS);
                    let value = common::letters(rng, 3 + n * 40);
                    batch.put(&key(n), &value).expect("put");
                    change.push((key(n), Some(value)));
                }
                history.lock().changes.push(change);
                db.write(&write, batch).expect("write");
            }
        }
    }

    /// Opens what a cut has left and judges it; the disk, and the history that it fits.
    fn judge(&mut self, cut: Cut) -> (Arc<SimFs>, History) {
        let machine = self.env.on_fs(cut.image.clone(), cut.image.clone());
        let db = open(&machine, &self.options).expect("open after the cut");
        db.verify(&mut |_, _| {}).expect("verify");
        let found = contents(&db).expect("read after the cut");
        for n in 0..KEYS {
            let value = db.get(&ReadOptions::default(), &key(n)).expect("get");
            assert_eq!(value.as_deref(), found.get(&key(n)).map(Vec::as_slice), "{n}: get and scan");
        }
        self.driven.cuts += 1;
        let history = &cut.history;
        for (key, versions) in history.versions() {
            let value = found.get(&key).cloned();
            let is_one = versions.contains(&value);
            assert!(
                is_one,
                "{:?} has none of its {} versions",
                String::from_utf8_lossy(&key),
                versions.len()
            );
            self.driven.lost_changes += u64::from(versions.last() != Some(&value));
        }
        if self.options.atomic_flush {
            let is_moment = |count: usize| history.state_after(count) == found;
            let mut moments = history.durable..=history.changes.len();
            assert!(moments.any(is_moment), "the state is of no one moment");
        }
        drop(db);
        let change = found.into_iter().map(|(key, value)| (key, Some(value))).collect();
        (cut.image, History { changes: vec![change], durable: 1 })
    }
}

fn drive(seeds: std::ops::Range<u64>, atomic_flush: bool) -> Driven {
    let mut total = Driven::default();
    for seed in seeds {
        let shards = [2, 3, 4, 8][seed as usize % 4];
        let options = Options {
            log: false,
            atomic_flush,
            shards,
            write_buffers_max: 2,
            router: Some(ForcedRouter::object([200, 500, 900][seed as usize % 3], seed)),
            merge_operator: None,
            clue_capping: seed % 5 != 0,
            rollback: seed % 4 != 3,
            ..tiny()
        };
        let env = SimEnv::new(seed);
        let rng = SplitMix64::new(seed ^ 0x10c0);
        let mut test = Test { env: env.clone(), options, rng, driven: Driven::default() };
        env.run(|| {
            let (mut fs, mut history) = (env.sim_fs().clone(), History::default());
            for _ in 0..4 {
                let mut cuts = test.generation(&fs, history);
                let goes_on = test.rng.below(cuts.len() as u64) as usize;
                let next = cuts.swap_remove(goes_on);
                for cut in cuts {
                    test.judge(cut);
                }
                (fs, history) = test.judge(next);
            }
        });
        assert_eq!(env.take_panics(), Vec::<String>::new());
        let one = test.driven;
        total.cuts += one.cuts;
        total.lost_changes += one.lost_changes;
        total.redirects += one.redirects;
        total.rolled_back += one.rolled_back;
        total.collected += one.collected;
        total.flushes += one.flushes;
        total.compactions += one.compactions;
    }
    println!("{total:?}");
    total
}

fn assert_driven(driven: &Driven, seeds: u64) {
    assert!(driven.cuts > 40 * seeds && driven.lost_changes > 100 * seeds, "{driven:?}");
    assert!(driven.redirects > 50 * seeds && driven.flushes > 20 * seeds, "{driven:?}");
    assert!(driven.rolled_back > seeds && driven.collected > seeds, "{driven:?}");
}

#[test]
fn a_cut_with_the_log_off_leaves_a_version_since_the_last_flush() {
    assert_driven(&drive(0..8, false), 8);
}

#[test]
fn a_cut_with_the_log_off_and_atomic_flushes_leaves_one_moment() {
    assert_driven(&drive(100..106, true), 6);
}

#[test]
#[ignore = "minutes: many seeds"]
fn cuts_with_the_log_off_with_many_seeds() {
    assert_driven(&drive(1000..1100, false), 100);
    assert_driven(&drive(2000..2060, true), 60);
}
