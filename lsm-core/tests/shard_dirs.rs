//! Shards in directories of their own: what lies where, which directories an opening takes and which it
//! refuses, a random workload beside a model, copies, removal, a full device. Power cuts with shard
//! directories: `crash.rs`.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

mod hostile;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dialsm::testing::ForcedRouter;
use dialsm_core::{Db, Error, ErrorKind, Options, Result, WriteOptions, merge_operator};
use dialsm_io::{Env, Fault, FaultFs, Fs, OpKind, Rule, SimFs};
use hostile::{DIR, Model, Rng, by_hand, contents, env_on, get, image_of, kind_of, open_on, put, tiny};

const A: &str = "/disk1/a";
const B: &str = "/disk2/b";

/// Four shards, 30 % of the values redirected.
fn sharded(mut options: Options, dirs: &[&str]) -> Options {
    options.shards = 4;
    options.router = Some(ForcedRouter::object(300, 1));
    options.shard_dirs = dirs.iter().map(PathBuf::from).collect();
    options
}

fn tables_in(fs: &dyn Fs, dir: &str) -> BTreeSet<String> {
    let names = fs.list(Path::new(dir)).unwrap_or_default();
    names.into_iter().filter(|name| name.ends_with(".sst")).collect()
}

/// Writes keys that all shards have some of.
fn fill(db: &Db, model: &mut Model, from: u32) {
    for n in from..from + 200 {
        let (key, value) = (n.to_be_bytes().to_vec(), vec![n as u8; 100]);
        put(db, &key, &value);
        model.insert(key, value);
    }
    db.flush().expect("flush");
}

/// A closed database with tables in its own directory, in A and in B.
fn filled() -> (Arc<SimFs>, Model) {
    let fs = SimFs::new(1);
    let mut model = Model::new();
    let db = open_on(fs.clone(), &sharded(by_hand(), &[DIR, A, B])).expect("open");
    fill(&db, &mut model, 0);
    db.close().expect("close");
    for dir in [DIR, A, B] {
        assert!(!tables_in(fs.as_ref(), dir).is_empty(), "{dir} has tables");
    }
    (fs, model)
}

/// Everything in the three directories but the locks.
fn all_files(fs: &SimFs) -> Vec<hostile::Image> {
    [DIR, A, B].iter().map(|dir| image_of(fs, Path::new(dir))).collect()
}

fn refused(fs: &Arc<SimFs>, dirs: &[&str]) -> Error {
    let before = all_files(fs);
    let error = open_on(fs.clone(), &sharded(by_hand(), dirs)).err().expect("must be refused");
    assert_eq!(all_files(fs), before, "a refused opening changes nothing");
    error
}

#[test]
fn tables_go_to_the_directory_of_their_shard_and_all_else_stays() {
    let fs = SimFs::new(1);
    let mut model = Model::new();
    // Nothing else makes tables.
    let options = &Options { rollback: false, ..sharded(by_hand(), &[A, B]) };
    let db = open_on(fs.clone(), options).expect("open");
    fill(&db, &mut model, 0);
    fill(&db, &mut model, 100);
    db.compact_range(&Default::default(), None, None).expect("compact");
    db.verify(&mut |_, _| {}).expect("verify");
    assert_eq!(contents(&db), model);
    assert!(tables_in(fs.as_ref(), DIR).is_empty());
    for dir in [A, B] {
        assert!(tables_in(fs.as_ref(), dir).len() >= 2, "{dir}");
        let others = |name: &String| !name.ends_with(".sst");
        let names: Vec<String> = fs.list(Path::new(dir)).expect("list").into_iter().filter(others).collect();
        assert_eq!(names, ["LOCK", "SHARD_DIR"]);
    }
    drop(db);
    let saved = Options::load(env_on(fs.clone()).as_ref(), Path::new(DIR)).expect("saved");
    assert_eq!(saved.shard_dirs, [PathBuf::from(A), PathBuf::from(B)]);
    // Inputs of the compaction are gone from where they were.
    let db = open_on(fs.clone(), options).expect("reopen");
    let named: u64 = db.verify(&mut |_, _| {}).expect("verify").tables;
    let there = tables_in(fs.as_ref(), A).len() + tables_in(fs.as_ref(), B).len();
    assert_eq!(there as u64, named);
}

/// Without the option nothing is there that was not there before, and no call is made for it.
#[test]
fn without_shard_dirs_no_call_and_no_file_is_added() {
    let fs = SimFs::new(1);
    fs.set_tracing(true);
    let db = open_on(fs.clone(), &by_hand()).expect("open");
    put(&db, b"k", b"v");
    db.flush().expect("flush");
    drop(db);
    drop(open_on(fs.clone(), &by_hand()).expect("reopen"));
    let strange = fs.trace().into_iter().find(|call| call.path.to_string_lossy().contains("SHARD_DIR"));
    assert!(strange.is_none(), "{strange:?}");
}

#[test]
fn order_and_places_may_change() {
    let (fs, mut model) = filled();
    // Another order: what is there is found, what is new goes to other places.
    let db = open_on(fs.clone(), &sharded(by_hand(), &[B, DIR, A])).expect("another order");
    assert_eq!(contents(&db), model);
    fill(&db, &mut model, 150);
    db.compact_range(&Default::default(), None, None).expect("compact");
    assert_eq!(contents(&db), model);
    drop(db);
    // A disk is mounted elsewhere.
    let moved = "/disk1/moved";
    fs.rename(Path::new(A), Path::new(moved)).expect("rename");
    let db = open_on(fs.clone(), &sharded(by_hand(), &[moved, B])).expect("moved");
    assert_eq!(contents(&db), model);
    // All of it into B, by and by; then the others are not asked for.
    drop(db);
    let db = open_on(fs.clone(), &sharded(by_hand(), &[B, B, B, B, moved])).expect("all to B");
    let rewrite = dialsm_core::CompactRangeOptions { rewrite_bottom: true, ..Default::default() };
    db.compact_range(&rewrite, None, None).expect("compact");
    db.close().expect("close");
    drop(db);
    assert_eq!(tables_in(fs.as_ref(), moved).len() + tables_in(fs.as_ref(), DIR).len(), 0);
    let db = open_on(fs.clone(), &sharded(by_hand(), &[B])).expect("B alone");
    assert_eq!(contents(&db), model);
    drop(db);
    // One that was left out comes back under its own number.
    let db = open_on(fs.clone(), &sharded(by_hand(), &[B, moved])).expect("both again");
    fill(&db, &mut model, 300);
    assert!(!tables_in(fs.as_ref(), moved).is_empty());
    assert_eq!(contents(&db), model);
}

#[test]
fn a_missing_directory_is_named_and_nothing_is_changed() {
    let (fs, model) = filled();
    for (given, gone) in [(&[A][..], B), (&[B, DIR][..], A), (&[][..], A)] {
        let error = refused(&fs, given);
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(error.to_string().contains(gone), "{error}");
    }
    // The disk is not mounted: the path is there and empty. It must not be taken for a new directory.
    fs.rename(Path::new(B), Path::new("/disk2/elsewhere")).expect("rename");
    for is_there in [false, true] {
        if is_there {
            fs.create_dir_all(Path::new(B)).expect("mount point");
        }
        let error = open_on(fs.clone(), &sharded(by_hand(), &[A, B])).err().expect("refused");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(error.to_string().contains(B) && error.to_string().contains("empty"), "{error}");
        assert_eq!(fs.exists(Path::new(B)).expect("exists"), is_there);
    }
    assert!(fs.list(Path::new(B)).expect("list").is_empty());
    fs.remove_dir(Path::new(B)).expect("remove");
    fs.rename(Path::new("/disk2/elsewhere"), Path::new(B)).expect("rename");
    // A table that is missing in a directory that is there is damage.
    let db = open_on(fs.clone(), &sharded(by_hand(), &[A, B])).expect("all there");
    assert_eq!(contents(&db), model);
    drop(db);
    // Some may be obsolete: a rollback ends, and replaces tables, when it likes.
    for table in tables_in(fs.as_ref(), B) {
        fs.unlink(&Path::new(B).join(table)).expect("unlink");
    }
    let error = open_on(fs.clone(), &sharded(by_hand(), &[A, B])).err().expect("refused");
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert_eq!(error.path().and_then(Path::parent), Some(Path::new(B)));
}

#[test]
fn a_directory_of_another_database_is_refused_and_kept() {
    let (fs, model) = filled();
    let second = |dirs: &[&str]| -> Result<Db> {
        Db::open(env_on(fs.clone()), Path::new("/second"), sharded(by_hand(), dirs))
    };
    let before = all_files(&fs);
    assert_eq!(kind_of(second(&["/disk3/c", B]).map(drop)), ErrorKind::Foreign);
    assert!(!fs.exists(Path::new("/second/CURRENT")).expect("exists"), "nothing was created");
    assert_eq!(kind_of(second(&[DIR]).map(drop)), ErrorKind::InvalidArgument);
    let db = second(&["/disk3/c"]).expect("a directory of its own");
    fill(&db, &mut Model::new(), 0);
    drop(db);
    // Swapped between the two databases, with marker and all.
    assert_eq!(refused(&fs, &[A, "/disk3/c"]).kind(), ErrorKind::Foreign);
    assert_eq!(refused(&fs, &[A, B, "/second"]).kind(), ErrorKind::InvalidArgument);
    // Tables and no marker.
    fs.unlink(Path::new("/disk3/c/SHARD_DIR")).expect("unlink");
    assert_eq!(refused(&fs, &[A, B, "/disk3/c"]).kind(), ErrorKind::Foreign);
    // A copy of one of ours beside it.
    copy_by_hand(&fs, B, "/disk3/d");
    assert_eq!(refused(&fs, &[A, B, "/disk3/d"]).kind(), ErrorKind::InvalidArgument);
    assert_eq!(all_files(&fs), before);
    // A shard directory is no database directory, to create or to destroy.
    let env = env_on(fs.clone());
    assert_eq!(kind_of(Db::destroy(env.as_ref(), Path::new(B))), ErrorKind::Foreign);
    fs.create_dir_all(Path::new("/disk3/e")).expect("directory");
    hostile::write_file(fs.as_ref(), Path::new("/disk3/e/SHARD_DIR"), b"x");
    let opened = Db::open(env, Path::new("/disk3/e"), by_hand());
    assert_eq!(kind_of(opened.map(drop)), ErrorKind::InvalidArgument);
    let db = open_on(fs.clone(), &sharded(by_hand(), &[A, B])).expect("as ever");
    assert_eq!(contents(&db), model);
    // In use: nobody else gets it, not even to read.
    fs.unlink(Path::new("/db/LOCK")).expect("unlink");
    let reader = Db::open_read_only(env_on(fs.clone()), Path::new(DIR), sharded(by_hand(), &[A, B]));
    assert_eq!(kind_of(reader.map(drop)), ErrorKind::NotFound);
    hostile::write_file(fs.as_ref(), Path::new("/db/LOCK"), b"");
}

/// Copies what is in a directory, lists and markers included, as one does by hand.
fn copy_by_hand(fs: &SimFs, from: &str, to: &str) {
    fs.create_dir_all(Path::new(to)).expect("directory");
    for (name, bytes) in image_of(fs, Path::new(from)) {
        hostile::write_file(fs, &Path::new(to).join(name), &bytes);
    }
}

/// Which of the two is the copy nobody can tell. Whoever is opened with the directories first has them; the
/// other one must not take from them what its own manifest does not name, nor remove them with itself.
#[test]
fn copies_made_by_hand_share_no_directory() {
    for copy_goes_first in [false, true] {
        let (fs, mut model) = filled();
        copy_by_hand(&fs, DIR, "/copy");
        copy_by_hand(&fs, A, "/disk3/a");
        let [first, second] = if copy_goes_first { ["/copy", DIR] } else { [DIR, "/copy"] };
        let open = |dir: &str, a: &str| {
            Db::open(env_on(fs.clone()), Path::new(dir), sharded(by_hand(), &[dir, a, B]))
        };
        let db = open(first, A).expect("whoever comes first");
        fill(&db, &mut model, 500);
        db.close().expect("close");
        drop(db);
        // The mark before the last one may be a directory's that a crash kept from getting that.
        drop(open(first, A).expect("once more"));
        let before = all_files(&fs);
        assert_eq!(kind_of(open(second, A).map(drop)), ErrorKind::Foreign);
        // The copy of a directory is as old.
        assert_eq!(kind_of(open(first, "/disk3/a").map(drop)), ErrorKind::Foreign);
        let read = Db::open_read_only(env_on(fs.clone()), Path::new(second), sharded(by_hand(), &[A, B]));
        assert_eq!(kind_of(read.map(drop)), ErrorKind::Foreign);
        assert_eq!(all_files(&fs), before);
        let env = env_on(fs.clone());
        let given = Db::destroy_with(env.as_ref(), Path::new(second), &[A.into()]);
        assert_eq!(kind_of(given), ErrorKind::Foreign);
        Db::destroy(env.as_ref(), Path::new(second)).expect("destroy");
        assert!(!fs.exists(Path::new(second)).expect("exists"));
        let db = open(first, A).expect("it has lost nothing");
        assert_eq!(contents(&db), model);
    }
}

/// A copy of what was open when it was made: it names tables that are no more, and can't be opened. That
/// takes nothing from the original.
#[test]
fn a_copy_that_does_not_open_leaves_the_directories_to_the_original() {
    let (fs, mut model) = filled();
    let db = open_on(fs.clone(), &sharded(by_hand(), &[DIR, A, B])).expect("open");
    copy_by_hand(&fs, DIR, "/copy");
    fill(&db, &mut model, 500);
    let rewrite = dialsm_core::CompactRangeOptions { rewrite_bottom: true, ..Default::default() };
    db.compact_range(&rewrite, None, None).expect("compact");
    db.close().expect("close");
    drop(db);
    let before = all_files(&fs);
    let copy = Db::open(env_on(fs.clone()), Path::new("/copy"), sharded(by_hand(), &["/copy", A, B]));
    assert_eq!(kind_of(copy.map(drop)), ErrorKind::Corruption);
    assert_eq!(all_files(&fs), before);
    let db = open_on(fs, &sharded(by_hand(), &[DIR, A, B])).expect("the original");
    assert_eq!(contents(&db), model);
}

/// An attempt that ended before it had synced the names above a directory leaves them to the next one, for
/// which they are there already.
#[test]
fn names_above_a_directory_are_synced_whoever_made_them() {
    let own = Path::new("/deep/er/db");
    for failing in ["/disk2", "/deep"] {
        let fs = SimFs::new(1);
        let faulty = FaultFs::new(fs.clone());
        faulty.add(Rule::every(OpKind::SyncDir, Fault::Errno(5)).on(failing));
        let options = sharded(by_hand(), &["/disk2/x/b"]);
        let failed = Db::open(env_on(faulty.clone()), own, options.clone());
        assert_eq!(kind_of(failed.map(drop)), ErrorKind::Io);
        assert!(faulty.injected() >= 1);
        let db = Db::open(env_on(fs.clone()), own, options.clone()).expect("the next attempt");
        let mut model = Model::new();
        fill(&db, &mut model, 0);
        drop(db);
        let image = fs.crash_image(dialsm_io::CrashPolicy::DropUnsynced);
        let db = Db::open(env_on(image), own, options).expect("after a power cut");
        assert_eq!(contents(&db), model, "{failing}");
    }
}

/// No directory of a database is made where one was half removed: the list says where the rest is.
#[test]
fn what_a_removal_left_is_not_taken_for_an_empty_directory() {
    let (fs, _) = filled();
    let faulty = FaultFs::new(fs.clone());
    faulty.add(Rule::every(OpKind::Unlink, Fault::Errno(5)).on(A));
    Db::destroy(env_on(faulty.clone()).as_ref(), Path::new(DIR)).expect_err("it can't be ended");
    assert!(faulty.injected() >= 1 && !fs.exists(Path::new("/db/CURRENT")).expect("exists"));
    let plain = Options { shards: 1, ..by_hand() };
    assert_eq!(kind_of(open_on(fs.clone(), &plain).map(drop)), ErrorKind::Corruption);
    Db::destroy(env_on(fs.clone()).as_ref(), Path::new(DIR)).expect("the rest");
    assert!(tables_in(fs.as_ref(), A).is_empty() && tables_in(fs.as_ref(), B).is_empty());
    open_on(fs, &plain).expect("a new one");
}

/// The manifest of a copy has the identity of the original: its opening must not take, and empty, the
/// original's directories.
#[test]
fn a_checkpoint_is_one_directory_and_takes_none_of_the_originals() {
    let (fs, model) = filled();
    let (env, copy) = (env_on(fs.clone()), Path::new("/copy"));
    let db = open_on(fs.clone(), &sharded(by_hand(), &[B, A])).expect("open");
    db.checkpoint(copy).expect("checkpoint");
    drop(db);
    let error = Db::open(env.clone(), copy, sharded(by_hand(), &[A, B])).err().expect("refused");
    assert_eq!(error.kind(), ErrorKind::Foreign, "{error}");
    let before = all_files(&fs);
    let reader = Db::open_read_only(env.clone(), copy, sharded(by_hand(), &[])).expect("reader");
    assert_eq!(contents(&reader), model);
    drop(reader);
    let copied = Db::open(env.clone(), copy, sharded(by_hand(), &["/disk3/c"])).expect("the copy opens");
    copied.verify(&mut |_, _| {}).expect("verify");
    assert_eq!(contents(&copied), model);
    let mut model = model;
    fill(&copied, &mut model, 500);
    assert_eq!(contents(&copied), model);
    drop(copied);
    assert_eq!(all_files(&fs), before);
    // What can't be linked, because it is on another device, is copied.
    let faulty = FaultFs::new(fs.clone());
    let exdev = 18;
    faulty.add(Rule::every(OpKind::HardLink, Fault::Errno(exdev)).on(A));
    let db = open_on(faulty.clone(), &sharded(by_hand(), &[A, B])).expect("open");
    db.checkpoint(Path::new("/copy2")).expect("checkpoint");
    assert!(faulty.injected() >= 1);
    drop(db);
    let copied = Db::open(env, Path::new("/copy2"), sharded(by_hand(), &[])).expect("the copy opens");
    copied.verify(&mut |_, _| {}).expect("verify");
}

#[test]
fn reading_only_needs_all_directories_and_writes_to_none() {
    let (fs, model) = filled();
    let read =
        |dirs: &[&str]| Db::open_read_only(env_on(fs.clone()), Path::new(DIR), sharded(by_hand(), dirs));
    assert_eq!(kind_of(read(&[A]).map(drop)), ErrorKind::NotFound);
    let before = all_files(&fs);
    let first = read(&[B, A]).expect("read");
    let second = read(&[A, "/nowhere", B]).expect("a second reader");
    assert_eq!((contents(&first), contents(&second)), (model.clone(), model));
    assert_eq!(kind_of(open_on(fs.clone(), &sharded(by_hand(), &[A, B])).map(drop)), ErrorKind::Busy);
    drop((first, second));
    assert_eq!(all_files(&fs), before);
    assert!(!fs.exists(Path::new("/nowhere")).expect("exists"));
}

#[test]
fn orphans_go_from_all_directories_and_strangers_files_stay() {
    let (fs, model) = filled();
    for dir in [A, B] {
        for name in ["000999.sst", "SHARD_DIR.tmp", "notes.txt", "000998.log"] {
            hostile::write_file(fs.as_ref(), &Path::new(dir).join(name), b"orphan");
        }
    }
    let mut model = model;
    let db = open_on(fs.clone(), &sharded(by_hand(), &[A, B])).expect("open");
    for dir in [A, B] {
        let names = fs.list(Path::new(dir)).expect("list");
        let left: Vec<&str> =
            names.iter().map(String::as_str).filter(|name| name.starts_with("000999")).collect();
        assert!(left.is_empty() && !names.contains(&"SHARD_DIR.tmp".to_owned()), "{names:?}");
        assert!(names.contains(&"notes.txt".to_owned()) && names.contains(&"000998.log".to_owned()));
    }
    // The numbers of what was removed are not used again.
    fill(&db, &mut model, 700);
    let newest = [A, B].iter().filter_map(|dir| tables_in(fs.as_ref(), dir).pop_last()).max();
    assert!(newest.expect("a table").as_str() > "000999.sst");
    assert_eq!(contents(&db), model);
}

#[test]
fn destroy_removes_what_is_in_all_directories() {
    let (fs, _) = filled();
    let env = env_on(fs.clone());
    fs.create_dir_all(Path::new("/disk1")).expect("directory");
    let db = open_on(fs.clone(), &sharded(by_hand(), &[A, B])).expect("open");
    assert_eq!(kind_of(Db::destroy(env.as_ref(), Path::new(DIR))), ErrorKind::Busy);
    drop(db);
    // B was moved, and something else lies beside the tables of A.
    fs.rename(Path::new(B), Path::new("/disk2/moved")).expect("rename");
    hostile::write_file(fs.as_ref(), &Path::new(A).join("notes.txt"), b"mine");
    let second = sharded(by_hand(), &["/disk3/c"]);
    drop(Db::open(env.clone(), Path::new("/second"), second.clone()).expect("another database"));
    let foreign = Db::destroy_with(env.as_ref(), Path::new(DIR), &["/disk3/c".into()]);
    assert_eq!(kind_of(foreign), ErrorKind::Foreign);
    assert!(!tables_in(fs.as_ref(), DIR).is_empty(), "nothing was removed");
    Db::destroy_with(env.as_ref(), Path::new(DIR), &["/disk2/moved".into()]).expect("destroy");
    assert!(!fs.exists(Path::new(DIR)).expect("exists"));
    assert!(!fs.exists(Path::new("/disk2/moved")).expect("exists"));
    assert_eq!(fs.list(Path::new(A)).expect("list"), ["notes.txt"]);
    drop(Db::open(env, Path::new("/second"), second).expect("the other one is as it was"));
}

/// A crash at any call of a removal: another one ends it.
#[test]
fn a_removal_that_was_cut_short_can_be_done_again() {
    let (pristine, _) = filled();
    let mut at = 1;
    loop {
        let fs = pristine.crash_image(dialsm_io::CrashPolicy::KeepAll);
        let faulty = FaultFs::new(fs.clone());
        faulty.add(Rule::nth(OpKind::Unlink, at, Fault::Errno(5)));
        let outcome = Db::destroy(env_on(faulty.clone()).as_ref(), Path::new(DIR));
        if faulty.injected() == 0 {
            outcome.expect("no call failed");
            break;
        }
        outcome.expect_err("a call failed");
        Db::destroy(env_on(fs.clone()).as_ref(), Path::new(DIR)).expect("the second one");
        for dir in [DIR, A, B] {
            let left = fs.list(Path::new(dir)).unwrap_or_default();
            assert!(left.iter().all(|name| name == "LOCK"), "call {at}: {dir} holds {left:?}");
        }
        at += 1;
    }
    assert!(at >= 12, "{at} calls only");
}

/// One device is full: writes stop with `NoSpace`, reads go on, and with space writing resumes.
#[test]
fn a_full_device_stops_writes_and_loses_nothing() {
    let fs = SimFs::new(1);
    let faulty = FaultFs::new(fs.clone());
    let options = sharded(tiny(), &[A, B]);
    let db = open_on(faulty.clone(), &options).expect("open");
    let mut model = Model::new();
    let (mut n, mut refusals) = (0u32, 0);
    let mut put_some = |db: &Db, model: &mut Model, count: u32| -> std::result::Result<(), Error> {
        for _ in 0..count {
            n += 1;
            let (key, value) = (n.to_be_bytes().to_vec(), vec![n as u8; 500]);
            db.put(&WriteOptions::default(), &key, &value)?;
            model.insert(key, value);
        }
        Ok(())
    };
    put_some(&db, &mut model, 300).expect("room");
    let enospc = 28;
    faulty.add(Rule::every(OpKind::Write, Fault::Errno(enospc)).on(B));
    for _ in 0..40 {
        match put_some(&db, &mut model, 100) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                refusals += 1;
                break;
            }
        }
    }
    assert_eq!(refusals, 1, "the device is full");
    assert!(faulty.injected() >= 1);
    assert_eq!(contents(&db), model);
    faulty.clear();
    let mut tries = 0;
    while let Err(error) = put_some(&db, &mut model, 1) {
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        tries += 1;
        assert!(tries < 6000, "writing does not resume");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    put_some(&db, &mut model, 300).expect("room again");
    db.flush().expect("flush");
    assert_eq!(contents(&db), model);
    drop(db);
    assert_eq!(contents(&open_on(fs, &options).expect("reopen")), model);
}

/// A random workload beside a model; every few hundred operations the database is reopened, with its
/// directories in another order, and now and then with a new one.
#[test]
fn random_operations_over_three_directories_agree_with_the_model() {
    let mut rng = Rng(7);
    let fs = SimFs::new(7);
    let env: Arc<dyn Env> = env_on(fs.clone());
    let mut dirs = vec![DIR.to_owned(), A.to_owned(), B.to_owned()];
    let mut model = Model::new();
    let (mut deletes, mut ranges, mut compactions) = (0, 0, 0);
    // At one time or another: which shards have tables at the end is the background's to say.
    let mut held = BTreeSet::new();
    for round in 0..12 {
        if round % 4 == 3 {
            dirs.push(format!("/new/{round}"));
        }
        for last in (1..dirs.len()).rev() {
            dirs.swap(last, rng.below(last as u64 + 1) as usize);
        }
        let names: Vec<&str> = dirs.iter().map(String::as_str).collect();
        let mut options = sharded(tiny(), &names);
        options.deferred_sync = round % 3 != 0;
        options.merge_operator = Some(merge_operator::append(b"+"));
        let db = Db::open(env.clone(), Path::new(DIR), options).expect("open");
        assert_eq!(contents(&db), model, "round {round}");
        for _ in 0..700 {
            let key = (rng.below(900) as u32).to_be_bytes().to_vec();
            match rng.below(100) {
                0..70 => {
                    let value = vec![rng.next() as u8; 1 + rng.below(400) as usize];
                    put(&db, &key, &value);
                    model.insert(key, value);
                }
                70..88 => {
                    db.delete(&WriteOptions::default(), &key).expect("delete");
                    model.remove(&key);
                    deletes += 1;
                }
                88..90 => {
                    let mut end = key.clone();
                    end[3] = end[3].saturating_add(9);
                    db.delete_range(&WriteOptions::default(), &key, &end).expect("delete range");
                    model.retain(|k, _| *k < key || *k >= end);
                    ranges += 1;
                }
                _ => assert_eq!(get(&db, &key), model.get(&key).cloned()),
            }
        }
        if round % 2 == 0 {
            db.flush().expect("flush");
            db.compact_range(&Default::default(), None, None).expect("compact");
        }
        compactions += db.compactions();
        assert_eq!(contents(&db), model);
        db.verify(&mut |_, _| {}).expect("verify");
        db.close().expect("close");
        held.extend(dirs.iter().filter(|dir| !tables_in(fs.as_ref(), dir).is_empty()).cloned());
    }
    assert!(deletes >= 800 && ranges >= 80 && compactions >= 30, "{deletes} {ranges} {compactions}");
    assert!(held.len() >= 3, "only {held:?} held tables");
}
