//! Reads all of a database, in every way there is, and says what it holds.

use std::path::Path;
use std::sync::Arc;

use dialsm_core::{Db, DbIterator, Options, ReadOptions, Result};
use dialsm_io::{Env, SplitMix64};

use super::ledger::{Expectation, Judgement};
use super::workload::Model;

/// All that the database holds at the moment of `options`, read forward; a pass backward agrees.
///
/// # Errors
/// Those of the database; `Internal` where two passes differ.
pub fn contents_at(db: &Db, options: &ReadOptions) -> Result<Model> {
    let mut found = Model::new();
    let handles: Vec<_> = db.keyspaces().iter().filter_map(|name| db.keyspace(name)).collect();
    let refs: Vec<_> = handles.iter().collect();
    for (mut iter, keyspace) in db.iters(options, &refs)?.into_iter().zip(&handles) {
        read_both_ways(&mut iter, keyspace.id(), &mut found)?;
    }
    Ok(found)
}

fn read_both_ways(iter: &mut DbIterator, keyspace: u32, found: &mut Model) -> Result<()> {
    let broken = |what: &str| Err(dialsm_core::Error::new(dialsm_core::ErrorKind::Internal, what));
    let mut count = 0;
    iter.seek_to_first()?;
    while iter.valid() {
        if found.insert((keyspace, iter.key().to_vec()), iter.value().to_vec()).is_some() {
            return broken("a key came twice in one scan");
        }
        count += 1;
        iter.next()?;
    }
    iter.seek_to_last()?;
    while iter.valid() {
        if found.get(&(keyspace, iter.key().to_vec())).map(Vec::as_slice) != Some(iter.value()) {
            return broken("a scan backward shows something else than one forward");
        }
        count -= 1;
        iter.prev()?;
    }
    if count == 0 { Ok(()) } else { broken("a scan backward shows fewer keys than one forward") }
}

/// Opens the database in `dir`, verifies it, and judges what it holds.
///
/// # Errors
/// What is wrong.
pub fn open_and_judge(
    env: &Arc<dyn Env>,
    dir: &Path,
    options: &Options,
    expectation: &Expectation<'_>,
    rng: &mut SplitMix64,
) -> std::result::Result<Judgement, String> {
    let db = Db::open(env.clone(), dir, options.clone()).map_err(|e| format!("it does not open: {e}"))?;
    judge(&db, expectation, rng)
}

/// Verifies an open database and judges what it holds.
///
/// # Errors
/// What is wrong.
pub fn judge(
    db: &Db,
    expectation: &Expectation<'_>,
    rng: &mut SplitMix64,
) -> std::result::Result<Judgement, String> {
    let keyspaces = db.keyspaces().len();
    if keyspaces != expectation.shape.keyspaces as usize + 1 {
        return Err(format!("{keyspaces} keyspaces are there"));
    }
    db.verify(&mut |_, _| {}).map_err(|e| format!("verify finds: {e}"))?;
    let options = ReadOptions::default();
    let found = contents_at(db, &options).map_err(|e| format!("it cannot be read: {e}"))?;
    let mut judgement = expectation.judge(found)?;
    judgement.completed = db.metrics().counters.redirects_completed;
    for _ in 0..8 {
        gets_agree(db, expectation, &judgement.state, rng)?;
    }
    if rng.chance(1, 4) {
        db.wait_until_idle().map_err(|e| format!("it does not come to rest: {e}"))?;
        let later = contents_at(db, &options).map_err(|e| format!("it cannot be read: {e}"))?;
        if later != judgement.state {
            return Err("coming to rest changed what it holds".to_owned());
        }
    }
    Ok(judgement)
}

/// A key that may be there or not, looked up, gives what the scan gave.
fn gets_agree(
    db: &Db,
    expectation: &Expectation<'_>,
    state: &Model,
    rng: &mut SplitMix64,
) -> std::result::Result<(), String> {
    let names = db.keyspaces();
    let Some(keyspace) = db.keyspace(&names[rng.below(names.len() as u64) as usize]) else {
        return Err("a keyspace that is listed is not there".to_owned());
    };
    let sort = if rng.chance(1, 4) { 'm' } else { 'k' };
    let key = format!("{sort}{:04}", rng.below(expectation.shape.keys)).into_bytes();
    let got = db.get_in(&ReadOptions::default(), &keyspace, &key);
    let got = got.map_err(|e| format!("a key cannot be read: {e}"))?;
    if got.as_deref() != state.get(&(keyspace.id(), key)).map(Vec::as_slice) {
        return Err("a look-up gives something else than a scan".to_owned());
    }
    Ok(())
}
