//! The section of range tombstones: a few blocks of a table, read whole when it is opened.
//!
//! ```text
//! block entry   start of the range as an internal key (kind range delete) -> end, exclusive
//! order         by start; of those with the same start, newest first
//! ```
//! INVARIANT: two tombstones of a table have both ends in common, or do not meet. Writers cut them so
//! (`range_del/fragments.rs`), which leaves of many that overlap only what some snapshot needs, and
//! lets any of them be cut at a key without looking at the others. The reader checks it.
//!
//! Blocks are stored raw, as those of an index are: they are read once, and starts share prefixes.

use std::ops::Range;
use std::sync::Arc;

use dialsm_io::File;

use super::block::{BlockBuilder, BlockCursor, common_prefix};
use super::format::{self, Handle};
use super::index::{Index, IndexBuilder};
use super::properties::Properties;
use crate::callback::out_of_order;
use crate::key::{self, Comparator, KEY_BYTES_MAX, Kind, TRAILER_BYTES};
use crate::range_del::{RangeDels, RangeTombstone};
use crate::types::SeqNo;
use crate::{Error, ErrorKind, Result};

const BLOCK_BYTES: usize = 4096;
const RESTART_INTERVAL: usize = 16;

/// Whether `next` may follow `last` in the section.
fn follows(cmp: &Comparator, last: &RangeTombstone, next: &RangeTombstone) -> bool {
    let same = cmp.compare(&last.start, &next.start).is_eq() && cmp.compare(&last.end, &next.end).is_eq();
    if same { next.seqno < last.seqno } else { cmp.compare(&last.end, &next.start).is_le() }
}

/// What a section adds to a table's properties.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SectionCounts {
    tombstones: u64,
    raw_key_bytes: u64,
    raw_value_bytes: u64,
    seqno_min: SeqNo,
    seqno_max: SeqNo,
    smallest: Vec<u8>,
    /// See [`key::range_end`].
    largest: Vec<u8>,
}

impl SectionCounts {
    fn add(&mut self, tombstone: &RangeTombstone) {
        let RangeTombstone { start, end, seqno } = tombstone;
        if self.tombstones == 0 {
            self.seqno_min = *seqno;
            self.smallest = key::internal_key(start, *seqno, Kind::RangeDelete as u8);
        }
        self.tombstones += 1;
        self.seqno_min = self.seqno_min.min(*seqno);
        self.seqno_max = self.seqno_max.max(*seqno);
        self.raw_key_bytes += (start.len() + TRAILER_BYTES) as u64;
        self.raw_value_bytes += end.len() as u64;
        self.largest = key::range_end(end);
    }

    /// Adds what was counted to the properties of the table's entries.
    pub(super) fn add_to(&self, cmp: &Comparator, p: &mut Properties) {
        if self.tombstones == 0 {
            return;
        }
        if p.entries == 0 || cmp.compare_internal(&self.smallest, &p.smallest).is_lt() {
            p.smallest.clone_from(&self.smallest);
        }
        if p.entries == 0 || cmp.compare_internal(&self.largest, &p.largest).is_gt() {
            p.largest.clone_from(&self.largest);
        }
        p.seqno_min = if p.entries == 0 { self.seqno_min } else { p.seqno_min.min(self.seqno_min) };
        p.seqno_max = p.seqno_max.max(self.seqno_max);
        p.entries += self.tombstones;
        p.range_deletes = self.tombstones;
        p.raw_key_bytes += self.raw_key_bytes;
        p.raw_value_bytes += self.raw_value_bytes;
    }
}

/// Gathers the section while the table is written.
pub(super) struct SectionBuilder {
    comparator: Comparator,
    partition_bytes: usize,
    block: BlockBuilder,
    /// Finished blocks, each with its last key.
    done: Vec<(Vec<u8>, Vec<u8>)>,
    last: Option<RangeTombstone>,
    last_key: Vec<u8>,
    counts: SectionCounts,
}

impl SectionBuilder {
    pub(super) fn new(comparator: Comparator, partition_bytes: usize) -> SectionBuilder {
        SectionBuilder {
            comparator,
            partition_bytes,
            block: BlockBuilder::new(RESTART_INTERVAL, BLOCK_BYTES),
            done: Vec::new(),
            last: None,
            last_key: Vec::new(),
            counts: SectionCounts::default(),
        }
    }

    pub(super) fn add(&mut self, tombstone: &RangeTombstone) -> Result<()> {
        let RangeTombstone { start, end, seqno } = tombstone;
        if start.len().max(end.len()) > KEY_BYTES_MAX {
            return Err(Error::new(ErrorKind::TooLarge, "a table was given a range beyond its bound"));
        }
        let spans = self.comparator.compare(start, end).is_lt() && *seqno > 0;
        if !spans || self.last.as_ref().is_some_and(|last| !follows(&self.comparator, last, tombstone)) {
            let text = "a table was given range tombstones out of order";
            return Err(out_of_order(&self.comparator, ErrorKind::Internal, text));
        }
        if self.block.bytes() >= BLOCK_BYTES {
            self.cut();
        }
        let shared = self.last.as_ref().map_or(0, |last| common_prefix(&last.start, start));
        self.last_key.clear();
        key::append_internal(&mut self.last_key, start, *seqno, Kind::RangeDelete as u8);
        self.block.add(&self.last_key, shared, end);
        self.counts.add(tombstone);
        self.last = Some(tombstone.clone());
        Ok(())
    }

    fn cut(&mut self) {
        self.done.push((self.block.finish().to_vec(), self.last_key.clone()));
        self.block.clear();
    }

    pub(super) fn counts(&self) -> &SectionCounts {
        &self.counts
    }

    /// Hands each block to `write`; returns the index over them, to be written later, and how many
    /// there are.
    pub(super) fn write(
        mut self,
        mut write: impl FnMut(&[u8]) -> Result<Handle>,
    ) -> Result<(IndexBuilder, u64)> {
        if !self.block.is_empty() {
            self.cut();
        }
        let mut index = IndexBuilder::new(self.partition_bytes);
        for (raw, last_key) in &self.done {
            index.add(last_key, write(raw)?);
        }
        Ok((index, self.done.len() as u64))
    }
}

/// The section as an open table has it.
pub(super) struct Section {
    pub(super) set: Arc<RangeDels>,
    pub(super) counts: SectionCounts,
    pub(super) blocks: u64,
}

/// Reads the section whose index is at `top`; all of it must lie inside `within`.
///
/// # Errors
/// `Corruption` with the offset of the block that is wrong; those of the file.
pub(super) fn read(file: &dyn File, top: Handle, cmp: &Comparator, within: &Range<u64>) -> Result<Section> {
    let index = Index::read(file, top, cmp, within)?;
    let mut counts = SectionCounts::default();
    let mut tombstones: Vec<RangeTombstone> = Vec::new();
    for i in 0..index.len() {
        let handle = index.handle(i);
        let mut cursor = BlockCursor::default();
        cursor.enter(format::read_block(file, handle, true)?);
        let mut walk = || {
            while cursor.next()? {
                let tombstone = decode(cmp, cursor.key(), cursor.value())?;
                if tombstones.last().is_some_and(|last| !follows(cmp, last, &tombstone)) {
                    return Err(out_of_order(
                        cmp,
                        ErrorKind::Corruption,
                        "range tombstones are out of order",
                    ));
                }
                if cmp.compare_internal(cursor.key(), index.separator(i)).is_gt() {
                    return Err(Error::corruption("a range tombstone lies behind its block's separator"));
                }
                counts.add(&tombstone);
                tombstones.push(tombstone);
            }
            Ok(())
        };
        walk().map_err(|e: Error| e.at_offset(handle.offset))?;
    }
    if tombstones.is_empty() {
        return Err(Error::corruption("a section of range tombstones has none").at_offset(top.offset));
    }
    let set = Arc::new(RangeDels::new(cmp.clone(), tombstones));
    Ok(Section { set, counts, blocks: index.len() as u64 })
}

fn decode(cmp: &Comparator, internal: &[u8], end: &[u8]) -> Result<RangeTombstone> {
    let (start, seqno) = (key::user_key(internal), key::seqno_of(internal));
    if key::kind_byte_of(internal) != Kind::RangeDelete as u8 || seqno == 0 {
        return Err(Error::corruption("an entry among the range tombstones is none"));
    }
    if start.len().max(end.len()) > KEY_BYTES_MAX || cmp.compare(start, end).is_ge() {
        return Err(Error::corruption("a range tombstone has ends that span nothing, or are too long"));
    }
    Ok(RangeTombstone { start: Arc::from(start), end: Arc::from(end), seqno })
}
