//! Random numbers, keys and values of every workload: cheap, seeded, and the same on every run.
//!
//! A key is db_bench's: the number as big-endian bytes, filled up with `'0'`.
//! ```text
//!   offset  size              field
//!        0  min(8, key_size)  the low bytes of the number, most significant first
//!        8  key_size - 8      b'0' repeated
//! ```
//! A value is a window into one pre-generated buffer, so that making one costs an addition.
//!
//! Absent on purpose: a good general generator. These numbers only have to be cheap and even.

use std::sync::Arc;

/// A generator of 64-bit numbers (a counter through a strong mixing function).
#[derive(Clone)]
pub(crate) struct Rng {
    state: u64,
}

/// Odd, and near 2^64 divided by the golden ratio: successive multiples spread evenly.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A bijection of 64-bit numbers that scatters neighbours.
pub(crate) fn mix64(value: u64) -> u64 {
    let mut z = value;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// The stream number `stream` of a seed; different streams do not overlap in practice.
    pub(crate) fn new(seed: u64, stream: u64) -> Rng {
        Rng { state: mix64(seed ^ mix64(stream.wrapping_add(STEP))) }
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        mix64(self.state)
    }

    /// An even number in `0..bound`; `bound` is at least 1.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // The high half of a product is even enough, and far cheaper than a division.
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// An even number in `0.0..1.0`.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A key buffer that is written over for each number.
pub(crate) struct KeyBuf {
    bytes: Vec<u8>,
    prefix: usize,
}

impl KeyBuf {
    pub(crate) fn new(key_size: usize) -> KeyBuf {
        KeyBuf { bytes: vec![b'0'; key_size], prefix: key_size.min(8) }
    }

    /// The key of `number`.
    pub(crate) fn set(&mut self, number: u64) -> &[u8] {
        let big_endian = number.to_be_bytes();
        self.bytes[..self.prefix].copy_from_slice(&big_endian[8 - self.prefix..]);
        &self.bytes
    }
}

/// Whether `count` different numbers have `count` different keys of `key_size` bytes.
pub(crate) fn keys_are_distinct(key_size: usize, count: u64) -> bool {
    key_size >= 8 || count <= 1u64 << (8 * key_size)
}

/// Compressibility is set over pieces of this size.
const PIECE_BYTES: usize = 100;

/// The bytes all values are cut from.
///
/// Each piece of 100 bytes has `ratio * 100` random bytes which then repeat, so a compressor with a
/// window above 100 bytes gets near `ratio` and no better.
pub(crate) fn value_pool(value_size: usize, ratio: f64, seed: u64) -> Arc<[u8]> {
    let bytes = (1usize << 20).max(value_size.saturating_mul(2));
    let fresh = ((ratio * PIECE_BYTES as f64).round() as usize).clamp(1, PIECE_BYTES);
    let mut rng = Rng::new(seed, u64::MAX);
    let mut pool = Vec::with_capacity(bytes + PIECE_BYTES);
    while pool.len() < bytes {
        let start = pool.len();
        pool.extend((0..fresh).map(|_| rng.next_u64() as u8));
        for at in fresh..PIECE_BYTES {
            let repeated = pool[start + at % fresh];
            pool.push(repeated);
        }
    }
    pool.truncate(bytes);
    pool.into()
}

/// Cuts one value after the other out of a pool.
pub(crate) struct ValueGen {
    pool: Arc<[u8]>,
    at: usize,
    value_size: usize,
}

impl ValueGen {
    /// A stream of values that starts at a place of its own in the pool.
    pub(crate) fn new(pool: Arc<[u8]>, value_size: usize, stream: u64) -> ValueGen {
        let room = (pool.len() - value_size).max(1);
        let at = (mix64(stream) % room as u64) as usize;
        ValueGen { pool, at, value_size }
    }

    /// The next value, always of the stated size.
    pub(crate) fn next_value(&mut self) -> &[u8] {
        let place = self.next_place();
        self.at(place)
    }

    /// Where the next value is, for a caller that needs several at once.
    pub(crate) fn next_place(&mut self) -> usize {
        if self.at + self.value_size > self.pool.len() {
            self.at = 0;
        }
        let place = self.at;
        self.at += self.value_size;
        place
    }

    /// The value at a place.
    pub(crate) fn at(&self, place: usize) -> &[u8] {
        &self.pool[place..place + self.value_size]
    }
}

/// A bijection of `0..count`: every number once, in an order that looks random.
#[derive(Clone)]
pub(crate) struct Permutation {
    count: u64,
    mask: u64,
    half: u32,
    key: u64,
}

impl Permutation {
    pub(crate) fn new(count: u64, seed: u64) -> Permutation {
        let bits = (64 - count.saturating_sub(1).leading_zeros()).max(2);
        let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
        Permutation { count, mask, half: bits / 2, key: mix64(seed ^ STEP) }
    }

    /// The number at place `index`, which is below `count`.
    pub(crate) fn at(&self, index: u64) -> u64 {
        // Walks the cycle of a bijection of the next power of two until it is back in range: at
        // most half of that domain is outside, so two steps are expected at worst.
        let mut value = index;
        loop {
            for round in 0..3u64 {
                value = (value ^ (self.key.rotate_left(17 * round as u32) & self.mask)) & self.mask;
                value = value.wrapping_mul(STEP | 1) & self.mask;
                value ^= value >> self.half;
            }
            if value < self.count {
                return value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_layout_of_db_bench_and_sort_as_numbers() {
        let mut key = KeyBuf::new(16);
        assert_eq!(key.set(0x0102), b"\0\0\0\0\0\0\x01\x0200000000");
        assert_eq!(KeyBuf::new(4).set(0xaabb_ccdd_0102_0304), &[1, 2, 3, 4]);
        let (mut a, mut b) = (KeyBuf::new(20), KeyBuf::new(20));
        assert!(a.set(255) < b.set(256));
        assert!(keys_are_distinct(8, u64::MAX));
        assert!(keys_are_distinct(2, 65_536) && !keys_are_distinct(2, 65_537));
    }

    #[test]
    fn the_same_seed_gives_the_same_stream_and_another_seed_another() {
        let take = |seed, stream| {
            let mut rng = Rng::new(seed, stream);
            (0..100).map(|_| rng.next_u64()).collect::<Vec<_>>()
        };
        assert_eq!(take(7, 0), take(7, 0));
        assert_ne!(take(7, 0), take(8, 0));
        assert_ne!(take(7, 0), take(7, 1));
    }

    #[test]
    fn numbers_below_a_bound_are_even() {
        let mut rng = Rng::new(1, 1);
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            counts[rng.below(10) as usize] += 1;
        }
        assert!(counts.iter().all(|&c| (9_000..11_000).contains(&c)), "{counts:?}");
        let mean = (0..10_000).map(|_| rng.unit()).sum::<f64>() / 10_000.0;
        assert!((0.48..0.52).contains(&mean), "{mean}");
    }

    #[test]
    fn a_permutation_gives_every_number_once_and_not_in_order() {
        for count in [1u64, 2, 3, 1000, 1024, 65_537] {
            let order = Permutation::new(count, 9);
            let mut seen = vec![false; count as usize];
            let mut in_place = 0u64;
            for index in 0..count {
                let number = order.at(index);
                assert!(!std::mem::replace(&mut seen[number as usize], true), "{number} twice of {count}");
                in_place += u64::from(number == index);
            }
            assert!(count < 1000 || in_place < count / 50, "{in_place} of {count} stayed in place");
        }
    }

    /// How far the best literal/repeat split of 100-byte pieces shrinks the data: a stand-in for a
    /// compressor that knows only the pool's own structure.
    fn distinct_share(value: &[u8], fresh: usize) -> f64 {
        let mut literal = 0usize;
        for piece in value.chunks(PIECE_BYTES) {
            let repeats = piece.iter().enumerate().skip(fresh).all(|(at, &b)| b == piece[at % fresh]);
            literal += if repeats { fresh.min(piece.len()) } else { piece.len() };
        }
        literal as f64 / value.len() as f64
    }

    #[test]
    fn values_compress_to_the_stated_ratio() {
        for ratio in [0.1, 0.5, 0.73, 1.0] {
            let pool = value_pool(1000, ratio, 3);
            let fresh = (ratio * 100.0f64).round() as usize;
            let share = distinct_share(&pool[..1_000_000], fresh);
            assert!((share - ratio).abs() < 0.01, "asked {ratio}, got {share}");
            // Random bytes do not repeat at a smaller distance: all byte values are about as common.
            let mut counts = [0u32; 256];
            pool.iter().for_each(|&b| counts[b as usize] += 1);
            assert!(counts.iter().all(|&c| c > 2_000), "{ratio}");
        }
    }

    #[test]
    fn values_have_the_stated_size_and_are_the_same_again() {
        let pool = value_pool(3_000, 0.5, 3);
        assert_eq!(pool, value_pool(3_000, 0.5, 3));
        let (mut a, mut b) = (ValueGen::new(pool.clone(), 3_000, 5), ValueGen::new(pool.clone(), 3_000, 5));
        for _ in 0..2_000 {
            let value = a.next_value();
            assert_eq!(value.len(), 3_000);
            assert_eq!(value, b.next_value());
        }
        let mut empty = ValueGen::new(value_pool(0, 0.5, 3), 0, 5);
        assert_eq!((empty.next_value().len(), empty.next_value().len()), (0, 0));
        let large = 3 << 20;
        assert_eq!(ValueGen::new(value_pool(large, 0.5, 3), large, 1).next_value().len(), large);
    }
}
