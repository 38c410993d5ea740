//! The order of things, read from the trace of a run: what a power cut at any instant would have
//! found, without cutting the power at each.
//!
//! - A synced write is acknowledged only when its record is synced, every earlier record is synced
//!   or in a settled table, and the names of those segments are durable (rule 17).
//! - A manifest names only tables that are durable with their names (I5).
//! - A file goes, by unlink or by reuse, only when no manifest that a power cut may bring back
//!   wants it (I6); of a log segment that also means that the tables have all it held.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::tap::Event;
use common::workload::{Drive, Machine};
use common::{DIR, Model, open, tiny};
use dialsm_core::filename::FileName;
use dialsm_core::types::FileNumber;
use dialsm_core::version::manifest::read_manifest;
use dialsm_io::fs::Access;
use dialsm_io::{Fs, OpKind, SimEnv, SimFs};

/// What a manifest says after one of its records.
#[derive(Clone, Default)]
struct State {
    tables: BTreeSet<FileNumber>,
    replay_start: FileNumber,
    floor: u64,
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
        let file = file_of(&self.bytes);
        read_manifest(file, &mut |at, record| {
            state.replay_start = record.replay_start.unwrap_or(state.replay_start);
            for edit in record.edits {
                state.floor = edit.floor.unwrap_or(state.floor);
                for (_, number) in edit.removed {
                    state.tables.remove(&number);
                }
                state.tables.extend(edit.added.iter().map(|(_, table)| table.number));
            }
            if (at as usize) < self.synced {
                states.clear();
            }
            states.push(state.clone());
            Ok(())
        })
        .expect("the engine's own manifest");
        states
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

#[derive(Default, Debug)]
struct Checked {
    acks: u64,
    acks_over_unsynced_segments: u64,
    tables_named: u64,
    tables_unlinked: u64,
    segments_unlinked: u64,
    segments_reused: u64,
    manifests: u64,
}

/// Replays a trace.
#[derive(Default)]
struct Checker {
    /// By number: synced, name durable.
    tables: BTreeMap<FileNumber, (bool, bool)>,
    manifests: BTreeMap<FileNumber, Manifest>,
    /// What `CURRENT` may say after a power cut.
    current: Vec<FileNumber>,
    pending_current: Vec<u8>,
    segments: BTreeMap<FileNumber, Segment>,
    /// Reused files: the number they were created under, which their handle still tells, and the
    /// one they have now.
    renamed: BTreeMap<FileNumber, FileNumber>,
    /// The last sequence number of each batch.
    last_seqno: BTreeMap<u64, u64>,
    next_seqno: u64,
    checked: Checked,
}

fn name_of(path: &Path) -> Option<FileName> {
    assert_eq!(path.parent(), Some(Path::new(DIR)), "the engine left its directory");
    FileName::parse(path.file_name()?.to_str()?)
}

impl Checker {
    /// All states that the next opening might find.
    fn possible(&self) -> Vec<State> {
        self.current.iter().flat_map(|number| self.manifests[number].possible()).collect()
    }

    fn event(&mut self, event: &Event, ops_of: &dyn Fn(u64) -> u64) {
        match event {
            Event::AckedSync(id) => self.acked(*id),
            Event::Unlinking(path) => self.unlinking(path),
            Event::Done { op, path, target, offset, data } => {
                if path == Path::new(DIR) {
                    if *op == OpKind::SyncDir {
                        self.dir_synced();
                    }
                } else if path.starts_with(DIR) {
                    self.call(*op, path, target.as_ref(), *offset, data, ops_of);
                }
            }
        }
    }

    fn call(
        &mut self,
        op: OpKind,
        path: &Path,
        target: Option<&PathBuf>,
        offset: u64,
        data: &[u8],
        ops_of: &dyn Fn(u64) -> u64,
    ) {
        match (name_of(path), op) {
            (Some(FileName::Table(number)), OpKind::Create) => self.tables.extend([(number, (false, false))]),
            (Some(FileName::Table(number)), OpKind::Write) => {
                self.tables.get_mut(&number).expect("created").0 = false;
            }
            (Some(FileName::Table(number)), OpKind::Sync) => {
                self.tables.get_mut(&number).expect("created").0 = true;
            }
            (Some(FileName::Manifest(number)), OpKind::Write) => self.manifest_written(number, offset, data),
            (Some(FileName::Manifest(number)), OpKind::Sync) => {
                let manifest = self.manifests.get_mut(&number).expect("written before");
                manifest.synced = manifest.bytes.len();
            }
            (Some(FileName::Temp(name)), OpKind::Write) if name == "CURRENT.tmp" => {
                self.pending_current = data.to_vec()
            }
            (Some(FileName::Temp(name)), OpKind::Rename) if name == "CURRENT.tmp" => {
                let text = String::from_utf8(self.pending_current.clone()).expect("text");
                match FileName::parse(text.trim_end()) {
                    Some(FileName::Manifest(number)) => self.current.push(number),
                    other => panic!("CURRENT names {other:?}"),
                }
                self.checked.manifests += 1;
            }
            (Some(FileName::Log(number)), OpKind::Create) => {
                self.segments.insert(number, Segment::default());
            }
            (Some(FileName::Log(number)), OpKind::Write) if offset == 0 => {
                self.segment_begun(self.now(number))
            }
            (Some(FileName::Log(number)), OpKind::Write) => self.log_written(self.now(number), data, ops_of),
            (Some(FileName::Log(number)), OpKind::Sync) => {
                let now = self.now(number);
                // It may have been unlinked since the syncing thread had picked it.
                if let Some(segment) = self.segments.get_mut(&now) {
                    segment.synced = segment.batches.len();
                }
            }
            (Some(FileName::Log(number)), OpKind::Rename) => {
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
        self.tables.values_mut().for_each(|table| table.1 = true);
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
        for table in last.tables {
            // Even unsynced the record may be what the next opening finds.
            assert_eq!(self.tables.get(&table), Some(&(true, true)), "I5: table {table} is named too early");
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

    fn log_written(&mut self, number: FileNumber, data: &[u8], ops_of: &dyn Fn(u64) -> u64) {
        for id in common::tap::witnesses_in(data) {
            self.next_seqno += ops_of(id);
            self.last_seqno.insert(id, self.next_seqno);
            self.segments.get_mut(&number).expect("begun").batches.push(id);
        }
    }

    fn segment_goes(&self, number: FileNumber, segment: &Segment) {
        for state in self.possible() {
            assert!(state.replay_start > number, "I6: segment {number} goes, but would be replayed");
            for id in &segment.batches {
                let in_tables = self.last_seqno[id] < state.floor;
                assert!(in_tables, "I6: segment {number} goes, but not all it held is in tables");
            }
        }
    }

    fn unlinking(&mut self, path: &Path) {
        match name_of(path) {
            Some(FileName::Table(number)) => {
                for state in self.possible() {
                    assert!(!state.tables.contains(&number), "I6: table {number} goes, but is named");
                }
                self.checked.tables_unlinked += 1;
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
        let floor = possible.iter().map(|state| state.floor).min().expect("a manifest");
        let replayed = possible.iter().map(|state| state.replay_start).min().expect("a manifest");
        let seqno = self.last_seqno[&id];
        for (number, segment) in &self.segments {
            if own.is_none_or(|own| *number > own) {
                continue;
            }
            let at = segment.batches.iter().position(|other| *other == id);
            let before = at.map_or(segment.batches.len(), |at| at + 1);
            let missing: Vec<_> = segment.batches[segment.synced.min(before)..before]
                .iter()
                // Also what tables hold: replay would stumble over it.
                .filter(|other| self.last_seqno[other] >= floor || *number >= replayed)
                .collect();
            assert!(
                missing.is_empty(),
                "seqno {seqno} is acknowledged, but {} before it are not safe",
                missing.len()
            );
            let holds_any = segment.batches[..before].iter().any(|other| self.last_seqno[other] >= floor);
            assert!(segment.name_durable || !holds_any, "the name of segment {number} is not durable");
            self.checked.acks_over_unsynced_segments += u64::from(segment.synced < before);
        }
        assert!(own.is_some() || seqno < floor, "an acknowledged write is in no segment and no table");
    }
}

fn check(seed: u64, options: &dialsm_core::Options, total: &mut Checked) {
    let env = SimEnv::new(seed);
    let machine = Machine::new(&env, env.sim_fs().clone(), options, Model::new());
    machine.tap.keep_events();
    if seed.is_multiple_of(2) {
        machine.env.switch_at_io();
    }
    env.run(|| {
        let db = open(&machine.env, options).expect("open");
        machine.drive(&db, Drive { seed, generation: 1, threads: 3, writes: 150, keys: 150 });
        db.close().expect("close");
    });
    let ledger = machine.ledger.lock();
    let ops_of = |id: u64| ledger.batches[&id].len() as u64;
    let mut checker = Checker::default();
    for event in machine.tap.events() {
        checker.event(&event, &ops_of);
    }
    let part = checker.checked;
    total.acks += part.acks;
    total.acks_over_unsynced_segments += part.acks_over_unsynced_segments;
    total.tables_named += part.tables_named;
    total.tables_unlinked += part.tables_unlinked;
    total.segments_unlinked += part.segments_unlinked;
    total.segments_reused += part.segments_reused;
    total.manifests += part.manifests;
}

#[test]
fn acknowledgements_names_and_unlinks_come_in_a_safe_order() {
    let mut total = Checked::default();
    for seed in 0..10 {
        check(seed, &tiny(), &mut total);
    }
    for seed in 10..14 {
        let options = dialsm_core::Options { log_recycle_max: 0, subcompactions_max: 3, ..tiny() };
        check(seed, &options, &mut total);
    }
    println!("{total:?}");
    assert!(total.acks > 700 && total.tables_named > 1000, "{total:?}");
    assert!(total.tables_unlinked > 150 && total.segments_unlinked > 20, "{total:?}");
    assert!(total.segments_reused > 30 && total.manifests >= 14, "{total:?}");
}

/// An opening appends to no log segment and no manifest that it found (rule 18): it may cut and
/// sync the log, and begins files of its own.
#[test]
fn an_opening_writes_only_files_of_its_own() {
    let (mut written, mut reused) = (0, 0);
    for seed in 0..6 {
        let env = SimEnv::new(seed);
        let mut machine = Machine::new(&env, env.sim_fs().clone(), &tiny(), Model::new());
        for generation in 1..4 {
            env.run(|| {
                let db = open(&machine.env, &tiny()).expect("open");
                machine.drive(&db, Drive { seed, generation, threads: 2, writes: 60, keys: 100 });
                drop(db);
            });
            machine = Machine::new(&env, env.sim_fs().clone(), &tiny(), Model::new());
            machine.tap.keep_events();
            env.run(|| {
                let db = open(&machine.env, &tiny()).expect("reopen");
                machine.drive(
                    &db,
                    Drive { seed, generation: 10 + generation, threads: 2, writes: 100, keys: 100 },
                );
            });
            let mut own = BTreeSet::new();
            for event in machine.tap.events() {
                match event {
                    Event::Done { op: OpKind::Create, path, .. } => own.extend([path]),
                    Event::Done { op: OpKind::Write, path, .. } => {
                        assert!(own.contains(&path), "{} was found, and written to", path.display());
                        written += 1;
                    }
                    Event::Done { op: OpKind::Rename, path, target, .. }
                        if path.extension().is_some_and(|e| e == "log") =>
                    {
                        assert!(own.contains(&path), "{} was found, and reused", path.display());
                        // Its handle goes on under the name that it was created with.
                        own.extend(target);
                        reused += 1;
                    }
                    _ => {}
                }
            }
        }
    }
    println!("{written} writes, {reused} segments reused");
    assert!(written > 1000 && reused > 10, "{written} writes, {reused} segments reused");
}
