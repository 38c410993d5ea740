//! Drawings of a report, as SVG written by hand: each as a file of its own, or for the page of a report.
//!
//! ```text
//!   throughput-<workload>.svg         operations a second over time, an engine a panel, stalls and their causes
//!   pressure-<workload>-<engine>.svg  how near each shard is to its stop, as a heat map
//!   latency-<workload>.svg            latency by share of operations, both axes by powers of ten
//!   comparison.svg                    median operations a second as bars, an engine a colour
//!   (page only)                       CPU, memory, bytes moved and disk space over time; amplification
//! ```
//! Colours alone carry nothing: every line and bar is labelled too, and causes have patterns.

mod axis;
mod bars;
mod latency;
mod lines;
mod pressure;
mod svg;
mod timeline;

pub(crate) use axis::{short, trim};
pub(crate) use bars::{Bar, Group};
pub(crate) use latency::microseconds;
pub(crate) use lines::{QUANTITIES, Quantity};
pub(crate) use pressure::{MEASURES, highest, is_told as has_pressure};
pub(crate) use svg::{HEAT_STEPS, Theme, escape, light_colours, patterns};
pub(crate) use timeline::lanes;

use crate::report::{Figures, figure};
use crate::result::{Report, Run};
use crate::stats::{median, workloads};
use anyhow::Result;
use std::path::Path;
use svg::{Anchor, Caption, Paint, Svg};

/// A drawing's place, width in units (each a pixel or more), and name.
pub(crate) struct Sheet<'a> {
    pub(crate) theme: Theme,
    pub(crate) width: f64,
    pub(crate) id: &'a str,
}

const WIDE: f64 = 920.0;

impl Sheet<'_> {
    fn is_narrow(&self) -> bool {
        self.width < 400.0
    }

    fn svg(&self) -> Svg {
        Svg::new(self.theme, self.width)
    }

    /// Writes the title, which in a page stands above the drawing; returns where the rest begins.
    fn heading(&self, svg: &mut Svg, title: &str) -> f64 {
        if self.theme == Theme::Page {
            return 0.0;
        }
        svg.text((4.0, 24.0), 16.0, Anchor::Start, Paint::Ink, title);
        40.0
    }

    fn finish(&self, svg: Svg, height: f64, title: &str, description: &str) -> String {
        svg.finish(height, &Caption { id: self.id, title, description })
    }

    /// Names of colours in as many rows as they need; returns where those end.
    fn legend(&self, svg: &mut Svg, top: f64, entries: &[(Paint, String)]) -> f64 {
        let (mut x, mut y) = (2.0, top + 8.0);
        for (paint, name) in entries {
            let width = 22.0 + 6.6 * name.chars().count() as f64 + 14.0;
            if x > 2.0 && x + width > self.width {
                (x, y) = (2.0, y + 19.0);
            }
            svg.rect((x, y), (14.0, 12.0), *paint, 1.0, "");
            svg.line((x, y + 12.5), (x + 14.0, y + 12.5), Paint::Axis);
            svg.text((x + 20.0, y + 10.5), axis::SMALL, Anchor::Start, Paint::Ink, name);
            x += width;
        }
        y + 22.0
    }

    pub(crate) fn throughput(&self, workload: &str, runs: &[&Run]) -> String {
        timeline::throughput(self, workload, runs)
    }

    pub(crate) fn pressure(&self, workload: &str, run: &Run) -> String {
        pressure::pressure(self, workload, run)
    }

    pub(crate) fn pressure_key(&self) -> String {
        pressure::key(self)
    }

    pub(crate) fn latency(&self, workload: &str, runs: &[&Run]) -> String {
        latency::latency(self, workload, runs)
    }

    pub(crate) fn lines(&self, workload: &str, runs: &[&Run], quantity: &Quantity) -> String {
        lines::lines(self, workload, runs, quantity)
    }

    pub(crate) fn bars(&self, title: &str, groups: &[Group]) -> String {
        bars::bars(self, title, groups)
    }
}

/// Writes every drawing into `dir`, which is made.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn write_all(report: &Report, engines: &[String], dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir)?;
    let sheet = Sheet { theme: Theme::File, width: WIDE, id: "drawing" };
    let plain = |name: &str| name.replace(['#', '/', ':', ' '], "-");
    for workload in workloads(&report.runs) {
        let runs = typical_runs(report, &workload, engines);
        let file = plain(&workload);
        std::fs::write(dir.join(format!("throughput-{file}.svg")), sheet.throughput(&workload, &runs))?;
        std::fs::write(dir.join(format!("latency-{file}.svg")), sheet.latency(&workload, &runs))?;
        for run in runs.iter().filter(|run| has_pressure(run)) {
            let name = format!("pressure-{file}-{}.svg", plain(&run.engine));
            std::fs::write(dir.join(name), sheet.pressure(&workload, run))?;
        }
    }
    let title = "Operations a second, median over the rounds";
    std::fs::write(
        dir.join("comparison.svg"),
        sheet.bars(title, &comparison(&Figures::new(report), engines)),
    )?;
    Ok(())
}

/// Of each engine the run whose throughput is nearest the median.
pub(crate) fn typical_runs<'a>(report: &'a Report, workload: &str, engines: &[String]) -> Vec<&'a Run> {
    let typical = |engine: &String| {
        let of_engine = || report.runs.iter().filter(|run| run.workload == workload && run.engine == *engine);
        let middle = median(&of_engine().map(|run| run.ops_per_sec).collect::<Vec<_>>())?;
        let distance = |run: &Run| (run.ops_per_sec - middle).abs();
        of_engine().min_by(|a, b| distance(a).total_cmp(&distance(b)))
    };
    engines.iter().filter_map(typical).collect()
}

/// Operations a second by workload, each on a scale of its own.
pub(crate) fn comparison(figures: &Figures<'_>, engines: &[String]) -> Vec<Group> {
    let names = workloads(&figures.report.runs);
    names.iter().map(|workload| metric_group(figures, (workload, workload), "ops_per_sec", engines)).collect()
}

/// The medians of a metric, which is nothing where no engine has it.
pub(crate) fn metric_group(
    figures: &Figures<'_>,
    (workload, heading): (&str, &str),
    metric: &str,
    engines: &[String],
) -> Group {
    let bar = |(index, engine): (usize, &String)| {
        let value = figures.median(workload, engine, metric)?;
        let range = figures.range(workload, engine, metric);
        let ratio = figures.ratio_to(workload, engine, metric).filter(|_| index > 0);
        let ratio = ratio.map(|ratio| format!(" ({}×)", figure(ratio)));
        let label = format!("{}{}", short(value), ratio.unwrap_or_default());
        Some(Bar { index, engine: engine.clone(), value, range, label })
    };
    let bars: Vec<Bar> = engines.iter().enumerate().filter_map(bar).collect();
    let spread = figures.spread(workload, metric);
    let first = bars.iter().find(|bar| bar.index == 0).map(|bar| bar.value);
    let equal = first.zip(spread).map(|(value, spread)| (value / spread, value * spread));
    Group { heading: heading.to_owned(), equal, bars }
}

#[cfg(test)]
mod tests;
