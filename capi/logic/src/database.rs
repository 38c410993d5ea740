//! An open database as C holds it, and what hangs on it.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dialsm::{Error, ErrorKind, Keyspace, ReadOptions, Result, Slice, Snapshot, UpgradeReport};
use dialsm_io::env::{Fork, Nanos};
use dialsm_io::{Env, OsEnv};

use crate::figures::{ClueReport, StallFigures, StallState, VerifyFigures};
use crate::guard::Opened;
use crate::iterator::{Iter, ScanHandle};
use crate::options::{CompactOpts, FlushOpts, OptionSet, ReadOpts, ScanOpts, WriteOpts};
use crate::{Batch, Names};

/// What all handles on one database share; the last of them closes it.
pub struct Shared {
    db: dialsm::Db,
    env: Arc<dyn Env>,
    poisoned: AtomicBool,
    fork: Fork,
    /// Which opening of this process it is; no two have the same.
    opening: u64,
    /// For calls without options: made once, since every read would pay for it.
    pub(crate) default_read: ReadOptions,
}

static OPENINGS: AtomicU64 = AtomicU64::new(1);

impl Shared {
    fn new(db: dialsm::Db, env: Arc<dyn Env>) -> Arc<Shared> {
        Arc::new(Shared {
            db,
            env,
            poisoned: AtomicBool::new(false),
            fork: Fork::here(),
            opening: OPENINGS.fetch_add(1, Ordering::Relaxed),
            default_read: ReadOptions::default(),
        })
    }

    /// Whether handles may be used: no call panicked, and this is the process that opened it.
    #[inline]
    pub(crate) fn is_usable(&self) -> bool {
        !self.is_forked() && !self.poisoned.load(Ordering::Acquire)
    }

    /// Whether this is a child of the process that opened it.
    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        self.fork.is_child()
    }

    /// Why handles may not be used.
    #[cold]
    pub(crate) fn why_unusable(&self) -> Error {
        let poisoned = || Error::new(ErrorKind::Poisoned, "an earlier call on this database panicked");
        self.fork.check().err().unwrap_or_else(poisoned)
    }

    /// Lets every later call fail: what the one that panicked left half done is not known.
    #[cold]
    pub(crate) fn poison(&self) {
        self.poisoned.store(true, Ordering::Release);
    }

    /// The moment `timeout_ns` from now.
    pub(crate) fn deadline(&self, timeout_ns: u64) -> Nanos {
        self.env.now().saturating_add(timeout_ns)
    }
}

/// An open database. Usable from all threads at once.
pub struct Database(Arc<Shared>);

/// A keyspace of an open database. Usable from all threads at once.
pub struct KeyspaceHandle {
    pub(crate) keyspace: Keyspace,
    shared: Arc<Shared>,
}

/// What was visible at one moment. Usable from all threads at once.
pub struct SnapshotHandle {
    pub(crate) snapshot: Snapshot,
    shared: Arc<Shared>,
}

impl KeyspaceHandle {
    /// The keyspace.
    pub fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }

    /// The opening that it belongs to.
    pub(crate) fn opening(&self) -> u64 {
        self.shared.opening
    }
}

impl Opened for KeyspaceHandle {
    fn is_forked(&self) -> bool {
        self.shared.is_forked()
    }
}

impl SnapshotHandle {
    /// The snapshot.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Knows the process that opened its database.
    pub(crate) fn fork(&self) -> &Fork {
        &self.shared.fork
    }
}

impl Opened for SnapshotHandle {
    fn is_forked(&self) -> bool {
        self.shared.is_forked()
    }
}

impl Deref for Database {
    type Target = Shared;
    #[inline]
    fn deref(&self) -> &Shared {
        &self.0
    }
}

type Space<'a> = Option<&'a KeyspaceHandle>;

/// Calls without a keyspace mean the default one; calls without options, the default ones.
impl Database {
    /// Opens or creates it, in the world that `env` stands for.
    ///
    /// # Errors
    /// As [`dialsm::Db::open_in`].
    pub fn open_in(env: Arc<dyn Env>, path: &Path, options: Option<&OptionSet>) -> Result<Database> {
        let (options, keyspaces) = OptionSet::for_opening(options)?;
        let named: Vec<_> =
            keyspaces.iter().map(|(name, options)| (name.as_str(), options.clone())).collect();
        let db = dialsm::Db::open_in(env.clone(), path, options, &named)?;
        Ok(Database(Shared::new(db, env)))
    }

    /// Opens or creates it in the file system.
    ///
    /// # Errors
    /// As [`dialsm::Db::open_in`].
    pub fn open(path: &str, options: Option<&OptionSet>) -> Result<Database> {
        Database::open_in(OsEnv::new(), Path::new(path), options)
    }

    /// Opens it for reading only.
    ///
    /// # Errors
    /// As [`dialsm::Db::open_read_only`].
    pub fn open_read_only(path: &str, options: Option<&OptionSet>) -> Result<Database> {
        let (options, keyspaces) = OptionSet::for_opening(options)?;
        let named: Vec<_> =
            keyspaces.iter().map(|(name, options)| (name.as_str(), options.clone())).collect();
        // One clock for both: a read's time-out is reckoned by ours and looked at by the engine's.
        let env: Arc<dyn Env> = OsEnv::new();
        let db = dialsm::Db::open_read_only_in(env.clone(), Path::new(path), options, &named)?;
        Ok(Database(Shared::new(db, env)))
    }

    /// Closes it for all handles.
    ///
    /// # Errors
    /// As [`dialsm_core::Db::close`].
    pub fn close(&self) -> Result<()> {
        self.0.db.close()
    }

    /// Removes the database in `path`.
    ///
    /// # Errors
    /// As [`dialsm::Db::destroy`].
    pub fn destroy(path: &str) -> Result<()> {
        dialsm::Db::destroy(path)
    }

    /// Moves the database in `path` to the newest format of this build.
    ///
    /// # Errors
    /// As [`dialsm_core::Db::upgrade`].
    pub fn upgrade(path: &str) -> Result<UpgradeReport> {
        let env: Arc<dyn Env> = OsEnv::new();
        dialsm_core::Db::upgrade(env.as_ref(), Path::new(path))
    }

    /// Names of the keyspaces of the database in `path`.
    ///
    /// # Errors
    /// As [`dialsm_core::Db::list_keyspaces`].
    pub fn list_keyspaces(path: &str) -> Result<Names> {
        let env: Arc<dyn Env> = OsEnv::new();
        dialsm_core::Db::list_keyspaces(env.as_ref(), Path::new(path)).map(Names::new)
    }

    /// The engine's own handle, for what has no call here.
    pub fn engine(&self) -> &dialsm::Db {
        &self.0.db
    }

    pub(crate) fn share(&self) -> Arc<Shared> {
        self.0.clone()
    }

    // Keyspaces.

    /// Creates a keyspace.
    ///
    /// # Errors
    /// As [`dialsm_core::Db::create_keyspace`]; `InvalidArgument` for options of a whole database.
    pub fn create_keyspace(&self, name: &str, options: Option<&OptionSet>) -> Result<KeyspaceHandle> {
        let keyspace = self.0.db.create_keyspace(name, OptionSet::for_keyspace(options)?)?;
        Ok(KeyspaceHandle { keyspace, shared: self.share() })
    }

    /// The keyspace with that name.
    ///
    /// # Errors
    /// `NotFound`, `Closed`.
    pub fn keyspace(&self, name: &str) -> Result<KeyspaceHandle> {
        self.0.db.check_open()?;
        let found = self.0.db.keyspace(name);
        let absent = || Error::new(ErrorKind::NotFound, format!("there is no keyspace {name:?}"));
        Ok(KeyspaceHandle { keyspace: found.ok_or_else(absent)?, shared: self.share() })
    }

    /// Drops a keyspace with all that is in it.
    ///
    /// # Errors
    /// As [`dialsm_core::Db::drop_keyspace`].
    pub fn drop_keyspace(&self, keyspace: &KeyspaceHandle) -> Result<()> {
        self.0.db.drop_keyspace(&keyspace.keyspace)
    }

    /// Names of all keyspaces.
    ///
    /// # Errors
    /// `Closed`.
    pub fn keyspaces(&self) -> Result<Names> {
        self.0.db.check_open()?;
        Ok(Names::new(self.0.db.keyspaces()))
    }

    // Writes.

    /// Sets a key.
    ///
    /// # Errors
    /// As [`dialsm_core::Db::put_in`]; so for the other writes.
    #[inline]
    pub fn put(&self, space: Space<'_>, options: Option<&WriteOpts>, key: &[u8], value: &[u8]) -> Result<()> {
        let options = WriteOpts::for_call(options, self);
        match space {
            None => self.0.db.put(&options, key, value),
            Some(space) => self.0.db.put_in(&options, &space.keyspace, key, value),
        }
    }

    /// Removes a key.
    ///
    /// # Errors
    /// As [`Database::put`].
    pub fn delete(&self, space: Space<'_>, options: Option<&WriteOpts>, key: &[u8]) -> Result<()> {
        let options = WriteOpts::for_call(options, self);
        match space {
            None => self.0.db.delete(&options, key),
            Some(space) => self.0.db.delete_in(&options, &space.keyspace, key),
        }
    }

    /// Removes a key that was put once.
    ///
    /// # Errors
    /// As [`Database::put`].
    pub fn single_delete(&self, space: Space<'_>, options: Option<&WriteOpts>, key: &[u8]) -> Result<()> {
        let options = WriteOpts::for_call(options, self);
        match space {
            None => self.0.db.single_delete(&options, key),
            Some(space) => self.0.db.single_delete_in(&options, &space.keyspace, key),
        }
    }

    /// Removes a range of keys.
    ///
    /// # Errors
    /// As [`Database::put`].
    pub fn delete_range(
        &self,
        space: Space<'_>,
        options: Option<&WriteOpts>,
        from: &[u8],
        to: &[u8],
    ) -> Result<()> {
        let options = WriteOpts::for_call(options, self);
        match space {
            None => self.0.db.delete_range(&options, from, to),
            Some(space) => self.0.db.delete_range_in(&options, &space.keyspace, from, to),
        }
    }

    /// Adds an operand.
    ///
    /// # Errors
    /// As [`Database::put`].
    pub fn merge(
        &self,
        space: Space<'_>,
        options: Option<&WriteOpts>,
        key: &[u8],
        operand: &[u8],
    ) -> Result<()> {
        let options = WriteOpts::for_call(options, self);
        match space {
            None => self.0.db.merge(&options, key, operand),
            Some(space) => self.0.db.merge_in(&options, &space.keyspace, key, operand),
        }
    }

    /// Applies a batch, which stays what it is.
    ///
    /// # Errors
    /// As [`dialsm_core::Db::write`]; `OutOfMemory`; `InvalidArgument` where its keyspaces are those of another
    /// database or opening.
    pub fn write(&self, options: Option<&WriteOpts>, batch: &Batch) -> Result<()> {
        batch.check_opening(self.opening)?;
        self.0.db.write(&WriteOpts::for_call(options, self), batch.operations().try_clone()?)
    }

    // Reads.

    /// The value of a key.
    ///
    /// # Errors
    /// As [`dialsm_core::Db::get_in`].
    #[inline]
    pub fn get(&self, space: Space<'_>, options: Option<&ReadOpts>, key: &[u8]) -> Result<Option<Slice>> {
        ReadOpts::for_call(options, self, |options| match space {
            None => self.0.db.get(options, key),
            Some(space) => self.0.db.get_in(options, &space.keyspace, key),
        })
    }

    /// The values of several keys.
    ///
    /// # Errors
    /// As [`dialsm_core::Db::multi_get_in`].
    pub fn multi_get(
        &self,
        space: Space<'_>,
        options: Option<&ReadOpts>,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Slice>>> {
        ReadOpts::for_call(options, self, |options| match space {
            None => self.0.db.multi_get(options, keys),
            Some(space) => self.0.db.multi_get_in(options, &space.keyspace, keys),
        })
    }

    /// What is visible now.
    ///
    /// # Errors
    /// `Closed`, `Forked`.
    pub fn snapshot(&self) -> Result<SnapshotHandle> {
        self.0.db.check_open()?;
        Ok(SnapshotHandle { snapshot: self.0.db.snapshot(), shared: self.share() })
    }

    /// A cursor.
    ///
    /// # Errors
    /// As [`dialsm_core::Db::iter_in`].
    pub fn iter(&self, space: Space<'_>, options: Option<&ReadOpts>) -> Result<Iter> {
        let inner = ReadOpts::for_call(options, self, |options| match space {
            None => self.0.db.iter(options),
            Some(space) => self.0.db.iter_in(options, &space.keyspace),
        })?;
        Ok(Iter::new(self.share(), inner))
    }

    /// Cursors of one moment, one over each keyspace.
    ///
    /// # Errors
    /// As [`dialsm_core::Db::iters`].
    pub fn iters(&self, spaces: &[Space<'_>], options: Option<&ReadOpts>) -> Result<Vec<Iter>> {
        let default = self.0.db.default_keyspace();
        let spaces: Vec<&Keyspace> =
            spaces.iter().map(|space| space.map_or(&default, |space| &space.keyspace)).collect();
        let all = ReadOpts::for_call(options, self, |options| self.0.db.iters(options, &spaces))?;
        Ok(all.into_iter().map(|inner| Iter::new(self.share(), inner)).collect())
    }

    /// A bulk scan.
    ///
    /// # Errors
    /// As [`dialsm_core::Db::scan_in`].
    pub fn scan(
        &self,
        space: Space<'_>,
        options: Option<&ReadOpts>,
        scan: Option<&ScanOpts>,
    ) -> Result<ScanHandle> {
        let default = ScanOpts::default();
        let scan = &scan.unwrap_or(&default).options;
        let inner = ReadOpts::for_call(options, self, |options| match space {
            None => self.0.db.scan(options, scan),
            Some(space) => self.0.db.scan_in(options, &space.keyspace, scan),
        })?;
        Ok(ScanHandle::new(self.share(), inner))
    }

    // Upkeep.

    /// Flushes a keyspace.
    ///
    /// # Errors
    /// As [`dialsm_core::Db::flush_in`].
    pub fn flush(&self, space: Space<'_>, options: Option<&FlushOpts>) -> Result<()> {
        let options = options.map_or_else(Default::default, |options| options.options);
        match space {
            None => self.0.db.flush_with(&options),
            Some(space) => self.0.db.flush_in(&options, &space.keyspace),
        }
    }

    /// Flushes all keyspaces.
    ///
    /// # Errors
    /// As [`dialsm_core::Db::flush_all`].
    pub fn flush_all(&self, options: Option<&FlushOpts>) -> Result<()> {
        self.0.db.flush_all(&options.map_or_else(Default::default, |options| options.options))
    }

    /// Syncs the log.
    ///
    /// # Errors
    /// As [`dialsm_core::Db::sync`].
    pub fn sync(&self) -> Result<()> {
        self.0.db.sync()
    }

    /// Compacts a range of keys.
    ///
    /// # Errors
    /// As [`dialsm_core::Db::compact_range_in`]; `Cancelled` also where there would be nothing to do.
    pub fn compact_range(
        &self,
        space: Space<'_>,
        options: Option<&CompactOpts>,
        from: Option<&[u8]>,
        to: Option<&[u8]>,
    ) -> Result<()> {
        let default = CompactOpts::default();
        let options = &options.unwrap_or(&default).options;
        // The engine looks from time to time, and may be done before it does.
        if options.cancel.as_ref().is_some_and(|cancel| cancel.load(Ordering::Acquire)) {
            return Err(Error::new(ErrorKind::Cancelled, "the compaction was cancelled before it began"));
        }
        match space {
            None => self.0.db.compact_range(options, from, to),
            Some(space) => self.0.db.compact_range_in(options, &space.keyspace, from, to),
        }
    }

    /// Brings all redirected values home.
    ///
    /// # Errors
    /// As [`dialsm_core::Db::rollback`].
    pub fn rollback(&self) -> Result<()> {
        self.0.db.rollback()
    }

    /// Whether nothing runs in the background.
    ///
    /// # Errors
    /// `Closed`.
    pub fn is_idle(&self) -> Result<bool> {
        self.0.db.check_open()?;
        Ok(self.0.db.is_idle())
    }

    /// Waits for it.
    ///
    /// # Errors
    /// As [`dialsm_core::Db::wait_until_idle`].
    pub fn wait_until_idle(&self) -> Result<()> {
        self.0.db.wait_until_idle()
    }

    /// Makes a second database of this one.
    ///
    /// # Errors
    /// As [`dialsm_core::Db::checkpoint`].
    pub fn checkpoint(&self, target_dir: &str) -> Result<()> {
        self.0.db.checkpoint(Path::new(target_dir))
    }

    /// Reads and checks every table.
    ///
    /// # Errors
    /// As [`dialsm_core::Db::verify`].
    pub fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyFigures> {
        self.0.db.verify(progress).map(VerifyFigures::of)
    }

    /// Changes options of the open database, or of one of its keyspaces.
    ///
    /// # Errors
    /// As [`dialsm_core::Db::set_options`] and [`dialsm_core::Db::set_options_in`].
    pub fn set_options(&self, space: Space<'_>, changes: &[(&str, &str)]) -> Result<()> {
        match space {
            None => self.0.db.set_options(changes),
            Some(space) => self.0.db.set_options_in(&space.keyspace, changes),
        }
    }

    // What it says about itself.

    /// A property of the database, or of one keyspace.
    ///
    /// # Errors
    /// `NotFound` for a name that is not known; as [`dialsm_core::Db::property_in`].
    pub fn property(&self, space: Space<'_>, name: &str) -> Result<String> {
        self.0.db.check_open()?;
        let found = match space {
            None => self.0.db.property(name),
            Some(space) => self.0.db.property_in(&space.keyspace, name)?,
        };
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no property {name:?}")))
    }

    /// Counters, levels, stalls and caches, as a table or as JSON.
    ///
    /// # Errors
    /// `Closed`.
    pub fn statistics(&self, as_json: bool) -> Result<String> {
        self.0.db.check_open()?;
        Ok(if as_json { self.0.db.stats_json() } else { self.0.db.stats_text() })
    }

    /// A counter by name.
    ///
    /// # Errors
    /// `NotFound` for a name that is not known, `Closed`.
    pub fn counter(&self, name: &str) -> Result<u64> {
        self.0.db.check_open()?;
        let counters = self.0.db.metrics().counters.entries();
        let found = counters.into_iter().find(|(known, _)| *known == name);
        found
            .map(|(_, value)| value)
            .ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no counter {name:?}")))
    }

    /// Stalls of the database, or of one keyspace.
    ///
    /// # Errors
    /// As [`dialsm_core::Db::stalls_in`].
    pub fn stalls(&self, space: Space<'_>) -> Result<StallFigures> {
        let is = |name| Ok::<bool, Error>(self.property(space, name)? == "1");
        let state = match (is("dialsm.is-write-stopped")?, is("dialsm.is-write-delayed")?) {
            (true, _) => StallState::DIALSM_STALL_STOPPED,
            (false, true) => StallState::DIALSM_STALL_DELAYED,
            (false, false) => StallState::DIALSM_STALL_OPEN,
        };
        let report = match space {
            None => self.0.db.stalls(),
            Some(space) => self.0.db.stalls_in(&space.keyspace)?,
        };
        Ok(StallFigures::of(state, &report))
    }

    /// Clues and redirected values.
    ///
    /// # Errors
    /// `Closed`.
    pub fn clues(&self) -> Result<ClueReport> {
        let clues = self.property(None, "dialsm.clues")?.parse().unwrap_or(0);
        Ok(ClueReport::of(clues, &self.0.db.metrics().counters))
    }
}
