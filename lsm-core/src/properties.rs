//! What a database says about itself: single properties by name, and all of it as text or JSON.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::engine::Engine;
use crate::metrics::StallCause;
use crate::version::LEVELS;
use crate::write::stall::{Admission, StallReport};

/// The properties that [`get`] knows.
pub(crate) const NAMES: &[&str] = &[
    "dialsm.stats",
    "dialsm.stats-json",
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
    "dialsm.log-bytes",
    "dialsm.log-segments",
    "dialsm.block-cache-usage",
    "dialsm.table-cache-usage",
    "dialsm.background-error",
    "dialsm.durable-floor",
    "dialsm.obsolete-tables",
];

pub(crate) fn get(engine: &Arc<Engine>, name: &str) -> Option<String> {
    let view = engine.tree.view();
    let version = &view.version;
    if let Some(level) = name.strip_prefix("dialsm.num-files-at-level") {
        let level: usize = level.parse().ok().filter(|level| *level < LEVELS)?;
        return Some(version.table_count(level).to_string());
    }
    if let Some(level) = name.strip_prefix("dialsm.bytes-at-level") {
        let level: usize = level.parse().ok().filter(|level| *level < LEVELS)?;
        return Some(version.level_bytes(level).to_string());
    }
    let admission = engine.tree.stall.admission();
    let value: u64 = match name {
        "dialsm.stats" => return Some(stats_text(engine)),
        "dialsm.stats-json" => return Some(stats_json(engine)),
        "dialsm.options" => return Some(engine.options.load().to_text()),
        "dialsm.background-error" => {
            return Some(engine.error.check().err().map_or_else(String::new, |error| error.to_string()));
        }
        "dialsm.num-immutable-memtables" => view.sealed.len() as u64,
        "dialsm.active-memtable-bytes" => view.active.table.bytes_used() as u64,
        "dialsm.num-entries-active-memtable" => view.active.table.entries() as u64,
        "dialsm.live-table-bytes" => version.all_tables().map(|(_, table)| table.file_bytes()).sum(),
        "dialsm.estimate-num-keys" => estimate_keys(engine),
        "dialsm.pending-compaction-bytes" => engine.pending_compaction_bytes(version),
        "dialsm.running-flushes" => engine.scheduler.running().0 as u64,
        "dialsm.running-compactions" => engine.tree.lock().compactions_running as u64,
        "dialsm.is-write-stopped" => u64::from(matches!(admission, Admission::Stopped(_))),
        "dialsm.is-write-delayed" => u64::from(matches!(admission, Admission::Delayed(..))),
        "dialsm.num-snapshots" => engine.snapshots.summary().0 as u64,
        "dialsm.oldest-snapshot" => engine.snapshots.summary().1.unwrap_or(0),
        "dialsm.log-bytes" => engine.log.size().0,
        "dialsm.log-segments" => engine.log.size().1 as u64,
        "dialsm.block-cache-usage" => engine.blocks.usage(),
        "dialsm.table-cache-usage" => engine.tables.usage(),
        "dialsm.durable-floor" => engine.tree.lock().durable_floor,
        "dialsm.obsolete-tables" => engine.graveyard.len() as u64,
        _ => return None,
    };
    Some(value.to_string())
}

/// Entries less twice the tombstones, as RocksDB estimates it.
fn estimate_keys(engine: &Engine) -> u64 {
    let view = engine.tree.view();
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
}

/// Stalls so far.
pub(crate) fn stalls(engine: &Engine) -> StallReport {
    engine.tree.stall.report(engine.env.now())
}

pub(crate) fn stats_text(engine: &Arc<Engine>) -> String {
    let mut out = String::new();
    let view = engine.tree.view();
    let _ = writeln!(out, "level   tables          bytes");
    for level in 0..LEVELS {
        let tables = view.version.table_count(level);
        if tables > 0 {
            let _ = writeln!(out, "L{level:<5} {tables:>8} {:>14}", view.version.level_bytes(level));
        }
    }
    let report = stalls(engine);
    let _ = writeln!(out, "\nstalls       count      seconds  longest ms");
    let causes = StallCause::ALL.iter().map(|cause| (cause.as_str(), report.by_cause[*cause as usize]));
    for (name, times) in std::iter::once(("all", report.all)).chain(causes) {
        let seconds = times.total_ns as f64 / 1e9;
        let _ = writeln!(
            out,
            "{name:<12} {:>5} {seconds:>12.3} {:>11.1}",
            times.count,
            times.longest_ns as f64 / 1e6
        );
    }
    let _ = writeln!(out);
    out.push_str(&engine.metrics.snapshot().to_text());
    out
}

pub(crate) fn stats_json(engine: &Arc<Engine>) -> String {
    let view = engine.tree.view();
    let report = stalls(engine);
    let levels: Vec<String> = (0..LEVELS)
        .map(|level| {
            let (tables, bytes) = (view.version.table_count(level), view.version.level_bytes(level));
            format!("{{\"tables\":{tables},\"bytes\":{bytes}}}")
        })
        .collect();
    let causes: Vec<String> = StallCause::ALL
        .iter()
        .map(|cause| {
            let times = report.by_cause[*cause as usize];
            format!("\"{}\":{}", cause.as_str(), times.total_ns as f64 / 1e9)
        })
        .collect();
    format!(
        "{{\"levels\":[{}],\"pending_compaction_bytes\":{},\"stall\":{{\"count\":{},\"seconds\":{},\"longest_ms\":{},\"by_cause\":{{{}}}}},\"visible\":{},\"metrics\":{}}}",
        levels.join(","),
        engine.pending_compaction_bytes(&view.version),
        report.all.count,
        report.all.total_ns as f64 / 1e9,
        report.all.longest_ns as f64 / 1e6,
        causes.join(","),
        engine.commit.visible().load(Ordering::Acquire),
        engine.metrics.snapshot().to_json(),
    )
}
