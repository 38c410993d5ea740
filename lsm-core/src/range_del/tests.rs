//! Sets of tombstones beside the plainest model there is: the list, asked one by one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::fragments::{CoverCursor, Cutter, Fragment, clip, needed};
use super::*;
use crate::key::Comparator;
use crate::read::testing::Rng;

fn key(n: u64) -> Arc<[u8]> {
    // Some share their first 8 bytes, so that prefixes tie.
    let text = if n.is_multiple_of(3) { format!("prefix-of-many/{n:04}") } else { format!("q{n:04}") };
    Arc::from(text.as_bytes())
}

fn tombstone(a: u64, b: u64, seqno: SeqNo) -> RangeTombstone {
    RangeTombstone { start: key(a), end: key(b), seqno }
}

/// Random ones, wide, narrow, adjacent, the same, and some that span nothing.
fn random(rng: &mut Rng, count: u64, keys: u64) -> Vec<RangeTombstone> {
    let mut out: Vec<RangeTombstone> = Vec::new();
    for seqno in 1..=count {
        let a = rng.below(keys);
        let next = match (rng.below(6), out.last()) {
            (0, Some(last)) => RangeTombstone { seqno: 2 * seqno, ..last.clone() },
            (1, Some(last)) => {
                RangeTombstone { start: last.end.clone(), end: key(rng.below(keys)), seqno: 2 * seqno }
            }
            (2, _) => tombstone(a, a + 1 + rng.below(3), 2 * seqno),
            _ => tombstone(a, rng.below(keys), 2 * seqno),
        };
        out.push(next);
    }
    out
}

fn model_cover(list: &[RangeTombstone], c: &Comparator, key: &[u8], upto: SeqNo) -> SeqNo {
    let spans = |t: &&RangeTombstone| c.compare(&t.start, key).is_le() && c.compare(key, &t.end).is_lt();
    list.iter().filter(spans).map(|t| t.seqno).filter(|s| *s <= upto).max().unwrap_or(0)
}

fn comparators() -> [Comparator; 2] {
    [Comparator::Bytewise, Comparator::ReverseBytewise]
}

#[test]
fn a_set_answers_as_the_list_does() {
    let (mut covered, mut older, mut outside) = (0, 0, 0);
    for seed in 0..60 {
        let mut rng = Rng(seed);
        let c = &comparators()[seed as usize % 2];
        let (count, keys) = (rng.below(40), 4 + rng.below(60));
        let list = random(&mut rng, count, keys);
        let set = RangeDels::new(c.clone(), list.iter().cloned());
        assert_eq!(set.len(), list.iter().filter(|t| c.compare(&t.start, &t.end).is_lt()).count());
        for at in 0..keys + 4 {
            let key = key(at);
            for upto in [0, 1, rng.below(90), rng.below(90), crate::types::SEQNO_MAX] {
                let cover = set.cover(&key, upto);
                assert_eq!(cover, model_cover(&list, c, &key, upto), "seed {seed}");
                covered += u64::from(cover > 0);
                older += u64::from(cover > 0 && cover < set.cover(&key, u64::MAX >> 8));
                let found = set.locate(&key);
                assert!(found.low.is_none_or(|low| c.compare(low, &key).is_le()));
                assert!(found.high.is_none_or(|high| c.compare(&key, high).is_lt()));
                let Some(interval) = found.interval else {
                    outside += 1;
                    continue;
                };
                // Every key between the region's ends is covered, the one at its end is not.
                if cover > 0 {
                    let end = set.region(interval, upto, |seqno| seqno > 0, true);
                    let start = set.region(interval, upto, |seqno| seqno > 0, false);
                    assert_eq!(set.cover(end, upto), 0);
                    for other in 0..keys + 4 {
                        let other = super::tests::key(other);
                        let within = c.compare(start, &other).is_le() && c.compare(&other, end).is_lt();
                        assert!(!within || set.cover(&other, upto) > 0, "seed {seed}");
                    }
                }
            }
        }
    }
    assert!(covered > 2000 && older > 300 && outside > 100, "{covered} {older} {outside}");
}

#[test]
fn nested_tombstones_take_no_square_of_memory() {
    const COUNT: u64 = 5000;
    let numbered = |n: u64| Arc::from(n.to_be_bytes());
    let nested =
        (0..COUNT).map(|i| RangeTombstone { start: numbered(i), end: numbered(3 * COUNT - i), seqno: i + 1 });
    let set = RangeDels::new(Comparator::Bytewise, nested);
    // A list for each interval would take 200 MB.
    assert!(set.memory_bytes() < 4 << 20, "{}", set.memory_bytes());
    for n in [0, 17, COUNT - 1, COUNT + 5, 2 * COUNT, 3 * COUNT - 1] {
        let deepest = n.min(COUNT - 1).min(3 * COUNT - 1 - n) + 1;
        assert_eq!(set.cover(&numbered(n), u64::MAX >> 8), deepest);
        assert_eq!(set.cover(&numbered(n), 9), deepest.min(9));
    }
}

#[test]
fn a_memtable_list_is_complete_at_every_read() {
    for seed in 0..20 {
        let mut rng = Rng(seed);
        let c = &comparators()[seed as usize % 2];
        let (list, mem) = (random(&mut rng, 120, 40), MemRangeDels::default());
        assert!(mem.snapshot(c).is_none() && mem.cover(c, b"a", 99) == 0);
        let mut added: Vec<RangeTombstone> = Vec::new();
        for t in list.into_iter().filter(|t| c.compare(&t.start, &t.end).is_lt()) {
            mem.add(&t.start, &t.end, t.seqno);
            added.push(t);
            if rng.below(3) == 0 {
                let (key, upto) = (key(rng.below(44)), rng.below(260));
                assert_eq!(mem.cover(c, &key, upto), model_cover(&added, c, &key, upto));
                let runs = &mem.snapshot(c).expect("some").runs;
                assert!(runs.len() <= 8, "{} runs of {}", runs.len(), added.len());
                assert_eq!(runs.iter().map(|run| run.len()).sum::<usize>(), added.len());
            }
        }
        let merged = mem.snapshot(c).expect("some").merged(c);
        for at in 0..44 {
            let upto = rng.below(260);
            assert_eq!(merged.cover(&key(at), upto), model_cover(&added, c, &key(at), upto));
        }
    }
}

#[test]
fn reads_beside_a_writer_miss_no_tombstone() {
    const COUNT: u64 = 3000;
    let mem = Arc::new(MemRangeDels::default());
    let (published, reads) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let c = Comparator::Bytewise;
    std::thread::scope(|scope| {
        let (writer, shown, done) = (mem.clone(), published.clone(), reads.clone());
        scope.spawn(move || {
            for seqno in 1..=COUNT {
                writer.add(&key(seqno % 50), b"zzz", seqno);
                shown.store(seqno, Ordering::Release);
                // Never far ahead of the readers, however threads are scheduled.
                while done.load(Ordering::Acquire) < seqno / 20 {
                    std::thread::yield_now();
                }
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seen = published.load(Ordering::Acquire);
                    // All of them end behind "z"; the newest that is visible covers it.
                    assert_eq!(mem.cover(&c, b"z", seen), seen);
                    reads.fetch_add(1, Ordering::AcqRel);
                    if seen == COUNT {
                        break;
                    }
                }
            });
        }
    });
    assert!(reads.load(Ordering::Acquire) >= COUNT / 20);
    assert_eq!(mem.len() as u64, COUNT);
}

/// What readers at these snapshots see through the fragments.
fn fragments_cover(fragments: &[Fragment], c: &Comparator, key: &[u8], upto: SeqNo) -> SeqNo {
    let at = fragments.iter().find(|f| c.compare(&f.start, key).is_le() && c.compare(key, &f.end).is_lt());
    at.and_then(|f| f.seqnos.iter().copied().find(|s| *s <= upto)).unwrap_or(0)
}

#[test]
fn fragments_keep_what_some_snapshot_needs() {
    let (mut dropped, mut kept, mut joined) = (0, 0u64, 0u64);
    for seed in 0..80 {
        let mut rng = Rng(1000 + seed);
        let c = &comparators()[seed as usize % 2];
        let keys = 4 + rng.below(40);
        let list = random(&mut rng, 30, keys);
        let set = RangeDels::new(c.clone(), list.iter().cloned());
        // Sequence numbers of tombstones are even, those of the snapshots odd or even; some
        // tombstones are not published.
        let mut snapshots: Vec<SeqNo> = (0..1 + rng.below(5)).map(|_| rng.below(70)).collect();
        snapshots.sort_unstable();
        snapshots.dedup();
        let below = rng.below(3);
        let nothing_below = |key: &[u8]| below == 0 || (below == 1 && c.compare(key, b"q").is_lt());
        let fragments = needed(&set, &snapshots, |start, _| !nothing_below(start), &mut dropped);
        for pair in fragments.windows(2) {
            assert!(c.compare(&pair[0].end, &pair[1].start).is_le());
        }
        joined += (set.intervals() as u64).saturating_sub(fragments.len() as u64);
        for at in 0..keys + 4 {
            let key = key(at);
            for upto in snapshots.iter().copied().chain([u64::MAX >> 8]) {
                let wanted = model_cover(&list, c, &key, upto);
                let got = fragments_cover(&fragments, c, &key, upto);
                kept += u64::from(wanted > 0 && got == wanted);
                let gone = got == 0 && wanted <= snapshots[0];
                assert!(got == wanted || (gone && !fragments_spans_may_exist(&set, &key, &nothing_below)));
            }
            let published = *snapshots.last().expect("one at least");
            let all = |above: &SeqNo| *above > published;
            let mut unpublished: Vec<SeqNo> = list
                .iter()
                .filter(|t| c.compare(&t.start, &key).is_le() && c.compare(&key, &t.end).is_lt())
                .map(|t| t.seqno)
                .filter(all)
                .collect();
            unpublished.sort_unstable_by(|a, b| b.cmp(a));
            let at = fragments
                .iter()
                .find(|f| c.compare(&f.start, &key).is_le() && c.compare(&key, &f.end).is_lt());
            let found: Vec<SeqNo> = at.map_or(Vec::new(), |f| f.seqnos.iter().copied().filter(all).collect());
            assert_eq!(found, unpublished);
        }
    }
    assert!(dropped > 200 && kept > 3000 && joined > 200, "{dropped} {kept} {joined}");
}

/// Whether the interval around `key` was said to have something older below.
fn fragments_spans_may_exist(set: &RangeDels, key: &[u8], nothing_below: &dyn Fn(&[u8]) -> bool) -> bool {
    set.locate(key).low.is_some_and(|low| !nothing_below(low))
}

#[test]
fn pieces_of_all_tables_are_the_whole() {
    let mut cuts = 0;
    for seed in 0..60 {
        let mut rng = Rng(seed);
        let c = &comparators()[seed as usize % 2];
        let list = random(&mut rng, 25, 50);
        let set = RangeDels::new(c.clone(), list.iter().cloned());
        let fragments = needed(&set, &[30, 100], |_, _| true, &mut 0);
        let mut borders: Vec<Arc<[u8]>> = (0..rng.below(8)).map(|_| key(rng.below(54))).collect();
        borders.sort_by(|a, b| c.compare(a, b));
        borders.dedup();
        let mut cutter = Cutter::new(c.clone(), fragments.clone());
        let mut pieces: Vec<RangeTombstone> = Vec::new();
        let mut from: Option<&Arc<[u8]>> = None;
        for border in borders.iter().map(Some).chain([None]) {
            while cutter.next_start().is_some_and(|s| border.is_none_or(|b| c.compare(s, b).is_lt())) {
                cutter.pass();
            }
            let taken = cutter.take(border.map(|b| &**b));
            for t in &taken {
                assert!(c.compare(&t.start, &t.end).is_lt());
                assert!(from.is_none_or(|from| c.compare(from, &t.start).is_le()));
                assert!(border.is_none_or(|border| c.compare(&t.end, border).is_le()));
            }
            pieces.extend(taken);
            from = border;
        }
        assert!(cutter.next_start().is_none());
        cuts += cutter.cuts();
        for at in 0..54 {
            for upto in [10, 30, 60, 100] {
                let key = key(at);
                assert_eq!(model_cover(&pieces, c, &key, upto), fragments_cover(&fragments, c, &key, upto));
            }
        }
    }
    assert!(cuts > 60, "{cuts}");
}

#[test]
fn a_cursor_and_a_clip_agree_with_the_set() {
    let mut clipped = 0;
    for seed in 0..30 {
        let mut rng = Rng(seed);
        let c = &comparators()[seed as usize % 2];
        let list = random(&mut rng, 20, 40);
        let (mut lo, mut hi) = (key(rng.below(40)), key(rng.below(40)));
        if c.compare(&lo, &hi).is_gt() {
            std::mem::swap(&mut lo, &mut hi);
        }
        let within = list.iter().cloned().filter_map(|t| clip(c, t, Some(&lo), Some(&hi)));
        let set = Arc::new(RangeDels::new(c.clone(), within));
        let mut cursor = CoverCursor::new(set.clone(), c.clone());
        let mut keys: Vec<Arc<[u8]>> = (0..44).map(key).collect();
        keys.sort_by(|a, b| c.compare(a, b));
        for key in &keys {
            let upto = rng.below(50);
            let inside = c.compare(&lo, key).is_le() && c.compare(key, &hi).is_lt();
            let whole = model_cover(&list, c, key, upto);
            clipped += u64::from(!inside && whole > 0);
            assert_eq!(cursor.cover(key, upto), if inside { whole } else { 0 });
            assert_eq!(set.cover(key, upto), if inside { whole } else { 0 });
        }
    }
    assert!(clipped > 50, "{clipped}");
}
