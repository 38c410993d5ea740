//! The tables of one level deeper than L0, end to end, as one source.
//!
//! Tables are opened when the cursor first needs them, by the closure given at creation. Bounds
//! prune whole tables; they do not cut inside one, so a consumer still checks its own (B005).
//!
//! INVARIANTS
//! - The cursor is invalid only past either end of the (pruned) level or after an error: an empty
//!   table is stepped over, and a table's error is returned, never read as its end (B003).
//! - With a prefix set, a neighbour is entered only if its nearer bound has that prefix. (All keys of
//!   a prefix lie together, so behind a bound without it there are none; and bounds may be wider
//!   than a table's keys, so what its filter says does not end the search.)
//! - A table is chosen by user keys. No user key straddles two tables of a level
//!   (`Version::check_invariants`), so a seek looks into at most one table that does not answer.

use std::ops::Range;
use std::sync::Arc;

use crate::key::{Comparator, user_key};
use crate::prefix::PrefixHint;
use crate::read::internal::{Handed, InternalIter, Target};
use crate::table::{Missing, ReadStats};
use crate::version::{Level, TableFile};
use crate::{Error, ErrorKind, Result, Slice};

/// A cursor over one level; `open` makes the cursor of a table.
pub struct LevelIter<I, F> {
    comparator: Comparator,
    level: Arc<Level>,
    /// The tables that the bounds leave.
    range: Range<usize>,
    open: F,
    /// The open table: its index in the level, its cursor.
    current: Option<(usize, I)>,
    /// The prefix that all wanted keys have.
    hint: Option<Arc<PrefixHint>>,
    /// What the tables left behind have cost.
    left: ReadStats,
    /// What the last positioning that was tried wanted of its table.
    missing: Vec<Missing>,
}

impl<I, F> LevelIter<I, F>
where
    I: InternalIter,
    F: FnMut(&Arc<TableFile>) -> Result<I> + Send,
{
    /// A cursor over `level`, not positioned. Tables wholly outside `lower` (inclusive) or `upper`
    /// (exclusive), both user keys, are never opened.
    pub fn new(
        comparator: Comparator,
        level: Arc<Level>,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
        open: F,
    ) -> LevelIter<I, F> {
        let mut range = level.overlapping(&comparator, lower, upper);
        if let (Some(last), Some(upper)) = (level[range.clone()].last(), upper)
            && comparator.compare(last.smallest_user(), upper).is_ge()
        {
            range.end -= 1;
        }
        let left = ReadStats::default();
        LevelIter { comparator, level, range, open, current: None, hint: None, left, missing: Vec::new() }
    }

    /// Makes table `at` the current one; outside the range there is none.
    fn enter(&mut self, at: Option<usize>) -> Result<Option<&mut I>> {
        let Some(at) = at.filter(|at| self.range.contains(at)) else {
            self.leave();
            return Ok(None);
        };
        if self.current.as_ref().is_none_or(|(open, _)| *open != at) {
            self.leave();
            let mut iter = (self.open)(&self.level[at])?;
            if self.hint.is_some() {
                iter.set_prefix(self.hint.as_ref());
            }
            self.current = Some((at, iter));
        }
        Ok(self.current.as_mut().map(|(_, iter)| iter))
    }

    fn leave(&mut self) {
        if let Some((_, iter)) = self.current.take() {
            iter.add_stats(&mut self.left);
        }
    }

    /// `at`, unless the table's bound that faces the search shows that wanted keys lie neither in it
    /// nor behind it.
    fn unless_beyond(&self, at: Option<usize>, bound: fn(&TableFile) -> &[u8]) -> Result<Option<usize>> {
        if let (Some(hint), Some(table)) = (&self.hint, at.and_then(|at| self.level.get(at)))
            && !hint.holds(bound(table))?
        {
            return Ok(None);
        }
        Ok(at)
    }

    fn skip_forward(&mut self) -> Result<()> {
        while let Some((at, iter)) = &self.current
            && !iter.valid()
        {
            let next = self.unless_beyond(Some(at + 1), TableFile::smallest_user)?;
            if let Some(iter) = self.enter(next)? {
                iter.seek_to_first()?;
            }
        }
        Ok(())
    }

    fn skip_backward(&mut self) -> Result<()> {
        while let Some((at, iter)) = &self.current
            && !iter.valid()
        {
            let before = self.unless_beyond(at.checked_sub(1), TableFile::largest_user)?;
            if let Some(iter) = self.enter(before)? {
                iter.seek_to_last()?;
            }
        }
        Ok(())
    }

    /// Runs `step`; after an error no half-moved table may look like a position or an end.
    fn guarded(&mut self, step: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        step(self).inspect_err(|_| self.leave())
    }

    /// The table in which a positioning begins.
    #[inline(always)]
    fn table_for(&self, to: Target<'_>) -> Result<Option<usize>> {
        match to {
            Target::First => Ok(Some(self.range.start)),
            Target::Last => Ok(self.range.end.checked_sub(1)),
            Target::AtOrAfter(target) => {
                let key = user_key(target);
                let at = Some(self.level.first_reaching(&self.comparator, key).max(self.range.start));
                if self.hint.is_some() && !self.starts_at_or_before(at, key) {
                    return self.unless_beyond(at, TableFile::smallest_user);
                }
                Ok(at)
            }
            Target::AtOrBefore(target) => {
                let key = user_key(target);
                let reaching = self.level.first_reaching(&self.comparator, key);
                let starts_in = self.starts_at_or_before(Some(reaching), key);
                let at = if starts_in { Some(reaching) } else { reaching.checked_sub(1) };
                let at = at.zip(self.range.end.checked_sub(1)).map(|(at, last)| at.min(last));
                if starts_in { Ok(at) } else { self.unless_beyond(at, TableFile::largest_user) }
            }
        }
    }

    /// Positions the table in which the way begins with `step`, and goes on from there.
    #[inline(always)]
    fn go(&mut self, to: Target<'_>, step: impl FnOnce(&mut I) -> Result<()>) -> Result<()> {
        let at = self.table_for(to)?;
        if let Some(iter) = self.enter(at)? {
            step(iter)?;
        }
        match to {
            Target::First | Target::AtOrAfter(_) => self.skip_forward(),
            Target::Last | Target::AtOrBefore(_) => self.skip_backward(),
        }
    }

    /// After a positioning that was tried and failed: if it is for a block, the table stays open, to be
    /// given that; it is not valid.
    #[cold]
    fn leave_unless_missing(&mut self) {
        self.missing.clear();
        if let Some((_, iter)) = &mut self.current {
            iter.missing(&mut self.missing);
        }
        if self.missing.is_empty() {
            self.leave();
        }
    }

    fn starts_at_or_before(&self, at: Option<usize>, key: &[u8]) -> bool {
        at.and_then(|at| self.level.get(at))
            .is_some_and(|table| self.comparator.compare(table.smallest_user(), key).is_le())
    }

    fn moved(&mut self, step: impl FnOnce(&mut I) -> Result<()>) -> Result<()> {
        match &mut self.current {
            Some((_, iter)) => step(iter),
            None => Err(Error::new(ErrorKind::Internal, "a level cursor was moved while it had no position")),
        }
    }
}

impl<I, F> InternalIter for LevelIter<I, F>
where
    I: InternalIter,
    F: FnMut(&Arc<TableFile>) -> Result<I> + Send,
{
    #[inline]
    fn valid(&self) -> bool {
        self.current.as_ref().is_some_and(|(_, iter)| iter.valid())
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.guarded(|this| this.go(Target::First, I::seek_to_first))
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.guarded(|this| this.go(Target::Last, I::seek_to_last))
    }

    fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.guarded(|this| this.go(Target::AtOrAfter(target), |iter| iter.seek(target)))
    }

    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        self.guarded(|this| this.go(Target::AtOrBefore(target), |iter| iter.seek_for_prev(target)))
    }

    fn try_position(&mut self, to: &Target<'_>) -> Result<()> {
        self.go(*to, |iter| iter.try_position(to)).inspect_err(|_| self.leave_unless_missing())
    }

    fn missing(&mut self, wanted: &mut Vec<Missing>) {
        wanted.append(&mut self.missing);
    }

    fn hand(&mut self, blocks: &mut dyn Iterator<Item = Handed>) {
        if let Some((_, iter)) = &mut self.current {
            iter.hand(blocks);
        }
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.guarded(|this| {
            this.moved(I::next)?;
            if this.valid() { Ok(()) } else { this.skip_forward() }
        })
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.guarded(|this| {
            this.moved(I::prev)?;
            if this.valid() { Ok(()) } else { this.skip_backward() }
        })
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.current.as_ref().expect("only while valid").1.key()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.current.as_ref().expect("only while valid").1.value()
    }

    fn value_slice(&self) -> Slice {
        self.current.as_ref().expect("only while valid").1.value_slice()
    }

    fn set_prefix(&mut self, hint: Option<&Arc<PrefixHint>>) {
        self.hint = hint.cloned();
        if let Some((_, iter)) = &mut self.current {
            iter.set_prefix(hint);
        }
    }

    fn add_stats(&self, to: &mut ReadStats) {
        to.add(&self.left);
        if let Some((_, iter)) = &self.current {
            iter.add_stats(to);
        }
    }
}

#[cfg(test)]
mod tests;
