//! Sizes: keys of 0 to 65,535 bytes, values of 0 bytes to 1 GiB, batches up to 4 GiB. What is
//! allowed comes back byte for byte from everywhere; what is not is refused before it is logged.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

mod hostile;

use std::path::Path;

use dialsm_core::batch::BATCH_BYTES_MAX;
use dialsm_core::{CompactRangeOptions, Db, ErrorKind, Options, ReadOptions, WriteBatch, WriteOptions};
use dialsm_io::{FaultFs, OpKind, SimFs};
use hostile::{DIR, Model, Real, contents, env_on, get, kind_of, put, tiny};

const KEY_BYTES_MAX: usize = 65_535;
const VALUE_BYTES_MAX: usize = 1 << 30;

/// Checks `model` by gets and scans in memory, after a flush, a compaction and a reopening.
fn check_everywhere(real: &Real, options: &Options, db: Db, model: &Model) {
    let check = |db: &Db, when: &str| {
        for (key, value) in model {
            let found = get(db, key);
            assert!(found.as_ref() == Some(value), "get of a {}-byte key {when}", key.len());
        }
        assert!(contents(db) == *model, "scan {when}");
    };
    check(&db, "from the memtable");
    db.flush().expect("flush");
    check(&db, "from level 0");
    db.close().expect("close");
    let db = real.open(options);
    check(&db, "after a reopening");
    let rewrite = CompactRangeOptions { rewrite_bottom: true, ..Default::default() };
    db.compact_range(&rewrite, None, None).expect("compact");
    db.compact_range(&rewrite, None, None).expect("compact");
    check(&db, "after a compaction");
    db.verify(&mut |_, _| {}).expect("verify");
    drop(db);
    let db = real.open(options);
    check(&db, "at last");
}

/// Every length around a power of two (of varints, blocks, pages), ends included.
fn lengths(max: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (0..=17).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1]).collect();
    all.extend([max - 1, max]);
    all.retain(|n| *n <= max);
    all.sort_unstable();
    all.dedup();
    all
}

#[test]
fn keys_and_values_of_all_lengths_and_bytes() {
    let real = Real::new();
    let db = real.open(&tiny());
    let mut model = Model::new();
    let mut set = |key: Vec<u8>, value: Vec<u8>| {
        put(&db, &key, &value);
        model.insert(key, value);
    };
    for n in lengths(KEY_BYTES_MAX) {
        for byte in [0, b'k', 0xff] {
            set(vec![byte; n], vec![!byte; n % 1000]);
        }
        // Equal but for the last byte, so that no separator is shorter than the keys.
        let mut key = vec![b'p'; n];
        key.extend([0xff; 1].iter().take(KEY_BYTES_MAX - n));
        set(key, b"v".to_vec());
    }
    for n in lengths(1 << 20) {
        set(format!("value of {n}").into_bytes(), (0..n).map(|i| (i * 7) as u8).collect());
    }
    set(b"zeros".to_vec(), vec![0; 300_000]);
    set(b"ones".to_vec(), vec![0xff; 300_000]);
    assert!(model.len() > 200 && model.contains_key(&[][..]), "{}", model.len());
    check_everywhere(&real, &tiny(), db, &model);
}

/// Without compression and with the smallest blocks; a value far above memtable, log segment,
/// block, table and cache.
#[test]
fn a_value_of_64_mib() {
    let real = Real::new();
    let db = real.open(&tiny());
    let mut model = Model::new();
    for (key, fill) in [("a", 1u8), ("b", 2), ("b\u{0}", 3)] {
        let bytes = if key == "b" { 64 << 20 } else { 100 };
        let value: Vec<u8> = (0..bytes).map(|i: usize| (i >> 8) as u8 ^ fill).collect();
        put(&db, key.as_bytes(), &value);
        model.insert(key.into(), value);
    }
    check_everywhere(&real, &tiny(), db, &model);
}

#[test]
#[ignore = "needs 8 GiB of memory and of disk, and minutes"]
fn a_value_of_1_gib_and_the_longest_key() {
    let real = Real::new();
    let db = real.open(&tiny());
    let value: Vec<u8> = (0..VALUE_BYTES_MAX).map(|i| (i >> 12) as u8).collect();
    let key = vec![0xff; KEY_BYTES_MAX];
    put(&db, b"before", b"1");
    put(&db, &key, &value);
    let check = |db: &Db, when: &str| {
        assert!(get(db, &key).as_ref() == Some(&value), "get {when}");
        let mut iter = db.iter(&ReadOptions::default()).expect("iter");
        iter.seek_to_last().expect("last");
        assert!(iter.valid() && iter.key() == &key[..] && iter.value() == &value[..], "last {when}");
        iter.prev().expect("prev");
        assert!(iter.valid() && iter.key() == b"before", "prev {when}");
        iter.next().expect("next");
        assert!(iter.valid() && iter.value() == &value[..], "next {when}");
    };
    check(&db, "from the memtable");
    drop(db);
    let db = real.open(&tiny());
    check(&db, "after replay");
    db.flush().expect("flush");
    check(&db, "after a flush");
    db.compact_range(&CompactRangeOptions { rewrite_bottom: true, ..Default::default() }, None, None)
        .expect("compact");
    check(&db, "after a compaction");
    db.verify(&mut |_, _| {}).expect("verify");
    drop(db);
    check(&real.open(&tiny()), "after a reopening");
}

#[test]
fn too_large_is_refused_before_anything_is_logged() {
    let fs = FaultFs::new(SimFs::new(1));
    let db = Db::open(env_on(fs.clone()), Path::new(DIR), tiny()).expect("open");
    put(&db, b"here", b"1");
    db.wait_until_idle().expect("idle");
    let writes = fs.calls(OpKind::Write);
    let options = WriteOptions::default();
    let long_key = vec![b'k'; KEY_BYTES_MAX + 1];
    assert_eq!(kind_of(db.put(&options, &long_key, b"")), ErrorKind::TooLarge);
    assert_eq!(kind_of(db.delete(&options, &long_key)), ErrorKind::TooLarge);
    assert_eq!(kind_of(db.single_delete(&options, &long_key)), ErrorKind::TooLarge);
    // Zeros of a fresh mapping: no page of it is ever touched.
    let long_value = vec![0; VALUE_BYTES_MAX + 1];
    assert_eq!(kind_of(db.put(&options, b"k", &long_value)), ErrorKind::TooLarge);
    assert_eq!(fs.calls(OpKind::Write), writes);
    // A batch refuses the one operation and stays as it was.
    let mut batch = WriteBatch::new();
    batch.put(b"a", b"1").expect("put");
    assert_eq!(kind_of(batch.put(&long_key, b"")), ErrorKind::TooLarge);
    assert_eq!(kind_of(batch.put(b"k", &long_value)), ErrorKind::TooLarge);
    assert_eq!(kind_of(batch.delete_range(b"a", &long_key)), ErrorKind::TooLarge);
    batch.put(b"b", b"2").expect("put");
    assert_eq!(batch.len(), 2);
    db.write(&options, batch).expect("write");
    assert_eq!(db.get(&ReadOptions::default(), &long_key).expect("a look-up may ask for anything"), None);
    assert_eq!(contents(&db).len(), 3);
}

/// The same bound holds for the bytes that a batch is made from; its check comes before they are
/// read, so they stay untouched zeros.
#[test]
fn a_batch_over_4_gib_is_refused() {
    assert_eq!(BATCH_BYTES_MAX, u32::MAX as usize);
    let bytes = vec![0; BATCH_BYTES_MAX + 1];
    assert_eq!(kind_of(WriteBatch::from_bytes(bytes)), ErrorKind::TooLarge);
}

#[test]
#[ignore = "fills a batch of 4 GiB: memory"]
fn a_batch_grows_to_4_gib_and_no_further() {
    let value = vec![7; VALUE_BYTES_MAX];
    let mut batch = WriteBatch::new();
    for i in 0..3u8 {
        batch.put(&[i], &value).expect("put");
    }
    assert_eq!(kind_of(batch.put(b"fourth", &value)), ErrorKind::TooLarge);
    assert_eq!(batch.len(), 3);
    batch.put(b"small", b"fits").expect("put");
}
