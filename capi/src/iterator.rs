//! Iterators
//!
//! A cursor over the keys of a keyspace as they were when it was created, whatever is written meanwhile. It stands
//! nowhere until it is positioned. Past an end it stands nowhere, without an error. An iterator holds the database
//! open; after dialsm_close() it goes on and keeps the directory locked until it is freed.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use dialsm::DbIterator;
use dialsm_capi_logic::guard::{free_of, make_on, on, on_mut};
use dialsm_capi_logic::raw::{self, given};
use dialsm_capi_logic::{Code, Database, Entries, Iter, KeyspaceHandle, Pinned, ReadOpts, Status};

use crate::read::give_bytes;

/// Creates an iterator, at the options' snapshot and within their bounds.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_iter_create(
    db: Option<&Database>,
    keyspace: Option<&KeyspaceHandle>,
    options: Option<&ReadOpts>,
    iter: Option<&mut MaybeUninit<Option<Box<Iter>>>>,
    status: Option<&mut Status>,
) -> Code {
    make_on(db, iter, status, |db| db.iter(keyspace, options))
}

/// Creates iterators over several keyspaces, all of one moment, and puts them into the array `iters`: all or, where
/// one fails, none, and NULL in each place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_iters_create(
    db: Option<&Database>,
    options: Option<&ReadOpts>,
    count: usize,
    keyspaces: *const Option<&KeyspaceHandle>,
    iters: *mut MaybeUninit<Option<Box<Iter>>>,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let (keyspaces, places) =
        unsafe { (raw::array(keyspaces, count, "keyspaces"), raw::places(iters, count, "iters")) };
    let mut made = Vec::new();
    let code = on(db, status, |db| {
        if let Err(misuse) = &places {
            return Err((*misuse).into());
        }
        made = db.iters(keyspaces?, options)?;
        Ok(())
    });
    let mut made = made.into_iter();
    for place in places.into_iter().flatten() {
        place.write(made.next().map(Box::new));
    }
    code
}

/// Frees it. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_iter_free(iter: Option<Box<Iter>>) {
    free_of(iter);
}

/// Whether it stands on an entry; false for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_iter_valid(iter: Option<&Iter>) -> bool {
    iter.is_some_and(Iter::valid)
}

/// To the first key within the bounds.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_iter_seek_to_first(iter: Option<&mut Iter>, status: Option<&mut Status>) -> Code {
    on_mut(iter, status, |cursor| cursor.go(DbIterator::seek_to_first))
}

/// To the last key within the bounds.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_iter_seek_to_last(iter: Option<&mut Iter>, status: Option<&mut Status>) -> Code {
    on_mut(iter, status, |cursor| cursor.go(DbIterator::seek_to_last))
}

/// To the first key at or after `key`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_iter_seek(
    iter: Option<&mut Iter>,
    key: *const c_void,
    key_len: usize,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let key = unsafe { raw::key(key, key_len) };
    on_mut(iter, status, |cursor| {
        // A refused key is this move's outcome, too.
        cursor.go(|inner| inner.seek(key?))
    })
}

/// To the last key at or before `key`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_iter_seek_for_prev(
    iter: Option<&mut Iter>,
    key: *const c_void,
    key_len: usize,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let key = unsafe { raw::key(key, key_len) };
    on_mut(iter, status, |cursor| cursor.go(|inner| inner.seek_for_prev(key?)))
}

/// To the next key. Where it stands nowhere it stays there.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_iter_next(iter: Option<&mut Iter>, status: Option<&mut Status>) -> Code {
    on_mut(iter, status, |cursor| cursor.go(DbIterator::next))
}

/// To the key before. Where it stands nowhere it stays there.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_iter_prev(iter: Option<&mut Iter>, status: Option<&mut Status>) -> Code {
    on_mut(iter, status, |cursor| cursor.go(DbIterator::prev))
}

/// The key, or NULL where it stands nowhere. Valid until the iterator moves.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_iter_key(
    iter: Option<&Iter>,
    key_len: Option<&mut MaybeUninit<usize>>,
) -> *const c_void {
    give_bytes(iter.and_then(Iter::key), key_len)
}

/// The value, or NULL where it stands nowhere. Valid until the iterator moves.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_iter_value(
    iter: Option<&Iter>,
    value_len: Option<&mut MaybeUninit<usize>>,
) -> *const c_void {
    give_bytes(iter.and_then(Iter::value), value_len)
}

/// Makes `pinned` hold the value where it lies, so that it outlives the next move.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_iter_pin_value(
    iter: Option<&mut Iter>,
    pinned: Option<&mut Pinned>,
    status: Option<&mut Status>,
) -> Code {
    on_mut(iter, status, |cursor| {
        let pinned = given(pinned, "pinned")?;
        pinned.set(None);
        cursor.pin(pinned)
    })
}

/// How the last move ended: for loops that look at the end only.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_iter_status(iter: Option<&mut Iter>, status: Option<&mut Status>) -> Code {
    on_mut(iter, status, |cursor| cursor.outcome())
}

/// Puts the entry that it stands on and those that follow into `entries`, in place of what is there, and moves behind
/// them: iteration without a call for each entry. Ends at `entries_max` entries, or once there are `bytes_max` bytes
/// of keys and values (0: no such bound; not both), or where the keys end. No entries and DIALSM_OK: the end. Where it
/// fails, `entries` has those before the failure.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_iter_next_batch(
    iter: Option<&mut Iter>,
    entries: Option<&mut Entries>,
    entries_max: usize,
    bytes_max: usize,
    status: Option<&mut Status>,
) -> Code {
    let mut entries = entries;
    // What it held is no answer to this call, also where it fails.
    entries.iter_mut().for_each(|entries| entries.clear());
    on_mut(iter, status, |cursor| cursor.next_batch(given(entries, "entries")?, entries_max, bytes_max))
}
