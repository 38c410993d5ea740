//! A report as tables for a document: a row an engine, medians over the rounds.
//!
//! ```text
//!   writes   all workloads that write: latencies, stalls, what it cost
//!   shards   all workloads, where an engine has shards: throughput, stalls by cause, what was redirected
//! ```
//! What is said of the first engine by another is the median of the ratios within the rounds, not the ratio of
//! two medians.

use crate::report::{count, figure, megabytes};
use crate::result::{Report, Run, Spread};
use crate::stats::{median, metrics, workloads};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Heading, metric, and how a figure of it is written.
type Column = (&'static str, &'static str, fn(f64) -> String);

const COLUMNS: &[Column] = &[
    ("ops/s", "ops_per_sec", count),
    ("p50 µs", "latency_us.write.p50", figure),
    ("p99 µs", "latency_us.write.p99", figure),
    ("p99.9 µs", "latency_us.write.p999", figure),
    ("max ms", "latency_us.write.max", |us| figure(us / 1e3)),
    ("gap ms", "stall.longest_gap_ms", figure),
    ("stalled s", "stall.seconds", figure),
    ("settle s", "settle_seconds", figure),
    ("CPU s", "cpu_seconds", figure),
    ("kernel s", "kernel_cpu_seconds", figure),
    ("machine s", "machine_cpu_seconds", figure),
    ("written MB", "kernel.write_device", megabytes),
    ("disk MB", "disk_peak_bytes", megabytes),
    ("memory MB", "peak_rss_bytes", megabytes),
    ("io share", "compaction_io_share", percent),
];

/// Those of [`shards`] that stand between throughput and the causes of stalls.
const HELD_UP: &[Column] = &[
    ("p99 µs", "latency_us.KIND.p99", figure),
    ("p99.99 µs", "latency_us.KIND.p9999", figure),
    ("gaps s", "stall.gap_seconds", figure),
    ("longest ms", "stall.longest_gap_ms", figure),
    ("starved s", "stall.starved_seconds", figure),
];

/// Those of [`shards`] behind the causes of stalls.
const REDIRECTED: &[Column] = &[
    ("redirects", "routing.redirects", count),
    ("share", "routing.redirected_share", percent),
    ("clues", "routing.clues_at_end", count),
    ("clues settled", "routing.clues_settled", count),
    ("clues dropped", "routing.clues_dropped", count),
    ("rolled back", "routing.clues_rolled_back", count),
    ("clues followed", "routing.clue_hops", count),
    ("redirected dropped", "routing.redirected_dropped", count),
    ("rollbacks", "routing.rollbacks", count),
    ("aborted", "routing.rollback_aborts", count),
    ("write amp", "write_amp", figure),
    ("space amp", "space_amp", figure),
    ("debt MB", "debt_bytes", megabytes),
    ("settle s", "settle_seconds", figure),
    ("memory MB", "peak_rss_bytes", megabytes),
];

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// The table of all workloads that write; nothing if none does.
pub(crate) fn writes(report: &Report) -> String {
    let mut text = String::new();
    let writing = |workload: &String| {
        report.runs.iter().any(|run| run.workload == *workload && run.latency_us.contains_key("write"))
    };
    let names: Vec<String> = workloads(&report.runs).into_iter().filter(writing).collect();
    if names.is_empty() {
        return text;
    }
    let headings: Vec<&str> = COLUMNS.iter().map(|(heading, _, _)| *heading).collect();
    let _ = writeln!(text, "| workload | engine | {} | A/A | p99 by first |", headings.join(" | "));
    let _ = writeln!(text, "|{}", "---|".repeat(COLUMNS.len() + 4));
    for workload in &names {
        for (at, engine) in engines_of(report, workload).iter().enumerate() {
            row(&mut text, report, workload, engine, at == 0);
        }
    }
    text
}

fn engines_of(report: &Report, workload: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for run in report.runs.iter().filter(|run| run.workload == workload) {
        if !names.contains(&run.engine) {
            names.push(run.engine.clone());
        }
    }
    names
}

/// The runs of an engine on a workload, and what they come to.
struct Row<'a> {
    report: &'a Report,
    workload: &'a str,
    engine: &'a str,
    runs: Vec<&'a Run>,
    figures: Vec<BTreeMap<String, f64>>,
}

impl<'a> Row<'a> {
    fn new(report: &'a Report, workload: &'a str, engine: &'a str) -> Row<'a> {
        let is_it = |run: &&Run| run.workload == workload && run.engine == engine;
        let runs: Vec<&Run> = report.runs.iter().filter(is_it).collect();
        let figures = runs.iter().map(|run| metrics(run)).collect();
        Row { report, workload, engine, runs, figures }
    }

    fn median(&self, metric: &str) -> Option<f64> {
        let values: Vec<f64> = self.figures.iter().filter_map(|found| found.get(metric).copied()).collect();
        median(&values)
    }

    /// Columns whose metrics may name a kind of operation.
    fn cells(&self, columns: &[Column], kind: &str) -> String {
        let cell = |(_, metric, show): &Column| {
            self.median(&metric.replace("KIND", kind)).map_or_else(|| "-".into(), show)
        };
        columns.iter().map(cell).collect::<Vec<_>>().join(" | ")
    }

    /// The workload, and the rate of an open loop.
    fn title(&self) -> String {
        let rate = self.runs.first().and_then(|run| run.rate);
        let rate = rate.map(|rate| format!(" at {}/s", count(rate))).unwrap_or_default();
        format!("{}{rate}", self.workload)
    }

    fn ratio(&self, metric: &str) -> Option<f64> {
        let found = self.report.ratios.iter().find(|ratio| {
            (ratio.workload.as_str(), ratio.b.as_str(), ratio.metric.as_str())
                == (self.workload, self.engine, metric)
        });
        found.map(|ratio| ratio.median).filter(|&ratio| ratio > 0.0)
    }

    /// The spread of equals, which is the first engine's.
    fn spread(&self, is_first: bool) -> String {
        let is_it = |s: &&Spread| s.workload == self.workload && s.metric == "ops_per_sec";
        let spread = self.report.aa.iter().find(is_it).filter(|_| is_first);
        spread.map_or_else(|| "-".into(), |spread| format!("{:.2}", spread.spread))
    }

    /// Times and seconds by cause, of causes that there were; and of all the share of the run.
    fn stalls(&self) -> String {
        let mut names: Vec<&String> = self.runs.iter().flat_map(|run| run.stall.by_cause.keys()).collect();
        names.sort();
        names.dedup();
        let part = |name: &&String| {
            let of = |what: &str| self.median(&format!("stall.by_cause.{name}.{what}"));
            let seconds = of("seconds").map(|seconds| format!(" ({} s)", figure(seconds)));
            let times = of("count").filter(|&times| times > 0.0);
            times.map(|times| format!("{name} {}{}", count(times), seconds.unwrap_or_default()))
        };
        let parts: Vec<String> = names.iter().filter_map(part).collect();
        if parts.is_empty() { "-".into() } else { parts.join(", ") }
    }
}

fn row(text: &mut String, report: &Report, workload: &str, engine: &str, is_first: bool) {
    let row = Row::new(report, workload, engine);
    let (title, spread) = (row.title(), row.spread(is_first));
    let of_p99 = row.ratio("latency_us.write.p99");
    let of_p99 = of_p99.map_or_else(|| "-".into(), |ratio| format!("**{}**", figure(1.0 / ratio)));
    let cells = row.cells(COLUMNS, "write");
    let _ = writeln!(text, "| {title} | {engine} | {cells} | {spread} | {of_p99} |");
}

/// The table of all workloads, a row for each kind of operation of an engine; nothing if no engine has shards.
pub(crate) fn shards(report: &Report) -> String {
    let mut text = String::new();
    if report.runs.iter().all(|run| run.routing.is_none()) {
        return text;
    }
    let names = |columns: &[Column]| columns.iter().map(|column| column.0).collect::<Vec<_>>().join(" | ");
    let _ = writeln!(
        text,
        "| workload | engine | ops/s | first by it | A/A | kind | {} | stalled s | stalls by cause | {} |",
        names(HELD_UP),
        names(REDIRECTED)
    );
    let _ = writeln!(text, "|{}", "---|".repeat(8 + HELD_UP.len() + REDIRECTED.len()));
    for workload in &workloads(&report.runs) {
        for (at, engine) in engines_of(report, workload).iter().enumerate() {
            shards_row(&mut text, &Row::new(report, workload, engine), at == 0);
        }
    }
    text
}

fn shards_row(text: &mut String, row: &Row<'_>, is_first: bool) {
    let (title, engine, spread) = (row.title(), row.engine, row.spread(is_first));
    let ops = row.median("ops_per_sec").map_or_else(|| "-".into(), count);
    let ratio = row.ratio("ops_per_sec").map_or_else(|| "-".into(), |ratio| format!("**{}**", figure(ratio)));
    let stalled = row.median("stall.seconds").map_or_else(|| "-".into(), figure);
    let (stalls, redirected) = (row.stalls(), row.cells(REDIRECTED, ""));
    let kinds: Vec<&String> = row.runs.first().map(|run| run.latency_us.keys().collect()).unwrap_or_default();
    for kind in kinds {
        let held_up = row.cells(HELD_UP, kind);
        let _ = writeln!(
            text,
            "| {title} | {engine} | {ops} | {ratio} | {spread} | {kind} | {held_up} | {stalled} | {stalls} | {redirected} |"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Routing;
    use crate::result::{CauseOfStall, Latency, RoutingOfRun};
    use crate::stats::{ratios, spreads};

    fn run(engine: &str, round: u32, p99: f64) -> Run {
        let mut run = Run {
            engine: engine.into(),
            workload: "8k/overwrite".into(),
            round,
            ops_per_sec: 50_000.0,
            compaction_io_share: (engine == "b").then_some(0.25),
            rate: Some(47_500.0),
            ..Run::default()
        };
        run.latency_us.insert("write".into(), Latency { p99, max: 12_000.0, ..Latency::default() });
        run
    }

    #[test]
    fn a_row_an_engine_and_the_ratio_of_p99() {
        let runs = vec![run("a", 1, 100.0), run("b", 1, 400.0), run("a", 2, 100.0), run("b", 2, 400.0)];
        let aa_runs = vec![run("a", 1, 110.0)];
        let (ratios, aa) = (ratios(&runs, &["a".into(), "b".into()]), spreads(&runs, &aa_runs));
        let read = Run { engine: "a".into(), workload: "read".into(), ..Run::default() };
        let runs = runs.into_iter().chain([read]).collect();
        let text = writes(&Report { runs, ratios, aa, aa_runs, ..Report::default() });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        let columns = |line: &str| line.matches('|').count();
        assert!(lines.iter().all(|line| columns(line) == columns(lines[0])), "{text}");
        assert!(lines[2].starts_with("| 8k/overwrite at 47.5 k/s | a | 50.0 k | 0.00 | 100 |"), "{text}");
        assert!(lines[2].ends_with("| - | 1.00 | - |"), "{text}");
        assert!(lines[3].ends_with("| 25.0 % | - | **4.00** |") && lines[3].contains("| 12.0 |"), "{text}");
        assert!(writes(&Report::default()).is_empty());
    }

    #[test]
    fn the_table_of_shards_has_reads_causes_and_what_was_redirected() {
        let mut runs = vec![run("a", 1, 100.0), run("b", 1, 400.0)];
        assert!(
            shards(&Report { runs: runs.clone(), ..Report::default() }).is_empty(),
            "no engine has shards"
        );
        let counts = Routing { redirects: 500, clues_rolled_back: 400, ..Routing::default() };
        let routing = RoutingOfRun {
            counts,
            redirected_share: Some(0.25),
            clues_at_end: Some(30),
            clues_settled: None,
        };
        runs[0].routing = Some(routing);
        runs[0].ops_per_sec = 100_000.0;
        runs[0].latency_us.insert("read".into(), Latency { p99: 7.0, ..Latency::default() });
        let cause = CauseOfStall { count: Some(3), seconds: Some(1.5) };
        runs[1].stall.by_cause.insert("l0".into(), cause);
        runs[1].stall.by_cause.insert("pending".into(), CauseOfStall { count: Some(0), seconds: Some(0.0) });
        let ratios = ratios(&runs, &["a".into(), "b".into()]);
        let text = shards(&Report { runs, ratios, ..Report::default() });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        let columns = |line: &str| line.matches('|').count();
        assert!(lines.iter().all(|line| columns(line) == columns(lines[0])), "{text}");
        assert!(lines[2].contains("| a | 100.0 k | - | - | read | 7.00 |"), "{text}");
        assert!(
            lines[3].contains("| write | 100 |") && lines[3].contains("| 500 | 25.0 % | 30 | - | 0 | 400 |"),
            "{text}"
        );
        assert!(lines[4].contains("| b | 50.0 k | **2.00** | - | write | 400 |"), "{text}");
        assert!(lines[4].contains("| l0 3 (1.50 s) | - | - |"), "{text}");
    }
}
