//! Table tests on hand-made versions, and a simulation on metadata: flushes and concurrent jobs at
//! random, tables carrying their keys, checked after every step against a model.

use std::collections::BTreeMap;

use super::*;
use crate::compaction::debt::pending_compaction_bytes;
use crate::compaction::plan::{DropBelow, SubRange};
use crate::key::{Kind, internal_key, range_end};
use crate::read::testing::Rng;
use crate::types::FileNumber;
use crate::version::TableMeta;

const MB: u64 = 1 << 20;

/// A version from lines like "L0 9: a-c 64" or "L5: a-c 64 d-k 64 busy"; L0 lines are one file
/// with its epoch each; sizes in MiB; "busy" claims the file before it for job 1 to the next level
/// (L0: to L6); "a-c)" ends with a range tombstone.
fn version(text: &str) -> Version {
    let mut number = 0;
    let mut added = Vec::new();
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let (head, files) = line.split_once(':').expect("a level and its files");
        let mut head = head.split(' ');
        let level: u8 = head.next().expect("a level")[1..].parse().expect("a level number");
        let epoch: u64 = head.next().map_or(0, |e| e.parse().expect("an epoch"));
        let mut words = files.split_whitespace().peekable();
        while let Some(range) = words.next() {
            let (lo, hi) = range.split_once('-').expect("a key range");
            let exclusive = hi.strip_suffix(')');
            number += 1;
            let meta = TableMeta {
                number: FileNumber(number),
                epoch,
                file_bytes: words.next().expect("a size").parse::<u64>().expect("MiB") * MB,
                smallest: internal_key(lo.as_bytes(), 9, 7),
                largest: exclusive
                    .map_or_else(|| internal_key(hi.as_bytes(), 1, 7), |end| range_end(end.as_bytes())),
                range_deletes: u64::from(exclusive.is_some()),
                entries: 100,
                seqno_max: number,
                ..TableMeta::default()
            };
            let file = TableFile::new(&Comparator::Bytewise, meta);
            if words.next_if_eq(&"busy").is_some() {
                let output_level = if level == 0 { 6 } else { level + 1 };
                assert!(file.try_claim(Claim { job: 1, output_level }));
            }
            added.push((level, file));
        }
    }
    Version::empty(Comparator::Bytewise).apply(&[], &added).expect("a legal version")
}

/// A plan in one line: reason, inputs by level and number, where to.
fn shown(plan: &Option<Plan>) -> String {
    let Some(plan) = plan else { return "none".to_owned() };
    let mut out = format!("{:?}{}", plan.reason, if plan.trivial_move { " move" } else { "" });
    for input in &plan.inputs {
        let numbers: Vec<String> = input.files.iter().map(|f| f.number().0.to_string()).collect();
        out += &format!(" L{}:{}", input.level, numbers.join(","));
    }
    out + &format!(" -> L{}", plan.output_level)
}

fn picked(text: &str) -> String {
    shown(&pick(&version(text), &Strategy::leveled()))
}

#[test]
fn picks_on_hand_made_versions() {
    // (what it shows, version, expected)
    let cases = [
        ("nothing is due", "L0 1: a-z 64", "none"),
        (
            "disjoint runs move, whatever their order",
            "L0 4: s-t 64\nL0 3: m-n 64\nL0 2: c-d 64\nL0 1: a-b 64",
            "L0ToBase move L0:1,2,3,4 -> L6",
        ),
        (
            "only the files that overlap no older one move",
            "L0 4: a-c 64\nL0 3: m-n 64\nL0 2: b-d 64\nL0 1: e-f 64",
            "L0ToBase move L0:2,3,4 -> L6",
        ),
        (
            "overlap with the base level means merging all",
            "L0 4: a-z 64\nL0 3: a-z 64\nL0 2: a-z 64\nL0 1: b-y 64\nL6: a-b 64 c-d 64",
            "L0ToBase L0:1,2,3,4 L6:5,6 -> L6",
        ),
        (
            "a held file keeps newer ones that overlap it; too few for an intra-L0 merge",
            "L0 5: a-z 64\nL0 4: a-z 64\nL0 3: a-z 64\nL0 2: a-z 64\nL0 1: a-z 64 busy\nL6: a-z 64 busy",
            "none",
        ),
        (
            "blocked, so the newest runs become one",
            "L0 6: a-z 64\nL0 5: a-z 64\nL0 4: a-z 64\nL0 3: a-z 64\nL0 2: a-z 64 busy\nL0 1: a-z 64 busy",
            "IntraL0 L0:1,2,3,4 -> L0",
        ),
        (
            "no second job into the span of a running one, though no input overlaps; L0 may still merge",
            "L0 7: a-b 64 busy\nL0 6: y-z 64 busy\nL0 5: m-n 64\nL0 4: m-n 64\nL0 3: m-n 64\nL0 2: m-n 64",
            "IntraL0 L0:3,4,5,6 -> L0",
        ),
        (
            "least bytes below per byte",
            "L5: a-c 300 d-f 300 g-i 300\nL6: a-b 900 d-d 200 g-i 900",
            "LevelSaturation L5:2 L6:5 -> L6",
        ),
        (
            "a held parent passes the turn to the next best",
            "L5: a-c 300 d-f 300 g-i 300\nL6: a-b 900 d-d 200 busy g-i 901",
            "LevelSaturation L5:1 L6:4 -> L6",
        ),
        (
            "a range tombstone's end only touches",
            "L5: a-c) 300 d-f 300\nL6: c-e 900 g-z 2000",
            "LevelSaturation L5:1 -> L6",
        ),
        (
            "a range tombstone with nothing below is rewritten, not moved",
            "L5: a-c) 700\nL6: d-z 2000",
            "LevelSaturation L5:1 -> L6",
        ),
        (
            "a range tombstone over something is moved as any table",
            "L4: a-d) 700\nL6: b-c 200 d-z 2000",
            "LevelSaturation move L4:1 -> L5",
        ),
        (
            "nothing below: a move",
            "L5: a-c 300 d-f 300\nL6: a-c 2000 g-z 2000",
            "LevelSaturation move L5:2 -> L6",
        ),
        (
            "a neighbour inside the parents' hull comes along",
            "L5: b-c 300 d-e 30 x-z 10\nL6: a-f 400",
            "LevelSaturation move L5:3 -> L6",
        ),
        (
            "a neighbour inside the parents' hull comes along, without a free move",
            "L5: b-c 300 d-e 30\nL6: a-f 400",
            "LevelSaturation L5:1,2 L6:3 -> L6",
        ),
    ];
    for (what, text, want) in cases {
        assert_eq!(picked(text), want, "{what}");
    }
}

#[test]
fn an_intra_l0_output_takes_its_newest_inputs_epoch() {
    let runs: String =
        (1..=6).map(|e| format!("L0 {e}: a-z 64{}\n", if e == 1 { " busy" } else { "" })).collect();
    let plan = pick(&version(&runs), &Strategy::leveled()).expect("L0 is due");
    assert_eq!((plan.reason, plan.output_epoch), (Reason::IntraL0, Some(6)));
    assert!(plan.drop_below().may_exist(b"k"), "the oldest run stays below");
}

/// Each part of a compaction ends its own table, and tables of level 0 may not share an epoch.
#[test]
fn an_intra_l0_compaction_is_not_cut_into_parts() {
    let text = "L0 6: a-b 1\nL0 5: c-d 1\nL0 4: e-f 1\nL0 3: g-h 1\nL0 2: i-j 1\nL0 1: k-l 1";
    let inputs = vec![LevelInputs { level: 0, files: version(text).l0().to_vec() }];
    let plan = Plan::new(&version(text), inputs.clone(), 0, Reason::IntraL0);
    assert_eq!(plan.sub_ranges(4).len(), 1);
    let plan = Plan::new(&version(text), inputs, 6, Reason::Manual);
    assert_eq!(plan.sub_ranges(4).len(), 4);
}

#[test]
fn a_rewrite_waits_for_a_move_into_a_gap_between_its_inputs() {
    let v = version("L5: m-n 64 busy\nL6: a-c 64 x-z 64");
    let pick = |lo: &[u8]| pick_range(&v, &Strategy::leveled(), Some(lo), None, Some(6), true);
    assert!(matches!(pick(b"a"), RangePick::Busy));
    // The other way round: no move into the span of a running rewrite.
    let v = version("L5: m-n 300\nL6: a-c 64 x-z 64");
    assert_eq!(shown(&super::pick(&v, &Strategy::leveled())), "LevelSaturation move L5:1 -> L6");
    for file in v.level(6).iter() {
        assert!(file.try_claim(Claim { job: 4, output_level: 6 }));
    }
    assert_eq!(shown(&super::pick(&v, &Strategy::leveled())), "none");
}

#[test]
fn tables_of_tombstones_are_not_parked_at_the_bottom() {
    let file = |deletes| {
        let v = version("L5: m-n 300");
        let meta = TableMeta { number: FileNumber(9), deletes, ..v.level(5)[0].meta().clone() };
        let file = TableFile::new(v.comparator(), meta);
        pick(&v.apply(&[(5, FileNumber(1))], &[(5, file)]).expect("replaced"), &Strategy::leveled())
    };
    assert_eq!(shown(&file(10)), "LevelSaturation move L5:9 -> L6");
    assert_eq!(shown(&file(90)), "LevelSaturation L5:9 -> L6");
}

#[test]
fn movements_choose_their_file() {
    let text = "L5: a-c 300 d-f 300 g-i 300\nL6: a-c 100 d-f 200 g-i 900";
    let v = version(text);
    let first = |movement| {
        let plan = pick(&v, &Strategy { movement, ..Strategy::leveled() }).expect("L5 is full");
        plan.inputs[0].files[0].number().0
    };
    assert_eq!(first(Movement::LeastOverlapWithParent), 1);
    assert_eq!(first(Movement::Oldest), 1);
    let dense = v.level(5)[2].meta().clone();
    let dense = TableMeta { number: FileNumber(77), deletes: 90, ..dense };
    let file = TableFile::new(v.comparator(), dense);
    let v = v.apply(&[(5, FileNumber(3))], &[(5, file)]).expect("replaced");
    let strategy = Strategy { movement: Movement::TombstoneDensity, ..Strategy::leveled() };
    assert_eq!(pick(&v, &strategy).expect("full").inputs[0].files[0].number().0, 77);
}

#[test]
fn level_targets_follow_the_last_level() {
    let base = |text: &str| {
        let targets = LevelTargets::of(&version(text), &Strategy::leveled());
        (targets.base, targets.bytes[targets.base] / MB)
    };
    assert_eq!(base(""), (6, u64::MAX / MB));
    assert_eq!(base("L6: a-b 200"), (6, 256));
    assert_eq!(base("L6: a-b 300"), (5, 256));
    // 60 GB: 6 GB, 600 MB, and one more level up.
    assert_eq!(base("L6: a-b 60000"), (3, 256));
    assert_eq!(base("L5: a-b 10\nL6: a-b 60000"), (3, 256));
    // A filled level is never passed over.
    assert_eq!(base("L2: a-b 1\nL6: a-b 300"), (2, 256));
}

#[test]
fn debt_grows_with_what_is_owed() {
    let debt = |text: &str| pending_compaction_bytes(&version(text), &Strategy::leveled()) / MB;
    assert_eq!(debt("L0 1: a-z 64\nL6: a-z 5000"), 0);
    let l0 = "L0 4: a-z 64\nL0 3: a-z 64\nL0 2: a-z 64\nL0 1: a-z 64\n";
    assert_eq!(debt(l0), 256);
    let filled = format!("{l0}L5: a-z 600\nL6: a-z 5000");
    assert!(debt(&filled) > debt("L5: a-z 600\nL6: a-z 5000"));
    assert!(debt("L5: a-z 900\nL6: a-z 5000") > debt("L5: a-z 600\nL6: a-z 5000"));
}

#[test]
fn manual_ranges() {
    let text = "L0 2: a-c 64\nL0 1: m-p 64\nL4: b-d 64 x-z 64\nL6: a-b 64 d-e 64 m-n 64 y-z 64";
    let v = version(text);
    let range = |lo: &str, hi: &str, rewrite| match pick_range(
        &v,
        &Strategy::leveled(),
        Some(lo.as_bytes()),
        Some(hi.as_bytes()),
        None,
        rewrite,
    ) {
        RangePick::Nothing => "nothing".to_owned(),
        RangePick::Busy => "busy".to_owned(),
        RangePick::Plan(plan) => shown(&Some(*plan)),
    };
    assert_eq!(range("f", "g", true), "nothing");
    // The hull grows: a-c meets b-d, which meets d-e.
    assert_eq!(range("a", "a", false), "Manual L0:1 L4:3 L6:5,6 -> L6");
    assert_eq!(range("e", "e", false), "Manual L0:1 L4:3 L6:5,6 -> L6");
    assert_eq!(range("m", "m", false), "Manual L0:2 L6:7 -> L6");
    // Nothing of x lies deeper than L4; of y some does.
    assert_eq!(range("x", "x", false), "nothing");
    assert_eq!(range("y", "y", false), "Manual L4:4 L6:8 -> L6");
    let v2 = version("L4: b-d 64\nL6: m-n 64");
    let all = |rewrite, target| pick_range(&v2, &Strategy::leveled(), None, None, target, rewrite);
    assert!(matches!(all(false, None), RangePick::Plan(p) if !p.trivial_move));
    let one = version("L4: b-d 64");
    assert!(matches!(pick_range(&one, &Strategy::leveled(), None, None, None, false), RangePick::Nothing));
    assert!(
        matches!(pick_range(&one, &Strategy::leveled(), None, None, Some(6), false), RangePick::Plan(p) if p.trivial_move)
    );
    assert!(
        matches!(pick_range(&one, &Strategy::leveled(), None, None, None, true), RangePick::Plan(p) if !p.trivial_move)
    );
    assert!(v.l0()[0].try_claim(Claim { job: 3, output_level: 6 }));
    assert_eq!(range("a", "a", false), "busy");
}

#[test]
fn sub_ranges_cover_every_key_once() {
    let text = "L0 2: a-z 100\nL0 1: a-z 100\nL6: a-c 64 d-f 64 g-i 64 j-l 64 m-o 64 p-r 64 s-u 64 v-z 64";
    let RangePick::Plan(plan) = pick_range(&version(text), &Strategy::leveled(), None, None, None, false)
    else {
        panic!("there is something to do")
    };
    for n in 1..12 {
        let ranges = plan.sub_ranges(n);
        assert!(ranges.len() <= n && !ranges.is_empty());
        assert_eq!(ranges.len(), n.min(8), "8 boundaries, {n} wanted");
        assert_eq!((&ranges[0].start, &ranges[ranges.len() - 1].end), (&None, &None));
        for pair in ranges.windows(2) {
            assert!(pair[0].end.is_some() && pair[0].end == pair[1].start);
            assert!(pair[0].start < pair[0].end);
        }
    }
    let cuts: Vec<SubRange> = plan.sub_ranges(2);
    assert_eq!(cuts[0].end.as_deref(), Some(&b"m"[..]));
}

#[test]
fn fillseq_is_moves_only() {
    let mut sim = Sim::new(Strategy { table_bytes: 640, level_bytes_base: 2560, ..tiny() });
    for i in 0..600u16 {
        sim.flush((0..8).map(|k| (i * 8 + k, false)).collect());
        while let Some(plan) = sim.start() {
            assert!(plan.trivial_move, "{plan:?}");
            sim.finish(0);
        }
    }
    sim.check();
    assert_eq!(sim.compacted_bytes, 0);
    assert!(sim.version.l0().len() < 4 && sim.moves > 100);
}

/// A strategy whose levels fill with a few hundred entries of [`ENTRY_BYTES`].
fn tiny() -> Strategy {
    Strategy {
        level_bytes_base: 400,
        level_ratio: 3,
        table_bytes: 120,
        compaction_bytes_max: 1200,
        ..Strategy::leveled()
    }
}

const ENTRY_BYTES: u64 = 10;

/// Sequence and whether it is a tombstone.
type Content = BTreeMap<u16, (u64, bool)>;

struct Job {
    id: u64,
    plan: Plan,
    below: DropBelow,
}

/// A tree of metadata: what tables hold is a map beside the version.
struct Sim {
    strategy: Strategy,
    version: Version,
    contents: BTreeMap<u64, Content>,
    truth: Content,
    jobs: Vec<Job>,
    next_number: u64,
    seqno: u64,
    compacted_bytes: u64,
    moves: u64,
    dropped_tombstones: u64,
    reasons: BTreeMap<String, u64>,
    together_max: usize,
}

impl Sim {
    fn new(strategy: Strategy) -> Sim {
        Sim {
            strategy,
            version: Version::empty(Comparator::Bytewise),
            contents: BTreeMap::new(),
            truth: BTreeMap::new(),
            jobs: Vec::new(),
            next_number: 1,
            seqno: 0,
            compacted_bytes: 0,
            moves: 0,
            dropped_tombstones: 0,
            reasons: BTreeMap::new(),
            together_max: 0,
        }
    }

    fn table(&mut self, content: Content, epoch: u64) -> Arc<TableFile> {
        let number = self.next_number;
        self.next_number += 1;
        let (first, last) =
            (content.first_key_value().expect("some"), content.last_key_value().expect("some"));
        let meta = TableMeta {
            number: FileNumber(number),
            epoch,
            file_bytes: content.len() as u64 * ENTRY_BYTES,
            smallest: internal_key(&first.0.to_be_bytes(), first.1.0, Kind::Put as u8),
            largest: internal_key(&last.0.to_be_bytes(), last.1.0, Kind::Put as u8),
            entries: content.len() as u64,
            deletes: content.values().filter(|v| v.1).count() as u64,
            ..TableMeta::default()
        };
        self.contents.insert(number, content);
        TableFile::new(&Comparator::Bytewise, meta)
    }

    fn flush(&mut self, keys: Vec<(u16, bool)>) {
        let mut content = Content::new();
        for (key, delete) in keys {
            self.seqno += 1;
            content.insert(key, (self.seqno, delete));
            self.truth.insert(key, (self.seqno, delete));
        }
        let epoch = self.next_number;
        let file = self.table(content, epoch);
        self.version = self.version.apply(&[], &[(0, file)]).expect("a flush fits");
    }

    fn adopt(&mut self, plan: Plan) -> &Plan {
        let id = self.next_number;
        self.next_number += 1;
        plan.claim(id).expect("the picker hands out free files only");
        *self.reasons.entry(format!("{:?}", plan.reason)).or_default() += 1;
        let below = plan.drop_below();
        self.jobs.push(Job { id, plan, below });
        self.together_max = self.together_max.max(self.jobs.len());
        &self.jobs[self.jobs.len() - 1].plan
    }

    fn start(&mut self) -> Option<&Plan> {
        let plan = pick(&self.version, &self.strategy)?;
        Some(self.adopt(plan))
    }

    fn finish(&mut self, job: usize) {
        let Job { id, plan, mut below } = self.jobs.swap_remove(job);
        assert!(plan.files().all(|(_, f)| f.claim().expect("claimed").job == id));
        let removed = plan.removed();
        let added = if plan.trivial_move {
            self.moves += 1;
            plan.files().map(|(_, f)| (plan.output_level, Arc::clone(f))).collect()
        } else {
            let merged = self.merge(&plan, &mut below);
            self.cut(&plan, merged)
        };
        self.version = self.version.apply(&removed, &added).expect("the plan keeps the invariants");
        plan.release();
        if !plan.trivial_move {
            plan.numbers().iter().for_each(|n| drop(self.contents.remove(&n.0)));
        }
    }

    fn merge(&mut self, plan: &Plan, below: &mut DropBelow) -> Content {
        let mut merged = Content::new();
        for (_, file) in plan.files() {
            for (&key, &value) in &self.contents[&file.number().0] {
                let slot = merged.entry(key).or_insert(value);
                // Younger inputs come first: position and sequence must agree.
                assert!(slot.0 >= value.0, "inputs out of order");
            }
        }
        self.compacted_bytes += merged.len() as u64 * ENTRY_BYTES;
        let before = merged.len();
        merged.retain(|key, value| !value.1 || below.may_exist(&key.to_be_bytes()));
        self.dropped_tombstones += (before - merged.len()) as u64;
        merged
    }

    fn cut(&mut self, plan: &Plan, merged: Content) -> Vec<(u8, Arc<TableFile>)> {
        let epoch = plan.output_epoch.unwrap_or(0);
        let per_table = match plan.output_level {
            0 => usize::MAX,
            _ => (self.strategy.table_bytes / ENTRY_BYTES) as usize,
        };
        let entries: Vec<_> = merged.into_iter().collect();
        entries
            .chunks(per_table)
            .map(|chunk| (plan.output_level, self.table(chunk.iter().copied().collect(), epoch)))
            .collect()
    }

    /// I3, the version's invariants, and that every key reads as the model says.
    fn check(&self) {
        self.version.check_invariants().expect("legal");
        let mut newest: Content = BTreeMap::new();
        let mut last: BTreeMap<u16, u64> = BTreeMap::new();
        for level in self.version.levels() {
            for file in level.iter() {
                for (&key, &(seqno, delete)) in &self.contents[&file.number().0] {
                    newest.entry(key).or_insert((seqno, delete));
                    let before = last.insert(key, seqno);
                    assert!(before.is_none_or(|b| b > seqno), "I3: key {key}: {seqno} lies below {before:?}");
                }
            }
        }
        for (key, &(seqno, delete)) in &self.truth {
            match newest.get(key) {
                Some(found) => assert_eq!(*found, (seqno, delete), "key {key}"),
                None => assert!(delete, "key {key} was lost"),
            }
        }
    }
}

#[test]
fn simulation_keeps_recency_and_levels() {
    let mut rng = Rng(99);
    let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
    let (mut moves, mut dropped, mut together, mut manual) = (0, 0, 0, 0);
    for round in 0..30 {
        let movement =
            [Movement::LeastOverlapWithParent, Movement::Oldest, Movement::TombstoneDensity][round % 3];
        let mut sim = Sim::new(Strategy { movement, ..tiny() });
        for _ in 0..250 {
            match rng.below(10) {
                0..4 => {
                    // Narrow, wide and sparse flushes.
                    let reach = [4, 40, 300][rng.below(3) as usize];
                    let (start, width) = (rng.below(300), 1 + rng.below(reach));
                    let keys = (0..1 + rng.below(12))
                        .map(|_| ((start + rng.below(width)) as u16, rng.below(4) == 0));
                    let keys = keys.collect();
                    sim.flush(keys);
                }
                4..7 => drop(sim.start()),
                7 if rng.below(3) == 0 => {
                    let lo = rng.below(400) as u16;
                    let hi = lo + rng.below(60) as u16;
                    let (lo, hi) = (lo.to_be_bytes(), hi.to_be_bytes());
                    let rewrite = rng.below(2) == 0;
                    if let RangePick::Plan(plan) =
                        pick_range(&sim.version, &sim.strategy, Some(&lo), Some(&hi), None, rewrite)
                    {
                        sim.adopt(*plan);
                        manual += 1;
                    }
                }
                _ if !sim.jobs.is_empty() => {
                    let job = rng.below(sim.jobs.len() as u64) as usize;
                    sim.finish(job);
                }
                _ => {}
            }
            sim.check();
        }
        // Left alone, compaction comes to rest, with every level within its target.
        let mut quiet = 0;
        while !sim.jobs.is_empty() || sim.start().is_some() {
            sim.finish(0);
            quiet += 1;
            assert!(quiet < 2000, "compaction does not come to rest");
        }
        sim.check();
        assert!(sim.version.l0().len() < sim.strategy.l0_files);
        moves += sim.moves;
        dropped += sim.dropped_tombstones;
        together = together.max(sim.together_max);
        sim.reasons.into_iter().for_each(|(k, v)| *reasons.entry(k).or_default() += v);
    }
    println!("{reasons:?}, {moves} moves, {dropped} tombstones dropped, {together} jobs at once");
    assert!(reasons["L0ToBase"] > 500 && reasons["LevelSaturation"] > 300, "{reasons:?}");
    assert!(reasons["IntraL0"] > 20 && manual > 40, "{reasons:?}");
    assert!(moves > 100 && dropped > 500 && together >= 3);
}

mod write_amp;

#[test]
fn readers_pay_for_the_merge_that_spares_them_most_for_its_bytes() {
    use crate::compaction::reads::pick_for_reads;
    let picked = |text: &str, spent_ms: u64| {
        shown(&pick_for_reads(&version(text), &Strategy::leveled(), spent_ms * 1_000_000))
    };
    // 20 ms and 3 ns a byte: 171 ms for 48 MiB, which spare two probes.
    let two_gone = "L0 2: a-c 8\nL0 1: a-p 8\nL5: b-d 32\nL6: a-z 160";
    assert_eq!([picked(two_gone, 85), picked(two_gone, 86)], ["none", "Reads L0:1,2 L5:3 -> L5"]);
    // 604 ms for 192 MiB and one probe.
    let one_gone = "L5: b-d 32\nL6: a-z 160";
    assert_eq!([picked(one_gone, 623), picked(one_gone, 625)], ["none", "Reads L5:1 L6:2 -> L6"]);
    assert_eq!(picked("L0 2: a-c 8\nL0 1: a-p 8", 1000), "Reads L0:1,2 -> L6");
    assert_eq!(picked("L0 1: a-c 8", u64::MAX / 2_000_000), "none", "one run");
    assert_eq!(picked("L6: a-c 8 d-f 8", u64::MAX / 2_000_000), "none", "one run");
    assert_eq!(picked("L5: a-c 200\nL6: a-z 2000", u64::MAX / 2_000_000), "none", "too large");
    assert_eq!(picked("L5: a-c 2 busy\nL6: a-z 20 busy", 1000), "none", "at work");
}

#[test]
fn rollbacks_and_collections_take_what_they_are_for() {
    let meta = |number: u64, key: &str, (clues, clue_seqno_min): (u64, SeqNo), redirected| TableMeta {
        number: FileNumber(number),
        epoch: number,
        file_bytes: MB,
        smallest: internal_key(key.as_bytes(), 9, 7),
        largest: internal_key(key.as_bytes(), 1, 7),
        entries: 100,
        seqno_max: 50,
        clues,
        clue_seqno_min,
        redirected,
        ..TableMeta::default()
    };
    let table = |meta| TableFile::new(&Comparator::Bytewise, meta);
    let of = |added: &[(u8, Arc<TableFile>)]| {
        Version::empty(Comparator::Bytewise).apply(&[], added).expect("a legal version")
    };
    let strategy = Strategy::leveled();
    // Only clues up to a number are asked for: newer ones in L0 are in nobody's way.
    let clues = of(&[(0, table(meta(3, "a", (5, 40), 0))), (4, table(meta(2, "b", (5, 20), 0)))]);
    let rollback = |last| shown(&pick_rollback(&clues, &strategy, last));
    assert_eq!(
        [rollback(19), rollback(39), rollback(40)],
        ["none", "Rollback L4:2 -> L4", "Rollback L0:3 -> L4"]
    );
    // What a collection has left waits until it is sure to go.
    let file = table(meta(4, "a", (0, 0), 5));
    let redirected = of(&[(6, file.clone())]);
    let collect = |sure, likely| shown(&pick_collect(&redirected, &strategy, CollectFloors { sure, likely }));
    assert_eq!([collect(10, 50), collect(10, 51)], ["none", "Collect L6:4 -> L6"]);
    file.set_collected();
    assert_eq!([collect(50, 51), collect(51, 51)], ["none", "Collect L6:4 -> L6"]);
}
