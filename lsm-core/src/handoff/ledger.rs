//! The ledger of one tree: what changed, in which order, and how far the durable version may follow.
//!
//! ```text
//!  durable state     steps, oldest first                                live state
//!      S0 ──────▶ S1 ──────▶ S2 ──────▶ S3 ──────▶ S4 ──────▶ S5 ──────▶ S6
//!                 files      one not    its file   flush,     flush, not
//!                 durable    durable    consumed   durable    durable
//!                                       by S3's
//!      next_move: S0 ═══════════════════▶ S3, and the flush of S4 goes ahead: one record
//! ```
//! Rule 13: the durable state is always the state after some number of steps, plus, at most, files of
//! younger flushes in flush order. It *moves* from one such state to a later one, over all that lies
//! between, as soon as every file of the later one is durable; what a file's fsync did that was consumed
//! meanwhile does not matter. The record of a move is the difference of the two states, never a sum of
//! edits: a file that came and went between them does not occur in it.
//!
//! Nothing here knows levels or tables. A file is a number in a *place* (the caller's, opaque), and says
//! whether it is durable; what a step keeps back until it is settled is its payload. So whatever
//! replaces files by others can be a customer.
//!
//! INVARIANT: after a move, each file that the state names is durable; attacked by
//! `the_durable_state_is_always_a_legal_tree`, the port of the model that found the rule.

use std::collections::{BTreeMap, VecDeque};

use crate::types::{FileNumber, SeqNo};

/// Where a file stands in a state.
pub(crate) type Place = u8;

/// What the ledger has to know of a file.
pub(crate) trait LedgerFile: Clone {
    fn number(&self) -> FileNumber;
    /// Whether its bytes and its name are durable. Once true it stays so.
    fn is_durable(&self) -> bool;
}

/// One change of the live state.
pub(crate) struct Step<F, P> {
    pub(crate) removed: Vec<(Place, FileNumber)>,
    pub(crate) added: Vec<(Place, F)>,
    /// Of a flush: the tree's floor once it is settled. Flushes only add.
    pub(crate) floor: Option<SeqNo>,
    /// It settles only together with steps of other trees, so it never goes ahead.
    pub(crate) is_bound: bool,
    /// What goes when the step is settled.
    pub(crate) payload: P,
    /// Its place in the order of all steps.
    number: u64,
    /// A flush that the durable state has though steps before it are not settled.
    is_ahead: bool,
}

impl<F: LedgerFile, P> Step<F, P> {
    pub(crate) fn new(
        removed: Vec<(Place, FileNumber)>,
        added: Vec<(Place, F)>,
        floor: Option<SeqNo>,
        payload: P,
    ) -> Step<F, P> {
        Step { removed, added, floor, is_bound: false, payload, number: 0, is_ahead: false }
    }

    pub(crate) fn bound(self, is_bound: bool) -> Step<F, P> {
        Step { is_bound, ..self }
    }

    fn is_durable(&self) -> bool {
        self.added.iter().all(|(_, file)| file.is_durable())
    }
}

/// From the present durable state to the next one.
pub(crate) struct Move<F> {
    /// How many of the first steps are settled by it.
    pub(crate) steps: usize,
    pub(crate) removed: Vec<(Place, FileNumber)>,
    pub(crate) added: Vec<(Place, F)>,
    /// The floor after it, if it changes.
    pub(crate) floor: Option<SeqNo>,
    /// Places of the steps, counted from the first of all, that go ahead with it.
    ahead: Vec<usize>,
    /// The state after it is exactly that after `steps`: nothing is ahead any more.
    pub(crate) is_prefix: bool,
}

/// A file in the difference of two states.
struct Change<F> {
    from: Option<Place>,
    to: Option<(Place, F)>,
}

/// The steps of a tree that are not settled.
pub(crate) struct Line<F, P> {
    steps: VecDeque<Step<F, P>>,
}

impl<F, P> Default for Line<F, P> {
    fn default() -> Line<F, P> {
        Line { steps: VecDeque::new() }
    }
}

impl<F: LedgerFile, P> Line<F, P> {
    /// Adds what has just become live. Numbers ascend.
    pub(crate) fn push(&mut self, number: u64, step: Step<F, P>) {
        self.steps.push_back(Step { number, ..step });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether the step of that number is settled, or was thrown away.
    pub(crate) fn is_settled(&self, number: u64) -> bool {
        self.steps.front().is_none_or(|first| first.number > number)
    }

    /// The number of the last step.
    pub(crate) fn last_number(&self) -> Option<u64> {
        self.steps.back().map(|last| last.number)
    }

    /// The floor that the last flush among the steps leads to.
    pub(crate) fn last_floor(&self) -> Option<SeqNo> {
        self.steps.iter().rev().find_map(|step| step.floor)
    }

    pub(crate) fn steps(&self) -> impl Iterator<Item = &Step<F, P>> {
        self.steps.iter()
    }

    /// How many of the first `limit` steps may be settled now: the most after which every file of the
    /// state is durable.
    pub(crate) fn ready(&self, limit: usize) -> usize {
        let (mut best, mut missing) = (0, 0usize);
        let mut fresh: BTreeMap<FileNumber, bool> = BTreeMap::new();
        for (at, step) in self.steps.iter().take(limit).enumerate() {
            for (_, number) in &step.removed {
                missing -= usize::from(fresh.remove(number) == Some(false));
            }
            for (_, file) in &step.added {
                let is_durable = file.is_durable();
                missing += usize::from(!is_durable);
                fresh.insert(file.number(), is_durable);
            }
            if missing == 0 {
                best = at + 1;
            }
        }
        best
    }

    /// Whether [`Line::next_move`] would find one.
    pub(crate) fn can_move(&self, steps: usize) -> bool {
        let mut flushes = self.steps.iter().skip(steps).filter(|step| step.floor.is_some() && !step.is_ahead);
        steps > 0 || flushes.next().is_some_and(|step| !step.is_bound && step.is_durable())
    }

    /// The move over the first `steps` steps, which [`Line::ready`] has allowed; flushes behind them go
    /// ahead as far as they are durable. None if nothing would change.
    pub(crate) fn next_move(&self, steps: usize) -> Option<Move<F>> {
        let (mut changes, mut floor) = (BTreeMap::new(), None);
        for step in self.steps.iter().take(steps) {
            apply(&mut changes, step);
            floor = step.floor.filter(|_| !step.is_ahead).or(floor);
        }
        let (mut ahead, mut is_prefix) = (Vec::new(), true);
        let flushes = self.steps.iter().enumerate().skip(steps).filter(|(_, step)| step.floor.is_some());
        for (at, step) in flushes {
            if step.is_ahead {
                is_prefix = false;
                continue;
            }
            if step.is_bound || !step.is_durable() {
                break;
            }
            is_prefix = false;
            ahead.push(at);
            floor = step.floor;
            apply(&mut changes, step);
        }
        if steps == 0 && ahead.is_empty() {
            return None;
        }
        let (mut removed, mut added) = (Vec::new(), Vec::new());
        for (number, Change { from, to }) in changes {
            let is_same = from.is_some() && from == to.as_ref().map(|(place, _)| *place);
            if !is_same {
                removed.extend(from.map(|place| (place, number)));
                added.extend(to);
            }
        }
        Some(Move { steps, removed, added, floor, ahead, is_prefix })
    }

    /// Notes that a move is durable; gives back the steps that it settled.
    pub(crate) fn settle(&mut self, done: &Move<F>) -> Vec<Step<F, P>> {
        for at in &done.ahead {
            self.steps[*at].is_ahead = true;
        }
        self.steps.drain(..done.steps).collect()
    }

    /// Throws all steps away: the tree is gone.
    pub(crate) fn discard(&mut self) -> Vec<Step<F, P>> {
        self.steps.drain(..).collect()
    }
}

/// Adds a step to the difference of two states.
fn apply<F: LedgerFile, P>(changes: &mut BTreeMap<FileNumber, Change<F>>, step: &Step<F, P>) {
    for (place, number) in &step.removed {
        changes.entry(*number).or_insert(Change { from: Some(*place), to: None }).to = None;
    }
    for (place, file) in &step.added {
        let from = step.is_ahead.then_some(*place);
        changes.entry(file.number()).or_insert(Change { from, to: None }).to = Some((*place, file.clone()));
    }
}

#[cfg(test)]
mod tests;
