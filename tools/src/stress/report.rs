//! Many runs of the simulation, what they come to, and for a violation a smaller run that shows one, too.

use std::io::{self, Write};
use std::time::Instant;

use super::book::fold;
use super::profile::{Fixed, Profile};
use super::sim::{Outcome, Tally, run};

/// How many runs are tried to find a smaller one.
const SHRINKS_MAX: usize = 16;

/// Which runs to make.
#[derive(Clone, Debug)]
pub struct Series {
    /// The first seed.
    pub seed: u64,
    /// How many seeds.
    pub runs: u64,
    /// What is fixed.
    pub fixed: Fixed,
    /// Stop after so many runs with violations.
    pub failures_max: u64,
    /// Look for smaller runs.
    pub shrink: bool,
    /// A line for each run.
    pub verbose: bool,
}

/// Makes the runs and prints what they come to; the last line is [`Tally::line`]. The answer is the sum
/// and a hash of all runs.
///
/// # Errors
/// Those of the output, and of options that do not fit.
pub fn series(series: &Series, out: &mut dyn Write) -> io::Result<(Tally, u64)> {
    let started = Instant::now();
    let (mut total, mut digest, mut failures) = (Tally::default(), 0, 0);
    for seed in series.seed..series.seed + series.runs {
        let profile = Profile::of(seed, &series.fixed).map_err(|e| io::Error::other(e.to_string()))?;
        let outcome = run(&profile, false);
        digest = fold(digest, &[outcome.digest]);
        total.add(&outcome.tally);
        if series.verbose {
            writeln!(
                out,
                "seed {seed}: digest {:016x}, {} steps, {}",
                outcome.digest,
                outcome.tally.steps,
                outcome.tally.line()
            )?;
        }
        if !outcome.violations.is_empty() {
            failures += 1;
            show_failure(series, seed, &outcome, out)?;
        }
        if failures >= series.failures_max {
            writeln!(out, "stopped after {failures} runs with violations")?;
            break;
        }
        if (seed - series.seed + 1).is_multiple_of(25) {
            let seconds = started.elapsed().as_secs_f64();
            writeln!(out, "{} runs, {} cuts, {seconds:.0} s", seed - series.seed + 1, total.cuts)?;
            out.flush()?;
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    writeln!(
        out,
        "{} writes, {} flushes, {} compactions, {} faults, {} checkpoints, {} second cuts, {:.1} cuts/s",
        total.writes,
        total.flushes,
        total.compactions,
        total.faults,
        total.checkpoints,
        total.second_cuts,
        total.cuts as f64 / seconds
    )?;
    for line in [total.logged.line("with log"), total.unlogged.line("without log")].into_iter().flatten() {
        writeln!(out, "{line}")?;
    }
    writeln!(out, "digest {digest:016x}")?;
    writeln!(out, "{}", total.line())?;
    Ok((total, digest))
}

fn show_failure(series: &Series, seed: u64, outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    for violation in &outcome.violations {
        writeln!(out, "VIOLATION seed {seed}: {}", violation.what)?;
    }
    let mut fixed = series.fixed.clone();
    if series.shrink {
        fixed = shrink(seed, fixed);
    }
    writeln!(out, "  again: dialsm-stress sim --seed {seed} --runs 1{}", flags(&fixed))?;
    let Ok(profile) = Profile::of(seed, &fixed) else { return Ok(()) };
    let replay = run(&profile, true);
    let Some(violation) = replay.violations.first() else {
        return writeln!(out, "  the run made again shows nothing: it is not the same run");
    };
    writeln!(out, "  {} users, {} batches each, rules {:?}", profile.threads, profile.writes, profile.rules)?;
    writeln!(out, "  {}", violation.what)?;
    for line in &violation.history {
        writeln!(out, "    {line}")?;
    }
    out.flush()
}

/// A smaller run of the same seed that still shows a violation.
fn shrink(seed: u64, mut fixed: Fixed) -> Fixed {
    let mut tried = 0;
    let mut fails = |candidate: &Fixed| {
        tried += 1;
        tried <= SHRINKS_MAX
            && Profile::of(seed, candidate).is_ok_and(|profile| !run(&profile, false).violations.is_empty())
    };
    for step in [
        |fixed: &mut Fixed, _: &Profile| fixed.generations = Some(1),
        |fixed: &mut Fixed, _: &Profile| fixed.without_extras = true,
        |fixed: &mut Fixed, _: &Profile| fixed.without_faults = true,
        |fixed: &mut Fixed, _: &Profile| fixed.keyspaces = Some(0),
        |fixed: &mut Fixed, _: &Profile| fixed.threads = Some(1),
        |fixed: &mut Fixed, profile: &Profile| fixed.writes = Some(profile.writes / 2),
        |fixed: &mut Fixed, profile: &Profile| fixed.writes = Some(profile.writes / 2),
        |fixed: &mut Fixed, profile: &Profile| fixed.writes = Some(profile.writes * 3 / 4),
    ] {
        let Ok(profile) = Profile::of(seed, &fixed) else { return fixed };
        let mut candidate = fixed.clone();
        step(&mut candidate, &profile);
        if fails(&candidate) {
            fixed = candidate;
        }
    }
    fixed
}

/// What is fixed, as arguments.
fn flags(fixed: &Fixed) -> String {
    let mut flags = format!(" --cuts-per-run {}", fixed.cuts);
    let mut number = |name: &str, value: Option<u64>| {
        if let Some(value) = value {
            flags += &format!(" --{name} {value}");
        }
    };
    number("threads", fixed.threads);
    number("writes", fixed.writes);
    number("keyspaces", fixed.keyspaces.map(u64::from));
    number("generations", fixed.generations);
    if let Some(log) = fixed.log {
        flags += if log { " --log on" } else { " --log off" };
    }
    if fixed.without_faults {
        flags += " --no-faults";
    }
    if fixed.without_extras {
        flags += " --no-extras";
    }
    if let Some(broken) = fixed.broken {
        flags += &format!(" --break {}", broken.name());
    }
    if !fixed.options.is_empty() {
        let pairs: Vec<String> =
            fixed.options.iter().map(|(name, value)| format!("{name}={value}")).collect();
        flags += &format!(" --options {}", pairs.join(","));
    }
    flags
}
