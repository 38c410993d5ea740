//! The trait that every source of entries implements: memtable, block, table, level, merge.

use std::sync::Arc;

use crate::prefix::PrefixHint;
use crate::table::{Block, Missing, ReadStats};
use crate::{Result, Slice};

/// Where a positioning goes; keys are internal ones.
#[derive(Clone, Copy)]
pub enum Target<'a> {
    /// To the first entry.
    First,
    /// To the last one.
    Last,
    /// To the first entry at or after the key.
    AtOrAfter(&'a [u8]),
    /// To the last entry at or before it.
    AtOrBefore(&'a [u8]),
}

/// A block that was read for somebody, and its number in its table.
pub type Handed = Option<(usize, Block)>;

/// A cursor over internal keys in [`Comparator::compare_internal`] order.
///
/// After an error the cursor is not valid, and every positioning call may be tried again; a
/// caller that sees `!valid()` after a successful call knows that the source has ended. An error
/// must never look like an end.
///
/// `key` and `value` may be called only while `valid`; what they return lives until the cursor
/// is moved.
///
/// [`Comparator::compare_internal`]: crate::key::Comparator::compare_internal
pub trait InternalIter: Send {
    /// Whether the cursor stands on an entry.
    fn valid(&self) -> bool;

    /// To the first entry.
    ///
    /// # Errors
    /// Those of the files below; so for all calls that move.
    fn seek_to_first(&mut self) -> Result<()>;

    /// To the last entry.
    ///
    /// # Errors
    /// As [`InternalIter::seek_to_first`].
    fn seek_to_last(&mut self) -> Result<()>;

    /// To the first entry at or after the internal key `target`.
    ///
    /// # Errors
    /// As [`InternalIter::seek_to_first`].
    fn seek(&mut self, target: &[u8]) -> Result<()>;

    /// To the last entry at or before the internal key `target`.
    ///
    /// # Errors
    /// As [`InternalIter::seek_to_first`].
    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()>;

    /// To where `to` says, by one of the calls above.
    ///
    /// # Errors
    /// As [`InternalIter::seek_to_first`].
    #[inline(always)]
    fn position(&mut self, to: &Target<'_>) -> Result<()> {
        match *to {
            Target::First => self.seek_to_first(),
            Target::Last => self.seek_to_last(),
            Target::AtOrAfter(key) => self.seek(key),
            Target::AtOrBefore(key) => self.seek_for_prev(key),
        }
    }

    /// The same, but where a block is not in memory the cursor may leave off instead of reading it: the
    /// call fails, and [`InternalIter::missing`] names the block; a merge names those of all its children.
    /// Then [`InternalIter::position`] must follow, after [`InternalIter::hand`] if somebody has read them
    /// meanwhile.
    ///
    /// (A failure, because a way that has to be checked for those anyway costs nothing more where all
    /// blocks are in memory.)
    ///
    /// # Errors
    /// As [`InternalIter::seek_to_first`], and where a block is missing.
    fn try_position(&mut self, to: &Target<'_>) -> Result<()> {
        self.position(to)
    }

    /// Adds the blocks for want of which [`InternalIter::try_position`] has just failed, once; none if it
    /// failed for another reason.
    fn missing(&mut self, _wanted: &mut Vec<Missing>) {}

    /// Gives as many blocks as [`InternalIter::missing`] has just added, in that order, each with its number
    /// in its table; `None` for one that could not be read.
    fn hand(&mut self, _blocks: &mut dyn Iterator<Item = Handed>) {}

    /// To the next entry. Only while valid.
    ///
    /// # Errors
    /// As [`InternalIter::seek_to_first`].
    fn next(&mut self) -> Result<()>;

    /// To the entry before. Only while valid.
    ///
    /// # Errors
    /// As [`InternalIter::seek_to_first`].
    fn prev(&mut self) -> Result<()>;

    /// The internal key.
    fn key(&self) -> &[u8];

    /// The value.
    fn value(&self) -> &[u8];

    /// The value as a slice that outlives the cursor; shares the block where it can.
    fn value_slice(&self) -> Slice {
        Slice::copy_of(self.value())
    }

    /// Tells what prefix all entries have that are wanted from the next positioning on, as long as
    /// it moves on in that one's direction; `None`: any may be. A source that knows to hold none of
    /// them may take itself for empty. The promise is the caller's: see [`crate::prefix`].
    fn set_prefix(&mut self, _hint: Option<&Arc<PrefixHint>>) {}

    /// Adds what reading has cost so far.
    fn add_stats(&self, _to: &mut ReadStats) {}
}

impl<I: InternalIter + ?Sized> InternalIter for Box<I> {
    #[inline]
    fn valid(&self) -> bool {
        (**self).valid()
    }
    fn seek_to_first(&mut self) -> Result<()> {
        (**self).seek_to_first()
    }
    fn seek_to_last(&mut self) -> Result<()> {
        (**self).seek_to_last()
    }
    fn seek(&mut self, target: &[u8]) -> Result<()> {
        (**self).seek(target)
    }
    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        (**self).seek_for_prev(target)
    }
    fn position(&mut self, to: &Target<'_>) -> Result<()> {
        (**self).position(to)
    }
    #[inline]
    fn try_position(&mut self, to: &Target<'_>) -> Result<()> {
        (**self).try_position(to)
    }
    fn missing(&mut self, wanted: &mut Vec<Missing>) {
        (**self).missing(wanted);
    }
    fn hand(&mut self, blocks: &mut dyn Iterator<Item = Handed>) {
        (**self).hand(blocks);
    }
    #[inline]
    fn next(&mut self) -> Result<()> {
        (**self).next()
    }
    #[inline]
    fn prev(&mut self) -> Result<()> {
        (**self).prev()
    }
    #[inline]
    fn key(&self) -> &[u8] {
        (**self).key()
    }
    #[inline]
    fn value(&self) -> &[u8] {
        (**self).value()
    }
    fn value_slice(&self) -> Slice {
        (**self).value_slice()
    }
    fn set_prefix(&mut self, hint: Option<&Arc<PrefixHint>>) {
        (**self).set_prefix(hint);
    }
    fn add_stats(&self, to: &mut ReadStats) {
        (**self).add_stats(to);
    }
}
