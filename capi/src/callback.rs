//! Comparators, merge operators and prefix extractors in C
//!
//! Their functions are called on any thread, of the caller's or of the database's own, several at once, also with the
//! same `state`: what it points at must be fit for that. They must always give the same answer for the same
//! arguments, as long as the database exists, not keep or write to the pointers they get, not call into the database,
//! and return: neither longjmp() nor an exception may leave them. Keys and values may be empty; a pointer to nothing
//! is not NULL, but for a base that is absent, and nothing may be read there.
//!
//! `state` belongs to the object from the call of *_create on, whether that succeeds or not; NULL is as good as any.
//! `destroy` (NULL: nothing) is called once with it, on any thread, when nothing uses the object any more: when its
//! handle, all options with it and all databases opened with them are gone, iterators and scans included; where the
//! creation fails, within that call.
//!
//! `name` has 1 to 255 bytes, does not begin with "dialsm.", and is stored: whatever would give other answers needs
//! another name. It is copied.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;

use dialsm::key::Comparator;
use dialsm_capi_logic::callback::{self, UserState};
use dialsm_capi_logic::guard::{free, make, run};
use dialsm_capi_logic::raw::{self, given, text};
use dialsm_capi_logic::{
    Code, ComparatorHandle, MergeOperatorHandle, MergeResult, PrefixExtractorHandle, Status,
};
use dialsm_core::merge_operator;

/// [`callback::Destroy`], whose words stand in the header, or NULL.
pub type Destroy = Option<unsafe extern "C" fn(state: *mut c_void)>;

/// [`callback::Compare`], whose words stand in the header, or NULL.
pub type Compare = Option<
    unsafe extern "C" fn(state: *mut c_void, a: *const u8, a_len: usize, b: *const u8, b_len: usize) -> c_int,
>;

/// [`callback::FullMerge`], whose words stand in the header, or NULL.
pub type FullMerge = Option<
    unsafe extern "C" fn(
        state: *mut c_void,
        key: *const u8,
        key_len: usize,
        base: *const u8,
        base_len: usize,
        operand_count: usize,
        operands: *const *const u8,
        operand_lens: *const usize,
        result: *mut MergeResult,
    ) -> c_int,
>;

/// [`callback::PartialMerge`], whose words stand in the header, or NULL.
pub type PartialMerge = Option<
    unsafe extern "C" fn(
        state: *mut c_void,
        key: *const u8,
        key_len: usize,
        operand_count: usize,
        operands: *const *const u8,
        operand_lens: *const usize,
        result: *mut MergeResult,
    ) -> c_int,
>;

/// [`callback::Extract`], whose words stand in the header, or NULL.
pub type Extract = Option<
    unsafe extern "C" fn(
        state: *mut c_void,
        key: *const u8,
        key_len: usize,
        prefix_start: *mut usize,
        prefix_len: *mut usize,
    ) -> c_int,
>;

/// An order of keys: `compare` must be a total order. Where it contradicts itself, writes or reads give
/// DIALSM_CALLBACK, or DIALSM_CORRUPTION with the comparator's name for tables that it does not fit; nothing that the
/// log holds is lost. `equal_is_identical` says that keys which compare equal are always the same bytes: filters, and
/// more than one shard, need that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_comparator_create(
    name: *const c_char,
    name_len: usize,
    state: *mut c_void,
    compare: Compare,
    equal_is_identical: bool,
    destroy: Destroy,
    comparator: Option<&mut MaybeUninit<Option<Box<ComparatorHandle>>>>,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let name = unsafe { text(name, name_len, "name") };
    let state = UserState::new(state, destroy);
    make(comparator, status, || {
        let compare = given(compare, "compare")?;
        callback::comparator(name?, state, compare, equal_is_identical).map(ComparatorHandle)
    })
}

/// The order of bytes, unsigned, from the last to the first.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_comparator_create_reverse_bytewise() -> Option<Box<ComparatorHandle>> {
    Some(Box::new(ComparatorHandle(Comparator::ReverseBytewise)))
}

/// Frees the handle. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_comparator_free(comparator: Option<Box<ComparatorHandle>>) {
    free(comparator);
}

/// A merge operator. Whenever the calls succeed, what they make must not depend on how operands are grouped: merging
/// some of them first, partially or fully, gives the same value. `partial_merge` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_merge_operator_create(
    name: *const c_char,
    name_len: usize,
    state: *mut c_void,
    full_merge: FullMerge,
    partial_merge: PartialMerge,
    destroy: Destroy,
    merge_operator: Option<&mut MaybeUninit<Option<Box<MergeOperatorHandle>>>>,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let name = unsafe { text(name, name_len, "name") };
    let state = UserState::new(state, destroy);
    make(merge_operator, status, || {
        let full_merge = given(full_merge, "full_merge")?;
        callback::merge_operator(name?, state, full_merge, partial_merge).map(MergeOperatorHandle)
    })
}

/// Adds numbers of 64 bits, 8 bytes little-endian; an absent value is 0, and sums wrap round. Other lengths fail.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_merge_operator_create_counter() -> Option<Box<MergeOperatorHandle>> {
    Some(Box::new(MergeOperatorHandle(merge_operator::counter())))
}

/// Puts operands behind the value, with `delimiter` between any two.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_merge_operator_create_append(
    delimiter: *const c_void,
    delimiter_len: usize,
    merge_operator: Option<&mut MaybeUninit<Option<Box<MergeOperatorHandle>>>>,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let delimiter = unsafe { raw::key(delimiter, delimiter_len) };
    make(merge_operator, status, || Ok(MergeOperatorHandle(merge_operator::append(delimiter?))))
}

/// Frees the handle. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_merge_operator_free(merge_operator: Option<Box<MergeOperatorHandle>>) {
    free(merge_operator);
}

/// Within a merge: takes a copy of what it made, in place of what was given before; an empty value is one, too. Any
/// code but DIALSM_OK: it has nothing then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_merge_result_set(
    result: Option<&mut MergeResult>,
    value: *const c_void,
    value_len: usize,
) -> Code {
    // SAFETY: the header's contract.
    let value = unsafe { raw::value(value, value_len) };
    run(None, || {
        let result = given(result, "result")?;
        let value = value.inspect_err(|_| result.refuse())?;
        result.set(value)
    })
}

/// As dialsm_merge_result_set(), behind what was given before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_merge_result_append(
    result: Option<&mut MergeResult>,
    value: *const c_void,
    value_len: usize,
) -> Code {
    // SAFETY: the header's contract.
    let value = unsafe { raw::value(value, value_len) };
    run(None, || {
        let result = given(result, "result")?;
        let value = value.inspect_err(|_| result.refuse())?;
        result.append(value)
    })
}

/// A prefix extractor. All keys with one prefix must lie together in the order of keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_prefix_extractor_create(
    name: *const c_char,
    name_len: usize,
    state: *mut c_void,
    extract: Extract,
    destroy: Destroy,
    prefix_extractor: Option<&mut MaybeUninit<Option<Box<PrefixExtractorHandle>>>>,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let name = unsafe { text(name, name_len, "name") };
    let state = UserState::new(state, destroy);
    make(prefix_extractor, status, || {
        let extract = given(extract, "extract")?;
        callback::prefix_extractor(name?, state, extract).map(PrefixExtractorHandle)
    })
}

/// The first `count` bytes of a key. Shorter keys have no prefix or, with `shorter_too`, are their own.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_prefix_extractor_create_first_bytes(
    count: usize,
    shorter_too: bool,
    prefix_extractor: Option<&mut MaybeUninit<Option<Box<PrefixExtractorHandle>>>>,
    status: Option<&mut Status>,
) -> Code {
    make(prefix_extractor, status, || callback::first_bytes(count, shorter_too).map(PrefixExtractorHandle))
}

/// All up to the first such byte, which is part of the prefix; keys without it have none.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_prefix_extractor_create_delimiter(
    delimiter: u8,
) -> Option<Box<PrefixExtractorHandle>> {
    Some(Box::new(PrefixExtractorHandle(dialsm::PrefixExtractor::Delimiter(delimiter))))
}

/// Frees the handle. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_prefix_extractor_free(prefix_extractor: Option<Box<PrefixExtractorHandle>>) {
    free(prefix_extractor);
}
