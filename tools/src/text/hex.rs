//! Hex digits, and the lines that RocksDB's `ldb` prints with `--hex`.
//!
//! `ldb dump` prints `0xKEY ==> 0xVALUE` and ends with `Keys in range: N`; `ldb scan` prints
//! `0xKEY : 0xVALUE` or, in newer releases, the arrow.

use super::Reason;

const DIGITS: &[u8; 16] = b"0123456789ABCDEF";

/// Appends two digits for each byte.
pub(super) fn append_digits(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(
        bytes.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]),
    );
}

fn digit(byte: u8) -> Result<u8, Reason> {
    match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        b'A'..=b'F' => Ok(byte - b'A' + 10),
        _ => Err("a character that is no hex digit".into()),
    }
}

/// Appends the bytes that `digits` stand for.
pub(super) fn decode(digits: &[u8], out: &mut Vec<u8>) -> Result<(), Reason> {
    let (pairs, odd) = digits.as_chunks::<2>();
    if !odd.is_empty() {
        return Err("an odd number of hex digits".into());
    }
    out.reserve(pairs.len());
    for [high, low] in pairs {
        out.push(digit(*high)? << 4 | digit(*low)?);
    }
    Ok(())
}

pub(super) fn append_entry(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    out.extend_from_slice(b"0x");
    append_digits(out, key);
    out.extend_from_slice(b" ==> 0x");
    append_digits(out, value);
}

/// A line of `ldb`.
pub(super) enum HexLine {
    /// Key and value were appended.
    Entry,
    /// The last line: how many entries stand before it.
    Count(u64),
}

pub(super) fn parse(line: &[u8], key: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<HexLine, Reason> {
    let line = line.trim_ascii();
    if let Some(count) = line.strip_prefix(b"Keys in range: ") {
        let count = std::str::from_utf8(count).ok().and_then(|digits| digits.parse().ok());
        return count.map(HexLine::Count).ok_or_else(|| "a count of keys that is no number".into());
    }
    let rest = line.strip_prefix(b"0x").ok_or("no 0x before the key")?;
    let end = rest.iter().position(|byte| *byte == b' ').ok_or("no ` ==> ` or ` : ` after the key")?;
    let (key_digits, rest) = rest.split_at(end);
    let rest = rest
        .strip_prefix(b" ==> ")
        .or_else(|| rest.strip_prefix(b" : "))
        .ok_or("no ` ==> ` or ` : ` after the key")?;
    let value_digits = rest.strip_prefix(b"0x").ok_or("no 0x before the value")?;
    decode(key_digits, key)?;
    decode(value_digits, value)?;
    Ok(HexLine::Entry)
}
