//! What the commands need of a database: a thin trait, so that they can be tested on a map.

use std::path::Path;
use std::sync::Arc;

use dialsm_core::{Options, Result};
use dialsm_io::Fs;

#[cfg(test)]
pub(crate) mod memory;

/// What an opening may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// The database has to be there.
    Existing,
    /// It is created where it is missing.
    CreateIfMissing,
    /// It has to be there, and nothing in it changes.
    ReadOnly,
}

/// How metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatsForm {
    /// Tables.
    Text,
    /// One JSON object.
    Json,
    /// What Prometheus scrapes.
    Prometheus,
}

/// Opens databases.
pub trait Opener {
    /// Opens the one in `path`. `options` says nothing about creating: `mode` does.
    ///
    /// # Errors
    /// Those of the engine.
    fn open(&self, path: &Path, options: Options, mode: OpenMode) -> Result<Box<dyn Store>>;

    /// The options that the database in `path`, which may be open, had when it was opened or changed last.
    ///
    /// # Errors
    /// Those of [`Options::load`].
    fn saved_options(&self, path: &Path) -> Result<Options>;

    /// The file system that the databases are on.
    fn fs(&self) -> Arc<dyn Fs>;
}

/// One operation of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Sets a value.
    Put(Vec<u8>, Vec<u8>),
    /// Removes a key.
    Delete(Vec<u8>),
}

/// A part of the keys and the way through it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// The first key, where there is one.
    pub lower: Option<Vec<u8>>,
    /// The first key no longer in it, where there is one.
    pub upper: Option<Vec<u8>>,
    /// From the last key to the first.
    pub reverse: bool,
}

/// What a verification looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Tables read whole.
    pub tables: u64,
    /// Entries in them.
    pub entries: u64,
    /// Bytes of their files.
    pub bytes: u64,
}

/// An open database.
pub trait Store {
    /// The value of a key.
    ///
    /// # Errors
    /// Those of the engine; so for all calls here.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Writes a batch whole or not at all; with `sync`, returns when it is on stable storage.
    ///
    /// # Errors
    /// As [`Store::get`].
    fn write(&self, ops: Vec<Op>, sync: bool) -> Result<()>;

    /// The entries of a range.
    ///
    /// # Errors
    /// As [`Store::get`].
    fn scan(&self, range: &Range) -> Result<Box<dyn Cursor>>;

    /// Brings all that was written into durable tables.
    ///
    /// # Errors
    /// As [`Store::get`].
    fn flush(&self) -> Result<()>;

    /// Compacts the keys from `lower` to before `upper`.
    ///
    /// # Errors
    /// As [`Store::get`].
    fn compact(&self, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Result<()>;

    /// The engine's own account of itself.
    ///
    /// # Errors
    /// As [`Store::get`].
    fn stats(&self, form: StatsForm) -> Result<String>;

    /// One of the engine's named properties.
    ///
    /// # Errors
    /// As [`Store::get`].
    fn property(&self, name: &str) -> Result<Option<String>>;

    /// Reads and checks everything; `progress` gets the bytes done and the bytes in all.
    ///
    /// # Errors
    /// `Corruption` with file and offset at the first finding; those of the engine.
    fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Verified>;

    /// Closes the database; after it nothing is left to do.
    ///
    /// # Errors
    /// As [`Store::get`].
    fn close(self: Box<Self>) -> Result<()>;
}

/// A walk over entries.
pub trait Cursor {
    /// The next entry, until there is none.
    ///
    /// # Errors
    /// Those of the engine. An error is never an end.
    fn next_entry(&mut self) -> Result<Option<(&[u8], &[u8])>>;
}

/// The first key after all keys that start with `prefix`, bytewise; none if there is no such key.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}
