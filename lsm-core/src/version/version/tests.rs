use super::*;
use crate::key::{Kind, internal_key, range_end};
use crate::read::testing::Rng;
use crate::version::TableMeta;

fn file(number: u64, epoch: u64, lo: &[u8], hi: &[u8]) -> Arc<TableFile> {
    let meta = TableMeta {
        number: FileNumber(number),
        epoch,
        file_bytes: 100,
        smallest: internal_key(lo, 9, Kind::Put as u8),
        largest: internal_key(hi, 3, Kind::Put as u8),
        ..TableMeta::default()
    };
    TableFile::new(&Comparator::Bytewise, meta)
}

fn refused(v: &Version, removed: &[Removed], added: &[(u8, Arc<TableFile>)]) -> String {
    v.apply(removed, added).map(|_| ()).expect_err("must be refused").message().to_owned()
}

#[test]
fn apply_sorts_moves_and_refuses() {
    let empty = Version::empty(Comparator::Bytewise);
    let v = empty
        .apply(
            &[],
            &[
                (0, file(1, 1, b"a", b"z")),
                (0, file(2, 5, b"a", b"b")),
                (3, file(4, 0, b"m", b"p")),
                (3, file(3, 0, b"a", b"c")),
            ],
        )
        .expect("a legal edit");
    v.check_invariants().expect("legal");
    assert_eq!(v.l0().iter().map(|f| f.number().0).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(v.level(3).iter().map(|f| f.number().0).collect::<Vec<_>>(), [3, 4]);
    assert_eq!((v.level_bytes(0), v.level_bytes(3), v.level_bytes(4)), (200, 200, 0));

    // A move is a removal and an addition of the same file.
    let moved = v.apply(&[(3, FileNumber(4))], &[(4, Arc::clone(&v.level(3)[1]))]).expect("a move");
    assert_eq!((moved.level(3).len(), moved.level(4).len()), (1, 1));

    assert!(refused(&v, &[(3, FileNumber(2))], &[]).contains("not on L3"));
    assert!(refused(&v, &[(7, FileNumber(2))], &[]).contains("level 7"));
    assert!(refused(&v, &[], &[(0, file(9, 5, b"a", b"b"))]).contains("share an epoch"));
    // Touching in one user key is overlap: a key must not straddle two tables.
    assert!(refused(&v, &[], &[(3, file(9, 0, b"c", b"d"))]).contains("overlap on L3"));
    assert!(refused(&v, &[], &[(5, file(9, 0, b"d", b"c"))]).contains("ends before"));
    assert!(refused(&v, &[], &[(5, file(4, 0, b"a", b"c"))]).contains("twice"));
    assert_eq!(v.level(3).len(), 2, "a refused edit changes nothing");
    assert!(format!("{moved:?}").contains("L4: 1 files"));
}

#[test]
fn searches_agree_with_a_scan() {
    let mut rng = Rng(3);
    let (mut hits, mut touching) = (0, 0);
    for comparator in [Comparator::Bytewise, Comparator::ReverseBytewise] {
        for _ in 0..200 {
            // Keys that share their first 8 bytes, so that prefixes tie.
            let key = |rng: &mut Rng| {
                let mut k = if rng.below(2) == 0 { b"samesame".to_vec() } else { Vec::new() };
                k.extend((0..rng.below(3)).map(|_| b'a' + rng.below(4) as u8));
                k
            };
            let mut keys: Vec<Vec<u8>> = (0..rng.below(24)).map(|_| key(&mut rng)).collect();
            keys.sort_by(|a, b| comparator.compare(a, b));
            keys.dedup();
            let (mut files, mut at) = (Vec::new(), 0);
            while at + 1 < keys.len() {
                // Some end with a range tombstone; the next table may start just there.
                let exclusive = rng.below(2) == 0;
                let largest =
                    if exclusive { range_end(&keys[at + 1]) } else { internal_key(&keys[at + 1], 3, 7) };
                let meta = TableMeta {
                    number: FileNumber(files.len() as u64 + 1),
                    smallest: internal_key(&keys[at], 9, 7),
                    largest,
                    ..TableMeta::default()
                };
                files.push((2u8, TableFile::new(&comparator, meta)));
                let touches = exclusive && rng.below(2) == 0;
                touching += u64::from(touches && at + 2 < keys.len());
                at += if touches { 1 } else { 2 };
            }
            let v = Version::empty(comparator.clone()).apply(&[], &files).expect("disjoint");
            for _ in 0..20 {
                let (x, y) = (key(&mut rng), key(&mut rng));
                let holds = |f: &&Arc<TableFile>| f.spans(&comparator, &x);
                let want = v.level(2).iter().find(holds).map(|f| f.number());
                assert_eq!(v.find_table(2, &x).map(|f| f.number()), want);
                hits += usize::from(want.is_some());
                let (lo, hi) = if comparator.compare(&x, &y).is_le() { (x, y) } else { (y, x) };
                let got: Vec<_> = v.overlapping(2, Some(&lo), Some(&hi)).iter().map(|f| f.number()).collect();
                let meets = |f: &&Arc<TableFile>| f.overlaps(&comparator, &lo, KeyEnd::at(&hi));
                let want: Vec<_> = v.level(2).iter().filter(meets).map(|f| f.number()).collect();
                assert_eq!(got, want);
                let end = KeyEnd { key: &hi, inclusive: false };
                let got: Vec<_> = v.meeting(2, Some(&lo), Some(end)).iter().map(|f| f.number()).collect();
                let meets = |f: &&Arc<TableFile>| f.overlaps(&comparator, &lo, end);
                let want: Vec<_> = v.level(2).iter().filter(meets).map(|f| f.number()).collect();
                assert!(got == want || lo == hi);
                assert!(v.overlapping(2, Some(&hi), Some(&lo)).len() <= 1 || lo == hi);
            }
        }
    }
    assert!(hits > 1000 && touching > 200, "only {hits} searches hit, {touching} tables touch");
}

#[test]
fn a_tombstones_end_is_not_in_its_table() {
    let c = Comparator::Bytewise;
    let touching = |number, lo: &[u8], hi: &[u8]| {
        let meta = TableMeta {
            number: FileNumber(number),
            smallest: internal_key(lo, 9, Kind::RangeDelete as u8),
            largest: range_end(hi),
            range_deletes: 1,
            ..TableMeta::default()
        };
        TableFile::new(&c, meta)
    };
    let v = Version::empty(c.clone())
        .apply(
            &[],
            &[(3, touching(1, b"a", b"f")), (3, touching(2, b"f", b"m")), (3, file(3, 0, b"m", b"p"))],
        )
        .expect("they only touch");
    let found = |key: &[u8]| v.find_table(3, key).map(|f| f.number().0);
    assert_eq!([found(b"a"), found(b"e"), found(b"f"), found(b"lz")], [Some(1), Some(1), Some(2), Some(2)]);
    assert_eq!([found(b"m"), found(b"p"), found(b"q")], [Some(3), Some(3), None]);
    assert_eq!(v.level(3).with_range_deletes().len(), 2);
    assert!(!v.level(3)[0].meets(&c, &v.level(3)[1]) && !v.level(3)[1].meets(&c, &v.level(3)[2]));
    assert!(touching(9, b"a", b"g").meets(&c, &v.level(3)[1]));
    assert!(refused(&v, &[], &[(3, touching(9, b"0", b"a\0"))]).contains("overlap on L3"));
    v.apply(&[], &[(3, touching(9, b"0", b"a"))]).expect("touches the first");
}
