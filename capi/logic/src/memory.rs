//! Memory that C code gets and gives back: that of `malloc`, so that `free` would do, too.

use std::ffi::{c_char, c_void};

use dialsm::{Error, Result};

/// A copy of `bytes` with a zero byte behind them, which the caller owns.
///
/// # Errors
/// `OutOfMemory`.
pub fn copy(bytes: &[u8], what: &str) -> Result<*mut u8> {
    // SAFETY: malloc takes any size; a slice's length leaves room for one more.
    let memory = unsafe { libc::malloc(bytes.len() + 1) }.cast::<u8>();
    if memory.is_null() {
        return Err(Error::out_of_memory(what));
    }
    // SAFETY: `memory` has room for the bytes and one more, and is not part of them.
    unsafe {
        memory.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        memory.add(bytes.len()).write(0);
    }
    Ok(memory)
}

/// A copy of `text` for C.
///
/// # Errors
/// `OutOfMemory`.
pub fn copy_text(text: &str) -> Result<*mut c_char> {
    copy(text.as_bytes(), "a text").map(<*mut u8>::cast)
}

/// Gives back what [`copy`] or [`copy_text`] gave; NULL is nothing.
///
/// # Safety
/// It comes from there, and is not used any more.
pub unsafe fn free(memory: *mut c_void) {
    // SAFETY: it came from malloc.
    unsafe { libc::free(memory) }
}
