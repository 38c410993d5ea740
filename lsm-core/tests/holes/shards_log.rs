//! H1, H2, H7, H12, H14, H19, H20 and H29 with shards: a value and its clue go two ways, to be in one log
//! record and in two memtables, and are flushed, settled and recovered apart.

use std::cmp::Ordering;
use std::sync::Arc;

use dialsm_core::key::{Comparator, UserComparator};
use dialsm_core::{CompactRangeOptions, Db, FlushOptions, Options, WriteBatch, WriteOptions};
use dialsm_io::CrashPolicy;
use parking_lot::Mutex;

use crate::bench::{
    Bench, CUTS, Door, Gate, SlowOrder, contents, files_at, get, get_in, number, put, put_in, synced,
};
use crate::detour::{compact, fill_until_flushed, flush_alone, follow, merge, shards};

const BEGIN: FlushOptions = FlushOptions { wait: false, allow_stall: true, atomic: false };

fn unsettled(db: &Db) -> u64 {
    number(db, "dialsm.unsettled-installs")
}

/// K@1 is durable, K@2 redirected and not synced. The primary is flushed, so that K@1 is gone there; the
/// fallback's memtable goes with the power.
#[test]
fn h01_no_shard_gets_ahead_of_the_log() {
    Bench::run(|bench| {
        let (detour, options) = shards(2);
        let db = bench.open(&options);
        db.put(&synced(), b"a1", b"older").expect("put");
        detour.put(&db, 1, b"a1", b"newer");
        flush_alone(bench, &db, b'a');
        assert_eq!(files_at(&db, 0), 1, "the primary's");
        for policy in CUTS {
            let db = bench.cut(policy).open(&options);
            let found = contents(&db);
            assert_eq!(found.get(b"a1".as_slice()), get(&db, b"a1").as_ref(), "{policy:?}");
            assert_eq!(found[b"a1".as_slice()], b"newer", "{policy:?}: settling has synced the log");
        }
    });
}

/// Options of a database whose fallback, shard 0, is compacted by itself when it has two tables, and
/// a first table there that the later ones overlap.
fn with_busy_fallback(bench: &Bench, options: Options) -> (Options, Db) {
    let options = Options {
        level0_compaction_trigger: 50,
        level0_slowdown_trigger: 60,
        level0_stop_trigger: 64,
        ..options
    };
    let db = bench.open(&options);
    put(&db, b"a1", b"value");
    put(&db, b"az", b"value");
    compact(&db, Some(6));
    (options, db)
}

/// Compacts what has two tables in L0, and waits until nothing but `unsettled` steps is left to settle.
fn compact_two(bench: &Bench, db: &Db, trigger: &str, left: u64) {
    let before = db.compactions();
    db.set_options(&[("level0_compaction_trigger", trigger), ("automatic_compaction", "true")]).expect("set");
    bench.wait_for("a compaction", || db.compactions() > before && unsettled(db) == left);
    db.set_options(&[("automatic_compaction", "false")]).expect("set");
}

/// The clue was dropped by a flush that is not settled, so it never was in a table, and is in the memtable no
/// more. The fallback is compacted; then the power goes, and takes the write that made the clue obsolete.
#[test]
fn h02_a_value_stays_until_its_primary_is_settled_above_it() {
    Bench::run(|bench| {
        let (detour, options) = shards(2);
        let (options, db) = with_busy_fallback(bench, options);
        detour.put(&db, 0, b"b1", b"redirected");
        db.sync().expect("sync");
        flush_alone(bench, &db, b'a');
        flush_alone(bench, &db, b'a');
        let holds = bench.hold_syncs();
        put(&db, b"b1", b"native");
        fill_until_flushed(bench, &db, b'b');
        assert_eq!(db.metrics().counters.clues_dropped, 1, "by the flush");
        assert_eq!(unsettled(&db), 1);
        holds.set(false);
        compact_two(bench, &db, "2", 1);
        assert_eq!(db.metrics().counters.redirected_dropped, 0);
        for policy in CUTS {
            let db = bench.cut(policy).open(&options);
            let found = contents(&db);
            let b1 = found[b"b1".as_slice()].as_slice();
            assert!(b1 == b"redirected" || b1 == b"native", "{policy:?}");
            if policy == CrashPolicy::DropUnsynced {
                assert_eq!(b1, b"redirected", "the later write went with the power");
            }
            assert_eq!(get(&db, b"b1").as_deref(), Some(b1), "{policy:?}");
        }
        drop(holds);
        // Once the primary is settled it goes.
        bench.wait_for("the flush", || unsettled(&db) == 0);
        compact(&db, Some(6));
        assert_eq!(db.metrics().counters.redirected_dropped, 1);
        assert_eq!(get(&db, b"b1").as_deref(), Some(b"native".as_slice()));
    });
}

/// The clue is in a settled table, and a compaction of the primary that is not settled has dropped it.
#[test]
fn h02_a_value_stays_while_a_settled_table_has_its_clue() {
    Bench::run(|bench| {
        let (detour, options) = shards(2);
        let (options, db) = with_busy_fallback(bench, options);
        detour.put(&db, 0, b"b1", b"redirected");
        put(&db, b"a1", b"value");
        // Clues alone would be no run.
        put(&db, b"b0", b"value");
        db.flush().expect("flush");
        flush_alone(bench, &db, b'a');
        let holds = bench.hold_syncs();
        put(&db, b"b1", b"native");
        fill_until_flushed(bench, &db, b'b');
        fill_until_flushed(bench, &db, b'b');
        // Three tables of the primary, two of the fallback.
        compact_two(bench, &db, "3", 3);
        assert_eq!(db.metrics().counters.clues_dropped, 1);
        holds.set(false);
        compact_two(bench, &db, "2", 3);
        assert_eq!(db.metrics().counters.redirected_dropped, 0);
        for policy in CUTS {
            let db = bench.cut(policy).open(&options);
            let found = contents(&db);
            let b1 = found[b"b1".as_slice()].as_slice();
            assert!(b1 == b"redirected" || b1 == b"native", "{policy:?}");
            if policy == CrashPolicy::DropUnsynced {
                assert_eq!(follow(&db, b"b1"), (Some(b"redirected".to_vec()), true));
            }
            db.rollback().expect("rollback");
            assert_eq!(contents(&db), found, "{policy:?}");
        }
    });
}

/// A clue is visible. A native value above it is inserted and not visible yet, since an older group stands
/// still in its insert. The memtable is sealed: whoever reads meanwhile finds what the clue stands for.
#[test]
fn h07_what_is_not_visible_yet_hides_no_clue() {
    Bench::run(|bench| {
        let (detour, options) = shards(2);
        let order = SlowOrder::new();
        let db = bench.open_with(&options, &[("x", order.keyspace(&options))]);
        let x = db.keyspace("x").expect("x");
        put_in(&db, &x, b"a", b"v");
        detour.put(&db, 1, b"a1", b"redirected");
        let door = bench.door();
        order.arm(&door);
        let (slow, of) = (db.clone(), x.clone());
        let slow = bench.spawn(move || put_in(&slow, &of, b"slow", b"v"));
        door.wait_for_one();
        let later = db.clone();
        let later = bench.spawn(move || put(&later, b"a1", b"native"));
        bench.wait_for("the later insert", || number(&db, "dialsm.num-entries-active-memtable") == 4);
        let read = |when: &str| {
            assert_eq!(follow(&db, b"a1"), (Some(b"redirected".to_vec()), true), "{when}");
            assert_eq!(contents(&db)[b"a1".as_slice()], b"redirected", "{when}");
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
        assert_eq!(get(&db, b"a1").as_deref(), Some(b"native".as_slice()));
        compact(&db, None);
        let at = dialsm_core::ReadOptions { snapshot: Some(snapshot), ..Default::default() };
        let seen = db.get(&at, b"a1").expect("get").map(|value| value.to_vec());
        assert_eq!(seen.as_deref(), Some(b"redirected".as_slice()), "a snapshot of that moment");
    });
}

/// The order of the bytes, with a door where a user's thread compares these two keys.
struct PairOrder(Mutex<Option<Arc<Gate>>>);

impl PairOrder {
    const KEYS: [&[u8]; 2] = [b"a1", b"a2"];

    fn arm(&self, door: &Door) {
        *self.0.lock() = Some(door.gate().clone());
    }
}

impl UserComparator for PairOrder {
    fn name(&self) -> &str {
        "holes.pair"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let is_users = std::thread::current().name() == Some("user");
        if is_users && a != b && Self::KEYS.contains(&a) && Self::KEYS.contains(&b) {
            let gate = self.0.lock().clone();
            if let Some(gate) = gate {
                gate.pass();
            }
        }
        a.cmp(b)
    }

    fn equal_is_identical(&self) -> bool {
        true
    }
}

/// The value is in the fallback's memtable, which is sealed; its clue is on its way into the primary's. A
/// flush that dropped what has no clue would drop it.
#[test]
fn h12a_a_value_is_not_flushed_away_before_its_clue_is_in() {
    Bench::run(|bench| {
        let (detour, options) = shards(2);
        let order = Arc::new(PairOrder(Mutex::new(None)));
        let options = Options { comparator: Comparator::Custom(order.clone()), ..options };
        let db = bench.open(&options);
        // The primary's memtable holds one key, to compare with; the fallback's is empty.
        put(&db, b"a1", b"value");
        let door = bench.door();
        order.arm(&door);
        let (writer, to) = (db.clone(), detour.clone());
        let writer = bench.spawn(move || to.put(&writer, 1, b"a2", b"redirected"));
        door.wait_for_one();
        assert_eq!(number(&db, "dialsm.num-entries-active-memtable"), 2, "the value is in, the clue is not");
        // The fallback's memtable becomes full, and is sealed; neither write is visible before the one that
        // stands still.
        detour.end();
        let mut batch = WriteBatch::new();
        (0..30u8).for_each(|i| batch.put(&[b'b', i], &[b'v'; 3000]).expect("put"));
        let filling = db.clone();
        let filling = bench.spawn(move || filling.write(&WriteOptions::default(), batch).expect("write"));
        bench.sleep(10_000_000);
        let next = db.clone();
        let next = bench.spawn(move || put(&next, b"b~", b"value"));
        bench.sleep(10_000_000);
        assert_eq!(number(&db, "dialsm.num-immutable-memtables"), 1, "the fallback's");
        assert_eq!(files_at(&db, 0), 0, "flushed before its last writer left");
        assert_eq!(get(&db, b"a2"), None);
        door.open();
        [writer, filling, next].into_iter().for_each(|handle| handle.join());
        bench.wait_for("the flush", || files_at(&db, 0) == 1);
        assert_eq!(follow(&db, b"a2"), (Some(b"redirected".to_vec()), true));
        assert_eq!(contents(&db).len(), 33);
    });
}

/// Recovery flushes the fallback, whose memtable is full, while the primary's clues are in the memtable
/// that is being filled from the log.
#[test]
fn h12b_recovery_flushes_no_value_away_whose_clue_is_in_a_memtable() {
    Bench::run(|bench| {
        let (detour, options) = shards(2);
        let db = bench.open(&Options {
            write_buffer_bytes: 4 << 20,
            log_segment_bytes: 4 << 20,
            ..options.clone()
        });
        detour.put(&db, 1, b"a1", b"redirected");
        (0..60u8).for_each(|i| put(&db, &[b'b', i], &[b'v'; 3000]));
        detour.put(&db, 1, b"a2", b"redirected");
        db.sync().expect("sync");
        assert_eq!(files_at(&db, 0), 0);
        for policy in CUTS {
            let db = bench.cut(policy).open(&options);
            assert!(files_at(&db, 0) > 0, "{policy:?}: recovery has flushed");
            for key in [b"a1", b"a2"] {
                assert_eq!(follow(&db, key), (Some(b"redirected".to_vec()), true), "{policy:?}");
            }
            assert_eq!(contents(&db).len(), 62, "{policy:?}");
        }
    });
}

/// The record of a redirected write belongs to two trees. The primary is settled far above it, the fallback
/// is not: the segment stays, and recovery gives the fallback its part.
#[test]
fn h14_a_log_segment_stays_until_the_fallback_is_settled() {
    Bench::run(|bench| {
        let (detour, options) = shards(2);
        let db = bench.open(&options);
        detour.put(&db, 1, b"a1", b"redirected");
        detour.merge(&db, 1, b"a2", b"redirected");
        (0..4).for_each(|_| flush_alone(bench, &db, b'a'));
        assert_eq!(files_at(&db, 0), 4, "of the primary alone");
        db.sync().expect("sync");
        for policy in CUTS {
            let db = bench.cut(policy).open(&options);
            for key in [b"a1", b"a2"] {
                assert_eq!(follow(&db, key), (Some(b"redirected".to_vec()), true), "{policy:?}");
            }
        }
        // The other way round: the fallback is settled, the primary is not.
        detour.put(&db, 0, b"b1", b"redirected");
        (0..4).for_each(|_| flush_alone(bench, &db, b'a'));
        db.sync().expect("sync");
        for policy in CUTS {
            let db = bench.cut(policy).open(&options);
            assert_eq!(follow(&db, b"b1"), (Some(b"redirected".to_vec()), true), "{policy:?}");
        }
    });
}

/// One half of a redirected write is in a settled table, the other is not. Replay restores the half that is
/// missing and no other, so that operands count once, also when they are folded.
#[test]
fn h19_replay_restores_the_missing_half_and_no_operand_twice() {
    for flushed in [b'a', b'b'] {
        Bench::run(|bench| {
            let (detour, options) = shards(2);
            let db = bench.open(&options);
            let key = b"a1";
            put(&db, key, b"base");
            detour.merge(&db, 1, key, b"redirected");
            merge(&db, key, b"two");
            merge(&db, key, b"three");
            detour.merge(&db, 1, key, b"redirected");
            db.sync().expect("sync");
            flush_alone(bench, &db, flushed);
            assert_eq!(files_at(&db, 0), 1);
            let wanted = b"base+redirected+two+three+redirected".as_slice();
            for policy in CUTS {
                let db = bench.cut(policy).open(&options);
                let check = |when: &str| {
                    assert_eq!(get(&db, key).as_deref(), Some(wanted), "{policy:?}, {when}");
                    assert_eq!(contents(&db)[key.as_slice()], wanted, "{policy:?}, {when}");
                };
                check("reopened");
                db.flush().expect("flush");
                check("flushed");
                compact(&db, Some(6));
                check("compacted");
                db.rollback().expect("rollback");
                compact(&db, Some(6));
                check("folded");
            }
        });
    }
}

/// Both memtables are sealed while the group stands still between the value's insert and the clue's: each goes
/// into the memtable that it was logged for, and neither is flushed before.
#[test]
fn h20_value_and_clue_go_into_the_memtables_that_they_were_logged_for() {
    Bench::run(|bench| {
        let (detour, options) = shards(2);
        let order = Arc::new(PairOrder(Mutex::new(None)));
        let options = Options { comparator: Comparator::Custom(order.clone()), ..options };
        let db = bench.open(&options);
        put(&db, b"a1", b"value");
        let door = bench.door();
        order.arm(&door);
        let (writer, to) = (db.clone(), detour.clone());
        let writer = bench.spawn(move || to.put(&writer, 1, b"a2", b"redirected"));
        door.wait_for_one();
        db.flush_with(&BEGIN).expect("flush");
        bench.sleep(10_000_000);
        assert_eq!(number(&db, "dialsm.num-immutable-memtables"), 2);
        assert_eq!(files_at(&db, 0), 0, "flushed before its last writer left");
        detour.end();
        let later = db.clone();
        let later = bench.spawn(move || put(&later, b"a2", b"native"));
        bench.sleep(10_000_000);
        let snapshot = db.snapshot();
        door.open();
        writer.join();
        later.join();
        drop(snapshot);
        db.flush().expect("flush");
        db.sync().expect("sync");
        for policy in CUTS {
            let db = bench.cut(policy).open(&options);
            assert_eq!(follow(&db, b"a2"), (Some(b"native".to_vec()), false), "{policy:?}");
            db.rollback().expect("rollback");
            compact(&db, Some(6));
            assert_eq!(contents(&db).len(), 2, "{policy:?}");
            assert_eq!(get(&db, b"a2").as_deref(), Some(b"native".as_slice()), "{policy:?}");
        }
    });
}

/// In a database with a log a write without it stays where it belongs: what it is to a crash is the concern
/// of one shard.
#[test]
fn h29_an_unlogged_write_is_not_redirected_beside_a_log() {
    Bench::run(|bench| {
        let (detour, options) = shards(2);
        let db = bench.open(&options);
        let unlogged = WriteOptions { disable_log: true, ..WriteOptions::default() };
        detour.to(1);
        db.put(&unlogged, b"a1", b"unlogged").expect("put");
        assert_eq!(db.metrics().counters.redirects, 0);
        db.put(&WriteOptions::default(), b"a2", b"logged").expect("put");
        assert_eq!(db.metrics().counters.redirects, 1);
        assert_eq!(follow(&db, b"a1"), (Some(b"unlogged".to_vec()), false));
        assert_eq!(follow(&db, b"a2"), (Some(b"logged".to_vec()), true));
        db.sync().expect("sync");
        for policy in CUTS {
            let db = bench.cut(policy).open(&options);
            assert_eq!(get(&db, b"a1"), None, "{policy:?}");
            assert_eq!(get(&db, b"a2").as_deref(), Some(b"logged".as_slice()), "{policy:?}");
        }
        let down = CompactRangeOptions::default();
        db.compact_range(&down, None, None).expect("compact");
        let db = bench.cut(CrashPolicy::DropUnsynced).open(&options);
        assert_eq!(contents(&db).len(), 2);
    });
}
