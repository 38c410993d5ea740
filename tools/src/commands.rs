//! What each command does, given a way to open databases and three streams.

use std::io::{BufRead, Read as _, Write};

use dialsm_core::{Error, Options, Result};

use crate::cli::{Command, Database, Invocation, usage};
use crate::exit::{Failure, Outcome};
use crate::inspect::{self, Printer};
use crate::store::{Op, OpenMode, Opener, StatsForm, Store};
use crate::text::{Encoding, Format};

mod admin;
mod load;
mod scan;
#[cfg(test)]
mod tests;

/// Where commands read and write.
pub struct Streams<'a> {
    /// Standard input.
    pub stdin: &'a mut dyn BufRead,
    /// Standard output.
    pub stdout: &'a mut dyn Write,
    /// Standard error.
    pub stderr: &'a mut dyn Write,
    /// Whether a person reads standard output.
    pub stdout_is_terminal: bool,
    /// Whether a person reads standard error.
    pub stderr_is_terminal: bool,
}

/// Runs a command.
///
/// # Errors
/// Why it did not do what was asked. What it wrote to standard output before stands.
pub fn run(invocation: &Invocation, opener: &dyn Opener, streams: &mut Streams<'_>) -> Outcome {
    let json = invocation.json;
    // A progress line has its place on a terminal that nothing else is printed to.
    let progress = streams.stderr_is_terminal && !invocation.quiet;
    let open = |db: &Database| open(opener, db, OpenMode::Existing);
    match &invocation.command {
        Command::Help => write!(streams.stdout, "{}", usage())?,
        Command::Version => writeln!(streams.stdout, "dialsm {}", env!("CARGO_PKG_VERSION"))?,
        Command::Load { db, files, format, batch_ops, sync } => {
            let store = self::open(opener, db, OpenMode::CreateIfMissing)?;
            let load =
                load::Load { files, format: *format, batch_ops: *batch_ops, sync: *sync, json, progress };
            with_store(store, |store| load.run(store, streams))?;
        }
        Command::Get { db, key, encoding } => {
            with_store(open(db)?, |store| get(store, key, *encoding, json, streams))?;
        }
        Command::Put { db, key, value, create, sync } => {
            let value = match value {
                Some(value) => value.clone(),
                None => read_value(streams)?,
            };
            let mode = if *create { OpenMode::CreateIfMissing } else { OpenMode::Existing };
            let op = Op::Put(key.clone(), value);
            with_store(self::open(opener, db, mode)?, |store| Ok(store.write(vec![op], *sync)?))?;
            done(json, streams)?;
        }
        Command::Delete { db, key, sync } => {
            let op = Op::Delete(key.clone());
            with_store(open(db)?, |store| Ok(store.write(vec![op], *sync)?))?;
            done(json, streams)?;
        }
        Command::Scan { db, range, limit, format } => {
            let progress = progress && !streams.stdout_is_terminal;
            let scan = scan::Scan { range, limit: *limit, format: *format, progress };
            with_store(open(db)?, |store| scan.run(store, streams))?;
        }
        Command::Stats { db, prometheus, property } => {
            let form = match (json, prometheus) {
                (_, true) => StatsForm::Prometheus,
                (true, false) => StatsForm::Json,
                (false, false) => StatsForm::Text,
            };
            // Looking must not change anything: no recovery, no new files, no compaction.
            let store = self::open(opener, db, OpenMode::ReadOnly)?;
            with_store(store, |store| admin::stats(store, property.as_deref(), form, streams))?;
        }
        Command::Compact { db, range } => {
            with_store(
                open(db)?,
                |store| Ok(store.compact(range.lower.as_deref(), range.upper.as_deref())?),
            )?;
            done(json, streams)?;
        }
        Command::Verify { db } => {
            with_store(open(db)?, |store| admin::verify(store, json, progress, streams))?
        }
        Command::DumpTable { file, summary } => {
            let mut printer = Printer::new(streams.stdout, json);
            inspect::table::dump(&*opener.fs(), file, *summary, &mut printer)?;
        }
        Command::DumpLog { file, summary } => {
            let mut printer = Printer::new(streams.stdout, json);
            inspect::log::dump(&*opener.fs(), file, *summary, &mut printer)?;
        }
        Command::DumpManifest { path } => {
            inspect::manifest::dump(&*opener.fs(), path, &mut Printer::new(streams.stdout, json))?;
        }
        Command::Model(model) => model.run(json, opener, streams.stdout)?,
        Command::Convert { files, input, output } => load::convert(files, *input, *output, streams)?,
    }
    streams.stdout.flush()?;
    Ok(())
}

/// Says in JSON that all went well; people need no telling.
fn done(json: bool, streams: &mut Streams<'_>) -> Outcome {
    if json {
        writeln!(streams.stdout, "{{\"ok\":true}}")?;
    }
    Ok(())
}

fn options_of(db: &Database) -> Result<Options> {
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    // Half a gibibyte: a tool beside a running system should not take an eighth of the machine.
    let mut options = Options::for_machine(cores, 512 << 20);
    if let Some(path) = &db.options_file {
        let text =
            std::fs::read_to_string(path).map_err(|error| Error::io(&error, "read the options", path))?;
        options.apply_text(&text).map_err(|error| error.at_path(path))?;
    }
    for (name, value) in &db.settings {
        options.set(name, value)?;
    }
    options.validate()?;
    Ok(options)
}

fn open(opener: &dyn Opener, db: &Database, mode: OpenMode) -> Result<Box<dyn Store>> {
    opener.open(&db.path, options_of(db)?, mode)
}

/// Does `work` and closes the database whatever came of it. The first failure counts: a close that
/// fails after the work did adds nothing that helps.
fn with_store(store: Box<dyn Store>, work: impl FnOnce(&dyn Store) -> Outcome) -> Outcome {
    let outcome = work(&*store);
    let closed = store.close();
    outcome?;
    Ok(closed?)
}

fn get(store: &dyn Store, key: &[u8], encoding: Encoding, json: bool, streams: &mut Streams<'_>) -> Outcome {
    let value = store.get(key)?.ok_or(Failure::Absent)?;
    if json {
        return Ok(Format::Json.write_entry(streams.stdout, key, &value, &mut Vec::new())?);
    }
    streams.stdout.write_all(&encoding.encode(&value))?;
    // Raw bytes go to a file as they are; a terminal, and text, want an end of line.
    if encoding != Encoding::Raw || streams.stdout_is_terminal {
        streams.stdout.write_all(b"\n")?;
    }
    Ok(())
}

/// All of standard input as one value.
fn read_value(streams: &mut Streams<'_>) -> Result<Vec<u8>> {
    let max = dialsm_core::key::VALUE_BYTES_MAX as u64;
    let mut value = Vec::new();
    let read = (&mut *streams.stdin).take(max + 1).read_to_end(&mut value);
    read.map_err(|error| Error::io(&error, "read the value", "standard input".as_ref()))?;
    if value.len() as u64 > max {
        return Err(Error::new(
            dialsm_core::ErrorKind::TooLarge,
            format!("the value on standard input has more than {max} bytes"),
        ));
    }
    Ok(value)
}
