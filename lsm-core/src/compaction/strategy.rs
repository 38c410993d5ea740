//! A compaction strategy as data: four choices, and the numbers they work with.
//!
//! ```text
//! trigger       when     level saturation, number of sorted runs in L0
//! layout        shape    1-leveling: L0 tiered, one sorted run on each deeper level
//! granularity   how much a file (with the neighbours that cost nothing more)
//! movement      which    least overlap with the parent, oldest, most tombstones
//! ```
//! The enums list what works; a choice appears here together with its code and its test, so a
//! strategy that can be written down can be run. [`Strategy::validate`] refuses numbers that
//! would make it stand still or run without end.

use crate::version::LEVELS;
use crate::{Error, Result};

/// When a compaction is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// A level is larger than its target, or L0 has `l0_files` sorted runs.
    SaturationOrL0Runs,
}

/// How sorted runs lie on the levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// L0 may overlap; each deeper level is one sorted run.
    OneLeveling,
}

/// How much one compaction takes out of its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granularity {
    /// A file, and those neighbours that add nothing to the inputs of the next level.
    File,
}

/// Which file of a level goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Movement {
    /// The one with the fewest bytes below it per byte of its own: the least writing.
    LeastOverlapWithParent,
    /// The one whose newest entry is oldest.
    Oldest,
    /// The one with the largest share of tombstones.
    TombstoneDensity,
}

/// A strategy: the four choices and their numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Strategy {
    /// When.
    pub trigger: Trigger,
    /// Shape.
    pub layout: Layout,
    /// How much.
    pub granularity: Granularity,
    /// Which.
    pub movement: Movement,
    /// Sorted runs in L0 that call for a compaction. Default 4: fewer writes more, more reads
    /// slower. 1 to 1000.
    pub l0_files: usize,
    /// Target of the first level below L0, in bytes. Default 256 MiB: about the size of L0 when it
    /// is due, so that merging the two costs one byte for a byte. At least 1.
    pub level_bytes_base: u64,
    /// Ratio of two neighbouring levels' targets. Default 10. 2 to 1000.
    pub level_ratio: u64,
    /// Where an output table is cut, in bytes. Default 64 MiB. At least 1.
    pub table_bytes: u64,
    /// Bound of what a compaction of one file takes in when neighbours are added, and of what a
    /// moved or written table may overlap two levels down; bytes. Default 25 tables.
    pub compaction_bytes_max: u64,
}

impl Strategy {
    /// 1-leveling with dynamic level sizes, the policy most engines of this family ship.
    pub fn leveled() -> Strategy {
        Strategy {
            trigger: Trigger::SaturationOrL0Runs,
            layout: Layout::OneLeveling,
            granularity: Granularity::File,
            movement: Movement::LeastOverlapWithParent,
            l0_files: 4,
            level_bytes_base: 256 << 20,
            level_ratio: 10,
            table_bytes: 64 << 20,
            compaction_bytes_max: 25 * (64 << 20),
        }
    }

    /// Checks all numbers.
    ///
    /// # Errors
    /// `InvalidArgument`, naming every problem at once.
    pub fn validate(&self) -> Result<()> {
        let mut problems = Vec::new();
        let mut need = |holds: bool, text: String| {
            if !holds {
                problems.push(text);
            }
        };
        need((1..=1000).contains(&self.l0_files), format!("l0_files {} is not 1 to 1000", self.l0_files));
        need(
            (2..=1000).contains(&self.level_ratio),
            format!("level_ratio {} is not 2 to 1000", self.level_ratio),
        );
        need(self.level_bytes_base >= 1, "level_bytes_base is 0".to_owned());
        need(self.table_bytes >= 1, "table_bytes is 0".to_owned());
        need(
            self.compaction_bytes_max >= self.table_bytes,
            format!(
                "compaction_bytes_max {} is below table_bytes {}",
                self.compaction_bytes_max, self.table_bytes
            ),
        );
        let deepest =
            (1..LEVELS as u32 - 1).try_fold(self.level_bytes_base, |b, _| b.checked_mul(self.level_ratio));
        need(deepest.is_some(), "the last level's target does not fit in 64 bits".to_owned());
        if problems.is_empty() { Ok(()) } else { Err(Error::invalid(problems.join("; "))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid_and_every_problem_is_named_at_once() {
        Strategy::leveled().validate().expect("the default");
        let bad = Strategy {
            l0_files: 0,
            level_ratio: 1,
            level_bytes_base: 0,
            table_bytes: 0,
            ..Strategy::leveled()
        };
        let text = bad.validate().expect_err("four problems").message().to_owned();
        for word in ["l0_files", "level_ratio", "level_bytes_base", "table_bytes"] {
            assert!(text.contains(word), "{text}");
        }
        let huge = Strategy { level_bytes_base: u64::MAX / 2, ..Strategy::leveled() };
        assert!(huge.validate().expect_err("overflow").message().contains("64 bits"));
    }
}
