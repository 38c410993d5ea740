//! Opens a table and finds keys in it (R4).
//!
//! Opening reads all but the data blocks: header, footer, properties, filter, index and range tombstones stay in
//! memory ([`TableReader::memory_bytes`]), so that a point read asks the filter, searches the
//! index and reads at most one block, which comes through the block cache (R5).
//!
//! A block that several threads miss at once is read by each of them: that costs a little work in
//! a rare case, and no reader ever waits for another.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use dialsm_io::File;

use super::block::Block;
use super::filter::{Filter, PREFIX_PROPERTY, hash_key};
use super::format::{self, BLOCK_BYTES_MAX, BLOCK_TRAILER_BYTES, FOOTER_BYTES, Footer, Handle};
use super::index::Index;
use super::properties::Properties;
use super::range_section::{self, Section};
use super::walks::Walks;
use super::{Found, IterSpec, ReadSpec, ReadStats, TableIter};
use crate::cache::{BlockCache, FileId};
use crate::callback::Watch;
use crate::format::{FileHeader, FileKind, HEADER_BYTES, HEADER_BYTES_MAX};
use crate::key::{self, Comparator, SEEK_KIND};
use crate::prefix::{PrefixExtractor, PrefixHint};
use crate::range_del::RangeDels;
use crate::types::{DbId, FileNumber, SeqNo};
use crate::{Error, ErrorKind, Result};

/// An open table.
pub struct TableReader {
    pub(super) file: Arc<dyn File>,
    pub(super) number: FileNumber,
    pub(super) comparator: Comparator,
    pub(super) footer: Footer,
    pub(super) index: Index,
    pub(super) filter: Option<Filter>,
    pub(super) range_dels: Option<Section>,
    /// Set if the filter holds the prefixes that this extractor takes.
    pub(super) prefixes: Option<PrefixExtractor>,
    properties: Properties,
    cache: Arc<BlockCache>,
    file_id: FileId,
    /// Whether a block of this table may be in the cache.
    cached: AtomicBool,
    /// All data blocks, of a table of nothing but clues: the clue cache. A part of its table, it answers for
    /// that one alone, in its turn (rule 5), and goes with it.
    pinned: OnceLock<Box<[Block]>>,
    pub(super) walks: Walks,
}

impl TableReader {
    /// Opens table `number` of database `db_id`, which the manifest says has `file_bytes` bytes.
    ///
    /// # Errors
    /// `Foreign`, `NewerFormat` or `Corruption` if the file is not that table, whole and intact
    /// (data blocks are checked as they are read); `InvalidArgument` if it is in another order
    /// than `comparator`'s; `Callback` if the user's comparator panics; those of the file.
    pub fn open(
        file: Arc<dyn File>,
        db_id: &DbId,
        number: FileNumber,
        file_bytes: u64,
        comparator: Comparator,
        cache: Arc<BlockCache>,
    ) -> Result<Arc<TableReader>> {
        TableReader::open_with_prefixes(file, db_id, number, file_bytes, comparator, None, cache)
    }

    /// The same for a keyspace with a prefix extractor. A filter made with another one is used
    /// without its prefixes.
    ///
    /// # Errors
    /// As [`TableReader::open`].
    pub fn open_with_prefixes(
        file: Arc<dyn File>,
        db_id: &DbId,
        number: FileNumber,
        file_bytes: u64,
        comparator: Comparator,
        extractor: Option<&PrefixExtractor>,
        cache: Arc<BlockCache>,
    ) -> Result<Arc<TableReader>> {
        let path = file.path().to_path_buf();
        let watch = Watch::begin(&comparator);
        let open = || TableReader::open_inner(file, db_id, number, file_bytes, comparator, cache);
        let mut reader = open().map_err(|e| watch.cause(e).at_path(&path))?;
        // Range tombstones were sorted with it, and would stay so.
        watch.check().map_err(|e| e.at_path(&path))?;
        let made_with = reader.properties.other(PREFIX_PROPERTY).filter(|_| reader.filter.is_some());
        reader.prefixes = extractor.filter(|x| made_with == Some(x.name().as_bytes())).cloned();
        Ok(Arc::new(reader))
    }

    fn open_inner(
        file: Arc<dyn File>,
        db_id: &DbId,
        number: FileNumber,
        file_bytes: u64,
        comparator: Comparator,
        cache: Arc<BlockCache>,
    ) -> Result<TableReader> {
        let there = file.len()?;
        if there < (HEADER_BYTES + FOOTER_BYTES) as u64 {
            let text = format!("the table has {there} bytes, too few for any table");
            return Err(Error::corruption(text).at_offset(there));
        }
        let content_start = read_header(&*file, db_id, number, there)?;
        if there != file_bytes {
            let text = format!("the table has {there} bytes, the manifest says {file_bytes}");
            return Err(Error::corruption(text).at_offset(there.min(file_bytes)));
        }
        let footer_at = file_bytes - FOOTER_BYTES as u64;
        let mut footer = [0u8; FOOTER_BYTES];
        format::read_exact(&*file, &mut footer, footer_at)?;
        let footer = Footer::decode(&footer, content_start, file_bytes)?;
        if !footer.clues.is_empty() {
            // Passing over a section would answer reads wrongly.
            let text = "the table has a section of clues, which this build does not read";
            return Err(Error::new(ErrorKind::NewerFormat, text).at_offset(footer_at + 16));
        }
        let properties = read_payload(&*file, footer.properties, Properties::decode)?;
        if properties.comparator != comparator.name() {
            let text = format!(
                "the table is in the order {:?}, the keyspace in {:?}",
                properties.comparator,
                comparator.name()
            );
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        let index = Index::read(&*file, footer.values, &comparator, &(content_start..footer_at))?;
        let range_dels = match footer.range_tombstones.is_empty() {
            true => None,
            false => Some(range_section::read(
                &*file,
                footer.range_tombstones,
                &comparator,
                &(content_start..footer_at),
            )?),
        };
        let found = range_dels.as_ref().map_or(0, |section| section.set.len() as u64);
        if found != properties.range_deletes {
            let text = format!(
                "the properties say {} range tombstones, the table has {found}",
                properties.range_deletes
            );
            return Err(Error::corruption(text).at_offset(footer_at + 32));
        }
        let filter = match footer.filter.is_empty() || !comparator.equal_is_identical() {
            true => None,
            false => Some(read_payload(&*file, footer.filter, Filter::decode)?),
        };
        let file_id = cache.new_file_id();
        let cached = AtomicBool::new(false);
        Ok(TableReader {
            file,
            number,
            comparator,
            footer,
            index,
            filter,
            range_dels,
            prefixes: None,
            properties,
            cache,
            file_id,
            cached,
            pinned: OnceLock::new(),
            walks: Walks::default(),
        })
    }

    /// The table's range tombstones, if it has some.
    #[inline]
    pub fn range_dels(&self) -> Option<&Arc<RangeDels>> {
        self.range_dels.as_ref().map(|section| &section.set)
    }

    /// The newest entry of `user_key` with a sequence number up to `seqno`, whatever its kind. Range
    /// tombstones are not looked at: [`TableReader::range_dels`] knows them.
    ///
    /// # Errors
    /// `Corruption` with file and offset; those of the file.
    pub fn get(
        &self,
        user_key: &[u8],
        seqno: SeqNo,
        spec: &ReadSpec,
        stats: &mut ReadStats,
    ) -> Result<Option<Found>> {
        let Some(at) = self.locate(user_key, seqno, stats) else { return Ok(None) };
        let found = self.find_in(self.block(at, spec, stats)?, user_key, seqno)?;
        if found.is_none() {
            self.note_absent(user_key, stats);
        }
        Ok(found)
    }

    /// Counts a look-up that the filter let pass and that found nothing.
    #[cold]
    pub(crate) fn note_absent(&self, user_key: &[u8], stats: &mut ReadStats) {
        let was_asked =
            self.filter.as_ref().is_some_and(|filter| self.point_hash(filter, user_key).is_some());
        stats.filter_false_positives += u64::from(was_asked);
    }

    /// The data block in which that entry is, if there is one; the filter is asked first.
    #[inline(always)]
    pub(crate) fn locate(&self, user_key: &[u8], seqno: SeqNo, stats: &mut ReadStats) -> Option<usize> {
        if let Some(filter) = &self.filter
            && let Some(hash) = self.point_hash(filter, user_key)
        {
            stats.filter_checked += 1;
            if !filter.may_contain(hash) {
                stats.filter_useful += 1;
                return None;
            }
        }
        let at = self.index.seek(&self.comparator, user_key, key::trailer(seqno, SEEK_KIND));
        (at < self.index.len()).then_some(at)
    }

    /// What [`TableReader::get`] finds in the block that [`TableReader::locate`] named.
    ///
    /// # Errors
    /// `Corruption` with file and offset.
    #[inline(always)]
    pub(crate) fn find_in(&self, block: Block, user_key: &[u8], seqno: SeqNo) -> Result<Option<Found>> {
        let trailer = key::trailer(seqno, SEEK_KIND);
        let hit = block.find(&self.comparator, user_key, trailer).map_err(|e| self.located(e))?;
        Ok(hit.map(|hit| Found {
            seqno: hit.trailer >> 8,
            kind: hit.trailer as u8,
            value: block.into_value(&hit),
        }))
    }

    /// What the filter knows `user_key` by, if anything.
    #[inline]
    pub(super) fn point_hash(&self, filter: &Filter, user_key: &[u8]) -> Option<u64> {
        if filter.has_whole_keys() { Some(hash_key(user_key)) } else { self.prefix_hash(user_key) }
    }

    /// The hash of the key's prefix, if the filter holds prefixes. An extractor that panics makes
    /// the look-up do without.
    pub(super) fn prefix_hash(&self, user_key: &[u8]) -> Option<u64> {
        self.prefixes.as_ref()?.extract(user_key).ok()?.map(hash_key)
    }

    /// Whether the filter denies that any user key of the table has this prefix. Speaks of entries,
    /// never of range tombstones.
    pub(super) fn lacks_prefix(&self, hint: &PrefixHint, stats: &mut ReadStats) -> bool {
        let (Some(filter), Some(_)) = (&self.filter, &self.prefixes) else { return false };
        let lacks = !filter.may_contain(hint.hash());
        stats.filter_checked += 1;
        stats.filter_useful += u64::from(lacks);
        lacks
    }

    /// Data block `i`, from the cache or the file.
    pub(super) fn block(&self, i: usize, spec: &ReadSpec, stats: &mut ReadStats) -> Result<Block> {
        if let Some(blocks) = self.pinned.get() {
            return Ok(blocks[i].clone());
        }
        let handle = self.index.handle(i);
        if let Some(block) = self.cache.get(self.file_id, handle.offset) {
            stats.block_cache_hits += 1;
            return Ok(block);
        }
        self.block_from_file(handle, spec, stats)
    }

    /// Data block `i` if it is in the cache.
    pub(crate) fn cached_block(&self, i: usize) -> Option<Block> {
        if let Some(blocks) = self.pinned.get() {
            return Some(blocks[i].clone());
        }
        self.cache.get(self.file_id, self.index.handle(i).offset)
    }

    pub(super) fn block_from_file(
        &self,
        handle: Handle,
        spec: &ReadSpec,
        stats: &mut ReadStats,
    ) -> Result<Block> {
        stats.blocks_read += 1;
        stats.bytes_read += handle.len + BLOCK_TRAILER_BYTES as u64;
        let block = format::read_block(&*self.file, handle, spec.verify)?;
        self.offer(handle, spec, &block);
        Ok(block)
    }

    /// Data block `i` out of the file, if it can be had without waiting for a device.
    ///
    /// # Errors
    /// `Corruption` with file and offset.
    pub(crate) fn block_at_hand(
        &self,
        i: usize,
        spec: &ReadSpec,
        stats: &mut ReadStats,
    ) -> Result<Option<Block>> {
        let handle = self.index.handle(i);
        let mut sealed = format::zeroed(handle.len as usize + BLOCK_TRAILER_BYTES);
        let buf = Arc::get_mut(&mut sealed).expect("just made");
        if !self.file.read_cached_at(buf, handle.offset) {
            return Ok(None);
        }
        stats.blocks_read += 1;
        stats.bytes_read += sealed.len() as u64;
        let block = format::open_block(&sealed, 0, handle, spec.verify, None).map_err(|e| self.located(e))?;
        self.offer(handle, spec, &block);
        Ok(Some(block))
    }

    /// Whether a block that a reader offers would be kept.
    pub(super) fn keeps_blocks(&self) -> bool {
        self.cache.capacity() > 0
    }

    /// Offers a block just read to the block cache, if the reader wants that.
    pub(super) fn offer(&self, handle: Handle, spec: &ReadSpec, block: &Block) {
        // What came in unchecked must not be served to a reader that wants it checked.
        if spec.fill_cache && spec.verify && self.cache.insert(self.file_id, handle.offset, block) {
            self.cached.store(true, Relaxed);
        }
    }

    /// Reads all data blocks and keeps them for as long as the table is open.
    ///
    /// # Errors
    /// As [`TableReader::get`].
    pub(crate) fn pin_blocks(&self) -> Result<()> {
        let spec = ReadSpec { fill_cache: false, verify: true };
        let mut stats = ReadStats::default();
        let read = |i| self.block_from_file(self.index.handle(i), &spec, &mut stats);
        let blocks: Result<Vec<Block>> = (0..self.index.len()).map(read).collect();
        let _ = self.pinned.set(blocks.map_err(|e| self.located(e))?.into_boxed_slice());
        Ok(())
    }

    /// A cursor over all entries. It keeps the table open.
    pub fn iter(self: &Arc<TableReader>, spec: IterSpec) -> TableIter {
        TableIter::new(self.clone(), spec)
    }

    /// The bytes of the file before the place where `internal_key` is or would be.
    pub fn approximate_offset(&self, internal_key: &[u8]) -> u64 {
        let (user, trailer) = (key::user_key(internal_key), key::trailer_of(internal_key));
        let at = self.index.seek(&self.comparator, user, trailer);
        match at < self.index.len() {
            true => self.index.handle(at).offset,
            false => at.checked_sub(1).map_or(HEADER_BYTES as u64, |last| self.index.handle(last).end()),
        }
    }

    /// Bytes held in memory while the table is open: index, filter, range tombstones, properties.
    pub fn memory_bytes(&self) -> usize {
        let p = &self.properties;
        let filter = self.filter.as_ref().map_or(0, Filter::memory_bytes);
        let range_dels = self.range_dels().map_or(0, |set| set.memory_bytes());
        size_of::<TableReader>()
            + self.index.memory_bytes()
            + filter
            + range_dels
            + self.pinned.get().map_or(0, |blocks| blocks.iter().map(Block::memory_bytes).sum())
            + p.smallest.len()
            + p.largest.len()
    }

    /// What the table says about itself.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// The table's file number.
    pub fn number(&self) -> FileNumber {
        self.number
    }

    /// The order of the table's keys.
    pub fn comparator(&self) -> &Comparator {
        &self.comparator
    }

    /// The table's file name, for error texts.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The error with this table's file name.
    #[cold]
    pub(super) fn located(&self, e: Error) -> Error {
        e.at_path(self.file.path())
    }
}

impl Drop for TableReader {
    /// The id is never given out again, so the blocks could not be found any more.
    fn drop(&mut self) {
        if *self.cached.get_mut() {
            let offsets = (0..self.index.len()).map(|i| self.index.handle(i).offset);
            self.cache.erase(self.file_id, offsets);
        }
    }
}

/// Reads and checks the file header; returns where the content starts.
fn read_header(file: &dyn File, db_id: &DbId, number: FileNumber, file_bytes: u64) -> Result<u64> {
    let mut bytes = vec![0; HEADER_BYTES];
    format::read_exact(file, &mut bytes, 0)?;
    let claimed = u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]) as usize;
    if (HEADER_BYTES + 1..=HEADER_BYTES_MAX).contains(&claimed) && claimed as u64 <= file_bytes {
        bytes.resize(claimed, 0);
        format::read_exact(file, &mut bytes, 0)?;
    }
    let (header, content_start) = FileHeader::decode(&bytes, FileKind::Table)?;
    header.expect(db_id, number)?;
    Ok(content_start as u64)
}

/// Reads the block of a checked handle and decodes its payload, which is not a raw block.
fn read_payload<T>(file: &dyn File, handle: Handle, decode: impl Fn(&[u8]) -> Result<T>) -> Result<T> {
    let inner = || {
        if handle.len > BLOCK_BYTES_MAX * 4 {
            return Err(Error::corruption(format!("a block of {} bytes", handle.len)));
        }
        let mut sealed = vec![0; handle.len as usize + BLOCK_TRAILER_BYTES];
        format::read_exact(file, &mut sealed, handle.offset)?;
        match format::unseal(&sealed, true)? {
            (0, payload) => decode(payload),
            (codec, _) => Err(Error::corruption(format!("codec {codec} where none belongs"))),
        }
    };
    inner().map_err(|e| e.at_offset(handle.offset))
}

/// The data blocks from `first` on that lie end to end within `bytes_max` (at least one): how many,
/// and where in the file.
pub(super) fn span(index: &Index, first: usize, bytes_max: usize) -> (usize, Range<u64>) {
    let start = index.handle(first).offset;
    let (mut count, mut end) = (1, index.handle(first).end());
    while first + count < index.len() {
        let next = index.handle(first + count);
        if next.offset != end || next.end() - start > bytes_max as u64 {
            break;
        }
        end = next.end();
        count += 1;
    }
    (count, start..end)
}
