//! DiaLSM through its C interface, as a careful C program uses it: objects that are kept for the next call, values
//! read where they lie, scans in batches. What is no read or write is asked of the engine directly.

use super::lsm_core::{Kind, LsmCore, options_for, text};
use super::shard_looks::ShardLooks;
use crate::config::EngineOptions;
use crate::engine::{BatchEntry, EngineStats, KvCursor, KvEngine, Look, Pending, ShardLimits, WriteOpts};
use anyhow::{Result, bail};
use dialsm_capi::{batch, database, iterator, read, write};
use dialsm_capi_logic::{
    Batch, Code, Database, Entries, Iter, OptionSet, Pinned, Status, Values, WriteOpts as Options,
};
use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::path::Path;

struct DialsmC {
    db: Box<Database>,
    /// One for each of the four ways to write.
    writes: [Options; 4],
    /// The same database, for all that is not measured.
    engine: LsmCore,
}

/// What a thread of a C program keeps for its calls.
#[derive(Default)]
struct Kept {
    status: Status,
    pinned: Pinned,
    values: Values,
    batch: Batch,
    entries: Entries,
}

thread_local! {
    static KEPT: RefCell<Kept> = RefCell::default();
}

/// Opens a database.
pub(super) fn open(dir: &Path, run: &EngineOptions, own: &[(&str, &str)]) -> Result<Box<dyn KvEngine>> {
    let mut options = options_for(Kind::Shards, run, own)?;
    let disables_log = run.disable_wal && options.log;
    let text = text(Kind::Shards, &options);
    let looks = ShardLooks::install(&mut options);
    let mut set = OptionSet::of_database();
    *set.options_mut() = options;
    let Some(path) = dir.to_str() else { bail!("a path that is no text") };
    let (mut db, mut status) = (MaybeUninit::new(None), Status::default());
    // SAFETY: the path is as long as it says.
    let code = unsafe {
        database::dialsm_open(path.as_ptr().cast(), path.len(), Some(&set), Some(&mut db), Some(&mut status))
    };
    check(code, &status)?;
    // SAFETY: it was set before the call, and by it.
    let Some(db) = (unsafe { db.assume_init() }) else { bail!("opened, and no handle") };
    let engine = LsmCore::over((**db.engine()).clone(), Some(looks), disables_log, text);
    let writes = [(false, false), (true, false), (false, true), (true, true)].map(|(sync, disable_log)| {
        let mut options = Options::default();
        options.options.sync = sync;
        options.options.disable_log = disable_log && disables_log;
        options
    });
    Ok(Box::new(DialsmC { db, writes, engine }))
}

fn check(code: Code, status: &Status) -> Result<()> {
    if code == Code::DIALSM_OK {
        return Ok(());
    }
    bail!("{}: {}", Code::name(code as u32).to_string_lossy(), status.message().to_string_lossy())
}

fn with_kept<T>(call: impl FnOnce(&mut Kept) -> Result<T>) -> Result<T> {
    KEPT.with_borrow_mut(call)
}

impl DialsmC {
    fn options(&self, opts: WriteOpts) -> Option<&Options> {
        Some(&self.writes[usize::from(opts.sync) + 2 * usize::from(opts.disable_wal)])
    }
}

impl KvEngine for DialsmC {
    fn put(&self, key: &[u8], value: &[u8], opts: WriteOpts) -> Result<()> {
        with_kept(|kept| {
            let (k, v) = (key.as_ptr().cast(), value.as_ptr().cast());
            let (db, options, status) = (Some(&*self.db), self.options(opts), Some(&mut kept.status));
            // SAFETY: key and value are as long as they say.
            let code = unsafe { write::dialsm_put(db, None, options, k, key.len(), v, value.len(), status) };
            check(code, &kept.status)
        })
    }

    fn delete(&self, key: &[u8], opts: WriteOpts) -> Result<()> {
        with_kept(|kept| {
            let (db, options, status) = (Some(&*self.db), self.options(opts), Some(&mut kept.status));
            // SAFETY: the key is as long as it says.
            let code =
                unsafe { write::dialsm_delete(db, None, options, key.as_ptr().cast(), key.len(), status) };
            check(code, &kept.status)
        })
    }

    fn write_batch(&self, entries: &[BatchEntry<'_>], opts: WriteOpts) -> Result<()> {
        with_kept(|kept| {
            batch::dialsm_batch_clear(Some(&mut kept.batch));
            for BatchEntry { key, value } in entries {
                let (status, batch) = (Some(&mut kept.status), Some(&mut kept.batch));
                let (k, k_len) = (key.as_ptr().cast(), key.len());
                // SAFETY: key and value are as long as they say.
                let code = unsafe {
                    match value {
                        Some(v) => {
                            batch::dialsm_batch_put(batch, None, k, k_len, v.as_ptr().cast(), v.len(), status)
                        }
                        None => batch::dialsm_batch_delete(batch, None, k, k_len, status),
                    }
                };
                check(code, &kept.status)?;
            }
            let (batch, status) = (Some(&kept.batch), Some(&mut kept.status));
            check(write::dialsm_write(Some(&self.db), self.options(opts), batch, status), &kept.status)
        })
    }

    fn create_keyspaces(&self, count: u32) -> Result<()> {
        self.engine.create_keyspaces(count)
    }

    fn delete_range(&self, from: &[u8], to: &[u8]) -> Result<()> {
        self.engine.delete_range(from, to)
    }

    fn get(&self, key: &[u8], sink: &mut dyn FnMut(&[u8])) -> Result<bool> {
        with_kept(|kept| {
            let (k, pinned, status) = (key.as_ptr().cast(), Some(&mut kept.pinned), Some(&mut kept.status));
            // SAFETY: the key is as long as it says.
            let code =
                unsafe { read::dialsm_get_pinned(Some(&self.db), None, None, k, key.len(), pinned, status) };
            check(code, &kept.status)?;
            kept.pinned.value().map(&mut *sink);
            Ok(kept.pinned.value().is_some())
        })
    }

    fn multi_get(&self, keys: &[&[u8]], sink: &mut dyn FnMut(&[u8])) -> Result<u64> {
        with_kept(|kept| {
            let (starts, lens): (Vec<_>, Vec<_>) =
                keys.iter().map(|key| (key.as_ptr().cast(), key.len())).unzip();
            let (starts, lens) = (starts.as_ptr(), lens.as_ptr());
            let (db, values, status) = (Some(&*self.db), Some(&mut kept.values), Some(&mut kept.status));
            // SAFETY: arrays and keys are as long as they say.
            let code =
                unsafe { read::dialsm_multi_get(db, None, None, keys.len(), starts, lens, values, status) };
            check(code, &kept.status)?;
            let found = (0..keys.len()).filter_map(|at| kept.values.value(at));
            Ok(found.map(&mut *sink).count() as u64)
        })
    }

    fn scan(&self, from: &[u8], count: u64, sink: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut cursor = Cursor::new(&self.db)?;
        cursor.seek(from)?;
        with_kept(|kept| {
            let mut seen = 0;
            while seen < count {
                let most = (count - seen).min(256) as usize;
                let (entries, status) = (Some(&mut kept.entries), Some(&mut kept.status));
                let code = iterator::dialsm_iter_next_batch(Some(&mut cursor.0), entries, most, 0, status);
                check(code, &kept.status)?;
                if kept.entries.is_empty() {
                    break;
                }
                let mut start = 0;
                for ends in kept.entries.ends().chunks_exact(2) {
                    let data = kept.entries.data();
                    sink(&data[start..ends[0]], &data[ends[0]..ends[1]]);
                    start = ends[1];
                }
                seen += kept.entries.len() as u64;
            }
            Ok(seen)
        })
    }

    fn cursor(&self) -> Result<Box<dyn KvCursor + '_>> {
        Ok(Box::new(Cursor::new(&self.db)?))
    }

    fn flush(&self) -> Result<()> {
        self.engine.flush()
    }

    fn pending(&self) -> Result<Pending> {
        self.engine.pending()
    }

    fn stats(&self) -> Result<EngineStats> {
        self.engine.stats()
    }

    fn look(&self) -> Look {
        self.engine.look()
    }

    fn shard_limits(&self, shards: usize) -> Vec<ShardLimits> {
        self.engine.shard_limits(shards)
    }

    fn clues(&self) -> Option<u64> {
        self.engine.clues()
    }

    fn options_text(&self) -> String {
        self.engine.options_text()
    }

    fn close(self: Box<Self>) -> Result<()> {
        let mut status = Status::default();
        check(database::dialsm_close(Some(&self.db), Some(&mut status)), &status)
    }
}

struct Cursor(Box<Iter>);

impl Cursor {
    fn new(db: &Database) -> Result<Cursor> {
        let (mut iter, mut status) = (MaybeUninit::new(None), Status::default());
        let code = iterator::dialsm_iter_create(Some(db), None, None, Some(&mut iter), Some(&mut status));
        check(code, &status)?;
        // SAFETY: it was set before the call, and by it.
        match unsafe { iter.assume_init() } {
            Some(iter) => Ok(Cursor(iter)),
            None => bail!("no iterator"),
        }
    }

    fn go(&mut self, to: extern "C" fn(Option<&mut Iter>, Option<&mut Status>) -> Code) -> Result<()> {
        let mut status = Status::default();
        check(to(Some(&mut self.0), Some(&mut status)), &status)
    }
}

impl KvCursor for Cursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let mut status = Status::default();
        let (iter, k) = (Some(&mut *self.0), key.as_ptr().cast());
        // SAFETY: the key is as long as it says.
        let code = unsafe { iterator::dialsm_iter_seek(iter, k, key.len(), Some(&mut status)) };
        check(code, &status)
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.go(iterator::dialsm_iter_seek_to_first)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.go(iterator::dialsm_iter_seek_to_last)
    }

    fn next(&mut self) -> Result<()> {
        self.go(iterator::dialsm_iter_next)
    }

    fn prev(&mut self) -> Result<()> {
        self.go(iterator::dialsm_iter_prev)
    }

    fn valid(&self) -> bool {
        iterator::dialsm_iter_valid(Some(&self.0))
    }

    fn key(&self) -> &[u8] {
        self.0.key().unwrap_or_default()
    }

    fn value(&self) -> &[u8] {
        self.0.value().unwrap_or_default()
    }
}
