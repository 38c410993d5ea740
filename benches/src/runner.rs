//! Runs one workload on one engine: the threads, their start and end, and the account of them all.
//!
//! ```text
//!   run ── spawns workers ── barrier ── each: begin, operation, finish, ... ── join ── account
//! ```
//! `begin` gives the moment from which the operation is charged (closed loop: the end of the one
//! before; open loop: when it was due), or nothing when the thread is done. One clock reading an
//! operation suffices for both.

use crate::config::{Config, Rate};
use crate::engine::{KvEngine, WriteOpts};
use crate::generate::{KeyBuf, Rng, ValueGen, value_pool};
use crate::live::LiveKeys;
use crate::ops;
use crate::pace::Pacer;
use crate::progress::Counter;
use crate::record::{Account, Kind, Recorder, WINDOW_NS, account};
use crate::sys;
use crate::workload::Workload;
use crate::ycsb::Chooser;
use anyhow::{Result, anyhow};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier, OnceLock};
use std::time::Instant;

/// A scan's latency is noted once for this many entries: a clock reading an entry would be most of
/// what is measured.
pub(crate) const SCAN_RUN: u64 = 100;

/// `fillbatch`'s entries a batch, as in db_bench.
const FILL_BATCH: u32 = 1000;

/// What is run on what.
pub(crate) struct Job<'a> {
    pub(crate) engine: &'a dyn KvEngine,
    pub(crate) config: &'a Config,
    pub(crate) workload: Workload,
    pub(crate) live: &'a LiveKeys,
    /// Distinguishes the streams of keys of the workloads of one run.
    pub(crate) stream: u64,
    pub(crate) counter: &'a Counter,
}

impl Job<'_> {
    /// The options of its writes.
    pub(crate) fn write_opts(&self) -> WriteOpts {
        let sync = self.config.sync || self.workload == Workload::FillSync;
        WriteOpts { sync, disable_wal: self.config.engine.disable_wal }
    }

    /// Entries in one write.
    pub(crate) fn batch(&self) -> u32 {
        if self.workload == Workload::FillBatch { FILL_BATCH } else { self.config.batch_size }
    }

    /// Operations of thread `index`; `u64::MAX` is no limit.
    fn operations(&self, index: u64) -> u64 {
        let config = self.config;
        let threads = u64::from(config.threads);
        match self.workload {
            Workload::FillSync if config.writes < 0 && config.duration == 0 => (config.num / 1000).max(1),
            Workload::Flush => u64::from(index == 0),
            // The threads share the keys: each takes those whose number is its own modulo theirs.
            Workload::FillUniqueRandom | Workload::YcsbLoad => (config.num + threads - 1 - index) / threads,
            Workload::FillSeq
            | Workload::FillRandom
            | Workload::FillSync
            | Workload::FillBatch
            | Workload::Overwrite
            | Workload::DeleteRandom => config.writes_per_thread(),
            _ => config.reads_per_thread(),
        }
    }

    /// Entries of one call, in which an open loop's rate is divided.
    fn entries_a_call(&self) -> u64 {
        match self.workload {
            Workload::ReadSeq | Workload::ReadReverse => SCAN_RUN,
            Workload::MultiReadRandom => self.config.batch_size.into(),
            Workload::FillSeq
            | Workload::FillRandom
            | Workload::FillUniqueRandom
            | Workload::FillSync
            | Workload::FillBatch
            | Workload::Overwrite
            | Workload::YcsbLoad => self.batch().into(),
            _ => 1,
        }
    }
}

/// What the workers of a run share.
pub(crate) struct Shared {
    stop: AtomicBool,
    /// Workers whose operations are the workload's and that are not done yet.
    pub(crate) running: AtomicU32,
    pub(crate) chooser: Option<Chooser>,
}

/// One thread of a run.
pub(crate) struct Worker<'a> {
    pub(crate) job: &'a Job<'a>,
    pub(crate) shared: &'a Shared,
    pub(crate) engine: &'a dyn KvEngine,
    pub(crate) index: u64,
    pub(crate) rng: Rng,
    pub(crate) key: KeyBuf,
    pub(crate) values: ValueGen,
    pub(crate) recorder: Recorder,
    start: Instant,
    /// When the last operation ended, in ns since `start`.
    last: u64,
    pacer: Option<Pacer>,
    /// Operations left; `u64::MAX` is no limit.
    left: u64,
    deadline: u64,
    reported_window: u64,
    reported_ops: u64,
}

impl Worker<'_> {
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// The moment the next operation, of at most `entries`, is charged from; nothing when it is over.
    pub(crate) fn begin(&mut self, entries: u64) -> Option<u64> {
        if self.left == 0 || self.shared.stop.load(Ordering::Relaxed) {
            return None;
        }
        let from = match &mut self.pacer {
            Some(pacer) => pacer.wait(),
            None => self.last,
        };
        if from >= self.deadline {
            return None;
        }
        if self.left != u64::MAX {
            self.left = self.left.saturating_sub(entries);
        }
        Some(from)
    }

    /// Entries of the next operation, where `wanted` would be one: the last may be smaller.
    pub(crate) fn fitting(&self, wanted: u64) -> u64 {
        wanted.min(self.left)
    }

    /// Notes the end of `entries` operations of a kind other than writes.
    pub(crate) fn finish(&mut self, kind: Kind, from: u64, entries: u64) {
        let now = self.now();
        self.recorder.latency(kind, from, now);
        self.completed(now, entries);
    }

    /// Notes the end of a write of `entries` entries and `bytes` user bytes.
    pub(crate) fn finish_write(&mut self, from: u64, entries: u64, bytes: u64) {
        self.note_write(from, entries, bytes);
        self.completed(self.last, entries);
    }

    /// Notes a write that is only a part of an operation; returns when it ended.
    pub(crate) fn note_write(&mut self, from: u64, entries: u64, bytes: u64) -> u64 {
        let now = self.now();
        self.recorder.latency(Kind::Write, from, now);
        self.recorder.wrote(now, entries);
        self.recorder.user_bytes_written += bytes;
        self.last = now;
        now
    }

    /// Notes a read that is only a part of an operation; returns when it ended.
    pub(crate) fn note_read(&mut self, from: u64) -> u64 {
        let now = self.now();
        self.recorder.latency(Kind::Read, from, now);
        now
    }

    fn completed(&mut self, now: u64, entries: u64) {
        self.recorder.done(now, entries);
        self.last = now;
        if now / WINDOW_NS != self.reported_window {
            self.reported_window = now / WINDOW_NS;
            self.report();
        }
    }

    pub(crate) fn completed_part(&mut self, now: u64) {
        self.completed(now, 1);
    }

    fn report(&mut self) {
        self.job.counter.add(self.recorder.ops - self.reported_ops);
        self.reported_ops = self.recorder.ops;
    }

    /// Whether anybody's operations still go on; for a companion, which has no end of its own.
    pub(crate) fn others_run(&self) -> bool {
        self.shared.running.load(Ordering::Relaxed) > 0 && !self.shared.stop.load(Ordering::Relaxed)
    }
}

/// Says that a worker is done, however it ends.
struct DoneGuard<'a> {
    shared: &'a Shared,
    counts: bool,
    failed: bool,
}

impl Drop for DoneGuard<'_> {
    fn drop(&mut self) {
        if self.counts {
            self.shared.running.fetch_sub(1, Ordering::Relaxed);
        }
        if self.failed {
            self.shared.stop.store(true, Ordering::Relaxed);
        }
    }
}

/// Runs a workload and returns its account and the seconds it took.
///
/// # Errors
/// The first failure of any operation; all threads stop then.
pub(crate) fn run(job: &Job<'_>) -> Result<(Account, f64)> {
    let config = job.config;
    let companions = u32::from(job.workload == Workload::ReadWhileWriting);
    let threads = config.threads + companions;
    let chooser = match job.workload {
        Workload::Ycsb(mix) => {
            let distribution = config.ycsb_distribution.unwrap_or(mix.distribution());
            Some(Chooser::new(distribution, config.num))
        }
        _ => None,
    };
    let shared = Shared { stop: AtomicBool::new(false), running: AtomicU32::new(config.threads), chooser };
    let pool = value_pool(config.value_size, config.compression_ratio, config.seed);
    let total = (0..config.threads).fold(0u64, |sum, index| sum.saturating_add(job.operations(index.into())));
    job.counter.begin(job.workload.name(), total, config.duration);

    let ready = Barrier::new(threads as usize + 1);
    let start = OnceLock::new();
    let recorders = std::thread::scope(|scope| {
        let worker = |index: u32| {
            let (pool, shared, ready, start) = (pool.clone(), &shared, &ready, &start);
            std::thread::Builder::new()
                .name(format!("bench-{index}"))
                .spawn_scoped(scope, move || work(job, shared, pool, index, ready, start))
        };
        let handles: Vec<_> = (0..threads).map(worker).collect::<std::io::Result<_>>()?;
        start.get_or_init(Instant::now);
        ready.wait();
        let join = |handle: std::thread::ScopedJoinHandle<'_, Result<Recorder>>| {
            handle.join().unwrap_or_else(|_| Err(anyhow!("a worker thread panicked")))
        };
        // All are joined before the first error is returned.
        let results: Vec<Result<Recorder>> = handles.into_iter().map(join).collect();
        results.into_iter().collect::<Result<Vec<Recorder>>>()
    })?;
    let elapsed = start.get_or_init(Instant::now).elapsed();
    let account = account(recorders, elapsed.as_nanos() as u64);
    Ok((account, elapsed.as_secs_f64()))
}

fn work(
    job: &Job<'_>,
    shared: &Shared,
    pool: Arc<[u8]>,
    index: u32,
    ready: &Barrier,
    start: &OnceLock<Instant>,
) -> Result<Recorder> {
    let config = job.config;
    let counts = index < config.threads;
    let mut guard = DoneGuard { shared, counts, failed: true };
    sys::sleep_precisely();
    let index = u64::from(index);
    let stream = job.stream << 32 | index;
    let rng = Rng::new(config.seed, stream);
    let (key, values) = (KeyBuf::new(key_size(job)), ValueGen::new(pool, config.value_size, stream));
    ready.wait();
    let start = *start.get_or_init(Instant::now);
    let mut worker = Worker {
        job,
        shared,
        engine: job.engine,
        index,
        rng,
        key,
        values,
        recorder: Recorder::new(counts),
        start,
        last: 0,
        pacer: pacer(job, start, index, counts),
        left: if counts { job.operations(index) } else { u64::MAX },
        deadline: if config.duration > 0 && counts {
            config.duration.saturating_mul(1_000_000_000)
        } else {
            u64::MAX
        },
        reported_window: 0,
        reported_ops: 0,
    };
    worker.last = worker.now();
    if counts {
        ops::run(&mut worker)?
    } else {
        ops::write_beside(&mut worker)?
    }
    worker.report();
    guard.failed = false;
    Ok(worker.recorder)
}

/// Keys one byte longer than those that exist are missing, and lie among them: as in db_bench.
fn key_size(job: &Job<'_>) -> usize {
    job.config.key_size + usize::from(job.workload == Workload::ReadMissing)
}

fn pacer(job: &Job<'_>, start: Instant, index: u64, counts: bool) -> Option<Pacer> {
    let config = job.config;
    let law = (config.arrival, config.late);
    if !counts {
        let limit = config.benchmark_write_rate_limit;
        let per_second = limit as f64 / config.entry_bytes() as f64;
        return (limit > 0).then(|| Pacer::new(start, per_second, law, 0, 1, config.seed));
    }
    let Rate::PerSecond(rate) = config.rate else { return None };
    let calls = rate / job.entries_a_call() as f64;
    Some(Pacer::new(start, calls, law, index, config.threads.into(), config.seed))
}
