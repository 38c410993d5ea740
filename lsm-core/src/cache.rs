//! The two caches of the read path (R5): data blocks, and open tables.
//!
//! Both stand on `quick_cache`, with a fixed hasher, so that nothing depends on random state or on
//! addresses. Both are bounded by weight at every moment. Nothing here waits except
//! [`TableCache::get`], and that through an [`Event`] of the environment, so a simulation sees it.

use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use dialsm_io::Event;
use parking_lot::Mutex;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use crate::Result;
use crate::table::{Block, TableReader};
use crate::types::FileNumber;

/// A hasher for small integer keys, always the same.
#[derive(Clone, Copy, Default)]
struct Fixed(u64);

impl Hasher for Fixed {
    fn write(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..piece.len()].copy_from_slice(piece);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        // High and low half of the product folded, so that every bit of the result depends on
        // every bit of the key.
        let wide = u128::from(self.0 ^ value ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93_u128;
        self.0 = (wide >> 64) as u64 ^ wide as u64;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[derive(Clone, Copy)]
struct FixedState;

impl BuildHasher for FixedState {
    type Hasher = Fixed;
    #[inline]
    fn build_hasher(&self) -> Fixed {
        Fixed(0)
    }
}

/// A file's name within one block cache, which several databases may share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(u64);

/// What the cache's own bookkeeping costs for each block, about.
const BLOCK_OVERHEAD_BYTES: usize = 96;

/// The least that a shard must hold, so that large blocks still find room.
const SHARD_BYTES_MIN: u64 = 8 << 20;
const SHARDS_MAX: u64 = 16;

#[derive(Clone)]
struct BlockWeight;

impl Weighter<(FileId, u64), Block> for BlockWeight {
    fn weight(&self, _: &(FileId, u64), block: &Block) -> u64 {
        (block.memory_bytes() + BLOCK_OVERHEAD_BYTES) as u64
    }
}

type Blocks = Cache<(FileId, u64), Block, BlockWeight, FixedState, DefaultLifecycle<(FileId, u64), Block>>;

/// Data blocks in memory, decompressed, under a bound in bytes.
pub struct BlockCache {
    /// Made when it first has a capacity.
    blocks: OnceLock<Blocks>,
    capacity: AtomicU64,
    next_id: AtomicU64,
}

impl BlockCache {
    /// A cache of at most `capacity_bytes`; 0 caches nothing.
    pub fn new(capacity_bytes: u64) -> BlockCache {
        let (blocks, capacity) = (OnceLock::new(), AtomicU64::new(0));
        let cache = BlockCache { blocks, capacity, next_id: AtomicU64::new(1) };
        cache.set_capacity(capacity_bytes);
        cache
    }

    /// Changes the bound; what is above it goes at once. Shards are made once, for the first bound
    /// above 0: a cache that grows much keeps the few it has.
    pub fn set_capacity(&self, capacity_bytes: u64) {
        self.capacity.store(capacity_bytes, Relaxed);
        if capacity_bytes > 0 || self.blocks.get().is_some() {
            self.blocks.get_or_init(|| new_blocks(capacity_bytes)).set_capacity(capacity_bytes);
        }
    }

    /// A name for a file that is about to be read through this cache. Never given out twice.
    pub fn new_file_id(&self) -> FileId {
        FileId(self.next_id.fetch_add(1, Relaxed))
    }

    /// The block at `offset` of `file`, if it is here.
    #[inline]
    pub(crate) fn get(&self, file: FileId, offset: u64) -> Option<Block> {
        self.blocks.get()?.get(&(file, offset))
    }

    /// Offers a block; returns whether the cache could have taken it.
    pub(crate) fn insert(&self, file: FileId, offset: u64, block: &Block) -> bool {
        let Some(blocks) = self.blocks.get().filter(|_| self.capacity() > 0) else { return false };
        blocks.insert((file, offset), block.clone());
        true
    }

    /// Drops the blocks of `file` at these offsets.
    pub(crate) fn erase(&self, file: FileId, offsets: impl Iterator<Item = u64>) {
        let Some(blocks) = self.blocks.get() else { return };
        for offset in offsets {
            blocks.remove(&(file, offset));
        }
    }

    /// Bytes held now, bookkeeping included.
    pub fn usage(&self) -> u64 {
        self.blocks.get().map_or(0, Cache::weight)
    }

    /// The bound, in bytes.
    pub fn capacity(&self) -> u64 {
        self.capacity.load(Relaxed)
    }
}

fn new_blocks(capacity_bytes: u64) -> Blocks {
    let options = OptionsBuilder::new()
        .estimated_items_capacity((capacity_bytes / 4096).max(1) as usize)
        .weight_capacity(capacity_bytes)
        .shards((capacity_bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX) as usize)
        .build()
        .expect("capacity and weight are both given");
    Cache::with_options(options, BlockWeight, FixedState, DefaultLifecycle::default())
}

/// An open table with what it weighs: its memory, but never less than its share of the allowed
/// number, so that one bound on weight bounds both. The weight is kept, because a weighter must give
/// the same answer as long as the entry is there, and the share may change.
#[derive(Clone)]
struct Open {
    table: Arc<TableReader>,
    weight: u64,
}

#[derive(Clone)]
struct TableWeight;

impl Weighter<FileNumber, Open> for TableWeight {
    fn weight(&self, _: &FileNumber, open: &Open) -> u64 {
        open.weight
    }
}

type Tables = Cache<FileNumber, Open, TableWeight, FixedState, DefaultLifecycle<FileNumber, Open>>;

/// The least that a shard of the table cache holds: a table whose index and filter are larger
/// than its shard could not be kept open at all.
const TABLE_SHARD_BYTES_MIN: u64 = 256 << 20;

/// Open tables of one database, bounded in number and in bytes of index and filter.
///
/// A table in use stays open however long its `Arc` lives; the bound is on what the cache holds.
pub struct TableCache {
    tables: Tables,
    /// The least that a table weighs.
    least: AtomicU64,
    /// Tables that some thread is opening now: few, so a list.
    opening: Mutex<Vec<FileNumber>>,
    opened: Arc<dyn Event>,
}

/// Takes a file off the list of those being opened, also when opening fails or panics.
struct Opening<'a> {
    cache: &'a TableCache,
    number: FileNumber,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.cache.opening.lock().retain(|n| *n != self.number);
        self.cache.opened.notify();
    }
}

impl TableCache {
    /// A cache of at most `tables_max` tables and `bytes_max` bytes of their memory; both at
    /// least 1. `event` is one of the environment's, for this cache alone.
    pub fn new(tables_max: usize, bytes_max: u64, event: Arc<dyn Event>) -> TableCache {
        let (tables_max, bytes_max) = (tables_max.max(1), bytes_max.max(1));
        let shards = (bytes_max / TABLE_SHARD_BYTES_MIN).clamp(1, SHARDS_MAX).min(tables_max as u64 / 32 + 1);
        let options = OptionsBuilder::new()
            .estimated_items_capacity(tables_max.min(1 << 20))
            .weight_capacity(bytes_max)
            .shards(shards as usize)
            .build()
            .expect("capacity and weight are both given");
        let tables = Cache::with_options(options, TableWeight, FixedState, DefaultLifecycle::default());
        let least = AtomicU64::new(bytes_max.div_ceil(tables_max as u64));
        TableCache { tables, least, opening: Mutex::new(Vec::new()), opened: event }
    }

    /// Changes the bounds; tables above them are let go of at once, those in use when that ends.
    pub fn set_bounds(&self, tables_max: usize, bytes_max: u64) {
        let (tables_max, bytes_max) = (tables_max.max(1), bytes_max.max(1));
        self.least.store(bytes_max.div_ceil(tables_max as u64), Relaxed);
        self.tables.set_capacity(bytes_max);
        // Weighed anew, or they would still count by their old share.
        for (number, open) in self.tables.iter() {
            let weighed = self.weigh(open.table);
            // An error hands it back: it was evicted or forgotten meanwhile, and is left out.
            let _ = self.tables.replace(number, weighed, true);
        }
    }

    fn weigh(&self, table: Arc<TableReader>) -> Open {
        let weight = (table.memory_bytes() as u64).max(self.least.load(Relaxed));
        Open { table, weight }
    }

    /// Table `number`, opened by `open` unless it is here. While one thread opens it, others that
    /// want the same table wait for the outcome; if that is an error, the next one tries.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn get(
        &self,
        number: FileNumber,
        open: impl FnOnce() -> Result<Arc<TableReader>>,
    ) -> Result<Arc<TableReader>> {
        loop {
            if let Some(open) = self.tables.get(&number) {
                return Ok(open.table);
            }
            let seen = self.opened.epoch();
            let mut opening = self.opening.lock();
            if !opening.contains(&number) {
                opening.push(number);
                break;
            }
            drop(opening);
            self.opened.wait(seen, None);
        }
        let opening = Opening { cache: self, number };
        // Between the look above and our name on the list, another may have finished opening it.
        if let Some(open) = self.tables.get(&number) {
            return Ok(open.table);
        }
        let table = open()?;
        self.tables.insert(number, self.weigh(table.clone()));
        drop(opening);
        Ok(table)
    }

    /// Forgets a table, as when its file is about to go.
    pub fn evict(&self, number: FileNumber) {
        self.tables.remove(&number);
    }

    /// Tables held open.
    pub fn len(&self) -> usize {
        self.tables.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// The weight held, in bytes: memory of the tables, each at least its share of the bound.
    pub fn usage(&self) -> u64 {
        self.tables.weight()
    }
}
