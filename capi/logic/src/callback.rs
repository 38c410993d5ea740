//! C functions that the engine calls: comparators, merge operators, prefix extractors.
//!
//! What one of them promises is checked where it can be: a prefix that is no part of its key, a merge that says it
//! succeeded and made nothing, sizes without memory. Such a call counts as failed, and so does the read, write or
//! job that needed it, with `Callback`. Orders that are none are the engine's to find.
//!
//! Failures of prefix extractors reach the engine as panics, the one way in which its interface can fail; it
//! catches them at the call.

use std::cmp::Ordering;
use std::ffi::{c_int, c_void};
use std::panic::resume_unwind;
use std::sync::Arc;

use dialsm::key::{Comparator, KEY_BYTES_MAX, UserComparator, VALUE_BYTES_MAX};
use dialsm::{Error, MergeOperator, PrefixExtractor, Result, UserPrefixExtractor};
use dialsm_core::prefix::{Refusal, check_user_name};

/// Frees the state of a callback object, when nothing uses it any more.
pub type Destroy = unsafe extern "C" fn(state: *mut c_void);

/// The order of two keys, as memcmp() says it: below 0 where `a` comes before `b`, 0 where they are equal, above 0 where
/// `a` comes after `b`. By how much does not matter. It can't fail.
pub type Compare =
    unsafe extern "C" fn(state: *mut c_void, a: *const u8, a_len: usize, b: *const u8, b_len: usize) -> c_int;

/// Makes the value of `key` of its base and of operands, oldest first: at least one, `operands[i]` with `operand_lens[i]`
/// bytes. `base` is NULL where there is no value below the operands (`base_len` is 0 then, as for an empty value, which
/// is not NULL). The value goes to `result`, which is valid within the call only, by dialsm_merge_result_set() or
/// dialsm_merge_result_append(). Returns any number but 0 where it made one. 0, or 1 without a result, is a failure:
/// the key can't be read then (DIALSM_CALLBACK), and nothing of it is lost.
pub type FullMerge = unsafe extern "C" fn(
    state: *mut c_void,
    key: *const u8,
    key_len: usize,
    base: *const u8,
    base_len: usize,
    operand_count: usize,
    operands: *const *const u8,
    operand_lens: *const usize,
    result: *mut MergeResult,
) -> c_int;

/// Makes one operand that stands for several, at least two, oldest first, and gives it to `result` as a full merge does.
/// What is older is not shown. Returns 0 where there is no such operand, which is never wrong: they stay as they are.
pub type PartialMerge = unsafe extern "C" fn(
    state: *mut c_void,
    key: *const u8,
    key_len: usize,
    operand_count: usize,
    operands: *const *const u8,
    operand_lens: *const usize,
    result: *mut MergeResult,
) -> c_int;

/// Says where in `key` its prefix begins and how long it is: `*prefix_start` (0 where it is not set) and `*prefix_len`
/// are bytes, and together at most `key_len`: else scans that need the prefix fail with DIALSM_CALLBACK, and tables are
/// written without prefixes. A prefix may be empty. Returns any number but 0 where the key has one, and 0 where it has none.
pub type Extract = unsafe extern "C" fn(
    state: *mut c_void,
    key: *const u8,
    key_len: usize,
    prefix_start: *mut usize,
    prefix_len: *mut usize,
) -> c_int;

/// The user's state, and how it ends.
pub(crate) struct State {
    pub(crate) state: *mut c_void,
    destroy: Option<Destroy>,
}

// SAFETY: the pointer is only handed back to the user's functions, which promise to be callable from any thread,
// several at once, and `destroy` once from any.
unsafe impl Send for State {}
// SAFETY: as above.
unsafe impl Sync for State {}

impl Drop for State {
    fn drop(&mut self) {
        if let Some(destroy) = self.destroy {
            // SAFETY: the function was given for this pointer; nothing else uses it any more.
            unsafe { destroy(self.state) }
        }
    }
}

/// A user's state that is freed even where the object cannot be made.
pub struct UserState(pub(crate) State);

impl UserState {
    /// Takes over `state`.
    pub fn new(state: *mut c_void, destroy: Option<Destroy>) -> UserState {
        UserState(State { state, destroy })
    }
}

struct CComparator {
    name: String,
    state: State,
    compare: Compare,
    equal_is_identical: bool,
}

impl UserComparator for CComparator {
    fn name(&self) -> &str {
        &self.name
    }

    #[inline]
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        // SAFETY: the function was given for this state, and reads no more than the lengths say.
        let order = unsafe { (self.compare)(self.state.state, a.as_ptr(), a.len(), b.as_ptr(), b.len()) };
        order.cmp(&0)
    }

    fn equal_is_identical(&self) -> bool {
        self.equal_is_identical
    }
}

fn checked(what: &str, name: &str) -> Result<String> {
    check_user_name(what, name).map_err(Error::invalid)?;
    Ok(name.to_owned())
}

/// The order that a C function gives.
///
/// # Errors
/// `InvalidArgument` for a name that can't be stored, or is the engine's; so for the other two.
pub fn comparator(
    name: &str,
    state: UserState,
    compare: Compare,
    equal_is_identical: bool,
) -> Result<Comparator> {
    let name = checked("comparator", name)?;
    Ok(Comparator::Custom(Arc::new(CComparator { name, state: state.0, compare, equal_is_identical })))
}

/// Takes what a merge makes, in the call that it was given to.
#[derive(Default)]
pub struct MergeResult {
    made: Option<Vec<u8>>,
    /// A part was refused: the whole is no result, whatever is given after.
    is_refused: bool,
}

impl MergeResult {
    /// Takes a copy of `bytes`, in place of what it has.
    ///
    /// # Errors
    /// `OutOfMemory`; `InvalidArgument` above the bound of a value. It has nothing then, until it is set again.
    pub fn set(&mut self, bytes: &[u8]) -> Result<()> {
        (self.made, self.is_refused) = (None, false);
        self.append(bytes)
    }

    /// Takes nothing, because what was to be given can't be.
    pub fn refuse(&mut self) {
        (self.made, self.is_refused) = (None, true);
    }

    /// Takes a copy of `bytes` behind what it has.
    ///
    /// # Errors
    /// As [`MergeResult::set`].
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if self.is_refused {
            return Err(Error::invalid("a part of what a merge made was refused"));
        }
        let mut made = self.made.take().unwrap_or_default();
        self.is_refused = true;
        if made.len() + bytes.len() > VALUE_BYTES_MAX {
            return Err(Error::invalid("a merge made more than a value may hold"));
        }
        made.try_reserve(bytes.len()).map_err(|_| Error::out_of_memory("what a merge made"))?;
        made.extend_from_slice(bytes);
        (self.made, self.is_refused) = (Some(made), false);
        Ok(())
    }
}

struct CMerge {
    name: String,
    state: State,
    full: FullMerge,
    partial: Option<PartialMerge>,
}

/// Starts and lengths of `parts`, for C.
fn split(parts: &[&[u8]]) -> (Vec<*const u8>, Vec<usize>) {
    parts.iter().map(|part| (part.as_ptr(), part.len())).unzip()
}

impl MergeOperator for CMerge {
    fn name(&self) -> &str {
        &self.name
    }

    fn full_merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        let (starts, lens) = split(operands);
        let (base, base_len) = base.map_or((std::ptr::null(), 0), |base| (base.as_ptr(), base.len()));
        let mut result = MergeResult::default();
        // SAFETY: the function was given for this state, and reads no more than the lengths and the count say.
        let is_made = unsafe {
            (self.full)(
                self.state.state,
                key.as_ptr(),
                key.len(),
                base,
                base_len,
                operands.len(),
                starts.as_ptr(),
                lens.as_ptr(),
                &raw mut result,
            )
        };
        result.made.filter(|_| is_made != 0)
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let partial = self.partial?;
        let (starts, lens) = split(operands);
        let mut result = MergeResult::default();
        // SAFETY: as above.
        let is_made = unsafe {
            partial(
                self.state.state,
                key.as_ptr(),
                key.len(),
                operands.len(),
                starts.as_ptr(),
                lens.as_ptr(),
                &raw mut result,
            )
        };
        result.made.filter(|_| is_made != 0)
    }
}

/// The merge operator that C functions make.
///
/// # Errors
/// As [`comparator`].
pub fn merge_operator(
    name: &str,
    state: UserState,
    full: FullMerge,
    partial: Option<PartialMerge>,
) -> Result<Arc<dyn MergeOperator>> {
    Ok(Arc::new(CMerge { name: checked("merge operator", name)?, state: state.0, full, partial }))
}

struct CExtractor {
    name: String,
    state: State,
    extract: Extract,
}

impl UserPrefixExtractor for CExtractor {
    fn name(&self) -> &str {
        &self.name
    }

    fn extract<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        let (mut start, mut len) = (0, 0);
        // SAFETY: the function was given for this state, reads no more than the length says and writes two numbers.
        let has_one = unsafe {
            (self.extract)(self.state.state, key.as_ptr(), key.len(), &raw mut start, &raw mut len)
        };
        if has_one == 0 {
            return None;
        }
        let part = start.checked_add(len).and_then(|end| key.get(start..end));
        // No message on standard error: the engine makes a status of it.
        part.or_else(|| resume_unwind(Box::new(Refusal("gave a prefix that is no part of its key"))))
    }
}

/// The prefix extractor that a C function makes.
///
/// # Errors
/// As [`comparator`].
pub fn prefix_extractor(name: &str, state: UserState, extract: Extract) -> Result<PrefixExtractor> {
    let name = checked("prefix extractor", name)?;
    Ok(PrefixExtractor::Custom(Arc::new(CExtractor { name, state: state.0, extract })))
}

/// A prefix extractor that takes the first bytes.
///
/// # Errors
/// `InvalidArgument` where no key is so long.
pub fn first_bytes(count: usize, of_shorter_keys: bool) -> Result<PrefixExtractor> {
    if count > KEY_BYTES_MAX {
        return Err(Error::invalid(format!("a prefix of {count} bytes; no key is so long")));
    }
    Ok(if of_shorter_keys { PrefixExtractor::Capped(count) } else { PrefixExtractor::Fixed(count) })
}

/// An order of keys that options can be given. Usable from all threads at once.
pub struct ComparatorHandle(pub Comparator);

/// A merge operator that options can be given. Usable from all threads at once.
pub struct MergeOperatorHandle(pub Arc<dyn MergeOperator>);

/// A prefix extractor that options can be given. Usable from all threads at once.
pub struct PrefixExtractorHandle(pub PrefixExtractor);
