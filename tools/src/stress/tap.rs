//! A file system that listens: it tells of the batches in each write to the log, before it is made,
//! and of every call that has returned.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use dialsm_io::{Access, Advice, File, FileLock, Fs, LockMode, OpKind, Result};

use super::workload::witnesses_in;

/// A call that has returned.
pub struct Heard<'a> {
    /// Which.
    pub op: OpKind,
    /// On what; of a rename the source.
    pub path: &'a Path,
    /// Where, in bytes; of `SetLen` the length.
    pub offset: u64,
    /// What was written.
    pub data: &'a [u8],
    /// Whether it succeeded.
    pub ok: bool,
}

/// Who is told.
pub trait Listener: Send + Sync + 'static {
    /// These batches are about to be written to the log.
    fn committing(&self, ids: &[u64]);

    /// A call has returned. Reads, hints and questions about names are not told.
    fn heard(&self, call: &Heard<'_>);
}

/// The listening file system.
pub struct Tap {
    inner: Arc<dyn Fs>,
    ear: Ear,
}

#[derive(Clone)]
struct Ear {
    listener: Arc<dyn Listener>,
    /// The database whose log counts: copies of a log hold the same batches once more.
    dir: Arc<Path>,
}

impl Ear {
    fn heard<T>(&self, op: OpKind, path: &Path, offset: u64, data: &[u8], result: Result<T>) -> Result<T> {
        self.listener.heard(&Heard { op, path, offset, data, ok: result.is_ok() });
        result
    }

    fn is_log(&self, path: &Path) -> bool {
        path.parent() == Some(&*self.dir) && path.extension().is_some_and(|extension| extension == "log")
    }

    fn writing(&self, path: &Path, data: &[u8]) {
        if self.is_log(path) {
            let ids = witnesses_in(data);
            if !ids.is_empty() {
                self.listener.committing(&ids);
            }
        }
    }
}

impl Tap {
    /// Listens to what is done on `inner` for the database in `dir`.
    pub fn new(inner: Arc<dyn Fs>, dir: &Path, listener: Arc<dyn Listener>) -> Arc<Tap> {
        Arc::new(Tap { inner, ear: Ear { listener, dir: Arc::from(dir) } })
    }

    fn file(&self, inner: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(TapFile { inner, ear: self.ear.clone() })
    }

    fn name_op<T>(&self, op: OpKind, path: &Path, result: Result<T>) -> Result<T> {
        self.ear.heard(op, path, 0, &[], result)
    }
}

impl Fs for Tap {
    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        let file = self.name_op(OpKind::Create, path, self.inner.create(path))?;
        Ok(self.file(file))
    }

    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        Ok(self.file(self.inner.open(path, access)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.name_op(OpKind::Rename, from, self.inner.rename(from, to))
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        self.name_op(OpKind::Unlink, path, self.inner.unlink(path))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.name_op(OpKind::HardLink, from, self.inner.hard_link(from, to))
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.name_op(OpKind::CreateDir, path, self.inner.create_dir_all(path))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.name_op(OpKind::RemoveDir, path, self.inner.remove_dir(path))
    }

    fn list(&self, path: &Path) -> Result<Vec<String>> {
        self.inner.list(path)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.inner.exists(path)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.name_op(OpKind::SyncDir, path, self.inner.sync_dir(path))
    }

    fn lock(&self, path: &Path, mode: LockMode) -> Result<Box<dyn FileLock>> {
        self.inner.lock(path, mode)
    }

    fn free_bytes(&self, path: &Path) -> Result<u64> {
        self.inner.free_bytes(path)
    }

    fn open_dir(&self, path: &Path) -> Option<OwnedFd> {
        self.inner.open_dir(path)
    }
}

struct TapFile {
    inner: Arc<dyn File>,
    ear: Ear,
}

impl TapFile {}

impl File for TapFile {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.inner.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        // Before the call: a crash image taken inside it may hold the bytes.
        self.ear.writing(self.path(), buf);
        self.ear.heard(OpKind::Write, self.path(), offset, buf, self.inner.write_at(buf, offset))
    }

    fn sync_data(&self) -> Result<()> {
        self.ear.heard(OpKind::Sync, self.path(), 0, &[], self.inner.sync_data())
    }

    fn start_writeback(&self, offset: u64, len: u64) {
        self.inner.start_writeback(offset, len);
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.allocate(offset, len)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.ear.heard(OpKind::SetLen, self.path(), len, &[], self.inner.set_len(len))
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn advise(&self, advice: Advice) {
        self.inner.advise(advice);
    }

    /// Of the log none, so that the ring makes its writes through [`File::write_at`].
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        if self.ear.is_log(self.path()) { None } else { self.inner.fd() }
    }
}
