//! A snapshot in Prometheus' text format, version 0.0.4.

use std::fmt::{self, Write as _};

use super::families::{Family, Labels, Series, Value, families};
use super::{HistogramSnapshot, MetricsSnapshot};

impl MetricsSnapshot {
    /// All metrics in the text format that Prometheus scrapes (`text/plain; version=0.0.4`). docs/METRICS.md lists
    /// them; names are only ever added.
    pub fn to_prometheus(&self) -> String {
        let mut out = String::new();
        for family in families(self) {
            family.write(&mut out).expect("writing to a string cannot fail");
        }
        out
    }
}

impl Family<'_> {
    fn write(&self, out: &mut String) -> fmt::Result {
        let info = &self.info;
        let help = info.help.replace('\\', "\\\\").replace('\n', "\\n");
        writeln!(out, "# HELP {} {help}", info.name)?;
        writeln!(out, "# TYPE {} {}", info.name, info.kind.as_str())?;
        match &self.series {
            Series::Values(values) => {
                values.iter().try_for_each(|(labels, value)| self.write_value(out, labels, *value))
            }
            Series::Histogram(histogram, bits) => self.write_histogram(out, histogram, bits.clone()),
        }
    }

    fn write_value(&self, out: &mut String, labels: &Labels, value: Value) -> fmt::Result {
        out.push_str(&self.info.name);
        for (at, (name, value)) in self.info.labels.iter().zip(labels).enumerate() {
            write!(out, "{}{name}=\"{}\"", if at == 0 { '{' } else { ',' }, escaped(value))?;
        }
        out.push_str(if labels.is_empty() { " " } else { "} " });
        match value {
            Value::Count(n) => writeln!(out, "{n}"),
            Value::Nanos(ns) => writeln!(out, "{}", seconds(ns)),
            Value::Ratio(ratio) => writeln!(out, "{ratio}"),
        }
    }

    fn write_histogram(
        &self,
        out: &mut String,
        histogram: &HistogramSnapshot,
        bits: std::ops::RangeInclusive<u32>,
    ) -> fmt::Result {
        let name = &self.info.name;
        let number = |n: u64| if self.info.unit == "seconds" { seconds(n) } else { n.to_string() };
        for bits in bits {
            let bound = (1u64 << bits) - 1;
            writeln!(out, "{name}_bucket{{le=\"{}\"}} {}", number(bound), histogram.count_up_to(bound))?;
        }
        writeln!(out, "{name}_bucket{{le=\"+Inf\"}} {}", histogram.count())?;
        writeln!(out, "{name}_sum {}", number(histogram.sum))?;
        writeln!(out, "{name}_count {}", histogram.count())
    }
}

/// Nanoseconds as seconds, exactly.
fn seconds(ns: u64) -> String {
    let (whole, part) = (ns / 1_000_000_000, ns % 1_000_000_000);
    if part == 0 {
        return whole.to_string();
    }
    format!("{whole}.{part:09}").trim_end_matches('0').to_owned()
}

/// The value of a label, as it stands between quotes.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
