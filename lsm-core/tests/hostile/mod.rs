//! What the hostile tests share: small options, a directory held in memory that can be copied and
//! damaged, and one look at a whole database through every kind of read.

#![allow(dead_code, reason = "each test file uses a part of it")]

// Beside `common` in some of the programs.
#[allow(clippy::duplicate_mod)]
#[path = "../common/switches.rs"]
mod switches;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dialsm_core::{Db, Error, ErrorKind, Options, ReadOptions, Result, WriteOptions, options::Compression};
use dialsm_io::{Access, Env, Fs, OsEnv, SimFs};
use switches::defaults;

pub(crate) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Where databases in memory live.
pub(crate) const DIR: &str = "/db";

/// Options under which a few hundred keys make several tables, blocks and log segments.
pub(crate) fn tiny() -> Options {
    Options {
        write_buffer_bytes: 64 << 10,
        table_bytes: 64 << 10,
        level_base_bytes: 256 << 10,
        level_multiplier: 4.0,
        block_bytes: 256,
        log_segment_bytes: 64 << 10,
        log_total_bytes_max: 1 << 20,
        block_cache_bytes: 1 << 20,
        compression: Compression::None,
        compression_bottom: Compression::Lz4,
        ..defaults()
    }
}

/// The same, with flushes and compactions by hand only.
pub(crate) fn by_hand() -> Options {
    Options {
        automatic_compaction: false,
        write_buffer_bytes: 16 << 20,
        log_total_bytes_max: 1 << 30,
        ..tiny()
    }
}

pub(crate) fn synced() -> WriteOptions {
    WriteOptions { sync: true, ..WriteOptions::default() }
}

pub(crate) fn put(db: &Db, key: &[u8], value: &[u8]) {
    db.put(&WriteOptions::default(), key, value).expect("put");
}

pub(crate) fn get(db: &Db, key: &[u8]) -> Option<Vec<u8>> {
    db.get(&ReadOptions::default(), key).expect("get").map(|value| value.to_vec())
}

/// All entries in order; the backward scan must show the same ones.
pub(crate) fn scan(db: &Db, options: &ReadOptions) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut forward = Vec::new();
    let mut iter = db.iter(options)?;
    iter.seek_to_first()?;
    while iter.valid() {
        forward.push((iter.key().to_vec(), iter.value().to_vec()));
        iter.next()?;
    }
    let mut backward = Vec::new();
    iter.seek_to_last()?;
    while iter.valid() {
        backward.push((iter.key().to_vec(), iter.value().to_vec()));
        iter.prev()?;
    }
    backward.reverse();
    assert_eq!(forward, backward, "the two directions disagree");
    Ok(forward)
}

pub(crate) fn contents(db: &Db) -> Model {
    scan(db, &ReadOptions::default()).expect("scan").into_iter().collect()
}

pub(crate) fn kind_of<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    result.expect_err("must be refused").kind()
}

/// Fails unless `error` is one that damaged or missing files may cause, and names a file.
#[track_caller]
pub(crate) fn assert_typed(error: &Error) {
    let kinds = [
        ErrorKind::Corruption,
        ErrorKind::Foreign,
        ErrorKind::NewerFormat,
        // The latched form of one of the others.
        ErrorKind::Poisoned,
    ];
    assert!(kinds.contains(&error.kind()), "not a kind for bad files: {error}");
    assert!(error.path().is_some(), "no file is named: {error}");
}

/// A directory as a map from file names to bytes.
pub(crate) type Image = BTreeMap<String, Vec<u8>>;

pub(crate) fn read_file(fs: &dyn Fs, path: &Path) -> Vec<u8> {
    let file = fs.open(path, Access::Read).expect("open");
    let mut bytes = vec![0; file.len().expect("length") as usize];
    let got = file.read_at(&mut bytes, 0).expect("read");
    assert_eq!(got, bytes.len());
    bytes
}

/// The files of a directory, read one after the other: only while nothing is written to them.
pub(crate) fn image_of(fs: &dyn Fs, dir: &Path) -> Image {
    let names = fs.list(dir).expect("list");
    names.into_iter().filter(|n| n != "LOCK").map(|n| (n.clone(), read_file(fs, &dir.join(n)))).collect()
}

pub(crate) fn write_file(fs: &dyn Fs, path: &Path, bytes: &[u8]) {
    if fs.exists(path).expect("exists") {
        fs.unlink(path).expect("unlink");
    }
    let file = fs.create(path).expect("create");
    file.write_at(bytes, 0).expect("write");
}

/// A file system in memory that holds `image` as the database directory.
pub(crate) fn fs_of(image: &Image) -> Arc<SimFs> {
    let fs = SimFs::new(1);
    fs.create_dir_all(Path::new(DIR)).expect("directory");
    for (name, bytes) in image {
        write_file(fs.as_ref(), &Path::new(DIR).join(name), bytes);
    }
    fs
}

pub(crate) fn env_on(fs: Arc<dyn Fs>) -> Arc<OsEnv> {
    OsEnv::with_fs(fs)
}

pub(crate) fn open_on(fs: Arc<dyn Fs>, options: &Options) -> Result<Db> {
    Db::open(env_on(fs), Path::new(DIR), options.clone())
}

/// An environment on the real file system with a directory that goes away with the value.
pub(crate) struct Real {
    pub(crate) env: Arc<dyn Env>,
    pub(crate) dir: tempfile::TempDir,
}

impl Real {
    pub(crate) fn new() -> Real {
        Real { env: OsEnv::new(), dir: tempfile::tempdir().expect("a temporary directory") }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("db")
    }

    pub(crate) fn open(&self, options: &Options) -> Db {
        Db::open(self.env.clone(), &self.path(), options.clone()).expect("open")
    }

    pub(crate) fn try_open(&self, options: &Options) -> Result<Db> {
        Db::open(self.env.clone(), &self.path(), options.clone())
    }
}

/// A small generator of our own, so that a seed replays on every version of every crate.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(crate) fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

/// Small file systems mounted for a test. Without the right to mount, a test says so and skips.
pub(crate) mod mount {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::path::{Path, PathBuf};

    /// A mount that goes away with the value.
    pub(crate) struct Mount(PathBuf);

    impl Drop for Mount {
        fn drop(&mut self) {
            let path = c_path(&self.0);
            // SAFETY: the path is a valid C string; what is unmounted is ours.
            unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
        }
    }

    fn c_path(path: &Path) -> CString {
        CString::new(path.as_os_str().as_bytes()).expect("no NUL in a path")
    }

    fn mount(source: &Path, target: &Path, kind: &str, flags: libc::c_ulong, data: &str) -> bool {
        let (source, target) = (c_path(source), c_path(target));
        let (kind, data) = (CString::new(kind).expect("no NUL"), CString::new(data).expect("no NUL"));
        // SAFETY: all pointers are valid C strings for the time of the call.
        let result = unsafe {
            libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, data.as_ptr().cast())
        };
        result == 0
    }

    /// A tmpfs of `bytes` on the directory `target`, if this process may mount.
    pub(crate) fn tmpfs(target: &Path, bytes: u64) -> Option<Mount> {
        let made = mount(Path::new("tmpfs"), target, "tmpfs", 0, &format!("size={bytes},mode=0700"));
        made.then(|| Mount(target.to_owned()))
    }

    /// Makes `dir` read-only as long as the value lives, if this process may mount.
    pub(crate) fn read_only_view(dir: &Path) -> Option<Mount> {
        if !mount(dir, dir, "none", libc::MS_BIND, "") {
            return None;
        }
        let bound = Mount(dir.to_owned());
        let flags = libc::MS_BIND | libc::MS_REMOUNT | libc::MS_RDONLY;
        mount(dir, dir, "none", flags, "").then_some(bound)
    }
}
