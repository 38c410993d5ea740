//! A subscriber of the crate `tracing` hears the same.

use std::fmt::Debug;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Subscriber, with_default};
use tracing::{Event, Metadata};

use crate::common::tiny;
use crate::{Bench, flushes};

/// Target and fields of each event.
type Lines = Arc<Mutex<Vec<(String, Vec<(String, String)>)>>>;

struct Writes(Lines);

struct Fields(Vec<(String, String)>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push((field.name().to_owned(), format!("{value:?}")));
    }
}

impl Subscriber for Writes {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("dialsm::")
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(Vec::new());
        event.record(&mut fields);
        self.0.lock().push((event.metadata().target().to_owned(), fields.0));
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn a_subscriber_hears_events_with_their_fields() {
    let (bench, lines) = (Bench::new(4), Lines::default());
    bench.env.run(|| {
        let db = with_default(Writes(lines.clone()), || bench.open(&tiny()));
        flushes(&db, 1);
        db.close().expect("close");
    });
    let lines = lines.lock();
    let of = |name: &str| {
        let is = |fields: &[(String, String)]| fields.contains(&("event".into(), format!("{name:?}")));
        lines
            .iter()
            .find(|(_, fields)| is(fields))
            .unwrap_or_else(|| panic!("no {name} in {lines:?}"))
            .clone()
    };
    let (target, fields) = of("flush_end");
    assert_eq!(target, "dialsm::flush");
    let value = |name: &str| fields.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str());
    assert_eq!((value("keyspace"), value("shard")), (Some("\"default\""), Some("0")));
    assert!(value("output_bytes").is_some_and(|bytes| bytes.parse::<u64>().is_ok_and(|n| n > 100)));
    assert_eq!(value("error"), None);
    assert_eq!(of("hand_off").0, "dialsm::hand_off");
    assert_eq!(of("closed").0, "dialsm::db");
}
