//! A file system that fails on demand: a wrapper around any other with rules such as "the third
//! sync of a file whose path contains `.log` fails with EIO", and a count of every call.
//!
//! INVARIANT: without rules it changes nothing; every call goes through once.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::call::OpKind;
use super::ticket::{DoneTicket, run_now};
use super::{Access, Advice, CreateOptions, File, FileLock, Fs, LockMode, Op, OpenOptions, Ticket};
use crate::env::Nanos;
use crate::error::{Error, Result};
use crate::ring::BUF_ALIGN;

/// What a rule does to a call that it applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Fails with this error number, and has no effect.
    Errno(i32),
    /// Takes effect, then fails with this error number all the same.
    ErrnoAfter(i32),
    /// Of a read at most this many bytes come, as if the file ended there. Other calls are let
    /// through.
    ShortRead(usize),
    /// Of a write this many bytes at most take effect, then it fails with the error number. Other
    /// calls fail without effect.
    TornWrite(usize, i32),
    /// Waits first, then goes through.
    Delay(Nanos),
    /// The call panics, without effect: a bug met on the way.
    Panic,
}

/// Which calls a [`Fault`] befalls.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The call.
    pub op: OpKind,
    /// Only where the path (of a rename or link: either one) contains this.
    pub path_contains: Option<String>,
    /// From the n-th such call after the rule was added on; 1 is the next one.
    pub nth: u64,
    /// For this many calls; `u64::MAX` for all from then on.
    pub times: u64,
    /// What happens.
    pub fault: Fault,
}

impl Rule {
    /// The n-th call of `op` from now on, on any path, once.
    pub fn nth(op: OpKind, nth: u64, fault: Fault) -> Rule {
        Rule { op, path_contains: None, nth, times: 1, fault }
    }

    /// Every call of `op` from now on, on any path.
    pub fn every(op: OpKind, fault: Fault) -> Rule {
        Rule { op, path_contains: None, nth: 1, times: u64::MAX, fault }
    }

    /// The same rule for paths that contain `part`.
    #[must_use]
    pub fn on(mut self, part: &str) -> Rule {
        self.path_contains = Some(part.to_owned());
        self
    }

    fn concerns(&self, op: OpKind, paths: [Option<&Path>; 2]) -> bool {
        let contains = |part: &String| paths.iter().flatten().any(|p| p.to_string_lossy().contains(part));
        self.op == op && self.path_contains.as_ref().is_none_or(contains)
    }
}

/// How a delay passes its time.
pub type Sleeper = Arc<dyn Fn(Nanos) + Send + Sync>;

/// Told of the path of a file whose sync a rule makes fail.
pub type FailedSync = Arc<dyn Fn(&Path) + Send + Sync>;

/// A wrapper that counts calls and injects faults.
pub struct FaultFs {
    inner: Arc<dyn Fs>,
    faults: Arc<Faults>,
}

struct Faults {
    /// Rules and how many calls each has met.
    rules: Mutex<Vec<(Rule, u64)>>,
    calls: [AtomicU64; OpKind::ALL.len()],
    injected: AtomicU64,
    sleeper: Mutex<Sleeper>,
    on_failed_sync: Mutex<Option<FailedSync>>,
}

impl FaultFs {
    /// A wrapper around `inner`, without rules.
    pub fn new(inner: Arc<dyn Fs>) -> Arc<FaultFs> {
        let faults = Faults {
            rules: Mutex::default(),
            calls: std::array::from_fn(|_| AtomicU64::new(0)),
            injected: AtomicU64::new(0),
            sleeper: Mutex::new(Arc::new(|nanos| std::thread::sleep(Duration::from_nanos(nanos)))),
            on_failed_sync: Mutex::new(None),
        };
        Arc::new(FaultFs { inner, faults: Arc::new(faults) })
    }

    /// Adds a rule. Of several that befall one call the one added first acts, the others count it.
    pub fn add(&self, rule: Rule) {
        self.faults.rules.lock().push((rule, 0));
    }

    /// Removes all rules; counts stay.
    pub fn clear(&self) {
        self.faults.rules.lock().clear();
    }

    /// Calls of `op` so far, failed ones included.
    pub fn calls(&self, op: OpKind) -> u64 {
        self.faults.calls[op as usize].load(Ordering::Acquire)
    }

    /// Calls that a rule befell so far.
    pub fn injected(&self) -> u64 {
        self.faults.injected.load(Ordering::Acquire)
    }

    /// Sets how a delay passes its time: in a simulation through its clock.
    pub fn set_sleeper(&self, sleeper: Sleeper) {
        *self.faults.sleeper.lock() = sleeper;
    }

    /// Sets who is told where a sync of a file fails without effect: in a simulation
    /// [`SimFs::fail_writeback`](super::sim::SimFs::fail_writeback), so that a second sync that
    /// succeeds brings nothing back.
    pub fn set_on_failed_sync(&self, told: FailedSync) {
        *self.faults.on_failed_sync.lock() = Some(told);
    }

    fn name_op<T>(&self, op: OpKind, path: &Path, call: impl FnOnce() -> Result<T>) -> Result<T> {
        self.faults.wrap(op, [Some(path), None], path, call)
    }

    fn wrap_file(&self, inner: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(FaultFile { inner, faults: Arc::clone(&self.faults) })
    }
}

impl Faults {
    /// Counts a call and says what befalls it. A delay is over when this returns.
    fn meet(&self, op: OpKind, paths: [Option<&Path>; 2]) -> Option<Fault> {
        self.calls[op as usize].fetch_add(1, Ordering::AcqRel);
        let mut acting = None;
        for (rule, met) in self.rules.lock().iter_mut().filter(|(rule, _)| rule.concerns(op, paths)) {
            *met += 1;
            let is_due = *met >= rule.nth && *met - rule.nth < rule.times;
            acting = acting.or(is_due.then_some(rule.fault));
        }
        if acting.is_some() {
            self.injected.fetch_add(1, Ordering::AcqRel);
        }
        if let Some(Fault::Delay(nanos)) = acting {
            let sleeper = Arc::clone(&self.sleeper.lock());
            sleeper(nanos);
            return None;
        }
        if let (OpKind::Sync, Some(Fault::Errno(_) | Fault::TornWrite(..))) = (op, acting) {
            let told = self.on_failed_sync.lock().clone();
            if let (Some(told), Some(path)) = (told, paths[0]) {
                told(path);
            }
        }
        assert!(acting != Some(Fault::Panic), "an injected panic in a call of {op:?}");
        acting
    }

    /// A call that has nothing to be cut short.
    fn wrap<T>(
        &self,
        op: OpKind,
        paths: [Option<&Path>; 2],
        path: &Path,
        call: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        match self.meet(op, paths) {
            None | Some(Fault::Delay(_) | Fault::ShortRead(_) | Fault::Panic) => call(),
            Some(Fault::Errno(errno) | Fault::TornWrite(_, errno)) => Err(injected(op, errno, path)),
            Some(Fault::ErrnoAfter(errno)) => {
                // What the call says no longer matters, only what it did.
                drop(call());
                Err(injected(op, errno, path))
            }
        }
    }
}

fn injected(op: OpKind, errno: i32, path: &Path) -> Error {
    Error::io(&io::Error::from_raw_os_error(errno), &format!("{op:?} (injected fault)"), path)
}

impl Fs for FaultFs {
    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        let file = self.name_op(OpKind::Create, path, || self.inner.create(path))?;
        Ok(self.wrap_file(file))
    }

    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        let file = self.name_op(OpKind::Open, path, || self.inner.open(path, access))?;
        Ok(self.wrap_file(file))
    }

    fn create_with(&self, path: &Path, options: CreateOptions) -> Result<Arc<dyn File>> {
        let file = self.name_op(OpKind::Create, path, || self.inner.create_with(path, options))?;
        Ok(self.wrap_file(file))
    }

    fn open_with(&self, path: &Path, access: Access, options: OpenOptions) -> Result<Arc<dyn File>> {
        let file = self.name_op(OpKind::Open, path, || self.inner.open_with(path, access, options))?;
        Ok(self.wrap_file(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.faults.wrap(OpKind::Rename, [Some(from), Some(to)], from, || self.inner.rename(from, to))
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        self.name_op(OpKind::Unlink, path, || self.inner.unlink(path))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.faults.wrap(OpKind::HardLink, [Some(from), Some(to)], from, || self.inner.hard_link(from, to))
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.name_op(OpKind::CreateDir, path, || self.inner.create_dir_all(path))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.name_op(OpKind::RemoveDir, path, || self.inner.remove_dir(path))
    }

    fn list(&self, path: &Path) -> Result<Vec<String>> {
        self.name_op(OpKind::List, path, || self.inner.list(path))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.inner.exists(path)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.name_op(OpKind::SyncDir, path, || self.inner.sync_dir(path))
    }

    fn lock(&self, path: &Path, mode: LockMode) -> Result<Box<dyn FileLock>> {
        self.name_op(OpKind::Lock, path, || self.inner.lock(path, mode))
    }

    fn free_bytes(&self, path: &Path) -> Result<u64> {
        self.inner.free_bytes(path)
    }
}

struct FaultFile {
    inner: Arc<dyn File>,
    faults: Arc<Faults>,
}

impl FaultFile {
    fn meet(&self, op: OpKind) -> Option<Fault> {
        self.faults.meet(op, [Some(self.inner.path()), None])
    }

    fn wrap(&self, op: OpKind, call: impl FnOnce() -> Result<()>) -> Result<()> {
        let path = self.inner.path();
        self.faults.wrap(op, [Some(path), None], path, call)
    }

    fn injected(&self, op: OpKind, errno: i32) -> Error {
        injected(op, errno, self.inner.path())
    }

    fn read_under(&self, fault: Option<Fault>, buf: &mut [u8], offset: u64) -> Result<usize> {
        match fault {
            None | Some(Fault::Delay(_) | Fault::Panic) => self.inner.read_at(buf, offset),
            Some(Fault::ShortRead(most)) => {
                let most = most.min(buf.len());
                self.inner.read_at(&mut buf[..most], offset)
            }
            Some(Fault::Errno(errno) | Fault::ErrnoAfter(errno) | Fault::TornWrite(_, errno)) => {
                Err(self.injected(OpKind::Read, errno).at_offset(offset))
            }
        }
    }

    fn write_under(&self, fault: Option<Fault>, buf: &[u8], offset: u64) -> Result<()> {
        let (written, errno) = match fault {
            None | Some(Fault::Delay(_) | Fault::ShortRead(_) | Fault::Panic) => {
                return self.inner.write_at(buf, offset);
            }
            Some(Fault::Errno(errno)) => (0, errno),
            Some(Fault::ErrnoAfter(errno)) => (buf.len(), errno),
            // Past the page cache a write is torn between blocks only.
            Some(Fault::TornWrite(bytes, errno)) if self.inner.is_direct() => {
                (bytes.min(buf.len()) / BUF_ALIGN * BUF_ALIGN, errno)
            }
            Some(Fault::TornWrite(bytes, errno)) => (bytes.min(buf.len()), errno),
        };
        if written > 0 {
            self.inner.write_at(&buf[..written], offset)?;
        }
        Err(self.injected(OpKind::Write, errno).at_offset(offset))
    }
}

impl File for FaultFile {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.read_under(self.meet(OpKind::Read), buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write_under(self.meet(OpKind::Write), buf, offset)
    }

    fn sync_data(&self) -> Result<()> {
        self.wrap(OpKind::Sync, || self.inner.sync_data())
    }

    fn start_writeback(&self, offset: u64, len: u64) {
        self.inner.start_writeback(offset, len);
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.wrap(OpKind::Allocate, || self.inner.allocate(offset, len))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.wrap(OpKind::SetLen, || self.inner.set_len(len))
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn advise(&self, advice: Advice) {
        self.inner.advise(advice);
    }

    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }

    fn submit(&self, op: Op) -> Box<dyn Ticket> {
        let kind = match &op {
            Op::Write { .. } => OpKind::Write,
            Op::Read { .. } => OpKind::Read,
            Op::SyncData => OpKind::Sync,
        };
        // Only a call that is let through may still be under way when this returns.
        let Some(fault) = self.meet(kind) else { return self.inner.submit(op) };
        Box::new(DoneTicket(match op {
            Op::Write { buf, offset } => self.write_under(Some(fault), &buf, offset).map(|()| buf),
            Op::Read { mut buf, offset } => self.read_under(Some(fault), &mut buf, offset).map(|n| {
                buf.truncate(n);
                buf
            }),
            Op::SyncData => match fault {
                Fault::ErrnoAfter(errno) => {
                    drop(run_now(&*self.inner, Op::SyncData));
                    Err(self.injected(kind, errno))
                }
                Fault::Errno(errno) | Fault::TornWrite(_, errno) => Err(self.injected(kind, errno)),
                Fault::ShortRead(_) | Fault::Delay(_) | Fault::Panic => {
                    self.inner.sync_data().map(|()| Vec::new())
                }
            },
        }))
    }
}
