//! Random operations beside a model, and many threads at once. Smaller under Miri, which checks
//! the protocol of `node` for data races as it goes.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{self, AtomicU64};

use super::Memtable;
use crate::key::{
    self, Comparator, Kind, UserComparator, internal_key, kind_byte_of, seqno_of, trailer, user_key,
};
use crate::read::internal::InternalIter;
use crate::types::SEQNO_MAX;

/// Full size, or small under Miri.
fn scaled(full: usize, miri: usize) -> usize {
    if cfg!(miri) { miri } else { full }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// Orders by length, then by the bytes with case ignored: unlike the bytes' own order, and it
/// calls different bytes equal.
struct ByLength;

impl UserComparator for ByLength {
    fn name(&self) -> &str {
        "test.by-length"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.len().cmp(&b.len()).then_with(|| a.to_ascii_lowercase().cmp(&b.to_ascii_lowercase()))
    }
}

fn comparators() -> [Comparator; 3] {
    [Comparator::Bytewise, Comparator::ReverseBytewise, Comparator::Custom(Arc::new(ByLength))]
}

/// Internal keys for a `BTreeMap`, ordered by a comparator.
#[derive(Clone)]
struct Ordered(Vec<u8>, Comparator);

impl Ord for Ordered {
    fn cmp(&self, other: &Ordered) -> Ordering {
        self.1.compare_internal(&self.0, &other.0)
    }
}
impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Ordered) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Ordered {
    fn eq(&self, other: &Ordered) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Ordered {}

type Model = BTreeMap<Ordered, Vec<u8>>;

/// Keys made to hurt: they tie in their first bytes, differ by padding only, or are huge.
fn adversarial_key(random: &mut Random) -> Vec<u8> {
    let mut key = match random.below(8) {
        0 => return vec![[0, 0xff, b'a', b'A'][random.below(4)]; random.below(20)],
        1 => b"sharedprefix".repeat(1 + random.below(3)),
        2 => b"12345678".to_vec(),
        3 => vec![0; random.below(10)],
        4 => vec![0xff; random.below(10)],
        5 if random.below(scaled(40, 8)) == 0 => {
            let mut key = vec![b'z'; key::KEY_BYTES_MAX];
            key[65_000] = random.next() as u8;
            return key;
        }
        _ => Vec::new(),
    };
    let tail = random.below(10);
    key.extend((0..tail).map(|_| [0, 1, b'a', b'A', b'b', 0xfe, 0xff][random.below(7)]));
    key
}

fn random_kind(random: &mut Random) -> Kind {
    [Kind::Put, Kind::Put, Kind::Delete, Kind::Merge, Kind::ClueValue, Kind::RedirectedValue][random.below(6)]
}

fn assert_at(iter: &impl InternalIter, expected: Option<(&Ordered, &Vec<u8>)>) {
    assert_eq!(iter.valid(), expected.is_some());
    if let Some((key, value)) = expected {
        assert!(iter.key() == key.0 && iter.value() == value, "the cursor stands on another entry");
    }
}

fn check_get(table: &Memtable, model: &Model, key: &[u8], seqno: u64) -> bool {
    let order = table.comparator();
    let target = Ordered(internal_key(key, seqno, key::SEEK_KIND), order.clone());
    let expected =
        model.range(target..).next().filter(|(found, _)| order.compare(user_key(&found.0), key).is_eq());
    let found = table.get(key, seqno);
    assert_eq!(found.is_some(), expected.is_some());
    if let (Some(entry), Some((internal, value))) = (found, expected) {
        assert_eq!((entry.seqno, entry.kind_byte), (seqno_of(&internal.0), kind_byte_of(&internal.0)));
        assert!(entry.value == value);
    }
    found.is_some()
}

fn check_scans(table: &Arc<Memtable>, model: &Model) {
    let mut iter = table.iter();
    iter.seek_to_first().expect("in memory");
    for expected in model {
        assert_at(&iter, Some(expected));
        iter.next().expect("in memory");
    }
    assert_at(&iter, None);
    iter.seek_to_last().expect("in memory");
    for expected in model.iter().rev() {
        assert_at(&iter, Some(expected));
        iter.prev().expect("in memory");
    }
    assert_at(&iter, None);
}

/// Seeks, then a walk that turns around.
fn check_walk(table: &Arc<Memtable>, model: &Model, target: &Ordered, random: &mut Random) -> usize {
    let mut iter = table.iter();
    let mut expected = if random.below(2) == 0 {
        iter.seek(&target.0).expect("in memory");
        model.range(target..).next()
    } else {
        iter.seek_for_prev(&target.0).expect("in memory");
        model.range(..=target).next_back()
    };
    let mut steps = 0;
    for _ in 0..10 {
        assert_at(&iter, expected);
        let Some((at, _)) = expected else { break };
        if random.below(3) > 0 {
            iter.next().expect("in memory");
            expected = model.range((std::ops::Bound::Excluded(at), std::ops::Bound::Unbounded)).next();
        } else {
            iter.prev().expect("in memory");
            expected = model.range(..at).next_back();
        }
        steps += 1;
    }
    steps
}

fn check_counters(table: &Memtable, model: &Model) {
    assert_eq!(table.entries(), model.len());
    assert_eq!(table.is_empty(), model.is_empty());
    let is_delete = |key: &&Ordered| kind_byte_of(&key.0) == Kind::Delete as u8;
    assert_eq!(table.deletes(), model.keys().filter(is_delete).count());
    let seqnos = || model.keys().map(|key| seqno_of(&key.0));
    assert_eq!(table.seqno_range(), seqnos().min().zip(seqnos().max()));
    let key_bytes: usize = model.keys().map(|key| user_key(&key.0).len()).sum();
    assert_eq!(table.raw_key_bytes(), key_bytes as u64);
    assert_eq!(table.raw_value_bytes(), model.values().map(|value| value.len() as u64).sum::<u64>());
    assert!(table.bytes_used() as u64 > table.raw_key_bytes() + table.raw_value_bytes());
}

fn insert_both(
    table: &Memtable,
    model: &mut Model,
    key: &[u8],
    seqno: u64,
    kind: Kind,
    value: Vec<u8>,
) -> bool {
    table.insert(key, seqno, kind, &value);
    let internal = Ordered(internal_key(key, seqno, kind as u8), table.comparator().clone());
    let is_new = !model.contains_key(&internal);
    if is_new {
        model.insert(internal, value);
    }
    is_new
}

#[test]
fn model_of_adversarial_keys_under_every_comparator() {
    for (seed, order) in comparators().into_iter().enumerate() {
        let mut random = Random(seed as u64);
        let table = Arc::new(Memtable::new(order.clone()));
        let mut model = Model::new();
        let (mut repeats, mut hits, mut misses, mut steps, mut huge) = (0, 0, 0, 0, 0);
        for round in 0..scaled(12_000, 160) {
            let key = adversarial_key(&mut random);
            let seqno = random.below(200) as u64;
            match random.below(4) {
                0 | 1 => {
                    let (kind, size) = (random_kind(&mut random), random.below(40));
                    let value = vec![round as u8; size];
                    huge += usize::from(key.len() == key::KEY_BYTES_MAX);
                    repeats += usize::from(!insert_both(&table, &mut model, &key, seqno, kind, value));
                }
                2 => match check_get(&table, &model, &key, seqno) {
                    true => hits += 1,
                    false => misses += 1,
                },
                _ => {
                    let kind = [0, 7, key::SEEK_KIND][random.below(3)];
                    let target = Ordered(internal_key(&key, seqno, kind), order.clone());
                    steps += check_walk(&table, &model, &target, &mut random);
                }
            }
        }
        check_scans(&table, &model);
        check_counters(&table, &model);
        assert!(model.len() > scaled(3000, 50) && repeats >= scaled(50, 0), "{} {repeats}", model.len());
        assert!(hits > scaled(500, 0) && misses > scaled(300, 2) && steps > scaled(10_000, 50));
        assert!(huge >= scaled(10, 0), "{huge}");
    }
}

#[test]
fn model_of_orders_that_split_at_the_ends_and_in_the_middle() {
    let count = scaled(9000, 100) as u64;
    let orders: [fn(u64, u64) -> u64; 4] = [
        |i, _| i,
        |i, count| count - i,
        |i, count| if i % 2 == 0 { i } else { 2 * count - i },
        |i, count| (i % 5) * count + i,
    ];
    for comparator in comparators() {
        for (nth, order) in orders.into_iter().enumerate() {
            let table = Arc::new(Memtable::new(comparator.clone()));
            let mut model = Model::new();
            for i in 0..count {
                // Most of the key is shared, so that the words have to move behind it.
                let key = format!("a/long/shared/head/{:08}", order(i, count));
                assert!(insert_both(&table, &mut model, key.as_bytes(), i, Kind::Put, vec![i as u8; 9]));
            }
            check_scans(&table, &model);
            check_counters(&table, &model);
            for i in 0..count {
                let key = format!("a/long/shared/head/{:08}", order(i, count));
                assert_eq!(table.get(key.as_bytes(), SEQNO_MAX).map(|e| e.seqno), Some(i), "order {nth}");
                assert!(table.get(&key.as_bytes()[..20], SEQNO_MAX).is_none());
                assert!(table.get(format!("{key}x").as_bytes(), SEQNO_MAX).is_none());
            }
        }
    }
}

#[test]
fn many_versions_of_one_key_span_leaves() {
    let table = Memtable::new(Comparator::Bytewise);
    let count = scaled(5000, 120) as u64;
    let mut random = Random(3);
    let mut seqnos: Vec<u64> = (0..count).map(|i| i * 2 + 10).collect();
    for i in (1..seqnos.len()).rev() {
        seqnos.swap(i, random.below(i + 1));
    }
    table.insert(b"key0", 5, Kind::Put, b"behind");
    table.insert(b"kex", 5, Kind::Put, b"before");
    for &seqno in &seqnos {
        table.insert(b"key", seqno, Kind::Put, &seqno.to_le_bytes());
    }
    for i in 0..count {
        for asked in [i * 2 + 10, i * 2 + 11] {
            let entry = table.get(b"key", asked).expect("a version at or below it exists");
            assert_eq!((entry.seqno, entry.value), (i * 2 + 10, &(i * 2 + 10).to_le_bytes()[..]));
        }
    }
    assert!(table.get(b"key", 9).is_none());
    assert_eq!(table.get(b"key0", 9).map(|e| e.value), Some(&b"behind"[..]));
    assert_eq!(table.entries() as u64, count + 2);
}

#[test]
fn a_repeat_is_ignored_and_kinds_of_one_sequence_sort_value_first() {
    let table = Memtable::new(Comparator::Bytewise);
    table.insert(b"k", 7, Kind::ClueValue, b"clue");
    table.insert(b"k", 7, Kind::Put, b"first");
    table.insert(b"k", 7, Kind::Put, b"second");
    let entry = table.get(b"k", 7).expect("inserted");
    assert_eq!((entry.kind_byte, entry.value), (Kind::Put as u8, &b"first"[..]));
    assert_eq!(table.entries(), 2);
    assert_eq!(table.raw_value_bytes(), 9);
    assert_eq!(format!("{entry:?}"), "Entry(seqno 7, kind 7, 5 bytes)");
}

#[test]
fn an_idle_memtable_is_small_and_a_large_value_is_accounted() {
    let table = Memtable::new(Comparator::Bytewise);
    assert!(table.is_empty() && table.seqno_range().is_none());
    assert!(table.bytes_used() < 6 << 10, "{}", table.bytes_used());
    table.insert(b"", 0, Kind::Put, b"");
    assert!(table.bytes_used() < 10 << 10);
    assert_eq!(table.seqno_range(), Some((0, 0)));
    let large = vec![1; 20 << 20];
    table.insert(b"large", 1, Kind::Put, &large);
    assert!(table.bytes_used() > 20 << 20 && table.bytes_used() < (20 << 20) + (16 << 10));
    assert!(table.get(b"large", 1).expect("inserted").value == large);
    assert_eq!(table.get(b"", 1).map(|e| e.value.len()), Some(0));
}

/// Key number `i` of writer `writer`: the writers' keys interleave, and the order is scattered.
fn stress_key(writer: usize, i: usize) -> Vec<u8> {
    let scattered = (i as u32).wrapping_mul(0x9e37_79b1).rotate_left(7);
    format!("shared/{:010}/{writer}", scattered % 1_000_003).into_bytes()
}

/// Runs `writers` inserting `count` entries each, and `readers` beside them; each reader gets the
/// counts that writers have published, and whether writing has ended.
fn stress(
    table: &Arc<Memtable>,
    (writers, count): (usize, usize),
    key_of: fn(usize, usize) -> Vec<u8>,
    reader: impl Fn(usize, &[AtomicU64]) -> usize + Sync,
) -> Vec<usize> {
    let published: Vec<AtomicU64> = (0..writers).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let (table, published) = (Arc::clone(table), &published[writer]);
            scope.spawn(move || {
                for i in 0..count {
                    let key = key_of(writer, i);
                    let seqno = (i * writers + writer) as u64;
                    table.insert(&key, seqno, Kind::Put, &key);
                    published.store(i as u64 + 1, atomic::Ordering::Release);
                }
            });
        }
        let readers: Vec<_> = (0..2)
            .map(|nth| {
                let (reader, published) = (&reader, &published);
                scope.spawn(move || {
                    let mut rounds = 0;
                    loop {
                        let done =
                            || published.iter().all(|p| p.load(atomic::Ordering::Acquire) as usize == count);
                        let was_done = done();
                        rounds += reader(nth, published);
                        if was_done {
                            return rounds;
                        }
                    }
                })
            })
            .collect();
        readers.into_iter().map(|reader| reader.join().expect("reader")).collect()
    })
}

#[test]
fn concurrent_inserts_are_found_by_gets_as_soon_as_published() {
    let table = Arc::new(Memtable::new(Comparator::Bytewise));
    let count = scaled(20_000, 60);
    let rounds = stress(&table, (3, count), stress_key, |nth, published| {
        let mut random = Random(nth as u64 + 1);
        let mut checked = 0;
        for (writer, published) in published.iter().enumerate() {
            let known = published.load(atomic::Ordering::Acquire) as usize;
            for _ in 0..known.min(scaled(20, 2)) {
                // Mostly the freshest, which a split may just be moving.
                let i = if random.below(2) == 0 {
                    known - 1 - random.below(known.min(40))
                } else {
                    random.below(known)
                };
                let key = stress_key(writer, i);
                let entry = table.get(&key, SEQNO_MAX).expect("published before the look");
                assert!(entry.value == key);
                checked += 1;
            }
        }
        checked
    });
    assert!(rounds.iter().all(|&checked| checked > scaled(60, 3)), "{rounds:?}");
    assert_eq!(table.entries(), 3 * count);
    for writer in 0..3 {
        assert!((0..count).all(|i| table.get(&stress_key(writer, i), SEQNO_MAX).is_some()));
    }
}

/// A whole scan in one direction: ascends strictly, and passes all that was published before it.
fn scan_beside_inserts(table: &Arc<Memtable>, published: &[AtomicU64], forward: bool) -> usize {
    let before: Vec<usize> = published.iter().map(|p| p.load(atomic::Ordering::Acquire) as usize).collect();
    let mut iter = table.iter();
    if forward { iter.seek_to_first() } else { iter.seek_to_last() }.expect("in memory");
    let mut seen = vec![0; published.len()];
    let mut last: Option<Vec<u8>> = None;
    while iter.valid() {
        if let Some(last) = &last {
            let order = table.comparator().compare_internal(last, iter.key());
            assert_eq!(order, if forward { Ordering::Less } else { Ordering::Greater });
        }
        assert!(user_key(iter.key()) == iter.value());
        let seqno = seqno_of(iter.key()) as usize;
        let (writer, i) = (seqno % published.len(), seqno / published.len());
        seen[writer] += usize::from(i < before[writer]);
        last = Some(iter.key().to_vec());
        if forward { iter.next() } else { iter.prev() }.expect("in memory");
    }
    assert_eq!(seen, before, "an entry published before the scan was skipped");
    1
}

#[test]
fn concurrent_scans_skip_nothing_in_either_direction() {
    for comparator in [Comparator::Bytewise, Comparator::ReverseBytewise] {
        let table = Arc::new(Memtable::new(comparator));
        let count = scaled(8000, 50);
        let rounds = stress(&table, (2, count), stress_key, |nth, published| {
            scan_beside_inserts(&table, published, nth == 0)
        });
        assert!(rounds.iter().all(|&scans| scans >= 1), "{rounds:?}");
        assert_eq!(table.entries(), 2 * count);
    }
}

/// All writers ascend through the same keys, at their own sequences: they meet in the last leaf.
fn ascending_key(_writer: usize, i: usize) -> Vec<u8> {
    format!("{i:012}").into_bytes()
}

#[test]
fn concurrent_ascending_writers_meet_in_the_last_leaf() {
    let table = Arc::new(Memtable::new(Comparator::Bytewise));
    let count = scaled(8000, 60);
    stress(&table, (3, count), ascending_key, |nth, published| {
        scan_beside_inserts(&table, published, nth == 0)
    });
    assert_eq!(table.entries(), 3 * count);
    assert_eq!(table.seqno_range(), Some((0, 3 * count as u64 - 1)));
}

#[test]
fn concurrent_repeats_leave_one_entry_each() {
    let table = Memtable::new(Comparator::Bytewise);
    let count = scaled(5000, 60);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for i in 0..count {
                    table.insert(&stress_key(0, i), i as u64, Kind::Put, b"same");
                }
            });
        }
    });
    assert_eq!(table.entries(), count);
}

#[test]
fn an_iterator_outlives_other_handles_and_sees_inserts_around_it() {
    let table = Arc::new(Memtable::new(Comparator::Bytewise));
    table.insert(b"m", 1, Kind::Put, b"1");
    let mut iter = table.iter();
    iter.seek(&internal_key(b"a", SEQNO_MAX, key::SEEK_KIND)).expect("in memory");
    for i in 0..scaled(500, 80) as u64 {
        table.insert(format!("c{i:04}").as_bytes(), 2, Kind::Put, b"2");
        table.insert(format!("x{i:04}").as_bytes(), 2, Kind::Put, b"2");
    }
    drop(table);
    assert_eq!(user_key(iter.key()), b"m");
    iter.next().expect("in memory");
    assert_eq!(user_key(iter.key()), b"x0000");
    iter.prev().expect("in memory");
    iter.prev().expect("in memory");
    assert_eq!(user_key(iter.key()), format!("c{:04}", scaled(500, 80) - 1).as_bytes());
    assert_eq!(key::trailer_of(iter.key()), trailer(2, Kind::Put as u8));
}
