//! A snapshot as tables for people and as JSON for programs.
//!
//! The JSON is written by hand: it is numbers and names, of which only keyspaces' may need escaping, and that is not
//! worth a dependency.

use std::fmt::{self, Write as _};

use super::{LEVELS, MetricsSnapshot, StallCause, StallCounters, TreeMetrics};
use crate::write::stall::{StallReport, StallTimes};

impl MetricsSnapshot {
    /// Tables for people. Their form may change from version to version.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        self.write_text(&mut out).expect("writing to a string cannot fail");
        out
    }

    fn write_text(&self, out: &mut String) -> fmt::Result {
        self.write_level_rows(out)?;
        self.write_stall_rows(out)?;
        self.write_shard_rows(out)?;
        self.write_tree_rows(out)?;
        self.write_histogram_rows(out)?;
        for (title, rows) in [
            ("counters", self.counters.entries()),
            ("now", self.gauges.entries()),
            ("hand-off now", self.handoff_gauges.entries()),
            ("hand-off", self.handoff.entries()),
            ("asynchronous I/O", self.io.entries()),
        ] {
            writeln!(out, "\n{title}")?;
            rows.iter().try_for_each(|(name, value)| writeln!(out, "{name:<28}{value:>20}"))?;
        }
        Ok(())
    }

    fn write_level_rows(&self, out: &mut String) -> fmt::Result {
        writeln!(
            out,
            "{:<6}{:>8}{:>6}{:>16}{:>12}{:>12}{:>12}{:>16}{:>16}{:>10}{:>8}{:>8}",
            "level",
            "tables",
            "runs",
            "bytes",
            "get tables",
            "get hits",
            "compactions",
            "read bytes",
            "write bytes",
            "seconds",
            "w-amp",
            "r-amp"
        )?;
        for level in 0..LEVELS {
            let (counted, now) = (&self.levels[level], &self.level_gauges[level]);
            writeln!(
                out,
                "L{level:<5}{:>8}{:>6}{:>16}{:>12}{:>12}{:>12}{:>16}{:>16}{:>10.3}{:>8}{:>8}",
                now.tables,
                now.runs,
                now.bytes,
                counted.get_tables(),
                counted.get_hits,
                counted.compactions,
                counted.compaction_read_bytes,
                counted.compaction_write_bytes,
                seconds(counted.compaction_ns),
                amplification(self.level_write_amplification(level)),
                amplification(self.level_read_amplification(level)),
            )?;
        }
        let (write, read) = (self.write_amplification(), self.read_amplification());
        writeln!(out, "{:<6}{:>124}{:>8}", "all", amplification(write), amplification(read))
    }

    fn write_stall_rows(&self, out: &mut String) -> fmt::Result {
        writeln!(
            out,
            "\n{:<24}{:<10}{:>8}{:>12}{:>12}{:>14}{:>14}",
            "stalls", "cause", "count", "seconds", "longest ms", "last began s", "last ended s"
        )?;
        for keyspace in &self.keyspaces {
            for (cause, times) in causes(&keyspace.stalls) {
                writeln!(
                    out,
                    "{:<24}{cause:<10}{:>8}{:>12.3}{:>12.1}{:>14.3}{:>14.3}",
                    keyspace.name,
                    times.count,
                    seconds(times.total_ns),
                    times.longest_ns as f64 / 1e6,
                    seconds(times.last_begin_ns),
                    seconds(times.last_end_ns),
                )?;
            }
        }
        writeln!(out, "\n{:<12}{:>10}{:>14}", "waits", "count", "seconds")?;
        for cause in StallCause::ALL {
            let stall = self.stall(cause);
            writeln!(out, "{:<12}{:>10}{:>14.3}", cause.as_str(), stall.count, seconds(stall.ns))?;
        }
        Ok(())
    }

    /// What each shard has done; a single one has done all.
    fn write_shard_rows(&self, out: &mut String) -> fmt::Result {
        let [first, _, ..] = &self.shards[..] else { return Ok(()) };
        let fields = first.counters.entries().len();
        let rows: Vec<_> = self.shards.iter().map(|shard| shard.counters.entries()).collect();
        write!(out, "\n{:<26}", "shard")?;
        (0..rows.len()).try_for_each(|shard| write!(out, "{shard:>16}"))?;
        for field in 0..fields {
            write!(out, "\n{:<26}", rows[0][field].0)?;
            rows.iter().try_for_each(|row| write!(out, "{:>16}", row[field].1))?;
        }
        write!(out, "\n{:<26}", "stall_waits")?;
        let waits = |stalls: &[StallCounters; 3]| stalls.iter().map(|stall| stall.count).sum::<u64>();
        self.shards.iter().try_for_each(|shard| write!(out, "{:>16}", waits(&shard.stalls)))?;
        write!(out, "\n{:<26}", "stall_wait_seconds")?;
        let waited = |stalls: &[StallCounters; 3]| stalls.iter().map(|stall| stall.ns).sum::<u64>();
        self.shards.iter().try_for_each(|shard| write!(out, "{:>16.3}", seconds(waited(&shard.stalls))))?;
        out.push('\n');
        Ok(())
    }

    fn write_tree_rows(&self, out: &mut String) -> fmt::Result {
        writeln!(
            out,
            "\n{:<24}{:>6}{:>9}{:>7}{:>15}{:>7}{:>8}{:>16}{:>14}{:>10}{:>16}{:>14}",
            "keyspace",
            "shard",
            "pressure",
            "sealed",
            "memtable bytes",
            "l0",
            "tables",
            "table bytes",
            "entries",
            "clues",
            "redirected",
            "pending bytes"
        )?;
        for TreeMetrics { keyspace, shard, gauges, levels } in &self.trees {
            writeln!(
                out,
                "{keyspace:<24}{shard:>6}{:>9.2}{:>7}{:>15}{:>7}{:>8}{:>16}{:>14}{:>10}{:>16}{:>14}",
                gauges.pressure_permille as f64 / 1000.0,
                gauges.sealed_memtables,
                gauges.active_memtable_bytes + gauges.sealed_memtable_bytes,
                gauges.l0_depth,
                levels.iter().map(|level| level.tables).sum::<u64>(),
                gauges.table_bytes,
                gauges.table_entries,
                gauges.clues_memtable + gauges.clues_level0 + gauges.clues_deeper,
                gauges.redirected_table_bytes,
                gauges.pending_compaction_bytes,
            )?;
        }
        Ok(())
    }

    fn write_histogram_rows(&self, out: &mut String) -> fmt::Result {
        writeln!(
            out,
            "\n{:<18}{:>12}{:>14}{:>14}{:>14}{:>14}{:>14}",
            "histogram", "count", "mean", "p50", "p99", "p999", "max"
        )?;
        for (name, histogram, _) in self.histograms() {
            writeln!(
                out,
                "{name:<18}{:>12}{:>14.0}{:>14}{:>14}{:>14}{:>14}",
                histogram.count(),
                histogram.mean(),
                histogram.quantile(0.5),
                histogram.quantile(0.99),
                histogram.quantile(0.999),
                histogram.max
            )?;
        }
        Ok(())
    }

    /// One JSON object on one line. Names are only ever added.
    pub fn to_json(&self) -> String {
        let mut out = String::new();
        self.write_json(&mut out).expect("writing to a string cannot fail");
        out
    }

    fn write_json(&self, out: &mut String) -> fmt::Result {
        out.push('{');
        write_fields(out, &self.counters.entries())?;
        write!(out, ",\"clock_ns\":{}", self.clock_ns)?;
        let (write, read) = (self.write_amplification(), self.read_amplification());
        write_ratios(out, &[("write_amplification", write), ("read_amplification", read)])?;
        out.push_str(",\"levels\":");
        write_list(out, 0..LEVELS, |out, level| {
            write_fields(out, &self.levels[level].entries())?;
            out.push(',');
            write_fields(out, &self.level_gauges[level].entries())?;
            let write = self.level_write_amplification(level);
            let read = self.level_read_amplification(level);
            write_ratios(out, &[("write_amplification", write), ("read_amplification", read)])
        })?;
        out.push_str(",\"stalls\":");
        write_waits(out, &self.stalls)?;
        for (name, fields) in [
            ("now", self.gauges.entries()),
            ("handoff_now", self.handoff_gauges.entries()),
            ("handoff", self.handoff.entries()),
            ("io", self.io.entries()),
        ] {
            write!(out, ",\"{name}\":{{")?;
            write_fields(out, &fields)?;
            out.push('}');
        }
        out.push_str(",\"shards\":");
        write_list(out, &self.shards, |out, shard| {
            write_fields(out, &shard.counters.entries())?;
            out.push_str(",\"stalls\":");
            write_waits(out, &shard.stalls)
        })?;
        out.push_str(",\"keyspaces\":");
        write_list(out, &self.keyspaces, |out, keyspace| {
            write!(out, "\"name\":{},\"stalls\":", quoted(&keyspace.name))?;
            write_stalls(out, &keyspace.stalls)
        })?;
        out.push_str(",\"trees\":");
        write_list(out, &self.trees, write_tree)?;
        out.push_str(",\"histograms\":{");
        self.write_histograms(out)?;
        out.push_str("}}");
        Ok(())
    }

    fn write_histograms(&self, out: &mut String) -> fmt::Result {
        for (index, (name, histogram, _)) in self.histograms().into_iter().enumerate() {
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
        Ok(())
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn amplification(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
}

/// The times for any cause, and those of each.
fn causes(report: &StallReport) -> impl Iterator<Item = (&'static str, &StallTimes)> {
    let each = StallCause::ALL.iter().map(|cause| (cause.as_str(), &report.by_cause[*cause as usize]));
    std::iter::once(("any", &report.all)).chain(each)
}

fn write_tree(out: &mut String, tree: &TreeMetrics) -> fmt::Result {
    write!(out, "\"keyspace\":{},\"shard\":{},", quoted(&tree.keyspace), tree.shard)?;
    write_fields(out, &tree.gauges.entries())?;
    out.push_str(",\"levels\":");
    write_list(out, &tree.levels, |out, level| write_fields(out, &level.entries()))
}

fn write_waits(out: &mut String, stalls: &[StallCounters; 3]) -> fmt::Result {
    write_causes(out, StallCause::ALL.iter().zip(stalls), |out, stall| {
        write_fields(out, &[("count", stall.count), ("ns", stall.ns)])
    })
}

/// Stall intervals: for any cause, and by cause.
fn write_stalls(out: &mut String, report: &StallReport) -> fmt::Result {
    out.push_str("{\"any\":{");
    write_times(out, &report.all)?;
    out.push_str("},\"by_cause\":");
    write_causes(out, StallCause::ALL.iter().zip(&report.by_cause), write_times)?;
    out.push('}');
    Ok(())
}

fn write_times(out: &mut String, times: &StallTimes) -> fmt::Result {
    let fields = [
        ("count", times.count),
        ("ns", times.total_ns),
        ("longest_ns", times.longest_ns),
        ("longest_begin_ns", times.longest_begin_ns),
        ("last_begin_ns", times.last_begin_ns),
        ("last_end_ns", times.last_end_ns),
    ];
    write_fields(out, &fields)
}

/// An object with an object for each cause.
fn write_causes<'a, T: 'a>(
    out: &mut String,
    of_causes: impl Iterator<Item = (&'a StallCause, &'a T)>,
    write: impl Fn(&mut String, &T) -> fmt::Result,
) -> fmt::Result {
    for (index, (cause, value)) in of_causes.enumerate() {
        write!(out, "{}\"{}\":{{", if index == 0 { '{' } else { ',' }, cause.as_str())?;
        write(out, value)?;
        out.push('}');
    }
    out.push('}');
    Ok(())
}

/// A list with an object for each item.
fn write_list<T>(
    out: &mut String,
    items: impl IntoIterator<Item = T>,
    write: impl Fn(&mut String, T) -> fmt::Result,
) -> fmt::Result {
    out.push('[');
    for (index, item) in items.into_iter().enumerate() {
        out.push_str(if index == 0 { "{" } else { ",{" });
        write(out, item)?;
        out.push('}');
    }
    out.push(']');
    Ok(())
}

fn write_fields(out: &mut String, fields: &[(&str, u64)]) -> fmt::Result {
    for (index, (name, value)) in fields.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(out, "{comma}\"{name}\":{value}")?;
    }
    Ok(())
}

/// Behind other fields; what there is none of is left out.
fn write_ratios(out: &mut String, ratios: &[(&str, Option<f64>)]) -> fmt::Result {
    for (name, value) in ratios {
        if let Some(value) = value {
            write!(out, ",\"{name}\":{value:.4}")?;
        }
    }
    Ok(())
}

/// A name in JSON. Keyspaces' have no control characters, but a string that has some is still one.
fn quoted(name: &str) -> String {
    let mut out = String::from("\"");
    for c in name.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
