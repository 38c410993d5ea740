//! What a run is told: every flag's value, checked as a whole.
//!
//! A child process gets the same structure as JSON, so parent and child cannot disagree.

use crate::generate::keys_are_distinct;
use crate::workload::{Needs, Workload};
use crate::ycsb::Distribution;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What is tuned in an engine. All byte and thread figures are the database's totals, whatever it is cut into.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EngineOptions {
    /// Leave everything below at what the engine itself chooses.
    pub(crate) own_defaults: bool,
    /// Write no log: for the whole database where the engine has such an option, else write by write.
    pub(crate) disable_wal: bool,
    /// Shards of an engine that has some; 0 is its own choice.
    pub(crate) shards: u32,
    /// Where the tables of shards lie, if not in the database's directory; each database makes one of its own in
    /// each.
    #[serde(default)]
    pub(crate) shard_dirs: Vec<PathBuf>,
    pub(crate) write_buffer_size: u64,
    pub(crate) max_write_buffer_number: u32,
    pub(crate) min_write_buffer_number_to_merge: u32,
    pub(crate) level0_file_num_compaction_trigger: u32,
    pub(crate) level0_slowdown_writes_trigger: u32,
    pub(crate) level0_stop_writes_trigger: u32,
    pub(crate) max_background_jobs: u32,
    pub(crate) subcompactions: u32,
    pub(crate) cache_size: u64,
    pub(crate) cache_type: String,
    pub(crate) cache_index_and_filter_blocks: bool,
    /// Bits a key of the filter; none when negative or 0.
    pub(crate) bloom_bits: f64,
    pub(crate) compression_type: Compression,
    pub(crate) block_size: u64,
    pub(crate) target_file_size_base: u64,
    pub(crate) max_bytes_for_level_base: u64,
    pub(crate) open_files: i64,
    pub(crate) enable_pipelined_write: bool,
    /// The library's own choice, which changed with release 8.4, when nothing is said.
    pub(crate) level_compaction_dynamic_level_bytes: Option<bool>,
    pub(crate) rocksdb_lib: Option<PathBuf>,
}

/// The block compressors that the flags can name; an engine refuses one it lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Compression {
    None,
    Snappy,
    Lz4,
    Zstd,
}

/// How operations arrive.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Rate {
    /// Closed loop: a thread's next operation follows its last.
    Closed,
    /// 95 % of the slowest engine's closed-loop rate, found in the warm-up.
    Auto,
    /// Operations a second of all threads together.
    PerSecond(f64),
}

/// The spacing of an open loop's arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Arrival {
    Fixed,
    Poisson,
}

/// What an open loop does with operations that came due while their thread was held up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Late {
    /// All of them, late.
    Queue,
    /// None: they are lost, so that what arrives while nothing holds a thread up is always the rate.
    Skip,
}

/// Every flag's value.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Config {
    pub(crate) benchmarks: Vec<String>,
    pub(crate) engines: Vec<String>,
    pub(crate) rounds: u32,
    pub(crate) warmup: u32,
    /// Whether the first engine runs twice a round; by default when there is something to compare.
    pub(crate) aa: Option<bool>,
    pub(crate) num: u64,
    pub(crate) reads: i64,
    pub(crate) writes: i64,
    pub(crate) duration: u64,
    pub(crate) threads: u32,
    pub(crate) key_size: usize,
    pub(crate) value_size: usize,
    pub(crate) batch_size: u32,
    pub(crate) seed: u64,
    pub(crate) sync: bool,
    pub(crate) compression_ratio: f64,
    pub(crate) readwritepercent: u32,
    pub(crate) seek_nexts: u32,
    pub(crate) keyspaces: u32,
    pub(crate) benchmark_write_rate_limit: u64,
    pub(crate) scan_length: u64,
    pub(crate) ycsb_distribution: Option<Distribution>,
    pub(crate) rate: Rate,
    pub(crate) arrival: Arrival,
    pub(crate) late: Late,
    pub(crate) memory_limit: Option<u64>,
    pub(crate) use_existing_db: bool,
    pub(crate) keep_db: bool,
    pub(crate) db: Option<PathBuf>,
    pub(crate) json: Option<PathBuf>,
    pub(crate) plot: Option<PathBuf>,
    pub(crate) report: Option<PathBuf>,
    /// Milliseconds between two looks at engine and process during the timed part; 0 is none.
    pub(crate) sample_ms: u64,
    pub(crate) out: Option<PathBuf>,
    /// Parts of names of a suite's cells, of which one that is run has at least one; all where there are none.
    pub(crate) only: Vec<String>,
    pub(crate) restart: bool,
    pub(crate) settle_timeout: u64,
    pub(crate) engine: EngineOptions,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            benchmarks: Vec::new(),
            engines: vec!["rocksdb".into()],
            rounds: 1,
            warmup: 1,
            aa: None,
            num: 1_000_000,
            reads: -1,
            writes: -1,
            duration: 0,
            threads: 1,
            key_size: 16,
            value_size: 100,
            batch_size: 1,
            seed: 42,
            sync: false,
            compression_ratio: 0.5,
            readwritepercent: 90,
            seek_nexts: 0,
            keyspaces: 500,
            benchmark_write_rate_limit: 0,
            scan_length: 100,
            ycsb_distribution: None,
            rate: Rate::Closed,
            arrival: Arrival::Fixed,
            late: Late::Queue,
            memory_limit: None,
            use_existing_db: false,
            keep_db: false,
            db: None,
            json: None,
            plot: None,
            report: None,
            sample_ms: 100,
            out: None,
            only: Vec::new(),
            restart: false,
            settle_timeout: 600,
            engine: EngineOptions::default(),
        }
    }
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            own_defaults: false,
            disable_wal: false,
            shards: 0,
            shard_dirs: Vec::new(),
            write_buffer_size: 64 << 20,
            max_write_buffer_number: 2,
            min_write_buffer_number_to_merge: 1,
            level0_file_num_compaction_trigger: 4,
            level0_slowdown_writes_trigger: 20,
            level0_stop_writes_trigger: 36,
            max_background_jobs: 2,
            subcompactions: 1,
            cache_size: 32 << 20,
            cache_type: "auto".into(),
            cache_index_and_filter_blocks: false,
            bloom_bits: -1.0,
            compression_type: Compression::None,
            block_size: 4096,
            target_file_size_base: 64 << 20,
            max_bytes_for_level_base: 256 << 20,
            open_files: -1,
            enable_pipelined_write: true,
            level_compaction_dynamic_level_bytes: None,
            rocksdb_lib: None,
        }
    }
}

impl EngineOptions {
    /// The directories for tables of the database in `dir`.
    pub(crate) fn shard_dirs_of(&self, dir: &Path) -> Vec<PathBuf> {
        let name = dir.file_name().unwrap_or_default();
        self.shard_dirs.iter().map(|parent| parent.join(name)).collect()
    }

    /// Removes the database in `dir`, if it is there.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn remove_db(&self, dir: &Path) -> Result<()> {
        let all = self.shard_dirs_of(dir).into_iter().chain([dir.to_owned()]);
        all.filter(|dir| dir.exists())
            .try_for_each(|dir| std::fs::remove_dir_all(&dir).with_context(|| format!("{}", dir.display())))
    }
}

impl Config {
    /// The workloads to run, in order.
    ///
    /// # Errors
    /// A name that is not one.
    pub(crate) fn workloads(&self) -> Result<Vec<Workload>> {
        let parse = |name: &String| {
            Workload::parse(name)
                .ok_or_else(|| anyhow::anyhow!("unknown workload '{name}' (--help lists them)"))
        };
        self.benchmarks.iter().map(parse).collect()
    }

    /// Whether the first engine is run twice a round.
    pub(crate) fn runs_aa(&self) -> bool {
        self.aa.unwrap_or(self.engines.len() > 1)
    }

    /// Whether what a round filled is kept for the next. Not under a memory limit: there the child has
    /// to have written the database itself. Nor with tables in several places: they are known as that
    /// database's only.
    pub(crate) fn keeps_fills(&self) -> bool {
        let runs = self.rounds + self.warmup + u32::from(self.runs_aa());
        let is_in_one_place = self.engine.shard_dirs.is_empty();
        runs > 1 && self.memory_limit.is_none() && !self.use_existing_db && is_in_one_place
    }

    /// Operations a thread of a reading workload does; `u64::MAX` is no limit but the duration's.
    pub(crate) fn reads_per_thread(&self) -> u64 {
        self.operations(self.reads)
    }

    /// Operations a thread of a writing workload does; `u64::MAX` is no limit but the duration's.
    pub(crate) fn writes_per_thread(&self) -> u64 {
        self.operations(self.writes)
    }

    fn operations(&self, asked: i64) -> u64 {
        let unasked = if self.duration > 0 { u64::MAX } else { self.num };
        u64::try_from(asked).unwrap_or(unasked)
    }

    /// Bytes of one key and one value.
    pub(crate) fn entry_bytes(&self) -> u64 {
        (self.key_size + self.value_size) as u64
    }

    /// Checks what no single flag can.
    ///
    /// # Errors
    /// The first thing that cannot be run.
    pub(crate) fn validate(&self) -> Result<()> {
        let workloads = self.workloads()?;
        if workloads.is_empty() {
            bail!("no workload: give --benchmarks a,b or name them first (--help lists them)");
        }
        let at_least_one = [
            ("rounds", u64::from(self.rounds)),
            ("num", self.num),
            ("threads", u64::from(self.threads)),
            ("batch_size", u64::from(self.batch_size)),
            ("scan_length", self.scan_length),
            ("engines", self.engines.len() as u64),
        ];
        if let Some((name, _)) = at_least_one.iter().find(|(_, value)| *value == 0) {
            bail!("--{name} must be at least 1");
        }
        if self.threads > 1024 || self.batch_size > 1 << 20 {
            bail!("--threads is at most 1024 and --batch_size at most 1048576");
        }
        if !(1..=65_535).contains(&self.key_size) || self.value_size > 1 << 30 {
            bail!("--key_size is 1 to 65535 bytes and --value_size at most 1 GiB");
        }
        if !keys_are_distinct(self.key_size, self.num) {
            bail!("{} keys do not fit into --key_size {}", self.num, self.key_size);
        }
        if self.key_size < 8 && workloads.iter().any(|w| matches!(w, Workload::Ycsb(_) | Workload::YcsbLoad))
        {
            bail!("YCSB's hashed keys need --key_size 8 or more");
        }
        if !(self.compression_ratio > 0.0 && self.compression_ratio <= 1.0) {
            bail!("--compression_ratio is above 0 and at most 1");
        }
        if self.readwritepercent > 100 {
            bail!("--readwritepercent is 0 to 100");
        }
        if (self.use_existing_db || self.keep_db) && self.db.is_none() {
            bail!("--use_existing_db and --keep_db need --db DIR");
        }
        if self.rate == Rate::Auto && self.warmup == 0 {
            bail!("--rate auto finds the rate in the warm-up, so it needs --warmup 1 or more");
        }
        if let Rate::PerSecond(rate) = self.rate
            && !(rate > 0.0 && rate.is_finite())
        {
            bail!("--rate is operations a second, above 0, or 'auto'");
        }
        if self.use_existing_db && workloads.iter().any(|w| w.needs() == Needs::Fresh) {
            bail!("workloads that fill a fresh database cannot run with --use_existing_db");
        }
        for (at, engine) in self.engines.iter().enumerate() {
            if self.engines[..at].contains(engine) {
                bail!("engine '{engine}' is named twice (--aa runs the first one twice)");
            }
            crate::engines::check(engine)?;
        }
        Ok(())
    }
}
