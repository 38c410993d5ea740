//! Operands that a compaction holds back until it knows what lies below them (C4).
//!
//! ```text
//! entries of one key and stripe, newest first      goes on
//! M9 M8 P7                                         P9, the full merge
//! M9 M8 D7, or M9 M8 and nothing older anywhere    P9, the full merge without base; so above a range
//!                                                  tombstone that hides what lies below
//! M9 M8, then another stripe, or unknown below     M9, the partial merge
//! any of them where the operator fails             M9 M8, as they were; then what lies below
//! ```
//! The result takes the newest operand's place: all snapshots see either all of a stripe's operands or
//! none, and readers without a snapshot see all that is published. A chain longer than
//! [`CHAIN_BYTES_MAX`] is folded in pieces, which are larger by one operand at most: memory stays bounded,
//! and the next compaction finds the pieces.

use std::sync::Arc;

use super::{CompactionIter, Out};
use crate::Result;
use crate::key::{Kind, trailer, trailer_of, user_key};
use crate::merge_operator::{MergeOperator, full, partial};
use crate::read::internal::InternalIter;
use crate::types::SeqNo;

/// Bytes of the operands held back at once; what one costs beside its bytes included.
const CHAIN_BYTES_MAX: usize = 8 << 20;
const OPERAND_BYTES: usize = 16;

/// Operands of one key and stripe; then, what goes on in their place.
pub(super) struct Chain {
    pub(super) operator: Option<Arc<dyn MergeOperator>>,
    /// The operands end to end, newest first: trailer, and where each ends in `bytes`.
    operands: Vec<(u64, usize)>,
    bytes: Vec<u8>,
    pub(super) bytes_max: usize,
    /// What the operator made of them.
    made: Option<Vec<u8>>,
    /// Without it: the operand on offer.
    at: usize,
}

impl Chain {
    pub(super) fn new(operator: Option<Arc<dyn MergeOperator>>) -> Chain {
        Chain {
            operator,
            operands: Vec::new(),
            bytes: Vec::new(),
            bytes_max: CHAIN_BYTES_MAX,
            made: None,
            at: 0,
        }
    }

    pub(super) fn clear(&mut self) {
        self.operands.clear();
        self.bytes.clear();
        if self.bytes.capacity() > 2 * CHAIN_BYTES_MAX {
            // A large operand was among them.
            self.bytes = Vec::new();
        }
        self.made = None;
        self.at = 0;
    }

    /// Adds an operand below the others.
    pub(super) fn push(&mut self, trailer: u64, operand: &[u8]) {
        self.bytes.extend_from_slice(operand);
        self.operands.push((trailer, self.bytes.len()));
    }

    pub(super) fn len(&self) -> usize {
        self.operands.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() + self.operands.len() * OPERAND_BYTES >= self.bytes_max
    }

    /// The sequence number of the newest operand, which the result takes.
    pub(super) fn seqno(&self) -> SeqNo {
        self.operands[0].0 >> 8
    }

    /// Makes a value of them; false if the operator fails, and they go on as they are.
    pub(super) fn fold_full(&mut self, key: &[u8], base: Option<&[u8]>) -> bool {
        self.fold(|operator, operands| full(operator, key, base, operands))
    }

    /// Makes one operand of them; false if the operator has none for them.
    pub(super) fn fold_partial(&mut self, key: &[u8]) -> bool {
        self.len() > 1 && self.fold(|operator, operands| partial(operator, key, operands))
    }

    fn fold(&mut self, call: impl FnOnce(&dyn MergeOperator, &[&[u8]]) -> Result<Vec<u8>>) -> bool {
        let Some(operator) = &self.operator else { return false };
        let oldest_first: Vec<&[u8]> = (0..self.len()).rev().map(|i| self.operand(i)).collect();
        self.made = call(&**operator, &oldest_first).ok();
        self.made.is_some()
    }

    fn operand(&self, i: usize) -> &[u8] {
        let start = i.checked_sub(1).map_or(0, |before| self.operands[before].1);
        &self.bytes[start..self.operands[i].1]
    }

    /// The trailer of the operand on offer; only where they go on as they are.
    pub(super) fn trailer(&self) -> u64 {
        self.operands[self.at].0
    }

    /// The value on offer.
    pub(super) fn value(&self) -> &[u8] {
        self.made.as_deref().unwrap_or_else(|| self.operand(self.at))
    }

    /// To the next operand; false if nothing is left to go on.
    pub(super) fn advance(&mut self) -> bool {
        self.at += 1;
        self.made.is_none() && self.at < self.len()
    }
}

/// What lies below an operand.
enum Below {
    /// An operand of the same stripe, with this trailer.
    Operand(u64),
    /// The operand once more.
    Duplicate,
    Put,
    Delete,
    SingleDelete,
    /// An entry that a range tombstone hides, and with it all that is older.
    Covered,
    /// No entry of the key.
    Nothing,
    /// An entry that is no base: of another stripe, or of a kind that always goes on.
    Other,
}

impl<I, B> CompactionIter<I, B>
where
    I: InternalIter,
    B: FnMut(&[u8]) -> bool,
{
    /// The source stands on an operand that nothing hides: takes it and all others right below it in
    /// its stripe, folds them, and leaves the source behind what went in.
    #[cold]
    pub(super) fn fold(&mut self, trailer_bits: u64) -> Result<()> {
        let stripe = self.stripe_of(trailer_bits >> 8);
        self.chain.clear();
        self.chain.push(trailer_bits, self.iter.value());
        let below = loop {
            self.iter.next()?;
            match self.below_operand(stripe) {
                Below::Operand(trailer) if !self.chain.is_full() => {
                    self.chain.push(trailer, self.iter.value());
                    self.counts.read += 1;
                    self.state.last_trailer = trailer;
                }
                Below::Duplicate => {
                    self.counts.read += 1;
                    self.counts.duplicates += 1;
                }
                below => break below,
            }
        };
        let folded = match below {
            Below::Put => self.chain.fold_full(&self.key, Some(self.iter.value())),
            Below::Delete | Below::SingleDelete | Below::Covered => self.chain.fold_full(&self.key, None),
            Below::Nothing if !self.may_exist() => self.chain.fold_full(&self.key, None),
            _ => {
                if self.chain.fold_partial(&self.key) {
                    self.counts.folded += self.chain.len() as u64 - 1;
                }
                self.offer_operand();
                return Ok(());
            }
        };
        if !folded {
            self.counts.failed_folds += 1;
            self.offer_operand();
            return Ok(());
        }
        self.counts.folded += self.chain.len() as u64 - 1;
        if matches!(below, Below::Put | Below::Delete) {
            self.counts.read += 1;
            self.counts.folded += 1;
            self.state.last_trailer = trailer_of(self.iter.key());
            self.iter.next()?;
        }
        let seqno = self.chain.seqno();
        let seqno = if self.put_is_zeroed(stripe, seqno) { 0 } else { seqno };
        self.set_out_key(trailer(seqno, Kind::Put as u8));
        self.out = Out::Chain;
        Ok(())
    }

    /// What the source stands on, behind an operand of the key at hand.
    fn below_operand(&mut self, stripe: usize) -> Below {
        if !self.iter.valid() {
            return Below::Nothing;
        }
        let internal = self.iter.key();
        if self.comparator.compare(user_key(internal), &self.key).is_ne() {
            return Below::Nothing;
        }
        let trailer = trailer_of(internal);
        if trailer == self.state.last_trailer {
            return Below::Duplicate;
        }
        if trailer > self.state.last_trailer || self.stripe_of(trailer >> 8) != stripe {
            // Out of order: whoever looks at it next says so.
            return Below::Other;
        }
        if self.covering.is_some() && self.is_covered(trailer) {
            return Below::Covered;
        }
        match Kind::from_u8(trailer as u8) {
            Some(Kind::Merge) => Below::Operand(trailer),
            Some(Kind::Put) => Below::Put,
            Some(Kind::Delete) => Below::Delete,
            Some(Kind::SingleDelete) => Below::SingleDelete,
            _ => Below::Other,
        }
    }

    /// Puts an operand of the chain on offer: the one that all were folded into, or one as it was.
    pub(super) fn offer_operand(&mut self) {
        self.set_out_key(self.chain.trailer());
        self.out = Out::Chain;
    }
}
