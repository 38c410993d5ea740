use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::key::internal_key;
use crate::read::testing::{Entry, Rng, VecIter, entry, level_of, random_tables, walk};

#[test]
fn random_walk_over_tables_and_bounds() {
    let mut rng = Rng(11);
    let (mut turns, mut pruned) = (0, 0);
    for _ in 0..150 {
        let tables = random_tables(&mut rng);
        let (level, contents) = level_of(&tables);
        let lower = (rng.below(2) == 0).then(|| vec![b'a' + rng.below(9) as u8]);
        let upper = (rng.below(2) == 0).then(|| vec![b'a' + rng.below(9) as u8]);
        let kept: Vec<&Vec<Entry>> = tables
            .iter()
            .filter(|t| lower.as_deref().is_none_or(|lo| user_key(&t[t.len() - 1].0) >= lo))
            .filter(|t| upper.as_deref().is_none_or(|hi| user_key(&t[0].0) < hi))
            .collect();
        pruned += tables.len() - kept.len();
        let model: Vec<Entry> = kept.into_iter().flatten().cloned().collect();
        let open = |f: &Arc<TableFile>| Ok(VecIter::new(contents[&f.number().0].clone()));
        let mut iter = LevelIter::new(Comparator::Bytewise, level, lower.as_deref(), upper.as_deref(), open);
        turns += walk(&mut iter, &model, 1000, &mut rng);
    }
    assert!(turns > 3000 && pruned > 40, "{turns} turns, {pruned} tables pruned");
}

#[test]
fn tables_open_late_and_once_and_their_errors_are_not_ends() {
    let tables: Vec<Vec<Entry>> = (b'a'..b'e').map(|k| vec![entry(&[k], 1, 7)]).collect();
    let (level, contents) = level_of(&tables);
    let opened = AtomicUsize::new(0);
    let broken = AtomicUsize::new(0);
    let open = |f: &Arc<TableFile>| {
        opened.fetch_add(1, Ordering::Relaxed);
        if f.number().0 as usize == broken.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Io, "injected"));
        }
        Ok(VecIter::new(contents[&f.number().0].clone()))
    };
    let mut iter = LevelIter::new(Comparator::Bytewise, level, None, None, open);
    assert_eq!(opened.load(Ordering::Relaxed), 0);
    iter.seek(&internal_key(b"c", 5, 7)).expect("no fault");
    iter.seek(&internal_key(b"c", 1, 7)).expect("no fault");
    assert_eq!((iter.key(), opened.load(Ordering::Relaxed)), (&tables[2][0].0[..], 1));

    broken.store(4, Ordering::Relaxed);
    assert_eq!(iter.next().expect_err("table 4 is broken").kind(), ErrorKind::Io);
    assert!(!iter.valid() && iter.next().is_err());
    iter.seek_to_first().expect("table 1 is sound");
    broken.store(0, Ordering::Relaxed);
    for table in &tables {
        assert_eq!(iter.key(), table[0].0);
        iter.next().expect("no fault any more");
    }
    assert!(!iter.valid());
}

#[test]
fn an_empty_level_is_empty() {
    let (level, _) = level_of(&[]);
    let open = |_: &Arc<TableFile>| -> Result<VecIter> { Err(Error::invalid("there is no table")) };
    let mut iter = LevelIter::new(Comparator::Bytewise, level, None, Some(b"x"), open);
    iter.seek_to_first().expect("empty");
    assert!(!iter.valid());
    iter.seek_to_last().expect("empty");
    assert!(!iter.valid());
    iter.seek_for_prev(&internal_key(b"c", 1, 7)).expect("empty");
    assert!(!iter.valid());
}
