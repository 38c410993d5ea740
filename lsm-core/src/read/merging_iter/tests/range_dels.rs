//! The merge with range tombstones beside a model without them: sources as sets and as levels of
//! tables, in both directions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::*;
use crate::key::{range_end, seqno_of, user_key};
use crate::range_del::fragments::clip;
use crate::range_del::scan::ScanCover;
use crate::range_del::{RangeDels, RangeTombstone};
use crate::read::level_iter::LevelIter;
use crate::types::{FileNumber, SEQNO_MAX};
use crate::version::{Level, TableFile, TableMeta, Version};

const C: Comparator = Comparator::Bytewise;

/// A source: its entries and its tombstones.
#[derive(Default)]
struct Source {
    entries: Vec<Entry>,
    tombstones: Vec<RangeTombstone>,
}

/// Sources, newest first, of operations in one line of sequences (I3).
fn random_sources(rng: &mut Rng) -> Vec<Source> {
    let mut sources: Vec<Source> = Vec::new();
    let mut seqno = 0;
    for _ in 0..1 + rng.below(5) {
        let mut source = Source::default();
        for _ in 0..rng.below(12) {
            seqno += 1;
            let key = [b'b' + rng.below(6) as u8];
            if rng.below(4) == 0 {
                let end = [key[0] + 1 + rng.below(4) as u8];
                source.tombstones.push(RangeTombstone { start: key[..].into(), end: end[..].into(), seqno });
            } else {
                source.entries.push(entry(&key, seqno, Kind::Put as u8));
            }
        }
        sources.insert(0, source);
    }
    sources
}

type Tables = BTreeMap<u64, (Vec<Entry>, Arc<RangeDels>)>;

/// The source as a level: cut into tables at some keys, tombstones and all.
fn as_level(source: &Source, rng: &mut Rng) -> (Arc<Level>, Tables) {
    let mut borders: Vec<Option<Vec<u8>>> =
        (b'c'..b'j').filter(|_| rng.below(3) == 0).map(|b| Some(vec![b])).collect();
    borders.push(None);
    let (mut added, mut tables, mut from) = (Vec::new(), Tables::new(), None::<Vec<u8>>);
    for to in borders {
        let within = |key: &[u8]| {
            from.as_deref().is_none_or(|from| from <= key) && to.as_deref().is_none_or(|to| key < to)
        };
        let mut entries: Vec<Entry> =
            source.entries.iter().filter(|e| within(user_key(&e.0))).cloned().collect();
        entries.sort_by(|a, b| C.compare_internal(&a.0, &b.0));
        let pieces: Vec<RangeTombstone> = source
            .tombstones
            .iter()
            .filter_map(|t| clip(&C, t.clone(), from.as_deref(), to.as_deref()))
            .collect();
        let firsts = pieces.iter().map(|t| internal_key(&t.start, t.seqno, Kind::RangeDelete as u8));
        let smallest =
            firsts.chain(entries.first().map(|e| e.0.clone())).min_by(|a, b| C.compare_internal(a, b));
        let lasts = pieces.iter().map(|t| range_end(&t.end));
        let largest =
            lasts.chain(entries.last().map(|e| e.0.clone())).max_by(|a, b| C.compare_internal(a, b));
        from = to;
        let Some((smallest, largest)) = smallest.zip(largest) else { continue };
        let number = FileNumber(1 + added.len() as u64);
        let meta = TableMeta {
            number,
            smallest,
            largest,
            range_deletes: pieces.len() as u64,
            ..TableMeta::default()
        };
        added.push((1, TableFile::new(&C, meta)));
        tables.insert(number.0, (entries, Arc::new(RangeDels::new(C, pieces))));
    }
    let version = Version::empty(C).apply(&[], &added).expect("tables that only touch do not overlap");
    (version.level(1).clone(), tables)
}

#[test]
fn a_walk_shows_what_no_tombstone_hides() {
    let (mut turns, mut hidden, mut above) = (0, 0, 0);
    let (mut jumps, mut covered, mut opened) = (0, 0, 0);
    for seed in 0..400 {
        let mut rng = Rng(seed);
        let sources = random_sources(&mut rng);
        let last = sources.iter().flat_map(|s| &s.entries).map(|e| seqno_of(&e.0)).max().unwrap_or(1);
        let snapshot = if rng.below(2) == 0 { SEQNO_MAX } else { rng.below(last + 1) };
        let all: Vec<&RangeTombstone> = sources.iter().flat_map(|s| &s.tombstones).collect();
        let hides = |e: &Entry| {
            let (key, seqno) = (user_key(&e.0), seqno_of(&e.0));
            all.iter().any(|t| *t.start <= *key && *key < *t.end && t.seqno <= snapshot && t.seqno > seqno)
        };
        let mut model: Vec<Entry> = sources.iter().flat_map(|s| s.entries.clone()).collect();
        hidden += model.iter().filter(|e| hides(e)).count();
        model.retain(|e| !hides(e));
        above += model.iter().filter(|e| seqno_of(&e.0) > snapshot).count();
        model.sort_by(|a, b| C.compare_internal(&a.0, &b.0));

        let opens = Arc::new(AtomicU64::new(0));
        let mut cover = ScanCover::new(C, snapshot);
        let mut children: Vec<Box<dyn InternalIter>> = Vec::new();
        let sets_first = rng.below(sources.len() as u64 + 1) as usize;
        for (at, source) in sources.iter().enumerate() {
            let newest = source.entries.iter().map(|e| seqno_of(&e.0)).max().unwrap_or(0);
            if at < sets_first {
                // In runs, as a memtable has them; sometimes nothing is known of the entries.
                let newest = if rng.below(2) == 0 { newest } else { SEQNO_MAX };
                let (a, b) = source.tombstones.split_at(source.tombstones.len() / 2);
                for run in [a, b].into_iter().filter(|run| !run.is_empty()) {
                    cover.add_set(at, Arc::new(RangeDels::new(C, run.iter().cloned())), newest);
                }
                children.push(Box::new(VecIter::new(source.entries.clone())));
                continue;
            }
            let (level, tables) = as_level(source, &mut rng);
            let tables = Arc::new(tables);
            if !level.with_range_deletes().is_empty() {
                let (of, count) = (tables.clone(), opens.clone());
                let open = move |table: &Arc<TableFile>| {
                    count.fetch_add(1, Relaxed);
                    Ok(Some(of[&table.number().0].1.clone()))
                };
                cover.add_level(at, level.clone(), Box::new(open));
            }
            let open = move |table: &Arc<TableFile>| Ok(VecIter::new(tables[&table.number().0].0.clone()));
            children.push(Box::new(LevelIter::new(C, level, None, None, open)));
        }
        let mut iter = MergingIter::new(C, children).with_cover(cover);
        turns += walk(&mut iter, &model, 400, &mut rng);
        let stats = iter.range_stats();
        (jumps, covered) = (jumps + stats.jumps, covered + stats.covered);
        opened += opens.load(Relaxed);
    }
    assert!(turns > 4000 && hidden > 1200 && above > 800, "{turns} {hidden} {above}");
    assert!(jumps > 2000 && covered > 500 && opened > 500, "{jumps} {covered} {opened}");
}

#[test]
fn b003_a_table_that_does_not_open_for_its_tombstones_is_no_end() {
    let meta = TableMeta {
        number: FileNumber(1),
        smallest: internal_key(b"c", 9, Kind::RangeDelete as u8),
        largest: range_end(b"f"),
        range_deletes: 1,
        ..TableMeta::default()
    };
    let version = Version::empty(C).apply(&[], &[(1, TableFile::new(&C, meta))]).expect("one table");
    let mut cover = ScanCover::new(C, SEQNO_MAX);
    let failures = Arc::new(AtomicU64::new(0));
    let count = failures.clone();
    let open = move |_: &Arc<TableFile>| {
        count.fetch_add(1, Relaxed);
        Err(Error::new(ErrorKind::Io, "injected"))
    };
    cover.add_level(0, version.level(1).clone(), Box::new(open));
    let entries = vec![entry(b"a", 1, 7), entry(b"d", 1, 7), entry(b"g", 1, 7)];
    let mut iter =
        MergingIter::new(C, vec![VecIter::new(Vec::new()), VecIter::new(entries)]).with_cover(cover);
    iter.seek_to_first().expect("outside the table's range");
    assert_eq!(user_key(iter.key()), b"a");
    assert_eq!(iter.next().expect_err("the table is needed").kind(), ErrorKind::Io);
    assert!(!iter.valid() && iter.next().is_err() && failures.load(Relaxed) == 1);
    iter.seek(&internal_key(b"g", SEQNO_MAX, 7)).expect("outside again");
    assert_eq!(user_key(iter.key()), b"g");
}
