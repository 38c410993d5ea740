//! Profiling aid: what metrics cost, in instructions. Run under callgrind, in a build with and one without them
//! (docs/BENCHMARKS.md has the commands).

#![allow(clippy::disallowed_methods, reason = "a program around the engine: it has its own arguments")]

use dialsm_core::options::Compression;
use dialsm_core::{Db, Options, ReadOptions, WriteOptions};
use dialsm_io::{OsEnv, SplitMix64};

const KEYS: u64 = 100_000;

fn key(rng: &mut SplitMix64) -> [u8; 16] {
    let mut key = [b'0'; 16];
    key[..8].copy_from_slice(&rng.below(KEYS).to_be_bytes());
    key
}

/// Not inlined, so that callgrind can be told to count what happens in here.
#[inline(never)]
fn fillrandom(db: &Db) {
    let (mut rng, value) = (SplitMix64::new(1), [7; 100]);
    for _ in 0..KEYS {
        db.put(&WriteOptions::default(), &key(&mut rng), &value).expect("put");
    }
}

#[inline(never)]
fn readrandom(db: &Db) {
    let mut rng = SplitMix64::new(2);
    for _ in 0..KEYS {
        std::hint::black_box(db.get(&ReadOptions::default(), &key(&mut rng)).expect("get"));
    }
}

fn main() {
    let dir = std::env::args().nth(1).expect("the argument is a directory, which is emptied");
    let (dir, env) = (std::path::Path::new(&dir), OsEnv::new());
    Db::destroy(env.as_ref(), dir).expect("destroy");
    let options = Options {
        write_buffer_bytes: 2 << 20,
        compression: Compression::None,
        compression_bottom: Compression::None,
        // It goes by counters, so without them the tables would come to lie otherwise.
        level0_patience: false,
        ..Options::default()
    };
    let db = Db::open(env, dir, options).expect("open");
    fillrandom(&db);
    db.flush().expect("flush");
    db.wait_until_idle().expect("idle");
    readrandom(&db);
    db.close().expect("close");
}
