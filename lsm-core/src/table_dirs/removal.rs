//! Removing a database that has shard directories.
//!
//! Which directories are its is decided before anything is removed, and by their markers only. Each loses its
//! tables first and its marker last; the list in the database's own directory goes after all of them. So a
//! removal that a crash cut short can be begun again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use dialsm_io::Fs;
use dialsm_io::fs::{FileLock, LockMode};

use super::files;
use crate::filename::FileName;
use crate::types::DbId;
use crate::{Error, ErrorKind, Result};

/// A shard directory of the database that is being removed.
pub(crate) struct Doomed {
    path: PathBuf,
    lock: Box<dyn FileLock>,
}

/// The shard directories of the database in `own`: those of `given`, and those that are where the last
/// opening had them. Locked.
///
/// # Errors
/// `Foreign` if one of `given` is another database's; `Busy` if one is in use; `Corruption` of the list or a
/// marker; those of the file system.
pub(crate) fn find_for_removal(fs: &dyn Fs, own: &Path, given: &[PathBuf]) -> Result<Vec<Doomed>> {
    let (db_id, list) = match files::read_any_list(fs, own) {
        Err(error) if error.kind() == ErrorKind::NotFound => (DbId::default(), files::List::default()),
        found => found?,
    };
    let last = list.entries.values().map(|entry| (entry.path.as_path(), false));
    let given = given.iter().map(|path| (path.as_path(), true));
    // Named is stronger.
    let candidates: BTreeMap<&Path, bool> = last.chain(given).collect();
    let mut found: BTreeMap<u8, PathBuf> = BTreeMap::new();
    for (path, is_given) in candidates {
        if path == own || !fs.exists(&FileName::ShardDir.path(path))? {
            continue;
        }
        let marker = match files::read_marker(fs, path) {
            Err(_) if !is_given => continue,
            marker => marker?,
        };
        let entry = list.entries.get(&marker.id).filter(|entry| entry.is_of(&marker.mark));
        match entry.filter(|_| marker.db_id == db_id) {
            Some(_) => drop(found.insert(marker.id, path.to_path_buf())),
            None if is_given => {
                let text = "the shard directory of another database, or of a copy";
                return Err(Error::new(ErrorKind::Foreign, text).at_path(path));
            }
            None => {}
        }
    }
    let doomed = |path: PathBuf| {
        let lock = fs.lock(&FileName::Lock.path(&path), LockMode::Exclusive)?;
        Ok(Doomed { path, lock })
    };
    found.into_values().map(doomed).collect()
}

/// Removes all that is the database's in these directories, and each directory if nothing else is in it.
pub(crate) fn remove_found(fs: &dyn Fs, doomed: Vec<Doomed>) -> Result<()> {
    for Doomed { path, lock } in doomed {
        for name in fs.list(&path)? {
            if matches!(FileName::parse(&name), Some(FileName::Table(_) | FileName::Temp(_))) {
                fs.unlink(&path.join(&name))?;
            }
        }
        fs.sync_dir(&path)?;
        fs.unlink(&FileName::ShardDir.path(&path))?;
        fs.sync_dir(&path)?;
        fs.unlink(&FileName::Lock.path(&path))?;
        drop(lock);
        match fs.remove_dir(&path) {
            Err(error) if fs.list(&path).is_ok_and(|left| left.is_empty()) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
