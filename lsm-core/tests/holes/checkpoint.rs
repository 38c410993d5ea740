//! H16: checkpoints.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dialsm_core::options::RecoveryMode;
use dialsm_core::{CompactRangeOptions, Db, FlushOptions, Options};
use dialsm_io::{CrashPolicy, Fault, Fs, OpKind, Rule};

use crate::bench::{
    Bench, EXDEV, Model, batch_in, by_hand, contents, files_at, get, get_in, is, put, synced,
};

const COPY: &str = "/copy";

/// No damage is let pass: the copied log ends with a whole record.
fn open_copy(bench: &Bench) -> Db {
    let options = Options { recovery_mode: RecoveryMode::AbsoluteConsistency, ..by_hand() };
    let db = Db::open(bench.env.clone(), Path::new(COPY), options).expect("open the copy");
    db.verify(&mut |_, _| {}).expect("verify the copy");
    db
}

/// The copy after a power cut that comes as soon as the checkpoint is made.
fn contents_of_copy(bench: &Bench) -> Model {
    contents(&open_copy(&bench.cut(CrashPolicy::DropUnsynced)))
}

fn fill(db: &Db) -> Model {
    for round in 0..3u8 {
        (0..30u8).for_each(|i| put(db, &[i], &[round; 500]));
        if round < 2 {
            db.flush().expect("flush");
        }
    }
    contents(db)
}

/// The database goes on and recycles its segments: those of the copy are not the same files.
#[test]
fn h16a_segments_that_are_recycled_are_not_those_of_the_checkpoint() {
    Bench::run(|bench| {
        let db = bench.open(&by_hand());
        let model = fill(&db);
        db.checkpoint(Path::new(COPY)).expect("checkpoint");
        bench.disk().set_tracing(true);
        for i in 0..8u8 {
            db.put(&synced(), &[i], &[b'x'; 70_000]).expect("put");
            db.flush().expect("flush");
        }
        db.wait_until_idle().expect("idle");
        let trace = bench.disk().trace();
        assert!(trace.iter().filter(|call| is(call, OpKind::Rename, ".log")).count() >= 3, "recycled");
        assert!(contents_of_copy(bench) == model);
        assert!(contents(&open_copy(bench)) == model);
    });
}

/// A table is live and not durable when the checkpoint is made.
#[test]
fn h16b_a_checkpoint_links_durable_tables_only() {
    Bench::run(|bench| {
        let db = bench.open(&by_hand());
        let model = fill(&db);
        let settled = bench.names(".sst");
        let door = bench.door_on(OpKind::Sync, ".sst");
        db.flush_with(&FlushOptions { wait: false, ..FlushOptions::default() }).expect("flush");
        door.wait_for_one();
        bench.wait_for("the third table is live", || files_at(&db, 0) == 3);
        db.checkpoint(Path::new(COPY)).expect("checkpoint");
        let linked = bench.disk().list(Path::new(COPY)).expect("list");
        let linked: Vec<String> = linked.into_iter().filter(|name| name.ends_with(".sst")).collect();
        assert_eq!(linked, settled);
        assert!(contents_of_copy(bench) == model);
        door.open();
        db.flush().expect("flush");
        assert!(contents(&open_copy(bench)) == model);
    });
}

/// One keyspace is flushed between the other's part of the copy and its own.
#[test]
fn h16c_all_trees_are_of_one_moment() {
    Bench::run(|bench| {
        let db = bench.open(&by_hand());
        let x = db.create_keyspace("x", by_hand().keyspace()).expect("create");
        let both = [0, x.id()];
        db.write(&Default::default(), batch_in(&both, b"k", b"1")).expect("write");
        db.flush_all(&FlushOptions::default()).expect("flush");
        db.write(&Default::default(), batch_in(&both, b"k", b"2")).expect("write");
        let door = bench.door_on(OpKind::HardLink, ".sst");
        let other = db.clone();
        let checkpoint = bench.spawn(move || other.checkpoint(Path::new(COPY)).expect("checkpoint"));
        door.wait_for_one();
        db.write(&synced(), batch_in(&both, b"k", b"3")).expect("write");
        db.flush_in(&FlushOptions::default(), &x).expect("flush");
        door.open();
        checkpoint.join();
        let copy = open_copy(&bench.cut(CrashPolicy::DropUnsynced));
        let x = copy.keyspace("x").expect("x");
        assert_eq!(get(&copy, b"k").as_deref(), Some(b"2".as_slice()));
        assert_eq!(get_in(&copy, &x, b"k").as_deref(), Some(b"2".as_slice()));
    });
}

/// The target lies on another device.
#[test]
fn h16d_tables_are_copied_where_they_can_not_be_linked() {
    Bench::run(|bench| {
        let db = bench.open(&by_hand());
        let model = fill(&db);
        bench.faults.add(Rule::every(OpKind::HardLink, Fault::Errno(EXDEV)));
        db.checkpoint(Path::new(COPY)).expect("checkpoint");
        assert!(bench.faults.injected() >= 2);
        assert!(contents_of_copy(bench) == model);
    });
}

/// The tables are compacted away, settled and let go of while they are being linked.
#[test]
fn h16e_tables_stay_until_they_are_linked() {
    Bench::run(|bench| {
        let db = bench.open(&by_hand());
        let model = fill(&db);
        let door = bench.door_on(OpKind::HardLink, ".sst");
        let other = db.clone();
        let checkpoint = bench.spawn(move || other.checkpoint(Path::new(COPY)).expect("checkpoint"));
        door.wait_for_one();
        let before = bench.names(".sst");
        put(&db, &[3], b"later");
        db.compact_range(&CompactRangeOptions::default(), None, None).expect("compact");
        bench.tidy(&db);
        assert!(bench.names(".sst").len() > before.len(), "inputs and output are there");
        door.open();
        checkpoint.join();
        assert!(contents_of_copy(bench) == model);
        bench.tidy(&db);
        assert_eq!(bench.names(".sst").len(), 1, "nothing holds them any more");
    });
}

/// Records are appended while the log is being copied.
#[test]
fn h16f_the_copied_log_ends_with_a_group() {
    Bench::run(|bench| {
        let db = bench.open(&by_hand());
        let model = fill(&db);
        // Behind the cut, and before the log is copied.
        let door = bench.door_on(OpKind::HardLink, ".sst");
        let other = db.clone();
        let made = Arc::new(AtomicBool::new(false));
        let done = made.clone();
        let checkpoint = bench.spawn(move || {
            other.checkpoint(Path::new(COPY)).expect("checkpoint");
            done.store(true, Ordering::SeqCst);
        });
        door.wait_for_one();
        for i in 0..10u8 {
            db.put(&synced(), &[100 + i], &[i; 777]).expect("put");
        }
        assert!(!made.load(Ordering::SeqCst));
        door.open();
        checkpoint.join();
        assert_eq!(contents(&db).len(), model.len() + 10);
        assert!(contents_of_copy(bench) == model);
    });
}
