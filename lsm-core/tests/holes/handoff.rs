//! H8, H11, H23, H33, H35: tables that readers use before they are durable.
//!
//! The syncs of new tables stand still until the test lets each go, by name. A *round* is two flushes and
//! the compaction that they call for, which also takes what the round before has made.

use std::collections::BTreeMap;

use dialsm_core::{CompactRangeOptions, Db, FlushOptions, Options, WriteOptions};
use dialsm_io::{CrashPolicy, Fault, OpKind, Rule};

use crate::bench::{
    Bench, CUTS, EIO, ENOSPC, Holding, Model, SECOND, by_hand, contents, files_at, get, is, live_files,
    number, synced,
};

pub(crate) const BEGIN: FlushOptions = FlushOptions { wait: false, allow_stall: true, atomic: false };

pub(crate) fn options() -> Options {
    // One table is what a compaction makes.
    Options { automatic_compaction: true, level0_compaction_trigger: 2, table_bytes: 4 << 20, ..by_hand() }
}

/// A database in rounds.
pub(crate) struct Rounds<'a> {
    bench: &'a Bench,
    options: Options,
    pub(crate) model: Model,
    value_bytes: usize,
    written: u8,
    // Dropped in this order: what stands still goes on before the database is closed.
    pub(crate) holds: Holding,
    pub(crate) db: Db,
    seen: Vec<String>,
}

impl<'a> Rounds<'a> {
    /// With a table at the bottom, so that none is moved there as it is.
    pub(crate) fn new(bench: &'a Bench, options: Options, value_bytes: usize) -> Rounds<'a> {
        let db = bench.open(&options);
        let holds = bench.hold_syncs();
        holds.set(false);
        let model = Model::new();
        let mut rounds =
            Rounds { bench, options, model, value_bytes, written: 0, holds, db, seen: Vec::new() };
        rounds.write();
        rounds.db.compact_range(&CompactRangeOptions::default(), None, None).expect("compact");
        bench.tidy(&rounds.db);
        assert_eq!(bench.names(".sst").len(), 1);
        rounds.holds.set(true);
        rounds
    }

    pub(crate) fn write(&mut self) {
        self.written += 1;
        for i in 0..40u8 {
            let value = vec![self.written; self.value_bytes];
            self.db.put(&synced(), &[i], &value).expect("put");
            self.model.insert(vec![i], value);
        }
    }

    /// The next table whose sync comes.
    pub(crate) fn next(&mut self) -> String {
        let fresh = || self.holds.names().into_iter().find(|name| !self.seen.contains(name));
        self.bench.wait_for("the sync of another table", || fresh().is_some());
        let name = fresh().expect("just seen");
        self.seen.push(name.clone());
        name
    }

    /// A flush, durable when this returns.
    pub(crate) fn flush(&mut self) -> String {
        self.write();
        self.db.flush_with(&BEGIN).expect("flush");
        let name = self.next();
        self.holds.let_go(&name);
        name
    }

    /// A round: its two tables of L0, and the output, live and not durable.
    pub(crate) fn round(&mut self) -> ([String; 2], String) {
        let flushed = [self.flush(), self.flush()];
        let output = self.next();
        self.bench.wait_for("the output is live", || {
            live_files(&self.db) == 1 && number(&self.db, "dialsm.running-compactions") == 0
        });
        (flushed, output)
    }

    pub(crate) fn tables(&self) -> Vec<String> {
        self.bench.names(".sst")
    }

    /// The tables that the manifest on disk names.
    fn durable_tables(&self) -> Vec<String> {
        let cut = self.bench.cut(CrashPolicy::DropUnsynced);
        // An opening removes what nothing names; it has nothing to flush.
        let db = cut.open(&Options { automatic_compaction: false, ..self.options.clone() });
        assert!(number(&db, "dialsm.num-immutable-memtables") == 0);
        cut.names(".sst")
    }

    pub(crate) fn check(&self, when: &str) {
        assert!(contents(&self.db) == self.model, "{when}");
        let by_hand = Options { automatic_compaction: false, ..self.options.clone() };
        for policy in CUTS {
            let cut = self.bench.cut(policy);
            let db = cut.try_open(&by_hand).unwrap_or_else(|error| panic!("{when}: {policy:?}: {error}"));
            db.verify(&mut |_, _| {}).expect("verify");
            assert!(contents(&db) == self.model, "{when}: {policy:?}");
        }
    }
}

fn sorted(names: &[&[String]]) -> Vec<String> {
    let mut all = names.concat();
    all.sort();
    all
}

/// Three outputs, each made from the one before, none durable. The second becomes so: the durable version
/// goes there in one step, over the first, whose own sync is of no interest any more; and no further.
#[test]
fn h08_the_durable_version_jumps_from_state_to_state() {
    Bench::run(|bench| {
        let mut rounds = Rounds::new(bench, options(), 500);
        let seed = rounds.tables();
        let (one, first) = rounds.round();
        rounds.check("one output waits");
        let (two, second) = rounds.round();
        rounds.check("two outputs wait");
        let (three, third) = rounds.round();
        rounds.check("three outputs wait");
        let outputs = [first.clone(), second.clone(), third.clone()];
        let all_flushed = sorted(&[&seed, &one, &two, &three]);
        assert_eq!(rounds.tables(), sorted(&[&all_flushed, &outputs]), "nothing may go yet");
        assert_eq!(rounds.durable_tables(), all_flushed, "flushes go ahead, outputs do not");
        rounds.holds.let_go(&second);
        bench.sleep(SECOND);
        let left = sorted(&[&three, std::slice::from_ref(&second)]);
        assert_eq!(rounds.durable_tables(), left, "over the first, whose sync has not come back");
        rounds.check("the second is durable");
        rounds.holds.let_go(&first);
        bench.sleep(SECOND);
        assert_eq!(rounds.durable_tables(), left);
        assert_eq!(
            rounds.tables(),
            sorted(&[&left, std::slice::from_ref(&third)]),
            "what the third was made of stays"
        );
        rounds.check("the sync of the first came late");
        rounds.holds.let_go(&third);
        bench.wait_for("the jump to the third", || rounds.tables() == [third.clone()]);
        rounds.check("the third is durable");
    });
}

/// There is always one output that is not durable: each becomes so only when the next one is there. The
/// durable version follows all the same, one state behind, and what is retained does not grow.
#[test]
fn h35_the_durable_version_follows_though_the_newest_state_never_is() {
    Bench::run(|bench| {
        let mut rounds = Rounds::new(bench, options(), 500);
        let (_, mut before) = rounds.round();
        for n in 0..8 {
            let (flushed, output) = rounds.round();
            rounds.holds.let_go(&before);
            let left = sorted(&[&flushed, &[before.clone(), output.clone()]]);
            bench.wait_for("the durable version follows", || rounds.tables() == left);
            if n % 3 == 0 {
                rounds.check("one state behind");
            }
            before = output;
        }
    });
}

/// The sync of an output fails when what was made of it is durable: nothing needs it, and making it again
/// would bring old versions back.
#[test]
fn h23_a_failed_output_that_was_consumed_is_not_made_again() {
    Bench::run(|bench| {
        let mut rounds = Rounds::new(bench, options(), 500);
        bench.faults.add(Rule::nth(OpKind::Sync, 3, Fault::ErrnoAfter(EIO)).on(".sst"));
        let (_, first) = rounds.round();
        let (_, second) = rounds.round();
        rounds.holds.let_go(&second);
        bench.sleep(SECOND);
        assert_eq!(rounds.durable_tables(), std::slice::from_ref(&second));
        rounds.holds.let_go(&first);
        bench.sleep(SECOND);
        assert_eq!(bench.faults.injected(), 1);
        assert_eq!(rounds.db.metrics().counters.tables_redone, 0);
        assert_eq!(rounds.tables(), [second]);
        rounds.check("a sync failed that nobody needs");
        rounds.holds.set(false);
        rounds.write();
        rounds.db.flush().expect("writes go on");
        rounds.check("later");
    });
}

/// The sync of an output fails while it is live, and newer data lie above it: it is made again from its
/// inputs, where it stands, under a new number.
#[test]
fn h23_a_failed_output_that_is_live_is_made_again_in_its_place() {
    for fault in [Fault::Errno(EIO), Fault::ErrnoAfter(EIO)] {
        Bench::run(|bench| {
            let mut rounds = Rounds::new(bench, options(), 500);
            bench.faults.add(Rule::nth(OpKind::Sync, 3, fault).on(".sst"));
            let held = fault == Fault::ErrnoAfter(EIO);
            let failed = if held {
                let (_, first) = rounds.round();
                // Above it by now; too few for another compaction.
                rounds.db.delete(&synced(), &[7]).expect("delete");
                rounds.model.remove(&vec![7]);
                rounds.db.put(&synced(), &[8], b"new").expect("put");
                rounds.model.insert(vec![8], b"new".to_vec());
                rounds.db.flush_with(&BEGIN).expect("flush");
                let above = rounds.next();
                rounds.holds.let_go(&above);
                rounds.check("before it fails");
                rounds.holds.let_go(&first);
                Some(first)
            } else {
                let _ = [rounds.flush(), rounds.flush()];
                None
            };
            let again = rounds.next();
            rounds.check("while it is being made again");
            rounds.holds.let_go(&again);
            bench.wait_for("its place is taken", || {
                rounds.db.metrics().counters.tables_redone == 1
                    && rounds.tables().len() as u64 == live_files(&rounds.db)
            });
            let tables = rounds.tables();
            assert!(
                tables.contains(&again) && failed.is_none_or(|failed| !tables.contains(&failed)),
                "{tables:?}"
            );
            assert_eq!(get(&rounds.db, &[7]).is_none(), held, "it brings nothing back");
            rounds.check("made again");
            rounds.holds.set(false);
            rounds.write();
            rounds.db.flush().expect("writes go on");
            rounds.check("later");
        });
    }
}

/// The sync of a flushed table fails, and the log has nothing of it: the memtable was kept.
#[test]
fn h23_a_failed_flush_is_made_again_from_its_memtable() {
    Bench::run(|bench| {
        let db = bench.open(&by_hand());
        let unlogged = WriteOptions { disable_log: true, ..WriteOptions::default() };
        for i in 0..40u8 {
            db.put(&unlogged, &[i], &[i; 500]).expect("put");
        }
        let holds = bench.hold_syncs();
        bench.faults.add(Rule::nth(OpKind::Sync, 1, Fault::ErrnoAfter(EIO)).on(".sst"));
        db.flush_with(&BEGIN).expect("flush");
        bench.wait_for("its sync comes", || holds.names().len() == 1 && files_at(&db, 0) == 1);
        holds.set(false);
        // A newer table above it: it must not be put above that one.
        db.put(&unlogged, &[3], b"new").expect("put");
        db.flush_with(&BEGIN).expect("flush");
        bench.wait_for("another flush", || files_at(&db, 0) == 2);
        let model = contents(&db);
        holds.let_go(&holds.names()[0]);
        let failed = holds.names()[0].clone();
        bench.wait_for("its place is taken", || !bench.names(".sst").contains(&failed));
        assert_eq!((db.metrics().counters.tables_redone, files_at(&db, 0)), (1, 2));
        // A look-up stops at the first table that has the key.
        assert_eq!(get(&db, &[3]).as_deref(), Some(b"new".as_slice()));
        assert!(contents(&db) == model);
        db.flush().expect("flush");
        assert_eq!(bench.faults.injected(), 1);
        for policy in CUTS {
            let db = bench.cut(policy).open(&by_hand());
            db.verify(&mut |_, _| {}).expect("verify");
            assert!(contents(&db) == model, "{policy:?}");
        }
        db.put(&synced(), b"more", b"v").expect("writes go on");
    });
}

/// The writes of a table stand still: it is not live, and no sync of it is asked for. Then one fails.
#[test]
fn h11_a_table_is_live_when_its_writes_are_over() {
    Bench::run(|bench| {
        let db = bench.open(&by_hand());
        (0..40u8).for_each(|i| db.put(&synced(), &[i], &[i; 500]).expect("put"));
        let model = contents(&db);
        bench.disk().set_tracing(true);
        let door = bench.door_on(OpKind::Write, ".sst");
        db.flush_with(&BEGIN).expect("flush");
        door.wait_for_one();
        bench.sleep(SECOND);
        let is_out = |what: &str| {
            assert_eq!((files_at(&db, 0), number(&db, "dialsm.num-immutable-memtables")), (0, 1), "{what}");
            assert!(contents(&db) == model, "{what}");
            assert!(!bench.disk().trace().iter().any(|call| is(call, OpKind::Sync, ".sst")), "{what}");
        };
        is_out("its writes stand still");
        // The next one, for it is made again: half of a write gets there.
        bench.faults.add(Rule::nth(OpKind::Write, 2, Fault::TornWrite(100, ENOSPC)).on(".sst"));
        door.open();
        db.flush().expect("flush");
        assert_eq!(files_at(&db, 0), 1);
        (40..80u8).for_each(|i| db.put(&synced(), &[i], &[i; 500]).expect("put"));
        let model = contents(&db);
        let _ = db.flush();
        bench.sleep(2 * SECOND);
        db.flush().expect("space is back");
        assert!(contents(&db) == model);
        bench.tidy(&db);
        assert_eq!(bench.names(".sst").len() as u64, live_files(&db), "the torn one is gone");
        assert!(contents(&bench.cut(CrashPolicy::DropUnsynced).open(&by_hand())) == model);
    });
}

/// Writes and syncs that the disk does in any order: no byte of a table is written behind its sync.
#[test]
fn h11_a_sync_covers_all_of_its_table() {
    Bench::run_seed(5, |bench| {
        let db = bench.open(&Options { use_io_uring: true, ..options() });
        bench.disk().set_tracing(true);
        for round in 0..24u8 {
            (0..40u8).for_each(|i| db.put(&synced(), &[i], &[round; 800]).expect("put"));
            db.flush_with(&BEGIN).expect("flush");
            bench.sleep(1_000_000);
        }
        db.flush().expect("flush");
        db.wait_until_idle().expect("idle");
        let mut syncs: BTreeMap<_, u64> = BTreeMap::new();
        for call in bench.disk().trace() {
            if is(&call, OpKind::Sync, ".sst") {
                *syncs.entry(call.path).or_insert(0) += 1;
            } else if is(&call, OpKind::Write, ".sst") || is(&call, OpKind::SetLen, ".sst") {
                assert!(!syncs.contains_key(&call.path), "written behind its sync: {call:?}");
            }
        }
        assert!(syncs.len() >= 24 && syncs.values().all(|n| *n == 1), "{syncs:?}");
    });
}

/// At the bound of what may be retained compactions wait for the disk. Writes, flushes and reads go on,
/// and when the disk has answered, so do the compactions.
#[test]
fn h33_at_the_retention_bound_only_compactions_wait() {
    Bench::run(|bench| {
        let options = Options { retained_bytes_max: 1 << 20, background_jobs_max: 2, ..options() };
        let mut rounds = Rounds::new(bench, options, 10_000);
        let (_, first) = rounds.round();
        // Its inputs are more than the bound; the next compaction is due, and would retain more.
        for n in 1..5 {
            rounds.flush();
            bench.wait_for("flushes go on", || files_at(&rounds.db, 0) == n);
        }
        bench.sleep(SECOND);
        let names = rounds.holds.names();
        assert!(
            names.iter().all(|name| rounds.seen.contains(name)),
            "no compaction has an output: {names:?}"
        );
        assert_eq!((files_at(&rounds.db, 0), number(&rounds.db, "dialsm.running-compactions")), (4, 0));
        rounds.db.put(&synced(), &[3], b"v").expect("writes go on");
        rounds.model.insert(vec![3], b"v".to_vec());
        rounds.check("at the bound");
        rounds.holds.let_go(&first);
        let second = rounds.next();
        bench.wait_for("the compaction goes on", || live_files(&rounds.db) == 1);
        rounds.holds.let_go(&second);
        rounds.db.wait_until_idle().expect("idle");
        rounds.check("behind the bound");
    });
}
