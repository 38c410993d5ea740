//! The engines of this project: one tree (`lsm-core`), and a database of shards (`dialsm`).
//!
//! Both are the same handle, opened with a router or without, so one adapter serves them. What
//! `share`s the settings out over the shards is the engine: the same numbers mean equal totals.

use super::shard_looks::ShardLooks;
use crate::config::{Compression, EngineOptions};
use crate::engine::{
    Background, BatchEntry, EngineStats, KvCursor, KvEngine, Look, Pending, Routing, ShardLimits, ShardLook,
    StallCause, WriteOpts, keyspace_name,
};
use anyhow::{Result, bail};
use dialsm::router::HashRouter;
use dialsm_core::routing::{Router as _, ShardState};
use dialsm_core::{Db, DbIterator, Options, ReadContext, ReadOptions, WriteBatch, WriteOptions, options};
use dialsm_io::OsEnv;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Tree,
    Shards,
}

pub(super) struct LsmCore {
    kind: Kind,
    db: Db,
    read: ReadOptions,
    /// Whether each write leaves the log out by itself, as the database has one.
    disables_log: bool,
    clue_hops: AtomicU64,
    /// Of a database of shards.
    looks: Option<Arc<ShardLooks>>,
    text: String,
}

/// Opens a database.
pub(super) fn open(
    kind: Kind,
    dir: &Path,
    run: &EngineOptions,
    own: &[(&str, &str)],
) -> Result<Box<dyn KvEngine>> {
    let mut options = options_for(kind, run, own)?;
    // Whoever names the engine with a log all the same has writes without in a database with one: there, none
    // of them is redirected.
    let disables_log = run.disable_wal && options.log;
    let text = text(kind, &options);
    if kind == Kind::Shards {
        options.shard_dirs = run.shard_dirs_of(dir);
    }
    let looks = (kind == Kind::Shards).then(|| ShardLooks::install(&mut options));
    let db = match kind {
        Kind::Tree => Db::open(OsEnv::new(), dir, options)?,
        Kind::Shards => (*dialsm::Db::open(dir, options)?).clone(),
    };
    Ok(Box::new(LsmCore::over(db, looks, disables_log, text)))
}

/// The options of a run, with those that the word names.
pub(super) fn options_for(kind: Kind, run: &EngineOptions, own: &[(&str, &str)]) -> Result<Options> {
    // Not `for_machine`: an application that sets nothing does not call it either.
    let mut options = if run.own_defaults { Options::default() } else { settings(run)? };
    options.log = !run.disable_wal;
    if kind == Kind::Shards {
        options.shards = run.shards as usize;
    }
    own.iter().try_for_each(|(name, value)| options.set(name, value))?;
    Ok(options)
}

/// All options in one line, and how many shards 0 stands for.
pub(super) fn text(kind: Kind, options: &Options) -> String {
    let text = options.to_text().lines().collect::<Vec<_>>().join(" ");
    match kind {
        Kind::Shards if options.shards == 0 => {
            let shards = HashRouter.shards_by_default(options.background_jobs_max);
            format!("{text} (a new database gets {} shards)", shards)
        }
        _ => text,
    }
}

/// Whether there are options of these names that can have these values.
pub(super) fn check(own: &[(&str, &str)]) -> Result<()> {
    let mut options = Options::default();
    Ok(own.iter().try_for_each(|(name, value)| options.set(name, value))?)
}

fn settings(options: &EngineOptions) -> Result<Options> {
    let compression = match options.compression_type {
        Compression::None => options::Compression::None,
        Compression::Lz4 => options::Compression::Lz4,
        Compression::Zstd => options::Compression::Zstd,
        Compression::Snappy => bail!("lsm-core has no snappy"),
    };
    if options.min_write_buffer_number_to_merge > 1 {
        bail!("lsm-core flushes memtables one by one");
    }
    Ok(Options {
        write_buffer_bytes: options.write_buffer_size,
        write_buffers_max: options.max_write_buffer_number as usize,
        level0_compaction_trigger: options.level0_file_num_compaction_trigger as usize,
        level0_slowdown_trigger: options.level0_slowdown_writes_trigger as usize,
        level0_stop_trigger: options.level0_stop_writes_trigger as usize,
        background_jobs_max: options.max_background_jobs as usize,
        subcompactions_max: options.subcompactions as usize,
        block_cache_bytes: options.cache_size,
        filter_bits_per_key: options.bloom_bits.max(0.0),
        compression,
        compression_bottom: compression,
        block_bytes: options.block_size,
        table_bytes: options.target_file_size_base,
        level_base_bytes: options.max_bytes_for_level_base,
        ..Options::default()
    })
}

impl LsmCore {
    /// A database of shards comes with what looks at them.
    pub(super) fn over(db: Db, looks: Option<Arc<ShardLooks>>, disables_log: bool, text: String) -> LsmCore {
        let kind = if looks.is_some() { Kind::Shards } else { Kind::Tree };
        let (read, clue_hops) = (ReadOptions::default(), AtomicU64::new(0));
        LsmCore { kind, db, read, disables_log, clue_hops, looks, text }
    }

    fn write_options(&self, opts: WriteOpts) -> WriteOptions {
        let disable_log = opts.disable_wal && self.disables_log;
        WriteOptions { sync: opts.sync, disable_log, ..WriteOptions::default() }
    }

    fn routing(&self) -> Routing {
        let counters = self.db.metrics().counters;
        Routing {
            redirects: counters.redirects,
            redirected_bytes: counters.redirected_bytes,
            clue_hops: self.clue_hops.load(Ordering::Relaxed),
            clues_dropped: counters.clues_dropped,
            clues_rolled_back: counters.clues_rolled_back,
            redirected_dropped: counters.redirected_dropped,
            rollbacks: counters.rollbacks,
            rollback_aborts: counters.rollback_aborts,
        }
    }

    fn number(&self, name: &str) -> u64 {
        self.db.property(name).and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// The one tree of a database without shards. A sealed memtable counts as full, as it does for the stop.
    fn tree_look(&self) -> ShardLook {
        let sealed = self.number("dialsm.num-immutable-memtables") * self.db.options().write_buffer_bytes;
        let doors = ["dialsm.is-write-stopped", "dialsm.is-write-delayed"];
        ShardLook {
            memtable_bytes: sealed + self.number("dialsm.active-memtable-bytes"),
            l0_runs: self.number("dialsm.num-files-at-level0"),
            pending_bytes: self.number("dialsm.pending-compaction-bytes"),
            is_open: doors.iter().all(|door| self.number(door) == 0),
        }
    }

    /// What flushes and compactions took. Writing never makes them wait, so what they wait for is syncs.
    fn background(&self) -> Background {
        let metrics = self.db.metrics();
        let seconds = |ns: u64| Some(ns as f64 / 1e9);
        Background {
            flush_seconds: seconds(metrics.counters.flush_ns),
            flush_sync_seconds: seconds(metrics.counters.flush_sync_ns),
            compaction_seconds: seconds(metrics.levels.iter().map(|level| level.compaction_ns).sum()),
            compaction_sync_seconds: seconds(metrics.counters.compaction_sync_ns),
            limiter_wait_seconds: seconds(metrics.counters.limiter_wait_ns),
            ..Background::default()
        }
    }

    /// All that it counts, by its own names; those of the hand-off begin with `handoff_`, those of a level with
    /// `l0_`, `l1_` and so on.
    fn counters(&self) -> BTreeMap<String, f64> {
        let metrics = self.db.metrics();
        let counted = metrics.counters.entries().into_iter();
        let mut all: BTreeMap<String, f64> =
            counted.map(|(name, value)| (name.to_owned(), value as f64)).collect();
        for (at, level) in metrics.levels.iter().enumerate() {
            let counted = level.entries().into_iter();
            all.extend(counted.map(|(name, value)| (format!("l{at}_{name}"), value as f64)));
        }
        let report = serde_json::from_str(&self.db.stats_json()).unwrap_or(serde_json::Value::Null);
        all.extend(report["trees"].as_f64().map(|trees| ("trees".to_owned(), trees)));
        let handoff = self.db.property("dialsm.handoff").unwrap_or_default();
        for (name, value) in handoff.lines().filter_map(|line| line.split_once(' ')) {
            all.extend(value.parse().ok().map(|value: f64| (format!("handoff_{name}"), value)));
        }
        all
    }
}

impl KvEngine for LsmCore {
    fn put(&self, key: &[u8], value: &[u8], opts: WriteOpts) -> Result<()> {
        Ok(self.db.put(&self.write_options(opts), key, value)?)
    }

    fn delete(&self, key: &[u8], opts: WriteOpts) -> Result<()> {
        Ok(self.db.delete(&self.write_options(opts), key)?)
    }

    fn write_batch(&self, entries: &[BatchEntry<'_>], opts: WriteOpts) -> Result<()> {
        let mut batch = WriteBatch::new();
        for entry in entries {
            match entry.value {
                Some(value) => batch.put(entry.key, value)?,
                None => batch.delete(entry.key)?,
            }
        }
        Ok(self.db.write(&self.write_options(opts), batch)?)
    }

    fn create_keyspaces(&self, count: u32) -> Result<()> {
        for index in 0..count {
            let keyspace = self.db.create_keyspace(&keyspace_name(index), self.db.options().keyspace())?;
            self.db.put_in(&WriteOptions::default(), &keyspace, b"key", b"value")?;
        }
        Ok(())
    }

    fn delete_range(&self, from: &[u8], to: &[u8]) -> Result<()> {
        Ok(self.db.delete_range(&WriteOptions::default(), from, to)?)
    }

    fn get(&self, key: &[u8], sink: &mut dyn FnMut(&[u8])) -> Result<bool> {
        // What `get` does, too, without telling.
        let mut context = ReadContext::default();
        let value = self.db.get_with_context(&self.read, key, &mut context)?;
        if context.clue_hops > 0 {
            self.clue_hops.fetch_add(u64::from(context.clue_hops), Ordering::Relaxed);
        }
        if let Some(value) = &value {
            sink(value);
        }
        Ok(value.is_some())
    }

    fn multi_get(&self, keys: &[&[u8]], sink: &mut dyn FnMut(&[u8])) -> Result<u64> {
        let values = self.db.multi_get(&self.read, keys)?;
        let mut found = 0;
        for value in values.iter().flatten() {
            sink(value);
            found += 1;
        }
        Ok(found)
    }

    fn cursor(&self) -> Result<Box<dyn KvCursor + '_>> {
        Ok(Box::new(Cursor(self.db.iter(&self.read)?)))
    }

    fn flush(&self) -> Result<()> {
        Ok(self.db.flush()?)
    }

    fn pending(&self) -> Result<Pending> {
        // Files that nobody needs any more are unlinked behind everybody's back.
        let busy = !self.db.is_idle() || self.number("dialsm.obsolete-tables") > 0;
        Ok(Pending { busy, bytes: self.number("dialsm.pending-compaction-bytes") })
    }

    fn stats(&self) -> Result<EngineStats> {
        let report = self.db.stalls();
        let by_cause = dialsm_core::StallCause::ALL.iter().map(|cause| {
            let times = report.by_cause[*cause as usize];
            let cause_stats =
                StallCause { count: Some(times.count), seconds: Some(times.total_ns as f64 / 1e9) };
            (cause.as_str().to_owned(), cause_stats)
        });
        Ok(EngineStats {
            stall_count: Some(report.all.count),
            stall_seconds: Some(report.all.total_ns as f64 / 1e9),
            by_cause: by_cause.collect(),
            redirected: Some(self.db.metrics().counters.redirects),
            routing: (self.kind == Kind::Shards).then(|| self.routing()),
            background: self.background(),
            counters: self.counters(),
        })
    }

    fn look(&self) -> Look {
        let report = self.db.stalls();
        let seconds = |ns: u64| ns as f64 / 1e9;
        let by_cause = dialsm_core::StallCause::ALL
            .iter()
            .map(|cause| (cause.as_str().to_owned(), seconds(report.by_cause[*cause as usize].total_ns)));
        let shards = match &self.looks {
            Some(looks) => looks.take().iter().map(shard_look).collect(),
            None => vec![self.tree_look()],
        };
        Look {
            stall_seconds: Some(seconds(report.all.total_ns)),
            stall_seconds_by_cause: by_cause.collect(),
            door: None,
            shards,
        }
    }

    fn shard_limits(&self, shards: usize) -> Vec<ShardLimits> {
        let options = self.db.options();
        (0..shards as u64).map(|shard| limits(&options, shard, shards as u64)).collect()
    }

    fn clues(&self) -> Option<u64> {
        (self.kind == Kind::Shards).then(|| self.number("dialsm.clues"))
    }

    fn options_text(&self) -> String {
        self.text.clone()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.db.close()?)
    }
}

fn shard_look(state: &ShardState) -> ShardLook {
    ShardLook {
        memtable_bytes: state.memtable_bytes,
        l0_runs: state.l0_runs as u64,
        pending_bytes: state.pending_bytes,
        is_open: state.is_open,
    }
}

/// No shard's memtable is smaller.
const SHARD_MEMTABLE_MIN: u64 = 64 << 10;

/// Where one of `shards` stops. The engine gives each its share: of the debt an equal one, of memory one from 3/4
/// to 5/4 of that, ascending.
fn limits(options: &Options, shard: u64, shards: u64) -> ShardLimits {
    let memtable = match shards {
        1 => options.write_buffer_bytes,
        n => (options.write_buffer_bytes / n * (2 * shard + 1 + 3 * n) / (4 * n)).max(SHARD_MEMTABLE_MIN),
    };
    ShardLimits {
        memtable_bytes: Some(memtable * options.write_buffers_max as u64),
        l0_runs: Some(options.level0_stop_trigger as u64),
        pending_bytes: Some(options.pending_compaction_hard_bytes / shards),
    }
}

struct Cursor(DbIterator);

impl KvCursor for Cursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        Ok(self.0.seek(key)?)
    }

    fn seek_to_first(&mut self) -> Result<()> {
        Ok(self.0.seek_to_first()?)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        Ok(self.0.seek_to_last()?)
    }

    fn next(&mut self) -> Result<()> {
        Ok(self.0.next()?)
    }

    fn prev(&mut self) -> Result<()> {
        Ok(self.0.prev()?)
    }

    fn valid(&self) -> bool {
        self.0.valid()
    }

    fn key(&self) -> &[u8] {
        self.0.key()
    }

    fn value(&self) -> &[u8] {
        self.0.value()
    }
}
