//! Internal keys and their one ordering.
//!
//! ```text
//! internal key = user key, then 8 bytes little-endian: (sequence number << 8) | kind
//! order        = user key ascending (by the keyspace's comparator), then trailer descending
//! ```
//! So the newest version of a key comes first, and of two entries equal in key and sequence the
//! one with the higher kind: a value before the clue that stands for it.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use crate::types::{SEQNO_MAX, SeqNo};

/// Bytes that an internal key adds to its user key.
pub const TRAILER_BYTES: usize = 8;

/// The longest user key, in bytes.
pub const KEY_BYTES_MAX: usize = 65_535;

/// The longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 30;

/// What an entry is. The numbers are part of the file formats; gaps are not to be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The key is gone.
    Delete = 1,
    /// The key is gone; the writer promises that it was put only while it was absent.
    SingleDelete = 2,
    /// All keys from this one up to the value (exclusive) are gone. In a section of its own.
    RangeDelete = 3,
    /// A merge operand with this key and sequence lies in another shard.
    ClueOperand = 4,
    /// A value with this key and sequence lies in another shard.
    ClueValue = 5,
    /// An operand for the keyspace's merge operator.
    Merge = 6,
    /// A value.
    Put = 7,
    /// A value with an expiry time before it. Reserved.
    ExpiringPut = 8,
    /// A pointer to a value in a blob file. Reserved.
    BlobPointer = 9,
    /// A merge operand redirected here from another shard.
    RedirectedOperand = 10,
    /// A value redirected here from another shard.
    RedirectedValue = 11,
}

impl Kind {
    /// Whether it stands for an entry with the same key and sequence in another shard.
    #[inline]
    pub fn is_clue(self) -> bool {
        matches!(self, Kind::ClueValue | Kind::ClueOperand)
    }

    /// Whether it is what a clue in another shard stands for.
    #[inline]
    pub fn is_redirected(self) -> bool {
        matches!(self, Kind::RedirectedValue | Kind::RedirectedOperand)
    }

    /// The kind with this number, if there is one.
    pub fn from_u8(byte: u8) -> Option<Kind> {
        Some(match byte {
            1 => Kind::Delete,
            2 => Kind::SingleDelete,
            3 => Kind::RangeDelete,
            4 => Kind::ClueOperand,
            5 => Kind::ClueValue,
            6 => Kind::Merge,
            7 => Kind::Put,
            8 => Kind::ExpiringPut,
            9 => Kind::BlobPointer,
            10 => Kind::RedirectedOperand,
            11 => Kind::RedirectedValue,
            _ => return None,
        })
    }
}

/// The kind byte that sorts before all others of the same key and sequence; only in seek targets.
pub const SEEK_KIND: u8 = 0xff;

/// Packs a trailer.
#[inline]
pub fn trailer(seqno: SeqNo, kind: u8) -> u64 {
    debug_assert!(seqno <= crate::types::SEQNO_MAX);
    (seqno << 8) | u64::from(kind)
}

/// The user key of an internal key.
///
/// # Panics
/// If `internal` is shorter than a trailer; readers of files check that first.
#[inline]
pub fn user_key(internal: &[u8]) -> &[u8] {
    &internal[..internal.len() - TRAILER_BYTES]
}

/// The trailer of an internal key.
///
/// # Panics
/// As [`user_key`].
#[inline]
pub fn trailer_of(internal: &[u8]) -> u64 {
    let at = internal.len() - TRAILER_BYTES;
    u64::from_le_bytes(internal[at..].try_into().expect("the slice is 8 bytes long"))
}

/// The sequence number of an internal key.
#[inline]
pub fn seqno_of(internal: &[u8]) -> SeqNo {
    trailer_of(internal) >> 8
}

/// The kind byte of an internal key.
#[inline]
pub fn kind_byte_of(internal: &[u8]) -> u8 {
    internal[internal.len() - TRAILER_BYTES]
}

/// Appends an internal key to `out`.
#[inline]
pub fn append_internal(out: &mut Vec<u8>, user_key: &[u8], seqno: SeqNo, kind: u8) {
    out.extend_from_slice(user_key);
    out.extend_from_slice(&trailer(seqno, kind).to_le_bytes());
}

/// An internal key as a vector of its own.
pub fn internal_key(user_key: &[u8], seqno: SeqNo, kind: u8) -> Vec<u8> {
    let mut out = Vec::with_capacity(user_key.len() + TRAILER_BYTES);
    append_internal(&mut out, user_key, seqno, kind);
    out
}

/// The key under which the end of a range tombstone bounds a table: before every entry of that user
/// key, because the tombstone ends there, and after all keys that it covers.
pub fn range_end(end: &[u8]) -> Vec<u8> {
    internal_key(end, SEQNO_MAX, Kind::RangeDelete as u8)
}

/// Whether the last key of a table is the end of a range tombstone: its user key is not in the table.
pub fn is_range_end(largest: &[u8]) -> bool {
    trailer_of(largest) == trailer(SEQNO_MAX, Kind::RangeDelete as u8)
}

/// The order a user gives to keys. Must be a total order that never changes for a given name.
///
/// Called from all threads at once, with keys and bounds that callers passed and no others; it must
/// not call into the database. If it is no total order, scans may miss keys and flushes and
/// compactions refuse to write them, which stops writes; what the log and the tables hold stays. If
/// it panics, the read or write at hand fails with `Callback`; in an insert that the log has
/// already, or in a job, writes stop until the database is opened anew.
pub trait UserComparator: Send + Sync {
    /// Stored in the database and checked at open; 1 to 255 bytes, not beginning with `dialsm.`.
    fn name(&self) -> &str;
    /// The order.
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering;
    /// Whether keys that compare equal are always the same bytes. Filters hash bytes, so a table
    /// gets one only if this holds; the default is the answer that is never wrong. Where it does not
    /// hold, a scan shows the bytes of the newest entry.
    fn equal_is_identical(&self) -> bool {
        false
    }
}

/// The order of user keys in a keyspace.
#[derive(Clone, Default)]
pub enum Comparator {
    /// Lexicographic by unsigned bytes.
    #[default]
    Bytewise,
    /// The reverse of it.
    ReverseBytewise,
    /// The user's own.
    Custom(Arc<dyn UserComparator>),
}

impl fmt::Debug for Comparator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Comparator {
    /// The name under which the order is stored.
    pub fn name(&self) -> &str {
        match self {
            Comparator::Bytewise => "dialsm.bytewise",
            Comparator::ReverseBytewise => "dialsm.reverse-bytewise",
            Comparator::Custom(c) => c.name(),
        }
    }

    /// Whether keys that compare equal are always the same bytes.
    pub fn equal_is_identical(&self) -> bool {
        match self {
            Comparator::Bytewise | Comparator::ReverseBytewise => true,
            Comparator::Custom(c) => c.equal_is_identical(),
        }
    }

    /// Compares user keys.
    #[inline]
    pub fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Comparator::Bytewise => a.cmp(b),
            Comparator::ReverseBytewise => b.cmp(a),
            Comparator::Custom(c) => c.compare(a, b),
        }
    }

    /// Compares internal keys.
    #[inline]
    pub fn compare_internal(&self, a: &[u8], b: &[u8]) -> Ordering {
        match self.compare(user_key(a), user_key(b)) {
            Ordering::Equal => trailer_of(b).cmp(&trailer_of(a)),
            unequal => unequal,
        }
    }

    /// A number that orders as the keys do where it differs; equal numbers decide nothing.
    /// Structures cache it to spare most comparisons their cache miss.
    #[inline]
    pub fn prefix(&self, user_key: &[u8]) -> u64 {
        match self {
            Comparator::Bytewise => key_prefix(user_key),
            Comparator::ReverseBytewise => !key_prefix(user_key),
            Comparator::Custom(_) => 0,
        }
    }
}

/// The first 8 bytes as a big-endian number, short keys padded with zeros.
#[inline]
pub fn key_prefix(user_key: &[u8]) -> u64 {
    if let Some(first) = user_key.first_chunk::<8>() {
        return u64::from_be_bytes(*first);
    }
    let mut bytes = [0u8; 8];
    bytes[..user_key.len()].copy_from_slice(user_key);
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_first_and_value_before_its_clue() {
        let c = Comparator::Bytewise;
        let put9 = internal_key(b"k", 9, Kind::Put as u8);
        let put8 = internal_key(b"k", 8, Kind::Put as u8);
        let clue9 = internal_key(b"k", 9, Kind::ClueValue as u8);
        assert_eq!(c.compare_internal(&put9, &put8), Ordering::Less);
        assert_eq!(c.compare_internal(&put9, &clue9), Ordering::Less);
        let longer = internal_key(b"k\0", 99, Kind::Put as u8);
        assert_eq!(c.compare_internal(&put8, &longer), Ordering::Less);
    }

    #[test]
    fn prefix_never_contradicts_the_order() {
        let keys: [&[u8]; 8] = [b"", b"\0", b"a", b"a\0", b"abcdefgh", b"abcdefghi", b"abcdefgi", b"\xff"];
        for c in [Comparator::Bytewise, Comparator::ReverseBytewise] {
            for a in keys {
                for b in keys {
                    match c.prefix(a).cmp(&c.prefix(b)) {
                        Ordering::Equal => {}
                        unequal => assert_eq!(unequal, c.compare(a, b), "{a:?} {b:?}"),
                    }
                }
            }
        }
    }

    #[test]
    fn every_kind_survives_its_number() {
        for byte in 0..=255u8 {
            if let Some(kind) = Kind::from_u8(byte) {
                assert_eq!(kind as u8, byte);
            }
        }
        assert_eq!((0..=255u8).filter(|b| Kind::from_u8(*b).is_some()).count(), 11);
    }
}
