//! What happens around a ring: kernels and filters that refuse it, early or late, fork, and users
//! that share nothing.

#![allow(unsafe_code)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dialsm_io::{
    AsyncIo, Buf, Durability, DurabilityOptions, DurableRequest, Env, ErrorKind, File, IoKind, IoOp,
    IoOptions, Limiter, LimiterOptions, OsEnv, Priority, ReadAt,
};

/// Makes a system call fail with `errno` for the calling thread and those it starts from now on, or
/// with `all` for the whole process: what a container's filter does.
fn refuse(call: libc::c_long, errno: i32, all: bool) {
    let op = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut program = [
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call as u32),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    let flags = if all { libc::SECCOMP_FILTER_FLAG_TSYNC } else { 0 };
    // SAFETY: plain numbers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: `filter` and the program it points to live over the call.
    let set = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &filter) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

fn ring(env: &OsEnv) -> Option<Arc<dyn AsyncIo>> {
    let io = env.start_io(&IoOptions::default()).unwrap();
    if io.kind() != IoKind::Ring {
        eprintln!("not tested here: {}", io.report());
        return None;
    }
    Some(io)
}

/// Writes, reads back and syncs through a service.
fn exercise(io: &dyn AsyncIo, file: &Arc<dyn File>, rounds: u64) {
    for no in 0..rounds {
        let buf = vec![no as u8; 3000].into();
        let write = io.submit(IoOp::WriteThenSync { file: Arc::clone(file), buf, offset: no * 3000 });
        assert_eq!(write.wait().result.unwrap(), 3000);
        let read =
            io.submit(IoOp::Read { file: Arc::clone(file), buf: Buf::zeroed(3000), offset: no * 3000 });
        assert_eq!(*read.wait().buf, vec![no as u8; 3000]);
    }
}

#[test]
fn b145_a_filter_that_refuses_any_of_the_calls_means_a_pool() {
    let has_ring = ring(&OsEnv::new()).is_some();
    for call in [libc::SYS_io_uring_setup, libc::SYS_io_uring_register, libc::SYS_io_uring_enter] {
        for errno in [libc::EPERM, libc::ENOSYS, libc::EACCES, libc::ENOMEM, libc::EINVAL] {
            let filtered = std::thread::spawn(move || {
                refuse(call, errno, false);
                let dir = tempfile::tempdir().unwrap();
                let env = OsEnv::new();
                let io = env.start_io(&IoOptions::default()).unwrap();
                assert_eq!(io.kind(), IoKind::Pool, "call {call}, error {errno}");
                let report = io.report();
                let text = std::io::Error::from_raw_os_error(errno).to_string();
                assert!(!has_ring || report.contains(&text), "{report}");
                exercise(&*io, &env.fs().create(&dir.path().join("a")).unwrap(), 10);
            });
            filtered.join().unwrap();
        }
    }
}

/// A kernel that takes all calls and does nothing: the service must not wait for it for ever.
#[test]
fn a_ring_that_never_completes_means_a_pool() {
    let has_ring = ring(&OsEnv::new()).is_some();
    let filtered = std::thread::spawn(move || {
        // "Fails" with 0: nothing is done, and that is no error.
        refuse(libc::SYS_io_uring_enter, 0, false);
        let dir = tempfile::tempdir().unwrap();
        let env = OsEnv::new();
        let io = env.start_io(&IoOptions::default()).unwrap();
        assert_eq!(io.kind(), IoKind::Pool);
        let report = io.report();
        assert!(!has_ring || report.contains("never ended it"), "{report}");
        exercise(&*io, &env.fs().create(&dir.path().join("a")).unwrap(), 10);
    });
    filtered.join().unwrap();
}

/// The filter comes when the ring is in use. In a process of its own, since it can't be lifted.
#[test]
fn b145_a_late_refusal_leaves_the_rest_to_plain_calls() {
    const IN_CHILD: &str = "DIALSM_TEST_LATE_REFUSAL";
    if std::env::var_os(IN_CHILD).is_none() {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "b145_a_late_refusal_leaves_the_rest_to_plain_calls", "--nocapture"])
            .env(IN_CHILD, "1")
            .output()
            .unwrap();
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
        return;
    }
    let env = OsEnv::new();
    let Some(io) = ring(&env) else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = env.fs().create(&dir.path().join("a")).unwrap();
    exercise(&*io, &file, 50);
    let is_over = Arc::new(AtomicBool::new(false));
    let jobs: Vec<_> = (0..4)
        .map(|no| {
            let (io, is_over) = (Arc::clone(&io), Arc::clone(&is_over));
            let file = env.fs().create(&dir.path().join(format!("f{no}"))).unwrap();
            let job = move || {
                while !is_over.load(Ordering::SeqCst) {
                    exercise(&*io, &file, 20);
                }
                exercise(&*io, &file, 20);
            };
            env.spawn("job", Box::new(job)).unwrap()
        })
        .collect();
    env.sleep(20_000_000);
    refuse(libc::SYS_io_uring_enter, libc::EPERM, true);
    let started = env.now();
    while io.kind() == IoKind::Ring {
        assert!(env.now() - started < 60_000_000_000, "it never noticed");
        exercise(&*io, &file, 1);
    }
    is_over.store(true, Ordering::SeqCst);
    jobs.into_iter().for_each(|job| job.join());
    assert_eq!(env.panics(), 0);
    exercise(&*io, &file, 50);
    let report = io.report();
    assert!(report.contains("taken away by the kernel") && report.contains("not permitted"), "{report}");
    io.shutdown();
    let stats = io.stats();
    assert_eq!((stats.completed_count, stats.failed_count), (stats.submitted_count, 0), "{stats:?}");
}

/// Reads, batches, log writes with their sync, and dropped reads through one service and a second
/// one on the same thread: each completion reaches its owner.
#[test]
fn b147_each_completion_reaches_its_owner() {
    let env = OsEnv::new();
    let (Some(first), Some(second)) = (ring(&env), ring(&env)) else { return };
    let dir = tempfile::tempdir().unwrap();
    let create = |name: &str| env.fs().create(&dir.path().join(name)).unwrap();
    let (table, log) = (create("table"), create("log"));
    let page = |no: u64| vec![(no % 251) as u8; 512];
    (0..1000).for_each(|no| table.write_at(&page(no), no * 512).unwrap());
    let read = |io: &Arc<dyn AsyncIo>, no: u64| {
        io.submit(IoOp::Read { file: Arc::clone(&table), buf: Buf::zeroed(512), offset: no * 512 })
    };
    let mut owned = 0;
    for round in 0..2000u64 {
        let prefetch: Vec<_> = (0..4).map(|n| (round + n, read(&first, (round + n) % 1000))).collect();
        let batch = (0..4).map(|n| ReadAt {
            file: Arc::clone(&table),
            buf: Buf::zeroed(512),
            offset: (round * 7 + n) % 1000 * 512,
        });
        let batch = second.read_many(batch.collect());
        // An iterator that goes while it reads ahead.
        drop((0..3).map(|n| read(&first, (round * 3 + n) % 1000)).collect::<Vec<_>>());
        if round % 50 == 0 {
            let buf = vec![9; 100].into();
            let sync = second.submit(IoOp::WriteThenSync { file: Arc::clone(&log), buf, offset: round * 2 });
            assert_eq!(*sync.wait().buf, [9; 100]);
        }
        for (n, ticket) in (0..).zip(batch) {
            assert_eq!(*ticket.wait().buf, page((round * 7 + n) % 1000));
            owned += 1;
        }
        for (no, ticket) in prefetch {
            assert_eq!(*ticket.wait().buf, page(no % 1000));
            owned += 1;
        }
    }
    assert_eq!(owned, 16_000);
}

/// A ring of four entries and a burst of hundreds: each is done once, none is lost.
#[test]
fn b149_a_full_queue_holds_back_and_submits_each_once() {
    let env = OsEnv::new();
    let io = env.start_io(&IoOptions { ring_entries: 1, ..IoOptions::default() }).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = env.fs().create(&dir.path().join("a")).unwrap();
    let write = |no: u64| {
        let op = IoOp::Write { file: Arc::clone(&file), buf: vec![no as u8; 700].into(), offset: no * 700 };
        io.submit(op)
    };
    let tickets: Vec<_> = (0..500).map(write).collect();
    for ticket in tickets {
        assert_eq!(ticket.wait().result.unwrap(), 700);
    }
    assert_eq!(file.len().unwrap(), 500 * 700);
    let mut bytes = vec![0; 500 * 700];
    file.read_at(&mut bytes, 0).unwrap();
    assert!(bytes.chunks(700).zip(0u64..).all(|(chunk, no)| chunk.iter().all(|b| *b == no as u8)));
    assert_eq!(io.stats().completed_count, 500);
}

/// A thread that ends does not take its operations with it: the kernel cancels what a thread that
/// ends has submitted itself.
#[test]
fn threads_that_end_leave_their_operations_behind() {
    let env = OsEnv::new();
    let Some(io) = ring(&env) else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = env.fs().create(&dir.path().join("a")).unwrap();
    for no in 0..200u64 {
        let (io, file) = (Arc::clone(&io), Arc::clone(&file));
        let submitter = std::thread::spawn(move || {
            io.submit(IoOp::WriteThenSync { file, buf: vec![1; 4096].into(), offset: no * 4096 })
        });
        let ticket = submitter.join().unwrap();
        if no % 2 == 0 {
            assert_eq!(ticket.wait().result.unwrap(), 4096);
        }
    }
    io.shutdown();
    assert_eq!((file.len().unwrap(), io.stats().failed_count), (200 * 4096, 0));
}

/// fork() while threads submit: in the child everything says `Forked` and nothing hangs, and the
/// parent goes on as if nothing had been.
#[test]
fn b121_a_forked_child_touches_no_ring() {
    let dir = tempfile::tempdir().unwrap();
    for use_ring in [true, false] {
        let os = OsEnv::new();
        let env: Arc<dyn Env> = os.clone();
        let options = IoOptions { use_ring, ..IoOptions::default() };
        let io = env.start_io(&options).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let jobs: Vec<_> = (0..8)
            .map(|no| {
                let (io, is_over) = (Arc::clone(&io), Arc::clone(&is_over));
                let file = env.fs().create(&dir.path().join(format!("{use_ring}{no}"))).unwrap();
                let job = move || {
                    while !is_over.load(Ordering::SeqCst) {
                        exercise(&*io, &file, 5);
                    }
                };
                env.spawn("job", Box::new(job)).unwrap()
            })
            .collect();
        let file = env.fs().create(&dir.path().join(format!("{use_ring}a"))).unwrap();
        for _ in 0..5 {
            let idle = env.start_io(&options).unwrap();
            let durability =
                Durability::start(&env, Arc::clone(&idle), DurabilityOptions::default()).unwrap();
            let limiter = Limiter::new(&env, LimiterOptions::default()).unwrap();
            let permit = limiter.acquire(Priority::Deep, 1, None).unwrap();
            let before = file.len().unwrap();
            let pending: Vec<_> = (0..20)
                .map(|no| {
                    let buf = vec![1; 50_000].into();
                    io.submit(IoOp::Write { file: Arc::clone(&file), buf, offset: no * 50_000 })
                })
                .collect();
            // SAFETY: the child only makes calls that are under test here, allocates (which glibc
            // allows after a fork), and ends by `_exit`; an alarm ends it if it hangs.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: a plain number.
                unsafe { libc::alarm(30) };
                let is_forked = |kind| kind == ErrorKind::Forked;
                let op = IoOp::Write { file: Arc::clone(&file), buf: vec![7; 10].into(), offset: 1 << 30 };
                let mut ok = io.submit(op).wait().result.is_err_and(|e| is_forked(e.kind()));
                let read = ReadAt { file: Arc::clone(&file), buf: Buf::zeroed(10), offset: 0 };
                let read = io.read_many(vec![read]).pop().map(|ticket| ticket.wait().result);
                ok &= read.is_some_and(|read| read.is_err_and(|e| is_forked(e.kind())));
                for ticket in pending {
                    let result = ticket.wait().result;
                    ok &= result.is_ok() || result.is_err_and(|e| is_forked(e.kind()));
                }
                let files = DurableRequest { dir: Some("/".into()), ..DurableRequest::default() };
                ok &= durability.request(files).wait().is_err_and(|e| is_forked(e.kind()));
                ok &= limiter.acquire(Priority::Flush, 1, None).err().is_some_and(|e| is_forked(e.kind()));
                ok &= env.start_io(&options).err().is_some_and(|e| is_forked(e.kind()));
                io.shutdown();
                drop((permit, durability, idle, limiter));
                // SAFETY: ends the child at once, without the parent's exit handlers.
                unsafe { libc::_exit(if ok { 42 } else { 1 }) };
            }
            assert!(child > 0);
            let mut status = 0;
            // SAFETY: `status` is a valid place, and `child` is our child.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 42, "status {status:#x}");
            for ticket in pending {
                assert_eq!(ticket.wait().result.unwrap(), 50_000);
            }
            assert!(file.len().unwrap() <= before.max(1_000_000), "the child wrote");
            durability
                .request(DurableRequest { dir: Some(dir.path().into()), ..Default::default() })
                .wait()
                .unwrap();
        }
        is_over.store(true, Ordering::SeqCst);
        jobs.into_iter().for_each(|job| job.join());
        assert_eq!(os.panics(), 0);
        io.shutdown();
        assert_eq!(io.stats().failed_count, 0);
    }
}

/// Descriptors that the service opens do not go to programs that the process starts.
#[test]
fn programs_that_are_started_inherit_no_descriptor() {
    let env = OsEnv::new();
    let Some(_io) = ring(&env) else { return };
    for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
        let entry = entry.unwrap().path();
        let Ok(target) = std::fs::read_link(&entry) else { continue };
        if target.to_string_lossy().contains("io_uring") || target.to_string_lossy().contains("eventfd") {
            let info = Path::new("/proc/self/fdinfo").join(entry.file_name().unwrap());
            let Ok(text) = std::fs::read_to_string(info) else { continue };
            let flags = text.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
            let flags = i32::from_str_radix(flags.trim(), 8).unwrap();
            assert!(flags & libc::O_CLOEXEC != 0, "{}: {flags:o}", target.display());
        }
    }
}
