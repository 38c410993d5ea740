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

pub mod checksum;
pub mod coding;
pub mod compaction;
pub mod format;
pub mod key;
pub mod metrics;
pub mod options;
pub mod memtable;
pub mod read;
pub mod slice;
pub mod types;
pub mod version;

pub use dialsm_io::{Error, ErrorKind, Result};
pub use options::{CompactRangeOptions, FlushOptions, Options, ReadOptions, WriteOptions};
pub use slice::Slice;
