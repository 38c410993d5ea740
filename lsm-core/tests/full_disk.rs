//! A full disk stops writes with `NoSpace` and nothing else: reads go on, nothing acknowledged is
//! lost, and when space is back writing resumes by itself. On a real tmpfs where this process may
//! mount one, and with injected errors at each kind of call.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

mod hostile;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dialsm_core::{CompactRangeOptions, Db, Error, ErrorKind, Options, WriteOptions};
use dialsm_io::{CrashPolicy, Fault, FaultFs, Fs, OpKind, Rule, SimFs};
use hostile::{DIR, Model, Real, by_hand, contents, env_on, get, mount, open_on, tiny};

/// Long enough for a retry timer, far too long for anything else.
const PATIENCE: Duration = Duration::from_secs(300);

/// Tries `write` until it succeeds; only a full disk may keep it from that.
fn until_it_works(what: &str, mut write: impl FnMut() -> dialsm_core::Result<()>) {
    let start = Instant::now();
    loop {
        match write() {
            Ok(()) => return,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{what}: {error}");
                assert!(start.elapsed() < PATIENCE, "{what} does not resume: {error}");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

struct SmallDisk {
    real: Real,
    ballast: PathBuf,
    _mount: mount::Mount,
}

/// A tmpfs of `bytes`, most of them taken by a ballast file.
fn small_disk(bytes: u64, ballast_bytes: usize) -> Option<SmallDisk> {
    let real = Real::new();
    let Some(mount) = mount::tmpfs(real.dir.path(), bytes) else {
        println!("skipped: no right to mount a tmpfs");
        return None;
    };
    let ballast = real.dir.path().join("ballast");
    std::fs::write(&ballast, vec![1; ballast_bytes]).expect("ballast");
    Some(SmallDisk { real, ballast, _mount: mount })
}

fn value(i: u64, bytes: usize) -> Vec<u8> {
    let mut value = format!("{i} ").into_bytes();
    // Not compressible, or the disk would never fill.
    let mut rng = hostile::Rng(i);
    value.extend(rng.bytes(bytes));
    value
}

/// Puts until the disk is full; what was acknowledged goes into `model`. Fails if it never is.
fn fill(db: &Db, model: &mut Model, keys: &mut u64, bytes: usize, sync: bool) -> Error {
    let options = WriteOptions { sync, ..WriteOptions::default() };
    let start = Instant::now();
    loop {
        let (key, value) = (format!("key{keys:08}").into_bytes(), value(*keys, bytes));
        *keys += 1;
        match db.put(&options, &key, &value) {
            Ok(()) => drop(model.insert(key, value)),
            Err(error) => return error,
        }
        assert!(start.elapsed() < PATIENCE, "the disk never fills");
    }
}

/// Half of the disk is ballast and more, since a flush needs the room of its memtable beside the log.
/// A write that failed must not be there, now or after a reopening: its key is not in the model.
fn fill_free_resume(options: &Options, value_bytes: usize, sync: bool) {
    let Some(disk) = small_disk(12 << 20, 8 << 20) else { return };
    let mut db = disk.real.open(options);
    let (mut model, mut keys) = (Model::new(), 0);
    let error = fill(&db, &mut model, &mut keys, value_bytes, sync);
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    // Full: more writes fail or fit by chance, reads go on, and a reopening has all of it.
    for _ in 0..50 {
        let (key, value) = (format!("key{keys:08}").into_bytes(), value(keys, value_bytes));
        keys += 1;
        match db.put(&WriteOptions { sync, ..WriteOptions::default() }, &key, &value) {
            Ok(()) => drop(model.insert(key, value)),
            Err(error) => assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}"),
        }
    }
    assert!(model.len() > 3);
    assert!(contents(&db) == model, "reads go on while the disk is full");
    std::fs::remove_file(&disk.ballast).expect("remove the ballast");
    for _ in 0..2 {
        let (key, value) = (format!("key{keys:08}").into_bytes(), value(keys, value_bytes));
        keys += 1;
        until_it_works("a put", || db.put(&WriteOptions { sync, ..WriteOptions::default() }, &key, &value));
        model.insert(key, value);
    }
    if sync {
        // Otherwise the log alone has to bring it all back.
        until_it_works("a flush", || db.flush());
    }
    assert!(contents(&db) == model, "after resuming");
    // Killed rather than closed.
    drop(db);
    db = disk.real.open(options);
    assert!(contents(&db) == model, "after a reopening");
    db.verify(&mut |_, _| {}).expect("verify");
}

#[test]
fn the_log_fills_a_real_disk() {
    // No flush before the disk is full.
    let options = Options { write_buffer_bytes: 64 << 20, log_segment_bytes: 1 << 20, ..tiny() };
    fill_free_resume(&options, 3000, false);
    fill_free_resume(&options, 3000, true);
}

/// Records larger than what is left: the part of one that did fit must not keep the space.
#[test]
fn large_records_fill_a_real_disk() {
    let options = Options { write_buffer_bytes: 64 << 20, log_segment_bytes: 64 << 10, ..tiny() };
    fill_free_resume(&options, 400_000, false);
}

/// The part of it that had been written stayed, and filled the disk for everybody else.
#[test]
fn a_record_that_does_not_fit_gives_its_space_back() {
    let Some(disk) = small_disk(8 << 20, 1 << 20) else { return };
    let db = disk.real.open(&by_hand());
    for round in 0..3u8 {
        let too_long = value(1, 20 << 20);
        let refused = db.put(&WriteOptions::default(), b"long", &too_long);
        assert_eq!(hostile::kind_of(refused), ErrorKind::NoSpace);
        for i in 0..100u8 {
            db.put(&WriteOptions::default(), &[round, i], &[i; 1000]).expect("there is room for this");
        }
    }
    db.flush().expect("flush");
    assert_eq!(contents(&db).len(), 300);
    drop(db);
    assert_eq!(contents(&disk.real.open(&by_hand())).len(), 300);
}

#[test]
fn flushes_and_compactions_fill_a_real_disk() {
    fill_free_resume(&Options { log_recycle_max: 0, ..tiny() }, 1000, false);
    fill_free_resume(&Options { write_buffer_bytes: 1 << 20, ..tiny() }, 5000, true);
}

/// An opening needs a little room itself; without it, it fails cleanly and harms nothing.
#[test]
fn opening_on_a_full_real_disk() {
    let Some(disk) = small_disk(8 << 20, 5 << 20) else { return };
    let options = by_hand();
    let db = disk.real.open(&options);
    let (mut model, mut keys) = (Model::new(), 0);
    let error = fill(&db, &mut model, &mut keys, 2000, false);
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    db.close().expect("close");
    // The very last page.
    let rest = disk.real.dir.path().join("rest");
    let mut filler = std::fs::File::create(&rest).expect("create");
    while std::io::Write::write(&mut filler, &[1; 4096]).is_ok_and(|n| n > 0) {}
    match disk.real.try_open(&options) {
        Ok(db) => assert!(contents(&db) == model),
        Err(error) => assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}"),
    }
    std::fs::remove_file(&rest).expect("remove");
    std::fs::remove_file(&disk.ballast).expect("remove");
    let db = disk.real.open(&options);
    assert!(contents(&db) == model);
    until_it_works("a put", || db.put(&WriteOptions::default(), b"k", b"v"));
    db.flush().expect("flush");
}

/// Full disk at the n-th call of each kind on each kind of file, met by a put, a flush or a
/// compaction; then space is back. `times` calls in a row fail.
fn injected(op: OpKind, part: &str, nth: u64, times: u64) -> bool {
    let sim = SimFs::new(nth);
    let fs = FaultFs::new(sim.clone());
    let options = Options { log_segment_bytes: 64 << 10, ..by_hand() };
    let db = Db::open(env_on(fs.clone()), Path::new(DIR), options.clone()).expect("open");
    let mut model = Model::new();
    let mut unsure = Vec::new();
    fs.add(Rule { times, ..Rule::nth(op, nth, Fault::Errno(libc::ENOSPC)) }.on(part));
    for i in 0..60u64 {
        let (key, value) = (format!("key{:04}", i % 40).into_bytes(), value(i, 3000));
        match db.put(&WriteOptions::default(), &key, &value) {
            Ok(()) => drop(model.insert(key, value)),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                unsure.push(i);
            }
        }
        let outcome = match i {
            15 | 30 | 45 => db.flush(),
            50 => db.compact_range(&CompactRangeOptions::default(), None, None),
            _ => Ok(()),
        };
        if let Err(error) = outcome {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        }
        if i % 10 == 0 {
            assert!(contents(&db) == model, "reads at {i}");
        }
    }
    let met = fs.injected() > 0;
    fs.clear();
    until_it_works("a put", || db.put(&WriteOptions::default(), b"after", b"1"));
    model.insert(b"after".to_vec(), b"1".to_vec());
    until_it_works("a flush", || db.flush());
    until_it_works("a compaction", || db.compact_range(&CompactRangeOptions::default(), None, None));
    until_it_works("rest", || db.wait_until_idle());
    assert!(contents(&db) == model);
    let names = fs.list(Path::new(DIR)).expect("list");
    let manifests = names.iter().filter(|name| name.starts_with("MANIFEST-")).count();
    assert!(manifests <= 2, "manifests pile up: {names:?}");
    // As a killed process leaves it.
    let image = sim.crash_image(CrashPolicy::KeepAll);
    drop(db);
    let db = open_on(image, &options).expect("reopen");
    assert!(contents(&db) == model, "after a reopening");
    db.verify(&mut |_, _| {}).expect("verify");
    met
}

#[test]
fn no_space_at_every_kind_of_call() {
    let mut met = 0;
    for (op, parts) in [
        (OpKind::Write, &[".log", ".sst", "MANIFEST", "CURRENT"][..]),
        (OpKind::Create, &[".log", ".sst", "MANIFEST", "CURRENT"]),
        (OpKind::Allocate, &[".log"]),
        (OpKind::Rename, &["CURRENT"]),
    ] {
        for part in parts {
            for (nth, times) in [(1, 1), (2, 1), (1, 3), (3, 2), (4, 1), (7, 1)] {
                met += usize::from(injected(op, part, nth, times));
            }
        }
    }
    println!("faults met in {met} runs");
    assert!(met >= 25, "{met}");
}

/// The work of a job on the user's own thread was left unsettled by a full disk, and nobody else
/// was to settle it: waiting for rest never ended.
#[test]
fn what_a_manual_compaction_left_unsettled_is_settled_later() {
    let fs = FaultFs::new(SimFs::new(1));
    let db = Db::open(env_on(fs.clone()), Path::new(DIR), by_hand()).expect("open");
    for round in 0..3u8 {
        (0..50u8).for_each(|i| hostile::put(&db, &[i], &[round; 100]));
        db.flush().expect("flush");
    }
    fs.add(Rule::nth(OpKind::Write, 1, Fault::Errno(libc::ENOSPC)).on("MANIFEST"));
    let refused = db.compact_range(&CompactRangeOptions::default(), None, None);
    assert_eq!(hostile::kind_of(refused), ErrorKind::NoSpace);
    let (done, finished) = std::sync::mpsc::channel();
    let waiting = db.clone();
    std::thread::spawn(move || {
        until_it_works("rest", || waiting.wait_until_idle());
        done.send(())
    });
    finished.recv_timeout(PATIENCE).expect("waiting for rest ends");
    assert_eq!(get(&db, &[7]), Some(vec![2; 100]));
}
