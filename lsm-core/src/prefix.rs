//! Prefixes of keys: what an extractor takes, and what a scan knows of the keys it will show.
//!
//! A table's filter may hold the prefixes of its keys beside the keys themselves. A scan that is
//! confined to one prefix asks it and passes over tables without reading a block. What confines a
//! scan is either its caller ([`ReadOptions::prefix_same_as_start`]) or a proof from its bounds
//! (`Scope::new`, `Confines`); nothing else, so that a scan in total order never misses a key
//! (field case B007).
//!
//! ```text
//! DbIter ── Scope: which prefix may the next positioning count on? ──► PrefixHint
//!    └► InternalIter::set_prefix ─► merge ─► level: leaves out tables whose bounds lie beyond it
//!                                       └──► table: asks its filter once
//! ```
//! DEFINITION: keys *in the domain* have a prefix, which is some part of their bytes; others have
//! none. All keys with one prefix must lie together in the keyspace's order. The built-in extractors
//! do so in both byte orders; for other combinations it is the user's promise.
//!
//! INVARIANTS
//! - A hint is given only if every key that the scan may show has that prefix. Then a table whose
//!   filter denies it holds nothing for the scan. Upheld by `Scope::hint`.
//! - What a filter denies are point entries. Range tombstones are in no filter: whoever collects
//!   them looks at a table's section whatever the filter says (B021).
//! - An extractor that panics at one key of a table while the filter is made leaves that table
//!   without prefixes; one that panics at a look-up leaves the filter out or fails the scan.
//!
//! [`ReadOptions::prefix_same_as_start`]: crate::options::ReadOptions::prefix_same_as_start

use std::borrow::Cow;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::key::Comparator;
use crate::table::hash_key;
use crate::{Error, ErrorKind, Result};

/// Takes the prefix out of a key, in the user's own way.
///
/// For a given name it must always give the same answer: filters are kept in tables. All keys with
/// one prefix must lie together in the keyspace's order. Called from all threads at once; it must
/// not call into the database.
pub trait UserPrefixExtractor: Send + Sync {
    /// Stored in every table that has a filter made with it; 1 to 255 bytes.
    fn name(&self) -> &str;

    /// The prefix of `key`: any part of it, empty allowed; `None` if the key is out of the domain.
    fn extract<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]>;
}

/// What an extractor that can't answer may panic with, by [`std::panic::resume_unwind`]: the error then says so, after
/// the words "the prefix extractor". Other panics are not quoted, since there may be keys in them.
pub struct Refusal(pub &'static str);

/// How the prefix of a key is found.
#[derive(Clone)]
pub enum PrefixExtractor {
    /// The first bytes, this many; shorter keys are out of the domain.
    Fixed(usize),
    /// The first bytes, up to this many; a shorter key is its own prefix.
    Capped(usize),
    /// All up to the first of these bytes, which is part of it; keys without one are out of the
    /// domain.
    Delimiter(u8),
    /// The user's own.
    Custom(Arc<dyn UserPrefixExtractor>),
}

impl fmt::Debug for PrefixExtractor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl PrefixExtractor {
    /// The name under which filters made with it are known.
    pub fn name(&self) -> Cow<'_, str> {
        match self {
            PrefixExtractor::Fixed(n) => format!("dialsm.fixed.{n}").into(),
            PrefixExtractor::Capped(n) => format!("dialsm.capped.{n}").into(),
            PrefixExtractor::Delimiter(byte) => format!("dialsm.delimiter.{byte:02x}").into(),
            PrefixExtractor::Custom(c) => c.name().into(),
        }
    }

    /// The prefix of `key`; `None` if it is out of the domain.
    ///
    /// # Errors
    /// `Callback` if the user's extractor panics.
    #[inline]
    pub fn extract<'k>(&self, key: &'k [u8]) -> Result<Option<&'k [u8]>> {
        match self {
            PrefixExtractor::Fixed(n) => Ok(key.get(..*n)),
            PrefixExtractor::Capped(n) => Ok(Some(&key[..key.len().min(*n)])),
            PrefixExtractor::Delimiter(byte) => Ok(key.iter().position(|b| b == byte).map(|at| &key[..=at])),
            PrefixExtractor::Custom(c) => asked(|| c.extract(key)),
        }
    }

    /// The same, with its name asked for once and for all.
    ///
    /// # Errors
    /// `Callback` if the user's extractor panics when asked.
    pub(crate) fn with_fixed_name(&self) -> Result<PrefixExtractor> {
        let PrefixExtractor::Custom(inner) = self else { return Ok(self.clone()) };
        let name = asked(|| inner.name().to_owned())?;
        Ok(PrefixExtractor::Custom(Arc::new(Named { inner: inner.clone(), name })))
    }

    /// Whether every key that begins with `prefix`, a prefix of some key, has that prefix. Never
    /// claimed for the user's own.
    fn covers_all_that_begin_with(&self, prefix: &[u8]) -> bool {
        match self {
            PrefixExtractor::Fixed(_) | PrefixExtractor::Delimiter(_) => true,
            PrefixExtractor::Capped(n) => prefix.len() == *n,
            PrefixExtractor::Custom(_) => false,
        }
    }
}

fn asked<T>(call: impl FnOnce() -> T) -> Result<T> {
    // Unwind safety is the user's, as in `callback`.
    catch_unwind(AssertUnwindSafe(call)).map_err(|thrown| {
        let what = thrown.downcast_ref::<Refusal>().map_or("panicked", |refusal| refusal.0);
        Error::new(ErrorKind::Callback, format!("the prefix extractor {what}"))
    })
}

/// A user's extractor under the name that the database was opened with.
struct Named {
    inner: Arc<dyn UserPrefixExtractor>,
    name: String,
}

impl UserPrefixExtractor for Named {
    fn name(&self) -> &str {
        &self.name
    }

    fn extract<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        self.inner.extract(key)
    }
}

/// Fails unless `name`, of a user's object, can be told from the engine's own and be stored.
///
/// # Errors
/// What is wrong with it, after `what` and a colon.
pub fn check_user_name(what: &str, name: &str) -> std::result::Result<(), String> {
    if name.is_empty() || name.len() > 255 {
        return Err(format!("{what}: its name must have 1 to 255 bytes"));
    }
    if name.starts_with("dialsm.") {
        return Err(format!("{what}: names that begin with \"dialsm.\" are the engine's own"));
    }
    Ok(())
}

/// The first byte string after all that begin with `prefix`, bytewise; `None` if there is none.
pub(crate) fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    // The last byte that can grow does; what stood behind it goes.
    prefix.iter().rposition(|byte| *byte != 0xff).map(|last| {
        let mut next = prefix[..=last].to_vec();
        next[last] += 1;
        next
    })
}

/// A prefix that every key has which a scan will show.
pub struct PrefixHint {
    prefix: Box<[u8]>,
    hash: u64,
    extractor: PrefixExtractor,
}

impl PrefixHint {
    /// The hint of this prefix, which `extractor` took.
    pub(crate) fn new(extractor: &PrefixExtractor, prefix: &[u8]) -> Arc<PrefixHint> {
        let hash = hash_key(prefix);
        Arc::new(PrefixHint { prefix: prefix.into(), hash, extractor: extractor.clone() })
    }

    /// The prefix's hash, as filters hold it.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Whether `key` has the prefix.
    ///
    /// # Errors
    /// As [`PrefixExtractor::extract`].
    pub fn holds(&self, key: &[u8]) -> Result<bool> {
        Ok(self.extractor.extract(key)? == Some(&self.prefix[..]))
    }
}

impl fmt::Debug for PrefixHint {
    /// Shows no bytes: keys stay out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrefixHint({}, {} bytes)", self.extractor.name(), self.prefix.len())
    }
}

/// Which way a positioning will go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Toward {
    Upper,
    Lower,
}

/// What confines one iterator to a prefix, and to which.
pub(crate) struct Scope {
    extractor: PrefixExtractor,
    confines: Confines,
    /// The caller asked that a scan end with the prefix of the key it was sent to.
    same_as_start: bool,
    /// Both bounds lie around one prefix: it holds for every positioning.
    whole: Option<Arc<PrefixHint>>,
    /// What the children were told last.
    told: Option<Arc<PrefixHint>>,
    /// With `same_as_start`: the prefix that shown keys have.
    current: Option<Arc<PrefixHint>>,
}

impl Scope {
    /// The scope of an iterator with these bounds; `None` if no prefix will ever matter.
    pub(crate) fn new(
        extractor: Option<&PrefixExtractor>,
        comparator: &Comparator,
        same_as_start: bool,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
    ) -> Result<Option<Box<Scope>>> {
        let Some(extractor) = extractor else { return Ok(None) };
        let confines = Confines::new(extractor, comparator, lower, upper);
        if !same_as_start && !confines.may_prove() {
            return Ok(None);
        }
        let mut scope = Scope {
            extractor: extractor.clone(),
            confines,
            same_as_start,
            whole: None,
            told: None,
            current: None,
        };
        if let Some(lower) = lower
            && !same_as_start
        {
            let hint = scope.proven(Toward::Upper, lower)?;
            scope.whole = hint;
        }
        Ok(Some(Box::new(scope)))
    }

    /// A positioning begins that the caller sent to `target`, or to an end.
    pub(crate) fn begin(&mut self, target: Option<&[u8]>) -> Result<()> {
        self.current = match target {
            Some(target) if self.same_as_start => self.hint_of(target)?,
            _ => None,
        };
        Ok(())
    }

    /// A positioning at an end has arrived at `key`: its prefix is where the scan is to end.
    pub(crate) fn arrive(&mut self, key: &[u8]) -> Result<()> {
        if self.same_as_start && self.current.is_none() {
            self.current = self.hint_of(key)?;
        }
        Ok(())
    }

    /// Whether a key lies outside the prefix that the caller asked for.
    #[inline]
    pub(crate) fn is_left_by(&self, key: &[u8]) -> Result<bool> {
        match &self.current {
            Some(hint) => Ok(!hint.holds(key)?),
            None => Ok(false),
        }
    }

    /// What the source may be told before it is sent to `target` (`None`: to its end) and then
    /// moved `toward`; `None` if that is what it was told last.
    pub(crate) fn tell(
        &mut self,
        toward: Toward,
        target: Option<&[u8]>,
    ) -> Result<Option<Option<&Arc<PrefixHint>>>> {
        let hint = self.hint(toward, target)?;
        let same = match (&self.told, &hint) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a.prefix == b.prefix,
            _ => false,
        };
        if same {
            return Ok(None);
        }
        self.told = hint;
        Ok(Some(self.told.as_ref()))
    }

    fn hint(&self, toward: Toward, target: Option<&[u8]>) -> Result<Option<Arc<PrefixHint>>> {
        if self.same_as_start {
            // Without a target nothing is known until the scan has arrived somewhere.
            return Ok(self.current.clone());
        }
        match (&self.whole, target) {
            (Some(whole), _) => Ok(Some(whole.clone())),
            (None, Some(target)) => self.proven(toward, target),
            (None, None) => Ok(None),
        }
    }

    /// The prefix of `target`, if the bound that way proves that no other can follow.
    fn proven(&self, toward: Toward, target: &[u8]) -> Result<Option<Arc<PrefixHint>>> {
        match self.extractor.extract(target)? {
            Some(prefix)
                if self.extractor.covers_all_that_begin_with(prefix)
                    && self.confines.holds(toward, prefix) =>
            {
                Ok(Some(PrefixHint::new(&self.extractor, prefix)))
            }
            _ => Ok(None),
        }
    }

    /// The hint of the key's own prefix; the last one again where it is the same.
    fn hint_of(&self, key: &[u8]) -> Result<Option<Arc<PrefixHint>>> {
        let Some(prefix) = self.extractor.extract(key)? else { return Ok(None) };
        match &self.told {
            Some(told) if *told.prefix == *prefix => Ok(Some(told.clone())),
            _ => Ok(Some(PrefixHint::new(&self.extractor, prefix))),
        }
    }
}

/// The bounds of a scan as byte strings, for proofs. Only of the built-in extractors in a byte
/// order: what the user's own objects do is a promise, and a scan in total order relies on none.
///
/// For a target that begins with `p`, the keys from it to a bound all begin with `p` if the bound
/// lies within `p..successor(p)`, edges included as far as the bound leaves them out.
struct Confines {
    /// No key below it is shown, bytewise. The flag: it may be shown itself.
    low: Option<(Box<[u8]>, bool)>,
    /// No key above it is shown, bytewise. The flag: as above.
    high: Option<(Box<[u8]>, bool)>,
    reverse: bool,
}

impl Confines {
    fn new(
        extractor: &PrefixExtractor,
        comparator: &Comparator,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
    ) -> Confines {
        let builtin = !matches!(extractor, PrefixExtractor::Custom(_));
        let bound = |key: Option<&[u8]>, shown| key.filter(|_| builtin).map(|key| (key.into(), shown));
        let (first, last) = (bound(lower, true), bound(upper, false));
        match comparator {
            Comparator::Bytewise => Confines { low: first, high: last, reverse: false },
            Comparator::ReverseBytewise => Confines { low: last, high: first, reverse: true },
            Comparator::Custom(_) => Confines { low: None, high: None, reverse: false },
        }
    }

    fn may_prove(&self) -> bool {
        self.low.is_some() || self.high.is_some()
    }

    /// Whether all keys between one that begins with `prefix` and the bound begin with it too.
    fn holds(&self, toward: Toward, prefix: &[u8]) -> bool {
        let upward = (toward == Toward::Upper) != self.reverse;
        match upward {
            true => match (successor(prefix), &self.high) {
                // Nothing lies above the last prefix.
                (None, _) => true,
                (Some(next), Some((high, shown))) => **high < next[..] || (!shown && **high == next[..]),
                (Some(_), None) => false,
            },
            false => match &self.low {
                // A key above `low` that is not `low` itself may still lie below `prefix`.
                Some((low, _)) => **low >= *prefix,
                None => prefix.is_empty(),
            },
        }
    }
}

#[cfg(test)]
mod tests;
