//! Where a key belongs, and where its value goes while its own shard can't take it: the hook through
//! which a router makes one database out of many trees.
//!
//! ```text
//! place      key ─ router ─► primary                       by the writer, before it queues up
//! redirect   primary under pressure ─ router ─► fallback   by the leader, once a group is taken
//!            value ─► fallback,  clue (fallback's number) ─► primary     one log record, one sequence
//! ```
//! The engine does what is decided here and keeps what must hold whatever the answers are: a redirected
//! value is never redirected again, deletes stay with their primary, range deletes go to all shards, and
//! an unlogged write in a logged database stays where it belongs (rule 19). With one shard nobody is asked.

use std::sync::Arc;

use crate::coding::{Reader, put_varint};
use crate::key::Kind;
use crate::version::edit::HashKey;
use crate::{Error, Result};

/// The most shards that a keyspace may have.
pub const SHARDS_MAX: u16 = 256;

/// Decides where keys and redirected values go. Asked from all threads, and by the leader of the commit
/// queue, so it must not wait or call into the database.
pub trait Router: Send + Sync {
    /// The primary of `key`, below `shards`. A pure function of its arguments for ever: what is
    /// stored is found by it. `hash_key` is drawn at the database's creation.
    fn place(&self, hash_key: &HashKey, shards: u16, key: &[u8]) -> u16;

    /// The shard that takes a value or operand of `primary`: another one that is open, or none, if it
    /// stays. Asked for each while the primary is under pressure, and for all where
    /// [`Router::is_asked_always`].
    fn fallback(&self, primary: u16, shards: &[ShardState]) -> Option<u16>;

    /// How many shards a database gets that is created without saying, with that many background jobs
    /// at once.
    fn shards_by_default(&self, background_jobs_max: usize) -> u16;

    /// Whether [`Router::fallback`] is asked for each value, under pressure or not: for tests.
    fn is_asked_always(&self) -> bool {
        false
    }
}

/// A router in the options, which know nothing of it but whether there is one.
#[derive(Clone)]
pub struct RouterObject(pub Arc<dyn Router>);

impl std::fmt::Debug for RouterObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Router")
    }
}

/// What a router may know of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ShardState {
    /// Whether it takes values of others now.
    pub is_open: bool,
    /// Overlap depth of L0, clue-only runs not counted.
    pub l0_runs: usize,
    /// Bytes of its memtables, with what the group at hand has sent there already.
    pub memtable_bytes: u64,
    /// Bytes that its compactions have to write.
    pub pending_bytes: u64,
    /// Bytes of its tables.
    pub table_bytes: u64,
}

/// Where the keys of a keyspace belong.
#[derive(Clone)]
pub(crate) struct Placement {
    pub(crate) shards: u16,
    pub(crate) hash_key: HashKey,
    pub(crate) router: Option<Arc<dyn Router>>,
}

impl Placement {
    /// The primary of `key`.
    #[inline]
    pub(crate) fn place(&self, key: &[u8]) -> u16 {
        match &self.router {
            Some(router) if self.shards > 1 => {
                let shard = router.place(&self.hash_key, self.shards, key);
                debug_assert!(shard < self.shards);
                // Nothing else would find what a router misplaces.
                shard % self.shards
            }
            _ => 0,
        }
    }
}

/// The kinds under which an operation goes to its primary and to its fallback.
pub(crate) fn redirected(kind: Kind) -> (Kind, Kind) {
    match kind {
        Kind::Merge => (Kind::ClueOperand, Kind::RedirectedOperand),
        _ => (Kind::ClueValue, Kind::RedirectedValue),
    }
}

/// A clue entry's value: the shard that holds the true value.
pub(crate) fn encode_clue(fallback: u16, out: &mut Vec<u8>) {
    out.clear();
    put_varint(out, u64::from(fallback));
}

/// What a clue entry says.
///
/// # Errors
/// `Corruption` if it names no shard below `shards`.
pub(crate) fn decode_clue(value: &[u8], shards: u16) -> Result<u16> {
    let mut reader = Reader::new(value, "a clue entry");
    let shard = reader.varint()?;
    if !reader.is_empty() || shard >= u64::from(shards) {
        return Err(Error::corruption(format!("a clue entry of {} bytes names no shard", value.len())));
    }
    Ok(shard as u16)
}

/// Bytes that a clue entry has for its value. No value that is no longer is redirected.
pub const CLUE_BYTES: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clue_names_one_shard_and_nothing_else() {
        let mut clue = Vec::new();
        for shard in [0, 1, 127, 128, SHARDS_MAX - 1] {
            encode_clue(shard, &mut clue);
            assert!(clue.len() <= CLUE_BYTES);
            assert_eq!(decode_clue(&clue, SHARDS_MAX).expect("good"), shard);
            assert!(decode_clue(&clue, shard).is_err(), "no such shard");
        }
        for bad in [&[][..], &[1, 0], &[0x80], &[0xff, 0xff, 0xff, 0x7f]] {
            assert!(decode_clue(bad, 200).is_err(), "{bad:?}");
        }
    }
}
