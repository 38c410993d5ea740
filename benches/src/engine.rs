//! What the harness asks of an engine.
//!
//! The calls are those a careful user of the engine would make, no more and no fewer for one engine
//! than for another. A value read is shown to a closure in place, so that no engine is charged a
//! copy that its interface does not need.

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How a write is to be made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WriteOpts {
    pub(crate) sync: bool,
    pub(crate) disable_wal: bool,
}

/// One entry of a batch: a put, or without a value a delete.
#[derive(Clone, Copy)]
pub(crate) struct BatchEntry<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value: Option<&'a [u8]>,
}

/// Background work that is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pending {
    /// Whether anything runs or is due.
    pub(crate) busy: bool,
    /// Bytes compactions still have to rewrite, as the engine estimates it.
    pub(crate) bytes: u64,
}

/// One cause of stalls; what the engine does not count is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct StallCause {
    pub(crate) count: Option<u64>,
    pub(crate) seconds: Option<f64>,
}

/// Counters since the engine was opened; what the engine does not count is absent.
#[derive(Clone, Debug, Default)]
pub(crate) struct EngineStats {
    pub(crate) stall_count: Option<u64>,
    pub(crate) stall_seconds: Option<f64>,
    pub(crate) by_cause: BTreeMap<String, StallCause>,
    /// Writes that went to another shard than their own.
    pub(crate) redirected: Option<u64>,
    /// What became of them; absent in an engine without shards.
    pub(crate) routing: Option<Routing>,
    pub(crate) background: Background,
    /// Whatever else it counts, by its own names; kept, not compared.
    pub(crate) counters: BTreeMap<String, f64>,
}

/// What an engine with shards counts of redirected writes and their clues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Routing {
    /// Values and operands that went to another shard than their own, each leaving a clue.
    pub(crate) redirects: u64,
    /// Bytes of their keys and values.
    pub(crate) redirected_bytes: u64,
    /// Reads of single keys that followed a clue.
    pub(crate) clue_hops: u64,
    /// Clues dropped because something newer hides them.
    pub(crate) clues_dropped: u64,
    /// Clues that a rollback replaced by their values.
    pub(crate) clues_rolled_back: u64,
    /// Values dropped in the shards they were redirected to, since no clue needs them.
    pub(crate) redirected_dropped: u64,
    pub(crate) rollbacks: u64,
    /// Rollbacks given up for a burst of writes.
    pub(crate) rollback_aborts: u64,
}

impl Routing {
    /// What was added to an `earlier` account.
    pub(crate) fn since(self, earlier: Routing) -> Routing {
        Routing {
            redirects: self.redirects.saturating_sub(earlier.redirects),
            redirected_bytes: self.redirected_bytes.saturating_sub(earlier.redirected_bytes),
            clue_hops: self.clue_hops.saturating_sub(earlier.clue_hops),
            clues_dropped: self.clues_dropped.saturating_sub(earlier.clues_dropped),
            clues_rolled_back: self.clues_rolled_back.saturating_sub(earlier.clues_rolled_back),
            redirected_dropped: self.redirected_dropped.saturating_sub(earlier.redirected_dropped),
            rollbacks: self.rollbacks.saturating_sub(earlier.rollbacks),
            rollback_aborts: self.rollback_aborts.saturating_sub(earlier.rollback_aborts),
        }
    }
}

/// What flushes and compactions took, in seconds of their threads; what the engine does not count is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Background {
    pub(crate) flush_seconds: Option<f64>,
    /// Of these, waiting for tables to be synced.
    pub(crate) flush_sync_seconds: Option<f64>,
    pub(crate) compaction_seconds: Option<f64>,
    /// Of these, waiting in calls that write tables.
    pub(crate) compaction_write_seconds: Option<f64>,
    /// Of these, waiting for tables to be synced.
    pub(crate) compaction_sync_seconds: Option<f64>,
    /// Of these, waiting for a limiter of background writes.
    pub(crate) limiter_wait_seconds: Option<f64>,
}

impl Background {
    /// What was added to an `earlier` account.
    pub(crate) fn since(self, earlier: Background) -> Background {
        let added = |now: Option<f64>, then: Option<f64>| Some((now? - then.unwrap_or(0.0)).max(0.0));
        Background {
            flush_seconds: added(self.flush_seconds, earlier.flush_seconds),
            flush_sync_seconds: added(self.flush_sync_seconds, earlier.flush_sync_seconds),
            compaction_seconds: added(self.compaction_seconds, earlier.compaction_seconds),
            compaction_write_seconds: added(self.compaction_write_seconds, earlier.compaction_write_seconds),
            compaction_sync_seconds: added(self.compaction_sync_seconds, earlier.compaction_sync_seconds),
            limiter_wait_seconds: added(self.limiter_wait_seconds, earlier.limiter_wait_seconds),
        }
    }

    /// The share of the compactions' time that went into writing and syncing tables.
    pub(crate) fn io_share(&self) -> Option<f64> {
        let io = self.compaction_write_seconds.unwrap_or(0.0) + self.compaction_sync_seconds?;
        self.compaction_seconds.filter(|&whole| whole > 0.0).map(|whole| io / whole)
    }
}

/// How writes fare, where an engine tells no seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Door {
    Open,
    Delayed,
    Stopped,
}

/// What an engine tells of itself while it works, cheaply; what it does not know is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Look {
    /// Seconds so far in which a writer waited, whatever for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stall_seconds: Option<f64>,
    /// The same by cause.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) stall_seconds_by_cause: BTreeMap<String, f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) door: Option<Door>,
    /// By shard; one in an engine without.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) shards: Vec<ShardLook>,
}

/// The state of a shard, or of an engine that has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShardLook {
    /// Of memtables that are not flushed.
    pub(crate) memtable_bytes: u64,
    /// Sorted runs of level 0.
    pub(crate) l0_runs: u64,
    /// Bytes that its compactions have to write.
    pub(crate) pending_bytes: u64,
    /// Writes that belong here are neither slowed down nor sent elsewhere.
    pub(crate) is_open: bool,
}

/// Where writes to a shard stop; absent is a limit that the engine does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShardLimits {
    pub(crate) memtable_bytes: Option<u64>,
    pub(crate) l0_runs: Option<u64>,
    pub(crate) pending_bytes: Option<u64>,
}

/// A position in the key order. After a move, `valid` says whether there is an entry.
pub(crate) trait KvCursor {
    fn seek(&mut self, key: &[u8]) -> Result<()>;
    fn seek_to_first(&mut self) -> Result<()>;
    fn seek_to_last(&mut self) -> Result<()>;
    /// Only while `valid`.
    fn next(&mut self) -> Result<()>;
    /// Only while `valid`.
    fn prev(&mut self) -> Result<()>;
    fn valid(&self) -> bool;
    /// Only while `valid`.
    fn key(&self) -> &[u8];
    /// Only while `valid`.
    fn value(&self) -> &[u8];
}

/// A key-value engine, open on a directory of its own.
pub(crate) trait KvEngine: Send + Sync {
    fn put(&self, key: &[u8], value: &[u8], opts: WriteOpts) -> Result<()>;
    fn delete(&self, key: &[u8], opts: WriteOpts) -> Result<()>;
    /// All entries become visible at once.
    fn write_batch(&self, entries: &[BatchEntry<'_>], opts: WriteOpts) -> Result<()>;
    /// Creates `count` keyspaces beside the default one, named by [`keyspace_name`], each with one entry.
    fn create_keyspaces(&self, _count: u32) -> Result<()> {
        bail!("this engine has no keyspaces")
    }
    /// Deletes all keys from `from` on and before `to`, by one range delete.
    fn delete_range(&self, _from: &[u8], _to: &[u8]) -> Result<()> {
        bail!("this engine has no range deletes")
    }
    /// Shows the value to `sink` if there is one, and says whether there is.
    fn get(&self, key: &[u8], sink: &mut dyn FnMut(&[u8])) -> Result<bool>;
    /// Shows each value that there is to `sink`, and returns how many.
    fn multi_get(&self, keys: &[&[u8]], sink: &mut dyn FnMut(&[u8])) -> Result<u64> {
        let mut found = 0;
        for key in keys {
            found += u64::from(self.get(key, sink)?);
        }
        Ok(found)
    }
    /// Shows up to `count` entries from the first key on that is not before `from`, in order, and returns how
    /// many there were. An engine with a call for bulk scans takes that one.
    fn scan(&self, from: &[u8], count: u64, sink: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut cursor = self.cursor()?;
        cursor.seek(from)?;
        let mut seen = 0;
        while cursor.valid() && seen < count {
            sink(cursor.key(), cursor.value());
            seen += 1;
            if seen < count {
                cursor.next()?;
            }
        }
        Ok(seen)
    }
    /// A cursor over the state of now.
    fn cursor(&self) -> Result<Box<dyn KvCursor + '_>>;
    /// Writes all memtables out to tables.
    fn flush(&self) -> Result<()>;
    fn pending(&self) -> Result<Pending>;
    fn stats(&self) -> Result<EngineStats>;
    /// What it can tell at any time without holding anybody up. What it tells of its shards may be as old as
    /// the call before.
    fn look(&self) -> Look {
        Look::default()
    }
    /// The limits of its shards, of which a look has told so many.
    fn shard_limits(&self, _shards: usize) -> Vec<ShardLimits> {
        Vec::new()
    }
    /// Clues that there are now; nothing in an engine without shards.
    fn clues(&self) -> Option<u64> {
        None
    }
    /// The options in effect, as the engine itself tells them, in one line.
    fn options_text(&self) -> String;
    /// Ends background work and closes the files.
    fn close(self: Box<Self>) -> Result<()>;

    /// Waits until no background work is left.
    ///
    /// # Errors
    /// It is not over after `limit`, or the engine cannot say.
    fn settle(&self, limit: Duration) -> Result<()> {
        let begun = Instant::now();
        let mut quiet = 0;
        while quiet < QUIET_LOOKS {
            quiet = if self.pending()?.busy { 0 } else { quiet + 1 };
            if begun.elapsed() > limit {
                bail!("background work is not over after {} s", limit.as_secs());
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }
}

/// The name of the `index`-th keyspace that a workload makes.
pub(crate) fn keyspace_name(index: u32) -> String {
    format!("keyspace-{index:06}")
}

/// Between two jobs an engine is idle for a moment, so one look is not proof.
const QUIET_LOOKS: u32 = 5;
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// What [`KvEngine::settle`] takes when nothing was left: not background work.
pub(crate) const SETTLE_FLOOR: Duration = Duration::from_millis(10 * QUIET_LOOKS as u64);
