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
//! - A record that was synced is followed by a mark before anything is let go of on its word. So
//!   damage to a settled record has an intact one behind it and is told from a torn append; only
//!   damage to the mark itself looks torn, and costs nothing.
//! - The names of the log's segments are durable before the manifest counts on them, so that one it
//!   names and that is missing at open was lost, not never made.
//! - An edit stays queued until it is settled, and leaves the queue under its tree's lock: whoever
//!   finds the queue empty finds everything durable, and the tree's floor never goes back.
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
use crate::gate::{Gate, GateGuard};
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
    queue: Mutex<VecDeque<Install>>,
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
        queue.push_back(Install {
            tree: tree.clone(),
            edit,
            version,
            floor,
            removed,
            durable: durable.clone(),
        });
        durable
    }

    /// Makes the files of an install durable, so that it may settle.
    ///
    /// # Errors
    /// Those of the file system. The database takes no more writes then: a sync that failed is
    /// never tried again, the durable version stays what it was, and so do its files.
    pub(crate) fn sync(&self, engine: &Engine, written: &Written, ticket: &Ticket) -> Result<()> {
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
        let (edits, last) = {
            let queue = self.queue.lock();
            let ready = queue.iter().take_while(|install| install.durable.load(Ordering::Acquire)).count();
            let edits: Vec<TreeEdit> = queue.iter().take(ready).map(|install| install.edit.clone()).collect();
            let last = ready.checked_sub(1).map(|at| (queue[at].version.clone(), queue[at].floor));
            (edits, last)
        };
        if edits.is_empty() && self.manifest.lock().writer.is_some() {
            return Ok(());
        }
        let count = edits.len();
        let replay_start = self.log_edits(engine, edits, last)?;
        for _ in 0..count {
            let tree = self.queue.lock().front().expect("only settling takes installs out").tree.clone();
            let mut state = tree.lock();
            let install = self.queue.lock().pop_front().expect("as above");
            state.durable = install.version;
            state.durable_floor = install.floor;
            drop(state);
            for table in &install.removed {
                table.set_obsolete(&engine.graveyard);
            }
            drop(install.removed);
        }
        engine.log.retire_before(replay_start);
        Ok(())
    }

    /// Appends and syncs the edits, which end in the version and floor of `last`; returns the segment
    /// that replay begins with from now on.
    fn log_edits(
        &self,
        engine: &Engine,
        edits: Vec<TreeEdit>,
        last: Option<(Arc<Version>, SeqNo)>,
    ) -> Result<FileNumber> {
        let mut manifest = self.manifest.lock();
        let grown = manifest.writer.as_ref().is_none_or(|writer| {
            writer.size() > ROLL_BYTES && writer.size() > GROWTH_MAX * manifest.start_bytes
        });
        if grown {
            self.roll(engine, &mut manifest)?;
        }
        let Some((version, floor)) = last else { return Ok(FileNumber(0)) };
        check_settling(engine, &version)?;
        let replay_start = engine.log.first_needed(floor);
        let log_named = engine.log.sync_names()?;
        let last_seqno = Some(engine.commit.visible().load(Ordering::Acquire));
        let record = ManifestRecord {
            edits,
            next_file_number: Some(engine.peek_file_number()),
            last_seqno,
            replay_start: Some(replay_start),
            log_named,
            ..ManifestRecord::default()
        };
        let writer = manifest.writer.as_mut().expect("roll() has opened one");
        if let Err(error) = writer.append(&record).and_then(|()| writer.sync()) {
            manifest.writer = None;
            return Err(error);
        }
        let mark = ManifestRecord { last_seqno, ..ManifestRecord::default() };
        if writer.mark(&mark).is_err() {
            // The record is durable all the same; only nothing may be appended behind a torn mark.
            manifest.writer = None;
        }
        Ok(replay_start)
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

    /// Keeps everything from settling until the guard is dropped: the durable versions, the floors and
    /// the front of the log stay what they are.
    pub(crate) fn hold_still(&self) -> GateGuard<'_> {
        self.settling.enter()
    }

    /// The number of the manifest in use.
    pub(crate) fn manifest_number(&self) -> FileNumber {
        self.manifest.lock().number
    }

    /// Whether changes wait to become durable.
    pub(crate) fn has_unsettled(&self) -> bool {
        !self.queue.lock().is_empty()
    }

    /// Whether some could be settled and nobody is about to.
    pub(crate) fn is_abandoned(&self) -> bool {
        let is_ready = |install: &Install| install.durable.load(Ordering::Acquire);
        !self.settling.is_held() && self.queue.lock().front().is_some_and(is_ready)
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
    let written = ManifestWriter::create(file, &db_id, number, snapshot).and_then(|mut writer| {
        writer.sync()?;
        fs.sync_dir(dir)?;
        Ok(writer)
    });
    let writer = written.inspect_err(|_| {
        // CURRENT can't name it yet. Left alone, a full disk would gather one with every attempt.
        let _ = fs.unlink(&path);
    })?;
    manifest::write_current(fs, dir, number)?;
    Ok(writer)
}

/// The durable state of all trees. What it says belongs together only while nothing settles and, as
/// far as the log goes, no group is logged.
pub(crate) fn durable_snapshot(engine: &Engine) -> ManifestRecord {
    let state = engine.tree.lock();
    ManifestRecord {
        edits: vec![tree_snapshot(&engine.tree, &state.durable, state.durable_floor)],
        next_file_number: Some(engine.peek_file_number()),
        last_seqno: Some(engine.commit.visible().load(Ordering::Acquire)),
        replay_start: Some(engine.log.first_needed(state.durable_floor)),
        // The directory is synced before this manifest comes into force.
        log_named: engine.log.newest(),
        format_version: Some(engine.format_version),
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
