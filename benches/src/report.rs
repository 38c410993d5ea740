//! The table a person reads: medians over the rounds, ratios, and what counts as equal.

use crate::result::{Report, Run};
use crate::stats::{median, workloads};
use std::collections::BTreeMap;
use std::fmt::Write;

/// A column: its heading, the metric's path, and how a figure of it is written.
struct Column {
    heading: &'static str,
    metric: &'static str,
    show: fn(f64) -> String,
}

const COLUMNS: &[Column] = &[
    Column { heading: "ops/s", metric: "ops_per_sec", show: count },
    Column { heading: "stalls", metric: "stall.count", show: count },
    Column { heading: "stall s", metric: "stall.seconds", show: figure },
    Column { heading: "gaps s", metric: "stall.gap_seconds", show: figure },
    Column { heading: "longest ms", metric: "stall.longest_gap_ms", show: figure },
    Column { heading: "starved s", metric: "stall.starved_seconds", show: figure },
    Column { heading: "write amp", metric: "write_amp", show: figure },
    Column { heading: "read amp", metric: "read_amp", show: figure },
    Column { heading: "space amp", metric: "space_amp", show: figure },
    Column { heading: "peak MB", metric: "peak_rss_bytes", show: megabytes },
    Column { heading: "CPU s", metric: "cpu_seconds", show: figure },
    Column { heading: "system s", metric: "cpu_system_seconds", show: figure },
    Column { heading: "kernel s", metric: "kernel_cpu_seconds", show: figure },
    Column { heading: "machine s", metric: "machine_cpu_seconds", show: figure },
    Column { heading: "written MB", metric: "kernel.write_device", show: megabytes },
    Column { heading: "disk MB", metric: "disk_peak_bytes", show: megabytes },
    Column { heading: "debt MB", metric: "debt_bytes", show: megabytes },
    Column { heading: "settle s", metric: "settle_seconds", show: figure },
];

const PERCENTILES: [(&str, &str); 5] =
    [("p50", "p50"), ("p99", "p99"), ("p99.9", "p999"), ("p99.99", "p9999"), ("max", "max")];

/// A number of things, with three or four digits and k or M.
pub(crate) fn count(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{:.2} M", v / 1e6),
        v if v >= 1e4 => format!("{:.1} k", v / 1e3),
        v => format!("{v:.0}"),
    }
}

pub(crate) fn figure(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v if v >= 0.1 || v <= 0.0 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    }
}

pub(crate) fn megabytes(value: f64) -> String {
    figure(value / (1 << 20) as f64)
}

/// Medians, ratios and spreads, found by name.
pub(crate) struct Figures<'a> {
    pub(crate) report: &'a Report,
    /// By workload, engine and metric: the median, the least and the greatest of the rounds.
    medians: BTreeMap<(String, String, String), (f64, f64, f64)>,
}

impl Figures<'_> {
    pub(crate) fn new(report: &Report) -> Figures<'_> {
        let mut values: BTreeMap<(String, String, String), Vec<f64>> = BTreeMap::new();
        for run in &report.runs {
            for (metric, value) in crate::stats::metrics(run) {
                values.entry((run.workload.clone(), run.engine.clone(), metric)).or_default().push(value);
            }
        }
        let summary = |values: &[f64]| {
            let (low, high) =
                (values.iter().copied().reduce(f64::min), values.iter().copied().reduce(f64::max));
            Some((median(values)?, low?, high?))
        };
        let medians = values.into_iter().filter_map(|(key, values)| Some((key, summary(&values)?))).collect();
        Figures { report, medians }
    }

    pub(crate) fn median(&self, workload: &str, engine: &str, metric: &str) -> Option<f64> {
        self.summary(workload, engine, metric).map(|(median, _, _)| median)
    }

    /// The least and the greatest of the rounds.
    pub(crate) fn range(&self, workload: &str, engine: &str, metric: &str) -> Option<(f64, f64)> {
        self.summary(workload, engine, metric).map(|(_, low, high)| (low, high))
    }

    fn summary(&self, workload: &str, engine: &str, metric: &str) -> Option<(f64, f64, f64)> {
        self.medians.get(&(workload.to_owned(), engine.to_owned(), metric.to_owned())).copied()
    }

    /// The ratio of the first engine to `b`.
    pub(crate) fn ratio_to(&self, workload: &str, b: &str, metric: &str) -> Option<f64> {
        let is_it = |ratio: &&crate::result::Ratio| {
            (ratio.workload.as_str(), ratio.b.as_str(), ratio.metric.as_str()) == (workload, b, metric)
        };
        self.report.ratios.iter().find(is_it).map(|ratio| ratio.median)
    }

    /// Whether a ratio says nothing: one engine's own two runs lay as far apart.
    pub(crate) fn is_equal(&self, workload: &str, metric: &str, ratio: f64) -> bool {
        self.spread(workload, metric).is_some_and(|spread| ratio >= 1.0 / spread && ratio <= spread)
    }

    /// The ratio as a text, with `=` where it says nothing.
    fn ratio(&self, workload: &str, b: &str, metric: &str) -> String {
        let Some(ratio) = self.ratio_to(workload, b, metric) else { return "-".into() };
        let equal = if self.is_equal(workload, metric, ratio) { " =" } else { "" };
        format!("{}x{equal}", figure(ratio))
    }

    /// How far the first engine's own two runs lay apart.
    pub(crate) fn spread(&self, workload: &str, metric: &str) -> Option<f64> {
        let spreads = &self.report.aa;
        spreads.iter().find(|s| s.workload == workload && s.metric == metric).map(|spread| spread.spread)
    }
}

/// Lays rows out in columns; the first is flush left, the others flush right.
fn layout(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::from("  ");
        for (column, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[column] - cell.chars().count());
            line += &if column == 0 { format!("{cell}{pad}") } else { format!("  {pad}{cell}") };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// The whole text.
pub(crate) fn table(report: &Report, engines: &[String]) -> String {
    let figures = Figures::new(report);
    let mut text = String::new();
    for workload in workloads(&report.runs) {
        let runs: Vec<&Run> = report.runs.iter().filter(|run| run.workload == workload).collect();
        text += &heading(&workload, &runs);
        text += &layout(&main_rows(&figures, &workload, engines));
        text += &layout(&latency_rows(&figures, &workload, engines, &runs));
        text += &causes(&figures, &workload, engines, &runs);
        text += &routing(&figures, &workload, engines);
        text += &background(&figures, &workload, engines);
        if let Some(spread) = figures.spread(&workload, "ops_per_sec") {
            let (low, high) = (1.0 / spread, spread);
            let _ = writeln!(text, "  A/A: ratios of ops/s from {low:.3} to {high:.3} are equal (=)");
        }
        text.push('\n');
    }
    text += "Options in effect:\n";
    for engine in engines {
        if let Some(run) = report.runs.iter().find(|run| run.engine == *engine) {
            let _ = writeln!(text, "  {engine}: {}", run.options);
        }
    }
    let made = count(report.generator_ops_per_sec);
    let _ = writeln!(text, "Keys and values alone: {made} a second on one thread.");
    text
}

fn heading(workload: &str, runs: &[&Run]) -> String {
    let rounds = runs.iter().map(|run| run.round).max().unwrap_or(0);
    let Some(run) = runs.first() else { return String::new() };
    let rate =
        run.rate.map_or_else(|| "closed loop".to_owned(), |rate| format!("{} arrivals/s", count(rate)));
    format!(
        "{workload}: {} ops, {} threads, {} bytes an entry, {rate}, median of {rounds} rounds\n",
        run.ops, run.threads, run.entry_bytes
    )
}

/// Columns in which at least one engine has a figure.
fn main_rows(figures: &Figures<'_>, workload: &str, engines: &[String]) -> Vec<Vec<String>> {
    let has_figure =
        |column: &&Column| engines.iter().any(|e| figures.median(workload, e, column.metric).is_some());
    let columns: Vec<&Column> = COLUMNS.iter().filter(has_figure).collect();
    let mut rows = vec![vec!["engine".to_owned()]];
    rows[0].extend(columns.iter().map(|column| column.heading.to_owned()));
    for engine in engines {
        let cell = |column: &&Column| {
            let value = figures.median(workload, engine, column.metric);
            value.map_or_else(|| "-".into(), column.show)
        };
        rows.push(std::iter::once(engine.clone()).chain(columns.iter().map(cell)).collect());
    }
    for other in engines.iter().skip(1) {
        let name = format!("{}/{other}", engines[0]);
        let cells = columns.iter().map(|column| figures.ratio(workload, other, column.metric));
        rows.push(std::iter::once(name).chain(cells).collect());
    }
    rows
}

fn latency_rows(
    figures: &Figures<'_>,
    workload: &str,
    engines: &[String],
    runs: &[&Run],
) -> Vec<Vec<String>> {
    let mut kinds: Vec<&String> = runs.iter().flat_map(|run| run.latency_us.keys()).collect();
    kinds.sort();
    kinds.dedup();
    let mut rows = vec![vec!["latency, us".to_owned()]];
    rows[0].extend(PERCENTILES.iter().map(|(heading, _)| (*heading).to_owned()));
    for kind in kinds {
        let metric = |percentile: &str| format!("latency_us.{kind}.{percentile}");
        for engine in engines {
            let cells = PERCENTILES.iter().map(|(_, percentile)| {
                let value = figures.median(workload, engine, &metric(percentile));
                value.map_or_else(|| "-".into(), figure)
            });
            rows.push(std::iter::once(format!("{engine} {kind}")).chain(cells).collect());
        }
        for other in engines.iter().skip(1) {
            let name = format!("{}/{other} {kind}", engines[0]);
            let cells = PERCENTILES.iter().map(|(_, p)| figures.ratio(workload, other, &metric(p)));
            rows.push(std::iter::once(name).chain(cells).collect());
        }
    }
    rows
}

/// What each engine says held its writes up, and for which share of the time.
fn causes(figures: &Figures<'_>, workload: &str, engines: &[String], runs: &[&Run]) -> String {
    let mut text = String::new();
    for engine in engines {
        let mut names: Vec<&String> = runs
            .iter()
            .filter(|run| run.engine == *engine)
            .flat_map(|run| run.stall.by_cause.keys())
            .collect();
        names.sort();
        names.dedup();
        let part = |name: &&String| {
            let of = |what: &str| figures.median(workload, engine, &format!("stall.by_cause.{name}.{what}"));
            let seconds = of("seconds").filter(|&seconds| seconds > 0.0);
            let seconds = seconds.map(|seconds| format!(" ({} s)", figure(seconds))).unwrap_or_default();
            of("count").filter(|&times| times > 0.0).map(|times| format!("{name} {}{seconds}", count(times)))
        };
        let parts: Vec<String> = names.iter().filter_map(part).collect();
        let share = figures
            .median(workload, engine, "stall.seconds")
            .zip(figures.median(workload, engine, "seconds"));
        if let (Some((stalled, seconds)), false) = (share, parts.is_empty()) {
            let share = 100.0 * stalled / seconds;
            let _ = writeln!(text, "  {engine} stalled {share:.1} % of the time: {}", parts.join(", "));
        }
    }
    text
}

/// What became of the writes that each engine redirected.
fn routing(figures: &Figures<'_>, workload: &str, engines: &[String]) -> String {
    let mut text = String::new();
    for engine in engines {
        let of = |what: &str| figures.median(workload, engine, &format!("routing.{what}"));
        // Also where nothing was redirected: a clue of an earlier workload may have been followed.
        let Some(redirects) = of("redirects") else { continue };
        let number = |what: &str| of(what).map_or_else(|| "-".into(), count);
        let share = of("redirected_share");
        let share = share.map(|share| format!(" ({:.2} % of the writes)", 100.0 * share)).unwrap_or_default();
        let _ = writeln!(
            text,
            "  {engine} redirected {}{share}, {} MB; clues: {} at the end, {} once settled, {} dropped, {} rolled back, \
             {} followed; redirected entries dropped: {}; rollbacks: {}, aborted: {}",
            count(redirects),
            of("redirected_bytes").map_or_else(|| "-".into(), megabytes),
            number("clues_at_end"),
            number("clues_settled"),
            number("clues_dropped"),
            number("clues_rolled_back"),
            number("clue_hops"),
            number("redirected_dropped"),
            number("rollbacks"),
            number("rollback_aborts"),
        );
    }
    text
}

/// What each engine says its compactions took, and how much of that was writing and syncing.
fn background(figures: &Figures<'_>, workload: &str, engines: &[String]) -> String {
    let mut text = String::new();
    for engine in engines {
        let of = |what: &str| figures.median(workload, engine, &format!("background.{what}_seconds"));
        let Some(whole) = of("compaction").filter(|&seconds| seconds > 0.0) else { continue };
        let part = |what: &str, words: &str| {
            of(what)
                .map(|seconds| format!("{words} {} s ({:.1} %)", figure(seconds), 100.0 * seconds / whole))
        };
        let parts = [part("compaction_write", "writing"), part("compaction_sync", "syncing")];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let limiter = of("limiter_wait").filter(|&seconds| seconds > 0.0);
        let limiter = limiter.map(|s| format!("; the limiter held jobs {} s", figure(s))).unwrap_or_default();
        let flushes = of("flush").zip(of("flush_sync"));
        let flushes = flushes.map(|(whole, sync)| {
            format!("; flushes {} s, of these syncing {} s", figure(whole), figure(sync))
        });
        let (whole, parts, flushes) = (figure(whole), parts.join(", "), flushes.unwrap_or_default());
        let of_these = if parts.is_empty() { "" } else { ", of these " };
        let _ = writeln!(text, "  {engine} compacted for {whole} s{of_these}{parts}{flushes}{limiter}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Routing;
    use crate::result::{CauseOfStall, Latency, RoutingOfRun};
    use crate::stats::{ratios, spreads};

    fn run(engine: &str, round: u32, ops_per_sec: f64) -> Run {
        let mut run = Run {
            engine: engine.into(),
            workload: "fillrandom".into(),
            round,
            ops: 1000,
            ops_per_sec,
            seconds: 2.0,
            threads: 4,
            peak_rss_bytes: 100 << 20,
            write_amp: Some(ops_per_sec / 50_000.0),
            ..Run::default()
        };
        let latency = Latency { p50: 5.0, p99: 120.0, max: 1e6, ..Latency::default() };
        run.latency_us.insert("write".into(), latency);
        run.stall.seconds = Some(0.5);
        run.stall.by_cause.insert("l0_stop".into(), CauseOfStall { count: Some(3), seconds: None });
        run
    }

    #[test]
    fn the_table_has_medians_ratios_and_equals() {
        let engines = ["a".to_owned(), "b".to_owned()];
        let runs = vec![
            run("a", 1, 150_000.0),
            run("b", 1, 100_000.0),
            run("a", 2, 140_000.0),
            run("b", 2, 140_000.0),
        ];
        let aa_runs = vec![run("a", 1, 145_000.0)];
        let (ratios, aa) = (ratios(&runs, &engines), spreads(&runs, &aa_runs));
        let text = table(&Report { runs, ratios, aa, aa_runs, ..Report::default() }, &engines);
        let line = |start: &str| {
            let found = text.lines().find(|line| line.trim_start().starts_with(start));
            found
                .unwrap_or_else(|| panic!("no {start} in\n{text}"))
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert!(line("engine").starts_with("engine ops/s stall s"), "{text}");
        assert!(line("a ").starts_with("a 145.0 k 0.50"), "{text}");
        assert!(line("a/b  ").starts_with("a/b 1.25x 1.00x ="), "{text}");
        assert_eq!(line("b write"), "b write 5.00 120 0.00 0.00 1000000");
        assert_eq!(line("a/b write"), "a/b write 1.00x = 1.00x = - - 1.00x =");
        assert_eq!(line("b stalled"), "b stalled 25.0 % of the time: l0_stop 3");
        assert!(text.contains("from 0.967 to 1.034 are equal"), "{text}");
    }

    #[test]
    fn what_was_redirected_is_told_of_engines_with_shards() {
        let engines = ["a".to_owned(), "b".to_owned()];
        let counts = Routing {
            redirects: 1234,
            redirected_bytes: 3 << 20,
            clue_hops: 9,
            clues_dropped: 34,
            clues_rolled_back: 1100,
            redirected_dropped: 1134,
            rollbacks: 5,
            rollback_aborts: 2,
        };
        let routing = RoutingOfRun {
            counts,
            redirected_share: Some(0.125),
            clues_at_end: Some(200),
            clues_settled: Some(0),
        };
        let of_shards = Run { routing: Some(routing), ..run("a", 1, 1.0) };
        let text = table(&Report { runs: vec![of_shards, run("b", 1, 1.0)], ..Report::default() }, &engines);
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(" redirected ")).collect();
        let line = "  a redirected 1234 (12.50 % of the writes), 3.00 MB; clues: 200 at the end, 0 once settled, 34 \
                    dropped, 1100 rolled back, 9 followed; redirected entries dropped: 1134; rollbacks: 5, aborted: 2";
        assert_eq!(lines, [line]);
    }

    #[test]
    fn figures_stay_short() {
        assert_eq!([count(999.4), count(12_345.0), count(2.5e7)], ["999", "12.3 k", "25.00 M"]);
        assert_eq!([figure(0.123), figure(12.34), figure(1234.0)], ["0.12", "12.3", "1234"]);
    }
}
