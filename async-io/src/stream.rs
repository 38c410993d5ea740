//! A file written front to back by a thread that never waits for the disk.
//!
//! ```text
//!   write(bytes) --> buffer being filled --full--> submit --> under way (oldest first)
//!                        ^                                       |
//!                        +---- spare <---- reap, no waiting -----+--> ask for write-back (buffered)
//!
//!   finish() --> the rest, padded to a block (direct) --> Landing --all reaped--> cut to length
//!                                                                             --> the file handle
//! ```
//!
//! The thread that fills the buffers belongs to a merge: it may not wait for a ticket. So when all
//! buffers are under way one more is made, and what bounds them is a permit of the
//! [`Limiter`](crate::limiter::Limiter) over the whole file, taken before its first byte. Whoever
//! may wait takes the [`Landing`].
//!
//! INVARIANT (nothing torn): a file handle comes out of a landing only after every write was reaped
//! at full length, and after the file was cut to its length. An error of any write is the outcome of
//! all calls that follow, and of the landing. Attacked by `an_error_of_any_write_is_the_outcome`.
//!
//! INVARIANT (blocks): on a direct file each write begins and ends on a block of [`BUF_ALIGN`] bytes, in
//! an aligned buffer. Upheld by the buffers' size, a multiple of it, and the padding of the last
//! one; attacked by all tests over the simulated file system, which refuses other writes.
//!
//! Nothing is durable here: a landed file is with the kernel or the device, and a power cut may undo all
//! of it until it was synced.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::env::Event;
use crate::error::{Error, ErrorKind, Result};
use crate::fs::File;
use crate::ring::{AsyncIo, BUF_ALIGN, Buf, Done, IoOp, IoTicket};

/// How a stream writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// Bytes of a buffer, and so of a write: a multiple of 4096 up to 1 GiB. 1 MiB by default:
    /// smaller ones cost more calls, larger ones memory while they are filled.
    pub buf_bytes: usize,
    /// After so many bytes that were written in a row, the kernel is asked to write them back, so that a
    /// later sync finds little left to do; 0 for never. 4 MiB by default. Files past the page
    /// cache have nothing to write back. The call is made on the thread that writes, and may take
    /// long where the device's queue is full.
    pub writeback_bytes: u64,
}

impl Default for StreamOptions {
    fn default() -> StreamOptions {
        StreamOptions { buf_bytes: 1 << 20, writeback_bytes: 4 << 20 }
    }
}

/// A write that was submitted.
enum Flight {
    UnderWay(IoTicket, u64),
    /// Reaped, while an earlier one was not.
    Landed(u64),
}

/// Writes under way, in the order of the file. Common to a stream and its landing.
#[derive(Default)]
struct Flights {
    queue: VecDeque<Flight>,
    bytes: u64,
    /// All before this offset has landed.
    landed_end: u64,
    error: Option<Error>,
}

impl Flights {
    fn push(&mut self, ticket: IoTicket, bytes: u64) {
        self.bytes += bytes;
        self.queue.push_back(Flight::UnderWay(ticket, bytes));
    }

    /// Whether reaping would change something at the front.
    fn is_front_done(&self) -> bool {
        matches!(self.queue.front(), Some(Flight::UnderWay(ticket, _)) if ticket.is_done())
    }

    fn is_all_done(&self) -> bool {
        self.queue.iter().all(|flight| match flight {
            Flight::UnderWay(ticket, _) => ticket.is_done(),
            Flight::Landed(_) => true,
        })
    }

    /// Takes in what has ended, without waiting; buffers go to `spare`.
    fn reap(&mut self, file: &dyn File, spare: &mut Vec<Buf>) {
        for index in 0..self.queue.len() {
            let Flight::UnderWay(ticket, bytes) = &self.queue[index] else { continue };
            if !ticket.is_done() {
                continue;
            }
            let landed = Flight::Landed(*bytes);
            if let Flight::UnderWay(ticket, bytes) = std::mem::replace(&mut self.queue[index], landed) {
                let done = ticket.try_take().expect("it said that it was done");
                self.note(file, done, bytes, spare);
            }
        }
        while let Some(Flight::Landed(bytes)) = self.queue.front() {
            self.landed_end += bytes;
            self.queue.pop_front();
        }
    }

    /// Waits for every write; in a child process of the one that submitted them that is an error.
    fn wait(&mut self, file: &dyn File) {
        for flight in std::mem::take(&mut self.queue) {
            if let Flight::UnderWay(ticket, bytes) = flight {
                self.note(file, ticket.wait(), bytes, &mut Vec::new());
            }
        }
    }

    fn note(&mut self, file: &dyn File, done: Done, bytes: u64, spare: &mut Vec<Buf>) {
        self.bytes -= bytes;
        let error = match done.result {
            Ok(n) if n as u64 == bytes => None,
            Ok(n) => {
                let text = format!("a write of {bytes} bytes ended after {n}");
                Some(Error::new(ErrorKind::Internal, text).at_path(file.path()))
            }
            Err(e) => Some(e),
        };
        if self.error.is_none() {
            self.error = error;
        }
        // It is lost where a service gave the operation up.
        if done.buf.capacity() > 0 {
            spare.push(done.buf);
        }
    }

    fn check(&self) -> Result<()> {
        self.error.as_ref().map_or(Ok(()), |e| Err(e.clone()))
    }
}

/// Writes one file; see the module's header.
///
/// Dropping it withdraws nothing that was submitted: buffers and file live until the kernel is done with
/// them. What was not submitted is lost, and the file's length is anything up to what was written. (Who
/// drops the last handle on the service waits for all it has under way; a stream should not be that.)
pub struct StreamWriter {
    io: Arc<dyn AsyncIo>,
    file: Arc<dyn File>,
    options: StreamOptions,
    notify: Option<Arc<dyn Event>>,
    /// The buffer being filled; without room between a full one and the next byte.
    fill: Buf,
    /// Where in the file `fill` begins.
    start: u64,
    flights: Flights,
    spare: Vec<Buf>,
    written_back: u64,
}

impl StreamWriter {
    /// A stream at the front of an empty `file`, open for writing, through `io`. `notify` is notified
    /// when a write has ended.
    ///
    /// # Errors
    /// `InvalidArgument` for options out of their range.
    pub fn new(
        io: Arc<dyn AsyncIo>,
        file: Arc<dyn File>,
        notify: Option<Arc<dyn Event>>,
        options: StreamOptions,
    ) -> Result<StreamWriter> {
        let bytes = options.buf_bytes;
        if !(BUF_ALIGN..=1 << 30).contains(&bytes) || !bytes.is_multiple_of(BUF_ALIGN) {
            return Err(Error::invalid(format!("buf_bytes {bytes} is no multiple of 4096 up to 1 GiB")));
        }
        Ok(StreamWriter {
            io,
            file,
            options,
            notify,
            fill: Buf::default(),
            start: 0,
            flights: Flights::default(),
            spare: Vec::new(),
            written_back: 0,
        })
    }

    /// The handle that writes. Reads through it see what was reaped.
    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// Bytes taken in so far: where in the file the next one goes.
    pub fn len(&self) -> u64 {
        self.start + self.fill.len() as u64
    }

    /// Whether nothing was taken in yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes submitted of which the end was not seen yet; their buffers are in memory. It is looked
    /// for at each submit.
    pub fn bytes_in_flight(&self) -> u64 {
        self.flights.bytes
    }

    /// Appends. Never waits for a write, though the call that submits one may (a service of plain
    /// calls).
    ///
    /// # Errors
    /// That of an earlier write, as soon as it is seen; then all later calls fail with it, and the
    /// file is of no use.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        if self.flights.is_front_done() {
            self.reap();
        }
        self.flights.check()?;
        while !bytes.is_empty() {
            if self.fill.capacity() == 0 {
                self.fill = self.next_buf();
            }
            let room = self.options.buf_bytes - self.fill.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.fill.extend_from_slice(now);
            bytes = later;
            if self.fill.len() == self.options.buf_bytes {
                self.submit();
                self.flights.check()?;
            }
        }
        Ok(())
    }

    fn next_buf(&mut self) -> Buf {
        // Between the last submit and now one may have come back.
        if self.spare.is_empty() {
            self.reap();
        }
        match self.spare.pop() {
            Some(mut buf) => {
                buf.clear();
                buf
            }
            None => Buf::with_capacity(self.options.buf_bytes),
        }
    }

    fn submit(&mut self) {
        let (buf, offset) = (std::mem::take(&mut self.fill), self.start);
        let bytes = buf.len() as u64;
        self.start += bytes;
        let op = IoOp::Write { file: Arc::clone(&self.file), buf, offset };
        let ticket = self.io.submit_and_notify(op, self.notify.clone());
        self.flights.push(ticket, bytes);
        self.reap();
    }

    fn reap(&mut self) {
        self.flights.reap(&*self.file, &mut self.spare);
        let (from, to) = (self.written_back, self.flights.landed_end);
        let step = self.options.writeback_bytes;
        if step > 0 && to - from >= step && !self.file.is_direct() && self.flights.error.is_none() {
            self.file.start_writeback(from, to - from);
            self.written_back = to;
        }
    }

    /// Submits the rest, without waiting, and gives what is under way to whoever may wait. After an
    /// error nothing more is submitted, and the landing has that error.
    pub fn finish(mut self) -> Landing {
        let len = self.len();
        if !self.fill.is_empty() && self.flights.check().is_ok() {
            if self.file.is_direct() {
                let padding = self.fill.len().next_multiple_of(BUF_ALIGN) - self.fill.len();
                self.fill.extend_from_slice(&[0; BUF_ALIGN][..padding]);
            }
            self.submit();
        }
        let cut_to = (self.start > len).then_some(len);
        let (io, file, flights) = (Some(self.io), self.file, self.flights);
        Landing { _io: io, file, flights, cut_to, outcome: None }
    }
}

/// What a finished stream still has under way. Dropping it withdraws nothing; the file is then written,
/// but, where it is direct, not cut to its length.
pub struct Landing {
    /// Kept, so that `finish` does not drop the last handle on the service, which would wait.
    _io: Option<Arc<dyn AsyncIo>>,
    file: Arc<dyn File>,
    flights: Flights,
    /// The length, where the last block was padded.
    cut_to: Option<u64>,
    outcome: Option<Result<Arc<dyn File>>>,
}

impl Landing {
    /// A landing that is over: of a file written by plain calls.
    pub fn landed(file: Arc<dyn File>) -> Landing {
        let outcome = Some(Ok(Arc::clone(&file)));
        Landing { _io: None, file, flights: Flights::default(), cut_to: None, outcome }
    }

    /// Whether every write has ended. Never waits. After it `try_take` has the outcome.
    pub fn is_done(&self) -> bool {
        self.flights.is_all_done()
    }

    /// Bytes whose end was not seen yet; see [`StreamWriter::bytes_in_flight`].
    pub fn bytes_in_flight(&self) -> u64 {
        self.flights.bytes
    }

    /// The outcome once every write has ended: the handle that wrote, to be synced through, or the
    /// error that came first. None before. Never waits for a write, but the first call that has the
    /// outcome cuts a direct file to its length by a plain call, which a merging thread should leave
    /// to others. Later calls give the same again.
    pub fn try_take(&mut self) -> Option<Result<Arc<dyn File>>> {
        self.flights.reap(&*self.file, &mut Vec::new());
        if !self.flights.queue.is_empty() {
            return None;
        }
        if self.outcome.is_none() {
            self.outcome = Some(self.end());
        }
        self.outcome.clone()
    }

    /// The same, for callers that may wait.
    ///
    /// # Errors
    /// The one that came first of all writes, or that of cutting the file; `Forked` in a child
    /// process of the one that wrote.
    pub fn wait(mut self) -> Result<Arc<dyn File>> {
        self.flights.wait(&*self.file);
        match self.outcome.take() {
            Some(outcome) => outcome,
            None => self.end(),
        }
    }

    fn end(&self) -> Result<Arc<dyn File>> {
        self.flights.check()?;
        if let Some(len) = self.cut_to {
            self.file.set_len(len)?;
        }
        Ok(Arc::clone(&self.file))
    }
}

impl std::fmt::Debug for Landing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Landing({} bytes under way)", self.flights.bytes)
    }
}
