//! Checkpoints are made while threads write across keyspaces and one of those comes and goes: each copy opens
//! and holds every batch whole, no fewer than were acknowledged before the call.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

#[path = "hostile/mod.rs"]
mod hostile;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use dialsm_core::{Db, ErrorKind, Keyspace, ReadOptions, WriteBatch, WriteOptions, merge_operator};
use hostile::{Real, tiny};

const WRITERS: usize = 2;

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    acknowledged: [AtomicU64; WRITERS],
    /// The keyspace that comes and goes.
    fleeting: Mutex<Option<Keyspace>>,
    refused: AtomicU64,
    reborn: AtomicU64,
}

fn key(writer: usize) -> Vec<u8> {
    format!("writer {writer}").into_bytes()
}

/// Batch `n` sets the writer's key in one keyspace and counts it up in the other, behind a range delete of
/// what lies around it.
fn batch(writer: usize, n: u64, steady: u32, fleeting: Option<u32>) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.delete_range(&key(writer), &[&key(writer)[..], &[0]].concat()).expect("delete_range");
    batch.put(&key(writer), &n.to_le_bytes()).expect("put");
    batch.merge_in(steady, &key(writer), &1u64.to_le_bytes()).expect("merge");
    if let Some(id) = fleeting {
        batch.put_in(id, &key(writer), &n.to_le_bytes()).expect("put");
        batch.put_in(id, &n.to_be_bytes(), &[7; 500]).expect("put");
    }
    batch
}

fn write(db: &Db, shared: &Shared, writer: usize, steady: u32) {
    for n in 1.. {
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
        let fleeting = shared.fleeting.lock().expect("no panic").as_ref().map(Keyspace::id);
        let options = WriteOptions::default();
        if let Err(error) = db.write(&options, batch(writer, n, steady, fleeting)) {
            // Dropped just now: nothing of the batch is there.
            assert_eq!(error.kind(), ErrorKind::NotFound);
            shared.refused.fetch_add(1, Ordering::Relaxed);
            db.write(&options, batch(writer, n, steady, None)).expect("write");
        }
        shared.acknowledged[writer].store(n, Ordering::SeqCst);
    }
}

fn come_and_go(db: &Db, shared: &Shared) {
    while !shared.stop.load(Ordering::Relaxed) {
        let keyspace = db.create_keyspace("fleeting", tiny().keyspace()).expect("create");
        *shared.fleeting.lock().expect("no panic") = Some(keyspace.clone());
        std::thread::sleep(std::time::Duration::from_millis(5));
        db.drop_keyspace(&keyspace).expect("drop");
        shared.reborn.fetch_add(1, Ordering::Relaxed);
    }
}

fn number(db: &Db, keyspace: &Keyspace, writer: usize) -> u64 {
    let value = db.get_in(&ReadOptions::default(), keyspace, &key(writer)).expect("get");
    value.map_or(0, |bytes| u64::from_le_bytes(bytes.as_ref().try_into().expect("eight bytes")))
}

/// Fails unless every batch is there whole, up to one that is not before `least`.
fn check(db: &Db, least: &[u64]) {
    let (default, steady) = (db.default_keyspace(), db.keyspace("steady").expect("it stays"));
    for (writer, least) in least.iter().enumerate() {
        let n = number(db, &default, writer);
        assert!(n >= *least, "writer {writer}: {n} where {least} was acknowledged");
        assert_eq!(number(db, &steady, writer), n, "writer {writer}: half a batch");
        if let Some(fleeting) = db.keyspace("fleeting") {
            assert!(number(db, &fleeting, writer) <= n, "writer {writer}: half a batch");
        }
    }
}

#[test]
fn checkpoints_beside_writers_and_a_keyspace_that_comes_and_goes() {
    let real = Real::new();
    let mut options = tiny();
    options.merge_operator = Some(merge_operator::counter());
    let db = real.open(&options);
    let steady = db.create_keyspace("steady", options.keyspace()).expect("create").id();
    let shared = Shared::default();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (db, shared) = (&db, &shared);
            scope.spawn(move || write(db, shared, writer, steady));
        }
        scope.spawn(|| come_and_go(&db, &shared));
        let copy_dir = real.dir.path().join("copy");
        for _ in 0..12 {
            let least: Vec<u64> = shared.acknowledged.iter().map(|n| n.load(Ordering::SeqCst)).collect();
            db.checkpoint(&copy_dir).expect("checkpoint");
            let copy = Db::open(Arc::clone(&real.env), &copy_dir, options.clone()).expect("open");
            check(&copy, &least);
            copy.verify(&mut |_, _| {}).expect("verify");
            drop(copy);
            Db::destroy(real.env.as_ref(), &copy_dir).expect("destroy");
        }
        shared.stop.store(true, Ordering::Relaxed);
    });
    let least: Vec<u64> = shared.acknowledged.iter().map(|n| n.load(Ordering::SeqCst)).collect();
    assert!(least.iter().all(|n| *n > 20) && shared.reborn.load(Ordering::Relaxed) > 3, "{least:?}");
    println!("{least:?}, refused {:?}, reborn {:?}", shared.refused, shared.reborn);
    drop(db);
    let db = real.open(&options);
    check(&db, &least);
    let left: Vec<_> = std::fs::read_dir(real.dir.path()).expect("list").collect();
    assert_eq!(left.len(), 1, "checkpoints left files: {left:?}");
}
