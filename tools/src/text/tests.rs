use super::*;
use dialsm_core::ErrorKind;

/// A small generator of its own, so that a failing seed can be run again anywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Bytes of a kind that tends to break formats: separators, escapes, halves of characters.
    pub(crate) fn bytes(&mut self, max: u64) -> Vec<u8> {
        const HARD: &[u8] = b"\t\n\r\0\\x0\"{}: =>\x7f\x80\xc2\x85\xff\xe2\x82\xac\xed\xa0";
        let len = self.below(max + 1);
        match self.below(3) {
            0 => (0..len).map(|_| self.next() as u8).collect(),
            1 => (0..len).map(|_| HARD[self.below(HARD.len() as u64) as usize]).collect(),
            _ => (0..len).map(|_| b'a' + self.below(26) as u8).collect(),
        }
    }
}

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn read_all(format: Format, text: &[u8]) -> dialsm_core::Result<Entries> {
    let mut reader = EntryReader::new(text, "input", format);
    let mut entries = Vec::new();
    while let Some((key, value)) = reader.next_entry()? {
        entries.push((key.to_vec(), value.to_vec()));
    }
    Ok(entries)
}

#[test]
fn random_entries_round_trip_in_every_format() {
    let mut random = Random(1);
    let mut entries: Vec<(Vec<u8>, Vec<u8>)> =
        (0..3000).map(|_| (random.bytes(24), random.bytes(60))).collect();
    entries.extend((0..=255u8).map(|byte| (vec![byte], vec![byte, byte])));
    entries.push((vec![], vec![]));
    entries.push((vec![b'\r'], vec![b'\r']));
    entries.push(("zażółć gęślą 🦀".into(), "\u{2028}\u{85}\u{feff}".into()));
    let binary = entries.iter().filter(|(key, _)| std::str::from_utf8(key).is_err()).count();
    assert!(binary > 500, "{binary} keys that are no text");
    for format in Format::ALL {
        let (mut text, mut scratch) = (Vec::new(), Vec::new());
        for (key, value) in &entries {
            format.write_entry(&mut text, key, value, &mut scratch).expect("a vector takes all");
        }
        let lines = std::str::from_utf8(&text).expect("all formats write UTF-8").split('\n');
        assert!(lines.clone().all(|line| !line.contains(|c: char| c.is_control() && c != '\t')));
        assert_eq!(lines.count(), entries.len() + 1, "{format:?}");
        assert!(read_all(format, &text).expect("own text") == entries, "{format:?}");
    }
}

#[test]
fn random_bytes_round_trip_in_every_encoding() {
    let mut random = Random(2);
    for round in 0..3000 {
        let bytes = random.bytes(40);
        for encoding in Encoding::ALL {
            let text = encoding.encode(&bytes);
            assert_eq!(encoding.decode(&text), Ok(bytes.clone()), "{encoding:?}, round {round}");
        }
    }
    assert_eq!(Encoding::Hex.decode(b"6b"), Ok(b"k".to_vec()));
    assert_eq!(Encoding::Escaped.decode(b"a\\x6B\\\\"), Ok(b"ak\\".to_vec()));
    for (encoding, bad) in [
        (Encoding::Hex, &b"0x6"[..]),
        (Encoding::Hex, b"0x6g"),
        (Encoding::Base64, b"YQ"),
        (Encoding::Base64, b"Y!=="),
        (Encoding::Escaped, b"\\"),
        (Encoding::Escaped, b"\\x6"),
        (Encoding::Escaped, b"\\q"),
    ] {
        assert!(encoding.decode(bad).is_err());
    }
}

#[test]
fn garbage_gives_entries_or_an_error_with_its_line() {
    let mut random = Random(3);
    let (mut errors, mut entries) = (0, 0);
    for _ in 0..3000 {
        let format = Format::ALL[random.below(3) as usize];
        let mut text = Vec::new();
        // An intact line, then damage: a byte changed, or the line cut.
        format.write_entry(&mut text, &random.bytes(8), &random.bytes(8), &mut Vec::new()).expect("a vector");
        let good = text.len();
        format.write_entry(&mut text, &random.bytes(8), &random.bytes(8), &mut Vec::new()).expect("a vector");
        let at = good + random.below((text.len() - good) as u64) as usize;
        match random.below(2) {
            0 => text[at] = random.next() as u8,
            _ => text.truncate(at),
        }
        match read_all(format, &text) {
            Ok(read) => entries += read.len(),
            Err(error) => {
                assert!(error.message().starts_with("input:2: ") || error.message().starts_with("input:3: "));
                assert_eq!(error.kind(), ErrorKind::InvalidArgument);
                errors += 1;
            }
        }
    }
    assert!(errors > 500 && entries > 500, "{errors} errors, {entries} entries");
}

#[test]
fn rocksdb_hex_lines_are_read_in_both_forms() {
    let text = b"0x6B31 ==> 0x7631\n0x6b32 : 0x7632\r\n\n0x ==> 0x\nKeys in range: 3\n";
    let entries = read_all(Format::Hex, text).expect("as ldb prints them");
    let expected: Vec<(Vec<u8>, Vec<u8>)> =
        vec![(b"k1".into(), b"v1".into()), (b"k2".into(), b"v2".into()), (vec![], vec![])];
    assert_eq!(entries, expected);
    let error = read_all(Format::Hex, b"0x00 ==> 0x00\nKeys in range: 2\n").expect_err("one is missing");
    assert!(error.message().starts_with("input:2: the dump says it has 2 keys, 1 were"), "{error}");
}

#[test]
fn json_variants_mix_freely() {
    let text = br#"{"value":"v","key":"k"}
{"key_hex":"00ff","value_base64":"AP8="}

{ "key_base64" : "" , "value_hex" : "" }"#;
    let mut reader = EntryReader::new(&text[..], "input", Format::Json);
    assert_eq!(reader.next_entry().expect("first"), Some((&b"k"[..], &b"v"[..])));
    assert_eq!(reader.next_entry().expect("second"), Some((&[0, 0xff][..], &[0, 0xff][..])));
    assert_eq!(reader.next_entry().expect("third"), Some((&b""[..], &b""[..])));
    assert_eq!(reader.next_entry().expect("end"), None);
    let summary = reader.summary();
    assert_eq!((summary.entries, summary.bytes, summary.lines), (3, 6, 4));
    assert!(summary.unterminated, "the last line has no end");
}

#[test]
fn malformed_lines_name_line_and_reason_but_no_data() {
    let cases: [(Format, &str, &str); 22] = [
        (Format::Tsv, "secret", "no tab"),
        (Format::Tsv, "", "no tab"),
        (Format::Tsv, "secret\tb\tc", "second tab"),
        (Format::Tsv, "secret\\q\tb", "an escape other"),
        (Format::Tsv, "secret\tb\\", "nothing after"),
        (Format::Tsv, "secret\t\\xg0", "two hex digits"),
        (Format::Json, "{\"key\":\"secret\"}", "no value"),
        (Format::Json, "{\"value\":\"secret\"}", "no key"),
        (Format::Json, "{\"key\":\"secret\",\"value\":5}", "known string fields"),
        (Format::Json, "{\"key\":\"secret\",\"value\":\"\",\"ttl\":\"\"}", "known string fields"),
        (Format::Json, "{\"key\":\"secret\",\"key\":\"b\",\"value\":\"\"}", "each once"),
        (Format::Json, "{\"key\":\"secret\",\"key_hex\":\"00\",\"value\":\"\"}", "the key is given twice"),
        (Format::Json, "{\"key\":\"secret\",\"value_hex\":\"0\"}", "value_hex: an odd"),
        (Format::Json, "{\"key_base64\":\"secret\",\"value\":\"0\"}", "key_base64: not base64"),
        (Format::Json, "{\"key\":\"secret\",", "cut off"),
        (Format::Json, "[\"secret\",null,null,\"v\",null,null]", "no JSON object"),
        (Format::Json, "{secret", "not JSON"),
        (Format::Hex, "secret ==> 0x00", "no 0x before the key"),
        (Format::Hex, "0x5ecre7 ==> 0x00", "no hex digit"),
        (Format::Hex, "0x5ec -> 0x00", "no ` ==> `"),
        (Format::Hex, "0x5ec0 ==> 5ec", "no 0x before the value"),
        (Format::Hex, "0x5ec ==> 0x00", "odd number"),
    ];
    for (format, line, reason) in cases {
        let mut text = Vec::new();
        format.write_entry(&mut text, b"k", b"v", &mut Vec::new()).expect("a vector");
        text.extend_from_slice(line.as_bytes());
        text.push(b'\n');
        let error = read_all(format, &text).expect_err(line);
        assert!(error.message().starts_with("input:2: "), "{error}");
        assert!(error.message().contains(reason), "{reason:?} in {error}");
        assert!(!error.message().contains("secret") && !error.message().contains("5ec"), "{error}");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn entries_that_no_database_takes_are_refused_by_line() {
    for format in Format::ALL {
        for (length, fits) in
            [(dialsm_core::key::KEY_BYTES_MAX, true), (dialsm_core::key::KEY_BYTES_MAX + 1, false)]
        {
            let mut text = Vec::new();
            format.write_entry(&mut text, &vec![7; length], b"v", &mut Vec::new()).expect("a vector");
            match read_all(format, &text) {
                Ok(entries) => assert!(fits && entries[0].0.len() == length),
                Err(error) => {
                    assert!(!fits && error.message().starts_with("input:1: "), "{error}");
                    assert_eq!(error.kind(), ErrorKind::TooLarge);
                }
            }
        }
    }
}
