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
use crate::table::{Block, Fetcher, Found, Missing, ReadStats, TableReader};
use crate::tree::{Tree, TreeView};
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
    tree: &Tree,
    view: &TreeView,
    keys: &[&[u8]],
    seqno: SeqNo,
    options: &ReadOptions,
    context: &mut ReadContext,
) -> Result<Vec<Option<Slice>>> {
    let watch = Watch::begin(&tree.comparator);
    let ask = Ask::new(engine, tree, view, seqno, options);
    // Where they are not read together, each block is read when a look-up waits for it.
    let waiting_max = if engine.options.load().batch_reads { WAITING_MAX } else { 1 };
    let mut batch = Batch {
        keys,
        values: vec![None; keys.len()],
        failed: None,
        deadline: options.deadline,
        access: Remembering::default(),
        waiting: Vec::new(),
        waiting_bytes: 0,
    };
    for at in sorted_by(&tree.comparator, keys.len(), |at| keys[at]) {
        let mut lookup = Lookup::new();
        if let Some(missing) = batch.walk(&ask, at, &mut lookup, context) {
            batch.wait(at, lookup, missing);
            if batch.waiting.len() >= waiting_max || batch.waiting_bytes >= WAITING_BYTES_MAX {
                batch.read(&ask, context);
            }
        }
    }
    batch.read(&ask, context);
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
    access: Remembering,
    /// Number of the key, its look-up, and the block that it waits for.
    waiting: Vec<(usize, Lookup, Missing)>,
    waiting_bytes: u64,
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
            Ok(()) => get::walk(ask, self.keys[at], lookup, context, &mut self.access),
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

    fn wait(&mut self, at: usize, lookup: Lookup, missing: Missing) {
        self.waiting_bytes += missing.bytes();
        self.waiting.push((at, lookup, missing));
    }

    /// Reads until nobody waits.
    fn read(&mut self, ask: &Ask<'_>, context: &mut ReadContext) {
        while !self.waiting.is_empty() {
            let io = ask.engine.io.clone();
            let fetcher = Fetcher { io, spec: ask.spec, deadline: self.deadline };
            self.waiting_bytes = 0;
            let mut lookups = Vec::with_capacity(self.waiting.len());
            let mut wanted = Vec::with_capacity(self.waiting.len());
            for (at, lookup, missing) in self.waiting.drain(..) {
                lookups.push((at, lookup));
                wanted.push(missing);
            }
            let blocks = fetcher.fetch(&wanted, &mut context.blocks);
            for (((at, mut lookup), missing), block) in lookups.into_iter().zip(wanted).zip(blocks) {
                match block {
                    Ok(block) => {
                        self.access.handed = Some((missing, block));
                        if let Some(missing) = self.walk(ask, at, &mut lookup, context) {
                            self.wait(at, lookup, missing);
                        }
                        self.access.handed = None;
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
        _: &Ask<'_>,
        reader: &Arc<TableReader>,
        key: &[u8],
        seqno: SeqNo,
        stats: &mut ReadStats,
    ) -> Walked<Option<Found>, Missing> {
        let block = match self.handed.take() {
            Some((_, block)) => block,
            None => {
                let Some(at) = reader.locate(key, seqno, stats) else { return Ok(None) };
                let Some(block) = reader.cached_block(at) else {
                    return Err(Stop::Waits(Missing { table: reader.clone(), at }));
                };
                stats.block_cache_hits += 1;
                block
            }
        };
        Ok(reader.find_in(block, key, seqno)?)
    }
}
