//! What one thread notes of its operations, and how the notes of all threads become one account.
//!
//! Each thread writes only to its own [`Recorder`], so recording shares nothing: a latency histogram
//! a kind, counts a window of 100 ms, and its own *silences*, spans of 10 ms or more in which it
//! completed no write (from the start to its first, between two, from its last to the end).
//!
//! ```text
//!   thread 1   |w  w ........ w  w......................... w w|
//!   thread 2   |w .......w  w  w  w  w ................ w   w  |
//!   gap                                |----------------|
//! ```
//! A **gap** is a span of 10 ms or more that lies in a silence of every writing thread: exact, and
//! free until something is slow. **Starved** is a window in which less than a tenth of the median
//! window's operations completed.

use crate::result::{Latency, LatencyPoint, TimelinePoint};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

pub(crate) const WINDOW_NS: u64 = 100_000_000;
pub(crate) const GAP_NS: u64 = 10_000_000;

/// Latencies above this are recorded as this.
const MAX_LATENCY_NS: u64 = 3_600_000_000_000;

/// The kinds of operation whose latencies are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    Seek,
    Scan,
}

impl Kind {
    pub(crate) const ALL: [Kind; 4] = [Kind::Read, Kind::Write, Kind::Seek, Kind::Scan];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Seek => "seek",
            Kind::Scan => "scan",
        }
    }
}

type Hist = Histogram<u64>;

fn histogram() -> Hist {
    Hist::new_with_bounds(1, MAX_LATENCY_NS, 3).expect("the bounds and digits are valid constants")
}

/// A span of time in ns since the start of the run.
pub(crate) type Span = (u64, u64);

/// One thread's notes. Times are ns since the start of the run.
pub(crate) struct Recorder {
    histograms: [Option<Hist>; 4],
    windows: Vec<u64>,
    write_windows: Vec<u64>,
    silences: Vec<Span>,
    last_write: u64,
    /// Operations that count as the workload's.
    pub(crate) ops: u64,
    pub(crate) writes: u64,
    pub(crate) reads_found: u64,
    pub(crate) user_bytes_written: u64,
    pub(crate) user_bytes_read: u64,
    /// Whether this thread's operations are the workload's, or a companion's beside it.
    counts: bool,
}

impl Recorder {
    pub(crate) fn new(counts: bool) -> Recorder {
        Recorder {
            histograms: [const { None }; 4],
            windows: Vec::new(),
            write_windows: Vec::new(),
            silences: Vec::new(),
            last_write: 0,
            ops: 0,
            writes: 0,
            reads_found: 0,
            user_bytes_written: 0,
            user_bytes_read: 0,
            counts,
        }
    }

    /// Notes a latency only.
    pub(crate) fn latency(&mut self, kind: Kind, from: u64, now: u64) {
        let histogram = self.histograms[kind as usize].get_or_insert_with(histogram);
        histogram.saturating_record(now.saturating_sub(from).max(1));
    }

    /// Notes `entries` operations that completed at `now`.
    pub(crate) fn done(&mut self, now: u64, entries: u64) {
        if self.counts {
            self.ops += entries;
            add(&mut self.windows, now, entries);
        }
    }

    /// Notes `entries` entries that one write, complete at `now`, has written.
    pub(crate) fn wrote(&mut self, now: u64, entries: u64) {
        self.writes += entries;
        add(&mut self.write_windows, now, entries);
        if now - self.last_write >= GAP_NS {
            self.silences.push((self.last_write, now));
        }
        self.last_write = now;
    }
}

fn add(windows: &mut Vec<u64>, now: u64, entries: u64) {
    let window = (now / WINDOW_NS) as usize;
    if window >= windows.len() {
        windows.resize(window + 1, 0);
    }
    windows[window] += entries;
}

/// The account of a run.
pub(crate) struct Account {
    pub(crate) ops: u64,
    pub(crate) writes: u64,
    pub(crate) reads_found: u64,
    pub(crate) user_bytes_written: u64,
    pub(crate) user_bytes_read: u64,
    pub(crate) latency: BTreeMap<String, Latency>,
    pub(crate) curves: BTreeMap<String, Vec<LatencyPoint>>,
    /// Nothing where nothing was written.
    pub(crate) gaps: Option<Gaps>,
    pub(crate) timeline: Vec<TimelinePoint>,
}

/// How long writes stood still.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Gaps {
    pub(crate) sum_ns: u64,
    pub(crate) longest_ns: u64,
    pub(crate) starved_seconds: f64,
}

/// Brings the notes of all threads together; `end` is when the last thread was done.
pub(crate) fn account(threads: Vec<Recorder>, end: u64) -> Account {
    let writers: Vec<&Recorder> = threads.iter().filter(|thread| thread.writes > 0).collect();
    // The last write ends the span that is judged: a writer that is done is not stalled.
    let write_end = writers.iter().map(|writer| writer.last_write).max().unwrap_or(0);
    let silences: Vec<Vec<Span>> = writers.iter().map(|writer| all_silences(writer, write_end)).collect();
    let gap_spans = common_spans(&silences, GAP_NS);

    let window_count = end.div_ceil(WINDOW_NS).max(1) as usize;
    let ops = sum_windows(threads.iter().map(|thread| &thread.windows), window_count);
    let writes = sum_windows(threads.iter().map(|thread| &thread.write_windows), window_count);
    let timeline = (0..window_count)
        .map(|window| TimelinePoint {
            t_ms: window as u64 * WINDOW_NS / 1_000_000,
            ops: ops[window],
            writes: writes[window],
            stalled_ms: overlap_ns(&gap_spans, window) as f64 / 1e6,
        })
        .collect();

    let gaps = (!writers.is_empty()).then(|| Gaps {
        sum_ns: gap_spans.iter().map(|(from, to)| to - from).sum(),
        longest_ns: gap_spans.iter().map(|(from, to)| to - from).max().unwrap_or(0),
        starved_seconds: starved_windows(&writes[..whole_windows(write_end)]) as f64 * WINDOW_NS as f64 / 1e9,
    });
    let (latency, curves) = latencies(&threads);
    Account {
        ops: threads.iter().map(|thread| thread.ops).sum(),
        writes: threads.iter().map(|thread| thread.writes).sum(),
        reads_found: threads.iter().map(|thread| thread.reads_found).sum(),
        user_bytes_written: threads.iter().map(|thread| thread.user_bytes_written).sum(),
        user_bytes_read: threads.iter().map(|thread| thread.user_bytes_read).sum(),
        latency,
        curves,
        gaps,
        timeline,
    }
}

fn whole_windows(end: u64) -> usize {
    (end / WINDOW_NS) as usize
}

/// A writer's silences, with the one after its last write.
fn all_silences(writer: &Recorder, write_end: u64) -> Vec<Span> {
    let mut spans = writer.silences.clone();
    if writer.last_write < write_end {
        spans.push((writer.last_write, write_end));
    }
    spans
}

/// The spans of at least `min` that lie in one span of every list; lists are ordered and disjoint.
fn common_spans(lists: &[Vec<Span>], min: u64) -> Vec<Span> {
    let Some((first, rest)) = lists.split_first() else { return Vec::new() };
    let mut common = first.clone();
    for list in rest {
        let mut next = Vec::new();
        let (mut a, mut b) = (0, 0);
        while a < common.len() && b < list.len() {
            let (from, to) = (common[a].0.max(list[b].0), common[a].1.min(list[b].1));
            if from < to {
                next.push((from, to));
            }
            if common[a].1 < list[b].1 { a += 1 } else { b += 1 }
        }
        common = next;
    }
    common.retain(|(from, to)| to - from >= min);
    common
}

fn overlap_ns(spans: &[Span], window: usize) -> u64 {
    let (start, end) = (window as u64 * WINDOW_NS, (window as u64 + 1) * WINDOW_NS);
    spans.iter().map(|&(from, to)| to.min(end).saturating_sub(from.max(start))).sum()
}

fn sum_windows<'a>(threads: impl Iterator<Item = &'a Vec<u64>>, count: usize) -> Vec<u64> {
    let mut sums = vec![0; count];
    for windows in threads {
        for (sum, ops) in sums.iter_mut().zip(windows) {
            *sum += ops;
        }
    }
    sums
}

/// Windows under a tenth of the median one.
fn starved_windows(windows: &[u64]) -> usize {
    let mut sorted = windows.to_vec();
    sorted.sort_unstable();
    let Some(&median) = sorted.get(sorted.len() / 2) else { return 0 };
    windows.iter().filter(|&&ops| (ops as f64) < median as f64 / 10.0).count()
}

/// Shares of operations at which the latency curve is drawn.
const CURVE_SHARES: [f64; 16] = [
    0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999, 0.99999, 0.999999,
];

type Latencies = (BTreeMap<String, Latency>, BTreeMap<String, Vec<LatencyPoint>>);

fn latencies(threads: &[Recorder]) -> Latencies {
    let (mut summary, mut curves) = (BTreeMap::new(), BTreeMap::new());
    for kind in Kind::ALL {
        let mut all: Option<Hist> = None;
        for one in threads.iter().filter_map(|thread| thread.histograms[kind as usize].as_ref()) {
            all.get_or_insert_with(histogram).add(one).expect("all histograms have the same bounds");
        }
        let Some(all) = all else { continue };
        let micros = |share: f64| all.value_at_quantile(share) as f64 / 1e3;
        let latency = Latency {
            p50: micros(0.5),
            p99: micros(0.99),
            p999: micros(0.999),
            p9999: micros(0.9999),
            max: all.max() as f64 / 1e3,
            mean: all.mean() / 1e3,
            count: all.len(),
        };
        // A share finer than one operation would only repeat the maximum.
        let fine_enough = |share: &f64| (1.0 - share) * all.len() as f64 >= 1.0;
        let curve = CURVE_SHARES.into_iter().filter(fine_enough);
        let mut curve: Vec<LatencyPoint> =
            curve.map(|share| LatencyPoint { share, us: micros(share) }).collect();
        curve.push(LatencyPoint { share: 1.0, us: latency.max });
        summary.insert(kind.name().to_owned(), latency);
        curves.insert(kind.name().to_owned(), curve);
    }
    (summary, curves)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn writer(times_ms: &[u64]) -> Recorder {
        let mut recorder = Recorder::new(true);
        for &at in times_ms {
            recorder.latency(Kind::Write, at * MS - MS / 2, at * MS);
            recorder.done(at * MS, 1);
            recorder.wrote(at * MS, 1);
        }
        recorder
    }

    fn gaps(threads: Vec<Recorder>, end_ms: u64) -> Gaps {
        account(threads, end_ms * MS).gaps.unwrap()
    }

    #[test]
    fn a_gap_is_a_silence_of_all_threads() {
        // Silences of the first: 2..30 and 31..60; of the second: 5..25 and 29..58.
        let one = || writer(&[1, 2, 30, 31, 60]);
        let two = || writer(&[1, 5, 25, 29, 58, 60]);
        assert_eq!(gaps(vec![one()], 60).sum_ns, (28 + 29) * MS);
        let both = gaps(vec![one(), two()], 60);
        assert_eq!((both.sum_ns, both.longest_ns), ((20 + 27) * MS, 27 * MS));
        // A third that writes all the time leaves none; one that only reads changes nothing.
        let steady = writer(&(1..=60).collect::<Vec<_>>());
        assert_eq!(gaps(vec![one(), two(), steady], 60).sum_ns, 0);
        let mut reader = Recorder::new(true);
        reader.done(30 * MS, 1);
        assert_eq!(gaps(vec![one(), two(), reader], 60).sum_ns, 47 * MS);
    }

    #[test]
    fn the_ends_of_a_run_count_and_the_time_after_the_last_write_does_not() {
        let late_start = gaps(vec![writer(&[40, 41])], 41);
        assert_eq!((late_start.sum_ns, late_start.longest_ns), (40 * MS, 40 * MS));
        // The first thread is done early; the second alone decides from then on.
        assert_eq!(gaps(vec![writer(&[1, 2]), writer(&[1, 2, 50])], 50).sum_ns, 48 * MS);
        assert_eq!(gaps(vec![writer(&[1, 2])], 500).sum_ns, 0);
        assert_eq!(gaps(vec![writer(&[1, 10, 19])], 19).sum_ns, 0, "9 ms is no gap");
        assert!(account(vec![Recorder::new(true)], MS).gaps.is_none());
    }

    #[test]
    fn windows_carry_operations_and_the_part_that_was_stalled() {
        let times: Vec<u64> = (1..=130).chain(310..=399).collect();
        let account = account(vec![writer(&times)], 400 * MS);
        let ops: Vec<u64> = account.timeline.iter().map(|point| point.ops).collect();
        let stalled: Vec<f64> = account.timeline.iter().map(|point| point.stalled_ms).collect();
        assert_eq!(ops, [99, 31, 0, 90]);
        assert_eq!(stalled, [0.0, 70.0, 100.0, 10.0]);
        assert_eq!(account.gaps.unwrap().starved_seconds, 0.1);
        assert_eq!(account.timeline[3].t_ms, 300);
        assert_eq!((account.ops, account.writes), (220, 220));
    }

    #[test]
    fn starved_is_under_a_tenth_of_the_median() {
        assert_eq!(starved_windows(&[]), 0);
        assert_eq!(starved_windows(&[0, 0, 0]), 0);
        assert_eq!(starved_windows(&[100, 100, 9, 10, 100, 0, 100]), 2);
    }

    #[test]
    fn latencies_are_in_microseconds_and_by_kind() {
        let mut recorder = Recorder::new(true);
        for micros in 1..=10_000u64 {
            recorder.latency(Kind::Read, 0, micros * 1000);
        }
        recorder.latency(Kind::Seek, 5, 5);
        let account = account(vec![recorder, writer(&[1])], MS);
        let read = &account.latency["read"];
        let near = |got: f64, want: f64| (got / want - 1.0).abs() < 0.002;
        assert!(near(read.p50, 5_000.0) && near(read.p99, 9_900.0) && near(read.p9999, 9_999.0), "{read:?}");
        assert!(near(read.max, 10_000.0) && read.count == 10_000);
        assert_eq!(account.latency.keys().collect::<Vec<_>>(), ["read", "seek", "write"]);
        let curve = &account.curves["read"];
        assert!(curve.windows(2).all(|pair| pair[0].share < pair[1].share && pair[0].us <= pair[1].us));
        assert_eq!(account.curves["seek"].len(), 2);
    }

    #[test]
    fn a_companion_does_not_count_as_the_workload() {
        let mut companion = Recorder::new(false);
        companion.done(MS, 1);
        companion.wrote(MS, 1);
        let account = account(vec![companion], MS);
        assert_eq!((account.ops, account.writes, account.timeline[0].ops), (0, 1, 0));
    }
}
