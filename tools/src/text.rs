//! Keys and values as text: single ones on the command line, entries one a line in files.
//!
//! ```text
//! tsv   key TAB value            \t \n \r \0 \\ and \xHH stand for bytes; the rest is as it is
//! json  {"key":"a","value":"b"}  one object a line; key_base64 or key_hex (value_...) for bytes
//! hex   0x6B ==> 0x76            as RocksDB's `ldb dump --hex` prints; ` : ` as `ldb scan` does
//! ```
//! INVARIANT: what a format writes, it reads back as the same bytes, whatever the bytes are; and a
//! written entry is one line without control characters, safe to show in a terminal. Attacked by
//! `random_entries_round_trip_in_every_format`.
//!
//! Error texts name the source and the line, never a key or a value.

mod escape;
mod hex;
mod json;
mod reader;
#[cfg(test)]
mod tests;
mod tsv;

pub use reader::{EntryReader, Summary};
#[cfg(test)]
pub(crate) use tests::Random;

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

/// Why a piece of text is not what it should be, without the text itself.
pub type Reason = String;

/// How entries stand in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Key, tab, value, with backslash escapes.
    Tsv,
    /// One JSON object a line.
    Json,
    /// The lines of RocksDB's `ldb` with `--hex`.
    Hex,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 3] = [Format::Tsv, Format::Json, Format::Hex];

    /// The format's name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Format::Tsv => "tsv",
            Format::Json => "json",
            Format::Hex => "hex",
        }
    }

    /// The format with this name, if there is one.
    pub fn from_name(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.as_str() == name)
    }

    /// Writes an entry and the end of its line. `scratch` is overwritten; reusing it spares
    /// allocations.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_entry(
        self,
        out: &mut dyn Write,
        key: &[u8],
        value: &[u8],
        scratch: &mut Vec<u8>,
    ) -> io::Result<()> {
        scratch.clear();
        match self {
            Format::Tsv => tsv::append(scratch, key, value),
            Format::Json => json::append(scratch, key, value),
            Format::Hex => hex::append_entry(scratch, key, value),
        }
        scratch.push(b'\n');
        out.write_all(scratch)
    }
}

/// How a single key or value stands on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// The bytes as they are.
    Raw,
    /// With the escapes of the tsv format.
    Escaped,
    /// Two digits a byte, `0x` before them or not.
    Hex,
    /// Base64 with the standard alphabet and padding.
    Base64,
}

impl Encoding {
    /// All encodings.
    pub const ALL: [Encoding; 4] = [Encoding::Raw, Encoding::Escaped, Encoding::Hex, Encoding::Base64];

    /// The encoding's name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Encoding::Raw => "raw",
            Encoding::Escaped => "escaped",
            Encoding::Hex => "hex",
            Encoding::Base64 => "base64",
        }
    }

    /// The encoding with this name, if there is one.
    pub fn from_name(name: &str) -> Option<Encoding> {
        Encoding::ALL.into_iter().find(|encoding| encoding.as_str() == name)
    }

    /// The bytes that `text` stands for.
    ///
    /// # Errors
    /// Why it stands for none.
    pub fn decode(self, text: &[u8]) -> Result<Vec<u8>, Reason> {
        match self {
            Encoding::Raw => Ok(text.to_vec()),
            Encoding::Escaped => {
                let mut out = Vec::with_capacity(text.len());
                escape::unescape(text, &mut out)?;
                Ok(out)
            }
            Encoding::Hex => {
                let digits = text.strip_prefix(b"0x").unwrap_or(text);
                let mut out = Vec::with_capacity(digits.len() / 2);
                hex::decode(digits, &mut out)?;
                Ok(out)
            }
            Encoding::Base64 => decode_base64(text),
        }
    }

    /// The text that stands for `bytes`.
    pub fn encode(self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        match self {
            Encoding::Raw => out.extend_from_slice(bytes),
            Encoding::Escaped => escape::append_escaped(&mut out, bytes),
            Encoding::Hex => {
                out.extend_from_slice(b"0x");
                hex::append_digits(&mut out, bytes);
            }
            Encoding::Base64 => out.extend_from_slice(encode_base64(bytes).as_bytes()),
        }
        out
    }
}

/// Appends `bytes` with the escapes of the tsv format.
pub(crate) fn append_escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    escape::append_escaped(out, bytes);
}

/// Appends a field of a JSON object, called `name` or, for bytes that are no text, `name_base64`.
pub(crate) fn append_json_field(out: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    json::append_field(out, name, bytes);
}

fn decode_base64(text: &[u8]) -> Result<Vec<u8>, Reason> {
    // The decoder's own text quotes the byte it stumbled over.
    BASE64.decode(text).map_err(|_| "not base64 with the standard alphabet and padding".into())
}

fn encode_base64(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}
