//! The command line of `dialsm-stress`.

use std::ffi::OsString;
use std::path::PathBuf;

use dialsm_core::fault::Fault;
use lexopt::prelude::*;

use super::kill::{CHILD, ChildArgs, Kills};
use super::profile::Fixed;
use super::report::Series;
use super::soak::Soak;

/// How to use the program.
pub const USAGE: &str = "\
dialsm-stress: a random workload beside a model

  dialsm-stress sim  [--seed N] [--runs M] [--cuts-per-run K] [--break NAME] [--options k=v,...]
                     [--threads N] [--writes N] [--keyspaces N] [--generations N]
                     [--log on|off] [--no-faults] [--no-extras] [--no-shrink] [--failures-max N] [--verbose]
      The engine in a simulation, its power cut at random calls. Same seed, same run. Without --log one
      run in three has no log; then what is left of each tree is judged by its floor. NAME is a step
      that the engine leaves out on purpose: dir-sync, early-unlink, fsync-retry, lost-clues (without
      log) or early-collect; it must be found.
      Ends in the line
      sim: N cuts, W synced writes checked, B unsynced bytes dropped, H hand-offs cut, V violations
      and fails where one of the first four is zero, or the last is not.

  dialsm-stress kill --dir D [--runs M] [--seed N]
      Child processes on the real file system, killed at random moments: what they acknowledged is
      there. Ends in the line
      kill: K kills, A acknowledged writes checked, V violations

  dialsm-stress soak --dir D [--minutes M] [--value-bytes N] [--keys N] [--threads N] [--seed N]
                     [--no-log] [--options k=v,...]
      Full speed over a fixed range of keys; what must stay bounded is looked at each second. Ends in
      soak: M minutes, P puts, retained max R of B, in flight max F of G, open files max O of Q, V violations
";

/// What to do.
#[derive(Clone, Debug)]
pub enum Command {
    /// Show how to use the program.
    Help,
    /// The simulation.
    Sim(Series),
    /// Killed child processes.
    Kill(Kills),
    /// Such a child.
    Child(ChildArgs),
    /// Full speed.
    Soak(Soak),
}

/// Reads the arguments.
///
/// # Errors
/// What is wrong with them.
pub fn parse(args: Vec<OsString>) -> Result<Command, lexopt::Error> {
    let mut parser = lexopt::Parser::from_args(args);
    match parser.next()? {
        Some(Value(word)) if word == "sim" => sim(&mut parser).map(Command::Sim),
        Some(Value(word)) if word == "kill" => kill(&mut parser).map(Command::Kill),
        Some(Value(word)) if word == "soak" => soak(&mut parser).map(Command::Soak),
        Some(Value(word)) if word == CHILD => child(&mut parser).map(Command::Child),
        Some(Long("help") | Short('h')) | None => Ok(Command::Help),
        Some(other) => Err(other.unexpected()),
    }
}

fn sim(parser: &mut lexopt::Parser) -> Result<Series, lexopt::Error> {
    let fixed = Fixed { cuts: 40, ..Fixed::default() };
    let mut series = Series { seed: 1, runs: 10, fixed, failures_max: 5, shrink: true, verbose: false };
    while let Some(arg) = parser.next()? {
        let fixed = &mut series.fixed;
        match arg {
            Long("seed") => series.seed = parser.value()?.parse()?,
            Long("runs") => series.runs = parser.value()?.parse()?,
            Long("cuts-per-run") => fixed.cuts = parser.value()?.parse()?,
            Long("threads") => fixed.threads = Some(parser.value()?.parse()?),
            Long("writes") => fixed.writes = Some(parser.value()?.parse()?),
            Long("keyspaces") => fixed.keyspaces = Some(parser.value()?.parse()?),
            Long("generations") => fixed.generations = Some(parser.value()?.parse_with(at_least_one)?),
            Long("log") => fixed.log = Some(parser.value()?.parse_with(on_or_off)?),
            Long("no-faults") => fixed.without_faults = true,
            Long("no-extras") => fixed.without_extras = true,
            Long("no-shrink") => series.shrink = false,
            Long("verbose") => series.verbose = true,
            Long("failures-max") => series.failures_max = parser.value()?.parse_with(at_least_one)?,
            Long("break") => {
                let by_name = |name: &str| Fault::by_name(name).ok_or("no such fault");
                fixed.broken = Some(parser.value()?.parse_with(by_name)?);
            }
            Long("options") => fixed.options = parser.value()?.parse_with(pairs)?,
            other => return Err(other.unexpected()),
        }
    }
    Ok(series)
}

fn kill(parser: &mut lexopt::Parser) -> Result<Kills, lexopt::Error> {
    let (mut dir, mut runs, mut seed) = (None, 20, 1);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("dir") => dir = Some(parser.value()?.into()),
            Long("runs") => runs = parser.value()?.parse()?,
            Long("seed") => seed = parser.value()?.parse()?,
            other => return Err(other.unexpected()),
        }
    }
    Ok(Kills { dir: required(dir)?, runs, seed })
}

fn child(parser: &mut lexopt::Parser) -> Result<ChildArgs, lexopt::Error> {
    let (mut dir, mut generation, mut seed) = (None, 0, 1);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("dir") => dir = Some(parser.value()?.into()),
            Long("generation") => generation = parser.value()?.parse()?,
            Long("seed") => seed = parser.value()?.parse()?,
            other => return Err(other.unexpected()),
        }
    }
    Ok(ChildArgs { dir: required(dir)?, seed, generation })
}

fn soak(parser: &mut lexopt::Parser) -> Result<Soak, lexopt::Error> {
    let mut soak = Soak {
        dir: PathBuf::new(),
        minutes: 10.0,
        value_bytes: 1000,
        keys: 1_000_000,
        threads: 4,
        log: true,
        options: Vec::new(),
        seed: 1,
    };
    let mut dir = None;
    while let Some(arg) = parser.next()? {
        match arg {
            Long("dir") => dir = Some(parser.value()?.into()),
            Long("minutes") => soak.minutes = parser.value()?.parse_with(minutes)?,
            Long("value-bytes") => soak.value_bytes = parser.value()?.parse()?,
            Long("keys") => soak.keys = parser.value()?.parse_with(at_least_one)?,
            Long("threads") => soak.threads = parser.value()?.parse_with(at_least_one)?,
            Long("seed") => soak.seed = parser.value()?.parse()?,
            Long("no-log") => soak.log = false,
            Long("options") => soak.options = parser.value()?.parse_with(pairs)?,
            other => return Err(other.unexpected()),
        }
    }
    Ok(Soak { dir: required(dir)?, ..soak })
}

fn minutes(text: &str) -> Result<f64, String> {
    let minutes: f64 = text.parse().map_err(|_| "it is no number".to_owned())?;
    if minutes > 0.0 && minutes < 1e5 { Ok(minutes) } else { Err("it must be above 0".to_owned()) }
}

fn at_least_one(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(0) => Err("it must be 1 or more".to_owned()),
        Ok(n) => Ok(n),
        Err(e) => Err(format!("{e}")),
    }
}

fn on_or_off(text: &str) -> Result<bool, &'static str> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("it must be on or off"),
    }
}

/// `k=v,...`
fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let pair = |part: &str| {
        let (name, value) = part.split_once('=').ok_or_else(|| format!("{part:?} is no NAME=VALUE"))?;
        Ok((name.trim().to_owned(), value.trim().to_owned()))
    };
    text.split(',').filter(|part| !part.is_empty()).map(pair).collect()
}

/// A directory argument that must be there.
fn required(dir: Option<PathBuf>) -> Result<PathBuf, lexopt::Error> {
    dir.ok_or_else(|| "--dir is missing".into())
}
