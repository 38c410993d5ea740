//! What redirecting is for: while a shard can't take writes, others do, and no write waits.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use dialsm::options::Compression;
use dialsm::testing::ForcedRouter;
use dialsm::{CompactRangeOptions, Db, ErrorKind, Event, Options, ReadOptions, WriteOptions};
use dialsm_io::{Env, Fault, FaultFs, OpKind, Rule, SimEnv, SplitMix64};

const DIR: &str = "/db";

/// Memtables of 64 KiB, two a shard.
fn options(shards: usize) -> Options {
    Options {
        shards,
        write_buffer_bytes: (shards as u64) << 16,
        write_buffers_max: 2,
        level0_compaction_trigger: 2,
        clue_reserve_bytes: 64 << 10,
        ..Options::default()
    }
}

/// A database whose flushes take half a second each.
fn slow_flushes(seed: u64, options: Options, body: impl FnOnce(&Db)) {
    slow_flushes_in(seed, options, |_, db| body(db));
}

fn slow_flushes_in(seed: u64, options: Options, body: impl FnOnce(&Arc<SimEnv>, &Db)) {
    let env = SimEnv::new(seed);
    let faults = FaultFs::new(env.sim_fs().clone());
    let clock = env.clone();
    faults.set_sleeper(Arc::new(move |nanos| clock.sleep(nanos)));
    let machine = env.on_fs(env.sim_fs().clone(), faults.clone());
    env.run(|| {
        let db = Db::open_in(machine.clone() as Arc<dyn Env>, Path::new(DIR), options, &[]).expect("open");
        let slow = Rule::every(OpKind::Write, Fault::Delay(500_000_000));
        faults.add(slow.on(".sst"));
        body(&env, &db);
    });
    assert_eq!(env.take_panics(), Vec::<String>::new());
}

fn value(n: u64) -> Vec<u8> {
    let mut value = n.to_be_bytes().to_vec();
    value.resize(1000, n as u8);
    value
}

#[test]
fn one_hot_key_is_written_on_without_a_wait_while_its_shard_is_stalled() {
    slow_flushes(1, options(4), |db| {
        // Twice what its shard has room for, and less than all shards have.
        for n in 0..240 {
            db.put(&WriteOptions::default(), b"hot", &value(n)).expect("put");
        }
        let counters = db.metrics().counters;
        assert!(counters.redirects > 60, "{}", counters.redirects);
        let stalls = db.stalls();
        assert_eq!((stalls.all.count, stalls.all.total_ns), (0, 0), "{stalls:?}");
        let found = || db.get(&ReadOptions::default(), b"hot").expect("get");
        assert_eq!(found().as_deref(), Some(&value(239)[..]));
        db.wait_until_idle().expect("idle");
        assert_eq!(found().as_deref(), Some(&value(239)[..]));
    });
}

#[test]
fn with_redirecting_off_the_same_writes_wait() {
    slow_flushes(1, Options { redirect: false, ..options(4) }, |db| {
        for n in 0..400 {
            db.put(&WriteOptions::default(), b"hot", &value(n)).expect("put");
        }
        assert_eq!(db.metrics().counters.redirects, 0);
        assert!(db.stalls().all.total_ns > 400_000_000, "{:?}", db.stalls());
    });
}

#[test]
fn writers_that_wait_at_several_shards_at_once_make_one_stall() {
    slow_flushes_in(4, Options { redirect: false, ..options(4) }, |env, db| {
        let writers: Vec<_> = (0..8u64)
            .map(|writer| {
                let db = db.clone();
                let job = move || {
                    for n in 0..150u64 {
                        let key = (n * 8 + writer).to_be_bytes();
                        db.put(&WriteOptions::default(), &key, &value(n)).expect("put");
                    }
                };
                env.spawn("writer", Box::new(job)).expect("spawn")
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join());
        let waited: u64 = db.metrics().stalls.iter().map(|stall| stall.ns).sum();
        let stalled = db.stalls().all.total_ns;
        assert!(stalled > 400_000_000 && stalled <= env.now(), "{stalled} of {}", env.now());
        assert!(waited > 2 * stalled, "{waited} in sum, {stalled} stalled");
    });
}

#[test]
fn clues_are_rolled_back_and_their_values_collected_when_all_is_calm() {
    slow_flushes(2, options(4), |db| {
        let mut rng = SplitMix64::new(7);
        let mut model = BTreeMap::new();
        for n in 0..700 {
            let key = rng.below(300).to_be_bytes();
            // Half of all goes to a few keys, so that shards fill at different times.
            let key = if n % 2 == 0 { rng.below(5).to_be_bytes() } else { key };
            db.put(&WriteOptions::default(), &key, &value(n)).expect("put");
            model.insert(key, value(n));
        }
        assert!(db.metrics().counters.redirects > 50);
        db.flush().expect("flush");
        db.wait_until_idle().expect("idle");
        let counters = db.metrics().counters;
        assert!(counters.clues_rolled_back + counters.clues_dropped > 50, "{counters:?}");
        assert!(counters.redirected_dropped >= counters.redirects, "none is left: {counters:?}");
        for (key, value) in &model {
            let found = db.get(&ReadOptions::default(), key).expect("get");
            assert_eq!(found.as_deref(), Some(&value[..]));
        }
    });
}

#[test]
fn where_all_shards_are_stalled_no_slowdown_says_so_at_once_and_others_wait() {
    slow_flushes(3, options(2), |db| {
        let at_once = WriteOptions { no_slowdown: true, ..WriteOptions::default() };
        let mut refused = None;
        for n in 0..1000u64 {
            if let Err(error) = db.put(&at_once, &n.to_be_bytes(), &value(n)) {
                refused = Some((n, error));
                break;
            }
        }
        let (n, error) = refused.expect("a megabyte is more than both have room for");
        assert_eq!(error.kind(), ErrorKind::WouldStall, "{error}");
        assert!(db.metrics().counters.redirects > 0, "before that they stood in for each other");
        // Deletes have the reserve.
        db.delete(&at_once, &0u64.to_be_bytes()).expect("delete");
        db.put(&WriteOptions::default(), &n.to_be_bytes(), &value(n)).expect("it waits, and goes");
        let stalls = db.stalls();
        assert!(stalls.all.count > 0 && stalls.by_cause[0].total_ns > 0, "{stalls:?}");
        assert_eq!(db.get(&ReadOptions::default(), &0u64.to_be_bytes()).expect("get"), None);
    });
}

#[test]
fn at_the_clue_limit_nothing_more_is_redirected() {
    let options = Options { clues_max: 20, rollback: false, ..options(4) };
    slow_flushes(4, options, |db| {
        for n in 0..400 {
            db.put(&WriteOptions::default(), b"hot", &value(n)).expect("put");
        }
        let redirects = db.metrics().counters.redirects;
        assert!((1..200).contains(&redirects), "{redirects}: a group may pass the limit, a hundred not");
        assert!(db.stalls().all.total_ns > 0);
    });
}

/// Redirecting begins and ends, and a rollback tells how many values it has brought home.
#[test]
fn redirects_and_their_way_home_are_told() {
    let heard: Arc<Mutex<Vec<Event>>> = Arc::default();
    let into = heard.clone();
    let listener = move |event: &Event, _wall_us: u64| into.lock().expect("no panic").push(event.clone());
    let options = Options { listeners: vec![Arc::new(listener)], ..options(4) };
    let mut rolled_back = 0;
    slow_flushes(8, options, |db| {
        for n in 0..240 {
            db.put(&WriteOptions::default(), format!("{:03}", n % 80).as_bytes(), &value(n)).expect("put");
            db.put(&WriteOptions::default(), b"hot", &value(n)).expect("put");
        }
        db.rollback().expect("rollback");
        db.wait_until_idle().expect("idle");
        assert!(db.metrics().counters.redirects > 0);
        rolled_back = db.metrics().counters.clues_rolled_back;
        db.close().expect("close");
    });
    let heard = heard.lock().expect("no panic");
    let mut redirecting = BTreeMap::new();
    let (mut redirects, mut rollbacks, mut values) = (0, 0, 0);
    for event in heard.iter() {
        match event {
            Event::RedirectOn(on) => {
                redirects += 1;
                assert_ne!(on.shard, on.fallback);
                assert_eq!(redirecting.insert(on.shard, on.fallback), None, "twice");
            }
            Event::RedirectOff(off) => assert!(redirecting.remove(&off.shard).is_some()),
            Event::RollbackBegin(begin) => {
                assert!(begin.clues > 0);
                rollbacks += 1;
            }
            Event::RollbackEnd(end) => {
                assert!(end.error.is_none());
                rollbacks -= 1;
                values += end.values;
            }
            _ => {}
        }
    }
    assert!(redirects > 0 && redirecting.is_empty() && rollbacks == 0);
    assert!(values > 0);
    assert_eq!(values, rolled_back);
}

/// What was redirected last has its clues in memtables: they are flushed, or they would keep the values of all
/// others from being collected.
#[test]
fn clues_in_memtables_go_home_when_writes_pause() {
    for rollback in [true, false] {
        slow_flushes(9, Options { rollback, ..options(4) }, |db| {
            for n in 0..240 {
                db.put(&WriteOptions::default(), b"hot", &value(n)).expect("put");
            }
            let clues = || {
                db.metrics().trees.iter().fold((0, 0), |(active, all), tree| {
                    let there = &tree.gauges;
                    let in_tables = there.clues_level0 + there.clues_deeper;
                    (active + there.clues_memtable, all + there.clues_memtable + in_tables)
                })
            };
            assert!(clues().0 > 0);
            db.wait_until_idle().expect("idle");
            assert_eq!(clues().1 == 0, rollback, "{:?}", clues());
            let kept: u64 = db.metrics().trees.iter().map(|tree| tree.gauges.redirected_table_bytes).sum();
            assert_eq!(kept == 0, rollback, "{kept} bytes");
            assert_eq!(
                db.get(&ReadOptions::default(), b"hot").expect("get").as_deref(),
                Some(&value(239)[..])
            );
        });
    }
}

/// A compaction has its table of clues open from beginning to end, beside many tables of values, each of
/// which waits for what may be under way to the disk.
#[test]
fn a_compaction_that_keeps_clues_back_does_not_wait_for_itself() {
    let env = SimEnv::new(6);
    env.run(|| {
        let options = Options {
            shards: 2,
            write_buffer_bytes: 16 << 20,
            table_bytes: 1 << 20,
            background_in_flight_bytes_max: 4 << 20,
            router: Some(ForcedRouter::object(200, 6)),
            rollback: false,
            compression: Compression::None,
            compression_bottom: Compression::None,
            ..Options::default()
        };
        let db = Db::open_in(env.clone() as Arc<dyn Env>, Path::new(DIR), options, &[]).expect("open");
        for n in 0..24_000u64 {
            db.put(&WriteOptions::default(), &n.to_be_bytes(), &value(n)).expect("put");
        }
        db.compact_range(&CompactRangeOptions::default(), None, None).expect("compact");
        assert!(db.metrics().counters.redirects > 1000);
        for n in (0..24_000u64).step_by(97) {
            let found = db.get(&ReadOptions::default(), &n.to_be_bytes()).expect("get");
            assert_eq!(found.as_deref(), Some(&value(n)[..]));
        }
    });
}

#[test]
fn a_database_keeps_its_number_of_shards_and_its_hash_key() {
    let env = SimEnv::new(5);
    env.run(|| {
        let open = |options: Options| {
            let world: Arc<dyn Env> = env.clone();
            Db::open_in(world, Path::new(DIR), options, &[("other", options_of_other())])
        };
        let db = open(options(3)).expect("create");
        let other = db.keyspace("other").expect("created");
        assert_eq!((db.default_keyspace().shards(), other.shards()), (3, 3));
        for n in 0..500u64 {
            db.put(&WriteOptions::default(), &n.to_be_bytes(), &value(n)).expect("put");
            db.put_in(&WriteOptions::default(), &other, &n.to_be_bytes(), b"o").expect("put");
        }
        db.close().expect("close");
        let refused = open(options(4)).map(|_| ()).expect_err("another number");
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
        let world: Arc<dyn Env> = env.clone();
        let refused = dialsm_core_open(world).expect_err("nobody knows where keys lie");
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
        let db = open(Options { shards: 0, ..options(1) }).expect("as it is");
        let other = db.keyspace("other").expect("there");
        for n in 0..500u64 {
            let found = db.get(&ReadOptions::default(), &n.to_be_bytes()).expect("get");
            assert_eq!(found.as_deref(), Some(&value(n)[..]));
            let found = db.get_in(&ReadOptions::default(), &other, &n.to_be_bytes()).expect("get");
            assert_eq!(found.as_deref(), Some(&b"o"[..]));
        }
    });
}

fn options_of_other() -> dialsm::KeyspaceOptions {
    options(3).keyspace()
}

/// Without a router.
fn dialsm_core_open(env: Arc<dyn Env>) -> dialsm::Result<()> {
    dialsm_core::Db::open(env, Path::new(DIR), Options::default()).map(|_| ())
}

/// What needs no open database can be had by path, as opening can.
#[test]
fn calls_by_path_need_no_environment() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("db");
    let db = dialsm::Db::open(&path, Options { table_bytes: 3 << 20, ..Options::default() }).expect("open");
    db.create_keyspace("other", Options::default().keyspace()).expect("create");
    db.close().expect("close");
    drop(db);
    assert_eq!(dialsm::Db::list_keyspaces(&path).expect("list"), ["default", "other"]);
    assert_eq!(dialsm::Db::load_options(&path).expect("load").table_bytes, 3 << 20);
    let report = dialsm::Db::upgrade(&path).expect("upgrade");
    assert_eq!(report.from, report.to, "it is the newest");
}
