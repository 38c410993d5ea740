//! Reads

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;

use dialsm_capi_logic::guard::{free, free_of, make_on, on};
use dialsm_capi_logic::raw::{self, given, put};
use dialsm_capi_logic::{
    Code, Database, KeyspaceHandle, Pinned, ReadOpts, SnapshotHandle, Status, Values, memory,
};

/// A copy of the key's value, which the caller frees by dialsm_free(). `*value` is NULL where the key has none, which
/// is no error; an empty value is not NULL. A zero byte stands behind the value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_get(
    db: Option<&Database>,
    keyspace: Option<&KeyspaceHandle>,
    options: Option<&ReadOpts>,
    key: *const c_void,
    key_len: usize,
    value: Option<&mut MaybeUninit<*mut c_char>>,
    value_len: Option<&mut MaybeUninit<usize>>,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let key = unsafe { raw::key(key, key_len) };
    let mut copy = (std::ptr::null_mut(), 0);
    let has_place = value.is_some();
    let code = on(db, status, |db| {
        if !has_place {
            return Err(raw::Misuse::Null("value").into());
        }
        if let Some(found) = db.get(keyspace, options, key?)? {
            copy = (memory::copy(&found, "a value")?.cast(), found.len());
        }
        Ok(())
    });
    put(value, copy.0);
    put(value_len, copy.1);
    code
}

/// Copies the key's value into memory of the caller, as much of it as there is room for. `*value_len` is its whole
/// length, `*is_found` whether there is one; either may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_get_into(
    db: Option<&Database>,
    keyspace: Option<&KeyspaceHandle>,
    options: Option<&ReadOpts>,
    key: *const c_void,
    key_len: usize,
    buffer: *mut c_void,
    buffer_len: usize,
    value_len: Option<&mut MaybeUninit<usize>>,
    is_found: Option<&mut MaybeUninit<bool>>,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let key = unsafe { raw::key(key, key_len) };
    let mut found = None;
    let code = on(db, status, |db| {
        if buffer.is_null() && buffer_len > 0 {
            return Err(raw::Misuse::Null("buffer").into());
        }
        if let Some(value) = db.get(keyspace, options, key?)? {
            // SAFETY: the header's contract; what the engine holds is not the caller's.
            unsafe { raw::copy_to(buffer, buffer_len, &value) };
            found = Some(value.len());
        }
        Ok(())
    });
    put(value_len, found.unwrap_or(0));
    put(is_found, found.is_some());
    code
}

/// Makes `pinned` hold the key's value where it lies, without a copy, or nothing where there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_get_pinned(
    db: Option<&Database>,
    keyspace: Option<&KeyspaceHandle>,
    options: Option<&ReadOpts>,
    key: *const c_void,
    key_len: usize,
    pinned: Option<&mut Pinned>,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let key = unsafe { raw::key(key, key_len) };
    let mut pinned = pinned;
    // What it held is no answer to this call, also where it fails.
    pinned.iter_mut().for_each(|pinned| pinned.set(None));
    on(db, status, |db| {
        let pinned = given(pinned, "pinned")?;
        pinned.set(db.get(keyspace, options, key?)?);
        Ok(())
    })
}

/// An object that holds one value at a time, for any number of calls. What it holds needs no database.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_pinned_create() -> Option<Box<Pinned>> {
    Some(Box::default())
}

/// Frees it, and the value with it. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_pinned_free(pinned: Option<Box<Pinned>>) {
    free(pinned);
}

/// Lets go of the value, and of the block of some KiB that it may lie in. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_pinned_clear(pinned: Option<&mut Pinned>) {
    if let Some(pinned) = pinned {
        pinned.set(None);
    }
}

/// The value, or NULL where it holds none. Valid until it is cleared, freed or given to another call.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_pinned_value(
    pinned: Option<&Pinned>,
    value_len: Option<&mut MaybeUninit<usize>>,
) -> *const c_void {
    give_bytes(pinned.and_then(Pinned::value), value_len)
}

/// Makes `values` hold the values of several keys, in their order and all of one moment. Blocks that have to come
/// from the disk are read together. At most 16,777,216 keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_multi_get(
    db: Option<&Database>,
    keyspace: Option<&KeyspaceHandle>,
    options: Option<&ReadOpts>,
    key_count: usize,
    keys: *const *const c_void,
    key_lens: *const usize,
    values: Option<&mut Values>,
    status: Option<&mut Status>,
) -> Code {
    let mut values = values;
    // What it held is no answer to this call, also where it fails.
    values.iter_mut().for_each(|values| values.set(Vec::new()));
    on(db, status, |db| {
        // SAFETY: the header's contract.
        let keys = unsafe { raw::keys(keys, key_lens, key_count)? };
        let values = given(values, "values")?;
        values.set(db.multi_get(keyspace, options, &keys)?);
        Ok(())
    })
}

/// An object that holds values of several keys, for any number of calls. What it holds needs no database.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_values_create() -> Option<Box<Values>> {
    Some(Box::default())
}

/// Frees it, and the values with it. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_values_free(values: Option<Box<Values>>) {
    free(values);
}

/// How many keys were asked for.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_values_count(values: Option<&Values>) -> usize {
    values.map_or(0, Values::len)
}

/// The value of key number `index`, or NULL where it has none. Valid until `values` is freed or given to another call.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_values_get(
    values: Option<&Values>,
    index: usize,
    value_len: Option<&mut MaybeUninit<usize>>,
) -> *const c_void {
    give_bytes(values.and_then(|values| values.value(index)), value_len)
}

/// A snapshot: what is visible now, in all keyspaces. It holds the database open, and old versions on the disk.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_snapshot_create(
    db: Option<&Database>,
    snapshot: Option<&mut MaybeUninit<Option<Box<SnapshotHandle>>>>,
    status: Option<&mut Status>,
) -> Code {
    make_on(db, snapshot, status, Database::snapshot)
}

/// Frees it. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_snapshot_free(snapshot: Option<Box<SnapshotHandle>>) {
    free_of(snapshot);
}

/// The sequence number up to which it sees; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_snapshot_sequence(snapshot: Option<&SnapshotHandle>) -> u64 {
    snapshot.map_or(0, |handle| handle.snapshot().seqno())
}

/// Start and length of bytes, or NULL and 0.
#[inline]
pub(crate) fn give_bytes(bytes: Option<&[u8]>, len: Option<&mut MaybeUninit<usize>>) -> *const c_void {
    put(len, bytes.map_or(0, <[u8]>::len));
    bytes.map_or(std::ptr::null(), |bytes| bytes.as_ptr().cast())
}
