//! Files and directories: what each call promises, and what a power cut may undo.
//!
//! Three kinds of state exist: bytes of a file, its length, and names in a directory. None of
//! them survives a power cut before the call that makes it durable has *returned*:
//! [`File::sync_data`] for bytes and length, [`Fs::sync_dir`] for names (create, rename, unlink,
//! link). A killed process loses none of them.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::Result;

pub mod call;
pub mod fault;
pub mod os;
pub mod sim;

/// A file system. Paths are absolute or relative to the process, as the caller has them.
pub trait Fs: Send + Sync + 'static {
    /// Creates a new file (mode 0600, close-on-exec) for reading and writing; fails with
    /// `AlreadyExists` if the name is taken. The name is durable after [`Fs::sync_dir`].
    ///
    /// # Errors
    /// Those of the file system.
    fn create(&self, path: &Path) -> Result<Arc<dyn File>>;

    /// Opens an existing file, for reading only or for both.
    ///
    /// # Errors
    /// `NotFound`, or those of the file system.
    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>>;

    /// As [`Fs::create`], in the way that `options` say. A file system that knows nothing of them
    /// makes an ordinary file; [`File::is_direct`] tells what came of it.
    ///
    /// # Errors
    /// Those of [`Fs::create`].
    fn create_with(&self, path: &Path, options: CreateOptions) -> Result<Arc<dyn File>> {
        let _ = options;
        self.create(path)
    }

    /// As [`Fs::open`], in the way that `options` say; see [`Fs::create_with`].
    ///
    /// # Errors
    /// Those of [`Fs::open`].
    fn open_with(&self, path: &Path, access: Access, options: OpenOptions) -> Result<Arc<dyn File>> {
        let _ = options;
        self.open(path, access)
    }

    /// Renames a file, replacing the target if there is one. Atomic; durable after `sync_dir` of
    /// the target's directory (both, if they differ). A directory can be renamed within the one it
    /// lies in, to a name that is free or that of an empty directory.
    ///
    /// # Errors
    /// Those of the file system.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Removes a name. The bytes go when the last handle and hard link are gone.
    ///
    /// # Errors
    /// Those of the file system.
    fn unlink(&self, path: &Path) -> Result<()>;

    /// Makes a second name for a file.
    ///
    /// # Errors
    /// Those of the file system.
    fn hard_link(&self, from: &Path, to: &Path) -> Result<()>;

    /// Creates a directory (mode 0700) and the missing ones above it. No error if it is there.
    ///
    /// # Errors
    /// Those of the file system.
    fn create_dir_all(&self, path: &Path) -> Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Those of the file system.
    fn remove_dir(&self, path: &Path) -> Result<()>;

    /// The names in a directory (last components), sorted.
    ///
    /// # Errors
    /// `NotFound`, or those of the file system.
    fn list(&self, path: &Path) -> Result<Vec<String>>;

    /// Whether a file or directory of that name exists.
    ///
    /// # Errors
    /// Those of the file system, absence not among them.
    fn exists(&self, path: &Path) -> Result<bool>;

    /// Makes all names in a directory durable as they are when the call is made.
    ///
    /// # Errors
    /// Those of the file system. After one, nothing is known of the names.
    fn sync_dir(&self, path: &Path) -> Result<()>;

    /// Takes an advisory lock on `path` (created if missing), against other processes and other
    /// lockers in this process. Held until the value is dropped, or the process ends.
    ///
    /// # Errors
    /// `Busy` when somebody holds it in a way that excludes this one.
    fn lock(&self, path: &Path, mode: LockMode) -> Result<Box<dyn FileLock>>;

    /// Bytes that an unprivileged writer could still write on the file system of `path`.
    ///
    /// # Errors
    /// Those of the file system.
    fn free_bytes(&self, path: &Path) -> Result<u64>;

    /// A descriptor of a directory that a ring may sync instead of calling [`Fs::sync_dir`]. None
    /// where it can't be opened, and where the file system must see the call: then it is made.
    fn open_dir(&self, path: &Path) -> Option<OwnedFd> {
        let _ = path;
        None
    }
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading only.
    Read,
    /// Reading and writing.
    ReadWrite,
}

/// How a file is created, beyond what is the same for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreateOptions {
    /// Past the page cache, where the file system takes that. Off by default. Aligned transfers
    /// (address, offset and length multiples of [`BUF_ALIGN`](crate::ring::BUF_ALIGN)) go to the
    /// device as they are, others by way of a buffer and more slowly. A simulation refuses
    /// unaligned writes, so that tests find who makes them.
    pub direct: bool,
}

/// How a file is opened, beyond its access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// As [`CreateOptions::direct`].
    pub direct: bool,
}

/// Who else may hold a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// Nobody.
    Exclusive,
    /// Other shared holders.
    Shared,
}

/// A held lock; dropping it releases it.
pub trait FileLock: Send + Sync {}

/// An open file. All calls take positions; there is no cursor. Calls on one file may run at once.
/// Interrupted calls are retried and short transfers continued inside.
pub trait File: Send + Sync {
    /// The name it was opened under, for error texts.
    fn path(&self) -> &Path;

    /// Reads until `buf` is full or the file ends; returns the bytes read.
    ///
    /// # Errors
    /// Those of the file system, with the path and the offset.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize>;

    /// As [`File::read_at`], if all of it can be had without waiting for a device; else false, and what
    /// `buf` holds is not said. Where a wrapper must see the calls there is nothing to be had.
    fn read_cached_at(&self, _buf: &mut [u8], _offset: u64) -> bool {
        false
    }

    /// Writes all of `buf` at `offset`, extending the file where needed. When it returns, the
    /// bytes are with the kernel: they survive the process, not a power cut.
    ///
    /// # Errors
    /// Those of the file system. Some of the bytes may have been written.
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()>;

    /// Makes durable what was written before the call: bytes and the length that reaches them.
    ///
    /// # Errors
    /// After any, the unsynced bytes of this file can no longer be trusted; a retry that succeeds
    /// proves nothing.
    fn sync_data(&self) -> Result<()>;

    /// Asks the kernel to start writing this range back, without waiting and without a promise.
    fn start_writeback(&self, offset: u64, len: u64);

    /// Sets aside space for the range without changing the file's length. Best effort: a file
    /// system that cannot is not an error, a full one is.
    ///
    /// # Errors
    /// `NoSpace`.
    fn allocate(&self, offset: u64, len: u64) -> Result<()>;

    /// Sets the length.
    ///
    /// # Errors
    /// Those of the file system.
    fn set_len(&self, len: u64) -> Result<()>;

    /// The length.
    ///
    /// # Errors
    /// Those of the file system.
    fn len(&self) -> Result<u64>;

    /// Whether the length is zero.
    ///
    /// # Errors
    /// Those of [`File::len`].
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Tells the kernel how the file will be read. No promise.
    fn advise(&self, advice: Advice);

    /// The descriptor on which a ring may read, write and sync instead of calling the methods
    /// above. None where there is none, and where a wrapper must see the calls: then they are made.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether transfers go past the page cache, so that aligned ones are to be preferred; see
    /// [`CreateOptions::direct`].
    fn is_direct(&self) -> bool {
        false
    }
}

/// Access patterns for [`File::advise`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Point reads.
    Random,
    /// One pass from front to back.
    Sequential,
    /// Will not be read again: its cached pages may go.
    DontNeed,
}

/// The directory of `path`, for [`Fs::sync_dir`]; `.` where it has none.
pub fn parent_dir(path: &Path) -> PathBuf {
    match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p.to_path_buf(),
        _ => PathBuf::from("."),
    }
}
