//! Named lists of runs, which resume where they stopped.
//!
//! ```text
//!   DIR/state.json        the suite, the words added to each cell, the cells that are done
//!   DIR/<cell>.json       the cell's report
//!   DIR/table.md          tables of all cells, for a document
//! ```
//! A cell is a command line; the words after the suite's name are added to each. The state is
//! written after each cell, by renaming, so an interruption costs the cell that ran. A state made
//! with other words is refused: half a suite under other flags would look like a whole one. `--only` is no such
//! word: it says which cells to run now, and what they measure is the same.

use crate::compare::{auto_rates, compare, compare_at};
use crate::config::{Config, Rate};
use crate::flags;
use crate::markdown;
use crate::page;
use crate::plot;
use crate::report;
use crate::result::Report;
use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

mod shards;
mod stall_model;

struct Suite {
    name: &'static str,
    what: &'static str,
    /// Names and command lines.
    cells: &'static [(&'static str, &'static str)],
}

const SUITES: &[Suite] = &[
    Suite {
        name: "smoke",
        what: "a few seconds an engine: every kind of operation once",
        cells: &[
            ("write", "fillseq,fillrandom,overwrite,deleterandom --num 50000 --threads 2"),
            (
                "read",
                "readrandom,readmissing,readseq,readreverse,seekrandom --num 50000 --threads 2 --bloom_bits 10",
            ),
            ("mixed", "readwhilewriting,readrandomwriterandom --num 50000 --threads 2"),
            ("ycsb", "ycsba,ycsbb,ycsbc,ycsbd,ycsbe,ycsbf --num 20000 --threads 2"),
        ],
    },
    Suite {
        name: "issue2",
        what: "the single tree against its peer: 2 GB and more, 100 B, 1 KB and 8 KB values, 4 and 1 threads",
        cells: ISSUE2,
    },
    Suite {
        name: "handoff",
        what: "deferred against synchronous hand-off, and both against RocksDB: 3 GB a workload, log on and off",
        cells: HANDOFF,
    },
    Suite {
        name: "handoff-slow",
        what: "the same for a device made slow on purpose, with less data; give --db on it (tools/handoff.sh does)",
        cells: HANDOFF_SLOW,
    },
    Suite {
        name: "shards",
        what: "dialsm against one tree, RocksDB and fjall: the paper's settings, db_bench's, and clues by themselves",
        cells: shards::CELLS,
    },
    Suite {
        name: stall_model::NAME,
        what: "the stall model against the engine: one run gives the rates, the stalls of others are predicted",
        cells: stall_model::CELLS,
    },
];

/// A cell of this ending is an open loop at 95 % of what the slowest engine did in the cell without it.
const OPEN: &str = "-open";

/// Each workload writes 3.1 GB; the overwrites follow the fill of their own round, so that no copies of
/// databases lie about. The spread of equals is that of the closed loops with 8 KB.
const HANDOFF: &[(&str, &str)] = &[
    (
        "8k-log",
        "fillrandom,overwrite --value_size 8000 --num 390000 --writes 97500 --threads 4 --bloom_bits 10 --rounds 2 \
         --warmup 0 --engines lsm-core,lsm-core:deferred_sync=false,rocksdb",
    ),
    (
        "8k-log-open",
        "fillrandom,overwrite --value_size 8000 --num 390000 --writes 97500 --threads 4 --bloom_bits 10 --rounds 2 \
         --warmup 0 --engines lsm-core,lsm-core:deferred_sync=false,rocksdb --noaa",
    ),
    (
        "8k-nolog",
        "fillrandom,overwrite --value_size 8000 --num 390000 --writes 97500 --threads 4 --bloom_bits 10 --rounds 2 \
         --warmup 0 --engines lsm-core,lsm-core:deferred_sync=false,rocksdb --disable_wal",
    ),
    (
        "8k-nolog-open",
        "fillrandom,overwrite --value_size 8000 --num 390000 --writes 97500 --threads 4 --bloom_bits 10 --rounds 2 \
         --warmup 0 --engines lsm-core,lsm-core:deferred_sync=false,rocksdb --disable_wal --noaa",
    ),
    (
        "1k-log",
        "fillrandom,overwrite --value_size 1000 --num 3100000 --writes 775000 --threads 4 --bloom_bits 10 --rounds 1 \
         --warmup 0 --engines lsm-core,lsm-core:deferred_sync=false,rocksdb --noaa",
    ),
    (
        "1k-log-open",
        "fillrandom,overwrite --value_size 1000 --num 3100000 --writes 775000 --threads 4 --bloom_bits 10 --rounds 1 \
         --warmup 0 --engines lsm-core,lsm-core:deferred_sync=false,rocksdb --noaa",
    ),
    (
        "1k-nolog",
        "fillrandom,overwrite --value_size 1000 --num 3100000 --writes 775000 --threads 4 --bloom_bits 10 --rounds 1 \
         --warmup 0 --engines lsm-core,lsm-core:deferred_sync=false,rocksdb --disable_wal --noaa",
    ),
    (
        "1k-nolog-open",
        "fillrandom,overwrite --value_size 1000 --num 3100000 --writes 775000 --threads 4 --bloom_bits 10 --rounds 1 \
         --warmup 0 --engines lsm-core,lsm-core:deferred_sync=false,rocksdb --disable_wal --noaa",
    ),
];

/// By time, not by bytes: a stall lasts for seconds there, and has to lie within the run to show in its
/// latencies. At 20 MiB/s each engine writes some 600 MB in that time.
const HANDOFF_SLOW: &[(&str, &str)] = &[
    (
        "8k-log",
        "fillrandom --value_size 8000 --num 150000 --duration 35 --threads 4 --bloom_bits 10 --rounds 1 --warmup 0 \
         --engines lsm-core,lsm-core:deferred_sync=false,rocksdb --noaa",
    ),
    (
        "8k-log-open",
        "fillrandom --value_size 8000 --num 150000 --duration 35 --threads 4 --bloom_bits 10 --rounds 1 --warmup 0 \
         --engines lsm-core,lsm-core:deferred_sync=false,rocksdb --noaa",
    ),
    (
        "8k-nolog",
        "fillrandom --value_size 8000 --num 150000 --duration 35 --threads 4 --bloom_bits 10 --rounds 1 --warmup 0 \
         --engines lsm-core,lsm-core:deferred_sync=false,rocksdb --disable_wal --noaa",
    ),
    (
        "8k-nolog-open",
        "fillrandom --value_size 8000 --num 150000 --duration 35 --threads 4 --bloom_bits 10 --rounds 1 --warmup 0 \
         --engines lsm-core,lsm-core:deferred_sync=false,rocksdb --disable_wal --noaa",
    ),
];

/// 16-byte keys and a filter of 10 bits everywhere. With 4 threads, each cell of 1 KB and 8 KB values
/// writes or holds 2 GB; of 100-byte values half a gigabyte, which keeps the slowest engine's part short.
const ISSUE2: &[(&str, &str)] = &[
    (
        "1k-fill",
        "fillrandom --value_size 1000 --num 2100000 --writes 525000 --threads 4 --bloom_bits 10 --rounds 5 --warmup 0",
    ),
    (
        "1k-overwrite",
        "overwrite --value_size 1000 --num 2100000 --writes 525000 --threads 4 --bloom_bits 10 --rounds 5 --warmup 0",
    ),
    (
        "1k-read",
        "readrandom,seekrandom --value_size 1000 --num 2100000 --reads 250000 --threads 4 --bloom_bits 10 --rounds 5 \
         --warmup 0",
    ),
    (
        "8k-fill",
        "fillrandom --value_size 8000 --num 262144 --writes 65536 --threads 4 --bloom_bits 10 --rounds 5 --warmup 0",
    ),
    (
        "8k-overwrite",
        "overwrite --value_size 8000 --num 262144 --writes 65536 --threads 4 --bloom_bits 10 --rounds 5 --warmup 0",
    ),
    (
        "8k-read",
        "readrandom,seekrandom --value_size 8000 --num 262144 --reads 100000 --threads 4 --bloom_bits 10 --rounds 5 \
         --warmup 0",
    ),
    (
        "1k-seq",
        "fillseq,readseq --value_size 1000 --num 525000 --threads 4 --bloom_bits 10 --rounds 3 --warmup 0",
    ),
    (
        "8k-seq",
        "fillseq,readseq --value_size 8000 --num 65536 --threads 4 --bloom_bits 10 --rounds 3 --warmup 0",
    ),
    (
        "1k-mixed",
        "readmissing,readwhilewriting --value_size 1000 --num 2100000 --reads 250000 --threads 4 --bloom_bits 10 \
         --rounds 3 --warmup 0",
    ),
    (
        "8k-mixed",
        "readmissing,readwhilewriting --value_size 8000 --num 262144 --reads 100000 --threads 4 --bloom_bits 10 \
         --rounds 3 --warmup 0",
    ),
    (
        "100-fill",
        "fillrandom --value_size 100 --num 4500000 --writes 1125000 --threads 4 --bloom_bits 10 --rounds 3 --warmup 0",
    ),
    (
        "100-overwrite",
        "overwrite --value_size 100 --num 4500000 --writes 1125000 --threads 4 --bloom_bits 10 --rounds 3 --warmup 0",
    ),
    (
        "100-read",
        "readrandom,readmissing,seekrandom,readwhilewriting --value_size 100 --num 4500000 --reads 500000 --threads 4 \
         --bloom_bits 10 --rounds 3 --warmup 0",
    ),
    (
        "100-seq",
        "fillseq,readseq --value_size 100 --num 1125000 --threads 4 --bloom_bits 10 --rounds 3 --warmup 0",
    ),
    (
        "1k-one-thread",
        "fillseq,readseq,fillrandom,overwrite,readrandom,readmissing,seekrandom,readwhilewriting --value_size 1000 \
         --num 1050000 --reads 500000 --threads 1 --bloom_bits 10 --rounds 1 --warmup 0",
    ),
    (
        "1k-256M",
        "readrandom --value_size 1000 --num 2100000 --reads 50000 --threads 4 --bloom_bits 10 --memory_limit 256M \
         --rounds 1 --warmup 0",
    ),
];

/// Names and one-line descriptions, for `--help`.
pub(crate) fn catalogue() -> impl Iterator<Item = (&'static str, &'static str)> {
    SUITES.iter().map(|suite| (suite.name, suite.what))
}

/// What is done of a suite.
#[derive(Serialize, Deserialize, PartialEq, Debug)]
struct State {
    suite: String,
    words: Vec<String>,
    done: Vec<String>,
}

/// Runs what is left of a suite and prints the tables of all of it.
///
/// # Errors
/// There is no such suite, its directory holds another's state, or a cell failed.
pub(crate) fn run(name: &str, words: &[String], config: &Config) -> Result<()> {
    let suite = find(name)?;
    let dir = config.out.clone().unwrap_or_else(|| PathBuf::from(format!("dialsm-bench-{name}")));
    std::fs::create_dir_all(&dir).with_context(|| format!("--out {}", dir.display()))?;
    let words: Vec<String> = without_suite_flags(words);
    let mut state = load_state(&dir, name, &words, config.restart)?;
    let chosen = chosen(suite, &config.only)?;
    for (at, (cell, line)) in chosen.iter().enumerate() {
        if state.done.iter().any(|done| done == cell) {
            eprintln!("{name}: {cell} is done already");
            continue;
        }
        eprintln!("{name}: {cell} ({}/{}): {line}", at + 1, chosen.len());
        let report = run_cell(suite, &dir, cell, line, &words).with_context(|| format!("cell {cell}"))?;
        let config = cell_config(line, &words)?;
        replace(&dir.join(format!("{cell}.json")), &serde_json::to_vec(&report)?)?;
        print!("== {cell}: {line}\n{}\n", report::table(&report, &config.engines));
        if let Some(plots) = &config.plot {
            plot::write_all(&report, &config.engines, &plots.join(cell))?;
        }
        state.done.push((*cell).to_owned());
        replace(&dir.join("state.json"), &serde_json::to_vec(&state)?)?;
    }
    let whole = whole_report(suite, &dir, &state.done)?;
    if let Some(path) = &config.json {
        replace(path, &serde_json::to_vec(&whole)?)?;
    }
    if let Some(pages) = &config.report {
        page::write(&whole, pages).with_context(|| format!("--report {}", pages.display()))?;
    }
    let mut tables = vec![markdown::writes(&whole), markdown::shards(&whole)];
    if suite.name == stall_model::NAME {
        let reports = state.done.iter().map(|cell| Ok((cell.as_str(), load_report(&dir, cell)?)));
        let table = stall_model::table(&reports.collect::<Result<Vec<_>>>()?)?;
        print!("{table}");
        tables.push(table);
    }
    replace(&dir.join("table.md"), tables.join("\n").as_bytes())?;
    print!("{}", summary(&whole));
    Ok(())
}

/// The cells with one of these parts in their names, or all.
///
/// # Errors
/// A part is in no name.
fn chosen(suite: &Suite, parts: &[String]) -> Result<Vec<(&'static str, &'static str)>> {
    let has = |cell: &str, part: &String| cell.contains(part.as_str());
    if let Some(part) = parts.iter().find(|part| !suite.cells.iter().any(|(cell, _)| has(cell, part))) {
        let cells: Vec<&str> = suite.cells.iter().map(|(cell, _)| *cell).collect();
        bail!(
            "--only: no cell of '{}' has '{part}' in its name (there are {})",
            suite.name,
            cells.join(", ")
        );
    }
    let is_chosen = |cell: &str| parts.is_empty() || parts.iter().any(|part| has(cell, part));
    Ok(suite.cells.iter().copied().filter(|(cell, _)| is_chosen(cell)).collect())
}

fn run_cell(suite: &Suite, dir: &Path, cell: &str, line: &str, words: &[String]) -> Result<Report> {
    let mut config = cell_config(line, words)?;
    if suite.name == stall_model::NAME && cell != stall_model::CALIBRATION {
        let calibration = load_report(dir, stall_model::CALIBRATION).context("run the calibration first")?;
        config.rate = Rate::PerSecond(stall_model::offered(&calibration, cell)?);
        return compare(&config);
    }
    let Some(closed) = cell.strip_suffix(OPEN) else { return compare(&config) };
    let report = load_report(dir, closed).with_context(|| format!("its rates are those of {closed}"))?;
    let rates = auto_rates(&report.runs);
    // Only the suite knows these rates; the flag alone would ask for a warm-up that finds them.
    config.rate = Rate::Auto;
    compare_at(&config, rates)
}

fn load_report(dir: &Path, cell: &str) -> Result<Report> {
    let path = dir.join(format!("{cell}.json"));
    let text = std::fs::read(&path).with_context(|| format!("{}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{}", path.display()))
}

fn find(name: &str) -> Result<&'static Suite> {
    let known = || SUITES.iter().map(|suite| suite.name).collect::<Vec<_>>().join(", ");
    SUITES
        .iter()
        .find(|suite| suite.name == name)
        .ok_or_else(|| anyhow!("no suite '{name}' (there are {})", known()))
}

/// Whether there is a suite of that name.
///
/// # Errors
/// There is none.
pub(crate) fn check(name: &str) -> Result<()> {
    find(name).map(|_| ())
}

/// The words that change what a cell measures; not those about the suite's own files.
fn without_suite_flags(words: &[String]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let name = word.trim_start_matches('-');
        let (name, has_value) = name.split_once('=').map_or((name, false), |(name, _)| (name, true));
        match name {
            "out" | "json" | "report" | "only" if !has_value => drop(words.next()),
            "out" | "json" | "report" | "only" | "restart" => {}
            _ => kept.push(word.clone()),
        }
    }
    kept
}

/// A cell's own words, then those of the command line, which win.
fn cell_config(line: &str, words: &[String]) -> Result<Config> {
    let all: Vec<String> = line.split_whitespace().map(str::to_owned).chain(words.iter().cloned()).collect();
    match flags::parse(&all)? {
        flags::Command::Run(config) => Ok(*config),
        _ => bail!("a suite's cells are runs of workloads"),
    }
}

fn load_state(dir: &Path, suite: &str, words: &[String], restart: bool) -> Result<State> {
    let fresh = State { suite: suite.to_owned(), words: words.to_vec(), done: Vec::new() };
    let path = dir.join("state.json");
    if restart || !path.exists() {
        return Ok(fresh);
    }
    let text = std::fs::read(&path).with_context(|| format!("{}", path.display()))?;
    let state: State =
        serde_json::from_slice(&text).with_context(|| format!("{} is damaged", path.display()))?;
    if (&state.suite, &state.words) != (&fresh.suite, &fresh.words) {
        let (name, words) = (&state.suite, state.words.join(" "));
        bail!("{} is of 'suite {name} {words}': take another --out, or --restart", dir.display());
    }
    Ok(state)
}

/// Puts a file in place whole or not at all.
fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let partial = path.with_extension("part");
    std::fs::write(&partial, bytes).with_context(|| format!("{}", partial.display()))?;
    std::fs::rename(&partial, path).with_context(|| format!("{}", path.display()))
}

/// All cells that are done as one report, the workloads named by cell.
fn whole_report(suite: &Suite, dir: &Path, done: &[String]) -> Result<Report> {
    let mut whole = Report::default();
    for (cell, _) in suite.cells.iter().filter(|(cell, _)| done.iter().any(|name| name == cell)) {
        let mut report = load_report(dir, cell)?;
        let name = |workload: &mut String| *workload = format!("{cell}/{workload}");
        report.runs.iter_mut().chain(&mut report.aa_runs).for_each(|run| name(&mut run.workload));
        report.ratios.iter_mut().for_each(|ratio| name(&mut ratio.workload));
        report.aa.iter_mut().for_each(|spread| name(&mut spread.workload));
        whole.runs.append(&mut report.runs);
        whole.aa_runs.append(&mut report.aa_runs);
        whole.ratios.append(&mut report.ratios);
        whole.aa.append(&mut report.aa);
        whole.generator_ops_per_sec = report.generator_ops_per_sec;
        whole.flags = report.flags;
        // The machine's are those of the last cell, the words those that asked for the whole.
        whole.environment = report.environment;
    }
    if !done.is_empty() {
        whole.command = std::env::args().collect();
    }
    Ok(whole)
}

/// One line a workload and pair of engines: the ratio of throughputs.
fn summary(whole: &Report) -> String {
    let mut text = String::from("Ratios of ops/s:\n");
    for ratio in whole.ratios.iter().filter(|ratio| ratio.metric == "ops_per_sec") {
        let is_it = |s: &&crate::result::Spread| s.workload == ratio.workload && s.metric == ratio.metric;
        let spread = whole.aa.iter().find(is_it).map_or(1.0, |spread| spread.spread);
        let verdict = match ratio.median {
            median if median > spread => "faster",
            median if median < 1.0 / spread => "slower",
            _ => "equal",
        };
        let pair = format!("{}/{}", ratio.a, ratio.b);
        text += &format!("  {:<32} {pair:<20} {:.3}  {verdict}\n", ratio.workload, ratio.median);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tempdir::TempDir;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn every_cell_can_be_run_and_the_command_line_wins() {
        for suite in SUITES {
            for (cell, line) in suite.cells {
                let config = cell_config(line, &words("--engines null --num 100")).unwrap();
                assert_eq!((config.num, config.engines.len()), (100, 1), "{cell}");
            }
            let mut names: Vec<_> = suite.cells.iter().map(|(cell, _)| cell).collect();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), suite.cells.len(), "cells of one name in {}", suite.name);
            for (at, (cell, line)) in suite.cells.iter().enumerate() {
                let Some(closed) = cell.strip_suffix(OPEN) else { continue };
                let earlier = suite.cells[..at].iter().find(|(name, _)| *name == closed);
                let (_, closed) = earlier.unwrap_or_else(|| panic!("{cell} has no closed loop before it"));
                let without_aa = |line: &str| line.replace(" --noaa", "");
                assert_eq!(
                    without_aa(line),
                    without_aa(closed),
                    "{cell} is another workload than its closed loop"
                );
            }
        }
        assert!(find("nothing").is_err());
    }

    #[test]
    fn the_suite_of_issue_2_has_all_its_workloads_in_all_sizes() {
        let wanted = [
            "fillseq",
            "fillrandom",
            "overwrite",
            "readrandom",
            "readmissing",
            "readseq",
            "seekrandom",
            "readwhilewriting",
        ];
        for value_size in [100, 1000, 8000] {
            let cells = ISSUE2.iter().map(|(_, line)| cell_config(line, &words("--engines null")).unwrap());
            let of_size = cells.filter(|config| config.value_size == value_size && config.threads == 4);
            let names: Vec<String> = of_size.flat_map(|config| config.benchmarks).collect();
            for workload in wanted {
                assert!(names.iter().any(|name| name == workload), "{workload} with {value_size} bytes");
            }
        }
    }

    #[test]
    fn the_suite_of_shards_has_both_settings_of_each_cell_at_equal_totals() {
        let config = |cell: &str| {
            let found = shards::CELLS.iter().find(|(name, _)| *name == cell);
            let line = found.unwrap_or_else(|| panic!("no cell {cell}")).1;
            cell_config(line, &words("--engines null")).unwrap()
        };
        let of_setting = |setting: &str| {
            let names = shards::CELLS.iter().filter_map(|(cell, _)| cell.strip_prefix(setting));
            names.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(of_setting("paper-"), of_setting("default-"));
        assert!(of_setting("paper-").len() >= 14 && of_setting("clues-").len() >= 2);
        for cell in of_setting("paper-") {
            let (paper, default) = (config(&format!("paper-{cell}")), config(&format!("default-{cell}")));
            assert_eq!(
                (&paper.benchmarks, paper.num, paper.value_size),
                (&default.benchmarks, default.num, default.value_size)
            );
            let own = &paper.engine;
            assert!(own.disable_wal && own.cache_size == 0 && !default.engine.disable_wal, "{cell}");
            assert_eq!(own.level0_slowdown_writes_trigger, own.level0_stop_writes_trigger, "{cell}");
            assert_eq!(default.engine.write_buffer_size, 64 << 20, "{cell}");
        }
        let scans = ["scan-128", "scan-1k", "scan-16k"].map(|cell| config(&format!("paper-{cell}")));
        assert_eq!(scans.each_ref().map(|scan| scan.seek_nexts + 1), [128, 1024, 16384]);
        assert!(scans.iter().all(|scan| scan.threads == 1));
        assert!(shards::CELLS.iter().all(|(_, line)| line.contains("dialsm")));
    }

    #[test]
    fn only_the_cells_that_are_named_in_part_are_run() {
        let suite = find("shards").unwrap();
        let names = |parts: &str| {
            let parts: Vec<String> = parts.split_whitespace().map(str::to_owned).collect();
            chosen(suite, &parts).map(|cells| cells.into_iter().map(|(cell, _)| cell).collect::<Vec<_>>())
        };
        assert_eq!(names("").unwrap().len(), suite.cells.len());
        assert_eq!(
            names("paper-scan default-ycsb").unwrap(),
            ["paper-scan-128", "paper-scan-1k", "paper-scan-16k", "default-ycsb"]
        );
        let error = names("ycsb nothing").unwrap_err().to_string();
        assert!(error.contains("'nothing'") && error.contains("clues-rollback"), "{error}");
    }

    #[test]
    fn an_open_cell_takes_its_rate_from_the_closed_one() {
        let dir = TempDir::new().unwrap();
        let run = crate::result::Run {
            engine: "null".into(),
            workload: "overwrite".into(),
            ops_per_sec: 20_000.0,
            ..crate::result::Run::default()
        };
        let report = Report { runs: vec![run], ..Report::default() };
        replace(&dir.path().join("x.json"), &serde_json::to_vec(&report).unwrap()).unwrap();
        let rates = auto_rates(&load_report(dir.path(), "x").unwrap().runs);
        assert_eq!(rates["overwrite"], 19_000.0);
        assert!(
            run_cell(&SUITES[0], dir.path(), "y-open", "overwrite --engines null", &[]).is_err(),
            "no cell y"
        );
    }

    #[test]
    fn a_state_is_resumed_only_under_the_same_words() {
        let dir = TempDir::new().unwrap();
        let load = |words_: &str, restart| load_state(dir.path(), "smoke", &words(words_), restart);
        let mut state = load("--rounds 2", false).unwrap();
        assert!(state.done.is_empty());
        state.done.push("write".into());
        replace(&dir.path().join("state.json"), &serde_json::to_vec(&state).unwrap()).unwrap();
        assert_eq!(load("--rounds 2", false).unwrap().done, ["write"]);
        assert!(load("--rounds 3", false).unwrap_err().to_string().contains("--restart"));
        assert!(load("--rounds 3", true).unwrap().done.is_empty());
        std::fs::write(dir.path().join("state.json"), b"{\"suite\":").unwrap();
        assert!(load("--rounds 2", false).unwrap_err().to_string().contains("damaged"));
    }

    #[test]
    fn words_about_the_suite_itself_do_not_reach_the_cells() {
        let kept = without_suite_flags(&words(
            "--out x --json=y --restart --only fill --rounds 2 --json z --report p",
        ));
        assert_eq!(kept, ["--rounds", "2"]);
    }
}
