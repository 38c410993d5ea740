//! The top of the page: what was run, and how the engines compare.

use super::html::{Cell, Html};
use super::provenance::command;
use super::sections::{Column, Page, both, cell, headings, joined};
use crate::environment::date;
use crate::plot::{comparison, short, trim};
use crate::report::{count, figure, megabytes};

/// More workloads or engines than this are not named in the title.
const FEW: usize = 3;

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

impl Page<'_> {
    pub(super) fn title(&self) -> String {
        let named = |names: &[String], what: &str| match names.len() {
            count if count > FEW => format!("{count} {what}"),
            _ => joined(names),
        };
        format!("{} on {}", named(self.workloads, "workloads"), named(self.engines, "engines"))
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
    pub(super) fn findings(&self, only: Option<&str>) -> Vec<String> {
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
}
