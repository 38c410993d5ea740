//! The log under several keyspaces: who holds it, what replay skips or refuses, and that no table gets
//! ahead of it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dialsm_core::{Db, ErrorKind, FlushOptions, Keyspace, Options, ReadOptions, WriteBatch, WriteOptions};
use dialsm_io::{CrashPolicy, OpKind, SimFs};

use super::world;
use crate::hostile::{DIR, assert_typed, by_hand, fs_of, image_of, open_on, put, tiny};

fn number(db: &Db, name: &str) -> u64 {
    db.property(name).expect("known").parse().expect("a number")
}

fn put_in(db: &Db, keyspace: &Keyspace, key: &[u8], value: &[u8]) {
    db.put_in(&WriteOptions::default(), keyspace, key, value).expect("put");
}

fn flush_in(db: &Db, keyspace: &Keyspace) {
    db.flush_in(&FlushOptions::default(), keyspace).expect("flush");
}

/// Small segments; no flush but by hand, or by the log's bound.
fn logged() -> Options {
    Options { log_recycle_max: 0, ..by_hand() }
}

#[test]
fn idle_and_seldom_written_keyspaces_do_not_hold_the_log() {
    let fs = SimFs::new(1);
    let options = Options { log_total_bytes_max: 1 << 20, automatic_compaction: true, ..logged() };
    let db = open_on(fs.clone(), &options).expect("open");
    let idle: Vec<Keyspace> = (0..20)
        .map(|i| db.create_keyspace(&format!("idle-{i}"), options.keyspace()).expect("create"))
        .collect();
    let seldom = db.create_keyspace("seldom", options.keyspace()).expect("create");
    idle.iter().for_each(|keyspace| put_in(&db, keyspace, b"once", b"v"));
    let mut longest = 0;
    for i in 0..10_000u32 {
        put(&db, &i.to_be_bytes(), &[7; 1000]);
        if i % 500 == 0 {
            put_in(&db, &seldom, &i.to_be_bytes(), b"v");
        }
        longest = longest.max(number(&db, "dialsm.log-bytes"));
        if i % 250 == 249 {
            // A writer may run ahead of the flushes; here they end now and then.
            db.wait_until_idle().expect("idle");
        }
    }
    // Ten times the bound went through.
    println!("the log had at most {longest} bytes, {} flushes", db.metrics().counters.flushes);
    assert!(longest < 2 << 20, "{longest} bytes of log under a bound of 1 MiB");
    for keyspace in &idle {
        let in_memory = db.property_in(keyspace, "dialsm.num-entries-active-memtable").expect("there");
        assert_eq!(in_memory.as_deref(), Some("0"), "{keyspace:?} is not flushed");
    }
    // An idle one is flushed once, not again and again.
    let tables = number(&db, "dialsm.num-files-at-level0");
    assert!(tables < 20 + 20, "{tables} tables in L0");
    let before = world(&db);
    drop(db);
    assert!(world(&open_on(fs, &options).expect("reopen")) == before);
}

#[test]
fn a_segment_stays_while_any_keyspace_needs_it_and_no_longer() {
    let fs = SimFs::new(1);
    let options = logged();
    let db = open_on(fs.clone(), &options).expect("open");
    let [x, y] = ["x", "y"].map(|name| db.create_keyspace(name, options.keyspace()).expect("create"));
    let many = |from: u32| (from..from + 300).for_each(|i| put(&db, &i.to_be_bytes(), &[7; 1000]));
    put_in(&db, &x, b"k", b"in the first segment");
    many(0);
    put_in(&db, &y, b"k", b"in a later one");
    many(1000);
    db.flush().expect("flush");
    let segments = number(&db, "dialsm.log-segments");
    assert!(segments > 8, "{segments} segments, and x is in the first");
    // A killed process, and a power cut: the table is settled, so the log was synced before.
    for policy in [CrashPolicy::KeepAll, CrashPolicy::DropUnsynced] {
        let image = fs.crash_image(policy);
        assert!(world(&open_on(image, &options).expect("open after the crash")) == world(&db), "{policy:?}");
    }
    flush_in(&db, &x);
    let after_x = number(&db, "dialsm.log-segments");
    assert!(after_x < segments && after_x > 3, "{after_x} segments of {segments}, and y is in the middle");
    flush_in(&db, &y);
    assert!(number(&db, "dialsm.log-segments") <= 2, "nobody needs them");
    for policy in [CrashPolicy::KeepAll, CrashPolicy::DropUnsynced] {
        let image = fs.crash_image(policy);
        assert!(world(&open_on(image, &options).expect("open after the crash")) == world(&db), "{policy:?}");
    }
}

#[test]
fn a_drop_lets_go_of_the_log_and_replay_skips_what_is_left() {
    let fs = SimFs::new(1);
    let options = logged();
    let db = open_on(fs.clone(), &options).expect("open");
    let x = db.create_keyspace("x", options.keyspace()).expect("create");
    put_in(&db, &x, b"k", b"pins");
    (0..300u32).for_each(|i| put(&db, &i.to_be_bytes(), &[7; 1000]));
    db.flush().expect("flush");
    assert!(number(&db, "dialsm.log-segments") > 4);
    // In the segment that is written to now, which stays.
    put_in(&db, &x, b"k", b"dropped");
    let mut both = WriteBatch::new();
    both.put(b"kept", b"v").expect("put");
    both.put_in(x.id(), b"k", b"dropped too").expect("put");
    db.write(&WriteOptions { sync: true, ..WriteOptions::default() }, both).expect("write");
    db.drop_keyspace(&x).expect("drop");
    assert!(number(&db, "dialsm.log-segments") <= 2, "the dropped keyspace holds the log");
    // The name is free, and what the log has of the old one does not come into the new one.
    let again = db.create_keyspace("x", options.keyspace()).expect("create");
    assert!(again.id() > x.id());
    let before = world(&db);
    assert_eq!((before["x"].len(), before["default"].len()), (0, 301));
    for image in [fs.crash_image(CrashPolicy::DropUnsynced), fs.crash_image(CrashPolicy::KeepAll)] {
        let db = open_on(image, &options).expect("open after the crash");
        assert!(world(&db) == before);
        assert_eq!(db.keyspace("x").expect("there").id(), again.id());
    }
}

/// The manifest from before a creation, with the log from after it: the id was never given out.
#[test]
fn replay_refuses_a_keyspace_that_never_was() {
    let fs = SimFs::new(1);
    let options = logged();
    let db = open_on(fs.clone(), &options).expect("open");
    put(&db, b"k", b"v");
    let old = image_of(fs.as_ref(), Path::new(DIR));
    let x = db.create_keyspace("x", options.keyspace()).expect("create");
    put_in(&db, &x, b"k", b"v");
    put(&db, b"later", b"v");
    let mut mixed = image_of(fs.as_ref(), Path::new(DIR));
    drop(db);
    for (name, bytes) in &old {
        if name.starts_with("MANIFEST") {
            mixed.insert(name.clone(), bytes.clone());
        }
    }
    let error = open_on(fs_of(&mixed), &options).map(drop).expect_err("keyspace 1 never was");
    assert_typed(&error);
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.offset().is_some() && error.message().contains("keyspace 1"), "{error}");
}

/// Ids are not given out again, whatever was dropped and however often the manifest was written anew.
#[test]
fn ids_are_never_used_twice() {
    let fs = SimFs::new(1);
    let mut ids = Vec::new();
    for round in 0..4 {
        let db = open_on(fs.clone(), &tiny()).expect("open");
        for _ in 0..3 {
            let x = db.create_keyspace("x", tiny().keyspace()).expect("create");
            ids.push(x.id());
            db.drop_keyspace(&x).expect("drop");
        }
        if round % 2 == 0 {
            db.close().expect("close");
        }
    }
    assert_eq!(ids, (1..13).collect::<Vec<u32>>());
}

/// Syncs of log segments from now on.
fn count_log_syncs(fs: &Arc<SimFs>) -> Arc<AtomicU64> {
    let syncs = Arc::new(AtomicU64::new(0));
    let count = syncs.clone();
    fs.add_call_hook(Arc::new(move |call| {
        if call.op == Some(OpKind::Sync) && call.path.extension().is_some_and(|e| e == "log") {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }));
    syncs
}

/// Rule 1. A batch in two keyspaces, one of them flushed and settled, the log not synced by anybody else.
#[test]
fn no_table_gets_ahead_of_the_log() {
    let fs = SimFs::new(1);
    let db = open_on(fs.clone(), &by_hand()).expect("open");
    let [x, y] = ["x", "y"].map(|name| db.create_keyspace(name, by_hand().keyspace()).expect("create"));
    let mut batch = WriteBatch::new();
    for id in [0, x.id(), y.id()] {
        batch.put_in(id, b"k", b"v").expect("put");
    }
    db.write(&WriteOptions::default(), batch).expect("write");
    let unsynced = fs.crash_image(CrashPolicy::DropUnsynced);
    flush_in(&db, &x);
    let flushed = fs.crash_image(CrashPolicy::DropUnsynced);
    for (image, left) in [(unsynced, 0), (flushed, 1)] {
        let db = open_on(image, &by_hand()).expect("open after the cut");
        for name in ["default", "x", "y"] {
            assert_eq!(world(&db)[name].len(), left, "{name}");
        }
    }
}

/// With one tree no record can be torn apart, and the sync is spared.
#[test]
fn a_single_keyspace_is_flushed_without_a_log_sync() {
    let fs = SimFs::new(1);
    let db = open_on(fs.clone(), &by_hand()).expect("open");
    let flush = |key: &[u8]| {
        let syncs = count_log_syncs(&fs);
        put(&db, key, b"v");
        db.flush().expect("flush");
        fs.clear_call_hooks();
        syncs.load(Ordering::Relaxed)
    };
    assert_eq!(flush(b"a"), 0);
    let x = db.create_keyspace("x", by_hand().keyspace()).expect("create");
    assert_eq!(flush(b"b"), 1);
    // What is synced already is not synced again.
    db.put_in(&WriteOptions { sync: true, ..WriteOptions::default() }, &x, b"k", b"v").expect("put");
    let syncs = count_log_syncs(&fs);
    flush_in(&db, &x);
    fs.clear_call_hooks();
    assert_eq!(syncs.load(Ordering::Relaxed), 0);
    db.drop_keyspace(&x).expect("drop");
    assert_eq!(flush(b"c"), 0);
    let read = ReadOptions::default();
    assert!(db.get(&read, b"c").expect("get").is_some());
}

/// Each call of a creation and of a drop fails once; whatever it was, no name is half there, and what is
/// said to be there survives.
#[test]
fn failing_calls_of_creations_and_drops() {
    let (mut refused, mut retried, mut stopped) = (0, 0, 0);
    for op in [OpKind::Write, OpKind::Sync, OpKind::SyncDir, OpKind::Create] {
        for nth in 1..6 {
            let fs = SimFs::new(1);
            let faults = dialsm_io::FaultFs::new(fs.clone());
            let db = open_on(faults.clone(), &by_hand()).expect("open");
            let x = db.create_keyspace("x", by_hand().keyspace()).expect("create");
            put_in(&db, &x, b"k", b"v");
            db.sync().expect("sync");
            // No note of the log's new segment meets it.
            db.wait_until_idle().expect("idle");
            faults.add(dialsm_io::Rule::nth(op, nth, dialsm_io::Fault::Errno(libc::EIO)));
            let created = db.create_keyspace("new", by_hand().keyspace());
            let dropped = db.drop_keyspace(&x);
            faults.clear();
            refused += u64::from(created.is_err()) + u64::from(dropped.is_err());
            if let Err(error) = &created {
                assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                assert!(db.keyspace("new").is_none());
            }
            // After a failed sync of the directory nothing is begun any more; what was begun is gone for this
            // opening, whatever came of the manifest.
            let is_refused = dropped.as_ref().is_err_and(|error| error.kind() == ErrorKind::Poisoned);
            assert_eq!(db.keyspace("x").is_some(), is_refused, "{op:?} {nth}");
            stopped += u64::from(is_refused);
            if db.create_keyspace("after", by_hand().keyspace()).is_ok() {
                retried += 1;
                let image = fs.crash_image(CrashPolicy::DropUnsynced);
                let names = open_on(image, &by_hand()).expect("open").keyspaces();
                assert!(names.contains(&"after".to_owned()) && !names.contains(&"x".to_owned()), "{names:?}");
                assert_eq!(names.contains(&"new".to_owned()), created.is_ok(), "{op:?} {nth}");
            }
            drop(db);
            let db = open_on(fs, &by_hand()).expect("reopen");
            if created.is_ok() {
                assert!(db.keyspace("new").is_some(), "{op:?} {nth}");
            }
            if dropped.is_ok() {
                assert!(db.keyspace("x").is_none(), "{op:?} {nth}");
            } else if let Some(x) = db.keyspace("x") {
                assert!(db.get_in(&ReadOptions::default(), &x, b"k").expect("get").is_some());
            }
        }
    }
    assert!(refused >= 4 && retried >= 6, "{refused} refused, {retried} retried");
    assert!(stopped > 0, "a sync of the directory failed");
}

/// Without the log a batch over keyspaces is as durable as their flushes: with `atomic`, all of one
/// moment settle in one record of the manifest.
#[test]
fn an_atomic_flush_is_there_in_all_keyspaces_or_in_none() {
    let write = WriteOptions { disable_log: true, ..WriteOptions::default() };
    let (mut torn, mut whole, mut none) = (0, 0, 0);
    for atomic in [false, true] {
        let fs = SimFs::new(1);
        let options = Options { background_jobs_max: 4, ..by_hand() };
        let db = open_on(fs.clone(), &options).expect("open");
        let names = ["x", "y", "z"];
        let all: Vec<Keyspace> =
            names.iter().map(|name| db.create_keyspace(name, options.keyspace()).expect("create")).collect();
        let images = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let (into, taken) = (images.clone(), fs.clone());
        fs.add_call_hook(Arc::new(move |_| {
            into.lock().push(taken.crash_image(CrashPolicy::DropUnsynced));
        }));
        for round in 0..8u32 {
            let mut batch = WriteBatch::new();
            for id in std::iter::once(0).chain(all.iter().map(Keyspace::id)) {
                batch.put_in(id, &round.to_be_bytes(), b"v").expect("put");
            }
            db.write(&write, batch).expect("write");
            if round == 5 {
                // One that is dropped keeps the others from nothing.
                db.drop_keyspace(&all[2]).expect("drop");
                break;
            }
            db.flush_all(&FlushOptions { atomic, ..FlushOptions::default() }).expect("flush");
        }
        db.flush_all(&FlushOptions { atomic, ..FlushOptions::default() }).expect("flush");
        fs.clear_call_hooks();
        drop(db);
        for image in std::mem::take(&mut *images.lock()) {
            let counts: Vec<usize> =
                world(&open_on(image, &options).expect("open")).values().map(|model| model.len()).collect();
            let is_whole = counts.iter().all(|count| *count == counts[0]);
            if atomic {
                assert!(is_whole, "{counts:?}");
                whole += usize::from(counts[0] > 0);
                none += usize::from(counts[0] == 0);
            } else {
                torn += usize::from(!is_whole);
            }
        }
    }
    assert!(torn > 0 && whole > 5 && none > 0, "{torn} {whole} {none}");
}
