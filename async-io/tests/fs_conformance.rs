//! What every file system must do, run over the real one, the simulated one and the
//! fault-injecting wrapper.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dialsm_io::{
    Access, Advice, CreateOptions, ErrorKind, FaultFs, File, FileLock, Fs, LockMode, Op, OpenOptions, OsFs,
    Result, SimFs, SplitMix64,
};

/// Runs `check` over all file systems, each with an empty directory of its own.
fn on_all(check: fn(&dyn Fs, &Path)) {
    let dir = tempfile::tempdir().unwrap();
    check(&*OsFs::new(), dir.path());

    let dir = tempfile::tempdir().unwrap();
    check(&PastCache(OsFs::new()), dir.path());

    let sim = SimFs::new(1);
    sim.create_dir_all(Path::new("/base")).unwrap();
    check(&*sim, Path::new("/base"));

    for inner in [OsFs::new() as Arc<dyn Fs>, SimFs::new(2)] {
        let dir = tempfile::tempdir().unwrap();
        inner.create_dir_all(dir.path()).unwrap();
        let fault = FaultFs::new(inner);
        check(&*fault, dir.path());
        assert_eq!(fault.injected(), 0);
    }
}

/// The real file system, all files past the page cache where it takes that.
struct PastCache(Arc<OsFs>);

impl Fs for PastCache {
    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.0.create_with(path, CreateOptions { direct: true })
    }
    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        self.0.open_with(path, access, OpenOptions { direct: true })
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.0.rename(from, to)
    }
    fn unlink(&self, path: &Path) -> Result<()> {
        self.0.unlink(path)
    }
    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.0.hard_link(from, to)
    }
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.0.create_dir_all(path)
    }
    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.0.remove_dir(path)
    }
    fn list(&self, path: &Path) -> Result<Vec<String>> {
        self.0.list(path)
    }
    fn exists(&self, path: &Path) -> Result<bool> {
        self.0.exists(path)
    }
    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.0.sync_dir(path)
    }
    fn lock(&self, path: &Path, mode: LockMode) -> Result<Box<dyn FileLock>> {
        self.0.lock(path, mode)
    }
    fn free_bytes(&self, path: &Path) -> Result<u64> {
        self.0.free_bytes(path)
    }
}

fn read_all(file: &dyn File) -> Vec<u8> {
    let mut bytes = vec![0xee; file.len().unwrap() as usize + 10];
    let n = file.read_at(&mut bytes, 0).unwrap();
    assert_eq!(n as u64, file.len().unwrap());
    bytes.truncate(n);
    bytes
}

fn kind<T>(outcome: dialsm_io::Result<T>) -> ErrorKind {
    match outcome {
        Ok(_) => panic!("expected an error"),
        Err(e) => {
            assert!(e.path().is_some(), "no path in {e}");
            e.kind()
        }
    }
}

#[test]
fn files_hold_what_was_written() {
    on_all(|fs, base| {
        let path = base.join("a");
        let file = fs.create(&path).unwrap();
        assert_eq!(file.path(), path);
        assert!(file.is_empty().unwrap());
        file.write_at(b"hello", 0).unwrap();
        file.write_at(b"world", 7).unwrap();
        assert_eq!(read_all(&*file), b"hello\0\0world");
        let mut buf = [0; 4];
        assert_eq!(file.read_at(&mut buf, 9).unwrap(), 3, "reads stop at the end");
        assert_eq!(&buf[..3], b"rld");
        assert_eq!(file.read_at(&mut buf, 12).unwrap(), 0);
        assert_eq!(file.read_at(&mut buf, 1 << 40).unwrap(), 0);
        assert_eq!(file.read_at(&mut [], 0).unwrap(), 0);
        file.write_at(b"", 1 << 30).unwrap();
        assert_eq!(file.len().unwrap(), 12, "an empty write does not extend");
        file.set_len(3).unwrap();
        file.set_len(6).unwrap();
        assert_eq!(read_all(&*file), b"hel\0\0\0");
        file.sync_data().unwrap();
        file.start_writeback(0, 6);
        for advice in [Advice::Random, Advice::Sequential, Advice::DontNeed] {
            file.advise(advice);
        }
        let other = fs.open(&path, Access::Read).unwrap();
        assert_eq!(read_all(&*other), b"hel\0\0\0");
        let refused = other.write_at(b"x", 2).unwrap_err();
        assert_eq!((refused.kind(), refused.offset()), (ErrorKind::Io, Some(2)));
        assert_eq!(refused.path(), Some(&*path));
    });
}

#[test]
fn allocation_keeps_the_length() {
    on_all(|fs, base| {
        let file = fs.create(&base.join("a")).unwrap();
        file.write_at(b"abc", 0).unwrap();
        file.allocate(0, 1 << 20).unwrap();
        file.allocate(5, 0).unwrap();
        assert_eq!(read_all(&*file), b"abc");
    });
}

#[test]
fn offsets_past_the_end_of_the_world_are_errors() {
    on_all(|fs, base| {
        let file = fs.create(&base.join("a")).unwrap();
        for offset in [i64::MAX as u64, u64::MAX - 1] {
            let error = file.write_at(b"abc", offset).unwrap_err();
            assert!(error.offset().is_some() && error.path().is_some(), "{error}");
        }
        assert_eq!(file.read_at(&mut [0], u64::MAX).unwrap_err().offset(), Some(u64::MAX));
        assert!(file.set_len(u64::MAX).is_err());
        assert_eq!(file.len().unwrap(), 0);
    });
}

#[test]
fn submitted_operations_give_the_buffer_back() {
    on_all(|fs, base| {
        let file = fs.create(&base.join("a")).unwrap();
        let write = file.submit(Op::Write { buf: b"0123456789".to_vec(), offset: 2 });
        assert_eq!(write.wait().unwrap(), b"0123456789");
        assert_eq!(file.submit(Op::SyncData).wait().unwrap(), b"");
        let read = file.submit(Op::Read { buf: vec![0; 100], offset: 8 });
        assert!(read.is_done());
        assert_eq!(read.wait().unwrap(), b"6789", "cut to what the file had");
        let reader = fs.open(&base.join("a"), Access::Read).unwrap();
        let refused = reader.submit(Op::Write { buf: vec![1], offset: 3 });
        assert_eq!(refused.wait().unwrap_err().offset(), Some(3));
    });
}

#[test]
fn names_behave() {
    on_all(|fs, base| {
        let at = |name: &str| base.join(name);
        fs.create(&at("b")).unwrap().write_at(b"b", 0).unwrap();
        fs.create(&at("a")).unwrap().write_at(b"a", 0).unwrap();
        assert_eq!(kind(fs.create(&at("a"))), ErrorKind::AlreadyExists);
        assert_eq!(fs.list(base).unwrap(), ["a", "b"], "sorted");
        let old_b = fs.open(&at("b"), Access::ReadWrite).unwrap();
        fs.rename(&at("a"), &at("b")).unwrap();
        assert_eq!(fs.list(base).unwrap(), ["b"]);
        assert_eq!(read_all(&*fs.open(&at("b"), Access::Read).unwrap()), b"a");
        old_b.write_at(b"!", 1).unwrap();
        assert_eq!(read_all(&*old_b), b"b!", "a replaced file lives on in its handle");

        fs.hard_link(&at("b"), &at("c")).unwrap();
        assert_eq!(kind(fs.hard_link(&at("b"), &at("c"))), ErrorKind::AlreadyExists);
        fs.rename(&at("b"), &at("c")).unwrap();
        assert_eq!(fs.list(base).unwrap(), ["b", "c"], "a rename between names of one file does nothing");
        fs.unlink(&at("b")).unwrap();
        assert!(!fs.exists(&at("b")).unwrap());
        let c = fs.open(&at("c"), Access::Read).unwrap();
        fs.unlink(&at("c")).unwrap();
        assert_eq!(read_all(&*c), b"a");
        assert_eq!(kind(fs.unlink(&at("c"))), ErrorKind::NotFound);
        assert_eq!(kind(fs.open(&at("c"), Access::Read)), ErrorKind::NotFound);
        assert_eq!(kind(fs.rename(&at("c"), &at("d"))), ErrorKind::NotFound);
        assert_eq!(kind(fs.hard_link(&at("c"), &at("d"))), ErrorKind::NotFound);
        assert_eq!(kind(fs.create(&at("no/file"))), ErrorKind::NotFound);
        fs.sync_dir(base).unwrap();
    });
}

#[test]
fn a_directory_is_renamed_to_a_free_name_or_that_of_an_empty_one() {
    on_all(|fs, base| {
        let at = |name: &str| base.join(name);
        fs.create_dir_all(&at("made")).unwrap();
        fs.create(&at("made/f")).unwrap().write_at(b"f", 0).unwrap();
        fs.create_dir_all(&at("full")).unwrap();
        fs.create(&at("full/g")).unwrap();
        fs.create(&at("plain")).unwrap();
        assert!(fs.rename(&at("made"), &at("full")).is_err(), "not empty");
        assert!(fs.rename(&at("made"), &at("plain")).is_err(), "not a directory");
        assert!(fs.rename(&at("plain"), &at("made")).is_err(), "a directory");
        fs.create_dir_all(&at("empty")).unwrap();
        fs.rename(&at("made"), &at("empty")).unwrap();
        fs.rename(&at("empty"), &at("free")).unwrap();
        fs.rename(&at("free"), &at("free")).unwrap();
        assert_eq!(fs.list(base).unwrap(), ["free", "full", "plain"]);
        assert_eq!(fs.list(&at("full")).unwrap(), ["g"]);
        assert_eq!(read_all(&*fs.open(&at("free/f"), Access::Read).unwrap()), b"f");
    });
}

#[test]
fn directories_behave() {
    on_all(|fs, base| {
        let deep = base.join("x/y/z");
        fs.create_dir_all(&deep).unwrap();
        fs.create_dir_all(&deep).unwrap();
        assert!(fs.exists(&deep).unwrap());
        assert_eq!(fs.list(&base.join("x")).unwrap(), ["y"]);
        let file = deep.join("f");
        fs.create(&file).unwrap();
        assert_eq!(kind(fs.remove_dir(&deep)), ErrorKind::Io, "not empty");
        assert_eq!(kind(fs.remove_dir(&file)), ErrorKind::Io, "not a directory");
        assert!(fs.unlink(&deep).is_err());
        assert_eq!(kind(fs.sync_dir(&file)), ErrorKind::Io, "not a directory");
        assert_eq!(kind(fs.list(&file)), ErrorKind::Io, "not a directory");
        assert!(!fs.exists(&file.join("under")).unwrap());
        assert!(fs.create_dir_all(&file).is_err());
        fs.rename(&file, &base.join("g")).unwrap();
        for dir in ["x/y/z", "x/y", "x"] {
            fs.remove_dir(&base.join(dir)).unwrap();
        }
        assert_eq!(fs.list(base).unwrap(), ["g"]);
        assert_eq!(kind(fs.sync_dir(&deep)), ErrorKind::NotFound);
        assert_eq!(kind(fs.list(&deep)), ErrorKind::NotFound);
        assert_eq!(kind(fs.remove_dir(&deep)), ErrorKind::NotFound);
    });
}

#[test]
fn locks_exclude_within_the_process() {
    on_all(|fs, base| {
        let path = base.join("LOCK");
        let first = fs.lock(&path, LockMode::Exclusive).unwrap();
        assert!(fs.exists(&path).unwrap());
        let same = base.join(".").join("LOCK");
        assert_eq!(kind(fs.lock(&same, LockMode::Exclusive)), ErrorKind::Busy);
        assert_eq!(kind(fs.lock(&path, LockMode::Shared)), ErrorKind::Busy);
        let other = fs.lock(&base.join("OTHER"), LockMode::Exclusive).unwrap();
        drop(first);
        let shared = [(); 3].map(|()| fs.lock(&path, LockMode::Shared).unwrap());
        assert_eq!(kind(fs.lock(&path, LockMode::Exclusive)), ErrorKind::Busy);
        for lock in shared {
            assert_eq!(kind(fs.lock(&path, LockMode::Exclusive)), ErrorKind::Busy);
            drop(lock);
        }
        drop(fs.lock(&path, LockMode::Exclusive).unwrap());
        drop(other);
        assert_eq!(kind(fs.lock(&base.join("no/LOCK"), LockMode::Exclusive)), ErrorKind::NotFound);
    });
}

#[test]
fn free_space_is_known() {
    on_all(|fs, base| assert!(fs.free_bytes(base).unwrap() > 0));
}

/// Random operations on a few files beside a model of names and bytes.
#[test]
fn random_operations_agree_with_a_model() {
    on_all(|fs, base| {
        let mut rng = SplitMix64::new(5);
        let mut model = BTreeMap::<String, Vec<u8>>::new();
        let mut done = BTreeMap::<&str, u32>::new();
        for step in 0..1500u64 {
            let (a, b) = (format!("f{}", rng.below(6)), format!("f{}", rng.below(6)));
            let path = |name: &str| -> PathBuf { base.join(name) };
            let what = match rng.below(6) {
                0 => {
                    let made = fs.create(&path(&a));
                    assert_eq!(made.is_err(), model.contains_key(&a), "step {step}");
                    model.entry(a).or_default();
                    "create"
                }
                1 if a != b => {
                    let moved = fs.rename(&path(&a), &path(&b)).is_ok();
                    assert_eq!(moved, model.contains_key(&a), "step {step}");
                    if let Some(bytes) = model.remove(&a) {
                        model.insert(b, bytes);
                    }
                    "rename"
                }
                2 if rng.chance(1, 2) => {
                    assert_eq!(fs.unlink(&path(&a)).is_ok(), model.remove(&a).is_some(), "step {step}");
                    "unlink"
                }
                3 => {
                    let Some(bytes) = model.get_mut(&a) else { continue };
                    let len = rng.below(10_000);
                    fs.open(&path(&a), Access::ReadWrite).unwrap().set_len(len).unwrap();
                    bytes.resize(len as usize, 0);
                    "set_len"
                }
                _ => {
                    let Some(bytes) = model.get_mut(&a) else { continue };
                    let data = vec![step as u8; 1 + rng.below(6000) as usize];
                    let offset = rng.below(10_000) as usize;
                    let file = fs.open(&path(&a), Access::ReadWrite).unwrap();
                    file.write_at(&data, offset as u64).unwrap();
                    bytes.resize(bytes.len().max(offset + data.len()), 0);
                    bytes[offset..offset + data.len()].copy_from_slice(&data);
                    "write"
                }
            };
            *done.entry(what).or_default() += 1;
            assert_eq!(fs.list(base).unwrap(), model.keys().cloned().collect::<Vec<_>>(), "step {step}");
        }
        for (name, bytes) in &model {
            assert_eq!(&read_all(&*fs.open(&base.join(name), Access::Read).unwrap()), bytes, "{name}");
        }
        for what in ["create", "rename", "unlink", "set_len", "write"] {
            assert!(done.get(what).is_some_and(|&n| n >= 50), "{done:?}");
        }
    });
}

/// Writes of any alignment by several threads, each on ranges of its own in blocks they share: past the
/// page cache each is made by writing back what lies around it.
#[test]
fn unaligned_writes_keep_their_neighbours() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 300;
    on_all(|fs, base| {
        let file = fs.create(&base.join("shared")).unwrap();
        // Pieces of 1000 bytes go round the threads, so that a block holds pieces of all four.
        let rounds = if file.is_direct() { ROUNDS / 3 } else { ROUNDS };
        std::thread::scope(|scope| {
            for no in 0..THREADS {
                let file = &file;
                scope.spawn(move || {
                    for round in 0..rounds {
                        let piece = [1 + no as u8; 1000];
                        file.write_at(&piece, ((round * THREADS + no) * 1000) as u64).unwrap();
                    }
                });
            }
        });
        let bytes = read_all(&*file);
        assert_eq!(bytes.len(), rounds * THREADS * 1000);
        for (no, piece) in bytes.chunks(1000).enumerate() {
            assert!(piece.iter().all(|b| *b == 1 + (no % THREADS) as u8), "piece {no}");
        }
    });
}
