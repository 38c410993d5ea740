//! What a bulk scan costs against an iterator, over shards, with threads that read ahead and without.
//!
//! ```text
//! scan_bench DIR fill SHARDS KEYS VALUE_BYTES                 makes a database, settled
//! scan_bench DIR iter|scan ROUNDS ENTRIES THREADS [KEYS]      ROUNDS scans of ENTRIES from random keys
//! ```
//! For figures of a cold page cache empty it between two runs. `CACHE` in the environment gives the bytes of the
//! block cache, `READAHEAD` those that a cursor reads ahead.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a program around the engine: it has its own clock, threads and arguments"
)]

use std::time::Instant;

use dialsm::router::HashRouter;
use dialsm_core::{Db, Options, ReadOptions, ScanBatch, ScanOptions, WriteOptions};
use dialsm_io::OsEnv;

fn key(n: u64) -> Vec<u8> {
    format!("{n:016}").into_bytes()
}

fn env(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Processor time of the calling thread, and of all threads, in nanoseconds: a busy machine tells more by these
/// than by the time that passed.
fn processor_ns() -> (u64, u64) {
    let read = |path: &std::path::Path| {
        let text = std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        text.split_whitespace().next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0)
    };
    let tasks = std::fs::read_dir("/proc/self/task").expect("a list of threads");
    let all = tasks.flatten().map(|task| read(&task.path())).sum();
    (read(std::path::Path::new("/proc/thread-self")), all)
}

fn fill(db: &Db, keys: u64, value_bytes: usize) {
    let noise: Vec<u8> = (0..value_bytes as u64 + (1 << 20))
        .map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8)
        .collect();
    // In an order that is no order.
    for i in 0..keys {
        let n = (i * 7_919_933) % keys;
        let at = (n as usize * 7) % (1 << 20);
        db.put(&WriteOptions::default(), &key(n), &noise[at..at + value_bytes]).expect("put");
    }
    db.flush().expect("flush");
    db.wait_until_idle().expect("idle");
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |i: usize| args.get(i).and_then(|a| a.parse::<u64>().ok()).expect("a number");
    let (dir, what) = (std::path::Path::new(&args[1]), &args[2][..]);
    let mut options = Options { router: Some(HashRouter::object()), ..Options::default() };
    options.block_cache_bytes = env("CACHE").unwrap_or(options.block_cache_bytes);
    if what == "fill" {
        options.shards = number(3) as usize;
        let db = Db::open(OsEnv::new(), dir, options).expect("open");
        return fill(&db, number(4), number(5) as usize);
    }
    options.scan_threads = number(5) as usize;
    let db = Db::open(OsEnv::new(), dir, options).expect("open");
    let (rounds, entries) = (number(3), number(4));
    let keys = args.get(6).map_or(1, |_| number(6));
    let read = ReadOptions { readahead_bytes: env("READAHEAD").unwrap_or(0), ..ReadOptions::default() };
    let (mut seen, mut bytes, mut x) = (0u64, 0u64, 0x1234_5678_9abc_def1_u64);
    let mut batch = ScanBatch::new();
    let (started, before) = (Instant::now(), processor_ns());
    for _ in 0..rounds {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        let from = key(x % keys);
        if what == "iter" {
            let mut iter = db.iter(&read).expect("iter");
            iter.seek(&from).expect("seek");
            let mut left = entries;
            while iter.valid() && left > 0 {
                bytes += (iter.key().len() + iter.value().len()) as u64;
                (seen, left) = (seen + 1, left - 1);
                iter.next().expect("next");
            }
        } else {
            let options = ScanOptions { start: Some(from), entries_max: entries, ..ScanOptions::default() };
            let mut scan = db.scan(&read, &options).expect("scan");
            while scan.fill(&mut batch).expect("a batch") {
                seen += batch.len() as u64;
                bytes += batch.bytes() as u64;
            }
        }
    }
    let (ns, after) = (started.elapsed().as_nanos() as f64, processor_ns());
    let each = |ns: f64| ns / seen as f64;
    println!(
        "{what} x {entries}, {} threads: {:.0} ns an entry, {:.2} us a scan, {:.0} MB/s; processor ns an entry: {:.0} here, {:.0} in all",
        args[5],
        each(ns),
        ns / 1e3 / rounds as f64,
        bytes as f64 * 1e3 / ns,
        each((after.0 - before.0) as f64),
        each((after.1 - before.1) as f64),
    );
}
