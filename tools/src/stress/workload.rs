//! What a batch holds: a pure function of a few numbers and the batch's id, so that whoever knows the
//! id can say what the batch did, in another process too.
//!
//! ```text
//! id        generation << 28 | thread << 20 | n      40 bits, written as `w/XXXXXXXXXX/`: the witness
//! c/TT      in the default keyspace: the witness of the last batch of that thread; in every batch
//! h/TT/SS   in one of the keyspaces: the id, in hexadecimal; S is n mod 32; in every batch. So each of
//!           the last batches is seen by itself, whatever else was overwritten
//! kNNNN     values        mNNNN     operands, joined by '+'        both in any keyspace
//! f/SSS     without log: the mark of the last batch that had something for shard S of that keyspace; in
//!           every such batch (`floors`)
//! ```
//! The log is written by one thread at a time, so the order of witnesses in it is the order of commits.
//!
//! INVARIANT: no value but a counter's holds `w/`: values are hexadecimal digits.

use std::collections::{BTreeMap, BTreeSet};

use dialsm_core::routing::CLUE_BYTES;
use dialsm_core::{Result, WriteBatch, checksum};
use dialsm_io::SplitMix64;

/// What a database holds: by keyspace id and key.
pub type Model = BTreeMap<(u32, Vec<u8>), Vec<u8>>;

/// Bytes of a witness.
const WITNESS_BYTES: usize = 13;

/// Batches of each thread that are seen by themselves.
const SLOTS: u64 = 32;

/// What is done at a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Set it.
    Put(Vec<u8>),
    /// Add an operand.
    Merge(Vec<u8>),
    /// Remove it.
    Delete,
    /// Remove all from it up to this one.
    DeleteRange(Vec<u8>),
}

/// An operation with its keyspace and key.
pub type Step = (u32, Vec<u8>, Op);

/// What batches are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Goes into every choice.
    pub seed: u64,
    /// Keys of each sort in each keyspace.
    pub keys: u64,
    /// Keyspaces beside the default one; their ids are 1 and on.
    pub keyspaces: u32,
    /// Without log: the trees of each keyspace, each of which gets marks.
    pub trees: Option<Trees>,
}

/// The trees of a keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trees {
    /// How many.
    pub shards: u16,
    /// Of so many of a thousand batches the values are redirected.
    pub redirect_permille: u64,
}

/// What marks can tell apart: generations, threads, batches of each.
pub const MARKS: (u64, u64, u64) = (4, 8, 2048);

/// The mark of batch `id`: too short to be redirected.
pub fn mark(id: u64) -> Vec<u8> {
    let (generation, thread, n) = (id >> 28 & 3, thread_of(id) & 7, id & 0x7ff);
    let bytes = ((generation << 14 | thread << 11 | n) as u16).to_be_bytes();
    const { assert!(CLUE_BYTES >= 2) };
    bytes.to_vec()
}

/// Where shard `shard` has its marks.
pub fn mark_key(shard: u16) -> Vec<u8> {
    format!("f/{shard:03}").into_bytes()
}

/// The shard of `key` in a run without log.
pub fn place(key: &[u8], shards: u16) -> u16 {
    let marked = key.strip_prefix(b"f/").and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    marked.unwrap_or_else(|| checksum::extend(0, key) as u16) % shards
}

/// Whether a value or operand is long enough to be worth it.
pub fn is_redirectable(op: &Op) -> bool {
    matches!(op, Op::Put(value) | Op::Merge(value) if value.len() > CLUE_BYTES)
}

/// Where the values of batch `id` go that do not belong there, without log.
pub fn target_of(shape: &Shape, id: u64) -> Option<u16> {
    let trees = shape.trees.filter(|trees| trees.shards > 1)?;
    let mut rng = SplitMix64::new(shape.seed ^ id << 8 ^ 0x7a4);
    rng.chance(trees.redirect_permille, 1000).then(|| rng.below(u64::from(trees.shards)) as u16)
}

/// The marks of batch `id` with those steps.
fn marks(shape: &Shape, trees: &Trees, id: u64, steps: &[Step]) -> Vec<Step> {
    let target = target_of(shape, id);
    let mut touched = BTreeSet::new();
    for (keyspace, key, op) in steps {
        match op {
            Op::DeleteRange(_) => touched.extend((0..trees.shards).map(|shard| (*keyspace, shard))),
            _ => drop(touched.insert((*keyspace, place(key, trees.shards)))),
        }
        touched.extend(target.filter(|_| is_redirectable(op)).map(|target| (*keyspace, target)));
    }
    touched.into_iter().map(|(keyspace, shard)| (keyspace, mark_key(shard), Op::Put(mark(id)))).collect()
}

/// The number of a batch.
pub fn id_of(generation: u64, thread: u64, n: u64) -> u64 {
    generation << 28 | thread << 20 | n
}

/// The thread that writes batch `id`.
pub fn thread_of(id: u64) -> u64 {
    id >> 20 & 0xff
}

/// The text that stands for batch `id`.
pub fn witness(id: u64) -> Vec<u8> {
    format!("w/{id:010x}/").into_bytes()
}

/// The batch that a witness stands for.
pub fn witnessed(text: &[u8]) -> Option<u64> {
    let digits = text.strip_prefix(b"w/")?.strip_suffix(b"/")?;
    (digits.len() == 10).then(|| u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok())?
}

/// All witnesses in written bytes, in order.
pub fn witnesses_in(data: &[u8]) -> Vec<u64> {
    data.windows(WITNESS_BYTES).filter(|window| window[0] == b'w').filter_map(witnessed).collect()
}

/// The key under which thread `thread` counts.
pub fn counter_key(thread: u64) -> Vec<u8> {
    format!("c/{thread:02}").into_bytes()
}

/// The last batch of each thread that `found` shows.
pub fn counters(found: &Model) -> BTreeMap<u64, u64> {
    let (from, to) = ((0, b"c/".to_vec()), (0, b"c0".to_vec()));
    found.range(from..to).filter_map(|(_, value)| witnessed(value)).map(|id| (thread_of(id), id)).collect()
}

fn text(rng: &mut SplitMix64, len: usize) -> Vec<u8> {
    let digits = format!("{:016x}", rng.next_u64()).into_bytes();
    digits.into_iter().cycle().take(len).collect()
}

fn key(sort: char, n: u64) -> Vec<u8> {
    format!("{sort}{n:04}").into_bytes()
}

/// A keyspace: the last one is written most, so that some are flushed alone.
fn keyspace(shape: &Shape, rng: &mut SplitMix64) -> u32 {
    if rng.chance(1, 2) { shape.keyspaces } else { rng.below(u64::from(shape.keyspaces) + 1) as u32 }
}

/// The steps of batch `id`.
pub fn steps(shape: &Shape, id: u64) -> Vec<Step> {
    let mut rng = SplitMix64::new(shape.seed ^ SplitMix64::new(id).next_u64());
    let slot = format!("h/{:02}/{:02}", thread_of(id), id % SLOTS).into_bytes();
    let holder = (id % SLOTS) as u32 % (shape.keyspaces + 1);
    let mut steps = vec![
        (0, counter_key(thread_of(id)), Op::Put(witness(id))),
        (holder, slot, Op::Put(format!("{id:x}").into_bytes())),
    ];
    for _ in 0..=rng.below(4) {
        let keyspace = keyspace(shape, &mut rng);
        let n = rng.below(shape.keys);
        steps.push(match rng.below(24) {
            0..14 => {
                let len = [0, 40, 400, 2500, 5000][rng.below(5) as usize];
                (keyspace, key('k', n), Op::Put(text(&mut rng, len)))
            }
            14..18 => {
                let len = rng.below(60) as usize;
                (keyspace, key('m', n), Op::Merge(text(&mut rng, len)))
            }
            18..21 => (keyspace, key('k', n), Op::Delete),
            21..23 => (keyspace, key('m', n), Op::Delete),
            _ => {
                let sort = if rng.chance(1, 3) { 'm' } else { 'k' };
                let end = n + rng.below(shape.keys / 4 + 2);
                (keyspace, key(sort, n), Op::DeleteRange(key(sort, end)))
            }
        });
    }
    if let Some(trees) = &shape.trees {
        let marks = marks(shape, trees, id, &steps);
        steps.extend(marks);
    }
    steps
}

/// The steps as a batch for the engine.
///
/// # Errors
/// Those of [`WriteBatch`], which these sizes never meet.
pub fn batch(steps: &[Step]) -> Result<WriteBatch> {
    let mut batch = WriteBatch::new();
    for (keyspace, key, op) in steps {
        match op {
            Op::Put(value) => batch.put_in(*keyspace, key, value)?,
            Op::Merge(operand) => batch.merge_in(*keyspace, key, operand)?,
            Op::Delete => batch.delete_in(*keyspace, key)?,
            Op::DeleteRange(end) => batch.delete_range_in(*keyspace, key, end)?,
        }
    }
    Ok(batch)
}

/// Bytes of keys and values in the steps.
pub fn bytes_of(steps: &[Step]) -> u64 {
    let of = |(_, key, op): &Step| {
        key.len()
            + match op {
                Op::Put(bytes) | Op::Merge(bytes) | Op::DeleteRange(bytes) => bytes.len(),
                Op::Delete => 0,
            }
    };
    steps.iter().map(of).sum::<usize>() as u64
}

/// Does batch `id` to the model.
pub fn apply(model: &mut Model, shape: &Shape, id: u64) {
    for (keyspace, key, op) in steps(shape, id) {
        let at = (keyspace, key);
        match op {
            Op::Put(value) => drop(model.insert(at, value)),
            Op::Delete => drop(model.remove(&at)),
            Op::Merge(operand) => match model.get_mut(&at) {
                Some(value) => {
                    value.push(b'+');
                    value.extend_from_slice(&operand);
                }
                None => drop(model.insert(at, operand)),
            },
            Op::DeleteRange(end) => {
                let gone: Vec<_> = model.range(at..(keyspace, end)).map(|(at, _)| at.clone()).collect();
                for at in gone {
                    model.remove(&at);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn witnesses_are_found_where_they_stand_and_nowhere_else() {
        let shape = Shape { seed: 7, keys: 50, keyspaces: 2, trees: None };
        let mut ids = Vec::new();
        let mut written = Vec::new();
        for n in 0..300 {
            let id = id_of(n / 100, n % 5, n);
            assert_eq!((thread_of(id), witnessed(&witness(id))), (n % 5, Some(id)));
            written.extend_from_slice(batch(&steps(&shape, id)).expect("a batch").as_bytes());
            ids.push(id);
        }
        assert_eq!(witnesses_in(&written), ids);
        assert_eq!(witnessed(b"w/00000g0000/"), None);
    }

    #[test]
    fn every_sort_of_step_comes_and_is_the_same_each_time() {
        let shape = Shape { seed: 3, keys: 40, keyspaces: 2, trees: None };
        let (mut model, mut again) = (Model::new(), Model::new());
        let mut sorts = [0; 4];
        for n in 0..500 {
            let id = id_of(1, 0, n);
            for (.., op) in steps(&shape, id) {
                sorts[match op {
                    Op::Put(_) => 0,
                    Op::Merge(_) => 1,
                    Op::Delete => 2,
                    Op::DeleteRange(_) => 3,
                }] += 1;
            }
            apply(&mut model, &shape, id);
            apply(&mut again, &shape, id);
            again = if n % 50 == 0 { model.clone() } else { again };
        }
        assert!(sorts.iter().all(|n| *n > 30), "{sorts:?}");
        assert!(model.keys().any(|(keyspace, _)| *keyspace == 2), "nothing in the last keyspace");
        assert_eq!(counters(&model).len(), 1);
    }
}
