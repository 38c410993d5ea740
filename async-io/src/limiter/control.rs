//! The limiter's mind: a state machine without clock, lock or wait.
//!
//! ```text
//!             latency <= near, window in use             latency > risen, asked for since the last cut
//!   window += step * bytes / window  (<= ceiling)    window *= decrease_percent  (>= floor)
//!
//!   near  = floor latency * good_percent,  risen = floor latency * bad_percent, and at least the
//!   noise above the floor. Floor latency: the least seen for transfers of about that size in the
//!   last one to two `floor_memory`, so that a device that got slower for good is believed.
//! ```
//!
//! What waits is granted by priority, first come first served within one. A class that others went
//! before `lower_every` times in a row has its turn, so that nobody starves. The head of the line
//! is never overtaken by something smaller behind it. Flush does not stand in line: it is granted at
//! once and makes the room of the others smaller (rule 21).
//!
//! INVARIANT: what the classes other than flush have under way fits in the window together with
//! what flush has, or is one single grant. Upheld by `fits`; attacked by `tests.rs`.

use std::collections::{BTreeSet, VecDeque};

use crate::env::Nanos;
use crate::error::{Error, Result};

const SECOND: u128 = 1_000_000_000;

/// What a grant is for, the more urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// A flush: memory is waiting for it. Never waits itself.
    Flush = 0,
    /// A compaction out of L0.
    L0 = 1,
    /// A compaction between deeper levels.
    Deep = 2,
    /// What a user asked for that nobody waits for: a checkpoint, a verification.
    User = 3,
}

/// How many priorities there are.
pub(super) const CLASSES: usize = 4;

/// The control law's numbers.
#[derive(Clone, Debug)]
pub struct LimiterOptions {
    /// The window never gets smaller. Bytes, at least 1; 4 MiB by default.
    pub floor_bytes: u64,
    /// The window never gets larger. Bytes, at least the floor; 256 MiB by default.
    pub ceiling_bytes: u64,
    /// How much the window grows while as many bytes as it has complete in good time. Bytes; 2 MiB
    /// by default.
    pub step_bytes: u64,
    /// A latency up to this percentage of its floor is good, 100 to `bad_percent`. 200 by default.
    pub good_percent: u64,
    /// A latency above this percentage of its floor has risen. 400 by default.
    pub bad_percent: u64,
    /// What is left of the window when latency has risen, 10 to 99 percent. 70 by default.
    pub decrease_percent: u64,
    /// A latency within this much of its floor is good whatever the percentages say, and one within
    /// twice as much has not risen: schedulers make as much by themselves. Nanoseconds; 2 ms.
    pub noise: Nanos,
    /// A latency above this has risen whatever its floor is: on a slow disk what is more urgent waits behind
    /// all that is under way. Nanoseconds; none by default.
    pub latency_max: Nanos,
    /// How long a latency is remembered as the floor, once to twice. Nanoseconds; 30 s by default.
    pub floor_memory: Nanos,
    /// After so many grants to others in a row a class that waits has its turn; at least 1, 10 by
    /// default.
    pub lower_every: u32,
    /// A cap on what is granted, in bytes per second; none by default. May be changed later. Flush
    /// counts, and does not wait for it.
    pub user_bytes_per_second: Option<u64>,
}

impl Default for LimiterOptions {
    fn default() -> LimiterOptions {
        LimiterOptions {
            floor_bytes: 4 << 20,
            ceiling_bytes: 256 << 20,
            step_bytes: 2 << 20,
            good_percent: 200,
            bad_percent: 400,
            decrease_percent: 70,
            noise: 2_000_000,
            latency_max: Nanos::MAX,
            floor_memory: 30_000_000_000,
            lower_every: 10,
            user_bytes_per_second: None,
        }
    }
}

impl LimiterOptions {
    pub(super) fn validate(&self) -> Result<()> {
        let mut wrong = Vec::new();
        let mut check = |ok: bool, text: &'static str| wrong.extend((!ok).then_some(text));
        check(self.floor_bytes >= 1, "floor_bytes is 0");
        check(self.ceiling_bytes >= self.floor_bytes, "ceiling_bytes is below floor_bytes");
        check(self.ceiling_bytes <= 1 << 50, "ceiling_bytes is above 2^50");
        check((100..=self.bad_percent).contains(&self.good_percent), "good_percent: 100 to bad_percent");
        check((10..=99).contains(&self.decrease_percent), "decrease_percent is not in 10..=99");
        check(self.lower_every >= 1, "lower_every is 0");
        check(self.user_bytes_per_second != Some(0), "user_bytes_per_second is 0: that is a stop");
        if wrong.is_empty() { Ok(()) } else { Err(Error::invalid(wrong.join("; "))) }
    }
}

/// The limiter's decisions so far and where it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimiterStats {
    /// The window now, in bytes.
    pub window_bytes: u64,
    /// Bytes granted and not returned, by priority.
    pub in_flight_bytes: [u64; CLASSES],
    /// The most that was granted and not returned at one time.
    pub in_flight_bytes_peak: u64,
    /// Grants, by priority.
    pub granted_count: [u64; CLASSES],
    /// Asked for and not granted at once, by priority.
    pub waited_count: [u64; CLASSES],
    /// Grants that a lower class got because it had been passed over often enough.
    pub turn_count: u64,
    /// Flush grants that the window had no room for.
    pub flush_over_window_count: u64,
    /// Times that the head of the line fitted the window and waited for the user's cap.
    pub capped_count: u64,
    /// Completions in good time that made the window grow,
    pub increase_count: u64,
    /// that found it at the ceiling,
    pub at_ceiling_count: u64,
    /// and that said nothing, since the window was not in use.
    pub idle_count: u64,
    /// Completions neither good nor risen.
    pub held_count: u64,
    /// Risen latencies that cut the window,
    pub decrease_count: u64,
    /// that found it at the floor,
    pub at_floor_count: u64,
    /// and that were granted before the last cut, which has them in it already.
    pub old_news_count: u64,
}

/// The least latency seen lately for transfers of about one size.
#[derive(Clone, Copy)]
struct Floor {
    now: Nanos,
    before: Nanos,
    since: Nanos,
}

impl Floor {
    fn observe(&mut self, at: Nanos, latency: Nanos, memory: Nanos) -> Nanos {
        if at.saturating_sub(self.since) > memory {
            // After a longer silence what was before is too old as well.
            let is_old = at.saturating_sub(self.since) > memory.saturating_mul(2);
            self.before = if is_old { Nanos::MAX } else { self.now };
            self.now = Nanos::MAX;
            self.since = at;
        }
        self.now = self.now.min(latency);
        self.now.min(self.before)
    }
}

/// The user's cap: bytes that may be granted; negative while it is being paid off.
struct Tokens {
    bytes: i128,
    /// What was earned since and is less than a byte is not lost: the moment moves by whole bytes.
    at: Nanos,
}

/// One who waits.
struct Waiter {
    number: u64,
    bytes: u64,
}

pub(super) struct Control {
    options: LimiterOptions,
    window: u64,
    in_flight: [u64; CLASSES],
    lines: [VecDeque<Waiter>; CLASSES],
    /// Grants to others since the class's last, while it waited.
    passed_over: [u32; CLASSES],
    numbers: u64,
    granted: BTreeSet<u64>,
    floors: [Floor; 16],
    last_cut: Option<Nanos>,
    tokens: Tokens,
    stats: LimiterStats,
}

impl Control {
    pub(super) fn new(options: LimiterOptions, now: Nanos) -> Control {
        Control {
            // Nothing speaks for less yet; the first risen latency will.
            window: options.ceiling_bytes,
            in_flight: [0; CLASSES],
            lines: Default::default(),
            passed_over: [0; CLASSES],
            numbers: 0,
            granted: BTreeSet::new(),
            floors: [Floor { now: Nanos::MAX, before: Nanos::MAX, since: now }; 16],
            last_cut: None,
            tokens: Tokens { bytes: 0, at: now },
            stats: LimiterStats::default(),
            options,
        }
        .with_full_tokens()
    }

    fn with_full_tokens(mut self) -> Control {
        self.tokens.bytes = self.burst();
        self
    }

    /// What the cap lets through at once: a tenth of a second's worth.
    fn burst(&self) -> i128 {
        self.options.user_bytes_per_second.map_or(0, |rate| i128::from(rate / 10).max(1))
    }

    pub(super) fn set_cap(&mut self, now: Nanos, rate: Option<u64>) {
        self.options.user_bytes_per_second = rate;
        self.tokens = Tokens { bytes: self.burst(), at: now };
    }

    /// Stands in line for `bytes`; after a `grant` the number says whether they were granted.
    pub(super) fn ask(&mut self, now: Nanos, class: Priority, bytes: u64) -> u64 {
        self.numbers += 1;
        let number = self.numbers;
        if class == Priority::Flush {
            self.earn(now);
            let used: u64 = self.in_flight.iter().sum();
            self.stats.flush_over_window_count += u64::from(used + bytes > self.window);
            self.give(class as usize, Waiter { number, bytes });
        } else {
            self.lines[class as usize].push_back(Waiter { number, bytes });
        }
        number
    }

    /// Whether the number was granted; tells once.
    pub(super) fn take(&mut self, number: u64) -> bool {
        self.granted.remove(&number)
    }

    /// Leaves the line; returns whether it was still in it.
    pub(super) fn withdraw(&mut self, number: u64) -> bool {
        let before: usize = self.lines.iter().map(VecDeque::len).sum();
        self.lines.iter_mut().for_each(|line| line.retain(|waiter| waiter.number != number));
        before > self.lines.iter().map(VecDeque::len).sum()
    }

    /// Counts one who asked and was not granted it at once.
    pub(super) fn note_wait(&mut self, class: Priority) {
        self.stats.waited_count[class as usize] += 1;
    }

    /// Grants what may be granted now. Returns how many that were, and when to ask again though
    /// nothing was given back: when the user's cap lets the next one through.
    pub(super) fn grant(&mut self, now: Nanos) -> (usize, Option<Nanos>) {
        self.earn(now);
        let mut count = 0;
        while let Some((class, is_turn)) = self.next_class() {
            if !self.lines[class].front().is_some_and(|head| self.fits(head.bytes)) {
                break;
            }
            if let Some(at) = self.capped_until(now) {
                self.stats.capped_count += 1;
                return (count, Some(at));
            }
            let Some(waiter) = self.lines[class].pop_front() else { break };
            self.stats.turn_count += u64::from(is_turn);
            self.give(class, waiter);
            count += 1;
        }
        (count, None)
    }

    /// Who is next: a class whose turn has come, else the most urgent.
    fn next_class(&self) -> Option<(usize, bool)> {
        let mut waiting = (0..CLASSES).filter(|class| !self.lines[*class].is_empty());
        let first = waiting.next()?;
        let due = waiting.find(|class| self.passed_over[*class] >= self.options.lower_every);
        Some(due.map_or((first, false), |class| (class, true)))
    }

    fn fits(&self, bytes: u64) -> bool {
        let limited: u64 = self.in_flight[1..].iter().sum();
        limited == 0 || limited + self.in_flight[0] + bytes <= self.window
    }

    fn give(&mut self, class: usize, waiter: Waiter) {
        // Flush comes when it comes; that gives nobody else a turn.
        if class != Priority::Flush as usize {
            self.passed_over[class] = 0;
            for (other, line) in self.lines.iter().enumerate().filter(|(other, _)| *other != class) {
                self.passed_over[other] += u32::from(!line.is_empty());
            }
        }
        self.in_flight[class] += waiter.bytes;
        let in_flight = self.in_flight.iter().sum();
        self.stats.in_flight_bytes_peak = self.stats.in_flight_bytes_peak.max(in_flight);
        self.stats.granted_count[class] += 1;
        self.granted.insert(waiter.number);
        if let Some(rate) = self.options.user_bytes_per_second {
            // Flush may run up a debt, but of no more than a second.
            let debt_max = -i128::from(rate.max(waiter.bytes));
            self.tokens.bytes = (self.tokens.bytes - i128::from(waiter.bytes)).max(debt_max);
        }
    }

    /// Adds what the cap has earned since the last look.
    fn earn(&mut self, now: Nanos) {
        let Some(rate) = self.options.user_bytes_per_second.map(u128::from) else { return };
        let elapsed = u128::from(now.saturating_sub(self.tokens.at));
        let earned = elapsed * rate / SECOND;
        self.tokens.bytes += i128::try_from(earned).unwrap_or(i128::MAX / 2);
        // Rounded up, so that rounding never earns a byte; it stays at or below `now`.
        self.tokens.at += (earned * SECOND).div_ceil(rate) as Nanos;
        if self.tokens.bytes >= self.burst() {
            self.tokens = Tokens { bytes: self.burst(), at: now };
        }
    }

    fn capped_until(&self, now: Nanos) -> Option<Nanos> {
        let rate = self.options.user_bytes_per_second.map(u128::from)?;
        if self.tokens.bytes > 0 {
            return None;
        }
        let missing = (1 - self.tokens.bytes) as u128;
        let wait = (missing * SECOND).div_ceil(rate);
        Some(self.tokens.at.saturating_add(wait as Nanos).max(now + 1))
    }

    /// Takes bytes back whose I/O began at `begun` and is complete, and learns from how long it
    /// took; nothing is learnt from what failed.
    pub(super) fn give_back(&mut self, now: Nanos, class: Priority, bytes: u64, begun: Nanos, ok: bool) {
        let used: u64 = self.in_flight.iter().sum();
        self.in_flight[class as usize] -= bytes;
        if ok && bytes > 0 {
            self.learn(now, bytes, begun, used);
        }
    }

    fn learn(&mut self, now: Nanos, bytes: u64, begun: Nanos, used: u64) {
        let latency = now.saturating_sub(begun);
        // Sizes by powers of two from 64 KiB up: a floor for 1 MiB says nothing of 64 MiB.
        let size = (bytes >> 16).checked_ilog2().map_or(0, |log| (log as usize + 1).min(15));
        let floor = self.floors[size].observe(now, latency, self.options.floor_memory);
        let share = |percent: u64| (u128::from(floor) * u128::from(percent) / 100) as Nanos;
        let near = share(self.options.good_percent).max(floor.saturating_add(self.options.noise));
        let risen =
            share(self.options.bad_percent).max(floor.saturating_add(2 * self.options.noise)).max(near);
        let (risen, near) = (risen.min(self.options.latency_max), near.min(self.options.latency_max));
        let stats = &mut self.stats;
        if latency > risen {
            if self.last_cut.is_some_and(|cut| begun <= cut) {
                stats.old_news_count += 1;
            } else if self.window <= self.options.floor_bytes {
                stats.at_floor_count += 1;
            } else {
                let cut = self.window / 100 * self.options.decrease_percent;
                self.window = cut.max(self.options.floor_bytes);
                self.last_cut = Some(now);
                stats.decrease_count += 1;
            }
        } else if latency > near {
            stats.held_count += 1;
        } else if used.saturating_mul(2) < self.window {
            stats.idle_count += 1;
        } else if self.window >= self.options.ceiling_bytes {
            stats.at_ceiling_count += 1;
        } else {
            let more = u128::from(self.options.step_bytes) * u128::from(bytes) / u128::from(self.window);
            let more = (more as u64).clamp(1, self.options.step_bytes.max(1));
            self.window = (self.window + more).min(self.options.ceiling_bytes);
            stats.increase_count += 1;
        }
    }

    /// How many of `most` jobs the window is good for: one at the floor, all at the ceiling.
    pub(super) fn jobs(&self, most: usize) -> usize {
        let span = u128::from(self.options.ceiling_bytes - self.options.floor_bytes);
        let above = u128::from(self.window - self.options.floor_bytes);
        let more = (most.saturating_sub(1)) as u128;
        (more * above).checked_div(span).map_or(most.max(1), |more| 1 + more as usize)
    }

    pub(super) fn stats(&self) -> LimiterStats {
        LimiterStats { window_bytes: self.window, in_flight_bytes: self.in_flight, ..self.stats }
    }
}
