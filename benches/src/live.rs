//! Which keys the database holds, so that the size on disk has something to be compared with.

use std::sync::atomic::{AtomicU64, Ordering};

/// The keys `0..num` and YCSB's records that exist.
pub(crate) struct LiveKeys {
    bits: Vec<AtomicU64>,
    /// Records of YCSB, which are never deleted: those below this exist or are being inserted.
    pub(crate) records: AtomicU64,
}

impl LiveKeys {
    pub(crate) fn new(num: u64) -> LiveKeys {
        let words = num.div_ceil(64) as usize;
        LiveKeys { bits: (0..words).map(|_| AtomicU64::new(0)).collect(), records: AtomicU64::new(0) }
    }

    /// All keys exist; or, after YCSB's load, all records.
    pub(crate) fn filled(num: u64, records: bool) -> LiveKeys {
        let live = LiveKeys::new(num);
        if records {
            live.records.store(num, Ordering::Relaxed);
        } else {
            (0..num).for_each(|key| live.insert(key));
        }
        live
    }

    /// The key exists. Mostly it did before, and then this is one load.
    pub(crate) fn insert(&self, key: u64) {
        let (word, bit) = (&self.bits[(key / 64) as usize], 1 << (key % 64));
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    pub(crate) fn remove(&self, key: u64) {
        let (word, bit) = (&self.bits[(key / 64) as usize], 1 << (key % 64));
        if word.load(Ordering::Relaxed) & bit != 0 {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// How many entries there are.
    pub(crate) fn count(&self) -> u64 {
        let keys: u64 =
            self.bits.iter().map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum();
        keys + self.records.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_counted_once() {
        let live = LiveKeys::new(130);
        for key in [0, 63, 64, 129, 129] {
            live.insert(key);
        }
        live.remove(63);
        live.remove(63);
        live.remove(5);
        live.records.store(10, Ordering::Relaxed);
        assert_eq!(live.count(), 13);
        assert_eq!(LiveKeys::filled(130, false).count(), 130);
        assert_eq!(LiveKeys::filled(130, true).count(), 130);
    }
}
