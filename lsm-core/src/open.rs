//! Opening a database: lock, manifest, log, fresh manifest, clean-up, workers; in that order.
//!
//! An opening writes only its own files (rule 18): it syncs and cuts the log it found, but appends
//! to a new segment; it reads the manifest it found, but writes a new one, and makes that durable
//! with CURRENT before it removes anything. Keyspaces that the caller names and that are not there
//! begin with that manifest: all of them or, after a crash before it, none.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};

use dialsm_io::fs::{FileLock, LockMode, parent_dir};
use dialsm_io::{Env, Fs, IoOptions};

use crate::background::Scheduler;
use crate::background_error::BackgroundError;
use crate::cache::{BlockCache, TableCache};
use crate::engine::Engine;
use crate::events::{Events, OpenFailed};
use crate::filename::FileName;
use crate::handoff::Handoff;
use crate::keyspace::{Alive, DEFAULT_KEYSPACE, Keyspaces, check_name};
use crate::merge_operator::Merging;
use crate::metrics::Metrics;
use crate::obsolete::Graveyard;
use crate::options::live::LiveOptions;
use crate::options::{KeyspaceOptions, Options, RecoveryMode};
use crate::routing::{Placement, SHARDS_MAX};
use crate::snapshot::SnapshotList;
use crate::space::Space;
use crate::table_dirs::{self, OpenDirs, TableDirs, Wanted};
use crate::types::{DbId, FileNumber, TablePlace};
use crate::upgrade::FORMAT_VERSION;
use crate::version::edit::{KeyspaceDesc, ManifestRecord, TreeEdit};
use crate::version::set::{VersionSet, start_manifest};
use crate::version::{TableFile, TableMeta, Version};
use crate::wal::log::{Log, LogWriter};
use crate::write::budget::WriteBudget;
use crate::write::commit::Commit;
use crate::{Error, ErrorKind, Result, events, keyspace, options, recovery, unlogged};

mod state;

use state::FoundSpace;
pub(crate) use state::{Found, list_keyspaces};

/// Opens or creates the database in `dir`.
///
/// # Errors
/// Every way in which options, directory, lock or files can be wrong, each with its kind.
pub(crate) fn open(
    env: Arc<dyn Env>,
    dir: &Path,
    mut options: Options,
    keyspaces: &[(&str, KeyspaceOptions)],
) -> Result<Arc<Engine>> {
    env.check_fork()?;
    let since = env.now();
    check_path(dir)?;
    // Before anything asks them: what the user's objects do wrong must reach no worker.
    let keyspaces = &check(&mut options, keyspaces)?[..];
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
        table_dirs::check_for_new(fs.as_ref(), dir, &options.shard_dirs)?;
        create(env.as_ref(), dir, &options)?;
    } else if options.error_if_exists {
        return Err(Error::new(ErrorKind::AlreadyExists, "the database exists, and error_if_exists is set")
            .at_path(dir));
    }
    let (mut found, mut dirs) = read_state(env.as_ref(), dir, &options, false)?;
    let renewal = std::mem::take(&mut dirs.renewal);
    let voids = found.take_voids();
    let engine = build(env, dir, options, keyspaces, found, dirs.locked_with(lock), false)?;
    events::during_open(&engine, || {
        recovery::replay(&engine)?;
        unlogged::recover(&engine, voids)?;
        renewal.write(engine.env.as_ref())?;
        // Writes the fresh manifest: there is none to append to yet.
        engine.versions.settle(&engine)?;
        save_options(&engine)?;
        remove_orphans(&engine)
    })?;
    for tree in &engine.keyspaces.alive().trees {
        tree.refresh_stall(tree.lock());
    }
    if let Err(error) = Scheduler::start(&engine).and_then(|()| unlogged::begin(&engine)) {
        // The workers that did start hold the engine, and with it the lock.
        engine.events.push(|| OpenFailed { error: error.clone() }.into());
        let _ = stop(&engine);
        return Err(error);
    }
    events::opened(&engine, since);
    Ok(engine)
}

/// Fails for what is no path of a directory: the empty one, whose files would be made where the process is.
///
/// # Errors
/// `InvalidArgument`.
pub(crate) fn check_path(dir: &Path) -> Result<()> {
    match dir.as_os_str().as_encoded_bytes() {
        [] => Err(Error::invalid("the path of a database is empty")),
        path if path.contains(&0) => Err(Error::invalid("the path of a database has a zero byte in it")),
        _ => Ok(()),
    }
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
    fs.create_dir_all(dir).map_err(|error| {
        if !error.is_in_the_way() {
            return error;
        }
        let text = "a file stands where the database's directory, or one above it, should be";
        Error::invalid(text).at_path(dir).with_os_code(error.os_code())
    })?;
    missing.iter().rev().try_for_each(|ancestor| fs.sync_dir(&parent_dir(ancestor)))
}

/// Makes the names of the directory and of those above it durable, whoever made them: perhaps an attempt
/// that ended before it came to sync them. Those above that can't be opened are passed over, since
/// whoever may not read them has made nothing in them.
pub(crate) fn sync_names(fs: &dyn Fs, dir: &Path) -> Result<()> {
    fs.sync_dir(&parent_dir(dir))?;
    // The root has no name, and what is above the working directory is not ours to know.
    for ancestor in dir.ancestors().skip(1).filter(|ancestor| ancestor.parent().is_some()) {
        match fs.sync_dir(&parent_dir(ancestor)) {
            Err(error) if error.kind() == ErrorKind::ReadOnly => break,
            synced => synced?,
        }
    }
    Ok(())
}

/// Makes an empty database. A crash on the way leaves nothing that the next attempt minds.
fn create(env: &dyn Env, dir: &Path, options: &Options) -> Result<()> {
    let (fs, shards) = (env.fs(), shards_of_new(options));
    // Nothing is made that could not be opened with these options.
    check_router(options, usize::from(shards)).map_err(|error| error.at_path(dir))?;
    keyspace::check_order(&options.keyspace(), shards).map_err(|error| error.at_path(dir))?;
    for name in fs.list(dir)? {
        match FileName::parse(&name) {
            // The list is written behind CURRENT, and removed after it: it says where the rest of a
            // database is that a removal cut short, or damage, has left.
            Some(FileName::Table(_) | FileName::Log(_) | FileName::ShardDirs) => {
                let text = format!("CURRENT is missing, but {name} is here: this is no empty directory");
                return Err(Error::corruption(text).at_path(dir));
            }
            Some(FileName::ShardDir) => {
                let text = "this is a shard directory of a database, and can't be another one's own";
                return Err(Error::invalid(text).at_path(dir));
            }
            // Left by an attempt that did not come as far as CURRENT.
            Some(FileName::Manifest(_) | FileName::Temp(_)) => fs.unlink(&dir.join(&name))?,
            _ => {}
        }
    }
    // Before `CURRENT` is there: an opening that finds it does not ask again whether the directory
    // itself would survive.
    sync_names(fs.as_ref(), dir)?;
    let db_id: DbId = draw(env);
    let edit = TreeEdit {
        comparator: Some(options.comparator.name().to_owned()),
        merge_operator: options.merge_operator.as_ref().map(|operator| operator.name().to_owned()),
        floor: Some(1),
        ..TreeEdit::default()
    };
    let default = KeyspaceDesc {
        id: 0,
        name: DEFAULT_KEYSPACE.to_owned(),
        shards,
        comparator: options.comparator.name().to_owned(),
    };
    let snapshot = ManifestRecord {
        edits: vec![edit],
        // With one shard nothing is placed.
        hash_key: (shards > 1).then(|| draw(env)),
        keyspaces_created: Vec::from_iter((shards > 1).then_some(default)),
        next_file_number: Some(FileNumber(2)),
        last_seqno: Some(0),
        replay_start: Some(FileNumber(0)),
        format_version: Some(FORMAT_VERSION),
        ..ManifestRecord::default()
    };
    start_manifest(fs.as_ref(), dir, db_id, FileNumber(1), &snapshot)?;
    Ok(())
}

/// 16 random bytes.
pub(crate) fn draw(env: &dyn Env) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&env.random_u64().to_le_bytes());
    bytes[8..].copy_from_slice(&env.random_u64().to_le_bytes());
    bytes
}

/// How many shards a database gets that is created with these options.
fn shards_of_new(options: &Options) -> u16 {
    match (&options.router, options.shards) {
        (Some(router), 0) => router.0.shards_by_default(options.background_jobs_max).clamp(1, SHARDS_MAX),
        (_, 0) => 1,
        (_, shards) => shards as u16,
    }
}

/// What the manifest says, and the directories of its tables, with all that it names in its place.
pub(crate) fn read_state(
    env: &dyn Env,
    dir: &Path,
    options: &Options,
    read_only: bool,
) -> Result<(Found, OpenDirs)> {
    let fs = env.fs();
    let mut found = state::read_manifest(fs.as_ref(), dir)?;
    let names = fs.list(dir)?;
    let elsewhere = found.tables().filter(|table| table.dir_id != 0);
    let wanted = Wanted {
        db_id: found.db_id,
        own: dir,
        own_names: &names,
        given: &options.shard_dirs,
        needed: elsewhere.map(|table| (table.dir_id, table.number)).collect(),
        read_only,
    };
    let dirs = table_dirs::open(env, &wanted)?;
    check_there(&dirs, &names, &found, options)?;
    // Numbers that a crash kept out of the manifest are not used again either.
    for name in names.iter().chain(dirs.names.values().flatten()) {
        if let Some(number) = FileName::parse(name).and_then(|name| name.number()) {
            found.next_file = found.next_file.max(FileNumber(number.0 + 1));
        }
    }
    Ok((found, dirs))
}

/// Fails if a file that a settled manifest relies on is not there. Besides losing its data, going on
/// would make the loss final: it may be the manifest that was cut back to an older state, and what
/// that does not name is removed. `names` are those in the database's own directory.
fn check_there(open: &OpenDirs, names: &[String], found: &Found, options: &Options) -> Result<()> {
    let missing = |dir_id: u8, file: FileName| {
        let names = open.names.get(&dir_id).map_or(names, Vec::as_slice);
        let path = file.path(open.dirs.path(dir_id));
        let gone = names.binary_search(&file.to_string()).is_err();
        gone.then(|| Error::corruption("a file that the manifest needs is missing").at_path(&path))
    };
    let mut tables = BTreeSet::new();
    for table in found.tables() {
        missing(table.dir_id, FileName::Table(table.number)).map_or(Ok(()), Err)?;
        if !tables.insert(table.number) {
            let path = FileName::Table(table.number).path(open.dirs.path(table.dir_id));
            return Err(Error::corruption("the manifest names a table twice").at_path(&path));
        }
    }
    // Salvage makes do with the segments that are left.
    let salvage = options.recovery_mode == RecoveryMode::SkipAnyCorrupted;
    let Some(newest) = found.log_named.filter(|_| !salvage) else { return Ok(()) };
    [found.replay_start, newest].iter().try_for_each(|n| missing(0, FileName::Log(*n)).map_or(Ok(()), Err))
}

/// All keyspaces that were found, and those that `keyspaces` names and are not there yet, by ascending
/// id; `found` knows the new ones afterwards. Each gets the options it is named with, or those of the
/// default keyspace.
fn make_spaces(
    env: &dyn Env,
    dir: &Path,
    options: &Options,
    keyspaces: &[(&str, KeyspaceOptions)],
    found: &mut Found,
    budget: &Arc<WriteBudget>,
    may_create: bool,
) -> Result<Alive> {
    let shards = check_shards(options, found).map_err(|error| error.at_path(dir))?;
    for (name, _) in keyspaces {
        if found.spaces.values().any(|space| space.name == *name) {
            continue;
        }
        if !may_create {
            let text = format!("there is no keyspace {name:?}, and none may be created");
            return Err(Error::new(ErrorKind::NotFound, text).at_path(dir));
        }
        let id = found.next_keyspace;
        found.next_keyspace = id
            .checked_add(1)
            .ok_or_else(|| Error::new(ErrorKind::Unsupported, "the database has used up its keyspace ids"))?;
        found.spaces.insert(id, FoundSpace::new(name, shards));
    }
    let own: BTreeMap<&str, &KeyspaceOptions> = keyspaces.iter().map(|(name, own)| (*name, own)).collect();
    let default = options.keyspace();
    let router = options.router.as_ref().map(|router| router.0.clone());
    let mut spaces = Vec::with_capacity(found.spaces.len());
    for (id, space) in std::mem::take(&mut found.spaces) {
        let options = own.get(space.name.as_str()).map_or(&default, |own| own).clone();
        let placement =
            Placement { shards: space.trees.len() as u16, hash_key: found.hash_key, router: router.clone() };
        let space =
            make_space(env, id, space, options, placement, budget).map_err(|error| error.at_path(dir))?;
        spaces.push(Arc::new(space));
    }
    Ok(Alive::of(spaces))
}

/// How many shards the database has.
///
/// # Errors
/// `InvalidArgument` if the options say another number, or have nobody to say which key is where.
fn check_shards(options: &Options, found: &Found) -> Result<u16> {
    let shards = found.spaces.values().next().map_or(1, |default| default.trees.len());
    if options.shards != 0 && options.shards != shards {
        let text = format!("the database has {shards} shards, the options say {}", options.shards);
        return Err(Error::invalid(text));
    }
    let most = found.spaces.values().map(|space| space.trees.len()).max().unwrap_or(1);
    check_router(options, most)?;
    Ok(shards as u16)
}

/// Somebody has to say which of the shards a key is in.
fn check_router(options: &Options, shards: usize) -> Result<()> {
    if shards > 1 && options.router.is_none() {
        let text =
            format!("the database has {shards} shards: opening it needs the router that places its keys");
        return Err(Error::invalid(text));
    }
    Ok(())
}

fn make_space(
    env: &dyn Env,
    id: u32,
    found: FoundSpace,
    options: KeyspaceOptions,
    placement: Placement,
    budget: &Arc<WriteBudget>,
) -> Result<Space> {
    let comparator = &options.comparator;
    if let Some(name) = found.comparator.filter(|name| name != comparator.name()) {
        let text = format!(
            "the keys of keyspace {:?} are ordered by comparator {name}, the options say {}",
            found.name,
            comparator.name()
        );
        return Err(Error::invalid(text));
    }
    keyspace::check_order(&options, placement.shards)?;
    let mut settled = Vec::with_capacity(found.trees.len());
    for tree in found.trees {
        let added: Vec<(u8, Arc<TableFile>)> = tree
            .tables
            .into_iter()
            .map(|((level, _), desc)| (level, TableFile::new(comparator, TableMeta::of_desc(desc))))
            .collect();
        let version = Version::empty(comparator.clone()).apply(&[], &added)?;
        settled.push((Arc::new(version), tree.floor));
    }
    let merging = Merging::new(options.merge_operator.clone(), found.merge_operator)?;
    Ok(Space::new(env, (id, found.name.into()), options, merging, settled, placement, budget))
}

/// Refuses options that contradict each other or themselves. From here on the user's objects are called
/// with care: `options` gets those, and so do the keyspaces' options that are given back.
pub(crate) fn check<'k>(
    options: &mut Options,
    keyspaces: &[(&'k str, KeyspaceOptions)],
) -> Result<Vec<(&'k str, KeyspaceOptions)>> {
    options.set_keyspace(&options.keyspace().guarded()?);
    options.validate()?;
    let guarded = |(name, own): &(&'k str, KeyspaceOptions)| Ok((*name, own.clone().guarded()?));
    let keyspaces = keyspaces.iter().map(guarded).collect::<Result<Vec<_>>>()?;
    let mut seen = BTreeSet::from([DEFAULT_KEYSPACE]);
    for (name, own) in &keyspaces {
        check_name(name)?;
        if *name == DEFAULT_KEYSPACE {
            return Err(Error::invalid("the default keyspace has its options among those of the database"));
        }
        if !seen.insert(name) {
            return Err(Error::invalid(format!("keyspace {name:?} is named twice")));
        }
        own.validate().map_err(|error| Error::invalid(format!("keyspace {name:?}: {}", error.message())))?;
    }
    Ok(keyspaces)
}

pub(crate) fn build(
    env: Arc<dyn Env>,
    dir: &Path,
    mut options: Options,
    keyspaces: &[(&str, KeyspaceOptions)],
    mut found: Found,
    (table_dirs, lock): (TableDirs, Box<dyn FileLock>),
    read_only: bool,
) -> Result<Arc<Engine>> {
    let events = Events::new(&env, &mut options, read_only);
    let blocks = Arc::new(BlockCache::new(options.block_cache_bytes));
    let graveyard = Arc::new(Graveyard::default());
    let write_budget = Arc::new(WriteBudget::new(options.write_buffers_total(), events.clone()));
    let may_create = options.create_if_missing && !read_only;
    let alive = make_spaces(env.as_ref(), dir, &options, keyspaces, &mut found, &write_budget, may_create)?;
    let shards = alive.spaces[0].shards();
    let io = env.start_io(&IoOptions { use_ring: options.use_io_uring, ..IoOptions::default() })?;
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
        hash_key: found.hash_key,
        logged: options.log,
        was_unlogged: found.unlogged.is_some() || !options.log,
        unlogged: parking_lot::Mutex::new(found.unlogged),
        voids: OnceLock::new(),
        format_version: found.format_version,
        read_only,
        space: alive.spaces[0].clone(),
        versions: VersionSet::reopened(env.as_ref(), found.manifest, alive.trees.clone()),
        keyspaces: Keyspaces::new(env.as_ref(), alive, found.next_keyspace),
        write_budget,
        commit: Commit::new(LogWriter::default(), found.last_seqno),
        log,
        pins: crate::pins::Pins::new(),
        scan_workers: crate::scan::workers::ScanWorkers::new(env.as_ref()),
        scheduler: Scheduler::new(env.as_ref()),
        handoff: Handoff::new(&env, &options)?,
        io,
        snapshots: Arc::new(SnapshotList::default()),
        tables: TableCache::new(options.open_tables_max, options.table_cache_bytes, env.event()),
        blocks,
        graveyard,
        metrics: Metrics::of_shards(shards),
        replay_start: found.replay_start,
        first_record_torn: found.first_record_torn,
        error: BackgroundError::new(events.clone()),
        events,
        next_file: AtomicU64::new(found.next_file.0),
        next_job: AtomicU64::new(1),
        closing: AtomicBool::new(false),
        writes_ended: AtomicBool::new(false),
        stopped: AtomicBool::new(false),
        rollbacks_asked: AtomicUsize::new(0),
        rollback_up_to: AtomicU64::new(0),
        inside: AtomicUsize::new(0),
        lock: parking_lot::Mutex::new(Some(lock)),
        dir: dir.to_path_buf(),
        table_dirs,
        options: LiveOptions::new(env.as_ref(), options),
        env,
    }))
}

/// Writes the OPTIONS file. A full disk does not keep a database from being opened for the sake of it.
fn save_options(engine: &Engine) -> Result<()> {
    match options::file::replace(engine, &options::live::all(engine)) {
        Err(error) if error.kind() == ErrorKind::NoSpace => Ok(()),
        outcome => outcome,
    }
}

/// Removes what an earlier opening left and nothing names: unfinished outputs, old manifests, log
/// segments that are not needed or were dropped as torn. Only files with names of ours.
fn remove_orphans(engine: &Engine) -> Result<()> {
    let fs = engine.env.fs();
    let views: Vec<_> = engine.keyspaces.alive().trees.iter().map(|tree| tree.view()).collect();
    let live: BTreeSet<TablePlace> =
        views.iter().flat_map(|view| view.version.all_tables()).map(|(_, table)| table.place()).collect();
    let segments = engine.log.numbers();
    let manifest = engine.versions.manifest_number();
    let is_orphan = |file: FileName| match file {
        FileName::Table(number) => !live.contains(&(0, number)),
        FileName::Log(number) => !segments.contains(&number),
        FileName::Manifest(number) => number != manifest,
        FileName::Temp(_) => true,
        _ => false,
    };
    remove_from(fs.as_ref(), &engine.dir, is_orphan)?;
    for (id, path) in engine.table_dirs.others() {
        let is_orphan = |file: FileName| match file {
            FileName::Table(number) => !live.contains(&(id, number)),
            FileName::Temp(_) => true,
            _ => false,
        };
        remove_from(fs.as_ref(), path, is_orphan)?;
    }
    Ok(())
}

/// Removes the files in `dir` that are to go.
fn remove_from(fs: &dyn Fs, dir: &Path, is_to_go: impl Fn(FileName) -> bool) -> Result<()> {
    let mut removed = false;
    for name in fs.list(dir)? {
        if FileName::parse(&name).is_some_and(&is_to_go) {
            fs.unlink(&dir.join(&name))?;
            removed = true;
        }
    }
    if removed { fs.sync_dir(dir) } else { Ok(()) }
}

/// Ends an opening's work: running jobs stop soon, workers are joined, and when this returns nobody
/// writes a file of the database any more, neither writers nor jobs on the user's threads. Nothing
/// is flushed. False if another thread has done it, or was doing it and is now done.
pub(crate) fn stop(engine: &Engine) -> bool {
    let ended = &engine.scheduler.ended;
    let first = !engine.closing.swap(true, Ordering::AcqRel);
    if !first && engine.events.is_delivering_here() {
        // Whoever closes waits for the listener that has called us.
        return false;
    }
    // Pairs with the fence in `Engine::enter`.
    fence(Ordering::SeqCst);
    if first {
        engine.wake_writers();
        engine.schedule();
        ended.notify();
        engine.handoff.limiter.close();
        engine.scheduler.stop();
        engine.scan_workers.stop();
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
        engine.handoff.stop();
        // Nobody submits any more but readers, who are refused from here on.
        engine.io.shutdown();
        events::close(engine);
        engine.stopped.store(true, Ordering::SeqCst);
        ended.notify();
    } else {
        engine.events.join_closer();
    }
    first
}
