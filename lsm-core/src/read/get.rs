//! Point look-ups: newest source first, and stop at the first entry of the key (R3).
//!
//! The order active memtable, sealed memtables newest first, L0 by epoch newest first, L1.. is the
//! recency order of the tree (I3), so the first entry at or below the reader's sequence decides.

use crate::callback::Watch;
use crate::engine::Engine;
use crate::key::Kind;
use crate::metrics::{Counter, LevelCounter};
use crate::options::ReadOptions;
use crate::table::{ReadSpec, ReadStats};
use crate::tree::{Tree, TreeView};
use crate::types::SeqNo;
use crate::{Error, ErrorKind, Result, Slice};

/// What one read cost: tables looked at, blocks, filters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadContext {
    /// Memtables asked.
    pub memtables: u32,
    /// Tables asked, those included that their filter spared a look.
    pub tables: u32,
    /// Blocks, filters and bytes.
    pub blocks: ReadStats,
    /// Clue entries followed to another shard.
    pub clue_hops: u32,
}

/// The newest value of `key` at or below `seqno` in this view.
///
/// # Errors
/// Those of the tables; `Unsupported` for kinds of a newer build; `Callback` if the user's
/// comparator panics.
#[inline]
pub(crate) fn get(
    engine: &Engine,
    tree: &Tree,
    view: &TreeView,
    key: &[u8],
    seqno: SeqNo,
    options: &ReadOptions,
    context: &mut ReadContext,
) -> Result<Option<Slice>> {
    let watch = Watch::begin(&tree.comparator);
    let found = find(engine, tree, view, key, seqno, options, context);
    watch.check()?;
    found
}

fn find(
    engine: &Engine,
    tree: &Tree,
    view: &TreeView,
    key: &[u8],
    seqno: SeqNo,
    options: &ReadOptions,
    context: &mut ReadContext,
) -> Result<Option<Slice>> {
    for buffer in std::iter::once(&view.active).chain(&view.sealed) {
        context.memtables += 1;
        if let Some(entry) = buffer.table.get(key, seqno) {
            engine.metrics.add(Counter::GetHitsMemtable, 1);
            return value_of(entry.kind_byte, || Slice::copy_of(entry.value));
        }
    }
    let spec = ReadSpec { fill_cache: options.fill_cache, verify: options.verify_checksums };
    let version = &view.version;
    for table in version.l0() {
        if !table.spans(&tree.comparator, key) {
            continue;
        }
        context.tables += 1;
        let reader = engine.open_table(table)?;
        if let Some(found) = reader.get(key, seqno, &spec, &mut context.blocks)? {
            engine.metrics.add_level(LevelCounter::GetHits, 0, 1);
            return value_of(found.kind, || found.value);
        }
    }
    for level in 1..crate::version::LEVELS {
        let Some(table) = version.find_table(level, key) else { continue };
        context.tables += 1;
        let reader = engine.open_table(table)?;
        if let Some(found) = reader.get(key, seqno, &spec, &mut context.blocks)? {
            engine.metrics.add_level(LevelCounter::GetHits, level, 1);
            return value_of(found.kind, || found.value);
        }
    }
    engine.metrics.add(Counter::GetMisses, 1);
    Ok(None)
}

/// What an entry of this kind says to a reader.
fn value_of(kind: u8, value: impl FnOnce() -> Slice) -> Result<Option<Slice>> {
    match Kind::from_u8(kind) {
        Some(Kind::Put) => Ok(Some(value())),
        Some(Kind::Delete | Kind::SingleDelete) => Ok(None),
        _ => Err(Error::new(
            ErrorKind::Unsupported,
            format!("an entry of kind {kind}, which this build cannot read"),
        )),
    }
}
