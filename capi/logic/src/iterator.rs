//! Cursors and bulk scans as C holds them.

use std::sync::Arc;

use dialsm::{DbIterator, Error, Result, Scan};

use crate::database::Shared;
use crate::guard::{OfMut, Opened};
use crate::{Entries, Pinned};

/// A cursor. One thread at a time.
pub struct Iter {
    // Before the database that it keeps open.
    cursor: Cursor,
    shared: Arc<Shared>,
}

/// What moves.
pub struct Cursor {
    inner: DbIterator,
    /// How the last move failed.
    failed: Option<Error>,
}

impl Iter {
    pub(crate) fn new(shared: Arc<Shared>, inner: DbIterator) -> Iter {
        Iter { cursor: Cursor { inner, failed: None }, shared }
    }

    /// Whether it stands on an entry; never after a panic or in a child of fork().
    #[inline]
    pub fn valid(&self) -> bool {
        self.shared.is_usable() && self.cursor.inner.valid()
    }

    /// The key, if it stands on one.
    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        self.valid().then(|| self.cursor.inner.key())
    }

    /// The value, if it stands on one.
    #[inline]
    pub fn value(&self) -> Option<&[u8]> {
        self.valid().then(|| self.cursor.inner.value())
    }
}

impl Opened for Iter {
    fn is_forked(&self) -> bool {
        self.shared.is_forked()
    }
}

impl OfMut for Iter {
    const NAME: &'static str = "iter";
    type Part = Cursor;
    #[inline]
    fn parts(&mut self) -> (&Shared, &mut Cursor) {
        (&self.shared, &mut self.cursor)
    }
}

impl Cursor {
    /// Moves it, and keeps the error.
    ///
    /// # Errors
    /// Those of the move.
    #[inline]
    pub fn go(&mut self, to: impl FnOnce(&mut DbIterator) -> Result<()>) -> Result<()> {
        let result = to(&mut self.inner);
        self.keep(result)
    }

    #[inline]
    fn keep(&mut self, result: Result<()>) -> Result<()> {
        match &result {
            Ok(()) => self.failed = None,
            Err(error) => self.failed = Some(error.clone()),
        }
        result
    }

    /// How the last move ended.
    ///
    /// # Errors
    /// That of the last move.
    pub fn outcome(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Puts the entry it stands on, and those that follow, into `entries`, in place of what is there, and moves
    /// behind them. Ends at `entries_max` entries, once there are `bytes_max` bytes (0 = no bound for either, but at least one
    /// of them), or where the keys end.
    ///
    /// # Errors
    /// As [`DbIterator::next`], with the entries before it in `entries`; `OutOfMemory`, and it then stands on the
    /// first entry that is not there.
    pub fn next_batch(&mut self, entries: &mut Entries, entries_max: usize, bytes_max: usize) -> Result<()> {
        entries.clear();
        if entries_max == 0 && bytes_max == 0 {
            return Err(Error::invalid("next_batch: neither a number of entries nor of bytes"));
        }
        // It stands nowhere because the last move failed: not at the end.
        if !self.inner.valid() {
            self.outcome()?;
        }
        let none = |bound: usize| if bound == 0 { usize::MAX } else { bound };
        let (entries_max, bytes_max) = (none(entries_max), none(bytes_max));
        let result = self.gather(entries, entries_max, bytes_max);
        self.keep(result)
    }

    fn gather(&mut self, entries: &mut Entries, entries_max: usize, bytes_max: usize) -> Result<()> {
        while self.inner.valid() && entries.len() < entries_max && entries.bytes() < bytes_max {
            entries.push(self.inner.key(), self.inner.value())?;
            self.inner.next()?;
        }
        Ok(())
    }

    /// Pins the value it stands on, so that it outlives the next move.
    ///
    /// # Errors
    /// `InvalidArgument` where it stands on none.
    pub fn pin(&self, pinned: &mut Pinned) -> Result<()> {
        if !self.inner.valid() {
            return Err(Error::invalid("the iterator stands on no entry"));
        }
        pinned.set(Some(self.inner.value_slice()));
        Ok(())
    }
}

/// A bulk scan. One thread at a time.
pub struct ScanHandle {
    scan: Scan,
    shared: Arc<Shared>,
}

impl ScanHandle {
    pub(crate) fn new(shared: Arc<Shared>, scan: Scan) -> ScanHandle {
        ScanHandle { scan, shared }
    }
}

impl Opened for ScanHandle {
    fn is_forked(&self) -> bool {
        self.shared.is_forked()
    }
}

impl OfMut for ScanHandle {
    const NAME: &'static str = "scan";
    type Part = Scan;
    fn parts(&mut self) -> (&Shared, &mut Scan) {
        (&self.shared, &mut self.scan)
    }
}
