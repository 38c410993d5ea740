//! A file system in memory and a seeded generator, for this crate's unit tests only: whole files
//! as vectors that a test may damage, and writes or syncs that fail on request.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};

use dialsm_io::fs::{Access, Advice, FileLock, LockMode};
use dialsm_io::{File, Fs};
use parking_lot::Mutex;

use crate::{Error, ErrorKind, Result};

/// A xorshift generator.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    pub(crate) fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

/// What goes wrong, and counts of what was called.
#[derive(Default)]
pub(crate) struct Faults {
    /// Writes that still succeed, if positive; at 0 the next one fails half done. Negative: all do.
    pub(crate) writes_left: AtomicI64,
    /// As `writes_left`, for syncs.
    pub(crate) syncs_left: AtomicI64,
    pub(crate) writes: AtomicU64,
    pub(crate) largest_read: AtomicU64,
}

fn spend(left: &AtomicI64) -> bool {
    left.fetch_update(SeqCst, SeqCst, |n| (n >= 0).then(|| (n - 1).max(0))).is_ok_and(|n| n == 0)
}

/// The file system.
#[derive(Clone)]
pub(crate) struct MemFs {
    files: Arc<Mutex<BTreeMap<PathBuf, Arc<MemFile>>>>,
    pub(crate) faults: Arc<Faults>,
    pub(crate) log: Arc<Mutex<Vec<String>>>,
}

pub(crate) struct MemFile {
    path: PathBuf,
    data: Mutex<Vec<u8>>,
    faults: Arc<Faults>,
    log: Arc<Mutex<Vec<String>>>,
}

impl MemFs {
    pub(crate) fn new() -> MemFs {
        let faults = Arc::new(Faults::default());
        faults.writes_left.store(-1, SeqCst);
        faults.syncs_left.store(-1, SeqCst);
        MemFs { files: Arc::default(), faults, log: Arc::default() }
    }

    pub(crate) fn bytes(&self, path: &Path) -> Vec<u8> {
        self.files.lock()[path].data.lock().clone()
    }

    /// Puts a file there, or replaces its content.
    pub(crate) fn put(&self, path: &Path, bytes: Vec<u8>) {
        let file = self.file(path, bytes);
        self.files.lock().insert(path.to_path_buf(), file);
    }

    fn file(&self, path: &Path, bytes: Vec<u8>) -> Arc<MemFile> {
        let (faults, log) = (self.faults.clone(), self.log.clone());
        Arc::new(MemFile { path: path.to_path_buf(), data: Mutex::new(bytes), faults, log })
    }

    fn note(&self, what: &str, path: &Path) {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        self.log.lock().push(format!("{what} {name}"));
    }
}

fn missing(path: &Path) -> Error {
    Error::new(ErrorKind::NotFound, "no such file").at_path(path)
}

impl Fs for MemFs {
    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.note("create", path);
        if self.files.lock().contains_key(path) {
            return Err(Error::new(ErrorKind::AlreadyExists, "the file exists").at_path(path));
        }
        let file = self.file(path, Vec::new());
        self.files.lock().insert(path.to_path_buf(), file.clone());
        Ok(file)
    }
    fn open(&self, path: &Path, _access: Access) -> Result<Arc<dyn File>> {
        let file = self.files.lock().get(path).cloned().ok_or_else(|| missing(path))?;
        Ok(file)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.note("rename", to);
        let mut files = self.files.lock();
        let old = files.remove(from).ok_or_else(|| missing(from))?;
        let bytes = old.data.lock().clone();
        files.insert(to.to_path_buf(), self.file(to, bytes));
        Ok(())
    }
    fn unlink(&self, path: &Path) -> Result<()> {
        self.files.lock().remove(path).map(|_| ()).ok_or_else(|| missing(path))
    }
    fn hard_link(&self, _from: &Path, to: &Path) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, "hard links").at_path(to))
    }
    fn create_dir_all(&self, _path: &Path) -> Result<()> {
        Ok(())
    }
    fn remove_dir(&self, _path: &Path) -> Result<()> {
        Ok(())
    }
    fn list(&self, path: &Path) -> Result<Vec<String>> {
        let files = self.files.lock();
        let inside = files.keys().filter(|file| file.parent() == Some(path));
        Ok(inside.filter_map(|file| file.file_name()?.to_str().map(str::to_owned)).collect())
    }
    fn exists(&self, path: &Path) -> Result<bool> {
        Ok(self.files.lock().contains_key(path))
    }
    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.note("sync_dir", path);
        Ok(())
    }
    fn lock(&self, path: &Path, _mode: LockMode) -> Result<Box<dyn FileLock>> {
        Err(Error::new(ErrorKind::Unsupported, "locks").at_path(path))
    }
    fn free_bytes(&self, _path: &Path) -> Result<u64> {
        Ok(u64::MAX)
    }
}

impl File for MemFile {
    fn path(&self) -> &Path {
        &self.path
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.faults.largest_read.fetch_max(buf.len() as u64, SeqCst);
        let data = self.data.lock();
        let rest = data.get(offset as usize..).unwrap_or_default();
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let fails = spend(&self.faults.writes_left);
        self.faults.writes.fetch_add(1, SeqCst);
        let buf = if fails { &buf[..buf.len() / 2] } else { buf };
        let mut data = self.data.lock();
        let end = offset as usize + buf.len();
        if data.len() < end {
            data.resize(end, 0);
        }
        data[offset as usize..end].copy_from_slice(buf);
        if fails { Err(Error::new(ErrorKind::NoSpace, "full").at_path(&self.path)) } else { Ok(()) }
    }
    fn sync_data(&self) -> Result<()> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.log.lock().push(format!("sync {name}"));
        match spend(&self.faults.syncs_left) {
            true => Err(Error::new(ErrorKind::Io, "sync failed").at_path(&self.path)),
            false => Ok(()),
        }
    }
    fn start_writeback(&self, _offset: u64, _len: u64) {}
    fn allocate(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.data.lock().resize(len as usize, 0);
        Ok(())
    }
    fn len(&self) -> Result<u64> {
        Ok(self.data.lock().len() as u64)
    }
    fn advise(&self, _advice: Advice) {}
}
