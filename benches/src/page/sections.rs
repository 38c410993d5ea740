//! What stands on the page, from top to bottom: each part says in words what is to be seen, shows it, and has the
//! figures below.

use super::Origin;
use super::html::{Cell, Html, anchor};
use crate::environment::{Environment, date};
use crate::plot::{
    HEAT_STEPS, MEASURES, QUANTITIES, Sheet, Theme, comparison, has_pressure, highest, lanes, metric_group,
    microseconds, short, trim, typical_runs,
};
use crate::report::{Figures, count, figure, megabytes};
use crate::result::{Run, TimelinePoint};

const WIDE: f64 = 860.0;
const NARROW: f64 = 340.0;
/// For two drawings beside each other.
const HALF: f64 = 450.0;

/// More workloads or engines than this are not named in the title.
const FEW: usize = 3;
/// If no more sentences say what stands out, they are at the top, else with each workload.
const FINDINGS_MAX: usize = 9;
/// A page of so many workloads has the drawings of each folded away.
const FOLDED_FROM: usize = 7;
/// Rows of the table of figures over time.
const TIME_ROWS_MAX: usize = 60;

pub(super) struct Page<'a> {
    pub(super) figures: &'a Figures<'a>,
    pub(super) engines: &'a [String],
    pub(super) workloads: &'a [String],
    pub(super) origins: &'a [Origin],
}

/// A column of the comparison: heading, metric, and how a figure of it is written.
type Column = (&'static str, &'static str, fn(f64) -> String);

const OVERVIEW: [Column; 9] = [
    ("ops/s", "ops_per_sec", count),
    ("gaps s", "stall.gap_seconds", figure),
    ("longest gap ms", "stall.longest_gap_ms", figure),
    ("write p99 µs", "latency_us.write.p99", figure),
    ("read p99 µs", "latency_us.read.p99", figure),
    ("write amp.", "write_amp", figure),
    ("space amp.", "space_amp", figure),
    ("CPU s", "cpu_seconds", figure),
    ("peak MB", "peak_rss_bytes", megabytes),
];

const AMPLIFICATION: [(&str, &str); 3] = [
    ("write_amp", "Write amplification"),
    ("read_amp", "Read amplification"),
    ("space_amp", "Space amplification"),
];

fn cell(value: Option<f64>, show: fn(f64) -> String) -> Cell {
    Cell::Figure(value.filter(|value| value.is_finite()).map_or_else(|| "-".into(), show))
}

fn headings(first: &str, others: impl IntoIterator<Item = impl Into<String>>) -> Vec<String> {
    std::iter::once(first.to_owned()).chain(others.into_iter().map(Into::into)).collect()
}

fn joined(names: &[String]) -> String {
    match names {
        [] => "nothing".into(),
        [one] => one.clone(),
        [all @ .., last] => format!("{} and {last}", all.join(", ")),
    }
}

/// A drawing for wide windows and one for narrow.
fn both(body: &mut Html, id: &str, draw: impl Fn(&Sheet<'_>) -> String) {
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
    pub(super) fn title(&self) -> String {
        let named = |names: &[String], what: &str| match names.len() {
            count if count > FEW => format!("{count} {what}"),
            _ => joined(names),
        };
        format!("{} on {}", named(self.workloads, "workloads"), named(self.engines, "engines"))
    }

    /// Whether what stands out is told at the top.
    fn is_brief(&self) -> bool {
        self.pairs().count() <= FINDINGS_MAX
    }

    fn rounds(&self) -> u32 {
        self.figures.report.runs.iter().map(|run| run.round).max().unwrap_or(0)
    }

    pub(super) fn introduction(&self, body: &mut Html) {
        let when: Vec<String> = self
            .origins
            .iter()
            .filter_map(|origin| origin.environment.as_ref())
            .map(|environment| date(environment.unix_seconds).replace('-', "\u{2011}").replace(' ', "\u{a0}"))
            .collect();
        let when = if when.is_empty() { String::new() } else { format!("Run on {}. ", joined(&when)) };
        let rounds = match self.rounds() {
            0 | 1 => "One round of each engine.".to_owned(),
            rounds => format!(
                "Medians of {rounds} rounds; the curves show, of each engine, the round nearest to its median."
            ),
        };
        body.class("p", "muted", &(when + &rounds));
        // Those of several files stand with what else is told of each.
        if let [origin] = self.origins {
            command(body, origin);
        }
    }

    /// What the first engine's own two runs say about chance.
    fn chance(&self) -> String {
        let known = self.workloads.iter().any(|name| self.figures.spread(name, "ops_per_sec").is_some());
        let first = self.engines.first().map_or("", String::as_str);
        let mut text = match known {
            true => format!(
                "The shaded band is the A/A spread: {first} ran twice a round, and its own two runs lay that far \
                 apart{}. A ratio no further from 1 counts as equal.",
                if self.rounds() > 1 {
                    ", in the worst round"
                } else {
                    ", in one round: another may show more"
                }
            ),
            false => {
                "No engine ran twice a round, so how far equals lie apart is not known (--aa).".to_owned()
            }
        };
        if self.engines.len() > 1 {
            text += " In brackets: the first engine's figure by this one's, median of the rounds.";
        }
        if self.rounds() > 1 {
            text += " Thin lines span the rounds.";
        }
        if self.origins.len() > 1 {
            text += " Engines of different files did not take turns: their ratios are those of their medians, and what \
                     drifted on the machine between the runs is in them.";
        }
        text
    }

    pub(super) fn overview(&self, body: &mut Html) {
        body.heading("h2", "overview", "Comparison");
        if self.is_brief() {
            body.list("findings", &self.findings(None));
        }
        body.raw("<figure>\n<figcaption>\n");
        body.class("p", "muted", &self.chance());
        body.raw("</figcaption>\n");
        let groups = comparison(self.figures, self.engines);
        let title = "Operations a second, median over the rounds";
        both(body, "comparison", |sheet| sheet.bars(title, &groups));
        body.raw("</figure>\n");
        let columns: Vec<&Column> = OVERVIEW
            .iter()
            .filter(|(_, metric, _)| {
                // The first, which the ratios are of, is there always.
                *metric == OVERVIEW[0].1
                    || self
                        .pairs()
                        .any(|(workload, engine)| self.figures.median(workload, engine, metric).is_some())
            })
            .collect();
        let (first, others) = columns.split_at(1);
        let name = |column: &&Column| column.0;
        let names = first.iter().map(name).chain(["ratio", "A/A", "verdict"]).chain(others.iter().map(name));
        let rows: Vec<(String, Vec<Cell>)> =
            self.pairs().map(|(workload, engine)| self.overview_row(workload, engine, &columns)).collect();
        body.table("Medians by workload and engine", &headings("workload, engine", names), &rows);
        body.class(
            "p",
            "muted",
            "Ratio: operations a second of the first engine by those of this one, median of the rounds. Gaps: spans of \
             10 ms or more in which no write of any thread completed.",
        );
    }

    /// Workloads with the engines that ran them.
    fn pairs(&self) -> impl Iterator<Item = (&String, &String)> {
        let all = self.workloads.iter().flat_map(|workload| self.engines.iter().map(move |e| (workload, e)));
        all.filter(|(workload, engine)| {
            self.figures.report.runs.iter().any(|run| run.workload == **workload && run.engine == **engine)
        })
    }

    fn overview_row(&self, workload: &str, engine: &str, columns: &[&Column]) -> (String, Vec<Cell>) {
        let figure_of =
            |(_, metric, show): &&Column| cell(self.figures.median(workload, engine, metric), *show);
        let (first, others) = columns.split_at(1);
        let mut cells: Vec<Cell> = first.iter().map(figure_of).collect();
        let ratio = self.figures.ratio_to(workload, engine, "ops_per_sec");
        let spread = self.figures.spread(workload, "ops_per_sec");
        cells.push(cell(ratio, |ratio| format!("{}×", figure(ratio))));
        cells.push(cell(spread, |spread| format!("{}×", figure(spread))));
        let verdict = ratio.map(|ratio| self.verdict(workload, ratio).to_owned());
        cells.push(Cell::Figure(verdict.unwrap_or_else(|| "-".into())));
        cells.extend(others.iter().map(figure_of));
        (format!("{workload}, {engine}"), cells)
    }

    /// What a ratio of the first engine to another means for the other.
    fn verdict(&self, workload: &str, ratio: f64) -> &'static str {
        match ratio {
            ratio if self.figures.is_equal(workload, "ops_per_sec", ratio) => "equal",
            ratio if ratio > 1.0 => "slower",
            ratio if ratio < 1.0 => "faster",
            _ => "equal",
        }
    }

    /// A sentence a workload and engine about what stands out.
    fn findings(&self, only: Option<&str>) -> Vec<String> {
        let mut found = Vec::new();
        for (workload, engine) in self.pairs().filter(|pair| only.is_none_or(|only| pair.0 == only)) {
            let of = |metric: &str| self.figures.median(workload, engine, metric);
            let Some(ops) = of("ops_per_sec") else { continue };
            let whose = if only.is_some() { engine.clone() } else { format!("{workload}, {engine}") };
            let mut text = format!("{whose}: {} operations a second", short(ops));
            if let Some(ratio) = self.figures.ratio_to(workload, engine, "ops_per_sec") {
                let first = &self.engines[0];
                text += &match self.verdict(workload, ratio) {
                    "equal" => format!(", the same as {first} as far as this run can tell"),
                    "slower" => format!("; {first} did {} times as many", figure(ratio)),
                    _ => format!(", {} times as many as {first}", figure(1.0 / ratio)),
                };
            }
            let share = of("stall.gap_seconds").zip(of("seconds")).filter(|(gaps, _)| *gaps > 0.0);
            if let Some((gaps, seconds)) = share {
                text += &format!(
                    ". No write completed for {} s, {} % of the time",
                    figure(gaps),
                    trim(100.0 * gaps / seconds.max(0.001))
                );
                text += &of("stall.longest_gap_ms")
                    .map(|longest| format!(", at most {} ms at a time", trim(longest)))
                    .unwrap_or_default();
            }
            if let Some(share) = of("routing.redirected_share").filter(|share| *share > 0.0) {
                text += &format!(". {} % of the writes were redirected", trim(100.0 * share));
            }
            found.push(text + ".");
        }
        found
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

    fn stall_table(&self, body: &mut Html, workload: &str, runs: &[&Run]) {
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

    pub(super) fn provenance(&self, body: &mut Html) {
        body.heading("h2", "provenance", "How it was measured");
        body.paragraph(
            "Engines take turns, each engine and round in a process of its own on the system's allocator, with the same \
             calls, totals and threads.",
        );
        for origin in self.origins {
            if let Some(file) = &origin.file {
                body.element("h3", &format!("File {file}"));
            }
            if self.origins.len() > 1 {
                command(body, origin);
            }
            match &origin.environment {
                Some(environment) => body.table(
                    "Environment",
                    &headings("environment", ["as found"]),
                    &environment_rows(environment),
                ),
                None => body.class("p", "muted", "The environment was not recorded."),
            }
            if origin.generator_ops_per_sec > 0.0 {
                body.paragraph(&format!(
                    "Keys and values alone: {} a second on one thread.",
                    count(origin.generator_ops_per_sec)
                ));
            }
        }
        body.paragraph(&self.cost_of_sampling());
        body.element("h3", "Options in effect");
        for engine in self.engines {
            if let Some(run) = self.figures.report.runs.iter().find(|run| run.engine == *engine) {
                body.details(engine, |body| body.literal(&run.options));
            }
        }
    }

    /// The highest share of a run that looking took, of one processor.
    fn cost_of_sampling(&self) -> String {
        let of_run = |run: &Run| Some((run.sampling_seconds? / run.seconds, run.samples.len()));
        let all = self.figures.report.runs.iter().filter_map(of_run);
        let most = all.filter(|(share, _)| share.is_finite()).max_by(|a, b| a.0.total_cmp(&b.0));
        match most {
            Some((share, looks)) => format!(
                "Stalls, shards, CPU, memory and bytes were looked at by a thread of the engine's process. In the run where \
                 that took most, {looks} looks took {} % of the time, waiting for locks and processors included.",
                trim(100.0 * share)
            ),
            None => "Nothing was looked at during the runs, so there is less to see over time.".into(),
        }
    }
}

fn command(body: &mut Html, origin: &Origin) {
    match origin.command.is_empty() {
        true => body.class("p", "muted", "The command was not recorded."),
        false => body.command(&shell_words(&origin.command)),
    }
}

/// The command as a shell takes it.
fn shell_words(words: &[String]) -> Vec<String> {
    let quoted = |word: &String| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=+:,./@%".contains(c);
        match word.is_empty() || !word.chars().all(is_plain) {
            true => format!("'{}'", word.replace('\'', "'\\''")),
            false => word.clone(),
        }
    };
    words.iter().map(quoted).collect()
}

fn environment_rows(environment: &Environment) -> Vec<(String, Vec<Cell>)> {
    let processors = format!("{}, {} processors", environment.cpu, environment.processors);
    let memory = format!("{} GiB", figure(environment.memory_bytes as f64 / (1u64 << 30) as f64));
    let revision = match environment.revision.as_str() {
        "" => "not known".to_owned(),
        revision => format!("{revision} (changes on top of it do not show)"),
    };
    let all = [
        ("begun", date(environment.unix_seconds)),
        ("CPU", processors),
        ("memory", memory),
        ("kernel", environment.kernel.clone()),
        ("file system", environment.file_system.clone()),
        ("program", environment.program.clone()),
        ("revision", revision),
        ("compiler", environment.compiler.clone()),
    ];
    all.into_iter().map(|(name, value)| (name.to_owned(), vec![Cell::Words(value)])).collect()
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
fn time_table(body: &mut Html, runs: &[&Run]) {
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
fn shard_table(body: &mut Html, run: &Run) {
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
