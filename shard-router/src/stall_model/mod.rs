//! How much of the time writes are stalled, and for how long: the write path as a queue whose server takes
//! vacations (DiaLSM, section II), from the rates of its three stages. Pure arithmetic; nothing here is on the
//! path of a write.
//!
//! ```text
//!             memtable stall           L0 stall                      pending stall
//!  λ ──► memtable, M ── μ_f ──► L0, ΔN·S_SST ── μ_0 ──► k ──► debt, B_th .. S_pend ── μ_d ──►
//!  in    X_M = λ_v·E[V]               X_0                           X_P              out
//! ```
//! Each stage stalls writers [`Class::rate`] times a second (λ_v) for [`Class::duration`] (E\[V\]), so that
//! X = λ_v·E\[V\] seconds of stall come with each second without. What follows from the three rows is a
//! [`Prediction`]: α, the share of time that is stalled; V̄, the mean length of a stall; W, the wait that a write
//! gets from stalls; E\[B\], the writes that wait; and P_all = α^L, that all of L shards stall at once.
//!
//! [`Form::Literal`] is the paper's own reading, kept for comparing with its figures. [`Form::Corrected`], the
//! default, differs in three places:
//! 1. A stage passes on no more than it gets: L0's inflow is f = min(λ, μ_f), the debt's is k·min(f, μ_0).
//! 2. A pending stall ends S_pend below the limit, so the next one comes after S_pend, not B_th, has gathered.
//! 3. α = 1 − Π 1/(1 + X), the share of wall time, where the paper adds the X up, which may pass 1.
//!
//! The corrected α equals the *bottleneck law* (`Rates::bottleneck_alpha`): what is stalled is what the slowest
//! stage cannot take. Tuning one stage moves stalls to another, the balloon effect, unless it is the slowest;
//! [`balloon`] shows that as a table. `a_fluid_of_three_stages_stalls_as_predicted` runs the pipeline itself.
//!
//! [`observe`] gets the rates from an engine's counters.

pub mod balloon;
pub mod observe;
#[cfg(test)]
mod tests;
mod units;

use std::fmt;

pub use dialsm_core::StallCause;
pub use units::{Megabytes, MegabytesPerSecond, PerSecond, Seconds};

/// The rates of the stages, while they have work. A service rate may be infinite; then its stage never stalls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// λ: what writers bring while nothing stalls them.
    pub arrival: MegabytesPerSecond,
    /// μ_f: memtables to L0.
    pub flush: MegabytesPerSecond,
    /// μ_0: out of L0; with sub-compactions see [`subcompacted`].
    pub l0: MegabytesPerSecond,
    /// μ_d: what deeper compactions take of what L0 hands down.
    pub deep: MegabytesPerSecond,
    /// k: the share of bytes that L0 hands down, the others being older versions; above 0, at most 1.
    pub survival: f64,
}

/// How much each stage holds before it stalls writers. All are above 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// M: the active memtable.
    pub memtable: Megabytes,
    /// ΔN·S_SST: from the L0 at which a stall ends to the one at which it begins; see [`Limits::l0_by_files`].
    pub l0: Megabytes,
    /// B_th: the debt at which writers stop.
    pub pending: Megabytes,
    /// S_pend: what has to be paid of it before they go on; at most B_th.
    pub pending_drain: Megabytes,
}

impl Limits {
    /// L0's part where it is counted in files of `file` each: a stall begins at `stop` and ends at `resume`. That
    /// is the trigger of compactions in the paper; in an engine that lets writers in at the first compaction,
    /// `stop` less what one compaction takes away.
    ///
    /// # Errors
    /// `stop` is not above `resume`, or `file` not above 0.
    pub fn l0_by_files(resume: u32, stop: u32, file: Megabytes) -> Result<Megabytes, OutOfRange> {
        let files = f64::from(stop) - f64::from(resume);
        Input::L0Files.check(files, files > 0.0)?;
        Input::L0File.check(file.0, is_amount(file))?;
        Ok(Megabytes(files * file.0))
    }
}

/// What one write is: λ counts megabytes, a queue counts writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Writes {
    /// Mean bytes of a write's key and value.
    pub record_bytes: f64,
    /// E\[S\]: the time that it takes into the memtable while nothing stalls it.
    pub service: Seconds,
}

/// How many trees share the load, and how far they stall together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sharding {
    /// L.
    pub shards: u32,
    /// b: the share of a shard's stalls that all shards have in common (one disk, memtables that fill in phase).
    /// With 0, the paper's assumption, shards stall independently; with 1 further shards bring nothing.
    pub common_cause: f64,
}

impl Default for Sharding {
    fn default() -> Sharding {
        Sharding { shards: 1, common_cause: 0.0 }
    }
}

/// Whose equations are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// The paper's, to the letter.
    Literal,
    /// Those that agree with the bottleneck law.
    #[default]
    Corrected,
}

/// All that a prediction is made from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// The stages' speeds.
    pub rates: Rates,
    /// The stages' sizes.
    pub limits: Limits,
    /// What a write is.
    pub writes: Writes,
    /// How many trees there are.
    pub sharding: Sharding,
    /// Whose equations are taken.
    pub form: Form,
}

/// Stalls of one cause in one tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Class {
    /// Which stage it is.
    pub cause: StallCause,
    /// λ_v: stalls a second of time that this stage does not stall.
    pub rate: PerSecond,
    /// E\[V\]: how long one lasts; 0 in a stage that never stalls.
    pub duration: Seconds,
    /// X = λ_v·E\[V\].
    pub x: f64,
    /// The part of wall time in which writers are stalled for this cause; the three add up to α. While a later
    /// stage stalls writers, the earlier ones do not: X/(1 + X) of what later stages leave.
    pub share: f64,
}

/// What the model says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// By cause, in the order of [`StallCause::ALL`].
    pub classes: [Class; 3],
    /// α: the share of time in which a tree stalls its writers. In the literal form a sum that may pass 1.
    pub alpha: f64,
    /// V̄: the mean length of a stall; 0 where there are none.
    pub v_bar: Seconds,
    /// ρ = λ_r·E\[S\]: how busy writes alone keep the queue.
    pub rho: f64,
    /// λ_r: writes a second.
    pub writes_per_s: PerSecond,
    /// How many trees there are.
    pub sharding: Sharding,
}

impl Model {
    /// Works the model out.
    ///
    /// # Errors
    /// A value that cannot be; the first one, in the order of [`Input`].
    pub fn predict(&self) -> Result<Prediction, OutOfRange> {
        self.check()?;
        let classes = self.classes();
        let stalls: f64 = classes.iter().map(|class| class.rate.0).sum();
        let time: f64 = classes.iter().map(|class| class.x).sum();
        let alpha = match self.form {
            _ if time == f64::INFINITY => 1.0,
            Form::Literal => time,
            Form::Corrected => 1.0 - classes.iter().map(|class| 1.0 / (1.0 + class.x)).product::<f64>(),
        };
        let writes_per_s = self.writes_per_s();
        Ok(Prediction {
            classes,
            alpha,
            v_bar: Seconds(if stalls > 0.0 { time / stalls } else { 0.0 }),
            rho: writes_per_s.0 * self.writes.service.0,
            writes_per_s,
            sharding: self.sharding,
        })
    }

    /// The three rows: frequency, duration, and their product.
    fn classes(&self) -> [Class; 3] {
        let Rates { arrival, flush, l0, deep, survival } = self.rates;
        let limits = &self.limits;
        let is_literal = self.form == Form::Literal;
        let into_l0 = if is_literal { flush } else { flush.min(arrival) };
        let out_of_l0 = if is_literal { l0 } else { l0.min(into_l0) };
        let pending_room = if is_literal { limits.pending } else { limits.pending_drain };
        let row = |cause, inflow: MegabytesPerSecond, outflow, room, drained: Megabytes| {
            let rate = inflow.excess_over(outflow) / room;
            let duration = if rate.0 > 0.0 { drained / outflow } else { Seconds(0.0) };
            let x = if rate.0 > 0.0 { rate.0 * duration.0 } else { 0.0 };
            Class { cause, rate, duration, x, share: x }
        };
        let mut classes = [
            row(StallCause::Memtable, arrival, flush, limits.memtable, limits.memtable),
            row(StallCause::Level0, into_l0, l0, limits.l0, limits.l0),
            row(StallCause::Pending, out_of_l0.times(survival), deep, pending_room, limits.pending_drain),
        ];
        if !is_literal {
            let mut left = 1.0;
            for class in classes.iter_mut().rev() {
                class.share = left * (1.0 - 1.0 / (1.0 + class.x));
                left /= 1.0 + class.x;
            }
        }
        classes
    }

    fn writes_per_s(&self) -> PerSecond {
        self.rates.arrival / Megabytes::from_bytes(self.writes.record_bytes)
    }

    fn check(&self) -> Result<(), OutOfRange> {
        let Model { rates, limits, writes, sharding, .. } = self;
        Input::Arrival.check(rates.arrival.0, rates.arrival.0 >= 0.0 && rates.arrival.0.is_finite())?;
        Input::Flush.check(rates.flush.0, rates.flush.0 >= 0.0)?;
        Input::L0.check(rates.l0.0, rates.l0.0 >= 0.0)?;
        Input::Deep.check(rates.deep.0, rates.deep.0 >= 0.0)?;
        Input::Survival.check(rates.survival, rates.survival > 0.0 && rates.survival <= 1.0)?;
        Input::Memtable.check(limits.memtable.0, is_amount(limits.memtable))?;
        Input::L0Room.check(limits.l0.0, is_amount(limits.l0))?;
        Input::Pending.check(limits.pending.0, is_amount(limits.pending))?;
        let drain = limits.pending_drain;
        Input::PendingDrain.check(drain.0, is_amount(drain) && drain <= limits.pending)?;
        let (record, service) = (writes.record_bytes, writes.service.0);
        Input::Record.check(record, record > 0.0 && record.is_finite())?;
        Input::Service.check(service, service >= 0.0 && service.is_finite())?;
        let rho = self.writes_per_s().0 * service;
        Input::Utilization.check(rho, rho < 1.0)?;
        Input::Shards.check(sharding.shards.into(), sharding.shards >= 1)?;
        Input::CommonCause.check(sharding.common_cause, (0.0..=1.0).contains(&sharding.common_cause))
    }

    /// When the first pending stall comes, counted from an empty debt; `None` if none ever does. It takes all of
    /// B_th; those after it only S_pend.
    pub fn first_pending_stall(&self) -> Option<Seconds> {
        let Rates { arrival, flush, l0, deep, survival } = self.rates;
        let growth = arrival.min(flush).min(l0).times(survival).excess_over(deep);
        (growth.0 > 0.0).then(|| self.limits.pending / growth)
    }

    /// Memtable stalls as one would count them, with one memtable to fill while another is flushed: μ_f/M a second
    /// of wall time, for M/μ_f − M/λ each. They take up as much time as the model's, which come as rarely as if M
    /// were drained at one go. `None` where there are none.
    pub fn memtable_cycle(&self) -> Option<(PerSecond, Seconds)> {
        let Rates { arrival, flush, .. } = self.rates;
        let memtable = self.limits.memtable;
        let wait = (memtable / flush).0 - (memtable / arrival).0;
        (arrival > flush).then_some((flush / memtable, Seconds(wait)))
    }
}

impl Rates {
    /// What a tree takes in the long run: as much as its slowest stage, or all that comes.
    pub fn accepted(&self) -> MegabytesPerSecond {
        let deep = MegabytesPerSecond(self.deep.0 / self.survival);
        self.arrival.min(self.flush).min(self.l0).min(deep)
    }

    /// The same stages where compactions have so many workers between them, of so many trees: L0's gets as much of
    /// them as deeper compactions leave. The rates so far are those of one worker without others, and of one tree
    /// no two compactions out of L0 run at once. The paper calls stages coupled by a common budget, without an
    /// equation; this one is ours: 1/μ_0 becomes max((1/μ_0)/trees, (1/μ_0 + k/μ_d)/workers).
    ///
    /// # Errors
    /// No worker or no tree.
    pub fn with_workers(&self, workers: u32, trees: u32) -> Result<Rates, OutOfRange> {
        Input::Workers.check(workers.into(), workers >= 1)?;
        Input::Shards.check(trees.into(), trees >= 1)?;
        let (l0, deep) = (1.0 / self.l0.0, self.survival / self.deep.0);
        let busiest = (l0 / f64::from(trees)).max((l0 + deep) / f64::from(workers));
        Ok(Rates { l0: MegabytesPerSecond(1.0 / busiest), ..*self })
    }

    /// The bottleneck law: α* = \[1 − min(μ_f, μ_0, μ_d/k)/λ\]+, the share of what comes that the slowest stage
    /// can't take.
    pub fn bottleneck_alpha(&self) -> f64 {
        if self.arrival.0 > 0.0 { 1.0 - self.accepted().0 / self.arrival.0 } else { 0.0 }
    }
}

impl Prediction {
    /// Stalls of one cause.
    pub fn class(&self, cause: StallCause) -> &Class {
        &self.classes[cause as usize]
    }

    /// P_all(L) = α·(b + (1 − b)·α^(L−1)): the share of time in which all of `shards` shards stall, α of each
    /// staying as it is. With b = 0 the paper's α^L.
    pub fn alpha_all_of(&self, shards: u32) -> f64 {
        let b = self.sharding.common_cause;
        let others = self.alpha.powf(f64::from(shards.max(1)) - 1.0);
        self.alpha * (b + (1.0 - b) * others)
    }

    /// P_all of the shards there are.
    pub fn alpha_all(&self) -> f64 {
        self.alpha_all_of(self.sharding.shards)
    }

    /// The share of writes that go to another shard than their own.
    pub fn redirected(&self) -> f64 {
        (self.alpha - self.alpha_all()).max(0.0)
    }

    /// W = P_all·V̄/(1 − ρ/L): the mean wait that stalls cost a write.
    pub fn wait(&self) -> Seconds {
        Seconds(
            vanishing(self.alpha_all(), self.v_bar.0) / (1.0 - self.rho / f64::from(self.sharding.shards)),
        )
    }

    /// E\[B\] = (λ_r/L)/(1 − ρ/L)·P_all·V̄: the writes of a shard that wait because of stalls.
    pub fn waiting_writes(&self) -> f64 {
        vanishing(self.writes_per_s.0 / f64::from(self.sharding.shards), self.wait().0)
    }

    /// W′: the mean wait in one tree as an arriving write meets it, long stalls counting by their length; infinite
    /// once α + ρ reach 1. W goes by V̄, the mean over stalls, in which rare long ones hide.
    pub fn wait_met(&self, spread: Spread) -> Seconds {
        let moment = match spread {
            Spread::Equal => 1.0,
            Spread::Exponential => 2.0,
        };
        let of = |class: &Class| vanishing(class.rate.0, class.duration.0 * class.duration.0 * moment / 2.0);
        let residual: f64 = self.classes.iter().map(of).sum();
        let left = 1.0 - self.alpha - self.rho;
        Seconds(if residual > 0.0 && left <= 0.0 { f64::INFINITY } else { vanishing(residual, 1.0 / left) })
    }
}

/// How the stalls of one class differ in length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Not at all.
    Equal,
    /// As waiting times do.
    Exponential,
}

/// `share · amount`, where no share of an infinite amount is nothing.
fn vanishing(share: f64, amount: f64) -> f64 {
    if share == 0.0 { 0.0 } else { share * amount }
}

/// μ_0 with `subcompactions` threads, by Amdahl's law: μ_0/((1 − p) + p/c), p being the part of the work that can be
/// shared out.
///
/// # Errors
/// No thread at all; p is not from 0 to 1.
pub fn subcompacted(
    l0: MegabytesPerSecond,
    subcompactions: u32,
    parallel_share: f64,
) -> Result<MegabytesPerSecond, OutOfRange> {
    Input::Subcompactions.check(subcompactions.into(), subcompactions >= 1)?;
    Input::ParallelShare.check(parallel_share, (0.0..=1.0).contains(&parallel_share))?;
    Ok(l0.times(1.0 / ((1.0 - parallel_share) + parallel_share / f64::from(subcompactions))))
}

fn is_amount(amount: Megabytes) -> bool {
    amount.0 > 0.0 && amount.0.is_finite()
}

/// The values that a model takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// [`Rates::arrival`].
    Arrival,
    /// [`Rates::flush`].
    Flush,
    /// [`Rates::l0`].
    L0,
    /// [`Rates::deep`].
    Deep,
    /// [`Rates::survival`].
    Survival,
    /// [`Limits::memtable`].
    Memtable,
    /// [`Limits::l0`].
    L0Room,
    /// [`Limits::pending`].
    Pending,
    /// [`Limits::pending_drain`].
    PendingDrain,
    /// [`Writes::record_bytes`].
    Record,
    /// [`Writes::service`].
    Service,
    /// ρ, which follows from arrival, record and service.
    Utilization,
    /// [`Sharding::shards`].
    Shards,
    /// [`Sharding::common_cause`].
    CommonCause,
    /// The files of L0 between the end of a stall and its begin.
    L0Files,
    /// The size of one of them.
    L0File,
    /// The threads of a compaction out of L0.
    Subcompactions,
    /// The part of its work that they can share.
    ParallelShare,
    /// The workers of all compactions.
    Workers,
}

impl Input {
    fn check(self, value: f64, is_possible: bool) -> Result<(), OutOfRange> {
        if is_possible { Ok(()) } else { Err(OutOfRange { input: self, value }) }
    }

    /// Its name with its unit, and what it has to be.
    fn described(self) -> (&'static str, &'static str) {
        const ABOVE_0: &str = "above 0 and finite";
        match self {
            Input::Arrival => ("the arrival rate in MB/s", "0 or above and finite"),
            Input::Flush => ("the flush rate in MB/s", "0 or above"),
            Input::L0 => ("the rate out of level 0 in MB/s", "0 or above"),
            Input::Deep => ("the rate of deeper compactions in MB/s", "0 or above"),
            Input::Survival => ("the share of bytes that survive level 0", "above 0 and at most 1"),
            Input::Memtable => ("the memtable's size in MB", ABOVE_0),
            Input::L0Room => ("level 0's room in MB", ABOVE_0),
            Input::Pending => ("the limit of pending compaction in MB", ABOVE_0),
            Input::PendingDrain => {
                ("what ends a pending stall in MB", "above 0 and at most the limit of pending compaction")
            }
            Input::Record => ("a record's size in bytes", ABOVE_0),
            Input::Service => ("a write's service time in s", "0 or above and finite"),
            Input::Utilization => (
                "the utilization, writes a second times service time,",
                "below 1, or writes alone overrun the queue",
            ),
            Input::Shards => ("the number of shards", "at least 1"),
            Input::CommonCause => ("the share of stalls with a common cause", "from 0 to 1"),
            Input::L0Files => ("the number of level-0 files between end and begin of a stall", "above 0"),
            Input::L0File => ("the size of a level-0 file in MB", ABOVE_0),
            Input::Subcompactions => ("the number of sub-compactions", "at least 1"),
            Input::Workers => ("the number of workers", "at least 1"),
            Input::ParallelShare => ("the share of a compaction that can be parallel", "from 0 to 1"),
        }
    }
}

/// A value that no database can have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutOfRange {
    /// Which value it is.
    pub input: Input,
    /// What it was.
    pub value: f64,
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, wanted) = self.input.described();
        write!(f, "{name} is {}; it has to be {wanted}", self.value)
    }
}

impl std::error::Error for OutOfRange {}
