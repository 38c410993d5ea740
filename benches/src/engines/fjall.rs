//! fjall, the pure Rust peer, as one keyspace of a database.
//!
//! It has no slowdown and stop triggers of its own to set, keeps at most 4 sealed memtables, and
//! always writes its journal; the flags that say otherwise are refused or, where they only name a
//! limit it does not have, left out of its options line. `fjall:journal=always` runs it in spite of
//! `--disable_wal`, and says in the engine's own name that it wrote one.

use crate::config::{Compression, EngineOptions};
use crate::engine::{BatchEntry, EngineStats, KvCursor, KvEngine, Pending, WriteOpts};
use anyhow::{Result, bail};
use fjall::compaction::Leveled;
use fjall::config::{
    BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry,
};
use fjall::{
    CompressionType, Database, Iter, Keyspace, KeyspaceCreateOptions, PersistMode, UserKey, UserValue,
};
use std::path::Path;
use std::sync::Arc;

struct Fjall {
    db: Database,
    keyspace: Keyspace,
    /// Whether writes that ask for no log get one, rather than an error.
    journals_all: bool,
    text: String,
}

/// Whether the one option has the one value.
pub(super) fn check(own: &[(&str, &str)]) -> Result<()> {
    match own.iter().find(|setting| **setting != ("journal", "always")) {
        Some((name, value)) => bail!("fjall takes journal=always and no other option, as {name}={value}"),
        None => Ok(()),
    }
}

/// Opens a database.
pub(super) fn open(dir: &Path, options: &EngineOptions, own: &[(&str, &str)]) -> Result<Box<dyn KvEngine>> {
    const KEYSPACE: &str = "default";
    check(own)?;
    let journals_all = !own.is_empty();
    if options.own_defaults {
        let db = Database::builder(dir).open()?;
        let keyspace = db.keyspace(KEYSPACE, KeyspaceCreateOptions::default)?;
        return Ok(Box::new(Fjall { db, keyspace, journals_all, text: "its own defaults".into() }));
    }
    let compression = match options.compression_type {
        Compression::None => CompressionType::None,
        Compression::Lz4 => CompressionType::Lz4,
        other => bail!("fjall has no {other:?} compression"),
    };
    let workers = usize::try_from(options.max_background_jobs)?.max(1);
    let block_bytes = u32::try_from(options.block_size)?;
    let l0_tables = u8::try_from(options.level0_file_num_compaction_trigger)?;
    let filter = if options.bloom_bits > 0.0 {
        let bits = BloomConstructionPolicy::BitsPerKey(options.bloom_bits as f32);
        FilterPolicy::all(FilterPolicyEntry::Bloom(bits))
    } else {
        FilterPolicy::disabled()
    };
    let db = Database::builder(dir)
        .cache_size(options.cache_size)
        .worker_threads(workers)
        .journal_compression(CompressionType::None)
        .open()?;
    let keyspace_options = || {
        let strategy = Leveled::default()
            .with_l0_threshold(l0_tables)
            .with_table_target_size(options.target_file_size_base);
        KeyspaceCreateOptions::default()
            .max_memtable_size(options.write_buffer_size)
            .data_block_size_policy(BlockSizePolicy::all(block_bytes))
            .data_block_compression_policy(CompressionPolicy::all(compression))
            .index_block_compression_policy(CompressionPolicy::disabled())
            .filter_policy(filter.clone())
            .compaction_strategy(Arc::new(strategy))
    };
    let keyspace = db.keyspace(KEYSPACE, keyspace_options)?;
    let text = format!(
        "release=3.1 max_memtable_size={} worker_threads={workers} l0_threshold={l0_tables} table_target_size={} \
         cache_size={} block_size={block_bytes} bloom_bits={} compression={compression:?}",
        options.write_buffer_size, options.target_file_size_base, options.cache_size, options.bloom_bits
    );
    Ok(Box::new(Fjall { db, keyspace, journals_all, text }))
}

impl Fjall {
    fn after_write(&self, opts: WriteOpts) -> Result<()> {
        if opts.sync { Ok(self.db.persist(PersistMode::SyncData)?) } else { Ok(()) }
    }

    fn refuse_without_log(&self, opts: WriteOpts) -> Result<()> {
        if opts.disable_wal && !self.journals_all {
            bail!("fjall cannot write without its journal ('fjall:journal=always' lets it)");
        }
        Ok(())
    }
}

impl KvEngine for Fjall {
    fn put(&self, key: &[u8], value: &[u8], opts: WriteOpts) -> Result<()> {
        self.refuse_without_log(opts)?;
        self.keyspace.insert(key, value)?;
        self.after_write(opts)
    }

    fn delete(&self, key: &[u8], opts: WriteOpts) -> Result<()> {
        self.refuse_without_log(opts)?;
        self.keyspace.remove(key)?;
        self.after_write(opts)
    }

    fn write_batch(&self, entries: &[BatchEntry<'_>], opts: WriteOpts) -> Result<()> {
        self.refuse_without_log(opts)?;
        let mut batch = self.db.batch();
        for entry in entries {
            match entry.value {
                Some(value) => batch.insert(&self.keyspace, entry.key, value),
                None => batch.remove(&self.keyspace, entry.key),
            }
        }
        if opts.sync {
            batch = batch.durability(Some(PersistMode::SyncData));
        }
        Ok(batch.commit()?)
    }

    fn get(&self, key: &[u8], sink: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.keyspace.get(key)?;
        if let Some(value) = &value {
            sink(value);
        }
        Ok(value.is_some())
    }

    fn cursor(&self) -> Result<Box<dyn KvCursor + '_>> {
        Ok(Box::new(Cursor { keyspace: &self.keyspace, iter: None, forward: true, entry: None }))
    }

    fn flush(&self) -> Result<()> {
        Ok(self.keyspace.rotate_memtable_and_wait()?)
    }

    fn pending(&self) -> Result<Pending> {
        let waiting = self.db.outstanding_flushes() + self.keyspace.sealed_memtable_count();
        Ok(Pending { busy: waiting > 0 || self.db.active_compactions() > 0, bytes: 0 })
    }

    fn stats(&self) -> Result<EngineStats> {
        Ok(EngineStats::default())
    }

    fn options_text(&self) -> String {
        self.text.clone()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// fjall iterates over ranges; a change of direction is a new range from where the cursor is.
struct Cursor<'a> {
    keyspace: &'a Keyspace,
    iter: Option<Iter>,
    forward: bool,
    entry: Option<(UserKey, UserValue)>,
}

impl Cursor<'_> {
    fn start(&mut self, iter: Iter, forward: bool) -> Result<()> {
        (self.iter, self.forward) = (Some(iter), forward);
        self.step()
    }

    fn step(&mut self) -> Result<()> {
        let iter = self.iter.as_mut().expect("a cursor is placed before it steps");
        let guard = if self.forward { iter.next() } else { iter.next_back() };
        self.entry = guard.map(|guard| guard.into_inner()).transpose()?;
        Ok(())
    }

    /// The key it is on; only while `valid`.
    fn here(&self) -> &UserKey {
        &self.entry.as_ref().expect("the cursor is on an entry").0
    }
}

impl KvCursor for Cursor<'_> {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.start(self.keyspace.range(key..), true)
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.start(self.keyspace.iter(), true)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.start(self.keyspace.iter(), false)
    }

    fn next(&mut self) -> Result<()> {
        if self.forward {
            return self.step();
        }
        let from = (std::ops::Bound::Excluded(self.here().clone()), std::ops::Bound::Unbounded);
        self.start(self.keyspace.range::<UserKey, _>(from), true)
    }

    fn prev(&mut self) -> Result<()> {
        if !self.forward {
            return self.step();
        }
        let until = self.here().clone();
        self.start(self.keyspace.range(..until), false)
    }

    fn valid(&self) -> bool {
        self.entry.is_some()
    }

    fn key(&self) -> &[u8] {
        self.here()
    }

    fn value(&self) -> &[u8] {
        &self.entry.as_ref().expect("the cursor is on an entry").1
    }
}
