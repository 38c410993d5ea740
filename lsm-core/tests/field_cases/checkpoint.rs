//! Checkpoints beside writers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use dialsm_core::options::RecoveryMode;
use dialsm_core::{Db, FlushOptions, Keyspace, Options, ReadOptions, WriteBatch, WriteOptions};

use crate::hostile::{Model, Real, contents, tiny};

const WRITERS: u64 = 8;
const CHECKPOINTS: u64 = 60;

fn counter_key(writer: u64, twin: u8) -> Vec<u8> {
    format!("counter {writer} {twin}").into_bytes()
}

/// Batch `n` of a writer: its two counters, and ballast that makes logs turn over and tables flush.
fn batch(writer: u64, n: u64) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for twin in 0..2 {
        batch.put(&counter_key(writer, twin), &n.to_be_bytes()).expect("put");
    }
    let ballast = format!("ballast {writer} {:03}", n % 100);
    batch.put(ballast.as_bytes(), &[n as u8; 700]).expect("put");
    batch
}

fn counter(model: &Model, writer: u64, twin: u8) -> u64 {
    let bytes = model.get(&counter_key(writer, twin)).map_or(&[0; 8][..], Vec::as_slice);
    u64::from_be_bytes(bytes.try_into().expect("8 bytes"))
}

/// Writers, flushes, compactions and recycled log segments beside checkpoint after checkpoint: each
/// copy opens in the strictest mode, holds all that was acknowledged before it began and every batch
/// whole, and the source is unharmed.
#[test]
fn b085_a_checkpoint_beside_writers_is_one_moment() {
    let real = Real::new();
    let options = Options { log_recycle_max: 3, level0_compaction_trigger: 2, ..tiny() };
    let db = real.open(&options);
    let stop = Arc::new(AtomicBool::new(false));
    let acked: Arc<Vec<AtomicU64>> = Arc::new((0..WRITERS).map(|_| AtomicU64::new(0)).collect());
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (db, stop, acked) = (db.clone(), stop.clone(), acked.clone());
            thread::spawn(move || {
                for n in 1.. {
                    let sync = n % 50 == 0;
                    db.write(&WriteOptions { sync, ..WriteOptions::default() }, batch(writer, n))
                        .expect("write");
                    acked[writer as usize].store(n, Ordering::SeqCst);
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                }
            })
        })
        .collect();
    let strict = Options {
        recovery_mode: RecoveryMode::AbsoluteConsistency,
        create_if_missing: false,
        ..options.clone()
    };
    let (mut log_bytes, mut tables) = (0, 0);
    for n in 0..CHECKPOINTS {
        let before: Vec<u64> = acked.iter().map(|count| count.load(Ordering::SeqCst)).collect();
        let path = real.dir.path().join(format!("copy-{n}"));
        db.checkpoint(&path).expect("checkpoint");
        for entry in std::fs::read_dir(&path).expect("list") {
            let entry = entry.expect("entry");
            let is_log = entry.file_name().to_string_lossy().ends_with(".log");
            log_bytes += if is_log { entry.metadata().expect("metadata").len() } else { 0 };
        }
        // Overwriting goes on in the source while the copy is read.
        let copy = Db::open(real.env.clone(), &path, strict.clone()).expect("the copy opens");
        tables += copy.verify(&mut |_, _| {}).expect("verify").tables;
        let found = contents(&copy);
        for writer in 0..WRITERS {
            let (one, other) = (counter(&found, writer, 0), counter(&found, writer, 1));
            assert_eq!(one, other, "a batch in part");
            assert!(one >= before[writer as usize], "{one} of {}", before[writer as usize]);
            if one > 0 {
                let ballast = found.get(format!("ballast {writer} {:03}", one % 100).as_bytes());
                assert_eq!(ballast.map(|value| value[0]), Some(one as u8), "a batch in part");
            }
        }
        drop(copy);
        std::fs::remove_dir_all(&path).expect("remove");
    }
    stop.store(true, Ordering::SeqCst);
    writers.into_iter().for_each(|writer| writer.join().expect("writer"));
    println!("{tables} tables, {log_bytes} bytes of log, {} compactions", db.compactions());
    assert!(tables > CHECKPOINTS && log_bytes > CHECKPOINTS * 10_000 && db.compactions() > 20);
    drop(db);
    let db = Db::open(real.env.clone(), &real.path(), strict).expect("the source opens");
    db.verify(&mut |_, _| {}).expect("the source verifies");
    let found = contents(&db);
    for writer in 0..WRITERS {
        let count = acked[writer as usize].load(Ordering::SeqCst);
        assert_eq!((counter(&found, writer, 0), counter(&found, writer, 1)), (count, count));
    }
}

/// Batches over two keyspaces beside checkpoints, one of which is flushed often and the other seldom, so that
/// their floors lie in different logs; a copy holds every batch in both or in neither.
#[test]
fn b089_a_checkpoint_holds_two_keyspaces_of_one_moment() {
    const NAMES: [&str; 2] = ["often", "seldom"];
    let number = |db: &Db, keyspace: &Keyspace| {
        let value = db.get_in(&ReadOptions::default(), keyspace, b"n").expect("get");
        value.map_or(0, |value| u64::from_be_bytes(value[..].try_into().expect("8 bytes")))
    };
    let real = Real::new();
    let options = Options { log_recycle_max: 3, ..tiny() };
    let db = real.open(&options);
    let keyspaces = NAMES.map(|name| db.create_keyspace(name, options.keyspace()).expect("create"));
    let stop = Arc::new(AtomicBool::new(false));
    let acked = Arc::new(AtomicU64::new(0));
    let writer = {
        let (db, keyspaces, stop, acked) = (db.clone(), keyspaces.clone(), stop.clone(), acked.clone());
        thread::spawn(move || {
            for n in 1.. {
                let mut batch = WriteBatch::new();
                for keyspace in &keyspaces {
                    batch.put_in(keyspace.id(), b"n", &u64::to_be_bytes(n)).expect("put");
                }
                let ballast = [n as u8; 300];
                batch.put_in(keyspaces[0].id(), &n.to_be_bytes(), &ballast).expect("put");
                db.write(&WriteOptions { sync: n % 100 == 0, ..WriteOptions::default() }, batch)
                    .expect("write");
                acked.store(n, Ordering::SeqCst);
                if n % 40 == 0 {
                    let soon = FlushOptions { wait: false, ..FlushOptions::default() };
                    db.flush_in(&soon, &keyspaces[usize::from(n % 400 == 0)]).expect("flush");
                }
                if stop.load(Ordering::SeqCst) {
                    break;
                }
            }
        })
    };
    let strict = Options {
        recovery_mode: RecoveryMode::AbsoluteConsistency,
        create_if_missing: false,
        ..options.clone()
    };
    let (mut last, mut in_tables) = (0, 0);
    for n in 0..CHECKPOINTS {
        let before = acked.load(Ordering::SeqCst);
        let path = real.dir.path().join(format!("copy-{n}"));
        db.checkpoint(&path).expect("checkpoint");
        let copy = Db::open(real.env.clone(), &path, strict.clone()).expect("the copy opens");
        in_tables += copy.verify(&mut |_, _| {}).expect("verify").tables;
        let found = NAMES.map(|name| number(&copy, &copy.keyspace(name).expect("it is there")));
        assert_eq!(found[0], found[1], "a batch in part");
        assert!(found[0] >= before && found[0] >= last, "{} of {before}", found[0]);
        last = found[0];
        for n in [1, last / 2, last].into_iter().filter(|n| (1..=last).contains(n)) {
            let often = copy.keyspace(NAMES[0]).expect("it is there");
            let ballast = copy.get_in(&ReadOptions::default(), &often, &n.to_be_bytes()).expect("get");
            assert_eq!(ballast.expect("acknowledged")[..], [n as u8; 300]);
        }
        drop(copy);
        std::fs::remove_dir_all(&path).expect("remove");
    }
    stop.store(true, Ordering::SeqCst);
    writer.join().expect("writer");
    println!("{last} batches, {in_tables} tables");
    assert!(last > CHECKPOINTS && in_tables > CHECKPOINTS);
    assert_eq!(keyspaces.each_ref().map(|keyspace| number(&db, keyspace)), [acked.load(Ordering::SeqCst); 2]);
}
