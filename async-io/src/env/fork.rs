//! Telling a process from its forked child by one load instead of a system call.
//!
//! A private page holds a mark, and the kernel is told to hand children a page of zeros in its
//! place (`MADV_WIPEONFORK`, since Linux 4.14). Asking for the process id would cost a few hundred
//! nanoseconds, paid by every read; a handler for forks would be global state that outlives the
//! library. Where the kernel refuses, the process id is asked for after all.

#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, ErrorKind, Result};

/// What the page holds in the process that made it.
const MARK: u32 = 0x0d1a_15a1;

/// Bytes to map; the kernel rounds up to its page size.
const MAP_BYTES: usize = size_of::<AtomicU32>();

/// Knows the process that made it.
struct ForkGuard {
    /// The wiped page; `None` where the kernel has no such thing.
    page: Option<NonNull<AtomicU32>>,
    pid: u32,
}

// SAFETY: the page is reached through an atomic only, and unmapped only by `Drop`, which has the
// guard for itself.
unsafe impl Send for ForkGuard {}
// SAFETY: as above.
unsafe impl Sync for ForkGuard {}

impl ForkGuard {
    fn new() -> ForkGuard {
        ForkGuard { page: map_wiped_page(), pid: std::process::id() }
    }

    /// Whether this is still the process that made the guard.
    #[inline]
    fn is_same_process(&self) -> bool {
        match self.page {
            // SAFETY: the page stays mapped as long as the guard lives, in a child too (as zeros).
            Some(page) => unsafe { page.as_ref() }.load(Ordering::Relaxed) == MARK,
            None => std::process::id() == self.pid,
        }
    }
}

impl Drop for ForkGuard {
    fn drop(&mut self) {
        if let Some(page) = self.page {
            // SAFETY: the mapping is ours, and no reference to it outlives the guard.
            unsafe { libc::munmap(page.as_ptr().cast(), MAP_BYTES) };
        }
    }
}

/// Tells a process from its forked children. The default one knows of no process, and never fails (a
/// simulation). Usable from all threads at once; clones know the same process.
#[derive(Clone, Default)]
pub struct Fork(Option<Arc<ForkGuard>>);

impl Fork {
    /// Knows the calling process.
    pub fn here() -> Fork {
        Fork(Some(Arc::new(ForkGuard::new())))
    }

    /// Knows no process at all, and fails in each: for a child that may open nothing.
    pub(super) fn nowhere() -> Fork {
        Fork(Some(Arc::new(ForkGuard { page: None, pid: 0 })))
    }

    /// Whether this is a child of the process that made it. Takes no lock.
    #[inline]
    pub fn is_child(&self) -> bool {
        self.0.as_ref().is_some_and(|guard| !guard.is_same_process())
    }

    /// Fails in a child of the process that made it. Takes no lock.
    ///
    /// # Errors
    /// `Forked`.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.is_child() { Err(forked()) } else { Ok(()) }
    }
}

#[cold]
fn forked() -> Error {
    let text = "a child of fork() can't use what its parent opened, nor open anything if that was still open";
    Error::new(ErrorKind::Forked, text)
}

fn map_wiped_page() -> Option<NonNull<AtomicU32>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches nothing.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), MAP_BYTES, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the range is the mapping made above.
    if unsafe { libc::madvise(start, MAP_BYTES, libc::MADV_WIPEONFORK) } != 0 {
        // SAFETY: as above, and nothing refers to it.
        unsafe { libc::munmap(start, MAP_BYTES) };
        return None;
    }
    let page = NonNull::new(start.cast::<AtomicU32>())?;
    // SAFETY: mapped, writable, zeroed (a valid atomic) and aligned to a page.
    unsafe { page.as_ref() }.store(MARK, Ordering::Relaxed);
    Some(page)
}
