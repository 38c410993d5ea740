//! Events: their order, their pairs, what they count (`order.rs`); what listeners may do (`listeners.rs`); the
//! text log (`info_log.rs`); `tracing` (`tracing.rs`).

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

#[path = "../common/mod.rs"]
mod common;

mod info_log;
mod listeners;
mod order;
mod tracing;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dialsm_core::events::EventListener;
use dialsm_core::{Db, Event, Options};
use dialsm_io::{FaultFs, Fs, SimEnv};
use parking_lot::Mutex;

/// Writes down what it hears.
#[derive(Clone, Default)]
struct Ear(Arc<Heard>);

#[derive(Default)]
struct Heard {
    events: Mutex<Vec<Event>>,
    /// The database is closed: nothing may come.
    is_over: AtomicBool,
}

impl EventListener for Ear {
    fn event(&self, event: &Event, wall_us: u64) {
        assert!(wall_us > 0);
        assert!(!self.0.is_over.load(Ordering::SeqCst), "after the close: {event:?}");
        self.0.events.lock().push(event.clone());
    }
}

impl Ear {
    fn events(&self) -> Vec<Event> {
        self.0.events.lock().clone()
    }

    fn names(&self) -> Vec<&'static str> {
        self.events().iter().map(Event::name).collect()
    }

    fn count(&self, name: &str) -> usize {
        self.names().iter().filter(|other| **other == name).count()
    }

    /// `options` with this listener.
    fn options(&self, options: &Options) -> Options {
        with(options, self.clone())
    }

    fn close(&self, db: &Db) {
        db.close().expect("close");
        self.0.is_over.store(true, Ordering::SeqCst);
    }
}

fn with(options: &Options, listener: impl EventListener + 'static) -> Options {
    let mut options = options.clone();
    options.listeners.push(Arc::new(listener));
    options
}

/// A simulation whose files fail on demand.
struct Bench {
    env: Arc<SimEnv>,
    faults: Arc<FaultFs>,
}

impl Bench {
    fn new(seed: u64) -> Bench {
        let root = SimEnv::new(seed);
        let faults = FaultFs::new(root.sim_fs().clone());
        let seen: Arc<dyn Fs> = faults.clone();
        let env = root.on_fs(root.sim_fs().clone(), seen);
        let clock = root;
        faults.set_sleeper(Arc::new(move |nanos| dialsm_io::Env::sleep(&*clock, nanos)));
        Bench { env, faults }
    }

    fn open(&self, options: &Options) -> Db {
        common::open(&self.env, options).expect("open")
    }
}

/// Makes so many tables in level 0.
fn flushes(db: &Db, count: usize) {
    for _ in 0..count {
        db.put(&common::unsynced(), b"run", &[b'v'; 100]).expect("put");
        db.flush().expect("flush");
    }
}

fn property(db: &Db, name: &str) -> u64 {
    db.property(name).expect("known").parse().expect("a number")
}
