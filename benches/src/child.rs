//! Each engine and round runs in a process of its own.
//!
//! ```text
//!   parent: job file ── this program again, hidden flag ── child: runs, result file ── parent: reads
//! ```
//! So no engine finds memory, threads or files of another, and a crash ends one run only. The
//! allocator is the system's in every child.

use crate::cgroup::{self, MemoryGroup};
use crate::config::Config;
use crate::progress::{Bar, Counter, start_ticker};
use crate::result::Run;
use crate::session;
use crate::sys;
use crate::tempdir::TempDir;
use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;

/// The hidden flag; the job file's name follows.
pub(crate) const JOB_FLAG: &str = "--child-job";

/// What a child is told.
#[derive(Serialize, Deserialize)]
pub(crate) struct ChildJob {
    pub(crate) config: Config,
    pub(crate) engine: String,
    pub(crate) round: u32,
    pub(crate) dir: PathBuf,
    /// The open loop's rates by workload, where they are found by the program.
    pub(crate) rates: BTreeMap<String, f64>,
    out: PathBuf,
    group: Option<PathBuf>,
    ticks: bool,
}

/// What a child answers.
#[derive(Serialize, Deserialize)]
enum Answer {
    Runs(Vec<Run>),
    Failed(String),
}

impl ChildJob {
    pub(crate) fn new(
        config: Config,
        engine: &str,
        round: u32,
        dir: PathBuf,
        rates: BTreeMap<String, f64>,
    ) -> ChildJob {
        ChildJob {
            config,
            engine: engine.to_owned(),
            round,
            dir,
            rates,
            out: PathBuf::new(),
            group: None,
            ticks: false,
        }
    }

    /// Runs it in a child and waits; `title` stands before the progress bar.
    ///
    /// # Errors
    /// What the child says failed, or how it ended without a word.
    pub(crate) fn run(mut self, title: &str) -> Result<Vec<Run>> {
        let exchange = TempDir::new()?;
        let group = self.config.memory_limit.map(MemoryGroup::new).transpose()?;
        self.out = exchange.path().join("answer.json");
        self.group = group.as_ref().map(|group| group.path().to_owned());
        self.ticks = Bar::wanted();
        let job_file = exchange.path().join("job.json");
        std::fs::write(&job_file, serde_json::to_vec(&self)?)?;

        // The running program itself, even if the file of its name has been replaced since.
        let mut child = Command::new("/proc/self/exe")
            .arg(JOB_FLAG)
            .arg(&job_file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a child process")?;
        let stdout = child.stdout.take().expect("the child's output was asked to be piped");
        let mut bar = Bar::new(title.to_owned());
        for line in BufReader::new(stdout).lines() {
            bar.show(&line?);
        }
        drop(bar);
        let status = child.wait()?;
        self.read_answer(status)
    }

    fn read_answer(&self, status: ExitStatus) -> Result<Vec<Run>> {
        let Ok(answer) = std::fs::read(&self.out) else {
            bail!("{}: {}", self.engine, how_it_ended(status, self.config.memory_limit));
        };
        match serde_json::from_slice(&answer).context("the child's answer cannot be read")? {
            Answer::Runs(runs) => Ok(runs),
            Answer::Failed(why) => Err(anyhow!(why)),
        }
    }
}

fn how_it_ended(status: ExitStatus, memory_limit: Option<u64>) -> String {
    match (status.signal(), memory_limit) {
        (Some(9), Some(limit)) => {
            format!("the run was killed; {limit} bytes of memory may be too few for it")
        }
        (Some(signal), _) => format!("the run was ended by signal {signal}"),
        (None, _) => format!("the run ended without an answer ({status})"),
    }
}

/// The child's side: does what a job file says and writes the answer.
///
/// # Errors
/// The job cannot be read or the answer not be written; a failed run is an answer.
pub(crate) fn serve(job_file: &Path) -> Result<bool> {
    sys::die_with_parent();
    let job: ChildJob =
        serde_json::from_slice(&std::fs::read(job_file)?).context("the job cannot be read")?;
    let answer = match serve_job(&job) {
        Ok(runs) => Answer::Runs(runs),
        Err(error) => Answer::Failed(format!("{error:#}")),
    };
    let partial = job.out.with_extension("part");
    std::fs::write(&partial, serde_json::to_vec(&answer)?)?;
    std::fs::rename(&partial, &job.out)?;
    Ok(matches!(answer, Answer::Runs(_)))
}

fn serve_job(job: &ChildJob) -> Result<Vec<Run>> {
    if let Some(group) = &job.group {
        cgroup::join(group)?;
    }
    let counter = Arc::new(Counter::new());
    if job.ticks {
        start_ticker(counter.clone())?;
    }
    session::run_all(&job.engine, &job.dir, &job.config, &job.rates, job.round, &counter)
}
