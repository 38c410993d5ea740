//! The model that found rule 13, in Rust, over the ledger itself.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use dialsm_io::SplitMix64;

use super::*;

#[derive(Clone)]
struct ModelFile {
    number: FileNumber,
    is_durable: Rc<Cell<bool>>,
}

impl LedgerFile for ModelFile {
    fn number(&self) -> FileNumber {
        self.number
    }

    fn is_durable(&self) -> bool {
        self.is_durable.get()
    }
}

#[derive(Clone)]
struct Table {
    file: ModelFile,
    /// Key and newest sequence.
    keys: BTreeMap<u8, u64>,
    epoch: u64,
    /// When its sync ends; never, if it fails.
    due: Option<u64>,
}

impl Table {
    fn span(&self) -> (u8, u8) {
        let (first, last) = (self.keys.first_key_value(), self.keys.last_key_value());
        (*first.expect("no empty tables").0, *last.expect("no empty tables").0)
    }

    fn overlaps(&self, other: (u8, u8)) -> bool {
        let own = self.span();
        own.0 <= other.1 && other.0 <= own.1
    }
}

/// Where each file stands, by number.
type Tree = BTreeMap<FileNumber, Place>;

#[derive(Default, Debug)]
struct Driven {
    moves: u64,
    jumps_over_undurable: u64,
    flushes_ahead: u64,
    redone: u64,
    groups: u64,
}

struct Model {
    rng: SplitMix64,
    now: u64,
    tables: BTreeMap<FileNumber, Table>,
    live: Tree,
    durable: Tree,
    line: Line<ModelFile, u64>,
    next_file: u64,
    next_seqno: u64,
    next_step: u64,
    next_epoch: u64,
    floor: u64,
    driven: Driven,
}

impl Model {
    fn new(seed: u64) -> Model {
        Model {
            rng: SplitMix64::new(seed),
            now: 0,
            tables: BTreeMap::new(),
            live: Tree::new(),
            durable: Tree::new(),
            line: Line::default(),
            next_file: 1,
            next_seqno: 1,
            next_step: 1,
            next_epoch: 1,
            floor: 1,
            driven: Driven::default(),
        }
    }

    fn new_table(&mut self, keys: BTreeMap<u8, u64>, epoch: u64) -> ModelFile {
        let number = FileNumber(self.next_file);
        self.next_file += 1;
        let file = ModelFile { number, is_durable: Rc::new(Cell::new(false)) };
        let delays = [1, 1, 2, 3, 5, 9];
        let fails = self.rng.chance(1, 12);
        let delay = delays[self.rng.below(delays.len() as u64) as usize];
        let due = (!fails).then_some(self.now + delay);
        self.tables.insert(number, Table { file: file.clone(), keys, epoch, due });
        file
    }

    fn level(&self, tree: &Tree, place: Place) -> Vec<FileNumber> {
        let mut found: Vec<FileNumber> = tree.iter().filter(|(_, p)| **p == place).map(|(n, _)| *n).collect();
        if place == 0 {
            found.sort_by_key(|number| self.tables[number].epoch);
        }
        found
    }

    fn install(&mut self, removed: Vec<FileNumber>, added: Vec<(Place, ModelFile)>, floor: Option<u64>) {
        let removed: Vec<(Place, FileNumber)> =
            removed.into_iter().map(|number| (self.live.remove(&number).expect("live"), number)).collect();
        self.live.extend(added.iter().map(|(place, file)| (file.number, *place)));
        self.line.push(self.next_step, Step::new(removed, added, floor, self.next_step));
        self.next_step += 1;
    }

    fn merged(&self, inputs: &[FileNumber]) -> BTreeMap<u8, u64> {
        let mut keys = BTreeMap::new();
        for (key, seqno) in inputs.iter().flat_map(|number| &self.tables[number].keys) {
            let newest = keys.entry(*key).or_insert(0);
            *newest = (*newest).max(*seqno);
        }
        keys
    }

    fn hull(&self, inputs: &[FileNumber]) -> (u8, u8) {
        let spans = inputs.iter().map(|number| self.tables[number].span());
        spans.fold((u8::MAX, 0), |hull, span| (hull.0.min(span.0), hull.1.max(span.1)))
    }

    fn flush(&mut self) {
        let first = self.rng.below(8) as u8;
        let keys = (first..8.min(first + 1 + self.rng.below(3) as u8))
            .map(|key| {
                self.next_seqno += 1;
                (key, self.next_seqno)
            })
            .collect();
        let epoch = self.next_epoch;
        self.next_epoch += 1;
        let file = self.new_table(keys, epoch);
        self.install(Vec::new(), vec![(0, file)], Some(self.next_seqno + 1));
    }

    fn merge(&mut self, mut inputs: Vec<FileNumber>, to: Place) {
        let hull = self.hull(&inputs);
        let below = self.level(&self.live, to);
        inputs.extend(below.into_iter().filter(|number| self.tables[number].overlaps(hull)));
        let keys: Vec<(u8, u64)> = self.merged(&inputs).into_iter().collect();
        let outputs: Vec<(Place, ModelFile)> =
            keys.chunks(2).map(|keys| (to, self.new_table(keys.iter().copied().collect(), 0))).collect();
        self.install(inputs, outputs, None);
    }

    fn compact(&mut self) {
        let l0 = self.level(&self.live, 0);
        match self.rng.below(3) {
            // Within L0: its two oldest.
            0 if l0.len() >= 2 => {
                let inputs = l0[..2].to_vec();
                let epoch = self.tables[&inputs[1]].epoch;
                let file = self.new_table(self.merged(&inputs), epoch);
                self.install(inputs, vec![(0, file)], None);
            }
            1 if !l0.is_empty() => {
                let count = 1 + self.rng.below(l0.len() as u64) as usize;
                self.merge(l0[..count].to_vec(), 1);
            }
            _ => {
                let l1 = self.level(&self.live, 1);
                if l1.is_empty() {
                    return;
                }
                let picked = l1[self.rng.below(l1.len() as u64) as usize];
                let span = self.tables[&picked].span();
                let is_free = !self.level(&self.live, 2).iter().any(|n| self.tables[n].overlaps(span));
                if is_free {
                    let file = self.tables[&picked].file.clone();
                    self.install(vec![picked], vec![(2, file)], None);
                } else {
                    self.merge(vec![picked], 2);
                }
            }
        }
    }

    /// A live table whose sync failed is made again in its place.
    fn redo(&mut self) {
        let failed = |number: &&FileNumber| {
            self.tables[*number].due.is_none() && !self.tables[*number].file.is_durable()
        };
        let Some(number) = self.live.keys().find(failed).copied() else { return };
        let (place, table) = (self.live[&number], self.tables[&number].clone());
        let file = self.new_table(table.keys, table.epoch);
        self.install(vec![number], vec![(place, file)], None);
        self.driven.redone += 1;
    }

    fn settle(&mut self) {
        let steps = self.line.ready(self.line.len());
        assert_eq!(self.line.can_move(steps), self.line.next_move(steps).is_some());
        let Some(next) = self.line.next_move(steps) else { return };
        let passed = self.line.steps().take(steps);
        let has_undurable = passed.flat_map(|step| &step.added).any(|(_, file)| !file.is_durable());
        self.driven.jumps_over_undurable += u64::from(has_undurable);
        self.driven.flushes_ahead += next.ahead.len() as u64;
        self.driven.moves += 1;
        for (place, number) in &next.removed {
            assert_eq!(self.durable.remove(number), Some(*place), "what a move removes is there");
        }
        for (place, file) in &next.added {
            assert_eq!(self.durable.insert(file.number, *place), None, "what a move adds is new");
        }
        if let Some(floor) = next.floor {
            assert!(floor > self.floor, "the floor goes back");
            self.floor = floor;
        }
        let settled = self.line.settle(&next);
        assert_eq!(settled.len(), steps);
        assert!(settled.windows(2).all(|pair| pair[0].payload < pair[1].payload), "in their order");
    }

    fn sources(&self, tree: &Tree) -> Vec<Vec<FileNumber>> {
        let newest_first = self.level(tree, 0).into_iter().rev().map(|number| vec![number]);
        newest_first.chain([self.level(tree, 1), self.level(tree, 2)]).collect()
    }

    /// Levels without overlap, no older source with a newer version, no file that is not durable.
    fn check(&self, tree: &Tree, is_durable: bool) {
        for place in [1, 2] {
            let files = self.level(tree, place);
            for (at, number) in files.iter().enumerate() {
                let span = self.tables[number].span();
                let overlap = files[..at].iter().any(|other| self.tables[other].overlaps(span));
                assert!(!overlap, "tables of a level overlap");
            }
        }
        let mut lowest: BTreeMap<u8, u64> = BTreeMap::new();
        for source in self.sources(tree) {
            for (key, seqno) in self.merged(&source) {
                let above = lowest.entry(key).or_insert(u64::MAX);
                assert!(*above >= seqno, "an older source holds a newer version of a key");
                *above = seqno;
            }
        }
        if is_durable {
            assert!(
                tree.keys().all(|number| self.tables[number].file.is_durable()),
                "an unsynced file is named"
            );
        }
    }

    fn contents(&self, tree: &Tree) -> BTreeMap<u8, u64> {
        let mut contents = BTreeMap::new();
        for source in self.sources(tree) {
            for (key, seqno) in self.merged(&source) {
                contents.entry(key).or_insert(seqno);
            }
        }
        contents
    }

    fn step(&mut self) {
        self.now += 1;
        for table in self.tables.values().filter(|table| table.due.is_some_and(|due| due <= self.now)) {
            table.file.is_durable.set(true);
        }
        let before = self.contents(&self.durable);
        self.settle();
        self.check(&self.durable.clone(), true);
        let after = self.contents(&self.durable);
        for (key, seqno) in before {
            assert!(after.get(&key).is_some_and(|now| *now >= seqno), "the durable version went back");
        }
        // All below the floor is in the durable tables: the newest version that ever was, of each key.
        let flushed = self.tables.values().flat_map(|table| &table.keys).filter(|(_, s)| **s < self.floor);
        for (key, seqno) in flushed {
            assert!(after[key] >= *seqno, "the floor is above what the durable tables hold");
        }
        match self.rng.below(20) {
            0..7 => self.flush(),
            7..9 => self.redo(),
            _ => self.compact(),
        }
        self.check(&self.live.clone(), false);
    }

    /// Nothing new comes and all failures are made up for: all must settle (no step waits for ever).
    fn run_out(&mut self) {
        for _ in 0..200 {
            self.now += 10;
            self.redo();
            for table in self.tables.values().filter(|table| table.due.is_some_and(|due| due <= self.now)) {
                table.file.is_durable.set(true);
            }
            self.settle();
        }
        assert!(self.line.is_empty(), "{} steps never settle", self.line.len());
        assert_eq!(self.durable, self.live);
    }
}

#[test]
fn the_durable_state_is_always_a_legal_tree() {
    let mut driven = Driven::default();
    let runs = if cfg!(miri) { 20 } else { 4000 };
    for seed in 0..runs {
        let mut model = Model::new(seed);
        (0..40).for_each(|_| model.step());
        model.run_out();
        driven.moves += model.driven.moves;
        driven.jumps_over_undurable += model.driven.jumps_over_undurable;
        driven.flushes_ahead += model.driven.flushes_ahead;
        driven.redone += model.driven.redone;
        driven.groups += model.driven.groups;
    }
    assert!(driven.moves > runs * 5, "{driven:?}");
    assert!(driven.jumps_over_undurable > runs / 2, "{driven:?}");
    assert!(driven.flushes_ahead > runs / 2, "{driven:?}");
    assert!(driven.redone > runs / 4, "{driven:?}");
}

fn file(number: u64, is_durable: bool) -> ModelFile {
    ModelFile { number: FileNumber(number), is_durable: Rc::new(Cell::new(is_durable)) }
}

fn flush_step(number: u64, is_durable: bool) -> Step<ModelFile, ()> {
    Step::new(Vec::new(), vec![(0, file(number, is_durable))], Some(number * 10), ())
}

#[test]
fn a_file_that_came_and_went_is_in_no_record() {
    let mut line = Line::default();
    line.push(1, flush_step(1, false));
    line.push(2, Step::new(vec![(0, FileNumber(1))], vec![(1, file(2, true))], None, ()));
    let next = line.next_move(line.ready(2)).expect("the second state is durable");
    assert_eq!(next.steps, 2);
    assert!(next.removed.is_empty());
    assert_eq!(next.added.iter().map(|(p, f)| (*p, f.number.0)).collect::<Vec<_>>(), [(1, 2)]);
    assert_eq!(next.floor, Some(10), "the floor comes from the step in between");
}

#[test]
fn flushes_go_ahead_in_their_order_only() {
    let mut line = Line::default();
    line.push(1, Step::new(vec![(1, FileNumber(90))], vec![(2, file(91, false))], None, ()));
    line.push(2, flush_step(1, true));
    line.push(3, flush_step(2, false));
    line.push(4, flush_step(3, true));
    let next = line.next_move(line.ready(4)).expect("the first flush goes ahead");
    assert_eq!((next.steps, next.ahead.clone(), next.floor), (0, vec![1], Some(10)));
    assert!(!next.is_prefix);
    assert!(line.settle(&next).is_empty());
    assert!(line.next_move(line.ready(4)).is_none(), "nothing is new");
    assert!(!line.is_settled(1) && line.len() == 4);
}

#[test]
fn a_flush_bound_to_others_does_not_go_ahead() {
    let mut line = Line::default();
    line.push(1, Step::new(vec![(1, FileNumber(90))], vec![(2, file(91, false))], None, ()));
    line.push(2, flush_step(1, true).bound(true));
    line.push(3, flush_step(2, true));
    assert!(line.next_move(line.ready(3)).is_none());
}

#[test]
fn what_went_ahead_is_removed_when_the_state_moves_past_its_consumer() {
    let mut line = Line::default();
    let slow = file(91, false);
    line.push(1, Step::new(vec![(1, FileNumber(90))], vec![(2, slow.clone())], None, ()));
    line.push(2, flush_step(1, true));
    let next = line.next_move(0).expect("ahead");
    line.settle(&next);
    line.push(3, Step::new(vec![(0, FileNumber(1))], vec![(1, file(2, true))], None, ()));
    slow.is_durable.set(true);
    let next = line.next_move(line.ready(3)).expect("all");
    let removed: BTreeSet<(Place, u64)> = next.removed.iter().map(|(p, n)| (*p, n.0)).collect();
    assert_eq!(removed, BTreeSet::from([(0, 1), (1, 90)]));
    let added: BTreeSet<(Place, u64)> = next.added.iter().map(|(p, f)| (*p, f.number.0)).collect();
    assert_eq!(added, BTreeSet::from([(1, 2), (2, 91)]));
    assert_eq!((next.floor, next.is_prefix), (None, true));
    assert_eq!(line.settle(&next).len(), 3);
    assert!(line.is_empty());
}
