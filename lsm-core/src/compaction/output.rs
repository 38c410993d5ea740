//! The tables that a flush or compaction writes: where one ends, and when they are durable.
//!
//! A table ends when it has reached its size, or when its key range would come to overlap too much
//! of the level after the next, so that its own compaction stays cheap; and, a little before its
//! size, where a table of that level ends: two outputs that both overlap one table there would
//! both have it rewritten. It ends only between two user keys (rule 25). [`Written`] is what readers may use already and a power cut may still undo;
//! its [`sync`](Written::sync) comes after the tables are live, so that nobody waits for the disk.

use std::sync::Arc;

use dialsm_io::File;

use crate::Result;
use crate::engine::Engine;
use crate::filename::FileName;
use crate::format::{FileHeader, FileKind};
use crate::key::user_key;
use crate::options;
use crate::table::{Compression, TableOptions, TableWriter};
use crate::tree::Tree;
use crate::types::FileNumber;
use crate::version::{TableFile, TableMeta};

/// A table may overlap this many times its own target size in the grandparent level.
const GRANDPARENT_OVERLAP_MAX: u64 = 10;

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
    /// Size of the present table where the last grandparent within it ended.
    aligned_bytes: u64,
    current: Option<(FileNumber, Arc<dyn File>, TableWriter)>,
    last_user_key: Vec<u8>,
    finished: Written,
    target_bytes: u64,
    overlap_bytes_max: u64,
}

/// Tables whose bytes are all with the kernel, but not yet durable.
#[derive(Default)]
pub(crate) struct Written {
    /// In key order.
    pub(crate) tables: Vec<TableMeta>,
    /// The descriptors that wrote them: a failed write-back is reported on no other.
    files: Vec<Arc<dyn File>>,
}

impl Written {
    /// Takes over the tables of `other`, which follow in key order.
    pub(crate) fn append(&mut self, mut other: Written) {
        self.tables.append(&mut other.tables);
        self.files.append(&mut other.files);
    }

    /// Makes files and names durable.
    ///
    /// # Errors
    /// Those of the file system; the files can't be trusted then, nor synced again.
    pub(crate) fn sync(&self, engine: &Engine) -> Result<()> {
        for file in &self.files {
            file.sync_data()?;
        }
        if self.files.is_empty() { Ok(()) } else { engine.env.fs().sync_dir(&engine.dir) }
    }

    /// Gives the tables up: nothing names them.
    pub(crate) fn discard(self, engine: &Engine) {
        for meta in self.tables {
            unlink(engine, meta.number);
        }
    }
}

fn unlink(engine: &Engine, number: FileNumber) {
    // What stays is an orphan: nothing names it, and the next opening removes it.
    let _ = engine.env.fs().unlink(&FileName::Table(number).path(&engine.dir));
}

impl<'a> Outputs<'a> {
    /// Tables for `level`; for level 0 they get `epoch`, and there is only one.
    pub(crate) fn new(engine: &'a Engine, tree: &'a Tree, level: usize, epoch: u64) -> Outputs<'a> {
        // Once for all tables of a job: a change in between is for the next one.
        let table_bytes = engine.options.load().table_bytes;
        Outputs {
            engine,
            tree,
            level,
            epoch,
            grandparents: &[],
            next_grandparent: 0,
            overlapped_bytes: 0,
            aligned_bytes: 0,
            current: None,
            last_user_key: Vec::new(),
            finished: Written::default(),
            target_bytes: if level == 0 { u64::MAX } else { table_bytes },
            overlap_bytes_max: GRANDPARENT_OVERLAP_MAX * table_bytes,
        }
    }

    /// The same, ending tables also by what they overlap in `grandparents`.
    pub(crate) fn with_grandparents(mut self, grandparents: &'a [Arc<TableFile>]) -> Outputs<'a> {
        self.grandparents = grandparents;
        self
    }

    /// Adds an entry.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let user = user_key(key);
        if let Some((.., writer)) = &self.current
            && self.last_user_key != user
        {
            let bytes = writer.estimated_bytes();
            if bytes >= self.target_bytes || self.ends_before(user, bytes) {
                self.finish_table()?;
            }
        }
        if self.current.is_none() {
            self.current = Some(self.open_table()?);
            self.pass_grandparents(user);
            (self.overlapped_bytes, self.aligned_bytes) = (0, 0);
        }
        if self.last_user_key != user {
            self.last_user_key.clear();
            self.last_user_key.extend_from_slice(user);
        }
        let (.., writer) = self.current.as_mut().expect("a table was just opened");
        writer.add(key, value)
    }

    /// Ends the last table.
    pub(crate) fn finish(mut self) -> Result<Written> {
        self.finish_table()?;
        Ok(std::mem::take(&mut self.finished))
    }

    /// Whether the table, `bytes` long, should end before `user` for what it overlaps below.
    fn ends_before(&mut self, user: &[u8], bytes: u64) -> bool {
        if !self.pass_grandparents(user) {
            return false;
        }
        // As much again as since the last such place, and it would be beyond its size: the next
        // place to end at is probably too far.
        let next = bytes + (bytes - self.aligned_bytes);
        self.aligned_bytes = bytes;
        next > self.target_bytes && bytes >= self.target_bytes / 2
            || self.overlapped_bytes > self.overlap_bytes_max
    }

    /// Leaves the grandparents behind that end before `user`; true if there was one.
    fn pass_grandparents(&mut self, user: &[u8]) -> bool {
        let comparator = &self.tree.comparator;
        let before = self.next_grandparent;
        while let Some(table) = self.grandparents.get(self.next_grandparent)
            && comparator.compare(table.largest_user(), user).is_lt()
        {
            self.overlapped_bytes += table.file_bytes();
            self.next_grandparent += 1;
        }
        self.next_grandparent > before
    }

    fn open_table(&self) -> Result<(FileNumber, Arc<dyn File>, TableWriter)> {
        let number = self.engine.new_file_number();
        let path = FileName::Table(number).path(&self.engine.dir);
        let file = self.engine.env.fs().create(&path)?;
        let header = FileHeader { kind: FileKind::Table, db_id: self.engine.db_id, number };
        let options = table_options(self.engine, self.level);
        match TableWriter::new(file.clone(), header, self.tree.comparator.clone(), options) {
            Ok(writer) => Ok((number, file, writer)),
            Err(error) => {
                unlink(self.engine, number);
                Err(error)
            }
        }
    }

    fn finish_table(&mut self) -> Result<()> {
        let Some((number, file, writer)) = self.current.take() else { return Ok(()) };
        match writer.finish() {
            Ok(written) => {
                self.finished.tables.push(TableMeta::of_written(number, self.epoch, written));
                self.finished.files.push(file);
                Ok(())
            }
            Err(error) => {
                unlink(self.engine, number);
                Err(error)
            }
        }
    }
}

impl Drop for Outputs<'_> {
    /// Given up before `finish`: its files are nobody's.
    fn drop(&mut self) {
        if let Some((number, ..)) = self.current.take() {
            unlink(self.engine, number);
        }
        std::mem::take(&mut self.finished).discard(self.engine);
    }
}

/// How tables of `level` are written.
fn table_options(engine: &Engine, level: usize) -> TableOptions {
    let options = engine.options.load();
    let bottom = level + 1 >= crate::version::LEVELS;
    let compression = if bottom { options.compression_bottom } else { options.compression };
    TableOptions {
        block_bytes: options.block_bytes as usize,
        restart_interval: options.block_restart_interval,
        filter_bits_per_key: options.filter_bits_per_key,
        compression: match compression {
            options::Compression::None => Compression::None,
            options::Compression::Lz4 => Compression::Lz4,
            options::Compression::Zstd => Compression::Zstd,
        },
        ..TableOptions::default()
    }
}
