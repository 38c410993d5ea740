//! The elements a drawing is made of, escaped and closed.
//!
//! A drawing is a file of its own or a part of a page. The file has colours and a white ground; in the page, colours
//! are names that its style sheet gives values for light and dark screens. Either way the markup is XML, and a text may
//! hold anything.

use std::fmt::Write;

/// Where a drawing is going to stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Theme {
    File,
    Page,
}

/// What a thing is drawn for; its colour follows from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    Ink,
    Muted,
    Grid,
    Axis,
    Ground,
    /// What belongs to the engine at a place in the list.
    Series(usize),
    /// Time in which no write completed.
    Gap,
    /// A reason for stalls, as a pattern.
    Cause(usize),
    /// A step of the heat map, the last of which is the stop.
    Heat(usize),
    /// Nothing was told, as a pattern.
    Unknown,
}

/// Distinct for eyes of all kinds in this order, and against the ground by 3 to 1 or more.
const SERIES: [&str; 6] = ["#0072b2", "#c24e00", "#00805c", "#a8548b", "#866a00", "#5b6570"];
pub(crate) const HEAT_STEPS: usize = 6;
const HEAT: [&str; HEAT_STEPS] = ["#edf2f7", "#c3d9ec", "#8bb8db", "#4a8fc2", "#1d5a96", "#c24e00"];
/// Causes beyond these share the last pattern, and their labels tell them apart.
pub(crate) const CAUSES: usize = 4;
const CAUSE_INK: [&str; CAUSES] = ["#c24e00", "#6a3d9a", "#866a00", "#5b6570"];

impl Paint {
    fn value(self, theme: Theme) -> String {
        let (hex, name) = match self {
            Paint::Ink => ("#1b2026", "ink".to_owned()),
            Paint::Muted => ("#55606b", "muted".to_owned()),
            Paint::Grid => ("#e1e6eb", "grid".to_owned()),
            Paint::Axis => ("#8a949e", "axis".to_owned()),
            Paint::Ground => ("#ffffff", "ground".to_owned()),
            Paint::Series(index) => {
                let index = index % SERIES.len();
                (SERIES[index], format!("series-{index}"))
            }
            Paint::Gap => ("#d08a5b", "gap".to_owned()),
            Paint::Heat(step) => {
                let step = step.min(HEAT_STEPS - 1);
                (HEAT[step], format!("heat-{step}"))
            }
            Paint::Cause(index) => return format!("url(#cause-{})", index.min(CAUSES - 1)),
            Paint::Unknown => return "url(#unknown)".into(),
        };
        match theme {
            Theme::File => hex.into(),
            Theme::Page => format!("var(--{name})"),
        }
    }
}

/// Where a text's position lies in it.
#[derive(Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// What a drawing is called, for those who do not see it.
pub(crate) struct Caption<'a> {
    /// Unlike that of any other drawing of the page.
    pub(crate) id: &'a str,
    pub(crate) title: &'a str,
    pub(crate) description: &'a str,
}

/// A drawing that is being made.
pub(crate) struct Svg {
    pub(crate) theme: Theme,
    width: f64,
    body: String,
}

/// Text as markup: escaped, and without the characters that XML cannot hold.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(c),
            c if c.is_control() || c == '\u{fffe}' || c == '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

impl Svg {
    pub(crate) fn new(theme: Theme, width: f64) -> Svg {
        Svg { theme, width, body: String::new() }
    }

    pub(crate) fn text(&mut self, at: (f64, f64), size: f64, anchor: Anchor, paint: Paint, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let ((x, y), fill, text) = (at, paint.value(self.theme), escape(text));
        let _ = writeln!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\" fill=\"{fill}\">{text}</text>"
        );
    }

    pub(crate) fn line(&mut self, from: (f64, f64), to: (f64, f64), paint: Paint) {
        let ((x1, y1), (x2, y2), stroke) = (from, to, paint.value(self.theme));
        let _ = writeln!(
            self.body,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{stroke}\"/>"
        );
    }

    /// A line through points; `dashes` is SVG's pattern, `none` for an unbroken one.
    pub(crate) fn polyline(&mut self, points: &[(f64, f64)], paint: Paint, dashes: &str) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let (points, stroke) = (points.join(" "), paint.value(self.theme));
        let _ = writeln!(
            self.body,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"1.75\" \
             stroke-linejoin=\"round\" stroke-dasharray=\"{dashes}\"/>"
        );
    }

    /// A filled box; what `title` says shows under a pointer.
    pub(crate) fn rect(&mut self, at: (f64, f64), size: (f64, f64), paint: Paint, opacity: f64, title: &str) {
        let ((x, y), fill) = (at, paint.value(self.theme));
        let (width, height) = (size.0.max(0.0), size.1.max(0.0));
        let _ = write!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\""
        );
        if opacity < 1.0 {
            let _ = write!(self.body, " fill-opacity=\"{opacity:.2}\"");
        }
        let _ = match title {
            "" => writeln!(self.body, "/>"),
            title => writeln!(self.body, "><title>{}</title></rect>", escape(title)),
        };
    }

    pub(crate) fn dot(&mut self, (x, y): (f64, f64), radius: f64, paint: Paint, title: &str) {
        let (fill, title) = (paint.value(self.theme), escape(title));
        let _ = writeln!(
            self.body,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{fill}\"><title>{title}</title></circle>"
        );
    }

    /// The whole of it, which is `height` high.
    pub(crate) fn finish(self, height: f64, caption: &Caption<'_>) -> String {
        let Svg { theme, width, body } = self;
        let (id, title, description) = (caption.id, escape(caption.title), escape(caption.description));
        let size = format!("viewBox=\"0 0 {width} {height:.0}\" width=\"{width}\" height=\"{height:.0}\"");
        let names = format!("<title id=\"{id}-t\">{title}</title><desc id=\"{id}-d\">{description}</desc>");
        match theme {
            Theme::File => format!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" {size} font-family=\"sans-serif\">\n{names}\n{}\
                 <rect width=\"{width}\" height=\"{height:.0}\" fill=\"#fff\"/>\n{body}</svg>\n",
                patterns(theme)
            ),
            Theme::Page => format!(
                "<svg {size} role=\"img\" aria-labelledby=\"{id}-t {id}-d\">\n{names}\n{body}</svg>\n"
            ),
        }
    }
}

/// What patterned paints are drawn with. A page has it once, ahead of its drawings.
pub(crate) fn patterns(theme: Theme) -> String {
    const STROKES: [&str; CAUSES + 1] = [
        // Falling, rising, level, crossed; for what is not told, few dots.
        "<path d=\"M-1 -1L7 7M-1 5L1 7M5 -1L7 1\" ",
        "<path d=\"M-1 7L7 -1M-1 1L1 -1M5 7L7 5\" ",
        "<path d=\"M0 1.5H6M0 4.5H6\" ",
        "<path d=\"M0 3H6M3 0V6\" ",
        "<path d=\"M1 1h1.4M4 4h1.4\" ",
    ];
    let mut out = String::from("<defs>\n");
    for (index, strokes) in STROKES.iter().enumerate() {
        let (id, ink) = match (index < CAUSES, theme) {
            (true, Theme::File) => (format!("cause-{index}"), CAUSE_INK[index].to_owned()),
            (true, Theme::Page) => (format!("cause-{index}"), format!("var(--cause-{index})")),
            (false, _) => ("unknown".to_owned(), Paint::Axis.value(theme)),
        };
        let ground = match index < CAUSES {
            true => format!("<rect width=\"6\" height=\"6\" fill=\"{ink}\" fill-opacity=\"0.35\"/>"),
            false => String::new(),
        };
        let _ = writeln!(
            out,
            "<pattern id=\"{id}\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">{ground}{strokes}\
             stroke=\"{ink}\" stroke-width=\"1.4\" fill=\"none\"/></pattern>"
        );
    }
    out + "</defs>\n"
}

/// The colours by the names that a page's drawings use, for its style sheet in the light.
pub(crate) fn light_colours() -> String {
    let mut paints = vec![Paint::Ink, Paint::Muted, Paint::Grid, Paint::Axis, Paint::Ground, Paint::Gap];
    paints.extend((0..SERIES.len()).map(Paint::Series));
    paints.extend((0..HEAT_STEPS).map(Paint::Heat));
    let mut out = String::new();
    for paint in paints {
        let name = paint.value(Theme::Page);
        let name = name.trim_start_matches("var(").trim_end_matches(')');
        let _ = write!(out, "{name}:{};", paint.value(Theme::File));
    }
    for (index, ink) in CAUSE_INK.iter().enumerate() {
        let _ = write!(out, "--cause-{index}:{ink};");
    }
    out
}
