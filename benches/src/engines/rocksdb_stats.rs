//! Reads RocksDB's own count of stalls out of the texts of its properties, and what its compactions took out
//! of its LOG.
//!
//! Two wordings are known, that of 7.x and that of 8.x and later:
//! ```text
//!   Stalls(count): 3 level0_slowdown, 1 level0_slowdown_with_compaction, ..., interval 4 total count
//!   Write Stall (count): l0-file-count-limit-delays: 3, ..., total-delays: 3, total-stops: 0
//!   Cumulative stall: 00:00:1.250 H:M:S, 4.2 percent
//! ```
//! RocksDB counts how often it entered or renewed a condition, and the seconds writers spent in all
//! of them together; it keeps no seconds by cause. A text that says neither gives nothing.
//!
//! The end of each compaction is a line of the LOG. With the option `report_bg_io_stats` it says what writing
//! and syncing took:
//! ```text
//!   ... {"event": "compaction_finished", "compaction_time_micros": 12, ..., "file_write_nanos": 5,
//!        "file_range_sync_nanos": 0, "file_fsync_nanos": 7, "file_prepare_write_nanos": 1}
//! ```

use crate::engine::{Background, EngineStats, StallCause};

/// Our name of a cause, RocksDB 7's, RocksDB 8's.
const CAUSES: &[(&str, &str, &str)] = &[
    ("l0_slowdown", "level0_slowdown", "l0-file-count-limit-delays"),
    ("l0_stop", "level0_numfiles", "l0-file-count-limit-stops"),
    ("memtable_slowdown", "memtable_slowdown", "memtable-limit-delays"),
    ("memtable_stop", "memtable_compaction", "memtable-limit-stops"),
    ("pending_bytes_slowdown", "slowdown for pending_compaction_bytes", "pending-compaction-bytes-delays"),
    ("pending_bytes_stop", "stop for pending_compaction_bytes", "pending-compaction-bytes-stops"),
];

/// The counters of the two texts, as far as they say them.
pub(super) fn parse(column_family: &str, database: &str) -> EngineStats {
    let mut stats = EngineStats { stall_seconds: cumulative_seconds(database), ..EngineStats::default() };
    for line in column_family.lines() {
        let Some(read) = counts_of_line(line) else { continue };
        for (cause, seven, eight) in CAUSES {
            if let Some((_, count)) = read.iter().find(|(name, _)| name == seven || name == eight) {
                let entry = StallCause { count: Some(*count), seconds: None };
                stats.by_cause.insert((*cause).to_owned(), entry);
            }
        }
    }
    if !stats.by_cause.is_empty() {
        stats.stall_count = Some(stats.by_cause.values().filter_map(|cause| cause.count).sum());
    }
    stats
}

/// The names and counts of a line of stalls.
fn counts_of_line(line: &str) -> Option<Vec<(&str, u64)>> {
    if let Some(rest) = line.strip_prefix("Stalls(count): ") {
        let pairs = rest.split(", ").filter_map(|part| part.split_once(' '));
        return Some(pairs.filter_map(|(count, name)| Some((name, count.parse().ok()?))).collect());
    }
    let rest = line.strip_prefix("Write Stall (count): ")?;
    let pairs = rest.split(", ").filter_map(|part| part.split_once(": "));
    Some(pairs.filter_map(|(name, count)| Some((name, count.trim().parse().ok()?))).collect())
}

/// The seconds of `Cumulative stall: H:M:S`.
fn cumulative_seconds(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Cumulative stall: "))?;
    let clock = line.split_whitespace().next()?;
    let mut seconds = 0.0;
    for part in clock.split(':') {
        seconds = seconds * 60.0 + part.parse::<f64>().ok()?;
    }
    Some(seconds)
}

/// What the compactions of a LOG took.
pub(super) fn background(log: &str) -> Background {
    let finished = || log.lines().filter(|line| line.contains("\"event\": \"compaction_finished\""));
    let sum = |names: &[&str]| {
        let numbers = finished().flat_map(|line| names.iter().filter_map(move |name| number_of(line, name)));
        numbers.map(|number| number as f64).reduce(|a, b| a + b)
    };
    let nanos = |names: &[&str]| sum(names).map(|sum| sum / 1e9);
    Background {
        compaction_seconds: sum(&["compaction_time_micros"]).map(|sum| sum / 1e6),
        compaction_write_seconds: nanos(&["file_write_nanos", "file_prepare_write_nanos"]),
        compaction_sync_seconds: nanos(&["file_fsync_nanos", "file_range_sync_nanos"]),
        ..Background::default()
    }
}

/// The number behind a name in a line of JSON.
fn number_of(line: &str, name: &str) -> Option<u64> {
    let (_, rest) = line.split_once(&format!("\"{name}\": "))?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_wordings_are_read() {
        let seven = "Uptime(secs): 2.0 total\nStalls(count): 3 level0_slowdown, 2 level0_slowdown_with_compaction, \
                     1 level0_numfiles, 0 level0_numfiles_with_compaction, 5 stop for pending_compaction_bytes, \
                     6 slowdown for pending_compaction_bytes, 7 memtable_compaction, 0 memtable_slowdown, \
                     interval 22 total count\n";
        let eight = "Write Stall (count): cf-l0-file-count-limit-delays-with-ongoing-compaction: 2, \
                     l0-file-count-limit-delays: 3, l0-file-count-limit-stops: 1, memtable-limit-delays: 0, \
                     memtable-limit-stops: 7, pending-compaction-bytes-delays: 6, \
                     pending-compaction-bytes-stops: 5, total-delays: 9, total-stops: 13\n";
        let database = "** DB Stats **\nCumulative stall: 01:02:3.250 H:M:S, 9.5 percent\n";
        for column_family in [seven, eight] {
            let stats = parse(column_family, database);
            assert_eq!(stats.stall_count, Some(22), "{column_family}");
            assert_eq!(stats.by_cause["memtable_stop"].count, Some(7));
            assert_eq!(stats.by_cause["l0_slowdown"].count, Some(3));
            assert_eq!(stats.stall_seconds, Some(3723.25));
        }
    }

    #[test]
    fn compactions_are_added_up() {
        let plain = "x {\"event\": \"compaction_finished\", \"compaction_time_micros\": 1500000, \"files\": [1]}\n\
                     y {\"event\": \"flush_finished\", \"compaction_time_micros\": 7}\n";
        let seconds = background(plain);
        assert_eq!((seconds.compaction_seconds, seconds.compaction_sync_seconds), (Some(1.5), None));
        let full = "{\"event\": \"compaction_finished\", \"compaction_time_micros\": 500000, \
                    \"file_write_nanos\": 250000000, \"file_range_sync_nanos\": 1000000000, \
                    \"file_fsync_nanos\": 500000000, \"file_prepare_write_nanos\": 250000000}\n";
        let seconds = background(&format!("{plain}{full}"));
        assert_eq!(seconds.compaction_seconds, Some(2.0));
        assert_eq!(seconds.compaction_write_seconds, Some(0.5));
        assert_eq!(seconds.compaction_sync_seconds, Some(1.5));
        assert_eq!(seconds.io_share(), Some(1.0));
        assert_eq!(background("nothing").io_share(), None);
    }

    #[test]
    fn another_text_gives_nothing() {
        let stats = parse("no stalls here\nStalls(count): many", "Cumulative stall: soon\n");
        assert_eq!((stats.stall_count, stats.stall_seconds), (None, None));
        assert!(stats.by_cause.is_empty());
    }
}
