//! `dialsm-stress`: a fixed part of the simulation, the checker checked by faults of the engine, and the
//! program as a process.

use std::path::PathBuf;
use std::process::{Command, Output};

use dialsm_core::fault::Fault;
use dialsm_tools::stress::kill::{Kills, kill};
use dialsm_tools::stress::profile::{Fixed, Profile};
use dialsm_tools::stress::report::{Series, series};
use dialsm_tools::stress::sim::{Tally, run};

fn some(seed: u64, runs: u64, broken: Option<Fault>) -> Series {
    let fixed = Fixed { cuts: 30, broken, ..Fixed::default() };
    Series { seed, runs, fixed, failures_max: u64::MAX, shrink: false, verbose: true }
}

fn made(what: &Series) -> (Tally, String) {
    let mut out = Vec::new();
    let (tally, _) = series(what, &mut out).expect("a vector takes all");
    (tally, String::from_utf8(out).expect("text"))
}

#[test]
fn power_cuts_lose_nothing_that_was_promised() {
    let runs = 40;
    let (mut tally, text) = made(&some(1, runs, None));
    println!("{text}");
    assert!(tally.is_success(), "{text}");
    // A collection that runs by itself is rare, and most of all without a log: some more runs, for cuts in them.
    let fixed = Fixed { log: Some(false), ..some(0, 0, None).fixed };
    let (more, text) = made(&Series { fixed, ..some(40_000, 12, None) });
    println!("{text}");
    assert!(more.is_success(), "{text}");
    assert!(tally.cuts > 60 * runs && tally.second_cuts > 30 * runs, "{tally:?}");
    assert!(tally.synced_writes > 150 * runs && tally.dropped_bytes > 50_000 * runs, "{tally:?}");
    assert!(tally.handoffs > 8 * runs && tally.writes > 200 * runs, "{tally:?}");
    assert!(tally.flushes > 15 * runs && tally.compactions > 8 * runs, "{tally:?}");
    assert!(tally.faults > 2 * runs && tally.checkpoints > runs / 4, "{tally:?}");
    assert!(tally.runs_over_dirs > runs / 4, "{tally:?}");
    for clues in [&tally.logged, &tally.unlogged] {
        assert!(clues.runs >= runs / 5 && clues.cuts > 20 * clues.runs, "{clues:?}");
        assert!(clues.redirects > 50 * clues.runs && clues.rolled_back > 20 * clues.runs, "{clues:?}");
        assert!(clues.collected > 20 * clues.runs, "{clues:?}");
        // Cuts fell between the steps of each.
        assert!(clues.cut_redirects > 0 && clues.cut_rollbacks.iter().all(|n| *n > 0), "{clues:?}");
    }
    tally.add(&more);
    for clues in [&tally.logged, &tally.unlogged] {
        assert!(clues.cut_collections.iter().all(|n| *n > 0), "{clues:?}");
    }
    assert!(tally.unlogged.cut_voids > 0, "{tally:?}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let mut digests = std::collections::BTreeSet::new();
    for seed in 100..112 {
        let profile = Profile::of(seed, &Fixed { cuts: 20, ..Fixed::default() }).expect("options that fit");
        let (first, second) = (run(&profile, false), run(&profile, true));
        assert_eq!(first.digest, second.digest, "seed {seed}: the runs differ");
        assert_eq!(first.tally, second.tally, "seed {seed}: the runs differ");
        digests.insert(first.digest);
    }
    assert_eq!(digests.len(), 12, "two seeds gave the same run");
}

/// The checker is worth something only if it finds what is broken on purpose.
#[test]
fn each_step_left_out_on_purpose_is_found() {
    for fault in Fault::ALL {
        let (tally, text) = made(&some(1, 12, Some(fault)));
        let failed = (1..=12).filter(|seed| text.contains(&format!("VIOLATION seed {seed}:"))).count();
        println!("{}: {failed} of 12 seeds, {} violations", fault.name(), tally.violations);
        assert!(failed >= 2 && !tally.is_success(), "{}: {text}", fault.name());
    }
}

#[test]
fn a_violation_is_shown_with_a_smaller_run_that_has_one_too() {
    let what = Series { shrink: true, failures_max: 1, ..some(1, 5, Some(Fault::DirSync)) };
    let (_, text) = made(&what);
    assert!(text.contains("VIOLATION seed 1: "), "{text}");
    // Where the power was cut, and what the users had done: of the last lines alone, perhaps only an answer.
    let is_told = text.contains("to the log: ") || text.contains(": acknowledged ");
    assert!(text.contains("CUT, ") && is_told, "no history: {text}");
    let again = text.lines().find_map(|line| line.split_once("again: dialsm-stress ")).expect("how to").1;
    assert!(again.contains("--generations 1") && again.contains("--writes "), "not smaller: {again}");
    let output = stress(&again.split(' ').collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(1));
    assert!(last_line(&output).starts_with("sim: ") && !last_line(&output).ends_with(", 0 violations"));
}

fn stress(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dialsm-stress")).args(args).output().expect("the program was built")
}

fn last_line(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default().to_owned()
}

#[test]
fn the_last_line_and_the_exit_code_say_how_it_went() {
    let good = stress(&["sim", "--seed", "5", "--runs", "3", "--cuts-per-run", "20"]);
    let words: Vec<String> = last_line(&good).split(' ').map(str::to_owned).collect();
    assert_eq!(good.status.code(), Some(0), "{}", last_line(&good));
    let text: Vec<&str> = words.iter().map(String::as_str).filter(|w| w.parse::<u64>().is_err()).collect();
    let expected = "sim: cuts, synced writes checked, unsynced bytes dropped, hand-offs cut, violations";
    assert_eq!(text.join(" "), expected);
    // Nothing looked at is no success.
    let none = stress(&["sim", "--runs", "0"]);
    assert_eq!(none.status.code(), Some(1));
    assert_eq!(
        last_line(&none),
        "sim: 0 cuts, 0 synced writes checked, 0 unsynced bytes dropped, 0 hand-offs cut, 0 violations"
    );
    for wrong in [
        ["sim", "--break", "nothing"],
        ["sim", "--options", "no_such_option=1"],
        ["kill", "--runs", "3"],
        ["soak", "--minutes", "0"],
    ] {
        let output = stress(&wrong);
        assert!(output.status.code().is_some_and(|code| code > 1), "{wrong:?}");
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{wrong:?}");
    }
}

/// A directory of its own, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let dir = std::env::temp_dir().join(format!("dialsm-stress-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        Scratch(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn killed_processes_lose_nothing_that_was_acknowledged() {
    let scratch = Scratch::new("kill");
    let kills = Kills { dir: scratch.0.clone(), runs: 10, seed: 3 };
    let mut out = Vec::new();
    let program = PathBuf::from(env!("CARGO_BIN_EXE_dialsm-stress"));
    let tally = kill(&kills, &program, &mut out).expect("it runs");
    let text = String::from_utf8_lossy(&out);
    println!("{text}");
    assert!(tally.is_success(), "{text}");
    assert!(tally.kills == 10 && tally.acknowledged > 1000, "{tally:?}");
    assert_eq!(text.lines().last(), Some(&*tally.line()));
}

#[test]
fn a_short_soak_stays_within_bounds() {
    let scratch = Scratch::new("soak");
    let dir = scratch.0.to_string_lossy().into_owned();
    let options = "write_buffer_bytes=1M,table_bytes=1M,open_tables_max=16,log_segment_bytes=1M";
    let output = stress(&[
        "soak",
        "--dir",
        &dir,
        "--minutes",
        "0.05",
        "--keys",
        "5000",
        "--threads",
        "2",
        "--options",
        options,
    ]);
    let last = last_line(&output);
    assert_eq!(output.status.code(), Some(0), "{last}");
    assert!(last.starts_with("soak: 0.05 minutes, ") && last.ends_with(", 0 violations"), "{last}");
}
