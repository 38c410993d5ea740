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

use super::{Maker, Source};
use crate::callback::Watch;
use crate::compaction::job::{self, Swap};
use crate::compaction::output::Written;
use crate::compaction::plan::{Plan, Reason};
use crate::engine::Engine;
use crate::metrics::Counter;
use crate::version::TableFile;
use crate::{ErrorKind, Result, flush};

/// A table to be made again. It is claimed.
pub(crate) struct Redo {
    pub(crate) table: Arc<TableFile>,
    pub(crate) maker: Maker,
}

impl Redo {
    /// Makes it again; gives it back if it has to be tried once more.
    pub(crate) fn run(self, engine: &Arc<Engine>) -> Option<Redo> {
        match self.write(engine) {
            Ok(written) => {
                engine.metrics.add(Counter::TablesRedone, 1);
                self.swap(engine, written);
                None
            }
            Err(_) if self.maker.tree.is_dropped() => None,
            Err(error) if error.kind() == ErrorKind::Cancelled => None,
            Err(error) => {
                engine.error.latch("making a table again whose sync failed", &error);
                engine.wake_writers();
                (error.kind() == ErrorKind::NoSpace).then_some(self)
            }
        }
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
            Source::Merge(inputs) => {
                let view = tree.view();
                let place = view.version.all_tables().find(|(_, t)| t.number() == self.table.number());
                // Claimed, it stays where it is; gone, its keyspace was dropped.
                let Some((level, _)) = place else { return Ok(Written::default()) };
                let mut plan = Plan::new(&view.version, inputs.to_vec(), level, Reason::Redo);
                if level == 0 {
                    plan.output_epoch = Some(self.table.meta().epoch);
                }
                job::merge_span(engine, tree, &plan, &self.table)
            }
        }
    }

    fn swap(self, engine: &Arc<Engine>, written: Written) {
        let Redo { table, maker } = self;
        let source = maker.source.clone();
        if let Source::Flush(source) = &source {
            source.add_tables(written.tables.len());
        }
        let done = Swap { tree: maker.tree.clone(), table, source };
        let result = engine.handoff.when_written(
            engine,
            "making a table again whose sync failed",
            written,
            move |engine, written| done.install(engine, written),
        );
        super::Handoff::let_go(engine, maker);
        crate::background::note(engine, "making a table again whose sync failed", result);
    }
}
