//! Flush: the oldest sealed memtable becomes one L0 table.
//!
//! ```text
//! F1 take the snapshots  F2 write the table, submit its sync  F3 live version: table in, memtable out
//! F4 table and name durable               F5 settle: manifest durable, floor moves, log retires
//! ```
//! Writers that wait for a memtable go on after F3; F4 and F5 are the hand-off's. Until F5 the log is the
//! durable copy, and until F4 the memtable stays in memory, so that the table can be made again.
//!
//! The tree's floor moves with its table in one record, to the first sequence after the memtable
//! (rule 12).

use std::sync::Arc;

use dialsm_io::Priority;
use dialsm_io::env::Nanos;

use crate::Result;
use crate::background::cancelled;
use crate::callback::Watch;
use crate::compaction::clues::OtherShards;
use crate::compaction::output::{Outputs, Written};
use crate::compaction::visibility::CompactionIter;
use crate::engine::Engine;
use crate::events::{Begun, Outcome};
use crate::handoff::Source;
use crate::invariants::check_installed;
use crate::key::user_key;
use crate::metrics::Counter;
use crate::range_del::fragments::{Covering, needed};
use crate::tree::{Buffer, Tree, TreeView};
use crate::version::set::Install;

/// How often a flush says how far it is; each time, writers that wait for it may go on a little.
const PROGRESS_STEPS: u64 = 64;

/// F1 to F3 for `buffer`, the oldest sealed memtable of `tree`, whose last writer has left. If the
/// table's last writes are under way, F3 comes when they are over.
///
/// # Errors
/// `Cancelled` if the tree's keyspace was dropped meanwhile; those of the file system. The memtable
/// stays sealed and may be flushed again.
pub(crate) fn run(engine: &Arc<Engine>, tree: &Arc<Tree>, buffer: &Arc<Buffer>) -> Result<()> {
    let (started, begun) = (engine.env.now(), Begun::flush(&engine.events, tree, buffer));
    let done = Done { tree: tree.clone(), buffer: buffer.clone(), started, begun };
    let watch = Watch::begin(&tree.comparator);
    let written = write_table(engine, tree, buffer, None);
    match Written::watched(written, &watch, engine) {
        Ok(written) => {
            let waited = Counter::FlushSyncNs;
            engine.handoff.when_written(engine, "a flush", waited, written, move |e, w| done.install(e, w))
        }
        Err(error) => done.install(engine, Err(error)),
    }
}

/// A flush whose table is written.
struct Done {
    tree: Arc<Tree>,
    buffer: Arc<Buffer>,
    started: Nanos,
    begun: Begun,
}

impl Done {
    /// F3.
    fn install(mut self, engine: &Arc<Engine>, written: Result<Written>) -> Result<()> {
        let bytes = written.as_ref().map_or(0, Written::bytes);
        let outcome = Outcome::of(&written);
        let installed = written.and_then(|written| install(engine, &self.tree, &self.buffer, written));
        self.begun.end(&outcome.installed(&installed));
        // From here on the next flush of this tree may begin; after a failure, this one again.
        self.tree.lock().flushing = false;
        engine.events.ring();
        installed?;
        self.tree.note_flush(engine);
        let input = self.buffer.table.raw_key_bytes() + self.buffer.table.raw_value_bytes();
        let ns = engine.env.now() - self.started;
        engine.metrics.add_flush(self.tree.id.shard, input, bytes, ns);
        engine.schedule();
        Ok(())
    }
}

/// Writes the entries of a memtable that anybody can still see into a table; none if there are none. With
/// an `epoch` the table is made again, in the place of the one that had it.
pub(crate) fn write_table(
    engine: &Arc<Engine>,
    tree: &Tree,
    buffer: &Buffer,
    epoch: Option<u64>,
) -> Result<Written> {
    let is_again = epoch.is_some();
    let epoch = epoch.unwrap_or_else(|| {
        let mut state = tree.lock();
        state.next_epoch += 1;
        state.next_epoch - 1
    });
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
            .covering(covering)
            .among(OtherShards::of(engine, tree, false));
    let bytes = buffer.table.raw_key_bytes() + buffer.table.raw_value_bytes();
    // Never waits at the limiter.
    let mut outputs = Outputs::new(engine, tree, 0, epoch)
        .limited(Priority::Flush, bytes, &|| Ok(()))
        .with_range_dels(fragments);
    outputs = if is_again { outputs.again() } else { outputs };
    let step = bytes / PROGRESS_STEPS + 1;
    let (mut written, mut report_at) = (0, step);
    entries.start(None, None)?;
    while entries.valid() {
        outputs.add(entries.key(), entries.value())?;
        written += (user_key(entries.key()).len() + entries.value().len()) as u64;
        if written >= report_at && !is_again {
            report_at = written + step;
            tree.ration(written as f64 / bytes as f64);
        }
        entries.next()?;
    }
    entries.counts().note(&engine.metrics, tree.id.shard);
    outputs.finish()
}

fn install(engine: &Arc<Engine>, tree: &Arc<Tree>, buffer: &Arc<Buffer>, written: Written) -> Result<()> {
    let added = written.table_files(&tree.comparator);
    let mut state = tree.lock();
    if state.dropped {
        drop(state);
        written.discard(engine);
        return Err(cancelled());
    }
    let applied = tree.view().version.apply(&[], &added);
    let version = match applied {
        Ok(version) => Arc::new(version),
        Err(error) => {
            drop(state);
            written.discard(engine);
            return Err(error);
        }
    };
    tree.publish(&mut state, |view| TreeView {
        active: view.active.clone(),
        sealed: view.sealed.iter().filter(|other| !Arc::ptr_eq(other, buffer)).cloned().collect(),
        version: version.clone(),
    });
    if buffer.has_unlogged() {
        state.unlogged_floor = buffer.floor_after();
    }
    let install = Install {
        removed: Vec::new(),
        added,
        version: version.clone(),
        floor: Some(buffer.floor_after()),
        leaving: Vec::new(),
        reserved: None,
        together: buffer.together.get().cloned(),
    };
    let source = Source::of_flush(buffer, written.tables.len());
    let wakes = if written.tables.is_empty() {
        engine.write_budget.release(&buffer.charge)
    } else {
        engine.write_budget.retain(&buffer.charge)
    };
    written.set_makers(tree, &source);
    engine.versions.push(tree, &mut state, install);
    tree.refresh_stall(state);
    tree.ration(0.0);
    if wakes {
        engine.wake_writers();
    }
    written.let_go_unlisted(engine, tree, &source);
    engine.handoff.wake.notify();
    check_installed(engine, tree, &version)
}
