//! What stands behind the C interface: the objects that C code holds, and how a call reaches the engine.
//!
//! ```text
//! dialsm_put(db, .., status)     package dialsm-capi: pointers to references, nothing else
//!   guard::on                    a closed, poisoned or missing handle; a panic; the error into the status
//!     Database::put              this package: defaults for what is NULL, deadlines, then `dialsm::Db`
//! ```
//! No function here is exported under a C name, so that another C interface over the same engine can use all of
//! it without exporting `dialsm_*` as well.
//!
//! INVARIANTS
//! - Nothing unwinds out of [`guard::run`] and [`guard::on`], and every exported function goes through one of
//!   them or cannot panic. A panic poisons the database it happened in, and no other; attacked by
//!   `a_panic_poisons_its_database_only`.
//! - Iterators, scans, snapshots and keyspaces hold the database open; attacked by
//!   `handles_outlive_the_database_handle`.
//! - Lengths are checked before memory is read or reserved for them. What can't be checked (a length that is
//!   too large for what the pointer points at, a handle that was freed) is the caller's to keep right.
//!
//! Unsafe code is in [`raw`], in [`callback`] and [`event`], where C functions are called, in [`memory`] and in `figures`.

mod batch;
pub mod callback;
mod code;
mod database;
mod entries;
pub mod event;
mod figures;
pub mod guard;
mod iterator;
pub mod memory;
mod names;
mod options;
mod pinned;
pub mod raw;
mod status;

pub use batch::Batch;
pub use callback::{ComparatorHandle, MergeOperatorHandle, MergeResult, PrefixExtractorHandle};
pub use code::Code;
pub use database::{Database, KeyspaceHandle, SnapshotHandle};
pub use entries::Entries;
pub use event::{EventListenerHandle, EventSeverity, EventView};
pub use figures::{ClueReport, SizedFigures, StallCount, StallFigures, StallState, VerifyFigures, give};
pub use iterator::{Iter, ScanHandle};
pub use names::Names;
pub use options::{
    Cancel, CompactOpts, FlushOpts, OptionSet, ReadOpts, ScanOpts, WriteOpts, option_name, owned,
};
pub use pinned::{Pinned, Values};
pub use status::Status;
