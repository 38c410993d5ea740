//! Scales, their round ticks, and figures as short as a drawing needs them.

use super::svg::{Anchor, Paint, Svg};

/// Sizes of text, for a width at which a unit is a pixel or more.
pub(super) const SMALL: f64 = 11.5;
pub(super) const NORMAL: f64 = 13.0;

/// The part of a drawing that values are drawn in.
#[derive(Clone, Copy)]
pub(super) struct Area {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// From 0 to a round end, in round steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Linear {
    pub(super) end: f64,
    pub(super) step: f64,
}

impl Area {
    pub(super) fn right(&self) -> f64 {
        self.left + self.width
    }

    pub(super) fn bottom(&self) -> f64 {
        self.top + self.height
    }

    pub(super) fn x(&self, share: f64) -> f64 {
        self.left + self.width * clean(share).clamp(0.0, 1.0)
    }

    pub(super) fn y(&self, share: f64) -> f64 {
        self.top + self.height * (1.0 - clean(share).clamp(0.0, 1.0))
    }

    /// Grid lines across, with figures at their left ends.
    pub(super) fn y_axis(&self, svg: &mut Svg, scale: Linear, label: impl Fn(f64) -> String) {
        for value in scale.ticks() {
            let y = self.y(value / scale.end);
            svg.line((self.left, y), (self.right(), y), if value == 0.0 { Paint::Axis } else { Paint::Grid });
            svg.text((self.left - 7.0, y + 4.0), SMALL, Anchor::End, Paint::Muted, &label(value));
        }
    }

    /// Figures of seconds under the bottom, with the unit at the last.
    pub(super) fn time_axis(&self, svg: &mut Svg, seconds: Linear, end: f64) {
        for value in seconds.ticks().filter(|value| *value <= end * 1.0001) {
            let x = self.x(value / end);
            svg.line((x, self.bottom()), (x, self.bottom() + 4.0), Paint::Axis);
            let anchor = match (value == 0.0, x > self.right() - 12.0) {
                (true, _) => Anchor::Start,
                (_, true) => Anchor::End,
                _ => Anchor::Middle,
            };
            let text = format!("{} s", trim(value));
            svg.text((x, self.bottom() + 17.0), SMALL, anchor, Paint::Muted, &text);
        }
    }
}

impl Linear {
    /// One that reaches `most`, in about `steps` steps of 1, 2 or 5 times a power of ten.
    pub(super) fn reaching(most: f64, steps: f64) -> Linear {
        let most = if most.is_finite() && most > 0.0 { most.max(1e-6) } else { 1.0 };
        let raw = most / steps;
        let power = 10f64.powf(raw.log10().floor());
        let digit = [1.0, 2.0, 5.0, 10.0].into_iter().find(|digit| raw <= digit * power * 1.0001);
        let step = digit.unwrap_or(10.0) * power;
        Linear { end: step * (most / step - 1e-9).ceil().max(1.0), step }
    }

    pub(super) fn ticks(self) -> impl Iterator<Item = f64> {
        let count = (self.end / self.step).round() as usize;
        (0..=count).map(move |at| at as f64 * self.step)
    }
}

/// What is no number is nothing.
pub(super) fn clean(value: f64) -> f64 {
    if value.is_finite() { value } else { 0.0 }
}

/// A number with k, M or G.
pub(crate) fn short(value: f64) -> String {
    match value {
        v if !v.is_finite() => "-".into(),
        v if v >= 1e9 => format!("{} G", trim(v / 1e9)),
        v if v >= 1e6 => format!("{} M", trim(v / 1e6)),
        v if v >= 1e3 => format!("{} k", trim(v / 1e3)),
        v => trim(v),
    }
}

/// At most three digits that say something, and no zeros behind a point.
pub(crate) fn trim(value: f64) -> String {
    let text = match value {
        v if !v.is_finite() => return "-".into(),
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v if v >= 0.1 || v <= 0.0 => format!("{v:.2}"),
        v => format!("{v:.4}"),
    };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Letters of the usual fonts are 0.6 of their size wide or less, on the average of a word.
fn most_letters(width: f64, size: f64) -> usize {
    (width / (0.6 * size)).max(3.0) as usize
}

/// A text that is no wider than `width`; the end of a longer one gives way to an ellipsis.
pub(super) fn fitted(text: &str, width: f64, size: f64) -> String {
    let most = most_letters(width, size);
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

/// A name that is no wider than `width`: the middle of a longer one gives way, since variants of an engine differ at
/// their ends.
pub(super) fn fitted_name(name: &str, width: f64, size: f64) -> String {
    let (count, most) = (name.chars().count(), most_letters(width, size));
    if count <= most {
        return name.to_owned();
    }
    let (head, tail) = ((most - 1) / 2, most / 2);
    name.chars().take(head).chain(['…']).chain(name.chars().skip(count - tail)).collect()
}

/// Moves labels apart that would lie on each other, without changing their order; they stay between the bounds
/// if there is room.
pub(super) fn spread(wanted: &[f64], distance: f64, low: f64, high: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    let mut places = wanted.to_vec();
    let mut least = low;
    for &at in &order {
        places[at] = places[at].max(least);
        least = places[at] + distance;
    }
    let mut most = high;
    for &at in order.iter().rev() {
        places[at] = places[at].min(most);
        most = places[at] - distance;
    }
    places
}

/// Values over time as the means of so many spans at most.
pub(super) fn thinned(points: &[(f64, f64)], spans_max: usize) -> Vec<(f64, f64)> {
    let group = points.len().div_ceil(spans_max.max(1)).max(1);
    let mean = |chunk: &[(f64, f64)]| {
        let sum = chunk.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
        (sum.0 / chunk.len() as f64, sum.1 / chunk.len() as f64)
    };
    points.chunks(group).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_ends_and_steps() {
        let ends = |most, steps| {
            let scale = Linear::reaching(most, steps);
            (scale.end, scale.step, scale.ticks().count())
        };
        assert_eq!(ends(7.0, 4.0), (8.0, 2.0, 5));
        assert_eq!(ends(1234.0, 4.0), (1500.0, 500.0, 4));
        assert_eq!(ends(100_000.0, 4.0), (100_000.0, 50_000.0, 3));
        for nothing in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Linear::reaching(nothing, 4.0).end, 1.0);
        }
        assert!(Linear::reaching(1e-300, 4.0).end > 0.0);
    }

    #[test]
    fn figures_are_short() {
        assert_eq!([short(1_500_000.0), short(200.0), short(2.5e9)], ["1.5 M", "200", "2.5 G"]);
        assert_eq!([trim(100.0), trim(0.25), trim(12.34), trim(0.003)], ["100", "0.25", "12.3", "0.003"]);
        assert_eq!([short(f64::NAN), trim(f64::INFINITY), trim(0.0)], ["-", "-", "0"]);
        assert_eq!(fitted("short", 200.0, 12.0), "short");
        assert_eq!(fitted("a very long name", 60.0, 12.0), "a very …");
        assert_eq!(fitted_name("dialsm:redirect=false", 72.0, 12.0), "dial…false");
        assert_eq!(fitted_name("short", 72.0, 12.0), "short");
    }

    #[test]
    fn labels_are_moved_apart_and_stay_in_order() {
        let places = spread(&[50.0, 10.0, 11.0, 100.0, 100.0], 12.0, 0.0, 100.0);
        assert_eq!(places, [50.0, 10.0, 22.0, 88.0, 100.0]);
        assert!(spread(&[], 12.0, 0.0, 100.0).is_empty());
    }
}
