//! H3, H4, H5, H10, H40, H41, H44: what compactions do to clue entries and to redirected ones, and what
//! readers make of them. The primary is shard 0 or 1 by the letter of the key (`detour.rs`).

use dialsm_core::{CompactRangeOptions, Db, Options, ReadOptions, Snapshot};

use crate::bench::{Bench, CUTS, Model, contents, contents_at, files_at, get, number, put};
use crate::detour::{compact, delete, flush_alone, follow, merge, shards};

fn at(snapshot: &Snapshot) -> ReadOptions {
    ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::default() }
}

fn get_at(db: &Db, snapshot: &Snapshot, key: &[u8]) -> Option<Vec<u8>> {
    db.get(&at(snapshot), key).expect("get").map(|value| value.to_vec())
}

/// An older version is held by a snapshot while what stands above it leaves L0: the clue goes down with it.
#[test]
fn h03a_a_clue_goes_down_with_a_newer_value() {
    Bench::run(|bench| {
        let (detour, options) = shards(2);
        let db = bench.open(&options);
        detour.put(&db, 1, b"a1", b"older");
        let snapshot = db.snapshot();
        put(&db, b"a1", b"newer");
        for level in [1, 2, 6] {
            compact(&db, Some(level));
            assert_eq!(get(&db, b"a1").as_deref(), Some(b"newer".as_slice()), "level {level}");
            assert_eq!(contents(&db)[b"a1".as_slice()], b"newer", "level {level}");
            assert_eq!(get_at(&db, &snapshot, b"a1").as_deref(), Some(b"older".as_slice()), "level {level}");
            assert_eq!(files_at(&db, 0), 0, "no clue is newest");
        }
    });
}

/// The same with a delete, which is dropped at the bottom.
#[test]
fn h03b_a_clue_goes_down_with_a_delete() {
    Bench::run(|bench| {
        let (detour, options) = shards(2);
        let db = bench.open(&options);
        detour.put(&db, 1, b"a1", b"older");
        let snapshot = db.snapshot();
        delete(&db, b"a1");
        compact(&db, Some(1));
        assert_eq!(get(&db, b"a1"), None);
        assert_eq!(get_at(&db, &snapshot, b"a1").as_deref(), Some(b"older".as_slice()));
        drop(snapshot);
        compact(&db, Some(6));
        compact(&db, Some(6));
        assert_eq!(get(&db, b"a1"), None, "back for ever");
        assert!(contents(&db).is_empty());
    });
}

/// The same with a value that is given sequence 0 at the bottom.
#[test]
fn h03c_a_clue_is_not_newer_than_a_value_without_sequence() {
    Bench::run(|bench| {
        let (detour, options) = shards(2);
        let db = bench.open(&options);
        detour.put(&db, 1, b"a1", b"older");
        let snapshot = db.snapshot();
        put(&db, b"a1", b"newer");
        compact(&db, Some(6));
        assert_eq!(get(&db, b"a1").as_deref(), Some(b"newer".as_slice()));
        drop(snapshot);
        // Nobody sees the clue any more: the value is alone, and the next one starts from it.
        compact(&db, Some(6));
        compact(&db, Some(6));
        assert_eq!(contents(&db), Model::from([(b"a1".to_vec(), b"newer".to_vec())]));
        detour.put(&db, 1, b"a1", b"newest");
        db.flush().expect("flush");
        assert_eq!(get(&db, b"a1").as_deref(), Some(b"newest".as_slice()));
        compact(&db, Some(6));
        assert_eq!(follow(&db, b"a1"), (Some(b"newest".to_vec()), true));
    });
}

/// A range delete whose span is wider than the keys beside it leaves L0, and the clue with it.
#[test]
fn h03d_a_clue_goes_down_with_a_range_delete() {
    Bench::run(|bench| {
        let (detour, options) = shards(2);
        let db = bench.open(&options);
        detour.put(&db, 1, b"a5", b"older");
        put(&db, b"a2", b"value");
        compact(&db, Some(1));
        assert_eq!(follow(&db, b"a5"), (Some(b"older".to_vec()), true));
        assert_eq!(files_at(&db, 0), 1, "the clue has stayed");
        let snapshot = db.snapshot();
        db.delete_range(&Default::default(), b"a1", b"a9").expect("delete");
        put(&db, b"a2", b"again");
        for level in [1, 2, 6] {
            compact(&db, Some(level));
            assert_eq!(get(&db, b"a5"), None, "level {level}");
            assert!(!contents(&db).contains_key(b"a5".as_slice()), "level {level}");
            assert_eq!(get_at(&db, &snapshot, b"a5").as_deref(), Some(b"older".as_slice()), "level {level}");
        }
    });
}

/// The clues that stayed in L0 are older than all that is flushed after them, and are asked so.
#[test]
fn h04a_clues_that_stayed_are_asked_after_younger_tables() {
    Bench::run(|bench| {
        let (detour, options) = shards(2);
        let db = bench.open(&options);
        detour.put(&db, 1, b"a1", b"older");
        put(&db, b"a2", b"value");
        compact(&db, Some(1));
        assert_eq!(files_at(&db, 0), 1);
        put(&db, b"a1", b"newer");
        delete(&db, b"a2");
        db.flush().expect("flush");
        assert_eq!(get(&db, b"a1").as_deref(), Some(b"newer".as_slice()));
        // As the manifest has it.
        for policy in CUTS {
            let db = bench.cut(policy).open(&options);
            assert_eq!(contents(&db), Model::from([(b"a1".to_vec(), b"newer".to_vec())]), "{policy:?}");
        }
        compact(&db, Some(2));
        assert_eq!(follow(&db, b"a1"), (Some(b"newer".to_vec()), false));
    });
}

/// The clues that stayed in L0 take part in every compaction out of it, though they count for no run.
#[test]
fn h04b_clues_that_stayed_take_part_when_l0_is_compacted() {
    Bench::run(|bench| {
        let (detour, options) = shards(2);
        let db = bench.open(&Options { level0_compaction_trigger: 2, ..options });
        detour.put(&db, 1, b"a1", b"older");
        put(&db, b"a0", b"value");
        compact(&db, Some(6));
        assert_eq!(files_at(&db, 0), 1);
        for value in [b"newer", b"other"] {
            put(&db, b"a0", value);
            if value == b"newer" {
                put(&db, b"a1", value);
            }
            db.flush().expect("flush");
        }
        db.set_options(&[("automatic_compaction", "true")]).expect("set");
        db.wait_until_idle().expect("idle");
        assert!(files_at(&db, 0) < 2, "compacted");
        assert_eq!(get(&db, b"a1").as_deref(), Some(b"newer".as_slice()));
        assert_eq!(contents(&db)[b"a1".as_slice()], b"newer");
    });
}

/// Readers that began before a clue was rolled back and its value collected go on in what they see: the
/// clue is in their view, and so is the value.
#[test]
fn h04c_an_older_view_keeps_its_clues_and_their_values() {
    Bench::run(|bench| {
        let (detour, options) = shards(2);
        let db = bench.open(&options);
        detour.put(&db, 1, b"a1", b"value");
        detour.put(&db, 1, b"a2", b"other");
        compact(&db, Some(2));
        let model = contents(&db);
        let mut before = db.iter(&ReadOptions::default()).expect("iterator");
        let snapshot = db.snapshot();
        db.rollback().expect("rollback");
        delete(&db, b"a1");
        compact(&db, Some(6));
        compact(&db, Some(6));
        assert!(db.metrics().counters.redirected_dropped >= 2, "collected");
        bench.tidy(&db);
        for _ in 0..2 {
            before.seek_to_first().expect("seek");
            for (key, value) in &model {
                assert_eq!((before.key(), before.value()), (key.as_slice(), value.as_slice()));
                before.next().expect("next");
            }
            assert!(!before.valid());
        }
        assert_eq!(contents_at(&db, &at(&snapshot)), model);
        assert_eq!(contents(&db).len(), 1);
    });
}

/// At the bottom of the fallback a redirected value keeps its sequence, by which alone it is found.
#[test]
fn h05a_a_redirected_value_keeps_its_sequence() {
    Bench::run(|bench| {
        let (detour, options) = shards(2);
        let db = bench.open(&options);
        detour.put(&db, 1, b"a1", b"value");
        put(&db, b"b1", b"native");
        for _ in 0..2 {
            compact(&db, Some(6));
            assert_eq!(follow(&db, b"a1"), (Some(b"value".to_vec()), true));
            assert_eq!(contents(&db).len(), 2);
        }
    });
}

/// Redirected operands are not folded where they lie, neither with each other nor without a base.
#[test]
fn h05b_redirected_operands_are_not_folded_in_the_fallback() {
    Bench::run(|bench| {
        let (detour, options) = shards(2);
        let db = bench.open(&options);
        put(&db, b"a1", b"base");
        for operand in [b"one", b"two"] {
            detour.merge(&db, 1, b"a1", operand);
        }
        merge(&db, b"a1", b"own");
        detour.merge(&db, 1, b"a1", b"six");
        let check = |when: &str| {
            let wanted = b"base+one+two+own+six".as_slice();
            assert_eq!(get(&db, b"a1").as_deref(), Some(wanted), "{when}");
            assert_eq!(contents(&db)[b"a1".as_slice()], wanted, "{when}");
        };
        check("in memtables");
        db.flush().expect("flush");
        check("in L0");
        compact(&db, Some(2));
        compact(&db, Some(6));
        check("at the bottom of the fallback");
        db.rollback().expect("rollback");
        check("rolled back");
        compact(&db, Some(6));
        check("folded");
        assert!(!follow(&db, b"a1").1);
    });
}

/// In the fallback a redirected value hides no older one: the primary may hold clues of both for longer.
#[test]
fn h05d_a_redirected_value_hides_no_other() {
    Bench::run(|bench| {
        let (detour, options) = shards(2);
        let db = bench.open(&options);
        // The fallback's own key makes its table one of the keys up to `a~`, too.
        put(&db, b"a1", b"native");
        detour.put(&db, 0, b"b1", b"first");
        let snapshot = db.snapshot();
        detour.put(&db, 0, b"b1", b"second");
        db.flush().expect("flush");
        drop(snapshot);
        // All of the fallback's, and nothing of the primary's, which has both clues still.
        let fallback = CompactRangeOptions { target_level: Some(6), rewrite_bottom: true, cancel: None };
        db.compact_range(&fallback, None, Some(b"a~")).expect("compact");
        assert_eq!((files_at(&db, 0), files_at(&db, 6)), (1, 1));
        assert_eq!(get(&db, b"b1").as_deref(), Some(b"second".as_slice()));
        // A pass backward meets the older clue first.
        assert_eq!(contents(&db)[b"b1".as_slice()], b"second");
        db.rollback().expect("rollback");
        assert_eq!(contents(&db)[b"b1".as_slice()], b"second");
    });
}

/// A range delete in the fallback hides nothing of what was redirected there: its copy in the primary does.
#[test]
fn h05_a_range_delete_acts_on_the_clue_alone() {
    Bench::run(|bench| {
        let (detour, options) = shards(2);
        let db = bench.open(&options);
        detour.put(&db, 1, b"a1", b"value");
        let snapshot = db.snapshot();
        db.delete_range(&Default::default(), b"a", b"c").expect("delete");
        detour.put(&db, 1, b"a1", b"again");
        compact(&db, Some(6));
        assert_eq!(get(&db, b"a1").as_deref(), Some(b"again".as_slice()));
        assert_eq!(get_at(&db, &snapshot, b"a1").as_deref(), Some(b"value".as_slice()));
        assert_eq!(contents_at(&db, &at(&snapshot)).len(), 1);
        db.rollback().expect("rollback");
        assert_eq!(get_at(&db, &snapshot, b"a1").as_deref(), Some(b"value".as_slice()));
        assert_eq!(contents(&db)[b"a1".as_slice()], b"again");
    });
}

/// Operands above and below a clue are not folded over it.
#[test]
fn h10_nothing_is_folded_over_a_clue() {
    Bench::run(|bench| {
        let (detour, options) = shards(2);
        let db = bench.open(&options);
        let check = |key: &[u8], wanted: &[u8], when: &str| {
            assert_eq!(get(&db, key).as_deref(), Some(wanted), "{when}");
            assert_eq!(contents(&db)[key], wanted, "{when}");
        };
        put(&db, b"a1", b"base");
        detour.merge(&db, 1, b"a1", b"redirected");
        merge(&db, b"a1", b"own");
        merge(&db, b"a1", b"own");
        // A clue of a value ends the chain, and is nobody's base before it is rolled back.
        detour.put(&db, 1, b"a2", b"redirected");
        merge(&db, b"a2", b"own");
        let all = |when: &str| {
            check(b"a1", b"base+redirected+own+own", when);
            check(b"a2", b"redirected+own", when);
        };
        all("in memtables");
        db.flush().expect("flush");
        all("in L0");
        compact(&db, Some(1));
        all("in L1");
        compact(&db, Some(6));
        all("at the bottom");
        db.rollback().expect("rollback");
        all("rolled back");
        compact(&db, Some(6));
        all("folded");
        assert!(db.metrics().counters.operands_folded > 0);
    });
}

/// Versions of one key lie in two fallbacks and in its own shard. Going backward each clue meets its own value.
#[test]
fn h40_going_backward_pairs_each_clue_with_its_value() {
    Bench::run(|bench| {
        let (detour, options) = shards(3);
        let db = bench.open(&options);
        let mut history: Vec<(Snapshot, Model)> = Vec::new();
        let mut model = Model::new();
        for round in 0..12u8 {
            let value = format!("value {round}").into_bytes();
            match round % 4 {
                0 => detour.put(&db, 1, b"a1", &value),
                1 => detour.merge(&db, 2, b"a1", &value),
                2 => put(&db, b"a1", &value),
                _ => detour.put(&db, 2, b"a1", &value),
            }
            match model.get_mut(b"a1".as_slice()) {
                Some(old) if round % 4 == 1 => *old = [old.as_slice(), &value].join(&b'+'),
                _ => drop(model.insert(b"a1".to_vec(), value)),
            }
            history.push((db.snapshot(), model.clone()));
        }
        for turn in 0..4 {
            for (snapshot, model) in &history {
                assert_eq!(&contents_at(&db, &at(snapshot)), model);
                let found = get_at(&db, snapshot, b"a1");
                assert_eq!(found.as_ref(), model.get(b"a1".as_slice()));
            }
            match turn {
                0 => db.flush().expect("flush"),
                1 => compact(&db, Some(1)),
                _ => compact(&db, Some(6)),
            }
        }
    });
}

/// The clues are gone, with the deletes that took them, and what was redirected is still there: it is nothing.
#[test]
fn h40_a_redirected_value_without_its_clue_is_nothing() {
    Bench::run(|bench| {
        let (detour, options) = shards(2);
        let options = Options { level0_compaction_trigger: 2, automatic_compaction: true, ..options };
        let db = bench.open(&options);
        put(&db, b"a1", b"older");
        detour.put(&db, 1, b"a1", b"value");
        detour.merge(&db, 1, b"a2", b"operand");
        detour.put(&db, 1, b"a3", b"hidden");
        put(&db, b"a3", b"newer");
        delete(&db, b"a1");
        delete(&db, b"a2");
        // The primary alone, until nothing is left of the deletes, either.
        for _ in 0..4 {
            flush_alone(bench, &db, b'a');
            db.wait_until_idle().expect("idle");
        }
        let counters = db.metrics().counters;
        assert_eq!((counters.clues_dropped, counters.redirected_dropped), (3, 0));
        let check = |when: &str| {
            let found = contents(&db);
            let keys: Vec<&[u8]> = found.keys().map(Vec::as_slice).filter(|key| key[1] != b'~').collect();
            assert_eq!(keys, [b"a3"], "{when}");
            assert_eq!(found[b"a3".as_slice()], b"newer", "{when}");
            assert_eq!((get(&db, b"a1"), get(&db, b"a2")), (None, None), "{when}");
        };
        check("in the fallback's memtable");
        db.flush().expect("flush");
        check("flushed");
        assert_eq!(db.metrics().counters.redirected_dropped, 3, "by the flush of the fallback");
    });
}

/// More redirected values of one key than fit into a table: an exact look-up opens one table of a level.
#[test]
fn h41_the_redirected_values_of_a_key_stay_in_one_table_of_a_level() {
    Bench::run(|bench| {
        let (detour, options) = shards(2);
        let db = bench.open(&options);
        let mut held: Vec<(Snapshot, Vec<u8>)> = Vec::new();
        for round in 0..60u8 {
            detour.put(&db, 1, b"a1", &[round; 4000]);
            put(&db, b"b1", &[round; 100]);
            held.push((db.snapshot(), vec![round; 4000]));
        }
        compact(&db, Some(4));
        assert!(number(&db, "dialsm.bytes-at-level4") > 3 * (64 << 10));
        for (snapshot, value) in &held {
            assert_eq!(get_at(&db, snapshot, b"a1").as_ref(), Some(value));
            assert_eq!(&contents_at(&db, &at(snapshot))[b"a1".as_slice()], value);
        }
        db.rollback().expect("rollback");
        for (snapshot, value) in &held {
            assert_eq!(get_at(&db, snapshot, b"a1").as_ref(), Some(value));
        }
    });
}

/// A table with clues is rewritten where another one would be moved as it is: its clues stay in L0.
#[test]
fn h44_a_table_with_clues_is_not_moved_out_of_l0() {
    for by_hand in [false, true] {
        Bench::run(|bench| {
            let (detour, options) = shards(2);
            let db = bench.open(&Options { level0_compaction_trigger: 1, ..options });
            detour.put(&db, 1, b"a1", b"value");
            put(&db, b"a2", b"value");
            db.flush().expect("flush");
            if by_hand {
                let down = CompactRangeOptions { target_level: Some(3), ..Default::default() };
                db.compact_range(&down, None, None).expect("compact");
            } else {
                db.set_options(&[("automatic_compaction", "true")]).expect("set");
                db.wait_until_idle().expect("idle");
            }
            assert_eq!(files_at(&db, 0), 1, "the clue");
            assert_eq!(follow(&db, b"a1"), (Some(b"value".to_vec()), true));
            assert_eq!(contents(&db).len(), 2);
            let deeper: u64 = (1..7).map(|level| files_at(&db, level)).sum();
            assert_eq!(deeper, 2, "the value beside it, and the fallback's table");
        });
    }
}
