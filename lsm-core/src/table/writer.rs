//! Writes a table from entries that arrive in order (F2).
//!
//! Data blocks are built in one reused buffer, sealed, and gathered in a large one that goes to
//! the file whole; the kernel is asked to write back every few MiB, so that a later sync finds
//! little left to do. The whole-file checksum runs along. Values of 16 KiB and more that are not
//! to be compressed are never copied into the block buffer.
//!
//! The bytes go one of two ways and are the same on both: by plain calls, where values of
//! 128 KiB and more are not gathered either, or through a [`StreamWriter`], which never lets the
//! merging thread wait for the disk and takes a copy of everything.
//!
//! Absent on purpose: syncing. Whoever installs the table decides when it has to be durable.

use std::cmp::Ordering;
use std::sync::Arc;

use dialsm_io::{File, Landing, StreamWriter};

use super::TableOptions;
use super::block::{BlockBuilder, common_prefix};
use super::filter::{FilterBuilder, PREFIX_PROPERTY};
use super::format::{self, BLOCK_TRAILER_BYTES, Compression, FOOTER_BYTES, Footer, Handle};
use super::index::{self, IndexBuilder};
use super::properties::Properties;
use super::range_section::SectionBuilder;
use crate::callback::out_of_order;
use crate::format::FileHeader;
use crate::key::{self, Comparator, KEY_BYTES_MAX, Kind, TRAILER_BYTES, VALUE_BYTES_MAX};
use crate::range_del::RangeTombstone;
use crate::types::{SEQNO_MAX, SeqNo};
use crate::{Error, ErrorKind, Result, checksum};

const SINK_BYTES: usize = 512 << 10;
const DIRECT_BYTES: usize = 128 << 10;
const WRITEBACK_BYTES: u64 = 4 << 20;
const LARGE_VALUE_BYTES: usize = 16 << 10;

/// What the manifest keeps of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableMeta {
    /// Bytes of the file.
    pub file_bytes: u64,
    /// CRC32C (not masked) over all bytes of the file.
    pub checksum: u32,
    /// Entries.
    pub entries: u64,
    /// Deletes and single deletes among them.
    pub deletes: u64,
    /// Range tombstones among them.
    pub range_deletes: u64,
    /// Clues among them.
    pub clues: u64,
    /// Bytes of their user keys.
    pub clue_bytes: u64,
    /// The smallest sequence number of a clue; the largest there can be where there is none.
    pub clue_seqno_min: SeqNo,
    /// Redirected entries among them.
    pub redirected: u64,
    /// Bytes of their user keys and values.
    pub redirected_bytes: u64,
    /// The first internal key, be it a range tombstone's; empty in a table without entries.
    pub smallest: Vec<u8>,
    /// The last internal key, or the end of a range tombstone ([`key::range_end`]); empty in a table
    /// without entries.
    pub largest: Vec<u8>,
    /// The smallest sequence number; 0 in a table without entries.
    pub seqno_min: SeqNo,
    /// The largest sequence number.
    pub seqno_max: SeqNo,
    /// Bytes of all internal keys.
    pub raw_key_bytes: u64,
    /// Bytes of all values.
    pub raw_value_bytes: u64,
    /// Data blocks.
    pub data_blocks: u64,
}

/// Counts an entry that has to do with another shard.
#[inline]
pub(super) fn count_special(p: &mut Properties, kind: u8, key_bytes: u64, value_bytes: u64) {
    match Kind::from_u8(kind) {
        Some(kind) if kind.is_clue() => {
            p.clues += 1;
            p.clue_bytes += key_bytes;
        }
        Some(kind) if kind.is_redirected() => {
            p.redirected += 1;
            p.redirected_bytes += key_bytes + value_bytes;
        }
        _ => {}
    }
}

/// The end of the file: sums its bytes up and passes them on.
struct Sink {
    out: Out,
    crc: u32,
}

/// Where the bytes go.
enum Out {
    /// To the file, by a call that may wait for the disk.
    Plain(PlainOut),
    /// To buffers that are written behind the writer's back.
    Stream(StreamWriter),
}

/// Gathers bytes and writes them in large pieces.
struct PlainOut {
    file: Arc<dyn File>,
    buf: Vec<u8>,
    written: u64,
    written_back: u64,
}

impl PlainOut {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if self.buf.len() + bytes.len() > SINK_BYTES {
            self.flush()?;
        }
        if bytes.len() >= DIRECT_BYTES {
            self.flush()?;
            return self.write(bytes);
        }
        self.buf.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if self.buf.is_empty() {
            return Ok(());
        }
        let mut buf = std::mem::take(&mut self.buf);
        let outcome = self.write(&buf);
        buf.clear();
        self.buf = buf;
        outcome
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_at(bytes, self.written)?;
        self.written += bytes.len() as u64;
        if self.written - self.written_back >= WRITEBACK_BYTES {
            self.file.start_writeback(self.written_back, self.written - self.written_back);
            self.written_back = self.written;
        }
        Ok(())
    }

    /// All is with the kernel.
    fn finish(mut self) -> Result<Landing> {
        self.flush()?;
        self.file.start_writeback(self.written_back, self.written - self.written_back);
        Ok(Landing::landed(self.file))
    }
}

impl Sink {
    fn offset(&self) -> u64 {
        match &self.out {
            Out::Plain(out) => out.written + out.buf.len() as u64,
            Out::Stream(stream) => stream.len(),
        }
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.crc = checksum::extend(self.crc, bytes);
        match &mut self.out {
            Out::Plain(out) => out.append(bytes),
            Out::Stream(stream) => stream.write(bytes),
        }
    }

    fn finish(self) -> Result<Landing> {
        match self.out {
            Out::Plain(out) => out.finish(),
            Out::Stream(stream) => Ok(stream.finish()),
        }
    }

    /// Appends a sealed block whose payload comes in parts.
    fn append_block(&mut self, parts: &[&[u8]], codec: Compression) -> Result<Handle> {
        let len = parts.iter().map(|part| part.len() as u64).sum();
        let handle = Handle { offset: self.offset(), len };
        for part in parts {
            self.append(part)?;
        }
        self.append(&format::block_trailer(parts, codec))?;
        Ok(handle)
    }
}

/// Builds one table.
pub struct TableWriter {
    sink: Sink,
    comparator: Comparator,
    options: TableOptions,
    block: BlockBuilder,
    compressed: Vec<u8>,
    index: IndexBuilder,
    filter: FilterBuilder,
    /// The last data block, which enters the index when the next key is known.
    unindexed: Option<Handle>,
    separator: Vec<u8>,
    last_key: Vec<u8>,
    range_dels: Option<SectionBuilder>,
    properties: Properties,
    clue_seqno_min: SeqNo,
    failed: bool,
}

impl TableWriter {
    /// A writer at the front of an empty `file`.
    ///
    /// # Errors
    /// Those of [`TableOptions::validate`].
    pub fn new(
        file: Arc<dyn File>,
        header: FileHeader,
        comparator: Comparator,
        options: TableOptions,
    ) -> Result<TableWriter> {
        let buf = Vec::with_capacity(SINK_BYTES);
        let out = Out::Plain(PlainOut { file, buf, written: 0, written_back: 0 });
        TableWriter::with_out(out, header, comparator, options)
    }

    /// A writer of a table that goes through a stream, at its front: no call waits for the disk.
    ///
    /// # Errors
    /// Those of [`TableOptions::validate`], and `InvalidArgument` if the stream has bytes already.
    pub fn streaming(
        stream: StreamWriter,
        header: FileHeader,
        comparator: Comparator,
        options: TableOptions,
    ) -> Result<TableWriter> {
        if !stream.is_empty() {
            return Err(Error::invalid("a table's stream must be at its front"));
        }
        TableWriter::with_out(Out::Stream(stream), header, comparator, options)
    }

    fn with_out(
        out: Out,
        header: FileHeader,
        comparator: Comparator,
        options: TableOptions,
    ) -> Result<TableWriter> {
        options.validate()?;
        let filter_bits = if comparator.equal_is_identical() { options.filter_bits_per_key } else { 0.0 };
        let mut sink = Sink { out, crc: 0 };
        sink.append(&header.encode())?;
        Ok(TableWriter {
            sink,
            block: BlockBuilder::new(options.restart_interval, options.block_bytes),
            compressed: Vec::new(),
            index: IndexBuilder::new(options.index_partition_bytes),
            filter: FilterBuilder::new(
                filter_bits,
                options.filter_whole_keys,
                options.prefix_extractor.clone(),
            ),
            unindexed: None,
            separator: Vec::new(),
            last_key: Vec::new(),
            range_dels: None,
            properties: Properties {
                comparator: comparator.name().to_owned(),
                seqno_min: SEQNO_MAX,
                ..Properties::default()
            },
            clue_seqno_min: SEQNO_MAX,
            comparator,
            options,
            failed: false,
        })
    }

    /// Adds a property of the creator's own. `name` must have a prefix with a dot, such as
    /// `creation.cause`; a second value for a name replaces the first.
    ///
    /// # Errors
    /// `InvalidArgument` if the name has no dot, or the prefix `filter.`, which is the writer's own.
    pub fn set_property(&mut self, name: &str, value: &[u8]) -> Result<()> {
        if !name.contains('.') || name.starts_with("filter.") {
            return Err(Error::invalid("a property's name needs a prefix of its own with a dot"));
        }
        self.put_property(name, value);
        Ok(())
    }

    fn put_property(&mut self, name: &str, value: &[u8]) {
        let others = &mut self.properties.others;
        match others.binary_search_by(|(n, _)| n[..].cmp(name)) {
            Ok(at) => others[at].1 = value.to_vec(),
            Err(at) => others.insert(at, (name.to_owned(), value.to_vec())),
        }
    }

    /// Adds an entry after all others.
    ///
    /// # Errors
    /// `Internal` if it is not strictly after the last one, is no internal key, or is a range
    /// tombstone (these belong in a section of their own); `TooLarge`; those of the file. After
    /// one of the file's, the table is lost and every later call fails.
    #[inline]
    pub fn add(&mut self, internal_key: &[u8], value: &[u8]) -> Result<()> {
        let shared = self.check(internal_key, value)?;
        let large = value.len() >= LARGE_VALUE_BYTES && self.options.compression == Compression::None;
        let wanted = self.block.bytes() + internal_key.len() + value.len() + BLOCK_TRAILER_BYTES + 8;
        if !self.block.is_empty() && (large || wanted > self.options.block_bytes) {
            self.cut_block()?;
        }
        if let Some(handle) = self.unindexed.take() {
            index::separator(&self.comparator, &self.last_key, internal_key, &mut self.separator);
            self.index.add(&self.separator, handle);
        }
        self.count(internal_key, value, shared);
        self.last_key.clear();
        self.last_key.extend_from_slice(internal_key);
        if large {
            return self.add_large(internal_key, value);
        }
        self.block.add(internal_key, shared, value);
        Ok(())
    }

    /// Adds a range tombstone. Those of a table come in order of their starts, newest first where these
    /// are the same, and two of them either have both ends in common or do not meet.
    ///
    /// # Errors
    /// `Internal` if it is out of order or spans nothing; `TooLarge`.
    pub fn add_range_tombstone(&mut self, tombstone: &RangeTombstone) -> Result<()> {
        let section = self.range_dels.get_or_insert_with(|| {
            SectionBuilder::new(self.comparator.clone(), self.options.index_partition_bytes)
        });
        section.add(tombstone)
    }

    /// Checks the entry; returns the bytes its user key shares with the last one.
    #[inline]
    fn check(&self, internal: &[u8], value: &[u8]) -> Result<usize> {
        if self.failed {
            return Err(Error::new(ErrorKind::Internal, "the table failed to be written before"));
        }
        if internal.len() < TRAILER_BYTES {
            return Err(Error::new(ErrorKind::Internal, "a table was given a key without trailer"));
        }
        if internal.len() > KEY_BYTES_MAX + TRAILER_BYTES || value.len() > VALUE_BYTES_MAX {
            return Err(Error::new(ErrorKind::TooLarge, "a table was given a key or value beyond its bound"));
        }
        match Kind::from_u8(key::kind_byte_of(internal)) {
            Some(Kind::RangeDelete) | None => {
                return Err(Error::new(
                    ErrorKind::Internal,
                    "a table was given an entry of a kind not its own",
                ));
            }
            Some(_) => {}
        }
        if self.properties.entries == 0 {
            return Ok(0);
        }
        let (last, next) = (key::user_key(&self.last_key), key::user_key(internal));
        let shared = common_prefix(last, next);
        let order = match &self.comparator {
            Comparator::Bytewise => last[shared..].first().cmp(&next[shared..].first()),
            Comparator::ReverseBytewise => next[shared..].first().cmp(&last[shared..].first()),
            custom => custom.compare(last, next),
        };
        let is_same_key = order.is_eq() && last == next;
        let order = order.then_with(|| key::trailer_of(internal).cmp(&key::trailer_of(&self.last_key)));
        if order != Ordering::Less && is_same_key {
            return Err(Error::new(ErrorKind::Internal, "a table was given entries of a key out of order"));
        }
        if order != Ordering::Less {
            let text = "a table was given keys out of order";
            return Err(out_of_order(&self.comparator, ErrorKind::Internal, text));
        }
        Ok(shared)
    }

    #[inline]
    fn count(&mut self, internal: &[u8], value: &[u8], shared: usize) {
        let user = key::user_key(internal);
        let p = &mut self.properties;
        // Versions of one key hash once.
        if p.entries == 0 || shared < user.len() || user.len() + TRAILER_BYTES != self.last_key.len() {
            self.filter.add(user);
        }
        if p.entries == 0 {
            p.smallest = internal.to_vec();
        }
        let (kind, seqno) = (key::kind_byte_of(internal), key::seqno_of(internal));
        p.entries += 1;
        p.deletes += u64::from(kind == Kind::Delete as u8 || kind == Kind::SingleDelete as u8);
        if kind != Kind::Put as u8 {
            count_special(p, kind, user.len() as u64, value.len() as u64);
            if Kind::from_u8(kind).is_some_and(Kind::is_clue) {
                self.clue_seqno_min = self.clue_seqno_min.min(seqno);
            }
        }
        p.seqno_min = p.seqno_min.min(seqno);
        p.seqno_max = p.seqno_max.max(seqno);
        p.raw_key_bytes += internal.len() as u64;
        p.raw_value_bytes += value.len() as u64;
    }

    /// Writes a block of one entry whose value goes past the block buffer.
    fn add_large(&mut self, internal: &[u8], value: &[u8]) -> Result<()> {
        self.block.add_key(internal, 0, value.len());
        let rest = self.block.without_values(value.len());
        let written = self.sink.append_block(&[value, &rest], Compression::None);
        self.block_written(written)
    }

    /// Seals the present block and starts the next.
    fn cut_block(&mut self) -> Result<()> {
        let raw = self.block.finish();
        let written = match format::compress(raw, self.options.compression, &mut self.compressed) {
            Ok(None) => self.sink.append_block(&[raw], Compression::None),
            Ok(Some(len)) => self.sink.append_block(&[&self.compressed[..len]], self.options.compression),
            Err(e) => Err(e),
        };
        self.block_written(written)
    }

    fn block_written(&mut self, written: Result<Handle>) -> Result<()> {
        self.block.clear();
        self.failed |= written.is_err();
        self.unindexed = Some(written?);
        self.properties.data_blocks += 1;
        Ok(())
    }

    /// About how large the file would be if it were finished now, in bytes.
    #[inline]
    pub fn estimated_bytes(&self) -> u64 {
        let open = if self.block.is_empty() { 0 } else { self.block.bytes() as u64 };
        self.sink.offset() + open + self.index.bytes() + self.filter.bytes() + 2 * FOOTER_BYTES as u64
    }

    /// Entries added so far, range tombstones not counted.
    pub fn entries(&self) -> u64 {
        self.properties.entries
    }

    /// Bytes submitted to the stream of which the end was not seen yet; 0 without one.
    pub fn bytes_in_flight(&self) -> u64 {
        match &self.sink.out {
            Out::Plain(_) => 0,
            Out::Stream(stream) => stream.bytes_in_flight(),
        }
    }

    /// Writes what is left: last block, filter, index, properties, footer. Does not sync. A table
    /// without entries is valid. Waits until a stream has landed.
    ///
    /// # Errors
    /// Those of the file, and `Internal` if an earlier call failed on it.
    pub fn finish(self) -> Result<TableMeta> {
        let (meta, landing) = self.finish_streaming()?;
        landing.wait()?;
        Ok(meta)
    }

    /// As [`TableWriter::finish`], but does not wait for what a stream has under way: the table
    /// is whole only when the landing has come to a good end. Without a stream it has already.
    ///
    /// # Errors
    /// As there; errors of writes under way come with the landing.
    pub fn finish_streaming(mut self) -> Result<(TableMeta, Landing)> {
        if self.failed {
            return Err(Error::new(ErrorKind::Internal, "the table failed to be written before"));
        }
        if !self.block.is_empty() {
            self.cut_block()?;
        }
        if let Some(handle) = self.unindexed.take() {
            self.index.add(&self.last_key, handle);
        }
        let filter = self.filter.finish();
        if let (Some(_), Some(extractor)) = (&filter, self.filter.prefix_extractor()) {
            let name = extractor.name().into_owned();
            self.put_property(PREFIX_PROPERTY, name.as_bytes());
        }
        let mut p = self.properties;
        p.largest = self.last_key;
        let mut sink = self.sink;
        let mut footer = Footer::default();
        let mut tombstones = None;
        if let Some(section) = self.range_dels {
            section.counts().add_to(&self.comparator, &mut p);
            tombstones = Some(section.write(|raw| sink.append_block(&[raw], index::INDEX_COMPRESSION))?);
        }
        if p.entries == 0 {
            p.seqno_min = 0;
        }
        if let Some(payload) = filter {
            footer.filter = sink.append_block(&[&payload], Compression::None)?;
        }
        let mut write_index = |raw: &[u8]| sink.append_block(&[raw], index::INDEX_COMPRESSION);
        footer.values = self.index.finish(&mut write_index)?;
        if let Some((index, blocks)) = tombstones {
            p.data_blocks += blocks;
            footer.range_tombstones = index.finish(&mut write_index)?;
        }
        footer.properties = sink.append_block(&[&p.encode()], Compression::None)?;
        footer.file_bytes = sink.offset() + FOOTER_BYTES as u64;
        sink.append(&footer.encode())?;
        let meta = TableMeta {
            file_bytes: footer.file_bytes,
            checksum: sink.crc,
            entries: p.entries,
            deletes: p.deletes,
            range_deletes: p.range_deletes,
            clues: p.clues,
            clue_bytes: p.clue_bytes,
            clue_seqno_min: self.clue_seqno_min,
            redirected: p.redirected,
            redirected_bytes: p.redirected_bytes,
            smallest: p.smallest,
            largest: p.largest,
            seqno_min: p.seqno_min,
            seqno_max: p.seqno_max,
            raw_key_bytes: p.raw_key_bytes,
            raw_value_bytes: p.raw_value_bytes,
            data_blocks: p.data_blocks,
        };
        Ok((meta, sink.finish()?))
    }
}
