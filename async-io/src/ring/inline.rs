//! The service without a thread: every operation is over when `submit` returns. What an
//! environment gives that has nothing better.

use std::sync::Arc;

use super::task::Front;
use super::{AsyncIo, IoKind, IoOp, IoStats, IoTicket};
use crate::env::{Env, Event, Fork};
use crate::fs::Fs;

pub(crate) struct InlineIo {
    front: Front,
    fs: Arc<dyn Fs>,
}

impl InlineIo {
    pub(crate) fn new(env: &(impl Env + ?Sized)) -> InlineIo {
        let front = Front::new(env, Fork::default());
        InlineIo { front, fs: Arc::clone(env.fs()) }
    }
}

impl AsyncIo for InlineIo {
    fn submit_and_notify(&self, op: IoOp, done: Option<Arc<dyn Event>>) -> IoTicket {
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
    }
}
