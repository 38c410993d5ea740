//! Tables of one workload, with the figures of its drawings.

use super::html::{Cell, Html};
use super::sections::{Column, Page, cell, headings};
use crate::plot::{HEAT_STEPS, MEASURES, highest, trim};
use crate::report::{count, figure};
use crate::result::{Run, TimelinePoint};

/// Rows of the table of figures over time.
const TIME_ROWS_MAX: usize = 60;

impl Page<'_> {
    pub(super) fn stall_table(&self, body: &mut Html, workload: &str, runs: &[&Run]) {
        const COLUMNS: [Column; 6] = [
            ("ops/s", "ops_per_sec", count),
            ("gaps s", "stall.gap_seconds", figure),
            ("longest gap ms", "stall.longest_gap_ms", figure),
            ("starved s", "stall.starved_seconds", figure),
            ("stalls", "stall.count", count),
            ("stalled s", "stall.seconds", figure),
        ];
        let row = |run: &&Run| {
            let of = |metric: &str| self.figures.median(workload, &run.engine, metric);
            let mut cells: Vec<Cell> = Vec::new();
            for (_, metric, show) in &COLUMNS {
                cells.push(cell(of(metric), *show));
                if *metric == "ops_per_sec" && self.rounds() > 1 {
                    let range = self.figures.range(workload, &run.engine, metric);
                    let range = range.map(|(low, high)| format!("{} to {}", count(low), count(high)));
                    cells.push(Cell::Figure(range.unwrap_or_else(|| "-".into())));
                }
            }
            cells.push(Cell::Words(causes(run)));
            (run.engine.clone(), cells)
        };
        let mut names: Vec<&str> = COLUMNS.iter().map(|column| column.0).collect();
        if self.rounds() > 1 {
            names.insert(1, "rounds");
        }
        names.push("causes, by the engine's count");
        let rows: Vec<(String, Vec<Cell>)> = runs.iter().map(row).collect();
        body.table(&format!("Stalls of {workload}"), &headings("engine", names), &rows);
    }
}

/// The causes of a run's stalls, as the engine counts them.
fn causes(run: &Run) -> String {
    let mut parts = Vec::new();
    for (name, cause) in &run.stall.by_cause {
        let seconds = cause.seconds.filter(|seconds| *seconds > 0.0);
        let times = cause.count.filter(|times| *times > 0);
        match (times, seconds) {
            (Some(times), Some(seconds)) => {
                parts.push(format!("{name} {times} times, {}\u{a0}s", figure(seconds)))
            }
            (Some(times), None) => parts.push(format!("{name} {times} times")),
            (None, Some(seconds)) => parts.push(format!("{name} {}\u{a0}s", figure(seconds))),
            (None, None) => {}
        }
    }
    match (parts.is_empty(), run.stall.by_cause.is_empty()) {
        (true, true) => "not counted".into(),
        (true, false) => "none".into(),
        _ => parts.join("; "),
    }
}

/// Operations a second and standing time of all engines, in spans of whole windows.
pub(super) fn time_table(body: &mut Html, runs: &[&Run]) {
    let windows = runs.iter().map(|run| run.timeline.len()).max().unwrap_or(0);
    if windows == 0 {
        body.paragraph("There are none.");
        return;
    }
    let group = windows.div_ceil(TIME_ROWS_MAX);
    let names =
        runs.iter().flat_map(|run| [format!("{} ops/s", run.engine), format!("{} gap ms", run.engine)]);
    let row = |at: usize| {
        let cells = runs.iter().flat_map(|run| {
            let chunk = run.timeline.chunks(group).nth(at).unwrap_or_default();
            let (rate, gap) = (rate_of(run, chunk), chunk.iter().map(|point| point.stalled_ms).sum::<f64>());
            [cell(rate, count), cell((!chunk.is_empty()).then_some(gap), |gap| format!("{gap:.0}"))]
        });
        (trim(at as f64 * group as f64 / 10.0), cells.collect::<Vec<Cell>>())
    };
    let rows: Vec<(String, Vec<Cell>)> = (0..windows.div_ceil(group)).map(row).collect();
    body.table("Figures over time", &headings("from s", names), &rows);
}

/// The operations a second of some windows, of which the last may be cut off by the end of the run.
fn rate_of(run: &Run, chunk: &[TimelinePoint]) -> Option<f64> {
    let (first, last) = (chunk.first()?, chunk.last()?);
    let end = (last.t_ms as f64 / 1e3 + 0.1).min(run.seconds);
    let ops: u64 = chunk.iter().map(|point| point.ops).sum();
    Some(ops as f64 / (end - first.t_ms as f64 / 1e3).max(0.001))
}

/// How near each shard came, and for how much of the samples it was not open.
pub(super) fn shard_table(body: &mut Html, run: &Run) {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let row = |shard: usize| {
        let looks = || run.samples.iter().filter_map(move |sample| sample.engine.shards.get(shard));
        let told = looks().count();
        let closed = looks().filter(|look| !look.is_open).count();
        let mut cells: Vec<Cell> =
            MEASURES.iter().map(|measure| cell(highest(run, Some(shard), measure), percent)).collect();
        cells.push(cell((told > 0).then(|| closed as f64 / told as f64), percent));
        cells.push(cell(Some(told as f64), count));
        (shard.to_string(), cells)
    };
    let rows: Vec<(String, Vec<Cell>)> = (0..run.shard_limits.len()).map(row).collect();
    let names = MEASURES.iter().map(|measure| measure.0.to_owned());
    let names = names.chain(["not open".to_owned(), "looks".to_owned()]);
    body.paragraph(&format!(
        "The highest share of each limit, of which the map shows {HEAT_STEPS} steps, and the share of looks at which the \
         shard was not open."
    ));
    body.table("Shards", &headings("shard", names), &rows);
}
