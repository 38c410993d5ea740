//! Child processes on the real file system, killed at random moments.
//!
//! ```text
//! parent ── starts ─▶ child: users write; each entry of its book goes through a pipe as a line
//!        ◀─ lines ──         `o` before the log is written, `a` and `s` after a write has returned
//!        ── SIGKILL ▶
//!        opens the database every other time, and judges it; else the next child recovers it
//! ```
//! A killed process loses nothing that the kernel has, so all that was acknowledged must be there,
//! synced or not. Lines that are in the pipe survive the child: what the parent reads is all it said.

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use dialsm_core::{Db, ReadOptions};
use dialsm_io::{Env, Fs, OsEnv, OsFs, SplitMix64};

use super::book::Book;
use super::check::{contents_at, open_and_judge};
use super::ledger::{Expectation, Ledger};
use super::profile::{Fixed, Profile};
use super::sim::open_in;
use super::tap::Tap;
use super::user::{Habits, User};
use super::workload::{Model, Shape, counters};

/// The subcommand under which the program starts itself.
pub const CHILD: &str = "kill-child";

/// Batches' ids have room for so many generations.
const KILLS_MAX: u64 = 4000;

/// Which kills.
#[derive(Clone, Debug)]
pub struct Kills {
    /// Where the database is made; it must be missing or empty.
    pub dir: PathBuf,
    /// How many.
    pub runs: u64,
    /// What all but the timing follows from.
    pub seed: u64,
}

/// One child.
#[derive(Clone, Debug)]
pub struct ChildArgs {
    /// Where the database is.
    pub dir: PathBuf,
    /// See [`Kills::seed`].
    pub seed: u64,
    /// Which child it is.
    pub generation: u64,
}

/// What kills have come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KillTally {
    /// Children killed.
    pub kills: u64,
    /// Acknowledged writes that were looked for.
    pub acknowledged: u64,
    /// What was found wrong.
    pub violations: u64,
}

impl KillTally {
    /// The last line of the program's output.
    pub fn line(&self) -> String {
        let KillTally { kills, acknowledged, violations } = self;
        format!("kill: {kills} kills, {acknowledged} acknowledged writes checked, {violations} violations")
    }

    /// Whether nothing was found wrong, and everything was looked at.
    pub fn is_success(&self) -> bool {
        self.violations == 0 && self.kills > 0 && self.acknowledged > 0
    }
}

/// The profile of one child: options change from one to the next, the batches' shape and the shards do not.
/// Shards that have directories of their own have them below the database's, each time in another order.
fn profile(dir: &Path, seed: u64, generation: u64) -> io::Result<Profile> {
    // A killed process keeps only what a log has.
    let fixed = Fixed { log: Some(true), ..Fixed::default() };
    let of = |seed| Profile::of(seed, &fixed).map_err(|e| io::Error::other(e.to_string()));
    let first = of(seed)?;
    let mut own = of(seed + generation)?;
    own.options.shards = first.options.shards;
    let mut shard_dirs = vec![dir.to_path_buf(), dir.join("disk1/a"), dir.join("disk2/b")];
    shard_dirs.rotate_left(generation as usize % 3);
    own.options.shard_dirs = if first.options.shard_dirs.is_empty() { Vec::new() } else { shard_dirs };
    Ok(Profile { shape: first.shape, ..own })
}

/// The child: writes until it is killed, and tells of everything.
///
/// # Errors
/// Those of opening, and of the output.
pub fn child(args: &ChildArgs) -> io::Result<()> {
    let book = Arc::new(Book::telling(Box::new(say)));
    let inner: Arc<dyn Fs> = OsFs::new();
    let fs: Arc<dyn Fs> = Tap::new(inner, &args.dir, book.clone());
    let env: Arc<dyn Env> = OsEnv::with_fs(fs);
    let profile = profile(&args.dir, args.seed, args.generation)?;
    let failed = |error: dialsm_core::Error| io::Error::other(error.to_string());
    let db = open_in(&env, &args.dir, &profile).map_err(failed)?;
    let base = Arc::new(contents_at(&db, &ReadOptions::default()).map_err(failed)?);
    say(&counters(&base).values().fold("h".to_owned(), |line, id| format!("{line} {id:x}")));
    let handles: Vec<_> = (0..profile.threads)
        .map(|thread| {
            let user = user(args, &profile, &env, &db, &book, &base, thread);
            env.spawn(&format!("user-{thread}"), Box::new(move || user.run())).map_err(failed)
        })
        .collect::<io::Result<_>>()?;
    handles.into_iter().for_each(|handle| handle.join());
    Err(io::Error::other("all users stopped before the kill"))
}

fn user(
    args: &ChildArgs,
    profile: &Profile,
    env: &Arc<dyn Env>,
    db: &Db,
    book: &Arc<Book>,
    base: &Arc<Model>,
    thread: u64,
) -> User {
    User {
        env: env.clone(),
        db: db.clone(),
        book: book.clone(),
        habits: Habits {
            shape: profile.shape,
            writes: 1 << 20,
            scans: true,
            checkpoints: None,
            sync_one_in: 10 * profile.sync_one_in,
            pause_max: 1_000_000,
        },
        base: base.clone(),
        signpost: None,
        is_faulty: Arc::new(|| false),
        generation: args.generation,
        thread,
        rng: SplitMix64::new(args.seed ^ (args.generation << 8 | thread) << 32),
    }
}

/// One write call for the whole line, so that a kill cannot leave two mixed.
fn say(line: &str) {
    let line = format!("{line}\n");
    if io::stdout().write_all(line.as_bytes()).is_err() {
        // Nobody listens any more.
        std::process::exit(0);
    }
}

/// Kills and reaps the child whatever happens.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The parent's view.
struct Parent {
    kills: Kills,
    rng: SplitMix64,
    shape: Shape,
    base: Model,
    ledger: Ledger,
    tally: KillTally,
    violations: Vec<String>,
}

/// Kills children of `program` and prints what that comes to; the last line is [`KillTally::line`].
///
/// # Errors
/// Those of starting the program, of the directory and of the output.
pub fn kill(kills: &Kills, program: &Path, out: &mut dyn Write) -> io::Result<KillTally> {
    if kills.runs > KILLS_MAX {
        return Err(io::Error::other(format!("at most {KILLS_MAX} runs")));
    }
    if kills.dir.exists() && std::fs::read_dir(&kills.dir)?.next().is_some() {
        return Err(io::Error::other(format!("{} is not empty", kills.dir.display())));
    }
    let mut parent = Parent {
        kills: kills.clone(),
        rng: SplitMix64::new(kills.seed ^ 0xdead),
        shape: profile(&kills.dir, kills.seed, 0)?.shape,
        base: Model::new(),
        ledger: Ledger::default(),
        tally: KillTally::default(),
        violations: Vec::new(),
    };
    for generation in 0..kills.runs {
        parent.run_one(program, generation)?;
        // Only every other time: a child must also recover what a killed child left.
        if generation % 2 == 1 || generation + 1 == kills.runs {
            parent.judge(generation)?;
        }
        for what in std::mem::take(&mut parent.violations) {
            parent.tally.violations += 1;
            writeln!(out, "VIOLATION seed {} kill {generation}: {what}", kills.seed)?;
        }
        if parent.tally.violations > 0 {
            writeln!(out, "stopped: the database is left in {}", kills.dir.display())?;
            break;
        }
    }
    writeln!(out, "{}", parent.tally.line())?;
    Ok(parent.tally)
}

impl Parent {
    fn run_one(&mut self, program: &Path, generation: u64) -> io::Result<()> {
        let mut command = Command::new(program);
        command.arg(CHILD).arg("--dir").arg(&self.kills.dir);
        command.args(["--seed", &self.kills.seed.to_string(), "--generation", &generation.to_string()]);
        let child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn()?;
        let mut child = Killed(child);
        let pipe = child.0.stdout.take().ok_or_else(|| io::Error::other("no pipe"))?;
        let after_acks = 1 + self.rng.below(600);
        let then = Duration::from_micros(self.rng.below(30_000));
        let (told, heard) = mpsc::channel();
        let reader = std::thread::spawn(move || read_lines(BufReader::new(pipe), after_acks, &told));
        // An error: it ended by itself, which its lines will show.
        let was_running = heard.recv().is_ok();
        if was_running {
            std::thread::sleep(then);
        }
        drop(child);
        let lines = reader.join().map_err(|_| io::Error::other("the reader panicked"))??;
        self.tally.kills += 1;
        if !was_running {
            self.violations.push("the child ended before it was killed".to_owned());
        }
        for line in &lines {
            if let Err(what) = self.take(line) {
                self.violations.push(what);
            }
        }
        Ok(())
    }

    fn take(&mut self, line: &str) -> Result<(), String> {
        let (sort, rest) = line.split_once(' ').unwrap_or((line, ""));
        if sort == "v" {
            return Err(format!("in the child: {rest}"));
        }
        let ids: Result<Vec<u64>, _> =
            rest.split_whitespace().map(|id| u64::from_str_radix(id, 16)).collect();
        let ids = ids.map_err(|_| format!("the child said {line:?}"))?;
        match (sort, ids.as_slice()) {
            ("h", _) => {
                let found = self.ledger.reach(ids.iter().copied());
                let acked = self.ledger.acked;
                self.ledger.truncate(found);
                if found < acked {
                    return Err(format!("a child found {found} batches, {acked} were acknowledged"));
                }
                Ok(())
            }
            ("o", _) => {
                self.ledger.committing(&ids);
                Ok(())
            }
            ("a" | "s", [id]) => self.ledger.acknowledged(*id, sort == "s"),
            ("f", [id]) => Err(format!("the write of batch {id:x} failed")),
            _ => Err(format!("the child said {line:?}")),
        }
    }

    fn judge(&mut self, generation: u64) -> io::Result<()> {
        let env: Arc<dyn Env> = OsEnv::new();
        let options = profile(&self.kills.dir, self.kills.seed, generation)?.options;
        let Ledger { order, acked, failed, .. } = &self.ledger;
        let (base, shape) = (&self.base, &self.shape);
        let expectation = Expectation { base, shape, order, failed, least: *acked, floors: None };
        match open_and_judge(&env, &self.kills.dir, &options, &expectation, &mut self.rng) {
            Ok(judgement) => {
                self.tally.acknowledged += self.ledger.plain_writes + self.ledger.synced_writes;
                self.base = judgement.state;
                self.ledger = Ledger::default();
            }
            Err(what) => self.violations.push(what),
        }
        Ok(())
    }
}

/// All whole lines; tells when there were so many acknowledgements.
fn read_lines(mut pipe: impl BufRead, after_acks: u64, told: &mpsc::Sender<()>) -> io::Result<Vec<String>> {
    let (mut lines, mut line, mut acks) = (Vec::new(), String::new(), 0);
    while pipe.read_line(&mut line)? > 0 {
        // A line cut short by the kill is nothing.
        if let Some(whole) = line.strip_suffix('\n') {
            acks += u64::from(whole.starts_with("a ") || whole.starts_with("s "));
            lines.push(whole.to_owned());
            if acks == after_acks {
                let _ = told.send(());
            }
        }
        line.clear();
    }
    Ok(lines)
}
