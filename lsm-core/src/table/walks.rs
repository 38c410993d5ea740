//! How far cursors of a table go: what those before did tells how much is worth reading at once.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// How many blocks a cursor enters after it was positioned, going forward; a mean over the last ones.
#[derive(Default)]
pub(super) struct Walks(AtomicU32);

/// The mean moves by this part of what is new, and is kept in such parts of a block.
const SHARE: u32 = 16;

/// Longer walks read ahead anyway.
const BLOCKS_MAX: u32 = 64;

impl Walks {
    /// A cursor has entered so many blocks. Of two at once one may go unnoticed.
    #[inline]
    pub(super) fn note(&self, blocks: u32) {
        let mean = self.0.load(Relaxed);
        let next = (mean + blocks.min(BLOCKS_MAX)).saturating_sub(mean / SHARE);
        // Mostly not: a shared line is only read then.
        if next != mean {
            self.0.store(next, Relaxed);
        }
    }

    /// How many blocks are worth reading at once: three quarters of the mean, since a block that nobody wants
    /// costs about as much as a call that is spared.
    #[inline]
    pub(super) fn worth_reading(&self) -> usize {
        (self.0.load(Relaxed) / SHARE * 3 / 4) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_follows_what_cursors_do() {
        let walks = Walks::default();
        assert_eq!(walks.worth_reading(), 0);
        (0..100).for_each(|_| walks.note(1));
        assert_eq!(walks.worth_reading(), 0, "most enter one block only");
        (0..100).for_each(|_| walks.note(8));
        assert_eq!(walks.worth_reading(), 6);
        (0..100).for_each(|_| walks.note(u32::MAX));
        assert_eq!(walks.worth_reading(), 48);
        (0..100).for_each(|_| walks.note(1));
        assert!(walks.worth_reading() <= 1, "{}", walks.worth_reading());
    }
}
