//! What was recorded of a database: reports of `dialsm-bench`, and the engine's statistics as JSON
//! (`Db::stats_json`), of which two, one after the other, are an observation.

use std::path::{Path, PathBuf};

use dialsm::stall_model::observe::{Drain, Observation, Stalls};
use dialsm::stall_model::{MegabytesPerSecond, StallCause};
use dialsm_core::{Error, Options};
use serde_json::Value;

use crate::exit::Failure;

/// One recording.
pub(super) struct Recorded {
    pub(super) observation: Observation,
    /// λ, where the load was an open loop's.
    pub(super) offered: Option<MegabytesPerSecond>,
    pub(super) options: Option<Options>,
}

/// Reads a report, whose first run with a name like `run` counts, or two statistics.
pub(super) fn read(files: &[PathBuf], run: Option<&str>) -> Result<Recorded, Failure> {
    let values = files.iter().map(|path| read_json(path)).collect::<Result<Vec<_>, _>>()?;
    match (&values[..], files) {
        ([report], [path]) if report.get("runs").is_some() => {
            of_report(report, run).map_err(|why| not_such(path, &why))
        }
        ([earlier, later], [first, second]) => {
            let earlier = of_statistics(earlier).map_err(|why| not_such(first, &why))?;
            let later = of_statistics(later).map_err(|why| not_such(second, &why))?;
            Ok(Recorded { observation: later.since(&earlier), offered: None, options: None })
        }
        _ => {
            let text = "--recording: want one report of dialsm-bench, or two of the engine's statistics, \
                        the earlier one first";
            Err(Failure::Usage(text.into()))
        }
    }
}

fn read_json(path: &Path) -> Result<Value, Failure> {
    let text = std::fs::read(path).map_err(|error| Error::io(&error, "read the recording", path))?;
    serde_json::from_slice(&text).map_err(|error| not_such(path, &error.to_string()))
}

fn not_such(path: &Path, why: &str) -> Failure {
    Failure::Error(Error::invalid(format!("no recording: {why}")).at_path(path))
}

/// A number at a path of names.
fn number(value: &Value, path: &[&str]) -> Result<f64, String> {
    let found = path.iter().try_fold(value, |value, name| value.get(name));
    found.and_then(Value::as_f64).ok_or_else(|| format!("it has no number '{}'", path.join(".")))
}

fn of_statistics(value: &Value) -> Result<Observation, String> {
    let of = |name: &str| number(value, &["metrics", name]);
    let mut seen = Observation {
        seconds: number(value, &["clock_ns"])? / 1e9,
        writes: of("writes")?,
        write_bytes: of("write_bytes")?,
        flushes: of("flushes")?,
        flush_input_bytes: of("flush_input_bytes")?,
        flush_bytes: of("flush_bytes")?,
        flush_seconds: of("flush_ns")? / 1e9,
        trees: number(value, &["trees"])?,
        ..Observation::default()
    };
    let levels = value.get("metrics").and_then(|metrics| metrics.get("levels")).and_then(Value::as_array);
    for (drain, level) in seen.levels.iter_mut().zip(levels.ok_or("it has no 'metrics.levels'")?) {
        let of = |name: &str| number(level, &[name]);
        *drain = Drain {
            drained_bytes: of("drained_bytes")?,
            survived_bytes: of("survived_bytes")?,
            seconds: of("drain_ns")? / 1e9,
        };
    }
    for cause in StallCause::ALL {
        seen.stalls[cause as usize] = Stalls {
            count: number(value, &["stall", "counts_by_cause", cause.as_str()])?,
            seconds: number(value, &["stall", "by_cause", cause.as_str()])?,
        };
    }
    Ok(seen)
}

fn of_report(report: &Value, wanted: Option<&str>) -> Result<Recorded, String> {
    let text = |run: &Value, name: &str| run.get(name).and_then(Value::as_str).unwrap_or("").to_owned();
    let name = |run: &Value| format!("{}/{}", text(run, "engine"), text(run, "workload"));
    let runs = report.get("runs").and_then(Value::as_array).ok_or("'runs' is no list")?;
    let is_wanted = |run: &&Value| wanted.is_none_or(|wanted| name(run).contains(wanted));
    let run = runs.iter().find(is_wanted).ok_or_else(|| {
        let names: Vec<String> = runs.iter().map(name).collect();
        format!("it has no such run (--run; there are {})", names.join(", "))
    })?;
    let of = |field: &str| number(run, &[field]);
    let counter =
        |name: &str| number(run, &["counters", name]).map_err(|why| format!("{why}; of our engines only"));
    let mut seen = Observation {
        seconds: of("seconds")?,
        writes: of("writes")?,
        write_bytes: of("user_bytes_written")?,
        flushes: counter("flushes")?,
        flush_input_bytes: counter("flush_input_bytes")?,
        flush_bytes: counter("flush_bytes")?,
        flush_seconds: counter("flush_ns")? / 1e9,
        trees: counter("trees")?,
        ..Observation::default()
    };
    for (level, drain) in seen.levels.iter_mut().enumerate() {
        let of = |name: &str| counter(&format!("l{level}_{name}"));
        *drain = Drain {
            drained_bytes: of("drained_bytes")?,
            survived_bytes: of("survived_bytes")?,
            seconds: of("drain_ns")? / 1e9,
        };
    }
    for cause in StallCause::ALL {
        let of = |field: &str| number(run, &["stall", "by_cause", cause.as_str(), field]);
        seen.stalls[cause as usize] = Stalls { count: of("count")?, seconds: of("seconds")? };
    }
    let entry_bytes = of("entry_bytes")?;
    let offered = run.get("rate").and_then(Value::as_f64);
    Ok(Recorded {
        observation: seen,
        offered: offered.map(|rate| MegabytesPerSecond(rate * entry_bytes / 1e6)),
        options: Some(options_of(&text(run, "options"))),
    })
}

/// The options of a run's one line, `name = value name = value`; what is not among them is the default.
fn options_of(line: &str) -> Options {
    let mut options = Options::default();
    let words: Vec<&str> = line.split_whitespace().collect();
    for triple in words.windows(3).filter(|triple| triple[1] == "=") {
        // Of another build's options those that this one has are what counts.
        let _ = options.set(triple[0], triple[2]);
    }
    options
}
