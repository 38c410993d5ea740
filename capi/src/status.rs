//! Status

use std::ffi::c_char;
use std::mem::MaybeUninit;

use dialsm_capi_logic::guard::free;
use dialsm_capi_logic::raw::put;
use dialsm_capi_logic::{Code, Status};

/// A status object, to be given to any number of calls, one after the other.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_status_create() -> Option<Box<Status>> {
    Some(Box::default())
}

/// Frees it. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_status_free(status: Option<Box<Status>>) {
    free(status);
}

/// What the last call that it was given to returned. NULL: DIALSM_OK.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_status_code(status: Option<&Status>) -> Code {
    status.map_or(Code::DIALSM_OK, Status::code)
}

/// What went wrong, without file and offset; "" after success. Valid until the status is given to another call.
/// Keys and values are in no message.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_status_message(status: Option<&Status>) -> *const c_char {
    status.map_or(c"", Status::message).as_ptr()
}

/// The path of the file concerned; NULL where there is none. Valid as the message is.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_status_file(status: Option<&Status>) -> *const c_char {
    status.and_then(Status::file).map_or(std::ptr::null(), |file| file.as_ptr())
}

/// Whether the offset in that file is known, and where it is.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_status_offset(
    status: Option<&Status>,
    offset: Option<&mut MaybeUninit<u64>>,
) -> bool {
    let known = status.and_then(Status::offset);
    put(offset, known.unwrap_or(0));
    known.is_some()
}

/// The operating system's error number (errno); 0 where none stood behind the error.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_status_os_error(status: Option<&Status>) -> i32 {
    status.map_or(0, Status::os_code)
}

/// A word or two for a code, such as "not found". The text is not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_code_name(code: u32) -> *const c_char {
    Code::name(code).as_ptr()
}
