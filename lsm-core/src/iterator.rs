//! The cursor a user gets: a view held for its whole life, merged and resolved.

use std::sync::Arc;

use dialsm_io::env::Nanos;

use crate::callback::Watch;
use crate::db::Reading;
use crate::engine::Engine;
use crate::metrics::Counter;
use crate::options::ReadOptions;
use crate::pins::Pin;
use crate::prefix::Scope;
use crate::range_del::scan::ScanCover;
use crate::read::db_iter::{DbIter, IterStats, VoidTest};
use crate::read::get::ReadContext;
use crate::read::internal::InternalIter;
use crate::read::level_iter::LevelIter;
use crate::read::merging_iter::MergingIter;
use crate::read::scan_source::{ScanSource, TreeScan};
use crate::routing::decode_clue;
use crate::scan::ahead::{Ahead, Helpers};
use crate::scan::producer::Producer;
use crate::space::{Space, SpaceView};
use crate::table::{Fetcher, IterSpec, READAHEAD_BYTES, ReadSpec, ReadStats};
use crate::tree::{Tree, TreeView};
use crate::types::{SEQNO_MAX, SeqNo, TreeId};
use crate::version::{LEVELS, TableFile};
use crate::{Error, Result, Slice};

/// An ordered cursor over the keys of a keyspace, as they were when it was made.
///
/// Owns what it needs: it may outlive the [`Db`](crate::Db) handle it came from, and keeps the
/// database's files (not its writers) from going away, also where its keyspace is dropped. All moves are fallible; after an error
/// the cursor is not valid, and not valid without an error means that the end was reached.
pub struct DbIterator {
    inner: DbIter<ScanSource>,
    reading: Reading,
    pin: Pin,
    /// Keeps memtables and tables; what the children point into they also own.
    view: Arc<SpaceView>,
    space: Arc<Space>,
    deadline: Option<Nanos>,
    seeks: u64,
    steps: u64,
}

/// The clock is read for a deadline once in so many steps.
const STEPS_BETWEEN_LOOKS: u64 = 64;

impl DbIterator {
    /// Over `tree`, at the options' snapshot or at what is visible now.
    pub(crate) fn new(reading: Reading, space: &Arc<Space>, options: &ReadOptions) -> Result<DbIterator> {
        let engine = &reading.0.engine;
        let (view, visible) = {
            let (guard, visible) = space.view_at_visible(engine.commit.visible());
            (Arc::clone(&guard), visible)
        };
        engine.check_keyspace(space)?;
        let seqno = options.snapshot.as_ref().map_or(visible, |snapshot| snapshot.seqno());
        let extractor = space.prefix_extractor.as_ref();
        if options.prefix_same_as_start && extractor.is_none() {
            return Err(Error::invalid("prefix_same_as_start needs a keyspace with a prefix extractor"));
        }
        let watch = Watch::begin(&space.comparator);
        let mut shards = Vec::with_capacity(space.trees.len());
        for tree in &space.trees {
            shards.push(tree_scan(engine, tree, view.of(tree), seqno, options)?);
        }
        let source = match shards.pop() {
            Some(only) if shards.is_empty() => ScanSource::Tree(only),
            last => {
                shards.extend(last);
                let merged = MergingIter::new(space.comparator.clone(), shards);
                ScanSource::Shards(reading_together(engine, options, merged))
            }
        };
        let (lower, upper) = (options.lower_bound.as_deref(), options.upper_bound.as_deref());
        let scope = Scope::new(extractor, &space.comparator, options.prefix_same_as_start, lower, upper)?;
        let inner = DbIter::new(source, space.comparator.clone(), seqno, lower, upper)
            .merging(space.merging.operator.clone())
            .with_voids(engine.has_voids().then(|| voids_of(engine, space)))
            .with_scope(scope);
        // A table may have been left out for its bounds.
        watch.check()?;
        let pin = engine.pins.add(space, &view, engine.env.now());
        let (space, deadline) = (space.clone(), options.deadline);
        Ok(DbIterator { inner, reading, pin, view, space, deadline, seeks: 0, steps: 0 })
    }

    fn count_seek(&mut self) -> Result<()> {
        self.seeks += 1;
        self.check_deadline()
    }

    /// A move past the deadline fails as any other does: from then on the cursor stands nowhere.
    fn check_deadline(&mut self) -> Result<()> {
        self.reading.0.engine.check_deadline(self.deadline).inspect_err(|error| self.inner.fail(error))
    }

    #[inline]
    fn count_step(&mut self) -> Result<()> {
        self.steps += 1;
        if self.deadline.is_some() && self.steps.is_multiple_of(STEPS_BETWEEN_LOOKS) {
            return self.check_deadline();
        }
        Ok(())
    }

    /// Whether the cursor stands on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.inner.valid()
    }

    /// To the first key within the bounds.
    ///
    /// # Errors
    /// `Corruption` or `Io` of the tables, `TimedOut` past the options' deadline; the same for all moves.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.count_seek()?;
        self.inner.seek_to_first()
    }

    /// To the last key within the bounds.
    ///
    /// # Errors
    /// As [`DbIterator::seek_to_first`].
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.count_seek()?;
        self.inner.seek_to_last()
    }

    /// To the first key at or after `key`.
    ///
    /// # Errors
    /// As [`DbIterator::seek_to_first`].
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.count_seek()?;
        self.inner.seek(key)
    }

    /// To the last key at or before `key`.
    ///
    /// # Errors
    /// As [`DbIterator::seek_to_first`].
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.count_seek()?;
        self.inner.seek_for_prev(key)
    }

    /// To the next key. Only while valid.
    ///
    /// # Errors
    /// As [`DbIterator::seek_to_first`].
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "iteration is fallible and lends its items")]
    pub fn next(&mut self) -> Result<()> {
        self.count_step()?;
        self.inner.next()
    }

    /// To the key before. Only while valid.
    ///
    /// # Errors
    /// As [`DbIterator::seek_to_first`].
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        self.count_step()?;
        self.inner.prev()
    }

    /// The key. Only while valid; lives until the next move.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.inner.key()
    }

    /// The value. Only while valid; lives until the next move.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.inner.value()
    }

    /// The value as a slice that outlives the cursor.
    pub fn value_slice(&self) -> Slice {
        self.inner.value_slice()
    }

    /// Lets other threads read ahead, forward, from where it stands; at most `bytes_max` bytes. Without any
    /// that may, nothing changes. From then on it only goes forward.
    ///
    /// # Errors
    /// As a move. Every further step gives it again.
    pub(crate) fn read_ahead(&mut self, bytes_max: usize) -> Result<()> {
        let engine = &self.reading.0.engine;
        let threads = engine.options.load().scan_threads;
        if threads == 0 || engine.scan_workers.start(engine.env.as_ref(), threads) == 0 {
            return Ok(());
        }
        let helpers = Helpers { env: engine.env.clone(), workers: engine.scan_workers.clone(), bytes_max };
        let deadline = self.deadline;
        self.inner.exchange_source(|source, order, snapshot, upper| {
            source.read_ahead(helpers, deadline, order, |tree| {
                Producer::new(tree, order.clone(), snapshot, upper)
            })
        })
    }

    /// Whether other threads read ahead for it.
    pub(crate) fn is_ahead(&self) -> bool {
        matches!(self.inner.source(), ScanSource::Ahead(..))
    }

    /// What passing over hidden entries has cost since the cursor was made.
    pub fn stats(&self) -> IterStats {
        let ranges = self.inner.source().range_stats();
        IterStats { skipped_covered: ranges.covered, range_jumps: ranges.jumps, ..self.inner.stats() }
    }

    /// What reading has cost so far: blocks, bytes, filters. Added to the metrics when the cursor is
    /// dropped.
    pub fn read_stats(&self) -> ReadStats {
        self.inner.read_stats()
    }

    /// The same as a look-up would have it: memtables of its view, tables opened, blocks.
    pub fn context(&self) -> ReadContext {
        let blocks = self.read_stats();
        let memtables: usize = self.view.shards().iter().map(|tree| 1 + tree.sealed.len()).sum();
        let (memtables, tables) = (memtables as u32, blocks.cursors as u32);
        ReadContext { memtables, tables, blocks, ..ReadContext::default() }
    }
}

/// Which clues of a keyspace stand for nothing.
fn voids_of(engine: &Arc<Engine>, space: &Space) -> VoidTest {
    let (engine, keyspace, shards) = (engine.clone(), space.id, space.shards());
    Box::new(move |clue, seqno| {
        decode_clue(clue, shards).is_ok_and(|shard| engine.is_void(TreeId { keyspace, shard }, seqno))
    })
}

/// The sources of a scan in one tree, newest first.
fn tree_scan(
    engine: &Arc<Engine>,
    tree: &Arc<Tree>,
    view: &TreeView,
    seqno: SeqNo,
    options: &ReadOptions,
) -> Result<TreeScan> {
    let spec = IterSpec {
        fill_cache: options.fill_cache,
        verify: options.verify_checksums,
        // Bulk scans say how much, and leave the cache to others.
        cache_ahead: options.readahead_bytes == 0,
        readahead_max: match options.readahead_bytes {
            0 => READAHEAD_BYTES,
            told => told as usize,
        },
    };
    let mut children: Vec<Box<dyn InternalIter>> = Vec::with_capacity(view.sealed.len() + 2);
    let mut cover = ScanCover::new(tree.comparator.clone(), seqno);
    for buffer in std::iter::once(&view.active).chain(&view.sealed) {
        if !buffer.table.is_empty() {
            if let Some(range_dels) = buffer.table.range_dels() {
                // What is inserted from here on lies above the sequence read at.
                let newest = buffer.table.seqno_range().map_or(0, |(_, max)| max);
                range_dels.runs.iter().for_each(|run| cover.add_set(children.len(), run.clone(), newest));
            }
            children.push(Box::new(buffer.table.iter()));
        }
    }
    let (lower, upper) = (options.lower_bound.as_deref(), options.upper_bound.as_deref());
    for table in view.version.overlapping(0, lower, upper) {
        let reader = engine.open_table(tree, &table)?;
        if let Some(set) = reader.range_dels() {
            cover.add_set(children.len(), set.clone(), SEQNO_MAX);
        }
        children.push(Box::new(reader.iter(spec)));
    }
    for level in 1..LEVELS {
        let tables = view.version.level(level);
        if tables.is_empty() {
            continue;
        }
        if !tables.with_range_deletes().is_empty() {
            let (opener, owner) = (engine.clone(), tree.clone());
            let open =
                move |table: &Arc<TableFile>| Ok(opener.open_table(&owner, table)?.range_dels().cloned());
            cover.add_level(children.len(), tables.clone(), Box::new(open));
        }
        let (opener, owner) = (engine.clone(), tree.clone());
        let open = move |table: &Arc<TableFile>| Ok(opener.open_table(&owner, table)?.iter(spec));
        let order = tree.comparator.clone();
        children.push(Box::new(LevelIter::new(order, tables.clone(), lower, upper, open)));
    }
    if tree.shards > 1 && engine.was_unlogged {
        // Its copy of a range tombstone may be all that a crash has left of it.
        cover = cover.sparing_redirected();
    }
    let merged = MergingIter::new(tree.comparator.clone(), children).with_cover(cover);
    Ok(reading_together(engine, options, merged))
}

/// The merge, reading together what its seeks need, if the options say so.
fn reading_together<I: InternalIter>(
    engine: &Engine,
    options: &ReadOptions,
    merged: MergingIter<I>,
) -> MergingIter<I> {
    if !engine.options.load().batch_reads {
        return merged;
    }
    let spec = ReadSpec { fill_cache: options.fill_cache, verify: options.verify_checksums };
    // A seek that has begun goes on past the deadline, as it does where it reads by itself.
    merged.reading_together(Fetcher { io: engine.io.clone(), spec, deadline: None })
}

impl Drop for DbIterator {
    fn drop(&mut self) {
        let engine = &self.reading.0.engine;
        if let ScanSource::Ahead(shards, _) = self.inner.source() {
            // One stands for all lanes.
            shards.children().iter().take(1).for_each(Ahead::halt);
        }
        engine.pins.remove(self.pin);
        let stats = self.stats();
        let skips =
            stats.skipped_newer + stats.skipped_older + stats.skipped_tombstones + stats.skipped_covered;
        engine.metrics.add_all(&[
            (Counter::IteratorSeeks, self.seeks),
            (Counter::IteratorSteps, self.steps),
            (Counter::IteratorSkips, skips),
            (Counter::RangeJumps, stats.range_jumps),
        ]);
        engine.metrics.mine().add_reads(&self.inner.read_stats());
        if self.space.spent.note_seeks(self.seeks) {
            engine.schedule();
        }
    }
}
