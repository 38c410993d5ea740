//! Cache prefetch: a hint, a no-op where the machine has none.

#![allow(unsafe_code)]

/// Bytes of a cache line.
pub(super) const LINE_BYTES: usize = 64;

/// Starts to load `count` lines from `start` up. Any address will do: a hint never faults.
#[inline(always)]
pub(super) fn lines(start: *const u8, count: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in 0..count {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: prefetch reads nothing that the program could see, and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(line * LINE_BYTES).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (start, count);
}
