//! Reading everything to see that it is what was written, and that every clue leads to its value.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::engine::Engine;
use crate::key::{Kind, kind_byte_of, seqno_of, user_key};
use crate::read::clue::Trail;
use crate::read::get::ReadContext;
use crate::read::internal::InternalIter;
use crate::routing::decode_clue;
use crate::space::{Space, SpaceView};
use crate::table::{IterSpec, ReadSpec};
use crate::types::SeqNo;
use crate::{Error, Result};

/// What a verification has looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Tables read.
    pub tables: u64,
    /// Entries in them, range tombstones aside.
    pub entries: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// Clue entries that were followed to their values, those in memtables included.
    pub clues: u64,
    /// Clue entries that stand for nothing, since a crash without log took their values; no finding.
    pub void_clues: u64,
}

/// A clue entry whose value is not where it says: reads of the key fail with `Corruption`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenClue {
    /// The name of its keyspace.
    pub keyspace: String,
    /// The shard that it is in.
    pub shard: u16,
    /// The shard that it names, which lacks the value.
    pub fallback: u16,
    /// The file of the table that it is in; none for a memtable.
    pub table: Option<PathBuf>,
    /// Its key.
    pub key: Vec<u8>,
    /// Its sequence number, which is that of the value, too.
    pub seqno: SeqNo,
}

impl BrokenClue {
    /// The error that says so, without the key.
    fn error(&self) -> Error {
        let error = Error::corruption(format!(
            "shard {} of keyspace {:?} has a clue entry with sequence number {} whose value shard {} does not hold",
            self.shard, self.keyspace, self.seqno, self.fallback
        ));
        match &self.table {
            Some(path) => error.at_path(path),
            None => error,
        }
    }
}

/// The keyspaces that are there, each with one view of all its shards and a sequence that it serves.
fn views(engine: &Engine) -> Vec<(Arc<Space>, Arc<SpaceView>, SeqNo)> {
    let alive = engine.keyspaces.alive();
    let view_of = |space: &Arc<Space>| {
        let (view, visible) = space.view_at_visible(engine.commit.visible());
        (space.clone(), view.clone(), visible)
    };
    alive.spaces.iter().map(view_of).collect()
}

/// Checks all tables of the live versions of all keyspaces, and then the clues in these and in the memtables;
/// `progress` gets bytes done and bytes in all.
pub(crate) fn verify(engine: &Arc<Engine>, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
    engine.check_open()?;
    let views = views(engine);
    let trees = || views.iter().flat_map(|(space, view, _)| space.trees.iter().zip(view.shards()));
    trees().try_for_each(|(_, view)| view.version.check_invariants())?;
    let tables = || trees().flat_map(|(tree, view)| view.version.all_tables().map(move |(_, t)| (tree, t)));
    let total = tables().map(|(_, table)| table.file_bytes()).sum();
    let mut report = VerifyReport::default();
    for (tree, table) in tables() {
        let meta = table.meta();
        let path = engine.table_path(table.place());
        let checked = engine.open_table(tree, table)?.verify_all()?;
        if (checked.file_bytes, checked.checksum) != (meta.file_bytes, meta.checksum) {
            let text = format!(
                "the file has {} bytes and checksum {:08x}, the manifest says {} and {:08x}",
                checked.file_bytes, checked.checksum, meta.file_bytes, meta.checksum
            );
            return Err(Error::corruption(text).at_path(&path));
        }
        let entries = checked.entries - checked.range_deletes;
        let counted = (entries, checked.deletes, checked.range_deletes);
        if counted != (meta.entries, meta.deletes, meta.range_deletes) {
            return Err(Error::corruption("the table's counts differ from the manifest's").at_path(&path));
        }
        report.tables += 1;
        report.entries += meta.entries;
        report.bytes += meta.file_bytes;
        progress(report.bytes, total);
    }
    let mut first = None;
    for view in &views {
        let mut clues = Clues::new(engine, view);
        let found = clues.check(&mut |broken| {
            first = Some(broken);
            ControlFlow::Break(())
        })?;
        report.clues += clues.followed;
        report.void_clues += clues.void;
        if found.is_break() {
            break;
        }
    }
    match first {
        None => Ok(report),
        Some(broken) => Err(broken.error()),
    }
}

/// All clues that lead to nothing.
pub(crate) fn broken_clues(engine: &Arc<Engine>) -> Result<Vec<BrokenClue>> {
    engine.check_open()?;
    let mut all = Vec::new();
    for view in &views(engine) {
        let _ = Clues::new(engine, view).check(&mut |broken| {
            all.push(broken);
            ControlFlow::Continue(())
        })?;
    }
    Ok(all)
}

/// Who is told of a clue that leads to nothing, and says whether to go on.
type Finder<'a> = dyn FnMut(BrokenClue) -> ControlFlow<()> + 'a;

/// Follows the clues of a keyspace, all in one view. Also those that newer entries hide: a value stays as
/// long as any table has its clue.
struct Clues<'a> {
    engine: &'a Engine,
    space: &'a Space,
    view: &'a SpaceView,
    /// Later entries in the memtables may be on their way.
    visible: SeqNo,
    context: ReadContext,
    followed: u64,
    void: u64,
}

impl<'a> Clues<'a> {
    fn new(engine: &'a Engine, (space, view, visible): &'a (Arc<Space>, Arc<SpaceView>, SeqNo)) -> Clues<'a> {
        let (visible, context) = (*visible, ReadContext::default());
        Clues { engine, space, view, visible, context, followed: 0, void: 0 }
    }

    fn check(&mut self, found: &mut Finder<'_>) -> Result<ControlFlow<()>> {
        if self.space.shards() < 2 {
            return Ok(ControlFlow::Continue(()));
        }
        let (space, view) = (self.space, self.view);
        for (tree, shard) in space.trees.iter().zip(view.shards()) {
            for buffer in std::iter::once(&shard.active).chain(&shard.sealed) {
                if buffer.table.clues().0 > 0
                    && self.check_source(tree.id.shard, None, buffer.table.iter(), found)?.is_break()
                {
                    return Ok(ControlFlow::Break(()));
                }
            }
            for (_, table) in shard.version.all_tables().filter(|(_, table)| table.meta().clues > 0) {
                let entries = self.engine.open_table(tree, table)?.iter(IterSpec::whole_table());
                let path = self.engine.table_path(table.place());
                if self.check_source(tree.id.shard, Some(&path), entries, found)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn check_source(
        &mut self,
        shard: u16,
        table: Option<&Path>,
        mut entries: impl InternalIter,
        found: &mut Finder<'_>,
    ) -> Result<ControlFlow<()>> {
        entries.seek_to_first()?;
        while entries.valid() {
            let (key, seqno) = (user_key(entries.key()), seqno_of(entries.key()));
            let kind = Kind::from_u8(kind_byte_of(entries.key())).filter(|kind| kind.is_clue());
            if let Some(kind) = kind.filter(|_| seqno <= self.visible) {
                let spec = ReadSpec { fill_cache: false, verify: true };
                let trail = Trail { engine: self.engine, space: self.space, view: self.view, spec };
                let fallback = decode_clue(entries.value(), self.space.shards())?;
                match trail.find_true(key, (seqno, kind), fallback, &mut self.context)? {
                    Some(_) => self.followed += 1,
                    None if trail.is_void(fallback, seqno) => self.void += 1,
                    None => {
                        let (keyspace, key) = (self.space.name.to_string(), key.to_vec());
                        let table = table.map(Path::to_path_buf);
                        let broken = BrokenClue { keyspace, shard, fallback, table, key, seqno };
                        if found(broken).is_break() {
                            return Ok(ControlFlow::Break(()));
                        }
                    }
                }
            }
            entries.next()?;
        }
        Ok(ControlFlow::Continue(()))
    }
}
