use super::*;
use crate::engine::{Door, Look, ShardLimits, ShardLook};
use crate::result::{CauseOfStall, DiskPoint, Latency, LatencyPoint, Run, Sample, Stall, TimelinePoint};
use roxmltree::{Document, Node, ParsingOptions};
use std::collections::{BTreeMap, BTreeSet};

const NASTY: &str = "a<&\"'b>]]>\u{0}</style><script src='http://x/'>";

/// Reads a page and checks that it is complete in itself: nothing that is fetched, no script, ids that are unique,
/// references that lead somewhere, coordinates that are numbers.
fn checked(page: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    let document = Document::parse_with_options(page, options).unwrap_or_else(|error| panic!("{error}"));
    let ids: Vec<&str> = document.descendants().filter_map(|node| node.attribute("id")).collect();
    let distinct: BTreeSet<&str> = ids.iter().copied().collect();
    assert_eq!(distinct.len(), ids.len(), "ids are unique");
    for node in document.descendants().filter(Node::is_element) {
        let name = node.tag_name().name();
        let fetching = ["script", "link", "img", "image", "iframe", "object", "embed", "base", "form", "use"];
        assert!(!fetching.contains(&name), "{name}");
        for attribute in node.attributes() {
            let (name, value) = (attribute.name(), attribute.value());
            assert!(!["src", "srcset", "data", "action", "poster", "style"].contains(&name), "{name}");
            assert!(!name.starts_with("on"), "{name}");
            let target = match name {
                "href" => Some(value.strip_prefix('#').expect("only links within the page")),
                _ => value.strip_prefix("url(#").map(|rest| rest.trim_end_matches(')')),
            };
            assert!(target.is_none_or(|target| distinct.contains(target)), "{value} leads nowhere");
            assert!(!value.contains("url(") || value.starts_with("url(#"), "{value}");
            if name == "aria-labelledby" {
                assert!(value.split(' ').all(|id| distinct.contains(id)), "{value}");
            }
            let numbers = ["x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height", "points"];
            if numbers.contains(&name) {
                let all = value.split([' ', ',']).filter(|part| !part.is_empty());
                all.for_each(|part| assert!(part.parse::<f64>().is_ok_and(f64::is_finite), "{name}={value}"));
            }
        }
    }
    let style = document.descendants().find(|node| node.has_tag_name("style")).unwrap().text().unwrap();
    assert!(!style.contains("url(") && !style.contains("@import"));
    for drawing in document.descendants().filter(|node| node.has_tag_name("svg")) {
        let is_labelled = drawing.has_attribute("aria-labelledby") && drawing.has_attribute("role");
        assert!(is_labelled || drawing.has_attribute("aria-hidden"));
    }
    document
}

fn text_of(document: &Document<'_>) -> String {
    document
        .descendants()
        .filter_map(|node| node.text().filter(|_| node.is_text()))
        .collect::<Vec<_>>()
        .join("|")
}

/// A record that has something everywhere.
fn full(engine: &str, workload: &str, ops_per_sec: f64) -> Run {
    let shard = |l0_runs| ShardLook { memtable_bytes: 60, l0_runs, pending_bytes: 1, is_open: l0_runs < 9 };
    let sample = |at: u64| Sample {
        t_ms: at * 100,
        cpu_seconds: at as f64 / 10.0,
        rss_bytes: (50 + at) << 20,
        read_device: 1 << 20,
        write_device: at << 22,
        engine: Look {
            stall_seconds: Some(at as f64 / 20.0),
            stall_seconds_by_cause: BTreeMap::from([(NASTY.to_owned(), at as f64 / 20.0)]),
            door: Some(Door::Delayed),
            shards: vec![shard(at), shard(3)],
        },
    };
    let point = |at: u64| TimelinePoint { t_ms: at * 100, ops: 123, writes: 123, stalled_ms: at as f64 };
    let limits = ShardLimits { memtable_bytes: Some(100), l0_runs: Some(10), pending_bytes: Some(1000) };
    let latency = Latency { p50: 5.5, p99: 123.0, p999: 4567.0, p9999: 8e6, max: 9e6, mean: 7.0, count: 77 };
    let curve = [(0.0, 1.0), (0.5, 5.5), (0.99, 123.0), (1.0, 9e6)];
    Run {
        engine: engine.into(),
        workload: workload.into(),
        round: 1,
        ops: 1230,
        ops_per_sec,
        seconds: 1.0,
        threads: 4,
        entry_bytes: 116,
        timeline: (0..10).map(point).collect(),
        samples: (0..=10).map(sample).collect(),
        sampling_seconds: Some(0.001),
        shard_limits: vec![limits; 2],
        latency_us: BTreeMap::from([("write".into(), latency)]),
        latency_curve: BTreeMap::from([(
            "write".into(),
            curve.map(|(share, us)| LatencyPoint { share, us }).to_vec(),
        )]),
        stall: Stall {
            count: Some(3),
            seconds: Some(0.5),
            by_cause: BTreeMap::from([(NASTY.into(), CauseOfStall { count: Some(3), seconds: Some(0.5) })]),
            gap_seconds: Some(0.045),
            longest_gap_ms: Some(12.0),
            starved_seconds: Some(0.1),
        },
        write_amp: Some(3.25),
        read_amp: Some(1.5),
        space_amp: Some(1.125),
        disk_timeline: vec![DiskPoint { t_ms: 0, bytes: 1 << 20 }, DiskPoint { t_ms: 200, bytes: 5 << 20 }],
        options: format!("x={NASTY}"),
        ..Run::default()
    }
}

fn report(runs: Vec<Run>) -> Report {
    let names = engines(&runs);
    let ratios = crate::stats::ratios(&runs, &names);
    let again: Vec<Run> = runs.iter().filter(|run| run.engine == names[0]).cloned().collect();
    let aa = crate::stats::spreads(&runs, &again);
    Report { runs, ratios, aa, aa_runs: again, ..Report::default() }
}

fn page_of(report: &Report) -> String {
    page(report, &[Origin::of(report, None)])
}

#[test]
fn nasty_names_stay_texts() {
    let mut report = report(vec![full(NASTY, NASTY, 2000.0), full("plain", NASTY, 1000.0)]);
    report.command = vec!["bench".into(), NASTY.into(), "it's".into(), String::new()];
    report.environment = Some(Environment {
        cpu: NASTY.into(),
        kernel: NASTY.into(),
        file_system: NASTY.into(),
        revision: NASTY.into(),
        ..Environment::default()
    });
    let page = page(&report, &[Origin::of(&report, Some(NASTY.into()))]);
    let document = checked(&page);
    let heading = document.descendants().find(|node| node.has_tag_name("h1")).unwrap().text().unwrap();
    assert!(heading.contains("</style><script src='http://x/'>"), "{heading}");
    let command = document.descendants().find(|node| node.has_tag_name("pre")).unwrap();
    let words: Vec<&str> = command.children().filter_map(|word| word.text()).collect();
    assert_eq!(words.concat().split_once("'it").unwrap().1, "'\\''s' ''", "a shell reads it as it was");
}

#[test]
fn figures_are_those_of_the_record() {
    let report = report(vec![full("one", "fill", 2000.0), full("two", "fill", 1000.0)]);
    let page = page_of(&report);
    let document = checked(&page);
    let text = text_of(&document).replace('\u{a0}', " ");
    for figure in [
        "5.5 µs",
        "123 µs",
        "4.57 ms",
        "8 s",
        "9 s",
        "3.25",
        "0.50 s",
        "2.00×",
        "slower",
        "0.04",
        "60 %",
        "fill, two: 1 k operations a second; one did 2.00 times as many",
    ] {
        assert!(text.contains(figure), "{figure}");
    }
    // Bars of the comparison: the second engine's is half as long.
    let bars = |engine: &str| -> Vec<f64> {
        let rects = document.descendants().filter(|node| node.has_tag_name("rect"));
        let of_engine = rects.filter(|node| {
            let title = node.children().find(|child| child.has_tag_name("title")).and_then(|t| t.text());
            title.is_some_and(|title| title.starts_with(&format!("{engine}: ")))
        });
        of_engine.map(|node| node.attribute("width").unwrap().parse().unwrap()).collect()
    };
    let (one, two) = (bars("one"), bars("two"));
    assert!((one[0] / two[0] - 2.0).abs() < 0.01 && (one[1] / two[1] - 2.0).abs() < 0.01);
    // A drawing and, below it, its figures.
    let count = |name: &str| document.descendants().filter(|node| node.has_tag_name(name)).count();
    assert!(count("table") >= 8 && count("figure") == 7, "{} {}", count("table"), count("figure"));
}

#[test]
fn a_record_with_little_in_it_makes_a_page() {
    checked(&page_of(&Report::default()));
    let bare = Run { engine: "e".into(), workload: "w".into(), ..Run::default() };
    let document_text = |report: &Report| {
        let page = page_of(report);
        text_of(&checked(&page))
    };
    let text = document_text(&report(vec![bare]));
    assert!(text.contains("The command was not recorded.") && text.contains("e: nothing was looked at"));
    let mut one = full("e", "w", 10.0);
    one.samples.truncate(1);
    one.timeline.truncate(1);
    one.latency_curve.insert("read".into(), Vec::new());
    document_text(&report(vec![one]));
    let mut silent = full("e", "w", 10.0);
    for sample in &mut silent.samples {
        sample.engine = Look::default();
    }
    assert!(document_text(&report(vec![silent])).contains("e: when and why writers wait is not told"));
}

#[test]
fn what_is_no_number_does_no_harm() {
    for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -1.0, 1e300, 1e-300] {
        let mut run = full("e", "w", odd);
        run.seconds = odd;
        run.write_amp = Some(odd);
        run.stall.gap_seconds = Some(odd);
        run.stall.longest_gap_ms = Some(odd);
        run.sampling_seconds = Some(odd);
        for sample in &mut run.samples {
            sample.cpu_seconds = odd;
            sample.engine.stall_seconds_by_cause.insert("memtable".into(), odd);
        }
        run.timeline[3].stalled_ms = odd;
        run.latency_us.get_mut("write").unwrap().p99 = odd;
        run.latency_curve.get_mut("write").unwrap()[1] = LatencyPoint { share: odd, us: odd };
        let page = page_of(&report(vec![run, full("f", "w", 10.0)]));
        checked(&page);
        assert!(!page.contains("NaN") && !page.contains(">inf"), "{odd}");
    }
}

#[test]
fn times_that_do_not_grow_do_no_harm() {
    let mut run = full("e", "w", 10.0);
    for sample in &mut run.samples {
        sample.t_ms = 500;
    }
    run.samples[4].t_ms = 3;
    checked(&page_of(&report(vec![run])));
}

/// As WCAG 2 has it: the ratio of two colours' brightness.
fn contrast(a: &str, b: &str) -> f64 {
    let luminance = |colour: &str| {
        let channel = |at: usize| {
            let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    };
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

#[test]
fn texts_and_lines_stand_out_in_the_light_and_in_the_dark() {
    let light = format!("{}{LIGHT}", light_colours());
    for colours in [light.as_str(), DARK] {
        let pairs = colours.split(';').filter_map(|pair| pair.trim().split_once(':'));
        let colours: BTreeMap<&str, &str> = pairs.collect();
        let ground = colours["--ground"];
        for text in ["--ink", "--muted", "--link"] {
            assert!(contrast(colours[text], ground) >= 4.5, "{text}");
        }
        assert!(contrast(colours["--ink"], colours["--inset"]) >= 4.5);
        for (name, colour) in colours.iter().filter(|(name, _)| name.starts_with("--series")) {
            assert!(contrast(colour, ground) >= 3.0, "{name}");
        }
        for cause in 0..4 {
            assert!(contrast(colours[format!("--cause-{cause}").as_str()], ground) >= 3.0, "cause {cause}");
        }
        let heat: Vec<f64> =
            (0..5).map(|step| contrast(colours[format!("--heat-{step}").as_str()], ground)).collect();
        assert!(heat.windows(2).all(|pair| pair[1] > pair[0] * 1.1), "each step stands out more: {heat:?}");
    }
}
