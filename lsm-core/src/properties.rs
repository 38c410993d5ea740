//! What a database says about itself: single properties by name, and all of it as text or JSON.
//!
//! A property is asked of some trees: of one keyspace, or of all, whose numbers are then added up (the
//! floor is the least of them). What belongs to the database is the same for whoever is asked.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::compaction::debt::pending_compaction_bytes;
use crate::engine::Engine;
use crate::metrics::{self, LevelGauges, MetricsSnapshot, StallCause};
use crate::pins::PinReport;
use crate::tree::{Tree, TreeView};
use crate::version::LEVELS;
use crate::write::stall::{Admission, StallReport, StallTimes};

/// The properties that [`get`] knows.
pub(crate) const NAMES: &[&str] = &[
    "dialsm.stats",
    "dialsm.stats-json",
    "dialsm.stats-prometheus",
    "dialsm.options",
    "dialsm.num-immutable-memtables",
    "dialsm.active-memtable-bytes",
    "dialsm.num-entries-active-memtable",
    "dialsm.num-files-at-level<N>",
    "dialsm.bytes-at-level<N>",
    "dialsm.live-table-bytes",
    "dialsm.estimate-num-keys",
    "dialsm.pending-compaction-bytes",
    "dialsm.running-flushes",
    "dialsm.running-compactions",
    "dialsm.is-write-stopped",
    "dialsm.is-write-delayed",
    "dialsm.num-snapshots",
    "dialsm.oldest-snapshot",
    "dialsm.iterators",
    "dialsm.oldest-iterator-ms",
    "dialsm.pinned-views",
    "dialsm.pinned-tables",
    "dialsm.pinned-bytes",
    "dialsm.pinned-memtables",
    "dialsm.pinned-memtable-bytes",
    "dialsm.log-bytes",
    "dialsm.log-segments",
    "dialsm.block-cache-usage",
    "dialsm.table-cache-usage",
    "dialsm.background-error",
    "dialsm.durable-floor",
    "dialsm.obsolete-tables",
    "dialsm.num-keyspaces",
    "dialsm.all-memtables-bytes",
    "dialsm.unsettled-installs",
    "dialsm.undurable-tables",
    "dialsm.retained-bytes",
    "dialsm.retained-bytes-peak",
    "dialsm.retained-memtable-bytes",
    "dialsm.in-flight-bytes",
    "dialsm.in-flight-bytes-peak",
    "dialsm.in-flight-bytes-max",
    "dialsm.limiter-window-bytes",
    "dialsm.handoff",
    "dialsm.asynchronous-io",
    "dialsm.clues",
    "dialsm.rollbacks-under-way",
    "dialsm.collections-under-way",
    "dialsm.events-dropped",
    "dialsm.listener-panics",
    "dialsm.info-log-failures",
];

/// The trees that are asked, with the views they have now.
struct Asked<'a> {
    trees: &'a [Arc<Tree>],
    views: Vec<Arc<TreeView>>,
}

impl Asked<'_> {
    fn of(trees: &[Arc<Tree>]) -> Asked<'_> {
        Asked { trees, views: trees.iter().map(|tree| tree.view()).collect() }
    }

    fn sum(&self, of: impl Fn(&TreeView) -> u64) -> u64 {
        self.views.iter().map(|view| of(view)).sum()
    }

    fn tables(&self, level: usize) -> u64 {
        self.sum(|view| view.version.table_count(level) as u64)
    }

    fn bytes(&self, level: usize) -> u64 {
        self.sum(|view| view.version.level_bytes(level))
    }

    fn pending_bytes(&self) -> u64 {
        let pairs = self.trees.iter().zip(&self.views);
        pairs.map(|(tree, view)| pending_compaction_bytes(&view.version, &tree.options.load().strategy)).sum()
    }

    fn any_door(&self, is: impl Fn(Admission) -> bool) -> u64 {
        u64::from(self.trees.iter().any(|tree| is(tree.stall.admission())))
    }

    /// Entries less twice the tombstones, as RocksDB estimates it.
    fn estimate_keys(&self) -> u64 {
        self.sum(|view| {
            let (mut entries, mut deletes) = (0, 0);
            for buffer in std::iter::once(&view.active).chain(&view.sealed) {
                entries += buffer.table.entries() as u64;
                deletes += buffer.table.deletes() as u64;
            }
            for (_, table) in view.version.all_tables() {
                entries += table.meta().entries;
                deletes += table.meta().deletes;
            }
            entries.saturating_sub(2 * deletes)
        })
    }
}

/// A property of `trees`, or of the database.
pub(crate) fn get(engine: &Arc<Engine>, trees: &[Arc<Tree>], name: &str) -> Option<String> {
    let asked = Asked::of(trees);
    if let Some(level) = name.strip_prefix("dialsm.num-files-at-level") {
        let level: usize = level.parse().ok().filter(|level| *level < LEVELS)?;
        return Some(asked.tables(level).to_string());
    }
    if let Some(level) = name.strip_prefix("dialsm.bytes-at-level") {
        let level: usize = level.parse().ok().filter(|level| *level < LEVELS)?;
        return Some(asked.bytes(level).to_string());
    }
    let value: u64 = match name {
        "dialsm.stats" => return Some(metrics::collect(engine, trees).to_text()),
        "dialsm.stats-prometheus" => return Some(metrics::collect(engine, trees).to_prometheus()),
        "dialsm.stats-json" => return Some(stats_json(engine, trees)),
        "dialsm.options" => {
            return Some(match trees {
                [tree, ..]
                    if tree.id.keyspace != 0 && trees.iter().all(|t| t.id.keyspace == tree.id.keyspace) =>
                {
                    let space = engine.keyspaces.alive().by_id(tree.id.keyspace).cloned();
                    space.map_or_else(String::new, |space| space.options.load().to_text())
                }
                _ => engine.options.load().to_text(),
            });
        }
        "dialsm.background-error" => {
            return Some(engine.error.check().err().map_or_else(String::new, |error| error.to_string()));
        }
        "dialsm.handoff" => return Some(handoff_text(engine)),
        "dialsm.asynchronous-io" => return Some(engine.io.report()),
        "dialsm.num-immutable-memtables" => asked.sum(|view| view.sealed.len() as u64),
        "dialsm.active-memtable-bytes" => asked.sum(|view| view.active.table.bytes_used() as u64),
        "dialsm.num-entries-active-memtable" => asked.sum(|view| view.active.table.entries() as u64),
        "dialsm.live-table-bytes" => (0..LEVELS).map(|level| asked.bytes(level)).sum(),
        "dialsm.estimate-num-keys" => asked.estimate_keys(),
        "dialsm.pending-compaction-bytes" => asked.pending_bytes(),
        "dialsm.running-flushes" => engine.scheduler.jobs().flushes as u64,
        "dialsm.running-compactions" => trees.iter().map(|tree| tree.lock().compactions_running as u64).sum(),
        "dialsm.is-write-stopped" => {
            asked.any_door(|door| matches!(door, Admission::Stopped(_)))
                | u64::from(engine.write_budget.is_full())
        }
        "dialsm.is-write-delayed" => asked.any_door(|door| matches!(door, Admission::Delayed(..))),
        "dialsm.durable-floor" => {
            trees.iter().map(|tree| tree.lock().durable_floor).min().unwrap_or_default()
        }
        _ => return of_database(engine, name).map(|value| value.to_string()),
    };
    Some(value.to_string())
}

/// What no keyspace has for itself.
fn of_database(engine: &Engine, name: &str) -> Option<u64> {
    Some(match name {
        "dialsm.num-snapshots" => engine.snapshots.summary().0 as u64,
        "dialsm.oldest-snapshot" => engine.snapshots.summary().1.unwrap_or(0),
        "dialsm.clues" => engine.clues().0,
        "dialsm.rollbacks-under-way" => {
            let jobs = engine.handoff.retained.clue_jobs();
            (jobs.rollbacks_running + jobs.rollbacks_live) as u64
        }
        "dialsm.collections-under-way" => {
            let jobs = engine.handoff.retained.clue_jobs();
            (jobs.collections_running + jobs.collections_live) as u64
        }
        "dialsm.events-dropped" => engine.events.dropped(),
        "dialsm.listener-panics" => engine.events.listener_panics.load(Ordering::Relaxed),
        "dialsm.info-log-failures" => engine.events.log_failures.load(Ordering::Relaxed),
        "dialsm.iterators" => pins(engine).iterators,
        "dialsm.oldest-iterator-ms" => pins(engine).oldest_ns / 1_000_000,
        "dialsm.pinned-views" => pins(engine).views,
        "dialsm.pinned-tables" => pins(engine).tables,
        "dialsm.pinned-bytes" => pins(engine).table_bytes,
        "dialsm.pinned-memtables" => pins(engine).memtables,
        "dialsm.pinned-memtable-bytes" => pins(engine).memtable_bytes,
        "dialsm.log-bytes" => engine.log.size().0,
        "dialsm.log-segments" => engine.log.size().1 as u64,
        "dialsm.block-cache-usage" => engine.blocks.usage(),
        "dialsm.table-cache-usage" => engine.tables.usage(),
        "dialsm.obsolete-tables" => engine.graveyard.len() as u64,
        "dialsm.num-keyspaces" => engine.keyspaces.alive().spaces.len() as u64,
        "dialsm.all-memtables-bytes" => engine.write_budget.bytes(),
        "dialsm.unsettled-installs" => engine.versions.unsettled() as u64,
        "dialsm.undurable-tables" => engine.handoff.undurable_tables() as u64,
        "dialsm.retained-bytes" => engine.handoff.retained.bytes(),
        "dialsm.retained-bytes-peak" => engine.handoff.retained.peak(),
        "dialsm.retained-memtable-bytes" => engine.write_budget.retained(),
        "dialsm.in-flight-bytes" => engine.handoff.limiter.stats().in_flight_bytes.iter().sum(),
        "dialsm.in-flight-bytes-peak" => engine.handoff.limiter.stats().in_flight_bytes_peak,
        "dialsm.in-flight-bytes-max" => metrics::in_flight_bytes_max(engine),
        "dialsm.limiter-window-bytes" => engine.handoff.limiter.stats().window_bytes,
        _ => return None,
    })
}

/// What open iterators hold, and nothing else needs.
fn pins(engine: &Engine) -> PinReport {
    engine.pins.report(engine.env.now())
}

/// Where the hand-off stands, and what its limiter and its syncs have done so far, by name.
fn handoff_figures(metrics: &MetricsSnapshot) -> Vec<(&'static str, u64)> {
    [metrics.handoff_gauges.entries(), metrics.handoff.entries()].concat()
}

fn handoff_text(engine: &Engine) -> String {
    handoff_figures(&metrics::collect(engine, &[]))
        .iter()
        .map(|(name, value)| format!("{name} {value}\n"))
        .collect()
}

/// Stalls so far of the keyspaces whose trees these are.
pub(crate) fn stalls(engine: &Engine, trees: &[Arc<Tree>]) -> StallReport {
    let now = engine.env.now();
    let keyspaces = trees.iter().filter(|tree| tree.id.shard == 0);
    keyspaces.fold(StallReport::default(), |sum, tree| sum.plus(&tree.stall.report(now)))
}

pub(crate) fn stats_json(engine: &Arc<Engine>, trees: &[Arc<Tree>]) -> String {
    let asked = Asked::of(trees);
    let report = stalls(engine, trees);
    let metrics = metrics::collect(engine, trees);
    let level = |level: &LevelGauges| format!("{{\"tables\":{},\"bytes\":{}}}", level.tables, level.bytes);
    let levels: Vec<String> = metrics.level_gauges.iter().map(level).collect();
    let by_cause = |value: fn(&StallTimes) -> f64| -> Vec<String> {
        let field = |cause: &StallCause| (cause.as_str(), value(&report.by_cause[*cause as usize]));
        StallCause::ALL.iter().map(field).map(|(name, value)| format!("\"{name}\":{value}")).collect()
    };
    let (causes, counts) =
        (by_cause(|times| times.total_ns as f64 / 1e9), by_cause(|times| times.count as f64));
    let handoff: Vec<String> =
        handoff_figures(&metrics).iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!(
        "{{\"clock_ns\":{},\"trees\":{},\"levels\":[{}],\"pending_compaction_bytes\":{},\"stall\":{{\"count\":{},\"seconds\":{},\"longest_ms\":{},\"by_cause\":{{{}}},\"counts_by_cause\":{{{}}}}},\"visible\":{},\"handoff\":{{{}}},\"metrics\":{}}}",
        metrics.clock_ns,
        trees.len(),
        levels.join(","),
        asked.pending_bytes(),
        report.all.count,
        report.all.total_ns as f64 / 1e9,
        report.all.longest_ns as f64 / 1e6,
        causes.join(","),
        counts.join(","),
        metrics.gauges.visible_seqno,
        handoff.join(","),
        metrics.to_json(),
    )
}
