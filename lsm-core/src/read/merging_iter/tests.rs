use super::*;
use crate::key::{Kind, internal_key};
use crate::read::testing::{Entry, Rng, VecIter, entry, walk};

fn merge(children: Vec<VecIter>) -> MergingIter<VecIter> {
    MergingIter::new(Comparator::Bytewise, children)
}

#[test]
fn random_walk_beside_a_model() {
    let mut rng = Rng(7);
    let mut turns = 0;
    for round in 0..60 {
        let n = (round % 9) as usize;
        let mut children: Vec<Vec<Entry>> = vec![Vec::new(); n];
        let mut model: Vec<(usize, Entry)> = Vec::new();
        for _ in 0..rng.below(60) {
            // Few keys and sequences, so that the same entry often lies in several children.
            let e = entry(&[b'b' + rng.below(5) as u8], rng.below(25), Kind::Put as u8);
            if n == 0 {
                continue;
            }
            let child = rng.below(n as u64) as usize;
            if children[child].contains(&e) {
                continue;
            }
            let tagged = (e.0, format!("{}", child).into_bytes());
            if !children[child].iter().any(|o| o.0 == tagged.0) {
                children[child].push(tagged.clone());
                model.push((child, tagged));
            }
        }
        model.sort_by(|a, b| Comparator::Bytewise.compare_internal(&a.1.0, &b.1.0).then(a.0.cmp(&b.0)));
        let mut model: Vec<Entry> = model.into_iter().map(|(_, e)| e).collect();
        // The walk's seeks land on the first (or last) of equal keys, as the model's do.
        let mut iter = merge(children.into_iter().map(VecIter::new).collect());
        turns += walk(&mut iter, &model, 1500, &mut rng);
        model.clear();
    }
    assert!(turns > 3000, "only {turns} turns were driven");
}

#[test]
fn long_runs_and_alternation_give_the_same_stream() {
    // Runs of every length out of 5 children, then one entry each in turn.
    let mut children: Vec<Vec<Entry>> = vec![Vec::new(); 5];
    let mut want = Vec::new();
    for i in 0..2000u32 {
        let child = if i < 1000 { (i / 37) as usize % 5 } else { i as usize % 5 };
        let e = entry(&i.to_be_bytes(), 1, Kind::Put as u8);
        children[child].push(e.clone());
        want.push(e.0);
    }
    let mut iter = merge(children.into_iter().map(VecIter::new).collect());
    iter.seek_to_first().expect("no fault");
    let mut got = Vec::new();
    while iter.valid() {
        got.push(iter.key().to_vec());
        iter.next().expect("no fault");
    }
    assert_eq!(got, want);
    iter.seek_to_last().expect("no fault");
    while iter.valid() {
        assert_eq!(iter.key(), got.pop().expect("as many backward as forward"));
        iter.prev().expect("no fault");
    }
    assert!(got.is_empty());
}

#[test]
fn b003_child_error_is_not_an_end() {
    for fail_at in 0..20 {
        for backward in [false, true] {
            let mut bad = VecIter::new((0..20u8).map(|i| entry(&[2 * i], 1, 7)).collect());
            bad.fail_at = Some(fail_at);
            let good = VecIter::new((0..20u8).map(|i| entry(&[2 * i + 1], 1, 7)).collect());
            let mut iter = merge(vec![good, bad]);
            let mut seen = 0;
            let mut moved = if backward { iter.seek_to_last() } else { iter.seek_to_first() };
            while moved.is_ok() && iter.valid() {
                seen += 1;
                moved = if backward { iter.prev() } else { iter.next() };
            }
            assert_eq!(moved.expect_err("the scan must not end quietly").kind(), ErrorKind::Io);
            assert!(!iter.valid() && seen < 40);
            assert!(iter.next().is_err(), "a failed merge must not look like an end");
            // Positioning may be tried again.
            iter.children[1].fail_at = None;
            iter.seek_to_first().expect("no fault any more");
            assert!(iter.valid());
        }
    }
}

#[test]
fn b003_error_while_turning() {
    let mut iter = merge(vec![
        VecIter::new(vec![entry(b"b", 1, 7), entry(b"d", 1, 7)]),
        VecIter::new(vec![entry(b"a", 1, 7), entry(b"c", 1, 7)]),
    ]);
    iter.seek(&internal_key(b"b", 1, 7)).expect("no fault");
    iter.children[1].fail_at = Some(0);
    assert!(iter.prev().is_err());
    assert!(!iter.valid());
}

#[test]
fn no_children_and_empty_children_are_empty() {
    for n in 0..4 {
        let mut iter = merge((0..n).map(|_| VecIter::new(Vec::new())).collect());
        iter.seek_to_first().expect("no fault");
        assert!(!iter.valid());
        iter.seek_to_last().expect("no fault");
        assert!(!iter.valid());
        iter.seek(&internal_key(b"a", 1, 7)).expect("no fault");
        assert!(!iter.valid());
    }
}

#[test]
fn wide_prefixes_never_contradict_the_order() {
    let mut rng = Rng(17);
    let mut decided = 0;
    for comparator in [Comparator::Bytewise, Comparator::ReverseBytewise] {
        for _ in 0..4000 {
            let mut key =
                || (0..rng.below(20)).map(|i| if i < 7 { b'u' } else { rng.below(3) as u8 }).collect();
            let (a, b): (Vec<u8>, Vec<u8>) = (key(), key());
            match wide_prefix(&comparator, &a).cmp(&wide_prefix(&comparator, &b)) {
                Ordering::Equal => {}
                unequal => {
                    decided += 1;
                    assert_eq!(unequal, comparator.compare(&a, &b), "{a:?} {b:?}");
                }
            }
        }
    }
    assert!(decided > 4000);
}

mod range_dels;
