//! Flushes, compactions, copies

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;

use dialsm_capi_logic::guard::on;
use dialsm_capi_logic::raw::{self, put, texts};
use dialsm_capi_logic::{
    Code, CompactOpts, Database, FlushOpts, KeyspaceHandle, Status, VerifyFigures, give,
};

/// Is told of bytes done and bytes in all.
pub type Progress = Option<unsafe extern "C" fn(state: *mut c_void, done_bytes: u64, total_bytes: u64)>;

/// Writes the memtables of a keyspace into tables and returns when they are durable, or as the options say.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_flush(
    db: Option<&Database>,
    keyspace: Option<&KeyspaceHandle>,
    options: Option<&FlushOpts>,
    status: Option<&mut Status>,
) -> Code {
    on(db, status, |db| db.flush(keyspace, options))
}

/// The same for all keyspaces, of one moment.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_flush_all(
    db: Option<&Database>,
    options: Option<&FlushOpts>,
    status: Option<&mut Status>,
) -> Code {
    on(db, status, |db| db.flush_all(options))
}

/// Makes durable all that was written before the call, by syncing the log.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_sync(db: Option<&Database>, status: Option<&mut Status>) -> Code {
    on(db, status, Database::sync)
}

/// Flushes, and compacts all tables of a keyspace with keys from `from` up to `to` (NULL: no bound there).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_compact_range(
    db: Option<&Database>,
    keyspace: Option<&KeyspaceHandle>,
    options: Option<&CompactOpts>,
    from: *const c_void,
    from_len: usize,
    to: *const c_void,
    to_len: usize,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let (from, to) = unsafe { (raw::bound(from, from_len), raw::bound(to, to_len)) };
    on(db, status, |db| db.compact_range(keyspace, options, from?, to?))
}

/// Replaces the clue entries that are there now by the values that they stand for, in their own shards. Whether that
/// happens by itself, and when, the options `rollback`, `clues_max` and `clue_bytes_max` say, which can be changed
/// while the database is open.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_rollback(db: Option<&Database>, status: Option<&mut Status>) -> Code {
    on(db, status, Database::rollback)
}

/// Whether no flush and no compaction is running or due.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_is_idle(
    db: Option<&Database>,
    is_idle: Option<&mut MaybeUninit<bool>>,
    status: Option<&mut Status>,
) -> Code {
    let mut idle = false;
    let code = on(db, status, |db| {
        idle = db.is_idle()?;
        Ok(())
    });
    put(is_idle, idle);
    code
}

/// Waits until it is so.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_wait_until_idle(db: Option<&Database>, status: Option<&mut Status>) -> Code {
    on(db, status, Database::wait_until_idle)
}

/// Makes a second database in `target_dir`, which must not exist or be empty: what this one holds at a moment during
/// the call. Durable when this returns; by hard links where the file system allows it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_checkpoint(
    db: Option<&Database>,
    target_dir: *const c_char,
    target_dir_len: usize,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let target_dir = unsafe { raw::path(target_dir, target_dir_len, "target_dir") };
    on(db, status, |db| db.checkpoint(target_dir?))
}

/// Reads every table whole and checks it. `progress` (NULL: nobody) is told how far it is. `verified` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_verify(
    db: Option<&Database>,
    state: *mut c_void,
    progress: Progress,
    verified: *mut VerifyFigures,
    status: Option<&mut Status>,
) -> Code {
    on(db, status, |db| {
        let figures = db.verify(&mut |done, total| {
            if let Some(progress) = progress {
                // SAFETY: the function was given for this state.
                unsafe { progress(state, done, total) }
            }
        })?;
        if verified.is_null() {
            return Ok(());
        }
        // SAFETY: the header's contract.
        unsafe { give(verified, &figures) }
    })
}

/// Changes options of the open database (keyspace NULL) or of a keyspace: `count` names and values, as text. All take
/// effect at once or, where one is wrong, none. Only those that docs/OPTIONS.md calls live can be changed; the next
/// opening goes by the options that it is given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_set_options(
    db: Option<&Database>,
    keyspace: Option<&KeyspaceHandle>,
    count: usize,
    names: *const *const c_char,
    name_lens: *const usize,
    values: *const *const c_char,
    value_lens: *const usize,
    status: Option<&mut Status>,
) -> Code {
    on(db, status, |db| {
        // SAFETY: the header's contract.
        let names = unsafe { texts(names, name_lens, count, "names")? };
        // SAFETY: the header's contract.
        let values = unsafe { texts(values, value_lens, count, "values")? };
        let changes: Vec<(&str, &str)> = names.into_iter().zip(values).collect();
        db.set_options(keyspace, &changes)
    })
}
