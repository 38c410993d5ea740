//! Failures and the exit codes that scripts see.
//!
//! ```text
//! 0         done
//! 1         the key (or property) asked for is not there
//! 2         the call is wrong: usage, InvalidArgument, TooLarge
//! 3..=255   the number of the error's kind (3 NotFound, 22 Busy, 60 Corruption, 80 Io, ..)
//! ```
//! The kinds 1 and 2 give way to the two codes that scripts expect there; with `--json` the exact
//! number is on standard error. A kind whose number does not fit in a byte would be 255.

use std::io;

use dialsm_core::{Error, ErrorKind};

/// Why a command did not do what was asked.
#[derive(Debug)]
pub enum Failure {
    /// The command line is wrong; the text says how.
    Usage(String),
    /// The key or property is not there. Nothing is printed: the code says it.
    Absent,
    /// The engine, or the tool's own input.
    Error(Error),
    /// Standard output cannot be written.
    Output(io::Error),
}

/// What a command comes to.
pub type Outcome<T = ()> = Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Error(error)
    }
}

impl From<io::Error> for Failure {
    /// Only output is written with plain calls whose errors pass through here.
    fn from(error: io::Error) -> Failure {
        Failure::Output(error)
    }
}

impl Failure {
    /// The code to exit with.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Absent => 1,
            Failure::Usage(_) => 2,
            Failure::Output(_) => kind_exit_code(ErrorKind::Io),
            Failure::Error(error) => kind_exit_code(error.kind()),
        }
    }

    /// The line for standard error; none where the code says all, or the reader of the output has
    /// gone and wants no more.
    pub fn report(&self, json: bool) -> Option<String> {
        let (kind, message) = match self {
            Failure::Absent => return None,
            Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => return None,
            Failure::Output(error) => (ErrorKind::Io, format!("cannot write the output: {error}")),
            Failure::Usage(text) => (ErrorKind::InvalidArgument, text.clone()),
            Failure::Error(error) => (error.kind(), error.message().to_string()),
        };
        if !json {
            return Some(match self {
                Failure::Error(error) => format!("dialsm: {error}"),
                Failure::Usage(text) => format!("dialsm: {text}\nTry `dialsm --help`."),
                _ => format!("dialsm: {message}"),
            });
        }
        let mut fields = serde_json::Map::new();
        fields.insert("kind".into(), format!("{kind:?}").into());
        fields.insert("code".into(), kind.code().into());
        fields.insert("message".into(), message.into());
        if let Failure::Error(error) = self {
            if let Some(path) = error.path() {
                fields.insert("path".into(), path.display().to_string().into());
            }
            if let Some(offset) = error.offset() {
                fields.insert("offset".into(), offset.into());
            }
        }
        Some(serde_json::json!({ "error": fields }).to_string())
    }
}

fn kind_exit_code(kind: ErrorKind) -> u8 {
    match kind.code() {
        0..=2 => 2,
        code => u8::try_from(code).unwrap_or(255),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_reports_follow_the_kind() {
        for (kind, code) in [
            (ErrorKind::InvalidArgument, 2),
            (ErrorKind::TooLarge, 2),
            (ErrorKind::NotFound, 3),
            (ErrorKind::Busy, 22),
            (ErrorKind::Corruption, 60),
            (ErrorKind::Internal, 82),
        ] {
            assert_eq!(Failure::from(Error::new(kind, "x")).exit_code(), code);
        }
        assert_eq!(Failure::Absent.exit_code(), 1);
        assert_eq!(Failure::Absent.report(true), None);
        assert_eq!(Failure::from(io::Error::from(io::ErrorKind::BrokenPipe)).report(false), None);
        let damage = Error::corruption("block").at_path("a.sst".as_ref()).at_offset(7);
        let failure = Failure::from(damage);
        assert_eq!(failure.report(false).as_deref(), Some("dialsm: Corruption: block [a.sst at offset 7]"));
        let json: serde_json::Value =
            serde_json::from_str(&failure.report(true).expect("it has a text")).expect("JSON");
        assert_eq!(
            json,
            serde_json::json!({"error": {"kind": "Corruption", "code": 60, "message": "block", "path": "a.sst", "offset": 7}})
        );
    }
}
