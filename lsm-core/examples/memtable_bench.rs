//! Memtable micro-benchmark: nanoseconds per operation at 500,000 entries of 16-byte keys and
//! 100-byte values (processor time of a thread, since machines are shared), beside a skiplist and a locked `BTreeMap` for orientation.
//!
//! `cargo run --release -p dialsm-core --example memtable_bench [entries]`

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a program around the engine: it has its own clock, threads and arguments"
)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crossbeam_skiplist::SkipMap;
use dialsm_core::key::{Comparator, Kind, internal_key};
use dialsm_core::memtable::Memtable;
use dialsm_core::read::internal::InternalIter;
use dialsm_core::types::SEQNO_MAX;

type Key = [u8; 16];

/// The memtable's figures are the best of this many rounds: other work on the machine only adds.
const ROUNDS: usize = 5;

/// Whole scans in a round: the processor's clock ticks in milliseconds.
const SCANS: u64 = 5;

fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A shape of keys: name and the key of number `i`.
type Shape = (&'static str, fn(u64) -> Key);

fn random(i: u64) -> Key {
    let mut key = [b'0'; 16];
    key[..8].copy_from_slice(&mix(i + 1).to_be_bytes());
    key
}

fn sequential(i: u64) -> Key {
    let mut key = [b'0'; 16];
    key[..8].copy_from_slice(&i.to_be_bytes());
    key
}

fn shared_head(i: u64) -> Key {
    let mut key = *b"tenant42xxxxxxxx";
    key[8..].copy_from_slice(&mix(i + 1).to_be_bytes());
    key
}

fn decimal(i: u64) -> Key {
    let text = format!("user{:012}", mix(i + 1) % 1_000_000_000_000);
    text.as_bytes().try_into().expect("16 bytes")
}

/// Nanoseconds of processor time that this thread has had, where the system tells.
fn processor_ns() -> Option<u64> {
    std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse().ok()
}

/// Nanoseconds of processor time that `work` takes, on this thread; else of wall time.
fn measure(work: impl FnOnce()) -> u64 {
    let (wall, processor) = (Instant::now(), processor_ns());
    work();
    match (processor, processor_ns()) {
        (Some(before), Some(after)) => after - before,
        _ => wall.elapsed().as_nanos() as u64,
    }
}

/// Runs `work(i)` for all numbers, dealt to `threads`; nanoseconds per operation of a thread.
fn timed(count: u64, threads: u64, work: impl Fn(u64) + Sync) -> f64 {
    let total: u64 = std::thread::scope(|scope| {
        let spawn = |thread| {
            let work = &work;
            let numbers = (thread..count).step_by(threads as usize);
            scope.spawn(move || measure(|| numbers.for_each(work)))
        };
        let workers: Vec<_> = (0..threads).map(spawn).collect();
        workers.into_iter().map(|worker| worker.join().expect("no panics")).sum()
    });
    total as f64 / count as f64
}

fn scan_all(table: &Arc<Memtable>) {
    let mut iter = table.iter();
    let mut sum = 0;
    iter.seek_to_first().expect("memory does not fail");
    while iter.valid() {
        sum += iter.key().len() + usize::from(iter.value()[99]);
        iter.next().expect("memory does not fail");
    }
    black_box(sum);
}

/// Insert, get, scan: nanoseconds per operation; and bytes per entry.
fn memtable_round(keys: &[Key], threads: u64) -> [f64; 4] {
    let value = [7u8; 100];
    let count = keys.len() as u64;
    let table = Arc::new(Memtable::new(Comparator::Bytewise));
    let insert =
        timed(count, threads, |i| table.insert(&keys[i as usize], i + 1, Kind::Put, black_box(&value)));
    let get = timed(count, threads, |i| {
        let at = mix(i) % count;
        assert!(table.get(&keys[at as usize], SEQNO_MAX).is_some());
    });
    let scan = measure(|| (0..SCANS).for_each(|_| scan_all(&table))) as f64 / (count * SCANS) as f64;
    let bytes = table.bytes_used() as f64 / count as f64;
    [insert, get, scan, bytes]
}

fn memtable(keys: &[Key], threads: u64) {
    let mut best = memtable_round(keys, threads);
    for _ in 1..ROUNDS {
        let round = memtable_round(keys, threads);
        (0..best.len()).for_each(|i| best[i] = best[i].min(round[i]));
    }
    let [insert, get, scan, bytes] = best;
    println!(
        "  memtable  {threads} threads: insert {insert:6.0}  get {get:6.0}  scan {scan:5.1}  ({bytes:.0} B/entry)"
    );
}

fn skiplist(keys: &[Key], threads: u64) {
    let count = keys.len() as u64;
    let map: SkipMap<Vec<u8>, Vec<u8>> = SkipMap::new();
    let insert = timed(count, threads, |i| {
        map.insert(internal_key(&keys[i as usize], i + 1, Kind::Put as u8), vec![7; 100]);
    });
    let get = timed(count, threads, |i| {
        let at = mix(i) % count;
        let target = internal_key(&keys[at as usize], at + 1, Kind::Put as u8);
        assert!(map.get(&target).is_some());
    });
    println!("  skiplist  {threads} threads: insert {insert:6.0}  get {get:6.0}");
}

fn btree(keys: &[Key], threads: u64) {
    let count = keys.len() as u64;
    let map: Mutex<BTreeMap<Vec<u8>, Vec<u8>>> = Mutex::default();
    let insert = timed(count, threads, |i| {
        let key = internal_key(&keys[i as usize], i + 1, Kind::Put as u8);
        map.lock().expect("no panics").insert(key, vec![7; 100]);
    });
    let get = timed(count, threads, |i| {
        let at = mix(i) % count;
        let target = internal_key(&keys[at as usize], at + 1, Kind::Put as u8);
        assert!(map.lock().expect("no panics").contains_key(&target));
    });
    println!("  BTreeMap  {threads} threads: insert {insert:6.0}  get {get:6.0}");
}

fn main() {
    let count: u64 = std::env::args().nth(1).map_or(500_000, |n| n.parse().expect("a number of entries"));
    let shapes: [Shape; 4] = [
        ("random", random),
        ("sequential", sequential),
        ("8 shared bytes", shared_head),
        ("user<digits>", decimal),
    ];
    for (name, key_of) in shapes {
        println!("{name}, {count} entries, ns/op of one thread");
        let keys: Vec<Key> = (0..count).map(key_of).collect();
        for threads in [1, 2] {
            memtable(&keys, threads);
        }
        if name == "random" {
            for threads in [1, 2] {
                skiplist(&keys, threads);
                btree(&keys, threads);
            }
        }
    }
}
