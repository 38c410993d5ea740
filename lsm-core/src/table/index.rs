//! The index of a section: built in two levels of blocks, held in memory as one flat structure.
//!
//! ```text
//! on disk     partition block*     separator (internal key) -> handle of a data block
//!             top-level block      last separator of a partition -> handle of the partition
//! in memory   common               bytes that all separators' user keys start with
//!             prefixes [u64]       of the separators' user keys after `common`
//!             samples  [u64]       every 64th of them, small enough to stay in the nearest cache
//!             slots    [Slot]      handle, and end of the whole separator in `separators`
//! ```
//! A search looks at whole separators only where 8 bytes tie. Skipping `common` keeps that rare:
//! the keys of one table are neighbours, and the first bytes of neighbours are alike.
//!
//! With the bytewise order a separator is shortened to few bytes that still tell two blocks
//! apart; any other order keeps the last key of the block.

use std::cmp::Ordering;
use std::ops::Range;

use dialsm_io::File;

use super::block::{self, BlockBuilder, BlockCursor, common_prefix};
use super::format::{self, BLOCK_BYTES_MAX, BLOCK_TRAILER_BYTES, Compression, Handle};
use crate::callback::out_of_order;
use crate::key::{self, Comparator, TRAILER_BYTES};
use crate::{Error, ErrorKind, Result};

const SAMPLE: usize = 64;

/// Puts into `out` an internal key at or after `last` and before `next`, which follows it: as short as
/// may be, and close to `last`, because a seek to a key between the two then goes to the block of
/// `next` at once, instead of reading that of `last` to find nothing there.
pub(crate) fn separator(cmp: &Comparator, last: &[u8], next: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let (a, b) = (key::user_key(last), key::user_key(next));
    let shared = common_prefix(a, b);
    if matches!(cmp, Comparator::Bytewise) && shared < a.len().min(b.len()) {
        // A byte one greater, and all behind it left out, is greater than `a`. Where the two keys part it
        // may make the key `b` begins with; any later byte can't.
        let first = if a[shared] + 1 < b[shared] { shared } else { shared + 1 };
        let kept = a.len().saturating_sub(1).max(first);
        if let Some(at) = (first..kept).find(|&at| a[at] < u8::MAX) {
            out.extend_from_slice(&a[..at]);
            out.push(a[at] + 1);
            out.extend_from_slice(&[0; TRAILER_BYTES]);
            return;
        }
    }
    out.extend_from_slice(last);
}

/// Collects the index of one section while its data blocks are written.
pub(crate) struct IndexBuilder {
    partition: BlockBuilder,
    partition_bytes: usize,
    last: Vec<u8>,
    value: Vec<u8>,
    /// Raw partitions end to end, and for each its last separator and its length.
    done: Vec<u8>,
    ends: Vec<(Vec<u8>, usize)>,
}

const INDEX_RESTART_INTERVAL: usize = 16;

impl IndexBuilder {
    pub(crate) fn new(partition_bytes: usize) -> IndexBuilder {
        IndexBuilder {
            partition: BlockBuilder::new(INDEX_RESTART_INTERVAL, partition_bytes.min(1 << 16)),
            partition_bytes,
            last: Vec::new(),
            value: Vec::new(),
            done: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// Adds a data block under its separator.
    pub(crate) fn add(&mut self, separator: &[u8], handle: Handle) {
        add_entry(&mut self.partition, &mut self.last, &mut self.value, separator, handle);
        if self.partition.bytes() >= self.partition_bytes {
            self.cut();
        }
    }

    /// About how many bytes the index will have.
    pub(crate) fn bytes(&self) -> u64 {
        (self.done.len() + self.partition.bytes()) as u64
    }

    fn cut(&mut self) {
        let raw = self.partition.finish();
        self.done.extend_from_slice(raw);
        self.ends.push((self.last.clone(), raw.len()));
        self.partition.clear();
        self.last.clear();
    }

    /// Hands each block to `write`, which says where it went; returns the handle of the top level,
    /// empty if there is nothing to index.
    pub(crate) fn finish(mut self, mut write: impl FnMut(&[u8]) -> Result<Handle>) -> Result<Handle> {
        if !self.partition.is_empty() {
            self.cut();
        }
        if self.ends.is_empty() {
            return Ok(Handle::default());
        }
        let (mut top, mut from) = (BlockBuilder::new(INDEX_RESTART_INTERVAL, 4096), 0);
        self.last.clear();
        for (separator, len) in &self.ends {
            let handle = write(&self.done[from..from + len])?;
            from += len;
            add_entry(&mut top, &mut self.last, &mut self.value, separator, handle);
        }
        write(top.finish())
    }
}

fn add_entry(to: &mut BlockBuilder, last: &mut Vec<u8>, value: &mut Vec<u8>, sep: &[u8], handle: Handle) {
    let shared = match last.is_empty() {
        true => 0,
        false => common_prefix(key::user_key(last), key::user_key(sep)),
    };
    value.clear();
    handle.put(value);
    to.add(sep, shared, value);
    last.clear();
    last.extend_from_slice(sep);
}

struct Slot {
    offset: u64,
    separator_end: u64,
    len: u32,
}

/// The whole index of a section in memory.
#[derive(Default)]
pub(crate) struct Index {
    common: Box<[u8]>,
    prefixes: Vec<u64>,
    samples: Vec<u64>,
    slots: Vec<Slot>,
    separators: Vec<u8>,
}

impl Index {
    /// Reads the index whose top level is at `top` (empty: no blocks). Its blocks, and those it
    /// points to, must lie inside `within`, partitions and data blocks each in ascending order.
    pub(crate) fn read(file: &dyn File, top: Handle, cmp: &Comparator, within: &Range<u64>) -> Result<Index> {
        let mut index = Index::default();
        if top.is_empty() {
            return Ok(index);
        }
        let mut partitions: Vec<Handle> = Vec::new();
        let top_block = format::read_block(file, top, true)?;
        each_entry(top_block, top, within, |_, handle| {
            // In order they cannot overlap, so together they are no larger than the file.
            if partitions.last().is_some_and(|last| handle.offset < last.end()) {
                return Err(Error::corruption("an index has partitions out of file order"));
            }
            partitions.push(handle);
            Ok(())
        })?;
        let mut end = within.start;
        for (handle, sealed) in partitions.iter().zip(read_all(file, &partitions)?) {
            let block = format::open_block(&sealed.0, sealed.1, *handle, true, None)?;
            each_entry(block, *handle, within, |separator, data| {
                if data.offset < end {
                    return Err(Error::corruption("an index has blocks out of file order"));
                }
                end = data.end();
                index.push(cmp, separator, data)
            })?;
        }
        index.finish(cmp);
        Ok(index)
    }

    fn push(&mut self, cmp: &Comparator, separator: &[u8], data: Handle) -> Result<()> {
        if let Some(last) = self.slots.len().checked_sub(1)
            && cmp.compare_internal(self.separator(last), separator) != Ordering::Less
        {
            return Err(out_of_order(cmp, ErrorKind::Corruption, "an index is out of key order"));
        }
        self.separators.extend_from_slice(separator);
        let separator_end = self.separators.len() as u64;
        self.slots.push(Slot { offset: data.offset, separator_end, len: data.len as u32 });
        Ok(())
    }

    fn finish(&mut self, cmp: &Comparator) {
        let (count, mut common) = (self.slots.len(), 0);
        if count > 0 && !matches!(cmp, Comparator::Custom(_)) {
            // In order as they are, the first and the last differ where any two first do.
            let first = key::user_key(self.separator(0));
            common = common_prefix(first, key::user_key(self.separator(count - 1)));
            self.common = first[..common].into();
        }
        let prefix = |i| cmp.prefix(&key::user_key(self.separator(i))[common..]);
        let prefixes: Vec<u64> = (0..count).map(prefix).collect();
        self.samples = prefixes.iter().copied().step_by(SAMPLE).collect();
        self.prefixes = prefixes;
        self.slots.shrink_to_fit();
        self.separators.shrink_to_fit();
    }

    /// Data blocks.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The handle of data block `i`, checked when the index was read.
    #[inline]
    pub(crate) fn handle(&self, i: usize) -> Handle {
        Handle { offset: self.slots[i].offset, len: u64::from(self.slots[i].len) }
    }

    /// The separator of data block `i`.
    pub(crate) fn separator(&self, i: usize) -> &[u8] {
        let from = i.checked_sub(1).map_or(0, |before| self.slots[before].separator_end);
        &self.separators[from as usize..self.slots[i].separator_end as usize]
    }

    /// The first block whose separator is at or after the target; `len()` if there is none.
    #[inline]
    pub(crate) fn seek(&self, cmp: &Comparator, user: &[u8], trailer: u64) -> usize {
        let common = self.common.len();
        if user.len() < common || user[..common] != *self.common {
            // It parts from all separators alike, so it is before all or after all.
            return match cmp.compare(user, &self.common) {
                Ordering::Less => 0,
                _ => self.len(),
            };
        }
        let prefix = cmp.prefix(&user[common..]);
        let sample = self.samples.partition_point(|p| *p < prefix);
        let from = sample.saturating_sub(1) * SAMPLE;
        let to = (sample * SAMPLE).min(self.len());
        let mut at = from + self.prefixes[from..to].partition_point(|p| *p < prefix);
        if self.prefixes.get(at) == Some(&prefix) {
            let ties = self.prefixes[at..].partition_point(|p| *p == prefix);
            let (mut lo, mut hi) = (at, at + ties);
            while lo < hi {
                let mid = lo + (hi - lo) / 2;
                match block::compare(cmp, self.separator(mid), user, trailer) {
                    Ordering::Less => lo = mid + 1,
                    _ => hi = mid,
                }
            }
            at = lo;
        }
        at
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        8 * (self.prefixes.len() + self.samples.len())
            + size_of::<Slot>() * self.slots.len()
            + self.separators.len()
            + self.common.len()
    }
}

/// Calls `with` for each entry of an index block, its handle checked.
fn each_entry(
    block: block::Block,
    origin: Handle,
    within: &Range<u64>,
    mut with: impl FnMut(&[u8], Handle) -> Result<()>,
) -> Result<()> {
    let mut cursor = BlockCursor::default();
    cursor.enter(block);
    let mut walk = || {
        while cursor.next()? {
            let handle = Handle::decode(cursor.value())?;
            handle.check(within, "an index entry")?;
            if handle.is_empty() || handle.len > BLOCK_BYTES_MAX {
                return Err(Error::corruption(format!("an index entry of a block of {} bytes", handle.len)));
            }
            with(cursor.key(), handle)?;
        }
        Ok(())
    };
    walk().map_err(|e: Error| e.at_offset(origin.offset))
}

/// Reads sealed blocks: with one call if they lie end to end, as the writer leaves them.
fn read_all(file: &dyn File, handles: &[Handle]) -> Result<Vec<(std::sync::Arc<[u8]>, usize)>> {
    let end_to_end = handles.windows(2).all(|pair| pair[0].end() == pair[1].offset);
    let mut out = Vec::with_capacity(handles.len());
    if let (true, Some(first), Some(last)) = (end_to_end, handles.first(), handles.last()) {
        let mut all = format::zeroed((last.end() - first.offset) as usize);
        format::read_exact(file, std::sync::Arc::get_mut(&mut all).expect("just made"), first.offset)?;
        out.extend(handles.iter().map(|h| (all.clone(), (h.offset - first.offset) as usize)));
        return Ok(out);
    }
    for handle in handles {
        let mut sealed = format::zeroed(handle.len as usize + BLOCK_TRAILER_BYTES);
        format::read_exact(file, std::sync::Arc::get_mut(&mut sealed).expect("just made"), handle.offset)?;
        out.push((sealed, 0));
    }
    Ok(out)
}

/// Index blocks are stored raw: they are read once, at open, and shortened already.
pub(crate) const INDEX_COMPRESSION: Compression = Compression::None;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_lie_between() {
        let cmp = Comparator::Bytewise;
        let users: [&[u8]; 9] = [b"", b"\0", b"a", b"a\0", b"abc", b"abcdef", b"abd", b"b", b"\xff\xff"];
        let mut shortened = 0;
        for (i, a) in users.iter().enumerate() {
            for b in &users[i..] {
                let (last, next) = (key::internal_key(a, 9, 7), key::internal_key(b, 8, 7));
                let mut out = Vec::new();
                separator(&cmp, &last, &next, &mut out);
                assert_ne!(cmp.compare_internal(&out, &last), Ordering::Less);
                assert_eq!(cmp.compare_internal(&out, &next), Ordering::Less);
                shortened += usize::from(out != last);
            }
        }
        let mut out = Vec::new();
        let mut between = |a: &[u8], b: &[u8]| {
            separator(&cmp, &key::internal_key(a, 9, 7), &key::internal_key(b, 9, 7), &mut out);
            key::user_key(&out).to_vec()
        };
        // Near the first one, not the second.
        assert_eq!(between(b"abcxyz", b"abf"), b"abd");
        assert_eq!(between(b"abcxyz", b"abd"), b"abcy");
        assert_eq!(between(b"abc\xff\xff\x01\x02", b"abd"), b"abc\xff\xff\x02");
        assert_eq!(between(b"abc\xff", b"abd"), b"abc\xff");
        assert!(shortened >= 2, "{shortened}");
    }
}
