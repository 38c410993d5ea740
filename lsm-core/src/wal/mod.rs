//! The commit log: a chain of segments that together hold every logged group, in order.
//!
//! Write journey, W5: `write/commit` appends one record a group through a [`SegmentWriter`] and
//! syncs the file itself where a writer asked for it. At open, [`replay()`] reads the chain back.
//!
//! ```text
//!   000007.log                    000012.log                   000015.log
//!   | start | rec | rec | rec | <-| start | rec | rec | zzz| <-| start | rec | ...
//!                             ^-- previous = (7, here)    ^-- previous = (12, here); zzz: burnt
//! ```
//! `format` has the bytes, `writer` and `reader` handle one segment, `replay` the chain.
//!
//! Invariants
//! - *Order*: records are appended in sequence order, and a position (segment, offset) orders as
//!   time does; segment numbers rise along the chain. Upheld by the commit queue.
//! - *Known synced*: a record or segment header that names position P as synced was written after
//!   the whole log up to P was durable, and the names of the segments in it. So below P nothing
//!   may be missing, and what is missing there is corruption; above every such P, what is
//!   missing was never acknowledged as durable. Attacked by `vouched_damage_is_corruption`.
//! - *One meaning*: a segment is written by one opening only, and a failed append closes it for
//!   ever; the next segment says where it validly ends, so that a burnt group never comes back.
//! - *Recycling*: a reused file may hold records of its former life behind the valid end. They
//!   carry another segment number and end the log; a zero mark written behind each record keeps
//!   them apart from torn writes. Attacked by `stale_records_end_the_log`.
//!
//! Absent on purpose: syncing, rotation, retention and recycling, which the commit path and the
//! obsolete-file sweep decide; the meaning of a payload, which is `batch`.

pub(crate) mod chain;
pub mod format;
pub mod reader;
pub mod replay;
pub(crate) mod window;
pub mod writer;

#[cfg(test)]
pub(crate) mod testfs;
#[cfg(test)]
mod tests;

pub use format::{LogPosition, PrevEnd};
pub use reader::{DumpItem, EndKind, SegmentReader};
pub use replay::{Record, RecoveryMode, ReplayEnd, Torn, replay};
pub use writer::SegmentWriter;
pub(crate) mod log;
