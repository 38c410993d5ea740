//! The end of the page: commands, the machine, what looking cost, and the options of the engines.

use super::Origin;
use super::html::{Cell, Html};
use super::sections::{Page, headings};
use crate::environment::{Environment, date};
use crate::plot::trim;
use crate::report::{count, figure};
use crate::result::Run;

impl Page<'_> {
    pub(super) fn provenance(&self, body: &mut Html) {
        body.heading("h2", "provenance", "How it was measured");
        body.paragraph(
            "Engines take turns, each engine and round in a process of its own on the system's allocator, with the same \
             calls, totals and threads.",
        );
        for origin in self.origins {
            if let Some(file) = &origin.file {
                body.element("h3", &format!("File {file}"));
            }
            if self.origins.len() > 1 {
                command(body, origin);
            }
            match &origin.environment {
                Some(environment) => body.table(
                    "Environment",
                    &headings("environment", ["as found"]),
                    &environment_rows(environment),
                ),
                None => body.class("p", "muted", "The environment was not recorded."),
            }
            if origin.generator_ops_per_sec > 0.0 {
                body.paragraph(&format!(
                    "Keys and values alone: {} a second on one thread.",
                    count(origin.generator_ops_per_sec)
                ));
            }
        }
        body.paragraph(&self.cost_of_sampling());
        body.element("h3", "Options in effect");
        for engine in self.engines {
            if let Some(run) = self.figures.report.runs.iter().find(|run| run.engine == *engine) {
                body.details(engine, |body| body.literal(&run.options));
            }
        }
    }

    /// The highest share of a run that looking took, of one processor.
    fn cost_of_sampling(&self) -> String {
        let of_run = |run: &Run| Some((run.sampling_seconds? / run.seconds, run.samples.len()));
        let all = self.figures.report.runs.iter().filter_map(of_run);
        let most = all.filter(|(share, _)| share.is_finite()).max_by(|a, b| a.0.total_cmp(&b.0));
        match most {
            Some((share, looks)) => format!(
                "Stalls, shards, CPU, memory and bytes were looked at by a thread of the engine's process. In the run where \
                 that took most, {looks} looks took {} % of the time, waiting for locks and processors included.",
                trim(100.0 * share)
            ),
            None => "Nothing was looked at during the runs, so there is less to see over time.".into(),
        }
    }
}

pub(super) fn command(body: &mut Html, origin: &Origin) {
    match origin.command.is_empty() {
        true => body.class("p", "muted", "The command was not recorded."),
        false => body.command(&shell_words(&origin.command)),
    }
}

/// The command as a shell takes it.
fn shell_words(words: &[String]) -> Vec<String> {
    let quoted = |word: &String| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=+:,./@%".contains(c);
        match word.is_empty() || !word.chars().all(is_plain) {
            true => format!("'{}'", word.replace('\'', "'\\''")),
            false => word.clone(),
        }
    };
    words.iter().map(quoted).collect()
}

fn environment_rows(environment: &Environment) -> Vec<(String, Vec<Cell>)> {
    let processors = format!("{}, {} processors", environment.cpu, environment.processors);
    let memory = format!("{} GiB", figure(environment.memory_bytes as f64 / (1u64 << 30) as f64));
    let revision = match environment.revision.as_str() {
        "" => "not known".to_owned(),
        revision => format!("{revision} (changes on top of it do not show)"),
    };
    let all = [
        ("begun", date(environment.unix_seconds)),
        ("CPU", processors),
        ("memory", memory),
        ("kernel", environment.kernel.clone()),
        ("file system", environment.file_system.clone()),
        ("program", environment.program.clone()),
        ("revision", revision),
        ("compiler", environment.compiler.clone()),
    ];
    all.into_iter().map(|(name, value)| (name.to_owned(), vec![Cell::Words(value)])).collect()
}
