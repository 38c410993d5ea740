//! Tables as a whole: beside a model, under damage, with caches of every size.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use dialsm_io::fs::Advice;
use dialsm_io::{ErrorKind, File};
use parking_lot::RwLock;

use super::*;
use crate::cache::{BlockCache, TableCache};
use crate::checksum;
use crate::format::{FileHeader, FileKind};
use crate::key::{self, Comparator, Kind, UserComparator, internal_key};
use crate::read::internal::{InternalIter, Target};
use crate::types::{DbId, FileNumber, SEQNO_MAX};

/// A file in memory.
pub(crate) struct MemFile {
    path: PathBuf,
    bytes: RwLock<Vec<u8>>,
    reads: AtomicU64,
    /// Bytes that fit.
    room: AtomicU64,
    /// Whether it says to have all at hand.
    is_at_hand: AtomicBool,
}

impl MemFile {
    pub(crate) fn with(bytes: Vec<u8>) -> Arc<MemFile> {
        let (bytes, room) = (RwLock::new(bytes), AtomicU64::new(u64::MAX));
        let (reads, is_at_hand) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(MemFile { path: "test.tbl".into(), bytes, reads, room, is_at_hand })
    }
}

impl File for MemFile {
    fn path(&self) -> &Path {
        &self.path
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.reads.fetch_add(1, Relaxed);
        let bytes = self.bytes.read();
        let from = (offset as usize).min(bytes.len());
        let n = buf.len().min(bytes.len() - from);
        buf[..n].copy_from_slice(&bytes[from..from + n]);
        Ok(n)
    }
    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> bool {
        self.is_at_hand.load(Relaxed) && self.read_at(buf, offset).is_ok_and(|n| n == buf.len())
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let mut bytes = self.bytes.write();
        let end = offset as usize + buf.len();
        if end as u64 > self.room.load(Relaxed) {
            return Err(Error::new(ErrorKind::NoSpace, "test").at_path(&self.path).at_offset(offset));
        }
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset as usize..end].copy_from_slice(buf);
        Ok(())
    }
    fn sync_data(&self) -> Result<()> {
        Ok(())
    }
    fn start_writeback(&self, _: u64, _: u64) {}
    fn allocate(&self, _: u64, _: u64) -> Result<()> {
        Ok(())
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.bytes.write().resize(len as usize, 0);
        Ok(())
    }
    fn len(&self) -> Result<u64> {
        Ok(self.bytes.read().len() as u64)
    }
    fn advise(&self, _: Advice) {}
}

const DB: DbId = [9; 16];
const NUMBER: FileNumber = FileNumber(17);

/// A small generator, so that tests need no dice.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// Shorter first, then bytewise.
struct ByLength;

impl UserComparator for ByLength {
    fn name(&self) -> &str {
        "test.by-length"
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.len().cmp(&b.len()).then_with(|| a.cmp(b))
    }
    fn equal_is_identical(&self) -> bool {
        true
    }
}

/// Upper and lower case alike: different bytes that are equal.
struct NoCase;

impl UserComparator for NoCase {
    fn name(&self) -> &str {
        "test.no-case"
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.to_ascii_lowercase().cmp(&b.to_ascii_lowercase())
    }
}

fn comparators() -> [Comparator; 3] {
    [Comparator::Bytewise, Comparator::ReverseBytewise, Comparator::Custom(Arc::new(ByLength))]
}

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn options(block_bytes: usize, compression: Compression) -> TableOptions {
    TableOptions { block_bytes, compression, index_partition_bytes: 200, ..TableOptions::default() }
}

fn build(entries: &Entries, cmp: &Comparator, options: &TableOptions) -> (Arc<MemFile>, TableMeta) {
    let file = MemFile::with(Vec::new());
    let header = FileHeader { kind: FileKind::Table, db_id: DB, number: NUMBER };
    let mut writer =
        TableWriter::new(file.clone(), header, cmp.clone(), options.clone()).expect("valid options");
    writer.set_property("creation.cause", b"test").expect("a dotted name");
    for (key, value) in entries {
        writer.add(key, value).expect("entries are in order");
    }
    let estimate = writer.estimated_bytes();
    let meta = writer.finish().expect("memory takes all");
    let bytes = file.bytes.read();
    assert_eq!(meta.file_bytes, bytes.len() as u64);
    assert_eq!(meta.checksum, checksum::extend(0, &bytes));
    assert!(estimate <= 2 * meta.file_bytes + 4096, "estimate {estimate} of {}", meta.file_bytes);
    drop(bytes);
    (file, meta)
}

fn open_with(file: &Arc<MemFile>, cmp: &Comparator, cache: Arc<BlockCache>) -> Result<Arc<TableReader>> {
    let len = file.len().expect("memory");
    TableReader::open(file.clone(), &DB, NUMBER, len, cmp.clone(), cache)
}

fn open(file: &Arc<MemFile>, cmp: &Comparator) -> Arc<TableReader> {
    open_with(file, cmp, Arc::new(BlockCache::new(1 << 20))).expect("an intact table opens")
}

/// Entries with many versions to a key, sorted.
fn random_entries(rng: &mut Rng, cmp: &Comparator, keys: usize) -> Entries {
    let mut entries = Entries::new();
    let mut seqno = 1;
    for _ in 0..keys {
        let len = [0, 1, 3, 8, 9, 20, 40][rng.below(7)];
        // A small alphabet makes long common prefixes, and keys that are prefixes of others.
        let user: Vec<u8> = (0..len).map(|_| b"\0ab\xff"[rng.below(4)]).collect();
        let versions = [1, 1, 1, 2, 40][rng.below(5)];
        for _ in 0..versions {
            seqno += 1 + rng.next() % 3;
            let kind = [Kind::Put, Kind::Put, Kind::Delete, Kind::Merge][rng.below(4)];
            let value_len = [0, 5, 30, 31, 200, 1500][rng.below(6)];
            let value = vec![seqno as u8; if kind == Kind::Delete { 0 } else { value_len }];
            entries.push((internal_key(&user, seqno, kind as u8), value));
        }
    }
    entries.sort_by(|a, b| cmp.compare_internal(&a.0, &b.0));
    entries
}

/// The model's answer to a point read.
fn model_get<'a>(
    entries: &'a Entries,
    cmp: &Comparator,
    user: &[u8],
    seqno: u64,
) -> Option<&'a (Vec<u8>, Vec<u8>)> {
    let target = internal_key(user, seqno, key::SEEK_KIND);
    let at = entries.partition_point(|e| cmp.compare_internal(&e.0, &target).is_lt());
    entries.get(at).filter(|e| cmp.compare(key::user_key(&e.0), user).is_eq())
}

fn check_at(it: &TableIter, wanted: Option<&(Vec<u8>, Vec<u8>)>) {
    assert_eq!(it.valid(), wanted.is_some());
    if let Some((key, value)) = wanted {
        assert_eq!(it.key(), key);
        assert_eq!(it.value(), value);
        assert_eq!(it.value_slice(), value[..]);
    }
}

#[derive(Default)]
struct Driven {
    hits: usize,
    misses: usize,
    seeks: usize,
    steps: usize,
    straddling: usize,
}

fn drive(rng: &mut Rng, table: &Arc<TableReader>, entries: &Entries, spec: IterSpec, driven: &mut Driven) {
    let cmp = table.comparator();
    let mut stats = ReadStats::default();
    let get_spec = ReadSpec { fill_cache: spec.fill_cache, verify: spec.verify };
    let mut it = table.iter(spec);
    for _ in 0..200 {
        let mut user = key::user_key(&entries[rng.below(entries.len())].0).to_vec();
        match rng.below(6) {
            0 => user.push(b"\0b"[rng.below(2)]),
            1 => drop(user.pop()),
            2 => user.iter_mut().for_each(|b| *b = b.wrapping_add(1)),
            _ => {}
        }
        let seqno = [rng.next() % 600, SEQNO_MAX][rng.below(2)];
        let wanted = model_get(entries, cmp, &user, seqno);
        let found = table.get(&user, seqno, &get_spec, &mut stats).expect("an intact table");
        driven.hits += usize::from(wanted.is_some());
        driven.misses += usize::from(wanted.is_none());
        let found = found.map(|f| (internal_key(&user, f.seqno, f.kind), f.value.to_vec()));
        assert_eq!(found.as_ref(), wanted);

        let target = internal_key(&user, seqno, key::SEEK_KIND);
        let mut at = entries.partition_point(|e| cmp.compare_internal(&e.0, &target).is_lt());
        if rng.below(2) == 0 {
            it.seek(&target).expect("an intact table");
        } else {
            it.seek_for_prev(&target).expect("an intact table");
            let Some(before) = at.checked_sub(1) else {
                check_at(&it, None);
                continue;
            };
            at = before;
        }
        check_at(&it, entries.get(at));
        driven.seeks += 1;
        for _ in 0..rng.below(40) {
            let Some(_) = entries.get(at) else { break };
            // Mostly one way, so that blocks are crossed.
            if rng.below(8) < 1 + 6 * (seqno as usize % 2) {
                it.next().expect("an intact table");
                at += 1;
            } else {
                it.prev().expect("an intact table");
                let Some(before) = at.checked_sub(1) else {
                    check_at(&it, None);
                    break;
                };
                at = before;
            }
            check_at(&it, entries.get(at));
            driven.steps += 1;
        }
    }
    assert!(table.filter.is_none() || stats.filter_checked == 200);
}

fn scan_both_ways(table: &Arc<TableReader>, entries: &Entries, spec: IterSpec) {
    let mut it = table.iter(spec);
    it.seek_to_first().expect("an intact table");
    for entry in entries {
        check_at(&it, Some(entry));
        it.next().expect("an intact table");
    }
    check_at(&it, None);
    it.seek_to_last().expect("an intact table");
    for entry in entries.iter().rev() {
        check_at(&it, Some(entry));
        it.prev().expect("an intact table");
    }
    check_at(&it, None);
}

#[test]
fn beside_a_model() {
    let mut rng = Rng(1);
    let mut driven = Driven::default();
    for cmp in comparators() {
        // zstd where the build has it, or LZ4 once more.
        let other = if cfg!(feature = "zstd") { Compression::Zstd } else { Compression::Lz4 };
        for (block_bytes, compression) in [
            (1, Compression::None),
            (300, Compression::Lz4),
            (300, Compression::None),
            (4096, Compression::Lz4),
            (2000, other),
        ] {
            let entries = random_entries(&mut rng, &cmp, 150);
            let (file, meta) = build(&entries, &cmp, &options(block_bytes, compression));
            let table = open(&file, &cmp);
            check_meta(&meta, &entries);
            let report = table.verify_all().expect("an intact table");
            assert_eq!((report.entries, report.checksum), (meta.entries, meta.checksum));
            assert_eq!(report.data_blocks, meta.data_blocks);
            if block_bytes == 1 {
                assert_eq!(meta.data_blocks, meta.entries, "one entry a block");
            }
            for i in 1..table.index.len() {
                let user = key::user_key(table.index.separator(i - 1));
                driven.straddling += usize::from(user == key::user_key(table.index.separator(i)));
            }
            for readahead_max in [0, READAHEAD_BYTES, 1 << 20] {
                let spec = IterSpec { readahead_max, ..IterSpec::default() };
                scan_both_ways(&table, &entries, spec);
                drive(&mut rng, &table, &entries, spec, &mut driven);
            }
        }
    }
    assert!(driven.hits > 2000 && driven.misses > 1000, "{} hits, {} misses", driven.hits, driven.misses);
    assert!(driven.seeks > 5000 && driven.steps > 50_000, "{} seeks, {} steps", driven.seeks, driven.steps);
    assert!(driven.straddling > 100, "{} blocks end inside a key", driven.straddling);
}

fn check_meta(meta: &TableMeta, entries: &Entries) {
    let seqnos = || entries.iter().map(|e| key::seqno_of(&e.0));
    assert_eq!(meta.entries, entries.len() as u64);
    assert_eq!(meta.deletes as usize, entries.iter().filter(|e| key::kind_byte_of(&e.0) == 1).count());
    assert_eq!(Some(&meta.smallest), entries.first().map(|e| &e.0));
    assert_eq!(Some(&meta.largest), entries.last().map(|e| &e.0));
    assert_eq!(Some(meta.seqno_min), seqnos().min());
    assert_eq!(Some(meta.seqno_max), seqnos().max());
    assert_eq!(meta.raw_key_bytes as usize, entries.iter().map(|e| e.0.len()).sum::<usize>());
    assert_eq!(meta.raw_value_bytes as usize, entries.iter().map(|e| e.1.len()).sum::<usize>());
}

#[test]
fn large_keys_and_values() {
    let cmp = Comparator::Bytewise;
    let long = |byte: u8, last: u8| {
        let mut key = vec![byte; key::KEY_BYTES_MAX];
        *key.last_mut().expect("not empty") = last;
        key
    };
    let mut entries = Entries::new();
    for (user, value_len) in [
        (Vec::new(), 20_000),
        (long(1, 1), 10),
        (long(1, 2), 300_000),
        (b"b".to_vec(), 5 << 20),
        (b"c".to_vec(), 16 << 10),
        (b"d".to_vec(), 1),
    ] {
        let value: Vec<u8> = (0..value_len).map(|i| (i / 7) as u8).collect();
        entries.push((internal_key(&user, 5, Kind::Put as u8), value));
    }
    entries.sort_by(|a, b| cmp.compare_internal(&a.0, &b.0));
    for compression in [Compression::None, Compression::Lz4] {
        let (file, meta) = build(&entries, &cmp, &options(4096, compression));
        check_meta(&meta, &entries);
        let table = open(&file, &cmp);
        table.verify_all().expect("an intact table");
        for readahead_max in [0, READAHEAD_BYTES, 1 << 20] {
            scan_both_ways(&table, &entries, IterSpec { readahead_max, ..IterSpec::default() });
        }
        for (key, value) in &entries {
            let found = table.get(key::user_key(key), 9, &ReadSpec::default(), &mut ReadStats::default());
            assert_eq!(found.expect("intact").expect("it is there").value, value[..]);
        }
    }
}

#[test]
fn equal_keys_of_different_bytes_are_found_because_there_is_no_filter() {
    let cmp = Comparator::Custom(Arc::new(NoCase));
    let entries =
        vec![(internal_key(b"Alpha", 3, 7), b"1".to_vec()), (internal_key(b"beta", 4, 7), b"2".to_vec())];
    let (file, _) = build(&entries, &cmp, &TableOptions::default());
    let table = open(&file, &cmp);
    for user in [b"alpha", b"ALPHA"] {
        let found = table.get(user, 9, &ReadSpec::default(), &mut ReadStats::default()).expect("intact");
        assert_eq!(found.expect("equal by the order").seqno, 3);
    }
}

#[test]
fn an_empty_table_is_valid() {
    let cmp = Comparator::Bytewise;
    let (file, meta) = build(&Entries::new(), &cmp, &TableOptions::default());
    assert_eq!((meta.entries, meta.seqno_min, meta.data_blocks), (0, 0, 0));
    let table = open(&file, &cmp);
    scan_both_ways(&table, &Entries::new(), IterSpec::default());
    table.verify_all().expect("intact");
    let none = table.get(b"k", 9, &ReadSpec::default(), &mut ReadStats::default()).expect("intact");
    assert!(none.is_none());
    assert_eq!(table.properties().other("creation.cause"), Some(&b"test"[..]));
}

#[test]
fn what_a_table_cannot_hold_is_refused() {
    let header = FileHeader { kind: FileKind::Table, db_id: DB, number: NUMBER };
    for cmp in comparators() {
        let file = MemFile::with(Vec::new());
        let mut writer =
            TableWriter::new(file, header, cmp.clone(), TableOptions::default()).expect("valid options");
        let mut add = |user: &[u8], seqno, kind| {
            writer.add(&internal_key(user, seqno, kind), b"v").map_err(|e| e.kind())
        };
        assert_eq!(add(b"mm", 5, 7), Ok(()));
        assert_eq!(add(b"mm", 5, 7), Err(ErrorKind::Internal));
        assert_eq!(add(b"mm", 6, 7), Err(ErrorKind::Internal));
        assert_eq!(add(b"mm", 5, 8), Err(ErrorKind::Internal));
        let before: &[u8] = if matches!(cmp, Comparator::ReverseBytewise) { b"mmm" } else { b"m" };
        // A user's order may be what is wrong.
        let disorder =
            if matches!(cmp, Comparator::Custom(_)) { ErrorKind::Callback } else { ErrorKind::Internal };
        assert_eq!(add(before, 9, 7), Err(disorder));
        assert_eq!(add(b"zz", 9, Kind::RangeDelete as u8), Err(ErrorKind::Internal));
        assert_eq!(add(b"zz", 9, 99), Err(ErrorKind::Internal));
        assert_eq!(add(&[b'z'; 65_536], 9, 7), Err(ErrorKind::TooLarge));
        assert_eq!(add(b"mm", 4, 7), Ok(()));
        let meta = writer.finish().expect("refused entries leave no trace");
        assert_eq!((meta.entries, meta.seqno_max), (2, 5));
    }
    let wrong = TableOptions { block_bytes: 0, filter_bits_per_key: f64::NAN, ..TableOptions::default() };
    let err = wrong.validate().expect_err("out of range");
    assert!(err.message().contains("block_bytes") && err.message().contains("filter_bits"));
}

/// What a damaged table gives: all of the right data, or an error of a kind that says so.
fn data_or_typed_error(bytes: Vec<u8>, original_bytes: u64, cmp: &Comparator, entries: &Entries) -> bool {
    let file = MemFile::with(bytes);
    let cache = Arc::new(BlockCache::new(1 << 20));
    let typed = |e: &Error| {
        let expected = [ErrorKind::Corruption, ErrorKind::Foreign, ErrorKind::NewerFormat];
        assert!(expected.contains(&e.kind()), "{e}");
        assert!(e.path().is_some() && e.offset().is_some(), "{e}");
    };
    let table = match TableReader::open(file, &DB, NUMBER, original_bytes, cmp.clone(), cache) {
        Ok(table) => table,
        Err(e) => {
            typed(&e);
            return false;
        }
    };
    let (mut it, mut seen, mut failed) = (table.iter(IterSpec::default()), 0, false);
    let mut outcome = it.seek_to_first();
    loop {
        match outcome {
            Err(e) => {
                typed(&e);
                assert!(!it.valid());
                failed = true;
                break;
            }
            Ok(()) if !it.valid() => break,
            Ok(()) => {
                assert_eq!((it.key(), it.value()), (&entries[seen].0[..], &entries[seen].1[..]));
                seen += 1;
                outcome = it.next();
            }
        }
    }
    assert!(failed || seen == entries.len(), "an error must not look like an end");
    for (key, value) in entries.iter().step_by(7) {
        let seqno = key::seqno_of(key);
        match table.get(key::user_key(key), seqno, &ReadSpec::default(), &mut ReadStats::default()) {
            Ok(found) => assert_eq!(found.expect("the key is there").value, value[..]),
            Err(e) => {
                typed(&e);
                failed = true;
            }
        }
    }
    assert_eq!(table.verify_all().is_err(), failed);
    !failed
}

#[test]
fn flip_every_byte() {
    let mut rng = Rng(7);
    let cmp = Comparator::Bytewise;
    for compression in [Compression::None, Compression::Lz4] {
        let entries: Entries = random_entries(&mut rng, &cmp, 30);
        let (file, meta) = build(&entries, &cmp, &options(700, compression));
        let bytes = file.bytes.read().clone();
        assert!(data_or_typed_error(bytes.clone(), meta.file_bytes, &cmp, &entries));
        let step = 1 + bytes.len() / 3000;
        let mut flipped = 0;
        for at in (0..bytes.len()).step_by(step).chain(bytes.len() - 600..bytes.len()) {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << rng.below(8);
            assert!(!data_or_typed_error(bad, meta.file_bytes, &cmp, &entries), "byte {at} counts");
            flipped += 1;
        }
        assert!(flipped >= 1500, "{flipped}");
    }
}

#[test]
fn without_verification_damage_is_survived() {
    let mut rng = Rng(8);
    let cmp = Comparator::Bytewise;
    for compression in [Compression::None, Compression::Lz4] {
        let mut entries = random_entries(&mut rng, &cmp, 30);
        // Short values, so that the damage meets lengths and keys.
        entries.iter_mut().for_each(|e| e.1.truncate(5));
        let (file, _) = build(&entries, &cmp, &options(700, compression));
        let bytes = file.bytes.read().clone();
        let mut errors = 0;
        for _ in 0..1500 {
            let mut bad = bytes.clone();
            for _ in 0..3 {
                let at = 64 + rng.below(bad.len() / 2);
                bad[at] = rng.next() as u8;
            }
            let Ok(table) = open_with(&MemFile::with(bad), &cmp, Arc::new(BlockCache::new(0))) else {
                continue;
            };
            // Wrong data is what was asked for; a panic or a loop without end is not.
            for readahead_max in [0, 1 << 20] {
                let mut it = table.iter(IterSpec {
                    fill_cache: false,
                    cache_ahead: false,
                    verify: false,
                    readahead_max,
                });
                let mut walk = || {
                    it.seek_to_first()?;
                    while it.valid() {
                        it.next()?;
                    }
                    it.seek_to_last()?;
                    while it.valid() {
                        it.prev()?;
                    }
                    it.seek(&entries[rng.below(entries.len())].0)
                };
                errors += usize::from(walk().is_err());
            }
            let spec = ReadSpec { fill_cache: true, verify: false };
            for (key, _) in entries.iter().step_by(11) {
                let got = table.get(key::user_key(key), SEQNO_MAX, &spec, &mut ReadStats::default());
                errors += usize::from(got.is_err());
            }
        }
        assert!(errors > 500, "{errors}");
    }
}

#[test]
fn cut_at_every_length() {
    let mut rng = Rng(3);
    let cmp = Comparator::Bytewise;
    let entries = random_entries(&mut rng, &cmp, 10);
    let (file, meta) = build(&entries, &cmp, &options(300, Compression::Lz4));
    let bytes = file.bytes.read().clone();
    for len in 0..bytes.len() {
        let cut = bytes[..len].to_vec();
        assert!(!data_or_typed_error(cut.clone(), meta.file_bytes, &cmp, &entries), "cut at {len}");
        // Also where nobody knows how long it should be.
        assert!(!data_or_typed_error(cut, len as u64, &cmp, &entries), "cut at {len}");
        let mut zeros = bytes[..len].to_vec();
        zeros.resize(bytes.len(), 0);
        if zeros != bytes {
            assert!(!data_or_typed_error(zeros, meta.file_bytes, &cmp, &entries), "zeros from {len}");
        }
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(!data_or_typed_error(longer, meta.file_bytes + 1, &cmp, &entries));
}

#[test]
fn a_table_of_another_kind_database_number_or_order_is_refused() {
    let cmp = Comparator::Bytewise;
    let (file, meta) = build(&vec![(internal_key(b"k", 1, 7), vec![])], &cmp, &TableOptions::default());
    let cache = || Arc::new(BlockCache::new(0));
    let open = |db: DbId, number, cmp| {
        TableReader::open(file.clone(), &db, number, meta.file_bytes, cmp, cache())
            .map(|_| ())
            .map_err(|e| e.kind())
    };
    assert_eq!(open(DB, NUMBER, Comparator::Bytewise), Ok(()));
    assert_eq!(open([0; 16], NUMBER, Comparator::Bytewise), Err(ErrorKind::Foreign));
    assert_eq!(open(DB, FileNumber(1), Comparator::Bytewise), Err(ErrorKind::Foreign));
    assert_eq!(open(DB, NUMBER, Comparator::ReverseBytewise), Err(ErrorKind::InvalidArgument));
}

/// Keys that look like a workload's: neighbours, all of one length.
fn plain_entries(n: u64, value_bytes: usize) -> Entries {
    let entry = |i: u64| (internal_key(format!("{i:016}").as_bytes(), i + 1, 7), vec![i as u8; value_bytes]);
    (0..n).map(entry).collect()
}

#[test]
fn the_filter_spares_reads_and_never_lies() {
    let cmp = Comparator::Bytewise;
    let entries = plain_entries(20_000, 10);
    let (file, _) = build(&entries, &cmp, &TableOptions::default());
    let table = open(&file, &cmp);
    let mut stats = ReadStats::default();
    for (key, _) in &entries {
        let found =
            table.get(key::user_key(key), SEQNO_MAX, &ReadSpec::default(), &mut stats).expect("intact");
        assert!(found.is_some());
    }
    assert_eq!((stats.filter_checked, stats.filter_useful), (20_000, 0));
    let mut stats = ReadStats::default();
    for i in 0..20_000 {
        let absent = format!("{i:016}x");
        let found =
            table.get(absent.as_bytes(), SEQNO_MAX, &ReadSpec::default(), &mut stats).expect("intact");
        assert!(found.is_none());
    }
    assert!(stats.filter_useful > 19_700, "{} of 20000 looked up in vain", 20_000 - stats.filter_useful);
}

#[test]
fn scans_read_ahead_and_leave_the_cache_alone() {
    let cmp = Comparator::Bytewise;
    let entries = plain_entries(20_000, 100);
    let (file, meta) = build(&entries, &cmp, &options(4096, Compression::None));
    let cache = Arc::new(BlockCache::new(64 << 20));
    let table = open_with(&file, &cmp, cache.clone()).expect("intact");
    let reads_of = |spec: IterSpec| {
        let before = file.reads.load(Relaxed);
        let mut it = table.iter(spec);
        it.seek_to_first().expect("intact");
        while it.valid() {
            it.next().expect("intact");
        }
        assert_eq!(it.stats().blocks_read + it.stats().block_cache_hits, meta.data_blocks);
        file.reads.load(Relaxed) - before
    };
    assert_eq!(
        meta.data_blocks,
        reads_of(IterSpec { fill_cache: false, cache_ahead: false, readahead_max: 0, verify: true })
    );
    let scan = reads_of(IterSpec::default());
    assert!(scan < 20, "{scan} reads for {} blocks", meta.data_blocks);
    assert!(cache.usage() < 3 * 4400, "the scan went into the cache: {} bytes", cache.usage());
    let pass = reads_of(IterSpec::whole_table());
    assert!(pass <= 4, "{pass} reads");
    reads_of(IterSpec { readahead_max: 0, ..IterSpec::default() });
    let usage = cache.usage();
    assert!(usage > meta.file_bytes * 8 / 10, "{usage}");
    assert_eq!(0, reads_of(IterSpec::default()), "all in the cache");
    drop(table);
    assert_eq!(cache.usage(), 0, "a dropped table leaves no blocks");
}

#[test]
fn cursors_read_at_once_what_those_before_them_went_through() {
    let cmp = Comparator::Bytewise;
    let entries = plain_entries(20_000, 100);
    let (file, meta) = build(&entries, &cmp, &options(4096, Compression::None));
    let per_block = entries.len() / meta.data_blocks as usize;
    // Ten blocks each; in trials, where nothing is waited for, and outside of them.
    for (is_at_hand, is_trial) in [(false, false), (true, true), (false, true)] {
        let table = open(&file, &cmp);
        file.is_at_hand.store(is_at_hand, Relaxed);
        let mut rng = Rng(7);
        let mut scan = |blocks: usize| {
            let start = rng.below(entries.len() - 12 * per_block);
            let (key, before) = (&entries[start].0, file.reads.load(Relaxed));
            let mut it = table.iter(IterSpec::default());
            if is_trial && it.try_position(&Target::AtOrAfter(key)).is_err() {
                let mut missing = Vec::new();
                it.missing(&mut missing);
                assert_eq!((missing.len(), is_at_hand), (1, false));
                it.seek(key).expect("intact");
            } else if !is_trial {
                it.seek(key).expect("intact");
            }
            for entry in &entries[start..start + blocks * per_block] {
                assert_eq!((it.key(), it.value()), (&entry.0[..], &entry.1[..]));
                it.next().expect("intact");
            }
            file.reads.load(Relaxed) - before
        };
        let first = scan(10);
        assert!(first >= 4, "two blocks one by one, then chunks: {first} reads");
        (0..100).for_each(|_| {
            scan(10);
        });
        let learned = scan(10);
        assert!((2..=3).contains(&learned), "{learned} reads of ten blocks");
        // And unlearned: a cursor that enters one block reads no more.
        (0..100).for_each(|_| {
            scan(0);
        });
        let mut it = table.iter(IterSpec::default());
        it.seek(&entries[0].0).expect("intact");
        assert_eq!(it.stats().blocks_read, 1);
    }
    file.is_at_hand.store(false, Relaxed);
}

#[test]
fn blocks_read_ahead_enter_the_cache_if_the_reader_says_so() {
    let cmp = Comparator::Bytewise;
    let entries = plain_entries(20_000, 100);
    for compression in [Compression::None, Compression::Lz4] {
        let (file, meta) = build(&entries, &cmp, &options(4096, compression));
        let cache = Arc::new(BlockCache::new(64 << 20));
        let table = open_with(&file, &cmp, cache.clone()).expect("intact");
        let spec = IterSpec { cache_ahead: true, ..IterSpec::default() };
        let reads_of = |spec: IterSpec| {
            let before = file.reads.load(Relaxed);
            scan_both_ways(&table, &entries, spec);
            file.reads.load(Relaxed) - before
        };
        reads_of(IterSpec { fill_cache: false, ..spec });
        reads_of(IterSpec { verify: false, ..spec });
        assert_eq!(cache.usage(), 0, "{compression:?}: not what came in unchecked, nor uninvited");
        let mut it = table.iter(spec);
        it.seek_to_first().expect("intact");
        let before = file.reads.load(Relaxed);
        while it.valid() {
            it.next().expect("intact");
        }
        let reads = file.reads.load(Relaxed) - before;
        assert!(reads < 20, "{compression:?}: {reads} reads for {} blocks", meta.data_blocks);
        assert_eq!(reads_of(spec), 0, "{compression:?}: all is in the cache");
    }
}

#[test]
fn the_block_cache_keeps_its_bound() {
    let cmp = Comparator::Bytewise;
    let entries = plain_entries(20_000, 100);
    let (file, _) = build(&entries, &cmp, &TableOptions::default());
    for capacity in [0, 10_000, 300_000, 20 << 20] {
        let cache = Arc::new(BlockCache::new(capacity));
        let table = open_with(&file, &cmp, cache.clone()).expect("intact");
        let mut rng = Rng(capacity);
        let mut stats = ReadStats::default();
        for _ in 0..3000 {
            let (key, value) = &entries[rng.below(entries.len())];
            let found = table.get(key::user_key(key), SEQNO_MAX, &ReadSpec::default(), &mut stats);
            assert_eq!(found.expect("intact").expect("it is there").value, value[..]);
            assert!(cache.usage() <= capacity, "{} of {capacity}", cache.usage());
        }
        assert_eq!(stats.block_cache_hits + stats.blocks_read, 3000);
        if capacity > 0 {
            assert!(cache.usage() > 0 && stats.block_cache_hits > 0);
        }
    }
}

#[test]
fn approximate_offsets_rise_from_front_to_back() {
    let cmp = Comparator::Bytewise;
    let entries = plain_entries(5000, 100);
    let (file, meta) = build(&entries, &cmp, &options(4096, Compression::None));
    let table = open(&file, &cmp);
    let offsets: Vec<u64> = entries.iter().map(|(key, _)| table.approximate_offset(key)).collect();
    assert!(offsets.is_sorted());
    assert_eq!(offsets[0], 64);
    let end = table.approximate_offset(&internal_key(b"zzz", 1, 7));
    assert!(end > meta.file_bytes * 8 / 10 && end < meta.file_bytes);
    let middle = offsets[2500] as f64 / end as f64;
    assert!((0.48..0.52).contains(&middle), "{middle}");
}

#[test]
fn the_format_does_not_move() {
    // If this fails, other bytes are written than before: if those can no longer be read, that takes a
    // new format version.
    let cmp = Comparator::Bytewise;
    let (file, meta) = build(&plain_entries(300, 40), &cmp, &options(1024, Compression::None));
    assert_eq!((meta.file_bytes, meta.checksum), (17_842, 98_936_984));
    assert_eq!(&file.bytes.read()[meta.file_bytes as usize - 8..], b"DiaTable");
}

#[test]
fn values_outlive_the_cursor_and_its_buffers() {
    let cmp = Comparator::Bytewise;
    let entries: Entries = (0..300u64)
        .map(|i| (internal_key(&i.to_be_bytes(), 1, 7), vec![i as u8; 500 + 30 * i as usize]))
        .collect();
    for compression in [Compression::None, Compression::Lz4] {
        let (file, _) = build(&entries, &cmp, &options(4096, compression));
        let table = open(&file, &cmp);
        for readahead_max in [0, READAHEAD_BYTES, 1 << 20] {
            let mut it = table.iter(IterSpec { readahead_max, ..IterSpec::default() });
            it.seek_to_first().expect("intact");
            let mut kept = Vec::new();
            while it.valid() {
                kept.push(it.value_slice());
                it.next().expect("intact");
            }
            drop(it);
            assert_eq!(kept.len(), entries.len());
            assert!(kept.iter().zip(&entries).all(|(kept, (_, value))| *kept == value[..]));
        }
    }
}

/// An event counter on a condition variable.
#[derive(Default)]
struct TestEvent(parking_lot::Mutex<u64>, parking_lot::Condvar);

impl dialsm_io::Event for TestEvent {
    fn epoch(&self) -> u64 {
        *self.0.lock()
    }
    fn wait(&self, seen: u64, _: Option<u64>) -> bool {
        let mut epoch = self.0.lock();
        while *epoch == seen {
            self.1.wait(&mut epoch);
        }
        true
    }
    fn notify(&self) {
        *self.0.lock() += 1;
        self.1.notify_all();
    }
}

#[test]
fn the_table_cache_opens_each_table_once_and_keeps_its_bounds() {
    let cmp = Comparator::Bytewise;
    let (file, _) = build(&plain_entries(1000, 10), &cmp, &TableOptions::default());
    let opens = AtomicU64::new(0);
    let open_slowly = || {
        opens.fetch_add(1, Relaxed);
        std::thread::yield_now();
        Ok(open(&file, &cmp))
    };
    let roomy = TableCache::new(100, 1 << 30, Arc::new(TestEvent::default()));
    std::thread::scope(|scope| {
        for t in 0..4 {
            let (roomy, open_slowly) = (&roomy, &open_slowly);
            scope.spawn(move || {
                for i in 0..400 {
                    roomy.get(FileNumber((i * 7 + t) % 20), open_slowly).expect("it opens");
                }
            });
        }
    });
    assert_eq!((opens.load(Relaxed), roomy.len()), (20, 20));
    roomy.evict(FileNumber(3));
    assert_eq!(roomy.len(), 19);

    let failed = roomy.get(FileNumber(3), || Err(Error::corruption("test")));
    assert_eq!(failed.map(|_| ()).expect_err("it says so").kind(), ErrorKind::Corruption);
    roomy.get(FileNumber(3), open_slowly).expect("an error is not kept");

    let one = open(&file, &cmp).memory_bytes() as u64;
    for (tables_max, bytes_max, most) in [(5, 1 << 30, 5), (1000, 3 * one + 10, 3), (1000, 1, 0)] {
        let tight = TableCache::new(tables_max, bytes_max, Arc::new(TestEvent::default()));
        for i in 0..200 {
            tight.get(FileNumber(i % 20), open_slowly).expect("it opens");
            assert!(tight.len() <= most && tight.usage() <= bytes_max, "{} of {most}", tight.len());
        }
        assert!(tight.len() + 1 >= most, "{} of {most}: the room is used", tight.len());
    }
}

#[test]
fn a_failed_write_is_not_forgotten() {
    let entries = plain_entries(20_000, 100);
    let header = FileHeader { kind: FileKind::Table, db_id: DB, number: NUMBER };
    let mut failed_in_add = 0;
    for room in [0, 63, 600 << 10, 1 << 20, 2 << 20, 2200 << 10] {
        let file = MemFile::with(Vec::new());
        file.room.store(room, Relaxed);
        let options = options(4096, Compression::None);
        let mut writer =
            TableWriter::new(file.clone(), header, Comparator::Bytewise, options).expect("valid");
        let mut outcome = Ok(());
        for (key, value) in &entries {
            match writer.add(key, value) {
                Ok(()) => assert!(outcome.is_ok(), "an entry was taken after a failure"),
                Err(e) if outcome.is_ok() => outcome = Err(e.kind()),
                Err(e) => assert_eq!(e.kind(), ErrorKind::Internal),
            }
        }
        // Space coming back changes nothing: what was lost is lost.
        file.room.store(if outcome.is_err() { u64::MAX } else { room }, Relaxed);
        failed_in_add += usize::from(outcome == Err(ErrorKind::NoSpace));
        assert!(writer.finish().is_err(), "room for {room} bytes");
    }
    assert!(failed_in_add >= 3, "{failed_in_add}");
}

#[test]
fn a_section_that_this_build_does_not_read_is_not_passed_over() {
    let cmp = Comparator::Bytewise;
    let (file, meta) = build(&plain_entries(10, 10), &cmp, &TableOptions::default());
    let mut bytes = file.bytes.read().clone();
    let at = bytes.len() - format::FOOTER_BYTES;
    let old = bytes[at..].try_into().expect("a footer's length");
    let footer = format::Footer::decode(&old, 64, meta.file_bytes).expect("intact");
    let footer = format::Footer { clues: footer.values, ..footer };
    bytes[at..].copy_from_slice(&footer.encode());
    let refused = open_with(&MemFile::with(bytes.clone()), &cmp, Arc::new(BlockCache::new(0)));
    assert_eq!(refused.map(|_| ()).expect_err("refused").kind(), ErrorKind::NewerFormat);
    // Entries of another kind are no range tombstones.
    let footer =
        format::Footer { clues: format::Handle::default(), range_tombstones: footer.values, ..footer };
    bytes[at..].copy_from_slice(&footer.encode());
    let refused = open_with(&MemFile::with(bytes), &cmp, Arc::new(BlockCache::new(0)));
    assert_eq!(refused.map(|_| ()).expect_err("refused").kind(), ErrorKind::Corruption);
}

mod range_dels;
mod stream;
