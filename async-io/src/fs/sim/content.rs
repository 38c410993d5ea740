//! The bytes of a simulated file as a sparse map of shared pages: a copy costs one reference per
//! page, and a write to a page that a copy still uses clones that page alone.
//!
//! INVARIANT: bytes at and past `len` are zero in every page, so that growing shows zeros.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;

type Page = [u8; PAGE as usize];

/// Bytes and length.
#[derive(Clone, Default)]
pub(super) struct Content {
    pages: BTreeMap<u64, Arc<Page>>,
    len: u64,
}

/// Cuts `offset..offset + len` at page borders: (page, offset in it, offset in the range, bytes).
fn cut(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let within = (at % PAGE) as usize;
        let n = (PAGE as usize - within).min(len - done);
        let piece = (at / PAGE, within, done, n);
        done += n;
        Some(piece)
    })
}

impl Content {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Reads what there is; returns the bytes read.
    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> usize {
        let there = self.len.saturating_sub(offset).min(buf.len() as u64) as usize;
        for (page, within, at, n) in cut(offset, there) {
            match self.pages.get(&page) {
                Some(bytes) => buf[at..at + n].copy_from_slice(&bytes[within..within + n]),
                None => buf[at..at + n].fill(0),
            }
        }
        there
    }

    /// Writes all. The caller has checked that the end does not overflow.
    pub(super) fn write(&mut self, data: &[u8], offset: u64) {
        for (page, within, at, n) in cut(offset, data.len()) {
            let bytes = self.pages.entry(page).or_insert_with(|| Arc::new([0; PAGE as usize]));
            Arc::make_mut(bytes)[within..within + n].copy_from_slice(&data[at..at + n]);
        }
        if !data.is_empty() {
            self.len = self.len.max(offset + data.len() as u64);
        }
    }

    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.len {
            drop(self.pages.split_off(&len.div_ceil(PAGE)));
            if let Some(last) = self.pages.get_mut(&(len / PAGE)) {
                Arc::make_mut(last)[(len % PAGE) as usize..].fill(0);
            }
        }
        self.len = len;
    }

    /// Takes over the pages of a range from `other`, whole.
    pub(super) fn copy_pages(&mut self, other: &Content, offset: u64, len: u64) {
        if len == 0 {
            return;
        }
        for page in offset / PAGE..=(offset + len - 1) / PAGE {
            match other.pages.get(&page) {
                Some(bytes) => drop(self.pages.insert(page, Arc::clone(bytes))),
                None => drop(self.pages.remove(&page)),
            }
        }
    }

    /// Sets the length without touching pages, after they were copied from a file of that length.
    pub(super) fn adopt_len(&mut self, len: u64) {
        self.len = len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;

    #[test]
    fn behaves_like_a_vector_of_bytes() {
        let mut rng = SplitMix64::new(11);
        let (mut content, mut model) = (Content::default(), Vec::<u8>::new());
        let mut cuts = 0;
        for step in 0..2000u64 {
            let offset = rng.below(20_000);
            if rng.chance(1, 8) {
                cuts += u32::from((offset as usize) < model.len());
                content.set_len(offset);
                model.resize(offset as usize, 0);
            } else {
                let data = vec![step as u8; rng.below(9000) as usize];
                content.write(&data, offset);
                let end = offset as usize + data.len();
                if !data.is_empty() && model.len() < end {
                    model.resize(end, 0);
                }
                if !data.is_empty() {
                    model[offset as usize..end].copy_from_slice(&data);
                }
            }
            let from = rng.below(30_000);
            let mut got = vec![0xaa; rng.below(9000) as usize];
            let n = content.read(&mut got, from);
            let expected = model.get(from as usize..).unwrap_or_default();
            let expected = &expected[..expected.len().min(got.len())];
            assert_eq!(&got[..n], expected, "step {step}");
            assert_eq!(content.len(), model.len() as u64);
        }
        assert!(cuts >= 50, "only {cuts} truncations");
    }
}
