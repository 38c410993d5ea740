use super::*;
use crate::engine::{Look, ShardLimits, ShardLook};
use crate::result::{Latency, LatencyPoint, Sample, TimelinePoint};
use roxmltree::{Document, Node};
use std::collections::BTreeMap;

/// A run with so many operations in each window of 100 ms.
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

/// A sample of two shards, the first with so many of 10 runs, after so many seconds of stalls.
fn sample(t_ms: u64, l0_runs: u64, stalled: f64) -> Sample {
    let shard = |l0_runs| ShardLook { l0_runs, is_open: l0_runs < 10, ..ShardLook::default() };
    let engine = Look {
        stall_seconds: Some(stalled),
        stall_seconds_by_cause: BTreeMap::from([("level0".to_owned(), stalled), ("memtable".into(), 0.0)]),
        shards: vec![shard(l0_runs), shard(1)],
        ..Look::default()
    };
    Sample { t_ms, cpu_seconds: t_ms as f64 / 500.0, rss_bytes: 7 << 20, engine, ..Sample::default() }
}

fn sampled(engine: &str) -> Run {
    let limits = ShardLimits { l0_runs: Some(10), ..ShardLimits::default() };
    Run {
        samples: vec![sample(0, 0, 0.0), sample(100, 4, 0.0), sample(200, 10, 0.05), sample(300, 10, 0.15)],
        shard_limits: vec![limits; 2],
        ..run(engine, &[100, 50, 0])
    }
}

fn sheet(width: f64) -> Sheet<'static> {
    Sheet { theme: Theme::File, width, id: "drawing" }
}

fn titles<'a>(document: &'a Document<'a>, name: &str) -> Vec<(Node<'a, 'a>, &'a str)> {
    let with_title = |node: Node<'a, 'a>| {
        let title = node.children().find(|child| child.has_tag_name(("http://www.w3.org/2000/svg", "title")));
        Some((node, title?.text()?))
    };
    let nodes = document.descendants().filter(|node| node.tag_name().name() == name);
    nodes.filter_map(with_title).collect()
}

fn number(node: Node<'_, '_>, attribute: &str) -> f64 {
    node.attribute(attribute).expect("an attribute").parse().expect("a number")
}

#[test]
fn gaps_and_causes_stand_where_the_record_has_them() {
    let (stalling, steady) = (sampled("a<&\"b>"), run("steady", &[100; 2000]));
    for width in [WIDE, 340.0] {
        let svg = sheet(width).throughput("fillrandom", &[&stalling]);
        let document = Document::parse(&svg).unwrap();
        let rects = titles(&document, "rect");
        let gaps: Vec<_> = rects.iter().filter(|(_, title)| title.contains("no write completed")).collect();
        assert_eq!((gaps.len(), gaps[0].1), (1, "0.2 s: no write completed for 100 ms"));
        let causes: Vec<_> = rects.iter().filter(|(_, title)| title.contains("level0")).collect();
        let told: Vec<&str> = causes.iter().map(|(_, title)| *title).collect();
        assert_eq!(told, ["0.1 to 0.2 s: level0 for 50 ms", "0.2 to 0.3 s: level0 for 100 ms"]);
        let heights = (number(causes[0].0, "height"), number(causes[1].0, "height"));
        assert!((heights.1 / heights.0 - 2.0).abs() < 0.05, "{heights:?}");
        assert!(!svg.contains("memtable"), "a cause that never was has no row");
    }
    let svg = sheet(WIDE).throughput("fillrandom", &[&stalling, &steady]);
    assert_eq!(svg.matches("<polyline").count(), 2);
    assert!(svg.len() < 60_000, "2000 points are thinned: {} bytes", svg.len());
}

#[test]
fn a_shard_at_its_stop_shows() {
    let run = sampled("a<&\"b>");
    for width in [WIDE, 340.0] {
        let svg = sheet(width).pressure("fillrandom", &run);
        let document = Document::parse(&svg).unwrap();
        let told: Vec<&str> = titles(&document, "rect").iter().map(|(_, title)| *title).collect();
        let expected = [
            "shard 0, 0 to 0.1 s: Runs of level 0 at most 40 %",
            "shard 0, 0.1 to 0.3 s: Runs of level 0 at most 100 %, writes slowed, stopped or sent elsewhere",
            "shard 1, 0 to 0.3 s: Runs of level 0 at most 10 %",
        ];
        assert_eq!(told, expected);
        assert!(svg.contains("Memtables: the limit is not told"));
    }
}

#[test]
fn latencies_and_quantities_are_drawn_at_their_values() {
    let (a, b) = (sampled("a<&\"b>"), run("steady", &[100; 20]));
    for width in [WIDE, 340.0] {
        let svg = sheet(width).latency("fillrandom", &[&a, &b]);
        let document = Document::parse(&svg).unwrap();
        let dots = titles(&document, "circle");
        let told: Vec<&str> = dots[..4].iter().map(|(_, title)| *title).collect();
        let expected =
            ["a<&\"b> write: 1 µs", "a<&\"b> write: 3 µs", "a<&\"b> write: 200 µs", "a<&\"b> write: 1 s"];
        assert_eq!(told, expected);
        // From 1 µs to 1 s are six decades, of which 3 µs is half a one.
        let y = |at: usize| number(dots[at].0, "cy");
        assert!(((y(0) - y(1)) / (y(0) - y(3)) - 3f64.log10() / 6.0).abs() < 0.01);
        assert!(svg.contains("99.9 %") && svg.contains(">1 s<"));
    }
    let cpu = QUANTITIES[0].of(&a);
    assert_eq!(cpu.iter().map(|point| point.0).collect::<Vec<_>>(), [50.0, 150.0, 250.0]);
    assert!(cpu.iter().all(|point| (point.1 - 2.0).abs() < 1e-9), "two processors' time: {cpu:?}");
    assert_eq!(QUANTITIES[1].of(&a)[0], (0.0, 7.0));
    assert!(QUANTITIES[0].is_told(&[&a]) && !QUANTITIES[3].is_told(&[&a, &b]));
    for quantity in &QUANTITIES {
        Document::parse(&sheet(450.0).lines("fillrandom", &[&a, &b], quantity)).unwrap();
    }
}

#[test]
fn bars_are_as_long_as_their_medians() {
    let of = |engine: &str, round, ops_per_sec| Run { round, ops_per_sec, ..run(engine, &[1]) };
    let runs = vec![of("a<", 1, 100.0), of("b", 1, 40.0), of("a<", 2, 300.0), of("b", 2, 60.0)];
    let engines = ["a<".to_owned(), "b".to_owned()];
    let ratios = crate::stats::ratios(&runs, &engines);
    let aa = crate::stats::spreads(&runs, &[of("a<", 1, 110.0)]);
    let report = Report { runs, ratios, aa, ..Report::default() };
    let groups = comparison(&Figures::new(&report), &engines);
    let [group] = &groups[..] else { panic!("one workload") };
    let (low, high) = group.equal.unwrap();
    assert!((low - 200.0 / 1.1).abs() < 1e-9 && (high - 220.0).abs() < 1e-9);
    for width in [WIDE, 340.0] {
        let svg = sheet(width).bars("Operations a second", &groups);
        let document = Document::parse(&svg).unwrap();
        let bars = titles(&document, "rect");
        assert!(bars[0].1.contains("counts as equal"));
        assert_eq!(bars[1].1, "a<: 200");
        assert_eq!(bars[2].1, "b: 50 (3.75×)");
        let (a, b) = (number(bars[1].0, "width"), number(bars[2].0, "width"));
        assert!((a / b - 4.0).abs() < 0.02, "{a} {b}");
    }
}

#[test]
fn empty_runs_draw_too() {
    let empty = Run { engine: "e".into(), ..Run::default() };
    let figures = Report::default();
    for width in [WIDE, 340.0] {
        let sheet = sheet(width);
        for svg in [
            sheet.throughput("w", &[&empty]),
            sheet.throughput("w", &[]),
            sheet.latency("w", &[&empty]),
            sheet.pressure("w", &empty),
            sheet.lines("w", &[&empty], &QUANTITIES[0]),
            sheet.bars("w", &comparison(&Figures::new(&figures), &[])),
        ] {
            Document::parse(&svg).unwrap();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}

#[test]
fn what_xml_can_not_hold_is_replaced() {
    assert_eq!(
        escape("a<b>&\"'\u{1}\u{7f}\u{ffff}\t."),
        "a&lt;b&gt;&amp;&quot;&#39;\u{fffd}\u{fffd}\u{fffd}\t."
    );
}
