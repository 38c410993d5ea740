//! The worked example, laws that hold for every input, and the pipeline itself as a fluid.

use super::balloon::{Knob, further_shards, sweep};
use super::*;

mod fluid;
mod observed;

fn mb_s(value: f64) -> MegabytesPerSecond {
    MegabytesPerSecond(value)
}

fn rates(arrival: f64, flush: f64, l0: f64, deep: f64, survival: f64) -> Rates {
    Rates { arrival: mb_s(arrival), flush: mb_s(flush), l0: mb_s(l0), deep: mb_s(deep), survival }
}

/// 64 MB memtables and L0 files, 4 to 36 of them, 8192 MB of debt of which 2048 end a stall, records of 1 kB.
fn model(rates: Rates) -> Model {
    let l0 = Limits::l0_by_files(4, 36, Megabytes(64.0)).unwrap();
    let limits = Limits {
        memtable: Megabytes(64.0),
        l0,
        pending: Megabytes(8192.0),
        pending_drain: Megabytes(2048.0),
    };
    let writes = Writes { record_bytes: 1000.0, service: Seconds(2e-6) };
    Model { rates, limits, writes, sharding: Sharding::default(), form: Form::Corrected }
}

fn example() -> Model {
    model(rates(210.0, 200.0, 190.0, 165.0, 0.9))
}

fn predict(model: &Model) -> Prediction {
    model.predict().unwrap()
}

/// To as many digits as `expected` is written with, the last one rounded.
fn assert_digits(value: f64, expected: &str) {
    let decimals = expected.split_once('.').map_or(0, |(_, after)| after.len());
    assert_eq!(format!("{value:.decimals$}"), expected);
}

#[test]
fn the_worked_example_comes_out_to_its_digits() {
    let of = |shards| predict(&Model { sharding: Sharding { shards, common_cause: 0.0 }, ..example() });
    let base = of(1);
    let rows = [
        ("0.156250", "0.3200", "0.050000"),
        ("0.004883", "10.7789", "0.052632"),
        ("0.002930", "12.4121", "0.036364"),
    ];
    for (class, (rate, duration, x)) in base.classes.iter().zip(rows) {
        assert_digits(class.rate.0, rate);
        assert_digits(class.duration.0, duration);
        assert_digits(class.x, x);
    }
    assert_digits(base.alpha, "0.12698");
    assert_digits(example().rates.bottleneck_alpha(), "0.12698");
    assert_digits(base.v_bar.0, "0.8472");
    assert_digits(base.wait().0, "0.1855");
    assert_digits(base.wait_met(Spread::Equal).0, "1.142");
    assert_digits(base.waiting_writes(), "38952");
    assert_digits(of(2).waiting_writes(), "1816");
    assert_digits(of(4).waiting_writes(), "12.9");
    assert_digits(of(8).waiting_writes(), "0.0016");
    assert_digits(of(8).alpha_all() * 1e8, "6.8");
    assert_eq!(base.wait_met(Spread::Exponential).0, 2.0 * base.wait_met(Spread::Equal).0);
    assert_digits(example().first_pending_stall().unwrap().0, "1365.3333");
}

#[test]
fn the_literal_form_of_the_worked_example_comes_out_to_its_digits() {
    let of = |shards| {
        let sharding = Sharding { shards, common_cause: 0.0 };
        predict(&Model { form: Form::Literal, sharding, ..example() })
    };
    let pending = *of(1).class(StallCause::Pending);
    assert_digits(pending.rate.0, "0.000732");
    assert_digits(pending.x, "0.009091");
    assert_digits(of(1).alpha, "0.1117");
    assert_digits(of(1).v_bar.0, "0.6902");
    assert_digits(of(1).wait().0, "0.1330");
    assert_digits(of(1).waiting_writes(), "27920");
    assert_digits(of(2).waiting_writes(), "1145");
    assert_digits(of(4).waiting_writes(), "6.31");
    assert_digits(of(8).waiting_writes() * 1e4, "4.6");
}

#[test]
fn the_literal_form_stalls_where_nothing_does_and_sums_past_1() {
    let idle = model(rates(150.0, 200.0, 190.0, 180.0, 0.9));
    assert_eq!(predict(&idle).alpha, 0.0);
    assert_digits(predict(&Model { form: Form::Literal, ..idle }).class(StallCause::Level0).x, "0.053");
    let saturated = model(rates(250.0, 200.0, 120.0, 80.0, 0.9));
    let literal = predict(&Model { form: Form::Literal, ..saturated });
    assert_digits(literal.alpha, "1.004");
    assert!(literal.alpha_all_of(8) > literal.alpha_all_of(1), "as the notes warn");
    assert_digits(predict(&saturated).alpha, "0.6444");
    assert_digits(predict(&saturated).alpha_all_of(8), "0.030");
}

#[test]
fn subcompactions_follow_amdahls_law_up_to_its_cap() {
    let of = |c| subcompacted(mb_s(100.0), c, 0.75).unwrap().0;
    for (c, rate) in
        [(1, "100.00"), (2, "160.00"), (4, "228.57"), (8, "290.91"), (16, "336.84"), (u32::MAX, "400.00")]
    {
        assert_digits(of(c), rate);
    }
    assert_eq!(subcompacted(mb_s(100.0), 8, 1.0).unwrap().0, 800.0);
    assert_eq!(subcompacted(mb_s(100.0), 8, 0.0).unwrap().0, 100.0);
}

#[test]
fn stages_that_share_workers_leave_each_other_what_they_do_not_need() {
    let own = rates(500.0, 400.0, 200.0, 100.0, 0.5);
    let of = |workers, trees| own.with_workers(workers, trees).unwrap().l0.0;
    assert_digits(of(1, 1), "100.000");
    assert_digits(of(2, 1), "200.000");
    assert_digits(of(8, 1), "200.000");
    assert_digits(of(2, 4), "200.000");
    assert_digits(of(8, 4), "800.000");
    let idle = rates(500.0, 400.0, f64::INFINITY, f64::INFINITY, 1.0);
    assert_eq!(idle.with_workers(1, 1).unwrap().l0.0, f64::INFINITY);
    let stuck = rates(500.0, 400.0, 200.0, 0.0, 1.0);
    assert_eq!(stuck.with_workers(3, 1).unwrap().l0.0, 0.0, "debt is paid first");
    assert_eq!(own.with_workers(0, 1).unwrap_err().input, Input::Workers);
    assert_eq!(own.with_workers(1, 0).unwrap_err().input, Input::Shards);
}

/// Many inputs, spread over the decades, by a fixed recurrence.
fn many() -> impl Iterator<Item = Model> {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut unit = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    (0..3000).map(move |_| {
        let mut rate = || 10f64.powf(1.0 + 2.0 * unit());
        let rates = rates(rate(), rate(), rate(), rate(), 0.0);
        let mut size = || Megabytes(10f64.powf(3.0 * unit()));
        let mut of = Model { rates, ..example() };
        of.limits = Limits { memtable: size(), l0: size(), pending: size(), pending_drain: Megabytes(0.0) };
        of.rates.survival = 1.0 - 0.9 * unit();
        of.limits.pending_drain = Megabytes(of.limits.pending.0 * (1.0 - 0.9 * unit()));
        of.writes.service = Seconds(0.9 * unit() / of.writes_per_s().0);
        of
    })
}

#[test]
fn the_bottleneck_law_is_the_product_of_the_rows_and_the_sum_of_the_shares() {
    for model in many() {
        let prediction = predict(&model);
        let shares: f64 = prediction.classes.iter().map(|class| class.share).sum();
        let law = model.rates.bottleneck_alpha();
        assert!((0.0..1.0).contains(&prediction.alpha), "{model:?}");
        assert!((prediction.alpha - law).abs() < 1e-12, "{law} {prediction:?}");
        assert!((shares - law).abs() < 1e-12, "{law} {prediction:?}");
        assert!(prediction.classes.iter().all(|class| class.share >= 0.0), "{prediction:?}");
    }
}

#[test]
fn more_load_stalls_more_and_more_speed_less() {
    type Turn = fn(&mut Rates);
    let slower: [(&str, Turn); 5] = [
        ("more load", |rates| rates.arrival = rates.arrival.times(1.1)),
        ("slower flushes", |rates| rates.flush = rates.flush.times(0.9)),
        ("slower L0", |rates| rates.l0 = rates.l0.times(0.9)),
        ("slower deep", |rates| rates.deep = rates.deep.times(0.9)),
        ("more survives", |rates| rates.survival = (rates.survival * 1.1).min(1.0)),
    ];
    for model in many() {
        let before = predict(&model).alpha;
        for (what, turn) in slower {
            let mut worse = model;
            turn(&mut worse.rates);
            worse.writes.service = Seconds(0.0);
            let after = predict(&worse).alpha;
            assert!(after >= before - 1e-12, "{what}: {before} to {after} {model:?}");
        }
    }
}

#[test]
fn a_faster_stage_hands_its_stalls_on() {
    let saturated = model(rates(250.0, 200.0, 120.0, 80.0, 0.9));
    let share = |model: &Model, cause| predict(model).class(cause).share;
    let mut faster = saturated;
    faster.rates.flush = mb_s(240.0);
    assert!(share(&faster, StallCause::Memtable) < share(&saturated, StallCause::Memtable));
    assert!(share(&faster, StallCause::Level0) > share(&saturated, StallCause::Level0));
    assert!((predict(&faster).alpha - predict(&saturated).alpha).abs() < 1e-12, "the slowest stage decides");
    faster = Knob::Subcompactions.turned(&saturated, 4, 0.75).unwrap();
    assert!(share(&faster, StallCause::Level0) < share(&saturated, StallCause::Level0));
    assert!(share(&faster, StallCause::Pending) > share(&saturated, StallCause::Pending));
    let of_knob = |knob: Knob| predict(&knob.turned(&saturated, 2, 0.5).unwrap());
    assert!(of_knob(Knob::Deep).alpha < predict(&saturated).alpha, "the slowest stage decides");
    let larger = of_knob(Knob::Memtable);
    let (x, twice) = (predict(&saturated), larger.class(StallCause::Memtable).duration.0);
    assert_eq!(twice, 2.0 * x.class(StallCause::Memtable).duration.0, "rarer and longer");
    assert_eq!(larger.alpha, x.alpha);
}

#[test]
fn shards_bring_what_they_have_not_in_common() {
    let of =
        |shards, common_cause| predict(&Model { sharding: Sharding { shards, common_cause }, ..example() });
    let alpha = of(1, 0.0).alpha;
    for shards in [1, 2, 3, 8, 64] {
        assert!((of(shards, 0.0).alpha_all() - alpha.powi(shards as i32)).abs() < 1e-15);
        assert_eq!(of(shards, 1.0).alpha_all(), alpha, "nothing gained");
        assert_eq!(of(1, 0.3).alpha_all(), alpha, "one shard has it all in common with itself");
        let half = of(shards, 0.5);
        assert!(half.alpha_all() >= 0.5 * alpha && half.alpha_all() <= alpha);
        assert!((half.redirected() - (alpha - half.alpha_all())).abs() < 1e-15);
        let per_shard = half.writes_per_s.0 / f64::from(shards);
        assert!((half.waiting_writes() - per_shard * half.wait().0).abs() < 1e-9, "Little's law");
    }
    let table = further_shards(&example(), &[1, 2, 4]).unwrap();
    assert_eq!(table[0].alpha_by_threads, example().rates.bottleneck_alpha());
    assert_eq!(table[1].alpha_by_threads, 0.0, "a thread a shard keeps up with half of the load");
    assert_eq!(table[2].prediction, of(4, 0.0));
}

#[test]
fn a_stage_without_inflow_or_with_endless_speed_never_stalls() {
    let nothing = predict(&model(rates(0.0, 0.0, 0.0, 0.0, 1.0)));
    assert_eq!(
        (nothing.alpha, nothing.v_bar.0, nothing.wait().0, nothing.waiting_writes()),
        (0.0, 0.0, 0.0, 0.0)
    );
    assert_eq!(nothing.wait_met(Spread::Equal).0, 0.0);
    assert_eq!(rates(0.0, 0.0, 0.0, 0.0, 1.0).bottleneck_alpha(), 0.0);
    let equal = predict(&model(rates(200.0, 200.0, 200.0, 180.0, 0.9)));
    assert!(equal.classes.iter().all(|class| (class.rate.0, class.duration.0, class.x) == (0.0, 0.0, 0.0)));
    for form in [Form::Literal, Form::Corrected] {
        let free = Model { form, ..model(rates(200.0, f64::INFINITY, f64::INFINITY, f64::INFINITY, 1.0)) };
        assert_eq!(predict(&free).alpha, 0.0);
    }
    assert!(model(rates(100.0, 200.0, 200.0, 100.0, 1.0)).first_pending_stall().is_none());
}

#[test]
fn a_stage_that_stands_still_stalls_for_ever() {
    for form in [Form::Literal, Form::Corrected] {
        for (at, rates) in [
            rates(100.0, 0.0, 50.0, 50.0, 1.0),
            rates(100.0, 90.0, 0.0, 50.0, 1.0),
            rates(100.0, 90.0, 80.0, 0.0, 1.0),
        ]
        .into_iter()
        .enumerate()
        {
            let stuck = predict(&Model { form, ..model(rates) });
            assert_eq!((stuck.alpha, stuck.classes[at].duration.0), (1.0, f64::INFINITY), "{stuck:?}");
            assert_eq!((stuck.v_bar.0, stuck.wait().0), (f64::INFINITY, f64::INFINITY));
            assert_eq!(stuck.wait_met(Spread::Equal).0, f64::INFINITY);
            assert_eq!(stuck.alpha_all_of(8), 1.0);
            assert_eq!(rates.bottleneck_alpha(), 1.0);
        }
    }
}

#[test]
fn the_wait_that_is_met_ends_where_stalls_and_writes_leave_no_time() {
    let mut busy = example();
    busy.writes.service = Seconds(0.88 / busy.writes_per_s().0);
    assert_eq!(predict(&busy).wait_met(Spread::Equal).0, f64::INFINITY, "0.127 + 0.88 > 1");
    busy.writes.service = Seconds(0.87 / busy.writes_per_s().0);
    assert!(predict(&busy).wait_met(Spread::Equal).0.is_finite());
}

#[test]
fn counted_memtable_stalls_take_the_time_that_the_model_says() {
    let only_memtable = model(rates(250.0, 200.0, 300.0, 300.0, 1.0));
    let (rate, duration) = only_memtable.memtable_cycle().unwrap();
    assert_digits(rate.0, "3.125");
    assert!((rate.0 * duration.0 - predict(&only_memtable).alpha).abs() < 1e-12);
    assert!(model(rates(200.0, 200.0, 300.0, 300.0, 1.0)).memtable_cycle().is_none());
}

#[test]
fn a_sweep_goes_from_the_first_step_to_the_end() {
    let swept = sweep(&example(), mb_s(400.0), 4, |rates, rate| rates.flush = rate).unwrap();
    assert_eq!(swept.iter().map(|(rate, _)| rate.0).collect::<Vec<_>>(), [100.0, 200.0, 300.0, 400.0]);
    assert_eq!(swept[1].1, predict(&example()));
    assert_eq!(swept[2].1.class(StallCause::Memtable).share, 0.0);
}

#[test]
fn impossible_input_is_named() {
    let bad = |turn: fn(&mut Model), input| {
        let mut model = example();
        turn(&mut model);
        let error = model.predict().expect_err("must not be predicted");
        assert_eq!(error.input, input, "{error}");
        assert!(error.to_string().contains("has to be"));
    };
    bad(|m| m.rates.arrival = mb_s(-1.0), Input::Arrival);
    bad(|m| m.rates.arrival = mb_s(f64::INFINITY), Input::Arrival);
    bad(|m| m.rates.flush = mb_s(f64::NAN), Input::Flush);
    bad(|m| m.rates.l0 = mb_s(-0.1), Input::L0);
    bad(|m| m.rates.deep = mb_s(f64::NEG_INFINITY), Input::Deep);
    bad(|m| m.rates.survival = 0.0, Input::Survival);
    bad(|m| m.rates.survival = 1.01, Input::Survival);
    bad(|m| m.limits.memtable = Megabytes(0.0), Input::Memtable);
    bad(|m| m.limits.l0 = Megabytes(-3.0), Input::L0Room);
    bad(|m| m.limits.pending = Megabytes(f64::INFINITY), Input::Pending);
    bad(|m| m.limits.pending_drain = Megabytes(0.0), Input::PendingDrain);
    bad(|m| m.limits.pending_drain = Megabytes(8193.0), Input::PendingDrain);
    bad(|m| m.writes.record_bytes = 0.0, Input::Record);
    bad(|m| m.writes.service = Seconds(-1.0), Input::Service);
    bad(|m| m.writes.service = Seconds(5e-6), Input::Utilization);
    bad(|m| m.sharding.shards = 0, Input::Shards);
    bad(|m| m.sharding.common_cause = 1.5, Input::CommonCause);
    bad(|m| m.sharding.common_cause = f64::NAN, Input::CommonCause);
    let of = |result: Result<_, OutOfRange>| result.map(|_| ()).unwrap_err().input;
    assert_eq!(of(Limits::l0_by_files(4, 4, Megabytes(64.0)).map(|_| ())), Input::L0Files);
    assert_eq!(of(Limits::l0_by_files(36, 4, Megabytes(64.0)).map(|_| ())), Input::L0Files);
    assert_eq!(of(Limits::l0_by_files(4, 36, Megabytes(0.0)).map(|_| ())), Input::L0File);
    assert_eq!(of(subcompacted(mb_s(1.0), 0, 0.5).map(|_| ())), Input::Subcompactions);
    assert_eq!(of(subcompacted(mb_s(1.0), 2, 1.1).map(|_| ())), Input::ParallelShare);
    assert_eq!(of(subcompacted(mb_s(1.0), 2, f64::NAN).map(|_| ())), Input::ParallelShare);
    assert!(example().predict().is_ok());
}
