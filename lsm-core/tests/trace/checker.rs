//! The replay of a trace: what a power cut at any instant would have found, without cutting the power
//! at each.
//!
//! - A synced write is acknowledged only when its record is synced, every earlier record is synced
//!   or in a settled table, and the names of those segments are durable (rule 17).
//! - A manifest names only tables that are durable with their names, from the moment it is written on,
//!   synced or not (I5). One whose sync failed never is, whatever a later sync says (rule 16).
//! - A file goes, by unlink or by reuse, only when no manifest that a power cut may bring back
//!   wants it (I6); of a log segment that also means that the tables of each tree have all it held.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dialsm_core::filename::FileName;
use dialsm_core::types::FileNumber;
use dialsm_core::version::edit::ManifestRecord;
use dialsm_core::version::manifest::read_manifest;
use dialsm_io::fs::Access;
use dialsm_io::{Fs, OpKind, SimFs};

use crate::common;
use crate::common::DIR;
use crate::common::tap::Event;

/// The trees of a batch's operations, by their keyspaces, in the order of the operations.
pub(crate) type Batches = BTreeMap<u64, Vec<u32>>;

/// What a manifest says after one of its records.
#[derive(Clone, Default)]
struct State {
    /// With the keyspaces that they belong to.
    tables: BTreeMap<FileNumber, u32>,
    replay_start: FileNumber,
    floors: BTreeMap<u32, u64>,
    dropped: BTreeSet<u32>,
}

impl State {
    fn apply(&mut self, record: ManifestRecord) {
        self.replay_start = record.replay_start.unwrap_or(self.replay_start);
        for edit in record.edits {
            let keyspace = edit.tree.keyspace;
            self.floors.extend(edit.floor.map(|floor| (keyspace, floor)));
            for (_, number) in edit.removed {
                assert_eq!(self.tables.remove(&number), Some(keyspace), "table {number} was not there");
            }
            self.tables.extend(edit.added.iter().map(|(_, table)| (table.number, keyspace)));
        }
        for keyspace in record.keyspaces_dropped {
            self.tables.retain(|_, owner| *owner != keyspace);
            self.dropped.insert(keyspace);
        }
    }

    /// Whether the keyspace does without the log for what it got as `seqno`.
    fn has(&self, keyspace: u32, seqno: u64) -> bool {
        self.dropped.contains(&keyspace) || self.floors.get(&keyspace).is_some_and(|floor| seqno < *floor)
    }
}

#[derive(Default)]
struct Manifest {
    bytes: Vec<u8>,
    /// Up to where it is synced.
    synced: usize,
}

impl Manifest {
    /// The states after the last synced record and after each later one: a power cut may bring
    /// back any of them.
    fn possible(&self) -> Vec<State> {
        let mut state = State::default();
        let mut states = vec![State::default()];
        self.read(&mut |at, record| {
            state.apply(record);
            if at < self.synced {
                states.clear();
            }
            states.push(state.clone());
        });
        states
    }

    /// Reads its records, each with where it begins.
    fn read(&self, each: &mut dyn FnMut(usize, ManifestRecord)) {
        let read = read_manifest(file_of(&self.bytes), &mut |at, record| {
            each(at as usize, record);
            Ok(())
        });
        read.expect("the engine's own manifest");
    }
}

fn file_of(bytes: &[u8]) -> Arc<dyn dialsm_io::File> {
    let fs = SimFs::new(0);
    let file = fs.create(Path::new("/manifest")).expect("create");
    file.write_at(bytes, 0).expect("write");
    fs.open(Path::new("/manifest"), Access::Read).expect("open")
}

/// A log segment under its present name.
#[derive(Default)]
struct Segment {
    /// Batches in it, and how many of them are synced.
    batches: Vec<u64>,
    synced: usize,
    name_durable: bool,
}

/// A table.
struct Table {
    maker: String,
    is_synced: bool,
    is_name_durable: bool,
    /// A sync of it has failed.
    is_lost: bool,
    is_named: bool,
}

/// How often there was something to check.
#[derive(Default, Debug)]
pub(crate) struct Checked {
    pub(crate) acks: u64,
    pub(crate) acks_over_unsynced_segments: u64,
    pub(crate) tables_named: u64,
    pub(crate) tables_unlinked: u64,
    /// Of those: consumed, or dropped with their keyspace, before a manifest had named them.
    pub(crate) tables_never_named: u64,
    pub(crate) tables_lost: u64,
    pub(crate) syncs_by_maker: u64,
    pub(crate) syncs_by_others: u64,
    /// Syncs of a table after that of a younger one.
    pub(crate) syncs_out_of_order: u64,
    /// Records that take tables away and add others, of one tree.
    pub(crate) replacing_records: u64,
    /// Those of them that are more than one step: no flush takes a table away, nothing else moves a floor.
    pub(crate) jumps: u64,
    /// Records that change several trees.
    pub(crate) records_over_trees: u64,
    pub(crate) segments_unlinked: u64,
    pub(crate) segments_reused: u64,
    pub(crate) manifests: u64,
    pub(crate) drops: u64,
}

impl Checked {
    pub(crate) fn add(&mut self, more: &Checked) {
        self.acks += more.acks;
        self.acks_over_unsynced_segments += more.acks_over_unsynced_segments;
        self.tables_named += more.tables_named;
        self.tables_unlinked += more.tables_unlinked;
        self.tables_never_named += more.tables_never_named;
        self.tables_lost += more.tables_lost;
        self.syncs_by_maker += more.syncs_by_maker;
        self.syncs_by_others += more.syncs_by_others;
        self.syncs_out_of_order += more.syncs_out_of_order;
        self.replacing_records += more.replacing_records;
        self.jumps += more.jumps;
        self.records_over_trees += more.records_over_trees;
        self.segments_unlinked += more.segments_unlinked;
        self.segments_reused += more.segments_reused;
        self.manifests += more.manifests;
        self.drops += more.drops;
    }
}

/// Replays a trace.
#[derive(Default)]
pub(crate) struct Checker {
    batches: Batches,
    tables: BTreeMap<FileNumber, Table>,
    newest_synced: Option<FileNumber>,
    manifests: BTreeMap<FileNumber, Manifest>,
    /// What `CURRENT` may say after a power cut.
    current: Vec<FileNumber>,
    pending_current: Vec<u8>,
    segments: BTreeMap<FileNumber, Segment>,
    /// Reused files: the number they were created under, which their handle still tells, and the
    /// one they have now.
    renamed: BTreeMap<FileNumber, FileNumber>,
    /// The last sequence number of each batch in each of its keyspaces.
    last_seqnos: BTreeMap<u64, BTreeMap<u32, u64>>,
    next_seqno: u64,
    pub(crate) checked: Checked,
}

fn name_of(path: &Path) -> Option<FileName> {
    assert_eq!(path.parent(), Some(Path::new(DIR)), "the engine left its directory");
    FileName::parse(path.file_name()?.to_str()?)
}

impl Checker {
    /// A checker of a run that writes these batches.
    pub(crate) fn new(batches: Batches) -> Checker {
        Checker { batches, ..Checker::default() }
    }

    /// All states that the next opening might find.
    fn possible(&self) -> Vec<State> {
        self.current.iter().flat_map(|number| self.manifests[number].possible()).collect()
    }

    /// Takes in what happened next.
    pub(crate) fn event(&mut self, event: &Event) {
        match event {
            Event::AckedSync(id) => self.acked(*id),
            Event::Unlinking(path) => self.unlinking(path),
            Event::SyncFailed(path) => {
                if let Some(FileName::Table(number)) = name_of(path) {
                    self.assert_not_named(number, "lost its bytes");
                    self.tables.get_mut(&number).expect("created").is_lost = true;
                    self.checked.tables_lost += 1;
                }
            }
            Event::Done { op, path, target, offset, data, thread } => {
                if path == Path::new(DIR) {
                    if *op == OpKind::SyncDir {
                        self.dir_synced();
                    }
                } else if path.starts_with(DIR) {
                    match name_of(path) {
                        Some(FileName::Table(number)) => self.table_call(number, *op, thread),
                        Some(name) => self.call(name, *op, target.as_ref(), *offset, data),
                        None => {}
                    }
                }
            }
        }
    }

    fn table_call(&mut self, number: FileNumber, op: OpKind, thread: &str) {
        match op {
            OpKind::Create => {
                let maker = thread.to_owned();
                let table = Table {
                    maker,
                    is_synced: false,
                    is_name_durable: false,
                    is_lost: false,
                    is_named: false,
                };
                assert!(self.tables.insert(number, table).is_none(), "table {number} is made twice");
            }
            OpKind::Write | OpKind::SetLen => {
                self.assert_not_named(number, "changes");
                self.tables.get_mut(&number).expect("created").is_synced = false;
            }
            OpKind::Sync => {
                let table = self.tables.get_mut(&number).expect("created");
                table.is_synced = true;
                let by_maker = table.maker == thread;
                self.checked.syncs_by_maker += u64::from(by_maker);
                self.checked.syncs_by_others += u64::from(!by_maker);
                self.checked.syncs_out_of_order += u64::from(self.newest_synced > Some(number));
                self.newest_synced = self.newest_synced.max(Some(number));
            }
            _ => {}
        }
    }

    /// What a manifest names that a power cut may bring back stays as it is.
    fn assert_not_named(&self, number: FileNumber, what: &str) {
        let is_named = self.possible().iter().any(|state| state.tables.contains_key(&number));
        assert!(!is_named, "I5: table {number} {what}, and is named");
    }

    fn call(&mut self, name: FileName, op: OpKind, target: Option<&PathBuf>, offset: u64, data: &[u8]) {
        match (name, op) {
            (FileName::Manifest(number), OpKind::Write) => self.manifest_written(number, offset, data),
            (FileName::Manifest(number), OpKind::Sync) => {
                let manifest = self.manifests.get_mut(&number).expect("written before");
                manifest.synced = manifest.bytes.len();
            }
            (FileName::Temp(name), OpKind::Write) if name == "CURRENT.tmp" => {
                self.pending_current = data.to_vec()
            }
            (FileName::Temp(name), OpKind::Rename) if name == "CURRENT.tmp" => {
                let text = String::from_utf8(self.pending_current.clone()).expect("text");
                match FileName::parse(text.trim_end()) {
                    Some(FileName::Manifest(number)) => self.current.push(number),
                    other => panic!("CURRENT names {other:?}"),
                }
                self.checked.manifests += 1;
            }
            (FileName::Log(number), OpKind::Create) => {
                self.segments.insert(number, Segment::default());
            }
            (FileName::Log(number), OpKind::Write) if offset == 0 => self.segment_begun(self.now(number)),
            (FileName::Log(number), OpKind::Write) => self.log_written(self.now(number), data),
            (FileName::Log(number), OpKind::Sync) => {
                let now = self.now(number);
                // It may have been unlinked since the syncing thread had picked it.
                if let Some(segment) = self.segments.get_mut(&now) {
                    segment.synced = segment.batches.len();
                }
            }
            (FileName::Log(number), OpKind::Rename) => {
                let Some(FileName::Log(to)) = target.and_then(|to| name_of(to)) else {
                    panic!("a log segment was renamed to something else");
                };
                let mut segment = self.segments.remove(&number).expect("begun");
                segment.name_durable = false;
                self.segments.insert(to, segment);
                let created =
                    self.renamed.iter().find(|(_, now)| **now == number).map_or(number, |(n, _)| *n);
                self.renamed.insert(created, to);
            }
            _ => {}
        }
    }

    /// The number that the file created as `number` has now.
    fn now(&self, number: FileNumber) -> FileNumber {
        self.renamed.get(&number).copied().unwrap_or(number)
    }

    fn dir_synced(&mut self) {
        self.tables.values_mut().for_each(|table| table.is_name_durable = true);
        self.segments.values_mut().for_each(|segment| segment.name_durable = true);
        if self.current.len() > 1 {
            self.current.drain(..self.current.len() - 1);
        }
    }

    fn manifest_written(&mut self, number: FileNumber, offset: u64, data: &[u8]) {
        let manifest = self.manifests.entry(number).or_default();
        manifest.bytes.resize(offset as usize, 0);
        manifest.bytes.extend_from_slice(data);
        let last = manifest.possible().pop().expect("there is always one");
        let checked = &mut self.checked;
        manifest.read(&mut |at, record| {
            if at < offset as usize {
                return;
            }
            let moved = |floor: bool| {
                let edits = record.edits.iter().filter(|edit| !edit.removed.is_empty());
                edits
                    .filter(|edit| {
                        edit.added
                            .iter()
                            .any(|(_, table)| edit.removed.iter().all(|(_, number)| *number != table.number))
                            && (!floor || edit.floor.is_some())
                    })
                    .count() as u64
            };
            checked.replacing_records += moved(false);
            checked.jumps += moved(true);
            checked.records_over_trees += u64::from(record.edits.len() > 1);
            checked.drops += record.keyspaces_dropped.len() as u64;
        });
        for number in last.tables.keys() {
            // Even unsynced the record may be what the next opening finds.
            let table = self.tables.get_mut(number).expect("a table that was made");
            let is_durable = table.is_synced && table.is_name_durable && !table.is_lost;
            assert!(is_durable, "I5: table {number} is named too early");
            table.is_named = true;
            self.checked.tables_named += 1;
        }
    }

    /// The header of a new segment was written, into a fresh file or a retired one.
    fn segment_begun(&mut self, number: FileNumber) {
        let reused = std::mem::take(self.segments.get_mut(&number).expect("created"));
        if !reused.batches.is_empty() {
            self.checked.segments_reused += 1;
            self.segment_goes(number, &reused);
        }
    }

    fn log_written(&mut self, number: FileNumber, data: &[u8]) {
        for id in common::tap::witnesses_in(data) {
            for keyspace in &self.batches[&id] {
                self.next_seqno += 1;
                self.last_seqnos.entry(id).or_default().insert(*keyspace, self.next_seqno);
            }
            self.segments.get_mut(&number).expect("begun").batches.push(id);
        }
    }

    /// Whether no such state needs the log for the batch.
    fn is_in_tables(&self, states: &[State], id: u64) -> bool {
        let parts = &self.last_seqnos[&id];
        states.iter().all(|state| parts.iter().all(|(keyspace, seqno)| state.has(*keyspace, *seqno)))
    }

    fn segment_goes(&self, number: FileNumber, segment: &Segment) {
        let possible = self.possible();
        let is_behind = possible.iter().all(|state| state.replay_start > number);
        assert!(is_behind, "I6: segment {number} goes, but would be replayed");
        let in_tables = segment.batches.iter().all(|id| self.is_in_tables(&possible, *id));
        assert!(in_tables, "I6: segment {number} goes, but not all it held is in tables");
    }

    fn unlinking(&mut self, path: &Path) {
        match name_of(path) {
            Some(FileName::Table(number)) => {
                for state in self.possible() {
                    assert!(!state.tables.contains_key(&number), "I6: table {number} goes, but is named");
                }
                self.checked.tables_unlinked += 1;
                let is_named = self.tables.get(&number).is_some_and(|table| table.is_named);
                self.checked.tables_never_named += u64::from(!is_named);
            }
            Some(FileName::Log(number)) => {
                if let Some(segment) = self.segments.remove(&number) {
                    self.checked.segments_unlinked += 1;
                    self.segment_goes(number, &segment);
                }
            }
            Some(FileName::Manifest(number)) => {
                assert!(!self.current.contains(&number), "manifest {number} goes, but CURRENT may name it");
            }
            _ => {}
        }
    }

    fn acked(&mut self, id: u64) {
        self.checked.acks += 1;
        let own = self.segments.iter().find(|(_, s)| s.batches.contains(&id)).map(|(number, _)| *number);
        let possible = self.possible();
        let replayed = possible.iter().map(|state| state.replay_start).min().expect("a manifest");
        let seqno = self.last_seqnos[&id].values().max();
        for (number, segment) in &self.segments {
            if own.is_none_or(|own| *number > own) {
                continue;
            }
            let at = segment.batches.iter().position(|other| *other == id);
            let before = at.map_or(segment.batches.len(), |at| at + 1);
            let missing: Vec<_> = segment.batches[segment.synced.min(before)..before]
                .iter()
                // Also what tables hold: replay would stumble over it.
                .filter(|other| !self.is_in_tables(&possible, **other) || *number >= replayed)
                .collect();
            assert!(
                missing.is_empty(),
                "seqno {seqno:?} is acknowledged, but {} before it are not safe",
                missing.len()
            );
            let holds_any =
                segment.batches[..before].iter().any(|other| !self.is_in_tables(&possible, *other));
            assert!(segment.name_durable || !holds_any, "the name of segment {number} is not durable");
            self.checked.acks_over_unsynced_segments += u64::from(segment.synced < before);
        }
        assert!(
            own.is_some() || self.is_in_tables(&possible, id),
            "an acknowledged write is in no segment and no table"
        );
    }
}
