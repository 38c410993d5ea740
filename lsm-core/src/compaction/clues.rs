//! What a flush or compaction asks of other shards: whether a redirected entry is still needed, and, in a
//! rollback, what a clue stands for.
//!
//! Rule 2: (K, s) may go from its fallback only when the primary's durable floor is above s and neither
//! its durable nor its live tables hold the clue (K, s). That is looked up once a job, for all shards, under
//! each tree's lock: from there on such a clue can't appear any more. For below the floor all of the tree is in
//! the tables of its durable version, whatever the log holds, and every later version comes from that one.
//! Entries that are newer, and whatever can't be told, are kept.

use std::sync::Arc;

use crate::engine::Engine;
use crate::fault::Fault;
use crate::key::Kind;
use crate::read::clue::Trail;
use crate::read::get::ReadContext;
use crate::routing::decode_clue;
use crate::space::{Space, SpaceView};
use crate::table::ReadSpec;
use crate::tree::Tree;
use crate::types::SeqNo;
use crate::version::{TableFile, Version};
use crate::{Result, Slice};

/// What was settled and live of a primary when the job began.
struct Primary {
    floor: SeqNo,
    /// The tables with clues, of the durable and of the live version.
    with_clues: Vec<Arc<TableFile>>,
    _versions: [Arc<Version>; 2],
}

impl Primary {
    fn of(tree: &Tree) -> Primary {
        let (floor, versions) = {
            let state = tree.lock();
            (state.durable_floor, [state.durable.clone(), tree.view().version.clone()])
        };
        let mut with_clues: Vec<Arc<TableFile>> = Vec::new();
        for (_, table) in versions.iter().flat_map(|version| version.all_tables()) {
            let is_known = || with_clues.iter().any(|known| known.number() == table.number());
            if table.meta().clues > 0 && !is_known() {
                with_clues.push(table.clone());
            }
        }
        Primary { floor, with_clues, _versions: versions }
    }
}

/// See the module header.
pub(crate) struct OtherShards {
    engine: Arc<Engine>,
    space: Arc<Space>,
    view: Arc<SpaceView>,
    /// By shard.
    primaries: Vec<Primary>,
    /// Clues are replaced by what they stand for.
    is_rollback: bool,
    /// See [`Fault::EarlyCollect`].
    is_early: bool,
    context: ReadContext,
}

impl OtherShards {
    /// For a job of `tree`; nothing where there are no other shards.
    pub(crate) fn of(engine: &Arc<Engine>, tree: &Tree, is_rollback: bool) -> Option<OtherShards> {
        if tree.shards < 2 {
            return None;
        }
        // A keyspace that was dropped meanwhile has a job that comes to nothing.
        let space = engine.keyspaces.alive().by_id(tree.id.keyspace)?.clone();
        // The view first: what a clue in it stands for is in it, too.
        let view = space.view_full();
        let primaries = space.trees.iter().map(|tree| Primary::of(tree)).collect();
        let context = ReadContext::default();
        let is_early = engine.options.load().break_on_purpose == Some(Fault::EarlyCollect);
        Some(OtherShards { engine: engine.clone(), space, view, primaries, is_rollback, is_early, context })
    }

    pub(crate) fn is_rollback(&self) -> bool {
        self.is_rollback
    }

    /// Whether the entry (`key`, `seqno`), redirected here, may still be asked for.
    ///
    /// # Errors
    /// Those of the primary's tables.
    pub(crate) fn is_needed(&mut self, key: &[u8], seqno: SeqNo) -> Result<bool> {
        let tree = self.space.primary(key);
        let primary = &self.primaries[usize::from(tree.id.shard)];
        if seqno >= primary.floor && !self.is_early {
            return Ok(true);
        }
        for table in &primary.with_clues {
            let meta = table.meta();
            if seqno < meta.seqno_min || seqno > meta.seqno_max || !table.spans(&tree.comparator, key) {
                continue;
            }
            let reader = self.engine.open_table(tree, table)?;
            let found = reader.get(key, seqno, &spec(), &mut self.context.blocks)?;
            let is_clue = |kind: u8| Kind::from_u8(kind).is_some_and(Kind::is_clue);
            if found.is_some_and(|found| found.seqno == seqno && is_clue(found.kind)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What becomes of a clue, written with the log off: whether it stands for nothing, and whether it hides
    /// older versions, which it does once its value can't be lost any more (rule 19).
    ///
    /// # Errors
    /// `Corruption` if it names no shard.
    pub(crate) fn weigh(&self, seqno: SeqNo, clue: &[u8]) -> Result<Weight> {
        if !self.engine.was_unlogged {
            return Ok(Weight::Full);
        }
        let fallback = usize::from(decode_clue(clue, self.space.shards())?);
        if self.engine.is_void(self.space.trees[fallback].id, seqno) {
            return Ok(Weight::None);
        }
        let is_settled = seqno < self.primaries[fallback].floor;
        Ok(if is_settled { Weight::Full } else { Weight::Light })
    }

    /// What the clue (`key`, `seqno`) stands for; nothing if it is void.
    ///
    /// # Errors
    /// As [`Trail::follow`].
    pub(crate) fn follow(
        &mut self,
        key: &[u8],
        seqno: SeqNo,
        kind: Kind,
        clue: &[u8],
    ) -> Result<Option<(Kind, Slice)>> {
        let trail = Trail { engine: &self.engine, space: &self.space, view: &self.view, spec: spec() };
        trail.follow(key, (seqno, kind), clue, &mut self.context)
    }
}

/// See [`OtherShards::weigh`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    /// Hides what is older.
    Full,
    /// Hides nothing.
    Light,
    /// Goes.
    None,
}

fn spec() -> ReadSpec {
    ReadSpec { fill_cache: true, verify: true }
}
