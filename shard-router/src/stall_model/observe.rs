//! The model's rates from what an engine has counted over some time.
//!
//! ```text
//! λ    user bytes written, by the time in which nothing stalled
//! μ_f  user bytes flushed, by the time in flushes                    (one flush of a tree at a time)
//! μ_0  bytes taken from L0, by the time in those compactions         (one of a tree at a time)
//! k    of those bytes, the part that is left one level down
//! μ_d  bytes taken from the level below L0, by the time in all compactions that begin there or deeper
//! M    user bytes in a flushed memtable, and S_SST the same, being what a file in L0 holds
//! ```
//! All are in user bytes: what tables hold more, or less by compression, is taken out by the bytes that flushes
//! wrote for each byte of keys and values.
//!
//! What the counters cannot tell: E\[S\], which is taken as 0, so that no wait behind other writes is predicted;
//! what compactions that ran beside one another did by themselves, as times are jobs', not wall time; S_pend, which the
//! options do not know either.

use std::fmt;

use dialsm_core::metrics::{LevelCounters, MetricsSnapshot};
use dialsm_core::{KeyspaceOptions, StallReport};

use super::{Limits, Megabytes, MegabytesPerSecond, OutOfRange, Rates, Seconds, StallCause};

/// What was counted between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observation {
    /// The time between them.
    pub seconds: f64,
    /// Writes, and the bytes of their keys and values.
    pub writes: f64,
    /// The bytes of their keys and values.
    pub write_bytes: f64,
    /// Memtables flushed.
    pub flushes: f64,
    /// The bytes of keys and values in them.
    pub flush_input_bytes: f64,
    /// The bytes of the tables they became.
    pub flush_bytes: f64,
    /// The time spent in flushes, in seconds.
    pub flush_seconds: f64,
    /// What was taken from each level, L0 first.
    pub levels: [Drain; LEVELS],
    /// Stalls by cause, in the order of [`StallCause::ALL`].
    pub stalls: [Stalls; 3],
    /// Trees that `stalls` are summed over.
    pub trees: f64,
}

const LEVELS: usize = dialsm_core::metrics::LEVELS;

/// What compactions took from one level.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Drain {
    /// Bytes of tables.
    pub drained_bytes: f64,
    /// What was left of them one level down.
    pub survived_bytes: f64,
    /// The time of those compactions.
    pub seconds: f64,
}

/// Stalls of one cause.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stalls {
    /// How many.
    pub count: f64,
    /// Their length in sum.
    pub seconds: f64,
}

impl Stalls {
    /// How long one lasted; 0 if there was none.
    pub fn duration(&self) -> Seconds {
        Seconds(if self.count > 0.0 { self.seconds / self.count } else { 0.0 })
    }
}

impl Observation {
    /// What a database of so many trees (shards) has counted since it was opened, `seconds` ago.
    pub fn of(metrics: &MetricsSnapshot, stalls: &StallReport, trees: u32, seconds: f64) -> Observation {
        let counters = &metrics.counters;
        let drain = |level: &LevelCounters| Drain {
            drained_bytes: level.drained_bytes as f64,
            survived_bytes: level.survived_bytes as f64,
            seconds: level.drain_ns as f64 / 1e9,
        };
        Observation {
            seconds,
            writes: counters.writes as f64,
            write_bytes: counters.write_bytes as f64,
            flushes: counters.flushes as f64,
            flush_input_bytes: counters.flush_input_bytes as f64,
            flush_bytes: counters.flush_bytes as f64,
            flush_seconds: counters.flush_ns as f64 / 1e9,
            levels: metrics.levels.each_ref().map(drain),
            stalls: stalls
                .by_cause
                .map(|times| Stalls { count: times.count as f64, seconds: times.total_ns as f64 / 1e9 }),
            trees: f64::from(trees),
        }
    }

    /// What came since an earlier observation of the same opening.
    pub fn since(&self, earlier: &Observation) -> Observation {
        let drain = |at: usize| {
            let (now, then) = (&self.levels[at], &earlier.levels[at]);
            Drain {
                drained_bytes: now.drained_bytes - then.drained_bytes,
                survived_bytes: now.survived_bytes - then.survived_bytes,
                seconds: now.seconds - then.seconds,
            }
        };
        let stalls = |at: usize| {
            let (now, then) = (&self.stalls[at], &earlier.stalls[at]);
            Stalls { count: now.count - then.count, seconds: now.seconds - then.seconds }
        };
        Observation {
            seconds: self.seconds - earlier.seconds,
            writes: self.writes - earlier.writes,
            write_bytes: self.write_bytes - earlier.write_bytes,
            flushes: self.flushes - earlier.flushes,
            flush_input_bytes: self.flush_input_bytes - earlier.flush_input_bytes,
            flush_bytes: self.flush_bytes - earlier.flush_bytes,
            flush_seconds: self.flush_seconds - earlier.flush_seconds,
            levels: std::array::from_fn(drain),
            stalls: std::array::from_fn(stalls),
            trees: self.trees,
        }
    }

    /// The share of its time that a tree stalled its writers for `cause`.
    pub fn share(&self, cause: StallCause) -> f64 {
        self.stalls[cause as usize].seconds / (self.seconds * self.trees.max(1.0))
    }

    /// The same for any cause. Where several writers waited for several causes at one time, each counts.
    pub fn stalled_share(&self) -> f64 {
        StallCause::ALL.iter().map(|cause| self.share(*cause)).sum()
    }

    /// Mean bytes of a write's key and value.
    ///
    /// # Errors
    /// As [`Observation::rates`].
    pub fn record_bytes(&self) -> Result<f64, Unobserved> {
        self.check()?;
        Ok(self.write_bytes / self.writes)
    }

    /// The model's rates. A stage that had nothing to do counts as endlessly fast.
    ///
    /// # Errors
    /// What nothing can be concluded from.
    pub fn rates(&self) -> Result<Rates, Unobserved> {
        self.check()?;
        let table_bytes_per_byte = self.flush_bytes / self.flush_input_bytes;
        let flow = |bytes: f64, seconds: f64| match seconds > 0.0 {
            true => Megabytes::from_bytes(bytes) / Seconds(seconds),
            false => MegabytesPerSecond(f64::INFINITY),
        };
        let [l0, deep @ ..] = &self.levels;
        let below_l0 = deep.iter().map(|level| level.drained_bytes).fold(0.0, f64::max);
        let deep_seconds: f64 = deep.iter().map(|level| level.seconds).sum();
        let open = (1.0 - self.stalled_share()).max(f64::EPSILON);
        let survival = l0.survived_bytes / l0.drained_bytes;
        Ok(Rates {
            arrival: flow(self.write_bytes, self.seconds * open),
            flush: flow(self.flush_input_bytes, self.flush_seconds),
            l0: flow(l0.drained_bytes / table_bytes_per_byte, l0.seconds),
            deep: flow(below_l0 / table_bytes_per_byte, deep_seconds),
            // Nothing taken: nothing known.
            survival: if survival > 0.0 { survival.min(1.0) } else { 1.0 },
        })
    }

    /// The model's limits: memtables as they were flushed, and the marks at which a tree with these options stops
    /// its writers. The debt that ends a pending stall is taken to be the one from which on writes are slowed down.
    ///
    /// # Errors
    /// As [`Observation::rates`]; or the options have no room between the marks.
    pub fn limits(&self, options: &KeyspaceOptions) -> Result<Limits, Unobserved> {
        self.check()?;
        let memtable = Megabytes::from_bytes(self.flush_input_bytes / self.flushes);
        limits(options, memtable, self.flush_input_bytes / self.flush_bytes)
    }

    /// The same where nothing was observed: memtables are full, and tables hold a byte for each of theirs.
    ///
    /// # Errors
    /// The options have no room between the marks.
    pub fn limits_unobserved(options: &KeyspaceOptions) -> Result<Limits, Unobserved> {
        limits(options, Megabytes::from_bytes(options.write_buffer_bytes as f64), 1.0)
    }

    fn check(&self) -> Result<(), Unobserved> {
        let counts = [self.seconds, self.writes, self.write_bytes];
        if !counts.iter().all(|count| *count > 0.0 && count.is_finite()) {
            return Err(Unobserved::NothingWritten);
        }
        let flushes = [self.flushes, self.flush_input_bytes, self.flush_bytes, self.flush_seconds];
        if !flushes.iter().all(|count| *count > 0.0 && count.is_finite()) {
            return Err(Unobserved::NothingFlushed);
        }
        Ok(())
    }
}

fn limits(
    options: &KeyspaceOptions,
    memtable: Megabytes,
    user_bytes_per_table_byte: f64,
) -> Result<Limits, Unobserved> {
    let debt = |bytes: u64| Megabytes::from_bytes(bytes as f64 * user_bytes_per_table_byte);
    let pending = debt(options.pending_compaction_hard_bytes);
    let drain = Megabytes(pending.0 - debt(options.pending_compaction_soft_bytes).0);
    let (resume, stop) = (options.level0_compaction_trigger as u32, options.level0_stop_trigger as u32);
    Ok(Limits {
        memtable,
        l0: Limits::l0_by_files(resume, stop, memtable).map_err(Unobserved::Options)?,
        pending,
        pending_drain: if drain.0 > 0.0 { drain } else { pending },
    })
}

/// Why an observation says nothing about the rates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unobserved {
    /// No time passed, or nobody wrote; or the later one is of another opening than the earlier.
    NothingWritten,
    /// No memtable was flushed, so that neither its size nor its way is known: too short.
    NothingFlushed,
    /// The options leave no room between the marks.
    Options(OutOfRange),
}

impl fmt::Display for Unobserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unobserved::NothingWritten => f.write_str("nothing was written in the observed time"),
            Unobserved::NothingFlushed => {
                f.write_str("no memtable was flushed in the observed time; observe for longer")
            }
            Unobserved::Options(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Unobserved {}
