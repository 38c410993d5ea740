//! Tables (SSTs): sorted, immutable files of entries.
//!
//! Flush and compaction write them (F2, C5) with [`TableWriter`]; reads meet them last (R4) in
//! [`TableReader`], whose blocks come through the block cache (R5, [`crate::cache`]).
//!
//! In reading order: `format` (the whole file, footer, handles, sealed blocks), `block` (restart
//! points), `filter`, `index`, `properties`, `range_section`, `writer`, `reader`,
//! `fetch` (blocks of many tables read together), `iter`, `verify`.
//!
//! Invariants
//! - Entries are in strictly ascending internal-key order; the writer refuses anything else.
//! - An index separator is at or after the last key of its block and before the first key of the
//!   next. Where the two blocks share a user key it is that last key itself, so a look-up needs
//!   one block, however the versions of a key straddle blocks.
//! - A filter answers "no" only for user keys that the table has no entry of, and for prefixes that
//!   none of its entries has. It knows nothing of range tombstones: whoever asks a table for a key asks
//!   for its cover as well (B021).
//! - No byte of a file is believed before a checksum or a bound has spoken for it; what is wrong
//!   becomes an error with file and offset. Attacked by `flip_every_byte` and `cut_at_every_length`.

mod block;
mod fetch;
mod filter;
pub mod format;
mod index;
mod iter;
pub mod properties;
mod range_section;
mod reader;
mod verify;
mod walks;
mod writer;

#[cfg(test)]
mod tests;

pub use block::Block;
pub(crate) use fetch::Fetcher;
pub use fetch::Missing;
pub use filter::{PREFIX_PROPERTY, hash_key};
pub use format::Compression;
pub use iter::TableIter;
pub use properties::Properties;
pub use reader::TableReader;
pub use verify::VerifyReport;
pub use writer::{TableMeta, TableWriter};

use crate::prefix::PrefixExtractor;
use crate::types::SeqNo;
use crate::{Error, Result, Slice};

/// How a table is written.
#[derive(Clone, Debug)]
pub struct TableOptions {
    /// Bytes at which a data block is cut, before compression. Default 4096: one page a point
    /// read; larger favours scans and compression. 1 to 64 MiB; an entry is never split, so a
    /// large value makes a block of its own.
    pub block_bytes: usize,
    /// Entries between two whole keys in a block. Default 16. Smaller makes look-ups a little
    /// faster and blocks larger. 1 to 4096.
    pub restart_interval: usize,
    /// Bits of filter for each user key. Default 10: below 1 % false positives. 0 means no
    /// filter; at most 64.
    pub filter_bits_per_key: f64,
    /// Whether the filter holds the user keys. Default on. Off, with an extractor, it holds their
    /// prefixes only; without one there is no filter.
    pub filter_whole_keys: bool,
    /// Whose prefixes the filter holds. Default none.
    pub prefix_extractor: Option<PrefixExtractor>,
    /// How data blocks are compressed. Default LZ4.
    pub compression: Compression,
    /// Bytes at which a partition of the index is cut. Default 4096. 1 to 64 MiB.
    pub index_partition_bytes: usize,
}

impl Default for TableOptions {
    fn default() -> TableOptions {
        TableOptions {
            block_bytes: 4096,
            restart_interval: 16,
            filter_bits_per_key: 10.0,
            filter_whole_keys: true,
            prefix_extractor: None,
            compression: Compression::Lz4,
            index_partition_bytes: 4096,
        }
    }
}

impl TableOptions {
    /// Checks every range.
    ///
    /// # Errors
    /// `InvalidArgument` naming all options out of range; `Unsupported` if this build lacks the codec.
    pub fn validate(&self) -> Result<()> {
        const BYTES_MAX: usize = 64 << 20;
        let mut wrong = Vec::new();
        if !(1..=BYTES_MAX).contains(&self.block_bytes) {
            wrong.push("block_bytes must be 1 to 64 MiB");
        }
        if !(1..=4096).contains(&self.restart_interval) {
            wrong.push("restart_interval must be 1 to 4096");
        }
        if !(0.0..=64.0).contains(&self.filter_bits_per_key) {
            wrong.push("filter_bits_per_key must be 0 to 64");
        }
        if !(1..=BYTES_MAX).contains(&self.index_partition_bytes) {
            wrong.push("index_partition_bytes must be 1 to 64 MiB");
        }
        if !wrong.is_empty() {
            return Err(Error::invalid(wrong.join("; ")));
        }
        self.compression.check_supported()
    }
}

/// How a point read treats cache and checksums.
#[derive(Clone, Copy, Debug)]
pub struct ReadSpec {
    /// Whether a block read from the file goes into the block cache.
    pub fill_cache: bool,
    /// Whether the checksum of a block read from the file is checked.
    pub verify: bool,
}

impl Default for ReadSpec {
    fn default() -> ReadSpec {
        ReadSpec { fill_cache: true, verify: true }
    }
}

/// The largest readahead of an ordinary scan, in bytes.
pub const READAHEAD_BYTES: usize = 256 << 10;

/// How a scan treats cache, checksums and readahead.
#[derive(Clone, Copy, Debug)]
pub struct IterSpec {
    /// As [`ReadSpec::fill_cache`]; of blocks read ahead only with `cache_ahead`.
    pub fill_cache: bool,
    /// Whether blocks read ahead go into the cache, too, once they are entered.
    pub cache_ahead: bool,
    /// As [`ReadSpec::verify`].
    pub verify: bool,
    /// Bytes of the largest readahead. 0: none. Up to [`READAHEAD_BYTES`]: starts at 16 KiB once
    /// blocks are read in order, and doubles. More: the caller declares a pass over the whole
    /// table; every read has this size from the first on, and the block cache is not asked.
    /// At most 64 MiB is used.
    pub readahead_max: usize,
}

impl Default for IterSpec {
    fn default() -> IterSpec {
        IterSpec { fill_cache: true, cache_ahead: false, verify: true, readahead_max: READAHEAD_BYTES }
    }
}

impl IterSpec {
    /// One pass over the whole table, as compaction makes it: 1 MiB a read, cache left alone.
    pub fn whole_table() -> IterSpec {
        IterSpec { fill_cache: false, cache_ahead: false, verify: true, readahead_max: 1 << 20 }
    }
}

/// What reads did. Callers add up over tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadStats {
    /// Blocks read from files.
    pub blocks_read: u64,
    /// How many of them were read together with others.
    pub blocks_batched: u64,
    /// Blocks found in the block cache.
    pub block_cache_hits: u64,
    /// Filters asked.
    pub filter_checked: u64,
    /// Filters that said "not here".
    pub filter_useful: u64,
    /// Filters that said "perhaps" to a look-up, of whose key the table then had nothing to show.
    pub filter_false_positives: u64,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// Tables that a cursor was opened on.
    pub cursors: u64,
}

impl ReadStats {
    /// Adds what other reads did.
    pub fn add(&mut self, other: &ReadStats) {
        self.blocks_read += other.blocks_read;
        self.blocks_batched += other.blocks_batched;
        self.block_cache_hits += other.block_cache_hits;
        self.filter_checked += other.filter_checked;
        self.filter_useful += other.filter_useful;
        self.filter_false_positives += other.filter_false_positives;
        self.bytes_read += other.bytes_read;
        self.cursors += other.cursors;
    }
}

/// The entry that a point read found.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its sequence number.
    pub seqno: SeqNo,
    /// Its kind byte, see [`crate::key::Kind`].
    pub kind: u8,
    /// Its value; longer than 30 bytes, it shares the block.
    pub value: Slice,
}
