//! Crash images: the file system that the next boot, or the next process, finds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::inode::Bytes;
use super::names::{Claim, Dir, DirNo, Entry, Inode, Live, Names, Stored};
use crate::rng::SplitMix64;

/// How far the disk had got when the lights went out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashPolicy {
    /// Power cut: all bytes, lengths and names that were not synced are gone.
    DropUnsynced,
    /// The process was killed, the machine lives: nothing is lost, and what was not synced still
    /// is not.
    KeepAll,
    /// Power cut: of what was not synced, any part that a disk may have reached, chosen by the
    /// seed (together with the file system's own).
    Random(u64),
}

/// Files of the image by their number in the original, so that names of one file share one copy.
struct Copies {
    used: Arc<AtomicU64>,
    made: BTreeMap<u64, Arc<Claim>>,
}

impl Copies {
    fn claim(&mut self, inode: &Inode, copy: impl FnOnce(&Bytes) -> Bytes) -> Arc<Claim> {
        let make = || Claim::new(inode.number, copy(&inode.bytes.lock()), &self.used);
        Arc::clone(self.made.entry(inode.number).or_insert_with(make))
    }

    fn same(&mut self, stored: &Stored) -> Stored {
        match stored {
            Entry::File(inode) => Entry::File(Arc::clone(&self.claim(inode, Bytes::clone).inode)),
            Entry::Dir(dir) => Entry::Dir(*dir),
        }
    }
}

/// The directories of the image, its space counted in `used`.
pub(super) fn image(names: &Names, policy: CrashPolicy, fs_seed: u64, used: &Arc<AtomicU64>) -> Names {
    match policy {
        CrashPolicy::KeepAll => after_kill(names, used),
        CrashPolicy::DropUnsynced => after_cut(names, None, used),
        CrashPolicy::Random(seed) => {
            let mut rng = SplitMix64::new(SplitMix64::new(seed).next_u64() ^ fs_seed);
            after_cut(names, Some(&mut rng), used)
        }
    }
}

fn after_cut(names: &Names, mut rng: Option<&mut SplitMix64>, used: &Arc<AtomicU64>) -> Names {
    let survived = names.after_cut(rng.as_deref_mut());
    let mut copies = Copies { used: Arc::clone(used), made: BTreeMap::new() };
    let mut image = Names { dirs_made: names.dirs_made, ops_made: names.ops_made, ..Names::new() };
    // From the root, because a directory whose own name is lost is lost with all in it.
    let mut to_do: Vec<DirNo> = image.dirs.keys().copied().collect();
    while let Some(number) = to_do.pop() {
        let mut dir = Dir::default();
        for (name, stored) in &survived[&number] {
            let live: Live = match stored {
                Entry::Dir(inner) => {
                    to_do.push(*inner);
                    Entry::Dir(*inner)
                }
                Entry::File(inode) => Entry::File(copies.claim(inode, |bytes| match rng.as_deref_mut() {
                    None => bytes.without_unsynced(),
                    Some(rng) => bytes.with_some_unsynced(rng),
                })),
            };
            dir.durable.insert(name.clone(), live.stored());
            dir.live.insert(name.clone(), live);
        }
        image.dirs.insert(number, dir);
    }
    image
}

fn after_kill(names: &Names, used: &Arc<AtomicU64>) -> Names {
    let mut copies = Copies { used: Arc::clone(used), made: BTreeMap::new() };
    let mut image = Names { dirs_made: names.dirs_made, ops_made: names.ops_made, ..Names::new() };
    for (number, dir) in &names.dirs {
        let live = |(name, entry): (&String, &Live)| {
            let entry = match entry {
                Entry::File(claim) => Entry::File(copies.claim(&claim.inode, Bytes::clone)),
                Entry::Dir(inner) => Entry::Dir(*inner),
            };
            (name.clone(), entry)
        };
        let live = dir.live.iter().map(live).collect();
        let durable = dir.durable.iter().map(|(name, e)| (name.clone(), copies.same(e))).collect();
        let pending = dir.pending.iter().map(|op| op.with_entry(copies.same(&op.entry))).collect();
        image.dirs.insert(*number, Dir { live, durable, pending });
    }
    // Copies that only durable names lead to lose their claim here, and with it their charge.
    image
}
