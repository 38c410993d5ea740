use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::read::level_iter::LevelIter;
use crate::read::merging_iter::MergingIter;
use crate::read::testing::{Entry, Rng, VecIter, entry, level_of, random_tables};
use crate::version::TableFile;

type Merged = DbIter<MergingIter<VecIter>>;

const PUT: u8 = Kind::Put as u8;
const DELETE: u8 = Kind::Delete as u8;
const SINGLE_DELETE: u8 = Kind::SingleDelete as u8;
const MERGE: u8 = Kind::Merge as u8;

/// An iterator over entries dealt out to `n` children in turn.
fn db_iter(
    entries: &[Entry],
    n: usize,
    snapshot: SeqNo,
    lower: Option<&[u8]>,
    upper: Option<&[u8]>,
) -> Merged {
    let mut children = vec![Vec::new(); n];
    for (i, e) in entries.iter().enumerate() {
        children[i % n].push(e.clone());
    }
    let children = children.into_iter().map(VecIter::new).collect();
    DbIter::new(
        MergingIter::new(Comparator::Bytewise, children),
        Comparator::Bytewise,
        snapshot,
        lower,
        upper,
    )
    .merging(Some(crate::merge_operator::append(b"+")))
}

fn puts(keys: &[&[u8]]) -> Vec<Entry> {
    keys.iter().zip(1..).map(|(key, seqno)| entry(key, seqno, PUT)).collect()
}

/// The key it stands on, or "-".
fn shown(iter: &Merged) -> String {
    if iter.valid() { String::from_utf8_lossy(iter.key()).into_owned() } else { "-".to_owned() }
}

fn run(iter: &mut Merged, script: &str) -> String {
    let mut out = Vec::new();
    for word in script.split(' ') {
        match word.split_once('=') {
            None if word == "first" => iter.seek_to_first(),
            None if word == "last" => iter.seek_to_last(),
            None if word == "next" => iter.next(),
            None if word == "prev" => iter.prev(),
            Some(("seek", key)) => iter.seek(key.as_bytes()),
            Some(("back", key)) => iter.seek_for_prev(key.as_bytes()),
            _ => panic!("unknown word {word}"),
        }
        .expect("no fault");
        out.push(shown(iter));
    }
    out.join(" ")
}

/// What a snapshot shows of these entries, within bounds.
fn oracle(entries: &[Entry], snapshot: SeqNo, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Vec<Entry> {
    let mut visible: Vec<&Entry> = entries.iter().filter(|e| seqno_of(&e.0) <= snapshot).collect();
    visible.sort_by_key(|e| seqno_of(&e.0));
    let mut found: BTreeMap<&[u8], Vec<u8>> = BTreeMap::new();
    for (internal, value) in visible {
        let key = user_key(internal);
        match (kind_byte_of(internal), found.get_mut(key)) {
            (MERGE, Some(before)) => before.extend([b"+", &value[..]].concat()),
            (PUT | MERGE, _) => drop(found.insert(key, value.clone())),
            _ => drop(found.remove(key)),
        }
    }
    let inside = |k: &[u8]| lower.is_none_or(|lo| k >= lo) && upper.is_none_or(|hi| k < hi);
    found.into_iter().filter(|(key, _)| inside(key)).map(|(key, value)| (key.to_vec(), value)).collect()
}

#[test]
fn b001_turning_round_under_bounds() {
    let entries = puts(&[b"k08", b"k11"]);
    for n in 1..4 {
        let mut iter = db_iter(&entries, n, 9, Some(b"k00"), Some(b"k09"));
        assert_eq!(run(&mut iter, "first next last"), "k08 - k08");
        assert_eq!(run(&mut iter, "last next last prev"), "k08 - k08 -");
        let entries = puts(&[b"k07", b"k08", b"k11"]);
        let mut iter = db_iter(&entries, n, 9, Some(b"k00"), Some(b"k09"));
        assert_eq!(run(&mut iter, "first next prev next prev"), "k07 k08 k07 k08 k07");
    }
}

#[test]
fn b005_empty_ranges_stay_empty() {
    let entries = puts(&[b"key00", b"key11"]);
    let ranges: [(&[u8], &[u8]); 5] = [
        (b"key01", b"key02"),
        (b"key05", b"key05"),
        (b"key01", b"key11"),
        (b"key00\0", b"key11"),
        (b"key11", b"key00"),
    ];
    for (lower, upper) in ranges {
        for n in 1..3 {
            let mut iter = db_iter(&entries, n, 9, Some(lower), Some(upper));
            let script =
                "first last seek=key00 seek=key01 seek=key11 seek=z back=key00 back=key05 back=key11 back=z";
            assert_eq!(run(&mut iter, script), "- - - - - - - - - -", "bounds {lower:?} {upper:?}");
        }
    }
    let mut iter = db_iter(&entries, 1, 9, None, Some(b"key00"));
    assert_eq!(run(&mut iter, "first last"), "- -");
    let mut iter = db_iter(&entries, 1, 9, Some(b"key12"), None);
    assert_eq!(run(&mut iter, "first last"), "- -");
}

#[test]
fn b015_pages_resume_at_the_successor_of_the_key() {
    let keys: [&[u8]; 9] = [b"a", b"a\0", b"a\0\0", b"aa", b"ab", b"b", b"\xff", b"\xff\0", b"\xff\xff"];
    let entries = puts(&keys);
    for page in 1..4 {
        let (mut forward, mut backward) = (Vec::new(), Vec::new());
        let mut after: Option<Vec<u8>> = None;
        loop {
            // The smallest key after k is k and a zero byte.
            let lower = after.take().map(|mut key| {
                key.push(0);
                key
            });
            let mut iter = db_iter(&entries, 2, 99, lower.as_deref(), None);
            iter.seek_to_first().expect("no fault");
            for _ in 0..page {
                if iter.valid() {
                    after = Some(iter.key().to_vec());
                    forward.push(iter.key().to_vec());
                    iter.next().expect("no fault");
                }
            }
            if after.is_none() {
                break;
            }
        }
        let mut before: Option<Vec<u8>> = None;
        loop {
            let mut iter = db_iter(&entries, 2, 99, None, before.take().as_deref());
            iter.seek_to_last().expect("no fault");
            for _ in 0..page {
                if iter.valid() {
                    before = Some(iter.key().to_vec());
                    backward.insert(0, iter.key().to_vec());
                    iter.prev().expect("no fault");
                }
            }
            if before.is_none() {
                break;
            }
        }
        assert_eq!(forward, keys);
        assert_eq!(backward, keys);
    }
}

#[test]
fn random_walk_beside_an_ordered_map() {
    let mut rng = Rng(2026);
    let (mut steps, mut turns, mut shown, mut reseeks, mut tombstones) = (0, 0, 0u64, 0, 0);
    let mut merged = 0u64;
    while steps < 100_000 {
        // Keys b..g; walks and bounds use a..h, to lie just outside too. Every entry has its own
        // sequence; up to 60 of them, so that some keys have more versions than RESEEK_AFTER.
        let count = rng.below(60);
        let kinds = [5, 7, 7][rng.below(3) as usize];
        let entries: Vec<Entry> = (1..=count)
            .map(|seqno| {
                let kind = [PUT, PUT, PUT, DELETE, SINGLE_DELETE, MERGE, MERGE][rng.below(kinds) as usize];
                entry(&[b'b' + rng.below(6).min(rng.below(6)) as u8], seqno, kind)
            })
            .collect();
        let snapshot = rng.below(count + 5);
        let mut bound = || (rng.below(2) == 0).then(|| vec![b'a' + rng.below(8) as u8]);
        let (lower, upper) = (bound(), bound());
        let (lower, upper) = (lower.as_deref(), upper.as_deref());
        let model = oracle(&entries, snapshot, lower, upper);
        let n = 1 + rng.below(5) as usize;
        let mut iter = db_iter(&entries, n, snapshot, lower, upper);
        let (mut at, mut last_move): (Option<usize>, u64) = (None, 0);
        for _ in 0..400 {
            steps += 1;
            let target = vec![b'a' + rng.below(8) as u8];
            let action = rng.below(12);
            match action {
                0 => iter.seek_to_first().map(|()| at = (!model.is_empty()).then_some(0)),
                1 => iter.seek_to_last().map(|()| at = model.len().checked_sub(1)),
                2 => iter.seek(&target).map(|()| {
                    at = model.iter().position(|e| e.0 >= target);
                }),
                3 => iter.seek_for_prev(&target).map(|()| {
                    at = model.iter().rposition(|e| e.0 <= target);
                }),
                n if n % 2 == 0 => iter.next().map(|()| at = at.map(|i| i + 1).filter(|&i| i < model.len())),
                _ => iter.prev().map(|()| at = at.and_then(|i| i.checked_sub(1))),
            }
            .expect("no fault");
            turns += usize::from(action >= 4 && last_move >= 4 && action % 2 != last_move % 2);
            last_move = action;
            assert_eq!(iter.valid(), at.is_some());
            if let Some(at) = at {
                shown += 1;
                merged += u64::from(model[at].1.contains(&b'+'));
                assert_eq!((iter.key(), iter.value()), (&model[at].0[..], &model[at].1[..]));
                assert_eq!(iter.value_slice(), model[at].1[..]);
            }
        }
        reseeks += iter.stats().reseeks;
        tombstones += iter.stats().skipped_tombstones;
    }
    assert!(turns > 20_000 && shown > 20_000, "{turns} turns, {shown} keys shown");
    assert!(merged > 3_000, "{merged} merged keys shown");
    assert!(reseeks > 500 && tombstones > 5_000, "{reseeks} reseeks, {tombstones} tombstones");
}

#[test]
fn an_error_stays_until_the_next_seek() {
    for fail_at in 0..10 {
        for backward in [false, true] {
            let entries = puts(&[b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h", b"i", b"j"]);
            let mut source = VecIter::new(entries);
            source.fail_at = Some(fail_at);
            let mut iter = DbIter::new(source, Comparator::Bytewise, 99, None, None);
            let mut seen = 0;
            let mut moved = if backward { iter.seek_to_last() } else { iter.seek_to_first() };
            while moved.is_ok() && iter.valid() {
                seen += 1;
                moved = if backward { iter.prev() } else { iter.next() };
            }
            assert_eq!(moved.expect_err("not a quiet end").kind(), ErrorKind::Io);
            // Backward the source runs one entry ahead of the key shown.
            let before = if backward { (9 - fail_at).saturating_sub(1) } else { fail_at };
            assert_eq!(seen, before, "fail at {fail_at}");
            assert!(!iter.valid() && iter.next().is_err() && iter.prev().is_err());
            iter.iter.fail_at = None;
            iter.seek_to_first().expect("mended");
            assert_eq!(iter.key(), b"a");
        }
    }
}

#[test]
fn kinds_not_offered_are_refused_not_misread() {
    for kind in 1..=12u8 {
        let entries = vec![entry(b"a", 1, PUT), entry(b"b", 2, kind), entry(b"c", 3, PUT)];
        let mut iter = db_iter(&entries, 1, 9, None, None).merging(None);
        iter.seek_to_first().expect("a is a value");
        let want = match Kind::from_u8(kind) {
            Some(Kind::Put | Kind::Delete | Kind::SingleDelete) => None,
            Some(Kind::Merge) => Some(ErrorKind::InvalidArgument),
            // One without its clue is passed over, a clue without one is not.
            Some(kind) if kind.is_redirected() => None,
            Some(kind) if kind.is_clue() => Some(ErrorKind::Corruption),
            Some(_) => Some(ErrorKind::Unsupported),
            None => Some(ErrorKind::Corruption),
        };
        assert_eq!(iter.next().err().map(|e| e.kind()), want);
        iter.seek_to_last().expect("c is a value");
        assert_eq!(iter.prev().err().map(|e| e.kind()), want);
    }
}

/// Joins operands, but fails for every key that holds a "bad" one.
struct Picky;

impl MergeOperator for Picky {
    fn name(&self) -> &str {
        "picky"
    }

    fn full_merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        assert_ne!(key, b"p", "an operator that panics, as the test asks");
        (key != b"b").then(|| [base.as_slice(), operands].concat().concat())
    }
}

#[test]
fn a_failing_operator_stops_the_iterator_at_its_key_only() {
    for versions in [2, 20] {
        let mut entries = Vec::new();
        for key in [b"a", b"b", b"c", b"p", b"q"] {
            entries.push(entry(key, 1, PUT));
            entries.extend((2..=versions).map(|seqno| entry(key, seqno, MERGE)));
        }
        let mut iter = db_iter(&entries, 3, 99, None, None).merging(Some(Arc::new(Picky)));
        iter.seek_to_first().expect("a can be folded");
        assert_eq!(iter.next().expect_err("b").kind(), ErrorKind::Callback);
        assert!(!iter.valid() && iter.next().is_err() && iter.prev().is_err());
        iter.seek(b"b\0").expect("past it");
        assert_eq!(iter.key(), b"c");
        assert_eq!(iter.prev().expect_err("b again").kind(), ErrorKind::Callback);
        iter.seek_for_prev(b"az").expect("before it");
        assert_eq!((iter.key(), iter.value().len()), (&b"a"[..], entries_bytes(&entries, b"a")));
        assert_eq!(iter.seek(b"d").expect_err("p panics").kind(), ErrorKind::Callback);
        iter.seek_to_last().expect("q can be folded");
        assert_eq!((iter.key(), iter.value().len()), (&b"q"[..], entries_bytes(&entries, b"q")));
        assert_eq!(iter.prev().expect_err("p panics").kind(), ErrorKind::Callback);
    }
}

fn entries_bytes(entries: &[Entry], key: &[u8]) -> usize {
    entries.iter().filter(|e| user_key(&e.0) == key).map(|e| e.1.len()).sum()
}

#[test]
fn an_operand_in_two_sources_counts_once() {
    for key in [b"a", b"b"] {
        let entries =
            vec![entry(key, 3, MERGE), entry(key, 3, MERGE), entry(key, 2, MERGE), entry(key, 1, PUT)];
        let mut iter = db_iter(&entries, 2, 99, None, None);
        let want = [3, 2, 1].map(|n| format!("{}@{}", key.escape_ascii(), 4 - n)).join("+");
        iter.seek_to_first().expect("no fault");
        assert_eq!(iter.value(), want.as_bytes());
        iter.seek_to_last().expect("no fault");
        assert_eq!(iter.value(), want.as_bytes());
    }
}

#[test]
fn one_version_a_key_is_stepped_not_sought() {
    let keys: Vec<Vec<u8>> = (0..500u32).map(|i| i.to_be_bytes().to_vec()).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|k| &k[..]).collect();
    let mut iter = db_iter(&puts(&keys), 3, 999, None, None);
    iter.seek_to_last().expect("no fault");
    let mut seen = 0;
    while iter.valid() {
        seen += 1;
        iter.prev().expect("no fault");
    }
    assert_eq!(seen, 500);
    assert_eq!(iter.stats(), IterStats::default());
}

/// The whole stack: a memtable and two levels whose tables are pruned by the bounds, so that
/// children end where a bound stopped them (B001).
#[test]
fn b001_random_walk_over_levels_pruned_by_bounds() {
    let mut rng = Rng(5);
    let (mut shown, mut turns) = (0, 0);
    for _ in 0..150 {
        let bump = |e: &Entry, by: u64| entry(user_key(&e.0), seqno_of(&e.0) + by, kind_byte_of(&e.0));
        let memtable: Vec<Entry> = random_tables(&mut rng).concat().iter().map(|e| bump(e, 100)).collect();
        let upper_level: Vec<Vec<Entry>> =
            random_tables(&mut rng).iter().map(|t| t.iter().map(|e| bump(e, 50)).collect()).collect();
        let lower_level = random_tables(&mut rng);
        let mut bound = || (rng.below(3) > 0).then(|| vec![b'a' + rng.below(8) as u8]);
        let (lower, upper) = (bound(), bound());
        let (lower, upper) = (lower.as_deref(), upper.as_deref());
        let all: Vec<Entry> = [&memtable, &upper_level.concat(), &lower_level.concat()]
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        let snapshot = rng.below(130);
        let model = oracle(&all, snapshot, lower, upper);
        let mut children: Vec<Box<dyn InternalIter>> = vec![Box::new(VecIter::new(memtable))];
        for tables in [upper_level, lower_level] {
            let (level, contents) = level_of(&tables);
            let open = move |f: &Arc<TableFile>| Ok(VecIter::new(contents[&f.number().0].clone()));
            children.push(Box::new(LevelIter::new(Comparator::Bytewise, level, lower, upper, open)));
        }
        let merge = MergingIter::new(Comparator::Bytewise, children);
        let mut iter = DbIter::new(merge, Comparator::Bytewise, snapshot, lower, upper);
        let (mut at, mut forward): (Option<usize>, bool) = (None, true);
        for _ in 0..300 {
            let action = rng.below(8);
            match action {
                0 => iter.seek_to_first().map(|()| at = (!model.is_empty()).then_some(0)),
                1 => iter.seek_to_last().map(|()| at = model.len().checked_sub(1)),
                n if n % 2 == 0 => iter.next().map(|()| at = at.map(|i| i + 1).filter(|&i| i < model.len())),
                _ => iter.prev().map(|()| at = at.and_then(|i| i.checked_sub(1))),
            }
            .expect("no fault");
            turns += usize::from((action.is_multiple_of(2)) != forward && at.is_some());
            forward = action.is_multiple_of(2);
            assert_eq!(iter.valid(), at.is_some());
            if let Some(at) = at {
                shown += 1;
                assert_eq!((iter.key(), iter.value()), (&model[at].0[..], &model[at].1[..]));
            }
        }
    }
    assert!(shown > 5_000 && turns > 3_000, "{shown} keys shown, {turns} turns");
}
