//! What fails while tables are on their way to the disk, and who has to hear of it: nobody waits for ever,
//! nobody runs for ever, nothing goes on that must not.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dialsm_core::{CompactRangeOptions, Db, ErrorKind, KeyspaceOptions, Options, WriteOptions};
use dialsm_io::fs::{Access, Fs};
use dialsm_io::{CrashPolicy, Fault, OpKind, Rule};

use crate::bench::{Bench, DIR, EIO, ENOSPC, SECOND, by_hand, contents, put, put_in, synced};
use crate::handoff::{BEGIN, Rounds, options};

/// Runs `job` on a thread, and waits for its end.
fn ends(bench: &Bench, what: &str, job: impl FnOnce() + Send + 'static) {
    let done = Arc::new(AtomicBool::new(false));
    let is_done = done.clone();
    let thread = bench.spawn(move || {
        job();
        done.store(true, Ordering::SeqCst);
    });
    bench.wait_for(what, || is_done.load(Ordering::SeqCst));
    thread.join();
}

/// Lets time pass in which nobody has anything to do but to look now and then.
fn rest(bench: &Bench) {
    bench.env.set_steps_max(bench.env.steps() + 5_000);
    bench.sleep(5 * SECOND);
    bench.env.set_steps_max(u64::MAX);
}

/// Puts fail for want of space.
fn is_full(db: &Db) -> bool {
    let result = db.put(&WriteOptions::default(), b"full?", b"");
    result.is_err_and(|error| error.kind() == ErrorKind::NoSpace)
}

/// The sync of a live table fails while a compaction reads it, and then that fails, too: nobody told the
/// reaper that the table was free again, and it was never made again.
#[test]
fn h23_a_failed_output_is_made_again_when_its_reader_has_failed() {
    for seed in 1..=8 {
        Bench::run_seed(seed, |bench| {
            let mut rounds = Rounds::new(bench, options(), 500);
            bench.faults.add(Rule::nth(OpKind::Sync, 3, Fault::ErrnoAfter(EIO)).on(".sst"));
            let (_, first) = rounds.round();
            bench.faults.add(Rule::nth(OpKind::Create, 1, Fault::ErrnoAfter(ENOSPC)).on(".sst"));
            let door = bench.door_on(OpKind::Create, ".sst");
            let db = rounds.db.clone();
            let reader = bench.spawn(move || {
                let all = CompactRangeOptions { rewrite_bottom: true, ..Default::default() };
                let full = db.compact_range(&all, None, None).expect_err("its output can't be made");
                assert_eq!(full.kind(), ErrorKind::NoSpace);
            });
            door.wait_for_one();
            rounds.holds.let_go(&first);
            bench.sleep(SECOND);
            assert_eq!(bench.faults.injected(), 2, "both have failed, but one is not heard of");
            door.open();
            reader.join();
            let again = rounds.next();
            rounds.holds.let_go(&again);
            let db = rounds.db.clone();
            ends(bench, "rest", move || db.wait_until_idle().expect("idle"));
            assert_eq!((rounds.db.metrics().counters.tables_redone, rounds.tables()), (1, vec![again]));
            rounds.check("made again");
        });
    }
}

/// The kernel drops the pages of a live table before anybody hears that its sync fails, and a compaction
/// meets what is left: that says nothing before the outcome of the sync is known.
#[test]
fn h23_damage_to_a_table_that_is_not_durable_waits_for_its_sync() {
    for by_hand in [false, true] {
        damage_waits(by_hand);
    }
}

fn damage_waits(by_hand: bool) {
    Bench::run(|bench| {
        let mut rounds = Rounds::new(bench, options(), 500);
        bench.faults.add(Rule::nth(OpKind::Sync, 3, Fault::ErrnoAfter(EIO)).on(".sst"));
        let (_, first) = rounds.round();
        let file = bench.disk().open(&Path::new(DIR).join(&first), Access::ReadWrite).expect("open");
        let len = file.len().expect("its length");
        file.write_at(&vec![0; len as usize], 0).expect("write");
        let db = rounds.db.clone();
        let reader = by_hand.then(|| {
            let all = CompactRangeOptions { rewrite_bottom: true, ..Default::default() };
            bench.spawn(move || db.compact_range(&all, None, None).expect("compact"))
        });
        if !by_hand {
            let _ = [rounds.flush(), rounds.flush()];
        }
        bench.sleep(SECOND);
        rounds.db.put(&synced(), &[3], b"v").expect("writes go on");
        rounds.model.insert(vec![3], b"v".to_vec());
        rounds.holds.let_go(&first);
        let again = rounds.next();
        rounds.holds.let_go(&again);
        let second = rounds.next();
        rounds.holds.let_go(&second);
        reader.into_iter().for_each(|reader| reader.join());
        let db = rounds.db.clone();
        ends(bench, "rest", move || db.wait_until_idle().expect("idle"));
        // What is not needed goes a little later.
        bench.sleep(SECOND);
        assert_eq!((rounds.db.metrics().counters.tables_redone, rounds.tables()), (1, vec![second]));
        rounds.check("made again, and compacted");
    });
}

/// A full disk, to be tried again later; before that a failure for good. Who was to try again found that it
/// may not, at a time that had passed, and looked again at once, for ever.
#[test]
fn nobody_tries_again_for_ever_after_a_lasting_error() {
    for (op, part) in [(OpKind::Create, ".sst"), (OpKind::Write, "MANIFEST")] {
        Bench::run(|bench| {
            let db = bench.open(&by_hand());
            put(&db, b"k", b"v");
            // The manifest knows the log's segment by now.
            db.wait_until_idle().expect("idle");
            bench.faults.add(Rule::nth(op, 1, Fault::Errno(ENOSPC)).on(part));
            db.flush_with(&BEGIN).expect("seal");
            bench.sleep(SECOND / 10);
            assert_eq!(bench.faults.injected(), 1);
            bench.faults.add(Rule::nth(OpKind::Sync, 1, Fault::Errno(EIO)).on(".log"));
            db.sync().expect_err("it fails");
            assert_eq!(db.flush().expect_err("for good").kind(), ErrorKind::Poisoned);
            rest(bench);
            assert!(contents(&db).contains_key(b"k".as_slice()));
        });
    }
}

/// A flush finds the disk full, and its keyspace is dropped, which makes room: nothing is left that could
/// be tried again, and nobody lifted the error.
#[test]
fn a_drop_that_makes_room_lets_writes_go_on() {
    Bench::run(|bench| {
        let db = bench.open(&by_hand());
        let x = db.create_keyspace("x", by_hand().keyspace()).expect("create");
        put_in(&db, &x, b"k", b"v");
        bench.faults.add(Rule::every(OpKind::Create, Fault::Errno(ENOSPC)).on(".sst"));
        db.flush_in(&BEGIN, &x).expect("seal");
        bench.wait_for("a full disk", || is_full(&db));
        db.drop_keyspace(&x).expect("drop");
        bench.faults.clear();
        bench.wait_for("space", || !is_full(&db));
        rest(bench);
        db.flush().expect("flush");
    });
}

/// The manifest finds the disk full; the drop of a keyspace writes it in the end, and with it all that the
/// reaper was to try again. It looked for that without a pause, and writes stayed refused.
#[test]
fn what_a_drop_has_settled_is_not_tried_again() {
    Bench::run(|bench| {
        let db = bench.open(&by_hand());
        let x = db.create_keyspace("x", by_hand().keyspace()).expect("create");
        put_in(&db, &x, b"k", b"v");
        put(&db, b"k", b"v");
        // The manifest knows the log's segment by now.
        db.wait_until_idle().expect("idle");
        bench.faults.add(Rule::nth(OpKind::Write, 1, Fault::Errno(ENOSPC)).on("MANIFEST"));
        db.flush_with(&BEGIN).expect("seal");
        bench.sleep(SECOND / 10);
        assert!(is_full(&db));
        db.drop_keyspace(&x).expect("drop");
        rest(bench);
        assert!(!is_full(&db));
        assert!(contents(&bench.cut(CrashPolicy::KeepAll).open(&by_hand())) == contents(&db));
    });
}

/// The record of a drop can't be written; it is written again soon, though nothing else happens.
#[test]
fn a_drop_that_failed_is_written_again_by_itself() {
    Bench::run(|bench| {
        let db = bench.open(&by_hand());
        let x = db.create_keyspace("x", by_hand().keyspace()).expect("create");
        put_in(&db, &x, b"k", b"v");
        db.flush_in(&BEGIN, &x).expect("flush");
        db.wait_until_idle().expect("idle");
        assert_eq!(bench.names(".sst").len(), 1);
        bench.sleep(SECOND);
        bench.faults.add(Rule::nth(OpKind::Write, 1, Fault::Errno(ENOSPC)).on("MANIFEST"));
        assert_eq!(db.drop_keyspace(&x).expect_err("full").kind(), ErrorKind::NoSpace);
        let waiting = db.clone();
        ends(bench, "rest", move || waiting.wait_until_idle().expect("idle"));
        bench.wait_for("its table goes", || bench.names(".sst").is_empty());
        let cut = bench.cut(CrashPolicy::DropUnsynced);
        assert!(cut.open(&by_hand()).keyspace("x").is_none());
    });
}

/// The sync of the directory fails for a table that no version names yet. Every later name depends on it:
/// writes stop now, and not when the compaction has ended.
#[test]
fn a_directory_that_could_not_be_synced_stops_writes_at_once() {
    Bench::run(|bench| {
        let db = bench.open(&by_hand());
        for round in 0..2u8 {
            (0..40u8).for_each(|i| put(&db, &[i], &[round; 10_000]));
            db.flush().expect("flush");
        }
        let model = contents(&db);
        let door = bench.door_at(2, |call| crate::bench::is(call, OpKind::Create, ".sst"));
        bench.faults.add(Rule::nth(OpKind::SyncDir, 1, Fault::Errno(EIO)));
        let other = db.clone();
        let job = bench.spawn(move || {
            other.compact_range(&CompactRangeOptions::default(), None, None).expect_err("it fails");
        });
        door.wait_for_one();
        bench.sleep(SECOND);
        assert_eq!(bench.faults.injected(), 1);
        let refused = db.put(&synced(), b"k", b"v").expect_err("no name made since may be relied on");
        assert_eq!(refused.kind(), ErrorKind::Poisoned);
        door.open();
        job.join();
        assert!(contents(&db) == model);
        drop(db);
        assert!(contents(&bench.cut(CrashPolicy::DropUnsynced).open(&by_hand())) == model);
    });
}

/// A bug shows on the reaper's thread while it takes a table further: closing waited for that table.
#[test]
fn a_panic_over_a_table_hangs_nobody() {
    Bench::run(|bench| {
        let options = Options { direct_writes: true, ..by_hand() };
        let db = bench.open(&options);
        put(&db, b"k", b"v");
        let model = contents(&db);
        bench.faults.add(Rule::nth(OpKind::SetLen, 1, Fault::Panic).on(".sst"));
        let door = bench.door_on(OpKind::Write, ".sst");
        db.flush_with(&BEGIN).expect("seal");
        door.wait_for_one();
        bench.sleep(SECOND);
        door.open();
        bench.wait_for("the panic", || bench.faults.injected() == 1);
        assert_eq!(db.flush().expect_err("stopped").kind(), ErrorKind::Poisoned);
        assert!(contents(&db) == model);
        ends(bench, "closing", move || drop(db));
        assert!(contents(&bench.open(&options)) == model);
    });
}

/// The sync of the directory fails at whoever comes first after a new log segment, and would succeed the next time:
/// that says nothing of the names that were lost.
#[test]
fn h23_a_failed_sync_of_the_directory_is_not_made_up_for_by_the_next() {
    for code in [EIO, ENOSPC] {
        for by_caller in [false, true] {
            Bench::run(|bench| {
                let db = bench.open(&by_hand());
                put(&db, b"k", b"v");
                db.wait_until_idle().expect("idle");
                bench.faults.add(Rule::nth(OpKind::SyncDir, 1, Fault::Errno(code)));
                let segments = bench.names(".log").len();
                for i in 0..100u8 {
                    if bench.names(".log").len() > segments {
                        break;
                    }
                    put(&db, &[i], &[1; 3000]);
                }
                if by_caller {
                    db.create_keyspace("x", KeyspaceOptions::default())
                        .expect_err("nothing is sure of its name");
                }
                bench.sleep(SECOND);
                assert_eq!(bench.faults.injected(), 1);
                let refused = db.put(&synced(), b"later", b"").expect_err("it may be lost");
                assert_eq!(refused.kind(), ErrorKind::Poisoned);
                assert_eq!(db.sync().expect_err("so may all before").kind(), ErrorKind::Poisoned);
            });
        }
    }
}

/// A table that was made again is consumed by a compaction, and then its sync fails, too: nobody needs it.
#[test]
fn h23_a_second_failure_of_what_nobody_needs_stops_nothing() {
    Bench::run(|bench| {
        let mut rounds = Rounds::new(bench, options(), 500);
        let rule = Rule::nth(OpKind::Sync, 3, Fault::ErrnoAfter(EIO)).on(".sst");
        bench.faults.add(Rule { times: 2, ..rule });
        let (_, first) = rounds.round();
        rounds.holds.let_go(&first);
        let again = rounds.next();
        let (_, second) = rounds.round();
        rounds.holds.let_go(&again);
        bench.sleep(SECOND);
        assert_eq!(bench.faults.injected(), 2);
        rounds.db.put(&synced(), &[9], b"new").expect("writes go on");
        rounds.model.insert(vec![9], b"new".to_vec());
        rounds.check("nobody needs it");
        rounds.holds.let_go(&second);
        bench.sleep(SECOND);
        assert_eq!(rounds.tables(), [second]);
        rounds.check("settled");
    });
}
