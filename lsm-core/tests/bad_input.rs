//! Damaged, cut, foreign and missing files. Whatever stands in a database directory, opening and
//! reading it gives the right data or a typed error that names the file: never a panic, a hang or
//! wrong data. And an error loses nothing: with the byte restored all is there again.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

mod hostile;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use dialsm_core::{CompactRangeOptions, Db, Options, ReadOptions, Result, WriteOptions};
use dialsm_io::SimFs;
use hostile::{
    DIR, Image, Model, assert_typed, by_hand, env_on, fs_of, image_of, open_on, scan, synced, write_file,
};

/// Unsynced writes at the end: nothing vouches for them, so damage may take a suffix of them.
const UNSYNCED: usize = 3;

/// More bytes than any record of the specimen's log has, and the larger part of each.
const LOG_VALUE_BYTES: usize = 4000;

/// A closed database with tables on several levels, two log segments and a manifest with edits.
struct Specimen {
    image: Image,
    /// What it holds; then with the last logged write missing, the last two, and so on.
    states: Vec<Model>,
    options: Options,
}

fn value(i: u32, round: u32) -> Vec<u8> {
    format!("value {i} of round {round} ").repeat(1 + (i % 4) as usize).into_bytes()
}

fn specimen(seed: u64) -> Specimen {
    specimen_of(seed, &synced())
}

fn specimen_of(seed: u64, write: &WriteOptions) -> Specimen {
    let fs = SimFs::new(seed);
    let options = by_hand();
    // The identity comes from real dice, so that two specimens are two databases.
    let db = open_on(fs.clone(), &options).expect("open");
    let mut model = Model::new();
    let mut set = |key: u32, round: u32| {
        let (key, value) = (format!("key{key:05}").into_bytes(), value(key, round));
        db.put(write, &key, &value).expect("put");
        model.insert(key, value);
    };
    (0..300).for_each(|i| set(i * 3, 0));
    compact(&db, Some(4)).expect("to L4");
    (0..150).for_each(|i| set(i * 5, 1));
    compact(&db, Some(2)).expect("to L2");
    (0..60).for_each(|i| set(i * 7, 2));
    db.flush().expect("flush");
    (0..40).for_each(|i| set(i * 11, 3));
    for i in 0..20 {
        let key = format!("key{:05}", i * 33).into_bytes();
        db.delete(write, &key).expect("delete");
        model.remove(&key);
    }
    db.flush().expect("flush");
    let mut states = vec![model.clone()];
    for i in 0..30u32 {
        let (key, value) = (format!("log{i:03}").into_bytes(), vec![b'a' + (i % 26) as u8; LOG_VALUE_BYTES]);
        db.put(write, &key, &value).expect("put");
        model.insert(key, value);
        states.insert(0, model.clone());
    }
    for i in 0..UNSYNCED {
        let (key, value) = (format!("tail{i}").into_bytes(), format!("tail value {i}").into_bytes());
        db.put(&WriteOptions::default(), &key, &value).expect("put");
        model.insert(key, value);
        states.insert(0, model.clone());
    }
    let levels: Vec<String> =
        (0..7).map(|l| db.property(&format!("dialsm.num-files-at-level{l}")).expect("known")).collect();
    let populated = levels.iter().filter(|n| *n != "0").count();
    assert!(populated >= 3 && levels[0] == "2", "tables on three levels: {levels:?}");
    // The manifest names every segment then.
    db.wait_until_idle().expect("idle");
    // Not closed: a close would sync, and the image is what a killed process leaves.
    let image = image_of(fs.as_ref(), Path::new(DIR));
    assert!(logs(&image).len() >= 2, "several log segments");
    Specimen { image, states, options }
}

fn compact(db: &Db, target_level: Option<u8>) -> Result<()> {
    db.compact_range(&CompactRangeOptions { target_level, ..Default::default() }, None, None)
}

fn of_kind(image: &Image, suffix: &str) -> Vec<String> {
    image.keys().filter(|name| name.ends_with(suffix)).cloned().collect()
}

fn tables(image: &Image) -> Vec<String> {
    of_kind(image, ".sst")
}

fn logs(image: &Image) -> Vec<String> {
    of_kind(image, ".log")
}

fn manifest(image: &Image) -> String {
    image.keys().find(|name| name.starts_with("MANIFEST-")).expect("a manifest").clone()
}

/// What came of a look at a damaged database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// It did not open.
    Refused,
    /// Some read failed.
    ReadFailed,
    /// All reads gave the full data.
    Whole,
    /// So many of the last writes are gone.
    TailLost(usize),
}

#[derive(Default, Debug)]
struct Tally {
    cases: usize,
    refused: usize,
    read_failed: usize,
    whole: usize,
    tail_lost: usize,
}

impl Tally {
    fn count(&mut self, seen: Seen) {
        self.cases += 1;
        match seen {
            Seen::Refused => self.refused += 1,
            Seen::ReadFailed => self.read_failed += 1,
            Seen::Whole => self.whole += 1,
            Seen::TailLost(_) => self.tail_lost += 1,
        }
    }
}

/// Reads everything in every way. Errors must be typed; data must be that of one of the states, the
/// same one in all reads.
fn look(db: &Db, states: &[Model]) -> Seen {
    let mut failed = false;
    let mut may = vec![true; states.len()];
    let mut note = |outcome: Result<Vec<bool>>| match outcome {
        Ok(fits) => {
            may.iter_mut().zip(fits).for_each(|(may, fits)| *may &= fits);
            assert!(may.iter().any(|may| *may), "wrong data");
        }
        Err(error) => {
            assert_typed(&error);
            failed = true;
        }
    };
    let whole = ReadOptions::default();
    note(scan(db, &whole).map(|found| {
        let found: Model = found.into_iter().collect();
        states.iter().map(|state| *state == found).collect()
    }));
    let absent: Vec<Vec<u8>> = (0..20).map(|i| format!("key{:05}x", i * 41).into_bytes()).collect();
    let keys: Vec<&Vec<u8>> = states[0].keys().chain(&absent).collect();
    for key in &keys {
        let found = db.get(&whole, key);
        note(
            found.map(|found| {
                states.iter().map(|s| s.get(*key).map(|v| &v[..]) == found.as_deref()).collect()
            }),
        );
    }
    let slices: Vec<&[u8]> = keys.iter().map(|key| key.as_slice()).collect();
    note(db.multi_get(&whole, &slices).map(|found| {
        let fits = |state: &Model| {
            slices.iter().zip(&found).all(|(k, f)| state.get(*k).map(|v| &v[..]) == f.as_deref())
        };
        states.iter().map(fits).collect()
    }));
    match may.iter().position(|may| *may) {
        _ if failed => Seen::ReadFailed,
        Some(0) => Seen::Whole,
        lost => Seen::TailLost(lost.expect("checked with each read")),
    }
}

/// Tells which case it was when a check fails.
struct Case(String);

impl Case {
    fn new(name: &str, own: &[u8], damaged: Option<&[u8]>) -> Case {
        Case(match damaged {
            None => format!("{name} is missing"),
            Some(bytes) => {
                let same = own.iter().zip(bytes).take_while(|(a, b)| a == b).count();
                format!("{name}: {} bytes, then {}; other from offset {same} on", own.len(), bytes.len())
            }
        })
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("case: {}", self.0);
        }
    }
}

/// Opens and reads the damaged image, compacts and verifies it, then puts the undamaged file back
/// and reads all again. At most the last `lossy` writes may get lost without an error.
fn attack(specimen: &Specimen, name: &str, damaged: Option<&[u8]>, lossy: usize) -> Seen {
    let mut image = specimen.image.clone();
    let _case = Case::new(name, &image[name], damaged);
    match damaged {
        Some(bytes) => drop(image.insert(name.to_owned(), bytes.to_vec())),
        None => drop(image.remove(name)),
    }
    let fs = fs_of(&image);
    let env = env_on(fs.clone());
    let mut seen = Seen::Refused;
    match Db::open(env.clone(), Path::new(DIR), specimen.options.clone()) {
        Err(error) => assert_typed(&error),
        Ok(db) => {
            seen = look(&db, &specimen.states);
            let is_table = name.ends_with(".sst");
            assert!(is_table || seen != Seen::ReadFailed, "an open database of whole tables can't be read");
            if let Seen::TailLost(lost) = seen {
                assert!(lost <= lossy, "{lost} of the last writes are gone, {lossy} may be");
            }
            let rewrite = CompactRangeOptions { rewrite_bottom: true, ..Default::default() };
            let compacted = db.compact_range(&rewrite, None, None);
            let verified = db.verify(&mut |_, _| {});
            match (&compacted, &verified) {
                // With every table read and written anew, nothing of the damage may be left.
                (Ok(()), Ok(_)) => {
                    let again = look(&db, &specimen.states);
                    assert!(again != Seen::ReadFailed);
                }
                (Ok(()), Err(error)) => panic!("compacted into something bad: {error}"),
                (Err(error), _) => {
                    assert_typed(error);
                    assert!(is_table);
                    let again = look(&db, &specimen.states);
                    assert!(!matches!(again, Seen::TailLost(_)));
                    let error = verified.expect_err("what a compaction can't read is no intact table");
                    assert_typed(&error);
                }
            }
            if seen == Seen::ReadFailed {
                assert!(compacted.is_err(), "reads failed, yet a compaction of everything did not");
            }
            db.close().expect("close");
        }
    }
    assert_eq!(env.panics(), 0);
    restore_and_look(specimen, &fs, name, seen);
    seen
}

/// After a refusal, or damage to a table, the undamaged file makes everything readable again.
/// Otherwise the opening has moved on by itself, and must have kept what it showed.
fn restore_and_look(specimen: &Specimen, fs: &Arc<SimFs>, name: &str, seen: Seen) {
    if seen == Seen::Refused || name.ends_with(".sst") {
        write_file(fs.as_ref(), &Path::new(DIR).join(name), &specimen.image[name]);
    }
    let db = open_on(fs.clone(), &specimen.options).expect("opens again");
    let again = look(&db, &specimen.states);
    let expected = if matches!(seen, Seen::TailLost(_)) { seen } else { Seen::Whole };
    assert_eq!(again, expected);
    db.verify(&mut |_, _| {}).expect("verify");
}

/// Far beyond what the cases take on a busy machine: this finds a hang, it measures nothing.
const HANGS_AFTER: Duration = Duration::from_secs(900);

/// Runs the cases of one test on a thread of their own and fails if they hang.
fn unless_it_hangs(cases: impl FnOnce() + Send + 'static) {
    let (done, finished) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        cases();
        let _ = done.send(());
    });
    match finished.recv_timeout(HANGS_AFTER) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("hangs"),
        _ => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

fn flipped(bytes: &[u8], at: usize, mask: u8) -> Vec<u8> {
    let mut out = bytes.to_vec();
    out[at] ^= mask;
    out
}

fn zeroed(bytes: &[u8], from: usize, len: usize) -> Vec<u8> {
    let mut out = bytes.to_vec();
    let to = (from + len).min(out.len());
    out[from..to].fill(0);
    out
}

/// Offsets to damage: every one of the first and last `dense` bytes, and every `stride`-th.
fn offsets(len: usize, dense: usize, stride: usize) -> Vec<usize> {
    (0..len).filter(|at| *at < dense || *at + dense >= len || at.is_multiple_of(stride)).collect()
}

#[test]
fn the_specimen_itself_is_whole() {
    let specimen = specimen(1);
    let db = open_on(fs_of(&specimen.image), &specimen.options).expect("open");
    assert_eq!(look(&db, &specimen.states), Seen::Whole);
    db.verify(&mut |_, _| {}).expect("verify");
}

/// Damages `name` in each way that `damages` lists. Nothing vouched for may get lost.
fn attack_all(specimen: &Specimen, name: &str, damages: impl Iterator<Item = Vec<u8>>) -> Tally {
    let lossy = if name.ends_with(".log") { UNSYNCED } else { 0 };
    let mut tally = Tally::default();
    for damaged in damages {
        tally.count(attack(specimen, name, Some(&damaged), lossy));
    }
    tally
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.cases += other.cases;
        self.refused += other.refused;
        self.read_failed += other.read_failed;
        self.whole += other.whole;
        self.tail_lost += other.tail_lost;
    }
}

/// Every byte of a table is under some checksum, so no flip goes unnoticed.
#[test]
fn flipped_bits_in_tables() {
    unless_it_hangs(|| {
        let specimen = specimen(2);
        let mut tally = Tally::default();
        for (i, name) in tables(&specimen.image).iter().enumerate() {
            let bytes = &specimen.image[name];
            // Of one table header and footer in full; of each one here and there in data blocks,
            // filter, index and properties.
            let places = offsets(bytes.len(), if i == 0 { 128 } else { 0 }, 409);
            tally.add(&attack_all(
                &specimen,
                name,
                places.iter().map(|at| flipped(bytes, *at, 1 << (at % 8))),
            ));
        }
        println!("{tally:?}");
        assert!(tally.cases > 300 && tally.read_failed == tally.cases, "{tally:?}");
    });
}

#[test]
fn tables_cut_off_zeroed_or_grown() {
    unless_it_hangs(|| {
        let specimen = specimen(3);
        let mut tally = Tally::default();
        for name in tables(&specimen.image) {
            let bytes = &specimen.image[&name];
            let n = bytes.len();
            let cuts = [0, 1, 7, 63, 64, 65, 191, 192, n / 3, n / 2, n - 129, n - 128, n - 8, n - 1];
            tally.add(&attack_all(&specimen, &name, cuts.iter().map(|at| bytes[..*at].to_vec())));
            let holes = [(0, 64), (64, 4096), (n / 2, 100), (n - 700, 300), (n - 128, 128), (0, n)];
            tally.add(&attack_all(&specimen, &name, holes.iter().map(|(at, len)| zeroed(bytes, *at, *len))));
            tally.add(&attack_all(&specimen, &name, std::iter::once([&bytes[..], b"more"].concat())));
        }
        println!("{tally:?}");
        assert!(tally.cases >= 80 && tally.read_failed == tally.cases, "{tally:?}");
    });
}

/// What else may stand under a file's name.
fn impostors(specimen: &Specimen, other: &Specimen, name: &str) -> Vec<(&'static str, Vec<u8>)> {
    let own = &specimen.image;
    let like = |image: &Image, other_than: &str| {
        let suffix = name.rsplit_once('.').map_or("MANIFEST-", |(_, suffix)| suffix);
        let alike = |n: &&String| n.contains(suffix) && *n != other_than;
        image.keys().find(alike).map(|n| image[n].clone())
    };
    let mut rng = hostile::Rng(7);
    let mut all = vec![
        ("an empty file", Vec::new()),
        ("random bytes", rng.bytes(3000)),
        ("a line of text", b"MANIFEST-000001\n".to_vec()),
        ("zeros", vec![0; 70_000]),
        ("CURRENT", own["CURRENT"].clone()),
        ("a manifest", own[&manifest(own)].clone()),
        ("a log segment", own[&logs(own)[0]].clone()),
        ("a table", own[&tables(own)[0]].clone()),
        ("its like from another database", like(&other.image, "").expect("the other one has the same files")),
    ];
    all.extend(other.image.get(name).map(|bytes| ("its namesake from another database", bytes.clone())));
    all.extend(like(own, name).map(|bytes| ("its like with another number", bytes)));
    all.retain(|(_, bytes)| *bytes != own[name]);
    all
}

#[test]
fn foreign_files_in_place_of_tables_and_manifest() {
    unless_it_hangs(|| {
        let (specimen, other) = (specimen(4), specimen(5));
        let mut tally = Tally::default();
        for name in tables(&specimen.image).into_iter().chain([manifest(&specimen.image)]) {
            for (what, bytes) in impostors(&specimen, &other, &name) {
                let seen = attack(&specimen, &name, Some(&bytes), 0);
                assert!(matches!(seen, Seen::Refused | Seen::ReadFailed), "{what} for {name}: {seen:?}");
                tally.count(seen);
            }
        }
        println!("{tally:?}");
        assert!(tally.read_failed >= 40 && tally.refused >= 8, "{tally:?}");
    });
}

/// Where the records of the newest segment end; behind it lies what a recycled file held before.
fn log_end(bytes: &[u8]) -> usize {
    let last = b"tail value 2";
    bytes.windows(last.len()).rposition(|window| window == last).expect("the last value") + last.len()
}

#[test]
fn flipped_bits_and_holes_in_log_segments() {
    unless_it_hangs(|| {
        let specimen = specimen(6);
        let mut tally = Tally::default();
        let logs = logs(&specimen.image);
        for name in &logs {
            let bytes = &specimen.image[name];
            let end = if Some(name) == logs.last() { log_end(bytes) } else { bytes.len() };
            // File header, start record and first record in full, then records here and there, and
            // the tail with its three unsynced records in full.
            let places = offsets(end, 300, 1009);
            tally.add(&attack_all(
                &specimen,
                name,
                places.iter().map(|at| flipped(bytes, *at, 1 << (at % 8))),
            ));
            let holes = [(0, 64), (64, 80), (64, 4096), (end / 2, 100), (end / 3 / 4096 * 4096, 8192)];
            tally.add(&attack_all(&specimen, name, holes.iter().map(|(at, len)| zeroed(bytes, *at, *len))));
        }
        println!("{tally:?}");
        assert!(tally.cases > 1200 && tally.refused > 900 && tally.tail_lost > 100, "{tally:?}");
    });
}

/// Where the log stops short nothing can tell how much there was, unless another segment follows.
#[test]
fn log_segments_cut_off() {
    unless_it_hangs(|| {
        let specimen = specimen(12);
        let mut tally = Tally::default();
        let logs = logs(&specimen.image);
        let (newest, older) = logs.split_last().expect("several");
        for name in older {
            let bytes = &specimen.image[name];
            let n = bytes.len();
            let cuts = [0, 1, 63, 64, 100, 144, 145, n / 2, n - 4000, n - 1];
            tally.add(&attack_all(&specimen, name, cuts.iter().map(|at| bytes[..*at].to_vec())));
            tally.add(&attack_all(&specimen, name, cuts[..9].iter().map(|at| zeroed(bytes, *at, n))));
        }
        // The last byte is padding.
        assert!(tally.cases > 15 && tally.refused + 1 == tally.cases && tally.whole == 1, "{tally:?}");
        let bytes = &specimen.image[newest];
        let end = log_end(bytes);
        for at in (0..end).step_by(509).chain((end - 300..end).step_by(7)) {
            let lossy = UNSYNCED + (end - at).div_ceil(LOG_VALUE_BYTES);
            tally.count(attack(&specimen, newest, Some(&bytes[..at]), lossy));
            tally.count(attack(&specimen, newest, Some(&zeroed(bytes, at, bytes.len())), lossy));
        }
        println!("{tally:?}");
        assert!(tally.tail_lost > 200, "{tally:?}");
    });
}

#[test]
fn foreign_files_in_place_of_log_segments() {
    unless_it_hangs(|| {
        let (specimen, other) = (specimen(7), specimen(8));
        let mut tally = Tally::default();
        let logs = logs(&specimen.image);
        for name in &logs {
            for (what, bytes) in impostors(&specimen, &other, name) {
                // For what is gone from the end nobody vouches; but what is of another database or
                // another segment is known for it.
                let lossy = if Some(name) == logs.last() { specimen.states.len() } else { 0 };
                let seen = attack(&specimen, name, Some(&bytes), lossy);
                let kept = what.contains("another database") || lossy == 0;
                assert!(!kept || seen == Seen::Refused, "{what} for {name}: {seen:?}");
                tally.count(seen);
            }
        }
        println!("{tally:?}");
        assert!(tally.cases >= 15 && tally.refused > tally.cases / 2, "{tally:?}");
    });
}

#[test]
fn damaged_manifest() {
    unless_it_hangs(|| {
        let specimen = specimen(9);
        let name = manifest(&specimen.image);
        let bytes = &specimen.image[&name];
        let n = bytes.len();
        let mut tally = attack_all(&specimen, &name, (0..n).map(|at| flipped(bytes, at, 1 << (at % 8))));
        tally.add(&attack_all(&specimen, &name, (0..n).step_by(3).map(|at| bytes[..at].to_vec())));
        tally.add(&attack_all(&specimen, &name, (0..n).step_by(17).map(|at| zeroed(bytes, at, 40))));
        tally.add(&attack_all(&specimen, &name, (0..n).step_by(29).map(|at| zeroed(bytes, at, n))));
        println!("{tally:?}");
        assert!(tally.cases > 800 && tally.refused + tally.whole == tally.cases, "{tally:?}");
    });
}

/// A settled record at the manifest's end looks like a torn one once a bit of it is flipped. What it
/// let go of (log segments, tables) shows that it had been settled, even if no write was synced.
#[test]
fn a_damaged_manifest_over_a_log_that_was_never_synced() {
    unless_it_hangs(|| {
        for flushed_last in [false, true] {
            let mut specimen = specimen_of(14, &WriteOptions::default());
            if flushed_last {
                let fs = fs_of(&specimen.image);
                let db = open_on(fs.clone(), &specimen.options).expect("open");
                db.flush().expect("flush");
                specimen.image = image_of(fs.as_ref(), Path::new(DIR));
            }
            let name = manifest(&specimen.image);
            let bytes = &specimen.image[&name];
            let n = bytes.len();
            let places = (n - 300.min(n))..n;
            let mut tally =
                attack_all(&specimen, &name, places.clone().map(|at| flipped(bytes, at, 1 << (at % 8))));
            tally.add(&attack_all(&specimen, &name, places.map(|at| bytes[..at].to_vec())));
            println!("{tally:?}");
            assert!(tally.cases > 500 && tally.refused + tally.whole == tally.cases, "{tally:?}");
        }
    });
}

/// The first record behind the snapshot, cut off: by the snapshot's word nothing was ever in tables,
/// and the log that would have to hold it all has lost its front to that record.
#[test]
fn a_cut_through_the_first_record_of_a_manifest() {
    unless_it_hangs(|| {
        let options = Options { log_recycle_max: 0, ..by_hand() };
        let fs = SimFs::new(16);
        let db = open_on(fs.clone(), &options).expect("open");
        let mut model = Model::new();
        for i in 0..60u8 {
            db.put(&WriteOptions::default(), &[i], &[i; 4000]).expect("put");
            model.insert(vec![i], vec![i; 4000]);
            if i == 50 {
                db.flush().expect("flush");
            }
        }
        let image = image_of(fs.as_ref(), Path::new(DIR));
        let specimen = Specimen { image, states: vec![model], options };
        let name = manifest(&specimen.image);
        let bytes = &specimen.image[&name];
        let snapshot_bytes = u32::from_le_bytes(bytes[64..68].try_into().expect("4 bytes"));
        let record = 64 + 8 + snapshot_bytes as usize;
        // Where it is cut off whole, nothing misses it.
        let cuts = record + 1..bytes.len() - 20;
        let tally = attack_all(&specimen, &name, cuts.map(|at| bytes[..at].to_vec()));
        println!("{tally:?}");
        assert!(tally.cases > 50 && tally.refused == tally.cases, "{tally:?}");
    });
}

/// Writes that bypassed the log leave no trace but their table and the record that names it.
#[test]
fn a_flipped_bit_in_the_manifest_over_writes_that_bypassed_the_log() {
    unless_it_hangs(|| {
        let options = by_hand();
        let fs = SimFs::new(15);
        let db = open_on(fs.clone(), &options).expect("open");
        let unlogged = WriteOptions { disable_log: true, ..WriteOptions::default() };
        let mut model = Model::new();
        for i in 0..50u8 {
            db.put(&unlogged, &[i], &[i; 100]).expect("put");
            model.insert(vec![i], vec![i; 100]);
        }
        db.flush().expect("flush");
        let image = image_of(fs.as_ref(), Path::new(DIR));
        let specimen = Specimen { image, states: vec![model], options };
        let name = manifest(&specimen.image);
        let bytes = &specimen.image[&name];
        let places = 0..bytes.len();
        let tally = attack_all(&specimen, &name, places.map(|at| flipped(bytes, at, 1 << (at % 8))));
        println!("{tally:?}");
        // The mark behind the last record means nothing by itself.
        assert!(
            tally.refused > 150 && tally.whole > 0 && tally.refused + tally.whole == tally.cases,
            "{tally:?}"
        );
    });
}

#[test]
fn damaged_current() {
    unless_it_hangs(|| {
        let specimen = specimen(10);
        let bytes = &specimen.image["CURRENT"];
        let mut damages: Vec<Vec<u8>> =
            (0..bytes.len() * 8).map(|i| flipped(bytes, i / 8, 1 << (i % 8))).collect();
        damages.extend((0..bytes.len()).map(|at| bytes[..at].to_vec()));
        damages.extend([
            zeroed(bytes, 0, bytes.len()),
            [&bytes[..], b"\n"].concat(),
            b"MANIFEST-999999\n".to_vec(),
            b"MANIFEST-99999999999999999999\n".to_vec(),
            b"../MANIFEST-000001\n".to_vec(),
            b"000001.log\n".to_vec(),
            b"CURRENT\n".to_vec(),
            vec![0xff; 1 << 20],
        ]);
        let tally = attack_all(&specimen, "CURRENT", damages.into_iter());
        println!("{tally:?}");
        assert!(tally.cases > 100 && tally.refused == tally.cases, "{tally:?}");
    });
}

#[test]
fn missing_files() {
    unless_it_hangs(|| {
        let specimen = specimen(11);
        let newest = logs(&specimen.image).pop().expect("logs");
        // The OPTIONS file is for people: nothing is read from it.
        let needed = |name: &&String| **name != newest && !name.starts_with("OPTIONS");
        for name in specimen.image.keys().filter(needed) {
            let seen = attack(&specimen, name, None, 0);
            match name {
                n if n.ends_with(".sst") => {
                    assert!(matches!(seen, Seen::ReadFailed | Seen::Refused), "{n}: {seen:?}");
                }
                n => assert_eq!(seen, Seen::Refused, "{n}"),
            }
        }
    });
}

/// Once the manifest was written after a segment was begun, it is missed, synced or not.
#[test]
fn a_missing_log_segment_that_the_manifest_names() {
    let specimen = specimen_of(13, &WriteOptions::default());
    let fs = fs_of(&specimen.image);
    let db = open_on(fs.clone(), &specimen.options).expect("open");
    db.put(&WriteOptions::default(), b"one more", b"segment").expect("put");
    db.flush().expect("flush");
    let image = image_of(fs.as_ref(), Path::new(DIR));
    let mut whole = specimen.states[0].clone();
    whole.insert(b"one more".to_vec(), b"segment".to_vec());
    let specimen = Specimen { image, states: vec![whole], options: specimen.options };
    let segments = logs(&specimen.image);
    for name in &segments {
        assert_eq!(attack(&specimen, name, None, 0), Seen::Refused, "{name}");
    }
    assert!(!segments.is_empty());
}

/// A segment that was begun after the manifest was last written used to be named nowhere else: if it was
/// the newest one, its loss took synced writes along and the database opened without an error.
#[test]
fn a_missing_newest_log_segment_is_noticed() {
    let specimen = specimen(13);
    let newest = logs(&specimen.image).pop().expect("logs");
    assert_eq!(attack(&specimen, &newest, None, 0), Seen::Refused);
}
