use super::*;
use crate::key::internal_key;
use crate::wal::testfs::Rng;

fn some<T>(rng: &mut Rng, make: impl FnOnce(&mut Rng) -> T) -> Option<T> {
    (rng.below(2) == 0).then(|| make(rng))
}

fn list<T>(rng: &mut Rng, mut make: impl FnMut(&mut Rng) -> T) -> Vec<T> {
    (0..rng.below(4)).map(|_| make(rng)).collect()
}

fn random_tree(rng: &mut Rng) -> TreeId {
    TreeId { keyspace: rng.next() as u32, shard: rng.next() as u16 }
}

fn random_key(rng: &mut Rng) -> Vec<u8> {
    let n = rng.below(40) as usize;
    let user_key = rng.bytes(n);
    internal_key(&user_key, rng.below(SEQNO_MAX), 7)
}

fn random_table(rng: &mut Rng) -> TableDesc {
    let seqno_max = rng.below(SEQNO_MAX);
    TableDesc {
        number: FileNumber(rng.next()),
        epoch: rng.below(1000),
        file_bytes: rng.next(),
        checksum: rng.next() as u32,
        smallest: random_key(rng),
        largest: random_key(rng),
        seqno_min: rng.below(seqno_max),
        seqno_max,
        logged_seqno_max: rng.below(seqno_max),
        entries: rng.next(),
        deletes: rng.below(300),
        range_deletes: rng.below(3),
        raw_key_bytes: rng.next(),
        raw_value_bytes: rng.next(),
        dir_id: rng.below(3) as u8,
        clues: rng.below(3),
        clue_bytes: rng.below(1 << 20),
        redirected: rng.below(3),
        redirected_bytes: rng.below(3),
    }
}

fn random_edit(rng: &mut Rng) -> TreeEdit {
    TreeEdit {
        tree: random_tree(rng),
        comparator: some(rng, |rng| format!("order-{}", rng.below(1000))),
        merge_operator: some(rng, |rng| format!("merge-{}", rng.below(1000))),
        added: list(rng, |rng| (rng.below(7) as u8, random_table(rng))),
        removed: list(rng, |rng| (rng.below(7) as u8, FileNumber(rng.next()))),
        floor: some(rng, |rng| rng.below(SEQNO_MAX)),
        cursors: list(rng, |rng| (rng.below(7) as u8, random_key(rng))),
    }
}

pub(in crate::version) fn random_record(rng: &mut Rng) -> ManifestRecord {
    ManifestRecord {
        unlogged: some(rng, |rng| UnloggedSpan {
            from: rng.below(SEQNO_MAX),
            to: some(rng, |rng| 1 + rng.below(SEQNO_MAX)),
        }),
        // Always something: an empty record can't be written.
        next_file_number: Some(FileNumber(rng.next())),
        last_seqno: some(rng, |rng| rng.below(SEQNO_MAX)),
        replay_start: some(rng, |rng| FileNumber(rng.next())),
        log_named: some(rng, |rng| FileNumber(rng.next())),
        replay_end: some(rng, |rng| LogPosition { segment: FileNumber(rng.next()), offset: rng.next() }),
        hash_key: some(rng, |rng| [rng.next() as u8; 16]),
        keyspaces_created: list(rng, |rng| KeyspaceDesc {
            id: rng.next() as u32,
            name: format!("k\u{e9}yspace {}", rng.below(99)),
            shards: rng.next() as u16,
            comparator: "dialsm.bytewise".into(),
        }),
        keyspaces_dropped: list(rng, |rng| rng.next() as u32),
        keyspace_id_next: some(rng, |rng| rng.next() as u32),
        void_intervals: list(rng, |rng| {
            let to = rng.below(SEQNO_MAX) + 2;
            VoidInterval { tree: random_tree(rng), from: rng.below(to), to }
        }),
        format_version: some(rng, |_| crate::upgrade::FORMAT_VERSION),
        edits: list(rng, random_edit),
    }
}

fn bytes_of(record: &ManifestRecord) -> Vec<u8> {
    let mut out = Vec::new();
    record.encode(&mut out);
    out
}

#[test]
fn random_records_round_trip_and_damage_is_typed() {
    let mut rng = Rng::new(5);
    let (mut tables, mut refused, mut newer) = (0, 0, 0);
    for _ in 0..500 {
        let record = random_record(&mut rng);
        tables += record.edits.iter().map(|e| e.added.len()).sum::<usize>();
        let bytes = bytes_of(&record);
        assert_eq!(ManifestRecord::decode(&bytes).expect("well-formed"), record);
        for _ in 0..20 {
            let mut bad = bytes.clone();
            for _ in 0..=rng.below(3) {
                let at = rng.below(bad.len() as u64) as usize;
                match rng.below(3) {
                    0 => bad[at] = rng.next() as u8,
                    1 => bad.truncate(at.max(1)),
                    _ => bad.insert(at, rng.next() as u8),
                }
            }
            if let Err(e) = ManifestRecord::decode(&bad) {
                assert!(matches!(e.kind(), ErrorKind::Corruption | ErrorKind::NewerFormat), "{e}");
                refused += 1;
                newer += usize::from(e.kind() == ErrorKind::NewerFormat);
            }
        }
    }
    assert!(tables > 500 && refused > 3000 && newer > 20, "{tables} {refused} {newer}");
}

#[test]
fn unknown_fields_are_skipped_or_refused_by_their_lowest_bit() {
    let table = random_table(&mut Rng::new(8));
    let tree = TreeId { keyspace: 1, shard: 2 };
    // At each of the three depths, a field behind the known ones.
    let build = |record_tag: Option<u64>, edit_tag: Option<u64>, table_tag: Option<u64>| {
        let unknown = |out: &mut Vec<u8>, tag: Option<u64>| {
            if let Some(tag) = tag {
                field(out, tag, |out| out.extend_from_slice(b"news"));
            }
        };
        let mut out = Vec::new();
        field(&mut out, tag::TREE_EDIT, |out| {
            field(out, tag::TREE, |out| put_tree(out, tree));
            field(out, tag::ADDED, |out| {
                out.push(3);
                table.encode(out);
                unknown(out, table_tag);
            });
            unknown(out, edit_tag);
        });
        unknown(&mut out, record_tag);
        out
    };
    let edit = TreeEdit { tree, added: vec![(3, table.clone())], ..TreeEdit::default() };
    let want = ManifestRecord { edits: vec![edit], ..ManifestRecord::default() };
    assert_eq!(ManifestRecord::decode(&build(None, None, None)).expect("plain"), want);
    for odd in [1, 99, (1 << 40) + 1] {
        let bytes = build(Some(odd), Some(odd), Some(odd));
        assert_eq!(ManifestRecord::decode(&bytes).expect("ignorable"), want);
    }
    for even in [0, 100, 1 << 40] {
        for bytes in
            [build(Some(even), None, None), build(None, Some(even), None), build(None, None, Some(even))]
        {
            let err = ManifestRecord::decode(&bytes).expect_err("must know");
            assert_eq!(err.kind(), ErrorKind::NewerFormat);
        }
    }
}

#[test]
fn nonsense_in_well_formed_fields_is_corruption() {
    let table = random_table(&mut Rng::new(8));
    let edit = |table: TableDesc| ManifestRecord {
        edits: vec![TreeEdit { added: vec![(0, table)], ..TreeEdit::default() }],
        ..ManifestRecord::default()
    };
    let bad = [
        edit(TableDesc { smallest: vec![0; 7], ..table.clone() }),
        edit(TableDesc { largest: vec![0; KEY_BYTES_MAX + 9], ..table.clone() }),
        edit(TableDesc { seqno_min: 2, seqno_max: 1, logged_seqno_max: 0, ..table.clone() }),
        edit(TableDesc { seqno_max: SEQNO_MAX + 1, ..table.clone() }),
        ManifestRecord { last_seqno: Some(SEQNO_MAX + 1), ..ManifestRecord::default() },
    ];
    for record in bad {
        let err = ManifestRecord::decode(&bytes_of(&record)).expect_err("nonsense");
        assert_eq!(err.kind(), ErrorKind::Corruption);
    }
    let mut no_tree = Vec::new();
    field(&mut no_tree, tag::TREE_EDIT, |_| {});
    assert_eq!(ManifestRecord::decode(&no_tree).expect_err("no tree").kind(), ErrorKind::Corruption);
}
