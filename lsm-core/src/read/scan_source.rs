//! The sources of a user's scan, merged: those of one tree, or of all shards of a keyspace.
//!
//! ```text
//! one shard     MergingIter over memtables, L0 tables, levels
//! more          MergingIter over shards, each a MergingIter as above
//! ahead         MergingIter over lanes, which other threads fill from such shards (`scan::ahead`)
//! ```
//! Each shard's range tombstones hide entries of that shard alone (in its own merge, where positions tell
//! who is older); each shard has its own copy of every range tombstone. A clue and its value come out next
//! to each other, since they are equal in key and sequence.

use std::sync::Arc;

use dialsm_io::env::Nanos;

use crate::Result;
use crate::key::Comparator;
use crate::prefix::PrefixHint;
use crate::range_del::scan::RangeStats;
use crate::read::internal::{Handed, InternalIter, Target};
use crate::read::merging_iter::MergingIter;
use crate::scan::ahead::{Ahead, Helpers, Lanes};
use crate::scan::producer::Producer;
use crate::table::{Missing, ReadStats};

/// The sources of one tree.
pub(crate) type TreeScan = MergingIter<Box<dyn InternalIter>>;

/// See the module header.
pub(crate) enum ScanSource {
    Tree(TreeScan),
    Shards(MergingIter<TreeScan>),
    /// Either of them, read ahead by other threads; and what reading had cost the outer merge before.
    Ahead(MergingIter<Ahead>, ReadStats),
}

impl ScanSource {
    /// What range tombstones have cost and spared so far.
    pub(crate) fn range_stats(&self) -> RangeStats {
        match self {
            ScanSource::Tree(tree) => tree.range_stats(),
            ScanSource::Shards(shards) => shards.children().iter().map(MergingIter::range_stats).sum(),
            ScanSource::Ahead(shards, _) => shards.children().iter().map(Ahead::range_stats).sum(),
        }
    }

    /// From where it stands, going forward, it is read ahead: each tree by the producer made of it. Whoever
    /// gets an error must not use it any more: it looks as if it had ended.
    ///
    /// # Errors
    /// Those of the files below; `TimedOut`.
    pub(crate) fn read_ahead(
        &mut self,
        helpers: Helpers,
        deadline: Option<Nanos>,
        order: &Comparator,
        producer: impl Fn(TreeScan) -> Producer,
    ) -> Result<()> {
        let nothing = ScanSource::Tree(MergingIter::new(order.clone(), Vec::new()));
        let (trees, stats) = match std::mem::replace(self, nothing) {
            ScanSource::Tree(tree) => (vec![tree], ReadStats::default()),
            ScanSource::Shards(shards) => {
                let mut stats = ReadStats::default();
                shards.add_own_stats(&mut stats);
                (shards.into_children(), stats)
            }
            ahead @ ScanSource::Ahead(..) => {
                *self = ahead;
                return Ok(());
            }
        };
        let lanes = Lanes::new(helpers, order.clone(), trees.into_iter().map(producer).collect());
        let shards = MergingIter::resume(order.clone(), Ahead::of(&lanes, deadline)?);
        *self = ScanSource::Ahead(shards, stats);
        Ok(())
    }
}

macro_rules! either {
    ($self:ident, $it:ident => $call:expr) => {
        match $self {
            ScanSource::Tree($it) => $call,
            ScanSource::Shards($it) => $call,
            ScanSource::Ahead($it, _) => $call,
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
    fn missing(&mut self, wanted: &mut Vec<Missing>) {
        either!(self, it => it.missing(wanted));
    }
    fn hand(&mut self, blocks: &mut dyn Iterator<Item = Handed>) {
        either!(self, it => it.hand(blocks));
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
        if let ScanSource::Ahead(_, before) = self {
            to.add(before);
        }
    }
}
