//! Tests of the log: one segment, the chain, every kind of damage, every recovery mode.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use dialsm_io::fs::Access;
use dialsm_io::{File, Fs};

use super::RecoveryMode::{AbsoluteConsistency, PointInTime, SkipAnyCorrupted, TolerateCorruptedTail};
use super::format::{KIND_OPS, RECORD_HEADER_BYTES, RecordHeader, seed};
use super::testfs::{MemFs, Rng};
use super::*;
use crate::filename::FileName;
use crate::types::{DbId, FileNumber, SeqNo};
use crate::{ErrorKind, Result};

mod damage;
mod random;

const DB: DbId = [9; 16];
const DIR: &str = "/db";
const MODES: [RecoveryMode; 4] = [AbsoluteConsistency, TolerateCorruptedTail, PointInTime, SkipAnyCorrupted];

fn path(number: u64) -> PathBuf {
    FileName::Log(FileNumber(number)).path(Path::new(DIR))
}

fn at(number: u64, offset: u64) -> LogPosition {
    LogPosition { segment: FileNumber(number), offset }
}

fn prev(position: LogPosition, synced: bool) -> Option<PrevEnd> {
    Some(PrevEnd { position, synced })
}

/// A record as the tests remember it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rec {
    segment: u64,
    offset: u64,
    first_seqno: SeqNo,
    count: u32,
    payload: Vec<u8>,
}

/// A log under construction.
struct Log {
    fs: MemFs,
    writer: Option<SegmentWriter>,
    next: SeqNo,
    synced: LogPosition,
    recs: Vec<Rec>,
}

impl Log {
    fn new() -> Log {
        Log { fs: MemFs::new(), writer: None, next: 1, synced: LogPosition::default(), recs: Vec::new() }
    }

    fn writer(&mut self) -> &mut SegmentWriter {
        self.writer.as_mut().expect("a segment was started")
    }

    fn start_in(&mut self, file: Arc<dyn File>, number: u64, previous: Option<PrevEnd>) {
        let writer = SegmentWriter::create(file, &DB, FileNumber(number), previous, self.next);
        self.writer = Some(writer.expect("the file takes writes"));
    }

    fn start(&mut self, number: u64, previous: Option<PrevEnd>) {
        let file = self.fs.create(&path(number)).expect("a new name");
        self.start_in(file, number, previous);
    }

    /// Starts `number` behind the present segment.
    fn roll(&mut self, number: u64, synced: bool) {
        let previous = self.writer.as_ref().map(|w| PrevEnd { position: w.position(), synced });
        if let Some(PrevEnd { position, synced: true }) = previous {
            self.synced = position;
        }
        self.start(number, previous);
    }

    fn append(&mut self, count: u32, payload: &[u8]) {
        let (next, synced) = (self.next, self.synced);
        let writer = self.writer();
        let start = writer.position();
        let (head, tail) = payload.split_at(payload.len() / 3);
        let end = writer.append(next, count, &[head, &[], tail], synced).expect("appended");
        assert_eq!(end, writer.position());
        self.next += u64::from(count);
        let (segment, offset) = (start.segment.0, start.offset);
        self.recs.push(Rec { segment, offset, first_seqno: next, count, payload: payload.to_vec() });
    }

    fn sync(&mut self) {
        self.synced = self.writer().position();
    }
}

fn segments(fs: &MemFs) -> Vec<(FileNumber, PathBuf)> {
    let names = fs.list(Path::new(DIR)).expect("listed");
    let numbers = names.iter().filter_map(|name| match FileName::parse(name) {
        Some(FileName::Log(number)) => Some((number, FileName::Log(number).path(Path::new(DIR)))),
        _ => None,
    });
    // Any order is promised to do.
    numbers.rev().collect()
}

fn run(fs: &MemFs, mode: RecoveryMode, start: u64) -> Result<(Vec<Rec>, ReplayEnd)> {
    let mut recs = Vec::new();
    let end = replay(fs, Path::new(DIR), &segments(fs), &DB, mode, FileNumber(start), &mut |r| {
        recs.push(Rec {
            segment: r.segment.0,
            offset: r.offset,
            first_seqno: r.first_seqno,
            count: r.count,
            payload: r.payload.to_vec(),
        });
        Ok(())
    })?;
    assert_eq!(end.records, recs.len() as u64);
    assert_eq!(end.bytes, recs.iter().map(|r| r.payload.len() as u64).sum::<u64>());
    assert_eq!(end.last_seqno, recs.last().map(|r| r.first_seqno + u64::from(r.count) - 1));
    Ok((recs, end))
}

fn flip(fs: &MemFs, file: &Path, offset: u64) {
    let mut bytes = fs.bytes(file);
    bytes[offset as usize] ^= 0x10;
    fs.put(file, bytes);
}

fn zero(fs: &MemFs, file: &Path, from: u64, to: u64) {
    let mut bytes = fs.bytes(file);
    bytes[from as usize..to as usize].fill(0);
    fs.put(file, bytes);
}

fn cut(fs: &MemFs, file: &Path, len: u64) {
    let mut bytes = fs.bytes(file);
    bytes.truncate(len as usize);
    fs.put(file, bytes);
}

/// A segment of three records, a segment of two; offsets in `recs`.
fn two_segments(synced: bool) -> Log {
    let mut log = Log::new();
    log.start(4, None);
    for n in [40, 60, 30] {
        log.append(2, &vec![n as u8; n]);
    }
    // Its header may vouch; its records do not.
    let end = log.writer().position();
    log.start(6, prev(end, synced));
    log.append(1, b"in the second");
    log.append(3, b"and last");
    log
}

#[test]
fn every_mode_reads_a_whole_log() {
    let mut log = Log::new();
    for (number, sizes) in [(3, vec![0, 1, 7, 8, 9]), (8, vec![]), (9, vec![100, 5000])] {
        log.roll(number, number == 9);
        for n in sizes {
            log.append(n as u32 + 1, &vec![number as u8; n]);
        }
    }
    for mode in MODES {
        let (recs, end) = run(&log.fs, mode, 0).expect("nothing is damaged");
        assert_eq!(recs, log.recs);
        assert_eq!(end.end, Some(log.writer().position()));
        assert_eq!((&end.torn, end.skipped), (&None, 0));
        let (recs, _) = run(&log.fs, mode, 8).expect("nothing is damaged");
        assert_eq!(recs, log.recs[5..], "segments below the start are not replayed");
    }
    let empty = run(&MemFs::new(), AbsoluteConsistency, 5).expect("no log is no damage").1;
    assert_eq!(empty, ReplayEnd::default());
}

#[test]
fn a_group_is_one_write_and_large_parts_are_not_copied() {
    let mut log = Log::new();
    log.start(1, None);
    let writes = |log: &Log| log.fs.faults.writes.load(SeqCst);
    let before = writes(&log);
    log.append(1, &[1; 3000]);
    assert_eq!(writes(&log) - before, 1);
    let mut rng = Rng::new(1);
    // The test splits this into parts of 1 MiB and 2 MiB.
    log.append(2, &rng.bytes(3 << 20));
    assert!(writes(&log) - before <= 4);
    log.append(1, &rng.bytes(300 << 10));
    let many: Vec<Vec<u8>> = (0..40).map(|i| vec![i as u8; 100_000]).collect();
    let parts: Vec<&[u8]> = many.iter().map(Vec::as_slice).collect();
    let (next, position) = (log.next, log.writer().position());
    log.writer().append(next, 40, &parts, LogPosition::default()).expect("appended");
    let offset = position.offset;
    log.recs.push(Rec { segment: 1, offset, first_seqno: next, count: 40, payload: many.concat() });
    log.next += 40;
    log.append(1, b"after");
    let (recs, _) = run(&log.fs, AbsoluteConsistency, 0).expect("nothing is damaged");
    assert!(recs == log.recs, "large records read back");
}

#[test]
fn stale_records_end_the_log() {
    for sizes in [vec![], vec![10], vec![64], vec![100, 33], vec![300, 300, 300]] {
        let mut log = Log::new();
        log.start(2, None);
        for n in 1..9 {
            log.append(1, &[n; 64]);
        }
        log.sync();
        let old = log.fs.bytes(&path(2));
        // Segment 2 was retired and becomes segment 5; its old records vouch for themselves.
        log.fs.rename(&path(2), &path(5)).expect("renamed");
        let file = log.fs.open(&path(5), Access::ReadWrite).expect("there");
        log.start_in(file, 5, prev(at(2, old.len() as u64), true));
        log.recs.clear();
        for n in sizes {
            log.append(1, &vec![0xee; n]);
        }
        let end = log.writer().position();
        for mode in MODES {
            let (recs, outcome) = run(&log.fs, mode, 5).expect("stale bytes are no damage");
            assert_eq!((recs, outcome.end, outcome.torn), (log.recs.clone(), Some(end), None));
        }
        // Without the zero mark (torn off), stale bytes stand where a record may begin.
        if let Some(stale) = old.get(end.offset as usize..end.offset as usize + 8) {
            let mut bytes = log.fs.bytes(&path(5));
            bytes[end.offset as usize..end.offset as usize + 8].copy_from_slice(stale);
            log.fs.put(&path(5), bytes);
            let (recs, outcome) = run(&log.fs, PointInTime, 5).expect("nothing vouches for it");
            assert_eq!((recs, outcome.end), (log.recs.clone(), Some(end)));
            assert!(run(&log.fs, TolerateCorruptedTail, 5).is_ok());
            // An intact stale record, old ones having 120 bytes each, is told from a torn write.
            let intact = (end.offset - 144).is_multiple_of(120);
            assert_eq!(outcome.torn.is_none(), intact);
            assert_eq!(run(&log.fs, AbsoluteConsistency, 5).is_ok(), intact);
        }
        // A torn write over stale bytes.
        if let Some(last) = log.recs.last() {
            let (from, to) = (last.offset as usize + 30, old.len().min(end.offset as usize));
            let mut bytes = log.fs.bytes(&path(5));
            bytes[from..to].copy_from_slice(&old[from..to]);
            log.fs.put(&path(5), bytes);
            let (recs, outcome) = run(&log.fs, PointInTime, 5).expect("nothing vouches for it");
            assert_eq!(recs, log.recs[..log.recs.len() - 1]);
            assert!(outcome.torn.is_some());
        }
    }
}

#[test]
fn a_failed_append_closes_the_segment_and_its_bytes_never_come_back() {
    for whole in [false, true] {
        let mut log = Log::new();
        log.start(1, None);
        log.append(1, b"good");
        let good = log.writer().position();
        if whole {
            // The append succeeds and its sync fails: the commit path names the end before it.
            let next = log.next;
            log.writer().append(next, 5, &[b"burnt"], LogPosition::default()).expect("appended");
        } else {
            log.fs.faults.writes_left.store(0, SeqCst);
            let next = log.next;
            let err = log.writer().append(next, 5, &[b"burnt"], LogPosition::default()).expect_err("full");
            assert_eq!(err.kind(), ErrorKind::NoSpace);
            log.fs.faults.writes_left.store(-1, SeqCst);
            let err = log.writer().append(next, 5, &[b"again"], LogPosition::default()).expect_err("closed");
            assert_eq!(err.kind(), ErrorKind::Poisoned);
            assert!(log.writer().is_failed());
            assert_eq!(log.writer().position(), good);
        }
        log.next += 5;
        log.start(2, prev(good, true));
        log.append(1, b"after space came back");
        for mode in MODES {
            let (recs, end) = run(&log.fs, mode, 0).expect("a burnt group is no damage");
            assert_eq!((&recs, end.torn, end.skipped), (&log.recs, None, 0));
        }
    }
}

#[test]
fn sequence_numbers_may_jump_but_not_overlap() {
    let mut log = Log::new();
    log.start(1, None);
    log.append(10, b"1 to 10");
    log.next = 100;
    log.append(1, b"100");
    let writer = log.writer();
    let order = writer.append(100, 1, &[b"again"], LogPosition::default());
    assert_eq!(order.expect_err("overlap").kind(), ErrorKind::Internal);
    let order = writer.append(101, 1, &[b"x"], at(1, 1 << 40));
    assert_eq!(order.expect_err("synced beyond the end").kind(), ErrorKind::Internal);
    assert_eq!(
        writer.append(101, 0, &[], LogPosition::default()).expect_err("empty").kind(),
        ErrorKind::Internal
    );
    assert!(!writer.is_failed());
    assert_eq!(run(&log.fs, AbsoluteConsistency, 0).expect("gaps are legal").0, log.recs);
    // A segment that starts over.
    log.next = 50;
    let end = log.writer().position();
    log.start(2, prev(end, true));
    log.append(1, b"50");
    for mode in [AbsoluteConsistency, TolerateCorruptedTail, PointInTime] {
        assert_eq!(run(&log.fs, mode, 0).expect_err("overlap").kind(), ErrorKind::Corruption);
    }
    let (recs, end) = run(&log.fs, SkipAnyCorrupted, 0).expect("salvage");
    assert_eq!((&recs[..], end.skipped), (&log.recs[..2], 1));
}

/// Appends a record of any kind and flags to segment 1 behind the writer's back.
fn forge(log: &mut Log, kind: u8, flags: u32, count: u32) {
    let end = log.writer().position().offset;
    let header = RecordHeader {
        crc: 0,
        kind,
        payload_bytes: 8,
        segment: FileNumber(1),
        first_seqno: log.next,
        count,
        flags,
        synced: LogPosition::default(),
    };
    let mut bytes = log.fs.bytes(&path(1));
    assert_eq!(bytes.len() as u64, end);
    bytes.extend_from_slice(&header.encode(seed(&DB), &[b"8 bytes."]));
    bytes.extend_from_slice(b"8 bytes.");
    log.fs.put(&path(1), bytes);
}

#[test]
fn unknown_kinds_are_skipped_or_refused_by_their_lowest_bit() {
    for (kind, flags, count, want) in [
        (5, 0, 0, None),
        (7, 0x8000, 3, None),
        (6, 0, 0, Some(ErrorKind::NewerFormat)),
        (KIND_OPS, 1 << 16, 1, Some(ErrorKind::NewerFormat)),
        (KIND_OPS, 0, 0, Some(ErrorKind::Corruption)),
        (super::format::KIND_START, 0, 0, Some(ErrorKind::Corruption)),
    ] {
        let mut log = Log::new();
        log.start(1, None);
        log.append(1, b"before!!");
        forge(&mut log, kind, flags, count);
        let mut seen = 0;
        let outcome =
            replay(&log.fs, Path::new(DIR), &segments(&log.fs), &DB, PointInTime, FileNumber(0), &mut |_| {
                seen += 1;
                Ok(())
            });
        assert_eq!(outcome.map_err(|e| e.kind()).err(), want, "{kind} {flags:#x}");
        assert_eq!(seen, 1);
    }
}

#[test]
fn another_databases_segment_is_foreign() {
    let log = two_segments(true);
    let outcome = replay(
        &log.fs,
        Path::new(DIR),
        &segments(&log.fs),
        &[1; 16],
        PointInTime,
        FileNumber(0),
        &mut |_| Ok(()),
    );
    assert_eq!(outcome.expect_err("wrong id").kind(), ErrorKind::Foreign);
}

#[test]
fn an_error_of_the_callback_is_passed_on_with_its_place() {
    let log = two_segments(true);
    let outcome =
        replay(&log.fs, Path::new(DIR), &segments(&log.fs), &DB, SkipAnyCorrupted, FileNumber(0), &mut |r| {
            match r.first_seqno {
                3 => Err(crate::Error::corruption("no batch")),
                _ => Ok(()),
            }
        });
    let err = outcome.expect_err("refused");
    assert_eq!((err.offset(), err.path()), (Some(log.recs[1].offset), Some(path(4).as_path())));
}

#[test]
fn a_dump_shows_records_damage_and_end() {
    let log = two_segments(true);
    let dump = |file: &Path| {
        let file = log.fs.open(file, Access::Read).expect("there");
        let (mut reader, header) = SegmentReader::open(file)?;
        assert_eq!(header.db_id, DB);
        let mut lines = Vec::new();
        while let Some(item) = reader.next_item()? {
            lines.push(match item {
                DumpItem::Record { offset, header, payload } => {
                    assert_eq!(header.payload_bytes, payload.len() as u64);
                    format!("{offset}: kind {} seqno {}", header.kind, header.first_seqno)
                }
                DumpItem::Damage { offset, resumes, .. } => format!("{offset}: damage to {resumes:?}"),
                DumpItem::End { offset, kind } => format!("{offset}: {kind:?}"),
            });
        }
        Result::Ok(lines)
    };
    let clean = [
        "64: kind 2 seqno 1",
        "144: kind 4 seqno 1",
        "240: kind 4 seqno 3",
        "360: kind 4 seqno 5",
        "448: EndOfFile",
    ];
    assert_eq!(dump(&path(4)).expect("whole"), clean);
    flip(&log.fs, &path(4), 250);
    let damaged = [
        "64: kind 2 seqno 1",
        "144: kind 4 seqno 1",
        "240: damage to Some(360)",
        "360: kind 4 seqno 5",
        "448: EndOfFile",
    ];
    assert_eq!(dump(&path(4)).expect("one record less"), damaged);
    cut(&log.fs, &path(4), 400);
    assert_eq!(dump(&path(4)).expect("cut")[3..], ["360: damage to None"][..0]);
}
