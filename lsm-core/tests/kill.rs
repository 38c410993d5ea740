//! A child process writes with several threads and is killed at a random moment; what it had
//! acknowledged over a pipe must be there, synced or not, and it goes on with the same database.
//!
//! The child is this test binary again, told by an environment variable to be one.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dialsm_core::options::Compression;
use dialsm_core::{Db, Options, ReadOptions, WriteBatch, WriteOptions};
use dialsm_io::{OsEnv, SplitMix64};

const CHILD: &str = "DIALSM_TEST_KILL_DIR";
const THREADS: u64 = 3;
/// Each thread writes its keys in turn.
const SLOTS: u64 = 60;

fn options() -> Options {
    Options {
        write_buffer_bytes: 64 << 10,
        table_bytes: 64 << 10,
        level0_compaction_trigger: 2,
        level_base_bytes: 128 << 10,
        level_multiplier: 3.0,
        log_segment_bytes: 64 << 10,
        compression: Compression::None,
        ..Options::default()
    }
}

fn open(dir: &Path) -> Db {
    Db::open(OsEnv::new(), dir, options()).expect("open")
}

fn counter_key(thread: u64) -> Vec<u8> {
    format!("count/{thread}").into_bytes()
}

fn slot_key(thread: u64, slot: u64) -> Vec<u8> {
    format!("slot/{thread}/{slot:03}").into_bytes()
}

/// What write `n` of a thread puts into its slot; every seventh removes it instead.
fn value_of(thread: u64, n: u64) -> Option<Vec<u8>> {
    let mut rng = SplitMix64::new(thread << 32 | n);
    let len = rng.below(2000);
    (!n.is_multiple_of(7))
        .then(|| [n.to_le_bytes().to_vec(), vec![rng.next_u64() as u8; len as usize]].concat())
}

/// Which slot write `n` of a thread goes to.
fn slot_of(n: u64) -> u64 {
    n * 37 % SLOTS
}

fn count_of(db: &Db, thread: u64) -> u64 {
    let value = db.get(&ReadOptions::default(), &counter_key(thread)).expect("get");
    value.map_or(0, |bytes| u64::from_le_bytes(bytes.as_ref().try_into().expect("eight bytes")))
}

/// The child: writes until it is killed.
fn write_for_ever(dir: &Path) {
    let db = open(dir);
    // Ends what the test harness has begun to print.
    std::io::stdout().write_all(b"\n").expect("the parent reads");
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let db = db.clone();
            std::thread::spawn(move || write_as(&db, thread))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("a writer ended"));
}

fn write_as(db: &Db, thread: u64) {
    for n in count_of(db, thread) + 1.. {
        let mut batch = WriteBatch::new();
        batch.put(&counter_key(thread), &n.to_le_bytes()).expect("put");
        match value_of(thread, n) {
            Some(value) => batch.put(&slot_key(thread, slot_of(n)), &value).expect("put"),
            None => batch.delete(&slot_key(thread, slot_of(n))).expect("delete"),
        }
        let sync = n % 50 == 0;
        db.write(&WriteOptions { sync, ..WriteOptions::default() }, batch).expect("write");
        if n % 400 == 0 {
            db.flush().expect("flush");
        }
        // One write call for the whole line, so that a kill cannot leave two mixed.
        let line = format!("ack {thread} {n}\n");
        std::io::stdout().write_all(line.as_bytes()).expect("the parent reads");
    }
}

/// Not a test of its own: what the child runs.
#[test]
fn child() {
    if let Some(dir) = std::env::var_os(CHILD) {
        write_for_ever(Path::new(&dir));
    }
}

/// Kills and reaps the child even when an assertion fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_child(dir: &Path) -> Killed {
    let program = std::env::current_exe().expect("the test binary");
    let mut command = Command::new(program);
    command.args(["child", "--exact", "--nocapture", "--test-threads=1"]).env(CHILD, dir);
    Killed(command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().expect("spawn"))
}

/// Lets a child write for a while and kills it; adds to `acked` the last acknowledged write of each
/// thread, and returns how many acknowledgements there were.
fn write_and_kill(dir: &Path, after_acks: u64, then: Duration, acked: &mut BTreeMap<u64, u64>) -> u64 {
    let mut child = start_child(dir);
    let pipe = child.0.stdout.take().expect("piped");
    let (told, heard) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut acks = Vec::new();
        let mut lines = BufReader::new(pipe);
        let mut line = String::new();
        while lines.read_line(&mut line).expect("read the pipe") > 0 {
            let mut words = line.split(' ');
            // A line cut short by the kill is no acknowledgement.
            if line.ends_with('\n') && words.next() == Some("ack") {
                let mut number =
                    || words.next().expect("two numbers").trim().parse::<u64>().expect("a number");
                let (thread, n) = (number(), number());
                acks.push((thread, n));
                if acks.len() as u64 == after_acks {
                    let _ = told.send(());
                }
            }
            line.clear();
        }
        acks
    });
    heard.recv().expect("the child writes until it is killed");
    std::thread::sleep(then);
    drop(child);
    let acks = reader.join().expect("the reader");
    for (thread, n) in &acks {
        // The child counts on from what it finds: were an acknowledged write lost, it would come
        // again.
        let before = acked.insert(*thread, *n).unwrap_or(0);
        assert!(*n > before, "thread {thread}: {before} was acknowledged, and {n} after it");
    }
    acks.len() as u64
}

/// Checks that all that was acknowledged is there, and each thread's state whole.
fn check(db: &Db, acked: &BTreeMap<u64, u64>) {
    for thread in 0..THREADS {
        let count = count_of(db, thread);
        let promised = acked.get(&thread).copied().unwrap_or(0);
        assert!(count >= promised, "thread {thread}: {promised} was acknowledged, {count} is left");
        assert!(count <= promised + 1, "thread {thread}: {count} is there, {promised} was acknowledged");
        // The last write of each slot.
        let slots: BTreeMap<u64, u64> = (1..=count).map(|n| (slot_of(n), n)).collect();
        for slot in 0..SLOTS {
            let found = db.get(&ReadOptions::default(), &slot_key(thread, slot)).expect("get");
            let expected = slots.get(&slot).and_then(|n| value_of(thread, *n));
            assert!(found.as_deref() == expected.as_deref(), "thread {thread}: slot {slot} is wrong");
        }
    }
    db.verify(&mut |_, _| {}).expect("verify");
}

fn kill_so_often(kills: u64, seed: u64) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut rng = SplitMix64::new(seed);
    let (mut acks, mut acked) = (0, BTreeMap::new());
    let (mut flushes_left, mut logs_replayed) = (0, 0);
    for kill in 0..kills {
        let after_acks = 1 + rng.below(300);
        let then = Duration::from_micros(rng.below(30_000));
        acks += write_and_kill(dir.path(), after_acks, then, &mut acked);
        // Only every other time: a child must also recover what a killed child left.
        if kill % 2 == 1 || kill + 1 == kills {
            let db = open(dir.path());
            check(&db, &acked);
            // What is there now counts, also the write whose acknowledgement the kill cut off.
            acked.extend((0..THREADS).map(|thread| (thread, count_of(&db, thread))));
            let number = |name: &str| db.property(name).expect("known").parse::<u64>().expect("a number");
            flushes_left += u64::from(number("dialsm.live-table-bytes") > 0);
            logs_replayed += u64::from(number("dialsm.num-entries-active-memtable") > 0);
            if rng.chance(1, 2) {
                db.close().expect("close");
            }
        }
    }
    println!(
        "{kills} kills, {acks} acknowledged writes, {flushes_left} with tables, {logs_replayed} with a log"
    );
    assert!(acks > kills * 50, "{acks}");
    assert!(flushes_left > kills / 4 && logs_replayed > kills / 4, "{flushes_left} {logs_replayed}");
}

#[test]
fn acknowledged_writes_survive_kills() {
    kill_so_often(30, 1);
}

#[test]
#[ignore = "minutes: many kills"]
fn acknowledged_writes_survive_many_kills() {
    kill_so_often(1000, 2);
}
