//! The stall model on the command line: rates from flags, from a database's options and from recordings; the
//! prediction as tables, as JSON and as drawings, beside what was measured.
//!
//! ```text
//! flags ─────────────────────────────┐
//! --db DIR        options: limits    ├─► Model ─► predict ─► tables, JSON ─► SVG
//! --recording F   observation: rates ┘     (a flag beats what is recorded)
//! ```
//! A database that is open may be asked: its options are read beside it, and its counters come from what its process
//! has recorded.

use std::io::Write;
use std::path::PathBuf;

use dialsm::stall_model::observe::{Observation, Unobserved};
use dialsm::stall_model::{
    Form, Limits, Megabytes, MegabytesPerSecond, Model, OutOfRange, Rates, Seconds, Sharding, Writes,
    subcompacted,
};
use dialsm_core::{Error, Options};

use crate::exit::{Failure, Outcome};
use crate::store::Opener;

mod drawing;
mod recording;
mod tables;
#[cfg(test)]
mod tests;

/// The flags. Megabytes are 10^6 bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelArgs {
    /// Arrival, MB/s.
    pub lambda: Option<f64>,
    /// Flushes, MB/s.
    pub mu_flush: Option<f64>,
    /// Out of level 0 with one thread, MB/s.
    pub mu_l0: Option<f64>,
    /// Deeper compactions, MB/s.
    pub mu_deep: Option<f64>,
    /// The share of bytes that survive level 0.
    pub k: Option<f64>,
    /// The memtable, MB.
    pub memtable: Option<f64>,
    /// A table in level 0, MB.
    pub sst: Option<f64>,
    /// Files of level 0 at which a stall ends.
    pub l0_trigger: Option<u32>,
    /// Files of level 0 at which it begins.
    pub l0_stall: Option<u32>,
    /// Debt at which writes stop, MB.
    pub pending_limit: Option<f64>,
    /// What has to be paid of it, MB.
    pub pending_drain: Option<f64>,
    /// Bytes of a write's key and value.
    pub record_bytes: Option<f64>,
    /// Time of a write that nothing stalls, µs.
    pub service_us: Option<f64>,
    /// How many trees.
    pub shards: Option<u32>,
    /// The share of stalls that shards have in common.
    pub common_cause: Option<f64>,
    /// Threads of a compaction out of level 0.
    pub subcompactions: Option<u32>,
    /// The part of its work that they share.
    pub parallel_share: Option<f64>,
    /// The paper's equations to the letter.
    pub literal: bool,
    /// A database whose options say the limits.
    pub db: Option<PathBuf>,
    /// A report of `dialsm-bench`, or one or two of the engine's statistics.
    pub recordings: Vec<PathBuf>,
    /// Which of a report's runs: a part of `engine/workload`.
    pub run: Option<String>,
    /// Where to draw the curves.
    pub svg: Option<PathBuf>,
}

/// What a database and its recordings know.
#[derive(Default)]
struct Known {
    observed: Option<Observation>,
    rates: Option<Rates>,
    record_bytes: Option<f64>,
    limits: Option<Limits>,
    l0_marks: Option<(u32, u32)>,
}

/// The model, and what it may be compared with.
struct Asked {
    model: Model,
    /// For the table of knobs; of what is not said, half.
    parallel_share: f64,
    observed: Option<Observation>,
}

impl ModelArgs {
    /// Predicts, and prints what came out.
    ///
    /// # Errors
    /// Usage, if a value is missing or can't be; those of the files.
    pub fn run(&self, json: bool, opener: &dyn Opener, out: &mut dyn Write) -> Outcome {
        let asked = self.asked(opener)?;
        let prediction = asked.model.predict()?;
        if let Some(path) = &self.svg {
            let drawing = drawing::curves(&asked)?;
            std::fs::write(path, drawing).map_err(|error| Error::io(&error, "write the drawing", path))?;
        }
        if json {
            writeln!(out, "{}", tables::json(&asked, &prediction))?;
        } else {
            out.write_all(tables::text(&asked, &prediction)?.as_bytes())?;
        }
        Ok(())
    }

    fn asked(&self, opener: &dyn Opener) -> Result<Asked, Failure> {
        let known = self.known(opener)?;
        let rates = known.rates;
        let limits = known.limits.as_ref();
        let mb_s = MegabytesPerSecond;
        let rate = |of: fn(&Rates) -> MegabytesPerSecond| rates.as_ref().map(|rates| of(rates).0);
        let l0_one = mb_s(needed("mu-l0", self.mu_l0, rate(|rates| rates.l0))?);
        let parallel = self.parallel_share.unwrap_or(0.0);
        let rates = Rates {
            arrival: mb_s(needed("lambda", self.lambda, rate(|rates| rates.arrival))?),
            flush: mb_s(needed("mu-flush", self.mu_flush, rate(|rates| rates.flush))?),
            l0: subcompacted(l0_one, self.subcompactions.unwrap_or(1), parallel)?,
            deep: mb_s(needed("mu-deep", self.mu_deep, rate(|rates| rates.deep))?),
            survival: needed("k", self.k, rates.map(|rates| rates.survival))?,
        };
        let memtable = needed("memtable", self.memtable, limits.map(|limits| limits.memtable.0))?;
        let sst = needed("sst", self.sst, limits.map(|limits| limits.memtable.0))?;
        let resume = needed("l0-trigger", self.l0_trigger, known.l0_marks.map(|(resume, _)| resume))?;
        let stop = needed("l0-stall", self.l0_stall, known.l0_marks.map(|(_, stop)| stop))?;
        let pending = needed("pending-limit", self.pending_limit, limits.map(|limits| limits.pending.0))?;
        let drain = needed("pending-drain", self.pending_drain, limits.map(|limits| limits.pending_drain.0))?;
        let limits = Limits {
            memtable: Megabytes(memtable),
            l0: Limits::l0_by_files(resume, stop, Megabytes(sst))?,
            pending: Megabytes(pending),
            pending_drain: Megabytes(drain),
        };
        // No recording knows it; without it a write waits for stalls alone.
        let service_us = needed("service-us", self.service_us, known.observed.map(|_| 0.0))?;
        let writes = Writes {
            record_bytes: needed("record-bytes", self.record_bytes, known.record_bytes)?,
            service: Seconds(service_us / 1e6),
        };
        let sharding =
            Sharding { shards: self.shards.unwrap_or(1), common_cause: self.common_cause.unwrap_or(0.0) };
        let form = if self.literal { Form::Literal } else { Form::Corrected };
        Ok(Asked {
            model: Model { rates, limits, writes, sharding, form },
            parallel_share: self.parallel_share.unwrap_or(0.5),
            observed: known.observed,
        })
    }

    /// What the database and the recordings say.
    fn known(&self, opener: &dyn Opener) -> Result<Known, Failure> {
        let mut known = Known::default();
        let mut options: Option<Options> = None;
        if !self.recordings.is_empty() {
            let recorded = recording::read(&self.recordings, self.run.as_deref())?;
            known.rates = Some(recorded.observation.rates()?);
            if let (Some(rates), Some(offered)) = (&mut known.rates, recorded.offered) {
                rates.arrival = offered;
            }
            known.record_bytes = Some(recorded.observation.record_bytes()?);
            known.observed = Some(recorded.observation);
            options = recorded.options;
        }
        if let Some(dir) = &self.db {
            options = Some(opener.saved_options(dir)?);
        }
        if let Some(options) = options.map(|options| options.keyspace()) {
            known.l0_marks =
                Some((options.level0_compaction_trigger as u32, options.level0_stop_trigger as u32));
            known.limits = Some(match &known.observed {
                Some(observed) => observed.limits(&options)?,
                None => Observation::limits_unobserved(&options)?,
            });
        }
        Ok(known)
    }
}

/// A flag's value, or what is known without it.
fn needed<T>(flag: &str, given: Option<T>, known: Option<T>) -> Result<T, Failure> {
    let missing =
        || Failure::Usage(format!("--{flag} is missing, and there is no --recording or --db that says it"));
    given.or(known).ok_or_else(missing)
}

impl From<OutOfRange> for Failure {
    fn from(error: OutOfRange) -> Failure {
        Failure::Usage(error.to_string())
    }
}

impl From<Unobserved> for Failure {
    fn from(error: Unobserved) -> Failure {
        Failure::Usage(error.to_string())
    }
}
