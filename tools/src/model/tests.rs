use std::ffi::OsString;
use std::path::{Path, PathBuf};

use dialsm_core::{Db, Options, WriteOptions};
use dialsm_io::{Env, OsEnv, SimFs};
use serde_json::{Value, json};

use crate::cli;
use crate::commands::{Streams, run};
use crate::engine::Engine;
use crate::store::Opener;
use crate::store::memory::Memory;

/// What a command line prints, or its exit code and the text of its failure.
fn dialsm(opener: &dyn Opener, line: &[&str]) -> Result<String, (u8, String)> {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut streams = Streams {
        stdin: &mut &b""[..],
        stdout: &mut stdout,
        stderr: &mut stderr,
        stdout_is_terminal: false,
        stderr_is_terminal: false,
    };
    let invocation = cli::parse(line.iter().map(OsString::from));
    let outcome = invocation.and_then(|invocation| run(&invocation, opener, &mut streams));
    match outcome {
        Ok(()) => Ok(String::from_utf8(stdout).unwrap()),
        Err(failure) => Err((failure.exit_code(), failure.report(false).unwrap_or_default())),
    }
}

/// The worked example, and further words.
fn example(more: &str) -> Result<String, (u8, String)> {
    let line = "model --lambda 210 --mu-flush 200 --mu-l0 190 --mu-deep 165 --k 0.9 --memtable 64 --sst 64 \
                --l0-trigger 4 --l0-stall 36 --pending-limit 8192 --pending-drain 2048 --record-bytes 1000 \
                --service-us 2";
    let line: Vec<&str> = line.split_whitespace().chain(more.split_whitespace()).collect();
    dialsm(&Memory::default(), &line)
}

fn value(more: &str) -> Value {
    serde_json::from_str(&example(&format!("{more} --json")).unwrap()).unwrap()
}

fn assert_near(value: &Value, expected: f64) {
    let found = value.as_f64().unwrap();
    assert!((found / expected - 1.0).abs() < 5e-4, "{found} is not {expected}");
}

/// A file of this test's own; gone with the value.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, bytes: &[u8]) -> Scratch {
        let path = std::env::temp_dir().join(format!("dialsm-model-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        Scratch(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn the_worked_example_as_json_has_these_keys_and_digits() {
    let found = value("");
    let keys: Vec<&String> = found.as_object().unwrap().keys().collect();
    let mut wanted = ["alpha", "v_bar_s", "w_s", "eb", "classes", "shards", "alpha_all"];
    wanted.sort_unstable();
    assert_eq!(keys, wanted);
    assert_near(&found["alpha"], 0.12698);
    assert_near(&found["v_bar_s"], 0.8472);
    assert_near(&found["w_s"], 0.1855);
    assert_near(&found["eb"], 38952.0);
    assert_eq!((&found["shards"], &found["alpha_all"]), (&json!(1), &found["alpha"]));
    let classes = found["classes"].as_array().unwrap();
    let rows = [
        ("memtable", 0.15625, 0.32, 0.05),
        ("l0", 0.004883, 10.7789, 0.052632),
        ("pending", 0.00293, 12.4121, 0.036364),
    ];
    for (class, (name, rate, duration, x)) in classes.iter().zip(rows) {
        assert_eq!((class["class"].as_str(), class.as_object().unwrap().len()), (Some(name), 4));
        assert_near(&class["rate_per_s"], rate);
        assert_near(&class["duration_s"], duration);
        assert_near(&class["x"], x);
    }
}

#[test]
fn every_flag_reaches_the_model() {
    assert_near(&value("--shards 2")["eb"], 1816.0);
    assert_near(&value("--shards 8")["alpha_all"], 6.76e-8);
    assert_near(&value("--shards 8 --common-cause 1")["alpha_all"], 0.12698);
    assert_near(&value("--literal")["alpha"], 0.1117);
    assert_near(&value("--literal --shards 4")["eb"], 6.31);
    let faster = value("--subcompactions 4 --parallel-share 0.75");
    assert_eq!(faster["classes"][1]["x"], 0.0, "190 MB/s become 434");
}

#[test]
fn what_is_infinite_is_null() {
    let line = "model --lambda 10 --mu-flush 0 --mu-l0 inf --mu-deep inf --k 1 --memtable 64 --sst 64 --l0-trigger 4 \
                --l0-stall 36 --pending-limit 1 --pending-drain 1 --record-bytes 100 --service-us 0 --json";
    let line: Vec<&str> = line.split_whitespace().collect();
    let found: Value = serde_json::from_str(&dialsm(&Memory::default(), &line).unwrap()).unwrap();
    assert_eq!((&found["alpha"], &found["w_s"]), (&json!(1.0), &Value::Null));
    assert_eq!(found["classes"][0]["duration_s"], Value::Null);
}

#[test]
fn the_text_has_the_classes_the_shards_and_the_knobs() {
    let text = example("--shards 2 --parallel-share 0.75").unwrap();
    let line = |start: &str| {
        let found = text.lines().find(|line| line.starts_with(start));
        found.unwrap_or_else(|| panic!("no line '{start}' in\n{text}")).split_whitespace().collect::<Vec<_>>()
    };
    assert_eq!(line("memtable "), ["memtable", "0.156250", "0.3200", "0.050000", "0.04365"]);
    assert_eq!(line("all "), ["all", "0.8472", "0.12698"]);
    assert!(text.contains("bottleneck law: 0.12698 of the time; 183.3 MB/s are taken of 210.0"), "{text}");
    assert_eq!(line("2 ")[..4], ["2", "1.612e-2", "1.729e-2", "1.816e3"]);
    assert_eq!(line("as it is")[3..], ["0.0437", "0.0482", "0.0351", "0.1270", "0.8472"]);
    assert_eq!(line("deep rate x2")[3..6], ["0.0452", "0.0500", "0.0000"]);
}

#[test]
fn wrong_values_are_usage_errors_that_name_them() {
    for (more, named) in [
        ("--common-cause 2", "common cause"),
        ("--shards 0", "shards"),
        ("--shards 1.5", "--shards"),
        ("--subcompactions 0", "sub-compactions"),
        ("--parallel-share -1", "parallel"),
    ] {
        let (code, text) = example(more).unwrap_err();
        assert!(code == 2 && text.contains(named), "{more}: {code} {text}");
    }
    let lines =
        ["model --mu-flush 3 --mu-l0 4", "model --lambda x", "model --lambda 1 --lambda 2", "model here"];
    for (line, named) in lines.into_iter().zip(["--lambda", "--lambda", "twice", "usage"]) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (code, text) = dialsm(&Memory::default(), &words).unwrap_err();
        assert!(code == 2 && text.contains(named), "{line}: {code} {text}");
    }
}

/// A run as `dialsm-bench` records it: 10 s, 1 GB offered, 80 % of it taken.
fn report() -> Value {
    let stall = |count, seconds| json!({"count": count, "seconds": seconds});
    let mut counters = json!({
        "flushes": 16, "flush_input_bytes": 800e6, "flush_bytes": 800e6, "flush_ns": 10e9, "trees": 1,
    });
    for level in 0..7 {
        for name in ["drained_bytes", "survived_bytes", "drain_ns"] {
            counters[format!("l{level}_{name}")] = json!(0);
        }
    }
    counters["l0_drained_bytes"] = json!(800e6);
    counters["l0_survived_bytes"] = json!(400e6);
    counters["l0_drain_ns"] = json!(5e9);
    let run = json!({
        "engine": "lsm-core", "workload": "fillrandom", "seconds": 10.0, "writes": 800_000,
        "user_bytes_written": 800e6, "entry_bytes": 1000, "rate": 100_000.0, "counters": counters,
        "stall": {"by_cause": {"memtable": stall(18, 1.8), "l0": stall(0, 0.0), "pending": stall(0, 0.0)}},
        "options": "write_buffer_bytes = 67108864 level0_compaction_trigger = 3 level0_stop_trigger = 13",
    });
    json!({"runs": [{"engine": "rocksdb", "workload": "fillrandom"}, run]})
}

#[test]
fn a_report_of_the_benchmark_gives_rates_limits_and_what_was_measured() {
    let file = Scratch::new("report.json", report().to_string().as_bytes());
    let line = ["model", "--recording", file.path(), "--run", "lsm-core/fill", "--json"];
    let found: Value = serde_json::from_str(&dialsm(&Memory::default(), &line).unwrap()).unwrap();
    assert_near(&found["alpha"], 0.2);
    assert_near(&found["classes"][0]["x"], 0.25);
    assert_near(&found["classes"][0]["duration_s"], 50.0 / 80.0);
    let measured = &found["measured"];
    assert_near(&measured["alpha"], 0.18);
    assert_near(&measured["classes"][0]["predicted_share"], 0.2);
    assert_near(&measured["classes"][0]["predicted_duration_s"], 50.0 / 80.0 - 50.0 / 100.0);
    assert_near(&measured["classes"][0]["duration_s"], 0.1);
    assert_near(&measured["mean_absolute_error"], 0.02 / 3.0);
    // A flag beats the recording.
    let line = [&line[..], &["--mu-flush", "50"]].concat();
    let found: Value = serde_json::from_str(&dialsm(&Memory::default(), &line).unwrap()).unwrap();
    assert_near(&found["alpha"], 0.5);
    let text = dialsm(&Memory::default(), &["model", "--recording", file.path(), "--run", "core"]).unwrap();
    assert!(text.contains("mean absolute error of the three shares: 0.0067"), "{text}");
}

#[test]
fn recordings_that_are_none_say_why() {
    let fail = |words: &[&str]| dialsm(&Memory::default(), &[&["model"], words].concat()).unwrap_err();
    let file = Scratch::new("bad.json", report().to_string().as_bytes());
    let (code, text) = fail(&["--recording", file.path()]);
    assert!(code == 2 && text.contains("'seconds'"), "of another engine: {text}");
    let (_, text) = fail(&["--recording", file.path(), "--run", "nothing"]);
    assert!(text.contains("lsm-core/fillrandom"), "{text}");
    let (_, text) = fail(&["--recording", file.path(), "--recording", file.path()]);
    assert!(text.contains("clock_ns"), "{text}");
    let broken = Scratch::new("broken.json", b"{\"runs\":");
    let (code, text) = fail(&["--recording", broken.path()]);
    assert!(code == 2 && text.contains("no recording") && text.contains("broken.json"), "{text}");
    assert_eq!(fail(&["--recording", "no/such/file"]).0, 3);
    assert_eq!(fail(&["--db", "no/such/database"]).0, 3);
}

/// Statistics of an open database, twice, and its options, read while it is open.
#[test]
fn a_live_database_is_measured() {
    let env = OsEnv::with_fs(SimFs::new(1));
    let options = Options { write_buffer_bytes: 64 << 10, level0_stop_trigger: 20, ..Options::default() };
    let db = Db::open(env.clone(), Path::new("/db"), options).unwrap();
    let mut key = 0u64;
    let mut fill = || {
        for _ in 0..2000 {
            key += 1;
            db.put(&WriteOptions::default(), &(key * 7919 % 4096).to_be_bytes(), &[7; 92]).unwrap();
        }
        db.flush().unwrap();
        db.stats_json()
    };
    let earlier = Scratch::new("earlier.json", fill().as_bytes());
    let later = Scratch::new("later.json", fill().as_bytes());
    let opener = Engine::new(env as std::sync::Arc<dyn Env>);
    let line = ["model", "--db", "/db", "--recording", earlier.path(), "--recording", later.path(), "--json"];
    let found: Value = serde_json::from_str(&dialsm(&opener, &line).unwrap()).unwrap();
    assert!(found["alpha"].as_f64().is_some() && found["measured"]["alpha"].as_f64().is_some(), "{found}");
    let text = dialsm(&opener, &line[..7]).unwrap();
    assert!(text.contains("MB/s: arrival") && text.contains("measured"), "{text}");
    let (code, error) = dialsm(
        &opener,
        &["model", "--db", "/db", "--recording", later.path(), "--recording", earlier.path()],
    )
    .unwrap_err();
    assert!(code == 2 && error.contains("nothing was written"), "{error}");
    let (_, error) = dialsm(&opener, &["model", "--db", "/db"]).unwrap_err();
    assert!(error.contains("--mu-l0"), "the options say limits only: {error}");
    db.close().unwrap();
}

#[test]
fn the_drawing_has_its_panels_curves_and_measured_places() {
    let (report, drawing) =
        (Scratch::new("drawn.json", report().to_string().as_bytes()), Scratch::new("curves.svg", b""));
    let line = ["model", "--recording", report.path(), "--run", "lsm-core", "--svg", drawing.path()];
    dialsm(&Memory::default(), &line).unwrap();
    let svg = std::fs::read_to_string(&drawing.0).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert_eq!(svg.matches("font-size=\"15\"").count(), 3, "a title a panel");
    assert!(svg.matches("<polyline").count() >= 8 && svg.matches("<circle").count() == 6, "{svg}");
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    let (code, _) = example("--svg no/such/directory/x.svg").unwrap_err();
    assert_eq!(code, 3);
}
