//! Replays the log at open, and tells a torn tail from corruption.
//!
//! The chain of segments is read from its oldest one on. Where no record stands although one
//! should, at position X, the rest of the log is searched for evidence: a record or a segment
//! header that calls a position above X synced *vouches* for what is missing. Then it was durable
//! once and is lost: corruption, an error that names file and offset. Without such a witness the
//! missing bytes were never acknowledged as durable: a torn tail, and the log ends at X.
//!
//! A place counts as damaged if it holds neither a record nor an end; if an intact record of the
//! same segment follows it; if the next segment says that its predecessor ends further on; or if
//! a segment is missing or its front unreadable (X is its offset 0).
//!
//! Invariants
//! - What is applied is a prefix of the log, except under `SkipAnyCorrupted`.
//! - Sequence numbers rise from record to record without overlap; gaps are burnt groups.
//! - What a segment holds behind the end that its successor names is never applied.

use std::path::{Path, PathBuf};

use dialsm_io::Fs;

use super::chain::{self, Link, LinkState};
use super::format::{KIND_OPS, KIND_START, LogPosition, RecordHeader};
use super::reader::{Found, SegmentReader};
pub use crate::options::RecoveryMode;
use crate::types::{DbId, FileNumber, SeqNo};
use crate::{Error, Result};

/// A record of operations, as handed to the caller of [`replay`].
#[derive(Clone, Copy)]
pub struct Record<'a> {
    /// The segment it stands in.
    pub segment: FileNumber,
    /// Its offset there.
    pub offset: u64,
    /// Sequence number of its first operation.
    pub first_seqno: SeqNo,
    /// How many operations it should hold.
    pub count: u32,
    /// The operations, for [`OpIter`](crate::batch::OpIter).
    pub payload: &'a [u8],
}

/// Where and why a log ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    /// The first byte that is not part of the log any more.
    pub position: LogPosition,
    /// The file.
    pub path: PathBuf,
    /// What stands there.
    pub reason: &'static str,
}

/// The outcome of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayEnd {
    /// Behind the last good record: what the next segment names as its predecessor's end. `None`
    /// if there was no readable segment.
    pub end: Option<LogPosition>,
    /// The last sequence number, if there was a record.
    pub last_seqno: Option<SeqNo>,
    /// Set if damage ended the log; later segments, if any, were dropped.
    pub torn: Option<Torn>,
    /// Bytes of payloads applied.
    pub bytes: u64,
    /// Records applied.
    pub records: u64,
    /// Places skipped under `SkipAnyCorrupted`.
    pub skipped: u64,
}

/// Applies the log's records in order. `segments` are those found in `dir`, in any order; those
/// below `start` are not looked at, nor missed. An error of `apply` ends the replay; it gets the
/// record's file and offset unless it has some.
///
/// # Errors
/// `Corruption` for damage that `mode` does not let pass, with file and offset; `Foreign`,
/// `NewerFormat`; those of the file system and of `apply`. Some records may have been applied.
pub fn replay(
    fs: &dyn Fs,
    dir: &Path,
    segments: &[(FileNumber, PathBuf)],
    db_id: &DbId,
    mode: RecoveryMode,
    start: FileNumber,
    apply: &mut dyn FnMut(Record<'_>) -> Result<()>,
) -> Result<ReplayEnd> {
    let links = chain::build(fs, dir, segments, db_id, start)?;
    let mut replay = Replay { fs, db_id, mode, links, apply, next_seqno: 0, outcome: ReplayEnd::default() };
    for index in 0..replay.links.len() {
        if replay.segment(index)? == Go::Halt {
            break;
        }
    }
    Ok(replay.outcome)
}

struct Replay<'a> {
    fs: &'a dyn Fs,
    db_id: &'a DbId,
    mode: RecoveryMode,
    links: Vec<Link>,
    apply: &'a mut dyn FnMut(Record<'_>) -> Result<()>,
    next_seqno: SeqNo,
    outcome: ReplayEnd,
}

/// How to go on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Go {
    /// At this offset of the same segment.
    At(u64),
    /// With the next segment.
    Next,
    /// Not at all.
    Halt,
}

impl Replay<'_> {
    fn segment(&mut self, index: usize) -> Result<Go> {
        let number = self.links[index].number;
        let mut reader = self.links[index].open(self.fs, self.db_id)?;
        let (mut at, limit) = match (self.links[index].state, &mut reader) {
            (LinkState::Readable(start, content), Some(_)) => {
                let limit = self.end_named_by_successor(index);
                if limit.is_some_and(|limit| limit < content) {
                    let text = "a segment is said to end inside its own header";
                    return Err(Error::corruption(text).at_offset(0).at_path(&self.links[index].path));
                }
                self.check_seqno(start.first_seqno, index, 0)?;
                self.next_seqno = self.next_seqno.max(start.first_seqno);
                self.outcome.end = Some(LogPosition { segment: number, offset: content });
                (content, limit)
            }
            (state, reader) => {
                let reason = match state {
                    LinkState::Unreadable(reason) => reason,
                    LinkState::Empty => "the segment is empty",
                    _ => "the segment is missing",
                };
                match self.damage(index, 0, reason, reader.as_mut())? {
                    Go::At(at) => (at, None),
                    other => return Ok(other),
                }
            }
        };
        let reader = reader.as_mut().expect("without a file there is no offset to go on at");
        while limit != Some(at) {
            let found = reader.read(at)?;
            match found {
                Found::Record(header, end) if limit.is_none_or(|limit| end <= limit) => {
                    self.record(index, reader, at, &header)?;
                    self.outcome.end = Some(LogPosition { segment: number, offset: end });
                    at = end;
                }
                _ => match self.no_record(index, at, found, limit, reader)? {
                    Go::At(next) => at = next,
                    other => return Ok(other),
                },
            }
        }
        Ok(Go::Next)
    }

    /// Where segment `index` ends by the word of the next one.
    fn end_named_by_successor(&self, index: usize) -> Option<u64> {
        match self.links.get(index + 1)?.state {
            LinkState::Readable(start, _) => start
                .previous
                .map(|previous| previous.position)
                .filter(|position| position.segment == self.links[index].number)
                .map(|position| position.offset),
            _ => None,
        }
    }

    fn record(
        &mut self,
        index: usize,
        reader: &mut SegmentReader,
        at: u64,
        header: &RecordHeader,
    ) -> Result<()> {
        if header.kind == KIND_START && self.mode != RecoveryMode::SkipAnyCorrupted {
            let text = "a second start record in a segment";
            return Err(Error::corruption(text).at_offset(at).at_path(reader.path()));
        }
        if header.count > 0 {
            if self.mode == RecoveryMode::SkipAnyCorrupted && header.first_seqno < self.next_seqno {
                self.outcome.skipped += 1;
                return Ok(());
            }
            self.check_seqno(header.first_seqno, index, at)?;
            self.next_seqno = header.first_seqno + u64::from(header.count);
            self.outcome.last_seqno = Some(self.next_seqno - 1);
        }
        if header.kind != KIND_OPS {
            return Ok(());
        }
        let record = Record {
            segment: header.segment,
            offset: at,
            first_seqno: header.first_seqno,
            count: header.count,
            payload: reader.payload(at, header)?,
        };
        self.outcome.bytes += header.payload_bytes;
        self.outcome.records += 1;
        (self.apply)(record).map_err(|e| e.at_offset(at).at_path(&self.links[index].path))
    }

    fn check_seqno(&self, first: SeqNo, index: usize, at: u64) -> Result<()> {
        if first >= self.next_seqno || self.mode == RecoveryMode::SkipAnyCorrupted {
            return Ok(());
        }
        let text = format!("sequence number {first} comes after {}", self.next_seqno - 1);
        Err(Error::corruption(text).at_offset(at).at_path(&self.links[index].path))
    }

    /// No record to apply stands at `at`, before the end that the next segment names, if any.
    fn no_record(
        &mut self,
        index: usize,
        at: u64,
        found: Found,
        limit: Option<u64>,
        reader: &mut SegmentReader,
    ) -> Result<Go> {
        let reason = match found {
            Found::Damage(reason) => reason,
            Found::Record(..) => "a record runs past the end that the next segment names",
            Found::End(_) if limit.is_some() => "the segment ends before the next one says it does",
            // The end looks like one, unless a record of this segment follows.
            Found::End(_) => match reader.search(at + 1)? {
                None => return Ok(Go::Next),
                Some(_) => "records follow behind an end",
            },
        };
        match self.damage(index, at, reason, Some(reader))? {
            // What lies behind the named end is burnt.
            Go::At(next) if limit.is_some_and(|limit| next >= limit) => Ok(Go::Next),
            go => Ok(go),
        }
    }

    /// Judges damage at an offset of segment `index`.
    fn damage(
        &mut self,
        index: usize,
        offset: u64,
        reason: &'static str,
        mut reader: Option<&mut SegmentReader>,
    ) -> Result<Go> {
        let position = LogPosition { segment: self.links[index].number, offset };
        let path = self.links[index].path.clone();
        if self.mode == RecoveryMode::SkipAnyCorrupted {
            self.outcome.skipped += 1;
            let resumed = match &mut reader {
                Some(reader) => reader.search(offset + 1)?,
                None => None,
            };
            return Ok(resumed.map_or(Go::Next, |(at, _, _)| Go::At(at)));
        }
        let error = |why: &str| Error::corruption(format!("{reason}{why}")).at_offset(offset).at_path(&path);
        if self.mode == RecoveryMode::AbsoluteConsistency {
            return Err(error(", and the recovery mode allows no damage"));
        }
        let evidence = self.evidence(index, position, reader)?;
        if evidence.vouched > position {
            let LogPosition { segment, offset } = evidence.vouched;
            return Err(error(&format!(
                ", but the log was synced up to offset {offset} of segment {segment}"
            )));
        }
        if self.mode == RecoveryMode::TolerateCorruptedTail && evidence.intact {
            return Err(error(", and intact log follows, so it is no torn tail"));
        }
        self.outcome.torn = Some(Torn { position, path, reason });
        Ok(Go::Halt)
    }

    /// What the log behind `position` in segment `index` says; stops at the first word that
    /// vouches for it.
    fn evidence(
        &self,
        index: usize,
        position: LogPosition,
        reader: Option<&mut SegmentReader>,
    ) -> Result<Evidence> {
        let mut evidence = Evidence::default();
        if let Some(reader) = reader {
            evidence.gather(reader, position.offset + 1, position)?;
        }
        for link in &self.links[index + 1..] {
            let mut from = 0;
            if let LinkState::Readable(start, content) = link.state {
                evidence.add(start.vouched());
                from = content;
            }
            if evidence.vouched > position {
                break;
            }
            if let Some(mut reader) = link.open(self.fs, self.db_id)? {
                evidence.gather(&mut reader, from, position)?;
            }
        }
        Ok(evidence)
    }
}

/// What speaks against a torn tail.
#[derive(Default)]
struct Evidence {
    /// The highest position that something calls synced.
    vouched: LogPosition,
    /// Whether anything intact follows at all.
    intact: bool,
}

impl Evidence {
    fn add(&mut self, vouched: LogPosition) {
        self.intact = true;
        self.vouched = self.vouched.max(vouched);
    }

    fn gather(&mut self, reader: &mut SegmentReader, mut from: u64, position: LogPosition) -> Result<()> {
        while self.vouched <= position
            && let Some((at, header, end)) = reader.search(from)?
        {
            self.add(header.synced);
            if header.kind == KIND_START {
                self.add(reader.decode_start(at, &header)?.vouched());
            }
            from = end;
        }
        Ok(())
    }
}
