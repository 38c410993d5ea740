//! Options of a database and of single calls.
//!
//! `options/table.rs` holds the one table of engine options; this file gives it its behaviour:
//! the text form, look-up by name, the checks that no single range can express. `options/value.rs`
//! reads and writes single values, `options/file.rs` the file that says what was in force, and
//! `options/live.rs` has the options of an open database and how they change.
//!
//! ```text
//! text form   one `name = value` a line; `#` starts a comment; blank lines are skipped
//!             write_buffer_bytes = 64M      # powers of 1024
//! ```
//! Absent on purpose: the number of cores and the size of the memory are not asked for here, the
//! caller passes them to [`Options::for_machine`].

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};

use dialsm_io::env::Nanos;

use crate::callback::guarded;
use crate::key::Comparator;
use crate::merge_operator::with_fixed_name;
use crate::prefix::{PrefixExtractor, check_user_name};
use crate::snapshot::Snapshot;
use crate::{Error, Result};

pub(crate) mod file;
pub(crate) mod live;
mod table;
#[cfg(test)]
mod tests;
mod value;

pub use table::{KeyspaceOptions, Options};
pub use value::{Compression, InfoLogLevel, RecoveryMode};

/// The type of an option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionType {
    /// `true` or `false`.
    Bool,
    /// A whole number of up to 64 bits.
    Integer,
    /// A number that may have a fraction.
    Number,
    /// One of these words.
    Choice(&'static [&'static str]),
}

/// The unit of an option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionUnit {
    /// Not a quantity.
    None,
    /// A number without a unit.
    Number,
    /// A number of things.
    Count,
    /// Bytes; the text form takes the suffixes K, M, G and T.
    Bytes,
    /// Bytes per second, with the same suffixes.
    BytesPerSecond,
    /// Bits for each key.
    BitsPerKey,
    /// Seconds.
    Seconds,
}

impl OptionUnit {
    /// The unit in words; empty where there is none.
    pub fn as_str(self) -> &'static str {
        match self {
            OptionUnit::None | OptionUnit::Number => "",
            OptionUnit::Count => "count",
            OptionUnit::Bytes => "bytes",
            OptionUnit::BytesPerSecond => "bytes/s",
            OptionUnit::BitsPerKey => "bits/key",
            OptionUnit::Seconds => "s",
        }
    }
}

/// What an option belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionScope {
    /// The whole database.
    Database,
    /// One keyspace; in [`Options`], the default one.
    Keyspace,
}

/// What the table says about one option.
#[derive(Clone, Debug)]
pub struct OptionInfo {
    /// Its name in text and in [`Options`].
    pub name: &'static str,
    /// The type of its value.
    pub value_type: OptionType,
    /// The unit of its value.
    pub unit: OptionUnit,
    /// Its default in text form.
    pub default: String,
    /// The least value; only for numbers.
    pub min: u64,
    /// The greatest value; only for numbers.
    pub max: u64,
    /// Whether it may be changed on an open database.
    pub live: bool,
    /// What it belongs to.
    pub scope: OptionScope,
    /// What it does: sentences, as in the documentation of its field.
    pub doc: &'static str,
}

struct Row {
    info: OptionInfo,
    get: fn(&Options) -> String,
    set: fn(&mut Options, &str) -> std::result::Result<(), String>,
    check: fn(&Options) -> std::result::Result<(), String>,
}

static ROWS: LazyLock<Vec<Row>> = LazyLock::new(table::rows);
static INFOS: LazyLock<Vec<OptionInfo>> = LazyLock::new(|| ROWS.iter().map(|row| row.info.clone()).collect());

/// All options of the table, in its order.
pub fn describe() -> &'static [OptionInfo] {
    &INFOS
}

fn find(name: &str) -> std::result::Result<&'static Row, String> {
    ROWS.iter().find(|row| row.info.name == name).ok_or_else(|| "no such option".into())
}

/// The manifest has a byte for the directory of a table, and 0 is the database's own.
const SHARD_DIRS_MAX: usize = 255;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

impl Options {
    /// Defaults that fit a machine of `cores` processors and `memory_bytes` of memory, of which
    /// the database may use about a third.
    pub fn for_machine(cores: usize, memory_bytes: u64) -> Options {
        let jobs = cores.clamp(2, 64);
        Options {
            background_jobs_max: jobs,
            subcompactions_max: jobs,
            block_cache_bytes: (memory_bytes / 8).clamp(32 * MIB, 1 << 40),
            table_cache_bytes: (memory_bytes / 16).clamp(64 * MIB, 1 << 40),
            write_buffer_bytes: (memory_bytes / 16).clamp(4 * MIB, 64 * MIB),
            ..Options::default()
        }
    }

    /// Checks every option's range and what options ask of each other.
    ///
    /// # Errors
    /// One `InvalidArgument` whose text names every problem.
    pub fn validate(&self) -> Result<()> {
        let mut problems = Vec::new();
        for row in ROWS.iter() {
            if let Err(reason) = (row.check)(self) {
                problems.push(format!("{}: {reason}", row.info.name));
            }
        }
        self.check_together(&mut problems);
        report(problems)
    }

    /// What no single range can express.
    fn check_together(&self, problems: &mut Vec<String>) {
        let mut order = |small: &str, small_value: u64, large: &str, large_value: u64| {
            if small_value > large_value {
                problems.push(format!("{large} is below {small}"));
            }
        };
        let triggers = [
            ("level0_compaction_trigger", self.level0_compaction_trigger),
            ("level0_slowdown_trigger", self.level0_slowdown_trigger),
            ("level0_stop_trigger", self.level0_stop_trigger),
        ];
        for pair in triggers.windows(2) {
            order(pair[0].0, pair[0].1 as u64, pair[1].0, pair[1].1 as u64);
        }
        order(
            "pending_compaction_soft_bytes",
            self.pending_compaction_soft_bytes,
            "pending_compaction_hard_bytes",
            self.pending_compaction_hard_bytes,
        );
        order("log_segment_bytes", self.log_segment_bytes, "log_total_bytes_max", self.log_total_bytes_max);
        if self.write_buffers_total_bytes != 0 {
            order(
                "write_buffer_bytes",
                self.write_buffer_bytes,
                "write_buffers_total_bytes",
                self.write_buffers_total_bytes,
            );
        }
        order("block_bytes", self.block_bytes, "table_bytes", self.table_bytes);
        if let Comparator::Custom(c) = &self.comparator {
            problems.extend(check_user_name("comparator", c.name()).err());
        }
        if let Some(PrefixExtractor::Custom(c)) = &self.prefix_extractor {
            problems.extend(check_user_name("prefix_extractor", c.name()).err());
        }
        if self.shard_dirs.len() > SHARD_DIRS_MAX {
            problems.push(format!("shard_dirs: more than {SHARD_DIRS_MAX}"));
        }
        if self.shard_dirs.iter().any(|dir| dir.as_os_str().is_empty()) {
            problems.push("shard_dirs: an empty path".into());
        }
        if !cfg!(feature = "zstd") {
            let codecs = [("compression", self.compression), ("compression_bottom", self.compression_bottom)];
            for (name, codec) in codecs {
                if codec == Compression::Zstd {
                    problems.push(format!("{name}: this build has no zstd"));
                }
            }
        }
    }

    /// Bytes of memtables at which the largest is flushed: what `write_buffers_total_bytes` says or
    /// stands for.
    #[allow(dead_code, reason = "the budget over all trees comes next")]
    pub(crate) fn write_buffers_total(&self) -> u64 {
        match self.write_buffers_total_bytes {
            0 => {
                let buffers = self.write_buffers_max.max(self.background_jobs_max) as u64;
                self.write_buffer_bytes.saturating_mul(buffers + 1)
            }
            bytes => bytes,
        }
    }

    /// The value of an option in text form.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no such option.
    pub fn get(&self, name: &str) -> Result<String> {
        let row = find(name).map_err(|reason| Error::invalid(format!("option {name:?}: {reason}")))?;
        Ok((row.get)(self))
    }

    /// Sets an option from text. Nothing changes if it fails.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no such option, or the text is not a value in its range.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        self.try_set(name, value).map_err(|reason| Error::invalid(format!("option {name:?}: {reason}")))
    }

    fn try_set(&mut self, name: &str, value: &str) -> std::result::Result<(), String> {
        (find(name)?.set)(self, value.trim())
    }

    /// All options of the table, one `name = value` a line.
    pub fn to_text(&self) -> String {
        ROWS.iter().map(|row| format!("{} = {}\n", row.info.name, (row.get)(self))).collect()
    }

    /// The options whose values differ from those in `usual`: names, values here, values there.
    pub(crate) fn differing<'o>(
        &'o self,
        usual: &'o Options,
    ) -> impl Iterator<Item = (&'static str, String, String)> + 'o {
        let both = |row: &'static Row| (row.info.name, (row.get)(self), (row.get)(usual));
        ROWS.iter().map(both).filter(|(_, value, usual)| value != usual)
    }

    /// The defaults, changed by `text`.
    ///
    /// # Errors
    /// As [`Options::apply_text`].
    pub fn from_text(text: &str) -> Result<Options> {
        let mut options = Options::default();
        options.apply_text(text)?;
        Ok(options)
    }

    /// Changes the options that `text` names, and no others. What options ask of each other is
    /// left to [`Options::validate`]. Nothing changes if it fails.
    ///
    /// # Errors
    /// One `InvalidArgument` whose text names every bad line: no `name = value`, an unknown name,
    /// a name that stood in an earlier line, a value of the wrong form or out of its range.
    pub fn apply_text(&mut self, text: &str) -> Result<()> {
        let mut changed = self.clone();
        let mut seen: Vec<(&str, usize)> = Vec::new();
        let mut problems = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let number = index + 1;
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let Some((name, value)) = line.split_once('=') else {
                problems.push(format!("line {number}: want name = value"));
                continue;
            };
            let name = name.trim_end();
            if let Some((_, earlier)) = seen.iter().find(|(known, _)| *known == name) {
                problems.push(format!("line {number}: option {name:?} was set in line {earlier} already"));
                continue;
            }
            seen.push((name, number));
            if let Err(reason) = changed.try_set(name, value) {
                problems.push(format!("line {number}: option {name:?}: {reason}"));
            }
        }
        report(problems)?;
        *self = changed;
        Ok(())
    }
}

impl Default for KeyspaceOptions {
    /// Those of [`Options::default`].
    fn default() -> KeyspaceOptions {
        Options::default().keyspace()
    }
}

/// Tables of shards are not made smaller than this because they are many: each costs an open file.
const SHARD_TABLE_BYTES: u64 = 16 * MIB;

impl KeyspaceOptions {
    /// The same as options of a database, the rest of which is at its defaults.
    fn in_database(&self) -> Options {
        let mut options = Options::default();
        options.set_keyspace(self);
        options
    }

    /// What one of `shards` trees gets of them: all together have the memory, the levels and the debt of
    /// one. Memtables get sizes of their own, from 3/4 to 5/4 of an equal share: hash placement would fill
    /// and flush equal ones in phase.
    pub(crate) fn share(&self, shard: u16, shards: u16) -> KeyspaceOptions {
        let mut own = self.clone();
        if shards < 2 {
            return own;
        }
        let n = u64::from(shards);
        let (at, of) = (2 * u64::from(shard) + 1 + 3 * n, 4 * n);
        own.write_buffer_bytes = (self.write_buffer_bytes / n * at / of).max(64 * KIB);
        own.level_base_bytes = (self.level_base_bytes / n).max(64 * KIB);
        own.table_bytes = (self.table_bytes / n).max(self.table_bytes.min(SHARD_TABLE_BYTES));
        own.pending_compaction_soft_bytes = (self.pending_compaction_soft_bytes / n).max(MIB);
        own.pending_compaction_hard_bytes = (self.pending_compaction_hard_bytes / n).max(MIB);
        own.delayed_write_bytes_per_s = (self.delayed_write_bytes_per_s / n).max(64 * KIB);
        own
    }

    /// The same with the user's objects as the engine calls them: names asked for once, panics caught.
    ///
    /// # Errors
    /// `Callback` if one of them panics when asked for its name.
    pub(crate) fn guarded(mut self) -> Result<KeyspaceOptions> {
        self.comparator = guarded(&self.comparator)?;
        let named = self.prefix_extractor.as_ref().map(PrefixExtractor::with_fixed_name);
        self.prefix_extractor = named.transpose()?;
        self.merge_operator = self.merge_operator.as_ref().map(with_fixed_name).transpose()?;
        Ok(self)
    }

    /// As [`Options::validate`].
    ///
    /// # Errors
    /// As [`Options::validate`].
    pub fn validate(&self) -> Result<()> {
        self.in_database().validate()
    }

    /// As [`Options::get`].
    ///
    /// # Errors
    /// As [`Options::get`]; an option of the database counts as none.
    pub fn get(&self, name: &str) -> Result<String> {
        check_scope(name)?;
        self.in_database().get(name)
    }

    /// As [`Options::set`].
    ///
    /// # Errors
    /// As [`Options::set`]; an option of the database counts as none.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        check_scope(name)?;
        let mut options = self.in_database();
        options.set(name, value)?;
        *self = options.keyspace();
        Ok(())
    }

    /// All options of a keyspace, one `name = value` a line.
    pub fn to_text(&self) -> String {
        let options = self.in_database();
        let rows = ROWS.iter().filter(|row| row.info.scope == OptionScope::Keyspace);
        rows.map(|row| format!("{} = {}\n", row.info.name, (row.get)(&options))).collect()
    }
}

fn check_scope(name: &str) -> Result<()> {
    match find(name) {
        Ok(row) if row.info.scope == OptionScope::Database => {
            Err(Error::invalid(format!("option {name:?} is one of the database, not of a keyspace")))
        }
        _ => Ok(()),
    }
}

fn report(problems: Vec<String>) -> Result<()> {
    if problems.is_empty() {
        return Ok(());
    }
    Err(Error::invalid(format!("options: {}", problems.join("; "))))
}

/// How a write is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Return only when the write is on stable storage: it then survives a power cut. Off, it
    /// survives the end of the process, and a power cut keeps a prefix of such writes.
    pub sync: bool,
    /// Leave the commit log out: the write is lost with the process unless it was flushed.
    pub disable_log: bool,
    /// Fail with `WouldStall` rather than wait for flushes or compactions.
    pub no_slowdown: bool,
    /// Fail with `TimedOut` rather than wait longer than this point on the environment's clock.
    pub deadline: Option<Nanos>,
}

/// How a read is done.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Read what was visible when this was taken; absent, what is visible now.
    pub snapshot: Option<Snapshot>,
    /// Iterators show no key before this one.
    pub lower_bound: Option<Vec<u8>>,
    /// Iterators show neither this key nor any after it.
    pub upper_bound: Option<Vec<u8>>,
    /// Iterators end where the prefix of the key they were sent to ends, in both directions; after a
    /// seek to the first or last key, where that key's prefix does. Within the bounds. A key out of
    /// the extractor's domain ends such a scan; sought, it leaves it unconfined. Lets filters spare
    /// blocks; scans whose bounds lie around one prefix of a built-in extractor have that anyway.
    /// Needs [`Options::prefix_extractor`].
    pub prefix_same_as_start: bool,
    /// Fail with `TimedOut` after this point on the environment's clock.
    pub deadline: Option<Nanos>,
    /// Keep the blocks that this read brings from the disk in the block cache. Off for long scans
    /// that would push out what others use.
    pub fill_cache: bool,
    /// Check the checksum of blocks that come from the disk.
    pub verify_checksums: bool,
    /// Bytes that an iterator reads ahead at most; 0 lets it find out by itself.
    pub readahead_bytes: u64,
}

impl ReadOptions {
    /// The same, with bounds that leave the keys which begin with `prefix`. For keyspaces in
    /// bytewise order. Filters of prefixes are asked where these bounds lie within one of them.
    #[must_use]
    pub fn with_prefix(mut self, prefix: &[u8]) -> ReadOptions {
        self.lower_bound = Some(prefix.to_vec());
        self.upper_bound = crate::prefix::successor(prefix);
        self
    }
}

impl Default for ReadOptions {
    fn default() -> ReadOptions {
        ReadOptions {
            snapshot: None,
            lower_bound: None,
            upper_bound: None,
            prefix_same_as_start: false,
            deadline: None,
            fill_cache: true,
            verify_checksums: true,
            readahead_bytes: 0,
        }
    }
}

/// How memtables are flushed by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushOptions {
    /// Return only when what was written before the call is in tables that the durable manifest
    /// names. Off, return when the flush is scheduled.
    pub wait: bool,
    /// Switch the memtable even where writes would have to wait for it.
    pub allow_stall: bool,
    /// Where several keyspaces are flushed at once: their tables become durable in one step, so that a
    /// crash leaves all of them or none. Writes that went through the log need no such care.
    pub atomic: bool,
}

impl Default for FlushOptions {
    fn default() -> FlushOptions {
        FlushOptions { wait: true, allow_stall: true, atomic: false }
    }
}

/// How a key range is compacted by hand.
#[derive(Clone, Debug, Default)]
pub struct CompactRangeOptions {
    /// The level that the data ends in; absent, the deepest that holds any of it.
    pub target_level: Option<u8>,
    /// Rewrite the last level, too, which drops what no snapshot needs and applies new options.
    pub rewrite_bottom: bool,
    /// Set to make the compaction stop with `Cancelled`; nothing of it is kept then.
    pub cancel: Option<Arc<AtomicBool>>,
}
