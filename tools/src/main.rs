//! The program `dialsm`: hands its arguments and streams to the library and exits with its code.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

use std::ffi::OsString;
use std::io::{BufWriter, IsTerminal, Write};
use std::process::ExitCode;

use dialsm_io::OsEnv;
use dialsm_tools::cli;
use dialsm_tools::commands::{Streams, run};
use dialsm_tools::engine::Engine;
use dialsm_tools::exit::Failure;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let json = cli::wants_json(&args);
    let (stdout, stderr) = (std::io::stdout(), std::io::stderr());
    let stdout_is_terminal = stdout.is_terminal();
    let mut out = BufWriter::with_capacity(256 << 10, stdout.lock());
    let mut streams = Streams {
        stdin: &mut std::io::stdin().lock(),
        stdout: &mut out,
        stderr: &mut stderr.lock(),
        stdout_is_terminal,
        stderr_is_terminal: stderr.is_terminal(),
    };
    let engine = Engine::new(OsEnv::new());
    let outcome = cli::parse(args).and_then(|invocation| run(&invocation, &engine, &mut streams));
    // What was printed before a failure stands. A pipe that broke is told once.
    let outcome = match out.flush() {
        Err(error) if outcome.is_ok() => Err(Failure::Output(error)),
        _ => outcome,
    };
    let Err(failure) = outcome else {
        return ExitCode::SUCCESS;
    };
    if let Some(report) = failure.report(json) {
        // Nobody is left to tell if standard error is gone as well.
        let _ = writeln!(std::io::stderr(), "{report}");
    }
    ExitCode::from(failure.exit_code())
}
