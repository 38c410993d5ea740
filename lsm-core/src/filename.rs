//! Names of the files in a database directory, both ways.
//!
//! ```text
//! NNNNNN.sst        table             CURRENT   names the manifest in force
//! NNNNNN.log        log segment       LOCK      advisory lock, empty
//! MANIFEST-NNNNNN   manifest          LOG       text log for humans
//! OPTIONS-NNNNNN    options           X.tmp     X being written; goes at the next open
//! SHARD_DIRS        shard directories SHARD_DIR whose directory it lies in, in each of those
//! LOG.old.T         an older LOG, T the decimal number of microseconds at which it was put away
//! ```
//! `NNNNNN` is the file number in decimal, padded with zeros to six digits. Invariant: a name has
//! one meaning and a meaning has one name (`000001` is a number, `0000001` is not), so that a file
//! found in a directory can be named again from what it was parsed to. Temporary files are the
//! exception: they only ever get removed.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::types::FileNumber;

/// The name of the file that names the manifest in force.
pub const CURRENT: &str = "CURRENT";

/// What a file of a database is, by its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileName {
    /// A table, `NNNNNN.sst`.
    Table(FileNumber),
    /// A segment of the commit log, `NNNNNN.log`.
    Log(FileNumber),
    /// A manifest, `MANIFEST-NNNNNN`.
    Manifest(FileNumber),
    /// `CURRENT`.
    Current,
    /// `LOCK`.
    Lock,
    /// The effective options of one opening, `OPTIONS-NNNNNN`.
    Options(FileNumber),
    /// `LOG`.
    InfoLog,
    /// `LOG.old.T`: one that was put away at that time, in microseconds since 1970.
    OldInfoLog(u64),
    /// `SHARD_DIRS`: the shard directories of a database.
    ShardDirs,
    /// `SHARD_DIR`: the marker in one of them.
    ShardDir,
    /// An unfinished file; the name as it is, `.tmp` included.
    Temp(String),
}

impl FileName {
    /// What the last component of a path says; `None` for names that are not ours.
    pub fn parse(name: &str) -> Option<FileName> {
        if let Some(finished) = name.strip_suffix(".tmp") {
            // Somebody else's temporary file is not ours to remove.
            let is_ours = FileName::parse(finished).is_some_and(|file| !matches!(file, FileName::Temp(_)));
            return is_ours.then(|| FileName::Temp(name.to_owned()));
        }
        match name {
            CURRENT => return Some(FileName::Current),
            "LOCK" => return Some(FileName::Lock),
            "LOG" => return Some(FileName::InfoLog),
            "SHARD_DIRS" => return Some(FileName::ShardDirs),
            "SHARD_DIR" => return Some(FileName::ShardDir),
            _ => {}
        }
        if let Some(digits) = name.strip_prefix("LOG.old.") {
            return parse_decimal(digits).map(FileName::OldInfoLog);
        }
        if let Some(digits) = name.strip_prefix("MANIFEST-") {
            return parse_number(digits).map(FileName::Manifest);
        }
        if let Some(digits) = name.strip_prefix("OPTIONS-") {
            return parse_number(digits).map(FileName::Options);
        }
        let (digits, extension) = name.split_once('.')?;
        match extension {
            "sst" => parse_number(digits).map(FileName::Table),
            "log" => parse_number(digits).map(FileName::Log),
            _ => None,
        }
    }

    /// The file's number, where it has one.
    pub fn number(&self) -> Option<FileNumber> {
        match self {
            FileName::Table(n) | FileName::Log(n) | FileName::Manifest(n) | FileName::Options(n) => Some(*n),
            // Of what it was to become: a name that a crash left behind can't be made again.
            FileName::Temp(name) => FileName::parse(name.strip_suffix(".tmp")?)?.number(),
            FileName::Current
            | FileName::Lock
            | FileName::InfoLog
            | FileName::OldInfoLog(_)
            | FileName::ShardDirs
            | FileName::ShardDir => None,
        }
    }

    /// The path of this file in `dir`.
    pub fn path(&self, dir: &Path) -> PathBuf {
        dir.join(self.to_string())
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileName::Table(n) => write!(f, "{n}.sst"),
            FileName::Log(n) => write!(f, "{n}.log"),
            FileName::Manifest(n) => write!(f, "MANIFEST-{n}"),
            FileName::Current => f.write_str(CURRENT),
            FileName::Lock => f.write_str("LOCK"),
            FileName::Options(n) => write!(f, "OPTIONS-{n}"),
            FileName::InfoLog => f.write_str("LOG"),
            FileName::OldInfoLog(time) => write!(f, "LOG.old.{time}"),
            FileName::ShardDirs => f.write_str("SHARD_DIRS"),
            FileName::ShardDir => f.write_str("SHARD_DIR"),
            FileName::Temp(name) => f.write_str(name),
        }
    }
}

/// Six digits, or more without a leading zero.
fn parse_number(digits: &str) -> Option<FileNumber> {
    let padded = digits.len() == 6 || (digits.len() > 6 && !digits.starts_with('0'));
    if !padded || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().map(FileNumber)
}

/// A decimal number without leading zeros.
fn parse_decimal(digits: &str) -> Option<u64> {
    let is_short = digits == "0" || !digits.starts_with('0');
    if !is_short || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_meanings_are_one_to_one() {
        let numbers = [0, 1, 99, 999_999, 1_000_000, u64::MAX].map(FileNumber);
        let mut names = vec![FileName::Current, FileName::Lock, FileName::InfoLog];
        names.extend([FileName::ShardDirs, FileName::ShardDir]);
        for n in numbers {
            names.extend([FileName::Table(n), FileName::Log(n), FileName::Manifest(n), FileName::Options(n)]);
            names.push(FileName::OldInfoLog(n.0));
        }
        for name in &names {
            assert_eq!(FileName::parse(&name.to_string()).as_ref(), Some(name), "{name}");
        }
        let mut texts: Vec<String> = names.iter().map(FileName::to_string).collect();
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), names.len());
        assert_eq!(FileName::Log(FileNumber(7)).path(Path::new("d")), Path::new("d/000007.log"));
    }

    #[test]
    fn other_names_are_left_alone() {
        let strange = [
            "",
            ".",
            ".tmp",
            "notes.tmp",
            "CURRENT.tmp.tmp",
            ".sst",
            "1.sst",
            "0000001.sst",
            "00000a.log",
            "+00001.log",
            "000001.log.old",
            "000001.ldb",
            "MANIFEST-",
            "MANIFEST-1",
            "MANIFEST-000001x",
            "OPTIONS",
            "current",
            "LOCK ",
            "LOG.old",
            "LOG.old.",
            "LOG.old.01",
            "LOG.old.1x",
            "18446744073709551616.sst",
            "０００００１.sst",
        ];
        for name in strange {
            assert_eq!(FileName::parse(name), None, "{name:?}");
        }
        assert_eq!(FileName::parse("CURRENT.tmp"), Some(FileName::Temp("CURRENT.tmp".into())));
        assert_eq!(FileName::Temp("CURRENT.tmp".into()).number(), None);
        assert_eq!(FileName::Temp("OPTIONS-000012.tmp".into()).number(), Some(FileNumber(12)));
    }
}
