//! Options of single calls
//!
//! Wherever a call takes one of these, NULL means the defaults. Setters return DIALSM_INVALID_ARGUMENT for a NULL
//! object and change nothing.

use std::ffi::c_void;

use dialsm_capi_logic::guard::{free, free_of, run};
use dialsm_capi_logic::raw::{self, given};
use dialsm_capi_logic::{
    Cancel, Code, CompactOpts, FlushOpts, ReadOpts, ScanOpts, SnapshotHandle, WriteOpts, owned,
};

/// Default write options: not synced, logged, waiting while writes are stalled.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_write_options_create() -> Option<Box<WriteOpts>> {
    Some(Box::default())
}

/// Frees them. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_write_options_free(options: Option<Box<WriteOpts>>) {
    free(options);
}

/// Return only when the write is on stable storage. Off by default: it then survives the end of the process, and a
/// power cut keeps a prefix of such writes.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_write_options_set_sync(options: Option<&mut WriteOpts>, sync: bool) -> Code {
    set(options, |options| options.options.sync = sync)
}

/// Leave the commit log out: the write is lost with the process unless it was flushed. Off by default.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_write_options_set_disable_log(
    options: Option<&mut WriteOpts>,
    disable_log: bool,
) -> Code {
    set(options, |options| options.options.disable_log = disable_log)
}

/// Fail with DIALSM_WOULD_STALL rather than wait for flushes or compactions. Off by default.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_write_options_set_no_slowdown(
    options: Option<&mut WriteOpts>,
    no_slowdown: bool,
) -> Code {
    set(options, |options| options.options.no_slowdown = no_slowdown)
}

/// Fail with DIALSM_TIMED_OUT rather than wait longer than so many nanoseconds from the call on. UINT64_MAX, the
/// default, is no limit.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_write_options_set_timeout_ns(
    options: Option<&mut WriteOpts>,
    timeout_ns: u64,
) -> Code {
    set(options, |options| options.timeout_ns = Some(timeout_ns).filter(|ns| *ns != u64::MAX))
}

/// Default read options: what is visible now, blocks checked and kept in the cache.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_read_options_create() -> Option<Box<ReadOpts>> {
    Some(Box::default())
}

/// Frees them. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_read_options_free(options: Option<Box<ReadOpts>>) {
    free_of(options);
}

/// Read at a snapshot; NULL: what is visible at the call. The options keep the snapshot until another one is set or
/// they are freed; the database they do not hold open.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_read_options_set_snapshot(
    options: Option<&mut ReadOpts>,
    snapshot: Option<&SnapshotHandle>,
) -> Code {
    set(options, |options| options.set_snapshot(snapshot))
}

/// Iterators and scans show no key before this one; NULL: from the first on. The bytes are copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_read_options_set_lower_bound(
    options: Option<&mut ReadOpts>,
    key: *const c_void,
    key_len: usize,
) -> Code {
    // SAFETY: the header's contract.
    let key = unsafe { raw::bound(key, key_len) };
    run(None, || {
        given(options, "options")?.options.lower_bound = key?.map(owned).transpose()?;
        Ok(())
    })
}

/// Iterators and scans show neither this key nor any after it; NULL: up to the last. The bytes are copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_read_options_set_upper_bound(
    options: Option<&mut ReadOpts>,
    key: *const c_void,
    key_len: usize,
) -> Code {
    // SAFETY: the header's contract.
    let key = unsafe { raw::bound(key, key_len) };
    run(None, || {
        given(options, "options")?.options.upper_bound = key?.map(owned).transpose()?;
        Ok(())
    })
}

/// Sets both bounds so that iterators and scans show the keys which begin with `prefix`. For keyspaces in the order
/// of bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_read_options_set_prefix(
    options: Option<&mut ReadOpts>,
    prefix: *const c_void,
    prefix_len: usize,
) -> Code {
    // SAFETY: the header's contract.
    let prefix = unsafe { raw::key(prefix, prefix_len) };
    run(None, || {
        let (options, prefix) = (given(options, "options")?, prefix?);
        options.options = options.options.clone().with_prefix(prefix);
        Ok(())
    })
}

/// Iterators end where the prefix of the key that they were sent to ends. Needs a prefix extractor. Off by default.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_read_options_set_prefix_same_as_start(
    options: Option<&mut ReadOpts>,
    prefix_same_as_start: bool,
) -> Code {
    set(options, |options| options.options.prefix_same_as_start = prefix_same_as_start)
}

/// Fail with DIALSM_TIMED_OUT so many nanoseconds after the call, or after an iterator's creation. UINT64_MAX, the
/// default, is no limit.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_read_options_set_timeout_ns(
    options: Option<&mut ReadOpts>,
    timeout_ns: u64,
) -> Code {
    set(options, |options| options.timeout_ns = Some(timeout_ns).filter(|ns| *ns != u64::MAX))
}

/// Keep the blocks that come from the disk in the block cache. On by default; off for long scans.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_read_options_set_fill_cache(
    options: Option<&mut ReadOpts>,
    fill_cache: bool,
) -> Code {
    set(options, |options| options.options.fill_cache = fill_cache)
}

/// Check the checksums of blocks that come from the disk. On by default.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_read_options_set_verify_checksums(
    options: Option<&mut ReadOpts>,
    verify_checksums: bool,
) -> Code {
    set(options, |options| options.options.verify_checksums = verify_checksums)
}

/// Bytes that an iterator reads ahead at most. 0, the default, lets it find out by itself.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_read_options_set_readahead_bytes(
    options: Option<&mut ReadOpts>,
    readahead_bytes: u64,
) -> Code {
    set(options, |options| options.options.readahead_bytes = readahead_bytes)
}

/// Default flush options: wait for the end, even where writes have to wait meanwhile.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_flush_options_create() -> Option<Box<FlushOpts>> {
    Some(Box::default())
}

/// Frees them. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_flush_options_free(options: Option<Box<FlushOpts>>) {
    free(options);
}

/// Return only when what was written before the call is durable in tables. On by default.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_flush_options_set_wait(options: Option<&mut FlushOpts>, wait: bool) -> Code {
    set(options, |options| options.options.wait = wait)
}

/// Flush even where writes would have to wait for it. On by default.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_flush_options_set_allow_stall(
    options: Option<&mut FlushOpts>,
    allow_stall: bool,
) -> Code {
    set(options, |options| options.options.allow_stall = allow_stall)
}

/// With several keyspaces: a crash leaves all of their tables or none. Off by default.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_flush_options_set_atomic(options: Option<&mut FlushOpts>, atomic: bool) -> Code {
    set(options, |options| options.options.atomic = atomic)
}

/// Default options of a compaction by hand.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_compact_options_create() -> Option<Box<CompactOpts>> {
    Some(Box::default())
}

/// Frees them. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_compact_options_free(options: Option<Box<CompactOpts>>) {
    free(options);
}

/// The level that the data ends in. -1, the default, is the deepest that holds any of it.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_compact_options_set_target_level(
    options: Option<&mut CompactOpts>,
    target_level: i32,
) -> Code {
    run(None, || {
        given(options, "options")?.options.target_level = match target_level {
            -1 => None,
            level => Some(u8::try_from(level).map_err(|_| dialsm::Error::invalid("no such level"))?),
        };
        Ok(())
    })
}

/// Rewrite the last level, too. Off by default.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_compact_options_set_rewrite_bottom(
    options: Option<&mut CompactOpts>,
    rewrite_bottom: bool,
) -> Code {
    set(options, |options| options.options.rewrite_bottom = rewrite_bottom)
}

/// Let dialsm_cancel() end the compaction; NULL: nothing does.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_compact_options_set_cancel(
    options: Option<&mut CompactOpts>,
    cancel: Option<&Cancel>,
) -> Code {
    set(options, |options| options.options.cancel = cancel.map(Cancel::flag))
}

/// An object by which another thread ends a compaction.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_cancel_create() -> Option<Box<Cancel>> {
    Some(Box::default())
}

/// Frees it; what it was given to goes on. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_cancel_free(cancel: Option<Box<Cancel>>) {
    free(cancel);
}

/// Ends what it was given to, soon, with DIALSM_CANCELLED; also what is begun later. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_cancel(cancel: Option<&Cancel>) {
    if let Some(cancel) = cancel {
        cancel.cancel();
    }
}

/// Default options of a bulk scan: everything, forward, in batches of 128 KiB.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_scan_options_create() -> Option<Box<ScanOpts>> {
    Some(Box::default())
}

/// Frees them. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_scan_options_free(options: Option<Box<ScanOpts>>) {
    free(options);
}

/// The first key wanted, and the first not wanted any more; NULL: no bound there. The bytes are copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_scan_options_set_range(
    options: Option<&mut ScanOpts>,
    from: *const c_void,
    from_len: usize,
    to: *const c_void,
    to_len: usize,
) -> Code {
    // SAFETY: the header's contract.
    let (from, to) = unsafe { (raw::bound(from, from_len), raw::bound(to, to_len)) };
    run(None, || {
        let (from, to) = (from?.map(owned).transpose()?, to?.map(owned).transpose()?);
        let options = &mut given(options, "options")?.options;
        (options.start, options.end) = (from, to);
        Ok(())
    })
}

/// Entries after which the scan ends. 0, the default, is no limit.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_scan_options_set_entries_max(
    options: Option<&mut ScanOpts>,
    entries_max: u64,
) -> Code {
    set(options, |options| options.options.entries_max = entries_max)
}

/// From the end of the range to its start. Off by default.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_scan_options_set_backward(options: Option<&mut ScanOpts>, backward: bool) -> Code {
    set(options, |options| options.options.backward = backward)
}

/// Bytes of keys and values at which a batch is given: at least so many, and at most an entry more. 128 KiB by
/// default.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_scan_options_set_batch_bytes(
    options: Option<&mut ScanOpts>,
    batch_bytes: usize,
) -> Code {
    set(options, |options| options.options.batch_bytes = batch_bytes)
}

/// Entries at which a batch is given. 0, the default: its bytes alone say when.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_scan_options_set_batch_entries_max(
    options: Option<&mut ScanOpts>,
    batch_entries_max: usize,
) -> Code {
    set(options, |options| options.options.batch_entries_max = batch_entries_max)
}

/// Bytes from which on a scan counts as long, so that other threads may read ahead for it, if the option
/// `scan_threads` allows some. 256 KiB by default; UINT64_MAX is never.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_scan_options_set_long_bytes(
    options: Option<&mut ScanOpts>,
    long_bytes: u64,
) -> Code {
    set(options, |options| options.options.long_bytes = long_bytes)
}

/// Bytes that those threads may read ahead. 8 MiB by default.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_scan_options_set_ahead_bytes_max(
    options: Option<&mut ScanOpts>,
    ahead_bytes_max: usize,
) -> Code {
    set(options, |options| options.options.ahead_bytes_max = ahead_bytes_max)
}

fn set<T>(options: Option<&mut T>, change: impl FnOnce(&mut T)) -> Code {
    run(None, || {
        change(given(options, "options")?);
        Ok(())
    })
}
