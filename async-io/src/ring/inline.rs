//! The service without a thread: every operation is over when `submit` returns. What an
//! environment gives that has nothing better.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::task::Front;
use super::{AsyncIo, IoKind, IoOp, IoStats, IoTicket};
use crate::env::{Env, Event, Fork, wait_for_end};
use crate::fs::Fs;

pub(crate) struct InlineIo {
    front: Front,
    fs: Arc<dyn Fs>,
    /// Threads in a call that submits: a shutdown waits for them.
    inside: AtomicUsize,
    left: Arc<dyn Event>,
}

/// A thread that submits.
struct Inside<'a>(&'a InlineIo);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
        if self.0.front.is_closed() {
            self.0.left.notify();
        }
    }
}

impl InlineIo {
    pub(crate) fn new(env: &(impl Env + ?Sized)) -> InlineIo {
        let front = Front::new(env, Fork::default());
        InlineIo { front, fs: Arc::clone(env.fs()), inside: AtomicUsize::new(0), left: env.event() }
    }
}

impl AsyncIo for InlineIo {
    fn submit_and_notify(&self, op: IoOp, done: Option<Arc<dyn Event>>) -> IoTicket {
        self.inside.fetch_add(1, Ordering::SeqCst);
        let _inside = Inside(self);
        match self.front.admit(op, done) {
            Err(over) => over,
            Ok((task, ticket)) => {
                task.run(&*self.fs);
                ticket
            }
        }
    }

    fn kind(&self) -> IoKind {
        IoKind::Inline
    }

    fn report(&self) -> String {
        "I/O by plain calls".to_owned()
    }

    fn stats(&self) -> IoStats {
        self.front.counts().snapshot()
    }

    fn shutdown(&self) {
        self.front.close();
        wait_for_end(&*self.left, || self.inside.load(Ordering::SeqCst) == 0);
    }
}
