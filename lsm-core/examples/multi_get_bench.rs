//! What several look-ups at once cost against the same ones one by one, and seeks.
//!
//! ```text
//! multi_get_bench DIR fill N VALUE_BYTES                      makes a database of N keys
//! multi_get_bench DIR get|multi|seek ROUNDS KEYS CACHE_BYTES  ROUNDS times KEYS random keys
//! ```
//! For figures of a cold page cache empty it between two runs. `BATCH=false` in the environment turns
//! batched reads off, `WARM=1` reads everything once before; `TOTAL` says how many keys there are.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a program around the engine: it has its own clock, threads and arguments"
)]

use std::time::Instant;

use dialsm_core::{Db, Options, ReadOptions, WriteOptions};
use dialsm_io::OsEnv;

fn key(n: u64) -> [u8; 16] {
    let mut key = [b'0'; 16];
    key[..8].copy_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key
}

fn fill(db: &Db, n: u64, value_bytes: usize) {
    let noise: Vec<u8> = (0..value_bytes as u64 + (1 << 20)).map(|i| (key(i)[3]) ^ key(i * 7)[1]).collect();
    for i in 0..n {
        let at = (key(i)[2] as usize) << 10;
        db.put(&WriteOptions::default(), &key(i), &noise[at..at + value_bytes]).expect("put");
    }
    db.flush().expect("flush");
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |i: usize| args.get(i).and_then(|a| a.parse::<u64>().ok()).expect("a number");
    let (dir, what) = (std::path::Path::new(&args[1]), &args[2][..]);
    let mut options = Options::default();
    if what != "fill" {
        options.block_cache_bytes = number(5);
    }
    if let Ok(batch) = std::env::var("BATCH") {
        options.set("batch_reads", &batch).expect("true or false");
    }
    let db = Db::open(OsEnv::new(), dir, options).expect("open");
    if what == "fill" {
        return fill(&db, number(3), number(4) as usize);
    }
    let read = ReadOptions::default();
    // As many as `fill` was told.
    let total: u64 = std::env::var("TOTAL").ok().and_then(|n| n.parse().ok()).expect("TOTAL");
    if std::env::var("WARM").is_ok() {
        for i in 0..total {
            db.get(&read, &key(i)).expect("get");
        }
    }
    let (rounds, keys) = (number(3), number(4));
    let mut x = 0x1234_5678_9abc_def1_u64;
    let (mut found, mut longest) = (0, 0);
    let started = Instant::now();
    for _ in 0..rounds {
        let keys: Vec<[u8; 16]> = (0..keys)
            .map(|_| {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                key(x % total)
            })
            .collect();
        let slices: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let began = Instant::now();
        match what {
            "get" => {
                for key in &slices {
                    found += u64::from(db.get(&read, key).expect("get").is_some());
                }
            }
            "multi" => {
                let values = db.multi_get(&read, &slices).expect("multi_get");
                found += values.iter().filter(|value| value.is_some()).count() as u64;
            }
            _ => {
                let mut iter = db.iter(&read).expect("iter");
                for key in &slices {
                    iter.seek(key).expect("seek");
                    found += u64::from(iter.valid());
                }
            }
        }
        longest = longest.max(began.elapsed().as_micros());
    }
    let us = started.elapsed().as_secs_f64() * 1e6;
    println!(
        "{what}: {rounds} x {keys}, {found} found, {:.2} us a round, {:.3} us a key, longest round {longest} us",
        us / rounds as f64,
        us / (rounds * keys) as f64
    );
}
