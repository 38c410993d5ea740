//! One new table on its way to the disk.
//!
//! ```text
//!   Writing ── all writes reaped ──▶ Syncing ── file, then name ──▶ Durable
//!      │                               │
//!   Broken: its job fails           Failed: made again, if it is live
//! ```
//! A table may be read by everybody once it is past Writing (rule 15), and may be named by the manifest
//! once it is Durable. The handle that wrote stays open until then: a failed write-back is reported on
//! no other. What failed has failed for ever; the table is made again under a new number.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use dialsm_io::durable::{DurableFile, DurableRequest, DurableTicket};
use dialsm_io::limiter::Permit;
use dialsm_io::stream::Landing;
use dialsm_io::{Error, File, Result};
use parking_lot::Mutex;

use super::Maker;
use crate::background::panicked;
use crate::engine::Engine;
use crate::fault::Fault;
use crate::types::{FileNumber, TablePlace};

const WRITING: u8 = 0;
const SYNCING: u8 = 1;
const DURABLE: u8 = 2;
/// Its writes failed: whoever made it fails.
const BROKEN: u8 = 3;
/// Its sync failed: it may be live already.
const FAILED: u8 = 4;

enum Stage {
    /// Somebody is just taking it further, without the lock: that makes calls.
    Busy,
    Writing(Landing, Option<Permit>),
    /// Its writes are over; nobody has asked for a sync yet.
    Written(Arc<dyn File>, Option<Permit>),
    Syncing(DurableTicket, Arc<dyn File>),
    Durable,
    Broken(Error),
    Failed(Error),
}

impl Stage {
    fn reached(&self) -> u8 {
        match self {
            Stage::Busy => unreachable!("nobody puts that back"),
            Stage::Writing(..) => WRITING,
            Stage::Written(..) | Stage::Syncing(..) => SYNCING,
            Stage::Durable => DURABLE,
            Stage::Broken(_) => BROKEN,
            Stage::Failed(_) => FAILED,
        }
    }
}

/// See the module header.
pub(crate) struct NewFile {
    pub(crate) number: FileNumber,
    /// The directory with its name.
    pub(crate) dir_id: u8,
    pub(crate) bytes: u64,
    /// How often it was made before, after a failure.
    pub(crate) attempt: u32,
    /// A memtable is kept for it.
    is_urgent: bool,
    reached: AtomicU8,
    stage: Mutex<Stage>,
    /// How to make it again; from the moment it is live until it is durable.
    maker: Mutex<Option<Maker>>,
    /// Nothing names it, and nothing will.
    is_given_up: AtomicBool,
    /// The reaper looks after it.
    is_listed: AtomicBool,
}

impl NewFile {
    /// A table whose last writes are under way.
    pub(crate) fn new(
        (dir_id, number): TablePlace,
        bytes: u64,
        attempt: u32,
        is_urgent: bool,
        landing: Landing,
        permit: Option<Permit>,
    ) -> Arc<NewFile> {
        Arc::new(NewFile {
            number,
            dir_id,
            bytes,
            attempt,
            is_urgent,
            reached: AtomicU8::new(WRITING),
            stage: Mutex::new(Stage::Writing(landing, permit)),
            maker: Mutex::new(None),
            is_given_up: AtomicBool::new(false),
            is_listed: AtomicBool::new(false),
        })
    }

    /// Whether its writes are over: readers may use it then, unless they failed.
    pub(crate) fn is_written(&self) -> bool {
        self.reached() != WRITING
    }

    pub(crate) fn is_durable(&self) -> bool {
        self.reached() == DURABLE
    }

    /// Whether its sync failed.
    pub(crate) fn is_failed(&self) -> bool {
        self.reached() == FAILED
    }

    /// Whether nothing of it is under way any more.
    pub(crate) fn is_over(&self) -> bool {
        self.reached() >= DURABLE
    }

    fn reached(&self) -> u8 {
        self.reached.load(Ordering::Acquire)
    }

    /// The error of its writes, if they failed.
    pub(crate) fn write_failure(&self) -> Option<Error> {
        match &*self.stage.lock() {
            Stage::Broken(error) => Some(error.clone()),
            _ => None,
        }
    }

    /// The error of its sync, if that failed.
    pub(crate) fn sync_failure(&self) -> Option<Error> {
        match &*self.stage.lock() {
            Stage::Failed(error) => Some(error.clone()),
            _ => None,
        }
    }

    /// Its job failed, or its keyspace is gone: what becomes of it concerns nobody.
    pub(crate) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Release);
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Acquire)
    }

    pub(super) fn set_listed(&self) {
        self.is_listed.store(true, Ordering::Release);
    }

    pub(crate) fn is_listed(&self) -> bool {
        self.is_listed.load(Ordering::Acquire)
    }

    pub(crate) fn set_maker(&self, maker: Maker) {
        *self.maker.lock() = Some(maker);
    }

    pub(crate) fn take_maker(&self) -> Option<Maker> {
        self.maker.lock().take()
    }

    pub(crate) fn has_maker(&self) -> bool {
        self.maker.lock().is_some()
    }

    /// Goes as far as it can without waiting; true if it got anywhere.
    pub(crate) fn advance(&self, engine: &Engine) -> bool {
        let Some(stage) = self.take_stage() else { return false };
        let before = stage.reached();
        // A bug on the way must not leave it busy for ever: closing waits for every table.
        let stepped = catch_unwind(AssertUnwindSafe(|| self.step(engine, stage)));
        let (next, panic) = match stepped {
            Ok(next) => (next, None),
            Err(panic) if before == WRITING => (Stage::Broken(panicked()), Some(panic)),
            Err(panic) => (Stage::Failed(panicked()), Some(panic)),
        };
        let reached = next.reached();
        self.put_stage(next);
        if reached != before {
            // Others who came meanwhile went away with nothing.
            engine.handoff.wake.notify();
        }
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
        reached != before
    }

    fn step(&self, engine: &Engine, mut next: Stage) -> Stage {
        if let Stage::Writing(landing, permit) = next {
            next = landed(landing, permit);
        }
        if let Stage::Written(file, permit) = next {
            next = self.ask(engine, file, permit.into_iter().collect());
        }
        if let Stage::Syncing(ticket, file) = next {
            next = self.synced(engine, ticket, file);
        }
        next
    }

    /// None if somebody has it, or there is nowhere to go: an outcome can be read at any time, so nobody
    /// takes it away even for a moment.
    fn take_stage(&self) -> Option<Stage> {
        let mut stage = self.stage.lock();
        match *stage {
            Stage::Busy | Stage::Durable | Stage::Broken(_) | Stage::Failed(_) => None,
            _ => Some(std::mem::replace(&mut *stage, Stage::Busy)),
        }
    }

    fn put_stage(&self, next: Stage) {
        let mut stage = self.stage.lock();
        let reached = next.reached();
        *stage = next;
        self.reached.store(reached, Ordering::Release);
    }

    /// Submits the sync, if there is a service for it.
    fn ask(&self, engine: &Engine, file: Arc<dyn File>, permits: Vec<Permit>) -> Stage {
        let Some(durability) = engine.handoff.durability() else {
            return Stage::Written(file, permits.into_iter().next());
        };
        let dir = engine.options.load().break_on_purpose != Some(Fault::DirSync);
        let ticket = durability.request(DurableRequest {
            files: vec![DurableFile { file: file.clone(), bytes: self.bytes }],
            dir: dir.then(|| engine.table_dirs.path(self.dir_id).to_path_buf()),
            is_urgent: self.is_urgent,
            permits,
            notify: Some(engine.handoff.wake.clone()),
        });
        Stage::Syncing(ticket, file)
    }

    fn synced(&self, engine: &Engine, ticket: DurableTicket, file: Arc<dyn File>) -> Stage {
        match ticket.outcome() {
            None => Stage::Syncing(ticket, file),
            Some(Ok(())) => Stage::Durable,
            // (A directory whose sync has failed fails every later request: that would have no end.)
            Some(Err(_))
                if engine.options.load().break_on_purpose == Some(Fault::FsyncRetry)
                    && engine.handoff.durability().is_none_or(|d| d.failure(&engine.dir).is_none()) =>
            {
                engine.handoff.durability().inspect(|d| d.forget(file.path()));
                self.ask(engine, file, Vec::new())
            }
            Some(Err(error)) => Stage::Failed(error),
        }
    }

    /// Makes its bytes durable on this thread, which waits; its name is the caller's to sync.
    ///
    /// # Errors
    /// Those of the file system; the file can't be trusted then, nor synced again.
    pub(crate) fn sync_here(&self, engine: &Engine) -> Result<()> {
        let Some(mut next) = self.take_stage() else {
            assert!(self.is_over(), "a table that is not listed has one owner");
            return self.outcome();
        };
        if let Stage::Writing(landing, permit) = next {
            next = match landing.wait() {
                Ok(file) => Stage::Written(file, permit),
                Err(error) => Stage::Broken(error),
            };
        }
        if let Stage::Syncing(ticket, _file) = next {
            next = ticket.wait().map_or_else(Stage::Failed, |()| Stage::Durable);
        }
        if let Stage::Written(file, _permit) = next {
            let started = engine.env.now();
            next = file.sync_data().map_or_else(Stage::Failed, |()| Stage::Durable);
            engine.metrics.table_sync_ns.record(engine.env.now() - started);
        }
        self.put_stage(next);
        self.outcome()
    }

    /// # Errors
    /// That of its writes or its sync, if they failed.
    fn outcome(&self) -> Result<()> {
        self.write_failure().or_else(|| self.sync_failure()).map_or(Ok(()), Err)
    }

    /// Waits for its writes. Not for a thread that has merging to do.
    pub(crate) fn wait_written(&self, engine: &Engine) {
        self.wait_until(engine, NewFile::is_written);
    }

    /// Waits for the outcome of its sync. Not for the reaper.
    pub(crate) fn wait_over(&self, engine: &Engine) {
        self.wait_until(engine, NewFile::is_over);
    }

    fn wait_until(&self, engine: &Engine, is_so: fn(&NewFile) -> bool) {
        loop {
            let seen = engine.handoff.wake.epoch();
            self.advance(engine);
            if is_so(self) {
                return;
            }
            engine.handoff.wake.wait(seen, None);
        }
    }
}

fn landed(mut landing: Landing, mut permit: Option<Permit>) -> Stage {
    match landing.try_take() {
        None => Stage::Writing(landing, permit),
        Some(Ok(file)) => Stage::Written(file, permit),
        Some(Err(error)) => {
            permit.iter_mut().for_each(Permit::spoil);
            Stage::Broken(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dialsm_io::ErrorKind;

    fn over(stage: Stage) -> NewFile {
        NewFile {
            number: FileNumber(7),
            dir_id: 0,
            bytes: 1,
            attempt: 0,
            is_urgent: false,
            reached: AtomicU8::new(stage.reached()),
            stage: Mutex::new(stage),
            maker: Mutex::new(None),
            is_given_up: AtomicBool::new(false),
            is_listed: AtomicBool::new(false),
        }
    }

    /// Who takes a table further must not hide its failure from who asks meanwhile: a job that does not
    /// see it installs a table that is not there.
    #[test]
    fn an_outcome_is_there_for_all_at_any_time() {
        let error = || Error::new(ErrorKind::NoSpace, "full");
        for stage in [Stage::Broken(error()), Stage::Failed(error()), Stage::Durable] {
            let file = over(stage);
            let (written, synced) = (file.write_failure(), file.sync_failure());
            assert!(file.take_stage().is_none());
            assert_eq!(file.write_failure().is_some(), written.is_some());
            assert_eq!(file.sync_failure().is_some(), synced.is_some());
            assert_eq!(file.outcome().is_err(), !file.is_durable());
        }
    }
}
