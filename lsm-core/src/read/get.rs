//! Point look-ups: newest source first, and stop at the first entry of the key (R3).
//!
//! The order active memtable, sealed memtables newest first, L0 by epoch newest first, L1.. is the
//! recency order of the tree (I3), so the first entry at or below the reader's sequence decides. If
//! that is a merge operand, the look-up goes on, below that operand, through the rest of its source and
//! the sources behind it, until a value or a tombstone ends the chain.
//!
//! A range tombstone over the key hides what is older in its own source, and, since no older source
//! holds anything newer than it there (I3), all of the sources behind: the look-up ends.
//!
//! The walk through the sources is the same for one key, which reads a missing block at once, and for
//! many (`multi_get`), which lay theirs aside until the blocks of all are read: `Access` makes the
//! difference.

use std::sync::Arc;

use crate::callback::Watch;
use crate::engine::Engine;
use crate::key::{Comparator, Kind, SEEK_KIND, internal_key, kind_byte_of, seqno_of, user_key};
use crate::merge_operator::{MergeOperator, no_operator};
use crate::metrics::{Counter, LevelCounter, Mine, SAMPLE_EVERY};
use crate::options::ReadOptions;
use crate::read::clue::Trail;
use crate::read::internal::InternalIter;
use crate::read::operands::Operands;
use crate::space::{Space, SpaceView};
use crate::table::{Found, IterSpec, ReadSpec, ReadStats, TableReader};
use crate::tree::{Tree, TreeView};
use crate::types::SeqNo;
use crate::version::{LEVELS, TableFile};
use crate::{Error, ErrorKind, Result, Slice};

/// What one or several reads cost: tables looked at, blocks, filters. Reads add to it; an iterator or scan has its
/// own ([`DbIterator::context`](crate::DbIterator::context)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadContext {
    /// Memtables asked.
    pub memtables: u32,
    /// Tables asked, those included that their filter spared a look. Of an iterator: opened for it.
    pub tables: u32,
    /// Tables that look-ups asked, by level, level 0 first. Those of iterators are not told apart.
    pub level_tables: [u32; LEVELS],
    /// Blocks, filters and bytes.
    pub blocks: ReadStats,
    /// Clue entries followed to another shard. Iterators meet clue and value side by side, and follow none.
    pub clue_hops: u32,
}

impl ReadContext {
    /// How many levels had a table that look-ups asked.
    pub fn levels(&self) -> usize {
        self.level_tables.iter().filter(|tables| **tables > 0).count()
    }

    /// Adds what other reads have cost.
    pub fn add(&mut self, other: &ReadContext) {
        self.memtables += other.memtables;
        self.tables += other.tables;
        self.level_tables.iter_mut().zip(other.level_tables).for_each(|(sum, tables)| *sum += tables);
        self.blocks.add(&other.blocks);
        self.clue_hops += other.clue_hops;
    }

    /// A table of `level` is asked.
    #[inline(always)]
    pub(super) fn note_table(&mut self, level: usize) {
        self.tables += 1;
        self.level_tables[level] += 1;
    }
}

/// The newest value of `key` at or below `seqno` in this view.
///
/// # Errors
/// Those of the tables; `Unsupported` for kinds of a newer build; for a key with operands `Callback` if
/// the merge operator fails, and `InvalidArgument` without one; `Callback` if the user's comparator panics.
#[inline]
pub(crate) fn get(
    engine: &Engine,
    space: &Space,
    view: &SpaceView,
    key: &[u8],
    seqno: SeqNo,
    options: &ReadOptions,
    context: Option<&mut ReadContext>,
) -> Result<Option<Slice>> {
    let watch = Watch::begin(&space.comparator);
    let tree = match &space.trees[..] {
        [only] => only,
        _ => {
            let tree = space.primary(key);
            engine.metrics.add_get_of_shard(tree.id.shard);
            tree
        }
    };
    let ask = Ask::new(engine, space, view, tree, seqno, options);
    let found = match ask.mine.count_call(Counter::Gets) {
        true => {
            // This one stands for those that are not sampled.
            if space.note_gets(SAMPLE_EVERY) {
                engine.schedule();
            }
            timed(&ask, key, context)
        }
        false => look_up(&ask, key, context),
    };
    watch.check()?;
    found
}

#[inline(always)]
fn look_up(ask: &Ask<'_>, key: &[u8], context: Option<&mut ReadContext>) -> Result<Option<Slice>> {
    let mut cost = ReadContext::default();
    let found = walk(ask, key, &mut Lookup::new(), &mut cost, &mut Direct);
    ask.mine.add_reads(&cost.blocks);
    if let Some(context) = context {
        context.add(&cost);
    }
    found.map_err(|stop| match stop {
        Stop::Failed(error) => error,
        Stop::Waits(never) => match never {},
    })
}

/// The one in so many. Apart, so that the others carry no time along.
#[cold]
#[inline(never)]
fn timed(ask: &Ask<'_>, key: &[u8], context: Option<&mut ReadContext>) -> Result<Option<Slice>> {
    let since = ask.engine.env.now();
    let found = look_up(ask, key, context);
    ask.engine.metrics.get_ns.record(ask.engine.env.now() - since);
    found
}

/// What look-ups of one call have in common.
pub(super) struct Ask<'a> {
    pub(super) engine: &'a Engine,
    pub(super) space: &'a Space,
    /// The view of all shards.
    pub(super) shards: &'a SpaceView,
    /// The primary of the keys.
    pub(super) tree: &'a Tree,
    pub(super) view: &'a TreeView,
    pub(super) seqno: SeqNo,
    pub(super) spec: ReadSpec,
    /// What is counted of them.
    pub(super) mine: Mine<'a>,
}

impl<'a> Ask<'a> {
    #[inline]
    pub(super) fn new(
        engine: &'a Engine,
        space: &'a Space,
        shards: &'a SpaceView,
        tree: &'a Tree,
        seqno: SeqNo,
        options: &ReadOptions,
    ) -> Ask<'a> {
        let spec = ReadSpec { fill_cache: options.fill_cache, verify: options.verify_checksums };
        let mine = engine.metrics.mine();
        Ask { engine, space, shards, tree, view: shards.of(tree), seqno, spec, mine }
    }

    /// What an entry says that the look-up has met: itself, or what its clue leads to; nothing if that is
    /// void.
    #[inline(always)]
    fn resolved(&self, key: &[u8], entry: Met, context: &mut ReadContext) -> Result<Option<Met>> {
        match Kind::from_u8(entry.1) {
            Some(kind) if kind.is_clue() => {
                let Ask { engine, space, shards: view, spec, .. } = *self;
                let trail = Trail { engine, space, view, spec };
                // Here, and not there: rollback follows clues too, and is no look-up.
                engine.metrics.add(Counter::ClueHops, 1);
                let found = trail.follow(key, (entry.0, kind), &entry.2, context)?;
                Ok(found.map(|(kind, value)| (entry.0, kind as u8, value)))
            }
            _ => Ok(Some(entry)),
        }
    }
}

/// An entry of the key: sequence, kind, value.
type Met = (SeqNo, u8, Slice);

/// How a look-up gets at tables and blocks.
pub(super) trait Access {
    /// What it may have to wait for.
    type Wait;

    /// The reader of the table at that place.
    ///
    /// # Errors
    /// Those of opening it.
    fn open(&mut self, ask: &Ask<'_>, place: usize, table: &TableFile) -> Result<Arc<TableReader>>;

    /// As [`TableReader::get`], of the reader that [`Access::open`] gave for that place; or what has to
    /// be there first: then the look-up comes back to this place with it.
    ///
    /// # Errors
    /// As [`TableReader::get`].
    fn look(
        &mut self,
        ask: &Ask<'_>,
        reader: &Arc<TableReader>,
        key: &[u8],
        seqno: SeqNo,
        stats: &mut ReadStats,
    ) -> Walked<Option<Found>, Self::Wait>;
}

/// Reads what is not in the cache at once.
struct Direct;

impl Access for Direct {
    type Wait = std::convert::Infallible;

    #[inline(always)]
    fn open(&mut self, ask: &Ask<'_>, _: usize, table: &TableFile) -> Result<Arc<TableReader>> {
        ask.engine.open_table(ask.tree, table)
    }

    #[inline(always)]
    fn look(
        &mut self,
        ask: &Ask<'_>,
        reader: &Arc<TableReader>,
        key: &[u8],
        seqno: SeqNo,
        stats: &mut ReadStats,
    ) -> Walked<Option<Found>, Self::Wait> {
        Ok(reader.get(key, seqno, &ask.spec, stats)?)
    }
}

/// How far the look-up of one key has come.
pub(super) struct Lookup {
    chain: Option<Chain>,
    /// The source to be asked next: the memtables, one table of L0 after another, one level after
    /// another.
    place: usize,
}

impl Lookup {
    #[inline(always)]
    pub(super) fn new() -> Lookup {
        Lookup { chain: None, place: 0 }
    }
}

/// Why [`walk`] ends without an answer. (On the side of errors, so that a look-up which never waits pays
/// nothing for those that do: there this is an [`Error`], in memory too.)
pub(super) enum Stop<W> {
    /// It failed.
    Failed(Error),
    /// Before something that is not there yet; to be called again with it.
    Waits(W),
}

impl<W> From<Error> for Stop<W> {
    #[inline(always)]
    fn from(error: Error) -> Stop<W> {
        Stop::Failed(error)
    }
}

/// What comes out of a walk, or of a part of it.
pub(super) type Walked<T, W> = std::result::Result<T, Stop<W>>;

/// Goes through the sources, newest first, from where the look-up stands, until one ends it.
///
/// # Errors
/// As [`get`]; the comparator's panics are the caller's to watch for.
#[inline(always)]
pub(super) fn walk<A: Access>(
    ask: &Ask<'_>,
    key: &[u8],
    lookup: &mut Lookup,
    context: &mut ReadContext,
    access: &mut A,
) -> Walked<Option<Slice>, A::Wait> {
    let Lookup { chain, place } = lookup;
    if *place == 0
        && let Some(end) = ask_memtables(ask, key, chain, context)?
    {
        return Ok(end);
    }
    let (version, order) = (&ask.view.version, &ask.tree.comparator);
    let l0 = version.l0();
    let first = (*place).max(1);
    for (at, table) in l0.iter().enumerate().skip(first - 1) {
        if table.spans(order, key) {
            *place = 1 + at;
            if let Some(end) = ask_table(ask, key, (*place, 0), table, chain, context, access)? {
                return Ok(end);
            }
        }
    }
    for level in first.saturating_sub(l0.len()).max(1)..LEVELS {
        if let Some(table) = version.find_table(level, key) {
            *place = l0.len() + level;
            if let Some(end) = ask_table(ask, key, (*place, level), table, chain, context, access)? {
                return Ok(end);
            }
        }
    }
    Ok(nothing_older(ask.engine, chain.take(), key)?)
}

/// The answer, if the memtables have it.
#[inline(always)]
fn ask_memtables(
    ask: &Ask<'_>,
    key: &[u8],
    chain: &mut Option<Chain>,
    context: &mut ReadContext,
) -> Result<Option<Option<Slice>>> {
    for buffer in std::iter::once(&ask.view.active).chain(&ask.view.sealed) {
        context.memtables += 1;
        let cover = buffer.table.range_cover(key, ask.seqno);
        let entry = buffer.table.get(key, chain_seqno(chain, ask.seqno));
        if let Some(entry) = entry.filter(|entry| entry.seqno >= cover) {
            if chain.is_none() {
                ask.mine.add(Counter::GetHitsMemtable, 1);
            }
            let value = || Slice::copy_of(entry.value);
            let cursor = || (buffer.table.iter(), cover);
            if let Some(end) = meet(chain, ask, key, (entry.seqno, entry.kind_byte), value, cursor, context)?
            {
                return Ok(Some(end));
            }
        }
        if cover > 0 {
            return nothing_older(ask.engine, chain.take(), key).map(Some);
        }
    }
    Ok(None)
}

/// The answer, if the look-up ends at this table, whose range the key is in.
#[inline(always)]
fn ask_table<A: Access>(
    ask: &Ask<'_>,
    key: &[u8],
    (place, level): (usize, usize),
    table: &TableFile,
    chain: &mut Option<Chain>,
    context: &mut ReadContext,
    access: &mut A,
) -> Walked<Option<Option<Slice>>, A::Wait> {
    let reader = access.open(ask, place, table)?;
    // The filter knows nothing of range tombstones, so they are asked apart (B021).
    let cover = reader.range_dels().map_or(0, |set| set.cover(key, ask.seqno));
    let seqno = chain_seqno(chain, ask.seqno);
    let found = access.look(ask, &reader, key, seqno, &mut context.blocks)?;
    // Not counted where it waits, for it will be asked again.
    context.note_table(level);
    let found = found.filter(|found| found.seqno >= cover);
    let is_hit = found.is_some() && chain.is_none();
    ask.mine.add_level(if is_hit { LevelCounter::GetHits } else { LevelCounter::GetPasses }, level, 1);
    if let Some(found) = found {
        let cursor = || (reader.iter(iter_spec(&ask.spec)), cover);
        let at = (found.seqno, found.kind);
        if let Some(end) = meet(chain, ask, key, at, || found.value, cursor, context)? {
            return Ok(Some(end));
        }
    }
    if cover > 0 {
        return Ok(Some(nothing_older(ask.engine, chain.take(), key)?));
    }
    Ok(None)
}

/// The look-up ends without a value: no source is left, or a range tombstone covers what is older.
fn nothing_older(engine: &Engine, chain: Option<Chain>, key: &[u8]) -> Result<Option<Slice>> {
    if let Some(mut chain) = chain {
        return chain.finish(key, None);
    }
    engine.metrics.add(Counter::GetMisses, 1);
    Ok(None)
}

/// The sequence from which the next source is asked. Below an operand, so that one that lies in two
/// sources counts once (rule 7).
#[inline]
fn chain_seqno(chain: &Option<Chain>, seqno: SeqNo) -> SeqNo {
    chain.as_ref().map_or(seqno, |chain| chain.seqno.saturating_sub(1))
}

/// What the entry that a source holds means to the look-up: its answer, or `None` if older sources
/// have a say. `cursor` gives what is older in the same source, and the newest range tombstone there,
/// which hides what is older than it.
#[inline(always)]
fn meet<I: InternalIter>(
    chain: &mut Option<Chain>,
    ask: &Ask<'_>,
    key: &[u8],
    (seqno, kind): (SeqNo, u8),
    value: impl FnOnce() -> Slice,
    cursor: impl FnOnce() -> (I, SeqNo),
    context: &mut ReadContext,
) -> Result<Option<Option<Slice>>> {
    // A value, the common case, or a tombstone.
    if chain.is_none() && (kind == Kind::Put as u8 || kind < Kind::ClueOperand as u8) {
        return value_of(kind, value).map(Some);
    }
    meet_chain(chain, ask, key, (seqno, kind, value()), cursor, context)
}

/// As [`meet`], where more than this entry may count, or another one in its place.
#[cold]
fn meet_chain<I: InternalIter>(
    chain: &mut Option<Chain>,
    ask: &Ask<'_>,
    key: &[u8],
    found: Met,
    cursor: impl FnOnce() -> (I, SeqNo),
    context: &mut ReadContext,
) -> Result<Option<Option<Slice>>> {
    let seqno = found.0;
    if let Some(found) = ask.resolved(key, found, context)?
        && let Some(end) = Chain::take(chain, ask, key, found)?
    {
        return Ok(Some(end));
    }
    Chain::go_on(chain, ask, key, seqno, cursor, context)
}

/// The operands of the key met so far; nothing has ended them yet.
struct Chain {
    operator: Arc<dyn MergeOperator>,
    operands: Operands,
    /// Sequence of the oldest of them.
    seqno: SeqNo,
}

fn iter_spec(spec: &ReadSpec) -> IterSpec {
    IterSpec { fill_cache: spec.fill_cache, cache_ahead: false, verify: spec.verify, readahead_max: 0 }
}

impl Chain {
    /// Takes the next older entry; the look-up's answer, if it ends there.
    ///
    /// # Errors
    /// As [`get`].
    fn take(
        chain: &mut Option<Chain>,
        ask: &Ask<'_>,
        key: &[u8],
        found: Met,
    ) -> Result<Option<Option<Slice>>> {
        let (seqno, kind, value) = found;
        let chain = match chain {
            Some(chain) => chain,
            None if kind != Kind::Merge as u8 => return value_of(kind, || value).map(Some),
            None => {
                let operator = ask.tree.merging.operator.clone().ok_or_else(no_operator)?;
                chain.insert(Chain { operator, operands: Operands::new(), seqno })
            }
        };
        chain.meet(key, seqno, kind, value)
    }

    /// Takes what a source holds below `seqno`; the look-up's answer, if it ends there.
    ///
    /// # Errors
    /// As [`get`].
    #[cold]
    fn go_on<I: InternalIter>(
        chain: &mut Option<Chain>,
        ask: &Ask<'_>,
        key: &[u8],
        seqno: SeqNo,
        cursor: impl FnOnce() -> (I, SeqNo),
        context: &mut ReadContext,
    ) -> Result<Option<Option<Slice>>> {
        let (mut cursor, cover) = cursor();
        cursor.seek(&internal_key(key, seqno.saturating_sub(1), SEEK_KIND))?;
        while cursor.valid() && same_key(&ask.tree.comparator, cursor.key(), key) {
            let (seqno, kind) = (seqno_of(cursor.key()), kind_byte_of(cursor.key()));
            if seqno < cover {
                break;
            }
            // One that lies in two places counts once (rule 7).
            let is_first = chain.as_ref().is_none_or(|chain| seqno < chain.seqno);
            if is_first
                && let Some(found) = ask.resolved(key, (seqno, kind, cursor.value_slice()), context)?
                && let Some(end) = Chain::take(chain, ask, key, found)?
            {
                return Ok(Some(end));
            }
            cursor.next()?;
        }
        Ok(None)
    }

    /// The next older entry: one more operand, or the end.
    fn meet(&mut self, key: &[u8], seqno: SeqNo, kind: u8, value: Slice) -> Result<Option<Option<Slice>>> {
        if kind == Kind::Merge as u8 {
            self.seqno = seqno;
            self.operands.push_older(&*self.operator, key, value);
            return Ok(None);
        }
        let base = value_of(kind, || value)?;
        self.finish(key, base.as_deref()).map(Some)
    }

    fn finish(&mut self, key: &[u8], base: Option<&[u8]>) -> Result<Option<Slice>> {
        self.operands.finish(&*self.operator, key, base).map(Some)
    }
}

fn same_key(order: &Comparator, internal: &[u8], key: &[u8]) -> bool {
    order.compare(user_key(internal), key).is_eq()
}

/// What an entry of this kind says to a reader.
#[inline(always)]
fn value_of(kind: u8, value: impl FnOnce() -> Slice) -> Result<Option<Slice>> {
    match Kind::from_u8(kind) {
        Some(Kind::Put) => Ok(Some(value())),
        Some(Kind::Delete | Kind::SingleDelete) => Ok(None),
        _ => Err(Error::new(
            ErrorKind::Unsupported,
            format!("an entry of kind {kind}, which this build cannot read"),
        )),
    }
}
