//! Byte buffers that operations own while they are under way.
//!
//! A [`Buf`] is a vector whose bytes begin at an address that direct I/O accepts. It is aligned by
//! leaving out the front of a larger allocation, which needs no unsafe code and lets the allocator
//! hand out zeroed pages lazily. Bytes never move while nobody grows the buffer: moving the value
//! moves the vector's header only. The ring relies on that.

use std::ops::{Deref, DerefMut};

/// What the address of an aligned buffer is a multiple of: the largest logical block size in use.
pub const BUF_ALIGN: usize = 4096;

/// Whether bytes at this offset of a file may go past the page cache as they are. All file systems in
/// use accept this; some would accept less.
pub(crate) fn is_aligned(bytes: &[u8], offset: u64) -> bool {
    offset.is_multiple_of(BUF_ALIGN as u64)
        && bytes.len().is_multiple_of(BUF_ALIGN)
        && bytes.as_ptr().align_offset(BUF_ALIGN) == 0
}

/// An owned byte buffer, aligned unless it was made from a plain vector.
#[derive(Default)]
pub struct Buf {
    bytes: Vec<u8>,
    /// Where the buffer begins in `bytes`; what is before is padding.
    start: usize,
}

impl Buf {
    /// An empty aligned buffer with room for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Buf {
        Buf::padded(Vec::with_capacity(capacity + BUF_ALIGN - 1))
    }

    /// An aligned buffer of `len` zeros, for instance to read into.
    pub fn zeroed(len: usize) -> Buf {
        let mut buf = Buf::padded(vec![0; len + BUF_ALIGN - 1]);
        buf.bytes.truncate(buf.start + len);
        buf
    }

    fn padded(mut bytes: Vec<u8>) -> Buf {
        let start = bytes.as_ptr().align_offset(BUF_ALIGN);
        if bytes.len() < start {
            bytes.resize(start, 0);
        }
        Buf { bytes, start }
    }

    /// How long it may get without moving.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity() - self.start
    }

    /// Whether its address is a multiple of [`BUF_ALIGN`].
    pub fn is_aligned(&self) -> bool {
        self.as_ptr().align_offset(BUF_ALIGN) == 0
    }

    /// Appends. Past the capacity everything moves to a larger aligned allocation.
    pub fn extend_from_slice(&mut self, more: &[u8]) {
        if self.capacity() - self.len() < more.len() {
            let mut larger = Buf::with_capacity((self.len() + more.len()).max(2 * self.len()));
            larger.bytes.extend_from_slice(self);
            *self = larger;
        }
        self.bytes.extend_from_slice(more);
    }

    /// Makes it empty; the allocation stays.
    pub fn clear(&mut self) {
        self.bytes.truncate(self.start);
    }

    /// Cuts it to `len` bytes; no effect if it is shorter.
    pub fn truncate(&mut self, len: usize) {
        self.bytes.truncate(self.start.saturating_add(len));
    }

    /// The bytes as a vector; copied if the buffer was aligned by padding.
    pub fn into_vec(mut self) -> Vec<u8> {
        if self.start > 0 {
            self.bytes.drain(..self.start);
        }
        self.bytes
    }
}

/// Takes the vector as it is: no copy, and no alignment.
impl From<Vec<u8>> for Buf {
    fn from(bytes: Vec<u8>) -> Buf {
        Buf { bytes, start: 0 }
    }
}

impl Deref for Buf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }
}

/// Shows the length only: what it holds may be keys and values.
impl std::fmt::Debug for Buf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buf({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_stay_so_as_they_grow() {
        for capacity in [0, 1, 100, BUF_ALIGN, BUF_ALIGN + 1, 100_000] {
            let mut buf = Buf::with_capacity(capacity);
            assert!(buf.is_empty() && buf.is_aligned() && buf.capacity() >= capacity);
            let address = buf.as_ptr();
            buf.extend_from_slice(&vec![7; capacity]);
            assert_eq!(buf.as_ptr(), address, "it moved within its capacity");
            buf.extend_from_slice(&[8; 5000]);
            assert!(buf.is_aligned());
            assert_eq!(buf.len(), capacity + 5000);
            assert!(buf[..capacity].iter().all(|b| *b == 7) && buf[capacity..] == [8; 5000]);
            buf.truncate(3);
            assert_eq!(buf.len(), 3);
            buf.clear();
            assert!(buf.is_empty() && buf.is_aligned());
        }
        let zeros = Buf::zeroed(5001);
        assert!(zeros.is_aligned() && zeros.len() == 5001 && zeros.iter().all(|b| *b == 0));
        assert_eq!(zeros.into_vec().len(), 5001);
        assert_eq!(Buf::from(vec![1, 2]).into_vec(), [1, 2]);
        assert_eq!(format!("{:?}", Buf::from(vec![1, 2])), "Buf(2 bytes)");
    }
}
