//! Databases and their rings on the real system: many in one process, closed while I/O is under way,
//! forked in the middle of it, and refused by the kernel. Where the machine lets nobody have a ring,
//! the same holds of pools of threads, and what counts rings is left out.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]
#![allow(unsafe_code)]

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use dialsm_core::{Db, ErrorKind, Options, ReadOptions, WriteOptions};
use dialsm_io::{AsyncIo, Env, Event, Fs, IoOptions, Job, JobHandle, Nanos, OsEnv, Result};

/// One test at a time: descriptors are the process's.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Small enough that flushes and compactions are always under way.
fn options() -> Options {
    Options {
        write_buffer_bytes: 256 << 10,
        table_bytes: 128 << 10,
        level0_compaction_trigger: 2,
        level_base_bytes: 256 << 10,
        level_multiplier: 3.0,
        log_segment_bytes: 256 << 10,
        ..Options::default()
    }
}

fn open(env: &Arc<dyn Env>, dir: &Path) -> Db {
    Db::open(env.clone(), dir, options()).expect("open")
}

/// Descriptors of this process whose target holds `what`.
fn descriptors(what: &str) -> usize {
    let links = std::fs::read_dir("/proc/self/fd").expect("list");
    let targets = links.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets.filter(|target| target.to_string_lossy().contains(what)).count()
}

/// Threads of this process that a database or its ring has started; those of the test programs come and go by
/// themselves.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("list");
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("dialsm-") || name.starts_with("iou-")).count()
}

fn key(i: u64) -> [u8; 8] {
    i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn value(i: u64) -> Vec<u8> {
    vec![i as u8; 1000]
}

/// Puts `keys`, each with the value that belongs to it.
fn fill(db: &Db, keys: std::ops::Range<u64>) {
    keys.for_each(|i| db.put(&WriteOptions::default(), &key(i), &value(i)).expect("put"));
}

fn check(db: &Db, keys: std::ops::Range<u64>) {
    for i in keys {
        let found = db.get(&ReadOptions::default(), &key(i)).expect("get");
        assert_eq!(found.as_deref(), Some(&value(i)[..]), "key {i}");
    }
}

fn report(db: &Db) -> String {
    db.property("dialsm.asynchronous-io").expect("a property")
}

fn has_ring(db: &Db) -> bool {
    report(db).contains("by io_uring")
}

/// Whether something is on its way to the disk.
fn is_busy(db: &Db) -> bool {
    let names = ["num-immutable-memtables", "undurable-tables", "unsettled-installs", "in-flight-bytes"];
    names.iter().any(|name| db.property(&format!("dialsm.{name}")).expect("a property") != "0")
}

#[test]
fn many_databases_have_a_ring_each_and_close_while_others_work() {
    const DATABASES: u64 = 8;
    const KEYS: u64 = 1500;
    let _alone = alone();
    let env: Arc<dyn Env> = OsEnv::new();
    let dir = tempfile::tempdir().expect("a directory");
    let (rings, events) = (descriptors("[io_uring]"), descriptors("[eventfd]"));
    for round in 0..2 {
        let dbs: Vec<Db> = (0..DATABASES).map(|no| open(&env, &dir.path().join(no.to_string()))).collect();
        assert!(threads() >= DATABASES as usize, "they are not seen");
        if has_ring(&dbs[0]) {
            assert!(dbs.iter().all(has_ring));
            assert_eq!(descriptors("[io_uring]") - rings, DATABASES as usize);
        } else {
            eprintln!("no ring here: {}", report(&dbs[0]));
        }
        let closed_busy = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for (no, db) in dbs.into_iter().enumerate() {
                let closed_busy = &closed_busy;
                scope.spawn(move || {
                    fill(&db, round * KEYS..(round + 1) * KEYS);
                    // Some go with all they have under way, some by a drop, some when all is done.
                    match no % 3 {
                        0 => {
                            closed_busy.fetch_add(u64::from(is_busy(&db)), Ordering::Relaxed);
                            db.close().expect("close");
                        }
                        1 => drop(db),
                        _ => {
                            db.wait_until_idle().expect("idle");
                            check(&db, 0..(round + 1) * KEYS);
                            db.close().expect("close");
                        }
                    }
                });
            }
        });
        println!("{} of 3 closed while something was under way", closed_busy.into_inner());
        // Threads leave after their last call.
        let started = Instant::now();
        while threads() > 0 && started.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(threads(), 0, "round {round}: threads are left");
        assert_eq!(descriptors("[io_uring]"), rings, "round {round}: a ring is left");
        assert_eq!(descriptors("[eventfd]"), events, "round {round}: a bell is left");
        assert_eq!(descriptors(&dir.path().to_string_lossy()), 0, "round {round}: a file is left");
    }
    for no in 0..DATABASES {
        let db = open(&env, &dir.path().join(no.to_string()));
        check(&db, 0..2 * KEYS);
        db.verify(&mut |_, _| {}).expect("verify");
    }
}

/// Waits for the child, at most a minute.
fn wait_for(child: libc::pid_t) -> i32 {
    for _ in 0..6000 {
        let mut status = 0;
        // SAFETY: waits for a child of ours and writes its status to a local.
        if unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == child {
            return if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -1 };
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // SAFETY: the child is ours and has not been waited for.
    unsafe { libc::kill(child, libc::SIGKILL) };
    panic!("the child hangs");
}

/// Sets a flag when it goes.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Forks a child that uses the database in every second round, and drops its last handle in all.
fn fork_amid(db: &Db, round: u64) -> libc::pid_t {
    // SAFETY: the child calls into the database, which must not touch a lock there, allocates (which
    // glibc allows after a fork), and leaves with `_exit`; an alarm ends it if it hangs.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork");
    if child == 0 {
        // SAFETY: a plain number.
        unsafe { libc::alarm(30) };
        let is_forked = |kind| kind == ErrorKind::Forked;
        let mut ok = true;
        if round.is_multiple_of(2) {
            ok &= db.put(&WriteOptions::default(), b"k", b"v").is_err_and(|e| is_forked(e.kind()));
            ok &= db.get(&ReadOptions::default(), b"k").is_err_and(|e| is_forked(e.kind()));
            ok &= db.flush().is_err_and(|e| is_forked(e.kind()));
            ok &= db.close().is_err_and(|e| is_forked(e.kind()));
        }
        // SAFETY: the original is never used nor dropped after this, for the child exits.
        drop(unsafe { std::ptr::read(db) });
        // SAFETY: ends the child at once, without the parent's exit handlers.
        unsafe { libc::_exit(if ok { 42 } else { 1 }) };
    }
    child
}

/// fork() while flushes, compactions and syncs are under way. The child uses the database, drops it, and
/// is gone; the parent notices nothing.
#[test]
fn a_child_forked_amid_io_uses_and_drops_the_database_in_vain() {
    let _alone = alone();
    let env: Arc<dyn Env> = OsEnv::new();
    let dir = tempfile::tempdir().expect("a directory");
    let db = open(&env, dir.path());
    let (is_over, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        // However this ends, the writer ends.
        let _over = Over(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                let from = written.load(Ordering::Acquire);
                fill(&db, from..from + 50);
                written.store(from + 50, Ordering::Release);
            }
        });
        for round in 0..8u64 {
            let so_far = written.load(Ordering::Acquire);
            while written.load(Ordering::Acquire) < so_far + 200 {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(wait_for(fork_amid(&db, round)), 42, "round {round}");
        }
    });
    let written = written.into_inner();
    db.wait_until_idle().expect("idle");
    check(&db, 0..written);
    assert!(written >= 1600 && db.compactions() > 0);
    db.close().expect("close");
    drop(db);
    let db = open(&env, dir.path());
    check(&db, 0..written);
    assert!(db.get(&ReadOptions::default(), b"k").expect("get").is_none(), "the child wrote");
    db.verify(&mut |_, _| {}).expect("verify");
}

/// The system, but for rings.
struct Refusing(Arc<OsEnv>, i32);

impl Env for Refusing {
    fn fs(&self) -> &Arc<dyn Fs> {
        self.0.fs()
    }
    fn now(&self) -> Nanos {
        self.0.now()
    }
    fn wall_ms(&self) -> u64 {
        self.0.wall_ms()
    }
    fn random_u64(&self) -> u64 {
        self.0.random_u64()
    }
    fn spawn(&self, name: &str, job: Job) -> Result<Box<dyn JobHandle>> {
        self.0.spawn(name, job)
    }
    fn event(&self) -> Arc<dyn Event> {
        self.0.event()
    }
    fn sleep(&self, nanos: Nanos) {
        self.0.sleep(nanos);
    }
    fn yield_now(&self) {
        self.0.yield_now();
    }
    fn check_fork(&self) -> Result<()> {
        self.0.check_fork()
    }
    fn start_io(&self, options: &IoOptions) -> Result<Arc<dyn AsyncIo>> {
        self.0.start_io(&IoOptions { pretend_refused: Some(self.1), ..options.clone() })
    }
}

/// No memory to lock, a filter, a switch of the administrator, an old kernel: a pool does the work, and
/// the reason is said.
#[test]
fn a_database_whose_ring_is_refused_works_and_says_so() {
    let _alone = alone();
    let rings = descriptors("[io_uring]");
    for errno in [libc::ENOMEM, libc::EPERM, libc::ENOSYS] {
        let env: Arc<dyn Env> = Arc::new(Refusing(OsEnv::new(), errno));
        let dir = tempfile::tempdir().expect("a directory");
        let db = open(&env, dir.path());
        let (report, reason) = (report(&db), std::io::Error::from_raw_os_error(errno).to_string());
        assert!(report.contains("pool") && report.matches(&reason).count() == 1, "{report}");
        fill(&db, 0..1500);
        db.wait_until_idle().expect("idle");
        assert!(db.compactions() > 0);
        assert_eq!(descriptors("[io_uring]"), rings);
        check(&db, 0..1500);
        db.close().expect("close");
        drop(db);
        check(&open(&env, dir.path()), 0..1500);
    }
}
