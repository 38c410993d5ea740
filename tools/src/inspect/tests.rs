use std::path::Path;
use std::sync::Arc;

use dialsm_core::batch::WriteBatch;
use dialsm_core::format::{FileHeader, FileKind};
use dialsm_core::key::{Comparator, Kind, internal_key};
use dialsm_core::range_del::RangeTombstone;
use dialsm_core::table::{TableOptions, TableWriter};
use dialsm_core::types::{FileNumber, TreeId};
use dialsm_core::version::edit::{ManifestRecord, TableDesc, TreeEdit};
use dialsm_core::version::manifest::{ManifestWriter, write_current};
use dialsm_core::wal::{LogPosition, SegmentWriter};
use dialsm_io::{Fs, SimFs};
use serde_json::{Value, json};

use super::Printer;
use crate::exit::{Failure, Outcome};

const DB: [u8; 16] = [0xab; 16];
const NUMBER: FileNumber = FileNumber(7);

fn file_system() -> Arc<SimFs> {
    let fs = SimFs::new(1);
    fs.create_dir_all("db".as_ref()).expect("an empty file system");
    fs
}

fn lines(dump: impl FnOnce(&mut Printer<'_>) -> Outcome) -> (Vec<Value>, Outcome) {
    let mut out = Vec::new();
    let outcome = dump(&mut Printer::new(&mut out, true));
    let text = String::from_utf8(out).expect("JSON is text");
    (text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect(), outcome)
}

fn of<'a>(lines: &'a [Value], item: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["item"] == item).collect()
}

fn write_table(fs: &SimFs, path: &Path, comparator: Comparator, keys: &[&[u8]]) {
    let header = FileHeader { kind: FileKind::Table, db_id: DB, number: NUMBER };
    let file = fs.create(path).expect("a new file");
    let mut writer = TableWriter::new(file, header, comparator, TableOptions::default()).expect("defaults");
    for (n, key) in keys.iter().enumerate() {
        let kind = if n == 1 { Kind::Delete } else { Kind::Put };
        let value: &[u8] = if n == 1 { b"" } else { b"v\xff" };
        writer.add(&internal_key(key, 10 + n as u64, kind as u8), value).expect("in order");
    }
    let (start, end) = (Arc::from(keys[0]), Arc::from(keys[1]));
    writer.add_range_tombstone(&RangeTombstone { start, end, seqno: 20 }).expect("the only one");
    writer.finish().expect("not empty");
}

#[test]
fn a_table_shows_properties_and_entries() {
    let fs = file_system();
    for (path, comparator, keys) in [
        ("db/000007.sst", Comparator::Bytewise, [&b"a"[..], b"b", b"\xff\0"]),
        ("db/reverse.sst", Comparator::ReverseBytewise, [&b"\xff\0"[..], b"b", b"a"]),
    ] {
        write_table(&fs, path.as_ref(), comparator.clone(), &keys);
        let (all, outcome) = lines(|out| super::table::dump(&*fs, path.as_ref(), false, out));
        outcome.expect("an intact table");
        assert_eq!(all[0], json!({"item": "file", "kind": "table", "db_id": "ab".repeat(16), "number": 7}));
        let properties = of(&all, "properties")[0];
        assert_eq!((&properties["entries"], &properties["deletes"]), (&json!(4), &json!(1)));
        assert_eq!(properties["range_deletes"], 1);
        let tombstones = of(&all, "range_tombstone");
        assert_eq!(
            (tombstones.len(), &tombstones[0]["seqno"], &tombstones[0]["end"]),
            (1, &json!(20), &json!("b"))
        );
        assert_eq!(properties["comparator"], comparator.name());
        let entries = of(&all, "entry");
        assert_eq!(entries.len(), 3);
        assert_eq!(
            *entries[1],
            json!({"item": "entry", "key": "b", "seqno": 11, "kind": "Delete", "value": ""})
        );
        assert!(entries.iter().any(|entry| entry["key_base64"] == "/wA=" && entry["value_base64"] == "dv8="));
        let (summary, outcome) = lines(|out| super::table::dump(&*fs, path.as_ref(), true, out));
        outcome.expect("an intact table");
        assert!(
            of(&summary, "entry").is_empty()
                && of(&summary, "range_tombstone").is_empty()
                && summary[..] == all[..summary.len()]
        );
    }
}

#[test]
fn a_log_segment_shows_records_operations_and_damage() {
    let fs = file_system();
    let path: &Path = "db/000007.log".as_ref();
    let file = fs.create(path).expect("a new file");
    let mut writer = SegmentWriter::create(file.clone(), &DB, NUMBER, None, 5).expect("a new segment");
    let mut ends = Vec::new();
    for first in [5u64, 7, 9] {
        let mut batch = WriteBatch::new();
        batch.put(b"k", format!("v{first}").as_bytes()).expect("small");
        batch.delete(b"\0").expect("small");
        let end = writer.append(first, 2, &[batch.as_bytes()], LogPosition::default()).expect("in order");
        ends.push(end.offset);
    }
    let (all, outcome) = lines(|out| super::log::dump(&*fs, path, false, out));
    outcome.expect("an intact segment");
    assert_eq!(of(&all, "start")[0]["first_seqno"], 5);
    assert_eq!(of(&all, "record").iter().map(|r| r["first_seqno"].clone()).collect::<Vec<_>>(), [5, 7, 9]);
    let ops = of(&all, "op");
    assert_eq!(ops.len(), 6);
    assert_eq!(
        *ops[2],
        json!({"item": "op", "seqno": 7, "kind": "Put", "keyspace": 0, "key": "k", "value": "v7"})
    );
    assert_eq!((&ops[5]["seqno"], &ops[5]["key"]), (&json!(10), &json!("\0")));
    assert_eq!(of(&all, "end").len(), 1);
    let (summary, _) = lines(|out| super::log::dump(&*fs, path, true, out));
    assert_eq!((of(&summary, "record").len(), of(&summary, "op").len()), (3, 0));

    // A byte of the second record's payload: it is named, and the third is still shown.
    let mut byte = [0];
    file.read_at(&mut byte, ends[0] + 57).expect("written above");
    file.write_at(&[byte[0] ^ 1], ends[0] + 57).expect("an open file");
    let (rest, outcome) = lines(|out| super::log::dump(&*fs, path, false, out));
    let damage = of(&rest, "damage");
    assert_eq!((&damage[0]["offset"], &damage[0]["resumes"]), (&json!(ends[0]), &json!(ends[1])));
    assert_eq!(of(&rest, "op").len(), 4);
    let failure = outcome.expect_err("damage is an error in the end");
    assert_eq!(failure.exit_code(), 60);
    assert!(matches!(failure, Failure::Error(error) if error.offset() == Some(ends[0])));
}

#[test]
fn a_manifest_shows_every_change() {
    let fs = file_system();
    let snapshot = ManifestRecord {
        next_file_number: Some(FileNumber(8)),
        last_seqno: Some(42),
        edits: vec![TreeEdit {
            tree: TreeId::default(),
            comparator: Some("dialsm.bytewise".into()),
            floor: Some(40),
            ..TreeEdit::default()
        }],
        ..ManifestRecord::default()
    };
    let path: &Path = "db/MANIFEST-000007".as_ref();
    let file = fs.create(path).expect("a new file");
    let mut writer = ManifestWriter::create(file, &DB, NUMBER, &snapshot).expect("a new manifest");
    let desc = TableDesc {
        number: FileNumber(6),
        smallest: internal_key(b"a", 3, Kind::Put as u8),
        largest: internal_key(b"\xfe", 9, Kind::Delete as u8),
        seqno_min: 3,
        seqno_max: 9,
        entries: 2,
        ..TableDesc::default()
    };
    let edit = TreeEdit { added: vec![(6, desc)], removed: vec![(0, FileNumber(5))], ..TreeEdit::default() };
    let record = ManifestRecord { edits: vec![edit], ..ManifestRecord::default() };
    writer.append(&record).expect("an open manifest");
    write_current(&*fs, "db".as_ref(), NUMBER).expect("a sound file system");
    let (all, outcome) = lines(|out| super::manifest::dump(&*fs, path, out));
    outcome.expect("an intact manifest");
    assert_eq!((of(&all, "record").len(), of(&all, "edit").len()), (2, 2));
    assert_eq!(
        (&of(&all, "record")[0]["last_seqno"], &of(&all, "edit")[0]["floor"]),
        (&json!(42), &json!(40))
    );
    let added = of(&all, "table_added")[0];
    assert_eq!((&added["number"], &added["level"], &added["entries"]), (&json!(6), &json!(6), &json!(2)));
    assert_eq!((&added["smallest_key"], &added["smallest_seqno"]), (&json!("a"), &json!(3)));
    assert_eq!((&added["largest_key_base64"], &added["largest_kind"]), (&json!("/g=="), &json!("Delete")));
    assert_eq!(of(&all, "table_removed")[0]["number"], 5);
    assert_eq!(of(&all, "end")[0]["torn"], 0);
    let (by_directory, outcome) = lines(|out| super::manifest::dump(&*fs, "db".as_ref(), out));
    outcome.expect("CURRENT names it");
    assert_eq!(by_directory, all);
}

#[test]
fn every_flipped_byte_gives_a_dump_or_a_typed_error() {
    let fs = file_system();
    let path: &Path = "db/000007.sst".as_ref();
    write_table(&fs, path, Comparator::Bytewise, &[b"a", b"b", b"c"]);
    let file = fs.open(path, dialsm_io::Access::ReadWrite).expect("written above");
    let mut errors = 0;
    for at in 0..file.len().expect("a file") {
        let mut byte = [0];
        file.read_at(&mut byte, at).expect("inside the file");
        file.write_at(&[!byte[0]], at).expect("an open file");
        for dump in [super::table::dump, super::log::dump] {
            if let (_, Err(failure)) = lines(|out| dump(&*fs, path, false, out)) {
                assert!(failure.exit_code() >= 60 && failure.report(false).is_some(), "{failure:?}");
                errors += 1;
            }
        }
        file.write_at(&byte, at).expect("an open file");
    }
    assert!(errors > 500, "{errors}");
    let missing =
        super::table::dump(&*fs, "db/none".as_ref(), false, &mut Printer::new(&mut Vec::new(), true));
    assert_eq!(missing.expect_err("no such file").exit_code(), 3);
}

#[test]
fn text_lines_are_safe_to_show() {
    let fs = file_system();
    write_table(&fs, "db/t".as_ref(), Comparator::Bytewise, &[b"\x1b[2J\n", b"b", b"c"]);
    let mut out = Vec::new();
    let mut printer = Printer::new(&mut out, false);
    super::table::dump(&*fs, "db/t".as_ref(), false, &mut printer).expect("an intact table");
    let text = String::from_utf8(out).expect("text");
    assert_eq!(text.lines().count(), 6, "{text}");
    assert!(text.contains("entry key=\\x1B[2J\\n seqno=10 kind=Put value=v\\xFF\n"), "{text}");
    assert!(!text.contains('\x1b'));
}
