//! What a call through the C interface costs over the Rust call that it makes, for 100-byte values.
//!
//! Both are made in turn, in chunks, on one database: Rust, C, C, Rust, and so on, so that what the machine does
//! meanwhile meets both. The C functions are called through pointers that the compiler knows nothing of, as from a
//! library. Each line has the median over the rounds of each, and the median of their ratios: 1.05 is 5 % more.
//!
//! `cargo bench -p dialsm-capi [-- ROUNDS]`

use std::hint::black_box;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use dialsm::{Db, Options, ReadOptions, WriteBatch, WriteOptions};
use dialsm_capi::{batch, iterator, read, scan, write};
use dialsm_capi_logic::{Batch, Code, Database, Entries, Pinned, Values};

const KEYS: u64 = 50_000;
const CHUNK: u64 = 2_000;
const BATCH: u64 = 100;
const VALUE: [u8; 100] = [7; 100];

fn main() {
    // `cargo test` runs it once, `cargo bench` says --bench.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_bench = arguments.iter().any(|word| word == "--bench");
    let rounds =
        arguments.iter().find_map(|word| word.parse().ok()).unwrap_or(if is_bench { 200 } else { 1 });
    let dir = tempfile::tempdir().unwrap();
    let mut options = dialsm_capi_logic::OptionSet::of_database();
    // Writes do not meet the end of a memtable: a flush is no part of a call.
    *options.options_mut() = Options { write_buffer_bytes: 1 << 30, shards: 1, ..Options::default() };
    let db = Database::open(dir.path().to_str().unwrap(), Some(&options)).unwrap();
    for number in 0..KEYS {
        db.put(None, None, &key(number), &VALUE).unwrap();
    }
    db.flush(None, None).unwrap();
    db.compact_range(None, None, None, None).unwrap();
    let bench = Bench { db: &db, rust: (**db.engine()).clone(), rounds };
    println!("{:<34} {:>9} {:>9} {:>7}", "100-byte values", "Rust ns", "C ns", "ratio");
    bench.gets();
    bench.multi_gets();
    bench.iterations();
    bench.scans();
    bench.puts();
    bench.batches();
    db.close().unwrap();
}

fn key(number: u64) -> [u8; 16] {
    let mut key = [b'0'; 16];
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// The same numbers for both sides, all over the keys.
fn numbers(round: u64) -> impl Iterator<Item = u64> {
    (0..CHUNK).map(move |at| ((round * CHUNK + at).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % KEYS)
}

struct Bench<'a> {
    db: &'a Database,
    rust: dialsm_core::Db,
    rounds: u64,
}

fn ok(code: Code) {
    assert_eq!(code, Code::DIALSM_OK);
}

impl Bench<'_> {
    /// `rust` and `c` do the same `operations` operations.
    fn compare(&self, name: &str, operations: u64, mut rust: impl FnMut(u64), mut c: impl FnMut(u64)) {
        let timed = |run: &mut dyn FnMut(u64), round| {
            let begun = Instant::now();
            run(round);
            begun.elapsed()
        };
        rust(0);
        c(0);
        let mut rounds: Vec<(Duration, Duration)> = Vec::new();
        for round in 0..self.rounds {
            // Each first in every other pair.
            let first = timed(&mut rust, round);
            let second = timed(&mut c, round) + timed(&mut c, round + 1);
            rounds.push((first + timed(&mut rust, round + 1), second));
        }
        let median = |mut all: Vec<f64>| {
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        let each = |time: Duration| time.as_nanos() as f64 / (2 * operations) as f64;
        let rust = median(rounds.iter().map(|(rust, _)| each(*rust)).collect());
        let c = median(rounds.iter().map(|(_, c)| each(*c)).collect());
        let ratio = median(rounds.iter().map(|(rust, c)| c.as_secs_f64() / rust.as_secs_f64()).collect());
        println!("{name:<34} {rust:>9.1} {c:>9.1} {ratio:>7.3}");
    }

    fn gets(&self) {
        let options = ReadOptions::default();
        let rust = |round| {
            for number in numbers(round) {
                let value = self.rust.get(&options, &key(number)).unwrap();
                black_box(value.as_deref().map(<[u8]>::len));
            }
        };
        let get = black_box(read::dialsm_get_pinned as unsafe extern "C" fn(_, _, _, _, _, _, _) -> _);
        let value = black_box(read::dialsm_pinned_value as extern "C" fn(_, _) -> _);
        let mut pinned = Pinned::default();
        self.compare("get (dialsm_get_pinned)", CHUNK, rust, |round| {
            for number in numbers(round) {
                let key = key(number);
                let mut len = MaybeUninit::new(0);
                // SAFETY: the key is as long as it says.
                ok(unsafe {
                    get(Some(self.db), None, None, key.as_ptr().cast(), 16, Some(&mut pinned), None)
                });
                black_box(value(Some(&pinned), Some(&mut len)));
            }
        });
        let get = black_box(read::dialsm_get_into as unsafe extern "C" fn(_, _, _, _, _, _, _, _, _, _) -> _);
        let mut buffer = [0u8; 128];
        self.compare("get (dialsm_get_into)", CHUNK, rust, |round| {
            for number in numbers(round) {
                let key = key(number);
                let mut len = MaybeUninit::new(0);
                let to = buffer.as_mut_ptr().cast();
                // SAFETY: key and buffer are as long as they say.
                ok(unsafe {
                    get(
                        Some(self.db),
                        None,
                        None,
                        key.as_ptr().cast(),
                        16,
                        to,
                        128,
                        Some(&mut len),
                        None,
                        None,
                    )
                });
            }
        });
    }

    fn multi_gets(&self) {
        let options = ReadOptions::default();
        let keys = |round: u64| numbers(round).take(BATCH as usize).map(key).collect::<Vec<_>>();
        let get = black_box(read::dialsm_multi_get as unsafe extern "C" fn(_, _, _, _, _, _, _, _) -> _);
        let value = black_box(read::dialsm_values_get as extern "C" fn(_, _, _) -> _);
        let mut values = Values::default();
        self.compare(
            "multi-get of 100",
            BATCH,
            |round| {
                let keys = keys(round);
                let keys: Vec<&[u8]> = keys.iter().map(<[u8; 16]>::as_slice).collect();
                for value in self.rust.multi_get(&options, &keys).unwrap() {
                    black_box(value.as_deref().map(<[u8]>::len));
                }
            },
            |round| {
                let keys = keys(round);
                let (starts, lens): (Vec<_>, Vec<_>) =
                    keys.iter().map(|key| (key.as_ptr().cast(), key.len())).unzip();
                let (starts, lens) = (starts.as_ptr(), lens.as_ptr());
                // SAFETY: the arrays and keys are as long as they say.
                ok(unsafe {
                    get(Some(self.db), None, None, BATCH as usize, starts, lens, Some(&mut values), None)
                });
                for at in 0..BATCH as usize {
                    black_box(value(Some(&values), at, None));
                }
            },
        );
    }

    fn iterations(&self) {
        let rust = |_| {
            let mut iter = self.rust.iter(&ReadOptions::default()).unwrap();
            iter.seek_to_first().unwrap();
            let mut bytes = 0;
            while iter.valid() {
                bytes += iter.key().len() + iter.value().len();
                iter.next().unwrap();
            }
            assert_eq!(black_box(bytes) as u64, KEYS * 116);
        };
        let create = || {
            let mut iter = MaybeUninit::new(None);
            ok(iterator::dialsm_iter_create(Some(self.db), None, None, Some(&mut iter), None));
            // SAFETY: it was set before the call, and by it.
            let mut iter = unsafe { iter.assume_init() }.unwrap();
            ok(iterator::dialsm_iter_seek_to_first(Some(&mut iter), None));
            iter
        };
        let next_batch = black_box(iterator::dialsm_iter_next_batch as extern "C" fn(_, _, _, _, _) -> _);
        let mut entries = Entries::default();
        self.compare("iteration (dialsm_iter_next_batch)", KEYS, rust, |_| {
            let mut iter = create();
            let mut bytes = 0;
            loop {
                ok(next_batch(Some(&mut *iter), Some(&mut entries), 128, 0, None));
                let ends = entries.ends();
                if ends.is_empty() {
                    break;
                }
                let mut start = 0;
                for end in ends {
                    bytes += end - start;
                    start = *end;
                }
            }
            assert_eq!(black_box(bytes) as u64, KEYS * 116);
        });
        let valid = black_box(iterator::dialsm_iter_valid as extern "C" fn(_) -> _);
        let next = black_box(iterator::dialsm_iter_next as extern "C" fn(_, _) -> _);
        let part =
            black_box([iterator::dialsm_iter_key as extern "C" fn(_, _) -> _, iterator::dialsm_iter_value]);
        self.compare("iteration (dialsm_iter_next)", KEYS, rust, |_| {
            let mut iter = create();
            let mut bytes = 0;
            while valid(Some(&*iter)) {
                for part in part {
                    let mut len = MaybeUninit::new(0);
                    black_box(part(Some(&*iter), Some(&mut len)));
                    // SAFETY: it was set before the call, and by it.
                    bytes += unsafe { len.assume_init() };
                }
                ok(next(Some(&mut *iter), None));
            }
            assert_eq!(black_box(bytes) as u64, KEYS * 116);
        });
    }

    fn scans(&self) {
        let next = black_box(scan::dialsm_scan_next as extern "C" fn(_, _, _) -> _);
        let (mut entries, mut own) = (Entries::default(), dialsm::ScanBatch::new());
        self.compare(
            "bulk scan",
            KEYS,
            |_| {
                let mut scan = self.rust.scan(&ReadOptions::default(), &Default::default()).unwrap();
                while scan.fill(&mut own).unwrap() {
                    black_box(own.data());
                }
            },
            |_| {
                let mut scan = self.db.scan(None, None, None).unwrap();
                loop {
                    ok(next(Some(&mut scan), Some(&mut entries), None));
                    if black_box(entries.is_empty()) {
                        break;
                    }
                }
            },
        );
    }

    fn puts(&self) {
        let options = WriteOptions::default();
        let put = black_box(write::dialsm_put as unsafe extern "C" fn(_, _, _, _, _, _, _, _) -> _);
        self.compare(
            "put",
            CHUNK,
            |round| {
                for number in numbers(round) {
                    self.rust.put(&options, &key(number), &VALUE).unwrap();
                }
            },
            |round| {
                for number in numbers(round) {
                    let (key, value) = (key(number), VALUE.as_ptr().cast());
                    // SAFETY: key and value are as long as they say.
                    ok(unsafe { put(Some(self.db), None, None, key.as_ptr().cast(), 16, value, 100, None) });
                }
            },
        );
    }

    fn batches(&self) {
        let add = black_box(batch::dialsm_batch_put as unsafe extern "C" fn(_, _, _, _, _, _, _) -> _);
        let write = black_box(write::dialsm_write as extern "C" fn(_, _, _, _) -> _);
        let mut batch = Batch::default();
        self.compare(
            "write of a batch of 100, a put",
            CHUNK,
            |round| {
                let mut numbers = numbers(round).peekable();
                while numbers.peek().is_some() {
                    let mut batch = WriteBatch::new();
                    for number in numbers.by_ref().take(BATCH as usize) {
                        batch.put(&key(number), &VALUE).unwrap();
                    }
                    self.rust.write(&WriteOptions::default(), batch).unwrap();
                }
            },
            |round| {
                let mut numbers = numbers(round).peekable();
                while numbers.peek().is_some() {
                    batch.clear();
                    for number in numbers.by_ref().take(BATCH as usize) {
                        let (key, value) = (key(number), VALUE.as_ptr().cast());
                        // SAFETY: key and value are as long as they say.
                        ok(unsafe { add(Some(&mut batch), None, key.as_ptr().cast(), 16, value, 100, None) });
                    }
                    ok(write(Some(self.db), None, Some(&batch), None));
                }
            },
        );
    }
}
