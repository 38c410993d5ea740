//! The two ends of an operation under way: who asked for it holds an [`IoTicket`], who does it a
//! [`Completer`].
//!
//! ```text
//!   Front::admit --> Task{op, Completer} --> queue --> kernel, worker or simulation
//!        |                                                   |
//!        +--> IoTicket <== State: outcome, flag <== Completer::complete (or its drop)
//! ```
//!
//! INVARIANT: every ticket ends. A completer that is dropped without an outcome, because a
//! thread panicked or a service went away, leaves an error of kind `Internal`. Dropping a ticket
//! drops nothing that an operation uses: file and buffer are in the task.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::Buf;
use super::stats::Counts;
use crate::env::{Event, Fork, Nanos};
use crate::error::{Error, ErrorKind, Result};

/// What became of an operation.
#[derive(Debug)]
pub struct Done {
    /// Bytes read or written (0 for syncs), or why not.
    pub result: Result<usize>,
    /// The operation's buffer, after a read cut to what was read; empty where it had none, and
    /// where it is lost (in a child process, or after a panic in the service).
    pub buf: Buf,
}

/// What both ends share.
struct State {
    done: Mutex<Option<Done>>,
    is_done: AtomicBool,
    /// Notified when any of several operations is done: a service has a few for all.
    event: Arc<dyn Event>,
    fork: Fork,
}

/// The outcome of an operation, now or later. Dropping it withdraws nothing: the operation goes on
/// and its buffer lives until it is over.
pub struct IoTicket(Inner);

enum Inner {
    Ready(Done),
    Pending(Arc<State>),
}

impl IoTicket {
    /// A ticket for what is over already.
    pub(crate) fn ready(done: Done) -> IoTicket {
        IoTicket(Inner::Ready(done))
    }

    /// Whether the outcome is known. Never waits.
    pub fn is_done(&self) -> bool {
        match &self.0 {
            Inner::Ready(_) => true,
            Inner::Pending(state) => state.is_done.load(Ordering::Acquire),
        }
    }

    /// Waits until the outcome is known or `deadline` has passed on the environment's clock;
    /// returns whether it is. In a child process of the one that asked: false at once.
    pub fn wait_until(&self, deadline: Option<Nanos>) -> bool {
        let Inner::Pending(state) = &self.0 else { return true };
        loop {
            let seen = state.event.epoch();
            if state.is_done.load(Ordering::Acquire) {
                return true;
            }
            if state.fork.check().is_err() {
                return false;
            }
            // The event is shared, so it may move for others.
            if !state.event.wait_for_ticket(seen, deadline) {
                return state.is_done.load(Ordering::Acquire);
            }
        }
    }

    /// Waits for the outcome. In a child process of the one that asked for the operation it is an
    /// error of kind `Forked`, since nobody there will ever complete it.
    pub fn wait(self) -> Done {
        self.wait_until(None);
        self.try_take().unwrap_or_else(|_| {
            let e = Error::new(ErrorKind::Forked, "the operation was submitted by the parent process");
            Done { result: Err(e), buf: Buf::default() }
        })
    }

    /// The outcome if it is known, else the ticket back.
    ///
    /// # Errors
    /// The ticket itself, while the operation is under way.
    pub fn try_take(self) -> std::result::Result<Done, IoTicket> {
        match self.0 {
            Inner::Ready(done) => Ok(done),
            Inner::Pending(state) if state.is_done.load(Ordering::Acquire) => {
                Ok(state.done.lock().take().expect("one ticket per state, and taking consumes it"))
            }
            pending @ Inner::Pending(_) => Err(IoTicket(pending)),
        }
    }
}

impl std::fmt::Debug for IoTicket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_done() { "IoTicket(done)" } else { "IoTicket(under way)" })
    }
}

/// The end that tells the outcome; once.
pub(super) struct Completer {
    state: Option<Arc<State>>,
    /// Somebody else to wake.
    also: Option<Arc<dyn Event>>,
    counts: Arc<Counts>,
    bytes: u64,
}

impl Completer {
    /// Both ends of an operation that moves `bytes`; counts it as begun.
    pub(super) fn pair(
        event: Arc<dyn Event>,
        also: Option<Arc<dyn Event>>,
        fork: Fork,
        counts: Arc<Counts>,
        bytes: u64,
    ) -> (Completer, IoTicket) {
        let state = Arc::new(State { done: Mutex::new(None), is_done: AtomicBool::new(false), event, fork });
        counts.begin(bytes);
        let ticket = IoTicket(Inner::Pending(Arc::clone(&state)));
        (Completer { state: Some(state), also, counts, bytes }, ticket)
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    pub(super) fn complete(mut self, done: Done) {
        self.finish(done);
    }

    fn finish(&mut self, done: Done) {
        let Some(state) = self.state.take() else { return };
        self.counts.end(self.bytes, done.result.is_ok());
        *state.done.lock() = Some(done);
        state.is_done.store(true, Ordering::Release);
        state.event.notify();
        if let Some(also) = &self.also {
            also.notify();
        }
    }
}

impl Drop for Completer {
    fn drop(&mut self) {
        if self.state.is_some() {
            let e = Error::new(ErrorKind::Internal, "the I/O service gave the operation up");
            self.finish(Done { result: Err(e), buf: Buf::default() });
        }
    }
}
