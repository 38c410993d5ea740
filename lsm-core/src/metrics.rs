//! What the engine counts about itself: cheap enough to be always on.
//!
//! ```text
//! Metrics --snapshot()--> MetricsSnapshot --to_text()/to_json()--> people and programs
//!   shards: SHARDS x [every counter]    a thread adds in the shard that its stack picks
//!   histograms                          powers of two, for what happens once a group or job
//! ```
//! INVARIANT: a counter only grows (but for [`Counter::OpenTables`], which is a level), and a
//! snapshot's value is the sum over the shards; upheld by [`Metrics::add`], checked by
//! `threads_lose_nothing`. A snapshot taken while others count is no cut through time: each
//! counter is right by itself, two may differ by what happened in between.
//!
//! Absent on purpose: a clock. Callers measure with the environment's and pass nanoseconds.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

mod histogram;
mod report;
#[cfg(test)]
mod tests;

pub use histogram::{Histogram, HistogramSnapshot};

/// Levels that are counted apart; a deeper one would count as the last.
pub const LEVELS: usize = 7;

/// Copies of the counters; a power of two. 16 copies keep the threads of a small machine apart
/// nearly always and cost about 10 KiB.
pub(crate) const SHARDS: usize = 16;

/// Makes an enum of counters and the struct of their values from one list.
macro_rules! counters {
    (
        $(#[$enum_attr:meta])* enum $counter:ident;
        $(#[$struct_attr:meta])* struct $values:ident;
        $( $(#[doc = $doc:literal])+ $variant:ident = $field:ident, )+
    ) => {
        $(#[$enum_attr])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $counter { $( $(#[doc = $doc])+ $variant, )+ }

        impl $counter {
            const ALL: &'static [$counter] = &[$($counter::$variant),+];
        }

        $(#[$struct_attr])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $values { $( $(#[doc = $doc])+ pub $field: u64, )+ }

        impl $values {
            fn from_cells(value: impl Fn($counter) -> u64) -> $values {
                $values { $( $field: value($counter::$variant), )+ }
            }

            /// Names and values, in the order of their declaration.
            pub fn entries(&self) -> Vec<(&'static str, u64)> {
                vec![$( (stringify!($field), self.$field), )+]
            }
        }
    };
}

counters! {
    /// A count kept for the whole database.
    enum Counter;
    /// The counts kept for the whole database.
    struct Counters;

    /// Operations written: puts, deletes, merges.
    Writes = writes,
    /// Bytes of keys and values in them.
    WriteBytes = write_bytes,
    /// Commit groups.
    WriteGroups = write_groups,
    /// Bytes appended to the commit log, framing included.
    LogBytes = log_bytes,
    /// Syncs of the commit log.
    LogSyncs = log_syncs,
    /// Nanoseconds spent in them.
    LogSyncNs = log_sync_ns,
    /// Memtables flushed.
    Flushes = flushes,
    /// Bytes of the tables they became.
    FlushBytes = flush_bytes,
    /// Bytes of the keys and values in them.
    FlushInputBytes = flush_input_bytes,
    /// Nanoseconds spent flushing.
    FlushNs = flush_ns,
    /// Nanoseconds that flushes waited for the disk to sync their tables; none with deferred sync.
    FlushSyncNs = flush_sync_ns,
    /// Nanoseconds that compactions waited for it; none with deferred sync.
    CompactionSyncNs = compaction_sync_ns,
    /// Nanoseconds that flushes and compactions waited for the limiter before they began a table.
    LimiterWaitNs = limiter_wait_ns,
    /// Compactions that were not begun because too much waited to become durable, look by look.
    RetentionRefusals = retention_refusals,
    /// Tables whose sync failed after they were live.
    TableSyncFailures = table_sync_failures,
    /// Those that were made again from what they were made of.
    TablesRedone = tables_redone,
    /// Tables moved to the next level without being rewritten.
    TrivialMoves = trivial_moves,
    /// Point look-ups.
    Gets = gets,
    /// Those answered by a memtable.
    GetHitsMemtable = get_hits_memtable,
    /// Those that found no value (a tombstone counts as none).
    GetMisses = get_misses,
    /// Filters asked.
    FilterChecked = filter_checked,
    /// Those that said no and spared a look.
    FilterUseful = filter_useful,
    /// Blocks found in the block cache.
    BlockCacheHits = block_cache_hits,
    /// Blocks that had to be read.
    BlockCacheMisses = block_cache_misses,
    /// Those of them that were read together with others, by look-ups of several keys and by seeks.
    BatchedReads = batched_reads,
    /// Bytes of blocks read from files by gets and iterators.
    BlockReadBytes = block_read_bytes,
    /// Positionings of iterators.
    IteratorSeeks = iterator_seeks,
    /// Steps of iterators, either way.
    IteratorSteps = iterator_steps,
    /// Entries that iterators passed without showing: older versions and tombstones.
    IteratorSkips = iterator_skips,
    /// Moves of iterators past a range tombstone.
    RangeJumps = range_jumps,
    /// Entries under range tombstones that flushes and compactions left out.
    RangeDeletedEntries = range_deleted_entries,
    /// Values and operands that went to another shard than their own.
    Redirects = redirects,
    /// Bytes of their keys and values.
    RedirectedBytes = redirected_bytes,
    /// Clue entries that a newer entry, or a delete, made obsolete, and that were dropped.
    CluesDropped = clues_dropped,
    /// Clue entries that a rollback replaced by what they stood for.
    CluesRolledBack = clues_rolled_back,
    /// Redirected entries dropped since no clue needed them any more.
    RedirectedDropped = redirected_dropped,
    /// Redirected writes of which tables held one half when the database was opened, value or clue, and
    /// whose other half was replayed from the log or, without one, is a clue that was made again.
    RedirectsCompleted = redirects_completed,
    /// Rollbacks that have ended.
    Rollbacks = rollbacks,
    /// Rollbacks given up because of a new burst.
    RollbackAborts = rollback_aborts,
    /// Tables that compactions did not read, because range tombstones hid all of them.
    RangeDeletedTables = range_deleted_tables,
    /// Pieces of range tombstones that compactions left out, because nothing older lay below.
    RangeDeletesDropped = range_deletes_dropped,
    /// Boundaries between output tables that cut a range tombstone in two.
    RangeDeletesCut = range_deletes_cut,
    /// Merge operands, and their bases, that flushes and compactions folded into another entry.
    OperandsFolded = operands_folded,
    /// Values that the merge operator failed to make there. Nothing is lost, but operands gather; reads
    /// return their failures.
    MergeFailures = merge_failures,
    /// Tables open now.
    OpenTables = open_tables,
}

counters! {
    /// A count kept for each level.
    enum LevelCounter;
    /// The counts of one level. Compactions count at the level they write to; as drains at the one they come from.
    struct LevelCounters;

    /// Point look-ups answered by a table of this level.
    GetHits = get_hits,
    /// Compactions into this level.
    Compactions = compactions,
    /// Bytes of their input tables.
    CompactionReadBytes = compaction_read_bytes,
    /// Bytes of their output tables.
    CompactionWriteBytes = compaction_write_bytes,
    /// Nanoseconds spent in them.
    CompactionNs = compaction_ns,
    /// Bytes of tables that compactions took from this level to a deeper one, or moved there as they were.
    DrainedBytes = drained_bytes,
    /// Bytes by which the deeper one grew: what was left of them once older versions were gone.
    SurvivedBytes = survived_bytes,
    /// Nanoseconds spent in those compactions.
    DrainNs = drain_ns,
}

/// Why writes waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallCause {
    /// The active memtable is full and all others wait for their flush.
    Memtable,
    /// Level 0 holds too many runs.
    Level0,
    /// Compaction owes too many bytes.
    Pending,
}

impl StallCause {
    /// All causes, in the order of [`MetricsSnapshot::stalls`].
    pub const ALL: [StallCause; 3] = [StallCause::Memtable, StallCause::Level0, StallCause::Pending];

    /// The cause's name in text and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            StallCause::Memtable => "memtable",
            StallCause::Level0 => "l0",
            StallCause::Pending => "pending",
        }
    }
}

/// Stalls of one cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StallCounters {
    /// Writes that waited.
    pub count: u64,
    /// Nanoseconds they waited in sum.
    pub ns: u64,
}

const COUNTERS: usize = Counter::ALL.len();
const LEVEL_COUNTERS: usize = LevelCounter::ALL.len();
const STALL_AT: usize = COUNTERS + LEVEL_COUNTERS * LEVELS;
const CELLS: usize = STALL_AT + 2 * StallCause::ALL.len();

/// All counters once, on cache lines of their own (two, as processors fetch them in pairs).
#[repr(align(128))]
struct Shard([AtomicU64; CELLS]);

/// The counters of one database.
pub struct Metrics {
    shards: Box<[Shard]>,
    /// Operations of a commit group.
    pub group_ops: Histogram,
    /// Nanoseconds of a log sync.
    pub log_sync_ns: Histogram,
    /// Nanoseconds of a flush.
    pub flush_ns: Histogram,
    /// Nanoseconds of a compaction.
    pub compaction_ns: Histogram,
    /// Nanoseconds that one write waited in a stall.
    pub stall_ns: Histogram,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

/// Picks this thread's shard by where its thread-local storage lies. A counter that hands out
/// numbers would be state shared by all databases of the process; an address needs none. Which
/// shard it is decides nothing but the cost of adding.
#[inline]
pub(crate) fn shard_index() -> usize {
    thread_local!(static MARK: u8 = const { 0 });
    let address = MARK.with(|mark| std::ptr::from_ref(mark).addr()) as u64;
    // Threads' stacks lie at distances with many low zero bits: multiplying moves the bits that
    // differ to the top (the factor is 2^64 divided by the golden ratio).
    (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SHARDS.trailing_zeros())) as usize
}

impl Metrics {
    /// All counters at zero.
    pub fn new() -> Metrics {
        Metrics {
            shards: (0..SHARDS).map(|_| Shard([const { AtomicU64::new(0) }; CELLS])).collect(),
            group_ops: Histogram::new(),
            log_sync_ns: Histogram::new(),
            flush_ns: Histogram::new(),
            compaction_ns: Histogram::new(),
            stall_ns: Histogram::new(),
        }
    }

    #[inline]
    fn add_at(&self, cell: usize, n: u64) {
        self.shards[shard_index()].0[cell].fetch_add(n, Relaxed);
    }

    /// Adds `n` to a counter.
    #[inline]
    pub fn add(&self, counter: Counter, n: u64) {
        self.add_at(counter as usize, n);
    }

    /// Adds several counts at once, finding the thread's shard only once. Zeros cost nothing.
    #[inline]
    pub fn add_all(&self, counts: &[(Counter, u64)]) {
        let shard = &self.shards[shard_index()];
        for (counter, n) in counts {
            if *n != 0 {
                shard.0[*counter as usize].fetch_add(*n, Relaxed);
            }
        }
    }

    /// Adds `n` to a counter of `level`.
    #[inline]
    pub fn add_level(&self, counter: LevelCounter, level: usize, n: u64) {
        self.add_at(COUNTERS + level.min(LEVELS - 1) * LEVEL_COUNTERS + counter as usize, n);
    }

    /// Counts a write that waited `ns` nanoseconds for `cause`.
    pub fn add_stall(&self, cause: StallCause, ns: u64) {
        let at = STALL_AT + 2 * cause as usize;
        self.add_at(at, 1);
        self.add_at(at + 1, ns);
        self.stall_ns.record(ns);
    }

    /// Counts a commit group of `ops` operations with `bytes` bytes of keys and values.
    pub fn add_group(&self, ops: u64, bytes: u64) {
        self.add_all(&[(Counter::WriteGroups, 1), (Counter::Writes, ops), (Counter::WriteBytes, bytes)]);
        self.group_ops.record(ops);
    }

    /// Counts a sync of the commit log that took `ns` nanoseconds.
    pub fn add_log_sync(&self, ns: u64) {
        self.add_all(&[(Counter::LogSyncs, 1), (Counter::LogSyncNs, ns)]);
        self.log_sync_ns.record(ns);
    }

    /// Counts a flush that made `bytes` bytes of tables of `input_bytes` of keys and values in `ns` nanoseconds.
    pub fn add_flush(&self, input_bytes: u64, bytes: u64, ns: u64) {
        self.add_all(&[
            (Counter::Flushes, 1),
            (Counter::FlushInputBytes, input_bytes),
            (Counter::FlushBytes, bytes),
            (Counter::FlushNs, ns),
        ]);
        self.flush_ns.record(ns);
    }

    /// Counts a compaction into `level`.
    pub fn add_compaction(&self, level: usize, read_bytes: u64, write_bytes: u64, ns: u64) {
        self.add_level(LevelCounter::Compactions, level, 1);
        self.add_level(LevelCounter::CompactionReadBytes, level, read_bytes);
        self.add_level(LevelCounter::CompactionWriteBytes, level, write_bytes);
        self.add_level(LevelCounter::CompactionNs, level, ns);
        self.compaction_ns.record(ns);
    }

    /// Counts what a compaction took from `level` to a deeper one, and how much of it is there now.
    pub fn add_drain(&self, level: usize, drained_bytes: u64, survived_bytes: u64, ns: u64) {
        self.add_level(LevelCounter::DrainedBytes, level, drained_bytes);
        self.add_level(LevelCounter::SurvivedBytes, level, survived_bytes);
        self.add_level(LevelCounter::DrainNs, level, ns);
    }

    /// A table was opened.
    pub fn table_opened(&self) {
        self.add(Counter::OpenTables, 1);
    }

    /// A table was closed. Another thread's shard may then hold a negative part; the sum does not.
    pub fn table_closed(&self) {
        self.add(Counter::OpenTables, 1u64.wrapping_neg());
    }

    /// The value of one counter now.
    pub fn total(&self, counter: Counter) -> u64 {
        let cells = self.shards.iter().map(|shard| shard.0[counter as usize].load(Relaxed));
        cells.fold(0, u64::wrapping_add)
    }

    /// The values now.
    pub fn snapshot(&self) -> MetricsSnapshot {
        let sum = |cell: usize| {
            self.shards.iter().fold(0u64, |sum, shard| sum.wrapping_add(shard.0[cell].load(Relaxed)))
        };
        let mut counters = Counters::from_cells(|counter| sum(counter as usize));
        // A close may be seen before its open, which lies in another shard.
        counters.open_tables = (counters.open_tables as i64).max(0) as u64;
        MetricsSnapshot {
            counters,
            levels: std::array::from_fn(|level| {
                LevelCounters::from_cells(|counter| sum(COUNTERS + level * LEVEL_COUNTERS + counter as usize))
            }),
            stalls: StallCause::ALL.map(|cause| StallCounters {
                count: sum(STALL_AT + 2 * cause as usize),
                ns: sum(STALL_AT + 2 * cause as usize + 1),
            }),
            group_ops: self.group_ops.snapshot(),
            log_sync_ns: self.log_sync_ns.snapshot(),
            flush_ns: self.flush_ns.snapshot(),
            compaction_ns: self.compaction_ns.snapshot(),
            stall_ns: self.stall_ns.snapshot(),
        }
    }
}

/// The values of all metrics at one time. Times are nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricsSnapshot {
    /// Of the whole database.
    pub counters: Counters,
    /// Of each level; level 0 first.
    pub levels: [LevelCounters; LEVELS],
    /// By cause, in the order of [`StallCause::ALL`].
    pub stalls: [StallCounters; 3],
    /// Operations of a commit group.
    pub group_ops: HistogramSnapshot,
    /// Nanoseconds of a log sync.
    pub log_sync_ns: HistogramSnapshot,
    /// Nanoseconds of a flush.
    pub flush_ns: HistogramSnapshot,
    /// Nanoseconds of a compaction.
    pub compaction_ns: HistogramSnapshot,
    /// Nanoseconds that one write waited in a stall.
    pub stall_ns: HistogramSnapshot,
}

impl MetricsSnapshot {
    /// Stalls of one cause.
    pub fn stall(&self, cause: StallCause) -> StallCounters {
        self.stalls[cause as usize]
    }

    /// Bytes written to tables for each byte that writers brought; `None` before the first write.
    pub fn write_amplification(&self) -> Option<f64> {
        let compacted: u64 = self.levels.iter().map(|level| level.compaction_write_bytes).sum();
        let brought = self.counters.write_bytes;
        (brought > 0).then(|| (self.counters.flush_bytes + compacted) as f64 / brought as f64)
    }
}
