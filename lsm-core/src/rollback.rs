//! Rollback: clue entries are replaced, in place, by the values they stand for; then those are collected in
//! their fallbacks.
//!
//! ```text
//! calm, or at the clue limit ─ a compaction of the primary whose clues become values ─ hand-off
//!   ─ no clue is left, durable or live ─ compactions of the fallbacks, which drop what was redirected there
//! ```
//! Nothing goes through a memtable, the log or the commit queue (rule 6): each value takes its clue's
//! place, at the same key, sequence and position, so that nothing newer is ever hidden by it, and no
//! delete comes undone. The value stays in its fallback until the primary's table is durable (rule 2).
//!
//! Clues that are in memtables only are flushed for it when writes pause ([`seal_clues`]).
//!
//! A new burst of writes ends a rollback that only calm has started: its outputs are dropped. At the limit it
//! goes on, since nothing is redirected before it has caught up.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::Result;
use crate::background::{Picked, claim};
use crate::compaction::picker::{CollectFloors, pick_collect, pick_rollback};
use crate::compaction::plan::{Plan, Reason};
use crate::engine::Engine;
use crate::keyspace::Alive;
use crate::metrics::{Counter, ShardCounter};
use crate::space::Space;
use crate::tree::{Buffer, Tree, TreeState};
use crate::types::{SEQNO_MAX, SeqNo};
use crate::{ErrorKind, manual};

/// Whether as many clues are there as may be.
fn is_at_limit(engine: &Engine) -> bool {
    let (max, bytes_max) = {
        let options = engine.options.load();
        (options.clues_max, options.clue_bytes_max)
    };
    let (clues, bytes) = engine.clues();
    clues > 0 && (clues >= max || bytes >= bytes_max)
}

/// Whether any tree is under pressure, or on its way there.
pub(crate) fn is_burst(engine: &Engine) -> bool {
    let now = engine.env.now();
    engine.keyspaces.alive_guard().trees.iter().any(|tree| tree.pressure() > 0.0 || tree.is_patient(now))
}

/// Whether a running rollback is to make room for writes.
pub(crate) fn is_to_abort(engine: &Engine) -> bool {
    is_burst(engine) && engine.rollbacks_asked.load(Ordering::Relaxed) == 0 && !is_at_limit(engine)
}

fn may_roll_back(engine: &Engine) -> bool {
    engine.space.shards() > 1
        && (engine.options.load().rollback || engine.rollbacks_asked.load(Ordering::Relaxed) > 0)
}

/// A rollback that comes before other compactions: at the limit, or where a caller waits for it.
///
/// # Errors
/// As [`claim`].
pub(crate) fn next_urgent<'a>(engine: &Engine, alive: &'a Alive) -> Result<Option<Picked<'a>>> {
    let is_asked = engine.rollbacks_asked.load(Ordering::Relaxed) > 0;
    if !may_roll_back(engine) || !(is_asked || is_at_limit(engine)) {
        return Ok(None);
    }
    // The limit counts all clues; a caller waits for those that were there before the call.
    let last = if is_at_limit(engine) { SEQNO_MAX } else { engine.rollback_up_to.load(Ordering::Relaxed) };
    first(alive, |tree| claim(engine, tree, |state| rollback_of(tree, state, is_asked, last)))
}

/// What to do when nothing else is: a rollback, or a collection.
///
/// # Errors
/// As [`claim`].
pub(crate) fn next_calm<'a>(engine: &Engine, alive: &'a Alive) -> Result<Option<Picked<'a>>> {
    if !may_roll_back(engine) || is_burst(engine) {
        return Ok(None);
    }
    let rollback =
        first(alive, |tree| claim(engine, tree, |state| rollback_of(tree, state, false, SEQNO_MAX)))?;
    if rollback.is_some() {
        return Ok(rollback);
    }
    for space in &alive.spaces {
        let Some(floors) = collect_floors(engine, space) else { continue };
        for tree in &space.trees {
            let picked = claim(engine, tree, |state| collection_of(tree, state, floors))?;
            if picked.is_some() {
                return Ok(picked);
            }
        }
    }
    Ok(None)
}

/// Whether a rollback or a collection could begin now.
pub(crate) fn is_due(engine: &Engine) -> bool {
    if !may_roll_back(engine) || is_burst(engine) {
        return false;
    }
    let alive = engine.keyspaces.alive();
    let is_collectable = |space: &Arc<Space>| {
        let floors = collect_floors(engine, space);
        let is_due = |tree: &Arc<Tree>, floors| collection_of(tree, &tree.lock(), floors).is_some();
        floors.is_some_and(|floors| space.trees.iter().any(|tree| is_due(tree, floors)))
    };
    alive.trees.iter().any(|tree| has_active_clues(tree))
        || alive.trees.iter().any(|tree| rollback_of(tree, &tree.lock(), false, SEQNO_MAX).is_some())
        || alive.spaces.iter().any(is_collectable)
}

fn has_active_clues(tree: &Tree) -> bool {
    tree.view_guard().active.table.clues().0 > 0
}

/// Seals memtables with clues, once no memtable has been flushed for a while: those clues would stay as
/// long as nothing is written, and with them all redirected entries that were rolled back meanwhile. Whether
/// there is something to flush now. For workers; waits for nobody.
pub(crate) fn seal_clues(engine: &Engine) -> bool {
    if !may_roll_back(engine) || engine.closing.load(Ordering::Acquire) || engine.error.check().is_err() {
        return false;
    }
    let alive = engine.keyspaces.alive();
    let now = engine.env.now();
    let is_restless = |tree: &Arc<Tree>| {
        tree.pressure() > 0.0 || tree.patience.until(now).is_some() || !tree.view_guard().sealed.is_empty()
    };
    let jobs = engine.scheduler.jobs();
    if jobs.flushes + jobs.compactions > 0
        || !alive.trees.iter().any(|tree| has_active_clues(tree))
        || alive.trees.iter().any(is_restless)
    {
        return false;
    }
    let seal = |last_seqno| {
        let filled = alive.trees.iter().filter(|tree| has_active_clues(tree) && tree.may_switch());
        filled.map(|tree| tree.switch_early(engine, last_seqno)).count() > 0
    };
    engine.commit.try_between_groups(|_, last_seqno| seal(last_seqno)).unwrap_or(false)
}

fn first<'a>(
    alive: &'a Alive,
    pick: impl Fn(&'a Arc<Tree>) -> Result<Option<Picked<'a>>>,
) -> Result<Option<Picked<'a>>> {
    for tree in &alive.trees {
        let picked = pick(tree)?;
        if picked.is_some() {
            return Ok(picked);
        }
    }
    Ok(None)
}

/// Whether no caller wants the tree for itself.
fn is_free(state: &TreeState) -> bool {
    state.compactions_paused == 0
}

fn rollback_of(tree: &Tree, state: &TreeState, is_asked: bool, last: SeqNo) -> Option<Plan> {
    let view = tree.view_guard();
    // Most trees, most of the time.
    if view.version.clues().0 == 0 || !(is_asked || is_free(state)) {
        return None;
    }
    pick_rollback(&view.version, &tree.options.load().strategy, last)
}

fn collection_of(tree: &Tree, state: &TreeState, floors: CollectFloors) -> Option<Plan> {
    let view = tree.view_guard();
    if view.version.redirected_bytes() == 0 || !is_free(state) {
        return None;
    }
    pick_collect(&view.version, &tree.options.load().strategy, floors)
}

/// Below which sequence every redirected entry of the keyspace can go, if no clue is left anywhere.
///
/// A tree without a clue in memory and with nothing to settle keeps nobody waiting, however low its floor is:
/// it may have been idle since. Each clue that it ever had was in a memtable of its that was flushed and has
/// settled, so its floor is above them all.
fn collect_floors(engine: &Engine, space: &Space) -> Option<CollectFloors> {
    // Before any tree is looked at: a clue below this has come to its memtable.
    let next = engine.commit.visible().load(Ordering::Acquire) + 1;
    let mut floors = CollectFloors { sure: next, likely: next };
    for tree in &space.trees {
        let state = tree.lock();
        let view = tree.view_guard();
        if state.durable.clues().0 + view.version.clues().0 > 0 {
            return None;
        }
        floors.sure = floors.sure.min(state.durable_floor);
        let has_clues = |buffer: &Arc<Buffer>| buffer.table.clues().0 > 0;
        if std::iter::once(&view.active).chain(&view.sealed).any(has_clues)
            || engine.versions.last_unsettled(tree.id).is_some()
        {
            floors.likely = floors.likely.min(state.durable_floor);
        }
    }
    Some(floors)
}

/// Counts what became of a rollback of `tree`.
pub(crate) fn note(engine: &Engine, tree: &Tree, plan: &Plan, result: &Result<()>) {
    if plan.reason == Reason::Rollback {
        match result {
            Ok(()) => {
                engine.metrics.add(Counter::Rollbacks, 1);
                engine.metrics.add_to_shard(tree.id.shard, ShardCounter::Rollbacks, 1);
            }
            Err(error) if error.kind() == ErrorKind::Cancelled => {
                engine.metrics.add(Counter::RollbackAborts, 1);
                engine.metrics.add_to_shard(tree.id.shard, ShardCounter::RollbackAborts, 1);
            }
            Err(_) => {}
        }
    }
}

/// Replaces all clues that are there now by their values: see [`crate::Db::rollback`].
pub(crate) fn run(engine: &Arc<Engine>) -> Result<()> {
    let _inside = engine.enter()?;
    if engine.space.shards() < 2 {
        return Ok(());
    }
    // What is visible now is there; what comes later nobody waits for, or writers could keep the caller
    // for ever. The callers' numbers ascend, so the greatest one serves all of them.
    let last = engine.commit.visible().load(Ordering::Acquire);
    engine.rollback_up_to.fetch_max(last, Ordering::Relaxed);
    engine.rollbacks_asked.fetch_add(1, Ordering::Relaxed);
    let result = wait_until_none(engine, last);
    engine.rollbacks_asked.fetch_sub(1, Ordering::Relaxed);
    result
}

fn wait_until_none(engine: &Arc<Engine>, last: SeqNo) -> Result<()> {
    let alive = engine.keyspaces.alive();
    // Reserves are flushed first.
    let has_clues = |tree: &&Arc<Tree>| {
        let view = tree.view();
        std::iter::once(&view.active).chain(&view.sealed).any(|buffer| buffer.table.clues().0 > 0)
    };
    let filled: Vec<Arc<Tree>> = alive.trees.iter().filter(has_clues).cloned().collect();
    manual::flush(engine, &filled, &Default::default())?;
    loop {
        let seen = engine.scheduler.ended.epoch();
        engine.check_open()?;
        engine.error.check()?;
        let left = |tree: &Arc<Tree>| !tree.is_dropped() && tree.view_guard().version.has_clues_up_to(last);
        if !alive.trees.iter().any(left) {
            return Ok(());
        }
        engine.schedule();
        engine.scheduler.ended.wait(seen, Some(engine.env.now() + 50_000_000));
    }
}
