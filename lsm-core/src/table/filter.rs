//! Bloom filters blocked by cache line: one memory access says that a user key is not in a table.
//!
//! ```text
//! filter payload = line* (64 bytes each) | kind u8 | probes u8 | zero u16 | lines u32
//!   kind 1   holds every user key of the table, and maybe prefixes
//!   kind 2   holds prefixes only
//! ```
//! Prefixes are those of all keys that have one, by the extractor that the table's property
//! [`PREFIX_PROPERTY`] names; without that property there are none. A prefix is hashed as if it were
//! a key: that the two may meet costs a false positive. Kind 2 is a kind of its own so that a
//! reader which knows only whole keys refuses the table instead of missing keys.
//!
//! A key's 64-bit hash (XXH3, seed 0, over the user key) chooses a line by its high half; up to 7
//! groups of 9 bits, from the top of the hash times an odd constant, choose bits in it, and the
//! hash is mixed again for each 7 more. All of this is part of the format; `golden_bits` holds it
//! fast.
//!
//! Blocking costs some accuracy (about 0.95 % false positives at 10 bits a key instead of 0.82 %)
//! and saves all cache misses but one.

use crate::prefix::PrefixExtractor;
use crate::{Error, Result};

/// The property with the name of the extractor whose prefixes the filter holds.
pub const PREFIX_PROPERTY: &str = "filter.prefix_extractor";

const KIND_WHOLE_KEYS: u8 = 1;
const KIND_PREFIXES: u8 = 2;

const LINE_BYTES: usize = 64;
const TAIL_BYTES: usize = 8;
const PROBES_MAX: u32 = 28;
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// The hash that filters use. Stable: it is part of the table format.
#[inline]
pub fn hash_key(user_key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(user_key)
}

#[repr(align(64))]
#[derive(Clone)]
struct Line([u64; 8]);

#[inline]
fn line_of(hash: u64, lines: usize) -> usize {
    (((hash >> 32) * lines as u64) >> 32) as usize
}

/// Calls `with` for the bits of a hash until it says `false`; returns whether it never did.
#[inline]
fn each_bit(hash: u64, probes: u32, mut with: impl FnMut(usize, u64) -> bool) -> bool {
    let mut bits = hash.wrapping_mul(MIX);
    let mut left = 7;
    for _ in 0..probes {
        if left == 0 {
            // `bits` is shifted out by now; each round starts from another multiple of the hash.
            bits = (hash ^ (hash >> 31)).wrapping_mul(MIX).wrapping_add(bits).wrapping_mul(MIX);
            left = 7;
        }
        let bit = bits >> 55;
        if !with((bit >> 6) as usize, 1 << (bit & 63)) {
            return false;
        }
        bits <<= 9;
        left -= 1;
    }
    true
}

/// Collects the hashes of a table's user keys and of their prefixes; sized when all are known.
pub(crate) struct FilterBuilder {
    hashes: Vec<u64>,
    bits_per_key: f64,
    whole_keys: bool,
    /// None as well once it has panicked: then not every prefix is in.
    extractor: Option<PrefixExtractor>,
    /// The prefix added last, and whether there is one: those of neighbours are mostly the same.
    last_prefix: Vec<u8>,
    has_prefix: bool,
}

impl FilterBuilder {
    /// A builder with 0 bits a key makes no filter; so does one without anything to hold.
    pub(crate) fn new(
        bits_per_key: f64,
        whole_keys: bool,
        extractor: Option<PrefixExtractor>,
    ) -> FilterBuilder {
        FilterBuilder {
            hashes: Vec::new(),
            bits_per_key,
            whole_keys,
            extractor: extractor.filter(|_| bits_per_key > 0.0),
            last_prefix: Vec::new(),
            has_prefix: false,
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, user_key: &[u8]) {
        if self.whole_keys && self.bits_per_key > 0.0 {
            self.hashes.push(hash_key(user_key));
        }
        if self.extractor.is_some() {
            self.add_prefix(user_key);
        }
    }

    fn add_prefix(&mut self, user_key: &[u8]) {
        let Some(extractor) = &self.extractor else { return };
        match extractor.extract(user_key) {
            Ok(Some(prefix)) if !self.has_prefix || self.last_prefix != prefix => {
                self.hashes.push(hash_key(prefix));
                self.last_prefix.clear();
                self.last_prefix.extend_from_slice(prefix);
                self.has_prefix = true;
            }
            Ok(_) => {}
            // A table without prefixes costs time, one that lacks some would hide keys.
            Err(_) => self.extractor = None,
        }
    }

    /// The name of the extractor whose prefixes are in, for the table's properties.
    pub(crate) fn prefix_extractor(&self) -> Option<&PrefixExtractor> {
        self.extractor.as_ref()
    }

    /// About how many bytes the filter will have.
    pub(crate) fn bytes(&self) -> u64 {
        (self.hashes.len() as f64 * self.bits_per_key / 8.0) as u64
    }

    /// The payload, or `None` if no filter is wanted or there is nothing to hold.
    pub(crate) fn finish(&self) -> Option<Vec<u8>> {
        if self.hashes.is_empty() || (!self.whole_keys && self.extractor.is_none()) {
            return None;
        }
        let wanted = self.hashes.len() as f64 * self.bits_per_key / (LINE_BYTES * 8) as f64;
        let lines = (wanted.ceil() as usize).clamp(1, u32::MAX as usize);
        // Fewer than the 0.69 of an unblocked filter: crowded lines suffer from each probe more.
        let probes = ((self.bits_per_key * 0.6).round() as u32).clamp(1, PROBES_MAX);
        let mut table = vec![Line([0; 8]); lines];
        for hash in &self.hashes {
            let line = &mut table[line_of(*hash, lines)].0;
            each_bit(*hash, probes, |word, mask| {
                line[word] |= mask;
                true
            });
        }
        let mut out = Vec::with_capacity(lines * LINE_BYTES + TAIL_BYTES);
        for line in &table {
            for word in line.0 {
                out.extend_from_slice(&word.to_le_bytes());
            }
        }
        let kind = if self.whole_keys { KIND_WHOLE_KEYS } else { KIND_PREFIXES };
        out.extend_from_slice(&[kind, probes as u8, 0, 0]);
        out.extend_from_slice(&(lines as u32).to_le_bytes());
        Some(out)
    }
}

/// A filter in memory.
pub(crate) struct Filter {
    lines: Box<[Line]>,
    probes: u32,
    whole_keys: bool,
}

impl Filter {
    /// Decodes a payload.
    pub(crate) fn decode(payload: &[u8]) -> Result<Filter> {
        let bad = |what: String| Error::corruption(format!("the filter block {what}"));
        let (body, tail) =
            payload.split_last_chunk::<TAIL_BYTES>().ok_or_else(|| bad("is too short".into()))?;
        let lines = u32::from_le_bytes([tail[4], tail[5], tail[6], tail[7]]) as usize;
        let probes = u32::from(tail[1]);
        if !matches!(tail[0], KIND_WHOLE_KEYS | KIND_PREFIXES)
            || !(1..=PROBES_MAX).contains(&probes)
            || tail[2..4] != [0, 0]
        {
            return Err(bad(format!("has unknown kind {} with {probes} probes", tail[0])));
        }
        if lines == 0 || body.len() != lines * LINE_BYTES {
            return Err(bad(format!("has {} bytes for {lines} lines", body.len())));
        }
        let line = |bytes: &[u8]| {
            let mut words = [0; 8];
            for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
                *word = u64::from_le_bytes(bytes.try_into().expect("chunks of 8"));
            }
            Line(words)
        };
        let lines = body.chunks_exact(LINE_BYTES).map(line).collect();
        Ok(Filter { lines, probes, whole_keys: tail[0] == KIND_WHOLE_KEYS })
    }

    /// Whether it holds every user key; else only prefixes may be asked for.
    #[inline]
    pub(crate) fn has_whole_keys(&self) -> bool {
        self.whole_keys
    }

    /// Whether a key (or prefix) with this hash may be in the table; `false` is certain.
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        let line = &self.lines[line_of(hash, self.lines.len())].0;
        each_bit(hash, self.probes, |word, mask| line[word] & mask != 0)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.lines.len() * LINE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter_of(bits: f64, keys: u64) -> Filter {
        let mut builder = FilterBuilder::new(bits, true, None);
        (0..keys).for_each(|i| builder.add(&(i * 2).to_be_bytes()));
        Filter::decode(&builder.finish().expect("there are keys")).expect("just built")
    }

    fn false_positives(filter: &Filter, keys: u64) -> u64 {
        assert!((0..keys).all(|i| filter.may_contain(hash_key(&(i * 2).to_be_bytes()))), "false negative");
        (0..keys).filter(|i| filter.may_contain(hash_key(&(i * 2 + 1).to_be_bytes()))).count() as u64
    }

    #[test]
    fn no_false_negatives_and_few_false_positives() {
        let n = 100_000;
        for (bits, per_mille_max) in [(5.0, 120), (10.0, 15), (10.5, 14), (16.0, 3), (30.0, 1)] {
            let wrong = false_positives(&filter_of(bits, n), n);
            println!("{bits} bits a key: {wrong} false positives of {n}");
            assert!(wrong * 1000 < per_mille_max * n, "{bits} bits: {wrong} of {n}");
        }
    }

    #[test]
    fn golden_bits() {
        assert_eq!(hash_key(b""), 0x2d06_8005_38d3_94c2);
        let mut builder = FilterBuilder::new(10.0, true, None);
        builder.add(b"a key");
        let payload = builder.finish().expect("one key");
        let set: Vec<usize> = (0..512).filter(|bit| payload[bit / 8] >> (bit % 8) & 1 == 1).collect();
        assert_eq!(payload[64..], [1, 6, 0, 0, 1, 0, 0, 0]);
        assert_eq!(set, GOLDEN);
    }

    const GOLDEN: [usize; 6] = [0, 8, 194, 225, 269, 340];

    #[test]
    fn damaged_payloads_are_refused() {
        let mut builder = FilterBuilder::new(10.0, true, None);
        (0..100u32).for_each(|i| builder.add(&i.to_le_bytes()));
        let payload = builder.finish().expect("there are keys");
        for cut in 0..payload.len() {
            assert!(Filter::decode(&payload[..cut]).is_err(), "cut at {cut}");
        }
        for at in payload.len() - TAIL_BYTES..payload.len() {
            for flip in [1, 0x80] {
                let mut bad = payload.clone();
                bad[at] ^= flip;
                // Another plausible number of probes is for the checksum to find.
                assert!(Filter::decode(&bad).is_err() || at == payload.len() - 7, "byte {at}");
            }
        }
    }

    fn prefixes_of(keys: &[&[u8]], whole_keys: bool, extractor: PrefixExtractor) -> (Option<Filter>, usize) {
        let mut builder = FilterBuilder::new(10.0, whole_keys, Some(extractor));
        keys.iter().for_each(|key| builder.add(key));
        let filter = builder.finish().map(|payload| Filter::decode(&payload).expect("just built"));
        (filter, builder.hashes.len())
    }

    #[test]
    fn each_prefix_once_and_none_for_keys_out_of_the_domain() {
        let keys: [&[u8]; 6] = [b"ab", b"abc1", b"abc2", b"abd", b"abd9", b"z"];
        let (filter, hashes) = prefixes_of(&keys, false, PrefixExtractor::Fixed(3));
        let filter = filter.expect("there are prefixes");
        assert_eq!((hashes, filter.has_whole_keys()), (2, false));
        assert!(filter.may_contain(hash_key(b"abc")) && filter.may_contain(hash_key(b"abd")));
        assert!(!filter.may_contain(hash_key(b"z")));
        let (filter, hashes) = prefixes_of(&keys, true, PrefixExtractor::Fixed(3));
        assert_eq!((hashes, filter.map(|f| f.has_whole_keys())), (8, Some(true)));
        assert!(prefixes_of(&keys, false, PrefixExtractor::Fixed(9)).0.is_none());
        let (filter, hashes) = prefixes_of(&[b"", b""], false, PrefixExtractor::Capped(2));
        assert!(hashes == 1 && filter.is_some(), "the empty prefix is one");
    }

    #[test]
    fn few_false_positives_of_prefixes() {
        let n = 100_000u64;
        let mut builder = FilterBuilder::new(10.0, false, Some(PrefixExtractor::Fixed(8)));
        for i in 0..3 * n {
            builder.add(&[&(i / 3 * 2).to_be_bytes()[..], &i.to_be_bytes()].concat());
        }
        assert_eq!(builder.hashes.len() as u64, n);
        let filter = Filter::decode(&builder.finish().expect("prefixes")).expect("just built");
        let wrong = false_positives(&filter, n);
        println!("{wrong} false positives of {n} prefixes");
        assert!((n / 1000..n / 67).contains(&wrong), "{wrong}");
    }

    struct Breaks;

    impl crate::prefix::UserPrefixExtractor for Breaks {
        fn name(&self) -> &str {
            "test.breaks"
        }
        fn extract<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
            assert_ne!(key, b"b2", "the key that breaks it");
            Some(&key[..1])
        }
    }

    #[test]
    fn an_extractor_that_panics_once_leaves_no_prefixes() {
        let extractor = PrefixExtractor::Custom(std::sync::Arc::new(Breaks));
        let mut builder = FilterBuilder::new(10.0, true, Some(extractor.clone()));
        [b"a1", b"b2", b"c3"].iter().for_each(|key| builder.add(*key));
        assert!(builder.prefix_extractor().is_none());
        let filter = Filter::decode(&builder.finish().expect("whole keys are in")).expect("just built");
        assert!([b"a1", b"b2", b"c3"].iter().all(|key| filter.may_contain(hash_key(*key))));
        let (filter, _) = prefixes_of(&[b"a1", b"b2", b"c3"], false, extractor);
        assert!(filter.is_none());
    }
}
