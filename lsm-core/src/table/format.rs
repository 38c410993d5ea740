//! The bytes of a table file.
//!
//! ```text
//! file header            64 bytes or more, `crate::format`, kind Table
//! data blocks            of section `values`; in file order = in key order
//! section blocks         of `clues` and `range tombstones`, when a table has them; same block format
//! filter block           one, over the user keys of values and clues        (absent: no filter)
//! index partitions       of each section: sealed blocks, separator -> handle of a data block
//! top-level indexes      of each section: one block, last separator -> handle of a partition
//! properties block       names and values
//! footer                 128 bytes
//!
//! sealed block = payload, then 5 bytes: codec u8 | masked CRC32C u32 over payload and codec
//!   codec 0  payload is the raw block
//!   codec 1  payload is raw length u32, then LZ4 (block format)
//!   codec 2  payload is raw length u32, then zstd
//! handle of a block: offset of its payload, length of its payload (trailer not counted)
//!
//! footer
//! offset size field
//!      0   16 values             handle of the section's top-level index: offset u64, length u64
//!     16   16 clues              the same; offset and length 0: the table has no such section
//!     32   16 range tombstones   the same
//!     48   16 filter             handle of the filter block, or zeros
//!     64   16 properties         handle of the properties block
//!     80    8 file bytes         of the whole file, footer included
//!     88   24 zero
//!    112    4 table format       1
//!    116    4 masked CRC32C      over bytes 0..116
//!    120    8 magic              "DiaTable"
//! ```
//! All numbers are little-endian. Every byte of the file is covered by one of the checksums.

use std::ops::Range;
use std::sync::Arc;

use dialsm_io::File;

use super::block::Block;
use crate::coding::{self, Reader};
use crate::{Error, ErrorKind, Result, checksum};

/// The table format that this build writes.
pub const TABLE_FORMAT: u32 = 1;

/// Bytes of the footer.
pub const FOOTER_BYTES: usize = 128;

/// Bytes that follow the payload of every block.
pub const BLOCK_TRAILER_BYTES: usize = 5;

/// The longest payload, raw or stored: a value and key of the largest size, and slack.
pub(crate) const BLOCK_BYTES_MAX: u64 = (1 << 30) + (1 << 20);

const MAGIC: [u8; 8] = *b"DiaTable";

/// Where a block lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handle {
    /// Offset of the payload in the file.
    pub offset: u64,
    /// Bytes of the payload, trailer not counted.
    pub len: u64,
}

impl Handle {
    /// Whether it stands for "none".
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The offset after the block's trailer. Only of a checked handle.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.len + BLOCK_TRAILER_BYTES as u64
    }

    /// Fails unless the block and its trailer lie inside `within`.
    pub(crate) fn check(&self, within: &Range<u64>, what: &str) -> Result<()> {
        let end = self.offset.checked_add(self.len).and_then(|e| e.checked_add(BLOCK_TRAILER_BYTES as u64));
        if self.offset >= within.start && end.is_some_and(|end| end <= within.end) {
            return Ok(());
        }
        let text =
            format!("the handle of {what} points outside the table ({} bytes at {})", self.len, self.offset);
        Err(Error::corruption(text))
    }

    /// Appends it as an index entry's value.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        coding::put_varint(out, self.offset);
        coding::put_varint(out, self.len);
    }

    /// Reads an index entry's value.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Handle> {
        let mut r = Reader::new(bytes, "a block handle");
        let handle = Handle { offset: r.varint()?, len: r.varint()? };
        match r.is_empty() {
            true => Ok(handle),
            false => Err(Error::corruption("a block handle has bytes left over")),
        }
    }
}

/// The decoded footer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footer {
    /// Top-level index of the values.
    pub values: Handle,
    /// Top-level index of the clues; empty if there are none.
    pub clues: Handle,
    /// Top-level index of the range tombstones; empty if there are none.
    pub range_tombstones: Handle,
    /// The filter block; empty if there is none.
    pub filter: Handle,
    /// The properties block.
    pub properties: Handle,
    /// Bytes of the whole file.
    pub file_bytes: u64,
}

impl Footer {
    /// The footer's bytes.
    pub fn encode(&self) -> [u8; FOOTER_BYTES] {
        let mut out = [0u8; FOOTER_BYTES];
        for (slot, handle) in out[..80].chunks_exact_mut(16).zip(self.handles()) {
            slot[..8].copy_from_slice(&handle.offset.to_le_bytes());
            slot[8..].copy_from_slice(&handle.len.to_le_bytes());
        }
        out[80..88].copy_from_slice(&self.file_bytes.to_le_bytes());
        out[112..116].copy_from_slice(&TABLE_FORMAT.to_le_bytes());
        let crc = checksum::masked(&out[..116]);
        out[116..120].copy_from_slice(&crc.to_le_bytes());
        out[120..].copy_from_slice(&MAGIC);
        out
    }

    fn handles(&self) -> [Handle; 5] {
        [self.values, self.clues, self.range_tombstones, self.filter, self.properties]
    }

    /// Decodes the last [`FOOTER_BYTES`] of a file of `file_bytes` bytes whose blocks start at
    /// `content_start`, and checks every handle against them.
    ///
    /// # Errors
    /// `Corruption` if magic, checksum, length or a handle is wrong; `NewerFormat` if the table
    /// format is unknown.
    pub fn decode(bytes: &[u8; FOOTER_BYTES], content_start: u64, file_bytes: u64) -> Result<Footer> {
        let at = file_bytes.saturating_sub(FOOTER_BYTES as u64);
        if bytes[120..] != MAGIC {
            return Err(Error::corruption("the table has no footer: wrong magic").at_offset(at + 120));
        }
        let mut r = Reader::new(bytes, "the table footer");
        let mut handle = || Ok::<_, Error>(Handle { offset: r.u64()?, len: r.u64()? });
        let mut footer = Footer {
            values: handle()?,
            clues: handle()?,
            range_tombstones: handle()?,
            filter: handle()?,
            properties: handle()?,
            file_bytes: 0,
        };
        footer.file_bytes = r.u64()?;
        let reserved = r.take(24)?;
        let (format, crc) = (r.u32()?, r.u32()?);
        if crc != checksum::masked(&bytes[..116]) {
            return Err(Error::corruption("the table footer fails its checksum").at_offset(at + 116));
        }
        if format != TABLE_FORMAT || reserved.iter().any(|b| *b != 0) {
            let text = format!("table format {format} (this build knows {TABLE_FORMAT})");
            return Err(Error::new(ErrorKind::NewerFormat, text).at_offset(at + 112));
        }
        if footer.file_bytes != file_bytes {
            let text = format!("the table has {file_bytes} bytes, its footer says {}", footer.file_bytes);
            return Err(Error::corruption(text).at_offset(at + 80));
        }
        let names = ["the values index", "the clues index", "the range tombstones index", "the filter"];
        for (i, handle) in footer.handles().iter().enumerate() {
            if i == 4 || !handle.is_empty() {
                let name = names.get(i).unwrap_or(&"the properties");
                handle.check(&(content_start..at), name).map_err(|e| e.at_offset(at + 16 * i as u64))?;
            }
        }
        Ok(footer)
    }
}

/// How blocks are compressed. The numbers are part of the format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Compression {
    /// Not at all.
    None = 0,
    /// LZ4: saves about half on text, and decompresses at memory speed.
    #[default]
    Lz4 = 1,
    /// zstd at its level 3; needs the cargo feature `zstd`.
    Zstd = 2,
}

impl Compression {
    /// Fails with `Unsupported` if this build lacks the codec.
    pub(crate) fn check_supported(self) -> Result<()> {
        match self {
            Compression::Zstd if !cfg!(feature = "zstd") => {
                Err(Error::new(ErrorKind::Unsupported, "this build has no zstd"))
            }
            _ => Ok(()),
        }
    }
}

/// Compresses `raw` into `out` (raw length first). Returns the length of the payload there, or
/// `None` if that would not save an eighth: the block is then stored raw.
pub(crate) fn compress(raw: &[u8], how: Compression, out: &mut Vec<u8>) -> Result<Option<usize>> {
    let worst = match how {
        Compression::None => return Ok(None),
        Compression::Lz4 => lz4_flex::block::get_maximum_output_size(raw.len()),
        Compression::Zstd => raw.len() + raw.len() / 128 + 1024,
    };
    // Growing only, and never cleared: the buffer is reused, and zeroing it again would cost as
    // much as compressing.
    if out.len() < 4 + worst {
        out.resize(4 + worst, 0);
    }
    out[..4].copy_from_slice(&(raw.len() as u32).to_le_bytes());
    let len = match how {
        Compression::Lz4 => lz4_flex::block::compress_into(raw, &mut out[4..])
            .map_err(|e| Error::new(ErrorKind::Internal, format!("LZ4: {e}")))?,
        _ => compress_zstd(raw, &mut out[4..])?,
    };
    Ok(Some(len + 4).filter(|len| *len <= raw.len() - raw.len() / 8))
}

#[cfg(feature = "zstd")]
fn compress_zstd(raw: &[u8], out: &mut [u8]) -> Result<usize> {
    zstd::bulk::compress_to_buffer(raw, out, 3)
        .map_err(|e| Error::new(ErrorKind::Internal, format!("zstd: {e}")))
}

#[cfg(not(feature = "zstd"))]
fn compress_zstd(_raw: &[u8], _out: &mut [u8]) -> Result<usize> {
    Err(Error::new(ErrorKind::Unsupported, "this build has no zstd"))
}

#[cfg(feature = "zstd")]
fn decompress_zstd(from: &[u8], to: &mut [u8]) -> Result<usize> {
    zstd::bulk::decompress_to_buffer(from, to)
        .map_err(|e| Error::corruption(format!("a block fails to decompress (zstd): {e}")))
}

#[cfg(not(feature = "zstd"))]
fn decompress_zstd(_from: &[u8], _to: &mut [u8]) -> Result<usize> {
    Err(Error::new(ErrorKind::Unsupported, "a block is compressed with zstd, which this build has not"))
}

/// The trailer of a block whose payload comes in several parts.
pub(crate) fn block_trailer(parts: &[&[u8]], codec: Compression) -> [u8; BLOCK_TRAILER_BYTES] {
    let crc = parts.iter().fold(0, |crc, part| checksum::extend(crc, part));
    let mut out = [codec as u8; BLOCK_TRAILER_BYTES];
    let crc = checksum::mask(checksum::extend(crc, &[codec as u8]));
    out[1..].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Checks a sealed block (payload and trailer) and returns codec and payload.
pub(crate) fn unseal(sealed: &[u8], verify: bool) -> Result<(u8, &[u8])> {
    let Some((covered, crc)) = sealed.split_last_chunk::<4>() else {
        return Err(Error::corruption("a block is too short for its trailer"));
    };
    if verify && checksum::masked(covered) != u32::from_le_bytes(*crc) {
        return Err(Error::corruption(format!("a block of {} bytes fails its checksum", covered.len())));
    }
    let Some((codec, payload)) = covered.split_last() else {
        return Err(Error::corruption("a block is too short for its trailer"));
    };
    Ok((*codec, payload))
}

/// The raw length that a compressed payload claims, checked against what its codec could reach,
/// so that a false one cannot make us allocate without bound.
fn raw_len(codec: u8, payload: &[u8]) -> Result<(usize, &[u8])> {
    let mut r = Reader::new(payload, "a compressed block");
    let raw = u64::from(r.u32()?);
    let ratio_max: u64 = match codec {
        1 => 255,
        2 => 65_536,
        _ => return Err(Error::corruption(format!("a block has the unknown codec {codec}"))),
    };
    if raw > BLOCK_BYTES_MAX || raw > 64 + (r.rest().len() as u64) * ratio_max {
        return Err(Error::corruption(format!("a compressed block claims {raw} bytes")));
    }
    Ok((raw as usize, r.rest()))
}

/// Decompresses a payload of a codec other than 0 to the front of a buffer; returns it and the raw
/// length. `reuse` gives its memory if it is large enough and nobody else holds it.
fn decompress(codec: u8, payload: &[u8], reuse: Option<Arc<[u8]>>) -> Result<(Arc<[u8]>, usize)> {
    let (raw, body) = raw_len(codec, payload)?;
    let usable = |old: &mut Arc<[u8]>| old.len() >= raw && Arc::get_mut(old).is_some();
    let mut out = match reuse {
        Some(mut old) => {
            if usable(&mut old) {
                old
            } else {
                zeroed(raw)
            }
        }
        None => zeroed(raw),
    };
    let target = &mut Arc::get_mut(&mut out).expect("fresh, or found to have no other owner")[..raw];
    let written = match codec {
        1 => lz4_flex::block::decompress_into(body, target)
            .map_err(|e| Error::corruption(format!("a block fails to decompress (LZ4): {e}")))?,
        _ => decompress_zstd(body, target)?,
    };
    if written != raw {
        return Err(Error::corruption(format!("a block has {written} bytes decompressed, claims {raw}")));
    }
    Ok((out, raw))
}

/// A shared buffer in one allocation, to be read into.
pub(crate) fn zeroed(len: usize) -> Arc<[u8]> {
    std::iter::repeat_n(0u8, len).collect()
}

/// Reads exactly `buf.len()` bytes at `offset`.
pub(crate) fn read_exact(file: &dyn File, buf: &mut [u8], offset: u64) -> Result<()> {
    let n = file.read_at(buf, offset)?;
    if n == buf.len() { Ok(()) } else { Err(ends_early(file, buf.len(), n, offset)) }
}

/// Of `wanted` bytes at `offset` only `there` are.
#[cold]
pub(crate) fn ends_early(file: &dyn File, wanted: usize, there: usize, offset: u64) -> Error {
    let text = format!("the table ends early: {wanted} bytes wanted, {there} there");
    Error::corruption(text).at_offset(offset).at_path(file.path())
}

/// Reads a block by its handle, which must have been checked, straight into the memory it will
/// live in (the trailer stays behind it).
pub(crate) fn read_block(file: &dyn File, handle: Handle, verify: bool) -> Result<Block> {
    let sealed_bytes = handle.len as usize + BLOCK_TRAILER_BYTES;
    let mut sealed = zeroed(sealed_bytes);
    read_exact(file, Arc::get_mut(&mut sealed).expect("just made"), handle.offset)?;
    open_block(&sealed, 0, handle, verify, None).map_err(|e| e.at_path(file.path()))
}

/// Opens the sealed block of `handle` that starts at `start` of `owner`.
pub(crate) fn open_block(
    owner: &Arc<[u8]>,
    start: usize,
    handle: Handle,
    verify: bool,
    reuse: Option<Arc<[u8]>>,
) -> Result<Block> {
    let len = handle.len as usize;
    let inner = || {
        let (codec, payload) = unseal(&owner[start..start + len + BLOCK_TRAILER_BYTES], verify)?;
        match codec {
            0 => Block::new(owner.clone(), start, len, handle.offset),
            _ => {
                let (raw, raw_bytes) = decompress(codec, payload, reuse)?;
                Block::new(raw, 0, raw_bytes, handle.offset)
            }
        }
    };
    inner().map_err(|e| e.at_offset(handle.offset))
}

/// Opens the sealed block of `handle` that lies in memory which others use too: into memory of its own.
pub(crate) fn copy_block(sealed: &[u8], handle: Handle, verify: bool) -> Result<Block> {
    let inner = || {
        let (codec, payload) = unseal(sealed, verify)?;
        let (raw, len) = match codec {
            0 => (Arc::from(payload), payload.len()),
            _ => decompress(codec, payload, None)?,
        };
        Block::new(raw, 0, len, handle.offset)
    };
    inner().map_err(|e| e.at_offset(handle.offset))
}
