//! The engine behind the store trait: real databases on the real file system.

use std::path::Path;
use std::sync::Arc;

use dialsm::router::HashRouter;
use dialsm_core::{
    CompactRangeOptions, Db, DbIterator, Options, ReadOptions, Result, WriteBatch, WriteOptions,
};
use dialsm_io::{Env, Fs};

use crate::store::{Cursor, Op, OpenMode, Opener, Range, StatsForm, Store, Verified};

#[cfg(test)]
mod tests;

/// Opens databases in one environment.
pub struct Engine {
    env: Arc<dyn Env>,
}

impl Engine {
    /// On `env`: the operating system's in the program.
    pub fn new(env: Arc<dyn Env>) -> Engine {
        Engine { env }
    }
}

impl Opener for Engine {
    fn open(&self, path: &Path, mut options: Options, mode: OpenMode) -> Result<Box<dyn Store>> {
        options.create_if_missing = mode == OpenMode::CreateIfMissing;
        options.error_if_exists = false;
        // Whatever number of shards it has; a new one gets as many as an application's would.
        options.router.get_or_insert_with(HashRouter::object);
        if options.shard_dirs.is_empty() {
            // Where they were last. What does not load is for the opening to complain of.
            let saved = Options::load(self.env.as_ref(), path);
            options.shard_dirs = saved.map(|saved| saved.shard_dirs).unwrap_or_default();
        }
        let open = match mode {
            OpenMode::ReadOnly => Db::open_read_only,
            OpenMode::Existing | OpenMode::CreateIfMissing => Db::open,
        };
        Ok(Box::new(Database { db: open(self.env.clone(), path, options)? }))
    }

    fn saved_options(&self, path: &Path) -> Result<Options> {
        Options::load(&*self.env, path)
    }

    fn fs(&self) -> Arc<dyn Fs> {
        self.env.fs().clone()
    }
}

struct Database {
    db: Db,
}

impl Store for Database {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let value = self.db.get(&ReadOptions::default(), key)?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn write(&self, ops: Vec<Op>, sync: bool) -> Result<()> {
        let mut batch = WriteBatch::new();
        for op in &ops {
            match op {
                Op::Put(key, value) => batch.put(key, value)?,
                Op::Delete(key) => batch.delete(key)?,
            }
        }
        self.db.write(&WriteOptions { sync, ..WriteOptions::default() }, batch)
    }

    fn scan(&self, range: &Range) -> Result<Box<dyn Cursor>> {
        let options = ReadOptions {
            lower_bound: range.lower.clone(),
            upper_bound: range.upper.clone(),
            // One pass: nothing will be read twice.
            fill_cache: false,
            ..ReadOptions::default()
        };
        let iter = self.db.iter(&options)?;
        Ok(Box::new(Walk { iter, reverse: range.reverse, started: false }))
    }

    fn flush(&self) -> Result<()> {
        self.db.flush()
    }

    fn compact(&self, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Result<()> {
        self.db.compact_range(&CompactRangeOptions::default(), lower, upper)
    }

    fn stats(&self, form: StatsForm) -> Result<String> {
        Ok(match form {
            StatsForm::Text => self.db.stats_text(),
            StatsForm::Json => self.db.stats_json(),
            StatsForm::Prometheus => self.db.metrics().to_prometheus(),
        })
    }

    fn property(&self, name: &str) -> Result<Option<String>> {
        Ok(self.db.property(name))
    }

    fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Verified> {
        let report = self.db.verify(progress)?;
        Ok(Verified { tables: report.tables, entries: report.entries, bytes: report.bytes })
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.db.close()
    }
}

struct Walk {
    iter: DbIterator,
    reverse: bool,
    started: bool,
}

impl Cursor for Walk {
    fn next_entry(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        match (self.started, self.reverse) {
            (false, false) => self.iter.seek_to_first()?,
            (false, true) => self.iter.seek_to_last()?,
            // Behind the end there is nowhere to go.
            (true, _) if !self.iter.valid() => return Ok(None),
            (true, false) => self.iter.next()?,
            (true, true) => self.iter.prev()?,
        }
        self.started = true;
        Ok(self.iter.valid().then(|| (self.iter.key(), self.iter.value())))
    }
}
