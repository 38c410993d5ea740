//! One engine runs a list of workloads, one after the other, on one database.
//!
//! ```text
//!   fresh or filled ── settled, files synced ── readings ── timed part ── debt ── settled ── readings
//! ```
//! Workloads that fill start on a fresh database; the others use what is there, or have it filled
//! first, untimed. Every timed part begins when no background work is left and nothing waits to be
//! written back, so that no workload pays for the one before.

use crate::config::{Config, Rate};
use crate::disk::DiskWatch;
use crate::engine::{EngineStats, KvEngine, Routing, SETTLE_FLOOR, WriteOpts};
use crate::engines;
use crate::generate::KeyBuf;
use crate::live::LiveKeys;
use crate::measure::{Reading, disk_bytes, peak_rss_bytes, reset_peak_rss};
use crate::progress::Counter;
use crate::record::{Account, Kind, Recorder, account};
use crate::result::{CauseOfStall, RoutingOfRun, Run, Stall};
use crate::runner::{self, Job};
use crate::sample::{Sampler, Samples};
use crate::sys;
use crate::workload::{KeySpace, Needs, Workload};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Entries a write of the untimed fill.
const FILL_BATCH: u32 = 64;
/// The stream of the untimed fill's keys; workloads have their places in the list.
const FILL_STREAM: u64 = 1 << 20;

/// Between the name of a database's directory and the workload, in the name of what is kept.
const KEPT_SUFFIX: &str = "_after_";

struct Session<'a> {
    name: &'a str,
    dir: &'a Path,
    config: &'a Config,
    counter: &'a Counter,
    engine: Option<Box<dyn KvEngine>>,
    live: LiveKeys,
    /// Whose keys the database has.
    holds: Option<KeySpace>,
}

/// Runs all workloads of `config` on an engine in `dir`; `rates` are the open loop's, by label.
///
/// # Errors
/// The first failure of the engine or of a measurement.
pub(crate) fn run_all(
    name: &str,
    dir: &Path,
    config: &Config,
    rates: &BTreeMap<String, f64>,
    round: u32,
    counter: &Counter,
) -> Result<Vec<Run>> {
    let live = LiveKeys::new(config.num);
    let mut session = Session { name, dir, config, counter, engine: None, live, holds: None };
    let mut runs = Vec::new();
    for (at, (label, workload)) in labelled(&config.workloads()?).into_iter().enumerate() {
        session.prepare(workload).with_context(|| format!("{name}, before {label}"))?;
        let mut config = config.clone();
        if config.rate == Rate::Auto {
            config.rate = rates.get(&label).map_or(Rate::Closed, |&rate| Rate::PerSecond(rate));
        }
        let run =
            session.measure(workload, &config, at as u64).with_context(|| format!("{name}, {label}"))?;
        runs.push(Run { engine: name.to_owned(), workload: label, round, ..run });
    }
    session.close()?;
    Ok(runs)
}

/// The workloads with names that tell repetitions apart: `readrandom`, `readrandom#2`.
pub(crate) fn labelled(workloads: &[Workload]) -> Vec<(String, Workload)> {
    let label = |(at, workload): (usize, &Workload)| {
        let nth = workloads[..at].iter().filter(|before| *before == workload).count() + 1;
        let name = workload.name();
        (if nth == 1 { name.to_owned() } else { format!("{name}#{nth}") }, *workload)
    };
    workloads.iter().enumerate().map(label).collect()
}

impl Session<'_> {
    /// Brings the database into the state the workload starts from.
    fn prepare(&mut self, workload: Workload) -> Result<()> {
        if self.config.use_existing_db {
            if self.engine.is_none() {
                self.open()?;
                self.live.records.store(self.config.num, Ordering::Relaxed);
            }
            return self.calm();
        }
        if workload.takes_any_keys() && self.holds.is_some() {
            return self.calm();
        }
        match workload.needs() {
            Needs::Fresh => self.open_fresh()?,
            _ if self.holds == Some(workload.key_space()) => {}
            Needs::Filled => self.fill(Workload::FillUniqueRandom)?,
            Needs::FrontDeleted => {
                self.fill(Workload::FillUniqueRandom)?;
                self.calm()?;
                self.delete_front(workload.key_space() == KeySpace::FrontRangeDeleted)?;
            }
            Needs::Keyspaces => {
                self.open_fresh()?;
                self.engine().create_keyspaces(self.config.keyspaces)?;
            }
            Needs::YcsbLoaded => self.fill(Workload::YcsbLoad)?,
        }
        self.holds = Some(workload.key_space());
        self.calm()
    }

    fn open(&mut self) -> Result<()> {
        self.engine = Some(engines::open(self.name, self.dir, &self.config.engine)?);
        Ok(())
    }

    fn open_fresh(&mut self) -> Result<()> {
        self.close()?;
        self.config.engine.remove_db(self.dir)?;
        std::fs::create_dir_all(self.dir)?;
        self.live = LiveKeys::new(self.config.num);
        self.open()
    }

    fn close(&mut self) -> Result<()> {
        self.engine.take().map_or(Ok(()), KvEngine::close)
    }

    /// Fills a fresh database, or copies the one that an earlier round filled.
    fn fill(&mut self, workload: Workload) -> Result<()> {
        let kept = kept_fill(self.dir, workload);
        if self.config.keeps_fills() && kept.exists() {
            self.counter.begin("copying the filled database", 0, 0);
            self.close()?;
            remove_if_there(self.dir)?;
            copy_dir(&kept, self.dir)?;
            self.live = LiveKeys::filled(self.config.num, workload == Workload::YcsbLoad);
            return self.open();
        }
        self.fill_anew(workload)?;
        if self.config.keeps_fills() {
            self.calm()?;
            self.close()?;
            let part = kept.with_extension("part");
            remove_if_there(&part)?;
            copy_dir(self.dir, &part)?;
            std::fs::rename(&part, &kept)?;
            self.open()?;
        }
        Ok(())
    }

    /// At full speed and with no sync, whatever the flags ask of the timed part.
    fn fill_anew(&mut self, workload: Workload) -> Result<()> {
        self.open_fresh()?;
        let config = Config {
            duration: 0,
            rate: Rate::Closed,
            sync: false,
            batch_size: self.config.batch_size.max(FILL_BATCH),
            ..self.config.clone()
        };
        self.run(workload, &config, FILL_STREAM).map(|_| ())
    }

    /// Deletes the first half of the keys.
    fn delete_front(&mut self, by_range: bool) -> Result<()> {
        let half = self.config.num / 2;
        let (mut key, mut end) = (KeyBuf::new(self.config.key_size), KeyBuf::new(self.config.key_size));
        (0..half).for_each(|number| self.live.remove(number));
        if by_range {
            return self.engine().delete_range(key.set(0), end.set(half));
        }
        for number in 0..half {
            self.engine().delete(key.set(number), WriteOpts::default())?;
        }
        Ok(())
    }

    /// Waits for background work and write-back to end.
    fn calm(&self) -> Result<()> {
        self.counter.begin("settling", 0, 0);
        self.engine().settle(Duration::from_secs(self.config.settle_timeout))?;
        sys::sync_files(self.dir)
    }

    fn engine(&self) -> &dyn KvEngine {
        self.engine.as_deref().expect("every workload is prepared, which opens the engine")
    }

    fn run(&self, workload: Workload, config: &Config, stream: u64) -> Result<(Account, f64)> {
        let engine = self.engine();
        runner::run(&Job { engine, config, workload, live: &self.live, stream, counter: self.counter })
    }

    /// The same, looked at meanwhile.
    fn run_sampled(
        &self,
        workload: Workload,
        config: &Config,
        stream: u64,
    ) -> Result<(Account, f64, Samples)> {
        let interval = Duration::from_millis(config.sample_ms);
        std::thread::scope(|scope| {
            let sampler = match config.sample_ms {
                0 => None,
                _ => Some(Sampler::begin(scope, self.engine(), interval)?),
            };
            let (account, seconds) = self.run(workload, config, stream)?;
            let samples = sampler.map(Sampler::end).transpose()?;
            Ok((account, seconds, samples.unwrap_or_default()))
        })
    }

    /// Opens and closes the database, as often as a thread has reads; it is open in the end.
    fn open_repeatedly(&mut self, config: &Config) -> Result<(Account, f64)> {
        let times = config.reads_per_thread().min(u64::from(u32::MAX));
        self.counter.begin("opening", times, 0);
        let (start, mut recorder) = (Instant::now(), Recorder::new(true));
        for _ in 0..times {
            self.close()?;
            let from = start.elapsed().as_nanos() as u64;
            let (name, options) = (self.name, &config.engine);
            self.engine = Some(engines::open_with_keyspaces(name, self.dir, options, config.keyspaces)?);
            let now = start.elapsed().as_nanos() as u64;
            recorder.latency(Kind::Read, from, now);
            recorder.done(now, 1);
            self.counter.add(1);
        }
        let elapsed = start.elapsed();
        Ok((account(vec![recorder], elapsed.as_nanos() as u64), elapsed.as_secs_f64()))
    }

    /// The timed part, and what follows it until the engine is settled.
    fn measure(&mut self, workload: Workload, config: &Config, stream: u64) -> Result<Run> {
        let stats_before = self.engine().stats()?;
        if workload == Workload::OpenKeyspaces {
            self.close()?;
        }
        reset_peak_rss();
        let disk_watch = DiskWatch::begin(self.dir)?;
        let before = Reading::now()?;
        let (account, seconds, samples) = match workload {
            // Whoever looks would hold a handle that is to be closed.
            Workload::OpenKeyspaces => {
                let (account, seconds) = self.open_repeatedly(config)?;
                (account, seconds, Samples::default())
            }
            _ => self.run_sampled(workload, config, stream)?,
        };
        let timed = Reading::now()?.bytes_since(&before);
        let engine = self.engine();
        let (debt_bytes, clues_at_end) = (engine.pending()?.bytes, engine.clues());

        self.counter.begin("settling", 0, 0);
        let settling = Instant::now();
        engine.settle(Duration::from_secs(config.settle_timeout))?;
        let settle_seconds = settling.elapsed().saturating_sub(SETTLE_FLOOR).as_secs_f64();
        let after = Reading::now()?;
        let disk_timeline = disk_watch.end()?;
        let kernel = after.bytes_since(&before);
        // A file system in memory has no device bytes; the calls then say what was written.
        let written = if kernel.write_device > 0 { kernel.write_device } else { kernel.write_calls };
        let disk_bytes = if self.dir.exists() { disk_bytes(self.dir)? } else { 0 };
        let live_bytes = self.live.count() * config.entry_bytes();
        let known_size = !config.use_existing_db && disk_bytes > 0;
        let stats = engine.stats()?;
        let stall = stall(&account, &stats_before, &stats);
        let routing = stats.routing.map(|counts| {
            let counts = counts.since(stats_before.routing.unwrap_or_default());
            routing_of_run(counts, &account, clues_at_end, engine.clues())
        });
        let background = stats.background.since(stats_before.background);
        let of_others = |after: Option<f64>, before: Option<f64>| Some((after? - before?).max(0.0));
        Ok(Run {
            ops: account.ops,
            seconds,
            ops_per_sec: account.ops as f64 / seconds,
            latency_us: account.latency,
            stall,
            redirected: difference(stats.redirected, stats_before.redirected),
            routing,
            write_amp: share(written, account.user_bytes_written),
            read_amp: share(timed.read_calls, account.user_bytes_read),
            space_amp: if known_size { share(disk_bytes, live_bytes) } else { None },
            peak_rss_bytes: peak_rss_bytes(),
            cpu_seconds: after.cpu_seconds - before.cpu_seconds,
            cpu_system_seconds: after.cpu_system_seconds - before.cpu_system_seconds,
            machine_cpu_seconds: of_others(after.machine_cpu_seconds, before.machine_cpu_seconds),
            kernel_cpu_seconds: of_others(after.kernel_cpu_seconds, before.kernel_cpu_seconds),
            disk_peak_bytes: disk_timeline.iter().map(|point| point.bytes).max(),
            disk_timeline,
            background,
            compaction_io_share: background.io_share(),
            counters: stats.counters,
            timeline: account.timeline,
            shard_limits: engine.shard_limits(samples.shards()),
            sampling_seconds: samples.seconds(),
            samples: samples.points,
            threads: config.threads,
            entry_bytes: config.entry_bytes(),
            writes: account.writes,
            reads_found: account.reads_found,
            user_bytes_written: account.user_bytes_written,
            user_bytes_read: account.user_bytes_read,
            settle_seconds,
            debt_bytes,
            disk_bytes,
            kernel,
            rate: if let Rate::PerSecond(rate) = config.rate { Some(rate) } else { None },
            latency_curve: account.curves,
            options: engine.options_text(),
            ..Run::default()
        })
    }
}

/// Where the database in `dir` is kept as `workload` left it; beside `dir`, named after it.
fn kept_fill(dir: &Path, workload: Workload) -> PathBuf {
    let mut name = dir.file_name().unwrap_or_default().to_owned();
    name.push(format!("{KEPT_SUFFIX}{}", workload.name()));
    dir.with_file_name(name)
}

/// Removes what is kept of fills of the database in `dir`.
///
/// # Errors
/// Those of the file system.
pub(crate) fn forget_fills(dir: &Path) -> Result<()> {
    for workload in [Workload::FillUniqueRandom, Workload::YcsbLoad] {
        let kept = kept_fill(dir, workload);
        remove_if_there(&kept.with_extension("part"))?;
        remove_if_there(&kept)?;
    }
    Ok(())
}

fn remove_if_there(dir: &Path) -> Result<()> {
    if dir.exists() {
        std::fs::remove_dir_all(dir).with_context(|| format!("{}", dir.display()))?;
    }
    Ok(())
}

fn copy_dir(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_dir(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target).with_context(|| format!("{}", target.display()))?;
        }
    }
    Ok(())
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn difference(after: Option<u64>, before: Option<u64>) -> Option<u64> {
    Some(after?.saturating_sub(before.unwrap_or(0)))
}

fn routing_of_run(
    counts: Routing,
    account: &Account,
    clues_at_end: Option<u64>,
    clues_settled: Option<u64>,
) -> RoutingOfRun {
    let redirected_share = share(counts.redirects, account.writes);
    RoutingOfRun { counts, redirected_share, clues_at_end, clues_settled }
}

fn stall(account: &Account, before: &EngineStats, after: &EngineStats) -> Stall {
    let seconds = |after: Option<f64>, before: Option<f64>| Some((after? - before.unwrap_or(0.0)).max(0.0));
    let cause = |(name, cause): (&String, &crate::engine::StallCause)| {
        let earlier = before.by_cause.get(name).copied().unwrap_or_default();
        let count = difference(cause.count, earlier.count);
        (name.clone(), CauseOfStall { count, seconds: seconds(cause.seconds, earlier.seconds) })
    };
    Stall {
        count: difference(after.stall_count, before.stall_count),
        seconds: seconds(after.stall_seconds, before.stall_seconds),
        by_cause: after.by_cause.iter().map(cause).collect(),
        gap_seconds: account.gaps.map(|gaps| gaps.sum_ns as f64 / 1e9),
        longest_gap_ms: account.gaps.map(|gaps| gaps.longest_ns as f64 / 1e6),
        starved_seconds: account.gaps.map(|gaps| gaps.starved_seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tempdir::TempDir;
    use crate::workload::catalogue;

    fn null_config(benchmarks: &[&str]) -> Config {
        let benchmarks = benchmarks.iter().map(|&name| name.to_owned()).collect();
        Config { benchmarks, engines: vec!["null".into()], num: 2_000, threads: 2, ..Config::default() }
    }

    fn run_null(config: &Config) -> Vec<Run> {
        let dir = TempDir::new().unwrap();
        let database = dir.path().join("db");
        run_all("null", &database, config, &BTreeMap::new(), 1, &Counter::new()).unwrap()
    }

    #[test]
    fn every_workload_runs_and_does_what_it_is_asked() {
        let names: Vec<&str> = catalogue().map(|(name, _)| name).collect();
        let runs = run_null(&null_config(&names));
        assert_eq!(runs.len(), names.len());
        for run in &runs {
            let expected = match run.workload.as_str() {
                "fillsync" => 2 * 2,
                "flush" => 1,
                "filluniquerandom" | "ycsbload" | "openkeyspaces" => 2_000,
                _ => 2 * 2_000,
            };
            assert_eq!(run.ops, expected, "{}", run.workload);
            assert!(run.seconds > 0.0 && run.ops_per_sec > 0.0);
            let counted: u64 = run.timeline.iter().map(|point| point.ops).sum();
            assert_eq!(counted, run.ops, "{}", run.workload);
            assert!(!run.latency_us.is_empty() && run.options == "none");
        }
        let kinds = |name: &str| {
            let run = runs.iter().find(|run| run.workload == name).unwrap();
            run.latency_us.keys().cloned().collect::<Vec<_>>().join(",")
        };
        assert_eq!(kinds("fillseq"), "write");
        assert_eq!(kinds("multireadrandom"), "read");
        assert_eq!(kinds("readseq"), "scan");
        assert_eq!(kinds("seekrandom"), "seek");
        assert_eq!(kinds("readrandomwriterandom"), "read,write");
        assert_eq!(kinds("ycsba"), "read,write");
        assert_eq!(kinds("ycsbe"), "scan,write");
        assert_eq!(kinds("ycsbf"), "read,write");
    }

    #[test]
    fn later_rounds_start_from_the_first_ones_fill() {
        let config = Config { engines: vec!["lsm-core".into()], rounds: 2, ..null_config(&["readrandom"]) };
        let dir = TempDir::new().unwrap();
        let database = dir.path().join("db");
        let kept = kept_fill(&database, Workload::FillUniqueRandom);
        for round in 1..=2 {
            let run = run_all("lsm-core", &database, &config, &BTreeMap::new(), round, &Counter::new());
            let run = run.unwrap().remove(0);
            assert!(run.reads_found == run.ops && run.space_amp.is_some(), "round {round}");
            assert_eq!(database.join("mark").exists(), round == 2, "copied in round {round}");
            std::fs::write(kept.join("mark"), b"").unwrap();
        }
        forget_fills(&database).unwrap();
        assert!(!kept.exists());
    }

    #[test]
    fn limits_batches_rates_and_durations_hold() {
        let config =
            Config { reads: 150, writes: 333, batch_size: 100, ..null_config(&["overwrite", "readrandom"]) };
        let runs = run_null(&config);
        assert_eq!((runs[0].ops, runs[1].ops), (2 * 333, 2 * 150));
        assert_eq!(runs[0].latency_us["write"].count, 2 * 4);
        assert_eq!(runs[0].user_bytes_written, 2 * 333 * 116);

        let config = Config { reads: 100, rate: Rate::PerSecond(2_000.0), ..null_config(&["readrandom"]) };
        let run = &run_null(&config)[0];
        assert!(run.seconds >= 0.0985 && run.ops == 200, "{} s", run.seconds);
        assert_eq!(run.rate, Some(2_000.0));

        let config = Config { duration: 1, ..null_config(&["readrandom"]) };
        let run = &run_null(&config)[0];
        assert!(run.seconds >= 1.0 && run.ops > 4_000, "{} s, {}", run.seconds, run.ops);
    }

    #[test]
    fn more_threads_than_keys_is_no_trouble() {
        let config =
            Config { num: 3, threads: 5, ..null_config(&["filluniquerandom", "ycsbload", "readrandom"]) };
        let ops: Vec<u64> = run_null(&config).iter().map(|run| run.ops).collect();
        assert_eq!(ops, [3, 3, 15]);
    }

    #[test]
    fn repeated_workloads_have_names_of_their_own() {
        let read = Workload::ReadRandom;
        let labels: Vec<String> =
            labelled(&[read, Workload::FillSeq, read]).into_iter().map(|l| l.0).collect();
        assert_eq!(labels, ["readrandom", "fillseq", "readrandom#2"]);
    }

    #[test]
    fn stalls_are_those_since_the_workload_began() {
        let cause = |count, seconds| crate::engine::StallCause { count: Some(count), seconds };
        let stats = |count, seconds| EngineStats {
            stall_count: Some(count),
            stall_seconds: Some(seconds),
            by_cause: BTreeMap::from([("memtable_stop".to_owned(), cause(count, None))]),
            ..EngineStats::default()
        };
        let account = crate::record::account(Vec::new(), 0);
        let stall = stall(&account, &stats(3, 0.5), &stats(10, 2.0));
        assert_eq!((stall.count, stall.seconds), (Some(7), Some(1.5)));
        assert_eq!(stall.by_cause["memtable_stop"].count, Some(7));
        assert_eq!((stall.gap_seconds, stall.by_cause["memtable_stop"].seconds), (None, None));
    }
}
