//! The extractors, and the proofs that confine a scan: over all short keys, bounds and targets.

use super::*;

fn all_keys() -> Vec<Vec<u8>> {
    let mut keys = vec![Vec::new()];
    let mut from = 0;
    for _ in 0..3 {
        let to = keys.len();
        for at in from..to {
            for byte in [0x00, 0x61, 0xff] {
                keys.push([&keys[at][..], &[byte]].concat());
            }
        }
        from = to;
    }
    assert_eq!(keys.len(), 40);
    keys
}

fn builtin() -> Vec<PrefixExtractor> {
    let fixed = (0..4).map(PrefixExtractor::Fixed);
    let capped = (0..4).map(PrefixExtractor::Capped);
    fixed.chain(capped).chain([0x00, 0x61, 0xff].map(PrefixExtractor::Delimiter)).collect()
}

fn extract<'k>(extractor: &PrefixExtractor, key: &'k [u8]) -> Option<&'k [u8]> {
    extractor.extract(key).expect("it does not panic")
}

#[test]
fn what_the_extractors_take() {
    type Case = (PrefixExtractor, &'static [u8], Option<&'static [u8]>);
    let cases: [Case; 9] = [
        (PrefixExtractor::Fixed(3), b"ab", None),
        (PrefixExtractor::Fixed(3), b"abc", Some(b"abc")),
        (PrefixExtractor::Fixed(3), b"abcd", Some(b"abc")),
        (PrefixExtractor::Fixed(0), b"", Some(b"")),
        (PrefixExtractor::Capped(3), b"ab", Some(b"ab")),
        (PrefixExtractor::Capped(3), b"abcd", Some(b"abc")),
        (PrefixExtractor::Delimiter(b'/'), b"a/b/c", Some(b"a/")),
        (PrefixExtractor::Delimiter(b'/'), b"/", Some(b"/")),
        (PrefixExtractor::Delimiter(b'/'), b"abc", None),
    ];
    for (extractor, key, wanted) in cases {
        assert_eq!(extract(&extractor, key), wanted, "{extractor:?}");
    }
    let names: Vec<String> = builtin().iter().map(|x| x.name().into_owned()).collect();
    let distinct: std::collections::BTreeSet<&String> = names.iter().collect();
    assert_eq!(distinct.len(), names.len(), "{names:?}");
    assert_eq!(PrefixExtractor::Delimiter(b'/').name(), "dialsm.delimiter.2f");
}

/// What every extractor owes: in both byte orders the keys of a prefix lie together.
#[test]
fn keys_of_a_prefix_lie_together() {
    let mut keys = all_keys();
    keys.sort();
    for extractor in builtin() {
        for a in 0..keys.len() {
            let Some(prefix) = extract(&extractor, &keys[a]) else { continue };
            let last = keys.iter().rposition(|k| extract(&extractor, k) == Some(prefix)).expect("itself");
            assert!(keys[a..=last].iter().all(|k| extract(&extractor, k) == Some(prefix)), "{extractor:?}");
        }
    }
}

#[test]
fn successors_end_what_begins_with_a_prefix() {
    assert_eq!(successor(b"ab"), Some(b"ac".to_vec()));
    assert_eq!(successor(b"a\xff\xff"), Some(b"b".to_vec()));
    assert_eq!(successor(b"\xff\xff"), None);
    assert_eq!(successor(b""), None);
    for prefix in all_keys() {
        for key in all_keys() {
            let inside = key >= prefix && successor(&prefix).is_none_or(|end| key < end);
            assert_eq!(inside, key.starts_with(&prefix), "{key:?} under {prefix:?}");
        }
    }
}

/// A hint is never given while a key without its prefix could be shown, whatever the bounds, the
/// target and the direction; and it is given where both bounds are those of a prefix.
#[test]
fn proofs_hold_for_every_short_key() {
    let keys = all_keys();
    let bounds: Vec<Option<&[u8]>> = std::iter::once(None).chain(keys.iter().map(|k| Some(&k[..]))).collect();
    let mut proven = 0;
    for order in [Comparator::Bytewise, Comparator::ReverseBytewise] {
        for extractor in builtin() {
            for lower in &bounds {
                for upper in &bounds {
                    let made = Scope::new(Some(&extractor), &order, false, *lower, *upper);
                    let Some(mut scope) = made.expect("no panic") else { continue };
                    let within = |key: &[u8]| {
                        lower.is_none_or(|l| order.compare(key, l).is_ge())
                            && upper.is_none_or(|u| order.compare(key, u).is_lt())
                    };
                    for target in keys.iter().filter(|k| within(k)) {
                        proven += check_target(&mut scope, &order, target, &keys, &within);
                    }
                }
            }
        }
    }
    assert!(proven > 50_000, "{proven}");
}

fn check_target(
    scope: &mut Scope,
    order: &Comparator,
    target: &[u8],
    keys: &[Vec<u8>],
    within: &dyn Fn(&[u8]) -> bool,
) -> u64 {
    let mut proven = 0;
    for toward in [Toward::Upper, Toward::Lower] {
        scope.begin(Some(target)).expect("no panic");
        let hint = scope.hint(toward, Some(target)).expect("no panic");
        let Some(hint) = hint else { continue };
        proven += 1;
        for key in keys.iter().filter(|k| within(k)) {
            let ahead = match toward {
                Toward::Upper => order.compare(key, target).is_ge(),
                Toward::Lower => order.compare(key, target).is_le(),
            };
            assert!(!ahead || hint.holds(key).expect("no panic"), "{hint:?}: {key:?} from {target:?}");
        }
    }
    proven
}

#[test]
fn a_scan_over_one_prefix_is_confined_and_others_are_not() {
    let fixed = PrefixExtractor::Fixed(2);
    let hint = |lower: Option<&[u8]>, upper: Option<&[u8]>, target: Option<&[u8]>| {
        let scope = Scope::new(Some(&fixed), &Comparator::Bytewise, false, lower, upper).expect("no panic");
        scope.is_some_and(|scope| scope.hint(Toward::Upper, target).expect("no panic").is_some())
    };
    assert!(hint(Some(b"ab"), Some(b"ac"), None));
    assert!(hint(Some(b"ab1"), Some(b"ab9"), None));
    assert!(hint(None, Some(b"ab9"), Some(b"ab1")));
    assert!(!hint(None, Some(b"ab9"), None), "the first key may be any");
    assert!(!hint(Some(b"ab"), Some(b"ac\0"), Some(b"ab1")));
    assert!(!hint(Some(b"ab"), None, Some(b"ab1")));
    assert!(!hint(None, None, Some(b"ab1")), "total order (B007)");
    assert!(!hint(Some(b"a"), Some(b"ab"), Some(b"a")), "out of the domain");
}

struct Rude;

impl UserPrefixExtractor for Rude {
    fn name(&self) -> &str {
        "test.rude"
    }
    fn extract<'k>(&self, _: &'k [u8]) -> Option<&'k [u8]> {
        panic!("rude");
    }
}

#[test]
fn a_panic_is_an_error_and_proofs_do_not_ask_the_users_own() {
    let rude = PrefixExtractor::Custom(Arc::new(Rude));
    assert_eq!(rude.extract(b"key").expect_err("it panics").kind(), ErrorKind::Callback);
    let named = rude.with_fixed_name().expect("it has a name");
    assert_eq!(named.name(), "test.rude");
    let order = Comparator::Bytewise;
    let scope = Scope::new(Some(&rude), &order, false, Some(b"ab"), Some(b"ac")).expect("not asked");
    assert!(scope.is_none());
    let scope = Scope::new(Some(&rude), &order, true, Some(b"ab"), Some(b"ac")).expect("not asked yet");
    assert!(scope.expect("asked for").begin(Some(b"ab")).is_err());
}

#[test]
fn names_are_told_from_our_own() {
    assert!(check_user_name("comparator", "mine.v1").is_ok());
    for bad in ["", "dialsm.bytewise", &"n".repeat(256)] {
        assert!(check_user_name("comparator", bad).expect_err(bad).starts_with("comparator: "));
    }
}
