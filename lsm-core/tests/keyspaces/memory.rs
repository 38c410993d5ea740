//! What keyspaces cost: hundreds of them, and the one budget of all memtables.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dialsm_core::{
    Db, ErrorKind, FlushOptions, KeyspaceOptions, Options, ReadOptions, WriteBatch, WriteOptions,
};
use dialsm_io::{Fs, OpKind, SimFs};

use super::open;
use crate::hostile::{DIR, Real, env_on, open_on, put, tiny};

fn names(fs: &SimFs) -> Vec<String> {
    fs.list(Path::new(DIR)).expect("list")
}

fn number(db: &Db, name: &str) -> u64 {
    db.property(name).expect("known").parse().expect("a number")
}

/// Calls on the file system that an opening makes.
fn calls_of_opening(fs: &Arc<SimFs>, options: &Options, named: &[(&str, KeyspaceOptions)]) -> (Db, u64) {
    let calls = Arc::new(AtomicU64::new(0));
    let count = calls.clone();
    fs.add_call_hook(Arc::new(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    }));
    let db = open(env_on(fs.clone()), Path::new(DIR), options, named);
    fs.clear_call_hooks();
    (db, calls.load(Ordering::Relaxed))
}

#[test]
fn five_hundred_keyspaces_cost_kilobytes_and_no_files() {
    const COUNT: usize = 500;
    let options = Options { write_buffer_bytes: 8 << 20, ..tiny() };
    let all: Vec<String> = (0..COUNT).map(|i| format!("keyspace-{i}")).collect();
    let named: Vec<(&str, KeyspaceOptions)> =
        all.iter().map(|name| (name.as_str(), options.keyspace())).collect();
    let (alone, fs) = (SimFs::new(1), SimFs::new(1));
    let (_, calls_alone) = calls_of_opening(&alone, &options, &[]);
    let (db, calls) = calls_of_opening(&fs, &options, &named);
    assert_eq!(names(&fs).len(), names(&alone).len());
    // They come with one record: an opening makes no calls for each.
    assert!(calls <= calls_alone + 2, "{calls} calls, {calls_alone} without keyspaces");
    let idle = number(&db, "dialsm.active-memtable-bytes") / COUNT as u64;
    assert!(idle <= 8 << 10, "an idle keyspace costs {idle} bytes of memtable");
    // One batch for all of them.
    let mut batch = WriteBatch::new();
    for name in &all {
        let id = db.keyspace(name).expect("there").id();
        batch.put_in(id, b"key", name.as_bytes()).expect("put");
    }
    db.write(&WriteOptions { sync: true, ..WriteOptions::default() }, batch).expect("write");
    let used = number(&db, "dialsm.active-memtable-bytes") / COUNT as u64;
    assert!(used <= 12 << 10, "a keyspace with one key costs {used} bytes of memtable");
    drop(db);
    let manifest: u64 = names(&fs)
        .iter()
        .filter(|name| name.starts_with("MANIFEST"))
        .map(|name| fs.open(&Path::new(DIR).join(name), dialsm_io::Access::Read).expect("open"))
        .map(|file| file.len().expect("length"))
        .sum();
    assert!(manifest < COUNT as u64 * 150, "{manifest} bytes of manifest");
    let (db, calls) = calls_of_opening(&fs, &options, &[]);
    assert!(calls < calls_alone + 30, "{calls} calls to open, {calls_alone} without keyspaces");
    for name in &all {
        let keyspace = db.keyspace(name).expect("there");
        let value = db.get_in(&ReadOptions::default(), &keyspace, b"key").expect("get");
        assert_eq!(value.as_deref(), Some(name.as_bytes()));
    }
    db.flush_all(&FlushOptions::default()).expect("flush");
    assert!(names(&fs).iter().filter(|name| name.ends_with(".sst")).count() == COUNT);
    for name in &all {
        db.drop_keyspace(&db.keyspace(name).expect("there")).expect("drop");
    }
    db.close().expect("close");
    drop(db);
    let db = open_on(fs.clone(), &options).expect("reopen");
    assert_eq!(db.keyspaces(), ["default"]);
    assert!(!names(&fs).iter().any(|name| name.ends_with(".sst")), "{:?}", names(&fs));
}

/// Each memtable stays far below its own bound; together they would be 64 times the budget.
#[test]
fn all_memtables_together_keep_their_budget() {
    const LIMIT: u64 = 1 << 20;
    let options = Options {
        write_buffer_bytes: LIMIT,
        write_buffers_total_bytes: LIMIT,
        log_total_bytes_max: 1 << 30,
        ..tiny()
    };
    let real = Real::new();
    let all: Vec<String> = (0..64).map(|i| format!("k{i}")).collect();
    let named: Vec<(&str, KeyspaceOptions)> =
        all.iter().map(|name| (name.as_str(), options.keyspace())).collect();
    let db = open(real.env.clone(), &real.path(), &options, &named);
    let (done, most) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut pins = Vec::new();
            while !done.load(Ordering::Relaxed) {
                most.fetch_max(number(&db, "dialsm.all-memtables-bytes"), Ordering::Relaxed);
                // Pinned memtables are no reason to keep writers waiting.
                let keyspace = db.keyspace(&all[pins.len() % 64]).expect("there");
                if pins.len() < 64 {
                    pins.push(db.iter_in(&ReadOptions::default(), &keyspace).expect("iter"));
                }
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            pins.len()
        });
        let writers: Vec<_> = (0..4u32)
            .map(|thread| {
                let (db, all) = (&db, &all);
                scope.spawn(move || {
                    for i in 0..4000u32 {
                        let keyspace = db.keyspace(&all[(i * 4 + thread) as usize % 64]).expect("there");
                        let key = [thread.to_be_bytes(), i.to_be_bytes()].concat();
                        db.put_in(&WriteOptions::default(), &keyspace, &key, &[7; 500]).expect("put");
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().expect("writer"));
        done.store(true, Ordering::Relaxed);
        assert!(watcher.join().expect("watcher") > 0);
    });
    let most = most.load(Ordering::Relaxed);
    let flushes = db.metrics().counters.flushes;
    println!("at most {most} bytes, {flushes} flushes");
    assert!(flushes > 20, "{flushes} flushes");
    // A group that was admitted goes in; groups are small here.
    assert!(most > LIMIT / 2 && most <= LIMIT + LIMIT / 2, "{most} bytes of memtables, {LIMIT} allowed");
    db.wait_until_idle().expect("idle");
    for name in &all {
        let keyspace = db.keyspace(name).expect("there");
        let keys = db.property_in(&keyspace, "dialsm.estimate-num-keys").expect("there").expect("known");
        assert_eq!(keys, "250", "{name}");
    }
}

/// One batch passes the budget at once, and no group comes that could switch a memtable: the writer that
/// waits sees to it.
#[test]
fn a_batch_beyond_the_budget_stops_nobody_for_good() {
    let options = Options { write_buffer_bytes: 1 << 20, write_buffers_total_bytes: 1 << 20, ..tiny() };
    let real = Real::new();
    let db = real.open(&options);
    let keyspace = db.create_keyspace("x", options.keyspace()).expect("create");
    for round in 0..5u32 {
        for id in [0, keyspace.id()] {
            let mut batch = WriteBatch::new();
            for i in 0..900u32 {
                batch.put_in(id, &[round.to_be_bytes(), i.to_be_bytes()].concat(), &[7; 1000]).expect("put");
            }
            db.write(&WriteOptions::default(), batch).expect("write");
        }
        put(&db, b"goes on", &round.to_be_bytes());
    }
    assert!(db.stalls().all.count > 0, "no write waited");
    db.wait_until_idle().expect("idle");
    assert!(db.metrics().counters.flushes > 3);
}

#[test]
fn a_full_budget_is_a_stall_like_any_other() {
    let fs = SimFs::new(1);
    let faults = dialsm_io::FaultFs::new(fs);
    let options = Options { write_buffer_bytes: 64 << 10, write_buffers_total_bytes: 64 << 10, ..tiny() };
    let db = open_on(faults.clone(), &options).expect("open");
    let keyspace = db.create_keyspace("x", options.keyspace()).expect("create");
    // No flush succeeds while the disk is full for tables.
    faults.add(dialsm_io::Rule::every(OpKind::Create, dialsm_io::Fault::Errno(libc::ENOSPC)).on(".sst"));
    let write = WriteOptions { no_slowdown: true, ..WriteOptions::default() };
    let mut kinds = Vec::new();
    for i in 0..1000u32 {
        let result = db.put_in(&write, &keyspace, &i.to_be_bytes(), &[7; 500]);
        if let Err(error) = result {
            kinds.push(error.kind());
            break;
        }
    }
    assert!(matches!(kinds[..], [ErrorKind::WouldStall | ErrorKind::NoSpace]), "{kinds:?}");
    faults.clear();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        match db.put_in(&WriteOptions::default(), &keyspace, b"k", b"v") {
            Ok(()) => break,
            // Until the flush is tried again.
            Err(error) => assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}"),
        }
        assert!(std::time::Instant::now() < deadline, "writing does not resume");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    db.wait_until_idle().expect("idle");
}
