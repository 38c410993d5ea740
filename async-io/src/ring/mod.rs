//! Asynchronous I/O: operations that own their buffer and file, submitted without waiting,
//! completed in any order.
//!
//! ```text
//!                         submit(op)                           ticket.wait() / is_done()
//!   caller ----------------------+                                   ^
//!                                v                                   |
//!                   task: Front::admit (fork? range? empty?)    ticket: Completer
//!                                |                                   ^
//!          +-----------+---------+-----+--------------+              |
//!          v           v               v              v              |
//!       InlineIo     PoolIo          RingIo         SimIo -----------+
//!      at once, by  worker threads  one thread      seeded order, delays,
//!      plain calls  plain calls     owns io_uring   short pieces, on SimFs
//!                        ^             |
//!                        +--- helper --+ files without a descriptor (wrappers that must see each
//!                                        call), what the kernel refuses, the rest of its life if
//!                                        the kernel takes io_uring away
//! ```
//!
//! Modules in reading order: `buf`, `ticket`, `stats`, `task` (an operation and how far it is),
//! `inline` and `pool`, `kernel` (what the ring's thread needs of a kernel, a fake one in tests),
//! `driver` (parts, short transfers, broken links, retries), `uring` (io_uring; all unsafe code of
//! the ring), `service` (`RingIo`), `sim`.
//!
//! Promises, the same for all four (attacked by `aio_conformance.rs` in the tests):
//! - **Order.** None among operations under way at once, not even on the same bytes. A sync covers
//!   the writes of its file whose tickets were done when it was submitted, and nothing else is
//!   promised of it. Only [`IoOp::WriteThenSync`] puts two things in order: its sync begins when
//!   *all* its bytes are written. A short write breaks the link between the two in the kernel and
//!   cancels the sync, or does not: either way the sync is submitted again after the rest.
//! - **Whole transfers.** A write is written in full or failed; a read ends early at the file's end
//!   only. EINTR and EAGAIN never reach the caller.
//! - **A sync that failed failed.** It is reported and never tried again here; what did not run
//!   (EINTR, EAGAIN, cancelled with its link) is no failure.
//! - **Lifetimes.** Buffer and file live until the kernel is done with them, whatever the caller
//!   does with the ticket, and the buffer comes back with the outcome, of failed operations too.
//! - **Every ticket ends**, also when a service is shut down (it does all it has accepted first), a
//!   thread panics, or the kernel takes io_uring away in the middle.
//! - **fork().** In a child every call fails with `Forked`, waiting for the parent's tickets
//!   included; memory and descriptors of the ring are never touched there. Descriptors close on exec.
//!
//! Each database starts a service of its own: closing one drains only what is its own, a device
//! that hangs holds up nobody else, and nobody reaps a stranger's completion. A ring costs one
//! thread that sleeps and some tens of kilobytes, which is less than a shared one would cost in
//! bookkeeping.
//!
//! What `submit` does not do is wait: the number of operations under way has no bound here. Who
//! submits bounds it, through [`Limiter`](crate::limiter::Limiter) or
//! [`Durability`](crate::durable::Durability).

mod buf;
mod driver;
mod inline;
mod kernel;
mod pool;
mod service;
pub mod sim;
mod stats;
mod task;
mod ticket;
mod uring;

use std::path::PathBuf;
use std::sync::Arc;

use crate::env::Event;
use crate::fs::File;

pub(crate) use buf::is_aligned;
pub use buf::{BUF_ALIGN, Buf};
pub(crate) use inline::InlineIo;
pub(crate) use service::{start_os, start_pool};
pub use stats::IoStats;
pub use ticket::{Done, IoTicket};

/// An operation. It owns what it uses.
pub enum IoOp {
    /// Fill the buffer from the offset on; it comes back cut to what the file had.
    Read {
        /// From where; any access.
        file: Arc<dyn File>,
        /// Its length says how much.
        buf: Buf,
        /// Where in the file, in bytes.
        offset: u64,
    },
    /// Write all of the buffer at the offset.
    Write {
        /// Opened for writing.
        file: Arc<dyn File>,
        /// The bytes.
        buf: Buf,
        /// Where in the file, in bytes.
        offset: u64,
    },
    /// Write all of the buffer, then make the file's data durable: what was written here, and by
    /// operations that were done before this one was submitted.
    WriteThenSync {
        /// Opened for writing.
        file: Arc<dyn File>,
        /// The bytes.
        buf: Buf,
        /// Where in the file, in bytes.
        offset: u64,
    },
    /// As [`File::sync_data`]: bytes and length of writes that were done before.
    SyncData {
        /// The file; through the handle that wrote.
        file: Arc<dyn File>,
    },
    /// As [`Fs::sync_dir`](crate::Fs::sync_dir): names that were made, moved or removed before.
    SyncDir {
        /// The directory.
        dir: PathBuf,
    },
}

/// One read of a batch.
pub struct ReadAt {
    /// From where.
    pub file: Arc<dyn File>,
    /// Its length says how much.
    pub buf: Buf,
    /// Where in the file, in bytes.
    pub offset: u64,
}

/// What does the work of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoKind {
    /// Plain calls before `submit` returns.
    Inline,
    /// Plain calls on worker threads.
    Pool,
    /// io_uring.
    Ring,
    /// A simulation.
    Sim,
}

/// A service for asynchronous I/O; see the module's header for what all of them promise.
///
/// All methods may be called from any thread. Dropping a service shuts it down.
pub trait AsyncIo: Send + Sync {
    /// Submits an operation. Errors come through the ticket: `Closed` after a shutdown, `Forked` in
    /// a child process, `InvalidArgument` for a range past the largest file offset, those of the
    /// file system.
    fn submit(&self, op: IoOp) -> IoTicket {
        self.submit_and_notify(op, None)
    }

    /// The same; `done` is notified, too, when the outcome is known: for somebody who waits for
    /// many things at once. It may be notified before this returns.
    fn submit_and_notify(&self, op: IoOp, done: Option<Arc<dyn Event>>) -> IoTicket;

    /// Submits many reads at once, for which the disk is asked together; the tickets are in the
    /// order of the reads. Reads that need no waiting, their bytes being cached, may be over when
    /// this returns.
    fn read_many(&self, reads: Vec<ReadAt>) -> Vec<IoTicket> {
        let submit = |ReadAt { file, buf, offset }| self.submit(IoOp::Read { file, buf, offset });
        reads.into_iter().map(submit).collect()
    }

    /// What does the work at present.
    fn kind(&self) -> IoKind;

    /// A line for the log, once: what does the work, and where the kernel refused something better,
    /// why.
    fn report(&self) -> String;

    /// Numbers since the start.
    fn stats(&self) -> IoStats;

    /// Refuses further operations, does all that were accepted, and returns when the service has
    /// no thread any more. More calls do no harm. In a child process nothing happens.
    fn shutdown(&self);
}

/// How to start a service.
#[derive(Clone, Debug)]
pub struct IoOptions {
    /// Whether to use io_uring where there is one. Without, or where the kernel or a sandbox
    /// refuses it, worker threads make plain calls. On by default.
    pub use_ring: bool,
    /// Entries of the ring's submission queue, 1 to 4096: how many operations the kernel is given
    /// at once (twice as many may be under way). More wait their turn. 128 by default.
    pub ring_entries: u32,
    /// Worker threads where plain calls do the work, 1 to 64: so many operations are under way at
    /// once. 4 by default.
    pub pool_threads: usize,
    /// For tests: behave as if the kernel had refused io_uring with this error number.
    pub pretend_refused: Option<i32>,
}

impl Default for IoOptions {
    fn default() -> IoOptions {
        IoOptions { use_ring: true, ring_entries: 128, pool_threads: 4, pretend_refused: None }
    }
}
