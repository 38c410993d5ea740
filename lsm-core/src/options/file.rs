//! The OPTIONS file: what was in force, for people and for whoever wants to open with it again.
//!
//! Written at the end of each opening and with each change of a live option, under a new number; the
//! one with the highest number counts, older ones go. Nothing is ever taken from it silently: an
//! opening goes by the options it is given, and [`Options::load`] is a call of its own.
//!
//! ```text
//! # comment                        from # to the end of the line
//! format = 1                       first: version of this file's form
//! ?object.comparator = name        the names of objects, which have no text form
//! write_buffer_bytes = 64M         one line an option, all of them
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

use super::{Options, find};
use crate::engine::Engine;
use crate::filename::FileName;
use crate::types::FileNumber;
use crate::{Error, ErrorKind, Result};

/// The version of the form that this build writes, and the newest that it reads.
pub(crate) const FORMAT: u64 = 1;

/// No file of ours comes near this; a larger one is not read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// How often a file may vanish under the reader: a writer beside it puts newer ones in its place.
const ATTEMPTS: usize = 8;

impl Options {
    /// The options that were in force when the database in `dir` was opened last, or changed one since.
    /// Objects (the comparator) are not part of the file and are the default ones here. The database
    /// may be open meanwhile.
    ///
    /// # Errors
    /// `NotFound` if there is no OPTIONS file; `NewerFormat` naming the lines that this build does not
    /// know; `Corruption` naming those that are no values; those of the file system.
    pub fn load(env: &dyn Env, dir: &Path) -> Result<Options> {
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
                text => return parse(&text?).map_err(|error| error.at_path(&path)),
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

/// The text of a file that says `options`.
pub(crate) fn text(options: &Options) -> String {
    format!(
        "# The options in force, written by dialsm-core {}. No opening goes by this file unless it is\n\
         # asked to (Options::load).\n\
         format = {FORMAT}\n\
         ?object.comparator = {}\n\
         {}",
        env!("CARGO_PKG_VERSION"),
        options.comparator.name().escape_default(),
        options.to_text()
    )
}

/// What a file's text says.
///
/// # Errors
/// `NewerFormat`, `Corruption`, each naming all lines at fault.
pub(crate) fn parse(text: &str) -> Result<Options> {
    let mut options = Options::default();
    let mut seen: Vec<&str> = Vec::new();
    let (mut unknown, mut bad) = (Vec::new(), Vec::new());
    let mut has_format = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with('?') {
            continue;
        }
        let number = index + 1;
        let Some((name, value)) = line.split_once('=').map(|(name, value)| (name.trim(), value.trim()))
        else {
            bad.push(format!("line {number}: want name = value"));
            continue;
        };
        if !has_format {
            check_format(name, value, number)?;
            has_format = true;
        } else if seen.contains(&name) {
            bad.push(format!("line {number}: option {name:?} comes twice"));
        } else {
            seen.push(name);
            match find(name) {
                Err(_) => unknown.push(format!("line {number}: option {name:?}")),
                Ok(row) => {
                    if let Err(reason) = (row.set)(&mut options, value) {
                        bad.push(format!("line {number}: option {name:?}: {reason}"));
                    }
                }
            }
        }
    }
    if !unknown.is_empty() {
        let text = format!("this build does not know what stands in {}", unknown.join("; "));
        return Err(Error::new(ErrorKind::NewerFormat, text));
    }
    if !has_format {
        bad.push("there is no format".to_owned());
    }
    if bad.is_empty() { Ok(options) } else { Err(Error::corruption(bad.join("; "))) }
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
pub(crate) fn write(fs: &dyn Fs, dir: &Path, number: FileNumber, options: &Options) -> Result<()> {
    let name = FileName::Options(number);
    let temp = dir.join(format!("{name}.tmp"));
    let write = || {
        let file = fs.create(&temp)?;
        file.write_at(text(options).as_bytes(), 0)?;
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

/// Puts a file with `options` in the place of those that are there.
///
/// # Errors
/// Those of the file system; the older files are there still.
pub(crate) fn replace(engine: &Engine, options: &Options) -> Result<()> {
    let fs = engine.env.fs();
    let number = engine.new_file_number();
    write(fs.as_ref(), &engine.dir, number, options)?;
    let there = numbers(fs.as_ref(), &engine.dir).unwrap_or_default();
    for old in there.into_iter().filter(|old| *old < number) {
        // One that stays is older, and goes the next time.
        let _ = fs.unlink(&FileName::Options(old).path(&engine.dir));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_with(line: &str) -> String {
        format!("{}{line}\n", text(&Options::default()))
    }

    #[test]
    fn what_was_written_reads_back() {
        let mut options =
            Options { write_buffer_bytes: 3 << 20, level_multiplier: 7.5, ..Options::default() };
        options.compression = super::super::Compression::None;
        let read = parse(&text(&options)).expect("own text");
        assert_eq!(read.to_text(), options.to_text());
        assert!(text(&options).contains(concat!("dialsm-core ", env!("CARGO_PKG_VERSION"))));
        assert!(text(&options).contains(&format!("?object.comparator = {}", options.comparator.name())));
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
        for (line, part) in [
            ("table_bytes", "want name = value"),
            ("table_bytes = 7", "\"table_bytes\" comes twice"),
            ("[section]", "want name = value"),
        ] {
            let error = parse(&lines_with(line)).expect_err("bad");
            assert_eq!(error.kind(), ErrorKind::Corruption, "{line}");
            assert!(error.message().contains(part), "{error}");
        }
        let two = text(&Options::default())
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
