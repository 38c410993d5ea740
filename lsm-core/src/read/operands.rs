//! The operands of one key on their way to a value, as reads gather them (R3, C3).
//!
//! Reads meet the newest operand first and the base last, and the operator wants all of them in order,
//! so they are kept, as slices that share their blocks. Where a chain grows long it is folded on the
//! way, as far as the operator can fold without a base; each such attempt is made on twice the bytes of
//! the one before, so that all of them together cost no more than the last.

use crate::merge_operator::{MergeOperator, full, partial};
use crate::{Result, Slice};

/// Bytes from which a chain is folded on the way; what an operand costs beside its bytes included.
const FOLD_BYTES: usize = 4 << 20;
const OPERAND_BYTES: usize = 64;

/// A chain of operands without a gap.
pub(crate) struct Operands {
    newest_first: Vec<Slice>,
    bytes: usize,
    fold_at: usize,
}

impl Operands {
    pub(crate) const fn new() -> Operands {
        Operands { newest_first: Vec::new(), bytes: 0, fold_at: FOLD_BYTES }
    }

    pub(crate) fn clear(&mut self) {
        self.newest_first.clear();
        (self.bytes, self.fold_at) = (0, FOLD_BYTES);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.newest_first.is_empty()
    }

    /// Adds an operand that is older than all others.
    pub(crate) fn push_older(&mut self, operator: &dyn MergeOperator, key: &[u8], operand: Slice) {
        self.bytes += operand.len() + OPERAND_BYTES;
        self.newest_first.push(operand);
        if self.bytes >= self.fold_at {
            self.shorten(operator, key);
        }
    }

    /// Adds an operand that is newer than all others; for a handful.
    pub(crate) fn push_newer(&mut self, operand: Slice) {
        self.bytes += operand.len() + OPERAND_BYTES;
        self.newest_first.insert(0, operand);
    }

    /// The value they make of `base`. Empties the chain.
    ///
    /// # Errors
    /// `Callback` if the operator fails.
    pub(crate) fn finish(
        &mut self,
        operator: &dyn MergeOperator,
        key: &[u8],
        base: Option<&[u8]>,
    ) -> Result<Slice> {
        let made = full(operator, key, base, &self.oldest_first());
        self.clear();
        Ok(Slice::copy_of(&made?))
    }

    fn oldest_first(&self) -> Vec<&[u8]> {
        self.newest_first.iter().rev().map(|slice| &slice[..]).collect()
    }

    #[cold]
    fn shorten(&mut self, operator: &dyn MergeOperator, key: &[u8]) {
        if self.newest_first.len() > 1
            && let Ok(made) = partial(operator, key, &self.oldest_first())
        {
            self.bytes = made.len() + OPERAND_BYTES;
            self.newest_first.clear();
            self.newest_first.push(Slice::copy_of(&made));
        }
        self.fold_at = FOLD_BYTES.max(2 * self.bytes);
    }
}
