//! H9, H30, H43: clues become values in their place, whoever holds them, and what was redirected is
//! collected wherever it lies.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dialsm_core::{CompactRangeOptions, Options, ReadOptions, WriteOptions};
use dialsm_io::OpKind;
use parking_lot::Mutex;

use crate::bench::{Bench, CUTS, contents, contents_at, files_at, get, is, put};
use crate::detour::{compact, delete, flush_alone, follow, shards};

/// A clue below a range delete: the value takes the clue's place, not a newer one.
#[test]
fn h09a_a_rollback_brings_back_nothing_that_was_deleted() {
    for is_flushed in [false, true] {
        Bench::run(|bench| {
            let (detour, options) = shards(2);
            let db = bench.open(&options);
            detour.put(&db, 1, b"a1", b"deleted");
            detour.put(&db, 1, b"a3", b"replaced");
            compact(&db, Some(1));
            let snapshot = db.snapshot();
            db.delete_range(&WriteOptions::default(), b"a", b"b").expect("delete");
            put(&db, b"a2", b"value");
            put(&db, b"a3", b"value");
            if is_flushed {
                // Younger than the clue, and beside the rollback's inputs or among them.
                db.flush().expect("flush");
            }
            db.rollback().expect("rollback");
            assert_eq!(db.metrics().counters.clues_rolled_back, 2);
            let check = |when: &str| {
                assert_eq!(get(&db, b"a1"), None, "{when}");
                assert_eq!(get(&db, b"a3").as_deref(), Some(b"value".as_slice()), "{when}");
                assert_eq!(contents(&db).len(), 2, "{when}");
                let at = ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::default() };
                let before = contents_at(&db, &at);
                assert_eq!(
                    (before.len(), before[b"a1".as_slice()].as_slice()),
                    (2, &b"deleted"[..]),
                    "{when}"
                );
            };
            check("rolled back");
            db.flush().expect("flush");
            check("flushed");
            compact(&db, Some(3));
            check("compacted");
        });
    }
}

/// A clue that a single delete is to take away: there is one put for it, in whatever shape.
#[test]
fn h09b_a_single_delete_takes_what_was_rolled_back() {
    for is_before in [false, true] {
        Bench::run(|bench| {
            let (detour, options) = shards(2);
            let db = bench.open(&options);
            put(&db, b"a0", b"value");
            detour.put(&db, 1, b"a1", b"once");
            db.flush().expect("flush");
            if is_before {
                db.rollback().expect("rollback");
            }
            db.single_delete(&WriteOptions::default(), b"a1").expect("delete");
            if !is_before {
                db.rollback().expect("rollback");
                assert_eq!(db.metrics().counters.clues_rolled_back, 1);
            }
            let check = |when: &str| {
                assert_eq!(get(&db, b"a1"), None, "{when}");
                assert_eq!(contents(&db).len(), 1, "{when}");
            };
            check("rolled back");
            db.flush().expect("flush");
            check("flushed");
            compact(&db, Some(1));
            compact(&db, Some(6));
            check("compacted");
            for policy in CUTS {
                assert_eq!(contents(&bench.cut(policy).open(&options)).len(), 1, "{policy:?}");
            }
        });
    }
}

/// As many clues as may be, all of them held by a snapshot, and newer values above them. A rollback
/// replaces them all the same, and redirecting goes on.
#[test]
fn h30_a_snapshot_does_not_keep_the_clues_at_their_limit() {
    Bench::run(|bench| {
        let (detour, options) = shards(2);
        let options = Options { clues_max: 4, ..options };
        let db = bench.open(&options);
        let keys = [b"a1", b"a2", b"a3", b"a4"];
        keys.iter().for_each(|key| detour.put(&db, 1, *key, b"older"));
        let snapshot = db.snapshot();
        detour.to(1);
        keys.iter().for_each(|key| put(&db, *key, b"newer"));
        detour.end();
        assert_eq!(db.metrics().counters.redirects, 4, "the limit is reached");
        db.flush().expect("flush");
        assert_eq!(db.metrics().counters.clues_dropped, 0, "the snapshot holds them");
        db.set_options(&[("rollback", "true")]).expect("set");
        bench.wait_for("the rollback", || db.metrics().counters.clues_rolled_back == 4);
        db.wait_until_idle().expect("idle");
        detour.put(&db, 1, b"a5", b"redirected");
        let at = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::default() };
        assert!(contents_at(&db, &at).values().all(|value| value == b"older"));
        assert_eq!(contents_at(&db, &at).len(), 4);
        assert_eq!(contents(&db).len(), 5);
        assert_eq!(db.metrics().counters.redirected_dropped, 4, "collected");
    });
}

/// What was redirected has sunk to the fallback's last level, where no compaction comes by itself. When
/// its clues have gone, in one way or another, it goes too.
#[test]
fn h43_what_nobody_needs_is_collected_at_the_bottom_too() {
    Bench::run(|bench| {
        let (detour, options) = shards(2);
        let db = bench.open(&options);
        // One is rolled back, one overwritten, one deleted, one deleted with its range.
        let keys = [b"a1", b"a2", b"a3", b"a4"];
        keys.iter().for_each(|key| detour.put(&db, 1, *key, &[b'v'; 3000]));
        put(&db, b"b1", b"value");
        compact(&db, Some(6));
        put(&db, b"a2", b"newer");
        delete(&db, b"a3");
        db.delete_range(&WriteOptions::default(), b"a4", b"a5").expect("delete");
        db.flush().expect("flush");
        assert_eq!(db.metrics().counters.redirected_dropped, 0);
        db.set_options(&[("rollback", "true")]).expect("set");
        db.wait_until_idle().expect("idle");
        let counters = db.metrics().counters;
        assert_eq!((counters.clues_rolled_back, counters.clues_dropped), (1, 3));
        assert_eq!(counters.redirected_dropped, 4);
        assert!(files_at(&db, 6) > 0);
        assert_eq!(follow(&db, b"a1"), (Some(vec![b'v'; 3000]), false));
        assert_eq!(contents(&db).len(), 3);
    });
}

/// The same where clues and values are flushed and compacted apart, and the disk is slow: in no state that
/// a cut may leave is a clue without its value.
#[test]
fn h09_no_cut_leaves_a_clue_without_its_value() {
    Bench::run(|bench| {
        let (detour, options) = shards(2);
        let db = bench.open(&Options { rollback: true, automatic_compaction: true, ..options.clone() });
        let calls = AtomicU64::new(0);
        let images =
            bench.images_at(CUTS[0], move |_| calls.fetch_add(1, Ordering::SeqCst).is_multiple_of(7));
        for round in 0..4u8 {
            for i in 0..4u8 {
                detour.put(&db, 1, &[b'a', i], &[b'0' + round; 40]);
                detour.put(&db, 0, &[b'b', i], &[b'0' + round; 40]);
            }
            db.sync().expect("sync");
            if round % 2 == 0 {
                flush_alone(bench, &db, b'b');
            } else {
                db.compact_range(&CompactRangeOptions::default(), None, None).expect("compact");
            }
            db.rollback().expect("rollback");
            db.wait_until_idle().expect("idle");
        }
        assert!(db.metrics().counters.redirected_dropped >= 16);
        let images = std::mem::take(&mut *images.lock());
        bench.disk().clear_call_hooks();
        assert!(images.len() > 60, "{}", images.len());
        for image in images {
            let at = bench.with_disk(image);
            let db = at.open(&options);
            let found = contents(&db);
            db.rollback().expect("rollback");
            assert_eq!(contents(&db), found);
        }
    });
}

/// A shard that nobody writes to, or little, has a low floor for ever, and no clue: nothing waits for it.
#[test]
fn h43_an_idle_shard_does_not_keep_what_nobody_needs() {
    Bench::run(|bench| {
        let (detour, options) = shards(4);
        let db = bench.open(&options);
        // One shard is idle from the first; another one since before the redirects.
        put(&db, b"d1", b"value");
        db.flush().expect("flush");
        let keys = [b"a1", b"a2", b"a3"];
        keys.iter().for_each(|key| detour.put(&db, 1, *key, &[b'v'; 3000]));
        flush_alone(bench, &db, b'a');
        // What these two have in memory now is older than the fallback's table.
        put(&db, b"d2", b"value");
        flush_alone(bench, &db, b'b');
        let count = contents(&db).len();
        db.sync().expect("sync");
        db.set_options(&[("rollback", "true")]).expect("set");
        db.wait_until_idle().expect("idle");
        let counters = db.metrics().counters;
        assert_eq!((counters.clues_rolled_back, counters.redirected_dropped), (3, 3));
        for policy in CUTS {
            let db = bench.cut(policy).open(&options);
            assert_eq!(contents(&db).len(), count, "{policy:?}");
            assert_eq!(follow(&db, b"a1"), (Some(vec![b'v'; 3000]), false), "{policy:?}");
        }
    });
}

/// A rollback that is asked for ends though others go on redirecting: it waits for the clues of the time
/// when it was called. Here another one comes while it is on its way, and nobody could put that one's value
/// in its place.
#[test]
fn h31_a_rollback_ends_while_others_go_on_redirecting() {
    Bench::run(|bench| {
        let (detour, options) = shards(2);
        let db = bench.open(&options);
        detour.put(&db, 1, b"a1", b"before");
        db.flush().expect("flush");
        let first: Mutex<Option<PathBuf>> = Mutex::new(None);
        let in_first = bench.door_at(1, move |call| {
            is(call, OpKind::Write, ".sst")
                && first.lock().get_or_insert_with(|| call.path.clone()) == &call.path
        });
        let is_later = Arc::new(AtomicBool::new(false));
        let later = is_later.clone();
        let in_later =
            bench.door_at(1, move |call| later.load(Ordering::SeqCst) && is(call, OpKind::Create, ".sst"));
        let (rolling, is_over) = (db.clone(), Arc::new(AtomicBool::new(false)));
        let over = is_over.clone();
        let rolling = bench.spawn(move || {
            rolling.rollback().expect("rollback");
            over.store(true, Ordering::SeqCst);
        });
        in_first.wait_for_one();
        detour.put(&db, 1, b"a2", b"after");
        db.flush().expect("flush");
        is_later.store(true, Ordering::SeqCst);
        in_first.open();
        bench.wait_for("the rollback", || is_over.load(Ordering::SeqCst));
        assert_eq!(
            (follow(&db, b"a1"), follow(&db, b"a2")),
            ((Some(b"before".to_vec()), false), (Some(b"after".to_vec()), true))
        );
        in_later.open();
        rolling.join();
        db.rollback().expect("rollback");
        assert!(!follow(&db, b"a2").1, "the next one takes it");
    });
}
