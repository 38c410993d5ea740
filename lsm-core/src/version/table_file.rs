//! One table as a version sees it: what the manifest says of it, and its state while the database
//! is open.
//!
//! INVARIANT: a claim is set before a job reads its first input and cleared when the job has been
//! installed or given up; the picker never plans over a claimed file. Claims live here, not in a
//! set of their own, so that a file that leaves the version takes its claim with it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::engine::Engine;
use crate::handoff::{Handoff, NewFile};
use crate::key::{Comparator, is_range_end, user_key};
use crate::obsolete::Graveyard;
use crate::types::{FileNumber, SeqNo, TablePlace};
use crate::version::edit::TableDesc;

/// What is known of a table without opening it; the same on every level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableMeta {
    /// Its file.
    pub number: FileNumber,
    /// The directory it lies in; 0 is the database's own.
    pub dir_id: u8,
    /// Size of the file, in bytes.
    pub file_bytes: u64,
    /// Checksum over the whole file.
    pub checksum: u32,
    /// Place in L0: greater is newer. Given at flush; says nothing on deeper levels.
    pub epoch: u64,
    /// First internal key, be it a range tombstone's.
    pub smallest: Vec<u8>,
    /// Last internal key, or the exclusive end of a range tombstone ([`crate::key::range_end`]).
    pub largest: Vec<u8>,
    /// Smallest sequence number inside.
    pub seqno_min: SeqNo,
    /// Largest sequence number inside.
    pub seqno_max: SeqNo,
    /// Number of entries, range tombstones aside.
    pub entries: u64,
    /// How many of them are tombstones of one key.
    pub deletes: u64,
    /// Number of range tombstones.
    pub range_deletes: u64,
    /// Bytes of all keys before compression.
    pub raw_key_bytes: u64,
    /// Bytes of all values before compression.
    pub raw_value_bytes: u64,
    /// Number of clue entries. A table with some is never trivially moved out of L0.
    pub clues: u64,
    /// Bytes of their user keys.
    pub clue_bytes: u64,
    /// No clue in it has a smaller sequence number. Exact for a table of this opening; of one that was found
    /// the manifest says no more than [`TableMeta::seqno_min`].
    pub clue_seqno_min: SeqNo,
    /// Number of entries redirected here from other shards.
    pub redirected: u64,
    /// Bytes of their user keys and values.
    pub redirected_bytes: u64,
}

impl TableMeta {
    /// Of a table just written.
    pub(crate) fn of_written(
        (dir_id, number): TablePlace,
        epoch: u64,
        written: crate::table::TableMeta,
    ) -> TableMeta {
        TableMeta {
            number,
            dir_id,
            epoch,
            file_bytes: written.file_bytes,
            checksum: written.checksum,
            smallest: written.smallest,
            largest: written.largest,
            seqno_min: written.seqno_min,
            seqno_max: written.seqno_max,
            entries: written.entries - written.range_deletes,
            deletes: written.deletes,
            range_deletes: written.range_deletes,
            raw_key_bytes: written.raw_key_bytes,
            raw_value_bytes: written.raw_value_bytes,
            clues: written.clues,
            clue_bytes: written.clue_bytes,
            clue_seqno_min: written.clue_seqno_min,
            redirected: written.redirected,
            redirected_bytes: written.redirected_bytes,
        }
    }

    /// How many entries are clues or redirected ones: where one takes part, no sequence number is zeroed.
    pub fn specials(&self) -> u64 {
        self.clues + self.redirected
    }

    /// Whether a clue in it may have a sequence number up to `last`.
    pub fn has_clues_up_to(&self, last: SeqNo) -> bool {
        self.clues > 0 && self.clue_seqno_min <= last
    }

    /// Whether there is nothing but clues in it. Such a table is no L0 depth (rule 21).
    pub fn is_clue_only(&self) -> bool {
        self.clues > 0 && self.clues == self.entries && self.range_deletes == 0
    }

    /// As the manifest has it.
    pub(crate) fn of_desc(desc: TableDesc) -> TableMeta {
        TableMeta {
            number: desc.number,
            dir_id: desc.dir_id,
            epoch: desc.epoch,
            file_bytes: desc.file_bytes,
            checksum: desc.checksum,
            smallest: desc.smallest,
            largest: desc.largest,
            seqno_min: desc.seqno_min,
            seqno_max: desc.seqno_max,
            entries: desc.entries,
            deletes: desc.deletes,
            range_deletes: desc.range_deletes,
            raw_key_bytes: desc.raw_key_bytes,
            raw_value_bytes: desc.raw_value_bytes,
            clues: desc.clues,
            clue_bytes: desc.clue_bytes,
            clue_seqno_min: desc.seqno_min,
            redirected: desc.redirected,
            redirected_bytes: desc.redirected_bytes,
        }
    }

    /// For the manifest.
    pub(crate) fn describe(&self) -> TableDesc {
        TableDesc {
            number: self.number,
            epoch: self.epoch,
            file_bytes: self.file_bytes,
            checksum: self.checksum,
            smallest: self.smallest.clone(),
            largest: self.largest.clone(),
            seqno_min: self.seqno_min,
            seqno_max: self.seqno_max,
            logged_seqno_max: 0,
            entries: self.entries,
            deletes: self.deletes,
            range_deletes: self.range_deletes,
            raw_key_bytes: self.raw_key_bytes,
            raw_value_bytes: self.raw_value_bytes,
            dir_id: self.dir_id,
            clues: self.clues,
            clue_bytes: self.clue_bytes,
            redirected: self.redirected,
            redirected_bytes: self.redirected_bytes,
        }
    }
}

/// Where a range of keys ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyEnd<'a> {
    /// The last user key, or the first one after.
    pub key: &'a [u8],
    /// Whether `key` belongs to the range.
    pub inclusive: bool,
}

impl<'a> KeyEnd<'a> {
    /// The end of a range that `key` belongs to.
    pub fn at(key: &'a [u8]) -> KeyEnd<'a> {
        KeyEnd { key, inclusive: true }
    }

    /// Whether a range with this end reaches `key`, if it starts early enough.
    #[inline]
    pub fn reaches(&self, comparator: &Comparator, key: &[u8]) -> bool {
        let order = comparator.compare(self.key, key);
        order.is_gt() || (self.inclusive && order.is_eq())
    }

    /// Whether this end lies behind `other`.
    pub fn is_after(&self, comparator: &Comparator, other: &KeyEnd<'_>) -> bool {
        let order = comparator.compare(self.key, other.key);
        order.is_gt() || (order.is_eq() && self.inclusive && !other.inclusive)
    }
}

impl fmt::Debug for KeyEnd<'_> {
    /// Shows the length only: keys stay out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyEnd({} bytes, inclusive {})", self.key.len(), self.inclusive)
    }
}

/// The compaction that holds a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// The job, a number of the caller's below 2^56.
    pub job: u64,
    /// The level it writes to.
    pub output_level: u8,
}

/// A table of a version. Shared by all versions that hold it.
pub struct TableFile {
    meta: TableMeta,
    smallest_prefix: u64,
    largest_prefix: u64,
    /// 0, or (job << 8) | (output level + 1).
    claim: AtomicU64,
    /// Where its number goes when the last version that holds it is dropped; set once the
    /// durable manifest no longer names it.
    graveyard: OnceLock<Arc<Graveyard>>,
    /// Its way to the disk, if this opening wrote it.
    fresh: Option<Arc<NewFile>>,
    /// A collection has left it, with all that it could not drop.
    collected: AtomicBool,
}

impl TableFile {
    /// A file with this description, claimed by nobody.
    ///
    /// # Panics
    /// If a boundary key is shorter than a trailer; the manifest's decoder checks that.
    pub fn new(comparator: &Comparator, meta: TableMeta) -> Arc<TableFile> {
        TableFile::with(comparator, meta, None)
    }

    /// A table just written, which is not durable yet.
    pub(crate) fn fresh(comparator: &Comparator, meta: TableMeta, file: Arc<NewFile>) -> Arc<TableFile> {
        TableFile::with(comparator, meta, Some(file))
    }

    fn with(comparator: &Comparator, meta: TableMeta, fresh: Option<Arc<NewFile>>) -> Arc<TableFile> {
        Arc::new(TableFile {
            smallest_prefix: comparator.prefix(user_key(&meta.smallest)),
            largest_prefix: comparator.prefix(user_key(&meta.largest)),
            meta,
            claim: AtomicU64::new(0),
            graveyard: OnceLock::new(),
            fresh,
            collected: AtomicBool::new(false),
        })
    }

    /// Whether its bytes and its name are durable.
    pub(crate) fn is_durable(&self) -> bool {
        self.fresh.as_ref().is_none_or(|file| file.is_durable())
    }

    /// The durable version has passed it.
    pub(crate) fn pass(&self, engine: &Engine) {
        if let Some(file) = &self.fresh {
            file.give_up();
            Handoff::let_go_of(engine, file);
        }
    }

    /// Whether a sync of it failed, so that its bytes may be gone.
    pub(crate) fn is_suspect(&self) -> bool {
        self.fresh.as_ref().is_some_and(|file| file.is_failed())
    }

    /// Waits until the outcome of its sync is known.
    pub(crate) fn wait_synced(&self, engine: &Engine) {
        self.fresh.iter().filter(|file| file.is_listed()).for_each(|file| file.wait_over(engine));
    }

    /// Notes that a collection has left it.
    pub(crate) fn set_collected(&self) {
        self.collected.store(true, Ordering::Release);
    }

    /// Whether a collection has left it.
    pub(crate) fn is_collected(&self) -> bool {
        self.collected.load(Ordering::Acquire)
    }

    /// Its description.
    pub fn meta(&self) -> &TableMeta {
        &self.meta
    }

    /// Its file number.
    pub fn number(&self) -> FileNumber {
        self.meta.number
    }

    /// Where its file lies.
    pub(crate) fn place(&self) -> TablePlace {
        (self.meta.dir_id, self.meta.number)
    }

    /// Size of the file, in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.meta.file_bytes
    }

    /// First user key.
    pub fn smallest_user(&self) -> &[u8] {
        user_key(&self.meta.smallest)
    }

    /// Last user key; whether it is in the table says [`TableFile::end`].
    pub fn largest_user(&self) -> &[u8] {
        user_key(&self.meta.largest)
    }

    /// Where the table's keys end. Exclusive if that is the end of a range tombstone: then the next
    /// table of the level may start with this key.
    pub fn end(&self) -> KeyEnd<'_> {
        KeyEnd { key: self.largest_user(), inclusive: !is_range_end(&self.meta.largest) }
    }

    /// Whether the table ends at or after the user key.
    #[inline]
    pub fn reaches(&self, comparator: &Comparator, key: &[u8]) -> bool {
        let order = comparator.compare(self.largest_user(), key);
        order.is_gt() || (order.is_eq() && !is_range_end(&self.meta.largest))
    }

    /// [`Comparator::prefix`] of the first user key.
    pub fn smallest_prefix(&self) -> u64 {
        self.smallest_prefix
    }

    /// [`Comparator::prefix`] of the last user key.
    pub fn largest_prefix(&self) -> u64 {
        self.largest_prefix
    }

    /// Size in bytes as the picker weighs it: tombstones count for the data they will remove
    /// below, once they are more than half of the entries. (Weighing each of them would make every
    /// mixed load look urgent.) The value they remove is guessed at this table's mean.
    pub fn compensated_bytes(&self) -> u64 {
        let m = &self.meta;
        let surplus = m.deletes.saturating_mul(2).saturating_sub(m.entries);
        let values = m.entries.saturating_sub(m.deletes).max(1);
        let mean_value = (m.raw_value_bytes / values).max(m.file_bytes / m.entries.max(1));
        m.file_bytes.saturating_add(surplus.saturating_mul(mean_value).saturating_mul(2))
    }

    /// Whether the user key lies within the table's key range.
    pub fn spans(&self, comparator: &Comparator, key: &[u8]) -> bool {
        comparator.compare(self.smallest_user(), key).is_le() && self.reaches(comparator, key)
    }

    /// Whether the table's key range meets the one from `lo` (inclusive) to `end`.
    pub fn overlaps(&self, comparator: &Comparator, lo: &[u8], end: KeyEnd<'_>) -> bool {
        end.reaches(comparator, self.smallest_user()) && self.reaches(comparator, lo)
    }

    /// Whether the key ranges of two tables meet.
    pub fn meets(&self, comparator: &Comparator, other: &TableFile) -> bool {
        self.overlaps(comparator, other.smallest_user(), other.end())
    }

    /// The compaction that holds this file, if one does.
    pub fn claim(&self) -> Option<Claim> {
        match self.claim.load(Ordering::Acquire) {
            0 => None,
            packed => Some(Claim { job: packed >> 8, output_level: (packed & 0xff) as u8 - 1 }),
        }
    }

    /// Whether a compaction holds this file.
    pub fn compacting(&self) -> bool {
        self.claim().is_some()
    }

    /// Takes the file for a compaction; `false` if another has it.
    pub fn try_claim(&self, claim: Claim) -> bool {
        let packed = (claim.job << 8) | (u64::from(claim.output_level) + 1);
        self.claim.compare_exchange(0, packed, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Gives the file back.
    pub fn release_claim(&self) {
        self.claim.store(0, Ordering::Release);
    }

    /// Says that the durable manifest no longer names this table: its file goes with the last
    /// version that holds it.
    pub(crate) fn set_obsolete(&self, graveyard: &Arc<Graveyard>) {
        let _ = self.graveyard.set(graveyard.clone());
    }
}

impl Drop for TableFile {
    fn drop(&mut self) {
        if let Some(graveyard) = self.graveyard.get() {
            graveyard.push(self.place());
        }
    }
}

impl fmt::Debug for TableFile {
    /// Shows numbers only: keys stay out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let m = &self.meta;
        write!(
            f,
            "{} epoch {} {} B seqno {}..={}",
            m.number, m.epoch, m.file_bytes, m.seqno_min, m.seqno_max
        )?;
        match self.claim() {
            Some(claim) => write!(f, " job {} -> L{}", claim.job, claim.output_level),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::internal_key;

    #[test]
    fn claims_exclude_each_other() {
        let meta = TableMeta {
            smallest: internal_key(b"a", 1, 7),
            largest: internal_key(b"b", 1, 7),
            ..Default::default()
        };
        let file = TableFile::new(&Comparator::Bytewise, meta);
        let claim = Claim { job: 9, output_level: 0 };
        assert!(file.try_claim(claim) && !file.try_claim(Claim { job: 10, output_level: 3 }));
        assert_eq!(file.claim(), Some(claim));
        file.release_claim();
        assert!(!file.compacting());
    }

    #[test]
    fn tombstones_weigh_only_in_the_majority() {
        let file = |deletes| {
            let meta = TableMeta {
                smallest: internal_key(b"a", 1, 7),
                largest: internal_key(b"b", 1, 7),
                entries: 100,
                deletes,
                file_bytes: 10_000,
                raw_value_bytes: 9_000,
                ..Default::default()
            };
            TableFile::new(&Comparator::Bytewise, meta).compensated_bytes()
        };
        assert_eq!(file(0), 10_000);
        assert_eq!(file(50), 10_000);
        assert!(file(60) > 10_000 && file(100) > file(60));
    }
}
