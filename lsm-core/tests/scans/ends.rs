//! How scans end: early, with the database, with an error, at a deadline.

use std::path::Path;
use std::sync::Arc;

use dialsm_core::{Db, ErrorKind, ReadOptions, ScanOptions, WriteOptions};
use dialsm_io::{Env, Fault, FaultFs, Fs, OpKind, Rule, SimEnv, SplitMix64};

use super::{Rows, eager, iterated, key, open, options, rest, value};

const DIR: &str = "/db";

/// A database of `n` keys in tables.
fn filled(env: &Arc<dyn Env>, shards: usize, threads: usize, n: u64) -> Db {
    let db = open(env, Path::new(DIR), &options(shards, 300, threads));
    let mut rng = SplitMix64::new(n);
    for at in 0..n {
        db.put(&WriteOptions::default(), &key(at), &value(&mut rng)).expect("put");
    }
    db.flush().expect("flush");
    db.wait_until_idle().expect("idle");
    db
}

fn scan_threads(sim: &SimEnv) -> usize {
    sim.live_threads().iter().filter(|name| name.starts_with("dialsm-scan")).count()
}

#[test]
fn a_short_scan_starts_no_thread() {
    let sim = SimEnv::new(1);
    let env: Arc<dyn Env> = sim.clone();
    sim.run(|| {
        let db = filled(&env, 4, 2, 3000);
        let read = ReadOptions::default();
        for scan in [
            ScanOptions { entries_max: 500, ..ScanOptions::default() },
            // Long enough by what it has given, but about to end.
            ScanOptions {
                entries_max: 250,
                long_bytes: 40_000,
                batch_bytes: 20_000,
                ..ScanOptions::default()
            },
            ScanOptions { long_bytes: u64::MAX, ..eager() },
            ScanOptions { backward: true, ..eager() },
        ] {
            let mut scan = db.scan(&read, &scan).expect("scan");
            rest(&mut scan);
            assert!(!scan.is_ahead());
        }
        assert_eq!(scan_threads(&sim), 0);
        let mut long = db.scan(&read, &ScanOptions { long_bytes: 20_000, ..eager() }).expect("scan");
        assert!(rest(&mut long) == iterated(&db, &read, false));
        assert!(long.is_ahead());
        assert_eq!(scan_threads(&sim), 2);
        // Fewer by an option, and none.
        db.set_options(&[("scan_threads", "0")]).expect("set");
        let mut alone = db.scan(&read, &eager()).expect("scan");
        assert!(rest(&mut alone) == iterated(&db, &read, false));
        assert!(!alone.is_ahead());
    });
}

/// Whoever reads on after a close does so without the threads; the lock goes with the last of them, when no
/// thread of the pool touches a file any more.
#[test]
fn a_scan_outlives_the_close() {
    for seed in 0..20 {
        let sim = SimEnv::new(seed);
        sim.switch_at_io();
        let env: Arc<dyn Env> = sim.clone();
        sim.run(|| {
            let db = filled(&env, 4, 2, 600);
            let read = ReadOptions::default();
            let all = iterated(&db, &read, false);
            let mut scan = db.scan(&read, &eager()).expect("scan");
            let mut rows = Rows::new();
            for _ in 0..seed {
                super::add_rows(&scan.next_batch().expect("a batch").expect("more"), &mut rows);
            }
            let given_up = db.scan(&read, &eager()).and_then(|mut scan| {
                scan.next_batch()?;
                scan.next_batch()?;
                Ok(scan)
            });
            db.close().expect("close");
            assert_eq!(scan_threads(&sim), 0, "a thread outlived the close");
            rows.extend(rest(&mut scan));
            assert!(rows == all, "seed {seed}");
            drop(scan);
            let busy = Db::open(env.clone(), Path::new(DIR), options(4, 300, 2)).err().expect("locked yet");
            assert_eq!(busy.kind(), ErrorKind::Busy);
            drop(given_up);
            Db::open(env.clone(), Path::new(DIR), options(4, 300, 2)).expect("free").close().expect("close");
        });
    }
}

/// A scan that is dropped in the middle leaves nobody at its files, whenever that is.
#[test]
fn a_scan_given_up_is_left_by_its_threads() {
    let mut ahead = 0;
    for seed in 0..30 {
        let sim = SimEnv::new(seed);
        sim.switch_at_io();
        let env: Arc<dyn Env> = sim.clone();
        sim.run(|| {
            let db = filled(&env, 4, 2, 400);
            let mut scan = db.scan(&ReadOptions::default(), &eager()).expect("scan");
            for _ in 0..seed % 10 {
                scan.next_batch().expect("a batch");
            }
            ahead += u64::from(scan.is_ahead());
            drop(scan);
            let calls =
                || sim.sim_fs().trace().iter().filter(|call| format!("{call:?}").contains("Read")).count();
            sim.sim_fs().set_tracing(true);
            for _ in 0..100 {
                env.yield_now();
            }
            assert_eq!(calls(), 0, "seed {seed}: somebody reads for a scan that is gone");
            db.close().expect("close");
        });
    }
    assert!(ahead > 20);
}

/// Wherever a read fails, the scan gives a prefix and then the error, again and again: never an end.
#[test]
fn a_failing_read_never_looks_like_the_end() {
    let (mut failed, mut whole, mut ahead) = (0, 0, 0);
    for nth in 0..60 {
        let root = SimEnv::new(nth);
        let faults = FaultFs::new(root.sim_fs().clone());
        let seen: Arc<dyn Fs> = faults.clone();
        let sim = root.on_fs(root.sim_fs().clone(), seen);
        let env: Arc<dyn Env> = sim.clone();
        sim.run(|| {
            let db = filled(&env, 4, 2, 600);
            // Little at a time, so that many reads can fail.
            let read = ReadOptions { fill_cache: false, readahead_bytes: 600, ..ReadOptions::default() };
            let all = iterated(&db, &read, false);
            db.set_options(&[("block_cache_bytes", "0")]).expect("no cache");
            faults.add(Rule::nth(OpKind::Read, 1 + nth * 2, Fault::Errno(5)));
            let mut rows = Rows::new();
            let outcome = db.scan(&read, &eager()).and_then(|mut scan| {
                let end = loop {
                    match scan.next_batch() {
                        Ok(Some(batch)) => super::add_rows(&batch, &mut rows),
                        Ok(None) => break Ok(()),
                        Err(error) => break Err(error),
                    }
                };
                ahead += u64::from(scan.is_ahead());
                if end.is_err() && !rows.is_empty() {
                    assert!(scan.next_batch().is_err(), "after an error the scan went on");
                }
                end
            });
            match outcome {
                Ok(()) => {
                    whole += 1;
                    assert!(rows == all, "a scan without an error is whole");
                }
                Err(error) => {
                    failed += 1;
                    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                    assert!(rows == all[..rows.len()], "what came before the error is right");
                }
            }
            faults.clear();
            db.close().expect("close");
        });
    }
    println!("{failed} failed, {whole} whole, {ahead} ahead");
    assert!(failed > 20 && ahead > 20, "{failed} failed, {whole} whole, {ahead} ahead");
}

#[test]
fn a_scan_keeps_its_deadline() {
    let sim = SimEnv::new(7);
    let env: Arc<dyn Env> = sim.clone();
    sim.run(|| {
        let db = filled(&env, 4, 2, 600);
        let read = ReadOptions { deadline: Some(env.now() + 1_000_000_000), ..ReadOptions::default() };
        let mut scan = db.scan(&read, &eager()).expect("scan");
        for _ in 0..5 {
            assert!(scan.next_batch().expect("in time").is_some());
        }
        assert!(scan.is_ahead());
        sim.advance(2_000_000_000);
        let error = loop {
            match scan.next_batch() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("an end, past the deadline"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    });
}

/// Past the deadline an iterator fails as it does for any other reason: it stands nowhere and says so again, and
/// shows no entry twice. So a scan, too, whatever its batches are.
#[test]
fn a_deadline_ends_an_iteration() {
    let sim = SimEnv::new(9);
    let env: Arc<dyn Env> = sim.clone();
    sim.run(|| {
        let db = filled(&env, 1, 2, 600);
        let read = ReadOptions { deadline: Some(env.now() + 1_000_000_000), ..ReadOptions::default() };
        let mut iter = db.iter(&read).expect("iterator");
        iter.seek_to_first().expect("in time");
        let mut scan = db.scan(&read, &ScanOptions::default()).expect("scan");
        assert!(scan.next_batch().expect("in time").is_some());
        sim.advance(2_000_000_000);
        let mut seen = std::collections::BTreeSet::new();
        let error = loop {
            assert!(seen.insert(iter.key().to_vec()), "an entry came twice");
            match iter.next() {
                Ok(()) => assert!(iter.valid(), "an end, past the deadline"),
                Err(error) => break error,
            }
        };
        assert_eq!((error.kind(), iter.valid()), (ErrorKind::TimedOut, false));
        assert_eq!(iter.next().expect_err("again").kind(), ErrorKind::TimedOut);
        assert_eq!(iter.seek(b"").expect_err("it is too late").kind(), ErrorKind::TimedOut);
        assert!(!iter.valid());
        let mut batches = 0;
        let error = loop {
            match scan.next_batch() {
                Ok(Some(_)) => batches += 1,
                Ok(None) => panic!("an end, past the deadline"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::TimedOut, "after {batches} batches");
    });
}
