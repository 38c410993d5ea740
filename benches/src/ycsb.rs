//! YCSB's six mixes and the distributions they draw records from.
//!
//! A record is a number from 0, in the order of insertion; its key is the number mixed, so that
//! neighbours in time are not neighbours in key order (YCSB's hashed insert order).
//!
//! ```text
//!   uniform   every record alike
//!   zipfian   rank by a Zipf law (exponent 0.99), ranks scattered over the records by a hash
//!   latest    the same law, counted back from the newest record
//! ```

use crate::generate::{Rng, mix64};
use serde::{Deserialize, Serialize};

/// The core workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mix {
    A,
    B,
    C,
    D,
    E,
    F,
}

/// One operation of a mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Read,
    Update,
    Insert,
    Scan,
    ReadModifyWrite,
}

/// How a record is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Distribution {
    Zipfian,
    Latest,
    Uniform,
}

impl Mix {
    /// The operation that `share`, an even number in `0.0..1.0`, stands for.
    pub(crate) fn op(self, share: f64) -> Op {
        let (first_share, first, rest) = match self {
            Mix::A => (0.5, Op::Read, Op::Update),
            Mix::B => (0.95, Op::Read, Op::Update),
            Mix::C => (1.0, Op::Read, Op::Read),
            Mix::D => (0.95, Op::Read, Op::Insert),
            Mix::E => (0.95, Op::Scan, Op::Insert),
            Mix::F => (0.5, Op::Read, Op::ReadModifyWrite),
        };
        if share < first_share { first } else { rest }
    }

    /// The distribution of the workload's own definition.
    pub(crate) fn distribution(self) -> Distribution {
        if self == Mix::D { Distribution::Latest } else { Distribution::Zipfian }
    }
}

/// The key number of a record.
pub(crate) fn record_key(record: u64) -> u64 {
    mix64(record)
}

/// YCSB's constant.
const EXPONENT: f64 = 0.99;

/// Ranks by a Zipf law over `0..count`: rank 0 is the most frequent.
///
/// The method inverts an approximation of the cumulative law, with the first two ranks exact
/// (Gray and others, "Quickly generating billion-record synthetic databases", 1994).
#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    count: f64,
    zeta: f64,
    alpha: f64,
    eta: f64,
    second: f64,
}

/// Terms of the zeta sum that are added one by one; the rest is an integral, exact to 1e-9 there.
const ZETA_EXACT_TERMS: u64 = 1_000_000;

fn zeta(count: u64) -> f64 {
    let exact = count.min(ZETA_EXACT_TERMS);
    let head: f64 = (1..=exact).map(|rank| (rank as f64).powf(-EXPONENT)).sum();
    let power = 1.0 - EXPONENT;
    let tail = |x: f64| x.powf(power) / power;
    head + tail(count as f64 + 0.5) - tail(exact as f64 + 0.5)
}

impl Zipf {
    pub(crate) fn new(count: u64) -> Zipf {
        let count = count.max(1);
        let zeta_all = zeta(count);
        let n = count as f64;
        let second = 1.0 + 0.5f64.powf(EXPONENT);
        let eta = if count <= 2 {
            1.0
        } else {
            (1.0 - (2.0 / n).powf(1.0 - EXPONENT)) / (1.0 - zeta(2) / zeta_all)
        };
        Zipf { count: n, zeta: zeta_all, alpha: 1.0 / (1.0 - EXPONENT), eta, second }
    }

    /// The rank of `share`, an even number in `0.0..1.0`.
    pub(crate) fn rank(&self, share: f64) -> u64 {
        let scaled = share * self.zeta;
        if scaled < 1.0 || self.count < 2.0 {
            return 0;
        }
        if scaled < self.second || self.count < 3.0 {
            return 1;
        }
        let rank = self.count * (self.eta * share - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.count as u64 - 1)
    }
}

/// Draws records by one distribution.
#[derive(Clone, Debug)]
pub(crate) struct Chooser {
    distribution: Distribution,
    zipf: Zipf,
}

impl Chooser {
    /// For a database that starts with `records` records.
    pub(crate) fn new(distribution: Distribution, records: u64) -> Chooser {
        Chooser { distribution, zipf: Zipf::new(records) }
    }

    /// A record below `records`, the number that exist by now (at least 1).
    pub(crate) fn record(&self, rng: &mut Rng, records: u64) -> u64 {
        match self.distribution {
            Distribution::Uniform => rng.below(records),
            Distribution::Zipfian => mix64(self.zipf.rank(rng.unit()) ^ 0x5bd1_e995) % records,
            Distribution::Latest => records - 1 - self.zipf.rank(rng.unit()).min(records - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    const DRAWS: u64 = 200_000;

    fn counts(distribution: Distribution, records: u64) -> Vec<(u64, u64)> {
        let chooser = Chooser::new(distribution, records);
        let mut rng = Rng::new(5, 1);
        let mut counts: HashMap<u64, u64> = HashMap::new();
        for _ in 0..DRAWS {
            let record = chooser.record(&mut rng, records);
            assert!(record < records);
            *counts.entry(record).or_default() += 1;
        }
        let mut sorted: Vec<_> = counts.into_iter().collect();
        sorted.sort_by_key(|&(record, count)| (std::cmp::Reverse(count), record));
        sorted
    }

    #[test]
    fn zipfian_follows_its_law_and_is_scattered() {
        let counts = counts(Distribution::Zipfian, 10_000);
        // The law: rank r has the share r^-0.99 / zeta. Two records may share a place of the hash.
        let expected = DRAWS as f64 / zeta(10_000);
        let top = counts[0].1 as f64;
        assert!((expected * 0.95..expected * 1.25).contains(&top), "{top} against {expected}");
        let top100: u64 = counts.iter().take(100).map(|&(_, count)| count).sum();
        let share = top100 as f64 / DRAWS as f64;
        assert!((0.48..0.60).contains(&share), "the first hundredth has {share}");
        let far_apart = counts
            .iter()
            .take(10)
            .map(|&(record, _)| record / 1000)
            .collect::<std::collections::HashSet<_>>();
        assert!(far_apart.len() >= 4, "{far_apart:?}");
    }

    #[test]
    fn latest_prefers_new_records() {
        let counts = counts(Distribution::Latest, 10_000);
        assert_eq!(counts[0].0, 9_999);
        assert_eq!(counts[1].0, 9_998);
        let newest: u64 = counts.iter().filter(|(record, _)| *record >= 9_000).map(|&(_, count)| count).sum();
        assert!(newest as f64 / DRAWS as f64 > 0.7, "{newest}");
    }

    #[test]
    fn uniform_is_even() {
        let counts = counts(Distribution::Uniform, 100);
        assert_eq!(counts.len(), 100);
        assert!(counts[0].1 < 2_300 && counts[99].1 > 1_700, "{counts:?}");
    }

    #[test]
    fn ranks_stay_in_range_at_the_edges() {
        for count in [1, 2, 3, 4, 100] {
            let zipf = Zipf::new(count);
            for share in [0.0, 0.3, 0.5, 0.9, 1.0 - f64::EPSILON] {
                assert!(zipf.rank(share) < count, "{count} {share}");
            }
        }
        // The integral of the tail continues the sum: it grows as the law says.
        let step = zeta(ZETA_EXACT_TERMS + 1_000) - zeta(ZETA_EXACT_TERMS);
        let law = 1_000.0 * (ZETA_EXACT_TERMS as f64 + 500.0).powf(-EXPONENT);
        assert!((step / law - 1.0).abs() < 1e-3, "{step} {law}");
    }

    #[test]
    fn mixes_have_their_shares() {
        let mut rng = Rng::new(2, 2);
        let mut count = |mix: Mix, op: Op| (0..100_000).filter(|_| mix.op(rng.unit()) == op).count();
        assert!((49_000..51_000).contains(&count(Mix::A, Op::Update)));
        assert!((94_500..95_500).contains(&count(Mix::B, Op::Read)));
        assert_eq!(count(Mix::C, Op::Read), 100_000);
        assert!((4_500..5_500).contains(&count(Mix::D, Op::Insert)));
        assert!((94_500..95_500).contains(&count(Mix::E, Op::Scan)));
        assert!((49_000..51_000).contains(&count(Mix::F, Op::ReadModifyWrite)));
        assert_eq!(Mix::D.distribution(), Distribution::Latest);
        assert_eq!(Mix::E.distribution(), Distribution::Zipfian);
    }
}
