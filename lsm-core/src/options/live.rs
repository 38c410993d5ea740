//! The options of an open database, and how they change while it is open.
//!
//! ```text
//! set ─ check all ─ workers (may fail) ─ OPTIONS file (may fail) ─ publish ─ caches, log, doors, wake
//! ```
//! The database has its [`Options`], each keyspace its [`KeyspaceOptions`], each tree its share of those; those of the default
//! keyspace stand in both. Readers take either as a whole, so no two of them ever come from different
//! changes. What every commit group asks for is copied into atomics beside them.
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

use super::{KeyspaceOptions, OptionScope, Options, file, find, report};
use crate::Result;
use crate::background::Scheduler;
use crate::compaction::strategy::Strategy;
use crate::engine::Engine;
use crate::gate::Gate;
use crate::space::Space;

/// Options of a keyspace with what is derived from them.
pub(crate) struct InForce {
    options: Arc<KeyspaceOptions>,
    /// The compaction strategy that they describe.
    pub(crate) strategy: Strategy,
}

impl InForce {
    fn new(options: KeyspaceOptions) -> InForce {
        InForce { strategy: strategy_of(&options), options: Arc::new(options) }
    }
}

impl Deref for InForce {
    type Target = KeyspaceOptions;
    #[inline]
    fn deref(&self) -> &KeyspaceOptions {
        &self.options
    }
}

/// The options of a keyspace of an open database; and, in each of its trees, the tree's share.
pub(crate) struct LiveKeyspaceOptions {
    current: ArcSwap<InForce>,
    write_buffer_bytes: AtomicU64,
}

impl LiveKeyspaceOptions {
    pub(crate) fn new(options: KeyspaceOptions) -> LiveKeyspaceOptions {
        LiveKeyspaceOptions {
            write_buffer_bytes: AtomicU64::new(options.write_buffer_bytes),
            current: ArcSwap::from_pointee(InForce::new(options)),
        }
    }

    /// The options in force, for a short look: not to be kept over a wait.
    #[inline]
    pub(crate) fn load(&self) -> Guard<Arc<InForce>> {
        self.current.load()
    }

    /// The options in force, to keep.
    pub(crate) fn now(&self) -> Arc<KeyspaceOptions> {
        self.current.load().options.clone()
    }

    /// As in [`Options`]; asked for once a commit group.
    #[inline]
    pub(crate) fn write_buffer_bytes(&self) -> u64 {
        self.write_buffer_bytes.load(Ordering::Relaxed)
    }

    fn publish(&self, options: KeyspaceOptions) {
        self.write_buffer_bytes.store(options.write_buffer_bytes, Ordering::Relaxed);
        self.current.store(Arc::new(InForce::new(options)));
    }
}

/// The options of an open database.
pub(crate) struct LiveOptions {
    current: ArcSwap<Options>,
    max_write_group_bytes: AtomicU64,
    /// Held by whoever changes them: file calls are made meanwhile.
    changing: Gate,
}

impl LiveOptions {
    pub(crate) fn new(env: &dyn Env, options: Options) -> LiveOptions {
        LiveOptions {
            max_write_group_bytes: AtomicU64::new(options.max_write_group_bytes),
            current: ArcSwap::from_pointee(options),
            changing: Gate::new(env),
        }
    }

    /// The options in force, for a short look: not to be kept over a wait.
    #[inline]
    pub(crate) fn load(&self) -> Guard<Arc<Options>> {
        self.current.load()
    }

    /// The options in force, to keep.
    pub(crate) fn now(&self) -> Arc<Options> {
        self.current.load_full()
    }

    /// As in [`Options`]; asked for once a commit group.
    #[inline]
    pub(crate) fn max_write_group_bytes(&self) -> u64 {
        self.max_write_group_bytes.load(Ordering::Relaxed)
    }

    fn publish(&self, options: Options) {
        self.max_write_group_bytes.store(options.max_write_group_bytes, Ordering::Relaxed);
        self.current.store(Arc::new(options));
    }
}

/// The compaction strategy that the options describe.
fn strategy_of(options: &KeyspaceOptions) -> Strategy {
    Strategy {
        l0_files: options.level0_compaction_trigger,
        level_bytes_base: options.level_base_bytes,
        level_ratio: options.level_multiplier as u64,
        table_bytes: options.table_bytes,
        compaction_bytes_max: 25 * options.table_bytes,
        ..Strategy::leveled()
    }
}

/// All options of an open database, as the OPTIONS file says them.
pub(crate) struct All {
    pub(crate) options: Arc<Options>,
    /// Of the other keyspaces than the default one, by age.
    pub(crate) keyspaces: Vec<(Arc<str>, Arc<KeyspaceOptions>)>,
}

/// What is in force now.
pub(crate) fn all(engine: &Engine) -> All {
    of_spaces(engine, &engine.keyspaces.alive().spaces)
}

/// What is in force in `spaces`, and in the database.
pub(crate) fn of_spaces(engine: &Engine, spaces: &[Arc<Space>]) -> All {
    let others = spaces.iter().filter(|space| space.id != 0);
    let keyspaces = others.map(|space| (space.name.clone(), space.options.now())).collect();
    All { options: engine.options.now(), keyspaces }
}

/// Has the OPTIONS file say which keyspaces there are now. They are there or gone whatever becomes of
/// it: what it lacks, the next change and the next opening bring.
pub(crate) fn note_keyspaces(engine: &Engine) {
    let _only_one = engine.options.changing.enter();
    let _ = file::replace(engine, &all(engine));
}

/// See [`crate::Db::set_options`].
pub(crate) fn set(engine: &Arc<Engine>, changes: &[(&str, &str)]) -> Result<()> {
    let _inside = engine.enter()?;
    set_default(engine, changes, None)
}

/// See [`crate::Db::set_options_in`].
pub(crate) fn set_in(engine: &Arc<Engine>, space: &Arc<Space>, changes: &[(&str, &str)]) -> Result<()> {
    let _inside = engine.enter()?;
    if space.id == 0 {
        engine.check_keyspace(space)?;
        return set_default(engine, changes, Some(OptionScope::Keyspace));
    }
    let _only_one = engine.options.changing.enter();
    // Now that nobody else can write the file: a drop, and a creation under the same name, that come
    // after this look write it after us.
    engine.check_keyspace(space)?;
    let before = space.options.now().in_database();
    let changed = apply(&before, changes, Some(OptionScope::Keyspace))?.keyspace();
    if changes.is_empty() {
        return Ok(());
    }
    let mut all = all(engine);
    for (name, options) in &mut all.keyspaces {
        if *name == space.name {
            *options = Arc::new(changed.clone());
        }
    }
    file::replace(engine, &all)?;
    publish_in(space, &changed);
    spread_in(space);
    engine.schedule();
    engine.scheduler.ended.notify();
    Ok(())
}

/// Changes options of the database and of its default keyspace.
fn set_default(engine: &Arc<Engine>, changes: &[(&str, &str)], scope: Option<OptionScope>) -> Result<()> {
    let _only_one = engine.options.changing.enter();
    let before = engine.options.now();
    let changed = apply(&before, changes, scope)?;
    if changes.is_empty() {
        return Ok(());
    }
    let resized = Scheduler::resize(engine, changed.background_jobs_max);
    let written = resized
        .and_then(|()| file::replace(engine, &All { options: Arc::new(changed.clone()), ..all(engine) }));
    if let Err(error) = written {
        // Fewer workers than there were before can only be too many to start again.
        let _ = Scheduler::resize(engine, before.background_jobs_max);
        return Err(error);
    }
    publish_in(&engine.space, &changed.keyspace());
    engine.options.publish(changed);
    spread(engine);
    Ok(())
}

/// `options` with all of `changes`, or every reason why not; of `scope` alone, if there is one.
fn apply(options: &Options, changes: &[(&str, &str)], scope: Option<OptionScope>) -> Result<Options> {
    let mut changed = options.clone();
    let mut problems = Vec::new();
    for (index, (name, value)) in changes.iter().enumerate() {
        let reason = match find(name) {
            Err(reason) => Err(reason),
            Ok(row) if !row.info.live => Err("it can't be changed while the database is open".into()),
            Ok(row) if scope.is_some_and(|scope| scope != row.info.scope) => {
                Err("it is one of the database, not of a keyspace".into())
            }
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
    engine.write_budget.set_limit(options.write_buffers_total());
    let rate = options.background_bytes_per_second;
    // Zero is no cap at all, so this can't be refused.
    let _ = engine.handoff.limiter.set_user_rate((rate > 0).then_some(rate));
    spread_in(&engine.space);
    engine.wake_writers();
    engine.schedule();
    engine.scheduler.ended.notify();
}

/// Puts options in force in a keyspace, and each tree's share of them in the tree.
fn publish_in(space: &Space, options: &KeyspaceOptions) {
    for tree in &space.trees {
        tree.options.publish(options.share(tree.id.shard, tree.shards));
    }
    space.options.publish(options.clone());
}

/// As [`spread`], for a keyspace.
fn spread_in(space: &Space) {
    for tree in &space.trees {
        // As if the running flush had just begun, until it says how far it is.
        tree.ration(0.0);
        tree.refresh_stall(tree.lock());
        // A stopped writer waits for a notice, and a change that opens nothing must be seen as well.
        tree.stall.wake_all();
    }
}

#[cfg(test)]
mod tests;
