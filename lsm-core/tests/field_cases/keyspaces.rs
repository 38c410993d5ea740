//! Keyspaces: uneven ones in the log, new ones at a crash, names and handles, many of them, budgets.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dialsm_core::{
    Db, ErrorKind, FlushOptions, Keyspace, KeyspaceOptions, Options, ReadOptions, WriteBatch, WriteOptions,
};
use dialsm_io::{CrashPolicy, Fault, FaultFs, OpKind, Rule, SimFs};

use crate::hostile::{DIR, by_hand, env_on, kind_of, open_on, synced, tiny};

fn create(db: &Db, name: &str) -> Keyspace {
    db.create_keyspace(name, db.options().keyspace()).expect("create")
}

fn there(db: &Db, name: &str) -> Keyspace {
    db.keyspace(name).expect("it is there")
}

fn count(db: &Db, keyspace: &Keyspace) -> usize {
    let mut iter = db.iter_in(&ReadOptions::default(), keyspace).expect("iter");
    let mut n = 0;
    iter.seek_to_first().expect("first");
    while iter.valid() {
        n += 1;
        iter.next().expect("next");
    }
    n
}

fn put_in(db: &Db, options: &WriteOptions, keyspace: &Keyspace, n: u32) {
    db.put_in(options, keyspace, &n.to_be_bytes(), &[7; 600]).expect("put");
}

#[test]
fn b031_a_snapshot_and_an_iterator_over_a_dropped_keyspace() {
    let db = open_on(SimFs::new(1), &tiny()).expect("open");
    let (x, y) = (create(&db, "x"), create(&db, "y"));
    for n in 0..1000 {
        put_in(&db, &WriteOptions::default(), &x, n);
        put_in(&db, &WriteOptions::default(), &y, n);
    }
    db.flush_all(&FlushOptions::default()).expect("flush");
    let snapshot = db.snapshot();
    let at = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::default() };
    let mut iters = db.iters(&at, &[&x, &y]).expect("iterators");
    db.drop_keyspace(&x).expect("drop");
    for n in 0..1000 {
        db.delete_in(&WriteOptions::default(), &y, &u32::to_be_bytes(n)).expect("delete");
    }
    db.flush_all(&FlushOptions::default()).expect("flush");
    db.compact_range_in(&Default::default(), &y, None, None).expect("compact");
    for iter in &mut iters {
        for _ in 0..2 {
            let mut n = 0;
            iter.seek_to_first().expect("first");
            while iter.valid() {
                n += 1;
                iter.next().expect("next");
            }
            assert_eq!(n, 1000);
        }
    }
    // A new read of what is gone is an error, not an empty keyspace.
    assert_eq!(kind_of(db.get_in(&at, &x, b"k")), ErrorKind::NotFound);
    assert!(db.get_in(&at, &y, &5u32.to_be_bytes()).expect("get").is_some());
    assert_eq!(count(&db, &y), 0);
}

#[test]
fn b049_a_failed_log_write_leaves_its_batch_in_no_keyspace() {
    for (torn, errno) in [(0, libc::EIO), (40, libc::EIO), (90, libc::ENOSPC), (4000, libc::EIO)] {
        let fs = SimFs::new(1);
        let faults = FaultFs::new(fs.clone());
        let db = open_on(faults.clone(), &by_hand()).expect("open");
        let (x, y) = (create(&db, "x"), create(&db, "y"));
        put_in(&db, &synced(), &x, 0);
        put_in(&db, &synced(), &y, 0);
        faults.add(Rule::nth(OpKind::Write, 1, Fault::TornWrite(torn, errno)).on(".log"));
        let mut batch = WriteBatch::new();
        for n in 1..4u32 {
            batch.put_in(x.id(), &n.to_be_bytes(), &[1; 300]).expect("put");
            batch.put_in(y.id(), &n.to_be_bytes(), &[1; 300]).expect("put");
        }
        assert!(db.write(&WriteOptions::default(), batch).is_err());
        assert_eq!((count(&db, &x), count(&db, &y)), (1, 1), "nothing of it is visible");
        let _ = db.flush_in(&FlushOptions::default(), &x);
        for policy in [CrashPolicy::DropUnsynced, CrashPolicy::KeepAll] {
            let db = open_on(fs.crash_image(policy), &by_hand()).expect("open after the crash");
            let counts = (count(&db, &there(&db, "x")), count(&db, &there(&db, "y")));
            assert!(counts == (1, 1) || counts == (4, 4), "{torn} {policy:?}: {counts:?}");
        }
    }
}

/// A batch of two keyspaces that no sync has seen yet, and a flush of one of them: the other half must
/// not be lost alone.
#[test]
fn b049_a_flush_of_one_keyspace_tears_no_batch_apart() {
    for by_compaction in [false, true] {
        let fs = SimFs::new(1);
        let db = open_on(fs.clone(), &by_hand()).expect("open");
        let (x, y) = (create(&db, "x"), create(&db, "y"));
        let mut batch = WriteBatch::new();
        for n in 0..4u32 {
            batch.put_in(x.id(), &n.to_be_bytes(), &[1; 300]).expect("put");
            batch.put_in(y.id(), &n.to_be_bytes(), &[1; 300]).expect("put");
        }
        db.write(&WriteOptions::default(), batch).expect("write");
        match by_compaction {
            false => db.flush_in(&FlushOptions::default(), &x).expect("flush"),
            true => db.compact_range_in(&Default::default(), &x, None, None).expect("compact"),
        }
        let policies = [CrashPolicy::DropUnsynced, CrashPolicy::KeepAll];
        for policy in policies.into_iter().chain((0..20).map(CrashPolicy::Random)) {
            let db = open_on(fs.crash_image(policy), &by_hand()).expect("open after the crash");
            let counts = (count(&db, &there(&db, "x")), count(&db, &there(&db, "y")));
            assert_eq!(counts, (4, 4), "{policy:?}");
        }
    }
}

#[test]
fn b053_one_keyspace_is_written_much_more_than_the_other() {
    let fs = SimFs::new(1);
    let options = Options { write_buffers_max: 8, ..tiny() };
    let db = open_on(fs.clone(), &options).expect("open");
    let (much, little) = (create(&db, "much"), create(&db, "little"));
    for n in 0..4000u32 {
        let keyspace = if n % 100 == 0 { &little } else { &much };
        put_in(&db, &WriteOptions::default(), keyspace, n);
    }
    let killed = fs.crash_image(CrashPolicy::KeepAll);
    db.close().expect("close");
    drop(db);
    for (fs, how) in [(killed, "killed"), (fs, "closed")] {
        let db = open_on(fs, &options).expect("reopen");
        assert_eq!((count(&db, &there(&db, "much")), count(&db, &there(&db, "little"))), (3960, 40), "{how}");
    }
}

#[test]
fn b063_every_way_to_open_keeps_what_was_synced() {
    let fs = SimFs::new(1);
    let db = open_on(fs.clone(), &tiny()).expect("open");
    let (a, b) = (create(&db, "a"), create(&db, "b"));
    for n in 0..50 {
        put_in(&db, &synced(), &a, n);
        put_in(&db, &synced(), &b, n);
    }
    let killed = fs.crash_image(CrashPolicy::DropUnsynced);
    drop(db);
    let own = |name| (name, tiny().keyspace());
    let ways: [&[(&str, KeyspaceOptions)]; 5] =
        [&[], &[own("a"), own("b")], &[own("b"), own("a")], &[own("a")], &[own("a"), own("b"), own("new")]];
    for (i, first) in ways.iter().enumerate() {
        for (j, then) in ways.iter().enumerate() {
            let mut fs = killed.crash_image(CrashPolicy::KeepAll);
            for named in [first, then] {
                let env = env_on(fs.clone());
                let db = Db::open_with(env, Path::new(DIR), tiny(), named).expect("open");
                assert_eq!((count(&db, &there(&db, "a")), count(&db, &there(&db, "b"))), (50, 50), "{i} {j}");
                // Killed again, at once.
                fs = fs.crash_image(CrashPolicy::DropUnsynced);
                drop(db);
            }
            let names = Db::list_keyspaces(env_on(fs).as_ref(), Path::new(DIR)).expect("list");
            assert_eq!(names.contains(&"new".to_owned()), i == 4 || j == 4, "{i} {j}");
        }
    }
}

#[test]
fn b065_a_new_keyspace_just_before_a_full_disk_and_a_crash() {
    for torn in [0, 30, 200] {
        let fs = SimFs::new(1);
        let faults = FaultFs::new(fs.clone());
        let db = open_on(faults.clone(), &by_hand()).expect("open");
        let a = create(&db, "a");
        put_in(&db, &synced(), &a, 0);
        put_in(&db, &synced(), &db.default_keyspace(), 0);
        db.flush_in(&FlushOptions::default(), &a).expect("flush");
        let b = create(&db, "b");
        faults.add(Rule::nth(OpKind::Write, 1, Fault::TornWrite(torn, libc::ENOSPC)).on(".log"));
        let full = db.put_in(&WriteOptions::default(), &b, b"k", &[7; 500]);
        assert_eq!(kind_of(full), ErrorKind::NoSpace);
        // The next write begins another segment, which the crash leaves empty or not.
        let _ = db.put_in(&WriteOptions::default(), &b, b"k", b"v");
        for policy in [CrashPolicy::DropUnsynced, CrashPolicy::KeepAll] {
            let db = open_on(fs.crash_image(policy), &by_hand()).expect("open after the crash");
            assert_eq!(db.keyspaces(), ["default", "a", "b"]);
            assert_eq!((count(&db, &there(&db, "a")), count(&db, &db.default_keyspace())), (1, 1));
            assert!(count(&db, &there(&db, "b")) <= 1);
        }
    }
}

#[test]
fn b115_dropping_gives_back_what_many_keyspaces_took() {
    let options = Options { write_buffer_bytes: 1 << 20, ..tiny() };
    let fs = SimFs::new(1);
    let db = open_on(fs.clone(), &options).expect("open");
    let number = |db: &Db, name| db.property(name).expect("known").parse::<u64>().expect("a number");
    for round in [10u32, 100, 300] {
        let all: Vec<Keyspace> = (0..round).map(|i| create(&db, &format!("k{i}"))).collect();
        all.iter().for_each(|keyspace| put_in(&db, &WriteOptions::default(), keyspace, 1));
        let bytes = number(&db, "dialsm.all-memtables-bytes");
        assert!(bytes <= u64::from(round + 1) * (12 << 10), "{round} keyspaces: {bytes} bytes");
        assert_eq!(number(&db, "dialsm.num-keyspaces"), u64::from(round) + 1);
        all.iter().for_each(|keyspace| db.drop_keyspace(keyspace).expect("drop"));
        assert!(number(&db, "dialsm.all-memtables-bytes") < 12 << 10);
        assert_eq!(number(&db, "dialsm.num-keyspaces"), 1);
    }
}

#[test]
fn b117_existing_unknown_and_strange_keyspaces() {
    let fs = SimFs::new(1);
    let db = open_on(fs.clone(), &tiny()).expect("open");
    let a = create(&db, "a");
    create(&db, "A");
    assert_eq!(kind_of(db.create_keyspace("a", KeyspaceOptions::default())), ErrorKind::AlreadyExists);
    assert_eq!(kind_of(db.create_keyspace("default", KeyspaceOptions::default())), ErrorKind::AlreadyExists);
    for bad in ["", "a\0", &"n".repeat(300)] {
        assert_eq!(kind_of(db.create_keyspace(bad, KeyspaceOptions::default())), ErrorKind::InvalidArgument);
    }
    for odd in [".", "..", "../../x", "CURRENT", "000001.log"] {
        create(&db, odd);
    }
    assert!(db.keyspace("unknown").is_none());
    put_in(&db, &synced(), &a, 1);
    drop(db);
    // A subset of what is there: the rest is open all the same.
    let named = [("A", tiny().keyspace())];
    let db = Db::open_with(env_on(fs.clone()), Path::new(DIR), tiny(), &named).expect("open");
    assert_eq!(count(&db, &there(&db, "a")), 1);
    assert_eq!(db.keyspaces().len(), 8);
    assert_eq!(dialsm_io::Fs::list(fs.as_ref(), Path::new("/")).expect("list"), ["db"]);
}

#[test]
fn b127_full_memtables_of_many_keyspaces_after_a_crash() {
    for keyspaces in [1usize, 3, 8] {
        let before = Options { write_buffers_max: 7, write_buffer_bytes: 256 << 10, ..tiny() };
        let fs = SimFs::new(1);
        let db = open_on(fs.clone(), &before).expect("open");
        let all: Vec<Keyspace> = (0..keyspaces).map(|i| create(&db, &format!("k{i}"))).collect();
        for n in 0..3000u32 {
            put_in(&db, &WriteOptions::default(), &all[n as usize % keyspaces], n);
        }
        let image = fs.crash_image(CrashPolicy::KeepAll);
        drop(db);
        let after = Options {
            write_buffer_bytes: 64 << 10,
            write_buffers_total_bytes: 128 << 10,
            background_jobs_max: 2,
            ..tiny()
        };
        let db = open_on(image, &after).expect("reopen");
        let (slowest, done) = (parking_lot::Mutex::new(Duration::ZERO), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for thread in 0..4u32 {
                let (db, slowest, done) = (&db, &slowest, &done);
                scope.spawn(move || {
                    for n in 0..300u32 {
                        let keyspace = there(db, &format!("k{}", n as usize % keyspaces));
                        let started = Instant::now();
                        put_in(db, &WriteOptions::default(), &keyspace, 1 << 20 | thread << 16 | n);
                        let mut slowest = slowest.lock();
                        *slowest = slowest.max(started.elapsed());
                    }
                    done.store(true, Ordering::Relaxed);
                });
            }
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    db.flush_all(&FlushOptions::default()).expect("flush");
                }
            });
        });
        // A write that hangs does not end; this is far above what any should take.
        assert!(*slowest.lock() < Duration::from_secs(60), "{:?}", slowest.lock());
        db.wait_until_idle().expect("idle");
        assert_eq!(db.property("dialsm.num-immutable-memtables").as_deref(), Some("0"));
        let total: usize = db.keyspaces().iter().map(|name| count(&db, &there(&db, name))).sum();
        assert_eq!(total, 3000 + 1200);
    }
}

/// Every memtable is small and active when the budget is passed; the flush of one fails once.
#[test]
fn b129_the_common_budget_always_finds_a_memtable_to_flush() {
    let fs = SimFs::new(1);
    let faults = FaultFs::new(fs);
    let options = Options { write_buffer_bytes: 1 << 20, write_buffers_total_bytes: 1 << 20, ..tiny() };
    let db = open_on(faults.clone(), &options).expect("open");
    let all: Vec<Keyspace> = (0..64).map(|i| create(&db, &format!("k{i}"))).collect();
    faults.add(Rule::nth(OpKind::Create, 3, Fault::Errno(libc::ENOSPC)).on(".sst"));
    let pins: Vec<_> =
        all.iter().map(|keyspace| db.iter_in(&ReadOptions::default(), keyspace).expect("iter")).collect();
    std::thread::scope(|scope| {
        for thread in 0..16u32 {
            let (db, all) = (&db, &all);
            scope.spawn(move || {
                let deadline = Instant::now() + Duration::from_secs(120);
                for n in 0..400u32 {
                    let keyspace = &all[(n * 16 + thread) as usize % 64];
                    let key = [thread.to_be_bytes(), n.to_be_bytes()].concat();
                    loop {
                        match db.put_in(&WriteOptions::default(), keyspace, &key, &[7; 500]) {
                            Ok(()) => break,
                            Err(error) => assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}"),
                        }
                        assert!(Instant::now() < deadline, "writes do not go on");
                        std::thread::sleep(Duration::from_millis(10));
                    }
                }
            });
        }
    });
    assert_eq!(faults.injected(), 1);
    assert!(db.metrics().counters.flushes > 5);
    drop(pins);
    let total: usize = all.iter().map(|keyspace| count(&db, keyspace)).sum();
    assert_eq!(total, 6400);
    // One write that leads from an empty budget past its end: no group comes that would switch a
    // memtable, and none of them is full.
    for round in 0..3u32 {
        db.flush_all(&FlushOptions::default()).expect("flush");
        let mut batch = WriteBatch::new();
        for keyspace in &all {
            let key = [u32::MAX - round; 2].map(u32::to_be_bytes).concat();
            batch.put_in(keyspace.id(), &key, &vec![round as u8; 30_000]).expect("put");
        }
        db.write(&WriteOptions::default(), batch).expect("write");
        let (done, finished) = std::sync::mpsc::channel();
        let (writer, keyspace) = (db.clone(), all[0].clone());
        std::thread::spawn(move || {
            put_in(&writer, &WriteOptions::default(), &keyspace, round);
            done.send(()).expect("the test waits");
        });
        finished.recv_timeout(Duration::from_secs(60)).expect("writes go on");
    }
    let total: usize = all.iter().map(|keyspace| count(&db, keyspace)).sum();
    assert_eq!(total, 6400 + 3 * 64 + 3);
}
