//! Filters of prefixes.

use dialsm_core::{CompactRangeOptions, Db, Options, PrefixExtractor, ReadOptions};
use dialsm_io::SimFs;

use crate::hostile::{Rng, by_hand, open_on, put, scan};

fn compact(db: &Db) {
    db.compact_range(&CompactRangeOptions::default(), None, None).expect("compact");
}

/// With a prefix extractor and a filter a scan in total order ended with the first prefix, once the
/// data was in tables.
#[test]
fn b007_a_scan_in_total_order_asks_no_prefix_filter() {
    for filter_whole_keys in [true, false] {
        let options =
            Options { prefix_extractor: Some(PrefixExtractor::Fixed(1)), filter_whole_keys, ..by_hand() };
        let fs = SimFs::new(1);
        let mut db = open_on(fs.clone(), &options).expect("open");
        (b'0'..=b'9').for_each(|key| put(&db, &[key], b"v"));
        let stages = ["memtable", "reopened", "flushed", "compacted", "one table a key", "newer ones above"];
        for stage in stages {
            match stage {
                "reopened" => {
                    drop(db);
                    db = open_on(fs.clone(), &options).expect("reopen");
                }
                "flushed" => db.flush().expect("flush"),
                "compacted" => compact(&db),
                "one table a key" => {
                    // Nothing below that would show the keys of a table passed over.
                    db = open_on(SimFs::new(1), &options).expect("open another");
                    (b'0'..=b'9').for_each(|key| {
                        put(&db, &[key], b"v");
                        db.flush().expect("flush");
                    });
                }
                "newer ones above" => {
                    compact(&db);
                    (b'0'..=b'9').for_each(|key| {
                        put(&db, &[key], b"w");
                        db.flush().expect("flush");
                    });
                }
                _ => {}
            }
            let value = if stage == "newer ones above" { b"w" } else { b"v" };
            let mut iter = db.iter(&ReadOptions::default()).expect("iter");
            for start in b'0'..=b'9' {
                iter.seek(&[start]).expect("seek");
                for key in start..=b'9' {
                    assert!(iter.valid(), "{stage}: ended before {key}");
                    assert_eq!((iter.key(), iter.value()), (&[key][..], &value[..]), "{stage}");
                    iter.next().expect("next");
                }
                assert!(!iter.valid());
                iter.seek_for_prev(&[start, 0xff]).expect("seek_for_prev");
                for key in (b'0'..=start).rev() {
                    assert!(iter.valid(), "{stage}: ended before {key}");
                    assert_eq!((iter.key(), iter.value()), (&[key][..], &value[..]), "{stage}");
                    iter.prev().expect("prev");
                }
                assert!(!iter.valid());
            }
            drop(iter);
            // Bounds that lie around more than one prefix confine a scan to none.
            for (from, to) in (b'0'..=b'9').flat_map(|from| (from + 1..=b':').map(move |to| (from, to))) {
                let (lower_bound, upper_bound) = (Some(vec![from]), Some(vec![to]));
                let bounds = ReadOptions { lower_bound, upper_bound, ..ReadOptions::default() };
                let found = scan(&db, &bounds).expect("scan");
                assert!(
                    found.iter().map(|(key, _)| key[0]).eq(from..to)
                        && found.iter().all(|(_, found)| found == value),
                    "{stage}: {from}..{to}"
                );
            }
            // Asked for one prefix, it shows that one.
            let asked = ReadOptions { prefix_same_as_start: true, ..ReadOptions::default() };
            let mut iter = db.iter(&asked).expect("iter");
            iter.seek(b"4").expect("seek");
            assert_eq!(iter.key(), b"4", "{stage}");
            iter.next().expect("next");
            assert!(!iter.valid(), "{stage}");
        }
    }
}

/// Prefixes that end in 0xff, under filters of prefixes as long, shorter and longer.
#[test]
fn b109_prefix_filters_and_prefixes_that_end_in_0xff() {
    let alphabet = [0x00, 0x01, 0x7f, 0x80, 0xfe, 0xff];
    let mut keys: Vec<Vec<u8>> = vec![Vec::new()];
    for length in 0..3 {
        let longest: Vec<Vec<u8>> = keys.iter().filter(|k| k.len() == length).cloned().collect();
        keys.extend(longest.iter().flat_map(|k| alphabet.map(|b| [&k[..], &[b]].concat())));
    }
    keys.sort();
    assert_eq!(keys.len(), 259);
    let extractors = [
        PrefixExtractor::Fixed(1),
        PrefixExtractor::Fixed(2),
        PrefixExtractor::Capped(2),
        PrefixExtractor::Delimiter(0xff),
    ];
    let mut spared = 0;
    for extractor in extractors {
        let options = Options { prefix_extractor: Some(extractor.clone()), block_bytes: 64, ..by_hand() };
        let db = open_on(SimFs::new(1), &options).expect("open");
        // Every other key in a table of the level below, the rest in three of L0.
        keys.iter().step_by(2).for_each(|key| put(&db, key, key));
        compact(&db);
        for part in 0..3 {
            keys.iter().skip(1).step_by(2).skip(part).step_by(3).for_each(|key| put(&db, key, key));
            db.flush().expect("flush");
        }
        for prefix in &keys {
            let expected: Vec<&Vec<u8>> = keys.iter().filter(|k| k.starts_with(prefix)).collect();
            let found = scan(&db, &ReadOptions::default().with_prefix(prefix)).expect("scan");
            assert!(found.iter().map(|(key, _)| key).eq(expected), "{extractor:?} {prefix:02x?}");
            let Some(own) = extractor.extract(prefix).expect("no panic") else { continue };
            let asked = ReadOptions { prefix_same_as_start: true, ..ReadOptions::default() };
            let mut iter = db.iter(&asked).expect("iter");
            iter.seek(prefix).expect("seek");
            let group = |k: &&Vec<u8>| extractor.extract(k).expect("no panic") == Some(own);
            for key in keys.iter().filter(group).filter(|k| *k >= prefix) {
                assert!(iter.valid(), "{extractor:?}: ended before {key:02x?}");
                assert_eq!(iter.key(), key, "{extractor:?}");
                iter.next().expect("next");
            }
            assert!(!iter.valid(), "{extractor:?} {prefix:02x?}");
            spared += iter.read_stats().filter_useful;
        }
        bounds_anywhere(&db, &keys);
    }
    assert!(spared > 50, "{spared}");
}

/// Bounds and targets anywhere, most of them not around one prefix.
fn bounds_anywhere(db: &Db, keys: &[Vec<u8>]) {
    let mut rng = Rng(109);
    for _ in 0..300 {
        let mut pick = || keys[rng.below(keys.len() as u64) as usize].clone();
        let (lower, upper, target) = (pick(), pick(), pick());
        let options = ReadOptions {
            lower_bound: Some(lower.clone()),
            upper_bound: Some(upper.clone()),
            ..ReadOptions::default()
        };
        let inside: Vec<&Vec<u8>> = keys.iter().filter(|key| **key >= lower && **key < upper).collect();
        let found = scan(db, &options).expect("scan");
        assert!(found.iter().map(|(key, _)| key).eq(inside.clone()), "{lower:02x?}..{upper:02x?}");
        let mut iter = db.iter(&options).expect("iter");
        iter.seek(&target).expect("seek");
        for key in inside.iter().filter(|key| ***key >= target) {
            assert!(iter.valid() && *iter.key() == key[..], "from {target:02x?}");
            iter.next().expect("next");
        }
        assert!(!iter.valid());
        iter.seek_for_prev(&target).expect("seek_for_prev");
        for key in inside.iter().rev().filter(|key| ***key <= target) {
            assert!(iter.valid() && *iter.key() == key[..], "back from {target:02x?}");
            iter.prev().expect("prev");
        }
        assert!(!iter.valid());
    }
}
