//! All the ways in which opening, closing and destroying can be asked for wrongly.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

mod hostile;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use dialsm_core::key::Comparator;
use dialsm_core::{CompactRangeOptions, Db, ErrorKind, Options, ReadOptions, WriteBatch, WriteOptions};
use dialsm_io::OsEnv;
use hostile::{Real, contents, get, kind_of, put, synced, tiny};

/// Names and contents of a directory tree of the real file system.
fn listing(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(dir).expect("list").map(|entry| entry.expect("entry"));
    entries
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, std::fs::read(entry.path()).unwrap_or_default())
        })
        .collect()
}

const CHILD_DIR: &str = "DIALSM_TEST_CHILD_DIR";

/// Runs test `name` of this program in a process of its own, on `dir`.
fn run_child(name: &str, dir: &Path) -> bool {
    let status = Command::new(std::env::current_exe().expect("own path"))
        .args(["--exact", name, "--ignored", "--nocapture"])
        .env(CHILD_DIR, dir)
        .stdout(Stdio::null())
        .status()
        .expect("run");
    status.success()
}

#[test]
#[ignore = "run by a_second_opening_is_busy in a process of its own"]
fn child_finds_it_busy() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let refused = Db::open(OsEnv::new(), Path::new(&dir), tiny()).map(drop);
    assert_eq!(kind_of(refused), ErrorKind::Busy);
    assert_eq!(kind_of(Db::destroy(&*OsEnv::new(), Path::new(&dir))), ErrorKind::Busy);
}

#[test]
#[ignore = "run by a_second_opening_is_busy in a process of its own"]
fn child_opens_it() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let db = Db::open(OsEnv::new(), Path::new(&dir), tiny()).expect("open");
    assert_eq!(get(&db, b"k"), Some(b"v".to_vec()));
}

#[test]
fn a_second_opening_is_busy() {
    let real = Real::new();
    let db = real.open(&tiny());
    put(&db, b"k", b"v");
    // Nothing more is written in the background then.
    db.wait_until_idle().expect("idle");
    let before = listing(&real.path());
    assert_eq!(kind_of(real.try_open(&tiny()).map(drop)), ErrorKind::Busy);
    // By another environment, another path and another process.
    let roundabout = real.path().join("..").join("db");
    assert_eq!(kind_of(Db::open(OsEnv::new(), &roundabout, tiny()).map(drop)), ErrorKind::Busy);
    assert!(run_child("child_finds_it_busy", &real.path()));
    assert_eq!(listing(&real.path()), before);
    put(&db, b"k2", b"v2");
    db.close().expect("close");
    assert!(run_child("child_opens_it", &real.path()));
    let db = real.open(&tiny());
    assert_eq!(contents(&db).len(), 2);
}

#[test]
fn missing_and_existing_databases() {
    let real = Real::new();
    let no_create = Options { create_if_missing: false, ..tiny() };
    assert_eq!(kind_of(real.try_open(&no_create).map(drop)), ErrorKind::NotFound);
    assert!(!real.path().exists(), "nothing was created");
    std::fs::create_dir(real.path()).expect("directory");
    assert_eq!(kind_of(real.try_open(&no_create).map(drop)), ErrorKind::NotFound);
    assert_eq!(listing(&real.path()).len(), 0, "nothing was created");
    let no_exist = Options { error_if_exists: true, ..tiny() };
    drop(real.open(&no_exist));
    let before = listing(&real.path());
    let error = real.try_open(&no_exist).map(drop).expect_err("exists");
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(error.path(), Some(real.path().as_path()));
    assert_eq!(listing(&real.path()), before);
    drop(real.open(&no_create));
    // Several levels of directories that are missing.
    let deep = real.dir.path().join("a/b/c");
    drop(Db::open(real.env.clone(), &deep, tiny()).expect("open"));
}

#[test]
fn a_file_in_place_of_the_directory() {
    let real = Real::new();
    std::fs::write(real.path(), b"precious").expect("write");
    for create_if_missing in [true, false] {
        let error = real.try_open(&Options { create_if_missing, ..tiny() }).map(drop).expect_err("a file");
        let kind = if create_if_missing { ErrorKind::InvalidArgument } else { ErrorKind::NotFound };
        assert_eq!((error.kind(), error.path()), (kind, Some(real.path().as_path())), "{error}");
    }
    assert!(Db::destroy(&*real.env, &real.path()).is_err());
    assert_eq!(std::fs::read(real.path()).expect("still a file"), b"precious");
    // Where a file should be stands a directory.
    let real = Real::new();
    std::fs::create_dir_all(real.path().join("CURRENT")).expect("directory");
    let error = real.try_open(&tiny()).map(drop).expect_err("CURRENT is a directory");
    assert!(error.path().is_some(), "{error}");
}

#[test]
fn a_read_only_directory() {
    let real = Real::new();
    drop(real.open(&tiny()));
    let Some(_mount) = hostile::mount::read_only_view(&real.path()) else {
        println!("skipped: no right to mount, and rights to write do not bind this user");
        return;
    };
    let before = listing(&real.path());
    let error = real.try_open(&tiny()).map(drop).expect_err("read-only");
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    assert!(Db::destroy(&*real.env, &real.path()).is_err());
    assert_eq!(listing(&real.path()), before);
    let inside = real.path().join("new");
    let error = Db::open(real.env.clone(), &inside, tiny()).map(drop).expect_err("read-only");
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
}

/// Files whose names are not ours, some only nearly so.
const FOREIGN: [&str; 9] = [
    "README",
    "notes.tmp",
    "000001.sst.bak",
    "1.log",
    "MANIFEST-1",
    "OPTIONS",
    "lock",
    "CURRENT.old",
    "0000001.sst",
];

#[test]
fn foreign_files_survive_open_and_destroy() {
    let real = Real::new();
    std::fs::create_dir(real.path()).expect("directory");
    for name in FOREIGN {
        std::fs::write(real.path().join(name), name).expect("write");
    }
    std::fs::create_dir(real.path().join("lost+found")).expect("directory");
    let db = real.open(&tiny());
    put(&db, b"k", b"v");
    db.flush().expect("flush");
    drop(db);
    let db = real.open(&tiny());
    assert_eq!(get(&db, b"k"), Some(b"v".to_vec()));
    db.close().expect("close");
    Db::destroy(&*real.env, &real.path()).expect("destroy");
    let left = listing(&real.path());
    assert_eq!(left.len(), FOREIGN.len() + 1, "{:?}", left.keys());
    for name in FOREIGN {
        assert_eq!(left[name], name.as_bytes());
    }
}

/// Other engines of the family name their files as we do.
#[test]
fn another_engines_database_is_neither_opened_nor_destroyed() {
    let real = Real::new();
    std::fs::create_dir(real.path()).expect("directory");
    let files = [
        ("CURRENT", &b"MANIFEST-000005\n"[..]),
        ("MANIFEST-000005", &[0x56, 0xf9, 0xb8, 0xf8, 0x1c, 0, 1, 1][..]),
        ("000004.log", b"\0\0\0\0\0\0\0\0"),
        ("000009.sst", b"table of another engine"),
        ("LOCK", b""),
        ("LOG", b"text"),
    ];
    for (name, bytes) in files {
        std::fs::write(real.path().join(name), bytes).expect("write");
    }
    let before = listing(&real.path());
    let error = real.try_open(&tiny()).map(drop).expect_err("not ours");
    assert!(matches!(error.kind(), ErrorKind::Foreign | ErrorKind::Corruption), "{error}");
    assert_eq!(listing(&real.path()), before);
    // Long enough for a header, so that it is known for a foreign one.
    std::fs::write(real.path().join("MANIFEST-000005"), [0x56; 100]).expect("write");
    let before = listing(&real.path());
    assert_eq!(kind_of(real.try_open(&tiny()).map(drop)), ErrorKind::Foreign);
    assert_eq!(kind_of(Db::destroy(&*real.env, &real.path())), ErrorKind::Foreign);
    assert_eq!(listing(&real.path()), before);
}

#[test]
fn destroying() {
    let real = Real::new();
    Db::destroy(&*real.env, &real.path()).expect("nothing there is no error");
    let db = real.open(&tiny());
    put(&db, b"k", b"v");
    db.flush().expect("flush");
    put(&db, b"k2", b"v");
    assert_eq!(kind_of(Db::destroy(&*real.env, &real.path())), ErrorKind::Busy);
    assert_eq!(contents(&db).len(), 2);
    // An iterator outlives the handle and holds the directory.
    let mut iter = db.iter(&ReadOptions::default()).expect("iter");
    db.close().expect("close");
    assert_eq!(kind_of(Db::destroy(&*real.env, &real.path())), ErrorKind::Busy);
    assert_eq!(kind_of(real.try_open(&tiny()).map(drop)), ErrorKind::Busy);
    iter.seek_to_first().expect("first");
    assert_eq!(iter.key(), b"k");
    drop(iter);
    Db::destroy(&*real.env, &real.path()).expect("destroy");
    assert!(!real.path().exists());
    // The closed handle stays closed, and a new database is a new one.
    assert_eq!(kind_of(db.get(&ReadOptions::default(), b"k")), ErrorKind::Closed);
    let fresh = real.open(&tiny());
    assert_eq!(contents(&fresh).len(), 0);
    drop(db);
    put(&fresh, b"new", b"1");
    drop(fresh);
    assert_eq!(contents(&real.open(&tiny())).len(), 1);
}

#[test]
fn a_wrong_comparator() {
    let real = Real::new();
    let db = real.open(&tiny());
    put(&db, b"k", b"v");
    db.flush().expect("flush");
    drop(db);
    let before = listing(&real.path());
    let backwards = Options { comparator: Comparator::ReverseBytewise, ..tiny() };
    let error = real.try_open(&backwards).map(drop).expect_err("another order");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("dialsm.reverse-bytewise"), "{error}");
    assert_eq!(listing(&real.path()), before);
    assert_eq!(get(&real.open(&tiny()), b"k"), Some(b"v".to_vec()));
}

#[test]
fn invalid_options_name_every_problem() {
    let real = Real::new();
    let bad = Options {
        write_buffer_bytes: 0,
        write_buffers_max: 1,
        level_multiplier: f64::NAN,
        level0_slowdown_trigger: 2,
        level0_compaction_trigger: 3,
        block_bytes: u64::MAX,
        filter_bits_per_key: -1.0,
        ..tiny()
    };
    let error = real.try_open(&bad).map(drop).expect_err("invalid");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let names = [
        "write_buffer_bytes",
        "write_buffers_max",
        "level_multiplier",
        "level0_slowdown_trigger",
        "block_bytes",
        "filter_bits_per_key",
    ];
    for name in names {
        assert!(error.message().contains(name), "{name} is not named: {error}");
    }
    assert!(!real.path().exists(), "nothing was created");
}

/// What a child of fork() does with its parent's handles. Returns the number of the first step that
/// went wrong, 0 if none. No assertion: a panic would run the parent's test harness in the child.
fn use_in_child(db: &Db, iter: dialsm_core::DbIterator, env: &Arc<dyn dialsm_io::Env>, path: &Path) -> i32 {
    let forked = |kind: Option<ErrorKind>| kind == Some(ErrorKind::Forked);
    let (read, write) = (ReadOptions::default(), WriteOptions::default());
    let mut batch = WriteBatch::new();
    if batch.put(b"child", b"1").is_err() {
        return 99;
    }
    let other = path.with_extension("other");
    let steps = [
        db.put(&write, b"child", b"1").err(),
        db.delete(&synced(), b"k").err(),
        db.write(&write, batch).err(),
        db.get(&read, b"k").err(),
        db.multi_get(&read, &[b"k"]).err(),
        db.iter(&read).err(),
        db.flush().err(),
        db.sync().err(),
        db.compact_range(&CompactRangeOptions::default(), None, None).err(),
        db.wait_until_idle().err(),
        db.verify(&mut |_, _| {}).err(),
        db.close().err(),
        Db::open(env.clone(), path, tiny()).err(),
        Db::open(env.clone(), &other, tiny()).err(),
        // Nor with an environment of its own, while the parent has a database open.
        Db::open(OsEnv::new(), &other, tiny()).err(),
        Db::destroy(&**env, path).err(),
        Db::destroy(&**env, &other).err(),
    ];
    let wrong = steps.iter().position(|error| !forked(error.as_ref().map(|e| e.kind())));
    drop(iter);
    drop(db.clone());
    wrong.map_or(0, |step| step as i32 + 1)
}

/// Waits for the child, at most 30 s, and returns its exit code.
fn wait_for(child: libc::pid_t) -> i32 {
    for _ in 0..3000 {
        let mut status = 0;
        // SAFETY: waits for a child of ours and writes its status to a local.
        if unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == child {
            return if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -1 };
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    // SAFETY: the child is ours and has not been waited for.
    unsafe { libc::kill(child, libc::SIGKILL) };
    panic!("the child hangs");
}

#[test]
fn a_forked_child_may_do_nothing() {
    let real = Real::new();
    let db = real.open(&tiny());
    put(&db, b"k", b"v");
    db.flush().expect("flush");
    put(&db, b"k2", b"v2");
    db.wait_until_idle().expect("idle");
    let iter = db.iter(&ReadOptions::default()).expect("iter");
    let before = listing(&real.path());
    // SAFETY: the child only calls into the database, whose locks no other thread of ours holds
    // now, and leaves with _exit.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork");
    if child == 0 {
        let step = use_in_child(&db, iter, &real.env, &real.path());
        // Dropping the last handles in the child must leave files and lock alone, too.
        drop(db);
        // SAFETY: ends the process without running anything else of it.
        unsafe { libc::_exit(step) };
    }
    assert_eq!(wait_for(child), 0, "number of the call that did not fail with Forked");
    assert_eq!(listing(&real.path()), before, "the child changed a file");
    assert_eq!(kind_of(real.try_open(&tiny()).map(drop)), ErrorKind::Busy, "the child took the lock away");
    put(&db, b"k3", b"v3");
    db.flush().expect("flush");
    drop(iter);
    db.close().expect("close");
    assert_eq!(contents(&real.open(&tiny())).len(), 3);
}

/// Found by simulated power cuts: an opening that gave the OPTIONS file the number of one that a crash had
/// left unfinished could not create it.
#[test]
fn unfinished_files_of_any_number_keep_nobody_out() {
    let real = Real::new();
    let dir = real.path();
    drop(Db::open(OsEnv::new(), &dir, tiny()).expect("create"));
    for number in 1..40 {
        for name in [format!("OPTIONS-{number:06}.tmp"), "CURRENT.tmp".to_owned()] {
            std::fs::write(dir.join(name), b"half").expect("write");
        }
    }
    let db = Db::open(OsEnv::new(), &dir, tiny()).expect("open");
    put(&db, b"key", b"value");
    drop(db);
    let unfinished = listing(&dir).into_keys().filter(|name| name.ends_with(".tmp"));
    assert_eq!(unfinished.count(), 0, "they are removed");
}
