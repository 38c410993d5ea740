//! Rates from counters.

use super::*;
use crate::stall_model::observe::{Drain, Observation, Stalls, Unobserved};
use crate::{KeyspaceOptions, Options};

/// 100 s at the rates of the worked example: 12.7 % of the time stalled, and tables half as large as what they hold.
fn observation() -> Observation {
    let accepted = 210e6 * 100.0 * (1.0 - 0.127);
    let drain = |bytes: f64, rate: f64, survival: f64| Drain {
        drained_bytes: bytes / 2.0,
        survived_bytes: bytes / 2.0 * survival,
        seconds: bytes / rate / 1e6,
    };
    let mut levels = [Drain::default(); 7];
    levels[0] = drain(accepted, 190.0, 0.9);
    levels[5] = drain(0.9 * accepted, 2.0 * 165.0, 1.0);
    levels[6] = Drain { seconds: levels[5].seconds, ..Drain::default() };
    let stalls = [(10.0, 4.0), (2.0, 5.0), (1.0, 3.7)].map(|(count, seconds)| Stalls { count, seconds });
    Observation {
        seconds: 100.0,
        writes: accepted / 1000.0,
        write_bytes: accepted,
        flushes: accepted / 64e6,
        flush_input_bytes: accepted,
        flush_bytes: accepted / 2.0,
        flush_seconds: accepted / 200e6,
        levels,
        stalls,
        trees: 1.0,
    }
}

#[test]
fn counters_give_back_the_rates_that_made_them() {
    let seen = observation();
    let found = seen.rates().unwrap();
    let pairs = [
        (found.arrival.0, 210.0),
        (found.flush.0, 200.0),
        (found.l0.0, 190.0),
        (found.deep.0, 165.0),
        (found.survival, 0.9),
        (seen.record_bytes().unwrap(), 1000.0),
        (seen.stalled_share(), 0.127),
        (seen.stalls[1].duration().0, 2.5),
    ];
    for (value, expected) in pairs {
        assert!((value / expected - 1.0).abs() < 1e-12, "{value} {expected}");
    }
    let on_four_trees = Observation { trees: 4.0, ..seen };
    assert!((on_four_trees.share(StallCause::Memtable) - 0.01).abs() < 1e-12);
}

#[test]
fn limits_are_in_user_bytes_like_rates() {
    let options = KeyspaceOptions {
        level0_compaction_trigger: 4,
        level0_stop_trigger: 36,
        pending_compaction_hard_bytes: 4096 << 20,
        pending_compaction_soft_bytes: 1024 << 20,
        ..Options::default().keyspace()
    };
    let limits = observation().limits(&options).unwrap();
    let user_mb = |table_mib: f64| table_mib * 2.0 * 1.048576;
    for (value, expected) in [
        (limits.memtable.0, 64.0),
        (limits.l0.0, 32.0 * 64.0),
        (limits.pending.0, user_mb(4096.0)),
        (limits.pending_drain.0, user_mb(3072.0)),
    ] {
        assert!((value / expected - 1.0).abs() < 1e-9, "{value} {expected}");
    }
    let unobserved = Observation::limits_unobserved(&options).unwrap();
    assert_eq!(unobserved.memtable.0, options.write_buffer_bytes as f64 / 1e6);
    assert_eq!(unobserved.pending.0, 4096.0 * 1.048576);
    let one_mark = KeyspaceOptions { pending_compaction_soft_bytes: 4096 << 20, ..options.clone() };
    assert_eq!(observation().limits(&one_mark).unwrap().pending_drain, limits.pending);
    let no_room = KeyspaceOptions { level0_stop_trigger: 4, ..options };
    let error = observation().limits(&no_room).unwrap_err();
    assert!(matches!(error, Unobserved::Options(OutOfRange { input: Input::L0Files, .. })), "{error}");
}

#[test]
fn only_the_time_between_two_observations_counts() {
    let (first, whole) = (observation(), observation());
    let mut later = whole;
    later.seconds *= 3.0;
    later.writes *= 3.0;
    later.write_bytes *= 3.0;
    later.flushes *= 3.0;
    later.flush_input_bytes *= 3.0;
    later.flush_bytes *= 3.0;
    later.flush_seconds *= 5.0;
    for level in &mut later.levels {
        *level = Drain {
            drained_bytes: level.drained_bytes * 3.0,
            survived_bytes: level.survived_bytes * 3.0,
            seconds: level.seconds * 3.0,
        };
    }
    let between = later.since(&first).rates().unwrap();
    assert!((between.flush.0 - 100.0).abs() < 1e-9, "slower flushes after the first observation");
    assert!((between.l0.0 - 190.0).abs() < 1e-9);
    assert_eq!(first.since(&later).rates().unwrap_err(), Unobserved::NothingWritten, "backwards");
}

#[test]
fn what_says_nothing_is_an_error_and_what_had_nothing_to_do_is_fast() {
    let seen = observation();
    let rates = |change: fn(&mut Observation)| {
        let mut changed = seen;
        change(&mut changed);
        changed.rates()
    };
    assert_eq!(rates(|o| o.seconds = 0.0), Err(Unobserved::NothingWritten));
    assert_eq!(rates(|o| o.writes = 0.0), Err(Unobserved::NothingWritten));
    assert_eq!(rates(|o| o.write_bytes = f64::NAN), Err(Unobserved::NothingWritten));
    assert_eq!(rates(|o| o.flushes = 0.0), Err(Unobserved::NothingFlushed));
    let fresh = rates(|o| o.levels = Default::default()).unwrap();
    assert_eq!((fresh.l0.0, fresh.deep.0, fresh.survival), (f64::INFINITY, f64::INFINITY, 1.0));
    let grown = rates(|o| o.levels[0].survived_bytes *= 2.0).unwrap();
    assert_eq!(grown.survival, 1.0, "tables may grow a little in a compaction");
}
