//! Blocking signals around the birth of a thread: a new thread inherits its maker's mask.

#![allow(unsafe_code)]

use std::mem::MaybeUninit;

/// Signals that a thread raises by its own fault. The kernel kills the process outright when
/// one of them is blocked, and the host program's crash handler would never run.
const FAULTS: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// While it lives, the calling thread takes no signal but the faults. Not `Send`: the mask is
/// the thread's own.
pub(crate) struct SignalsBlocked {
    before: libc::sigset_t,
    _not_send: std::marker::PhantomData<*const ()>,
}

impl SignalsBlocked {
    /// Blocks them.
    pub(crate) fn new() -> SignalsBlocked {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `all` is a valid place for a set, which `sigfillset` initialises before any
        // other call reads it; the numbers given to `sigdelset` are signals of this platform.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            for signal in FAULTS {
                libc::sigdelset(all.as_mut_ptr(), signal);
            }
        }
        // SAFETY: `all` was initialised above, and `before` is a valid place for the old mask.
        let failed = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
        assert_eq!(failed, 0, "pthread_sigmask fails only for an unknown `how`");
        // SAFETY: the call above succeeded, so it wrote the old mask.
        let before = unsafe { before.assume_init() };
        SignalsBlocked { before, _not_send: std::marker::PhantomData }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: `before` is the mask that `pthread_sigmask` gave us; no old mask is asked for.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_blocked(signal: libc::c_int) -> bool {
        let mut now = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: a null new mask only asks; `now` is a valid place, written on success.
        unsafe {
            assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), now.as_mut_ptr()), 0);
            libc::sigismember(now.as_ptr(), signal) == 1
        }
    }

    #[test]
    fn a_thread_born_inside_inherits_the_mask_and_its_maker_gets_the_old_one_back() {
        assert!(!is_blocked(libc::SIGUSR1));
        let guard = SignalsBlocked::new();
        let child = std::thread::spawn(|| {
            [libc::SIGUSR1, libc::SIGINT, libc::SIGTERM, libc::SIGSEGV].map(is_blocked)
        });
        assert!(is_blocked(libc::SIGUSR1));
        drop(guard);
        assert!(!is_blocked(libc::SIGUSR1));
        let blocked = child.join().expect("the probe does not panic");
        assert_eq!(blocked, [true, true, true, false]);
    }
}
