//! Flush and compaction by hand, and what closing saves.

use std::sync::Arc;

use crate::callback::Watch;
use crate::compaction::job;
use crate::compaction::picker::{self, RangePick};
use crate::engine::Engine;
use crate::keyspace;
use crate::options::{CompactRangeOptions, FlushOptions};
use crate::tree::Tree;
use crate::types::SeqNo;
use crate::version::set::FlushGroup;
use crate::{ErrorKind, Result};
use std::sync::atomic::Ordering;

/// Seals the active memtables of `trees`, all at one moment, and, where the options say so, waits until
/// all sealed ones are durable in tables. A tree that is dropped meanwhile has nothing left to wait for.
pub(crate) fn flush(engine: &Arc<Engine>, trees: &[Arc<Tree>], options: &FlushOptions) -> Result<()> {
    let _inside = engine.enter()?;
    if !options.allow_stall {
        trees.iter().try_for_each(|tree| wait_for_room(engine, tree))?;
    }
    seal(engine, trees, options.atomic);
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

/// Waits until no memtable of the tree is sealed and nothing of it waits to be settled.
pub(crate) fn wait_until_flushed(engine: &Engine, tree: &Tree) -> Result<()> {
    loop {
        let seen = engine.scheduler.ended.epoch();
        engine.check_open()?;
        engine.error.check()?;
        let pending = {
            let state = tree.lock();
            state.flushing || !tree.view().sealed.is_empty()
        };
        if !pending && !engine.versions.has_unsettled_of(tree.id) {
            return Ok(());
        }
        if !pending && !engine.scheduler.is_syncing() {
            // What no worker is about to settle.
            engine.versions.settle(engine)?;
            if !engine.versions.has_unsettled_of(tree.id) {
                return Ok(());
            }
        }
        engine.scheduler.ended.wait(seen, Some(engine.env.now() + 50_000_000));
    }
}

fn seal(engine: &Engine, trees: &[Arc<Tree>], atomic: bool) {
    engine.commit.between_groups(engine, |_, last_seqno| seal_as_leader(trees, atomic, last_seqno));
}

/// Seals the active memtables of `trees` that hold anything. As the leader of the commit queue.
pub(crate) fn seal_as_leader(trees: &[Arc<Tree>], atomic: bool, last_seqno: SeqNo) {
    // Looked at once: a group that was logged before may still be inserting.
    let filled: Vec<&Arc<Tree>> = trees.iter().filter(|tree| !tree.view().active.table.is_empty()).collect();
    // Dropping goes between groups, too: none of them leaves before all have joined.
    let group = atomic.then(|| FlushGroup::new(filled.len()));
    for tree in filled {
        let mut state = tree.lock();
        if let Some(group) = &group {
            let _ = tree.view().active.together.set(group.clone());
        }
        tree.switch(&mut state, last_seqno);
        tree.refresh_stall(state);
    }
}

/// Compacts `from..to` level by level into the last one.
pub(crate) fn compact_range(
    engine: &Arc<Engine>,
    tree: &Arc<Tree>,
    options: &CompactRangeOptions,
    from: Option<&[u8]>,
    to: Option<&[u8]>,
) -> Result<()> {
    let _inside = engine.enter()?;
    flush(engine, std::slice::from_ref(tree), &FlushOptions::default())?;
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
            if let RangePick::Plan(plan) = &picked {
                plan.claim(engine.next_job.fetch_add(1, Ordering::Relaxed))?;
                state.compactions_running += 1;
            }
            picked
        };
        match picked {
            RangePick::Nothing => return Ok(()),
            RangePick::Busy => {
                engine.scheduler.ended.wait(seen, Some(engine.env.now() + 50_000_000));
            }
            RangePick::Plan(plan) => {
                let result = job::run(engine, tree, &plan, options.cancel.as_ref());
                engine.scheduler.ended.notify();
                return result;
            }
        }
    }
}

/// The trees that hold writes which are neither in the log nor in settled tables.
pub(crate) fn unlogged(engine: &Engine) -> Vec<Arc<Tree>> {
    let has_some = |tree: &&Arc<Tree>| tree.has_unlogged(&tree.lock());
    engine.keyspaces.alive().iter().filter(has_some).cloned().collect()
}

/// Flushes memtables that hold writes which are not in the log.
pub(crate) fn save_unlogged(engine: &Arc<Engine>) -> Result<()> {
    let trees = unlogged(engine);
    if trees.is_empty() { Ok(()) } else { flush(engine, &trees, &FlushOptions::default()) }
}

/// Makes the whole log durable.
pub(crate) fn sync_log(engine: &Engine) -> Result<()> {
    engine.commit.between_groups(engine, |leader, _| leader.log.sync(engine))
}
