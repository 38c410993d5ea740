//! The balloon effect: press one stage, and stalls swell at another. What each knob does to each class, and the
//! curves of the paper's figures 2 and 3.

use super::{Form, MegabytesPerSecond, Model, OutOfRange, Prediction, Rates, subcompacted};

/// What a database can be tuned by, as far as the model knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knob {
    /// Everything as it is.
    None,
    /// Larger memtables, and with them larger files in level 0.
    Memtable,
    /// More threads, or bandwidth, for flushes.
    Flush,
    /// Sub-compactions.
    Subcompactions,
    /// A higher stop mark of level 0.
    L0Room,
    /// More threads for deeper compactions.
    Deep,
    /// A higher limit of pending compaction, and a drain as much larger.
    Pending,
}

impl Knob {
    /// All of them.
    pub const ALL: [Knob; 7] = [
        Knob::None,
        Knob::Memtable,
        Knob::Flush,
        Knob::Subcompactions,
        Knob::L0Room,
        Knob::Deep,
        Knob::Pending,
    ];

    /// What it is, turned by `factor`, in a few words.
    pub fn as_text(self, factor: u32) -> String {
        match self {
            Knob::None => "as it is".into(),
            Knob::Memtable => format!("memtable x{factor}"),
            Knob::Flush => format!("flush rate x{factor}"),
            Knob::Subcompactions => format!("{factor} sub-compactions"),
            Knob::L0Room => format!("level-0 room x{factor}"),
            Knob::Deep => format!("deep rate x{factor}"),
            Knob::Pending => format!("pending limit x{factor}"),
        }
    }

    /// `model` with this knob turned by `factor`; sub-compactions share `parallel_share` of their work.
    ///
    /// # Errors
    /// `factor` is 0 where it counts threads; `parallel_share` is not from 0 to 1.
    pub fn turned(self, model: &Model, factor: u32, parallel_share: f64) -> Result<Model, OutOfRange> {
        let mut turned = *model;
        let (rates, limits, by) = (&mut turned.rates, &mut turned.limits, f64::from(factor));
        match self {
            Knob::None => {}
            Knob::Memtable => {
                limits.memtable.0 *= by;
                limits.l0.0 *= by;
            }
            Knob::Flush => rates.flush = rates.flush.times(by),
            Knob::Subcompactions => rates.l0 = subcompacted(rates.l0, factor, parallel_share)?,
            Knob::L0Room => limits.l0.0 *= by,
            Knob::Deep => rates.deep = rates.deep.times(by),
            Knob::Pending => {
                limits.pending.0 *= by;
                limits.pending_drain.0 *= by;
            }
        }
        Ok(turned)
    }
}

/// Predictions for a rate that grows from one end of a figure to the other, at `points` places.
///
/// # Errors
/// As [`Model::predict`].
pub fn sweep(
    model: &Model,
    up_to: MegabytesPerSecond,
    points: u32,
    set: impl Fn(&mut Rates, MegabytesPerSecond),
) -> Result<Vec<(MegabytesPerSecond, Prediction)>, OutOfRange> {
    let at = |step: u32| {
        let mut moved = *model;
        let rate = up_to.times(f64::from(step) / f64::from(points));
        set(&mut moved.rates, rate);
        moved.predict().map(|prediction| (rate, prediction))
    };
    (1..=points).map(at).collect()
}

/// What one tree becomes with `shards` of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sharded {
    /// L.
    pub shards: u32,
    /// The prediction, α of each shard being that of one tree: true where the device is the limit, of which each
    /// shard has its part.
    pub prediction: Prediction,
    /// α of a shard whose speed is a thread's, so that it keeps all of it while its load is a part. It falls to
    /// 0 once λ/L is no more than that speed.
    pub alpha_by_threads: f64,
}

/// What further shards would bring.
///
/// # Errors
/// As [`Model::predict`].
pub fn further_shards(model: &Model, counts: &[u32]) -> Result<Vec<Sharded>, OutOfRange> {
    let of = |&shards: &u32| {
        let mut more = *model;
        more.sharding.shards = shards;
        let prediction = more.predict()?;
        more.rates.arrival = model.rates.arrival.times(1.0 / f64::from(shards));
        let alpha_by_threads = match model.form {
            Form::Literal => more.predict()?.alpha,
            Form::Corrected => more.rates.bottleneck_alpha(),
        };
        Ok(Sharded { shards, prediction, alpha_by_threads })
    };
    counts.iter().map(of).collect()
}
