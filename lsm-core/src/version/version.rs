//! The immutable list of a tree's tables, level by level.
//!
//! ```text
//! L0      [epoch 9] [epoch 8] [epoch 5] ...      may overlap; newest first; read one after another
//! L1..L6  [a..c] [d..k] [m..z]                   disjoint and sorted; read by one binary search
//! ```
//! A version is replaced, never changed: [`Version::apply`] builds the next one and shares every
//! level that the edit does not touch.
//!
//! INVARIANTS, checked by [`Version::check_invariants`] on every `apply` for the levels it
//! touches, whatever the edit's source:
//! - L0 epochs strictly descend.
//! - On deeper levels a table ends before the next table's first user key (its range tombstones may
//!   end just there, their ends are exclusive); so a user key never straddles two tables of a level, and one table answers for it.
//! - Within a table, first key ≤ last key. No file stands twice in a version.
//!
//! I3 (recency by position) is upheld by the picker and attacked by its simulation.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::callback::{Watch, sorted_by};
use crate::key::Comparator;
use crate::types::{FileNumber, SeqNo};
use crate::version::{KeyEnd, TableFile};
use crate::{Error, Result};

/// Levels of a tree, L0 included.
pub const LEVELS: usize = 7;

/// A file to take out of a version: its level and number.
pub type Removed = (u8, FileNumber);

/// The files of one level. On L0 newest first, deeper sorted by key.
#[derive(Default)]
pub struct Level {
    files: Vec<Arc<TableFile>>,
    /// Prefix of the user key at which each file ends, dense: the search touches no file until it has ties.
    largest_prefixes: Box<[u64]>,
    /// Those of the files that hold range tombstones, in the same order.
    with_range_deletes: Vec<Arc<TableFile>>,
    bytes: u64,
    /// Clues and bytes of their keys.
    clues: (u64, u64),
    redirected_bytes: u64,
}

impl Level {
    pub(crate) fn new(files: Vec<Arc<TableFile>>) -> Level {
        Level {
            largest_prefixes: files.iter().map(|f| f.largest_prefix()).collect(),
            with_range_deletes: files.iter().filter(|f| f.meta().range_deletes > 0).cloned().collect(),
            bytes: files.iter().map(|f| f.file_bytes()).sum(),
            clues: files.iter().map(|f| f.meta()).fold((0, 0), |(n, b), m| (n + m.clues, b + m.clue_bytes)),
            redirected_bytes: files.iter().map(|f| f.meta().redirected_bytes).sum(),
            files,
        }
    }

    /// Size of all files, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Clue entries in it, and the bytes of their user keys.
    pub fn clues(&self) -> (u64, u64) {
        self.clues
    }

    /// The files that hold range tombstones, in level order.
    pub fn with_range_deletes(&self) -> &[Arc<TableFile>] {
        &self.with_range_deletes
    }

    /// Index of the first file that ends at or after `key`; the file count if none does. Deeper levels only.
    pub fn first_reaching(&self, comparator: &Comparator, key: &[u8]) -> usize {
        let prefix = comparator.prefix(key);
        let low = self.largest_prefixes.partition_point(|&p| p < prefix);
        // Most files differ from the key in their prefix; the rest are told apart by the keys.
        if self.largest_prefixes.get(low) != Some(&prefix) {
            return low;
        }
        let ties = self.largest_prefixes[low..].partition_point(|&p| p == prefix);
        low + self.files[low..low + ties].partition_point(|f| !f.reaches(comparator, key))
    }

    /// The file whose interval holds `key`. Deeper levels only.
    pub fn find(&self, comparator: &Comparator, key: &[u8]) -> Option<&Arc<TableFile>> {
        let file = self.files.get(self.first_reaching(comparator, key))?;
        comparator.compare(file.smallest_user(), key).is_le().then_some(file)
    }

    /// The files that meet `lo..=hi` (user keys; `None` is unbounded). Deeper levels only.
    pub fn overlapping(&self, comparator: &Comparator, lo: Option<&[u8]>, hi: Option<&[u8]>) -> Range<usize> {
        self.meeting(comparator, lo, hi.map(KeyEnd::at))
    }

    /// The files that meet the user keys from `lo` (inclusive) to `hi`. Deeper levels only.
    pub fn meeting(
        &self,
        comparator: &Comparator,
        lo: Option<&[u8]>,
        hi: Option<KeyEnd<'_>>,
    ) -> Range<usize> {
        let start = lo.map_or(0, |lo| self.first_reaching(comparator, lo));
        let end = match hi {
            None => self.files.len(),
            Some(hi) => {
                let at = self.first_reaching(comparator, hi.key);
                let starts_in = self.files.get(at).is_some_and(|f| hi.reaches(comparator, f.smallest_user()));
                at + usize::from(starts_in)
            }
        };
        start..end.max(start)
    }
}

impl fmt::Debug for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.files).finish()
    }
}

impl Deref for Level {
    type Target = [Arc<TableFile>];
    fn deref(&self) -> &[Arc<TableFile>] {
        &self.files
    }
}

/// All tables of one tree at one moment.
#[derive(Clone)]
pub struct Version {
    comparator: Comparator,
    levels: [Arc<Level>; LEVELS],
}

impl Version {
    /// A version without tables.
    pub fn empty(comparator: Comparator) -> Version {
        Version { comparator, levels: std::array::from_fn(|_| Arc::default()) }
    }

    /// The order of its user keys.
    pub fn comparator(&self) -> &Comparator {
        &self.comparator
    }

    /// The files of L0, newest first.
    pub fn l0(&self) -> &[Arc<TableFile>] {
        &self.levels[0]
    }

    /// How many runs of L0 a read may have to look through, those with nothing but clues not counted.
    pub fn l0_depth(&self) -> usize {
        self.l0().iter().filter(|table| !table.meta().is_clue_only()).count()
    }

    /// Clue entries in all tables, and the bytes of their user keys.
    pub fn clues(&self) -> (u64, u64) {
        self.levels.iter().fold((0, 0), |(n, b), level| (n + level.clues.0, b + level.clues.1))
    }

    /// Whether a table may have a clue with a sequence number up to `last`.
    pub fn has_clues_up_to(&self, last: SeqNo) -> bool {
        self.clues().0 > 0 && self.all_tables().any(|(_, table)| table.meta().has_clues_up_to(last))
    }

    /// Bytes of entries redirected here, keys and values.
    pub fn redirected_bytes(&self) -> u64 {
        self.levels.iter().map(|level| level.redirected_bytes).sum()
    }

    /// The files of a level.
    ///
    /// # Panics
    /// If `level` is not below [`LEVELS`]; so for all methods that take one.
    pub fn level(&self, level: usize) -> &Arc<Level> {
        &self.levels[level]
    }

    /// All levels, L0 first.
    pub fn levels(&self) -> &[Arc<Level>; LEVELS] {
        &self.levels
    }

    /// All tables with their levels, L0 first.
    pub fn all_tables(&self) -> impl Iterator<Item = (u8, &Arc<TableFile>)> {
        self.levels.iter().enumerate().flat_map(|(level, files)| files.iter().map(move |f| (level as u8, f)))
    }

    /// How many tables a level has.
    pub fn table_count(&self, level: usize) -> usize {
        self.levels[level].len()
    }

    /// Size of a level's files, in bytes.
    pub fn level_bytes(&self, level: usize) -> u64 {
        self.levels[level].bytes()
    }

    /// The one table of a level deeper than L0 that may hold `key`.
    pub fn find_table(&self, level: usize, key: &[u8]) -> Option<&Arc<TableFile>> {
        debug_assert!(level > 0, "L0 has no single table for a key");
        self.levels[level].find(&self.comparator, key)
    }

    /// The files of a level that meet the user keys `lo..=hi` (`None`: unbounded), in level order.
    pub fn overlapping(&self, level: usize, lo: Option<&[u8]>, hi: Option<&[u8]>) -> Vec<Arc<TableFile>> {
        self.meeting(level, lo, hi.map(KeyEnd::at))
    }

    /// The files of a level that meet the user keys from `lo` (inclusive) to `hi` (`None`: unbounded),
    /// in level order.
    pub fn meeting(&self, level: usize, lo: Option<&[u8]>, hi: Option<KeyEnd<'_>>) -> Vec<Arc<TableFile>> {
        if level > 0 {
            let range = self.levels[level].meeting(&self.comparator, lo, hi);
            return self.levels[level][range].to_vec();
        }
        let meets = |f: &&Arc<TableFile>| {
            lo.is_none_or(|lo| f.reaches(&self.comparator, lo))
                && hi.is_none_or(|hi| hi.reaches(&self.comparator, f.smallest_user()))
        };
        self.l0().iter().filter(meets).cloned().collect()
    }

    /// The next version: without `removed`, with `added` (level and file) put in their places.
    /// A file may be removed and added in one call: that is a move.
    ///
    /// # Errors
    /// `Corruption` if a removed file is not there, a level does not exist, or the result breaks
    /// an invariant; `Callback` if the user's comparator panics. This version is unchanged then.
    pub fn apply(&self, removed: &[Removed], added: &[(u8, Arc<TableFile>)]) -> Result<Version> {
        let watch = Watch::begin(&self.comparator);
        let next = self.apply_watched(removed, added).map_err(|error| watch.cause(error))?;
        watch.check()?;
        Ok(next)
    }

    fn apply_watched(&self, removed: &[Removed], added: &[(u8, Arc<TableFile>)]) -> Result<Version> {
        let mut levels: [Option<Vec<Arc<TableFile>>>; LEVELS] = Default::default();
        for &(level, number) in removed {
            let files = self.touch(&mut levels, level)?;
            let before = files.len();
            files.retain(|f| f.number() != number);
            if files.len() + 1 != before {
                return Err(Error::corruption(format!(
                    "an edit removes file {number}, which is not on L{level}"
                )));
            }
        }
        for (level, file) in added {
            self.touch(&mut levels, *level)?.push(Arc::clone(file));
        }
        let mut next = self.clone();
        for (at, files) in levels.into_iter().enumerate() {
            let Some(mut files) = files else { continue };
            if at == 0 {
                files.sort_by_key(|f| std::cmp::Reverse(f.meta().epoch));
            } else {
                self.sort_by_key(&mut files);
            }
            next.levels[at] = Arc::new(Level::new(files));
            next.check_level(at)?;
        }
        if !added.is_empty() {
            next.check_numbers()?;
        }
        Ok(next)
    }

    fn sort_by_key(&self, files: &mut Vec<Arc<TableFile>>) {
        if matches!(self.comparator, Comparator::Custom(_)) {
            // By first user keys alone: of tables that share one the level is refused anyway.
            let order = sorted_by(&self.comparator, files.len(), |at| files[at].smallest_user());
            *files = order.into_iter().map(|at| files[at].clone()).collect();
            return;
        }
        let key = |f: &TableFile| f.smallest_prefix();
        files.sort_by(|a, b| {
            let by_key = || self.comparator.compare_internal(&a.meta().smallest, &b.meta().smallest);
            key(a).cmp(&key(b)).then_with(by_key)
        });
    }

    fn touch<'a>(
        &self,
        levels: &'a mut [Option<Vec<Arc<TableFile>>>; LEVELS],
        level: u8,
    ) -> Result<&'a mut Vec<Arc<TableFile>>> {
        let at = usize::from(level);
        let slot = levels
            .get_mut(at)
            .ok_or_else(|| Error::corruption(format!("an edit names level {level} of {LEVELS}")))?;
        Ok(slot.get_or_insert_with(|| self.levels[at].files.clone()))
    }

    /// Checks all that this module promises of a version.
    ///
    /// # Errors
    /// `Corruption`, naming the files that break it.
    pub fn check_invariants(&self) -> Result<()> {
        for level in 0..LEVELS {
            self.check_level(level)?;
        }
        self.check_numbers()
    }

    fn check_level(&self, level: usize) -> Result<()> {
        let files = &self.levels[level];
        for file in files.iter() {
            let meta = file.meta();
            if self.comparator.compare_internal(&meta.smallest, &meta.largest).is_gt() {
                return Err(Error::corruption(format!("file {} ends before it starts", meta.number)));
            }
        }
        for pair in files.windows(2) {
            let (a, b) = (&pair[0], &pair[1]);
            let in_order = match level {
                0 => a.meta().epoch > b.meta().epoch,
                _ => !a.reaches(&self.comparator, b.smallest_user()),
            };
            if !in_order {
                let what = if level == 0 { "share an epoch on" } else { "overlap on" };
                let text = format!("files {} and {} {what} L{level}", a.number(), b.number());
                return Err(Error::corruption(text));
            }
        }
        Ok(())
    }

    fn check_numbers(&self) -> Result<()> {
        let mut numbers: Vec<FileNumber> =
            self.levels.iter().flat_map(|level| level.iter()).map(|file| file.number()).collect();
        numbers.sort_unstable();
        match numbers.windows(2).find(|pair| pair[0] == pair[1]) {
            None => Ok(()),
            Some(twice) => Err(Error::corruption(format!("file {} stands twice in a version", twice[0]))),
        }
    }
}

impl fmt::Debug for Version {
    /// One line a file, no keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, level) in self.levels.iter().enumerate().filter(|(_, level)| !level.is_empty()) {
            writeln!(f, "L{at}: {} files, {} B", level.len(), level.bytes())?;
            for file in level.iter() {
                writeln!(f, "  {file:?}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
