//! A snapshot as a table for people and as JSON for programs.
//!
//! The JSON is written by hand: all of it is numbers and names without characters to escape, which
//! is not worth a dependency.

use std::fmt::{self, Write as _};

use super::{HistogramSnapshot, MetricsSnapshot, StallCause};

impl MetricsSnapshot {
    fn histograms(&self) -> [(&'static str, &HistogramSnapshot); 5] {
        [
            ("group_ops", &self.group_ops),
            ("log_sync_ns", &self.log_sync_ns),
            ("flush_ns", &self.flush_ns),
            ("compaction_ns", &self.compaction_ns),
            ("stall_ns", &self.stall_ns),
        ]
    }

    /// A table for people. Its form may change from version to version.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        self.write_text(&mut out).expect("writing to a string cannot fail");
        out
    }

    fn write_text(&self, out: &mut String) -> fmt::Result {
        for (name, value) in self.counters.entries() {
            writeln!(out, "{name:<24}{value:>20}")?;
        }
        if let Some(amplification) = self.write_amplification() {
            writeln!(out, "{:<24}{amplification:>20.2}", "write_amplification")?;
        }
        writeln!(
            out,
            "\n{:<8}{:>14}{:>13}{:>17}{:>17}{:>17}",
            "level", "get hits", "compactions", "read bytes", "write bytes", "ns"
        )?;
        for (index, level) in self.levels.iter().enumerate() {
            writeln!(
                out,
                "L{index:<7}{:>14}{:>13}{:>17}{:>17}{:>17}",
                level.get_hits,
                level.compactions,
                level.compaction_read_bytes,
                level.compaction_write_bytes,
                level.compaction_ns
            )?;
        }
        writeln!(out, "\n{:<12}{:>10}{:>22}", "stall", "count", "ns")?;
        for cause in StallCause::ALL {
            let stall = self.stall(cause);
            writeln!(out, "{:<12}{:>10}{:>22}", cause.as_str(), stall.count, stall.ns)?;
        }
        writeln!(
            out,
            "\n{:<16}{:>12}{:>14}{:>14}{:>14}{:>14}",
            "histogram", "count", "mean", "p50 <=", "p99 <=", "max"
        )?;
        for (name, histogram) in self.histograms() {
            writeln!(
                out,
                "{name:<16}{:>12}{:>14.0}{:>14}{:>14}{:>14}",
                histogram.count(),
                histogram.mean(),
                histogram.quantile(0.5),
                histogram.quantile(0.99),
                histogram.max
            )?;
        }
        Ok(())
    }

    /// One JSON object on one line. Names are only ever added.
    pub fn to_json(&self) -> String {
        let mut out = String::from("{");
        self.write_json(&mut out).expect("writing to a string cannot fail");
        out.push('}');
        out
    }

    fn write_json(&self, out: &mut String) -> fmt::Result {
        write_fields(out, &self.counters.entries())?;
        if let Some(amplification) = self.write_amplification() {
            write!(out, ",\"write_amplification\":{amplification:.4}")?;
        }
        out.push_str(",\"levels\":[");
        for (index, level) in self.levels.iter().enumerate() {
            out.push_str(if index == 0 { "{" } else { ",{" });
            write_fields(out, &level.entries())?;
            out.push('}');
        }
        out.push_str("],\"stalls\":{");
        for (index, cause) in StallCause::ALL.into_iter().enumerate() {
            let stall = self.stall(cause);
            let comma = if index == 0 { "" } else { "," };
            write!(out, "{comma}\"{}\":{{", cause.as_str())?;
            write_fields(out, &[("count", stall.count), ("ns", stall.ns)])?;
            out.push('}');
        }
        out.push_str("},\"histograms\":{");
        for (index, (name, histogram)) in self.histograms().into_iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(out, "{comma}\"{name}\":{{")?;
            write_fields(
                out,
                &[
                    ("count", histogram.count()),
                    ("sum", histogram.sum),
                    ("p50", histogram.quantile(0.5)),
                    ("p90", histogram.quantile(0.9)),
                    ("p99", histogram.quantile(0.99)),
                    ("p999", histogram.quantile(0.999)),
                    ("max", histogram.max),
                ],
            )?;
            out.push('}');
        }
        out.push('}');
        Ok(())
    }
}

fn write_fields(out: &mut String, fields: &[(&str, u64)]) -> fmt::Result {
    for (index, (name, value)) in fields.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(out, "{comma}\"{name}\":{value}")?;
    }
    Ok(())
}
