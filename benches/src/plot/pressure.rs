//! How near each shard is to where its writes stop, as a heat map over time: a row a shard, a panel for each of the
//! three things that stop writes.

use super::Sheet;
use super::axis::{Area, NORMAL, SMALL, fitted, trim};
use super::svg::{Anchor, HEAT_STEPS, Paint, Svg, Theme};
use super::timeline::{longest, time_scale};
use crate::engine::{ShardLimits, ShardLook};
use crate::result::{Run, Sample};

/// Columns are no narrower than this.
const COLUMN: f64 = 3.0;
/// A panel in which nothing comes as near as this is told in words.
const WORTH_DRAWING: f64 = 0.01;

/// What may stop writes: its name, how much there is of it, and how much there may be.
pub(crate) type Measure = (&'static str, fn(&ShardLook) -> u64, fn(&ShardLimits) -> Option<u64>);

pub(crate) const MEASURES: [Measure; 3] = [
    ("Memtables", |shard| shard.memtable_bytes, |limits| limits.memtable_bytes),
    ("Runs of level 0", |shard| shard.l0_runs, |limits| limits.l0_runs),
    ("Bytes to compact", |shard| shard.pending_bytes, |limits| limits.pending_bytes),
];

/// Whether there is something to draw.
pub(crate) fn is_told(run: &Run) -> bool {
    !run.shard_limits.is_empty() && run.samples.iter().any(|sample| !sample.engine.shards.is_empty())
}

/// How much of its limit a shard has used at a sample; nothing where that was not told.
pub(crate) fn share(run: &Run, sample: &Sample, shard: usize, measure: &Measure) -> Option<f64> {
    let limit = (measure.2)(run.shard_limits.get(shard)?)?;
    let look = sample.engine.shards.get(shard)?;
    (limit > 0).then(|| (measure.1)(look) as f64 / limit as f64)
}

/// The highest of a shard, or of all.
pub(crate) fn highest(run: &Run, shard: Option<usize>, measure: &Measure) -> Option<f64> {
    let shards = || (0..run.shard_limits.len()).filter(|at| shard.is_none_or(|one| one == *at));
    let all = run.samples.iter().flat_map(|sample| shards().filter_map(|at| share(run, sample, at, measure)));
    all.reduce(f64::max)
}

/// The step of a share: the last from the limit on, the others in fifths below it. A memtable that is full has a
/// little room left, since it is switched between two groups of writes.
pub(crate) fn step(share: f64) -> usize {
    match share {
        share if share >= 0.98 => HEAT_STEPS - 1,
        share => ((share * 5.0).max(0.0) as usize).min(HEAT_STEPS - 2),
    }
}

pub(crate) fn step_name(step: usize) -> String {
    match step {
        step if step + 1 == HEAT_STEPS => "full: stop".into(),
        step => format!("{} to {} %", step * 20, step * 20 + 20),
    }
}

/// What a row shows in a column.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Cell {
    step: Option<usize>,
    is_closed: bool,
}

/// The drawing of the engine at `index` of the list.
pub(super) fn pressure(sheet: &Sheet<'_>, workload: &str, run: &Run) -> String {
    let mut svg = sheet.svg();
    let title = format!("{workload}, {}: how near to the stop", run.engine);
    let mut top = sheet.heading(&mut svg, &title);
    let seconds = longest(&[run]);
    let shards = run.shard_limits.len();
    let row = match shards {
        0..=8 => 14.0,
        9..=16 => 10.0,
        _ => (160.0 / shards as f64).max(3.0),
    };
    let left = if sheet.is_narrow() { 34.0 } else { 76.0 };
    let (mut drawn, mut words) = (None, Vec::new());
    for measure in &MEASURES {
        match highest(run, None, measure) {
            None => words.push(format!("{}: the limit is not told", measure.0)),
            Some(most) if most < WORTH_DRAWING => {
                words.push(format!("{}: under 1 % of the limit", measure.0));
            }
            Some(most) => {
                let words = format!("{}: at most {:.0} % of the limit", measure.0, 100.0 * most);
                let words = fitted(&words, sheet.width, NORMAL);
                svg.text((0.0, top + 14.0), NORMAL, Anchor::Start, Paint::Ink, &words);
                let size = (sheet.width - left - 14.0, row * shards as f64);
                let area = Area { left, top: top + 22.0, width: size.0, height: size.1 };
                for shard in 0..shards {
                    draw_row(&mut svg, run, (shard, measure), area, row, seconds);
                }
                top = area.bottom() + 8.0;
                drawn = Some(area);
            }
        }
    }
    if let Some(area) = drawn {
        let area = Area { height: area.height + 2.0, ..area };
        area.time_axis(&mut svg, time_scale(sheet, seconds), seconds);
        top += 18.0;
    }
    for words in words {
        let words = fitted(&words, sheet.width, NORMAL);
        svg.text((0.0, top + 14.0), NORMAL, Anchor::Start, Paint::Muted, &words);
        top += 22.0;
    }
    if sheet.theme == Theme::File {
        top = legend(sheet, &mut svg, top);
    }
    let description = format!(
        "A row for each of {shards} shards, a panel for each of memtables, runs of level 0 and bytes to compact; the \
         darker, the nearer to the limit at which writes stop."
    );
    sheet.finish(svg, top, &title, &description)
}

fn draw_row(
    svg: &mut Svg,
    run: &Run,
    (shard, measure): (usize, &Measure),
    area: Area,
    row: f64,
    seconds: f64,
) {
    let y = area.top + row * shard as f64;
    let labelled = (12.0 / row).ceil().max(1.0) as usize;
    if shard.is_multiple_of(labelled) {
        let label = match area.left > 60.0 {
            _ if run.shard_limits.len() == 1 => "all".to_owned(),
            true => format!("shard {shard}"),
            false => shard.to_string(),
        };
        let at = (area.left - 7.0, y + row.max(10.0) - 2.5);
        svg.text(at, SMALL.min(row + 2.0).max(9.0), Anchor::End, Paint::Muted, &label);
    }
    let height = if row > 6.0 { row - 1.5 } else { row - 0.5 };
    for (from, to, cell, most) in spans(run, shard, measure, (area.width / COLUMN) as usize) {
        let x = area.x(from / 1e3 / seconds);
        let width = area.x(to / 1e3 / seconds) - x;
        let (from, to) = (trim(from / 1e3), trim(to / 1e3));
        let (paint, told) = match cell.step {
            Some(step) => (Paint::Heat(step), format!("{} at most {} %", measure.0, trim(100.0 * most))),
            None => (Paint::Unknown, "not told".to_owned()),
        };
        let closed = if cell.is_closed { ", writes slowed, stopped or sent elsewhere" } else { "" };
        let title = format!("shard {shard}, {from} to {to} s: {told}{closed}");
        svg.rect((x, y), (width, height), paint, 1.0, &title);
        if cell.is_closed && row > 6.0 {
            svg.rect((x, y + height - 2.5), (width, 2.5), Paint::Ink, 1.0, "");
        }
    }
}

/// Spans of a row in which a cell stays the same: from, to, the cell, and the highest share in it.
fn spans(run: &Run, shard: usize, measure: &Measure, columns_max: usize) -> Vec<(f64, f64, Cell, f64)> {
    let group = run.samples.len().div_ceil(columns_max.max(1)).max(1);
    let mut spans: Vec<(f64, f64, Cell, f64)> = Vec::new();
    let mut from = 0.0;
    // The first sample is that of the start and ends no span.
    for chunk in run.samples.get(1..).unwrap_or_default().chunks(group) {
        let to = chunk[chunk.len() - 1].t_ms as f64;
        let most = chunk.iter().filter_map(|sample| share(run, sample, shard, measure)).reduce(f64::max);
        let is_closed = chunk.iter().any(|s| s.engine.shards.get(shard).is_some_and(|shard| !shard.is_open));
        let cell = Cell { step: most.map(step), is_closed };
        let most = most.unwrap_or(0.0);
        match spans.last_mut() {
            Some(last) if last.2 == cell => (last.1, last.3) = (to, last.3.max(most)),
            _ => spans.push((from, to, cell, most)),
        }
        from = to;
    }
    spans
}

/// The meaning of the colours; a page has it once for all engines.
pub(super) fn key(sheet: &Sheet<'_>) -> String {
    let mut svg = sheet.svg();
    let height = legend(sheet, &mut svg, 0.0);
    sheet.finish(svg, height, "Key of the heat maps", "From a little of the limit to all of it, in fifths.")
}

fn legend(sheet: &Sheet<'_>, svg: &mut Svg, top: f64) -> f64 {
    let steps = (0..HEAT_STEPS).map(|step| (Paint::Heat(step), step_name(step)));
    let others = [
        (Paint::Unknown, "not told".to_owned()),
        (Paint::Ink, "slowed, stopped or sent elsewhere".to_owned()),
    ];
    let entries: Vec<(Paint, String)> = steps.chain(others).collect();
    sheet.legend(svg, top, &entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Look;

    fn run(states: &[Option<(u64, bool)>]) -> Run {
        let sample = |(at, state): (usize, &Option<(u64, bool)>)| {
            let shard = |(l0_runs, is_open)| ShardLook { l0_runs, is_open, ..ShardLook::default() };
            let engine = Look { shards: state.map(shard).into_iter().collect(), ..Look::default() };
            Sample { t_ms: 100 * at as u64, engine, ..Sample::default() }
        };
        let limits = ShardLimits { l0_runs: Some(10), memtable_bytes: Some(0), pending_bytes: None };
        Run {
            samples: states.iter().enumerate().map(sample).collect(),
            shard_limits: vec![limits],
            seconds: 0.1 * states.len() as f64,
            ..Run::default()
        }
    }

    #[test]
    fn equal_cells_are_one_span_and_the_highest_counts() {
        let run = run(&[None, Some((1, true)), Some((1, true)), Some((10, false)), None, Some((3, true))]);
        let l0 = &MEASURES[1];
        let steps: Vec<_> = spans(&run, 0, l0, 100).iter().map(|s| (s.0, s.1, s.2.step)).collect();
        let expected =
            [(0.0, 200.0, Some(0)), (200.0, 300.0, Some(5)), (300.0, 400.0, None), (400.0, 500.0, Some(1))];
        assert_eq!(steps, expected);
        let coarse = spans(&run, 0, l0, 2);
        assert_eq!((coarse[0].2.step, coarse[0].2.is_closed, coarse.len()), (Some(5), true, 2));
        assert_eq!(highest(&run, Some(0), l0), Some(1.0));
        assert_eq!(highest(&run, None, &MEASURES[0]), None, "no share of nothing");
        assert_eq!(highest(&run, None, &MEASURES[2]), None);
    }

    #[test]
    fn steps_are_fifths_up_to_the_stop() {
        assert_eq!([0.0, 0.19, 0.2, 0.79, 0.97, 0.98, 7.0].map(step), [0, 0, 1, 3, 4, 5, 5]);
        assert_eq!((step_name(1), step_name(5)), ("20 to 40 %".into(), "full: stop".into()));
    }
}
