//! A run to look at: writers over several keyspaces, some of which come and go, flushes and compactions
//! by hand beside those of the engine, and syncs of tables that fail.
//!
//! Threads have names by which the trace tells them: `writer-N`, `compactor` (which does nothing but
//! compact), `keeper` (creates and drops keyspaces), and those of the engine.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use dialsm_core::metrics::Counters;
use dialsm_core::{CompactRangeOptions, Db, FlushOptions, Keyspace, Options, WriteBatch, WriteOptions};
use dialsm_io::{Call, Env, Fault, FaultFs, OpKind, Rule, SimEnv, SplitMix64};
use parking_lot::Mutex;

use crate::checker::Batches;
use crate::common::letters;
use crate::common::open;
use crate::common::tap::{Event, Tap, witness};

/// How a run goes.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) seed: u64,
    /// Batches of each of three writers.
    pub(crate) writes: u64,
    /// The longest values, in bytes.
    pub(crate) value_max: u64,
    /// Whether syncs of tables fail now and then.
    pub(crate) failing_syncs: bool,
}

impl Load {
    pub(crate) fn usual(seed: u64) -> Load {
        Load { seed, writes: 130, value_max: 2500, failing_syncs: false }
    }
}

/// What a run has left behind.
pub(crate) struct Run {
    pub(crate) events: Vec<Event>,
    pub(crate) calls: Vec<Call>,
    pub(crate) schedule: String,
    pub(crate) batches: Batches,
    pub(crate) counters: Counters,
}

/// Runs a fresh database to its close.
pub(crate) fn run(load: &Load, options: &Options) -> Run {
    let env = SimEnv::new(load.seed);
    let disk = env.sim_fs().clone();
    let tap = Tap::new(disk.clone());
    let fault = FaultFs::new(tap.clone());
    let seen = env.on_fs(disk.clone(), fault.clone());
    let (told, record) = (disk.clone(), tap.record().clone());
    fault.set_on_failed_sync(Arc::new(move |path| {
        told.fail_writeback(path);
        record.note(Event::SyncFailed(path.to_path_buf()));
    }));
    tap.keep_events();
    disk.set_tracing(true);
    env.set_tracing(true);
    if load.seed.is_multiple_of(2) {
        seen.switch_at_io();
    }
    let batches: Arc<Mutex<Batches>> = Arc::default();
    let mut counters = Counters::default();
    let whole = || {
        let db = open(&seen, options).expect("open");
        let keyspaces: Vec<Keyspace> = ["a", "b"]
            .iter()
            .map(|name| db.create_keyspace(name, options.keyspace()).expect("create"))
            .chain([db.default_keyspace()])
            .collect();
        if load.failing_syncs {
            // Far enough apart for each table to be made again before the next one fails.
            (0..3).for_each(|n| {
                let nth = 4 + load.seed % 5 + n * 25;
                fault.add(Rule::nth(OpKind::Sync, nth, Fault::Errno(libc::EIO)).on(".sst"));
            });
        }
        let hand = |no: u64| Hand {
            env: seen.clone(),
            db: db.clone(),
            tap: tap.clone(),
            batches: batches.clone(),
            keyspaces: keyspaces.clone(),
            rng: SplitMix64::new(load.seed ^ (no + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            next_id: no << 16,
            load: *load,
        };
        let mut jobs = Vec::new();
        let mut spawn = |name: String, job: Box<dyn FnOnce() + Send>| {
            jobs.push(seen.spawn(&name, job).expect("spawn"));
        };
        for no in 0..3 {
            let writer = hand(no);
            spawn(format!("writer-{no}"), Box::new(|| writer.write_all()));
        }
        let (keeper, compactor) = (hand(3), hand(4));
        spawn("keeper".to_owned(), Box::new(|| keeper.keep()));
        spawn("compactor".to_owned(), Box::new(|| compactor.compact()));
        jobs.into_iter().for_each(|job| job.join());
        db.wait_until_idle().expect("idle");
        counters = db.metrics().counters;
        db.close().expect("close");
    };
    // An engine that leaves a step out may find its own loss before the run is over.
    let ran = catch_unwind(AssertUnwindSafe(|| env.run(whole)));
    if let (Err(panic), None) = (ran, options.break_on_purpose) {
        resume_unwind(panic);
    }
    let batches = batches.lock().clone();
    Run { events: tap.events(), calls: disk.trace(), schedule: env.schedule(), batches, counters }
}

struct Hand {
    env: Arc<SimEnv>,
    db: Db,
    tap: Arc<Tap>,
    batches: Arc<Mutex<Batches>>,
    keyspaces: Vec<Keyspace>,
    rng: SplitMix64,
    next_id: u64,
    load: Load,
}

impl Hand {
    fn any(&mut self) -> Keyspace {
        let at = self.rng.below(self.keyspaces.len() as u64) as usize;
        self.keyspaces[at].clone()
    }

    fn write_all(mut self) {
        for _ in 0..self.load.writes {
            match self.rng.below(100) {
                0..2 => {
                    let keyspace = self.any();
                    self.db.flush_in(&FlushOptions::default(), &keyspace).expect("flush");
                }
                2 => {
                    let atomic = self.rng.chance(1, 2);
                    self.db.flush_all(&FlushOptions { atomic, ..FlushOptions::default() }).expect("flush");
                }
                3..5 => self.db.sync().expect("sync"),
                5..12 => self.env.sleep(self.rng.below(200_000)),
                _ => {}
            }
            let keyspace = self.any();
            self.write(keyspace.id());
        }
    }

    /// A batch: its witness in the default keyspace, and some operations in another.
    fn write(&mut self, keyspace: u32) {
        let id = self.next_id;
        self.next_id += 1;
        let mut batch = WriteBatch::new();
        batch.put(&witness(id), b"").expect("put");
        let mut trees = vec![0];
        for _ in 0..=self.rng.below(4) {
            let key = format!("k{:04}", self.rng.below(150)).into_bytes();
            match self.rng.below(24) {
                0..19 => {
                    let most = [1, 30, 400, self.load.value_max][self.rng.below(4) as usize];
                    let value = letters(&mut self.rng, most);
                    batch.put_in(keyspace, &key, &value).expect("put");
                }
                19..23 => batch.delete_in(keyspace, &key).expect("delete"),
                _ => batch.delete_range_in(keyspace, &key, &[&key, &b"5"[..]].concat()).expect("delete"),
            }
            trees.push(keyspace);
        }
        self.batches.lock().insert(id, trees);
        let sync = self.rng.chance(1, 6);
        self.db.write(&WriteOptions { sync, ..WriteOptions::default() }, batch).expect("write");
        if sync {
            self.tap.record().note(Event::AckedSync(id));
        }
    }

    /// Keyspaces come, get something, and go, with their tables on the way to the disk or not.
    fn keep(mut self) {
        for round in 0..4 {
            let options = (*self.keyspaces[0].options()).clone();
            let keyspace = self.db.create_keyspace(&format!("t{round}"), options).expect("create");
            for _ in 0..self.load.writes / 10 {
                self.write(keyspace.id());
                if self.rng.chance(1, 6) {
                    let wait = self.rng.chance(1, 2);
                    let flush = FlushOptions { wait, ..FlushOptions::default() };
                    self.db.flush_in(&flush, &keyspace).expect("flush");
                }
            }
            self.env.sleep(self.rng.below(2_000_000));
            self.db.drop_keyspace(&keyspace).expect("drop");
        }
    }

    fn compact(mut self) {
        for _ in 0..self.load.writes / 20 {
            let keyspace = self.any();
            let options = CompactRangeOptions { rewrite_bottom: self.rng.chance(1, 2), ..Default::default() };
            self.db.compact_range_in(&options, &keyspace, None, None).expect("compact");
            self.env.sleep(self.rng.below(1_000_000));
        }
    }
}
