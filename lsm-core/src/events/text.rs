//! Fields of events: as text in the LOG, as values for `tracing`.

use std::fmt::{Display, Write as _};
use std::sync::Arc;

use super::TableRef;
use crate::Error;
use crate::metrics::StallCause;

/// The value of a field.
pub(super) trait Field {
    type Traced<'a>: tracing::Value
    where
        Self: 'a;

    /// Appends ` name=value`, or nothing if there is no value.
    fn write(&self, name: &str, out: &mut String);

    fn traced(&self) -> Self::Traced<'_>;
}

fn put(out: &mut String, name: &str, value: impl Display) {
    let _ = write!(out, " {name}={value}");
}

/// Appends ` name=value` for text, in quotes if it would not be told from what follows.
pub(super) fn put_text(out: &mut String, name: &str, text: &str) {
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '"' | '=' | '\\');
    if !text.is_empty() && text.chars().all(is_plain) {
        return put(out, name, text);
    }
    let _ = write!(out, " {name}=\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            // A line is one event, whatever a name or an error says.
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out.push('"');
}

macro_rules! plain_fields {
    ($($type:ty),+) => { $(
        impl Field for $type {
            type Traced<'a> = $type;
            fn write(&self, name: &str, out: &mut String) {
                put(out, name, self);
            }
            fn traced(&self) -> $type {
                *self
            }
        }
    )+ };
}

plain_fields!(bool, u8, u16, u32, u64);

impl Field for &'static str {
    type Traced<'a> = &'static str;
    fn write(&self, name: &str, out: &mut String) {
        put_text(out, name, self);
    }
    fn traced(&self) -> &'static str {
        self
    }
}

impl Field for Arc<str> {
    type Traced<'a> = &'a str;
    fn write(&self, name: &str, out: &mut String) {
        put_text(out, name, self);
    }
    fn traced(&self) -> &str {
        self
    }
}

impl Field for StallCause {
    type Traced<'a> = &'static str;
    fn write(&self, name: &str, out: &mut String) {
        put_text(out, name, self.as_str());
    }
    fn traced(&self) -> &'static str {
        self.as_str()
    }
}

impl Field for Error {
    type Traced<'a> = String;
    fn write(&self, name: &str, out: &mut String) {
        put_text(out, name, &self.to_string());
    }
    fn traced(&self) -> String {
        self.to_string()
    }
}

impl<T: Field> Field for Option<T> {
    type Traced<'a>
        = Option<T::Traced<'a>>
    where
        T: 'a;
    fn write(&self, name: &str, out: &mut String) {
        if let Some(value) = self {
            value.write(name, out);
        }
    }
    fn traced(&self) -> Option<T::Traced<'_>> {
        self.as_ref().map(T::traced)
    }
}

impl Display for TableRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "L{}:{:06}:{}", self.level, self.number, self.bytes)
    }
}

impl Field for TableRef {
    type Traced<'a> = String;
    fn write(&self, name: &str, out: &mut String) {
        put(out, name, self);
    }
    fn traced(&self) -> String {
        self.to_string()
    }
}

impl Field for Vec<TableRef> {
    type Traced<'a> = String;
    fn write(&self, name: &str, out: &mut String) {
        put(out, name, self.traced());
    }
    fn traced(&self) -> String {
        let tables: Vec<String> = self.iter().map(TableRef::to_string).collect();
        format!("[{}]", tables.join(","))
    }
}

/// `wall_us`, microseconds since 1970, as date and time of UTC.
pub(super) fn put_time(out: &mut String, wall_us: u64) {
    let (secs, us) = (wall_us / 1_000_000, wall_us % 1_000_000);
    let (year, month, day) = date(secs / 86_400);
    let (hour, minute, second) = (secs / 3600 % 24, secs / 60 % 60, secs % 60);
    let _ = write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{us:06}Z");
}

/// The date of a day counted from 1970-01-01, in the Gregorian calendar.
fn date(day: u64) -> (u64, u64, u64) {
    // Years that begin in March end with the leap day; 400 of them have 146097 days.
    let from = day + 719_468;
    let (era, day) = (from / 146_097, from % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let of_month = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_utc() {
        let text = |wall_us| {
            let mut out = String::new();
            put_time(&mut out, wall_us);
            out
        };
        assert_eq!(text(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(text(951_827_696_000_001), "2000-02-29T12:34:56.000001Z");
        assert_eq!(text(1_709_251_199_999_999), "2024-02-29T23:59:59.999999Z");
        assert_eq!(text(4_107_542_400_000_000), "2100-03-01T00:00:00.000000Z");
    }

    #[test]
    fn text_stays_on_its_line_and_in_its_field() {
        let text = |value: &str| {
            let mut out = String::new();
            put_text(&mut out, "k", value);
            out
        };
        assert_eq!(text("default"), " k=default");
        assert_eq!(text(""), " k=\"\"");
        assert_eq!(text("a b=\"c\"\n\\"), " k=\"a b=\\\"c\\\"\\n\\\\\"");
    }
}
