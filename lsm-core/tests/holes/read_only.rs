//! H39: openings for reading only.

use std::path::Path;

use dialsm_core::{Db, ErrorKind, Options};
use dialsm_io::{Access, CrashPolicy, Fs, OpKind};

use crate::bench::{Bench, DIR, Model, by_hand, contents, get, number, put, synced};

fn read_only(bench: &Bench, options: &Options) -> dialsm_core::Result<Db> {
    Db::open_read_only(bench.env.clone(), Path::new(DIR), options.clone())
}

/// Views of another process are invisible to the owner, who would unlink and recycle under its feet. So
/// one excludes the other.
#[test]
fn h39_readers_and_a_writer_exclude_each_other() {
    Bench::run(|bench| {
        let db = bench.open(&by_hand());
        put(&db, b"k", b"v");
        assert_eq!(
            read_only(bench, &by_hand()).map(drop).expect_err("a writer has it").kind(),
            ErrorKind::Busy
        );
        drop(db);
        let readers = [0; 2].map(|_| read_only(bench, &by_hand()).expect("two readers"));
        assert_eq!(
            bench.try_open(&by_hand()).map(drop).expect_err("readers have it").kind(),
            ErrorKind::Busy
        );
        assert!(readers.iter().all(|db| get(db, b"k").is_some()));
        let [one, two] = readers;
        drop(one);
        bench.try_open(&by_hand()).map(drop).expect_err("one reader is left");
        drop(two);
        bench.open(&by_hand());
    });
}

/// The log is torn, and longer than all memtables: an opening that writes cuts it off, syncs it and
/// flushes what it replays; one that reads leaves every byte where it is, and finds the same.
#[test]
fn h39_reading_cuts_syncs_and_flushes_nothing() {
    Bench::run(|bench| {
        let db = bench.open(&by_hand());
        let mut model = Model::new();
        for i in 0..200u8 {
            put(&db, &[i], &[i; 2000]);
            model.insert(vec![i], vec![i; 2000]);
        }
        assert!(number(&db, "dialsm.log-bytes") > 6 * (64 << 10));
        let killed = bench.cut(CrashPolicy::KeepAll);
        let newest = killed.names(".log").pop().expect("a log");
        let log = killed.disk().open(&Path::new(DIR).join(&newest), Access::ReadWrite).expect("open");
        // Half a record behind the end.
        log.write_at(&[0x5a; 100], log.len().expect("length")).expect("write");
        drop(log);
        let listing = |bench: &Bench| -> Vec<(String, u64)> {
            let length = |name: &String| {
                let file = bench.disk().open(&Path::new(DIR).join(name), Access::Read).expect("open");
                file.len().expect("length")
            };
            let names = bench.names("");
            names.iter().map(|name| (name.clone(), length(name))).collect()
        };
        let before = listing(&killed);
        let small = Options { write_buffer_bytes: 64 << 10, ..by_hand() };
        killed.disk().set_tracing(true);
        let db = read_only(&killed, &small).expect("open");
        assert!(contents(&db) == model);
        assert_eq!(number(&db, "dialsm.num-files-at-level0"), 0, "replay has flushed");
        let refused = [db.put(&synced(), b"k", b"v"), db.flush(), db.sync()];
        assert!(refused.iter().all(|r| r.as_ref().is_err_and(|e| e.kind() == ErrorKind::ReadOnly)));
        db.close().expect("close");
        drop(db);
        let reading = [OpKind::Open, OpKind::Read, OpKind::List, OpKind::Lock];
        let trace = killed.disk().trace();
        let changing: Vec<_> =
            trace.iter().filter(|c| !c.op.is_some_and(|op| reading.contains(&op))).collect();
        assert!(changing.is_empty() && trace.len() > 10, "{changing:?}");
        killed.disk().set_tracing(false);
        assert_eq!(listing(&killed), before);
        let db = killed.open(&small);
        assert!(contents(&db) == model);
        assert_ne!(listing(&killed), before, "there was something to do for one that writes");
    });
}
