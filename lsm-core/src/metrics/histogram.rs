//! A histogram over powers of two: 65 counters, no lock, no allocation.
//!
//! ```text
//! bucket 0   the value 0
//! bucket b   values in 2^(b-1) ..= 2^b - 1, for b in 1..=64
//! ```
//! A quantile read from it is at most twice the true one and never below it. It is not sharded:
//! what it records happens once a commit group or job.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const BUCKETS: usize = 65;

/// Counts of values by their magnitude, with their sum and greatest.
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
    max: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram::new()
    }
}

impl Histogram {
    /// An empty histogram.
    pub const fn new() -> Histogram {
        Histogram {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            sum: AtomicU64::new(0),
            max: AtomicU64::new(0),
        }
    }

    /// Counts one value.
    #[inline]
    pub fn record(&self, value: u64) {
        self.buckets[bucket(value)].fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
        // Most values are no new greatest: look before writing.
        if value > self.max.load(Relaxed) {
            self.max.fetch_max(value, Relaxed);
        }
    }

    /// The counts now.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let buckets = std::array::from_fn(|at| self.buckets[at].load(Relaxed));
        HistogramSnapshot { buckets, sum: self.sum.load(Relaxed), max: self.max.load(Relaxed) }
    }
}

fn bucket(value: u64) -> usize {
    (u64::BITS - value.leading_zeros()) as usize
}

/// The greatest value that bucket `at` counts.
fn bucket_end(at: usize) -> u64 {
    match at {
        0 => 0,
        _ => u64::MAX >> (BUCKETS - 1 - at),
    }
}

/// The counts of a [`Histogram`] at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramSnapshot {
    buckets: [u64; BUCKETS],
    /// Sum of all values.
    pub sum: u64,
    /// The greatest value; 0 if there is none.
    pub max: u64,
}

impl Default for HistogramSnapshot {
    fn default() -> HistogramSnapshot {
        HistogramSnapshot { buckets: [0; BUCKETS], sum: 0, max: 0 }
    }
}

impl HistogramSnapshot {
    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The mean; 0 if there is no value.
    pub fn mean(&self) -> f64 {
        match self.count() {
            0 => 0.0,
            count => self.sum as f64 / count as f64,
        }
    }

    /// A bound that at least the share `q` (0 to 1) of the values does not exceed: less than twice
    /// the least such bound. 0 if there is no value.
    pub fn quantile(&self, q: f64) -> u64 {
        let count = self.count();
        let rank = ((q.clamp(0.0, 1.0) * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut below = 0;
        for (at, in_bucket) in self.buckets.iter().enumerate() {
            below += in_bucket;
            if below >= rank {
                return bucket_end(at).min(self.max);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_all_values_without_gap() {
        assert_eq!((bucket(0), bucket(1), bucket(u64::MAX)), (0, 1, 64));
        for at in 1..BUCKETS {
            assert_eq!(bucket(bucket_end(at)), at);
            assert_eq!(bucket(bucket_end(at - 1) + 1), at);
        }
    }

    #[test]
    fn quantiles_bound_the_true_ones() {
        let histogram = Histogram::new();
        assert_eq!(histogram.snapshot().quantile(0.5), 0);
        for value in 1..=1000 {
            histogram.record(value);
        }
        let snapshot = histogram.snapshot();
        assert_eq!((snapshot.count(), snapshot.sum, snapshot.max), (1000, 500_500, 1000));
        for (q, truth) in [(0.0, 1), (0.5, 500), (0.99, 990), (1.0, 1000)] {
            let bound = snapshot.quantile(q);
            assert!((truth..=2 * truth).contains(&bound), "{q}: {bound}");
        }
        assert_eq!(snapshot.quantile(1.0), 1000);
    }
}
