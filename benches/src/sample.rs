//! Looks at the engine and at its process while a workload runs.
//!
//! ```text
//!   timed part   |--------|--------|--------|-----|
//!   looks        0        1        2        3     4 (the end)
//! ```
//! A thread of its own looks every `--sample_ms`: one `getrusage`, two files of `/proc`, and what the engine
//! can tell without holding anybody up. What that took is part of the result, so that whoever reads it can judge
//! whether it disturbed the measurement.
//!
//! INVARIANT: a run has at most [`SAMPLES_MAX`] samples, however long it is: when there are more, neighbours become
//! one and the interval doubles. Seconds and bytes are running totals, of which none gets lost so; of states the
//! higher is kept, so that no peak does.

use crate::engine::{KvEngine, Look, ShardLook};
use crate::measure::{device_bytes, rss_bytes};
use crate::result::Sample;
use crate::sys;
use anyhow::{Result, anyhow};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

const SAMPLES_MAX: usize = 1200;

/// What was seen.
#[derive(Default)]
pub(crate) struct Samples {
    pub(crate) points: Vec<Sample>,
    took: Duration,
}

/// A thread that looks until it is told to end.
pub(crate) struct Sampler<'scope> {
    end: Sender<()>,
    thread: ScopedJoinHandle<'scope, Samples>,
}

impl<'scope> Sampler<'scope> {
    /// Begins to look at `engine`; the time of the samples begins now.
    ///
    /// # Errors
    /// There can be no more threads.
    pub(crate) fn begin(
        scope: &'scope Scope<'scope, '_>,
        engine: &'scope dyn KvEngine,
        interval: Duration,
    ) -> Result<Sampler<'scope>> {
        let (end, ended) = channel();
        let thread = std::thread::Builder::new().name("bench-sample".into());
        let thread = thread.spawn_scoped(scope, move || watch(engine, interval, &ended))?;
        Ok(Sampler { end, thread })
    }

    /// Looks for the last time and ends.
    ///
    /// # Errors
    /// The thread panicked.
    pub(crate) fn end(self) -> Result<Samples> {
        drop(self.end);
        self.thread.join().map_err(|_| anyhow!("the thread that takes samples panicked"))
    }
}

impl Samples {
    /// Seconds of one thread that looking took; nothing if nobody looked.
    pub(crate) fn seconds(&self) -> Option<f64> {
        if self.points.is_empty() { None } else { Some(self.took.as_secs_f64()) }
    }

    /// Of how many shards something was told.
    pub(crate) fn shards(&self) -> usize {
        self.points.iter().map(|point| point.engine.shards.len()).max().unwrap_or(0)
    }

    fn add(&mut self, sample: Sample, interval: &mut Duration) {
        self.points.push(sample);
        if self.points.len() > SAMPLES_MAX {
            // The first stays by itself: it is the zero that all totals count from.
            let later = self.points.split_off(1);
            self.points.extend(later.chunks(2).map(merged));
            *interval *= 2;
        }
    }
}

fn watch(engine: &dyn KvEngine, mut interval: Duration, ended: &Receiver<()>) -> Samples {
    let (start, mut samples) = (Instant::now(), Samples::default());
    let zero = look(engine, 0);
    samples.took += start.elapsed();
    samples.points.push(since(zero.clone(), &zero));
    loop {
        let is_over = ended.recv_timeout(interval) != Err(RecvTimeoutError::Timeout);
        let begun = Instant::now();
        let seen = look(engine, (begun - start).as_millis() as u64);
        samples.took += begun.elapsed();
        samples.add(since(seen, &zero), &mut interval);
        if is_over {
            return samples;
        }
    }
}

fn look(engine: &dyn KvEngine, t_ms: u64) -> Sample {
    let (user, system) = sys::cpu_seconds();
    let (read_device, write_device) = device_bytes().unwrap_or_default();
    Sample {
        t_ms,
        cpu_seconds: user + system,
        rss_bytes: rss_bytes(),
        read_device,
        write_device,
        engine: engine.look(),
    }
}

/// The totals less those of `zero`.
fn since(mut sample: Sample, zero: &Sample) -> Sample {
    sample.cpu_seconds = (sample.cpu_seconds - zero.cpu_seconds).max(0.0);
    sample.read_device = sample.read_device.saturating_sub(zero.read_device);
    sample.write_device = sample.write_device.saturating_sub(zero.write_device);
    let earlier = &zero.engine;
    if let Some(seconds) = &mut sample.engine.stall_seconds {
        *seconds = (*seconds - earlier.stall_seconds.unwrap_or(0.0)).max(0.0);
    }
    for (cause, seconds) in &mut sample.engine.stall_seconds_by_cause {
        let before = earlier.stall_seconds_by_cause.get(cause).copied().unwrap_or(0.0);
        *seconds = (*seconds - before).max(0.0);
    }
    sample
}

/// One sample of one or two neighbours.
fn merged(pair: &[Sample]) -> Sample {
    let last = pair[pair.len() - 1].clone();
    let first = &pair[0];
    let shards = match (first.engine.shards.as_slice(), last.engine.shards.as_slice()) {
        (one, two) if one.len() == two.len() => one.iter().zip(two).map(|(a, b)| higher(*a, *b)).collect(),
        (one, []) => one.to_vec(),
        (_, two) => two.to_vec(),
    };
    Sample {
        rss_bytes: first.rss_bytes.max(last.rss_bytes),
        engine: Look { door: first.engine.door.max(last.engine.door), shards, ..last.engine },
        ..last
    }
}

fn higher(a: ShardLook, b: ShardLook) -> ShardLook {
    ShardLook {
        memtable_bytes: a.memtable_bytes.max(b.memtable_bytes),
        l0_runs: a.l0_runs.max(b.l0_runs),
        pending_bytes: a.pending_bytes.max(b.pending_bytes),
        is_open: a.is_open && b.is_open,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EngineOptions;
    use crate::engine::{Door, WriteOpts};
    use crate::engines;
    use crate::tempdir::TempDir;
    use std::collections::BTreeMap;

    fn sample(t_ms: u64, cpu_seconds: f64, l0_runs: u64) -> Sample {
        let shard = ShardLook { l0_runs, is_open: l0_runs < 5, ..ShardLook::default() };
        let engine = Look {
            stall_seconds: Some(cpu_seconds + 1.0),
            stall_seconds_by_cause: BTreeMap::from([("memtable".to_owned(), cpu_seconds + 0.5)]),
            door: Some(if l0_runs < 5 { Door::Open } else { Door::Stopped }),
            shards: vec![shard],
        };
        Sample { t_ms, cpu_seconds, engine, ..Sample::default() }
    }

    #[test]
    fn totals_begin_at_nothing() {
        let (zero, later) = (sample(0, 2.0, 1), sample(100, 2.5, 1));
        let counted = since(later, &zero);
        assert_eq!((counted.cpu_seconds, counted.engine.stall_seconds), (0.5, Some(0.5)));
        assert_eq!(counted.engine.stall_seconds_by_cause["memtable"], 0.5);
        assert_eq!(since(zero.clone(), &zero).engine.stall_seconds, Some(0.0));
    }

    #[test]
    fn a_long_run_keeps_its_totals_and_peaks_in_fewer_samples() {
        let (mut samples, mut interval) = (Samples::default(), Duration::from_millis(100));
        for at in 0..3000u64 {
            samples.add(sample(at, at as f64, if at == 1001 { 7 } else { 1 }), &mut interval);
        }
        assert!(samples.points.len() <= SAMPLES_MAX && interval >= Duration::from_millis(400));
        assert!(samples.points.windows(2).all(|pair| pair[0].t_ms < pair[1].t_ms));
        assert_eq!(samples.points[0].t_ms, 0);
        assert_eq!(samples.points.last().unwrap().cpu_seconds, 2999.0);
        let peak = samples.points.iter().find(|point| point.engine.shards[0].l0_runs == 7).unwrap();
        assert!(!peak.engine.shards[0].is_open && peak.engine.door == Some(Door::Stopped));
        assert!((1001..1010).contains(&peak.t_ms), "{}", peak.t_ms);
    }

    #[test]
    fn an_engine_at_work_is_looked_at() {
        let dir = TempDir::new().unwrap();
        let options = EngineOptions { write_buffer_size: 1 << 20, ..EngineOptions::default() };
        let engine = engines::open("lsm-core", &dir.path().join("db"), &options).unwrap();
        let samples = std::thread::scope(|scope| {
            let sampler = Sampler::begin(scope, engine.as_ref(), Duration::from_millis(1)).unwrap();
            for number in 0..2000u32 {
                engine.put(&number.to_be_bytes(), &[7; 1000], WriteOpts::default()).unwrap();
            }
            sampler.end().unwrap()
        });
        engine.close().unwrap();
        let (first, last) = (&samples.points[0], samples.points.last().unwrap());
        assert!(samples.points.len() >= 2 && samples.seconds().unwrap() > 0.0);
        assert_eq!((first.cpu_seconds, first.write_device, samples.shards()), (0.0, 0, 1));
        assert!(last.cpu_seconds > 0.0 && last.rss_bytes > 1 << 20);
        assert!(last.engine.shards[0].memtable_bytes + last.engine.shards[0].l0_runs > 0);
        assert!(last.engine.stall_seconds.is_some());
    }
}
