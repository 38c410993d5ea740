//! What all parts of an open database share. No logic of its own beyond small questions.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dialsm_io::Env;
use dialsm_io::fs::FileLock;

use crate::background::Scheduler;
use crate::background_error::BackgroundError;
use crate::cache::{BlockCache, TableCache};
use crate::compaction::picker::{self, PickerOptions};
use crate::metrics::Metrics;
use crate::obsolete::Graveyard;
use crate::options::Options;
use crate::snapshot::SnapshotList;
use crate::tree::Tree;
use crate::types::{DbId, FileNumber};
use crate::version::set::VersionSet;
use crate::version::version::Version;
use crate::wal::log::Log;
use crate::write::commit::Commit;
use crate::{Error, ErrorKind, Result};

/// An open database.
pub(crate) struct Engine {
    pub(crate) env: Arc<dyn Env>,
    pub(crate) dir: PathBuf,
    pub(crate) db_id: DbId,
    pub(crate) options: Options,
    pub(crate) picker_options: PickerOptions,
    /// The one tree of this database; keyspaces and shards will make it many.
    pub(crate) tree: Arc<Tree>,
    pub(crate) commit: Commit,
    pub(crate) log: Log,
    pub(crate) versions: VersionSet,
    pub(crate) scheduler: Scheduler,
    pub(crate) snapshots: Arc<SnapshotList>,
    pub(crate) blocks: Arc<BlockCache>,
    pub(crate) tables: TableCache,
    pub(crate) graveyard: Arc<Graveyard>,
    pub(crate) metrics: Metrics,
    pub(crate) error: BackgroundError,
    pub(crate) next_file: AtomicU64,
    pub(crate) closing: AtomicBool,
    /// Held until the engine is dropped, which the last handle sees to.
    pub(crate) _lock: Box<dyn FileLock>,
}

impl Engine {
    /// A file number never used before.
    pub(crate) fn new_file_number(&self) -> FileNumber {
        FileNumber(self.next_file.fetch_add(1, Ordering::Relaxed))
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

    /// Lets background workers look for work.
    pub(crate) fn schedule(&self) {
        self.scheduler.wake.notify();
    }

    /// Bytes that compaction owes.
    pub(crate) fn pending_compaction_bytes(&self, version: &Version) -> u64 {
        picker::pending_compaction_bytes(version, &self.picker_options)
    }
}
