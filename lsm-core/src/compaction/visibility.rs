//! Which entries of a merge go on, and which nobody can see any more (C4).
//!
//! A streaming filter: it looks at the versions of a key newest first, holds back at most one
//! tombstone and one chain of operands (`fold`), and allocates nothing for other entries.
//!
//! ```text
//! snapshots     4            9           15 = visible when the compaction began
//! stripes   0: ..=4      1: 5..=9     2: 10..=15      unpublished: 16..
//! ```
//! Two versions in one stripe look the same to every snapshot but for the newer hiding the older.
//!
//! | entry | goes on, unless |
//! |---|---|
//! | Put | a Put or Delete of its stripe hides it |
//! | Merge | a Put or tombstone of its stripe hides it; with an operator it is folded into what lies below in its stripe |
//! | Delete | hidden as above; or nothing older is left of the key, here or below |
//! | SingleDelete | a Delete of its stripe hides it; or the next older entry is a Put of its stripe: both go; or a tombstone of its stripe: it goes; or nothing older is left |
//! | any of these | a range tombstone of its stripe covers it: it goes first, as if it had not been there |
//! | clue of a value | as a Put, but it is nobody's base: what is folded ends above it |
//! | clue of an operand | as a Merge, but it is never folded, and nothing is folded over it |
//! | redirected entry | its primary can't need it any more; hides nothing, is not hidden, pairs with nothing (rule 3) |
//! | all other kinds | always goes on; hides nothing, is not hidden, pairs with nothing |
//!
//! INVARIANTS (attacked by `random_compactions_never_change_a_read`)
//! - Unpublished entries, above the newest snapshot given, are kept as they are and hide nothing:
//!   a snapshot may yet be taken between any two of them (rule 9 of the brief).
//! - A tombstone goes only if `may_exist` says that no older data of the key lies outside the
//!   merge, and no older entry of the key is let through after it. To know the latter it is held
//!   back until the key ends.
//! - A Put does not hide a SingleDelete: the Put may itself be taken away by a younger
//!   SingleDelete, and would uncover what lies below.
//! - Of a Put let through with sequence 0, no older entry of the key follows; sequence 0 is given
//!   only where `may_exist` is false and the oldest snapshot sees the Put, and no range tombstone that
//!   goes on spans the key: it would hide the Put.
//! - Operands are folded within one stripe, with each other and with the Put or tombstone right below;
//!   without a base only where `may_exist` is false and no older entry of the key is left. The result
//!   is treated as an entry that stood in the newest operand's place. Where the operator fails, all
//!   entries go on as without one.
//! - The output ascends. Input that does not is `Corruption`.
//!
//! Mixing Delete and SingleDelete on one key between two puts can uncover an older value, here as
//! elsewhere: a Put hides a Delete of its stripe, and may then be taken away by a SingleDelete. Merging
//! and SingleDelete go together, if a key is put only while it is absent: the Put that operands are folded
//! into takes the place of the one it came from, or lies on the SingleDelete that ended the chain,
//! which stays. A Put over operands would break the promise as one over a Put does.

use std::cmp::Ordering;

use std::sync::Arc;

use crate::callback::out_of_order;
use crate::compaction::clues::{OtherShards, Weight};
use crate::key::{Comparator, Kind, SEEK_KIND, internal_key, kind_byte_of, trailer, trailer_of, user_key};
use crate::merge_operator::MergeOperator;
use crate::metrics::{Counter, Metrics, ShardCounter};
use crate::range_del::fragments::Covering;
use crate::read::internal::InternalIter;
use crate::types::{SEQNO_MAX, SeqNo};
use crate::{Error, ErrorKind, Result, Slice};

use fold::Chain;

/// What was not let through, by reason, in entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropCounts {
    /// Entries read from the inputs.
    pub read: u64,
    /// Hidden by a newer version in the same stripe.
    pub hidden: u64,
    /// Tombstones that had nothing left to hide, or did nothing beside another tombstone.
    pub tombstones: u64,
    /// Entries that went as pairs of a SingleDelete and its Put.
    pub single_pairs: u64,
    /// Equal in key, sequence and kind to the one before.
    pub duplicates: u64,
    /// Covered by a range tombstone of the same stripe.
    pub range_deleted: u64,
    /// Operands, and bases of operands, that went into another entry.
    pub folded: u64,
    /// Values that the merge operator failed to make; not entries.
    pub failed_folds: u64,
    /// Let through with sequence 0.
    pub zeroed: u64,
    /// Clues that did not go on: hidden, or deleted.
    pub clues: u64,
    /// Clues replaced by what they stand for.
    pub rolled_back: u64,
    /// Redirected entries that no clue needs any more.
    pub redirected: u64,
}

impl DropCounts {
    /// Adds what a flush or compaction in that shard did to the database's counters.
    pub(crate) fn note(&self, metrics: &Metrics, shard: u16) {
        if self.clues + self.rolled_back + self.redirected > 0 {
            metrics.add_all(&[
                (Counter::CluesDropped, self.clues),
                (Counter::CluesRolledBack, self.rolled_back),
                (Counter::RedirectedDropped, self.redirected),
            ]);
            metrics.add_to_shard(shard, ShardCounter::CluesDropped, self.clues);
            metrics.add_to_shard(shard, ShardCounter::CluesRolledBack, self.rolled_back);
            metrics.add_to_shard(shard, ShardCounter::RedirectedDropped, self.redirected);
        }
        if self.folded + self.failed_folds + self.range_deleted > 0 {
            metrics.add_all(&[
                (Counter::RangeDeletedEntries, self.range_deleted),
                (Counter::OperandsFolded, self.folded),
                (Counter::MergeFailures, self.failed_folds),
            ]);
        }
    }
}

/// No stripe.
const NONE: usize = usize::MAX;

/// Where the entry on offer lies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Out {
    End,
    /// The source stands on it.
    Source,
    /// The source stands on it; its key is in `out_key`.
    Rewritten,
    /// It is the tombstone that was held back; the source stands behind it.
    Held,
    /// It is what became of the chain, its key in `out_key`; the source stands behind it.
    Chain,
    /// The source stands on a clue; key and value of what it stands for are in `out_key` and `out_value`.
    RolledBack,
    Failed,
}

/// What to do with the source's entry.
enum Verdict {
    Keep,
    KeepZeroed,
    Drop,
    /// Hold it back until more of its key is known.
    Hold,
    /// Fold it with what lies below.
    Fold,
    /// Let the tombstone held back go first, then look at the entry again.
    HeldFirst,
}

/// Whether newer entries and range tombstones may hide an entry of this kind.
#[inline]
fn is_plain(kind: Option<Kind>) -> bool {
    matches!(kind, Some(Kind::Put | Kind::Delete | Kind::SingleDelete | Kind::Merge)) || is_clue(kind)
}

#[inline]
fn is_clue(kind: Option<Kind>) -> bool {
    kind.is_some_and(Kind::is_clue)
}

/// What is known of the user key at hand.
struct KeyState {
    /// Trailer of the entry seen last.
    last_trailer: u64,
    /// Stripe whose older entries a Put or Delete hides.
    hidden: usize,
    /// Whether that was a Delete.
    by_delete: bool,
    /// Stripe in which a SingleDelete took its Put; older values there are hidden by that Put.
    paired: usize,
    /// A Put was let through with sequence 0.
    zeroed: bool,
    /// An entry that is no clue was read.
    native: bool,
    /// Whether older data may exist outside the merge; asked once a key.
    may_exist: Option<bool>,
}

impl KeyState {
    fn new() -> KeyState {
        KeyState {
            last_trailer: u64::MAX,
            hidden: NONE,
            by_delete: false,
            paired: NONE,
            zeroed: false,
            native: false,
            may_exist: None,
        }
    }
}

/// A tombstone held back.
struct Held {
    /// Whether there is one.
    full: bool,
    single: bool,
    stripe: usize,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// The entries of a compaction's inputs that have to be written.
pub struct CompactionIter<I, B> {
    iter: I,
    comparator: Comparator,
    /// Ascending; the last one is the sequence visible when the compaction began.
    snapshots: Vec<SeqNo>,
    zero_seqnos: bool,
    may_exist: B,
    /// End of the range, exclusive.
    end: Option<Vec<u8>>,
    /// The user key at hand, and whether there is one.
    key: Vec<u8>,
    in_key: bool,
    state: KeyState,
    /// The source's entry was looked at before, but what was held back went first.
    again: bool,
    held: Held,
    chain: Chain,
    /// Range tombstones of the inputs, if they have some.
    covering: Option<Box<Covering>>,
    others: Option<Box<OtherShards>>,
    out: Out,
    out_key: Vec<u8>,
    out_value: Slice,
    counts: DropCounts,
}

impl<I, B> CompactionIter<I, B>
where
    I: InternalIter,
    B: FnMut(&[u8]) -> bool,
{
    /// A filter over `iter`, to be positioned by [`CompactionIter::start`].
    ///
    /// `snapshots` are the sequences held, the visible one among them, in any order; entries above
    /// all of them are kept as they are. `may_exist` tells whether older data of a user key may
    /// lie outside the inputs; it is asked in ascending order. `zero_seqnos` lets Puts that all
    /// see, and that have nothing below, go on with sequence 0, which compresses better; set it
    /// only if no input holds clues or redirected entries ([`Plan::has_specials`]).
    ///
    /// [`Plan::has_specials`]: crate::compaction::Plan::has_specials
    pub fn new(
        iter: I,
        comparator: Comparator,
        mut snapshots: Vec<SeqNo>,
        zero_seqnos: bool,
        may_exist: B,
    ) -> CompactionIter<I, B> {
        snapshots.sort_unstable();
        snapshots.dedup();
        CompactionIter {
            iter,
            comparator,
            snapshots,
            zero_seqnos,
            may_exist,
            end: None,
            key: Vec::new(),
            in_key: false,
            state: KeyState::new(),
            again: false,
            held: Held { full: false, single: false, stripe: 0, key: Vec::new(), value: Vec::new() },
            chain: Chain::new(None),
            covering: None,
            others: None,
            out: Out::End,
            out_key: Vec::new(),
            out_value: Slice::copy_of(&[]),
            counts: DropCounts::default(),
        }
    }

    /// The same, folding operands with `operator`; without one they go on as they are.
    #[must_use]
    pub fn merging(mut self, operator: Option<Arc<dyn MergeOperator>>) -> CompactionIter<I, B> {
        self.chain = Chain::new(operator);
        self
    }

    /// The same without the entries that the inputs' range tombstones hide.
    #[must_use]
    pub(crate) fn covering(mut self, covering: Option<Covering>) -> CompactionIter<I, B> {
        self.covering = covering.map(Box::new);
        self
    }

    /// The same with an eye on the other shards: redirected entries go when nobody needs them, and in a
    /// rollback clues are replaced. Without, both are kept.
    #[must_use]
    pub(crate) fn among(mut self, others: Option<OtherShards>) -> CompactionIter<I, B> {
        self.others = others.map(Box::new);
        self
    }

    /// Whether the entry on offer is a clue that stays in L0 where what is older leaves it: newer than all
    /// inputs of its key that are no clues, range tombstones over it included (rule 4). Whether those
    /// go on themselves makes no difference, so that the same inputs always give the same answer.
    pub(crate) fn is_newest_clue(&mut self) -> bool {
        let trailer = trailer_of(self.key());
        if !is_clue(Kind::from_u8(trailer as u8)) || self.state.native {
            return false;
        }
        let key = &self.key;
        let is_older = |covering: &mut Box<Covering>| covering.cover(key, SEQNO_MAX) <= trailer >> 8;
        self.covering.as_mut().is_none_or(is_older)
    }

    /// To the first entry to write among the user keys from `start` (inclusive) to `end`
    /// (exclusive).
    ///
    /// # Errors
    /// Those of the inputs, and `Corruption` if they are out of order; so for
    /// [`CompactionIter::next`]. Nothing read before may then be taken for complete.
    pub fn start(&mut self, start: Option<&[u8]>, end: Option<&[u8]>) -> Result<()> {
        self.end = end.map(<[u8]>::to_vec);
        self.in_key = false;
        self.again = false;
        self.held.full = false;
        self.out = Out::Failed;
        match start {
            None => self.iter.seek_to_first()?,
            Some(key) => self.iter.seek(&internal_key(key, SEQNO_MAX, SEEK_KIND))?,
        }
        self.find()
    }

    /// Whether there is an entry to write. `false` after a call that returned `Ok` is the end.
    #[inline]
    pub fn valid(&self) -> bool {
        !matches!(self.out, Out::End | Out::Failed)
    }

    /// Its internal key. Lives until the iterator is moved; so does the value.
    ///
    /// # Panics
    /// If not [`valid`](CompactionIter::valid); so for `value`.
    #[inline]
    pub fn key(&self) -> &[u8] {
        match self.out {
            Out::Source => self.iter.key(),
            Out::Rewritten | Out::Chain | Out::RolledBack => &self.out_key,
            Out::Held => &self.held.key,
            Out::End | Out::Failed => panic!("the key of a compaction that has no entry"),
        }
    }

    /// Its value.
    #[inline]
    pub fn value(&self) -> &[u8] {
        match self.out {
            Out::Source | Out::Rewritten => self.iter.value(),
            Out::Held => &self.held.value,
            Out::Chain => self.chain.value(),
            Out::RolledBack => &self.out_value,
            Out::End | Out::Failed => panic!("the value of a compaction that has no entry"),
        }
    }

    /// To the next entry to write. At the end it stays there.
    ///
    /// # Errors
    /// As [`CompactionIter::start`]; after an error, `Internal`.
    #[inline]
    #[allow(
        clippy::should_implement_trait,
        reason = "a cursor that is read in place and can fail is no Iterator"
    )]
    pub fn next(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.out, Out::Failed) {
            Out::Source | Out::Rewritten | Out::RolledBack => self.iter.next()?,
            Out::Held => {}
            Out::Chain => {
                if self.chain.advance() {
                    self.offer_operand();
                    return Ok(());
                }
            }
            Out::End => {
                self.out = Out::End;
                return Ok(());
            }
            Out::Failed => {
                return Err(Error::new(ErrorKind::Internal, "a compaction went on after an error"));
            }
        }
        self.find()
    }

    /// What was left out so far.
    pub fn counts(&self) -> DropCounts {
        self.counts
    }

    /// From the source's entry on, the first one to write.
    fn find(&mut self) -> Result<()> {
        loop {
            if !self.iter.valid() {
                self.out = if self.end_key() { Out::Held } else { Out::End };
                return Ok(());
            }
            let internal = self.iter.key();
            let (key, trailer) = (user_key(internal), trailer_of(internal));
            let order = if self.in_key { self.comparator.compare(key, &self.key) } else { Ordering::Greater };
            match order {
                Ordering::Greater => {
                    if self.held.full && self.end_key() {
                        self.out = Out::Held;
                        return Ok(());
                    }
                    let key = user_key(self.iter.key());
                    if let Some(end) = &self.end
                        && self.comparator.compare(key, end).is_ge()
                    {
                        self.out = Out::End;
                        return Ok(());
                    }
                    self.key.clear();
                    self.key.extend_from_slice(key);
                    self.in_key = true;
                    self.state = KeyState::new();
                }
                Ordering::Equal if trailer == self.state.last_trailer && !self.again => {
                    self.counts.read += 1;
                    self.counts.duplicates += 1;
                    self.iter.next()?;
                    continue;
                }
                Ordering::Equal if trailer <= self.state.last_trailer => {}
                Ordering::Equal | Ordering::Less => {
                    let text = "the inputs of a compaction are out of order";
                    return Err(out_of_order(&self.comparator, ErrorKind::Corruption, text));
                }
            }
            self.state.last_trailer = trailer;
            if self.covering.is_some() && self.is_covered(trailer) {
                self.counts.read += 1;
                self.counts.range_deleted += 1;
                self.counts.clues += u64::from(is_clue(Kind::from_u8(trailer as u8)));
                self.note_native(trailer);
                self.iter.next()?;
                continue;
            }
            if self.apply(trailer)? {
                return Ok(());
            }
        }
    }

    /// Decides on the source's entry; `true` if one is on offer then.
    #[inline]
    fn apply(&mut self, trailer_bits: u64) -> Result<bool> {
        let verdict = self.decide(trailer_bits)?;
        if matches!(verdict, Verdict::HeldFirst) {
            self.held.full = false;
            self.again = true;
            self.out = Out::Held;
            return Ok(true);
        }
        self.again = false;
        self.counts.read += 1;
        self.note_native(trailer_bits);
        match verdict {
            Verdict::Keep => {
                self.out = Out::Source;
                if let Some(kind) = Kind::from_u8(trailer_bits as u8).filter(|kind| kind.is_clue()) {
                    self.roll_back(trailer_bits, kind)?;
                }
            }
            Verdict::KeepZeroed => {
                self.set_out_key(trailer(0, Kind::Put as u8));
                self.out = Out::Rewritten;
            }
            Verdict::Fold => self.fold(trailer_bits)?,
            Verdict::Hold => {
                self.held.full = true;
                self.held.key.clear();
                self.held.key.extend_from_slice(self.iter.key());
                self.held.value.clear();
                self.held.value.extend_from_slice(self.iter.value());
                self.iter.next()?;
                return Ok(false);
            }
            Verdict::Drop | Verdict::HeldFirst => {
                self.counts.clues += u64::from(is_clue(Kind::from_u8(trailer_bits as u8)));
                self.iter.next()?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a range tombstone of its own stripe hides the source's entry, which is one of the key at
    /// hand.
    fn is_covered(&mut self, trailer: u64) -> bool {
        let (seqno, kind) = (trailer >> 8, Kind::from_u8(trailer as u8));
        let Some(&upto) = self.snapshots.get(self.stripe_of(seqno)) else { return false };
        is_plain(kind) && self.covering.as_mut().is_some_and(|c| c.cover(&self.key, upto) > seqno)
    }

    #[inline]
    fn stripe_of(&self, seqno: SeqNo) -> usize {
        match self.snapshots.first() {
            Some(&oldest) if seqno <= oldest => 0,
            _ => self.snapshots.partition_point(|&s| s < seqno),
        }
    }

    #[inline]
    fn decide(&mut self, trailer: u64) -> Result<Verdict> {
        let seqno = trailer >> 8;
        let kind = Kind::from_u8(kind_byte_of(self.iter.key()));
        let stripe = self.stripe_of(seqno);
        let published = stripe < self.snapshots.len();
        if kind.is_some_and(Kind::is_redirected) && !self.is_needed(seqno)? {
            return Ok(Verdict::Drop);
        }
        let mut weight = Weight::Full;
        if is_clue(kind)
            && let Some(others) = &self.others
        {
            weight = others.weigh(seqno, self.iter.value())?;
            if weight == Weight::None {
                return Ok(Verdict::Drop);
            }
        }
        if !is_plain(kind) || !published {
            if self.state.zeroed {
                // Its sequence would now sort before the Put that stood above it.
                let text = "sequence 0 was given above an entry that has to stay";
                return Err(Error::new(ErrorKind::Internal, text));
            }
            return Ok(if self.held.full { Verdict::HeldFirst } else { Verdict::Keep });
        }
        let kind = kind.expect("a plain kind is a known one");
        if self.held.full
            && let Some(verdict) = self.beside_held(kind, stripe)
        {
            return Ok(verdict);
        }
        let hidden = (self.state.hidden, self.state.by_delete);
        let verdict = self.decide_plain(kind, stripe, seqno);
        if weight == Weight::Light {
            (self.state.hidden, self.state.by_delete) = hidden;
        }
        Ok(verdict)
    }

    /// The entry behind a tombstone held back; `None` if that is gone now and the entry is decided
    /// as any other.
    fn beside_held(&mut self, kind: Kind, stripe: usize) -> Option<Verdict> {
        if stripe != self.held.stripe {
            return Some(Verdict::HeldFirst);
        }
        if !self.held.single {
            self.counts.hidden += 1;
            return Some(Verdict::Drop);
        }
        match kind {
            Kind::Put | Kind::ClueValue => {
                self.held.full = false;
                self.counts.single_pairs += 2;
                self.state.paired = stripe;
                Some(Verdict::Drop)
            }
            Kind::Merge | Kind::ClueOperand => {
                self.counts.hidden += 1;
                Some(Verdict::Drop)
            }
            _ => {
                // Nothing was put between two tombstones: the younger one has nothing to do.
                self.held.full = false;
                self.counts.tombstones += 1;
                None
            }
        }
    }

    #[inline]
    fn decide_plain(&mut self, kind: Kind, stripe: usize, seqno: SeqNo) -> Verdict {
        let hidden = self.state.hidden == stripe;
        match kind {
            Kind::SingleDelete if hidden && self.state.by_delete => {
                self.counts.tombstones += 1;
                Verdict::Drop
            }
            Kind::SingleDelete => {
                (self.held.single, self.held.stripe) = (true, stripe);
                Verdict::Hold
            }
            Kind::Delete if hidden => {
                self.counts.hidden += 1;
                Verdict::Drop
            }
            Kind::Delete => {
                (self.state.hidden, self.state.by_delete) = (stripe, true);
                if self.may_exist() {
                    return Verdict::Keep;
                }
                (self.held.single, self.held.stripe) = (false, stripe);
                Verdict::Hold
            }
            _ if hidden || self.state.paired == stripe => {
                self.counts.hidden += 1;
                Verdict::Drop
            }
            Kind::Put if self.put_is_zeroed(stripe, seqno) => Verdict::KeepZeroed,
            Kind::ClueValue => {
                (self.state.hidden, self.state.by_delete) = (stripe, false);
                Verdict::Keep
            }
            Kind::Merge if self.chain.operator.is_some() => Verdict::Fold,
            _ => Verdict::Keep,
        }
    }

    /// Notes whether the source's entry is one that older clues must not stay above.
    fn note_native(&mut self, trailer: u64) {
        match Kind::from_u8(trailer as u8) {
            Some(kind) if kind.is_clue() || kind.is_redirected() => {}
            _ => self.state.native = true,
        }
    }

    /// Whether the redirected entry that the source stands on may still be asked for.
    fn is_needed(&mut self, seqno: SeqNo) -> Result<bool> {
        let Some(others) = &mut self.others else { return Ok(true) };
        let is_needed = others.is_needed(&self.key, seqno)?;
        self.counts.redirected += u64::from(!is_needed);
        Ok(is_needed)
    }

    /// The source stands on a clue that goes on: offers what it stands for, in a rollback.
    #[cold]
    fn roll_back(&mut self, trailer_bits: u64, kind: Kind) -> Result<()> {
        let Some(others) = self.others.as_mut().filter(|others| others.is_rollback()) else { return Ok(()) };
        let Some((kind, value)) = others.follow(&self.key, trailer_bits >> 8, kind, self.iter.value())?
        else {
            return Ok(());
        };
        self.set_out_key(trailer(trailer_bits >> 8, kind as u8));
        self.out_value = value;
        self.out = Out::RolledBack;
        self.counts.rolled_back += 1;
        Ok(())
    }

    /// A Put goes on: whether with sequence 0.
    #[inline]
    fn put_is_zeroed(&mut self, stripe: usize, seqno: SeqNo) -> bool {
        (self.state.hidden, self.state.by_delete) = (stripe, false);
        if self.zero_seqnos && stripe == 0 && seqno != 0 && !self.may_exist() && !self.under_kept() {
            self.state.zeroed = true;
            self.counts.zeroed += 1;
            return true;
        }
        false
    }

    /// Whether a range tombstone over the key at hand goes on.
    fn under_kept(&mut self) -> bool {
        self.covering.as_mut().is_some_and(|covering| covering.is_kept(&self.key))
    }

    /// The source's entry goes on under another trailer. Its own bytes: `self.key` may be others, where
    /// the order calls them equal.
    fn set_out_key(&mut self, trailer: u64) {
        self.out_key.clear();
        self.out_key.extend_from_slice(user_key(self.iter.key()));
        self.out_key.extend_from_slice(&trailer.to_le_bytes());
    }

    fn set_out_trailer(&mut self, trailer: u64) {
        self.out_key.truncate(self.out_key.len() - size_of::<u64>());
        self.out_key.extend_from_slice(&trailer.to_le_bytes());
    }

    fn may_exist(&mut self) -> bool {
        *self.state.may_exist.get_or_insert_with(|| (self.may_exist)(&self.key))
    }

    /// The key at hand has no more entries: whether the tombstone held back has to be written.
    fn end_key(&mut self) -> bool {
        if !std::mem::replace(&mut self.held.full, false) {
            return false;
        }
        let write = self.held.single && self.may_exist();
        self.counts.tombstones += u64::from(!write);
        write
    }
}

mod fold;
#[cfg(test)]
mod tests;
