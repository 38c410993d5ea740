//! The simulated environment: one thread at a time, virtual time, same seed same run.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dialsm_io::{CrashPolicy, Env, Event, OpKind, SimEnv};
use parking_lot::Mutex;

const MS: u64 = 1_000_000;

/// A small busy world: workers that take from a shared stock, sleep, write files and note what
/// they do; gives the notes, the schedule and the calls on files.
fn world(seed: u64) -> (Vec<String>, String, u64) {
    let env = SimEnv::new(seed);
    env.set_tracing(true);
    env.sim_fs().set_tracing(true);
    let notes = Arc::new(Mutex::new(Vec::new()));
    env.run(|| {
        let event = env.event();
        let stock = Arc::new(AtomicU64::new(0));
        let worker = |no: u64| {
            let (env, event, stock) = (Arc::clone(&env), Arc::clone(&event), Arc::clone(&stock));
            let notes = Arc::clone(&notes);
            move || {
                let file = env.fs().create(Path::new(&format!("/w{no}"))).unwrap();
                for _ in 0..5 {
                    loop {
                        let seen = event.epoch();
                        if stock
                            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
                            .is_ok()
                        {
                            break;
                        }
                        event.wait(seen, Some(env.now() + 3 * MS));
                    }
                    file.write_at(&[no as u8], env.random_u64() % 100).unwrap();
                    notes.lock().push(format!("{} took at {}", no, env.now()));
                    env.sleep(env.random_u64() % MS);
                }
            }
        };
        let jobs: Vec<_> =
            (0..4).map(|no| env.spawn(&format!("w{no}"), Box::new(worker(no))).unwrap()).collect();
        for _ in 0..20 {
            stock.fetch_add(1, Ordering::SeqCst);
            event.notify();
            env.sleep(MS / 2);
        }
        jobs.into_iter().for_each(|job| job.join());
        assert_eq!(env.live_threads(), ["main"]);
    });
    let mut notes = std::mem::take(&mut *notes.lock());
    let calls = env.sim_fs().trace();
    assert_eq!(calls.iter().filter(|c| c.op == Some(OpKind::Write)).count(), 20);
    notes.extend(calls.iter().map(|c| format!("{:?} {} {:?}", c.op, c.path.display(), (c.offset, c.len))));
    (notes, env.schedule(), env.schedule_digest())
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let mut schedules = BTreeSet::new();
    for seed in 0..8 {
        let (first, second) = (world(seed), world(seed));
        assert!(first.1.as_bytes() == second.1.as_bytes(), "seed {seed}: schedules differ");
        assert_eq!(first, second);
        assert!(first.1.lines().count() >= 100, "only {} steps", first.1.lines().count());
        schedules.insert(first.1);
    }
    assert_eq!(schedules.len(), 8, "other seeds give other schedules");
}

#[test]
fn time_moves_only_when_all_wait() {
    let env = SimEnv::new(1);
    env.run(|| {
        assert_eq!(env.now(), 0);
        let woken = Arc::new(Mutex::new(Vec::new()));
        let sleeper = |nanos: u64| {
            let (env, woken) = (Arc::clone(&env), Arc::clone(&woken));
            move || {
                env.sleep(nanos);
                woken.lock().push((nanos, env.now()));
            }
        };
        let jobs = [50, 10, 30].map(|n| env.spawn("sleeper", Box::new(sleeper(n * MS))).unwrap());
        for _ in 0..100 {
            env.yield_now();
        }
        assert_eq!(env.now(), 0, "main was ready all the time");
        jobs.into_iter().for_each(|job| job.join());
        assert_eq!(*woken.lock(), [10, 30, 50].map(|n| (n * MS, n * MS)), "in the order of the deadlines");
        let event = env.event();
        assert!(!event.wait(0, Some(60 * MS)));
        assert_eq!(env.now(), 60 * MS);
        env.sleep(0);
        assert!(!event.wait(0, Some(MS)), "a deadline long past");
        assert_eq!(env.now(), 60 * MS, "the clock never goes back");
        env.advance(MS);
        assert_eq!(env.now(), 61 * MS);
        assert_eq!(env.wall_ms() % 1000, 61);
    });
}

#[test]
fn advancing_the_clock_wakes_sleepers() {
    let env = SimEnv::new(4);
    env.run(|| {
        let done = Arc::new(AtomicU64::new(0));
        let (env2, done2) = (Arc::clone(&env), Arc::clone(&done));
        let job = env.spawn(
            "sleeper",
            Box::new(move || {
                env2.sleep(MS);
                done2.store(env2.now(), Ordering::SeqCst);
            }),
        );
        while done.load(Ordering::SeqCst) == 0 {
            env.advance(MS / 4);
        }
        assert!(done.load(Ordering::SeqCst) >= MS);
        job.unwrap().join();
    });
}

#[test]
fn all_interleavings_of_two_steps_are_found() {
    let mut seen = BTreeSet::new();
    for seed in 0..60 {
        let env = SimEnv::new(seed);
        let order = Arc::new(Mutex::new(String::new()));
        env.run(|| {
            let step = |letter: char| {
                let (env, order) = (Arc::clone(&env), Arc::clone(&order));
                move || {
                    order.lock().push(letter);
                    env.yield_now();
                    order.lock().push(letter);
                }
            };
            let jobs = ['a', 'b'].map(|l| env.spawn("step", Box::new(step(l))).unwrap());
            jobs.into_iter().for_each(|job| job.join());
        });
        seen.insert(order.lock().clone());
    }
    let all = ["aabb", "abab", "abba", "baab", "baba", "bbaa"].map(str::to_owned);
    assert_eq!(seen, BTreeSet::from(all));
}

/// The panic's text, with the panic kept from ending the test.
fn panic_of(body: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(body)).expect_err("expected a panic");
    payload.downcast_ref::<String>().cloned().unwrap_or_else(|| "no text".to_owned())
}

/// Somebody who looks again every millisecond whether something has come that never comes.
#[test]
fn a_simulation_without_end_dies_as_a_deadlock_does() {
    let env = SimEnv::new(4);
    env.set_steps_max(500);
    let text = panic_of(|| {
        env.run(|| {
            let clock = Arc::clone(&env);
            let poll = move || loop {
                clock.sleep(1_000_000);
            };
            env.spawn("poller", Box::new(poll)).unwrap().join();
        });
    });
    for part in ["no end of the simulation (seed 4)", "after 500 steps", "main waits for the end of poller"] {
        assert!(text.contains(part), "no {part:?} in {text:?}");
    }
    assert_eq!(env.steps(), 500);
}

#[test]
fn a_deadlock_is_told_with_who_waits_where() {
    let env = SimEnv::new(9);
    let dropped = Arc::new(AtomicU64::new(0));
    let text = panic_of(|| {
        env.run(|| {
            let events = [env.event(), env.event()];
            let waiter = |i: usize| {
                let (own, dropped) = (Arc::clone(&events[i]), Arc::clone(&dropped));
                struct OnDrop(Arc<AtomicU64>, Arc<dyn Event>);
                impl Drop for OnDrop {
                    fn drop(&mut self) {
                        // While unwinding from a dead simulation a wait comes back at once.
                        self.1.wait(0, None);
                        self.0.fetch_add(1, Ordering::SeqCst);
                    }
                }
                let on_drop = OnDrop(dropped, Arc::clone(&own));
                move || {
                    let _on_drop = on_drop;
                    own.wait(0, None);
                }
            };
            let names = ["flusher", "compactor"];
            let jobs = [0, 1].map(|i| env.spawn(names[i], Box::new(waiter(i))).unwrap());
            jobs.into_iter().for_each(|job| job.join());
        });
    });
    for part in [
        "seed 9",
        "main waits for the end of flusher",
        "flusher waits for event 1",
        "compactor waits for event 2",
    ] {
        assert!(text.contains(part), "no {part:?} in {text:?}");
    }
    for _ in 0..1000 {
        if dropped.load(Ordering::SeqCst) == 2 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("the other threads did not unwind");
}

#[test]
fn a_panic_of_a_job_is_not_lost() {
    let env = SimEnv::new(0);
    let text = panic_of(|| env.run(|| env.spawn("bad", Box::new(|| panic!("oops"))).unwrap().join()));
    assert!(text.contains("bad: oops"), "{text:?}");
    env.run(|| {
        env.spawn("bad", Box::new(|| panic!("expected"))).unwrap().join();
        assert_eq!(env.take_panics(), ["bad: expected"]);
    });
}

#[test]
fn waiting_outside_a_run_is_a_clear_panic() {
    let env = SimEnv::new(0);
    assert!(panic_of(|| env.yield_now()).contains("SimEnv::run"));
    assert!(panic_of(|| env.sleep(1)).contains("SimEnv::run"));
    let event = env.event();
    event.notify();
    assert_eq!(event.epoch(), 1, "a notify wakes but does not wait");
    assert!(panic_of(|| env.run(|| env.run(|| ()))).contains("no text"));
}

#[test]
fn threads_left_behind_stand_still_until_the_next_run() {
    let env = SimEnv::new(2);
    let count = Arc::new(AtomicU64::new(0));
    let job = env.run(|| {
        let (env2, count) = (Arc::clone(&env), Arc::clone(&count));
        let job = move || {
            for _ in 0..10 {
                count.fetch_add(1, Ordering::SeqCst);
                env2.sleep(MS);
            }
        };
        let job = env.spawn("left", Box::new(job)).unwrap();
        env.sleep(3 * MS + 1);
        job
    });
    assert_eq!(env.live_threads(), ["left"]);
    assert_eq!(count.load(Ordering::SeqCst), 4);
    env.run(|| job.join());
    assert_eq!(count.load(Ordering::SeqCst), 10);
    assert!(env.live_threads().is_empty());
}

#[test]
fn the_machine_can_come_back_after_a_power_cut_within_one_run() {
    let env = SimEnv::new(3);
    env.run(|| {
        env.fs().create(Path::new("/lost")).unwrap();
        env.sleep(5 * MS);
        let image = env.sim_fs().crash_image(CrashPolicy::DropUnsynced);
        env.sim_fs().power_off();
        let next = env.on_fs(image.clone(), image);
        assert_eq!(next.now(), 5 * MS);
        assert!(!next.fs().exists(Path::new("/lost")).unwrap());
        next.check_fork().unwrap();
        next.spawn("after", Box::new(|| ())).unwrap().join();
    });
}

#[test]
fn a_notify_without_switching_lets_the_caller_go_on() {
    for seed in 0..20 {
        let env = SimEnv::new(seed);
        env.set_switch_at_notify(false);
        env.run(|| {
            let (event, flag) = (env.event(), Arc::new(AtomicU64::new(0)));
            let (event2, flag2) = (Arc::clone(&event), Arc::clone(&flag));
            let job = move || {
                event2.wait(0, None);
                flag2.store(1, Ordering::SeqCst);
            };
            let job = env.spawn("waiter", Box::new(job)).unwrap();
            event.notify();
            assert_eq!(flag.load(Ordering::SeqCst), 0, "nobody ran in between");
            job.join();
            assert_eq!(flag.load(Ordering::SeqCst), 1);
        });
    }
}

#[test]
fn calls_on_files_can_be_scheduling_points() {
    let orders = |at_io: bool| {
        let mut orders = BTreeSet::new();
        for seed in 0..40 {
            let env = SimEnv::new(seed);
            env.sim_fs().set_tracing(true);
            if at_io {
                env.switch_at_io();
            }
            env.run(|| {
                let writer = |name: &'static str| {
                    let fs = Arc::clone(env.fs());
                    move || {
                        let file = fs.create(Path::new(name)).unwrap();
                        file.write_at(b"x", 0).unwrap();
                        file.sync_data().unwrap();
                    }
                };
                let jobs = ["/a", "/b"].map(|name| env.spawn(name, Box::new(writer(name))).unwrap());
                jobs.into_iter().for_each(|job| job.join());
            });
            orders.insert(env.sim_fs().trace().iter().map(|c| c.thread.clone()).collect::<Vec<_>>());
        }
        orders.len()
    };
    assert_eq!(orders(false), 2, "one writer after the other");
    assert!(orders(true) >= 8, "only {} orders", orders(true));
}
