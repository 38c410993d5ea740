//! Calls that fail: the n-th of each kind, a full disk, a log that can't be synced.
//!
//! Whatever fails, a call gets a typed error or succeeds; nothing panics or hangs; what failed is
//! not visible; what was acknowledged is there after the next opening, what failed may be.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use common::tap::{witness, witnessed};
use common::{Model, contents, letters, open, synced, tiny, unsynced};
use dialsm_core::{
    CompactRangeOptions, Db, Error, ErrorKind, Options, ReadOptions, WriteBatch, WriteOptions,
};
use dialsm_io::{CrashPolicy, Env, Fault, FaultFs, Fs, OpKind, Rule, SimEnv, SimFs, SplitMix64};

const EIO: i32 = 5;
const EMFILE: i32 = 24;
const ENOSPC: i32 = 28;
const SECOND: u64 = 1_000_000_000;

type Ops = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// One writer's history: batches in order, and what became of each.
struct Run {
    env: Arc<SimEnv>,
    faults: Arc<FaultFs>,
    rng: SplitMix64,
    batches: BTreeMap<u64, Ops>,
    failed: BTreeSet<u64>,
    /// Acknowledged, and which of those as durable.
    acked: BTreeSet<u64>,
    durable: BTreeSet<u64>,
    errors: BTreeMap<&'static str, u64>,
    errno: i32,
    /// Failed batches that the next opening found all the same.
    came_back: u64,
}

impl Run {
    fn new(seed: u64, errno: i32) -> Run {
        let root = SimEnv::new(seed);
        let faults = FaultFs::new(root.sim_fs().clone());
        let seen: Arc<dyn Fs> = faults.clone();
        Run {
            env: root.on_fs(root.sim_fs().clone(), seen),
            faults,
            rng: SplitMix64::new(seed),
            batches: BTreeMap::new(),
            failed: BTreeSet::new(),
            acked: BTreeSet::new(),
            durable: BTreeSet::new(),
            errors: BTreeMap::new(),
            errno,
            came_back: 0,
        }
    }

    /// The fault may show as itself, or as the state it has put the database into.
    fn expect(&mut self, error: &Error, doing: &'static str) {
        let kind = error.kind();
        let fits = match self.errno {
            ENOSPC => matches!(kind, ErrorKind::NoSpace | ErrorKind::Poisoned),
            _ => matches!(kind, ErrorKind::Io | ErrorKind::Poisoned),
        };
        assert!(fits, "{doing} gave {error}");
        *self.errors.entry(doing).or_insert(0) += 1;
    }

    /// The state after all batches but those that failed.
    fn model(&self) -> Model {
        self.model_of(|id| !self.failed.contains(id))
    }

    fn model_of(&self, is_there: impl Fn(&u64) -> bool) -> Model {
        let mut model = Model::new();
        for (_, ops) in self.batches.iter().filter(|(id, _)| is_there(id)) {
            for (key, value) in ops {
                match value {
                    Some(value) => drop(model.insert(key.clone(), value.clone())),
                    None => drop(model.remove(key)),
                }
            }
        }
        model
    }

    fn write(&mut self, db: &Db, id: u64) {
        let mut ops: Ops = vec![(witness(id), Some(Vec::new()))];
        for _ in 0..2 {
            let key = format!("k{:02}", self.rng.below(40)).into_bytes();
            let len = self.rng.below(4000);
            ops.push((key, self.rng.chance(4, 5).then(|| letters(&mut self.rng, len))));
        }
        let mut batch = WriteBatch::new();
        for (key, value) in &ops {
            match value {
                Some(value) => batch.put(key, value).expect("put"),
                None => batch.delete(key).expect("delete"),
            }
        }
        let sync = self.rng.chance(1, 4);
        self.batches.insert(id, ops);
        match db.write(&WriteOptions { sync, ..WriteOptions::default() }, batch) {
            Ok(()) => {
                self.acked.insert(id);
                if sync {
                    self.durable.extend(self.acked.iter());
                }
            }
            Err(error) => {
                self.failed.insert(id);
                self.expect(&error, "write");
            }
        }
    }

    fn other(&mut self, result: Result<(), Error>, doing: &'static str, is_durable_then: bool) {
        match result {
            Ok(()) if is_durable_then => self.durable.extend(self.acked.iter()),
            Ok(()) => {}
            Err(error) => self.expect(&error, doing),
        }
    }

    /// The whole life of a database, with what fails on the way.
    fn live(&mut self, options: &Options) {
        let mut next = 0;
        for _ in 0..2 {
            let db = match open(&self.env, options) {
                Ok(db) => db,
                Err(error) => {
                    self.expect(&error, "open");
                    continue;
                }
            };
            if !self.adopt_what_came_back(&db) {
                continue;
            }
            for part in 0..4 {
                for _ in 0..14 {
                    self.write(&db, next);
                    next += 1;
                }
                let result = match part {
                    0 | 2 => db.flush(),
                    1 => db.sync(),
                    _ => db.compact_range(&CompactRangeOptions::default(), None, None),
                };
                self.other(result, "flush, sync or compaction", true);
                self.read(&db);
            }
            let result = db.close();
            self.other(result, "close", true);
        }
    }

    /// A write that failed may be in the log all the same: then it is there from the next opening
    /// on, as good as any other. False if no read gets through.
    fn adopt_what_came_back(&mut self, db: &Db) -> bool {
        for _ in 0..2 {
            match contents(db) {
                Ok(found) => {
                    let back: Vec<u64> = found.keys().filter_map(|key| witnessed(key)).collect();
                    for id in back.into_iter().filter(|id| self.failed.remove(id)) {
                        self.came_back += 1;
                        self.acked.insert(id);
                    }
                    assert!(found == self.model(), "the reopened database differs from the model");
                    // What recovery shows it has synced.
                    self.durable.extend(self.acked.iter());
                    return true;
                }
                Err(error) => self.expect(&error, "read"),
            }
        }
        false
    }

    /// Reads go on, whatever happened to writes; only a read that fails itself may say so.
    fn read(&mut self, db: &Db) {
        match contents(db) {
            Ok(found) => assert!(found == self.model(), "reads differ from the model"),
            Err(error) => self.expect(&error, "read"),
        }
    }

    /// Opens what a kill and a power cut would leave, without faults, and checks it.
    fn check_after(&mut self, options: &Options) {
        for policy in
            [CrashPolicy::KeepAll, CrashPolicy::DropUnsynced, CrashPolicy::Random(self.rng.next_u64())]
        {
            let image = self.env.sim_fs().crash_image(policy);
            let env = self.env.on_fs(image.clone(), image);
            let db = open(&env, options).unwrap_or_else(|error| panic!("{policy:?}: reopening gave {error}"));
            db.verify(&mut |_, _| {}).expect("verify");
            let found = contents(&db).expect("read");
            let present: BTreeSet<u64> = found.keys().filter_map(|key| witnessed(key)).collect();
            let promised = if policy == CrashPolicy::KeepAll { &self.acked } else { &self.durable };
            let lost: Vec<_> = promised.difference(&present).collect();
            assert!(lost.is_empty(), "{policy:?}: promised batches are lost: {lost:?}");
            let last = present.last().copied().unwrap_or(0);
            let gaps: Vec<_> = self.acked.range(..last).filter(|id| !present.contains(id)).collect();
            assert!(gaps.is_empty(), "{policy:?}: batches {gaps:?} are lost, later ones are not");
            self.came_back += self.failed.intersection(&present).count() as u64;
            let expected = self.model_of(|id| present.contains(id));
            assert!(found == expected, "{policy:?}: the state is not the model's");
            db.put(&synced(), b"goes on", b"").expect("the reopened database takes writes");
        }
    }
}

#[derive(Default, Debug)]
struct Driven {
    runs: u64,
    runs_with_errors: u64,
    errors: BTreeMap<&'static str, u64>,
    injected_by_kind: BTreeMap<OpKind, u64>,
    came_back: u64,
}

/// Fails the n-th call of `op` for n = 1, 2, 3.. and then in growing steps, until there are no more.
fn fail_each(op: OpKind, fault: impl Fn(i32) -> Fault, errno: i32, times: u64, driven: &mut Driven) {
    let options = tiny();
    let mut n = 1;
    loop {
        let mut run = Run::new(n, errno);
        run.faults.add(Rule { times, ..Rule::nth(op, n, fault(errno)) });
        let env = run.env.clone();
        env.run(|| {
            run.live(&options);
            run.check_after(&options);
        });
        let injected = run.faults.injected();
        driven.runs += 1;
        driven.runs_with_errors += u64::from(!run.errors.is_empty());
        driven.came_back += run.came_back;
        for (doing, count) in &run.errors {
            *driven.errors.entry(doing).or_insert(0) += count;
        }
        *driven.injected_by_kind.entry(op).or_insert(0) += injected;
        if injected == 0 {
            return;
        }
        n += 1 + n / 6;
    }
}

/// All calls that the engine makes; links and removed directories are not among them.
const MADE: [OpKind; 13] = [
    OpKind::Create,
    OpKind::Open,
    OpKind::Rename,
    OpKind::Unlink,
    OpKind::CreateDir,
    OpKind::List,
    OpKind::SyncDir,
    OpKind::Lock,
    OpKind::Read,
    OpKind::Write,
    OpKind::Sync,
    OpKind::Allocate,
    OpKind::SetLen,
];

fn assert_driven(driven: &Driven) {
    println!("{driven:?}");
    assert!(driven.runs > 100 && driven.runs_with_errors > driven.runs / 4, "{driven:?}");
    for doing in ["open", "write", "flush, sync or compaction", "read", "close"] {
        assert!(driven.errors.get(doing).is_some_and(|n| *n > 0), "{doing} never failed: {driven:?}");
    }
    for op in MADE.iter().filter(|op| **op != OpKind::SetLen) {
        assert!(driven.injected_by_kind[op] > 0, "{op:?} never failed: {driven:?}");
    }
}

#[test]
fn the_nth_call_of_each_kind_fails_with_an_io_error() {
    let mut driven = Driven::default();
    for op in MADE {
        fail_each(op, Fault::Errno, EIO, 1, &mut driven);
    }
    assert_driven(&driven);
}

#[test]
fn the_nth_call_of_each_kind_fails_on_a_full_disk() {
    let mut driven = Driven::default();
    for op in MADE {
        fail_each(op, Fault::Errno, ENOSPC, 1, &mut driven);
    }
    assert_driven(&driven);
}

#[test]
fn all_calls_of_a_kind_fail_from_the_nth_on() {
    let mut driven = Driven::default();
    for op in MADE {
        fail_each(op, Fault::Errno, EIO, u64::MAX, &mut driven);
    }
    assert_driven(&driven);
}

/// The call did its work and said that it had not, or did a part of it.
#[test]
fn calls_that_fail_after_they_took_effect_or_in_the_middle() {
    let mut driven = Driven::default();
    for op in MADE.into_iter().filter(|op| *op != OpKind::Lock) {
        fail_each(op, Fault::ErrnoAfter, EIO, 1, &mut driven);
    }
    for part in [1, 60, 700] {
        fail_each(OpKind::Write, |errno| Fault::TornWrite(part, errno), ENOSPC, 1, &mut driven);
    }
    println!("{driven:?}");
    assert!(driven.runs > 100 && driven.runs_with_errors > driven.runs / 4, "{driven:?}");
    assert!(driven.came_back > 0, "no failed write came back, so the case was not met: {driven:?}");
}

/// How long a retry after a full disk may take on the simulated clock.
const RESUMES_WITHIN: u64 = 2 * SECOND;

fn bytes_used(fs: &SimFs) -> u64 {
    (1 << 40) - fs.free_bytes("/".as_ref()).expect("free")
}

/// Writes until the disk is full, checks that reads go on, frees it, and expects writes to go on
/// by themselves.
fn fill_disk(options: &Options, room: u64, value_bytes: usize, expect_background: bool) {
    let env = SimEnv::new(3);
    env.run(|| {
        let db = open(&env, options).expect("open");
        db.put(&synced(), b"first", b"value").expect("put");
        let fs = env.sim_fs();
        fs.set_capacity(bytes_used(fs) + room);
        let mut written = 0u32;
        let error = loop {
            match db.put(&unsynced(), &written.to_be_bytes(), &vec![b'v'; value_bytes]) {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
            // Lets background jobs meet the full disk, too.
            env.sleep(1_000_000);
            assert!(written < 10_000, "the disk never fills");
        };
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        let in_background = db.property("dialsm.background-error").expect("known");
        assert_eq!(!in_background.is_empty(), expect_background, "{in_background}");
        for _ in 0..3 {
            env.sleep(SECOND);
            let error = db.put(&unsynced(), b"more", &vec![b'v'; value_bytes]).expect_err("full");
            assert_eq!(error.kind(), ErrorKind::NoSpace);
            assert_eq!(contents(&db).expect("reads go on").len() as u32, written + 1);
        }
        fs.set_capacity(1 << 40);
        env.sleep(RESUMES_WITHIN);
        db.put(&synced(), b"again", b"").expect("space is back");
        db.flush().expect("flush");
        db.wait_until_idle().expect("idle");
        assert_eq!(contents(&db).expect("read").len() as u32, written + 2);
        db.verify(&mut |_, _| {}).expect("verify");
        drop(db);
        let image = fs.crash_image(CrashPolicy::DropUnsynced);
        let db = open(&env.on_fs(image.clone(), image), options).expect("reopen");
        assert_eq!(contents(&db).expect("read").len() as u32, written + 2);
    });
}

#[test]
fn writes_stop_on_a_full_disk_and_resume_by_themselves() {
    // Segments are large: a new one finds no room, while tables still would.
    fill_disk(&Options { log_segment_bytes: 1 << 20, ..tiny() }, 900 << 10, 2000, false);
    // The log has room: the flush finds none.
    let options = Options { log_segment_bytes: 4 << 20, ..tiny() };
    fill_disk(&options, 40 << 10, 2000, true);
    for room in [10_000, 70_000, 100_000, 200_000, 333_333] {
        fill_disk_anyhow(room);
    }
}

/// As above, wherever the disk fills up first.
fn fill_disk_anyhow(room: u64) {
    let env = SimEnv::new(room);
    env.run(|| {
        let db = open(&env, &tiny()).expect("open");
        db.put(&synced(), b"first", b"value").expect("put");
        let fs = env.sim_fs();
        let mut rng = SplitMix64::new(room);
        let mut model = contents(&db).expect("read");
        let mut refused = 0;
        for round in 0..3 {
            fs.set_capacity(bytes_used(fs) + room);
            for i in 0..200u32 {
                let key = format!("{round}/{}", rng.below(300)).into_bytes();
                let len = rng.below(3000);
                let value = letters(&mut rng, len);
                match db.put(&unsynced(), &key, &value) {
                    Ok(()) => drop(model.insert(key, value)),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::NoSpace, "write {i}");
                        refused += 1;
                    }
                }
                env.sleep(rng.below(5_000_000));
            }
            assert!(contents(&db).expect("reads go on") == model);
            fs.set_capacity(1 << 40);
            env.sleep(RESUMES_WITHIN);
            db.put(&synced(), b"first", &letters(&mut rng, 10)).expect("space is back");
            model.insert(
                b"first".to_vec(),
                db.get(&ReadOptions::default(), b"first").expect("get").expect("there").to_vec(),
            );
        }
        assert!(refused > 0, "the disk never filled");
        db.wait_until_idle().expect("idle");
        assert!(contents(&db).expect("read") == model);
        drop(db);
        let db = open(&env, &tiny()).expect("reopen");
        assert!(contents(&db).expect("read") == model);
    });
}

/// One call that finds no space, wherever it is, is over when the next attempt goes well.
#[test]
fn a_full_disk_met_once_passes_wherever_it_was_met() {
    let places = [
        (OpKind::Write, "MANIFEST"),
        (OpKind::Create, ".sst"),
        (OpKind::Write, ".sst"),
        (OpKind::Create, ".log"),
        (OpKind::Allocate, ".log"),
        (OpKind::Write, ".log"),
    ];
    for (op, part) in places {
        passes(ENOSPC, ErrorKind::NoSpace, op, part);
    }
}

/// So is a call that finds no file descriptor.
#[test]
fn a_process_without_descriptors_goes_on_when_it_has_some() {
    for part in [".sst", ".log"] {
        passes(EMFILE, ErrorKind::Io, OpKind::Create, part);
    }
}

fn passes(errno: i32, kind: ErrorKind, op: OpKind, part: &str) {
    let run = Run::new(1, errno);
    let env = run.env.clone();
    env.run(|| {
        // The manifest's first record is the flush's then, which somebody waits for; that of a new
        // segment is made good by the next one, and nobody need know.
        let log_segment_bytes = if part == "MANIFEST" { 1 << 20 } else { tiny().log_segment_bytes };
        let log_total_bytes_max = tiny().log_total_bytes_max.max(1 << 20);
        let db = open(&env, &Options { log_segment_bytes, log_total_bytes_max, ..tiny() }).expect("open");
        db.put(&synced(), b"before", &[b'v'; 70_000]).expect("put");
        db.wait_until_idle().expect("idle");
        run.faults.add(Rule::nth(op, 1, Fault::Errno(errno)).on(part));
        let met = [db.put(&unsynced(), b"during", &[b'v'; 70_000]).err(), db.flush().err()];
        assert!(run.faults.injected() >= 1, "{op:?} of {part} never came");
        run.faults.clear();
        let kinds: Vec<_> = met.iter().flatten().map(|error| (error.kind(), error.os_code())).collect();
        assert!(kinds.iter().all(|found| *found == (kind, Some(errno))), "{op:?} of {part}: {kinds:?}");
        // Without deferred syncs the flush settles its own table, fails, and is settled once more before
        // anybody is told.
        let is_made_good = part == "MANIFEST" && !tiny().deferred_sync;
        assert!(!kinds.is_empty() || is_made_good, "{op:?} of {part} failed unnoticed");
        env.sleep(RESUMES_WITHIN);
        db.put(&synced(), b"after", b"").unwrap_or_else(|error| panic!("{op:?} of {part}: {error}"));
        db.flush().expect("flush");
        let found = contents(&db).expect("read");
        drop(db);
        let image = env.sim_fs().crash_image(CrashPolicy::DropUnsynced);
        let db = open(&env.on_fs(image.clone(), image), &tiny()).expect("reopen");
        assert!(contents(&db).expect("read") == found, "{op:?} of {part}");
    });
}

#[test]
fn a_log_that_cannot_be_synced_poisons_the_database_until_it_is_reopened() {
    for errno in [EIO, ENOSPC] {
        let mut run = Run::new(9, errno);
        let env = run.env.clone();
        env.run(|| {
            let options = tiny();
            let db = open(&env, &options).expect("open");
            db.put(&synced(), b"before", b"1").expect("put");
            db.put(&unsynced(), b"between", b"2").expect("put");
            run.faults.add(Rule::nth(OpKind::Sync, 1, Fault::Errno(errno)).on(".log"));
            let error = db.put(&synced(), b"failed", b"3").expect_err("the sync failed");
            run.expect(&error, "write");
            for sync in [false, true] {
                let write = WriteOptions { sync, ..WriteOptions::default() };
                let error = db.put(&write, b"after", b"4").expect_err("poisoned");
                assert_eq!(error.kind(), ErrorKind::Poisoned);
            }
            assert_eq!(db.sync().expect_err("poisoned").kind(), ErrorKind::Poisoned, "sync");
            assert_eq!(db.flush().expect_err("poisoned").kind(), ErrorKind::Poisoned, "flush");
            env.sleep(10 * SECOND);
            assert_eq!(db.put(&unsynced(), b"late", b"5").expect_err("poisoned").kind(), ErrorKind::Poisoned);
            let get = |key: &[u8]| db.get(&ReadOptions::default(), key).expect("reads go on");
            assert!(get(b"before").is_some() && get(b"between").is_some());
            assert!(get(b"failed").is_none() && get(b"after").is_none());
            drop(db);
            let db = open(&env, &options).expect("reopen");
            db.put(&synced(), b"after", b"6").expect("put");
            let found = contents(&db).expect("read");
            assert!(found.contains_key(b"before".as_slice()) && found.contains_key(b"between".as_slice()));
        });
    }
}

/// A bug in a background job used to leave writers waiting for ever for what it would have done.
#[test]
fn a_panic_in_a_background_job_stops_writes_and_hangs_nobody() {
    let places = [
        (OpKind::Create, ".sst"),
        (OpKind::Write, ".sst"),
        (OpKind::Sync, ".sst"),
        (OpKind::Open, ".sst"),
        (OpKind::Write, "MANIFEST"),
        (OpKind::Unlink, ".sst"),
    ];
    for (op, part) in places {
        let run = Run::new(3, EIO);
        let env = run.env.clone();
        env.run(|| {
            let db = open(&env, &tiny()).expect("open");
            // A table whose sync fails is made again: that one, too.
            let is_sync = op == OpKind::Sync;
            let rule = if is_sync { Rule::every(op, Fault::Panic) } else { Rule::nth(op, 1, Fault::Panic) };
            run.faults.add(rule.on(part));
            let mut model = contents(&db).expect("read");
            let mut refused = None;
            // More than enough for several flushes and compactions.
            for i in 0..2000u32 {
                let key = format!("{:04}", i % 100).into_bytes();
                match db.put(&unsynced(), &key, &[i as u8; 2000]) {
                    Ok(()) => drop(model.insert(key, vec![i as u8; 2000])),
                    Err(error) => {
                        refused = Some(error);
                        break;
                    }
                }
                env.sleep(1_000_000);
            }
            assert!(run.faults.injected() >= 1, "{op:?} of {part} never came");
            run.faults.clear();
            let refused = refused.unwrap_or_else(|| panic!("{op:?} of {part}: writes went on"));
            assert_eq!(refused.kind(), ErrorKind::Poisoned, "{op:?} of {part}");
            assert_eq!(db.flush().expect_err("stopped").kind(), ErrorKind::Poisoned);
            assert_eq!(db.wait_until_idle().expect_err("stopped").kind(), ErrorKind::Poisoned);
            assert!(contents(&db).expect("reads go on") == model, "{op:?} of {part}");
            drop(db);
            let db = open(&env, &tiny()).expect("reopen");
            assert!(contents(&db).expect("read") == model, "{op:?} of {part}: after reopening");
        });
    }
}

/// The directory's own name was synced last when a database was made: if that failed, the next
/// opening found `CURRENT` and never asked again, and a power cut took the whole database.
#[test]
fn the_name_of_the_directory_is_durable_even_if_its_sync_failed_at_creation() {
    let mut failed = 0;
    for n in 1..8 {
        let run = Run::new(n, EIO);
        let env = run.env.clone();
        run.faults.add(Rule::nth(OpKind::SyncDir, n, Fault::Errno(EIO)));
        env.run(|| {
            failed += u64::from(open(&env, &tiny()).is_err());
            run.faults.clear();
            let db = open(&env, &tiny()).expect("open");
            db.put(&synced(), b"key", b"value").expect("put");
            let image = env.sim_fs().crash_image(CrashPolicy::DropUnsynced);
            let db = open(&env.on_fs(image.clone(), image), &tiny()).expect("reopen");
            assert_eq!(contents(&db).expect("read").len(), 1, "directory sync {n} failed");
        });
    }
    assert!(failed >= 3, "{failed}");
}

/// Only the last directory's name was synced, though an opening makes those above it, too.
#[test]
fn the_names_of_all_directories_that_an_opening_makes_are_durable() {
    let env = SimEnv::new(1);
    env.run(|| {
        let path = std::path::Path::new("/a/b/c/db");
        let db = Db::open(env.clone(), path, tiny()).expect("open");
        db.put(&synced(), b"key", b"value").expect("put");
        let image = env.sim_fs().crash_image(CrashPolicy::DropUnsynced);
        let options = Options { create_if_missing: false, ..tiny() };
        let db = Db::open(env.on_fs(image.clone(), image), path, options).expect("reopen");
        assert_eq!(contents(&db).expect("read").len(), 1);
    });
}
