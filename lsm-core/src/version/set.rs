//! The two heads of each tree: *live*, what readers use, and *durable*, what the manifest says.
//!
//! ```text
//! job ends ─ install: live version published, edit queued ─ sync: the files are durable
//!          ─ settle: edits appended in order, manifest synced, durable version moves, inputs become
//!            unlinkable, log retires
//! ```
//! The birth and the end of a keyspace are records of the same manifest. They wait for no install of
//! another tree; those that a dropped tree has in the queue are thrown away.
//!
//! Invariants:
//! - The queue is first in, first out over all trees, so the manifest holds a prefix of the
//!   installs of each tree (rule 13).
//! - Log before table (rule 1): with more than one tree an edit is appended only after the log was
//!   synced through the last sequence that its flush holds. For a record of the log may have parts
//!   for two trees, and a power cut must not take one whose other is settled. With one tree nothing
//!   can be torn apart, and the sync is spared. Which of the two it is, is decided by the durable
//!   trees under the settling gate, which a creation passes too: what was flushed before that has no
//!   part in the new tree.
//! - A dropped keyspace's tables become obsolete only after the record of the drop is synced.
//! - A record that was synced is followed by a mark before anything is let go of on its word. So
//!   damage to a settled record has an intact one behind it and is told from a torn append; only
//!   damage to the mark itself looks torn, and costs nothing.
//! - The manifest gets to know each segment of the log soon after it was begun, by a record of its own if
//!   nothing else settles.
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
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::edit::{KeyspaceDesc, ManifestRecord, TreeEdit};
use super::manifest::{self, ManifestWriter};
use super::{TableFile, Version};
use crate::Result;
use crate::compaction::output::Written;
use crate::engine::Engine;
use crate::fault::Fault;
use crate::filename::FileName;
use crate::gate::{Gate, GateGuard};
use crate::invariants::check_settling;
use crate::tree::{Tree, TreeState};
use crate::types::{FileNumber, SeqNo, TreeId};
use crate::wal::log::Floors;

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
    together: Option<Arc<FlushGroup>>,
}

impl Install {
    fn is_of(&self, group: &Arc<FlushGroup>) -> bool {
        self.together.as_ref().is_some_and(|own| Arc::ptr_eq(own, group))
    }
}

/// Memtables of several trees whose installs settle in one record of the manifest, or not at all.
pub(crate) struct FlushGroup {
    /// How many installs there are, those to come included.
    members: AtomicUsize,
}

impl FlushGroup {
    pub(crate) fn new(members: usize) -> Arc<FlushGroup> {
        Arc::new(FlushGroup { members: AtomicUsize::new(members) })
    }

    /// A member will never come: its keyspace was dropped.
    pub(crate) fn leave(&self) {
        self.members.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Set once the files of an install are durable.
pub(crate) type Ticket = Arc<AtomicBool>;

struct Manifest {
    number: FileNumber,
    /// None after a failure, until a fresh file is durable.
    writer: Option<ManifestWriter>,
    start_bytes: u64,
}

/// A dropped tree whose end is not in the durable manifest yet.
struct Doomed {
    tree: Arc<Tree>,
    /// All that the manifest or a queued install named of it.
    tables: Vec<Arc<TableFile>>,
}

/// What one record of the manifest is made from.
struct Change {
    edits: Vec<TreeEdit>,
    /// Trees and versions that the edits lead to, in the order of the queue.
    installs: Vec<(Arc<Tree>, Arc<Version>, SeqNo)>,
    created: Option<Arc<Tree>>,
    dropped: Vec<u32>,
}

/// The manifest and the edits on their way into it.
pub(crate) struct VersionSet {
    settling: Gate,
    queue: Mutex<VecDeque<Install>>,
    /// The trees that the durable manifest names, by ascending id.
    durable: Mutex<Vec<Arc<Tree>>>,
    doomed: Mutex<Vec<Doomed>>,
    manifest: Mutex<Manifest>,
    /// The newest log segment that the durable manifest names.
    named: AtomicU64,
}

impl VersionSet {
    /// For a database whose manifest `number` was read: the first settling starts a fresh one.
    /// It has `trees`, some of them perhaps new.
    pub(crate) fn reopened(
        env: &dyn dialsm_io::Env,
        number: FileNumber,
        trees: Vec<Arc<Tree>>,
    ) -> VersionSet {
        VersionSet {
            settling: Gate::new(env),
            queue: Mutex::new(VecDeque::new()),
            durable: Mutex::new(trees),
            doomed: Mutex::default(),
            manifest: Mutex::new(Manifest { number, writer: None, start_bytes: 0 }),
            named: AtomicU64::new(0),
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
        self.queue_together(tree, state, edit, version, removed, None)
    }

    /// As [`VersionSet::queue`], for a change that settles with those of other trees.
    pub(crate) fn queue_together(
        &self,
        tree: &Arc<Tree>,
        state: &mut TreeState,
        edit: TreeEdit,
        version: Arc<Version>,
        removed: Vec<Arc<TableFile>>,
        together: Option<Arc<FlushGroup>>,
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
            together,
        });
        durable
    }

    /// Makes the files of an install durable, so that it may settle.
    ///
    /// # Errors
    /// Those of the file system. The database takes no more writes then: a sync that failed is
    /// never tried again, the durable version stays what it was, and so do its files.
    pub(crate) fn sync(&self, engine: &Engine, written: &Written, ticket: &Ticket) -> Result<()> {
        let mut synced = written.sync(engine);
        if engine.options.load().break_on_purpose == Some(Fault::FsyncRetry) {
            synced = synced.or_else(|_| written.sync(engine));
        }
        if let Err(error) = synced {
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
        self.settle_with(engine, None)
    }

    /// Makes a new keyspace durable, which has one tree and nothing in it yet.
    ///
    /// # Errors
    /// Those of the file system; the keyspace does not exist then, but for a crash before the next
    /// change, which may find it.
    pub(crate) fn create_keyspace(&self, engine: &Engine, tree: &Arc<Tree>) -> Result<()> {
        let _only_one = self.settling.enter();
        let result = self.settle_with(engine, Some(tree.clone()));
        // Spent even if it failed: what the manifest holds then is unknown.
        engine.keyspaces.spend_id(tree.id.keyspace);
        result
    }

    /// Makes the end of a keyspace durable, whose tree was emptied and had `last` as its version.
    ///
    /// # Errors
    /// Those of the file system; the drop is written with the next change then.
    pub(crate) fn drop_keyspace(&self, engine: &Engine, tree: &Arc<Tree>, last: Arc<Version>) -> Result<()> {
        let _only_one = self.settling.enter();
        let mut tables: Vec<Arc<TableFile>> = last.all_tables().map(|(_, table)| table.clone()).collect();
        drop(last);
        tables.extend(tree.lock().durable.all_tables().map(|(_, table)| table.clone()));
        let mut discarded = Vec::new();
        self.queue.lock().retain_mut(|install| {
            let keep = !Arc::ptr_eq(&install.tree, tree);
            if !keep {
                if let Some(group) = &install.together {
                    group.leave();
                }
                discarded.append(&mut install.removed);
                discarded.extend(install.version.all_tables().map(|(_, table)| table.clone()));
            }
            keep
        });
        tables.extend(discarded);
        self.doomed.lock().push(Doomed { tree: tree.clone(), tables });
        self.settle_with(engine, None)
    }

    /// As [`VersionSet::settle`], inside the gate.
    fn settle_with(&self, engine: &Engine, created: Option<Arc<Tree>>) -> Result<()> {
        let change = self.ready(created);
        let nothing = change.edits.is_empty()
            && change.created.is_none()
            && change.dropped.is_empty()
            && !self.is_name_pending(engine);
        if nothing && self.manifest.lock().writer.is_some() {
            return Ok(());
        }
        self.sync_log_for(engine, &change)?;
        if engine.options.load().break_on_purpose == Some(Fault::EarlyUnlink) {
            self.unlink_too_early(engine, change.installs.len());
        }
        let replay_start = self.log_change(engine, nothing, &change)?;
        for _ in 0..change.installs.len() {
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
        self.durable.lock().extend(change.created);
        self.bury(engine, &change.dropped);
        engine.log.retire_before(replay_start);
        Ok(())
    }

    /// What may settle now: the installs up to the first whose files are not durable, or whose group is
    /// not complete up to there, and all drops.
    fn ready(&self, created: Option<Arc<Tree>>) -> Change {
        let dropped = self.doomed.lock().iter().map(|doomed| doomed.tree.id.keyspace).collect();
        let queue = self.queue.lock();
        let count = ready_count(&queue);
        let mut change = Change { edits: Vec::new(), installs: Vec::new(), created, dropped };
        for install in queue.iter().take(count) {
            change.edits.push(install.edit.clone());
            change.installs.push((install.tree.clone(), install.version.clone(), install.floor));
        }
        change
    }

    /// See [`Fault::EarlyUnlink`].
    fn unlink_too_early(&self, engine: &Engine, installs: usize) {
        let removed = |install: &Install| install.removed.iter().map(|t| t.meta().number).collect::<Vec<_>>();
        let numbers: Vec<_> = self.queue.lock().iter().take(installs).flat_map(removed).collect();
        for number in numbers {
            let _ = engine.env.fs().unlink(&FileName::Table(number).path(&engine.dir));
        }
    }

    /// Rule 1; see the module header.
    fn sync_log_for(&self, engine: &Engine, change: &Change) -> Result<()> {
        if self.durable.lock().len() < 2 {
            return Ok(());
        }
        let flushed = change.edits.iter().filter_map(|edit| edit.floor).max();
        let Some(floor) = flushed else { return Ok(()) };
        engine
            .log
            .sync_through(floor.saturating_sub(1))
            .inspect_err(|error| engine.error.latch_lasting("a log sync", error))
    }

    /// The dropped keyspaces' end is durable: nothing holds their files but readers.
    fn bury(&self, engine: &Engine, dropped: &[u32]) {
        if dropped.is_empty() {
            return;
        }
        let gone = |tree: &Tree| dropped.contains(&tree.id.keyspace);
        self.durable.lock().retain(|tree| !gone(tree));
        let buried: Vec<Doomed> = self.doomed.lock().extract_if(.., |doomed| gone(&doomed.tree)).collect();
        for Doomed { tree, tables } in buried {
            let empty = tree.view().version.clone();
            tables.iter().for_each(|table| table.set_obsolete(&engine.graveyard));
            tree.lock().durable = empty;
        }
    }

    /// Appends and syncs a record of the change; returns the segment that replay begins with from now
    /// on.
    fn log_change(&self, engine: &Engine, nothing: bool, change: &Change) -> Result<FileNumber> {
        let mut manifest = self.manifest.lock();
        let grown = manifest.writer.as_ref().is_none_or(|writer| {
            writer.size() > ROLL_BYTES && writer.size() > GROWTH_MAX * manifest.start_bytes
        });
        if grown {
            self.roll(engine, &mut manifest)?;
        }
        if nothing {
            return Ok(FileNumber(0));
        }
        for (_, version, _) in &change.installs {
            check_settling(engine, version)?;
        }
        let replay_start = engine.log.first_needed(&self.floors_after(change));
        let log_named = engine.log.sync_names()?;
        let last_seqno = Some(engine.commit.visible().load(Ordering::Acquire));
        let mut edits = change.edits.clone();
        if let Some(tree) = &change.created
            && let Some(name) = &tree.merging.name
        {
            let merge_operator = Some(name.clone());
            edits.push(TreeEdit { tree: tree.id, merge_operator, ..TreeEdit::default() });
        }
        let record = ManifestRecord {
            edits,
            keyspaces_created: change.created.iter().map(|tree| describe(tree)).collect(),
            keyspaces_dropped: change.dropped.clone(),
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
        self.note_named(log_named);
        let mark = ManifestRecord { last_seqno, ..ManifestRecord::default() };
        if writer.mark(&mark).is_err() {
            // The record is durable all the same; only nothing may be appended behind a torn mark.
            manifest.writer = None;
        }
        Ok(replay_start)
    }

    /// The floors of all trees that are there once the change is durable.
    fn floors_after(&self, change: &Change) -> Floors {
        let trees = self.durable.lock().clone();
        let mut floors: Floors = trees
            .iter()
            .filter(|tree| !change.dropped.contains(&tree.id.keyspace))
            .map(|tree| (tree.id, tree.lock().durable_floor))
            .collect();
        for (tree, _, floor) in &change.installs {
            floors.insert(tree.id, *floor);
        }
        floors
    }

    /// Starts a fresh manifest from the durable state of all trees.
    fn roll(&self, engine: &Engine, manifest: &mut Manifest) -> Result<()> {
        let number = engine.new_file_number();
        let old = FileName::Manifest(manifest.number).path(&engine.dir);
        let trees = self.durable.lock().clone();
        let snapshot = self.durable_snapshot(engine, &trees);
        let writer = start_manifest(engine.env.fs().as_ref(), &engine.dir, engine.db_id, number, &snapshot)?;
        *manifest = Manifest { number, start_bytes: writer.size(), writer: Some(writer) };
        self.note_named(snapshot.log_named);
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
        !self.queue.lock().is_empty() || !self.doomed.lock().is_empty()
    }

    /// How many installs wait to become durable.
    pub(crate) fn unsettled(&self) -> usize {
        self.queue.lock().len()
    }

    /// Whether changes of that tree do.
    pub(crate) fn has_unsettled_of(&self, id: TreeId) -> bool {
        self.queue.lock().iter().any(|install| install.tree.id == id)
    }

    /// The trees that the durable manifest knows, but for those whose drop has begun.
    pub(crate) fn durable_trees(&self) -> Vec<Arc<Tree>> {
        self.durable.lock().iter().filter(|tree| !tree.is_dropped()).cloned().collect()
    }

    /// The durable state of `trees`. What it says belongs together only while nothing settles and, as
    /// far as the log goes, no group is logged.
    pub(crate) fn durable_snapshot(&self, engine: &Engine, trees: &[Arc<Tree>]) -> ManifestRecord {
        let mut snapshot = ManifestRecord::default();
        let mut floors = Floors::new();
        for tree in trees {
            let state = tree.lock();
            floors.insert(tree.id, state.durable_floor);
            snapshot.edits.push(tree_snapshot(tree, &state.durable, state.durable_floor));
            if tree.id.keyspace != 0 {
                snapshot.keyspaces_created.push(describe(tree));
            }
        }
        let next_id = engine.keyspaces.next_id();
        ManifestRecord {
            keyspace_id_next: (next_id > 1).then_some(next_id),
            next_file_number: Some(engine.peek_file_number()),
            last_seqno: Some(engine.commit.visible().load(Ordering::Acquire)),
            replay_start: Some(engine.log.first_needed(&floors)),
            // The directory is synced before this manifest comes into force.
            log_named: engine.log.newest(),
            format_version: Some(engine.format_version),
            ..snapshot
        }
    }

    /// Whether the log has a segment that the manifest does not name yet: its loss would go unnoticed.
    pub(crate) fn is_name_pending(&self, engine: &Engine) -> bool {
        engine.log.newest().is_some_and(|newest| newest.0 > self.named.load(Ordering::Acquire))
    }

    fn note_named(&self, log_named: Option<FileNumber>) {
        self.named.fetch_max(log_named.map_or(0, |number| number.0), Ordering::AcqRel);
    }

    /// Whether some could be settled and nobody is about to.
    pub(crate) fn is_abandoned(&self) -> bool {
        !self.settling.is_held() && (ready_count(&self.queue.lock()) > 0 || !self.doomed.lock().is_empty())
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

/// How many installs at the front may settle.
fn ready_count(queue: &VecDeque<Install>) -> usize {
    let mut count = queue.iter().take_while(|install| install.durable.load(Ordering::Acquire)).count();
    while let Some(at) = first_of_incomplete(queue, count) {
        count = at;
    }
    count
}

/// Where among the first `count` installs a group begins that is not whole among them.
fn first_of_incomplete(queue: &VecDeque<Install>, count: usize) -> Option<usize> {
    queue.iter().take(count).position(|install| {
        install.together.as_ref().is_some_and(|group| {
            let here = queue.iter().take(count).filter(|other| other.is_of(group)).count();
            here < group.members.load(Ordering::Acquire)
        })
    })
}

/// What the manifest says of a new keyspace.
fn describe(tree: &Tree) -> KeyspaceDesc {
    KeyspaceDesc {
        id: tree.id.keyspace,
        name: tree.name.to_string(),
        shards: 1,
        comparator: tree.comparator.name().to_owned(),
    }
}

/// All of a tree as one edit.
pub(crate) fn tree_snapshot(tree: &Tree, version: &Version, floor: SeqNo) -> TreeEdit {
    let mut edit = TreeEdit {
        tree: tree.id,
        comparator: Some(tree.comparator.name().to_owned()),
        merge_operator: tree.merging.name.clone(),
        floor: Some(floor),
        ..TreeEdit::default()
    };
    for (level, table) in version.all_tables() {
        edit.added.push((level, table.meta().describe()));
    }
    edit
}
