//! Databases of a few shards, whose keys the test places and whose values it redirects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use dialsm_core::routing::{Router, RouterObject, ShardState};
use dialsm_core::{CompactRangeOptions, Db, Options, ReadContext, ReadOptions, WriteBatch, WriteOptions};

use crate::bench::{Bench, by_hand, number};

/// Nobody takes values of others.
const NOWHERE: u16 = u16::MAX;
/// The shard with the least in its memtables does.
const LEAST: u16 = u16::MAX - 1;

/// Places keys by their first letter: `a` belongs to shard 0, `b` to shard 1, and so on in turn. Redirects
/// only while the test says so.
pub(crate) struct Detour {
    to: AtomicU16,
    /// How often each shard was chosen.
    chosen: [AtomicU64; 4],
}

impl Router for Detour {
    fn place(&self, _: &[u8; 16], shards: u16, key: &[u8]) -> u16 {
        let letter = key.first().copied().unwrap_or(b'a').to_ascii_lowercase();
        u16::from(letter.wrapping_sub(b'a')) % shards
    }

    fn fallback(&self, primary: u16, shards: &[ShardState]) -> Option<u16> {
        let chosen = match self.to.load(Ordering::SeqCst) {
            NOWHERE => None,
            LEAST => {
                let others = (0..shards.len()).filter(|at| *at != usize::from(primary));
                others.min_by_key(|at| shards[*at].memtable_bytes).map(|at| at as u16)
            }
            to => Some(to).filter(|to| *to != primary),
        };
        if let Some(chosen) = chosen {
            self.chosen[usize::from(chosen)].fetch_add(1, Ordering::SeqCst);
        }
        chosen
    }

    fn shards_by_default(&self, _: usize) -> u16 {
        2
    }

    fn is_asked_always(&self) -> bool {
        true
    }
}

impl Detour {
    pub(crate) fn new() -> Arc<Detour> {
        Arc::new(Detour { to: AtomicU16::new(NOWHERE), chosen: Default::default() })
    }

    /// How often `shard` was chosen so far.
    pub(crate) fn chosen(&self, shard: usize) -> u64 {
        self.chosen[shard].load(Ordering::SeqCst)
    }

    /// From now on values and operands go to `shard`, those of `shard` itself aside.
    pub(crate) fn to(&self, shard: u16) {
        self.to.store(shard, Ordering::SeqCst);
    }

    /// From now on they go to where least is in memory.
    pub(crate) fn to_least(&self) {
        self.to(LEAST);
    }

    pub(crate) fn end(&self) {
        self.to(NOWHERE);
    }

    /// Puts into `shard` what does not belong there; not synced.
    pub(crate) fn put(&self, db: &Db, shard: u16, key: &[u8], value: &[u8]) {
        self.write(db, shard, |batch| batch.put(key, value).expect("put"));
    }

    pub(crate) fn merge(&self, db: &Db, shard: u16, key: &[u8], operand: &[u8]) {
        self.write(db, shard, |batch| batch.merge(key, operand).expect("merge"));
    }

    fn write(&self, db: &Db, shard: u16, fill: impl FnOnce(&mut WriteBatch)) {
        let mut batch = WriteBatch::new();
        fill(&mut batch);
        let before = db.metrics().counters.redirects;
        self.to(shard);
        db.write(&WriteOptions::default(), batch).expect("write");
        self.end();
        assert_eq!(db.metrics().counters.redirects, before + 1, "it was redirected");
    }
}

/// A router, and options of a database with so many shards and it: small buffers, all by hand.
pub(crate) fn shards(n: usize) -> (Arc<Detour>, Options) {
    let detour = Detour::new();
    let options = Options {
        shards: n,
        router: Some(RouterObject(detour.clone())),
        write_buffer_bytes: 64 << 10,
        write_buffers_max: 4,
        rollback: false,
        ..by_hand()
    };
    (detour, options)
}

pub(crate) fn delete(db: &Db, key: &[u8]) {
    db.delete(&WriteOptions::default(), key).expect("delete");
}

pub(crate) fn merge(db: &Db, key: &[u8], operand: &[u8]) {
    db.merge(&WriteOptions::default(), key, operand).expect("merge");
}

/// Compacts all of the keyspace, down to `level` where one is given.
pub(crate) fn compact(db: &Db, level: Option<u8>) {
    let options = CompactRangeOptions { target_level: level, rewrite_bottom: true, cancel: None };
    db.compact_range(&options, None, None).expect("compact");
}

/// What a reader finds, and whether a clue led there.
pub(crate) fn follow(db: &Db, key: &[u8]) -> (Option<Vec<u8>>, bool) {
    let mut context = ReadContext::default();
    let found = db.get_with_context(&ReadOptions::default(), key, &mut context).expect("get");
    (found.map(|value| value.to_vec()), context.clue_hops > 0)
}

/// Fills the memtable of the shard of `letter` until it has been flushed, alone, and is settled.
pub(crate) fn flush_alone(bench: &Bench, db: &Db, letter: u8) {
    fill_until_flushed(bench, db, letter);
    bench.wait_for("the flush", || number(db, "dialsm.unsettled-installs") == 0);
}

/// The same, as far as a table is live.
pub(crate) fn fill_until_flushed(bench: &Bench, db: &Db, letter: u8) {
    let before = db.metrics().counters.flushes;
    for i in 0..60u32 {
        let key = [&[letter, b'~'], &i.to_be_bytes()[..]].concat();
        db.put(&WriteOptions::default(), &key, &[b'f'; 3000]).expect("put");
        // What is due is done before time goes on.
        bench.sleep(10_000_000);
        if db.metrics().counters.flushes > before {
            return;
        }
    }
    panic!("nothing was flushed");
}
