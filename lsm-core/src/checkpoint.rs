//! Checkpoints: a second database directory that holds what this one held at one moment, made while
//! it is written to.
//!
//! ```text
//! sync the log, settle ─ cut, between two groups: pin tables, floors and log at one manifest position
//!   TARGET.unfinished-checkpoint/   link tables ─ copy log ─ OPTIONS ─ manifest, synced ─ CURRENT
//! rename to TARGET ─ sync the directory above
//! ```
//! Tables are linked, since nobody ever writes to them again, and copied where linking is refused
//! (another file system). The log is always copied: the database goes on appending to its segments,
//! and recycles them (H16). Tables of all shard directories come into this one directory. The copy has the identity of the original, because each file carries it.
//!
//! Invariants:
//! - *One moment*: while the cut is made nothing settles and no group is logged, so all floors and all
//!   log up to one group's end belong together. What was acknowledged before the call lies before it.
//!   Writers wait for one log sync and, at worst, for a manifest write that is under way.
//! - *Unlogged writes* lie in no log: a tree that holds some is flushed first, and the cut made anew.
//!   Where more keep coming it is flushed as the leader of the commit queue, and writers wait for it.
//! - *Nothing goes meanwhile*: the pinned versions keep their tables, and a pinned log unlinks what it
//!   retires (the open files keep the bytes) instead of recycling it.
//! - *Whole or absent*: the name `TARGET` appears when all of it is durable. What a failure or a power
//!   cut leaves is `TARGET.unfinished-checkpoint`, which the next checkpoint to the same place clears.
//!   Attacked by `a_power_cut_leaves_the_whole_checkpoint_or_none`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dialsm_io::fs::{Access, Advice, LockMode, parent_dir};
use dialsm_io::{File, Fs};

use crate::engine::Engine;
use crate::filename::{CURRENT, FileName};
use crate::options::file as options_file;
use crate::options::live::{self, All};
use crate::space::Space;
use crate::types::SeqNo;
use crate::version::Version;
use crate::version::edit::{ManifestRecord, TableDesc};
use crate::version::set::start_manifest;
use crate::wal::log::{LogPin, LogWriter, PinnedSegment};
use crate::{Error, ErrorKind, Result, checksum, manual, open};

const COPY_BYTES: usize = 1 << 20;

/// How often a tree with unlogged writes is flushed beside the writers, before they have to wait.
const FLUSHES_BESIDE_WRITERS: usize = 2;

/// What a checkpoint holds.
struct Cut<'a> {
    /// The first record of its manifest, complete but for the next file number.
    record: ManifestRecord,
    log: LogPin<'a>,
    options: All,
    /// Keeps the tables that the record names.
    _versions: Vec<Arc<Version>>,
}

/// See [`crate::Db::checkpoint`].
pub(crate) fn checkpoint(engine: &Arc<Engine>, target: &Path) -> Result<()> {
    let _inside = engine.enter()?;
    engine.error.check()?;
    let fs = engine.env.fs().as_ref();
    let temp = temp_of(target)?;
    check_target(fs, target)?;
    open::create_dirs(fs, &temp)?;
    let lock = fs.lock(&FileName::Lock.path(&temp), LockMode::Exclusive)?;
    clear(fs, &temp)?;
    let made = cut(engine)
        .and_then(|cut| build(engine, cut, &temp))
        .and_then(|()| fs.rename(&temp, target))
        .and_then(|()| fs.sync_dir(&parent_dir(target)));
    if made.is_err() {
        // A rename that failed may have been done all the same; else a directory at the target, which
        // was there before and is empty, is not ours to remove.
        let is_renamed = !fs.exists(&temp).unwrap_or(true);
        remove(fs, if is_renamed { target } else { &temp });
    }
    drop(lock);
    made
}

/// Behind a target's name while it is being made. Long, so that nobody has a database of his own there:
/// what bears this name is removed.
const UNFINISHED: &str = ".unfinished-checkpoint";

/// Where `target` is made: beside it, so that it can be renamed.
fn temp_of(target: &Path) -> Result<PathBuf> {
    let Some(name) = target.file_name() else {
        return Err(Error::invalid("a checkpoint needs a directory name of its own").at_path(target));
    };
    let mut temp = name.to_os_string();
    temp.push(UNFINISHED);
    Ok(target.with_file_name(temp))
}

/// Fails unless `target` is free or an empty directory.
fn check_target(fs: &dyn Fs, target: &Path) -> Result<()> {
    if !fs.exists(target)? || fs.list(target)?.is_empty() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::AlreadyExists, "the checkpoint's directory is not empty").at_path(target))
}

/// Removes what an earlier attempt has left. The lock says that nobody is at it now.
fn clear(fs: &dyn Fs, temp: &Path) -> Result<()> {
    for name in ours_current_first(fs.list(temp)?) {
        fs.unlink(&temp.join(name))?;
    }
    if fs.list(temp)?.iter().all(|name| FileName::parse(name) == Some(FileName::Lock)) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::AlreadyExists, "files of somebody else are where a checkpoint would be made")
        .at_path(temp))
}

/// The names of ours but for `LOCK`; `CURRENT` first, so that what is left is never taken for a
/// database.
fn ours_current_first(mut names: Vec<String>) -> Vec<String> {
    names.retain(|name| FileName::parse(name).is_some_and(|parsed| parsed != FileName::Lock));
    names.sort_by_key(|name| name != CURRENT);
    names
}

/// Removes a checkpoint that came to nothing, as far as it can be.
fn remove(fs: &dyn Fs, dir: &Path) {
    for name in ours_current_first(fs.list(dir).unwrap_or_default()) {
        let _ = fs.unlink(&dir.join(name));
    }
    let _ = fs.unlink(&FileName::Lock.path(dir));
    let _ = fs.remove_dir(dir);
}

/// Decides what the checkpoint holds: a moment during this call.
fn cut(engine: &Arc<Engine>) -> Result<Cut<'_>> {
    // So that little is left to sync while writers wait for the cut.
    manual::sync_log(engine)?;
    engine.versions.settle(engine)?;
    for _ in 0..FLUSHES_BESIDE_WRITERS {
        let cut =
            engine.commit.between_groups(engine, |leader, last| try_cut(engine, &mut leader.log, last))?;
        if let Some(cut) = cut {
            return Ok(cut);
        }
        manual::save_unlogged(engine)?;
    }
    engine.commit.between_groups(engine, |leader, last| {
        loop {
            if let Some(cut) = try_cut(engine, &mut leader.log, last)? {
                return Ok(cut);
            }
            // A group that was logged before we led may have to be inserted yet; no other comes.
            let trees = manual::unlogged(engine);
            manual::seal_as_leader(engine, &trees, false, last);
            engine.schedule();
            trees.iter().try_for_each(|tree| manual::wait_until_flushed(engine, tree))?;
            engine.env.sleep(100_000);
        }
    })
}

/// The cut as it is now, or `None` if a tree holds writes that are neither in the log nor in settled
/// tables. As the leader of the commit queue.
fn try_cut<'a>(engine: &'a Engine, log: &mut LogWriter, last_seqno: SeqNo) -> Result<Option<Cut<'a>>> {
    log.sync(engine)?;
    let _still = engine.versions.hold_still();
    let mut versions = Vec::new();
    // No drop begins meanwhile: that takes leading. A keyspace whose creation has not ended is empty.
    let trees = engine.versions.durable_trees();
    for tree in &trees {
        let state = tree.lock();
        if tree.has_unlogged(&state) {
            return Ok(None);
        }
        versions.push(state.durable.clone());
    }
    let mut record = engine.versions.durable_snapshot(engine, &trees);
    let log = engine.log.pin(record.replay_start.unwrap_or_default());
    record.last_seqno = Some(last_seqno);
    record.log_named = log.segments.last().map(|segment| segment.number);
    let is_durable = |space: &&Arc<Space>| trees.iter().any(|tree| tree.id.keyspace == space.id);
    let spaces: Vec<_> = engine.keyspaces.alive().spaces.iter().filter(is_durable).cloned().collect();
    let options = live::of_spaces(engine, &spaces);
    Ok(Some(Cut { record, log, options, _versions: versions }))
}

/// Fills `dir` with what `cut` holds; durable when this returns, but for the name of `dir`.
fn build(engine: &Engine, mut cut: Cut<'_>, dir: &Path) -> Result<()> {
    let fs = engine.env.fs().as_ref();
    for (_, table) in cut.record.edits.iter_mut().flat_map(|edit| &mut edit.added) {
        link_or_copy(engine, table, dir)?;
        // Wherever it lay here, there it is in the database's own directory.
        table.dir_id = 0;
    }
    for segment in &cut.log.segments {
        copy_segment(engine, segment, dir)?;
    }
    options_file::write(fs, dir, engine.new_file_number(), &cut.options)?;
    let number = engine.new_file_number();
    cut.record.next_file_number = Some(engine.peek_file_number());
    start_manifest(fs, dir, engine.db_id, number, &cut.record).map(drop)
}

fn link_or_copy(engine: &Engine, table: &TableDesc, dir: &Path) -> Result<()> {
    engine.check_open()?;
    let fs = engine.env.fs();
    let from = engine.table_path((table.dir_id, table.number));
    let to = FileName::Table(table.number).path(dir);
    match fs.hard_link(&from, &to) {
        Err(error) if error.kind() != ErrorKind::NoSpace => {}
        linked => return linked,
    }
    // Another file system, one without links, or too many of them: if it is something worse, copying
    // fails as well, and says so.
    let file = fs.open(&from, Access::Read)?;
    file.advise(Advice::Sequential);
    let copied = copy(engine, file.as_ref(), table.file_bytes, &to)?;
    if copied != table.checksum {
        let text = format!("checksum {copied:08x} where the manifest says {:08x}", table.checksum);
        return Err(Error::corruption(text).at_path(&from));
    }
    Ok(())
}

fn copy_segment(engine: &Engine, segment: &PinnedSegment, dir: &Path) -> Result<()> {
    copy(engine, segment.file.as_ref(), segment.end, &FileName::Log(segment.number).path(dir)).map(drop)
}

/// Copies the first `len` bytes of `from` into a new file, syncs it, and returns their checksum.
fn copy(engine: &Engine, from: &dyn File, len: u64, to: &Path) -> Result<u32> {
    let file = engine.env.fs().create(to)?;
    let mut buffer = vec![0; COPY_BYTES.min(usize::try_from(len).unwrap_or(COPY_BYTES))];
    let (mut at, mut crc) = (0, 0);
    while at < len {
        // Closing waits for us.
        engine.check_open()?;
        let want = buffer.len().min(usize::try_from(len - at).unwrap_or(COPY_BYTES));
        let got = from.read_at(&mut buffer[..want], at)?;
        if got < want {
            let text = format!("the file ends {} bytes early", len - at - got as u64);
            return Err(Error::corruption(text).at_path(from.path()).at_offset(at + got as u64));
        }
        file.write_at(&buffer[..want], at)?;
        crc = checksum::extend(crc, &buffer[..want]);
        at += want as u64;
    }
    file.sync_data()?;
    Ok(crc)
}
