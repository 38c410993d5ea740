//! The status object: how the last call that it was given to ended.

use std::ffi::{CStr, CString};

use dialsm::Error;

use crate::Code;

/// How the last call that it was given to ended: code, message and, where known, the file, the offset in it and
/// the error number of the operating system. One thread at a time.
#[derive(Debug, Default)]
pub struct Status {
    code: Code,
    message: CString,
    file: Option<CString>,
    offset: Option<u64>,
    os_code: i32,
}

impl Status {
    /// Notes that a call succeeded.
    #[inline]
    pub fn clear(&mut self) {
        if self.code != Code::DIALSM_OK {
            *self = Status::default();
        }
    }

    /// Notes how a call failed.
    #[cold]
    pub fn set(&mut self, error: &Error) {
        *self = Status {
            code: error.kind().into(),
            message: text(error.message().as_bytes()),
            file: error.path().map(|path| text(path.as_os_str().as_encoded_bytes())),
            offset: error.offset(),
            os_code: error.os_code().unwrap_or(0),
        };
    }

    /// Its code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Its text without file and offset; empty after success.
    pub fn message(&self) -> &CStr {
        &self.message
    }

    /// The file concerned, where known.
    pub fn file(&self) -> Option<&CStr> {
        self.file.as_deref()
    }

    /// The offset in that file, where known.
    pub fn offset(&self) -> Option<u64> {
        self.offset
    }

    /// The operating system's error number; 0 where none stood behind the error.
    pub fn os_code(&self) -> i32 {
        self.os_code
    }
}

/// `bytes` up to the first that C would take for their end.
fn text(bytes: &[u8]) -> CString {
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    CString::new(bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dialsm::ErrorKind;
    use std::path::Path;

    #[test]
    fn it_holds_all_an_error_says_and_forgets_it_after_success() {
        let mut status = Status::default();
        let error = Error::new(ErrorKind::Corruption, "bad\0block").at_path(Path::new("/a/b")).at_offset(7);
        status.set(&error);
        assert_eq!(status.code(), Code::DIALSM_CORRUPTION);
        assert_eq!((status.message(), status.file(), status.offset()), (c"bad", Some(c"/a/b"), Some(7)));
        status.clear();
        assert_eq!((status.code(), status.message(), status.file()), (Code::DIALSM_OK, c"", None));
    }
}
