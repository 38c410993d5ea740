//! Operations a second over time, an engine a panel, and under each what held its writes up.
//!
//! ```text
//!   ops/s   |/\/\__ ▒▒▒ /\/\_    shaded: no write of any thread completed
//!   cause   |   ▂▇▇▇▂            share of the time in which a writer waited for it, by the engine's own account
//! ```

use super::Sheet;
use super::axis::{Area, Linear, NORMAL, SMALL, clean, fitted, short, thinned, trim};
use super::svg::{Anchor, Paint};
use crate::engine::Door;
use crate::record::WINDOW_NS;
use crate::result::{Run, Sample, TimelinePoint};

const LANE: f64 = 15.0;
const WINDOW_MS: f64 = WINDOW_NS as f64 / 1e6;

/// Spans of time and the share of each that something took.
type Shares = Vec<(f64, f64, f64)>;

/// What held writes up, over time: a name and its shares of time.
pub(crate) struct Lane {
    pub(crate) name: String,
    /// Whether the engine counts it; else it was seen at the end of each span.
    is_counted: bool,
    pub(crate) shares: Shares,
}

/// The operations a second of each window, at its middle in ms. The last window is as long as the run
/// left it, and one too short to say anything is left out.
pub(super) fn rates(run: &Run) -> Vec<(f64, f64)> {
    let in_window = |point: &TimelinePoint| {
        let start = point.t_ms as f64;
        let length = (clean(run.seconds) * 1000.0 - start).min(WINDOW_MS);
        (length >= WINDOW_MS / 5.0 || run.timeline.len() == 1)
            .then(|| (start + length / 2.0, point.ops as f64 * 1000.0 / length.max(0.001)))
    };
    run.timeline.iter().filter_map(in_window).collect()
}

/// What the engine tells of its stalls over time: by cause where it counts seconds, else whether writes were slowed
/// down or stopped.
pub(crate) fn lanes(run: &Run) -> Vec<Lane> {
    let mut names: Vec<&String> =
        run.samples.iter().flat_map(|sample| sample.engine.stall_seconds_by_cause.keys()).collect();
    names.sort();
    names.dedup();
    let of_cause = |name: &String| {
        let seconds = |sample: &Sample| sample.engine.stall_seconds_by_cause.get(name).copied();
        let added = |before: &Sample, after: &Sample| Some(seconds(after)? - seconds(before).unwrap_or(0.0));
        Lane { name: name.clone(), is_counted: true, shares: shares(run, added) }
    };
    let of_door = |(name, door): (&str, Door)| {
        let is_it = |sample: &Sample| if sample.engine.door == Some(door) { 1.0 } else { 0.0 };
        let added = |before: &Sample, after: &Sample| {
            after.engine.door.map(|_| is_it(after) * (after.t_ms - before.t_ms) as f64 / 1e3)
        };
        Lane { name: name.to_owned(), is_counted: false, shares: shares(run, added) }
    };
    let doors = [("delayed", Door::Delayed), ("stopped", Door::Stopped)];
    let all = names.into_iter().map(of_cause).chain(doors.into_iter().map(of_door));
    all.filter(|lane| lane.shares.iter().any(|share| share.2 > 0.0)).collect()
}

/// For each span between two samples the share of it that `added` seconds are.
fn shares(run: &Run, added: impl Fn(&Sample, &Sample) -> Option<f64>) -> Shares {
    let span = |pair: &[Sample]| {
        let (from, to) = (pair[0].t_ms as f64, pair[1].t_ms as f64);
        let seconds = added(&pair[0], &pair[1]).filter(|seconds| seconds.is_finite())?;
        (to > from).then(|| (from, to, (seconds * 1e3 / (to - from)).clamp(0.0, 1.0)))
    };
    run.samples.windows(2).filter(|pair| pair[1].t_ms > pair[0].t_ms).filter_map(span).collect()
}

/// The same in so many spans at most.
fn coarser(shares: &Shares, spans_max: usize) -> Shares {
    let group = shares.len().div_ceil(spans_max.max(1)).max(1);
    let whole = |chunk: &[(f64, f64, f64)]| {
        let (from, to) = (chunk[0].0, chunk[chunk.len() - 1].1);
        let taken: f64 = chunk.iter().map(|(from, to, share)| (to - from) * share).sum();
        (from, to, clean(taken / (to - from)).clamp(0.0, 1.0))
    };
    shares.chunks(group).map(whole).collect()
}

/// The drawing; all engines have the same scales.
pub(super) fn throughput(sheet: &Sheet<'_>, workload: &str, runs: &[&Run]) -> String {
    let mut svg = sheet.svg();
    let title = format!("{workload}: operations a second over time");
    let mut top = sheet.heading(&mut svg, &title);
    let seconds = longest(runs);
    let (panel, left) = if sheet.is_narrow() { (104.0, 66.0) } else { (150.0, 76.0) };
    let most = runs.iter().flat_map(|run| rates(run)).map(|(_, rate)| rate).fold(0.0, f64::max);
    let scale = Linear::reaching(most, if sheet.is_narrow() { 3.0 } else { 4.0 });
    for (index, run) in runs.iter().enumerate() {
        top = run_heading(sheet, &mut svg, run, index, top);
        let area = Area { left, top, width: sheet.width - left - 14.0, height: panel };
        area.y_axis(&mut svg, scale, short);
        shade_gaps(&mut svg, run, area, seconds);
        let of = |(t_ms, rate): (f64, f64)| (area.x(t_ms / 1e3 / seconds), area.y(rate / scale.end));
        let points = thinned(&rates(run), (area.width / 1.5) as usize);
        let points: Vec<(f64, f64)> = points.into_iter().map(of).collect();
        svg.polyline(&points, Paint::Series(index), "none");
        if let [only] = points[..] {
            svg.dot(only, 3.5, Paint::Series(index), &format!("{} ops/s", short(run.ops_per_sec)));
        }
        let below = draw_lanes(&mut svg, run, area, seconds);
        below.time_axis(&mut svg, time_scale(sheet, seconds), seconds);
        top = below.bottom() + 34.0;
    }
    let description = format!(
        "A panel for each of {} engines. Shaded: no write of any thread completed. Bars below: the share of the \
         time in which a writer waited, by cause.",
        runs.len()
    );
    sheet.finish(svg, top, &title, &description)
}

pub(super) fn longest(runs: &[&Run]) -> f64 {
    runs.iter().map(|run| clean(run.seconds)).fold(0.001, f64::max)
}

pub(super) fn time_scale(sheet: &Sheet<'_>, seconds: f64) -> Linear {
    Linear::reaching(seconds, if sheet.is_narrow() { 4.0 } else { 10.0 })
}

/// The engine's name, what it did, and how long it stood.
fn run_heading(sheet: &Sheet<'_>, svg: &mut super::svg::Svg, run: &Run, index: usize, top: f64) -> f64 {
    let room = sheet.width - 12.0;
    svg.rect((2.0, top + 3.0), (12.0, 12.0), Paint::Series(index), 1.0, "");
    let did = format!("{}: {} ops/s", run.engine, short(run.ops_per_sec));
    svg.text((20.0, top + 14.0), NORMAL, Anchor::Start, Paint::Ink, &fitted(&did, room - 20.0, NORMAL));
    let Some(gaps) = run.stall.gap_seconds else { return top + 26.0 };
    let share = 100.0 * gaps / clean(run.seconds).max(0.001);
    let stood = match run.stall.longest_gap_ms {
        Some(longest) if gaps > 0.0 => {
            let (gaps, share, longest) = (trim(gaps), trim(share), trim(longest));
            match sheet.is_narrow() {
                true => format!("no write for {gaps} s ({share} %), at most {longest} ms"),
                false => format!("no write completed for {gaps} s ({share} %), at most {longest} ms at once"),
            }
        }
        _ => "no gap of 10 ms or more between writes".into(),
    };
    svg.text((20.0, top + 29.0), SMALL, Anchor::Start, Paint::Muted, &fitted(&stood, room * 1.1, SMALL));
    top + 42.0
}

/// Shades the windows in which writes stood still, most where they did so altogether.
fn shade_gaps(svg: &mut super::svg::Svg, run: &Run, area: Area, seconds: f64) {
    let stalled = |point: &&TimelinePoint| clean(point.stalled_ms) > 0.0;
    for point in run.timeline.iter().filter(stalled) {
        let start = point.t_ms as f64 / 1e3;
        let x = area.x(start / seconds);
        let width = (area.x((start + WINDOW_MS / 1e3) / seconds) - x).max(1.0);
        let title = format!("{} s: no write completed for {:.0} ms", trim(start), point.stalled_ms);
        let opacity = 0.15 + 0.5 * (point.stalled_ms / WINDOW_MS).min(1.0);
        svg.rect((x, area.top), (width, area.height), Paint::Gap, opacity, &title);
    }
}

/// Draws the lanes below `area` and returns the area of all of it.
fn draw_lanes(svg: &mut super::svg::Svg, run: &Run, area: Area, seconds: f64) -> Area {
    let mut whole = area;
    for (index, lane) in lanes(run).iter().enumerate() {
        // The first keeps away from the figure at the foot of the axis.
        if index == 0 {
            whole.height += 4.0;
        }
        let base = whole.bottom() + 4.0 + LANE;
        let name = fitted(&lane.name, area.left - 8.0, SMALL);
        svg.text((area.left - 7.0, base - 3.0), SMALL, Anchor::End, Paint::Muted, &name);
        svg.line((area.left, base), (area.right(), base), Paint::Grid);
        for (from, to, share) in coarser(&lane.shares, (area.width / 3.0) as usize) {
            if share <= 0.0 {
                continue;
            }
            let x = area.x(from / 1e3 / seconds);
            let width = (area.x(to / 1e3 / seconds) - x).max(1.0);
            let height = (LANE * share).max(2.0);
            let span = format!("{} to {} s", trim(from / 1e3), trim(to / 1e3));
            let title = match lane.is_counted {
                true => format!("{span}: {} for {:.0} ms", lane.name, share * (to - from)),
                false => format!("{span}: seen {}", lane.name),
            };
            svg.rect((x, base - height), (width, height), Paint::Cause(cause_index(&lane.name)), 1.0, &title);
        }
        whole.height += LANE + 4.0;
        if index + 1 == lanes(run).len() {
            whole.height += 2.0;
        }
    }
    whole
}

/// The pattern of a cause by the name that an engine gives it.
pub(crate) fn cause_index(name: &str) -> usize {
    match name {
        name if name.contains("memtable") => 0,
        name if name.contains("level0") || name.contains("l0") || name == "stopped" => 1,
        name if name.contains("pending") || name == "delayed" => 2,
        _ => 3,
    }
}
