//! All metrics of a database at one time, as a struct.

use super::{Counters, HistogramSnapshot, LEVELS, LevelCounters, ShardCounters, StallCause, StallCounters};
use crate::metrics::values::values;
use crate::write::stall::StallReport;

values! {
    /// Where the database stands now.
    struct Gauges;

    /// Keyspaces.
    keyspaces,
    /// The sequence number up to which readers see.
    visible_seqno,
    /// 1 while a background error keeps writes out, else 0.
    background_error,
    /// Snapshots held.
    snapshots,
    /// Open iterators.
    iterators,
    /// Nanoseconds for which the oldest iterator has been open.
    oldest_iterator_ns,
    /// Views that only iterators keep.
    pinned_views,
    /// Tables that only iterators keep.
    pinned_tables,
    /// Bytes of the tables that only iterators keep.
    pinned_table_bytes,
    /// Memtables that only iterators keep.
    pinned_memtables,
    /// Bytes of the memtables that only iterators keep.
    pinned_memtable_bytes,
    /// Bytes of all memtables that writers are held to account for.
    memtable_bytes,
    /// Bytes of the log segments that there are, spare ones left out.
    log_size_bytes,
    /// Log segments, spare ones left out.
    log_segments,
    /// Bytes held by the block cache, which several databases may share, bookkeeping included.
    block_cache_bytes,
    /// The most that the block cache may hold, in bytes.
    block_cache_capacity_bytes,
    /// Bytes held by the table cache: indexes, filters, pinned blocks.
    table_cache_bytes,
    /// Tables that nothing names and that wait to be unlinked.
    obsolete_tables,
    /// Flushes running.
    running_flushes,
    /// Compactions running.
    running_compactions,
    /// Background workers.
    workers,
    /// Compactions with parts that free workers may take.
    offered_compactions,
    /// Spans of sequences, written without log, whose clues stand for nothing, since no crash has left their values.
    void_clue_spans,
    /// Rollbacks whose outputs are being written.
    rollbacks_running,
    /// Rollbacks that are live and not settled.
    rollbacks_live,
    /// Compactions that rid fallbacks of redirected entries, and are being written.
    collections_running,
    /// Such compactions that are live and not settled.
    collections_live,
}

values! {
    /// Where the hand-off to the disk stands now.
    struct HandoffGauges;

    /// Flushes and compactions that are live and not yet in the durable manifest.
    unsettled_installs,
    /// Tables whose sync has not ended.
    undurable_tables,
    /// Bytes of tables kept only because what replaced them is not durable, reservations of running compactions
    /// included.
    retained_bytes,
    /// The most bytes that were ever retained.
    retained_bytes_peak,
    /// Bytes of memtables kept because their tables are not durable.
    retained_memtable_bytes,
    /// Bytes that the limiter may have granted at one time.
    window_bytes,
    /// The most bytes that the limiter had granted at one time.
    in_flight_bytes_peak,
    /// What the bytes granted never pass, flushes included, which do not wait.
    in_flight_bytes_max,
    /// Bytes granted to flushes and not returned.
    in_flight_flush_bytes,
    /// Bytes granted to compactions out of level 0.
    in_flight_l0_bytes,
    /// Bytes granted to deeper compactions.
    in_flight_deep_bytes,
    /// Bytes granted to compactions that a user asked for.
    in_flight_user_bytes,
}

values! {
    /// What the hand-off, its syncs and its limiter have done.
    struct HandoffCounters;

    /// Requests to make tables durable.
    sync_requests,
    /// Requests to make tables durable that have ended.
    sync_requests_ended,
    /// Requests to make tables durable that ended in an error.
    sync_requests_failed,
    /// Syncs of tables submitted.
    table_syncs,
    /// Syncs of directories submitted.
    directory_syncs,
    /// Grants of the limiter.
    granted,
    /// Grants of the limiter that had to wait.
    waited,
    /// Grants that a lower class got because it had been passed over often enough.
    turns_of_lower_priority,
    /// Flushes that the window had no room for, and that went all the same.
    flushes_over_window,
    /// Waits for the user's cap on bytes a second.
    waits_for_rate_cap,
    /// Completions in good time that made the window grow.
    window_increases,
    /// Completions in good time that found the window at its ceiling.
    window_at_ceiling,
    /// Completions in good time that said nothing, since the window was not in use.
    window_unused,
    /// Completions neither good nor late.
    window_held,
    /// Late completions that cut the window.
    window_decreases,
    /// Late completions that found the window at its floor.
    window_at_floor,
    /// Late completions that were granted before the last cut.
    latencies_before_last_cut,
}

values! {
    /// What the database's service for asynchronous I/O has done.
    struct IoCounters;

    /// Operations accepted.
    operations,
    /// Operations that ended, failed ones included.
    operations_ended,
    /// Operations that ended in an error.
    operations_failed,
    /// Transfers that the kernel cut short and that were continued.
    short_transfers,
    /// Attempts that did not run and were repeated.
    retries,
    /// Operations that the ring left to plain calls on a helping thread.
    helped,
    /// Reads of a batch that the page cache answered without waiting.
    cached_reads,
}

values! {
    /// Where a level stands now.
    struct LevelGauges;

    /// Tables.
    tables,
    /// Bytes of the tables.
    bytes,
    /// Sorted runs: as many tables as a look-up of one key may have to ask here, in each tree added up.
    runs,
}

values! {
    /// Where one tree stands now: one keyspace in one shard.
    struct TreeGauges;

    /// Bytes of the active memtable.
    active_memtable_bytes,
    /// Memtables that wait for their flush.
    sealed_memtables,
    /// Bytes of the memtables that wait for their flush.
    sealed_memtable_bytes,
    /// Entries of all memtables.
    memtable_entries,
    /// Bytes of all tables.
    table_bytes,
    /// Entries of all tables.
    table_entries,
    /// Bytes that compaction owes.
    pending_compaction_bytes,
    /// Compactions running.
    running_compactions,
    /// Steps that are live and not settled: the line of the hand-off.
    unsettled_installs,
    /// Sorted runs of level 0 that count for stalls: those with clues alone do not.
    l0_depth,
    /// Whether writes of its keys wait: 0 no, 1 they are slowed down, 2 they are stopped.
    write_state,
    /// How far along the way from free to stopped writes are, in thousandths.
    pressure_permille,
    /// Clue entries in memtables.
    clues_memtable,
    /// Clue entries in level 0.
    clues_level0,
    /// Clue entries in deeper levels.
    clues_deeper,
    /// Bytes of all clue entries' keys, about.
    clue_bytes,
    /// Bytes of keys and values that its tables keep for other shards.
    redirected_table_bytes,
}

impl LevelGauges {
    pub(super) fn plus(self, other: &LevelGauges) -> LevelGauges {
        LevelGauges {
            tables: self.tables + other.tables,
            bytes: self.bytes + other.bytes,
            runs: self.runs + other.runs,
        }
    }
}

/// What one shard has done, in all keyspaces together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardMetrics {
    /// Counts.
    pub counters: ShardCounters,
    /// Waits of single writes at its doors, by cause, in the order of [`StallCause::ALL`].
    pub stalls: [StallCounters; 3],
}

/// A keyspace and the stalls of its writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyspaceMetrics {
    /// Its name.
    pub name: String,
    /// Stalls: intervals in which some write waited, begin, end and length.
    pub stalls: StallReport,
}

/// One keyspace in one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeMetrics {
    /// The keyspace's name.
    pub keyspace: String,
    /// The shard.
    pub shard: u16,
    /// Where it stands.
    pub gauges: TreeGauges,
    /// By level; level 0 first.
    pub levels: [LevelGauges; LEVELS],
}

/// The values of all metrics at one time. Times are nanoseconds, sizes bytes, counts since the database was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricsSnapshot {
    /// On the environment's clock.
    pub clock_ns: u64,
    /// Of the whole database.
    pub counters: Counters,
    /// What each level has seen; level 0 first.
    pub levels: [LevelCounters; LEVELS],
    /// What each level holds, of all trees together.
    pub level_gauges: [LevelGauges; LEVELS],
    /// Waits of single writes, by cause, in the order of [`StallCause::ALL`].
    pub stalls: [StallCounters; 3],
    /// Where the database stands.
    pub gauges: Gauges,
    /// Where the hand-off stands.
    pub handoff_gauges: HandoffGauges,
    /// What it has done.
    pub handoff: HandoffCounters,
    /// What asynchronous I/O has done.
    pub io: IoCounters,
    /// By shard, of all keyspaces together.
    pub shards: Vec<ShardMetrics>,
    /// By keyspace.
    pub keyspaces: Vec<KeyspaceMetrics>,
    /// By keyspace and shard.
    pub trees: Vec<TreeMetrics>,
    /// Operations of a commit group.
    pub group_ops: HistogramSnapshot,
    /// Nanoseconds of a point look-up; one in [`SAMPLE_EVERY`](super::SAMPLE_EVERY).
    pub get_ns: HistogramSnapshot,
    /// Nanoseconds of a write, stalls included; one in [`SAMPLE_EVERY`](super::SAMPLE_EVERY).
    pub write_ns: HistogramSnapshot,
    /// Nanoseconds of a log sync.
    pub log_sync_ns: HistogramSnapshot,
    /// Nanoseconds of the sync of a table.
    pub table_sync_ns: HistogramSnapshot,
    /// Nanoseconds of the sync of a manifest.
    pub manifest_sync_ns: HistogramSnapshot,
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
        ratio(self.counters.flush_bytes + compacted, self.counters.write_bytes)
    }

    /// A level's part of it: bytes of tables that flushes and compactions wrote there.
    pub fn level_write_amplification(&self, level: usize) -> Option<f64> {
        let flushed = if level == 0 { self.counters.flush_bytes } else { 0 };
        ratio(flushed + self.levels[level].compaction_write_bytes, self.counters.write_bytes)
    }

    /// Tables that a point look-up asked, on average, those included that their filter spared a look; `None`
    /// before the first look-up.
    pub fn read_amplification(&self) -> Option<f64> {
        let asked = self.levels.iter().map(LevelCounters::get_tables).sum();
        ratio(asked, self.counters.gets)
    }

    /// A level's part of it.
    pub fn level_read_amplification(&self, level: usize) -> Option<f64> {
        ratio(self.levels[level].get_tables(), self.counters.gets)
    }
}

fn ratio(part: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| part as f64 / of as f64)
}
