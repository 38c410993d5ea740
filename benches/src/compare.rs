//! The comparison: engines in turns, round after round, and the report of it all.
//!
//! ```text
//!   warm-up:  A  B          not in the report; tells `--rate auto` what the slowest engine can do
//!   round 1:  A  B  (A)     the second A tells how far equals lie apart
//!   round 2:  A  B  (A)
//! ```
//! Turns, not blocks: whatever drifts on the machine meets all engines alike.

use crate::child::ChildJob;
use crate::config::{Config, Rate};
use crate::engines;
use crate::environment::Environment;
use crate::generate::{KeyBuf, Rng, ValueGen, value_pool};
use crate::result::{Report, Run};
use crate::session;
use crate::stats;
use crate::tempdir::TempDir;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// `--rate auto` is this share of what the slowest engine can do.
const AUTO_RATE_SHARE: f64 = 0.95;

/// Runs everything a configuration asks for.
///
/// # Errors
/// The first run that failed.
pub(crate) fn compare(config: &Config) -> Result<Report> {
    compare_at(config, BTreeMap::new())
}

/// The same, the open loop's rates being known by workload: no warm-up has to find them.
///
/// # Errors
/// As [`compare`].
pub(crate) fn compare_at(config: &Config, mut rates: BTreeMap<String, f64>) -> Result<Report> {
    for engine in &config.engines {
        engines::probe(engine, &config.engine)?;
    }
    let place = Place::new(config)?;
    let _fills = KeptFills::new(config.engines.iter().map(|engine| place.of(engine)).collect())?;
    for round in 1..=config.warmup {
        let mut runs = Vec::new();
        for engine in &config.engines {
            let title = format!("warm-up {round}/{} {engine}", config.warmup);
            runs.extend(run_one(config, engine, round, &place, &rates, &title)?);
        }
        // Later warm-ups already run as the rounds do.
        if config.rate == Rate::Auto && rates.is_empty() {
            rates = auto_rates(&runs);
        }
    }
    let mut report = Report {
        generator_ops_per_sec: generator_rate(config),
        flags: serde_json::to_value(config)?,
        command: std::env::args().collect(),
        environment: Some(Environment::of(&place.root)),
        ..Report::default()
    };
    for round in 1..=config.rounds {
        for engine in &config.engines {
            let title = format!("round {round}/{} {engine}", config.rounds);
            report.runs.extend(run_one(config, engine, round, &place, &rates, &title)?);
        }
        if config.runs_aa() {
            let title = format!("round {round}/{} {} again", config.rounds, config.engines[0]);
            report.aa_runs.extend(run_one(config, &config.engines[0], round, &place, &rates, &title)?);
        }
    }
    report.ratios = stats::ratios(&report.runs, &config.engines);
    report.aa = stats::spreads(&report.runs, &report.aa_runs);
    Ok(report)
}

fn run_one(
    config: &Config,
    engine: &str,
    round: u32,
    place: &Place,
    rates: &BTreeMap<String, f64>,
    title: &str,
) -> Result<Vec<Run>> {
    let dir = place.of(engine);
    if config.use_existing_db && !dir.is_dir() {
        bail!("--use_existing_db: there is no {}", dir.display());
    }
    let job = ChildJob::new(config.clone(), engine, round, dir.clone(), rates.clone());
    let result = job.run(title);
    // A failed run leaves its database to be looked at only if that was asked for.
    if !config.keep_db && !config.use_existing_db {
        config.engine.remove_db(&dir)?;
    }
    result
}

/// 95 % of the slowest engine's median rate in each workload. Engines with options of their own run at the
/// rate of those without: what a variant can't keep up with shows in its latencies, and makes it no easier
/// for the others.
pub(crate) fn auto_rates(runs: &[Run]) -> BTreeMap<String, f64> {
    let is_plain = |run: &&Run| !run.engine.contains(':');
    let any_plain = runs.iter().any(|run| is_plain(&run));
    let slowest = |workload: &String| {
        let mut by_engine: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        let counts = |run: &&Run| run.workload == *workload && (is_plain(run) || !any_plain);
        for run in runs.iter().filter(counts) {
            by_engine.entry(&run.engine).or_default().push(run.ops_per_sec);
        }
        by_engine.values().filter_map(|rates| stats::median(rates)).reduce(f64::min)
    };
    let rate = |workload: String| slowest(&workload).map(|rate| (workload, rate * AUTO_RATE_SHARE));
    stats::workloads(runs).into_iter().filter_map(rate).collect()
}

/// Where the databases are. Only directories of this program's own naming are ever removed.
struct Place {
    root: PathBuf,
    _temporary: Option<TempDir>,
}

impl Place {
    fn new(config: &Config) -> Result<Place> {
        if let Some(db) = &config.db {
            std::fs::create_dir_all(db).with_context(|| format!("--db {}", db.display()))?;
            return Ok(Place { root: db.clone(), _temporary: None });
        }
        let temporary = TempDir::new()?;
        Ok(Place { root: temporary.path().to_owned(), _temporary: Some(temporary) })
    }

    fn of(&self, engine: &str) -> PathBuf {
        Path::new(&self.root).join(format!("dialsm-bench.{engine}"))
    }
}

/// The databases whose fills are kept from round to round; removed at the end.
struct KeptFills(Vec<PathBuf>);

impl KeptFills {
    /// Removes what an interrupted run has left: it may have been filled otherwise.
    fn new(dirs: Vec<PathBuf>) -> Result<KeptFills> {
        dirs.iter().try_for_each(|dir| session::forget_fills(dir))?;
        Ok(KeptFills(dirs))
    }
}

impl Drop for KeptFills {
    fn drop(&mut self) {
        for dir in &self.0 {
            if let Err(error) = session::forget_fills(dir) {
                eprintln!("a filled database could not be removed: {error:#}");
            }
        }
    }
}

/// Keys and values a second that one thread can make: what the harness itself costs.
fn generator_rate(config: &Config) -> f64 {
    const LONG_ENOUGH: Duration = Duration::from_millis(30);
    let pool = value_pool(config.value_size, config.compression_ratio, config.seed);
    let (mut key, mut values) = (KeyBuf::new(config.key_size), ValueGen::new(pool, config.value_size, 1));
    let mut rng = Rng::new(config.seed, 1);
    let (begun, mut made) = (Instant::now(), 0u64);
    while begun.elapsed() < LONG_ENOUGH {
        for _ in 0..1000 {
            black_box((key.set(rng.below(config.num)), values.next_value()));
        }
        made += 1000;
    }
    made as f64 / begun.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_automatic_rate_is_below_the_slowest_engine() {
        let run = |engine: &str, workload: &str, ops_per_sec| Run {
            engine: engine.into(),
            workload: workload.into(),
            ops_per_sec,
            ..Run::default()
        };
        let one_round = [run("a", "x", 100.0), run("a", "y", 10.0), run("b", "x", 40.0), run("b", "y", 20.0)];
        let rates = auto_rates(&one_round);
        assert_eq!(rates, BTreeMap::from([("x".to_owned(), 38.0), ("y".to_owned(), 9.5)]));
        // One slow round of an engine is not its rate.
        let rounds = [run("a", "x", 100.0), run("a", "x", 1.0), run("a", "x", 200.0), run("b", "x", 300.0)];
        assert_eq!(auto_rates(&rounds)["x"], 95.0);
        let variant = run("a:x=1", "x", 10.0);
        assert_eq!(auto_rates(&[variant.clone(), run("a", "x", 100.0)])["x"], 95.0);
        assert_eq!(auto_rates(&[variant])["x"], 9.5);
    }

    #[test]
    fn the_generator_is_measured() {
        assert!(generator_rate(&Config::default()) > 10_000.0);
    }
}
