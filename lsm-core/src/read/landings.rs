//! Finds out that a user's comparator which is no total order leads the reseeks of one call in a
//! circle: in an order, each of them comes down behind the last (before it, going backward), and
//! entries differ in their bytes. One landing is remembered, and replaced after twice as many
//! further ones each time, so that a circle of any length is met (Brent's way).

use crate::{Error, ErrorKind, Result};

/// Where the reseeks of one call have come down.
#[derive(Default)]
pub(crate) struct Landings {
    count: u32,
    replace_at: u32,
    remembered: Vec<u8>,
}

impl Landings {
    /// A call begins.
    pub(crate) fn start(&mut self) {
        (self.count, self.replace_at) = (0, 0);
    }

    /// A reseek came down on this entry.
    ///
    /// # Errors
    /// `Callback` if an earlier one of this call did so, too.
    pub(crate) fn note(&mut self, internal: &[u8]) -> Result<()> {
        if self.count > 0 && self.remembered == internal {
            return Err(Error::new(ErrorKind::Callback, "the comparator is no total order"));
        }
        if self.count >= self.replace_at {
            self.replace_at = self.count.max(1).saturating_mul(2);
            self.remembered.clear();
            self.remembered.extend_from_slice(internal);
        }
        self.count = self.count.saturating_add(1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_of_any_length_are_met_and_a_way_ahead_is_none() {
        let mut landings = Landings::default();
        for length in 1..50u32 {
            for approach in [0, 1, 7, 30] {
                landings.start();
                let place = |i: u32| if i < approach { i } else { approach + (i - approach) % length };
                let met = (0..1000).position(|i| landings.note(&place(i).to_le_bytes()).is_err());
                assert!(met.is_some_and(|at| at < 400), "{length} after {approach}: {met:?}");
            }
        }
        landings.start();
        for i in 0..10_000u32 {
            landings.note(&i.to_le_bytes()).expect("always another place");
        }
    }
}
