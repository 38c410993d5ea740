//! Power cuts and kills at random calls while batches go to several keyspaces and keyspaces come and go.
//!
//! What must hold after each: the batches that are left are a prefix of the commits and hold all that
//! was promised; each keyspace that is there has what exactly that prefix put into it, so that no batch
//! is there in one keyspace and lost in another; a keyspace whose creation had returned is there, one
//! whose drop had returned is not, one in between is either; and opening again changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use dialsm_core::{Db, FlushOptions, Options, ReadOptions, WriteBatch, WriteOptions};
use dialsm_io::{CrashPolicy, Env, Fs, SimEnv, SimFs, SplitMix64};
use parking_lot::Mutex;

use super::drain;
use crate::common::tap::{Tap, witness, witnessed};
use crate::common::{DIR, Model, letters, tiny};

/// An operation in a keyspace; no value means delete.
type Op = (u32, Vec<u8>, Option<Vec<u8>>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Life {
    There,
    BeingDropped,
    Gone,
}

/// What has been done so far; all of one instant, since one thread runs at a time.
#[derive(Default, Clone)]
struct Ledger {
    batches: BTreeMap<u64, Vec<Op>>,
    acked: BTreeSet<u64>,
    durable: BTreeSet<u64>,
    lives: BTreeMap<u32, Life>,
    /// The id that a creation under way gets, if one is.
    being_created: Option<u32>,
    next_id: u32,
    created: u64,
    dropped: u64,
}

#[derive(Default, Debug)]
struct Driven {
    cuts: u64,
    double_cuts: u64,
    batches_across: u64,
    created: u64,
    dropped: u64,
    /// Cuts in the middle of a creation or drop, by what they left.
    amid_creation: [u64; 2],
    amid_drop: [u64; 2],
    lost_batches: u64,
    promises: u64,
    flushes: u64,
}

struct Cut {
    image: Arc<SimFs>,
    policy: CrashPolicy,
    ledger: Ledger,
    order: Vec<u64>,
}

/// A simulated machine with its database.
struct Machine {
    env: Arc<SimEnv>,
    tap: Arc<Tap>,
    ledger: Arc<Mutex<Ledger>>,
}

fn open(env: &Arc<SimEnv>, options: &Options) -> Db {
    let env: Arc<dyn Env> = env.clone();
    Db::open(env, Path::new(DIR), options.clone()).expect("open")
}

impl Machine {
    fn new(env: &SimEnv, fs: Arc<SimFs>) -> Machine {
        let tap = Tap::new(fs.clone());
        let seen: Arc<dyn Fs> = tap.clone();
        let ledger = Ledger { lives: BTreeMap::from([(0, Life::There)]), next_id: 1, ..Ledger::default() };
        Machine { env: env.on_fs(fs, seen), tap, ledger: Arc::new(Mutex::new(ledger)) }
    }

    fn cut_at_calls(&self, seed: u64, one_in: u64) -> Arc<Mutex<Vec<Cut>>> {
        let cuts: Arc<Mutex<Vec<Cut>>> = Arc::default();
        let rng = Mutex::new(SplitMix64::new(seed));
        let (into, fs) = (cuts.clone(), self.env.sim_fs().clone());
        let (tap, ledger) = (self.tap.clone(), self.ledger.clone());
        self.env.sim_fs().add_call_hook(Arc::new(move |call| {
            let mut rng = rng.lock();
            let ledger = ledger.lock();
            let changing =
                ledger.being_created.is_some() || ledger.lives.values().any(|l| *l == Life::BeingDropped);
            // The calls of a creation or drop are few.
            let is_manifest = call.path.to_string_lossy().contains("MANIFEST");
            if !(rng.chance(1, one_in) || (changing && is_manifest && rng.chance(1, 4))) {
                return;
            }
            let policy = match rng.below(5) {
                0 => CrashPolicy::DropUnsynced,
                1 => CrashPolicy::KeepAll,
                _ => CrashPolicy::Random(rng.next_u64()),
            };
            let image = fs.crash_image(policy);
            into.lock().push(Cut { image, policy, ledger: ledger.clone(), order: tap.order() });
        }));
        cuts
    }

    /// Runs writers and one thread that creates and drops keyspaces. Inside the simulation.
    fn drive(&self, db: &Db, seed: u64, writes: u64) {
        let mut handles = Vec::new();
        for thread in 0..3u64 {
            let user = self.user(db, seed ^ ((thread + 1) << 32), thread << 16);
            let job: Box<dyn FnOnce() + Send> = if thread == 2 {
                Box::new(move || user.change(50))
            } else {
                Box::new(move || user.write_all(writes))
            };
            handles.push(self.env.spawn(&format!("user-{thread}"), job).expect("spawn"));
        }
        handles.into_iter().for_each(|handle| handle.join());
    }

    fn user(&self, db: &Db, seed: u64, next_id: u64) -> User {
        User {
            env: self.env.clone(),
            db: db.clone(),
            ledger: self.ledger.clone(),
            rng: SplitMix64::new(seed),
            next_id,
        }
    }
}

struct User {
    env: Arc<SimEnv>,
    db: Db,
    ledger: Arc<Mutex<Ledger>>,
    rng: SplitMix64,
    next_id: u64,
}

impl User {
    fn write_all(mut self, writes: u64) {
        for _ in 0..writes {
            match self.rng.below(100) {
                0..3 => self.make_durable(|user| user.db.flush_all(&FlushOptions::default()).expect("flush")),
                3..6 => self.make_durable(|user| user.db.sync().expect("sync")),
                6..9 => self.flush_one(),
                9..45 => self.env.sleep(self.rng.below(400_000)),
                _ => {}
            }
            self.write();
        }
    }

    /// What is acknowledged before is durable after.
    fn make_durable(&mut self, act: impl FnOnce(&User)) {
        let acked = self.ledger.lock().acked.clone();
        act(self);
        self.ledger.lock().durable.extend(acked);
    }

    fn flush_one(&mut self) {
        let names = self.db.keyspaces();
        let name = &names[self.rng.below(names.len() as u64) as usize];
        // Dropped meanwhile, perhaps.
        let Some(keyspace) = self.db.keyspace(name) else { return };
        let _ = self.db.flush_in(&FlushOptions::default(), &keyspace);
    }

    fn write(&mut self) {
        let id = self.next_id;
        self.next_id += 1;
        let there: Vec<u32> =
            self.db.keyspaces().iter().filter_map(|name| self.db.keyspace(name)).map(|k| k.id()).collect();
        let mut ops: Vec<Op> = vec![(0, witness(id), Some(Vec::new()))];
        for _ in 0..=self.rng.below(5) {
            // One keyspace is written most, so that it is flushed alone.
            let at = if self.rng.chance(1, 2) {
                there.len() - 1
            } else {
                self.rng.below(there.len() as u64) as usize
            };
            let key = format!("k{:03}", self.rng.below(200)).into_bytes();
            let len = [0, 30, 400, 2500][self.rng.below(4) as usize];
            let value = self.rng.chance(3, 4).then(|| letters(&mut self.rng, len));
            ops.push((there[at], key, value));
        }
        let mut batch = WriteBatch::new();
        for (keyspace, key, value) in &ops {
            match value {
                Some(value) => batch.put_in(*keyspace, key, value).expect("put"),
                None => batch.delete_in(*keyspace, key).expect("delete"),
            }
        }
        let sync = self.rng.chance(1, 6);
        self.ledger.lock().batches.insert(id, ops);
        match self.db.write(&WriteOptions { sync, ..WriteOptions::default() }, batch) {
            Ok(()) => {
                let mut ledger = self.ledger.lock();
                ledger.acked.insert(id);
                if sync {
                    ledger.durable.insert(id);
                }
            }
            // A keyspace of it was dropped between.
            Err(error) => assert_eq!(error.kind(), dialsm_core::ErrorKind::NotFound, "{error}"),
        }
    }

    fn change(mut self, changes: u64) {
        for _ in 0..changes {
            self.env.sleep(self.rng.below(1_000_000));
            let name = ["a", "b", "c", "d"][self.rng.below(4) as usize];
            match self.db.keyspace(name) {
                None => {
                    let id = {
                        let mut ledger = self.ledger.lock();
                        ledger.being_created = Some(ledger.next_id);
                        ledger.next_id
                    };
                    let created =
                        self.db.create_keyspace(name, self.db.options().keyspace()).expect("create");
                    assert_eq!(created.id(), id, "ids rise one by one");
                    let mut ledger = self.ledger.lock();
                    ledger.being_created = None;
                    ledger.next_id += 1;
                    ledger.lives.insert(id, Life::There);
                    ledger.created += 1;
                }
                // They stay a while, so that most batches find some.
                Some(_) if self.rng.chance(1, 2) => {}
                Some(keyspace) => {
                    self.ledger.lock().lives.insert(keyspace.id(), Life::BeingDropped);
                    self.db.drop_keyspace(&keyspace).expect("drop");
                    let mut ledger = self.ledger.lock();
                    ledger.lives.insert(keyspace.id(), Life::Gone);
                    ledger.dropped += 1;
                }
            }
        }
    }
}

/// What is in each keyspace that is there, by id.
fn contents(db: &Db) -> BTreeMap<u32, Model> {
    let mut all = BTreeMap::new();
    for name in db.keyspaces() {
        let keyspace = db.keyspace(&name).expect("it was listed");
        let mut iter = db.iter_in(&ReadOptions::default(), &keyspace).expect("iter");
        all.insert(keyspace.id(), drain(&mut iter).expect("scan").into_iter().collect());
    }
    all
}

fn model_after(cut: &Cut, prefix: usize, there: &BTreeSet<u32>) -> BTreeMap<u32, Model> {
    let mut all: BTreeMap<u32, Model> = there.iter().map(|id| (*id, Model::new())).collect();
    for (keyspace, key, value) in cut.order[..prefix].iter().flat_map(|id| &cut.ledger.batches[id]) {
        let Some(model) = all.get_mut(keyspace) else { continue };
        match value {
            Some(value) => drop(model.insert(key.clone(), value.clone())),
            None => drop(model.remove(key)),
        }
    }
    all
}

/// Opens the image of `cut`, checks it, and returns what it found and how many batches were left.
fn check(
    env: &SimEnv,
    options: &Options,
    what: &str,
    cut: &Cut,
    least: usize,
) -> (Machine, BTreeMap<u32, Model>, usize) {
    let machine = Machine::new(env, cut.image.clone());
    let db = open(&machine.env, options);
    db.verify(&mut |_, _| {}).expect("verify");
    let found = contents(&db);
    let there: BTreeSet<u32> = found.keys().copied().collect();
    for (id, life) in &cut.ledger.lives {
        match life {
            Life::There => assert!(there.contains(id), "{:?}: keyspace {id} is lost", cut.policy),
            Life::Gone => assert!(!there.contains(id), "{:?}: keyspace {id} is back", cut.policy),
            Life::BeingDropped => {}
        }
    }
    let known = |id| cut.ledger.lives.contains_key(id) || cut.ledger.being_created == Some(*id);
    assert!(there.iter().all(known), "{:?}: a keyspace that nobody made", cut.policy);
    let present: BTreeSet<u64> = found[&0].keys().filter_map(|key| witnessed(key)).collect();
    let prefix = present.len();
    assert!(prefix <= cut.order.len());
    let wanted: BTreeSet<u64> = cut.order[..prefix].iter().copied().collect();
    assert_eq!(present, wanted, "{:?}: what is left is no prefix of the commits", cut.policy);
    assert!(prefix >= least, "{what}, {:?}: {prefix} batches are left, {least} were promised", cut.policy);
    let model = model_after(cut, prefix, &there);
    for (id, model) in &model {
        assert!(found[id] == *model, "{:?}: keyspace {id} is not as after {prefix} batches", cut.policy);
    }
    drop(db);
    (machine, found, prefix)
}

fn run(seed: u64, options: &Options, driven: &mut Driven) {
    let env = SimEnv::new(seed);
    let machine = Machine::new(&env, env.sim_fs().clone());
    env.run(|| {
        let mut rng = SplitMix64::new(seed ^ 0xc0de);
        let cuts = machine.cut_at_calls(rng.next_u64(), 60);
        if rng.chance(1, 2) {
            machine.env.switch_at_io();
        }
        let db = open(&machine.env, options);
        machine.drive(&db, seed, 150);
        driven.flushes += db.metrics().counters.flushes;
        drop(db);
        machine.env.sim_fs().clear_call_hooks();
        let cuts = std::mem::take(&mut *cuts.lock());
        for cut in &cuts {
            check_cut(&env, options, cut, &mut rng, driven);
        }
        let ledger = machine.ledger.lock();
        driven.created += ledger.created;
        driven.dropped += ledger.dropped;
        driven.batches_across +=
            ledger.batches.values().filter(|ops| ops.iter().any(|(id, ..)| *id != 0)).count() as u64;
    });
    assert!(env.take_panics().is_empty());
}

fn check_cut(env: &SimEnv, options: &Options, cut: &Cut, rng: &mut SplitMix64, driven: &mut Driven) {
    let position: BTreeMap<u64, usize> = cut.order.iter().enumerate().map(|(i, id)| (*id, i + 1)).collect();
    let reach = |ids: &BTreeSet<u64>| ids.iter().map(|id| position[id]).max().unwrap_or(0);
    let keeps_all = cut.policy == CrashPolicy::KeepAll;
    let least = reach(if keeps_all { &cut.ledger.acked } else { &cut.ledger.durable });
    let again = Cut {
        image: cut.image.crash_image(CrashPolicy::KeepAll),
        policy: cut.policy,
        ledger: cut.ledger.clone(),
        order: cut.order.clone(),
    };
    // A second cut, somewhere in the recovery.
    let second: Arc<Mutex<Option<Arc<SimFs>>>> = Arc::default();
    let (at, met) = (rng.below(60), Mutex::new(0));
    let (taken, fs, policy) = (second.clone(), again.image.clone(), CrashPolicy::Random(rng.next_u64()));
    again.image.add_call_hook(Arc::new(move |_| {
        let mut met = met.lock();
        *met += 1;
        if *met == at {
            *taken.lock() = Some(fs.crash_image(policy));
        }
    }));
    let (_, first, _) = check(env, options, "first", &again, least);
    if let Some(image) = second.lock().take() {
        let again = Cut { image, policy, ledger: cut.ledger.clone(), order: cut.order.clone() };
        // Where the first was a kill, it was followed by a power cut after all.
        check(env, options, "cut again", &again, reach(&cut.ledger.durable));
        driven.double_cuts += 1;
    }
    let (machine, found, prefix) = check(env, options, "second", cut, least);
    assert!(first == found, "two openings of one image differ");
    // What an opening has shown, no later cut takes back.
    let image = machine.env.sim_fs().crash_image(CrashPolicy::DropUnsynced);
    let (_, kept, _) = check(env, options, "kept", &Cut { image, ..again }, prefix);
    assert!(kept == found, "what was recovered is not durable");
    driven.cuts += 1;
    driven.promises += least as u64;
    driven.lost_batches += cut.ledger.acked.iter().filter(|id| position[id] > prefix).count() as u64;
    if let Some(id) = cut.ledger.being_created {
        driven.amid_creation[usize::from(found.contains_key(&id))] += 1;
    }
    for (id, _) in cut.ledger.lives.iter().filter(|(_, life)| **life == Life::BeingDropped) {
        driven.amid_drop[usize::from(found.contains_key(id))] += 1;
    }
}

fn assert_driven(seeds: std::ops::Range<u64>, options: &Options) {
    let mut driven = Driven::default();
    let runs = seeds.end - seeds.start;
    seeds.for_each(|seed| run(seed, options, &mut driven));
    println!("{driven:?}");
    assert!(driven.cuts > 40 * runs && driven.double_cuts > 10 * runs, "{driven:?}");
    assert!(driven.created >= 8 * runs && driven.dropped >= 5 * runs, "{driven:?}");
    assert!(driven.batches_across > 50 * runs && driven.flushes > 10 * runs, "{driven:?}");
    assert!(driven.lost_batches > 0 && driven.promises > 0, "{driven:?}");
    let either = |cases: [u64; 2]| cases.iter().all(|n| *n > 0);
    assert!(either(driven.amid_creation) && either(driven.amid_drop), "{driven:?}");
}

#[test]
fn a_power_cut_keeps_batches_whole_over_keyspaces() {
    assert_driven(1..5, &tiny());
}

#[test]
fn a_power_cut_under_common_bounds() {
    let options = Options {
        write_buffer_bytes: 256 << 10,
        write_buffers_total_bytes: 256 << 10,
        log_total_bytes_max: 1 << 20,
        ..tiny()
    };
    assert_driven(11..14, &options);
}

#[test]
#[ignore = "minutes: many seeds"]
fn a_power_cut_over_keyspaces_with_many_seeds() {
    assert_driven(1000..1060, &tiny());
}
