//! One shard's part of a long scan, packed into blocks of entries (internal keys and values).
//!
//! It leaves out what nobody above can want, so that it need not be copied: entries above the snapshot, all
//! at or behind the upper bound, and what a value or tombstone of the same shard hides. What it leaves to
//! [`DbIter`](crate::read::db_iter::DbIter) is all that takes two shards or the merge operator to decide: clues,
//! redirected entries and operands come out as they are.
//!
//! INVARIANTS
//! - A clue hides nothing here: whether it counts, its value decides, which is in another shard.
//! - A redirected entry is hidden by nothing: only its clue says whether it counts (rule 3).
//! - An error ends the way; no block is given that the error cut short.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::Result;
use crate::callback::Watch;
use crate::key::{Comparator, Kind, SEEK_KIND, append_internal, kind_byte_of, seqno_of, user_key};
use crate::read::db_iter::RESEEK_AFTER;
use crate::read::internal::InternalIter;
use crate::read::scan_source::TreeScan;
use crate::scan::ScanBatch;
use crate::types::SeqNo;

/// Entries passed in one go, packed or not: a wide stretch of tombstones must not keep a halt waiting.
const STEPS_MAX: u32 = 1 << 16;

/// A halt is looked for once in so many entries.
const STEPS_BETWEEN_LOOKS: u32 = 64;

/// See the module header.
pub(crate) struct Producer {
    source: TreeScan,
    comparator: Comparator,
    snapshot: SeqNo,
    /// Exclusive.
    upper: Option<Box<[u8]>>,
    /// Its older versions are hidden, if there is one.
    hiding: Option<Vec<u8>>,
    /// Entries that were hidden one after the other.
    run: u32,
    target: Vec<u8>,
    is_over: bool,
}

impl Producer {
    /// From where `source` stands, going forward.
    pub(crate) fn new(
        source: TreeScan,
        comparator: Comparator,
        snapshot: SeqNo,
        upper: Option<&[u8]>,
    ) -> Producer {
        let (hiding, target) = (None, Vec::new());
        let is_over = !source.valid();
        Producer {
            source,
            comparator,
            snapshot,
            upper: upper.map(Box::from),
            hiding,
            run: 0,
            target,
            is_over,
        }
    }

    pub(crate) fn source(&self) -> &TreeScan {
        &self.source
    }

    /// Whether nothing follows what was packed so far.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Packs what follows into `block`, about `bytes_max` bytes. It may stay empty though more follows.
    ///
    /// # Errors
    /// Those of the files below; `Callback` if the user's comparator panicked. Not to be called again then.
    pub(crate) fn fill(
        &mut self,
        block: &mut ScanBatch,
        bytes_max: usize,
        is_halted: &AtomicBool,
    ) -> Result<()> {
        block.clear();
        let watch = Watch::begin(&self.comparator);
        // Whether the last entry packed hides its older versions; spares a copy of each key.
        let mut last_hides = false;
        let mut steps = 0;
        while self.source.valid() && block.bytes() < bytes_max && steps < STEPS_MAX {
            if steps.is_multiple_of(STEPS_BETWEEN_LOOKS) && is_halted.load(Ordering::Relaxed) {
                break;
            }
            steps += 1;
            let internal = self.source.key();
            let (user, seqno, kind) = (user_key(internal), seqno_of(internal), kind_byte_of(internal));
            let hiding =
                if last_hides { Some(user_key(block.key(block.len() - 1))) } else { self.hiding.as_deref() };
            let is_hidden = hiding.is_some_and(|key| self.comparator.compare(user, key).is_eq())
                && kind != Kind::RedirectedValue as u8
                && kind != Kind::RedirectedOperand as u8;
            if is_hidden {
                self.pass((0, 0))?;
                continue;
            }
            if self.upper.as_deref().is_some_and(|upper| self.comparator.compare(user, upper).is_ge()) {
                self.is_over = true;
                break;
            }
            if seqno > self.snapshot {
                self.pass((self.snapshot, SEEK_KIND))?;
                continue;
            }
            self.run = 0;
            if kind == Kind::Delete as u8 || kind == Kind::SingleDelete as u8 {
                let mut key = self.hiding.take().unwrap_or_default();
                key.clear();
                key.extend_from_slice(user);
                (self.hiding, last_hides) = (Some(key), false);
            } else {
                block.push(internal, self.source.value())?;
                if kind == Kind::Put as u8 {
                    last_hides = true;
                } else if last_hides {
                    // Of another key, or one that nothing hides: nothing behind it is of the key before.
                    (self.hiding, last_hides) = (None, false);
                }
            }
            self.source.next()?;
        }
        if last_hides {
            let key = user_key(block.key(block.len() - 1));
            let kept = self.hiding.get_or_insert_default();
            kept.clear();
            kept.extend_from_slice(key);
        }
        self.is_over |= !self.source.valid();
        watch.check()
    }

    /// Steps over an entry that does not count; after many, seeks to (its key, `seqno`, `kind`), behind them.
    fn pass(&mut self, (seqno, kind): (SeqNo, u8)) -> Result<()> {
        self.run += 1;
        // An order of the user's may lead a seek anywhere.
        if self.run <= RESEEK_AFTER || matches!(self.comparator, Comparator::Custom(_)) {
            return self.source.next();
        }
        self.run = 0;
        self.target.clear();
        append_internal(&mut self.target, user_key(self.source.key()), seqno, kind);
        self.source.seek(&self.target)
    }
}
