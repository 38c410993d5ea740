//! Version and memory

use std::ffi::{c_char, c_void};

use dialsm_capi_logic::memory;

/// The version of this interface, counted up whenever a function, type or value of an older one changes. A
/// program may compare it with the DIALSM_ABI_VERSION that it was compiled with.
pub const DIALSM_ABI_VERSION: u32 = 1;

/// The longest key, in bytes.
pub const DIALSM_KEY_BYTES_MAX: usize = 65535;

/// The longest value, in bytes.
pub const DIALSM_VALUE_BYTES_MAX: usize = 1073741824;

/// DIALSM_ABI_VERSION of the library that is linked.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_abi_version() -> u32 {
    DIALSM_ABI_VERSION
}

/// The version of the library, such as "0.1.0". The text is not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_version() -> *const c_char {
    const { concat!(env!("CARGO_PKG_VERSION"), "\0") }.as_ptr().cast()
}

/// Frees what a call has given out as memory of the caller's. NULL is nothing. free() would do as well.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_free(memory: *mut c_void) {
    // SAFETY: the header asks for what a call gave out, once.
    unsafe { memory::free(memory) }
}
