//! The few calls to the system that std does not have.

/// CPU seconds that this process has used: those of its own code, and those of the kernel for it.
pub(crate) fn cpu_seconds() -> (f64, f64) {
    // SAFETY: zeroes are a valid rusage, and the call writes only that structure.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    (seconds(usage.ru_utime), seconds(usage.ru_stime))
}

/// Ticks a second in the kernel's texts about CPU time.
pub(crate) fn ticks_per_second() -> f64 {
    // SAFETY: reads a constant of the system; no memory is involved.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    if ticks > 0 { ticks as f64 } else { 100.0 }
}

/// Asks the kernel to kill this process when its parent dies, so that no run goes on unseen.
pub(crate) fn die_with_parent() {
    // SAFETY: sets an attribute of this process; no memory is involved.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Lets this thread's sleeps end as close to their time as the kernel can.
pub(crate) fn sleep_precisely() {
    // SAFETY: sets an attribute of this thread; no memory is involved.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

/// Has the file system that `dir` is on write back what it holds in memory.
///
/// # Errors
/// The directory is missing, or the write-back failed.
pub(crate) fn sync_files(dir: &std::path::Path) -> anyhow::Result<()> {
    use std::os::fd::AsRawFd;
    if !dir.exists() {
        return Ok(());
    }
    let handle = std::fs::File::open(dir)?;
    // SAFETY: an open descriptor; no memory is involved.
    if unsafe { libc::syncfs(handle.as_raw_fd()) } != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok(())
}
