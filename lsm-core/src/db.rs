//! The database handle: checks arguments, then calls the file that does the work.
//!
//! Calls without a keyspace mean the default one; `db/in_keyspace.rs` has the same for any.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dialsm_io::Env;
use dialsm_io::fs::{Access, LockMode};

use crate::batch::{Op, WriteBatch};
use crate::callback::Watch;
use crate::engine::Engine;
use crate::filename::FileName;
use crate::format::{FileHeader, FileKind, HEADER_BYTES};
use crate::handoff::ClueJobs;
use crate::iterator::DbIterator;
use crate::key::{Comparator, Kind};
use crate::merge_operator::no_operator;
use crate::metrics::{Counter, MetricsSnapshot};
use crate::options::{
    CompactRangeOptions, FlushOptions, KeyspaceOptions, Options, ReadOptions, WriteOptions,
};
use crate::read::get::{self, ReadContext};
use crate::read::multi_get;
use crate::scan::{Scan, ScanOptions};
use crate::snapshot::Snapshot;
use crate::space::Space;
use crate::verify::{BrokenClue, VerifyReport};
use crate::version::manifest::read_current;
use crate::write::admission::admit;
use crate::write::route::places;
use crate::write::stall::StallReport;
use crate::{Error, ErrorKind, Result, Slice, UpgradeReport, background, checkpoint, keyspace, manual, open};
use crate::{metrics, options, properties, read_only, rollback, table_dirs, upgrade, verify};

mod in_keyspace;

/// An open database: its keyspaces over one log. Cheap to clone, usable from all threads at once.
///
/// The database stays open until [`Db::close`] or until the last clone, iterator and snapshot-free
/// handle is dropped. Dropping closes without flushing: what was written is in the log.
#[derive(Clone)]
pub struct Db {
    pub(crate) handle: Arc<Handle>,
}

/// Shared by clones and iterators; the last one closes the database.
pub(crate) struct Handle {
    pub(crate) engine: Arc<Engine>,
    /// Iterators that still read; an explicit close leaves the lock to the last of them.
    pub(crate) iterators: AtomicUsize,
}

/// An iterator's share in the open database.
pub(crate) struct Reading(pub(crate) Arc<Handle>);

impl Reading {
    /// Counted first and then checked, so that a close either sees it or is seen.
    pub(crate) fn begin(handle: &Arc<Handle>) -> Result<Reading> {
        handle.iterators.fetch_add(1, Ordering::SeqCst);
        let reading = Reading(handle.clone());
        handle.engine.check_open()?;
        Ok(reading)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let engine = &self.0.engine;
        let last = self.0.iterators.fetch_sub(1, Ordering::SeqCst) == 1;
        // Not while the close is still under way: workers may write until it is over.
        if last && engine.stopped.load(Ordering::SeqCst) && engine.env.check_fork().is_ok() {
            engine.lock.lock().take();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.engine.env.check_fork().is_err() {
            // A child of fork() has the memory but not the threads, and must not touch a file.
            return;
        }
        // False if it was closed by hand: then everything is done.
        let _ = open::stop(&self.engine);
        self.engine.lock.lock().take();
    }
}

impl Db {
    /// Opens the database in `path`, creating it if the options say so. The file `LOCK` there keeps
    /// others out, in this process and in any other, as long as nobody removes it.
    ///
    /// # Errors
    /// `InvalidArgument` with every problem of the options; `Busy` if another process or handle has
    /// it open; `NotFound`, `AlreadyExists`, `ReadOnly`; `Corruption`, `Foreign` or `NewerFormat`
    /// with the file and offset.
    pub fn open(env: Arc<dyn Env>, path: &Path, options: Options) -> Result<Db> {
        Db::open_with(env, path, options, &[])
    }

    /// As [`Db::open`], with options of their own for the named keyspaces. Those that are not there are
    /// created, if the options say so of the database: all at once. Keyspaces that are there and not
    /// named have the options of the default one.
    ///
    /// # Errors
    /// As [`Db::open`]; `InvalidArgument` also where a keyspace is named twice, is the default one, or
    /// has its keys in another comparator's order; `NotFound` for one that may not be created.
    pub fn open_with(
        env: Arc<dyn Env>,
        path: &Path,
        options: Options,
        keyspaces: &[(&str, KeyspaceOptions)],
    ) -> Result<Db> {
        let engine = open::open(env, path, options, keyspaces)?;
        Ok(Db { handle: Arc::new(Handle { engine, iterators: AtomicUsize::new(0) }) })
    }

    /// Opens the database in `path` for reading only: nothing in the directory is changed, the log is
    /// replayed into memory and held there, and every call that would write fails with `ReadOnly`.
    /// Any number of such openings may be there at once, in this process and in others; one that
    /// writes excludes them, and they exclude it. `create_if_missing` and `error_if_exists` do not
    /// count.
    ///
    /// The directory may be read-only. The file `LOCK` must be there: without one nothing would hold
    /// off a writer, and none is made (a writer and a checkpoint leave one; an empty file will do).
    ///
    /// # Errors
    /// `NotFound` without a database, or without `LOCK`; `Busy` if it is open for writing; the others
    /// of [`Db::open`].
    pub fn open_read_only(env: Arc<dyn Env>, path: &Path, options: Options) -> Result<Db> {
        Db::open_read_only_with(env, path, options, &[])
    }

    /// As [`Db::open_read_only`], with options of their own for the named keyspaces. Those that are not
    /// named have the options of the default one.
    ///
    /// # Errors
    /// As [`Db::open_read_only`]; those of [`Db::open_with`] that speak of keyspaces, and `NotFound` for
    /// one that is not there.
    pub fn open_read_only_with(
        env: Arc<dyn Env>,
        path: &Path,
        options: Options,
        keyspaces: &[(&str, KeyspaceOptions)],
    ) -> Result<Db> {
        let engine = read_only::open(env, path, options, keyspaces)?;
        Ok(Db { handle: Arc::new(Handle { engine, iterators: AtomicUsize::new(0) }) })
    }

    /// Moves the database in `path`, which must not be open, to the newest format of this build. No
    /// opening does that by itself, and there is no way back. Nothing is written where there is
    /// nothing to do.
    ///
    /// # Errors
    /// `NotFound`, `Busy`; `NewerFormat` if a newer build made it; `Corruption`; those of the file
    /// system, after which the call can be made again.
    pub fn upgrade(env: &dyn Env, path: &Path) -> Result<UpgradeReport> {
        upgrade::upgrade(env, path)
    }

    /// Makes a second database in `target_dir`, which must not exist or be empty: what this one holds
    /// at a moment during the call. All that was acknowledged before the call is in it, and of what
    /// is written meanwhile each batch whole or not at all, in the order of commits. It is durable
    /// when this returns, and depends on this one no more: either may be changed or destroyed.
    ///
    /// Tables are hard links where the file system allows it, so that it costs little space and time;
    /// the log is copied. Memtables that hold writes which bypassed the log are flushed first.
    /// Snapshots are not kept. The copy has the same identity: files may be moved between the two.
    ///
    /// It is made in `target_dir` with `.unfinished-checkpoint` behind its name, which it takes for itself: a database that
    /// is found there, and is not open, counts as what an earlier attempt has left, and is removed.
    ///
    /// # Errors
    /// `AlreadyExists` if there is something in `target_dir`; `Busy` if another checkpoint is just
    /// being made there; `ReadOnly`, `Closed`, a background error; those of the file system. There is
    /// no database in `target_dir` then.
    pub fn checkpoint(&self, target_dir: &Path) -> Result<()> {
        checkpoint::checkpoint(self.engine(), target_dir)
    }

    fn engine(&self) -> &Arc<Engine> {
        &self.handle.engine
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn put(&self, options: &WriteOptions, key: &[u8], value: &[u8]) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.put(key, value)?;
        self.write(options, batch)
    }

    /// Removes `key`. It is no error if there is none.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn delete(&self, options: &WriteOptions, key: &[u8]) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.delete(key)?;
        self.write(options, batch)
    }

    /// Removes `key`, which the caller promises to have put only while it was absent: never over an
    /// older value or over operands. Merging onto it is allowed. If the promise does not hold, or the
    /// key was removed in other ways than this one, an older value may come back.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn single_delete(&self, options: &WriteOptions, key: &[u8]) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.single_delete(key)?;
        self.write(options, batch)
    }

    /// Adds `operand` to what the merge operator makes the value of `key` of.
    ///
    /// # Errors
    /// As [`Db::write`]; `InvalidArgument` without a merge operator.
    pub fn merge(&self, options: &WriteOptions, key: &[u8], operand: &[u8]) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.merge(key, operand)?;
        self.write(options, batch)
    }

    /// Removes all keys from `from` up to `to`, which stays, in the keyspace's order; one operation, as
    /// cheap as one delete, however many keys there are. It is no error if there are none. With `from`
    /// equal to `to` nothing is removed.
    ///
    /// # Errors
    /// As [`Db::write`]; `InvalidArgument` if `from` comes after `to`.
    pub fn delete_range(&self, options: &WriteOptions, from: &[u8], to: &[u8]) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.delete_range(from, to)?;
        self.write(options, batch)
    }

    /// Applies all operations of `batch`, at once to every reader, whole or not at all after a
    /// crash. Waits while writes are stalled.
    ///
    /// # Errors
    /// `ReadOnly`; `NotFound` if an operation names a keyspace that is not there; `WouldStall`,
    /// `TimedOut` as the options ask; `NoSpace` while the disk is full; `Poisoned`
    /// after a lasting background error; `Closed`; `Unsupported` for operations this build cannot
    /// serve, `InvalidArgument` for a merge without a merge operator or a range that ends before it
    /// starts. Nothing of the batch is visible then. Where the log itself failed (`Io`, `NoSpace`),
    /// its record may stand there all the same, and the next opening then finds it, whole.
    /// `Callback` for a key that the keyspace's comparator panics at or does not find equal to
    /// itself; if it panics later, over the order of keys that it took singly, writes stop, and the
    /// next opening finds the batch.
    pub fn write(&self, options: &WriteOptions, batch: WriteBatch) -> Result<()> {
        let engine = self.engine();
        engine.check_writable()?;
        if batch.is_empty() {
            return Ok(());
        }
        let is_logged = engine.is_logged() && !options.disable_log;
        if options.sync && !is_logged {
            return Err(Error::invalid("a write can't be synced with the log disabled"));
        }
        let since = engine.metrics.count_call(Counter::WriteCalls).then(|| engine.env.now());
        check_served(engine, &batch)?;
        let places = places(engine, &batch);
        admit(engine, &batch, &places, options)?;
        engine.commit.write(engine, (batch, places), options.sync, is_logged)?;
        if let Some(since) = since {
            engine.metrics.write_ns.record(engine.env.now() - since);
        }
        Ok(())
    }

    /// The value of `key`, or `None`.
    ///
    /// # Errors
    /// `Corruption` with file and offset, `Io`, `Closed`, `TimedOut` past the options' deadline. For a
    /// key with operands, `Callback` if the merge operator fails, `InvalidArgument` without one.
    pub fn get(&self, options: &ReadOptions, key: &[u8]) -> Result<Option<Slice>> {
        self.get_from(&self.engine().space, options, key, None)
    }

    /// As [`Db::get`], adding to `context` what the read cost.
    ///
    /// # Errors
    /// As [`Db::get`].
    pub fn get_with_context(
        &self,
        options: &ReadOptions,
        key: &[u8],
        context: &mut ReadContext,
    ) -> Result<Option<Slice>> {
        self.get_from(&self.engine().space, options, key, Some(context))
    }

    fn get_from(
        &self,
        space: &Space,
        options: &ReadOptions,
        key: &[u8],
        context: Option<&mut ReadContext>,
    ) -> Result<Option<Slice>> {
        let engine = self.engine();
        engine.check_open()?;
        engine.check_deadline(options.deadline)?;
        match &options.snapshot {
            Some(snapshot) => {
                self.check_snapshot(snapshot)?;
                let view = space.view();
                engine.check_keyspace(space)?;
                get::get(engine, space, &view, key, snapshot.seqno(), options, context)
            }
            None => {
                let (view, seqno) = space.view_at_visible(engine.commit.visible());
                engine.check_keyspace(space)?;
                get::get(engine, space, &view, key, seqno, options, context)
            }
        }
    }

    /// The values of several keys, in their order, all read from one view. Blocks that have to come from
    /// the disk are read together, so that many cold keys cost little more than one.
    ///
    /// # Errors
    /// As [`Db::get`], for the first of the keys that fails.
    pub fn multi_get(&self, options: &ReadOptions, keys: &[&[u8]]) -> Result<Vec<Option<Slice>>> {
        self.multi_get_from(&self.engine().space, options, keys, None)
    }

    /// As [`Db::multi_get`], adding to `context` what the reads cost together.
    ///
    /// # Errors
    /// As [`Db::multi_get`].
    pub fn multi_get_with_context(
        &self,
        options: &ReadOptions,
        keys: &[&[u8]],
        context: &mut ReadContext,
    ) -> Result<Vec<Option<Slice>>> {
        self.multi_get_from(&self.engine().space, options, keys, Some(context))
    }

    fn multi_get_from(
        &self,
        space: &Space,
        options: &ReadOptions,
        keys: &[&[u8]],
        context: Option<&mut ReadContext>,
    ) -> Result<Vec<Option<Slice>>> {
        let engine = self.engine();
        engine.check_open()?;
        let mut cost = ReadContext::default();
        let (view, visible) = space.view_at_visible(engine.commit.visible());
        engine.check_keyspace(space)?;
        let seqno = match &options.snapshot {
            Some(snapshot) => {
                self.check_snapshot(snapshot)?;
                snapshot.seqno()
            }
            None => visible,
        };
        let values = multi_get::multi_get(engine, space, &view, keys, seqno, options, &mut cost);
        let mine = engine.metrics.mine();
        mine.add(Counter::Gets, keys.len() as u64);
        mine.add_reads(&cost.blocks);
        if space.note_gets(keys.len() as u64) {
            engine.schedule();
        }
        if let Some(context) = context {
            context.add(&cost);
        }
        values
    }

    /// A cursor over the keys, in order, as they are now or at the options' snapshot. It stands
    /// nowhere until it is positioned.
    ///
    /// # Errors
    /// `InvalidArgument` for a snapshot of another database, `Closed`, or those of opening tables.
    pub fn iter(&self, options: &ReadOptions) -> Result<DbIterator> {
        self.iter_from(&self.engine().space, options)
    }

    fn iter_from(&self, space: &Arc<Space>, options: &ReadOptions) -> Result<DbIterator> {
        let reading = Reading::begin(&self.handle)?;
        if let Some(snapshot) = &options.snapshot {
            self.check_snapshot(snapshot)?;
        }
        DbIterator::new(reading, space, options)
    }

    /// A range of keys in batches, in order, as they are now or at the options' snapshot: for reading much at
    /// once. Where a scan is long, other threads may read ahead for it: see [`ScanOptions`].
    ///
    /// # Errors
    /// As [`Db::iter`].
    pub fn scan(&self, options: &ReadOptions, scan: &ScanOptions) -> Result<Scan> {
        self.scan_from(&self.engine().space, options, scan)
    }

    fn scan_from(&self, space: &Arc<Space>, options: &ReadOptions, scan: &ScanOptions) -> Result<Scan> {
        let reading = Reading::begin(&self.handle)?;
        if let Some(snapshot) = &options.snapshot {
            self.check_snapshot(snapshot)?;
        }
        Scan::new(reading, space, options, scan)
    }

    /// A handle on what is visible now, in all keyspaces; see [`Snapshot`].
    pub fn snapshot(&self) -> Snapshot {
        let engine = self.engine();
        engine.snapshots.take(engine.commit.visible())
    }

    fn check_snapshot(&self, snapshot: &Snapshot) -> Result<()> {
        if snapshot.belongs_to(&self.engine().snapshots) {
            return Ok(());
        }
        Err(Error::invalid("the snapshot belongs to another database"))
    }

    /// Writes all memtables of the default keyspace into tables and returns when the manifest that
    /// names them is durable.
    ///
    /// # Errors
    /// Those of the file system, `Closed`, or a background error.
    pub fn flush(&self) -> Result<()> {
        self.flush_with(&FlushOptions::default())
    }

    /// As [`Db::flush`], as the options say.
    ///
    /// # Errors
    /// As [`Db::flush`].
    pub fn flush_with(&self, options: &FlushOptions) -> Result<()> {
        let engine = self.engine();
        manual::flush(engine, &engine.space.trees, options)
    }

    /// Makes durable all that was written before the call: syncs the log. Writes that bypassed it
    /// need [`Db::flush_all`].
    ///
    /// # Errors
    /// Those of the file system; the database takes no more writes then.
    pub fn sync(&self) -> Result<()> {
        let engine = self.engine();
        let _inside = engine.enter()?;
        manual::sync_log(engine)
    }

    /// Compacts all tables of the default keyspace that meet `from..to` down to the last level, deleted and overwritten
    /// entries dropped as far as no snapshot holds them. `None` is unbounded. Flushes first.
    ///
    /// # Errors
    /// `Cancelled` through the options' flag or by closing; those of the files.
    pub fn compact_range(
        &self,
        options: &CompactRangeOptions,
        from: Option<&[u8]>,
        to: Option<&[u8]>,
    ) -> Result<()> {
        let engine = self.engine();
        manual::compact_range(engine, &engine.space, options, from, to)
    }

    /// Replaces the clue entries that are there now, those of writes that have returned, by the values they
    /// stand for, in their own shards. Returns when no table has one of these any more; writes go on meanwhile
    /// and may bring new ones, which are not waited for. Without more than one shard there is nothing to do.
    ///
    /// # Errors
    /// `Closed`, `ReadOnly`, or the background error that is in the way.
    pub fn rollback(&self) -> Result<()> {
        rollback::run(self.engine())
    }

    /// Fails where every call that can fail would: for callers of those that can not.
    ///
    /// # Errors
    /// `Closed`, or `Forked` in a child process.
    pub fn check_open(&self) -> Result<()> {
        self.engine().check_open()
    }

    /// Whether no flush and no compaction is running or due.
    pub fn is_idle(&self) -> bool {
        background::is_idle(self.engine())
    }

    /// Waits until no flush and no compaction is running or due.
    ///
    /// # Errors
    /// `Closed`, or the background error that keeps it from ever being so.
    pub fn wait_until_idle(&self) -> Result<()> {
        background::wait_until_idle(self.engine())
    }

    /// Flushes and compactions that are live and not yet in the durable manifest. For tests, which
    /// ask it inside calls on files, too: it waits for nothing.
    #[doc(hidden)]
    pub fn unsettled_installs(&self) -> usize {
        self.engine().versions.unsettled()
    }

    /// Rollbacks and collections under way. As [`Db::unsettled_installs`].
    #[doc(hidden)]
    pub fn clue_jobs(&self) -> ClueJobs {
        self.engine().handoff.retained.clue_jobs()
    }

    /// A property of the database by name, as text: of all keyspaces together, where each has its own.
    /// `None` for a name that is not known. See [`Db::properties`].
    pub fn property(&self, name: &str) -> Option<String> {
        let engine = self.engine();
        properties::get(engine, &engine.keyspaces.alive().trees, name)
    }

    /// The names that [`Db::property`] knows.
    pub fn properties() -> &'static [&'static str] {
        properties::NAMES
    }

    /// Counters, levels, stalls and caches as a table to read.
    pub fn stats_text(&self) -> String {
        let engine = self.engine();
        metrics::collect(engine, &engine.keyspaces.alive().trees).to_text()
    }

    /// The same as one JSON object.
    pub fn stats_json(&self) -> String {
        let engine = self.engine();
        properties::stats_json(engine, &engine.keyspaces.alive().trees)
    }

    /// All metrics now: what was counted since the opening, and where the database stands. Each part is asked for
    /// itself, without waiting for writers, readers or jobs. They write themselves as tables
    /// ([`MetricsSnapshot::to_text`]), JSON ([`MetricsSnapshot::to_json`]) and for Prometheus
    /// ([`MetricsSnapshot::to_prometheus`]); docs/METRICS.md lists them.
    pub fn metrics(&self) -> MetricsSnapshot {
        let engine = self.engine();
        metrics::collect(engine, &engine.keyspaces.alive().trees)
    }

    /// Compactions finished so far, moves included.
    pub fn compactions(&self) -> u64 {
        let metrics = self.engine().metrics.snapshot();
        metrics.counters.trivial_moves + metrics.levels.iter().map(|level| level.compactions).sum::<u64>()
    }

    /// Stalls so far, by cause, of all keyspaces together.
    pub fn stalls(&self) -> StallReport {
        let engine = self.engine();
        properties::stalls(engine, &engine.keyspaces.alive().trees)
    }

    /// The options in force now; [`Db::set_options`] puts others in their place.
    pub fn options(&self) -> Arc<Options> {
        self.engine().options.now()
    }

    /// Changes options of the open database and of its default keyspace: for each pair, name and value in
    /// text form. All take effect at once, or none does. Only those that the table calls *live* can be changed; what was
    /// sized by an old value (a table, a log segment, a memtable that is in use) ends as it began.
    /// The change is for this opening: the next one goes by the options it is given. See
    /// [`Options::load`].
    ///
    /// # Errors
    /// One `InvalidArgument` that names every problem: no such option, not live, named twice, not a
    /// value in its range, or in contradiction to another option. `ReadOnly`, `Closed`. Those of the
    /// file system when the OPTIONS file can't be written, and of the system when a worker can't be
    /// started.
    pub fn set_options(&self, changes: &[(&str, &str)]) -> Result<()> {
        options::live::set(self.engine(), changes)
    }

    /// Reads every table whole and checks blocks, order, bounds, counts, filters and the checksums
    /// that the manifest keeps; then whether every clue entry leads to its value.
    ///
    /// # Errors
    /// `Corruption` with file and offset at the first finding; [`Db::broken_clues`] lists all clues that
    /// lead to nothing.
    pub fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
        verify::verify(self.engine(), progress)
    }

    /// The clue entries of all keyspaces that do not lead to their values, as of now: none, unless tables were
    /// lost or changed. Reads all tables with clues and, for each clue, where its value should be; nothing is
    /// repaired. Writes go on meanwhile.
    ///
    /// # Errors
    /// `Closed`; those of the files, and `Corruption` where one of these tables can't be read.
    pub fn broken_clues(&self) -> Result<Vec<BrokenClue>> {
        verify::broken_clues(self.engine())
    }

    /// Closes the database for all clones: running jobs stop soon, later calls fail with `Closed`.
    /// The log is synced; memtables are not flushed, unless they hold writes that bypassed the log.
    /// Iterators that are still open keep the directory locked until they are dropped.
    ///
    /// # Errors
    /// Those of the last sync or flush. The database is closed all the same.
    pub fn close(&self) -> Result<()> {
        let engine = self.engine();
        engine.check_open()?;
        let saved = manual::end_writes(engine);
        if !open::stop(engine) {
            return Err(Error::new(ErrorKind::Closed, "another thread has closed the database"));
        }
        let saved = saved.and(manual::sync_log(engine));
        engine.log.drop_spares();
        if self.handle.iterators.load(Ordering::SeqCst) == 0 {
            engine.lock.lock().take();
        }
        saved
    }

    /// Removes a database and all its files; the directory too, if nothing else is in it. Its shard
    /// directories are emptied, too, where they still are what and where they were when it was opened last.
    ///
    /// # Errors
    /// `Busy` if it is open; `Foreign`, with nothing removed, if the files are those of another
    /// engine that uses the same names, or of a shard; those of the file system. A directory without a database is no error.
    pub fn destroy(env: &dyn Env, path: &Path) -> Result<()> {
        Db::destroy_with(env, path, &[])
    }

    /// The same for a database some of whose [`Options::shard_dirs`] have moved since: `shard_dirs` says
    /// where they are now. Those that are neither there nor where they were keep their files.
    ///
    /// # Errors
    /// Those of [`Db::destroy`]; `Foreign`, with nothing removed, if one of `shard_dirs` is another
    /// database's.
    pub fn destroy_with(env: &dyn Env, path: &Path, shard_dirs: &[PathBuf]) -> Result<()> {
        env.check_fork()?;
        let fs = env.fs();
        if !fs.exists(path)? {
            return Ok(());
        }
        let lock = fs.lock(&FileName::Lock.path(path), LockMode::Exclusive)?;
        refuse_foreign(fs.as_ref(), path)?;
        if fs.exists(&FileName::ShardDir.path(path))? {
            let text = "a shard directory goes with the database that it belongs to";
            return Err(Error::new(ErrorKind::Foreign, text).at_path(path));
        }
        let doomed = table_dirs::find_for_removal(fs.as_ref(), path, shard_dirs)?;
        let mut names = fs.list(path)?;
        // CURRENT first: a crash in between leaves orphans, never half a database that opens.
        names.sort_by_key(|name| name != crate::filename::CURRENT);
        let kept = |file: &FileName| matches!(file, FileName::Lock | FileName::ShardDirs);
        for name in &names {
            if FileName::parse(name).is_some_and(|parsed| !kept(&parsed)) {
                fs.unlink(&path.join(name))?;
            }
        }
        fs.sync_dir(path)?;
        if names.contains(&FileName::ShardDirs.to_string()) {
            table_dirs::remove_found(fs.as_ref(), doomed)?;
            // What said which those are goes last.
            fs.unlink(&FileName::ShardDirs.path(path))?;
            fs.sync_dir(path)?;
        }
        fs.unlink(&FileName::Lock.path(path))?;
        drop(lock);
        match fs.remove_dir(path) {
            Err(error) if fs.list(path).is_ok_and(|left| left.is_empty()) => Err(error),
            _ => Ok(()),
        }
    }
}

/// Fails if the manifest that CURRENT names is no manifest of ours: other engines name their files
/// alike. One of ours that is damaged is no reason to keep it.
fn refuse_foreign(fs: &dyn dialsm_io::Fs, dir: &Path) -> Result<()> {
    let Ok((_, path)) = read_current(fs, dir) else { return Ok(()) };
    let Ok(file) = fs.open(&path, Access::Read) else { return Ok(()) };
    let mut bytes = [0; HEADER_BYTES];
    let got = file.read_at(&mut bytes, 0)?;
    match FileHeader::decode(&bytes[..got], FileKind::Manifest) {
        Err(error) if error.kind() == ErrorKind::Foreign => Err(error.at_path(&path)),
        _ => Ok(()),
    }
}

/// Whether the order of the keyspace's keys is the user's.
fn is_custom(space: &Space) -> bool {
    matches!(space.comparator, Comparator::Custom(_))
}

/// Refuses operations that could be logged but not served, and keys that the user's comparator can
/// do nothing with, before they are in the log: they would be there at the next opening, too.
fn check_served(engine: &Engine, batch: &WriteBatch) -> Result<()> {
    if batch.is_plain() && batch.others().is_empty() && !is_custom(&engine.space) {
        return Ok(());
    }
    let alive = engine.keyspaces.alive();
    let custom = |id: &u32| alive.by_id(*id).is_some_and(|space| is_custom(space));
    if batch.is_plain() && !batch.others().iter().any(custom) && !is_custom(&engine.space) {
        return Ok(());
    }
    for op in batch.iter() {
        let op = op?;
        let space = alive.by_id(op.keyspace).ok_or_else(|| keyspace::unknown(op.keyspace))?;
        let watch = Watch::begin(&space.comparator);
        let served = check_operation(space, &op);
        watch.check()?;
        served?;
    }
    Ok(())
}

fn check_operation(space: &Space, op: &Op<'_>) -> Result<()> {
    // The value of a range delete is the key that ends it.
    let end = (op.kind == Kind::RangeDelete).then_some(op.value);
    let is_itself = |key: &[u8]| space.comparator.compare(key, key).is_eq();
    if is_custom(space) && !(is_itself(op.key) && end.is_none_or(is_itself)) {
        return Err(Error::new(ErrorKind::Callback, "the comparator does not find a key equal to itself"));
    }
    match op.kind {
        Kind::Merge if space.merging.operator.is_none() => Err(no_operator()),
        Kind::RangeDelete if space.comparator.compare(op.key, op.value).is_gt() => {
            Err(Error::invalid("a range delete ends before it starts"))
        }
        Kind::Put | Kind::Delete | Kind::SingleDelete | Kind::Merge | Kind::RangeDelete => Ok(()),
        kind => {
            let text = format!("operations of kind {kind:?} are not served yet");
            Err(Error::new(ErrorKind::Unsupported, text))
        }
    }
}
