//! From a clue entry to its true value: an exact look-up by (key, sequence) in the fallback tree, in the
//! same view of all shards (R4).
//!
//! In the fallback a redirected entry is one of many of its key, none of which hides another (rule 3); the
//! filters know its key, so most sources are passed without a read.

use crate::engine::Engine;
use crate::key::Kind;
use crate::read::get::ReadContext;
use crate::routing::decode_clue;
use crate::space::{Space, SpaceView};
use crate::table::{Found, ReadSpec};
use crate::types::SeqNo;
use crate::version::LEVELS;
use crate::{Error, Result, Slice};

/// What a reader follows clues with.
pub(crate) struct Trail<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) space: &'a Space,
    pub(crate) view: &'a SpaceView,
    pub(crate) spec: ReadSpec,
}

impl Trail<'_> {
    /// The value or operand that the clue (`key`, `seqno`) of that kind stands for, and the kind it has
    /// without a detour; nothing if it is void.
    ///
    /// # Errors
    /// `Corruption` if the clue names no shard or its true value is not there; those of the tables.
    #[cold]
    pub(crate) fn follow(
        &self,
        key: &[u8],
        (seqno, clue_kind): (SeqNo, Kind),
        clue: &[u8],
        context: &mut ReadContext,
    ) -> Result<Option<(Kind, Slice)>> {
        context.clue_hops += 1;
        let fallback = decode_clue(clue, self.space.shards())?;
        let kind = if clue_kind == Kind::ClueOperand { Kind::Merge } else { Kind::Put };
        match self.find_true(key, (seqno, clue_kind), fallback, context)? {
            Some(value) => Ok(Some((kind, value))),
            None if self.is_void(fallback, seqno) => Ok(None),
            None => Err(lost(fallback)),
        }
    }

    /// The value or operand that the clue (`key`, `seqno`) of that kind into `fallback` stands for, if it is
    /// there.
    ///
    /// # Errors
    /// Those of the tables.
    pub(crate) fn find_true(
        &self,
        key: &[u8],
        (seqno, clue_kind): (SeqNo, Kind),
        fallback: u16,
        context: &mut ReadContext,
    ) -> Result<Option<Slice>> {
        let wanted = match clue_kind {
            Kind::ClueOperand => Kind::RedirectedOperand,
            _ => Kind::RedirectedValue,
        };
        self.find(key, seqno, wanted, fallback, context)
    }

    /// Whether a clue into `fallback` stands for nothing.
    pub(crate) fn is_void(&self, fallback: u16, seqno: SeqNo) -> bool {
        self.engine.is_void(self.space.trees[usize::from(fallback)].id, seqno)
    }

    fn find(
        &self,
        key: &[u8],
        seqno: SeqNo,
        wanted: Kind,
        fallback: u16,
        context: &mut ReadContext,
    ) -> Result<Option<Slice>> {
        let (tree, view) = (&self.space.trees[usize::from(fallback)], self.view.shard(fallback));
        for buffer in std::iter::once(&view.active).chain(&view.sealed) {
            context.memtables += 1;
            let entry = buffer.table.get(key, seqno);
            if let Some(entry) = entry.filter(|entry| entry.seqno == seqno && entry.kind_byte == wanted as u8)
            {
                return Ok(Some(Slice::copy_of(entry.value)));
            }
        }
        let version = &view.version;
        let in_l0 = version.l0().iter().filter(|table| table.spans(&tree.comparator, key));
        let deeper = (1..LEVELS).filter_map(|level| Some((level, version.find_table(level, key)?)));
        for (level, table) in in_l0.map(|table| (0, table)).chain(deeper) {
            let meta = table.meta();
            if meta.redirected == 0 || seqno < meta.seqno_min || seqno > meta.seqno_max {
                continue;
            }
            context.note_table(level);
            let reader = self.engine.open_table(tree, table)?;
            let found = reader.get(key, seqno, &self.spec, &mut context.blocks)?;
            let is_it = |found: &Found| found.seqno == seqno && found.kind == wanted as u8;
            if let Some(found) = found.filter(is_it) {
                return Ok(Some(found.value));
            }
        }
        Ok(None)
    }
}

/// The error of a clue without its true value.
pub(crate) fn lost(fallback: u16) -> Error {
    Error::corruption(format!("a clue entry points to shard {fallback}, which does not hold its value"))
}
