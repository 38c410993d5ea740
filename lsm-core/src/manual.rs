//! Flush and compaction by hand, and what closing saves.

use std::sync::Arc;

use crate::Result;
use crate::compaction::job;
use crate::compaction::picker::{self, RangePick};
use crate::engine::Engine;
use crate::options::{CompactRangeOptions, FlushOptions};
use crate::types::SeqNo;
use std::sync::atomic::Ordering;

/// Seals the active memtable and, where the options say so, waits until all sealed ones are durable
/// in tables.
pub(crate) fn flush(engine: &Arc<Engine>, options: &FlushOptions) -> Result<()> {
    let _inside = engine.enter()?;
    if !options.allow_stall {
        wait_for_room(engine)?;
    }
    seal(engine);
    engine.schedule();
    if options.wait { wait_until_flushed(engine) } else { Ok(()) }
}

/// Waits until a memtable may be sealed without one that is full having to wait for it.
fn wait_for_room(engine: &Engine) -> Result<()> {
    loop {
        let seen = engine.scheduler.ended.epoch();
        engine.check_open()?;
        engine.error.check()?;
        if engine.tree.view().sealed.len() + 1 < engine.options.load().write_buffers_max {
            return Ok(());
        }
        engine.schedule();
        engine.scheduler.ended.wait(seen, Some(engine.env.now() + 50_000_000));
    }
}

/// Waits until no memtable is sealed and nothing waits to be settled.
pub(crate) fn wait_until_flushed(engine: &Engine) -> Result<()> {
    loop {
        let seen = engine.scheduler.ended.epoch();
        engine.check_open()?;
        engine.error.check()?;
        let pending = {
            let state = engine.tree.lock();
            state.flushing || !engine.tree.view().sealed.is_empty()
        };
        if !pending && !engine.versions.has_unsettled() {
            return Ok(());
        }
        if !pending && !engine.scheduler.is_syncing() {
            // What no worker is about to settle.
            engine.versions.settle(engine)?;
            if !engine.versions.has_unsettled() {
                return Ok(());
            }
        }
        engine.scheduler.ended.wait(seen, Some(engine.env.now() + 50_000_000));
    }
}

fn seal(engine: &Engine) {
    engine.commit.between_groups(engine, |_, last_seqno| seal_as_leader(engine, last_seqno));
}

/// Seals the active memtable unless it is empty. As the leader of the commit queue.
pub(crate) fn seal_as_leader(engine: &Engine, last_seqno: SeqNo) {
    let mut state = engine.tree.lock();
    if !engine.tree.view().active.table.is_empty() {
        engine.tree.switch(&mut state, last_seqno);
        engine.tree.refresh_stall(engine, state);
    }
}

/// Compacts `from..to` level by level into the last one.
pub(crate) fn compact_range(
    engine: &Arc<Engine>,
    options: &CompactRangeOptions,
    from: Option<&[u8]>,
    to: Option<&[u8]>,
) -> Result<()> {
    let _inside = engine.enter()?;
    flush(engine, &FlushOptions::default())?;
    engine.scheduler.pause_compactions();
    let result = compact_levels(engine, options, from, to);
    engine.scheduler.resume();
    result
}

fn compact_levels(
    engine: &Arc<Engine>,
    options: &CompactRangeOptions,
    from: Option<&[u8]>,
    to: Option<&[u8]>,
) -> Result<()> {
    let tree = &engine.tree;
    loop {
        let seen = engine.scheduler.ended.epoch();
        engine.check_open()?;
        engine.error.check()?;
        let picked = {
            let mut state = tree.lock();
            let picked = picker::pick_range(
                &tree.view().version,
                &engine.options.load().strategy,
                from,
                to,
                options.target_level.map(usize::from),
                options.rewrite_bottom,
            );
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

/// Flushes memtables that hold writes which are not in the log.
pub(crate) fn save_unlogged(engine: &Arc<Engine>) -> Result<()> {
    let view = engine.tree.view();
    if view.active.has_unlogged() || view.sealed.iter().any(|buffer| buffer.has_unlogged()) {
        flush(engine, &FlushOptions::default())?;
    }
    Ok(())
}

/// Makes the whole log durable.
pub(crate) fn sync_log(engine: &Engine) -> Result<()> {
    engine.commit.between_groups(engine, |leader, _| leader.log.sync(engine))
}
