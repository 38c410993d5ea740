//! Entries from files or standard input: into a database, or into another format.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use dialsm_core::{Error, Result};

use super::Streams;
use crate::exit::{Failure, Outcome};
use crate::progress::Progress;
use crate::store::{Op, Store};
use crate::text::{EntryReader, Format, Summary};

/// A batch is written when it has this many bytes, whatever the number of its entries.
const BATCH_BYTES: usize = 4 << 20;

/// What is done with each key and value.
type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'a;

pub(super) struct Load<'a> {
    pub(super) files: &'a [PathBuf],
    pub(super) format: Format,
    pub(super) batch_ops: usize,
    pub(super) sync: bool,
    pub(super) json: bool,
    pub(super) progress: bool,
}

impl Load<'_> {
    /// Loads everything and returns when it is in durable tables.
    pub(super) fn run(&self, store: &dyn Store, streams: &mut Streams<'_>) -> Outcome {
        let mut batch = Batch { store, load: self, ops: Vec::new(), bytes: 0, written: 0 };
        let terminal: Option<&mut dyn Write> = if self.progress { Some(&mut *streams.stderr) } else { None };
        let mut progress = Progress::new(terminal, "loaded");
        let read = each_entry(self.files, self.format, streams.stdin, &mut |key, value| {
            progress.entry(key.len() + value.len());
            batch.add(key, value)
        });
        // What was read before a bad line is written all the same, so that the error's text can
        // say how far the load came.
        let last = batch.write();
        progress.finish();
        let total = read.and_then(|total| last.map(|()| total));
        let total = total.map_err(|error| with_count(&error, batch.written))?;
        store.flush()?;
        if total.unterminated {
            let warning = "dialsm: warning: the last line has no end; was the input cut off?";
            let _ = writeln!(streams.stderr, "{warning}");
        }
        if self.json {
            writeln!(streams.stdout, "{{\"entries\":{},\"bytes\":{}}}", total.entries, total.bytes)?;
        } else {
            writeln!(streams.stdout, "{} entries, {} bytes", total.entries, total.bytes)?;
        }
        Ok(())
    }
}

struct Batch<'a> {
    store: &'a dyn Store,
    load: &'a Load<'a>,
    ops: Vec<Op>,
    bytes: usize,
    written: u64,
}

impl Batch<'_> {
    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.bytes += key.len() + value.len();
        self.ops.push(Op::Put(key.to_vec(), value.to_vec()));
        if self.ops.len() >= self.load.batch_ops || self.bytes >= BATCH_BYTES {
            self.write()?;
        }
        Ok(())
    }

    /// Writes what is waiting. A batch that failed is not tried again: it may have been written.
    fn write(&mut self) -> Result<()> {
        let ops = std::mem::take(&mut self.ops);
        self.bytes = 0;
        let count = ops.len() as u64;
        if count > 0 {
            self.store.write(ops, self.load.sync)?;
            self.written += count;
        }
        Ok(())
    }
}

/// The same error, which also says how much was loaded.
fn with_count(error: &Error, written: u64) -> Error {
    let text = format!("{}; {written} entries were loaded", error.message());
    let mut counted = Error::new(error.kind(), text);
    if let Some(path) = error.path() {
        counted = counted.at_path(path);
    }
    if let Some(offset) = error.offset() {
        counted = counted.at_offset(offset);
    }
    counted
}

/// Shows every entry of the files, in order, to `visit`. No file, or `-`, is standard input.
fn each_entry(
    files: &[PathBuf],
    format: Format,
    stdin: &mut dyn BufRead,
    visit: &mut Visit<'_>,
) -> Result<Summary> {
    let standard_input = [PathBuf::from("-")];
    let files = if files.is_empty() { &standard_input } else { files };
    let mut total = Summary::default();
    for path in files {
        let summary = if path == Path::new("-") {
            read_entries(EntryReader::new(&mut *stdin, "standard input", format), visit)?
        } else {
            let file = File::open(path).map_err(|error| Error::io(&error, "open", path))?;
            let input = BufReader::with_capacity(1 << 20, file);
            read_entries(EntryReader::new(input, &path.display().to_string(), format), visit)?
        };
        total.entries += summary.entries;
        total.bytes += summary.bytes;
        total.lines += summary.lines;
        total.unterminated |= summary.unterminated;
    }
    Ok(total)
}

fn read_entries<R: BufRead>(mut reader: EntryReader<R>, visit: &mut Visit<'_>) -> Result<Summary> {
    while let Some((key, value)) = reader.next_entry()? {
        visit(key, value)?;
    }
    Ok(reader.summary())
}

/// Prints the entries of the files in another format.
pub(super) fn convert(
    files: &[PathBuf],
    input: Format,
    output: Format,
    streams: &mut Streams<'_>,
) -> Outcome {
    let mut scratch = Vec::new();
    let mut failed = None;
    let stdout = &mut *streams.stdout;
    let read = each_entry(files, input, streams.stdin, &mut |key, value| {
        output.write_entry(stdout, key, value, &mut scratch).map_err(|error| {
            let ended = Error::io(&error, "write", "standard output".as_ref());
            failed = Some(error);
            ended
        })
    });
    // A failure to write is told apart from one to read: the reader may just have gone.
    if let Some(error) = failed {
        return Err(Failure::Output(error));
    }
    if read?.unterminated {
        let warning = "dialsm: warning: the last line has no end; was the input cut off?";
        let _ = writeln!(streams.stderr, "{warning}");
    }
    Ok(())
}
