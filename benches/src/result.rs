//! What a run yields: the structures of the JSON file, and of the file a child hands its parent.

use crate::engine::{Background, Look, Routing, ShardLimits};
use crate::environment::Environment;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One workload on one engine in one round. `None` is what the engine or the workload does not have.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) engine: String,
    pub(crate) workload: String,
    pub(crate) round: u32,
    pub(crate) ops: u64,
    pub(crate) seconds: f64,
    pub(crate) ops_per_sec: f64,
    /// By kind: read, write, seek, scan.
    pub(crate) latency_us: BTreeMap<String, Latency>,
    pub(crate) stall: Stall,
    pub(crate) redirected: Option<u64>,
    /// Of engines with shards.
    #[serde(default)]
    pub(crate) routing: Option<RoutingOfRun>,
    /// Bytes the process wrote (the kernel's count) until settled, by bytes the user wrote.
    pub(crate) write_amp: Option<f64>,
    /// Bytes the process read by calls during the timed part, by bytes the user read.
    pub(crate) read_amp: Option<f64>,
    /// Bytes on disk once settled, by bytes of live keys and values.
    pub(crate) space_amp: Option<f64>,
    pub(crate) peak_rss_bytes: u64,
    /// Of the timed part and the settling after it, as all that follows up to the timeline.
    pub(crate) cpu_seconds: f64,
    /// The part of it that was spent in the kernel, in the ring's workers too.
    #[serde(default)]
    pub(crate) cpu_system_seconds: f64,
    /// Of all processes and the kernel itself.
    #[serde(default)]
    pub(crate) machine_cpu_seconds: Option<f64>,
    /// Of the kernel's own threads, which write back what is in the page cache.
    #[serde(default)]
    pub(crate) kernel_cpu_seconds: Option<f64>,
    #[serde(default)]
    pub(crate) disk_peak_bytes: Option<u64>,
    #[serde(default)]
    pub(crate) background: Background,
    /// Writing and syncing tables as a share of the compactions' time.
    #[serde(default)]
    pub(crate) compaction_io_share: Option<f64>,
    pub(crate) timeline: Vec<TimelinePoint>,
    /// What was looked at during the timed part, every `--sample_ms`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) samples: Vec<Sample>,
    /// What looking took, in seconds of one thread.
    #[serde(default)]
    pub(crate) sampling_seconds: Option<f64>,
    /// Where the shards of the samples stop, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) shard_limits: Vec<ShardLimits>,

    pub(crate) threads: u32,
    pub(crate) entry_bytes: u64,
    pub(crate) writes: u64,
    pub(crate) reads_found: u64,
    pub(crate) user_bytes_written: u64,
    pub(crate) user_bytes_read: u64,
    pub(crate) settle_seconds: f64,
    /// What compactions had left to do at the end of the timed part, as the engine estimates it.
    pub(crate) debt_bytes: u64,
    pub(crate) disk_bytes: u64,
    pub(crate) kernel: KernelBytes,
    /// Bytes on disk over time.
    #[serde(default)]
    pub(crate) disk_timeline: Vec<DiskPoint>,
    /// What the engine counts beside, since it was opened, by its own names.
    #[serde(default)]
    pub(crate) counters: BTreeMap<String, f64>,
    /// The open loop's rate, if it was one.
    pub(crate) rate: Option<f64>,
    pub(crate) latency_curve: BTreeMap<String, Vec<LatencyPoint>>,
    pub(crate) options: String,
}

/// What became of redirected writes, from the start of the timed part until settled.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RoutingOfRun {
    #[serde(flatten)]
    pub(crate) counts: Routing,
    /// Redirects by entries written.
    pub(crate) redirected_share: Option<f64>,
    /// Clues at the end of the timed part, before the engine settled.
    pub(crate) clues_at_end: Option<u64>,
    /// Clues once it was settled.
    pub(crate) clues_settled: Option<u64>,
}

/// Latencies of one kind, in microseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) p9999: f64,
    pub(crate) max: f64,
    pub(crate) mean: f64,
    pub(crate) count: u64,
}

/// How writes were held up.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Stall {
    /// As the engine counts them.
    pub(crate) count: Option<u64>,
    /// As the engine counts them.
    pub(crate) seconds: Option<f64>,
    pub(crate) by_cause: BTreeMap<String, CauseOfStall>,
    /// Spans of 10 ms or more in which no thread completed a write.
    pub(crate) gap_seconds: Option<f64>,
    pub(crate) longest_gap_ms: Option<f64>,
    /// Windows of 100 ms under a tenth of the median one.
    pub(crate) starved_seconds: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct CauseOfStall {
    pub(crate) count: Option<u64>,
    pub(crate) seconds: Option<f64>,
}

/// 100 ms of a run, from `t_ms` on.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct TimelinePoint {
    pub(crate) t_ms: u64,
    pub(crate) ops: u64,
    pub(crate) writes: u64,
    /// The part of it that lies in gaps.
    pub(crate) stalled_ms: f64,
}

/// What was looked at `t_ms` after the start of the timed part. Seconds and bytes are those since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) t_ms: u64,
    /// Of this process, in its own code and in the kernel.
    pub(crate) cpu_seconds: f64,
    /// Memory it has now.
    pub(crate) rss_bytes: u64,
    /// Bytes fetched from the device.
    pub(crate) read_device: u64,
    /// Bytes dirtied in the page cache or written past it.
    pub(crate) write_device: u64,
    #[serde(flatten)]
    pub(crate) engine: Look,
}

/// Bytes that the database's files take on disk, `t_ms` after the start of the timed part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DiskPoint {
    pub(crate) t_ms: u64,
    pub(crate) bytes: u64,
}

/// `share` of the operations took at most `us` microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct LatencyPoint {
    pub(crate) share: f64,
    pub(crate) us: f64,
}

/// Bytes as /proc/self/io counts them, from the start of the timed part until settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KernelBytes {
    /// Through read calls.
    pub(crate) read_calls: u64,
    /// Through write calls.
    pub(crate) write_calls: u64,
    /// Fetched from the device.
    pub(crate) read_device: u64,
    /// Dirtied in the page cache or written past it.
    pub(crate) write_device: u64,
}

/// The median over the rounds of one metric of the first engine by that of another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ratio {
    pub(crate) workload: String,
    pub(crate) a: String,
    pub(crate) b: String,
    /// The metric's path in a run, as in `latency_us.write.p99`.
    pub(crate) metric: String,
    pub(crate) median: f64,
}

/// How far two runs of the same engine lay apart: ratios of 1/spread to spread count as equal.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub(crate) workload: String,
    pub(crate) engine: String,
    pub(crate) metric: String,
    pub(crate) spread: f64,
}

/// Everything a comparison yields; the JSON file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) runs: Vec<Run>,
    pub(crate) ratios: Vec<Ratio>,
    #[serde(default)]
    pub(crate) aa: Vec<Spread>,
    /// The second runs of the first engine, which only the spread is made of.
    #[serde(default)]
    pub(crate) aa_runs: Vec<Run>,
    /// Keys, values and their making: the harness's own operations a second on one thread.
    #[serde(default)]
    pub(crate) generator_ops_per_sec: f64,
    #[serde(default)]
    pub(crate) flags: serde_json::Value,
    /// The words this was started with, the program's name first.
    #[serde(default)]
    pub(crate) command: Vec<String>,
    #[serde(default)]
    pub(crate) environment: Option<Environment>,
}
