//! Compactions with range tombstones: small cases by hand, then random ones in which entries and
//! tombstones are merged, filtered, cut into ranges and tables, and read beside the operations.

use super::*;
use crate::range_del::fragments::{Covering, Cutter, clip, needed};
use crate::range_del::{RangeDels, RangeTombstone};

const CMP: Comparator = Comparator::Bytewise;

fn tombstone(start: &[u8], end: &[u8], seqno: u64) -> RangeTombstone {
    RangeTombstone { start: start.into(), end: end.into(), seqno }
}

#[test]
fn one_key_under_tombstones() {
    // (entries, tombstones over them, snapshots, at the bottom with nothing below,
    //  entries and tombstones that go on)
    type Case = (&'static str, &'static [u64], &'static [u64], bool, &'static str, &'static [u64]);
    let cases: &[Case] = &[
        ("P9 P7", &[8], &[9], false, "P9", &[8]),
        ("P7 P3", &[8], &[9], false, "", &[8]),
        ("P7 P3", &[8], &[9], true, "", &[]),
        // What an older snapshot sees stays, and so does the tombstone for the others.
        ("P7 P3", &[8], &[7, 9], true, "P7", &[8]),
        ("P7 P3", &[8], &[3, 9], false, "P3", &[8]),
        ("P7 P3", &[8, 5], &[3, 9], false, "P3", &[8]),
        ("P7 P3", &[8, 5], &[6, 9], false, "", &[8, 5]),
        ("P7 P3", &[8, 5], &[6, 9], true, "", &[8]),
        // Unpublished tombstones hide nothing and all stay.
        ("P7 P3", &[9, 8], &[7], false, "P7", &[9, 8]),
        // A put above a tombstone that stays keeps its sequence, or that would hide it.
        ("P9", &[8], &[9], false, "P9", &[8]),
        ("P7", &[8, 5], &[4, 7, 9], true, "P7", &[8, 5]),
        ("P9", &[5], &[9], true, "P0", &[]),
        ("P9", &[5], &[4, 9], true, "P9", &[5]),
        // Deletes and single deletes under it go; those above do as without.
        ("D7 P3", &[8], &[9], false, "", &[8]),
        ("S7 P3", &[8], &[9], false, "", &[8]),
        ("S9 P3", &[8], &[9], false, "S9", &[8]),
        ("S9 P3", &[8], &[9], true, "", &[]),
        ("D9 P3", &[8], &[9], false, "D9", &[8]),
        // Operands: the tombstone is the end of the chain.
        ("M9 M7 P3", &[8], &[9], false, "P9", &[8]),
        ("M9 M7 P3", &[8], &[9], true, "P0", &[]),
        ("M9 M8 P3", &[5], &[9], false, "P9", &[5]),
        ("M9 M8 P3", &[5], &[3, 9], false, "M9 P3", &[5]),
        ("M9 M8", &[5], &[9], false, "M9", &[5]),
        // Clues are covered as what they stand for would be; what is redirected here is not.
        ("C7 P3", &[8], &[9], false, "", &[8]),
        ("c9 c7 P3", &[8], &[9], true, "c9", &[]),
        ("R7 P3", &[8], &[9], false, "R7", &[8]),
    ];
    for (input, tombstones, snapshots, bottom, out, kept) in cases {
        let what = format!("{input} under {tombstones:?} at {snapshots:?}, bottom {bottom}");
        let set = RangeDels::new(CMP, tombstones.iter().map(|seqno| tombstone(b"a", b"z", *seqno)));
        let fragments = needed(&set, snapshots, |_, _| !bottom, &mut 0);
        let merge = MergingIter::new(CMP, vec![VecIter::new(key_of(input))]);
        let zero = !input.contains(['C', 'c', 'R']);
        let mut iter = CompactionIter::new(merge, CMP, snapshots.to_vec(), zero, |_| !bottom)
            .merging(Some(Plus::new(true, 0)))
            .covering(Some(Covering::new(&CMP, set, &fragments)));
        iter.start(None, None).expect("no fault");
        let entries = drain(&mut iter).expect("no fault");
        assert_eq!(shown(&entries), *out, "{what}");
        let counts = iter.counts();
        assert_eq!(counts.read, gone(&counts) + entries.len() as u64, "{what}: {counts:?}");
        let seqnos: Vec<u64> = fragments.iter().flat_map(|f| f.seqnos.clone()).collect();
        assert_eq!(seqnos, *kept, "{what}");
    }
}

fn gone(c: &DropCounts) -> u64 {
    c.hidden + c.tombstones + c.single_pairs + c.duplicates + c.folded + c.range_deleted
}

/// One operation: a key's, or a range delete.
#[derive(Clone)]
enum Done {
    Key(u8, u8),
    Range(u8, u8),
}

/// What a reader at `snapshot` finds of a key, from the operations themselves.
fn truth(done: &[Done], key: u8, snapshot: u64) -> Vec<u64> {
    let mut found = Vec::new();
    for (at, op) in done.iter().enumerate().take(snapshot as usize).rev() {
        let seqno = at as u64 + 1;
        match *op {
            Done::Range(start, end) if start <= key && key < end => break,
            Done::Key(other, M) if other == key => found.push(seqno),
            Done::Key(other, P) if other == key => {
                found.push(seqno);
                break;
            }
            Done::Key(other, _) if other == key => break,
            _ => {}
        }
    }
    found
}

#[derive(Clone, Default)]
struct Source {
    entries: Run,
    tombstones: Vec<RangeTombstone>,
}

impl Source {
    fn cover(&self, key: &[u8], upto: u64) -> u64 {
        let over = |t: &&RangeTombstone| *t.start <= *key && *key < *t.end && t.seqno <= upto;
        self.tombstones.iter().filter(over).map(|t| t.seqno).max().unwrap_or(0)
    }
}

/// The parts of an entry's value, newest first.
fn parts(e: &Entry) -> Vec<u64> {
    let number = |part: &[u8]| std::str::from_utf8(&part[2..]).expect("digits").parse().expect("a sequence");
    e.1.split(|byte| *byte == b'+').rev().map(number).collect()
}

/// What a look-up finds on its way down the sources (`by_source`), or what a scan does, which takes the
/// tombstones of the same and all younger sources together.
fn found(sources: &[Source], key: u8, snapshot: u64, by_source: bool) -> Vec<u64> {
    let (mut out, mut cover) = (Vec::new(), 0);
    for source in sources {
        cover = if by_source { 0 } else { cover }.max(source.cover(&[key], snapshot));
        let mut entries: Vec<&Entry> = source
            .entries
            .iter()
            .filter(|e| user_key(&e.0) == [key] && seqno_of(&e.0) <= snapshot && seqno_of(&e.0) >= cover)
            .collect();
        entries.sort_by(|a, b| CMP.compare_internal(&a.0, &b.0));
        for e in entries {
            match kind_byte_of(&e.0) {
                M => out.extend(parts(e)),
                P => {
                    out.extend(parts(e));
                    return out;
                }
                _ => return out,
            }
        }
        if by_source && cover > 0 {
            return out;
        }
    }
    out
}

const KEYS_USED: u8 = 12;

fn random_sources(rng: &mut Rng) -> (Vec<Done>, Vec<Source>) {
    let (mut done, mut sources) = (Vec::new(), Vec::new());
    let mut last: BTreeMap<u8, u8> = BTreeMap::new();
    for _ in 0..2 + rng.below(6) {
        let mut source = Source::default();
        for _ in 0..1 + rng.below(14) {
            let seqno = done.len() as u64 + 1;
            if rng.below(5) == 0 {
                let start = rng.below(KEYS_USED.into()) as u8;
                let end = start + 1 + [0, 1, 3, 9][rng.below(4) as usize];
                done.push(Done::Range(start, end));
                source.tombstones.push(tombstone(&[start], &[end], seqno));
                last.retain(|key, _| !(start..end).contains(key));
                continue;
            }
            let key = rng.below(KEYS_USED.into()) as u8;
            let kind = next_kind(key, last.get(&key).copied(), rng);
            last.insert(key, kind);
            done.push(Done::Key(key, kind));
            source.entries.push(entry(&[key], seqno, kind));
        }
        sources.insert(0, source);
    }
    (done, sources)
}

#[derive(Default, Debug)]
struct Driven {
    checks: u64,
    dropped: u64,
    cuts: u64,
    tombstones_left: u64,
}

/// Compacts `inputs`, in two ranges and cut into tables at random keys.
#[allow(clippy::too_many_arguments, reason = "one call site")]
fn compact_sources(
    inputs: &[Source],
    older: &[Source],
    snapshots: &[u64],
    zero: bool,
    operator: Option<Arc<dyn MergeOperator>>,
    rng: &mut Rng,
    total: &mut DropCounts,
    driven: &mut Driven,
) -> Source {
    let mut out = Source::default();
    let split = [rng.below(KEYS_USED.into()) as u8];
    for (start, end) in [(None, Some(&split[..])), (Some(&split[..]), None)] {
        let all = inputs.iter().flat_map(|s| s.tombstones.clone());
        let set = RangeDels::new(CMP, all.filter_map(|t| clip(&CMP, t, start, end)));
        let older_entry = |lo: &[u8], hi: &[u8]| {
            older.iter().flat_map(|s| &s.entries).any(|e| user_key(&e.0) >= lo && user_key(&e.0) < hi)
        };
        let fragments = needed(&set, snapshots, older_entry, &mut driven.dropped);
        let below = |key: &[u8]| {
            older
                .iter()
                .any(|s| s.entries.iter().any(|e| user_key(&e.0) == key) || s.cover(key, u64::MAX) > 0)
        };
        let children = inputs.iter().map(|s| VecIter::new(s.entries.clone())).collect();
        let covering = (!set.is_empty()).then(|| Covering::new(&CMP, set, &fragments));
        let mut iter =
            CompactionIter::new(MergingIter::new(CMP, children), CMP, snapshots.to_vec(), zero, below)
                .merging(operator.clone())
                .covering(covering);
        iter.start(start, end).expect("no fault");
        out.entries.extend(drain(&mut iter).expect("no fault"));
        add(total, &iter.counts());
        total.range_deleted += iter.counts().range_deleted;
        let mut cutter = Cutter::new(CMP, fragments);
        for border in (0..KEYS_USED + 8).filter(|_| rng.below(4) == 0) {
            out.tombstones.extend(cutter.take(Some(&[border])));
        }
        out.tombstones.extend(cutter.take(None));
        driven.cuts += cutter.cuts();
    }
    out
}

#[test]
fn random_compactions_with_range_deletes_never_change_a_read() {
    let mut rng = Rng(43);
    let (mut total, mut driven) = (DropCounts::default(), Driven::default());
    for round in 0..1200 {
        let operator = match round % 3 {
            0 => None,
            1 => Some(Plus::new(true, 0)),
            _ => Some(Plus::new(true, 3)),
        };
        let operator = operator.map(|operator| operator as Arc<dyn MergeOperator>);
        let (done, mut sources) = random_sources(&mut rng);
        let seqno = done.len() as u64;
        let visible = seqno - rng.below(4).min(seqno);
        let mut snapshots: Vec<u64> = (0..rng.below(4)).map(|_| rng.below(seqno + 1)).collect();
        snapshots.push(visible);
        snapshots.retain(|s| *s <= visible);
        snapshots.sort_unstable();
        snapshots.dedup();
        while sources.len() > 1 {
            let from = rng.below(sources.len() as u64) as usize;
            let count = 1 + rng.below((sources.len() - from) as u64) as usize;
            let inputs: Vec<Source> = sources.drain(from..from + count).collect();
            let older = sources[from..].to_vec();
            let zero = rng.below(2) == 0;
            let made = compact_sources(
                &inputs,
                &older,
                &snapshots,
                zero,
                operator.clone(),
                &mut rng,
                &mut total,
                &mut driven,
            );
            driven.tombstones_left += made.tombstones.len() as u64;
            sources.insert(from, made);
            for key in 0..KEYS_USED {
                for &snapshot in snapshots.iter().chain(&(visible..=seqno).collect::<Vec<_>>()) {
                    let wanted = truth(&done, key, snapshot);
                    assert_eq!(found(&sources, key, snapshot, true), wanted, "get {key} at {snapshot}");
                    assert_eq!(found(&sources, key, snapshot, false), wanted, "scan {key} at {snapshot}");
                    driven.checks += 1;
                }
            }
            if rng.below(3) == 0 && snapshots.len() > 1 {
                snapshots.remove(0);
            }
        }
    }
    println!("{total:?} {driven:?}");
    assert!(total.range_deleted > 3000 && total.zeroed > 300 && total.folded > 300, "{total:?}");
    assert!(driven.checks > 50_000 && driven.dropped > 1000, "{driven:?}");
    assert!(driven.cuts > 500 && driven.tombstones_left > 3000, "{driven:?}");
}
