use super::*;

fn text(made: Option<Vec<u8>>) -> String {
    made.map_or("-".into(), |bytes| String::from_utf8(bytes).expect("text"))
}

#[test]
fn counters_add_and_wrap() {
    let counter = counter();
    let n = |n: u64| n.to_le_bytes();
    let full = |base: Option<&[u8]>, operands: &[&[u8]]| counter.full_merge(b"k", base, operands);
    assert_eq!(full(None, &[&n(5)]), Some(n(5).to_vec()));
    assert_eq!(full(Some(&n(7)), &[&n(5), &n(1)]), Some(n(13).to_vec()));
    assert_eq!(full(Some(&n(3)), &[&(-5i64).to_le_bytes()]), Some((-2i64).to_le_bytes().to_vec()));
    assert_eq!(full(Some(&n(u64::MAX)), &[&n(2)]), Some(n(1).to_vec()));
    assert_eq!(counter.partial_merge(b"k", &[&n(1), &n(2), &n(3)]), Some(n(6).to_vec()));
    // Wrong lengths, wherever they stand.
    let wrong: [&[u8]; 3] = [b"", b"1234567", b"123456789"];
    for bytes in wrong {
        assert_eq!(full(Some(bytes), &[&n(1)]), None);
        assert_eq!(full(None, &[&n(1), bytes]), None);
        assert_eq!(counter.partial_merge(b"k", &[bytes, &n(1)]), None);
    }
}

#[test]
fn append_joins_with_its_delimiter() {
    let comma = append(b", ");
    assert_eq!(text(comma.full_merge(b"k", None, &[b"a"])), "a");
    assert_eq!(text(comma.full_merge(b"k", Some(b"a"), &[b"b", b"", b"c"])), "a, b, , c");
    assert_eq!(text(comma.full_merge(b"k", Some(b""), &[b"b"])), ", b");
    assert_eq!(text(comma.partial_merge(b"k", &[b"a", b"b"])), "a, b");
    assert_eq!(text(append(b"").full_merge(b"k", Some(b"a"), &[b"b"])), "ab");
}

#[test]
fn built_ins_keep_the_laws_of_operators() {
    let number = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    let bytes: Vec<[u8; 8]> = (1..8).map(number).collect();
    let operands: Vec<&[u8]> = bytes.iter().map(|bytes| &bytes[..]).collect();
    for operator in [counter(), append(b"::"), append(b"")] {
        for base in [None, Some(operands[6])] {
            let whole = operator.full_merge(b"k", base, &operands[..6]).expect("fits");
            for cut in 1..6 {
                let first = operator.full_merge(b"k", base, &operands[..cut]).expect("fits");
                let second = operator.full_merge(b"k", Some(&first), &operands[cut..6]).expect("fits");
                assert_eq!(second, whole);
                for from in 0..cut {
                    let part = operator.partial_merge(b"k", &operands[from..=cut]).expect("fits");
                    let pieces = [&operands[..from], &[&part], &operands[cut + 1..6]].concat();
                    assert_eq!(operator.full_merge(b"k", base, &pieces).expect("fits"), whole);
                }
            }
        }
    }
}

/// Fails as its operand says.
struct Bad;

impl MergeOperator for Bad {
    fn name(&self) -> &str {
        "bad"
    }

    fn full_merge(&self, _: &[u8], _: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        match operands[0] {
            b"panic" => panic!("as asked"),
            b"large" => Some(vec![0; VALUE_BYTES_MAX + 1]),
            b"largest" => Some(vec![0; VALUE_BYTES_MAX]),
            _ => None,
        }
    }
}

#[test]
fn every_failure_is_an_error_of_the_callback() {
    for (operand, text) in [("none", "failed"), ("panic", "panicked"), ("large", "the bound is")] {
        let error = full(&Bad, b"k", None, &[operand.as_bytes()]).expect_err(operand);
        assert_eq!(error.kind(), ErrorKind::Callback);
        assert!(error.message().contains(text), "{error}");
    }
    assert_eq!(full(&Bad, b"k", None, &[b"largest"]).expect("within the bound").len(), VALUE_BYTES_MAX);
    assert_eq!(partial(&Bad, b"k", &[b"a", b"b"]).expect_err("none").kind(), ErrorKind::Callback);
}

#[test]
fn names_must_agree_once_both_are_known() {
    let name = |stored: Option<&str>| stored.map(str::to_owned);
    let merging = Merging::new(Some(counter()), None).expect("the first opening with one");
    assert_eq!(merging.name.as_deref(), Some("dialsm.counter"));
    let merging = Merging::new(None, name(Some("dialsm.counter"))).expect("without one");
    assert!(merging.operator.is_none());
    assert_eq!(merging.name.as_deref(), Some("dialsm.counter"));
    let error = Merging::new(Some(append(b"")), name(Some("dialsm.counter"))).expect_err("another one");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(format!("{:?}", counter()), "MergeOperator(dialsm.counter)");
}
