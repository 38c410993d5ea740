//! How many runs level 0 may gather while a burst of writes lasts.
//!
//! A merge of L0 into the base level writes the base level anew, so what a byte costs falls with the runs that
//! one merge takes; each run that waits costs every look-up a probe. Per byte that writers bring, with `r`
//! reads for each such byte, runs of `run` bytes and a trigger of `T` runs:
//!
//! ```text
//!   cost(T) = base / (T · run) · MERGE_NS  +  r · T/2 · PROBE_NS
//!   least at  T = sqrt(2 · base/run · MERGE_NS / (r · PROBE_NS))
//! ```
//! Without reads that has no bound: then half of the way to where writers would be slowed down is taken, which
//! leaves room for what arrives while the merge runs. Never below the trigger that the user has chosen, and
//! that one alone counts as soon as writers pause.
//!
//! The trigger is stretched only for the scheduler. What is owed, and whether anything is left to do, is told
//! by the user's trigger.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use dialsm_io::env::Nanos;
use parking_lot::Mutex;

use crate::compaction::debt::LevelTargets;
use crate::compaction::strategy::Strategy;
use crate::metrics::{Counter, Metrics};
use crate::options::KeyspaceOptions;
use crate::version::Version;

/// What it costs to read, merge and write a byte.
pub(super) const MERGE_NS: f64 = 1.5;

/// What a look into one more run costs a read whose key it may hold; with a filter, which mostly says no.
pub(super) const PROBE_NS: f64 = 1_000.0;
pub(super) const FILTERED_PROBE_NS: f64 = 150.0;

/// Look-ups that the positioning of an iterator counts as.
const SEEK_WEIGHT: u64 = 4;

/// A burst has ended when no memtable was flushed for so many times as long as between the last two.
const PAUSE_FLUSHES: u64 = 4;

/// The bounds of that pause.
const PAUSE_MIN: Nanos = 20_000_000;
const PAUSE_MAX: Nanos = 500_000_000;

/// The stretched trigger of a tree.
#[derive(Default)]
pub(crate) struct Patience {
    runs: AtomicUsize,
    /// Until when it holds, unless another memtable is flushed before.
    until: AtomicU64,
    last: Mutex<Option<Flushed>>,
}

/// What the database's counters said when a memtable was flushed.
#[derive(Clone, Copy)]
struct Flushed {
    at: Nanos,
    reads: u64,
    write_bytes: u64,
}

/// The trigger at which a byte costs least; `base_runs` is how many runs are as large as the base level.
fn best_runs(reads_per_byte: f64, base_runs: f64, probe_ns: f64) -> f64 {
    (2.0 * base_runs * MERGE_NS / (reads_per_byte * probe_ns)).sqrt()
}

impl Patience {
    /// A memtable has become a run of L0, in `version`.
    pub(crate) fn note_flush(
        &self,
        now: Nanos,
        metrics: &Metrics,
        version: &Version,
        strategy: &Strategy,
        options: &KeyspaceOptions,
    ) {
        let seeks = metrics.total(Counter::IteratorSeeks);
        let reads = metrics.total(Counter::Gets).saturating_add(SEEK_WEIGHT.saturating_mul(seeks));
        let flushed = Flushed { at: now, reads, write_bytes: metrics.total(Counter::WriteBytes) };
        let Some(before) = self.last.lock().replace(flushed) else { return };
        let bytes = flushed.write_bytes.saturating_sub(before.write_bytes);
        let reads_per_byte = flushed.reads.saturating_sub(before.reads) as f64 / bytes.max(1) as f64;
        let base = version.level_bytes(LevelTargets::of(version, strategy).base);
        let base_runs = base.max(strategy.level_bytes_base) as f64 / options.write_buffer_bytes.max(1) as f64;
        let probe_ns = if options.filter_bits_per_key > 0.0 { FILTERED_PROBE_NS } else { PROBE_NS };
        let most = (options.level0_slowdown_trigger / 2).max(strategy.l0_files);
        // Infinite without reads; the cast saturates.
        let best = best_runs(reads_per_byte, base_runs, probe_ns) as usize;
        self.runs.store(best.clamp(strategy.l0_files, most), Ordering::Relaxed);
        let pause = (now.saturating_sub(before.at)).saturating_mul(PAUSE_FLUSHES);
        self.until.store(now + pause.clamp(PAUSE_MIN, PAUSE_MAX), Ordering::Release);
    }

    /// When the burst counts as over, if it does not yet.
    pub(crate) fn until(&self, now: Nanos) -> Option<Nanos> {
        Some(self.until.load(Ordering::Acquire)).filter(|&until| now < until)
    }

    /// The strategy with the trigger that holds now; nothing if that is the user's.
    pub(crate) fn stretched(&self, now: Nanos, strategy: &Strategy, run_bytes: u64) -> Option<Strategy> {
        self.until(now)?;
        let runs = self.runs.load(Ordering::Relaxed);
        (runs > strategy.l0_files).then(|| Strategy {
            l0_files: runs,
            // As the default is meant: L0 when it is due.
            level_bytes_base: strategy.level_bytes_base.max(run_bytes.saturating_mul(runs as u64)),
            ..strategy.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Comparator;
    use crate::options::Options;

    /// The trigger after a second flush, `pause` after the first, with so many gets between them for each of
    /// the 100 MB written.
    fn trigger_after(gets_per_megabyte: u64, change: impl FnOnce(&mut KeyspaceOptions)) -> usize {
        let mut options = Options::default().keyspace();
        change(&mut options);
        let (metrics, patience) = (Metrics::new(), Patience::default());
        let version = Version::empty(Comparator::default());
        let strategy = Strategy::leveled();
        let flush = |now| patience.note_flush(now, &metrics, &version, &strategy, &options);
        flush(1_000_000_000);
        assert!(patience.stretched(1_000_000_001, &strategy, 1).is_none(), "one flush is no pace");
        metrics.add(Counter::WriteBytes, 100_000_000);
        metrics.add(Counter::Gets, 100 * gets_per_megabyte);
        flush(1_100_000_000);
        patience
            .stretched(1_100_000_001, &strategy, 1)
            .map_or(strategy.l0_files, |strategy| strategy.l0_files)
    }

    #[test]
    fn level_0_gathers_half_of_what_slows_down_unless_reads_pay_for_it() {
        let plain = |_: &mut KeyspaceOptions| {};
        assert_eq!(trigger_after(0, plain), 10);
        assert_eq!(trigger_after(0, |options| options.level0_slowdown_trigger = 36), 18);
        // A base level of four memtables: sqrt(2 * 4 * 1.5 ns / (0.000_2 * 1000 ns)) = 7.7 for a read in 5 KB.
        let unfiltered = |options: &mut KeyspaceOptions| options.filter_bits_per_key = 0.0;
        assert_eq!(trigger_after(200, unfiltered), 7);
        // A filter makes a probe cheaper: sqrt(12 / 0.15) = 8.9 for a read in 1 KB.
        assert_eq!(trigger_after(1_000, |options| options.filter_bits_per_key = 10.0), 8);
        assert_eq!(trigger_after(1_000, unfiltered), 4, "never below the user's");
    }

    #[test]
    fn a_pause_of_writers_gives_the_users_trigger_back() {
        let options = Options::default().keyspace();
        let (metrics, patience) = (Metrics::new(), Patience::default());
        let version = Version::empty(Comparator::default());
        let strategy = Strategy::leveled();
        for now in [1_000_000_000, 1_030_000_000] {
            patience.note_flush(now, &metrics, &version, &strategy, &options);
        }
        let end = 1_030_000_000 + 4 * 30_000_000;
        assert_eq!(patience.until(end - 1), Some(end));
        let stretched = patience.stretched(end - 1, &strategy, 1 << 20).expect("a burst");
        assert_eq!((stretched.l0_files, stretched.level_bytes_base), (10, 256 << 20));
        let larger = patience.stretched(end - 1, &strategy, 64 << 20).expect("a burst");
        assert_eq!(
            larger.level_bytes_base,
            640 << 20,
            "the base level is about as large as L0 when it is due"
        );
        assert_eq!(patience.until(end), None);
        assert!(patience.stretched(end, &strategy, 1 << 20).is_none());
    }
}
