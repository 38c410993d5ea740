//! The command line: arguments to a [`Command`], and the usage text from the same tables.
//!
//! Two tables, of commands and of flags, say what exists (`cli/tables.rs`); one loop reads any
//! command's arguments by them; one small function a command makes its parts into values. A flag
//! that the command does not know, a missing or an extra argument, or a text that is no value is a
//! usage error that names the flag, never the data.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::exit::Failure;
use crate::model::ModelArgs;
use crate::store::{Range, prefix_end};
use crate::text::{Encoding, Format};

mod tables;
#[cfg(test)]
mod tests;

pub use tables::usage;

/// What the user asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Show how to use the program.
    Help,
    /// Show its version.
    Version,
    /// Write the entries of files, or of standard input.
    Load {
        /// Where to.
        db: Database,
        /// The files; none or `-` means standard input.
        files: Vec<PathBuf>,
        /// What they hold.
        format: Format,
        /// Entries of one batch.
        batch_ops: usize,
        /// Whether each batch is synced.
        sync: bool,
    },
    /// Print the value of a key.
    Get {
        /// The database.
        db: Database,
        /// The key.
        key: Vec<u8>,
        /// How the value is printed.
        encoding: Encoding,
    },
    /// Set the value of a key.
    Put {
        /// The database.
        db: Database,
        /// The key.
        key: Vec<u8>,
        /// The value; standard input, whole, where it is absent.
        value: Option<Vec<u8>>,
        /// Create the database if it is missing.
        create: bool,
        /// Return only when it is on stable storage.
        sync: bool,
    },
    /// Remove a key.
    Delete {
        /// The database.
        db: Database,
        /// The key.
        key: Vec<u8>,
        /// Return only when it is on stable storage.
        sync: bool,
    },
    /// Print entries, `scan` and `dump` alike.
    Scan {
        /// The database.
        db: Database,
        /// Which, and which way.
        range: Range,
        /// At most this many.
        limit: Option<u64>,
        /// How.
        format: Format,
    },
    /// Print the engine's metrics, or one property.
    Stats {
        /// The database.
        db: Database,
        /// In Prometheus' text format.
        prometheus: bool,
        /// The property.
        property: Option<String>,
    },
    /// Compact a range.
    Compact {
        /// The database.
        db: Database,
        /// Which keys.
        range: Range,
    },
    /// Check everything.
    Verify {
        /// The database.
        db: Database,
    },
    /// Print what stands in a table.
    DumpTable {
        /// The file.
        file: PathBuf,
        /// Without the entries.
        summary: bool,
    },
    /// Print what stands in a log segment.
    DumpLog {
        /// The file.
        file: PathBuf,
        /// Without the operations.
        summary: bool,
    },
    /// Print what stands in a manifest.
    DumpManifest {
        /// The file, or the database's directory.
        path: PathBuf,
    },
    /// Turn entries of one format into another, without a database.
    Convert {
        /// The files; none or `-` means standard input.
        files: Vec<PathBuf>,
        /// What they hold.
        input: Format,
        /// What is printed.
        output: Format,
    },
    /// Predict stalls.
    Model(Box<ModelArgs>),
}

/// Which database, and with which options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Database {
    /// Its directory.
    pub path: PathBuf,
    /// A file of options in text form.
    pub options_file: Option<PathBuf>,
    /// Single options, applied after the file.
    pub settings: Vec<(String, String)>,
}

/// A parsed command line.
#[derive(Clone, Debug, PartialEq)]
pub struct Invocation {
    /// What to do.
    pub command: Command,
    /// Whether results and errors are JSON.
    pub json: bool,
    /// Whether the progress line is left out.
    pub quiet: bool,
}

/// Parses the arguments after the program's name.
///
/// # Errors
/// [`Failure::Usage`].
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Invocation, Failure> {
    let raw = Raw::read(args)?;
    let quiet = raw.has("quiet");
    let json = raw.has("json");
    let command = if raw.has("help") {
        Command::Help
    } else if raw.has("version") {
        Command::Version
    } else {
        raw.into_command()?
    };
    Ok(Invocation { command, json, quiet })
}

/// Whether the arguments ask for JSON, known even where they cannot be parsed.
pub fn wants_json<S: AsRef<OsStr>>(args: &[S]) -> bool {
    args.iter().map(AsRef::as_ref).take_while(|arg| *arg != "--").any(|arg| arg == "--json")
}

fn usage_error<T>(text: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Usage(text.into()))
}

/// Flags and arguments of one command, checked against the tables, values not yet read.
struct Raw {
    command: Option<&'static tables::CommandRow>,
    flags: BTreeMap<&'static str, Vec<OsString>>,
    args: Vec<OsString>,
}

impl Raw {
    fn read(args: impl IntoIterator<Item = OsString>) -> Result<Raw, Failure> {
        let mut parser = lexopt::Parser::from_args(args);
        let mut raw = Raw { command: None, flags: BTreeMap::new(), args: Vec::new() };
        let bad = |error: lexopt::Error| Failure::Usage(error.to_string());
        while let Some(arg) = parser.next().map_err(bad)? {
            let name = match arg {
                lexopt::Arg::Long(name) => name,
                lexopt::Arg::Short('h') => "help",
                lexopt::Arg::Short('V') => "version",
                lexopt::Arg::Short(letter) => return usage_error(format!("no flag -{letter}")),
                lexopt::Arg::Value(value) => {
                    raw.take_argument(value)?;
                    continue;
                }
            };
            let Some(flag) = tables::FLAGS.iter().find(|flag| flag.name == name) else {
                return usage_error(format!("no flag --{name}"));
            };
            let value = match flag.value {
                Some(_) => parser.value().map_err(bad)?,
                None => match parser.optional_value() {
                    None => OsString::new(),
                    Some(_) => return usage_error(format!("--{} takes no value", flag.name)),
                },
            };
            let values = raw.flags.entry(flag.name).or_default();
            if !values.is_empty() && !flag.repeats {
                return usage_error(format!("--{} is given twice", flag.name));
            }
            values.push(value);
        }
        if raw.has("help") || raw.has("version") {
            return Ok(raw);
        }
        raw.check()?;
        Ok(raw)
    }

    fn take_argument(&mut self, value: OsString) -> Result<(), Failure> {
        if self.command.is_some() {
            self.args.push(value);
            return Ok(());
        }
        match tables::COMMANDS.iter().find(|row| value == row.name) {
            Some(row) => self.command = Some(row),
            None => return usage_error(format!("no command {:?}", value.to_string_lossy())),
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Failure> {
        let Some(row) = self.command else {
            return usage_error("no command given");
        };
        for flag in self.flags.keys() {
            if !row.flags.contains(flag) && !tables::COMMON_FLAGS.contains(flag) {
                return usage_error(format!("{} takes no --{flag}", row.name));
            }
        }
        let given = self.args.len();
        if given < row.args_min || given > row.args_max {
            return usage_error(format!("usage: dialsm {} {}", row.name, row.args));
        }
        Ok(())
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.contains_key(flag)
    }

    fn value(&self, flag: &str) -> Option<&OsStr> {
        self.flags.get(flag).and_then(|values| values.first()).map(OsString::as_os_str)
    }

    fn text(&self, flag: &str) -> Result<Option<&str>, Failure> {
        match self.value(flag) {
            None => Ok(None),
            Some(value) => match value.to_str() {
                Some(text) => Ok(Some(text)),
                None => usage_error(format!("--{flag}: not UTF-8")),
            },
        }
    }

    fn number(&self, flag: &str) -> Result<Option<u64>, Failure> {
        match self.text(flag)? {
            None => Ok(None),
            Some(text) => match text.parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) => usage_error(format!("--{flag}: want a whole number")),
            },
        }
    }

    fn decimal(&self, flag: &str) -> Result<Option<f64>, Failure> {
        match self.text(flag)? {
            None => Ok(None),
            Some(text) => match text.parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) => usage_error(format!("--{flag}: want a number")),
            },
        }
    }

    /// A whole number that is small.
    fn count(&self, flag: &str) -> Result<Option<u32>, Failure> {
        let Some(number) = self.number(flag)? else { return Ok(None) };
        let too_large = |_| Failure::Usage(format!("--{flag}: {number} is too large"));
        u32::try_from(number).map(Some).map_err(too_large)
    }

    fn format(&self, flag: &str) -> Result<Format, Failure> {
        match self.text(flag)? {
            None if flag == "format" && self.has("json") => Ok(Format::Json),
            None => Ok(Format::Tsv),
            Some(name) => Format::from_name(name)
                .ok_or_else(|| Failure::Usage(format!("--{flag}: want tsv, json or hex"))),
        }
    }

    fn encoding(&self) -> Result<Encoding, Failure> {
        match self.text("encoding")? {
            None => Ok(Encoding::Raw),
            Some(name) => Encoding::from_name(name)
                .ok_or_else(|| Failure::Usage("--encoding: want raw, escaped, hex or base64".into())),
        }
    }

    fn decode(&self, what: &str, text: &OsStr) -> Result<Vec<u8>, Failure> {
        let encoding = self.encoding()?;
        encoding
            .decode(text.as_bytes())
            .map_err(|reason| Failure::Usage(format!("{what} as {}: {reason}", encoding.as_str())))
    }

    fn key(&self, flag: &str) -> Result<Option<Vec<u8>>, Failure> {
        self.value(flag).map(|text| self.decode(&format!("--{flag}"), text)).transpose()
    }

    fn range(&self) -> Result<Range, Failure> {
        let mut range =
            Range { lower: self.key("from")?, upper: self.key("to")?, reverse: self.has("reverse") };
        if let Some(prefix) = self.key("prefix")? {
            if range.lower.is_some() || range.upper.is_some() {
                return usage_error("--prefix cannot stand beside --from or --to");
            }
            range.upper = prefix_end(&prefix);
            range.lower = Some(prefix);
        }
        Ok(range)
    }

    fn database(&self) -> Result<Database, Failure> {
        let mut settings = Vec::new();
        for setting in self.flags.get("set").into_iter().flatten() {
            match setting.to_str().and_then(|text| text.split_once('=')) {
                Some((name, value)) => settings.push((name.trim().into(), value.trim().into())),
                None => return usage_error("--set: want NAME=VALUE"),
            }
        }
        let options_file = self.value("options").map(PathBuf::from);
        Ok(Database { path: PathBuf::from(&self.args[0]), options_file, settings })
    }

    fn files(&self, from: usize) -> Vec<PathBuf> {
        self.args[from..].iter().map(PathBuf::from).collect()
    }

    /// Makes the command; [`Raw::check`] has seen to the number of arguments.
    fn into_command(self) -> Result<Command, Failure> {
        let row = self.command.expect("checked when the arguments were read");
        let sync = self.has("sync");
        Ok(match row.name {
            "load" => self.load()?,
            "get" => Command::Get {
                db: self.database()?,
                key: self.decode("KEY", &self.args[1])?,
                encoding: self.encoding()?,
            },
            "put" => Command::Put {
                db: self.database()?,
                key: self.decode("KEY", &self.args[1])?,
                value: self.args.get(2).map(|text| self.decode("VALUE", text)).transpose()?,
                create: self.has("create"),
                sync,
            },
            "delete" => {
                Command::Delete { db: self.database()?, key: self.decode("KEY", &self.args[1])?, sync }
            }
            "scan" | "dump" => Command::Scan {
                db: self.database()?,
                range: self.range()?,
                limit: self.number("limit")?,
                format: self.format("format")?,
            },
            "stats" => self.stats()?,
            "compact" => Command::Compact { db: self.database()?, range: self.range()? },
            "verify" => Command::Verify { db: self.database()? },
            "dump-table" => {
                Command::DumpTable { file: PathBuf::from(&self.args[0]), summary: self.has("summary") }
            }
            "dump-log" => {
                Command::DumpLog { file: PathBuf::from(&self.args[0]), summary: self.has("summary") }
            }
            "dump-manifest" => Command::DumpManifest { path: PathBuf::from(&self.args[0]) },
            "model" => Command::Model(Box::new(self.model()?)),
            "convert" => Command::Convert {
                files: self.files(0),
                input: self.format("input")?,
                output: self.format("format")?,
            },
            _ => Command::Help,
        })
    }

    fn stats(&self) -> Result<Command, Failure> {
        let prometheus = self.has("prometheus");
        if prometheus && (self.has("json") || self.has("property")) {
            return usage_error("--prometheus cannot stand beside --json or --property");
        }
        let property = self.text("property")?.map(String::from);
        Ok(Command::Stats { db: self.database()?, prometheus, property })
    }

    fn load(&self) -> Result<Command, Failure> {
        // Here `--json` asks for the summary; what the files hold is said by `--format` alone.
        let format = if self.has("format") { self.format("format")? } else { Format::Tsv };
        let batch_ops = match self.number("batch")? {
            None => 1000,
            Some(n @ 1..=1_000_000) => n as usize,
            Some(_) => return usage_error("--batch: want 1 to 1000000"),
        };
        let (db, files, sync) = (self.database()?, self.files(1), self.has("sync"));
        Ok(Command::Load { db, files, format, batch_ops, sync })
    }

    fn model(&self) -> Result<ModelArgs, Failure> {
        Ok(ModelArgs {
            lambda: self.decimal("lambda")?,
            mu_flush: self.decimal("mu-flush")?,
            mu_l0: self.decimal("mu-l0")?,
            mu_deep: self.decimal("mu-deep")?,
            k: self.decimal("k")?,
            memtable: self.decimal("memtable")?,
            sst: self.decimal("sst")?,
            l0_trigger: self.count("l0-trigger")?,
            l0_stall: self.count("l0-stall")?,
            pending_limit: self.decimal("pending-limit")?,
            pending_drain: self.decimal("pending-drain")?,
            record_bytes: self.decimal("record-bytes")?,
            service_us: self.decimal("service-us")?,
            shards: self.count("shards")?,
            common_cause: self.decimal("common-cause")?,
            subcompactions: self.count("subcompactions")?,
            parallel_share: self.decimal("parallel-share")?,
            literal: self.has("literal"),
            db: self.value("db").map(PathBuf::from),
            recordings: self.flags.get("recording").into_iter().flatten().map(PathBuf::from).collect(),
            run: self.text("run")?.map(String::from),
            svg: self.value("svg").map(PathBuf::from),
        })
    }
}
