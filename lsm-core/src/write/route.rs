//! Where the operations of a commit group go: to their primaries, or away from one that is under pressure.
//!
//! ```text
//! writer   place each key                          (`Places`, before it queues up)
//! leader   switch memtables that are full ─ redirect what a primary can't take ─ one log record
//!          ─ one memtable of each tree that the group touches
//! ```
//! Invariants
//! - A tree's memtable is switched, if at all, before the group's first entry for it, and the group
//!   has one memtable of each tree (rule 11).
//! - What a group has sent to a fallback counts in its next choice (rule 22).
//! - Only values and operands are redirected, and only ones longer than their clues; an unlogged write in
//!   a logged database is not (rule 19), nor anything once the clue limit is reached.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::batch::{Op, WriteBatch};
use crate::engine::Engine;
use crate::key::Kind;
use crate::keyspace::Alive;
use crate::routing::{CLUE_BYTES, ShardState};
use crate::space::Space;
use crate::tree::Tree;
use crate::types::SeqNo;
use crate::write::commit::Trees;

/// The primary of each operation of a batch; empty where all keyspaces have one shard.
pub(crate) type Places = SmallVec<[u16; 2]>;

/// Not redirected.
pub(crate) const STAYS: u16 = u16::MAX;

/// Finds the primaries of a batch's operations. A range delete goes everywhere; its place says nothing.
#[inline]
pub(crate) fn places(engine: &Engine, batch: &WriteBatch) -> Places {
    if engine.space.shards() == 1 { Places::new() } else { places_in_shards(engine, batch) }
}

fn places_in_shards(engine: &Engine, batch: &WriteBatch) -> Places {
    // One placement for all: every keyspace gets the database's number of shards.
    let placement = &engine.space.placement;
    batch.iter().map(|op| op.map_or(0, |op| placement.place(op.key))).collect()
}

/// Routes the members of one group, one after the other.
pub(crate) struct GroupRouter<'a> {
    engine: &'a Engine,
    alive: &'a Alive,
    /// The last sequence before the group.
    last_seqno: SeqNo,
    logged: bool,
    /// From which on a primary does not take what another shard could.
    pressure: f64,
    /// Ascending by id.
    trees: Trees,
    states: Vec<(u32, Vec<ShardState>)>,
    /// How many clues may still come; counted when it is first asked for.
    clues_left: Option<u64>,
}

impl<'a> GroupRouter<'a> {
    pub(crate) fn new(
        engine: &'a Engine,
        alive: &'a Alive,
        last_seqno: SeqNo,
        logged: bool,
    ) -> GroupRouter<'a> {
        let pressure = engine.options.load().redirect_pressure;
        let (trees, states) = (Trees::new(), Vec::new());
        GroupRouter { engine, alive, last_seqno, logged, pressure, trees, states, clues_left: None }
    }

    /// The trees that the group writes to.
    pub(crate) fn finish(self) -> Trees {
        self.trees
    }

    /// Routes a batch whose keyspaces are all there. The fallback of each operation, or [`STAYS`]; nothing
    /// if all stay.
    pub(crate) fn route(&mut self, batch: &WriteBatch, places: &Places) -> Option<Box<[u16]>> {
        let space = &self.engine.space;
        if space.shards() == 1 {
            self.touch_keyspaces(batch);
            return None;
        }
        if batch.is_plain() && batch.others().is_empty() && !self.may_redirect_any(space, places) {
            for place in places {
                self.touch(&space.trees[usize::from(*place)]);
            }
            return None;
        }
        let mut fallbacks: Vec<u16> = Vec::new();
        let (mut space, mut at) = (space, 0);
        for op in batch.iter() {
            let op = op.expect("a batch holds only whole operations");
            if space.id != op.keyspace {
                space = self.alive.by_id(op.keyspace).expect("members with other keyspaces have failed");
            }
            if let Some(fallback) = self.route_op(space, places[at], &op) {
                fallbacks.resize(at, STAYS);
                fallbacks.push(fallback);
            }
            at += 1;
        }
        if fallbacks.is_empty() {
            return None;
        }
        fallbacks.resize(at, STAYS);
        for (at, (op, fallback)) in batch.iter().zip(&fallbacks).enumerate() {
            if let Ok(op) = op
                && *fallback != STAYS
            {
                let bytes = (op.key.len() + op.value.len()) as u64;
                self.engine.metrics.add_redirect(places[at], *fallback, bytes);
            }
        }
        Some(fallbacks.into_boxed_slice())
    }

    /// The group writes to the one tree of each keyspace that the batch names.
    fn touch_keyspaces(&mut self, batch: &WriteBatch) {
        let alive = self.alive;
        let ids = batch.is_in_default().then_some(0).into_iter().chain(batch.others().iter().copied());
        for space in ids.filter_map(|id| alive.by_id(id)) {
            self.touch(&space.trees[0]);
        }
    }

    /// Whether any of the places is under pressure, or is asked about without.
    fn may_redirect_any(&self, space: &Space, places: &Places) -> bool {
        let Some(router) = &space.placement.router else { return false };
        let is_pressed = |place: &u16| space.trees[usize::from(*place)].is_pressed(self.pressure);
        router.is_asked_always() || places.iter().any(is_pressed)
    }

    fn route_op(&mut self, space: &Space, primary: u16, op: &Op<'_>) -> Option<u16> {
        if op.kind == Kind::RangeDelete {
            space.trees.iter().for_each(|tree| self.touch(tree));
            return None;
        }
        let tree = &space.trees[usize::from(primary)];
        self.touch(tree);
        let fallback = self.fallback(space, tree, op)?;
        self.touch(&space.trees[usize::from(fallback)]);
        Some(fallback)
    }

    /// Where an operation of `tree` goes instead, if it does.
    fn fallback(&mut self, space: &Space, tree: &Tree, op: &Op<'_>) -> Option<u16> {
        let is_redirectable = matches!(op.kind, Kind::Put | Kind::Merge) && op.value.len() > CLUE_BYTES;
        let router = space.placement.router.as_ref().filter(|_| is_redirectable)?;
        if !router.is_asked_always() && !tree.is_pressed(self.pressure) {
            return None;
        }
        let options = self.engine.options.load();
        if !options.redirect || (!self.logged && self.engine.is_logged()) {
            return None;
        }
        let left = *self.clues_left.get_or_insert_with(|| {
            let (entries, bytes) = self.engine.clues();
            if bytes >= options.clue_bytes_max { 0 } else { options.clues_max.saturating_sub(entries) }
        });
        if left == 0 || !tree.has_reserve(options.clue_reserve_bytes) {
            return None;
        }
        let states = match self.states.iter().position(|(id, _)| *id == space.id) {
            Some(at) => &mut self.states[at].1,
            None => {
                self.states.push((space.id, states(space, self.pressure)));
                &mut self.states.last_mut().expect("one was just pushed").1
            }
        };
        let primary = tree.id.shard;
        let fallback = router.fallback(primary, states)?;
        let state = states.get_mut(usize::from(fallback)).filter(|_| fallback != primary)?;
        tree.note_redirect(self.pressure, fallback);
        state.memtable_bytes += (op.key.len() + op.value.len()) as u64;
        self.clues_left = Some(left - 1);
        Some(fallback)
    }

    /// The group writes to `tree`: switches its memtable first, if that is full.
    #[inline]
    fn touch(&mut self, tree: &Arc<Tree>) {
        if let Err(at) = self.trees.binary_search_by_key(&tree.id, |other| other.id) {
            tree.switch_if_full(self.engine, self.last_seqno);
            self.trees.insert(at, tree.clone());
        }
    }
}

/// What a router is told of the shards of a keyspace.
pub(crate) fn states(space: &Space, pressure_max: f64) -> Vec<ShardState> {
    space.trees.iter().map(|tree| tree.shard_state(pressure_max)).collect()
}
