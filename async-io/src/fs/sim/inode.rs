//! A simulated file apart from its names: what readers see, what a power cut leaves for certain,
//! and the changes in between, in order.
//!
//! INVARIANT: `durable` with all of `pending` applied in order equals `live`, until a write-back fails.

use super::content::{Content, PAGE};
use crate::rng::SplitMix64;

/// A change that is not synced.
#[derive(Clone)]
enum Change {
    Write { offset: u64, data: Vec<u8> },
    SetLen(u64),
}

/// The changing part of a file.
#[derive(Clone, Default)]
pub(super) struct Bytes {
    live: Content,
    durable: Content,
    pending: Vec<Change>,
    /// Space set aside, as the end of the furthest range.
    allocated: u64,
}

impl Bytes {
    pub(super) fn live(&self) -> &Content {
        &self.live
    }

    /// Bytes of the device that it occupies; holes count.
    pub(super) fn charge(&self) -> u64 {
        self.live.len().max(self.allocated)
    }

    /// What it would occupy at another length. Cutting it, or setting the length it has, gives back
    /// what was set aside behind the end, as the real thing does; growing keeps it.
    pub(super) fn charge_at_len(&self, len: u64) -> u64 {
        if len <= self.live.len() { len } else { len.max(self.allocated) }
    }

    pub(super) fn allocate(&mut self, end: u64) {
        self.allocated = self.allocated.max(end);
    }

    pub(super) fn write(&mut self, data: &[u8], offset: u64) {
        self.live.write(data, offset);
        self.pending.push(Change::Write { offset, data: data.to_vec() });
    }

    pub(super) fn set_len(&mut self, len: u64) {
        self.allocated = self.charge_at_len(len);
        self.live.set_len(len);
        self.pending.push(Change::SetLen(len));
    }

    pub(super) fn sync(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        // Lengths first: what is written behind a cut is in `live`, and copied from there.
        for change in &pending {
            if let Change::SetLen(len) = change {
                self.durable.set_len(*len);
            }
        }
        for change in &pending {
            if let Change::Write { offset, data } = change {
                self.durable.copy_pages(&self.live, *offset, data.len() as u64);
            }
        }
        self.durable.adopt_len(self.live.len());
    }

    /// The write-back of all that is not synced failed: the pages count as clean from now on, so
    /// that readers see them, no later sync writes them, and a power cut takes them. Only pages that
    /// are written anew become durable, whole.
    pub(super) fn fail_writeback(&mut self) {
        self.pending.clear();
    }

    /// The file after a power cut that spared nothing it was free to take.
    pub(super) fn without_unsynced(&self) -> Bytes {
        Bytes::settled(self.durable.clone())
    }

    /// The file after a power cut at which the disk had got as far as `rng` says: each unsynced
    /// change was done, done in part (a prefix cut at any byte, or any of its pages), or not at
    /// all; a length may be there before the bytes that it makes room for.
    pub(super) fn with_some_unsynced(&self, rng: &mut SplitMix64) -> Bytes {
        let mut content = self.durable.clone();
        // Fair coins alone would hardly ever keep, or lose, a long row of changes.
        let eighths_kept = [0, 1, 4, 7, 8][rng.below(5) as usize];
        for change in &self.pending {
            let is_kept = rng.chance(eighths_kept, 8);
            match change {
                Change::SetLen(len) if is_kept => content.set_len(*len),
                Change::SetLen(_) => {}
                Change::Write { offset, data } if is_kept => match rng.below(4) {
                    0 => content.write(&data[..rng.below(data.len() as u64 + 1) as usize], *offset),
                    1 => write_some_pages(&mut content, data, *offset, rng),
                    _ => content.write(data, *offset),
                },
                Change::Write { offset, data } => {
                    let end = offset + data.len() as u64;
                    if end > content.len() && rng.chance(1, 8) {
                        content.set_len(end);
                    }
                }
            }
        }
        Bytes::settled(content)
    }

    fn settled(content: Content) -> Bytes {
        Bytes { live: content.clone(), allocated: content.len(), durable: content, pending: Vec::new() }
    }
}

fn write_some_pages(content: &mut Content, data: &[u8], offset: u64, rng: &mut SplitMix64) {
    let mut at = 0;
    while at < data.len() {
        let room = PAGE - (offset + at as u64) % PAGE;
        let n = (data.len() - at).min(room as usize);
        if rng.chance(1, 2) {
            content.write(&data[at..at + n], offset + at as u64);
        }
        at += n;
    }
}
