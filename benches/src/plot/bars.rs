//! Medians as bars, a group a workload or a metric, an engine a bar.

use super::Sheet;
use super::axis::{NORMAL, SMALL, clean, fitted, fitted_name};
use super::svg::{Anchor, Paint};

/// One engine's bar. It is labelled with its name and with its value and what there is to say about that.
pub(crate) struct Bar {
    /// The engine's place in the list.
    pub(crate) index: usize,
    pub(crate) engine: String,
    pub(crate) value: f64,
    /// The least and the greatest of the rounds.
    pub(crate) range: Option<(f64, f64)>,
    pub(crate) label: String,
}

/// Bars on one scale.
pub(crate) struct Group {
    pub(crate) heading: String,
    /// Values in here count as equal to the first bar's.
    pub(crate) equal: Option<(f64, f64)>,
    pub(crate) bars: Vec<Bar>,
}

const BAR: f64 = 15.0;

/// The drawing.
pub(super) fn bars(sheet: &Sheet<'_>, title: &str, groups: &[Group]) -> String {
    let mut svg = sheet.svg();
    let mut top = sheet.heading(&mut svg, title);
    let (left, labels) = if sheet.is_narrow() { (2.0, 2.0) } else { (190.0, 250.0) };
    let room = sheet.width - left - labels;
    for group in groups {
        let heading = fitted(&group.heading, sheet.width * 1.05, NORMAL);
        svg.text((0.0, top + 15.0), NORMAL, Anchor::Start, Paint::Ink, &heading);
        top += 26.0;
        let values = group.bars.iter().flat_map(|bar| [bar.value, bar.range.map_or(0.0, |range| range.1)]);
        let end = values.map(clean).fold(0.0, f64::max);
        let end = if end > 0.0 { end } else { 1.0 };
        let x_of = |value: f64| left + room * (clean(value) / end).clamp(0.0, 1.0);
        let step = if sheet.is_narrow() { BAR + 22.0 } else { BAR + 9.0 };
        if let Some((low, high)) = group.equal.filter(|(low, high)| high > low) {
            let (from, to) = (x_of(low), x_of(high));
            let size = ((to - from).max(2.0), step * group.bars.len() as f64);
            let title = "what counts as equal to the first: its own two runs lay as far apart";
            svg.rect((from, top - 3.0), size, Paint::Gap, 0.35, title);
        }
        for bar in &group.bars {
            let y = if sheet.is_narrow() { top + 16.0 } else { top };
            let told = format!("{}: {}", bar.engine, bar.label);
            svg.rect((left, y), (x_of(bar.value) - left, BAR), Paint::Series(bar.index), 1.0, &told);
            if let Some((low, high)) = bar.range.filter(|(low, high)| high > low) {
                let (from, to, middle) = (x_of(low), x_of(high), y + BAR / 2.0);
                svg.line((from, middle), (to, middle), Paint::Ink);
                for x in [from, to] {
                    svg.line((x, middle - 4.0), (x, middle + 4.0), Paint::Ink);
                }
            }
            if sheet.is_narrow() {
                let room = sheet.width - 7.0 * (bar.label.chars().count() + 2) as f64;
                let label = format!("{}: {}", fitted_name(&bar.engine, room, SMALL), bar.label);
                svg.text((left, top + 11.0), SMALL, Anchor::Start, Paint::Ink, &label);
            } else {
                let name = fitted_name(&bar.engine, left - 12.0, SMALL);
                svg.text((left - 8.0, y + 12.0), SMALL, Anchor::End, Paint::Ink, &name);
                let x = x_of(bar.value.max(bar.range.map_or(0.0, |range| range.1))) + 8.0;
                let label = fitted(&bar.label, labels + 30.0, SMALL);
                svg.text((x, y + 12.0), SMALL, Anchor::Start, Paint::Muted, &label);
            }
            top += step;
        }
        top += 8.0;
    }
    let description = "A bar for each engine; thin lines span the rounds.";
    sheet.finish(svg, top.max(20.0), title, description)
}
