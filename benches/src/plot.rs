//! Drawings of a report, as SVG written by hand.
//!
//! ```text
//!   throughput-<workload>.svg   operations a second over time, an engine a panel, gaps shaded
//!   latency-<workload>.svg      latency by share of operations, both axes by powers of ten
//!   comparison.svg              median operations a second as bars, an engine a colour
//! ```
//! Colours alone carry nothing: every line and bar is labelled too.

mod charts;
mod svg;

use crate::result::{Report, Run};
use crate::stats::{median, workloads};
use anyhow::Result;
use std::path::Path;

/// Writes every drawing into `dir`, which is made.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn write_all(report: &Report, engines: &[String], dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir)?;
    for workload in workloads(&report.runs) {
        let runs = typical_runs(report, &workload, engines);
        let file = workload.replace(['#', '/'], "-");
        std::fs::write(dir.join(format!("throughput-{file}.svg")), charts::throughput(&workload, &runs))?;
        std::fs::write(dir.join(format!("latency-{file}.svg")), charts::latency(&workload, &runs))?;
    }
    std::fs::write(dir.join("comparison.svg"), charts::comparison(report, engines))?;
    Ok(())
}

/// Of each engine the run whose throughput is nearest the median.
fn typical_runs<'a>(report: &'a Report, workload: &str, engines: &[String]) -> Vec<&'a Run> {
    let typical = |engine: &String| {
        let of_engine = || report.runs.iter().filter(|run| run.workload == workload && run.engine == *engine);
        let middle = median(&of_engine().map(|run| run.ops_per_sec).collect::<Vec<_>>())?;
        let distance = |run: &Run| (run.ops_per_sec - middle).abs();
        of_engine().min_by(|a, b| distance(a).total_cmp(&distance(b)))
    };
    engines.iter().filter_map(typical).collect()
}
