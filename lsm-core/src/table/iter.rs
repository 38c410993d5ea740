//! A cursor over one table, in both directions, with readahead.
//!
//! ```text
//! block wanted -> in the chunk read ahead? -> in the block cache? -> read in order so far?
//!                 cut it out                  take it                yes: next chunk, twice as large
//!                                                                    no: one block, through the cache
//! ```
//! A chunk is one read of many blocks that lie end to end; raw blocks are used where they lie in
//! it, compressed ones are unpacked into one buffer used again and again. Whether blocks of a chunk enter the
//! block cache is for the reader to say: a scan larger than the cache would only wash it out.
//!
//! How far the cursors before this one went after they were positioned ([`Walks`]) tells how much the first
//! read is to bring.
//!
//! A positioning may be tried first ([`InternalIter::try_position`]): it goes the ordinary way, and leaves
//! off at a block that neither a cache nor the system has at hand. Whoever positions many cursors reads the
//! blocks of all of them together, hands them over, and positions again.
//!
//! [`Walks`]: super::walks::Walks

use std::ops::Range;
use std::sync::Arc;

use dialsm_io::File;

use super::block::{Block, BlockCursor};
use super::format;
use super::reader::{self, TableReader};
use super::{IterSpec, Missing, READAHEAD_BYTES, ReadSpec, ReadStats};
use crate::key::{self, TRAILER_BYTES};
use crate::prefix::PrefixHint;
use crate::read::internal::{Handed, InternalIter, Target};
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
    /// A block that somebody has read for the positioning that follows, and its number.
    handed: Option<Box<(usize, Block)>>,
    /// A positioning is being tried.
    is_trial: bool,
    /// The last trial left off at the block before `ahead.expected`.
    is_missing: bool,
    /// Only keys with some prefix are wanted, and the filter says that there are none.
    lacks: bool,
    /// Blocks entered in order since the last positioning, or since it last went backward.
    walked: u32,
    /// A positioning from which on it is likely to go forward.
    is_start: bool,
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
        let (cursor, stats) = (BlockCursor::default(), ReadStats { cursors: 1, ..ReadStats::default() });
        let (handed, is_trial, is_missing) = (None, false, false);
        TableIter {
            table,
            spec,
            cursor,
            at,
            ahead,
            stats,
            handed,
            is_trial,
            is_missing,
            lacks: false,
            walked: 0,
            is_start: false,
        }
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
        if !in_order {
            self.note_walk();
        }
        self.walked += 1;
        if self.ahead.blocks.contains(&i) {
            return self.cut_out(i);
        }
        let eager = self.spec.readahead_max > READAHEAD_BYTES;
        if !eager
            && self.handed.is_none()
            && let Some(block) = self.table.cached_block(i)
        {
            self.stats.block_cache_hits += 1;
            return Ok(block);
        }
        self.load_missing(i, in_order, eager)
    }

    /// Block `i`, for which the cache was not asked or does not have it. Out of the way of those that it has.
    #[inline(never)]
    fn load_missing(&mut self, i: usize, in_order: bool, eager: bool) -> Result<Block> {
        if let Some(handed) = self.handed.take_if(|handed| handed.0 == i) {
            self.note_missed(in_order);
            return Ok(handed.1);
        }
        if !eager
            && self.handed.is_some()
            && let Some(block) = self.table.cached_block(i)
        {
            self.stats.block_cache_hits += 1;
            return Ok(block);
        }
        self.note_missed(in_order);
        if !eager && !in_order {
            return self.load_start(i);
        }
        // Going on in order is what reading ahead is for.
        if self.spec.readahead_max > 0 && (eager || self.ahead.in_order > IN_ORDER_MIN) {
            self.read_ahead(i, eager)?;
            return self.cut_out(i);
        }
        self.table.block_from_file(self.table.index.handle(i), &self.read_spec(), &mut self.stats)
    }

    fn read_spec(&self) -> ReadSpec {
        ReadSpec { fill_cache: self.spec.fill_cache, verify: self.spec.verify }
    }

    /// Block `i`, where a positioning begins, read with as many as are worth it. A trial does not wait for them.
    fn load_start(&mut self, i: usize) -> Result<Block> {
        let is_trial = self.is_trial;
        let worth = if self.is_start { self.table.walks.worth_reading() } else { 1 };
        if worth > 1 && self.spec.readahead_max > 0 {
            let last = (i + worth).min(self.table.index.len()) - 1;
            let bytes = (self.table.index.handle(last).end() - self.table.index.handle(i).offset) as usize;
            let wanted = bytes.min(self.spec.readahead_max);
            let read = |file: &dyn File, buf: &mut [u8], at| match is_trial {
                true => Ok(file.read_cached_at(buf, at)),
                false => format::read_exact(file, buf, at).map(|()| true),
            };
            if !self.read_chunk(i, wanted, read)? {
                return Err(self.leave_off());
            }
            // From here on as if it had come to read ahead; but few go much further.
            self.ahead.in_order = IN_ORDER_MIN;
            self.ahead.next_bytes = wanted / 2;
            return self.cut_out(i);
        }
        let spec = self.read_spec();
        if !is_trial {
            return self.table.block_from_file(self.table.index.handle(i), &spec, &mut self.stats);
        }
        match self.table.block_at_hand(i, &spec, &mut self.stats)? {
            Some(block) => Ok(block),
            None => Err(self.leave_off()),
        }
    }

    /// Passes over the whole table say nothing of how far others go.
    fn note_walk(&mut self) {
        let walked = std::mem::take(&mut self.walked);
        if walked > 0 && self.spec.readahead_max <= READAHEAD_BYTES {
            self.table.walks.note(walked);
        }
    }

    fn note_missed(&mut self, in_order: bool) {
        if !in_order {
            (self.ahead.in_order, self.ahead.next_bytes) = (0, self.spec.readahead_max.min(READAHEAD_START));
        }
        self.ahead.in_order += 1;
    }

    /// The error of a trial that leaves off at a block, for who tries; nobody else sees it.
    #[cold]
    fn leave_off(&mut self) -> Error {
        self.is_missing = true;
        // It will be entered when it is there.
        self.walked = 0;
        Error::new(ErrorKind::Internal, "a positioning that was only tried needs a block")
    }

    /// Reads the chunk that starts with block `i`.
    fn read_ahead(&mut self, i: usize, eager: bool) -> Result<()> {
        let max = self.spec.readahead_max.min(READAHEAD_MAX);
        let wanted = if eager { max } else { self.ahead.next_bytes };
        self.ahead.next_bytes = (wanted * 2).min(max);
        self.read_chunk(i, wanted, |file, buf, at| format::read_exact(file, buf, at).map(|()| true))?;
        Ok(())
    }

    /// Lets `read` fill a chunk of about `wanted` bytes that starts with block `i`; whether it did.
    fn read_chunk(
        &mut self,
        i: usize,
        wanted: usize,
        read: impl FnOnce(&dyn File, &mut [u8], u64) -> Result<bool>,
    ) -> Result<bool> {
        let (count, bytes) = reader::span(&self.table.index, i, wanted);
        let len = (bytes.end - bytes.start) as usize;
        self.ahead.blocks = 0..0;
        let fits = self.ahead.buf.len() >= len && self.ahead.buf.len() <= 2 * len.max(wanted);
        if !fits || Arc::get_mut(&mut self.ahead.buf).is_none() {
            self.ahead.buf = format::zeroed(len.max(wanted.min(self.table.footer.file_bytes as usize)));
        }
        let buf = Arc::get_mut(&mut self.ahead.buf).expect("just made, or found to have no other owner");
        if !read(&*self.table.file, &mut buf[..len], bytes.start)? {
            return Ok(false);
        }
        self.stats.blocks_read += count as u64;
        self.stats.bytes_read += len as u64;
        self.ahead.blocks = i..i + count;
        self.ahead.start = bytes.start;
        Ok(true)
    }

    /// Takes block `i` out of the chunk.
    fn cut_out(&mut self, i: usize) -> Result<Block> {
        let handle = self.table.index.handle(i);
        let start = (handle.offset - self.ahead.start) as usize;
        if self.spec.cache_ahead && self.spec.fill_cache && self.table.keeps_blocks() {
            let sealed = &self.ahead.buf[start..start + (handle.end() - handle.offset) as usize];
            let block = format::copy_block(sealed, handle, self.spec.verify)?;
            self.table.offer(handle, &self.read_spec(), &block);
            return Ok(block);
        }
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

    /// As `positioned`, where it is likely to go forward.
    fn starting(&mut self, go: impl FnOnce(&mut TableIter) -> Result<()>) -> Result<()> {
        self.is_start = true;
        let positioned = self.positioned(go);
        self.is_start = false;
        positioned
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
        let (user, trailer) = (key::user_key(target), key::trailer_of(target));
        let i = self.table.index.seek(&self.table.comparator, user, trailer);
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
        self.starting(|it| it.first_from(0))
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.positioned(|it| it.last_before(it.table.index.len()))
    }

    fn seek(&mut self, target: &[u8]) -> Result<()> {
        check_target(target)?;
        self.starting(|it| it.seek_inner(target))
    }

    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        check_target(target)?;
        self.positioned(|it| {
            it.seek_inner(target)?;
            if !it.cursor.valid() {
                return it.last_before(it.table.index.len());
            }
            match it.table.comparator.compare_internal(it.cursor.key(), target).is_eq() {
                true => Ok(()),
                false => it.prev_inner(),
            }
        })
    }

    fn try_position(&mut self, to: &Target<'_>) -> Result<()> {
        self.is_trial = true;
        let tried = self.position(to);
        self.is_trial = false;
        tried
    }

    fn missing(&mut self, wanted: &mut Vec<Missing>) {
        if std::mem::take(&mut self.is_missing) {
            wanted.push(Missing { table: self.table.clone(), at: self.ahead.expected - 1 });
        }
    }

    fn hand(&mut self, blocks: &mut dyn Iterator<Item = Handed>) {
        self.handed = blocks.next().flatten().map(Box::new);
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

impl Drop for TableIter {
    fn drop(&mut self) {
        self.note_walk();
    }
}
