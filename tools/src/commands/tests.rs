use std::ffi::OsString;

use super::*;
use crate::cli;
use crate::store::memory::{Map, Memory};
use crate::text::Random;

/// What a run left behind.
struct Ran {
    code: u8,
    stdout: Vec<u8>,
    stderr: String,
}

impl Ran {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("text output")
    }
}

/// Runs a command line as `main` does, on a map.
fn run_on(memory: &Memory, line: &[&str], stdin: &[u8]) -> Ran {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut input = stdin;
    let mut streams = Streams {
        stdin: &mut input,
        stdout: &mut stdout,
        stderr: &mut stderr,
        stdout_is_terminal: false,
        stderr_is_terminal: false,
    };
    let outcome = cli::parse(line.iter().map(OsString::from))
        .and_then(|invocation| run(&invocation, memory, &mut streams));
    let mut code = 0;
    if let Err(failure) = outcome {
        code = failure.exit_code();
        if let Some(report) = failure.report(cli::wants_json(line)) {
            stderr.extend_from_slice(report.as_bytes());
        }
    }
    Ran { code, stdout, stderr: String::from_utf8(stderr).expect("errors are text") }
}

fn random_map(seed: u64, entries: usize) -> Map {
    let mut random = Random(seed);
    let mut map = Map::new();
    while map.len() < entries {
        map.insert(random.bytes(12), random.bytes(40));
    }
    map
}

fn filled(map: &Map) -> Memory {
    let memory = Memory::default();
    memory.0.exists.set(true);
    *memory.0.map.borrow_mut() = map.clone();
    memory
}

#[test]
fn a_dump_loads_again_identically_in_every_format() {
    let map = random_map(11, 2000);
    let source = filled(&map);
    for format in ["tsv", "json", "hex"] {
        let dump = run_on(&source, &["dump", "d", "--format", format], b"");
        assert_eq!((dump.code, dump.stderr.as_str()), (0, ""));
        let copy = Memory::default();
        let load = run_on(&copy, &["load", "e", "--format", format, "--batch", "64", "--json"], &dump.stdout);
        assert_eq!(load.code, 0, "{}", load.stderr);
        assert!(load.text().starts_with("{\"entries\":2000,"), "{}", load.text());
        assert!(*copy.0.map.borrow() == map, "{format}");
        assert_eq!((copy.0.writes.get(), copy.0.flushes.get(), copy.0.closes.get()), (32, 1, 1));
        let again = run_on(&copy, &["dump", "e", "--format", format], b"");
        assert!(again.stdout == dump.stdout, "{format}");
    }
}

#[test]
fn convert_is_a_dump_of_what_load_would_load() {
    let map = random_map(12, 500);
    let source = filled(&map);
    let dump = |format: &str| run_on(&source, &["dump", "d", "--format", format], b"").stdout;
    for from in ["tsv", "json", "hex"] {
        for to in ["tsv", "json", "hex"] {
            let line = ["convert", "--input", from, "--format", to];
            let converted = run_on(&source, &line, &dump(from));
            assert_eq!((converted.code, converted.stderr.as_str()), (0, ""));
            assert!(converted.stdout == dump(to), "{from} to {to}");
        }
    }
    let cut = run_on(&source, &["convert"], b"a\tb");
    assert_eq!(cut.text(), "a\tb\n");
    assert!(cut.stderr.contains("no end"), "{}", cut.stderr);
}

#[test]
fn put_get_delete_take_any_bytes() {
    let memory = Memory::default();
    let missing = run_on(&memory, &["put", "d", "k", "v"], b"");
    assert_eq!(missing.code, 3, "no database is created by mistake: {}", missing.stderr);
    assert!(missing.stderr.starts_with("dialsm: NotFound: no database [d]"), "{}", missing.stderr);
    assert_eq!(run_on(&memory, &["put", "d", "k", "--create"], b"v\n\0\xff").code, 0);
    let get = run_on(&memory, &["get", "d", "k"], b"");
    assert_eq!((get.code, &get.stdout[..]), (0, &b"v\n\0\xff"[..]), "raw, without an end of line");
    let get = run_on(&memory, &["get", "d", "0x6B", "--encoding", "hex"], b"");
    assert_eq!(get.text(), "0x760A00FF\n");
    let get = run_on(&memory, &["get", "d", "k", "--json"], b"");
    assert_eq!(get.text(), "{\"key\":\"k\",\"value_base64\":\"dgoA/w==\"}\n");
    let put =
        run_on(&memory, &["put", "d", "\\x00\\xFF", "", "--encoding", "escaped", "--sync", "--json"], b"");
    assert_eq!((put.code, put.text()), (0, "{\"ok\":true}\n"));
    assert_eq!(memory.0.map.borrow().get(&b"\0\xff"[..]).map(Vec::len), Some(0));
    assert_eq!(memory.0.synced_writes.get(), 1);
    assert_eq!(run_on(&memory, &["delete", "d", "k"], b"").code, 0);
    let absent = run_on(&memory, &["get", "d", "k"], b"");
    assert_eq!((absent.code, absent.stderr.as_str(), absent.text()), (1, "", ""));
    assert_eq!(memory.0.closes.get(), 7, "each opening that succeeded was closed");
}

#[test]
fn scans_agree_with_the_map() {
    let map: Map = (0..100u8).map(|n| (format!("k{n:02}").into(), vec![n])).collect();
    let memory = filled(&map);
    let keys = |line: &[&str]| -> Vec<String> {
        let ran = run_on(&memory, line, b"");
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{line:?}");
        ran.text().lines().map(|line| line.split('\t').next().expect("a key").to_string()).collect()
    };
    assert_eq!(keys(&["scan", "d"]).len(), 100);
    assert_eq!(keys(&["scan", "d", "--from", "k10", "--to", "k12"]), ["k10", "k11"]);
    assert_eq!(keys(&["scan", "d", "--from", "k97", "--reverse"]), ["k99", "k98", "k97"]);
    assert_eq!(keys(&["scan", "d", "--prefix", "k4", "--limit", "2", "--reverse"]), ["k49", "k48"]);
    assert!(keys(&["scan", "d", "--limit", "0"]).is_empty());
    assert!(keys(&["scan", "d", "--from", "b", "--to", "a"]).is_empty());
}

#[test]
fn a_bad_line_stops_the_load_and_says_how_far_it_came() {
    let memory = Memory::default();
    let ran = run_on(&memory, &["load", "d", "--batch", "2"], b"a\t1\nb\t2\nc\t3\nsecret\nd\t4\n");
    assert_eq!(ran.code, 2);
    assert_eq!(
        ran.stderr,
        "dialsm: InvalidArgument: standard input:4: no tab between key and value; 3 entries were loaded"
    );
    assert_eq!(memory.0.map.borrow().len(), 3);
    assert_eq!((memory.0.flushes.get(), memory.0.closes.get()), (0, 1));

    let memory = Memory::default();
    memory.0.fail_write.set(Some(2));
    let ran = run_on(&memory, &["load", "d", "--batch", "2", "--json"], b"a\t1\nb\t2\nc\t3\nd\t4\ne\t5\n");
    assert_eq!((ran.code, ran.text()), (23, ""));
    assert!(
        ran.stderr.contains("\"code\":23") && ran.stderr.contains("2 entries were loaded"),
        "{}",
        ran.stderr
    );
    assert_eq!(memory.0.map.borrow().len(), 2, "nothing is written after a failed batch");
}

#[test]
fn load_warns_of_a_cut_off_end_and_names_missing_files() {
    let memory = Memory::default();
    let ran = run_on(&memory, &["load", "d", "-"], b"a\t1\nb\t2");
    assert_eq!((ran.code, ran.text()), (0, "2 entries, 4 bytes\n"));
    assert!(ran.stderr.contains("the last line has no end"), "{}", ran.stderr);
    let ran = run_on(&memory, &["load", "d", "no/such/file"], b"");
    assert_eq!(ran.code, 3);
    assert!(ran.stderr.contains("[no/such/file]"), "{}", ran.stderr);
}

#[test]
fn stats_compact_and_verify_report() {
    let memory = filled(&random_map(13, 10));
    assert_eq!(run_on(&memory, &["stats", "d"], b"").text(), "writes 1\n");
    assert_eq!(run_on(&memory, &["stats", "d", "--json"], b"").text(), "{\"writes\":1}\n");
    assert_eq!(run_on(&memory, &["stats", "d", "--prometheus"], b"").text(), "dialsm_writes_total 1\n");
    assert_eq!(run_on(&memory, &["stats", "d", "--prometheus", "--json"], b"").code, 2);
    assert_eq!(run_on(&memory, &["stats", "d", "--property", "known"], b"").text(), "7\n");
    assert_eq!(run_on(&memory, &["stats", "d", "--property", "unknown"], b"").code, 1);
    assert_eq!(run_on(&memory, &["compact", "d", "--from", "b"], b"").code, 0);
    let expected = crate::store::Range { lower: Some(b"b".into()), upper: None, reverse: false };
    assert_eq!(*memory.0.compacted.borrow(), [expected]);
    let ran = run_on(&memory, &["verify", "d", "--json"], b"");
    assert_eq!((ran.code, ran.text()), (0, "{\"tables\":1,\"entries\":10,\"bytes\":2}\n"));
    let damage = Error::corruption("a block fails its checksum").at_path("7.sst".as_ref()).at_offset(64);
    *memory.0.damage.borrow_mut() = Some(damage);
    let ran = run_on(&memory, &["verify", "d"], b"");
    assert_eq!((ran.code, ran.text()), (60, ""));
    assert!(ran.stderr.ends_with("fails its checksum [7.sst at offset 64]"), "{}", ran.stderr);
}

#[test]
fn options_reach_the_engine_or_are_refused() {
    let memory = filled(&Map::new());
    assert_eq!(run_on(&memory, &["verify", "d", "--set", "block_bytes=8K"], b"").code, 0);
    assert_eq!(memory.0.options.borrow().as_ref().map(|options| options.block_bytes), Some(8192));
    let ran = run_on(&memory, &["verify", "d", "--set", "nope=1"], b"");
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("\"nope\": no such option"), "{}", ran.stderr);
    let ran = run_on(&memory, &["verify", "d", "--set", "level0_stop_trigger=1"], b"");
    assert!(ran.stderr.contains("level0_stop_trigger is below"), "{}", ran.stderr);
    let ran = run_on(&memory, &["verify", "d", "--options", "no/such/file"], b"");
    assert_eq!(ran.code, 3);
}

#[test]
fn help_and_version_need_no_database() {
    let memory = Memory::default();
    assert!(run_on(&memory, &["--help"], b"").text().contains("Exit codes:"));
    assert!(run_on(&memory, &["--version"], b"").text().starts_with("dialsm "));
    let ran = run_on(&memory, &["frob"], b"");
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("Try `dialsm --help`"), "{}", ran.stderr);
}
