//! Recovery of a database whose log was off: each tree comes back to its own last flush, and floors say what
//! became of values that were redirected (rule 19).
//!
//! ```text
//! sequences written without log: [from, to), to = behind the last one found after a crash
//!
//! clue (K, s), s at or above its fallback's floor     void: its value never reached a table. The interval goes
//!                                                    into the manifest; readers and jobs pass such a clue over,
//!                                                    and what it hid is there, since jobs have kept it
//! redirected (K, s), s at or above its primary's      its clue never did: made again in the primary's memtable
//! floor                                              (and nowhere else, so that a second crash finds the same)
//! all other clues and redirected entries             have each other, or are garbage that compactions drop
//! ```
//! Then every memtable is flushed and every floor raised, before the first write: so the span is over, and
//! a later one, or the log, begins with nothing that the floors do not tell.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::Result;
use crate::engine::Engine;
use crate::fault::Fault;
use crate::key::{Kind, kind_byte_of, seqno_of, user_key};
use crate::metrics::Counter;
use crate::options::FlushOptions;
use crate::read::internal::InternalIter;
use crate::routing::encode_clue;
use crate::space::Space;
use crate::table::IterSpec;
use crate::tree::Tree;
use crate::types::{SeqNo, TreeId};
use crate::version::edit::{UnloggedSpan, VoidInterval};
use crate::{background, manual};

/// Clues that stand for nothing; fixed for an opening.
#[derive(Default)]
pub(crate) struct Voids(Vec<VoidInterval>);

impl Voids {
    /// Whether a clue with that sequence into `fallback` stands for nothing.
    pub(crate) fn hold(&self, fallback: TreeId, seqno: SeqNo) -> bool {
        self.0.iter().any(|void| void.tree == fallback && (void.from..void.to).contains(&seqno))
    }

    /// For the manifest.
    pub(crate) fn intervals(&self) -> &[VoidInterval] {
        &self.0
    }
}

/// Judges what was written without log, after the log was replayed and before anything is settled. `voids`
/// are those that the manifest knew.
///
/// # Errors
/// Those of the tables.
pub(crate) fn recover(engine: &Arc<Engine>, mut voids: Vec<VoidInterval>) -> Result<()> {
    let span = *engine.unlogged.lock();
    if let Some(span) = span {
        let last = engine.commit.visible().load(Ordering::Acquire);
        let span = UnloggedSpan { to: Some(span.to.unwrap_or(last + 1)), ..span };
        *engine.unlogged.lock() = Some(span);
        for space in engine.keyspaces.alive().spaces.iter().filter(|space| space.shards() > 1) {
            judge(engine, space, span, &mut voids)?;
        }
    }
    voids.retain(|void| is_named(engine, void));
    let _ = engine.voids.set(Voids(voids));
    Ok(())
}

/// Whether some clue may still fall into the interval.
fn is_named(engine: &Engine, void: &VoidInterval) -> bool {
    let alive = engine.keyspaces.alive();
    let Some(space) = alive.by_id(void.tree.keyspace) else { return false };
    space.trees.iter().any(|tree| {
        let view = tree.view();
        view.version.all_tables().any(|(_, table)| {
            let meta = table.meta();
            meta.clues > 0 && meta.seqno_min < void.to && meta.seqno_max >= void.from
        })
    })
}

fn judge(
    engine: &Arc<Engine>,
    space: &Space,
    span: UnloggedSpan,
    voids: &mut Vec<VoidInterval>,
) -> Result<()> {
    let to = span.to.unwrap_or(SeqNo::MAX);
    let floors: Vec<SeqNo> = space.trees.iter().map(|tree| tree.lock().durable_floor).collect();
    for (tree, floor) in space.trees.iter().zip(&floors) {
        let void = VoidInterval { tree: tree.id, from: span.from.max(*floor), to };
        if void.from < void.to && !voids.contains(&void) {
            voids.push(void);
        }
    }
    let lowest = floors.iter().copied().min().unwrap_or(0).max(span.from);
    if engine.options.load().break_on_purpose == Some(Fault::LostClues) {
        return Ok(());
    }
    for tree in &space.trees {
        make_clues(engine, space, tree, &floors, lowest, to)?;
    }
    Ok(())
}

/// Makes the clues again that the redirected entries of `tree` lack.
fn make_clues(
    engine: &Arc<Engine>,
    space: &Space,
    tree: &Arc<Tree>,
    floors: &[SeqNo],
    lowest: SeqNo,
    to: SeqNo,
) -> Result<()> {
    let mut clue = Vec::new();
    encode_clue(tree.id.shard, &mut clue);
    for (_, table) in tree.view().version.all_tables() {
        let meta = table.meta();
        if meta.redirected == 0 || meta.seqno_max < lowest {
            continue;
        }
        let mut entries = engine.open_table(tree, table)?.iter(IterSpec::whole_table());
        entries.seek_to_first()?;
        while entries.valid() {
            let (key, seqno) = (user_key(entries.key()), seqno_of(entries.key()));
            let kind = match Kind::from_u8(kind_byte_of(entries.key())) {
                Some(Kind::RedirectedValue) => Some(Kind::ClueValue),
                Some(Kind::RedirectedOperand) => Some(Kind::ClueOperand),
                _ => None,
            };
            if let Some(kind) = kind.filter(|_| (lowest..to).contains(&seqno)) {
                let primary = space.primary(key);
                if seqno >= floors[usize::from(primary.id.shard)] {
                    primary.insert_unlogged(key, seqno, kind, &clue);
                    engine.metrics.add(Counter::RedirectsCompleted, 1);
                }
            }
            entries.next()?;
        }
    }
    Ok(())
}

/// Ends the span that was found and, with the log off, begins the next one; before the first write.
///
/// # Errors
/// Those of the flushes and of the manifest.
pub(crate) fn begin(engine: &Arc<Engine>) -> Result<()> {
    let span = *engine.unlogged.lock();
    let alive = engine.keyspaces.alive();
    let last = engine.commit.visible().load(Ordering::Acquire);
    let is_open = span.is_some_and(|span| {
        let to = span.to.unwrap_or(SeqNo::MAX);
        alive.trees.iter().any(|tree| tree.lock().durable_floor < to)
    });
    if engine.is_logged() && !is_open {
        return Ok(());
    }
    manual::flush(engine, &alive.trees, &FlushOptions::default())?;
    for tree in &alive.trees {
        tree.raise_floor(engine, last + 1);
    }
    background::wait_until_settled(engine)?;
    if !engine.is_logged() {
        *engine.unlogged.lock() = Some(UnloggedSpan { from: last + 1, to: None });
    }
    engine.versions.rewrite(engine)
}
