//! The three drawings: scales, axes and what is drawn between them.

use super::svg::{Anchor, Svg, colour};
use crate::record::WINDOW_NS;
use crate::result::{Report, Run, TimelinePoint};
use crate::stats::{median, workloads};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 44.0;
const PANEL: f64 = 170.0;
const GRID: &str = "#ddd";
const AXIS: &str = "#888";
const SHADE: &str = "#d55e00";

/// A line of more points than this is drawn through means.
const POINTS_MAX: usize = 800;

fn plot_width() -> f64 {
    WIDTH - LEFT - RIGHT
}

/// A round number at or a little above `value`, for the end of an axis.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let digits = value / power;
    let end = [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0].into_iter().find(|end| digits <= *end);
    end.unwrap_or(10.0) * power
}

fn short(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{} M", trim(v / 1e6)),
        v if v >= 1e3 => format!("{} k", trim(v / 1e3)),
        v => trim(v),
    }
}

fn trim(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Horizontal lines with figures, from 0 to `end`.
fn linear_grid(svg: &mut Svg, top: f64, height: f64, end: f64) {
    for step in 0..=4 {
        let share = f64::from(step) / 4.0;
        let y = top + height * (1.0 - share);
        svg.line((LEFT, y), (WIDTH - RIGHT, y), if step == 0 { AXIS } else { GRID });
        svg.text(LEFT - 8.0, y + 4.0, 11.0, Anchor::End, &short(end * share));
    }
}

/// The operations a second of each window, at its middle in ms. The last window is as long as the run
/// left it, and one too short to say anything is left out.
fn rates(run: &Run) -> Vec<(f64, f64)> {
    const WINDOW_MS: f64 = WINDOW_NS as f64 / 1e6;
    let in_window = |point: &TimelinePoint| {
        let start = point.t_ms as f64;
        let length = (run.seconds * 1000.0 - start).min(WINDOW_MS);
        (length >= WINDOW_MS / 5.0 || run.timeline.len() == 1)
            .then(|| (start + length / 2.0, point.ops as f64 * 1000.0 / length.max(0.001)))
    };
    run.timeline.iter().filter_map(in_window).collect()
}

/// Operations a second over time; an engine a panel, all on the same scales.
pub(super) fn throughput(workload: &str, runs: &[&Run]) -> String {
    let height = TOP + runs.len() as f64 * (PANEL + 40.0) + BOTTOM;
    let mut svg = Svg::new(WIDTH, height);
    svg.text(LEFT, 26.0, 16.0, Anchor::Start, &format!("{workload}: operations a second over time"));
    let seconds = runs.iter().map(|run| run.seconds).fold(0.001, f64::max);
    let end = round_up(runs.iter().flat_map(|run| rates(run)).map(|(_, rate)| rate).fold(0.0, f64::max));
    let x_of = |t_ms: f64| LEFT + plot_width() * t_ms / 1000.0 / seconds;
    for (index, run) in runs.iter().enumerate() {
        let top = TOP + 20.0 + index as f64 * (PANEL + 40.0);
        linear_grid(&mut svg, top, PANEL, end);
        shade_gaps(&mut svg, run, top, x_of);
        let y_of = |rate: f64| top + PANEL * (1.0 - rate / end);
        let points: Vec<(f64, f64)> = rates(run).into_iter().map(|(t, rate)| (x_of(t), y_of(rate))).collect();
        svg.polyline(&thinned(&points), colour(index), "none");
        if let [(x, y)] = points[..] {
            svg.rect(x - 3.0, y - 3.0, (6.0, 6.0), colour(index), 1.0, &run.engine);
        }
        let gaps = run
            .stall
            .gap_seconds
            .map(|s| format!(", {s:.2} s in gaps of writes (shaded)"))
            .unwrap_or_default();
        let label = format!("{}: {} ops/s{gaps}", run.engine, short(run.ops_per_sec));
        svg.text(LEFT, top - 6.0, 12.0, Anchor::Start, &label);
    }
    let step = round_up(seconds / 10.0);
    for at in 0..=(seconds / step) as usize {
        let time = at as f64 * step;
        svg.text(
            x_of(time * 1000.0),
            height - BOTTOM + 4.0,
            11.0,
            Anchor::Middle,
            &format!("{} s", trim(time)),
        );
    }
    svg.finish()
}

/// Shades the windows in which writes stood still, most where they did so altogether.
fn shade_gaps(svg: &mut Svg, run: &Run, top: f64, x_of: impl Fn(f64) -> f64) {
    for point in run.timeline.iter().filter(|point| point.stalled_ms > 0.0) {
        let start = point.t_ms as f64;
        let x = x_of(start);
        let width = (x_of(start + 100.0).min(WIDTH - RIGHT) - x).max(1.0);
        let title = format!("{:.1} s: no write completed for {:.0} ms", start / 1e3, point.stalled_ms);
        let opacity = 0.12 + 0.38 * point.stalled_ms / 100.0;
        svg.rect(x, top, (width, PANEL), SHADE, (opacity * 100.0).round() / 100.0, &title);
    }
}

/// At most [`POINTS_MAX`] points, each the mean of its neighbours.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let group = points.len().div_ceil(POINTS_MAX).max(1);
    let mean = |chunk: &[(f64, f64)]| {
        let sum = chunk.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
        (sum.0 / chunk.len() as f64, sum.1 / chunk.len() as f64)
    };
    points.chunks(group).map(mean).collect()
}

/// Latency by share of operations: every step to the right is a tenth of the operations left over.
pub(super) fn latency(workload: &str, runs: &[&Run]) -> String {
    const HEIGHT: f64 = 480.0;
    let mut svg = Svg::new(WIDTH, HEIGHT);
    svg.text(LEFT, 26.0, 16.0, Anchor::Start, &format!("{workload}: latency by share of operations"));
    let mut curves = Vec::new();
    for (index, run) in runs.iter().enumerate() {
        for (kind, curve) in &run.latency_curve {
            // The maximum is drawn where the share of one operation lies.
            let count = run.latency_us.get(kind).map_or(1, |latency| latency.count.max(1)) as f64;
            let nines = |share: f64| -(1.0 - share).max(1.0 / count).log10();
            let points: Vec<(f64, f64)> =
                curve.iter().map(|point| (nines(point.share), point.us.max(0.01).log10())).collect();
            curves.push((index, format!("{} {kind}", run.engine), dashes(kind), points));
        }
    }
    let points = || curves.iter().flat_map(|(_, _, _, points)| points.iter());
    let nines_end = points().map(|point| point.0).fold(1.0, f64::max).ceil();
    let (low, high) = points().fold((f64::MAX, f64::MIN), |(low, high), p| (low.min(p.1), high.max(p.1)));
    let (low, high) = if low > high { (0.0, 1.0) } else { (low.floor(), high.ceil().max(low.floor() + 1.0)) };
    let plot_height = HEIGHT - TOP - BOTTOM - 10.0;
    let x_of = |nines: f64| LEFT + plot_width() * nines / nines_end;
    let y_of = |log: f64| TOP + plot_height * (1.0 - (log - low) / (high - low));
    for power in low as i32..=high as i32 {
        let y = y_of(power.into());
        svg.line((LEFT, y), (WIDTH - RIGHT, y), GRID);
        svg.text(LEFT - 8.0, y + 4.0, 11.0, Anchor::End, &microseconds(10f64.powi(power)));
    }
    for nines in 0..=nines_end as usize {
        let x = x_of(nines as f64);
        svg.line((x, TOP), (x, TOP + plot_height), GRID);
        let anchor = if nines == nines_end as usize { Anchor::End } else { Anchor::Middle };
        svg.text(x, TOP + plot_height + 16.0, 11.0, anchor, &percent(nines));
    }
    for (row, (index, label, dashes, points)) in curves.iter().enumerate() {
        let drawn: Vec<(f64, f64)> = points.iter().map(|&(nines, log)| (x_of(nines), y_of(log))).collect();
        svg.polyline(&drawn, colour(*index), dashes);
        let y = TOP + 18.0 + 16.0 * row as f64;
        svg.polyline(&[(LEFT + 12.0, y - 4.0), (LEFT + 44.0, y - 4.0)], colour(*index), dashes);
        svg.text(LEFT + 50.0, y, 12.0, Anchor::Start, label);
    }
    svg.finish()
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

fn microseconds(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{} s", trim(us / 1e6)),
        us if us >= 1e3 => format!("{} ms", trim(us / 1e3)),
        us => format!("{} us", trim(us)),
    }
}

/// 0 %, 90 %, 99 %, 99.9 %, ...
fn percent(nines: usize) -> String {
    match nines {
        0 => "0 %".into(),
        1 => "90 %".into(),
        2 => "99 %".into(),
        more => format!("99.{} %", "9".repeat(more - 2)),
    }
}

/// Median operations a second; each workload on a scale of its own.
pub(super) fn comparison(report: &Report, engines: &[String]) -> String {
    const BAR: f64 = 18.0;
    let names = workloads(&report.runs);
    let block = BAR * engines.len() as f64 + 34.0;
    let mut svg = Svg::new(WIDTH, TOP + block * names.len() as f64 + 16.0);
    svg.text(24.0, 26.0, 16.0, Anchor::Start, "Operations a second, median over the rounds");
    let (bar_left, bar_width) = (150.0, WIDTH - 150.0 - 190.0);
    for (row, workload) in names.iter().enumerate() {
        let top = TOP + block * row as f64;
        svg.text(24.0, top + 12.0, 13.0, Anchor::Start, workload);
        let middle = |engine: &String| {
            let of_engine =
                report.runs.iter().filter(|run| run.workload == *workload && run.engine == *engine);
            median(&of_engine.map(|run| run.ops_per_sec).collect::<Vec<_>>()).unwrap_or(0.0)
        };
        let medians: Vec<f64> = engines.iter().map(middle).collect();
        let end = medians.iter().copied().fold(1.0, f64::max);
        for (index, (engine, value)) in engines.iter().zip(&medians).enumerate() {
            let y = top + 20.0 + BAR * index as f64;
            let width = bar_width * value / end;
            svg.text(bar_left - 8.0, y + 12.0, 12.0, Anchor::End, engine);
            svg.rect(
                bar_left,
                y,
                (width, BAR - 4.0),
                colour(index),
                1.0,
                &format!("{engine}: {value:.0} ops/s"),
            );
            let ratio = match (index, *value > 0.0) {
                (0, _) | (_, false) => String::new(),
                _ => format!("  ({}/{engine} {:.2}x)", engines[0], medians[0] / value),
            };
            svg.text(
                bar_left + width + 6.0,
                y + 12.0,
                11.0,
                Anchor::Start,
                &format!("{}{ratio}", short(*value)),
            );
        }
    }
    svg.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Latency, LatencyPoint};

    /// Checks that tags are closed in order and attributes quoted, and counts the elements.
    fn elements(svg: &str) -> usize {
        let (mut open, mut count) = (Vec::new(), 0);
        let mut rest = svg;
        while let Some(start) = rest.find('<') {
            let text = &rest[..start];
            assert!(!text.contains('>'), "a stray > in {text:?}");
            let end = start + rest[start..].find('>').expect("a tag that ends");
            let tag = &rest[start + 1..end];
            assert!(!tag.contains('<') && tag.matches('"').count().is_multiple_of(2), "{tag}");
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop().as_deref(), Some(name), "closed out of order");
            } else {
                count += 1;
                if !tag.ends_with('/') {
                    open.push(tag.split_whitespace().next().unwrap().to_owned());
                }
            }
            rest = &rest[end + 1..];
        }
        assert!(open.is_empty() && rest.trim().is_empty(), "{open:?} stay open");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "a coordinate that is no number");
        count
    }

    fn run(engine: &str, windows: &[u64]) -> Run {
        let point = |(window, &ops): (usize, &u64)| TimelinePoint {
            t_ms: window as u64 * 100,
            ops,
            writes: ops,
            stalled_ms: if ops == 0 { 100.0 } else { 0.0 },
        };
        let mut run = Run {
            engine: engine.into(),
            workload: "fillrandom".into(),
            round: 1,
            seconds: windows.len() as f64 / 10.0,
            ops_per_sec: 1000.0,
            timeline: windows.iter().enumerate().map(point).collect(),
            ..Run::default()
        };
        let curve = [(0.0, 1.0), (0.5, 3.0), (0.99, 200.0), (1.0, 1e6)];
        let curve = curve.map(|(share, us)| LatencyPoint { share, us }).to_vec();
        run.latency_curve.insert("write".into(), curve);
        run.latency_us.insert("write".into(), Latency { count: 1000, ..Latency::default() });
        run
    }

    #[test]
    fn drawings_are_well_formed_and_show_what_they_should() {
        let stalling = run("a<&\"b>", &[100, 0, 0, 90, 10]);
        let steady = run("steady", &[100; 2000]);
        let svg = throughput("fillrandom", &[&stalling, &steady]);
        assert!(elements(&svg) > 20);
        assert_eq!(svg.matches("no write completed").count(), 2);
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(svg.len() < 40_000, "2000 points are thinned: {} bytes", svg.len());
        let svg = latency("fillrandom", &[&stalling, &steady]);
        assert!(elements(&svg) > 20 && svg.contains("99.9 %") && svg.contains("1 s"));
        let engines = ["a<&\"b>".to_owned(), "steady".to_owned()];
        let report = Report { runs: vec![stalling, steady], ..Report::default() };
        let svg = comparison(&report, &engines);
        assert!(elements(&svg) > 8 && svg.contains("1.00x"));
    }

    #[test]
    fn empty_runs_draw_too() {
        let empty = Run { engine: "e".into(), ..Run::default() };
        elements(&throughput("w", &[&empty]));
        elements(&latency("w", &[&empty]));
        elements(&throughput("w", &[]));
        elements(&comparison(&Report::default(), &[]));
    }

    #[test]
    fn axes_end_on_round_numbers() {
        assert_eq!(
            [round_up(0.0), round_up(7.0), round_up(1234.0), round_up(99_999.0)],
            [1.0, 8.0, 1500.0, 100_000.0]
        );
        assert_eq!([short(1_500_000.0), short(200.0), percent(4)], ["1.5 M", "200", "99.99 %"]);
    }
}
