//! Merge operators.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dialsm_core::key::VALUE_BYTES_MAX;
use dialsm_core::{
    CompactRangeOptions, Db, ErrorKind, MergeOperator, Options, ReadOptions, Snapshot, WriteBatch,
    WriteOptions, merge_operator,
};
use dialsm_io::SimFs;

use crate::hostile::{by_hand, contents, get, kind_of, open_on, put, scan, synced};

fn appending() -> Options {
    Options { merge_operator: Some(merge_operator::append(b"")), ..by_hand() }
}

fn merge(db: &Db, key: &[u8], operand: &[u8]) {
    db.merge(&WriteOptions::default(), key, operand).expect("merge");
}

fn compact(db: &Db) {
    let options = CompactRangeOptions { rewrite_bottom: true, ..Default::default() };
    db.compact_range(&options, None, None).expect("compact");
}

/// The value of "k" through every kind of read; neighbours that are no operands stay as they are.
fn read_k(db: &Db, snapshot: Option<&Snapshot>) -> Option<Vec<u8>> {
    let options = ReadOptions { snapshot: snapshot.cloned(), ..ReadOptions::default() };
    let value = db.get(&options, b"k").expect("get").map(|value| value.to_vec());
    let many = db.multi_get(&options, &[b"a", b"k", b"z"]).expect("multi_get");
    assert_eq!(many[1].as_deref(), value.as_deref());
    assert_eq!((many[0].as_deref(), many[2].as_deref()), (Some(&b"a"[..]), Some(&b"z"[..])));
    let mut expected = vec![(b"a".to_vec(), b"a".to_vec()), (b"z".to_vec(), b"z".to_vec())];
    if let Some(value) = &value {
        expected.insert(1, (b"k".to_vec(), value.clone()));
    }
    assert_eq!(scan(db, &options).expect("scan"), expected);
    let mut iter = db.iter(&options).expect("iter");
    iter.seek(b"k").expect("seek");
    assert_eq!(iter.key() == b"k", value.is_some());
    iter.seek_for_prev(b"k").expect("seek_for_prev");
    assert_eq!(iter.key() == b"k", value.is_some());
    value
}

#[derive(Clone, Copy, Debug)]
enum Base {
    Nothing,
    Put,
    Delete,
    SingleDelete,
}

/// When what was written so far is moved out of the memtable.
#[derive(Clone, Copy, Debug)]
enum Apart {
    Never,
    Flush,
    Compact,
}

#[test]
fn b037_operands_are_not_folded_across_a_snapshot() {
    let mut runs = 0;
    for base in [Base::Nothing, Base::Put, Base::Delete, Base::SingleDelete] {
        for apart in [Apart::Never, Apart::Flush, Apart::Compact] {
            for second_snapshot in [false, true] {
                one_history(base, apart, second_snapshot);
                runs += 1;
            }
        }
    }
    assert_eq!(runs, 24);
}

fn one_history(base: Base, apart: Apart, second_snapshot: bool) {
    let what = format!("{base:?}, {apart:?}, second snapshot {second_snapshot}");
    let fs = SimFs::new(1);
    let db = open_on(fs.clone(), &appending()).expect("open");
    put(&db, b"a", b"a");
    put(&db, b"z", b"z");
    let part = || match apart {
        Apart::Never => {}
        Apart::Flush => db.flush().expect("flush"),
        Apart::Compact => compact(&db),
    };
    let prefix = match base {
        Base::Nothing => "",
        Base::Put => {
            put(&db, b"k", b"P");
            "P"
        }
        Base::Delete => {
            put(&db, b"k", b"gone");
            part();
            db.delete(&WriteOptions::default(), b"k").expect("delete");
            ""
        }
        Base::SingleDelete => {
            put(&db, b"k", b"gone");
            part();
            db.single_delete(&WriteOptions::default(), b"k").expect("single delete");
            ""
        }
    };
    part();
    for operand in [b"a", b"b"] {
        merge(&db, b"k", operand);
        part();
    }
    let first = db.snapshot();
    merge(&db, b"k", b"c");
    let second = second_snapshot.then(|| db.snapshot());
    part();
    merge(&db, b"k", b"d");
    let check = |db: &Db, first: Option<&Snapshot>, second: Option<&Snapshot>| {
        let text = |value: Option<Vec<u8>>| String::from_utf8(value.expect("there")).expect("text");
        assert_eq!(text(read_k(db, None)), format!("{prefix}abcd"), "{what}");
        if first.is_some() {
            assert_eq!(text(read_k(db, first)), format!("{prefix}ab"), "{what}");
        }
        if second.is_some() {
            assert_eq!(text(read_k(db, second)), format!("{prefix}abc"), "{what}");
        }
    };
    check(&db, Some(&first), second.as_ref());
    db.flush().expect("flush");
    check(&db, Some(&first), second.as_ref());
    compact(&db);
    check(&db, Some(&first), second.as_ref());
    drop(first);
    compact(&db);
    check(&db, None, second.as_ref());
    drop(second);
    compact(&db);
    check(&db, None, None);
    drop(db);
    check(&open_on(fs, &appending()).expect("reopen"), None, None);
}

#[test]
fn b041_without_an_operator_operands_are_refused_and_kept() {
    let fs = SimFs::new(1);
    let without = by_hand();
    let db = open_on(fs.clone(), &without).expect("open");
    put(&db, b"a", b"1");
    assert_eq!(kind_of(db.merge(&synced(), b"k", b"x")), ErrorKind::InvalidArgument);
    put(&db, b"b", b"2");
    drop(db);
    // With one: operands in the memtable, in tables, and on a base.
    let db = open_on(fs.clone(), &appending()).expect("open with an operator");
    assert_eq!(contents(&db).len(), 2);
    merge(&db, b"k", b"x");
    put(&db, b"m", b"base");
    db.flush().expect("flush");
    merge(&db, b"k", b"y");
    merge(&db, b"m", b"+");
    drop(db);
    // Without: an error for these keys only, through flush and compaction.
    let db = open_on(fs.clone(), &without).expect("open without");
    let refused = |db: &Db| {
        for key in [b"k", b"m"] {
            assert_eq!(kind_of(db.get(&ReadOptions::default(), key)), ErrorKind::InvalidArgument);
        }
        assert_eq!(get(db, b"b").as_deref(), Some(&b"2"[..]));
        assert_eq!(kind_of(db.merge(&synced(), b"k", b"x")), ErrorKind::InvalidArgument);
        let mut iter = db.iter(&ReadOptions::default()).expect("iter");
        iter.seek_to_first().expect("a");
        iter.next().expect("b");
        assert_eq!(kind_of(iter.next()), ErrorKind::InvalidArgument);
        assert!(!iter.valid());
        assert_eq!(kind_of(iter.seek_to_last()), ErrorKind::InvalidArgument);
        iter.seek_for_prev(b"c").expect("past them");
        assert_eq!(iter.key(), b"b");
    };
    refused(&db);
    db.flush().expect("flush");
    refused(&db);
    compact(&db);
    refused(&db);
    db.verify(&mut |_, _| {}).expect("verify");
    drop(db);
    // Another operator is refused; the name outlived the opening without one.
    let other = Options { merge_operator: Some(merge_operator::counter()), ..by_hand() };
    assert_eq!(kind_of(open_on(fs.clone(), &other).map(|_| ())), ErrorKind::InvalidArgument);
    let db = open_on(fs.clone(), &appending()).expect("open with the operator again");
    let all = contents(&db);
    assert_eq!((all[&b"k"[..]].as_slice(), all[&b"m"[..]].as_slice()), (&b"xy"[..], &b"base+"[..]));
    drop(db);
    // A put on top is readable without an operator.
    let db = open_on(fs, &without).expect("open without");
    put(&db, b"k", b"fresh");
    assert_eq!(get(&db, b"k").as_deref(), Some(&b"fresh"[..]));
}

/// Joins operands; a key that begins with "big" gets more than a value may hold, until it is mended.
struct Growing {
    mended: AtomicBool,
}

impl MergeOperator for Growing {
    fn name(&self) -> &str {
        "growing"
    }

    fn full_merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        if key.starts_with(b"big") && !self.mended.load(Ordering::Relaxed) {
            // Zeroes that nobody touches take no memory.
            return Some(vec![0; VALUE_BYTES_MAX + 1]);
        }
        Some([base.as_slice(), operands].concat().concat())
    }
}

#[test]
fn b041_a_result_beyond_the_bound_is_an_error_of_its_key_only() {
    let operator = Arc::new(Growing { mended: AtomicBool::new(false) });
    let db = open_on(SimFs::new(1), &Options { merge_operator: Some(operator.clone()), ..by_hand() })
        .expect("open");
    for key in [&b"a"[..], b"big", b"c"] {
        put(&db, key, b"0");
        db.flush().expect("flush");
        (0..3).for_each(|_| merge(&db, key, b"1"));
    }
    for _ in 0..2 {
        let error = db.get(&ReadOptions::default(), b"big").expect_err("too large");
        assert_eq!(error.kind(), ErrorKind::Callback);
        assert!(error.message().contains("bound"), "{error}");
        for key in [b"a", b"c"] {
            assert_eq!(get(&db, key).as_deref(), Some(&b"0111"[..]));
        }
        compact(&db);
    }
    assert!(db.metrics().levels.iter().map(|level| level.compactions).sum::<u64>() > 0);
    operator.mended.store(true, Ordering::Relaxed);
    assert_eq!(contents(&db).values().filter(|value| **value == b"0111").count(), 3);
}

#[test]
fn b045_a_batch_with_a_merge_is_refused_whole_without_an_operator() {
    let fs = SimFs::new(1);
    let db = open_on(fs.clone(), &by_hand()).expect("open");
    let mut batch = WriteBatch::new();
    batch.put(b"first", b"1").expect("put");
    batch.merge(b"m", b"operand").expect("merge");
    batch.put(b"last", b"1").expect("put");
    assert_eq!(kind_of(db.write(&synced(), batch.clone())), ErrorKind::InvalidArgument);
    assert!(contents(&db).is_empty());
    put(&db, b"goes", b"on");
    drop(db);
    let db = open_on(fs, &appending()).expect("reopen");
    assert_eq!(contents(&db).len(), 1);
    db.write(&synced(), batch).expect("served with an operator");
    assert_eq!(contents(&db).len(), 4);
}

#[test]
fn b067_counters_are_not_counted_twice_by_replay() {
    let fs = SimFs::new(1);
    let options = Options { merge_operator: Some(merge_operator::counter()), ..by_hand() };
    let mut expected = 0u64;
    for opening in 0..6u64 {
        let db = open_on(fs.clone(), &options).expect("open");
        for step in 0..50u64 {
            merge(&db, b"n", &step.to_le_bytes());
            expected += step;
            if step == 20 + opening {
                db.flush().expect("flush");
            }
            if step == 30 && opening % 2 == 1 {
                compact(&db);
            }
        }
        assert_eq!(get(&db, b"n").as_deref(), Some(&expected.to_le_bytes()[..]));
        drop(db);
    }
    let db = open_on(fs, &options).expect("open");
    assert_eq!(get(&db, b"n").as_deref(), Some(&expected.to_le_bytes()[..]));
}

/// Adds up the operands' lengths; counts the operands it was given, and their bytes.
struct Counting {
    partial: bool,
    given: AtomicU64,
    bytes: AtomicU64,
}

impl Counting {
    fn sum(&self, operands: &[&[u8]]) -> Vec<u8> {
        self.given.fetch_add(operands.len() as u64, Ordering::Relaxed);
        let bytes: usize = operands.iter().map(|operand| operand.len()).sum();
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        vec![b'x'; bytes]
    }
}

impl MergeOperator for Counting {
    fn name(&self) -> &str {
        "counting"
    }

    fn full_merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        let mut sum = self.sum(operands);
        sum.extend_from_slice(base.unwrap_or_default());
        Some(sum)
    }

    fn partial_merge(&self, _: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.partial.then(|| self.sum(operands))
    }
}

#[test]
fn b135_the_work_of_a_long_chain_is_linear() {
    let sizes = [(false, 1000u64), (true, 1000), (true, 20_000), (false, 120_000), (true, 120_000)];
    for (partial, n) in sizes {
        let operator = Arc::new(Counting { partial, given: AtomicU64::new(0), bytes: AtomicU64::new(0) });
        let options = Options {
            merge_operator: Some(operator.clone()),
            write_buffer_bytes: 64 << 20,
            log_segment_bytes: 4 << 20,
            ..by_hand()
        };
        let db = open_on(SimFs::new(1), &options).expect("open");
        let mut batch = WriteBatch::new();
        for _ in 0..n {
            batch.merge(b"k", b"12345").expect("merge");
        }
        db.write(&WriteOptions::default(), batch).expect("write");
        let work = |what: &str, act: &dyn Fn()| {
            operator.given.store(0, Ordering::Relaxed);
            operator.bytes.store(0, Ordering::Relaxed);
            act();
            let given = operator.given.load(Ordering::Relaxed);
            assert!(given <= 3 * n, "{what}, {n} operands, partial {partial}: {given} were handed over");
            let bytes = operator.bytes.load(Ordering::Relaxed);
            assert!(bytes <= 8 * 5 * n, "{what}, {n} operands, partial {partial}: {bytes} bytes were");
        };
        let whole = 5 * n as usize;
        let look = || assert_eq!(get(&db, b"k").expect("there").len(), whole);
        work("get", &look);
        assert!(operator.given.load(Ordering::Relaxed) > 0);
        work("scans", &|| {
            let options = ReadOptions::default();
            let mut iter = db.iter(&options).expect("iter");
            iter.seek_to_first().expect("first");
            assert_eq!(iter.value().len(), whole);
            iter.next().expect("next");
            assert!(!iter.valid());
        });
        work("flush", &|| db.flush().expect("flush"));
        look();
        work("compaction", &|| compact(&db));
        look();
        compact(&db);
        compact(&db);
        // What was cut into pieces comes together in the end.
        work("get", &look);
        if partial || n == 1000 {
            assert_eq!(operator.given.load(Ordering::Relaxed), 0, "n {n}, partial {partial}");
        }
    }
}
