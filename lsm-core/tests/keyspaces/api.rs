//! Names, handles, options, and what is listed without opening.

use std::path::Path;
use std::sync::Arc;

use dialsm_core::{
    CompactRangeOptions, Db, ErrorKind, FlushOptions, KeyspaceOptions, Options, ReadOptions, WriteBatch,
    WriteOptions,
};
use dialsm_io::{CrashPolicy, SimFs};

use super::{open, reversed, world};
use crate::hostile::{DIR, Real, by_hand, contents, env_on, get, kind_of, open_on, put, tiny};

#[test]
fn names_that_would_not_do() {
    let fs = SimFs::new(1);
    let db = open_on(fs.clone(), &tiny()).expect("open");
    let long = "x".repeat(256);
    for name in ["", "a\0b", "line\nbreak", "\u{7f}", long.as_str()] {
        assert_eq!(kind_of(db.create_keyspace(name, KeyspaceOptions::default())), ErrorKind::InvalidArgument);
    }
    let before = dialsm_io::Fs::list(fs.as_ref(), Path::new(DIR)).expect("list").len();
    let strange = [".", "..", "a/b", "/etc/x", "A", "a", "ключи", " ", &long[..255]];
    for name in strange {
        let keyspace = db.create_keyspace(name, tiny().keyspace()).expect("legal");
        db.put_in(&WriteOptions::default(), &keyspace, b"k", name.as_bytes()).expect("put");
    }
    for name in strange.iter().chain(&["default"]) {
        let again = db.create_keyspace(name, KeyspaceOptions::default());
        assert_eq!(kind_of(again), ErrorKind::AlreadyExists, "{name}");
    }
    // The log's first segment, and nothing else: no file is named after a keyspace.
    let after = dialsm_io::Fs::list(fs.as_ref(), Path::new(DIR)).expect("list").len();
    assert_eq!(after, before + 1);
    drop(db);
    let db = open_on(fs, &tiny()).expect("reopen");
    for name in strange {
        let keyspace = db.keyspace(name).expect("it is there");
        let value = db.get_in(&ReadOptions::default(), &keyspace, b"k").expect("get");
        assert_eq!(value.as_deref(), Some(name.as_bytes()));
    }
    assert!(db.keyspace("b").is_none() && db.keyspace("").is_none());
}

#[test]
fn handles_of_another_database_or_opening() {
    let (one, two) = (Real::new(), Real::new());
    let (a, b) = (one.open(&tiny()), two.open(&tiny()));
    let foreign = a.create_keyspace("x", tiny().keyspace()).expect("create");
    b.create_keyspace("x", tiny().keyspace()).expect("create");
    let (write, read) = (WriteOptions::default(), ReadOptions::default());
    for keyspace in [&foreign, &a.default_keyspace()] {
        let results = [
            b.put_in(&write, keyspace, b"k", b"v").err(),
            b.get_in(&read, keyspace, b"k").err(),
            b.iter_in(&read, keyspace).err(),
            b.iters(&read, &[&b.default_keyspace(), keyspace]).err(),
            b.multi_get_in(&read, keyspace, &[]).err(),
            b.flush_in(&FlushOptions::default(), keyspace).err(),
            b.compact_range_in(&CompactRangeOptions::default(), keyspace, None, None).err(),
            b.stalls_in(keyspace).err(),
        ];
        for (i, error) in results.iter().enumerate() {
            let kind = error.as_ref().map(|e| e.kind());
            assert_eq!(kind, Some(ErrorKind::InvalidArgument), "call {i}: {error:?}");
        }
    }
    assert_eq!(kind_of(b.drop_keyspace(&foreign)), ErrorKind::InvalidArgument);
    a.close().expect("close");
    assert_eq!(kind_of(a.put_in(&write, &foreign, b"k", b"v")), ErrorKind::Closed);
    assert_eq!(kind_of(a.get_in(&read, &foreign, b"k")), ErrorKind::Closed);
    assert_eq!(kind_of(a.create_keyspace("y", tiny().keyspace())), ErrorKind::Closed);
    assert_eq!(kind_of(a.drop_keyspace(&foreign)), ErrorKind::Closed);
    drop(a);
    let a = one.open(&tiny());
    assert_eq!(kind_of(a.get_in(&read, &foreign, b"k")), ErrorKind::InvalidArgument);
}

#[test]
fn a_batch_with_an_unknown_keyspace_is_refused_before_it_is_logged() {
    let fs = SimFs::new(1);
    let db = open_on(fs.clone(), &by_hand()).expect("open");
    let gone = db.create_keyspace("gone", by_hand().keyspace()).expect("create");
    db.put_in(&WriteOptions::default(), &gone, b"k", b"v").expect("put");
    db.drop_keyspace(&gone).expect("drop");
    let (bytes, last) = (db.metrics().counters.log_bytes, db.snapshot().seqno());
    for id in [gone.id(), gone.id() + 1, u32::MAX] {
        let mut batch = WriteBatch::new();
        batch.put(b"first", b"1").expect("put");
        batch.put_in(id, b"k", b"2").expect("put");
        assert_eq!(kind_of(db.write(&WriteOptions::default(), batch)), ErrorKind::NotFound);
    }
    assert_eq!((db.metrics().counters.log_bytes, db.snapshot().seqno()), (bytes, last));
    put(&db, b"goes on", b"3");
    drop(db);
    let db = open_on(fs, &by_hand()).expect("reopen");
    assert_eq!(contents(&db).len(), 1);
    assert_eq!(db.keyspaces(), ["default"]);
}

#[test]
fn options_and_comparators_at_open() {
    let real = Real::new();
    let options = tiny();
    let db = real.open(&options);
    db.create_keyspace("back", reversed(&options)).expect("create");
    let small = KeyspaceOptions { block_bytes: 1024, ..options.keyspace() };
    db.create_keyspace("small", small.clone()).expect("create");
    for (key, name) in [(b"a", "back"), (b"b", "back"), (b"a", "small"), (b"b", "small")] {
        let keyspace = db.keyspace(name).expect("there");
        db.put_in(&WriteOptions::default(), &keyspace, key, name.as_bytes()).expect("put");
    }
    let mut iter = db.iter_in(&ReadOptions::default(), &db.keyspace("back").expect("there")).expect("iter");
    iter.seek_to_first().expect("first");
    assert_eq!(iter.key(), b"b");
    drop(iter);
    let before = world(&db);
    drop(db);
    let try_open = |named: &[(&str, KeyspaceOptions)]| {
        Db::open_with(real.env.clone(), &real.path(), options.clone(), named)
    };
    let refused = |named: &[(&str, KeyspaceOptions)]| try_open(named).map(drop);
    let error = refused(&[]).expect_err("the default's comparator is another");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("\"back\"") && error.message().contains("dialsm.reverse-bytewise"));
    let back = ("back", reversed(&options));
    let wrong = KeyspaceOptions { write_buffers_max: 1, ..options.keyspace() };
    for (named, text) in [
        (vec![back.clone(), back.clone()], "named twice"),
        (vec![back.clone(), ("default", options.keyspace())], "default"),
        (vec![back.clone(), ("small", wrong)], "write_buffers_max"),
        (vec![back.clone(), ("small", reversed(&options))], "comparator"),
        (vec![back.clone(), ("", options.keyspace())], "name"),
    ] {
        let error = refused(&named).expect_err(text);
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.message().contains(text), "{error}");
    }
    let db = try_open(std::slice::from_ref(&back)).expect("open");
    assert!(world(&db) == before);
    assert_eq!(db.keyspace("small").expect("there").options().block_bytes, options.block_bytes);
    drop(db);
    let db = try_open(&[back, ("small", small)]).expect("open");
    let keyspace = db.keyspace("small").expect("there");
    assert_eq!(keyspace.options().block_bytes, 1024);
    let text = db.property_in(&keyspace, "dialsm.options").expect("there").expect("known");
    assert!(text.contains("block_bytes = 1K") && !text.contains("block_cache_bytes"), "{text}");
}

#[test]
fn opening_creates_what_is_named_and_missing() {
    let fs = SimFs::new(1);
    let options = tiny();
    let named = [("x", options.keyspace()), ("y", reversed(&options))];
    let closed = Options { create_if_missing: false, ..options.clone() };
    drop(open_on(fs.clone(), &options).expect("create"));
    let refused = Db::open_with(env_on(fs.clone()), Path::new(DIR), closed.clone(), &named);
    assert_eq!(kind_of(refused.map(drop)), ErrorKind::NotFound);
    let db = open(env_on(fs.clone()), Path::new(DIR), &options, &named);
    assert_eq!(db.keyspaces(), ["default", "x", "y"]);
    // Durable: the opening has synced its manifest.
    let image = fs.crash_image(CrashPolicy::DropUnsynced);
    drop(db);
    for fs in [fs, image] {
        let names = Db::list_keyspaces(env_on(fs.clone()).as_ref(), Path::new(DIR)).expect("list");
        assert_eq!(names, ["default", "x", "y"]);
        let db = Db::open_with(env_on(fs), Path::new(DIR), closed.clone(), &named).expect("they are there");
        assert_eq!(db.keyspace("y").expect("there").id(), 2);
    }
}

#[test]
fn listing_needs_no_opening_and_no_closing() {
    let fs = SimFs::new(1);
    let env = env_on(fs.clone());
    let list = || Db::list_keyspaces(env.as_ref(), Path::new(DIR));
    assert_eq!(kind_of(list()), ErrorKind::NotFound);
    let db = open_on(fs.clone(), &tiny()).expect("open");
    assert_eq!(list().expect("list"), ["default"]);
    let a = db.create_keyspace("a", tiny().keyspace()).expect("create");
    db.create_keyspace("b", tiny().keyspace()).expect("create");
    assert_eq!(list().expect("list"), ["default", "a", "b"]);
    db.drop_keyspace(&a).expect("drop");
    assert_eq!(list().expect("list"), ["default", "b"]);
    assert_eq!(db.keyspaces(), ["default", "b"]);
}

#[test]
fn a_drop_gives_files_and_memory_back() {
    let fs = SimFs::new(1);
    let options = tiny();
    let db = open_on(fs.clone(), &options).expect("open");
    let tables = || {
        let names = dialsm_io::Fs::list(fs.as_ref(), Path::new(DIR)).expect("list");
        names.iter().filter(|name| name.ends_with(".sst")).count()
    };
    let keyspace = db.create_keyspace("x", options.keyspace()).expect("create");
    let number = |name: &str| db.property(name).expect("known").parse::<u64>().expect("a number");
    for i in 0..2000u32 {
        db.put_in(&WriteOptions::default(), &keyspace, &i.to_be_bytes(), &[7; 200]).expect("put");
    }
    put(&db, b"stays", b"here");
    db.flush_all(&FlushOptions::default()).expect("flush");
    db.put_in(&WriteOptions::default(), &keyspace, b"late", &[7; 9000]).expect("put");
    put(&db, b"late", b"here");
    let mut iter = db.iter_in(&ReadOptions::default(), &keyspace).expect("iter");
    db.drop_keyspace(&keyspace).expect("drop");
    assert!(tables() > 3, "the iterator holds them");
    assert_eq!(super::drain(&mut iter).expect("scan").len(), 2001);
    drop(iter);
    db.wait_until_idle().expect("idle");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    // Those of the other keyspace; two without shards.
    let live = || (0..7).map(|l| number(&format!("dialsm.num-files-at-level{l}"))).sum::<u64>() as usize;
    while tables() > live() && std::time::Instant::now() < deadline {
        // A worker buries them when it looks for work next.
        db.flush().expect("flush");
    }
    assert_eq!(tables(), live());
    assert!(number("dialsm.all-memtables-bytes") < 64 << 10);
    assert_eq!(get(&db, b"stays").as_deref(), Some(&b"here"[..]));
    drop(db);
    let db = open_on(fs, &options).expect("reopen");
    assert_eq!(db.keyspaces(), ["default"]);
    assert_eq!(contents(&db).len(), 2);
}

#[test]
fn properties_are_those_of_the_keyspace_and_their_sums() {
    let real = Real::new();
    let db = real.open(&by_hand());
    let x = db.create_keyspace("x", by_hand().keyspace()).expect("create");
    for i in 0..10u8 {
        put(&db, &[i], b"v");
        db.put_in(&WriteOptions::default(), &x, &[i], b"v").expect("put");
        db.put_in(&WriteOptions::default(), &x, &[100 + i], b"v").expect("put");
    }
    let name = "dialsm.num-entries-active-memtable";
    let default = db.default_keyspace();
    let of = |keyspace| db.property_in(keyspace, name).expect("there").expect("known");
    assert_eq!((of(&default).as_str(), of(&x).as_str()), ("10", "20"));
    assert_eq!(db.property(name).as_deref(), Some("30"));
    db.flush_in(&FlushOptions::default(), &x).expect("flush");
    assert_eq!(of(&x), "0");
    assert_eq!(of(&default), "10", "a flush of one leaves the others alone");
    assert_eq!(db.property("dialsm.estimate-num-keys").as_deref(), Some("30"));
    assert_eq!(db.property("dialsm.num-keyspaces").as_deref(), Some("2"));
    assert_eq!(db.property("dialsm.num-files-at-level0").as_deref(), Some("1"));
    for name in Db::properties().iter().filter(|name| !name.contains('<')) {
        assert!(db.property(name).is_some(), "{name}");
        assert!(db.property_in(&x, name).expect("there").is_some(), "{name}");
    }
    assert_eq!(db.property_in(&x, "no.such").expect("there"), None);
    assert_eq!(db.stalls_in(&x).expect("there").all.count, db.stalls().all.count);
}

/// Creations and drops race writes, reads, flushes and each other.
#[test]
fn everything_at_once() {
    let real = Real::new();
    let db = real.open(&tiny());
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = || stop.load(std::sync::atomic::Ordering::Relaxed);
    let (cycles, written) = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2u8)
            .map(|thread| {
                let (db, stopped) = (&db, &stopped);
                scope.spawn(move || {
                    let mut written = 0u64;
                    while !stopped() {
                        let mut batch = WriteBatch::new();
                        batch.put(&[thread], &written.to_be_bytes()).expect("put");
                        for name in ["x", "y"] {
                            if let Some(keyspace) = db.keyspace(name) {
                                batch.put_in(keyspace.id(), &[thread], &[5; 700]).expect("put");
                            }
                        }
                        match db.write(&WriteOptions::default(), batch) {
                            Ok(()) => written += 1,
                            Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error}"),
                        }
                    }
                    written
                })
            })
            .collect();
        let changers: Vec<_> = ["x", "y"]
            .map(|name| {
                let (db, stopped) = (&db, &stopped);
                scope.spawn(move || {
                    let mut cycles = 0u64;
                    while !stopped() || cycles < 20 {
                        let keyspace = db.create_keyspace(name, tiny().keyspace()).expect("create");
                        let read = ReadOptions::default();
                        let mut iter = db.iter_in(&read, &keyspace).expect("iter");
                        while db.get_in(&read, &keyspace, &[0]).expect("get").is_none() && !stopped() {}
                        if cycles.is_multiple_of(3) {
                            db.flush_in(&FlushOptions::default(), &keyspace).expect("flush");
                        }
                        db.drop_keyspace(&keyspace).expect("drop");
                        super::drain(&mut iter).expect("scan");
                        cycles += 1;
                    }
                    cycles
                })
            })
            .into_iter()
            .collect();
        std::thread::sleep(std::time::Duration::from_millis(1500));
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let cycles: u64 = changers.into_iter().map(|t| t.join().expect("changer")).sum();
        (cycles, writers.into_iter().map(|t| t.join().expect("writer")).sum::<u64>())
    });
    println!("{cycles} keyspaces came and went under {written} writes");
    assert!(cycles >= 40 && written > 100);
    db.wait_until_idle().expect("idle");
    db.verify(&mut |_, _| {}).expect("verify");
    drop(db);
    assert_eq!(real.open(&tiny()).keyspaces(), ["default"]);
}
