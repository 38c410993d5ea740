//! One JSON object a line: a key and a value, each as a string, in hex or in base64.
//!
//! Written as a string where the bytes are UTF-8, else in base64; all three are read. A field
//! twice, one that is not known, or a key given in two ways is an error.

use serde::Deserialize;

use super::{Reason, decode_base64, encode_base64, hex};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key: Option<String>,
    key_hex: Option<String>,
    key_base64: Option<String>,
    value: Option<String>,
    value_hex: Option<String>,
    value_base64: Option<String>,
}

pub(super) fn append(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    out.push(b'{');
    append_field(out, "key", key);
    out.push(b',');
    append_field(out, "value", value);
    out.push(b'}');
}

pub(super) fn append_field(out: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    let (suffix, text) = match std::str::from_utf8(bytes) {
        // C1 control characters are legal inside a JSON string, but a terminal acts on them.
        Ok(text) if !text.contains(|c: char| c.is_control() && !c.is_ascii()) => ("", quoted(text)),
        _ => ("_base64", quoted(&encode_base64(bytes))),
    };
    out.extend_from_slice(format!("\"{name}{suffix}\":").as_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn quoted(text: &str) -> String {
    // DEL is the one control character below 0x80 that JSON lets stand unescaped.
    serde_json::Value::from(text).to_string().replace('\x7f', "\\u007f")
}

pub(super) fn parse(line: &[u8], key: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<(), Reason> {
    // The derived parser would take an array of the fields' values, too.
    if line.trim_ascii_start().first() != Some(&b'{') {
        return Err("no JSON object".into());
    }
    let line: Line = serde_json::from_slice(line).map_err(|error| describe(&error))?;
    take("key", [line.key, line.key_hex, line.key_base64], key)?;
    take("value", [line.value, line.value_hex, line.value_base64], value)
}

/// The parser's own text would quote the input.
fn describe(error: &serde_json::Error) -> Reason {
    let what = match error.classify() {
        serde_json::error::Category::Eof => "the JSON object is cut off",
        serde_json::error::Category::Data => "not an object of the known string fields, each once",
        _ => "not JSON",
    };
    format!("{what}, column {}", error.column())
}

fn take(name: &str, forms: [Option<String>; 3], out: &mut Vec<u8>) -> Result<(), Reason> {
    match forms {
        [Some(text), None, None] => {
            out.extend_from_slice(text.as_bytes());
            Ok(())
        }
        [None, Some(digits), None] => {
            hex::decode(digits.as_bytes(), out).map_err(|reason| format!("{name}_hex: {reason}"))
        }
        [None, None, Some(text)] => {
            *out = decode_base64(text.as_bytes()).map_err(|reason| format!("{name}_base64: {reason}"))?;
            Ok(())
        }
        [None, None, None] => Err(format!("no {name}, {name}_hex or {name}_base64")),
        _ => Err(format!("the {name} is given twice")),
    }
}
