//! H13, H40, H41: the order of L0, iterating backward over versions, keys at the edges of tables.

use std::collections::BTreeMap;

use dialsm_core::{CompactRangeOptions, Db, FlushOptions, Options, ReadOptions, Snapshot};
use dialsm_io::SplitMix64;

use crate::bench::{Bench, Model, SlowMerge, by_hand, contents, contents_at, files_at, get, number, put};

/// Runs of L0 are merged among themselves while a newer one is flushed: the output has a higher file
/// number than the newer run, and older data.
#[test]
fn h13_l0_is_ordered_by_epoch_and_not_by_file_number() {
    Bench::run(|bench| {
        let operator = SlowMerge::new();
        let options = Options {
            level0_compaction_trigger: 4,
            background_jobs_max: 4,
            automatic_compaction: true,
            merge_operator: Some(operator.clone()),
            ..by_hand()
        };
        let db = bench.open(&options);
        let run = |operand: &[u8], value: &[u8]| {
            // The first key is an operand, so that the door is met before the output is begun.
            db.merge(&Default::default(), b"a", operand).expect("merge");
            put(&db, b"k", value);
            put(&db, b"z", value);
            db.flush().expect("flush");
        };
        // The levels below hold both ends, so that nothing is moved.
        run(b"bottom", b"0");
        db.compact_range(&CompactRangeOptions::default(), None, None).expect("compact");
        let down = bench.door();
        operator.arm(b"down", &down);
        (0..4).for_each(|_| run(b"down", b"1"));
        down.wait_for_one();
        // What is older is on its way down, and stays there: these are merged among themselves.
        let within = bench.door();
        operator.arm(b"within", &within);
        (0..8).for_each(|_| run(b"within", b"2"));
        within.wait_for_one();
        assert_eq!(files_at(&db, 0), 12);
        // Newer than all of them, and flushed before the output gets its number.
        put(&db, b"k", b"3");
        db.flush().expect("flush");
        let newest = bench.names(".sst").pop().expect("a table");
        within.open();
        bench.sleep(10_000_000);
        assert!(bench.names(".sst").pop().expect("a table") > newest, "the merge has no output yet");
        assert!(files_at(&db, 0) < 13, "L0 was not merged within itself");
        assert_eq!(get(&db, b"k").as_deref(), Some(b"3".as_slice()));
        assert_eq!(contents(&db)[b"k".as_slice()], b"3");
        db.flush().expect("flush");
        bench.sleep(10_000_000);
        // As the manifest has it.
        let again = bench.cut(dialsm_io::CrashPolicy::DropUnsynced);
        let settings = Options { automatic_compaction: false, ..options.clone() };
        let reopened = again.open(&settings);
        assert!(files_at(&reopened, 0) > 1);
        assert_eq!(get(&reopened, b"k").as_deref(), Some(b"3".as_slice()));
        down.open();
        db.wait_until_idle().expect("idle");
        assert_eq!(get(&db, b"k").as_deref(), Some(b"3".as_slice()));
        let operands = get(&db, b"a").expect("there");
        let words: Vec<&[u8]> = operands.split(|byte| *byte == b'+').collect();
        let expected = [vec![b"bottom".as_slice()], vec![b"down"; 4], vec![b"within"; 8]].concat();
        assert_eq!(words, expected);
    });
}

/// Versions of few keys, spread over memtables and levels, each under a snapshot. Going backward they
/// come oldest first: what is shown must be the newest that the snapshot sees.
#[test]
fn h40_going_backward_shows_the_newest_version_that_the_snapshot_sees() {
    let mut driven = BTreeMap::new();
    for seed in 0..6 {
        Bench::run_seed(seed, |bench| {
            let options = Options { block_bytes: 64, block_restart_interval: 2, ..by_hand() };
            let db = bench.open(&options);
            let mut rng = SplitMix64::new(seed);
            let mut history: Vec<(Snapshot, Model)> = Vec::new();
            let mut model = Model::new();
            for version in 0..60u32 {
                let key = vec![b'a' + rng.below(4) as u8];
                match rng.below(10) {
                    0..6 => {
                        let value = [key.clone(), version.to_string().into_bytes()].concat();
                        put(&db, &key, &value);
                        model.insert(key, value);
                    }
                    6 | 7 => {
                        db.merge(&Default::default(), &key, b"m").expect("merge");
                        let value = model.get(&key).map_or(b"m".to_vec(), |v| [v, b"+m".as_slice()].concat());
                        model.insert(key, value);
                    }
                    8 => {
                        db.delete(&Default::default(), &key).expect("delete");
                        model.remove(&key);
                    }
                    _ => {
                        db.delete_range(&Default::default(), b"b", b"d").expect("delete");
                        model.retain(|key, _| !(b"b".as_slice()..b"d").contains(&key.as_slice()));
                    }
                }
                history.push((db.snapshot(), model.clone()));
                match rng.below(12) {
                    0 | 1 => db.flush().expect("flush"),
                    2 => {
                        let level = CompactRangeOptions { target_level: Some(3), ..Default::default() };
                        db.compact_range(&level, None, None).expect("compact");
                    }
                    _ => {}
                }
            }
            for (snapshot, model) in &history {
                let at = ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::default() };
                assert!(contents_at(&db, &at) == *model, "seed {seed}");
                turn_round(&db, &at, model, &mut rng);
                *driven.entry("scans").or_insert(0) += 1;
            }
            *driven.entry("tables").or_insert(0) += number(&db, "dialsm.num-files-at-level0");
            assert!(contents(&db) == model);
        });
    }
    assert!(driven["scans"] == 360 && driven["tables"] > 0, "{driven:?}");
}

/// Steps in both directions beside the model.
fn turn_round(db: &Db, at: &ReadOptions, model: &Model, rng: &mut SplitMix64) {
    let mut iter = db.iter(at).expect("iterator");
    let keys: Vec<&Vec<u8>> = model.keys().collect();
    let Some(start) = keys.len().checked_sub(1).map(|last| rng.below(last as u64 + 1) as usize) else {
        return;
    };
    iter.seek_for_prev(keys[start]).expect("seek");
    let mut place = start;
    for _ in 0..12 {
        assert!(iter.valid());
        assert_eq!((iter.key(), iter.value()), (keys[place].as_slice(), model[keys[place]].as_slice()));
        if place > 0 && (rng.chance(2, 3) || place + 1 == keys.len()) {
            iter.prev().expect("prev");
            place -= 1;
        } else if place + 1 < keys.len() {
            iter.next().expect("next");
            place += 1;
        }
    }
}

/// More versions of one key than fit into a table: an exact look-up opens one table of a level.
#[test]
fn h41_the_versions_of_a_key_stay_in_one_table_of_a_level() {
    Bench::run(|bench| {
        let db = bench.open(&Options { table_bytes: 64 << 10, ..by_hand() });
        let mut held: Vec<(Snapshot, Vec<u8>)> = Vec::new();
        for round in 0..60u8 {
            for key in [b"j", b"k", b"l"] {
                put(&db, key, &[round; 4000]);
            }
            held.push((db.snapshot(), vec![round; 4000]));
            if round % 20 == 19 {
                db.flush().expect("flush");
            }
        }
        db.flush_with(&FlushOptions::default()).expect("flush");
        let level = CompactRangeOptions { target_level: Some(4), ..Default::default() };
        db.compact_range(&level, None, None).expect("compact");
        assert_eq!(files_at(&db, 0), 0);
        assert_eq!(files_at(&db, 4), 3, "a table a key, though each is four times the size");
        for (snapshot, value) in &held {
            let at = ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::default() };
            for key in [b"j", b"k", b"l"] {
                let found = db.get(&at, key).expect("get").map(|value| value.to_vec());
                assert_eq!(found.as_ref(), Some(value));
            }
            assert_eq!(contents_at(&db, &at).len(), 3);
        }
    });
}
