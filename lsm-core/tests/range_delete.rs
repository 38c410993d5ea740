//! Range deletes from outside: what they refuse, what a scan over them costs, and how tombstones
//! leave the database.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

mod hostile;

use dialsm_core::key::Comparator;
use dialsm_core::options::Compression;
use dialsm_core::read::db_iter::IterStats;
use dialsm_core::{CompactRangeOptions, Db, ErrorKind, Options, ReadOptions, WriteBatch, WriteOptions};
use dialsm_io::SimFs;

use hostile::{Real, by_hand, contents, get, kind_of, open_on, put};

fn key(n: u32) -> Vec<u8> {
    format!("key{n:07}").into_bytes()
}

/// Every key takes its room, on the last level too.
fn bulky() -> Options {
    Options { compression_bottom: Compression::None, ..by_hand() }
}

const VALUE: [u8; 60] = [b'v'; 60];

fn on_sim(options: &Options) -> Db {
    open_on(SimFs::new(1), options).expect("open")
}

fn delete_range(db: &Db, from: &[u8], to: &[u8]) {
    db.delete_range(&WriteOptions::default(), from, to).expect("delete a range");
}

fn compact(db: &Db) {
    let options = CompactRangeOptions { rewrite_bottom: true, ..Default::default() };
    db.compact_range(&options, None, None).expect("compact");
}

fn files(db: &Db) -> u64 {
    let at = |level: usize| db.property(&format!("dialsm.num-files-at-level{level}"));
    (0..7).map(|level| at(level).expect("a known property").parse::<u64>().expect("a number")).sum()
}

/// Keys seen forward and backward, and what passing over the others cost.
fn walk(db: &Db) -> (Vec<Vec<u8>>, IterStats) {
    let mut iter = db.iter(&ReadOptions::default()).expect("iter");
    let (mut forward, mut backward) = (Vec::new(), Vec::new());
    iter.seek_to_first().expect("first");
    while iter.valid() {
        forward.push(iter.key().to_vec());
        iter.next().expect("next");
    }
    iter.seek_to_last().expect("last");
    while iter.valid() {
        backward.insert(0, iter.key().to_vec());
        iter.prev().expect("prev");
    }
    assert_eq!(forward, backward);
    (forward, iter.stats())
}

#[test]
fn what_is_refused_and_what_does_nothing() {
    let db = on_sim(&by_hand());
    put(&db, b"b", b"1");
    let options = WriteOptions::default();
    assert_eq!(kind_of(db.delete_range(&options, b"c", b"a")), ErrorKind::InvalidArgument);
    let mut batch = WriteBatch::new();
    batch.put(b"x", b"1").expect("put");
    batch.delete_range(b"c", b"a").expect("a batch does not know the order");
    assert_eq!(kind_of(db.write(&options, batch)), ErrorKind::InvalidArgument);
    assert_eq!(get(&db, b"x"), None);
    for (from, to) in [(&b"b"[..], &b"b"[..]), (b"", b""), (b"", b"b"), (b"b\0", b"z")] {
        delete_range(&db, from, to);
        assert_eq!(get(&db, b"b").as_deref(), Some(&b"1"[..]));
    }
    delete_range(&db, b"b", b"b\0");
    assert_eq!(get(&db, b"b"), None);
    db.close().expect("close");
    assert_eq!(kind_of(db.delete_range(&options, b"a", b"b")), ErrorKind::Closed);
}

#[test]
fn the_order_of_the_ends_is_the_keyspaces() {
    let db = on_sim(&Options { comparator: Comparator::ReverseBytewise, ..by_hand() });
    for i in 0..10 {
        put(&db, &key(i), b"v");
    }
    let options = WriteOptions::default();
    assert_eq!(kind_of(db.delete_range(&options, &key(2), &key(7))), ErrorKind::InvalidArgument);
    delete_range(&db, &key(7), &key(2));
    for _ in 0..2 {
        let left: Vec<u32> = (0..10).filter(|i| get(&db, &key(*i)).is_some()).collect();
        assert_eq!(left, [0, 1, 2, 8, 9]);
        assert_eq!(contents(&db).len(), 5);
        compact(&db);
    }
}

#[test]
fn operations_of_a_batch_are_in_order() {
    let db = on_sim(&by_hand());
    let mut batch = WriteBatch::new();
    for i in 0..10 {
        batch.put(&key(i), b"before").expect("put");
    }
    batch.delete_range(&key(2), &key(8)).expect("delete a range");
    batch.put(&key(5), b"after").expect("put");
    db.write(&WriteOptions::default(), batch).expect("write");
    for _ in 0..2 {
        let left: Vec<u32> = (0..10).filter(|i| get(&db, &key(*i)).is_some()).collect();
        assert_eq!(left, [0, 1, 5, 8, 9]);
        assert_eq!(get(&db, &key(5)).as_deref(), Some(&b"after"[..]));
        compact(&db);
    }
}

const KEYS: u32 = 20_000;

/// Keys on the last level, in many tables.
fn filled() -> Db {
    let db = on_sim(&bulky());
    (0..KEYS).for_each(|i| put(&db, &key(i), &VALUE));
    compact(&db);
    assert!(files(&db) > 4);
    db
}

#[test]
fn a_scan_jumps_over_a_deleted_range() {
    let gone = 100..KEYS - 100;
    let left: Vec<Vec<u8>> = (0..KEYS).filter(|i| !gone.contains(i)).map(key).collect();
    let passed = |stats: &IterStats| {
        stats.skipped_covered + stats.skipped_tombstones + stats.skipped_older + stats.skipped_newer
    };
    // One by one: every tombstone is met, twice over in two directions.
    let db = filled();
    gone.clone().for_each(|i| db.delete(&WriteOptions::default(), &key(i)).expect("delete"));
    db.flush().expect("flush");
    let (seen, stats) = walk(&db);
    assert_eq!(seen, left);
    assert!(passed(&stats) >= 2 * (KEYS as u64 - 200), "{stats:?}");
    // As a range, in the memtable and in a table.
    let db = filled();
    delete_range(&db, &key(gone.start), &key(gone.end));
    for stage in 0..2 {
        let (seen, stats) = walk(&db);
        assert_eq!(seen, left);
        assert!(passed(&stats) <= 4 && (2..10).contains(&stats.range_jumps), "stage {stage}: {stats:?}");
        db.flush().expect("flush");
    }
    // With what was written into the range since: only that is looked at.
    let back: Vec<u32> = (500..KEYS - 500).step_by(1000).collect();
    back.iter().for_each(|i| put(&db, &key(*i), b"back"));
    let (seen, stats) = walk(&db);
    assert_eq!(seen.len(), left.len() + back.len());
    assert!(passed(&stats) <= 4 && stats.range_jumps < 20, "{stats:?}");
}

#[test]
fn a_scan_jumps_within_the_tombstones_own_memtable() {
    let db = on_sim(&bulky());
    (0..KEYS).for_each(|i| put(&db, &key(i), &VALUE));
    delete_range(&db, &key(1), &key(KEYS - 1));
    let (seen, stats) = walk(&db);
    assert_eq!(seen, [key(0), key(KEYS - 1)]);
    assert!(stats.skipped_covered <= 4 && stats.range_jumps <= 4, "{stats:?}");
    // With something newer in the memtable that no longer goes; the answer stays right.
    put(&db, &key(7), b"back");
    let (seen, stats) = walk(&db);
    assert_eq!(seen, [key(0), key(7), key(KEYS - 1)]);
    assert!(stats.skipped_covered > u64::from(KEYS), "{stats:?}");
}

#[test]
fn tables_under_a_tombstone_are_not_opened() {
    let real = Real::new();
    let db = real.open(&bulky());
    (0..KEYS).for_each(|i| put(&db, &key(i), &VALUE));
    compact(&db);
    let tables = files(&db);
    assert!(tables >= 8, "{tables}");
    delete_range(&db, &key(1), &key(KEYS - 1));
    db.flush().expect("flush");
    db.close().expect("close");
    drop(db);
    let db = real.open(&bulky());
    assert_eq!(db.metrics().counters.open_tables, 0);
    let mut iter = db.iter(&ReadOptions::default()).expect("iter");
    iter.seek_to_first().expect("first");
    iter.next().expect("next");
    assert_eq!(iter.key(), key(KEYS - 1));
    // The one with the tombstone, the first and the last of the level.
    assert!(db.metrics().counters.open_tables <= 3, "{}", db.metrics().counters.open_tables);
}

#[test]
fn tombstones_alone_make_a_table_and_leave_at_the_bottom() {
    let db = on_sim(&by_hand());
    delete_range(&db, b"a", b"m");
    delete_range(&db, b"c", b"z");
    db.flush().expect("flush");
    assert_eq!(files(&db), 1);
    assert!(contents(&db).is_empty() && get(&db, b"d").is_none());
    db.verify(&mut |_, _| {}).expect("verify");
    compact(&db);
    assert_eq!(files(&db), 0, "nothing lay below, so nothing was left to hide");
    assert!(db.metrics().counters.range_deletes_dropped >= 2);
}

#[test]
fn a_snapshot_keeps_what_it_sees_and_the_tombstone() {
    let db = filled();
    let before = db.snapshot();
    delete_range(&db, &key(0), &key(KEYS));
    put(&db, &key(5), b"back");
    compact(&db);
    let old = ReadOptions { snapshot: Some(before.clone()), ..ReadOptions::default() };
    let seen = hostile::scan(&db, &old).expect("scan");
    assert_eq!(seen.len(), KEYS as usize);
    assert_eq!(contents(&db).len(), 1);
    // Outputs were cut while one tombstone spanned them all.
    let counters = db.metrics().counters;
    assert!(counters.range_deletes_cut > 3 && counters.range_deletes_dropped == 0, "{counters:?}");
    db.verify(&mut |_, _| {}).expect("verify");
    let kept = files(&db);
    drop((old, before));
    compact(&db);
    assert_eq!(contents(&db).len(), 1);
    let counters = db.metrics().counters;
    assert!(counters.range_deletes_dropped > 3, "{counters:?}");
    assert!(counters.range_deleted_entries >= u64::from(KEYS), "{counters:?}");
    assert!(files(&db) == 1 && kept > 4);
}

#[test]
fn range_deletes_come_back_from_the_log_and_from_tables() {
    let real = Real::new();
    for round in 0..4 {
        let db = real.open(&by_hand());
        if round == 0 {
            (0..1000).for_each(|i| put(&db, &key(i), b"v"));
            delete_range(&db, &key(10), &key(500));
            put(&db, &key(20), b"back");
            delete_range(&db, &key(900), b"x");
        }
        let model = contents(&db);
        let keys: Vec<Vec<u8>> = model.keys().cloned().collect();
        let wanted: Vec<Vec<u8>> =
            (0..1000).filter(|i| *i < 10 || *i == 20 || (500..900).contains(i)).map(key).collect();
        assert_eq!(keys, wanted, "round {round}");
        (0..1000).for_each(|i| assert_eq!(get(&db, &key(i)).is_some(), model.contains_key(&key(i))));
        if round == 1 {
            db.flush().expect("flush");
        }
        if round == 2 {
            compact(&db);
            assert_eq!(db.metrics().counters.range_deleted_entries, 0, "the flush had left them out");
        }
        db.verify(&mut |_, _| {}).expect("verify");
    }
}

#[test]
fn a_long_tombstone_is_cut_by_what_it_overlaps_below() {
    // Many tables on L6, then a tombstone over all of them that goes to L5: no table of L5 may
    // overlap more of L6 than ten tables' worth, though there are no points to cut at.
    let db = on_sim(&bulky());
    (0..2 * KEYS).for_each(|i| put(&db, &key(i), &VALUE));
    compact(&db);
    let below = files(&db);
    assert!(below > 40, "{below}");
    delete_range(&db, &key(0), &key(2 * KEYS));
    db.flush().expect("flush");
    let options = CompactRangeOptions { target_level: Some(4), rewrite_bottom: true, ..Default::default() };
    db.compact_range(&options, None, None).expect("compact");
    let level4: u64 = db.property("dialsm.num-files-at-level4").expect("known").parse().expect("a number");
    assert_eq!(level4, 1, "L5 is empty, so nothing calls for a cut");
    let options = CompactRangeOptions { target_level: Some(5), rewrite_bottom: true, ..Default::default() };
    db.compact_range(&options, None, None).expect("compact");
    let level5: u64 = db.property("dialsm.num-files-at-level5").expect("known").parse().expect("a number");
    assert!(level5 > 1 && level5 <= below / 10 + 1, "{level5} tables over {below}");
    assert!(db.metrics().counters.range_deletes_cut >= level5 - 1);
    assert!(contents(&db).is_empty());
    db.verify(&mut |_, _| {}).expect("verify");
    compact(&db);
    assert_eq!(files(&db), 0);
}
