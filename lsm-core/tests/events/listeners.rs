//! What listeners may do: use the database, panic, take their time, close it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};

use dialsm_core::events::EventListener;
use dialsm_core::{Db, ErrorKind, Event, Options, ReadOptions};
use dialsm_io::{Env, Fault, OpKind, OsEnv, Rule};
use parking_lot::Mutex;

use crate::common::{tiny, unsynced};
use crate::{Bench, Ear, flushes, property, with};

/// Writes and reads at each event, in the database that it hears of.
#[derive(Clone, Default)]
struct Reenters {
    db: Arc<OnceLock<Db>>,
    written: Arc<AtomicU64>,
    in_stalls: Arc<AtomicU64>,
}

impl EventListener for Reenters {
    fn event(&self, event: &Event, _wall_us: u64) {
        let Some(db) = self.db.get() else { return };
        let n = self.written.fetch_add(1, Ordering::SeqCst);
        let key = format!("event {n}");
        match db.put(&unsynced(), key.as_bytes(), event.name().as_bytes()) {
            Err(error) if error.kind() == ErrorKind::Closed => return,
            put => put.expect("put"),
        }
        let got = db.get(&ReadOptions::default(), key.as_bytes());
        match got {
            Err(error) if error.kind() == ErrorKind::Closed => {}
            got => assert_eq!(got.expect("get").as_deref(), Some(event.name().as_bytes())),
        }
        if matches!(event, Event::StallBegin(_) | Event::StallChanged(_)) {
            self.in_stalls.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// In a simulation a lock that was held would be a deadlock, which ends the run.
#[test]
fn a_listener_may_read_and_write_even_in_a_stall() {
    for seed in 0..8 {
        let (bench, reenters) = (Bench::new(seed), Reenters::default());
        if seed % 2 == 1 {
            bench.env.switch_at_io();
        }
        bench.env.run(|| {
            let options = Options { write_buffers_max: 2, level0_stop_trigger: 6, ..tiny() };
            let db = bench.open(&with(&options, reenters.clone()));
            assert!(reenters.db.set(db.clone()).is_ok());
            let slow = Rule::every(OpKind::Write, Fault::Delay(100_000_000));
            bench.faults.add(slow.on(".sst"));
            for i in 0..150u32 {
                db.put(&unsynced(), &i.to_be_bytes(), &[b'v'; 3000]).expect("put");
            }
            db.close().expect("close");
        });
        assert!(bench.env.live_threads().is_empty());
        assert!(reenters.in_stalls.load(Ordering::SeqCst) > 0, "seed {seed}: no stall");
    }
}

#[test]
fn a_listener_that_panics_is_dropped_and_nothing_else() {
    struct Panics(Arc<AtomicU64>);
    impl EventListener for Panics {
        fn event(&self, event: &Event, _wall_us: u64) {
            self.0.fetch_add(1, Ordering::SeqCst);
            assert!(!matches!(event, Event::FlushEnd(_)), "a listener that panics");
        }
    }
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("and once more when it is dropped");
        }
    }
    let (bench, ear, calls) = (Bench::new(1), Ear::default(), Arc::<AtomicU64>::default());
    bench.env.run(|| {
        let db = bench.open(&ear.options(&with(&tiny(), Panics(calls.clone()))));
        flushes(&db, 3);
        db.wait_until_idle().expect("idle");
        ear.close(&db);
        assert_eq!(property(&db, "dialsm.listener-panics"), 1);
    });
    assert!(calls.load(Ordering::SeqCst) < ear.events().len() as u64);
    assert_eq!(ear.count("flush_end"), 3, "the other listener hears all");
}

/// The engine goes on while a listener blocks, and what was put in meanwhile comes in order.
#[test]
fn a_listener_that_blocks_holds_up_nobody() {
    let dir = tempfile::tempdir().expect("a directory");
    let (open_gate, gate) = mpsc::channel::<()>();
    let (gate, ear) = (Mutex::new(gate), Ear::default());
    let blocks = move |event: &Event, _wall_us: u64| {
        if matches!(event, Event::FlushBegin(_)) {
            let _ = gate.lock().recv();
        }
    };
    let options = ear.options(&with(&tiny(), blocks));
    let db = Db::open(OsEnv::new(), dir.path(), options).expect("open");
    flushes(&db, 20);
    db.wait_until_idle().expect("nobody waits for the listener");
    assert_eq!(db.metrics().counters.flushes, 20);
    assert_eq!(ear.count("flush_begin"), 0, "the listener before has not returned");
    drop(open_gate);
    ear.close(&db);
    assert_eq!((ear.count("flush_begin"), ear.count("flush_end")), (20, 20));
}

/// What does not fit into the queue is counted, in pairs, and the listener is told.
#[test]
fn events_that_do_not_fit_are_left_out_in_pairs() {
    let dir = tempfile::tempdir().expect("a directory");
    let (open_gate, gate) = mpsc::channel::<()>();
    let (gate, ear) = (Mutex::new(gate), Ear::default());
    let blocks = move |event: &Event, _wall_us: u64| {
        if matches!(event, Event::FlushBegin(_)) {
            let _ = gate.lock().recv();
        }
    };
    let options = Options { automatic_compaction: false, deferred_sync: false, ..tiny() };
    let db = Db::open(OsEnv::new(), dir.path(), ear.options(&with(&options, blocks))).expect("open");
    while property(&db, "dialsm.events-dropped") == 0 {
        flushes(&db, 20);
    }
    flushes(&db, 20);
    db.wait_until_idle().expect("idle");
    let (dropped, flushed) = (property(&db, "dialsm.events-dropped"), db.metrics().counters.flushes);
    drop(open_gate);
    ear.close(&db);
    assert_eq!(ear.count("flush_begin"), ear.count("flush_end"));
    assert!(ear.count("flush_end") < flushed as usize);
    let told: u64 = ear
        .events()
        .iter()
        .map(|event| if let Event::EventsDropped(dropped) = event { dropped.count } else { 0 })
        .sum();
    assert_eq!(told, dropped);
    assert_eq!(ear.names().last(), Some(&"closed"));
}

/// A listener is called by the thread that its own close would wait for.
#[test]
fn a_listener_may_close_the_database() {
    for seed in 0..6 {
        let (bench, heard) = (Bench::new(seed), Arc::<Mutex<Vec<&'static str>>>::default());
        let db: Arc<OnceLock<Db>> = Arc::default();
        let (own, into) = (db.clone(), heard.clone());
        let closes = move |event: &Event, _wall_us: u64| {
            into.lock().push(event.name());
            if matches!(event, Event::FlushEnd(_)) {
                let closed = own.get().expect("open").close();
                // Or the other thread was faster, which then waits for this call.
                assert!(closed.is_ok() || closed.is_err_and(|e| e.kind() == ErrorKind::Closed));
            }
        };
        bench.env.run(|| {
            let opened = bench.open(&with(&tiny(), closes));
            assert!(db.set(opened.clone()).is_ok());
            opened.put(&unsynced(), b"key", b"value").expect("put");
            let _ = opened.flush();
            if seed % 2 == 0 {
                let _ = opened.close();
            }
            while opened.get(&ReadOptions::default(), b"key").is_ok() {
                bench.env.sleep(1_000_000);
            }
        });
        if seed % 2 == 1 {
            assert_eq!(heard.lock().last(), Some(&"flush_end"), "nothing after its close");
        }
    }
}

/// Without a close, the last handle's end is the database's.
#[test]
fn dropping_the_last_handle_delivers_what_waits() {
    let (bench, ear) = (Bench::new(2), Ear::default());
    bench.env.run(|| {
        let db = bench.open(&ear.options(&tiny()));
        flushes(&db, 2);
        drop(db);
        assert_eq!(ear.names().last(), Some(&"closed"));
        assert_eq!(Arc::strong_count(&ear.0), 1, "the listener is let go of");
    });
    assert_eq!(ear.count("flush_end"), 2);
}

#[test]
fn an_opening_that_fails_is_told_and_ends_its_threads() {
    let (bench, ear) = (Bench::new(2), Ear::default());
    bench.env.run(|| {
        drop(bench.open(&tiny()));
        bench.faults.add(Rule::nth(OpKind::Create, 1, Fault::Errno(5)).on("MANIFEST"));
        crate::common::open(&bench.env, &ear.options(&tiny())).map(drop).expect_err("no manifest");
        assert_eq!(ear.names().last(), Some(&"open_failed"));
        bench.faults.add(Rule::nth(OpKind::Create, 1, Fault::Panic).on("MANIFEST"));
        let panics = || crate::common::open(&bench.env, &ear.options(&tiny())).map(drop);
        catch_unwind(AssertUnwindSafe(panics)).expect_err("it panics");
        assert_eq!(ear.count("open_failed"), 2);
        bench.open(&tiny()).close().expect("the lock is free");
    });
    assert!(bench.env.live_threads().is_empty());
}
