//! The pipeline itself, run as a fluid: one memtable fills while another is flushed, L0 and the debt grow and
//! drain, and writers stand still as the limits say. Between two events all flows are constant, so that time
//! jumps from event to event.

use super::*;

/// Amounts below this are rounding.
const DROP: f64 = 1e-9;

#[derive(Default)]
struct Fluid {
    active: f64,
    flushing: f64,
    l0: f64,
    debt: f64,
    l0_stalls: bool,
    pending_stalls: bool,
}

/// Seconds of stall by cause, as shares of `seconds`; the first tenth, in which levels fill, is not counted.
fn shares(model: &Model, seconds: f64) -> [f64; 3] {
    let mut fluid = Fluid { debt: model.limits.pending.0 - model.limits.pending_drain.0, ..Fluid::default() };
    let (mut now, mut stalled) = (0.0, [0.0; 3]);
    while now < seconds {
        fluid.switch(model);
        let cause = fluid.stall(model);
        let step = fluid.step(model, cause);
        now += step;
        if let Some(cause) = cause
            && now > seconds / 10.0
        {
            stalled[cause as usize] += step;
        }
    }
    stalled.map(|time| time / (seconds * 0.9))
}

impl Fluid {
    /// What happens at once: the memtables change places, a limit is reached, or a stall has ended.
    fn switch(&mut self, model: &Model) {
        let limits = &model.limits;
        if self.active >= limits.memtable.0 - DROP && self.flushing <= DROP {
            (self.flushing, self.active) = (self.active, 0.0);
        }
        let was = std::mem::replace(&mut self.l0_stalls, self.l0 >= limits.l0.0 - DROP);
        self.l0_stalls |= was && self.l0 > DROP;
        let was = std::mem::replace(&mut self.pending_stalls, self.debt >= limits.pending.0 - DROP);
        self.pending_stalls |= was && self.debt > limits.pending.0 - limits.pending_drain.0 + DROP;
    }

    fn stall(&self, model: &Model) -> Option<StallCause> {
        match () {
            () if self.pending_stalls => Some(StallCause::Pending),
            () if self.l0_stalls => Some(StallCause::Level0),
            () if self.active >= model.limits.memtable.0 - DROP => Some(StallCause::Memtable),
            () => None,
        }
    }

    /// Lets all flow up to the next event; returns how long that took.
    fn step(&mut self, model: &Model, stall: Option<StallCause>) -> f64 {
        let (rates, limits) = (&model.rates, &model.limits);
        // A stage with nothing before it passes on what comes, as fast as it can.
        let outflow = |level: f64, inflow: f64, speed: MegabytesPerSecond| {
            if level > DROP { speed.0 } else { speed.0.min(inflow) }
        };
        let write = if stall.is_none() { rates.arrival.0 } else { 0.0 };
        let flush = outflow(self.flushing, 0.0, rates.flush);
        let l0_out = outflow(self.l0, flush, rates.l0);
        let debt_in = l0_out * rates.survival;
        let paid = outflow(self.debt, debt_in, rates.deep);
        let calm = limits.pending.0 - limits.pending_drain.0;
        let mut step = f64::INFINITY;
        // (level, flow into it, marks at which something happens)
        for (level, flow, marks) in [
            (self.active, write, [limits.memtable.0, 0.0]),
            (self.flushing, -flush, [0.0, 0.0]),
            (self.l0, flush - l0_out, [limits.l0.0, 0.0]),
            (self.debt, debt_in - paid, [limits.pending.0, if self.pending_stalls { calm } else { 0.0 }]),
        ] {
            for mark in marks {
                let time = (mark - level) / flow;
                if (mark - level).abs() > DROP && time > 0.0 {
                    step = step.min(time);
                }
            }
        }
        assert!(step.is_finite() && step > 0.0, "nothing would ever happen");
        self.active += write * step;
        self.flushing = (self.flushing - flush * step).max(0.0);
        self.l0 = (self.l0 + (flush - l0_out) * step).max(0.0);
        self.debt = (self.debt + (debt_in - paid) * step).max(0.0);
        step
    }
}

#[test]
fn a_fluid_of_three_stages_stalls_as_predicted() {
    for (name, rates) in [
        ("the worked example", rates(210.0, 200.0, 190.0, 165.0, 0.9)),
        ("saturated", rates(250.0, 200.0, 120.0, 80.0, 0.9)),
        ("memtables only", rates(250.0, 200.0, 210.0, 300.0, 1.0)),
        ("level 0 only", rates(200.0, 210.0, 120.0, 200.0, 1.0)),
        ("memtables and level 0", rates(250.0, 200.0, 150.0, 200.0, 1.0)),
        ("debt only", rates(200.0, 300.0, 250.0, 100.0, 0.8)),
        ("nothing", rates(150.0, 200.0, 190.0, 180.0, 0.9)),
    ] {
        let model = model(rates);
        let shares = shares(&model, 2e5);
        let (simulated, predicted) = (shares.iter().sum::<f64>(), predict(&model));
        println!("{name}: {simulated:.4} {:.4} {shares:.4?}", predicted.alpha);
        assert!((simulated - predicted.alpha).abs() < 0.01, "{name}: {simulated}, {predicted:?}");
        if predicted.class(StallCause::Pending).share == 0.0 {
            for (class, share) in predicted.classes.iter().zip(shares) {
                assert!((class.share - share).abs() < 0.01, "{name}: {share}, {class:?}");
            }
        }
    }
}
