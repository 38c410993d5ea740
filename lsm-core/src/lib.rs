//! The storage engine of DiaLSM: a set of trees over one log, one manifest, one sequence line,
//! one scheduler and one cache.
//!
//! Four journeys run through the modules, which stand here in reading order.
//! - write: `db` → `write/stall` → `write/commit` → `wal` → `memtable` → publication
//! - read: `db` → `read/get` or `read/db_iter` → memtables, L0 newest first, L1.. → `table/reader` → cache
//! - flush: `flush` → `table/writer` → `version/set` (live) → manifest (durable) → log retired
//! - compaction: `compaction/picker` → `compaction/job` → `read/merging_iter` → outputs → as flush
//!
//! This crate makes no system call, reads no clock and rolls no dice: all of it comes in through
//! [`dialsm_io::Env`].

#![deny(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "unit tests may drive the engine with real threads and files"
    )
)]

mod background;
mod background_error;
pub mod batch;
pub mod cache;
mod callback;
mod checkpoint;
pub mod checksum;
pub mod coding;
pub mod compaction;
pub mod db;
mod engine;
pub mod events;
#[doc(hidden)]
pub mod fault;
pub mod filename;
mod flush;
pub mod format;
mod gate;
mod handoff;
mod invariants;
pub mod iterator;
pub mod key;
pub mod keyspace;
mod manual;
pub mod memtable;
pub mod merge_operator;
pub mod metrics;
mod obsolete;
mod open;
pub mod options;
mod pins;
mod prefetch;
pub mod prefix;
mod properties;
pub mod range_del;
pub mod read;
mod read_only;
mod recovery;
mod rollback;
pub mod routing;
pub mod scan;
pub mod slice;
pub mod snapshot;
mod space;
pub mod table;
mod table_dirs;
mod tree;
pub mod types;
mod unlogged;
pub mod upgrade;
pub mod verify;
pub mod version;
pub mod wal;
pub mod write;

pub use batch::WriteBatch;
pub use db::Db;
pub use dialsm_io::{Error, ErrorKind, Result};
pub use events::{Event, EventListener};
#[doc(hidden)]
pub use handoff::ClueJobs;
pub use iterator::DbIterator;
pub use keyspace::Keyspace;
pub use merge_operator::{AssociativeOperator, MergeOperator};
pub use metrics::StallCause;
pub use options::{CompactRangeOptions, FlushOptions, KeyspaceOptions, Options, ReadOptions, WriteOptions};
pub use prefix::{PrefixExtractor, UserPrefixExtractor};
pub use read::get::ReadContext;
pub use scan::{Scan, ScanBatch, ScanOptions};
pub use slice::Slice;
pub use snapshot::Snapshot;
pub use upgrade::UpgradeReport;
pub use verify::{BrokenClue, VerifyReport};
pub use write::stall::{StallReport, StallTimes};
