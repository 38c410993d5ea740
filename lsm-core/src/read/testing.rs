//! Doubles for the tests of the read path: vector-backed children that can fail, a small
//! generator of numbers, and a walk that checks an [`InternalIter`] beside a sorted vector.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::key::{Comparator, Kind, internal_key};
use crate::read::internal::InternalIter;
use crate::types::FileNumber;
use crate::version::{Level, TableFile, TableMeta, Version};
use crate::{Error, ErrorKind, Result};

/// SplitMix64: the same seed, the same numbers.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which must not be 0.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

pub(crate) type Entry = (Vec<u8>, Vec<u8>);

/// An entry whose value tells key, sequence and source apart.
pub(crate) fn entry(user_key: &[u8], seqno: u64, kind: u8) -> Entry {
    let mut value = user_key.to_vec();
    value.extend_from_slice(format!("@{seqno}").as_bytes());
    (internal_key(user_key, seqno, kind), value)
}

/// A child over a sorted vector. `fail_at`: reading that entry fails, every time.
pub(crate) struct VecIter {
    comparator: Comparator,
    entries: Vec<Entry>,
    at: usize,
    pub(crate) fail_at: Option<usize>,
}

impl VecIter {
    pub(crate) fn new(mut entries: Vec<Entry>) -> VecIter {
        let comparator = Comparator::Bytewise;
        entries.sort_by(|a, b| comparator.compare_internal(&a.0, &b.0));
        let at = entries.len();
        VecIter { comparator, entries, at, fail_at: None }
    }

    fn to(&mut self, at: usize) -> Result<()> {
        if self.fail_at == Some(at) && at < self.entries.len() {
            self.at = self.entries.len();
            return Err(Error::new(ErrorKind::Io, "injected"));
        }
        self.at = at.min(self.entries.len());
        Ok(())
    }
}

impl InternalIter for VecIter {
    fn valid(&self) -> bool {
        self.at < self.entries.len()
    }
    fn seek_to_first(&mut self) -> Result<()> {
        self.to(0)
    }
    fn seek_to_last(&mut self) -> Result<()> {
        self.to(self.entries.len().wrapping_sub(1))
    }
    fn seek(&mut self, target: &[u8]) -> Result<()> {
        let c = &self.comparator;
        self.to(self.entries.partition_point(|e| c.compare_internal(&e.0, target).is_lt()))
    }
    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        let c = &self.comparator;
        self.to(self.entries.partition_point(|e| c.compare_internal(&e.0, target).is_le()).wrapping_sub(1))
    }
    fn next(&mut self) -> Result<()> {
        assert!(self.valid(), "moved while invalid");
        self.to(self.at + 1)
    }
    fn prev(&mut self) -> Result<()> {
        assert!(self.valid(), "moved while invalid");
        self.to(self.at.wrapping_sub(1))
    }
    fn key(&self) -> &[u8] {
        &self.entries[self.at].0
    }
    fn value(&self) -> &[u8] {
        &self.entries[self.at].1
    }
}

/// Walks `iter` at random beside `model` (sorted); returns the number of turns made.
pub(crate) fn walk(iter: &mut dyn InternalIter, model: &[Entry], steps: usize, rng: &mut Rng) -> usize {
    let c = Comparator::Bytewise;
    let mut at: Option<usize> = None;
    let (mut turns, mut forward) = (0, true);
    for step in 0..steps {
        let turned = |to: bool, forward: &mut bool| usize::from(std::mem::replace(forward, to) != to);
        match rng.below(40) {
            0 => {
                iter.seek_to_first().expect("no fault");
                at = (!model.is_empty()).then_some(0);
                forward = true;
            }
            1 => {
                iter.seek_to_last().expect("no fault");
                at = model.len().checked_sub(1);
                forward = false;
            }
            2..6 => {
                let target = internal_key(&[b'a' + rng.below(8) as u8], rng.below(30), rng.below(13) as u8);
                let back = rng.below(2) == 0;
                if back {
                    iter.seek_for_prev(&target).expect("no fault");
                    at = model.partition_point(|e| c.compare_internal(&e.0, &target).is_le()).checked_sub(1);
                } else {
                    iter.seek(&target).expect("no fault");
                    let found = model.partition_point(|e| c.compare_internal(&e.0, &target).is_lt());
                    at = (found < model.len()).then_some(found);
                }
                forward = !back;
            }
            n => {
                let Some(here) = at else { continue };
                // Runs in one direction, so that the runner-up is used too.
                let go_forward = if n < 34 { forward } else { n % 2 == 0 };
                turns += turned(go_forward, &mut forward);
                if go_forward {
                    iter.next().expect("no fault");
                    at = (here + 1 < model.len()).then_some(here + 1);
                } else {
                    iter.prev().expect("no fault");
                    at = here.checked_sub(1);
                }
            }
        }
        assert_eq!(iter.valid(), at.is_some(), "step {step}");
        if let Some(at) = at {
            assert_eq!((iter.key(), iter.value()), (&model[at].0[..], &model[at].1[..]), "step {step}");
        }
    }
    turns
}

/// A level made of these tables, and their entries by file number.
pub(crate) fn level_of(tables: &[Vec<Entry>]) -> (Arc<Level>, BTreeMap<u64, Vec<Entry>>) {
    let c = Comparator::Bytewise;
    let mut contents = BTreeMap::new();
    let mut added = Vec::new();
    for (i, table) in tables.iter().enumerate() {
        let number = i as u64 + 1;
        let meta = TableMeta {
            number: FileNumber(number),
            smallest: table.first().expect("not empty").0.clone(),
            largest: table.last().expect("not empty").0.clone(),
            ..TableMeta::default()
        };
        added.push((1, TableFile::new(&c, meta)));
        contents.insert(number, table.clone());
    }
    let version = Version::empty(c).apply(&[], &added).expect("disjoint tables");
    (Arc::clone(version.level(1)), contents)
}

/// Sorted entries cut into tables between user keys.
pub(crate) fn random_tables(rng: &mut Rng) -> Vec<Vec<Entry>> {
    let mut tables: Vec<Vec<Entry>> = Vec::new();
    for key in b'b'..b'h' {
        let mut seqnos: Vec<u64> = (0..rng.below(4)).map(|_| rng.below(25)).collect();
        seqnos.sort_unstable_by(|a, b| b.cmp(a));
        seqnos.dedup();
        let versions: Vec<Entry> = seqnos.iter().map(|&s| entry(&[key], s, Kind::Put as u8)).collect();
        match tables.last_mut() {
            _ if versions.is_empty() => {}
            Some(last) if rng.below(2) == 0 => last.extend(versions),
            _ => tables.push(versions),
        }
    }
    tables
}
