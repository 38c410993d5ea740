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

/// A segment of three records, a segment of two; offsets in `recs`.
fn two_segments(synced: bool) -> Log {
    let mut log = Log::new();
    log.start(4, None);
    for n in [40, 60, 30] {
        log.append(2, &vec![n as u8; n]);
    }
    log.roll(6, synced);
    log.append(1, b"in the second");
    log.append(3, b"and last");
    log
}

#[test]
fn every_flipped_bit_leaves_the_log_a_legal_prefix_or_an_error() {
    let log = two_segments(false);
    let (mut whole, mut prefix, mut errors) = (0, 0, 0);
    for (file, number) in [(path(4), 4), (path(6), 6)] {
        let bytes = log.fs.bytes(&file);
        for offset in 0..bytes.len() {
            for bit in [0, 3, 7] {
                let mut bad = bytes.clone();
                bad[offset] ^= 1 << bit;
                log.fs.put(&file, bad);
                for mode in MODES {
                    match run(&log.fs, mode, 0) {
                        Ok((recs, end)) if mode == SkipAnyCorrupted => {
                            assert!(recs.iter().all(|r| log.recs.contains(r)));
                            assert!(recs.len() + 1 >= log.recs.len() || end.skipped > 0);
                        }
                        Ok((recs, end)) if recs == log.recs => {
                            assert!(end.torn.is_none(), "{number} {offset} {mode:?}");
                            whole += 1;
                        }
                        Ok((recs, end)) => {
                            assert!(log.recs.starts_with(&recs), "{number} {offset} {mode:?}");
                            assert_ne!(mode, AbsoluteConsistency);
                            assert!(end.torn.is_some(), "{number} {offset} {mode:?}");
                            prefix += 1;
                        }
                        Err(e) => {
                            let kinds = [ErrorKind::Corruption, ErrorKind::Foreign, ErrorKind::NewerFormat];
                            assert!(kinds.contains(&e.kind()), "{e}");
                            assert!(e.offset().is_some() && e.path().is_some(), "{e}");
                            errors += 1;
                        }
                    }
                }
            }
        }
        log.fs.put(&file, bytes);
    }
    assert!(whole > 30 && prefix > 1000 && errors > 1000, "{whole} {prefix} {errors}");
}

#[test]
fn every_truncation_leaves_a_legal_prefix() {
    let log = two_segments(false);
    let last = path(6);
    let bytes = log.fs.bytes(&last);
    for len in 0..bytes.len() as u64 {
        cut(&log.fs, &last, len);
        let (recs, end) = run(&log.fs, PointInTime, 0).expect("nothing vouches for the tail");
        let whole = log
            .recs
            .iter()
            .filter(|r| r.segment == 4 || r.offset + (RECORD_HEADER_BYTES + r.payload.len()) as u64 <= len);
        assert_eq!(recs, whole.cloned().collect::<Vec<_>>(), "{len}");
        let boundary = len == 0 || len == 144 || log.recs.iter().any(|r| r.segment == 6 && r.offset == len);
        let absolute = run(&log.fs, AbsoluteConsistency, 0);
        if boundary {
            assert!(end.torn.is_none() && absolute.is_ok(), "{len}");
        } else if end.torn.is_some() {
            assert_eq!(absolute.expect_err("a torn tail").kind(), ErrorKind::Corruption);
            assert!(run(&log.fs, TolerateCorruptedTail, 0).is_ok());
        }
        log.fs.put(&last, bytes.clone());
    }
    for len in 0..log.fs.bytes(&path(4)).len() as u64 {
        let first = log.fs.bytes(&path(4));
        cut(&log.fs, &path(4), len);
        let last_byte_used = log.recs[2].offset + (RECORD_HEADER_BYTES + 30) as u64;
        if len < last_byte_used {
            let (recs, end) = run(&log.fs, PointInTime, 0).expect("not vouched for");
            assert!(recs.len() < 3 && log.recs.starts_with(&recs));
            assert!(end.torn.is_some(), "{len}");
            assert!(run(&log.fs, TolerateCorruptedTail, 0).is_err(), "the second segment follows");
        }
        log.fs.put(&path(4), first);
    }
}

#[test]
fn vouched_damage_is_corruption() {
    // In the same segment: record 3 says that records 0 and 1 were synced.
    let mut log = Log::new();
    log.start(1, None);
    log.append(1, &[1; 50]);
    log.append(1, &[2; 50]);
    log.sync();
    log.append(1, &[3; 50]);
    log.append(1, &[4; 50]);
    for (damaged, vouched) in [(0, true), (1, true), (2, false), (3, false)] {
        let pristine = log.fs.bytes(&path(1));
        let rec = log.recs[damaged].clone();
        for (from, to) in [(rec.offset, rec.offset + 8), (rec.offset + 60, rec.offset + 61)] {
            zero(&log.fs, &path(1), from, to);
            let outcome = run(&log.fs, PointInTime, 0);
            if vouched {
                let err = outcome.expect_err("synced once");
                assert_eq!((err.kind(), err.offset()), (ErrorKind::Corruption, Some(rec.offset)));
                assert_eq!(err.path(), Some(path(1).as_path()));
                assert!(run(&log.fs, TolerateCorruptedTail, 0).is_err());
            } else {
                let (recs, end) = outcome.expect("never synced");
                assert_eq!(recs, log.recs[..damaged]);
                assert_eq!(end.end, Some(at(1, rec.offset)));
                // A zeroed front of the last record is a clean end; all else is seen.
                assert_eq!(end.torn.is_some(), damaged == 2 || from != rec.offset);
                assert_eq!(run(&log.fs, TolerateCorruptedTail, 0).is_ok(), damaged == 3);
            }
            let (recs, end) = run(&log.fs, SkipAnyCorrupted, 0).expect("salvage");
            let rest: Vec<Rec> = log.recs.iter().filter(|r| **r != rec).cloned().collect();
            assert_eq!(recs, rest);
            assert_eq!(end.skipped, u64::from(damaged != 3 || from != rec.offset));
            log.fs.put(&path(1), pristine.clone());
        }
    }
}

#[test]
fn later_segments_vouch_by_header_and_by_record() {
    for (by_header, by_record) in [(false, false), (true, false), (false, true)] {
        let mut log = two_segments(by_header);
        if by_record {
            log.roll(7, false);
            log.synced = at(6, 144);
            log.append(1, b"knows that segment 4 is synced");
        }
        let vouched = by_header || by_record;
        flip(&log.fs, &path(4), log.recs[1].offset + 57);
        match run(&log.fs, PointInTime, 0) {
            Err(e) => {
                assert!(vouched);
                assert_eq!((e.offset(), e.path()), (Some(log.recs[1].offset), Some(path(4).as_path())));
            }
            Ok((recs, end)) => {
                assert!(!vouched);
                assert_eq!(recs, log.recs[..1], "later segments are dropped too");
                assert_eq!(end.torn.expect("torn").position, at(4, log.recs[1].offset));
            }
        }
        assert!(run(&log.fs, TolerateCorruptedTail, 0).is_err());
        let (recs, end) = run(&log.fs, SkipAnyCorrupted, 0).expect("salvage");
        assert_eq!((recs.len(), end.skipped), (log.recs.len() - 1, 1));
    }
}

#[test]
fn a_missing_segment_is_corruption_if_vouched_for_and_the_end_if_not() {
    for synced in [false, true] {
        for unreadable in [false, true] {
            let mut log = Log::new();
            log.start(1, None);
            log.append(1, b"one");
            log.roll(2, true);
            log.append(1, b"two");
            log.roll(3, synced);
            log.append(1, b"three");
            if unreadable {
                zero(&log.fs, &path(2), 0, 144);
            } else {
                log.fs.unlink(&path(2)).expect("it was there");
            }
            match run(&log.fs, PointInTime, 0) {
                Err(e) => {
                    assert!(synced);
                    assert_eq!((e.offset(), e.path()), (Some(0), Some(path(2).as_path())));
                }
                Ok((recs, end)) => {
                    assert!(!synced);
                    assert_eq!(recs, log.recs[..1]);
                    assert_eq!(end.torn.expect("torn").position, at(2, 0));
                    assert_eq!(end.end.map(|e| e.segment), Some(FileNumber(1)));
                }
            }
            assert!(run(&log.fs, TolerateCorruptedTail, 0).is_err());
            assert!(run(&log.fs, AbsoluteConsistency, 0).is_err());
            let (recs, _) = run(&log.fs, SkipAnyCorrupted, 0).expect("salvage");
            assert_eq!(recs.len(), if unreadable { 3 } else { 2 });
            // Not needed any more, so not missed.
            assert_eq!(run(&log.fs, AbsoluteConsistency, 3).expect("not missed").0.len(), 1);
        }
    }
}

#[test]
fn a_segment_whose_creation_was_cut_short_is_a_torn_tail() {
    let log = two_segments(true);
    for front in [Vec::new(), vec![0; 4096], log.fs.bytes(&path(6))[..100].to_vec(), log.fs.bytes(&path(4))] {
        // The last one: a recycled file, renamed but not yet overwritten.
        log.fs.put(&path(9), front.clone());
        let (recs, end) = run(&log.fs, PointInTime, 0).expect("nothing vouches for it");
        assert_eq!(recs, log.recs);
        assert_eq!(end.torn.is_some(), !front.is_empty());
        assert_eq!(run(&log.fs, AbsoluteConsistency, 0).is_ok(), front.is_empty());
    }
}

#[test]
fn stale_records_end_the_log() {
    for sizes in [vec![], vec![10], vec![64], vec![100, 33], vec![300, 300, 300]] {
        let mut log = Log::new();
        log.start(2, None);
        for n in 0..8 {
            log.append(1, &vec![n; 64]);
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
fn segments_dropped_by_an_earlier_opening_stay_dropped() {
    let mut log = two_segments(false);
    flip(&log.fs, &path(4), log.recs[2].offset);
    let (recs, end) = run(&log.fs, PointInTime, 0).expect("not vouched for");
    assert_eq!(recs.len(), 2);
    // The opening goes on in segment 8, behind what it replayed and synced.
    log.recs.truncate(2);
    log.start(8, prev(end.end.expect("segment 4 was read"), true));
    log.append(1, b"new");
    for mode in MODES {
        let (recs, end) = run(&log.fs, mode, 0).expect("the log ends where segment 8 says");
        assert_eq!((&recs, end.torn), (&log.recs, None));
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
fn claimed_lengths_allocate_nothing_and_lookalikes_do_not_hang() {
    let mut log = Log::new();
    log.start(1, None);
    log.append(1, b"good");
    let header = |payload_bytes| RecordHeader {
        crc: 7,
        kind: KIND_OPS,
        payload_bytes,
        segment: FileNumber(1),
        first_seqno: 2,
        count: 1,
        flags: 0,
        synced: LogPosition::default(),
    };
    let pristine = log.fs.bytes(&path(1));
    for claim in [u64::MAX, u64::MAX - 56, 1 << 40, 1 << 20] {
        let mut bytes = pristine.clone();
        bytes.extend_from_slice(&header(claim).encode(0, &[]));
        bytes.resize(bytes.len() + (2 << 20), 0xab);
        log.fs.put(&path(1), bytes);
        let (recs, end) = run(&log.fs, PointInTime, 0).expect("a torn tail");
        assert_eq!((recs.len(), end.torn.is_some()), (1, true));
    }
    assert!(log.fs.faults.largest_read.load(SeqCst) <= super::window::CHUNK_BYTES as u64);
    // Every 56 bytes a front that claims all the rest of a 4 MiB file.
    let mut bytes = pristine;
    while bytes.len() < 4 << 20 {
        let rest = (4 << 20) - bytes.len() as u64;
        bytes.extend_from_slice(&header(rest.saturating_sub(112)).encode(0, &[]));
    }
    log.fs.put(&path(1), bytes);
    assert_eq!(run(&log.fs, PointInTime, 0).expect_err("cannot tell").kind(), ErrorKind::Corruption);
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

/// Random logs over several segments, some recycled, with syncs in between; then a power cut that
/// keeps all that was synced, and of the rest any pages, in any order. The replay must give a
/// prefix of the log that holds everything synced.
#[test]
fn random_power_cuts_keep_all_that_was_synced_and_a_prefix() {
    let mut rng = Rng::new(2026);
    let (mut records, mut lost, mut recycled, mut torn_count) = (0, 0, 0, 0);
    for _ in 0..400 {
        let mut log = Log::new();
        let mut number = 1;
        log.start(number, None);
        // What the disk holds: contents at the last sync, per file.
        let mut durable: Vec<(PathBuf, Vec<u8>)> = Vec::new();
        let mut oldest = 1;
        for _ in 0..rng.below(60) {
            match rng.below(8) {
                0 => {
                    // A roll. The new name is made durable before anything in it is synced.
                    number += 1 + rng.below(3);
                    let end = log.writer().position();
                    let position = PrevEnd { position: end, synced: log.synced == end };
                    let retired = log.synced.segment.0 > oldest && rng.below(2) == 0;
                    if retired {
                        log.recs.retain(|r| r.segment != oldest);
                        let next = segments(&log.fs).iter().map(|s| s.0.0).filter(|n| *n > oldest).min();
                        log.fs.rename(&path(oldest), &path(number)).expect("renamed");
                        for (name, _) in &mut durable {
                            if *name == path(oldest) {
                                *name = path(number);
                            }
                        }
                        oldest = next.expect("a newer one exists");
                        let file = log.fs.open(&path(number), Access::ReadWrite).expect("there");
                        log.start_in(file, number, Some(position));
                        recycled += 1;
                    } else {
                        log.start(number, Some(position));
                    }
                }
                1 => {
                    durable.clear();
                    for (_, file) in segments(&log.fs) {
                        durable.push((file.clone(), log.fs.bytes(&file)));
                    }
                    log.sync();
                }
                _ => {
                    let n = if rng.below(20) == 0 { 9000 } else { rng.below(200) as usize };
                    let payload = rng.bytes(n);
                    log.append(1 + rng.below(4) as u32, &payload);
                    records += 1;
                }
            }
        }
        let synced = log.synced;
        for (_, file) in segments(&log.fs) {
            let now = log.fs.bytes(&file);
            let old = durable.iter().find(|(name, _)| *name == file).map(|(_, bytes)| bytes.clone());
            let mut image = old.unwrap_or_default();
            let keep = if rng.below(3) == 0 { now.len() } else { rng.below(now.len() as u64 + 1) as usize };
            if image.len() < keep {
                image.resize(keep, 0);
            }
            for page in 0..now.len().div_ceil(512) {
                let (from, to) = (page * 512, (page * 512 + 512).min(now.len()).min(image.len()));
                if from < to && rng.below(4) != 0 {
                    image[from..to].copy_from_slice(&now[from..to]);
                }
            }
            log.fs.put(&file, image);
        }
        let (recs, end) = run(&log.fs, PointInTime, oldest).expect("what was synced is whole");
        assert!(log.recs.starts_with(&recs));
        let must = log.recs.iter().filter(|r| at(r.segment, r.offset) < synced).count();
        assert!(recs.len() >= must, "{} of {must} synced records", recs.len());
        lost += log.recs.len() - recs.len();
        torn_count += usize::from(end.torn.is_some());
        let (salvaged, _) = run(&log.fs, SkipAnyCorrupted, oldest).expect("salvage");
        assert!(salvaged.len() >= recs.len() && salvaged.iter().all(|r| log.recs.contains(r)));
    }
    assert!(
        records > 5000 && lost > 300 && recycled > 40 && torn_count > 40,
        "{records} {lost} {recycled} {torn_count}"
    );
}
