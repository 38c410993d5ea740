//! Flush and compaction by hand, and what closing saves.

use std::sync::Arc;

use crate::background::reserve;
use crate::callback::Watch;
use crate::compaction::job;
use crate::compaction::picker::{self, RangePick};
use crate::compaction::plan::Plan;
use crate::engine::Engine;
use crate::handoff::Reserved;
use crate::keyspace;
use crate::options::{CompactRangeOptions, FlushOptions};
use crate::space::Space;
use crate::tree::Tree;
use crate::types::SeqNo;
use crate::{ErrorKind, Result};
use std::sync::atomic::Ordering;

/// Seals the active memtables of `trees`, all at one moment, and, where the options say so, waits until
/// all sealed ones are durable in tables. A tree that is dropped meanwhile has nothing left to wait for.
pub(crate) fn flush(engine: &Arc<Engine>, trees: &[Arc<Tree>], options: &FlushOptions) -> Result<()> {
    let _inside = engine.enter()?;
    let all = engine.options.load().atomic_flush.then(|| engine.keyspaces.alive());
    let (trees, atomic) = match &all {
        Some(all) => (&all.trees[..], true),
        None => (trees, options.atomic),
    };
    if !options.allow_stall {
        trees.iter().try_for_each(|tree| wait_for_room(engine, tree))?;
    }
    seal(engine, trees, atomic);
    engine.schedule();
    if options.wait { trees.iter().try_for_each(|tree| wait_until_flushed(engine, tree)) } else { Ok(()) }
}

/// Waits until a memtable may be sealed without one that is full having to wait for it.
fn wait_for_room(engine: &Engine, tree: &Tree) -> Result<()> {
    loop {
        let seen = engine.scheduler.ended.epoch();
        engine.check_open()?;
        engine.error.check()?;
        if tree.view().sealed.len() + 1 < tree.options.load().write_buffers_max {
            return Ok(());
        }
        engine.schedule();
        engine.scheduler.ended.wait(seen, Some(engine.env.now() + 50_000_000));
    }
}

/// Waits until the memtables that are sealed now, or were flushed before, are durable in tables.
pub(crate) fn wait_until_flushed(engine: &Engine, tree: &Tree) -> Result<()> {
    let wanted = {
        let _state = tree.lock();
        let sealed = tree.view().sealed.first().map(|newest| newest.floor_after());
        sealed.or_else(|| engine.versions.last_floor(tree.id))
    };
    let Some(wanted) = wanted else { return Ok(()) };
    loop {
        let seen = engine.scheduler.ended.epoch();
        engine.check_open()?;
        engine.error.check()?;
        if tree.lock().durable_floor >= wanted || tree.is_dropped() {
            return Ok(());
        }
        engine.schedule();
        engine.scheduler.ended.wait(seen, Some(engine.env.now() + 50_000_000));
    }
}

fn seal(engine: &Engine, trees: &[Arc<Tree>], atomic: bool) {
    engine.commit.between_groups(engine, |_, last_seqno| seal_as_leader(engine, trees, atomic, last_seqno));
}

/// Seals the active memtables of `trees`, or of all trees where those are always flushed as one. As the leader
/// of the commit queue.
pub(crate) fn seal_as_leader(engine: &Engine, trees: &[Arc<Tree>], atomic: bool, last_seqno: SeqNo) {
    if engine.options.load().atomic_flush {
        seal_all_as_leader(engine, last_seqno);
    } else {
        seal_filled(engine, trees, atomic, last_seqno);
    }
}

/// Seals those of all trees, to settle as one. As the leader of the commit queue: a keyspace that was created
/// after somebody asked for this has its part in what was written since.
pub(crate) fn seal_all_as_leader(engine: &Engine, last_seqno: SeqNo) {
    seal_filled(engine, &engine.keyspaces.alive_guard().trees, true, last_seqno);
}

/// Seals the active memtables of `trees` that hold anything, or are about to: a group that was logged before may
/// be inserting yet, and what it brings for one tree is sealed with what it brings for the others.
fn seal_filled(engine: &Engine, trees: &[Arc<Tree>], atomic: bool, last_seqno: SeqNo) {
    let is_filled = |tree: &&Arc<Tree>| {
        let view = tree.view_guard();
        // In this order: a writer that has left has inserted.
        !view.active.is_quiet() || !view.active.table.is_empty()
    };
    // Looked at once: the number of members is fixed before the first of them may be flushed.
    let filled: Vec<&Arc<Tree>> = trees.iter().filter(is_filled).collect();
    // Dropping goes between groups, too: none of them leaves before all have joined.
    let group = atomic.then(|| engine.versions.new_group(filled.len()));
    for tree in filled {
        let mut state = tree.lock();
        if let Some(group) = &group {
            let _ = tree.view().active.together.set(group.clone());
        }
        tree.switch(&mut state, last_seqno);
        tree.refresh_stall(state);
    }
}

/// Compacts `from..to` of all shards, one after the other, into the last level.
pub(crate) fn compact_range(
    engine: &Arc<Engine>,
    space: &Space,
    options: &CompactRangeOptions,
    from: Option<&[u8]>,
    to: Option<&[u8]>,
) -> Result<()> {
    let _inside = engine.enter()?;
    flush(engine, &space.trees, &FlushOptions::default())?;
    space.trees.iter().try_for_each(|tree| compact_tree(engine, tree, options, from, to))
}

fn compact_tree(
    engine: &Arc<Engine>,
    tree: &Arc<Tree>,
    options: &CompactRangeOptions,
    from: Option<&[u8]>,
    to: Option<&[u8]>,
) -> Result<()> {
    // The scheduler starts none in this tree until we are done.
    tree.lock().compactions_paused += 1;
    let result = compact_levels(engine, tree, options, from, to);
    tree.lock().compactions_paused -= 1;
    engine.schedule();
    match result {
        Err(error) if error.kind() == ErrorKind::Cancelled && tree.is_dropped() => {
            Err(keyspace::unknown(tree.id.keyspace))
        }
        result => result,
    }
}

fn compact_levels(
    engine: &Arc<Engine>,
    tree: &Arc<Tree>,
    options: &CompactRangeOptions,
    from: Option<&[u8]>,
    to: Option<&[u8]>,
) -> Result<()> {
    loop {
        let seen = engine.scheduler.ended.epoch();
        engine.check_open()?;
        engine.error.check()?;
        let picked = {
            let mut state = tree.lock();
            let watch = Watch::begin(&tree.comparator);
            let picked = picker::pick_range(
                &tree.view().version,
                &tree.options.load().strategy,
                from,
                to,
                options.target_level.map(usize::from),
                options.rewrite_bottom,
            );
            watch.check()?;
            match picked {
                RangePick::Plan(plan) if plan.is_suspect() => Picked::Busy,
                RangePick::Plan(plan) => match reserve(engine, &plan) {
                    Ok(reserved) => {
                        plan.claim(engine.next_job.fetch_add(1, Ordering::Relaxed))?;
                        state.compactions_running += 1;
                        Picked::Plan(plan, reserved)
                    }
                    Err(_) => Picked::Busy,
                },
                RangePick::Busy => Picked::Busy,
                RangePick::Nothing => Picked::Nothing,
            }
        };
        match picked {
            Picked::Nothing => return Ok(()),
            Picked::Busy => {
                engine.scheduler.ended.wait(seen, Some(engine.env.now() + 50_000_000));
            }
            Picked::Plan(plan, reserved) => {
                let result = job::run(engine, tree, &plan, reserved, options.cancel.as_ref(), true);
                engine.scheduler.ended.notify();
                match result {
                    // An input has to be made again first.
                    Err(error)
                        if error.kind() == ErrorKind::Cancelled && !is_unwanted(engine, tree, options) => {}
                    result => return result.and_then(|()| wait_until_settled(engine, tree)),
                }
            }
        }
    }
}

/// Whether a compaction by hand has been given up by somebody.
fn is_unwanted(engine: &Engine, tree: &Tree, options: &CompactRangeOptions) -> bool {
    let is_asked = options.cancel.as_ref().is_some_and(|cancel| cancel.load(Ordering::Relaxed));
    is_asked || tree.is_dropped() || engine.closing.load(Ordering::Acquire)
}

/// What a compaction by hand may do next.
enum Picked {
    Nothing,
    Busy,
    Plan(Box<Plan>, Option<Reserved>),
}

/// Waits until what is live of the tree now is durable.
fn wait_until_settled(engine: &Engine, tree: &Tree) -> Result<()> {
    if !engine.handoff.is_deferred(engine) {
        if engine.error.is_lasting() {
            engine.error.check()?;
        }
        engine.versions.settle(engine).inspect_err(|_| engine.handoff.wake.notify())?;
    }
    let Some(last) = engine.versions.last_unsettled(tree.id) else { return Ok(()) };
    loop {
        let seen = engine.scheduler.ended.epoch();
        if engine.versions.is_settled(tree.id, last) {
            return Ok(());
        }
        engine.check_open()?;
        engine.error.check()?;
        engine.scheduler.ended.wait(seen, Some(engine.env.now() + 50_000_000));
    }
}

/// The trees that hold writes which are neither in the log nor in settled tables.
pub(crate) fn unlogged(engine: &Engine) -> Vec<Arc<Tree>> {
    let has_some = |tree: &&Arc<Tree>| tree.has_unlogged(&tree.lock());
    engine.keyspaces.alive().trees.iter().filter(has_some).cloned().collect()
}

/// Flushes memtables that hold writes which are not in the log.
pub(crate) fn save_unlogged(engine: &Arc<Engine>) -> Result<()> {
    let trees = unlogged(engine);
    if trees.is_empty() { Ok(()) } else { flush(engine, &trees, &FlushOptions::default()) }
}

/// Flushes what bypassed the log, and lets no further write in: what was acknowledged before is durable then, or
/// in the log.
///
/// # Errors
/// Those of the flush. Writes have ended all the same.
pub(crate) fn end_writes(engine: &Arc<Engine>) -> Result<()> {
    // Beside writers, so that in the end they are kept for a little only.
    let saved = save_unlogged(engine);
    engine.commit.between_groups(engine, |_, last| {
        let saved = saved.and_then(|()| save_unlogged_as_leader(engine, last));
        engine.writes_ended.store(true, Ordering::Release);
        saved
    })
}

/// Flushes memtables that hold writes which are not in the log, until there are none. As the leader of the commit
/// queue.
fn save_unlogged_as_leader(engine: &Arc<Engine>, last_seqno: SeqNo) -> Result<()> {
    loop {
        let trees = unlogged(engine);
        if trees.is_empty() {
            return Ok(());
        }
        // A group that was logged before we led may have to be inserted yet; no other comes.
        seal_as_leader(engine, &trees, false, last_seqno);
        engine.schedule();
        trees.iter().try_for_each(|tree| wait_until_flushed(engine, tree))?;
        engine.env.sleep(100_000);
    }
}

/// Makes the whole log durable.
pub(crate) fn sync_log(engine: &Engine) -> Result<()> {
    engine.commit.between_groups(engine, |leader, _| leader.log.sync(engine))
}
