//! Flush and compaction by hand, and what closing saves.

use std::sync::Arc;

use crate::compaction::picker::{self, RangePick};
use crate::compaction::job;
use std::sync::atomic::Ordering;
use crate::engine::Engine;
use crate::options::CompactRangeOptions;
use crate::Result;

/// Seals the active memtable and waits until all sealed ones are durable in tables.
pub(crate) fn flush(engine: &Arc<Engine>) -> Result<()> {
    let _inside = engine.enter()?;
    seal(engine);
    engine.schedule();
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
        if !pending {
            engine.versions.settle(engine)?;
            continue;
        }
        engine.scheduler.ended.wait(seen, Some(engine.env.now() + 50_000_000));
    }
}

fn seal(engine: &Engine) {
    engine.commit.between_groups(engine, |_, last_seqno| {
        let mut state = engine.tree.lock();
        if !engine.tree.view().active.table.is_empty() {
            engine.tree.switch(&mut state, last_seqno);
            engine.tree.refresh_stall(engine, state);
        }
    });
}

/// Compacts `from..to` level by level into the last one.
pub(crate) fn compact_range(
    engine: &Arc<Engine>,
    options: &CompactRangeOptions,
    from: Option<&[u8]>,
    to: Option<&[u8]>,
) -> Result<()> {
    let _inside = engine.enter()?;
    flush(engine)?;
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
                &engine.strategy,
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

/// What a close makes durable: the log, and memtables with writes that are not in it.
pub(crate) fn save_before_close(engine: &Arc<Engine>) -> Result<()> {
    let view = engine.tree.view();
    if view.active.has_unlogged() || view.sealed.iter().any(|buffer| buffer.has_unlogged()) {
        flush(engine)?;
    }
    engine.commit.between_groups(engine, |leader, _| leader.log.sync(engine))
}
