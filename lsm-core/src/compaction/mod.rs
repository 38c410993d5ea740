//! Compaction: what to merge next (`picker`, a pure function over a version and a `strategy`;
//! C1), doing it (`job`; C2), which entries of the merge go on (`visibility`; C4), and the tables
//! they become (`output`; C5). What has to do with other shards is asked of `clues`.

pub(crate) mod clues;
pub mod debt;
pub(crate) mod job;
pub(crate) mod output;
pub(crate) mod patience;
pub mod picker;
pub mod plan;
pub(crate) mod reads;
pub mod strategy;
pub mod visibility;

pub use debt::{LevelTargets, pending_compaction_bytes};
pub use picker::{RangePick, pick, pick_range};
pub use plan::{DropBelow, KeyHull, LevelInputs, Plan, Reason};
pub use strategy::Strategy;
pub use visibility::{CompactionIter, DropCounts};
