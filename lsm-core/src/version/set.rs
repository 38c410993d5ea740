//! The two heads of each tree: *live*, what readers use, and *durable*, what the manifest says.
//!
//! ```text
//! job ends ─ install: live version published, step in the tree's ledger ─ the files become durable
//!          ─ settle: the moves of all ledgers appended, manifest synced, durable versions follow, inputs
//!            become unlinkable, log retires
//! ```
//! The birth and the end of a keyspace are records of the same manifest. They wait for no install of
//! another tree; the steps of a dropped tree are thrown away.
//!
//! Invariants:
//! - Of each tree the manifest has a state that the tree was in, or one with younger flushes besides
//!   (rule 13, `handoff::ledger`); steps of several trees that belong together are in one record, and in
//!   none before that of steps which were sealed together earlier (rule 14).
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
//! - A step stays in its ledger until it is settled, and leaves it under its tree's lock: whoever
//!   finds the ledger empty finds everything durable, and the tree's floor never goes back.
//! - A state is named only when all its files and their names are durable (I5).
//! - After a failed append or sync the manifest file is never written again: the next attempt
//!   starts a fresh one from the settled state and makes it durable before the queue goes on; the
//!   inputs stay until then (rule 14).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use dialsm_io::env::Nanos;
use parking_lot::Mutex;

use super::edit::{KeyspaceDesc, ManifestRecord, TreeEdit};
use super::manifest::{self, ManifestWriter};
use super::{Removed, TableFile, Version};
use crate::Result;
use crate::engine::Engine;
use crate::events::{HandOff, ManifestRotated};
use crate::fault::Fault;
use crate::filename::FileName;
use crate::gate::{Gate, GateGuard};
use crate::handoff::Reserved;
use crate::handoff::ledger::{LedgerFile, Line, Move, Step};
use crate::invariants::check_settling;
use crate::metrics::Counter;
use crate::space::Space;
use crate::tree::{Dropped, Tree, TreeState};
use crate::types::{FileNumber, SeqNo, TreeId};
use crate::wal::log::{self, Floors};

/// A manifest is rewritten when it has grown past this and past [`GROWTH_MAX`] times its start.
const ROLL_BYTES: u64 = 4 << 20;
const GROWTH_MAX: u64 = 8;

/// What a step of a tree's ledger keeps until it is settled.
pub(crate) struct Kept {
    /// The tree's version after it.
    version: Arc<Version>,
    /// Tables that leave; unlinkable once this is settled and no reader holds them.
    removed: Vec<Arc<TableFile>>,
    together: Option<Arc<FlushGroup>>,
    reserved: Option<Reserved>,
    /// When it was made live.
    since: Nanos,
}

/// A change of a tree that has just been made live.
pub(crate) struct Install {
    pub(crate) removed: Vec<Removed>,
    pub(crate) added: Vec<(u8, Arc<TableFile>)>,
    /// The version with it.
    pub(crate) version: Arc<Version>,
    /// Of a flush: the tree's floor after it.
    pub(crate) floor: Option<SeqNo>,
    /// Tables that left with it for good.
    pub(crate) leaving: Vec<Arc<TableFile>>,
    pub(crate) reserved: Option<Reserved>,
    pub(crate) together: Option<Arc<FlushGroup>>,
}

type TableStep = Step<Arc<TableFile>, Kept>;

impl LedgerFile for Arc<TableFile> {
    fn number(&self) -> FileNumber {
        TableFile::number(self)
    }

    fn is_durable(&self) -> bool {
        TableFile::is_durable(self)
    }
}

/// The ledger of a tree that has steps in it.
struct Ledger {
    tree: Arc<Tree>,
    line: Line<Arc<TableFile>, Kept>,
}

/// Memtables of several trees whose installs settle in one record of the manifest, or not at all; and
/// in none before those that were sealed so before them.
pub(crate) struct FlushGroup {
    /// How many installs are not settled, those to come included.
    members: AtomicUsize,
}

impl FlushGroup {
    /// A member is settled, or will never come: its keyspace was dropped.
    pub(crate) fn leave(&self) {
        self.members.fetch_sub(1, Ordering::AcqRel);
    }
}

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
    moves: Vec<TreeMove>,
    created: Option<Arc<Space>>,
    dropped: Vec<u32>,
}

/// Where the durable version of a tree goes.
struct TreeMove {
    tree: Arc<Tree>,
    step: Move<Arc<TableFile>>,
    version: Arc<Version>,
}

/// The manifest and the edits on their way into it.
pub(crate) struct VersionSet {
    settling: Gate,
    ledgers: Mutex<BTreeMap<TreeId, Ledger>>,
    /// Those with members, and perhaps others, in the order in which they were sealed.
    groups: Mutex<VecDeque<Arc<FlushGroup>>>,
    /// Steps of all trees so far.
    steps: AtomicU64,
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
            ledgers: Mutex::new(BTreeMap::new()),
            groups: Mutex::default(),
            steps: AtomicU64::new(0),
            durable: Mutex::new(trees),
            doomed: Mutex::default(),
            manifest: Mutex::new(Manifest { number, writer: None, start_bytes: 0 }),
            named: AtomicU64::new(0),
        }
    }

    /// A group of so many memtables, which are about to be sealed. Leader only: between two groups of writes.
    pub(crate) fn new_group(&self, members: usize) -> Arc<FlushGroup> {
        let group = Arc::new(FlushGroup { members: AtomicUsize::new(members) });
        let mut groups = self.groups.lock();
        groups.retain(|other| other.members.load(Ordering::Acquire) > 0);
        groups.push_back(group.clone());
        group
    }

    /// Notes a change that the caller has just made live, under the tree's lock. Returns its number, for
    /// [`VersionSet::is_settled`].
    pub(crate) fn push(&self, tree: &Arc<Tree>, _proof: &mut TreeState, install: Install) -> u64 {
        let Install { removed, added, version, floor, leaving, mut reserved, together } = install;
        reserved.iter_mut().for_each(Reserved::set_live);
        let is_bound = together.is_some();
        let since = tree.events().now();
        let kept = Kept { version, removed: leaving, together, reserved, since };
        let step = Step::new(removed, added, floor, kept).bound(is_bound);
        let mut ledgers = self.ledgers.lock();
        let number = self.steps.fetch_add(1, Ordering::Relaxed) + 1;
        let new = || Ledger { tree: tree.clone(), line: Line::default() };
        ledgers.entry(tree.id).or_insert_with(new).line.push(number, step);
        number
    }

    /// Whether the tree's step of that number is settled, or thrown away.
    pub(crate) fn is_settled(&self, id: TreeId, number: u64) -> bool {
        self.ledgers.lock().get(&id).is_none_or(|ledger| ledger.line.is_settled(number))
    }

    /// Has the manifest say all that is durable, and lets go of what that replaced.
    ///
    /// # Errors
    /// Those of the file system; the changes stay live and unsettled.
    pub(crate) fn settle(&self, engine: &Engine) -> Result<()> {
        let _only_one = self.settling.enter();
        self.settle_with(engine, None)
    }

    /// Has a fresh manifest say what is settled.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn rewrite(&self, engine: &Engine) -> Result<()> {
        let _only_one = self.settling.enter();
        self.manifest.lock().writer = None;
        self.settle_with(engine, None)
    }

    /// Makes a new keyspace durable, which has nothing in it yet.
    ///
    /// # Errors
    /// Those of the file system; the keyspace does not exist then, but for a crash before the next
    /// change, which may find it.
    pub(crate) fn create_keyspace(&self, engine: &Engine, space: &Arc<Space>) -> Result<()> {
        let _only_one = self.settling.enter();
        let result = self.settle_with(engine, Some(space.clone()));
        // Spent even if it failed: what the manifest holds then is unknown.
        engine.keyspaces.spend_id(space.id);
        result
    }

    /// Makes the end of a keyspace durable, whose trees were emptied and had those versions.
    ///
    /// # Errors
    /// Those of the file system; the drop is written with the next change then.
    pub(crate) fn drop_keyspace(&self, engine: &Engine, trees: Vec<Dropped>) -> Result<()> {
        let _only_one = self.settling.enter();
        let doomed: Vec<Doomed> = trees.into_iter().map(|dropped| self.doom(dropped)).collect();
        self.doomed.lock().extend(doomed);
        self.settle_with(engine, None)
    }

    /// Throws away what waits to be settled of a tree, and gathers its tables.
    fn doom(&self, Dropped { tree, version: last, groups }: Dropped) -> Doomed {
        groups.iter().for_each(|group| group.leave());
        let mut tables: Vec<Arc<TableFile>> = last.all_tables().map(|(_, table)| table.clone()).collect();
        tables.extend(tree.lock().durable.all_tables().map(|(_, table)| table.clone()));
        let steps = self.ledgers.lock().remove(&tree.id).map_or(Vec::new(), |mut own| own.line.discard());
        for step in steps {
            let kept = step.payload;
            kept.together.inspect(|group| group.leave());
            tables.extend(kept.removed);
            tables.extend(kept.version.all_tables().map(|(_, table)| table.clone()));
        }
        Doomed { tree, tables }
    }

    /// As [`VersionSet::settle`], inside the gate.
    fn settle_with(&self, engine: &Engine, created: Option<Arc<Space>>) -> Result<()> {
        let change = self.ready(created)?;
        let nothing = change.moves.is_empty()
            && change.created.is_none()
            && change.dropped.is_empty()
            && !self.is_name_pending(engine);
        if nothing && self.manifest.lock().writer.is_some() {
            return Ok(());
        }
        self.sync_log_for(engine, &change)?;
        if engine.options.load().break_on_purpose == Some(Fault::EarlyUnlink) {
            unlink_too_early(engine, &change);
        }
        let logged = self.log_change(engine, nothing, &change);
        engine.events.ring();
        let replay_start = logged?;
        change.moves.into_iter().for_each(|moved| self.follow(engine, moved));
        let created = change.created.iter().flat_map(|space| space.trees.iter().cloned());
        self.durable.lock().extend(created);
        self.bury(engine, &change.dropped);
        engine.log.retire_before(replay_start);
        if !nothing {
            // Retained bytes are free, files may go. Whoever settled it: the settler may find nothing left.
            engine.scheduler.wake.notify();
            engine.scheduler.ended.notify();
            engine.handoff.wake.notify();
        }
        Ok(())
    }

    /// The record of a move is durable: so is the version that it leads to, and its inputs may go.
    fn follow(&self, engine: &Engine, TreeMove { tree, step, version }: TreeMove) {
        let mut state = tree.lock();
        let mut ledgers = self.ledgers.lock();
        let ledger = ledgers.get_mut(&tree.id).expect("only settling takes steps out, and a drop keeps out");
        let mut settled = ledger.line.settle(&step);
        // While nobody else sees the ledgers: a member of a group, and bytes that are retained, are counted as
        // long as their step is there, and no longer.
        for step in &mut settled {
            step.payload.together.iter().for_each(|group| group.leave());
            step.payload.reserved = None;
        }
        if ledger.line.is_empty() {
            ledgers.remove(&tree.id);
        }
        drop(ledgers);
        state.durable = version;
        state.durable_floor = step.floor.unwrap_or(state.durable_floor);
        drop(state);
        note_hand_off(engine, &tree, &settled);
        for step in &settled {
            step.payload.removed.iter().for_each(|table| table.set_obsolete(&engine.graveyard));
            // Durable, or consumed: no table of a settled step has to be made again.
            step.added.iter().for_each(|(_, table)| table.pass(engine));
        }
    }

    /// What may settle now: of each tree as much as is durable and does not go without steps of other
    /// trees that belong to it; and all drops.
    fn ready(&self, created: Option<Arc<Space>>) -> Result<Change> {
        let mut dropped: Vec<u32> = self.doomed.lock().iter().map(|doomed| doomed.tree.id.keyspace).collect();
        dropped.dedup();
        let ledgers = self.ledgers.lock();
        let mut found = Vec::new();
        for (id, steps) in ready_steps(&ledgers, &self.groups.lock()) {
            let ledger = &ledgers[&id];
            let Some(step) = ledger.line.next_move(steps) else { continue };
            let after = ledger.line.steps().take(steps).last().map(|last| last.payload.version.clone());
            found.push((ledger.tree.clone(), step, after));
        }
        drop(ledgers);
        let mut moves = Vec::new();
        for (tree, step, after) in found {
            let version = match after.filter(|_| step.is_prefix) {
                Some(version) => version,
                None => {
                    let durable = tree.lock().durable.clone();
                    Arc::new(durable.apply(&step.removed, &step.added)?)
                }
            };
            moves.push(TreeMove { tree, step, version });
        }
        Ok(Change { moves, created, dropped })
    }

    /// Rule 1; see the module header.
    fn sync_log_for(&self, engine: &Engine, change: &Change) -> Result<()> {
        if self.durable.lock().len() < 2 {
            return Ok(());
        }
        let flushed = change.moves.iter().filter_map(|moved| moved.step.floor).max();
        let Some(floor) = flushed else { return Ok(()) };
        if engine.log.is_synced_through(floor.saturating_sub(1)) {
            return Ok(());
        }
        log::sync(engine).inspect_err(|error| engine.error.latch_lasting("a log sync", error))
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
        for moved in &change.moves {
            check_settling(engine, &moved.version)?;
        }
        let replay_start = engine.log.first_needed(&self.floors_after(change));
        let log_named = engine.log.sync_names().inspect_err(|error| engine.note_sync_of_dir(error))?;
        let last_seqno = Some(engine.commit.visible().load(Ordering::Acquire));
        let mut edits: Vec<TreeEdit> = change.moves.iter().map(TreeMove::edit).collect();
        let created = change.created.iter().map(|space| space.trees[0].as_ref());
        for tree in created.clone() {
            if let Some(name) = &tree.merging.name {
                let merge_operator = Some(name.clone());
                edits.push(TreeEdit { tree: tree.id, merge_operator, ..TreeEdit::default() });
            }
        }
        let record = ManifestRecord {
            edits,
            keyspaces_created: created.map(describe).collect(),
            keyspaces_dropped: change.dropped.clone(),
            next_file_number: Some(engine.peek_file_number()),
            last_seqno,
            replay_start: Some(replay_start),
            log_named,
            ..ManifestRecord::default()
        };
        let writer = manifest.writer.as_mut().expect("roll() has opened one");
        let before = writer.written_bytes();
        if let Err(error) = writer.append(&record).and_then(|()| sync(engine, writer)) {
            manifest.writer = None;
            return Err(error);
        }
        self.note_named(log_named);
        let mark = ManifestRecord { last_seqno, ..ManifestRecord::default() };
        let marked = writer.mark(&mark);
        engine.metrics.add(Counter::ManifestBytes, writer.written_bytes() - before);
        if marked.is_err() {
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
        for TreeMove { tree, step, .. } in &change.moves {
            step.floor.and_then(|floor| floors.insert(tree.id, floor));
        }
        floors
    }

    /// Starts a fresh manifest from the durable state of all trees.
    fn roll(&self, engine: &Engine, manifest: &mut Manifest) -> Result<()> {
        let number = engine.new_file_number();
        let old = FileName::Manifest(manifest.number).path(&engine.dir);
        let trees = self.durable.lock().clone();
        let snapshot = self.durable_snapshot(engine, &trees);
        let writer = start_manifest(engine.env.fs().as_ref(), &engine.dir, engine.db_id, number, &snapshot)
            .inspect_err(|error| engine.note_sync_of_dir(error))?;
        let begun = [(Counter::Manifests, 1), (Counter::ManifestBytes, writer.written_bytes())];
        engine.metrics.add_all(&begun);
        *manifest = Manifest { number, start_bytes: writer.size(), writer: Some(writer) };
        self.note_named(snapshot.log_named);
        engine.events.push(|| ManifestRotated { number: number.0, bytes: manifest.start_bytes }.into());
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
        !self.ledgers.lock().is_empty() || !self.doomed.lock().is_empty()
    }

    /// How many installs wait to become durable.
    pub(crate) fn unsettled(&self) -> usize {
        self.ledgers.lock().values().map(|ledger| ledger.line.len()).sum()
    }

    /// How many of a tree's.
    pub(crate) fn unsettled_of(&self, id: TreeId) -> usize {
        self.ledgers.lock().get(&id).map_or(0, |ledger| ledger.line.len())
    }

    /// The floor that the tree's last flush leads to, if that is not settled.
    pub(crate) fn last_floor(&self, id: TreeId) -> Option<SeqNo> {
        self.ledgers.lock().get(&id).and_then(|ledger| ledger.line.last_floor())
    }

    /// The number of the tree's last step, if it is not settled.
    pub(crate) fn last_unsettled(&self, id: TreeId) -> Option<u64> {
        self.ledgers.lock().get(&id).and_then(|ledger| ledger.line.last_number())
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
            // The default keyspace is there from the start, with one shard unless it says so.
            let is_told = tree.id.keyspace != 0 || tree.shards > 1;
            if tree.id.shard == 0 && is_told {
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
            hash_key: (engine.space.shards() > 1).then_some(engine.hash_key),
            void_intervals: engine.voids.get().map_or(Vec::new(), |voids| voids.intervals().to_vec()),
            unlogged: *engine.unlogged.lock(),
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

    /// Whether something may be settled.
    pub(crate) fn is_ready(&self) -> bool {
        if !self.doomed.lock().is_empty() {
            return true;
        }
        let ledgers = self.ledgers.lock();
        let ready = ready_steps(&ledgers, &self.groups.lock());
        ready.into_iter().any(|(id, steps)| ledgers[&id].line.can_move(steps))
    }
}

/// Tells of new tables that carry the data from now on.
fn note_hand_off(engine: &Engine, tree: &Tree, settled: &[TableStep]) {
    // A move adds tables that it takes away elsewhere.
    let is_new = |step: &TableStep, table: &TableFile| {
        step.removed.iter().all(|(_, removed)| *removed != table.number())
    };
    let added = || {
        let added = settled.iter().flat_map(|step| step.added.iter().map(move |(_, table)| (step, table)));
        added.filter(|(step, table)| is_new(step, table)).map(|(_, table)| table.file_bytes())
    };
    if added().next().is_none() {
        return;
    }
    engine.events.emit(|| {
        let since = settled.iter().map(|step| step.payload.since).min().unwrap_or_default();
        HandOff {
            keyspace: tree.name.clone(),
            shard: tree.id.shard,
            steps: settled.len() as u64,
            files: added().count() as u64,
            bytes: added().sum(),
            delay_us: (engine.env.now() - since) / 1000,
        }
        .into()
    });
}

impl TreeMove {
    fn edit(&self) -> TreeEdit {
        TreeEdit {
            tree: self.tree.id,
            removed: self.step.removed.clone(),
            added: self.step.added.iter().map(|(level, table)| (*level, table.meta().describe())).collect(),
            floor: self.step.floor,
            ..TreeEdit::default()
        }
    }
}

/// Makes what was appended durable, and counts that.
fn sync(engine: &Engine, writer: &mut ManifestWriter) -> Result<()> {
    let started = engine.env.now();
    let result = writer.sync();
    engine.metrics.manifest_sync_ns.record(engine.env.now() - started);
    result
}

/// See [`Fault::EarlyUnlink`].
fn unlink_too_early(engine: &Engine, change: &Change) {
    for moved in &change.moves {
        let durable = moved.tree.lock().durable.clone();
        let is_removed = |number| moved.step.removed.iter().any(|(_, removed)| *removed == number);
        for (_, table) in durable.all_tables().filter(|(_, table)| is_removed(table.number())) {
            let _ = engine.env.fs().unlink(&engine.table_path(table.place()));
        }
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

/// How many steps of each tree may settle, so that no group of flushes is torn apart or goes ahead of an
/// earlier one.
fn ready_steps(
    ledgers: &BTreeMap<TreeId, Ledger>,
    groups: &VecDeque<Arc<FlushGroup>>,
) -> BTreeMap<TreeId, usize> {
    let most = |(id, ledger): (&TreeId, &Ledger)| (*id, ledger.line.ready(ledger.line.len()));
    let mut ready: BTreeMap<TreeId, usize> = ledgers.iter().map(most).collect();
    while let Some((id, at)) = first_torn(ledgers, groups, &ready) {
        ready.insert(id, ledgers[&id].line.ready(at));
    }
    ready
}

/// A step of a group, among those that are ready, that others of its group, or of one before, are not among.
fn first_torn(
    ledgers: &BTreeMap<TreeId, Ledger>,
    groups: &VecDeque<Arc<FlushGroup>>,
    ready: &BTreeMap<TreeId, usize>,
) -> Option<(TreeId, usize)> {
    let grouped = |(id, steps): (&TreeId, &usize)| {
        let steps = ledgers[id].line.steps().take(*steps).enumerate();
        let of =
            |(at, step): (usize, &TableStep)| step.payload.together.clone().map(|group| (*id, at, group));
        steps.filter_map(of).collect::<Vec<_>>()
    };
    let members: Vec<(TreeId, usize, Arc<FlushGroup>)> = ready.iter().flat_map(grouped).collect();
    let mut is_torn = false;
    groups.iter().find_map(|group| {
        let mut here = members.iter().filter(|(.., other)| Arc::ptr_eq(other, group));
        is_torn |= here.clone().count() < group.members.load(Ordering::Acquire);
        here.next().filter(|_| is_torn).map(|(id, at, _)| (*id, *at))
    })
}

/// What the manifest says of a new keyspace.
fn describe(tree: &Tree) -> KeyspaceDesc {
    KeyspaceDesc {
        id: tree.id.keyspace,
        name: tree.name.to_string(),
        shards: tree.shards,
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
