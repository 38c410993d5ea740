//! The OPTIONS file: what was in force, for people and for whoever wants to open with it again.
//!
//! Written at the end of each opening, with each change of a live option, and as keyspaces come and go,
//! under a new number; the one with the highest number counts, older ones go. Nothing is ever taken from it silently: an
//! opening goes by the options it is given, and [`Options::load`] is a call of its own.
//!
//! ```text
//! # comment                        from # to the end of the line
//! format = 1                       first: version of this file's form
//! ?object.comparator = name        the names of objects, which have no text form
//! write_buffer_bytes = 64M         one line an option, all of them: the database and its default keyspace
//! [keyspace "name"]                a section for each other keyspace, by age; \" and \\ for " and \
//! ?object.comparator = name
//! table_bytes = 8M                 what differs from the lines before the sections
//! ```
//! A name that the reader does not know means that a newer build wrote it, and that it can't say what
//! it would leave out: an error, unless the line begins with `?`, by which its writer says that it may
//! be passed over.
//!
//! Invariant: a file of this name is whole: it is written under a temporary name, synced, renamed.
//! There is no checksum, because people may edit it; what is no value in its range is an error.

use std::path::Path;

use dialsm_io::fs::Access;
use dialsm_io::{Env, Fs};

use super::live::All;
use super::{KeyspaceOptions, OptionScope, Options, ROWS, find};
use crate::engine::Engine;
use crate::filename::FileName;
use crate::types::FileNumber;
use crate::{Error, ErrorKind, Result, table_dirs};

/// The version of the form that this build writes, and the newest that it reads.
pub(crate) const FORMAT: u64 = 1;

/// Room for tens of thousands of keyspaces, each with every option its own and the longest name; a larger
/// file is not read.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// How often a file may vanish under the reader: a writer beside it puts newer ones in its place.
const ATTEMPTS: usize = 8;

impl Options {
    /// The options that were in force when the database in `dir` was opened last, or changed one since:
    /// those of the database and of its default keyspace. Objects (the comparator) are not part of the
    /// file and are the default ones here; [`Options::shard_dirs`] are those of the last opening. The database
    /// may be open meanwhile.
    ///
    /// # Errors
    /// `NotFound` if there is no OPTIONS file; `NewerFormat` naming the lines that this build does not
    /// know; `Corruption` naming those that are no values; those of the file system.
    pub fn load(env: &dyn Env, dir: &Path) -> Result<Options> {
        Options::load_all(env, dir).map(|(options, _)| options)
    }

    /// The same with the options of the other keyspaces, by age: what [`Db::open_with`] takes.
    ///
    /// # Errors
    /// As [`Options::load`].
    ///
    /// [`Db::open_with`]: crate::Db::open_with
    pub fn load_all(env: &dyn Env, dir: &Path) -> Result<(Options, Vec<(String, KeyspaceOptions)>)> {
        env.check_fork()?;
        let fs = env.fs();
        let mut attempt = 1;
        loop {
            let newest = numbers(fs.as_ref(), dir)?.into_iter().max();
            let Some(number) = newest else {
                return Err(Error::new(ErrorKind::NotFound, "no OPTIONS file here").at_path(dir));
            };
            let path = FileName::Options(number).path(dir);
            match read(fs.as_ref(), &path) {
                Err(error) if error.kind() == ErrorKind::NotFound && attempt < ATTEMPTS => attempt += 1,
                text => {
                    let (mut options, keyspaces) = parse(&text?).map_err(|error| error.at_path(&path))?;
                    if fs.exists(&FileName::ShardDirs.path(dir))? {
                        options.shard_dirs = table_dirs::last_in_use(fs.as_ref(), dir)?;
                    }
                    return Ok((options, keyspaces));
                }
            }
        }
    }
}

fn numbers(fs: &dyn Fs, dir: &Path) -> Result<Vec<FileNumber>> {
    let names = fs.list(dir)?;
    let number_of = |name: &String| match FileName::parse(name) {
        Some(FileName::Options(number)) => Some(number),
        _ => None,
    };
    Ok(names.iter().filter_map(number_of).collect())
}

fn read(fs: &dyn Fs, path: &Path) -> Result<String> {
    let file = fs.open(path, Access::Read)?;
    let bytes = file.len()?;
    if bytes > FILE_BYTES_MAX {
        return Err(Error::corruption(format!("an OPTIONS file of {bytes} bytes")).at_path(path));
    }
    let mut buffer = vec![0; bytes as usize];
    let got = file.read_at(&mut buffer, 0)?;
    buffer.truncate(got);
    String::from_utf8(buffer).map_err(|error| {
        Error::corruption("no UTF-8").at_path(path).at_offset(error.utf8_error().valid_up_to() as u64)
    })
}

/// The text of a file that says `all`.
pub(crate) fn text(all: &All) -> String {
    let own = all.options.keyspace();
    let mut text = format!(
        "# The options in force, written by dialsm-core {}. No opening goes by this file unless it is\n\
         # asked to (Options::load).\n\
         format = {FORMAT}\n\
         {}{}",
        env!("CARGO_PKG_VERSION"),
        objects(&own),
        all.options.to_text()
    );
    for (name, options) in &all.keyspaces {
        let differing = ROWS.iter().filter(|row| row.info.scope == OptionScope::Keyspace).filter_map(|row| {
            let (value, default) = ((row.get)(&options.in_database()), (row.get)(&all.options));
            (value != default).then(|| format!("{} = {value}\n", row.info.name))
        });
        let lines: String = differing.collect();
        text += &format!("[keyspace {}]\n{}{lines}", quoted(name), objects(options));
    }
    text
}

/// The lines that name the objects among the options of a keyspace.
fn objects(options: &KeyspaceOptions) -> String {
    let line = |what: &str, name: &str| format!("?object.{what} = {}\n", name.escape_default());
    let mut lines = line("comparator", options.comparator.name());
    if let Some(operator) = &options.merge_operator {
        lines += &line("merge_operator", operator.name());
    }
    if let Some(extractor) = &options.prefix_extractor {
        lines += &line("prefix_extractor", &extractor.name());
    }
    lines
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The name in a line that begins a keyspace's section; `None` if it is another one's.
fn section(line: &str) -> Option<String> {
    let mut chars = line.strip_prefix("[keyspace \"")?.chars();
    let mut name = String::new();
    loop {
        match chars.next()? {
            '"' => break,
            '\\' => name.push(chars.next()?),
            other => name.push(other),
        }
    }
    let rest = chars.as_str().strip_prefix(']')?.trim_start();
    (rest.is_empty() || rest.starts_with('#')).then_some(name)
}

/// What a file says, and what is wrong with it.
#[derive(Default)]
struct Parser<'t> {
    has_format: bool,
    options: Options,
    /// By name; each begins as the default keyspace.
    sections: Vec<(String, Options)>,
    /// The names that stood before, in the section at hand.
    seen: Vec<&'t str>,
    unknown: Vec<String>,
    bad: Vec<String>,
}

impl<'t> Parser<'t> {
    fn line(&mut self, number: usize, line: &'t str) -> Result<()> {
        let whole = line.trim();
        if whole.starts_with('[') && self.has_format {
            self.begin_section(number, whole);
            return Ok(());
        }
        let line = whole.split('#').next().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with('?') {
            return Ok(());
        }
        let Some((name, value)) = line.split_once('=').map(|(name, value)| (name.trim(), value.trim()))
        else {
            self.bad.push(format!("line {number}: want name = value"));
            return Ok(());
        };
        if self.has_format {
            self.option(number, name, value);
            return Ok(());
        }
        self.has_format = true;
        check_format(name, value, number)
    }

    fn begin_section(&mut self, number: usize, line: &str) {
        self.seen.clear();
        match section(line) {
            Some(name) if self.sections.iter().any(|(other, _)| *other == name) => {
                self.bad.push(format!("line {number}: a section comes twice"));
            }
            Some(name) => self.sections.push((name, self.options.clone())),
            None => self.unknown.push(format!("line {number}: a section")),
        }
    }

    fn option(&mut self, number: usize, name: &'t str, value: &str) {
        if self.seen.contains(&name) {
            self.bad.push(format!("line {number}: option {name:?} comes twice"));
            return;
        }
        self.seen.push(name);
        let Ok(row) = find(name) else {
            self.unknown.push(format!("line {number}: option {name:?}"));
            return;
        };
        let set = match self.sections.last_mut() {
            None => (row.set)(&mut self.options, value),
            Some(_) if row.info.scope == OptionScope::Database => {
                Err("it is one of the database, not of a keyspace".into())
            }
            Some((_, options)) => (row.set)(options, value),
        };
        if let Err(reason) = set {
            self.bad.push(format!("line {number}: option {name:?}: {reason}"));
        }
    }
}

/// What a file's text says.
///
/// # Errors
/// `NewerFormat`, `Corruption`, each naming all lines at fault.
pub(crate) fn parse(text: &str) -> Result<(Options, Vec<(String, KeyspaceOptions)>)> {
    let mut parser = Parser::default();
    for (index, line) in text.lines().enumerate() {
        parser.line(index + 1, line)?;
    }
    let Parser { has_format, options, sections, unknown, mut bad, .. } = parser;
    if !unknown.is_empty() {
        let text = format!("this build does not know what stands in {}", unknown.join("; "));
        return Err(Error::new(ErrorKind::NewerFormat, text));
    }
    if !has_format {
        bad.push("there is no format".to_owned());
    }
    if !bad.is_empty() {
        return Err(Error::corruption(bad.join("; ")));
    }
    Ok((options, sections.into_iter().map(|(name, options)| (name, options.keyspace())).collect()))
}

fn check_format(name: &str, value: &str, line: usize) -> Result<()> {
    match value.parse::<u64>() {
        Ok(1..=FORMAT) if name == "format" => Ok(()),
        Ok(found @ 1..) if name == "format" => {
            let text = format!("line {line}: options format {found} (this build knows up to {FORMAT})");
            Err(Error::new(ErrorKind::NewerFormat, text))
        }
        _ => Err(Error::corruption(format!("line {line}: want format = {FORMAT} before all else"))),
    }
}

/// Writes the file `number` in `dir`; durable, with its name, when this returns.
///
/// # Errors
/// Those of the file system; there is no such file then, as far as it could be removed.
pub(crate) fn write(fs: &dyn Fs, dir: &Path, number: FileNumber, all: &All) -> Result<()> {
    let name = FileName::Options(number);
    let temp = dir.join(format!("{name}.tmp"));
    let write = || {
        let file = fs.create(&temp)?;
        file.write_at(text(all).as_bytes(), 0)?;
        file.sync_data()?;
        fs.rename(&temp, &name.path(dir))?;
        fs.sync_dir(dir)
    };
    write().inspect_err(|_| {
        // It must not say what was refused.
        let _ = fs.unlink(&temp);
        let _ = fs.unlink(&name.path(dir));
    })
}

/// Puts a file with `all` options in the place of those that are there. One caller at a time.
///
/// # Errors
/// Those of the file system; the older files are there still.
pub(crate) fn replace(engine: &Engine, all: &All) -> Result<()> {
    let fs = engine.env.fs();
    let number = engine.new_file_number();
    write(fs.as_ref(), &engine.dir, number, all).inspect_err(|error| engine.note_sync_of_dir(error))?;
    let there = numbers(fs.as_ref(), &engine.dir).unwrap_or_default();
    for old in there.into_iter().filter(|old| *old < number) {
        // One that stays is older, and goes the next time.
        let _ = fs.unlink(&FileName::Options(old).path(&engine.dir));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn all(options: &Options) -> All {
        All { options: Arc::new(options.clone()), keyspaces: Vec::new() }
    }

    fn lines_with(line: &str) -> String {
        format!("{}{line}\n", text(&all(&Options::default())))
    }

    #[test]
    fn what_was_written_reads_back() {
        let mut options =
            Options { write_buffer_bytes: 3 << 20, level_multiplier: 7.5, ..Options::default() };
        options.compression = super::super::Compression::None;
        let written = text(&all(&options));
        let (read, others) = parse(&written).expect("own text");
        assert_eq!(read.to_text(), options.to_text());
        assert!(others.is_empty());
        assert!(written.contains(concat!("dialsm-core ", env!("CARGO_PKG_VERSION"))));
        assert!(written.contains(&format!("?object.comparator = {}", options.comparator.name())));
    }

    #[test]
    fn a_file_of_thousands_of_keyspaces_reads_back() {
        let (fs, dir) = (dialsm_io::SimFs::new(1), Path::new("/db"));
        fs.create_dir_all(dir).expect("directory");
        let options = Options::default();
        let own = Arc::new(options.keyspace());
        // Each quote takes two bytes in the file.
        let name = |at: usize| format!("{at:05}{}", "\"".repeat(250));
        let keyspaces = (0..3000).map(|at| (Arc::from(name(at)), own.clone())).collect();
        let all = All { options: Arc::new(options), keyspaces };
        write(fs.as_ref(), dir, FileNumber(7), &all).expect("write");
        let (_, read) = Options::load_all(dialsm_io::OsEnv::with_fs(fs).as_ref(), dir).expect("own file");
        assert_eq!(read.len(), 3000);
        assert_eq!(read[2999].0, name(2999));
    }

    #[test]
    fn sections_of_keyspaces_read_back() {
        let options = Options { table_bytes: 8 << 20, ..Options::default() };
        let same = options.keyspace();
        let other = KeyspaceOptions {
            table_bytes: 16 << 20,
            automatic_compaction: false,
            merge_operator: Some(crate::merge_operator::counter()),
            prefix_extractor: Some(crate::PrefixExtractor::Fixed(3)),
            ..options.keyspace()
        };
        let names = ["plain", "a \\ \"] # \u{2028} = [keyspace \"x\"]", "?", "#", "[", "\u{fffd}\\"];
        let keyspaces = names.iter().enumerate().map(|(i, name)| {
            (Arc::from(*name), Arc::new(if i % 2 == 0 { same.clone() } else { other.clone() }))
        });
        let written = text(&All { keyspaces: keyspaces.collect(), ..all(&options) });
        let (read, others) = parse(&written).expect("own text");
        assert_eq!(read.to_text(), options.to_text());
        assert_eq!(others.iter().map(|(name, _)| &name[..]).collect::<Vec<_>>(), names);
        for (i, (_, read)) in others.iter().enumerate() {
            let want = if i % 2 == 0 { &same } else { &other };
            assert_eq!(read.to_text(), want.to_text());
        }
        let at = written.find("[keyspace").expect("a section");
        assert_eq!(written[at..].matches("table_bytes").count(), 3, "only what differs");
        for line in ["?object.merge_operator = dialsm.counter", "?object.prefix_extractor = dialsm.fixed.3"] {
            assert_eq!(written.matches(line).count(), 3, "{line}");
        }
    }

    #[test]
    fn bad_sections_are_named() {
        for (lines, kind, part) in [
            ("[keyspace \"a\"]\n[keyspace \"a\"]", ErrorKind::Corruption, "comes twice"),
            ("[keyspace \"a\"]\nblock_cache_bytes = 1M", ErrorKind::Corruption, "of the database"),
            ("[keyspace \"a\"]\ntable_bytes = x", ErrorKind::Corruption, "\"table_bytes\""),
            ("[keyspace \"a]", ErrorKind::NewerFormat, "a section"),
            ("[keyspace \"a\\", ErrorKind::NewerFormat, "a section"),
            ("[keyspace a]", ErrorKind::NewerFormat, "a section"),
            ("[keyspace \"a\"] x", ErrorKind::NewerFormat, "a section"),
            ("[shard 1]", ErrorKind::NewerFormat, "a section"),
        ] {
            let error = parse(&lines_with(lines)).expect_err("bad");
            assert_eq!(error.kind(), kind, "{lines}");
            assert!(error.message().contains(part), "{error}");
        }
        parse(&lines_with(" [keyspace \"a\"]  # a comment\ntable_bytes = 7M")).expect("good");
    }

    #[test]
    fn lines_of_a_newer_build_are_named_unless_they_may_be_passed_over() {
        let error = parse(&lines_with("shiny_new = 7")).expect_err("unknown");
        assert_eq!(error.kind(), ErrorKind::NewerFormat);
        let line = lines_with("").lines().count();
        assert!(error.message().contains(&format!("line {line}: option \"shiny_new\"")), "{error}");
        parse(&lines_with("?shiny_new = 7")).expect("marked");
        parse(&lines_with("?[section]")).expect("marked");
        let newer = lines_with("").replace("format = 1", "format = 2");
        let error = parse(&newer).expect_err("newer");
        assert_eq!(error.kind(), ErrorKind::NewerFormat);
        assert!(error.message().contains("format 2") && error.message().contains("up to 1"), "{error}");
    }

    #[test]
    fn every_bad_line_is_named() {
        for (line, part) in
            [("table_bytes", "want name = value"), ("table_bytes = 7", "\"table_bytes\" comes twice")]
        {
            let error = parse(&lines_with(line)).expect_err("bad");
            assert_eq!(error.kind(), ErrorKind::Corruption, "{line}");
            assert!(error.message().contains(part), "{error}");
        }
        let two = text(&all(&Options::default()))
            .replace("table_bytes = 64M", "table_bytes = -1")
            .replace("error_if_exists = false", "error_if_exists = maybe");
        let error = parse(&two).expect_err("two");
        for part in ["\"table_bytes\"", "\"error_if_exists\"", "line "] {
            assert!(error.message().contains(part), "{part} in {error}");
        }
        for headless in ["", "# nothing\n", "table_bytes = 64M\nformat = 1\n", "format = 0\n", "format = x\n"]
        {
            assert_eq!(parse(headless).expect_err("no format").kind(), ErrorKind::Corruption, "{headless:?}");
        }
    }
}
