//! Write batches
//!
//! A call that fails adds nothing. All keyspaces of a batch are those of one opening of one database, and it can be
//! written to that one only: else DIALSM_INVALID_ARGUMENT, where it is added or written. What a keyspace will not take
//! (a merge without an operator) is found when the batch is written.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use dialsm_capi_logic::guard::{free, make, run};
use dialsm_capi_logic::raw::{self, bytes, given, put};
use dialsm_capi_logic::{Batch, Code, KeyspaceHandle, Status};

/// What an operation of a batch does.
#[repr(u32)]
#[allow(non_camel_case_types, dead_code, reason = "the names stand in the C header as they are here")]
pub enum dialsm_op_t {
    /// Sets the key to the value.
    DIALSM_OP_PUT = 1,
    /// Removes the key.
    DIALSM_OP_DELETE = 2,
    /// Removes the key, which was put once.
    DIALSM_OP_SINGLE_DELETE = 3,
    /// Removes the keys from the key up to the value.
    DIALSM_OP_DELETE_RANGE = 4,
    /// Adds the value as an operand.
    DIALSM_OP_MERGE = 5,
}

/// Is shown an operation: what it does (dialsm_op_t), the id of its keyspace, its key, its value or the end of its
/// range.
pub type ShowOp = Option<
    unsafe extern "C" fn(
        state: *mut c_void,
        op: u32,
        keyspace_id: u32,
        key: *const u8,
        key_len: usize,
        value: *const u8,
        value_len: usize,
    ),
>;

/// An empty batch.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_batch_create() -> Option<Box<Batch>> {
    Some(Box::default())
}

/// A batch from the bytes of another (dialsm_batch_data()), of this process or any. The bytes are copied. They name
/// keyspaces by their ids, and so mean those with the same ids in the database that the batch is written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_batch_create_from_data(
    data: *const c_void,
    data_len: usize,
    batch: Option<&mut MaybeUninit<Option<Box<Batch>>>>,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let data = unsafe { bytes(data, data_len, "data") };
    make(batch, status, || Batch::from_data(data?))
}

/// Frees it. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_batch_free(batch: Option<Box<Batch>>) {
    free(batch);
}

/// Takes all operations out and keeps the memory. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_batch_clear(batch: Option<&mut Batch>) {
    if let Some(batch) = batch {
        batch.clear();
    }
}

/// Adds a put.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_batch_put(
    batch: Option<&mut Batch>,
    keyspace: Option<&KeyspaceHandle>,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let (key, value) = unsafe { (raw::key(key, key_len), raw::value(value, value_len)) };
    run(status, || given(batch, "batch")?.put(keyspace, key?, value?))
}

/// Adds a delete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_batch_delete(
    batch: Option<&mut Batch>,
    keyspace: Option<&KeyspaceHandle>,
    key: *const c_void,
    key_len: usize,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let key = unsafe { raw::key(key, key_len) };
    run(status, || given(batch, "batch")?.delete(keyspace, key?))
}

/// Adds a single delete; see dialsm_single_delete().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_batch_single_delete(
    batch: Option<&mut Batch>,
    keyspace: Option<&KeyspaceHandle>,
    key: *const c_void,
    key_len: usize,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let key = unsafe { raw::key(key, key_len) };
    run(status, || given(batch, "batch")?.single_delete(keyspace, key?))
}

/// Adds a range delete; see dialsm_delete_range().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_batch_delete_range(
    batch: Option<&mut Batch>,
    keyspace: Option<&KeyspaceHandle>,
    from: *const c_void,
    from_len: usize,
    to: *const c_void,
    to_len: usize,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let (from, to) = unsafe { (raw::key(from, from_len), raw::key(to, to_len)) };
    run(status, || given(batch, "batch")?.delete_range(keyspace, from?, to?))
}

/// Adds a merge operand; see dialsm_merge().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_batch_merge(
    batch: Option<&mut Batch>,
    keyspace: Option<&KeyspaceHandle>,
    key: *const c_void,
    key_len: usize,
    operand: *const c_void,
    operand_len: usize,
    status: Option<&mut Status>,
) -> Code {
    // SAFETY: the header's contract.
    let (key, operand) = unsafe { (raw::key(key, key_len), raw::value(operand, operand_len)) };
    run(status, || given(batch, "batch")?.merge(keyspace, key?, operand?))
}

/// How many operations it has; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_batch_count(batch: Option<&Batch>) -> u32 {
    batch.map_or(0, |batch| batch.operations().len())
}

/// Its bytes, as the log stores them, and their number. Valid until the batch changes. NULL gives NULL.
#[unsafe(no_mangle)]
pub extern "C" fn dialsm_batch_data(
    batch: Option<&Batch>,
    data_len: Option<&mut MaybeUninit<usize>>,
) -> *const c_void {
    let data = batch.map(|batch| batch.operations().as_bytes());
    put(data_len, data.map_or(0, <[u8]>::len));
    data.map_or(std::ptr::null(), |data| data.as_ptr().cast())
}

/// Shows every operation to `show`, in the order in which they were added. `show` must not change the batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dialsm_batch_each(
    batch: Option<&Batch>,
    state: *mut c_void,
    show: ShowOp,
    status: Option<&mut Status>,
) -> Code {
    run(status, || {
        let (batch, show) = (given(batch, "batch")?, given(show, "show")?);
        batch.each(|op, keyspace, key, value| {
            // SAFETY: the function was given for this state, and reads no more than the lengths say.
            unsafe { show(state, op, keyspace, key.as_ptr(), key.len(), value.as_ptr(), value.len()) }
        })
    })
}
