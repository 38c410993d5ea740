//! Who may enter the commit queue: a write waits at the door of each tree that it writes to, unless all
//! that it brings for that tree has another way.
//!
//! | the tree's door is shut, and the write brings it | it goes |
//! |---|---|
//! | values and operands | to a fallback that is open, with clues into the tree's reserve |
//! | deletes, range deletes, values no longer than a clue | into the tree's reserve |
//!
//! Waiting is for the tree's own door or for any fallback's, whichever opens first (rule 20); never for
//! the number of clues to fall.

use crate::Result;
use crate::batch::{Op, WriteBatch};
use crate::engine::Engine;
use crate::key::Kind;
use crate::keyspace;
use crate::options::WriteOptions;
use crate::routing::CLUE_BYTES;
use crate::space::Space;
use crate::tree::Tree;
use crate::write::route::{Places, states};

/// Waits until the write may enter the commit queue.
///
/// # Errors
/// As [`StallGate::admit`](crate::write::stall::StallGate::admit); `NotFound` for a keyspace that is not there.
#[inline]
pub(crate) fn admit(
    engine: &Engine,
    batch: &WriteBatch,
    places: &Places,
    options: &WriteOptions,
) -> Result<()> {
    let space = &engine.space;
    if batch.others().is_empty() {
        return match &places[..] {
            [] => pass(engine, space, &space.trees[0], batch, options, None),
            [place] => pass(engine, space, &space.trees[usize::from(*place)], batch, options, Some(places)),
            _ => admit_to_many(engine, batch, places, options),
        };
    }
    admit_to_many(engine, batch, places, options)
}

fn admit_to_many(engine: &Engine, batch: &WriteBatch, places: &Places, options: &WriteOptions) -> Result<()> {
    let alive = engine.keyspaces.alive();
    let ids = batch.is_in_default().then_some(0).into_iter().chain(batch.others().iter().copied());
    for id in ids {
        let space = alive.by_id(id).ok_or_else(|| keyspace::unknown(id))?;
        for tree in &space.trees {
            if space.shards() == 1 {
                pass(engine, space, tree, batch, options, None)?;
            } else if brings(batch, places, tree).next().is_some() {
                pass(engine, space, tree, batch, options, Some(places))?;
            }
        }
    }
    Ok(())
}

/// What the batch brings for a tree of a keyspace with shards.
fn brings<'a>(batch: &'a WriteBatch, places: &'a Places, tree: &'a Tree) -> impl Iterator<Item = Op<'a>> {
    batch.iter().zip(places).filter_map(move |(op, place)| {
        let op = op.ok()?;
        let is_here = op.kind == Kind::RangeDelete || *place == tree.id.shard;
        (is_here && op.keyspace == tree.id.keyspace).then_some(op)
    })
}

/// Waits at one door.
#[inline]
fn pass(
    engine: &Engine,
    space: &Space,
    tree: &Tree,
    batch: &WriteBatch,
    options: &WriteOptions,
    places: Option<&Places>,
) -> Result<()> {
    let bytes = batch.byte_size() as u64;
    let logged = !options.disable_log && engine.is_logged();
    let detour = || places.is_some_and(|places| has_detour(engine, space, tree, batch, places, logged));
    tree.stall.admit(engine, &tree.options, bytes, options.no_slowdown, options.deadline, detour)
}

/// Whether all that the batch brings for the tree, whose door is not open, has another way.
fn has_detour(
    engine: &Engine,
    space: &Space,
    tree: &Tree,
    batch: &WriteBatch,
    places: &Places,
    logged: bool,
) -> bool {
    let options = engine.options.load();
    if !tree.has_reserve(options.clue_reserve_bytes) {
        return false;
    }
    let is_small = |op: Op<'_>| !matches!(op.kind, Kind::Put | Kind::Merge) || op.value.len() <= CLUE_BYTES;
    if brings(batch, places, tree).all(is_small) {
        // Below the stop a delay costs less than the reserve.
        return tree.pressure() >= 1.0;
    }
    let Some(router) = &space.placement.router else { return false };
    if !options.redirect || (!logged && engine.is_logged()) || !tree.is_pressed(options.redirect_pressure) {
        return false;
    }
    let (clues, clue_bytes) = engine.clues();
    let has_room = clues < options.clues_max && clue_bytes < options.clue_bytes_max;
    has_room && router.fallback(tree.id.shard, &states(space, options.redirect_pressure)).is_some()
}
