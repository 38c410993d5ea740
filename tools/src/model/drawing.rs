//! The balloon effect as curves, after the paper's figures 2 and 3: the share of time that memtables (solid) and
//! level 0 (dashed) stall over the flush rate and over the rate out of level 0, and what shards make of it.

use std::fmt::Write as _;

use dialsm::stall_model::balloon::sweep;
use dialsm::stall_model::{MegabytesPerSecond, Model, OutOfRange, Rates, StallCause};

use super::Asked;

const WIDTH: f64 = 760.0;
const PANEL: f64 = 250.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 40.0;
const GAP: f64 = 84.0;

/// Distinct for eyes of all kinds.
const COLOURS: [&str; 3] = ["#0072b2", "#d55e00", "#009e73"];
const DASHES: [(StallCause, &str); 3] =
    [(StallCause::Memtable, "none"), (StallCause::Level0, "7 4"), (StallCause::Pending, "2 3")];

/// Places on a curve.
const POINTS: u32 = 120;
/// The other rate's values, as multiples of what it is: a colour each.
const FACTORS: [f64; 3] = [0.75, 1.0, 1.25];
const SHARDS_MAX: u32 = 16;

/// One curve, in units of the axes, and how it is drawn.
struct Curve {
    points: Vec<(f64, f64)>,
    colour: &'static str,
    dashes: &'static str,
}

/// What stands in a panel.
struct Panel {
    title: String,
    x_label: &'static str,
    x_end: f64,
    y_end: f64,
    curves: Vec<Curve>,
    /// Where it was measured: x, y and what it is.
    marks: Vec<(f64, f64, String)>,
    /// The colours' names.
    legend: Vec<(String, &'static str, &'static str)>,
}

/// The whole drawing.
///
/// # Errors
/// The model can't be predicted.
pub(super) fn curves(asked: &Asked) -> Result<String, OutOfRange> {
    let model = &asked.model;
    let panels = [
        rates_panel(
            asked,
            "flush rate, MB/s",
            "out of level 0",
            |rates| &mut rates.flush,
            |rates| &mut rates.l0,
        )?,
        rates_panel(
            asked,
            "rate out of level 0, MB/s",
            "flush",
            |rates| &mut rates.l0,
            |rates| &mut rates.flush,
        )?,
        shards_panel(model)?,
    ];
    let height = TOP + panels.len() as f64 * (PANEL + GAP);
    let mut body = String::new();
    for (at, panel) in panels.iter().enumerate() {
        panel.draw(&mut body, TOP + at as f64 * (PANEL + GAP)).expect("writing to a string cannot fail");
    }
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n{body}</svg>\n"
    ))
}

type Select = fn(&mut Rates) -> &mut MegabytesPerSecond;

/// Stalls over one rate, for three values of the other.
fn rates_panel(
    asked: &Asked,
    x_label: &'static str,
    other_name: &str,
    moved: Select,
    other: Select,
) -> Result<Panel, OutOfRange> {
    let model = &asked.model;
    let (mut curves, mut legend) = (Vec::new(), Vec::new());
    // Beyond what arrives nothing changes any more.
    let x_end = round_up(model.rates.arrival.0.max(1.0) * 1.25);
    for (factor, colour) in FACTORS.into_iter().zip(COLOURS) {
        let mut of = *model;
        let rate = other(&mut of.rates).times(factor);
        *other(&mut of.rates) = rate;
        let swept = sweep(&of, MegabytesPerSecond(x_end), POINTS, |rates, rate| *moved(rates) = rate)?;
        legend.push((format!("{other_name} {:.0} MB/s", rate.0), colour, "none"));
        for (cause, dashes) in DASHES {
            let points: Vec<(f64, f64)> =
                swept.iter().map(|(rate, prediction)| (rate.0, prediction.class(cause).share)).collect();
            if points.iter().any(|(_, share)| *share > 0.0) {
                curves.push(Curve { points, colour, dashes });
            }
        }
    }
    legend.extend(DASHES.map(|(cause, dashes)| (format!("{} stalls", cause.as_str()), "#222", dashes)));
    let here = moved(&mut model.rates.clone()).0;
    let mark = |cause: StallCause| {
        let observed = asked.observed.as_ref()?;
        (here <= x_end).then(|| (here, observed.share(cause), format!("measured {}", cause.as_str())))
    };
    let marks: Vec<_> = StallCause::ALL.into_iter().filter_map(mark).collect();
    let title = format!("Share of time stalled over the {}", x_label.trim_end_matches(", MB/s"));
    Ok(Panel { title, x_label, x_end, y_end: 1.0, curves, marks, legend })
}

/// The share of time in which all shards stall, by how much they have in common.
fn shards_panel(model: &Model) -> Result<Panel, OutOfRange> {
    let (mut curves, mut legend) = (Vec::new(), Vec::new());
    let own = model.sharding.common_cause;
    let mut shares = vec![0.0, 0.1];
    if !shares.contains(&own) {
        shares.push(own);
    }
    let mut y_end: f64 = 0.0;
    for (common_cause, colour) in shares.into_iter().zip(COLOURS) {
        let mut of = *model;
        of.sharding.common_cause = common_cause;
        let prediction = of.predict()?;
        let points: Vec<(f64, f64)> =
            (1..=SHARDS_MAX).map(|shards| (f64::from(shards), prediction.alpha_all_of(shards))).collect();
        y_end = y_end.max(prediction.alpha);
        curves.push(Curve { points, colour, dashes: "none" });
        legend.push((format!("common cause {common_cause}"), colour, "none"));
    }
    let title = "Share of time in which all shards stall".into();
    let y_end = round_up(y_end.min(1.0));
    Ok(Panel {
        title,
        x_label: "shards",
        x_end: f64::from(SHARDS_MAX),
        y_end,
        curves,
        marks: Vec::new(),
        legend,
    })
}

impl Panel {
    fn draw(&self, out: &mut String, top: f64) -> std::fmt::Result {
        let right = WIDTH - RIGHT;
        let x_of = |x: f64| LEFT + (right - LEFT) * x / self.x_end;
        let y_of = |y: f64| top + PANEL * (1.0 - (y / self.y_end).clamp(0.0, 1.0));
        writeln!(out, "<text x=\"{LEFT}\" y=\"{:.0}\" font-size=\"15\">{}</text>", top - 14.0, self.title)?;
        for step in 0..=4 {
            let share = f64::from(step) / 4.0;
            let (x, y) = (x_of(self.x_end * share), y_of(self.y_end * share));
            let colour = if step == 0 { "#888" } else { "#ddd" };
            writeln!(out, "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"{colour}\"/>")?;
            writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                y + 4.0,
                figure(self.y_end * share)
            )?;
            writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                top + PANEL + 18.0,
                figure(self.x_end * share)
            )?;
        }
        writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            (LEFT + right) / 2.0,
            top + PANEL + 36.0,
            self.x_label
        )?;
        for curve in &self.curves {
            let points: Vec<String> =
                curve.points.iter().map(|(x, y)| format!("{:.1},{:.1}", x_of(*x), y_of(*y))).collect();
            writeln!(
                out,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\" stroke-dasharray=\"{}\"/>",
                points.join(" "),
                curve.colour,
                curve.dashes
            )?;
        }
        for (x, y, name) in &self.marks {
            let (x, y) = (x_of(*x), y_of(*y));
            writeln!(
                out,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\" fill=\"none\" stroke=\"#222\" stroke-width=\"1.5\">\
                 <title>{name}</title></circle><text x=\"{:.1}\" y=\"{:.1}\" font-size=\"10\">{name}</text>",
                x + 7.0,
                y - 5.0
            )?;
        }
        for (at, (name, colour, dashes)) in self.legend.iter().enumerate() {
            let y = top + 12.0 + 18.0 * at as f64;
            writeln!(
                out,
                "<path d=\"M{:.0} {y:.0}h30\" stroke=\"{colour}\" stroke-width=\"1.8\" stroke-dasharray=\"{dashes}\"/>\
                 <text x=\"{:.0}\" y=\"{:.0}\">{name}</text>",
                right + 14.0,
                right + 50.0,
                y + 4.0
            )?;
        }
        Ok(())
    }
}

/// A number for an axis.
fn figure(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A round number at or a little above `value`.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let ends = [1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 5.0, 6.0, 8.0];
    ends.into_iter().find(|end| value / power <= *end).unwrap_or(10.0) * power
}
