//! Admission: slows or stops writers before they enter the commit queue.
//!
//! The state changes where its causes change (a memtable is switched or found full, a flush or
//! compaction ends), never by polling; a writer reads one atomic. A stopped writer re-checks on a
//! timer all the same and asks for the job that can let it in, so that no lost event can hang it.
//!
//! Pressure runs from 0 (the slowdown mark) to 1 (the stop mark). A delayed writer gets a slot on
//! a line paced at a rate computed from the present pressure alone, and waits at most
//! `DELAY_MAX` for it.
//!
//! The door of a tree is shut, too, while the memtables of all trees together are too large (`budget`).
//!
//! What is counted: a stall lasts from the moment a write may not proceed until it may, delays
//! included, in wall time. Writers that wait at the same time for the same cause share one
//! interval, at whatever doors of a keyspace's shards they wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use dialsm_io::Event;
use dialsm_io::env::Nanos;
use parking_lot::Mutex;

use crate::engine::Engine;
use crate::metrics::StallCause;
use crate::options::KeyspaceOptions;
use crate::options::live::LiveKeyspaceOptions;
use crate::write::commit::relieve_budget;
use crate::{Error, ErrorKind, Result};

/// The longest delay of one write under slowdown.
pub(crate) const DELAY_MAX: Nanos = 100_000_000;

/// A stopped writer looks again after this long, whatever it was told.
const RECHECK: Nanos = 20_000_000;

/// Pace at the slowdown mark, as a multiple of the pace at the stop mark.
const PACE_SPAN: f64 = 32.0;

/// What the pressure is computed from.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StallInputs {
    /// The active memtable is full and may not be switched.
    pub(crate) memtable_blocked: bool,
    pub(crate) l0_runs: usize,
    pub(crate) pending_bytes: u64,
}

/// How far along the way from free to stopped writers are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Admission {
    Open,
    /// Pressure in `0.0..1.0`.
    Delayed(StallCause, f64),
    Stopped(StallCause),
}

impl Admission {
    /// From 0, free or hardly slowed down, to 1, stopped.
    pub(crate) fn pressure(&self) -> f64 {
        match self {
            Admission::Open => 0.0,
            // Delayed at all is more than free.
            Admission::Delayed(_, pressure) => pressure.max(f64::MIN_POSITIVE),
            Admission::Stopped(_) => 1.0,
        }
    }
}

/// The admission that `inputs` call for. With automatic compaction off, the stops that only it
/// would end are off (rule 20).
pub(crate) fn admission(inputs: &StallInputs, options: &KeyspaceOptions) -> Admission {
    if inputs.memtable_blocked {
        return Admission::Stopped(StallCause::Memtable);
    }
    if !options.automatic_compaction {
        return Admission::Open;
    }
    let span = |value: f64, from: f64, to: f64| match value {
        // First, because the two marks may be one.
        v if v >= to => 1.0,
        v if v >= from => (v - from) / (to - from),
        _ => -1.0,
    };
    let l0 = span(
        inputs.l0_runs as f64,
        options.level0_slowdown_trigger as f64,
        options.level0_stop_trigger as f64,
    );
    let pending = span(
        inputs.pending_bytes as f64,
        options.pending_compaction_soft_bytes as f64,
        options.pending_compaction_hard_bytes as f64,
    );
    let (cause, pressure) =
        if l0 >= pending { (StallCause::Level0, l0) } else { (StallCause::Pending, pending) };
    match pressure {
        p if p >= 1.0 => Admission::Stopped(cause),
        p if p >= 0.0 => Admission::Delayed(cause, p),
        _ => Admission::Open,
    }
}

/// Stall intervals of one cause. Times are on the environment's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StallTimes {
    /// Intervals in which at least one writer waited.
    pub count: u64,
    /// Their total length, the running one up to now included, in nanoseconds.
    pub total_ns: u64,
    /// The longest, in nanoseconds; a running one so far included.
    pub longest_ns: u64,
    /// When that one began, in nanoseconds.
    pub longest_begin_ns: u64,
    /// When the last one began, in nanoseconds.
    pub last_begin_ns: u64,
    /// When the last one that is over ended, in nanoseconds: while one is running, before it began.
    pub last_end_ns: u64,
    waiting: u64,
}

impl StallTimes {
    fn enter(&mut self, now: Nanos) {
        if self.waiting == 0 {
            self.count += 1;
            self.last_begin_ns = now;
        }
        self.waiting += 1;
    }

    fn leave(&mut self, now: Nanos) {
        self.waiting -= 1;
        if self.waiting == 0 {
            self.add_running(now);
            self.last_end_ns = now;
        }
    }

    /// Counts the running interval as if it ended now.
    fn add_running(&mut self, now: Nanos) {
        let ns = now.saturating_sub(self.last_begin_ns);
        self.total_ns += ns;
        if ns > self.longest_ns {
            (self.longest_ns, self.longest_begin_ns) = (ns, self.last_begin_ns);
        }
    }

    /// Of two doors: intervals of both, also where they overlap; the longest and the last of either.
    fn plus(self, other: &StallTimes) -> StallTimes {
        let longer = if self.longest_ns >= other.longest_ns { &self } else { other };
        StallTimes {
            count: self.count + other.count,
            total_ns: self.total_ns + other.total_ns,
            longest_ns: longer.longest_ns,
            longest_begin_ns: longer.longest_begin_ns,
            last_begin_ns: self.last_begin_ns.max(other.last_begin_ns),
            last_end_ns: self.last_end_ns.max(other.last_end_ns),
            waiting: self.waiting + other.waiting,
        }
    }

    fn up_to(mut self, now: Nanos) -> StallTimes {
        if self.waiting > 0 {
            self.add_running(now);
        }
        self
    }
}

/// Stalls of a keyspace: whole, and by cause in the order of [`StallCause::ALL`]. Those of a database
/// are the sums over its keyspaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StallReport {
    /// Any cause; overlapping causes count once.
    pub all: StallTimes,
    /// By cause.
    pub by_cause: [StallTimes; 3],
}

impl StallReport {
    pub(crate) fn plus(&self, other: &StallReport) -> StallReport {
        StallReport {
            all: self.all.plus(&other.all),
            by_cause: std::array::from_fn(|at| self.by_cause[at].plus(&other.by_cause[at])),
        }
    }
}

/// The door of one tree.
pub(crate) struct StallGate {
    /// 0 open, 1 delayed, 2 stopped: what a writer reads.
    level: AtomicU8,
    admission: Mutex<Admission>,
    changed: Arc<dyn Event>,
    /// When the next delayed write may go.
    next_slot: AtomicU64,
    /// Those of all doors of the keyspace.
    times: Arc<Mutex<StallReport>>,
    /// Whose tree it leads to.
    shard: u16,
}

impl StallGate {
    pub(crate) fn new(shard: u16, changed: Arc<dyn Event>, times: Arc<Mutex<StallReport>>) -> StallGate {
        StallGate {
            shard,
            level: AtomicU8::new(0),
            admission: Mutex::new(Admission::Open),
            changed,
            next_slot: AtomicU64::new(0),
            times,
        }
    }

    /// Sets the state; called where a cause has changed, under the tree's lock. True if it did
    /// change: the caller then wakes those who wait, once it has let go of the lock.
    pub(crate) fn set(&self, admission: Admission) -> bool {
        let level = match admission {
            Admission::Open => 0,
            Admission::Delayed(..) => 1,
            Admission::Stopped(_) => 2,
        };
        let mut current = self.admission.lock();
        let was = *current;
        *current = admission;
        self.level.store(level, Ordering::Release);
        was != admission
    }

    /// Wakes those who wait, so that they see an error or the closing.
    pub(crate) fn wake_all(&self) {
        self.changed.notify();
    }

    /// The present state.
    pub(crate) fn admission(&self) -> Admission {
        *self.admission.lock()
    }

    /// Stalls so far, at any door of the keyspace.
    pub(crate) fn report(&self, now: Nanos) -> StallReport {
        let times = *self.times.lock();
        StallReport { all: times.all.up_to(now), by_cause: times.by_cause.map(|t| t.up_to(now)) }
    }

    /// Waits until a write of `bytes` may enter the commit queue: until the door is open, or `detour` says
    /// that all of the write has another way.
    ///
    /// # Errors
    /// `WouldStall` with `no_slowdown`, `TimedOut` past `deadline`, `Closed`, or the background
    /// error that keeps the door shut.
    #[inline]
    pub(crate) fn admit(
        &self,
        engine: &Engine,
        options: &LiveKeyspaceOptions,
        bytes: u64,
        no_slowdown: bool,
        deadline: Option<Nanos>,
        detour: impl Fn() -> bool,
    ) -> Result<()> {
        if self.level.load(Ordering::Acquire) == 0 && !engine.write_budget.is_full() {
            return Ok(());
        }
        self.admit_slowly(engine, options, bytes, no_slowdown, deadline, &detour)
    }

    #[cold]
    fn admit_slowly(
        &self,
        engine: &Engine,
        options: &LiveKeyspaceOptions,
        bytes: u64,
        no_slowdown: bool,
        deadline: Option<Nanos>,
        detour: &dyn Fn() -> bool,
    ) -> Result<()> {
        let mut interval: Option<Interval<'_>> = None;
        loop {
            let seen = self.changed.epoch();
            engine.error.check()?;
            engine.check_open()?;
            let now = engine.env.now();
            let mut admission = self.admission();
            if engine.write_budget.is_still_full() {
                engine.write_budget.begin_stall();
                relieve_budget(engine);
                admission = Admission::Stopped(StallCause::Memtable);
            } else if admission != Admission::Open && detour() {
                return Ok(());
            }
            let (cause, slot) = match admission {
                Admission::Open => return Ok(()),
                Admission::Delayed(cause, pressure) => {
                    let latest = if no_slowdown { now } else { deadline.unwrap_or(Nanos::MAX) };
                    let slot = self.take_slot(options, now, latest, bytes, pressure);
                    if slot.is_some_and(|slot| slot <= now) {
                        return Ok(());
                    }
                    (cause, slot)
                }
                Admission::Stopped(cause) => (cause, None),
            };
            if no_slowdown {
                let text = format!("the write would wait (cause: {})", cause.as_str());
                return Err(Error::new(ErrorKind::WouldStall, text));
            }
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Err(Error::new(
                    ErrorKind::TimedOut,
                    "the write's deadline passed while it was stalled",
                ));
            }
            if interval.as_ref().is_none_or(|i| i.cause != cause) {
                interval = None;
                interval.get_or_insert_with(|| Interval::begin(self, engine, cause));
            }
            engine.schedule();
            if let Some(slot) = slot {
                // A delay is served in full; a change of state in between is for the next write.
                engine.env.sleep(slot.saturating_sub(engine.env.now()));
                return Ok(());
            }
            let until = now + RECHECK;
            self.changed.wait(seen, Some(deadline.map_or(until, |deadline| until.min(deadline))));
        }
    }

    /// The time at which a write of `bytes` may go, on the shared line paced by `pressure`; `None`,
    /// with the line left as it is for others, if that is after `latest`.
    fn take_slot(
        &self,
        options: &LiveKeyspaceOptions,
        now: Nanos,
        latest: Nanos,
        bytes: u64,
        pressure: f64,
    ) -> Option<Nanos> {
        let slowest = options.load().delayed_write_bytes_per_s.max(1) as f64;
        let pace = slowest * PACE_SPAN.powf(1.0 - pressure);
        let cost = (bytes as f64 / pace * 1e9) as Nanos;
        let slot_after = |next: Nanos| next.clamp(now, now + DELAY_MAX);
        self.next_slot
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
                let slot = slot_after(next);
                (slot <= latest).then_some(slot + cost)
            })
            .ok()
            .map(slot_after)
    }
}

/// A writer's share of a stall interval; ends when dropped.
struct Interval<'a> {
    gate: &'a StallGate,
    engine: &'a Engine,
    cause: StallCause,
    began: Nanos,
}

impl<'a> Interval<'a> {
    fn begin(gate: &'a StallGate, engine: &'a Engine, cause: StallCause) -> Interval<'a> {
        let now = engine.env.now();
        let mut report = gate.times.lock();
        report.all.enter(now);
        report.by_cause[cause as usize].enter(now);
        Interval { gate, engine, cause, began: now }
    }
}

impl Drop for Interval<'_> {
    fn drop(&mut self) {
        let now = self.engine.env.now();
        let mut report = self.gate.times.lock();
        report.all.leave(now);
        report.by_cause[self.cause as usize].leave(now);
        drop(report);
        self.engine.metrics.add_stall(self.gate.shard, self.cause, now.saturating_sub(self.began));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(l0_runs: usize, pending_bytes: u64) -> StallInputs {
        StallInputs { memtable_blocked: false, l0_runs, pending_bytes }
    }

    #[test]
    fn pressure_rises_from_the_slowdown_mark_to_the_stop_mark() {
        let options = KeyspaceOptions::default();
        assert_eq!(admission(&inputs(19, 0), &options), Admission::Open);
        assert_eq!(admission(&inputs(20, 0), &options), Admission::Delayed(StallCause::Level0, 0.0));
        assert_eq!(admission(&inputs(28, 0), &options), Admission::Delayed(StallCause::Level0, 0.5));
        assert_eq!(admission(&inputs(36, 0), &options), Admission::Stopped(StallCause::Level0));
        let hard = options.pending_compaction_hard_bytes;
        assert_eq!(admission(&inputs(20, hard), &options), Admission::Stopped(StallCause::Pending));
        let blocked = StallInputs { memtable_blocked: true, ..inputs(0, 0) };
        assert_eq!(admission(&blocked, &options), Admission::Stopped(StallCause::Memtable));
    }

    #[test]
    fn writes_stop_at_the_stop_mark_where_the_slowdown_mark_is_the_same() {
        let options = KeyspaceOptions {
            level0_slowdown_trigger: 8,
            level0_stop_trigger: 8,
            ..KeyspaceOptions::default()
        };
        assert_eq!(admission(&inputs(7, 0), &options), Admission::Open);
        assert_eq!(admission(&inputs(8, 0), &options), Admission::Stopped(StallCause::Level0));
    }

    #[test]
    fn without_automatic_compaction_only_memtables_stop_writers() {
        let options = KeyspaceOptions { automatic_compaction: false, ..KeyspaceOptions::default() };
        assert_eq!(admission(&inputs(1000, u64::MAX), &options), Admission::Open);
        let blocked = StallInputs { memtable_blocked: true, ..inputs(0, 0) };
        assert_eq!(admission(&blocked, &options), Admission::Stopped(StallCause::Memtable));
    }

    #[test]
    fn intervals_of_writers_that_wait_together_count_once() {
        let mut times = StallTimes::default();
        times.enter(100);
        times.enter(150);
        times.leave(200);
        times.leave(400);
        times.enter(1000);
        assert_eq!(times.up_to(1010).total_ns, 310);
        times.leave(1050);
        assert_eq!((times.count, times.total_ns, times.longest_ns), (2, 350, 300));
        assert_eq!((times.longest_begin_ns, times.last_begin_ns, times.last_end_ns), (100, 1000, 1050));
    }
}
