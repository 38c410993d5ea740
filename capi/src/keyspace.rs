//! Keyspaces
//!
//! Wherever a call takes a keyspace, NULL means the default one, which every database has.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use dialsm_capi_logic::guard::{free, free_of, make_on, on};
use dialsm_capi_logic::raw::{given, put, text};
use dialsm_capi_logic::{Code, Database, KeyspaceHandle, Names, OptionSet, Status};

/// Creates a keyspace, durable when this returns. A name has 1 to 255 bytes without control characters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_keyspace_create(
    db: Option<&Database>,
    name: *const c_char,
    name_len: usize,
    options: Option<&OptionSet>,
    keyspace: Option<&mut MaybeUninit<Option<Box<KeyspaceHandle>>>>,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let name = unsafe { text(name, name_len, "name") };
    make_on(db, keyspace, status, |db| db.create_keyspace(name?, options))
}

/// The keyspace of that name; DIALSM_NOT_FOUND if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_keyspace_find(
    db: Option<&Database>,
    name: *const c_char,
    name_len: usize,
    keyspace: Option<&mut MaybeUninit<Option<Box<KeyspaceHandle>>>>,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let name = unsafe { text(name, name_len, "name") };
    make_on(db, keyspace, status, |db| db.keyspace(name?))
}

/// Drops a keyspace with all that is in it, for good when this returns. The handle is still to be freed; calls with
/// it give DIALSM_NOT_FOUND, iterators over it go on.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_keyspace_drop(
    db: Option<&Database>,
    keyspace: Option<&KeyspaceHandle>,
    status: Option<&mut Status>,
) -> Code {
    on(db, status, |db| db.drop_keyspace(given(keyspace, "keyspace")?))
}

/// Frees the handle. It holds the database open. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_keyspace_free(keyspace: Option<Box<KeyspaceHandle>>) {
    free_of(keyspace);
}

/// The id by which batches name it; 0 is the default one, which NULL means, too.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_keyspace_id(keyspace: Option<&KeyspaceHandle>) -> u32 {
    keyspace.map_or(0, |handle| handle.keyspace().id())
}

/// Its name, and the length of it; not zero-terminated, valid as long as the handle. NULL gives NULL.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_keyspace_name(
    keyspace: Option<&KeyspaceHandle>,
    name_len: Option<&mut MaybeUninit<usize>>,
) -> *const c_char {
    let name = keyspace.map(|handle| handle.keyspace().name());
    put(name_len, name.map_or(0, str::len));
    name.map_or(std::ptr::null(), |name| name.as_ptr().cast())
}

/// How many shards it has; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_keyspace_shards(keyspace: Option<&KeyspaceHandle>) -> u32 {
    keyspace.map_or(0, |handle| u32::from(handle.keyspace().shards()))
}

/// The names of all keyspaces, the default one first, the others by age.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_keyspaces(
    db: Option<&Database>,
    names: Option<&mut MaybeUninit<Option<Box<Names>>>>,
    status: Option<&mut Status>,
) -> Code {
    make_on(db, names, status, Database::keyspaces)
}

/// How many names there are; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_names_count(names: Option<&Names>) -> usize {
    names.map_or(0, Names::len)
}

/// Name number `index`, zero-terminated; NULL behind the last. Valid as long as the list.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_names_get(names: Option<&Names>, index: usize) -> *const c_char {
    names.and_then(|names| names.name(index)).map_or(std::ptr::null(), |name| name.as_ptr())
}

/// Frees the list. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_names_free(names: Option<Box<Names>>) {
    free(names);
}
