//! Bytes of a log segment.
//!
//! ```text
//! segment = file header (`crate::format`, kind log), start record, record*
//!
//! record, at a multiple of 8; little-endian
//!   offset  size  field
//!        0     4  masked CRC32C  over 4.. to the end of the payload, begun with that of the
//!                                database id, so that records of another database never pass
//!        4     1  kind           2 segment start, 4 operations; an unknown odd one is skipped,
//!                                an unknown even one refused
//!        5     3  magic          "dLR"
//!        8     8  payload bytes
//!       16     8  segment        number of the file it was written for
//!       24     8  first seqno    of its operations; for a start record: the least to expect
//!       32     4  count          of operations, each with a sequence number of its own
//!       36     4  flags          none yet; unknown ones above bit 15 are refused
//!       40     8  synced segment ) highest position known
//!       48     8  synced offset  ) durable at the time of writing
//!       56     n  payload        operations: `batch`
//!     56+n  0..7  zeros          up to the next multiple of 8
//!
//! payload of a start record (longer is legal: later fields)
//!        0     8  previous segment
//!        8     8  where it validly ends: the position behind its last good record
//!       16     8  flags          1 there is a previous one, 2 it is known synced up to its end;
//!                                unknown ones above bit 31 are refused
//! ```
//! In a recycled file 8 zero bytes follow the last record, where they fit before the old end.

use crate::types::{DbId, FileNumber, SeqNo};
use crate::{Error, ErrorKind, Result, checksum};

/// Bytes of a record before its payload.
pub const RECORD_HEADER_BYTES: usize = 56;

/// Records start at multiples of this.
pub const RECORD_ALIGN: u64 = 8;

/// Bytes of a start record's payload as this build writes it.
pub const START_PAYLOAD_BYTES: usize = 24;

/// The longest start payload a reader accepts.
pub const START_PAYLOAD_BYTES_MAX: u64 = 4096;

/// Bytes 5..8 of every record.
pub const RECORD_MAGIC: [u8; 3] = *b"dLR";

/// Kind of a segment's first record.
pub const KIND_START: u8 = 2;

/// Kind of a record of operations.
pub const KIND_OPS: u8 = 4;

const FLAGS_MUST_KNOW: u32 = 0xffff_0000;

const START_HAS_PREVIOUS: u64 = 1;
const START_PREVIOUS_SYNCED: u64 = 2;
const START_FLAGS_MUST_KNOW: u64 = 0xffff_ffff_0000_0000;

/// A place in the log. Orders as the log does; the default, (0, 0), is before everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPosition {
    /// The segment.
    pub segment: FileNumber,
    /// Bytes from the start of its file.
    pub offset: u64,
}

/// Where the segment before a new one ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrevEnd {
    /// Behind its last good record; what follows there is burnt.
    pub position: LogPosition,
    /// Whether the log is known durable up to there, the segments' names included.
    pub synced: bool,
}

/// What a segment says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentStart {
    /// The segment before, unless this is the first of a database or nothing before it counts.
    pub previous: Option<PrevEnd>,
    /// No record of this segment has a sequence number below this one.
    pub first_seqno: SeqNo,
}

impl SegmentStart {
    /// The payload of the start record.
    pub fn encode(&self) -> [u8; START_PAYLOAD_BYTES] {
        let mut out = [0; START_PAYLOAD_BYTES];
        if let Some(previous) = self.previous {
            out[..8].copy_from_slice(&previous.position.segment.0.to_le_bytes());
            out[8..16].copy_from_slice(&previous.position.offset.to_le_bytes());
            let synced = if previous.synced { START_PREVIOUS_SYNCED } else { 0 };
            out[16..24].copy_from_slice(&(START_HAS_PREVIOUS | synced).to_le_bytes());
        }
        out
    }

    /// Decodes the payload of a start record whose checksum was right.
    ///
    /// # Errors
    /// `NewerFormat` for an unknown must-know flag; `Corruption` if the previous segment is not
    /// older or the payload is short.
    pub fn decode(header: &RecordHeader, payload: &[u8]) -> Result<SegmentStart> {
        let mut r = crate::coding::Reader::new(payload, "a segment's start record");
        let position = LogPosition { segment: FileNumber(r.u64()?), offset: r.u64()? };
        let flags = r.u64()?;
        if flags & START_FLAGS_MUST_KNOW != 0 {
            return Err(Error::new(ErrorKind::NewerFormat, format!("segment start flags {flags:#x}")));
        }
        if flags & START_HAS_PREVIOUS == 0 {
            return Ok(SegmentStart { previous: None, first_seqno: header.first_seqno });
        }
        // A chain that only goes down cannot go round.
        if position.segment >= header.segment {
            let text = format!("segment {} names {} as its previous one", header.segment, position.segment);
            return Err(Error::corruption(text));
        }
        let previous = Some(PrevEnd { position, synced: flags & START_PREVIOUS_SYNCED != 0 });
        Ok(SegmentStart { previous, first_seqno: header.first_seqno })
    }

    /// The position this segment's existence proves to be durable.
    pub fn vouched(&self) -> LogPosition {
        match self.previous {
            Some(previous) if previous.synced => previous.position,
            _ => LogPosition::default(),
        }
    }
}

/// What stands before a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// The masked checksum.
    pub crc: u32,
    /// `KIND_START`, `KIND_OPS`, or one this build does not know.
    pub kind: u8,
    /// Length of the payload.
    pub payload_bytes: u64,
    /// The segment it was written for.
    pub segment: FileNumber,
    /// Sequence number of the first operation.
    pub first_seqno: SeqNo,
    /// Number of operations.
    pub count: u32,
    /// Flags.
    pub flags: u32,
    /// The highest position known durable when this was written.
    pub synced: LogPosition,
}

impl RecordHeader {
    /// The bytes of a record's header, its checksum computed over it and the payload's parts.
    /// `self.crc` is ignored.
    pub fn encode(&self, seed: u32, payload_parts: &[&[u8]]) -> [u8; RECORD_HEADER_BYTES] {
        let mut out = [0; RECORD_HEADER_BYTES];
        out[4] = self.kind;
        out[5..8].copy_from_slice(&RECORD_MAGIC);
        out[8..16].copy_from_slice(&self.payload_bytes.to_le_bytes());
        out[16..24].copy_from_slice(&self.segment.0.to_le_bytes());
        out[24..32].copy_from_slice(&self.first_seqno.to_le_bytes());
        out[32..36].copy_from_slice(&self.count.to_le_bytes());
        out[36..40].copy_from_slice(&self.flags.to_le_bytes());
        out[40..48].copy_from_slice(&self.synced.segment.0.to_le_bytes());
        out[48..56].copy_from_slice(&self.synced.offset.to_le_bytes());
        let crc = payload_parts.iter().fold(checksum::extend(seed, &out[4..]), |crc, part| {
            // An empty part would leave the value as it is; skipping spares the call.
            if part.is_empty() { crc } else { checksum::extend(crc, part) }
        });
        out[..4].copy_from_slice(&checksum::mask(crc).to_le_bytes());
        out
    }

    /// Decodes a header; `None` if the magic is not there. The checksum is not looked at.
    pub fn decode(bytes: &[u8; RECORD_HEADER_BYTES]) -> Option<RecordHeader> {
        if bytes[5..8] != RECORD_MAGIC {
            return None;
        }
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        Some(RecordHeader {
            crc: u32_at(0),
            kind: bytes[4],
            payload_bytes: u64_at(8),
            segment: FileNumber(u64_at(16)),
            first_seqno: u64_at(24),
            count: u32_at(32),
            flags: u32_at(36),
            synced: LogPosition { segment: FileNumber(u64_at(40)), offset: u64_at(48) },
        })
    }

    /// Whether the flags are ones this build may read past.
    pub fn flags_known(&self) -> bool {
        self.flags & FLAGS_MUST_KNOW == 0
    }

    /// Where the next record starts if this one stands at `offset`; `None` past 64 bits.
    pub fn end(&self, offset: u64) -> Option<u64> {
        offset
            .checked_add(RECORD_HEADER_BYTES as u64)?
            .checked_add(self.payload_bytes)?
            .checked_next_multiple_of(RECORD_ALIGN)
    }
}

/// What the checksums of a database's records begin with.
pub fn seed(db_id: &DbId) -> u32 {
    checksum::extend(0, db_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> RecordHeader {
        RecordHeader {
            crc: 0,
            kind: KIND_OPS,
            payload_bytes: 11,
            segment: FileNumber(3),
            first_seqno: 77,
            count: 2,
            flags: 0,
            synced: LogPosition { segment: FileNumber(2), offset: 4096 },
        }
    }

    #[test]
    fn header_round_trip_and_parts_are_one_payload() {
        let bytes = header().encode(seed(&[1; 16]), &[b"hello ", b"", b"world"]);
        assert_eq!(bytes, header().encode(seed(&[1; 16]), &[b"hello world"]));
        assert_ne!(bytes, header().encode(seed(&[2; 16]), &[b"hello world"]));
        let read = RecordHeader::decode(&bytes).expect("the magic is there");
        assert_eq!(RecordHeader { crc: 0, ..read }, header());
        assert_eq!(read.end(144), Some(144 + 56 + 16));
        assert_eq!(RecordHeader { payload_bytes: u64::MAX - 60, ..read }.end(8), None);
    }

    #[test]
    fn start_round_trip_and_bounds() {
        let position = LogPosition { segment: FileNumber(2), offset: 512 };
        for previous in
            [None, Some(PrevEnd { position, synced: false }), Some(PrevEnd { position, synced: true })]
        {
            let start = SegmentStart { previous, first_seqno: 77 };
            assert_eq!(SegmentStart::decode(&header(), &start.encode()).expect("well-formed"), start);
        }
        let mut bytes =
            SegmentStart { previous: Some(PrevEnd { position, synced: true }), first_seqno: 0 }.encode();
        bytes[23] = 1;
        let err = SegmentStart::decode(&header(), &bytes).expect_err("must-know flag");
        assert_eq!(err.kind(), ErrorKind::NewerFormat);
        bytes[23] = 0;
        bytes[0] = 3;
        let err = SegmentStart::decode(&header(), &bytes).expect_err("its own predecessor");
        assert_eq!(err.kind(), ErrorKind::Corruption);
    }
}
