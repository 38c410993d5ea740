//! Latency by share of operations: every step to the right is a tenth of the operations left over, every step up ten
//! times the time.

use super::Sheet;
use super::axis::{Area, SMALL, fitted_name, spread, trim};
use super::svg::{Anchor, Paint, Svg};
use crate::result::Run;

/// One kind of operation of one engine, with its points in powers of ten.
struct Curve {
    index: usize,
    engine: String,
    kind: String,
    dashes: &'static str,
    points: Vec<(f64, f64)>,
}

impl Curve {
    /// Its name, no wider than `width`.
    fn label(&self, width: f64) -> String {
        let room = width - 7.0 * (self.kind.chars().count() + 1) as f64;
        format!("{} {}", fitted_name(&self.engine, room, SMALL), self.kind)
    }
}

fn curves(runs: &[&Run]) -> Vec<Curve> {
    let of_kind = |index: usize, run: &&Run, kind: &String| {
        // The maximum is drawn where the share of one operation lies.
        let count = run.latency_us.get(kind).map_or(1, |latency| latency.count.max(1)) as f64;
        let nines = |share: f64| -(1.0 - share).max(1.0 / count).log10();
        let curve = run.latency_curve.get(kind).into_iter().flatten();
        let points = curve.map(|point| (nines(point.share), point.us.max(0.01).log10()));
        let points = points.filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
        Curve { index, engine: run.engine.clone(), kind: kind.clone(), dashes: dashes(kind), points }
    };
    let all = runs.iter().enumerate();
    let all =
        all.flat_map(|(index, run)| run.latency_curve.keys().map(move |kind| of_kind(index, run, kind)));
    all.filter(|curve| !curve.points.is_empty()).collect()
}

/// Where shares and latencies lie, both as powers of ten.
struct Plane {
    area: Area,
    nines_end: f64,
    low: f64,
    high: f64,
}

impl Plane {
    fn over(area: Area, curves: &[Curve]) -> Plane {
        let points = || curves.iter().flat_map(|curve| curve.points.iter());
        let nines_end = points().map(|point| point.0).fold(1.0, f64::max).ceil();
        let (low, high) = points().fold((f64::MAX, f64::MIN), |(low, high), p| (low.min(p.1), high.max(p.1)));
        let (low, high) =
            if low > high { (0.0, 1.0) } else { (low.floor(), high.ceil().max(low.floor() + 1.0)) };
        Plane { area, nines_end, low, high }
    }

    fn x(&self, nines: f64) -> f64 {
        self.area.x(nines / self.nines_end)
    }

    fn y(&self, log: f64) -> f64 {
        self.area.y((log - self.low) / (self.high - self.low))
    }

    fn draw_axes(&self, svg: &mut Svg, is_narrow: bool) {
        let area = self.area;
        for power in self.low as i32..=self.high as i32 {
            let y = self.y(power.into());
            svg.line((area.left, y), (area.right(), y), Paint::Grid);
            let label = microseconds(10f64.powi(power));
            svg.text((area.left - 7.0, y + 4.0), SMALL, Anchor::End, Paint::Muted, &label);
        }
        for nines in 0..=self.nines_end as usize {
            let x = self.x(nines as f64);
            svg.line((x, area.top), (x, area.bottom()), Paint::Grid);
            // Where there is little room, every second one has its figure.
            if is_narrow && self.nines_end > 5.0 && nines % 2 == 1 {
                continue;
            }
            let is_last = nines as f64 == self.nines_end;
            let anchor = if is_last && is_narrow { Anchor::End } else { Anchor::Middle };
            svg.text((x, area.bottom() + 17.0), SMALL, anchor, Paint::Muted, &percent(nines));
        }
        let below = ((area.left + area.right()) / 2.0, area.bottom() + 34.0);
        svg.text(below, SMALL, Anchor::Middle, Paint::Muted, "share of operations that took no longer");
    }

    fn draw(&self, svg: &mut Svg, curve: &Curve) {
        let drawn: Vec<(f64, f64)> = curve.points.iter().map(|&(x, y)| (self.x(x), self.y(y))).collect();
        svg.polyline(&drawn, Paint::Series(curve.index), curve.dashes);
        for (at, point) in drawn.iter().zip(&curve.points) {
            let us = microseconds(10f64.powf(point.1));
            svg.dot(*at, 2.2, Paint::Series(curve.index), &format!("{} {}: {us}", curve.engine, curve.kind));
        }
    }

    /// The curves' names to the right of their ends, in as much room as there is.
    fn draw_names(&self, svg: &mut Svg, curves: &[Curve], room: f64) {
        let area = self.area;
        let ends: Vec<(f64, f64)> =
            curves.iter().map(|c| *c.points.last().expect("curves have points")).collect();
        let wanted: Vec<f64> = ends.iter().map(|end| self.y(end.1)).collect();
        let places = spread(&wanted, 17.0, area.top + 4.0, area.bottom());
        for ((curve, place), end) in curves.iter().zip(places).zip(&ends) {
            let x = area.right() + 10.0;
            svg.line((self.x(end.0) + 3.0, self.y(end.1)), (x, place), Paint::Grid);
            svg.polyline(&[(x, place), (x + 22.0, place)], Paint::Series(curve.index), curve.dashes);
            let at = (x + 27.0, place + 4.0);
            svg.text(at, SMALL, Anchor::Start, Paint::Ink, &curve.label(room - 36.0));
        }
    }
}

/// The drawing.
pub(super) fn latency(sheet: &Sheet<'_>, workload: &str, runs: &[&Run]) -> String {
    let mut svg = sheet.svg();
    let title = format!("{workload}: latency by share of operations");
    let curves = curves(runs);
    let mut top = sheet.heading(&mut svg, &title);
    if sheet.is_narrow() {
        top = legend(sheet, &mut svg, &curves, top);
    }
    let (left, right, height) = if sheet.is_narrow() { (52.0, 14.0, 240.0) } else { (76.0, 210.0, 330.0) };
    let area = Area { left, top: top + 10.0, width: sheet.width - left - right, height };
    let plane = Plane::over(area, &curves);
    plane.draw_axes(&mut svg, sheet.is_narrow());
    curves.iter().for_each(|curve| plane.draw(&mut svg, curve));
    if !sheet.is_narrow() {
        plane.draw_names(&mut svg, &curves, right);
    }
    let description = format!(
        "{} curves. To the right, ten times fewer operations are left over with each line; upwards, latency grows ten \
         times with each line.",
        curves.len()
    );
    sheet.finish(svg, area.bottom() + 44.0, &title, &description)
}

fn legend(sheet: &Sheet<'_>, svg: &mut Svg, curves: &[Curve], top: f64) -> f64 {
    for (row, curve) in curves.iter().enumerate() {
        let y = top + 14.0 + 17.0 * row as f64;
        svg.polyline(&[(2.0, y - 4.0), (30.0, y - 4.0)], Paint::Series(curve.index), curve.dashes);
        let label = curve.label(sheet.width - 40.0);
        svg.text((36.0, y), SMALL, Anchor::Start, Paint::Ink, &label);
    }
    top + 6.0 + 17.0 * curves.len() as f64
}

/// Kinds of one engine are told apart by their dashes.
fn dashes(kind: &str) -> &'static str {
    match kind {
        "write" => "6 3",
        "seek" => "2 3",
        "scan" => "8 3 2 3",
        _ => "none",
    }
}

pub(crate) fn microseconds(us: f64) -> String {
    match us {
        us if !us.is_finite() => "-".into(),
        us if us >= 1e6 => format!("{} s", trim(us / 1e6)),
        us if us >= 1e3 => format!("{} ms", trim(us / 1e3)),
        us => format!("{} µs", trim(us)),
    }
}

/// 0 %, 90 %, 99 %, 99.9 %, ...
pub(super) fn percent(nines: usize) -> String {
    match nines {
        0 => "0 %".into(),
        1 => "90 %".into(),
        2 => "99 %".into(),
        more => format!("99.{} %", "9".repeat(more - 2)),
    }
}
