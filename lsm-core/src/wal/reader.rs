//! Reads one log segment, record by record; what the findings mean is for `replay` to judge.
//!
//! At a position stands a record, the end, or damage. The end is told from damage by its bytes:
//! the file ends there, or a zero mark stands there, or an intact record of another segment (the
//! former life of a recycled file). Everything else that is not an intact record of this segment
//! is damage, which may be a torn write.
//!
//! Reading keeps to a window of the file; only a record longer than it gets a buffer of its own,
//! after its checksum was found right. Searching on behind damage checks no more bytes than a
//! fixed multiple of the segment's length, so that bytes made to look like records cannot make
//! it hang.

use std::path::Path;
use std::sync::Arc;

use dialsm_io::File;

use super::format::{
    KIND_OPS, KIND_START, LogPosition, RECORD_ALIGN, RECORD_HEADER_BYTES, RECORD_MAGIC, RecordHeader,
    START_PAYLOAD_BYTES, START_PAYLOAD_BYTES_MAX, SegmentStart, seed,
};
use super::window::{CHUNK_BYTES, Window};
use crate::format::{FileHeader, FileKind, HEADER_BYTES, HEADER_BYTES_MAX};
use crate::types::{DbId, FileNumber, SEQNO_MAX};
use crate::{Error, ErrorKind, Result, checksum};

/// What ends a segment without being damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndKind {
    /// The file ends.
    EndOfFile,
    /// Zeros: the mark behind the last record, or space never written.
    Zeros,
    /// A record of the recycled file's former life.
    Stale,
}

/// What stands at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// An intact record of this segment, and the position behind it.
    Record(RecordHeader, u64),
    /// The end.
    End(EndKind),
    /// Neither; why.
    Damage(&'static str),
}

/// What a segment's front says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Front {
    /// The start record, and the position of the first record after it.
    Start(SegmentStart, u64),
    /// There is none: never written in full, or damaged.
    Unreadable(&'static str),
}

/// Reads a segment. The tools use [`SegmentReader::open`] and [`SegmentReader::next_item`].
pub struct SegmentReader {
    window: Window,
    number: FileNumber,
    seed: u32,
    /// The payload of the last record that was longer than the window.
    long: Vec<u8>,
    /// Bytes that searching may still run through a checksum.
    search_budget: u64,
    dump_at: Option<u64>,
}

/// One step of a dump.
pub enum DumpItem<'a> {
    /// A record; the start record is the first one.
    Record {
        /// Where it starts.
        offset: u64,
        /// What stands before the payload.
        header: RecordHeader,
        /// The payload.
        payload: &'a [u8],
    },
    /// Bytes that are no record.
    Damage {
        /// Where they start.
        offset: u64,
        /// What is wrong.
        reason: &'static str,
        /// Where the next intact record starts, from which the dump goes on.
        resumes: Option<u64>,
    },
    /// The end; comes last, unless damage without a later record did.
    End {
        /// Where.
        offset: u64,
        /// By what.
        kind: EndKind,
    },
}

impl SegmentReader {
    /// Opens a segment for a dump, taking database and number from its own header.
    ///
    /// # Errors
    /// As [`FileHeader::decode`]; those of the file.
    pub fn open(file: Arc<dyn File>) -> Result<(SegmentReader, FileHeader)> {
        let path = file.path().to_path_buf();
        let mut window = Window::new(file)?;
        let (header, content) = FileHeader::decode(window.view(0, HEADER_BYTES_MAX)?, FileKind::Log)
            .map_err(|e| e.at_path(&path))?;
        let mut reader = SegmentReader::over(window, &header.db_id, header.number);
        reader.dump_at = Some(content as u64);
        Ok((reader, header))
    }

    /// A reader for the segment that its name says it is.
    pub(crate) fn for_replay(file: Arc<dyn File>, db_id: &DbId, number: FileNumber) -> Result<SegmentReader> {
        Ok(SegmentReader::over(Window::new(file)?, db_id, number))
    }

    fn over(window: Window, db_id: &DbId, number: FileNumber) -> SegmentReader {
        let search_budget = 4 * window.file_bytes() + (1 << 20);
        SegmentReader { window, number, seed: seed(db_id), long: Vec::new(), search_budget, dump_at: None }
    }

    pub(crate) fn file_bytes(&self) -> u64 {
        self.window.file_bytes()
    }

    pub(crate) fn path(&self) -> &Path {
        self.window.path()
    }

    /// Reads the file header and the start record.
    ///
    /// A header that was never written, torn, or left from a former life is `Unreadable`; only
    /// one that is intact and says that the file is not ours to read is an error.
    pub(crate) fn front(&mut self, db_id: &DbId) -> Result<Front> {
        let decoded = FileHeader::decode(self.window.view(0, HEADER_BYTES_MAX)?, FileKind::Log);
        let (header, content) = match decoded {
            Ok(decoded) => decoded,
            // Wrong magic at offset 0 may be a file never written; any other is another's file.
            Err(e) if e.kind() == ErrorKind::Corruption || e.offset() == Some(0) => {
                return Ok(Front::Unreadable("its file header is missing or damaged"));
            }
            Err(e) => return Err(e.at_path(self.path())),
        };
        if header.db_id != *db_id {
            let foreign = header.expect(db_id, self.number);
            return Err(foreign.expect_err("the ids differ").at_path(self.path()));
        }
        if header.number != self.number {
            return Ok(Front::Unreadable("its file header has another segment's number"));
        }
        let at = content as u64;
        match self.read(at)? {
            _ if !at.is_multiple_of(RECORD_ALIGN) => {
                Ok(Front::Unreadable("its file header has an odd length"))
            }
            Found::Record(record, end) if record.kind == KIND_START => {
                Ok(Front::Start(self.decode_start(at, &record)?, end))
            }
            _ => Ok(Front::Unreadable("its start record is missing or damaged")),
        }
    }

    pub(crate) fn decode_start(&mut self, at: u64, record: &RecordHeader) -> Result<SegmentStart> {
        let decoded = SegmentStart::decode(record, self.payload(at, record)?);
        decoded.map_err(|e| e.at_offset(at).at_path(self.path()))
    }

    /// What stands at `at`.
    ///
    /// # Errors
    /// Those of the file. `NewerFormat` for an intact record that this build must not skip.
    pub(crate) fn read(&mut self, at: u64) -> Result<Found> {
        let head = self.window.view(at, RECORD_HEADER_BYTES)?;
        if head.is_empty() {
            return Ok(Found::End(EndKind::EndOfFile));
        }
        if head[..head.len().min(8)].iter().all(|byte| *byte == 0) {
            return Ok(Found::End(EndKind::Zeros));
        }
        let Some(head) = head.first_chunk::<RECORD_HEADER_BYTES>() else {
            return Ok(Found::Damage("a record's header is cut off"));
        };
        let head = *head;
        let Some(header) = RecordHeader::decode(&head) else {
            return Ok(Found::Damage("no record starts here"));
        };
        let Some(end) = self.checked_end(at, &head, &header)? else {
            return Ok(Found::Damage("a record is cut off or fails its checksum"));
        };
        if header.segment != self.number {
            return Ok(Found::End(EndKind::Stale));
        }
        self.check_meaning(at, &header)?;
        Ok(Found::Record(header, end))
    }

    /// The end of the record at `at` if all of it is there and its checksum is right.
    fn checked_end(
        &mut self,
        at: u64,
        head: &[u8; RECORD_HEADER_BYTES],
        header: &RecordHeader,
    ) -> Result<Option<u64>> {
        let payload_at = at + RECORD_HEADER_BYTES as u64;
        let Some(end) = header.end(at) else { return Ok(None) };
        if header.payload_bytes > self.file_bytes().saturating_sub(payload_at) {
            return Ok(None);
        }
        let crc = checksum::extend(self.seed, &head[4..]);
        let crc = self.window.extend_crc(crc, payload_at, header.payload_bytes)?;
        Ok(crc.filter(|crc| checksum::mask(*crc) == header.crc).map(|_| end))
    }

    /// Refuses what an intact record of ours can say only if a newer build, or a bug, wrote it.
    fn check_meaning(&self, at: u64, header: &RecordHeader) -> Result<()> {
        let known = matches!(header.kind, KIND_START | KIND_OPS);
        if (!known && header.kind.is_multiple_of(2)) || !header.flags_known() {
            let text = format!("a log record of kind {} with flags {:#x}", header.kind, header.flags);
            return Err(Error::new(ErrorKind::NewerFormat, text).at_offset(at).at_path(self.path()));
        }
        let here = LogPosition { segment: self.number, offset: at };
        let last = header.first_seqno.saturating_add(u64::from(header.count)).saturating_sub(1);
        let start_bytes = START_PAYLOAD_BYTES as u64..=START_PAYLOAD_BYTES_MAX;
        let nonsense = last > SEQNO_MAX
            || header.synced > here
            || (header.kind == KIND_OPS && header.count == 0)
            || (header.kind == KIND_START && !start_bytes.contains(&header.payload_bytes));
        if nonsense {
            let text = "a log record is intact, but says what cannot be";
            return Err(Error::corruption(text).at_offset(at).at_path(self.path()));
        }
        Ok(())
    }

    /// The payload of a record that [`SegmentReader::read`] found at `at`.
    pub(crate) fn payload(&mut self, at: u64, header: &RecordHeader) -> Result<&[u8]> {
        let (from, bytes) = (at + RECORD_HEADER_BYTES as u64, header.payload_bytes as usize);
        if bytes <= CHUNK_BYTES {
            self.long = Vec::new();
            return self.window.exact(from, bytes);
        }
        self.long.resize(bytes, 0);
        self.window.read_past(&mut self.long, from)?;
        Ok(&self.long)
    }

    /// The first intact record of this segment at or after `from`.
    ///
    /// # Errors
    /// Those of the file; `Corruption` when the search budget is spent; as [`SegmentReader::read`].
    pub(crate) fn search(&mut self, from: u64) -> Result<Option<(u64, RecordHeader, u64)>> {
        let mut at = from.next_multiple_of(RECORD_ALIGN);
        while let Some(candidate) = self.next_candidate(at)? {
            match self.read(candidate)? {
                Found::Record(header, end) => return Ok(Some((candidate, header, end))),
                _ => at = candidate + RECORD_ALIGN,
            }
        }
        Ok(None)
    }

    /// The first place at or after `from` whose bytes look like the front of a record of this
    /// segment that fits into the file.
    fn next_candidate(&mut self, mut from: u64) -> Result<Option<u64>> {
        let (number, file_bytes) = (self.number, self.window.file_bytes());
        loop {
            let view = self.window.view(from, CHUNK_BYTES)?;
            if view.len() < RECORD_HEADER_BYTES {
                return Ok(None);
            }
            let mut places = (0..=view.len() - RECORD_HEADER_BYTES).step_by(RECORD_ALIGN as usize);
            let fits = |at: usize| {
                if view[at + 5..at + 8] != RECORD_MAGIC {
                    return None;
                }
                let header = RecordHeader::decode(view[at..].first_chunk()?)?;
                let payload_at = from + (at + RECORD_HEADER_BYTES) as u64;
                let fits = header.segment == number && header.payload_bytes <= file_bytes - payload_at;
                fits.then_some((from + at as u64, header.payload_bytes))
            };
            let Some((at, payload_bytes)) = places.find_map(fits) else {
                from +=
                    (view.len() - RECORD_HEADER_BYTES) as u64 / RECORD_ALIGN * RECORD_ALIGN + RECORD_ALIGN;
                continue;
            };
            let cost = payload_bytes + RECORD_HEADER_BYTES as u64;
            match self.search_budget.checked_sub(cost) {
                Some(left) => self.search_budget = left,
                None => {
                    let text = "too many bytes that look like records, but are not, behind damage";
                    return Err(Error::corruption(text).at_offset(at).at_path(self.path()));
                }
            }
            return Ok(Some(at));
        }
    }

    /// The next step of a dump; `None` behind the last.
    ///
    /// # Errors
    /// Those of the file; for an intact record that means nothing to this build, `NewerFormat` or
    /// `Corruption`. The dump ends with it.
    pub fn next_item(&mut self) -> Result<Option<DumpItem<'_>>> {
        let Some(offset) = self.dump_at.take() else { return Ok(None) };
        debug_assert!(offset >= HEADER_BYTES as u64);
        match self.read(offset)? {
            Found::Record(header, end) => {
                self.dump_at = Some(end);
                let payload = self.payload(offset, &header)?;
                Ok(Some(DumpItem::Record { offset, header, payload }))
            }
            found => {
                let resumes = self.search(offset + 1)?.map(|(at, _, _)| at);
                self.dump_at = resumes;
                Ok(Some(match found {
                    Found::End(kind) if resumes.is_none() => DumpItem::End { offset, kind },
                    Found::Damage(reason) => DumpItem::Damage { offset, reason, resumes },
                    _ => DumpItem::Damage { offset, reason: "records follow behind an end", resumes },
                }))
            }
        }
    }
}
