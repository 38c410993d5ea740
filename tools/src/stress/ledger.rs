//! What the writers were told, and the judgement whether what was found agrees with it.
//!
//! ```text
//! order     a b c d e f g h        batches as they were handed to the log
//!               |     |   |
//!          durable  acked order's end       a power cut leaves a prefix that ends at or behind
//!                                           `durable`, a killed process one at or behind `acked`
//! ```
//! Without a log there is no such prefix; then `floors` judges.
//!
//! A batch whose write failed may be there or not, whole; the batches of one commit group share that
//! fate, and stand together in the order.

use std::collections::{BTreeMap, BTreeSet};

use super::floors::{self, Floors, Halves, Route};
use super::workload::{Model, Shape, apply, counters, thread_of};

/// Failed groups of which each may have survived: beyond that no judgement is tried.
const FAILED_GROUPS_MAX: usize = 6;

/// What has been done so far.
#[derive(Default)]
pub struct Ledger {
    /// Batches in the order in which they were handed to the log or, without one, written.
    pub order: Vec<u64>,
    position: BTreeMap<u64, usize>,
    /// The least prefix that holds all that was acknowledged.
    pub acked: usize,
    /// The least prefix that holds all that was promised to survive a power cut.
    pub durable: usize,
    /// Batches whose write failed after it had reached the log.
    pub failed: BTreeSet<u64>,
    /// Synced writes that were acknowledged.
    pub synced_writes: u64,
    /// Unsynced writes that were acknowledged.
    pub plain_writes: u64,
    /// Without log: where values went.
    pub routes: BTreeMap<u64, Route>,
}

impl Ledger {
    /// These batches are about to be written to the log.
    pub fn committing(&mut self, ids: &[u64]) {
        for id in ids {
            self.order.push(*id);
            self.position.insert(*id, self.order.len());
        }
    }

    /// Batch `id` was acknowledged.
    ///
    /// # Errors
    /// What is wrong, if it never reached the log.
    pub fn acknowledged(&mut self, id: u64, sync: bool) -> Result<(), String> {
        let Some(position) = self.position.get(&id) else {
            return Err(format!("batch {id:x} was acknowledged and never reached the log"));
        };
        self.acked = self.acked.max(*position);
        if sync {
            self.durable = self.durable.max(*position);
            self.synced_writes += 1;
        } else {
            self.plain_writes += 1;
        }
        Ok(())
    }

    /// The write of batch `id` failed.
    pub fn failed(&mut self, id: u64) {
        if self.position.contains_key(&id) {
            self.failed.insert(id);
        }
    }

    /// All that was acknowledged when the prefix was `acked` long is durable.
    pub fn made_durable(&mut self, acked: usize) {
        self.durable = self.durable.max(acked);
    }

    /// The length of the least prefix that holds `ids`; batches of other ledgers do not count.
    pub fn reach(&self, ids: impl Iterator<Item = u64>) -> usize {
        ids.filter_map(|id| self.position.get(&id).copied()).max().unwrap_or(0)
    }

    /// Forgets what comes behind the first `len` batches.
    pub fn truncate(&mut self, len: usize) {
        for id in self.order.drain(len.min(self.order.len())..) {
            self.position.remove(&id);
        }
    }
}

/// What may be found.
pub struct Expectation<'a> {
    /// What was there before the first batch of the order.
    pub base: &'a Model,
    /// What batches are like.
    pub shape: &'a Shape,
    /// All batches that may be there.
    pub order: &'a [u64],
    /// Of those, batches that may be missing by themselves.
    pub failed: &'a BTreeSet<u64>,
    /// At least so many are there.
    pub least: usize,
    /// Where no log says which are.
    pub floors: Option<Floors<'a>>,
}

/// A state that agrees with what was promised.
#[derive(Debug)]
pub struct Judgement {
    /// How many batches of the order are there, failed ones that are missing included.
    pub prefix: usize,
    /// What the database holds.
    pub state: Model,
    /// Without log: redirected writes of which one half was left.
    pub halves: Halves,
    /// Redirected writes of which the recovery has found one half in tables, and made the other one.
    pub completed: u64,
}

impl Expectation<'_> {
    /// Finds the prefix that `found` is the state after.
    ///
    /// # Errors
    /// What is wrong, if there is none.
    pub fn judge(&self, found: Model) -> Result<Judgement, String> {
        if let Some(floors) = &self.floors {
            return floors::judge(self, floors, found);
        }
        let groups = self.failed_groups();
        if groups.len() > FAILED_GROUPS_MAX {
            return Err(format!("{} commit groups failed: too many to judge", groups.len()));
        }
        let mut reasons = Vec::new();
        for mask in 0..1_u32 << groups.len() {
            let chosen = groups.iter().enumerate().filter(|(at, _)| mask >> at & 1 == 1);
            let missing: BTreeSet<u64> = chosen.flat_map(|(_, group)| group.iter().copied()).collect();
            match self.judge_without(&missing, &found) {
                Ok(prefix) => {
                    return Ok(Judgement { prefix, state: found, halves: Halves::default(), completed: 0 });
                }
                Err(reason) => reasons.push(reason),
            }
        }
        Err(reasons.swap_remove(0))
    }

    /// Failed batches that stand together.
    fn failed_groups(&self) -> Vec<Vec<u64>> {
        let mut groups: Vec<Vec<u64>> = Vec::new();
        let mut goes_on = false;
        for id in self.order {
            let is_failed = self.failed.contains(id);
            if is_failed && !goes_on {
                groups.push(Vec::new());
            }
            if let (true, Some(group)) = (is_failed, groups.last_mut()) {
                group.push(*id);
            }
            goes_on = is_failed;
        }
        groups
    }

    fn judge_without(&self, missing: &BTreeSet<u64>, found: &Model) -> Result<usize, String> {
        let prefix = self.prefix_by_counters(missing, found)?;
        if prefix < self.least {
            return Err(format!("{prefix} batches are left, {} were promised", self.least));
        }
        let mut state = self.base.clone();
        for id in self.order[..prefix].iter().filter(|id| !missing.contains(id)) {
            apply(&mut state, self.shape, *id);
        }
        match difference(&state, found) {
            None => Ok(prefix),
            Some(what) => Err(format!("the state is not that after {prefix} batches: {what}")),
        }
    }

    /// The longest prefix whose last batch of each thread is the one that its counter tells.
    fn prefix_by_counters(&self, missing: &BTreeSet<u64>, found: &Model) -> Result<usize, String> {
        let shown = counters(found);
        let mut now = counters(self.base);
        let threads: BTreeSet<u64> = shown.keys().chain(now.keys()).copied().collect();
        let mut differing = threads.iter().filter(|t| shown.get(t) != now.get(t)).count() as i64;
        let mut longest = (differing == 0).then_some(0);
        for (at, id) in self.order.iter().enumerate() {
            if !missing.contains(id) {
                let thread = thread_of(*id);
                let before = shown.get(&thread) == now.get(&thread);
                now.insert(thread, *id);
                let after = shown.get(&thread) == now.get(&thread);
                differing += i64::from(before) - i64::from(after);
            }
            if differing == 0 {
                longest = Some(at + 1);
            }
        }
        longest.ok_or_else(|| {
            let reach = |ids: &BTreeMap<u64, u64>| -> Vec<usize> {
                let place = |id: &u64| self.order.iter().position(|other| other == id).map_or(0, |at| at + 1);
                ids.values().map(place).collect()
            };
            let reached = reach(&shown);
            format!("what is left is no prefix of the commits: the threads got as far as {reached:?}")
        })
    }
}

/// The first place where the two differ, in words that show no data.
pub fn difference(expected: &Model, found: &Model) -> Option<String> {
    let show = |value: Option<&Vec<u8>>| match value {
        None => "nothing".to_owned(),
        Some(value) => {
            let head = String::from_utf8_lossy(&value[..value.len().min(16)]);
            format!("{} bytes ({head}..)", value.len())
        }
    };
    let at = expected
        .iter()
        .find(|(at, value)| found.get(*at) != Some(*value))
        .map(|(at, _)| at)
        .or_else(|| found.keys().find(|at| !expected.contains_key(*at)))?;
    let (keyspace, key) = at;
    Some(format!(
        "keyspace {keyspace}, key {}: {} instead of {}",
        String::from_utf8_lossy(key),
        show(found.get(at)),
        show(expected.get(at))
    ))
}

#[cfg(test)]
mod tests {
    use super::super::workload::id_of;
    use super::*;

    const SHAPE: Shape = Shape { seed: 1, keys: 20, keyspaces: 1, trees: None };

    fn state(ids: &[u64]) -> Model {
        let mut model = Model::new();
        ids.iter().for_each(|id| apply(&mut model, &SHAPE, *id));
        model
    }

    fn order() -> Vec<u64> {
        (0..40).map(|n| id_of(1, n % 3, n / 3)).collect()
    }

    fn judge(order: &[u64], failed: &[u64], least: usize, found: Model) -> Result<usize, String> {
        let failed = failed.iter().copied().collect();
        let base = Model::new();
        let expectation =
            Expectation { base: &base, shape: &SHAPE, order, failed: &failed, least, floors: None };
        expectation.judge(found).map(|judgement| judgement.prefix)
    }

    #[test]
    fn prefixes_are_accepted_and_short_ones_are_not() {
        let order = order();
        for prefix in 0..=order.len() {
            assert_eq!(judge(&order, &[], prefix, state(&order[..prefix])), Ok(prefix));
            if prefix > 0 {
                let error = judge(&order, &[], prefix, state(&order[..prefix - 1])).expect_err("lost");
                assert!(error.contains("were promised"), "{error}");
            }
        }
    }

    #[test]
    fn holes_and_torn_batches_are_found() {
        let order = order();
        for hole in 0..39 {
            let ids: Vec<u64> = order.iter().copied().filter(|id| *id != order[hole]).collect();
            judge(&order, &[], 0, state(&ids)).expect_err("a batch is missing");
        }
        let mut torn = 0;
        for at in 0..order.len() {
            for (keyspace, key, _) in super::super::workload::steps(&SHAPE, order[at]) {
                let mut found = state(&order[..=at]);
                if found.remove(&(keyspace, key)).is_some() {
                    judge(&order, &[], 0, found).expect_err("an entry is missing");
                    torn += 1;
                }
            }
        }
        assert!(torn > 60, "{torn}");
    }

    #[test]
    fn failed_groups_may_be_there_or_not_but_whole() {
        let order = order();
        let failed = &order[20..22];
        let without: Vec<u64> = order.iter().copied().filter(|id| !failed.contains(id)).collect();
        let half: Vec<u64> = order.iter().copied().filter(|id| *id != failed[1]).collect();
        assert_eq!(judge(&order, failed, 40, state(&order)), Ok(40));
        assert_eq!(judge(&order, failed, 40, state(&without)), Ok(40));
        judge(&order, failed, 0, state(&half)).expect_err("half a group");
        judge(&order, &[], 0, state(&without)).expect_err("they did not fail");
    }
}
