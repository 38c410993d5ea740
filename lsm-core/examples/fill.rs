//! Profiling aid: fills a database at random from several threads and reads it back.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a program around the engine: it has its own clock, threads and arguments"
)]
use dialsm_core::{Db, Options, ReadOptions, WriteOptions};
use dialsm_io::OsEnv;
use std::time::Instant;

fn main() {
    let arg =
        |i: usize, default: u64| std::env::args().nth(i).and_then(|a| a.parse().ok()).unwrap_or(default);
    let (num, value_bytes, threads) = (arg(1, 1_000_000), arg(2, 100) as usize, arg(3, 4));
    let dir = std::path::Path::new("/tmp/dialsm-fill");
    let env = OsEnv::new();
    Db::destroy(env.as_ref(), dir).expect("destroy");
    let options = Options {
        filter_bits_per_key: 0.0,
        compression: dialsm_core::options::Compression::None,
        compression_bottom: dialsm_core::options::Compression::None,
        subcompactions_max: 1,
        ..Options::default()
    };
    let db = Db::open(env.clone(), dir, options).expect("open");
    let value: Vec<u8> = (0..value_bytes + (1 << 20)).map(|i| (i * 31 % 251) as u8).collect();
    let key = |n: u64| {
        let mut k = [b'0'; 16];
        k[..8].copy_from_slice(&n.to_be_bytes());
        k
    };
    let run = |what: &str, per_thread: u64, op: &(dyn Fn(u64, u64) + Sync)| {
        let started = Instant::now();
        std::thread::scope(|s| {
            for t in 0..threads {
                s.spawn(move || {
                    let mut x = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(t + 1);
                    for i in 0..per_thread {
                        x ^= x << 13;
                        x ^= x >> 7;
                        x ^= x << 17;
                        op(i, x);
                    }
                });
            }
        });
        let s = started.elapsed().as_secs_f64();
        println!(
            "{what:<12} {:>10.0} ops/s  {:.2} us/op",
            (per_thread * threads) as f64 / s,
            s * 1e6 / (per_thread * threads) as f64
        );
    };
    run("fillrandom", num, &|_, x| {
        let at = (x % (1 << 20)) as usize;
        db.put(&WriteOptions::default(), &key(x % num), &value[at..at + value_bytes]).expect("put");
    });
    let started = Instant::now();
    db.flush().expect("flush");
    db.wait_until_idle().expect("idle");
    println!("settled in {:.2} s", started.elapsed().as_secs_f64());
    run("readrandom", num / 4, &|_, x| {
        db.get(&ReadOptions::default(), &key(x % num)).expect("get");
    });
    let started = Instant::now();
    let mut iter = db.iter(&ReadOptions::default()).expect("iter");
    iter.seek_to_first().expect("first");
    let mut n = 0u64;
    while iter.valid() {
        n += 1;
        std::hint::black_box(iter.value());
        iter.next().expect("next");
    }
    println!("readseq      {:>10.0} ops/s ({n})", n as f64 / started.elapsed().as_secs_f64());
    println!("{}", db.stats_text());
}
