//! The first background error that matters, latched: writes are refused, reads go on.
//!
//! Two grades. A *full disk* and a process without *file descriptors* are passing: writes get `NoSpace`, or `Io`
//! with the operating system's number, while it lasts, the failed job is tried again on a timer, and its success
//! lifts the error. Everything else is *lasting*: writes get
//! `Poisoned` with the text of the first failure until the database is opened anew, because a
//! failed sync or a corrupt input says nothing good about a retry.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::events::{self, ErrorLifted, Events};
use crate::{Error, ErrorKind, Result};

const NONE: u8 = 0;
const PASSING: u8 = 1;
const LASTING: u8 = 2;

pub(crate) struct BackgroundError {
    grade: AtomicU8,
    first: Mutex<Option<Error>>,
    events: Arc<Events>,
}

impl BackgroundError {
    pub(crate) fn new(events: Arc<Events>) -> BackgroundError {
        BackgroundError { grade: AtomicU8::new(NONE), first: Mutex::new(None), events }
    }

    /// Latches `error`, met while doing `what`. A lasting error is never replaced.
    pub(crate) fn latch(&self, what: &str, error: &Error) {
        self.latch_graded(what, error, if error.is_passing() { PASSING } else { LASTING });
    }

    /// Latches `error` for good, even a full disk: a failed sync can't be made up for.
    pub(crate) fn latch_lasting(&self, what: &str, error: &Error) {
        self.latch_graded(what, error, LASTING);
    }

    fn latch_graded(&self, what: &str, error: &Error, grade: u8) {
        let mut first = self.first.lock();
        if self.grade.load(Ordering::Relaxed) >= grade {
            return;
        }
        let kind = if grade == PASSING { error.kind() } else { ErrorKind::Poisoned };
        let text = format!("writes are stopped: {what} failed: {}", error.message());
        let mut latched = Error::new(kind, text).with_os_code(error.os_code());
        if let Some(path) = error.path() {
            latched = latched.at_path(path);
        }
        if let Some(offset) = error.offset() {
            latched = latched.at_offset(offset);
        }
        *first = Some(latched);
        self.grade.store(grade, Ordering::Release);
        // The caller may hold locks; who wakes the writers rings.
        self.events.push(|| {
            let (job, is_lasting) = (Arc::from(what), grade == LASTING);
            events::BackgroundError { job, is_lasting, error: error.clone() }.into()
        });
    }

    /// Lifts a passing error after the job that met it has succeeded.
    pub(crate) fn lift_passing(&self) {
        if self.grade.load(Ordering::Acquire) != PASSING {
            return;
        }
        let mut first = self.first.lock();
        if self.grade.load(Ordering::Relaxed) == PASSING {
            *first = None;
            self.grade.store(NONE, Ordering::Release);
            self.events.push(|| ErrorLifted {}.into());
        }
    }

    /// Whether writes are refused until the database is opened anew.
    pub(crate) fn is_lasting(&self) -> bool {
        self.grade.load(Ordering::Acquire) == LASTING
    }

    /// The latched error, if any.
    pub(crate) fn check(&self) -> Result<()> {
        if self.grade.load(Ordering::Acquire) == NONE {
            return Ok(());
        }
        self.first.lock().clone().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_disk_passes_and_the_first_lasting_error_stays() {
        let latch = BackgroundError::new(Events::none());
        assert!(latch.check().is_ok());
        latch.latch("flush", &Error::new(ErrorKind::NoSpace, "full"));
        assert_eq!(latch.check().expect_err("full").kind(), ErrorKind::NoSpace);
        latch.lift_passing();
        assert!(latch.check().is_ok());
        let no_descriptor = Error::new(ErrorKind::Io, "no descriptor").with_os_code(Some(24));
        latch.latch("flush", &no_descriptor);
        let error = latch.check().expect_err("none left");
        assert_eq!((error.kind(), error.os_code()), (ErrorKind::Io, Some(24)));
        latch.lift_passing();
        assert!(latch.check().is_ok());
        latch.latch("flush", &Error::new(ErrorKind::Io, "EIO one"));
        latch.latch("flush", &Error::new(ErrorKind::NoSpace, "full"));
        latch.latch("compaction", &Error::new(ErrorKind::Io, "EIO two"));
        latch.lift_passing();
        let error = latch.check().expect_err("poisoned");
        assert_eq!(error.kind(), ErrorKind::Poisoned);
        assert!(error.message().contains("EIO one"));
    }
}
