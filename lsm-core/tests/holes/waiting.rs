//! H31, H36, H37: who waits for what.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dialsm_core::{CompactRangeOptions, Db, ErrorKind, FlushOptions, Options, WriteOptions};
use dialsm_io::fs::Fs;
use dialsm_io::{AsyncIo, Env, Event, IoOptions, Job, JobHandle, Nanos, OpKind, SimEnv};

use crate::bench::{
    Bench, DIR, SECOND, by_hand, contents, files_at, get, get_in, is, live_files, number, put, put_in, synced,
};

fn no_slowdown() -> WriteOptions {
    WriteOptions { no_slowdown: true, ..WriteOptions::default() }
}

/// Waits where it has to, but not for ever.
fn patient(bench: &Bench) -> WriteOptions {
    WriteOptions { deadline: Some(bench.now() + 20 * SECOND), ..WriteOptions::default() }
}

/// Writes until the next write would have to wait.
fn fill(db: &Db) {
    for i in 0..1000u32 {
        match db.put(&no_slowdown(), &i.to_be_bytes(), &[b'v'; 3000]) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::WouldStall => return,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the memtables never fill");
}

/// A writer waits for a flush that stands still; it waits before the commit queue, so nobody else does.
#[test]
fn h31_a_writer_that_waits_holds_nobody_up() {
    Bench::run(|bench| {
        let options = Options { write_buffer_bytes: 64 << 10, write_buffers_max: 2, ..by_hand() };
        let db = bench.open(&options);
        let x = db.create_keyspace("x", options.keyspace()).expect("create");
        let y = db.create_keyspace("y", options.keyspace()).expect("create");
        // Of the default keyspace, whose flush is the first.
        let door = bench.door_on(OpKind::Create, ".sst");
        fill(&db);
        let waiting = db.clone();
        let waiting = bench.spawn(move || put(&waiting, b"waits", &[b'v'; 3000]));
        bench.wait_for("a stall", || db.stalls().all.count > 0);
        let (env, other, done) = (bench.env.clone(), db.clone(), Arc::new(AtomicBool::new(false)));
        let is_done = done.clone();
        let others = bench.spawn(move || {
            let (db, now) = (other, env.now());
            let refused = db.put(&no_slowdown(), b"k", b"v").expect_err("it would wait");
            assert_eq!(refused.kind(), ErrorKind::WouldStall);
            // What need not wait goes on at once, the commit queue included.
            db.put_in(&no_slowdown(), &x, b"k", b"v").expect("another tree's door is open");
            db.put_in(&synced(), &x, b"l", b"v").expect("put");
            db.flush_in(&FlushOptions { wait: false, ..FlushOptions::default() }, &x).expect("seal");
            db.sync().expect("sync");
            db.drop_keyspace(&y).expect("drop");
            assert!(get_in(&db, &x, b"k").is_some());
            assert_eq!(get(&db, b"waits"), None);
            assert_eq!(env.now(), now, "no time has passed");
            done.store(true, Ordering::SeqCst);
        });
        // Those who are held up look again and again: time passes then.
        let started = bench.now();
        while !is_done.load(Ordering::SeqCst) {
            assert!(bench.now() < started + SECOND / 10, "somebody is held up");
            bench.sleep(1_000_000);
        }
        others.join();
        assert!(door.came() > 0);
        door.open();
        waiting.join();
        assert!(get(&db, b"waits").is_some());
        db.put(&WriteOptions::default(), b"k", b"v").expect("put");
    });
}

/// An iterator pins every table that it started with. Compactions go on, whatever that comes to; nothing
/// it needs goes, and all of it goes with it.
#[test]
fn h36_an_iterator_holds_files_and_no_compaction() {
    Bench::run(|bench| {
        // What readers hold comes to more than may be retained, and does not count.
        let options = Options { write_buffer_bytes: 64 << 10, retained_bytes_max: 1 << 20, ..by_hand() };
        let db = bench.open(&options);
        let round = |round: u8| {
            (0..60u8).for_each(|i| put(&db, &[i], &[round; 1000]));
            db.flush().expect("flush");
            db.compact_range(&CompactRangeOptions { rewrite_bottom: true, ..Default::default() }, None, None)
                .expect("compact");
        };
        round(0);
        let mut iters = Vec::new();
        for n in 1..40u8 {
            iters.push(db.iter(&Default::default()).expect("iterator"));
            round(n);
        }
        db.wait_until_idle().expect("idle");
        let live = live_files(&db);
        let held = bench.names(".sst").len() as u64;
        assert!(held >= live + 39, "{held} files, {live} of them live");
        assert!(!contents(&bench.cut(dialsm_io::CrashPolicy::DropUnsynced).open(&options)).is_empty());
        for (n, iter) in iters.iter_mut().enumerate() {
            iter.seek_to_first().expect("seek");
            let mut count = 0;
            while iter.valid() {
                assert_eq!(iter.value(), [n as u8; 1000]);
                count += 1;
                iter.next().expect("next");
            }
            assert_eq!(count, 60);
        }
        drop(iters);
        round(100);
        bench.tidy(&db);
        let live = live_files(&db);
        assert_eq!(bench.names(".sst").len() as u64, live, "what was held is gone");
    });
}

/// So many tables in L0 that writes have to stop, by an opening without automatic compaction.
fn leave_l0_full(bench: &Bench, options: &Options) {
    let by_hand = Options { automatic_compaction: false, ..options.clone() };
    let db = bench.open(&by_hand);
    // The level below holds both ends, so that none is moved there as it is.
    put(&db, b"a", b"");
    put(&db, b"z", b"");
    db.compact_range(&CompactRangeOptions::default(), None, None).expect("compact");
    for round in 0..10u8 {
        // With compaction off nothing stops at the mark.
        db.put(&no_slowdown(), b"a", &[round; 100]).expect("no stop that nothing would end");
        db.put(&no_slowdown(), b"z", &[round; 100]).expect("put");
        db.flush().expect("flush");
    }
    assert_eq!((files_at(&db, 0), number(&db, "dialsm.is-write-stopped")), (10, 0));
    db.close().expect("close");
}

fn stops_at_eight() -> Options {
    Options {
        automatic_compaction: true,
        level0_compaction_trigger: 4,
        level0_slowdown_trigger: 6,
        level0_stop_trigger: 8,
        ..by_hand()
    }
}

/// L0 is full when the database is opened: the door is shut from the first write on, and somebody comes
/// to open it though no memtable was switched and no job has ended.
#[test]
fn h37_l0_is_full_at_reopen() {
    Bench::run(|bench| {
        let options = stops_at_eight();
        leave_l0_full(bench, &options);
        let gate = bench.door();
        let at = gate.gate().clone();
        bench.disk().add_call_hook(Arc::new(move |call| {
            if is(call, OpKind::Create, ".sst") {
                at.pass();
            }
        }));
        let db = bench.open(&options);
        let refused = db.put(&no_slowdown(), b"k", b"v").expect_err("L0 is full");
        assert_eq!(refused.kind(), ErrorKind::WouldStall);
        gate.wait_for_one();
        gate.open();
        db.put(&patient(bench), b"k", b"v").expect("put");
        assert!(files_at(&db, 0) < 8);
        db.wait_until_idle().expect("idle");
        assert_eq!(contents(&db).len(), 3);
    });
}

/// With automatic compaction off nobody would open the door that L0 shuts; so it does not.
#[test]
fn h37_without_automatic_compaction_l0_stops_nobody() {
    Bench::run(|bench| {
        leave_l0_full(bench, &stops_at_eight());
        // Also where it is switched off while writes are stopped.
        let db = bench.open(&Options { automatic_compaction: false, ..stops_at_eight() });
        db.put(&no_slowdown(), b"k", b"v").expect("put");
        db.close().expect("close");
        let door = bench.door_on(OpKind::Create, ".sst");
        let db = bench.open(&stops_at_eight());
        db.put(&no_slowdown(), b"k", b"v").expect_err("L0 is full, and a compaction on its way");
        db.set_options(&[("automatic_compaction", "false")]).expect("set");
        db.put(&no_slowdown(), b"k", b"v").expect("nothing would end the stop");
        door.open();
    });
}

/// Memtables are full when a kill comes, and the log is longer than all of them: the next opening can be
/// written to at once.
#[test]
fn h37_memtables_are_full_at_reopen() {
    Bench::run(|bench| {
        let options = Options { write_buffer_bytes: 64 << 10, write_buffers_max: 2, ..by_hand() };
        let db = bench.open(&options);
        let door = bench.door_on(OpKind::Create, ".sst");
        fill(&db);
        let model = contents(&db);
        let killed = bench.cut(dialsm_io::CrashPolicy::KeepAll);
        door.open();
        let db = killed.open(&options);
        assert!(contents(&db) == model);
        for i in 0..200u32 {
            db.put(&patient(&killed), &i.to_be_bytes(), &[b'w'; 3000]).expect("put");
        }
        db.flush().expect("flush");
    });
}

/// An environment whose events never reach a thread named `user`: whatever it waits for, only the time
/// that it set itself wakes it.
struct Deaf(Arc<SimEnv>);

struct DeafEvent {
    env: Arc<SimEnv>,
    real: Arc<dyn Event>,
}

impl Event for DeafEvent {
    fn epoch(&self) -> u64 {
        self.real.epoch()
    }

    fn wait(&self, seen: u64, deadline: Option<Nanos>) -> bool {
        if std::thread::current().name() != Some("user") {
            return self.real.wait(seen, deadline);
        }
        let silent = self.env.event();
        silent.wait(silent.epoch(), deadline);
        self.real.epoch() != seen
    }

    fn notify(&self) {
        self.real.notify();
    }
}

impl Env for Deaf {
    fn fs(&self) -> &Arc<dyn Fs> {
        self.0.fs()
    }
    fn now(&self) -> Nanos {
        self.0.now()
    }
    fn wall_ms(&self) -> u64 {
        self.0.wall_ms()
    }
    fn random_u64(&self) -> u64 {
        self.0.random_u64()
    }
    fn spawn(&self, name: &str, job: Job) -> dialsm_io::Result<Box<dyn JobHandle>> {
        self.0.spawn(name, job)
    }
    fn event(&self) -> Arc<dyn Event> {
        Arc::new(DeafEvent { env: self.0.clone(), real: self.0.event() })
    }
    fn sleep(&self, nanos: Nanos) {
        self.0.sleep(nanos);
    }
    fn yield_now(&self) {
        self.0.yield_now();
    }
    fn check_fork(&self) -> dialsm_io::Result<()> {
        self.0.check_fork()
    }
    fn start_io(&self, options: &IoOptions) -> dialsm_io::Result<Arc<dyn AsyncIo>> {
        self.0.start_io(options)
    }
}

/// The writer looks, the door opens, the writer sleeps: what would have woken it is gone by. It looks
/// again by itself.
#[test]
fn h37_a_writer_that_no_event_reaches_goes_on() {
    Bench::run(|bench| {
        let options = Options { write_buffer_bytes: 64 << 10, write_buffers_max: 2, ..by_hand() };
        let env = Arc::new(Deaf(bench.env.clone()));
        let db = Db::open(env, Path::new(DIR), options).expect("open");
        let x = db.create_keyspace("x", by_hand().keyspace()).expect("create");
        let door = bench.door_on(OpKind::Create, ".sst");
        fill(&db);
        let waiting = db.clone();
        let waiting = bench.spawn(move || {
            waiting.put(&WriteOptions::default(), b"waits", &[b'v'; 3000]).expect("put");
        });
        bench.sleep(SECOND);
        assert_eq!(get(&db, b"waits"), None);
        put_in(&db, &x, b"k", b"v");
        let opened = bench.now();
        door.open();
        waiting.join();
        assert!(get(&db, b"waits").is_some());
        let took = bench.now() - opened;
        assert!(took < SECOND, "it went on after {took} ns of the simulated clock");
    });
}
