use std::sync::atomic::Ordering::SeqCst;

use super::super::edit::tests::random_record;
use super::*;
use crate::wal::testfs::{MemFs, Rng};

const DB: DbId = [4; 16];
const NUMBER: FileNumber = FileNumber(12);

fn path() -> PathBuf {
    FileName::Manifest(NUMBER).path(Path::new("/db"))
}

fn floor(seqno: u64) -> ManifestRecord {
    ManifestRecord { last_seqno: Some(seqno), ..ManifestRecord::default() }
}

/// A manifest of the given records; their offsets, and the end.
fn write(fs: &MemFs, records: &[ManifestRecord]) -> Vec<u64> {
    let file = fs.create(&path()).expect("a new name");
    let mut offsets = vec![64];
    let mut writer = ManifestWriter::create(file, &DB, NUMBER, &records[0]).expect("written");
    for record in &records[1..] {
        offsets.push(writer.size());
        writer.append(record).expect("written");
    }
    writer.sync().expect("synced");
    offsets.push(writer.size());
    offsets
}

fn read(fs: &MemFs) -> Result<(Vec<ManifestRecord>, ManifestEnd)> {
    let file = fs.open(&path(), Access::Read)?;
    let mut records = Vec::new();
    let end = read_manifest(file, &mut |_, record| {
        records.push(record);
        Ok(())
    })?;
    assert_eq!(end.records, records.len() as u64);
    Ok((records, end))
}

#[test]
fn random_manifests_round_trip() {
    let mut rng = Rng::new(77);
    let mut total = 0;
    for _ in 0..50 {
        let fs = MemFs::new();
        let records: Vec<_> = (0..=rng.below(20)).map(|_| random_record(&mut rng)).collect();
        let offsets = write(&fs, &records);
        let (got, end) = read(&fs).expect("whole");
        assert_eq!(got, records);
        assert_eq!((Some(end.end), end.torn), (offsets.last().copied(), false));
        end.header.expect(&DB, NUMBER).expect("its own name");
        total += records.len();
    }
    assert!(total > 200, "{total}");
}

#[test]
fn a_record_longer_than_the_window_reads_back() {
    let fs = MemFs::new();
    let mut large = random_record(&mut Rng::new(2));
    large.keyspaces_dropped = (0..300_000).collect();
    write(&fs, &[floor(1), large.clone(), floor(2)]);
    let (got, _) = read(&fs).expect("whole");
    assert!(got == [floor(1), large, floor(2)]);
    assert!(fs.bytes(&path()).len() > 4 * CHUNK_BYTES);
}

#[test]
fn every_flipped_bit_and_truncation_is_a_legal_prefix_or_an_error() {
    let mut rng = Rng::new(31);
    let records: Vec<_> = (0..4).map(|_| random_record(&mut rng)).collect();
    let fs = MemFs::new();
    let offsets = write(&fs, &records);
    let pristine = fs.bytes(&path());
    let last = offsets[records.len() - 1];
    let (mut torn, mut errors) = (0, 0);
    for at in 0..pristine.len() {
        for bit in 0..8 {
            let mut bad = pristine.clone();
            bad[at] ^= 1 << bit;
            fs.put(&path(), bad);
            match read(&fs) {
                Ok((got, end)) => {
                    // Only the last record's damage can be a torn tail.
                    assert!(at as u64 >= last && end.torn && end.end == last);
                    assert_eq!(got, records[..3]);
                    torn += 1;
                }
                Err(e) => {
                    assert!(e.path().is_some() && e.offset().is_some());
                    assert!((at as u64) < last, "{e}");
                    if at >= 64 {
                        assert_eq!(e.kind(), ErrorKind::Corruption);
                        let damaged = offsets.iter().rev().find(|o| **o <= at as u64);
                        assert_eq!(e.offset(), damaged.copied());
                    }
                    errors += 1;
                }
            }
        }
    }
    assert!(torn > 100 && errors > 1000, "{torn} {errors}");
    for len in 0..pristine.len() {
        fs.put(&path(), pristine[..len].to_vec());
        match read(&fs) {
            Ok((got, end)) => {
                let whole = offsets[1..].iter().filter(|o| **o <= len as u64).count();
                assert_eq!(got, records[..whole]);
                assert_eq!(end.torn, !offsets.contains(&(len as u64)));
            }
            Err(e) => {
                assert!((len as u64) < offsets[1], "the first record is needed");
                assert_eq!(e.kind(), ErrorKind::Corruption);
            }
        }
    }
}

#[test]
fn zeros_behind_the_last_record_are_a_torn_tail() {
    let fs = MemFs::new();
    write(&fs, &[floor(1), floor(2)]);
    let mut bytes = fs.bytes(&path());
    bytes.resize(bytes.len() + 100_000, 0);
    fs.put(&path(), bytes);
    let (got, end) = read(&fs).expect("a torn tail");
    assert_eq!((got.len(), end.torn), (2, true));
}

#[test]
fn bytes_that_look_like_records_do_not_hang_the_search() {
    let fs = MemFs::new();
    write(&fs, &[floor(1)]);
    let mut bytes = fs.bytes(&path());
    // At every fourth byte a length of 1 MiB, which fits for most of them.
    bytes.extend((0..1 << 19).flat_map(|_| (1u32 << 20).to_le_bytes()));
    fs.put(&path(), bytes);
    assert_eq!(read(&fs).expect_err("cannot tell").kind(), ErrorKind::Corruption);
}

#[test]
fn an_intact_record_of_nonsense_and_an_error_of_the_callback_name_their_place() {
    let fs = MemFs::new();
    let nonsense = floor(u64::MAX);
    let offsets = write(&fs, &[floor(1), nonsense]);
    let err = read(&fs).expect_err("no sequence number");
    assert_eq!((err.kind(), err.offset()), (ErrorKind::Corruption, Some(offsets[1])));
    let file = fs.open(&path(), Access::Read).expect("there");
    let err = read_manifest(file, &mut |_, _| Err(Error::corruption("no"))).expect_err("refused");
    assert_eq!((err.offset(), err.path()), (Some(64), Some(path().as_path())));
}

#[test]
fn after_a_failure_the_writer_refuses_everything() {
    for sync_fails in [false, true] {
        let fs = MemFs::new();
        let file = fs.create(&path()).expect("a new name");
        let mut writer = ManifestWriter::create(file, &DB, NUMBER, &floor(1)).expect("written");
        let size = writer.size();
        let kind = if sync_fails {
            fs.faults.syncs_left.store(0, SeqCst);
            writer.append(&floor(2)).expect("written");
            writer.sync().expect_err("sync fails").kind()
        } else {
            fs.faults.writes_left.store(0, SeqCst);
            writer.append(&floor(2)).expect_err("full").kind()
        };
        assert_eq!(kind, if sync_fails { ErrorKind::Io } else { ErrorKind::NoSpace });
        assert!(sync_fails || writer.size() == size);
        fs.faults.syncs_left.store(-1, SeqCst);
        fs.faults.writes_left.store(-1, SeqCst);
        let before = fs.bytes(&path());
        assert!(writer.is_failed());
        assert_eq!(writer.append(&floor(3)).expect_err("latched").kind(), ErrorKind::Poisoned);
        assert_eq!(writer.sync().expect_err("latched").kind(), ErrorKind::Poisoned);
        assert_eq!(fs.bytes(&path()), before);
    }
    let fs = MemFs::new();
    let file = fs.create(&path()).expect("a new name");
    let mut writer = ManifestWriter::create(file, &DB, NUMBER, &floor(1)).expect("written");
    let empty = writer.append(&ManifestRecord::default()).expect_err("says nothing");
    assert_eq!((empty.kind(), writer.is_failed()), (ErrorKind::InvalidArgument, false));
}

#[test]
fn current_is_replaced_in_order_and_read_back() {
    let fs = MemFs::new();
    let dir = Path::new("/db");
    assert_eq!(read_current(&fs, dir).expect_err("none yet").kind(), ErrorKind::NotFound);
    fs.put(&dir.join("CURRENT.tmp"), b"left over".to_vec());
    for number in [12, 7_654_321] {
        fs.log.lock().clear();
        write_current(&fs, dir, FileNumber(number)).expect("written");
        let steps =
            ["sync_dir db", "create CURRENT.tmp", "sync CURRENT.tmp", "rename CURRENT", "sync_dir db"];
        assert_eq!(*fs.log.lock(), steps);
        let (got, path) = read_current(&fs, dir).expect("written");
        assert_eq!((got, path), (FileNumber(number), FileName::Manifest(FileNumber(number)).path(dir)));
    }
    assert_eq!(fs.list(dir).expect("listed"), ["CURRENT"]);
    let wrong: [&[u8]; 7] =
        [b"", b"\n", b"MANIFEST-000012", b"MANIFEST-12\n", b"000012.log\n", b"\xff\xff\n", &[b'M'; 4096]];
    for content in wrong {
        fs.put(&dir.join(CURRENT), content.to_vec());
        let err = read_current(&fs, dir).expect_err("no manifest");
        assert_eq!((err.kind(), err.path()), (ErrorKind::Corruption, Some(dir.join(CURRENT).as_path())));
    }
    // A failed sync leaves the old pointer in force.
    write_current(&fs, dir, FileNumber(5)).expect("written");
    fs.faults.syncs_left.store(0, SeqCst);
    assert!(write_current(&fs, dir, FileNumber(6)).is_err());
    assert_eq!(read_current(&fs, dir).expect("the old one").0, FileNumber(5));
}

/// A mark that stayed, with the next record behind it, would be unsynced like that record: a power
/// cut could tear the one and keep the other, and the manifest would count as damaged.
#[test]
fn a_mark_tells_damage_from_a_torn_end_and_makes_room_for_the_next_record() {
    let fs = MemFs::new();
    let file = fs.create(&path()).expect("a new name");
    let edited = |seqno| ManifestRecord { replay_start: Some(FileNumber(seqno)), ..floor(seqno) };
    let mut writer = ManifestWriter::create(file, &DB, NUMBER, &edited(1)).expect("written");
    writer.append(&edited(2)).expect("written");
    writer.sync().expect("synced");
    let end = writer.size();
    writer.mark(&floor(2)).expect("written");
    assert_eq!(writer.size(), end);
    assert_eq!(read(&fs).expect("reads").0, [edited(1), edited(2), floor(2)]);
    let file = fs.open(&path(), Access::ReadWrite).expect("open");
    file.write_at(&[0], end - 1).expect("damaged");
    assert_eq!(read(&fs).expect_err("no torn end").kind(), ErrorKind::Corruption);
    file.write_at(&[2], end - 1).expect("repaired");
    assert_eq!(read(&fs).expect("reads").0, [edited(1), edited(2), floor(2)]);
    writer.append(&edited(300)).expect("written");
    assert_eq!(read(&fs).expect("reads").0, [edited(1), edited(2), edited(300)]);
    writer.mark(&edited(300)).expect("written");
    assert_eq!(writer.append(&floor(7)).expect_err("shorter").kind(), ErrorKind::Internal);
}
