//! A file system that writes down what passes through it: every call after it has returned, with
//! the bytes of logs, manifests and `CURRENT`, and the order in which batches reached the log.
//!
//! Batches carry *witnesses*: a key of the form `w/XXXXXXXX/` with the batch's number in it. The
//! log is written by one thread at a time, so the order of witnesses is the order of commits.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dialsm_io::fs::{Access, Advice, FileLock, LockMode};
use dialsm_io::{File, Fs, OpKind, Result, SimFs};
use parking_lot::Mutex;

/// The key that says that batch `id` is there.
pub(crate) fn witness(id: u64) -> Vec<u8> {
    format!("w/{id:08x}/").into_bytes()
}

/// The batch that a witness key stands for.
pub(crate) fn witnessed(key: &[u8]) -> Option<u64> {
    let digits = key.strip_prefix(b"w/")?.strip_suffix(b"/")?;
    (digits.len() == 8).then(|| u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok())?
}

/// All witnesses in written bytes, in order.
pub(crate) fn witnesses_in(data: &[u8]) -> Vec<u64> {
    data.windows(11).filter_map(witnessed).collect()
}

/// Something that happened, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A call that has returned, and succeeded.
    Done { op: OpKind, path: PathBuf, target: Option<PathBuf>, offset: u64, data: Vec<u8>, thread: String },
    /// A sync of this file has failed on the way here, and its bytes may be gone.
    SyncFailed(PathBuf),
    /// An unlink that is about to be made.
    Unlinking(PathBuf),
    /// A write of this batch was acknowledged as durable.
    AckedSync(u64),
}

#[derive(Default)]
pub(crate) struct Record {
    is_on: AtomicBool,
    events: Mutex<Vec<Event>>,
    /// Batches in the order in which they were handed to the log.
    order: Mutex<Vec<u64>>,
}

impl Record {
    pub(crate) fn note(&self, event: Event) {
        if self.is_on.load(Ordering::Relaxed) {
            self.events.lock().push(event);
        }
    }

    fn done(&self, op: OpKind, path: &Path, target: Option<&Path>, offset: u64, data: &[u8]) {
        if !self.is_on.load(Ordering::Relaxed) {
            return;
        }
        let text = path.to_string_lossy();
        let is_kept = text.ends_with(".log") || text.contains("MANIFEST") || text.contains("CURRENT");
        let data = if is_kept { data.to_vec() } else { Vec::new() };
        let target = target.map(Path::to_path_buf);
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        self.note(Event::Done { op, path: path.to_path_buf(), target, offset, data, thread });
    }
}

/// The tapped file system.
pub(crate) struct Tap {
    inner: Arc<SimFs>,
    record: Arc<Record>,
}

impl Tap {
    pub(crate) fn new(inner: Arc<SimFs>) -> Arc<Tap> {
        Arc::new(Tap { inner, record: Arc::default() })
    }

    pub(crate) fn sim_fs(&self) -> &Arc<SimFs> {
        &self.inner
    }

    pub(crate) fn record(&self) -> &Arc<Record> {
        &self.record
    }

    /// Keeps events from now on.
    pub(crate) fn keep_events(&self) {
        self.record.is_on.store(true, Ordering::Relaxed);
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.record.events.lock().clone()
    }

    pub(crate) fn order(&self) -> Vec<u64> {
        self.record.order.lock().clone()
    }

    fn file(&self, inner: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(TapFile { inner, record: self.record.clone() })
    }

    fn name_op<T>(&self, op: OpKind, path: &Path, target: Option<&Path>, result: Result<T>) -> Result<T> {
        if result.is_ok() {
            self.record.done(op, path, target, 0, &[]);
        }
        result
    }
}

impl Fs for Tap {
    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        let file = self.name_op(OpKind::Create, path, None, self.inner.create(path))?;
        Ok(self.file(file))
    }

    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        let file = self.name_op(OpKind::Open, path, None, self.inner.open(path, access))?;
        Ok(self.file(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.name_op(OpKind::Rename, from, Some(to), self.inner.rename(from, to))
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        self.record.note(Event::Unlinking(path.to_path_buf()));
        self.name_op(OpKind::Unlink, path, None, self.inner.unlink(path))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.name_op(OpKind::HardLink, from, Some(to), self.inner.hard_link(from, to))
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.name_op(OpKind::CreateDir, path, None, self.inner.create_dir_all(path))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.name_op(OpKind::RemoveDir, path, None, self.inner.remove_dir(path))
    }

    fn list(&self, path: &Path) -> Result<Vec<String>> {
        self.inner.list(path)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.inner.exists(path)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.name_op(OpKind::SyncDir, path, None, self.inner.sync_dir(path))
    }

    fn lock(&self, path: &Path, mode: LockMode) -> Result<Box<dyn FileLock>> {
        self.inner.lock(path, mode)
    }

    fn free_bytes(&self, path: &Path) -> Result<u64> {
        self.inner.free_bytes(path)
    }
}

struct TapFile {
    inner: Arc<dyn File>,
    record: Arc<Record>,
}

impl File for TapFile {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.inner.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        // Copies of a log hold the same batches once more.
        let is_own = self.path().starts_with(super::DIR);
        if is_own && self.path().extension().is_some_and(|extension| extension == "log") {
            // Before the call: a crash image taken inside it may hold the bytes.
            self.record.order.lock().extend(witnesses_in(buf));
        }
        self.inner.write_at(buf, offset)?;
        self.record.done(OpKind::Write, self.path(), None, offset, buf);
        Ok(())
    }

    fn sync_data(&self) -> Result<()> {
        self.inner.sync_data()?;
        self.record.done(OpKind::Sync, self.path(), None, 0, &[]);
        Ok(())
    }

    fn start_writeback(&self, offset: u64, len: u64) {
        self.inner.start_writeback(offset, len);
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.allocate(offset, len)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.inner.set_len(len)?;
        self.record.done(OpKind::SetLen, self.path(), None, len, &[]);
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn advise(&self, advice: Advice) {
        self.inner.advise(advice);
    }
}
