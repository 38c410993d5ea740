//! Backslash escapes: any bytes as one line of printable UTF-8.

use super::{Reason, hex};

/// Appends `bytes`. What is printable UTF-8 stays as it is; control characters, the backslash and
/// bytes that are no UTF-8 are escaped.
pub(super) fn append_escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => out.extend_from_slice(b"\\\\"),
                '\t' => out.extend_from_slice(b"\\t"),
                '\n' => out.extend_from_slice(b"\\n"),
                '\r' => out.extend_from_slice(b"\\r"),
                '\0' => out.extend_from_slice(b"\\0"),
                _ if c.is_control() => {
                    c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| append_byte(out, byte));
                }
                _ => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        chunk.invalid().iter().for_each(|byte| append_byte(out, *byte));
    }
}

fn append_byte(out: &mut Vec<u8>, byte: u8) {
    out.extend_from_slice(b"\\x");
    hex::append_digits(out, &[byte]);
}

/// Appends the bytes that `text` stands for.
pub(super) fn unescape(text: &[u8], out: &mut Vec<u8>) -> Result<(), Reason> {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        let (name, tail) = rest.split_first().ok_or("a backslash with nothing after it")?;
        rest = tail;
        match name {
            b'\\' => out.push(b'\\'),
            b't' => out.push(b'\t'),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b'0' => out.push(0),
            b'x' => {
                let (digits, tail) = rest.split_at_checked(2).ok_or("\\x without two hex digits")?;
                hex::decode(digits, out).map_err(|_| "\\x without two hex digits")?;
                rest = tail;
            }
            _ => return Err("an escape other than \\\\ \\t \\n \\r \\0 \\xHH".into()),
        }
    }
    out.extend_from_slice(rest);
    Ok(())
}
