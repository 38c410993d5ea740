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
//! key order, neighbours meet the same table and block one after the other: each source remembers its
//! last ones, so that they are found without a look into the caches.
//!
//! INVARIANTS
//! - All keys are read from one view at one sequence, which do not change over the waits.
//! - What a key's answer or error is depends on no other key, but for the deadline they share.
//! - At most [`WAITING_MAX`] look-ups and about [`WAITING_BYTES_MAX`] of blocks wait at once, however
//!   many keys there are.
//!
//! The older operands of a merge chain come, as in a single look-up, through a cursor that reads by
//! itself: nearly always from the block just read.
//!
//! Attacked by `lsm-core/tests/multi_get.rs`.

use std::sync::Arc;

use crate::callback::{Watch, sorted_by};
use crate::engine::Engine;
use crate::options::ReadOptions;
use crate::read::get::{self, Access, Ask, Lookup, ReadContext, Step};
use crate::table::{Block, Fetcher, Found, Missing, ReadStats, TableReader};
use crate::tree::{Tree, TreeView};
use crate::types::{FileNumber, SeqNo};
use crate::version::TableFile;
use crate::{Result, Slice};

/// Look-ups that may wait for blocks at once: more would keep no disk busier.
const WAITING_MAX: usize = 256;

/// Bytes of blocks that they may wait for, before one more is added.
const WAITING_BYTES_MAX: u64 = 8 << 20;

/// What one key has; errors are its own.
type Answer = Result<Option<Slice>>;

/// The newest values of `keys` at or below `seqno` in this view, in the order of `keys`.
///
/// # Errors
/// `Callback` if the user's comparator panics. A single key's: as [`get::get`], and `TimedOut`.
pub(crate) fn multi_get(
    engine: &Engine,
    tree: &Tree,
    view: &TreeView,
    keys: &[&[u8]],
    seqno: SeqNo,
    options: &ReadOptions,
    context: &mut ReadContext,
) -> Result<Vec<Answer>> {
    let watch = Watch::begin(&tree.comparator);
    let ask = Ask::new(engine, tree, view, seqno, options);
    let together = engine.options.load().batch_reads;
    let fetcher = Fetcher { io: engine.io.clone(), spec: ask.spec, deadline: options.deadline };
    // Where they are not read together, each block is read when the first look-up waits for it.
    let waiting_max = if together { WAITING_MAX } else { 1 };
    let mut batch = Batch {
        keys,
        answers: keys.iter().map(|_| Ok(None)).collect(),
        access: Remembering::default(),
        waiting: Vec::new(),
        waiting_bytes: 0,
    };
    for at in sorted_by(&tree.comparator, keys.len(), |at| keys[at]) {
        batch.walk(&ask, at, Lookup::new(), options, context);
        if batch.waiting.len() >= waiting_max || batch.waiting_bytes >= WAITING_BYTES_MAX {
            batch.read(&ask, &fetcher, options, context);
        }
    }
    batch.read(&ask, &fetcher, options, context);
    watch.check()?;
    Ok(batch.answers)
}

struct Batch<'a> {
    keys: &'a [&'a [u8]],
    answers: Vec<Answer>,
    access: Remembering,
    /// Number of the key, its look-up, and the block that it waits for.
    waiting: Vec<(usize, Lookup, Missing)>,
    waiting_bytes: u64,
}

impl Batch<'_> {
    /// Lets key `at` walk on to its answer or to the next block that is missing.
    #[inline]
    fn walk(
        &mut self,
        ask: &Ask<'_>,
        at: usize,
        mut lookup: Lookup,
        options: &ReadOptions,
        context: &mut ReadContext,
    ) {
        let step = ask.engine.check_deadline(options.deadline);
        let step =
            step.and_then(|()| get::walk(ask, self.keys[at], &mut lookup, context, &mut self.access));
        match step {
            Ok(Step::End(value)) => self.answers[at] = Ok(value),
            Ok(Step::Waits(missing)) => {
                self.waiting_bytes += missing.bytes();
                self.waiting.push((at, lookup, missing));
            }
            Err(error) => self.answers[at] = Err(error),
        }
    }

    /// Reads until nobody waits.
    fn read(
        &mut self,
        ask: &Ask<'_>,
        fetcher: &Fetcher,
        options: &ReadOptions,
        context: &mut ReadContext,
    ) {
        while !self.waiting.is_empty() {
            self.waiting_bytes = 0;
            let mut lookups = Vec::with_capacity(self.waiting.len());
            let mut wanted = Vec::with_capacity(self.waiting.len());
            for (at, lookup, missing) in self.waiting.drain(..) {
                lookups.push((at, lookup));
                wanted.push(missing);
            }
            let blocks = fetcher.fetch(&wanted, &mut context.blocks);
            for (((at, lookup), missing), block) in lookups.into_iter().zip(wanted).zip(blocks) {
                match block {
                    Ok(block) => {
                        self.access.handed = Some((missing, block));
                        self.walk(ask, at, lookup, options, context);
                        self.access.handed = None;
                    }
                    Err(error) => self.answers[at] = Err(error),
                }
            }
        }
    }
}

/// The last table that was asked at some place, and its last block.
struct Last {
    number: FileNumber,
    reader: Arc<TableReader>,
    block: Option<(usize, Block)>,
}

/// Looks into the caches only, and remembers what it found there.
#[derive(Default)]
struct Remembering {
    /// By place.
    last: Vec<Option<Last>>,
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
        if let Some(Some(last)) = self.last.get(place)
            && last.number == table.number()
        {
            return Ok(last.reader.clone());
        }
        let reader = ask.engine.open_table(ask.tree, table)?;
        if self.last.len() <= place {
            self.last.resize_with(place + 1, || None);
        }
        self.last[place] = Some(Last { number: table.number(), reader: reader.clone(), block: None });
        Ok(reader)
    }

    #[inline]
    fn look(
        &mut self,
        _: &Ask<'_>,
        place: usize,
        reader: &Arc<TableReader>,
        key: &[u8],
        seqno: SeqNo,
        stats: &mut ReadStats,
    ) -> Result<std::result::Result<Option<Found>, Missing>> {
        if let Some((_, block)) = self.handed.take() {
            return reader.find_in(block, key, seqno).map(Ok);
        }
        let Some(at) = reader.locate(key, seqno, stats) else { return Ok(Ok(None)) };
        let last = self.last.get_mut(place).and_then(Option::as_mut);
        if let Some((_, block)) = last.as_ref().and_then(|last| last.block.as_ref()).filter(|(i, _)| *i == at) {
            stats.block_cache_hits += 1;
            return reader.find_in(block.clone(), key, seqno).map(Ok);
        }
        let Some(block) = reader.cached_block(at) else {
            return Ok(Err(Missing { table: reader.clone(), at }));
        };
        stats.block_cache_hits += 1;
        if let Some(last) = last {
            last.block = Some((at, block.clone()));
        }
        reader.find_in(block, key, seqno).map(Ok)
    }
}
