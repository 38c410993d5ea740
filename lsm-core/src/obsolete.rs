//! The only place that unlinks tables.
//!
//! A table's handle is shared by every version that names it, live or durable, and so by every
//! reader's view. When the manifest no longer names it, settling marks it obsolete; when the last
//! version that holds it is dropped, its number comes here, and the syncing thread unlinks the
//! file (I6). A handle dropped without the mark, at close, leaves its file alone.

use parking_lot::Mutex;

use crate::engine::Engine;
use crate::filename::FileName;
use crate::types::FileNumber;

/// Numbers of tables that nothing needs any more.
#[derive(Default)]
pub(crate) struct Graveyard {
    dead: Mutex<Vec<FileNumber>>,
}

impl Graveyard {
    /// Takes the number of a table whose last handle is being dropped.
    pub(crate) fn push(&self, number: FileNumber) {
        self.dead.lock().push(number);
    }

    /// Unlinks one file of those that have gathered; false if there is none. A failure leaves an
    /// orphan for the next opening.
    pub(crate) fn bury_one(&self, engine: &Engine) -> bool {
        let Some(number) = self.dead.lock().pop() else { return false };
        engine.tables.evict(number);
        let _ = engine.env.fs().unlink(&FileName::Table(number).path(&engine.dir));
        true
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.dead.lock().len()
    }
}
