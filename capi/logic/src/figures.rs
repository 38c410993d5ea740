//! Reports in structures that C reads. Each begins with its size, so that a later version can make it longer.

use dialsm::metrics::Counters;
use dialsm::{Error, Result, StallReport, StallTimes, VerifyReport};

/// Whether writes may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(non_camel_case_types, reason = "the names stand in the C header as they are here")]
pub enum StallState {
    /// Writes go on.
    DIALSM_STALL_OPEN = 0,
    /// They are slowed down.
    DIALSM_STALL_DELAYED = 1,
    /// At least one shard takes none, and lets its writes wait or go to others.
    DIALSM_STALL_STOPPED = 2,
}

/// How often and how long writes waited.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct StallCount {
    /// How often writes began to wait.
    pub count: u64,
    /// How long, in nanoseconds.
    pub total_ns: u64,
    /// The longest time without a break, in nanoseconds.
    pub longest_ns: u64,
}

impl StallCount {
    fn of(times: &StallTimes) -> StallCount {
        StallCount { count: times.count, total_ns: times.total_ns, longest_ns: times.longest_ns }
    }
}

/// Stalls since the database was opened, as dialsm_stalls() gives them. Set `size` to sizeof before the call.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct StallFigures {
    /// Bytes of this structure, set by the caller.
    pub size: usize,
    /// Whether writes may go on now.
    pub state: u32,
    /// 0.
    pub reserved: u32,
    /// Any cause; times that overlap count once.
    pub all: StallCount,
    /// A memtable was full and the next one not free.
    pub memtable: StallCount,
    /// Too many tables in level 0.
    pub level0: StallCount,
    /// Compactions owed too many bytes.
    pub pending: StallCount,
}

impl StallFigures {
    pub(crate) fn of(state: StallState, report: &StallReport) -> StallFigures {
        let [memtable, level0, pending] = &report.by_cause;
        StallFigures {
            size: size_of::<StallFigures>(),
            state: state as u32,
            reserved: 0,
            all: StallCount::of(&report.all),
            memtable: StallCount::of(memtable),
            level0: StallCount::of(level0),
            pending: StallCount::of(pending),
        }
    }
}

/// Clue entries and redirected values, as dialsm_clues() gives them; counted since the database was opened, but
/// for `clues`. Set `size` to sizeof before the call.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ClueReport {
    /// Bytes of this structure, set by the caller.
    pub size: usize,
    /// Clue entries in all tables and memtables now.
    pub clues: u64,
    /// Values and operands that went to another shard than their own.
    pub redirects: u64,
    /// Bytes of their keys and values.
    pub redirected_bytes: u64,
    /// Clue entries that a newer entry made obsolete, and that were dropped.
    pub clues_dropped: u64,
    /// Clue entries that a rollback replaced by what they stood for.
    pub clues_rolled_back: u64,
    /// Redirected entries dropped since no clue needed them any more.
    pub redirected_dropped: u64,
    /// Rollbacks that have ended.
    pub rollbacks: u64,
    /// Rollbacks given up because of a new burst of writes.
    pub rollback_aborts: u64,
}

impl ClueReport {
    pub(crate) fn of(clues: u64, counters: &Counters) -> ClueReport {
        ClueReport {
            size: size_of::<ClueReport>(),
            clues,
            redirects: counters.redirects,
            redirected_bytes: counters.redirected_bytes,
            clues_dropped: counters.clues_dropped,
            clues_rolled_back: counters.clues_rolled_back,
            redirected_dropped: counters.redirected_dropped,
            rollbacks: counters.rollbacks,
            rollback_aborts: counters.rollback_aborts,
        }
    }
}

/// What dialsm_verify() read. Set `size` to sizeof before the call.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct VerifyFigures {
    /// Bytes of this structure, set by the caller.
    pub size: usize,
    /// Tables read.
    pub tables: u64,
    /// Entries in them, range tombstones aside.
    pub entries: u64,
    /// Bytes of their files.
    pub bytes: u64,
}

impl VerifyFigures {
    pub(crate) fn of(report: VerifyReport) -> VerifyFigures {
        VerifyFigures {
            size: size_of::<VerifyFigures>(),
            tables: report.tables,
            entries: report.entries,
            bytes: report.bytes,
        }
    }
}

/// A structure that begins with its size, a `usize`, and is plain numbers else.
///
/// # Safety
/// So it is: `repr(C)`, `size` first, no padding, and any bytes are a value of it.
pub unsafe trait SizedFigures: Copy {
    /// What the first version had.
    const LEAST: usize;
}

// SAFETY: repr(C), the size first; numbers of 8 bytes and one pair of 4.
unsafe impl SizedFigures for StallFigures {
    const LEAST: usize = 16 + 4 * 24;
}
// SAFETY: repr(C), the size first; numbers of 8 bytes.
unsafe impl SizedFigures for ClueReport {
    const LEAST: usize = 9 * 8;
}
// SAFETY: repr(C), the size first; numbers of 8 bytes.
unsafe impl SizedFigures for VerifyFigures {
    const LEAST: usize = 4 * 8;
}

/// Writes as much of `figures` to `place` as its size says there is room for; a size that is larger than what this
/// version knows is left as it is, and what lies behind is zero.
///
/// # Errors
/// NULL, or a size that is smaller than the first version's.
///
/// # Safety
/// Where `place` is not NULL, a size can be read there, and so many bytes written.
pub unsafe fn give<T: SizedFigures>(place: *mut T, figures: &T) -> Result<()> {
    if place.is_null() {
        return Err(Error::invalid("the structure for the result: NULL"));
    }
    // SAFETY: a size stands first.
    let size = unsafe { place.cast::<usize>().read_unaligned() };
    if size < T::LEAST || size > 1 << 16 {
        return Err(Error::invalid(format!("a structure of {size} bytes: its size is not set")));
    }
    let known = size.min(size_of::<T>());
    let (from, to) = (std::ptr::from_ref(figures).cast::<u8>(), place.cast::<u8>());
    // SAFETY: there is room for `size` bytes, of which `known` are there in `figures`; the size itself stays.
    unsafe {
        let head = size_of::<usize>();
        to.add(head).copy_from_nonoverlapping(from.add(head), known - head);
        to.add(known).write_bytes(0, size - known);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_written_than_the_caller_has() {
        let figures = VerifyFigures { size: 0, tables: 1, entries: 2, bytes: 3 };
        let mut longer = [[0u64; 4], [9; 4]];
        longer[0][0] = 40;
        // SAFETY: 64 bytes stand there, of which 40 are said to be.
        unsafe { give(longer.as_mut_ptr().cast::<VerifyFigures>(), &figures) }.unwrap();
        assert_eq!(longer, [[40, 1, 2, 3], [0, 9, 9, 9]]);
        let mut unset = VerifyFigures { size: 0, ..figures };
        // SAFETY: it is one.
        assert!(unsafe { give(&raw mut unset, &figures) }.is_err());
    }
}
