//! Tells the program which commit its sources were at and what compiled it, for the record of its runs.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Grows with every commit and every switch. Where there is no repository, the revision is not known.
    if let Some(log) = output("git", &["rev-parse", "--git-path", "logs/HEAD"])
        && std::path::Path::new(&log).exists()
    {
        println!("cargo::rerun-if-changed={log}");
    }
    let revision = output("git", &["rev-parse", "--short=12", "HEAD"]).unwrap_or_default();
    println!("cargo::rustc-env=DIALSM_BENCH_REVISION={revision}");
    let compiler = std::env::var("RUSTC").ok().and_then(|rustc| output(&rustc, &["--version"]));
    println!("cargo::rustc-env=DIALSM_BENCH_COMPILER={}", compiler.unwrap_or_default());
}

/// The first line that a program writes, if it succeeds.
fn output(program: &str, words: &[&str]) -> Option<String> {
    let output = Command::new(program).args(words).output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()?.lines().next().map(str::to_owned)
}
