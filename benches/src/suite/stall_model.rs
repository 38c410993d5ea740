//! The stall model against the engine: the rates of one run, the *calibration*, predict the stalls of others that
//! have another load, other memtables, workers, sub-compactions or shards.
//!
//! ```text
//!   calibrate       a closed loop: what the stages can do, and how much is taken
//!   the others      an open loop at a multiple of that (`-x125`: 125 %; 150 % where nothing is said), which loses
//!                   what comes due while a stall holds it up, so that λ is the offered rate
//! ```
//! No log, and writes are not slowed down before they stop, as in the paper's measurements. What a setting changes is
//! what is known of it beforehand, and nothing is fitted:
//! - memtables change M and S_SST, and μ_0: a compaction out of level 0 takes half of the runs that would stop writers
//!   (`level0_patience`), D bytes, and with them the base level, B bytes, so that μ_0 goes as D/(D + B);
//! - sub-compactions change μ_0, by Amdahl's law, and compactions beside one another leave each other the workers that they
//!   do not need: as far as there are processors, one of which the writers and the flush have;
//! - shards have the stages between them. Without redirects a thread that one shard holds up brings nothing to the
//!   others, so that they stall as one. With them, what is predicted is that all stall, for the cause that they have in
//!   common where they share a worker, and what is measured are gaps in which no write completes.

use crate::config::Config;
use crate::result::{Report, Run};
use anyhow::{Context, Result, anyhow};
use dialsm::stall_model::observe::{Drain, Observation, Stalls};
use dialsm::stall_model::{
    Form, MegabytesPerSecond, Model, Prediction, Rates, Seconds, Sharding, StallCause, Writes, subcompacted,
};
use dialsm_core::Options;
use std::fmt::Write as _;

pub(super) const NAME: &str = "stall-model";
pub(super) const CALIBRATION: &str = "calibrate";

/// The load where a cell's name says none, in percent of what the calibration took.
const LOAD_PERCENT: f64 = 150.0;

/// What sub-compactions share of a compaction's work: all but its planning and its end, as parts of equal size are cut
/// beforehand.
const PARALLEL_SHARE: f64 = 0.9;

/// So that all levels stall within some seconds: 16 MiB memtables, 12 runs in level 0, a first level of 64 MiB.
macro_rules! base {
    ($engine:literal, $more:literal) => {
        concat!(
            "fillrandom --value_size 8000 --num 100000 --duration 30 --threads 4 --rounds 1 --warmup 0 --noaa \
             --disable_wal --late skip --cache_size 0 --write_buffer_size 16M --target_file_size_base 16M \
             --max_bytes_for_level_base 64M --level0_slowdown_writes_trigger 12 --level0_stop_writes_trigger 12 \
             --max_background_jobs 2 --engines ",
            $engine,
            " ",
            $more
        )
    };
}

pub(super) const CELLS: &[(&str, &str)] = &[
    (CALIBRATION, base!("lsm-core", "")),
    ("load-x125", base!("lsm-core", "")),
    ("load-x200", base!("lsm-core", "")),
    ("memtable-8M", base!("lsm-core", "--write_buffer_size 8M --target_file_size_base 8M")),
    ("memtable-32M", base!("lsm-core", "--write_buffer_size 32M --target_file_size_base 32M")),
    ("workers-2", base!("lsm-core", "--max_background_jobs 3")),
    ("workers-3", base!("lsm-core", "--max_background_jobs 4")),
    ("subcompactions-2", base!("lsm-core", "--subcompactions 2")),
    ("workers-2-subcompactions-2", base!("lsm-core", "--subcompactions 2 --max_background_jobs 3")),
    ("shards-2", base!("dialsm:shards=2:redirect=false", "")),
    ("shards-4", base!("dialsm:shards=4:redirect=false", "")),
    ("shards-2-redirect", base!("dialsm:shards=2", "")),
    ("shards-4-redirect", base!("dialsm:shards=4", "")),
];

/// The offered rate of a cell, in operations a second.
///
/// # Errors
/// The calibration has no run.
pub(super) fn offered(calibration: &Report, cell: &str) -> Result<f64> {
    let named = cell.rsplit_once("-x").and_then(|(_, percent)| percent.parse().ok());
    Ok(run_of(calibration)?.ops_per_sec * named.unwrap_or(LOAD_PERCENT) / 100.0)
}

fn run_of(report: &Report) -> Result<&Run> {
    report.runs.first().context("a cell without a run")
}

/// What a run has counted. Its counters go on until the engine is settled, so that rates are of all the work that the
/// run made; stalls end with its writers.
fn observed(run: &Run) -> Result<Observation> {
    let counter = |name: &str| {
        let found = run.counters.get(name).copied();
        found.ok_or_else(|| anyhow!("{} counts no {name}; this suite is for our own engines", run.engine))
    };
    let mut seen = Observation {
        seconds: run.seconds,
        writes: run.writes as f64,
        write_bytes: run.user_bytes_written as f64,
        flushes: counter("flushes")?,
        flush_input_bytes: counter("flush_input_bytes")?,
        flush_bytes: counter("flush_bytes")?,
        flush_seconds: counter("flush_ns")? / 1e9,
        trees: counter("trees")?,
        ..Observation::default()
    };
    for (level, drain) in seen.levels.iter_mut().enumerate() {
        *drain = Drain {
            drained_bytes: counter(&format!("l{level}_drained_bytes"))?,
            survived_bytes: counter(&format!("l{level}_survived_bytes"))?,
            seconds: counter(&format!("l{level}_drain_ns"))? / 1e9,
        };
    }
    for cause in StallCause::ALL {
        let times = run.stall.by_cause.get(cause.as_str()).copied().unwrap_or_default();
        seen.stalls[cause as usize] =
            Stalls { count: times.count.unwrap_or(0) as f64, seconds: times.seconds.unwrap_or(0.0) };
    }
    Ok(seen)
}

/// The run whose rates predict the others.
struct Calibration {
    seen: Observation,
    config: Config,
    processors: u32,
}

impl Calibration {
    fn of(report: &Report) -> Result<Calibration> {
        let config = serde_json::from_value(report.flags.clone()).context("the run's flags")?;
        let processors = report.environment.as_ref().map_or(u32::MAX, |machine| machine.processors as u32);
        Ok(Calibration { seen: observed(run_of(report)?)?, config, processors })
    }
}

/// The part of a compaction out of level 0 that is level 0's.
fn out_of_level0(config: &Config) -> f64 {
    let engine = &config.engine;
    let taken = f64::from(engine.level0_stop_writes_trigger) / 2.0 * engine.write_buffer_size as f64;
    taken / (taken + engine.max_bytes_for_level_base as f64)
}

/// What the model says of a run under `config` on `trees` trees, at the rates of the calibration.
fn predicted(calibration: &Calibration, config: &Config, trees: u32, offered: f64) -> Result<Prediction> {
    let rates = calibration.seen.rates()?;
    let others = calibration.processors.saturating_sub(1).max(1);
    let workers = config.engine.max_background_jobs.saturating_sub(1).clamp(1, others);
    // A part for each worker that may help, the one that waits for flushes included.
    let parts = config.engine.subcompactions.clamp(1, config.engine.max_background_jobs.clamp(1, others));
    let whole = subcompacted(rates.l0, parts, PARALLEL_SHARE)?;
    let rates = Rates {
        arrival: MegabytesPerSecond(offered * config.entry_bytes() as f64 / 1e6),
        l0: MegabytesPerSecond(whole.0 * out_of_level0(config) / out_of_level0(&calibration.config)),
        ..rates
    };
    let options = Options {
        write_buffer_bytes: config.engine.write_buffer_size,
        level0_compaction_trigger: config.engine.level0_file_num_compaction_trigger as usize,
        level0_stop_trigger: config.engine.level0_stop_writes_trigger as usize,
        ..Options::default()
    };
    let model = Model {
        rates: rates.with_workers(workers, trees)?,
        limits: Observation::limits_unobserved(&options.keyspace())?,
        writes: Writes { record_bytes: config.entry_bytes() as f64, service: Seconds(0.0) },
        sharding: Sharding { shards: trees, common_cause: 1.0 / f64::from(workers) },
        form: Form::Corrected,
    };
    Ok(model.predict()?)
}

/// One setting: shares of time by cause, and in all.
struct Row {
    cell: String,
    offered: f64,
    taken: f64,
    predicted: [f64; 4],
    measured: [f64; 4],
}

fn row(calibration: &Calibration, cell: &str, report: &Report) -> Result<Row> {
    let run = run_of(report)?;
    let config: Config = serde_json::from_value(report.flags.clone()).context("the run's flags")?;
    let offered = run.rate.context("no open loop")?;
    let seen = observed(run)?;
    let prediction = predicted(calibration, &config, seen.trees as u32, offered)?;
    let [memtable, l0, pending] = prediction.classes.map(|class| class.share);
    let (mut predicted, mut measured) = (
        [memtable, l0, pending, prediction.alpha],
        [
            seen.share(StallCause::Memtable),
            seen.share(StallCause::Level0),
            seen.share(StallCause::Pending),
            // The time in which any shard holds a thread up, which holds up what that brings to all.
            run.stall.seconds.context("no stalls were counted")? / run.seconds,
        ],
    );
    if cell.ends_with("-redirect") {
        let gaps = run.stall.gap_seconds.context("no gaps were looked for")?;
        predicted = [f64::NAN, f64::NAN, f64::NAN, prediction.alpha_all()];
        measured = [f64::NAN, f64::NAN, f64::NAN, gaps / run.seconds];
    }
    let mb_s = |ops: f64| ops * run.entry_bytes as f64 / 1e6;
    Ok(Row { cell: cell.into(), offered: mb_s(offered), taken: mb_s(run.ops_per_sec), predicted, measured })
}

/// Predictions beside measurements, and their mean absolute error.
///
/// # Errors
/// The calibration is missing, or a run counts nothing.
pub(super) fn table(cells: &[(&str, Report)]) -> Result<String> {
    let (_, report) = cells.iter().find(|(cell, _)| *cell == CALIBRATION).context("no calibration")?;
    let (run, calibration) = (run_of(report)?, Calibration::of(report)?);
    let seen = &calibration.seen;
    let rates = seen.rates()?;
    let offered = rates.arrival.0 * 1e6 / run.entry_bytes as f64;
    let own = predicted(&calibration, &calibration.config, seen.trees as u32, offered)?;
    let mut text = format!(
        "### Stalls, predicted and measured\n\nCalibration: {:.1} MB/s taken, {:.3} of the time stalled, of its own \
         rates {:.3} predicted. MB/s: flush \
         {:.1}, out of level 0 {:.1}, deep {:.1}; survival {:.3}.\n\n\
         | setting | offered MB/s | taken | memtable | l0 | pending | all | error |\n|---|---|---|---|---|---|---|---|\n",
        run.ops_per_sec * run.entry_bytes as f64 / 1e6,
        seen.stalled_share(),
        own.alpha,
        rates.flush.0,
        rates.l0.0,
        rates.deep.0,
        rates.survival
    );
    let (mut all, mut by_cause) = (Vec::new(), Vec::new());
    for (cell, report) in cells.iter().filter(|(cell, _)| *cell != CALIBRATION) {
        let row = row(&calibration, cell, report)?;
        let pair = |at: usize| match row.predicted[at].is_nan() {
            true => String::new(),
            false => format!("{:.3} / {:.3}", row.predicted[at], row.measured[at]),
        };
        let error = |at: usize| (row.predicted[at] - row.measured[at]).abs();
        writeln!(
            text,
            "| {} | {:.1} | {:.1} | {} | {} | {} | {} | {:.3} |",
            row.cell,
            row.offered,
            row.taken,
            pair(0),
            pair(1),
            pair(2),
            pair(3),
            error(3)
        )?;
        all.push(error(3));
        by_cause.extend((0..3).map(error).filter(|error| !error.is_nan()));
    }
    let mean = |errors: &[f64]| errors.iter().sum::<f64>() / errors.len().max(1) as f64;
    writeln!(
        text,
        "\nShares of time, predicted / measured. Mean absolute error over {} settings: {:.4}; by cause: {:.4}.",
        all.len(),
        mean(&all),
        mean(&by_cause)
    )?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Rate;
    use crate::result::CauseOfStall;

    /// A run that took `taken` of the `offered` 8016-byte writes a second for 10 s, stalled by memtables for the rest.
    fn report(taken: f64, offered: Option<f64>, jobs: u32) -> Report {
        let stalled = offered.map_or(3.0, |offered| 10.0 * (1.0 - taken / offered));
        let bytes = taken * 8016.0 * 10.0;
        let mut run = Run {
            engine: "lsm-core".into(),
            seconds: 10.0,
            ops_per_sec: taken,
            writes: (taken * 10.0) as u64,
            user_bytes_written: bytes as u64,
            entry_bytes: 8016,
            rate: offered,
            ..Run::default()
        };
        run.stall
            .by_cause
            .insert("memtable".into(), CauseOfStall { count: Some(50), seconds: Some(stalled) });
        run.stall.gap_seconds = Some(0.5);
        run.stall.seconds = Some(stalled);
        let mut count = |name: &str, value: f64| run.counters.insert(name.into(), value);
        for level in 0..7 {
            for name in ["drained_bytes", "survived_bytes", "drain_ns"] {
                count(&format!("l{level}_{name}"), 0.0);
            }
        }
        for (name, value) in [
            ("flushes", bytes / 16e6),
            ("flush_input_bytes", bytes),
            ("flush_bytes", bytes),
            ("flush_ns", 10e9),
            ("trees", 1.0),
            ("l0_drained_bytes", bytes),
            ("l0_survived_bytes", bytes),
            ("l0_drain_ns", 5e9),
        ] {
            count(name, value);
        }
        let mut config = Config { value_size: 8000, rate: Rate::Closed, ..Config::default() };
        config.engine.max_background_jobs = jobs;
        Report { runs: vec![run], flags: serde_json::to_value(config).unwrap(), ..Report::default() }
    }

    #[test]
    fn cells_are_offered_multiples_of_what_the_calibration_took() {
        let calibration = report(20_000.0, None, 2);
        assert_eq!(offered(&calibration, "load-x125").unwrap(), 25_000.0);
        assert_eq!(offered(&calibration, "shards-2").unwrap(), 30_000.0);
        assert!(offered(&Report::default(), "shards-2").is_err());
        let settings = CELLS.iter().filter(|(cell, _)| *cell != CALIBRATION && !cell.starts_with("load"));
        assert!(CELLS[0].0 == CALIBRATION && settings.count() >= 6);
    }

    #[test]
    fn a_run_that_does_as_predicted_has_no_error() {
        let cells = [
            (CALIBRATION, report(20_000.0, None, 2)),
            ("load-x125", report(20_000.0, Some(25_000.0), 2)),
            ("x-redirect", report(20_000.0, Some(25_000.0), 2)),
        ];
        let text = table(&cells[..2]).unwrap();
        assert!(text.contains("| load-x125 | 200.4 | 160.3 | 0.200 / 0.200 |"), "{text}");
        assert!(text.contains("over 1 settings: 0.0000; by cause: 0.0000"), "{text}");
        let text = table(&cells).unwrap();
        assert!(
            text.contains("|  |  |  | 0.200 / 0.050 | 0.150 |"),
            "gaps are held against all shards: {text}"
        );
        assert!(table(&cells[1..]).unwrap_err().to_string().contains("calibration"));
    }

    #[test]
    fn a_setting_changes_what_the_model_knows_of_it() {
        let calibration = Calibration::of(&report(20_000.0, None, 2)).unwrap();
        let mut config = Config { value_size: 8000, ..Config::default() };
        let alpha = |config: &Config| predicted(&calibration, config, 1, 100_000.0).unwrap();
        let base = alpha(&config);
        config.engine.write_buffer_size *= 2;
        let rare = alpha(&config);
        assert_eq!(rare.alpha, base.alpha);
        assert!((rare.classes[0].rate.0 / base.classes[0].rate.0 - 0.5).abs() < 1e-12);
        config.engine.subcompactions = 2;
        assert_eq!(alpha(&config).alpha, base.alpha, "memtables are the bottleneck here");
        // 18 runs of 64 MiB go with 256 MiB, and 36 of them are twice as much.
        let shares = [1152.0 / 1408.0, 2304.0 / 2560.0];
        assert_eq!([out_of_level0(&calibration.config), out_of_level0(&config)], shares);
    }

    #[test]
    fn workers_without_a_processor_bring_nothing() {
        let mut calibration = Calibration::of(&report(20_000.0, None, 2)).unwrap();
        // Level 0 is the bottleneck: it takes as long as all the rest.
        for level in &mut calibration.seen.levels[..1] {
            level.seconds = 40.0;
        }
        let mut config = Config { value_size: 8000, ..Config::default() };
        let mut predict = |processors, jobs, subcompactions| {
            calibration.processors = processors;
            config.engine.max_background_jobs = jobs;
            config.engine.subcompactions = subcompactions;
            predicted(&calibration, &config, 4, 100_000.0).unwrap()
        };
        let [alone, few, many] = [predict(2, 2, 1), predict(2, 4, 2), predict(8, 4, 2)];
        assert_eq!((few.alpha, few.alpha_all()), (alone.alpha, alone.alpha), "one worker is common to all");
        assert!(many.alpha < few.alpha - 0.1, "{} {}", many.alpha, few.alpha);
        assert!(many.alpha_all() < many.alpha);
        let mut other = Report::default();
        other.runs.push(Run { engine: "rocksdb".into(), ..Run::default() });
        assert!(observed(&other.runs[0]).unwrap_err().to_string().contains("our own engines"));
    }
}
