//! Damage: where the log may end, and where it must not.

use super::*;
use crate::wal::window::CHUNK_BYTES;

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
    for (by_header, by_record, front_lost) in
        [(false, false, false), (true, false, false), (false, true, false), (false, true, true)]
    {
        let mut log = two_segments(by_header);
        if by_record {
            log.roll(7, false);
            log.synced = at(6, 144);
            log.append(1, b"knows that segment 4 is synced");
        }
        if front_lost {
            // A segment without a readable front can't be replayed, but its records are witnesses.
            zero(&log.fs, &path(7), 0, 144);
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
        assert_eq!((recs.len(), end.skipped), (log.recs.len() - 1, 1 + u64::from(front_lost)));
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
    assert!(log.fs.faults.largest_read.load(SeqCst) <= CHUNK_BYTES as u64);
    // Every 56 bytes a front that claims all the rest of a 4 MiB file.
    let mut bytes = pristine;
    while bytes.len() < 4 << 20 {
        let rest = (4 << 20) - bytes.len() as u64;
        bytes.extend_from_slice(&header(rest.saturating_sub(112)).encode(0, &[]));
    }
    log.fs.put(&path(1), bytes);
    assert_eq!(run(&log.fs, PointInTime, 0).expect_err("cannot tell").kind(), ErrorKind::Corruption);
}
