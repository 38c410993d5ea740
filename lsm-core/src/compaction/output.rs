//! The tables that a flush or compaction writes: where one ends, and when they are durable.
//!
//! A table ends when it has reached its size, or when its key range would come to overlap too much
//! of the level after the next, so that its own compaction stays cheap; and, a little before its
//! size, where a table of that level ends: two outputs that both overlap one table there would
//! both have it rewritten. It ends only between two user keys (rule 25). Range tombstones fill the gaps
//! between points: each table gets the pieces from where it starts to where the next one does, and may
//! have nothing else; a long tombstone without points is cut where tables of the grandparents start.
//! [`Written`] is what a power cut may still undo: each table's last writes and its sync are submitted
//! when it ends, and the merge goes on with the next one (`handoff`). What may be under way for a table is
//! asked of the limiter before its first byte.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use dialsm_io::fs::CreateOptions;
use dialsm_io::limiter::{Permit, Priority};
use dialsm_io::stream::{StreamOptions, StreamWriter};

use crate::Result;
use crate::callback::Watch;
use crate::engine::Engine;
use crate::events::{TableCreated, TableRef, table_deleted};
use crate::fault::Fault;
use crate::format::{FileHeader, FileKind};
use crate::handoff::{Handoff, Maker, NewFile, Source};
use crate::key::{Comparator, user_key};
use crate::metrics::Counter;
use crate::options;
use crate::range_del::fragments::{Cutter, Fragment};
use crate::table::{Compression, TableOptions, TableWriter};
use crate::tree::Tree;
use crate::types::{FileNumber, TablePlace};
use crate::version::{TableFile, TableMeta};

/// A table may overlap this many times its own target size in the grandparent level.
const GRANDPARENT_OVERLAP_MAX: u64 = 10;

/// Buffer of a table that the merging thread writes itself: it stays in the processor's cache.
const OWN_BUFFER_BYTES: usize = 256 << 10;

/// Writes entries, in order, into as many tables as it takes.
pub(crate) struct Outputs<'a> {
    engine: &'a Engine,
    tree: &'a Tree,
    level: usize,
    epoch: u64,
    /// Tables of the level after the output level, in key order, and how far they are passed.
    grandparents: &'a [Arc<TableFile>],
    next_grandparent: usize,
    overlapped_bytes: u64,
    /// The first grandparent whose start was not yet thought of as a place to cut.
    next_edge: usize,
    /// Range tombstones to deal out, where the merge had some.
    range_dels: Option<Cutter>,
    /// An entry was added at all; `last_user_key` is its key.
    has_last: bool,
    /// Size of the present table where the last grandparent within it ended.
    aligned_bytes: u64,
    current: Option<(FileNumber, Option<Permit>, TableWriter)>,
    last_user_key: Vec<u8>,
    /// See [`Comparator::equal_is_identical`](crate::key::Comparator::equal_is_identical).
    equal_is_identical: bool,
    finished: Written,
    target_bytes: u64,
    overlap_bytes_max: u64,
    priority: Priority,
    /// About as large a table will be, in bytes.
    expected_bytes: u64,
    /// Called now and then while the limiter keeps the job waiting.
    meanwhile: &'a dyn Fn() -> Result<()>,
    attempt: u32,
    /// Takes no turn at the limiter.
    is_aside: bool,
}

/// Tables on their way to the disk.
#[derive(Default)]
pub(crate) struct Written {
    /// In key order, those of one level.
    pub(crate) tables: Vec<TableMeta>,
    files: Vec<Arc<NewFile>>,
    /// Where each is to lie.
    levels: Vec<u8>,
    /// Clues that were replaced by their values in them.
    pub(crate) rolled_back: u64,
}

impl Written {
    /// The tables as events name them.
    pub(crate) fn table_refs(&self) -> Vec<TableRef> {
        self.tables.iter().zip(&self.levels).map(|(meta, level)| TableRef::of_meta(*level, meta)).collect()
    }

    /// Takes over the tables of `other`, which follow in key order.
    pub(crate) fn append(&mut self, mut other: Written) {
        self.tables.append(&mut other.tables);
        self.files.append(&mut other.files);
        self.levels.append(&mut other.levels);
        self.rolled_back += other.rolled_back;
    }

    /// Bytes of all tables.
    pub(crate) fn bytes(&self) -> u64 {
        self.tables.iter().map(|meta| meta.file_bytes).sum()
    }

    /// The tables for a version, with their levels.
    pub(crate) fn table_files(&self, comparator: &Comparator) -> Vec<(u8, Arc<TableFile>)> {
        let fresh = |((meta, file), level): ((&TableMeta, &Arc<NewFile>), &u8)| {
            (*level, TableFile::fresh(comparator, meta.clone(), file.clone()))
        };
        self.tables.iter().zip(&self.files).zip(&self.levels).map(fresh).collect()
    }

    /// The same, all of them on `level`.
    pub(crate) fn table_files_on(&self, comparator: &Comparator, level: u8) -> Vec<(u8, Arc<TableFile>)> {
        self.table_files(comparator).into_iter().map(|(_, table)| (level, table)).collect()
    }

    /// Notes what the tables were made of. Under the tree's lock, before the step that makes them live is
    /// pushed: once it is, it may be settled at any time, and that lets go of the makers.
    pub(crate) fn set_makers(&self, tree: &Arc<Tree>, source: &Source) {
        for file in self.files.iter().filter(|file| file.is_listed()) {
            file.set_maker(Maker { tree: tree.clone(), source: source.clone() });
        }
    }

    /// Lets go of what tables were made of that are durable already: whoever wrote them has synced them.
    pub(crate) fn let_go_unlisted(&self, engine: &Engine, tree: &Arc<Tree>, source: &Source) {
        for _ in self.files.iter().filter(|file| !file.is_listed()) {
            Handoff::let_go(engine, Maker { tree: tree.clone(), source: source.clone() });
        }
    }

    /// Whether all writes are over.
    pub(crate) fn is_written(&self) -> bool {
        self.files.iter().all(|file| file.is_written())
    }

    /// Waits until all writes are over. Not for a thread that has merging to do.
    pub(crate) fn wait_written(&self, engine: &Engine) {
        self.files.iter().for_each(|file| file.wait_written(engine));
    }

    /// Gives the tables up if a write of one has failed.
    ///
    /// # Errors
    /// That of the write.
    pub(crate) fn checked(self, engine: &Engine) -> Result<Written> {
        match self.files.iter().find_map(|file| file.write_failure()) {
            None => Ok(self),
            Some(error) => {
                self.discard(engine);
                Err(error)
            }
        }
    }

    /// Makes tables and names durable, on this thread.
    ///
    /// # Errors
    /// Those of the file system; the files can't be trusted then, nor synced again.
    pub(crate) fn sync_here(&self, engine: &Engine) -> Result<()> {
        self.files.iter().try_for_each(|file| file.sync_here(engine))?;
        let spared = engine.options.load().break_on_purpose == Some(Fault::DirSync);
        if spared {
            return Ok(());
        }
        let dirs: BTreeSet<u8> = self.files.iter().map(|file| file.dir_id).collect();
        dirs.into_iter().try_for_each(|id| engine.env.fs().sync_dir(engine.table_dirs.path(id)))
    }

    /// Whether a write of one has failed, and not a sync.
    pub(crate) fn is_broken(&self) -> bool {
        self.files.iter().any(|file| file.write_failure().is_some())
    }

    /// The outcome of a job that `watch` looked on: no tables if the comparator panicked.
    ///
    /// # Errors
    /// `Callback` then; else the job's own.
    pub(crate) fn watched(result: Result<Written>, watch: &Watch, engine: &Engine) -> Result<Written> {
        match (result, watch.check()) {
            (result, Ok(())) => result,
            (Ok(written), Err(panicked)) => {
                written.discard(engine);
                Err(panicked)
            }
            (Err(_), Err(panicked)) => Err(panicked),
        }
    }

    /// Gives the tables up: nothing names them.
    pub(crate) fn discard(self, engine: &Engine) {
        for file in self.files {
            file.give_up();
            let table = (file.dir_id, file.number);
            table_deleted(engine, table, engine.env.fs().unlink(&engine.table_path(table)));
        }
        engine.handoff.wake.notify();
    }
}

/// Removes what has not become a table.
fn unlink(engine: &Engine, table: TablePlace) {
    // What stays is an orphan: nothing names it, and the next opening removes it.
    let _ = engine.env.fs().unlink(&engine.table_path(table));
}

impl<'a> Outputs<'a> {
    /// Tables for `level`; for level 0 they get `epoch`, and there is only one.
    pub(crate) fn new(engine: &'a Engine, tree: &'a Tree, level: usize, epoch: u64) -> Outputs<'a> {
        // Once for all tables of a job: a change in between is for the next one.
        let table_bytes = tree.options.load().table_bytes;
        Outputs {
            engine,
            tree,
            level,
            epoch,
            grandparents: &[],
            next_grandparent: 0,
            overlapped_bytes: 0,
            next_edge: 0,
            range_dels: None,
            has_last: false,
            aligned_bytes: 0,
            current: None,
            last_user_key: Vec::new(),
            equal_is_identical: tree.comparator.equal_is_identical(),
            finished: Written::default(),
            target_bytes: if level == 0 { u64::MAX } else { table_bytes },
            overlap_bytes_max: GRANDPARENT_OVERLAP_MAX * table_bytes,
            priority: Priority::Flush,
            expected_bytes: table_bytes,
            meanwhile: &|| Ok(()),
            attempt: 0,
            is_aside: false,
        }
    }

    /// The same for a job that takes its turn at the limiter with `priority`, for tables of about
    /// `bytes` or of the usual size, whichever is less; `meanwhile` is called now and then while it
    /// waits.
    pub(crate) fn limited(
        mut self,
        priority: Priority,
        bytes: u64,
        meanwhile: &'a dyn Fn() -> Result<()>,
    ) -> Outputs<'a> {
        self.priority = priority;
        self.expected_bytes = bytes.min(self.target_bytes);
        self.meanwhile = meanwhile;
        self
    }

    /// The same for a few small tables beside those of a job that has its turn: what is open from the job's
    /// begin to its end must not hold what the next of those waits for (rule 21).
    pub(crate) fn aside(mut self) -> Outputs<'a> {
        self.is_aside = true;
        self
    }

    /// The same, of tables that are made again.
    pub(crate) fn again(mut self) -> Outputs<'a> {
        self.attempt = 1;
        self
    }

    /// The same, ending tables also by what they overlap in `grandparents`.
    pub(crate) fn with_grandparents(mut self, grandparents: &'a [Arc<TableFile>]) -> Outputs<'a> {
        self.grandparents = grandparents;
        self
    }

    /// The same, with these range tombstones dealt out to them: all within the keys that are added.
    pub(crate) fn with_range_dels(mut self, fragments: Vec<Fragment>) -> Outputs<'a> {
        let cutter = (!fragments.is_empty()).then(|| Cutter::new(self.tree.comparator.clone(), fragments));
        self.range_dels = cutter;
        self
    }

    /// Adds an entry.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let user = user_key(key);
        if self.range_dels.is_some() {
            self.cut_before(Some(user))?;
        }
        let fresh = self.is_fresh(user);
        if self.current.is_some() && fresh && self.is_full(user) {
            self.finish_table(Some(user))?;
        }
        if self.current.is_none() {
            self.current = Some(self.open_table()?);
            self.skip_grandparents(user);
        }
        self.has_last = true;
        if fresh {
            self.last_user_key.clear();
            self.last_user_key.extend_from_slice(user);
        }
        let (.., writer) = self.current.as_mut().expect("a table was just opened");
        writer.add(key, value)
    }

    /// Ends the last table.
    pub(crate) fn finish(mut self) -> Result<Written> {
        self.cut_before(None)?;
        self.finish_table(None)?;
        if let Some(cutter) = &self.range_dels {
            self.engine.metrics.add(Counter::RangeDeletesCut, cutter.cuts());
        }
        Ok(std::mem::take(&mut self.finished))
    }

    /// Whether `user` is another key than the last one, as the keyspace's order sees it.
    #[inline]
    fn is_fresh(&self, user: &[u8]) -> bool {
        self.last_user_key != user
            && (self.equal_is_identical || self.tree.comparator.compare(&self.last_user_key, user).is_ne())
    }

    /// Cuts within a stretch of range tombstones without points that ends before `user` (`None`: at the
    /// end), where a table would become too large, or overlap too much: at a tombstone's start, or
    /// where a grandparent starts.
    fn cut_before(&mut self, user: Option<&[u8]>) -> Result<()> {
        while let Some((edge, starts)) = self.next_edge(user) {
            let c = &self.tree.comparator;
            let after_last = !self.has_last || c.compare(&edge, &self.last_user_key).is_gt();
            let empty = self.current.is_none() && self.range_dels.as_ref().is_none_or(|r| r.bytes() == 0);
            if empty {
                self.skip_grandparents(&edge);
            } else if after_last && self.is_full(&edge) {
                self.finish_table(Some(&edge))?;
            }
            match &mut self.range_dels {
                Some(cutter) if starts => cutter.pass(),
                _ => self.next_edge += 1,
            }
        }
        Ok(())
    }

    /// The next place to cut before `user`, and whether a tombstone starts there.
    fn next_edge(&mut self, user: Option<&[u8]>) -> Option<(Arc<[u8]>, bool)> {
        let c = &self.tree.comparator;
        // A tombstone that starts at the point's own key goes into the point's table.
        let before = |edge: &[u8]| user.is_none_or(|user| c.compare(edge, user).is_lt());
        let start = self.range_dels.as_ref()?.next_start().filter(|start| before(start));
        let grandparent = self.grandparents.get(self.next_edge).map(|table| table.smallest_user());
        match (start, grandparent.filter(|edge| before(edge))) {
            (Some(start), Some(other)) if c.compare(other, start).is_lt() => Some((Arc::from(other), false)),
            (Some(start), _) => Some((start.clone(), true)),
            (None, other) => other.map(|other| (Arc::from(other), false)),
        }
    }

    /// Whether the present table should end before `user`.
    fn is_full(&mut self, user: &[u8]) -> bool {
        let points = self.current.as_ref().map_or(0, |(.., writer)| writer.estimated_bytes());
        let tombstones = self.range_dels.as_ref().map_or(0, Cutter::bytes);
        let bytes = points + tombstones;
        bytes >= self.target_bytes || self.ends_before(user, bytes)
    }

    /// Whether the table, `bytes` long, should end before `user` for what it overlaps below.
    fn ends_before(&mut self, user: &[u8], bytes: u64) -> bool {
        if !self.pass_grandparents(user) {
            return false;
        }
        // As much again as since the last such place, and it would be beyond its size: the next
        // place to end at is probably too far.
        let next = bytes + bytes.saturating_sub(self.aligned_bytes);
        self.aligned_bytes = bytes;
        next > self.target_bytes && bytes >= self.target_bytes / 2
            || self.overlapped_bytes > self.overlap_bytes_max
    }

    /// Leaves the grandparents behind that end before `user`; true if there was one.
    fn pass_grandparents(&mut self, user: &[u8]) -> bool {
        let before = self.next_grandparent;
        while let Some(table) = self.grandparents.get(self.next_grandparent)
            && !table.reaches(&self.tree.comparator, user)
        {
            self.overlapped_bytes += table.file_bytes();
            self.next_grandparent += 1;
        }
        self.next_grandparent > before
    }

    /// A table starts at `user`: what lies before it in the grandparents is not overlapped by it.
    fn skip_grandparents(&mut self, user: &[u8]) {
        let empty = self.range_dels.as_ref().is_none_or(|cutter| cutter.bytes() == 0);
        if empty {
            self.pass_grandparents(user);
            (self.overlapped_bytes, self.aligned_bytes) = (0, 0);
        }
    }

    /// A new table of this number, where those of the tree's shard go.
    fn place(&self, number: FileNumber) -> TablePlace {
        (self.engine.table_dirs.of_shard(self.tree.id.shard), number)
    }

    fn open_table(&self) -> Result<(FileNumber, Option<Permit>, TableWriter)> {
        let engine = self.engine;
        let permit = match self.is_aside {
            true => None,
            false => engine.handoff.permit(engine, self.priority, self.expected_bytes, self.meanwhile)?,
        };
        let number = engine.new_file_number();
        let path = engine.table_path(self.place(number));
        let named = self.create_table(&path, number).and_then(|mut writer| {
            if let Some(name) = &self.tree.merging.name {
                writer.set_property("merge.operator", name.as_bytes())?;
            }
            Ok(writer)
        });
        match named {
            Ok(writer) => Ok((number, permit, writer)),
            Err(error) => {
                unlink(engine, self.place(number));
                Err(error)
            }
        }
    }

    fn create_table(&self, path: &Path, number: FileNumber) -> Result<TableWriter> {
        let engine = self.engine;
        let header = FileHeader { kind: FileKind::Table, db_id: engine.db_id, number };
        let (order, options) = (self.tree.comparator.clone(), table_options(self.tree, self.level));
        let (direct, submit_writes) = {
            let options = engine.options.load();
            (options.direct_writes, options.asynchronous_writes)
        };
        let file = engine.env.fs().create_with(path, CreateOptions { direct })?;
        if !engine.handoff.is_deferred(engine) && !direct {
            return TableWriter::new(file, header, order, options);
        }
        let wake = Some(engine.handoff.wake.clone());
        let mut how = StreamOptions { submit_writes, ..StreamOptions::default() };
        if !submit_writes && !direct {
            how.buf_bytes = OWN_BUFFER_BYTES;
        }
        let stream = StreamWriter::new(engine.io.clone(), file, wake, how)?;
        TableWriter::streaming(stream, header, order, options)
    }

    /// Ends the present table; the next one starts at `next` (`None`: there is none).
    fn finish_table(&mut self, next: Option<&[u8]>) -> Result<()> {
        let tombstones = self.range_dels.as_mut().map_or(Vec::new(), |cutter| cutter.take(next));
        if self.current.is_none() && !tombstones.is_empty() {
            self.current = Some(self.open_table()?);
        }
        self.overlapped_bytes = 0;
        let Some((number, permit, mut writer)) = self.current.take() else { return Ok(()) };
        let added = tombstones.iter().try_for_each(|tombstone| writer.add_range_tombstone(tombstone));
        match added.and_then(|()| writer.finish_streaming()) {
            Ok((written, landing)) => {
                self.engine.metrics.add(Counter::TableBytes, written.file_bytes);
                let place = self.place(number);
                let file = {
                    let is_urgent = self.priority == Priority::Flush;
                    NewFile::new(place, written.file_bytes, self.attempt, is_urgent, landing, permit)
                };
                let meta = TableMeta::of_written(place, self.epoch, written);
                self.engine.events.emit(|| {
                    let (keyspace, shard) = (self.tree.name.clone(), self.tree.id.shard);
                    let table = TableRef::of_meta(self.level as u8, &meta);
                    TableCreated { keyspace, shard, table, entries: meta.entries }.into()
                });
                self.finished.tables.push(meta);
                self.finished.files.push(file.clone());
                self.finished.levels.push(self.level as u8);
                self.engine.handoff.take_on(self.engine, &file);
                Ok(())
            }
            Err(error) => {
                unlink(self.engine, self.place(number));
                Err(error)
            }
        }
    }
}

impl Drop for Outputs<'_> {
    /// Given up before `finish`: its files are nobody's.
    fn drop(&mut self) {
        if let Some((number, ..)) = self.current.take() {
            unlink(self.engine, self.place(number));
        }
        std::mem::take(&mut self.finished).discard(self.engine);
    }
}

/// How tables of `level` are written.
fn table_options(tree: &Tree, level: usize) -> TableOptions {
    let options = tree.options.load();
    let bottom = level + 1 >= crate::version::LEVELS;
    let compression = if bottom { options.compression_bottom } else { options.compression };
    TableOptions {
        block_bytes: options.block_bytes as usize,
        restart_interval: options.block_restart_interval,
        filter_bits_per_key: options.filter_bits_per_key,
        filter_whole_keys: options.filter_whole_keys,
        prefix_extractor: tree.prefix_extractor.clone(),
        compression: match compression {
            options::Compression::None => Compression::None,
            options::Compression::Lz4 => Compression::Lz4,
            options::Compression::Zstd => Compression::Zstd,
        },
        ..TableOptions::default()
    }
}
