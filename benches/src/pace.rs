//! When operations are due: at once in a closed loop, on a schedule in an open one.
//!
//! In an open loop the schedule does not wait for the engine. An operation that begins late because
//! the one before it was slow is still charged from the moment it was due, so one stall shows in
//! every operation that would have come during it. With [`Late::Skip`] what came due during a slow
//! operation is lost instead, as calls at a shut door are: the load while the door is open stays the rate.

use crate::config::{Arrival, Late};
use crate::generate::Rng;
use std::time::{Duration, Instant};

/// One thread's schedule.
pub(crate) struct Pacer {
    start: Instant,
    due: f64,
    /// Mean ns between two operations of this thread.
    interval: f64,
    arrival: Arrival,
    late: Late,
    /// When the operation before began, in ns since the start.
    begun: f64,
    rng: Rng,
}

/// An operation that took longer than this was held up. A thread that is late for another reason, since it got no
/// processor, makes up for it.
const HELD_UP_NS: f64 = 2e6;

/// Below this a sleep costs more than it saves.
const SPIN_NS: f64 = 20_000.0;

impl Pacer {
    /// The schedule of thread `index` of `threads`, which together make `per_second` operations.
    pub(crate) fn new(
        start: Instant,
        per_second: f64,
        (arrival, late): (Arrival, Late),
        index: u64,
        threads: u64,
        seed: u64,
    ) -> Pacer {
        let interval = threads as f64 * 1e9 / per_second;
        // Fixed arrivals of all threads together are evenly spaced too.
        let due = if arrival == Arrival::Fixed { interval * index as f64 / threads as f64 } else { 0.0 };
        let mut pacer = Pacer {
            start,
            due,
            interval,
            arrival,
            late,
            begun: f64::MAX,
            rng: Rng::new(seed, index ^ 0xa11),
        };
        if arrival == Arrival::Poisson {
            pacer.advance();
        }
        pacer
    }

    fn advance(&mut self) {
        self.due += match self.arrival {
            Arrival::Fixed => self.interval,
            Arrival::Poisson => -(1.0 - self.rng.unit()).ln() * self.interval,
        };
    }

    /// The ns since the start at which the next operation is due; moves on to the one after.
    fn next_due(&mut self) -> u64 {
        let due = self.due as u64;
        self.advance();
        due
    }

    /// Loses as much of the schedule as the operation before took, if it was held up.
    fn lose_what_was_missed(&mut self) {
        let held = self.start.elapsed().as_nanos() as f64 - self.begun;
        let until = self.due + held;
        while held > HELD_UP_NS && self.due < until {
            self.advance();
        }
    }

    /// Waits until the next operation is due and returns when that was, in ns since the start.
    pub(crate) fn wait(&mut self) -> u64 {
        if self.late == Late::Skip {
            self.lose_what_was_missed();
        }
        let due = self.next_due();
        loop {
            let now = self.start.elapsed().as_nanos() as f64;
            let left = due as f64 - now;
            if left <= 0.0 {
                self.begun = now;
                return due;
            }
            if left > SPIN_NS {
                std::thread::sleep(Duration::from_nanos((left - SPIN_NS / 2.0) as u64));
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dues(arrival: Arrival, index: u64, count: usize) -> Vec<u64> {
        let mut pacer = Pacer::new(Instant::now(), 1000.0, (arrival, Late::Queue), index, 4, 1);
        (0..count).map(|_| pacer.next_due()).collect()
    }

    #[test]
    fn fixed_arrivals_of_all_threads_are_evenly_spaced() {
        let mut all: Vec<u64> = (0..4).flat_map(|index| dues(Arrival::Fixed, index, 10)).collect();
        all.sort_unstable();
        let expected: Vec<u64> = (0..40).map(|op| op * 1_000_000).collect();
        assert_eq!(all, expected);
    }

    #[test]
    fn poisson_arrivals_have_the_mean_and_the_spread_of_their_law() {
        let dues = dues(Arrival::Poisson, 2, 20_000);
        let steps: Vec<f64> = dues.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = steps.iter().sum::<f64>() / steps.len() as f64;
        let variance = steps.iter().map(|step| (step - mean).powi(2)).sum::<f64>() / steps.len() as f64;
        assert!((mean / 4e6 - 1.0).abs() < 0.03, "{mean}");
        assert!((variance.sqrt() / 4e6 - 1.0).abs() < 0.05, "{}", variance.sqrt());
    }

    #[test]
    fn an_operation_that_begins_late_is_due_when_it_was_due() {
        let mut pacer = Pacer::new(Instant::now(), 1e6, (Arrival::Fixed, Late::Queue), 0, 1, 1);
        std::thread::sleep(Duration::from_millis(2));
        let dues: Vec<u64> = (0..3).map(|_| pacer.wait()).collect();
        assert_eq!(dues, [0, 1_000, 2_000]);
        let mut far = Pacer::new(Instant::now(), 1000.0, (Arrival::Fixed, Late::Queue), 0, 1, 1);
        let begun = Instant::now();
        (0..4).for_each(|_| assert!(far.wait() <= 3_000_000));
        assert!(begun.elapsed() >= Duration::from_millis(3) - Duration::from_micros(1));
    }

    #[test]
    fn what_came_due_while_an_operation_was_held_up_is_lost() {
        for arrival in [Arrival::Fixed, Arrival::Poisson] {
            let mut pacer = Pacer::new(Instant::now(), 1e6, (arrival, Late::Skip), 0, 1, 1);
            // Late before its first operation: nothing held that up.
            std::thread::sleep(Duration::from_millis(5));
            let first = pacer.wait();
            assert!(first < 2_000_000, "{first}");
            std::thread::sleep(Duration::from_millis(20));
            let next = pacer.wait();
            assert!(next >= first + 20_000_000, "{first} {next}");
            assert!(pacer.next_due() > next, "and the next one after it");
        }
        let mut queued = Pacer::new(Instant::now(), 1e6, (Arrival::Fixed, Late::Queue), 0, 1, 1);
        queued.wait();
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(queued.wait(), 1000);
    }
}
