use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::*;
use crate::key::seqno_of;
use crate::read::merging_iter::MergingIter;
use crate::read::testing::{Entry, Rng, VecIter, entry};

const P: u8 = Kind::Put as u8;
const D: u8 = Kind::Delete as u8;
const S: u8 = Kind::SingleDelete as u8;
const M: u8 = Kind::Merge as u8;
const C: u8 = Kind::ClueValue as u8;
const O: u8 = Kind::ClueOperand as u8;
const R: u8 = Kind::RedirectedValue as u8;

fn drain<B: FnMut(&[u8]) -> bool>(iter: &mut CompactionIter<MergingIter<VecIter>, B>) -> Result<Vec<Entry>> {
    let mut out = Vec::new();
    while iter.valid() {
        out.push((iter.key().to_vec(), iter.value().to_vec()));
        iter.next()?;
    }
    Ok(out)
}

fn compact(
    runs: Vec<Vec<Entry>>,
    snapshots: &[u64],
    zero: bool,
    operator: Option<Arc<dyn MergeOperator>>,
    below: impl FnMut(&[u8]) -> bool,
) -> (Vec<Entry>, DropCounts) {
    compact_in_pieces(runs, snapshots, zero, operator, usize::MAX, below)
}

/// With chains of operands that are full at `chain_bytes_max`.
fn compact_in_pieces(
    runs: Vec<Vec<Entry>>,
    snapshots: &[u64],
    zero: bool,
    operator: Option<Arc<dyn MergeOperator>>,
    chain_bytes_max: usize,
    below: impl FnMut(&[u8]) -> bool,
) -> (Vec<Entry>, DropCounts) {
    let children = runs.into_iter().map(VecIter::new).collect();
    let merge = MergingIter::new(Comparator::Bytewise, children);
    let mut iter =
        CompactionIter::new(merge, Comparator::Bytewise, snapshots.to_vec(), zero, below).merging(operator);
    iter.chain.bytes_max = chain_bytes_max;
    iter.start(None, None).expect("no fault");
    let out = drain(&mut iter).expect("no fault");
    assert!(out.is_sorted_by(|a, b| Comparator::Bytewise.compare_internal(&a.0, &b.0).is_lt()));
    (out, iter.counts())
}

/// Versions of one key as "P9 D7 C5", newest first.
fn key_of(text: &str) -> Vec<Entry> {
    text.split_whitespace()
        .map(|word| {
            let kind = match &word[..1] {
                "P" => P,
                "D" => D,
                "S" => S,
                "M" => M,
                "C" => C,
                "c" => O,
                "R" => R,
                other => panic!("kind {other}"),
            };
            entry(b"k", word[1..].parse().expect("a sequence"), kind)
        })
        .collect()
}

fn shown(entries: &[Entry]) -> String {
    let name = |e: &Entry| match kind_byte_of(&e.0) {
        P => 'P',
        D => 'D',
        S => 'S',
        M => 'M',
        O => 'c',
        R => 'R',
        _ => 'C',
    };
    entries.iter().map(|e| format!("{}{}", name(e), seqno_of(&e.0))).collect::<Vec<_>>().join(" ")
}

#[test]
fn one_key_at_a_time() {
    // (input, snapshots, at the bottom with nothing below, output)
    let cases: &[(&str, &[u64], bool, &str)] = &[
        // The newest of each stripe.
        ("P9 P8 P7 P3 P2", &[9], false, "P9"),
        ("P9 P8 P7 P3 P2", &[3, 8, 20], false, "P9 P8 P3"),
        ("P9 P8 P7 P3 P2", &[2, 7, 8], false, "P9 P8 P7 P2"),
        // Unpublished entries stay and hide nothing.
        ("P9 P8 P7 P3 P2", &[7], false, "P9 P8 P7"),
        ("P9 P8", &[], false, "P9 P8"),
        ("D9 P8", &[5], true, "D9 P8"),
        // Deletes.
        ("D9 P8", &[9], false, "D9"),
        ("D9 P8", &[9], true, ""),
        ("D9 P8", &[8, 9], true, "D9 P0"),
        ("P9 D8 P7", &[9], true, "P0"),
        ("P9 D8 P7", &[8, 9], true, "P9"),
        ("D9 D8 P7", &[9], false, "D9"),
        // A delete with nothing older goes whatever the snapshots; one above a kept put stays.
        ("D9", &[3, 9, 20], true, ""),
        ("D9 D4", &[4, 9], true, "D9"),
        // A clue of a value is as a put, but never with sequence 0.
        ("D9 C8 P7", &[9], true, ""),
        ("D9 C8 P7", &[8, 9], true, "D9 C8"),
        ("C9 C8 P7 P6", &[9], false, "C9"),
        ("C9 C8 P7 P6", &[7, 8], true, "C9 C8 P7"),
        ("C9", &[9], true, "C9"),
        ("P9 C8", &[9], false, "P9"),
        ("C9 D8", &[9], false, "C9"),
        ("C9 S8", &[9], false, "C9 S8"),
        // A clue of an operand is as a merge.
        ("c9 c8 P7 P6", &[9], false, "c9 c8 P7"),
        ("C9 c8 P7", &[9], false, "C9"),
        ("P9 c8 C7", &[9], false, "P9"),
        ("D9 c8", &[9], true, ""),
        ("c9 D8 P7", &[9], true, "c9"),
        ("c9 M8 C7", &[9], false, "c9 M8 C7"),
        // What is redirected here from another shard always stays, and keeps the delete above it.
        ("R9 R8 R7", &[9], true, "R9 R8 R7"),
        ("D9 R8 P7", &[9], true, "D9 R8"),
        ("D9 P8 R7", &[9], true, "D9 R7"),
        // Merge operands stay with their base, and go with what hides them.
        ("M9 M8 P7 P6", &[9], false, "M9 M8 P7"),
        ("M9 M8 D7 P6", &[9], true, "M9 M8"),
        ("P9 M8 M7", &[9], false, "P9"),
        ("P9 M8 M7", &[8, 9], false, "P9 M8 M7"),
        // Single deletes.
        ("S9 P8", &[9], false, ""),
        ("S9 P8", &[8, 9], false, "S9 P8"),
        ("S9 P8 P7", &[9], false, ""),
        ("S9 P8 D7", &[9], false, "D7"),
        ("S9 P8 S7 P6", &[9], false, ""),
        ("P9 S8 P7", &[9], false, "P9"),
        ("P9 S8", &[9], false, "P9 S8"),
        ("P9 S8", &[9], true, "P0"),
        ("D9 S8", &[9], false, "D9"),
        ("S9 S8", &[9], false, "S8"),
        ("S9 D8", &[9], false, "D8"),
        ("S9 S8 P7", &[9], false, ""),
        ("S9", &[9], true, ""),
        ("S9", &[9], false, "S9"),
        ("S9 C8 P7", &[9], false, ""),
        ("S9 C8", &[8, 9], false, "S9 C8"),
        ("S9 c8 C7 P6", &[9], false, ""),
        ("S9 R8 P7", &[9], false, "S9 R8 P7"),
        ("S9 M8", &[9], false, "S9"),
        ("S9 M8", &[8, 9], false, "S9 M8"),
        ("S9 M8 M7 P6", &[9], false, ""),
        ("S9 M8 S7", &[9], false, "S7"),
        ("S9 M8 D7 P6", &[9], false, "D7"),
        ("P9 S8 M7", &[9], true, "P0"),
        ("S9 P8", &[7], false, "S9 P8"),
        // Sequence 0 for what all see, at the bottom only.
        ("P9", &[9], true, "P0"),
        ("P9 P4", &[5, 9], true, "P9 P0"),
        ("M9 P4", &[9], true, "M9 P0"),
        ("P0", &[9], true, "P0"),
        // Duplicates count once.
        ("P9 P9 P8", &[9], false, "P9"),
        ("M9 M9 M8 M8", &[9], false, "M9 M8"),
    ];
    for (input, snapshots, bottom, want) in cases {
        // Only inputs without special entries may have sequences zeroed.
        let zero = !input.contains(['C', 'c', 'R']);
        let runs = vec![key_of(input)];
        let (out, counts) = compact(runs, snapshots, zero, None, |_| !bottom);
        assert_eq!(shown(&out), *want, "{input} under {snapshots:?}, bottom {bottom}");
        assert_all_counted(&counts, out.len(), input);
    }
}

fn assert_all_counted(counts: &DropCounts, out: usize, what: &str) {
    let gone = counts.hidden + counts.tombstones + counts.single_pairs + counts.duplicates + counts.folded;
    assert_eq!(counts.read, gone + out as u64, "{what}: {counts:?}");
}

/// Puts operands behind the base with a '+' between; can be told to refuse or to panic.
struct Plus {
    partial: bool,
    /// Fails in every so manieth call, and panics in every third of these; 0 is never.
    fail_every: u64,
    calls: AtomicU64,
    failures: AtomicU64,
}

impl Plus {
    fn new(partial: bool, fail_every: u64) -> Arc<Plus> {
        Arc::new(Plus { partial, fail_every, calls: AtomicU64::new(0), failures: AtomicU64::new(0) })
    }

    fn check(&self) -> Option<()> {
        let call = self.calls.fetch_add(1, Relaxed) + 1;
        if self.fail_every == 0 || !call.is_multiple_of(self.fail_every) {
            return Some(());
        }
        let failures = self.failures.fetch_add(1, Relaxed);
        assert!(!failures.is_multiple_of(3), "an operator that panics, as the test asks");
        None
    }
}

impl MergeOperator for Plus {
    fn name(&self) -> &str {
        "plus"
    }

    fn full_merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.check()?;
        Some([base.as_slice(), operands].concat().join(&b'+'))
    }

    fn partial_merge(&self, _: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.check()?;
        self.partial.then(|| operands.join(&b'+'))
    }
}

/// "P9=7,9" for a Put with sequence 9 made of what was written as 7 and 9.
fn shown_with_parts(entries: &[Entry]) -> String {
    let parts = |e: &Entry| {
        let text = String::from_utf8(e.1.clone()).expect("a test value");
        text.split('+').map(|part| part.replace("k@", "")).collect::<Vec<_>>().join(",")
    };
    let one = |e: &Entry| format!("{}={}", shown(std::slice::from_ref(e)), parts(e));
    entries.iter().map(one).collect::<Vec<_>>().join(" ")
}

#[test]
fn operands_are_folded_within_a_stripe() {
    // (input, snapshots, at the bottom with nothing below, output)
    let cases: &[(&str, &[u64], bool, &str)] = &[
        // With a base.
        ("M9 M8 P7 P6", &[9], false, "P9=7,8,9"),
        ("M9 M8 P7 P6", &[9], true, "P0=7,8,9"),
        ("M9 P7 S6 P5", &[9], false, "P9=7,9"),
        ("M9 P7 S6", &[9], false, "P9=7,9 S6=6"),
        // A tombstone is a base that is not there.
        ("M9 M8 D7 P6", &[9], false, "P9=8,9"),
        ("M9 M8 D7 P6", &[9], true, "P0=8,9"),
        ("M9 M8 S7 P6", &[9], false, "P9=8,9"),
        ("M9 M8 S7", &[9], false, "P9=8,9 S7=7"),
        ("M9 M8 S7", &[9], true, "P0=8,9"),
        // Without a base.
        ("M9 M8 M7", &[9], false, "M9=7,8,9"),
        ("M9 M8 M7", &[9], true, "P0=7,8,9"),
        ("M9", &[9], false, "M9=9"),
        ("M9", &[9], true, "P0=9"),
        // Never across a snapshot.
        ("M9 M8 M7 M6", &[7, 9], false, "M9=8,9 M7=6,7"),
        ("M9 M8 M7 M6", &[7, 9], true, "M9=8,9 P0=6,7"),
        ("M9 M8 M7 P6", &[8, 9], false, "M9=9 P8=6,7,8"),
        ("M9 M8 P7 P6", &[7, 9], true, "M9=8,9 P0=7"),
        ("M9 M8 D7 P6", &[7, 9], false, "M9=8,9 D7=7"),
        ("M9 D8 P7", &[7, 9], true, "P9=9 P0=7"),
        // Unpublished entries are left alone.
        ("M9 M8 M7 P6", &[7], false, "M9=9 M8=8 P7=6,7"),
        ("M9 M8 P7", &[], true, "M9=9 M8=8 P7=7"),
        // Clues stop a fold.
        ("M9 M8 C7 P6", &[9], true, "M9=8,9 C7=7"),
        ("M9 C8 M7 P6", &[9], false, "M9=9 C8=8"),
        ("M9 M8 c7 M6 P5", &[9], true, "M9=8,9 c7=7 P6=5,6"),
        ("c9 M8 M7", &[9], true, "c9=9 P8=7,8"),
        // What hides operands hides them before they are folded.
        ("P9 M8 M7", &[9], false, "P9=9"),
        ("D9 M8 M7 P6", &[9], false, "D9=9"),
        ("S9 M8 M7 P6", &[9], false, ""),
        ("S9 M8 M7", &[8, 9], false, "S9=9 M8=7,8"),
        ("S9 M8 P7", &[8, 9], true, "S9=9 P0=7,8"),
        // Duplicates count once.
        ("M9 M9 M8 M8 P7 P7", &[9], false, "P9=7,8,9"),
    ];
    for (input, snapshots, bottom, want) in cases {
        let zero = !input.contains(['C', 'c']);
        let whole = Plus::new(true, 0);
        let (out, counts) = compact(vec![key_of(input)], snapshots, zero, Some(whole), |_| !bottom);
        assert_eq!(shown_with_parts(&out), *want, "{input} under {snapshots:?}, bottom {bottom}");
        assert_all_counted(&counts, out.len(), input);
        // An operator that always fails is as good as none.
        let (none, _) = compact(vec![key_of(input)], snapshots, zero, None, |_| !bottom);
        let (failed, counts) =
            compact(vec![key_of(input)], snapshots, zero, Some(Plus::new(true, 1)), |_| !bottom);
        assert_eq!(shown(&failed), shown(&none), "{input} under {snapshots:?}, bottom {bottom}");
        assert_all_counted(&counts, failed.len(), input);
    }
}

#[test]
fn a_long_chain_is_folded_in_pieces() {
    let operands = "M9 M8 M7 M6 M5";
    // An operand of 3 bytes counts as 19: two of them fill a chain of 38.
    for (input, bottom, whole, single) in [
        (format!("{operands} P4 P3"), false, "M9=8,9 M7=6,7 P5=4,5", "M9=9 M8=8 M7=7 M6=6 P5=4,5"),
        (format!("{operands} D4 P3"), true, "M9=8,9 M7=6,7 P0=5", "M9=9 M8=8 M7=7 M6=6 P0=5"),
        (operands.to_owned(), true, "M9=8,9 M7=6,7 P0=5", "M9=9 M8=8 M7=7 M6=6 P0=5"),
        (operands.to_owned(), false, "M9=8,9 M7=6,7 M5=5", "M9=9 M8=8 M7=7 M6=6 M5=5"),
    ] {
        for (bytes_max, want) in [(38, whole), (1, single)] {
            let operator: Option<Arc<dyn MergeOperator>> = Some(Plus::new(true, 0));
            let runs = vec![key_of(&input)];
            let (out, counts) = compact_in_pieces(runs, &[9], true, operator, bytes_max, |_| !bottom);
            assert_eq!(shown_with_parts(&out), want, "{input}, {bytes_max} bytes");
            assert_all_counted(&counts, out.len(), &input);
        }
    }
}

/// A version of a key: its kind, and the sequences of the writes that it stands for, newest first.
type Versions = BTreeMap<u64, (u8, Vec<u64>)>;

/// What a reader at `snapshot` finds of a key, given all its versions: the sequences that make up
/// its value, operands before their base.
fn read(versions: &Versions, snapshot: u64) -> Vec<u64> {
    let mut found = Vec::new();
    for (kind, parts) in versions.range(..=snapshot).rev().map(|(_, version)| version) {
        match *kind {
            M | O => found.extend(parts),
            D | S => break,
            _ => {
                found.extend(parts);
                break;
            }
        }
    }
    found
}

type Run = Vec<Entry>;

/// All versions of a key in these runs; entries with sequence 0 are told apart by their value.
fn versions(runs: &[Run], key: u8) -> Versions {
    let mut out = Versions::new();
    for e in runs.iter().flatten().filter(|e| user_key(&e.0) == [key]) {
        let number =
            |part: &[u8]| std::str::from_utf8(&part[2..]).expect("digits").parse().expect("a sequence");
        let parts: Vec<u64> = e.1.split(|byte| *byte == b'+').rev().map(number).collect();
        assert!(seqno_of(&e.0) == parts[0] || seqno_of(&e.0) == 0);
        out.insert(parts[0], (kind_byte_of(&e.0), parts));
    }
    out
}

/// The kind of the next operation: keys differ in how they are used, as the kinds' promises ask.
fn next_kind(key: u8, last: Option<u8>, rng: &mut Rng) -> u8 {
    match key {
        // Put at most once between single deletes.
        0..3 => {
            if last == Some(P) {
                S
            } else {
                [P, P, S][rng.below(3) as usize]
            }
        }
        3..6 => [P, P, D][rng.below(3) as usize],
        6..8 => [P, M, M, D][rng.below(4) as usize],
        // Put while absent only, merged, and single deleted.
        8..12 => match last {
            None | Some(S) => [P, M][rng.below(2) as usize],
            _ => [M, M, S][rng.below(3) as usize],
        },
        12 => [P, D, C, C][rng.below(4) as usize],
        _ => [P, D, C, M, O][rng.below(5) as usize],
    }
}

/// Single deletes, deletes, merges and deletes, merges and single deletes, clues.
const KEYS: u8 = 14;

#[test]
fn random_compactions_never_change_a_read() {
    let mut rng = Rng(41);
    let mut total = DropCounts::default();
    let (mut checks, mut failures) = (0, 0);
    for round in 0..900 {
        let operator = match round % 4 {
            0 => None,
            1 => Some(Plus::new(true, 0)),
            2 => Some(Plus::new(false, 0)),
            _ => Some(Plus::new(true, 3)),
        };
        // Runs, newest first, of operations in one line of sequences.
        let mut runs: Vec<Run> = Vec::new();
        let mut last: BTreeMap<u8, u8> = BTreeMap::new();
        let mut seqno = 0;
        for _ in 0..2 + rng.below(6) {
            let mut run = Run::new();
            for _ in 0..1 + rng.below(14) {
                seqno += 1;
                let key = rng.below(KEYS.into()) as u8;
                let kind = next_kind(key, last.get(&key).copied(), &mut rng);
                last.insert(key, kind);
                run.push(entry(&[key], seqno, kind));
            }
            runs.insert(0, run);
        }
        let original = runs.clone();
        let mut snapshots: Vec<u64> = (0..rng.below(4)).map(|_| rng.below(seqno + 1)).collect();
        let visible = seqno - rng.below(4).min(seqno);
        snapshots.push(visible);
        snapshots.retain(|s| *s <= visible);
        // Compactions of neighbouring runs, until one is left.
        while runs.len() > 1 {
            let from = rng.below(runs.len() as u64) as usize;
            let count = 1 + rng.below((runs.len() - from) as u64) as usize;
            let inputs: Vec<Run> = runs.drain(from..from + count).collect();
            let older: Vec<Run> = runs[from..].to_vec();
            let is_clue = |e: &Entry| [C, O].contains(&kind_byte_of(&e.0));
            let zero = rng.below(2) == 0 && !inputs.iter().flatten().any(is_clue);
            let below = |key: &[u8]| older.iter().flatten().any(|e| user_key(&e.0) == key);
            let merging = operator.clone().map(|operator| operator as Arc<dyn MergeOperator>);
            let piece = [usize::MAX, 60, 1][rng.below(3) as usize];
            let (out, counts) = compact_in_pieces(inputs, &snapshots, zero, merging, piece, below);
            runs.insert(from, out);
            add(&mut total, &counts);
            for key in 0..KEYS {
                let (before, after) = (versions(&original, key), versions(&runs, key));
                for &snapshot in snapshots.iter().chain(&(visible..=seqno).collect::<Vec<_>>()) {
                    assert_eq!(read(&after, snapshot), read(&before, snapshot), "key {key} at {snapshot}");
                    checks += 1;
                }
            }
            // Snapshots are released as time goes on.
            if rng.below(3) == 0 && snapshots.len() > 1 {
                snapshots.remove(0);
            }
        }
        failures += operator.map_or(0, |operator| operator.failures.load(Relaxed));
    }
    println!("{total:?}, {checks} reads checked, {failures} failed folds");
    assert!(checks > 50_000 && failures > 300 && total.failed_folds > 100);
    let fewest =
        [total.hidden, total.tombstones, total.single_pairs, total.zeroed, total.folded, total.clues]
            .into_iter()
            .min();
    assert!(fewest > Some(300), "{total:?}");
}

fn add(total: &mut DropCounts, one: &DropCounts) {
    total.read += one.read;
    total.hidden += one.hidden;
    total.tombstones += one.tombstones;
    total.single_pairs += one.single_pairs;
    total.duplicates += one.duplicates;
    total.folded += one.folded;
    total.failed_folds += one.failed_folds;
    total.zeroed += one.zeroed;
    total.clues += one.clues;
}

#[test]
fn ranges_together_give_the_whole() {
    let entries: Vec<Entry> =
        (0..40u8).flat_map(|k| [(9, D), (5, P)].map(|(s, kind)| entry(&[k], s, kind))).collect();
    let merge = || MergingIter::new(Comparator::Bytewise, vec![VecIter::new(entries.clone())]);
    let bottom = |key: &[u8]| key[0].is_multiple_of(3);
    let mut whole = CompactionIter::new(merge(), Comparator::Bytewise, vec![5, 9], true, bottom);
    whole.start(None, None).expect("no fault");
    let whole = drain(&mut whole).expect("no fault");
    let mut parts = Vec::new();
    for (start, end) in
        [(None, Some(7u8)), (Some(7), Some(8)), (Some(8), Some(8)), (Some(8), Some(30)), (Some(30), None)]
    {
        let mut part = CompactionIter::new(merge(), Comparator::Bytewise, vec![5, 9], true, bottom);
        let (start, end) = (start.map(|k| [k]), end.map(|k| [k]));
        part.start(start.as_ref().map(|k| &k[..]), end.as_ref().map(|k| &k[..])).expect("no fault");
        parts.extend(drain(&mut part).expect("no fault"));
    }
    assert_eq!(parts, whole);
    assert_eq!(whole.len(), 80);
}

#[test]
fn b003_errors_and_disorder_end_nothing_quietly() {
    for fail_at in 0..10 {
        let mut bad = VecIter::new((0..10u8).map(|k| entry(&[k], 1, D)).collect());
        bad.fail_at = Some(fail_at);
        let merge = MergingIter::new(Comparator::Bytewise, vec![bad]);
        let mut iter = CompactionIter::new(merge, Comparator::Bytewise, vec![9], true, |_| true);
        let result = iter.start(None, None).and_then(|()| drain(&mut iter));
        assert_eq!(result.expect_err("the fault").kind(), ErrorKind::Io);
        assert!(!iter.valid() && iter.next().is_err());
    }
    // A zeroed put above an entry that stays: refused, not reordered.
    let merge = MergingIter::new(Comparator::Bytewise, vec![VecIter::new(key_of("P9 R8"))]);
    let mut iter = CompactionIter::new(merge, Comparator::Bytewise, vec![9], true, |_| false);
    let result = iter.start(None, None).and_then(|()| drain(&mut iter));
    assert_eq!(result.expect_err("the caller's mistake").kind(), ErrorKind::Internal);
}

/// A source in the order given, sorted or not.
struct Unsorted(Vec<Entry>, usize);

impl InternalIter for Unsorted {
    fn valid(&self) -> bool {
        self.1 < self.0.len()
    }
    fn seek_to_first(&mut self) -> Result<()> {
        self.1 = 0;
        Ok(())
    }
    fn seek_to_last(&mut self) -> Result<()> {
        Err(Error::invalid("forward only"))
    }
    fn seek(&mut self, _: &[u8]) -> Result<()> {
        self.seek_to_first()
    }
    fn seek_for_prev(&mut self, _: &[u8]) -> Result<()> {
        Err(Error::invalid("forward only"))
    }
    fn next(&mut self) -> Result<()> {
        self.1 += 1;
        Ok(())
    }
    fn prev(&mut self) -> Result<()> {
        Err(Error::invalid("forward only"))
    }
    fn key(&self) -> &[u8] {
        &self.0[self.1].0
    }
    fn value(&self) -> &[u8] {
        &self.0[self.1].1
    }
}

#[test]
fn inputs_out_of_order_are_corruption() {
    for (a, b) in [(entry(b"b", 1, P), entry(b"a", 1, P)), (entry(b"a", 1, P), entry(b"a", 2, P))] {
        let mut iter =
            CompactionIter::new(Unsorted(vec![a, b], 0), Comparator::Bytewise, vec![9], true, |_| true);
        iter.start(None, None).expect("the first entry");
        assert_eq!(iter.next().expect_err("disorder").kind(), ErrorKind::Corruption);
    }
}

mod range_dels;
