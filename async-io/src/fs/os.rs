//! The real file system on plain calls. Every operation is over when its call returns; a ring
//! would only move the waiting elsewhere.
//!
//! Interrupted calls are retried and short transfers continued here, so that nobody above needs
//! to. Files are made with mode 0600, directories with 0700 (less the umask), and every
//! descriptor closes on exec. Errors name path and offset.

mod direct;
pub(crate) mod lock;
mod sys;

use std::fs::{DirBuilder, File as StdFile, OpenOptions as StdOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};

use super::{Access, Advice, CreateOptions, File, FileLock, Fs, LockMode, OpenOptions};
use crate::error::{Error, Result, is_out_of_descriptors};

/// The file system of the operating system.
#[derive(Debug, Default)]
pub struct OsFs {
    /// Directories in which a lock is held, kept open by that lock: they must still be synced when the process has no
    /// descriptor left for it, since what was made in them can't be taken back.
    locked_dirs: Mutex<Vec<(PathBuf, Weak<StdFile>)>>,
}

/// A lock for writing, and the directory that it is in.
struct DirLock {
    _lock: lock::OsLock,
    _dir: Option<Arc<StdFile>>,
}

impl FileLock for DirLock {}

impl OsFs {
    /// A handle on it, for one environment.
    pub fn new() -> Arc<OsFs> {
        Arc::default()
    }

    /// Keeps the directory of a lock open as long as the result is there; without one it has to do.
    fn keep_dir_of(&self, lock: &Path) -> Option<Arc<StdFile>> {
        let path = lock.parent()?;
        let dir = Arc::new(open_dir(path).ok()?);
        let mut dirs = self.locked_dirs.lock();
        dirs.retain(|(_, kept)| kept.strong_count() > 0);
        dirs.push((path.to_path_buf(), Arc::downgrade(&dir)));
        Some(dir)
    }

    /// Syncs a directory by the descriptor that its lock keeps; `error` is why there is no other.
    fn sync_locked_dir(&self, path: &Path, error: io::Error) -> io::Result<()> {
        let dirs = self.locked_dirs.lock();
        let dir = dirs.iter().filter(|(kept, _)| kept == path).find_map(|(_, dir)| dir.upgrade());
        drop(dirs);
        let Some(dir) = dir else { return Err(error) };
        // Another one may stand there by now.
        let (kept, named) = (dir.metadata()?, std::fs::metadata(path)?);
        if (kept.dev(), kept.ino()) != (named.dev(), named.ino()) {
            return Err(error);
        }
        dir.sync_all()
    }
}

fn open_dir(path: &Path) -> io::Result<StdFile> {
    StdOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(path)
}

/// Runs a call again as long as a signal interrupts it. Calls on names are interrupted on network
/// and user-space file systems only, before they had an effect.
fn retry<T, E: Into<io::Error>>(mut call: impl FnMut() -> std::result::Result<T, E>) -> io::Result<T> {
    loop {
        match call().map_err(E::into) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

impl Fs for OsFs {
    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.create_with(path, CreateOptions::default())
    }

    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        self.open_with(path, access, OpenOptions::default())
    }

    fn create_with(&self, path: &Path, options: CreateOptions) -> Result<Arc<dyn File>> {
        // The standard library sets O_CLOEXEC and retries an interrupted open.
        let file = StdOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
        Ok(OsFile::wrap(file.map_err(|e| Error::io(&e, "create", path))?, path, options.direct))
    }

    fn open_with(&self, path: &Path, access: Access, options: OpenOptions) -> Result<Arc<dyn File>> {
        let file = StdOptions::new().read(true).write(access == Access::ReadWrite).open(path);
        Ok(OsFile::wrap(file.map_err(|e| Error::io(&e, "open", path))?, path, options.direct))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        retry(|| std::fs::rename(from, to)).map_err(|e| Error::io(&e, "rename", from))
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        retry(|| std::fs::remove_file(path)).map_err(|e| Error::io(&e, "unlink", path))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        retry(|| std::fs::hard_link(from, to)).map_err(|e| Error::io(&e, "hard link", from))
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        let made = retry(|| DirBuilder::new().recursive(true).mode(0o700).create(path));
        made.map_err(|e| Error::io(&e, "create directory", path))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        retry(|| std::fs::remove_dir(path)).map_err(|e| Error::io(&e, "remove directory", path))
    }

    fn list(&self, path: &Path) -> Result<Vec<String>> {
        let failed = |e: io::Error| Error::io(&e, "list", path);
        let mut names = Vec::new();
        for entry in retry(|| std::fs::read_dir(path)).map_err(failed)? {
            // All names of ours are UTF-8. One that is not belongs to somebody else, and a lossy
            // copy of it could be taken for another file.
            names.extend(entry.map_err(failed)?.file_name().into_string().ok());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        match retry(|| std::fs::symlink_metadata(path)) {
            Ok(_) => Ok(true),
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => Ok(false),
            Err(e) => Err(Error::io(&e, "look up", path)),
        }
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        let synced = match open_dir(path) {
            Ok(dir) => dir.sync_all(),
            Err(e) if is_out_of_descriptors(e.raw_os_error()) => self.sync_locked_dir(path, e),
            Err(e) => Err(e),
        };
        synced.map_err(|e| Error::io(&e, "sync directory", path))
    }

    fn lock(&self, path: &Path, mode: LockMode) -> Result<Box<dyn FileLock>> {
        let lock = lock::acquire(path, mode)?;
        match mode {
            LockMode::Shared => Ok(Box::new(lock)),
            LockMode::Exclusive => Ok(Box::new(DirLock { _lock: lock, _dir: self.keep_dir_of(path) })),
        }
    }

    fn free_bytes(&self, path: &Path) -> Result<u64> {
        let stat = retry(|| rustix::fs::statvfs(path)).map_err(|e| Error::io(&e, "free space", path))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn open_dir(&self, path: &Path) -> Option<OwnedFd> {
        let dir = StdOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(path);
        dir.ok().map(OwnedFd::from)
    }
}

struct OsFile {
    file: StdFile,
    path: PathBuf,
    /// Of a handle that goes past the page cache: what keeps its unaligned writes alone.
    direct: Option<RwLock<()>>,
}

impl OsFile {
    fn wrap(file: StdFile, path: &Path, want_direct: bool) -> Arc<dyn File> {
        let direct = (want_direct && direct::make_direct(&file)).then(RwLock::default);
        Arc::new(OsFile { file, path: path.to_path_buf(), direct })
    }

    fn failed(&self, e: &io::Error, what: &str) -> Error {
        Error::io(e, what, &self.path)
    }
}

impl File for OsFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        if self.direct.is_some() {
            return self.read_direct(buf, offset);
        }
        let mut done = 0;
        while done < buf.len() {
            // A file has no byte at or past 2^64; the kernel refuses offsets from 2^63 on.
            let at = offset.saturating_add(done as u64);
            match self.file.read_at(&mut buf[done..], at) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.failed(&e, "read").at_offset(at)),
            }
        }
        Ok(done)
    }

    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> bool {
        // Past the page cache this could wait for the device.
        if self.direct.is_some() {
            return false;
        }
        let wanted = buf.len();
        // An error means "would wait" or "not known here"; a real one will show again.
        let read = rustix::io::preadv2(
            &self.file,
            &mut [io::IoSliceMut::new(buf)],
            offset,
            rustix::io::ReadWriteFlags::NOWAIT,
        );
        read.is_ok_and(|n| n == wanted)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        if let Some(lock) = &self.direct {
            return self.write_direct(lock, buf, offset);
        }
        let mut done = 0;
        while done < buf.len() {
            let at = offset.saturating_add(done as u64);
            match self.file.write_at(&buf[done..], at) {
                // Not known to happen on a regular file; without this it would be an endless loop.
                Ok(0) => {
                    let e = io::Error::from(io::ErrorKind::WriteZero);
                    return Err(self.failed(&e, "write").at_offset(at));
                }
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.failed(&e, "write").at_offset(at)),
            }
        }
        Ok(())
    }

    fn sync_data(&self) -> Result<()> {
        // fdatasync, retried when interrupted (which loses no error: the call did not finish).
        self.file.sync_data().map_err(|e| self.failed(&e, "sync"))
    }

    fn start_writeback(&self, offset: u64, len: u64) {
        sys::start_writeback(self.file.as_fd(), offset, len);
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let flags = rustix::fs::FallocateFlags::KEEP_SIZE;
        match retry(|| rustix::fs::fallocate(&self.file, flags, offset, len)) {
            Ok(()) => Ok(()),
            Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS)) => Ok(()),
            Err(e) => Err(self.failed(&e, "allocate").at_offset(offset)),
        }
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len).map_err(|e| self.failed(&e, "set length").at_offset(len))
    }

    fn len(&self) -> Result<u64> {
        Ok(retry(|| self.file.metadata()).map_err(|e| self.failed(&e, "length"))?.len())
    }

    fn advise(&self, advice: Advice) {
        let advice = match advice {
            Advice::Random => rustix::fs::Advice::Random,
            Advice::Sequential => rustix::fs::Advice::Sequential,
            Advice::DontNeed => rustix::fs::Advice::DontNeed,
        };
        // A refused hint changes nothing that anybody could act on. No length means to the end.
        let _ = rustix::fs::fadvise(&self.file, 0, None, advice);
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }

    fn is_direct(&self) -> bool {
        self.direct.is_some()
    }
}
