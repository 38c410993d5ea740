//! A crash image, and the judgement on it.
//!
//! ```text
//! image ─┬─ open, verify, read, judge ── cut right after (all that is not synced goes) ── the same again
//!        ├─ open; cut somewhere in the recovery, faults in some ── judge
//!        └─ the last checkpoint: open, verify, read, judge
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dialsm_core::{ClueJobs, Db};
use dialsm_io::{CrashPolicy, Env, Fault, FaultFs, Fs, OpKind, Rule, SimEnv, SimFs, SplitMix64};
use parking_lot::Mutex;

use super::book::{Book, Checkpoint, fold};
use super::check::open_and_judge;
use super::floors::Floors;
use super::ledger::{Expectation, Judgement, difference};
use super::profile::Profile;
use super::sim::{DIR, Outcome, Violation};
use super::workload::{Model, bytes_of, steps};

/// A recovery is cut at one of its first so many calls.
const RECOVERY_CALLS: u64 = 90;

/// A crash image and what is known of the moment.
pub struct Cut {
    /// The disk that the next boot finds.
    pub image: Arc<SimFs>,
    policy: CrashPolicy,
    /// Batches that had been handed to the log.
    order_len: usize,
    acked: usize,
    durable: usize,
    synced_writes: u64,
    standing: Standing,
    checkpoints: Vec<Checkpoint>,
    history: Vec<String>,
}

/// Where the engine stood.
#[derive(Clone, Copy, Debug, Default)]
pub struct Standing {
    /// Steps that were live and not settled.
    pub unsettled: usize,
    /// Rollbacks and collections.
    pub jobs: ClueJobs,
    /// Clues that rollbacks had replaced since the database was opened, settled or not.
    pub rolled_back: u64,
}

impl Standing {
    /// Of `db` now. Waits for nothing.
    pub fn of(db: &Db) -> Standing {
        let rolled_back = db.metrics().counters.clues_rolled_back;
        Standing { unsettled: db.unsettled_installs(), jobs: db.clue_jobs(), rolled_back }
    }
}

impl Cut {
    /// Takes an image of `fs` as of now.
    pub fn take(fs: &SimFs, policy: CrashPolicy, book: &Book, standing: Standing) -> Cut {
        book.note(|| format!("CUT, {policy:?}"));
        let checkpoints = book.checkpoints();
        let history = book.history();
        let ledger = book.ledger();
        Cut {
            image: fs.crash_image(policy),
            policy,
            order_len: ledger.order.len(),
            acked: ledger.acked,
            durable: ledger.durable,
            synced_writes: ledger.synced_writes,
            standing,
            checkpoints,
            history,
        }
    }

    /// The least prefix that must be left; of a killed process all that it acknowledged is in the log.
    fn least(&self, logged: bool) -> usize {
        if self.policy == CrashPolicy::KeepAll && logged { self.acked } else { self.durable }
    }
}

/// What a cut may have left.
#[derive(Clone, Copy, Default)]
struct Expected {
    /// At least so many batches.
    least: usize,
    /// At most so many.
    most: usize,
    /// See [`Floors`], for this and the next.
    may_be_home: bool,
    is_one_moment: bool,
}

/// Who judges cuts.
pub struct Judge<'a> {
    /// The simulation.
    pub env: &'a Arc<SimEnv>,
    /// The run.
    pub profile: &'a Profile,
    /// The book of the machine that was cut.
    pub book: &'a Book,
    /// What it held before.
    pub base: &'a Model,
    /// Dice.
    pub rng: &'a mut SplitMix64,
    /// Where the judgement goes.
    pub outcome: &'a mut Outcome,
}

impl Judge<'_> {
    /// Judges `cut` in every way; what the database held, if it could be judged.
    pub fn judge(mut self, cut: &Cut) -> Option<Model> {
        let pristine = cut.image.crash_image(CrashPolicy::KeepAll);
        let logged = self.profile.options.log;
        let expected = Expected {
            least: cut.least(logged),
            most: cut.order_len,
            // The end of a generation is cut at when nobody can be asked any more.
            may_be_home: cut.standing.rolled_back > 0,
            is_one_moment: self.profile.options.atomic_flush,
        };
        let judged = self.open(&cut.image, None, expected, DIR);
        let judgement = match judged {
            Ok(judgement) => judgement,
            Err(what) => {
                self.violation(cut, "after a cut", what);
                return None;
            }
        };
        self.count(cut, &judgement);
        self.judge_again(cut, &judgement);
        if self.rng.chance(1, 2) {
            self.cut_recovery(cut, expected, &pristine);
        }
        if self.rng.chance(1, 2) {
            self.judge_checkpoint(cut, &pristine);
        }
        Some(judgement.state)
    }

    fn violation(&mut self, cut: &Cut, when: &str, what: String) {
        let (policy, unsettled) = (cut.policy, cut.standing.unsettled);
        let what = format!(
            "{when} ({policy:?}, {} batches in the log, {} promised, {unsettled} unsettled): {what}",
            cut.order_len,
            cut.least(self.profile.options.log)
        );
        self.outcome.violations.push(Violation { what, history: cut.history.clone() });
    }

    /// Opens the image and judges; `faults` are on it, if any. A checkpoint is one directory, and may not
    /// take those of its original.
    fn open(
        &mut self,
        image: &Arc<SimFs>,
        seen: Option<Arc<dyn Fs>>,
        expected: Expected,
        dir: &str,
    ) -> Result<Judgement, String> {
        let plain: Arc<dyn Fs> = image.clone();
        let env: Arc<dyn Env> = self.env.on_fs(image.clone(), seen.unwrap_or(plain));
        let (order, failed, routes) = {
            let ledger = self.book.ledger();
            (ledger.order[..expected.most].to_vec(), ledger.failed.clone(), ledger.routes.clone())
        };
        let (base, shape, least) = (self.base, &self.profile.shape, expected.least);
        let Expected { may_be_home, is_one_moment, .. } = expected;
        let of = |trees| Floors { trees, routes: &routes, is_one_moment, may_be_home };
        let floors = shape.trees.map(of);
        let expectation = Expectation { base, shape, order: &order, failed: &failed, least, floors };
        let mut options = self.profile.options.clone();
        match dir {
            // Their order is for new tables only.
            DIR => shuffle(&mut options.shard_dirs, self.rng),
            _ => options.shard_dirs.clear(),
        }
        open_and_judge(&env, Path::new(dir), &options, &expectation, self.rng)
    }

    fn count(&mut self, cut: &Cut, judgement: &Judgement) {
        let ledger = self.book.ledger();
        let lost = &ledger.order[judgement.prefix.min(cut.acked)..cut.acked];
        let bytes: u64 = lost.iter().map(|id| bytes_of(&steps(&self.profile.shape, *id))).sum();
        let tally = &mut self.outcome.tally;
        tally.cuts += 1;
        tally.synced_writes += if self.profile.options.log { cut.synced_writes } else { cut.durable as u64 };
        tally.dropped_bytes += bytes;
        tally.handoffs += u64::from(cut.standing.unsettled > 0);
        tally.clues_of(self.profile).cut(&cut.standing.jobs, judgement);
        self.outcome.digest = fold(self.outcome.digest, &[judgement.prefix as u64, bytes]);
    }

    /// What an opening has shown, no later power cut takes back, and no later opening changes.
    fn judge_again(&mut self, cut: &Cut, first: &Judgement) {
        let image = cut.image.crash_image(CrashPolicy::DropUnsynced);
        let judged = match self.profile.options.log {
            true => {
                let expected = Expected { least: first.prefix, most: first.prefix, ..Expected::default() };
                self.open(&image, None, expected, DIR)
            }
            // All of it was flushed, and every floor is above it.
            false => {
                let (base, outcome) = (&first.state, &mut *self.outcome);
                let (env, profile, book, rng) = (self.env, self.profile, self.book, &mut *self.rng);
                let mut again = Judge { env, profile, book, base, rng, outcome };
                again.open(&image, None, Expected { is_one_moment: true, ..Expected::default() }, DIR)
            }
        };
        match judged {
            Ok(second) if second.state == first.state => {
                self.outcome.tally.cuts += 1;
                self.outcome.tally.second_cuts += 1;
            }
            Ok(second) => {
                let what = difference(&first.state, &second.state).unwrap_or_default();
                self.violation(cut, "opened again", what);
            }
            Err(what) => self.violation(cut, "cut after the recovery", what),
        }
    }

    /// Cuts the power once more, somewhere in the recovery, some of whose calls may fail.
    fn cut_recovery(&mut self, cut: &Cut, expected: Expected, pristine: &SimFs) {
        let image = pristine.crash_image(CrashPolicy::KeepAll);
        let policy = match self.rng.below(3) {
            0 => CrashPolicy::DropUnsynced,
            _ => CrashPolicy::Random(self.rng.next_u64()),
        };
        let taken: Arc<Mutex<Option<Arc<SimFs>>>> = Arc::default();
        let (at, calls) = (self.rng.below(RECOVERY_CALLS), AtomicU64::new(0));
        let (into, fs) = (taken.clone(), image.clone());
        image.add_call_hook(Arc::new(move |_| {
            if calls.fetch_add(1, Ordering::Relaxed) == at {
                *into.lock() = Some(fs.crash_image(policy));
                fs.power_off();
            }
        }));
        let seen = self.rng.chance(1, 3).then(|| self.faulty(&image));
        let plain: Arc<dyn Fs> = image.clone();
        let env: Arc<dyn Env> = self.env.on_fs(image.clone(), seen.unwrap_or(plain));
        // Whatever comes of it: the power went.
        drop(Db::open(env, Path::new(DIR), self.profile.options.clone()));
        image.clear_call_hooks();
        let second = taken.lock().take().unwrap_or_else(|| image.crash_image(policy));
        // Where the first was a kill, a power cut followed it after all.
        let expected = Expected { least: cut.durable, ..expected };
        match self.open(&second, None, expected, DIR) {
            Ok(judgement) => {
                let digest = &mut self.outcome.digest;
                *digest = fold(*digest, &[judgement.prefix as u64]);
                self.outcome.tally.cuts += 1;
                self.outcome.tally.second_cuts += 1;
            }
            Err(what) => self.violation(cut, &format!("cut at call {at} of the recovery ({policy:?})"), what),
        }
    }

    fn faulty(&mut self, image: &Arc<SimFs>) -> Arc<dyn Fs> {
        let inner: Arc<dyn Fs> = image.clone();
        let faults = FaultFs::new(inner);
        let disk = image.clone();
        faults.set_on_failed_sync(Arc::new(move |path| disk.fail_writeback(path)));
        let op =
            [OpKind::Sync, OpKind::SyncDir, OpKind::Write, OpKind::Create, OpKind::Rename, OpKind::Unlink]
                [self.rng.below(6) as usize];
        let errno = [5, 28][self.rng.below(2) as usize];
        faults.add(Rule::nth(op, 1 + self.rng.below(8), Fault::Errno(errno)));
        self.outcome.tally.faults += 1;
        faults
    }

    /// A checkpoint that had been made is whole; one that was being made is whole or not there.
    fn judge_checkpoint(&mut self, cut: &Cut, pristine: &SimFs) {
        let Some(checkpoint) = cut.checkpoints.last() else { return };
        let image = pristine.crash_image(CrashPolicy::KeepAll);
        let dir = checkpoint.dir.to_string_lossy();
        if checkpoint.most.is_none() && !image.exists(&checkpoint.dir).unwrap_or(true) {
            return;
        }
        let most = checkpoint.most.unwrap_or(cut.order_len);
        let expected = Expected { least: checkpoint.least, most, may_be_home: false, is_one_moment: true };
        match self.open(&image, None, expected, &dir) {
            Ok(_) => self.outcome.tally.checkpoints += 1,
            Err(what) => self.violation(cut, "in a checkpoint", what),
        }
    }
}

fn shuffle(paths: &mut [PathBuf], rng: &mut SplitMix64) {
    for last in (1..paths.len()).rev() {
        paths.swap(last, rng.below(last as u64 + 1) as usize);
    }
}
