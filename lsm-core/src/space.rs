//! A keyspace of an open database: its trees, one a shard, and the one view that readers take of them.
//!
//! ```text
//!  Space ─┬─ Tree, shard 0 ─┐
//!         ├─ Tree, shard 1 ─┼─ replaces its part ─► Views ─► SpaceView: [TreeView, TreeView, ...]
//!         └─ Tree, shard 2 ─┘
//! ```
//! Invariants
//! - I7: the views of all shards are published as one, so that no flush, compaction, rollback or
//!   collection can take a value out of one shard after a reader has missed it in another.
//! - Each view is built from the latest one, under a lock (rule 10): two trees that publish at once
//!   lose nothing of each other.
//! - N is fixed at the keyspace's creation. A keyspace with one shard asks nobody where a key lies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};
use dialsm_io::Env;
use parking_lot::Mutex;

use crate::compaction::reads::Spent;
use crate::key::Comparator;
use crate::merge_operator::Merging;
use crate::options::KeyspaceOptions;
use crate::options::live::LiveKeyspaceOptions;
use crate::prefix::PrefixExtractor;
use crate::routing::Placement;
use crate::tree::{Dropped, Tree, TreeStart, TreeView};
use crate::types::{SeqNo, TreeId};
use crate::version::Version;
use crate::write::budget::WriteBudget;

/// What a reader sees of a keyspace: one view of each shard, all of one moment.
pub(crate) struct SpaceView {
    shards: Box<[Arc<TreeView>]>,
}

impl SpaceView {
    #[inline]
    pub(crate) fn shard(&self, shard: u16) -> &Arc<TreeView> {
        &self.shards[usize::from(shard)]
    }

    /// The views of all shards, in their order.
    pub(crate) fn shards(&self) -> &[Arc<TreeView>] {
        &self.shards
    }

    /// The view of the tree, which is one of this keyspace.
    #[inline]
    pub(crate) fn of(&self, tree: &Tree) -> &Arc<TreeView> {
        self.shard(tree.id.shard)
    }
}

/// The published view of a keyspace.
pub(crate) struct Views {
    current: ArcSwap<SpaceView>,
    replacing: Mutex<()>,
}

impl Views {
    fn new(shards: Vec<Arc<TreeView>>) -> Views {
        let shards = shards.into_boxed_slice();
        Views { current: ArcSwap::from_pointee(SpaceView { shards }), replacing: Mutex::new(()) }
    }

    #[inline]
    pub(crate) fn load(&self) -> Guard<Arc<SpaceView>> {
        self.current.load()
    }

    pub(crate) fn load_full(&self) -> Arc<SpaceView> {
        self.current.load_full()
    }

    /// Publishes another view of one shard, made from its present one. The caller has the tree's lock.
    pub(crate) fn replace(&self, shard: u16, change: impl FnOnce(&TreeView) -> TreeView) {
        let _only_one = self.replacing.lock();
        let current = self.current.load();
        let mut shards = current.shards.clone();
        let place = &mut shards[usize::from(shard)];
        *place = Arc::new(change(place));
        self.current.store(Arc::new(SpaceView { shards }));
    }

    /// The published view together with a sequence number that it serves (rule 10); the look at the
    /// visible sequence is in the caller's hands: a test lets the world change around it.
    #[inline]
    pub(crate) fn load_at(&self, look: impl Fn() -> SeqNo) -> (Guard<Arc<SpaceView>>, SeqNo) {
        loop {
            let view = self.current.load();
            let seqno = look();
            if Arc::ptr_eq(&view, &self.current.load()) {
                return (view, seqno);
            }
        }
    }
}

/// One keyspace.
pub(crate) struct Space {
    pub(crate) id: u32,
    pub(crate) name: Arc<str>,
    pub(crate) comparator: Comparator,
    pub(crate) merging: Merging,
    pub(crate) prefix_extractor: Option<PrefixExtractor>,
    /// The keyspace's; each tree has its share.
    pub(crate) options: LiveKeyspaceOptions,
    /// By shard.
    pub(crate) trees: Box<[Arc<Tree>]>,
    pub(crate) placement: Placement,
    /// By readers, on each sorted run.
    pub(crate) spent: Spent,
    views: Arc<Views>,
}

impl Space {
    /// A keyspace with what is settled of each of its trees: its version, and the floor of that.
    pub(crate) fn new(
        env: &dyn Env,
        (id, name): (u32, Arc<str>),
        options: KeyspaceOptions,
        merging: Merging,
        settled: Vec<(Arc<Version>, SeqNo)>,
        placement: Placement,
        budget: &Arc<WriteBudget>,
    ) -> Space {
        let shards = settled.len() as u16;
        let views = Arc::new(Views::new(
            settled
                .iter()
                .map(|(version, floor)| Tree::first_view(&options.comparator, version, *floor))
                .collect(),
        ));
        let door_changed = env.event();
        let stalls = Arc::default();
        let tree = |(shard, (version, durable_floor)): (usize, (Arc<Version>, SeqNo))| {
            let start = TreeStart {
                id: TreeId { keyspace: id, shard: shard as u16 },
                shards,
                name: name.clone(),
                options: options.share(shard as u16, shards),
                merging: merging.clone(),
                version,
                durable_floor,
                door_changed: door_changed.clone(),
                stalls: Arc::clone(&stalls),
            };
            Arc::new(Tree::new(start, views.clone(), budget.clone()))
        };
        let trees = settled.into_iter().enumerate().map(tree).collect();
        Space {
            id,
            name,
            comparator: options.comparator.clone(),
            prefix_extractor: options.prefix_extractor.clone(),
            options: LiveKeyspaceOptions::new(options),
            merging,
            trees,
            placement,
            spent: Spent::default(),
            views,
        }
    }

    /// How many shards it has.
    #[inline]
    pub(crate) fn shards(&self) -> u16 {
        self.trees.len() as u16
    }

    /// The tree that `key` belongs to: its primary.
    #[inline]
    pub(crate) fn primary(&self, key: &[u8]) -> &Arc<Tree> {
        match &self.trees[..] {
            [only] => only,
            trees => &trees[usize::from(self.placement.place(key))],
        }
    }

    /// So many keys were looked up, or one was that stands for so many. Whether background workers should look.
    #[inline]
    pub(crate) fn note_gets(&self, gets: u64) -> bool {
        self.spent.note_gets(gets, self.shards(), self.options.load().filter_bits_per_key > 0.0)
    }

    /// Whether it is one of the database with that budget.
    #[inline]
    pub(crate) fn belongs_to(&self, budget: &Arc<WriteBudget>) -> bool {
        self.trees[0].belongs_to(budget)
    }

    /// Whether it is gone. What a view loaded before holds is whole where this is false.
    #[inline]
    pub(crate) fn is_dropped(&self) -> bool {
        self.trees[0].is_dropped()
    }

    /// The published view.
    #[inline]
    pub(crate) fn view(&self) -> Guard<Arc<SpaceView>> {
        self.views.load()
    }

    /// The published view, to keep.
    pub(crate) fn view_full(&self) -> Arc<SpaceView> {
        self.views.load_full()
    }

    /// The published view together with a sequence number that it serves (rule 10).
    #[inline]
    pub(crate) fn view_at_visible(&self, visible: &AtomicU64) -> (Guard<Arc<SpaceView>>, SeqNo) {
        self.views.load_at(|| visible.load(Ordering::Acquire))
    }

    #[cfg(test)]
    pub(crate) fn views(&self) -> &Views {
        &self.views
    }

    /// Empties the keyspace for good; what its trees had. Leader only: between two groups.
    pub(crate) fn set_dropped(&self) -> Vec<Dropped> {
        self.trees.iter().map(Tree::set_dropped).collect()
    }
}
