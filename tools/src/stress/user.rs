//! A user of the database: writes batches, and now and then flushes, syncs, compacts, reads all of it
//! at a snapshot, or makes a checkpoint.
//!
//! A call may fail only after a fault was injected; a wrong answer is a violation always.

use std::path::PathBuf;
use std::sync::Arc;

use dialsm_core::{CompactRangeOptions, Db, Error, ErrorKind, FlushOptions, ReadOptions, WriteOptions};
use dialsm_io::{Env, SplitMix64};

use super::book::Book;
use super::check::contents_at;
use super::floors::Route;
use super::ledger::Expectation;
use super::signpost::Signpost;
use super::tap::Listener;
use super::workload::{Model, Shape, batch, counter_key, id_of, steps, target_of, witness};

/// A write that waits longer than this is stuck.
const STUCK_AFTER: u64 = 1_000_000_000_000;

/// How often a user tries again after a full disk.
const RETRIES_MAX: u32 = 6;

/// What users do.
#[derive(Clone, Debug)]
pub struct Habits {
    /// What their batches are like.
    pub shape: Shape,
    /// Batches each of them writes.
    pub writes: u64,
    /// Whether they read all at snapshots.
    pub scans: bool,
    /// Checkpoints go into directories of this name with a number behind it.
    pub checkpoints: Option<PathBuf>,
    /// One in so many writes is synced.
    pub sync_one_in: u64,
    /// Nanoseconds that a pause lasts at most.
    pub pause_max: u64,
}

/// A user.
pub struct User {
    /// Clock and threads.
    pub env: Arc<dyn Env>,
    /// The database.
    pub db: Db,
    /// Where it writes down what it did.
    pub book: Arc<Book>,
    /// What it does.
    pub habits: Habits,
    /// What was there before the run.
    pub base: Arc<Model>,
    /// Without log: where values go, and whose turn it is to write.
    pub signpost: Option<Arc<Signpost>>,
    /// Whether faults were injected so far.
    pub is_faulty: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Goes into its batches' ids.
    pub generation: u64,
    /// Its number.
    pub thread: u64,
    /// Its dice.
    pub rng: SplitMix64,
}

/// Why a user stops early.
struct Stopped;

type Step<T = ()> = Result<T, Stopped>;

impl User {
    /// Does all it wants to.
    pub fn run(mut self) {
        for n in 0..self.habits.writes {
            if self.something_else(n).and_then(|()| self.write(n)).is_err() {
                return;
            }
        }
    }

    fn something_else(&mut self, n: u64) -> Step {
        match self.rng.below(200) {
            0..3 => self.flush_all(),
            3..6 => self.flush_one(),
            6..10 => self.sync(),
            10..12 => self.compact(),
            12..30 => {
                self.env.sleep(self.rng.below(self.habits.pause_max));
                Ok(())
            }
            30..32 if self.habits.scans => self.scan(),
            32 => self.checkpoint(n),
            33 => self.change_options(),
            34 | 35 => self.roll_back(),
            _ => Ok(()),
        }
    }

    fn write(&mut self, n: u64) -> Step {
        let id = id_of(self.generation, self.thread, n);
        let Ok(batch) = batch(&steps(&self.habits.shape, id)) else {
            self.book.violation(format!("batch {id:x} could not be built"));
            return Err(Stopped);
        };
        let sync = self.rng.chance(1, self.habits.sync_one_in) && self.signpost.is_none();
        self.book.note(|| format!("write {id:x}"));
        let signpost = self.signpost.clone();
        let turn = signpost.as_ref().map(|signpost| {
            let turn = signpost.turn(target_of(&self.habits.shape, id));
            // No log tells of it.
            self.book.committing(&[id]);
            turn
        });
        let deadline = Some(self.env.now() + STUCK_AFTER);
        let written = self.db.write(&WriteOptions { sync, deadline, ..WriteOptions::default() }, batch);
        if let Some(turn) = &turn {
            self.note_route(id, turn.sent());
        }
        match written {
            Ok(()) => self.book.acknowledged(id, sync),
            Err(error) => {
                self.book.failed(id, &error.to_string());
                drop(turn);
                return self.after("a write", &error);
            }
        }
        drop(turn);
        // Nobody else writes this key.
        let read = self.db.get(&ReadOptions::default(), &counter_key(self.thread));
        let seen = self.checked("a read", read)?;
        if seen.as_deref() != Some(&*witness(id)) {
            self.book.violation(format!("batch {id:x} was acknowledged and is not visible"));
            return Err(Stopped);
        }
        Ok(())
    }

    /// Keeps where the values of a batch went.
    fn note_route(&self, id: u64, sent: u64) {
        let shape = &self.habits.shape;
        if let Some(trees) = &shape.trees {
            let route = Route::of(&steps(shape, id), trees, target_of(shape, id), sent);
            self.book.ledger().routes.insert(id, route);
        }
    }

    /// What to do after an error: go on, or stop.
    fn after(&self, what: &str, error: &Error) -> Step {
        if error.kind() == ErrorKind::TimedOut || !(self.is_faulty)() {
            self.book.violation(format!("{what} failed: {error}"));
            return Err(Stopped);
        }
        self.book.note(|| format!("{what} failed: {error}"));
        match error.kind() {
            ErrorKind::NoSpace => {
                for _ in 0..RETRIES_MAX {
                    self.env.sleep(300_000_000);
                    if self.db.property("dialsm.background-error").is_none_or(|text| text.is_empty()) {
                        return Ok(());
                    }
                }
                Err(Stopped)
            }
            ErrorKind::Busy | ErrorKind::AlreadyExists | ErrorKind::Cancelled => Ok(()),
            _ => Err(Stopped),
        }
    }

    fn checked<T>(&self, what: &str, result: dialsm_core::Result<T>) -> Step<T> {
        result.map_err(|error| {
            // Whoever cannot read has no answer to go on with.
            let _ = self.after(what, &error);
            Stopped
        })
    }

    /// What is acknowledged before `act` is durable when it has returned.
    fn makes_durable(&self, what: &str, act: impl FnOnce() -> dialsm_core::Result<()>) -> Step {
        let acked = self.book.ledger().acked;
        self.book.note(|| format!("{what} begins"));
        match act() {
            Ok(()) => {
                self.book.ledger().made_durable(acked);
                self.book.note(|| format!("{what} has returned: {acked} batches are durable"));
                Ok(())
            }
            Err(error) => self.after(what, &error),
        }
    }

    fn flush_all(&self) -> Step {
        self.makes_durable("a flush of all", || self.db.flush_all(&FlushOptions::default()))
    }

    fn sync(&self) -> Step {
        if self.signpost.is_some() {
            // Without log there is nothing else.
            return self.flush_all();
        }
        self.makes_durable("a sync", || self.db.sync())
    }

    fn roll_back(&self) -> Step {
        self.db.rollback().or_else(|error| self.after("a rollback", &error))
    }

    /// Promises nothing of the other keyspaces, and so nothing of a prefix.
    fn flush_one(&mut self) -> Step {
        let names = self.db.keyspaces();
        let name = &names[self.rng.below(names.len() as u64) as usize];
        let Some(keyspace) = self.db.keyspace(name) else { return Ok(()) };
        let options = FlushOptions { wait: self.rng.chance(1, 2), ..FlushOptions::default() };
        self.db.flush_in(&options, &keyspace).or_else(|error| self.after("a flush", &error))
    }

    fn compact(&mut self) -> Step {
        let names = self.db.keyspaces();
        let name = &names[self.rng.below(names.len() as u64) as usize];
        let Some(keyspace) = self.db.keyspace(name) else { return Ok(()) };
        let options = CompactRangeOptions { rewrite_bottom: self.rng.chance(1, 2), ..Default::default() };
        let done = self.db.compact_range_in(&options, &keyspace, None, None);
        done.or_else(|error| self.after("a compaction", &error))
    }

    /// Small changes, each of which also writes the file that keeps them.
    fn change_options(&mut self) -> Step {
        let (name, values) = [
            ("write_buffer_bytes", ["64K", "96K", "128K"]),
            ("level0_compaction_trigger", ["1", "2", "3"]),
            ("background_jobs_max", ["2", "3", "4"]),
            ("log_recycle_max", ["0", "1", "4"]),
        ][self.rng.below(4) as usize];
        let value = values[self.rng.below(3) as usize];
        self.db.set_options(&[(name, value)]).or_else(|error| self.after("a change of options", &error))
    }

    /// All of one moment, twice: the same both times, and the state after a prefix of the commits.
    fn scan(&mut self) -> Step {
        let least = self.book.ledger().acked;
        let snapshot = self.db.snapshot();
        let options = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::default() };
        let first = self.checked("a scan", contents_at(&self.db, &options))?;
        let (order, failed) = {
            let ledger = self.book.ledger();
            (ledger.order.clone(), ledger.failed.clone())
        };
        let shape = &self.habits.shape;
        let expectation =
            Expectation { base: &self.base, shape, order: &order, failed: &failed, least, floors: None };
        if let Err(what) = expectation.judge(first.clone()) {
            self.book.violation(format!("a scan: {what}"));
            return Err(Stopped);
        }
        self.env.sleep(self.rng.below(self.habits.pause_max));
        let second = self.checked("a scan", contents_at(&self.db, &options))?;
        if first != second {
            self.book.violation("two scans at one snapshot differ".to_owned());
            return Err(Stopped);
        }
        Ok(())
    }

    fn checkpoint(&mut self, n: u64) -> Step {
        let Some(dir) = &self.habits.checkpoints else { return Ok(()) };
        let mut name = dir.clone().into_os_string();
        name.push(format!("-{}-{}-{n}", self.generation, self.thread));
        let number = self.book.checkpoint_begins(PathBuf::from(&name));
        match self.db.checkpoint(&PathBuf::from(name)) {
            Ok(()) => {
                self.book.checkpoint_made(number);
                Ok(())
            }
            Err(error) => self.after("a checkpoint", &error),
        }
    }
}
