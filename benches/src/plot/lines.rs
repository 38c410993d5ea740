//! One quantity of all engines over time: CPU, memory, bytes moved, disk space.

use super::Sheet;
use super::axis::{Area, Linear, clean, fitted_name, spread, thinned, trim};
use super::svg::{Anchor, Paint, Svg};
use crate::result::{Run, Sample};

/// What is drawn: its name and unit, and its values over ms.
pub(crate) struct Quantity {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    /// What never reaches this is not worth a drawing.
    least: f64,
    values: fn(&Run) -> Vec<(f64, f64)>,
}

const MB: f64 = (1 << 20) as f64;

pub(crate) const QUANTITIES: [Quantity; 5] = [
    Quantity {
        name: "Processors busy",
        unit: "",
        least: 0.0,
        values: |run| rates(run, |sample| sample.cpu_seconds),
    },
    Quantity {
        name: "Memory",
        unit: "MB",
        least: 1.0,
        values: |run| states(run, |sample| sample.rss_bytes as f64 / MB),
    },
    Quantity {
        name: "Written to the device",
        unit: "MB/s",
        least: 1.0,
        values: |run| rates(run, |sample| sample.write_device as f64 / MB),
    },
    Quantity {
        name: "Read from the device",
        unit: "MB/s",
        least: 1.0,
        values: |run| rates(run, |sample| sample.read_device as f64 / MB),
    },
    Quantity { name: "Space on disk", unit: "MB", least: 1.0, values: disk },
];

/// What a running total grows by in a second, at the middle of each span.
fn rates(run: &Run, total: fn(&Sample) -> f64) -> Vec<(f64, f64)> {
    let span = |pair: &[Sample]| {
        let seconds = (pair[1].t_ms as f64 - pair[0].t_ms as f64) / 1e3;
        let rate = (total(&pair[1]) - total(&pair[0])) / seconds;
        // The last span is as long as the run left it, and may be too short to say anything.
        (seconds >= 0.02 && rate.is_finite()).then(|| (pair[0].t_ms as f64 + seconds * 500.0, rate.max(0.0)))
    };
    run.samples.windows(2).filter_map(span).collect()
}

fn states(run: &Run, state: fn(&Sample) -> f64) -> Vec<(f64, f64)> {
    run.samples.iter().map(|sample| (sample.t_ms as f64, state(sample))).collect()
}

/// That of the timed part; the watch goes on until the engine is settled.
fn disk(run: &Run) -> Vec<(f64, f64)> {
    let timed =
        run.disk_timeline.iter().filter(|point| point.t_ms as f64 <= clean(run.seconds) * 1e3 + 200.0);
    timed.map(|point| (point.t_ms as f64, point.bytes as f64 / MB)).collect()
}

impl Quantity {
    /// Its values, by time in ms.
    pub(crate) fn of(&self, run: &Run) -> Vec<(f64, f64)> {
        (self.values)(run)
    }

    /// Whether any run has some that are worth a drawing.
    pub(crate) fn is_told(&self, runs: &[&Run]) -> bool {
        runs.iter().any(|run| self.of(run).iter().any(|(_, value)| *value > self.least))
    }

    pub(crate) fn heading(&self) -> String {
        if self.unit.is_empty() { self.name.to_owned() } else { format!("{}, {}", self.name, self.unit) }
    }
}

/// Engines are told apart by their dashes too.
const DASHES: [&str; 6] = ["none", "7 3", "3 2", "8 3 2 3", "12 4", "4 2"];

/// The drawing.
pub(super) fn lines(sheet: &Sheet<'_>, workload: &str, runs: &[&Run], quantity: &Quantity) -> String {
    let mut svg = sheet.svg();
    let title = format!("{workload}: {}", quantity.heading());
    let top = sheet.heading(&mut svg, &title);
    svg.text((0.0, top + 14.0), 13.0, Anchor::Start, Paint::Ink, &quantity.heading());
    let shown = || (0..runs.len()).filter(|at| !quantity.of(runs[*at]).is_empty());
    let top = if sheet.is_narrow() { legend(sheet, &mut svg, top + 22.0, runs, shown()) } else { top + 26.0 };
    let right = if sheet.is_narrow() { 14.0 } else { 124.0 };
    let area = Area { left: 52.0, top, width: sheet.width - 52.0 - right, height: 130.0 };
    let all: Vec<Vec<(f64, f64)>> = runs.iter().map(|run| quantity.of(run)).collect();
    let most = all.iter().flatten().map(|point| point.1).fold(0.0, f64::max);
    let (scale, seconds) = (Linear::reaching(most, 4.0), super::timeline::longest(runs));
    area.y_axis(&mut svg, scale, trim);
    area.time_axis(&mut svg, Linear::reaching(seconds, 4.0), seconds);
    let mut ends = Vec::new();
    for (index, values) in all.iter().enumerate().filter(|(_, values)| !values.is_empty()) {
        let of = |(t_ms, value): (f64, f64)| (area.x(t_ms / 1e3 / seconds), area.y(value / scale.end));
        let points: Vec<(f64, f64)> =
            thinned(values, (area.width / 2.0) as usize).into_iter().map(of).collect();
        svg.polyline(&points, Paint::Series(index), DASHES[index % DASHES.len()]);
        let last = *points.last().expect("there are values");
        if points.len() == 1 {
            svg.dot(last, 3.0, Paint::Series(index), &runs[index].engine);
        }
        ends.push((index, last.1));
    }
    let labelled = if sheet.is_narrow() { &ends[..0] } else { &ends[..] };
    let wanted: Vec<f64> = labelled.iter().map(|end| end.1).collect();
    for ((index, _), place) in labelled.iter().zip(spread(&wanted, 14.0, area.top + 2.0, area.bottom())) {
        let x = area.right() + 5.0;
        svg.polyline(&[(x, place), (x + 14.0, place)], Paint::Series(*index), DASHES[index % DASHES.len()]);
        let label = fitted_name(&runs[*index].engine, 102.0, 11.0);
        svg.text((x + 18.0, place + 4.0), 11.0, Anchor::Start, Paint::Ink, &label);
    }
    let description = format!("A line for each of {} engines, over the time of the run.", ends.len());
    sheet.finish(svg, area.bottom() + 26.0, &title, &description)
}

/// The engines' names above the drawing, where there is no room beside it; returns where the rest begins.
fn legend(
    sheet: &Sheet<'_>,
    svg: &mut Svg,
    top: f64,
    runs: &[&Run],
    shown: impl Iterator<Item = usize>,
) -> f64 {
    let (mut x, mut y) = (0.0, top + 8.0);
    for index in shown {
        let name = fitted_name(&runs[index].engine, sheet.width - 40.0, 11.0);
        let width = 42.0 + 6.6 * name.chars().count() as f64;
        if x > 0.0 && x + width > sheet.width {
            (x, y) = (0.0, y + 16.0);
        }
        svg.polyline(&[(x + 2.0, y), (x + 22.0, y)], Paint::Series(index), DASHES[index % DASHES.len()]);
        svg.text((x + 27.0, y + 4.0), 11.0, Anchor::Start, Paint::Ink, &name);
        x += width;
    }
    y + 16.0
}
