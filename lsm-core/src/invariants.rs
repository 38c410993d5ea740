//! Checks too costly for users, in builds with the feature `invariants`; without it they are empty.
//!
//! Each looks at what a job is about to rely on, after the job has made it and before the manifest
//! says so. A finding is a fault of ours, not of the data: `Internal`, which stops writes.

pub(crate) use checks::{check_installed, check_settling};

#[cfg(not(feature = "invariants"))]
mod checks {
    use crate::Result;
    use crate::engine::Engine;
    use crate::tree::Tree;
    use crate::version::Version;

    #[inline]
    pub(crate) fn check_installed(_: &Engine, _: &Tree, _: &Version) -> Result<()> {
        Ok(())
    }

    #[inline]
    pub(crate) fn check_settling(_: &Engine, _: &Version) -> Result<()> {
        Ok(())
    }
}

#[cfg(feature = "invariants")]
mod checks {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use crate::engine::Engine;
    use crate::key;
    use crate::range_del::{RangeDels, RangeTombstone};
    use crate::read::internal::InternalIter;
    use crate::table::IterSpec;
    use crate::tree::Tree;
    use crate::types::{SEQNO_MAX, SeqNo};
    use crate::version::{LEVELS, TableFile, Version};
    use crate::{Error, ErrorKind, Result};

    /// A version with more bytes than this is not read through: jobs would never end.
    const READ_THROUGH_BYTES_MAX: u64 = 512 << 10;

    /// What a flush or a compaction has just made live.
    ///
    /// # Errors
    /// `Internal` for a broken invariant, `Corruption` for a table that does not read back.
    pub(crate) fn check_installed(engine: &Engine, tree: &Tree, version: &Version) -> Result<()> {
        version.check_invariants().map_err(|error| broken(error.message()))?;
        let bytes: u64 = version.all_tables().map(|(_, table)| table.file_bytes()).sum();
        if bytes <= READ_THROUGH_BYTES_MAX && tree.comparator.equal_is_identical() {
            return finding(check_recency(engine, tree, version));
        }
        Ok(())
    }

    /// What was found; a call that failed, as tests make calls fail, kept the check from looking,
    /// and the job would not have made that call without it.
    fn finding(checked: Result<()>) -> Result<()> {
        checked.or_else(|error| match error.kind() {
            ErrorKind::Internal | ErrorKind::Corruption => Err(error),
            _ => Ok(()),
        })
    }

    /// I3: no older source holds a key, or a range tombstone over it, above what a younger one holds of
    /// it; nor a key above a younger one's range tombstone.
    fn check_recency(engine: &Engine, tree: &Tree, version: &Version) -> Result<()> {
        // Of each key, the lowest sequence that the younger sources hold.
        let mut lowest: BTreeMap<Vec<u8>, SeqNo> = BTreeMap::new();
        let mut younger: Vec<RangeTombstone> = Vec::new();
        let runs = version.l0().iter().map(|table| vec![table.clone()]);
        let levels = (1..LEVELS).map(|level| version.level(level).to_vec());
        for run in runs.chain(levels) {
            let mut here: BTreeMap<Vec<u8>, SeqNo> = BTreeMap::new();
            let order = version.comparator();
            let above = RangeDels::new(order.clone(), younger.iter().cloned());
            let own = tombstones(engine, tree, &run)?;
            let over = RangeDels::new(order.clone(), own.iter().cloned());
            if lowest.iter().any(|(key, low)| over.cover(key, SEQNO_MAX) > *low) {
                return Err(broken("an older source holds a newer range tombstone over a key"));
            }
            for table in &run {
                each_key(engine, tree, table, &mut |user_key, seqno| {
                    let interval = above.locate(user_key).interval;
                    let oldest = interval.and_then(|interval| above.newer_at(interval, 0).pop());
                    if oldest.is_some_and(|oldest| seqno > oldest) {
                        return Err(broken("an older source holds a key above a younger range tombstone"));
                    }
                    if lowest.get(user_key).is_some_and(|younger| seqno >= *younger) {
                        return Err(broken("an older source holds a newer version of a key"));
                    }
                    here.entry(user_key.to_vec()).and_modify(|low| *low = (*low).min(seqno)).or_insert(seqno);
                    Ok(())
                })?;
            }
            younger.extend(own);
            for (user_key, seqno) in here {
                lowest.entry(user_key).and_modify(|low| *low = (*low).min(seqno)).or_insert(seqno);
            }
        }
        Ok(())
    }

    fn tombstones(engine: &Engine, tree: &Tree, run: &[Arc<TableFile>]) -> Result<Vec<RangeTombstone>> {
        let mut all = Vec::new();
        for table in run.iter().filter(|table| table.meta().range_deletes > 0) {
            let reader = engine.open_table_file(tree, table)?;
            all.extend(reader.range_dels().into_iter().flat_map(|set| set.iter()));
        }
        Ok(all)
    }

    fn each_key(
        engine: &Engine,
        tree: &Tree,
        table: &Arc<TableFile>,
        visit: &mut dyn FnMut(&[u8], SeqNo) -> Result<()>,
    ) -> Result<()> {
        // Past the table cache, whose waits would change the schedule of a simulation.
        let mut iter = engine.open_table_file(tree, table)?.iter(IterSpec::whole_table());
        iter.seek_to_first()?;
        while iter.valid() {
            visit(key::user_key(iter.key()), key::seqno_of(iter.key()))?;
            iter.next()?;
        }
        Ok(())
    }

    /// I5 in the small: what the manifest is about to name is there, and is what was written.
    ///
    /// # Errors
    /// `Internal` for a broken invariant.
    pub(crate) fn check_settling(engine: &Engine, version: &Version) -> Result<()> {
        for (_, table) in version.all_tables() {
            let path = engine.table_path(table.place());
            if engine.env.fs().exists(&path).is_ok_and(|there| !there) {
                return Err(broken("the manifest is about to name a table that is not there").at_path(&path));
            }
        }
        Ok(())
    }

    fn broken(what: &str) -> Error {
        Error::new(ErrorKind::Internal, format!("an invariant is broken: {what}"))
    }
}
