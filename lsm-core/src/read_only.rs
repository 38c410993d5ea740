//! Opening a database for reading only.
//!
//! ```text
//! LOCK, shared ─ manifest ─ log replayed into memory ─ reads
//! ```
//! What an opening that writes would do and this one leaves out: cut off the log's torn end, sync what
//! was replayed, flush a memtable that replay has filled, write a manifest and an OPTIONS file, remove
//! orphans, start workers. So the memory needed is that of the whole log, which a writer keeps below
//! `log_total_bytes_max` and a few memtables.
//!
//! Invariants:
//! - No call that changes a file or a directory is made, neither on opening nor later: calls that would
//!   are refused by [`Engine::check_writable`] with `ReadOnly`. Attacked by
//!   `nothing_is_written_by_a_read_only_opening`.
//! - Readers exclude a writer and it excludes them (rule 24), by the lock on `LOCK`: tables, log and
//!   manifest stay what they are. So it is in each shard directory. Where there is no `LOCK`, none is made, and the opening fails.
//!
//! What is read was not synced by this opening: after a power cut a later one may find less.

use std::path::Path;
use std::sync::Arc;

use dialsm_io::Env;
use dialsm_io::fs::LockMode;

use crate::engine::Engine;
use crate::filename::FileName;
use crate::options::{KeyspaceOptions, Options};
use crate::{Error, ErrorKind, Result, events, open, recovery, unlogged};

/// See [`crate::Db::open_read_only`].
pub(crate) fn open(
    env: Arc<dyn Env>,
    dir: &Path,
    mut options: Options,
    keyspaces: &[(&str, KeyspaceOptions)],
) -> Result<Arc<Engine>> {
    env.check_fork()?;
    let since = env.now();
    open::check_path(dir)?;
    let keyspaces = &open::check(&mut options, keyspaces)?[..];
    let fs = env.fs();
    if !fs.exists(&FileName::Current.path(dir))? {
        return Err(Error::new(ErrorKind::NotFound, "no database here").at_path(dir));
    }
    let lock_path = FileName::Lock.path(dir);
    if !fs.exists(&lock_path)? {
        let text =
            "there is no LOCK file to hold off a writer with, and reading makes none; an empty one will do";
        return Err(Error::new(ErrorKind::NotFound, text).at_path(&lock_path));
    }
    let lock = fs.lock(&lock_path, LockMode::Shared)?;
    let (mut found, dirs) = open::read_state(env.as_ref(), dir, &options, true)?;
    let voids = found.take_voids();
    let engine = open::build(env, dir, options, keyspaces, found, dirs.locked_with(lock), true)?;
    events::during_open(&engine, || {
        recovery::replay(&engine)?;
        unlogged::recover(&engine, voids)
    })?;
    events::opened(&engine, since);
    Ok(engine)
}
