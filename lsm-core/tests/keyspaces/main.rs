//! Keyspaces: random operations beside a model, power cuts, budgets, many of them, and calls that a
//! careful program would not make.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

#[path = "../hostile/mod.rs"]
mod hostile;

#[path = "../common/mod.rs"]
mod common;

mod api;
mod crash;
mod log;
mod memory;
mod model;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use dialsm_core::key::Comparator;
use dialsm_core::{Db, DbIterator, Keyspace, KeyspaceOptions, Options, ReadOptions};
use dialsm_io::Env;
use hostile::Model;

/// What each keyspace holds, by its name.
type World = BTreeMap<String, Model>;

/// All of one cursor, forward; a pass backward must agree.
fn drain(iter: &mut DbIterator) -> dialsm_core::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut found = Vec::new();
    iter.seek_to_first()?;
    while iter.valid() {
        found.push((iter.key().to_vec(), iter.value().to_vec()));
        iter.next()?;
    }
    let mut left = found.len();
    iter.seek_to_last()?;
    while iter.valid() {
        left = left.checked_sub(1).expect("more backward than forward");
        assert_eq!((iter.key(), iter.value()), (found[left].0.as_slice(), found[left].1.as_slice()));
        iter.prev()?;
    }
    assert_eq!(left, 0, "the passes in the two directions differ");
    Ok(found)
}

/// All keyspaces at one moment.
fn world(db: &Db) -> World {
    world_at(db, &ReadOptions::default())
}

fn world_at(db: &Db, options: &ReadOptions) -> World {
    let keyspaces: Vec<Keyspace> =
        db.keyspaces().iter().map(|name| db.keyspace(name).expect("it was listed")).collect();
    let all: Vec<&Keyspace> = keyspaces.iter().collect();
    let iters = db.iters(options, &all).expect("iterators");
    let contents = |mut iter| drain(&mut iter).expect("scan").into_iter().collect();
    all.iter().map(|keyspace| keyspace.name().to_owned()).zip(iters.into_iter().map(contents)).collect()
}

fn open(env: Arc<dyn Env>, path: &Path, options: &Options, named: &[(&str, KeyspaceOptions)]) -> Db {
    Db::open_with(env, path, options.clone(), named).expect("open")
}

/// Options of a keyspace whose keys run backwards.
fn reversed(options: &Options) -> KeyspaceOptions {
    KeyspaceOptions { comparator: Comparator::ReverseBytewise, ..options.keyspace() }
}
