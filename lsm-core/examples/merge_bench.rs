//! Nanoseconds an entry of the merge and of the iterators above it, over vectors in memory:
//! `cargo run --release -p dialsm-core --example merge_bench`. For tuning; not a test.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a program around the engine: it has its own clock, threads and arguments"
)]

use std::sync::Arc;
use std::time::Instant;

use dialsm_core::Result;
use dialsm_core::compaction::CompactionIter;
use dialsm_core::key::{Comparator, Kind, internal_key};
use dialsm_core::read::db_iter::DbIter;
use dialsm_core::read::internal::InternalIter;
use dialsm_core::read::merging_iter::MergingIter;

const ENTRIES: usize = 1_000_000;
const CHILDREN: usize = 8;

type Entries = Arc<Vec<[u8; 24]>>;

/// A sorted vector of 16-byte user keys with trailers; values are the keys.
struct VecIter(Entries, usize);

impl VecIter {
    fn to(&mut self, at: usize) -> Result<()> {
        self.1 = at.min(self.0.len());
        Ok(())
    }
    fn below(&self, target: &[u8], inclusive: bool) -> usize {
        self.0.partition_point(|key| {
            let order = Comparator::Bytewise.compare_internal(key, target);
            order.is_lt() || (inclusive && order.is_eq())
        })
    }
}

impl InternalIter for VecIter {
    fn valid(&self) -> bool {
        self.1 < self.0.len()
    }
    fn seek_to_first(&mut self) -> Result<()> {
        self.to(0)
    }
    fn seek_to_last(&mut self) -> Result<()> {
        self.to(self.0.len().wrapping_sub(1))
    }
    fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.to(self.below(target, false))
    }
    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        self.to(self.below(target, true).wrapping_sub(1))
    }
    fn next(&mut self) -> Result<()> {
        self.to(self.1 + 1)
    }
    fn prev(&mut self) -> Result<()> {
        self.to(self.1.wrapping_sub(1))
    }
    fn key(&self) -> &[u8] {
        &self.0[self.1]
    }
    fn value(&self) -> &[u8] {
        &self.0[self.1]
    }
}

/// The same keys dealt to the children by `child_of`; `shared` puts 8 equal bytes first, so that
/// prefixes decide nothing.
fn children(child_of: impl Fn(usize) -> usize, shared: bool) -> Vec<Entries> {
    let mut out = vec![Vec::new(); CHILDREN];
    for i in 0..ENTRIES {
        let mut user = [b'0'; 16];
        let at = if shared { 8 } else { 0 };
        user[at..at + 8].copy_from_slice(&(i as u64).to_be_bytes());
        let key = internal_key(&user, 1 + i as u64, Kind::Put as u8);
        out[child_of(i)].push(key.try_into().expect("16 bytes and a trailer"));
    }
    out.into_iter().map(Arc::new).collect()
}

fn merge(children: &[Entries]) -> MergingIter<Box<dyn InternalIter>> {
    let boxed = |c: &Entries| Box::new(VecIter(Arc::clone(c), 0)) as Box<dyn InternalIter>;
    MergingIter::new(Comparator::Bytewise, children.iter().map(boxed).collect())
}

fn report(what: &str, mut pass: impl FnMut() -> Result<usize>) -> Result<()> {
    let mut best = f64::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        let entries = pass()?;
        assert_eq!(entries, ENTRIES);
        best = best.min(start.elapsed().as_nanos() as f64 / entries as f64);
    }
    println!("{what:42} {best:7.1} ns/entry");
    Ok(())
}

fn main() -> Result<()> {
    let scatter = |i: usize| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % CHILDREN;
    let layouts = [
        ("random", children(scatter, false)),
        ("random, prefixes equal", children(scatter, true)),
        ("in turn", children(|i| i % CHILDREN, false)),
        ("runs of 1000", children(|i| i / 1000 % CHILDREN, false)),
        ("runs of 1000, prefixes equal", children(|i| i / 1000 % CHILDREN, true)),
        ("one child", vec![children(|_| 0, false).swap_remove(0)]),
    ];
    for (name, children) in &layouts {
        let mut iter = merge(children);
        report(&format!("merge forward, {name}"), || {
            let mut n = 0;
            iter.seek_to_first()?;
            while iter.valid() {
                n += 1;
                iter.next()?;
            }
            Ok(n)
        })?;
    }
    let (_, children) = &layouts[0];
    let mut iter = DbIter::new(merge(children), Comparator::Bytewise, u64::MAX >> 8, None, None);
    report("user iterator forward, random", || {
        let mut n = 0;
        iter.seek_to_first()?;
        while iter.valid() {
            n += 1;
            iter.next()?;
        }
        Ok(n)
    })?;
    report("user iterator backward, random", || {
        let mut n = 0;
        iter.seek_to_last()?;
        while iter.valid() {
            n += 1;
            iter.prev()?;
        }
        Ok(n)
    })?;
    let snapshots = vec![u64::MAX >> 8];
    let mut iter = CompactionIter::new(merge(children), Comparator::Bytewise, snapshots, true, |_| false);
    report("compaction filter, random, zeroing", || {
        let mut n = 0;
        iter.start(None, None)?;
        while iter.valid() {
            n += 1;
            iter.next()?;
        }
        Ok(n)
    })
}
