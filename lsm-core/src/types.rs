//! Small numbers that must not be mixed up.

use std::fmt;

/// Position in the database's one line of operations. Every operation of a batch has its own.
/// 56 bits, because an internal key packs it with its kind into 8 bytes.
pub type SeqNo = u64;

/// The largest sequence number; a database that reached it would refuse writes.
pub const SEQNO_MAX: SeqNo = (1 << 56) - 1;

/// Number of a file of any kind. Never used twice in the life of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileNumber(pub u64);

impl fmt::Display for FileNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06}", self.0)
    }
}

/// Where a table lies: the number of its directory, 0 for the database's own, and its file's.
pub(crate) type TablePlace = (u8, FileNumber);

/// A tree: one keyspace in one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TreeId {
    /// Keyspace; 0 is the default one. Never used twice.
    pub keyspace: u32,
    /// Shard within the keyspace, from 0.
    pub shard: u16,
}

impl fmt::Display for TreeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.keyspace, self.shard)
    }
}

/// The identity of a database: drawn at creation, carried by each of its files.
pub type DbId = [u8; 16];
