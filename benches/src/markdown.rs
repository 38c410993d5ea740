//! The writes of a report as a table for a document: a row an engine, medians over the rounds.
//!
//! The last column says how many times as long as the first engine's the p99 of an engine was: the median of
//! the ratios within the rounds, not the ratio of two medians.

use crate::report::{count, figure, megabytes};
use crate::result::{Report, Run};
use crate::stats::{median, metrics, workloads};
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
    ("io share", "compaction_io_share", |share| format!("{:.1} %", 100.0 * share)),
];

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

fn row(text: &mut String, report: &Report, workload: &str, engine: &str, is_first: bool) {
    let runs: Vec<&Run> =
        report.runs.iter().filter(|run| run.workload == workload && run.engine == engine).collect();
    let figures: Vec<_> = runs.iter().map(|run| metrics(run)).collect();
    let cell = |(_, metric, show): &Column| {
        let values: Vec<f64> = figures.iter().filter_map(|found| found.get(*metric).copied()).collect();
        median(&values).map_or_else(|| "-".into(), show)
    };
    let cells: Vec<String> = COLUMNS.iter().map(cell).collect();
    let rate = runs.first().and_then(|run| run.rate);
    let rate = rate.map(|rate| format!(" at {}/s", count(rate))).unwrap_or_default();
    let spread = report.aa.iter().find(|s| s.workload == workload && s.metric == "ops_per_sec");
    let spread =
        spread.filter(|_| is_first).map_or_else(|| "-".into(), |spread| format!("{:.2}", spread.spread));
    let of_p99 = report.ratios.iter().find(|ratio| {
        (ratio.workload.as_str(), ratio.b.as_str(), ratio.metric.as_str())
            == (workload, engine, "latency_us.write.p99")
    });
    let of_p99 = of_p99.filter(|ratio| ratio.median > 0.0);
    let of_p99 = of_p99.map_or_else(|| "-".into(), |ratio| format!("**{}**", figure(1.0 / ratio.median)));
    let _ = writeln!(text, "| {workload}{rate} | {engine} | {} | {spread} | {of_p99} |", cells.join(" | "));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Latency;
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
}
