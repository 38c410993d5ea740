//! Several recorded reports as one, in which every engine of every file is an engine of its own.

use super::Origin;
use crate::report::Figures;
use crate::result::{Ratio, Report};
use crate::stats;
use std::collections::BTreeSet;

/// Joins reports, which come with the names of their files. An engine that an earlier file has already gets its
/// file's name added. Those of later files did not take turns with the first engine, so their ratios are those of
/// medians; what counts as equal is what the first file says.
pub(super) fn merged(files: Vec<(String, Report)>) -> (Report, Vec<Origin>) {
    let origin = |(name, report): &(String, Report)| Origin::of(report, Some(name.clone()));
    let origins: Vec<Origin> = files.iter().map(origin).collect();
    let mut whole = Report::default();
    for (at, (name, mut report)) in files.into_iter().enumerate() {
        if at == 0 {
            whole = report;
            continue;
        }
        let taken = stats::engines(&whole.runs);
        for run in report.runs.iter_mut().filter(|run| taken.contains(&run.engine)) {
            run.engine = (1..)
                .map(|nth| match nth {
                    1 => format!("{} ({name})", run.engine),
                    nth => format!("{} ({name} {nth})", run.engine),
                })
                .find(|new| !taken.contains(new))
                .expect("some number is not taken");
        }
        let new = stats::engines(&report.runs);
        whole.runs.append(&mut report.runs);
        let ratios = ratios_of_medians(&whole, &new);
        whole.ratios.extend(ratios);
    }
    (whole, origins)
}

/// Those of the first engine to each of `others`.
fn ratios_of_medians(whole: &Report, others: &[String]) -> Vec<Ratio> {
    let (figures, workloads) = (Figures::new(whole), stats::workloads(&whole.runs));
    let Some(a) = whole.runs.first().map(|run| &run.engine) else { return Vec::new() };
    let metrics: BTreeSet<String> =
        whole.runs.iter().flat_map(|run| stats::metrics(run).into_keys()).collect();
    let mut ratios = Vec::new();
    for (workload, b) in workloads.iter().flat_map(|workload| others.iter().map(move |b| (workload, b))) {
        for metric in &metrics {
            let of = |engine: &str| figures.median(workload, engine, metric);
            let Some((value, other)) = of(a).zip(of(b)).filter(|(_, other)| *other > 0.0) else { continue };
            let (workload, a, b, metric) = (workload.clone(), a.clone(), b.clone(), metric.clone());
            ratios.push(Ratio { workload, a, b, metric, median: value / other });
        }
    }
    ratios
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Run;

    fn report(engines: &[(&str, f64)]) -> Report {
        let run = |(engine, ops_per_sec): &(&str, f64)| Run {
            engine: (*engine).into(),
            workload: "w".into(),
            round: 1,
            ops_per_sec: *ops_per_sec,
            ..Run::default()
        };
        Report { runs: engines.iter().map(run).collect(), ..Report::default() }
    }

    #[test]
    fn engines_of_one_name_are_told_apart_by_their_files() {
        let files = vec![
            ("a".to_owned(), report(&[("x", 100.0), ("y", 50.0)])),
            ("b".to_owned(), report(&[("x", 25.0), ("z", 10.0)])),
            ("b".to_owned(), report(&[("x", 20.0)])),
        ];
        let (whole, origins) = merged(files);
        assert_eq!(stats::engines(&whole.runs), ["x", "y", "x (b)", "z", "x (b 2)"]);
        let ratio = whole.ratios.iter().find(|ratio| ratio.b == "x (b)" && ratio.metric == "ops_per_sec");
        assert_eq!((ratio.unwrap().median, origins.len()), (4.0, 3));
        assert!(merged(Vec::new()).0.runs.is_empty());
    }
}
