//! Snapshots: sequence numbers that somebody still reads at.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::types::SeqNo;

/// The held snapshots of a database.
#[derive(Default)]
pub(crate) struct SnapshotList {
    held: Mutex<BTreeMap<SeqNo, usize>>,
}

impl SnapshotList {
    /// Registers a snapshot of what is visible now.
    pub(crate) fn take(self: &Arc<Self>, visible: &AtomicU64) -> Snapshot {
        let mut held = self.held.lock();
        // Read under the lock: a job that takes its list later sees this snapshot or a visible
        // sequence that is not below it (rule 9).
        let seqno = visible.load(Ordering::Acquire);
        *held.entry(seqno).or_insert(0) += 1;
        Snapshot(Arc::new(Held { seqno, list: self.clone() }))
    }

    /// What a flush or compaction that starts now has to respect, ascending; the visible sequence
    /// is one of them, because a reader may be about to use it (rule 9).
    pub(crate) fn for_job(&self, visible: &AtomicU64) -> Vec<SeqNo> {
        let held = self.held.lock();
        let visible = visible.load(Ordering::Acquire);
        let mut all: Vec<SeqNo> = held.keys().copied().collect();
        if let Err(at) = all.binary_search(&visible) {
            all.insert(at, visible);
        }
        all
    }

    /// How many handles are held, and the oldest sequence among them.
    pub(crate) fn summary(&self) -> (usize, Option<SeqNo>) {
        let held = self.held.lock();
        (held.values().sum(), held.keys().next().copied())
    }
}

/// A consistent view of the whole database at one point of its history.
///
/// Cheap to clone; released when the last clone is dropped. While it is held, compaction keeps
/// the versions it can see. It may outlive every other handle of the database.
#[derive(Clone)]
pub struct Snapshot(Arc<Held>);

struct Held {
    seqno: SeqNo,
    list: Arc<SnapshotList>,
}

impl Snapshot {
    /// The sequence number up to which this snapshot sees.
    pub fn seqno(&self) -> SeqNo {
        self.0.seqno
    }

    /// Whether it was taken from the database that `list` belongs to.
    pub(crate) fn belongs_to(&self, list: &Arc<SnapshotList>) -> bool {
        Arc::ptr_eq(&self.0.list, list)
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot({})", self.0.seqno)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = self.list.held.lock();
        if let Some(count) = held.get_mut(&self.seqno) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.seqno);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_respects_held_snapshots_and_the_visible_sequence() {
        let list = Arc::new(SnapshotList::default());
        let visible = AtomicU64::new(5);
        let five = list.take(&visible);
        let again = five.clone();
        visible.store(9, Ordering::Release);
        assert_eq!(list.for_job(&visible), [5, 9]);
        drop(five);
        assert_eq!(list.for_job(&visible), [5, 9]);
        assert_eq!(list.summary(), (1, Some(5)));
        drop(again);
        assert_eq!(list.for_job(&visible), [9]);
    }
}
