//! Opening a database: lock, manifest, log, fresh manifest, clean-up, workers; in that order.
//!
//! An opening writes only its own files (rule 18): it syncs and cuts the log it found, but appends
//! to a new segment; it reads the manifest it found, but writes a new one, and makes that durable
//! with CURRENT before it removes anything.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

use dialsm_io::fs::{Access, LockMode, parent_dir};
use dialsm_io::{Env, Fs};

use crate::background::Scheduler;
use crate::background_error::BackgroundError;
use crate::cache::{BlockCache, TableCache};
use crate::engine::Engine;
use crate::filename::FileName;
use crate::metrics::Metrics;
use crate::obsolete::Graveyard;
use crate::options::live::LiveOptions;
use crate::options::{Options, RecoveryMode};
use crate::snapshot::SnapshotList;
use crate::tree::{Buffer, Tree};
use crate::types::{DbId, FileNumber, SeqNo, TreeId};
use crate::upgrade::FORMAT_VERSION;
use crate::version::edit::{ManifestRecord, TableDesc, TreeEdit};
use crate::version::set::{VersionSet, start_manifest};
use crate::version::{TableFile, TableMeta, Version, manifest};
use crate::wal::log::{Log, LogWriter};
use crate::write::commit::Commit;
use crate::{Error, ErrorKind, Result, options, recovery};

/// Opens or creates the database in `dir`.
///
/// # Errors
/// Every way in which options, directory, lock or files can be wrong, each with its kind.
pub(crate) fn open(env: Arc<dyn Env>, dir: &Path, options: Options) -> Result<Arc<Engine>> {
    env.check_fork()?;
    options.validate()?;
    let fs = env.fs().clone();
    if options.create_if_missing {
        create_dirs(fs.as_ref(), dir)?;
    } else if !fs.exists(&FileName::Current.path(dir))? {
        return Err(
            Error::new(ErrorKind::NotFound, "no database here, and create_if_missing is off").at_path(dir)
        );
    }
    let lock = fs.lock(&FileName::Lock.path(dir), LockMode::Exclusive)?;
    if !fs.exists(&FileName::Current.path(dir))? {
        create(env.as_ref(), dir, &options)?;
    } else if options.error_if_exists {
        return Err(Error::new(ErrorKind::AlreadyExists, "the database exists, and error_if_exists is set")
            .at_path(dir));
    }
    let found = read_state(env.as_ref(), dir, &options)?;
    let engine = build(env, dir, options, found, lock, false)?;
    recovery::replay(&engine)?;
    // Writes the fresh manifest: there is none to append to yet.
    engine.versions.settle(&engine)?;
    save_options(&engine)?;
    remove_orphans(&engine)?;
    engine.tree.refresh_stall(&engine, engine.tree.lock());
    if let Err(error) = Scheduler::start(&engine) {
        // The workers that did start hold the engine, and with it the lock.
        let _ = stop(&engine);
        return Err(error);
    }
    Ok(engine)
}

/// What the manifest says.
pub(crate) struct Found {
    db_id: DbId,
    manifest: FileNumber,
    version: Version,
    floor: SeqNo,
    last_seqno: SeqNo,
    next_file: FileNumber,
    replay_start: FileNumber,
    log_named: Option<FileNumber>,
    first_record_torn: bool,
    format_version: u32,
}

/// Creates the directory and those above it. The names of those above are durable then; its own is
/// synced before `CURRENT` is written, whoever made the directory.
pub(crate) fn create_dirs(fs: &dyn Fs, dir: &Path) -> Result<()> {
    let mut missing = Vec::new();
    for ancestor in dir.ancestors().skip(1).filter(|ancestor| !ancestor.as_os_str().is_empty()) {
        if fs.exists(ancestor)? {
            break;
        }
        missing.push(ancestor);
    }
    fs.create_dir_all(dir)?;
    missing.iter().rev().try_for_each(|ancestor| fs.sync_dir(&parent_dir(ancestor)))
}

/// Makes an empty database. A crash on the way leaves nothing that the next attempt minds.
fn create(env: &dyn Env, dir: &Path, options: &Options) -> Result<()> {
    let fs = env.fs();
    for name in fs.list(dir)? {
        match FileName::parse(&name) {
            Some(FileName::Table(_) | FileName::Log(_)) => {
                let text = format!("CURRENT is missing, but {name} is here: this is no empty directory");
                return Err(Error::corruption(text).at_path(dir));
            }
            // Left by an attempt that did not come as far as CURRENT.
            Some(FileName::Manifest(_) | FileName::Temp(_)) => fs.unlink(&dir.join(&name))?,
            _ => {}
        }
    }
    // Before `CURRENT` is there: an opening that finds it does not ask again whether the directory
    // itself would survive.
    fs.sync_dir(&parent_dir(dir))?;
    let mut db_id: DbId = [0; 16];
    db_id[..8].copy_from_slice(&env.random_u64().to_le_bytes());
    db_id[8..].copy_from_slice(&env.random_u64().to_le_bytes());
    let edit = TreeEdit {
        comparator: Some(options.comparator.name().to_owned()),
        floor: Some(1),
        ..TreeEdit::default()
    };
    let snapshot = ManifestRecord {
        edits: vec![edit],
        next_file_number: Some(FileNumber(2)),
        last_seqno: Some(0),
        replay_start: Some(FileNumber(0)),
        format_version: Some(FORMAT_VERSION),
        ..ManifestRecord::default()
    };
    start_manifest(fs.as_ref(), dir, db_id, FileNumber(1), &snapshot)?;
    Ok(())
}

pub(crate) fn read_state(env: &dyn Env, dir: &Path, options: &Options) -> Result<Found> {
    let fs = env.fs();
    let (number, path) = manifest::read_current(fs.as_ref(), dir)?;
    let file = fs.open(&path, Access::Read).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::corruption("CURRENT names a manifest that is not there").at_path(&path),
        _ => error,
    })?;
    let mut records = Vec::new();
    let end = manifest::read_manifest(file, &mut |_, record| {
        records.push(record);
        Ok(())
    })?;
    let db_id = end.header.db_id;
    end.header.expect(&db_id, number).map_err(|e| e.at_path(&path))?;
    let mut found = Found {
        db_id,
        manifest: number,
        version: Version::empty(options.comparator.clone()),
        floor: 1,
        last_seqno: 0,
        next_file: FileNumber(number.0 + 1),
        replay_start: FileNumber(0),
        log_named: None,
        first_record_torn: end.torn && end.records == 1,
        format_version: 1,
    };
    let mut tables: BTreeMap<(u8, FileNumber), TableDesc> = BTreeMap::new();
    for record in records {
        found.next_file = found.next_file.max(record.next_file_number.unwrap_or_default());
        found.last_seqno = found.last_seqno.max(record.last_seqno.unwrap_or_default());
        found.replay_start = record.replay_start.unwrap_or(found.replay_start);
        found.log_named = record.log_named.or(found.log_named);
        found.format_version = record.format_version.unwrap_or(found.format_version);
        for edit in record.edits {
            apply_edit(&mut tables, &mut found.floor, edit, options).map_err(|e| e.at_path(&path))?;
        }
    }
    let added: Vec<(u8, Arc<TableFile>)> = tables
        .into_iter()
        .map(|((level, _), desc)| (level, TableFile::new(&options.comparator, TableMeta::of_desc(desc))))
        .collect();
    for (_, table) in &added {
        found.last_seqno = found.last_seqno.max(table.meta().seqno_max);
    }
    found.version = found.version.apply(&[], &added).map_err(|e| e.at_path(&path))?;
    let names = fs.list(dir)?;
    check_there(dir, &names, &found, options)?;
    // Numbers that a crash kept out of the manifest are not used again either.
    for name in names {
        if let Some(number) = FileName::parse(&name).and_then(|name| name.number()) {
            found.next_file = found.next_file.max(FileNumber(number.0 + 1));
        }
    }
    Ok(found)
}

/// Fails if a file that a settled manifest relies on is not there. Besides losing its data, going on
/// would make the loss final: it may be the manifest that was cut back to an older state, and what
/// that does not name is removed.
fn check_there(dir: &Path, names: &[String], found: &Found, options: &Options) -> Result<()> {
    let missing = |file: FileName| {
        let gone = names.binary_search(&file.to_string()).is_err();
        gone.then(|| Error::corruption("a file that the manifest needs is missing").at_path(&file.path(dir)))
    };
    for (_, table) in found.version.all_tables() {
        missing(FileName::Table(table.number())).map_or(Ok(()), Err)?;
    }
    // Salvage makes do with the segments that are left.
    let salvage = options.recovery_mode == RecoveryMode::SkipAnyCorrupted;
    let Some(newest) = found.log_named.filter(|_| !salvage) else { return Ok(()) };
    [found.replay_start, newest].iter().try_for_each(|n| missing(FileName::Log(*n)).map_or(Ok(()), Err))
}

fn apply_edit(
    tables: &mut BTreeMap<(u8, FileNumber), TableDesc>,
    floor: &mut SeqNo,
    edit: TreeEdit,
    options: &Options,
) -> Result<()> {
    if edit.tree != TreeId::default() {
        let text = format!("the manifest names tree {}; this build opens single trees", edit.tree);
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    if let Some(name) = &edit.comparator
        && name != options.comparator.name()
    {
        let text =
            format!("keys are ordered by comparator {name}, the options say {}", options.comparator.name());
        return Err(Error::invalid(text));
    }
    for (level, number) in edit.removed {
        if tables.remove(&(level, number)).is_none() {
            return Err(Error::corruption(format!(
                "an edit removes table {number}, which L{level} does not hold"
            )));
        }
    }
    for (level, desc) in edit.added {
        if tables.insert((level, desc.number), desc).is_some() {
            return Err(Error::corruption(format!("an edit adds a table to L{level} twice")));
        }
    }
    *floor = edit.floor.unwrap_or(*floor);
    Ok(())
}

pub(crate) fn build(
    env: Arc<dyn Env>,
    dir: &Path,
    options: Options,
    found: Found,
    lock: Box<dyn dialsm_io::fs::FileLock>,
    read_only: bool,
) -> Result<Arc<Engine>> {
    let blocks = Arc::new(BlockCache::new(options.block_cache_bytes));
    let graveyard = Arc::new(Graveyard::default());
    let version = Arc::new(found.version);
    let active = Buffer::new(&options.comparator);
    let tree =
        Tree::new(env.as_ref(), TreeId::default(), options.comparator.clone(), version, active, found.floor);
    let log = Log::new(
        env.as_ref(),
        dir.to_path_buf(),
        found.db_id,
        found.next_file,
        options.log_segment_bytes,
        options.log_total_bytes_max,
        options.log_recycle_max,
    );
    Ok(Arc::new(Engine {
        db_id: found.db_id,
        format_version: found.format_version,
        read_only,
        tree: Arc::new(tree),
        commit: Commit::new(LogWriter::default(), found.last_seqno),
        log,
        versions: VersionSet::reopened(env.as_ref(), found.manifest),
        scheduler: Scheduler::new(env.as_ref()),
        snapshots: Arc::new(SnapshotList::default()),
        tables: TableCache::new(options.open_tables_max, options.table_cache_bytes, env.event()),
        blocks,
        graveyard,
        metrics: Metrics::new(),
        replay_start: found.replay_start,
        first_record_torn: found.first_record_torn,
        error: BackgroundError::default(),
        next_file: AtomicU64::new(found.next_file.0),
        next_job: AtomicU64::new(1),
        closing: AtomicBool::new(false),
        stopped: AtomicBool::new(false),
        inside: AtomicUsize::new(0),
        lock: parking_lot::Mutex::new(Some(lock)),
        dir: dir.to_path_buf(),
        options: LiveOptions::new(env.as_ref(), options),
        env,
    }))
}

/// Writes the OPTIONS file. A full disk does not keep a database from being opened for the sake of it.
fn save_options(engine: &Engine) -> Result<()> {
    match options::file::replace(engine, &engine.options.now()) {
        Err(error) if error.kind() == ErrorKind::NoSpace => Ok(()),
        outcome => outcome,
    }
}

/// Removes what an earlier opening left and nothing names: unfinished outputs, old manifests, log
/// segments that are not needed or were dropped as torn. Only files with names of ours.
fn remove_orphans(engine: &Engine) -> Result<()> {
    let fs = engine.env.fs();
    let view = engine.tree.view();
    let live: std::collections::BTreeSet<FileNumber> =
        view.version.all_tables().map(|(_, table)| table.number()).collect();
    let segments = engine.log.numbers();
    let manifest = engine.versions.manifest_number();
    let mut removed = false;
    for name in fs.list(&engine.dir)? {
        let orphan = match FileName::parse(&name) {
            Some(FileName::Table(number)) => !live.contains(&number),
            Some(FileName::Log(number)) => !segments.contains(&number),
            Some(FileName::Manifest(number)) => number != manifest,
            Some(FileName::Temp(_)) => true,
            _ => false,
        };
        if orphan {
            fs.unlink(&engine.dir.join(&name))?;
            removed = true;
        }
    }
    if removed {
        fs.sync_dir(&engine.dir)?;
    }
    Ok(())
}

/// Ends an opening's work: running jobs stop soon, workers are joined, and when this returns nobody
/// writes a file of the database any more, neither writers nor jobs on the user's threads. Nothing
/// is flushed. False if another thread has done it, or was doing it and is now done.
pub(crate) fn stop(engine: &Engine) -> bool {
    let ended = &engine.scheduler.ended;
    let first = !engine.closing.swap(true, Ordering::AcqRel);
    // Pairs with the fence in `Engine::enter`.
    fence(Ordering::SeqCst);
    if first {
        engine.tree.stall.wake_all();
        engine.schedule();
        ended.notify();
        engine.scheduler.stop();
        // Who leads after this sees that the database is closing.
        engine.commit.between_groups(engine, |_, _| ());
    }
    let is_over = || match first {
        true => engine.inside.load(Ordering::Acquire) == 0,
        false => engine.stopped.load(Ordering::Acquire),
    };
    loop {
        let seen = ended.epoch();
        if is_over() {
            break;
        }
        ended.wait(seen, Some(engine.env.now() + 50_000_000));
    }
    if first {
        engine.stopped.store(true, Ordering::SeqCst);
        ended.notify();
    }
    first
}
