//! Tickets of operations that are over when `submit` returns: what file systems on plain calls
//! hand out.

use super::{File, Op, Ticket};
use crate::error::Result;

/// An outcome that is known already.
pub(crate) struct DoneTicket(pub(crate) Result<Vec<u8>>);

impl Ticket for DoneTicket {
    fn is_done(&self) -> bool {
        true
    }

    fn wait(self: Box<Self>) -> Result<Vec<u8>> {
        self.0
    }
}

/// Does `op` on `file` now and wraps the outcome.
pub(crate) fn run_now(file: &dyn File, op: Op) -> Box<dyn Ticket> {
    Box::new(DoneTicket(outcome(file, op)))
}

fn outcome(file: &dyn File, op: Op) -> Result<Vec<u8>> {
    match op {
        Op::Write { buf, offset } => file.write_at(&buf, offset).map(|()| buf),
        Op::Read { mut buf, offset } => {
            let n = file.read_at(&mut buf, offset)?;
            buf.truncate(n);
            Ok(buf)
        }
        Op::SyncData => file.sync_data().map(|()| Vec::new()),
    }
}
