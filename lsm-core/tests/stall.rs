//! Stalls on the simulated clock, each cause forced by a file call that takes its time. The clock
//! moves only when everybody waits, so counts and nanoseconds are exact.

// Times are exact to the nanosecond, and the checks of this feature read files, which takes time.
#![cfg(not(feature = "invariants"))]
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

mod common;

use std::sync::Arc;

use common::{DIR, open, tiny, unsynced};
use dialsm_core::{Db, ErrorKind, Options, ReadOptions, StallCause, WriteBatch, WriteOptions};
use dialsm_io::{Env, Fault, FaultFs, Fs, OpKind, Rule, SimEnv};

/// Near enough, and no multiple of the 20 ms after which a stopped writer looks again by itself:
/// a wake-up that does not come shows.
const SECOND: u64 = 1_000_000_007;
const MIB: u64 = 1 << 20;

struct Bench {
    env: Arc<SimEnv>,
    faults: Arc<FaultFs>,
}

impl Bench {
    fn new() -> Bench {
        let root = SimEnv::new(7);
        let faults = FaultFs::new(root.sim_fs().clone());
        let seen: Arc<dyn Fs> = faults.clone();
        let env = root.on_fs(root.sim_fs().clone(), seen);
        let clock = root;
        faults.set_sleeper(Arc::new(move |nanos| clock.sleep(nanos)));
        Bench { env, faults }
    }

    /// The first compaction from now on takes this long: it alone opens tables.
    fn slow_compaction(&self, nanos: u64) {
        self.faults.add(Rule::nth(OpKind::Open, 1, Fault::Delay(nanos)).on(".sst"));
    }

    /// The first flush from now on takes this long to write its table. (Its sync is nobody's wait.)
    fn slow_flush(&self, nanos: u64) {
        self.faults.add(Rule::nth(OpKind::Write, 1, Fault::Delay(nanos)).on(".sst"));
    }

    fn open(&self, options: &Options) -> Db {
        // Asynchronous I/O takes time of its own in the simulation, and the clock is looked at here.
        open(&self.env, &Options { deferred_sync: false, ..options.clone() }).expect("open")
    }
}

/// Level 0 settings that leave only this slowdown and stop mark.
fn level0(slowdown: usize, stop: usize) -> Options {
    Options {
        level0_slowdown_trigger: slowdown,
        level0_stop_trigger: stop,
        // Compactions begin where the tests expect them.
        level0_patience: false,
        ..tiny()
    }
}

/// Pending bytes as the only cause.
fn pending(soft: u64, hard: u64) -> Options {
    let level0 = level0(1000, 1000);
    Options { pending_compaction_soft_bytes: soft, pending_compaction_hard_bytes: hard, ..level0 }
}

fn put(db: &Db, key: &str, bytes: usize) {
    db.put(&unsynced(), key.as_bytes(), &vec![b'v'; bytes]).expect("put");
}

/// Makes so many runs in level 0. They share a key, or a compaction would only move them.
fn flushes(db: &Db, count: usize, bytes: usize) {
    for _ in 0..count {
        put(db, "run", bytes);
        db.flush().expect("flush");
    }
}

/// Makes runs until the property is 1.
fn flush_until(db: &Db, name: &str) {
    for _ in 0..100 {
        flushes(db, 1, 100);
        if property(db, name) == 1 {
            return;
        }
    }
    panic!("{name} never comes true");
}

/// Exactly these stalls so far, all of one cause.
fn assert_stalls(db: &Db, cause: StallCause, count: u64, total_ns: u64) {
    let report = db.stalls();
    assert_eq!((report.all.count, report.all.total_ns), (count, total_ns), "all causes");
    for other in StallCause::ALL {
        let times = report.by_cause[other as usize];
        let expected = if other == cause { (count, total_ns) } else { (0, 0) };
        assert_eq!((times.count, times.total_ns), expected, "{}", other.as_str());
    }
}

fn property(db: &Db, name: &str) -> u64 {
    db.property(name).expect("known").parse().expect("a number")
}

/// What the clock charges a write of `bytes` at `pressure`.
fn cost(options: &Options, bytes: usize, pressure: f64) -> u64 {
    let pace = options.delayed_write_bytes_per_s as f64 * 32f64.powf(1.0 - pressure);
    (bytes as f64 / pace * 1e9) as u64
}

fn batch_of(key: &str, bytes: usize) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(key.as_bytes(), &vec![b'v'; bytes]).expect("put");
    batch
}

/// Fills memtables until the next write has to wait for the flush that is under way.
fn fill_memtables(db: &Db) {
    let mut i = 0;
    while property(db, "dialsm.is-write-stopped") == 0 {
        put(db, &format!("fill {i}"), 3000);
        i += 1;
        assert!(i < 1000, "the memtables never fill");
    }
}

#[test]
fn memtables_stop_writers_until_the_flush_is_done() {
    let bench = Bench::new();
    bench.env.run(|| {
        let db = bench.open(&Options { write_buffers_max: 2, ..tiny() });
        bench.slow_flush(SECOND);
        fill_memtables(&db);
        assert_eq!((bench.env.now(), db.stalls().all.count), (0, 0));
        // Two writers wait; the second comes 0.3 s later. One interval, two waits.
        let (env, other) = (bench.env.clone(), db.clone());
        let late = move || {
            env.sleep(3 * SECOND / 10);
            put(&other, "late", 10);
        };
        let late = bench.env.spawn("late", Box::new(late)).expect("spawn");
        put(&db, "waits", 10);
        assert_eq!(bench.env.now(), SECOND);
        late.join();
        assert_stalls(&db, StallCause::Memtable, 1, SECOND);
        let waits = db.metrics();
        let waits = waits.stall(StallCause::Memtable);
        assert_eq!((waits.count, waits.ns), (2, SECOND + (SECOND - 3 * SECOND / 10)));
        put(&db, "free", 10);
        assert_eq!(bench.env.now(), SECOND);
    });
}

/// A writer that is faster than the flush used to fill its memtable at once and then to wait for all
/// of the flush.
#[test]
fn a_flush_lets_writers_go_on_as_it_gets_on() {
    let bench = Bench::new();
    bench.env.run(|| {
        let options = Options { write_buffers_max: 2, write_buffer_bytes: 8 * MIB, ..tiny() };
        let db = bench.open(&options);
        // Eight writes a table, each as long as the next.
        bench.faults.add(Rule::every(OpKind::Write, Fault::Delay(SECOND / 8)).on(".sst"));
        let tables_before = db.metrics().counters.flushes;
        for i in 0..40_000 {
            put(&db, &format!("{i:08}"), 1000);
        }
        let flushes = db.metrics().counters.flushes - tables_before;
        let stalls = db.stalls().by_cause[StallCause::Memtable as usize];
        assert!(flushes >= 3, "{flushes}");
        // Nothing is lost by it: the writer still takes just as long as the flushes.
        assert!(stalls.total_ns > (flushes - 1) * SECOND / 2, "{stalls:?} over {flushes} flushes");
        assert!(stalls.longest_ns < SECOND / 2, "{stalls:?}");
        assert!(stalls.count > 3 * flushes, "{stalls:?} over {flushes} flushes");
    });
}

#[test]
fn a_running_stall_is_reported_while_it_lasts() {
    let bench = Bench::new();
    bench.env.run(|| {
        let db = bench.open(&Options { write_buffers_max: 2, ..tiny() });
        bench.slow_flush(SECOND);
        fill_memtables(&db);
        let waiting = db.clone();
        let writer = bench.env.spawn("writer", Box::new(move || put(&waiting, "waits", 10))).expect("spawn");
        bench.env.sleep(SECOND / 4);
        assert_stalls(&db, StallCause::Memtable, 1, SECOND / 4);
        writer.join();
        assert_stalls(&db, StallCause::Memtable, 1, SECOND);
    });
}

#[test]
fn level_0_stops_writers_until_a_compaction_is_done() {
    let bench = Bench::new();
    bench.env.run(|| {
        let db = bench.open(&level0(4, 4));
        bench.slow_compaction(2 * SECOND);
        flush_until(&db, "dialsm.is-write-stopped");
        assert_eq!((bench.env.now(), property(&db, "dialsm.num-files-at-level0")), (0, 4));
        put(&db, "waits", 100);
        assert_eq!(bench.env.now(), 2 * SECOND);
        assert_stalls(&db, StallCause::Level0, 1, 2 * SECOND);
    });
}

/// What a stall model is fed with.
#[test]
fn what_a_compaction_takes_from_level_0_and_leaves_of_it_is_counted_with_its_time() {
    let bench = Bench::new();
    bench.env.run(|| {
        let compression_bottom = dialsm_core::options::Compression::None;
        let options = Options { level0_compaction_trigger: 4, compression_bottom, ..level0(40, 40) };
        let db = bench.open(&options);
        // Something below, or the oldest table would only be moved there.
        [0, 9].iter().for_each(|i| put(&db, &format!("{i}"), 100));
        db.flush().expect("flush");
        db.compact_range(&Default::default(), None, None).expect("compact");
        let before = db.metrics();
        bench.slow_compaction(2 * SECOND);
        // The same 10 values of 100 bytes each time: three quarters of the bytes are older versions.
        for _ in 0..4 {
            (0..10).for_each(|i| put(&db, &format!("{i}"), 100));
            db.flush().expect("flush");
        }
        let flushed = db.metrics().counters;
        let flush_bytes = flushed.flush_bytes - before.counters.flush_bytes;
        assert_eq!((flushed.flushes, flushed.flush_input_bytes), (5, (4 * 10 + 2) * 101));
        bench.env.sleep(3 * SECOND);
        let metrics = db.metrics();
        let [level0, below @ ..] = &metrics.levels;
        let [level0_before, below_before @ ..] = &before.levels;
        let drained = level0.drained_bytes - level0_before.drained_bytes;
        assert_eq!((drained, level0.drain_ns - level0_before.drain_ns), (flush_bytes, 2 * SECOND));
        let written: u64 = below.iter().map(|level| level.compaction_write_bytes).sum();
        let written_before: u64 = below_before.iter().map(|level| level.compaction_write_bytes).sum();
        let grown = written - written_before - before.counters.flush_bytes;
        assert_eq!(level0.survived_bytes - level0_before.survived_bytes, grown);
        assert!(grown > 0 && grown < drained / 2, "{grown} of {drained}");
        assert!(below.iter().all(|level| level.drained_bytes == 0), "nothing went deeper");
    });
}

#[test]
fn level_0_slows_writers_to_the_pace_of_its_pressure() {
    let bench = Bench::new();
    bench.env.run(|| {
        let options = level0(4, 12);
        let db = bench.open(&options);
        bench.slow_compaction(1000 * SECOND);
        flush_until(&db, "dialsm.is-write-delayed");
        let mut expected = 0;
        for i in 0..5 {
            let batch = batch_of(&format!("slow {i}"), 900);
            // The first finds its slot free and leaves the line longer for the next.
            expected += if i == 0 { 0 } else { cost(&options, batch.byte_size(), 0.0) };
            db.write(&unsynced(), batch).expect("write");
            assert_eq!(bench.env.now(), expected);
        }
        assert_stalls(&db, StallCause::Level0, 4, expected);
        // A run more, an eighth of the way to the stop mark: slower.
        db.flush().expect("flush");
        let (began, batch) = (bench.env.now(), batch_of("first at the new pace", 900));
        let bytes = batch.byte_size();
        db.write(&unsynced(), batch).expect("write");
        let waited_at_old_pace = bench.env.now();
        assert!(waited_at_old_pace > began);
        db.write(&unsynced(), batch_of("first at the new pace", 900)).expect("write");
        assert_eq!(bench.env.now() - waited_at_old_pace, cost(&options, bytes, 1.0 / 8.0));
        assert!(cost(&options, bytes, 1.0 / 8.0) > cost(&options, bytes, 0.0));
    });
}

#[test]
fn pending_bytes_stop_writers_until_compactions_have_caught_up() {
    let bench = Bench::new();
    bench.env.run(|| {
        let db = bench.open(&pending(MIB, MIB));
        bench.slow_compaction(3 * SECOND);
        let mut runs = 0;
        while property(&db, "dialsm.is-write-stopped") == 0 {
            assert!(property(&db, "dialsm.pending-compaction-bytes") < MIB);
            flushes(&db, 1, 60_000);
            runs += 1;
            assert!(runs < 100, "the debt never grows");
        }
        assert_eq!(bench.env.now(), 0);
        put(&db, "waits", 100);
        assert_eq!(bench.env.now(), 3 * SECOND);
        assert_stalls(&db, StallCause::Pending, 1, 3 * SECOND);
    });
}

#[test]
fn pending_bytes_slow_writers_to_the_pace_of_their_pressure() {
    let bench = Bench::new();
    bench.env.run(|| {
        let options = pending(MIB, 2 * MIB);
        let db = bench.open(&options);
        bench.slow_compaction(1000 * SECOND);
        while property(&db, "dialsm.is-write-delayed") == 0 {
            flushes(&db, 1, 60_000);
        }
        let debt = property(&db, "dialsm.pending-compaction-bytes");
        let pressure = (debt - MIB) as f64 / MIB as f64;
        assert!((0.0..0.1).contains(&pressure), "debt {debt}");
        let (mut expected, mut count) = (0, 0);
        for i in 0..5 {
            let batch = batch_of(&format!("slow {i}"), 900);
            if i > 0 {
                expected += cost(&options, batch.byte_size(), pressure);
                count += 1;
            }
            db.write(&unsynced(), batch).expect("write");
            assert_eq!(bench.env.now(), expected);
        }
        assert_stalls(&db, StallCause::Pending, count, expected);
    });
}

#[test]
fn a_write_that_may_not_wait_fails_at_once() {
    let bench = Bench::new();
    bench.env.run(|| {
        let db = bench.open(&level0(4, 4));
        bench.slow_compaction(2 * SECOND);
        flush_until(&db, "dialsm.is-write-stopped");
        let options = WriteOptions { no_slowdown: true, ..WriteOptions::default() };
        let error = db.put(&options, b"key", b"value").expect_err("stopped");
        assert_eq!(error.kind(), ErrorKind::WouldStall);
        let options = WriteOptions { deadline: Some(SECOND), ..WriteOptions::default() };
        let error = db.put(&options, b"key", b"value").expect_err("stopped");
        assert_eq!((error.kind(), bench.env.now()), (ErrorKind::TimedOut, SECOND));
        assert_stalls(&db, StallCause::Level0, 1, SECOND);
        assert_eq!(db.get(&Default::default(), b"key").expect("get"), None);
        let options = WriteOptions { deadline: Some(10 * SECOND), ..WriteOptions::default() };
        db.put(&options, b"key", b"value").expect("the door opens before the deadline");
        assert_eq!(bench.env.now(), 2 * SECOND);
    });
}

/// A delayed write that may not wait used to take a slot on the line all the same, so that a
/// caller who kept trying held up all others; and one whose deadline came before its slot was let
/// in early instead of being told.
#[test]
fn a_delayed_write_that_gives_up_leaves_the_line_alone() {
    let bench = Bench::new();
    bench.env.run(|| {
        let options = level0(4, 12);
        let db = bench.open(&options);
        bench.slow_compaction(1000 * SECOND);
        flush_until(&db, "dialsm.is-write-delayed");
        let batch = batch_of("first", 9000);
        let wait = cost(&options, batch.byte_size(), 0.0);
        db.write(&unsynced(), batch).expect("write");
        for _ in 0..100 {
            let hasty = WriteOptions { no_slowdown: true, ..WriteOptions::default() };
            let error = db.put(&hasty, b"hasty", &[0; 9000]).expect_err("delayed");
            assert_eq!(error.kind(), ErrorKind::WouldStall);
        }
        assert_eq!((bench.env.now(), db.stalls().all.count), (0, 0));
        let impatient = WriteOptions { deadline: Some(wait / 2), ..WriteOptions::default() };
        let error = db.put(&impatient, b"impatient", &[0; 9000]).expect_err("delayed");
        assert_eq!((error.kind(), bench.env.now()), (ErrorKind::TimedOut, wait / 2));
        put(&db, "patient", 10);
        assert_eq!(bench.env.now(), wait);
        assert_stalls(&db, StallCause::Level0, 2, wait);
        let hasty = WriteOptions { no_slowdown: true, ..WriteOptions::default() };
        bench.env.sleep(SECOND);
        db.put(&hasty, b"hasty", b"").expect("its slot is free");
    });
}

#[test]
fn without_automatic_compaction_only_memtables_stop_writers() {
    let bench = Bench::new();
    bench.env.run(|| {
        let options = Options {
            automatic_compaction: false,
            write_buffers_max: 2,
            pending_compaction_soft_bytes: MIB,
            pending_compaction_hard_bytes: MIB,
            ..level0(4, 4)
        };
        let db = bench.open(&options);
        flushes(&db, 25, 60_000);
        assert!(property(&db, "dialsm.pending-compaction-bytes") > MIB);
        assert_eq!(property(&db, "dialsm.num-files-at-level0"), 25);
        assert_stalls(&db, StallCause::Memtable, 0, 0);
        bench.slow_flush(SECOND);
        fill_memtables(&db);
        // The flush may only have begun, and may let a write in as it gets on.
        while bench.env.now() == 0 {
            put(&db, "waits", 3000);
        }
        assert_eq!(bench.env.now(), SECOND);
        let report = db.stalls();
        assert_eq!(report.all.total_ns, SECOND);
        assert_eq!(report.by_cause[StallCause::Memtable as usize].total_ns, SECOND);
    });
}

#[test]
fn a_stall_found_at_reopening_is_ended_by_a_compaction() {
    let bench = Bench::new();
    bench.env.run(|| {
        let manual = Options { automatic_compaction: false, ..level0(4, 8) };
        let db = bench.open(&manual);
        // The bottom level holds the key: no run is moved out of level 0 without the slow merge.
        flushes(&db, 1, 100);
        db.compact_range(&Default::default(), None, None).expect("compact");
        flushes(&db, 10, 100);
        db.close().expect("close");
        drop(db);
        bench.slow_compaction(SECOND);
        let db = bench.open(&level0(4, 8));
        assert_eq!(property(&db, "dialsm.is-write-stopped"), 1, "in {DIR}");
        put(&db, "waits", 10);
        assert_eq!(bench.env.now(), SECOND);
        assert_stalls(&db, StallCause::Level0, 1, SECOND);
    });
}

#[test]
fn closing_lets_a_stalled_writer_go() {
    let bench = Bench::new();
    bench.env.run(|| {
        let db = bench.open(&level0(4, 4));
        bench.slow_compaction(SECOND);
        flush_until(&db, "dialsm.is-write-stopped");
        let waiting = db.clone();
        let writer = move || {
            let error = waiting.put(&unsynced(), b"key", b"").expect_err("closed");
            assert_eq!(error.kind(), ErrorKind::Closed);
        };
        let writer = bench.env.spawn("writer", Box::new(writer)).expect("spawn");
        bench.env.sleep(SECOND / 2);
        db.close().expect("close");
        writer.join();
    });
}

/// Level 0 gathers more runs than its trigger while one flush follows another, and is merged when no more
/// come, though nobody calls.
#[test]
fn a_burst_is_merged_when_it_is_over() {
    for level0_patience in [true, false] {
        let bench = Bench::new();
        bench.env.run(|| {
            let db = bench.open(&Options { level0_patience, ..level0(20, 36) });
            let files = || -> u32 {
                let text = db.property("dialsm.num-files-at-level0").expect("known");
                text.parse().expect("a number")
            };
            for run in 1..=9 {
                flushes(&db, 1, 100);
                // Time for a compaction that wants to begin, and less than the shortest pause.
                bench.env.sleep(1_000_000);
                let expected = if level0_patience { run..=run } else { 0..=1 };
                assert!(expected.contains(&files()), "{} files after {run} flushes", files());
            }
            assert_eq!(db.is_idle(), !level0_patience, "a merge is owed");
            bench.env.sleep(20_000_000);
            assert!(files() <= 1, "{} files after a pause", files());
        });
    }
}

/// Runs that nobody has to merge are merged once readers have spent as much on them as that costs.
#[test]
fn readers_get_few_runs_to_read_from() {
    for read_compaction in [true, false] {
        let bench = Bench::new();
        bench.env.run(|| {
            let options = Options { read_compaction, level0_compaction_trigger: 4, ..level0(20, 36) };
            let db = bench.open(&options);
            flushes(&db, 3, 100);
            let runs = || property(&db, "dialsm.num-files-at-level0");
            let read_for_a_while = |times| {
                for _ in 0..times {
                    let mut iter = db.iter(&ReadOptions::default()).expect("iter");
                    iter.seek(b"run").expect("seek");
                    assert!(iter.valid());
                }
                bench.env.sleep(SECOND);
            };
            db.wait_until_idle().expect("nothing is owed");
            // Two probes of 2500 ns each are spared; a merge costs 20 ms.
            read_for_a_while(3_900);
            assert_eq!(runs(), 3, "not paid for yet");
            read_for_a_while(3_900);
            assert_eq!(runs(), if read_compaction { 0 } else { 3 });
            assert!(db.is_idle());
        });
    }
}
