//! What a memtable counts. Each thread adds to one of a few stripes, each on cache lines of its
//! own, so that writers do not pass a line back and forth; reading sums them up.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::key::Kind;
use crate::types::SeqNo;

/// Enough for the threads that insert at once; more would only cost idle memtables memory.
const STRIPES: usize = 4;

/// See the module header.
#[derive(Default)]
pub(super) struct Counters([Stripe; STRIPES]);

#[repr(align(64))]
struct Stripe {
    entries: AtomicU64,
    deletes: AtomicU64,
    key_bytes: AtomicU64,
    value_bytes: AtomicU64,
    clues: AtomicU64,
    clue_bytes: AtomicU64,
    seqno_min: AtomicU64,
    seqno_max: AtomicU64,
}

impl Default for Stripe {
    fn default() -> Stripe {
        let [entries, deletes, key_bytes, value_bytes, clues, clue_bytes, seqno_max] =
            [const { AtomicU64::new(0) }; 7];
        let seqno_min = AtomicU64::new(u64::MAX);
        Stripe { entries, deletes, key_bytes, value_bytes, clues, clue_bytes, seqno_min, seqno_max }
    }
}

thread_local! {
    /// Its address tells threads apart; it is never read.
    static MARK: u8 = const { 0 };
}

impl Counters {
    #[inline]
    fn stripe(&self) -> &Stripe {
        let address = MARK.try_with(|mark| std::ptr::from_ref(mark).addr()).unwrap_or(0) as u64;
        let mixed = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.0[mixed as usize % STRIPES]
    }

    /// Counts one entry.
    #[inline]
    pub(super) fn add(&self, key_bytes: usize, seqno: SeqNo, kind: Kind, value_bytes: usize) {
        let stripe = self.stripe();
        // The range first, so that who sees an entry counted sees a range.
        if seqno < stripe.seqno_min.load(Ordering::Relaxed) {
            stripe.seqno_min.fetch_min(seqno, Ordering::Relaxed);
        }
        if seqno > stripe.seqno_max.load(Ordering::Relaxed) {
            stripe.seqno_max.fetch_max(seqno, Ordering::Relaxed);
        }
        stripe.key_bytes.fetch_add(key_bytes as u64, Ordering::Relaxed);
        stripe.value_bytes.fetch_add(value_bytes as u64, Ordering::Relaxed);
        if matches!(kind, Kind::Delete | Kind::SingleDelete) {
            stripe.deletes.fetch_add(1, Ordering::Relaxed);
        }
        if kind.is_clue() {
            stripe.clues.fetch_add(1, Ordering::Relaxed);
            stripe.clue_bytes.fetch_add(key_bytes as u64, Ordering::Relaxed);
        }
        stripe.entries.fetch_add(1, Ordering::Release);
    }

    fn sum(&self, of: impl Fn(&Stripe) -> u64) -> u64 {
        self.0.iter().map(of).sum()
    }

    pub(super) fn entries(&self) -> usize {
        self.sum(|stripe| stripe.entries.load(Ordering::Acquire)) as usize
    }

    pub(super) fn deletes(&self) -> usize {
        self.sum(|stripe| stripe.deletes.load(Ordering::Relaxed)) as usize
    }

    pub(super) fn clues(&self) -> (u64, u64) {
        let count = self.sum(|stripe| stripe.clues.load(Ordering::Relaxed));
        (count, self.sum(|stripe| stripe.clue_bytes.load(Ordering::Relaxed)))
    }

    pub(super) fn key_bytes(&self) -> u64 {
        self.sum(|stripe| stripe.key_bytes.load(Ordering::Relaxed))
    }

    pub(super) fn value_bytes(&self) -> u64 {
        self.sum(|stripe| stripe.value_bytes.load(Ordering::Relaxed))
    }

    pub(super) fn seqno_range(&self) -> Option<(SeqNo, SeqNo)> {
        if self.entries() == 0 {
            return None;
        }
        let stripes = self.0.iter().filter(|stripe| stripe.entries.load(Ordering::Acquire) > 0);
        stripes.fold(None, |range, stripe| {
            let (min, max) = range.unwrap_or((u64::MAX, 0));
            let stripe_min = stripe.seqno_min.load(Ordering::Relaxed);
            let stripe_max = stripe.seqno_max.load(Ordering::Relaxed);
            Some((min.min(stripe_min), max.max(stripe_max)))
        })
    }
}
