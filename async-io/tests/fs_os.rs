//! What only the real file system has: modes, descriptors, other processes, signals.

use std::io::{BufRead, BufReader, Lines};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dialsm_io::{Access, ErrorKind, Fs, LockMode, OsFs};

/// Tells `helper_process` which file to lock.
const LOCK_VARIABLE: &str = "DIALSM_TEST_LOCK";

#[test]
fn files_and_directories_are_private_and_close_on_exec() {
    let dir = tempfile::tempdir().unwrap();
    let fs = OsFs::new();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    fs.create_dir_all(&dir.path().join("x/y")).unwrap();
    assert_eq!((mode(&dir.path().join("x")), mode(&dir.path().join("x/y"))), (0o700, 0o700));
    let path = dir.path().join("f");
    let _created = fs.create(&path).unwrap();
    let _opened = fs.open(&path, Access::Read).unwrap();
    let lock_path = dir.path().join("LOCK");
    let _lock = fs.lock(&lock_path, LockMode::Exclusive).unwrap();
    assert_eq!((mode(&path), mode(&lock_path)), (0o600, 0o600));
    let mut found = 0;
    for entry in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
        if std::fs::read_link(entry.path()).is_ok_and(|to| to.starts_with(dir.path())) {
            let info = Path::new("/proc/self/fdinfo").join(entry.file_name());
            let info = std::fs::read_to_string(info).unwrap();
            let flags = info.lines().find_map(|l| l.strip_prefix("flags:")).unwrap();
            let flags = i32::from_str_radix(flags.trim(), 8).unwrap();
            assert!(flags & libc::O_CLOEXEC != 0, "a descriptor survives exec");
            found += 1;
        }
    }
    assert_eq!(found, 4, "two handles on the file, the lock, and its directory");
}

/// Not a test of its own: the body of the other process, told what to do by its environment.
#[test]
fn helper_process() {
    let Some(path) = std::env::var_os(LOCK_VARIABLE) else { return };
    match OsFs::new().lock(Path::new(&path), LockMode::Exclusive) {
        Ok(_lock) => {
            println!("\nhelper: locked");
            // Until the parent kills us, or is gone itself.
            let _ = std::io::stdin().lines().next();
        }
        Err(e) => println!("\nhelper: {:?}", e.kind()),
    }
}

/// Starts another process that tries the lock, and gives it with what it says.
fn other_process(path: &Path) -> (Helper, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "helper_process", "--nocapture"])
        .env(LOCK_VARIABLE, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    let said = output
        .by_ref()
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("helper: ").map(str::to_owned))
        .expect("the helper says how it went");
    (Helper { child, _output: output }, said)
}

/// The other process; killed at the latest when dropped. Its output stays open until then.
struct Helper {
    child: Child,
    _output: Lines<BufReader<ChildStdout>>,
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn two_processes_exclude_each_other_and_a_kill_frees_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    let (path, fs) = (dir.path().join("LOCK"), OsFs::new());
    let ours = fs.lock(&path, LockMode::Shared).unwrap();
    let (_other, said) = other_process(&path);
    assert_eq!(said, "Busy");
    drop(ours);
    let (other, said) = other_process(&path);
    assert_eq!(said, "locked");
    let refused = fs.lock(&path, LockMode::Shared).map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Busy);
    // By SIGKILL.
    drop(other);
    drop(fs.lock(&path, LockMode::Exclusive).expect("nothing is left to clean by hand"));
}

/// Forks; the child does `body` and then waits to be killed.
#[allow(unsafe_code)]
fn fork_child(body: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the child only runs `body`, which takes no lock and keeps to its own memory, and
    // then sleeps until it is killed.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // Should the test fail before it kills us, this ends us all the same.
        // SAFETY: only sets a timer.
        unsafe { libc::alarm(20) };
        body();
        loop {
            // SAFETY: takes nothing, touches nothing.
            unsafe { libc::pause() };
        }
    }
    child
}

#[allow(unsafe_code)]
fn kill_child(child: libc::pid_t) {
    // SAFETY: `child` is an unreaped child of ours; no status is asked for.
    unsafe {
        assert_eq!(libc::kill(child, libc::SIGKILL), 0);
        assert_eq!(libc::waitpid(child, std::ptr::null_mut(), 0), child);
    }
}

#[test]
fn a_forked_child_neither_frees_nor_keeps_its_parents_lock() {
    let dir = tempfile::tempdir().unwrap();
    let (path, fs) = (dir.path().join("LOCK"), OsFs::new());
    let mut lock = Some(fs.lock(&path, LockMode::Exclusive).unwrap());
    let (mut reader, writer) = std::io::pipe().unwrap();
    let in_child = lock.as_mut().map(std::ptr::from_mut).expect("taken above");
    let dropping = fork_child(|| {
        // SAFETY: the child has a copy of the value that nobody else there uses or drops.
        #[allow(unsafe_code)]
        unsafe {
            std::ptr::drop_in_place(in_child);
        }
        let _ = std::io::Write::write_all(&mut &writer, b"x");
    });
    std::io::Read::read_exact(&mut reader, &mut [0]).unwrap();
    let probe = std::fs::File::open(&path).unwrap();
    assert!(probe.try_lock().is_err(), "the child's drop took the lock away");
    kill_child(dropping);
    let keeping = fork_child(|| ());
    lock.take();
    drop(fs.lock(&path, LockMode::Exclusive).expect("the child's descriptor kept the lock"));
    kill_child(keeping);
}

#[test]
fn a_replaced_lock_file_is_not_taken_for_the_old_one() {
    let dir = tempfile::tempdir().unwrap();
    let (path, fs) = (dir.path().join("LOCK"), OsFs::new());
    let first = fs.lock(&path, LockMode::Exclusive).unwrap();
    std::fs::hard_link(&path, dir.path().join("ALIAS")).unwrap();
    let alias = fs.lock(&dir.path().join("ALIAS"), LockMode::Exclusive).map(drop).unwrap_err();
    assert_eq!(alias.kind(), ErrorKind::Busy, "the file counts, not its name");
    std::fs::remove_file(&path).unwrap();
    let second = fs.lock(&path, LockMode::Exclusive).expect("a new file is another lock");
    drop(first);
    assert!(fs.lock(&path, LockMode::Exclusive).is_err(), "the first one's end freed the second");
    drop(second);
}

#[test]
fn a_file_that_cannot_be_written_can_be_locked_shared() {
    // Files here refuse to be opened for writing even to root.
    let path = Path::new("/sys/kernel/uevent_seqnum");
    if !path.exists() {
        return;
    }
    let fs = OsFs::new();
    let first = fs.lock(path, LockMode::Shared).unwrap();
    let second = fs.lock(path, LockMode::Shared).unwrap();
    drop((first, second));
    let refused = fs.lock(path, LockMode::Exclusive).map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnly);
}

extern "C" fn ignore(_signal: libc::c_int) {}

/// Large transfers through a pipe-like slow target are not to be had from a regular file, so this
/// attacks the retry loops with a storm of signals over ordinary calls.
#[test]
#[allow(unsafe_code)]
fn a_storm_of_signals_disturbs_nothing() {
    // SAFETY: a zeroed `sigaction` is valid: no flags (in particular no SA_RESTART), empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = ignore as *const () as usize;
    // SAFETY: the handler does nothing, which is safe at any point.
    assert_eq!(unsafe { libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut()) }, 0);
    let dir = tempfile::tempdir().unwrap();
    let (fs, stop) = (OsFs::new(), Arc::new(AtomicBool::new(false)));
    // SAFETY: takes nothing; the id stays valid while this thread runs the test.
    let me = unsafe { libc::pthread_self() };
    let stopped = Arc::clone(&stop);
    let storm = std::thread::spawn(move || {
        let mut sent = 0u64;
        while !stopped.load(Ordering::Relaxed) {
            // SAFETY: the target thread joins this one before it ends.
            assert_eq!(unsafe { libc::pthread_kill(me, libc::SIGUSR2) }, 0);
            sent += 1;
            std::thread::sleep(std::time::Duration::from_micros(20));
        }
        sent
    });
    for round in 0..60u8 {
        let path = dir.path().join(format!("f{round}"));
        let file = fs.create(&path).unwrap();
        let data = vec![round; 300_000];
        file.allocate(0, 300_000).unwrap();
        file.write_at(&data, 0).unwrap();
        file.sync_data().unwrap();
        let mut back = vec![0; 300_001];
        assert_eq!(file.read_at(&mut back, 0).unwrap(), 300_000);
        assert!(back[..300_000] == data);
        fs.rename(&path, &dir.path().join("g")).unwrap();
        fs.sync_dir(dir.path()).unwrap();
        drop(fs.lock(&dir.path().join("LOCK"), LockMode::Exclusive).unwrap());
    }
    stop.store(true, Ordering::Relaxed);
    let sent = storm.join().unwrap();
    assert!(sent >= 50, "only {sent} signals");
}
