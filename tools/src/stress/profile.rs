//! What a run of the simulation is like: everything in it follows from the seed, unless it was fixed on
//! the command line.
//!
//! INVARIANT: dice are rolled in the same order whatever is fixed, so that fixing one thing leaves the
//! others as the seed has them.

use std::path::PathBuf;

use dialsm::testing::ForcedRouter;
use dialsm_core::fault::Fault as Break;
use dialsm_core::options::{Compression, InfoLogLevel};
use dialsm_core::routing::RouterObject;
use dialsm_core::{Error, Options, merge_operator};
use dialsm_io::{Env, Fault, OpKind, Rule, SplitMix64};
use std::sync::Arc;

use super::signpost::Signpost;
use super::sim::DIR;
use super::workload::{MARKS, Shape, Trees};

/// What is fixed.
#[derive(Clone, Debug, Default)]
pub struct Fixed {
    /// Writers.
    pub threads: Option<u64>,
    /// Batches of each writer, in each generation.
    pub writes: Option<u64>,
    /// Keyspaces beside the default one.
    pub keyspaces: Option<u32>,
    /// Openings of the database that a run goes through.
    pub generations: Option<u64>,
    /// No injected errors.
    pub without_faults: bool,
    /// No scans and no checkpoints.
    pub without_extras: bool,
    /// Options of the engine, by name.
    pub options: Vec<(String, String)>,
    /// Whether there is a log.
    pub log: Option<bool>,
    /// What the engine leaves out.
    pub broken: Option<Break>,
    /// Power cuts of each run, those during recoveries not counted.
    pub cuts: u64,
}

/// A run.
#[derive(Clone)]
pub struct Profile {
    /// What all follows from.
    pub seed: u64,
    /// Batches.
    pub shape: Shape,
    /// See [`Fixed::threads`].
    pub threads: u64,
    /// See [`Fixed::writes`].
    pub writes: u64,
    /// See [`Fixed::generations`].
    pub generations: u64,
    /// See [`Fixed::cuts`].
    pub cuts: u64,
    /// One in so many calls is cut at.
    pub cut_one_in: u64,
    /// Whether every call on files lets other threads go on.
    pub switch_at_io: bool,
    /// One in so many writes is synced.
    pub sync_one_in: u64,
    /// Whether users read all at snapshots.
    pub scans: bool,
    /// Whether they make checkpoints.
    pub checkpoints: bool,
    /// Calls that fail, short or slow ones among them; in the first generation.
    pub rules: Vec<Rule>,
    /// The engine's.
    pub options: Options,
    /// So many of a thousand values are redirected; without log, those of so many of a thousand batches.
    pub redirect_permille: u64,
    /// Without log, in a run: the router.
    pub signpost: Option<Arc<Signpost>>,
}

impl Profile {
    /// What the seed makes of it.
    ///
    /// # Errors
    /// Those of the engine for options that do not fit.
    pub fn of(seed: u64, fixed: &Fixed) -> dialsm_core::Result<Profile> {
        let mut rng = SplitMix64::new(SplitMix64::new(seed).next_u64());
        let threads = 2 + rng.below(3);
        let writes = 70 + rng.below(60);
        let keyspaces = rng.below(3) as u32;
        let keys = 20 + rng.below(180);
        let generations = 1 + rng.below(3);
        let switch_at_io = rng.chance(1, 2);
        let sync_one_in = [2, 4, 8, 20][rng.below(4) as usize];
        let (scans, checkpoints) = (rng.chance(1, 2), rng.chance(1, 4));
        let faulty = rng.chance(1, 3);
        let mut rules = rules(&mut rng);
        let mut options = options(&mut rng);
        if !faulty || fixed.without_faults {
            rules.clear();
        }
        if fixed.broken == Some(Break::FsyncRetry) {
            // Without a failed sync there is nothing to retry.
            let nth = 1 + rng.below(8);
            rules = vec![Rule::nth(OpKind::Sync, nth, Fault::Errno(EIO)).on(".sst")];
        }
        set_if_there(&mut options, &mut rng);
        let mut permille = shards(&mut options, &mut rng);
        // Dice of their own: those above and below stay what they were.
        options.shard_dirs = shard_dirs(&mut SplitMix64::new(seed ^ 0xd125));
        info_log(&mut options, &mut SplitMix64::new(seed ^ 0x106));
        let cut_one_in = 10 + rng.below(30);
        let (without_log, together) = (rng.chance(1, 3), rng.chance(1, 3));
        options.log = fixed.log.unwrap_or(!without_log);
        if matches!(fixed.broken, Some(Break::LostClues | Break::EarlyCollect)) {
            // Without redirects there is nothing to lose.
            (options.shards, permille) = (options.shards.max(2), permille.max(300));
            options.log &= fixed.broken != Some(Break::LostClues);
        }
        options.atomic_flush = !options.log && together;
        for (name, value) in &fixed.options {
            options.set(name, value)?;
        }
        options.validate()?;
        options.break_on_purpose = fixed.broken;
        options.router = Some(ForcedRouter::object(permille, seed));
        let keyspaces = fixed.keyspaces.unwrap_or(keyspaces);
        let threads = fixed.threads.unwrap_or(threads);
        let writes = fixed.writes.unwrap_or(writes);
        let generations = fixed.generations.unwrap_or(generations);
        let trees = Trees { shards: options.shards.max(1) as u16, redirect_permille: permille };
        let trees = (!options.log).then_some(trees);
        let (generations_max, threads_max, writes_max) = MARKS;
        if trees.is_some() && (generations > generations_max || threads > threads_max || writes > writes_max)
        {
            return Err(Error::invalid(format!(
                "without log at most {generations_max} generations of {threads_max} threads with {writes_max} writes"
            )));
        }
        Ok(Profile {
            seed,
            shape: Shape { seed, keys, keyspaces, trees },
            threads,
            writes,
            generations,
            cuts: fixed.cuts,
            cut_one_in,
            switch_at_io,
            sync_one_in,
            scans: scans && !fixed.without_extras,
            checkpoints: checkpoints && !fixed.without_extras,
            rules,
            options,
            redirect_permille: permille,
            signpost: None,
        })
    }

    /// The same with a router that has redirected nothing yet, in a simulation.
    pub fn with_router(mut self, env: &dyn Env) -> Profile {
        self.signpost = (!self.options.log).then(|| Signpost::new(env));
        self.options.router = Some(match &self.signpost {
            Some(signpost) => signpost.router(),
            None => self.router(),
        });
        self
    }

    fn router(&self) -> RouterObject {
        ForcedRouter::object(self.redirect_permille, self.seed)
    }
}

/// Error numbers of Linux.
const EIO: i32 = 5;
const EMFILE: i32 = 24;
const ENOSPC: i32 = 28;

/// One or two calls that go wrong, and some that are slow.
fn rules(rng: &mut SplitMix64) -> Vec<Rule> {
    let count = 1 + rng.below(2);
    let mut rules: Vec<Rule> = (0..count).map(|_| rule(rng)).collect();
    let delay = Fault::Delay(rng.below(20_000_000));
    let op = [OpKind::Sync, OpKind::Write, OpKind::SyncDir][rng.below(3) as usize];
    rules.push(Rule { times: 3, ..Rule::nth(op, 1 + rng.below(40), delay) });
    rules
}

fn rule(rng: &mut SplitMix64) -> Rule {
    let torn = Fault::TornWrite(rng.below(3000) as usize, [EIO, ENOSPC][rng.below(2) as usize]);
    let errno = Fault::Errno([EIO, ENOSPC][rng.below(2) as usize]);
    let (op, on, fault, most) = match rng.below(14) {
        0 => (OpKind::Sync, ".sst", Fault::Errno(EIO), 12),
        1 => (OpKind::Sync, ".log", Fault::Errno(EIO), 60),
        2 => (OpKind::Sync, "MANIFEST", Fault::Errno(EIO), 20),
        3 => (OpKind::SyncDir, "", Fault::Errno(EIO), 20),
        4 => (OpKind::Write, ".sst", errno, 60),
        5 => (OpKind::Write, ".sst", torn, 60),
        6 => (OpKind::Write, ".log", errno, 150),
        7 => (OpKind::Write, ".log", torn, 150),
        8 => (OpKind::Write, "MANIFEST", torn, 20),
        9 => (OpKind::Create, "", Fault::Errno(EMFILE), 20),
        10 => (OpKind::Open, "", Fault::Errno(EMFILE), 20),
        11 => (OpKind::Create, "", Fault::Errno(ENOSPC), 20),
        12 => (OpKind::Unlink, "", Fault::Errno(EIO), 8),
        _ => (OpKind::Read, ".sst", Fault::ShortRead(rng.below(500) as usize), 60),
    };
    let rule = Rule { times: 1 + rng.below(2), ..Rule::nth(op, 1 + rng.below(most), fault) };
    if on.is_empty() { rule } else { rule.on(on) }
}

/// Options by name, for builds that have them: how files are written and made durable, and small bounds.
fn set_if_there(options: &mut Options, rng: &mut SplitMix64) {
    for (name, values) in [
        ("deferred_sync", ["true", "true", "true", "false"]),
        ("use_io_uring", ["true", "true", "true", "false"]),
        ("asynchronous_writes", ["false", "false", "true", "true"]),
        ("direct_writes", ["false", "false", "true", "true"]),
        ("direct_reads", ["false", "false", "true", "true"]),
        ("background_in_flight_bytes_max", ["4M", "4M", "16M", "256M"]),
        ("retained_bytes_max", ["1M", "1M", "8M", "1G"]),
    ] {
        let value = values[rng.below(4) as usize];
        if options.get(name).is_ok() {
            options.set(name, value).expect("values that the table allows");
        }
    }
}

/// Shards, and how their clues are handled. Returns how many of a thousand values are redirected.
fn shards(options: &mut Options, rng: &mut SplitMix64) -> u64 {
    let mut one_of = |choices: &[u64]| choices[rng.below(choices.len() as u64) as usize];
    options.shards = one_of(&[1, 2, 4, 8]) as usize;
    options.clue_capping = one_of(&[1, 1, 0]) == 1;
    options.rollback = one_of(&[1, 1, 0]) == 1;
    options.clues_max = one_of(&[30, 1_000_000]);
    options.clue_cache = one_of(&[1, 0]) == 1;
    options.clue_reserve_bytes = one_of(&[4, 64]) << 10;
    one_of(&[0, 100, 300, 700])
}

/// The text log: in half of the runs, in small files, few of them.
fn info_log(options: &mut Options, rng: &mut SplitMix64) {
    let levels = [InfoLogLevel::Off, InfoLogLevel::Off, InfoLogLevel::Info, InfoLogLevel::Debug];
    options.info_log_level = levels[rng.below(4) as usize];
    options.max_log_file_size = [4 << 10, 64 << 10][rng.below(2) as usize];
    options.keep_log_file_num = 1 + rng.below(3) as usize;
    options.stats_dump_period_sec = [0, 1][rng.below(2) as usize];
}

/// The directories of shards, on other devices for all the engine knows: none in half of the runs, else
/// two or three, in any order, the database's own among them in some.
fn shard_dirs(rng: &mut SplitMix64) -> Vec<PathBuf> {
    let mut dirs = vec!["/disk1/a", "/disk2/deep/b", DIR];
    let first = rng.below(3) as usize;
    dirs.rotate_left(first);
    dirs.truncate(2 + rng.below(2) as usize);
    if rng.chance(1, 2) { dirs.iter().map(PathBuf::from).collect() } else { Vec::new() }
}

/// Settings under which a few hundred writes flush, compact and turn log segments over.
fn options(rng: &mut SplitMix64) -> Options {
    let mut one_of = |choices: &[u64]| choices[rng.below(choices.len() as u64) as usize];
    let trigger = one_of(&[1, 2, 3]) as usize;
    let codec = |n| if n == 0 { Compression::None } else { Compression::Lz4 };
    Options {
        write_buffer_bytes: one_of(&[64, 64, 96, 128]) << 10,
        write_buffers_total_bytes: one_of(&[0, 0, 192, 320]) << 10,
        write_buffers_max: one_of(&[2, 3, 4]) as usize,
        table_bytes: one_of(&[64, 64, 128]) << 10,
        block_bytes: one_of(&[256, 1024, 4096]),
        level0_compaction_trigger: trigger,
        level0_slowdown_trigger: trigger + 3,
        level0_patience: one_of(&[0, 1]) == 1,
        level0_stop_trigger: trigger + one_of(&[4, 8]) as usize,
        level_base_bytes: one_of(&[64, 128, 256]) << 10,
        level_multiplier: one_of(&[2, 3, 5]) as f64,
        log_segment_bytes: one_of(&[64, 96, 256]) << 10,
        log_recycle_max: one_of(&[0, 2, 4]) as usize,
        log_total_bytes_max: 1 << 20,
        subcompactions_max: one_of(&[1, 2, 3]) as usize,
        background_jobs_max: one_of(&[2, 3, 4]) as usize,
        max_write_group_bytes: one_of(&[4, 64, 1024]) << 10,
        filter_bits_per_key: one_of(&[0, 10]) as f64,
        open_tables_max: one_of(&[16, 64]) as usize,
        block_cache_bytes: one_of(&[0, 1 << 20]),
        compression: codec(one_of(&[0, 1])),
        compression_bottom: codec(one_of(&[0, 1])),
        merge_operator: Some(merge_operator::append(b"+")),
        ..Options::default()
    }
}
