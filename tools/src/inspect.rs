//! What stands in a single file of a database: a table, a log segment or a manifest, without
//! opening the database and whatever state it is in.
//!
//! Each dump is a sequence of items, one a line, with named fields; the JSON form has the item's
//! name in `"item"`. Files are read, never written. Damage ends a dump with an error that names
//! its offset; all that is intact before it, and in a log segment behind it, was printed.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use dialsm_core::Result;
use dialsm_core::format::FileHeader;
use dialsm_io::fs::Access;
use dialsm_io::{File, Fs};

use crate::text;

pub mod log;
pub mod manifest;
pub mod table;
#[cfg(test)]
mod tests;

/// Prints items.
pub struct Printer<'a> {
    out: &'a mut dyn Write,
    json: bool,
    line: Vec<u8>,
}

impl<'a> Printer<'a> {
    /// To `out`, as text or as JSON.
    pub fn new(out: &'a mut dyn Write, json: bool) -> Printer<'a> {
        Printer { out, json, line: Vec::new() }
    }

    /// Begins an item.
    fn item(&mut self, name: &str) -> Item<'_, 'a> {
        self.line.clear();
        if self.json {
            self.line.extend_from_slice(format!("{{\"item\":\"{name}\"").as_bytes());
        } else {
            self.line.extend_from_slice(name.as_bytes());
        }
        Item { printer: self }
    }

    /// The item that every file begins with.
    fn header(&mut self, header: &FileHeader) -> io::Result<()> {
        let db_id: String = header.db_id.iter().map(|byte| format!("{byte:02x}")).collect();
        let kind = format!("{:?}", header.kind).to_lowercase();
        self.item("file").word("kind", &kind).word("db_id", &db_id).number("number", header.number.0).end()
    }
}

/// A line that is being put together.
struct Item<'p, 'a> {
    printer: &'p mut Printer<'a>,
}

impl Item<'_, '_> {
    /// A number.
    fn number(self, name: &str, value: u64) -> Self {
        let field =
            if self.printer.json { format!(",\"{name}\":{value}") } else { format!(" {name}={value}") };
        self.printer.line.extend_from_slice(field.as_bytes());
        self
    }

    /// A number where there is one.
    fn maybe(self, name: &str, value: Option<u64>) -> Self {
        match value {
            Some(value) => self.number(name, value),
            None => self,
        }
    }

    /// A text of the tool or the engine.
    fn word(self, name: &str, value: &str) -> Self {
        self.bytes(name, value.as_bytes())
    }

    /// A key or value.
    fn bytes(self, name: &str, value: &[u8]) -> Self {
        let line = &mut self.printer.line;
        if self.printer.json {
            line.push(b',');
            text::append_json_field(line, name, value);
        } else {
            line.push(b' ');
            line.extend_from_slice(name.as_bytes());
            line.push(b'=');
            text::append_escaped(line, value);
        }
        self
    }

    /// An internal key: its user key, sequence number and kind.
    fn internal_key(self, prefix: &str, key: &[u8]) -> Self {
        use dialsm_core::key;
        if key.len() < key::TRAILER_BYTES {
            return self.bytes(&format!("{prefix}bad_key"), key);
        }
        self.bytes(&format!("{prefix}key"), key::user_key(key))
            .number(&format!("{prefix}seqno"), key::seqno_of(key))
            .word(&format!("{prefix}kind"), &kind_name(key::kind_byte_of(key)))
    }

    fn end(self) -> io::Result<()> {
        let Printer { out, json, line } = self.printer;
        line.extend_from_slice(if *json { b"}\n" } else { b"\n" });
        out.write_all(line)
    }
}

fn kind_name(byte: u8) -> String {
    match dialsm_core::key::Kind::from_u8(byte) {
        Some(kind) => format!("{kind:?}"),
        None => format!("kind {byte}"),
    }
}

fn open(fs: &dyn Fs, path: &Path) -> Result<Arc<dyn File>> {
    fs.open(path, Access::Read)
}
