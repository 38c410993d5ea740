//! Events as those of the crate `tracing`.
//!
//! They are told by a listener like any other, so a subscriber runs under no lock of the engine, either. It
//! is the subscriber in force where the database is opened, that of the thread if it has one; without one
//! there is no such listener and no cost.

use std::sync::Arc;

use tracing::dispatcher::{Dispatch, get_default, with_default};
use tracing::subscriber::NoSubscriber;

use super::{Event, EventListener};

struct Tracing(Dispatch);

impl EventListener for Tracing {
    fn event(&self, event: &Event, _wall_us: u64) {
        with_default(&self.0, || event.trace());
    }
}

/// The listener for this thread's subscriber, if there is one.
pub(super) fn listener() -> Option<Arc<dyn EventListener>> {
    let dispatch = get_default(Dispatch::clone);
    let is_there = !dispatch.is::<NoSubscriber>();
    is_there.then(|| Arc::new(Tracing(dispatch)) as Arc<dyn EventListener>)
}
