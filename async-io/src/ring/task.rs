//! An operation on its way through a service, and the door by which all services let it in.
//!
//! A task owns everything the operation needs (file, buffer, completer) and knows how far it has
//! got. It can be done in one go by plain calls ([`Task::run`]), or part by part: [`Task::part`]
//! says what to ask for next, and whoever asked notes the progress.

use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::stats::Counts;
use super::ticket::Completer;
use super::{Buf, Done, IoOp, IoTicket, is_aligned};
use crate::env::{Env, Event, Fork};
use crate::error::{Error, ErrorKind, Result};
use crate::fs::{File, Fs};

/// Events for the tickets of one service: enough that waiters seldom wake each other for nothing.
const EVENTS: usize = 8;

/// The largest file offset there is. The kernel would take offsets with the top bit for errors, and
/// the one with all bits set for "where the descriptor stands".
const OFFSET_MAX: u64 = i64::MAX as u64;

/// The most bytes asked of the kernel at once, below its own bound of 2^31 less a page.
const PART_BYTES_MAX: usize = 1 << 30;

/// Checks operations, makes tickets, counts.
pub(super) struct Front {
    fork: Fork,
    counts: Arc<Counts>,
    events: Vec<Arc<dyn Event>>,
    next_event: AtomicUsize,
    is_closed: AtomicBool,
}

impl Front {
    pub(super) fn new(env: &(impl Env + ?Sized), fork: Fork) -> Front {
        let events = (0..EVENTS).map(|_| env.event()).collect();
        let (next_event, is_closed) = (AtomicUsize::new(0), AtomicBool::new(false));
        Front { fork, counts: Arc::default(), events, next_event, is_closed }
    }

    /// From now on everything is refused.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    pub(super) fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    pub(super) fn is_forked(&self) -> bool {
        self.fork.check().is_err()
    }

    /// Lets an operation in, or gives the ticket of one that is over before it began: refused, or
    /// without a byte to move.
    pub(super) fn admit(
        &self,
        mut op: IoOp,
        also: Option<Arc<dyn Event>>,
    ) -> std::result::Result<(Task, IoTicket), IoTicket> {
        // First, because in a child no lock may be taken: the parent may have held it.
        if let Err(e) = self.fork.check() {
            return Err(IoTicket::ready(Done { result: Err(e), buf: op.take_buf() }));
        }
        let is_closed = self.is_closed();
        let checked = if is_closed { Err(closed()) } else { check_range(&op) };
        // To the kernel a write-back of 0 bytes is one up to the end.
        let is_empty = match &op {
            IoOp::Read { buf, .. } | IoOp::Write { buf, .. } => buf.is_empty(),
            IoOp::StartWriteback { len, .. } => *len == 0,
            IoOp::WriteThenSync { .. } | IoOp::SyncData { .. } | IoOp::SyncDir { .. } => false,
        };
        if checked.is_err() || is_empty {
            let ticket = IoTicket::ready(Done { result: checked.map(|()| 0), buf: op.take_buf() });
            if let Some(also) = also {
                also.notify();
            }
            return Err(ticket);
        }
        let nth = self.next_event.fetch_add(1, Ordering::Relaxed) % EVENTS;
        let bytes = op.buf().map_or(0, |buf| buf.len() as u64);
        let counts = Arc::clone(&self.counts);
        let event = Arc::clone(&self.events[nth]);
        let (completer, ticket) = Completer::pair(event, also, self.fork.clone(), counts, bytes);
        Ok((Task { op, done: 0, attempts: 0, dir: None, completer }, ticket))
    }
}

#[cold]
pub(super) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the I/O service was shut down")
}

fn check_range(op: &IoOp) -> Result<()> {
    let (file, len, offset) = match op {
        IoOp::Read { file, buf, offset }
        | IoOp::Write { file, buf, offset }
        | IoOp::WriteThenSync { file, buf, offset } => (file, buf.len() as u64, offset),
        IoOp::SyncData { .. } | IoOp::SyncDir { .. } | IoOp::StartWriteback { .. } => return Ok(()),
    };
    match offset.checked_add(len) {
        Some(end) if end <= OFFSET_MAX => Ok(()),
        _ => Err(Error::invalid("a range past the largest offset").at_path(file.path()).at_offset(*offset)),
    }
}

/// What to ask for next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Bytes `from..to` of the buffer, to or from the file at `offset`.
    Transfer { is_write: bool, from: usize, to: usize, offset: u64, then_sync: bool },
    /// The file's data.
    SyncData,
    /// The directory.
    SyncDir,
    /// A hint: that the file's bytes from `offset` on are to be written back.
    Writeback { offset: u64, len: u64 },
}

/// An operation under way.
pub(super) struct Task {
    pub(super) op: IoOp,
    /// Bytes of the buffer transferred so far.
    pub(super) done: usize,
    /// How often in a row it was asked for and did not run.
    pub(super) attempts: u32,
    /// The directory of a `SyncDir`, where it is open.
    pub(super) dir: Option<OwnedFd>,
    completer: Completer,
}

impl Task {
    pub(super) fn counts(&self) -> &Counts {
        self.completer.counts()
    }

    /// The next part. A sync rides on the last part of its write only: one that followed an
    /// earlier part would not cover the rest.
    pub(super) fn part(&self) -> Part {
        let (buf, offset, is_write, syncs) = match &self.op {
            IoOp::Write { buf, offset, .. } => (buf, *offset, true, false),
            IoOp::WriteThenSync { buf, offset, .. } => (buf, *offset, true, true),
            IoOp::Read { buf, offset, .. } => (buf, *offset, false, false),
            IoOp::SyncData { .. } => return Part::SyncData,
            IoOp::SyncDir { .. } => return Part::SyncDir,
            IoOp::StartWriteback { offset, len, .. } => {
                return Part::Writeback { offset: *offset, len: *len };
            }
        };
        let (from, to) = (self.done, buf.len().min(self.done + PART_BYTES_MAX));
        if from == to {
            return Part::SyncData;
        }
        let then_sync = syncs && to == buf.len();
        Part::Transfer { is_write, from, to, offset: offset + from as u64, then_sync }
    }

    /// Whether the kernel may be given the next part as it is: past the page cache it takes aligned
    /// ones only, while plain calls help themselves.
    pub(super) fn is_fit_for_kernel(&self) -> bool {
        let (Some(file), Some(buf)) = (self.op.file(), self.op.buf()) else { return true };
        match self.part() {
            Part::Transfer { from, to, offset, .. } => {
                !file.is_direct() || is_aligned(&buf[from..to], offset)
            }
            Part::SyncData | Part::SyncDir | Part::Writeback { .. } => true,
        }
    }

    /// Whether all bytes are transferred.
    pub(super) fn is_transferred(&self) -> bool {
        self.op.buf().is_none_or(|buf| self.done == buf.len())
    }

    fn finish(mut self, result: Result<usize>) {
        let mut buf = self.op.take_buf();
        if let (IoOp::Read { .. }, Ok(n)) = (&self.op, &result) {
            buf.truncate(*n);
        }
        // The file goes before the outcome is told, so that who waits may count on it.
        let Task { op, completer, dir, .. } = self;
        drop((op, dir));
        completer.complete(Done { result, buf });
    }

    /// Ends it well, with what was transferred.
    pub(super) fn succeed(self) {
        let n = self.done;
        self.finish(Ok(n));
    }

    /// Ends it with the error of the part that was under way.
    pub(super) fn fail(self, error: Error) {
        self.finish(Err(error));
    }

    /// Ends it with a system error met while doing `what`.
    pub(super) fn fail_errno(self, errno: i32, what: &str) {
        let e = std::io::Error::from_raw_os_error(errno);
        let error = match &self.op {
            IoOp::SyncDir { dir } => Error::io(&e, what, dir),
            op => Error::io(&e, what, op.file().map_or(Path::new(""), |file| file.path())),
        };
        let error = match (self.part(), &self.op) {
            (Part::Transfer { offset, .. }, _) => error.at_offset(offset),
            _ => error,
        };
        self.fail(error);
    }

    /// Gives up the operation's memory for good and ends it with `error`: for the case that the
    /// kernel may still use it and will never say.
    pub(super) fn leak(self, error: Error) {
        let Task { op, dir, completer, .. } = self;
        std::mem::forget((op, dir));
        completer.complete(Done { result: Err(error), buf: Buf::default() });
    }

    /// Does what is left of it by plain calls.
    pub(super) fn run(self, fs: &dyn Fs) {
        let mut left = Some(self);
        while let Some(task) = left {
            left = task.work(fs, usize::MAX);
        }
    }

    /// Makes the next plain call, with `most` bytes at most; gives itself back if there is more to
    /// do. A panic in the call (a wrapper's, a test's) ends the operation, not the thread.
    pub(super) fn work(mut self, fs: &dyn Fs, most: usize) -> Option<Task> {
        match catch_unwind(AssertUnwindSafe(|| self.call(fs, most))) {
            Ok(Ok(true)) => self.succeed(),
            Ok(Ok(false)) => return Some(self),
            Ok(Err(e)) => self.fail(e),
            Err(payload) => {
                // The payload's own drop may panic, too; then the completer's drop tells.
                if catch_unwind(AssertUnwindSafe(move || drop(payload))).is_ok() {
                    self.fail(Error::new(ErrorKind::Internal, "a file call panicked"));
                }
            }
        }
        None
    }

    /// Returns whether that was the last call.
    fn call(&mut self, fs: &dyn Fs, most: usize) -> Result<bool> {
        let from = self.done;
        match &mut self.op {
            IoOp::SyncDir { dir } => fs.sync_dir(dir)?,
            IoOp::SyncData { file } => file.sync_data()?,
            IoOp::StartWriteback { file, offset, len } => file.start_writeback(*offset, *len),
            IoOp::WriteThenSync { file, buf, .. } if from == buf.len() => file.sync_data()?,
            IoOp::WriteThenSync { file, buf, offset } | IoOp::Write { file, buf, offset } => {
                let to = buf.len().min(from.saturating_add(most));
                file.write_at(&buf[from..to], *offset + from as u64)?;
                self.done = to;
                return Ok(to == buf.len() && matches!(self.op, IoOp::Write { .. }));
            }
            IoOp::Read { file, buf, offset } => {
                let to = buf.len().min(from.saturating_add(most));
                let n = file.read_at(&mut buf[from..to], *offset + from as u64)?;
                self.done += n;
                return Ok(n < to - from || to == buf.len());
            }
        }
        Ok(true)
    }

    /// Reads what the page cache has without waiting for the disk; returns whether that was all.
    pub(super) fn read_cached(&mut self) -> bool {
        let IoOp::Read { file, buf, offset } = &mut self.op else { return false };
        // Past the page cache this call could wait for the disk.
        if file.is_direct() {
            return false;
        }
        let Some(fd) = file.fd() else { return false };
        let into = &mut [IoSliceMut::new(buf)];
        // An error means "would wait" or "not known here"; real ones will show again.
        match rustix::io::preadv2(fd, into, *offset, rustix::io::ReadWriteFlags::NOWAIT) {
            Ok(n) => {
                let is_all = n == buf.len() || n == 0;
                self.done = n;
                is_all
            }
            Err(_) => false,
        }
    }
}

impl IoOp {
    pub(super) fn file(&self) -> Option<&Arc<dyn File>> {
        match self {
            IoOp::Read { file, .. }
            | IoOp::Write { file, .. }
            | IoOp::WriteThenSync { file, .. }
            | IoOp::SyncData { file }
            | IoOp::StartWriteback { file, .. } => Some(file),
            IoOp::SyncDir { .. } => None,
        }
    }

    pub(super) fn buf(&self) -> Option<&Buf> {
        match self {
            IoOp::Read { buf, .. } | IoOp::Write { buf, .. } | IoOp::WriteThenSync { buf, .. } => Some(buf),
            IoOp::SyncData { .. } | IoOp::SyncDir { .. } | IoOp::StartWriteback { .. } => None,
        }
    }

    pub(super) fn buf_mut(&mut self) -> Option<&mut Buf> {
        match self {
            IoOp::Read { buf, .. } | IoOp::Write { buf, .. } | IoOp::WriteThenSync { buf, .. } => Some(buf),
            IoOp::SyncData { .. } | IoOp::SyncDir { .. } | IoOp::StartWriteback { .. } => None,
        }
    }

    fn take_buf(&mut self) -> Buf {
        self.buf_mut().map(std::mem::take).unwrap_or_default()
    }
}
