//! The one call on files for which no safe wrapper is at hand.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};

/// Asks the kernel to start writing dirty pages of the range; a hint, so a failure is ignored.
pub(super) fn start_writeback(fd: BorrowedFd<'_>, offset: u64, len: u64) {
    // Zero length would mean "to the end of the file"; a range past what the call can express
    // holds no bytes.
    let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else { return };
    if len == 0 {
        return;
    }
    // SAFETY: the call takes no pointer, and the borrowed descriptor is open while it runs.
    let _ = unsafe { libc::sync_file_range(fd.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE) };
}
