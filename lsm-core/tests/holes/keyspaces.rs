//! H1, H38: batches over keyspaces, and keyspaces that end.

use std::path::Path;

use dialsm_core::{Db, ErrorKind, FlushOptions, Keyspace, WriteOptions};
use dialsm_io::{Access, CrashPolicy, Fs, OpKind};

use crate::bench::{Bench, CUTS, DIR, SlowOrder, batch_in, by_hand, get, get_in, put, put_in, synced};

fn flush_in(db: &Db, keyspace: &Keyspace) {
    db.flush_in(&FlushOptions::default(), keyspace).expect("flush");
}

/// A batch in two keyspaces, not synced; one of them is flushed and settled, the power goes. Without log
/// before table, one half of the batch is in a table and the other nowhere.
#[test]
fn h01_no_table_gets_ahead_of_the_log() {
    Bench::run(|bench| {
        let db = bench.open(&by_hand());
        let x = db.create_keyspace("x", by_hand().keyspace()).expect("create");
        db.write(&synced(), batch_in(&[0, x.id()], b"k", b"1")).expect("write");
        db.write(&WriteOptions::default(), batch_in(&[0, x.id()], b"k", b"2")).expect("write");
        let check = |value: Option<&[u8]>| {
            for policy in CUTS {
                let db = bench.cut(policy).open(&by_hand());
                let x = db.keyspace("x").expect("it was created");
                let found = get(&db, b"k").expect("it was synced");
                assert_eq!(get_in(&db, &x, b"k").as_ref(), Some(&found), "{policy:?}");
                assert!(value.is_none_or(|value| value == found), "{policy:?}");
            }
        };
        check(None);
        flush_in(&db, &x);
        // In a settled table, so it must be there.
        check(Some(b"2"));
        // And the other way round.
        db.write(&WriteOptions::default(), batch_in(&[0, x.id()], b"k", b"3")).expect("write");
        db.flush().expect("flush");
        check(Some(b"3"));
    });
}

/// A batch that was let in, and a drop of one of its keyspaces: it is logged before the drop, or not at
/// all.
#[test]
fn h38_a_batch_on_its_way_meets_a_drop() {
    let mut outcomes = [0; 2];
    for seed in 0..24 {
        Bench::run_seed(seed, |bench| {
            let db = bench.open(&by_hand());
            let x = db.create_keyspace("x", by_hand().keyspace()).expect("create");
            put_in(&db, &x, b"k", b"old");
            db.wait_until_idle().expect("idle");
            // Somebody leads, and stands in the log.
            let door = bench.door_on(OpKind::Write, ".log");
            let first = db.clone();
            let first = bench.spawn(move || put(&first, b"first", b"v"));
            door.wait_for_one();
            let (writer, id) = (db.clone(), x.id());
            let result = std::sync::Arc::new(parking_lot::Mutex::new(None));
            let into = result.clone();
            let writer = bench.spawn(move || {
                *into.lock() = Some(writer.write(&WriteOptions::default(), batch_in(&[0, id], b"k", b"new")));
            });
            let (dropper, dropped) = (db.clone(), x.clone());
            let dropper = bench.spawn(move || dropper.drop_keyspace(&dropped).expect("drop"));
            bench.sleep(1_000_000);
            door.open();
            [first, writer, dropper].into_iter().for_each(|thread| thread.join());
            let result = result.lock().take().expect("it has ended");
            if let Err(error) = &result {
                assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            }
            outcomes[usize::from(result.is_ok())] += 1;
            let check = |db: &Db| {
                assert!(get(db, b"first").is_some());
                assert_eq!(get(db, b"k").is_some(), result.is_ok(), "the batch is there whole or not at all");
                assert!(db.keyspace("x").is_none());
            };
            check(&db);
            put(&db, b"later", b"v");
            check(&bench.cut(CrashPolicy::KeepAll).open(&by_hand()));
        });
    }
    assert!(outcomes.iter().all(|n| *n > 0), "both orders are to be met: {outcomes:?}");
}

/// A batch that was logged stands still between two of its keyspaces while one is dropped.
#[test]
fn h38_a_drop_meets_a_batch_that_is_being_inserted() {
    Bench::run(|bench| {
        let order = SlowOrder::new();
        let db = bench.open_with(&by_hand(), &[("x", order.keyspace(&by_hand()))]);
        let x = db.keyspace("x").expect("x");
        put_in(&db, &x, b"a", b"v");
        let door = bench.door();
        order.arm(&door);
        let (writer, id) = (db.clone(), x.id());
        let writer = bench.spawn(move || {
            let mut batch = batch_in(&[id], b"slow", b"v");
            batch.put(b"k", b"v").expect("put");
            writer.write(&synced(), batch).expect("it was logged before the drop");
        });
        door.wait_for_one();
        db.drop_keyspace(&x).expect("drop");
        assert_eq!(get(&db, b"k"), None, "not visible yet");
        door.open();
        writer.join();
        assert_eq!(get(&db, b"k").as_deref(), Some(b"v".as_slice()));
        for policy in CUTS {
            let db = bench.cut(policy).open(&by_hand());
            assert!(get(&db, b"k").is_some() && db.keyspace("x").is_none(), "{policy:?}");
        }
    });
}

/// A table of the keyspace is live, its edit waits for its sync; the drop settles first, and the edit must
/// not name the table afterwards.
#[test]
fn h38_a_drop_discards_the_edits_of_its_tree() {
    Bench::run(|bench| {
        let db = bench.open(&by_hand());
        let x = db.create_keyspace("x", by_hand().keyspace()).expect("create");
        put_in(&db, &x, b"k", b"v");
        db.put(&synced(), b"other", b"v").expect("put");
        db.wait_until_idle().expect("idle");
        let door = bench.door_on(OpKind::Sync, ".sst");
        db.flush_in(&FlushOptions { wait: false, ..FlushOptions::default() }, &x).expect("flush");
        door.wait_for_one();
        bench.wait_for("the table is live", || {
            let files = db.property_in(&x, "dialsm.num-files-at-level0").expect("it is there");
            files.as_deref() == Some("1")
        });
        let dropper = db.clone();
        let dropped = bench.spawn(move || dropper.drop_keyspace(&x).expect("drop"));
        dropped.join();
        door.open();
        put(&db, b"more", b"v");
        db.flush().expect("flush");
        bench.tidy(&db);
        assert_eq!(bench.names(".sst").len(), 1, "the dropped keyspace's table is gone");
        for policy in CUTS {
            let db = bench.cut(policy).open(&by_hand());
            assert_eq!(db.keyspaces(), ["default"], "{policy:?}");
            assert!(get(&db, b"other").is_some() && get(&db, b"more").is_some(), "{policy:?}");
        }
    });
}

/// The log still has records of the dropped keyspace when another of that name is there.
#[test]
fn h38_a_keyspace_made_again_gets_nothing_of_the_old_one() {
    Bench::run(|bench| {
        let db = bench.open(&by_hand());
        let x = db.create_keyspace("x", by_hand().keyspace()).expect("create");
        db.put_in(&synced(), &x, b"old", b"v").expect("put");
        db.drop_keyspace(&x).expect("drop");
        let again = db.create_keyspace("x", by_hand().keyspace()).expect("create");
        assert!(again.id() > x.id());
        db.put_in(&synced(), &again, b"new", b"v").expect("put");
        db.put(&synced(), b"k", b"v").expect("put");
        for policy in CUTS {
            let after = bench.cut(policy);
            let db = after.open(&by_hand());
            let x = db.keyspace("x").expect("x");
            assert_eq!(get_in(&db, &x, b"old"), None, "{policy:?}");
            assert!(get_in(&db, &x, b"new").is_some() && get(&db, b"k").is_some(), "{policy:?}");
            db.drop_keyspace(&x).expect("drop");
            assert!(db.create_keyspace("x", by_hand().keyspace()).expect("create").id() > again.id());
        }
    });
}

/// A log that names a keyspace which no manifest ever gave out is not this database's.
#[test]
fn h38_replay_refuses_a_keyspace_that_never_was() {
    Bench::run(|bench| {
        let db = bench.open(&by_hand());
        db.put(&synced(), b"k", b"v").expect("put");
        db.wait_until_idle().expect("idle");
        let name = bench.names("MANIFEST")[0].clone();
        let read = |fs: &dyn Fs| {
            let file = fs.open(&Path::new(DIR).join(&name), Access::Read).expect("open");
            let mut bytes = vec![0; file.len().expect("length") as usize];
            file.read_at(&mut bytes, 0).expect("read");
            bytes
        };
        let before = read(bench.disk().as_ref());
        let x = db.create_keyspace("x", by_hand().keyspace()).expect("create");
        db.put_in(&synced(), &x, b"k", b"v").expect("put");
        db.put(&synced(), b"later", b"v").expect("put");
        let after = bench.cut(CrashPolicy::KeepAll);
        let path = Path::new(DIR).join(&name);
        after.disk().unlink(&path).expect("unlink");
        after.disk().create(&path).expect("create").write_at(&before, 0).expect("write");
        let error = after.try_open(&by_hand()).map(drop).expect_err("keyspace 1 never was");
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        assert!(error.message().contains("keyspace 1") && error.offset().is_some(), "{error}");
        assert!(is_log(&error), "{error}");
    });
}

fn is_log(error: &dialsm_core::Error) -> bool {
    error.path().is_some_and(|path| path.extension().is_some_and(|e| e == "log"))
}
