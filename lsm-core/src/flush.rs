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

use dialsm_io::env::Nanos;

use crate::Result;
use crate::background::cancelled;
use crate::callback::Watch;
use crate::compaction::output::{Outputs, Written};
use crate::compaction::visibility::CompactionIter;
use crate::engine::Engine;
use crate::invariants::check_installed;
use crate::key::user_key;
use crate::range_del::fragments::{Covering, needed};
use crate::tree::{Buffer, Tree, TreeView};
use crate::version::TableFile;
use crate::version::edit::TreeEdit;
use crate::version::set::Ticket;

/// How often a flush says how far it is; each time, writers that wait for it may go on a little.
const PROGRESS_STEPS: u64 = 64;

/// A table that is live and not yet durable.
#[derive(Clone)]
pub(crate) struct Flushed(Arc<Unsettled>);

struct Unsettled {
    written: Written,
    ticket: Ticket,
    started: Nanos,
}

impl Flushed {
    /// F4: makes the table durable, so that it may settle.
    ///
    /// # Errors
    /// Those of the file system; the database takes no more writes then.
    pub(crate) fn sync(&self, engine: &Engine) -> Result<()> {
        let Unsettled { written, ticket, started } = &*self.0;
        engine.versions.sync(engine, written, ticket)?;
        let bytes = written.tables.iter().map(|meta| meta.file_bytes).sum();
        engine.metrics.add_flush(bytes, engine.env.now() - started);
        Ok(())
    }

    /// F4 and F5.
    ///
    /// # Errors
    /// As [`Flushed::sync`]; after a failed F5 the table settles later.
    pub(crate) fn settle(&self, engine: &Engine) -> Result<()> {
        self.sync(engine)?;
        engine.versions.settle(engine)
    }
}

/// F1 to F3 for `buffer`, the oldest sealed memtable of `tree`, whose last writer has left.
///
/// # Errors
/// `Cancelled` if the tree's keyspace was dropped meanwhile; those of the file system. The memtable
/// stays sealed and may be flushed again.
pub(crate) fn run(engine: &Engine, tree: &Arc<Tree>, buffer: &Arc<Buffer>) -> Result<Flushed> {
    let started = engine.env.now();
    let installed =
        write_table(engine, tree, buffer).and_then(|written| match install(engine, tree, buffer, &written) {
            Ok(ticket) => Ok((written, ticket)),
            Err(error) => {
                if tree.is_dropped() {
                    written.discard(engine);
                }
                Err(error)
            }
        });
    // From here on the next flush of this tree may begin; after a failure, this one again.
    tree.lock().flushing = false;
    let (written, ticket) = installed?;
    engine.schedule();
    Ok(Flushed(Arc::new(Unsettled { written, ticket, started })))
}

/// Writes the entries of a memtable that anybody can still see into a table; none if there are none.
fn write_table(engine: &Engine, tree: &Tree, buffer: &Buffer) -> Result<Written> {
    let watch = Watch::begin(&tree.comparator);
    Written::watched(write_unwatched(engine, tree, buffer), &watch, engine)
}

fn write_unwatched(engine: &Engine, tree: &Tree, buffer: &Buffer) -> Result<Written> {
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
    let bytes = buffer.table.raw_key_bytes() + buffer.table.raw_value_bytes();
    let step = bytes / PROGRESS_STEPS + 1;
    let (mut written, mut report_at) = (0, step);
    entries.start(None, None)?;
    while entries.valid() {
        outputs.add(entries.key(), entries.value())?;
        written += (user_key(entries.key()).len() + entries.value().len()) as u64;
        if written >= report_at {
            report_at = written + step;
            tree.ration(written as f64 / bytes as f64);
        }
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
    if state.dropped {
        return Err(cancelled());
    }
    let version = Arc::new(tree.view().version.apply(&[], &added)?);
    tree.publish(&mut state, |view| TreeView {
        active: view.active.clone(),
        sealed: view.sealed.iter().filter(|other| !Arc::ptr_eq(other, buffer)).cloned().collect(),
        version: version.clone(),
    });
    if buffer.has_unlogged() {
        state.unlogged_floor = buffer.floor_after();
    }
    let ticket = {
        let group = buffer.together.get().cloned();
        engine.versions.queue_together(tree, &mut state, edit, version.clone(), Vec::new(), group)
    };
    tree.refresh_stall(state);
    tree.ration(0.0);
    if engine.write_budget.release(&buffer.charge) {
        engine.wake_writers();
    }
    check_installed(engine, tree, &version)?;
    Ok(ticket)
}
