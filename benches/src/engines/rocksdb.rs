//! RocksDB through a shared library of any release from 7 on.
//!
//! Set up as its own maintainers would for this purpose: gets are pinned, batches are used again,
//! multi-gets are one call, writes are pipelined as in db_bench, the block cache is the lock-free one
//! where the release has it, and there is no Statistics object.

use super::rocksdb_ffi::{Api, Batch, Database, Iter, Settings, check_own};
use super::rocksdb_stats;
use crate::config::{Compression, EngineOptions};
use crate::engine::{
    BatchEntry, Door, EngineStats, KvCursor, KvEngine, Look, Pending, ShardLimits, ShardLook, WriteOpts,
    keyspace_name,
};
use anyhow::{Context, Result, anyhow, bail};
use std::ffi::CStr;
use std::path::{Path, PathBuf};

const LIBRARY_VARIABLE: &str = "DIALSM_ROCKSDB_LIB";

struct RocksDb {
    db: Database,
    dir: PathBuf,
    text: String,
}

/// Finds and loads the library and has it read its own options, so that what is missing is known before a
/// run.
pub(super) fn probe(options: &EngineOptions, own: &[(&str, &str)]) -> Result<()> {
    check_own(library(options)?.0, own)
}

/// The library a flag or the environment names, else the newest that the system finds.
fn library(options: &EngineOptions) -> Result<(&'static Api, PathBuf)> {
    let from_environment = || std::env::var_os(LIBRARY_VARIABLE).map(PathBuf::from);
    if let Some(path) = options.rocksdb_lib.clone().or_else(from_environment) {
        let api = Api::load(&path).with_context(|| format!("cannot load {}", path.display()))?;
        return Ok((api, path));
    }
    let versions = (7..=15).rev().flat_map(|major| (0..=12).rev().map(move |minor| (major, minor)));
    let names = std::iter::once("librocksdb.so".to_owned())
        .chain(versions.map(|(major, minor)| format!("librocksdb.so.{major}.{minor}")));
    for name in names.map(PathBuf::from) {
        if let Ok(api) = Api::load(&name) {
            return Ok((api, name));
        }
    }
    Err(anyhow!(
        "no RocksDB library found: install Debian's librocksdb7.8, or give --rocksdb-lib PATH or {LIBRARY_VARIABLE}"
    ))
}

fn settings(options: &EngineOptions, api: &Api) -> Result<Settings> {
    let hyper_clock = match options.cache_type.as_str() {
        "auto" => api.has_hyper_clock_cache(),
        "lru_cache" => false,
        "hyper_clock_cache" if api.has_hyper_clock_cache() => true,
        "hyper_clock_cache" => bail!("this RocksDB library has no hyper_clock_cache"),
        other => bail!("--cache_type cannot be '{other}'"),
    };
    Ok(Settings {
        write_buffer_size: usize::try_from(options.write_buffer_size)?,
        max_write_buffer_number: options.max_write_buffer_number.try_into()?,
        min_write_buffer_number_to_merge: options.min_write_buffer_number_to_merge.try_into()?,
        level0_triggers: [
            options.level0_file_num_compaction_trigger.try_into()?,
            options.level0_slowdown_writes_trigger.try_into()?,
            options.level0_stop_writes_trigger.try_into()?,
        ],
        max_background_jobs: options.max_background_jobs.try_into()?,
        subcompactions: options.subcompactions,
        // The numbers are those of the C interface.
        compression: match options.compression_type {
            Compression::None => 0,
            Compression::Snappy => 1,
            Compression::Lz4 => 4,
            Compression::Zstd => 7,
        },
        target_file_size_base: options.target_file_size_base,
        max_bytes_for_level_base: options.max_bytes_for_level_base,
        open_files: options.open_files.try_into()?,
        pipelined_write: options.enable_pipelined_write,
        dynamic_level_bytes: options.level_compaction_dynamic_level_bytes,
        block_size: usize::try_from(options.block_size)?,
        cache_bytes: usize::try_from(options.cache_size)?,
        hyper_clock,
        cache_index_and_filter: options.cache_index_and_filter_blocks,
        bloom_bits: options.bloom_bits,
    })
}

/// Opens a database, with the first so many of the keyspaces (its column families) made in it.
/// What `own` names is set last.
pub(super) fn open(
    dir: &Path,
    options: &EngineOptions,
    own: &[(&str, &str)],
    keyspaces: u32,
) -> Result<Box<dyn KvEngine>> {
    let (api, path) = library(options)?;
    let settings = if options.own_defaults { None } else { Some(settings(options, api)?) };
    let families: Vec<String> = (0..keyspaces).map(keyspace_name).collect();
    let db = Database::open(api, dir, settings.as_ref(), own, &families)?;
    let table = settings.as_ref().map_or_else(
        || "table=default".to_owned(),
        |s| {
            let cache = if s.hyper_clock { "hyper_clock" } else { "lru" };
            format!(
                "block_size={} cache={cache}:{} cache_index_and_filter={} bloom_bits={}",
                s.block_size, s.cache_bytes, s.cache_index_and_filter, s.bloom_bits
            )
        },
    );
    let own: String = own.iter().map(|(name, value)| format!(" {name}={value}")).collect();
    let text =
        format!("library={} release={} {} {table}{own}", path.display(), release(dir), db.options_text());
    Ok(Box::new(RocksDb { db, dir: dir.to_owned(), text }))
}

/// The release, which the interface does not tell but the first line of the database's LOG does.
fn release(dir: &Path) -> String {
    let log = text_log(dir);
    let first = log.lines().find_map(|line| line.split_once("RocksDB version: "));
    first.map_or_else(|| "unknown".to_owned(), |(_, release)| release.trim().to_owned())
}

/// What it writes about itself.
fn text_log(dir: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(dir.join("LOG")).unwrap_or_default()).into_owned()
}

/// Properties that are above 0 while background work runs or is due.
const BUSY: [&CStr; 5] = [
    c"rocksdb.num-running-compactions",
    c"rocksdb.num-running-flushes",
    c"rocksdb.compaction-pending",
    c"rocksdb.mem-table-flush-pending",
    c"rocksdb.num-immutable-mem-table",
];

impl KvEngine for RocksDb {
    fn put(&self, key: &[u8], value: &[u8], opts: WriteOpts) -> Result<()> {
        self.db.put(key, value, opts.sync, opts.disable_wal)
    }

    fn delete(&self, key: &[u8], opts: WriteOpts) -> Result<()> {
        self.db.delete(key, opts.sync, opts.disable_wal)
    }

    fn write_batch(&self, entries: &[BatchEntry<'_>], opts: WriteOpts) -> Result<()> {
        let fill = |batch: &mut Batch<'_>| {
            for entry in entries {
                match entry.value {
                    Some(value) => batch.put(entry.key, value),
                    None => batch.delete(entry.key),
                }
            }
        };
        self.db.write(fill, opts.sync, opts.disable_wal)
    }

    fn create_keyspaces(&self, count: u32) -> Result<()> {
        (0..count).try_for_each(|index| self.db.create_family(&keyspace_name(index), b"key", b"value"))
    }

    fn delete_range(&self, from: &[u8], to: &[u8]) -> Result<()> {
        self.db.delete_range(from, to)
    }

    fn get(&self, key: &[u8], sink: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.db.get(key, sink)
    }

    fn multi_get(&self, keys: &[&[u8]], sink: &mut dyn FnMut(&[u8])) -> Result<u64> {
        self.db.multi_get(keys, sink)
    }

    fn cursor(&self) -> Result<Box<dyn KvCursor + '_>> {
        Ok(Box::new(Cursor { iter: self.db.iterator() }))
    }

    fn flush(&self) -> Result<()> {
        self.db.flush()
    }

    fn pending(&self) -> Result<Pending> {
        let busy = BUSY.iter().any(|name| self.db.number(name).is_some_and(|value| value > 0));
        let bytes = self.db.number(c"rocksdb.estimate-pending-compaction-bytes").unwrap_or(0);
        Ok(Pending { busy, bytes })
    }

    fn stats(&self) -> Result<EngineStats> {
        let column_family = self.db.text(c"rocksdb.cfstats-no-file-histogram");
        let background = rocksdb_stats::background(&text_log(&self.dir));
        let stats = rocksdb_stats::parse(&column_family, &self.db.text(c"rocksdb.dbstats"));
        Ok(EngineStats { background, ..stats })
    }

    /// Properties that are plain numbers, each read under a mutex held for a moment. The one text among them is
    /// the count of tables in level 0.
    fn look(&self) -> Look {
        let number = |name: &CStr| self.db.number(name).unwrap_or(0);
        let door = match (number(c"rocksdb.is-write-stopped"), number(c"rocksdb.actual-delayed-write-rate")) {
            (0, 0) => Door::Open,
            (0, _) => Door::Delayed,
            _ => Door::Stopped,
        };
        let shard = ShardLook {
            memtable_bytes: number(c"rocksdb.cur-size-all-mem-tables"),
            l0_runs: self.db.text(c"rocksdb.num-files-at-level0").trim().parse().unwrap_or(0),
            pending_bytes: number(c"rocksdb.estimate-pending-compaction-bytes"),
            is_open: door == Door::Open,
        };
        Look { door: Some(door), shards: vec![shard], ..Look::default() }
    }

    fn shard_limits(&self, shards: usize) -> Vec<ShardLimits> {
        vec![limits(&self.db.options_text()); shards]
    }

    fn options_text(&self) -> String {
        self.text.clone()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// The limits that the options name: `write_buffer_size=1 max_write_buffer_number=2 level0=4/20/36`.
fn limits(options: &str) -> ShardLimits {
    let value = |name: &str| {
        options
            .split(' ')
            .find_map(|word| word.split_once('=').filter(|(key, _)| *key == name))
            .map(|(_, v)| v)
    };
    let number = |name: &str| value(name)?.parse::<u64>().ok();
    let memtables = number("write_buffer_size").zip(number("max_write_buffer_number"));
    ShardLimits {
        memtable_bytes: memtables.map(|(bytes, count)| bytes * count),
        l0_runs: value("level0").and_then(|triggers| triggers.rsplit('/').next()?.parse().ok()),
        // No getter tells it.
        pending_bytes: None,
    }
}

struct Cursor<'a> {
    iter: Iter<'a>,
}

impl Cursor<'_> {
    /// An iterator that is not on an entry has met the end or an error.
    fn after_move(&self) -> Result<()> {
        if self.iter.valid() { Ok(()) } else { self.iter.status() }
    }
}

impl KvCursor for Cursor<'_> {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.iter.seek(key);
        self.after_move()
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.iter.seek_to_first();
        self.after_move()
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.iter.seek_to_last();
        self.after_move()
    }

    fn next(&mut self) -> Result<()> {
        self.iter.next();
        self.after_move()
    }

    fn prev(&mut self) -> Result<()> {
        self.iter.prev();
        self.after_move()
    }

    fn valid(&self) -> bool {
        self.iter.valid()
    }

    fn key(&self) -> &[u8] {
        self.iter.key()
    }

    fn value(&self) -> &[u8] {
        self.iter.value()
    }
}
