//! Bulk scans: a range of keys, in batches.
//!
//! ```text
//! ScanOptions ─► DbIterator, sent to its first key ─► ScanBatch, ScanBatch, ...   on the caller's thread
//!                    └─ a long one: its shards go to `producer`s, whose blocks are packed ahead (`ahead`)
//!                       by a small pool of threads (`workers`); the merge and all above it stay what they are
//! ```
//! A scan shows what an iterator with the same bounds shows, of one view and one sequence, whatever threads take
//! part. It turns to threads where it stands, between two entries, and only after it has delivered so many
//! bytes that it counts as long: a short one never pays for them.
//!
//! It also reads its tables ahead, from some blocks in order on, where an iterator reads block by block until it is
//! told: that alone takes a third to a half off its processor time where blocks are in no cache.
//!
//! Threads are off by default. Measured on two cores with 1 KB values, four shards and the files in the page cache,
//! they take a fifth off what the caller's thread does and double what all threads do together: they are for callers
//! with processors to spare.
//!
//! Absent on purpose: going backward ahead. Such scans come in batches, too, but from the caller's thread.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::Result;
use crate::callback::Watch;
use crate::db::Reading;
use crate::iterator::DbIterator;
use crate::key::Comparator;
use crate::options::ReadOptions;
use crate::read::get::ReadContext;
use crate::space::Space;
use crate::table::{READAHEAD_BYTES, ReadStats};

pub(crate) mod ahead;
mod batch;
pub(crate) mod producer;
pub(crate) mod workers;

pub use batch::ScanBatch;

/// What a scan covers, and how it comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanOptions {
    /// The first key wanted; absent, from the first there is. Those of [`ReadOptions::lower_bound`] count, too.
    pub start: Option<Vec<u8>>,
    /// The first key not wanted any more; absent, up to the last there is. As `start`.
    pub end: Option<Vec<u8>>,
    /// Entries after which the scan ends; 0 = no limit.
    pub entries_max: u64,
    /// From the end of the range to its start.
    pub backward: bool,
    /// Bytes of keys and values at which a batch is given: at least that many, unless the range ends before,
    /// and at most an entry more. 128 KiB by default, which stays in a processor's cache.
    pub batch_bytes: usize,
    /// Entries at which a batch is given; 0 = its bytes alone say when.
    pub batch_entries_max: usize,
    /// Bytes that have to be delivered, and about to come, for the scan to count as long: from then on other
    /// threads read its shards ahead, if the option `scan_threads` allows some. `u64::MAX` = never. 256 KiB by
    /// default.
    pub long_bytes: u64,
    /// Bytes that may be read ahead of the caller, all shards together. 8 MiB by default.
    pub ahead_bytes_max: usize,
}

impl Default for ScanOptions {
    fn default() -> ScanOptions {
        ScanOptions {
            start: None,
            end: None,
            entries_max: 0,
            backward: false,
            batch_bytes: 128 << 10,
            batch_entries_max: 0,
            long_bytes: 256 << 10,
            ahead_bytes_max: 8 << 20,
        }
    }
}

/// A scan under way. Owns what it needs, as an iterator does, and like one it keeps memtables and tables from
/// going away until it is dropped. For one thread at a time.
pub struct Scan {
    iter: DbIterator,
    options: ScanOptions,
    stage: Stage,
    /// Delivered so far.
    entries: u64,
    bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Not positioned yet.
    New,
    /// The iterator stands on the entry given last.
    Given,
    /// It stands on the next one, for which there was no memory.
    Refused,
    Over,
}

impl Scan {
    pub(crate) fn new(
        reading: Reading,
        space: &Arc<Space>,
        read: &ReadOptions,
        options: &ScanOptions,
    ) -> Result<Scan> {
        let order = &space.comparator;
        let watch = Watch::begin(order);
        let bounded = ReadOptions {
            lower_bound: tighter(order, &read.lower_bound, &options.start, Ordering::Greater),
            upper_bound: tighter(order, &read.upper_bound, &options.end, Ordering::Less),
            readahead_bytes: match read.readahead_bytes {
                0 => READAHEAD_BYTES as u64,
                told => told,
            },
            ..read.clone()
        };
        watch.check()?;
        let iter = DbIterator::new(reading, space, &bounded)?;
        Ok(Scan { iter, options: options.clone(), stage: Stage::New, entries: 0, bytes: 0 })
    }

    /// The next entries; `None` at the end.
    ///
    /// # Errors
    /// As the moves of an iterator. What was read before the error was given before it; after it, it
    /// comes again, but `OutOfMemory`, for one entry of the batch, only as long as it holds.
    pub fn next_batch(&mut self) -> Result<Option<ScanBatch>> {
        let mut batch = ScanBatch::new();
        Ok(self.fill(&mut batch)?.then_some(batch))
    }

    /// The same into a batch that is there already, whose memory is used again; `false`, and an empty batch, at
    /// the end.
    ///
    /// # Errors
    /// As [`Scan::next_batch`]; the batch is empty then.
    pub fn fill(&mut self, batch: &mut ScanBatch) -> Result<bool> {
        batch.clear();
        if self.stage == Stage::Over {
            return Ok(false);
        }
        self.turn_long()?;
        let result = self.gather(batch);
        self.entries += batch.len() as u64;
        self.bytes += batch.bytes() as u64;
        match result {
            // The iterator gives the error again at its next move.
            Err(error) if batch.is_empty() => Err(error),
            _ => Ok(!batch.is_empty()),
        }
    }

    fn gather(&mut self, batch: &mut ScanBatch) -> Result<()> {
        let left = self.entries_left();
        let entries_max = match self.options.batch_entries_max {
            0 => left,
            most => left.min(most as u64),
        };
        let bytes_max = self.options.batch_bytes.max(1);
        while (batch.len() as u64) < entries_max && batch.bytes() < bytes_max {
            if self.stage != Stage::Refused {
                self.step()?;
                if !self.iter.valid() {
                    self.stage = Stage::Over;
                    return Ok(());
                }
            }
            self.stage = Stage::Refused;
            batch.push(self.iter.key(), self.iter.value())?;
            self.stage = Stage::Given;
        }
        if self.entries_left() == batch.len() as u64 {
            self.stage = Stage::Over;
        }
        Ok(())
    }

    /// To the entry that follows the one given last.
    #[inline]
    fn step(&mut self) -> Result<()> {
        match (self.stage, self.options.backward) {
            (Stage::Given, false) => self.iter.next(),
            (Stage::Given, true) => self.iter.prev(),
            (_, false) => self.begin(DbIterator::seek_to_first),
            (_, true) => self.begin(DbIterator::seek_to_last),
        }
    }

    fn begin(&mut self, seek: fn(&mut DbIterator) -> Result<()>) -> Result<()> {
        seek(&mut self.iter)?;
        self.stage = Stage::Given;
        Ok(())
    }

    fn entries_left(&self) -> u64 {
        match self.options.entries_max {
            0 => u64::MAX,
            most => most - self.entries,
        }
    }

    /// Lets other threads read ahead once the scan has shown itself to be long.
    fn turn_long(&mut self) -> Result<()> {
        let long = self.options.long_bytes;
        if self.stage != Stage::Given || self.options.backward || self.bytes < long || long == u64::MAX {
            return Ok(());
        }
        // What is about to come, if entries stay as they are.
        let each = self.bytes / self.entries.max(1);
        if self.entries_left().saturating_mul(each.max(1)) < long {
            return Ok(());
        }
        self.options.long_bytes = u64::MAX;
        self.iter.read_ahead(self.options.ahead_bytes_max)
    }

    /// Whether other threads read ahead for it.
    pub fn is_ahead(&self) -> bool {
        self.iter.is_ahead()
    }

    /// What reading has cost so far; see [`DbIterator::read_stats`].
    pub fn read_stats(&self) -> ReadStats {
        self.iter.read_stats()
    }

    /// The same as a look-up would have it; see [`DbIterator::context`].
    pub fn context(&self) -> ReadContext {
        self.iter.context()
    }
}

/// Of two bounds the one that leaves less: `wins` says how it compares with the other.
fn tighter(order: &Comparator, a: &Option<Vec<u8>>, b: &Option<Vec<u8>>, wins: Ordering) -> Option<Vec<u8>> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if order.compare(a, b) == wins { a.clone() } else { b.clone() }),
        (a, b) => a.as_ref().or(b.as_ref()).cloned(),
    }
}
