//! Calls into the user's code: what it may do to us, and what a panic of it becomes.
//!
//! A comparator is called under node locks of the memtable, inside commit groups and by workers, in
//! places that may not be left half done. So no panic of one unwinds through the engine: it is
//! caught at the call, which then gets an answer of some kind (the order of the bytes), and the
//! thread's count of panics goes up. Whoever began the operation looks at the count at its end and
//! gives back an error instead of what came out.
//!
//! ```text
//! get, scan, write …   Watch::begin ── calls ── Watch::check ─► Ok | Callback error
//!                                        │ panic: caught, counted, answered by byte order
//! ```
//! The obvious design, letting it unwind and repairing what it left, would need a repair at each of
//! some fifty calls; and a writer whose leader unwound would wait for ever.
//!
//! INVARIANT: nothing that came out of calls of which one panicked is installed, made durable or
//! returned. Upheld by a watch around each job and operation, attacked by `lsm-core/tests/order.rs`.
//! The one thing that can't be taken back is an insert into a memtable: then writes stop (the log
//! has everything), and a flush of that memtable would find it out of order.

use std::cell::Cell;
use std::cmp::Ordering;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::key::{Comparator, UserComparator};
use crate::{Error, ErrorKind, Result};

thread_local!(static PANICS: Cell<u64> = const { Cell::new(0) });

/// The result of `call`; `None` if it panicked.
///
/// Unwind safety is the user's: an object of theirs that a panic leaves broken will be called again.
pub(crate) fn caught<T>(call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).ok()
}

/// The comparators' panics on this thread since it was made. Stays on its thread.
#[must_use]
pub(crate) struct Watch(Option<u64>);

impl Watch {
    /// Watches if the order is the user's; the engine's own orders do not panic.
    #[inline]
    pub(crate) fn begin(comparator: &Comparator) -> Watch {
        match comparator {
            Comparator::Custom(_) => Watch(Some(PANICS.get())),
            Comparator::Bytewise | Comparator::ReverseBytewise => Watch(None),
        }
    }

    /// As [`Watch::begin`], over several orders at once.
    #[inline]
    pub(crate) fn begin_any<'c>(mut comparators: impl Iterator<Item = &'c Comparator>) -> Watch {
        let custom = comparators.any(|comparator| matches!(comparator, Comparator::Custom(_)));
        Watch(custom.then(|| PANICS.get()))
    }

    /// Fails if the comparator has panicked meanwhile.
    ///
    /// # Errors
    /// `Callback`.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        match self.0 {
            Some(before) if before != PANICS.get() => Err(panicked()),
            _ => Ok(()),
        }
    }

    /// Why `error` came about: the comparator's panic, if there was one.
    #[cold]
    pub(crate) fn cause(&self, error: Error) -> Error {
        self.check().err().unwrap_or(error)
    }
}

#[cold]
fn panicked() -> Error {
    Error::new(ErrorKind::Callback, "the comparator panicked")
}

/// Keys that are out of order, as `text` says; `kind` where the order is the engine's own. Where it is the user's,
/// that is rather what is at fault: what was read had its checksum, and what was written had been sorted.
#[cold]
pub(crate) fn out_of_order(comparator: &Comparator, kind: ErrorKind, text: &str) -> Error {
    let Comparator::Custom(custom) = comparator else { return Error::new(kind, text) };
    let kind = if kind == ErrorKind::Internal { ErrorKind::Callback } else { kind };
    let cause = "is no total order, or gives other answers than before";
    Error::new(kind, format!("{text}: the comparator {:?} {cause}", custom.name()))
}

/// A user's comparator as the engine calls it.
struct Guarded {
    inner: Arc<dyn UserComparator>,
    /// Asked once: what a database was opened with stays.
    name: String,
    equal_is_identical: bool,
}

impl UserComparator for Guarded {
    fn name(&self) -> &str {
        &self.name
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        caught(|| self.inner.compare(a, b)).unwrap_or_else(|| {
            PANICS.set(PANICS.get() + 1);
            a.cmp(b)
        })
    }

    fn equal_is_identical(&self) -> bool {
        self.equal_is_identical
    }
}

/// The same order, whose panics are caught and counted.
///
/// # Errors
/// `Callback` if it panics when asked for its name.
pub(crate) fn guarded(comparator: &Comparator) -> Result<Comparator> {
    let Comparator::Custom(inner) = comparator else { return Ok(comparator.clone()) };
    let (name, equal_is_identical) =
        caught(|| (inner.name().to_owned(), inner.equal_is_identical())).ok_or_else(panicked)?;
    Ok(Comparator::Custom(Arc::new(Guarded { inner: inner.clone(), name, equal_is_identical })))
}

/// The numbers below `n` in the order that `compare` gives to them, equal ones ascending. Unlike
/// the sorts of the standard library it does not panic where that is no order at all.
fn sorted_indices(n: usize, mut compare: impl FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut from: Vec<usize> = (0..n).collect();
    let mut to = Vec::with_capacity(n);
    let mut run = 1;
    while run < n {
        to.clear();
        for pair in from.chunks(2 * run) {
            let (mut a, mut b) = pair.split_at(run.min(pair.len()));
            while let (Some((x, rest_a)), Some((y, rest_b))) = (a.split_first(), b.split_first()) {
                if compare(*x, *y).is_le() {
                    to.push(*x);
                    a = rest_a;
                } else {
                    to.push(*y);
                    b = rest_b;
                }
            }
            to.extend_from_slice(a);
            to.extend_from_slice(b);
        }
        std::mem::swap(&mut from, &mut to);
        run *= 2;
    }
    from
}

/// The numbers below `n` in the order of the keys that `key` gives to them, whatever the order is.
pub(crate) fn sorted_by<'k>(
    comparator: &Comparator,
    n: usize,
    key: impl Fn(usize) -> &'k [u8],
) -> Vec<usize> {
    if matches!(comparator, Comparator::Custom(_)) {
        return sorted_indices(n, |a, b| comparator.compare(key(a), key(b)));
    }
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|a, b| comparator.compare(key(*a), key(*b)));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Picky;

    impl UserComparator for Picky {
        fn name(&self) -> &str {
            "test.picky"
        }
        fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
            assert!(!a.is_empty() && !b.is_empty(), "an empty key");
            a.cmp(b)
        }
    }

    #[test]
    fn panics_are_caught_counted_and_stay_on_their_thread() {
        let order = guarded(&Comparator::Custom(Arc::new(Picky))).expect("it has a name");
        assert_eq!((order.name(), order.equal_is_identical()), ("test.picky", false));
        let watch = Watch::begin(&order);
        assert_eq!(order.compare(b"b", b"a"), Ordering::Greater);
        watch.check().expect("no panic so far");
        let elsewhere = order.clone();
        std::thread::spawn(move || elsewhere.compare(b"", b"a")).join().expect("the panic was caught");
        watch.check().expect("another thread's panic");
        assert_eq!(order.compare(b"", b"a"), Ordering::Less);
        assert_eq!(watch.check().expect_err("it panicked").kind(), ErrorKind::Callback);
        Watch::begin(&order).check().expect("it was before");
    }

    #[test]
    fn sorting_needs_no_order() {
        let mut state = 1u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        for n in [0, 1, 2, 3, 7, 64, 1000] {
            let values: Vec<u64> = (0..n).map(|_| random() % 50).collect();
            let mut want: Vec<usize> = (0..values.len()).collect();
            want.sort_by_key(|i| values[*i]);
            assert_eq!(sorted_indices(values.len(), |a, b| values[a].cmp(&values[b])), want);
            let mut chaos = sorted_indices(values.len(), |_, _| match random() % 3 {
                0 => Ordering::Less,
                1 => Ordering::Equal,
                _ => Ordering::Greater,
            });
            chaos.sort_unstable();
            assert!(chaos.into_iter().eq(0..values.len()), "a number was lost");
        }
    }
}
