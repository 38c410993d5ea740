//! Writes one log segment.
//!
//! Write journey, W5. One thread at a time appends (the commit leader); anybody may sync through
//! [`SegmentWriter::file`]. The bytes are in `format`.
//!
//! Invariants
//! - `position` is the end of the last good record: after a failed append it has not moved, and
//!   nothing is ever appended again, because some bytes of the failed one may be in the file.
//! - A group costs one write call unless a part of it is large (then its bytes are not copied).

use std::sync::Arc;

use dialsm_io::File;

use super::format::{
    KIND_OPS, KIND_START, LogPosition, PrevEnd, RECORD_HEADER_BYTES, RecordHeader, SegmentStart, seed,
};
use crate::format::{FileHeader, FileKind, HEADER_BYTES};
use crate::types::{DbId, FileNumber, SEQNO_MAX, SeqNo};
use crate::{Error, ErrorKind, Result};

/// Parts up to this many bytes are gathered in the buffer; larger ones are written from where
/// they are. Also what the buffer may grow to.
const GATHER_BYTES_MAX: usize = 1 << 20;

/// Zeros that keep stale bytes of a recycled file apart from the last record.
const END_MARK: [u8; 8] = [0; 8];

/// The open end of the log.
pub struct SegmentWriter {
    file: Arc<dyn File>,
    number: FileNumber,
    seed: u32,
    position: u64,
    /// The least sequence number the next record may have.
    next_seqno: SeqNo,
    /// Bytes of a former life lie below this offset.
    stale_end: u64,
    written_bytes: u64,
    buffer: Vec<u8>,
    failed: bool,
}

impl SegmentWriter {
    /// Starts a segment in `file`: a new one, or a retired segment of this opening that was
    /// renamed to its new name. Its header is with the kernel when this returns, not durable.
    ///
    /// # Errors
    /// Those of the file; `Internal` if `prev` is not an older segment. The file is of no use
    /// after one.
    pub fn create(
        file: Arc<dyn File>,
        db_id: &DbId,
        number: FileNumber,
        prev: Option<PrevEnd>,
        first_seqno: SeqNo,
    ) -> Result<SegmentWriter> {
        if prev.is_some_and(|p| p.position.segment >= number) {
            let text = format!("segment {number} would follow one that is not older");
            return Err(Error::new(ErrorKind::Internal, text).at_path(file.path()));
        }
        let stale_end = file.len()?;
        let mut writer = SegmentWriter {
            file,
            number,
            seed: seed(db_id),
            position: HEADER_BYTES as u64,
            next_seqno: first_seqno,
            stale_end,
            written_bytes: 0,
            buffer: FileHeader { kind: FileKind::Log, db_id: *db_id, number }.encode().to_vec(),
            failed: false,
        };
        let start = SegmentStart { previous: prev, first_seqno };
        let header = RecordHeader {
            crc: 0,
            kind: KIND_START,
            payload_bytes: 0,
            segment: number,
            first_seqno,
            count: 0,
            flags: 0,
            synced: start.vouched(),
        };
        writer.write(0, header, &[&start.encode()])?;
        Ok(writer)
    }

    /// Sets aside space up to `bytes` from the start of the file, so that appends need not ask
    /// the file system for it one by one.
    ///
    /// # Errors
    /// `NoSpace`. The segment can be used on.
    pub fn preallocate(&self, bytes: u64) -> Result<()> {
        self.file.allocate(0, bytes)
    }

    /// Appends one group: the concatenation of `payload_parts`, holding `count` operations from
    /// `first_seqno` on. `synced` is the highest position known durable. Returns the position
    /// behind the record; the bytes are with the kernel then, not durable.
    ///
    /// # Errors
    /// Those of the file, after which the segment is closed and every append is `Poisoned`.
    /// `Internal`, with nothing written, if the arguments break the log's order.
    pub fn append(
        &mut self,
        first_seqno: SeqNo,
        count: u32,
        payload_parts: &[&[u8]],
        synced: LogPosition,
    ) -> Result<LogPosition> {
        if self.failed {
            let text = "an earlier append to this log segment failed";
            return Err(Error::new(ErrorKind::Poisoned, text).at_path(self.file.path()));
        }
        self.check_order(first_seqno, count, synced)?;
        self.buffer.clear();
        let header = RecordHeader {
            crc: 0,
            kind: KIND_OPS,
            payload_bytes: 0,
            segment: self.number,
            first_seqno,
            count,
            flags: 0,
            synced,
        };
        self.write(self.position, header, payload_parts)?;
        self.next_seqno = first_seqno + u64::from(count);
        Ok(self.position())
    }

    fn check_order(&self, first_seqno: SeqNo, count: u32, synced: LogPosition) -> Result<()> {
        let last = first_seqno.saturating_add(u64::from(count)).saturating_sub(1);
        let broken = if count == 0 {
            "a log record without operations"
        } else if first_seqno < self.next_seqno || last > SEQNO_MAX {
            "a log record out of sequence"
        } else if synced > self.position() {
            "a log record that calls synced what is not written"
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::Internal, broken).at_path(self.file.path()))
    }

    /// Writes a record behind what the buffer holds already, which belongs at `offset`.
    fn write(&mut self, offset: u64, mut header: RecordHeader, parts: &[&[u8]]) -> Result<()> {
        header.payload_bytes = parts.iter().map(|part| part.len() as u64).sum();
        let start = offset + self.buffer.len() as u64;
        let end = header.end(start).ok_or_else(|| {
            Error::new(ErrorKind::TooLarge, "a log record of 2^64 bytes").at_path(self.file.path())
        })?;
        self.buffer.extend_from_slice(&header.encode(self.seed, parts));
        let outcome = self.write_parts(offset, parts, end);
        match outcome {
            Ok(()) => self.position = end,
            Err(_) => self.failed = true,
        }
        outcome
    }

    fn write_parts(&mut self, mut offset: u64, parts: &[&[u8]], end: u64) -> Result<()> {
        for part in parts {
            if self.buffer.len() + part.len() > GATHER_BYTES_MAX + RECORD_HEADER_BYTES {
                self.file.write_at(&self.buffer, offset)?;
                self.written_bytes += self.buffer.len() as u64;
                offset += self.buffer.len() as u64;
                self.buffer.clear();
            }
            if part.len() > GATHER_BYTES_MAX {
                self.file.write_at(part, offset)?;
                self.written_bytes += part.len() as u64;
                offset += part.len() as u64;
            } else {
                self.buffer.extend_from_slice(part);
            }
        }
        let written = offset + self.buffer.len() as u64;
        self.buffer.resize(self.buffer.len() + (end - written) as usize, 0);
        if end < self.stale_end {
            self.buffer.extend_from_slice(&END_MARK[..END_MARK.len().min((self.stale_end - end) as usize)]);
        }
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.file.write_at(&self.buffer, offset)?;
        self.written_bytes += self.buffer.len() as u64;
        Ok(())
    }

    /// Bytes written so far, marks that the next record overwrote included.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// The file, for syncing.
    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// The segment's number.
    pub fn number(&self) -> FileNumber {
        self.number
    }

    /// The position behind the last good record.
    pub fn position(&self) -> LogPosition {
        LogPosition { segment: self.number, offset: self.position }
    }

    /// Bytes from the start of the file to the end of the last good record.
    pub fn size(&self) -> u64 {
        self.position
    }

    /// Whether an append failed and the segment is closed.
    pub fn is_failed(&self) -> bool {
        self.failed
    }
}
