//! A file system in memory that knows what a power cut would leave.
//!
//! Bytes and length of a file are durable once [`File::sync_data`] returned, names once
//! [`Fs::sync_dir`] of their directory did; the two know nothing of each other, and a directory's
//! own name is durable only through *its* parent. [`SimFs::crash_image`] makes the file system
//! that the next boot finds. The rules stand in `names` (names), `inode` (bytes) and `crash`.
//!
//! Paths are taken from one root, relative ones too; the root is always there.
//!
//! INVARIANT: one mutex orders all calls, so an image shows one instant: whatever returned before
//! the image was asked for is in it as far as it was synced. Upheld by `Shared::perform` and
//! `crash_image`; attacked by `fs_crash.rs` in the tests.

mod content;
mod crash;
mod inode;
mod names;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::call::{Call, OpKind};
use super::ticket::run_now;
use super::{Access, Advice, CreateOptions, File, FileLock, Fs, LockMode, Op, OpenOptions, Ticket};
use crate::error::{Error, ErrorKind, Result};
use crate::ring::is_aligned;
pub use crash::CrashPolicy;
use inode::Bytes;
use names::{Claim, Entry, Errno, Names};

/// Size of the device unless set otherwise: 1 TiB.
const CAPACITY_DEFAULT: u64 = 1 << 40;

/// The largest offset a file can have, as on Linux.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// Called before a call takes effect, with no lock held; its `ok` means nothing yet.
pub type CallHook = Arc<dyn Fn(&Call) + Send + Sync>;

/// A simulated file system.
pub struct SimFs {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Bytes charged to all files that a name or handle leads to.
    used: Arc<AtomicU64>,
    /// Whether calls must be described: somebody traces or has a hook.
    is_watched: AtomicBool,
}

struct State {
    seed: u64,
    names: Names,
    files_made: u64,
    capacity: u64,
    locks: BTreeMap<u64, Held>,
    trace: Option<Vec<Call>>,
    hooks: Vec<CallHook>,
    is_off: bool,
}

/// How a file is locked: once exclusively, or shared this many times.
enum Held {
    Exclusive,
    Shared(u64),
}

/// A call, described without copying.
struct About<'a> {
    op: OpKind,
    what: &'static str,
    path: &'a Path,
    target: Option<&'a Path>,
    offset: u64,
    len: u64,
}

impl<'a> About<'a> {
    fn name(op: OpKind, what: &'static str, path: &'a Path) -> About<'a> {
        About { op, what, path, target: None, offset: 0, len: 0 }
    }

    fn call(&self) -> Call {
        Call {
            op: Some(self.op),
            path: self.path.to_path_buf(),
            target: self.target.map(Path::to_path_buf),
            offset: self.offset,
            len: self.len,
            thread: thread_name(),
            ok: false,
        }
    }

    fn error(&self, errno: Errno) -> Error {
        let error = Error::io(&io::Error::from_raw_os_error(errno), self.what, self.path);
        match self.op {
            OpKind::Read | OpKind::Write | OpKind::Allocate | OpKind::SetLen => error.at_offset(self.offset),
            _ => error,
        }
    }
}

fn thread_name() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}

impl SimFs {
    /// An empty file system. The seed goes into what [`CrashPolicy::Random`] chooses.
    pub fn new(seed: u64) -> Arc<SimFs> {
        SimFs::with_names(seed, Names::new(), 0, CAPACITY_DEFAULT, Arc::default())
    }

    fn with_names(
        seed: u64,
        names: Names,
        files_made: u64,
        capacity: u64,
        used: Arc<AtomicU64>,
    ) -> Arc<SimFs> {
        let locks = BTreeMap::new();
        let state =
            State { seed, names, files_made, capacity, locks, trace: None, hooks: Vec::new(), is_off: false };
        let is_watched = AtomicBool::new(false);
        Arc::new(SimFs { shared: Arc::new(Shared { state: Mutex::new(state), used, is_watched }) })
    }

    /// The file system after a crash at this instant; this one goes on unharmed. Open files and
    /// locks are not part of it; capacity and seed are.
    pub fn crash_image(&self, policy: CrashPolicy) -> Arc<SimFs> {
        let state = self.shared.state.lock();
        let used = Arc::default();
        let names = crash::image(&state.names, policy, state.seed, &used);
        SimFs::with_names(state.seed, names, state.files_made, state.capacity, used)
    }

    /// From now on every call fails with EIO and changes nothing: for an engine that a test leaves
    /// behind after it took the crash image. Crash images can still be taken.
    pub fn power_off(&self) {
        self.shared.state.lock().is_off = true;
    }

    /// The kernel fails to write back what is not synced of the file at `path`, as Linux does: the
    /// pages count as clean from then on. Readers see them while the machine lives, a later sync
    /// succeeds without them, and a power cut takes them. Nothing happens where there is no file.
    pub fn fail_writeback(&self, path: &Path) {
        if let Ok(claim) = self.shared.state.lock().names.find_file(path) {
            claim.inode.bytes.lock().fail_writeback();
        }
    }

    /// Sets the size of the device in bytes. Files count with their length, holes included, or
    /// what was allocated if that is more; names cost nothing.
    pub fn set_capacity(&self, bytes: u64) {
        self.shared.state.lock().capacity = bytes;
    }

    /// Starts (with an empty one) or ends the recording of calls.
    pub fn set_tracing(&self, on: bool) {
        let mut state = self.shared.state.lock();
        state.trace = on.then(Vec::new);
        self.shared.set_watched(&state);
    }

    /// The calls since tracing was set, in the order in which they took effect.
    pub fn trace(&self) -> Vec<Call> {
        self.shared.state.lock().trace.clone().unwrap_or_default()
    }

    /// Leaves a note in the trace, for instance that a write was acknowledged.
    pub fn note(&self, text: &str) {
        if let Some(trace) = &mut self.shared.state.lock().trace {
            let path = PathBuf::from(text);
            trace.push(Call {
                op: None,
                path,
                target: None,
                offset: 0,
                len: 0,
                thread: thread_name(),
                ok: true,
            });
        }
    }

    /// Adds somebody to tell of each call before it takes effect: the place to take crash images
    /// from, or to let other threads go on. Calls made by a hook are told to the hooks again.
    pub fn add_call_hook(&self, hook: CallHook) {
        let mut state = self.shared.state.lock();
        state.hooks.push(hook);
        self.shared.set_watched(&state);
    }

    /// Removes all hooks.
    pub fn clear_call_hooks(&self) {
        let mut state = self.shared.state.lock();
        state.hooks.clear();
        self.shared.set_watched(&state);
    }
}

impl Shared {
    fn set_watched(&self, state: &State) {
        self.is_watched.store(state.trace.is_some() || !state.hooks.is_empty(), Ordering::Release);
    }

    /// Runs one call: hooks, effect, trace.
    fn perform<T>(
        &self,
        about: &About<'_>,
        effect: impl FnOnce(&mut State) -> std::result::Result<T, Errno>,
    ) -> Result<T> {
        let call = self.is_watched.load(Ordering::Acquire).then(|| about.call());
        if let Some(call) = &call {
            // Cloned out, because a hook may call back.
            let hooks = self.state.lock().hooks.clone();
            hooks.iter().for_each(|hook| hook(call));
        }
        let mut state = self.state.lock();
        let outcome = if state.is_off { Err(libc::EIO) } else { effect(&mut state) };
        if let (Some(trace), Some(mut call)) = (&mut state.trace, call) {
            call.ok = outcome.is_ok();
            trace.push(call);
        }
        drop(state);
        outcome.map_err(|errno| about.error(errno))
    }

    /// Lets a file grow to `charge` bytes of the device if there is room.
    fn charge(&self, state: &State, claim: &Claim, charge: u64) -> std::result::Result<(), Errno> {
        let before = claim.inode.charged.load(Ordering::Relaxed);
        let more = charge.saturating_sub(before);
        if more > 0 && more > state.capacity.saturating_sub(self.used.load(Ordering::Relaxed)) {
            return Err(libc::ENOSPC);
        }
        claim.inode.charged.store(charge, Ordering::Relaxed);
        self.used.fetch_add(charge.wrapping_sub(before), Ordering::Relaxed);
        Ok(())
    }
}

impl State {
    fn create(&mut self, path: &Path, used: &Arc<AtomicU64>) -> std::result::Result<Arc<Claim>, Errno> {
        let claim = Claim::new(self.files_made, Bytes::default(), used);
        self.names.insert(path, Entry::File(Arc::clone(&claim)))?;
        self.files_made += 1;
        Ok(claim)
    }
}

impl SimFs {
    fn handle(&self, claim: Arc<Claim>, path: &Path, access: Access, is_direct: bool) -> Arc<dyn File> {
        let (shared, path) = (Arc::clone(&self.shared), path.to_path_buf());
        Arc::new(SimFile { shared, claim, path, access, is_direct })
    }
}

impl Fs for SimFs {
    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.create_with(path, CreateOptions::default())
    }

    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        self.open_with(path, access, OpenOptions::default())
    }

    fn create_with(&self, path: &Path, options: CreateOptions) -> Result<Arc<dyn File>> {
        let about = About::name(OpKind::Create, "create", path);
        let claim = self.shared.perform(&about, |state| state.create(path, &self.shared.used))?;
        Ok(self.handle(claim, path, Access::ReadWrite, options.direct))
    }

    fn open_with(&self, path: &Path, access: Access, options: OpenOptions) -> Result<Arc<dyn File>> {
        let about = About::name(OpKind::Open, "open", path);
        let claim = self.shared.perform(&about, |state| state.names.find_file(path))?;
        Ok(self.handle(claim, path, access, options.direct))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let about = About { target: Some(to), ..About::name(OpKind::Rename, "rename", from) };
        self.shared.perform(&about, |state| state.names.rename(from, to))
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        let about = About::name(OpKind::Unlink, "unlink", path);
        self.shared.perform(&about, |state| state.names.remove(path, false))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        let about = About { target: Some(to), ..About::name(OpKind::HardLink, "hard link", from) };
        self.shared.perform(&about, |state| match state.names.find(from)? {
            Entry::Dir(_) => Err(libc::EPERM),
            file @ Entry::File(_) => state.names.insert(to, file),
        })
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        let about = About::name(OpKind::CreateDir, "create directory", path);
        self.shared.perform(&about, |state| state.names.create_dirs(path))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        let about = About::name(OpKind::RemoveDir, "remove directory", path);
        self.shared.perform(&about, |state| state.names.remove(path, true))
    }

    fn list(&self, path: &Path) -> Result<Vec<String>> {
        let about = About::name(OpKind::List, "list", path);
        self.shared.perform(&about, |state| state.names.list(path))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        Ok(self.shared.state.lock().names.find(path).is_ok())
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        let about = About::name(OpKind::SyncDir, "sync directory", path);
        self.shared.perform(&about, |state| state.names.sync(path))
    }

    fn lock(&self, path: &Path, mode: LockMode) -> Result<Box<dyn FileLock>> {
        let about = About::name(OpKind::Lock, "lock", path);
        let taken = self.shared.perform(&about, |state| {
            let claim = match state.names.find_file(path) {
                Err(libc::ENOENT) => state.create(path, &self.shared.used)?,
                found => found?,
            };
            let held = match (state.locks.get(&claim.inode.number), mode) {
                (None, LockMode::Exclusive) => Held::Exclusive,
                (None, LockMode::Shared) => Held::Shared(1),
                (Some(Held::Shared(n)), LockMode::Shared) => Held::Shared(n + 1),
                (Some(_), _) => return Ok(None),
            };
            state.locks.insert(claim.inode.number, held);
            Ok(Some(claim))
        })?;
        match taken {
            Some(claim) => Ok(Box::new(SimLock { shared: Arc::clone(&self.shared), claim })),
            None => Err(Error::new(ErrorKind::Busy, "lock: somebody holds it already").at_path(path)),
        }
    }

    fn free_bytes(&self, _path: &Path) -> Result<u64> {
        let capacity = self.shared.state.lock().capacity;
        Ok(capacity.saturating_sub(self.shared.used.load(Ordering::Relaxed)))
    }
}

struct SimLock {
    shared: Arc<Shared>,
    claim: Arc<Claim>,
}

impl FileLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        match state.locks.get_mut(&self.claim.inode.number) {
            Some(Held::Shared(n)) if *n > 1 => *n -= 1,
            _ => drop(state.locks.remove(&self.claim.inode.number)),
        }
    }
}

struct SimFile {
    shared: Arc<Shared>,
    claim: Arc<Claim>,
    path: PathBuf,
    access: Access,
    /// Unaligned writes are refused, as by a kernel, though the real file system would help itself:
    /// nobody should make them.
    is_direct: bool,
}

impl SimFile {
    fn about(&self, op: OpKind, what: &'static str, offset: u64, len: u64) -> About<'_> {
        About { op, what, path: &self.path, target: None, offset, len }
    }

    /// The end of a range that is to be written, where the file can be.
    fn writable_end(&self, offset: u64, len: u64) -> std::result::Result<u64, Errno> {
        if self.access == Access::Read {
            return Err(libc::EBADF);
        }
        offset.checked_add(len).filter(|end| *end <= OFFSET_MAX).ok_or(libc::EFBIG)
    }
}

impl File for SimFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let about = self.about(OpKind::Read, "read", offset, buf.len() as u64);
        self.shared.perform(&about, |_| {
            if offset > OFFSET_MAX {
                return Err(libc::EINVAL);
            }
            Ok(self.claim.inode.bytes.lock().live().read(buf, offset))
        })
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let about = self.about(OpKind::Write, "write", offset, buf.len() as u64);
        self.shared.perform(&about, |state| {
            let end = self.writable_end(offset, buf.len() as u64)?;
            if buf.is_empty() {
                return Ok(());
            }
            if self.is_direct && !is_aligned(buf, offset) {
                return Err(libc::EINVAL);
            }
            let mut bytes = self.claim.inode.bytes.lock();
            self.shared.charge(state, &self.claim, bytes.charge().max(end))?;
            bytes.write(buf, offset);
            Ok(())
        })
    }

    fn sync_data(&self) -> Result<()> {
        let about = self.about(OpKind::Sync, "sync", 0, 0);
        self.shared.perform(&about, |_| {
            self.claim.inode.bytes.lock().sync();
            Ok(())
        })
    }

    fn start_writeback(&self, _offset: u64, _len: u64) {}

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        let about = self.about(OpKind::Allocate, "allocate", offset, len);
        self.shared.perform(&about, |state| {
            let end = self.writable_end(offset, len)?;
            if len == 0 {
                return Ok(());
            }
            let mut bytes = self.claim.inode.bytes.lock();
            self.shared.charge(state, &self.claim, bytes.charge().max(end))?;
            bytes.allocate(end);
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let about = self.about(OpKind::SetLen, "set length", len, 0);
        self.shared.perform(&about, |state| {
            self.writable_end(len, 0)?;
            let mut bytes = self.claim.inode.bytes.lock();
            self.shared.charge(state, &self.claim, bytes.charge_at_len(len))?;
            bytes.set_len(len);
            Ok(())
        })
    }

    fn len(&self) -> Result<u64> {
        // Under the state's lock like all else, so that it stands in the one order of calls.
        let _state = self.shared.state.lock();
        Ok(self.claim.inode.bytes.lock().live().len())
    }

    fn advise(&self, _advice: Advice) {}

    fn is_direct(&self) -> bool {
        self.is_direct
    }

    fn submit(&self, op: Op) -> Box<dyn Ticket> {
        run_now(self, op)
    }
}
