//! The tables of one level deeper than L0, end to end, as one source.
//!
//! Tables are opened when the cursor first needs them, by the closure given at creation. Bounds
//! prune whole tables; they do not cut inside one, so a consumer still checks its own (B005).
//!
//! INVARIANTS
//! - The cursor is invalid only past either end of the (pruned) level or after an error: an empty
//!   table is stepped over, and a table's error is returned, never read as its end (B003).
//! - A table is chosen by user keys. No user key straddles two tables of a level
//!   (`Version::check_invariants`), so a seek looks into at most one table that does not answer.

use std::ops::Range;
use std::sync::Arc;

use crate::key::{Comparator, user_key};
use crate::read::internal::InternalIter;
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
        LevelIter { comparator, level, range, open, current: None }
    }

    /// Makes table `at` the current one; outside the range there is none.
    fn enter(&mut self, at: Option<usize>) -> Result<Option<&mut I>> {
        let Some(at) = at.filter(|at| self.range.contains(at)) else {
            self.current = None;
            return Ok(None);
        };
        if self.current.as_ref().is_none_or(|(open, _)| *open != at) {
            self.current = None;
            self.current = Some((at, (self.open)(&self.level[at])?));
        }
        Ok(self.current.as_mut().map(|(_, iter)| iter))
    }

    fn skip_forward(&mut self) -> Result<()> {
        while let Some((at, iter)) = &self.current
            && !iter.valid()
        {
            let next = at + 1;
            if let Some(iter) = self.enter(Some(next))? {
                iter.seek_to_first()?;
            }
        }
        Ok(())
    }

    fn skip_backward(&mut self) -> Result<()> {
        while let Some((at, iter)) = &self.current
            && !iter.valid()
        {
            let before = at.checked_sub(1);
            if let Some(iter) = self.enter(before)? {
                iter.seek_to_last()?;
            }
        }
        Ok(())
    }

    /// Runs `step`; after an error no half-moved table may look like a position or an end.
    fn guarded(&mut self, step: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        step(self).inspect_err(|_| self.current = None)
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
        self.guarded(|this| {
            let first = this.range.start;
            if let Some(iter) = this.enter(Some(first))? {
                iter.seek_to_first()?;
            }
            this.skip_forward()
        })
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.guarded(|this| {
            let last = this.range.end.checked_sub(1);
            if let Some(iter) = this.enter(last)? {
                iter.seek_to_last()?;
            }
            this.skip_backward()
        })
    }

    fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.guarded(|this| {
            let at = this.level.first_reaching(&this.comparator, user_key(target)).max(this.range.start);
            if let Some(iter) = this.enter(Some(at))? {
                iter.seek(target)?;
            }
            this.skip_forward()
        })
    }

    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        self.guarded(|this| {
            let key = user_key(target);
            let reaching = this.level.first_reaching(&this.comparator, key);
            let starts_in = this
                .level
                .get(reaching)
                .is_some_and(|f| this.comparator.compare(f.smallest_user(), key).is_le());
            let at = if starts_in { Some(reaching) } else { reaching.checked_sub(1) };
            let at = at.zip(this.range.end.checked_sub(1)).map(|(at, last)| at.min(last));
            if let Some(iter) = this.enter(at)? {
                iter.seek_for_prev(target)?;
            }
            this.skip_backward()
        })
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
}

#[cfg(test)]
mod tests;
