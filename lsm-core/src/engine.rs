//! What all parts of an open database share. No logic of its own beyond small questions.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};

use dialsm_io::env::Nanos;
use dialsm_io::fs::{Access, FileLock, OpenOptions};
use dialsm_io::{AsyncIo, Env};

use crate::background::Scheduler;
use crate::background_error::BackgroundError;
use crate::cache::{BlockCache, TableCache};
use crate::events::Events;
use crate::filename::FileName;
use crate::handoff::Handoff;
use crate::keyspace::{self, Keyspaces};
use crate::metrics::{Counter, Metrics};
use crate::obsolete::Graveyard;
use crate::options::live::LiveOptions;
use crate::pins::Pins;
use crate::scan::workers::ScanWorkers;
use crate::snapshot::SnapshotList;
use crate::space::Space;
use crate::table::TableReader;
use crate::table_dirs::TableDirs;
use crate::tree::Tree;
use crate::types::{DbId, FileNumber, SeqNo, TablePlace, TreeId};
use crate::unlogged::Voids;
use crate::version::TableFile;
use crate::version::edit::{HashKey, UnloggedSpan};
use crate::version::set::VersionSet;
use crate::wal::log::Log;
use crate::write::budget::WriteBudget;
use crate::write::commit::Commit;
use crate::{Error, ErrorKind, Result};

/// An open database.
pub(crate) struct Engine {
    pub(crate) env: Arc<dyn Env>,
    /// Asynchronous I/O of this database; shut down when it is closed.
    pub(crate) io: Arc<dyn AsyncIo>,
    pub(crate) dir: PathBuf,
    /// Where tables lie: there, unless shards have directories of their own.
    pub(crate) table_dirs: TableDirs,
    pub(crate) db_id: DbId,
    /// Of the hash that places keys in shards.
    pub(crate) hash_key: HashKey,
    /// The version of the database's format, as it was found: see `upgrade`.
    pub(crate) format_version: u32,
    /// Whether writes go to the log that do not say otherwise.
    pub(crate) logged: bool,
    /// The last span of sequences that were written without log; see [`crate::unlogged`].
    pub(crate) unlogged: parking_lot::Mutex<Option<UnloggedSpan>>,
    /// There is or was such a span: a range tombstone may have reached the disk in one shard and not in
    /// another.
    pub(crate) was_unlogged: bool,
    /// Clues that stand for nothing; set when the log has been replayed.
    pub(crate) voids: OnceLock<Voids>,
    /// Opened by `read_only`: nothing may change a file.
    pub(crate) read_only: bool,
    /// Those of the database, and of the default keyspace, which has them too.
    pub(crate) options: LiveOptions,
    /// The default keyspace: the first in `keyspaces`, at hand without a look.
    pub(crate) space: Arc<Space>,
    pub(crate) keyspaces: Keyspaces,
    /// Memtables of all trees.
    pub(crate) write_budget: Arc<WriteBudget>,
    pub(crate) commit: Commit,
    pub(crate) log: Log,
    pub(crate) versions: VersionSet,
    pub(crate) scheduler: Scheduler,
    pub(crate) handoff: Handoff,
    pub(crate) snapshots: Arc<SnapshotList>,
    /// Open iterators.
    pub(crate) pins: Pins,
    /// Read ahead for long scans.
    pub(crate) scan_workers: Arc<ScanWorkers>,
    pub(crate) blocks: Arc<BlockCache>,
    pub(crate) tables: TableCache,
    pub(crate) graveyard: Arc<Graveyard>,
    pub(crate) metrics: Metrics,
    pub(crate) error: BackgroundError,
    pub(crate) events: Arc<Events>,
    pub(crate) next_file: AtomicU64,
    /// Numbers of compactions, for claiming their inputs.
    pub(crate) next_job: AtomicU64,
    pub(crate) closing: AtomicBool,
    /// Set by whoever leads the commit queue, before `closing`: what bypassed the log is saved, and no other write
    /// comes behind it.
    pub(crate) writes_ended: AtomicBool,
    /// Closed, and nobody writes files any more.
    pub(crate) stopped: AtomicBool,
    /// Callers who wait for clues to be rolled back.
    pub(crate) rollbacks_asked: AtomicUsize,
    /// The last sequence number of the clues that they wait for.
    pub(crate) rollback_up_to: AtomicU64,
    /// Calls from the user's threads that may write files ([`Inside`]); closing waits for them.
    pub(crate) inside: AtomicUsize,
    /// The first log segment that the manifest found at open needed.
    pub(crate) replay_start: FileNumber,
    /// The manifest found at open holds its snapshot and then what looks like an unfinished record.
    pub(crate) first_record_torn: bool,
    /// Taken out when the database is closed and nobody reads any more.
    pub(crate) lock: parking_lot::Mutex<Option<Box<dyn FileLock>>>,
}

impl Engine {
    /// A file number never used before.
    pub(crate) fn new_file_number(&self) -> FileNumber {
        FileNumber(self.next_file.fetch_add(1, Ordering::Relaxed))
    }

    /// The path of a table.
    pub(crate) fn table_path(&self, (dir_id, number): TablePlace) -> PathBuf {
        FileName::Table(number).path(self.table_dirs.path(dir_id))
    }

    /// The number that the next file would get.
    pub(crate) fn peek_file_number(&self) -> FileNumber {
        FileNumber(self.next_file.load(Ordering::Relaxed))
    }

    /// Fails once the database is being closed, or in a child process.
    pub(crate) fn check_open(&self) -> Result<()> {
        self.env.check_fork()?;
        if self.closing.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "the database is closed"));
        }
        Ok(())
    }

    /// Stops writes for good if `error` is that of a sync of the database's directory, whoever met it: nothing made
    /// since is sure of its name, and another sync would say nothing of what this one lost (rule 17). One that
    /// could not begin for want of a descriptor has lost nothing.
    pub(crate) fn note_sync_of_dir(&self, error: &Error) {
        if !error.is_out_of_descriptors() && error.path() == Some(&self.dir) {
            self.error.latch_lasting("the sync of the directory", error);
        }
    }

    /// As [`Engine::check_open`], and fails where nothing may be written.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        if self.read_only {
            return Err(Error::new(ErrorKind::ReadOnly, "the database is open for reading only"));
        }
        Ok(())
    }

    /// Admits a call that may write files from the caller's thread. Writes need no such pass: closing
    /// goes between their groups.
    ///
    /// # Errors
    /// As [`Engine::check_writable`].
    pub(crate) fn enter(&self) -> Result<Inside<'_>> {
        self.env.check_fork()?;
        self.inside.fetch_add(1, Ordering::AcqRel);
        let inside = Inside(self);
        // Pairs with the fence in `open::stop`: either it waits for us, or we see it closing.
        fence(Ordering::SeqCst);
        self.check_writable()?;
        Ok(inside)
    }

    /// Fails once the clock has passed `deadline`.
    #[inline]
    pub(crate) fn check_deadline(&self, deadline: Option<Nanos>) -> Result<()> {
        match deadline {
            Some(deadline) if self.env.now() >= deadline => {
                Err(Error::new(ErrorKind::TimedOut, "the read's deadline has passed"))
            }
            _ => Ok(()),
        }
    }

    /// Fails unless the keyspace is one of this database and is there. For readers: after they have
    /// loaded its view.
    #[inline]
    pub(crate) fn check_keyspace(&self, space: &Space) -> Result<()> {
        if !space.belongs_to(&self.write_budget) {
            return Err(Error::invalid("the keyspace belongs to another database, or to an earlier opening"));
        }
        if space.is_dropped() {
            return Err(keyspace::unknown(space.id));
        }
        Ok(())
    }

    /// Lets all writers that wait look again.
    pub(crate) fn wake_writers(&self) {
        self.keyspaces.alive().trees.iter().for_each(|tree| tree.stall.wake_all());
        self.events.ring();
    }

    /// Whether writes are logged that do not say otherwise.
    #[inline]
    pub(crate) fn is_logged(&self) -> bool {
        self.logged
    }

    /// Whether there are clues that stand for nothing.
    pub(crate) fn has_voids(&self) -> bool {
        self.voids.get().is_some_and(|voids| !voids.intervals().is_empty())
    }

    /// Whether a clue with that sequence into `fallback` stands for nothing, since its value was never on
    /// the disk.
    pub(crate) fn is_void(&self, fallback: TreeId, seqno: SeqNo) -> bool {
        self.voids.get().is_some_and(|voids| voids.hold(fallback, seqno))
    }

    /// Clue entries that there are now, in memtables and live tables: how many, and about how many bytes.
    pub(crate) fn clues(&self) -> (u64, u64) {
        let alive = self.keyspaces.alive_guard();
        alive.trees.iter().fold((0, 0), |(entries, bytes), tree| {
            let view = tree.view_guard();
            let memtables = std::iter::once(&view.active).chain(&view.sealed);
            let (n, b) = memtables.fold((0, 0), |(n, b), buffer| {
                let clues = buffer.table.clues();
                (n + clues.0, b + clues.1)
            });
            let settled = view.version.clues();
            (entries + n + settled.0, bytes + b + settled.1)
        })
    }

    /// Lets background workers look for work.
    pub(crate) fn schedule(&self) {
        self.scheduler.wake.notify();
    }

    /// The reader of a table of `tree`, opened if it is not.
    ///
    /// # Errors
    /// Those of opening it.
    #[inline]
    pub(crate) fn open_table(&self, tree: &Tree, table: &TableFile) -> Result<Arc<TableReader>> {
        self.tables.get(table.number(), || self.open_table_file(tree, table))
    }

    pub(crate) fn open_table_file(&self, tree: &Tree, table: &TableFile) -> Result<Arc<TableReader>> {
        self.metrics.add(Counter::TableOpens, 1);
        let path = self.table_path(table.place());
        let options = OpenOptions { direct: self.options.load().direct_reads };
        let file =
            self.env.fs().open_with(&path, Access::Read, options).map_err(|error| match error.kind() {
                ErrorKind::NotFound => {
                    Error::corruption("a table that the manifest names is missing").at_path(&path)
                }
                _ => error,
            })?;
        let reader = TableReader::open_with_prefixes(
            file,
            &self.db_id,
            table.number(),
            table.file_bytes(),
            tree.comparator.clone(),
            tree.prefix_extractor.as_ref(),
            self.blocks.clone(),
        )?;
        if table.meta().is_clue_only() && self.options.load().clue_cache {
            reader.pin_blocks()?;
        }
        Ok(reader)
    }
}

/// A call that closing waits for.
pub(crate) struct Inside<'a>(&'a Engine);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::AcqRel);
        if self.0.closing.load(Ordering::Acquire) {
            self.0.scheduler.ended.notify();
        }
    }
}
