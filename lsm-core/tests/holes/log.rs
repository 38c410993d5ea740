//! H15, H17, H19: the log is several files, numbers are given out once, an operation counts once.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dialsm_core::{CompactRangeOptions, ErrorKind, FlushOptions, Options, WriteBatch};
use dialsm_io::{Access, CrashPolicy, Fault, Fs, OpKind, Rule, SplitMix64};

use crate::bench::{Bench, CUTS, DIR, EIO, ENOSPC, Model, by_hand, contents, get, is, number, put, synced};

/// Longer than a log segment: the next record begins a new one.
const LONG: usize = 70_000;

/// W1 lies in a segment that is not synced, W2 in the next, which is: a power cut must not keep W2 alone.
#[test]
fn h15a_a_synced_write_has_all_segments_before_it_synced() {
    Bench::run(|bench| {
        let db = bench.open(&by_hand());
        put(&db, b"w1", &[b'v'; LONG]);
        db.put(&synced(), b"w2", b"v").expect("put");
        assert_eq!(number(&db, "dialsm.log-segments"), 2);
        for policy in CUTS {
            let found = contents(&bench.cut(policy).open(&by_hand()));
            assert_eq!(found.len(), 2, "{policy:?}");
        }
        // Two segments behind the sync, either of which may be torn: no corruption, and no hole.
        put(&db, b"w3", &[b'v'; LONG]);
        put(&db, b"w4", &[b'v'; LONG]);
        put(&db, b"w5", b"v");
        let mut lengths = BTreeSet::new();
        for seed in 0..40 {
            let found = contents(&bench.cut(CrashPolicy::Random(seed)).open(&by_hand()));
            assert!(found.keys().eq(contents(&db).keys().take(found.len())), "a hole: {:?}", found.keys());
            assert!(found.len() >= 2);
            lengths.insert(found.len());
        }
        assert!(lengths.len() >= 3, "{lengths:?}");
    });
}

/// A segment goes on in a retired file, W2 in it is synced, the file still has its old name.
#[test]
fn h15b_a_synced_write_has_the_new_name_of_its_segment_durable() {
    Bench::run(|bench| {
        let db = bench.open(&by_hand());
        for i in 0..4u8 {
            put(&db, &[i], &[b'v'; LONG]);
            db.flush().expect("flush");
        }
        db.wait_until_idle().expect("idle");
        // Nobody but the writer itself makes names durable.
        let _door =
            bench.door_at(1, |call| call.op == Some(OpKind::SyncDir) && call.thread.starts_with("dialsm"));
        let renamed = Arc::new(AtomicU64::new(0));
        let count = renamed.clone();
        bench.disk().add_call_hook(Arc::new(move |call| {
            count.fetch_add(u64::from(is(call, OpKind::Rename, ".log")), Ordering::SeqCst);
        }));
        // The segment is full: this one begins the next.
        db.put(&synced(), b"w2", b"v").expect("put");
        assert_eq!(renamed.load(Ordering::SeqCst), 1, "no segment was recycled");
        for policy in CUTS {
            let found = contents(&bench.cut(policy).open(&by_hand()));
            assert_eq!(found.len(), 5, "{policy:?}");
        }
    });
}

/// A group gets to the log, its sync fails: its writer has an error, and nothing is written behind it.
#[test]
fn h15c_nothing_follows_a_group_whose_sync_failed() {
    Bench::run(|bench| {
        let db = bench.open(&by_hand());
        db.put(&synced(), b"k", b"old").expect("put");
        bench.faults.add(Rule::nth(OpKind::Sync, 1, Fault::Errno(EIO)).on(".log"));
        assert_eq!(db.put(&synced(), b"k", b"failed").expect_err("no sync").kind(), ErrorKind::Io);
        assert_eq!(get(&db, b"k").as_deref(), Some(b"old".as_slice()));
        for write in [synced(), Default::default()] {
            assert_eq!(db.put(&write, b"k", b"behind it").expect_err("shut").kind(), ErrorKind::Poisoned);
        }
        for policy in CUTS {
            let after = bench.cut(policy);
            let db = after.open(&by_hand());
            assert_ne!(get(&db, b"k").as_deref(), Some(b"behind it".as_slice()));
            db.put(&synced(), b"k", b"new").expect("put");
            let again = after.cut(CrashPolicy::DropUnsynced).open(&by_hand());
            assert_eq!(get(&again, b"k").as_deref(), Some(b"new".as_slice()), "{policy:?}");
        }
    });
}

/// The append itself fails though all of the record got there, and can't be cut off: space returns,
/// writing goes on, with other sequence numbers and in another segment, and the record stays dead.
#[test]
fn h15c_the_sequences_of_a_failed_group_are_burnt() {
    Bench::run(|bench| {
        let db = bench.open(&by_hand());
        db.put(&synced(), b"k", b"old").expect("put");
        let before = db.snapshot().seqno();
        bench.faults.add(Rule::nth(OpKind::Write, 1, Fault::ErrnoAfter(ENOSPC)).on(".log"));
        bench.faults.add(Rule::every(OpKind::SetLen, Fault::Errno(EIO)).on(".log"));
        let mut batch = WriteBatch::new();
        for key in [b"k", b"l", b"m"] {
            batch.put(key, b"failed").expect("put");
        }
        assert_eq!(db.write(&synced(), batch).expect_err("no space").kind(), ErrorKind::NoSpace);
        bench.faults.clear();
        db.put(&synced(), b"n", b"new").expect("space is back");
        assert_eq!(db.snapshot().seqno(), before + 4, "three numbers are burnt");
        let model = contents(&db);
        assert_eq!(model.len(), 2);
        for policy in CUTS {
            let db = bench.cut(policy).open(&by_hand());
            assert!(contents(&db) == model, "{policy:?}");
            assert!(db.snapshot().seqno() >= before + 4, "{policy:?}");
        }
    });
}

/// W1 was only with the kernel when the process was killed; what replay has shown, the next sync must
/// not leave behind.
#[test]
fn h15d_what_was_replayed_is_synced_before_anything_new() {
    Bench::run(|bench| {
        let db = bench.open(&by_hand());
        put(&db, b"w1", b"v");
        drop(db);
        let db = bench.open(&by_hand());
        assert!(get(&db, b"w1").is_some());
        db.put(&synced(), b"w2", b"v").expect("put");
        for policy in CUTS {
            let found = contents(&bench.cut(policy).open(&by_hand()));
            assert_eq!(found.len(), 2, "{policy:?}");
        }
    });
}

/// The records of a segment's former life lie behind, or, after a power cut, among those of the new one.
#[test]
fn h15e_a_recycled_segment_brings_nothing_of_its_former_life_back() {
    Bench::run(|bench| {
        let db = bench.open(&by_hand());
        let (mut recycled, mut kept) = (0, BTreeSet::new());
        let mut rng = SplitMix64::new(7);
        for round in 1..9u8 {
            // Records of one length, so that old ones line up behind new ones.
            (0..40u8).for_each(|i| put(&db, &[i], &[round; 2000]));
            db.flush().expect("flush");
            let durable = contents(&db);
            bench.disk().set_tracing(true);
            let tail: Vec<u8> = (40..60).collect();
            tail.iter().for_each(|i| put(&db, &[*i], &[round; 2000]));
            recycled += bench.disk().trace().iter().filter(|call| is(call, OpKind::Rename, ".log")).count();
            for _ in 0..40 {
                let image = bench.cut(CrashPolicy::Random(rng.next_u64()));
                let found = contents(&image.open(&by_hand()));
                let new =
                    tail.iter().take_while(|i| found.get(&vec![**i]) == Some(&vec![round; 2000])).count();
                kept.insert(new);
                let mut expected = durable.clone();
                expected.extend(tail[..new].iter().map(|i| (vec![*i], vec![round; 2000])));
                assert!(found == expected, "round {round}: more than the {new} new records that are left");
            }
        }
        assert!(recycled >= 4 && kept.len() >= 4, "{recycled} recycled, {kept:?} left");
    });
}

/// What an earlier opening wrote may still be written by a write of it that is under way.
#[test]
fn h15e_segments_that_were_found_are_never_recycled() {
    Bench::run(|bench| {
        let db = bench.open(&by_hand());
        (0..3u8).for_each(|i| put(&db, &[i], &[b'v'; LONG]));
        drop(db);
        let found: BTreeSet<String> = bench.names(".log").into_iter().collect();
        assert!(found.len() >= 3);
        bench.disk().set_tracing(true);
        let db = bench.open(&by_hand());
        for i in 0..6u8 {
            put(&db, &[i], &[b'w'; LONG]);
            db.flush().expect("flush");
        }
        db.wait_until_idle().expect("idle");
        let trace = bench.disk().trace();
        let name = |path: &std::path::Path| path.file_name().map(|n| n.to_string_lossy().into_owned());
        let touched = |op| {
            let calls = trace.iter().filter(move |call| is(call, op, ".log"));
            calls.filter_map(|call| name(&call.path)).collect::<Vec<String>>()
        };
        assert!(touched(OpKind::Rename).len() >= 2, "nothing was recycled");
        for op in [OpKind::Rename, OpKind::Write] {
            assert!(touched(op).iter().all(|name| !found.contains(name)), "{op:?} on a segment of before");
        }
        assert!(bench.names(".log").iter().all(|name| !found.contains(name)), "they are gone");
    });
}

/// The table is settled, the log that it came from is lost: new writes must not get the table's numbers.
#[test]
fn h17_sequence_numbers_found_in_tables_are_not_given_out_again() {
    Bench::run(|bench| {
        let db = bench.open(&by_hand());
        (0..5u8).for_each(|i| put(&db, b"k", &[b'0' + i]));
        db.flush().expect("flush");
        let last = db.snapshot().seqno();
        assert_eq!(last, 5);
        let after = bench.cut(CrashPolicy::DropUnsynced);
        assert!(after.names(".log").len() <= 1, "the cut left no log to speak of");
        let db = after.open(&by_hand());
        assert!(db.snapshot().seqno() >= last);
        db.put(&synced(), b"k", b"new").expect("put");
        assert!(db.snapshot().seqno() > last);
        // Sorted by sequence, the old value would come first.
        db.compact_range(&CompactRangeOptions { rewrite_bottom: true, ..Default::default() }, None, None)
            .expect("compact");
        assert_eq!(get(&db, b"k").as_deref(), Some(b"new".as_slice()));
    });
}

/// A table whose edit did not get into the manifest before the cut: its number is above all that the
/// manifest knows, and a file with another content must not get it.
#[test]
fn h17_file_numbers_found_on_disk_are_not_given_out_again() {
    Bench::run(|bench| {
        let db = bench.open(&by_hand());
        db.put(&synced(), b"k", b"1").expect("put");
        db.wait_until_idle().expect("idle");
        let images = bench.images_at(CrashPolicy::DropUnsynced, |call| is(call, OpKind::Write, "MANIFEST"));
        db.flush().expect("flush");
        bench.disk().clear_call_hooks();
        let image = images.lock().first().expect("the flush wrote an edit").clone();
        let after = bench.with_disk(image);
        let orphans = after.names(".sst");
        assert_eq!(orphans.len(), 1, "{orphans:?}");
        let number_of = |name: &str| {
            let digits: String = name.chars().filter(char::is_ascii_digit).collect();
            digits.parse::<u64>().ok()
        };
        let highest = after.names("").iter().filter_map(|name| number_of(name)).max();
        assert_eq!(highest, number_of(&orphans[0]), "no other file has a higher number");
        after.disk().set_tracing(true);
        let db = after.open(&by_hand());
        db.put(&synced(), b"k", b"2").expect("put");
        db.flush().expect("flush");
        let mut created = 0;
        for call in after.disk().trace().iter().filter(|call| call.op == Some(OpKind::Create)) {
            let name = call.path.file_name().expect("a name").to_string_lossy().into_owned();
            if let Some(number) = number_of(&name) {
                assert!(Some(number) > highest, "{name} has a number that was given out");
                created += 1;
            }
        }
        assert!(created >= 4, "table, log, manifest and options: {created}");
        assert!(!after.names(".sst").contains(&orphans[0]), "an orphan stays");
        assert_eq!(get(&db, b"k").as_deref(), Some(b"2".as_slice()));
    });
}

/// Operands that tables have made a value of, at the bottom and without a sequence by now, stand in the
/// log, too.
#[test]
fn h19_replay_does_not_count_operands_again_that_are_in_a_table() {
    Bench::run(|bench| {
        let db = bench.open(&by_hand());
        for operand in [b"a", b"b"] {
            db.merge(&synced(), b"k", operand).expect("merge");
        }
        db.flush().expect("flush");
        db.compact_range(&CompactRangeOptions { rewrite_bottom: true, ..Default::default() }, None, None)
            .expect("compact");
        db.merge(&synced(), b"k", b"c").expect("merge");
        for policy in CUTS {
            let after = bench.cut(policy);
            assert_eq!(after.names(".log").len(), 1, "that of the first operands");
            let db = after.open(&by_hand());
            assert_eq!(get(&db, b"k").as_deref(), Some(b"a+b+c".as_slice()), "{policy:?}");
        }
    });
}

/// The table of memtable 1 can't be synced yet, those of later ones can: none of them may move the floor
/// past what memtable 1 holds.
#[test]
fn h19_flushes_of_a_tree_settle_in_order() {
    Bench::run(|bench| {
        let options = Options { write_buffers_max: 12, ..by_hand() };
        let db = bench.open(&options);
        let begin = FlushOptions { wait: false, allow_stall: true, ..FlushOptions::default() };
        let first: Arc<parking_lot::Mutex<Option<std::path::PathBuf>>> = Arc::default();
        let door = bench.door_at(1, move |call| {
            // The table that is synced first, and no other.
            is(call, OpKind::Sync, ".sst")
                && *first.lock().get_or_insert_with(|| call.path.clone()) == call.path
        });
        let mut model = Model::new();
        for i in 0..8u8 {
            for operand in [[b'a' + i, b'1'], [b'a' + i, b'2']] {
                db.merge(&synced(), b"k", &operand).expect("merge");
                db.put(&synced(), &operand, b"v").expect("put");
                model.insert(operand.to_vec(), b"v".to_vec());
            }
            db.flush_with(&begin).expect("flush");
            if i == 0 {
                door.wait_for_one();
            }
            bench.sleep(1_000_000);
            model.insert(b"k".to_vec(), get(&db, b"k").expect("there"));
            for policy in CUTS {
                let found = contents(&bench.cut(policy).open(&options));
                assert!(found == model, "{policy:?} after {i} flushes");
            }
        }
        let live = number(&db, "dialsm.num-files-at-level0");
        assert!(live >= 6, "only {live} tables were flushed beside the one that waits");
        assert_eq!(number(&db, "dialsm.durable-floor"), 1);
        door.open();
        db.flush().expect("flush");
        assert!(number(&db, "dialsm.durable-floor") > 20);
        assert!(contents(&bench.cut(CrashPolicy::DropUnsynced).open(&options)) == model);
    });
}

/// A power cut takes some of the zeros behind the last record, and nothing of the record. What the next segment
/// then says about the end of this one must hold for the opening after that.
#[test]
fn h15_a_cut_behind_the_last_record_does_no_harm_later() {
    for len in 1..=8 {
        Bench::run(|bench| {
            let db = bench.open(&by_hand());
            db.put(&synced(), b"first", &vec![b'v'; len]).expect("put");
            let cut = bench.cut(CrashPolicy::KeepAll);
            let path = Path::new(DIR).join(cut.names(".log").pop().expect("a segment"));
            let file = cut.disk().open(&path, Access::ReadWrite).expect("open");
            let mut bytes = vec![0; file.len().expect("length") as usize];
            file.read_at(&mut bytes, 0).expect("read");
            let end = 1 + bytes.iter().rposition(|byte| *byte != 0).expect("a record");
            file.set_len(end as u64).expect("cut");
            let db = cut.open(&by_hand());
            assert!(get(&db, b"first").is_some(), "{len}");
            db.put(&synced(), b"second", b"value").expect("put");
            let again = cut.cut(CrashPolicy::DropUnsynced).open(&by_hand());
            assert_eq!(contents(&again).len(), 2, "{len}");
        });
    }
}
