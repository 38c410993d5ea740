//! Data blocks of many tables, read together (R4): for look-ups of several keys and for seeks.
//!
//! ```text
//! wanted: (table, block)*  -- sort, once each -->  runs: blocks of one file that lie end to end
//!                                                    |  one read a run, all submitted at once
//!    a block or an error for each of the wanted  <-- wait, check, unpack, offer to the block cache
//! ```
//! Who asks has looked into the block cache and missed; there is no second look here. A single block
//! is read by a plain call: only together do reads gain by being submitted.
//!
//! INVARIANTS
//! - What comes out for a block is what [`TableReader`] would have read by itself, with the same checks;
//!   an error is that block's alone (and its run's neighbours', if their read failed).
//! - Reads under way for one caller stay below [`SUBMIT_READS_MAX`] and [`SUBMIT_BYTES_MAX`], a larger
//!   single block apart.
//! - Each block has memory of its own, though its run was read into one buffer: so what the cache
//!   counts for it is what it keeps.
//!
//! Attacked by `reading_together_and_one_by_one_agree`.

use std::ops::Range;
use std::sync::Arc;

use dialsm_io::{AsyncIo, Buf, Done, IoTicket, Nanos, ReadAt};

use super::block::Block;
use super::format::{self, Handle};
use super::reader::TableReader;
use super::{ReadSpec, ReadStats};
use crate::{Error, ErrorKind, Result};

/// Reads that are submitted at once: enough to keep any one device busy.
const SUBMIT_READS_MAX: usize = 256;

/// Bytes that are asked for at once.
const SUBMIT_BYTES_MAX: u64 = 8 << 20;

/// Bytes up to which neighbouring blocks become one read.
const RUN_BYTES_MAX: u64 = 256 << 10;

/// A data block that is not in the block cache.
pub struct Missing {
    pub(crate) table: Arc<TableReader>,
    /// Its number in the table.
    pub(crate) at: usize,
}

impl Missing {
    fn handle(&self) -> Handle {
        self.table.index.handle(self.at)
    }

    /// How many bytes have to be read.
    pub(crate) fn bytes(&self) -> u64 {
        let handle = self.handle();
        handle.end() - handle.offset
    }
}

/// How blocks are read together.
pub(crate) struct Fetcher {
    pub(crate) io: Arc<dyn AsyncIo>,
    pub(crate) spec: ReadSpec,
    /// On the environment's clock; a fetch fails when it has passed.
    pub(crate) deadline: Option<Nanos>,
}

/// Blocks that one read brings.
struct Run {
    /// Which of the distinct ones.
    blocks: Range<usize>,
    bytes: Range<u64>,
}

impl Fetcher {
    /// The blocks that are `wanted`, in that order; the same one may be wanted more than once.
    pub(crate) fn fetch(&self, wanted: &[Missing], stats: &mut ReadStats) -> Vec<Result<Block>> {
        let place = |i: &usize| (wanted[*i].table.number(), wanted[*i].at);
        let mut order: Vec<usize> = (0..wanted.len()).collect();
        order.sort_unstable_by_key(place);
        let mut distinct = order.clone();
        distinct.dedup_by_key(|i| place(i));
        let distinct: Vec<&Missing> = distinct.into_iter().map(|i| &wanted[i]).collect();

        let read = match distinct[..] {
            [only] => vec![only.table.block_from_file(only.handle(), &self.spec, stats)],
            _ => self.read_together(&distinct, stats),
        };
        let mut out: Vec<Option<Result<Block>>> = wanted.iter().map(|_| None).collect();
        let mut at = 0;
        for (nth, i) in order.iter().enumerate() {
            at += usize::from(nth > 0 && place(i) != place(&order[nth - 1]));
            out[*i] = Some(read[at].clone());
        }
        out.into_iter().map(|block| block.expect("the order names each of them once")).collect()
    }

    /// The blocks, which are in order and more than one.
    fn read_together(&self, blocks: &[&Missing], stats: &mut ReadStats) -> Vec<Result<Block>> {
        let mut out = Vec::with_capacity(blocks.len());
        let runs = runs(blocks);
        let mut left = &runs[..];
        while !left.is_empty() {
            let (now, later) = left.split_at(submitted_at_once(left));
            let tickets = self.io.read_many(now.iter().map(|run| read_of(run, blocks)).collect());
            for (run, ticket) in now.iter().zip(tickets) {
                self.take(run, &blocks[run.blocks.clone()], ticket, &mut out);
            }
            left = later;
        }
        stats.blocks_read += blocks.len() as u64;
        stats.blocks_batched += blocks.len() as u64;
        stats.bytes_read += blocks.iter().map(|block| block.bytes()).sum::<u64>();
        out
    }

    /// Waits for a run and takes it apart.
    fn take(&self, run: &Run, blocks: &[&Missing], ticket: IoTicket, out: &mut Vec<Result<Block>>) {
        let done = match self.deadline {
            None => ticket.wait(),
            Some(_) => {
                ticket.wait_until(self.deadline);
                let late = |_| Done { result: Err(timed_out()), buf: Buf::default() };
                ticket.try_take().unwrap_or_else(late)
            }
        };
        for block in blocks {
            out.push(match &done.result {
                Ok(there) => self.open(run, block, &done.buf[..*there]),
                Err(error) => Err(error.clone()),
            });
        }
    }

    /// The block out of what was read for its run.
    fn open(&self, run: &Run, missing: &Missing, bytes: &[u8]) -> Result<Block> {
        let (table, handle) = (&missing.table, missing.handle());
        let (from, len) = ((handle.offset - run.bytes.start) as usize, missing.bytes() as usize);
        let Some(sealed) = bytes.get(from..from + len) else {
            let there = bytes.len().saturating_sub(from);
            return Err(format::ends_early(&*table.file, len, there, handle.offset));
        };
        let block = format::copy_block(sealed, handle, self.spec.verify).map_err(|e| table.located(e))?;
        table.offer(handle, &self.spec, &block);
        Ok(block)
    }
}

/// Puts blocks that lie end to end into one run, as far as it may get.
fn runs(blocks: &[&Missing]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::with_capacity(blocks.len());
    for (i, block) in blocks.iter().enumerate() {
        let handle = block.handle();
        if let Some(run) = runs.last_mut()
            && blocks[i - 1].table.number() == block.table.number()
            && run.bytes.end == handle.offset
            && handle.end() - run.bytes.start <= RUN_BYTES_MAX
        {
            run.blocks.end = i + 1;
            run.bytes.end = handle.end();
        } else {
            runs.push(Run { blocks: i..i + 1, bytes: handle.offset..handle.end() });
        }
    }
    runs
}

/// How many of the runs may be under way at once; at least one.
fn submitted_at_once(runs: &[Run]) -> usize {
    let mut bytes = 0;
    let fit = runs.iter().take(SUBMIT_READS_MAX).take_while(|run| {
        bytes += run.bytes.end - run.bytes.start;
        bytes <= SUBMIT_BYTES_MAX
    });
    fit.count().max(1)
}

fn read_of(run: &Run, blocks: &[&Missing]) -> ReadAt {
    // A plain vector: for files that are read through the page cache no alignment is needed.
    let buf = Buf::from(vec![0; (run.bytes.end - run.bytes.start) as usize]);
    ReadAt { file: blocks[run.blocks.start].table.file.clone(), buf, offset: run.bytes.start }
}

#[cold]
fn timed_out() -> Error {
    Error::new(ErrorKind::TimedOut, "the read's deadline has passed")
}
