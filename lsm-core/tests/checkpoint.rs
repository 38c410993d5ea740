//! Checkpoints: what is in them, beside writers, after power cuts, where calls fail.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

mod common;
mod hostile;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::workload::{Cut, Drive, Expectation, Machine};
use dialsm_core::key::Comparator;
use dialsm_core::options::RecoveryMode;
use dialsm_core::{Db, ErrorKind, FlushOptions, KeyspaceOptions, Options, ReadOptions, WriteOptions};
use dialsm_io::{CrashPolicy, Env, Fault, FaultFs, Fs, OpKind, Rule, SimEnv, SimFs, SplitMix64};
use hostile::{DIR, Model, Real, by_hand, contents, env_on, get, kind_of, open_on, put, tiny};
use parking_lot::Mutex;

const COPY: &str = "/copies/one";

/// The strictest reading of a copy: no damage at all, and all that `verify` looks at.
fn strict(options: &Options) -> Options {
    Options { recovery_mode: RecoveryMode::AbsoluteConsistency, create_if_missing: false, ..options.clone() }
}

fn open_copy(env: Arc<dyn Env>, path: &Path, options: &Options) -> Db {
    let db = Db::open(env, path, strict(options)).expect("the copy opens");
    db.verify(&mut |_, _| {}).expect("the copy verifies");
    db
}

/// A database with tables on two levels, some log, and a few deletes; and what it holds.
fn fill(db: &Db) -> Model {
    let mut model = Model::new();
    for i in 0..600u32 {
        let (key, value) = ((i * 7 % 500).to_be_bytes().to_vec(), vec![i as u8; 200]);
        put(db, &key, &value);
        model.insert(key, value);
        match i {
            150 | 450 => db.flush().expect("flush"),
            300 => db.compact_range(&Default::default(), None, None).expect("compact"),
            i if i % 50 == 3 => {
                let key = (i % 500).to_be_bytes().to_vec();
                db.delete(&WriteOptions::default(), &key).expect("delete");
                model.remove(&key);
            }
            _ => {}
        }
    }
    model
}

#[test]
fn a_checkpoint_holds_all_and_outlives_the_source() {
    let real = Real::new();
    let db = real.open(&by_hand());
    let model = fill(&db);
    // Or a rollback might unlink the source's name of a table that was copied.
    db.wait_until_idle().expect("idle");
    let copy = real.dir.path().join("deep/er/copy");
    db.checkpoint(&copy).expect("checkpoint");
    put(&db, b"later", b"only in the source");
    // Tables are links: no space of their own.
    let tables: Vec<PathBuf> = std::fs::read_dir(&copy)
        .expect("list")
        .map(|entry| entry.expect("entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "sst"))
        .collect();
    assert!(tables.len() >= 2, "{tables:?}");
    for table in &tables {
        assert!(std::fs::metadata(table).expect("table").nlink() >= 2, "{table:?} is a link");
    }
    assert!(!real.dir.path().join("deep/er/copy.unfinished-checkpoint").exists());
    assert_eq!(Options::load(real.env.as_ref(), &copy).expect("saved").to_text(), by_hand().to_text());
    // Read without writing first, then for good.
    let reader = Db::open_read_only(real.env.clone(), &copy, strict(&by_hand())).expect("read-only");
    assert_eq!(contents(&reader), model);
    drop(reader);
    db.close().expect("close");
    drop(db);
    Db::destroy(real.env.as_ref(), &real.path()).expect("destroy the source");
    let copied = open_copy(real.env.clone(), &copy, &by_hand());
    assert_eq!(contents(&copied), model);
    put(&copied, b"own", b"life");
    copied.compact_range(&Default::default(), None, None).expect("compact");
    drop(copied);
    let copied = open_copy(real.env.clone(), &copy, &by_hand());
    assert_eq!(get(&copied, b"own"), Some(b"life".to_vec()));
    assert_eq!(contents(&copied).len(), model.len() + 1);
}

/// Keyspaces with options of their own, one of them dropped, one with writes that are in no log.
#[test]
fn a_checkpoint_holds_all_keyspaces() {
    let real = Real::new();
    let db = real.open(&by_hand());
    let counters = KeyspaceOptions {
        merge_operator: Some(dialsm_core::merge_operator::counter()),
        table_bytes: 1 << 20,
        ..by_hand().keyspace()
    };
    let backward = KeyspaceOptions { comparator: Comparator::ReverseBytewise, ..by_hand().keyspace() };
    let own = [("counters", counters), ("backward", backward)];
    let gone = db.create_keyspace("gone", by_hand().keyspace()).expect("create");
    let [counters, backward] =
        own.each_ref().map(|(name, own)| db.create_keyspace(name, own.clone()).expect("create"));
    let (logged, unlogged) =
        (WriteOptions::default(), WriteOptions { disable_log: true, ..Default::default() });
    let model = fill(&db);
    for n in 0..100u8 {
        db.put_in(&logged, &gone, &[n], b"gone").expect("put");
        db.merge_in(&logged, &counters, b"sum", &u64::from(n).to_le_bytes()).expect("merge");
        db.put_in(&unlogged, &backward, &[n], b"unlogged").expect("put");
    }
    db.flush_in(&FlushOptions::default(), &gone).expect("flush");
    db.delete_range_in(&logged, &backward, &[90], &[10]).expect("delete");
    db.drop_keyspace(&gone).expect("drop");
    let copy = real.dir.path().join("copy");
    db.checkpoint(&copy).expect("checkpoint");
    db.merge_in(&logged, &counters, b"sum", &1u64.to_le_bytes()).expect("merge");
    drop(db);

    assert_eq!(
        Db::list_keyspaces(real.env.as_ref(), &copy).expect("list"),
        ["default", "counters", "backward"]
    );
    let (_, saved) = Options::load_all(real.env.as_ref(), &copy).expect("saved");
    assert_eq!(saved.iter().map(|(name, _)| &name[..]).collect::<Vec<_>>(), ["counters", "backward"]);
    assert_eq!(saved[0].1.table_bytes, 1 << 20);
    let check = |db: &Db| {
        assert_eq!(contents(db), model);
        let [counters, backward] = ["counters", "backward"].map(|name| db.keyspace(name).expect("there"));
        let sum = db.get_in(&ReadOptions::default(), &counters, b"sum").expect("get").expect("a sum");
        assert_eq!(sum[..], 4950u64.to_le_bytes());
        let mut iter = db.iter_in(&ReadOptions::default(), &backward).expect("iter");
        iter.seek_to_first().expect("seek");
        let mut keys = Vec::new();
        while iter.valid() {
            keys.push(iter.key()[0]);
            iter.next().expect("next");
        }
        assert_eq!(keys, (91..100u8).rev().chain((0..=10).rev()).collect::<Vec<_>>());
    };
    let missing = [("nowhere", by_hand().keyspace())];
    let refused = Db::open_read_only_with(real.env.clone(), &copy, by_hand(), &missing);
    assert_eq!(refused.err().expect("none is created").kind(), ErrorKind::NotFound);
    let reader = Db::open_read_only_with(real.env.clone(), &copy, strict(&by_hand()), &own).expect("open");
    check(&reader);
    let counters = reader.keyspace("counters").expect("there");
    for refused in [
        reader.put_in(&logged, &counters, b"k", b"v"),
        reader.create_keyspace("new", by_hand().keyspace()).map(drop),
        reader.drop_keyspace(&counters),
        reader.set_options_in(&counters, &[("table_bytes", "2M")]),
        reader.flush_all(&FlushOptions::default()),
    ] {
        assert_eq!(kind_of(refused), ErrorKind::ReadOnly);
    }
    drop(reader);
    let copied = Db::open_with(real.env.clone(), &copy, strict(&by_hand()), &own).expect("open");
    copied.verify(&mut |_, _| {}).expect("verify");
    check(&copied);
    let new = copied.create_keyspace("new", by_hand().keyspace()).expect("create");
    assert!(new.id() > backward.id() && copied.keyspace("gone").is_none());
}

#[test]
fn changing_the_copy_leaves_the_source_alone() {
    let real = Real::new();
    let db = real.open(&by_hand());
    let model = fill(&db);
    let copy = real.dir.path().join("copy");
    db.checkpoint(&copy).expect("checkpoint");
    let copied = open_copy(real.env.clone(), &copy, &by_hand());
    for key in model.keys() {
        copied.delete(&WriteOptions::default(), key).expect("delete");
    }
    copied.compact_range(&Default::default(), None, None).expect("compact");
    drop(copied);
    Db::destroy(real.env.as_ref(), &copy).expect("destroy the copy");
    assert_eq!(contents(&db), model);
    db.verify(&mut |_, _| {}).expect("verify");
    drop(db);
    assert_eq!(contents(&real.open(&by_hand())), model);
}

#[test]
fn an_empty_database_and_one_after_another() {
    let real = Real::new();
    let db = real.open(&tiny());
    let at = |n: u32| real.dir.path().join(format!("copy-{n}"));
    db.checkpoint(&at(0)).expect("of nothing");
    assert_eq!(contents(&open_copy(real.env.clone(), &at(0), &tiny())).len(), 0);
    for n in 1..6u32 {
        put(&db, &n.to_be_bytes(), b"v");
        db.checkpoint(&at(n)).expect("checkpoint");
        let copied = open_copy(real.env.clone(), &at(n), &tiny());
        assert_eq!(contents(&copied).len(), n as usize);
        // A copy of a copy.
        let again = real.dir.path().join(format!("again-{n}"));
        put(&copied, b"more", b"v");
        copied.checkpoint(&again).expect("of a copy");
        assert_eq!(contents(&open_copy(real.env.clone(), &again, &tiny())).len(), n as usize + 1);
    }
}

#[test]
fn targets_that_are_refused_and_one_that_is_not() {
    let real = Real::new();
    let db = real.open(&tiny());
    put(&db, b"k", b"v");
    let at = |name: &str| real.dir.path().join(name);
    std::fs::create_dir(at("full")).expect("directory");
    std::fs::write(at("full/precious"), b"x").expect("write");
    std::fs::write(at("file"), b"x").expect("write");
    assert_eq!(kind_of(db.checkpoint(&at("full"))), ErrorKind::AlreadyExists);
    assert!(db.checkpoint(&at("file")).is_err());
    assert_eq!(kind_of(db.checkpoint(&real.path())), ErrorKind::AlreadyExists);
    assert_eq!(kind_of(db.checkpoint(Path::new("/"))), ErrorKind::InvalidArgument);
    // Files of somebody else under the temporary name stay.
    std::fs::create_dir(at("taken.unfinished-checkpoint")).expect("directory");
    std::fs::write(at("taken.unfinished-checkpoint/precious"), b"x").expect("write");
    assert_eq!(kind_of(db.checkpoint(&at("taken"))), ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read(at("taken.unfinished-checkpoint/precious")).expect("still there"), b"x");
    assert!(!at("taken").exists());
    // An empty directory is as good as none; so is what an attempt that was killed has left.
    std::fs::create_dir(at("empty")).expect("directory");
    std::fs::create_dir(at("empty.unfinished-checkpoint")).expect("directory");
    std::fs::write(at("empty.unfinished-checkpoint/000099.sst"), b"half").expect("write");
    std::fs::write(at("empty.unfinished-checkpoint/CURRENT"), b"MANIFEST-000001\n").expect("write");
    std::fs::write(at("empty.unfinished-checkpoint/LOCK"), b"").expect("write");
    db.checkpoint(&at("empty")).expect("checkpoint");
    assert!(!at("empty/000099.sst").exists() && !at("empty.unfinished-checkpoint").exists());
    assert_eq!(contents(&open_copy(real.env.clone(), &at("empty"), &tiny())).len(), 1);
    // A second one at the same place, while the first is at it.
    std::fs::create_dir(at("busy.unfinished-checkpoint")).expect("directory");
    let lock = real
        .env
        .fs()
        .lock(&at("busy.unfinished-checkpoint/LOCK"), dialsm_io::LockMode::Exclusive)
        .expect("lock");
    assert_eq!(kind_of(db.checkpoint(&at("busy"))), ErrorKind::Busy);
    drop(lock);
    db.checkpoint(&at("busy")).expect("free again");
    db.close().expect("close");
    assert_eq!(kind_of(db.checkpoint(&at("late"))), ErrorKind::Closed);
}

/// Where linking is refused, tables are copied, and checked on the way.
#[test]
fn tables_are_copied_where_they_can_not_be_linked() {
    const EXDEV: i32 = 18;
    const EPERM: i32 = 1;
    const EMLINK: i32 = 31;
    for errno in [EXDEV, EPERM, EMLINK] {
        let sim = SimFs::new(1);
        let faults = FaultFs::new(sim.clone());
        let db = open_on(faults.clone(), &by_hand()).expect("open");
        let model = fill(&db);
        faults.add(Rule::every(OpKind::HardLink, Fault::Errno(errno)));
        db.checkpoint(Path::new(COPY)).expect("checkpoint");
        assert!(faults.injected() >= 2);
        drop(db);
        // All of it is durable.
        let image = sim.crash_image(CrashPolicy::DropUnsynced);
        assert_eq!(contents(&open_copy(env_on(image), Path::new(COPY), &by_hand())), model);
    }
    let sim = SimFs::new(1);
    let faults = FaultFs::new(sim.clone());
    let db = open_on(faults.clone(), &by_hand()).expect("open");
    fill(&db);
    // What was compacted away goes behind our back, and may not be the table that is spoilt.
    while db.property("dialsm.obsolete-tables").as_deref() != Some("0") {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let names = sim.list(Path::new(DIR)).expect("list");
    let table = names.iter().find(|name| name.ends_with(".sst")).expect("a table");
    let file = sim.open(&Path::new(DIR).join(table), dialsm_io::Access::ReadWrite).expect("open");
    let mut byte = [0];
    file.read_at(&mut byte, 100).expect("read");
    file.write_at(&[byte[0] ^ 1], 100).expect("write");
    faults.add(Rule::every(OpKind::HardLink, Fault::Errno(EXDEV)));
    let error = db.checkpoint(Path::new(COPY)).expect_err("a bad table");
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.path().is_some_and(|path| path.ends_with(table)), "{error}");
    assert_eq!(sim.list(Path::new("/copies")).expect("list").len(), 0, "nothing is left of it");
}

/// In the middle of a checkpoint the database rewrites all its tables, and its log goes round often
/// enough to recycle every segment: the tables stay until they are linked, the log until it is copied.
#[test]
fn what_goes_meanwhile_is_kept() {
    let options = Options { log_recycle_max: 4, ..by_hand() };
    for stage in [OpKind::HardLink, OpKind::Create] {
        let sim = SimFs::new(1);
        let db = open_on(sim.clone(), &options).expect("open");
        let model = fill(&db);
        let (busy, used) = (db.clone(), Arc::new(std::sync::atomic::AtomicBool::new(false)));
        let was_used = used.clone();
        sim.add_call_hook(Arc::new(move |call| {
            let path = call.target.as_ref().unwrap_or(&call.path);
            let is_stage = call.op == Some(stage) && path.starts_with("/copies");
            let is_log = path.extension().is_some_and(|extension| extension == "log");
            if !is_stage || (stage == OpKind::Create && !is_log) {
                return;
            }
            // Calls from here come by again.
            if was_used.swap(true, std::sync::atomic::Ordering::SeqCst) {
                return;
            }
            for round in 0..12u8 {
                (0..100u32).for_each(|n| put(&busy, &n.to_be_bytes(), &[round; 900]));
                busy.flush().expect("flush");
            }
            let rewrite = dialsm_core::CompactRangeOptions { rewrite_bottom: true, ..Default::default() };
            busy.compact_range(&rewrite, None, None).expect("compact");
            busy.wait_until_idle().expect("idle");
            // Workers unlink what is obsolete before they look for a job.
            put(&busy, b"one more", b"table");
            busy.flush().expect("flush");
            busy.wait_until_idle().expect("idle");
        }));
        db.checkpoint(Path::new(COPY)).expect("checkpoint");
        sim.clear_call_hooks();
        assert!(used.load(std::sync::atomic::Ordering::SeqCst));
        drop(db);
        let image = sim.crash_image(CrashPolicy::DropUnsynced);
        assert_eq!(
            contents(&open_copy(env_on(image.clone()), Path::new(COPY), &options)),
            model,
            "{stage:?}"
        );
        let source = open_on(image, &options).expect("open");
        source.verify(&mut |_, _| {}).expect("verify");
        assert_ne!(contents(&source), model);
    }
}

/// Writes that bypassed the log: settled, flushed but not settled, in sealed and active memtables.
#[test]
fn writes_that_bypassed_the_log_are_in_it() {
    let unlogged = WriteOptions { disable_log: true, ..WriteOptions::default() };
    let sim = SimFs::new(1);
    let db = open_on(sim.clone(), &by_hand()).expect("open");
    let mut model = Model::new();
    let mut write = |options: &WriteOptions, n: u32| {
        let (key, value) = (n.to_be_bytes().to_vec(), vec![n as u8; 100]);
        db.put(options, &key, &value).expect("put");
        model.insert(key, value);
    };
    for n in 0..300 {
        let logged = WriteOptions::default();
        write(if n % 3 == 0 { &unlogged } else { &logged }, n);
        if n % 100 == 50 {
            db.flush_with(&FlushOptions { wait: false, allow_stall: true, atomic: false }).expect("flush");
        }
    }
    let flushes = db.metrics().counters.flushes;
    db.checkpoint(Path::new(COPY)).expect("checkpoint");
    assert!(db.metrics().counters.flushes > flushes, "it had to flush");
    let image = sim.crash_image(CrashPolicy::DropUnsynced);
    assert_eq!(contents(&open_copy(env_on(image), Path::new(COPY), &by_hand())), model);
    // With the log only, it does not flush.
    let flushes = db.metrics().counters.flushes;
    put(&db, b"logged", b"v");
    db.checkpoint(Path::new("/copies/two")).expect("checkpoint");
    assert_eq!(db.metrics().counters.flushes, flushes);
}

/// One writer bypasses the log without end: the checkpoint comes to its end all the same, and is a
/// prefix of what was written.
#[test]
fn writes_that_bypass_the_log_all_the_time() {
    let real = Real::new();
    let db = real.open(&tiny());
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let acked = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let (writer, done, count) = (db.clone(), stop.clone(), acked.clone());
    let thread = std::thread::spawn(move || {
        let unlogged = WriteOptions { disable_log: true, ..WriteOptions::default() };
        for n in 1u64.. {
            let options = if n.is_multiple_of(5) { WriteOptions::default() } else { unlogged };
            writer.put(&options, &n.to_be_bytes(), &[7; 300]).expect("put");
            count.store(n, std::sync::atomic::Ordering::SeqCst);
            if done.load(std::sync::atomic::Ordering::SeqCst) {
                return n;
            }
            if n.is_multiple_of(20) {
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
        }
        0
    });
    let mut checked = 0;
    for i in 0..8 {
        while acked.load(std::sync::atomic::Ordering::SeqCst) < 500 * (i + 1) {
            std::thread::yield_now();
        }
        let before = acked.load(std::sync::atomic::Ordering::SeqCst);
        let copy = real.dir.path().join(format!("copy-{i}"));
        db.checkpoint(&copy).expect("checkpoint");
        let found = contents(&open_copy(real.env.clone(), &copy, &tiny()));
        assert!(found.len() as u64 >= before, "{} of {before}", found.len());
        let last = found.keys().next_back().expect("some").clone();
        assert_eq!(u64::from_be_bytes(last.try_into().expect("8 bytes")), found.len() as u64, "a prefix");
        checked += 1;
    }
    stop.store(true, std::sync::atomic::Ordering::SeqCst);
    assert!(thread.join().expect("writer") > 4000 && checked == 8);
}

/// The n-th call of each kind fails: the checkpoint says so and leaves nothing that opens, the source
/// is unharmed, and the next attempt succeeds.
#[test]
fn a_call_that_fails_leaves_no_checkpoint() {
    const EIO: i32 = 5;
    const ENOSPC: i32 = 28;
    let kinds = [
        OpKind::Create,
        OpKind::Write,
        OpKind::Sync,
        OpKind::Rename,
        OpKind::SyncDir,
        OpKind::CreateDir,
        OpKind::Lock,
        OpKind::List,
        OpKind::Read,
    ];
    let (mut failed, mut passed) = (0, 0);
    for op in kinds {
        for after in [false, true] {
            for errno in [EIO, ENOSPC] {
                for nth in 1..20 {
                    let sim = SimFs::new(1);
                    let faults = FaultFs::new(sim.clone());
                    sim.create_dir_all(Path::new("/copies")).expect("directory");
                    sim.sync_dir(Path::new("/")).expect("sync");
                    let db = open_on(faults.clone(), &by_hand()).expect("open");
                    let mut model = Model::new();
                    for n in 0..20u32 {
                        put(&db, &n.to_be_bytes(), &[n as u8; 500]);
                        model.insert(n.to_be_bytes().to_vec(), vec![n as u8; 500]);
                        if n == 10 {
                            db.flush().expect("flush");
                        }
                    }
                    db.sync().expect("sync");
                    let fault = if after { Fault::ErrnoAfter(errno) } else { Fault::Errno(errno) };
                    faults.add(Rule::nth(op, nth, fault).on("copies"));
                    let outcome = db.checkpoint(Path::new(COPY));
                    let injected = faults.injected() > 0;
                    faults.clear();
                    if !injected {
                        outcome.expect("nothing failed");
                        break;
                    }
                    assert_eq!(contents(&db), model);
                    if outcome.is_ok() {
                        // Not every call matters: the OPTIONS file of nobody, a leftover.
                        passed += 1;
                    } else {
                        failed += 1;
                        assert!(!sim.exists(Path::new(COPY)).expect("exists"), "{op:?} {nth} {after}");
                        db.checkpoint(Path::new(COPY)).expect("the next attempt");
                    }
                    put(&db, b"still", b"writable");
                    drop(db);
                    for policy in [CrashPolicy::DropUnsynced, CrashPolicy::KeepAll] {
                        let image = sim.crash_image(policy);
                        let found = contents(&open_copy(env_on(image), Path::new(COPY), &by_hand()));
                        assert_eq!(found, model, "{op:?} {nth} {after} {policy:?}");
                    }
                }
            }
        }
    }
    println!("{failed} failed, {passed} passed");
    assert!(failed >= 60, "{failed} {passed}");
}

/// The checkpoints that a workload has begun and finished.
#[derive(Clone, Default)]
struct Checkpoints {
    /// By number: what was acknowledged when it began.
    begun: BTreeMap<u64, usize>,
    finished: BTreeSet<u64>,
}

struct Instant {
    image: Arc<SimFs>,
    policy: CrashPolicy,
    expect: Expectation,
    checkpoints: Checkpoints,
}

#[derive(Debug, Default)]
struct Seen {
    instants: u64,
    whole: u64,
    unfinished_but_whole: u64,
    absent: u64,
    temporary: u64,
    batches: usize,
}

/// Power cuts and kills at many instants of writers with a checkpoint beside them: each checkpoint is
/// there with all that was acknowledged before it and a prefix of the rest, or has no name yet.
#[test]
fn a_power_cut_leaves_the_whole_checkpoint_or_none() {
    let mut seen = Seen::default();
    for seed in 0..24 {
        let env = SimEnv::new(seed);
        env.run(|| cut_while_checkpoints_are_made(&env, seed, &mut seen));
    }
    println!("{seen:?}");
    assert!(seen.instants > 500 && seen.whole > 900 && seen.temporary > 150, "{seen:?}");
    assert!(seen.absent > 300 && seen.unfinished_but_whole > 4 && seen.batches > 100_000, "{seen:?}");
}

fn cut_while_checkpoints_are_made(env: &Arc<SimEnv>, seed: u64, seen: &mut Seen) {
    let options = common::tiny();
    let machine = Arc::new(Machine::new(env, env.sim_fs().clone(), &options, Model::new()));
    let db = common::open(&machine.env, &options).expect("open");
    let instants: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let checkpoints: Arc<Mutex<Checkpoints>> = Arc::default();
    let (into, of, now, rng) =
        (instants.clone(), machine.clone(), checkpoints.clone(), Mutex::new(SplitMix64::new(seed ^ 77)));
    env.sim_fs().add_call_hook(Arc::new(move |call| {
        let mut rng = rng.lock();
        // Most of them where it matters.
        let is_copy =
            call.path.starts_with("/copies") || call.target.iter().any(|t| t.starts_with("/copies"));
        if !rng.chance(1, if is_copy { 6 } else { 120 }) {
            return;
        }
        let policy = match rng.below(5) {
            0 => CrashPolicy::DropUnsynced,
            1 => CrashPolicy::KeepAll,
            _ => CrashPolicy::Random(rng.next_u64()),
        };
        let image = of.env.sim_fs().crash_image(policy);
        let (expect, checkpoints) = (of.expectation(), now.lock().clone());
        into.lock().push(Instant { image, policy, expect, checkpoints });
    }));
    if seed.is_multiple_of(2) {
        env.switch_at_io();
    }
    let (copier, of, now) = (db.clone(), machine.clone(), checkpoints.clone());
    let job = Box::new(move || {
        for n in 0..5 {
            of.env.sleep(400_000);
            now.lock().begun.insert(n, of.expectation().acked);
            copier.checkpoint(Path::new(&format!("/copies/{n}"))).expect("checkpoint");
            now.lock().finished.insert(n);
        }
    });
    let thread = env.spawn("copier", job).expect("spawn");
    machine.drive(&db, Drive { seed, generation: 1, threads: 3, writes: 60, keys: 40 });
    thread.join();
    drop(db);
    env.sim_fs().clear_call_hooks();
    assert_eq!(checkpoints.lock().finished.len(), 5);
    let instants = std::mem::take(&mut *instants.lock());
    for instant in &instants {
        check_instant(&machine, instant, seen);
    }
}

fn check_instant(machine: &Machine, instant: &Instant, seen: &mut Seen) {
    seen.instants += 1;
    let Instant { image, policy, expect, checkpoints } = instant;
    let there: BTreeSet<String> = image.list(Path::new("/copies")).unwrap_or_default().into_iter().collect();
    seen.temporary += there.iter().filter(|name| name.ends_with(".unfinished-checkpoint")).count() as u64;
    for (n, acked) in &checkpoints.begun {
        let name = n.to_string();
        if !there.contains(&name) {
            assert!(!checkpoints.finished.contains(n), "{policy:?}: a finished checkpoint is gone");
            seen.absent += 1;
            continue;
        }
        seen.whole += 1;
        seen.unfinished_but_whole += u64::from(!checkpoints.finished.contains(n));
        let env = machine.env.on_fs(image.clone(), image.clone());
        let copied = open_copy(env, &Path::new("/copies").join(&name), &machine.options);
        let expect = Expectation { durable: *acked, acked: *acked, ..expect.clone() };
        let cut = Cut { image: image.clone(), policy: CrashPolicy::DropUnsynced, expect };
        seen.batches += machine.check(&contents(&copied), &cut).0;
    }
    let cut = Cut { image: image.clone(), policy: *policy, expect: expect.clone() };
    drop(machine.reopen_cut(&cut));
}

/// Closing does not wait for a long checkpoint, and leaves no half of one.
#[test]
fn closing_ends_a_checkpoint() {
    let env = SimEnv::new(3);
    env.run(|| {
        let options = common::tiny();
        let db = common::open(&env, &options).expect("open");
        fill(&db);
        env.switch_at_io();
        let copier = db.clone();
        let outcome: Arc<Mutex<Option<dialsm_core::Result<()>>>> = Arc::default();
        let into = outcome.clone();
        let job = Box::new(move || *into.lock() = Some(copier.checkpoint(Path::new(COPY))));
        let thread = env.spawn("copier", job).expect("spawn");
        while !env.sim_fs().exists(Path::new("/copies/one.unfinished-checkpoint")).expect("exists") {
            env.yield_now();
        }
        db.close().expect("close");
        // It is over when close returns.
        let outcome = outcome.lock().take();
        let left = env.sim_fs().list(Path::new("/copies")).expect("list");
        match outcome.expect("ended before close did") {
            Ok(()) => assert_eq!(left, ["one"]),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
                assert_eq!(left.len(), 0, "{left:?}");
            }
        }
        thread.join();
        let db = common::open(&env, &options).expect("open");
        assert!(db.get(&ReadOptions::default(), &1u32.to_be_bytes()).is_ok());
    });
}
