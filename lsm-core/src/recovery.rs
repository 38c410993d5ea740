//! Replaying the log: what was acknowledged and is in no table comes back into the memtable.
//!
//! Entries below their tree's floor are in tables and are skipped, part by part (rule 12), and so are
//! those of keyspaces that were dropped; one that was never there is corruption (rule 23). A memtable
//! that fills up on the way is flushed at once, and so is the largest where all together grow too
//! large: a long log needs no more memory than running did. What was replayed is synced, and a torn end
//! is cut off, before anything new is written (rule 18). An opening for reading only does none of the
//! three.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dialsm_io::fs::Access;

use crate::batch::OpIter;
use crate::callback::Watch;
use crate::engine::Engine;
use crate::filename::FileName;
use crate::tree::Tree;
use crate::types::{FileNumber, SeqNo};
use crate::wal::log::{OldSegment, Parts, note_part};
use crate::wal::replay::{Record, replay as replay_log};
use crate::{Error, Result, flush};

/// Replays all segments that the manifest needs into the engine's trees.
///
/// # Errors
/// `Corruption` as the recovery mode says, those of the files, and those of a flush on the way.
pub(crate) fn replay(engine: &Arc<Engine>) -> Result<()> {
    let fs = engine.env.fs();
    let from = engine.replay_start;
    let mut segments = Vec::new();
    for name in fs.list(&engine.dir)? {
        if let Some(FileName::Log(number)) = FileName::parse(&name)
            && number >= from
        {
            segments.push((number, engine.dir.join(&name)));
        }
    }
    segments.sort();
    let mut state = Replay::new(engine);
    let mode = engine.options.load().recovery_mode;
    let mut apply = |record: Record<'_>| state.apply(&record);
    let end = replay_log(fs.as_ref(), &engine.dir, &segments, &engine.db_id, mode, from, &mut apply)?;
    if let Some(torn) = &end.torn
        && engine.first_record_torn
        && end.records == 0
        && !fs.exists(&torn.path)?
    {
        // Before that record was begun the segments' names were made durable (a torn mark, behind a
        // later record, says nothing of the kind): the front of the log was let go of, so the record
        // had been settled.
        let text = "the manifest's first record is damaged, and the log it was settled for is gone";
        return Err(Error::corruption(text).at_path(&torn.path).at_offset(0));
    }
    engine.commit.restart_at(engine.commit.visible().load(Ordering::Acquire));
    if engine.read_only {
        return Ok(());
    }
    let mut old = Vec::new();
    for (number, path) in segments {
        let Some(last) = end.end.filter(|last| number <= last.segment) else { continue };
        let file = fs.open(&path, Access::ReadWrite)?;
        let mut valid_end = file.len()?;
        if number == last.segment && valid_end > last.offset {
            file.set_len(last.offset)?;
            valid_end = last.offset;
        }
        file.sync_data()?;
        let of_segment = state.parts.iter().find(|(segment, _)| *segment == number);
        let parts = of_segment.map_or_else(Parts::new, |(_, parts)| parts.clone());
        old.push(OldSegment { number, path, file, end: valid_end, parts });
    }
    engine.log.adopt(old);
    Ok(())
}

/// The trees while the log is replayed, and what of each segment they hold.
struct Replay<'a> {
    engine: &'a Arc<Engine>,
    /// By ascending id, with the sequences that their tables begin to lack.
    trees: Vec<(Arc<Tree>, SeqNo)>,
    parts: Vec<(FileNumber, Parts)>,
    /// Trees of the record at hand, by their places.
    touched: Vec<usize>,
}

impl Replay<'_> {
    fn new(engine: &Arc<Engine>) -> Replay<'_> {
        let alive = engine.keyspaces.alive();
        let trees = alive.iter().map(|tree| (tree.clone(), tree.lock().durable_floor)).collect();
        Replay { engine, trees, parts: Vec::new(), touched: Vec::new() }
    }

    fn apply(&mut self, record: &Record<'_>) -> Result<()> {
        let engine = self.engine;
        let last = record.first_seqno + u64::from(record.count) - 1;
        self.touched.clear();
        // The place of the last operation's tree, which is mostly that of the next.
        let mut at = 0;
        let watch = Watch::begin_any(self.trees.iter().map(|(tree, _)| &tree.comparator));
        for (seqno, op) in (record.first_seqno..).zip(OpIter::new(record.payload)) {
            let op = op?;
            if self.trees[at].0.id.keyspace != op.keyspace {
                match self.trees.binary_search_by_key(&op.keyspace, |(tree, _)| tree.id.keyspace) {
                    Ok(found) => at = found,
                    Err(_) if op.keyspace < engine.keyspaces.next_id() => continue,
                    Err(_) => {
                        let text = format!("an operation of keyspace {}, which never was", op.keyspace);
                        return Err(Error::corruption(text));
                    }
                }
            }
            if self.touched.last() != Some(&at) && !self.touched.contains(&at) {
                self.touched.push(at);
            }
            let (tree, floor) = &self.trees[at];
            if seqno >= *floor {
                tree.view_guard().active.table.insert(op.key, seqno, op.kind, op.value);
            }
        }
        watch.check()?;
        engine.commit.visible().fetch_max(last, Ordering::AcqRel);
        self.note_parts(record.segment, last);
        self.flush_full(last)
    }

    fn note_parts(&mut self, segment: FileNumber, last: SeqNo) {
        if self.parts.last().is_none_or(|(number, _)| *number != segment) {
            self.parts.push((segment, Parts::new()));
        }
        let (_, parts) = self.parts.last_mut().expect("one was just pushed");
        self.touched.iter().for_each(|at| note_part(parts, self.trees[*at].0.id, last));
    }

    fn flush_full(&self, last: SeqNo) -> Result<()> {
        let engine = self.engine;
        if engine.read_only {
            return Ok(());
        }
        for at in &self.touched {
            let tree = &self.trees[*at].0;
            let view = tree.view();
            let bytes = view.active.table.bytes_used() as u64;
            engine.write_budget.charge(&view.active.charge, bytes);
            if bytes >= tree.options.write_buffer_bytes() {
                flush_one(engine, tree, last)?;
            }
        }
        while engine.write_budget.wants_switch() {
            let filled = self.trees.iter().map(|(tree, _)| tree).filter(|tree| tree.may_switch());
            let Some(largest) = filled.max_by_key(|tree| tree.active_bytes()) else { break };
            flush_one(engine, largest, last)?;
        }
        Ok(())
    }
}

fn flush_one(engine: &Arc<Engine>, tree: &Arc<Tree>, last: SeqNo) -> Result<()> {
    let buffer = tree.view().active.clone();
    tree.switch(&mut tree.lock(), last);
    flush::run(engine, tree, &buffer)
}
