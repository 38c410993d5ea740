//! Entries from a stream of lines, with errors that name the line.

use std::io::{BufRead, Read as _};

use dialsm_core::key::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use dialsm_core::{Error, ErrorKind, Result};

use super::{Format, Reason, hex, json, tsv};

/// No legal entry makes a longer line: six characters a byte (`\u001f` in JSON) and some frame.
/// Memory grows with what is really read, so this only ends a stream that has no lines.
const LINE_BYTES_MAX: u64 = 6 * (KEY_BYTES_MAX + VALUE_BYTES_MAX) as u64 + 1024;

/// What was read so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Entries.
    pub entries: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Lines, those without an entry included.
    pub lines: u64,
    /// Whether the last line lacked its end. It was read, but may have been cut off.
    pub unterminated: bool,
}

/// Reads entries one after the other.
pub struct EntryReader<R> {
    input: R,
    source: String,
    format: Format,
    line: Vec<u8>,
    key: Vec<u8>,
    value: Vec<u8>,
    summary: Summary,
}

impl<R: BufRead> EntryReader<R> {
    /// A reader of `input`; `source` names it in error texts.
    pub fn new(input: R, source: &str, format: Format) -> EntryReader<R> {
        EntryReader {
            input,
            source: source.into(),
            format,
            line: Vec::new(),
            key: Vec::new(),
            value: Vec::new(),
            summary: Summary::default(),
        }
    }

    /// What was read so far.
    pub fn summary(&self) -> Summary {
        self.summary
    }

    /// The next key and value, until the input ends.
    ///
    /// # Errors
    /// `InvalidArgument` for a line that holds no entry, `TooLarge` for an entry that no database
    /// takes, `Io` if the input cannot be read: each with source and line.
    pub fn next_entry(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        while self.read_line()? {
            match self.parse_line() {
                Ok(true) => {
                    self.check_limits()?;
                    self.summary.entries += 1;
                    self.summary.bytes += (self.key.len() + self.value.len()) as u64;
                    return Ok(Some((&self.key, &self.value)));
                }
                Ok(false) => {}
                Err(reason) => return Err(self.error(ErrorKind::InvalidArgument, &reason)),
            }
        }
        Ok(None)
    }

    fn error(&self, kind: ErrorKind, reason: &str) -> Error {
        Error::new(kind, format!("{}:{}: {reason}", self.source, self.summary.lines))
    }

    /// Reads a line without its end; false when the input has ended.
    fn read_line(&mut self) -> Result<bool> {
        self.line.clear();
        let read = (&mut self.input).take(LINE_BYTES_MAX).read_until(b'\n', &mut self.line);
        self.summary.lines += 1;
        match read {
            Ok(0) => {
                self.summary.lines -= 1;
                return Ok(false);
            }
            Ok(_) => {}
            Err(error) => return Err(self.error(ErrorKind::Io, &format!("cannot be read: {error}"))),
        }
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        } else if self.line.len() as u64 == LINE_BYTES_MAX {
            return Err(self.error(ErrorKind::TooLarge, "a line longer than any entry"));
        } else {
            self.summary.unterminated = true;
        }
        Ok(true)
    }

    /// Whether the line holds an entry, which then is in `key` and `value`.
    fn parse_line(&mut self) -> std::result::Result<bool, Reason> {
        self.key.clear();
        self.value.clear();
        let (key, value) = (&mut self.key, &mut self.value);
        let blank = self.line.trim_ascii().is_empty();
        match self.format {
            Format::Tsv => tsv::parse(&self.line, key, value)?,
            Format::Json | Format::Hex if blank => return Ok(false),
            Format::Json => json::parse(&self.line, key, value)?,
            Format::Hex => match hex::parse(&self.line, key, value)? {
                hex::HexLine::Entry => {}
                hex::HexLine::Count(count) if count == self.summary.entries => return Ok(false),
                hex::HexLine::Count(count) => {
                    let found = self.summary.entries;
                    return Err(format!("the dump says it has {count} keys, {found} were read"));
                }
            },
        }
        Ok(true)
    }

    fn check_limits(&self) -> Result<()> {
        for (what, length, max) in
            [("key", self.key.len(), KEY_BYTES_MAX), ("value", self.value.len(), VALUE_BYTES_MAX)]
        {
            if length > max {
                let reason = format!("a {what} of {length} bytes; at most {max} are taken");
                return Err(self.error(ErrorKind::TooLarge, &reason));
            }
        }
        Ok(())
    }
}
