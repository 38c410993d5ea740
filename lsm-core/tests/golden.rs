//! Golden files: committed bytes of every format, which must read back for ever, and which today's
//! writers must still make. See `golden/README.md`; `UPDATE=1` makes them anew.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

mod hostile;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};

use dialsm::testing::ForcedRouter;
use dialsm_core::cache::BlockCache;
use dialsm_core::format::{FileHeader, FileKind};
use dialsm_core::key::{Comparator, Kind, internal_key};
use dialsm_core::options::Compression as Codec;
use dialsm_core::prefix::PrefixExtractor;
use dialsm_core::range_del::RangeTombstone;
use dialsm_core::read::internal::InternalIter;
use dialsm_core::routing::{Router, RouterObject, ShardState};
use dialsm_core::table::{
    Compression, IterSpec, ReadSpec, ReadStats, TableOptions, TableReader, TableWriter,
};
use dialsm_core::types::{DbId, FileNumber, SeqNo, TreeId};
use dialsm_core::upgrade::FORMAT_VERSION;
use dialsm_core::version::edit::{
    KeyspaceDesc, ManifestRecord, TableDesc, TreeEdit, UnloggedSpan, VoidInterval,
};
use dialsm_core::version::manifest::{ManifestWriter, read_current, read_manifest, write_current};
use dialsm_core::wal::{LogPosition, PrevEnd, SegmentWriter};
use dialsm_core::{
    CompactRangeOptions, Db, Options, ReadContext, ReadOptions, WriteBatch, WriteOptions, merge_operator,
};
use dialsm_io::{Access, CrashPolicy, Fs, SimEnv, SimFs};
use hostile::{DIR, Image, Model, contents, env_on, fs_of, image_of, open_on, put};

const DB_ID: DbId = *b"golden database!";

/// Files that are read back, but not compared with what is written today.
const READ_ONLY: [&str; 2] = ["000003.sst", "OPTIONS-000008"];

fn value(n: u32) -> Vec<u8> {
    (0..n % 90).map(|i| b'a' + ((n + i) % 26) as u8).collect()
}

fn key(n: u32) -> Vec<u8> {
    format!("golden key {n:05}").into_bytes()
}

/// What the operation with number `n` does; the number of its operation is its sequence number, too.
fn kind(n: u32) -> Kind {
    match n % 11 {
        3 => Kind::Delete,
        7 => Kind::SingleDelete,
        _ => Kind::Put,
    }
}

/// The operations of the database, oldest first: sequence number, number of the key.
fn operations() -> Vec<(SeqNo, u32)> {
    // Ever third key again in the second table, every seventh in the log.
    let first = (0..300).map(|n| (SeqNo::from(n) + 1, n));
    let second = (0..300).filter(|n| n % 3 == 0).map(|n| (SeqNo::from(n) + 1001, n));
    let log = (0..300).filter(|n| n % 7 == 0).zip(0..).map(|(n, i)| (2001 + i, n));
    first.chain(second).chain(log).collect()
}

/// What `seqno` does to key `n`.
fn effect(seqno: SeqNo, n: u32) -> (Kind, Vec<u8>) {
    let kind = kind(n + seqno as u32);
    (kind, if kind == Kind::Put { value(n + seqno as u32) } else { Vec::new() })
}

fn expected() -> Model {
    let mut model = Model::new();
    for (seqno, n) in operations() {
        match effect(seqno, n) {
            (Kind::Put, value) => drop(model.insert(key(n), value)),
            _ => drop(model.remove(&key(n))),
        }
    }
    model
}

fn options() -> Options {
    Options { write_buffer_bytes: 3 << 20, level_multiplier: 4.5, table_bytes: 1 << 20, ..Options::default() }
}

fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

fn table(fs: &SimFs, number: u64, seqnos: std::ops::Range<SeqNo>, compression: Compression) -> TableDesc {
    let file = fs.create(&path(&format!("{}.sst", FileNumber(number)))).expect("create");
    let header = FileHeader { kind: FileKind::Table, db_id: DB_ID, number: FileNumber(number) };
    let options =
        TableOptions { block_bytes: 512, index_partition_bytes: 256, compression, ..Default::default() };
    let mut writer = TableWriter::new(file, header, Comparator::default(), options).expect("writer");
    writer.set_property("golden.word", b"gold").expect("a property");
    // One operation a key, so that the order of keys is that of sequence numbers.
    for (seqno, n) in operations().into_iter().filter(|(seqno, _)| seqnos.contains(seqno)) {
        let (kind, value) = effect(seqno, n);
        writer.add(&internal_key(&key(n), seqno, kind as u8), &value).expect("add");
    }
    let meta = writer.finish().expect("finish");
    TableDesc {
        number: FileNumber(number),
        epoch: number,
        file_bytes: meta.file_bytes,
        checksum: meta.checksum,
        smallest: meta.smallest,
        largest: meta.largest,
        seqno_min: meta.seqno_min,
        seqno_max: meta.seqno_max,
        entries: meta.entries,
        deletes: meta.deletes,
        raw_key_bytes: meta.raw_key_bytes,
        raw_value_bytes: meta.raw_value_bytes,
        ..TableDesc::default()
    }
}

/// Two segments; the second one vouches for the first.
fn logs(fs: &SimFs) {
    let mut operations: Vec<_> = operations().into_iter().filter(|(seqno, _)| *seqno > 2000).collect();
    let rest = operations.split_off(operations.len() / 2);
    let mut previous = None;
    for (number, operations) in [(5, operations), (6, rest)] {
        let file = fs.create(&path(&format!("{}.log", FileNumber(number)))).expect("create");
        let first = operations[0].0;
        let mut writer =
            SegmentWriter::create(file, &DB_ID, FileNumber(number), previous, first).expect("segment");
        let mut synced = LogPosition::default();
        for group in operations.chunks(5) {
            let mut batch = WriteBatch::new();
            for (seqno, n) in group {
                match effect(*seqno, *n) {
                    (Kind::Delete, _) => batch.delete(&key(*n)).expect("delete"),
                    (Kind::SingleDelete, _) => batch.single_delete(&key(*n)).expect("delete"),
                    (_, value) => batch.put(&key(*n), &value).expect("put"),
                }
            }
            writer.append(group[0].0, group.len() as u32, &[batch.as_bytes()], synced).expect("append");
            synced = writer.position();
        }
        previous = Some(PrevEnd { position: writer.position(), synced: true });
    }
}

fn manifest(fs: &SimFs, plain: TableDesc, lz4: TableDesc) {
    let edit = |table: TableDesc, level: u8, floor: SeqNo, comparator: Option<String>| TreeEdit {
        comparator,
        added: vec![(level, table)],
        floor: Some(floor),
        ..TreeEdit::default()
    };
    let snapshot = ManifestRecord {
        edits: vec![edit(plain, 6, 301, Some(Comparator::default().name().to_owned()))],
        next_file_number: Some(FileNumber(5)),
        last_seqno: Some(300),
        replay_start: Some(FileNumber(0)),
        format_version: Some(FORMAT_VERSION),
        ..ManifestRecord::default()
    };
    let flushed = ManifestRecord {
        edits: vec![edit(lz4, 0, 2001, None)],
        next_file_number: Some(FileNumber(7)),
        last_seqno: Some(2020),
        replay_start: Some(FileNumber(5)),
        log_named: Some(FileNumber(6)),
        ..ManifestRecord::default()
    };
    let file = fs.create(&path("MANIFEST-000004")).expect("create");
    let mut writer = ManifestWriter::create(file, &DB_ID, FileNumber(4), &snapshot).expect("manifest");
    writer.append(&flushed).expect("append");
    writer.mark(&ManifestRecord { last_seqno: Some(2020), ..ManifestRecord::default() }).expect("mark");
    write_current(fs, Path::new(DIR), FileNumber(4)).expect("CURRENT");
}

/// The text that an opening with [`options`] writes.
fn options_text() -> Vec<u8> {
    let fs = SimFs::new(0);
    drop(open_on(fs.clone(), &options()).expect("open"));
    let image = image_of(fs.as_ref(), Path::new(DIR));
    let (_, text) = image.into_iter().find(|(name, _)| name.starts_with("OPTIONS")).expect("OPTIONS");
    text
}

fn database() -> Image {
    let fs = SimFs::new(0);
    fs.create_dir_all(Path::new(DIR)).expect("directory");
    let plain = table(&fs, 2, 1..1001, Compression::None);
    let lz4 = table(&fs, 3, 1001..2001, Compression::Lz4);
    logs(&fs);
    manifest(&fs, plain, lz4);
    let mut image = image_of(fs.as_ref(), Path::new(DIR));
    image.insert("OPTIONS-000008".into(), options_text());
    image
}

fn batch() -> WriteBatch {
    let mut batch = WriteBatch::new();
    for keyspace in [0, 1, 300] {
        batch.put_in(keyspace, b"put", b"a value").expect("put");
        batch.put_in(keyspace, b"", b"").expect("put");
        batch.delete_in(keyspace, b"deleted").expect("delete");
        batch.single_delete_in(keyspace, b"deleted once").expect("single delete");
        batch.merge_in(keyspace, b"merged", b"operand").expect("merge");
        batch.delete_range_in(keyspace, b"from", b"to").expect("delete range");
    }
    batch.put(&[0xff; 200], &[7; 300]).expect("put");
    batch
}

fn all_fields() -> Vec<ManifestRecord> {
    let tree = TreeId { keyspace: 3, shard: 2 };
    let table = TableDesc {
        number: FileNumber(70),
        epoch: 71,
        file_bytes: 1 << 40,
        checksum: 0xdead_beef,
        smallest: internal_key(b"a", 5, Kind::Put as u8),
        largest: internal_key(b"z", 4, Kind::Delete as u8),
        seqno_min: 4,
        seqno_max: 5,
        logged_seqno_max: 5,
        entries: 9,
        deletes: 2,
        range_deletes: 1,
        raw_key_bytes: 100,
        raw_value_bytes: 200,
        dir_id: 1,
        clues: 3,
        clue_bytes: 0,
        redirected: 4,
        redirected_bytes: 400,
    };
    let all = ManifestRecord {
        next_file_number: Some(FileNumber(99)),
        last_seqno: Some(12_345),
        replay_start: Some(FileNumber(80)),
        log_named: Some(FileNumber(81)),
        replay_end: Some(LogPosition { segment: FileNumber(79), offset: 4_096 }),
        hash_key: Some(*b"sixteen byte key"),
        keyspaces_created: vec![KeyspaceDesc {
            id: 3,
            name: "ksp\u{e4}ce".into(),
            shards: 4,
            comparator: "dialsm.bytewise".into(),
        }],
        keyspaces_dropped: vec![1, 2],
        keyspace_id_next: Some(7),
        void_intervals: vec![VoidInterval { tree, from: 10, to: 20 }],
        unlogged: None,
        format_version: Some(FORMAT_VERSION),
        edits: vec![TreeEdit {
            tree,
            comparator: Some("dialsm.bytewise".into()),
            merge_operator: Some("dialsm.counter".into()),
            added: vec![(1, table)],
            removed: vec![(0, FileNumber(60)), (2, FileNumber(61))],
            floor: Some(1_000),
            cursors: vec![(1, internal_key(b"m", 1, Kind::Put as u8))],
        }],
    };
    vec![all, ManifestRecord { last_seqno: Some(12_346), ..ManifestRecord::default() }]
}

/// What came later: a span of sequences without log, closed and open; the bytes of clues' keys.
fn later_fields() -> Vec<ManifestRecord> {
    let span = |to| ManifestRecord {
        unlogged: Some(UnloggedSpan { from: 300, to }),
        edits: vec![TreeEdit {
            added: vec![(0, TableDesc { clues: 3, clue_bytes: 30, ..TableDesc::default() })],
            ..TreeEdit::default()
        }],
        ..ManifestRecord::default()
    };
    let mut all = vec![span(Some(400)), span(None)];
    for table in all.iter_mut().flat_map(|record| &mut record.edits[0].added) {
        (table.1.smallest, table.1.largest) = (internal_key(b"a", 5, 5), internal_key(b"b", 4, 5));
    }
    all
}

fn manifest_of(records: &[ManifestRecord]) -> Vec<u8> {
    let fs = SimFs::new(0);
    let file = fs.create(Path::new("/m")).expect("create");
    let mut writer = ManifestWriter::create(file, &DB_ID, FileNumber(9), &records[0]).expect("manifest");
    records[1..].iter().for_each(|record| writer.append(record).expect("append"));
    hostile::read_file(fs.as_ref(), Path::new("/m"))
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1").join(name)
}

/// With `UPDATE=1` makes the files anew, once, before any test looks at them.
fn update() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if std::env::var_os("UPDATE").is_none() {
            return;
        }
        let write = |name: &str, bytes: &[u8]| std::fs::write(golden(name), bytes).expect("write");
        let _ = std::fs::remove_dir_all(golden(""));
        std::fs::create_dir_all(golden("db")).expect("tests/golden is writable");
        write("batch.bin", batch().as_bytes());
        write("manifest-all.bin", &manifest_of(&all_fields()));
        write("manifest-later.bin", &manifest_of(&later_fields()));
        for (name, whole_keys) in TABLES {
            write(name, &table_with_all(whole_keys));
        }
        database().iter().for_each(|(name, bytes)| write(&format!("db/{name}"), bytes));
        for (dir, image) in [("shards", sharded().0), ("unlogged", unlogged())] {
            std::fs::create_dir_all(golden(dir)).expect("tests/golden is writable");
            image.iter().for_each(|(name, bytes)| write(&format!("{dir}/{name}"), bytes));
        }
    });
}

/// Tables with every kind of entry and every section; with filters of keys and prefixes, and of
/// prefixes only.
const TABLES: [(&str, bool); 2] = [("table-all.sst", true), ("table-prefixes.sst", false)];

/// Their entries: a put, a merge operand over it, a delete or single delete, each with its own key.
fn entries_of_all() -> Vec<(Vec<u8>, Vec<u8>)> {
    let kinds = [Kind::Put, Kind::Merge, Kind::Delete, Kind::SingleDelete];
    let entry = |n: u32| {
        let kind = kinds[(n % 4) as usize];
        let is_tombstone = matches!(kind, Kind::Delete | Kind::SingleDelete);
        let value = if is_tombstone { Vec::new() } else { value(n) };
        (internal_key(&key(n), SeqNo::from(n) + 10, kind as u8), value)
    };
    (0..120).map(entry).collect()
}

fn tombstones_of_all() -> Vec<RangeTombstone> {
    let tombstone =
        |from: u32, to: u32, seqno| RangeTombstone { start: key(from).into(), end: key(to).into(), seqno };
    // In pieces that overlap wholly or not at all.
    let pieces = [(10, 20, 500), (20, 30, 501), (20, 30, 500), (30, 40, 500), (110, 300, 7)];
    pieces.map(|(from, to, seqno)| tombstone(from, to, seqno)).to_vec()
}

fn extractor() -> PrefixExtractor {
    PrefixExtractor::Fixed(14)
}

fn table_with_all(filter_whole_keys: bool) -> Vec<u8> {
    let fs = SimFs::new(1);
    fs.create_dir_all(Path::new(DIR)).expect("directory");
    let header = FileHeader { kind: FileKind::Table, db_id: DB_ID, number: FileNumber(7) };
    let options = TableOptions {
        block_bytes: 512,
        index_partition_bytes: 256,
        compression: Compression::None,
        prefix_extractor: Some(extractor()),
        filter_whole_keys,
        ..Default::default()
    };
    let file = fs.create(&path("table")).expect("create");
    let mut writer = TableWriter::new(file, header, Comparator::default(), options).expect("writer");
    writer.set_property("merge.operator", b"dialsm.counter").expect("a property");
    for (key, value) in entries_of_all() {
        writer.add(&key, &value).expect("add");
    }
    tombstones_of_all().iter().for_each(|t| writer.add_range_tombstone(t).expect("tombstone"));
    writer.finish().expect("finish");
    image_of(&*fs, Path::new(DIR)).remove("table").expect("it was just written")
}

/// The committed database.
fn committed() -> Image {
    committed_in("db")
}

fn committed_in(dir: &str) -> Image {
    let entries = std::fs::read_dir(golden(dir)).expect("tests/golden/v1 has it");
    entries
        .map(|entry| {
            let entry = entry.expect("entry");
            let name = entry.file_name().into_string().expect("text");
            (name, std::fs::read(entry.path()).expect("read"))
        })
        .collect()
}

/// Compares bytes without printing them.
fn assert_bytes(what: &str, found: &[u8], wanted: &[u8]) {
    let differs = found.iter().zip(wanted).position(|(a, b)| a != b);
    assert!(
        found == wanted,
        "{what}: {} and {} bytes, first difference at {differs:?}",
        found.len(),
        wanted.len()
    );
}

#[test]
fn today_s_writers_make_the_committed_bytes() {
    update();
    let (batch, manifest, image) = (batch(), manifest_of(&all_fields()), database());
    let read = |name: &str| std::fs::read(golden(name)).expect("committed");
    assert_bytes("batch.bin", batch.as_bytes(), &read("batch.bin"));
    assert_bytes("manifest-all.bin", &manifest, &read("manifest-all.bin"));
    let committed = committed();
    assert_eq!(image.keys().collect::<Vec<_>>(), committed.keys().collect::<Vec<_>>());
    let mut compared = 0;
    for (name, bytes) in image.iter().filter(|(name, _)| !READ_ONLY.contains(&name.as_str())) {
        // The manifest names the LZ4 table's bytes: with another compressor it differs, too.
        if name.starts_with("MANIFEST") && image["000003.sst"] != committed["000003.sst"] {
            continue;
        }
        assert_bytes(name, bytes, &committed[name]);
        compared += 1;
    }
    assert!(compared >= 4, "{compared}");
    // Of OPTIONS, all that was there then is there now.
    let (now, then) = (&image["OPTIONS-000008"], &committed["OPTIONS-000008"]);
    let now = String::from_utf8(now.clone()).expect("text");
    for line in String::from_utf8(then.clone()).expect("text").lines().filter(|line| !line.starts_with('#')) {
        assert!(now.lines().any(|other| other == line), "{line}");
    }
}

#[test]
fn the_committed_database_reads_back() {
    update();
    let mut image = committed();
    image.insert("LOCK".into(), Vec::new());
    let fs = fs_of(&image);
    let saved = Options::load(env_on(fs.clone()).as_ref(), Path::new(DIR)).expect("OPTIONS");
    for name in ["write_buffer_bytes", "level_multiplier", "table_bytes", "filter_bits_per_key"] {
        assert_eq!(saved.get(name).expect("known"), options().get(name).expect("known"), "{name}");
    }
    let expected = expected();
    assert!(expected.len() > 200 && expected.len() < 300, "{}", expected.len());
    let strict = Options {
        recovery_mode: dialsm_core::options::RecoveryMode::AbsoluteConsistency,
        create_if_missing: false,
        ..Options::default()
    };
    let reader = Db::open_read_only(env_on(fs.clone()), Path::new(DIR), strict.clone()).expect("open");
    assert_eq!(contents(&reader), expected);
    let report = reader.verify(&mut |_, _| {}).expect("verify");
    assert_eq!((report.tables, report.entries), (2, 400));
    drop(reader);
    // And can be written on.
    let db = open_on(fs.clone(), &strict).expect("open");
    put(&db, b"one more", b"v");
    db.compact_range(&Default::default(), None, None).expect("compact");
    drop(db);
    let db = open_on(fs, &strict).expect("open");
    assert_eq!(contents(&db).len(), expected.len() + 1);
}

#[test]
fn the_committed_batch_and_records_read_back() {
    update();
    let bytes = std::fs::read(golden("batch.bin")).expect("committed");
    let read = WriteBatch::from_bytes(bytes).expect("a batch");
    let written = batch();
    assert_eq!((read.len(), read.as_bytes()), (19, written.as_bytes()));
    for (read, written) in read.iter().zip(written.iter()) {
        let (read, written) = (read.expect("whole"), written.expect("whole"));
        assert_eq!(
            (read.keyspace, read.kind, read.key, read.value),
            (written.keyspace, written.kind, written.key, written.value)
        );
    }
    assert_eq!(records_of("manifest-all.bin"), all_fields());
    assert_eq!(records_of("manifest-later.bin"), later_fields());
    let later = std::fs::read(golden("manifest-later.bin")).expect("committed");
    assert_bytes("manifest-later.bin", &manifest_of(&later_fields()), &later);
}

fn records_of(name: &str) -> Vec<ManifestRecord> {
    let bytes = std::fs::read(golden(name)).expect("committed");
    let fs: Arc<SimFs> = fs_of(&Image::from([("manifest".to_owned(), bytes)]));
    let mut records = Vec::new();
    let end = read_manifest(fs.open(&path("manifest"), Access::Read).expect("open"), &mut |_, record| {
        records.push(record);
        Ok(())
    })
    .expect("intact");
    assert_eq!((end.header.db_id, end.header.number, end.torn), (DB_ID, FileNumber(9), false));
    records
}

#[test]
fn the_committed_tables_read_back() {
    update();
    for (name, whole_keys) in TABLES {
        let bytes = std::fs::read(golden(name)).expect("committed");
        assert_bytes(name, &table_with_all(whole_keys), &bytes);
        let len = bytes.len() as u64;
        let fs: Arc<SimFs> = fs_of(&Image::from([("table".to_owned(), bytes)]));
        let file = fs.open(&path("table"), Access::Read).expect("open");
        let (number, cache) = (FileNumber(7), Arc::new(BlockCache::new(1 << 20)));
        let order = Comparator::default();
        let table =
            TableReader::open_with_prefixes(file, &DB_ID, number, len, order, Some(&extractor()), cache)
                .expect("intact");
        let mut iter = table.iter(IterSpec::whole_table());
        iter.seek_to_first().expect("first");
        let mut found = Vec::new();
        while iter.valid() {
            found.push((iter.key().to_vec(), iter.value().to_vec()));
            iter.next().expect("next");
        }
        assert!(found == entries_of_all(), "{name}");
        let mut tombstones: Vec<RangeTombstone> = table.range_dels().expect("a section").iter().collect();
        let order = |t: &RangeTombstone| (t.start.clone(), SeqNo::MAX - t.seqno);
        tombstones.sort_by_key(order);
        let expected = tombstones_of_all();
        assert!(tombstones == expected, "{name}");
        assert_eq!(table.properties().other("merge.operator"), Some(&b"dialsm.counter"[..]));
        // The filter answers as it did: what is there may be there, most of what is not is denied.
        let (spec, mut stats) = (ReadSpec::default(), ReadStats::default());
        for n in 0..120 {
            assert!(
                table.get(&key(n), SeqNo::MAX >> 8, &spec, &mut stats).expect("get").is_some(),
                "{name} {n}"
            );
        }
        for n in 0..120 {
            let absent = format!("absent key {n:05}").into_bytes();
            assert!(table.get(&absent, SeqNo::MAX >> 8, &spec, &mut stats).expect("get").is_none());
        }
        assert!(stats.filter_useful > 100, "{name}: {stats:?}");
    }
}

/// Three shards, small tables, nothing by itself.
fn of_three_shards(router: RouterObject) -> Options {
    Options {
        shards: 3,
        router: Some(router),
        write_buffer_bytes: 64 << 10,
        log_segment_bytes: 64 << 10,
        automatic_compaction: false,
        rollback: false,
        use_io_uring: false,
        compression: Codec::Lz4,
        merge_operator: Some(merge_operator::append(b"+")),
        ..Options::default()
    }
}

/// Keys are placed by their hash, with the key of the database; half of all values are redirected.
fn hashed() -> Options {
    of_three_shards(ForcedRouter::object(500, 3))
}

/// What a power cut leaves of a machine on which `work` was done, without the lock's file.
fn made(work: impl FnOnce(&Arc<SimEnv>)) -> Image {
    let env = SimEnv::new(11);
    env.run(|| work(&env));
    let disk = env.sim_fs().crash_image(CrashPolicy::DropUnsynced);
    let mut image = image_of(disk.as_ref(), Path::new(DIR));
    image.remove("LOCK");
    image
}

/// A database whose clues lie in L0, with older values and alone, and deeper; in the log, too. And what it
/// holds.
fn sharded() -> (Image, Model) {
    let mut model = Model::new();
    let image = made(|env| {
        let db = Db::open(env.clone(), Path::new(DIR), hashed()).expect("open");
        for round in 0..4 {
            for n in (0..60).filter(|n| n % (round + 1) == 0) {
                let synced = WriteOptions { sync: true, ..WriteOptions::default() };
                let bytes = value(n * 7 + round);
                let (key, entry) = (key(n), model.entry(key(n)));
                match (n + round) % 6 {
                    2 => {
                        db.delete(&synced, &key).expect("delete");
                        model.remove(&key);
                    }
                    4 => {
                        db.merge(&synced, &key, &bytes).expect("merge");
                        let join = |old: &mut Vec<u8>| *old = [old.as_slice(), &bytes].join(&b'+');
                        entry.and_modify(join).or_insert(bytes);
                    }
                    _ => {
                        db.put(&synced, &key, &bytes).expect("put");
                        model.insert(key, bytes);
                    }
                }
            }
            let down = CompactRangeOptions { target_level: Some(2), ..Default::default() };
            match round {
                0 => db.compact_range(&down, None, None).expect("compact"),
                3 => {}
                _ => db.flush().expect("flush"),
            }
        }
    });
    (image, model)
}

/// Keys belong to shards by their first letters; while it is on, values go to the next shard.
struct ByLetter(AtomicBool);

impl Router for ByLetter {
    fn place(&self, _: &[u8; 16], shards: u16, key: &[u8]) -> u16 {
        u16::from(key[0] - b'a') % shards
    }

    fn fallback(&self, primary: u16, shards: &[ShardState]) -> Option<u16> {
        self.0.load(Ordering::SeqCst).then(|| (primary + 1) % shards.len() as u16)
    }

    fn shards_by_default(&self, _: usize) -> u16 {
        3
    }

    fn is_asked_always(&self) -> bool {
        true
    }
}

fn by_letter() -> (Arc<ByLetter>, Options) {
    let router = Arc::new(ByLetter(AtomicBool::new(false)));
    let options = of_three_shards(RouterObject(router.clone()));
    (router, Options { log: false, ..options })
}

/// A database whose log was off, as a power cut leaves it: shard 0 was flushed, and has a clue whose value is
/// lost, and a value whose clue is.
fn unlogged() -> Image {
    made(|env| {
        let (router, options) = by_letter();
        let db = Db::open(env.clone(), Path::new(DIR), options).expect("open");
        let put = |key: &[u8], value: &[u8]| db.put(&WriteOptions::default(), key, value).expect("put");
        put(b"a1", b"older");
        put(b"b1", b"native");
        db.flush().expect("flush");
        router.0.store(true, Ordering::SeqCst);
        put(b"a1", b"lost");
        put(b"c1", b"kept");
        db.merge(&WriteOptions::default(), b"c2", b"kept").expect("merge");
        router.0.store(false, Ordering::SeqCst);
        let flushes = db.metrics().counters.flushes;
        while db.metrics().counters.flushes == flushes || db.unsettled_installs() > 0 {
            put(b"a2", &[b'f'; 20_000]);
            dialsm_io::Env::sleep(env.as_ref(), 10_000_000);
        }
    })
}

/// The records of the manifest in force.
fn manifest_in(fs: &Arc<SimFs>) -> Vec<ManifestRecord> {
    let (_, path) = read_current(fs.as_ref(), Path::new(DIR)).expect("CURRENT");
    let mut records = Vec::new();
    read_manifest(fs.open(&path, Access::Read).expect("open"), &mut |_, record| {
        records.push(record);
        Ok(())
    })
    .expect("intact");
    records
}

#[test]
fn the_committed_database_of_shards_reads_back() {
    update();
    let expected = sharded().1;
    let mut image = committed_in("shards");
    image.insert("LOCK".into(), Vec::new());
    let fs = fs_of(&image);
    let records = manifest_in(&fs);
    assert!(records[0].hash_key.is_some_and(|key| key != [0; 16]), "keys are placed with a key");
    assert_eq!(records[0].keyspaces_created[0].shards, 3);
    let edits = || records.iter().flat_map(|record| &record.edits);
    let removed: Vec<_> = edits().flat_map(|edit| edit.removed.clone()).collect();
    let is_there = |(level, table): &(u8, TableDesc)| !removed.contains(&(*level, table.number));
    let tables: Vec<(u8, TableDesc)> =
        edits().flat_map(|edit| edit.added.clone()).filter(|table| is_there(table)).collect();
    assert!(
        tables
            .iter()
            .any(|(level, table)| *level == 0 && table.clues == table.entries && table.clue_bytes > 0)
    );
    assert!(
        tables.iter().any(|(level, table)| *level == 0 && table.clues > 0 && table.clues < table.entries)
    );
    assert!(
        tables.iter().any(|(level, table)| *level > 0 && table.redirected > 0 && table.redirected_bytes > 0)
    );
    let reader = Db::open_read_only(env_on(fs.clone()), Path::new(DIR), hashed()).expect("open");
    assert_eq!(contents(&reader), expected);
    let report = reader.verify(&mut |_, _| {}).expect("verify");
    let in_l0: u64 = tables.iter().filter(|(level, _)| *level == 0).map(|(_, table)| table.clues).sum();
    // The others are in the memtables, from the log.
    assert!(report.clues > in_l0 && report.void_clues == 0, "{report:?}, {in_l0} in L0");
    let mut context = ReadContext::default();
    for (key, value) in &expected {
        let found = reader.get_with_context(&ReadOptions::default(), key, &mut context).expect("get");
        assert_eq!(found.as_deref(), Some(value.as_slice()));
    }
    assert!(context.clue_hops > 10, "{context:?}");
    drop(reader);
    let db = open_on(fs, &hashed()).expect("open");
    assert!(number(&db, "dialsm.num-entries-active-memtable") > 20, "from the log");
    assert_eq!(contents(&db), expected);
    db.rollback().expect("rollback");
    assert_eq!(number(&db, "dialsm.clues"), 0);
    assert_eq!(contents(&db), expected);
}

#[test]
fn the_committed_database_without_log_reads_back() {
    update();
    let fs = fs_of(&committed_in("unlogged"));
    let is_open = |record: &ManifestRecord| record.unlogged.is_some_and(|span| span.to.is_none());
    assert!(manifest_in(&fs).iter().any(is_open), "a span without log");
    let (_, options) = by_letter();
    for opening in 0..3 {
        let db = open_on(fs.clone(), &options).expect("open");
        let found = contents(&db);
        let get = |key: &[u8]| found.get(key).map(Vec::as_slice);
        assert_eq!((get(b"a1"), get(b"b1")), (Some(&b"older"[..]), Some(&b"native"[..])), "{opening}");
        assert_eq!((get(b"c1"), get(b"c2")), (Some(&b"kept"[..]), Some(&b"kept"[..])), "{opening}");
        assert_eq!(found.len(), 5);
        let report = db.verify(&mut |_, _| {}).expect("verify");
        assert_eq!((report.clues, report.void_clues), (2, 1), "{opening}");
        let is_remembered = |record: &ManifestRecord| !record.void_intervals.is_empty();
        assert!(manifest_in(&fs).iter().any(is_remembered), "{opening}");
    }
}

fn number(db: &Db, property: &str) -> u64 {
    db.property(property).expect("a known property").parse().expect("a number")
}

/// A table of the fallback was taken out, with all that the manifest said of it. Nobody else lacks anything, and
/// what is broken is named.
#[test]
fn clues_whose_values_are_gone_are_findings() {
    update();
    let fs = fs_of(&committed_in("shards"));
    let records = manifest_in(&fs);
    let expected = sharded().1;
    // All of it as one record, without the last table with redirected entries.
    let mut edits: Vec<TreeEdit> = Vec::new();
    let mut merged = records[0].clone();
    for edit in records.iter().flat_map(|record| record.edits.clone()) {
        match edits.iter_mut().find(|known| known.tree == edit.tree) {
            None => edits.push(edit),
            Some(known) => {
                known.added.retain(|(_, table)| !edit.removed.iter().any(|(_, gone)| *gone == table.number));
                known.added.extend(edit.added);
                known.floor = edit.floor.or(known.floor);
            }
        }
    }
    for record in &records {
        merged.next_file_number = record.next_file_number.or(merged.next_file_number);
        merged.last_seqno = record.last_seqno.or(merged.last_seqno);
        merged.replay_start = record.replay_start.or(merged.replay_start);
        merged.log_named = record.log_named.or(merged.log_named);
    }
    let holds_some = |edit: &&mut TreeEdit| edit.added.iter().any(|(_, table)| table.redirected > 0);
    let edit = edits.iter_mut().find(holds_some).expect("a shard with redirected entries");
    let shard = edit.tree.shard;
    let lost: u64 = edit.added.iter().map(|(_, table)| table.redirected).sum();
    edit.added.retain(|(_, table)| table.redirected == 0);
    merged.edits = edits;
    let (old, path) = read_current(fs.as_ref(), Path::new(DIR)).expect("CURRENT");
    let db_id = read_manifest(fs.open(&path, Access::Read).expect("open"), &mut |_, _| Ok(()))
        .expect("intact")
        .header
        .db_id;
    let fresh = FileNumber(old.0 + 1000);
    let file = fs.create(&path_of(fresh)).expect("create");
    merged.next_file_number = Some(FileNumber(fresh.0 + 1));
    drop(ManifestWriter::create(file, &db_id, fresh, &merged).expect("manifest"));
    write_current(fs.as_ref(), Path::new(DIR), fresh).expect("CURRENT");
    let db = open_on(fs, &hashed()).expect("open");
    let broken = db.broken_clues().expect("all tables can be read");
    assert!(!broken.is_empty() && broken.len() as u64 <= lost, "{} of {lost}", broken.len());
    assert!(
        broken.iter().all(|clue| clue.fallback == shard && clue.shard != shard && clue.keyspace == "default")
    );
    let error = db.verify(&mut |_, _| {}).expect_err("a clue leads to nothing");
    assert_eq!(error.kind(), dialsm_core::ErrorKind::Corruption);
    assert!(error.to_string().contains(&format!("value shard {shard} does not hold")), "{error}");
    assert!(!error.to_string().contains("golden key"), "no key in a text");
    // What has nothing to do with it is there, and nothing wrong is.
    let mut whole = 0;
    for (key, value) in &expected {
        match db.get(&ReadOptions::default(), key) {
            Ok(found) if found.as_deref() == Some(value.as_slice()) => whole += 1,
            Ok(_) => {
                assert!(!broken.iter().any(|clue| clue.key == *key), "it is broken, and was not said to be")
            }
            Err(error) => {
                assert_eq!(error.kind(), dialsm_core::ErrorKind::Corruption);
                assert!(broken.iter().any(|clue| clue.key == *key));
            }
        }
    }
    assert!(whole > 10, "{whole}");
}

fn path_of(manifest: FileNumber) -> PathBuf {
    path(&format!("MANIFEST-{manifest}"))
}
