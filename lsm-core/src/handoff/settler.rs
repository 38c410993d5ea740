//! The settler: one thread that has the manifest follow what is durable, and knows new log segments.
//!
//! It alone waits for the manifest's sync, which on a slow device stands behind all the bytes of tables
//! that are on their way; nothing that ends a stall waits for it. What becomes durable meanwhile goes into
//! the next record together.

use std::sync::Arc;

use crate::Error;
use crate::background::{RETRY_AFTER, caught, note};
use crate::engine::Engine;

pub(super) fn run(engine: &Arc<Engine>) {
    let (handoff, scheduler) = (&engine.handoff, &engine.scheduler);
    loop {
        let seen = handoff.wake.epoch();
        // Asked before: what the reaper did last is settled, too.
        let is_over = handoff.state.lock().is_reaped;
        let mut progress = false;
        caught(engine, || progress = settle(engine));
        engine.events.ring();
        if progress {
            scheduler.ended.notify();
            scheduler.wake.notify();
            // Inputs may go.
            handoff.wake.notify();
            continue;
        }
        if is_over {
            return;
        }
        let retry_at = handoff.state.lock().retry_at;
        handoff.wake.wait(seen, retry_at);
    }
}

/// Settles what is durable; false if there is nothing to do, or not now.
fn settle(engine: &Arc<Engine>) -> bool {
    if engine.error.is_lasting() {
        // Or a time that has passed would keep this thread from waiting.
        engine.handoff.state.lock().retry_at = None;
        return false;
    }
    let is_pending = engine.versions.is_ready() || engine.versions.is_name_pending(engine);
    let retry_at = engine.handoff.state.lock().retry_at;
    if retry_at.is_some_and(|at| engine.env.now() < at) {
        return false;
    }
    if !is_pending {
        // Somebody else has settled what was to be tried again.
        if engine.handoff.state.lock().retry_at.take().is_some() {
            note(engine, "a manifest write", Ok(()));
        }
        return false;
    }
    let settled = engine.versions.settle(engine);
    let passes = settled.as_ref().is_err_and(Error::is_passing);
    engine.handoff.state.lock().retry_at = passes.then(|| engine.env.now() + RETRY_AFTER);
    match settled {
        // Its success says nothing of what a job met, but for what it met itself before.
        Ok(()) if retry_at.is_none() => {}
        settled => note(engine, "a manifest write", settled),
    }
    true
}
