//! The sections of the page, one a workload: each part says in words what is to be seen, shows it, and has the
//! figures below.

use super::Origin;
use super::html::{Cell, Html, anchor};
use super::tables::{shard_table, time_table};
use crate::plot::{QUANTITIES, Sheet, Theme, has_pressure, lanes, metric_group, microseconds, typical_runs};
use crate::report::{Figures, count, figure, megabytes};
use crate::result::Run;

const WIDE: f64 = 860.0;
const NARROW: f64 = 340.0;
/// For two drawings beside each other.
const HALF: f64 = 450.0;

/// If no more sentences say what stands out, they are at the top, else with each workload.
const FINDINGS_MAX: usize = 9;
/// A page of so many workloads has the drawings of each folded away.
const FOLDED_FROM: usize = 7;

pub(super) struct Page<'a> {
    pub(super) figures: &'a Figures<'a>,
    pub(super) engines: &'a [String],
    pub(super) workloads: &'a [String],
    pub(super) origins: &'a [Origin],
}

/// A column of the comparison: heading, metric, and how a figure of it is written.
pub(super) type Column = (&'static str, &'static str, fn(f64) -> String);

const AMPLIFICATION: [(&str, &str); 3] = [
    ("write_amp", "Write amplification"),
    ("read_amp", "Read amplification"),
    ("space_amp", "Space amplification"),
];

pub(super) fn cell(value: Option<f64>, show: fn(f64) -> String) -> Cell {
    Cell::Figure(value.filter(|value| value.is_finite()).map_or_else(|| "-".into(), show))
}

pub(super) fn headings(first: &str, others: impl IntoIterator<Item = impl Into<String>>) -> Vec<String> {
    std::iter::once(first.to_owned()).chain(others.into_iter().map(Into::into)).collect()
}

pub(super) fn joined(names: &[String]) -> String {
    match names {
        [] => "nothing".into(),
        [one] => one.clone(),
        [all @ .., last] => format!("{} and {last}", all.join(", ")),
    }
}

/// A drawing for wide windows and one for narrow.
pub(super) fn both(body: &mut Html, id: &str, draw: impl Fn(&Sheet<'_>) -> String) {
    both_of(body, id, WIDE, draw);
}

fn both_of(body: &mut Html, id: &str, wide: f64, draw: impl Fn(&Sheet<'_>) -> String) {
    for (class, width) in [("wide", wide), ("narrow", NARROW)] {
        let id = format!("{id}-{class}");
        body.raw(&format!("<div class=\"{class}\">\n"));
        body.raw(&draw(&Sheet { theme: Theme::Page, width, id: &id }));
        body.raw("</div>\n");
    }
}

impl Page<'_> {
    /// Whether what stands out is told at the top.
    pub(super) fn is_brief(&self) -> bool {
        self.pairs().count() <= FINDINGS_MAX
    }

    pub(super) fn rounds(&self) -> u32 {
        self.figures.report.runs.iter().map(|run| run.round).max().unwrap_or(0)
    }

    /// Workloads with the engines that ran them.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&String, &String)> {
        let all = self.workloads.iter().flat_map(|workload| self.engines.iter().map(move |e| (workload, e)));
        all.filter(|(workload, engine)| {
            self.figures.report.runs.iter().any(|run| run.workload == **workload && run.engine == **engine)
        })
    }

    pub(super) fn workload(&self, body: &mut Html, at: usize, workload: &str) {
        body.heading("h2", &anchor(at), workload);
        let runs = typical_runs(self.figures.report, workload, self.engines);
        body.class("p", "muted", &how(&runs));
        if !self.is_brief() {
            body.list("findings", &self.findings(Some(workload)));
        }
        let drawings = |body: &mut Html| {
            self.throughput(body, at, workload, &runs);
            self.pressure(body, at, workload, &runs);
            self.latency(body, at, workload, &runs);
            self.resources(body, at, workload, &runs);
            self.amplification(body, at, workload);
        };
        if self.workloads.len() >= FOLDED_FROM {
            body.details(&format!("Curves and figures of {workload}"), drawings);
        } else {
            drawings(body);
        }
    }

    fn throughput(&self, body: &mut Html, at: usize, workload: &str, runs: &[&Run]) {
        body.element("h3", "Throughput and stalls");
        let lanes_told = runs.iter().any(|run| !lanes(run).is_empty());
        let mut text = String::from(
            "All panels have the same scales. Shaded is the time in which no write of any thread completed.",
        );
        if lanes_told {
            text += " The rows below a panel are the engine's own account of why writers waited: the higher, the more of \
                     the time.";
        }
        body.raw("<figure>\n<figcaption>\n");
        body.paragraph(&text);
        for what in [NOT_SAMPLED, DOOR_ONLY, NOTHING_TOLD] {
            let is_it = |run: &&&Run| untold_of_stalls(run) == Some(what);
            let names: Vec<String> = runs.iter().filter(is_it).map(|run| run.engine.clone()).collect();
            if !names.is_empty() {
                body.class("p", "muted", &format!("{}: {what}", joined(&names)));
            }
        }
        body.raw("</figcaption>\n");
        both(body, &format!("throughput-{at}"), |sheet| sheet.throughput(workload, runs));
        body.raw("</figure>\n");
        self.stall_table(body, workload, runs);
        body.details("Figures over time", |body| time_table(body, runs));
    }

    fn pressure(&self, body: &mut Html, at: usize, workload: &str, runs: &[&Run]) {
        body.element("h3", "Pressure on shards");
        let told: Vec<&&Run> = runs.iter().filter(|run| has_pressure(run)).collect();
        let untold: Vec<String> =
            runs.iter().filter(|run| !has_pressure(run)).map(|run| run.engine.clone()).collect();
        if !told.is_empty() {
            body.paragraph(
                "How much of its limit each shard had used: at the limit, writes to it stop. An engine without shards has \
                 one row. The line at the foot of a cell marks when writes that belong there were slowed down, stopped or \
                 sent elsewhere; DiaLSM does so before memtables are full, since the last one grows only as its flush \
                 gets on.",
            );
        }
        if !untold.is_empty() {
            body.class(
                "p",
                "muted",
                &format!(
                    "Not told, or not recorded, by {}. DiaLSM tells it while it routes writes with redirecting on.",
                    joined(&untold)
                ),
            );
        }
        if !told.is_empty() {
            both(body, &format!("pressure-{at}-key"), |sheet| sheet.pressure_key());
        }
        for (nth, run) in told.into_iter().enumerate() {
            body.raw("<figure>\n<figcaption>\n");
            body.class("p", "name", &run.engine);
            body.raw("</figcaption>\n");
            both(body, &format!("pressure-{at}-{nth}"), |sheet| sheet.pressure(workload, run));
            body.raw("</figure>\n");
            body.details("Figures by shard", |body| shard_table(body, run));
        }
    }

    fn latency(&self, body: &mut Html, at: usize, workload: &str, runs: &[&Run]) {
        body.element("h3", "Latency");
        if runs.iter().all(|run| run.latency_curve.is_empty()) {
            body.class("p", "muted", "No latencies were recorded.");
            return;
        }
        body.raw("<figure>\n<figcaption>\n");
        body.paragraph(
            "The further a curve stays down towards the right, the rarer are slow operations. Both axes go by powers of \
             ten; the last point is the slowest operation of all.",
        );
        body.raw("</figcaption>\n");
        both(body, &format!("latency-{at}"), |sheet| sheet.latency(workload, runs));
        body.raw("</figure>\n");
        let rows = runs.iter().flat_map(|run| {
            run.latency_us.keys().map(|kind| {
                let of = |part: &str| {
                    let metric = format!("latency_us.{kind}.{part}");
                    cell(self.figures.median(workload, &run.engine, &metric), microseconds)
                };
                let counted = self.figures.median(workload, &run.engine, &format!("latency_us.{kind}.count"));
                let mut cells: Vec<Cell> = ["mean", "p50", "p99", "p999", "p9999", "max"].map(of).into();
                cells.push(cell(counted, count));
                (format!("{} {kind}", run.engine), cells)
            })
        });
        let rows: Vec<(String, Vec<Cell>)> = rows.collect();
        let names = ["mean", "p50", "p99", "p99.9", "p99.99", "max", "count"];
        body.table(&format!("Latencies of {workload}"), &headings("engine, kind", names), &rows);
    }

    fn resources(&self, body: &mut Html, at: usize, workload: &str, runs: &[&Run]) {
        body.element("h3", "CPU, memory and disk");
        let told = QUANTITIES.iter().filter(|quantity| quantity.is_told(runs)).enumerate();
        body.raw("<figure>\n<figcaption>\n");
        body.paragraph(
            "Of the process that ran the engine and made the keys and values. The curves end with the timed part; the \
             figures below go on until the engine had settled.",
        );
        if runs.iter().any(|run| run.samples.is_empty()) {
            body.class("p", "muted", &unsampled(runs));
        }
        body.raw("</figcaption>\n<div class=\"grid\">\n");
        for (nth, quantity) in told {
            let id = format!("lines-{at}-{nth}");
            body.raw("<div>\n");
            both_of(body, &id, HALF, |sheet| sheet.lines(workload, runs, quantity));
            body.raw("</div>\n");
        }
        body.raw("</div>\n</figure>\n");
        const COLUMNS: [Column; 9] = [
            ("CPU s", "cpu_seconds", figure),
            ("of it system s", "cpu_system_seconds", figure),
            ("machine s", "machine_cpu_seconds", figure),
            ("peak memory MB", "peak_rss_bytes", megabytes),
            ("written MB", "kernel.write_device", megabytes),
            ("read MB", "kernel.read_device", megabytes),
            ("peak on disk MB", "disk_peak_bytes", megabytes),
            ("debt at the end MB", "debt_bytes", megabytes),
            ("settling s", "settle_seconds", figure),
        ];
        let row = |run: &&Run| {
            let of = |column: &Column| cell(self.figures.median(workload, &run.engine, column.1), column.2);
            (run.engine.clone(), COLUMNS.iter().map(of).collect())
        };
        let rows: Vec<(String, Vec<Cell>)> = runs.iter().map(row).collect();
        let names = COLUMNS.iter().map(|column| column.0);
        body.table(&format!("Resources of {workload}"), &headings("engine", names), &rows);
    }

    fn amplification(&self, body: &mut Html, at: usize, workload: &str) {
        let groups = AMPLIFICATION
            .iter()
            .map(|(metric, heading)| metric_group(self.figures, (workload, heading), metric, self.engines));
        let groups: Vec<_> = groups.filter(|group| !group.bars.is_empty()).collect();
        if groups.is_empty() {
            return;
        }
        body.element("h3", "Amplification");
        body.raw("<figure>\n<figcaption>\n");
        body.paragraph("Write: bytes written until the engine had settled, by bytes the user wrote. Read: bytes read by calls in the \
             timed part, by bytes the user read. Space: bytes on disk once settled, by bytes of live entries. Shorter is \
             better; each group has a scale of its own.",
        );
        body.raw("</figcaption>\n");
        let title = format!("{workload}: amplification");
        both(body, &format!("amplification-{at}"), |sheet| sheet.bars(&title, &groups));
        body.raw("</figure>\n");
        let row = |engine: &String| {
            let of = |(metric, _): &(&str, &str)| cell(self.figures.median(workload, engine, metric), figure);
            (engine.clone(), AMPLIFICATION.iter().map(of).collect::<Vec<Cell>>())
        };
        let rows: Vec<(String, Vec<Cell>)> = self.engines.iter().map(row).collect();
        body.details("Figures", |body| {
            body.table(
                &format!("Amplification of {workload}"),
                &headings("engine", ["write", "read", "space"]),
                &rows,
            );
        });
    }
}

/// What was asked of all engines.
fn how(runs: &[&Run]) -> String {
    let Some(run) = runs.first() else { return String::new() };
    let rate = run.rate.map_or_else(
        || "closed loop".to_owned(),
        |rate| format!("open loop at {} arrivals a second", count(rate)),
    );
    let threads = if run.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", run.threads) };
    format!(
        "{} operations a round by {threads}, {} bytes an entry, {rate}.",
        count(run.ops as f64),
        run.entry_bytes
    )
}

const NOT_SAMPLED: &str = "nothing was looked at during the run, so there are no rows of causes.";
const DOOR_ONLY: &str = "whether writes are slowed down or stopped is told meanwhile, but not why; causes are counted at \
                         the end.";
const NOTHING_TOLD: &str = "when and why writers wait is not told; the shading is all there is.";

/// What there is not to see of an engine's stalls.
fn untold_of_stalls(run: &Run) -> Option<&'static str> {
    let tells = |what: fn(&crate::engine::Look) -> bool| run.samples.iter().any(|s| what(&s.engine));
    match run.samples.is_empty() {
        true => Some(NOT_SAMPLED),
        false if tells(|look| look.stall_seconds.is_some()) => None,
        false if tells(|look| look.door.is_some()) => Some(DOOR_ONLY),
        false => Some(NOTHING_TOLD),
    }
}

fn unsampled(runs: &[&Run]) -> String {
    let names: Vec<String> =
        runs.iter().filter(|run| run.samples.is_empty()).map(|run| run.engine.clone()).collect();
    format!("Of {} nothing was looked at during the run.", joined(&names))
}
