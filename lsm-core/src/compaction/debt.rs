//! How large each level should be, how urgent it is to shrink it, and how much writing is owed.
//!
//! Level sizes are dynamic: the last level holds what it holds, and each level above aims at a
//! fixed fraction of the one below, up to the level whose target is about `level_bytes_base`.
//! That one is the *base level*, into which L0 is merged; the levels between stay empty.
//!
//! ```text
//! 60 GB on L6, ratio 10:   L5 6 GB   L4 600 MB   L3 60 MB < base target 256 MB? no: L4 is > 256 MB,
//!                          so one more level up: L3 at 60 MB, raised to 256 MB. Base level = 3.
//! ```
//! A small database so compacts L0 straight into L6, and space amplification stays near
//! 1 + 1/ratio, because nearly all data lies on the last level. Fixed targets from L1 down were
//! rejected: they leave the last level partly filled, most of the time.

use crate::compaction::strategy::Strategy;
use crate::version::{LEVELS, Version};

/// L0's place in the order once it is due: ahead of deeper levels with the same fill, because
/// reads and stalls depend on it.
const DUE_WEIGHT: f64 = 10.0;

/// Targets computed from one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelTargets {
    /// The level into which L0 is merged.
    pub base: usize,
    /// Target size of each level, in bytes; above the base level and on L0 unbounded.
    pub bytes: [u64; LEVELS],
}

impl LevelTargets {
    /// The targets for this version.
    pub fn of(version: &Version, strategy: &Strategy) -> LevelTargets {
        let mut bytes = [u64::MAX; LEVELS];
        let Some(first) = (1..LEVELS).find(|&level| version.level_bytes(level) > 0) else {
            return LevelTargets { base: LEVELS - 1, bytes };
        };
        let largest = (1..LEVELS).map(|level| version.level_bytes(level)).max().unwrap_or(0);
        let (base_max, ratio) = (strategy.level_bytes_base, strategy.level_ratio);
        let mut size = (first..LEVELS - 1).fold(largest, |size, _| size / ratio);
        let mut base = first;
        if size <= base_max / ratio {
            // So small that the first filled level could be left out; it stays base, barely.
            size = base_max / ratio + 1;
        } else {
            while base > 1 && size > base_max {
                base -= 1;
                size /= ratio;
            }
            size = size.clamp(1, base_max);
        }
        for target in &mut bytes[base..] {
            // Never below the base target: L0 flows in by such amounts at a time.
            *target = size.max(base_max);
            size = size.saturating_mul(ratio);
        }
        LevelTargets { base, bytes }
    }
}

/// Levels by urgency, most urgent first; those at 1.0 or above are due.
pub(crate) fn scores(version: &Version, strategy: &Strategy, targets: &LevelTargets) -> Vec<(usize, f64)> {
    let mut scores = vec![(0, l0_score(version, strategy, targets))];
    // What the levels above will still pour down counts against working on a level now.
    let mut coming = version.level_bytes(0);
    for level in targets.base..LEVELS - 1 {
        let idle: u64 =
            version.level(level).iter().filter(|f| !f.compacting()).map(|f| f.compensated_bytes()).sum();
        let target = targets.bytes[level];
        let score = if idle < target {
            idle as f64 / target as f64
        } else {
            idle as f64 / target.saturating_add(coming) as f64 * DUE_WEIGHT
        };
        scores.push((level, score));
        coming = coming.saturating_add(version.level_bytes(level).saturating_sub(target));
    }
    scores.sort_by(|a, b| b.1.total_cmp(&a.1));
    scores
}

fn l0_score(version: &Version, strategy: &Strategy, targets: &LevelTargets) -> f64 {
    let idle = || version.l0().iter().filter(|f| !f.compacting() && !f.meta().is_clue_only());
    let bytes: u64 = idle().map(|f| f.file_bytes()).sum();
    let mut score = idle().count() as f64 / strategy.l0_files as f64;
    if bytes >= strategy.level_bytes_base {
        score = score.max(1.01);
    }
    let target = targets.bytes[targets.base];
    if bytes > target {
        let base: u64 =
            version.level(targets.base).iter().filter(|f| !f.compacting()).map(|f| f.file_bytes()).sum();
        score = score.max(bytes as f64 / base.max(target) as f64);
    }
    if score >= 1.0 { score * DUE_WEIGHT } else { score }
}

/// Bytes that compactions have to write before every level is within its target: an estimate from
/// sizes alone. Write stalls and the choice of a fallback shard are made from it.
pub fn pending_compaction_bytes(version: &Version, strategy: &Strategy) -> u64 {
    let targets = LevelTargets::of(version, strategy);
    let l0_bytes = version.level_bytes(0);
    let l0_due = version.l0_depth() >= strategy.l0_files || l0_bytes >= strategy.level_bytes_base;
    let (mut debt, mut coming) = (0u64, 0u64);
    if l0_due {
        debt = l0_bytes.saturating_add(version.level_bytes(targets.base));
        coming = l0_bytes;
    }
    for level in targets.base..LEVELS - 1 {
        let size = version.level_bytes(level).saturating_add(coming);
        coming = size.saturating_sub(targets.bytes[level]);
        if coming == 0 {
            continue;
        }
        // Each byte that goes down is merged with its share of the next level that has any.
        if let Some(below) = (level + 1..LEVELS).map(|l| version.level_bytes(l)).find(|&b| b > 0) {
            let fan = below as f64 / size as f64 + 1.0;
            debt = debt.saturating_add((coming as f64 * fan) as u64);
        }
    }
    debt
}
