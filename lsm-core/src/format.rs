//! The header that tables, log segments, manifests and the files about shard directories start with. (`CURRENT` and OPTIONS are text and say
//! their version as text; `LOCK` is empty.)
//!
//! ```text
//! offset size field
//!      0    8 magic             "DiaLSM\r\n": shows files mangled by text-mode copies
//!      8    1 kind              1 table, 2 log segment, 3 manifest, 4 SHARD_DIRS, 5 SHARD_DIR
//!      9    1 zero
//!     10    2 format version    of this kind of file
//!     12    4 header bytes      64 + extension area; a multiple of 8
//!     16    8 ignorable bits    features a reader may not know
//!     24    8 must-know bits    features a reader has to know, or refuse the file
//!     32   16 database id
//!     48    8 file number
//!     56    4 zero
//!     60    4 masked CRC32C     over bytes 0..60 and the extension area
//!     64    n extension area    (tag u16, length u16, bytes)*: key id, dictionary; none yet
//! ```
//! All numbers are little-endian.

use crate::types::{DbId, FileNumber};
use crate::{Error, ErrorKind, Result, checksum};

/// Bytes of a header with an empty extension area.
pub const HEADER_BYTES: usize = 64;

/// The largest header a reader accepts.
pub const HEADER_BYTES_MAX: usize = 64 << 10;

const MAGIC: [u8; 8] = *b"DiaLSM\r\n";

/// Kinds of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FileKind {
    /// A table (SST).
    Table = 1,
    /// A segment of the commit log.
    Log = 2,
    /// A manifest.
    Manifest = 3,
    /// The list of a database's shard directories.
    ShardDirs = 4,
    /// The marker of one of them.
    ShardDir = 5,
}

impl FileKind {
    /// The newest format version this build writes and reads.
    pub fn version(self) -> u16 {
        match self {
            FileKind::Table
            | FileKind::Log
            | FileKind::Manifest
            | FileKind::ShardDirs
            | FileKind::ShardDir => 1,
        }
    }

    fn name(self) -> &'static str {
        match self {
            FileKind::Table => "table",
            FileKind::Log => "log segment",
            FileKind::Manifest => "manifest",
            FileKind::ShardDirs => "list of shard directories",
            FileKind::ShardDir => "marker of a shard directory",
        }
    }
}

/// A decoded header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHeader {
    /// What the file is.
    pub kind: FileKind,
    /// The database it belongs to.
    pub db_id: DbId,
    /// Its own number.
    pub number: FileNumber,
}

impl FileHeader {
    /// The bytes of this header, extension area empty.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0u8; HEADER_BYTES];
        out[..8].copy_from_slice(&MAGIC);
        out[8] = self.kind as u8;
        out[10..12].copy_from_slice(&self.kind.version().to_le_bytes());
        out[12..16].copy_from_slice(&(HEADER_BYTES as u32).to_le_bytes());
        out[32..48].copy_from_slice(&self.db_id);
        out[48..56].copy_from_slice(&self.number.0.to_le_bytes());
        let crc = checksum::masked(&out[..60]);
        out[60..64].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes the header at the front of `bytes`, which must hold all of it; returns it and the
    /// offset at which the file's own content starts.
    ///
    /// # Errors
    /// `Foreign` if the magic or kind is not ours, `NewerFormat` if the version or a must-know bit
    /// is unknown, `Corruption` if the bytes are short or the checksum is wrong.
    pub fn decode(bytes: &[u8], kind: FileKind) -> Result<(FileHeader, usize)> {
        if bytes.len() < 8 || bytes[..8] != MAGIC {
            let kind_name = kind.name();
            return Err(match bytes.len() {
                0..8 => Error::corruption(format!("the {kind_name}'s header is cut off")),
                _ => Error::new(ErrorKind::Foreign, format!("not a DiaLSM {kind_name}: wrong magic")),
            }
            .at_offset(0));
        }
        if bytes.len() < HEADER_BYTES {
            return Err(Error::corruption(format!("the {}'s header is cut off", kind.name())).at_offset(0));
        }
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let header_bytes = u32_at(12) as usize;
        if !(HEADER_BYTES..=HEADER_BYTES_MAX).contains(&header_bytes) || bytes.len() < header_bytes {
            return Err(
                Error::corruption(format!("a {} header of {header_bytes} bytes", kind.name())).at_offset(12)
            );
        }
        let crc = checksum::extend(checksum::extend(0, &bytes[..60]), &bytes[HEADER_BYTES..header_bytes]);
        if checksum::mask(crc) != u32_at(60) {
            return Err(
                Error::corruption(format!("the {}'s header fails its checksum", kind.name())).at_offset(60)
            );
        }
        if bytes[8] != kind as u8 {
            return Err(Error::new(
                ErrorKind::Foreign,
                format!("file kind {} where a {} belongs", bytes[8], kind.name()),
            )
            .at_offset(8));
        }
        if u16_at(10) == 0 || u16_at(10) > kind.version() {
            let text =
                format!("{} format {} (this build knows up to {})", kind.name(), u16_at(10), kind.version());
            return Err(Error::new(ErrorKind::NewerFormat, text).at_offset(10));
        }
        if u64_at(24) != 0 {
            let text = format!(
                "the {} needs features {:#x}, which this build does not know",
                kind.name(),
                u64_at(24)
            );
            return Err(Error::new(ErrorKind::NewerFormat, text).at_offset(24));
        }
        let db_id = bytes[32..48].try_into().expect("16 bytes");
        Ok((FileHeader { kind, db_id, number: FileNumber(u64_at(48)) }, header_bytes))
    }

    /// Fails with `Foreign` unless the header names this database and this number.
    ///
    /// # Errors
    /// As said.
    pub fn expect(&self, db_id: &DbId, number: FileNumber) -> Result<()> {
        if self.db_id != *db_id {
            let text = format!("the {} belongs to another database", self.kind.name());
            return Err(Error::new(ErrorKind::Foreign, text).at_offset(32));
        }
        if self.number != number {
            let text = format!(
                "the {} calls itself number {}, its name says {number}",
                self.kind.name(),
                self.number
            );
            return Err(Error::new(ErrorKind::Foreign, text).at_offset(48));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_every_damage_is_named() {
        let header = FileHeader { kind: FileKind::Table, db_id: [7; 16], number: FileNumber(42) };
        let bytes = header.encode();
        assert_eq!(FileHeader::decode(&bytes, FileKind::Table).expect("intact"), (header, HEADER_BYTES));
        for at in 0..HEADER_BYTES {
            for bit in 0..8 {
                let mut bad = bytes;
                bad[at] ^= 1 << bit;
                assert!(FileHeader::decode(&bad, FileKind::Table).is_err(), "bit {bit} of byte {at}");
            }
        }
        for cut in 0..HEADER_BYTES {
            let err = FileHeader::decode(&bytes[..cut], FileKind::Table).expect_err("cut off");
            assert_eq!(err.kind(), ErrorKind::Corruption);
        }
        let err = FileHeader::decode(&bytes, FileKind::Log).expect_err("wrong kind");
        assert_eq!(err.kind(), ErrorKind::Foreign);
        assert!(header.expect(&[8; 16], FileNumber(42)).is_err());
        assert!(header.expect(&[7; 16], FileNumber(43)).is_err());
    }
}
