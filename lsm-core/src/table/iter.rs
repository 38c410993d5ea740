//! A cursor over one table, in both directions, with readahead.
//!
//! ```text
//! block wanted -> in the chunk read ahead? -> in the block cache? -> read in order so far?
//!                 cut it out                  take it                yes: next chunk, twice as large
//!                                                                    no: one block, through the cache
//! ```
//! A chunk is one read of many blocks that lie end to end; raw blocks are used where they lie in
//! it, compressed ones are unpacked into one buffer used again and again. Chunks never enter the
//! block cache: a scan larger than the cache would only wash it out.
//!
//! A positioning may be tried first ([`InternalIter::try_position`]): if its first block is not in memory,
//! whoever positions many cursors reads the blocks of all of them together, and hands them over.

use std::ops::Range;
use std::sync::Arc;

use super::block::{Block, BlockCursor};
use super::format;
use super::reader::{self, TableReader};
use super::{IterSpec, Missing, READAHEAD_BYTES, ReadSpec, ReadStats};
use crate::key::{self, TRAILER_BYTES};
use crate::prefix::PrefixHint;
use crate::read::internal::{InternalIter, Target};
use crate::{Error, ErrorKind, Result, Slice};

const READAHEAD_START: usize = 16 << 10;
const READAHEAD_MAX: usize = 64 << 20;

/// Blocks that must have been missed in order before reading ahead.
const IN_ORDER_MIN: u32 = 2;

/// Cursor over a table's entries.
pub struct TableIter {
    table: Arc<TableReader>,
    spec: IterSpec,
    cursor: BlockCursor,
    /// The block the cursor is in; the number of blocks when it is in none.
    at: usize,
    ahead: Ahead,
    stats: ReadStats,
    /// A block that was looked up or read beforehand, for the positioning that follows.
    handed: Option<Handed>,
    /// Only keys with some prefix are wanted, and the filter says that there are none.
    lacks: bool,
}

/// See [`InternalIter::hand`].
struct Handed {
    at: usize,
    block: Block,
    from_cache: bool,
}

/// The chunk read ahead, and when to read the next.
struct Ahead {
    buf: Arc<[u8]>,
    blocks: Range<usize>,
    start: u64,
    /// Bytes of the next chunk.
    next_bytes: usize,
    /// The block whose being asked for next would be in order.
    expected: usize,
    in_order: u32,
    unpack: Option<Arc<[u8]>>,
}

impl TableIter {
    pub(super) fn new(table: Arc<TableReader>, spec: IterSpec) -> TableIter {
        let at = table.index.len();
        let ahead = Ahead {
            buf: Arc::from([]),
            blocks: 0..0,
            start: 0,
            next_bytes: spec.readahead_max.min(READAHEAD_START),
            expected: usize::MAX,
            in_order: 0,
            unpack: None,
        };
        let (cursor, stats) = (BlockCursor::default(), ReadStats::default());
        TableIter { table, spec, cursor, at, ahead, stats, handed: None, lacks: false }
    }

    /// What this cursor has read so far.
    pub fn stats(&self) -> &ReadStats {
        &self.stats
    }

    /// The table it runs over.
    pub fn table(&self) -> &Arc<TableReader> {
        &self.table
    }

    /// Enters block `i`, before its first entry.
    fn enter(&mut self, i: usize) -> Result<()> {
        let old = self.cursor.leave().map(Block::into_owner);
        // The buffer of the last block, if it came from unpacking, serves the next.
        let reuse = old.filter(|o| !Arc::ptr_eq(o, &self.ahead.buf));
        if reuse.is_some() {
            self.ahead.unpack = reuse;
        }
        self.at = i;
        let block = self.load(i)?;
        self.cursor.enter(block);
        Ok(())
    }

    fn load(&mut self, i: usize) -> Result<Block> {
        let in_order = i == self.ahead.expected;
        self.ahead.expected = i + 1;
        if self.ahead.blocks.contains(&i) {
            return self.cut_out(i);
        }
        let eager = self.is_eager();
        let mut handed = None;
        match self.handed.take() {
            Some(h) if h.at == i && h.from_cache => {
                self.stats.block_cache_hits += 1;
                return Ok(h.block);
            }
            Some(h) if h.at == i => handed = Some(h.block),
            _ => {
                if !eager && let Some(block) = self.table.cached_block(i) {
                    self.stats.block_cache_hits += 1;
                    return Ok(block);
                }
            }
        }
        if !in_order {
            (self.ahead.in_order, self.ahead.next_bytes) = (0, self.spec.readahead_max.min(READAHEAD_START));
        }
        self.ahead.in_order += 1;
        if let Some(block) = handed {
            return Ok(block);
        }
        if self.spec.readahead_max > 0 && (eager || self.ahead.in_order > IN_ORDER_MIN) {
            self.read_ahead(i, eager)?;
            return self.cut_out(i);
        }
        let spec = ReadSpec { fill_cache: self.spec.fill_cache, verify: self.spec.verify };
        self.table.block_from_file(self.table.index.handle(i), &spec, &mut self.stats)
    }

    /// Whether chunks are read from the first block on, without a look into the cache.
    fn is_eager(&self) -> bool {
        self.spec.readahead_max > READAHEAD_BYTES
    }

    /// Reads the chunk that starts with block `i`.
    fn read_ahead(&mut self, i: usize, eager: bool) -> Result<()> {
        let max = self.spec.readahead_max.min(READAHEAD_MAX);
        let wanted = if eager { max } else { self.ahead.next_bytes };
        self.ahead.next_bytes = (wanted * 2).min(max);
        let (count, bytes) = reader::span(&self.table.index, i, wanted);
        let len = (bytes.end - bytes.start) as usize;
        self.ahead.blocks = 0..0;
        let fits = self.ahead.buf.len() >= len && self.ahead.buf.len() <= 2 * len.max(wanted);
        if !fits || Arc::get_mut(&mut self.ahead.buf).is_none() {
            self.ahead.buf = format::zeroed(len.max(wanted.min(self.table.footer.file_bytes as usize)));
        }
        let buf = Arc::get_mut(&mut self.ahead.buf).expect("just made, or found to have no other owner");
        format::read_exact(&*self.table.file, &mut buf[..len], bytes.start)?;
        self.stats.blocks_read += count as u64;
        self.stats.bytes_read += len as u64;
        self.ahead.blocks = i..i + count;
        self.ahead.start = bytes.start;
        Ok(())
    }

    /// Takes block `i` out of the chunk.
    fn cut_out(&mut self, i: usize) -> Result<Block> {
        let handle = self.table.index.handle(i);
        let start = (handle.offset - self.ahead.start) as usize;
        let reuse = self.ahead.unpack.take();
        format::open_block(&self.ahead.buf, start, handle, self.spec.verify, reuse)
    }

    /// Runs a move; after an error the cursor is not valid and its place is forgotten.
    #[inline]
    fn guarded(&mut self, go: impl FnOnce(&mut TableIter) -> Result<()>) -> Result<()> {
        go(self).map_err(|e| {
            self.forget();
            self.table.located(e)
        })
    }

    fn forget(&mut self) {
        self.cursor.leave();
        self.at = self.table.index.len();
    }

    /// As `guarded`, for positionings: to no entry if none is wanted.
    fn positioned(&mut self, go: impl FnOnce(&mut TableIter) -> Result<()>) -> Result<()> {
        if self.lacks {
            self.forget();
            return Ok(());
        }
        self.guarded(go)
    }

    /// To the first entry of block `from` or a later one.
    fn first_from(&mut self, from: usize) -> Result<()> {
        if from >= self.table.index.len() {
            self.forget();
            return Ok(());
        }
        self.enter(from)?;
        match self.cursor.next()? {
            true => Ok(()),
            false => {
                Err(Error::corruption("a block without entries")
                    .at_offset(self.table.index.handle(from).offset))
            }
        }
    }

    /// To the last entry of the block before `end`, if there is one.
    fn last_before(&mut self, end: usize) -> Result<()> {
        let Some(i) = end.checked_sub(1) else {
            self.forget();
            return Ok(());
        };
        self.enter(i)?;
        self.cursor.seek_to_last().map(|_| ())
    }

    /// The first and the last key of block `i`; the cursor ends up there.
    pub(super) fn block_bounds(&mut self, i: usize) -> Result<(Vec<u8>, Vec<u8>)> {
        self.first_from(i)?;
        let first = self.cursor.key().to_vec();
        self.cursor.seek_to_last()?;
        Ok((first, self.cursor.key().to_vec()))
    }

    fn seek_inner(&mut self, target: &[u8]) -> Result<()> {
        let i = self.block_of(target);
        self.seek_from(i, target)
    }

    /// The block in which a seek begins; the number of blocks if the target is behind all.
    fn block_of(&self, target: &[u8]) -> usize {
        let (user, trailer) = (key::user_key(target), key::trailer_of(target));
        self.table.index.seek(&self.table.comparator, user, trailer)
    }

    /// To the first entry at or after the target, for which the index says block `i`.
    fn seek_from(&mut self, i: usize, target: &[u8]) -> Result<()> {
        let (user, trailer) = (key::user_key(target), key::trailer_of(target));
        if i == self.table.index.len() {
            self.forget();
            return Ok(());
        }
        // A seek near the last one need not fetch the block again.
        if self.at != i || !self.cursor.valid() {
            self.enter(i)?;
        }
        if self.cursor.seek(&self.table.comparator, user, trailer)? {
            return Ok(());
        }
        // The target lies between the last key of the block and its separator.
        self.first_from(i + 1)
    }

    /// To the last entry at or before the target, for which the index says block `i`.
    fn seek_back_from(&mut self, i: usize, target: &[u8]) -> Result<()> {
        self.seek_from(i, target)?;
        if !self.cursor.valid() {
            return self.last_before(self.table.index.len());
        }
        match self.table.comparator.compare_internal(self.cursor.key(), target).is_eq() {
            true => Ok(()),
            false => self.prev_inner(),
        }
    }

    /// Takes block `i` out of the cache, for the positioning that comes next; `false` if it has to be
    /// read for it.
    fn is_at_hand(&mut self, i: usize) -> bool {
        if (self.at == i && self.cursor.valid()) || self.ahead.blocks.contains(&i) {
            return true;
        }
        let found = self.table.cached_block(i);
        self.handed = found.map(|block| Handed { at: i, block, from_cache: true });
        self.handed.is_some()
    }

    fn prev_inner(&mut self) -> Result<()> {
        match self.cursor.prev()? {
            true => Ok(()),
            false => self.last_before(self.at),
        }
    }
}

/// Seek targets come from callers above; a short one is their mistake, not a panic here.
fn check_target(target: &[u8]) -> Result<()> {
    match target.len() >= TRAILER_BYTES {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Internal, "a seek target is no internal key")),
    }
}

impl InternalIter for TableIter {
    #[inline]
    fn valid(&self) -> bool {
        self.cursor.valid()
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.positioned(|it| it.first_from(0))
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.positioned(|it| it.last_before(it.table.index.len()))
    }

    fn seek(&mut self, target: &[u8]) -> Result<()> {
        check_target(target)?;
        self.positioned(|it| it.seek_inner(target))
    }

    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        check_target(target)?;
        self.positioned(|it| {
            let i = it.block_of(target);
            it.seek_back_from(i, target)
        })
    }

    fn try_position(&mut self, to: Target<'_>) -> Result<Option<Missing>> {
        if let Target::AtOrAfter(target) | Target::AtOrBefore(target) = to {
            check_target(target)?;
        }
        let last = self.table.index.len().checked_sub(1);
        let Some(last) = last.filter(|_| !self.lacks && !self.is_eager()) else {
            return self.position(to).map(|()| None);
        };
        let i = match to {
            Target::First => 0,
            Target::Last => last,
            Target::AtOrAfter(target) | Target::AtOrBefore(target) => self.block_of(target),
        };
        let first_read = match to {
            // Behind all blocks lies nothing, and before that the last one.
            Target::AtOrAfter(_) if i > last => None,
            _ => Some(i.min(last)),
        };
        // Going on in order is what reading ahead is for.
        if let Some(at) = first_read.filter(|at| *at != self.ahead.expected)
            && !self.is_at_hand(at)
        {
            self.forget();
            return Ok(Some(Missing { table: self.table.clone(), at }));
        }
        self.guarded(|it| match to {
            Target::First => it.first_from(0),
            Target::Last => it.last_before(last + 1),
            Target::AtOrAfter(target) => it.seek_from(i, target),
            Target::AtOrBefore(target) => it.seek_back_from(i, target),
        })?;
        Ok(None)
    }

    fn hand(&mut self, at: usize, block: Block) {
        self.handed = Some(Handed { at, block, from_cache: false });
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        match self.cursor.next() {
            Ok(true) => Ok(()),
            Ok(false) => self.guarded(|it| it.first_from(it.at + 1)),
            Err(e) => self.guarded(|_| Err(e)),
        }
    }

    fn prev(&mut self) -> Result<()> {
        self.guarded(TableIter::prev_inner)
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.cursor.key()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.cursor.value()
    }

    fn value_slice(&self) -> Slice {
        self.cursor.value_slice()
    }

    fn set_prefix(&mut self, hint: Option<&Arc<PrefixHint>>) {
        self.lacks = hint.is_some_and(|hint| self.table.lacks_prefix(hint, &mut self.stats));
    }

    fn add_stats(&self, to: &mut ReadStats) {
        to.add(&self.stats);
    }
}
