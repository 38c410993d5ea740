//! Tables with range tombstones: beside a model, with bounds that include them, under damage.

use super::*;
use crate::range_del::RangeTombstone;

fn with_tombstones(
    entries: &Entries,
    tombstones: &[RangeTombstone],
    cmp: &Comparator,
    options: &TableOptions,
) -> (Arc<MemFile>, TableMeta) {
    let file = MemFile::with(Vec::new());
    let header = FileHeader { kind: FileKind::Table, db_id: DB, number: NUMBER };
    let mut writer =
        TableWriter::new(file.clone(), header, cmp.clone(), options.clone()).expect("valid options");
    for (key, value) in entries {
        writer.add(key, value).expect("entries are in order");
    }
    for tombstone in tombstones {
        writer.add_range_tombstone(tombstone).expect("tombstones are in order");
    }
    let meta = writer.finish().expect("memory takes all");
    (file, meta)
}

fn tombstone(start: &[u8], end: &[u8], seqno: u64) -> RangeTombstone {
    RangeTombstone { start: Arc::from(start), end: Arc::from(end), seqno }
}

/// Fragments as a compaction writes them: apart, or the same with descending sequence numbers.
fn random_tombstones(rng: &mut Rng, cmp: &Comparator, count: usize) -> Vec<RangeTombstone> {
    let mut bounds: Vec<Vec<u8>> = (0..2 * count)
        .map(|_| {
            let len = [0, 1, 4, 9, 30][rng.below(5)];
            (0..len).map(|_| b"\0ab\xff"[rng.below(4)]).collect()
        })
        .collect();
    bounds.sort_by(|a, b| cmp.compare(a, b));
    bounds.dedup();
    let mut out = Vec::new();
    for pair in bounds.windows(2) {
        let mut seqno = 1 + rng.next() % 1000;
        for _ in 0..[0, 1, 1, 3][rng.below(4)] {
            if seqno > 0 {
                out.push(tombstone(&pair[0], &pair[1], seqno));
            }
            seqno = seqno.saturating_sub(1 + rng.next() % 50);
        }
    }
    out
}

#[test]
fn tombstones_and_entries_beside_a_model() {
    let (mut covered, mut several_blocks, mut keyless, mut wider) = (0, 0, 0, 0);
    for seed in 0..90 {
        let mut rng = Rng(seed);
        let cmp = &comparators()[rng.below(3)];
        let keys = [0, 1, 20, 80][rng.below(4)];
        let entries = random_entries(&mut rng, cmp, keys);
        let count = [1, 5, 300][rng.below(3)];
        let tombstones = random_tombstones(&mut rng, cmp, count);
        let (file, meta) = with_tombstones(&entries, &tombstones, cmp, &options(300, Compression::Lz4));
        let table = open(&file, cmp);
        assert_eq!(meta.range_deletes, tombstones.len() as u64);
        assert_eq!(meta.entries, (entries.len() + tombstones.len()) as u64);
        let found: Vec<RangeTombstone> = table.range_dels().map_or(Vec::new(), |set| set.iter().collect());
        assert_eq!(found, tombstones);
        let report = table.verify_all().expect("intact");
        assert_eq!((report.entries, report.range_deletes), (meta.entries, meta.range_deletes));
        assert_eq!((report.file_bytes, report.checksum), (meta.file_bytes, meta.checksum));
        // The bounds take in all tombstones.
        for t in &tombstones {
            assert!(cmp.compare(key::user_key(&meta.smallest), &t.start).is_le());
            assert!(cmp.compare_internal(&key::range_end(&t.end), &meta.largest).is_le());
            assert!((meta.seqno_min..=meta.seqno_max).contains(&t.seqno));
        }
        for (key, _) in &entries {
            assert!(cmp.compare_internal(&meta.smallest, key).is_le());
            assert!(cmp.compare_internal(key, &meta.largest).is_le());
        }
        wider += u64::from(key::is_range_end(&meta.largest));
        keyless += u64::from(entries.is_empty() && !tombstones.is_empty());
        several_blocks += u64::from(tombstones.len() > 250);
        for (key, _) in &entries {
            let (user, seqno) = (key::user_key(key), key::seqno_of(key));
            let spans = |t: &&RangeTombstone| {
                cmp.compare(&t.start, user).is_le() && cmp.compare(user, &t.end).is_lt() && t.seqno <= seqno
            };
            let wanted = tombstones.iter().filter(spans).map(|t| t.seqno).max().unwrap_or(0);
            let cover = table.range_dels().map_or(0, |set| set.cover(user, seqno));
            assert_eq!(cover, wanted);
            covered += u64::from(cover > 0);
        }
        scan_both_ways(&table, &entries, IterSpec::default());
    }
    assert!(covered > 500 && several_blocks > 5 && keyless > 10 && wider > 20);
}

#[test]
fn what_is_no_fragment_is_refused() {
    let cmp = Comparator::Bytewise;
    let refused = |list: &[RangeTombstone]| {
        let header = FileHeader { kind: FileKind::Table, db_id: DB, number: NUMBER };
        let mut writer =
            TableWriter::new(MemFile::with(Vec::new()), header, cmp.clone(), TableOptions::default())
                .expect("valid options");
        list.iter().try_for_each(|t| writer.add_range_tombstone(t)).expect_err("refused").kind()
    };
    for list in [
        vec![tombstone(b"b", b"b", 5)],
        vec![tombstone(b"b", b"a", 5)],
        vec![tombstone(b"a", b"c", 0)],
        vec![tombstone(b"a", b"c", 5), tombstone(b"a", b"c", 5)],
        vec![tombstone(b"a", b"c", 5), tombstone(b"a", b"d", 4)],
        vec![tombstone(b"a", b"c", 5), tombstone(b"b", b"d", 9)],
        vec![tombstone(b"c", b"d", 5), tombstone(b"a", b"b", 4)],
    ] {
        assert_eq!(refused(&list), ErrorKind::Internal);
    }
    let long = vec![b'x'; key::KEY_BYTES_MAX + 1];
    assert_eq!(refused(&[tombstone(b"a", &long, 5)]), ErrorKind::TooLarge);
}

#[test]
fn every_flipped_byte_is_found_or_changes_nothing() {
    let mut rng = Rng(5);
    let cmp = Comparator::Bytewise;
    let entries = random_entries(&mut rng, &cmp, 6);
    let tombstones = random_tombstones(&mut rng, &cmp, 12);
    assert!(tombstones.len() > 5);
    let (file, meta) = with_tombstones(&entries, &tombstones, &cmp, &options(200, Compression::None));
    let intact = file.bytes.read().clone();
    assert!(data_or_typed_error(intact.clone(), meta.file_bytes, &cmp, &entries));
    let mut refused = 0;
    for at in 0..intact.len() {
        let mut bytes = intact.clone();
        bytes[at] ^= 1 << rng.below(8);
        let opened = open_with(&MemFile::with(bytes.clone()), &cmp, Arc::new(BlockCache::new(0)));
        refused += u64::from(opened.is_err());
        if let Ok(table) = opened {
            // Damage to a data block is found when that is read; tombstones are read already.
            let set = table.range_dels().expect("the section was not lost");
            assert!(set.iter().eq(tombstones.iter().cloned()), "byte {at}");
        }
        data_or_typed_error(bytes, meta.file_bytes, &cmp, &entries);
    }
    assert!(refused > 300, "{refused}");
}

#[test]
fn garbage_in_the_section_is_an_error_not_a_panic() {
    let cmp = Comparator::Bytewise;
    // Well sealed, but not what the section promises: a writer of ours refuses it, so the bytes of
    // an honest table are changed and sealed again.
    let tombstones = [tombstone(b"aa", b"bb", 7), tombstone(b"cc", b"dd", 6)];
    let (file, meta) = with_tombstones(&Entries::new(), &tombstones, &cmp, &TableOptions::default());
    let intact = file.bytes.read().clone();
    let table = open(&file, &cmp);
    assert!(
        table.properties().entries == 2
            && table
                .get(b"aa", 9, &ReadSpec::default(), &mut ReadStats::default())
                .expect("no entries")
                .is_none()
    );
    let (mut refused, mut rng) = (0, Rng(3));
    // The only data block of the table starts behind the header.
    let start = 64;
    let len = (start..intact.len())
        .find(|len| {
            let covered = &intact[start..*len];
            intact.get(*len..*len + 4).is_some_and(|crc| checksum::masked(covered).to_le_bytes() == crc)
        })
        .expect("a sealed block")
        - start
        - 1;
    for _ in 0..3000 {
        let mut bytes = intact.clone();
        for _ in 0..1 + rng.below(3) {
            bytes[start + rng.below(len)] = rng.next() as u8;
        }
        let crc = checksum::masked(&bytes[start..start + len + 1]).to_le_bytes();
        bytes[start + len + 1..start + len + 5].copy_from_slice(&crc);
        match open_with(&MemFile::with(bytes), &cmp, Arc::new(BlockCache::new(0))) {
            Ok(table) => {
                let set = table.range_dels().expect("as many as the properties say");
                assert_eq!(set.len(), 2);
                let _ = table.verify_all();
            }
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Corruption, "{e}");
                assert!(e.offset().is_some() && e.path().is_some(), "{e}");
                refused += 1;
            }
        }
    }
    assert!(refused > 1000 && meta.range_deletes == 2, "{refused}");
}
