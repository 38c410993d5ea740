//! A table whose sync failed is made again from what it was made of (rule 16).
//!
//! ```text
//! claimed by the reaper ─ merge its sources over exactly its key span ─ swap in its present place
//! ```
//! The kernel may have dropped the table's pages, so it is not read. Its sources are there: the inputs of
//! a compaction are retained until the step is settled, a memtable until its table is durable. They are
//! merged as if it were today: with today's snapshots, and with what lies below the place where the
//! table stands now. What comes out is under new numbers; a failure of their sync is final.
//!
//! The old table's file goes with the step that replaced it, like any input.

use std::sync::Arc;

use super::{Handoff, Maker, Source};
use crate::background::note;
use crate::callback::Watch;
use crate::compaction::job::{self, Swap};
use crate::compaction::output::Written;
use crate::compaction::plan::{Plan, Reason};
use crate::engine::Engine;
use crate::metrics::Counter;
use crate::version::TableFile;
use crate::{Error, ErrorKind, Result, flush};

const WHAT: &str = "making a table again whose sync failed";

/// A table to be made again. It is claimed.
pub(crate) struct Redo {
    pub(crate) table: Arc<TableFile>,
    pub(crate) maker: Maker,
}

impl Redo {
    /// Makes it again. After a full disk that is tried once more later.
    pub(crate) fn run(self, engine: &Arc<Engine>) {
        match self.write(engine) {
            Ok(written) => {
                // With deferred sync off there is none of it.
                let waited = Counter::CompactionSyncNs;
                let swap = |e: &Arc<Engine>, w: Result<Written>| self.swap(e, w);
                let installed = engine.handoff.when_written(engine, WHAT, waited, written, swap);
                note(engine, WHAT, installed);
            }
            Err(error) => note(engine, WHAT, self.failed(engine, error)),
        }
        engine.handoff.redo_ended();
    }

    /// It came to nothing.
    fn failed(self, engine: &Arc<Engine>, error: Error) -> Result<()> {
        if error.is_passing() {
            engine.handoff.ask_redo(self);
        } else if error.kind() == ErrorKind::Cancelled || self.maker.tree.is_dropped() {
            // Nothing names the table any more, or nobody is left to make it.
            Handoff::let_go(engine, self.maker);
        }
        Err(error)
    }

    fn write(&self, engine: &Arc<Engine>) -> Result<Written> {
        let tree = &self.maker.tree;
        match &self.maker.source {
            Source::Flush(source) => {
                let watch = Watch::begin(&tree.comparator);
                let epoch = self.table.meta().epoch;
                let written = flush::write_table(engine, tree, &source.buffer, Some(epoch));
                Written::watched(written, &watch, engine)
            }
            Source::Merge(inputs, clues) => {
                let view = tree.view();
                let place = view.version.all_tables().find(|(_, t)| t.number() == self.table.number());
                // Claimed, it stays where it is; gone, its keyspace was dropped.
                let Some((level, _)) = place else { return Ok(Written::default()) };
                let mut plan = Plan::new(&view.version, inputs.to_vec(), level, Reason::Redo);
                if level == 0 {
                    plan.output_epoch = Some(self.table.meta().epoch);
                }
                job::merge_span(engine, tree, &plan, &self.table, *clues)
            }
        }
    }

    fn swap(self, engine: &Arc<Engine>, written: Result<Written>) -> Result<()> {
        let source = self.maker.source.clone();
        let count = written.as_ref().map_or(0, |written| written.tables.len());
        if let Source::Flush(source) = &source {
            source.add_tables(count);
        }
        let swap = Swap { tree: self.maker.tree.clone(), table: self.table.clone(), source: source.clone() };
        if let Err(error) = swap.install(engine, written) {
            if let Source::Flush(source) = &source {
                source.remove_tables(count);
            }
            return self.failed(engine, error);
        }
        engine.metrics.add(Counter::TablesRedone, 1);
        Handoff::let_go(engine, self.maker);
        Ok(())
    }
}
