//! Databases

use std::ffi::c_char;
use std::mem::MaybeUninit;

use dialsm_capi_logic::guard::{free_of, make, on, run};
use dialsm_capi_logic::raw::{self, put};
use dialsm_capi_logic::{Code, Database, Names, OptionSet, Status};

/// Opens the database in the directory `path`, or creates it and the directories above it, all with mode 0700 (less
/// the umask). The path is UTF-8, not empty and without a zero byte; a relative one is good as long as the working
/// directory stays the same. Where a file stands in the way: DIALSM_INVALID_ARGUMENT. One process at a time, and one
/// handle: others get DIALSM_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_open(
    path: *const c_char,
    path_len: usize,
    options: Option<&OptionSet>,
    db: Option<&mut MaybeUninit<Option<Box<Database>>>>,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let path = unsafe { raw::path(path, path_len, "path") };
    make(db, status, || Database::open(path?, options))
}

/// Opens it for reading only: nothing in the directory changes. Any number of such openings may be there at once,
/// while none is there for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_open_read_only(
    path: *const c_char,
    path_len: usize,
    options: Option<&OptionSet>,
    db: Option<&mut MaybeUninit<Option<Box<Database>>>>,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let path = unsafe { raw::path(path, path_len, "path") };
    make(db, status, || Database::open_read_only(path?, options))
}

/// Closes the database for all handles: running jobs stop soon, the log is synced, and every later call gives
/// DIALSM_CLOSED, a second close too. Iterators and scans that are open go on, and keep the directory locked until
/// they are freed. The handle is still to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_close(db: Option<&Database>, status: Option<&mut Status>) -> Code {
    on(db, status, Database::close)
}

/// Frees the handle; no other thread may be using it. What was not closed before stays open as long as a keyspace,
/// snapshot, iterator or scan of it is there, and closes with the last of them, as at the end of the process:
/// nothing that was written is lost. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_db_free(db: Option<Box<Database>>) {
    free_of(db);
}

/// Removes the database in `path`, which must not be open, and the directory if nothing else is in it. No database
/// there is no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_destroy(
    path: *const c_char,
    path_len: usize,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let path = unsafe { raw::path(path, path_len, "path") };
    run(status, || Database::destroy(path?))
}

/// Moves the database in `path`, which must not be open, to the newest format of this version; there is no way back.
/// `from` and `to` get the numbers of the formats, equal where there was nothing to do; either may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_upgrade(
    path: *const c_char,
    path_len: usize,
    from: Option<&mut MaybeUninit<u32>>,
    to: Option<&mut MaybeUninit<u32>>,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let path = unsafe { raw::path(path, path_len, "path") };
    let (mut was, mut is) = (0, 0);
    let code = run(status, || {
        let report = Database::upgrade(path?)?;
        (was, is) = (report.from, report.to);
        Ok(())
    });
    put(from, was);
    put(to, is);
    code
}

/// The names of the keyspaces of the database in `path`, which may be open: the default one first, the others by age.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_list_keyspaces(
    path: *const c_char,
    path_len: usize,
    names: Option<&mut MaybeUninit<Option<Box<Names>>>>,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let path = unsafe { raw::path(path, path_len, "path") };
    make(names, status, || Database::list_keyspaces(path?))
}
