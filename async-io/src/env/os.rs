//! The real environment: the operating system's clock, dice and threads.
//!
//! A panic in a job ends its thread and nothing else; it is counted, and handed to the hook set
//! with [`OsEnv::on_panic`], so that a database can stop taking writes rather than wait for a
//! thread that is gone.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use rustix::rand::{GetRandomFlags, getrandom};

use super::event::OsEvent;
use super::fork::Fork;
#[cfg(not(miri))]
use super::signals::SignalsBlocked;
use super::{Env, Event, Job, JobHandle, Nanos};
use crate::error::{Error, ErrorKind, Result};
use crate::fs::Fs;
use crate::fs::os::OsFs;
use crate::fs::os::lock::are_inherited;
use crate::ring::{AsyncIo, IoOptions, start_os};

/// Called with the thread's name and the panic's text.
pub type PanicHook = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// The environment of the operating system.
pub struct OsEnv {
    fs: Arc<dyn Fs>,
    origin: Instant,
    fork: Fork,
    panics: Arc<Panics>,
}

/// Panics of jobs so far, and who wants to hear of them.
#[derive(Default)]
struct Panics {
    count: AtomicU64,
    hook: Mutex<Option<PanicHook>>,
}

impl OsEnv {
    /// An environment over the real file system. In a child of fork() whose parent had a database open, it refuses
    /// all with `Forked`.
    pub fn new() -> Arc<OsEnv> {
        OsEnv::with_fs(OsFs::new())
    }

    /// An environment over `fs`, for instance one that injects faults.
    pub fn with_fs(fs: Arc<dyn Fs>) -> Arc<OsEnv> {
        // Threads that slept in the parent's databases are not here, but still stand in the process-wide queues
        // of `parking_lot`, on stacks that threads of this process get for theirs: wake-ups would be lost.
        let fork = if are_inherited() { Fork::nowhere() } else { Fork::here() };
        Arc::new(OsEnv { fs, origin: Instant::now(), fork, panics: Arc::default() })
    }

    /// How many jobs ended in a panic.
    pub fn panics(&self) -> u64 {
        self.panics.count.load(Ordering::Acquire)
    }

    /// Sets who is told of a job's panic, on the thread that panicked; replaces the one before.
    pub fn on_panic(&self, hook: PanicHook) {
        *self.panics.hook.lock() = Some(hook);
    }
}

impl Panics {
    /// Runs `job`, and keeps a panic from going further.
    fn contain(&self, name: &str, job: Job) {
        let Err(payload) = catch_unwind(AssertUnwindSafe(job)) else { return };
        self.count.fetch_add(1, Ordering::AcqRel);
        let hook = self.hook.lock().clone();
        // The hook, and the drop of what was thrown, are foreign code too.
        let _ = catch_unwind(AssertUnwindSafe(move || {
            if let Some(hook) = hook {
                hook(name, panic_text(&*payload));
            }
        }));
    }
}

/// The text of a panic, where it has one.
pub(super) fn panic_text(payload: &(dyn Any + Send)) -> &str {
    if let Some(text) = payload.downcast_ref::<&'static str>() {
        text
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text
    } else {
        "a panic without text"
    }
}

/// Starts a named thread with signals blocked; shared with the simulation.
pub(super) fn spawn_thread(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    // Miri knows no signals.
    #[cfg(not(miri))]
    let _blocked = SignalsBlocked::new();
    // A NUL in a name would be a panic of the standard library.
    std::thread::Builder::new().name(name.replace('\0', "_")).spawn(body)
}

impl Env for OsEnv {
    fn fs(&self) -> &Arc<dyn Fs> {
        &self.fs
    }

    fn now(&self) -> Nanos {
        // 2^64 ns are 584 years of uptime.
        self.origin.elapsed().as_nanos() as Nanos
    }

    fn wall_ms(&self) -> u64 {
        self.wall_us() / 1000
    }

    fn wall_us(&self) -> u64 {
        // A clock set before 1970 reads as 1970: nothing is decided by it.
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    fn random_u64(&self) -> u64 {
        let mut bytes = [0u8; 8];
        loop {
            match getrandom(&mut bytes[..], GetRandomFlags::empty()) {
                // Requests of up to 256 bytes are never cut short.
                Ok(_) => return u64::from_le_bytes(bytes),
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => panic!("getrandom, which Linux has since 3.17, failed: {e}"),
            }
        }
    }

    fn spawn(&self, name: &str, job: Job) -> Result<Box<dyn JobHandle>> {
        let panics = Arc::clone(&self.panics);
        let shown = name.to_owned();
        match spawn_thread(name, move || panics.contain(&shown, job)) {
            Ok(handle) => Ok(Box::new(OsJob(handle))),
            Err(e) => Err(Error::new(ErrorKind::Io, format!("spawn thread {name}: {e}"))),
        }
    }

    fn event(&self) -> Arc<dyn Event> {
        Arc::new(OsEvent::new(self.origin))
    }

    fn sleep(&self, nanos: Nanos) {
        std::thread::sleep(Duration::from_nanos(nanos));
    }

    fn yield_now(&self) {
        std::thread::yield_now();
    }

    fn check_fork(&self) -> Result<()> {
        self.fork.check()
    }

    fn start_io(&self, options: &IoOptions) -> Result<Arc<dyn AsyncIo>> {
        start_os(self, &self.fork, options)
    }
}

struct OsJob(std::thread::JoinHandle<()>);

impl JobHandle for OsJob {
    fn join(self: Box<Self>) {
        // A job that drops the last handle of its own database would wait for itself.
        if self.0.thread().id() == std::thread::current().id() {
            return;
        }
        self.0.join().expect("the thread's body contains all panics");
    }
}
