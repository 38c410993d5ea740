//! Every beginning has its end, those of a tree come in order, and all agrees with the metrics.

use std::collections::{BTreeMap, BTreeSet};

use dialsm_core::events::{CompactionEnd, FlushEnd};
use dialsm_core::{ErrorKind, Event, Options, StallCause};
use dialsm_io::{Env, Fault, OpKind, Rule, SimEnv};

use crate::common::workload::{Drive, Machine};
use crate::common::{Model, open, tiny, unsynced};
use crate::{Bench, Ear, flushes, property};

/// What goes on, event by event.
#[derive(Default)]
struct Going {
    flushes: BTreeMap<(String, u16), u64>,
    compactions: BTreeMap<u64, BTreeSet<u64>>,
    rollbacks: BTreeSet<u64>,
    stalls: BTreeMap<Option<(String, u16)>, (StallCause, bool)>,
    redirects: BTreeSet<(String, u16)>,
}

impl Going {
    fn event(&mut self, event: &Event) {
        match event {
            Event::FlushBegin(e) => {
                let before = self.flushes.insert((e.keyspace.to_string(), e.shard), e.job);
                assert_eq!(before, None, "two flushes of a tree at once");
            }
            Event::FlushEnd(e) => {
                let job = self.flushes.remove(&(e.keyspace.to_string(), e.shard));
                assert_eq!(job, Some(e.job), "the end of a flush that did not begin");
            }
            Event::CompactionBegin(e) => {
                let inputs: BTreeSet<u64> = e.inputs.iter().map(|table| table.number).collect();
                let is_free = self.compactions.values().all(|other| other.is_disjoint(&inputs));
                assert!(is_free, "two compactions have a table in common");
                assert!(self.compactions.insert(e.job, inputs).is_none());
            }
            Event::CompactionEnd(e) => {
                let inputs: BTreeSet<u64> = e.inputs.iter().map(|table| table.number).collect();
                assert_eq!(self.compactions.remove(&e.job), Some(inputs));
                assert!(!self.rollbacks.contains(&e.job), "a rollback ends before its compaction");
            }
            Event::RollbackBegin(e) => {
                assert!(self.compactions.contains_key(&e.job) && self.rollbacks.insert(e.job));
            }
            Event::RollbackEnd(e) => assert!(self.rollbacks.remove(&e.job)),
            Event::StallBegin(e) => {
                let place = e.keyspace.as_ref().map(|name| (name.to_string(), e.shard.expect("a shard")));
                let before = self.stalls.insert(place, (e.cause, e.is_stopped));
                assert_eq!(before, None, "a stall begins twice");
            }
            Event::StallChanged(e) => {
                let place = e.keyspace.as_ref().map(|name| (name.to_string(), e.shard.expect("a shard")));
                let before = self.stalls.insert(place, (e.cause, e.is_stopped)).expect("it has begun");
                assert_ne!(before, (e.cause, e.is_stopped), "nothing has changed");
            }
            Event::StallEnd(e) => {
                let place = e.keyspace.as_ref().map(|name| (name.to_string(), e.shard.expect("a shard")));
                assert_eq!(self.stalls.remove(&place).map(|(cause, _)| cause), Some(e.cause));
            }
            Event::RedirectOn(e) => assert!(self.redirects.insert((e.keyspace.to_string(), e.shard))),
            Event::RedirectOff(e) => assert!(self.redirects.remove(&(e.keyspace.to_string(), e.shard))),
            _ => {}
        }
    }

    fn is_over(&self) -> bool {
        self.flushes.is_empty()
            && self.compactions.is_empty()
            && self.rollbacks.is_empty()
            && self.stalls.is_empty()
            && self.redirects.is_empty()
    }
}

/// Events of a whole opening, in a legal order.
fn check(events: &[Event]) {
    let mut going = Going::default();
    events.iter().for_each(|event| going.event(event));
    assert!(going.is_over(), "something has no end");
    assert!(matches!(events.last(), Some(Event::Closed(_))), "{:?}", events.last());
    let opened = events.iter().filter(|event| matches!(event, Event::Opened(_))).count();
    assert_eq!(opened, 1);
}

fn flush_ends(events: &[Event]) -> Vec<&FlushEnd> {
    events
        .iter()
        .filter_map(|event| if let Event::FlushEnd(end) = event { Some(end) } else { None })
        .collect()
}

fn compaction_ends(events: &[Event]) -> Vec<&CompactionEnd> {
    events
        .iter()
        .filter_map(|event| if let Event::CompactionEnd(end) = event { Some(end) } else { None })
        .collect()
}

#[derive(Default, Debug)]
struct Driven {
    flushes: usize,
    compactions: usize,
    moves: usize,
    cancelled: usize,
    stalls: usize,
    hand_offs: usize,
    logs: usize,
}

fn run(seed: u64, driven: &mut Driven) {
    let (env, ear) = (SimEnv::new(seed), Ear::default());
    let mut options = Options { deferred_sync: !seed.is_multiple_of(4), ..tiny() };
    if !seed.is_multiple_of(3) {
        (options.level0_slowdown_trigger, options.level0_stop_trigger) = (3, 4);
        options.write_buffers_max = 2;
    }
    let options = ear.options(&options);
    let machine = Machine::new(&env, env.sim_fs().clone(), &options, Model::new());
    let metrics = env.run(|| {
        let db = open(&machine.env, &machine.options).expect("open");
        machine.drive(&db, Drive { seed, generation: 1, threads: 3, writes: 150, keys: 150 });
        let metrics = seed.is_multiple_of(2).then(|| {
            db.wait_until_idle().expect("idle");
            (db.metrics(), db.verify(&mut |_, _| {}).expect("verify").tables)
        });
        ear.close(&db);
        metrics
    });
    let events = ear.events();
    check(&events);
    assert_eq!(ear.count("events_dropped"), 0, "seed {seed}");
    let (flushes, compactions) = (flush_ends(&events), compaction_ends(&events));
    let good: Vec<_> = flushes.iter().filter(|end| end.error.is_none()).collect();
    let merged: Vec<_> = compactions.iter().filter(|end| end.error.is_none() && !end.is_move).collect();
    if let Some((metrics, tables)) = metrics {
        // All that began came to its end before the counters were read.
        assert_eq!(good.len() as u64, metrics.counters.flushes, "seed {seed}");
        assert_eq!(good.iter().map(|end| end.output_bytes).sum::<u64>(), metrics.counters.flush_bytes);
        let levels = metrics.levels.iter();
        let counted = levels.fold((0, 0, 0), |(n, read, written), level| {
            let (r, w) = (level.compaction_read_bytes, level.compaction_write_bytes);
            (n + level.compactions, read + r, written + w)
        });
        let told = merged.iter().fold((0, 0, 0), |(n, read, written), end| {
            (n + 1, read + end.input_bytes, written + end.output_bytes)
        });
        assert_eq!(told, counted, "seed {seed}: compactions, bytes read, bytes written");
        let (mut there, mut made) = (BTreeSet::new(), 0);
        for event in &events {
            match event {
                Event::TableCreated(e) => made += usize::from(there.insert(e.table.number)),
                Event::TableDeleted(e) => assert!(there.remove(&e.number), "seed {seed}: {e:?}"),
                _ => {}
            }
        }
        assert_eq!(there.len() as u64, tables, "seed {seed}: of {made} tables");
    }
    driven.flushes += good.len();
    driven.compactions += merged.len();
    driven.moves += compactions.iter().filter(|end| end.is_move).count();
    let cancelled =
        |end: &&&CompactionEnd| end.error.as_ref().map(|e| e.kind()) == Some(ErrorKind::Cancelled);
    driven.cancelled += compactions.iter().filter(cancelled).count();
    driven.stalls += ear.count("stall_begin");
    driven.hand_offs += ear.count("hand_off");
    driven.logs += ear.count("log_rotated");
}

#[test]
fn events_are_paired_in_order_and_agree_with_the_metrics() {
    let mut driven = Driven::default();
    (0..16).for_each(|seed| run(seed, &mut driven));
    println!("{driven:?}");
    assert!(driven.flushes > 100 && driven.compactions > 20 && driven.stalls > 20, "{driven:?}");
    assert!(driven.hand_offs > 50 && driven.logs > 30, "{driven:?}");
}

#[test]
fn the_same_seed_gives_the_same_events() {
    let heard = |seed| {
        let (env, ear) = (SimEnv::new(seed), Ear::default());
        let machine = Machine::new(&env, env.sim_fs().clone(), &ear.options(&tiny()), Model::new());
        env.run(|| {
            let db = open(&machine.env, &machine.options).expect("open");
            machine.drive(&db, Drive { seed, generation: 1, threads: 3, writes: 100, keys: 100 });
            ear.close(&db);
        });
        ear.events().iter().map(|event| format!("{event:?}")).collect::<Vec<_>>()
    };
    for seed in 50..54 {
        let first = heard(seed);
        assert!(first.len() > 50);
        assert_eq!(first, heard(seed), "seed {seed}");
    }
}

/// Each cause is forced by a file call that takes its time.
#[test]
fn stalls_begin_change_and_end_with_their_causes() {
    const SECOND: u64 = 1_000_000_007;
    let (bench, ear) = (Bench::new(7), Ear::default());
    bench.env.run(|| {
        let level0 = Options {
            level0_slowdown_trigger: 3,
            level0_stop_trigger: 4,
            level0_patience: false,
            write_buffers_max: 2,
            // Compactions wait for their turn, flushes do not.
            background_bytes_per_second: 1000,
            write_buffers_total_bytes: 64 << 20,
            ..tiny()
        };
        let db = bench.open(&ear.options(&level0));
        while property(&db, "dialsm.is-write-stopped") == 0 {
            flushes(&db, 1);
        }
        db.put(&unsynced(), b"run", b"it waits").expect("put");
        db.set_options(&[("background_bytes_per_second", "0")]).expect("set");
        db.wait_until_idle().expect("idle");
        // The flush is slow, and both memtables fill up.
        bench.faults.add(Rule::nth(OpKind::Write, 1, Fault::Delay(SECOND)).on(".sst"));
        for i in 0..100u32 {
            db.put(&unsynced(), &i.to_be_bytes(), &[b'v'; 3000]).expect("put");
        }
        db.wait_until_idle().expect("idle");
        let stalls = db.stalls();
        assert!(stalls.by_cause[StallCause::Level0 as usize].count > 0, "{stalls:?}");
        assert!(stalls.by_cause[StallCause::Memtable as usize].count > 0);
        ear.close(&db);
    });
    let events = ear.events();
    check(&events);
    let mut stopped = BTreeSet::new();
    let (mut changed, mut longest_us) = (0, 0);
    for event in &events {
        match event {
            Event::StallBegin(e) => {
                assert_eq!((e.keyspace.as_deref(), e.shard), (Some("default"), Some(0)));
                stopped.extend(e.is_stopped.then(|| e.cause.as_str()));
            }
            Event::StallChanged(e) => {
                changed += 1;
                stopped.extend(e.is_stopped.then(|| e.cause.as_str()));
            }
            Event::StallEnd(e) => longest_us = longest_us.max(e.duration_us),
            _ => {}
        }
    }
    assert_eq!(stopped, BTreeSet::from(["l0", "memtable"]));
    assert!(changed > 0, "slowed down, then stopped");
    assert!(longest_us >= SECOND / 2000, "{longest_us} us");
}

/// The memtables of all keyspaces together are too large: no tree's door, but the database's.
#[test]
fn a_full_budget_is_a_stall_of_all() {
    let (bench, ear) = (Bench::new(3), Ear::default());
    bench.env.run(|| {
        let options = Options {
            write_buffer_bytes: 64 << 10,
            write_buffers_total_bytes: 64 << 10,
            write_buffers_max: 8,
            ..tiny()
        };
        let db = bench.open(&ear.options(&options));
        let every = Fault::Delay(300_000_000);
        bench.faults.add(Rule { times: 3, ..Rule::nth(OpKind::Write, 1, every).on(".sst") });
        for i in 0..200u32 {
            db.put(&unsynced(), &i.to_be_bytes(), &[b'v'; 3000]).expect("put");
        }
        db.wait_until_idle().expect("idle");
        ear.close(&db);
    });
    let events = ear.events();
    check(&events);
    let of_all = |event: &&Event| matches!(event, Event::StallBegin(begin) if begin.keyspace.is_none());
    assert!(events.iter().any(|event| of_all(&event)), "{:?}", ear.names());
}

#[test]
fn errors_are_told_latched_or_passing() {
    for (errno, is_lasting) in [(5, true), (28, false)] {
        let (bench, ear) = (Bench::new(11), Ear::default());
        bench.env.run(|| {
            let db = bench.open(&ear.options(&Options { deferred_sync: false, ..tiny() }));
            bench.faults.add(Rule::nth(OpKind::Write, 1, Fault::Errno(errno)).on(".sst"));
            db.put(&unsynced(), b"key", b"value").expect("put");
            db.flush().expect_err("it fails");
            while !is_lasting && db.wait_until_idle().is_err() {
                bench.env.sleep(100_000_000);
            }
            ear.close(&db);
        });
        let events = ear.events();
        check(&events);
        let told: Vec<_> = events
            .iter()
            .filter_map(|event| if let Event::BackgroundError(e) = event { Some(e) } else { None })
            .collect();
        assert_eq!(told.len(), 1, "{:?}", ear.names());
        assert_eq!((told[0].is_lasting, &*told[0].job), (is_lasting, "a flush"));
        let kind = if is_lasting { ErrorKind::Io } else { ErrorKind::NoSpace };
        assert_eq!(told[0].error.kind(), kind);
        assert_eq!(ear.count("error_lifted"), usize::from(!is_lasting));
        let failed = flush_ends(&events).iter().filter(|end| end.error.is_some()).count();
        assert_eq!(failed, 1, "the flush that failed has its end, too");
    }
}

/// A job that panics has an end.
#[test]
fn a_flush_that_panics_has_an_end() {
    let (bench, ear) = (Bench::new(12), Ear::default());
    bench.env.run(|| {
        let db = bench.open(&ear.options(&tiny()));
        bench.faults.add(Rule::nth(OpKind::Create, 1, Fault::Panic).on(".sst"));
        db.put(&unsynced(), b"key", b"value").expect("put");
        db.flush().expect_err("it panics");
        ear.close(&db);
    });
    let events = ear.events();
    check(&events);
    let ends = flush_ends(&events);
    assert_eq!(ends.len(), 1);
    assert_eq!(ends[0].error.as_ref().map(|e| e.kind()), Some(ErrorKind::Internal));
    assert_eq!(ear.count("background_error"), 1);
}
