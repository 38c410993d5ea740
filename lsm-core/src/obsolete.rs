//! The only place that unlinks tables.
//!
//! A table's handle is shared by every version that names it, live or durable, and so by every
//! reader's view. When the manifest no longer names it, settling marks it obsolete; when the last
//! version that holds it is dropped, its number comes here, and the syncing thread unlinks the
//! file (I6). A handle dropped without the mark, at close, leaves its file alone.

use parking_lot::Mutex;

use crate::engine::Engine;
use crate::events::table_deleted;
use crate::types::TablePlace;

/// Tables that nothing needs any more.
#[derive(Default)]
pub(crate) struct Graveyard {
    dead: Mutex<Vec<TablePlace>>,
}

impl Graveyard {
    /// Takes a table whose last handle is being dropped.
    pub(crate) fn push(&self, table: TablePlace) {
        self.dead.lock().push(table);
    }

    /// Unlinks one file of those that have gathered; false if there is none. A failure leaves an
    /// orphan for the next opening.
    pub(crate) fn bury_one(&self, engine: &Engine) -> bool {
        let Some(table) = self.dead.lock().pop() else { return false };
        engine.tables.evict(table.1);
        table_deleted(engine, table, engine.env.fs().unlink(&engine.table_path(table)));
        true
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.dead.lock().len()
    }
}
