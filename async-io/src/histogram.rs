//! A histogram of values over 64 bits, with a known relative error: no lock, and nothing allocated once it is there.
//!
//! ```text
//! values below 32      a bucket each
//! 32 << o ..64 << o    32 buckets of 1 << o values each, for o in 0..=58
//! ```
//! So a quantile read from it is never below the true one and exceeds it by less than 1/32 (about 3 %); below 64 it is
//! exact. A histogram takes 15 KiB. Recording is two additions and a look at the greatest value; threads share
//! them, so what happens millions of times a second is not recorded one by one, but sampled by who calls.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A bucket is at most 1 / 2^this of its values wide.
const PRECISION_BITS: u32 = 5;
const PER_OCTAVE: usize = 1 << PRECISION_BITS;
const BUCKETS: usize = (64 - PRECISION_BITS as usize + 1) * PER_OCTAVE;

/// By how much a quantile may exceed the true one, as a share of it.
pub const RELATIVE_ERROR: f64 = 1.0 / PER_OCTAVE as f64;

/// Counts of values by their magnitude, with their sum and greatest. Any thread may record.
pub struct Histogram {
    buckets: Box<[AtomicU64]>,
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
    pub fn new() -> Histogram {
        let buckets = (0..BUCKETS).map(|_| AtomicU64::new(0)).collect();
        Histogram { buckets, sum: AtomicU64::new(0), max: AtomicU64::new(0) }
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

    /// The counts now. Values that are recorded meanwhile may be in one of its parts and not yet in another.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let counts = self.buckets.iter().map(|bucket| bucket.load(Relaxed));
        let buckets = (0u16..).zip(counts).filter(|(_, count)| *count > 0).collect();
        HistogramSnapshot { buckets, sum: self.sum.load(Relaxed), max: self.max.load(Relaxed) }
    }
}

fn bucket(value: u64) -> usize {
    if value < PER_OCTAVE as u64 {
        return value as usize;
    }
    let octave = value.ilog2() - PRECISION_BITS;
    // The bits behind the leading one, after those of the octaves before.
    (octave as usize + 1) * PER_OCTAVE + ((value >> octave) as usize - PER_OCTAVE)
}

/// The greatest value that bucket `at` counts.
fn bucket_end(at: usize) -> u64 {
    let Some(octave) = (at / PER_OCTAVE).checked_sub(1) else { return at as u64 };
    let last = (at % PER_OCTAVE + PER_OCTAVE) as u64;
    (last << octave) | ((1 << octave) - 1)
}

/// The counts of a [`Histogram`] at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// Those that count something, by ascending values.
    buckets: Vec<(u16, u64)>,
    /// Sum of all values.
    pub sum: u64,
    /// The greatest value; 0 if there is none.
    pub max: u64,
}

impl HistogramSnapshot {
    /// Adds the values that another one counted.
    pub fn merge(&mut self, other: &HistogramSnapshot) {
        for (at, count) in &other.buckets {
            match self.buckets.binary_search_by_key(at, |(at, _)| *at) {
                Ok(place) => self.buckets[place].1 += count,
                Err(place) => self.buckets.insert(place, (*at, *count)),
            }
        }
        self.sum = self.sum.wrapping_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// How many of them were at most `bound`: exactly, where `bound` is one less than a power of two.
    pub fn count_up_to(&self, bound: u64) -> u64 {
        let within = self.buckets.iter().take_while(|(at, _)| bucket_end(usize::from(*at)) <= bound);
        within.map(|(_, count)| count).sum()
    }

    /// The mean; 0 if there is no value.
    pub fn mean(&self) -> f64 {
        match self.count() {
            0 => 0.0,
            count => self.sum as f64 / count as f64,
        }
    }

    /// A bound that at least the share `q` (0 to 1) of the values does not exceed. The least such bound is not
    /// above it, and not below it by more than [`RELATIVE_ERROR`] of itself. 0 if there is no value.
    pub fn quantile(&self, q: f64) -> u64 {
        let count = self.count();
        let rank = ((q.clamp(0.0, 1.0) * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut below = 0;
        for (at, in_bucket) in &self.buckets {
            below += in_bucket;
            if below >= rank {
                return bucket_end(usize::from(*at)).min(self.max);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SplitMix64;

    #[test]
    fn buckets_cover_all_values_without_gap() {
        assert_eq!((bucket(0), bucket(1), bucket(u64::MAX)), (0, 1, BUCKETS - 1));
        assert_eq!(bucket_end(BUCKETS - 1), u64::MAX);
        for at in 1..BUCKETS {
            let (first, last) = (bucket_end(at - 1) + 1, bucket_end(at));
            assert_eq!((bucket(first), bucket(last)), (at, at));
            assert!((last - first) as f64 <= first as f64 * RELATIVE_ERROR, "{first}..={last}");
        }
    }

    #[test]
    fn powers_of_two_are_where_buckets_begin() {
        for bits in 0..64 {
            assert_eq!(bucket_end(bucket((1 << bits) - 1)), (1 << bits) - 1);
        }
    }

    /// Against all values, sorted.
    #[test]
    fn quantiles_are_as_near_the_true_ones_as_promised() {
        for seed in 0..20 {
            let mut rng = SplitMix64::new(seed);
            let histogram = Histogram::new();
            assert_eq!(histogram.snapshot().quantile(0.5), 0);
            // Spread over magnitudes, as latencies are.
            let count = 1 + rng.below(5000) as usize;
            let mut values: Vec<u64> = (0..count).map(|_| rng.next_u64() >> (seed + rng.below(40))).collect();
            values.iter().for_each(|value| histogram.record(*value));
            values.sort_unstable();
            let snapshot = histogram.snapshot();
            let sum = values.iter().fold(0, |sum: u64, value| sum.wrapping_add(*value));
            assert_eq!((snapshot.count(), snapshot.sum), (count as u64, sum));
            assert_eq!(Some(&snapshot.max), values.last());
            for q in [0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0] {
                let rank = ((q * count as f64).ceil() as usize).clamp(1, count);
                let (truth, bound) = (values[rank - 1], snapshot.quantile(q));
                assert!(bound >= truth && (bound - truth) as f64 <= truth as f64 * RELATIVE_ERROR, "{q}");
            }
            for bits in 0..64 {
                let bound = (1 << bits) - 1;
                let truth = values.partition_point(|value| *value <= bound);
                assert_eq!(snapshot.count_up_to(bound), truth as u64);
            }
        }
    }

    #[test]
    fn threads_lose_nothing() {
        let histogram = Histogram::new();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let histogram = &histogram;
                scope.spawn(move || (0..1000).for_each(|n| histogram.record(n * 4 + thread)));
            }
        });
        let snapshot = histogram.snapshot();
        assert_eq!((snapshot.count(), snapshot.sum, snapshot.max), (4000, 3999 * 2000, 3999));
    }

    #[test]
    fn merged_counts_are_those_of_one_histogram() {
        let (odd, even, all) = (Histogram::new(), Histogram::new(), Histogram::new());
        for n in 0..1000u64 {
            let value = n * n * n;
            if n % 2 == 1 {
                odd.record(value)
            } else {
                even.record(value)
            }
            all.record(value);
        }
        let mut merged = odd.snapshot();
        merged.merge(&even.snapshot());
        assert_eq!(merged, all.snapshot());
    }
}
