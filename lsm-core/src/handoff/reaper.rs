//! The reaper: one thread that takes in what the disk has done, and lets go of what is not needed.
//!
//! ```text
//! table written ─▶ the job's install, if all its tables are     sync done ─▶ table durable
//! sync failed   ─▶ a redo, if the table is live                 nothing else to do ─▶ unlink one file
//! ```
//! It takes completions as they come, whoever consumes the tables, and waits for nothing but them: what it
//! makes live ends stalls, so no sync of the manifest may keep it (`settler`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Handoff, NewFile, Redo, Waiting};
use crate::Error;
use crate::background::{caught, note};
use crate::engine::Engine;
use crate::version::Claim;

pub(super) fn run(engine: &Arc<Engine>) {
    let (handoff, scheduler) = (&engine.handoff, &engine.scheduler);
    loop {
        let seen = handoff.wake.epoch();
        let mut progress = false;
        caught(engine, || progress = step(engine));
        engine.events.ring();
        if progress {
            scheduler.ended.notify();
            scheduler.wake.notify();
            continue;
        }
        let is_over = {
            let mut state = handoff.state.lock();
            let is_quiet = state.waiting.is_empty() && state.files.iter().all(|file| file.is_over());
            state.is_reaped = state.stopping && is_quiet;
            state.is_reaped
        };
        if is_over {
            handoff.wake.notify();
            return;
        }
        handoff.wake.wait(seen, None);
    }
}

/// Does what can be done; false if that is nothing.
fn step(engine: &Arc<Engine>) -> bool {
    let mut progress = advance_tables(engine);
    while let Some(Waiting { what, written, then }) = next_written(engine) {
        let checked = written.checked(engine);
        // What it met is latched, as if its worker had met it.
        note(engine, what, then(engine, checked));
        progress = true;
    }
    progress || engine.graveyard.bury_one(engine)
}

/// Takes in what has become of tables under way.
fn advance_tables(engine: &Arc<Engine>) -> bool {
    let files = engine.handoff.state.lock().files.clone();
    let mut progress = false;
    let mut gone = Vec::new();
    for file in &files {
        progress |= file.advance(engine);
        if is_done_with(engine, file) {
            gone.push(file.number);
        }
    }
    if !gone.is_empty() {
        engine.handoff.state.lock().files.retain(|file| !gone.contains(&file.number));
        progress = true;
    }
    progress
}

/// Whether nothing more is to be done about a table.
fn is_done_with(engine: &Arc<Engine>, file: &Arc<NewFile>) -> bool {
    if !file.is_over() {
        return false;
    }
    if file.is_failed() {
        stop_if_directory_failed(engine, file);
    }
    if file.is_given_up() || file.write_failure().is_some() {
        Handoff::let_go_of(engine, file);
        return true;
    }
    // Until its job has installed it, nobody knows what it was made of.
    if !file.has_maker() {
        return false;
    }
    match file.sync_failure() {
        None => {
            Handoff::let_go_of(engine, file);
            true
        }
        Some(error) => answer_failure(engine, file, &error),
    }
}

/// After a failed sync of the directory nothing made since is sure of its name, the log's segments
/// included: writes stop, whatever becomes of the table that showed it.
fn stop_if_directory_failed(engine: &Engine, file: &NewFile) {
    let dir = engine.table_dirs.path(file.dir_id);
    if let Some(error) = engine.handoff.durability().and_then(|d| d.failure(dir))
        && !engine.error.is_lasting()
    {
        engine.error.latch_lasting("the sync of the directory", &error);
        engine.wake_writers();
    }
}

/// A table that is live, or was, could not be synced. False if that can't be answered yet.
fn answer_failure(engine: &Arc<Engine>, file: &Arc<NewFile>, error: &Error) -> bool {
    let Some(maker) = file.take_maker() else { return false };
    let is_last = file.attempt > 0;
    if engine.error.is_lasting() {
        Handoff::note_failure(engine);
        return true;
    }
    let (table, is_claimed) = {
        // Under the lock no job ends and no plan is claimed.
        let state = maker.tree.lock();
        let view = maker.tree.view();
        let found = view.version.all_tables().find(|(_, table)| table.number() == file.number);
        let Some((level, table)) = found.map(|(level, table)| (level, table.clone())) else {
            drop(state);
            // What came out of it does without it.
            Handoff::note_failure(engine);
            Handoff::let_go(engine, maker);
            return true;
        };
        let job = engine.next_job.fetch_add(1, Ordering::Relaxed);
        // The claim of one that is not made again stays: writes have stopped for good then.
        let is_claimed = table.try_claim(Claim { job, output_level: level });
        (table, is_claimed)
    };
    if !is_claimed {
        // A compaction reads it. If that succeeds the table is not needed; if not, it comes back.
        file.set_maker(maker);
        return false;
    }
    Handoff::note_failure(engine);
    if is_last {
        engine.error.latch_lasting("the sync of a table", error);
        engine.wake_writers();
        return true;
    }
    engine.handoff.ask_redo(Redo { table, maker });
    engine.schedule();
    true
}

/// The next job that may go on.
fn next_written(engine: &Engine) -> Option<Waiting> {
    let mut state = engine.handoff.state.lock();
    let at = state.waiting.iter().position(|waiting| waiting.written.is_written())?;
    Some(state.waiting.remove(at))
}
