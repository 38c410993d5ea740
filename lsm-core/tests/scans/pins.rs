//! What open iterators hold is told, and is gone when they are.

use std::path::Path;
use std::sync::Arc;

use dialsm_core::{Db, ReadOptions, ScanOptions, WriteOptions};
use dialsm_io::{Env, SimEnv};

use super::{key, open, options};

fn property(db: &Db, name: &str) -> u64 {
    let text = db.property(&format!("dialsm.{name}")).expect("a property");
    text.parse().expect("a number")
}

fn write(db: &Db, byte: u8) {
    for n in 0..300 {
        db.put(&WriteOptions::default(), &key(n), &[byte; 100]).expect("put");
    }
}

#[test]
fn what_iterators_hold_is_counted() {
    let sim = SimEnv::new(5);
    let env: Arc<dyn Env> = sim.clone();
    sim.run(|| {
        let db = open(&env, Path::new("/db"), &options(4, 0, 1));
        let held = |name: &str| property(&db, &format!("pinned-{name}"));
        let all = ["views", "tables", "bytes", "memtables", "memtable-bytes"];
        let none = || all.iter().all(|name| held(name) == 0);
        write(&db, b'a');
        db.flush().expect("flush");
        let iter = db.iter(&ReadOptions::default()).expect("iter");
        assert_eq!(property(&db, "iterators"), 1);
        assert!(none(), "what is published holds nothing back");

        write(&db, b'b');
        let scan = db.scan(&ReadOptions::default(), &ScanOptions::default()).expect("scan");
        assert_eq!(property(&db, "iterators"), 2);
        sim.advance(5_000_000_000);
        let age = property(&db, "oldest-iterator-ms");
        assert!((5000..100_000).contains(&age), "{age} ms");

        db.flush().expect("flush");
        assert!(held("views") >= 1 && held("memtables") >= 4, "{} memtables", held("memtables"));
        assert!(held("memtable-bytes") >= 30_000, "{} bytes", held("memtable-bytes"));
        db.compact_range(&Default::default(), None, None).expect("compact");
        db.wait_until_idle().expect("idle");
        assert!(held("tables") >= 4, "{} tables", held("tables"));
        let bytes = held("bytes");
        assert!(bytes > 3000, "{bytes} bytes");
        assert_eq!(property(&db, "retained-bytes"), 0, "they are not what waits for the disk");

        drop(iter);
        assert_eq!(property(&db, "iterators"), 1);
        drop(scan);
        assert_eq!((property(&db, "iterators"), property(&db, "oldest-iterator-ms")), (0, 0));
        assert!(none());

        // A keyspace that is gone is all in its readers' hands.
        let other = db.create_keyspace("other", db.options().keyspace()).expect("create");
        db.put_in(&WriteOptions::default(), &other, b"key", b"value").expect("put");
        let mut iter = db.iter_in(&ReadOptions::default(), &other).expect("iter");
        db.drop_keyspace(&other).expect("drop");
        assert!(held("memtables") >= 1);
        iter.seek_to_first().expect("seek");
        assert_eq!(iter.value(), b"value");
        drop(iter);
        assert!(none());
    });
}
