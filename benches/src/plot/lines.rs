//! One quantity of all engines over time: CPU, memory, bytes moved, disk space.

use super::Sheet;
use super::axis::{Area, Linear, clean, fitted, spread, thinned, trim};
use super::svg::{Anchor, Paint};
use crate::result::{Run, Sample};

/// What is drawn: its name and unit, and its values over ms.
pub(crate) struct Quantity {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    values: fn(&Run) -> Vec<(f64, f64)>,
}

const MB: f64 = (1 << 20) as f64;

pub(crate) const QUANTITIES: [Quantity; 5] = [
    Quantity { name: "Processors busy", unit: "", values: |run| rates(run, |sample| sample.cpu_seconds) },
    Quantity { name: "Memory", unit: "MB", values: |run| states(run, |sample| sample.rss_bytes as f64 / MB) },
    Quantity {
        name: "Written to the device",
        unit: "MB/s",
        values: |run| rates(run, |sample| sample.write_device as f64 / MB),
    },
    Quantity {
        name: "Read from the device",
        unit: "MB/s",
        values: |run| rates(run, |sample| sample.read_device as f64 / MB),
    },
    Quantity { name: "Space on disk", unit: "MB", values: disk },
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

    /// Whether any run has some that are not 0.
    pub(crate) fn is_told(&self, runs: &[&Run]) -> bool {
        runs.iter().any(|run| self.of(run).iter().any(|(_, value)| *value > 0.0))
    }

    pub(crate) fn heading(&self) -> String {
        if self.unit.is_empty() { self.name.to_owned() } else { format!("{}, {}", self.name, self.unit) }
    }
}

/// Engines are told apart by their dashes too.
const DASHES: [&str; 6] = ["none", "7 3", "2 3", "8 3 2 3", "12 4", "4 2"];

/// The drawing.
pub(super) fn lines(sheet: &Sheet<'_>, workload: &str, runs: &[&Run], quantity: &Quantity) -> String {
    let mut svg = sheet.svg();
    let title = format!("{workload}: {}", quantity.heading());
    let top = sheet.heading(&mut svg, &title);
    svg.text((0.0, top + 14.0), 13.0, Anchor::Start, Paint::Ink, &quantity.heading());
    let area = Area { left: 52.0, top: top + 26.0, width: sheet.width - 52.0 - 96.0, height: 130.0 };
    let all: Vec<Vec<(f64, f64)>> = runs.iter().map(|run| quantity.of(run)).collect();
    let most = all.iter().flatten().map(|point| point.1).fold(0.0, f64::max);
    let (scale, seconds) = (Linear::reaching(most, 3.0), super::timeline::longest(runs));
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
    let wanted: Vec<f64> = ends.iter().map(|end| end.1).collect();
    for ((index, _), place) in ends.iter().zip(spread(&wanted, 14.0, area.top + 2.0, area.bottom())) {
        let x = area.right() + 5.0;
        svg.polyline(&[(x, place), (x + 14.0, place)], Paint::Series(*index), DASHES[index % DASHES.len()]);
        let label = fitted(&runs[*index].engine, 74.0, 11.0);
        svg.text((x + 18.0, place + 4.0), 11.0, Anchor::Start, Paint::Ink, &label);
    }
    let description = format!("A line for each of {} engines, over the time of the run.", ends.len());
    sheet.finish(svg, area.bottom() + 26.0, &title, &description)
}
