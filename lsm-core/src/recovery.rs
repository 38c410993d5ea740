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

use crate::batch::{Op, OpIter};
use crate::callback::Watch;
use crate::engine::Engine;
use crate::filename::FileName;
use crate::key::Kind;
use crate::keyspace::Alive;
use crate::metrics::Counter;
use crate::routing::{encode_clue, redirected};
use crate::space::Space;
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
        if number == last.segment && valid_end != last.offset {
            // Behind the last record is what a cut has torn; or not even all of the zeros that belong to
            // it, and the next segment must not say that this one ends before them.
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
    alive: Arc<Alive>,
    /// By the places of the trees in `alive`: the sequences that their tables begin to lack.
    floors: Vec<SeqNo>,
    /// By the places of the keyspaces in `alive`: the places of their first trees.
    first: Vec<usize>,
    parts: Vec<(FileNumber, Parts)>,
    /// Trees of the record at hand, by their places.
    touched: Vec<usize>,
    /// Scratch for a clue.
    clue: Vec<u8>,
}

impl Replay<'_> {
    fn new(engine: &Arc<Engine>) -> Replay<'_> {
        let alive = engine.keyspaces.alive();
        let floors = alive.trees.iter().map(|tree| tree.lock().durable_floor).collect();
        let first = alive.spaces.iter().scan(0, |next, space| {
            let first = *next;
            *next += space.trees.len();
            Some(first)
        });
        let first = first.collect();
        Replay { engine, alive, floors, first, parts: Vec::new(), touched: Vec::new(), clue: Vec::new() }
    }

    fn apply(&mut self, record: &Record<'_>) -> Result<()> {
        let engine = self.engine;
        let last = record.first_seqno + u64::from(record.count) - 1;
        self.touched.clear();
        // The place of the last operation's keyspace, which is mostly that of the next.
        let mut at = 0;
        let alive = self.alive.clone();
        let watch = Watch::begin_any(alive.spaces.iter().map(|space| &space.comparator));
        for (seqno, op) in (record.first_seqno..).zip(OpIter::new(record.payload)) {
            let op = op?;
            if alive.spaces[at].id != op.keyspace {
                match alive.spaces.binary_search_by_key(&op.keyspace, |space| space.id) {
                    Ok(found) => at = found,
                    Err(_) if op.keyspace < engine.keyspaces.next_id() => continue,
                    Err(_) => {
                        let text = format!("an operation of keyspace {}, which never was", op.keyspace);
                        return Err(Error::corruption(text));
                    }
                }
            }
            self.apply_op(&alive.spaces[at], self.first[at], seqno, &op)?;
        }
        watch.check()?;
        engine.commit.visible().fetch_max(last, Ordering::AcqRel);
        self.note_parts(record.segment, last);
        self.flush_full(last)
    }

    /// Puts an operation of `space`, whose first tree is at `first`, where it went when it was written.
    fn apply_op(&mut self, space: &Space, first: usize, seqno: SeqNo, op: &Op<'_>) -> Result<()> {
        if op.kind == Kind::RangeDelete {
            for shard in 0..space.trees.len() {
                self.insert(first + shard, seqno, op.kind, op.key, op.value);
            }
            return Ok(());
        }
        let primary = if space.shards() > 1 { space.placement.place(op.key) } else { 0 };
        let Some(fallback) = op.fallback else {
            self.insert(first + usize::from(primary), seqno, op.kind, op.key, op.value);
            return Ok(());
        };
        if fallback >= space.shards() || fallback == primary {
            let text =
                format!("a value is redirected from shard {primary} to {fallback} of {}", space.shards());
            return Err(Error::corruption(text));
        }
        let (clue, value) = redirected(op.kind);
        let [of_value, of_clue] = [fallback, primary].map(|shard| self.floors[first + usize::from(shard)]);
        if (seqno < of_value) != (seqno < of_clue) {
            self.engine.metrics.add(Counter::RedirectsCompleted, 1);
        }
        self.insert(first + usize::from(fallback), seqno, value, op.key, op.value);
        encode_clue(fallback, &mut self.clue);
        let bytes = std::mem::take(&mut self.clue);
        self.insert(first + usize::from(primary), seqno, clue, op.key, &bytes);
        self.clue = bytes;
        Ok(())
    }

    /// Puts an entry into a tree unless the tree's tables have it (rule 12).
    fn insert(&mut self, at: usize, seqno: SeqNo, kind: Kind, key: &[u8], value: &[u8]) {
        if self.touched.last() != Some(&at) && !self.touched.contains(&at) {
            self.touched.push(at);
        }
        if seqno >= self.floors[at] {
            self.alive.trees[at].view_guard().active.table.insert(key, seqno, kind, value);
        }
    }

    fn note_parts(&mut self, segment: FileNumber, last: SeqNo) {
        if self.parts.last().is_none_or(|(number, _)| *number != segment) {
            self.parts.push((segment, Parts::new()));
        }
        let (_, parts) = self.parts.last_mut().expect("one was just pushed");
        self.touched.iter().for_each(|at| note_part(parts, self.alive.trees[*at].id, last));
    }

    fn flush_full(&self, last: SeqNo) -> Result<()> {
        let engine = self.engine;
        if engine.read_only {
            return Ok(());
        }
        for at in &self.touched {
            let tree = &self.alive.trees[*at];
            let view = tree.view();
            let bytes = view.active.table.bytes_used() as u64;
            engine.write_budget.charge(&view.active.charge, bytes);
            if bytes >= tree.options.write_buffer_bytes() {
                flush_one(engine, tree, last)?;
            }
        }
        while engine.write_budget.wants_switch() {
            let filled = self.alive.trees.iter().filter(|tree| tree.may_switch());
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
