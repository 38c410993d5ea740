//! A reference-counted slice: values that outlive the call that read them, without a lifetime.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Immutable bytes that own, or share, what they point into. Cheap to clone; Send and Sync.
///
/// A slice taken from a table block keeps that block (some KiB) in memory until it is dropped.
#[derive(Clone)]
pub struct Slice(Repr);

const INLINE_MAX: usize = 30;

#[derive(Clone)]
enum Repr {
    Inline { len: u8, bytes: [u8; INLINE_MAX] },
    Shared { owner: Arc<[u8]>, start: u32, len: u32 },
}

impl Slice {
    /// Copies `bytes`; short ones need no allocation.
    pub fn copy_of(bytes: &[u8]) -> Slice {
        if bytes.len() <= INLINE_MAX {
            let mut inline = [0; INLINE_MAX];
            inline[..bytes.len()].copy_from_slice(bytes);
            return Slice(Repr::Inline { len: bytes.len() as u8, bytes: inline });
        }
        Slice(Repr::Shared { owner: Arc::from(bytes), start: 0, len: bytes.len() as u32 })
    }

    /// The range `start..start + len` of `owner`, shared.
    ///
    /// # Panics
    /// If the range is not inside `owner`, or `owner` is larger than 4 GiB.
    pub fn shared(owner: Arc<[u8]>, start: usize, len: usize) -> Slice {
        assert!(start.checked_add(len).is_some_and(|end| end <= owner.len() && u32::try_from(end).is_ok()));
        Slice(Repr::Shared { owner, start: start as u32, len: len as u32 })
    }
}

impl Deref for Slice {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Shared { owner, start, len } => &owner[*start as usize..(*start + *len) as usize],
        }
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Slice {
    fn eq(&self, other: &Slice) -> bool {
        **self == **other
    }
}
impl Eq for Slice {}
impl PartialEq<[u8]> for Slice {
    fn eq(&self, other: &[u8]) -> bool {
        **self == *other
    }
}
impl PartialEq<&[u8]> for Slice {
    fn eq(&self, other: &&[u8]) -> bool {
        **self == **other
    }
}

impl fmt::Debug for Slice {
    /// Shows the length only: keys and values stay out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slice({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_long_and_shared_read_back() {
        for n in [0, 1, INLINE_MAX, INLINE_MAX + 1, 5000] {
            let bytes: Vec<u8> = (0..n).map(|i| i as u8).collect();
            assert_eq!(Slice::copy_of(&bytes), bytes[..]);
        }
        let owner: Arc<[u8]> = Arc::from(&b"0123456789"[..]);
        assert_eq!(Slice::shared(owner.clone(), 3, 4), b"3456"[..]);
        assert_eq!(Slice::shared(owner, 10, 0), b""[..]);
    }
}
