//! The directories of a simulated file system: for each the names that readers see, those that a
//! power cut leaves for certain, and the operations in between, in order.
//!
//! Which operations survive a power cut:
//! - Syncing a directory makes all its operations so far durable, and no other directory's.
//! - Otherwise each survives or not, but never without an earlier one of the same directory on
//!   the same name or the same file: a file system may reorder what is independent, not this.
//! - A rename within a directory is one operation. Between two directories it is a link in the
//!   target's and a removal in the source's, and the removal never survives without the link, so
//!   that no file is lost.
//! - A name in a directory is worth nothing when the directory's own name is lost.
//!
//! INVARIANT: `durable` with all of `pending` applied in order equals `live`.
//!
//! Failures are plain error numbers, as the system would give them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::inode::Bytes;
use crate::rng::SplitMix64;

pub(super) type Errno = i32;
pub(super) type DirNo = u64;

const ROOT: DirNo = 0;

/// A file; exists as long as any name, durable or not, or handle leads to it.
pub(super) struct Inode {
    pub(super) number: u64,
    pub(super) bytes: Mutex<Bytes>,
    /// Bytes of the device that it is charged with.
    pub(super) charged: AtomicU64,
}

/// What visible names and handles hold: with the last one the space is free again, even though a
/// power cut may still bring the file back.
pub(super) struct Claim {
    pub(super) inode: Arc<Inode>,
    pub(super) used: Arc<AtomicU64>,
}

impl Claim {
    pub(super) fn new(number: u64, bytes: Bytes, used: &Arc<AtomicU64>) -> Arc<Claim> {
        let charge = bytes.charge();
        used.fetch_add(charge, Ordering::Relaxed);
        let inode = Inode { number, bytes: Mutex::new(bytes), charged: AtomicU64::new(charge) };
        Arc::new(Claim { inode: Arc::new(inode), used: Arc::clone(used) })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.used.fetch_sub(self.inode.charged.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// What a name stands for.
#[derive(Clone)]
pub(super) enum Entry<F> {
    File(F),
    Dir(DirNo),
}

/// An entry seen by readers.
pub(super) type Live = Entry<Arc<Claim>>;
/// An entry of the durable or pending state.
pub(super) type Stored = Entry<Arc<Inode>>;

impl Live {
    pub(super) fn stored(&self) -> Stored {
        match self {
            Entry::File(claim) => Entry::File(Arc::clone(&claim.inode)),
            Entry::Dir(dir) => Entry::Dir(*dir),
        }
    }
}

impl Stored {
    fn identity(&self) -> (bool, u64) {
        match self {
            Entry::File(inode) => (true, inode.number),
            Entry::Dir(dir) => (false, *dir),
        }
    }
}

/// An operation on names that is not synced.
#[derive(Clone)]
pub(super) struct NameOp {
    /// Place in the order of all operations.
    seq: u64,
    /// The operation of another directory without which this one cannot survive.
    requires: Option<(DirNo, u64)>,
    removes: Option<String>,
    sets: Option<String>,
    pub(super) entry: Stored,
}

impl NameOp {
    fn apply(&self, names: &mut BTreeMap<String, Stored>) {
        if let Some(name) = &self.removes {
            names.remove(name);
        }
        if let Some(name) = &self.sets {
            names.insert(name.clone(), self.entry.clone());
        }
    }

    pub(super) fn with_entry(&self, entry: Stored) -> NameOp {
        NameOp { entry, ..self.clone() }
    }
}

#[derive(Default)]
pub(super) struct Dir {
    pub(super) live: BTreeMap<String, Live>,
    pub(super) durable: BTreeMap<String, Stored>,
    pub(super) pending: Vec<NameOp>,
}

/// All directories. Those removed stay in the map: a power cut may bring them back.
pub(super) struct Names {
    pub(super) dirs: BTreeMap<DirNo, Dir>,
    pub(super) dirs_made: u64,
    pub(super) ops_made: u64,
}

impl Names {
    pub(super) fn new() -> Names {
        Names { dirs: BTreeMap::from([(ROOT, Dir::default())]), dirs_made: ROOT + 1, ops_made: 0 }
    }

    fn dir(&self, dir: DirNo) -> &Dir {
        self.dirs.get(&dir).expect("directories are never taken out of the map")
    }

    fn dir_mut(&mut self, dir: DirNo) -> &mut Dir {
        self.dirs.get_mut(&dir).expect("directories are never taken out of the map")
    }

    pub(super) fn find(&self, path: &Path) -> Result<Live, Errno> {
        let mut at = Entry::Dir(ROOT);
        for name in components(path) {
            let Entry::Dir(dir) = at else { return Err(libc::ENOTDIR) };
            at = self.dir(dir).live.get(&name).ok_or(libc::ENOENT)?.clone();
        }
        Ok(at)
    }

    pub(super) fn find_dir(&self, path: &Path) -> Result<DirNo, Errno> {
        match self.find(path)? {
            Entry::Dir(dir) => Ok(dir),
            Entry::File(_) => Err(libc::ENOTDIR),
        }
    }

    pub(super) fn find_file(&self, path: &Path) -> Result<Arc<Claim>, Errno> {
        match self.find(path)? {
            Entry::File(claim) => Ok(claim),
            Entry::Dir(_) => Err(libc::EISDIR),
        }
    }

    /// The directory that a path's last name is or would be in, and that name.
    fn place(&self, path: &Path) -> Result<(DirNo, String), Errno> {
        let mut names = components(path);
        let last = names.pop().ok_or(libc::EEXIST)?;
        let parent: std::path::PathBuf = names.iter().collect();
        Ok((self.find_dir(&parent)?, last))
    }

    fn record(&mut self, dir: DirNo, removes: Option<&str>, sets: Option<&str>, entry: Stored) -> u64 {
        let seq = self.ops_made;
        self.ops_made += 1;
        let (removes, sets) = (removes.map(str::to_owned), sets.map(str::to_owned));
        self.dir_mut(dir).pending.push(NameOp { seq, requires: None, removes, sets, entry });
        seq
    }

    pub(super) fn insert(&mut self, path: &Path, entry: Live) -> Result<(), Errno> {
        let (dir, name) = self.place(path)?;
        if self.dir(dir).live.contains_key(&name) {
            return Err(libc::EEXIST);
        }
        self.record(dir, None, Some(&name), entry.stored());
        self.dir_mut(dir).live.insert(name, entry);
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path, want_dir: bool) -> Result<(), Errno> {
        let (dir, name) = self.place(path).map_err(|e| if e == libc::EEXIST { libc::EBUSY } else { e })?;
        let entry = self.dir(dir).live.get(&name).ok_or(libc::ENOENT)?.stored();
        match &entry {
            Entry::File(_) if want_dir => return Err(libc::ENOTDIR),
            Entry::Dir(_) if !want_dir => return Err(libc::EISDIR),
            Entry::Dir(inner) if !self.dir(*inner).live.is_empty() => return Err(libc::ENOTEMPTY),
            _ => {}
        }
        self.record(dir, Some(&name), None, entry);
        self.dir_mut(dir).live.remove(&name);
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> Result<(), Errno> {
        let moved = self.find(from)?;
        let (from_dir, from_name) = self.place(from)?;
        let (to_dir, to_name) = self.place(to)?;
        match (self.dir(to_dir).live.get(&to_name), &moved) {
            // Two names of one file: POSIX has it that nothing happens.
            (Some(Entry::File(there)), Entry::File(file)) if there.inode.number == file.inode.number => {
                return Ok(());
            }
            (Some(Entry::Dir(there)), Entry::Dir(dir)) if there == dir => return Ok(()),
            (Some(Entry::Dir(_)), Entry::File(_)) => return Err(libc::EISDIR),
            (Some(Entry::File(_)), Entry::Dir(_)) => return Err(libc::ENOTDIR),
            (Some(Entry::Dir(there)), Entry::Dir(_)) if !self.dir(*there).live.is_empty() => {
                return Err(libc::ENOTEMPTY);
            }
            // The engine moves no directory into another one, so the simulation does not know how.
            (_, Entry::Dir(_)) if from_dir != to_dir => return Err(libc::EOPNOTSUPP),
            _ => {}
        }
        let entry = moved.stored();
        if from_dir == to_dir {
            self.record(to_dir, Some(&from_name), Some(&to_name), entry);
        } else {
            let link = self.record(to_dir, None, Some(&to_name), entry.clone());
            self.record(from_dir, Some(&from_name), None, entry);
            let removal = self.dir_mut(from_dir).pending.last_mut().expect("recorded just now");
            removal.requires = Some((to_dir, link));
        }
        self.dir_mut(from_dir).live.remove(&from_name);
        self.dir_mut(to_dir).live.insert(to_name, moved);
        Ok(())
    }

    pub(super) fn create_dirs(&mut self, path: &Path) -> Result<(), Errno> {
        let mut made = std::path::PathBuf::new();
        for name in components(path) {
            made.push(name);
            match self.find_dir(&made) {
                Ok(_) => {}
                Err(libc::ENOENT) => {
                    let number = self.dirs_made;
                    self.dirs_made += 1;
                    self.dirs.insert(number, Dir::default());
                    self.insert(&made, Entry::Dir(number))?;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    pub(super) fn list(&self, path: &Path) -> Result<Vec<String>, Errno> {
        Ok(self.dir(self.find_dir(path)?).live.keys().cloned().collect())
    }

    pub(super) fn sync(&mut self, path: &Path) -> Result<(), Errno> {
        let dir = self.find_dir(path)?;
        self.sync_up_to(dir, u64::MAX);
        Ok(())
    }

    /// Makes the operations of `dir` durable up to and with number `last`, and what they require
    /// of other directories. Ends, because a requirement has a lower number than who requires it.
    fn sync_up_to(&mut self, dir: DirNo, last: u64) {
        let pending = std::mem::take(&mut self.dir_mut(dir).pending);
        let (now, later): (Vec<_>, Vec<_>) = pending.into_iter().partition(|op| op.seq <= last);
        self.dir_mut(dir).pending = later;
        for op in now {
            if let Some((other, seq)) = op.requires {
                self.sync_up_to(other, seq);
            }
            op.apply(&mut self.dir_mut(dir).durable);
        }
    }

    /// The names of each directory after a power cut: the durable ones, and with `rng` also what
    /// some of the pending operations did.
    pub(super) fn after_cut(
        &self,
        rng: Option<&mut SplitMix64>,
    ) -> BTreeMap<DirNo, BTreeMap<String, Stored>> {
        let mut names: BTreeMap<_, _> =
            self.dirs.iter().map(|(no, dir)| (*no, dir.durable.clone())).collect();
        let Some(rng) = rng else { return names };
        let pending_of = |(no, dir): (&DirNo, &'_ Dir)| -> Vec<(u64, DirNo, usize)> {
            dir.pending.iter().enumerate().map(|(i, op)| (op.seq, *no, i)).collect()
        };
        let mut order: Vec<_> = self.dirs.iter().flat_map(pending_of).collect();
        order.sort_unstable();
        let eighths_kept = [0, 1, 4, 7, 8][rng.below(5) as usize];
        let mut lost = Lost::default();
        for (_, dir, index) in order {
            let op = &self.dir(dir).pending[index];
            if !lost.blocks(dir, op) && rng.chance(eighths_kept, 8) {
                op.apply(names.get_mut(&dir).expect("made from the same map"));
            } else {
                lost.add(dir, op);
            }
        }
        names
    }
}

/// What operations that did not survive touched.
#[derive(Default)]
struct Lost {
    ops: BTreeSet<u64>,
    names: BTreeSet<(DirNo, String)>,
    entries: BTreeSet<(DirNo, (bool, u64))>,
}

impl Lost {
    fn add(&mut self, dir: DirNo, op: &NameOp) {
        self.ops.insert(op.seq);
        self.names.extend(op.removes.iter().chain(&op.sets).map(|name| (dir, name.clone())));
        self.entries.insert((dir, op.entry.identity()));
    }

    fn blocks(&self, dir: DirNo, op: &NameOp) -> bool {
        op.requires.is_some_and(|(_, seq)| self.ops.contains(&seq))
            || op.removes.iter().chain(&op.sets).any(|name| self.names.contains(&(dir, name.clone())))
            || self.entries.contains(&(dir, op.entry.identity()))
    }
}

/// The names along a path from the root; relative paths start there, too.
fn components(path: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name.to_string_lossy().into_owned()),
            Component::ParentDir => drop(names.pop()),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    names
}
