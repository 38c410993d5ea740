//! Files, manifest, full disks, descriptors, options, background work.

use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dialsm_core::{CompactRangeOptions, Db, ErrorKind, Options, ReadOptions, WriteOptions, options};
use dialsm_io::{CrashPolicy, Fault, FaultFs, Fs, OpKind, Rule, SimFs};

use crate::hostile::{
    DIR, Model, Real, Rng, by_hand, contents, env_on, fs_of, get, image_of, kind_of, open_on, put, synced,
    tiny, write_file,
};

/// A power cut at every call of a run with flushes and compactions: each image opens and has all
/// that was acknowledged as synced by then.
#[test]
fn b069_every_instant_of_a_power_cut_opens_with_all_synced_writes() {
    // Segments are recycled, or unlinked.
    (0..2).for_each(power_cuts);
}

fn power_cuts(log_recycle_max: usize) {
    let sim = SimFs::new(1);
    let acknowledged: Arc<Mutex<Model>> = Arc::default();
    type Images = Vec<(Arc<SimFs>, Model, String)>;
    let images: Arc<Mutex<Images>> = Arc::default();
    let (taken, known, of) = (images.clone(), acknowledged.clone(), sim.clone());
    let options = Options { log_segment_bytes: 64 << 10, log_recycle_max, ..by_hand() };
    let db = open_on(sim.clone(), &options).expect("open");
    let calls = Mutex::new(0u64);
    let reopening = Arc::new(AtomicBool::new(false));
    let reopens = reopening.clone();
    sim.add_call_hook(Arc::new(move |call| {
        let n = {
            let mut calls = calls.lock().expect("no panic");
            *calls += 1;
            *calls
        };
        let model = known.lock().expect("no panic").clone();
        let mut policies = vec![match n % 3 {
            0 => CrashPolicy::DropUnsynced,
            1 => CrashPolicy::KeepAll,
            _ => CrashPolicy::Random(n),
        }];
        if reopens.load(Ordering::Acquire) {
            policies.extend((1..5).map(|i| CrashPolicy::Random(1000 * i + n)));
        }
        for policy in policies {
            let what = format!("call {n}, {:?}, {policy:?}", call.op);
            taken.lock().expect("no panic").push((of.crash_image(policy), model.clone(), what));
        }
    }));
    for i in 0..90u64 {
        let (key, value) = ((i * 7 % 40).to_be_bytes().to_vec(), vec![i as u8; 6000]);
        db.put(&synced(), &key, &value).expect("put");
        acknowledged.lock().expect("no panic").insert(key, value);
        match i {
            20 | 40 | 60 => db.flush().expect("flush"),
            50 | 70 => db.compact_range(&CompactRangeOptions::default(), None, None).expect("compact"),
            _ => {}
        }
    }
    // An opening writes, too: a manifest, the pointer to it; and removes what it replaces.
    drop(db);
    reopening.store(true, Ordering::Release);
    let db = open_on(sim.clone(), &options).expect("reopen");
    // Nothing that is not synced makes up for a sync which the opening left out.
    (0..12u8).for_each(|i| put(&db, &[i], b"not synced"));
    reopening.store(false, Ordering::Release);
    sim.clear_call_hooks();
    assert_eq!(contents(&db).len(), 40 + 12);
    drop(db);
    let images = std::mem::take(&mut *images.lock().expect("no panic"));
    println!("{} images", images.len());
    assert!(images.len() > 250);
    for (image, model, what) in images {
        let db = open_on(image, &options).unwrap_or_else(|error| panic!("{what}: {error}"));
        let found = contents(&db);
        // A write under way may be there or not; and as many later ones as the writer made while a
        // worker's hook stood between reading the model and taking the image.
        assert!(model.keys().all(|key| found.contains_key(key)), "{what}: a key is lost");
        let newer = |key: &Vec<u8>| found[key][0] > model[key][0];
        assert!(
            model.iter().all(|(key, value)| found[key] == *value || newer(key)),
            "{what}: an older value"
        );
    }
}

#[test]
fn b071_after_a_failed_manifest_append_a_fresh_one_is_started() {
    let mut met = 0;
    for fault in [Fault::Errno(libc::ENOSPC), Fault::TornWrite(9, libc::ENOSPC), Fault::Errno(libc::EIO)] {
        for (op, nth) in (1..8).map(|n| (OpKind::Write, n)).chain((1..5).map(|n| (OpKind::Sync, n))) {
            let sim = SimFs::new(nth);
            let fs = FaultFs::new(sim.clone());
            let db = Db::open(env_on(fs.clone()), Path::new(DIR), by_hand()).expect("open");
            fs.add(Rule::nth(op, nth, fault).on("MANIFEST"));
            let mut model = Model::new();
            for i in 0..60u8 {
                let (key, value) = (vec![i % 25], vec![i; 200]);
                if db.put(&synced(), &key, &value).is_ok() {
                    model.insert(key, value);
                }
                if i % 8 == 7 {
                    // Some fail: the disk is full, or writes have stopped for good.
                    let _ = db.flush();
                }
                if i == 40 {
                    let _ = db.compact_range(&CompactRangeOptions::default(), None, None);
                }
            }
            met += u64::from(fs.injected() > 0);
            assert!(contents(&db) == model);
            for policy in [CrashPolicy::KeepAll, CrashPolicy::DropUnsynced] {
                let db = open_on(sim.crash_image(policy), &by_hand()).expect("opens");
                assert!(contents(&db) == model, "{op:?} {nth} {fault:?} {policy:?}");
                db.verify(&mut |_, _| {}).expect("verify");
            }
        }
    }
    println!("{met} faults met");
    assert!(met >= 25, "{met}");
}

#[test]
fn b073_numbers_found_on_disk_are_never_given_out_again() {
    let sim = SimFs::new(1);
    let db = open_on(sim.clone(), &by_hand()).expect("open");
    put(&db, b"a", b"1");
    db.flush().expect("flush");
    drop(db);
    let image = image_of(sim.as_ref(), Path::new(DIR));
    let own_table = image.iter().find(|(name, _)| name.ends_with(".sst")).expect("a table").1.clone();
    let sim = fs_of(&image);
    for orphan in ["000500.sst", "000600.log", "MANIFEST-000700"] {
        write_file(sim.as_ref(), &Path::new(DIR).join(orphan), &own_table);
    }
    let names = || sim.list(Path::new(DIR)).expect("list");
    let db = match open_on(sim.clone(), &by_hand()) {
        Ok(db) => db,
        // A stray segment may also be refused; then with it away.
        Err(error) => {
            crate::hostile::assert_typed(&error);
            sim.unlink(&Path::new(DIR).join("000600.log")).expect("unlink");
            open_on(sim.clone(), &by_hand()).expect("open")
        }
    };
    put(&db, b"b", b"2");
    db.flush().expect("flush");
    assert!(!names().contains(&"000500.sst".to_owned()), "an orphan stays");
    let mut tables: Vec<String> = names().into_iter().filter(|name| name.ends_with(".sst")).collect();
    let newest = tables.pop().expect("a table");
    assert!(newest.as_str() > "000700.sst", "{newest}");
    assert_eq!(contents(&db).len(), 2);
    drop(db);
    // The manifest's last record lost, and another table under the number it gave out.
    let image = image_of(sim.as_ref(), Path::new(DIR));
    let sim = fs_of(&image);
    write_file(sim.as_ref(), &Path::new(DIR).join(&newest), &own_table);
    let db = open_on(sim, &by_hand()).expect("open");
    let kind = kind_of(db.get(&ReadOptions::default(), b"b"));
    assert!(matches!(kind, ErrorKind::Corruption | ErrorKind::Foreign), "{kind:?}");
}

/// The kinds of call that met the full disk, with memtables empty or not.
#[test]
fn b077_writing_resumes_when_space_is_back() {
    let cases = [
        (OpKind::Write, ".log"),
        (OpKind::Create, ".log"),
        (OpKind::Allocate, ".log"),
        (OpKind::Write, ".sst"),
        (OpKind::Create, ".sst"),
        (OpKind::Write, "MANIFEST"),
        (OpKind::Create, "MANIFEST"),
        (OpKind::Sync, "MANIFEST"),
    ];
    for (op, part) in cases {
        for empty in [true, false] {
            let sim = SimFs::new(1);
            let fs = FaultFs::new(sim.clone());
            let options = Options { log_segment_bytes: 64 << 10, ..by_hand() };
            let db = Db::open(env_on(fs.clone()), Path::new(DIR), options.clone()).expect("open");
            let mut model = Model::new();
            for i in 0..40u8 {
                put(&db, &[i], &[i; 3000]);
                model.insert(vec![i], vec![i; 3000]);
            }
            if empty {
                db.flush().expect("flush");
            }
            if (op, part) == (OpKind::Create, "MANIFEST") {
                // A fresh one is begun only after a failure of the old one.
                fs.add(Rule::nth(OpKind::Write, 1, Fault::Errno(libc::ENOSPC)).on(part));
            }
            // A full disk may take a part of what it is given.
            let full = match op {
                OpKind::Write if !empty => Fault::TornWrite(100, libc::ENOSPC),
                _ => Fault::Errno(libc::ENOSPC),
            };
            fs.add(Rule::every(op, full).on(part));
            for i in 40..80u8 {
                if db.put(&WriteOptions::default(), &[i], &[i; 3000]).is_ok() {
                    model.insert(vec![i], vec![i; 3000]);
                }
            }
            let _ = db.flush();
            let _ = db.compact_range(&CompactRangeOptions::default(), None, None);
            assert!(fs.injected() > 0, "{op:?} {part}");
            assert!(contents(&db) == model, "reads go on");
            fs.clear();
            let mut tries = 0;
            while let Err(error) = db.put(&synced(), b"after", b"1") {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{op:?} {part}: {error}");
                tries += 1;
                assert!(tries < 500, "{op:?} {part}: does not resume: {error}");
                std::thread::sleep(Duration::from_millis(10));
            }
            model.insert(b"after".to_vec(), b"1".to_vec());
            db.flush().expect("flush");
            db.compact_range(&CompactRangeOptions::default(), None, None).expect("compact");
            assert!(contents(&db) == model);
            for policy in [CrashPolicy::DropUnsynced, CrashPolicy::KeepAll] {
                let db = open_on(sim.crash_image(policy), &options).expect("opens");
                assert!(contents(&db) == model, "{op:?} {part} {policy:?}");
            }
        }
    }
}

/// What a failed sync leaves is not known: that needs a reopening, and says so at once. A table is made
/// again first, once.
#[test]
fn b077_a_failed_sync_says_that_it_is_for_good() {
    for part in [".log", ".sst"] {
        let sim = SimFs::new(1);
        let fs = FaultFs::new(sim.clone());
        let db = Db::open(env_on(fs.clone()), Path::new(DIR), by_hand()).expect("open");
        db.put(&synced(), b"a", b"1").expect("put");
        fs.add(Rule::every(OpKind::Sync, Fault::Errno(libc::ENOSPC)).on(part));
        let failed = match part {
            ".log" => db.put(&synced(), b"b", b"1"),
            _ => db.flush(),
        };
        assert!(failed.is_err());
        assert_eq!(kind_of(db.put(&WriteOptions::default(), b"c", b"1")), ErrorKind::Poisoned);
        assert_eq!(kind_of(db.flush()), ErrorKind::Poisoned);
        assert_eq!(get(&db, b"a"), Some(b"1".to_vec()));
        assert_eq!(get(&db, b"b"), None);
        let db = open_on(sim.crash_image(CrashPolicy::DropUnsynced), &by_hand()).expect("opens");
        assert_eq!(contents(&db).len(), 1);
        put(&db, b"c", b"1");
    }
}

#[test]
fn b083_descriptors_are_bounded_and_running_out_passes() {
    let descriptors = |dir: &Path| {
        let links = std::fs::read_dir("/proc/self/fd").expect("list");
        let targets = links.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        targets.filter(|target| target.starts_with(dir)).count()
    };
    let real = Real::new();
    let options = Options { open_tables_max: 16, ..by_hand() };
    for round in 0..5u32 {
        let db = real.open(&options);
        for table in 0..12u32 {
            (0..10u32).for_each(|i| put(&db, &(i * 1000 + round * 12 + table).to_be_bytes(), &[1; 50]));
            db.flush().expect("flush");
        }
        let total = contents(&db).len();
        assert_eq!(total as u32, (round + 1) * 120);
        for key in contents(&db).keys() {
            assert!(get(&db, key).is_some());
        }
        // Tables in the cache, log segments, spares, manifest, lock.
        let open = descriptors(real.dir.path());
        assert!(open <= 16 + 10, "{open} descriptors in round {round}");
        db.close().expect("close");
        drop(db);
        assert_eq!(descriptors(real.dir.path()), 0, "round {round}");
    }
    // None to be had: an error that goes away.
    let sim = SimFs::new(1);
    let fs = FaultFs::new(sim);
    let db = Db::open(env_on(fs.clone()), Path::new(DIR), options).expect("open");
    for table in 0..20u8 {
        put(&db, &[table], &[table; 50]);
        db.flush().expect("flush");
    }
    fs.add(Rule::every(OpKind::Open, Fault::Errno(libc::EMFILE)).on(".sst"));
    let failed = (0..20u8).filter(|i| db.get(&ReadOptions::default(), &[*i]).is_err()).count();
    assert!(failed > 0);
    fs.clear();
    (0..20u8).for_each(|i| assert_eq!(get(&db, &[i]), Some(vec![i; 50])));
    put(&db, b"more", b"1");
    db.flush().expect("flush");
}

#[test]
fn b091_a_bad_table_does_not_make_compaction_spin() {
    let sim = SimFs::new(1);
    let fs = FaultFs::new(sim.clone());
    let db = Db::open(env_on(fs.clone()), Path::new(DIR), by_hand()).expect("open");
    for round in 0..6u8 {
        (0..50u8).for_each(|i| put(&db, &[round * 30 + i % 40], &[i; 100]));
        db.flush().expect("flush");
    }
    drop(db);
    let image = image_of(sim.as_ref(), Path::new(DIR));
    let name = image.keys().find(|name| name.ends_with(".sst")).expect("a table").clone();
    let mut damaged = image.clone();
    // The index lies near the end.
    let bytes = damaged.get_mut(&name).expect("it is there");
    let at = bytes.len() - 600;
    bytes[at..at + 300].fill(0xaa);
    let fs = FaultFs::new(fs_of(&damaged));
    let db = Db::open(env_on(fs.clone()), Path::new(DIR), tiny()).expect("open");
    let error = db.wait_until_idle().expect_err("a compaction is due and can't be done");
    assert!(error.path().is_some_and(|path| path.ends_with(&name)), "{error}");
    std::thread::sleep(Duration::from_millis(100));
    let opens = fs.calls(OpKind::Open) + fs.calls(OpKind::Create);
    std::thread::sleep(Duration::from_millis(1000));
    assert_eq!(fs.calls(OpKind::Open) + fs.calls(OpKind::Create), opens, "it is tried again and again");
    assert_eq!(kind_of(db.put(&WriteOptions::default(), b"k", b"v")), ErrorKind::Poisoned);
    // A key that only another table's range covers.
    assert!(get(&db, &[180]).is_some());
    drop(db);
    let db = open_on(fs_of(&image), &tiny()).expect("open");
    db.wait_until_idle().expect("idle");
    put(&db, b"k", b"v");
}

#[test]
fn b093_tombstones_that_can_not_go_are_left_in_peace() {
    let db = open_on(SimFs::new(1), &Options { level0_compaction_trigger: 2, ..tiny() }).expect("open");
    (0..2000u32).for_each(|i| put(&db, &i.to_be_bytes(), &[1; 100]));
    db.compact_range(&CompactRangeOptions::default(), None, None).expect("compact");
    let snapshot = db.snapshot();
    (0..2000u32).for_each(|i| db.delete(&WriteOptions::default(), &i.to_be_bytes()).expect("delete"));
    db.flush().expect("flush");
    db.wait_until_idle().expect("idle");
    let before = db.compactions();
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(db.compactions(), before, "compactions without progress");
    assert_eq!(contents(&db).len(), 0);
    drop(snapshot);
}

#[test]
fn b113_extreme_option_values_are_refused_by_name_or_work() {
    let (mut refused, mut worked) = (0, 0);
    for info in options::describe() {
        if !matches!(info.value_type, options::OptionType::Integer | options::OptionType::Number) {
            continue;
        }
        let values = [0, 1, info.min, info.min + 1, info.max, 1 << 32, (1 << 32) + 1, u64::MAX];
        for value in values {
            let mut options = tiny();
            if let Err(error) = options.set(info.name, &value.to_string()) {
                assert!(error.message().contains(info.name), "{error}");
                refused += 1;
                continue;
            }
            let sim = SimFs::new(1);
            let db = match open_on(sim.clone(), &options) {
                Ok(db) => db,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{}: {error}", info.name);
                    assert!(error.message().contains(info.name), "{error}");
                    refused += 1;
                    continue;
                }
            };
            let mut rng = Rng(value);
            let mut model = Model::new();
            for _ in 0..300 {
                let (key, bytes) = (rng.below(200).to_be_bytes().to_vec(), rng.bytes(100));
                put(&db, &key, &bytes);
                model.insert(key, bytes);
            }
            db.flush().expect("flush");
            db.compact_range(&CompactRangeOptions::default(), None, None).expect("compact");
            assert!(contents(&db) == model, "{} = {value}", info.name);
            drop(db);
            let db = open_on(sim, &options).expect("reopen");
            assert!(contents(&db) == model, "{} = {value}", info.name);
            worked += 1;
        }
    }
    println!("{refused} refused, {worked} worked");
    assert!(refused > 50 && worked > 50);
}

#[test]
fn b119_close_with_snapshots_held() {
    let real = Real::new();
    let db = real.open(&tiny());
    put(&db, b"k", b"v");
    let snapshot = db.snapshot();
    db.close().expect("snapshots do not keep a database open");
    let at = ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::default() };
    assert_eq!(kind_of(db.get(&at, b"k")), ErrorKind::Closed);
    let again = real.open(&tiny());
    drop(snapshot);
    assert_eq!(contents(&again).len(), 1);
}
