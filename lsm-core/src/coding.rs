//! Integers in files: little-endian fixed width, and LEB128 varints read with bounds checked.

use crate::{Error, Result};

/// Appends `value` as a varint of 1 to 10 bytes.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes that [`put_varint`] needs.
#[inline]
pub fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Reads a varint at the front of `input`: the value and the bytes it took, or `None` if it is
/// cut off or longer than 64 bits.
#[inline]
pub fn read_varint(input: &[u8]) -> Option<(u64, usize)> {
    let first = *input.first()?;
    if first < 0x80 {
        return Some((u64::from(first), 1));
    }
    let mut value = u64::from(first & 0x7f);
    for (i, &byte) in input.iter().enumerate().take(10).skip(1) {
        if i == 9 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            return Some((value, i + 1));
        }
    }
    None
}

/// Appends a length and the bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads fields from a byte slice; running off its end is corruption, never a panic.
pub struct Reader<'a> {
    rest: &'a [u8],
    what: &'static str,
    start: usize,
}

impl<'a> Reader<'a> {
    /// A reader over `bytes`; `what` names the structure in error texts.
    pub fn new(bytes: &'a [u8], what: &'static str) -> Reader<'a> {
        Reader { rest: bytes, what, start: bytes.len() }
    }

    /// Bytes not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether all was read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// How many bytes were read so far.
    pub fn position(&self) -> usize {
        self.start - self.rest.len()
    }

    fn short(&self) -> Error {
        Error::corruption(format!("{} ends early, after {} bytes", self.what, self.start))
    }

    /// The next `n` bytes.
    ///
    /// # Errors
    /// `Corruption` if there are fewer.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(n).ok_or_else(|| self.short())?;
        self.rest = tail;
        Ok(head)
    }

    /// One byte.
    ///
    /// # Errors
    /// As [`Reader::take`].
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    /// A little-endian 16-bit number.
    ///
    /// # Errors
    /// As [`Reader::take`].
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.take(2)?.try_into().expect("2 bytes were taken")))
    }

    /// A little-endian 32-bit number.
    ///
    /// # Errors
    /// As [`Reader::take`].
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().expect("4 bytes were taken")))
    }

    /// A little-endian 64-bit number.
    ///
    /// # Errors
    /// As [`Reader::take`].
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().expect("8 bytes were taken")))
    }

    /// A varint.
    ///
    /// # Errors
    /// As [`Reader::take`]; also if it is longer than 64 bits.
    pub fn varint(&mut self) -> Result<u64> {
        let (value, n) = read_varint(self.rest).ok_or_else(|| self.short())?;
        self.rest = &self.rest[n..];
        Ok(value)
    }

    /// A length and that many bytes.
    ///
    /// # Errors
    /// As [`Reader::take`].
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let n = self.varint()?;
        self.take(usize::try_from(n).map_err(|_| self.short())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_at_every_width() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift] {
                let mut out = Vec::new();
                put_varint(&mut out, value);
                assert_eq!(out.len(), varint_len(value));
                assert_eq!(read_varint(&out), Some((value, out.len())));
                for cut in 0..out.len() {
                    assert_eq!(read_varint(&out[..cut]), None);
                }
            }
        }
        assert_eq!(read_varint(&[0xff; 10]), None);
        assert_eq!(read_varint(&[0x80; 11]), None);
    }

    #[test]
    fn reader_reports_the_short_structure() {
        let mut r = Reader::new(&[3, 1, 2], "test record");
        let err = r.bytes().expect_err("two of three bytes are there");
        assert_eq!(err.kind(), crate::ErrorKind::Corruption);
        assert!(err.message().contains("test record"));
    }
}
