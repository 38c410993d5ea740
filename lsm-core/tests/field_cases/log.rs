//! The commit log: batches, segments, recovery.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dialsm_core::{Db, ErrorKind, Options, WriteBatch, WriteOptions};
use dialsm_io::{CrashPolicy, Fault, FaultFs, OpKind, Rule, SimFs};

use crate::hostile::{
    DIR, Image, Model, assert_typed, by_hand, contents, env_on, fs_of, get, image_of, kind_of, open_on, put,
    synced,
};

/// No flush comes between: all is in the log.
fn logged() -> Options {
    Options { write_buffer_bytes: 64 << 20, log_segment_bytes: 64 << 10, ..by_hand() }
}

fn logs(image: &Image) -> Vec<String> {
    image.keys().filter(|name| name.ends_with(".log")).cloned().collect()
}

/// A killed process's directory after `write`.
fn killed(options: &Options, write: impl FnOnce(&Db)) -> Image {
    let fs = SimFs::new(1);
    let db = open_on(fs.clone(), options).expect("open");
    write(&db);
    let image = image_of(fs.as_ref(), Path::new(DIR));
    drop(db);
    image
}

/// Opens `image`; its data, unless the opening was refused for bad files.
fn recovered(image: &Image, options: &Options) -> Option<Model> {
    match open_on(fs_of(image), options) {
        Ok(db) => Some(contents(&db)),
        Err(error) => {
            assert_typed(&error);
            None
        }
    }
}

#[test]
fn b045_an_operation_refused_late_takes_its_whole_batch_along() {
    let fs = SimFs::new(1);
    let db = open_on(fs.clone(), &by_hand()).expect("open");
    let refused: [fn(&mut WriteBatch); 3] = [
        |batch| batch.merge(b"m", b"operand").expect("added"),
        |batch| batch.delete_range(b"z", b"a").expect("added"),
        |batch| batch.put_in(7, b"k", b"v").expect("added"),
    ];
    for (i, add) in refused.into_iter().enumerate() {
        let mut batch = WriteBatch::new();
        batch.put(b"first", b"1").expect("put");
        add(&mut batch);
        batch.put(b"last", b"1").expect("put");
        let kind = kind_of(db.write(&synced(), batch));
        let typed = matches!(kind, ErrorKind::Unsupported | ErrorKind::NotFound | ErrorKind::InvalidArgument);
        assert!(typed, "{i}: {kind:?}");
        assert_eq!(contents(&db).len(), i);
        put(&db, &[i as u8], b"goes on");
    }
    drop(db);
    let db = open_on(fs, &by_hand()).expect("reopen");
    assert_eq!(contents(&db).len(), 3);
}

#[test]
fn b047_a_long_record_with_zeros_inside_is_never_applied_in_part() {
    let image = killed(&logged(), |db| {
        put(db, b"before", b"1");
        let mut batch = WriteBatch::new();
        (0..500u32).for_each(|i| batch.put(&i.to_be_bytes(), &[7; 1000]).expect("put"));
        db.write(&WriteOptions::default(), batch).expect("write");
    });
    let name = logs(&image).pop().expect("a log");
    let bytes = &image[&name];
    let (n, page) = (bytes.len(), 4096);
    let mut holes: Vec<(usize, usize)> = vec![(n - page, page), (n - page / 2, page), (n / 2, n), (1000, n)];
    holes.extend((1..n / page).step_by(7).map(|at| (at * page, page)));
    for (from, len) in holes {
        let mut damaged = image.clone();
        let to = (from + len).min(n);
        damaged.get_mut(&name).expect("the log")[from..to].fill(0);
        if let Some(found) = recovered(&damaged, &logged()) {
            assert_eq!(found.len(), 1, "zeros at {from}, {len}");
        }
    }
    assert_eq!(recovered(&image, &logged()).expect("whole").len(), 501);
}

#[test]
fn b051_damage_in_an_older_log_makes_no_hole_in_history() {
    let key = |i: u8| vec![b'k', i];
    let image = killed(&logged(), |db| (0..25u8).for_each(|i| put(db, &key(i), &[i; 7000])));
    let segments = logs(&image);
    assert_eq!(segments.len(), 3);
    let is_prefix = |found: &Model| (0..found.len() as u8).all(|i| found.contains_key(&key(i)));
    let (mut refused, mut shorter, mut boundaries) = (0, 0, 0);
    // The oldest one, which the manifest may name, and one in the middle, which it does not.
    for older in &segments[..2] {
        let bytes = &image[older];
        let mut check = |damaged: Option<Vec<u8>>| {
            let mut image = image.clone();
            let is_cut = damaged.as_ref().is_none_or(|damaged| damaged.len() < bytes.len());
            match damaged {
                Some(bytes) => drop(image.insert(older.clone(), bytes)),
                None => drop(image.remove(older)),
            }
            match recovered(&image, &logged()) {
                None => refused += 1,
                Some(found) => {
                    assert!(is_prefix(&found), "a hole: {} entries", found.len());
                    assert!(!is_cut || found.len() < 20, "what was cut off came from nowhere");
                    shorter += usize::from(found.len() < 25);
                }
            }
        };
        check(None);
        for at in (0..bytes.len()).step_by(331) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 4;
            check(Some(flipped));
            check(Some(bytes[..at].to_vec()));
            check(Some(bytes[..at / 8 * 8].to_vec()));
        }
        // Exactly behind a record, where nothing in the file itself looks cut off, and beside that; so
        // also with zeros in place of what was cut off.
        for i in 0..25u8 {
            let Some(value) = bytes.windows(7000).position(|window| window == [i; 7000]) else { continue };
            let end = (value + 7000).next_multiple_of(8);
            boundaries += 1;
            for at in [end - 8, end, end + 8] {
                if at < bytes.len() {
                    check(Some(bytes[..at].to_vec()));
                    let mut zeroed = bytes.clone();
                    zeroed[at..].fill(0);
                    check(Some(zeroed));
                }
            }
        }
    }
    println!("{refused} refused, {shorter} prefixes, cut behind {boundaries} records");
    assert!(refused + shorter > 1000 && boundaries >= 18);
}

/// Sealed memtables wait for a flush that does not come; then the process is killed.
#[test]
fn b053_all_segments_are_replayed() {
    let sim = SimFs::new(1);
    let fs = FaultFs::new(sim.clone());
    let open = Arc::new(AtomicBool::new(false));
    let door = open.clone();
    fs.set_sleeper(Arc::new(move |_| {
        while !door.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }));
    fs.add(Rule::every(OpKind::Create, Fault::Delay(1)).on(".sst"));
    let options = Options {
        write_buffers_max: 8,
        write_buffer_bytes: 64 << 10,
        log_segment_bytes: 64 << 10,
        ..by_hand()
    };
    let db = Db::open(env_on(fs.clone()), Path::new(DIR), options.clone()).expect("open");
    let mut n = 0u32;
    while db.property("dialsm.num-immutable-memtables").as_deref() != Some("6") {
        put(&db, &n.to_be_bytes(), &[1; 500]);
        n += 1;
    }
    let image = image_of(sim.as_ref(), Path::new(DIR));
    open.store(true, Ordering::Release);
    // Closed in order with sealed ones still queued.
    db.close().expect("close");
    drop(db);
    assert!(logs(&image).len() >= 5);
    assert_eq!(recovered(&image, &options).expect("opens").len() as u32, n);
    assert_eq!(contents(&open_on(sim, &options).expect("opens")).len() as u32, n);
}

#[test]
fn b055_zeros_behind_the_log_are_its_end() {
    let image = killed(&logged(), |db| (0..3u8).for_each(|i| put(db, &[i], &[i; 100])));
    let name = logs(&image).pop().expect("a log");
    let bytes = image[&name].clone();
    let with = |bytes: Vec<u8>| {
        let mut image = image.clone();
        image.insert(name.clone(), bytes);
        recovered(&image, &logged()).map(|found| found.len())
    };
    let zeros = vec![0; 4 << 20];
    assert_eq!(with([&bytes[..], &zeros].concat()), Some(3));
    // A torn record with zeros behind it: a prefix. A page of zeros with good records behind: the
    // writes were not synced, so a prefix will do there, too; but nothing from behind the hole.
    let cut = bytes.len() - 50;
    assert_eq!(with([&bytes[..cut], &zeros].concat()), Some(2));
    let mut hole = bytes.clone();
    let second = bytes.len() - 2 * 160;
    hole[second..second + 100].fill(0);
    assert!(matches!(with(hole), None | Some(0 | 1)));
    assert_eq!(with(zeros), Some(0));
    assert_eq!(with(Vec::new()), Some(0));
    assert_eq!(with(bytes[..30].to_vec()), Some(0));
}

#[test]
fn b057_a_recycled_segment_brings_nothing_back() {
    let sim = SimFs::new(1);
    let options = Options { log_recycle_max: 2, ..logged() };
    let db = open_on(sim.clone(), &options).expect("open");
    let (mut recycled, mut without_mark) = (0, 0);
    let mut former: Vec<Vec<u8>> = Vec::new();
    for round in 1..13u8 {
        // Records of one length, so that old ones line up behind new ones.
        (0..80u8).for_each(|i| put(&db, &[i % 40], &[round; 2000]));
        db.flush().expect("flush");
        for i in 0..2 {
            put(&db, &[100 + i], &[round; 2000]);
        }
        // What the flush has released is on its way out, and would vanish while the files are read.
        db.wait_until_idle().expect("idle");
        let image = image_of(sim.as_ref(), Path::new(DIR));
        let newest = logs(&image).pop().expect("a log");
        recycled += usize::from(image[&newest].len() > 64 << 10);
        let check = |image: &Image| {
            let found = recovered(image, &options).expect("opens");
            assert_eq!(found.len(), 42, "round {round}");
            assert!(found.values().all(|value| *value == [round; 2000]));
        };
        check(&image);
        // Also without the mark that stands behind the last record: there the old records go on.
        let bytes = &image[&newest];
        let value = [round; 2000];
        let last = bytes.windows(2000).rposition(|window| window == value).expect("the last value");
        let end = (last + 2000).next_multiple_of(8);
        let behind = end + 100;
        let is_former = |old: &&Vec<u8>| old.len() == bytes.len() && old[behind..] == bytes[behind..];
        if let Some(stale) = former.iter().find(|old| behind < bytes.len() && is_former(old)) {
            let mut unmarked = image.clone();
            unmarked.insert(newest.clone(), [&bytes[..end], &stale[end..]].concat());
            check(&unmarked);
            without_mark += 1;
        }
        former.extend(logs(&image).iter().map(|name| image[name].clone()));
    }
    println!("{recycled} images with a recycled newest segment, {without_mark} without an end mark");
    assert!(recycled >= 5 && without_mark >= 3, "{recycled} {without_mark}");
}

#[test]
fn b059_a_read_error_in_the_log_is_no_torn_tail() {
    let image =
        killed(&logged(), |db| (0..30u8).for_each(|i| db.put(&synced(), &[i], &[i; 8000]).expect("put")));
    let mut failed = 0;
    for errno in [libc::EIO, libc::ENOMEM] {
        for nth in 1..=6 {
            let sim = fs_of(&image);
            let fs = FaultFs::new(sim.clone());
            fs.add(Rule::nth(OpKind::Read, nth, Fault::Errno(errno)).on(".log"));
            let opened = Db::open(env_on(fs.clone()), Path::new(DIR), logged());
            if fs.injected() == 0 {
                continue;
            }
            failed += 1;
            let error = opened.map(drop).expect_err("an unreadable log");
            assert_eq!((error.kind(), error.os_code()), (ErrorKind::Io, Some(errno)), "{error}");
            assert!(image_of(sim.as_ref(), Path::new(DIR)) == image, "a file was changed");
            assert_eq!(contents(&open_on(sim, &logged()).expect("open")).len(), 30);
        }
    }
    assert!(failed >= 4, "{failed}");
}

#[test]
fn b061_garbage_in_the_log_never_panics() {
    let key = |i: u8| vec![b'k', i];
    let image = killed(&logged(), |db| (0..20u8).for_each(|i| put(db, &key(i), &[i; 5])));
    let name = logs(&image).pop().expect("a log");
    let bytes = &image[&name];
    let mut outcomes = [0; 2];
    let mut check = |damaged: Vec<u8>| {
        let mut image = image.clone();
        image.insert(name.clone(), damaged);
        let found = recovered(&image, &logged());
        outcomes[usize::from(found.is_some())] += 1;
        let is_prefix = |found: Model| (0..found.len() as u8).all(|i| found.contains_key(&key(i)));
        assert!(found.is_none_or(is_prefix));
    };
    for at in 0..bytes.len() {
        for byte in [0, 0xff, bytes[at].wrapping_add(1)] {
            // All of the first records, then here and there.
            if byte == bytes[at] || (at > 500 && at % 5 != 0) {
                continue;
            }
            let mut damaged = bytes.clone();
            damaged[at] = byte;
            check(damaged);
        }
        check(bytes[..at].to_vec());
    }
    // Lengths of all sizes in the record at 144, behind file header and start record.
    for length in [0, 1 << 31, 1 << 32, 1 << 63, u64::MAX, u64::MAX - 7, u64::MAX - 55] {
        let mut damaged = bytes.clone();
        damaged[152..160].copy_from_slice(&u64::to_le_bytes(length));
        check(damaged);
    }
    println!("{outcomes:?}");
    assert!(outcomes[1] > 1500, "{outcomes:?}");
}

/// A half-written record at a full disk, then a new segment that stays empty.
#[test]
fn b065_opens_after_a_full_disk_cut_a_record() {
    let torn = [0, 10, 60, 100, 500].into_iter();
    for (torn_bytes, flushed) in torn.flat_map(|bytes| [(bytes, false), (bytes, true)]) {
        let sim = SimFs::new(1);
        let fs = FaultFs::new(sim.clone());
        let db = Db::open(env_on(fs.clone()), Path::new(DIR), logged()).expect("open");
        (0..10u8).for_each(|i| db.put(&synced(), &[i], &[i; 400]).expect("put"));
        db.flush().expect("flush");
        (10..20u8).for_each(|i| db.put(&synced(), &[i], &[i; 400]).expect("put"));
        fs.add(Rule::nth(OpKind::Write, 1, Fault::TornWrite(torn_bytes, libc::ENOSPC)).on(".log"));
        assert_eq!(kind_of(db.put(&synced(), &[99], &[9; 400])), ErrorKind::NoSpace);
        fs.add(Rule::nth(OpKind::Write, 1, Fault::TornWrite(torn_bytes, libc::ENOSPC)).on(".log"));
        assert_eq!(kind_of(db.put(&synced(), &[99], &[9; 400])), ErrorKind::NoSpace);
        if flushed {
            // All is in tables then, and the log that is left has no record.
            db.flush().expect("flush");
        }
        for policy in [CrashPolicy::KeepAll, CrashPolicy::DropUnsynced, CrashPolicy::Random(3)] {
            let image = sim.crash_image(policy);
            let db = open_on(image, &logged()).expect("opens");
            assert_eq!(contents(&db).len(), 20);
            put(&db, &[50], b"new");
        }
        // And going on without a reopening.
        fs.clear();
        db.put(&synced(), &[98], b"later").expect("put");
        let db = open_on(sim.crash_image(CrashPolicy::DropUnsynced), &logged()).expect("opens");
        assert_eq!(contents(&db).len(), 21);
        assert_eq!(get(&db, &[99]), None);
    }
}

#[test]
fn b067_what_is_flushed_is_not_replayed() {
    let sim = SimFs::new(1);
    let db = open_on(sim.clone(), &logged()).expect("open");
    (0..500u32).for_each(|i| put(&db, &i.to_be_bytes(), &[1; 1000]));
    assert_ne!(db.property("dialsm.num-entries-active-memtable").as_deref(), Some("0"));
    db.flush().expect("flush");
    db.close().expect("close");
    for _ in 0..5 {
        let db = open_on(sim.clone(), &logged()).expect("open");
        assert_eq!(db.property("dialsm.num-entries-active-memtable").as_deref(), Some("0"));
        assert_eq!(db.property("dialsm.num-files-at-level0").as_deref(), Some("1"));
        assert_eq!(contents(&db).len(), 500);
        db.close().expect("close");
    }
}

#[test]
fn b079_nothing_is_acknowledged_that_is_not_in_the_log() {
    let (mut failures, mut runs) = (0, 0);
    for op in [OpKind::Write, OpKind::Create, OpKind::Sync, OpKind::Allocate] {
        for errno in [libc::ENOSPC, libc::EIO, libc::EMFILE, libc::EFBIG] {
            for nth in [1, 2, 3, 5, 17, 40, 90] {
                let sim = SimFs::new(nth);
                let fs = FaultFs::new(sim.clone());
                fs.add(Rule::nth(op, nth, Fault::Errno(errno)).on(".log"));
                let db = Db::open(env_on(fs.clone()), Path::new(DIR), logged()).expect("open");
                let mut acknowledged = Vec::new();
                for i in 0..100u8 {
                    match db.put(&synced(), &[i], &[i; 1500]) {
                        Ok(()) => acknowledged.push(i),
                        Err(_) => failures += 1,
                    }
                }
                runs += u64::from(fs.injected() > 0);
                for policy in [CrashPolicy::DropUnsynced, CrashPolicy::KeepAll] {
                    let db = open_on(sim.crash_image(policy), &logged()).expect("opens");
                    let found = contents(&db);
                    let lost = acknowledged.iter().filter(|i| !found.contains_key(&vec![**i])).count();
                    assert_eq!(lost, 0, "{op:?} {nth} fails with {errno}, {policy:?}");
                }
            }
        }
    }
    println!("{runs} runs with a fault, {failures} failed writes");
    assert!(runs >= 50 && failures > 100);
}

#[test]
fn b111_batches_and_values_far_above_every_buffer() {
    let options =
        Options { write_buffer_bytes: 64 << 10, log_segment_bytes: 64 << 10, ..crate::hostile::tiny() };
    let sim = SimFs::new(1);
    let db = open_on(sim.clone(), &options).expect("open");
    let mut batch = WriteBatch::new();
    (0..70_000u32).for_each(|i| batch.put(&i.to_be_bytes(), b"small").expect("put"));
    assert!(batch.len() > 1 << 16);
    db.write(&WriteOptions::default(), batch).expect("write");
    let mut batch = WriteBatch::new();
    (0..1024u32).for_each(|i| batch.put(&(1 << 20 | i).to_be_bytes(), &[3; 32 << 10]).expect("put"));
    db.write(&WriteOptions::default(), batch.clone()).expect("write");
    // The caller's batch is still of use.
    batch.put(b"one more", b"1").expect("put");
    db.write(&WriteOptions::default(), batch).expect("write");
    // While flushes and compactions run: one instant of all files.
    let image = sim.crash_image(CrashPolicy::KeepAll);
    assert_eq!(contents(&db).len(), 70_000 + 1025);
    drop(db);
    assert_eq!(contents(&open_on(image, &options).expect("opens")).len(), 70_000 + 1025);
}

/// As many sealed memtables as stop writers, and more, are in the log of a killed process.
#[test]
fn b127_writing_goes_on_after_recovering_many_sealed_memtables() {
    // With compactions, and without them: then nothing but the flush itself lets writers go on.
    let automatic =
        [(3, false, true), (7, false, true), (7, true, true), (7, false, false), (7, true, false)];
    for (sealed, one_flush_fails, automatic_compaction) in automatic {
        let image = killed(&logged(), |db| {
            (0..sealed * 400u32).for_each(|i| put(db, &i.to_be_bytes(), &[1; 200]));
        });
        let sim = fs_of(&image);
        let fs = FaultFs::new(sim);
        let options = Options {
            write_buffer_bytes: 64 << 10,
            write_buffers_max: 2,
            background_jobs_max: 2,
            automatic_compaction,
            ..crate::hostile::tiny()
        };
        let db = Db::open(env_on(fs.clone()), Path::new(DIR), options).expect("open");
        if one_flush_fails {
            fs.add(Rule::nth(OpKind::Create, 1, Fault::Errno(libc::ENOSPC)).on(".sst"));
        } else {
            // Flushes so slow that writers come to a shut door.
            fs.set_sleeper(Arc::new(|_| std::thread::sleep(Duration::from_millis(30))));
            fs.add(Rule::every(OpKind::Create, Fault::Delay(1)).on(".sst"));
        }
        let (done, finished) = std::sync::mpsc::channel();
        for writer in 0..4u32 {
            let (db, done) = (db.clone(), done.clone());
            std::thread::spawn(move || {
                for i in 0..500u32 {
                    let key = [9, writer, i].map(u32::to_be_bytes).concat();
                    // A full disk passes.
                    while let Err(error) = db.put(&WriteOptions::default(), &key, &[2; 300]) {
                        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
                done.send(()).expect("the test waits");
            });
        }
        for _ in 0..4 {
            finished.recv_timeout(Duration::from_secs(20)).expect("writers go on");
        }
        db.flush().expect("flush");
        assert_eq!(db.property("dialsm.num-immutable-memtables").as_deref(), Some("0"));
        assert_eq!(contents(&db).len() as u32, sealed * 400 + 2000);
        assert!(fs.injected() > 0);
        assert!(one_flush_fails || db.stalls().all.count > 0, "no writer had to wait");
    }
}
