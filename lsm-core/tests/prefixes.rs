//! Prefix extractors: scans beside a model under several of them, in memtables, tables and levels,
//! over reopenings with another one; and what filters of prefixes spare.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

mod hostile;

use std::collections::BTreeMap;
use std::sync::Arc;

use dialsm_core::key::Comparator;
use dialsm_core::{
    CompactRangeOptions, Db, DbIterator, ErrorKind, Options, PrefixExtractor, ReadContext, ReadOptions,
    UserPrefixExtractor, WriteOptions, merge_operator,
};
use dialsm_io::SimFs;

use hostile::{Rng, by_hand, get, open_on, put, tiny};

/// Keys that begin with a letter belong to the group of that letter; others to none.
struct Letters;

impl UserPrefixExtractor for Letters {
    fn name(&self) -> &str {
        "test.letters"
    }
    fn extract<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        key.get(..1).filter(|first| first[0].is_ascii_lowercase())
    }
}

fn extractors() -> [Option<PrefixExtractor>; 7] {
    [
        None,
        Some(PrefixExtractor::Fixed(2)),
        Some(PrefixExtractor::Fixed(4)),
        Some(PrefixExtractor::Capped(3)),
        Some(PrefixExtractor::Delimiter(b'/')),
        Some(PrefixExtractor::Custom(Arc::new(Letters))),
        Some(PrefixExtractor::Fixed(0)),
    ]
}

fn extract<'k>(extractor: &Option<PrefixExtractor>, key: &'k [u8]) -> Option<&'k [u8]> {
    extractor.as_ref().and_then(|x| x.extract(key).expect("it does not panic"))
}

fn random_key(rng: &mut Rng) -> Vec<u8> {
    let first = [b'a', b'b', b'c', b'/', 0x00, 0xff][rng.below(6) as usize];
    match rng.below(6) {
        0 => vec![first; rng.below(5) as usize],
        1 => format!("{}/{}", first as char, rng.below(40)).into_bytes(),
        2 => [&[first, 0xff, 0xff], &rng.below(20).to_string().into_bytes()[..]].concat(),
        _ => {
            let tail = format!("{:02}/{}", rng.below(30), rng.below(20));
            [&[first], tail.as_bytes()].concat()
        }
    }
}

/// Now and then one whose prefix no stored key has.
fn with_odd_prefix(rng: &mut Rng) -> Vec<u8> {
    let mut key = random_key(rng);
    if rng.below(3) == 0
        && let Some(second) = key.get_mut(1)
    {
        *second = b'!';
    }
    key
}

#[derive(Default, Debug)]
struct Driven {
    confined: u64,
    steps: u64,
    ended_by_prefix: u64,
    extractor_changes: u64,
    filters_useful: u64,
    gets: u64,
    merges: u64,
    range_deletes: u64,
    range_deleted: u64,
    range_jumps: u64,
    compactions: u64,
}

struct Run {
    fs: Arc<SimFs>,
    options: Options,
    db: Option<Db>,
    model: BTreeMap<Vec<u8>, Vec<u8>>,
    rng: Rng,
    driven: Driven,
}

impl Run {
    fn new(seed: u64, comparator: Comparator) -> Run {
        let options = Options {
            comparator,
            prefix_extractor: extractors()[1].clone(),
            merge_operator: Some(merge_operator::append(b"+")),
            write_buffer_bytes: 64 << 10,
            ..tiny()
        };
        let fs = SimFs::new(seed);
        let db = Some(open_on(fs.clone(), &options).expect("open"));
        Run { fs, options, db, model: BTreeMap::new(), rng: Rng(seed), driven: Driven::default() }
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("open")
    }

    fn step(&mut self) {
        match self.rng.below(1000) {
            0..50 => {
                let (key, operand) = (random_key(&mut self.rng), self.rng.bytes(20));
                self.db().merge(&WriteOptions::default(), &key, &operand).expect("merge");
                let before = self.model.remove(&key);
                self.driven.merges += u64::from(before.is_some());
                let parts: Vec<Vec<u8>> = before.into_iter().chain([operand]).collect();
                self.model.insert(key, parts.join(&b'+'));
            }
            50..80 => self.delete_range(),
            80..430 => {
                let (key, len) = (random_key(&mut self.rng), self.rng.below(300) as usize);
                let value = self.rng.bytes(len);
                put(self.db(), &key, &value);
                self.model.insert(key, value);
            }
            430..550 => {
                let key = random_key(&mut self.rng);
                self.db().delete(&WriteOptions::default(), &key).expect("delete");
                self.model.remove(&key);
            }
            550..700 => {
                let key = random_key(&mut self.rng);
                assert_eq!(get(self.db(), &key), self.model.get(&key).cloned(), "{key:?}");
                self.driven.gets += 1;
            }
            700..960 => self.scan(),
            960..970 => self.db().flush().expect("flush"),
            970..976 => {
                let rewrite_bottom = self.rng.below(2) == 0;
                let options = CompactRangeOptions { rewrite_bottom, ..Default::default() };
                self.db().compact_range(&options, None, None).expect("compact");
            }
            976..984 => self.reopen(),
            _ => {}
        }
    }

    /// All keys that begin with something, turned round where the order is.
    fn delete_range(&mut self) {
        let key = random_key(&mut self.rng);
        let front = &key[..key.len().min(2 + self.rng.below(3) as usize)];
        let ReadOptions { lower_bound: Some(low), upper_bound: Some(high), .. } =
            ReadOptions::default().with_prefix(front)
        else {
            return;
        };
        let reverse = matches!(self.options.comparator, Comparator::ReverseBytewise);
        let (from, to) = if reverse { (high, low) } else { (low, high) };
        self.db().delete_range(&WriteOptions::default(), &from, &to).expect("delete a range");
        let (c, before) = (&self.options.comparator, self.model.len());
        self.model.retain(|key, _| c.compare(key, &from).is_lt() || c.compare(key, &to).is_ge());
        self.driven.range_deletes += 1;
        self.driven.range_deleted += (before - self.model.len()) as u64;
    }

    /// With another extractor, most of the time, and with or without whole keys in new filters.
    fn reopen(&mut self) {
        self.driven.compactions += self.db().compactions();
        drop(self.db.take());
        self.options.prefix_extractor = extractors()[self.rng.below(7) as usize].clone();
        self.options.filter_whole_keys = self.rng.below(2) == 0;
        self.db = Some(open_on(self.fs.clone(), &self.options).expect("reopen"));
        self.driven.extractor_changes += 1;
    }

    fn bounds(&mut self) -> ReadOptions {
        let options = ReadOptions::default();
        let (a, b) = (with_odd_prefix(&mut self.rng), random_key(&mut self.rng));
        match self.rng.below(6) {
            0 => options,
            1 => ReadOptions { upper_bound: Some(a), ..options },
            2 => ReadOptions { lower_bound: Some(a), ..options },
            3 => ReadOptions { lower_bound: Some(a), upper_bound: Some(b), ..options },
            _ => {
                let within = options.with_prefix(&a[..a.len().min(1 + self.rng.below(3) as usize)]);
                match self.options.comparator {
                    Comparator::Bytewise => within,
                    // Turned round, the bounds leave out the one edge and leave in the other: still
                    // a range that lies around a prefix, more or less.
                    _ => ReadOptions {
                        lower_bound: within.upper_bound,
                        upper_bound: within.lower_bound,
                        ..ReadOptions::default()
                    },
                }
            }
        }
    }

    fn scan(&mut self) {
        let mut options = self.bounds();
        let extractor = self.options.prefix_extractor.clone();
        options.prefix_same_as_start = extractor.is_some() && self.rng.below(2) == 0;
        let c = self.options.comparator.clone();
        let (low, high) = (options.lower_bound.clone(), options.upper_bound.clone());
        let mut inside: Vec<(&[u8], &[u8])> = self
            .model
            .iter()
            .map(|(key, value)| (&key[..], &value[..]))
            .filter(|(key, _)| low.as_ref().is_none_or(|low| c.compare(key, low).is_ge()))
            .filter(|(key, _)| high.as_ref().is_none_or(|high| c.compare(key, high).is_lt()))
            .collect();
        inside.sort_by(|a, b| c.compare(a.0, b.0));
        let target = with_odd_prefix(&mut self.rng);
        let mut iter = self.db.as_ref().expect("open").iter(&options).expect("iter");
        // Two positionings with one iterator: the first must leave nothing behind.
        for _ in 0..2 {
            let ended = walk_beside(
                &mut self.rng,
                &mut self.driven,
                &mut iter,
                &options,
                &extractor,
                &c,
                &inside,
                &target,
            );
            self.driven.ended_by_prefix += u64::from(ended);
        }
        self.driven.confined += u64::from(options.prefix_same_as_start);
        self.driven.filters_useful += iter.read_stats().filter_useful;
        self.driven.range_jumps += iter.stats().range_jumps;
    }
}

/// One positioning and some steps; whether the scan was ended by its prefix.
#[allow(clippy::too_many_arguments, reason = "all that a scan is")]
fn walk_beside(
    rng: &mut Rng,
    driven: &mut Driven,
    iter: &mut DbIterator,
    options: &ReadOptions,
    extractor: &Option<PrefixExtractor>,
    c: &Comparator,
    inside: &[(&[u8], &[u8])],
    target: &[u8],
) -> bool {
    let (mut at, start) = match rng.below(4) {
        0 => {
            iter.seek_to_first().expect("first");
            (inside.first().map(|_| 0), inside.first().map(|e| e.0))
        }
        1 => {
            iter.seek_to_last().expect("last");
            (inside.len().checked_sub(1), inside.last().map(|e| e.0))
        }
        2 => {
            iter.seek(target).expect("seek");
            (inside.iter().position(|(key, _)| c.compare(key, target).is_ge()), Some(target))
        }
        _ => {
            iter.seek_for_prev(target).expect("seek_for_prev");
            (inside.iter().rposition(|(key, _)| c.compare(key, target).is_le()), Some(target))
        }
    };
    let prefix = start.and_then(|key| extract(extractor, key)).filter(|_| options.prefix_same_as_start);
    let leaves = |at: usize| prefix.is_some_and(|p| extract(extractor, inside[at].0) != Some(p));
    let bias = 1 + rng.below(3);
    for _ in 0..rng.below(25) {
        let outside = at.is_some_and(leaves);
        assert_eq!(iter.valid(), at.is_some() && !outside, "{extractor:?} {options:?} from {target:?}");
        let Some(here) = at.filter(|_| !outside) else { return outside };
        assert_eq!((iter.key(), iter.value()), inside[here], "{extractor:?} {options:?} from {target:?}");
        driven.steps += 1;
        if rng.below(4) < bias {
            iter.next().expect("next");
            at = (here + 1 < inside.len()).then_some(here + 1);
        } else {
            iter.prev().expect("prev");
            at = here.checked_sub(1);
        }
    }
    false
}

fn random_scans(seed: u64, comparator: Comparator) {
    let steps = 12_000;
    let mut run = Run::new(seed, comparator);
    for _ in 0..steps {
        run.step();
    }
    run.db().verify(&mut |_, _| {}).expect("verify");
    run.driven.compactions += run.db().compactions();
    let d = &run.driven;
    println!("{d:?}");
    assert!(d.confined > steps / 20 && d.ended_by_prefix > steps / 40 && d.steps > steps / 4, "{d:?}");
    assert!(d.filters_useful > steps / 40 && d.gets > steps / 20, "{d:?}");
    assert!(d.extractor_changes > 20 && d.compactions > 20, "{d:?}");
    assert!(d.range_deletes > steps / 100 && d.range_deleted > steps / 40 && d.range_jumps > 100, "{d:?}");
    assert!(d.merges > steps / 200, "{d:?}");
}

#[test]
fn random_scans_agree_with_the_model() {
    random_scans(1, Comparator::Bytewise);
}

#[test]
fn random_scans_in_reverse_order_agree_with_the_model() {
    random_scans(2, Comparator::ReverseBytewise);
}

fn compact_to(db: &Db, level: u8) {
    let options = CompactRangeOptions { target_level: Some(level), ..Default::default() };
    db.compact_range(&options, None, None).expect("compact");
}

fn grouped(extractor: PrefixExtractor) -> Options {
    Options { prefix_extractor: Some(extractor), ..by_hand() }
}

fn looks(iter: &DbIterator) -> u64 {
    let stats = iter.read_stats();
    stats.blocks_read + stats.block_cache_hits
}

fn group_key(group: u32, i: u32) -> Vec<u8> {
    format!("g{group:05}/{i:03}").into_bytes()
}

/// A filter that denies a prefix says nothing of the range tombstones over it, in whatever level they lie.
#[test]
fn tombstones_of_tables_without_the_prefix_hide_all_the_same() {
    for level in [0, 3] {
        let db = open_on(SimFs::new(1), &grouped(PrefixExtractor::Delimiter(b'/'))).expect("open");
        for group in 0..20 {
            (0..5).for_each(|i| put(&db, &group_key(group, i), b"old"));
        }
        compact_to(&db, 6);
        // Nothing of groups 4 to 8 but the tombstone, in a table with entries of others.
        put(&db, &group_key(3, 0), b"new");
        put(&db, &group_key(10, 0), b"new");
        let (from, to) = (group_key(4, 2), group_key(8, 3));
        db.delete_range(&WriteOptions::default(), &from, &to).expect("delete a range");
        if level == 0 {
            db.flush().expect("flush")
        } else {
            compact_to(&db, level)
        }
        put(&db, &group_key(6, 1), b"newer");
        let mut useful = 0;
        for group in 2..12u32 {
            let prefix = format!("g{group:05}/").into_bytes();
            let wanted: Vec<Vec<u8>> = (0..5)
                .map(|i| group_key(group, i))
                .filter(|key| *key < from || *key >= to || *key == group_key(6, 1))
                .collect();
            let asked = ReadOptions { prefix_same_as_start: true, ..ReadOptions::default() };
            for options in [asked, ReadOptions::default().with_prefix(&prefix)] {
                let mut iter = db.iter(&options).expect("iter");
                let mut found = Vec::new();
                iter.seek(&prefix).expect("seek");
                while iter.valid() {
                    found.push(iter.key().to_vec());
                    iter.next().expect("next");
                }
                assert_eq!(found, wanted, "{group} forward");
                iter.seek_for_prev(&[&prefix[..], b"z"].concat()).expect("seek_for_prev");
                while iter.valid() {
                    assert_eq!(Some(iter.key().to_vec()), found.pop(), "{group} backward");
                    iter.prev().expect("prev");
                }
                assert!(found.is_empty());
                useful += iter.read_stats().filter_useful;
            }
        }
        assert!(useful > 10, "the table with the tombstone was asked and said no: {useful}");
    }
}

/// Even groups exist. A seek into an odd one reads no block in L0 or below, whichever way, whether
/// the caller asked for one prefix or the bounds prove it; and it is counted.
#[test]
fn absent_prefixes_cost_no_block() {
    let db = open_on(SimFs::new(1), &grouped(PrefixExtractor::Delimiter(b'/'))).expect("open");
    // One level of many tables; over it, three tables in L0.
    for group in 0..2000 {
        (0..3).for_each(|i| put(&db, &group_key(2 * group, i), &[7; 100]));
    }
    compact_to(&db, 3);
    for table in 0..3 {
        (0..50).for_each(|group| put(&db, &group_key(80 * group, 100 + table), b"newer"));
        db.flush().expect("flush");
    }
    let asked = ReadOptions { prefix_same_as_start: true, ..ReadOptions::default() };
    let mut seeks = 0;
    let mut seeks_with_block = 0;
    for group in (1..2000).step_by(20) {
        let prefix = format!("g{group:05}/").into_bytes();
        let bounds = ReadOptions::default().with_prefix(&prefix);
        let upper_only = ReadOptions { lower_bound: None, ..bounds.clone() };
        for options in [&asked, &bounds, &upper_only] {
            let mut iter = db.iter(options).expect("iter");
            iter.seek(&prefix).expect("seek");
            assert!(!iter.valid());
            seeks_with_block += u64::from(looks(&iter) > 0);
            seeks += 1;
        }
        for options in [&asked, &bounds] {
            let mut iter = db.iter(options).expect("iter");
            iter.seek_for_prev(&[&prefix[..], b"zzz"].concat()).expect("seek_for_prev");
            assert!(!iter.valid());
            seeks_with_block += u64::from(looks(&iter) > 0);
            seeks += 1;
        }
    }
    assert_eq!(seeks, 500);
    assert!(seeks_with_block * 100 <= seeks * 8, "{seeks_with_block} of {seeks} found a filter wrong");
    // In total order the next group is there, and costs its blocks.
    let mut iter = db.iter(&ReadOptions::default()).expect("iter");
    iter.seek(b"g00001/").expect("seek");
    assert_eq!(iter.key(), group_key(2, 0));
    assert!(looks(&iter) > 0);
    drop(iter);
    // A group that is there is shown whole, and only the tables that hold it are read.
    let before = db.metrics().counters;
    // No more at once than it comes to.
    let mut iter = db.iter(&ReadOptions { readahead_bytes: 1, ..asked.clone() }).expect("iter");
    iter.seek(&group_key(80, 0)).expect("seek");
    let mut found = Vec::new();
    while iter.valid() {
        found.push(iter.key().to_vec());
        iter.next().expect("next");
    }
    assert_eq!(found, [0, 1, 2, 100, 101, 102].map(|i| group_key(80, i)));
    let stats = iter.read_stats();
    assert!(stats.filter_checked >= 4 && looks(&iter) <= 12, "{stats:?}");
    drop(iter);
    let after = db.metrics().counters;
    assert_eq!(after.block_cache_misses - before.block_cache_misses, stats.blocks_read);
    assert_eq!(after.block_cache_hits - before.block_cache_hits, stats.block_cache_hits);
    assert_eq!(after.block_read_bytes - before.block_read_bytes, stats.bytes_read);
    assert_eq!(after.filter_checked - before.filter_checked, stats.filter_checked);
}

#[test]
fn few_prefixes_are_taken_for_present() {
    let db = open_on(SimFs::new(1), &grouped(PrefixExtractor::Fixed(7))).expect("open");
    for group in 0..10_000u32 {
        put(&db, &group_key(2 * group, 0), b"");
    }
    compact_to(&db, 5);
    let asked = ReadOptions { prefix_same_as_start: true, ..ReadOptions::default() };
    let mut iter = db.iter(&asked).expect("iter");
    let mut wrong = 0;
    let mut sought = 0;
    for group in 0..10_000u32 {
        let before = iter.read_stats();
        iter.seek(&group_key(2 * group + 1, 0)).expect("seek");
        assert!(!iter.valid());
        let after = iter.read_stats();
        sought += after.filter_checked - before.filter_checked;
        wrong +=
            (after.filter_checked - before.filter_checked) - (after.filter_useful - before.filter_useful);
    }
    println!("{wrong} of {sought} wrong");
    assert!(sought > 9_000 && wrong * 1000 > sought && wrong * 67 < sought, "{wrong} of {sought}");
}

#[test]
fn point_reads_with_prefixes_only() {
    let options = Options { filter_whole_keys: false, ..grouped(PrefixExtractor::Fixed(7)) };
    let fs = SimFs::new(1);
    let db = open_on(fs.clone(), &options).expect("open");
    for group in 0..500u32 {
        (0..4).for_each(|i| put(&db, &group_key(2 * group, i), &i.to_le_bytes()));
    }
    let short: Vec<Vec<u8>> = (0..50u8).map(|i| vec![b'g', b'0' + i % 10, i]).collect();
    short.iter().for_each(|key| put(&db, key, key));
    compact_to(&db, 4);
    let check = |db: &Db, useful_min: u64| {
        let mut context = ReadContext::default();
        for group in 0..1000u32 {
            let found = db.get_with_context(&ReadOptions::default(), &group_key(group, 2), &mut context);
            assert_eq!(found.expect("get").is_some(), group % 2 == 0);
        }
        let (checked, useful) = (context.blocks.filter_checked, context.blocks.filter_useful);
        assert!(useful >= useful_min && useful <= 500, "{useful} of {checked}");
        for key in &short {
            assert_eq!(get(db, key).as_ref(), Some(key), "out of the domain");
        }
        db.verify(&mut |_, _| {}).expect("verify");
    };
    check(&db, 450);
    drop(db);
    // Another extractor, and none: the filters are of no use, and do no harm.
    for extractor in [Some(PrefixExtractor::Fixed(6)), Some(PrefixExtractor::Capped(7)), None] {
        let db =
            open_on(fs.clone(), &Options { prefix_extractor: extractor, ..options.clone() }).expect("open");
        check(&db, 0);
        assert_eq!(db.metrics().counters.filter_checked, 0);
    }
    check(&open_on(fs, &options).expect("open with the first one"), 450);
}

#[test]
fn confining_needs_an_extractor() {
    let db = open_on(SimFs::new(1), &tiny()).expect("open");
    let asked = ReadOptions { prefix_same_as_start: true, ..ReadOptions::default() };
    assert_eq!(db.iter(&asked).map(drop).expect_err("no extractor").kind(), ErrorKind::InvalidArgument);
}

/// Panics at keys with an `x`, in flushes as in reads.
struct Squeamish;

impl UserPrefixExtractor for Squeamish {
    fn name(&self) -> &str {
        "test.squeamish"
    }
    fn extract<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        assert!(!key.contains(&b'x'), "an x");
        key.get(..1)
    }
}

#[test]
fn an_extractor_that_panics_hides_nothing() {
    let extractor = PrefixExtractor::Custom(Arc::new(Squeamish));
    let options = Options { filter_whole_keys: false, ..grouped(extractor) };
    let db = open_on(SimFs::new(1), &options).expect("open");
    let keys: [&[u8]; 5] = [b"a1", b"a2", b"bx", b"c1", b"c2"];
    keys.iter().for_each(|key| put(&db, key, b"v"));
    db.flush().expect("flush");
    for key in keys {
        assert!(get(&db, key).is_some());
    }
    let asked = ReadOptions { prefix_same_as_start: true, ..ReadOptions::default() };
    let mut iter = db.iter(&asked).expect("iter");
    for (target, wanted) in [(&b"a"[..], 2), (b"c", 2)] {
        iter.seek(target).expect("seek");
        let mut shown = 0;
        let end = loop {
            if !iter.valid() {
                break Ok(());
            }
            shown += 1;
            if let Err(error) = iter.next() {
                break Err(error);
            }
        };
        assert_eq!(shown, wanted);
        // Behind the `a`s stands a key it panics at: an error, not an end.
        assert_eq!(end.map_err(|e| e.kind()), if target == b"a" { Err(ErrorKind::Callback) } else { Ok(()) });
    }
    assert_eq!(iter.seek(b"x").expect_err("it panics").kind(), ErrorKind::Callback);
    iter.seek(b"c2").expect("another key");
    assert!(iter.valid());
}
