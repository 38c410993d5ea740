//! The directories that tables lie in: the database's own, and those of
//! [`Options::shard_dirs`](crate::Options::shard_dirs), which may be on other devices.
//!
//! ```text
//! DB/        CURRENT LOCK MANIFEST-… OPTIONS-… *.log *.sst     directory 0
//!            SHARD_DIRS   (1, mark, last seen at A) (2, mark, last seen at B)   in use: A B
//! A/         SHARD_DIR    database, 1, mark      LOCK  *.sst   directory 1
//! B/         SHARD_DIR    database, 2, mark      LOCK  *.sst   directory 2
//! ```
//! The manifest says of each table the number of its directory, never a path. Which path has which number
//! the directories say themselves, by their marker; so they may be moved, and named in any order. An opening
//! gives new directories numbers: list first, then marker, both durable before a table of theirs is written.
//!
//! Invariants:
//! - *Nothing is touched on a guess.* A directory whose marker is not in the list, or which has files of ours
//!   and no marker, is refused before anything is written: it is another database's, or this one's is a copy
//!   (a checkpoint has no list, so it can't take the directories of its original). The marks change at each
//!   opening that writes: of two copies made by hand, lists and markers included, the first to be opened with
//!   a directory has it, and the other one is refused it. Attacked by
//!   `a_directory_of_another_database_is_refused_and_kept`, `copies_made_by_hand_share_no_directory`.
//! - *Nothing is missed.* An opening fails, with nothing written, unless each number that the manifest names
//!   is among the directories given; an empty directory where the tables were (a disk that is not mounted)
//!   gets no marker then.
//! - *One at a time.* Each directory is locked while the database is open.
//! - With no directory given, none named by the manifest, and no list, not one call is made here.
//!
//! A number is used again only when all 255 are taken and no table has it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use dialsm_io::fs::{FileLock, LockMode};
use dialsm_io::{Env, Fs};

use crate::filename::FileName;
use crate::open::{create_dirs, draw, sync_names};
use crate::types::{DbId, FileNumber};
use crate::{Error, ErrorKind, Result};

mod files;
mod removal;

pub(crate) use files::last_in_use;
use files::{Entry, List, Mark, Marker};
pub(crate) use removal::{find_for_removal, remove_found};

/// Where tables lie, by the number of the directory.
pub(crate) struct TableDirs {
    own: PathBuf,
    /// All but the database's own.
    others: BTreeMap<u8, PathBuf>,
    /// Where new tables of a shard go: shard i to the i-th of them, from the front again behind the last.
    in_turn: Vec<u8>,
}

impl TableDirs {
    /// The database's own directory alone.
    fn only(own: &Path) -> TableDirs {
        TableDirs { own: own.to_path_buf(), others: BTreeMap::new(), in_turn: vec![0] }
    }

    /// The path of directory `id`, which a table lies in.
    pub(crate) fn path(&self, id: u8) -> &Path {
        match id {
            0 => &self.own,
            _ => self.others.get(&id).expect("the opening has found each directory that a table names"),
        }
    }

    /// The directory that new tables of the shard go to.
    pub(crate) fn of_shard(&self, shard: u16) -> u8 {
        self.in_turn[usize::from(shard) % self.in_turn.len()]
    }

    /// All but the database's own.
    pub(crate) fn others(&self) -> impl Iterator<Item = (u8, &Path)> {
        self.others.iter().map(|(id, path)| (*id, path.as_path()))
    }
}

/// What an opening knows of the database's tables when it looks for their directories.
pub(crate) struct Wanted<'a> {
    pub(crate) db_id: DbId,
    pub(crate) own: &'a Path,
    /// The names in the database's own directory, sorted.
    pub(crate) own_names: &'a [String],
    /// What the options say.
    pub(crate) given: &'a [PathBuf],
    /// The directories of tables, the database's own aside, each with one of them.
    pub(crate) needed: BTreeMap<u8, FileNumber>,
    pub(crate) read_only: bool,
}

/// The directories, locked.
pub(crate) struct OpenDirs {
    pub(crate) dirs: TableDirs,
    pub(crate) locks: Vec<Box<dyn FileLock>>,
    /// The names in each but the database's own, sorted.
    pub(crate) names: BTreeMap<u8, Vec<String>>,
    /// What is left to be done.
    pub(crate) renewal: Renewal,
}

/// Several locks, held as one.
struct Locks(#[allow(dead_code, reason = "held, not looked at")] Vec<Box<dyn FileLock>>);

impl FileLock for Locks {}

/// A directory of the options as it was found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not there, or nothing of ours in it.
    Fresh,
    /// This database's, under that number, with that mark.
    Known(u8, Mark),
}

/// Finds and locks the directories, and makes those that are new ready to take tables.
///
/// # Errors
/// `NotFound` if one is missing that tables lie in; `Foreign` if one is not this database's; `Busy` if one
/// is in use; `InvalidArgument` for one that can't be a shard's; `Corruption` of the list or a marker; those
/// of the file system.
pub(crate) fn open(env: &dyn Env, wanted: &Wanted<'_>) -> Result<OpenDirs> {
    let has_list = wanted.own_names.binary_search(&FileName::ShardDirs.to_string()).is_ok();
    if wanted.given.is_empty() && wanted.needed.is_empty() && !has_list {
        return Ok(OpenDirs::only(wanted.own));
    }
    let fs = env.fs().as_ref();
    let mut list = if has_list { files::read_list(fs, wanted.own, &wanted.db_id)? } else { List::default() };
    let others: BTreeSet<&Path> =
        wanted.given.iter().map(PathBuf::as_path).filter(|path| *path != wanted.own).collect();
    let mut states: BTreeMap<&Path, State> = BTreeMap::new();
    for path in others {
        states.insert(path, look(fs, path, &wanted.db_id, &list)?);
    }
    let known = numbers(&states)?;
    check_needed(wanted, &list, &known, &states)?;
    let mut open = OpenDirs::only(wanted.own);
    open.dirs.others = known.iter().map(|(id, path)| (*id, path.to_path_buf())).collect();
    if wanted.read_only {
        open.lock_shared(fs)?;
    } else {
        for (path, before) in &states {
            open.locks.push(lock_fresh_or_known(fs, path, *before, &wanted.db_id, &list)?);
        }
        let fresh = states.iter().filter(|(_, state)| **state == State::Fresh).map(|(path, _)| *path);
        open.take_in(env, wanted, fresh.collect(), &mut list)?;
        let known = states.iter().filter_map(|(path, state)| match state {
            State::Known(id, mark) => Some((*id, path.to_path_buf(), *mark)),
            State::Fresh => None,
        });
        let known = known.collect();
        open.renewal = Renewal { db_id: wanted.db_id, own: wanted.own.to_path_buf(), list, known };
    }
    for (id, path) in open.dirs.others() {
        open.names.insert(id, fs.list(path)?);
    }
    Ok(open)
}

/// Fails if a directory of the options can't be one of a database that is about to be created: so that the
/// attempt leaves nothing behind.
pub(crate) fn check_for_new(fs: &dyn Fs, own: &Path, given: &[PathBuf]) -> Result<()> {
    let mut others = given.iter().filter(|path| *path != own);
    others.try_for_each(|path| look(fs, path, &DbId::default(), &List::default()).map(drop))
}

impl OpenDirs {
    /// The database's own alone.
    fn only(own: &Path) -> OpenDirs {
        let dirs = TableDirs::only(own);
        OpenDirs { dirs, locks: Vec::new(), names: BTreeMap::new(), renewal: Renewal::default() }
    }

    /// The directories, and their locks together with the database's own.
    pub(crate) fn locked_with(self, own: Box<dyn FileLock>) -> (TableDirs, Box<dyn FileLock>) {
        if self.locks.is_empty() {
            return (self.dirs, own);
        }
        let mut all = self.locks;
        all.push(own);
        (self.dirs, Box::new(Locks(all)))
    }

    /// For an opening that writes nothing, not even a `LOCK`.
    fn lock_shared(&mut self, fs: &dyn Fs) -> Result<()> {
        for (_, path) in self.dirs.others() {
            let lock = FileName::Lock.path(path);
            if !fs.exists(&lock)? {
                let text = "there is no LOCK file to hold off a writer with, and reading makes none";
                return Err(Error::new(ErrorKind::NotFound, text).at_path(&lock));
            }
            self.locks.push(fs.lock(&lock, LockMode::Shared)?);
        }
        Ok(())
    }

    /// Gives numbers to the fresh directories and says in the list what is in use now. Locked.
    fn take_in(
        &mut self,
        env: &dyn Env,
        wanted: &Wanted<'_>,
        fresh: Vec<&Path>,
        list: &mut List,
    ) -> Result<()> {
        let before = list.clone();
        let mut markers = Vec::new();
        for path in &fresh {
            let id = free_number(list, &wanted.needed, &self.dirs)?;
            let mark: Mark = draw(env);
            list.entries.insert(id, Entry { mark, next: mark, path: path.to_path_buf() });
            self.dirs.others.insert(id, path.to_path_buf());
            markers.push((*path, Marker { db_id: wanted.db_id, id, mark }));
        }
        for (id, path) in self.dirs.others() {
            list.entries.get_mut(&id).expect("it is known by its entry").path = path.to_path_buf();
        }
        let ids: BTreeMap<&Path, u8> = self.dirs.others().map(|(id, path)| (path, id)).collect();
        // The database's own may be among them.
        list.in_use = wanted.given.iter().map(|path| ids.get(path.as_path()).copied().unwrap_or(0)).collect();
        if !list.in_use.is_empty() {
            self.dirs.in_turn.clone_from(&list.in_use);
        }
        let fs = env.fs().as_ref();
        if *list != before {
            match files::write_list(fs, wanted.own, &wanted.db_id, list) {
                // Without new ones it is for information: a full disk is no reason not to open.
                Err(error) if error.kind() == ErrorKind::NoSpace && markers.is_empty() => {}
                outcome => outcome?,
            }
        }
        markers.iter().try_for_each(|(path, marker)| files::write_marker(fs, path, marker))
    }
}

/// New marks for the directories that were known, to be written once nothing can keep the database from
/// opening any more, and before anything is removed: a copy that does not open takes nothing from its original.
#[derive(Default)]
pub(crate) struct Renewal {
    db_id: DbId,
    own: PathBuf,
    list: List,
    known: Vec<(u8, PathBuf, Mark)>,
}

impl Renewal {
    /// Writes them: into the list first, which has the old ones too, then into the directories. A crash, or an error,
    /// may leave either in each of them.
    ///
    /// # Errors
    /// Those of the file system; a full disk is none, since the old marks do as well.
    pub(crate) fn write(mut self, env: &dyn Env) -> Result<()> {
        if self.known.is_empty() {
            return Ok(());
        }
        let mut markers = Vec::with_capacity(self.known.len());
        for (id, path, mark) in self.known {
            let next: Mark = draw(env);
            self.list.entries.insert(id, Entry { mark, next, path: path.clone() });
            markers.push((path, Marker { db_id: self.db_id, id, mark: next }));
        }
        let fs = env.fs().as_ref();
        let written = files::write_list(fs, &self.own, &self.db_id, &self.list).and_then(|()| {
            markers.iter().try_for_each(|(path, marker)| files::write_marker(fs, path, marker))
        });
        match written {
            Err(error) if error.kind() == ErrorKind::NoSpace => Ok(()),
            outcome => outcome,
        }
    }
}

/// What a directory of the options is.
fn look(fs: &dyn Fs, path: &Path, db_id: &DbId, list: &List) -> Result<State> {
    let refused = |kind, text: &str| Err(Error::new(kind, text).at_path(path));
    if !fs.exists(path)? {
        return Ok(State::Fresh);
    }
    let names = fs.list(path)?;
    let has = |file: FileName| names.binary_search(&file.to_string()).is_ok();
    if has(FileName::Current) {
        return refused(ErrorKind::InvalidArgument, "a shard directory can't be a database's own directory");
    }
    if !has(FileName::ShardDir) {
        let ours = |name: &String| FileName::parse(name).is_some_and(|file| file.number().is_some());
        return match names.iter().any(ours) {
            true => refused(
                ErrorKind::Foreign,
                "there are files of a database and no marker of a shard directory",
            ),
            false => Ok(State::Fresh),
        };
    }
    let marker = files::read_marker(fs, path)?;
    if marker.db_id != *db_id {
        return refused(ErrorKind::Foreign, "the shard directory of another database");
    }
    match list.entries.get(&marker.id) {
        Some(entry) if entry.is_of(&marker.mark) => Ok(State::Known(marker.id, marker.mark)),
        _ => refused(
            ErrorKind::Foreign,
            "the shard directory of a database that this one is a copy of, or a copy itself; or one of the two \
             is older than the other",
        ),
    }
}

/// The known directories by number.
fn numbers<'a>(states: &BTreeMap<&'a Path, State>) -> Result<BTreeMap<u8, &'a Path>> {
    let mut known = BTreeMap::new();
    for (path, state) in states {
        let State::Known(id, _) = state else { continue };
        if let Some(other) = known.insert(*id, *path) {
            let text = format!("the same shard directory as {}, or a copy of it", other.display());
            return Err(Error::invalid(text).at_path(path));
        }
    }
    Ok(known)
}

/// Fails unless all directories that tables lie in are there.
fn check_needed(
    wanted: &Wanted<'_>,
    list: &List,
    known: &BTreeMap<u8, &Path>,
    states: &BTreeMap<&Path, State>,
) -> Result<()> {
    let missing = wanted.needed.iter().filter(|(id, _)| !known.contains_key(id));
    let said: Vec<String> = missing
        .map(|(id, table)| match list.entries.get(id) {
            None => format!("shard directory {id}, which SHARD_DIRS does not know (table {table})"),
            Some(entry) => {
                let path = &entry.path;
                let how = match states.contains_key(path.as_path()) {
                    true => "which is given, but is empty or not there",
                    false => "which is not among those given",
                };
                format!("shard directory {id}, last at {}, {how} (table {table})", path.display())
            }
        })
        .collect();
    if said.is_empty() {
        return Ok(());
    }
    let text = format!("tables of the database lie in directories that are missing: {}", said.join("; "));
    Err(Error::new(ErrorKind::NotFound, text).at_path(wanted.own))
}

/// Locks a directory, which is made first if it is new, and sees that it still is what it was.
fn lock_fresh_or_known(
    fs: &dyn Fs,
    path: &Path,
    before: State,
    db_id: &DbId,
    list: &List,
) -> Result<Box<dyn FileLock>> {
    if before == State::Fresh {
        create_dirs(fs, path)?;
        sync_names(fs, path)?;
    }
    let lock = fs.lock(&FileName::Lock.path(path), LockMode::Exclusive)?;
    if look(fs, path, db_id, list)? != before {
        return Err(Error::new(ErrorKind::Busy, "somebody else is at this shard directory").at_path(path));
    }
    Ok(lock)
}

/// A number for a new directory.
fn free_number(list: &mut List, needed: &BTreeMap<u8, FileNumber>, dirs: &TableDirs) -> Result<u8> {
    let is_used = |id: &u8| needed.contains_key(id) || dirs.others.contains_key(id);
    let unused = (1..=u8::MAX).find(|id| !list.entries.contains_key(id));
    let id = unused.or_else(|| (1..=u8::MAX).find(|id| !is_used(id)));
    id.ok_or_else(|| Error::new(ErrorKind::Unsupported, "no more than 255 shard directories"))
}
