//! The real environment: threads, panics, fork, clock, and events under load.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dialsm_io::{Env, OsEnv};
use parking_lot::Mutex;

#[test]
fn threads_carry_their_names_and_block_signals() {
    let env = OsEnv::new();
    let found = Arc::new(Mutex::new(None));
    let out = Arc::clone(&found);
    let job = env.spawn(
        "dialsm-job",
        Box::new(move || {
            let name = std::thread::current().name().map(str::to_owned);
            // The mask as the kernel shows it: a hexadecimal bit set, signal 1 lowest.
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let line = status.lines().find_map(|l| l.strip_prefix("SigBlk:")).unwrap();
            *out.lock() = Some((name, u64::from_str_radix(line.trim(), 16).unwrap()));
        }),
    );
    job.unwrap().join();
    let (name, mask) = found.lock().take().expect("the job ran");
    assert_eq!(name.as_deref(), Some("dialsm-job"));
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGCHLD, libc::SIGPIPE] {
        assert!(mask & (1 << (signal - 1)) != 0, "signal {signal} is not blocked");
    }
    env.spawn("nul\0in name", Box::new(|| ())).unwrap().join();
}

#[test]
fn a_panic_is_contained_counted_and_reported() {
    let env = OsEnv::new();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let out = Arc::clone(&heard);
    env.on_panic(Arc::new(move |name, text| {
        out.lock().push(format!("{name}: {text}"));
        panic!("a hook that panics, too");
    }));
    env.spawn("one", Box::new(|| panic!("static"))).unwrap().join();
    env.spawn("two", Box::new(|| panic!("{}", 40 + 2))).unwrap().join();
    env.spawn("three", Box::new(|| std::panic::panic_any(7))).unwrap().join();
    env.spawn("four", Box::new(|| ())).unwrap().join();
    assert_eq!(env.panics(), 3);
    assert_eq!(*heard.lock(), ["one: static", "two: 42", "three: a panic without text"]);
}

#[test]
fn a_job_may_join_itself() {
    let env = OsEnv::new();
    let handle = Arc::new(Mutex::new(None));
    let (inner, event) = (Arc::clone(&handle), env.event());
    let ready = Arc::clone(&event);
    let job = move || {
        ready.wait(0, None);
        let own: Option<Box<dyn dialsm_io::JobHandle>> = inner.lock().take();
        own.expect("stored before the event").join();
        ready.notify();
    };
    *handle.lock() = Some(env.spawn("self", Box::new(job)).unwrap());
    event.notify();
    assert!(event.wait(1, None));
    assert_eq!(env.panics(), 0);
}

#[test]
#[allow(unsafe_code)]
fn a_forked_child_is_told() {
    let env = OsEnv::new();
    env.check_fork().unwrap();
    // SAFETY: the child calls nothing but `check_fork`, which takes no lock, and `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let is_forked = matches!(env.check_fork(), Err(e) if e.kind() == dialsm_io::ErrorKind::Forked);
        // SAFETY: ends the child at once, without the parent's exit handlers.
        unsafe { libc::_exit(if is_forked { 42 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: `status` is a valid place, and `child` is our child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 42, "status {status:#x}");
    env.check_fork().unwrap();
}

#[test]
fn clock_and_dice() {
    let env = OsEnv::new();
    let before = env.now();
    env.sleep(2_000_000);
    env.yield_now();
    assert!(env.now() - before >= 2_000_000);
    assert!(env.wall_ms() > 1_700_000_000_000);
    let numbers: BTreeSet<u64> = (0..100).map(|_| env.random_u64()).collect();
    assert_eq!(numbers.len(), 100);
}

#[test]
fn a_wait_ends_at_its_deadline_or_at_once() {
    let env = OsEnv::new();
    let event = env.event();
    let deadline = env.now() + 3_000_000;
    assert!(!event.wait(event.epoch(), Some(deadline)));
    assert!(env.now() >= deadline);
    assert!(!event.wait(event.epoch(), Some(0)), "a deadline long past");
    let seen = event.epoch();
    event.notify();
    assert!(event.wait(seen, None));
    assert!(event.wait(seen, Some(u64::MAX)));
}

/// Two threads pass a token back and forth through two events, each waiting without a deadline:
/// one lost wake-up and the test hangs.
#[test]
fn ping_pong_loses_no_wake_up() {
    const ROUNDS: u64 = 20_000;
    let env = OsEnv::new();
    let token = Arc::new(AtomicU64::new(0));
    let events = [env.event(), env.event()];
    let play = |me: usize| {
        let (token, events) = (Arc::clone(&token), events.clone());
        move || {
            for round in 0..ROUNDS {
                let mine = 2 * round + me as u64;
                loop {
                    let seen = events[me].epoch();
                    if token.load(Ordering::Relaxed) == mine {
                        break;
                    }
                    events[me].wait(seen, None);
                }
                token.store(mine + 1, Ordering::Relaxed);
                events[1 - me].notify();
            }
        }
    };
    let jobs = [0, 1].map(|me| env.spawn("player", Box::new(play(me))).unwrap());
    jobs.into_iter().for_each(|job| job.join());
    assert_eq!(token.load(Ordering::Relaxed), 2 * ROUNDS);
    assert_eq!(env.panics(), 0);
}

/// Producers and consumers over one counter and one event; consumers block when it is empty, some
/// with short deadlines. All that is produced is consumed, and nobody sleeps through the end.
#[test]
fn many_waiters_on_one_event() {
    const PRODUCERS: u64 = 3;
    const EACH: u64 = 5_000;
    let env = OsEnv::new();
    let (stock, consumed, timeouts) =
        (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let event = env.event();
    let mut jobs = Vec::new();
    for consumer in 0..4u64 {
        let (env2, event, stock) = (Arc::clone(&env), Arc::clone(&event), Arc::clone(&stock));
        let (consumed, timeouts) = (Arc::clone(&consumed), Arc::clone(&timeouts));
        let job = move || {
            while consumed.load(Ordering::Relaxed) < PRODUCERS * EACH {
                let seen = event.epoch();
                let take = |n: u64| n.checked_sub(1);
                if stock.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
                    if consumed.fetch_add(1, Ordering::Relaxed) + 1 == PRODUCERS * EACH {
                        event.notify();
                    }
                } else if consumed.load(Ordering::Relaxed) < PRODUCERS * EACH {
                    let deadline = (consumer == 0).then(|| env2.now() + 20_000);
                    timeouts.fetch_add(u64::from(!event.wait(seen, deadline)), Ordering::Relaxed);
                }
            }
        };
        jobs.push(env.spawn("consumer", Box::new(job)).unwrap());
    }
    for _ in 0..PRODUCERS {
        let (event, stock) = (Arc::clone(&event), Arc::clone(&stock));
        let job = move || {
            for i in 0..EACH {
                stock.fetch_add(1, Ordering::Relaxed);
                event.notify();
                if i % 16 == 0 {
                    std::thread::yield_now();
                }
            }
        };
        jobs.push(env.spawn("producer", Box::new(job)).unwrap());
    }
    jobs.into_iter().for_each(|job| job.join());
    assert_eq!(consumed.load(Ordering::Relaxed), PRODUCERS * EACH);
    assert_eq!(stock.load(Ordering::Relaxed), 0);
    assert!(event.epoch() > PRODUCERS * EACH, "one notify each and one at the end");
    assert_eq!(env.panics(), 0);
}
