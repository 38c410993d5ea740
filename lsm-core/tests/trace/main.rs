//! What the calls of a run say, read from its trace: the order of things (`checker.rs`), and which
//! threads make them and wait (`threads.rs`). The runs are those of `drive.rs`.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

#[path = "../common/mod.rs"]
mod common;

mod checker;
mod drive;
mod threads;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use checker::{Batches, Checked, Checker};
use common::tap::Event;
use common::workload::{Drive, Machine};
use common::{Model, open, tiny};
use dialsm_core::Options;
use dialsm_core::fault::Fault;
use dialsm_io::{OpKind, SimEnv};
use drive::Load;

/// Replays a run.
fn check(events: &[Event], batches: &Batches, total: &mut Checked) {
    let mut checker = Checker::new(batches.clone());
    events.iter().for_each(|event| checker.event(event));
    total.add(&checker.checked);
}

/// Settings by the seed: how tables are made durable, by what service, past the page cache or not, and
/// what becomes of log segments.
fn options_of(seed: u64, deferred_sync: bool) -> Options {
    Options {
        deferred_sync,
        use_io_uring: seed % 4 < 2,
        direct_writes: seed.is_multiple_of(3),
        asynchronous_writes: seed.is_multiple_of(3),
        log_recycle_max: if seed % 5 < 3 { 2 } else { 0 },
        subcompactions_max: 1 + seed as usize % 3,
        level0_patience: seed % 3 == 1,
        ..tiny()
    }
}

#[test]
fn acknowledgements_names_and_unlinks_come_in_a_safe_order() {
    for deferred in [true, false] {
        let (mut total, mut redone) = (Checked::default(), 0);
        for seed in 0..12u64 {
            let load = Load { failing_syncs: deferred && seed.is_multiple_of(2), ..Load::usual(seed) };
            let run = drive::run(&load, &options_of(seed, deferred));
            check(&run.events, &run.batches, &mut total);
            redone += run.counters.tables_redone;
        }
        println!("deferred {deferred}: {redone} redone, {total:?}");
        assert!(total.acks > 400 && total.tables_named > 1000, "{total:?}");
        assert!(total.tables_unlinked > 150 && total.segments_unlinked > 20, "{total:?}");
        assert!(total.segments_reused > 20 && total.manifests >= 24 && total.drops >= 48, "{total:?}");
        if deferred {
            assert!(total.syncs_by_others > 300 && total.syncs_by_maker == 0, "{total:?}");
            assert!(total.syncs_out_of_order > 20 && total.tables_never_named > 20, "{total:?}");
            assert!(total.replacing_records > 30 && total.jumps > 10, "{total:?}");
            assert!(total.records_over_trees > 10, "{total:?}");
            assert!(total.tables_lost >= 6 && redone >= 4, "{redone} redone, {total:?}");
        } else {
            // Parts of a compaction are synced by whoever puts them together.
            assert!(total.syncs_by_maker > 300 && total.syncs_by_others > 50, "{total:?}");
        }
    }
}

/// With one keyspace the log need not be synced before a table is settled.
#[test]
fn acknowledgements_names_and_unlinks_come_in_a_safe_order_with_one_keyspace() {
    let mut total = Checked::default();
    for seed in 0..14u64 {
        let options = options_of(seed, seed.is_multiple_of(2));
        let env = SimEnv::new(seed);
        let machine = Machine::new(&env, env.sim_fs().clone(), &options, Model::new());
        machine.tap.keep_events();
        if seed % 4 < 2 {
            machine.env.switch_at_io();
        }
        env.run(|| {
            let db = open(&machine.env, &options).expect("open");
            machine.drive(&db, Drive { seed, generation: 1, threads: 3, writes: 150, keys: 150 });
            db.close().expect("close");
        });
        let ledger = machine.ledger.lock();
        let batches = ledger.batches.iter().map(|(id, ops)| (*id, vec![0; ops.len()])).collect();
        check(&machine.tap.events(), &batches, &mut total);
    }
    println!("{total:?}");
    assert!(total.acks > 700 && total.acks_over_unsynced_segments > 30, "{total:?}");
    assert!(total.tables_named > 1000 && total.tables_unlinked > 150, "{total:?}");
    assert!(total.segments_unlinked > 20 && total.segments_reused > 20, "{total:?}");
    assert!(total.jumps > 10 && total.syncs_out_of_order > 10, "{total:?}");
}

/// The checker finds what the engine leaves out on purpose.
#[test]
fn the_checker_finds_each_step_that_is_left_out() {
    // The others take clues, which one tree has none of; the simulation finds them.
    for fault in [Fault::DirSync, Fault::EarlyUnlink, Fault::FsyncRetry] {
        let mut found = 0;
        for seed in [1, 3] {
            let options = Options { break_on_purpose: Some(fault), ..options_of(seed, true) };
            let load = Load { failing_syncs: fault == Fault::FsyncRetry, ..Load::usual(seed) };
            let run = drive::run(&load, &options);
            let looked = catch_unwind(AssertUnwindSafe(|| {
                check(&run.events, &run.batches, &mut Checked::default());
            }));
            let Err(payload) = looked else { continue };
            let text = payload.downcast_ref::<String>().map_or("", String::as_str);
            let promise = if fault == Fault::EarlyUnlink { "I6" } else { "I5" };
            assert!(text.starts_with(promise), "{fault:?}: {text}");
            found += 1;
        }
        assert_eq!(found, 2, "{fault:?}");
    }
}

/// An opening appends to no log segment and no manifest that it found (rule 18): it may cut and
/// sync the log, and begins files of its own.
#[test]
fn an_opening_writes_only_files_of_its_own() {
    let (mut written, mut reused) = (0, 0);
    for seed in 0..6 {
        let env = SimEnv::new(seed);
        let mut machine = Machine::new(&env, env.sim_fs().clone(), &tiny(), Model::new());
        for generation in 1..4 {
            env.run(|| {
                let db = open(&machine.env, &tiny()).expect("open");
                machine.drive(&db, Drive { seed, generation, threads: 2, writes: 60, keys: 100 });
                drop(db);
            });
            machine = Machine::new(&env, env.sim_fs().clone(), &tiny(), Model::new());
            machine.tap.keep_events();
            env.run(|| {
                let db = open(&machine.env, &tiny()).expect("reopen");
                machine.drive(
                    &db,
                    Drive { seed, generation: 10 + generation, threads: 2, writes: 100, keys: 100 },
                );
            });
            let mut own = BTreeSet::new();
            for event in machine.tap.events() {
                match event {
                    Event::Done { op: OpKind::Create, path, .. } => own.extend([path]),
                    Event::Done { op: OpKind::Write, path, .. } => {
                        assert!(own.contains(&path), "{} was found, and written to", path.display());
                        written += 1;
                    }
                    Event::Done { op: OpKind::Rename, path, target, .. }
                        if path.extension().is_some_and(|e| e == "log") =>
                    {
                        assert!(own.contains(&path), "{} was found, and reused", path.display());
                        // Its handle goes on under the name that it was created with.
                        own.extend(target);
                        reused += 1;
                    }
                    _ => {}
                }
            }
        }
    }
    println!("{written} writes, {reused} segments reused");
    assert!(written > 1000 && reused > 10, "{written} writes, {reused} segments reused");
}
