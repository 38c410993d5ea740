//! The program as a user runs it: words in, table, JSON, drawings and exit codes out.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("dialsm-bench-test-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Scratch(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn bench(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dialsm-bench")).args(words).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(path: &str) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn assert_done(output: &Output) {
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
}

/// The engines that can be run on this machine.
fn engines(scratch: &Scratch) -> &'static str {
    let db = scratch.file("probe");
    let probe = bench(&["fillseq", "--engines", "rocksdb", "--num", "10", "--warmup", "0", "--db", &db]);
    if probe.status.success() {
        return "rocksdb,null";
    }
    println!("skipped: rocksdb: {}", text(&probe.stderr));
    "null"
}

/// Checks that a value has the fields of the schema, with a number or null where `n` stands.
fn assert_numbers(value: &Value, fields: &[&str]) {
    for field in fields {
        let found = value.get(field).unwrap_or_else(|| panic!("no {field} in {value}"));
        assert!(found.is_number() || found.is_null(), "{field} is {found}");
    }
}

#[test]
fn the_json_file_has_the_schema_that_was_agreed() {
    let scratch = Scratch::new("schema");
    let engines = engines(&scratch);
    let (file, db) = (scratch.file("out.json"), scratch.file("db"));
    let output = bench(&[
        "fillrandom,readrandom,seekrandom,readseq,ycsba",
        "--engines",
        engines,
        "--num",
        "3000",
        "--threads",
        "2",
        "--rounds",
        "2",
        "--json",
        &file,
        "--db",
        &db,
    ]);
    assert_done(&output);
    let report = json(&file);
    let runs = report["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 5 * 2 * engines.split(',').count(), "the warm-up is not in it");
    for run in runs {
        assert!(run["engine"].is_string() && run["workload"].is_string());
        assert_numbers(
            run,
            &["round", "ops", "seconds", "ops_per_sec", "redirected", "write_amp", "space_amp"],
        );
        assert_numbers(run, &["peak_rss_bytes", "cpu_seconds"]);
        assert_numbers(
            &run["stall"],
            &["count", "seconds", "gap_seconds", "longest_gap_ms", "starved_seconds"],
        );
        assert!(run["stall"]["by_cause"].is_object());
        for (kind, latency) in run["latency_us"].as_object().unwrap() {
            assert!(["read", "write", "seek", "scan"].contains(&kind.as_str()));
            assert_numbers(latency, &["p50", "p99", "p999", "p9999", "max"]);
            assert!(latency["p50"].as_f64() <= latency["max"].as_f64());
        }
        let timeline = run["timeline"].as_array().unwrap();
        assert!(!timeline.is_empty());
        timeline.iter().for_each(|point| assert_numbers(point, &["t_ms", "ops", "stalled_ms"]));
        let counted: u64 = timeline.iter().map(|point| point["ops"].as_u64().unwrap()).sum();
        assert_eq!(counted, run["ops"].as_u64().unwrap());
    }
    let ratios = report["ratios"].as_array().unwrap();
    for ratio in ratios {
        assert!(["workload", "a", "b", "metric"].iter().all(|field| ratio[field].is_string()));
        assert!(ratio["median"].is_number());
    }
    if engines.contains(',') {
        let metrics: Vec<&str> = ratios.iter().map(|ratio| ratio["metric"].as_str().unwrap()).collect();
        for metric in ["ops_per_sec", "latency_us.write.p99", "latency_us.read.p9999", "peak_rss_bytes"] {
            assert!(metrics.contains(&metric), "{metric}");
        }
        let of_rocksdb =
            |name: &str| runs.iter().find(|run| run["engine"] == "rocksdb" && run["workload"] == name);
        let fill = of_rocksdb("fillrandom").unwrap();
        assert!(fill["write_amp"].as_f64().unwrap() > 0.5 && fill["space_amp"].as_f64().unwrap() > 0.5);
        assert!(fill["stall"]["count"].is_u64() && fill["stall"]["seconds"].is_f64(), "{}", fill["stall"]);
        assert!(of_rocksdb("readrandom").unwrap()["reads_found"].as_u64().unwrap() > 3_000);
    }
    let table = text(&output.stdout);
    assert!(
        table.contains("fillrandom: 6000 ops, 2 threads") && table.contains("Options in effect:"),
        "{table}"
    );
    assert_eq!(std::fs::read_dir(Path::new(&db)).unwrap().count(), 0, "the databases are gone");
}

#[test]
fn a_database_is_kept_and_used_again() {
    let scratch = Scratch::new("keep");
    if engines(&scratch) == "null" {
        return;
    }
    let (db, file) = (scratch.file("db"), scratch.file("out.json"));
    let common = ["--engines", "rocksdb", "--num", "2000", "--warmup", "0", "--db", &db];
    assert_done(&bench(&[&["filluniquerandom", "--keep_db"], &common[..]].concat()));
    assert_done(&bench(&[&["readrandom", "--use_existing_db", "--json", &file], &common[..]].concat()));
    assert_eq!(json(&file)["runs"][0]["reads_found"], 2000);
    assert!(json(&file)["runs"][0]["space_amp"].is_null(), "what it holds is not known");
    let elsewhere = scratch.file("elsewhere");
    let missing =
        bench(&["readrandom", "--use_existing_db", "--engines", "null", "--db", &elsewhere, "--num", "10"]);
    assert_eq!(missing.status.code(), Some(1));
}

#[test]
fn the_open_loop_finds_a_rate_and_drawings_are_made() {
    let scratch = Scratch::new("rate");
    let (file, plots, pages) = (scratch.file("out.json"), scratch.file("plots"), scratch.file("pages"));
    let output = bench(&[
        "overwrite",
        "--engines",
        "null",
        "--num",
        "20000",
        "--rate",
        "auto",
        "--arrival",
        "poisson",
        "--json",
        &file,
        "--plot",
        &plots,
        "--report",
        &pages,
    ]);
    assert_done(&output);
    assert!(json(&file)["runs"][0]["rate"].as_f64().unwrap() > 1_000.0);
    for name in ["throughput-overwrite.svg", "latency-overwrite.svg", "comparison.svg"] {
        let svg = std::fs::read_to_string(Path::new(&plots).join(name)).unwrap();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{name}");
    }
    assert!(page(&pages).contains("overwrite on null"));
    let missing = scratch.file("missing.json");
    assert_eq!(bench(&["report", &pages, &missing]).status.code(), Some(1));
    std::fs::write(&missing, "{\"runs\":1}").unwrap();
    let no_report = bench(&["report", &pages, &missing]);
    assert!(text(&no_report.stderr).contains("missing.json is no report"), "{}", text(&no_report.stderr));
}

/// The page in a directory, which is well formed and has a number at every coordinate.
fn page(dir: &str) -> String {
    let page = std::fs::read_to_string(Path::new(dir).join("report.html")).unwrap();
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..roxmltree::ParsingOptions::default() };
    let document = roxmltree::Document::parse_with_options(&page, options).unwrap();
    let coordinates = document.descendants().flat_map(|node| ["x", "y"].map(|name| node.attribute(name)));
    for coordinate in coordinates.flatten() {
        assert!(coordinate.parse::<f64>().unwrap().is_finite());
    }
    page
}

#[test]
fn a_page_tells_what_was_looked_at_and_is_made_again_from_the_file() {
    let scratch = Scratch::new("page");
    let (file, pages, again) = (scratch.file("out.json"), scratch.file("pages"), scratch.file("again"));
    let db = scratch.file("db");
    let words = "fillrandom --engines dialsm:shards=3,lsm-core,null --num 30000 --value_size 500 --threads 2 --warmup 0 \
                 --write_buffer_size 1M --sample_ms 5";
    let words: Vec<&str> = words.split_whitespace().collect();
    assert_done(&bench(&[&words[..], &["--db", &db, "--json", &file, "--report", &pages]].concat()));
    let report = json(&file);
    let of = |engine: &str| {
        let runs = report["runs"].as_array().unwrap();
        runs.iter().find(|run| run["engine"] == engine).unwrap().clone()
    };
    for (engine, shards) in [("dialsm:shards=3", 3), ("lsm-core", 1)] {
        let run = of(engine);
        assert_eq!(run["shard_limits"].as_array().unwrap().len(), shards, "{engine}");
        let samples = run["samples"].as_array().unwrap();
        let looks = samples.iter().filter(|sample| sample["shards"].is_array());
        assert!(looks.count() >= 2, "{engine}");
        let of_memtables = |sample: &Value| sample["shards"][0]["memtable_bytes"].as_u64();
        let most = samples.iter().filter_map(of_memtables).max().unwrap();
        let limit = run["shard_limits"][0]["memtable_bytes"].as_u64().unwrap();
        assert!(most > limit / 10 && most < 2 * limit, "{engine}: {most} of {limit}");
        assert!(run["sampling_seconds"].as_f64().unwrap() > 0.0);
    }
    assert!(of("null").get("shard_limits").is_none());
    let first = page(&pages);
    for told in
        ["shard 2", "dialsm:shards=3", "30000 --value_size", "null: when and why writers wait", "processors"]
    {
        let plain = first.replace("</span> <span>", " ");
        assert!(plain.contains(told), "{told}");
    }
    assert_done(&bench(&["report", &again, &file]));
    assert!(page(&again).contains("File out"));
    assert_done(&bench(&["report", &again, &file, &file]));
    assert!(page(&again).contains("lsm-core (out)"));
}

#[test]
fn a_suite_resumes_where_it_stopped() {
    let scratch = Scratch::new("suite");
    let (out, file) = (scratch.file("out"), scratch.file("all.json"));
    let words = [
        "suite",
        "smoke",
        "--engines",
        "null",
        "--num",
        "500",
        "--warmup",
        "0",
        "--out",
        &out,
        "--json",
        &file,
    ];
    assert_done(&bench(&words));
    let all = json(&file);
    let names: Vec<&str> =
        all["runs"].as_array().unwrap().iter().map(|run| run["workload"].as_str().unwrap()).collect();
    assert!(names.contains(&"write/fillseq") && names.contains(&"ycsb/ycsbf"), "{names:?}");
    assert!(!Path::new(&out).join("table.md.part").exists());
    let part = scratch.file("part");
    let only = bench(&[&words[..8], &["--out", &part, "--only", "mix,write"]].concat());
    assert_done(&only);
    assert!(Path::new(&part).join("mixed.json").exists() && !Path::new(&part).join("ycsb.json").exists());
    assert!(std::fs::read_to_string(Path::new(&part).join("table.md")).unwrap().contains("mixed/"));
    // As if it had been stopped before its last cell.
    let state_file = Path::new(&out).join("state.json");
    let state = std::fs::read_to_string(&state_file).unwrap();
    std::fs::write(&state_file, state.replace(",\"ycsb\"", "")).unwrap();
    let again = bench(&words);
    assert_done(&again);
    let said = text(&again.stderr);
    assert_eq!(said.matches("is done already").count(), 3, "{said}");
    let other =
        bench(&["suite", "smoke", "--engines", "null", "--num", "600", "--warmup", "0", "--out", &out]);
    assert_eq!(other.status.code(), Some(1));
    assert!(text(&other.stderr).contains("--restart"));
}

#[test]
fn wrong_words_end_with_two_and_failed_runs_with_one() {
    for words in [
        &["fillseq", "--no_such_flag"][..],
        &["fillsequence"],
        &["fillseq", "--engines", "leveldb"],
        &["suite", "nothing"],
        &[],
    ] {
        let output = bench(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(text(&output.stderr).starts_with("dialsm-bench: ") && output.stdout.is_empty());
    }
    let no_library = bench(&["fillseq", "--engines", "rocksdb", "--rocksdb_lib", "/nowhere/librocksdb.so"]);
    assert_eq!(no_library.status.code(), Some(1));
    assert!(text(&no_library.stderr).contains("/nowhere/librocksdb.so"));
    let help = bench(&["--help"]);
    assert_done(&help);
    assert!(text(&help.stdout).contains("--level0_stop_writes_trigger"));
}
