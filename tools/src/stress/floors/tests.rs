use std::collections::BTreeSet;

use super::super::workload::{Shape, id_of};
use super::*;

const TREES: Trees = Trees { shards: 3, redirect_permille: 600 };
const SHAPE: Shape = Shape { seed: 5, keys: 12, keyspaces: 1, trees: Some(TREES) };

fn order() -> Vec<u64> {
    (0..60).map(|n| id_of(1, n % 3, n / 3)).collect()
}

/// What floors leave, where every value that could be redirected was; those lost are gone for good.
fn left(order: &[u64], floor: impl Fn((u32, u16)) -> usize) -> Model {
    let mut model = Model::new();
    for (id, at) in order.iter().zip(1..) {
        let target = target_of(&SHAPE, *id);
        for (keyspace, key, op) in steps(&SHAPE, *id) {
            if let Op::DeleteRange(end) = &op {
                let is_in = |other: &(u32, Vec<u8>)| {
                    other.0 == keyspace && (key.as_slice()..end.as_slice()).contains(&other.1.as_slice())
                };
                model.retain(|other, _| {
                    !is_in(other) || at > floor((keyspace, place(&other.1, TREES.shards)))
                });
                continue;
            }
            let tree = match target.filter(|_| is_redirectable(&op)) {
                Some(target) => target,
                None => place(&key, TREES.shards),
            };
            if at > floor((keyspace, tree)) {
                continue;
            }
            let after = changed(model.get(&(keyspace, key.clone())).map(Vec::as_slice), &op);
            match after {
                Some(value) => drop(model.insert((keyspace, key), value)),
                None => drop(model.remove(&(keyspace, key))),
            }
        }
    }
    model
}

fn judged(order: &[u64], found: Model, least: usize, is_one_moment: bool) -> Result<Judgement, String> {
    let routes = order.iter().map(|id| (*id, Route::Left)).collect();
    let (base, failed) = (Model::new(), BTreeSet::new());
    let floors = Floors { trees: TREES, routes: &routes, is_one_moment, may_be_home: false };
    let floors = Some(floors);
    Expectation { base: &base, shape: &SHAPE, order, failed: &failed, least, floors }.judge(found)
}

#[test]
fn what_floors_explain_is_accepted_and_both_halves_are_met() {
    let order = order();
    let mut halves = Halves::default();
    for n in 0..40 {
        let floor =
            |(keyspace, shard): (u32, u16)| (n * 7 + usize::from(shard) * 13 + keyspace as usize * 5) % 61;
        let judgement = judged(&order, left(&order, floor), 0, false).expect("floors explain it");
        halves.values += judgement.halves.values;
        halves.clues += judgement.halves.clues;
    }
    assert!(halves.values > 40 && halves.clues > 40, "{halves:?}");
}

#[test]
fn lost_values_and_values_from_nowhere_are_found() {
    let order = order();
    let floor = |(_, shard): (u32, u16)| 20 + usize::from(shard) * 10;
    let good = left(&order, floor);
    judged(&order, good.clone(), 0, false).expect("floors explain it");
    for (key, value) in &good {
        let mut lost = good.clone();
        lost.remove(key);
        judged(&order, lost, 0, false).expect_err("a value is lost");
        let mut changed = good.clone();
        changed.insert(key.clone(), [value.as_slice(), b"?"].concat());
        judged(&order, changed, 0, false).expect_err("a value from nowhere");
    }
    let mut more = good.clone();
    more.insert((0, b"k9999".to_vec()), b"value".to_vec());
    judged(&order, more, 0, false).expect_err("a key from nowhere");
}

#[test]
fn what_was_promised_and_one_moment_are_asked_for() {
    let order = order();
    let even = left(&order, |_| 30);
    assert_eq!(judged(&order, even.clone(), 30, true).expect("one moment").prefix, 30);
    judged(&order, even, 50, false).expect_err("more was promised");
    let uneven = left(&order, |(_, shard)| 30 + usize::from(shard));
    judged(&order, uneven, 30, true).expect_err("of two moments");
}
