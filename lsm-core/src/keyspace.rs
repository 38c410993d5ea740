//! Keyspaces: the named trees of an open database, and how one is born and ends.
//!
//! ```text
//! create   manifest: id and name, synced ─ in the registry ─ first write
//! drop     between two groups: out of the registry, tree emptied ─ manifest: id gone, synced
//!          ─ its tables obsolete ─ files unlinked when the last reader's view lets go
//! ```
//! Invariants
//! - An id is never given out twice in the life of a database: the manifest knows the next one.
//! - A record of the log names only ids that were in the durable manifest when it was written, and
//!   that were not dropped: the leader of each group looks them up in the registry, which changes
//!   only after the manifest does (create) or between two groups (drop). So replay skips an id
//!   that was given out and is gone, and an id that was never given out is corruption (rule 23).
//! - A drop that was begun is not undone: should the manifest fail, it is written again with the
//!   next change, and only a crash before that brings the keyspace back, as it was at the drop.
//!
//! A name is text for people: no file is named after it. Names of dropped keyspaces are free again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::{ArcSwap, Guard};
use dialsm_io::Env;

use crate::engine::Engine;
use crate::gate::Gate;
use crate::merge_operator::Merging;
use crate::options::KeyspaceOptions;
use crate::space::Space;
use crate::tree::Tree;
use crate::types::TreeId;
use crate::version::Version;
use crate::{Error, ErrorKind, Result, options};

/// The name of the keyspace that every database has, with id 0.
pub const DEFAULT_KEYSPACE: &str = "default";

/// The longest name of a keyspace, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// A handle on a keyspace of an open database. Cheap to clone; usable from all threads.
///
/// It may outlive the keyspace and the database: calls with it then fail, with `NotFound` or `Closed`.
#[derive(Clone)]
pub struct Keyspace(pub(crate) Arc<Space>);

impl Keyspace {
    /// Its id, by which batches name it. Never used twice in a database.
    pub fn id(&self) -> u32 {
        self.0.id
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// How many shards it has: fixed at its creation.
    pub fn shards(&self) -> u16 {
        self.0.shards()
    }

    /// The options in force now; [`Db::set_options_in`](crate::Db::set_options_in) puts others in their
    /// place.
    pub fn options(&self) -> Arc<KeyspaceOptions> {
        self.0.options.now()
    }
}

impl std::fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keyspace({} {:?})", self.id(), self.name())
    }
}

/// The keyspaces that are there, by ascending id, the default one first; and all their trees, in the same
/// order. Replaced as a whole.
#[derive(Clone, Default)]
pub(crate) struct Alive {
    pub(crate) spaces: Vec<Arc<Space>>,
    pub(crate) trees: Vec<Arc<Tree>>,
}

impl Alive {
    pub(crate) fn of(spaces: Vec<Arc<Space>>) -> Alive {
        let trees = spaces.iter().flat_map(|space| space.trees.iter().cloned()).collect();
        Alive { spaces, trees }
    }

    /// The keyspace with that id.
    pub(crate) fn by_id(&self, id: u32) -> Option<&Arc<Space>> {
        // Until one is dropped, ids are places.
        if let Some(space) = self.spaces.get(id as usize)
            && space.id == id
        {
            return Some(space);
        }
        self.spaces.binary_search_by_key(&id, |space| space.id).ok().map(|at| &self.spaces[at])
    }

    /// The tree with that id.
    pub(crate) fn tree(&self, id: TreeId) -> Option<&Arc<Tree>> {
        self.by_id(id.keyspace)?.trees.get(usize::from(id.shard))
    }
}

/// The registry of an open database.
pub(crate) struct Keyspaces {
    alive: ArcSwap<Alive>,
    /// No id at or above this one was given out.
    next_id: AtomicU32,
    /// Held over a creation or a drop.
    changing: Gate,
}

impl Keyspaces {
    pub(crate) fn new(env: &dyn Env, alive: Alive, next_id: u32) -> Keyspaces {
        Keyspaces {
            alive: ArcSwap::from_pointee(alive),
            next_id: AtomicU32::new(next_id),
            changing: Gate::new(env),
        }
    }

    /// Those that are there now.
    pub(crate) fn alive(&self) -> Arc<Alive> {
        self.alive.load_full()
    }

    /// The same, cheaper, for a short look.
    pub(crate) fn alive_guard(&self) -> Guard<Arc<Alive>> {
        self.alive.load()
    }

    pub(crate) fn next_id(&self) -> u32 {
        self.next_id.load(Ordering::Acquire)
    }

    /// Notes that `id` was given out. Where the manifest is written: between a record with the id and
    /// a fresh manifest, which says what the next one is, nothing may come.
    pub(crate) fn spend_id(&self, id: u32) {
        self.next_id.fetch_max(id + 1, Ordering::AcqRel);
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<Arc<Space>> {
        self.alive.load().spaces.iter().find(|space| &*space.name == name).cloned()
    }
}

/// The error of a call that names a keyspace which is not there.
pub(crate) fn unknown(id: u32) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no keyspace {id}"))
}

/// Refuses names that would not do.
///
/// # Errors
/// `InvalidArgument`.
pub(crate) fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        let text = format!("a keyspace's name has 1 to {NAME_BYTES_MAX} bytes, not {}", name.len());
        return Err(Error::invalid(text));
    }
    if name.chars().any(char::is_control) {
        return Err(Error::invalid("a keyspace's name has no control characters"));
    }
    Ok(())
}

/// Creates a keyspace, durable when this returns.
pub(crate) fn create(engine: &Arc<Engine>, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
    let _inside = engine.enter()?;
    check_name(name)?;
    let options = options.guarded()?;
    options.validate()?;
    engine.error.check()?;
    let registry = &engine.keyspaces;
    let _only_one = registry.changing.enter();
    if registry.by_name(name).is_some() {
        return Err(Error::new(ErrorKind::AlreadyExists, format!("there is a keyspace {name:?} already")));
    }
    let keyspace = registry.next_id();
    if keyspace == u32::MAX {
        return Err(Error::new(ErrorKind::Unsupported, "the database has used up its keyspace ids"));
    }
    let placement = engine.space.placement.clone();
    check_order(&options, placement.shards)?;
    let nothing = || (Arc::new(Version::empty(options.comparator.clone())), 1);
    let settled = (0..placement.shards).map(|_| nothing()).collect();
    let merging = Merging::new(options.merge_operator.clone(), None)?;
    let (env, named) = (engine.env.as_ref(), (keyspace, name.into()));
    let space = Arc::new(Space::new(env, named, options, merging, settled, placement, &engine.write_budget));
    engine.versions.create_keyspace(engine, &space)?;
    let mut spaces = registry.alive().spaces.clone();
    spaces.push(space.clone());
    registry.alive.store(Arc::new(Alive::of(spaces)));
    options::live::note_keyspaces(engine);
    Ok(Keyspace(space))
}

/// Refuses an order of keys that calls different bytes equal where they may lie in different shards
/// (rule 25).
///
/// # Errors
/// `InvalidArgument`.
pub(crate) fn check_order(options: &KeyspaceOptions, shards: u16) -> Result<()> {
    if shards > 1 && !options.comparator.equal_is_identical() {
        let text = "with more than one shard, keys that the comparator calls equal have to be the same bytes";
        return Err(Error::invalid(text));
    }
    Ok(())
}

/// Drops a keyspace; durable when this returns.
pub(crate) fn drop_keyspace(engine: &Arc<Engine>, space: &Arc<Space>) -> Result<()> {
    let _inside = engine.enter()?;
    if space.id == 0 {
        return Err(Error::invalid("the default keyspace can't be dropped"));
    }
    let registry = &engine.keyspaces;
    let _only_one = registry.changing.enter();
    engine.check_keyspace(space)?;
    // On a full disk it may be what makes room.
    if engine.error.is_lasting() {
        engine.error.check()?;
    }
    // A group that was logged before goes into memtables that nobody reads any more; one that is
    // logged after does not find the keyspace.
    let last = engine.commit.between_groups(engine, |_, _| {
        let mut spaces = registry.alive().spaces.clone();
        spaces.retain(|other| !Arc::ptr_eq(other, space));
        registry.alive.store(Arc::new(Alive::of(spaces)));
        space.set_dropped()
    });
    engine.wake_writers();
    let result = engine.versions.drop_keyspace(engine, last);
    // There are files to bury, or a drop to write again.
    engine.handoff.wake.notify();
    engine.schedule();
    options::live::note_keyspaces(engine);
    result
}
