//! Flush: the oldest sealed memtable becomes one L0 table.
//!
//! ```text
//! F1 take the snapshots  F2 write the table  F3 live version: table in, memtable out
//! F4 sync file, then directory               F5 settle: manifest durable, floor moves, log retires
//! ```
//! Writers that wait for a memtable go on after F3: until F5 the log is the durable copy.
//!
//! The tree's floor moves with its table in one edit, to the first sequence after the memtable
//! (rule 12). Until F5 has returned the log keeps all that the table holds.

use std::sync::Arc;

use crate::Result;
use crate::compaction::output::{Outputs, Written};
use crate::compaction::visibility::CompactionIter;
use crate::engine::Engine;
use crate::invariants::check_installed;
use crate::range_del::fragments::{Covering, needed};
use crate::tree::{Buffer, Tree, TreeView};
use crate::version::TableFile;
use crate::version::edit::TreeEdit;
use crate::version::set::Ticket;

/// Flushes `buffer`, the oldest sealed memtable of `tree`, whose last writer has left.
///
/// # Errors
/// Those of the file system. Before F3 the memtable stays sealed and may be flushed again; after a
/// failed F4 the database takes no more writes; after a failed F5 the table settles later.
pub(crate) fn run(engine: &Engine, tree: &Arc<Tree>, buffer: &Arc<Buffer>) -> Result<()> {
    run_unsettled(engine, tree, buffer)?;
    engine.versions.settle(engine)
}

/// F1 to F4: for recovery, which settles once at its end.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_unsettled(engine: &Engine, tree: &Arc<Tree>, buffer: &Arc<Buffer>) -> Result<()> {
    let started = engine.env.now();
    let installed = write_table(engine, tree, buffer)
        .and_then(|written| install(engine, tree, buffer, &written).map(|ticket| (written, ticket)));
    // From here on the next flush of this tree may begin; after a failure, this one again.
    tree.lock().flushing = false;
    let (written, ticket) = installed?;
    engine.schedule();
    let bytes = written.tables.iter().map(|meta| meta.file_bytes).sum();
    engine.versions.sync(engine, written, ticket)?;
    engine.metrics.add_flush(bytes, engine.env.now() - started);
    Ok(())
}

/// Writes the entries of a memtable that anybody can still see into a table; none if there are none.
fn write_table(engine: &Engine, tree: &Tree, buffer: &Buffer) -> Result<Written> {
    let epoch = {
        let mut state = tree.lock();
        state.next_epoch += 1;
        state.next_epoch - 1
    };
    let snapshots = engine.snapshots.for_job(engine.commit.visible());
    // Older tables may hold anything: no tombstone is dropped, no sequence zeroed.
    let anything_below = |_: &[u8]| true;
    let (mut covering, mut fragments) = (None, Vec::new());
    if let Some(range_dels) = buffer.table.range_dels() {
        let set = range_dels.merged(&tree.comparator);
        fragments = needed(&set, &snapshots, |_, _| true, &mut 0);
        covering = Some(Covering::new(&tree.comparator, set, &fragments));
    }
    let mut entries =
        CompactionIter::new(buffer.table.iter(), tree.comparator.clone(), snapshots, false, anything_below)
            .merging(tree.merging.operator.clone())
            .covering(covering);
    let mut outputs = Outputs::new(engine, tree, 0, epoch).with_range_dels(fragments);
    entries.start(None, None)?;
    while entries.valid() {
        outputs.add(entries.key(), entries.value())?;
        entries.next()?;
    }
    entries.counts().note(&engine.metrics);
    outputs.finish()
}

fn install(engine: &Engine, tree: &Arc<Tree>, buffer: &Arc<Buffer>, written: &Written) -> Result<Ticket> {
    let mut edit = TreeEdit { tree: tree.id, floor: Some(buffer.floor_after()), ..TreeEdit::default() };
    let mut added = Vec::new();
    for meta in &written.tables {
        edit.added.push((0, meta.describe()));
        added.push((0, TableFile::new(&tree.comparator, meta.clone())));
    }
    let mut state = tree.lock();
    let version = Arc::new(tree.view().version.apply(&[], &added)?);
    tree.publish(&mut state, |view| TreeView {
        active: view.active.clone(),
        sealed: view.sealed.iter().filter(|other| !Arc::ptr_eq(other, buffer)).cloned().collect(),
        version: version.clone(),
    });
    let ticket = engine.versions.queue(tree, &mut state, edit, version.clone(), Vec::new());
    tree.refresh_stall(engine, state);
    check_installed(engine, tree, &version)?;
    Ok(ticket)
}
