//! Writes
//!
//! Each is atomic, and visible to every read that begins after it returned.

use std::ffi::c_void;

use dialsm_capi_logic::guard::on;
use dialsm_capi_logic::raw::{self, given};
use dialsm_capi_logic::{Batch, Code, Database, KeyspaceHandle, Status, WriteOpts};

/// Sets a key to a value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_put(
    db: Option<&Database>,
    keyspace: Option<&KeyspaceHandle>,
    options: Option<&WriteOpts>,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let (key, value) = unsafe { (raw::key(key, key_len), raw::value(value, value_len)) };
    on(db, status, |db| db.put(keyspace, options, key?, value?))
}

/// Removes a key. It is no error if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_delete(
    db: Option<&Database>,
    keyspace: Option<&KeyspaceHandle>,
    options: Option<&WriteOpts>,
    key: *const c_void,
    key_len: usize,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let key = unsafe { raw::key(key, key_len) };
    on(db, status, |db| db.delete(keyspace, options, key?))
}

/// Removes a key that was put only while it was absent: the caller promises that. Where it does not hold, an older
/// value may come back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_single_delete(
    db: Option<&Database>,
    keyspace: Option<&KeyspaceHandle>,
    options: Option<&WriteOpts>,
    key: *const c_void,
    key_len: usize,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let key = unsafe { raw::key(key, key_len) };
    on(db, status, |db| db.single_delete(keyspace, options, key?))
}

/// Removes all keys from `from` up to `to`, which stays; as cheap as one delete. `from` must not come after `to`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_delete_range(
    db: Option<&Database>,
    keyspace: Option<&KeyspaceHandle>,
    options: Option<&WriteOpts>,
    from: *const c_void,
    from_len: usize,
    to: *const c_void,
    to_len: usize,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let (from, to) = unsafe { (raw::key(from, from_len), raw::key(to, to_len)) };
    on(db, status, |db| db.delete_range(keyspace, options, from?, to?))
}

/// Adds an operand to what the keyspace's merge operator makes the key's value of.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_merge(
    db: Option<&Database>,
    keyspace: Option<&KeyspaceHandle>,
    options: Option<&WriteOpts>,
    key: *const c_void,
    key_len: usize,
    operand: *const c_void,
    operand_len: usize,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let (key, operand) = unsafe { (raw::key(key, key_len), raw::value(operand, operand_len)) };
    on(db, status, |db| db.merge(keyspace, options, key?, operand?))
}

/// Applies all operations of a batch, at once to every reader, whole or not at all after a crash. The batch stays as
/// it is and can be written again.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_write(
    db: Option<&Database>,
    options: Option<&WriteOpts>,
    batch: Option<&Batch>,
    status: Option<&mut Status>,
) -> Code {
    on(db, status, |db| db.write(options, given(batch, "batch")?))
}
