//! Advisory locks: `flock` against other processes, a registry against this one.
//!
//! `flock` belongs to the open file description, so two handles of one process do exclude each
//! other by it alone; but a descriptor that crossed a `fork()` shares its parent's lock, and on
//! some network file systems `flock` is emulated by record locks, which a process never holds
//! against itself. The registry does not depend on either. It is keyed by device and inode, so
//! that two paths to one file meet, and by process id, so that a forked child does not take its
//! parent's entries for its own.
//!
//! INVARIANT: an entry exists exactly while a lock of this process is held; both change under
//! the registry's mutex, so nobody sees one without the other.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use parking_lot::Mutex;

use crate::error::{Error, ErrorKind, Result};
use crate::fs::{FileLock, LockMode};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LockId {
    pid: u32,
    device: u64,
    inode: u64,
}

/// How this process holds a file: once exclusively, or shared this many times.
enum Held {
    Exclusive,
    Shared(u64),
}

static REGISTRY: Mutex<BTreeMap<LockId, Held>> = Mutex::new(BTreeMap::new());

/// Whether another process held locks when it forked this one.
pub(crate) fn are_inherited() -> bool {
    let pid = std::process::id();
    REGISTRY.lock().keys().any(|id| id.pid != pid)
}

/// A held lock.
pub(super) struct OsLock {
    id: LockId,
    file: File,
}

impl FileLock for OsLock {}

/// Takes the lock or says `Busy`; never waits.
pub(super) fn acquire(path: &Path, mode: LockMode) -> Result<OsLock> {
    let file = open(path, mode)?;
    let meta = file.metadata().map_err(|e| Error::io(&e, "lock", path))?;
    let id = LockId { pid: std::process::id(), device: meta.dev(), inode: meta.ino() };
    let mut registry = REGISTRY.lock();
    let held = match (registry.get(&id), mode) {
        (None, LockMode::Exclusive) => Held::Exclusive,
        (None, LockMode::Shared) => Held::Shared(1),
        (Some(Held::Shared(n)), LockMode::Shared) => Held::Shared(n + 1),
        (Some(_), _) => return Err(busy(path, "this process holds it already")),
    };
    try_flock(&file, path, mode)?;
    // Somebody may have removed the file between our open and our lock; then the next one would
    // lock a new file beside us.
    let named = std::fs::metadata(path).map(|m| (m.dev(), m.ino()));
    if named.ok() != Some((id.device, id.inode)) {
        return Err(busy(path, "the lock file is being replaced"));
    }
    registry.insert(id, held);
    Ok(OsLock { id, file })
}

fn open(path: &Path, mode: LockMode) -> Result<File> {
    let made = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    let failed = match made {
        Ok(file) => return Ok(file),
        Err(e) => Error::io(&e, "lock", path),
    };
    // A reader of a read-only directory needs no right to write, only the file.
    if mode == LockMode::Shared && failed.kind() == ErrorKind::ReadOnly {
        return File::open(path).map_err(|_| failed);
    }
    Err(failed)
}

fn try_flock(file: &File, path: &Path, mode: LockMode) -> Result<()> {
    loop {
        let taken = match mode {
            LockMode::Exclusive => file.try_lock(),
            LockMode::Shared => file.try_lock_shared(),
        };
        match taken {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => return Err(busy(path, "another process holds it")),
            Err(TryLockError::Error(e)) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(TryLockError::Error(e)) => return Err(Error::io(&e, "lock", path)),
        }
    }
}

fn busy(path: &Path, why: &str) -> Error {
    Error::new(ErrorKind::Busy, format!("lock: {why}")).at_path(path)
}

impl Drop for OsLock {
    fn drop(&mut self) {
        // In a forked child the lock is the parent's: closing our descriptor leaves it alone,
        // unlocking would take it away.
        if self.id.pid != std::process::id() {
            return;
        }
        let mut registry = REGISTRY.lock();
        // Unlocked by hand, because a child that inherited the descriptor would keep the lock
        // alive past a mere close. A failure here leaves the close to do it.
        let _ = self.file.unlock();
        match registry.get_mut(&self.id) {
            Some(Held::Shared(n)) if *n > 1 => *n -= 1,
            _ => drop(registry.remove(&self.id)),
        }
    }
}
