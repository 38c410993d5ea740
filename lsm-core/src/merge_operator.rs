//! Merge operators: a user's function that makes a value out of operands written one by one.
//!
//! ```text
//! written   put 5 · merge +1 · merge +1        entries of one key, one sequence number each
//! read      full_merge(key, Some(5), [+1, +1]) = 7
//! compacted Put 7 (base and operands in one place), or one operand +2 (partial_merge), or as they are
//! ```
//! Where operands lie apart, the engine folds any neighbours it finds in one place, in any grouping;
//! so the laws of [`MergeOperator`] must hold, or what a key says depends on what was compacted when.
//!
//! INVARIANTS
//! - An operator is called with no lock held that a reader or writer of the database could want.
//! - A fold that fails (`None`, a panic, a result beyond the bound of values) changes nothing: reads
//!   of that key fail with `Callback`, compactions leave its entries as they are. So an operator
//!   that is mended makes the key readable again.
//! - The name of the operator stands in the manifest from the first opening with one, and an opening
//!   with another name is refused.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::callback::caught;
use crate::key::VALUE_BYTES_MAX;
use crate::{Error, ErrorKind, Result};

/// Folds the operands of a key.
///
/// Called from any thread, several at once, in reads, flushes and compactions; the result must be a
/// function of the arguments alone. Below, `++` puts lists of operands one behind the other. Whenever
/// the calls succeed, these must hold for all lists that are not empty:
///
/// - `full_merge(k, b, x ++ y) == full_merge(k, Some(full_merge(k, b, x)), y)`
/// - `full_merge(k, b, x ++ y ++ z) == full_merge(k, b, x ++ [partial_merge(k, y)] ++ z)`
///
/// A panic counts as a failure of that call. It must not write to the database it is called by.
pub trait MergeOperator: Send + Sync {
    /// Stored in the database and checked at open.
    fn name(&self) -> &str;

    /// The value that `operands` (one or more, oldest first) make of `base`, which is absent where
    /// the key was never put or was deleted before the first of them. `None` if they do not fit: the
    /// key then can't be read, and nothing of it is lost.
    fn full_merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>>;

    /// One operand that stands for `operands` (two or more, oldest first), whatever comes before them.
    /// `None` if there is none, which is never wrong, only larger.
    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let _ = (key, operands);
        None
    }
}

impl fmt::Debug for dyn MergeOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MergeOperator({})", self.name())
    }
}

/// An operator whose operands are values themselves: one function does it all.
///
/// [`associative`] makes a [`MergeOperator`] of it. What is combined must not depend on the grouping:
/// `combine(combine(a, b), c) == combine(a, combine(b, c))`, failures aside. Each step copies what was made so
/// far; for values that grow with every operand implement [`MergeOperator`] itself.
pub trait AssociativeOperator: Send + Sync {
    /// As [`MergeOperator::name`].
    fn name(&self) -> &str;

    /// `operand` on top of `existing`, which is absent where the key has no value. `None` if they do
    /// not fit.
    fn combine(&self, key: &[u8], existing: Option<&[u8]>, operand: &[u8]) -> Option<Vec<u8>>;
}

struct Associative(Box<dyn AssociativeOperator>);

impl Associative {
    fn fold(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        let (first, rest) = operands.split_first()?;
        let first = self.0.combine(key, base, first)?;
        rest.iter().try_fold(first, |made, operand| self.0.combine(key, Some(&made), operand))
    }
}

impl MergeOperator for Associative {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn full_merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.fold(key, base, operands)
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let (first, rest) = operands.split_first()?;
        self.fold(key, Some(first), rest)
    }
}

/// The merge operator that folds with `operator`, one operand after the other.
pub fn associative(operator: Box<dyn AssociativeOperator>) -> Arc<dyn MergeOperator> {
    Arc::new(Associative(operator))
}

/// Adds numbers of 64 bits, stored in 8 bytes little-endian, signed or unsigned; an absent value is
/// zero, and what passes the end wraps round. A value or operand of another length fails.
pub fn counter() -> Arc<dyn MergeOperator> {
    associative(Box::new(Counter))
}

struct Counter;

impl AssociativeOperator for Counter {
    fn name(&self) -> &str {
        "dialsm.counter"
    }

    fn combine(&self, _: &[u8], existing: Option<&[u8]>, operand: &[u8]) -> Option<Vec<u8>> {
        let number = |bytes: &[u8]| Some(u64::from_le_bytes(bytes.try_into().ok()?));
        let before = existing.map_or(Some(0), number)?;
        Some(before.wrapping_add(number(operand)?).to_le_bytes().to_vec())
    }
}

/// Puts operands behind the value, with `delimiter` between any two; an absent value has none. Opening
/// a database with another delimiter is not noticed, and what is already joined stays as it is.
pub fn append(delimiter: &[u8]) -> Arc<dyn MergeOperator> {
    Arc::new(Append { delimiter: delimiter.to_vec() })
}

struct Append {
    delimiter: Vec<u8>,
}

impl Append {
    fn join<'a>(&self, parts: impl Iterator<Item = &'a [u8]> + Clone) -> Vec<u8> {
        let bytes = parts.clone().map(|part| part.len() + self.delimiter.len()).sum();
        let mut joined = Vec::with_capacity(bytes);
        for (i, part) in parts.enumerate() {
            if i > 0 {
                joined.extend_from_slice(&self.delimiter);
            }
            joined.extend_from_slice(part);
        }
        joined
    }
}

impl MergeOperator for Append {
    fn name(&self) -> &str {
        "dialsm.append"
    }

    fn full_merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        Some(self.join(base.into_iter().chain(operands.iter().copied())))
    }

    fn partial_merge(&self, _: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        Some(self.join(operands.iter().copied()))
    }
}

/// A user's operator under the name that it was opened with.
struct Named {
    inner: Arc<dyn MergeOperator>,
    name: String,
}

impl MergeOperator for Named {
    fn name(&self) -> &str {
        &self.name
    }

    fn full_merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.inner.full_merge(key, base, operands)
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.inner.partial_merge(key, operands)
    }
}

/// The same operator, with its name asked for once and for all.
///
/// # Errors
/// `Callback` if it panics when asked.
pub(crate) fn with_fixed_name(operator: &Arc<dyn MergeOperator>) -> Result<Arc<dyn MergeOperator>> {
    let name = caught(|| operator.name().to_owned())
        .ok_or_else(|| Error::new(ErrorKind::Callback, "the merge operator panicked"))?;
    Ok(Arc::new(Named { inner: operator.clone(), name }))
}

/// The merge operator of a tree, if it has one, and the name that its operands were written under.
#[derive(Clone, Debug, Default)]
pub(crate) struct Merging {
    pub(crate) operator: Option<Arc<dyn MergeOperator>>,
    /// What the manifest says from now on.
    pub(crate) name: Option<String>,
}

impl Merging {
    /// The operator of the options together with the name in the manifest.
    ///
    /// # Errors
    /// `InvalidArgument` if they differ. Opening without an operator is allowed.
    pub(crate) fn new(operator: Option<Arc<dyn MergeOperator>>, stored: Option<String>) -> Result<Merging> {
        let given = operator.as_ref().map(|operator| operator.name().to_owned());
        match (&given, &stored) {
            (Some(given), Some(stored)) if given != stored => Err(Error::invalid(format!(
                "operands were written for merge operator {stored}, the options say {given}"
            ))),
            _ => Ok(Merging { operator, name: stored.or(given) }),
        }
    }
}

/// What operands are answered with where the options have no operator.
#[cold]
pub(crate) fn no_operator() -> Error {
    Error::invalid("merge operands, but the database is open without a merge operator")
}

/// Calls [`MergeOperator::full_merge`].
///
/// # Errors
/// `Callback` if it fails, panics, or makes more than a value may hold.
pub(crate) fn full(
    operator: &dyn MergeOperator,
    key: &[u8],
    base: Option<&[u8]>,
    operands: &[&[u8]],
) -> Result<Vec<u8>> {
    guarded(|| operator.full_merge(key, base, operands))
}

/// Calls [`MergeOperator::partial_merge`].
///
/// # Errors
/// As [`full`].
pub(crate) fn partial(operator: &dyn MergeOperator, key: &[u8], operands: &[&[u8]]) -> Result<Vec<u8>> {
    guarded(|| operator.partial_merge(key, operands))
}

fn guarded(call: impl FnOnce() -> Option<Vec<u8>>) -> Result<Vec<u8>> {
    // What the operator shares with the world is its own; the engine's part of the call is borrowed
    // bytes.
    let text = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Some(made)) if made.len() <= VALUE_BYTES_MAX => return Ok(made),
        Ok(Some(made)) => {
            format!("the merge operator made {} bytes; the bound is {VALUE_BYTES_MAX}", made.len())
        }
        Ok(None) => "the merge operator failed".to_owned(),
        Err(payload) => {
            // What was thrown may throw again when it is dropped.
            if let Err(second) = catch_unwind(AssertUnwindSafe(move || drop(payload))) {
                std::mem::forget(second);
            }
            "the merge operator panicked".to_owned()
        }
    };
    Err(Error::new(ErrorKind::Callback, text))
}

#[cfg(test)]
mod tests;
