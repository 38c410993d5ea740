//! H7, H18, H20: what of a group, a flush and a compaction readers see, and when.

use dialsm_core::{CompactRangeOptions, Db, FlushOptions, Options};
use dialsm_io::OpKind;

use crate::bench::{
    Bench, CUTS, SlowOrder, batch_in, by_hand, contents, files_at, get, get_in, is, live_files, number, put,
    put_in, synced,
};

const BEGIN: FlushOptions = FlushOptions { wait: false, allow_stall: true, atomic: false };

/// K@1 is visible. An older group stands still in its insert, so K@2, which is inserted, is not visible
/// yet. Its memtable is sealed, and may be flushed: whoever reads meanwhile finds K@1.
#[test]
fn h07_what_is_not_visible_yet_hides_nothing() {
    Bench::run(|bench| {
        let order = SlowOrder::new();
        let db = bench.open_with(&by_hand(), &[("x", order.keyspace(&by_hand()))]);
        let x = db.keyspace("x").expect("x");
        put_in(&db, &x, b"a", b"v");
        put(&db, b"k", b"1");
        let door = bench.door();
        order.arm(&door);
        let (slow, of) = (db.clone(), x.clone());
        let slow = bench.spawn(move || put_in(&slow, &of, b"slow", b"v"));
        door.wait_for_one();
        let later = db.clone();
        let later = bench.spawn(move || put(&later, b"k", b"2"));
        // The slow one is not in its memtable yet, the later one is.
        bench.wait_for("the later insert", || number(&db, "dialsm.num-entries-active-memtable") == 3);
        let read = |when: &str| {
            assert_eq!(get(&db, b"k").as_deref(), Some(b"1".as_slice()), "{when}");
            assert_eq!(contents(&db)[b"k".as_slice()], b"1", "{when}");
            assert_eq!(get_in(&db, &x, b"slow"), None, "{when}");
        };
        read("in the memtable");
        db.flush_with(&BEGIN).expect("flush");
        bench.sleep(10_000_000);
        read("sealed, or in a table");
        let snapshot = db.snapshot();
        door.open();
        slow.join();
        later.join();
        assert_eq!(get(&db, b"k").as_deref(), Some(b"2".as_slice()));
        db.flush().expect("flush");
        db.compact_range(&CompactRangeOptions::default(), None, None).expect("compact");
        let at = dialsm_core::ReadOptions { snapshot: Some(snapshot), ..Default::default() };
        let seen = db.get(&at, b"k").expect("get").map(|value| value.to_vec());
        assert_eq!(seen.as_deref(), Some(b"1".as_slice()), "a snapshot of that moment");
    });
}

/// The memtable is sealed while a group that was logged into it is still being inserted: the entry goes
/// into that memtable all the same, and the flush waits for it. Else the floor passes it.
#[test]
fn h20_a_group_goes_into_the_memtable_that_it_was_logged_for() {
    Bench::run(|bench| {
        let order = SlowOrder::new();
        let db = bench.open_with(&by_hand(), &[("x", order.keyspace(&by_hand()))]);
        let x = db.keyspace("x").expect("x");
        put_in(&db, &x, b"a", b"v");
        put(&db, b"other", b"v");
        let door = bench.door();
        order.arm(&door);
        let (writer, id) = (db.clone(), x.id());
        let writer = bench.spawn(move || {
            let mut batch = batch_in(&[id], b"slow", b"41");
            batch.put(b"k", b"41").expect("put");
            writer.write(&synced(), batch).expect("write");
        });
        door.wait_for_one();
        db.flush_with(&BEGIN).expect("flush");
        bench.sleep(10_000_000);
        assert_eq!(number(&db, "dialsm.num-immutable-memtables"), 1);
        assert_eq!(
            (files_at(&db, 0), bench.names(".sst").len()),
            (0, 0),
            "flushed before its last writer left"
        );
        // A later one, into the memtable that was opened; not waited for: it becomes visible in turn.
        let later = db.clone();
        let later = bench.spawn(move || put(&later, b"l", b"42"));
        bench.sleep(10_000_000);
        assert_eq!(
            number(&db, "dialsm.num-entries-active-memtable"),
            1 + 1,
            "one of the default keyspace, one of x"
        );
        door.open();
        writer.join();
        later.join();
        db.flush().expect("flush");
        db.sync().expect("sync");
        for policy in CUTS {
            let named = [("x", order.keyspace(&by_hand()))];
            let db = bench.cut(policy).open_with(&by_hand(), &named);
            let x = db.keyspace("x").expect("x");
            assert_eq!(get(&db, b"k").as_deref(), Some(b"41".as_slice()), "{policy:?}");
            assert_eq!(get_in(&db, &x, b"slow").as_deref(), Some(b"41".as_slice()), "{policy:?}");
            assert_eq!(get(&db, b"l").as_deref(), Some(b"42".as_slice()), "{policy:?}");
        }
    });
}

/// Three tables with the same keys.
fn fill(db: &Db) {
    for round in 0..3u8 {
        (0..20u8).for_each(|i| db.put(&synced(), &[i], &[round; 100]).expect("put"));
        db.flush().expect("flush");
    }
    db.wait_until_idle().expect("idle");
}

/// A flush is installed while a compaction is under way, and after it the compaction.
#[test]
fn h18_a_compaction_does_not_undo_the_install_of_a_flush() {
    Bench::run(|bench| {
        let db = bench.open(&Options { background_jobs_max: 4, ..by_hand() });
        fill(&db);
        let inputs = bench.names(".sst");
        let door = bench.door_on(OpKind::Create, ".sst");
        let other = db.clone();
        let compaction = bench.spawn(move || {
            other.compact_range(&CompactRangeOptions::default(), None, None).expect("compact");
        });
        door.wait_for_one();
        bench.disk().clear_call_hooks();
        db.put(&synced(), &[5], b"new").expect("put");
        db.put(&synced(), b"more", b"new").expect("put");
        db.flush().expect("flush");
        assert_eq!(files_at(&db, 0), 4);
        door.open();
        compaction.join();
        both_are_there(bench, &db, &inputs);
    });
}

/// The other way round.
#[test]
fn h18_a_flush_does_not_undo_the_install_of_a_compaction() {
    Bench::run(|bench| {
        let db = bench.open(&Options { background_jobs_max: 4, ..by_hand() });
        fill(&db);
        let inputs = bench.names(".sst");
        // The compaction is begun first, since it flushes; it waits for its output, and so does the flush.
        let compacts = bench.door_on(OpKind::Create, ".sst");
        let other = db.clone();
        let compaction = bench.spawn(move || {
            other.compact_range(&CompactRangeOptions::default(), None, None).expect("compact");
        });
        compacts.wait_for_one();
        bench.disk().clear_call_hooks();
        let flushes =
            bench.door_at(1, |call| is(call, OpKind::Create, ".sst") && call.thread.starts_with("dialsm"));
        db.put(&synced(), &[5], b"new").expect("put");
        db.put(&synced(), b"more", b"new").expect("put");
        db.flush_with(&BEGIN).expect("flush");
        flushes.wait_for_one();
        compacts.open();
        compaction.join();
        assert_eq!(files_at(&db, 0), 0);
        flushes.open();
        db.flush().expect("flush");
        both_are_there(bench, &db, &inputs);
    });
}

fn both_are_there(bench: &Bench, db: &Db, inputs: &[String]) {
    assert_eq!((files_at(db, 0), live_files(db)), (1, 2));
    bench.tidy(db);
    let check = |db: &Db| {
        assert_eq!(get(db, &[5]).as_deref(), Some(b"new".as_slice()));
        assert_eq!(get(db, b"more").as_deref(), Some(b"new".as_slice()));
        assert_eq!(contents(db).len(), 21);
    };
    check(db);
    assert!(inputs.iter().all(|name| !bench.names(".sst").contains(name)), "the inputs are gone");
    // A handle without caches.
    for policy in CUTS {
        check(&bench.cut(policy).open(&by_hand()));
    }
}
