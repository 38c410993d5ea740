//! Raw blocks: sorted entries with prefix-compressed keys and restart points.
//!
//! ```text
//! block   = values | keys | restart * n | offset of keys u32 | n u32          n >= 1
//! values  = the entries' values, end to end
//! keys    = (shared varint | suffix length varint | value length varint
//!           | suffix of the user key | trailer 8 bytes) *
//! restart = offset in keys u32 | offset in values u32
//! ```
//! `shared` is the exact length of the user key's common prefix with the one before, except at a
//! restart point, where it is 0 and the key stands whole. Its exactness is an invariant of the
//! format: [`Block::find`] decides most entries of a scan from `shared` alone, without looking at
//! the key. The trailer (sequence and kind) is not shared: it seldom could be, and so a look-up
//! compares user keys only.
//!
//! Keys stand apart from values because a look-up in a large cache pays for each cache line it
//! touches first: the keys of a 4 KiB block of 100-byte values fill some ten lines that follow
//! each other, with the restarts right behind, and all of them can be asked for at once (see
//! `Block::clone`). Between values, each key would be a miss of its own.
//!
//! Used for data blocks, index partitions and top-level indexes. Where an entry is cut off or a
//! length leads out of the block, reading it gives `Corruption` at the block's file offset.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use crate::coding;
use crate::key::{self, Comparator, TRAILER_BYTES};
use crate::prefetch::prefetch;
use crate::{Error, Result, Slice};

/// Lines of keys asked for at once: about what a processor can wait for at a time.
const PREFETCH_LINES_MAX: usize = 10;

/// Values longer than this are shared with their block instead of copied.
const SHARE_BYTES_MIN: usize = 1024;

/// Bytes that `a` and `b` have in common at their fronts.
#[inline]
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let max = a.len().min(b.len());
    let mut n = 0;
    while let (Some(x), Some(y)) = (a[n..max].first_chunk::<8>(), b[n..max].first_chunk::<8>()) {
        let differ = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if differ != 0 {
            return n + (differ.trailing_zeros() / 8) as usize;
        }
        n += 8;
    }
    while n < max && a[n] == b[n] {
        n += 1;
    }
    n
}

/// Builds one raw block after another in the same memory.
pub(crate) struct BlockBuilder {
    values: Vec<u8>,
    keys: Vec<u8>,
    restarts: Vec<(u32, u32)>,
    interval: usize,
    since_restart: usize,
}

impl BlockBuilder {
    pub(crate) fn new(interval: usize, block_bytes: usize) -> BlockBuilder {
        let values = Vec::with_capacity(block_bytes + block_bytes / 4);
        BlockBuilder { values, keys: Vec::new(), restarts: Vec::new(), interval, since_restart: interval }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.restarts.is_empty()
    }

    /// Bytes of the block if it were finished now.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.values.len() + self.keys.len() + 8 * self.restarts.len() + 8
    }

    /// Adds all of an entry but its value's bytes. `shared` is the exact common prefix of this
    /// user key with the one added before; keys arrive in order.
    #[inline]
    pub(crate) fn add_key(&mut self, internal: &[u8], shared: usize, value_len: usize) {
        let mut shared = shared;
        if self.since_restart >= self.interval {
            self.restarts.push((self.keys.len() as u32, self.values.len() as u32));
            self.since_restart = 0;
            shared = 0;
        }
        self.since_restart += 1;
        let suffix = internal.len() - TRAILER_BYTES - shared;
        if (shared | suffix | value_len) < 0x80 {
            self.keys.extend_from_slice(&[shared as u8, suffix as u8, value_len as u8]);
        } else {
            coding::put_varint(&mut self.keys, shared as u64);
            coding::put_varint(&mut self.keys, suffix as u64);
            coding::put_varint(&mut self.keys, value_len as u64);
        }
        self.keys.extend_from_slice(&internal[shared..]);
    }

    /// Adds an entry, as [`BlockBuilder::add_key`] does.
    #[inline]
    pub(crate) fn add(&mut self, internal: &[u8], shared: usize, value: &[u8]) {
        self.add_key(internal, shared, value.len());
        self.values.extend_from_slice(value);
    }

    /// What follows the values of a block whose `value_bytes` bytes of them are kept elsewhere.
    pub(crate) fn without_values(&self, value_bytes: usize) -> Vec<u8> {
        let mut out = Vec::new();
        self.put_rest(&mut out, value_bytes);
        out
    }

    fn put_rest(&self, out: &mut Vec<u8>, value_bytes: usize) {
        out.extend_from_slice(&self.keys);
        for (key_at, value_at) in &self.restarts {
            out.extend_from_slice(&key_at.to_le_bytes());
            out.extend_from_slice(&value_at.to_le_bytes());
        }
        out.extend_from_slice(&(value_bytes as u32).to_le_bytes());
        out.extend_from_slice(&(self.restarts.len() as u32).to_le_bytes());
    }

    /// The whole raw block. [`BlockBuilder::clear`] starts the next.
    pub(crate) fn finish(&mut self) -> &[u8] {
        let mut values = std::mem::take(&mut self.values);
        let value_bytes = values.len();
        self.put_rest(&mut values, value_bytes);
        self.values = values;
        &self.values
    }

    pub(crate) fn clear(&mut self) {
        self.values.clear();
        self.keys.clear();
        self.restarts.clear();
        self.since_restart = self.interval;
    }
}

/// Where the parts of an entry's key lie among the keys.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    shared: usize,
    suffix: usize,
    value_len: usize,
    key_at: usize,
    end: usize,
}

/// Decodes the entry at `at`; `None` if it is cut off or leads out of the keys.
#[inline]
fn decode_entry(keys: &[u8], at: usize) -> Option<Entry> {
    let rest = keys.get(at..)?;
    let (shared, suffix, value_len, head) = match rest.first_chunk::<3>() {
        Some(&[a, b, c]) if (a | b | c) < 0x80 => (a.into(), b.into(), c.into(), 3),
        _ => {
            let (shared, n) = coding::read_varint(rest)?;
            let (suffix, m) = coding::read_varint(&rest[n..])?;
            let (value_len, o) = coding::read_varint(&rest[n + m..])?;
            let all_small = (shared | suffix | value_len) <= u64::from(u32::MAX);
            all_small.then_some((shared as usize, suffix as usize, value_len as usize, n + m + o))?
        }
    };
    let key_at = at + head;
    let end = key_at + suffix + TRAILER_BYTES;
    (end <= keys.len()).then_some(Entry { shared, suffix, value_len, key_at, end })
}

/// Where a cursor stands: offsets among the keys and among the values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    key: usize,
    value: usize,
}

/// A raw block in memory: a range of a shared buffer. Cheap to clone.
#[derive(Debug)]
pub struct Block {
    owner: Arc<[u8]>,
    start: u32,
    values_len: u32,
    keys_len: u32,
    restarts: u32,
    origin: u64,
}

impl Clone for Block {
    /// Whoever takes a block out of the cache is about to search it, so its last lines (restarts,
    /// keys) are asked for before the reference count's own line is waited for.
    #[inline]
    fn clone(&self) -> Block {
        let from = self.start as usize + self.values_len as usize;
        let restarts_at = from + self.keys_len as usize;
        prefetch(&self.owner[restarts_at..], 1);
        prefetch(&self.owner[from..restarts_at], PREFETCH_LINES_MAX);
        Block { owner: self.owner.clone(), ..*self }
    }
}

/// An entry found by [`Block::find`].
pub(crate) struct Hit {
    pub(crate) trailer: u64,
    value: Range<usize>,
}

impl Block {
    /// The block in `len` bytes of `owner` from `start` on, which came from file offset `origin`.
    ///
    /// # Errors
    /// `Corruption` if there is no room for the restart array or no entry before it.
    pub(crate) fn new(owner: Arc<[u8]>, start: usize, len: usize, origin: u64) -> Result<Block> {
        let bad = || Error::corruption("a block has no valid restart array").at_offset(origin);
        let bytes = &owner[start..start + len];
        let [a, b, c, d, count @ ..] = *bytes.last_chunk::<8>().ok_or_else(bad)?;
        let (values_len, restarts) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes(count));
        let around_keys = u64::from(values_len) + u64::from(restarts) * 8 + 8;
        if restarts == 0 || around_keys >= len as u64 || u32::try_from(start + len).is_err() {
            return Err(bad());
        }
        let keys_len = (len as u64 - around_keys) as u32;
        Ok(Block { owner, start: start as u32, values_len, keys_len, restarts, origin })
    }

    /// Bytes that the block keeps in memory.
    pub fn memory_bytes(&self) -> usize {
        self.owner.len()
    }

    /// The buffer behind it, to be used again if nobody shares it.
    pub(crate) fn into_owner(self) -> Arc<[u8]> {
        self.owner
    }

    #[inline]
    fn keys(&self) -> &[u8] {
        let from = self.start as usize + self.values_len as usize;
        &self.owner[from..from + self.keys_len as usize]
    }

    #[inline]
    fn values(&self) -> &[u8] {
        &self.owner[self.start as usize..self.start as usize + self.values_len as usize]
    }

    #[cold]
    fn corrupt(&self, what: &str) -> Error {
        Error::corruption(what).at_offset(self.origin)
    }

    #[inline]
    fn entry(&self, at: usize) -> Result<Entry> {
        decode_entry(self.keys(), at).ok_or_else(|| self.corrupt("an entry leads out of its block"))
    }

    /// The range of a value among the values.
    #[inline]
    fn value_range(&self, at: usize, len: usize) -> Result<Range<usize>> {
        match at + len <= self.values_len as usize {
            true => Ok(at..at + len),
            false => Err(self.corrupt("a value leads out of its block")),
        }
    }

    /// Where restart point `i`, which exists, leads.
    #[inline]
    fn restart(&self, i: usize) -> Place {
        let at = self.start as usize + self.values_len as usize + self.keys_len as usize + 8 * i;
        let [a, b, c, d, value @ ..] = *self.owner[at..].first_chunk::<8>().expect("bounds were checked");
        Place { key: u32::from_le_bytes([a, b, c, d]) as usize, value: u32::from_le_bytes(value) as usize }
    }

    /// The internal key at restart point `i`.
    #[inline]
    fn restart_key(&self, i: usize) -> Result<&[u8]> {
        let entry = self.entry(self.restart(i).key)?;
        match entry.shared {
            0 => Ok(&self.keys()[entry.key_at..entry.end]),
            _ => Err(self.corrupt("a restart point has no whole key")),
        }
    }

    /// The last restart point whose key is before the target, or the first one.
    #[inline]
    fn restart_before(&self, cmp: &Comparator, user: &[u8], trailer: u64) -> Result<Place> {
        let (mut lo, mut hi) = (0, self.restarts as usize);
        while hi - lo > 1 {
            let mid = lo + (hi - lo) / 2;
            let at = self.restart_key(mid)?;
            match compare(cmp, at, user, trailer) {
                Ordering::Less => lo = mid,
                _ => hi = mid,
            }
        }
        Ok(self.restart(lo))
    }

    /// The first entry at or after (`user`, `trailer`), if its user key is `user`.
    #[inline(always)]
    pub(crate) fn find(&self, cmp: &Comparator, user: &[u8], trailer: u64) -> Result<Option<Hit>> {
        let at = self.restart_before(cmp, user, trailer)?;
        match cmp {
            Comparator::Bytewise => self.scan(at, user, trailer, false),
            Comparator::ReverseBytewise => self.scan(at, user, trailer, true),
            Comparator::Custom(_) => self.scan_custom(cmp, at, user, trailer),
        }
    }

    /// Scans from a restart point, for the two byte orders, without building keys.
    ///
    /// `matched` is the common prefix of the target and of the last entry, which is before the
    /// target. Of the next entry, sharing `s` bytes with that one:
    /// - `s > matched`: it differs from the target where the last one did: before it.
    /// - `s < matched`: it moves on from bytes that agree with the target: after it. (Unless it is
    ///   a restart, where `s` is 0 whatever the truth.)
    /// - `s = matched`: the bytes from there on decide.
    #[inline(always)]
    fn scan(&self, from: Place, user: &[u8], trailer: u64, reverse: bool) -> Result<Option<Hit>> {
        let keys = self.keys();
        let (mut at, mut value_end, mut matched) = (from.key, from.value, 0);
        while at < keys.len() {
            let entry = self.entry(at)?;
            at = entry.end;
            let value_at = value_end;
            value_end += entry.value_len;
            let shared = entry.shared;
            if shared > matched {
                continue;
            }
            if shared < matched && shared != 0 {
                return Ok(None);
            }
            let suffix = &keys[entry.key_at..entry.key_at + entry.suffix];
            let wanted = &user[shared..];
            let n = common_prefix(suffix, wanted);
            let before = match (suffix.get(n), wanted.get(n)) {
                (None, None) => {
                    let own = key::trailer_of(&keys[..entry.end]);
                    if own <= trailer {
                        let value = self.value_range(value_at, entry.value_len)?;
                        return Ok(Some(Hit { trailer: own, value }));
                    }
                    true
                }
                (None, Some(_)) => !reverse,
                (Some(_), None) => reverse,
                (Some(a), Some(b)) => (a < b) != reverse,
            };
            if !before {
                return Ok(None);
            }
            matched = shared + n;
        }
        Ok(None)
    }

    /// As `scan`, for an order that knows nothing of prefixes.
    fn scan_custom(&self, cmp: &Comparator, from: Place, user: &[u8], trailer: u64) -> Result<Option<Hit>> {
        let mut cursor = BlockCursor::default();
        cursor.enter(self.clone());
        cursor.rewind(from);
        while cursor.next()? {
            if compare(cmp, &cursor.key, user, trailer) != Ordering::Less {
                let found = cmp.compare(key::user_key(&cursor.key), user) == Ordering::Equal;
                let hit = Hit { trailer: key::trailer_of(&cursor.key), value: cursor.value.clone() };
                return Ok(found.then_some(hit));
            }
        }
        Ok(None)
    }

    /// The value of a hit: the block itself where the value is long.
    #[inline(always)]
    pub(crate) fn into_value(self, hit: &Hit) -> Slice {
        let value = &self.values()[hit.value.clone()];
        if value.len() <= 30 {
            return Slice::copy_of(value);
        }
        Slice::shared(self.owner, self.start as usize + hit.value.start, hit.value.len())
    }
}

/// Compares an internal key with a target in two parts.
#[inline]
pub(crate) fn compare(cmp: &Comparator, internal: &[u8], user: &[u8], trailer: u64) -> Ordering {
    cmp.compare(key::user_key(internal), user).then_with(|| trailer.cmp(&key::trailer_of(internal)))
}

/// A cursor over one block. All memory it needs is kept from block to block.
#[derive(Default)]
pub(crate) struct BlockCursor {
    block: Option<Block>,
    key: Vec<u8>,
    value: Range<usize>,
    at: Place,
    next_at: Place,
    valid: bool,
    back: Back,
}

/// The entries of one restart interval, decoded once so that a step back is not a scan.
#[derive(Default)]
struct Back {
    keys: Vec<u8>,
    entries: Vec<BackEntry>,
    /// Entries before the cursor; the cache holds them while the cursor only moves back.
    left: usize,
}

struct BackEntry {
    at: Place,
    next_at: Place,
    key: Range<usize>,
    value: Range<usize>,
}

impl BlockCursor {
    /// Puts the cursor before the first entry of `block`.
    pub(crate) fn enter(&mut self, block: Block) {
        self.block = Some(block);
        self.rewind(Place::default());
    }

    /// Takes the block out; the cursor is not valid after.
    pub(crate) fn leave(&mut self) -> Option<Block> {
        self.valid = false;
        self.block.take()
    }

    fn rewind(&mut self, restart: Place) {
        self.valid = false;
        self.key.clear();
        self.next_at = restart;
        self.back.left = 0;
    }

    #[inline]
    pub(crate) fn valid(&self) -> bool {
        self.valid
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        debug_assert!(self.valid);
        &self.key
    }

    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        debug_assert!(self.valid);
        self.block.as_ref().map_or(&[], |b| &b.values()[self.value.clone()])
    }

    /// The value as a slice: shares the block where the value is long and most of what it would
    /// keep in memory is not readahead that nobody asked to keep.
    pub(crate) fn value_slice(&self) -> Slice {
        let len = self.value.len();
        match &self.block {
            Some(b) if len > SHARE_BYTES_MIN && len >= b.owner.len() / 8 => {
                Slice::shared(b.owner.clone(), b.start as usize + self.value.start, len)
            }
            _ => Slice::copy_of(self.value()),
        }
    }

    /// To the next entry; `false` at the end of the block.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<bool> {
        self.valid = false;
        self.back.left = 0;
        let Some(block) = &self.block else { return Ok(false) };
        let keys = block.keys();
        if self.next_at.key >= keys.len() {
            return Ok(false);
        }
        let entry = block.entry(self.next_at.key)?;
        if entry.shared > self.key.len().saturating_sub(TRAILER_BYTES) {
            return Err(block.corrupt("an entry shares more than the key before it has"));
        }
        self.key.truncate(entry.shared);
        self.key.extend_from_slice(&keys[entry.key_at..entry.end]);
        self.value = block.value_range(self.next_at.value, entry.value_len)?;
        self.at = self.next_at;
        self.next_at = Place { key: entry.end, value: self.value.end };
        self.valid = true;
        Ok(true)
    }

    /// To the last entry of the block.
    pub(crate) fn seek_to_last(&mut self) -> Result<bool> {
        let Some(block) = &self.block else { return Ok(false) };
        let (restart, end) = (block.restart(block.restarts as usize - 1), block.keys().len());
        self.rewind(restart);
        while self.next_at.key < end {
            self.next()?;
        }
        Ok(self.valid)
    }

    /// To the first entry at or after the target; `false` if the block ends before it.
    pub(crate) fn seek(&mut self, cmp: &Comparator, user: &[u8], trailer: u64) -> Result<bool> {
        let Some(block) = &self.block else { return Ok(false) };
        let restart = block.restart_before(cmp, user, trailer)?;
        self.rewind(restart);
        while self.next()? {
            if compare(cmp, &self.key, user, trailer) != Ordering::Less {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// To the entry before; `false`, and not valid, if there is none. Only while valid.
    pub(crate) fn prev(&mut self) -> Result<bool> {
        if self.back.left == 0 && !self.fill_back()? {
            self.valid = false;
            return Ok(false);
        }
        self.back.left -= 1;
        let entry = &self.back.entries[self.back.left];
        self.key.clear();
        self.key.extend_from_slice(&self.back.keys[entry.key.clone()]);
        (self.next_at, self.at, self.value) = (entry.next_at, entry.at, entry.value.clone());
        self.valid = true;
        Ok(true)
    }

    /// Decodes the interval that ends before the present entry. `false` if that is the first one.
    fn fill_back(&mut self) -> Result<bool> {
        let (end, Some(block)) = (self.at.key, &self.block) else { return Ok(false) };
        let (mut lo, mut hi) = (0, block.restarts as usize);
        while hi - lo > 1 {
            let mid = lo + (hi - lo) / 2;
            if block.restart(mid).key < end {
                lo = mid;
            } else {
                hi = mid;
            }
        }
        let restart = block.restart(lo);
        self.rewind(restart);
        self.back.keys.clear();
        self.back.entries.clear();
        while self.next_at.key < end && self.next()? {
            let from = self.back.keys.len();
            self.back.keys.extend_from_slice(&self.key);
            let key = from..self.back.keys.len();
            let (at, next_at, value) = (self.at, self.next_at, self.value.clone());
            self.back.entries.push(BackEntry { at, next_at, key, value });
        }
        self.back.left = self.back.entries.len();
        Ok(self.back.left > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_prefixes_are_exact() {
        let a: Vec<u8> = (0..40).collect();
        for len in 0..=40 {
            assert_eq!(common_prefix(&a, &a[..len]), len);
            for differ in 0..len {
                let mut b = a[..len].to_vec();
                b[differ] ^= 0x80;
                assert_eq!(common_prefix(&a, &b), differ);
            }
        }
    }

    #[test]
    fn blocks_without_room_for_their_parts_are_refused() {
        let mut builder = BlockBuilder::new(16, 4096);
        builder.add(&key::internal_key(b"key", 1, 7), 0, b"value");
        let raw = builder.finish().to_vec();
        let open = |bytes: &[u8]| Block::new(Arc::from(bytes), 0, bytes.len(), 77);
        let block = open(&raw).expect("whole");
        let hit = block.find(&Comparator::Bytewise, b"key", u64::MAX).expect("intact").expect("it is there");
        assert_eq!(block.into_value(&hit), b"value"[..]);
        for len in 0..8 {
            assert_eq!(open(&raw[..len]).expect_err("cut").offset(), Some(77));
        }
        for (at, value) in [(8, u32::MAX), (8, raw.len() as u32), (4, 0), (4, 1000), (4, u32::MAX)] {
            let mut bad = raw.clone();
            let at = bad.len() - at;
            bad[at..at + 4].copy_from_slice(&value.to_le_bytes());
            assert!(open(&bad).is_err(), "{value} at {at}");
        }
    }
}
