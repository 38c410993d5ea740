//! Flush: the oldest sealed memtable becomes one L0 table.
//!
//! ```text
//! F1 take the snapshots  F2 write the table  F3 sync file, then directory
//! F4 live version: table in, memtable out    F5 settle: manifest durable, floor moves, log retires
//! ```
//! The tree's floor moves with its table in one edit, to the first sequence after the memtable
//! (rule 12). Until F5 has returned the log keeps all that the table holds.

use std::sync::Arc;

use crate::Result;
use crate::compaction::output::Outputs;
use crate::compaction::visibility::CompactionIter;
use crate::engine::Engine;
use crate::tree::{Buffer, Tree, TreeView};
use crate::version::edit::TreeEdit;
use crate::version::{TableFile, TableMeta};

/// Flushes `buffer`, the oldest sealed memtable of `tree`, whose last writer has left.
///
/// # Errors
/// Those of the file system. The memtable stays sealed and may be flushed again; if only F5
/// failed, the table is live and settles later.
pub(crate) fn run(engine: &Engine, tree: &Arc<Tree>, buffer: &Arc<Buffer>) -> Result<()> {
    run_live(engine, tree, buffer)?;
    engine.versions.settle(engine)
}

/// F1 to F4: the table is live and its edit queued, but the manifest does not name it yet.
///
/// # Errors
/// Those of the file system.
pub(crate) fn run_live(engine: &Engine, tree: &Arc<Tree>, buffer: &Arc<Buffer>) -> Result<()> {
    let started = engine.env.now();
    let epoch = {
        let mut state = tree.lock();
        state.next_epoch += 1;
        state.next_epoch - 1
    };
    let meta = write_table(engine, tree, buffer, epoch)?;
    let bytes = meta.as_ref().map_or(0, |meta| meta.file_bytes);
    install(engine, tree, buffer, meta)?;
    engine.metrics.add_flush(bytes, engine.env.now() - started);
    Ok(())
}

/// Writes the entries of a memtable that anybody can still see into a durable table; `None` if
/// there are none.
pub(crate) fn write_table(
    engine: &Engine,
    tree: &Tree,
    buffer: &Buffer,
    epoch: u64,
) -> Result<Option<TableMeta>> {
    let snapshots = engine.snapshots.for_job(engine.commit.visible());
    // Older tables may hold anything: no tombstone is dropped, no sequence zeroed.
    let anything_below = |_: &[u8]| true;
    let mut entries =
        CompactionIter::new(buffer.table.iter(), tree.comparator.clone(), snapshots, false, anything_below);
    let mut outputs = Outputs::new(engine, tree, 0, epoch);
    entries.start(None, None)?;
    while entries.valid() {
        outputs.add(entries.key(), entries.value())?;
        entries.next()?;
    }
    Ok(outputs.finish()?.pop())
}

fn install(engine: &Engine, tree: &Arc<Tree>, buffer: &Arc<Buffer>, meta: Option<TableMeta>) -> Result<()> {
    let mut edit = TreeEdit { tree: tree.id, floor: Some(buffer.floor_after()), ..TreeEdit::default() };
    let mut added = Vec::new();
    if let Some(meta) = meta {
        edit.added.push((0, meta.describe()));
        added.push((0, TableFile::new(&tree.comparator, meta)));
    }
    let mut state = tree.lock();
    let version = Arc::new(tree.view().version.apply(&[], &added)?);
    tree.publish(&mut state, |view| TreeView {
        active: view.active.clone(),
        sealed: view.sealed.iter().filter(|other| !Arc::ptr_eq(other, buffer)).cloned().collect(),
        version: version.clone(),
    });
    engine.versions.queue(tree, &mut state, edit, version, Vec::new());
    tree.refresh_stall(engine, state);
    Ok(())
}
