//! Which shard a key belongs to: a keyed hash, so that nobody who does not know the key that was drawn when
//! the database was created can aim all load at one shard.
//!
//! SipHash-1-3 with 64 bits of result, by J.-P. Aumasson and D. J. Bernstein, of the user key's bytes; the
//! result is scaled to the number of shards. Changing any of it would lose what is stored.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

/// The shard of `key`, below `shards`.
#[inline]
pub(crate) fn place(hash_key: &[u8; 16], shards: u16, key: &[u8]) -> u16 {
    let mut hasher = SipHasher13::new_with_key(hash_key);
    hasher.write(key);
    ((u128::from(hasher.finish()) * u128::from(shards)) >> 64) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_do_not_move() {
        // Stored databases depend on these; computed from the definition of SipHash-1-3 by other means.
        let hash_key: [u8; 16] = std::array::from_fn(|i| i as u8);
        let places: Vec<u16> = (0..12u32).map(|n| place(&hash_key, 8, &n.to_be_bytes())).collect();
        assert_eq!(places, PLACES);
        assert_eq!(place(&hash_key, 1, b"any"), 0);
    }

    const PLACES: [u16; 12] = [0, 5, 5, 4, 5, 0, 6, 5, 5, 2, 3, 5];

    #[test]
    fn keys_spread_evenly_and_another_key_spreads_them_anew() {
        let count = |hash_key: &[u8; 16]| {
            let mut counts = [0u32; 8];
            (0..80_000u32).for_each(|n| counts[usize::from(place(hash_key, 8, &n.to_le_bytes()))] += 1);
            counts
        };
        for hash_key in [[1; 16], [2; 16]] {
            let counts = count(&hash_key);
            // 10,000 each, with a standard deviation of 94.
            assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
        }
        // Keys picked to share a shard under one key of the hash do not under another.
        let picked: Vec<u32> = (0..80_000u32).filter(|n| place(&[1; 16], 8, &n.to_le_bytes()) == 3).collect();
        let still = picked.iter().filter(|n| place(&[2; 16], 8, &n.to_le_bytes()) == 3).count();
        assert!(still < picked.len() / 6, "{still} of {}", picked.len());
    }
}
