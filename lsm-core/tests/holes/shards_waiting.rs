//! H21, H31, H32, H34, H45: who may be in the way of whom where values and clues have a second way.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use dialsm_core::key::{Comparator, UserComparator};
use dialsm_core::{Db, ErrorKind, Options, WriteBatch, WriteOptions};
use dialsm_io::OpKind;

use crate::bench::{Bench, SECOND, contents, files_at, get, is, number, put};
use crate::detour::{delete, follow, shards};

fn no_slowdown() -> WriteOptions {
    WriteOptions { no_slowdown: true, ..WriteOptions::default() }
}

/// Writes keys that begin with `letter` until the next one would have to wait.
fn fill(db: &Db, letter: u8) {
    for i in 0..1000u32 {
        let key = [&[letter, b'~'], &i.to_be_bytes()[..]].concat();
        match db.put(&no_slowdown(), &key, &[b'f'; 3000]) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::WouldStall => return,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the memtables never fill");
}

/// Capital letters are the same as small ones.
struct CaseBlind;

impl UserComparator for CaseBlind {
    fn name(&self) -> &str {
        "holes.case-blind"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.to_ascii_lowercase().cmp(&b.to_ascii_lowercase())
    }

    fn equal_is_identical(&self) -> bool {
        false
    }
}

/// One key in two spellings would have two primaries.
#[test]
fn h21_an_order_with_equal_keys_needs_one_shard() {
    Bench::run(|bench| {
        let (_, options) = shards(2);
        let blind = Options { comparator: Comparator::Custom(Arc::new(CaseBlind)), ..options.clone() };
        for unfit in [&blind, &Options { router: None, ..options.clone() }] {
            let refused = bench.try_open(unfit).err().expect("it is refused");
            assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        }
        // Nothing was created that would have to be opened so.
        let db = bench.open(&options);
        let refused = db.create_keyspace("x", blind.keyspace()).expect_err("it is refused");
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        put(&db, b"a", b"value");
    });
    Bench::run(|bench| {
        let (_, options) = shards(1);
        let blind = Options { comparator: Comparator::Custom(Arc::new(CaseBlind)), ..options };
        let db = bench.open(&blind);
        put(&db, b"a", b"1");
        put(&db, b"A", b"2");
        assert_eq!(get(&db, b"a").as_deref(), Some(b"2".as_slice()));
    });
}

/// At the limit of clues a value stays where it belongs. Nobody waits for the number to fall, least of all in
/// the commit queue, behind which the rollback that lowers it would wait.
#[test]
fn h31_at_the_limit_of_clues_nobody_waits_in_the_queue() {
    Bench::run(|bench| {
        let (detour, options) = shards(2);
        let db = bench.open(&Options { clues_max: 1, ..options });
        detour.put(&db, 1, b"a1", b"redirected");
        detour.to(1);
        let (writer, started) = (db.clone(), bench.now());
        let writer = bench.spawn(move || put(&writer, b"a2", b"native"));
        let done = Arc::new(AtomicBool::new(false));
        let (other, is_done) = (db.clone(), done.clone());
        let others = bench.spawn(move || {
            other.put(&no_slowdown(), b"b1", b"native").expect("nothing is in the way");
            other.rollback().expect("rollback");
            is_done.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        bench.wait_for("the others", || done.load(std::sync::atomic::Ordering::SeqCst));
        others.join();
        writer.join();
        assert!(bench.now() < started + SECOND, "somebody has waited");
        assert_eq!(follow(&db, b"a2"), (Some(b"native".to_vec()), false));
        // Room again.
        detour.put(&db, 1, b"a3", b"redirected");
        assert_eq!(contents(&db).len(), 4);
    });
}

/// The primary is stalled, the fallback open and the limit reached: the write waits for its own door, and goes
/// on when that opens, though there are as many clues as before.
#[test]
fn h31_a_write_at_the_limit_waits_for_its_own_door() {
    Bench::run(|bench| {
        let (detour, options) = shards(2);
        let db = bench.open(&Options { clues_max: 1, write_buffers_max: 2, ..options });
        let door = bench.door_on(OpKind::Create, ".sst");
        detour.put(&db, 1, b"a1", b"redirected");
        fill(&db, b'a');
        detour.to(1);
        let refused = db.put(&no_slowdown(), b"a2", b"native").expect_err("it would wait");
        assert_eq!(refused.kind(), ErrorKind::WouldStall);
        let waiting = db.clone();
        let waiting = bench.spawn(move || put(&waiting, b"a2", b"native"));
        bench.sleep(SECOND);
        assert_eq!(get(&db, b"a2"), None);
        // Others are not held up, also not with what the primary takes in any case.
        db.put(&no_slowdown(), b"b1", b"native").expect("an open shard");
        db.delete(&no_slowdown(), b"a~").expect("a delete");
        let opened = bench.now();
        door.open();
        waiting.join();
        assert!(bench.now() < opened + SECOND);
        assert_eq!(follow(&db, b"a2"), (Some(b"native".to_vec()), false));
        assert_eq!(follow(&db, b"a1"), (Some(b"redirected".to_vec()), true), "the clue is there still");
    });
}

/// A shard whose flush stands still gets nothing but deletes. They go into the reserve; when that is spent they
/// wait, and memory stays bounded.
#[test]
fn h32_deletes_wait_when_the_reserve_is_spent() {
    Bench::run(|bench| {
        let (_, options) = shards(2);
        let reserve = 8 << 10;
        let options = Options {
            clue_reserve_bytes: reserve,
            write_buffers_max: 2,
            // Of all shards together; not what is spent here.
            write_buffers_total_bytes: 4 << 20,
            ..options
        };
        let db = bench.open(&options);
        let door = bench.door_on(OpKind::Create, ".sst");
        fill(&db, b'a');
        let full = number(&db, "dialsm.all-memtables-bytes");
        let mut taken = 0u32;
        let refused = loop {
            let key = [b"a-", &taken.to_be_bytes()[..]].concat();
            let done = match taken % 40 {
                // These go to the other shard, too, which has room for so many.
                0 => db.delete_range(&no_slowdown(), &key, b"a-~"),
                n if n % 2 == 1 => db.single_delete(&no_slowdown(), &key),
                _ => db.delete(&no_slowdown(), &key),
            };
            match done {
                Ok(()) => taken += 1,
                Err(error) => break error,
            }
            assert!(taken < 100_000, "nothing bounds the memory");
        };
        assert_eq!(refused.kind(), ErrorKind::WouldStall);
        assert!(taken > 100, "{taken} deletes went into the reserve");
        let spent = number(&db, "dialsm.all-memtables-bytes") - full;
        // What was left of the last memtable, and a few reserves.
        assert!(spent > reserve && spent < (64 << 10) + 16 * reserve, "{spent} bytes");
        db.delete(&no_slowdown(), b"b1").expect("another shard");
        db.delete_range(&no_slowdown(), b"a-", b"a-~").expect_err("it has to go to both");
        let waiting = db.clone();
        let waiting = bench.spawn(move || delete(&waiting, b"a-waits"));
        bench.sleep(SECOND);
        door.open();
        waiting.join();
        db.flush().expect("flush");
        db.delete(&no_slowdown(), b"a-").expect("room again");
        let tables = contents(&db).len();
        assert!(tables > 20, "{tables} keys that were filled in are there");
    });
}

/// A reserve that is full is sealed with its memtable, and another is opened for clues and deletes. That one is
/// empty, but not there for values: the door stays shut.
#[test]
fn h32_a_sealed_reserve_opens_no_door() {
    Bench::run(|bench| {
        let (_, options) = shards(2);
        let options = Options {
            clue_reserve_bytes: 8 << 10,
            write_buffers_max: 2,
            write_buffers_total_bytes: 4 << 20,
            ..options
        };
        let db = bench.open(&options);
        let door = bench.door_on(OpKind::Create, ".sst");
        fill(&db, b'a');
        let sealed = number(&db, "dialsm.num-immutable-memtables");
        let mut deletes = 0u32;
        while number(&db, "dialsm.num-immutable-memtables") == sealed {
            db.delete(&no_slowdown(), &[b"a-", &deletes.to_be_bytes()[..]].concat()).expect("delete");
            deletes += 1;
        }
        assert!(deletes > 20, "{deletes}");
        for _ in 0..20 {
            assert_eq!(number(&db, "dialsm.is-write-stopped"), 1);
            let refused = db.put(&no_slowdown(), b"a-x", &[b'x'; 3000]).expect_err("no room for values");
            assert_eq!(refused.kind(), ErrorKind::WouldStall);
        }
        door.open();
        db.put(&WriteOptions::default(), b"a-x", b"x").expect("put");
        assert!(contents(&db).contains_key(b"a-x".as_slice()));
    });
}

/// Clues with long keys have a limit in bytes, and the reserve of a stalled shard one, too.
#[test]
fn h32_clues_with_long_keys_are_bounded_in_bytes() {
    Bench::run(|bench| {
        let (detour, options) = shards(2);
        let db = bench.open(&Options { clue_bytes_max: 64 << 10, write_buffer_bytes: 4 << 20, ..options });
        detour.to(1);
        for i in 0..40u8 {
            let key = [&[b'a', i], &[b'k'; 8000][..]].concat();
            db.put(&no_slowdown(), &key, b"value").expect("put");
        }
        let redirects = db.metrics().counters.redirects;
        assert!((8..=9).contains(&redirects), "{redirects} clues of 8 KB each");
        assert_eq!(contents(&db).len(), 40);
    });
}

/// Tables of clues alone are no depth that a shard could be stalled for, and are merged among themselves.
#[test]
fn h34_tables_of_clues_do_not_fill_l0() {
    Bench::run(|bench| {
        let (detour, options) = shards(3);
        let options = Options {
            level0_compaction_trigger: 20,
            level0_slowdown_trigger: 20,
            level0_stop_trigger: 24,
            background_jobs_max: 2,
            automatic_compaction: true,
            ..options
        };
        let db = bench.open(&options);
        // The seventh table is that of the first merge of clues.
        let created = AtomicU64::new(0);
        let door = bench.door_at(1, move |call| {
            is(call, OpKind::Create, ".sst") && created.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 6
        });
        for round in 0..30u8 {
            let key = [b'a', round];
            let mut batch = WriteBatch::new();
            batch.put(&key, b"redirected").expect("put");
            detour.to(1 + u16::from(round % 2));
            db.write(&no_slowdown(), batch).expect("no shard is stalled");
            detour.end();
            db.flush().expect("flush");
            bench.sleep(10_000_000);
            if round == 2 {
                door.wait_for_one();
            }
        }
        assert!(files_at(&db, 0) >= 30, "{}", files_at(&db, 0));
        db.put(&no_slowdown(), b"a~", b"native").expect("the primary is not stalled");
        door.open();
        db.wait_until_idle().expect("idle");
        // Those of the fallbacks, and few of clues.
        let left = files_at(&db, 0);
        assert!(left < 30 + 6, "{left}");
        for round in 0..30u8 {
            assert_eq!(follow(&db, &[b'a', round]), (Some(b"redirected".to_vec()), true));
        }
        assert_eq!(contents(&db).len(), 31);
    });
}

/// One batch of many values: each choice of a fallback counts what the batch has sent there already.
#[test]
fn h45_one_batch_is_spread_over_the_fallbacks() {
    Bench::run(|bench| {
        let (detour, options) = shards(3);
        let db = bench.open(&options);
        detour.to_least();
        let mut batch = WriteBatch::new();
        (0..40u8).for_each(|i| batch.put(&[b'a', i], &[b'v'; 1000]).expect("put"));
        db.write(&WriteOptions::default(), batch).expect("write");
        let sent = [detour.chosen(1), detour.chosen(2)];
        assert!(sent.iter().all(|n| (19..=21).contains(n)), "{sent:?}");
        assert_eq!(db.metrics().counters.redirects, 40);
        assert_eq!(contents(&db).len(), 40);
    });
}
