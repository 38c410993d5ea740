//! A job that was begun, and whose end is told whatever becomes of it.

use std::sync::Arc;

use dialsm_io::env::Nanos;

use super::{
    CompactionBegin, CompactionEnd, Event, Events, FlushBegin, FlushEnd, RollbackBegin, RollbackEnd,
    TableRef, Taken,
};
use crate::Error;
use crate::background::panicked;
use crate::compaction::output::Written;
use crate::compaction::plan::{Plan, Reason};
use crate::tree::{Buffer, Tree};

/// What became of a job.
pub(crate) struct Outcome {
    outputs: Vec<TableRef>,
    /// Values that a rollback brought home.
    values: u64,
    error: Option<Error>,
}

impl Outcome {
    /// That of tables which are written, if they come to be used.
    pub(crate) fn of(written: &crate::Result<Written>) -> Outcome {
        match written {
            Ok(written) => {
                Outcome { outputs: written.table_refs(), values: written.rolled_back, error: None }
            }
            Err(error) => Outcome::failed(error),
        }
    }

    pub(crate) fn failed(error: &Error) -> Outcome {
        Outcome { outputs: Vec::new(), values: 0, error: Some(error.clone()) }
    }

    /// The outcome if the tables were made live, or that they were not.
    pub(crate) fn installed(self, result: &crate::Result<()>) -> Outcome {
        result.as_ref().map_or_else(Outcome::failed, |()| self)
    }

    fn output_bytes(&self) -> u64 {
        self.outputs.iter().map(|table| table.bytes).sum()
    }
}

/// Makes the end event, given how long it took in microseconds.
type End = Box<dyn FnOnce(&Outcome, u64) -> Event + Send>;

/// The beginning of a job was told. Dropped, it tells of the end of one that panicked.
pub(crate) struct Begun {
    events: Arc<Events>,
    since: Nanos,
    /// Told in this order.
    ends: Vec<(Taken, End)>,
}

impl Begun {
    fn new(events: &Arc<Events>) -> Begun {
        Begun { events: events.clone(), since: 0, ends: Vec::new() }
    }

    fn begin(&mut self, event: impl Into<Event>, end: End) {
        self.since = self.events.now();
        self.ends.insert(0, (self.events.push_begin(event.into()), end));
    }

    /// A flush.
    pub(crate) fn flush(events: &Arc<Events>, tree: &Tree, buffer: &Buffer) -> Begun {
        let mut begun = Begun::new(events);
        if events.is_on() {
            let (job, keyspace, shard) = (events.next_job(), tree.name.clone(), tree.id.shard);
            let event = FlushBegin {
                job,
                keyspace: keyspace.clone(),
                shard,
                entries: buffer.table.entries() as u64,
                input_bytes: buffer.table.raw_key_bytes() + buffer.table.raw_value_bytes(),
            };
            let end = move |outcome: &Outcome, duration_us| {
                let (output_bytes, outputs) = (outcome.output_bytes(), outcome.outputs.clone());
                let error = outcome.error.clone();
                FlushEnd { job, keyspace, shard, outputs, output_bytes, duration_us, error }.into()
            };
            begun.begin(event, Box::new(end));
            events.ring();
        }
        begun
    }

    /// A compaction, and the rollback that it may be.
    pub(crate) fn compaction(events: &Arc<Events>, tree: &Tree, plan: &Plan) -> Begun {
        let mut begun = Begun::new(events);
        if !events.is_on() {
            return begun;
        }
        let (job, keyspace, shard) = (events.next_job(), tree.name.clone(), tree.id.shard);
        let begin = CompactionBegin {
            job,
            keyspace: keyspace.clone(),
            shard,
            cause: cause(plan.reason),
            is_move: plan.trivial_move,
            output_level: plan.output_level,
            inputs: plan.files().map(|(level, table)| TableRef::of((level, table))).collect(),
            input_bytes: plan.input_bytes(),
        };
        let of = begin.clone();
        let end = move |outcome: &Outcome, duration_us| {
            let CompactionBegin { job, keyspace, shard, cause, is_move, output_level, inputs, input_bytes } =
                of;
            let moved = || inputs.iter().map(|table| TableRef { level: output_level, ..*table }).collect();
            let outputs = match is_move && outcome.error.is_none() {
                true => moved(),
                false => outcome.outputs.clone(),
            };
            let output_bytes = outputs.iter().map(|table| table.bytes).sum();
            let error = outcome.error.clone();
            CompactionEnd {
                job,
                keyspace,
                shard,
                cause,
                is_move,
                output_level,
                inputs,
                input_bytes,
                outputs,
                output_bytes,
                duration_us,
                error,
            }
            .into()
        };
        begun.begin(begin, Box::new(end));
        if plan.reason == Reason::Rollback {
            let clues = plan.files().map(|(_, table)| table.meta().clues).sum();
            let event = RollbackBegin { job, keyspace: keyspace.clone(), shard, clues };
            let end = move |outcome: &Outcome, duration_us| {
                let (values, error) = (outcome.values, outcome.error.clone());
                RollbackEnd { job, keyspace, shard, values, duration_us, error }.into()
            };
            begun.begin(event, Box::new(end));
        }
        events.ring();
        begun
    }

    /// Tells of the end. May be called under locks.
    pub(crate) fn end(&mut self, outcome: &Outcome) {
        for (taken, end) in std::mem::take(&mut self.ends) {
            let duration_us = (self.events.now() - self.since) / 1000;
            self.events.push_end(taken, end(outcome, duration_us));
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if !self.ends.is_empty() {
            self.end(&Outcome::failed(&panicked()));
        }
    }
}

fn cause(reason: Reason) -> &'static str {
    match reason {
        Reason::L0ToBase => "l0",
        Reason::IntraL0 => "intra_l0",
        Reason::LevelSaturation => "level",
        Reason::Manual => "manual",
        Reason::Redo => "redo",
        Reason::Rollback => "rollback",
        Reason::Collect => "collect",
        Reason::Reads => "reads",
    }
}
