//! Reading everything to see that it is what was written.

use std::sync::Arc;

use crate::engine::Engine;
use crate::{Error, Result};

/// What a verification has looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Tables read.
    pub tables: u64,
    /// Entries in them, range tombstones aside.
    pub entries: u64,
    /// Bytes of their files.
    pub bytes: u64,
}

/// Checks all tables of the live versions of all keyspaces; `progress` gets bytes done and bytes in all.
pub(crate) fn verify(engine: &Arc<Engine>, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
    engine.check_open()?;
    let alive = engine.keyspaces.alive();
    let views: Vec<_> = alive.trees.iter().map(|tree| (tree, tree.view())).collect();
    views.iter().try_for_each(|(_, view)| view.version.check_invariants())?;
    let tables =
        || views.iter().flat_map(|(tree, view)| view.version.all_tables().map(move |(_, t)| (*tree, t)));
    let total = tables().map(|(_, table)| table.file_bytes()).sum();
    let mut report = VerifyReport::default();
    for (tree, table) in tables() {
        let meta = table.meta();
        let path = engine.table_path(table.place());
        let checked = engine.open_table(tree, table)?.verify_all()?;
        if (checked.file_bytes, checked.checksum) != (meta.file_bytes, meta.checksum) {
            let text = format!(
                "the file has {} bytes and checksum {:08x}, the manifest says {} and {:08x}",
                checked.file_bytes, checked.checksum, meta.file_bytes, meta.checksum
            );
            return Err(Error::corruption(text).at_path(&path));
        }
        let entries = checked.entries - checked.range_deletes;
        let counted = (entries, checked.deletes, checked.range_deletes);
        if counted != (meta.entries, meta.deletes, meta.range_deletes) {
            return Err(Error::corruption("the table's counts differ from the manifest's").at_path(&path));
        }
        report.tables += 1;
        report.entries += meta.entries;
        report.bytes += meta.file_bytes;
        progress(report.bytes, total);
    }
    Ok(report)
}
