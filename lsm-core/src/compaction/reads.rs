//! Merges that readers pay for.
//!
//! Each sorted run more costs each look-up and each positioning of an iterator a probe. What readers have spent
//! on one run more is added up, and once the probes that a merge would have spared them cost as much as the
//! merge, it is due: so never more than twice of what would have been best is spent, whatever readers do next
//! (the ski-rental rule).
//!
//! ```text
//!   spent on a run · runs that go  >=  FIXED_NS + bytes · (MERGE_NS + DEVICE_NS)
//! ```
//! Only while writes pause and nothing else is to be done; what is owed is not told by it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::compaction::patience::{FILTERED_PROBE_NS, MERGE_NS, PROBE_NS};
use crate::compaction::picker::{RangePick, pick_range};
use crate::compaction::plan::{Plan, Reason};
use crate::compaction::strategy::Strategy;
use crate::version::{LEVELS, Version};

/// What one more run costs the positioning of an iterator: a block of its own, mostly out of the page cache.
const SEEK_NS: u64 = 2_500;

/// What it wears the device to write a byte, put on a level with merging it.
const DEVICE_NS: f64 = 1.5;

/// What a merge costs however small it is: files to make, to sync and to unlink.
const FIXED_NS: f64 = 20_000_000.0;

/// How much is spent until workers look whether a merge is due.
const LOOK_EVERY_NS: u64 = 1 << 23;

/// What the readers of a keyspace have spent on each run, in nanoseconds, about.
#[derive(Default)]
pub(crate) struct Spent(AtomicU64);

impl Spent {
    /// Iterators were positioned so many times. Whether it is time to look.
    #[inline]
    pub(crate) fn note_seeks(&self, seeks: u64) -> bool {
        self.note(seeks.saturating_mul(SEEK_NS))
    }

    /// So many keys were looked up, in one of `shards` trees each; or one was that stands for so many.
    #[inline]
    pub(crate) fn note_gets(&self, gets: u64, shards: u16, is_filtered: bool) -> bool {
        let each = if is_filtered { FILTERED_PROBE_NS } else { PROBE_NS };
        self.note((gets as f64 * each) as u64 / u64::from(shards))
    }

    fn note(&self, ns: u64) -> bool {
        let before = self.0.fetch_add(ns, Ordering::Relaxed);
        before / LOOK_EVERY_NS != before.wrapping_add(ns) / LOOK_EVERY_NS
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The merge that takes the most runs away for its bytes, if readers have spent enough on each of them.
pub(crate) fn pick_for_reads(version: &Version, strategy: &Strategy, spent_ns: u64) -> Option<Plan> {
    let (mut bytes, mut runs) = (version.level_bytes(0), version.l0_depth());
    // Where nothing is below it, L0 becomes a run of the base level.
    let mut best = (runs > 1).then(|| (None, runs - 1, bytes));
    for level in (1..LEVELS).filter(|&level| !version.level(level).is_empty()) {
        bytes = bytes.saturating_add(version.level_bytes(level));
        runs += 1;
        let is_better = |(target, gone, of): (Option<usize>, usize, u64)| {
            target.is_none() || (runs - 1) as f64 / bytes as f64 > gone as f64 / of as f64
        };
        if runs > 1 && best.is_none_or(is_better) {
            best = Some((Some(level), runs - 1, bytes));
        }
    }
    let (target, gone, bytes) = best.filter(|(_, _, bytes)| *bytes <= strategy.compaction_bytes_max)?;
    if (spent_ns as f64) * (gone as f64) < FIXED_NS + bytes as f64 * (MERGE_NS + DEVICE_NS) {
        return None;
    }
    match pick_range(version, strategy, None, None, target, false) {
        RangePick::Plan(mut plan) => {
            plan.reason = Reason::Reads;
            plan.score = 1.0;
            Some(*plan)
        }
        RangePick::Nothing | RangePick::Busy => None,
    }
}
