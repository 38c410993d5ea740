//! The program `dialsm-stress`: see `dialsm_tools::stress`.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

use std::io::{self, Write};
use std::process::ExitCode;

use dialsm_tools::stress::args::{Command, USAGE, parse};
use dialsm_tools::stress::report::series;
use dialsm_tools::stress::{kill, soak};

fn main() -> ExitCode {
    let command = match parse(std::env::args_os().skip(1).collect()) {
        Ok(command) => command,
        Err(error) => {
            eprintln!("dialsm-stress: {error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("dialsm-stress: {error}");
            ExitCode::from(3)
        }
    }
}

/// Whether all is well.
fn run(command: &Command) -> io::Result<bool> {
    if let Command::Child(args) = command {
        // Its threads print, too.
        return kill::child(args).map(|()| true);
    }
    let mut out = io::stdout().lock();
    match command {
        Command::Child(_) => Ok(false),
        Command::Soak(args) => soak::soak(args, &mut out),
        Command::Kill(kills) => {
            let program = std::env::current_exe()?;
            kill::kill(kills, &program, &mut out).map(|tally| tally.is_success())
        }
        Command::Help => out.write_all(USAGE.as_bytes()).map(|()| true),
        Command::Sim(runs) => series(runs, &mut out).map(|(tally, _)| tally.is_success()),
    }
}
