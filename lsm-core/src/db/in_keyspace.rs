//! Keyspaces of an open database, and its operations in any of them.

use std::path::Path;

use dialsm_io::Env;

use super::Db;
use crate::batch::WriteBatch;
use crate::iterator::DbIterator;
use crate::keyspace::{self, Keyspace};
use crate::options::{CompactRangeOptions, FlushOptions, KeyspaceOptions, ReadOptions, WriteOptions};
use crate::read::get::ReadContext;
use crate::scan::{Scan, ScanOptions};
use crate::write::stall::StallReport;
use crate::{Result, Slice, manual, open, options, properties};

impl Db {
    /// Names of the keyspaces of the database in `path`, the default one first, the others by age. It
    /// need not be open, nor closed; nothing is written.
    ///
    /// # Errors
    /// `NotFound` if there is no database; `Corruption`, `Foreign`, `NewerFormat` with the file and
    /// offset; those of the file system.
    pub fn list_keyspaces(env: &dyn Env, path: &Path) -> Result<Vec<String>> {
        env.check_fork()?;
        open::list_keyspaces(env.fs().as_ref(), path)
    }

    /// Creates a keyspace; it is there after a power cut when this returns. A name is 1 to 255 bytes of
    /// text without control characters, and case counts. The options are not stored: the next opening
    /// brings them along.
    ///
    /// # Errors
    /// `AlreadyExists`; `InvalidArgument` for the name or the options; `Poisoned` or `NoSpace` after a
    /// background error; `Closed`; those of the file system, after which it does not exist, but may be
    /// found, empty, by an opening after a crash.
    pub fn create_keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
        keyspace::create(self.engine(), name, options)
    }

    /// The keyspace with that name, if there is one.
    pub fn keyspace(&self, name: &str) -> Option<Keyspace> {
        self.engine().keyspaces.by_name(name).map(Keyspace)
    }

    /// The default keyspace, which every database has.
    pub fn default_keyspace(&self) -> Keyspace {
        Keyspace(self.engine().space.clone())
    }

    /// Names of all keyspaces, the default one first, the others by age.
    pub fn keyspaces(&self) -> Vec<String> {
        self.engine().keyspaces.alive().spaces.iter().map(|space| space.name.to_string()).collect()
    }

    /// Drops a keyspace with all that is in it: gone for good when this returns, and its name free.
    /// Iterators that read it go on; its files and memory go with the last of them.
    ///
    /// # Errors
    /// `NotFound` if it is gone already; `InvalidArgument` for the default keyspace, or one of another
    /// database; `Poisoned` after a lasting background error; `Closed`. Those of the file system, after which it is gone all the same, but may
    /// be found again, as it was, by an opening after a crash.
    pub fn drop_keyspace(&self, keyspace: &Keyspace) -> Result<()> {
        keyspace::drop_keyspace(self.engine(), &keyspace.0)
    }

    /// As [`Db::put`].
    ///
    /// # Errors
    /// As [`Db::put`]; `NotFound` if the keyspace is gone, `InvalidArgument` if it belongs to another
    /// database or an earlier opening. So for all calls that take one.
    pub fn put_in(
        &self,
        options: &WriteOptions,
        keyspace: &Keyspace,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.put_in(keyspace.id(), key, value)?;
        self.write_in(options, keyspace, batch)
    }

    /// As [`Db::delete`].
    ///
    /// # Errors
    /// As [`Db::put_in`].
    pub fn delete_in(&self, options: &WriteOptions, keyspace: &Keyspace, key: &[u8]) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.delete_in(keyspace.id(), key)?;
        self.write_in(options, keyspace, batch)
    }

    /// As [`Db::single_delete`].
    ///
    /// # Errors
    /// As [`Db::put_in`].
    pub fn single_delete_in(&self, options: &WriteOptions, keyspace: &Keyspace, key: &[u8]) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.single_delete_in(keyspace.id(), key)?;
        self.write_in(options, keyspace, batch)
    }

    /// As [`Db::merge`].
    ///
    /// # Errors
    /// As [`Db::merge`] and [`Db::put_in`].
    pub fn merge_in(
        &self,
        options: &WriteOptions,
        keyspace: &Keyspace,
        key: &[u8],
        operand: &[u8],
    ) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.merge_in(keyspace.id(), key, operand)?;
        self.write_in(options, keyspace, batch)
    }

    /// As [`Db::delete_range`].
    ///
    /// # Errors
    /// As [`Db::delete_range`] and [`Db::put_in`].
    pub fn delete_range_in(
        &self,
        options: &WriteOptions,
        keyspace: &Keyspace,
        from: &[u8],
        to: &[u8],
    ) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.delete_range_in(keyspace.id(), from, to)?;
        self.write_in(options, keyspace, batch)
    }

    /// Writes a batch that names no keyspace but this one.
    fn write_in(&self, options: &WriteOptions, keyspace: &Keyspace, batch: WriteBatch) -> Result<()> {
        self.engine().check_keyspace(&keyspace.0)?;
        self.write(options, batch)
    }

    /// As [`Db::get`].
    ///
    /// # Errors
    /// As [`Db::get`] and [`Db::put_in`].
    pub fn get_in(&self, options: &ReadOptions, keyspace: &Keyspace, key: &[u8]) -> Result<Option<Slice>> {
        self.get_from(&keyspace.0, options, key, None)
    }

    /// As [`Db::get_with_context`].
    ///
    /// # Errors
    /// As [`Db::get_in`].
    pub fn get_in_with_context(
        &self,
        options: &ReadOptions,
        keyspace: &Keyspace,
        key: &[u8],
        context: &mut ReadContext,
    ) -> Result<Option<Slice>> {
        self.get_from(&keyspace.0, options, key, Some(context))
    }

    /// As [`Db::multi_get`].
    ///
    /// # Errors
    /// As [`Db::get_in`].
    pub fn multi_get_in(
        &self,
        options: &ReadOptions,
        keyspace: &Keyspace,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Slice>>> {
        self.multi_get_from(&keyspace.0, options, keys, None)
    }

    /// As [`Db::multi_get_with_context`].
    ///
    /// # Errors
    /// As [`Db::get_in`].
    pub fn multi_get_in_with_context(
        &self,
        options: &ReadOptions,
        keyspace: &Keyspace,
        keys: &[&[u8]],
        context: &mut ReadContext,
    ) -> Result<Vec<Option<Slice>>> {
        self.multi_get_from(&keyspace.0, options, keys, Some(context))
    }

    /// As [`Db::iter`].
    ///
    /// # Errors
    /// As [`Db::iter`] and [`Db::put_in`].
    pub fn iter_in(&self, options: &ReadOptions, keyspace: &Keyspace) -> Result<DbIterator> {
        self.iter_from(&keyspace.0, options)
    }

    /// As [`Db::scan`].
    ///
    /// # Errors
    /// As [`Db::iter_in`].
    pub fn scan_in(&self, options: &ReadOptions, keyspace: &Keyspace, scan: &ScanOptions) -> Result<Scan> {
        self.scan_from(&keyspace.0, options, scan)
    }

    /// A cursor over each of the keyspaces, all of one moment: that of the options' snapshot, or now.
    ///
    /// # Errors
    /// As [`Db::iter_in`].
    pub fn iters(&self, options: &ReadOptions, keyspaces: &[&Keyspace]) -> Result<Vec<DbIterator>> {
        // Held until all views are taken: no job may drop meanwhile what the moment sees (rule 10).
        let snapshot = options.snapshot.clone().unwrap_or_else(|| self.snapshot());
        let options = ReadOptions { snapshot: Some(snapshot), ..options.clone() };
        keyspaces.iter().map(|keyspace| self.iter_from(&keyspace.0, &options)).collect()
    }

    /// As [`Db::flush_with`].
    ///
    /// # Errors
    /// As [`Db::flush`] and [`Db::put_in`].
    pub fn flush_in(&self, options: &FlushOptions, keyspace: &Keyspace) -> Result<()> {
        self.engine().check_keyspace(&keyspace.0)?;
        manual::flush(self.engine(), &keyspace.0.trees, options)
    }

    /// Flushes all keyspaces; what each has in memory is taken at one moment.
    ///
    /// # Errors
    /// As [`Db::flush`].
    pub fn flush_all(&self, options: &FlushOptions) -> Result<()> {
        let engine = self.engine();
        manual::flush(engine, &engine.keyspaces.alive().trees, options)
    }

    /// As [`Db::compact_range`].
    ///
    /// # Errors
    /// As [`Db::compact_range`] and [`Db::put_in`].
    pub fn compact_range_in(
        &self,
        options: &CompactRangeOptions,
        keyspace: &Keyspace,
        from: Option<&[u8]>,
        to: Option<&[u8]>,
    ) -> Result<()> {
        self.engine().check_keyspace(&keyspace.0)?;
        manual::compact_range(self.engine(), &keyspace.0, options, from, to)
    }

    /// As [`Db::set_options`], for the options of a keyspace.
    ///
    /// # Errors
    /// As [`Db::set_options`] and [`Db::put_in`]; `InvalidArgument` also for an option of the database.
    pub fn set_options_in(&self, keyspace: &Keyspace, changes: &[(&str, &str)]) -> Result<()> {
        options::live::set_in(self.engine(), &keyspace.0, changes)
    }

    /// A property of a keyspace, or one that only the database has. `None` for a name that is not known.
    ///
    /// # Errors
    /// As [`Db::put_in`].
    pub fn property_in(&self, keyspace: &Keyspace, name: &str) -> Result<Option<String>> {
        self.engine().check_keyspace(&keyspace.0)?;
        Ok(properties::get(self.engine(), &keyspace.0.trees, name))
    }

    /// Stalls of a keyspace's writes so far, by cause.
    ///
    /// # Errors
    /// As [`Db::put_in`].
    pub fn stalls_in(&self, keyspace: &Keyspace) -> Result<StallReport> {
        self.engine().check_keyspace(&keyspace.0)?;
        Ok(properties::stalls(self.engine(), &keyspace.0.trees))
    }
}
