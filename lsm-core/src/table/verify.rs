//! The deep check of one table: every byte read, every claim compared with what is there.

use std::cmp::Ordering;

use super::format;
use super::properties::Properties;
use super::reader::TableReader;
use super::writer::count_special;
use super::{IterSpec, ReadStats};
use crate::callback::out_of_order;
use crate::key::{self, Kind, TRAILER_BYTES};
use crate::read::internal::InternalIter;
use crate::types::SEQNO_MAX;
use crate::{Error, ErrorKind, Result, checksum};

use std::sync::Arc;

const CHECKSUM_PIECE_BYTES: usize = 1 << 20;

/// What [`TableReader::verify_all`] counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Bytes of the file.
    pub file_bytes: u64,
    /// CRC32C over all of them, to be compared with the manifest's.
    pub checksum: u32,
    /// Entries.
    pub entries: u64,
    /// Deletes and single deletes among them.
    pub deletes: u64,
    /// Range tombstones among them.
    pub range_deletes: u64,
    /// Data blocks.
    pub data_blocks: u64,
    /// Distinct user keys.
    pub user_keys: u64,
    /// What was read.
    pub stats: ReadStats,
}

/// Compares what the properties say with what was counted.
fn agree(what: &str, said: u64, found: u64) -> Result<()> {
    if said == found {
        return Ok(());
    }
    Err(Error::corruption(format!("the properties say {said} {what}, the table has {found}")))
}

impl TableReader {
    /// Reads the whole table and checks each block's checksum and codec, the order of all keys,
    /// their places between the index separators, bounds, counts and sums in the properties, and
    /// that the filter knows every key and, made with the keyspace's extractor, every prefix.
    ///
    /// # Errors
    /// `Corruption` naming the first thing that is wrong; those of the file.
    pub fn verify_all(self: &Arc<TableReader>) -> Result<VerifyReport> {
        self.verify_inner().map_err(|e| self.located(e))
    }

    fn verify_inner(self: &Arc<TableReader>) -> Result<VerifyReport> {
        let mut report = self.verify_entries()?;
        self.verify_separators()?;
        report.file_bytes = self.footer.file_bytes;
        report.data_blocks =
            self.index.len() as u64 + self.range_dels.as_ref().map_or(0, |section| section.blocks);
        let p = self.properties();
        agree("data blocks", p.data_blocks, report.data_blocks)?;
        let mut piece = vec![0; CHECKSUM_PIECE_BYTES.min(report.file_bytes as usize)];
        let mut at = 0;
        while at < report.file_bytes {
            let n = (report.file_bytes - at).min(piece.len() as u64) as usize;
            format::read_exact(&*self.file, &mut piece[..n], at)?;
            report.checksum = checksum::extend(report.checksum, &piece[..n]);
            at += n as u64;
        }
        Ok(report)
    }

    fn verify_entries(self: &Arc<TableReader>) -> Result<VerifyReport> {
        let mut report = VerifyReport::default();
        let (mut raw_key_bytes, mut raw_value_bytes) = (0, 0);
        let (mut seqno_min, mut seqno_max) = (SEQNO_MAX, 0);
        let (mut first, mut last) = (Vec::new(), Vec::new());
        let mut special = Properties::default();
        let mut it = self.iter(IterSpec::whole_table());
        it.seek_to_first()?;
        while it.valid() {
            let internal = it.key();
            let kind = Kind::from_u8(key::kind_byte_of(internal));
            if internal.len() > key::KEY_BYTES_MAX + TRAILER_BYTES || kind.is_none() {
                return Err(Error::corruption(format!("entry {} has no valid key", report.entries)));
            }
            if report.entries == 0 {
                first.extend_from_slice(internal);
            } else if self.comparator.compare_internal(&last, internal) != Ordering::Less {
                let text = format!("entry {} is out of order", report.entries);
                return Err(out_of_order(&self.comparator, ErrorKind::Corruption, &text));
            }
            let user = key::user_key(internal);
            let fresh = report.entries == 0 || key::user_key(&last) != user;
            if fresh && self.filter_denies(user) {
                return Err(Error::corruption(format!("the filter denies entry {}", report.entries)));
            }
            report.user_keys += u64::from(fresh);
            report.entries += 1;
            report.deletes += u64::from(matches!(kind, Some(Kind::Delete | Kind::SingleDelete)));
            let value_bytes = it.value().len() as u64;
            count_special(&mut special, key::kind_byte_of(internal), user.len() as u64, value_bytes);
            raw_key_bytes += internal.len() as u64;
            raw_value_bytes += it.value().len() as u64;
            seqno_min = seqno_min.min(key::seqno_of(internal));
            seqno_max = seqno_max.max(key::seqno_of(internal));
            last.clear();
            last.extend_from_slice(internal);
            it.next()?;
        }
        let mut counted = Properties {
            entries: report.entries,
            raw_key_bytes,
            raw_value_bytes,
            seqno_min: if report.entries == 0 { 0 } else { seqno_min },
            seqno_max,
            smallest: first,
            largest: last,
            ..Properties::default()
        };
        // Checked one by one when the table was opened.
        if let Some(section) = &self.range_dels {
            section.counts.add_to(&self.comparator, &mut counted);
        }
        (report.entries, report.range_deletes) = (counted.entries, counted.range_deletes);
        let p = self.properties();
        agree("entries", p.entries, report.entries)?;
        agree("deletes", p.deletes, report.deletes)?;
        agree("range tombstones", p.range_deletes, report.range_deletes)?;
        agree("clues", p.clues, special.clues)?;
        agree("bytes of clues", p.clue_bytes, special.clue_bytes)?;
        agree("redirected entries", p.redirected, special.redirected)?;
        agree("bytes of redirected entries", p.redirected_bytes, special.redirected_bytes)?;
        agree("bytes of keys", p.raw_key_bytes, counted.raw_key_bytes)?;
        agree("bytes of values", p.raw_value_bytes, counted.raw_value_bytes)?;
        if report.entries > 0 {
            agree("as smallest sequence", p.seqno_min, counted.seqno_min)?;
            agree("as largest sequence", p.seqno_max, counted.seqno_max)?;
        }
        if p.smallest != counted.smallest || p.largest != counted.largest {
            return Err(Error::corruption("the properties name other bounds than the table has"));
        }
        report.stats = *it.stats();
        Ok(report)
    }

    /// Whether the filter would hide this key from a look-up or from a scan of its prefix.
    fn filter_denies(&self, user: &[u8]) -> bool {
        let Some(filter) = &self.filter else { return false };
        [self.point_hash(filter, user), self.prefix_hash(user)]
            .into_iter()
            .flatten()
            .any(|hash| !filter.may_contain(hash))
    }

    /// Each block's keys lie after the separator before it and up to its own.
    fn verify_separators(self: &Arc<TableReader>) -> Result<()> {
        let mut it = self.iter(IterSpec::whole_table());
        for i in 0..self.index.len() {
            let (first, last) = it.block_bounds(i)?;
            let cmp = &self.comparator;
            let before = i.checked_sub(1).map(|i| self.index.separator(i));
            let low = before.is_some_and(|s| cmp.compare_internal(&first, s) != Ordering::Greater);
            if low || cmp.compare_internal(&last, self.index.separator(i)) == Ordering::Greater {
                let text = format!("data block {i} lies outside its index separators");
                return Err(Error::corruption(text).at_offset(self.index.handle(i).offset));
            }
        }
        Ok(())
    }
}
