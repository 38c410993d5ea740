//! Calls the listeners.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::outlet::Sink;
use super::{EventListener, Record};

/// Those that have not panicked, in the order of the options.
pub(super) struct Listeners {
    listeners: Vec<Arc<dyn EventListener>>,
    panics: Arc<AtomicU64>,
}

impl Listeners {
    pub(super) fn new(listeners: Vec<Arc<dyn EventListener>>, panics: Arc<AtomicU64>) -> Listeners {
        Listeners { listeners, panics }
    }
}

impl Sink for Listeners {
    fn take(&mut self, record: &Record) {
        let mut at = 0;
        while at < self.listeners.len() {
            let listener = &self.listeners[at];
            let call = AssertUnwindSafe(|| listener.event(&record.event, record.wall_us));
            let Err(payload) = catch_unwind(call) else {
                at += 1;
                continue;
            };
            self.panics.fetch_add(1, Ordering::Relaxed);
            let broken = self.listeners.remove(at);
            // Letting go of it, and of what it threw, is the user's code, too.
            let _ = catch_unwind(AssertUnwindSafe(move || drop((broken, payload))));
        }
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        for listener in self.listeners.drain(..) {
            let _ = catch_unwind(AssertUnwindSafe(move || drop(listener)));
        }
    }
}
