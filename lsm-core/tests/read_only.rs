//! Openings for reading only: what they show, what they refuse, and that they change nothing.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

mod hostile;

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use dialsm_core::{
    CompactRangeOptions, Db, ErrorKind, FlushOptions, Options, ReadOptions, WriteBatch, WriteOptions,
};
use dialsm_io::{Access, Env, Fs, OpKind, SimFs};
use hostile::{
    DIR, Model, Real, by_hand, contents, env_on, fs_of, get, image_of, kind_of, mount, open_on, put, tiny,
    write_file,
};

fn read_only(fs: Arc<dyn Fs>, options: &Options) -> dialsm_core::Result<Db> {
    Db::open_read_only(env_on(fs), Path::new(DIR), options.clone())
}

/// Tables, several log segments (more than a memtable's worth), and a torn end, without a lock held.
fn specimen() -> (Arc<SimFs>, Model) {
    let sim = SimFs::new(1);
    let db = open_on(sim.clone(), &by_hand()).expect("open");
    let mut model = Model::new();
    for n in 0..900u32 {
        let (key, value) = ((n % 700).to_be_bytes().to_vec(), vec![n as u8; 400]);
        put(&db, &key, &value);
        model.insert(key, value);
        match n {
            200 => db.flush().expect("flush"),
            400 => db.compact_range(&CompactRangeOptions::default(), None, None).expect("compact"),
            _ => {}
        }
    }
    drop(db);
    let mut image = image_of(sim.as_ref(), Path::new(DIR));
    let newest = image.keys().rfind(|name| name.ends_with(".log")).expect("a log").clone();
    let log = image.get_mut(&newest).expect("just found");
    // A record that was begun: zeros and some bytes.
    log.extend_from_slice(&[0; 8]);
    log.extend_from_slice(&[0x5a; 40]);
    let fs = fs_of(&image);
    write_file(fs.as_ref(), &Path::new(DIR).join("LOCK"), b"");
    // Orphans that an opening for writing would remove.
    write_file(fs.as_ref(), &Path::new(DIR).join("000900.sst"), b"orphan");
    write_file(fs.as_ref(), &Path::new(DIR).join("CURRENT.tmp"), b"orphan");
    (fs, model)
}

/// All calls of a database's life for reading, and that none of them changes anything.
#[test]
fn nothing_is_written_by_a_read_only_opening() {
    let (fs, model) = specimen();
    let before = image_of(fs.as_ref(), Path::new(DIR));
    fs.set_tracing(true);
    // A memtable that the log fills several times over.
    let small = Options { write_buffer_bytes: 64 << 10, ..tiny() };
    let db = read_only(fs.clone(), &small).expect("open");
    assert_eq!(contents(&db), model);
    assert_eq!(db.multi_get(&ReadOptions::default(), &[&1u32.to_be_bytes()]).expect("get").len(), 1);
    let snapshot = db.snapshot();
    let at = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::default() };
    assert!(db.get(&at, &5u32.to_be_bytes()).expect("get").is_some());
    assert!(db.verify(&mut |_, _| {}).expect("verify").tables > 0);
    assert!(db.is_idle());
    db.wait_until_idle().expect("idle");
    assert!(db.stats_text().len() > 10 && db.property("dialsm.options").is_some());
    refuses_to_write(&db);
    db.close().expect("close");
    assert_eq!(kind_of(db.get(&ReadOptions::default(), b"k")), ErrorKind::Closed);
    drop(db);
    // Dropped, not closed, with an iterator that outlives it.
    let db = read_only(fs.clone(), &small).expect("open");
    // Block by block, so that there are many calls to be seen.
    let one_by_one = ReadOptions { readahead_bytes: 1, ..ReadOptions::default() };
    let mut iter = db.iter(&one_by_one).expect("iter");
    drop(db);
    for _ in 0..3 {
        iter.seek_to_first().expect("seek");
        assert!(iter.valid());
        while iter.valid() {
            iter.next().expect("next");
        }
    }
    drop(iter);
    let trace = fs.trace();
    let reading = [OpKind::Open, OpKind::Read, OpKind::List, OpKind::Lock];
    let writing: Vec<_> =
        trace.iter().filter(|call| !call.op.is_some_and(|op| reading.contains(&op))).collect();
    assert!(writing.is_empty(), "{writing:?}");
    assert!(trace.len() > 100, "{} calls were seen", trace.len());
    fs.set_tracing(false);
    assert_eq!(image_of(fs.as_ref(), Path::new(DIR)), before);
    // A writer finds the same, and does what was left to it.
    let db = open_on(fs.clone(), &small).expect("open");
    assert_eq!(contents(&db), model);
    assert!(!fs.exists(&Path::new(DIR).join("000900.sst")).expect("exists"));
}

fn refuses_to_write(db: &Db) {
    let mut batch = WriteBatch::new();
    batch.put(b"k", b"v").expect("put");
    let (writes, unlogged) =
        (WriteOptions::default(), WriteOptions { disable_log: true, ..Default::default() });
    let outcomes = [
        db.put(&writes, b"k", b"v"),
        db.put(&unlogged, b"k", b"v"),
        db.delete(&writes, b"k"),
        db.single_delete(&writes, b"k"),
        db.write(&writes, batch),
        db.write(&writes, WriteBatch::new()),
        db.flush(),
        db.flush_with(&FlushOptions { wait: false, ..FlushOptions::default() }),
        db.sync(),
        db.compact_range(&CompactRangeOptions::default(), None, None),
        db.set_options(&[("table_bytes", "1M")]),
        db.checkpoint(Path::new("/copy")),
    ];
    for (index, outcome) in outcomes.into_iter().enumerate() {
        assert_eq!(kind_of(outcome), ErrorKind::ReadOnly, "call {index}");
    }
}

#[test]
fn readers_share_and_exclude_a_writer() {
    let real = Real::new();
    let open = || Db::open_read_only(real.env.clone(), &real.path(), tiny());
    assert_eq!(kind_of(open().map(drop)), ErrorKind::NotFound);
    assert!(!real.path().exists(), "nothing was created");
    let writer = real.open(&tiny());
    put(&writer, b"k", b"v");
    assert_eq!(kind_of(open().map(drop)), ErrorKind::Busy);
    drop(writer);
    let (one, two) = (open().expect("one"), open().expect("two"));
    assert_eq!((get(&one, b"k"), get(&two, b"k")), (Some(b"v".to_vec()), Some(b"v".to_vec())));
    assert_eq!(kind_of(real.try_open(&tiny()).map(drop)), ErrorKind::Busy);
    assert_eq!(kind_of(Db::destroy(real.env.as_ref(), &real.path())), ErrorKind::Busy);
    assert_eq!(kind_of(Db::upgrade(real.env.as_ref(), &real.path())), ErrorKind::Busy);
    one.close().expect("close");
    assert_eq!(kind_of(real.try_open(&tiny()).map(drop)), ErrorKind::Busy);
    let iter = two.iter(&ReadOptions::default()).expect("iter");
    two.close().expect("close");
    assert_eq!(kind_of(real.try_open(&tiny()).map(drop)), ErrorKind::Busy, "an iterator reads on");
    drop(iter);
    drop(real.open(&tiny()));
    // Without the file that the lock is on, nothing would hold off a writer.
    std::fs::remove_file(real.path().join("LOCK")).expect("remove");
    let error = open().map(drop).expect_err("no LOCK");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.path().is_some_and(|path| path.ends_with("LOCK")), "{error}");
    assert!(!real.path().join("LOCK").exists());
}

/// Names, contents and times of all files.
fn state_of(dir: &Path) -> BTreeMap<String, (Vec<u8>, i64, i64, u64)> {
    let entries = std::fs::read_dir(dir).expect("list").map(|entry| entry.expect("entry"));
    entries
        .map(|entry| {
            let meta = entry.metadata().expect("metadata");
            let times = (meta.mtime() * 1_000_000_000 + meta.mtime_nsec(), meta.ctime_nsec(), meta.ino());
            let bytes = std::fs::read(entry.path()).expect("read");
            (entry.file_name().to_string_lossy().into_owned(), (bytes, times.0, times.1, times.2))
        })
        .collect()
}

#[test]
fn a_read_only_directory_of_the_real_file_system() {
    let real = Real::new();
    let db = real.open(&tiny());
    let mut model = Model::new();
    for n in 0..200u32 {
        put(&db, &n.to_be_bytes(), &[n as u8; 600]);
        model.insert(n.to_be_bytes().to_vec(), vec![n as u8; 600]);
    }
    drop(db);
    let before = state_of(&real.path());
    let check = || {
        let db = Db::open_read_only(real.env.clone(), &real.path(), tiny()).expect("open");
        assert_eq!(contents(&db), model);
        db.close().expect("close");
        assert_eq!(state_of(&real.path()), before);
    };
    check();
    let mode = |bits| std::fs::Permissions::from_mode(bits);
    std::fs::set_permissions(real.path(), mode(0o500)).expect("chmod");
    check();
    std::fs::set_permissions(real.path(), mode(0o700)).expect("chmod");
    let Some(mounted) = mount::read_only_view(&real.path()) else {
        println!("not allowed to mount: only the mode of the directory was tried");
        return;
    };
    assert_eq!(kind_of(real.try_open(&tiny()).map(drop)), ErrorKind::ReadOnly);
    check();
    drop(mounted);
}

/// Reading needs no space: neither for replay nor for the OPTIONS file that an opening writes otherwise.
#[test]
fn a_full_disk_is_no_obstacle() {
    let (fs, model) = specimen();
    fs.set_capacity(0);
    let db = read_only(fs.clone(), &tiny()).expect("open");
    assert_eq!(contents(&db), model);
    db.close().expect("close");
    assert_eq!(kind_of(open_on(fs, &tiny()).map(drop)), ErrorKind::NoSpace);
}

/// Damage is told, not repaired, and not worked around.
#[test]
fn damage_is_refused_and_stays() {
    let (fs, _) = specimen();
    let image = image_of(fs.as_ref(), Path::new(DIR));
    let mut refused = 0;
    for name in image.keys().filter(|name| name.starts_with("MANIFEST") || name.ends_with(".log")) {
        let mut bad = image.clone();
        let bytes = bad.get_mut(name).expect("listed");
        let middle = bytes.len() / 3;
        bytes[middle] ^= 4;
        let fs = fs_of(&bad);
        write_file(fs.as_ref(), &Path::new(DIR).join("LOCK"), b"");
        let strict =
            Options { recovery_mode: dialsm_core::options::RecoveryMode::AbsoluteConsistency, ..tiny() };
        let error = read_only(fs.clone(), &strict).map(drop).expect_err("damaged");
        hostile::assert_typed(&error);
        let mut after = image_of(fs.as_ref(), Path::new(DIR));
        after.remove("LOCK");
        bad.remove("LOCK");
        assert_eq!(after, bad);
        // The lock was given back.
        fs.lock(&Path::new(DIR).join("LOCK"), dialsm_io::LockMode::Exclusive).expect("free");
        refused += 1;
    }
    assert!(refused >= 3, "{refused}");
}

/// Options that do not fit are named as by any other opening.
#[test]
fn options_are_checked() {
    let (fs, _) = specimen();
    let bad = Options { write_buffers_max: 1, ..tiny() };
    assert_eq!(kind_of(read_only(fs.clone(), &bad).map(drop)), ErrorKind::InvalidArgument);
    let other = Options {
        create_if_missing: false,
        error_if_exists: true,
        comparator: dialsm_core::key::Comparator::default(),
        ..tiny()
    };
    assert!(read_only(fs.clone(), &other).is_ok(), "they do not count");
    let env: Arc<dyn Env> = env_on(fs.clone());
    let file = fs.open(&Path::new(DIR).join("CURRENT"), Access::Read).expect("open");
    assert!(file.len().expect("length") > 0 && env.check_fork().is_ok());
}
