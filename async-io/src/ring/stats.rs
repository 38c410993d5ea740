//! What a service has done, in numbers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Numbers of an I/O service since its start. Each is exact; together they are of no one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoStats {
    /// Operations accepted.
    pub submitted_count: u64,
    /// Operations that ended, failed ones included.
    pub completed_count: u64,
    /// Operations that ended in an error.
    pub failed_count: u64,
    /// Bytes of operations that have not ended.
    pub in_flight_bytes: u64,
    /// The most that `in_flight_bytes` ever was.
    pub in_flight_bytes_peak: u64,
    /// Transfers that the kernel cut short and that were continued.
    pub short_count: u64,
    /// Attempts that did not run (EINTR, EAGAIN, a link broken by a short write) and were repeated.
    pub retried_count: u64,
    /// Operations that a ring left to plain calls on a helping thread.
    pub helped_count: u64,
    /// Reads of a batch that the page cache answered without waiting.
    pub cached_reads_count: u64,
}

#[derive(Default)]
pub(super) struct Counts {
    submitted: AtomicU64,
    completed: AtomicU64,
    failed: AtomicU64,
    bytes: AtomicU64,
    bytes_peak: AtomicU64,
    pub(super) short: AtomicU64,
    pub(super) retried: AtomicU64,
    pub(super) helped: AtomicU64,
    pub(super) cached: AtomicU64,
}

impl Counts {
    pub(super) fn begin(&self, bytes: u64) {
        self.submitted.fetch_add(1, Relaxed);
        let now = self.bytes.fetch_add(bytes, Relaxed) + bytes;
        self.bytes_peak.fetch_max(now, Relaxed);
    }

    pub(super) fn end(&self, bytes: u64, ok: bool) {
        self.bytes.fetch_sub(bytes, Relaxed);
        self.completed.fetch_add(1, Relaxed);
        if !ok {
            self.failed.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn snapshot(&self) -> IoStats {
        IoStats {
            submitted_count: self.submitted.load(Relaxed),
            completed_count: self.completed.load(Relaxed),
            failed_count: self.failed.load(Relaxed),
            in_flight_bytes: self.bytes.load(Relaxed),
            in_flight_bytes_peak: self.bytes_peak.load(Relaxed),
            short_count: self.short.load(Relaxed),
            retried_count: self.retried.load(Relaxed),
            helped_count: self.helped.load(Relaxed),
            cached_reads_count: self.cached.load(Relaxed),
        }
    }
}
