//! What the durable manifest names is durable: looked at in the simulation whenever that manifest, or
//! what is durable in its directory, may have changed.
//!
//! The look is at an image of the disk with all gone that is not synced: the tables that its manifest
//! names must be there, as long as it says and with the checksum it says. And none of them is unlinked
//! while it is named.
//!
//! Tables are looked for in all directories that they may lie in; their numbers are given out once for all.
//!
//! Absent on purpose: the log's segments, whose ends may be torn; the cuts look at those.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use dialsm_core::checksum;
use dialsm_core::filename::FileName;
use dialsm_core::types::FileNumber;
use dialsm_core::version::edit::TableDesc;
use dialsm_core::version::manifest::{read_current, read_manifest};
use dialsm_io::{Access, CrashPolicy, Fs, OpKind, SimFs};
use parking_lot::Mutex;

use super::book::Book;
use super::tap::{Heard, Listener};

/// Writes into a book, and looks at the disk as well.
pub struct Watched {
    book: Arc<Book>,
    fs: Arc<SimFs>,
    dir: PathBuf,
    /// That one and the shards' own.
    table_dirs: Vec<PathBuf>,
    named: Mutex<Named>,
}

#[derive(Default)]
struct Named {
    /// By the durable manifest, as of the last look.
    tables: BTreeSet<FileNumber>,
    /// Tables whose bytes were compared; nobody writes to them again.
    compared: BTreeSet<FileNumber>,
}

impl Watched {
    /// For the database in `dir` on `fs`, none of whose tables is known.
    pub fn new(book: Arc<Book>, fs: Arc<SimFs>, dir: PathBuf, shard_dirs: &[PathBuf]) -> Arc<Watched> {
        let mut table_dirs = vec![dir.clone()];
        table_dirs.extend(shard_dirs.iter().filter(|path| **path != dir).cloned());
        Arc::new(Watched { book, fs, dir, table_dirs, named: Mutex::default() })
    }

    /// Where a table is, by the names in `image`.
    fn find(&self, image: &SimFs, number: FileNumber) -> Option<PathBuf> {
        let mut paths = self.table_dirs.iter().map(|dir| FileName::Table(number).path(dir));
        paths.find(|path| image.exists(path).unwrap_or(false))
    }

    /// Compares what the durable manifest names with what is there.
    fn look(&self) -> Result<(), String> {
        let image = self.fs.crash_image(CrashPolicy::DropUnsynced);
        if !image.exists(&FileName::Current.path(&self.dir)).unwrap_or(false) {
            return Ok(());
        }
        let tables = named_tables(&image, &self.dir).map_err(|e| format!("the durable manifest: {e}"))?;
        let mut named = self.named.lock();
        for table in &tables {
            if named.compared.insert(table.number) {
                self.compare(&image, table)?;
            }
        }
        named.tables = tables.iter().map(|table| table.number).collect();
        match named.tables.iter().find(|number| self.find(&image, **number).is_none()) {
            None => Ok(()),
            Some(number) => {
                Err(format!("the durable manifest names table {}, whose name is not durable", number.0))
            }
        }
    }

    fn compare(&self, image: &SimFs, table: &TableDesc) -> Result<(), String> {
        let read = || -> dialsm_core::Result<Vec<u8>> {
            let own = || FileName::Table(table.number).path(&self.dir);
            let file = image.open(&self.find(image, table.number).unwrap_or_else(own), Access::Read)?;
            let mut bytes = vec![0; file.len()? as usize];
            file.read_at(&mut bytes, 0)?;
            Ok(bytes)
        };
        let bytes =
            read().map_err(|e| format!("the durable manifest names table {}: {e}", table.number.0))?;
        if bytes.len() as u64 == table.file_bytes && checksum::extend(0, &bytes) == table.checksum {
            return Ok(());
        }
        Err(format!("the durable manifest names table {}, whose bytes are not durable", table.number.0))
    }
}

/// The tables that the manifest in force names.
fn named_tables(fs: &SimFs, dir: &std::path::Path) -> dialsm_core::Result<Vec<TableDesc>> {
    let (_, path) = read_current(fs, dir)?;
    let mut tables: Vec<TableDesc> = Vec::new();
    read_manifest(fs.open(&path, Access::Read)?, &mut |_, record| {
        for edit in &record.edits {
            tables.retain(|table| !edit.removed.iter().any(|(_, number)| *number == table.number));
            tables.extend(edit.added.iter().map(|(_, table)| table.clone()));
        }
        Ok(())
    })?;
    Ok(tables)
}

impl Listener for Watched {
    fn committing(&self, ids: &[u64]) {
        self.book.committing(ids);
    }

    fn heard(&self, call: &Heard<'_>) {
        self.book.heard(call);
        if !self.table_dirs.iter().any(|dir| call.path.starts_with(dir)) {
            return;
        }
        let name = call.path.file_name().and_then(|name| FileName::parse(&name.to_string_lossy()));
        let looked = match (call.op, name) {
            (OpKind::Sync, Some(FileName::Manifest(_))) | (OpKind::SyncDir, _) => self.look(),
            (OpKind::Unlink, Some(FileName::Table(number))) if self.named.lock().tables.contains(&number) => {
                Err(format!("table {} is unlinked while the durable manifest names it", number.0))
            }
            _ => Ok(()),
        };
        if let Err(what) = looked {
            self.book.violation(what);
        }
    }
}
