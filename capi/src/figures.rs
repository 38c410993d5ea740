//! What a database says about itself

use std::ffi::{CStr, CString, c_char};
use std::mem::MaybeUninit;
use std::sync::LazyLock;

use dialsm::Result;
use dialsm_capi_logic::guard::{number_on, on};
use dialsm_capi_logic::raw::{put, text};
use dialsm_capi_logic::{ClueReport, Code, Database, KeyspaceHandle, StallFigures, Status, give, memory};

/// A property as text, which the caller frees by dialsm_free(): of a keyspace or (NULL) of all together.
/// DIALSM_NOT_FOUND if there is none of that name. `value_len` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_property(
    db: Option<&Database>,
    keyspace: Option<&KeyspaceHandle>,
    name: *const c_char,
    name_len: usize,
    value: Option<&mut MaybeUninit<*mut c_char>>,
    value_len: Option<&mut MaybeUninit<usize>>,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let name = unsafe { text(name, name_len, "name") };
    give_text(value, value_len, |give| on(db, status, |db| give(db.property(keyspace, name?)?)))
}

/// The name of property number `index`, from 0 on; NULL behind the last. `<N>` in it stands for a level.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_property_name(index: usize) -> *const c_char {
    static NAMES: LazyLock<Vec<CString>> = LazyLock::new(|| {
        dialsm_core::Db::properties().iter().filter_map(|name| CString::new(*name).ok()).collect()
    });
    NAMES.get(index).map_or(std::ptr::null(), |name| CStr::as_ptr(name))
}

/// Counters, levels, stalls and caches as a table to read, which the caller frees by dialsm_free().
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_statistics(
    db: Option<&Database>,
    text: Option<&mut MaybeUninit<*mut c_char>>,
    text_len: Option<&mut MaybeUninit<usize>>,
    status: Option<&mut Status>,
) -> Code {
    give_text(text, text_len, |give| on(db, status, |db| give(db.statistics(false)?)))
}

/// The same as one JSON object.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_statistics_json(
    db: Option<&Database>,
    json: Option<&mut MaybeUninit<*mut c_char>>,
    json_len: Option<&mut MaybeUninit<usize>>,
    status: Option<&mut Status>,
) -> Code {
    give_text(json, json_len, |give| on(db, status, |db| give(db.statistics(true)?)))
}

/// A counter of the statistics, by its name there, such as "writes". DIALSM_NOT_FOUND if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_counter(
    db: Option<&Database>,
    name: *const c_char,
    name_len: usize,
    value: Option<&mut MaybeUninit<u64>>,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let name = unsafe { text(name, name_len, "name") };
    number_on(db, value, status, |db| db.counter(name?))
}

/// Stalls since the opening, and whether writes may go on now: of a keyspace or (NULL) of all together.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_stalls(
    db: Option<&Database>,
    keyspace: Option<&KeyspaceHandle>,
    stalls: *mut StallFigures,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    on(db, status, |db| unsafe { give(stalls, &db.stalls(keyspace)?) })
}

/// Clue entries and redirected values, of all keyspaces.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_clues(
    db: Option<&Database>,
    clues: *mut ClueReport,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    on(db, status, |db| unsafe { give(clues, &db.clues()?) })
}

/// Gives a text that `call` makes to C, as memory of the caller's; NULL where it fails.
pub(crate) fn give_text(
    text: Option<&mut MaybeUninit<*mut c_char>>,
    len: Option<&mut MaybeUninit<usize>>,
    call: impl FnOnce(&mut dyn FnMut(String) -> Result<()>) -> Code,
) -> Code {
    let mut copy = (std::ptr::null_mut(), 0);
    let has_place = text.is_some();
    let code = call(&mut |made| {
        if !has_place {
            return Err(dialsm::Error::invalid("the place for the text: NULL"));
        }
        copy = (memory::copy_text(&made)?, made.len());
        Ok(())
    });
    put(text, copy.0);
    put(len, copy.1);
    code
}
