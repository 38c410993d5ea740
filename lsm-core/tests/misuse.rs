//! Calls that a careful program would not make: handles mixed up, used after the end, closed under
//! the feet of others, and everything at once.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

mod hostile;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dialsm_core::{CompactRangeOptions, Db, ErrorKind, Options, ReadOptions, WriteBatch, WriteOptions};
use dialsm_io::{Fault, FaultFs, OpKind, Rule, SimFs};
use hostile::{DIR, Model, Real, Rng, by_hand, contents, env_on, get, kind_of, put, scan, tiny};

#[test]
fn a_snapshot_of_another_database() {
    let (one, two) = (Real::new(), Real::new());
    let (a, b) = (one.open(&tiny()), two.open(&tiny()));
    put(&a, b"k", b"a");
    put(&b, b"k", b"b");
    let foreign = ReadOptions { snapshot: Some(a.snapshot()), ..ReadOptions::default() };
    assert_eq!(kind_of(b.get(&foreign, b"k")), ErrorKind::InvalidArgument);
    assert_eq!(kind_of(b.multi_get(&foreign, &[b"k"])), ErrorKind::InvalidArgument);
    assert_eq!(kind_of(b.iter(&foreign).map(drop)), ErrorKind::InvalidArgument);
    assert_eq!(a.get(&foreign, b"k").expect("its own").as_deref(), Some(&b"a"[..]));
    // Also one of an earlier opening of the same database.
    drop(a);
    let a = one.open(&tiny());
    assert_eq!(kind_of(a.get(&foreign, b"k")), ErrorKind::InvalidArgument);
}

#[test]
fn every_call_after_close_fails_with_closed() {
    let real = Real::new();
    let db = real.open(&tiny());
    put(&db, b"k", b"v");
    let (clone, snapshot) = (db.clone(), db.snapshot());
    db.close().expect("close");
    let (read, write) = (ReadOptions::default(), WriteOptions::default());
    let mut batch = WriteBatch::new();
    batch.put(b"a", b"1").expect("put");
    let results = [
        clone.put(&write, b"k", b"w").err(),
        clone.delete(&write, b"k").err(),
        clone.single_delete(&write, b"k").err(),
        clone.write(&write, batch).err(),
        clone.write(&write, WriteBatch::new()).err(),
        clone.get(&read, b"k").err(),
        clone.get(&ReadOptions { snapshot: Some(snapshot.clone()), ..read.clone() }, b"k").err(),
        clone.multi_get(&read, &[b"k"]).err(),
        clone.iter(&read).err(),
        clone.flush().err(),
        clone.sync().err(),
        clone.compact_range(&CompactRangeOptions::default(), None, None).err(),
        clone.wait_until_idle().err(),
        clone.verify(&mut |_, _| {}).err(),
        clone.close().err(),
    ];
    for (step, error) in results.iter().enumerate() {
        assert_eq!(error.as_ref().map(|e| e.kind()), Some(ErrorKind::Closed), "call {step}");
    }
    // What can't fail must not fall over either.
    let _ = (clone.stats_text(), clone.stats_json(), clone.metrics(), clone.stalls(), clone.snapshot());
    for name in Db::properties() {
        let _ = clone.property(&name.replace("<N>", "0"));
    }
    assert_eq!(get(&real.open(&tiny()), b"k"), Some(b"v".to_vec()));
    drop((db, clone, snapshot));
}

#[test]
fn iterators_and_snapshots_outlive_the_database() {
    let real = Real::new();
    let db = real.open(&tiny());
    for i in 0..2000u32 {
        put(&db, format!("key{i:05}").as_bytes(), &[i as u8; 100]);
    }
    db.flush().expect("flush");
    let snapshot = db.snapshot();
    let mut iter = db.iter(&ReadOptions::default()).expect("iter");
    let slice = db.get(&ReadOptions::default(), b"key00007").expect("get").expect("there");
    for i in 0..2000u32 {
        put(&db, format!("key{i:05}").as_bytes(), b"new");
    }
    db.compact_range(&CompactRangeOptions::default(), None, None).expect("compact");
    // The last handle: the iterator keeps the database's files, and its lock.
    drop(db);
    let (mut n, mut last) = (0, Vec::new());
    iter.seek_to_first().expect("first");
    while iter.valid() {
        assert!(iter.value().len() == 100 && iter.key() > &last[..]);
        last = iter.key().to_vec();
        n += 1;
        iter.next().expect("next");
    }
    assert_eq!(n, 2000);
    assert_eq!(kind_of(real.try_open(&tiny()).map(drop)), ErrorKind::Busy);
    drop(iter);
    let db = real.open(&tiny());
    assert_eq!(slice, [7; 100][..]);
    drop(snapshot);
    assert_eq!(contents(&db).len(), 2000);
}

/// Closing under writers, readers, flushes and compactions: each call succeeds or says `Closed` (or
/// `Cancelled`), what was acknowledged is there, and the lock is free when the close has returned.
#[test]
fn closing_under_load() {
    let mut calls = 0;
    for round in 0..15u64 {
        let real = Real::new();
        let db = real.open(&tiny());
        let acknowledged = Arc::new(AtomicU64::new(0));
        let workers: Vec<_> = (0..8u64)
            .map(|worker| {
                let (db, acknowledged) = (db.clone(), acknowledged.clone());
                std::thread::spawn(move || {
                    for i in 0u64.. {
                        let outcome = match worker {
                            // One writer, so that what was acknowledged is a prefix.
                            0 => {
                                let key = format!("key{i:08}");
                                let done =
                                    db.put(&WriteOptions::default(), key.as_bytes(), &[worker as u8; 500]);
                                done.map(|()| acknowledged.store(i + 1, Ordering::Release))
                            }
                            1 => db.put(
                                &WriteOptions { sync: true, ..Default::default() },
                                b"other",
                                &[1; 500],
                            ),
                            2 => db.compact_range(&CompactRangeOptions::default(), None, None),
                            3 => db.flush(),
                            4 => scan(&db, &ReadOptions::default()).map(drop),
                            5 => db.sync(),
                            _ => db.get(&ReadOptions::default(), b"key00000001").map(drop),
                        };
                        if let Err(error) = outcome {
                            assert!(
                                matches!(error.kind(), ErrorKind::Closed | ErrorKind::Cancelled),
                                "worker {worker}: {error}"
                            );
                            if error.kind() == ErrorKind::Closed {
                                return i;
                            }
                        }
                    }
                    0
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(20 + round * 10));
        let closers: Vec<_> =
            (0..2).map(|_| db.clone()).map(|db| std::thread::spawn(move || db.close())).collect();
        let outcomes: Vec<_> = closers.into_iter().map(|closer| closer.join().expect("no panic")).collect();
        assert!(outcomes.iter().any(Result::is_ok), "{outcomes:?}");
        for error in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
            assert_eq!(error.kind(), ErrorKind::Closed);
        }
        calls += workers.into_iter().map(|worker| worker.join().expect("no panic")).sum::<u64>();
        // At once, while the old handle still exists.
        let reopened = real.open(&tiny());
        let found = contents(&reopened).keys().filter(|key| key.starts_with(b"key")).count() as u64;
        assert!(found >= acknowledged.load(Ordering::Acquire), "acknowledged writes are gone");
        reopened.verify(&mut |_, _| {}).expect("verify");
    }
    println!("{calls} calls before the closes");
    assert!(calls > 2000, "{calls}");
}

/// A compaction on the user's thread, or a writer's log record, was still under way when close gave
/// the directory away: they wrote into files that were another opening's by then.
#[test]
fn after_close_nobody_touches_a_file() {
    const SLOWLY: Fault = Fault::Delay(300_000_000);
    for case in 0..3 {
        let sim = SimFs::new(1);
        let fs = FaultFs::new(sim.clone());
        let db = Db::open(env_on(fs.clone()), Path::new(DIR), by_hand()).expect("open");
        let mut model = Model::new();
        for round in 0..3u8 {
            for i in 0..100u8 {
                put(&db, &[i], &[round; 100]);
                model.insert(vec![i], vec![round; 100]);
            }
            db.flush().expect("flush");
        }
        fs.add(match case {
            0 => Rule::every(OpKind::Sync, SLOWLY).on(".sst"),
            1 => Rule::every(OpKind::Write, SLOWLY).on(".log"),
            _ => Rule::every(OpKind::Write, SLOWLY).on("MANIFEST"),
        });
        let other = db.clone();
        let worker = std::thread::spawn(move || match case {
            1 => other.put(&WriteOptions::default(), b"w", b"1"),
            _ => other.compact_range(&CompactRangeOptions::default(), None, None),
        });
        while fs.injected() == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        db.close().expect("close");
        let calls = || -> Vec<u64> {
            let kinds = [
                OpKind::Write,
                OpKind::Create,
                OpKind::Sync,
                OpKind::SyncDir,
                OpKind::Rename,
                OpKind::Unlink,
            ];
            kinds.iter().map(|op| fs.calls(*op)).collect()
        };
        let before = calls();
        std::thread::sleep(Duration::from_millis(700));
        assert_eq!(calls(), before, "case {case}: calls after the close");
        match worker.join().expect("no panic") {
            Ok(()) if case == 1 => drop(model.insert(b"w".to_vec(), b"1".to_vec())),
            Ok(()) => {}
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Closed | ErrorKind::Cancelled), "{error}")
            }
        }
        let db = hostile::open_on(sim, &by_hand()).expect("open");
        assert!(contents(&db) == model);
    }
}

#[test]
fn a_manual_compaction_can_be_cancelled() {
    let real = Real::new();
    let db = real.open(&Options { subcompactions_max: 1, ..by_hand() });
    for round in 0..2u8 {
        for i in 0..20_000u32 {
            put(&db, &i.to_be_bytes(), &[round; 50]);
        }
        db.flush().expect("flush");
    }
    let before = (db.property("dialsm.num-files-at-level0"), contents(&db));
    let cancel = Arc::new(AtomicBool::new(true));
    let options = CompactRangeOptions { cancel: Some(cancel.clone()), ..Default::default() };
    assert_eq!(kind_of(db.compact_range(&options, None, None)), ErrorKind::Cancelled);
    assert_eq!(db.property("dialsm.num-files-at-level0"), before.0);
    assert!(contents(&db) == before.1);
    // Its outputs are gone, and nothing stays claimed: the same compaction works afterwards.
    let tables = std::fs::read_dir(real.path()).expect("list");
    let tables = tables.filter(|e| e.as_ref().expect("entry").path().extension().is_some_and(|e| e == "sst"));
    let tables: Vec<_> = tables.map(|e| e.expect("entry").file_name()).collect();
    assert_eq!(tables.len(), 2, "{tables:?}");
    cancel.store(false, Ordering::Release);
    db.compact_range(&options, None, None).expect("compact");
    assert_eq!(db.property("dialsm.num-files-at-level0").as_deref(), Some("0"));
    assert!(contents(&db) == before.1);
}

#[test]
fn dropped_during_compactions() {
    for round in 0..10u64 {
        let real = Real::new();
        let db = real.open(&Options { level0_compaction_trigger: 2, subcompactions_max: 2, ..tiny() });
        let mut model = Model::new();
        for i in 0..(1000 + round * 400) {
            let (key, value) = ((i * 7919 % 1500).to_be_bytes().to_vec(), vec![i as u8; 200]);
            put(&db, &key, &value);
            model.insert(key, value);
        }
        drop(db);
        let db = real.open(&tiny());
        assert!(contents(&db) == model);
        db.verify(&mut |_, _| {}).expect("verify");
    }
}

/// Eight threads doing everything to the same few keys. Each key's values only ever grow, so a read
/// must not go back; and at the end nothing may hang or be lost.
#[test]
fn everything_at_once() {
    const KEYS: u64 = 64;
    let real = Real::new();
    let db = real.open(&Options { background_jobs_max: 3, write_buffers_max: 3, ..tiny() });
    let stop = Arc::new(AtomicBool::new(false));
    let counts: Arc<[AtomicU64; 8]> = Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
    let workers: Vec<_> = (0..8u64)
        .map(|worker| {
            let (db, stop, counts) = (db.clone(), stop.clone(), counts.clone());
            std::thread::spawn(move || {
                let mut rng = Rng(worker);
                let mut seen = vec![0u64; KEYS as usize];
                let number = |value: &[u8]| u64::from_be_bytes(value[..8].try_into().expect("8 bytes"));
                let mut next = 1u64;
                while !stop.load(Ordering::Acquire) {
                    let key = rng.below(KEYS);
                    match worker {
                        // Two writers with keys of their own, values with padding.
                        0 | 1 => {
                            let key = key / 2 * 2 + worker;
                            let mut batch = WriteBatch::new();
                            let value = [&next.to_be_bytes()[..], &vec![7; rng.below(800) as usize]].concat();
                            batch.delete(&key.to_be_bytes()).expect("delete");
                            batch.put(&key.to_be_bytes(), &value).expect("put");
                            let sync = rng.below(50) == 0;
                            db.write(&WriteOptions { sync, ..Default::default() }, batch).expect("write");
                            next += 1;
                        }
                        2 => {
                            db.flush().expect("flush");
                            std::thread::sleep(Duration::from_millis(3));
                        }
                        3 => {
                            let rewrite_bottom = rng.below(2) == 0;
                            let options = CompactRangeOptions { rewrite_bottom, ..Default::default() };
                            db.compact_range(&options, None, None).expect("compact");
                        }
                        4 => drop(db.verify(&mut |_, _| {}).expect("verify")),
                        5 => {
                            let snapshot = db.snapshot();
                            let options = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::default() };
                            let first = scan(&db, &options).expect("scan");
                            std::thread::sleep(Duration::from_millis(2));
                            assert!(scan(&db, &options).expect("scan") == first, "a snapshot changed");
                        }
                        6 => {
                            for (key, value) in scan(&db, &ReadOptions::default()).expect("scan") {
                                let key = u64::from_be_bytes(key.try_into().expect("8 bytes")) as usize;
                                assert!(number(&value) >= seen[key], "a scan goes back");
                                seen[key] = number(&value);
                            }
                        }
                        _ => {
                            let found = db.get(&ReadOptions::default(), &key.to_be_bytes()).expect("get");
                            let found = found.map_or(0, |value| number(&value));
                            assert!(found >= seen[key as usize], "a get goes back");
                            seen[key as usize] = found;
                        }
                    }
                    counts[worker as usize].fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    std::thread::sleep(Duration::from_secs(4));
    stop.store(true, Ordering::Release);
    let deadline = Instant::now() + Duration::from_secs(20);
    for worker in workers {
        while !worker.is_finished() {
            assert!(Instant::now() < deadline, "a thread hangs");
            std::thread::sleep(Duration::from_millis(5));
        }
        worker.join().expect("no panic");
    }
    let counts: Vec<u64> = counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    println!("{counts:?}, {} compactions", db.compactions());
    assert!(counts.iter().all(|count| *count >= 5), "{counts:?}");
    db.wait_until_idle().expect("idle");
    let before = contents(&db);
    db.close().expect("close");
    assert!(contents(&real.open(&tiny())) == before);
}

/// A settling that was under way had taken its edits out of the queue; whoever looked then found
/// nothing unsettled. A flush returned before its table was in the manifest on disk.
#[test]
fn a_flush_waits_for_the_settling_of_another() {
    for round in 0..10u8 {
        let sim = SimFs::new(u64::from(round));
        let fs = FaultFs::new(sim.clone());
        let db = Db::open(env_on(fs.clone()), Path::new(DIR), by_hand()).expect("open");
        put(&db, b"k", &[round]);
        fs.add(Rule::every(OpKind::Sync, Fault::Delay(50_000_000)).on("MANIFEST"));
        db.flush().expect("flush");
        let survivor = sim.crash_image(dialsm_io::CrashPolicy::DropUnsynced);
        let db = hostile::open_on(survivor, &by_hand()).expect("open");
        assert_eq!(get(&db, b"k"), Some(vec![round]));
    }
}
