//! The commands on real databases, in a file system in memory.

use std::collections::BTreeMap;
use std::ffi::OsString;

use dialsm_io::{OsEnv, SimFs};

use super::*;
use crate::cli;
use crate::commands::{Streams, run};
use crate::text::Random;

fn engine() -> Engine {
    Engine::new(OsEnv::with_fs(SimFs::new(1)))
}

/// Runs a command line; what it printed, or its exit code.
fn dialsm(engine: &Engine, line: &[&str], stdin: &[u8]) -> std::result::Result<Vec<u8>, u8> {
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
        .and_then(|invocation| run(&invocation, engine, &mut streams));
    match outcome {
        Ok(()) => Ok(stdout),
        Err(failure) => {
            eprintln!("{line:?}: {failure:?}");
            Err(failure.exit_code())
        }
    }
}

fn text(output: std::result::Result<Vec<u8>, u8>) -> String {
    String::from_utf8(output.expect("the command succeeds")).expect("text")
}

#[test]
fn a_database_goes_through_dump_and_load_unchanged() {
    let mut random = Random(5);
    let mut map = BTreeMap::new();
    for _ in 0..3000 {
        map.insert(random.bytes(12), random.bytes(60));
    }
    let mut dump = Vec::new();
    for (key, value) in &map {
        crate::text::Format::Hex.write_entry(&mut dump, key, value, &mut Vec::new()).expect("a vector");
    }
    let engine = engine();
    let summary = text(dialsm(&engine, &["load", "/a", "--format", "hex", "--json"], &dump));
    assert!(summary.starts_with(&format!("{{\"entries\":{},", map.len())), "{summary}");
    for format in ["tsv", "json", "hex"] {
        let first = dialsm(&engine, &["dump", "/a", "--format", format], b"").expect("a dump");
        let to = format!("/{format}");
        // Small tables and blocks, so that more than one of each is walked over.
        let load =
            ["load", &to, "--format", format, "--set", "write_buffer_bytes=64K", "--set", "block_bytes=256"];
        dialsm(&engine, &load, &first).expect("a load");
        dialsm(&engine, &["compact", &to], b"").expect("a compaction");
        let second = dialsm(&engine, &["dump", &to, "--format", format], b"").expect("a dump");
        assert!(first == second, "{format}");
    }
    assert!(dialsm(&engine, &["dump", "/hex", "--format", "hex"], b"").expect("a dump") == dump);
    let verified = text(dialsm(&engine, &["verify", "/hex", "--json"], b""));
    assert!(verified.contains(&format!("\"entries\":{},", map.len())), "{verified}");
}

#[test]
fn single_commands_work_on_the_engine() {
    let engine = engine();
    assert_eq!(dialsm(&engine, &["get", "/db", "k"], b""), Err(3), "nothing creates it by mistake");
    dialsm(&engine, &["put", "/db", "k", "--create", "--sync"], b"v\0\n").expect("a put");
    assert_eq!(dialsm(&engine, &["get", "/db", "k"], b""), Ok(b"v\0\n".to_vec()));
    for n in 0..20 {
        dialsm(&engine, &["put", "/db", &format!("n{n:02}"), "x"], b"").expect("a put");
    }
    assert_eq!(
        text(dialsm(&engine, &["scan", "/db", "--prefix", "n", "--limit", "2"], b"")),
        "n00\tx\nn01\tx\n"
    );
    let backward = ["scan", "/db", "--to", "n02", "--reverse"];
    assert_eq!(text(dialsm(&engine, &backward, b"")), "n01\tx\nn00\tx\nk\tv\\0\\n\n");
    dialsm(&engine, &["delete", "/db", "k"], b"").expect("a delete");
    assert_eq!(dialsm(&engine, &["get", "/db", "k"], b""), Err(1));
    let stats = text(dialsm(&engine, &["stats", "/db", "--json"], b""));
    let stats: serde_json::Value = serde_json::from_str(&stats).expect("the engine's JSON is JSON");
    assert!(stats["metrics"]["gets"].is_u64(), "{stats}");
    assert_eq!(stats["metrics"]["trees"][0]["keyspace"], "default", "{stats}");
    let files = || {
        let mut names = engine.fs().list("/db".as_ref()).expect("a directory");
        names.sort();
        names
    };
    let before = files();
    let prometheus = text(dialsm(&engine, &["stats", "/db", "--prometheus"], b""));
    assert!(prometheus.contains("\ndialsm_tree_memtable_entries{keyspace=\"default\""), "{prometheus}");
    assert_eq!(files(), before, "it changes nothing");
    assert_eq!(dialsm(&engine, &["stats", "/db", "--property", "no.such"], b""), Err(1));
    assert_eq!(dialsm(&engine, &["put", "/db", "k", "v", "--set", "block_bytes=1"], b""), Err(2));
    let options = Options { router: Some(HashRouter::object()), ..Options::default() };
    let _held = Db::open(engine.env.clone(), "/db".as_ref(), options).expect("nobody has it open");
    assert_eq!(dialsm(&engine, &["get", "/db", "k"], b""), Err(22), "busy");
}

#[test]
fn files_of_a_real_database_can_be_dumped() {
    let engine = engine();
    dialsm(&engine, &["load", "/db", "--set", "shards=1"], b"a\t1\nb\t2\nc\t3\n").expect("a load");
    dialsm(&engine, &["put", "/db", "d", "4"], b"").expect("a put");
    let manifest = text(dialsm(&engine, &["dump-manifest", "/db"], b""));
    assert!(manifest.contains("table_added ") && manifest.contains("entries=3 "), "{manifest}");
    let (mut entries, mut ops) = (0, 0);
    for name in engine.fs().list("/db".as_ref()).expect("a directory") {
        let path = format!("/db/{name}");
        if name.ends_with(".sst") {
            let dump = text(dialsm(&engine, &["dump-table", &path], b""));
            entries += dump.lines().filter(|line| line.starts_with("entry ")).count();
        }
        if name.ends_with(".log") {
            let dump = text(dialsm(&engine, &["dump-log", &path], b""));
            ops += dump.lines().filter(|line| line.ends_with(" key=d value=4")).count();
        }
    }
    assert_eq!((entries, ops), (3, 1));
}

#[test]
fn a_database_with_shards_in_directories_of_their_own_opens_as_it_is() {
    let env = OsEnv::with_fs(SimFs::new(1));
    let options = Options {
        shards: 2,
        router: Some(HashRouter::object()),
        shard_dirs: vec!["/disk1/a".into(), "/disk2/b".into()],
        ..Options::default()
    };
    let db = Db::open(env.clone(), Path::new("/a"), options).expect("open");
    for n in 0..100u32 {
        db.put(&WriteOptions::default(), &n.to_be_bytes(), b"value").expect("put");
    }
    db.flush().expect("flush");
    db.close().expect("close");
    drop(db);
    assert!(env.fs().list(Path::new("/disk2/b")).expect("list").iter().any(|name| name.ends_with(".sst")));
    let engine = Engine::new(env);
    dialsm(&engine, &["verify", "/a"], b"").expect("verify");
    let dump = text(dialsm(&engine, &["dump", "/a", "--format", "hex"], b""));
    assert_eq!(dump.lines().count(), 100);
}
