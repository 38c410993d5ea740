//! Entries, many at once, in a form that C reads without a call for each.
//!
//! ```text
//! data   key | value | key | value | ...
//! ends   end of key, end of value, end of key, ...     2 numbers an entry; a key begins where the value before it ends
//! ```

use dialsm::{Error, Result, Scan, ScanBatch};

/// Entries of an iterator or of a scan. Plain memory of its owner; it keeps nothing open. One thread at a time.
#[derive(Default)]
pub struct Entries {
    own: Vec<u8>,
    ends: Vec<[usize; 2]>,
    /// What a scan gave, in place of the two above, where `is_scanned` says so.
    scanned: ScanBatch,
    is_scanned: bool,
}

impl Entries {
    /// Takes all entries out and keeps the memory.
    pub fn clear(&mut self) {
        self.own.clear();
        self.scanned.clear();
        self.ends.clear();
        self.is_scanned = false;
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.ends().len() / 2
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ends().is_empty()
    }

    /// Keys and values, end to end.
    #[inline]
    pub fn data(&self) -> &[u8] {
        if self.is_scanned { self.scanned.data() } else { &self.own }
    }

    /// Where each key and each value ends.
    #[inline]
    pub fn ends(&self) -> &[usize] {
        if self.is_scanned { self.scanned.ends() } else { &self.ends }.as_flattened()
    }

    /// Bytes of all keys and values.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.data().len()
    }

    /// Key number `at`, if there is one.
    pub fn key(&self, at: usize) -> Option<&[u8]> {
        self.part(at.checked_mul(2)?)
    }

    /// Value number `at`, if there is one.
    pub fn value(&self, at: usize) -> Option<&[u8]> {
        self.part(at.checked_mul(2)?.checked_add(1)?)
    }

    fn part(&self, place: usize) -> Option<&[u8]> {
        let ends = self.ends();
        let end = *ends.get(place)?;
        let start = if place == 0 { 0 } else { ends[place - 1] };
        self.data().get(start..end)
    }

    #[inline]
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let out_of_memory = |_| Error::out_of_memory("entries");
        self.own.try_reserve(key.len() + value.len()).map_err(out_of_memory)?;
        self.ends.try_reserve(1).map_err(out_of_memory)?;
        self.own.extend_from_slice(key);
        let key_end = self.own.len();
        self.own.extend_from_slice(value);
        self.ends.push([key_end, self.own.len()]);
        Ok(())
    }

    /// The next entries of `scan` in place of those that are here; none at its end.
    ///
    /// # Errors
    /// As [`Scan::fill`].
    pub fn fill(&mut self, scan: &mut Scan) -> Result<()> {
        self.clear();
        self.is_scanned = true;
        scan.fill(&mut self.scanned)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_read_back_and_a_number_out_of_range_is_nothing() {
        let mut entries = Entries::default();
        entries.push(b"k1", b"v1").unwrap();
        entries.push(b"", b"").unwrap();
        entries.push(b"k3", b"v3").unwrap();
        assert_eq!((entries.len(), entries.bytes()), (3, 8));
        assert_eq!((entries.key(0), entries.value(0)), (Some(&b"k1"[..]), Some(&b"v1"[..])));
        assert_eq!((entries.key(1), entries.value(1)), (Some(&b""[..]), Some(&b""[..])));
        assert_eq!((entries.key(2), entries.value(2)), (Some(&b"k3"[..]), Some(&b"v3"[..])));
        assert_eq!((entries.key(3), entries.value(usize::MAX), entries.key(usize::MAX)), (None, None, None));
        assert_eq!(entries.ends(), [2, 4, 4, 4, 6, 8]);
    }
}
