//! The one error type of DiaLSM and its list of kinds.
//!
//! Style would give each crate an error of its own; here all crates share this one, because the
//! numbers below are an outside contract: Rust, C, JSON and the exit codes of the tools use them
//! alike, and a second list would drift. Kinds are sorted by what the caller should do.
//!
//! Keys and values never enter an error text.

use std::fmt;
use std::path::{Path, PathBuf};

/// What went wrong, sorted by what the caller should do about it. The numbers never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[non_exhaustive]
pub enum ErrorKind {
    // Fix the call.
    /// An argument or option is out of its range; nothing was done.
    InvalidArgument = 1,
    /// A key, value or batch is larger than the documented bound; nothing was logged.
    TooLarge = 2,
    /// The database, keyspace or file asked for does not exist.
    NotFound = 3,
    /// It exists already and the call asked that it must not.
    AlreadyExists = 4,
    /// The build or the platform does not offer this (a codec left out, a newer format).
    Unsupported = 5,
    /// The handle was opened read-only, or the directory is.
    ReadOnly = 6,

    // Retry, now or later.
    /// The write would have waited and `no_slowdown` was set.
    WouldStall = 20,
    /// The deadline given with the call passed first. Nothing was written.
    TimedOut = 21,
    /// Another process or another handle of this process has the database open.
    Busy = 22,
    /// The file system is full; writing resumes by itself when space is back.
    NoSpace = 23,
    /// The job was cancelled, by the caller or because the database is closing.
    Cancelled = 24,
    /// Memory, of a size that the caller named, is not to be had. Nothing was done.
    OutOfMemory = 25,

    // Reopen.
    /// The database was closed.
    Closed = 40,
    /// The handle crossed a `fork()`: a child process may not use its parent's database.
    Forked = 41,
    /// An earlier background error stopped writes; its text is in the context. Reads go on.
    Poisoned = 42,

    // Repair data.
    /// Bytes on disk are not what was written: checksum, order, bound or length is wrong.
    Corruption = 60,
    /// The file belongs to another database, or is not a DiaLSM file.
    Foreign = 61,
    /// The file's format is newer than this build, or has a must-understand bit it does not know.
    NewerFormat = 62,

    // Report.
    /// The operating system failed a call; the context has its text.
    Io = 80,
    /// A callback of the user (comparator, merge operator) failed.
    Callback = 81,
    /// A broken assumption inside the engine.
    Internal = 82,
}

impl ErrorKind {
    /// All kinds, by their numbers.
    pub const ALL: [ErrorKind; 21] = [
        ErrorKind::InvalidArgument,
        ErrorKind::TooLarge,
        ErrorKind::NotFound,
        ErrorKind::AlreadyExists,
        ErrorKind::Unsupported,
        ErrorKind::ReadOnly,
        ErrorKind::WouldStall,
        ErrorKind::TimedOut,
        ErrorKind::Busy,
        ErrorKind::NoSpace,
        ErrorKind::Cancelled,
        ErrorKind::OutOfMemory,
        ErrorKind::Closed,
        ErrorKind::Forked,
        ErrorKind::Poisoned,
        ErrorKind::Corruption,
        ErrorKind::Foreign,
        ErrorKind::NewerFormat,
        ErrorKind::Io,
        ErrorKind::Callback,
        ErrorKind::Internal,
    ];

    /// The fixed number of this kind.
    pub fn code(self) -> u32 {
        self as u32
    }
}

/// An error with its context: the operation, and where known the file and the offset in it.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    path: Option<PathBuf>,
    offset: Option<u64>,
    os_code: Option<i32>,
}

/// Whether the process, or the system, has as many files open as it may.
pub(crate) fn is_out_of_descriptors(os_code: Option<i32>) -> bool {
    matches!(os_code, Some(libc::EMFILE | libc::ENFILE))
}

/// The result of a fallible DiaLSM call.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of `kind` whose text says what was being done and what was found.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error(Box::new(Inner { kind, message: message.into(), path: None, offset: None, os_code: None }))
    }

    /// Bytes on disk that are not what was written.
    pub fn corruption(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Corruption, message)
    }

    /// An argument out of its range.
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::InvalidArgument, message)
    }

    /// Memory that could not be reserved, for `what`.
    #[cold]
    pub fn out_of_memory(what: &str) -> Error {
        Error::new(ErrorKind::OutOfMemory, format!("no memory for {what}"))
    }

    /// Wraps an error of the operating system met while doing `what` on `path`. A full device,
    /// a spent quota and a missing file get kinds of their own.
    pub fn io(error: &std::io::Error, what: &str, path: &Path) -> Error {
        let kind = match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => ErrorKind::NoSpace,
            Some(libc::ENOENT) => ErrorKind::NotFound,
            Some(libc::EEXIST) => ErrorKind::AlreadyExists,
            Some(libc::EROFS | libc::EACCES | libc::EPERM) => ErrorKind::ReadOnly,
            _ => ErrorKind::Io,
        };
        Error(Box::new(Inner {
            kind,
            message: format!("{what}: {error}"),
            path: Some(path.to_path_buf()),
            offset: None,
            os_code: error.raw_os_error(),
        }))
    }

    /// The same error with the file it concerns, unless it names one already.
    #[must_use]
    pub fn at_path(mut self, path: &Path) -> Error {
        self.0.path.get_or_insert_with(|| path.to_path_buf());
        self
    }

    /// The same error with the byte offset it concerns, unless it has one already.
    #[must_use]
    pub fn at_offset(mut self, offset: u64) -> Error {
        self.0.offset.get_or_insert(offset);
        self
    }

    /// The same error with the operating system's error number behind it, unless it has one already.
    #[must_use]
    pub fn with_os_code(mut self, os_code: Option<i32>) -> Error {
        self.0.os_code = self.0.os_code.or(os_code);
        self
    }

    /// Whether the same call may succeed later by itself: the disk is full, or no file descriptor is left.
    pub fn is_passing(&self) -> bool {
        self.kind() == ErrorKind::NoSpace || self.is_out_of_descriptors()
    }

    /// Whether the call could not begin for want of a file descriptor: it has lost nothing.
    pub fn is_out_of_descriptors(&self) -> bool {
        is_out_of_descriptors(self.os_code())
    }

    /// Whether something stands where a directory should be, or should not yet be anything.
    pub fn is_in_the_way(&self) -> bool {
        self.kind() == ErrorKind::AlreadyExists || self.os_code() == Some(libc::ENOTDIR)
    }

    /// What the caller should do about it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The text without file and offset.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The file concerned, where known.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// The byte offset in that file, where known.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    /// The operating system's error number, where one stood behind this error.
    pub fn os_code(&self) -> Option<i32> {
        self.0.os_code
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.0.kind, self.0.message)?;
        if let Some(path) = &self.0.path {
            write!(f, " [{}", path.display())?;
            if let Some(offset) = self.0.offset {
                write!(f, " at offset {offset}")?;
            }
            write!(f, "]")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}
