//! The tables that a flush or compaction writes: where one ends, and when they are durable.
//!
//! A table ends when it has reached its size, or when its key range would come to overlap too much
//! of the level after the next, so that its own compaction stays cheap. It ends only between two
//! user keys (rule 25). Files are synced as they are finished, their directory once at the end.

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
    current: Option<(FileNumber, Arc<dyn File>, TableWriter)>,
    last_user_key: Vec<u8>,
    finished: Vec<TableMeta>,
    target_bytes: u64,
}

impl<'a> Outputs<'a> {
    /// Tables for `level`; for level 0 they get `epoch`, and there is only one.
    pub(crate) fn new(engine: &'a Engine, tree: &'a Tree, level: usize, epoch: u64) -> Outputs<'a> {
        Outputs {
            engine,
            tree,
            level,
            epoch,
            grandparents: &[],
            next_grandparent: 0,
            overlapped_bytes: 0,
            current: None,
            last_user_key: Vec::new(),
            finished: Vec::new(),
            target_bytes: if level == 0 { u64::MAX } else { engine.options.table_bytes },
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
            && (writer.estimated_bytes() >= self.target_bytes || self.overlaps_too_much(user))
        {
            self.finish_table()?;
        }
        if self.current.is_none() {
            self.current = Some(self.open_table()?);
            self.overlapped_bytes = 0;
        }
        if self.last_user_key != user {
            self.last_user_key.clear();
            self.last_user_key.extend_from_slice(user);
        }
        let (.., writer) = self.current.as_mut().expect("a table was just opened");
        writer.add(key, value)
    }

    /// Bytes written so far.
    pub(crate) fn bytes(&self) -> u64 {
        let current = self.current.as_ref().map_or(0, |(.., writer)| writer.estimated_bytes());
        self.finished.iter().map(|meta| meta.file_bytes).sum::<u64>() + current
    }

    /// Ends the last table; all of them are durable when this returns.
    pub(crate) fn finish(mut self) -> Result<Vec<TableMeta>> {
        self.finish_table()?;
        if !self.finished.is_empty() {
            self.engine.env.fs().sync_dir(&self.engine.dir)?;
        }
        Ok(std::mem::take(&mut self.finished))
    }

    fn overlaps_too_much(&mut self, user: &[u8]) -> bool {
        let comparator = &self.tree.comparator;
        while let Some(table) = self.grandparents.get(self.next_grandparent)
            && comparator.compare(table.largest_user(), user).is_lt()
        {
            self.overlapped_bytes += table.file_bytes();
            self.next_grandparent += 1;
        }
        self.overlapped_bytes > GRANDPARENT_OVERLAP_MAX * self.engine.options.table_bytes
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
                self.unlink(number);
                Err(error)
            }
        }
    }

    fn finish_table(&mut self) -> Result<()> {
        let Some((number, file, writer)) = self.current.take() else { return Ok(()) };
        match writer.finish().and_then(|written| file.sync_data().map(|()| written)) {
            Ok(written) => {
                self.finished.push(TableMeta::of_written(number, self.epoch, written));
                Ok(())
            }
            Err(error) => {
                self.unlink(number);
                Err(error)
            }
        }
    }

    fn unlink(&self, number: FileNumber) {
        // What stays is an orphan: nothing names it, and the next opening removes it.
        let _ = self.engine.env.fs().unlink(&FileName::Table(number).path(&self.engine.dir));
    }
}

impl Drop for Outputs<'_> {
    /// Given up before `finish`: its files are nobody's.
    fn drop(&mut self) {
        if let Some((number, ..)) = self.current.take() {
            self.unlink(number);
        }
        for meta in std::mem::take(&mut self.finished) {
            self.unlink(meta.number);
        }
    }
}

/// How tables of `level` are written.
fn table_options(engine: &Engine, level: usize) -> TableOptions {
    let options = &engine.options;
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
