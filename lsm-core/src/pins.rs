//! Which views iterators hold, and what stays for their sake alone.
//!
//! An iterator keeps memtables and tables of its view in memory and on disk however long it lives. What of that
//! nothing else needs any more is counted when somebody asks, apart from what waits to become durable
//! (rule 21): a memtable that its tree's view has left, a table that neither the live nor the durable version
//! names. What both an iterator and the hand-off keep counts here, too.
//!
//! Iterators sign on in one of several lists, which their threads' stacks pick as they do those of counters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dialsm_io::env::Nanos;
use parking_lot::Mutex;

use crate::metrics::shard_index;
use crate::space::{Space, SpaceView};

/// As many as `shard_index` tells apart.
const LISTS: usize = crate::metrics::SHARDS;

/// The open iterators of a database.
pub(crate) struct Pins {
    lists: Box<[Mutex<List>]>,
}

#[derive(Default)]
struct List {
    pinned: Vec<Option<Pinned>>,
    free: Vec<usize>,
}

#[derive(Clone)]
struct Pinned {
    space: Arc<Space>,
    view: Arc<SpaceView>,
    since: Nanos,
}

/// An iterator's place in the lists.
#[derive(Clone, Copy)]
pub(crate) struct Pin {
    list: usize,
    at: usize,
}

/// What iterators hold; sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PinReport {
    pub(crate) iterators: u64,
    /// For how long the oldest one has been there.
    pub(crate) oldest_ns: Nanos,
    /// Views that are not the published one any more.
    pub(crate) views: u64,
    pub(crate) tables: u64,
    pub(crate) table_bytes: u64,
    pub(crate) memtables: u64,
    pub(crate) memtable_bytes: u64,
}

impl Pins {
    pub(crate) fn new() -> Pins {
        Pins { lists: (0..LISTS).map(|_| Mutex::default()).collect() }
    }

    /// Notes an iterator over `view` of `space`.
    pub(crate) fn add(&self, space: &Arc<Space>, view: &Arc<SpaceView>, since: Nanos) -> Pin {
        let list = shard_index();
        let pinned = Some(Pinned { space: space.clone(), view: view.clone(), since });
        let mut entries = self.lists[list].lock();
        let at = if let Some(at) = entries.free.pop() {
            entries.pinned[at] = pinned;
            at
        } else {
            entries.pinned.push(pinned);
            entries.pinned.len() - 1
        };
        Pin { list, at }
    }

    /// The iterator is gone; it has its view still, so that nothing is freed here.
    pub(crate) fn remove(&self, pin: Pin) {
        let gone = {
            let mut entries = self.lists[pin.list].lock();
            entries.free.push(pin.at);
            entries.pinned[pin.at].take()
        };
        drop(gone);
    }

    /// What they hold now.
    pub(crate) fn report(&self, now: Nanos) -> PinReport {
        let mut report = PinReport::default();
        // One of each view; the published one holds nothing back.
        let mut old: BTreeMap<*const SpaceView, Pinned> = BTreeMap::new();
        for list in &self.lists {
            for pinned in list.lock().pinned.iter().flatten() {
                report.iterators += 1;
                report.oldest_ns = report.oldest_ns.max(now.saturating_sub(pinned.since));
                if !Arc::ptr_eq(&pinned.view, &pinned.space.view()) {
                    old.insert(Arc::as_ptr(&pinned.view), pinned.clone());
                }
            }
        }
        report.views = old.len() as u64;
        let (mut tables, mut memtables) = (BTreeSet::new(), BTreeSet::new());
        for pinned in old.values() {
            add_held(pinned, &mut report, &mut tables, &mut memtables);
        }
        report
    }
}

/// Adds what `pinned` holds and nothing else does, but for what was counted before.
fn add_held(
    pinned: &Pinned,
    report: &mut PinReport,
    tables: &mut BTreeSet<u64>,
    memtables: &mut BTreeSet<*const crate::tree::Buffer>,
) {
    let current = pinned.space.view_full();
    for tree in &pinned.space.trees {
        let (held, live) = (pinned.view.of(tree), current.of(tree));
        let mut needed: BTreeSet<u64> =
            live.version.all_tables().map(|(_, table)| table.number().0).collect();
        if !tree.is_dropped() {
            let durable = tree.lock().durable.clone();
            needed.extend(durable.all_tables().map(|(_, table)| table.number().0));
        }
        for (_, table) in held.version.all_tables() {
            if !needed.contains(&table.number().0) && tables.insert(table.number().0) {
                report.tables += 1;
                report.table_bytes += table.file_bytes();
            }
        }
        let is_live = |buffer: &Arc<crate::tree::Buffer>| {
            std::iter::once(&live.active).chain(&live.sealed).any(|other| Arc::ptr_eq(buffer, other))
        };
        for buffer in std::iter::once(&held.active).chain(&held.sealed) {
            if !is_live(buffer) && memtables.insert(Arc::as_ptr(buffer)) {
                report.memtables += 1;
                report.memtable_bytes += buffer.table.bytes_used() as u64;
            }
        }
    }
}
