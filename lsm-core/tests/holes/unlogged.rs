//! H17 and H24 to H28: with the log off a power cut takes each tree back to its own last flush, so value and
//! clue go apart, and floors say what each half is worth.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use dialsm_core::{Db, ErrorKind, Options, WriteOptions};
use dialsm_io::{CrashPolicy, Env, OpKind};

use crate::bench::{Bench, CUTS, by_hand, contents, get, is, number, put};
use crate::detour::{Detour, compact, delete, fill_until_flushed, flush_alone, follow, shards};

fn unlogged(n: usize) -> (Arc<Detour>, Options) {
    let (detour, options) = shards(n);
    (detour, Options { log: false, ..options })
}

/// Has the trees with `trigger` tables in L0 compacted, until `left` steps are not settled.
fn compact_busy(bench: &Bench, db: &Db, trigger: &str, left: u64) {
    let before = db.compactions();
    db.set_options(&[("level0_compaction_trigger", trigger), ("automatic_compaction", "true")]).expect("set");
    let is_done = || db.compactions() > before && number(db, "dialsm.unsettled-installs") == left;
    bench.wait_for("a compaction", is_done);
    db.set_options(&[("automatic_compaction", "false")]).expect("set");
}

/// A redirected value that nobody needs lies in a table of the fallback. The numbers of new writes begin above it,
/// though no log tells of it, or the next value of the key could have its number, in the same shard.
#[test]
fn h17_no_sequence_number_of_a_redirected_value_is_given_out_again() {
    Bench::run(|bench| {
        let (detour, options) = unlogged(2);
        let db = bench.open(&options);
        detour.put(&db, 1, b"a1", b"nobody's");
        let first = db.snapshot().seqno();
        delete(&db, b"a1");
        // The fallback first: then it can't know yet that its copy is not needed.
        flush_alone(bench, &db, b'b');
        flush_alone(bench, &db, b'a');
        let last = db.snapshot().seqno();
        assert_eq!((db.metrics().counters.redirected_dropped, first), (0, 1));
        for policy in CUTS {
            let after = bench.cut(policy);
            let db = after.open(&options);
            assert_eq!(get(&db, b"a1"), None, "{policy:?}");
            detour.put(&db, 1, b"a1", b"new");
            assert!(db.snapshot().seqno() >= last, "{policy:?}: numbers went back");
            db.flush().expect("flush");
            compact(&db, Some(6));
            assert_eq!(follow(&db, b"a1"), (Some(b"new".to_vec()), true), "{policy:?}");
            let db = after.cut(policy).open(&options);
            assert_eq!(get(&db, b"a1").as_deref(), Some(b"new".as_slice()), "{policy:?}, cut again");
        }
    });
}

/// An older value is durable. A newer one was redirected and never reached a table, its clue did: the
/// primary is flushed, or compacted as well, and must not have taken the older value for hidden.
#[test]
fn h24_a_clue_hides_nothing_before_its_value_is_durable() {
    for is_compacted in [false, true] {
        Bench::run(|bench| {
            let (detour, options) = unlogged(2);
            let db = bench.open(&options);
            put(&db, b"a1", b"older");
            if is_compacted {
                db.flush().expect("flush");
            }
            detour.put(&db, 1, b"a1", b"newer");
            flush_alone(bench, &db, b'a');
            if is_compacted {
                compact_busy(bench, &db, "2", 0);
            }
            assert_eq!(follow(&db, b"a1"), (Some(b"newer".to_vec()), true));
            for policy in CUTS {
                let db = bench.cut(policy).open(&options);
                assert_eq!(follow(&db, b"a1").0.as_deref(), Some(b"older".as_slice()), "{policy:?}");
                assert_eq!(contents(&db)[b"a1".as_slice()], b"older", "{policy:?}");
                db.rollback().expect("rollback");
                compact(&db, Some(6));
                assert_eq!(get(&db, b"a1").as_deref(), Some(b"older".as_slice()), "{policy:?}, compacted");
            }
        });
    }
}

/// The clue whose value was lost stays in its table. Later openings find its fallback's floor above it, and
/// remember all the same that it stands for nothing.
#[test]
fn h25_a_clue_without_value_stays_void() {
    for logged_later in [false, true] {
        Bench::run(|bench| {
            let (detour, options) = unlogged(2);
            let db = bench.open(&options);
            put(&db, b"a1", b"older");
            detour.put(&db, 1, b"a1", b"newer");
            flush_alone(bench, &db, b'a');
            let mut machine = bench.cut(CrashPolicy::DropUnsynced);
            for opening in 0..4 {
                let options = Options { log: logged_later && opening > 0, ..options.clone() };
                let db = machine.open(&options);
                assert_eq!(follow(&db, b"a1").0.as_deref(), Some(b"older".as_slice()), "opening {opening}");
                assert_eq!(contents(&db)[b"a1".as_slice()], b"older", "opening {opening}");
                assert_eq!(number(&db, "dialsm.clues"), 1, "the clue is there");
                // The fallback gets on.
                put(&db, b"b1", b"value");
                flush_alone(&machine, &db, b'b');
                drop(db);
                machine = machine.cut(CUTS[opening % CUTS.len()]);
            }
        });
    }
}

/// FC-1: the value is durable in its fallback, its clue is not and goes with the power. The value is data,
/// and the clue is made again.
#[test]
fn h26_a_value_whose_clue_was_lost_gets_a_new_one() {
    Bench::run(|bench| {
        let (detour, options) = unlogged(2);
        let db = bench.open(&options);
        put(&db, b"a1", b"older");
        db.flush().expect("flush");
        detour.put(&db, 1, b"a1", b"value");
        detour.merge(&db, 1, b"a2", b"operand");
        flush_alone(bench, &db, b'b');
        for policy in CUTS {
            let mut machine = bench.cut(policy);
            // And what one opening has shown, the next ones show.
            for opening in 0..3 {
                let db = machine.open(&options);
                let completed = db.metrics().counters.redirects_completed;
                assert_eq!(completed, if opening == 0 { 2 } else { 0 }, "{policy:?}");
                assert_eq!(follow(&db, b"a1"), (Some(b"value".to_vec()), true), "{policy:?}, {opening}");
                assert_eq!(follow(&db, b"a2"), (Some(b"operand".to_vec()), true), "{policy:?}, {opening}");
                let found = contents(&db);
                assert_eq!(found[b"a1".as_slice()], b"value", "{policy:?}, {opening}");
                drop(db);
                machine = machine.cut(CrashPolicy::DropUnsynced);
            }
        }
    });
}

/// Every call of an opening that makes a clue again is cut at, also while the fallback is compacted: had the opening
/// moved the value out of its fallback, or that compaction taken it for nobody's, the second cut would
/// take it.
#[test]
fn h26_no_cut_of_the_opening_takes_the_value() {
    for is_busy in [false, true] {
        Bench::run(|bench| {
            let (detour, options) = unlogged(2);
            let db = bench.open(&options);
            put(&db, b"a1", b"older");
            put(&db, b"b~", b"older");
            db.flush().expect("flush");
            detour.put(&db, 1, b"a1", b"value");
            flush_alone(bench, &db, b'b');
            let after = bench.cut(CrashPolicy::DropUnsynced);
            let policies = [CrashPolicy::DropUnsynced, CrashPolicy::Random(7)];
            let images = policies.map(|policy| after.images_at(policy, |_| true));
            let busy =
                Options { automatic_compaction: is_busy, level0_compaction_trigger: 1, ..options.clone() };
            let opened = after.open(&busy);
            assert_eq!(follow(&opened, b"a1"), (Some(b"value".to_vec()), true));
            opened.wait_until_idle().expect("idle");
            assert_eq!(opened.compactions() > 0, is_busy);
            after.disk().clear_call_hooks();
            let images: Vec<_> =
                images.iter().flat_map(|images| std::mem::take(&mut *images.lock())).collect();
            assert!(images.len() > 60, "{}", images.len());
            for image in images {
                let db = after.with_disk(image).open(&options);
                assert_eq!(follow(&db, b"a1"), (Some(b"value".to_vec()), true));
                assert_eq!(contents(&db)[b"a1".as_slice()], b"value");
            }
        });
    }
}

/// The clue was dropped by a flush of its primary that the power cut takes back, with the newer value that it
/// was dropped for. Meanwhile the fallback is compacted.
#[test]
fn h27_a_value_stays_until_its_primary_is_settled_above_it_without_log() {
    Bench::run(|bench| {
        let (detour, options) = unlogged(2);
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
        detour.put(&db, 0, b"b1", b"redirected");
        flush_alone(bench, &db, b'a');
        flush_alone(bench, &db, b'a');
        let holds = bench.hold_syncs();
        put(&db, b"b1", b"native");
        fill_until_flushed(bench, &db, b'b');
        assert_eq!(db.metrics().counters.clues_dropped, 1, "by the flush");
        holds.set(false);
        compact_busy(bench, &db, "2", 1);
        assert_eq!(db.metrics().counters.redirected_dropped, 0);
        for policy in CUTS {
            let db = bench.cut(policy).open(&options);
            let found = contents(&db);
            let b1 = found[b"b1".as_slice()].as_slice();
            assert!(b1 == b"redirected" || b1 == b"native", "{policy:?}");
            if policy == CrashPolicy::DropUnsynced {
                assert_eq!(follow(&db, b"b1"), (Some(b"redirected".to_vec()), true));
            }
            assert_eq!(get(&db, b"b1").as_deref(), Some(b1), "{policy:?}");
        }
    });
}

/// A shard whose memtables are full goes on with clues in its reserve, until that is full and is sealed. With
/// `atomic_flush` all others are sealed with it, though they have room: clues and values settle as one.
#[test]
fn h28_a_reserve_is_sealed_with_all_others() {
    Bench::run(|bench| {
        let (detour, options) = unlogged(2);
        let options =
            Options { atomic_flush: true, write_buffers_max: 2, clue_reserve_bytes: 32 << 10, ..options };
        let db = bench.open(&options);
        let door = bench.door_on(OpKind::Create, ".sst");
        let sealed = || number(&db, "dialsm.num-immutable-memtables");
        // One memtable of the primary waits for its flush, and the next one gets full.
        for i in 0..60u8 {
            if number(&db, "dialsm.is-write-stopped") == 1 {
                break;
            }
            put(&db, &[b'a', b'~', i], &[b'f'; 3000]);
        }
        let before = sealed();
        assert_eq!((before, number(&db, "dialsm.is-write-stopped")), (1, 1), "the door is shut");
        // Values of the primary in the other shard, and after each one their number in its own reserve, which that
        // fills sooner than they do the other shard's memtable.
        let counter = [&b"a#"[..], &[b'.'; 400]].concat();
        let step = |i: u16| {
            let [high, low] = i.to_be_bytes();
            detour.put(&db, 1, &[b'a', b'v', high, low], &[low; 40]);
            put(&db, &counter, &i.to_be_bytes());
        };
        let last = (1..2000).find(|i| {
            step(*i);
            sealed() > before
        });
        let last = last.expect("the reserve is sealed");
        // Some more, which stay in memory.
        (last + 1..last + 6).for_each(step);
        let images = bench.images_at(CrashPolicy::DropUnsynced, |call| is(call, OpKind::Write, "MANIFEST"));
        door.open();
        bench.wait_for("the flushes", || sealed() == 0 && number(&db, "dialsm.unsettled-installs") == 0);
        bench.disk().clear_call_hooks();
        let mut images = std::mem::take(&mut *images.lock());
        images.push(bench.disk().crash_image(CrashPolicy::DropUnsynced));
        assert!(images.len() > 1);
        for image in images {
            let found = contents(&bench.with_disk(image).open(&options));
            let told = found.get(&counter).map_or(0, |n| u16::from_be_bytes([n[0], n[1]]));
            let values = found.keys().filter(|key| key.starts_with(b"av")).count();
            let one_moment = usize::from(told)..=usize::from(told) + 1;
            assert!(one_moment.contains(&values), "{values} values, of {told} steps");
        }
    });
}

/// Closing saves what bypassed the log, and while it does so others write. What they were told is done is saved,
/// too; from some point on they are told that it is not.
#[test]
fn h42_what_is_written_while_closing_saves_is_saved_or_refused() {
    for log in [false, true] {
        Bench::run(|bench| {
            let options = Options { log, ..by_hand() };
            let unlogged = WriteOptions { disable_log: log, ..WriteOptions::default() };
            let db = bench.open(&options);
            db.put(&unlogged, b"early", b"1").expect("put");
            let door = bench.door_on(OpKind::Create, ".sst");
            let closer = db.clone();
            let closing = bench.spawn(move || closer.close().expect("close"));
            door.wait_for_one();
            db.put(&unlogged, b"late", b"2").expect("it is open as yet");
            let (writer, taken) = (db.clone(), Arc::new(AtomicU32::new(0)));
            let (options_of_writes, count) = (unlogged, taken.clone());
            let env = bench.env.clone();
            let writing = bench.spawn(move || {
                let refused = loop {
                    let next = count.load(Ordering::SeqCst);
                    match writer.put(&options_of_writes, &next.to_be_bytes(), b"3") {
                        Ok(()) => count.store(next + 1, Ordering::SeqCst),
                        Err(error) => break error,
                    }
                    env.sleep(1000);
                };
                assert_eq!(refused.kind(), ErrorKind::Closed);
            });
            bench.sleep(1_000_000);
            door.open();
            closing.join();
            writing.join();
            drop(db);
            let found = contents(&bench.open(&options));
            assert!(taken.load(Ordering::SeqCst) > 100);
            assert_eq!(found.len() as u32, 2 + taken.load(Ordering::SeqCst), "log {log}");
        });
    }
}
