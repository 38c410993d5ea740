//! The control law against simulated disks, and the line against a model.

use std::sync::Arc;

use super::control::{CLASSES, Control};
use super::*;
use crate::env::sim::SimEnv;
use crate::rng::SplitMix64;

const MS: Nanos = 1_000_000;
const MIB: u64 = 1 << 20;

fn options() -> LimiterOptions {
    LimiterOptions { floor_bytes: 2 * MIB, ceiling_bytes: 64 * MIB, ..LimiterOptions::default() }
}

/// A disk of so many bytes per second with its own latency, fed as much as the window allows in
/// pieces of 1 MiB; returns the window after each completion.
fn feed(control: &mut Control, now: &mut Nanos, rate: u64, pieces: usize) -> Vec<u64> {
    let mut under_way = std::collections::VecDeque::new();
    let mut windows = Vec::new();
    let mut is_free_at = *now;
    while windows.len() < pieces {
        loop {
            let number = control.ask(*now, Priority::Deep, MIB);
            control.grant(*now);
            if !control.take(number) {
                assert!(control.withdraw(number));
                break;
            }
            is_free_at = is_free_at.max(*now) + MIB * 1_000_000_000 / rate;
            under_way.push_back((*now, is_free_at + MS));
        }
        let (begun, done) = under_way.pop_front().expect("something always fits");
        *now = done.max(*now);
        control.give_back(*now, Priority::Deep, MIB, begun, true);
        windows.push(control.stats().window_bytes);
    }
    for (begun, done) in under_way {
        *now = done.max(*now);
        control.give_back(*now, Priority::Deep, MIB, begun, true);
    }
    windows
}

#[test]
fn the_window_grows_on_a_fast_disk_and_shrinks_on_one_that_gets_slow() {
    let (mut control, mut now) = (Control::new(options(), 0), 0);
    let fast = feed(&mut control, &mut now, 100_000 * MIB, 2000);
    assert_eq!(*fast.last().unwrap(), 64 * MIB, "it begins at the ceiling, and nothing speaks for less");
    let grown = control.stats();
    assert!(grown.increase_count == 0 && grown.decrease_count == 0 && grown.at_ceiling_count > 0);
    // 100 MiB/s: a window of 64 MiB would take 640 ms to come back.
    let slow = feed(&mut control, &mut now, 100 * MIB, 200);
    let stats = control.stats();
    assert!(*slow.last().unwrap() <= 4 * MIB, "{stats:?}");
    assert!(stats.decrease_count >= 5 && stats.old_news_count >= 5, "{stats:?}");
    assert!(slow.iter().all(|window| *window >= 2 * MIB), "never below the floor");
    // Fast again: it comes back.
    let again = feed(&mut control, &mut now, 100_000 * MIB, 2000);
    assert_eq!(*again.last().unwrap(), 64 * MIB);
    assert!(control.stats().increase_count >= 30, "it grows back in steps");
    assert_eq!(control.stats().in_flight_bytes, [0; CLASSES]);
}

#[test]
fn one_cut_per_round_trip_and_a_steady_slower_disk_is_believed_in_the_end() {
    let mut control = Control::new(options(), 0);
    for _ in 0..8 {
        control.ask(0, Priority::Deep, MIB);
    }
    control.grant(0);
    control.give_back(MS, Priority::Deep, MIB, 0, true);
    let before = control.stats().window_bytes;
    // Seven that were under way together, all late: one cut.
    for _ in 0..7 {
        control.give_back(100 * MS, Priority::Deep, MIB, 0, true);
    }
    let stats = control.stats();
    assert_eq!((stats.decrease_count, stats.old_news_count), (1, 6));
    assert_eq!(stats.window_bytes, before / 100 * 70);
    // 100 ms is the floor once the 1 ms is two memories old.
    let at = |n: u64| 100 * MS + n * 31_000 * MS;
    for n in 1..4 {
        control.ask(at(n), Priority::Deep, MIB);
        control.grant(at(n));
        control.give_back(at(n) + 100 * MS, Priority::Deep, MIB, at(n), true);
    }
    let cuts = control.stats().decrease_count;
    assert!(cuts <= 2, "{:?}", control.stats());
    // What failed teaches nothing.
    control.ask(at(4), Priority::Deep, MIB);
    control.grant(at(4));
    let before = control.stats();
    control.give_back(at(4) + 10_000 * MS, Priority::Deep, MIB, at(4), false);
    assert_eq!(control.stats().window_bytes, before.window_bytes);
    assert_eq!(control.stats().decrease_count, cuts);
}

#[test]
fn urgent_ones_go_first_and_nobody_starves() {
    let options = LimiterOptions { lower_every: 3, ceiling_bytes: 2 * MIB, ..options() };
    let mut control = Control::new(options, 0);
    let hold = control.ask(0, Priority::L0, 2 * MIB);
    control.grant(0);
    assert!(control.take(hold));
    let ask = |control: &mut Control, class, n: usize| -> Vec<u64> {
        (0..n).map(|_| control.ask(0, class, 2 * MIB)).collect()
    };
    let users = ask(&mut control, Priority::User, 2);
    let deep = ask(&mut control, Priority::Deep, 2);
    let l0 = ask(&mut control, Priority::L0, 10);
    let mut order = Vec::new();
    for _ in 0..14 {
        control.give_back(0, Priority::User, 0, 0, true);
        // Gives back the one that is held, whatever class it was.
        let held = control.stats().in_flight_bytes;
        let class = [Priority::Flush, Priority::L0, Priority::Deep, Priority::User]
            [held.iter().position(|bytes| *bytes > 0).unwrap()];
        control.give_back(0, class, 2 * MIB, 0, false);
        assert_eq!(control.grant(0).0, 1, "the window has room for one");
        for (name, numbers) in [("u", &users), ("d", &deep), ("l", &l0)] {
            order.extend(numbers.iter().filter(|n| control.take(**n)).map(|_| name));
        }
    }
    assert_eq!(order.concat(), "llldulldulllll", "{order:?}");
    assert_eq!(control.stats().turn_count, 4);
    // Flush does not stand in line, window or not.
    let flush = control.ask(0, Priority::Flush, 50 * MIB);
    assert!(control.take(flush));
    assert_eq!(control.stats().flush_over_window_count, 1);
}

#[test]
fn the_cap_holds_over_any_second_and_flush_only_counts() {
    for rate in [1u64, 1000, 10 * MIB, 3 << 40] {
        let options = LimiterOptions { user_bytes_per_second: Some(rate), ..options() };
        let (mut control, mut now, mut granted) = (Control::new(options, 5), 5, 0u64);
        let piece = (rate / 100).clamp(1, MIB);
        for _ in 0..500 {
            let number = control.ask(now, Priority::Deep, piece);
            while !control.take(number) {
                if let (_, Some(at)) = control.grant(now) {
                    assert!(at > now);
                    now = at;
                }
            }
            granted += piece;
            control.give_back(now, Priority::Deep, piece, now, true);
            let earned = u128::from(now - 5) * u128::from(rate) / 1_000_000_000;
            let most = earned + u128::from(rate / 10) + 1 + u128::from(piece);
            assert!(u128::from(granted) <= most, "rate {rate}: {granted} of {most} at {now}");
        }
        if rate < MIB * 1000 {
            assert!(now > 1_000_000_000, "rate {rate}: 500 pieces in {now} ns");
            assert!(control.stats().capped_count >= 100);
        }
    }
    let options = LimiterOptions { user_bytes_per_second: Some(MIB), ..options() };
    let mut control = Control::new(options, 0);
    let flush = control.ask(0, Priority::Flush, 100 * MIB);
    assert!(control.take(flush), "flush does not wait for the cap");
    control.give_back(0, Priority::Flush, 100 * MIB, 0, false);
    control.ask(0, Priority::L0, MIB);
    let (_, Some(at)) = control.grant(0) else { panic!("L0 must wait for what flush used up") };
    assert!((90_000 * MS..110_000 * MS).contains(&at), "{at}");
    control.set_cap(0, None);
    assert_eq!(control.grant(0), (1, None));
}

/// Random asks, returns and withdrawals beside a plain count.
#[test]
fn random_lines_never_pass_the_window() {
    let classes = [Priority::Flush, Priority::L0, Priority::Deep, Priority::User];
    let (mut grants, mut waits, mut withdrawn) = (0, 0, 0);
    for seed in 0..50 {
        let mut rng = SplitMix64::new(seed);
        let rate = rng.chance(1, 2).then_some(50 * MIB);
        let mut control = Control::new(LimiterOptions { user_bytes_per_second: rate, ..options() }, 0);
        let (mut now, mut held, mut waiting) = (0, Vec::new(), Vec::new());
        for _ in 0..1000 {
            now += rng.below(5 * MS);
            match rng.below(4) {
                0 | 1 => {
                    let class = classes[rng.below(4) as usize];
                    let bytes = 1 + rng.below(8 * MIB);
                    waiting.push((control.ask(now, class, bytes), class, bytes));
                    waits += 1;
                }
                2 if !held.is_empty() => {
                    let (class, bytes, begun) = held.swap_remove(rng.below(held.len() as u64) as usize);
                    control.give_back(now, class, bytes, begun, true);
                }
                3 if !waiting.is_empty() && rng.chance(1, 4) => {
                    let (number, class, _) = waiting.swap_remove(rng.below(waiting.len() as u64) as usize);
                    withdrawn += u32::from(control.withdraw(number));
                    if control.take(number) {
                        panic!("{class:?}: granted numbers were taken below");
                    }
                }
                _ => {}
            }
            let window = control.stats().window_bytes;
            let limited = |held: &[(Priority, u64, Nanos)]| -> u64 {
                held.iter().filter(|(class, ..)| *class != Priority::Flush).map(|(_, bytes, _)| bytes).sum()
            };
            let before = limited(&held);
            control.grant(now);
            waiting.retain(|(number, class, bytes)| {
                let is_granted = control.take(*number);
                if is_granted {
                    held.push((*class, *bytes, now));
                    grants += 1;
                }
                !is_granted
            });
            let (after, total) = (limited(&held), held.iter().map(|(_, bytes, _)| bytes).sum::<u64>());
            let count = held.iter().filter(|(class, ..)| *class != Priority::Flush).count();
            assert!(after == before || total <= window || count == 1, "seed {seed}: {total} of {window}");
            assert_eq!(control.stats().in_flight_bytes.iter().sum::<u64>(), total);
            assert!((2 * MIB..=64 * MIB).contains(&window));
            assert!((1..=8).contains(&control.jobs(8)));
        }
    }
    assert!(grants >= 10_000 && waits >= 20_000 && withdrawn >= 500, "{grants} {waits} {withdrawn}");
}

#[test]
fn waiters_are_woken_time_out_and_are_sent_home() {
    for seed in 0..20 {
        let sim = SimEnv::new(seed);
        sim.run(|| {
            let env: Arc<dyn Env> = sim.clone();
            let limiter = Arc::new(Limiter::new(&env, options()).unwrap());
            let window = limiter.stats().window_bytes;
            let mut held = limiter.acquire(Priority::Deep, window, None).unwrap();
            held.begin();
            assert_eq!(held.bytes(), window);
            let late = limiter.acquire(Priority::L0, MIB, Some(env.now() + MS)).err().unwrap();
            assert_eq!(late.kind(), ErrorKind::TimedOut);
            assert!(env.now() >= MS);
            let spawn = |class| {
                let (limiter, clock) = (Arc::clone(&limiter), Arc::clone(&env));
                let job = move || {
                    for _ in 0..20 {
                        let permit = limiter.acquire(class, 3 * MIB, None).unwrap();
                        clock.sleep(MS / 10);
                        drop(permit);
                    }
                };
                env.spawn("job", Box::new(job)).unwrap()
            };
            let jobs: Vec<_> =
                [Priority::L0, Priority::Deep, Priority::User, Priority::User].map(spawn).into();
            env.sleep(MS);
            assert_eq!(limiter.stats().granted_count, [0, 0, 1, 0], "the window is full");
            drop(limiter.acquire(Priority::Flush, MIB, None).unwrap());
            drop(held);
            jobs.into_iter().for_each(|job| job.join());
            let stats = limiter.stats();
            assert_eq!(stats.granted_count, [1, 20, 21, 40]);
            assert_eq!(stats.in_flight_bytes, [0; CLASSES]);
            let _all = limiter.acquire(Priority::Deep, 1000 * MIB, None).unwrap();
            let waiter = {
                let limiter = Arc::clone(&limiter);
                let job = move || {
                    let closed = limiter.acquire(Priority::L0, 1, None).err().unwrap();
                    assert_eq!(closed.kind(), ErrorKind::Closed);
                };
                env.spawn("waiter", Box::new(job)).unwrap()
            };
            env.sleep(MS);
            limiter.close();
            waiter.join();
            assert!(limiter.acquire(Priority::Flush, MIB, None).is_ok(), "flush is never refused");
        });
    }
}

#[test]
fn options_out_of_range_are_all_named() {
    let env: Arc<dyn Env> = SimEnv::new(1);
    let bad = LimiterOptions {
        floor_bytes: 0,
        ceiling_bytes: 0,
        good_percent: 50,
        decrease_percent: 100,
        lower_every: 0,
        user_bytes_per_second: Some(0),
        ..LimiterOptions::default()
    };
    let text = Limiter::new(&env, bad).err().unwrap().to_string();
    for name in ["floor_bytes", "good_percent", "decrease_percent", "lower_every", "user_bytes_per_second"] {
        assert!(text.contains(name), "{text}");
    }
    let limiter = Limiter::new(&env, LimiterOptions::default()).unwrap();
    assert!(limiter.set_user_rate(Some(0)).is_err());
    limiter.set_user_rate(Some(5)).unwrap();
}

/// A disk that was never fast: its latencies rise against no floor, and urgent things wait behind them all
/// the same.
#[test]
fn a_latency_above_the_absolute_bound_has_risen() {
    let at = |latency_max| {
        let options = LimiterOptions { latency_max, ..options() };
        let (mut control, mut now) = (Control::new(options, 0), 0);
        *feed(&mut control, &mut now, 2 * MIB, 1000).last().expect("fed")
    };
    assert!(at(Nanos::MAX) > 8 * MIB, "as slow as it ever was");
    assert_eq!(at(100_000_000), 2 * MIB, "half a second for each piece");
}
