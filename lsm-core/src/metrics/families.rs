//! The metrics by their exported names: each with its type, unit, labels and meaning, and its values in a snapshot.
//!
//! Names follow from the fields of the structs: `dialsm_` and what the field belongs to, then the field, with `_ns`
//! turned into `_seconds`, and `_total` behind counters. docs/METRICS.md is made of them.

use super::values::Described;
use super::{HistogramSnapshot, LEVELS, MetricsSnapshot, StallCause, StallCounters};
use crate::write::stall::{StallReport, StallTimes};

/// What kind of number a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows, from 0 at the opening of the database.
    Counter,
    /// Says where something stands.
    Gauge,
    /// Values by magnitude, with their number and sum.
    Histogram,
}

impl MetricKind {
    /// Its name in Prometheus' text format.
    pub fn as_str(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// A metric as it is exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricInfo {
    /// Its name.
    pub name: String,
    /// What kind of number it is.
    pub kind: MetricKind,
    /// Its unit: seconds, bytes, or a count of what the name says.
    pub unit: &'static str,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it means.
    pub help: String,
}

/// All metrics, in the order in which they are exported.
pub fn describe() -> Vec<MetricInfo> {
    // Labels and help do not depend on values, but some families have none without a shard, keyspace and tree.
    let one = MetricsSnapshot {
        shards: vec![Default::default()],
        keyspaces: vec![Default::default()],
        trees: vec![Default::default()],
        ..MetricsSnapshot::default()
    };
    families(&one).into_iter().map(|family| family.info).collect()
}

/// A value as it is written out.
#[derive(Clone, Copy)]
pub(super) enum Value {
    Count(u64),
    Nanos(u64),
    Ratio(f64),
}

/// Values of the labels, in the order of [`MetricInfo::labels`].
pub(super) type Labels = Vec<String>;

pub(super) enum Series<'a> {
    Values(Vec<(Labels, Value)>),
    /// Its bounds: one less than the powers of two with these exponents.
    Histogram(&'a HistogramSnapshot, std::ops::RangeInclusive<u32>),
}

pub(super) struct Family<'a> {
    pub(super) info: MetricInfo,
    pub(super) series: Series<'a>,
}

/// Buckets of latencies: from a microsecond to a minute.
const LATENCY_BITS: std::ops::RangeInclusive<u32> = 10..=36;

/// Buckets of counts: up to 65535.
const COUNT_BITS: std::ops::RangeInclusive<u32> = 0..=16;

/// A group of metrics with the same labels: the fields of a struct, once for each set of values of the labels.
struct Group<'a> {
    prefix: &'a str,
    kind: MetricKind,
    labels: &'static [&'static str],
    rows: Vec<(Labels, Vec<Described>)>,
}

pub(super) fn families(snapshot: &MetricsSnapshot) -> Vec<Family<'_>> {
    let mut out = Vec::new();
    let whole = |values: Vec<Described>| vec![(Labels::new(), values)];
    let group = |prefix, kind, labels, rows| Group { prefix, kind, labels, rows };
    let (counter, gauge) = (MetricKind::Counter, MetricKind::Gauge);
    let (standing, counted): (Vec<Described>, Vec<Described>) =
        snapshot.counters.described().into_iter().partition(|value| value.name == "open_tables");
    add(&mut out, group("", counter, &[], whole(counted)));
    add(&mut out, group("", gauge, &[], whole(standing)));
    add(&mut out, group("", gauge, &[], whole(snapshot.gauges.described())));
    add(&mut out, group("handoff_", gauge, &[], whole(snapshot.handoff_gauges.described())));
    add(&mut out, group("handoff_", counter, &[], whole(snapshot.handoff.described())));
    add(&mut out, group("io_", counter, &[], whole(snapshot.io.described())));
    let by_level = |values: fn(&MetricsSnapshot, usize) -> Vec<Described>| {
        (0..LEVELS).map(|level| (vec![level.to_string()], values(snapshot, level))).collect()
    };
    add(&mut out, group("level_", counter, &["level"], by_level(|s, level| s.levels[level].described())));
    add(&mut out, group("level_", gauge, &["level"], by_level(|s, level| s.level_gauges[level].described())));
    out.extend(amplifications(snapshot));
    let shards = snapshot.shards.iter().enumerate();
    let rows = shards.map(|(at, shard)| (vec![at.to_string()], shard.counters.described())).collect();
    add(&mut out, group("shard_", counter, &["shard"], rows));
    out.extend(waits(snapshot));
    out.extend(stalls(snapshot));
    let trees =
        || snapshot.trees.iter().map(|tree| (tree, vec![tree.keyspace.clone(), tree.shard.to_string()]));
    let rows = trees().map(|(tree, labels)| (labels, tree.gauges.described())).collect();
    add(&mut out, group("tree_", gauge, &["keyspace", "shard"], rows));
    let mut rows = Vec::new();
    for (tree, labels) in trees() {
        for (level, gauges) in tree.levels.iter().enumerate() {
            let labels = [labels.clone(), vec![level.to_string()]].concat();
            rows.push((labels, gauges.described()));
        }
    }
    add(&mut out, group("tree_level_", gauge, &["keyspace", "shard", "level"], rows));
    out.extend(histograms(snapshot));
    out
}

/// A family for each field.
fn add(out: &mut Vec<Family<'_>>, group: Group<'_>) {
    let Some((_, first)) = group.rows.first() else { return };
    for (at, field) in first.iter().enumerate() {
        let is_time = field.name.ends_with("_ns");
        let value = |value: u64| if is_time { Value::Nanos(value) } else { Value::Count(value) };
        let values = group.rows.iter().map(|(labels, row)| (labels.clone(), value(row[at].value)));
        let name = format!("{}{}", group.prefix, field.name);
        out.push(family(&name, group.kind, group.labels, field.doc, values.collect()));
    }
}

/// A family under the name that `field` gets.
fn family(
    field: &str,
    kind: MetricKind,
    labels: &'static [&'static str],
    help: &str,
    values: Vec<(Labels, Value)>,
) -> Family<'static> {
    Family { info: info(field, kind, labels, help), series: Series::Values(values) }
}

fn info(field: &str, kind: MetricKind, labels: &'static [&'static str], help: &str) -> MetricInfo {
    let (stem, time) = match field.strip_suffix("_ns") {
        Some(stem) => (stem, "_seconds"),
        None => (field, ""),
    };
    let total = if kind == MetricKind::Counter { "_total" } else { "" };
    let unit = match field {
        _ if time == "_seconds" => "seconds",
        field if field.contains("bytes") => "bytes",
        field if field.ends_with("amplification") => "ratio",
        _ => "count",
    };
    let help = help.trim();
    let help = match help.strip_prefix("Nanoseconds ") {
        Some(rest) => format!("Seconds {rest}"),
        None => help.to_owned(),
    };
    MetricInfo { name: format!("dialsm_{stem}{time}{total}"), kind, unit, labels, help }
}

fn amplifications(snapshot: &MetricsSnapshot) -> Vec<Family<'static>> {
    let whole = |value: Option<f64>| vec![(Labels::new(), Value::Ratio(value.unwrap_or(0.0)))];
    let by_level = |value: fn(&MetricsSnapshot, usize) -> Option<f64>| {
        let of_level = |level: usize| Value::Ratio(value(snapshot, level).unwrap_or(0.0));
        (0..LEVELS).map(|level| (vec![level.to_string()], of_level(level))).collect()
    };
    let (gauge, level) = (MetricKind::Gauge, &["level"]);
    vec![
        family(
            "write_amplification",
            gauge,
            &[],
            "Bytes written to tables for each byte that writers brought.",
            whole(snapshot.write_amplification()),
        ),
        family(
            "read_amplification",
            gauge,
            &[],
            "Tables that a point look-up asked, on average, those included that their filter spared a look.",
            whole(snapshot.read_amplification()),
        ),
        family(
            "level_write_amplification",
            gauge,
            level,
            "This level's part of the write amplification.",
            by_level(MetricsSnapshot::level_write_amplification),
        ),
        family(
            "level_read_amplification",
            gauge,
            level,
            "This level's part of the read amplification.",
            by_level(MetricsSnapshot::level_read_amplification),
        ),
    ]
}

/// Waits of single writes.
fn waits(snapshot: &MetricsSnapshot) -> [Family<'static>; 2] {
    let by_cause = |value: fn(&StallCounters) -> Value| {
        let mut rows = Vec::new();
        for (at, shard) in snapshot.shards.iter().enumerate() {
            for (cause, stall) in StallCause::ALL.iter().zip(&shard.stalls) {
                rows.push((vec![at.to_string(), cause.as_str().to_owned()], value(stall)));
            }
        }
        rows
    };
    let (counter, labels) = (MetricKind::Counter, &["shard", "cause"]);
    [
        family(
            "stall_waits",
            counter,
            labels,
            "Writes that waited at a door of this shard, each counted by itself.",
            by_cause(|stall| Value::Count(stall.count)),
        ),
        family(
            "stall_wait_ns",
            counter,
            labels,
            "Seconds that they waited, summed over writes.",
            by_cause(|stall| Value::Nanos(stall.ns)),
        ),
    ]
}

/// Intervals in which some write of a keyspace waited.
fn stalls(snapshot: &MetricsSnapshot) -> Vec<Family<'static>> {
    type Field = (&'static str, MetricKind, &'static str, fn(&StallTimes) -> Value);
    let (counter, gauge) = (MetricKind::Counter, MetricKind::Gauge);
    let fields: [Field; 5] = [
        ("stalls", counter, "Intervals in which some write waited", |t| Value::Count(t.count)),
        ("stall_ns", counter, "Seconds of these intervals, a running one included", |t| {
            Value::Nanos(t.total_ns)
        }),
        ("stall_longest_ns", gauge, "Seconds of the longest of them", |t| Value::Nanos(t.longest_ns)),
        (
            "stall_last_begin_ns",
            gauge,
            "When the last of them began, in seconds on the database's clock",
            |t| Value::Nanos(t.last_begin_ns),
        ),
        (
            "stall_last_end_ns",
            gauge,
            "When the last of them ended; before its beginning while it lasts",
            |t| Value::Nanos(t.last_end_ns),
        ),
    ];
    let mut out = Vec::new();
    for (name, kind, help, value) in fields {
        let by_cause = |report: &StallReport| -> Vec<(&'static str, Value)> {
            StallCause::ALL.iter().map(|c| (c.as_str(), value(&report.by_cause[*c as usize]))).collect()
        };
        let mut rows = Vec::new();
        for keyspace in &snapshot.keyspaces {
            let of_cause =
                |(cause, value): (&str, Value)| (vec![keyspace.name.clone(), cause.to_owned()], value);
            rows.extend(by_cause(&keyspace.stalls).into_iter().map(of_cause));
        }
        out.push(family(name, kind, &["keyspace", "cause"], &format!("{help}; by cause."), rows));
        let any = |name: &str| format!("any_{name}");
        let rows = snapshot.keyspaces.iter().map(|k| (vec![k.name.clone()], value(&k.stalls.all))).collect();
        let help = format!("{help}; for any cause, overlaps counted once.");
        out.push(family(&any(name), kind, &["keyspace"], &help, rows));
    }
    out.push(family(
        "clock_ns",
        gauge,
        &[],
        "Seconds on the database's clock, by which the times of stalls go.",
        vec![(Labels::new(), Value::Nanos(snapshot.clock_ns))],
    ));
    out
}

impl MetricsSnapshot {
    /// Name, values and meaning of each histogram.
    pub(super) fn histograms(&self) -> [(&'static str, &HistogramSnapshot, &'static str); 9] {
        [
            ("group_ops", &self.group_ops, "Operations of a commit group."),
            ("get_ns", &self.get_ns, "Seconds of a point look-up; one in 256 is timed."),
            ("write_ns", &self.write_ns, "Seconds of a write, stalls included; one in 256 is timed."),
            ("log_sync_ns", &self.log_sync_ns, "Seconds of a sync of the log."),
            ("table_sync_ns", &self.table_sync_ns, "Seconds of a sync of a table."),
            ("manifest_sync_ns", &self.manifest_sync_ns, "Seconds of a sync of a manifest."),
            ("flush_ns", &self.flush_ns, "Seconds of a flush."),
            ("compaction_ns", &self.compaction_ns, "Seconds of a compaction."),
            ("stall_ns", &self.stall_ns, "Seconds that one write waited in a stall."),
        ]
    }
}

fn histograms(snapshot: &MetricsSnapshot) -> impl Iterator<Item = Family<'_>> {
    snapshot.histograms().into_iter().map(|(name, histogram, help)| {
        // `log_sync_seconds` would be taken for the counter's unit; these are of single ones.
        let stem =
            name.strip_suffix("_ns").map_or(format!("{name}_size"), |stem| format!("{stem}_duration_ns"));
        let bits = if name.ends_with("_ns") { LATENCY_BITS } else { COUNT_BITS };
        let info = info(&stem, MetricKind::Histogram, &[], help);
        Family { info, series: Series::Histogram(histogram, bits) }
    })
}
