//! The judgement on a power cut without log: what is left follows from the floor of each tree.
//!
//! Every batch puts its mark into each tree that it may write to, natively, since a mark is too short to be
//! redirected. The mark that is found in a tree so names the last batch below its floor: a memtable is
//! switched between groups only, and here each batch is a group. With `f` that of a key's primary and `g`
//! that of the shard that its value was sent to, in batches:
//!
//! | operation | is left |
//! |---|---|
//! | native, delete, range delete | up to `f` |
//! | redirected | up to `g`, its clue being there or made again (FC-1); |
//! | | from there up to `f` only where a rollback has brought it home, which it may have or not |
//!
//! What is left of a key is made by these in their order, and by nothing else: no value without its clue, no
//! clue that hides something and stands for nothing. With `atomic_flush`, and in a checkpoint, one batch is the
//! last for all trees.

use std::collections::BTreeMap;

use super::ledger::{Expectation, Judgement};
use super::workload::{Model, Op, Step, Trees, is_redirectable, mark, mark_key, place, steps, target_of};

/// As many values of one key are looked at together.
const VALUES_MAX: usize = 4096;

/// Where the values of a batch went that belong to other shards than its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// All stayed.
    Stayed,
    /// All went to the target.
    Left,
    /// Some went, or it is not known: the limit of clues was reached, or a reserve was spent.
    Unknown,
}

impl Route {
    /// Of a batch, `sent` of whose values went.
    pub fn of(steps: &[Step], trees: &Trees, target: Option<u16>, sent: u64) -> Route {
        let Some(target) = target else { return Route::Stayed };
        let could = |(_, key, op): &&Step| is_redirectable(op) && place(key, trees.shards) != target;
        match steps.iter().filter(could).count() as u64 {
            _ if sent == 0 => Route::Stayed,
            all if all == sent => Route::Left,
            _ => Route::Unknown,
        }
    }
}

/// What is known of a run without log.
pub struct Floors<'a> {
    /// The trees of each keyspace.
    pub trees: Trees,
    /// Of the batches whose write has returned.
    pub routes: &'a BTreeMap<u64, Route>,
    /// All trees are of one moment.
    pub is_one_moment: bool,
    /// A rollback may have brought values home.
    pub may_be_home: bool,
}

/// Redirected writes of which a cut has left one half, seen from the floors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Halves {
    /// The value, and not the clue.
    pub values: u64,
    /// The clue, and not the value.
    pub clues: u64,
}

/// Whether a cut has left an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    Yes,
    No,
    Perhaps,
}

/// A batch of the order: its place from 1, its id, what it does.
type Batch = (usize, u64, Vec<Step>);

/// By keyspace and shard.
type ByTree<T> = BTreeMap<(u32, u16), T>;

/// Finds the floors that `found` shows, and judges all keys by them.
///
/// # Errors
/// What is wrong.
pub fn judge(expectation: &Expectation<'_>, floors: &Floors<'_>, found: Model) -> Result<Judgement, String> {
    let in_order = expectation.order.iter().zip(1..);
    let batches: Vec<Batch> = in_order
        .filter(|(id, _)| !expectation.failed.contains(id))
        .map(|(id, at)| (at, *id, steps(expectation.shape, *id)))
        .collect();
    let marks = marks_of(expectation, floors, &batches);
    let at = floors_of(expectation, &marks, &found)?;
    let highest = at.values().copied().max().unwrap_or(0);
    for (tree, floor) in &at {
        let up_to = |end: usize| marks[tree].iter().map(|(place, _)| *place).take_while(|p| *p <= end).last();
        if up_to(expectation.least).unwrap_or(0) > *floor {
            return Err(format!("tree {tree:?} ends at batch {floor}, {} were promised", expectation.least));
        }
        if floors.is_one_moment && up_to(highest).unwrap_or(0) != *floor {
            return Err(format!("tree {tree:?} ends at batch {floor}, another one at {highest}"));
        }
    }
    let missing = |(tree, floor): (&(u32, u16), &usize)| {
        marks[tree].iter().map(|(place, _)| *place).find(|place| place > floor)
    };
    let prefix = at.iter().filter_map(missing).min().map_or(expectation.order.len(), |first| first - 1);
    let mut judging = Judging { floors, at, halves: Halves::default(), values: BTreeMap::new() };
    for (key, value) in expectation.base {
        judging.values.insert(key.clone(), vec![Some(value.clone())]);
    }
    for (place, id, steps) in &batches {
        let target = target_of(expectation.shape, *id);
        let route = floors.routes.get(id).copied().unwrap_or(Route::Unknown);
        for step in steps {
            judging.apply(*place, target, route, step)?;
        }
    }
    for (key, values) in &judging.values {
        if !values.contains(&found.get(key).cloned()) {
            return Err(judging.difference(key, values, &found));
        }
    }
    match found.keys().find(|key| !judging.values.contains_key(key)) {
        Some((keyspace, _)) => Err(format!("keyspace {keyspace} has a key that never was")),
        None => Ok(Judgement { prefix, state: found, halves: judging.halves, completed: 0 }),
    }
}

/// Each tree's marks, with the places of the batches that left them.
fn marks_of(
    expectation: &Expectation<'_>,
    floors: &Floors<'_>,
    batches: &[Batch],
) -> ByTree<Vec<(usize, Vec<u8>)>> {
    let mut marks: ByTree<Vec<(usize, Vec<u8>)>> = ByTree::new();
    for keyspace in 0..=expectation.shape.keyspaces {
        (0..floors.trees.shards).for_each(|shard| drop(marks.insert((keyspace, shard), Vec::new())));
    }
    for (place, id, steps) in batches {
        for (keyspace, key, _) in steps {
            let of_key = |shard: &u16| mark_key(*shard) == *key;
            if let Some(shard) = (0..floors.trees.shards).find(of_key) {
                marks.entry((*keyspace, shard)).or_default().push((*place, mark(*id)));
            }
        }
    }
    marks
}

/// The last batch below the floor of each tree; 0 where none is.
fn floors_of(
    expectation: &Expectation<'_>,
    marks: &ByTree<Vec<(usize, Vec<u8>)>>,
    found: &Model,
) -> Result<ByTree<usize>, String> {
    let mut floors = ByTree::new();
    for (tree, marks) in marks {
        let key = (tree.0, mark_key(tree.1));
        let shown = found.get(&key);
        let floor = match shown {
            shown if shown == expectation.base.get(&key) => Some(0),
            Some(shown) => marks.iter().find(|(_, mark)| mark == shown).map(|(place, _)| *place),
            None => None,
        };
        let floor = floor.ok_or_else(|| format!("tree {tree:?} has lost its mark, or has that of nobody"))?;
        floors.insert(*tree, floor);
    }
    Ok(floors)
}

/// What a key may be, by keyspace and key.
type Candidates = BTreeMap<(u32, Vec<u8>), Vec<Option<Vec<u8>>>>;

struct Judging<'a> {
    floors: &'a Floors<'a>,
    at: ByTree<usize>,
    halves: Halves,
    values: Candidates,
}

impl Judging<'_> {
    fn apply(&mut self, place: usize, target: Option<u16>, route: Route, step: &Step) -> Result<(), String> {
        let (keyspace, key, op) = step;
        if let Op::DeleteRange(end) = op {
            let range = (*keyspace, key.clone())..(*keyspace, end.clone());
            if range.is_empty() {
                return Ok(());
            }
            let keys: Vec<_> = self.values.range(range).map(|(key, _)| key.1.clone()).collect();
            for key in keys {
                let left = self.native(place, *keyspace, &key);
                self.change(*keyspace, &key, left, op)?;
            }
            return Ok(());
        }
        let primary = super::workload::place(key, self.floors.trees.shards);
        let target = target.filter(|target| *target != primary && is_redirectable(op));
        let left = match target.filter(|_| route != Route::Stayed) {
            None => self.native(place, *keyspace, key),
            Some(target) => self.redirected(place, (*keyspace, primary), (*keyspace, target), route),
        };
        self.change(*keyspace, key, left, op)
    }

    fn native(&self, place: usize, keyspace: u32, key: &[u8]) -> Left {
        let primary = super::workload::place(key, self.floors.trees.shards);
        if place <= self.at[&(keyspace, primary)] { Left::Yes } else { Left::No }
    }

    fn redirected(&mut self, place: usize, primary: (u32, u16), target: (u32, u16), route: Route) -> Left {
        let (has_clue, has_value) = (place <= self.at[&primary], place <= self.at[&target]);
        if route == Route::Left {
            self.halves.values += u64::from(has_value && !has_clue);
            self.halves.clues += u64::from(has_clue && !has_value);
        }
        match (has_value, has_clue) {
            (true, true) => Left::Yes,
            (false, false) => Left::No,
            _ if route == Route::Unknown => Left::Perhaps,
            (true, false) => Left::Yes,
            (false, true) if self.floors.may_be_home => Left::Perhaps,
            (false, true) => Left::No,
        }
    }

    fn change(&mut self, keyspace: u32, key: &[u8], left: Left, op: &Op) -> Result<(), String> {
        let values = self.values.entry((keyspace, key.to_vec())).or_insert_with(|| vec![None]);
        if left == Left::No {
            return Ok(());
        }
        let mut after = if left == Left::Perhaps { values.clone() } else { Vec::new() };
        for value in &*values {
            let changed = changed(value.as_deref(), op);
            if !after.contains(&changed) {
                after.push(changed);
            }
        }
        *values = after;
        if values.len() > VALUES_MAX { Err("too many values of one key to judge".to_owned()) } else { Ok(()) }
    }

    /// In words that show no data.
    fn difference(&self, key: &(u32, Vec<u8>), values: &[Option<Vec<u8>>], found: &Model) -> String {
        let show = |value: Option<&[u8]>| match value {
            None => "nothing".to_owned(),
            Some(value) => {
                let head = String::from_utf8_lossy(&value[..value.len().min(16)]);
                format!("{} bytes ({head}..)", value.len())
            }
        };
        let allowed: Vec<String> = values.iter().take(4).map(|value| show(value.as_deref())).collect();
        format!(
            "keyspace {}, key {}: {} instead of {}; floors in batches {:?}",
            key.0,
            String::from_utf8_lossy(&key.1),
            show(found.get(key).map(Vec::as_slice)),
            allowed.join(" or "),
            self.at
        )
    }
}

/// What an operation makes of a key's value.
fn changed(value: Option<&[u8]>, op: &Op) -> Option<Vec<u8>> {
    match (op, value) {
        (Op::Put(new), _) => Some(new.clone()),
        (Op::Merge(operand), Some(value)) => Some([value, operand].join(&b'+')),
        (Op::Merge(operand), None) => Some(operand.clone()),
        (Op::Delete | Op::DeleteRange(_), _) => None,
    }
}

#[cfg(test)]
mod tests;
