//! A run of the simulation: users on the real engine, background threads included, on a file system in
//! memory whose power is cut again and again.
//!
//! ```text
//! generation 1: open ─ users write ─── cut ── cut ─────── cut ─ end      the machine goes on after a
//!                                       │      │           │             cut; the image of it is kept
//!                                       └──────┴─────┬─────┘
//!                                                    ├─ each image is judged (`cut`)
//! generation 2: open one of the images ─ users write ─ ...
//! ```
//! Everything follows from the profile, so a run can be made again, with a history.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use dialsm_core::{ClueJobs, Db};
use dialsm_io::{Call, CrashPolicy, Env, FaultFs, Fs, OpKind, SimEnv, SimFs, SplitMix64};
use parking_lot::Mutex;

use super::book::{Book, fold};
use super::cut::{Cut, Judge, Standing};
use super::durable::Watched;
use super::ledger::Judgement;
use super::profile::Profile;
use super::tap::{Listener, Tap};
use super::user::{Habits, User};
use super::workload::Model;

/// Where the simulated database lives.
pub const DIR: &str = "/db";

/// A run that takes more steps of its schedule than this, where most take some ten thousand, is taken to
/// have no end.
const STEPS_MAX: u64 = 400_000;

/// How many violations end a run.
const VIOLATIONS_MAX: usize = 3;

/// What runs have come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Images judged, those of second cuts included.
    pub cuts: u64,
    /// Images judged whose cut fell into a recovery, or came right after one.
    pub second_cuts: u64,
    /// Synced writes looked for, summed over the cuts; without log, all writes before a flush of all.
    pub synced_writes: u64,
    /// Bytes of acknowledged but not synced batches that cuts took; without log, of the first one that lost
    /// something and all behind it.
    pub dropped_bytes: u64,
    /// Cuts at which an output was live and not settled.
    pub handoffs: u64,
    /// Calls that an injected fault befell, slow ones included.
    pub faults: u64,
    /// Checkpoints opened and judged.
    pub checkpoints: u64,
    /// Batches acknowledged.
    pub writes: u64,
    /// Flushes of the engine.
    pub flushes: u64,
    /// Compactions of the engine.
    pub compactions: u64,
    /// What became of values sent to other shards, in runs with a log.
    pub logged: ClueTally,
    /// The same in those without.
    pub unlogged: ClueTally,
    /// Runs with shards in directories of their own.
    pub runs_over_dirs: u64,
    /// Steps of the schedules.
    pub steps: u64,
    /// What was found wrong.
    pub violations: u64,
}

impl Tally {
    /// Adds `other`.
    pub fn add(&mut self, other: &Tally) {
        self.cuts += other.cuts;
        self.second_cuts += other.second_cuts;
        self.synced_writes += other.synced_writes;
        self.dropped_bytes += other.dropped_bytes;
        self.handoffs += other.handoffs;
        self.faults += other.faults;
        self.checkpoints += other.checkpoints;
        self.writes += other.writes;
        self.flushes += other.flushes;
        self.compactions += other.compactions;
        self.logged.add(&other.logged);
        self.unlogged.add(&other.unlogged);
        self.runs_over_dirs += other.runs_over_dirs;
        self.steps += other.steps;
        self.violations += other.violations;
    }

    /// The part for runs as `profile` says.
    pub fn clues_of(&mut self, profile: &Profile) -> &mut ClueTally {
        if profile.options.log { &mut self.logged } else { &mut self.unlogged }
    }

    /// The last line of the program's output.
    pub fn line(&self) -> String {
        format!(
            "sim: {} cuts, {} synced writes checked, {} unsynced bytes dropped, {} hand-offs cut, {} violations",
            self.cuts, self.synced_writes, self.dropped_bytes, self.handoffs, self.violations
        )
    }

    /// Whether nothing was found wrong, and everything was looked at.
    pub fn is_success(&self) -> bool {
        let driven = [self.cuts, self.synced_writes, self.dropped_bytes, self.handoffs];
        self.violations == 0 && driven.iter().all(|n| *n > 0)
    }
}

/// What became of values sent to other shards, and how many cuts fell where such a value was half way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClueTally {
    /// Runs.
    pub runs: u64,
    /// Images judged, those of second cuts aside.
    pub cuts: u64,
    /// Values sent to another shard than their own.
    pub redirects: u64,
    /// Clue entries replaced by their values.
    pub rolled_back: u64,
    /// Redirected entries dropped once no clue needed them.
    pub collected: u64,
    /// Cuts after which one half of a redirected write was in tables, and the recovery had to make the other.
    pub cut_redirects: u64,
    /// Cuts that left clues whose values were lost: without log only.
    pub cut_voids: u64,
    /// Cuts while a rollback wrote its outputs; while one was live and not settled.
    pub cut_rollbacks: [u64; 2],
    /// The same for collections.
    pub cut_collections: [u64; 2],
}

impl ClueTally {
    fn add(&mut self, other: &ClueTally) {
        self.runs += other.runs;
        self.cuts += other.cuts;
        self.redirects += other.redirects;
        self.rolled_back += other.rolled_back;
        self.collected += other.collected;
        self.cut_redirects += other.cut_redirects;
        self.cut_voids += other.cut_voids;
        for at in 0..2 {
            self.cut_rollbacks[at] += other.cut_rollbacks[at];
            self.cut_collections[at] += other.cut_collections[at];
        }
    }

    /// Counts a cut at which `jobs` were under way.
    pub fn cut(&mut self, jobs: &ClueJobs, judgement: &Judgement) {
        self.cuts += 1;
        self.cut_redirects += u64::from(judgement.completed > 0);
        self.cut_voids += u64::from(judgement.halves.clues > 0);
        self.cut_rollbacks[0] += u64::from(jobs.rollbacks_running > 0);
        self.cut_rollbacks[1] += u64::from(jobs.rollbacks_live > 0);
        self.cut_collections[0] += u64::from(jobs.collections_running > 0);
        self.cut_collections[1] += u64::from(jobs.collections_live > 0);
    }

    /// In words, with its numbers; `None` without runs.
    pub fn line(&self, which: &str) -> Option<String> {
        let ClueTally { runs, cuts, redirects, rolled_back, collected, cut_redirects, cut_voids, .. } = self;
        let ([rolling, rolled], [collecting, gone]) = (self.cut_rollbacks, self.cut_collections);
        (*runs > 0).then(|| {
            format!(
                "{which}: {runs} runs, {cuts} cuts, {redirects} values redirected, {rolled_back} clues rolled back, \
                 {collected} redirected entries collected; cuts with half a redirect {cut_redirects}, with lost values \
                 {cut_voids}, in rollbacks {rolling} running and {rolled} live, in collections {collecting} running \
                 and {gone} live"
            )
        })
    }
}

/// Something that must never be.
#[derive(Clone, Debug)]
pub struct Violation {
    /// In words.
    pub what: String,
    /// The last things that happened before, if they were kept.
    pub history: Vec<String>,
}

/// What a run has come to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// In numbers.
    pub tally: Tally,
    /// A hash of the schedule, of all calls on files with what was written, and of all judgements.
    pub digest: u64,
    /// What was found wrong.
    pub violations: Vec<Violation>,
}

/// Makes the run, with a history if `recording`.
pub fn run(profile: &Profile, recording: bool) -> Outcome {
    let env = SimEnv::new(profile.seed);
    // What it redirects follows from the profile, too.
    let profile = &profile.clone().with_router(env.as_ref());
    env.set_steps_max(STEPS_MAX);
    let mut outcome = Outcome::default();
    let current: Mutex<Option<Arc<Book>>> = Mutex::default();
    let ended = catch_unwind(AssertUnwindSafe(|| {
        env.run(|| {
            let mut run = Run {
                env: env.clone(),
                profile,
                recording,
                rng: SplitMix64::new(profile.seed ^ 0xc0de),
                outcome: &mut outcome,
                current: &current,
            };
            run.generations();
            let panics = env.take_panics();
            for what in panics {
                run.violation(format!("a thread panicked: {what}"), Vec::new());
            }
        });
    }));
    if let Err(payload) = ended {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no text");
        let history = current.lock().as_ref().map_or(Vec::new(), |book| book.history());
        outcome.violations.push(Violation { what: format!("a panic: {text}"), history });
    }
    outcome.tally.runs_over_dirs = u64::from(!profile.options.shard_dirs.is_empty());
    outcome.tally.steps = env.steps();
    outcome.tally.clues_of(profile).runs = 1;
    outcome.digest = fold(outcome.digest, &[env.schedule_digest()]);
    outcome.tally.violations = outcome.violations.len() as u64;
    outcome
}

struct Run<'a> {
    env: Arc<SimEnv>,
    profile: &'a Profile,
    recording: bool,
    rng: SplitMix64,
    outcome: &'a mut Outcome,
    /// The book that is written into, also for whoever looks after a panic.
    current: &'a Mutex<Option<Arc<Book>>>,
}

/// A simulated machine with its disk.
struct Machine {
    env: Arc<SimEnv>,
    fs: Arc<SimFs>,
    faults: Arc<FaultFs>,
    book: Arc<Book>,
    base: Arc<Model>,
}

impl Machine {
    fn new(env: &Arc<SimEnv>, fs: Arc<SimFs>, base: Model, recording: bool, profile: &Profile) -> Machine {
        // What is broken on purpose is to be found by what it loses.
        let watched = profile.options.break_on_purpose.is_none();
        let shard_dirs = &profile.options.shard_dirs;
        let inner: Arc<dyn Fs> = fs.clone();
        let faults = FaultFs::new(inner);
        let clock = env.clone();
        faults.set_sleeper(Arc::new(move |nanos| clock.sleep(nanos)));
        let disk = fs.clone();
        faults.set_on_failed_sync(Arc::new(move |path| disk.fail_writeback(path)));
        let book = Arc::new(Book::new(recording));
        let listener: Arc<dyn Listener> = if watched {
            Watched::new(book.clone(), fs.clone(), DIR.into(), shard_dirs)
        } else {
            book.clone()
        };
        let seen: Arc<dyn Fs> = Tap::new(faults.clone(), Path::new(DIR), listener);
        Machine { env: env.on_fs(fs.clone(), seen), fs, faults, book, base: Arc::new(base) }
    }
}

impl Run<'_> {
    fn violation(&mut self, what: String, history: Vec<String>) {
        self.outcome.violations.push(Violation { what, history });
    }

    fn generations(&mut self) {
        let disk = self.env.sim_fs().clone();
        let mut machine = Machine::new(&self.env, disk, Model::new(), self.recording, self.profile);
        for generation in 1..=self.profile.generations {
            let cuts = self.drive(&machine, generation);
            let found = machine.book.take_violations();
            for what in found {
                self.violation(what, machine.book.history());
            }
            let chosen = self.rng.below(cuts.len().max(1) as u64) as usize;
            let next = cuts.get(chosen).map(|cut| cut.image.crash_image(CrashPolicy::KeepAll));
            let mut state = None;
            for (at, cut) in cuts.iter().enumerate() {
                if self.outcome.violations.len() >= VIOLATIONS_MAX {
                    return;
                }
                let judge = Judge {
                    env: &self.env,
                    profile: self.profile,
                    book: &machine.book,
                    base: &machine.base,
                    rng: &mut self.rng,
                    outcome: self.outcome,
                };
                let judged = judge.judge(cut);
                if at == chosen {
                    state = judged;
                }
            }
            self.outcome.digest = fold(self.outcome.digest, &[machine.book.digest()]);
            let (Some(image), Some(state)) = (next, state) else { return };
            machine = Machine::new(&self.env, image, state, self.recording, self.profile);
        }
    }

    /// Lets users work to their end, and returns the cuts made meanwhile.
    fn drive(&mut self, machine: &Machine, generation: u64) -> Vec<Cut> {
        *self.current.lock() = Some(machine.book.clone());
        let env: Arc<dyn Env> = machine.env.clone();
        let db = match open_in(&env, Path::new(DIR), self.profile) {
            Ok(db) => db,
            Err(error) => {
                self.violation(
                    format!("the database of generation {generation} does not open: {error}"),
                    vec![],
                );
                return Vec::new();
            }
        };
        let slot: Arc<Mutex<Option<Db>>> = Arc::new(Mutex::new(Some(db.clone())));
        let cuts = self.cut_at_calls(machine, &slot);
        if self.profile.switch_at_io {
            machine.env.switch_at_io();
        }
        if generation == 1 {
            self.profile.rules.iter().for_each(|rule| machine.faults.add(rule.clone()));
        }
        let handles: Vec<_> = (0..self.profile.threads)
            .filter_map(|thread| {
                let user = self.user(machine, &db, generation, thread);
                let spawned = machine.env.spawn(&format!("user-{thread}"), Box::new(move || user.run()));
                spawned.inspect_err(|e| machine.book.violation(format!("no thread: {e}"))).ok()
            })
            .collect();
        handles.into_iter().for_each(|handle| handle.join());
        machine.faults.clear();
        for policy in [CrashPolicy::DropUnsynced, CrashPolicy::Random(self.rng.next_u64())] {
            let cut = Cut::take(&machine.fs, policy, &machine.book, Standing::of(&db));
            cuts.lock().push(cut);
        }
        let tally = &mut self.outcome.tally;
        let counters = db.metrics().counters;
        tally.flushes += counters.flushes;
        tally.compactions += db.compactions();
        let clues = tally.clues_of(self.profile);
        clues.redirects += counters.redirects;
        clues.rolled_back += counters.clues_rolled_back;
        clues.collected += counters.redirected_dropped;
        let ledger = machine.book.ledger();
        tally.writes += ledger.plain_writes + ledger.synced_writes;
        drop(ledger);
        tally.faults += machine.faults.injected();
        // Its end is cut at, too, but nobody can be asked any more what is settled.
        slot.lock().take();
        drop(db);
        machine.fs.clear_call_hooks();
        std::mem::take(&mut *cuts.lock())
    }

    fn user(&mut self, machine: &Machine, db: &Db, generation: u64, thread: u64) -> User {
        let faults = machine.faults.clone();
        let env: Arc<dyn Env> = machine.env.clone();
        User {
            env,
            db: db.clone(),
            book: machine.book.clone(),
            habits: Habits {
                shape: self.profile.shape,
                writes: self.profile.writes,
                scans: self.profile.scans,
                checkpoints: self.profile.checkpoints.then(|| "/checkpoint".into()),
                sync_one_in: self.profile.sync_one_in,
                pause_max: 400_000,
            },
            base: machine.base.clone(),
            signpost: self.profile.signpost.clone(),
            is_faulty: Arc::new(move || faults.injected() > 0),
            generation,
            thread,
            rng: SplitMix64::new(self.profile.seed ^ (generation << 8 | (thread + 1)) << 32),
        }
    }

    /// Arranges for crash images at random calls. Where outputs are on their way to be durable, calls
    /// that matter to them are cut at more often.
    fn cut_at_calls(&mut self, machine: &Machine, slot: &Arc<Mutex<Option<Db>>>) -> Arc<Mutex<Vec<Cut>>> {
        let cuts: Arc<Mutex<Vec<Cut>>> = Arc::default();
        let rng = Mutex::new(SplitMix64::new(self.rng.next_u64()));
        let one_in = self.profile.cut_one_in;
        let cuts_max = (self.profile.cuts / self.profile.generations).max(1) as usize;
        let (into, fs, book, slot) = (cuts.clone(), machine.fs.clone(), machine.book.clone(), slot.clone());
        machine.fs.add_call_hook(Arc::new(move |call| {
            // Nobody can be asked while it opens and closes: then rollbacks may have been.
            let unknown = Standing { rolled_back: u64::MAX, ..Standing::default() };
            let standing = slot.lock().as_ref().map_or(unknown, Standing::of);
            let policy = {
                let mut rng = rng.lock();
                let is_hot = standing.jobs != ClueJobs::default() || standing.unsettled > 0 && matters(call);
                let one_in = if is_hot { one_in.min(6) } else { one_in };
                if into.lock().len() >= cuts_max || !rng.chance(1, one_in) {
                    return;
                }
                match rng.below(6) {
                    0 | 1 => CrashPolicy::DropUnsynced,
                    2 => CrashPolicy::KeepAll,
                    _ => CrashPolicy::Random(rng.next_u64()),
                }
            };
            book.note(|| format!("about to {:?} {}", call.op, call.path.display()));
            let cut = Cut::take(&fs, policy, &book, standing);
            into.lock().push(cut);
        }));
        cuts
    }
}

/// Whether the call moves a hand-off on.
fn matters(call: &Call) -> bool {
    let path = call.path.to_string_lossy();
    match call.op {
        Some(OpKind::Sync) => path.ends_with(".sst") || path.contains("MANIFEST"),
        Some(OpKind::Write) => path.contains("MANIFEST"),
        Some(OpKind::SyncDir | OpKind::Unlink) => true,
        _ => false,
    }
}

/// Opens the database in `dir` and makes the keyspaces that are missing.
///
/// # Errors
/// Those of the engine.
pub fn open_in(env: &Arc<dyn Env>, dir: &Path, profile: &Profile) -> dialsm_core::Result<Db> {
    let db = Db::open(env.clone(), dir, profile.options.clone())?;
    for number in 1..=profile.shape.keyspaces {
        let name = format!("ks{number}");
        if db.keyspace(&name).is_none() {
            db.create_keyspace(&name, profile.options.keyspace())?;
        }
    }
    Ok(db)
}
