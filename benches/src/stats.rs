//! Medians, ratios between engines, and the spread within which a ratio says nothing.

use crate::result::{Ratio, Run, Spread};
use serde_json::Value;
use std::collections::BTreeMap;

/// The middle value; the mean of the two middle ones of an even number. Nothing of nothing.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        len if len % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// Parts of a run that are no figure to compare.
const NOT_METRICS: [&str; 12] = [
    "round",
    "timeline",
    "samples",
    "sampling_seconds",
    "shard_limits",
    "disk_timeline",
    "latency_curve",
    "options",
    "threads",
    "entry_bytes",
    "rate",
    "counters",
];

/// Every number of a run by its path, as in `latency_us.write.p99`.
pub(crate) fn metrics(run: &Run) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    if let Ok(Value::Object(fields)) = serde_json::to_value(run) {
        for (name, value) in fields.iter().filter(|(name, _)| !NOT_METRICS.contains(&name.as_str())) {
            collect(name.clone(), value, &mut found);
        }
    }
    found
}

fn collect(path: String, value: &Value, found: &mut BTreeMap<String, f64>) {
    match value {
        Value::Number(number) => {
            found.extend(number.as_f64().map(|number| (path, number)));
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                collect(format!("{path}.{name}"), value, found);
            }
        }
        _ => {}
    }
}

/// The workloads of some runs, each once, in the order of their appearance.
pub(crate) fn workloads(runs: &[Run]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for run in runs {
        if !names.contains(&run.workload) {
            names.push(run.workload.clone());
        }
    }
    names
}

/// The engines of some runs, each once, in the order of their appearance.
pub(crate) fn engines(runs: &[Run]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for run in runs {
        if !names.contains(&run.engine) {
            names.push(run.engine.clone());
        }
    }
    names
}

/// By metric, the ratios of `a` to `b` in each round in which both ran.
fn round_ratios(a: &[&Run], b: &[&Run]) -> BTreeMap<String, Vec<f64>> {
    let mut ratios: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for of_a in a {
        let Some(of_b) = b.iter().find(|run| run.round == of_a.round) else { continue };
        let of_b = metrics(of_b);
        for (metric, value) in metrics(of_a) {
            // With nothing below the line there is no ratio.
            if let Some(&other) = of_b.get(&metric).filter(|&&other| other > 0.0) {
                ratios.entry(metric).or_default().push(value / other);
            }
        }
    }
    ratios
}

fn select<'a>(runs: &'a [Run], workload: &str, engine: &str) -> Vec<&'a Run> {
    runs.iter().filter(|run| run.workload == workload && run.engine == engine).collect()
}

/// The median ratios of the first engine to each other.
pub(crate) fn ratios(runs: &[Run], engines: &[String]) -> Vec<Ratio> {
    let Some((a, others)) = engines.split_first() else { return Vec::new() };
    let mut ratios = Vec::new();
    for workload in workloads(runs) {
        for b in others {
            let by_metric = round_ratios(&select(runs, &workload, a), &select(runs, &workload, b));
            for (metric, values) in by_metric {
                let Some(median) = median(&values) else { continue };
                ratios.push(Ratio { workload: workload.clone(), a: a.clone(), b: b.clone(), metric, median });
            }
        }
    }
    ratios
}

/// How far the two runs of one engine lay apart in the worst round, by metric.
pub(crate) fn spreads(runs: &[Run], again: &[Run]) -> Vec<Spread> {
    let mut spreads = Vec::new();
    for workload in workloads(again) {
        let Some(engine) = again.iter().find(|run| run.workload == workload).map(|run| &run.engine) else {
            continue;
        };
        let by_metric = round_ratios(&select(runs, &workload, engine), &select(again, &workload, engine));
        for (metric, values) in by_metric {
            let apart = values.iter().filter(|value| **value > 0.0).map(|value| value.max(1.0 / value));
            let Some(spread) = apart.reduce(f64::max) else { continue };
            spreads.push(Spread { workload: workload.clone(), engine: engine.clone(), metric, spread });
        }
    }
    spreads
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Latency;

    fn run(engine: &str, round: u32, ops_per_sec: f64, p99: f64) -> Run {
        let latency = Latency { p99, ..Latency::default() };
        Run {
            engine: engine.into(),
            workload: "fillrandom".into(),
            round,
            ops_per_sec,
            latency_us: BTreeMap::from([("write".to_owned(), latency)]),
            ..Run::default()
        }
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[f64::NAN, 1.0]), Some(1.0));
    }

    #[test]
    fn metrics_have_the_paths_of_the_json_file() {
        let mut run = run("a", 1, 10.0, 7.0);
        run.stall.gap_seconds = Some(0.5);
        let metrics = metrics(&run);
        assert_eq!(metrics["ops_per_sec"], 10.0);
        assert_eq!(metrics["latency_us.write.p99"], 7.0);
        assert_eq!(metrics["stall.gap_seconds"], 0.5);
        assert!(!metrics.contains_key("stall.seconds"), "what is absent is no figure");
        assert!(!metrics.contains_key("round"));
    }

    #[test]
    fn ratios_are_medians_over_rounds_and_not_of_medians() {
        let engines = ["a".to_owned(), "b".to_owned()];
        let runs = [
            run("a", 1, 100.0, 1.0),
            run("b", 1, 50.0, 0.0),
            run("a", 2, 90.0, 1.0),
            run("b", 2, 100.0, 0.0),
            run("b", 3, 30.0, 4.0),
            run("a", 3, 90.0, 1.0),
        ];
        let ratios = ratios(&runs, &engines);
        let of = |metric: &str| ratios.iter().find(|ratio| ratio.metric == metric).map(|ratio| ratio.median);
        assert_eq!(of("ops_per_sec"), Some(2.0));
        assert_eq!(of("latency_us.write.p99"), Some(0.25), "rounds with nothing below the line do not count");
        assert_eq!(of("latency_us.write.p50"), None);
        assert!(ratios.iter().all(|ratio| (ratio.a.as_str(), ratio.b.as_str()) == ("a", "b")));
    }

    #[test]
    fn the_spread_is_the_worst_round_in_either_direction() {
        let runs = [run("a", 1, 100.0, 1.0), run("a", 2, 100.0, 1.0), run("b", 1, 1.0, 1.0)];
        let again = [run("a", 1, 95.0, 1.0), run("a", 2, 125.0, 1.0)];
        let spreads = spreads(&runs, &again);
        let of = |metric: &str| spreads.iter().find(|spread| spread.metric == metric).unwrap().spread;
        assert_eq!((of("ops_per_sec"), of("latency_us.write.p99")), (1.25, 1.0));
    }
}
