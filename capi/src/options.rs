//! Options of a database or keyspace
//!
//! docs/OPTIONS.md describes each option. They are set by name, as text, or by a function for each.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use dialsm_capi_logic::guard::{free, make, run};
use dialsm_capi_logic::raw::{self, given, text};
use dialsm_capi_logic::{
    Code, ComparatorHandle, MergeOperatorHandle, OptionSet, PrefixExtractorHandle, Status, option_name,
};

use crate::figures::give_text;

/// The default options of a database and of its default keyspace: for two processors, and a block cache of 32 MiB.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_create() -> Option<Box<OptionSet>> {
    Some(Box::new(OptionSet::of_database()))
}

/// The default options of a keyspace. Options of the whole database can't be set in them.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_create_for_keyspace() -> Option<Box<OptionSet>> {
    Some(Box::new(OptionSet::of_keyspace()))
}

/// Options for a machine of so many processors and so much memory, of which the database may use about a third.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_create_for_machine(
    cores: usize,
    memory_bytes: u64,
) -> Option<Box<OptionSet>> {
    Some(Box::new(OptionSet::for_machine(cores, memory_bytes)))
}

/// The options that the database in a directory was opened with last, those of its keyspaces included, but for
/// comparators, merge operators and prefix extractors. It may be open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_options_load(
    path: *const c_char,
    path_len: usize,
    options: Option<&mut MaybeUninit<Option<Box<OptionSet>>>>,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let path = unsafe { raw::path(path, path_len, "path") };
    make(options, status, || OptionSet::load(path?))
}

/// A copy of them. NULL gives NULL.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_copy(options: Option<&OptionSet>) -> Option<Box<OptionSet>> {
    options.map(|options| Box::new(options.clone()))
}

/// Frees them; what was opened with them stays as it is. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_free(options: Option<Box<OptionSet>>) {
    free(options);
}

/// Sets the option of that name from text: "true", "64M", "0.75", "lz4".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_options_set(
    options: Option<&mut OptionSet>,
    name: *const c_char,
    name_len: usize,
    value: *const c_char,
    value_len: usize,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let (name, value) = unsafe { (text(name, name_len, "name"), text(value, value_len, "value")) };
    run(status, || given(options, "options")?.set(name?, value?))
}

/// The value of the option of that name as text, which the caller frees by dialsm_free(). `value_len` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_options_get(
    options: Option<&OptionSet>,
    name: *const c_char,
    name_len: usize,
    value: Option<&mut MaybeUninit<*mut c_char>>,
    value_len: Option<&mut MaybeUninit<usize>>,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let name = unsafe { text(name, name_len, "name") };
    give_text(value, value_len, |give| run(status, || give(given(options, "options")?.get(name?)?)))
}

/// Sets several options from text, one `name = value` a line, `#` for comments. All or, where one is wrong, none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_options_set_text(
    options: Option<&mut OptionSet>,
    lines: *const c_char,
    lines_len: usize,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let lines = unsafe { text(lines, lines_len, "lines") };
    run(status, || given(options, "options")?.apply_text(lines?))
}

/// All options as such text, which the caller frees by dialsm_free(). `lines_len` may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_text(
    options: Option<&OptionSet>,
    lines: Option<&mut MaybeUninit<*mut c_char>>,
    lines_len: Option<&mut MaybeUninit<usize>>,
    status: Option<&mut Status>,
) -> Code {
    give_text(lines, lines_len, |give| run(status, || give(given(options, "options")?.to_text())))
}

/// Checks all of them, and what they ask of each other; the message names every problem. Opening does that, too.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_validate(options: Option<&OptionSet>, status: Option<&mut Status>) -> Code {
    run(status, || given(options, "options")?.validate())
}

/// Gives a keyspace of the database options of its own (NULL: the defaults of a keyspace). An opening with them
/// creates it if it is not there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_options_add_keyspace(
    options: Option<&mut OptionSet>,
    name: *const c_char,
    name_len: usize,
    keyspace_options: Option<&OptionSet>,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let name = unsafe { text(name, name_len, "name") };
    run(status, || given(options, "options")?.add_keyspace(name?, keyspace_options))
}

/// Sets the order of keys; NULL is the order of their bytes, unsigned. The options keep it: the caller may free
/// its handle. Its name is stored, and a database or keyspace opens with an order of that name only.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_comparator(
    options: Option<&mut OptionSet>,
    comparator: Option<&ComparatorHandle>,
    status: Option<&mut Status>,
) -> Code {
    run(status, || {
        given(options, "options")?.set_comparator(comparator.map(|handle| &handle.0));
        Ok(())
    })
}

/// Sets the merge operator; NULL is none. The options keep it, as they do a comparator.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_merge_operator(
    options: Option<&mut OptionSet>,
    merge_operator: Option<&MergeOperatorHandle>,
    status: Option<&mut Status>,
) -> Code {
    run(status, || {
        given(options, "options")?.set_merge_operator(merge_operator.map(|handle| &handle.0));
        Ok(())
    })
}

/// Sets the prefix extractor; NULL is none. The options keep it, as they do a comparator.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_options_set_prefix_extractor(
    options: Option<&mut OptionSet>,
    prefix_extractor: Option<&PrefixExtractorHandle>,
    status: Option<&mut Status>,
) -> Code {
    run(status, || {
        given(options, "options")?.set_prefix_extractor(prefix_extractor.map(|handle| &handle.0));
        Ok(())
    })
}

/// The name of option number `index`, from 0 on; NULL behind the last. The text is not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_option_name(index: usize) -> *const c_char {
    option_name(index).map_or(std::ptr::null(), |name| name.as_ptr())
}
