//! Bulk scans, and entries in numbers
//!
//! A scan reads a range of keys in batches, of one moment, and reads ahead. It holds the database open as an iterator
//! does.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;

use dialsm_capi_logic::guard::{free, free_of, make_on, on_mut};
use dialsm_capi_logic::raw::{given, put};
use dialsm_capi_logic::{Code, Database, Entries, KeyspaceHandle, ReadOpts, ScanHandle, ScanOpts, Status};

use crate::read::give_bytes;

/// Begins a scan.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_scan_create(
    db: Option<&Database>,
    keyspace: Option<&KeyspaceHandle>,
    read_options: Option<&ReadOpts>,
    options: Option<&ScanOpts>,
    scan: Option<&mut MaybeUninit<Option<Box<ScanHandle>>>>,
    status: Option<&mut Status>,
) -> Code {
    make_on(db, scan, status, |db| db.scan(keyspace, read_options, options))
}

/// Puts the next entries into `entries`, in place of what is there; none at the end.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_scan_next(
    scan: Option<&mut ScanHandle>,
    entries: Option<&mut Entries>,
    status: Option<&mut Status>,
) -> Code {
    let mut entries = entries;
    // What it held is no answer to this call, also where it fails.
    entries.iter_mut().for_each(|entries| entries.clear());
    on_mut(scan, status, |scan| given(entries, "entries")?.fill(scan))
}

/// Frees it. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_scan_free(scan: Option<Box<ScanHandle>>) {
    free_of(scan);
}

/// An object that holds entries of iterators and scans, for any number of calls. What it holds needs no database.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_entries_create() -> Option<Box<Entries>> {
    Some(Box::default())
}

/// Frees it. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_entries_free(entries: Option<Box<Entries>>) {
    free(entries);
}

/// How many entries it holds; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_entries_count(entries: Option<&Entries>) -> usize {
    entries.map_or(0, Entries::len)
}

/// The key of entry number `index`; NULL behind the last. Valid until `entries` is freed or given to another call.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_entries_key(
    entries: Option<&Entries>,
    index: usize,
    key_len: Option<&mut MaybeUninit<usize>>,
) -> *const c_void {
    give_bytes(entries.and_then(|entries| entries.key(index)), key_len)
}

/// The value of entry number `index`; NULL behind the last. Valid as a key is.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_entries_value(
    entries: Option<&Entries>,
    index: usize,
    value_len: Option<&mut MaybeUninit<usize>>,
) -> *const c_void {
    give_bytes(entries.and_then(|entries| entries.value(index)), value_len)
}

/// All entries at once: returns how many there are. `*data` has their keys and values, end to end; entry i has its key
/// up to `ends[2 * i]` and its value from there up to `ends[2 * i + 1]`, where the next key begins. Valid as a key is.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_entries_view(
    entries: Option<&Entries>,
    data: Option<&mut MaybeUninit<*const c_char>>,
    ends: Option<&mut MaybeUninit<*const usize>>,
) -> usize {
    put(data, entries.map_or(std::ptr::null(), |entries| entries.data().as_ptr().cast()));
    put(ends, entries.map_or(std::ptr::null(), |entries| entries.ends().as_ptr()));
    entries.map_or(0, Entries::len)
}
