//! The two heads of each tree: *live*, what readers use, and *durable*, what the manifest says.
//!
//! ```text
//! job ends ─ install: live version published, edit queued ─ sync: the files are durable
//!          ─ settle: edits appended in order, manifest synced, durable version moves, inputs become
//!            unlinkable, log retires
//! ```
//! Invariants:
//! - The queue is first in, first out over all trees, so the manifest holds a prefix of the
//!   installs of each tree (rule 13).
//! - An edit is appended only when the files it adds and their names are durable (I5): the queue
//!   stops at the first whose sync has not returned, and for ever at one whose sync failed.
//! - After a failed append or sync the manifest file is never written again: the next attempt
//!   starts a fresh one from the settled state and makes it durable before the queue goes on; the
//!   inputs stay until then (rule 14).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::edit::{ManifestRecord, TreeEdit};
use super::manifest::{self, ManifestWriter};
use super::{TableFile, Version};
use crate::Result;
use crate::compaction::output::Written;
use crate::engine::Engine;
use crate::filename::FileName;
use crate::gate::Gate;
use crate::invariants::check_settling;
use crate::tree::{Tree, TreeState};
use crate::types::{FileNumber, SeqNo};

/// A manifest is rewritten when it has grown past this and past [`GROWTH_MAX`] times its start.
const ROLL_BYTES: u64 = 4 << 20;
const GROWTH_MAX: u64 = 8;

/// A change of a tree that is live and waits to become durable.
struct Install {
    tree: Arc<Tree>,
    edit: TreeEdit,
    version: Arc<Version>,
    /// The tree's floor after it.
    floor: SeqNo,
    /// Tables that leave; unlinkable once this is settled and no reader holds them.
    removed: Vec<Arc<TableFile>>,
    durable: Ticket,
}

/// Set once the files of an install are durable.
pub(crate) type Ticket = Arc<AtomicBool>;

struct Manifest {
    number: FileNumber,
    /// None after a failure, until a fresh file is durable.
    writer: Option<ManifestWriter>,
    start_bytes: u64,
}

/// The manifest and the edits on their way into it.
pub(crate) struct VersionSet {
    settling: Gate,
    /// Changes that are not settled. Only settling takes them out, when the manifest has them: those
    /// on their way into it count as unsettled for whoever waits, and for the floor of what comes
    /// after them.
    queue: Mutex<VecDeque<Arc<Install>>>,
    manifest: Mutex<Manifest>,
}

impl VersionSet {
    /// For a database whose manifest `number` was read: the first settling starts a fresh one.
    pub(crate) fn reopened(env: &dyn dialsm_io::Env, number: FileNumber) -> VersionSet {
        VersionSet {
            settling: Gate::new(env),
            queue: Mutex::new(VecDeque::new()),
            manifest: Mutex::new(Manifest { number, writer: None, start_bytes: 0 }),
        }
    }

    /// Queues a change that the caller has just made live, under the tree's lock.
    pub(crate) fn queue(
        &self,
        tree: &Arc<Tree>,
        state: &mut TreeState,
        edit: TreeEdit,
        version: Arc<Version>,
        removed: Vec<Arc<TableFile>>,
    ) -> Ticket {
        let mut queue = self.queue.lock();
        let before = queue.iter().rev().find(|i| Arc::ptr_eq(&i.tree, tree)).map(|i| i.floor);
        let floor = edit.floor.unwrap_or(before.unwrap_or(state.durable_floor));
        let durable = Ticket::default();
        queue.push_back(Arc::new(Install {
            tree: tree.clone(),
            edit,
            version,
            floor,
            removed,
            durable: durable.clone(),
        }));
        durable
    }

    /// Makes the files of an install durable, so that it may settle.
    ///
    /// # Errors
    /// Those of the file system. The database takes no more writes then: a sync that failed is
    /// never tried again, the durable version stays what it was, and so do its files.
    pub(crate) fn sync(&self, engine: &Engine, written: Written, ticket: Ticket) -> Result<()> {
        if let Err(error) = written.sync(engine) {
            engine.error.latch_lasting("the sync of a table", &error);
            return Err(error);
        }
        ticket.store(true, Ordering::Release);
        Ok(())
    }

    /// Makes all queued changes durable, and lets go of what they replaced.
    ///
    /// # Errors
    /// Those of the file system; the changes stay queued and live.
    pub(crate) fn settle(&self, engine: &Engine) -> Result<()> {
        let _only_one = self.settling.enter();
        let batch: Vec<Arc<Install>> = {
            let queue = self.queue.lock();
            queue.iter().take_while(|install| install.durable.load(Ordering::Acquire)).cloned().collect()
        };
        if batch.is_empty() && self.manifest.lock().writer.is_some() {
            return Ok(());
        }
        let replay_start = self.log_edits(engine, &batch)?;
        for install in batch {
            {
                let mut state = install.tree.lock();
                state.durable = install.version.clone();
                state.durable_floor = install.floor;
            }
            for table in &install.removed {
                table.set_obsolete(&engine.graveyard);
            }
            self.queue.lock().pop_front();
        }
        engine.log.retire_before(replay_start);
        Ok(())
    }

    /// Appends and syncs the edits; returns the segment that replay begins with from now on.
    fn log_edits(&self, engine: &Engine, batch: &[Arc<Install>]) -> Result<FileNumber> {
        let mut manifest = self.manifest.lock();
        let grown = manifest.writer.as_ref().is_none_or(|writer| {
            writer.size() > ROLL_BYTES && writer.size() > GROWTH_MAX * manifest.start_bytes
        });
        if grown {
            self.roll(engine, &mut manifest)?;
        }
        if batch.is_empty() {
            return Ok(FileNumber(0));
        }
        if let Some(last) = batch.last() {
            check_settling(engine, &last.version)?;
        }
        let replay_start = engine.log.first_needed(batch.last().map_or(0, |install| install.floor));
        let record = ManifestRecord {
            edits: batch.iter().map(|install| install.edit.clone()).collect(),
            next_file_number: Some(engine.peek_file_number()),
            last_seqno: Some(engine.commit.visible().load(Ordering::Acquire)),
            replay_start: Some(replay_start),
            ..ManifestRecord::default()
        };
        let writer = manifest.writer.as_mut().expect("roll() has opened one");
        let appended = writer.append(&record).and_then(|()| writer.sync());
        if appended.is_err() {
            manifest.writer = None;
        }
        appended.map(|()| replay_start)
    }

    /// Starts a fresh manifest from the durable state of all trees.
    fn roll(&self, engine: &Engine, manifest: &mut Manifest) -> Result<()> {
        let number = engine.new_file_number();
        let old = FileName::Manifest(manifest.number).path(&engine.dir);
        let snapshot = durable_snapshot(engine);
        let writer = start_manifest(engine.env.fs().as_ref(), &engine.dir, engine.db_id, number, &snapshot)?;
        *manifest = Manifest { number, start_bytes: writer.size(), writer: Some(writer) };
        // Nothing names the old one any more; a failure leaves an orphan for the next opening.
        let _ = engine.env.fs().unlink(&old);
        Ok(())
    }

    /// The number of the manifest in use.
    pub(crate) fn manifest_number(&self) -> FileNumber {
        self.manifest.lock().number
    }

    /// Whether changes wait to become durable.
    pub(crate) fn has_unsettled(&self) -> bool {
        !self.queue.lock().is_empty()
    }
}

/// Creates a manifest that starts with `snapshot`, makes it durable and points CURRENT at it.
///
/// # Errors
/// Those of the file system; CURRENT still names the old one then, or, if only the last directory
/// sync failed, either of the two, both of which say the same.
pub(crate) fn start_manifest(
    fs: &dyn dialsm_io::Fs,
    dir: &std::path::Path,
    db_id: crate::types::DbId,
    number: FileNumber,
    snapshot: &ManifestRecord,
) -> Result<ManifestWriter> {
    let path = FileName::Manifest(number).path(dir);
    let file = fs.create(&path)?;
    let mut writer = ManifestWriter::create(file, &db_id, number, snapshot)?;
    writer.sync()?;
    fs.sync_dir(dir)?;
    manifest::write_current(fs, dir, number)?;
    Ok(writer)
}

fn durable_snapshot(engine: &Engine) -> ManifestRecord {
    let state = engine.tree.lock();
    ManifestRecord {
        edits: vec![tree_snapshot(&engine.tree, &state.durable, state.durable_floor)],
        next_file_number: Some(engine.peek_file_number()),
        last_seqno: Some(engine.commit.visible().load(Ordering::Acquire)),
        replay_start: Some(engine.log.first_needed(state.durable_floor)),
        ..ManifestRecord::default()
    }
}

/// All of a tree as one edit.
pub(crate) fn tree_snapshot(tree: &Tree, version: &Version, floor: SeqNo) -> TreeEdit {
    let mut edit = TreeEdit {
        tree: tree.id,
        comparator: Some(tree.comparator.name().to_owned()),
        floor: Some(floor),
        ..TreeEdit::default()
    };
    for (level, table) in version.all_tables() {
        edit.added.push((level, table.meta().describe()));
    }
    edit
}
