//! H22, H28: failures of the manifest, rolling it over, and flushes that settle together.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dialsm_core::{CompactRangeOptions, Db, ErrorKind, FlushOptions, Options, WriteOptions};
use dialsm_io::{CrashPolicy, Fault, Fs, OpKind, Rule, SimFs};
use parking_lot::Mutex;

use crate::bench::{
    Bench, CUTS, EIO, ENOSPC, Model, SECOND, SlowOrder, batch_in, by_hand, contents, files_at, get, get_in,
    is, live_files, put, put_in, synced,
};

/// One segment only, so that no record of the manifest is written but those of the test.
fn one_segment() -> Options {
    Options { log_segment_bytes: 4 << 20, ..by_hand() }
}

fn compact(db: &Db) -> dialsm_core::Result<()> {
    db.compact_range(&CompactRangeOptions::default(), None, None)
}

/// Three overlapping tables, all durable.
fn fill(db: &Db) -> Model {
    for round in 0..3u8 {
        for i in 0..20u8 {
            db.put(&synced(), &[i * 3 + round, i], &[round; 200]).expect("put");
        }
        db.flush().expect("flush");
    }
    db.wait_until_idle().expect("idle");
    assert_eq!(files_at(db, 0), 3);
    contents(db)
}

fn assert_after_cuts(bench: &Bench, options: &Options, model: &Model, when: &str) {
    for policy in CUTS {
        let db = bench.cut(policy).open(options);
        db.verify(&mut |_, _| {}).expect("verify");
        assert!(contents(&db) == *model, "{when}: {policy:?}");
    }
}

/// A full disk tears the edit of a compaction: nothing may be appended behind the tear, where replay
/// would not find it, and the inputs stay until a fresh manifest is durable.
#[test]
fn h22_nothing_is_appended_behind_a_torn_edit() {
    for bytes in [0, 1, 9, 40] {
        Bench::run(|bench| {
            let options = one_segment();
            let db = bench.open(&options);
            let mut model = fill(&db);
            let torn = bench.names("MANIFEST");
            bench.faults.add(Rule::nth(OpKind::Write, 1, Fault::TornWrite(bytes, ENOSPC)).on("MANIFEST"));
            assert_eq!(compact(&db).expect_err("no space").kind(), ErrorKind::NoSpace);
            assert_eq!(bench.faults.injected(), 1);
            assert_after_cuts(bench, &options, &model, "after the tear");
            bench.sleep(2 * SECOND);
            db.put(&synced(), b"later", b"v").expect("space is back");
            model.insert(b"later".to_vec(), b"v".to_vec());
            db.flush().expect("flush");
            db.wait_until_idle().expect("idle");
            assert_ne!(bench.names("MANIFEST"), torn, "the torn file is in use");
            assert_after_cuts(bench, &options, &model, "on the fresh one");
            compact(&db).expect("compact");
            bench.tidy(&db);
            assert_eq!(
                bench.names(".sst").len() as u64,
                live_files(&db),
                "inputs and outputs of before are gone"
            );
            assert_after_cuts(bench, &options, &model, "at the end");
        });
    }
}

/// Whether the edit is durable is unknown after its sync has failed: inputs and outputs stay, and the file
/// is never written again.
#[test]
fn h22_a_failed_sync_of_the_manifest_keeps_inputs_and_outputs() {
    for fault in [Fault::Errno(EIO), Fault::ErrnoAfter(EIO)] {
        Bench::run(|bench| {
            let options = one_segment();
            let db = bench.open(&options);
            let model = fill(&db);
            let inputs = bench.names(".sst");
            let manifest = bench.names("MANIFEST")[0].clone();
            bench.faults.add(Rule::nth(OpKind::Sync, 1, fault).on("MANIFEST"));
            bench.disk().set_tracing(true);
            let kind = compact(&db).expect_err("no sync").kind();
            assert!(matches!(kind, ErrorKind::Io | ErrorKind::Poisoned), "{kind:?}");
            let at_failure = bench.disk().trace().len();
            let tables = bench.names(".sst");
            assert!(
                tables.len() > inputs.len() && inputs.iter().all(|name| tables.contains(name)),
                "{tables:?}"
            );
            assert_after_cuts(bench, &options, &model, "after the failure");
            bench.sleep(2 * SECOND);
            // May be refused: it is not known what the disk holds.
            let _ = db.put(&synced(), b"later", b"v");
            let model = contents(&db);
            assert_after_cuts(bench, &options, &model, "later");
            let _ = db.close();
            let trace = bench.disk().trace().split_off(at_failure);
            let again = trace.iter().find(|call| is(call, OpKind::Write, &manifest));
            assert!(again.is_none(), "{again:?}");
            assert_after_cuts(bench, &options, &model, "after closing");
        });
    }
}

/// An edit waits for the sync of its table while the manifest is rolled over: the fresh one says what is
/// settled, and not what readers see.
#[test]
fn h22_rolling_over_writes_the_settled_state_only() {
    Bench::run(|bench| {
        let options = one_segment();
        let db = bench.open(&options);
        db.put(&synced(), b"k", b"v").expect("put");
        db.wait_until_idle().expect("idle");
        let door = bench.door_on(OpKind::Sync, ".sst");
        db.flush_with(&FlushOptions { wait: false, ..FlushOptions::default() }).expect("flush");
        door.wait_for_one();
        bench.wait_for("the table is live", || files_at(&db, 0) == 1);
        let before = bench.names("MANIFEST");
        bench.faults.add(Rule::nth(OpKind::Write, 1, Fault::TornWrite(9, ENOSPC)).on("MANIFEST"));
        db.create_keyspace("x", options.keyspace()).expect_err("no space");
        db.create_keyspace("y", options.keyspace()).expect("create");
        assert_ne!(bench.names("MANIFEST"), before, "it was not rolled over");
        for policy in CUTS {
            let db = bench.cut(policy).open(&options);
            assert_eq!(get(&db, b"k").as_deref(), Some(b"v".as_slice()), "{policy:?}");
            assert!(db.keyspace("y").is_some(), "{policy:?}");
        }
        door.open();
        db.flush().expect("flush");
        assert_eq!(get(&bench.cut(CrashPolicy::DropUnsynced).open(&options), b"k"), Some(b"v".to_vec()));
    });
}

/// The manifest is rolled over beside a compaction whose inputs go: at no instant, whatever of names and
/// bytes a power cut keeps, is something gone that is needed.
#[test]
fn h22_nothing_goes_before_the_fresh_manifest_is_in_force() {
    Bench::run(|bench| {
        let options = one_segment();
        let db = bench.open(&options);
        let model = fill(&db);
        let images: Arc<Mutex<Vec<Arc<SimFs>>>> = Arc::default();
        let (into, disk) = (images.clone(), bench.disk().clone());
        bench.disk().add_call_hook(Arc::new(move |call| {
            let changes = [OpKind::Unlink, OpKind::Rename, OpKind::SyncDir, OpKind::Write, OpKind::Sync];
            if call.op.is_some_and(|op| changes.contains(&op)) {
                let mut images = into.lock();
                for _ in 0..6 {
                    let seed = images.len() as u64;
                    images.push(disk.crash_image(CrashPolicy::Random(seed)));
                }
            }
        }));
        bench.disk().set_tracing(true);
        bench.faults.add(Rule::nth(OpKind::Write, 1, Fault::TornWrite(9, ENOSPC)).on("MANIFEST"));
        compact(&db).expect_err("no space");
        bench.sleep(2 * SECOND);
        db.wait_until_idle().expect("idle");
        // A last call, so that there are images with all names removed.
        db.put(&synced(), b"last", b"").expect("put");
        bench.disk().clear_call_hooks();
        let trace = bench.disk().trace();
        let unlinked = |part| trace.iter().filter(|call| is(call, OpKind::Unlink, part)).count();
        assert!(unlinked("MANIFEST") >= 1 && unlinked(".sst") >= 3, "{trace:?}");
        let images = std::mem::take(&mut *images.lock());
        assert!(images.len() > 100, "{}", images.len());
        for (n, image) in images.into_iter().enumerate() {
            let names = image.list(Path::new("/db")).expect("list");
            let found = bench.with_disk(image).try_open(&options);
            let db = found.unwrap_or_else(|error| panic!("image {n}: {error}; {names:?}"));
            let mut found = contents(&db);
            found.remove(b"last".as_slice());
            assert!(found == model, "image {n}");
        }
    });
}

/// Two trees are flushed as one; the table of the first is durable, that of the second is not, and
/// another change of the manifest comes by.
#[test]
fn h28_no_tree_settles_ahead_of_the_others_of_an_atomic_flush() {
    Bench::run(|bench| {
        let options = one_segment();
        let db = bench.open(&options);
        let x = db.create_keyspace("x", options.keyspace()).expect("create");
        db.wait_until_idle().expect("idle");
        let unlogged = WriteOptions { disable_log: true, ..WriteOptions::default() };
        db.write(&unlogged, batch_in(&[0, x.id()], b"k", b"v")).expect("write");
        let door = bench.door_at(2, |call| is(call, OpKind::Sync, ".sst"));
        let other = db.clone();
        let flush = bench.spawn(move || {
            other.flush_all(&FlushOptions { atomic: true, ..FlushOptions::default() }).expect("flush");
        });
        door.wait_for_one();
        db.create_keyspace("y", options.keyspace()).expect("create");
        let mut seen = [0; 2];
        let mut check = |when: &str| {
            for policy in CUTS {
                let db = bench.cut(policy).open(&options);
                let x = db.keyspace("x").expect("it was created");
                assert!(db.keyspace("y").is_some());
                let there = [get(&db, b"k").is_some(), get_in(&db, &x, b"k").is_some()];
                assert_eq!(there[0], there[1], "{when}: {policy:?}");
                seen[usize::from(there[0])] += 1;
            }
        };
        check("one is durable");
        door.open();
        flush.join();
        check("both are");
        assert_eq!(seen, [CUTS.len(), CUTS.len()]);
    });
}

/// A group has its memtables, and stands still in the insert into one; the other one is empty as yet. An
/// atomic flush that comes by takes both or neither.
#[test]
fn h28_an_atomic_flush_takes_a_group_that_is_being_inserted_whole() {
    Bench::run(|bench| {
        let (options, order) = (one_segment(), SlowOrder::new());
        let named = [("x", order.keyspace(&options)), ("y", options.keyspace())];
        let db = bench.open_with(&options, &named);
        let [x, y] = ["x", "y"].map(|name| db.keyspace(name).expect("it was named"));
        // With nothing to compare with nobody would stand still.
        put_in(&db, &x, b"a", b"v");
        let door = bench.door();
        order.arm(&door);
        let (writer, ids) = (db.clone(), [x.id(), y.id()]);
        let writing = bench.spawn(move || {
            let unlogged = WriteOptions { disable_log: true, ..WriteOptions::default() };
            writer.write(&unlogged, batch_in(&ids, b"slow", b"v")).expect("write");
        });
        door.wait_for_one();
        let other = db.clone();
        let flush = bench.spawn(move || {
            other.flush_all(&FlushOptions { atomic: true, ..FlushOptions::default() }).expect("flush");
        });
        bench.sleep(10_000_000);
        door.open();
        writing.join();
        flush.join();
        for policy in CUTS {
            let db = bench.cut(policy).open_with(&options, &named);
            let [x, y] = ["x", "y"].map(|name| db.keyspace(name).expect("it was named"));
            let there = [&x, &y].map(|keyspace| get_in(&db, keyspace, b"slow").is_some());
            assert_eq!(there, [true, true], "{policy:?}");
        }
    });
}

/// A flush waits for room; meanwhile a keyspace is created, and a batch has something for it.
#[test]
fn h28_an_atomic_flush_takes_a_keyspace_that_came_after_it_began() {
    Bench::run(|bench| {
        let options = Options { log: false, atomic_flush: true, write_buffers_max: 2, ..one_segment() };
        let db = bench.open(&options);
        let door = bench.door_on(OpKind::Create, ".sst");
        let begin = FlushOptions { wait: false, ..FlushOptions::default() };
        put(&db, b"a", b"v");
        db.flush_with(&begin).expect("flush");
        door.wait_for_one();
        let other = db.clone();
        let flush = bench.spawn(move || {
            other.flush_with(&FlushOptions { allow_stall: false, ..FlushOptions::default() }).expect("flush");
        });
        bench.sleep(10_000_000);
        let x = db.create_keyspace("x", options.keyspace()).expect("create");
        db.write(&WriteOptions::default(), batch_in(&[0, x.id()], b"k", b"v")).expect("write");
        door.open();
        flush.join();
        for policy in CUTS {
            let db = bench.cut(policy).open(&options);
            let x = db.keyspace("x").expect("it was created");
            let there = [get(&db, b"k").is_some(), get_in(&db, &x, b"k").is_some()];
            assert_eq!(there, [true, true], "{policy:?}");
        }
    });
}

/// What was flushed first is not durable yet, in a tree that the second flush has nothing of: that waits for
/// it, or a power cut would leave the later write without the earlier one.
#[test]
fn h28_atomic_flushes_settle_in_their_order() {
    Bench::run(|bench| {
        let options = Options { log: false, atomic_flush: true, ..one_segment() };
        let named = ["x", "y"].map(|name| (name, options.keyspace()));
        let db = bench.open_with(&options, &named);
        let [x, y] = ["x", "y"].map(|name| db.keyspace(name).expect("it was named"));
        let begin = FlushOptions { wait: false, ..FlushOptions::default() };
        let holding = bench.hold_syncs();
        put_in(&db, &x, b"k", b"v");
        db.flush_with(&begin).expect("flush");
        bench.wait_for("the first table's sync", || holding.names().len() == 1);
        put_in(&db, &y, b"k", b"v");
        db.flush_with(&begin).expect("flush");
        bench.wait_for("the second table's sync", || holding.names().len() == 2);
        let [first, second] = &holding.names()[..] else { unreachable!("there are two") };
        let check = |expected: [bool; 2]| {
            bench.sleep(10_000_000);
            for policy in CUTS {
                let db = bench.cut(policy).open_with(&options, &named);
                let [x, y] = ["x", "y"].map(|name| db.keyspace(name).expect("it was named"));
                let there = [&x, &y].map(|keyspace| get_in(&db, keyspace, b"k").is_some());
                assert_eq!(there, expected, "{policy:?}");
            }
        };
        holding.let_go(second);
        check([false, false]);
        holding.let_go(first);
        check([true, true]);
    });
}

/// Writes without log come as fast as a checkpoint flushes, until it flushes as the leader: all trees as one,
/// too. The table of the first is durable then, that of the second is not.
#[test]
fn h28_a_checkpoint_flushes_all_as_one() {
    Bench::run(|bench| {
        let options = Options { log: false, atomic_flush: true, ..one_segment() };
        let named = ["x", "y"].map(|name| (name, options.keyspace()));
        let db = bench.open_with(&options, &named);
        let ids = ["x", "y"].map(|name| db.keyspace(name).expect("it was named").id());
        let write = move |db: &Db, key: &[u8]| {
            db.write(&WriteOptions::default(), batch_in(&ids, key, b"v")).expect("write");
        };
        write(&db, b"1");
        // Each flush beside the writers makes two tables, and finds that more was written meanwhile.
        let (created, writer) = (AtomicU64::new(0), Mutex::new(Some(db.clone())));
        bench.disk().add_call_hook(Arc::new(move |call| {
            if is(call, OpKind::Create, ".sst") {
                match created.fetch_add(1, Ordering::SeqCst) {
                    0 => write(writer.lock().as_ref().expect("it is there"), b"2"),
                    2 => write(&writer.lock().take().expect("it is there"), b"3"),
                    _ => {}
                }
            }
        }));
        let door = bench.door_at(6, |call| is(call, OpKind::Sync, ".sst"));
        let other = db.clone();
        let checkpoint = bench.spawn(move || other.checkpoint(Path::new("/copy")).expect("checkpoint"));
        let check = |bench: &Bench, last: bool| {
            let db = bench.open_with(&options, &named);
            for name in ["x", "y"] {
                let keyspace = db.keyspace(name).expect("it was named");
                let there = [b"1", b"2", b"3"].map(|key| get_in(&db, &keyspace, key).is_some());
                assert_eq!(there, [true, true, last], "{name}");
            }
        };
        door.wait_for_one();
        bench.sleep(10_000_000);
        CUTS.iter().for_each(|policy| check(&bench.cut(*policy), false));
        door.open();
        checkpoint.join();
        CUTS.iter().for_each(|policy| check(&bench.cut(*policy), true));
    });
}
