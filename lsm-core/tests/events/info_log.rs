//! The file LOG: what stands in it, how it is put away, and that nothing depends on it.

use std::path::Path;
use std::sync::Arc;

use dialsm_core::options::InfoLogLevel;
use dialsm_core::{Db, Options};
use dialsm_io::{Access, Env, Fault, Fs, OpKind, Rule, SimEnv};

use crate::common::{DIR, contents, tiny, unsynced};
use crate::{Bench, flushes, property};

fn logged() -> Options {
    Options { info_log_level: InfoLogLevel::Info, ..tiny() }
}

fn text(fs: &dyn Fs, name: &str) -> String {
    let file = fs.open(&Path::new(DIR).join(name), Access::Read).expect(name);
    let mut bytes = vec![0; file.len().expect("length") as usize];
    let got = file.read_at(&mut bytes, 0).expect("read");
    assert_eq!(got, bytes.len());
    String::from_utf8(bytes).expect("text")
}

/// Names of LOG and of older ones, in the order of their names.
fn logs(fs: &dyn Fs) -> Vec<String> {
    let names = fs.list(Path::new(DIR)).expect("list");
    names.into_iter().filter(|name| name.starts_with("LOG")).collect()
}

fn has(text: &str, parts: &[&str]) -> bool {
    text.lines().any(|line| parts.iter().all(|part| line.contains(part)))
}

#[test]
fn each_event_is_a_line_behind_a_header() {
    let bench = Bench::new(1);
    let fs = bench.env.fs().clone();
    bench.env.run(|| {
        let db = bench.open(&Options { stats_dump_period_sec: 60, ..logged() });
        db.put(&unsynced(), b"secret key", b"secret value").expect("put");
        flushes(&db, 2);
        bench.env.sleep(61_000_000_000);
        db.close().expect("close");
    });
    let text = text(fs.as_ref(), "LOG");
    for line in text.lines() {
        // 2020-01-01T00:00:00.000000Z INFO  name key=value ...
        assert!(line.starts_with("2020-01-01T00:0") && line.as_bytes()[26] == b'Z', "{line}");
        assert!(["INFO ", "WARN ", "ERROR"].contains(&&line[28..33]), "{line}");
    }
    assert!(text.lines().next().is_some_and(|line| line.contains(" database version=")), "{text}");
    assert!(has(&text, &["option keyspace=default name=write_buffer_bytes value=64K usual=64M"]), "{text}");
    assert!(!text.contains("name=block_restart_interval"), "an option at its default");
    assert!(has(&text, &["INFO  opened", "last_seqno=0", "tables=0"]), "{text}");
    assert!(
        has(&text, &["INFO  flush_end", "keyspace=default shard=0 outputs=[L0:0", "duration_us="]),
        "{text}"
    );
    assert!(has(&text, &["INFO  hand_off", "files=", "delay_us="]), "{text}");
    assert!(has(&text, &["INFO  stats", "flushes"]), "{text}");
    assert!(text.lines().last().is_some_and(|line| line.contains("INFO  closed last_seqno=")), "{text}");
    assert!(!text.contains("secret"), "keys and values are nobody's business");
    assert!(!text.contains("table_created"), "that is for debugging");
}

#[test]
fn each_opening_begins_a_new_one_and_the_oldest_go() {
    let bench = Bench::new(2);
    let fs = bench.env.fs().clone();
    bench.env.run(|| {
        let options = Options { keep_log_file_num: 3, ..logged() };
        for round in 0..5u8 {
            let db = bench.open(&options);
            db.put(&unsynced(), &[round], b"value").expect("put");
            // The clock of the simulation stands still unless somebody waits: names ascend all the same.
            db.close().expect("close");
        }
        let names = logs(fs.as_ref());
        assert_eq!(names.len(), 3, "{names:?}");
        assert!(has(&text(fs.as_ref(), "LOG"), &["opened", "last_seqno=4"]));
        assert!(has(&text(fs.as_ref(), &names[1]), &["opened", "last_seqno=2"]), "{names:?}");
        assert!(has(&text(fs.as_ref(), &names[2]), &["opened", "last_seqno=3"]), "{names:?}");
        // Off, it stays as it is.
        bench.open(&tiny()).close().expect("close");
        assert_eq!(logs(fs.as_ref()), names);
        let db = bench.open(&logged());
        let copy = Path::new("/copy");
        db.checkpoint(copy).expect("checkpoint");
        assert!(fs.list(copy).expect("list").iter().all(|name| !name.starts_with("LOG")));
        assert!(db.verify(&mut |_, _| {}).is_ok());
        db.close().expect("close");
        Db::destroy(&*bench.env, Path::new(DIR)).expect("destroy");
        assert!(!fs.exists(Path::new(DIR)).expect("look"), "nothing is left");
    });
}

#[test]
fn a_full_file_is_put_away() {
    let bench = Bench::new(3);
    let fs = bench.env.fs().clone();
    bench.env.run(|| {
        let options = Options { max_log_file_size: 4 << 10, keep_log_file_num: 4, ..logged() };
        let db = bench.open(&options);
        for _ in 0..40 {
            flushes(&db, 1);
            bench.env.sleep(1_000_000);
        }
        db.close().expect("close");
        let names = logs(fs.as_ref());
        assert_eq!(names.len(), 4, "{names:?}");
        for name in &names {
            let text = text(fs.as_ref(), name);
            assert!(text.lines().next().is_some_and(|line| line.contains(" database version=")), "{name}");
            assert!(text.len() < 16 << 10, "{name} has {} bytes", text.len());
        }
    });
}

/// Every call on the file fails, or the disk is full: the database does not notice.
#[test]
fn an_unwritable_log_is_left_out() {
    for (op, errno) in [(OpKind::Create, 13), (OpKind::Write, 28), (OpKind::Write, 5), (OpKind::Rename, 13)] {
        let bench = Bench::new(4);
        let fs = bench.env.fs().clone();
        bench.env.run(|| {
            bench.open(&logged()).close().expect("close");
            bench.faults.add(Rule::every(op, Fault::Errno(errno)).on("/LOG"));
            let db = bench.open(&logged());
            flushes(&db, 3);
            db.wait_until_idle().expect("idle");
            assert!(property(&db, "dialsm.info-log-failures") > 0, "{op:?}");
            assert_eq!(db.property("dialsm.background-error").as_deref(), Some(""));
            bench.faults.clear();
            bench.env.sleep(2_000_000_000);
            flushes(&db, 1);
            let found = contents(&db).expect("read");
            db.close().expect("close");
            let text = text(fs.as_ref(), "LOG");
            assert!(has(&text, &["flush_end"]) && has(&text, &["closed"]), "{op:?}: it goes on: {text}");
            assert!(has(&text, &["WARN  lines_lost count="]), "{op:?}: {text}");
            let db = bench.open(&logged());
            assert!(contents(&db).expect("read") == found);
        });
    }
}

/// The file takes for ever: the database goes on.
#[test]
fn a_slow_log_holds_up_nobody() {
    let bench = Bench::new(5);
    bench.env.run(|| {
        let hour = 3_600_000_000_000;
        bench.faults.add(Rule::every(OpKind::Write, Fault::Delay(hour)).on("/LOG"));
        let db = bench.open(&Options { stats_dump_period_sec: 0, ..logged() });
        flushes(&db, 5);
        db.wait_until_idle().expect("idle");
        assert!(bench.env.now() < hour);
    });
}

#[test]
fn a_database_opened_for_reading_writes_none() {
    let bench = Bench::new(6);
    let fs = bench.env.fs().clone();
    bench.env.run(|| {
        let db = bench.open(&tiny());
        db.put(&unsynced(), b"key", b"value").expect("put");
        db.close().expect("close");
        let env: Arc<dyn Env> = bench.env.clone();
        let db = Db::open_read_only(env, Path::new(DIR), logged()).expect("open");
        assert_eq!(contents(&db).expect("read").len(), 1);
        db.close().expect("close");
        assert!(logs(fs.as_ref()).is_empty());
    });
}

/// Names and options of other keyspaces stand in the header, too.
#[test]
fn keyspaces_are_named() {
    let env = SimEnv::new(8);
    let fs = env.fs().clone();
    env.run(|| {
        let mut own = logged().keyspace();
        own.table_bytes = 128 << 10;
        let seen: Arc<dyn Env> = env.clone();
        let db = Db::open_with(seen, Path::new(DIR), logged(), &[("two words", own)]).expect("open");
        db.close().expect("close");
    });
    let text = text(fs.as_ref(), "LOG");
    assert!(has(&text, &["keyspace name=\"two words\""]), "{text}");
    assert!(has(&text, &["keyspace=\"two words\" name=table_bytes value=128K usual=64K"]), "{text}");
}

/// A header that is longer than a file may be is written all the same, once, and is not begun anew within itself.
#[test]
fn a_long_header_stays_in_one_piece() {
    let env = SimEnv::new(9);
    let fs = env.fs().clone();
    env.run(|| {
        let mut own = logged().keyspace();
        (own.table_bytes, own.block_bytes) = (128 << 10, 8 << 10);
        let names: Vec<String> = (0..1500).map(|n| format!("keyspace number {n:060}")).collect();
        let named: Vec<_> = names.iter().map(|name| (name.as_str(), own.clone())).collect();
        let options = Options { max_log_file_size: 1, ..logged() };
        let seen: Arc<dyn Env> = env.clone();
        let db = Db::open_with(seen, Path::new(DIR), options, &named).expect("open");
        db.close().expect("close");
    });
    assert_eq!(logs(fs.as_ref()).len(), 1);
    let text = text(fs.as_ref(), "LOG");
    assert!(text.len() > 256 << 10, "{} bytes", text.len());
    assert_eq!(text.matches("INFO  keyspace name=").count(), 1500);
    assert!(has(&text, &["opened"]));
}
