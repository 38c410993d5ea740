//! A snapshot of an open database: what was recorded, and where its parts stand.
//!
//! Nothing waits: each part is asked under its own lock, held over a few instructions, or under none. Of one moment
//! are only the numbers of one tree.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{
    Gauges, HandoffCounters, HandoffGauges, IoCounters, KeyspaceMetrics, LEVELS, LevelGauges,
    MetricsSnapshot, TreeGauges, TreeMetrics,
};
use crate::compaction::debt::pending_compaction_bytes;
use crate::engine::Engine;
use crate::tree::Tree;
use crate::version::Version;
use crate::write::stall::Admission;

/// The metrics of the database, with those of `trees`.
pub(crate) fn collect(engine: &Engine, trees: &[Arc<Tree>]) -> MetricsSnapshot {
    let now = engine.env.now();
    let mut snapshot = engine.metrics.snapshot();
    snapshot.counters.open_tables = engine.tables.len() as u64;
    if let Some(durability) = engine.handoff.durability() {
        snapshot.table_sync_ns.merge(&durability.file_sync_ns());
    }
    let first_of_keyspace = trees.iter().filter(|tree| tree.id.shard == 0);
    let keyspace =
        |tree: &Arc<Tree>| KeyspaceMetrics { name: tree.name.to_string(), stalls: tree.stall.report(now) };
    let trees: Vec<TreeMetrics> = trees.iter().map(|tree| tree_metrics(engine, tree)).collect();
    MetricsSnapshot {
        clock_ns: now,
        level_gauges: std::array::from_fn(|level| {
            trees.iter().fold(LevelGauges::default(), |sum, tree| sum.plus(&tree.levels[level]))
        }),
        gauges: gauges(engine, now),
        handoff_gauges: handoff_gauges(engine),
        handoff: handoff(engine),
        io: io(engine),
        keyspaces: first_of_keyspace.map(keyspace).collect(),
        trees,
        ..snapshot
    }
}

fn gauges(engine: &Engine, now: u64) -> Gauges {
    let pins = engine.pins.report(now);
    let (log_size_bytes, log_segments) = engine.log.size();
    let jobs = engine.scheduler.jobs();
    let clue_jobs = engine.handoff.retained.clue_jobs();
    Gauges {
        keyspaces: engine.keyspaces.alive_guard().spaces.len() as u64,
        visible_seqno: engine.commit.visible().load(Ordering::Acquire),
        background_error: u64::from(engine.error.check().is_err()),
        snapshots: engine.snapshots.summary().0 as u64,
        iterators: pins.iterators,
        oldest_iterator_ns: pins.oldest_ns,
        pinned_views: pins.views,
        pinned_tables: pins.tables,
        pinned_table_bytes: pins.table_bytes,
        pinned_memtables: pins.memtables,
        pinned_memtable_bytes: pins.memtable_bytes,
        memtable_bytes: engine.write_budget.bytes(),
        log_size_bytes,
        log_segments: log_segments as u64,
        block_cache_bytes: engine.blocks.usage(),
        block_cache_capacity_bytes: engine.blocks.capacity(),
        table_cache_bytes: engine.tables.usage(),
        obsolete_tables: engine.graveyard.len() as u64,
        running_flushes: jobs.flushes as u64,
        running_compactions: jobs.compactions as u64,
        workers: jobs.workers as u64,
        offered_compactions: jobs.offers as u64,
        void_clue_spans: engine.voids.get().map_or(0, |voids| voids.intervals().len() as u64),
        rollbacks_running: clue_jobs.rollbacks_running as u64,
        rollbacks_live: clue_jobs.rollbacks_live as u64,
        collections_running: clue_jobs.collections_running as u64,
        collections_live: clue_jobs.collections_live as u64,
    }
}

fn handoff_gauges(engine: &Engine) -> HandoffGauges {
    let limiter = engine.handoff.limiter.stats();
    let [flush, l0, deep, user] = limiter.in_flight_bytes;
    HandoffGauges {
        unsettled_installs: engine.versions.unsettled() as u64,
        undurable_tables: engine.handoff.undurable_tables() as u64,
        retained_bytes: engine.handoff.retained.bytes(),
        retained_bytes_peak: engine.handoff.retained.peak(),
        retained_memtable_bytes: engine.write_budget.retained(),
        window_bytes: limiter.window_bytes,
        in_flight_bytes_peak: limiter.in_flight_bytes_peak,
        in_flight_bytes_max: in_flight_bytes_max(engine),
        in_flight_flush_bytes: flush,
        in_flight_l0_bytes: l0,
        in_flight_deep_bytes: deep,
        in_flight_user_bytes: user,
    }
}

/// What the tables under way to the disk never pass: what the limiter may grant, and, since a flush never
/// waits there, the memtables that may be sealed or retained at one time (`write::budget`).
pub(crate) fn in_flight_bytes_max(engine: &Engine) -> u64 {
    let options = engine.options.load();
    let memtables = options.write_buffers_total();
    options.background_in_flight_bytes_max + memtables + memtables + memtables / 4
}

fn handoff(engine: &Engine) -> HandoffCounters {
    let limiter = engine.handoff.limiter.stats();
    let durable = engine.handoff.durability().map(|durability| durability.stats()).unwrap_or_default();
    HandoffCounters {
        sync_requests: durable.request_count,
        sync_requests_ended: durable.ended_count,
        sync_requests_failed: durable.failed_count,
        table_syncs: durable.file_sync_count,
        directory_syncs: durable.dir_sync_count,
        granted: limiter.granted_count.iter().sum(),
        waited: limiter.waited_count.iter().sum(),
        turns_of_lower_priority: limiter.turn_count,
        flushes_over_window: limiter.flush_over_window_count,
        waits_for_rate_cap: limiter.capped_count,
        window_increases: limiter.increase_count,
        window_at_ceiling: limiter.at_ceiling_count,
        window_unused: limiter.idle_count,
        window_held: limiter.held_count,
        window_decreases: limiter.decrease_count,
        window_at_floor: limiter.at_floor_count,
        latencies_before_last_cut: limiter.old_news_count,
    }
}

fn io(engine: &Engine) -> IoCounters {
    let io = engine.io.stats();
    IoCounters {
        operations: io.submitted_count,
        operations_ended: io.completed_count,
        operations_failed: io.failed_count,
        short_transfers: io.short_count,
        retries: io.retried_count,
        helped: io.helped_count,
        cached_reads: io.cached_reads_count,
    }
}

fn tree_metrics(engine: &Engine, tree: &Tree) -> TreeMetrics {
    let unsettled_installs = engine.versions.unsettled_of(tree.id) as u64;
    let running_compactions = tree.lock().compactions_running as u64;
    let view = tree.view();
    let memtables = || std::iter::once(&view.active).chain(&view.sealed);
    let clues = memtables().map(|buffer| buffer.table.clues());
    let (clues_memtable, clue_bytes) = clues.fold((0, 0), |(n, b), clues| (n + clues.0, b + clues.1));
    let version = &view.version;
    let clues_of = |level: &Arc<crate::version::Level>| level.clues().0;
    let write_state = match tree.stall.admission() {
        Admission::Open => 0,
        Admission::Delayed(..) => 1,
        Admission::Stopped(_) => 2,
    };
    let gauges = TreeGauges {
        active_memtable_bytes: view.active.table.bytes_used() as u64,
        sealed_memtables: view.sealed.len() as u64,
        sealed_memtable_bytes: view.sealed.iter().map(|buffer| buffer.table.bytes_used() as u64).sum(),
        memtable_entries: memtables().map(|buffer| buffer.table.entries() as u64).sum(),
        table_bytes: version.levels().iter().map(|level| level.bytes()).sum(),
        table_entries: version.all_tables().map(|(_, table)| table.meta().entries).sum(),
        pending_compaction_bytes: pending_compaction_bytes(version, &tree.options.load().strategy),
        running_compactions,
        unsettled_installs,
        l0_depth: version.l0_depth() as u64,
        write_state,
        pressure_permille: (tree.pressure() * 1000.0) as u64,
        clues_memtable,
        clues_level0: clues_of(version.level(0)),
        clues_deeper: version.levels()[1..].iter().map(clues_of).sum(),
        clue_bytes: clue_bytes + version.clues().1,
        redirected_table_bytes: version.redirected_bytes(),
    };
    let levels = std::array::from_fn(|level| level_gauges(version, level));
    TreeMetrics { keyspace: tree.name.to_string(), shard: tree.id.shard, gauges, levels }
}

fn level_gauges(version: &Version, level: usize) -> LevelGauges {
    let tables = version.table_count(level) as u64;
    LevelGauges {
        tables,
        bytes: version.level_bytes(level),
        runs: if level == 0 { tables } else { tables.min(1) },
    }
}

const _: () = assert!(LEVELS == crate::version::LEVELS);
