//! What the boundary promises: panics stay inside and poison one database, handles hold theirs open.

use std::sync::Arc;

use dialsm::{AssociativeOperator, ErrorKind, Options};
use dialsm_capi_logic::{Code, Database, Entries, Iter, OptionSet, Status, guard};
use dialsm_core::merge_operator;
use dialsm_core::routing::{Router, RouterObject, ShardState};

/// Panics at one key; else one shard is as good as another.
struct Broken;

const BAD: &[u8] = b"bad";

impl Router for Broken {
    fn place(&self, _: &[u8; 16], _: u16, key: &[u8]) -> u16 {
        assert!(key != BAD, "the router met the bad key");
        0
    }

    fn fallback(&self, _: u16, _: &[ShardState]) -> Option<u16> {
        None
    }

    fn shards_by_default(&self, _: usize) -> u16 {
        2
    }
}

fn broken_options() -> OptionSet {
    let mut options = OptionSet::of_database();
    *options.options_mut() =
        Options { router: Some(RouterObject(Arc::new(Broken))), shards: 2, ..Options::default() };
    options
}

fn open(dir: &tempfile::TempDir, options: Option<&OptionSet>) -> Database {
    Database::open(dir.path().to_str().unwrap(), options).unwrap()
}

fn get(db: &Database, key: &[u8], status: &mut Status) -> Code {
    guard::on(Some(db), Some(status), |db| db.get(None, None, key).map(drop))
}

#[test]
fn a_panic_poisons_its_database_only() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (broken, sound) = (open(&one, Some(&broken_options())), open(&two, None));
    let mut status = Status::default();
    broken.put(None, None, b"good", b"value").unwrap();
    let mut iter: Option<Box<Iter>> = Some(Box::new(broken.iter(None, None).unwrap()));
    assert_eq!(
        guard::on_mut(iter.as_deref_mut(), None, |cursor| cursor.go(|it| it.seek_to_first())),
        Code::DIALSM_OK
    );
    assert!(iter.as_ref().unwrap().valid());

    assert_eq!(get(&broken, BAD, &mut status), Code::DIALSM_INTERNAL);
    assert!(status.message().to_str().unwrap().contains("the router met the bad key"), "{status:?}");
    assert_eq!(get(&broken, b"good", &mut status), Code::DIALSM_POISONED);
    assert_eq!(guard::on(Some(&broken), None, Database::close), Code::DIALSM_POISONED);
    assert_eq!(
        guard::on_mut(iter.as_deref_mut(), None, |cursor| cursor.go(|it| it.next())),
        Code::DIALSM_POISONED
    );
    assert!(!iter.as_ref().unwrap().valid() && iter.as_ref().unwrap().key().is_none());

    assert_eq!(get(&sound, BAD, &mut status), Code::DIALSM_OK);
    guard::free(iter);
    guard::free(Some(Box::new(broken)));

    // Nothing that was written is lost.
    let mut options = broken_options();
    options.options_mut().create_if_missing = false;
    let again = open(&one, Some(&options));
    assert_eq!(again.get(None, None, b"good").unwrap().as_deref(), Some(&b"value"[..]));
}

#[test]
fn a_panic_without_a_database_is_a_status() {
    let mut status = Status::default();
    let code = guard::run(Some(&mut status), || panic!("number {}", 7));
    assert_eq!((code, status.code()), (Code::DIALSM_INTERNAL, Code::DIALSM_INTERNAL));
    assert_eq!(status.message(), c"the call panicked: number 7");
    assert_eq!(guard::run(Some(&mut status), || Ok(())), Code::DIALSM_OK);
    assert_eq!(status.message(), c"");
}

/// What a panic throws may panic when it is dropped.
#[test]
fn what_was_thrown_may_throw_again() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("again");
        }
    }
    let code = guard::run(None, || std::panic::panic_any(Bomb));
    assert_eq!(code, Code::DIALSM_INTERNAL);
    guard::free(Some(Box::new(Bomb)));
}

#[test]
fn handles_outlive_the_database_handle() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let db = open(&dir, None);
    db.put(None, None, b"k", b"v").unwrap();
    let (iter, snapshot) = (db.iter(None, None).unwrap(), db.snapshot().unwrap());
    let (scan, keyspace) = (db.scan(None, None, None).unwrap(), db.create_keyspace("k", None).unwrap());
    drop(db);
    let busy = || assert_eq!(Database::open(path, None).err().map(|e| e.kind()), Some(ErrorKind::Busy));
    busy();
    drop(iter);
    busy();
    drop(scan);
    busy();
    drop(keyspace);
    busy();
    drop(snapshot);
    Database::open(path, None).unwrap();
}

/// Makes nothing of anything.
struct Refuses;

impl AssociativeOperator for Refuses {
    fn name(&self) -> &str {
        "refuses"
    }

    fn combine(&self, _: &[u8], _: Option<&[u8]>, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// A batch that ends with an error is not followed by one that says that the keys end there.
#[test]
fn an_iterator_that_failed_says_so_until_it_moves() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = OptionSet::of_database();
    let refuses = merge_operator::associative(Box::new(Refuses));
    *options.options_mut() = Options { merge_operator: Some(refuses), ..Options::default() };
    let db = open(&dir, Some(&options));
    for key in [b"1", b"2", b"4", b"5"] {
        db.put(None, None, key, b"value").unwrap();
    }
    db.put(None, None, b"3", b"first").unwrap();
    db.merge(None, None, b"3", b"second").unwrap();
    let mut iter = db.iter(None, None).unwrap();
    let mut entries = Entries::default();
    let code = guard::on_mut(Some(&mut iter), None, |cursor| {
        cursor.go(|it| it.seek_to_first())?;
        for there in [2, 0, 0] {
            assert_eq!(cursor.next_batch(&mut entries, 100, 0).unwrap_err().kind(), ErrorKind::Callback);
            assert_eq!(entries.len(), there);
        }
        cursor.go(|it| it.seek(b"4"))?;
        cursor.next_batch(&mut entries, 100, 0)?;
        assert_eq!(entries.len(), 2);
        cursor.next_batch(&mut entries, 100, 0)?;
        assert!(entries.is_empty(), "the end");
        Ok(())
    });
    assert_eq!(code, Code::DIALSM_OK);
}
