//! The command line: db_bench's flags by db_bench's names.
//!
//! `-` and `_` are alike, one or two dashes lead, a value follows as `--flag v` or `--flag=v`, and a
//! boolean stands bare, with a value, or negated (`--nosync`). Sizes in bytes take K, M and G
//! (powers of 1024). The first words that are not flags name the workloads, or `suite NAME`.
//! A flag that is not in the table is an error: a misspelt option must not be measured as another.

use crate::config::{Arrival, Compression, Config, Late, Rate};
use crate::ycsb::Distribution;
use anyhow::{Result, anyhow, bail};
use std::path::PathBuf;

/// What the words ask for.
#[derive(Debug)]
pub(crate) enum Command {
    Help,
    Run(Box<Config>),
    /// A named list of cells, with the words to add to each.
    Suite {
        name: String,
        words: Vec<String>,
        config: Box<Config>,
    },
    /// The page of results that were recorded earlier.
    Report {
        dir: PathBuf,
        files: Vec<PathBuf>,
    },
    /// Internal: one engine and one round, as a job file says.
    Child(PathBuf),
}

type Setter = fn(&mut Config, &str) -> Result<()>;

struct Flag {
    name: &'static str,
    is_bool: bool,
    set: Setter,
    help: &'static str,
}

/// A type that a flag's value can be read as.
trait FlagValue: Sized {
    fn read(text: &str) -> Option<Self>;
}

macro_rules! flag_value_by_parse {
    ($($type:ty),*) => {
        $(impl FlagValue for $type {
            fn read(text: &str) -> Option<Self> {
                text.parse().ok()
            }
        })*
    };
}
flag_value_by_parse!(i64, f64, String, PathBuf);

/// Reads a number with an optional K, M or G (powers of 1024) behind it.
fn read_size(text: &str) -> Option<u64> {
    let trimmed = text.trim_end_matches(['b', 'B', 'i']);
    let (digits, shift) = match trimmed.chars().last()? {
        'k' | 'K' => (&trimmed[..trimmed.len() - 1], 10),
        'm' | 'M' => (&trimmed[..trimmed.len() - 1], 20),
        'g' | 'G' => (&trimmed[..trimmed.len() - 1], 30),
        _ => (trimmed, 0),
    };
    let number: u64 = digits.parse().ok()?;
    number.checked_mul(1 << shift)
}

impl FlagValue for u64 {
    fn read(text: &str) -> Option<u64> {
        read_size(text)
    }
}

impl FlagValue for u32 {
    fn read(text: &str) -> Option<u32> {
        u32::try_from(read_size(text)?).ok()
    }
}

impl FlagValue for usize {
    fn read(text: &str) -> Option<usize> {
        usize::try_from(read_size(text)?).ok()
    }
}

impl FlagValue for bool {
    fn read(text: &str) -> Option<bool> {
        match text.to_ascii_lowercase().as_str() {
            "true" | "t" | "yes" | "y" | "1" => Some(true),
            "false" | "f" | "no" | "n" | "0" => Some(false),
            _ => None,
        }
    }
}

impl<T: FlagValue> FlagValue for Option<T> {
    fn read(text: &str) -> Option<Option<T>> {
        T::read(text).map(Some)
    }
}

impl FlagValue for Vec<String> {
    fn read(text: &str) -> Option<Vec<String>> {
        Some(text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect())
    }
}

impl FlagValue for Vec<PathBuf> {
    fn read(text: &str) -> Option<Vec<PathBuf>> {
        Vec::<String>::read(text).map(|parts| parts.into_iter().map(PathBuf::from).collect())
    }
}

impl FlagValue for Compression {
    fn read(text: &str) -> Option<Compression> {
        match text.to_ascii_lowercase().as_str() {
            "none" => Some(Compression::None),
            "snappy" => Some(Compression::Snappy),
            "lz4" => Some(Compression::Lz4),
            "zstd" => Some(Compression::Zstd),
            _ => None,
        }
    }
}

impl FlagValue for Rate {
    fn read(text: &str) -> Option<Rate> {
        match text {
            "auto" => Some(Rate::Auto),
            "0" => Some(Rate::Closed),
            _ => text.parse().ok().map(Rate::PerSecond),
        }
    }
}

impl FlagValue for Arrival {
    fn read(text: &str) -> Option<Arrival> {
        match text {
            "fixed" => Some(Arrival::Fixed),
            "poisson" => Some(Arrival::Poisson),
            _ => None,
        }
    }
}

impl FlagValue for Late {
    fn read(text: &str) -> Option<Late> {
        match text {
            "queue" => Some(Late::Queue),
            "skip" => Some(Late::Skip),
            _ => None,
        }
    }
}

impl FlagValue for Distribution {
    fn read(text: &str) -> Option<Distribution> {
        match text {
            "zipfian" => Some(Distribution::Zipfian),
            "latest" => Some(Distribution::Latest),
            "uniform" => Some(Distribution::Uniform),
            _ => None,
        }
    }
}

fn put<T: FlagValue>(slot: &mut T, text: &str) -> Result<()> {
    *slot = T::read(text).ok_or_else(|| anyhow!("cannot be '{text}'"))?;
    Ok(())
}

/// A flag named as the field it sets; `engine.` fields leave that part out of the name.
macro_rules! flag {
    ($field:ident, $help:expr) => {
        Flag { name: stringify!($field), is_bool: false, set: |c, v| put(&mut c.$field, v), help: $help }
    };
    (engine.$field:ident, $help:expr) => {
        Flag {
            name: stringify!($field),
            is_bool: false,
            set: |c, v| put(&mut c.engine.$field, v),
            help: $help,
        }
    };
    (bool $field:ident, $help:expr $(,)?) => {
        Flag { name: stringify!($field), is_bool: true, set: |c, v| put(&mut c.$field, v), help: $help }
    };
    (bool engine.$field:ident, $help:expr $(,)?) => {
        Flag {
            name: stringify!($field),
            is_bool: true,
            set: |c, v| put(&mut c.engine.$field, v),
            help: $help,
        }
    };
}

const FLAGS: &[Flag] = &[
    flag!(benchmarks, "workloads, separated by commas; also the first word"),
    flag!(
        engines,
        "engines to run in turns, separated by commas, each perhaps with options by its own names, as \
         lsm-core:deferred_sync=false or dialsm:shards=4:redirect=false; ratios are the first against each other"
    ),
    flag!(rounds, "measured rounds"),
    flag!(warmup, "rounds before them that do not count"),
    flag!(bool aa, "run the first engine twice a round for the spread of equals (default: with two engines or more)"),
    flag!(num, "key space; each thread does that many operations"),
    flag!(reads, "operations of a reading thread; -1 is --num"),
    flag!(writes, "operations of a writing thread; -1 is --num"),
    flag!(duration, "seconds to run instead of a number of operations; 0 is off"),
    flag!(threads, "threads"),
    flag!(key_size, "bytes of a key"),
    flag!(value_size, "bytes of a value"),
    flag!(batch_size, "entries of a write batch, keys of a multi-get"),
    flag!(seed, "seed of keys and values"),
    flag!(bool sync, "sync the log at every write"),
    flag!(compression_ratio, "share of a value's size that a compressor can get it down to"),
    flag!(readwritepercent, "reads in a hundred operations of readrandomwriterandom"),
    flag!(keyspaces, "keyspaces of openkeyspaces"),
    flag!(seek_nexts, "entries to step over after each seek"),
    flag!(benchmark_write_rate_limit, "bytes a second of readwhilewriting's writer; 0 is no limit"),
    flag!(scan_length, "most entries of a YCSB scan"),
    flag!(ycsb_distribution, "zipfian, latest or uniform instead of the mix's own"),
    flag!(rate, "open loop: operations a second of all threads, or 'auto'; 0 is closed loop"),
    flag!(arrival, "arrivals of the open loop: fixed or poisson"),
    flag!(
        late,
        "what came due in an open loop while its thread was held up: queue (all is done late) or skip"
    ),
    flag!(memory_limit, "bytes of memory, page cache included, for each engine (a memory cgroup)"),
    flag!(bool use_existing_db, "measure the database that --db holds"),
    flag!(bool keep_db, "leave the databases behind"),
    flag!(db, "directory under which each engine gets one of its own"),
    flag!(json, "file for all results"),
    flag!(plot, "directory for drawings"),
    flag!(report, "directory for a page of the run, report.html: one file with all charts in it"),
    flag!(
        sample_ms,
        "milliseconds between looks at stalls, shards, CPU, memory and disk for the page; 0 is none"
    ),
    flag!(out, "directory of a suite's results and state"),
    flag!(only, "cells of a suite to run: parts of their names, separated by commas"),
    flag!(bool restart, "forget what a suite has done"),
    flag!(settle_timeout, "seconds to wait for an engine's background work"),
    flag!(bool engine.own_defaults, "each engine's own defaults instead of db_bench's"),
    flag!(bool engine.disable_wal, "write no log"),
    flag!(engine.shards, "dialsm: shards of a new database; 0 is its own choice"),
    flag!(engine.shard_dirs, "dialsm: directories its shards' tables lie in by turns, separated by commas"),
    flag!(engine.write_buffer_size, "bytes of a memtable"),
    flag!(engine.max_write_buffer_number, "memtables"),
    flag!(engine.min_write_buffer_number_to_merge, "memtables merged in one flush"),
    flag!(engine.level0_file_num_compaction_trigger, "tables in level 0 that start a compaction"),
    flag!(engine.level0_slowdown_writes_trigger, "tables in level 0 that slow writes down"),
    flag!(engine.level0_stop_writes_trigger, "tables in level 0 that stop writes"),
    flag!(engine.max_background_jobs, "flushes and compactions at once"),
    flag!(engine.subcompactions, "threads of one compaction"),
    flag!(engine.cache_size, "bytes of the block cache; 0 is none"),
    flag!(engine.cache_type, "rocksdb: lru_cache, hyper_clock_cache, or auto (the newest it has)"),
    flag!(bool engine.cache_index_and_filter_blocks, "keep index and filter in the block cache"),
    flag!(engine.bloom_bits, "filter bits a key; -1 is no filter"),
    flag!(engine.compression_type, "none, snappy, lz4 or zstd"),
    flag!(engine.block_size, "bytes of a data block"),
    flag!(engine.target_file_size_base, "bytes of a table"),
    flag!(engine.max_bytes_for_level_base, "bytes of level 1"),
    flag!(engine.open_files, "tables kept open; -1 is all"),
    flag!(bool engine.enable_pipelined_write, "rocksdb: pipelined writes, as in db_bench"),
    flag!(
        bool engine.level_compaction_dynamic_level_bytes,
        "rocksdb: level sizes from the last level up (default: the release's own)"
    ),
    flag!(engine.rocksdb_lib, "shared library with RocksDB's C interface"),
];

/// The text of `--help`.
pub(crate) fn help() -> String {
    let mut text = String::from(
        "dialsm-bench WORKLOADS [flags]\ndialsm-bench suite NAME [flags]\ndialsm-bench report DIR FILE...\n\nRuns \
         workloads on several engines in turns, each engine and round in a process of its own. 'report' writes \
         DIR/report.html, a page of what earlier runs left in files of --json.\n\nWorkloads:\n",
    );
    for (name, what) in crate::workload::catalogue() {
        text += &format!("  {name:<24} {what}\n");
    }
    text += "\nSuites:\n";
    for (name, what) in crate::suite::catalogue() {
        text += &format!("  {name:<24} {what}\n");
    }
    text += &format!("\nEngines of this build: {}\n\nFlags:\n", crate::engines::built().join(", "));
    for flag in FLAGS {
        text += &format!("  --{:<38} {}\n", flag.name, flag.help);
    }
    text
}

/// Reads the words after the program's name.
///
/// # Errors
/// A word that cannot be understood, or a combination that cannot be run.
pub(crate) fn parse(words: &[String]) -> Result<Command> {
    if let [first, job] = words
        && first == crate::child::JOB_FLAG
    {
        return Ok(Command::Child(PathBuf::from(job)));
    }
    let mut config = Config::default();
    let Some(positional) = apply(words, &mut config)? else { return Ok(Command::Help) };
    let names: Vec<&String> = positional.iter().map(|&at| &words[at]).collect();
    match names.as_slice() {
        [suite, name] if *suite == "suite" => {
            crate::suite::check(name)?;
            let flags = words.iter().enumerate().filter(|(at, _)| !positional.contains(at));
            let words = flags.map(|(_, word)| word.clone()).collect();
            Ok(Command::Suite { name: (*name).clone(), words, config: Box::new(config) })
        }
        [report, dir, files @ ..] if *report == "report" && !files.is_empty() => {
            if positional.len() < words.len() {
                bail!("'report' takes no flags");
            }
            Ok(Command::Report { dir: dir.into(), files: files.iter().map(PathBuf::from).collect() })
        }
        [report, ..] if *report == "report" => bail!("'report' takes a directory and files of --json"),
        [suite, ..] if *suite == "suite" => bail!("'suite' takes one name (--help lists them)"),
        [] => checked(config),
        [list] => {
            put(&mut config.benchmarks, list)?;
            checked(config)
        }
        [_, other, ..] => bail!("unexpected word '{other}'"),
    }
}

fn checked(config: Config) -> Result<Command> {
    config.validate()?;
    Ok(Command::Run(Box::new(config)))
}

/// Sets the flags of `words` and returns the places of the other words; nothing when help is asked for.
///
/// # Errors
/// An unknown flag, or a value it cannot have.
pub(crate) fn apply(words: &[String], config: &mut Config) -> Result<Option<Vec<usize>>> {
    let mut positional = Vec::new();
    let mut rest = words.iter().enumerate().peekable();
    while let Some((at, word)) = rest.next() {
        let Some(body) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
            positional.push(at);
            continue;
        };
        let (name, inline) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (body, None),
        };
        let name = name.replace('-', "_");
        if name == "help" || name == "h" {
            return Ok(None);
        }
        let (flag, negated) =
            find(&name).ok_or_else(|| anyhow!("unknown flag '{word}' (--help lists them)"))?;
        let value = match inline {
            Some(value) if !negated => value,
            Some(_) => bail!("--{name} takes no value"),
            None if negated => "false".to_owned(),
            // A word that is no truth value belongs to what follows: `--sync fillrandom`.
            None if flag.is_bool => {
                let value = rest.next_if(|(_, next)| bool::read(next).is_some());
                value.map_or_else(|| "true".into(), |(_, value)| value.clone())
            }
            None => {
                let (_, value) = rest.next().ok_or_else(|| anyhow!("--{name} needs a value"))?;
                value.clone()
            }
        };
        (flag.set)(config, &value).map_err(|error| anyhow!("--{name} {error}"))?;
    }
    Ok(Some(positional))
}

/// The flag of a name, and whether the name turns it off.
fn find(name: &str) -> Option<(&'static Flag, bool)> {
    let by_name = |wanted: &str| FLAGS.iter().find(|flag| flag.name == wanted);
    if let Some(flag) = by_name(name) {
        return Some((flag, false));
    }
    let flag = by_name(name.strip_prefix("no")?)?;
    flag.is_bool.then_some((flag, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn run(text: &str) -> Config {
        match parse(&words(text)).unwrap() {
            Command::Run(config) => *config,
            other => panic!("{other:?}"),
        }
    }

    fn error(text: &str) -> String {
        parse(&words(text)).unwrap_err().to_string()
    }

    #[test]
    fn dashes_underscores_and_equal_signs_are_alike() {
        for text in [
            "fillseq --engines null --value_size 1000",
            "fillseq --engines=null --value-size=1000",
            "-engines=null -value_size 1000 fillseq",
            "--benchmarks fillseq --engines null --value_size=1000",
        ] {
            let config = run(text);
            assert_eq!(
                (config.value_size, config.benchmarks.as_slice()),
                (1000, &["fillseq".to_owned()][..])
            );
        }
    }

    #[test]
    fn booleans_stand_bare_valued_or_negated() {
        assert!(run("--engines null --sync fillseq").sync);
        assert!(run("--engines null --sync=1 fillseq").sync);
        assert!(run("--engines null --sync true fillseq").sync);
        assert!(!run("--engines null --sync --sync=false fillseq").sync);
        assert!(!run("--engines null --sync 0 fillseq").sync);
        assert!(!run("--engines null --noenable_pipelined_write fillseq").engine.enable_pipelined_write);
        assert_eq!(run("--engines null fillseq --aa").aa, Some(true));
        assert!(error("--nonum fillseq").contains("unknown flag"));
        assert!(error("--nosync=1 fillseq").contains("takes no value"));
    }

    #[test]
    fn numbers_take_signs_and_sizes_take_suffixes() {
        let config =
            run("fillseq --engines null --reads -1 --bloom-bits 10 --cache_size 8M --memory-limit 256M");
        assert_eq!((config.reads, config.engine.bloom_bits), (-1, 10.0));
        assert_eq!((config.engine.cache_size, config.memory_limit), (8 << 20, Some(256 << 20)));
        assert_eq!(run("fillseq --engines null --write_buffer_size=1GiB").engine.write_buffer_size, 1 << 30);
        assert_eq!(run("fillseq --engines null --rate 1e5").rate, Rate::PerSecond(1e5));
        assert_eq!(run("fillseq --engines null --rate auto --arrival poisson").arrival, Arrival::Poisson);
        assert_eq!(run("fillseq --engines null").late, Late::Queue);
        assert_eq!(run("fillseq --engines null --rate 9 --late skip").late, Late::Skip);
        for bad in
            ["--num 1e6", "--num 99999999999999G", "--num K", "--num -1", "--threads 9999999999", "--num"]
        {
            assert!(error(&format!("fillseq --engines null {bad}")).starts_with("--"), "{bad}");
        }
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        assert!(error("--benchmark fillseq").contains("unknown flag '--benchmark'"));
        assert!(error("fillseq --engines null extra").contains("unexpected word 'extra'"));
        assert!(error("fillsequence --engines null").contains("unknown workload"));
        assert!(error("fillseq --engines leveldb").contains("unknown engine 'leveldb'"));
        assert!(error("fillseq --engines leveldb:x=1").contains("unknown engine 'leveldb'"));
        assert!(error("fillseq --engines null:x=1").contains("takes no options"));
        assert!(error("fillseq --engines lsm-core:no_such=1").contains("no_such"));
        assert!(error("fillseq --engines lsm-core:deferred_sync=maybe").contains("deferred_sync"));
        let variants = "fillseq --engines lsm-core,lsm-core:deferred_sync=false:direct_writes=true";
        assert_eq!(run(variants).engines.len(), 2);
        assert!(error("--engines null").contains("no workload"));
        assert!(error("fillseq --engines null --threads 0").contains("at least 1"));
        assert!(error("fillseq --engines null --key_size 2 --num 100000").contains("do not fit"));
        assert!(error("ycsba --engines null --key_size 4 --num 10").contains("YCSB"));
        assert!(error("fillseq --engines null --use_existing_db").contains("--db"));
        assert!(error("fillseq --engines null --rate auto --warmup 0").contains("warm-up"));
        assert!(error("fillseq --engines null --rate -5").contains("above 0"));
        assert!(error("suite").contains("one name"));
        assert!(error("report").contains("a directory and files"));
        assert!(error("report dir").contains("a directory and files"));
        assert!(error("report dir a.json --num 3").contains("no flags"));
    }

    #[test]
    fn commands_are_told_apart() {
        assert!(matches!(parse(&words("--help")).unwrap(), Command::Help));
        assert!(matches!(parse(&words("fillseq -h")).unwrap(), Command::Help));
        let Command::Report { dir, files } = parse(&words("report out a.json b.json")).unwrap() else {
            panic!("not a report")
        };
        assert_eq!((dir, files), ("out".into(), vec!["a.json".into(), "b.json".into()]));
        let Command::Suite { name, words, config } =
            parse(&words("suite smoke --rounds 2 --db smoke")).unwrap()
        else {
            panic!("not a suite")
        };
        assert_eq!(
            (name.as_str(), words.join(" ").as_str(), config.rounds),
            ("smoke", "--rounds 2 --db smoke", 2)
        );
    }

    #[test]
    fn the_defaults_are_those_of_db_bench() {
        let config = run("fillseq --engines null");
        assert_eq!((config.num, config.key_size, config.value_size, config.threads), (1_000_000, 16, 100, 1));
        let engine = &config.engine;
        assert_eq!((engine.write_buffer_size, engine.max_write_buffer_number), (64 << 20, 2));
        assert_eq!((engine.max_background_jobs, engine.cache_size, engine.bloom_bits), (2, 32 << 20, -1.0));
        let triggers = (
            engine.level0_file_num_compaction_trigger,
            engine.level0_slowdown_writes_trigger,
            engine.level0_stop_writes_trigger,
        );
        assert_eq!(triggers, (4, 20, 36));
    }
}
