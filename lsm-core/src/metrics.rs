//! What the engine counts about itself: cheap enough to be always on.
//!
//! ```text
//! Metrics ──collect()──► MetricsSnapshot ──► to_text(), to_json(), to_prometheus()
//!   shards: SHARDS x [every counter]         a thread adds in the shard that its stack picks
//!   of_shards                                the shards of keyspaces, for what seldom happens
//!   histograms                               of what happens once a group or job; reads and writes are sampled
//! trees, caches, log, hand-off, limiter ─┘   asked when a snapshot is made: gauges cost nothing in between
//! ```
//! INVARIANT: a counter only grows (but for [`Counter::OpenTables`], which is a level), and a
//! snapshot's value is the sum over the shards; upheld by [`Metrics::add`], checked by
//! `threads_lose_nothing`. A snapshot taken while others count is no cut through time: each
//! counter is right by itself, two may differ by what happened in between.
//!
//! Two kinds of shards meet here: those above, of counters, which keep threads apart, and those of a keyspace. The
//! second kind is told apart by its place, summed over keyspaces, so that dropping one takes no count away.
//!
//! One in [`SAMPLE_EVERY`] look-ups and writes is timed: two readings of the clock would cost each more than all that is
//! counted of it. Which one is decided by the count of calls, so that it costs nothing to decide (look-ups of several
//! keys move that count on, too, and are not timed). Stalls, syncs and jobs are timed each.
//!
//! `--cfg dialsm_no_metrics` leaves all recording out, to measure what it costs (docs/BENCHMARKS.md). Some decisions
//! go by counters (`compaction/patience.rs`), so it is no way to run a database.
//!
//! Absent on purpose: a clock. Callers measure with the environment's and pass nanoseconds.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

mod collect;
mod families;
mod prometheus;
mod report;
mod snapshot;
#[cfg(test)]
mod tests;
mod values;

pub(crate) use collect::{collect, in_flight_bytes_max};
pub use dialsm_io::histogram::{Histogram, HistogramSnapshot};
pub use families::{MetricInfo, MetricKind, describe};
pub use snapshot::{
    Gauges, HandoffCounters, HandoffGauges, IoCounters, KeyspaceMetrics, LevelGauges, MetricsSnapshot,
    ShardMetrics, TreeGauges, TreeMetrics,
};

use crate::table::ReadStats;
use values::values;

/// Levels, all of which are counted apart.
pub const LEVELS: usize = 7;

/// Copies of the counters; a power of two. 16 copies keep the threads of a small machine apart
/// nearly always and cost about 10 KiB.
pub(crate) const SHARDS: usize = 16;

/// One in so many look-ups and writes is timed.
pub const SAMPLE_EVERY: u64 = 256;

/// See the module header.
const ENABLED: bool = !cfg!(dialsm_no_metrics);

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

        values! {
            $(#[$struct_attr])* struct $values;
            $( $(#[doc = $doc])+ $field, )+
        }

        impl $values {
            fn from_cells(value: impl Fn($counter) -> u64) -> $values {
                $values { $( $field: value($counter::$variant), )+ }
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
    /// Bytes of the keys and values written, with their framing in a batch.
    WriteBytes = write_bytes,
    /// Commit groups.
    WriteGroups = write_groups,
    /// Calls that wrote a batch or a single operation, those that failed included.
    WriteCalls = write_calls,
    /// Bytes written to the commit log: records, headers of segments, and marks that the next record overwrites.
    LogBytes = log_bytes,
    /// Log segments begun.
    LogSegments = log_segments_begun,
    /// Syncs of the commit log, for writers and ahead of a change of the manifest.
    LogSyncs = log_syncs,
    /// Nanoseconds spent in syncs of the commit log.
    LogSyncNs = log_sync_ns,
    /// Bytes written to manifests, what is written over included.
    ManifestBytes = manifest_bytes,
    /// Manifests begun; each makes CURRENT anew, too.
    Manifests = manifests_begun,
    /// Bytes of table files written: by flushes, by compactions, made again after a failed sync, and given up.
    TableBytes = table_bytes,
    /// Memtables flushed.
    Flushes = flushes,
    /// Bytes of the tables that flushes made.
    FlushBytes = flush_bytes,
    /// Bytes of the keys and values in the memtables flushed.
    FlushInputBytes = flush_input_bytes,
    /// Nanoseconds spent flushing.
    FlushNs = flush_ns,
    /// Nanoseconds that flushes waited for the disk to sync their tables; none with deferred sync.
    FlushSyncNs = flush_sync_ns,
    /// Nanoseconds that compactions waited for the disk to sync their tables; none with deferred sync.
    CompactionSyncNs = compaction_sync_ns,
    /// Nanoseconds that flushes and compactions waited for the limiter before they began a table.
    LimiterWaitNs = limiter_wait_ns,
    /// Compactions that were not begun because too much waited to become durable, look by look.
    RetentionRefusals = retention_refusals,
    /// Tables whose sync failed after they were live.
    TableSyncFailures = table_sync_failures,
    /// Tables made again, after a failed sync, from what they were made of.
    TablesRedone = tables_redone,
    /// Tables moved to the next level without being rewritten.
    TrivialMoves = trivial_moves,
    /// Point look-ups.
    Gets = gets,
    /// Point look-ups answered by a memtable.
    GetHitsMemtable = get_hits_memtable,
    /// Point look-ups that no source had anything for.
    GetMisses = get_misses,
    /// Filters asked.
    FilterChecked = filter_checked,
    /// Filters that said no and spared a look.
    FilterUseful = filter_useful,
    /// Filters that said maybe to a look-up, of whose key the table then had nothing that the reader sees.
    FilterFalsePositives = filter_false_positives,
    /// Blocks found in the block cache.
    BlockCacheHits = block_cache_hits,
    /// Blocks that had to be read.
    BlockCacheMisses = block_cache_misses,
    /// Blocks that were read together with others, by look-ups of several keys and by seeks.
    BatchedReads = batched_reads,
    /// Bytes of blocks read from files by gets and iterators.
    BlockReadBytes = block_read_bytes,
    /// Clue entries that look-ups followed to another shard.
    ClueHops = clue_hops,
    /// Tables opened, because the table cache did not hold them.
    TableOpens = table_opens,
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
    /// Bytes of the keys and values that went to another shard than their own.
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
    /// Tables of this level that point look-ups asked and that did not answer them, those included that their filter
    /// spared a look.
    GetPasses = get_passes,
    /// Compactions into this level.
    Compactions = compactions,
    /// Bytes of the input tables of compactions into this level.
    CompactionReadBytes = compaction_read_bytes,
    /// Bytes of the tables that compactions wrote to this level.
    CompactionWriteBytes = compaction_write_bytes,
    /// Nanoseconds spent in compactions into this level.
    CompactionNs = compaction_ns,
    /// Bytes of tables that compactions took from this level to a deeper one, or moved there as they were.
    DrainedBytes = drained_bytes,
    /// Bytes by which a deeper level grew through them: what was left once older versions were gone.
    SurvivedBytes = survived_bytes,
    /// Nanoseconds spent in compactions out of this level.
    DrainNs = drain_ns,
}

counters! {
    /// A count kept for each shard, of all keyspaces together.
    enum ShardCounter;
    /// The counts of one shard, of all keyspaces together.
    struct ShardCounters;

    /// Point look-ups of keys that belong to this shard.
    Gets = gets,
    /// Values and operands of this shard's keys that went to another one.
    Redirects = redirects,
    /// Bytes of the keys and values that went from this shard to another one.
    RedirectedBytes = redirected_bytes,
    /// Values and operands of other shards' keys that this one took.
    RedirectsTaken = redirects_taken,
    /// Bytes of the keys and values that this shard took for others.
    RedirectedBytesTaken = redirected_bytes_taken,
    /// Clue entries of this shard that a newer entry, or a delete, made obsolete, and that were dropped.
    CluesDropped = clues_dropped,
    /// Clue entries of this shard that a rollback replaced by what they stood for.
    CluesRolledBack = clues_rolled_back,
    /// Redirected entries that this shard had taken and dropped, since no clue needed them any more.
    RedirectedDropped = redirected_dropped,
    /// Rollbacks of this shard that have ended.
    Rollbacks = rollbacks,
    /// Rollbacks of this shard given up because of a new burst.
    RollbackAborts = rollback_aborts,
    /// Memtables of this shard flushed.
    Flushes = flushes,
    /// Bytes of the keys and values in the memtables flushed.
    FlushInputBytes = flush_input_bytes,
    /// Bytes of the tables that flushes made.
    FlushBytes = flush_bytes,
    /// Nanoseconds spent flushing.
    FlushNs = flush_ns,
    /// Compactions of this shard.
    Compactions = compactions,
    /// Bytes of the input tables of compactions.
    CompactionReadBytes = compaction_read_bytes,
    /// Bytes of the output tables of compactions.
    CompactionWriteBytes = compaction_write_bytes,
    /// Nanoseconds spent in compactions.
    CompactionNs = compaction_ns,
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
const SHARD_COUNTERS: usize = ShardCounter::ALL.len();
const CAUSES: usize = StallCause::ALL.len();

/// All counters once, on cache lines of their own (two, as processors fetch them in pairs).
#[repr(align(128))]
struct Shard {
    cells: [AtomicU64; COUNTERS],
    levels: [[AtomicU64; LEVEL_COUNTERS]; LEVELS],
}

impl Default for Shard {
    fn default() -> Shard {
        let zero = |_| AtomicU64::new(0);
        Shard { cells: std::array::from_fn(zero), levels: std::array::from_fn(|_| std::array::from_fn(zero)) }
    }
}

impl LevelCounters {
    /// Tables of this level that point look-ups asked.
    pub fn get_tables(&self) -> u64 {
        self.get_hits + self.get_passes
    }
}

/// The counts of one shard of the keyspaces.
#[repr(align(128))]
struct OfShard {
    cells: [AtomicU64; SHARD_COUNTERS],
    /// By cause: writes that waited, and their nanoseconds.
    stalls: [[AtomicU64; 2]; CAUSES],
}

/// Look-ups by shard of the keyspaces, once for each shard of counters: so many are on a cache line, or two, of
/// their own.
#[repr(align(128))]
struct GetsOfShards([AtomicU64; 16]);

/// The counters of one database.
pub struct Metrics {
    shards: Box<[Shard; SHARDS]>,
    of_shards: Box<[OfShard]>,
    /// As many lines for each shard of counters as it takes for all shards of the keyspaces.
    gets_of_shards: Box<[GetsOfShards]>,
    /// Operations of a commit group.
    pub group_ops: Histogram,
    /// Nanoseconds of a point look-up; one in [`SAMPLE_EVERY`].
    pub get_ns: Histogram,
    /// Nanoseconds of a write, stalls included; one in [`SAMPLE_EVERY`].
    pub write_ns: Histogram,
    /// Nanoseconds of a log sync.
    pub log_sync_ns: Histogram,
    /// Nanoseconds of the sync of a table by whoever wrote it.
    pub table_sync_ns: Histogram,
    /// Nanoseconds of the sync of a manifest.
    pub manifest_sync_ns: Histogram,
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
/// shard it is decides nothing but the cost of adding, and which call is sampled.
#[inline]
pub(crate) fn shard_index() -> usize {
    thread_local!(static MARK: u8 = const { 0 });
    let address = MARK.with(|mark| std::ptr::from_ref(mark).addr()) as u64;
    // Threads' stacks lie at distances with many low zero bits: multiplying moves the bits that
    // differ to the top (the factor is 2^64 divided by the golden ratio).
    (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SHARDS.trailing_zeros())) as usize
}

/// A thread's share of the counters. Finding it costs more than adding to it.
#[derive(Clone, Copy)]
pub struct Mine<'a>(&'a Shard);

impl Mine<'_> {
    /// As [`Metrics::add`].
    #[inline(always)]
    pub fn add(self, counter: Counter, n: u64) {
        if ENABLED {
            self.0.cells[counter as usize].fetch_add(n, Relaxed);
        }
    }

    /// As [`Metrics::add_level`].
    #[inline(always)]
    pub fn add_level(self, counter: LevelCounter, level: usize, n: u64) {
        if ENABLED {
            self.0.levels[level][counter as usize].fetch_add(n, Relaxed);
        }
    }

    /// As [`Metrics::count_call`].
    #[inline(always)]
    pub fn count_call(self, counter: Counter) -> bool {
        ENABLED && self.0.cells[counter as usize].fetch_add(1, Relaxed).is_multiple_of(SAMPLE_EVERY)
    }

    /// Counts what reads have cost. What is mostly nothing is looked at only where it can be something.
    #[inline]
    pub fn add_reads(self, reads: &ReadStats) {
        if !ENABLED {
            return;
        }
        if reads.block_cache_hits > 0 {
            self.add(Counter::BlockCacheHits, reads.block_cache_hits);
        }
        if reads.filter_checked > 0 {
            self.add(Counter::FilterChecked, reads.filter_checked);
            if reads.filter_useful > 0 {
                self.add(Counter::FilterUseful, reads.filter_useful);
            }
        }
        if (reads.blocks_read | reads.filter_false_positives) > 0 {
            self.add_rare_reads(reads);
        }
    }

    #[cold]
    fn add_rare_reads(self, reads: &ReadStats) {
        self.add(Counter::BlockCacheMisses, reads.blocks_read);
        self.add(Counter::BatchedReads, reads.blocks_batched);
        self.add(Counter::BlockReadBytes, reads.bytes_read);
        self.add(Counter::FilterFalsePositives, reads.filter_false_positives);
    }
}

impl Metrics {
    /// All counters at zero, of a database with one shard.
    pub fn new() -> Metrics {
        Metrics::of_shards(1)
    }

    /// The same for keyspaces of so many shards.
    pub fn of_shards(shards: u16) -> Metrics {
        let zero = || AtomicU64::new(0);
        let count = usize::from(shards.max(1));
        let of_shard = |_| OfShard {
            cells: std::array::from_fn(|_| zero()),
            stalls: std::array::from_fn(|_| [zero(), zero()]),
        };
        let lines = if count > 1 { SHARDS * count.div_ceil(16) } else { 0 };
        let shards: Box<[Shard]> = (0..SHARDS).map(|_| Shard::default()).collect();
        Metrics {
            shards: shards.try_into().unwrap_or_else(|_| unreachable!("so many were just made")),
            of_shards: (0..count).map(of_shard).collect(),
            gets_of_shards: (0..lines).map(|_| GetsOfShards(std::array::from_fn(|_| zero()))).collect(),
            group_ops: Histogram::new(),
            get_ns: Histogram::new(),
            write_ns: Histogram::new(),
            log_sync_ns: Histogram::new(),
            table_sync_ns: Histogram::new(),
            manifest_sync_ns: Histogram::new(),
            flush_ns: Histogram::new(),
            compaction_ns: Histogram::new(),
            stall_ns: Histogram::new(),
        }
    }

    /// This thread's share of the counters, to add to several of them.
    #[inline]
    pub fn mine(&self) -> Mine<'_> {
        Mine(&self.shards[if ENABLED { shard_index() } else { 0 }])
    }

    /// Adds `n` to a counter.
    #[inline]
    pub fn add(&self, counter: Counter, n: u64) {
        self.mine().add(counter, n);
    }

    /// Adds 1 to a counter of calls; true for the one in [`SAMPLE_EVERY`] that is to be timed.
    #[inline]
    pub fn count_call(&self, counter: Counter) -> bool {
        self.mine().count_call(counter)
    }

    /// Adds several counts at once, finding the thread's shard only once. Zeros cost nothing.
    #[inline]
    pub fn add_all(&self, counts: &[(Counter, u64)]) {
        let mine = self.mine();
        for (counter, n) in counts {
            if *n != 0 {
                mine.add(*counter, *n);
            }
        }
    }

    /// Adds `n` to a counter of `level`, which is below [`LEVELS`].
    #[inline]
    pub fn add_level(&self, counter: LevelCounter, level: usize, n: u64) {
        self.mine().add_level(counter, level, n);
    }

    /// Adds `n` to a counter of a shard of the keyspaces; not for [`ShardCounter::Gets`].
    pub fn add_to_shard(&self, shard: u16, counter: ShardCounter, n: u64) {
        if ENABLED {
            self.of_shards[usize::from(shard)].cells[counter as usize].fetch_add(n, Relaxed);
        }
    }

    /// Counts a look-up of a key of that shard, one of several: the look-ups of a single one are all there are.
    #[inline]
    pub fn add_get_of_shard(&self, shard: u16) {
        if ENABLED {
            let (lines, shard) = (self.gets_of_shards.len() / SHARDS, usize::from(shard));
            let line = &self.gets_of_shards[shard_index() * lines + shard / 16];
            line.0[shard % 16].fetch_add(1, Relaxed);
        }
    }

    /// Counts a write that waited `ns` nanoseconds for `cause` at the door of that shard.
    pub fn add_stall(&self, shard: u16, cause: StallCause, ns: u64) {
        if ENABLED {
            let [count, sum] = &self.of_shards[usize::from(shard)].stalls[cause as usize];
            count.fetch_add(1, Relaxed);
            sum.fetch_add(ns, Relaxed);
            self.stall_ns.record(ns);
        }
    }

    /// Counts a commit group of `ops` operations with `bytes` bytes of keys and values.
    #[inline]
    pub fn add_group(&self, ops: u64, bytes: u64) {
        if ENABLED {
            let mine = self.mine();
            mine.add(Counter::WriteGroups, 1);
            mine.add(Counter::Writes, ops);
            mine.add(Counter::WriteBytes, bytes);
            self.group_ops.record(ops);
        }
    }

    /// Counts a sync of the commit log that took `ns` nanoseconds.
    pub fn add_log_sync(&self, ns: u64) {
        self.add_all(&[(Counter::LogSyncs, 1), (Counter::LogSyncNs, ns)]);
        self.log_sync_ns.record(ns);
    }

    /// Counts an operation that went from its shard to another, with the bytes of its key and value.
    pub fn add_redirect(&self, from: u16, to: u16, bytes: u64) {
        self.add_all(&[(Counter::Redirects, 1), (Counter::RedirectedBytes, bytes)]);
        self.add_to_shard(from, ShardCounter::Redirects, 1);
        self.add_to_shard(from, ShardCounter::RedirectedBytes, bytes);
        self.add_to_shard(to, ShardCounter::RedirectsTaken, 1);
        self.add_to_shard(to, ShardCounter::RedirectedBytesTaken, bytes);
    }

    /// Counts a flush in that shard that made `bytes` bytes of tables of `input_bytes` of keys and values in `ns`
    /// nanoseconds.
    pub fn add_flush(&self, shard: u16, input_bytes: u64, bytes: u64, ns: u64) {
        self.add_all(&[
            (Counter::Flushes, 1),
            (Counter::FlushInputBytes, input_bytes),
            (Counter::FlushBytes, bytes),
            (Counter::FlushNs, ns),
        ]);
        self.add_to_shard(shard, ShardCounter::Flushes, 1);
        self.add_to_shard(shard, ShardCounter::FlushInputBytes, input_bytes);
        self.add_to_shard(shard, ShardCounter::FlushBytes, bytes);
        self.add_to_shard(shard, ShardCounter::FlushNs, ns);
        self.flush_ns.record(ns);
    }

    /// Counts a compaction in that shard into `level`.
    pub fn add_compaction(&self, shard: u16, level: usize, read_bytes: u64, write_bytes: u64, ns: u64) {
        self.add_level(LevelCounter::Compactions, level, 1);
        self.add_level(LevelCounter::CompactionReadBytes, level, read_bytes);
        self.add_level(LevelCounter::CompactionWriteBytes, level, write_bytes);
        self.add_level(LevelCounter::CompactionNs, level, ns);
        self.add_to_shard(shard, ShardCounter::Compactions, 1);
        self.add_to_shard(shard, ShardCounter::CompactionReadBytes, read_bytes);
        self.add_to_shard(shard, ShardCounter::CompactionWriteBytes, write_bytes);
        self.add_to_shard(shard, ShardCounter::CompactionNs, ns);
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

    fn sum(&self, cell: impl Fn(&Shard) -> &AtomicU64) -> u64 {
        self.shards.iter().fold(0, |sum, shard| sum.wrapping_add(cell(shard).load(Relaxed)))
    }

    /// The value of one counter now.
    pub fn total(&self, counter: Counter) -> u64 {
        self.sum(|shard| &shard.cells[counter as usize])
    }

    /// The look-ups of keys of a shard.
    fn gets_of_shard(&self, shard: usize) -> u64 {
        let lines = self.gets_of_shards.len() / SHARDS;
        if lines == 0 {
            return self.total(Counter::Gets);
        }
        let of_threads = self.gets_of_shards.chunks(lines);
        of_threads.map(|lines| lines[shard / 16].0[shard % 16].load(Relaxed)).sum()
    }

    fn shard_snapshot(&self, shard: usize) -> ShardMetrics {
        let of_shard = &self.of_shards[shard];
        let counters = ShardCounters::from_cells(|counter| match counter {
            ShardCounter::Gets => self.gets_of_shard(shard),
            _ => of_shard.cells[counter as usize].load(Relaxed),
        });
        let stalls = of_shard
            .stalls
            .each_ref()
            .map(|[count, ns]| StallCounters { count: count.load(Relaxed), ns: ns.load(Relaxed) });
        ShardMetrics { counters, stalls }
    }

    /// What was recorded, now. Gauges are not among it.
    pub fn snapshot(&self) -> MetricsSnapshot {
        let mut counters = Counters::from_cells(|counter| self.total(counter));
        // A close may be seen before its open, which lies in another shard.
        counters.open_tables = (counters.open_tables as i64).max(0) as u64;
        let shards: Vec<ShardMetrics> =
            (0..self.of_shards.len()).map(|shard| self.shard_snapshot(shard)).collect();
        MetricsSnapshot {
            counters,
            levels: std::array::from_fn(|level| {
                LevelCounters::from_cells(|counter| self.sum(|shard| &shard.levels[level][counter as usize]))
            }),
            stalls: StallCause::ALL.map(|cause| {
                let of_cause = shards.iter().map(|shard| shard.stalls[cause as usize]);
                of_cause.fold(StallCounters::default(), |sum, stall| StallCounters {
                    count: sum.count + stall.count,
                    ns: sum.ns + stall.ns,
                })
            }),
            shards,
            group_ops: self.group_ops.snapshot(),
            get_ns: self.get_ns.snapshot(),
            write_ns: self.write_ns.snapshot(),
            log_sync_ns: self.log_sync_ns.snapshot(),
            table_sync_ns: self.table_sync_ns.snapshot(),
            manifest_sync_ns: self.manifest_sync_ns.snapshot(),
            flush_ns: self.flush_ns.snapshot(),
            compaction_ns: self.compaction_ns.snapshot(),
            stall_ns: self.stall_ns.snapshot(),
            ..MetricsSnapshot::default()
        }
    }
}
