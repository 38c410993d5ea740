//! `dialsm-bench`: workloads of db_bench and YCSB on several engines, side by side.
//!
//! ```text
//!   flags, config   what is asked                 suite     a named list of such runs
//!   compare         engines in turns, rounds      child     one engine, one round, one process
//!   session         workloads on one database     runner    threads     ops      their loops
//!   workload, ycsb, generate, pace                what is done, and when
//!   engine, engines/*                             on what it is done
//!   record, measure, sample, disk, live, sys      what is noted         cgroup  within what memory
//!   environment                                   where it was
//!   result, stats, report, markdown, plot, page   what is told
//! ```
//! Exit codes: 0 done, 1 a run failed, 2 the words cannot be understood.
//!
//! Fairness is in the design: every engine gets the same calls, totals and threads, a process of its
//! own on the system's allocator, and its turn in every round.

#![deny(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod cgroup;
mod child;
mod compare;
mod config;
mod disk;
mod engine;
mod engines;
mod environment;
mod flags;
mod generate;
mod live;
mod markdown;
mod measure;
mod ops;
mod pace;
mod page;
mod plot;
mod progress;
mod record;
mod report;
mod result;
mod runner;
mod sample;
mod session;
mod stats;
mod suite;
#[allow(unsafe_code)] // Calls of libc.
mod sys;
mod tempdir;
mod workload;
mod ycsb;

use anyhow::{Context, Result};
use config::Config;
use flags::Command;
use std::process::ExitCode;

const USAGE_ERROR: u8 = 2;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let command = match flags::parse(&words) {
        Ok(command) => command,
        Err(error) => {
            eprintln!("dialsm-bench: {error:#}");
            return ExitCode::from(USAGE_ERROR);
        }
    };
    let done = match command {
        Command::Help => {
            print!("{}", flags::help());
            Ok(true)
        }
        Command::Child(job) => child::serve(&job),
        Command::Run(config) => run(&config).map(|()| true),
        Command::Report { dir, files } => page::of_files(&dir, &files).map(|()| true),
        Command::Suite { name, words, config } => suite::run(&name, &words, &config).map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        // A child has told its parent already.
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("dialsm-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(config: &Config) -> Result<()> {
    let report = compare::compare(config)?;
    print!("{}", report::table(&report, &config.engines));
    if let Some(path) = &config.json {
        let text = serde_json::to_vec(&report)?;
        std::fs::write(path, text).with_context(|| format!("--json {}", path.display()))?;
    }
    if let Some(dir) = &config.plot {
        plot::write_all(&report, &config.engines, dir)
            .with_context(|| format!("--plot {}", dir.display()))?;
    }
    if let Some(dir) = &config.report {
        page::write(&report, dir).with_context(|| format!("--report {}", dir.display()))?;
    }
    Ok(())
}
