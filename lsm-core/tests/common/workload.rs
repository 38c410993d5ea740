//! A random workload of several writers in a simulation, and the check that what a crash left is
//! the state after some prefix of its commits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dialsm_core::{CompactRangeOptions, Db, Options, ReadOptions, WriteBatch, WriteOptions};
use dialsm_io::{CrashPolicy, Env, Fs, SimEnv, SimFs, SplitMix64};
use parking_lot::Mutex;

use super::tap::{Event, Tap, witness, witnessed};
use super::{Model, contents, letters, open};

/// What is done at a key.
pub(crate) enum Op {
    /// A value, or an operand if the key begins with 'm'.
    Put(Vec<u8>),
    Delete,
    /// From the key up to this one.
    DeleteRange(Vec<u8>),
}

impl Op {
    /// Bytes of the value, or of the end.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Op::Put(value) => value.len(),
            Op::Delete => 0,
            Op::DeleteRange(end) => end.len(),
        }
    }
}

/// The operations of a batch.
pub(crate) type Ops = Vec<(Vec<u8>, Op)>;

/// What the writers have done so far; all of one instant, since one thread runs at a time.
#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) batches: BTreeMap<u64, Ops>,
    pub(crate) acked: BTreeSet<u64>,
    /// Acknowledged as durable: by a synced write, a sync or a flush after it.
    pub(crate) durable: BTreeSet<u64>,
    pub(crate) synced_writes: u64,
    pub(crate) range_deletes: u64,
    pub(crate) flushes: u64,
    pub(crate) manual_compactions: u64,
}

/// Whether what is written to the key are operands.
fn is_merged(key: &[u8]) -> bool {
    key.starts_with(b"m")
}

/// How a workload is driven.
#[derive(Clone, Copy)]
pub(crate) struct Drive {
    pub(crate) seed: u64,
    /// Goes into batch numbers, so that no two workloads on one database share any.
    pub(crate) generation: u64,
    pub(crate) threads: u64,
    pub(crate) writes: u64,
    pub(crate) keys: u64,
}

/// A simulated machine with its database.
pub(crate) struct Machine {
    pub(crate) env: Arc<SimEnv>,
    pub(crate) tap: Arc<Tap>,
    pub(crate) options: Options,
    /// What the database held before the workload.
    pub(crate) base: Model,
    pub(crate) ledger: Arc<Mutex<Ledger>>,
}

impl Machine {
    /// A machine in the simulation of `env` on the disk `fs`, whose database holds `base`.
    pub(crate) fn new(env: &SimEnv, fs: Arc<SimFs>, options: &Options, base: Model) -> Machine {
        let tap = Tap::new(fs.clone());
        let seen: Arc<dyn Fs> = tap.clone();
        Machine { env: env.on_fs(fs, seen), tap, options: options.clone(), base, ledger: Arc::default() }
    }

    /// Runs the writers to their end. Inside the simulation.
    pub(crate) fn drive(&self, db: &Db, drive: Drive) {
        let handles: Vec<_> = (0..drive.threads)
            .map(|thread| {
                let writer = Writer {
                    env: self.env.clone(),
                    db: db.clone(),
                    tap: self.tap.clone(),
                    ledger: self.ledger.clone(),
                    rng: SplitMix64::new(drive.seed ^ (thread + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
                    next_id: (drive.generation << 24) | (thread << 16),
                    keys: drive.keys,
                };
                let job = Box::new(move || writer.run(drive.writes));
                self.env.spawn(&format!("writer-{thread}"), job).expect("spawn")
            })
            .collect();
        handles.into_iter().for_each(|handle| handle.join());
    }

    /// What a crash now may and must leave.
    pub(crate) fn expectation(&self) -> Expectation {
        let ledger = self.ledger.lock();
        let order = self.tap.order();
        let position: BTreeMap<u64, usize> = order.iter().enumerate().map(|(i, id)| (*id, i + 1)).collect();
        let reach = |ids: &BTreeSet<u64>| ids.iter().map(|id| position[id]).max().unwrap_or(0);
        Expectation {
            durable: reach(&ledger.durable),
            durable_writes: ledger.durable.len(),
            acked: reach(&ledger.acked),
            order,
        }
    }

    /// Arranges for crash images at one in `one_in` calls on the disk, the policies in turn.
    pub(crate) fn cut_at_calls(&self, seed: u64, one_in: u64) -> Arc<Mutex<Vec<Cut>>> {
        let cuts: Arc<Mutex<Vec<Cut>>> = Arc::default();
        let rng = Mutex::new(SplitMix64::new(seed));
        let (into, fs) = (cuts.clone(), self.env.sim_fs().clone());
        let (tap, ledger) = (self.tap.clone(), self.ledger.clone());
        let view =
            Machine { env: self.env.clone(), tap, options: self.options.clone(), base: Model::new(), ledger };
        self.env.sim_fs().add_call_hook(Arc::new(move |_| {
            let mut rng = rng.lock();
            if !rng.chance(1, one_in) {
                return;
            }
            let policy = match rng.below(5) {
                0 => CrashPolicy::DropUnsynced,
                1 => CrashPolicy::KeepAll,
                _ => CrashPolicy::Random(rng.next_u64()),
            };
            into.lock().push(Cut { image: fs.crash_image(policy), policy, expect: view.expectation() });
        }));
        cuts
    }

    /// Opens the database in `cut` on a machine of its own, checks it against the model, and
    /// returns it with the length of the prefix that was left.
    pub(crate) fn reopen_cut(&self, cut: &Cut) -> (Machine, Db, usize) {
        let machine = Machine::new(&self.env, cut.image.clone(), &self.options, Model::new());
        let db = open(&machine.env, &self.options).expect("open after the crash");
        db.verify(&mut |_, _| {}).expect("verify after the crash");
        let (prefix, state) = self.check(&contents(&db).expect("read after the crash"), cut);
        (Machine { base: state, ..machine }, db, prefix)
    }

    /// Compares what was found after `cut` with the model; returns the prefix, and the state.
    pub(crate) fn check(&self, found: &Model, cut: &Cut) -> (usize, Model) {
        let Expectation { order, durable, acked, .. } = &cut.expect;
        let ids = |model: &Model| -> BTreeSet<u64> { model.keys().filter_map(|k| witnessed(k)).collect() };
        let present: BTreeSet<u64> = ids(found).difference(&ids(&self.base)).copied().collect();
        let prefix = present.len();
        assert!(prefix <= order.len(), "{:?}: more batches than were written", cut.policy);
        let wanted: BTreeSet<u64> = order[..prefix].iter().copied().collect();
        assert_eq!(present, wanted, "{:?}: what is left is no prefix of the commits", cut.policy);
        let least = if cut.policy == CrashPolicy::KeepAll { acked } else { durable };
        assert!(prefix >= *least, "{:?}: {prefix} batches are left, {least} were promised", cut.policy);
        let state = self.model_after(&order[..prefix]);
        assert!(*found == state, "{:?}: the state is not that after {prefix} batches", cut.policy);
        (prefix, state)
    }

    fn model_after(&self, ids: &[u64]) -> Model {
        let mut model = self.base.clone();
        let ledger = self.ledger.lock();
        for id in ids {
            for (key, op) in &ledger.batches[id] {
                match op {
                    Op::Put(operand) if is_merged(key) && model.contains_key(key) => {
                        let value = model.get_mut(key).expect("just found");
                        value.push(b'+');
                        value.extend_from_slice(operand);
                    }
                    Op::Put(value) => drop(model.insert(key.clone(), value.clone())),
                    Op::Delete => drop(model.remove(key)),
                    Op::DeleteRange(end) => model.retain(|other, _| other < key || other >= end),
                }
            }
        }
        model
    }

    /// The state after all commits so far.
    pub(crate) fn model(&self) -> Model {
        self.model_after(&self.tap.order())
    }
}

/// What a crash at some instant may leave.
#[derive(Clone)]
pub(crate) struct Expectation {
    /// Batches in commit order, as far as any byte of them was written.
    pub(crate) order: Vec<u64>,
    /// The least prefix that holds all that was promised to be durable.
    pub(crate) durable: usize,
    /// How many single promises that is.
    pub(crate) durable_writes: usize,
    /// The least prefix that holds all that was acknowledged.
    pub(crate) acked: usize,
}

/// A crash image and what is known of it.
pub(crate) struct Cut {
    pub(crate) image: Arc<SimFs>,
    pub(crate) policy: CrashPolicy,
    pub(crate) expect: Expectation,
}

struct Writer {
    env: Arc<SimEnv>,
    db: Db,
    tap: Arc<Tap>,
    ledger: Arc<Mutex<Ledger>>,
    rng: SplitMix64,
    next_id: u64,
    keys: u64,
}

impl Writer {
    fn run(mut self, writes: u64) {
        for _ in 0..writes {
            match self.rng.below(100) {
                0..2 => self.flush(),
                2..4 => self.sync(),
                4..5 => self.compact(),
                5..12 => self.env.sleep(self.rng.below(200_000)),
                _ => {}
            }
            self.write();
        }
    }

    fn write(&mut self) {
        let id = self.next_id;
        self.next_id += 1;
        let mut ops: Ops = vec![(witness(id), Op::Put(Vec::new()))];
        for _ in 0..=self.rng.below(4) {
            let sort = if self.rng.chance(1, 4) { 'm' } else { 'k' };
            let key = format!("{sort}{:04}", self.rng.below(self.keys)).into_bytes();
            let len = [0, 30, 400, 2500][self.rng.below(4) as usize];
            let op = match self.rng.below(24) {
                0..18 => Op::Put(letters(&mut self.rng, len)),
                18..23 => Op::Delete,
                _ => Op::DeleteRange([&key, b"5".as_slice()].concat()),
            };
            ops.push((key, op));
        }
        // A stretch of keys now and then; witnesses lie outside of it.
        if self.rng.chance(1, 12) {
            let (a, b) = (self.rng.below(self.keys), self.rng.below(self.keys / 4 + 1));
            let sort = if self.rng.chance(1, 4) { 'm' } else { 'k' };
            let [from, to] = [a, a + b].map(|n| format!("{sort}{n:04}").into_bytes());
            ops.push((from, Op::DeleteRange(to)));
        }
        let mut batch = WriteBatch::new();
        for (key, op) in &ops {
            match op {
                Op::Put(operand) if is_merged(key) => batch.merge(key, operand).expect("merge"),
                Op::Put(value) => batch.put(key, value).expect("put"),
                Op::Delete => batch.delete(key).expect("delete"),
                Op::DeleteRange(end) => batch.delete_range(key, end).expect("delete a range"),
            }
        }
        let sync = self.rng.chance(1, 6);
        {
            let mut ledger = self.ledger.lock();
            ledger.range_deletes +=
                ops.iter().filter(|(_, op)| matches!(op, Op::DeleteRange(_))).count() as u64;
            ledger.batches.insert(id, ops);
        }
        self.db.write(&WriteOptions { sync, ..WriteOptions::default() }, batch).expect("write");
        {
            let mut ledger = self.ledger.lock();
            ledger.acked.insert(id);
            if sync {
                ledger.durable.insert(id);
                ledger.synced_writes += 1;
                self.tap.record().note(Event::AckedSync(id));
            }
        }
        let seen = self.db.get(&ReadOptions::default(), &witness(id)).expect("get");
        assert!(seen.is_some(), "an acknowledged write is not visible");
    }

    /// All that is acknowledged now will be durable when what is to come has returned.
    fn made_durable(&self, acked: BTreeSet<u64>) {
        self.ledger.lock().durable.extend(acked);
    }

    fn acked(&self) -> BTreeSet<u64> {
        self.ledger.lock().acked.clone()
    }

    fn flush(&mut self) {
        let acked = self.acked();
        self.db.flush().expect("flush");
        self.made_durable(acked);
        self.ledger.lock().flushes += 1;
    }

    fn sync(&mut self) {
        let acked = self.acked();
        self.db.sync().expect("sync");
        self.made_durable(acked);
    }

    fn compact(&mut self) {
        let acked = self.acked();
        let options = CompactRangeOptions { rewrite_bottom: self.rng.chance(1, 2), ..Default::default() };
        self.db.compact_range(&options, None, None).expect("compact");
        self.made_durable(acked);
        self.ledger.lock().manual_compactions += 1;
    }
}
