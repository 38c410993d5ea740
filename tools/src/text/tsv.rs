//! `key TAB value`, both with backslash escapes.
//!
//! Strict on purpose: a line without a tab, or with two, is an error, since a shifted column would
//! otherwise load as data. A carriage return before the end of the line belongs to the line's end;
//! one that is data is always escaped.

use super::{Reason, escape};

pub(super) fn append(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    escape::append_escaped(out, key);
    out.push(b'\t');
    escape::append_escaped(out, value);
}

pub(super) fn parse(line: &[u8], key: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<(), Reason> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let tab = line.iter().position(|byte| *byte == b'\t').ok_or("no tab between key and value")?;
    let (key_text, value_text) = (&line[..tab], &line[tab + 1..]);
    if value_text.contains(&b'\t') {
        return Err("a second tab; a tab in a value is written \\t".into());
    }
    escape::unescape(key_text, key)?;
    escape::unescape(value_text, value)
}
