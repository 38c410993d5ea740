//! Look-ups of several keys that read from the disk together (R3).
//!
//! ```text
//! keys in order -- walk --> answer
//!                    |  its next block is not in the cache
//!                    v
//!                 waiting: look-up, block -- blocks of all read together --> walk on from there
//!                    ^                                                          |  one more is missing
//!                    +----------------------------------------------------------+
//! ```
//! Each key walks through the sources as a single look-up does ([`get::walk`]), filters included, so a
//! round reads at most one block a key, of whatever table its walk stands at; mostly one round is all. In
//! key order, neighbours meet the same table and block one after the other: the last table of each level
//! is remembered, so that it is found without a look into the table cache.
//!
//! INVARIANTS
//! - All keys are read from one view at one sequence, which do not change over the waits.
//! - What becomes of a key depends on no other key, but for the deadline they share.
//! - At most [`WAITING_MAX`] look-ups and about [`WAITING_BYTES_MAX`] of blocks wait at once, however
//!   many keys there are.
//!
//! The older operands of a merge chain come, as in a single look-up, through a cursor that reads by
//! itself: nearly always from the block just read.
//!
//! Attacked by `lsm-core/tests/multi_get.rs`.

use std::sync::Arc;

use dialsm_io::Nanos;

use crate::callback::{Watch, sorted_by};
use crate::engine::Engine;
use crate::options::ReadOptions;
use crate::read::get::{self, Access, Ask, Lookup, ReadContext, Stop, Walked};
use crate::space::{Space, SpaceView};
use crate::table::{Block, Fetcher, Found, Missing, ReadStats, TableReader};
use crate::types::{FileNumber, SeqNo};
use crate::version::TableFile;
use crate::{Error, Result, Slice};

/// Look-ups that may wait for blocks at once: more would keep no disk busier.
const WAITING_MAX: usize = 256;

/// Bytes of blocks that they may wait for, before one more is added.
const WAITING_BYTES_MAX: u64 = 8 << 20;

/// The newest values of `keys` at or below `seqno` in this view, in the order of `keys`.
///
/// # Errors
/// `Callback` if the user's comparator panics; else that of the first key which has one: as
/// [`get::get`], and `TimedOut`.
pub(crate) fn multi_get(
    engine: &Engine,
    space: &Space,
    view: &SpaceView,
    keys: &[&[u8]],
    seqno: SeqNo,
    options: &ReadOptions,
    context: &mut ReadContext,
) -> Result<Vec<Option<Slice>>> {
    let watch = Watch::begin(&space.comparator);
    let asks: Vec<Ask<'_>> =
        space.trees.iter().map(|tree| Ask::new(engine, space, view, tree, seqno, options)).collect();
    // Where they are not read together, each block is read when a look-up waits for it.
    let waiting_max = if engine.options.load().batch_reads { WAITING_MAX } else { 1 };
    let mut batch = Batch {
        keys,
        values: vec![None; keys.len()],
        failed: None,
        deadline: options.deadline,
        access: space.trees.iter().map(|_| Remembering::default()).collect(),
        waiting: Vec::new(),
        wanted: Vec::new(),
        waiting_bytes: 0,
    };
    for at in sorted_by(&space.comparator, keys.len(), |at| keys[at]) {
        let mut lookup = Lookup::new();
        let ask = &asks[usize::from(space.primary(keys[at]).id.shard)];
        if space.shards() > 1 {
            engine.metrics.add_get_of_shard(ask.tree.id.shard);
        }
        if let Some(missing) = batch.walk(ask, at, &mut lookup, context) {
            batch.wait(ask, at, lookup, missing);
            if batch.waiting.len() >= waiting_max || batch.waiting_bytes >= WAITING_BYTES_MAX {
                batch.read(engine, &asks, context);
            }
        }
    }
    batch.read(engine, &asks, context);
    watch.check()?;
    match batch.failed {
        None => Ok(batch.values),
        Some((_, error)) => Err(error),
    }
}

struct Batch<'a> {
    keys: &'a [&'a [u8]],
    values: Vec<Option<Slice>>,
    /// The first of the keys, in the caller's order, that failed so far.
    failed: Option<(usize, Error)>,
    deadline: Option<Nanos>,
    /// By shard.
    access: Vec<Remembering>,
    waiting: Vec<Waiting>,
    /// The blocks that they wait for, in the same order.
    wanted: Vec<Missing>,
    waiting_bytes: u64,
}

/// A look-up that waits for a block.
struct Waiting {
    /// Number of the key.
    at: usize,
    shard: usize,
    lookup: Lookup,
}

impl Batch<'_> {
    /// Lets the look-up of key `at` walk on to its end, or to the next block that is missing.
    #[inline]
    fn walk(
        &mut self,
        ask: &Ask<'_>,
        at: usize,
        lookup: &mut Lookup,
        context: &mut ReadContext,
    ) -> Option<Missing> {
        let walked = match ask.engine.check_deadline(self.deadline) {
            Ok(()) => {
                let access = &mut self.access[usize::from(ask.tree.id.shard)];
                get::walk(ask, self.keys[at], lookup, context, access)
            }
            Err(error) => Err(error.into()),
        };
        match walked {
            Ok(value) => self.values[at] = value,
            Err(Stop::Waits(missing)) => return Some(missing),
            Err(Stop::Failed(error)) => self.fail(at, error),
        }
        None
    }

    #[cold]
    fn fail(&mut self, at: usize, error: Error) {
        if self.failed.as_ref().is_none_or(|(first, _)| at < *first) {
            self.failed = Some((at, error));
        }
    }

    fn wait(&mut self, ask: &Ask<'_>, at: usize, lookup: Lookup, missing: Missing) {
        self.waiting_bytes += missing.bytes();
        self.waiting.push(Waiting { at, shard: usize::from(ask.tree.id.shard), lookup });
        self.wanted.push(missing);
    }

    /// Reads until nobody waits.
    fn read(&mut self, engine: &Engine, asks: &[Ask<'_>], context: &mut ReadContext) {
        while !self.waiting.is_empty() {
            let fetcher = Fetcher { io: engine.io.clone(), spec: asks[0].spec, deadline: self.deadline };
            self.waiting_bytes = 0;
            let lookups = std::mem::take(&mut self.waiting);
            let wanted = std::mem::take(&mut self.wanted);
            let blocks = fetcher.fetch(&wanted, &mut context.blocks);
            for ((waiting, missing), block) in lookups.into_iter().zip(wanted).zip(blocks) {
                let Waiting { at, shard, mut lookup } = waiting;
                match block {
                    Ok(block) => {
                        self.access[shard].handed = Some((missing, block));
                        if let Some(missing) = self.walk(&asks[shard], at, &mut lookup, context) {
                            self.wait(&asks[shard], at, lookup, missing);
                        }
                        self.access[shard].handed = None;
                    }
                    Err(error) => self.fail(at, error),
                }
            }
        }
    }
}

/// Looks into the caches only, and remembers the last table that it found at each place.
#[derive(Default)]
struct Remembering {
    /// By place.
    last: Vec<Option<(FileNumber, Arc<TableReader>)>>,
    /// What the look-up that walks on has waited for.
    handed: Option<(Missing, Block)>,
}

impl Access for Remembering {
    type Wait = Missing;

    #[inline]
    fn open(&mut self, ask: &Ask<'_>, place: usize, table: &TableFile) -> Result<Arc<TableReader>> {
        if let Some((missing, _)) = &self.handed {
            return Ok(missing.table.clone());
        }
        if let Some(Some((number, reader))) = self.last.get(place)
            && *number == table.number()
        {
            return Ok(reader.clone());
        }
        let reader = ask.engine.open_table(ask.tree, table)?;
        if self.last.len() <= place {
            self.last.resize_with(place + 1, || None);
        }
        self.last[place] = Some((table.number(), reader.clone()));
        Ok(reader)
    }

    #[inline]
    fn look(
        &mut self,
        ask: &Ask<'_>,
        reader: &Arc<TableReader>,
        key: &[u8],
        seqno: SeqNo,
        stats: &mut ReadStats,
    ) -> Walked<Option<Found>, Missing> {
        let block = match self.handed.take() {
            Some((_, block)) => block,
            None => {
                let Some(at) = reader.locate(key, seqno, stats) else { return Ok(None) };
                if let Some(block) = reader.cached_block(at) {
                    stats.block_cache_hits += 1;
                    block
                } else if let Some(block) = reader.block_at_hand(at, &ask.spec, stats)? {
                    block
                } else {
                    return Err(Stop::Waits(Missing { table: reader.clone(), at }));
                }
            }
        };
        let found = reader.find_in(block, key, seqno)?;
        if found.is_none() {
            reader.note_absent(key, stats);
        }
        Ok(found)
    }
}
