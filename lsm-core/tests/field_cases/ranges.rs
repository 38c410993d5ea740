//! Range deletes.

use std::collections::BTreeMap;

use dialsm_core::{
    CompactRangeOptions, Db, Options, PrefixExtractor, ReadOptions, Snapshot, WriteBatch, WriteOptions,
};
use dialsm_io::SimFs;

use crate::hostile::{Model, Rng, by_hand, contents, get, open_on, put, scan, tiny};

fn on_sim(options: &Options) -> Db {
    open_on(SimFs::new(1), options).expect("open")
}

fn delete_range(db: &Db, from: &[u8], to: &[u8]) {
    db.delete_range(&WriteOptions::default(), from, to).expect("delete a range");
}

fn compact(db: &Db, target_level: Option<u8>) {
    let options = CompactRangeOptions { target_level, rewrite_bottom: true, ..Default::default() };
    db.compact_range(&options, None, None).expect("compact");
}

#[test]
fn b021_a_filter_that_denies_the_key_does_not_hide_the_tombstone() {
    // The levels that the values and the tombstone are in before the last stage.
    for (values, tombstone) in [(0, 0), (6, 0), (6, 5), (6, 2), (1, 0)] {
        // How the tombstone lies: flushed alone, in the memtable, in a sealed one, beside an unrelated
        // key, much wider than the keys of its table on the left, on both sides.
        for variant in 0..6 {
            hidden_in_all_reads(variant, values, tombstone);
        }
    }
}

/// Filters of keys, of prefixes and keys, of prefixes alone.
fn filtered() -> [Options; 4] {
    let prefix = |n| Some(PrefixExtractor::Fixed(n));
    [
        by_hand(),
        Options { prefix_extractor: prefix(1), ..by_hand() },
        Options { prefix_extractor: prefix(2), ..by_hand() },
        Options { prefix_extractor: prefix(2), filter_whole_keys: false, ..by_hand() },
    ]
}

fn hidden_in_all_reads(variant: u32, values: u8, tombstone: u8) {
    for options in filtered() {
        let db = on_sim(&options);
        (1..10).for_each(|i| put(&db, format!("k{i}").as_bytes(), b"v"));
        match values {
            0 => db.flush().expect("flush"),
            level => compact(&db, Some(level)),
        }
        let (from, to): (&[u8], &[u8]) = if variant == 4 { (b"a", b"k9") } else { (b"k1", b"k9") };
        delete_range(&db, from, to);
        match variant {
            1 => {}
            2 => {
                db.flush_with(&dialsm_core::FlushOptions { wait: false, ..Default::default() }).expect("seal")
            }
            _ => {
                match variant {
                    3 | 4 => put(&db, b"c", b"unrelated"),
                    5 => put(&db, b"k5x", b"unrelated"),
                    _ => {}
                }
                match tombstone {
                    0 => db.flush().expect("flush"),
                    level => compact_as_it_is(&db, level),
                }
            }
        }
        let mut wanted = vec![b"k9".to_vec()];
        match variant {
            3 | 4 => wanted.insert(0, b"c".to_vec()),
            5 => wanted.insert(0, b"k5x".to_vec()),
            _ => {}
        }
        for stage in 0..2 {
            for i in 1..10 {
                let key = format!("k{i}");
                assert_eq!(get(&db, key.as_bytes()).is_some(), i == 9, "variant {variant} {key}");
            }
            let many = db.multi_get(&ReadOptions::default(), &[b"k5", b"k9", b"k1"]).expect("multi get");
            assert_eq!(many.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, false]);
            assert_eq!(contents(&db).into_keys().collect::<Vec<_>>(), wanted, "variant {variant}");
            let options = ReadOptions {
                lower_bound: Some(b"k3".to_vec()),
                upper_bound: Some(b"k7".to_vec()),
                ..ReadOptions::default()
            };
            assert_eq!(scan(&db, &options).expect("scan").len(), usize::from(variant == 5));
            reads_by_prefix(&db, &wanted);
            if stage == 0 {
                compact(&db, None);
            }
        }
        db.verify(&mut |_, _| {}).expect("verify");
    }
}

/// Down to `level`, which merges with nothing: what is there keeps its tombstones.
fn compact_as_it_is(db: &Db, level: u8) {
    let options = CompactRangeOptions { target_level: Some(level), ..Default::default() };
    db.compact_range(&options, None, None).expect("compact");
}

/// Reads that a filter of prefixes may answer: with bounds around a prefix, and asked to end with one.
fn reads_by_prefix(db: &Db, wanted: &[Vec<u8>]) {
    for prefix in [&b"k"[..], b"k1", b"k5", b"k8", b"k9", b"c", b"a", b"x"] {
        let expected: Vec<&Vec<u8>> = wanted.iter().filter(|key| key.starts_with(prefix)).collect();
        let found = scan(db, &ReadOptions::default().with_prefix(prefix)).expect("scan");
        assert!(found.iter().map(|(key, _)| key).eq(expected.clone()), "prefix {prefix:02x?}");
        let Some(extractor) = &db.options().prefix_extractor else { continue };
        let asked = ReadOptions { prefix_same_as_start: true, ..ReadOptions::default() };
        let mut iter = db.iter(&asked).expect("iter");
        iter.seek(prefix).expect("seek");
        let Some(own) = extractor.extract(prefix).expect("no panic") else { continue };
        for key in wanted.iter().filter(|key| key.starts_with(own) && key[..] >= *prefix) {
            assert!(iter.valid(), "ended before {key:02x?}");
            assert_eq!(iter.key(), key);
            iter.next().expect("next");
        }
        assert!(!iter.valid(), "prefix {prefix:02x?}");
    }
}

/// One operation of the stream that all engines get.
fn operate(rng: &mut Rng, model: &mut Model, batch: &mut WriteBatch, last: &mut Vec<u8>) -> bool {
    let key = |n: u64| format!("k{n:04}").into_bytes();
    let at = rng.below(600);
    match rng.below(100) {
        0..5 => {
            // Random, overlapping, nested, adjacent to the one before.
            let from = if rng.below(4) == 0 { last.clone() } else { key(at) };
            let width = [1, 8, 60, 300][rng.below(4) as usize];
            let to = key(at + rng.below(width));
            let (from, to) = if from <= to { (from, to) } else { (to, from) };
            batch.delete_range(&from, &to).expect("delete a range");
            model.retain(|k, _| *k < from || *k >= to);
            *last = to;
            true
        }
        5..15 => {
            batch.delete(&key(at)).expect("delete");
            model.remove(&key(at));
            false
        }
        _ => {
            let len = rng.below(1000) as usize;
            let value = rng.bytes(len);
            batch.put(&key(at), &value).expect("put");
            model.insert(key(at), value);
            false
        }
    }
}

#[test]
fn b023_engines_that_compact_differently_agree_about_range_deletes() {
    let settings = [
        by_hand(),
        // L0 only: it is merged within itself, because nothing may leave it for long.
        Options { level0_compaction_trigger: 4, level_base_bytes: 64 << 20, ..tiny() },
        Options { level0_compaction_trigger: 1, level_base_bytes: 64 << 10, subcompactions_max: 3, ..tiny() },
    ];
    let dbs: Vec<Db> = settings.iter().map(on_sim).collect();
    let mut rng = Rng(23);
    let (mut model, mut last) = (Model::new(), b"k0000".to_vec());
    let (mut ranges, mut checks) = (0, 0);
    let mut held: Vec<(Vec<Snapshot>, Model)> = Vec::new();
    for round in 0..12 {
        for _ in 0..1000 {
            let mut batch = WriteBatch::new();
            ranges += u64::from(operate(&mut rng, &mut model, &mut batch, &mut last));
            for db in &dbs {
                db.write(&WriteOptions::default(), batch.clone()).expect("write");
            }
        }
        if round % 2 == 0 {
            dbs[0].flush().expect("flush");
            for target in [4, 5] {
                if round % 4 == 2 {
                    compact(&dbs[0], Some(target));
                }
            }
        }
        for (at, db) in dbs.iter().enumerate() {
            assert!(contents(db) == model, "engine {at} differs in round {round}");
            for (snapshots, then) in &held {
                let options = ReadOptions { snapshot: Some(snapshots[at].clone()), ..ReadOptions::default() };
                let seen: Model = scan(db, &options).expect("scan").into_iter().collect();
                assert!(seen == *then, "engine {at} differs at a snapshot in round {round}");
                checks += 1;
            }
        }
        if held.len() == 3 {
            held.remove(0);
        }
        held.push((dbs.iter().map(Db::snapshot).collect(), model.clone()));
    }
    assert!(ranges > 400 && checks > 80, "{ranges} {checks}");
    let metrics: Vec<_> = dbs.iter().map(|db| db.metrics().counters).collect();
    assert!(metrics[2].range_deletes_dropped > 50 && metrics[2].range_deletes_cut > 5, "{:?}", metrics[2]);
    assert!(metrics.iter().all(|m| m.range_deleted_entries > 500), "{metrics:?}");
}

#[test]
fn b109_prefixes_removed_as_ranges() {
    let alphabet = [0x00, 0x7f, 0xfe, 0xff];
    let mut keys: Vec<Vec<u8>> = vec![Vec::new()];
    let mut longest = keys.clone();
    for _ in 0..3 {
        longest = longest.iter().flat_map(|k| alphabet.map(|b| [&k[..], &[b]].concat())).collect();
        keys.extend(longest.clone());
    }
    keys.sort();
    let mut removed = 0;
    for (i, prefix) in keys.iter().enumerate() {
        let kept = prefix.iter().rposition(|b| *b != 0xff);
        let Some(end) = kept.map(|at| [&prefix[..at], &[prefix[at] + 1]].concat()) else { continue };
        let db = on_sim(&by_hand());
        keys.iter().for_each(|key| put(&db, key, key));
        if i % 2 == 0 {
            db.flush().expect("flush");
        }
        delete_range(&db, prefix, &end);
        let left: Vec<Vec<u8>> = keys.iter().filter(|k| !k.starts_with(prefix)).cloned().collect();
        for _ in 0..2 {
            assert_eq!(contents(&db).into_keys().collect::<Vec<_>>(), left, "prefix {prefix:02x?}");
            assert_eq!(get(&db, prefix), None);
            assert!(left.iter().all(|key| get(&db, key).as_ref() == Some(key)));
            compact(&db, None);
        }
        removed += keys.len() - left.len();
    }
    assert!(removed > 200, "{removed}");
}

#[test]
fn b133_many_tombstones_in_the_memtable_are_accounted_and_answered() {
    const COUNT: u64 = 10_000;
    let numbered = |n: u64| format!("{n:08}").into_bytes();
    // The same range again and again, disjoint ones, nested ones; a read after each.
    for shape in 0..3u64 {
        let db = on_sim(&Options { write_buffer_bytes: 1 << 20, ..tiny() });
        put(&db, &numbered(COUNT), b"v");
        for i in 0..COUNT {
            let (from, to) = match shape {
                0 => (42, 44),
                1 => (3 * i, 3 * i + 2),
                _ => (i, 2 * COUNT - i),
            };
            if i % 16 == 8 {
                put(&db, &numbered(to - 1), b"to go");
                assert_eq!(get(&db, &numbered(to - 1)).as_deref(), Some(&b"to go"[..]));
            }
            delete_range(&db, &numbered(from), &numbered(to));
            if i % 16 == 8 {
                assert_eq!(get(&db, &numbered(to - 1)), None);
                let mut iter = db.iter(&ReadOptions::default()).expect("iter");
                iter.seek(&numbered(to - 1)).expect("seek");
                assert!(!iter.valid() || iter.key() != numbered(to - 1));
            }
            if i % 16 == 0 {
                put(&db, &numbered(from), b"back");
                assert_eq!(get(&db, &numbered(from)).as_deref(), Some(&b"back"[..]));
            }
            let mut iter = db.iter(&ReadOptions::default()).expect("iter");
            iter.seek(&numbered(43)).expect("seek");
            assert_eq!(get(&db, &numbered(to - 1)), None);
        }
        // Memory was accounted: a memtable of 1 MiB cannot hold them all.
        db.wait_until_idle().expect("idle");
        assert!(db.metrics().counters.flushes >= 2, "shape {shape}");
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        match shape {
            0 => drop(model.insert(numbered(COUNT), b"v".to_vec())),
            1 => model.extend((0..COUNT).step_by(16).map(|i| (numbered(3 * i), b"back".to_vec()))),
            _ => model.extend((0..COUNT).step_by(16).map(|i| (numbered(i), b"back".to_vec()))),
        }
        if shape == 1 && COUNT % 3 == 2 {
            model.insert(numbered(COUNT), b"v".to_vec());
        }
        if shape == 0 {
            model.retain(|key, _| *key != numbered(42));
        }
        assert!(contents(&db) == model, "shape {shape}");
        compact(&db, None);
        assert!(contents(&db) == model, "shape {shape} compacted");
        db.verify(&mut |_, _| {}).expect("verify");
    }
}
