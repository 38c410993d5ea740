//! The sources of a user's scan, merged: those of one tree, or of all shards of a keyspace.
//!
//! ```text
//! one shard     MergingIter over memtables, L0 tables, levels
//! more          MergingIter over shards, each a MergingIter as above
//! ```
//! Each shard's range tombstones hide entries of that shard alone (in its own merge, where positions tell
//! who is older); each shard has its own copy of every range tombstone. A clue and its value come out next
//! to each other, since they are equal in key and sequence.

use std::sync::Arc;

use crate::Result;
use crate::prefix::PrefixHint;
use crate::range_del::scan::RangeStats;
use crate::read::internal::{InternalIter, Target};
use crate::read::merging_iter::MergingIter;
use crate::table::{Block, Missing, ReadStats};

/// The sources of one tree.
pub(crate) type TreeScan = MergingIter<Box<dyn InternalIter>>;

/// See the module header.
pub(crate) enum ScanSource {
    Tree(TreeScan),
    Shards(MergingIter<TreeScan>),
}

impl ScanSource {
    /// What range tombstones have cost and spared so far.
    pub(crate) fn range_stats(&self) -> RangeStats {
        match self {
            ScanSource::Tree(tree) => tree.range_stats(),
            ScanSource::Shards(shards) => shards.children().iter().map(MergingIter::range_stats).sum(),
        }
    }
}

macro_rules! either {
    ($self:ident, $it:ident => $call:expr) => {
        match $self {
            ScanSource::Tree($it) => $call,
            ScanSource::Shards($it) => $call,
        }
    };
}

impl InternalIter for ScanSource {
    #[inline]
    fn valid(&self) -> bool {
        either!(self, it => it.valid())
    }
    fn seek_to_first(&mut self) -> Result<()> {
        either!(self, it => it.seek_to_first())
    }
    fn seek_to_last(&mut self) -> Result<()> {
        either!(self, it => it.seek_to_last())
    }
    fn seek(&mut self, target: &[u8]) -> Result<()> {
        either!(self, it => it.seek(target))
    }
    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        either!(self, it => it.seek_for_prev(target))
    }
    fn try_position(&mut self, to: &Target<'_>) -> Result<()> {
        either!(self, it => it.try_position(to))
    }
    fn missing(&mut self) -> Option<Missing> {
        either!(self, it => it.missing())
    }
    fn hand(&mut self, at: usize, block: Block) {
        either!(self, it => it.hand(at, block));
    }
    #[inline]
    fn next(&mut self) -> Result<()> {
        either!(self, it => it.next())
    }
    #[inline]
    fn prev(&mut self) -> Result<()> {
        either!(self, it => it.prev())
    }
    #[inline]
    fn key(&self) -> &[u8] {
        either!(self, it => it.key())
    }
    #[inline]
    fn value(&self) -> &[u8] {
        either!(self, it => it.value())
    }
    fn value_slice(&self) -> crate::Slice {
        either!(self, it => it.value_slice())
    }
    fn set_prefix(&mut self, hint: Option<&Arc<PrefixHint>>) {
        either!(self, it => it.set_prefix(hint));
    }
    fn add_stats(&self, to: &mut ReadStats) {
        either!(self, it => it.add_stats(to));
    }
}
