//! Reads, bounds, snapshots and tombstones.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dialsm_core::{
    CompactRangeOptions, Db, DbIterator, ErrorKind, Options, ReadOptions, Snapshot, WriteOptions,
};
use dialsm_io::{Fault, FaultFs, Fs, OpKind, Rule, SimFs};

use crate::hostile::{
    DIR, Model, Rng, by_hand, contents, env_on, fs_of, get, image_of, open_on, put, read_file, scan, tiny,
};

fn on_sim(options: &Options) -> Db {
    open_on(SimFs::new(1), options).expect("open")
}

/// One entry a block.
fn one_entry_blocks() -> Options {
    Options { block_bytes: 64, block_restart_interval: 1, ..by_hand() }
}

fn compact_to(db: &Db, level: u8) {
    let options = CompactRangeOptions { target_level: Some(level), ..Default::default() };
    db.compact_range(&options, None, None).expect("compact");
}

fn bounded(lower: Option<&[u8]>, upper: Option<&[u8]>) -> ReadOptions {
    ReadOptions {
        lower_bound: lower.map(<[u8]>::to_vec),
        upper_bound: upper.map(<[u8]>::to_vec),
        ..ReadOptions::default()
    }
}

fn key_of(iter: &DbIterator) -> Option<Vec<u8>> {
    iter.valid().then(|| iter.key().to_vec())
}

/// How data lies: in the memtable, in one table, one key a table over the levels.
fn layouts(keys: &[&[u8]]) -> Vec<Db> {
    (0..3)
        .map(|layout| {
            let db = on_sim(&one_entry_blocks());
            for (i, key) in keys.iter().enumerate() {
                put(&db, key, key);
                if layout == 2 {
                    compact_to(&db, 6 - (i % 5) as u8);
                }
            }
            if layout == 1 {
                db.flush().expect("flush");
            }
            db
        })
        .collect()
}

/// Each key with older versions below it, one level each, and between any two keys deleted ones.
fn layered(keys: &[&[u8]]) -> Db {
    let db = on_sim(&one_entry_blocks());
    for (round, level) in [Some(6), Some(4), Some(2), None].into_iter().enumerate() {
        for key in keys {
            let gone = [key, &b"x"[..]].concat();
            if round == 3 {
                put(&db, key, key);
                db.delete(&WriteOptions::default(), &gone).expect("delete");
            } else {
                put(&db, key, b"an older version");
                put(&db, &gone, b"to be deleted");
            }
        }
        level.iter().for_each(|level| compact_to(&db, *level));
    }
    db
}

#[test]
fn b001_turning_round_under_bounds() {
    for db in layouts(&[b"k08", b"k11"]) {
        let mut iter = db.iter(&bounded(Some(b"k00"), Some(b"k09"))).expect("iter");
        iter.seek_to_first().expect("first");
        assert_eq!(key_of(&iter).as_deref(), Some(&b"k08"[..]));
        iter.next().expect("next");
        assert!(!iter.valid());
        iter.seek_to_last().expect("last");
        assert_eq!(key_of(&iter).as_deref(), Some(&b"k08"[..]));
        iter.next().expect("next");
        assert!(!iter.valid());
        iter.seek_to_last().expect("last");
        assert_eq!(key_of(&iter).as_deref(), Some(&b"k08"[..]));
        iter.prev().expect("prev");
        assert!(!iter.valid());
    }
    let alphabet: [&[u8]; 8] = [b"k00", b"k03", b"k05", b"k08", b"k11", b"k13", b"k20", b"k99"];
    let mut moves = 0;
    let mut all = layouts(&alphabet[1..7]);
    all.push(layered(&alphabet[1..7]));
    for (seed, db) in all.into_iter().enumerate() {
        let mut rng = Rng(seed as u64);
        for _ in 0..400 {
            let mut pick = || alphabet[rng.below(8) as usize];
            let (lower, upper) = (pick(), pick());
            let keys: Vec<&[u8]> =
                alphabet[1..7].iter().copied().filter(|k| *k >= lower && *k < upper).collect();
            let mut iter = db.iter(&bounded(Some(lower), Some(upper))).expect("iter");
            let mut at: Option<usize> = None;
            for _ in 0..100 {
                let target = alphabet[rng.below(8) as usize];
                // In the last one nothing lies below the first key, not even what was deleted.
                if rng.below(8) == 0 && (seed < 3 || target != alphabet[0]) {
                    // The memtable grows under the iterator, which must not see it, nor be led astray.
                    put(&db, target, target);
                    db.delete(&WriteOptions::default(), &[target, b"~"].concat()).expect("delete");
                    if !alphabet[1..7].contains(&target) {
                        db.delete(&WriteOptions::default(), target).expect("delete");
                    }
                }
                match rng.below(6) {
                    0 => {
                        iter.seek_to_first().expect("first");
                        at = (!keys.is_empty()).then_some(0);
                    }
                    1 => {
                        iter.seek_to_last().expect("last");
                        at = keys.len().checked_sub(1);
                    }
                    2 => {
                        iter.seek(target).expect("seek");
                        at = keys.iter().position(|k| *k >= target);
                    }
                    3 => {
                        iter.seek_for_prev(target).expect("seek_for_prev");
                        at = keys.iter().rposition(|k| *k <= target);
                    }
                    4 if at.is_some() => {
                        iter.next().expect("next");
                        at = at.map(|i| i + 1).filter(|i| *i < keys.len());
                    }
                    5 if at.is_some() => {
                        iter.prev().expect("prev");
                        at = at.and_then(|i| i.checked_sub(1));
                    }
                    _ => continue,
                }
                assert_eq!(key_of(&iter).as_deref(), at.map(|i| keys[i]));
                assert!(at.is_none_or(|i| iter.value() == keys[i]));
                moves += 1;
            }
        }
    }
    println!("{moves} moves");
    assert!(moves > 100_000);
}

#[test]
fn b003_a_bad_block_is_an_error_and_not_the_end() {
    // Both in L0; each in a level of its own, the bad one above or below the other.
    [[0, 0], [6, 5], [6, 3]].into_iter().for_each(bad_block_in);
}

fn bad_block_in(levels: [u8; 2]) {
    let fs = SimFs::new(1);
    let db = open_on(fs.clone(), &by_hand()).expect("open");
    for parity in 0..2u32 {
        (0..200u32).for_each(|i| put(&db, &(2 * i + parity).to_be_bytes(), &[parity as u8; 40]));
        match levels[parity as usize] {
            0 => db.flush().expect("flush"),
            level => compact_to(&db, level),
        }
    }
    let model = contents(&db);
    drop(db);
    let image = image_of(fs.as_ref(), Path::new(DIR));
    let mut tables = image.keys().filter(|name| name.ends_with(".sst"));
    let table = if levels[1] == 3 { tables.next_back() } else { tables.next() }.expect("a table");
    let flip = |fs: &dyn Fs| {
        let path = Path::new(DIR).join(table);
        let mut bytes = read_file(fs, &path);
        let middle = bytes.len() / 3;
        bytes[middle] ^= 0x10;
        crate::hostile::write_file(fs, &path, &bytes);
    };
    for injected in [false, true] {
        let sim = fs_of(&image);
        let fs = FaultFs::new(sim.clone());
        let db = Db::open(env_on(fs.clone()), Path::new(DIR), by_hand()).expect("open");
        // Without its index the table could not be opened at all, which is another case.
        assert_eq!(get(&db, &0u32.to_be_bytes()), Some(vec![0; 40]));
        assert_eq!(get(&db, &1u32.to_be_bytes()), Some(vec![1; 40]));
        let tables_before = image_of(sim.as_ref(), Path::new(DIR));
        let kind = match injected {
            true => {
                fs.add(Rule::every(OpKind::Read, Fault::Errno(libc::EIO)).on(table));
                ErrorKind::Io
            }
            false => {
                let path = Path::new(DIR).join(table);
                let file = sim.open(&path, dialsm_io::Access::ReadWrite).expect("open");
                let at = image[table].len() as u64 / 3;
                file.write_at(&[!image[table][at as usize]], at).expect("write");
                ErrorKind::Corruption
            }
        };
        assert_eq!(crate::hostile::kind_of(scan(&db, &ReadOptions::default())), kind);
        let mut iter = db.iter(&ReadOptions::default()).expect("iter");
        let mut walked = iter.seek_to_last();
        while walked.is_ok() && iter.valid() {
            walked = iter.prev();
        }
        assert_eq!(walked.expect_err("not the end").kind(), kind);
        assert!(!iter.valid());
        let keys: Vec<&[u8]> = model.keys().map(Vec::as_slice).collect();
        assert_eq!(crate::hostile::kind_of(db.multi_get(&ReadOptions::default(), &keys)), kind);
        let absent =
            keys.iter().filter(|key| matches!(db.get(&ReadOptions::default(), key), Ok(None))).count();
        assert_eq!(absent, 0, "an unreadable key is not a missing one");
        let compacted = db.compact_range(&CompactRangeOptions::default(), None, None);
        assert_eq!(crate::hostile::kind_of(compacted), kind);
        let tables = |image: &crate::hostile::Image| -> Vec<String> {
            image.keys().filter(|name| name.ends_with(".sst")).cloned().collect()
        };
        let after = image_of(sim.as_ref(), Path::new(DIR));
        assert_eq!(tables(&after), tables(&tables_before), "inputs stay, outputs go");
        fs.clear();
        crate::hostile::write_file(sim.as_ref(), &Path::new(DIR).join(table), &image[table]);
        drop((iter, db));
        let db = open_on(sim, &by_hand()).expect("open");
        assert!(contents(&db) == model && model.len() == 400);
    }
    // Also where it was bad before the opening.
    let sim = fs_of(&image);
    flip(sim.as_ref());
    let db = open_on(sim, &by_hand()).expect("open");
    assert_eq!(crate::hostile::kind_of(scan(&db, &ReadOptions::default())), ErrorKind::Corruption);
}

#[test]
fn b005_empty_and_inverted_ranges() {
    let ranges: [(&[u8], &[u8]); 7] = [
        (b"key01", b"key01"),
        (b"key00\0", b"key11"),
        (b"key01", b"key02"),
        (b"key05", b"key05"),
        (b"key11", b"key00"),
        (b"z", b"a"),
        (b"", b""),
    ];
    for db in layouts(&[b"key00", b"key11"]) {
        for (lower, upper) in ranges {
            let options = bounded(Some(lower), Some(upper));
            assert_eq!(scan(&db, &options).expect("scan"), [], "{lower:?}..{upper:?}");
            let mut iter = db.iter(&options).expect("iter");
            for target in [&b""[..], b"key00", b"key05", b"key11", b"zz"] {
                iter.seek(target).expect("seek");
                assert!(!iter.valid());
                iter.seek_for_prev(target).expect("seek_for_prev");
                assert!(!iter.valid());
            }
        }
        assert_eq!(scan(&db, &bounded(None, Some(b""))).expect("scan"), []);
        assert_eq!(scan(&db, &bounded(Some(b"key00"), None)).expect("scan").len(), 2);
        // Writers just outside the range.
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let (db, stop) = (db.clone(), stop.clone());
                std::thread::spawn(move || {
                    while !stop.load(Ordering::Acquire) {
                        put(&db, [&b"key00"[..], b"key02"][writer], b"again");
                    }
                })
            })
            .collect();
        for _ in 0..1000 {
            assert_eq!(scan(&db, &bounded(Some(b"key00\0"), Some(b"key02"))).expect("scan"), []);
        }
        stop.store(true, Ordering::Release);
        writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
    }
}

#[test]
fn b009_seeks_past_the_end_leave_nothing_behind() {
    // Enough one-entry blocks for several index partitions.
    let db = on_sim(&one_entry_blocks());
    let key = |i: u32| format!("{i:05}").into_bytes();
    (0..5000).for_each(|i| put(&db, &key(i), &[b'x'; 60]));
    compact_to(&db, 6);
    let mut iter = db.iter(&ReadOptions::default()).expect("iter");
    let mut rng = Rng(9);
    for round in 0..2000 {
        iter.seek(b"zz").expect("seek");
        assert!(!iter.valid());
        let mut at = rng.below(5000) as u32;
        iter.seek(&key(at)).expect("seek");
        assert_eq!(key_of(&iter), Some(key(at)));
        iter.seek_for_prev(b"").expect("seek_for_prev");
        assert!(!iter.valid());
        at = if round % 2 == 0 { (at + rng.below(300) as u32).min(4999) } else { rng.below(5000) as u32 };
        iter.seek_for_prev(&key(at)).expect("seek_for_prev");
        for _ in 0..rng.below(8) {
            assert_eq!(key_of(&iter), Some(key(at)));
            match (rng.below(2), at) {
                (0, 1..) => {
                    iter.prev().expect("prev");
                    at -= 1;
                }
                (1, ..4999) => {
                    iter.next().expect("next");
                    at += 1;
                }
                _ => {}
            }
        }
    }
}

#[test]
fn b011_versions_of_one_key_straddle_blocks() {
    let db = on_sim(&one_entry_blocks());
    put(&db, b"j", b"before");
    put(&db, b"l", b"after");
    let mut held: Vec<(Snapshot, u8)> = Vec::new();
    for version in 1..=20u8 {
        put(&db, b"k", &[version; 80]);
        held.push((db.snapshot(), version));
        if version % 7 == 0 {
            db.flush().expect("flush");
        }
    }
    let check = |when: &str| {
        assert_eq!(get(&db, b"k"), Some(vec![20; 80]), "{when}");
        for (snapshot, version) in &held {
            let at = ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::default() };
            let found = db.get(&at, b"k").expect("get");
            assert_eq!(found.as_deref(), Some(&[*version; 80][..]), "{when}");
            let mut iter = db.iter(&at).expect("iter");
            iter.seek(b"k").expect("seek");
            assert_eq!(iter.value(), [*version; 80], "seek {when}");
            iter.seek_for_prev(b"k").expect("seek_for_prev");
            assert_eq!(iter.value(), [*version; 80], "seek_for_prev {when}");
            iter.prev().expect("prev");
            assert_eq!(iter.key(), b"j");
            let only = ReadOptions { snapshot: at.snapshot.clone(), ..bounded(Some(b"k"), Some(b"k\0")) };
            assert_eq!(scan(&db, &only).expect("scan").len(), 1, "{when}");
        }
    };
    check("in memory and level 0");
    compact_to(&db, 2);
    check("in level 2");
    db.compact_range(&CompactRangeOptions { rewrite_bottom: true, ..Default::default() }, None, None)
        .expect("compact");
    check("rewritten");
}

#[test]
fn b013_reads_while_tables_are_opened_and_evicted() {
    let options = Options { open_tables_max: 16, automatic_compaction: false, ..by_hand() };
    let db = on_sim(&options);
    for table in 0..50u32 {
        (0..20u32).for_each(|i| put(&db, &(i * 50 + table).to_be_bytes(), &[table as u8; 30]));
        db.flush().expect("flush");
    }
    assert_eq!(db.property("dialsm.num-files-at-level0").as_deref(), Some("50"));
    let readers: Vec<_> = (0..6u64)
        .map(|reader| {
            let db = db.clone();
            std::thread::spawn(move || {
                let mut rng = Rng(reader);
                for round in 0..40 {
                    if reader % 2 == 0 {
                        let found = scan(&db, &ReadOptions::default()).expect("scan").len();
                        assert_eq!(found, 1000, "round {round}");
                    } else {
                        for _ in 0..100 {
                            let key = rng.below(1000) as u32;
                            assert_eq!(get(&db, &key.to_be_bytes()), Some(vec![(key % 50) as u8; 30]));
                        }
                    }
                }
            })
        })
        .collect();
    readers.into_iter().for_each(|reader| reader.join().expect("no panic"));
}

#[test]
fn b015_paging_by_the_successor_of_a_key() {
    let keys: [&[u8]; 9] = [b"a", b"a\0", b"a\0\0", b"aa", b"ab", b"b", b"\xff", b"\xff\0", b"\xff\xff"];
    for db in layouts(&keys) {
        for page in 1..4 {
            let (mut found, mut from) = (Vec::new(), Vec::new());
            loop {
                let mut iter = db.iter(&bounded(Some(&from), None)).expect("iter");
                iter.seek_to_first().expect("first");
                let before = found.len();
                while iter.valid() && found.len() < before + page {
                    found.push(iter.key().to_vec());
                    iter.next().expect("next");
                }
                let Some(last) = found.last().filter(|_| found.len() > before) else { break };
                from = [last, &b"\0"[..]].concat();
            }
            assert_eq!(found, keys);
            // Backwards the last key itself is the exclusive bound.
            let (mut found, mut upto): (Vec<Vec<u8>>, Option<Vec<u8>>) = (Vec::new(), None);
            loop {
                let mut iter = db.iter(&bounded(None, upto.as_deref())).expect("iter");
                iter.seek_to_last().expect("last");
                let before = found.len();
                while iter.valid() && found.len() < before + page {
                    found.push(iter.key().to_vec());
                    iter.prev().expect("prev");
                }
                if found.len() == before {
                    break;
                }
                upto = found.last().cloned();
            }
            found.reverse();
            assert_eq!(found, keys);
        }
    }
}

#[test]
fn b017_deleting_while_iterating() {
    for (forward, ahead) in [(true, false), (false, false), (true, true)] {
        let db = on_sim(&tiny());
        let key = |i: u32| i.to_be_bytes();
        (0..1000).for_each(|i| put(&db, &key(i), &[1; 100]));
        db.flush().expect("flush");
        (0..1000).step_by(3).for_each(|i| put(&db, &key(i), &[2; 100]));
        let mut iter = db.iter(&ReadOptions::default()).expect("iter");
        if forward { iter.seek_to_first() } else { iter.seek_to_last() }.expect("seek");
        let mut visits = 0;
        while iter.valid() {
            visits += 1;
            let at = u32::from_be_bytes(iter.key().try_into().expect("4 bytes"));
            let victim = if ahead { (at + 1) % 1000 } else { at };
            db.delete(&WriteOptions::default(), &key(victim)).expect("delete");
            if forward { iter.next() } else { iter.prev() }.expect("step");
        }
        // An iterator shows what was there when it was made.
        assert_eq!(visits, 1000);
        drop(iter);
        assert_eq!(contents(&db).len(), 0);
    }
}

/// From here, to before there.
type Range = (Option<&'static [u8]>, Option<&'static [u8]>);

/// What says that a key is gone.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Marker {
    Delete,
    Single,
    Range,
}

impl Marker {
    fn write(self, db: &Db, key: &[u8]) {
        let options = WriteOptions::default();
        match self {
            Marker::Delete => db.delete(&options, key),
            Marker::Single => db.single_delete(&options, key),
            Marker::Range => db.delete_range(&options, key, &[key, b"\0"].concat()),
        }
        .expect("delete");
    }
}

/// The marker must not pass the value in the middle level on its way down, nor be dropped while one
/// is left below.
#[test]
fn b019_a_delete_marker_stays_above_all_it_hides() {
    [Marker::Delete, Marker::Single, Marker::Range].into_iter().for_each(marker_goes_down);
}

fn marker_goes_down(marker: Marker) {
    for steps in [vec![1, 3, 6], vec![3, 6], vec![6], vec![2, 4, 5, 6], vec![1, 6], vec![4, 6]] {
        for parts in [false, true] {
            let fs = SimFs::new(1);
            let options = one_entry_blocks();
            let db = open_on(fs.clone(), &options).expect("open");
            let around = |round: u8| {
                (0..10u8).for_each(|i| put(&db, &[b'a' + i], &[round; 50]));
                (0..10u8).for_each(|i| put(&db, &[b'p' + i], &[round; 50]));
            };
            around(1);
            put(&db, b"k", b"v1");
            compact_to(&db, 6);
            around(2);
            if marker == Marker::Single {
                // It takes away one value: the first has to be gone before the second comes.
                marker.write(&db, b"k");
            }
            put(&db, b"k", b"v2");
            compact_to(&db, 3);
            marker.write(&db, b"k");
            db.flush().expect("flush");
            around(3);
            db.flush().expect("flush");
            for level in &steps {
                let ranges: &[Range] = match parts {
                    false => &[(None, None)],
                    true => &[(None, Some(b"e")), (Some(b"j"), Some(b"l")), (Some(b"q"), None)],
                };
                for (from, to) in ranges {
                    let options = CompactRangeOptions { target_level: Some(*level), ..Default::default() };
                    db.compact_range(&options, *from, *to).expect("compact");
                    assert_eq!(get(&db, b"k"), None, "{marker:?} to L{level} of {steps:?}, parts {parts}");
                    assert_eq!(contents(&db).len(), 20);
                }
            }
            db.compact_range(&CompactRangeOptions { rewrite_bottom: true, ..Default::default() }, None, None)
                .expect("compact");
            assert_eq!(get(&db, b"k"), None);
            drop(db);
            let db = open_on(fs, &options).expect("reopen");
            assert_eq!(contents(&db).len(), 20);
        }
    }
}

/// A part of the keys is compacted, and the table of the marker, which it meets, reaches over an older
/// table in L0, which it does not.
#[test]
fn b019_a_marker_does_not_leave_an_older_table_behind() {
    for marker in [Marker::Delete, Marker::Single, Marker::Range] {
        for deleted_below in [false, true] {
            let fs = SimFs::new(1);
            let options = one_entry_blocks();
            let db = open_on(fs.clone(), &options).expect("open");
            if deleted_below {
                put(&db, b"a", b"old");
                put(&db, b"z", b"old");
                compact_to(&db, 3);
            }
            put(&db, b"k", b"v");
            put(&db, b"m", b"v");
            db.flush().expect("flush");
            put(&db, b"a", b"v");
            marker.write(&db, b"k");
            db.flush().expect("flush");
            for (from, to) in [(&b"a"[..], &b"b"[..]), (b"m", b"n"), (b"a", b"z")] {
                db.compact_range(&CompactRangeOptions::default(), Some(from), Some(to)).expect("compact");
                assert_eq!(get(&db, b"k"), None, "{marker:?} {deleted_below}");
                assert_eq!(get(&db, b"m"), Some(b"v".to_vec()));
                assert_eq!(contents(&db).len(), 2 + usize::from(deleted_below));
            }
            drop(db);
            assert_eq!(get(&open_on(fs, &options).expect("reopen"), b"k"), None);
        }
    }
}

/// A small table with the marker would fit into a gap of the level below; an older one in L0, which has
/// the value, would not.
#[test]
fn b019_a_marker_is_not_moved_below_an_older_table() {
    for marker in [Marker::Delete, Marker::Single] {
        let options =
            Options { automatic_compaction: true, level0_compaction_trigger: 4, ..one_entry_blocks() };
        let db = on_sim(&options);
        for key in [b"a", b"z"] {
            put(&db, key, b"first");
            db.compact_range(&CompactRangeOptions::default(), Some(key), Some(key)).expect("compact");
        }
        let before = db.compactions();
        for round in 0..3u8 {
            put(&db, b"a", &[round; 100]);
            put(&db, b"z", &[round; 100]);
            if round == 2 {
                put(&db, b"k", b"v");
            }
            db.flush().expect("flush");
        }
        assert_eq!(db.compactions(), before);
        (0..4u8).for_each(|i| put(&db, &[b'k', i], b"beside it"));
        marker.write(&db, b"k");
        db.flush().expect("flush");
        db.wait_until_idle().expect("idle");
        assert!(db.compactions() > before, "{marker:?}");
        assert_eq!(get(&db, b"k"), None, "{marker:?}");
        assert_eq!(contents(&db).len(), 6);
    }
}

struct OpenWhenDropped(Arc<AtomicBool>);

impl Drop for OpenWhenDropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Tables of L0 are merged among themselves while an older one, which has the value, is on its way
/// down: the marker among them has to stay.
#[test]
fn b019_a_marker_stays_when_l0_is_merged_within_itself() {
    if cfg!(feature = "invariants") {
        // The checks of that feature read every table after each flush: they would wait at the door, too.
        return;
    }
    for marker in [Marker::Delete, Marker::Single, Marker::Range] {
        let fs = FaultFs::new(SimFs::new(1));
        let open = Arc::new(AtomicBool::new(false));
        let door = open.clone();
        fs.set_sleeper(Arc::new(move |_| {
            while !door.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }));
        let options = Options {
            automatic_compaction: true,
            level0_compaction_trigger: 4,
            background_jobs_max: 4,
            ..one_entry_blocks()
        };
        let db = Db::open(env_on(fs.clone()), Path::new(DIR), options).expect("open");
        // Dropped before the database, which waits for the one at the door: also where an assertion fails.
        let _opener = OpenWhenDropped(open.clone());
        let wait_for = |what: &str, is_so: &dyn Fn() -> bool| {
            let started = Instant::now();
            while !is_so() {
                assert!(started.elapsed() < Duration::from_secs(30), "{what}");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        for key in [b"a", b"z"] {
            put(&db, key, b"first");
            // To the level that L0 is merged into.
            db.compact_range(&CompactRangeOptions::default(), Some(key), Some(key)).expect("compact");
        }
        let files_at = |level: u8| db.property(&format!("dialsm.num-files-at-level{level}"));
        let base = (1..7).find(|level| files_at(*level).as_deref() == Some("2")).expect("two tables");
        // A compaction that merges L0 with these two waits before it has read the first.
        let lowest = fs.list(Path::new(DIR)).expect("list").into_iter().find(|name| name.ends_with(".sst"));
        fs.add(Rule::every(OpKind::Read, Fault::Delay(1)).on(&lowest.expect("a table")));
        let before = db.compactions();
        for round in 0..4u8 {
            put(&db, b"a", &[round; 100]);
            put(&db, b"z", &[round; 100]);
            if round == 3 {
                put(&db, b"k", b"v");
            }
            db.flush().expect("flush");
        }
        wait_for("a compaction begins", &|| fs.injected() > 0);
        for round in 0..8u8 {
            put(&db, b"a", &[round; 100]);
            put(&db, b"z", &[round; 100]);
            if round == 1 {
                marker.write(&db, b"k");
            }
            db.flush().expect("flush");
        }
        wait_for("L0 is merged", &|| db.compactions() > before);
        assert_eq!(files_at(base).as_deref(), Some("2"), "the compaction of what is older still waits");
        assert_eq!(get(&db, b"k"), None, "{marker:?}");
        assert_eq!(scan(&db, &bounded(Some(b"b"), Some(b"y"))).expect("scan"), [], "{marker:?}");
        open.store(true, Ordering::Release);
        db.wait_until_idle().expect("idle");
        assert_eq!(get(&db, b"k"), None, "{marker:?}");
        assert_eq!(contents(&db).len(), 2);
        assert_eq!(get(&db, b"a"), Some(vec![7; 100]));
    }
}

#[test]
fn b029_a_key_that_always_exists_is_always_found() {
    let db = on_sim(&by_hand());
    // At the bottom lies an old version, so that what is compacted above it keeps its number.
    put(&db, b"k", &0u64.to_be_bytes());
    compact_to(&db, 6);
    put(&db, b"k", &1u64.to_be_bytes());
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..5)
        .map(|reader| {
            let (db, stop) = (db.clone(), stop.clone());
            std::thread::spawn(move || {
                let (mut last, mut reads) = (1, 0u64);
                while !stop.load(Ordering::Acquire) {
                    let found = match reader % 4 {
                        0 => get(&db, b"k"),
                        3 => {
                            // What a snapshot shows first it shows later, too.
                            let at = ReadOptions { snapshot: Some(db.snapshot()), ..ReadOptions::default() };
                            let first = db.get(&at, b"k").expect("get").map(|value| value.to_vec());
                            std::thread::sleep(Duration::from_micros(200));
                            let again = scan(&db, &at).expect("scan").pop();
                            assert_eq!(again.map(|(_, value)| value), first, "a snapshot changes");
                            first
                        }
                        1 => {
                            let found =
                                db.multi_get(&ReadOptions::default(), &[b"a", b"k"]).expect("multi_get");
                            found[1].as_ref().map(|value| value.to_vec())
                        }
                        _ => {
                            let mut iter = db.iter(&ReadOptions::default()).expect("iter");
                            iter.seek(b"k").expect("seek");
                            iter.valid().then(|| iter.value().to_vec())
                        }
                    };
                    let found = found.expect("the key always exists");
                    let number = u64::from_be_bytes(found.try_into().expect("8 bytes"));
                    assert!(number >= last, "a read goes back");
                    last = number;
                    reads += 1;
                }
                reads
            })
        })
        .collect();
    let (start, mut rounds) = (Instant::now(), 1u64);
    while start.elapsed() < Duration::from_secs(4) {
        rounds += 1;
        put(&db, b"k", &rounds.to_be_bytes());
        db.flush().expect("flush");
        if rounds.is_multiple_of(3) {
            compact_to(&db, 3);
        }
    }
    stop.store(true, Ordering::Release);
    let reads: u64 = readers.into_iter().map(|reader| reader.join().expect("no panic")).sum();
    println!("{rounds} flushes, {reads} reads");
    assert!(rounds > 100 && reads > 1000);
}

#[test]
fn b033_compactions_keep_what_any_snapshot_sees() {
    let db = on_sim(&by_hand());
    let mut held: Vec<(Snapshot, Model)> = Vec::new();
    let compact = || {
        let options = CompactRangeOptions { rewrite_bottom: true, ..Default::default() };
        db.compact_range(&options, None, None).expect("compact");
    };
    let check = |held: &[(Snapshot, Model)]| {
        for (snapshot, model) in held {
            let at = ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::default() };
            let found: Model = scan(&db, &at).expect("scan").into_iter().collect();
            assert!(found == *model);
        }
    };
    for round in 0..4u8 {
        for i in 0..200u8 {
            if round > 0 && (i + round) % 3 == 0 {
                db.delete(&WriteOptions::default(), &[i]).expect("delete");
            } else {
                put(&db, &[i], &[round; 60]);
            }
        }
        held.push((db.snapshot(), contents(&db)));
        db.flush().expect("flush");
        check(&held);
        compact();
        check(&held);
    }
    for release in [2, 0, 1, 0] {
        held.remove(release);
        compact();
        check(&held);
    }
    let now = contents(&db).len();
    assert_eq!(db.property("dialsm.estimate-num-keys"), Some(now.to_string()), "old versions are gone");
}

#[test]
fn b109_bounds_and_separators_of_keys_that_end_in_0xff() {
    let alphabet = [0x00, 0x01, 0x7f, 0x80, 0xfe, 0xff];
    let mut keys: Vec<Vec<u8>> = vec![Vec::new()];
    let mut longest = keys.clone();
    for _ in 0..3 {
        longest = longest.iter().flat_map(|k| alphabet.map(|b| [&k[..], &[b]].concat())).collect();
        keys.extend(longest.clone());
    }
    keys.sort();
    assert_eq!(keys.len(), 259);
    let db = on_sim(&one_entry_blocks());
    keys.iter().for_each(|key| put(&db, key, key));
    for stage in 0..3 {
        match stage {
            0 => {}
            1 => db.flush().expect("flush"),
            _ => compact_to(&db, 5),
        }
        for prefix in &keys {
            // The last byte below 0xff, raised; none if there is none.
            let kept = prefix.iter().rposition(|b| *b != 0xff);
            let upper = kept.map(|at| [&prefix[..at], &[prefix[at] + 1]].concat());
            let found = scan(&db, &bounded(Some(prefix), upper.as_deref())).expect("scan");
            let found: Vec<Vec<u8>> = found.into_iter().map(|(key, _)| key).collect();
            let expected: Vec<Vec<u8>> = keys.iter().filter(|k| k.starts_with(prefix)).cloned().collect();
            assert_eq!(found, expected, "prefix {prefix:02x?}");
            assert_eq!(get(&db, prefix).as_ref(), Some(prefix));
            let mut iter = db.iter(&ReadOptions::default()).expect("iter");
            let next = [&prefix[..], b"\0"].concat();
            iter.seek(&next).expect("seek");
            assert_eq!(key_of(&iter), keys.iter().find(|k| **k >= next).cloned());
            iter.seek_for_prev(&next).expect("seek_for_prev");
            assert_eq!(key_of(&iter), keys.iter().rfind(|k| **k <= next).cloned());
        }
    }
}
