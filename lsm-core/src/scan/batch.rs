//! Entries of a scan, many at once, in one piece of memory.
//!
//! ```text
//! bytes   key | value | key | value | ...
//! ends    [end of key, end of value] of each entry
//! ```

use crate::{Error, Result};

/// Entries in the scan's order. Plain memory, of nobody's but the caller's: it keeps nothing of the database
/// alive, and may be filled again and again.
#[derive(Clone, Debug, Default)]
pub struct ScanBatch {
    bytes: Vec<u8>,
    ends: Vec<[usize; 2]>,
}

impl ScanBatch {
    /// One without entries.
    pub fn new() -> ScanBatch {
        ScanBatch::default()
    }

    /// How many entries it has.
    #[inline]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether it has none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of all keys and values.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The key of entry `at`.
    ///
    /// # Panics
    /// If there are no more than `at` entries; so for all calls that take a number.
    #[inline]
    pub fn key(&self, at: usize) -> &[u8] {
        &self.bytes[self.start(at)..self.ends[at][0]]
    }

    /// The value of entry `at`.
    #[inline]
    pub fn value(&self, at: usize) -> &[u8] {
        let [key_end, end] = self.ends[at];
        &self.bytes[key_end..end]
    }

    /// All keys and values, end to end; [`ScanBatch::ends`] says where each of them ends.
    pub fn data(&self) -> &[u8] {
        &self.bytes
    }

    /// Of each entry, where its key and where its value ends in [`ScanBatch::data`]. A key begins where the
    /// value before it ends.
    pub fn ends(&self) -> &[[usize; 2]] {
        &self.ends
    }

    /// Takes all entries out and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    #[inline]
    fn start(&self, at: usize) -> usize {
        if at == 0 { 0 } else { self.ends[at - 1][1] }
    }

    /// # Errors
    /// `OutOfMemory`; the batch is as it was.
    #[inline]
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let out_of_memory = |_| Error::out_of_memory("a batch of a scan");
        self.bytes.try_reserve(key.len() + value.len()).map_err(out_of_memory)?;
        self.ends.try_reserve(1).map_err(out_of_memory)?;
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push([key_end, self.bytes.len()]);
        Ok(())
    }
}
