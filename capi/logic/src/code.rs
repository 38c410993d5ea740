//! The numbers that C calls return: those of [`ErrorKind`], and 0.

use dialsm_io::ErrorKind;

/// What a call came to. `DIALSM_OK` is 0; the others say what to do about it. The numbers never change;
/// a later version may add some.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
#[allow(non_camel_case_types, reason = "the names stand in the C header as they are here")]
pub enum Code {
    /// Done.
    #[default]
    DIALSM_OK = 0,

    /// Fix the call: an argument or option is out of its range, or NULL where that is not allowed. Nothing
    /// was done.
    DIALSM_INVALID_ARGUMENT = 1,
    /// Fix the call: a key, value or batch is larger than its bound. Nothing was done.
    DIALSM_TOO_LARGE = 2,
    /// The database, keyspace or file asked for does not exist. (A key without a value is no error.)
    DIALSM_NOT_FOUND = 3,
    /// It exists already, and the call asked that it must not.
    DIALSM_ALREADY_EXISTS = 4,
    /// This build or platform does not offer it: a codec left out.
    DIALSM_UNSUPPORTED = 5,
    /// The database was opened for reading only, or its directory is read-only.
    DIALSM_READ_ONLY = 6,

    /// Try again: the write would have waited, and its options forbid that.
    DIALSM_WOULD_STALL = 20,
    /// Try again: the time given with the call was over first. Nothing was written.
    DIALSM_TIMED_OUT = 21,
    /// Try again: somebody else has the database open.
    DIALSM_BUSY = 22,
    /// Try again: the disk is full. Writing resumes by itself when there is space.
    DIALSM_NO_SPACE = 23,
    /// The call was cancelled, or the database is being closed.
    DIALSM_CANCELLED = 24,
    /// No memory of the size that the caller named, or that a file asked for. Nothing was done.
    DIALSM_OUT_OF_MEMORY = 25,

    /// Open it anew: the database was closed.
    DIALSM_CLOSED = 40,
    /// A child of fork() may not use what its parent opened, nor open anything if that was still open.
    DIALSM_FORKED = 41,
    /// Open it anew: an earlier error in the background stopped writes (reads go on), or a call panicked
    /// (nothing goes on).
    DIALSM_POISONED = 42,

    /// Repair the data: bytes on disk are not what was written.
    DIALSM_CORRUPTION = 60,
    /// A file belongs to another database, or to another program.
    DIALSM_FOREIGN = 61,
    /// A file was made by a newer version.
    DIALSM_NEWER_FORMAT = 62,

    /// The operating system failed a call. Where dialsm_status_os_error() is EMFILE or ENFILE: try again; writing resumes
    /// by itself when there are file descriptors.
    DIALSM_IO = 80,
    /// A callback failed, or broke its promises.
    DIALSM_CALLBACK = 81,
    /// A defect of the library.
    DIALSM_INTERNAL = 82,
}

impl From<ErrorKind> for Code {
    fn from(kind: ErrorKind) -> Code {
        Code::from_number(kind.code()).unwrap_or(Code::DIALSM_INTERNAL)
    }
}

/// Each code with the word for it that programs may show.
const NAMES: [(Code, &std::ffi::CStr); 22] = [
    (Code::DIALSM_OK, c"ok"),
    (Code::DIALSM_INVALID_ARGUMENT, c"invalid argument"),
    (Code::DIALSM_TOO_LARGE, c"too large"),
    (Code::DIALSM_NOT_FOUND, c"not found"),
    (Code::DIALSM_ALREADY_EXISTS, c"already exists"),
    (Code::DIALSM_UNSUPPORTED, c"unsupported"),
    (Code::DIALSM_READ_ONLY, c"read only"),
    (Code::DIALSM_WOULD_STALL, c"would stall"),
    (Code::DIALSM_TIMED_OUT, c"timed out"),
    (Code::DIALSM_BUSY, c"busy"),
    (Code::DIALSM_NO_SPACE, c"no space"),
    (Code::DIALSM_CANCELLED, c"cancelled"),
    (Code::DIALSM_OUT_OF_MEMORY, c"out of memory"),
    (Code::DIALSM_CLOSED, c"closed"),
    (Code::DIALSM_FORKED, c"forked"),
    (Code::DIALSM_POISONED, c"poisoned"),
    (Code::DIALSM_CORRUPTION, c"corruption"),
    (Code::DIALSM_FOREIGN, c"foreign"),
    (Code::DIALSM_NEWER_FORMAT, c"newer format"),
    (Code::DIALSM_IO, c"i/o error"),
    (Code::DIALSM_CALLBACK, c"callback failed"),
    (Code::DIALSM_INTERNAL, c"internal error"),
];

impl Code {
    /// The code with this number, if there is one.
    pub fn from_number(number: u32) -> Option<Code> {
        NAMES.iter().map(|(code, _)| *code).find(|code| *code as u32 == number)
    }

    /// The word for the code with this number.
    pub fn name(number: u32) -> &'static std::ffi::CStr {
        let named = NAMES.iter().find(|(code, _)| *code as u32 == number);
        named.map_or(c"unknown code", |(_, name)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_code_and_no_code_is_without_a_kind() {
        for kind in ErrorKind::ALL {
            assert_eq!(Code::from(kind) as u32, kind.code(), "{kind:?}");
        }
        assert_eq!(NAMES.len(), ErrorKind::ALL.len() + 1);
    }
}
