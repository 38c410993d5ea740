//! Metrics against what others know: the kernel, the directory, the writers' own clocks, each read's context.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]
#![cfg_attr(feature = "invariants", allow(dead_code, unused_imports, reason = "two tests are left out then"))]

mod common;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use common::{open, tiny, unsynced};
use dialsm::router::HashRouter;
use dialsm::testing::ForcedRouter;
use dialsm_core::metrics::{MetricsSnapshot, SAMPLE_EVERY};
use dialsm_core::options::Compression;
use dialsm_core::{Db, Options, ReadContext, ReadOptions, ScanOptions, StallCause, WriteOptions};
use dialsm_io::histogram::{HistogramSnapshot, RELATIVE_ERROR};
use dialsm_io::{Env, Fault, FaultFs, Fs, OpKind, OsEnv, Rule, SimEnv, SplitMix64};

/// Where the child has its database, with how it is set up before it.
const CHILD: &str = "DIALSM_TEST_METRICS_DIR";

/// How the child is set up: shards, and whether there is a ring.
const SETUPS: [(usize, bool); 3] = [(1, false), (4, false), (2, true)];

fn on_disk(shards: usize, use_io_uring: bool) -> Options {
    Options {
        shards,
        use_io_uring,
        router: (shards > 1).then(HashRouter::object),
        write_buffer_bytes: (shards as u64) << 17,
        table_bytes: 128 << 10,
        level0_compaction_trigger: 2,
        level0_patience: false,
        level_base_bytes: 256 << 10,
        level_multiplier: 3.0,
        log_segment_bytes: 256 << 10,
        log_recycle_max: 2,
        compression: Compression::None,
        ..Options::default()
    }
}

/// Bytes that this process has handed to write calls, whatever became of them.
fn kernel_count() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").expect("the kernel counts");
    let line = text.lines().find_map(|line| line.strip_prefix("wchar: ")).expect("a line for writes");
    line.parse().expect("a number")
}

/// Files whose names end so: how many, and their bytes.
fn files(dir: &Path, is_it: impl Fn(&str) -> bool) -> (u64, u64) {
    let entries = std::fs::read_dir(dir).expect("the directory").map(|entry| entry.expect("an entry"));
    let fitting = entries.filter(|entry| entry.file_name().to_str().is_some_and(&is_it));
    fitting.fold((0, 0), |(n, bytes), entry| (n + 1, bytes + entry.metadata().expect("metadata").len()))
}

/// Writes, deletes and overwrites enough for flushes, compactions and used-up log segments.
fn work(db: &Db, seed: u64, writes: u64) {
    let mut rng = SplitMix64::new(seed);
    for n in 0..writes {
        let key = rng.below(2000).to_be_bytes();
        let sync = WriteOptions { sync: n.is_multiple_of(100), ..WriteOptions::default() };
        match rng.below(10) {
            0 => db.delete(&sync, &key).expect("delete"),
            _ => db.put(&sync, &key, &vec![rng.next_u64() as u8; rng.below(2000) as usize]).expect("put"),
        }
    }
}

/// Everything durable, and nothing running.
fn settle(db: &Db) {
    db.flush_all(&Default::default()).expect("flush");
    db.wait_until_idle().expect("idle");
    while db.metrics().handoff_gauges.unsettled_installs + db.metrics().gauges.obsolete_tables > 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Not a test of its own: what the child runs, alone in its process.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(CHILD) else { return };
    for (at, (shards, ring)) in SETUPS.into_iter().enumerate() {
        let dir = Path::new(&dir).join(at.to_string());
        let before = kernel_count();
        let db = Db::open(OsEnv::new(), &dir, on_disk(shards, ring)).expect("open");
        work(&db, at as u64, 10_000);
        settle(&db);
        let (wchar, metrics) = (kernel_count() - before, db.metrics());
        check_bytes(&dir, wchar, &metrics);
        check_files(&dir, &metrics);
        db.close().expect("close");
        let counters = metrics.counters;
        eprintln!(
            "{shards} shards, ring {ring}: {wchar} bytes by the kernel; tables {}, log {}, manifests {}",
            counters.table_bytes, counters.log_bytes, counters.manifest_bytes
        );
    }
}

/// What the metrics do not count is exactly known: CURRENT once for each manifest; the first manifest, written
/// before there is a database to count; files that are neither table, log nor manifest, still there as they were
/// written; and, with a ring, 8 bytes for each time that its thread is woken, at most once an operation.
fn check_bytes(dir: &Path, wchar: u64, metrics: &MetricsSnapshot) {
    let counters = &metrics.counters;
    let jobs: u64 = metrics.levels.iter().map(|level| level.compaction_write_bytes).sum();
    assert_eq!(counters.table_bytes, counters.flush_bytes + jobs, "no table was given up");
    assert!(counters.flushes > 5 && jobs > 0 && counters.log_segments_begun > 5);
    let counted = counters.table_bytes + counters.log_bytes + counters.manifest_bytes;
    let ours = |name: &str| name.ends_with(".sst") || name.ends_with(".log") || name.starts_with("MANIFEST");
    let (_, others) = files(dir, |name| !ours(name));
    let (_, current) = files(dir, |name| name == "CURRENT");
    let known = counted + others + counters.manifests_begun * current;
    let uncounted = wchar.checked_sub(known).expect("the kernel counts no less");
    // The first manifest describes an empty database.
    let most = 512 + 8 * metrics.io.operations;
    assert!(
        uncounted <= most,
        "{wchar} by the kernel, {uncounted} beyond {others} of other files and {counters:?}"
    );
    assert!(most < wchar / 100, "the margin says something");
}

fn check_files(dir: &Path, metrics: &MetricsSnapshot) {
    let (tables, table_bytes) = files(dir, |name| name.ends_with(".sst"));
    let levels = metrics.level_gauges.iter();
    let (n, bytes) = levels.fold((0, 0), |(n, bytes), level| (n + level.tables, bytes + level.bytes));
    assert_eq!((n, bytes), (tables, table_bytes));
    let of_trees = metrics.trees.iter().map(|tree| tree.gauges.table_bytes);
    assert_eq!(of_trees.sum::<u64>(), table_bytes);
    // Spare segments lie there, too.
    let (logs, _) = files(dir, |name| name.ends_with(".log"));
    assert!((logs.saturating_sub(2)..=logs).contains(&metrics.gauges.log_segments));
}

#[test]
fn bytes_and_files_are_those_that_the_kernel_sees() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let program = std::env::current_exe().expect("the test binary");
    let mut command = Command::new(program);
    command.args(["child", "--exact", "--nocapture", "--test-threads=1"]).env(CHILD, dir.path());
    let output = command.stdin(Stdio::null()).output().expect("the child ran");
    let errors = String::from_utf8_lossy(&output.stderr);
    println!("{errors}");
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors.matches("bytes by the kernel").count(), SETUPS.len(), "{errors}");
}

/// The quantiles of a histogram against all of its values.
fn check_quantiles(what: &str, histogram: &HistogramSnapshot, mut values: Vec<u64>) {
    values.sort_unstable();
    assert_eq!(histogram.count(), values.len() as u64, "{what}");
    assert_eq!(histogram.sum, values.iter().sum::<u64>(), "{what}");
    for q in [0.0, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0] {
        let rank = ((q * values.len() as f64).ceil() as usize).clamp(1, values.len());
        let (truth, bound) = (values[rank - 1], histogram.quantile(q));
        let error = bound.checked_sub(truth).expect("never below the true one");
        assert!(error as f64 <= truth as f64 * RELATIVE_ERROR, "{what} {q}: {bound} for {truth}");
    }
}

/// A simulation whose flushes and compactions take their time, while nothing else does: the clock moves only where
/// everybody waits, so a write takes time only by being stalled.
fn slow_disk(seed: u64, body: impl FnOnce(&Arc<SimEnv>, &Arc<SimEnv>)) {
    let root = SimEnv::new(seed);
    let faults = FaultFs::new(root.sim_fs().clone());
    let seen: Arc<dyn Fs> = faults.clone();
    let env = root.on_fs(root.sim_fs().clone(), seen);
    let clock = root.clone();
    faults.set_sleeper(Arc::new(move |nanos| clock.sleep(nanos)));
    faults.add(Rule::every(OpKind::Write, Fault::Delay(7_000_003)).on(".sst"));
    root.run(|| body(&root, &env));
    assert_eq!(root.take_panics(), Vec::<String>::new());
}

/// Without a service for asynchronous I/O, whose calls take time of their own in a simulation.
fn stalling(automatic_compaction: bool) -> Options {
    Options {
        automatic_compaction,
        write_buffers_max: 2,
        level0_slowdown_trigger: 3,
        level0_stop_trigger: 4,
        level0_patience: false,
        deferred_sync: false,
        shards: 1,
        router: None,
        ..tiny()
    }
}

/// When writes began and ended that took any time.
type Log = Arc<Mutex<Vec<(u64, u64)>>>;

fn write_and_note(env: &Arc<SimEnv>, db: &Db, seed: u64, log: &Log) {
    let mut rng = SplitMix64::new(seed);
    for _ in 0..400 {
        let (key, value) = (rng.below(500).to_be_bytes(), vec![b'v'; 1000 + rng.below(1000) as usize]);
        let began = env.now();
        db.put(&unsynced(), &key, &value).expect("put");
        let ended = env.now();
        if ended > began {
            log.lock().expect("nobody panicked").push((began, ended));
        }
        if rng.below(20) == 0 {
            env.sleep(rng.below(3_000_000));
        }
    }
}

/// The length of the union of intervals, and the longest stretch of it.
fn union(mut intervals: Vec<(u64, u64)>) -> (u64, u64) {
    intervals.sort_unstable();
    let (mut total, mut longest) = (0, 0);
    let (mut begin, mut end) = (0, 0);
    for (from, to) in intervals {
        if from > end {
            begin = from;
        }
        total += to.saturating_sub(end.max(from));
        end = end.max(to);
        longest = longest.max(end - begin);
    }
    (total, longest)
}

// The checks of this feature read files, which takes time.
#[cfg(not(feature = "invariants"))]
#[test]
fn stalls_are_as_long_as_the_writers_see_them() {
    let mut causes_seen = [false; 3];
    for seed in 0..6 {
        let only_memtables = seed % 2 == 0;
        slow_disk(seed, |root, env| {
            let db = open(env, &stalling(!only_memtables)).expect("open");
            let log = Log::default();
            let writers: Vec<_> = (0..3)
                .map(|writer| {
                    let (env, db, log) = (env.clone(), db.clone(), log.clone());
                    let write = move || write_and_note(&env, &db, seed * 10 + writer, &log);
                    root.spawn("writer", Box::new(write)).expect("spawn")
                })
                .collect();
            writers.into_iter().for_each(|writer| writer.join());
            let intervals = log.lock().expect("nobody panicked").clone();
            assert!(intervals.len() > 20, "{} writes waited", intervals.len());
            let metrics = db.metrics();
            check_stalls(&metrics, &intervals, only_memtables);
            for (seen, stall) in causes_seen.iter_mut().zip(&metrics.stalls) {
                *seen |= stall.count > 0;
            }
        });
    }
    assert!(causes_seen[StallCause::Memtable as usize] && causes_seen[StallCause::Level0 as usize]);
}

fn check_stalls(metrics: &MetricsSnapshot, intervals: &[(u64, u64)], only_memtables: bool) {
    let [keyspace] = &metrics.keyspaces[..] else { panic!("one keyspace") };
    let all = keyspace.stalls.all;
    let lengths: Vec<u64> = intervals.iter().map(|(began, ended)| ended - began).collect();
    let (total, longest) = union(intervals.to_vec());
    assert_eq!(all.total_ns, total);
    // One stall may end where the next begins, which the writers' clocks do not tell apart.
    assert!(all.longest_ns <= longest && all.longest_ns >= *lengths.iter().max().expect("some"), "{all:?}");
    assert_eq!(Some(&all.last_end_ns), intervals.iter().map(|(_, ended)| ended).max());
    assert!(intervals.iter().any(|(began, _)| *began == all.longest_begin_ns), "{all:?}");
    assert!(all.last_begin_ns <= all.last_end_ns);
    let waited: u64 = metrics.stalls.iter().map(|stall| stall.ns).sum();
    assert_eq!(waited, lengths.iter().sum::<u64>());
    assert_eq!(metrics.stall_ns.sum, waited);
    let by_shard: u64 = metrics.shards.iter().flat_map(|shard| shard.stalls).map(|stall| stall.ns).sum();
    assert_eq!(by_shard, waited);
    if only_memtables {
        // A write waits once, or finds the door open again before any time has passed.
        let at_once = metrics.stall_ns.count_up_to(0);
        assert_eq!(metrics.stall(StallCause::Memtable).count, lengths.len() as u64 + at_once);
        assert_eq!(keyspace.stalls.by_cause[StallCause::Memtable as usize].total_ns, total);
        let waits = lengths.into_iter().chain((0..at_once).map(|_| 0)).collect();
        check_quantiles("stalls", &metrics.stall_ns, waits);
    }
}

#[cfg(not(feature = "invariants"))]
#[test]
fn sampled_latencies_are_those_of_the_calls() {
    slow_disk(11, |_, env| {
        let db = open(env, &stalling(true)).expect("open");
        let mut rng = SplitMix64::new(11);
        let mut latencies = Vec::new();
        for _ in 0..20_000 {
            let (key, began) = (rng.below(500).to_be_bytes(), env.now());
            db.put(&unsynced(), &key, &vec![b'v'; 500]).expect("put");
            latencies.push(env.now() - began);
        }
        // One thread, one share of the counters: every so many calls from the first on.
        let sampled: Vec<u64> = latencies.iter().copied().step_by(SAMPLE_EVERY as usize).collect();
        let metrics = db.metrics();
        assert!(sampled.iter().any(|ns| *ns > 0), "some of them waited");
        check_quantiles("writes", &metrics.write_ns, sampled);
        assert_eq!(metrics.counters.write_calls, 20_000);
        for n in 0..500u64 {
            db.get(&ReadOptions::default(), &n.to_be_bytes()).expect("get");
        }
        assert_eq!(db.metrics().get_ns.count(), 500u64.div_ceil(SAMPLE_EVERY));
    });
}

/// A database whose tables lie still: three overlapping ones in level 0, the rest below.
fn still(options: Options) -> Db {
    let env = OsEnv::with_fs(dialsm_io::SimFs::new(1));
    let options = Options {
        automatic_compaction: false,
        compression: Compression::None,
        compression_bottom: Compression::None,
        block_cache_bytes: 8 << 20,
        ..options
    };
    let db = Db::open(env, Path::new("/db"), options).expect("open");
    let put = |from: u64, step: u64| {
        for n in (from..1000).step_by(step as usize) {
            db.put(&unsynced(), &n.to_be_bytes(), &[n as u8; 100]).expect("put");
        }
        db.flush().expect("flush");
    };
    put(0, 1);
    db.compact_range(&Default::default(), None, None).expect("compact");
    (0..3).for_each(|from| put(from, 7));
    db.put(&unsynced(), &5u64.to_be_bytes(), b"in memory").expect("put");
    db
}

#[test]
fn a_look_up_tells_what_it_has_cost() {
    let db = still(Options { shards: 1, router: None, ..tiny() });
    let get = |n: u64| {
        let mut context = ReadContext::default();
        let value =
            db.get_with_context(&ReadOptions::default(), &n.to_be_bytes(), &mut context).expect("get");
        (value, context)
    };
    let (value, context) = get(5);
    assert_eq!(value.as_deref(), Some(&b"in memory"[..]));
    assert_eq!(context, ReadContext { memtables: 1, ..ReadContext::default() });
    // In the newest table of level 0, which is asked first.
    let (_, context) = get(2 + 7);
    assert_eq!((context.tables, context.levels(), context.level_tables[0]), (1, 1, 1));
    assert_eq!((context.blocks.filter_checked, context.blocks.filter_useful), (1, 0));
    assert_eq!((context.blocks.blocks_read, context.blocks.block_cache_hits), (1, 0));
    assert!(context.blocks.bytes_read > 100);
    let (_, again) = get(2 + 7);
    assert_eq!((again.blocks.blocks_read, again.blocks.block_cache_hits, again.blocks.bytes_read), (0, 1, 0));
    // In the last level alone: the filters above say no, but for a few.
    let (mut above, mut wrong) = (0, 0);
    for n in (0..1000).filter(|n| n % 7 > 2 && *n > 7 && *n < 990) {
        let (value, context) = get(n);
        assert_eq!(value.as_deref(), Some(&[n as u8; 100][..]));
        assert_eq!((context.tables, context.levels(), context.clue_hops), (4, 2, 0));
        assert_eq!((context.level_tables[0], context.level_tables[6]), (3, 1));
        above += context.blocks.filter_checked - 1;
        wrong += context.blocks.filter_false_positives;
        let blocks = context.blocks;
        assert_eq!(blocks.filter_checked - blocks.filter_useful, 1 + blocks.filter_false_positives);
    }
    assert!(wrong < above / 20, "{wrong} of {above}");
}

/// All reads' contexts together are what the metrics say was read.
#[test]
fn contexts_and_metrics_agree() {
    for shards in [1, 4] {
        let router = (shards > 1).then(|| ForcedRouter::object(300, 1));
        let db = still(Options { shards, router, ..tiny() });
        // In memory clues stay what they are; those in tables may be rolled back at any time.
        (0..100u64).for_each(|n| db.put(&unsynced(), &(10 * n).to_be_bytes(), &[1; 100]).expect("put"));
        let before = db.metrics();
        let mut context = ReadContext::default();
        let mut rng = SplitMix64::new(3);
        let mut gets = 0;
        for round in 0..300 {
            let keys: Vec<[u8; 8]> = (0..rng.below(20)).map(|_| rng.below(1200).to_be_bytes()).collect();
            let read = ReadOptions { fill_cache: round % 2 == 0, ..ReadOptions::default() };
            let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            let together = db.multi_get_with_context(&read, &keys, &mut context).expect("multi-get");
            for (key, value) in keys.iter().zip(together) {
                assert_eq!(db.get_with_context(&read, key, &mut context).expect("get"), value);
            }
            gets += 2 * keys.len() as u64;
        }
        let after = db.metrics();
        let counted = |of: fn(&MetricsSnapshot) -> u64| of(&after) - of(&before);
        assert_eq!(counted(|m| m.counters.gets), gets);
        assert_eq!(counted(|m| m.counters.block_cache_hits), context.blocks.block_cache_hits);
        assert_eq!(counted(|m| m.counters.block_cache_misses), context.blocks.blocks_read);
        assert_eq!(counted(|m| m.counters.block_read_bytes), context.blocks.bytes_read);
        assert_eq!(counted(|m| m.counters.filter_checked), context.blocks.filter_checked);
        assert_eq!(counted(|m| m.counters.filter_useful), context.blocks.filter_useful);
        assert_eq!(counted(|m| m.counters.filter_false_positives), context.blocks.filter_false_positives);
        assert_eq!(counted(|m| m.counters.clue_hops), u64::from(context.clue_hops));
        assert_eq!(context.clue_hops > 0, shards > 1);
        let by_shard = |m: &MetricsSnapshot| m.shards.iter().map(|shard| shard.counters.gets).sum::<u64>();
        assert_eq!(by_shard(&after) - by_shard(&before), gets);
        if shards == 1 {
            // A look-up through a clue asks tables of its fallback, which are no level's of its tree.
            for level in 0..after.levels.len() {
                let tables = after.levels[level].get_tables() - before.levels[level].get_tables();
                assert_eq!(tables, u64::from(context.level_tables[level]));
            }
        } else {
            // Rollback follows clues as well, but is no look-up.
            db.flush().expect("flush");
            db.rollback().expect("rollback");
            let rolled_back = db.metrics();
            assert!(rolled_back.counters.clues_rolled_back > after.counters.clues_rolled_back);
            assert_eq!(rolled_back.counters.clue_hops, after.counters.clue_hops);
        }
    }
}

#[test]
fn a_scan_tells_what_it_has_cost() {
    let db = still(Options { shards: 1, router: None, ..tiny() });
    let mut iter = db.iter(&ReadOptions::default()).expect("iter");
    iter.seek_to_first().expect("seek");
    let mut entries = 0;
    while iter.valid() {
        entries += 1;
        iter.next().expect("next");
    }
    let context = iter.context();
    assert_eq!((entries, context.memtables, context.clue_hops), (1000, 1, 0));
    let tables: u64 = db.metrics().level_gauges.iter().map(|level| level.tables).sum();
    assert_eq!(u64::from(context.tables), tables);
    assert!(context.blocks.bytes_read > 100_000);
    let mut scan = db.scan(&ReadOptions::default(), &ScanOptions::default()).expect("scan");
    while scan.next_batch().expect("batch").is_some() {}
    assert_eq!(u64::from(scan.context().tables), tables);
}

/// docs/METRICS.md against what a real database exports.
#[test]
fn the_document_lists_what_is_exported() {
    let db = still(Options { shards: 2, router: Some(HashRouter::object()), ..tiny() });
    let text = db.metrics().to_prometheus();
    assert_eq!(
        db.property("dialsm.stats-prometheus").map(|text| text.lines().count()),
        Some(text.lines().count())
    );
    let exported: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/METRICS.md");
    let document = std::fs::read_to_string(path).expect("docs/METRICS.md is there");
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `"));
    let listed: Vec<String> = rows
        .map(|row| {
            let mut cells = row.split('|').map(str::trim);
            let name = cells.next().expect("a name").trim_end_matches('`');
            format!("{name} {}", cells.next().expect("a type"))
        })
        .collect();
    assert_eq!(listed, exported);
    assert!(listed.len() > 100);
}

/// What is counted by shard, and what trees say of themselves, adds up to the whole.
#[test]
fn shards_and_trees_add_up_to_the_whole() {
    let env = OsEnv::with_fs(dialsm_io::SimFs::new(1));
    let options = Options { router: Some(ForcedRouter::object(200, 1)), ..on_disk(4, false) };
    let db = Db::open(env, Path::new("/db"), options).expect("open");
    let other =
        db.create_keyspace("other", db.default_keyspace().options().as_ref().clone()).expect("create");
    work(&db, 5, 6000);
    for n in 0..500u64 {
        db.put_in(&unsynced(), &other, &n.to_be_bytes(), &[7; 500]).expect("put");
        db.get_in(&ReadOptions::default(), &other, &n.to_be_bytes()).expect("get");
        db.get(&ReadOptions::default(), &n.to_be_bytes()).expect("get");
    }
    db.rollback().expect("rollback");
    settle(&db);
    let metrics = db.metrics();
    let names: Vec<(&str, u16)> =
        metrics.trees.iter().map(|tree| (tree.keyspace.as_str(), tree.shard)).collect();
    let expected = |name| (0..4).map(move |shard| (name, shard));
    assert_eq!(names, Vec::from_iter(expected("default").chain(expected("other"))));
    let whole = metrics.counters.entries();
    let mut compared = 0;
    for (at, (name, _)) in metrics.shards[0].counters.entries().iter().enumerate() {
        let sum: u64 = metrics.shards.iter().map(|shard| shard.counters.entries()[at].1).sum();
        if let Some((_, value)) = whole.iter().find(|(other, _)| other == name) {
            assert_eq!(sum, *value, "{name}");
            compared += 1;
        }
    }
    assert!(compared >= 10);
    let of_shards = |of: fn(&dialsm_core::metrics::ShardCounters) -> u64| {
        metrics.shards.iter().map(|shard| of(&shard.counters)).sum::<u64>()
    };
    assert!(metrics.counters.redirects > 100);
    assert_eq!(of_shards(|s| s.redirects_taken), metrics.counters.redirects);
    assert_eq!(of_shards(|s| s.redirected_bytes_taken), metrics.counters.redirected_bytes);
    assert!(metrics.counters.clues_rolled_back > 0 && of_shards(|s| s.rollbacks) > 0);
    let of_levels =
        |of: fn(&dialsm_core::metrics::LevelCounters) -> u64| metrics.levels.iter().map(of).sum::<u64>();
    assert_eq!(of_shards(|s| s.compactions), of_levels(|l| l.compactions));
    assert_eq!(of_shards(|s| s.compaction_write_bytes), of_levels(|l| l.compaction_write_bytes));
    // How much of it is rewritten depends on when the flushes come; keys that are written twice may go before.
    let tables = metrics.counters.flush_bytes + of_shards(|s| s.compaction_write_bytes);
    let written = metrics.write_amplification().expect("writes") * metrics.counters.write_bytes as f64;
    assert!((written - tables as f64).abs() < 1.0, "{written} {tables}");
    assert!(metrics.read_amplification().is_some());
    let parts = (0..7).filter_map(|level| metrics.level_write_amplification(level)).sum::<f64>();
    assert!((parts - metrics.write_amplification().expect("writes")).abs() < 1e-9);
}
