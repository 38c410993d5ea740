//! The options of an open database, and how they change while it is open.
//!
//! ```text
//! set ─ check all ─ workers (may fail) ─ OPTIONS file (may fail) ─ publish ─ caches, log, doors, wake
//! ```
//! Readers take the [`InForce`] options as a whole, so no two of them ever come from different
//! changes. The two that every commit group asks for are copied into atomics beside them.
//!
//! Invariants:
//! - All that can fail comes before the new options are published; nothing of a refused change stays.
//! - Options that are not *live* never change: whoever copied one at open may keep the copy.
//! - Where a *live* one is copied (caches, log, workers, doors), `spread` brings the copy up to date.
//!   Upheld by `every_live_option_takes_effect`, which fails for one it has no case for.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};
use dialsm_io::Env;

use super::{Options, file, find, report};
use crate::Result;
use crate::background::Scheduler;
use crate::compaction::strategy::Strategy;
use crate::engine::Engine;
use crate::gate::Gate;

/// Options with what is derived from them.
pub(crate) struct InForce {
    pub(crate) options: Arc<Options>,
    /// The compaction strategy that they describe.
    pub(crate) strategy: Strategy,
}

impl InForce {
    fn new(options: Options) -> InForce {
        InForce { strategy: strategy_of(&options), options: Arc::new(options) }
    }
}

impl Deref for InForce {
    type Target = Options;
    #[inline]
    fn deref(&self) -> &Options {
        &self.options
    }
}

/// The options of an open database.
pub(crate) struct LiveOptions {
    current: ArcSwap<InForce>,
    write_buffer_bytes: AtomicU64,
    max_write_group_bytes: AtomicU64,
    /// Held by whoever changes them: file calls are made meanwhile.
    changing: Gate,
}

impl LiveOptions {
    pub(crate) fn new(env: &dyn Env, options: Options) -> LiveOptions {
        LiveOptions {
            write_buffer_bytes: AtomicU64::new(options.write_buffer_bytes),
            max_write_group_bytes: AtomicU64::new(options.max_write_group_bytes),
            current: ArcSwap::from_pointee(InForce::new(options)),
            changing: Gate::new(env),
        }
    }

    /// The options in force, for a short look: not to be kept over a wait.
    #[inline]
    pub(crate) fn load(&self) -> Guard<Arc<InForce>> {
        self.current.load()
    }

    /// The options in force, to keep.
    pub(crate) fn now(&self) -> Arc<Options> {
        self.current.load().options.clone()
    }

    /// As in [`Options`]; asked for once a commit group.
    #[inline]
    pub(crate) fn write_buffer_bytes(&self) -> u64 {
        self.write_buffer_bytes.load(Ordering::Relaxed)
    }

    /// As in [`Options`]; asked for once a commit group.
    #[inline]
    pub(crate) fn max_write_group_bytes(&self) -> u64 {
        self.max_write_group_bytes.load(Ordering::Relaxed)
    }

    fn publish(&self, options: Options) {
        self.write_buffer_bytes.store(options.write_buffer_bytes, Ordering::Relaxed);
        self.max_write_group_bytes.store(options.max_write_group_bytes, Ordering::Relaxed);
        self.current.store(Arc::new(InForce::new(options)));
    }
}

/// The compaction strategy that the options describe.
fn strategy_of(options: &Options) -> Strategy {
    Strategy {
        l0_files: options.level0_compaction_trigger,
        level_bytes_base: options.level_base_bytes,
        level_ratio: options.level_multiplier as u64,
        table_bytes: options.table_bytes,
        compaction_bytes_max: 25 * options.table_bytes,
        ..Strategy::leveled()
    }
}

/// See [`crate::Db::set_options`].
pub(crate) fn set(engine: &Arc<Engine>, changes: &[(&str, &str)]) -> Result<()> {
    let _inside = engine.enter()?;
    let _only_one = engine.options.changing.enter();
    let before = engine.options.now();
    let changed = apply(&before, changes)?;
    if changes.is_empty() {
        return Ok(());
    }
    let resized = Scheduler::resize(engine, changed.background_jobs_max);
    if let Err(error) = resized.and_then(|()| file::replace(engine, &changed)) {
        // Fewer workers than there were before can only be too many to start again.
        let _ = Scheduler::resize(engine, before.background_jobs_max);
        return Err(error);
    }
    engine.options.publish(changed);
    spread(engine);
    Ok(())
}

/// `options` with all of `changes`, or every reason why not.
fn apply(options: &Options, changes: &[(&str, &str)]) -> Result<Options> {
    let mut changed = options.clone();
    let mut problems = Vec::new();
    for (index, (name, value)) in changes.iter().enumerate() {
        let reason = match find(name) {
            Err(reason) => Err(reason),
            Ok(row) if !row.info.live => Err("it can't be changed while the database is open".into()),
            Ok(_) if changes[..index].iter().any(|(other, _)| other == name) => Err("named twice".into()),
            Ok(row) => (row.set)(&mut changed, value.trim()),
        };
        if let Err(reason) = reason {
            problems.push(format!("option {name:?}: {reason}"));
        }
    }
    changed.check_together(&mut problems);
    report(problems)?;
    Ok(changed)
}

/// Brings up to date what keeps a copy of an option, and has everybody look anew.
fn spread(engine: &Engine) {
    let options = engine.options.now();
    engine.blocks.set_capacity(options.block_cache_bytes);
    engine.tables.set_bounds(options.open_tables_max, options.table_cache_bytes);
    engine.log.set_bounds(options.log_segment_bytes, options.log_total_bytes_max, options.log_recycle_max);
    // As if the running flush had just begun, until it says how far it is.
    engine.tree.ration(engine, 0.0);
    engine.tree.refresh_stall(engine, engine.tree.lock());
    // A stopped writer waits for a notice, and a change that opens nothing must be seen as well.
    engine.tree.stall.wake_all();
    engine.schedule();
    engine.scheduler.ended.notify();
}

#[cfg(test)]
mod tests;
