//! What all threads of a run write into: the ledger, what was found wrong, and on demand the last things
//! that happened. Every lock is held over a few instructions only, never over a call on files.

use std::collections::VecDeque;
use std::path::PathBuf;

use dialsm_core::checksum;
use dialsm_io::SplitMix64;
use parking_lot::{Mutex, MutexGuard};

use super::ledger::Ledger;
use super::tap::{Heard, Listener};

/// How many of the last things that happened are kept.
const HISTORY_MAX: usize = 30;

/// And of users before those.
const USERS_HISTORY_MAX: usize = 20;

/// A checkpoint that was made, or is being made.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Where.
    pub dir: PathBuf,
    /// The least prefix of the commits that it holds.
    pub least: usize,
    /// The greatest; absent while it is being made: then it may be missing.
    pub most: Option<usize>,
}

/// Lines for whoever follows a run from outside.
pub type Told = Box<dyn Fn(&str) + Send + Sync>;

/// The last lines of what happened, and before them the last ones of users: background work may go on for long
/// after those.
#[derive(Default)]
struct History {
    users: VecDeque<String>,
    all: VecDeque<String>,
}

impl History {
    fn add(&mut self, line: String) {
        if self.all.len() == HISTORY_MAX {
            let oldest = self.all.pop_front().filter(|line| !is_background(line));
            if let Some(line) = oldest {
                if self.users.len() == USERS_HISTORY_MAX {
                    self.users.pop_front();
                }
                self.users.push_back(line);
            }
        }
        self.all.push_back(line);
    }
}

fn is_background(line: &str) -> bool {
    line.starts_with("dialsm-") || line.starts_with("sim-io")
}

/// The book of a run.
#[derive(Default)]
pub struct Book {
    ledger: Mutex<Ledger>,
    violations: Mutex<Vec<String>>,
    checkpoints: Mutex<Vec<Checkpoint>>,
    digest: Mutex<u64>,
    history: Mutex<Option<History>>,
    told: Option<Told>,
}

impl Book {
    /// An empty book that keeps a history if told so.
    pub fn new(with_history: bool) -> Book {
        Book { history: Mutex::new(with_history.then(History::default)), ..Book::default() }
    }

    /// An empty book that tells each entry as a line: `o ID..` handed to the log, `a ID` acknowledged,
    /// `s ID` so and synced, `f ID` failed, `v TEXT` a violation.
    pub fn telling(told: Told) -> Book {
        Book { told: Some(told), ..Book::default() }
    }

    /// The ledger, for a short look.
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock()
    }

    fn tell(&self, line: impl FnOnce() -> String) {
        if let Some(told) = &self.told {
            told(&line());
        }
    }

    /// Batch `id` was acknowledged.
    pub fn acknowledged(&self, id: u64, sync: bool) {
        self.note(|| format!("acknowledged {id:x}{}", if sync { ", synced" } else { "" }));
        let result = self.ledger.lock().acknowledged(id, sync);
        self.tell(|| format!("{} {id:x}", if sync { "s" } else { "a" }));
        if let Err(what) = result {
            self.violation(what);
        }
    }

    /// The write of batch `id` failed.
    pub fn failed(&self, id: u64, why: &str) {
        self.note(|| format!("failed {id:x}: {why}"));
        self.ledger.lock().failed(id);
        self.tell(|| format!("f {id:x}"));
    }

    /// Something that must never be.
    pub fn violation(&self, what: String) {
        self.note(|| format!("VIOLATION {what}"));
        self.tell(|| format!("v {}", what.replace('\n', " ")));
        self.violations.lock().push(what);
    }

    /// Takes out what was found wrong so far.
    pub fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut *self.violations.lock())
    }

    /// Whether something was found wrong.
    pub fn is_violated(&self) -> bool {
        !self.violations.lock().is_empty()
    }

    /// A checkpoint into `dir` begins; the answer is for [`Book::checkpoint_made`].
    pub fn checkpoint_begins(&self, dir: PathBuf) -> usize {
        self.note(|| format!("checkpoint into {} begins", dir.display()));
        let least = self.ledger.lock().acked;
        let mut checkpoints = self.checkpoints.lock();
        checkpoints.push(Checkpoint { dir, least, most: None });
        checkpoints.len() - 1
    }

    /// It has returned.
    pub fn checkpoint_made(&self, number: usize) {
        let most = self.ledger.lock().order.len();
        if let Some(checkpoint) = self.checkpoints.lock().get_mut(number) {
            checkpoint.most = Some(most);
        }
        self.note(|| format!("checkpoint {number} is made"));
    }

    /// The checkpoints so far.
    pub fn checkpoints(&self) -> Vec<Checkpoint> {
        self.checkpoints.lock().clone()
    }

    /// Keeps something that happened, if a history is wanted.
    pub fn note(&self, what: impl FnOnce() -> String) {
        let mut history = self.history.lock();
        if let Some(history) = &mut *history {
            let thread = std::thread::current();
            history.add(format!("{}: {}", thread.name().unwrap_or("main"), what()));
        }
    }

    /// The last things that happened, oldest first.
    pub fn history(&self) -> Vec<String> {
        let history = self.history.lock();
        history.iter().flat_map(|history| history.users.iter().chain(&history.all)).cloned().collect()
    }

    /// A hash of every call on files so far, with what was written.
    pub fn digest(&self) -> u64 {
        *self.digest.lock()
    }
}

/// Folds words into a hash.
pub fn fold(digest: u64, words: &[u64]) -> u64 {
    words.iter().fold(digest, |digest, word| SplitMix64::new(digest ^ word).next_u64())
}

impl Listener for Book {
    fn committing(&self, ids: &[u64]) {
        self.note(|| format!("to the log: {ids:x?}"));
        self.ledger.lock().committing(ids);
        self.tell(|| ids.iter().fold("o".to_owned(), |line, id| format!("{line} {id:x}")));
    }

    fn heard(&self, call: &Heard<'_>) {
        if self.told.is_some() {
            return;
        }
        self.note(|| {
            let outcome = if call.ok { "" } else { ", failed" };
            let (op, path) = (call.op, call.path.display());
            format!("{op:?} {path} at {}, {} bytes{outcome}", call.offset, call.data.len())
        });
        let path = checksum::extend(0, call.path.as_os_str().as_encoded_bytes());
        let data = checksum::extend(0, call.data);
        let words = [call.op as u64, u64::from(path), call.offset, u64::from(data), u64::from(call.ok)];
        let mut digest = self.digest.lock();
        *digest = fold(*digest, &words);
    }
}
