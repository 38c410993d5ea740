//! Options as C holds them: those of a database or keyspace by name or typed, and those of single calls.

use std::ffi::CStr;
use std::ffi::CString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use dialsm::key::Comparator;
use dialsm::options::{OptionScope, describe};
use dialsm::{
    CompactRangeOptions, Error, EventListener, FlushOptions, KeyspaceOptions, MergeOperator, Options,
    PrefixExtractor, ReadOptions, Result, ScanOptions, WriteOptions,
};
use dialsm_io::env::Fork;
use dialsm_io::{Env, OsEnv};

use crate::SnapshotHandle;
use crate::database::Shared;
use crate::guard::Opened;

/// Options of a database, or of one keyspace. One thread at a time; calls copy what they need.
#[derive(Clone)]
pub struct OptionSet {
    options: Options,
    /// Only what belongs to a keyspace may be set.
    is_keyspace: bool,
    /// Keyspaces of the database that have options of their own.
    keyspaces: Vec<(String, KeyspaceOptions)>,
}

static NAMES: LazyLock<Vec<CString>> =
    LazyLock::new(|| describe().iter().filter_map(|info| CString::new(info.name).ok()).collect());

/// The name of option number `at`, if there is one.
pub fn option_name(at: usize) -> Option<&'static CStr> {
    NAMES.get(at).map(CString::as_c_str)
}

impl OptionSet {
    /// The defaults of a database.
    pub fn of_database() -> OptionSet {
        OptionSet { options: Options::default(), is_keyspace: false, keyspaces: Vec::new() }
    }

    /// The defaults of a keyspace.
    pub fn of_keyspace() -> OptionSet {
        OptionSet { is_keyspace: true, ..OptionSet::of_database() }
    }

    /// Those that fit a machine.
    pub fn for_machine(cores: usize, memory_bytes: u64) -> OptionSet {
        OptionSet { options: Options::for_machine(cores, memory_bytes), ..OptionSet::of_database() }
    }

    /// Those that the database in `path` was opened with last, its keyspaces' included.
    ///
    /// # Errors
    /// As [`Options::load_all`].
    pub fn load(path: &str) -> Result<OptionSet> {
        let env: Arc<dyn Env> = OsEnv::new();
        let (options, keyspaces) = Options::load_all(env.as_ref(), Path::new(path))?;
        Ok(OptionSet { options, is_keyspace: false, keyspaces })
    }

    pub(crate) fn for_opening(
        given: Option<&OptionSet>,
    ) -> Result<(Options, Vec<(String, KeyspaceOptions)>)> {
        match given {
            None => Ok((Options::default(), Vec::new())),
            Some(set) if set.is_keyspace => {
                Err(Error::invalid("a database opened with options of a keyspace"))
            }
            Some(set) => Ok((set.options.clone(), set.keyspaces.clone())),
        }
    }

    pub(crate) fn for_keyspace(given: Option<&OptionSet>) -> Result<KeyspaceOptions> {
        match given {
            None => Ok(KeyspaceOptions::default()),
            Some(set) if !set.is_keyspace => {
                Err(Error::invalid("options of a database, where those of a keyspace are wanted"))
            }
            Some(set) => Ok(set.options.keyspace()),
        }
    }

    /// Gives a keyspace of the database options of its own.
    ///
    /// # Errors
    /// `InvalidArgument` if either is of the other kind.
    pub fn add_keyspace(&mut self, name: &str, options: Option<&OptionSet>) -> Result<()> {
        if self.is_keyspace {
            return Err(Error::invalid("a keyspace has no keyspaces"));
        }
        self.keyspaces.push((name.to_owned(), OptionSet::for_keyspace(options)?));
        Ok(())
    }

    /// The engine's form of them.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The same, to be changed: for the objects, which have no name.
    pub fn options_mut(&mut self) -> &mut Options {
        &mut self.options
    }

    /// The value of an option as text.
    ///
    /// # Errors
    /// As [`Options::get`].
    pub fn get(&self, name: &str) -> Result<String> {
        self.options.get(name)
    }

    /// Sets an option from text.
    ///
    /// # Errors
    /// As [`Options::set`]; `InvalidArgument` for an option of the database where these are a keyspace's.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let of_database = |name: &str| {
            describe().iter().any(|info| info.name == name && info.scope == OptionScope::Database)
        };
        if self.is_keyspace && of_database(name) {
            return Err(Error::invalid(format!("option {name:?} is one of the database, not of a keyspace")));
        }
        self.options.set(name, value)
    }

    /// Sets an option that is a switch.
    ///
    /// # Errors
    /// As [`OptionSet::set`].
    pub fn set_bool(&mut self, name: &str, value: bool) -> Result<()> {
        self.set(name, if value { "true" } else { "false" })
    }

    /// Sets an option that is a whole number.
    ///
    /// # Errors
    /// As [`OptionSet::set`].
    pub fn set_integer(&mut self, name: &str, value: u64) -> Result<()> {
        self.set(name, &value.to_string())
    }

    /// Sets an option that is a number.
    ///
    /// # Errors
    /// As [`OptionSet::set`].
    pub fn set_number(&mut self, name: &str, value: f64) -> Result<()> {
        self.set(name, &value.to_string())
    }

    /// Sets an option that is one of some words, by its place among them.
    ///
    /// # Errors
    /// As [`OptionSet::set`]; `InvalidArgument` where there is no such place.
    pub fn set_choice(&mut self, name: &str, place: u32, words: &[&str]) -> Result<()> {
        let word = words.get(place as usize);
        let word = word.ok_or_else(|| Error::invalid(format!("option {name:?}: no choice {place}")))?;
        self.set(name, word)
    }

    /// Sets several from text, one `name = value` a line.
    ///
    /// # Errors
    /// As [`Options::apply_text`]; nothing changes then. `InvalidArgument` where these are a keyspace's and an
    /// option of the database would change.
    pub fn apply_text(&mut self, text: &str) -> Result<()> {
        let mut changed = self.options.clone();
        changed.apply_text(text)?;
        if self.is_keyspace {
            let mut kept = self.options.clone();
            kept.set_keyspace(&changed.keyspace());
            if kept.to_text() != changed.to_text() {
                return Err(Error::invalid("options of the database in the text of a keyspace's"));
            }
        }
        self.options = changed;
        Ok(())
    }

    /// All of them as text.
    pub fn to_text(&self) -> String {
        if self.is_keyspace { self.options.keyspace().to_text() } else { self.options.to_text() }
    }

    /// Checks all of them together.
    ///
    /// # Errors
    /// One `InvalidArgument` that names every problem.
    pub fn validate(&self) -> Result<()> {
        self.options.validate()?;
        self.keyspaces.iter().try_for_each(|(_, options)| options.validate())
    }

    /// Sets the order of keys.
    pub fn set_comparator(&mut self, comparator: Option<&Comparator>) {
        self.options.comparator = comparator.cloned().unwrap_or_default();
    }

    /// Sets the merge operator.
    pub fn set_merge_operator(&mut self, operator: Option<&Arc<dyn MergeOperator>>) {
        self.options.merge_operator = operator.cloned();
    }

    /// Sets the prefix extractor.
    pub fn set_prefix_extractor(&mut self, extractor: Option<&PrefixExtractor>) {
        self.options.prefix_extractor = extractor.cloned();
    }

    /// Adds a listener behind those that are there.
    ///
    /// # Errors
    /// `InvalidArgument` for options of a keyspace.
    pub fn add_event_listener(&mut self, listener: &Arc<dyn EventListener>) -> Result<()> {
        if self.is_keyspace {
            return Err(Error::invalid("an event listener in options of a keyspace"));
        }
        self.options.listeners.push(listener.clone());
        Ok(())
    }
}

/// How writes are done.
#[derive(Clone, Default)]
pub struct WriteOpts {
    /// All but the deadline.
    pub options: WriteOptions,
    /// From the call on.
    pub timeout_ns: Option<u64>,
}

impl WriteOpts {
    #[inline]
    pub(crate) fn for_call(given: Option<&WriteOpts>, shared: &Shared) -> WriteOptions {
        let Some(given) = given else { return WriteOptions::default() };
        WriteOptions { deadline: given.timeout_ns.map(|ns| shared.deadline(ns)), ..given.options }
    }
}

/// How reads are done.
#[derive(Clone, Default)]
pub struct ReadOpts {
    /// All but the deadline.
    pub options: ReadOptions,
    /// From the call on; for iterators and scans, from their creation on.
    pub timeout_ns: Option<u64>,
    /// Knows the process that the snapshot belongs to.
    fork: Fork,
}

impl Opened for ReadOpts {
    fn is_forked(&self) -> bool {
        self.fork.is_child()
    }
}

impl ReadOpts {
    /// Reads at a snapshot from now on, or again what is visible.
    pub fn set_snapshot(&mut self, snapshot: Option<&SnapshotHandle>) {
        let before =
            std::mem::replace(&mut self.options.snapshot, snapshot.map(|handle| handle.snapshot.clone()));
        if self.is_forked() {
            // As `guard::free_of`.
            std::mem::forget(before);
        }
        self.fork = snapshot.map(|handle| handle.fork().clone()).unwrap_or_default();
    }

    #[inline]
    pub(crate) fn for_call<T>(
        given: Option<&ReadOpts>,
        shared: &Shared,
        call: impl FnOnce(&ReadOptions) -> T,
    ) -> T {
        match given {
            None => call(&shared.default_read),
            Some(ReadOpts { options, timeout_ns: None, .. }) => call(options),
            Some(ReadOpts { options, timeout_ns: Some(ns), .. }) => {
                call(&ReadOptions { deadline: Some(shared.deadline(*ns)), ..options.clone() })
            }
        }
    }
}

/// How memtables are flushed.
#[derive(Clone, Default)]
pub struct FlushOpts {
    /// All of them.
    pub options: FlushOptions,
}

/// How a range is compacted.
#[derive(Clone, Default)]
pub struct CompactOpts {
    /// All of them.
    pub options: CompactRangeOptions,
}

/// What a scan covers.
#[derive(Clone, Default)]
pub struct ScanOpts {
    /// All of them.
    pub options: ScanOptions,
}

/// Lets another thread end a compaction. Usable from all threads at once.
#[derive(Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Ends what it was given to, soon.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// For [`CompactRangeOptions::cancel`].
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }
}

/// A copy of a key for options.
///
/// # Errors
/// `OutOfMemory`.
pub fn owned(key: &[u8]) -> Result<Vec<u8>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(key.len()).map_err(|_| Error::out_of_memory("a key"))?;
    copy.extend_from_slice(key);
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_keyspace_take_none_of_the_database() {
        let mut set = OptionSet::of_keyspace();
        set.set("block_bytes", "8K").unwrap();
        assert!(set.set("shards", "4").is_err());
        assert!(set.apply_text("block_bytes = 16K\nshards = 4").is_err());
        assert_eq!(set.get("block_bytes").unwrap(), "8K", "nothing changes where it fails");
        set.apply_text("block_bytes = 16K").unwrap();
        assert!(set.to_text().contains("block_bytes = 16K") && !set.to_text().contains("shards"));
        assert!(OptionSet::for_opening(Some(&set)).is_err());
        assert!(OptionSet::for_keyspace(Some(&OptionSet::of_database())).is_err());
    }
}
