//! DiaLSM: an embeddable, ordered, persistent key-value engine that keeps accepting writes.
//!
//! One logical tree is cut by a keyed hash into shards, each a small LSM-tree that flushes and compacts by
//! itself. A write whose shard is stalled goes to another shard, and a clue entry of a few bytes in its
//! own shard says where (`redirect`); later a rollback brings it home. To the caller it is one
//! ordered database: one commit log, one line of sequence numbers, atomic batches, snapshots and scans over all.
//!
//! ```
//! use dialsm::{Db, Options, ReadOptions, WriteOptions};
//!
//! let dir = tempfile::tempdir()?;
//! let db = Db::open(dir.path(), Options::default())?;
//! db.put(&WriteOptions::default(), b"key", b"value")?;
//! assert_eq!(db.get(&ReadOptions::default(), b"key")?.as_deref(), Some(&b"value"[..]));
//! db.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The trees, their log and their files are those of [`dialsm_core`]; what this crate adds decides where keys
//! and redirected values go.

#![forbid(unsafe_code)]

mod db;
mod placement;
mod redirect;
pub mod router;
pub mod stall_model;
#[doc(hidden)]
pub mod testing;

pub use db::Db;
pub use dialsm_core::{
    AssociativeOperator, CompactRangeOptions, DbIterator, Error, ErrorKind, Event, EventListener,
    FlushOptions, Keyspace, KeyspaceOptions, MergeOperator, Options, PrefixExtractor, ReadContext,
    ReadOptions, Result, Scan, ScanBatch, ScanOptions, Slice, Snapshot, StallCause, StallReport, StallTimes,
    UpgradeReport, UserPrefixExtractor, VerifyReport, WriteBatch, WriteOptions, events, key, keyspace,
    metrics, options,
};

/// The README's example.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
