//! The engine in a simulation: one thread at a time, chosen by a seed, on a file system in memory.
//! Same seed, same run; other seed, other run; and whatever the interleaving, the model's contents.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

mod common;

use common::workload::{Drive, Machine};
use common::{Model, contents, open, tiny};
use dialsm_core::Options;
use dialsm_core::options::InfoLogLevel;
use dialsm_io::{Call, SimEnv};

/// Where two runs are compared: every call on the disk, and every step of the schedule.
#[derive(PartialEq)]
struct Outcome {
    calls: Vec<Call>,
    schedule: u64,
    contents: Model,
}

#[derive(Default, Debug)]
struct Driven {
    calls: u64,
    flushes: u64,
    compactions: u64,
    stalls: u64,
}

fn run(seed: u64, switch_at_io: bool, driven: &mut Driven) -> Outcome {
    let env = SimEnv::new(seed);
    // What LOG gets is among the calls that are compared.
    let info_log_level = if seed.is_multiple_of(2) { InfoLogLevel::Debug } else { InfoLogLevel::Off };
    let options = Options { info_log_level, max_log_file_size: 16 << 10, ..tiny() };
    let machine = Machine::new(&env, env.sim_fs().clone(), &options, Model::new());
    env.sim_fs().set_tracing(true);
    if switch_at_io {
        machine.env.switch_at_io();
    }
    let contents = env.run(|| {
        let db = open(&machine.env, &machine.options).expect("open");
        machine.drive(&db, Drive { seed, generation: 1, threads: 3, writes: 150, keys: 150 });
        let found = contents(&db).expect("read");
        assert!(found == machine.model(), "seed {seed}: the contents are not the model's");
        db.wait_until_idle().expect("idle");
        assert!(contents(&db).expect("read") == found, "seed {seed}: settling changed the contents");
        for name in ["retained-memtable-bytes", "retained-bytes", "in-flight-bytes", "unsettled-installs"] {
            let left = db.property(&format!("dialsm.{name}"));
            assert_eq!(left.as_deref(), Some("0"), "seed {seed}: {name} at rest");
        }
        db.verify(&mut |_, _| {}).expect("verify");
        driven.flushes += db.metrics().counters.flushes;
        driven.compactions += db.compactions();
        driven.stalls += db.stalls().all.count;
        db.close().expect("close");
        found
    });
    assert!(env.live_threads().is_empty(), "threads are left: {:?}", env.live_threads());
    let calls = env.sim_fs().trace();
    driven.calls += calls.len() as u64;
    Outcome { calls, schedule: env.schedule_digest(), contents }
}

fn assert_same_runs(seeds: std::ops::Range<u64>, switch_at_io: bool) {
    let mut driven = Driven::default();
    let mut digests = std::collections::BTreeSet::new();
    let count = seeds.end - seeds.start;
    for seed in seeds {
        let (first, second) = (run(seed, switch_at_io, &mut driven), run(seed, switch_at_io, &mut driven));
        let differ = first.calls.iter().zip(&second.calls).position(|(a, b)| a != b);
        assert_eq!(differ, None, "seed {seed}: the runs differ at this call");
        assert!(first == second, "seed {seed}: the runs differ");
        digests.insert(first.schedule);
    }
    println!("{count} seeds twice: {driven:?}");
    assert_eq!(digests.len() as u64, count, "two seeds gave the same schedule");
    assert!(driven.calls > count * 800 && driven.flushes > count * 8, "{driven:?}");
    assert!(driven.compactions > count * 2, "{driven:?}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    assert_same_runs(0..12, false);
}

#[test]
fn the_same_seed_gives_the_same_run_with_switches_at_every_call() {
    assert_same_runs(100..112, true);
}

#[test]
#[ignore = "minutes: many schedules"]
fn many_seeds() {
    assert_same_runs(1000..1100, false);
    assert_same_runs(2000..2100, true);
}

/// The counter was declared, shown, and never moved.
#[test]
fn bytes_of_the_log_are_counted() {
    let env = SimEnv::new(1);
    env.run(|| {
        let db = open(&env, &tiny()).expect("open");
        db.put(&common::unsynced(), b"key", &[b'v'; 1000]).expect("put");
        let counters = db.metrics().counters;
        // The value and key; the segment's header and first record, the record's own header, marks of the end.
        let around = 64 + 80 + 56;
        assert!((1003..1003 + around + 32).contains(&counters.log_bytes), "{}", counters.log_bytes);
    });
}
