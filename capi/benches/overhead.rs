//! What a call through the C interface costs over the Rust call that it makes, for 100-byte values.
//!
//! Both are made in turn, in chunks, on one database: Rust, C, C, Rust, and so on, so that what the machine does
//! meanwhile meets both. The C functions are called through pointers that the compiler knows nothing of, as from a
//! library. Each line has the median over the rounds of each, and the median of their ratios: 1.05 is 5 % more.
//!
//! `cargo bench -p dialsm-capi [-- ROUNDS]`

use std::ffi::c_void;
use std::hint::black_box;
use std::ptr::{from_mut, from_ref, null, null_mut};
use std::slice;
use std::time::{Duration, Instant};

use dialsm::{Options, ReadOptions, WriteBatch, WriteOptions};
// For its symbols.
use dialsm_capi as _;
use dialsm_capi_logic::{Batch, Database, Entries, Iter, Pinned, ScanHandle, Values};

type Bytes = *const c_void;

// As the header has them, but for the types of handles.
#[allow(improper_ctypes, reason = "handles go through it as pointers, and nobody looks behind them")]
unsafe extern "C" {
    fn dialsm_get_pinned(
        db: *const Database,
        keyspace: Bytes,
        options: Bytes,
        key: Bytes,
        key_len: usize,
        pinned: *mut Pinned,
        status: *mut c_void,
    ) -> u32;
    fn dialsm_pinned_value(pinned: *const Pinned, len: *mut usize) -> Bytes;
    fn dialsm_get_into(
        db: *const Database,
        keyspace: Bytes,
        options: Bytes,
        key: Bytes,
        key_len: usize,
        buffer: *mut c_void,
        buffer_len: usize,
        value_len: *mut usize,
        is_found: *mut bool,
        status: *mut c_void,
    ) -> u32;
    fn dialsm_multi_get(
        db: *const Database,
        keyspace: Bytes,
        options: Bytes,
        count: usize,
        keys: *const Bytes,
        lens: *const usize,
        values: *mut Values,
        status: *mut c_void,
    ) -> u32;
    fn dialsm_values_get(values: *const Values, index: usize, len: *mut usize) -> Bytes;
    fn dialsm_iter_valid(iter: *const Iter) -> bool;
    fn dialsm_iter_seek_to_first(iter: *mut Iter, status: *mut c_void) -> u32;
    fn dialsm_iter_next(iter: *mut Iter, status: *mut c_void) -> u32;
    fn dialsm_iter_key(iter: *const Iter, len: *mut usize) -> Bytes;
    fn dialsm_iter_value(iter: *const Iter, len: *mut usize) -> Bytes;
    fn dialsm_iter_next_batch(
        iter: *mut Iter,
        entries: *mut Entries,
        entries_max: usize,
        bytes_max: usize,
        status: *mut c_void,
    ) -> u32;
    fn dialsm_entries_view(entries: *const Entries, data: *mut Bytes, ends: *mut *const usize) -> usize;
    fn dialsm_scan_next(scan: *mut ScanHandle, entries: *mut Entries, status: *mut c_void) -> u32;
    fn dialsm_put(
        db: *const Database,
        keyspace: Bytes,
        options: Bytes,
        key: Bytes,
        key_len: usize,
        value: Bytes,
        value_len: usize,
        status: *mut c_void,
    ) -> u32;
    fn dialsm_batch_put(
        batch: *mut Batch,
        keyspace: Bytes,
        key: Bytes,
        key_len: usize,
        value: Bytes,
        value_len: usize,
        status: *mut c_void,
    ) -> u32;
    fn dialsm_write(db: *const Database, options: Bytes, batch: *const Batch, status: *mut c_void) -> u32;
}

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

/// What a program does at the least that wants the bytes: reads each of them.
#[inline]
fn read_all(bytes: &[u8]) -> usize {
    bytes.iter().map(|byte| usize::from(*byte)).sum()
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

fn ok(code: u32) {
    assert_eq!(code, 0);
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
            // Each is first in every other pair, where what it touches is in no cache yet.
            let first = timed(&mut rust, 2 * round);
            let second = timed(&mut c, 2 * round) + timed(&mut c, 2 * round + 1);
            rounds.push((first + timed(&mut rust, 2 * round + 1), second));
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
        let db = from_ref(self.db);
        let get = black_box(dialsm_get_pinned as unsafe extern "C" fn(_, _, _, _, _, _, _) -> _);
        let value = black_box(dialsm_pinned_value as unsafe extern "C" fn(_, _) -> _);
        let mut pinned = Pinned::default();
        self.compare("get (dialsm_get_pinned)", CHUNK, rust, |round| {
            for number in numbers(round) {
                let (key, mut len) = (key(number), 0usize);
                // SAFETY: the key is as long as it says.
                unsafe {
                    ok(get(
                        db,
                        null(),
                        null(),
                        key.as_ptr().cast(),
                        16usize,
                        from_mut(&mut pinned),
                        null_mut(),
                    ));
                    black_box(value(from_ref(&pinned), from_mut(&mut len)));
                }
                black_box(len);
            }
        });
        let get = black_box(dialsm_get_into as unsafe extern "C" fn(_, _, _, _, _, _, _, _, _, _) -> _);
        let (mut buffer, mut own) = ([0u8; 128], [0u8; 128]);
        let rust = |round| {
            for number in numbers(round) {
                let value = self.rust.get(&options, &key(number)).unwrap().unwrap();
                own[..value.len()].copy_from_slice(&value);
                black_box(&own);
            }
        };
        self.compare("get and copy (dialsm_get_into)", CHUNK, rust, |round| {
            for number in numbers(round) {
                let (key, mut len) = (key(number), 0usize);
                let (k, to) = (key.as_ptr().cast(), buffer.as_mut_ptr().cast());
                // SAFETY: key and buffer are as long as they say.
                ok(unsafe {
                    get(
                        db,
                        null(),
                        null(),
                        k,
                        16usize,
                        to,
                        128usize,
                        from_mut(&mut len),
                        null_mut::<bool>(),
                        null_mut(),
                    )
                });
                black_box(len);
            }
        });
    }

    fn multi_gets(&self) {
        let options = ReadOptions::default();
        let keys = |round: u64| numbers(round).take(BATCH as usize).map(key).collect::<Vec<_>>();
        let get = black_box(dialsm_multi_get as unsafe extern "C" fn(_, _, _, _, _, _, _, _) -> _);
        let value = black_box(dialsm_values_get as unsafe extern "C" fn(_, _, _) -> _);
        let mut values = Values::default();
        self.compare(
            "multi-get of 100, a key",
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
                let (starts, lens): (Vec<Bytes>, Vec<usize>) =
                    keys.iter().map(|key| (key.as_ptr().cast(), key.len())).unzip();
                let (starts, lens) = (starts.as_ptr(), lens.as_ptr());
                let (db, into) = (from_ref(self.db), from_mut(&mut values));
                // SAFETY: the arrays and keys are as long as they say.
                ok(unsafe { get(db, null(), null(), BATCH as usize, starts, lens, into, null_mut()) });
                for at in 0..BATCH as usize {
                    // SAFETY: it only looks.
                    black_box(unsafe { value(from_ref(&values), at, null_mut()) });
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
                bytes += read_all(iter.key()) + read_all(iter.value());
                iter.next().unwrap();
            }
            black_box(bytes);
        };
        let create = || {
            let mut iter = self.db.iter(None, None).unwrap();
            // SAFETY: it is one.
            ok(unsafe { dialsm_iter_seek_to_first(from_mut(&mut iter), null_mut()) });
            iter
        };
        let next_batch = black_box(dialsm_iter_next_batch as unsafe extern "C" fn(_, _, _, _, _) -> _);
        let view = black_box(dialsm_entries_view as unsafe extern "C" fn(_, _, _) -> _);
        let mut entries = Entries::default();
        self.compare("iteration (dialsm_iter_next_batch)", KEYS, rust, |_| {
            let mut iter = create();
            let mut bytes = 0;
            loop {
                let (mut data, mut ends): (Bytes, *const usize) = (null(), null());
                // SAFETY: they are what they are declared as.
                let count: usize = unsafe {
                    ok(next_batch(from_mut(&mut iter), from_mut(&mut entries), 128usize, 0usize, null_mut()));
                    view(from_ref(&entries), from_mut(&mut data), from_mut(&mut ends))
                };
                if count == 0 {
                    break;
                }
                let mut start = 0;
                for at in 0..2 * count {
                    // SAFETY: there are two ends an entry, and bytes up to the last.
                    unsafe {
                        let end = *ends.add(at);
                        bytes += read_all(slice::from_raw_parts(data.cast::<u8>().add(start), end - start));
                        start = end;
                    }
                }
            }
            black_box(bytes);
        });
        let valid = black_box(dialsm_iter_valid as unsafe extern "C" fn(_) -> _);
        let next = black_box(dialsm_iter_next as unsafe extern "C" fn(_, _) -> _);
        let key = black_box(dialsm_iter_key as unsafe extern "C" fn(_, _) -> Bytes);
        let value = black_box(dialsm_iter_value as unsafe extern "C" fn(_, _) -> Bytes);
        self.compare("iteration (dialsm_iter_next)", KEYS, rust, |_| {
            let mut iter = create();
            let mut bytes = 0;
            // SAFETY: it is one.
            while unsafe { valid(from_ref(&iter)) } {
                let (mut key_len, mut value_len) = (0usize, 0usize);
                // SAFETY: as above.
                unsafe {
                    let key = key(from_ref(&iter), from_mut(&mut key_len)).cast::<u8>();
                    let value = value(from_ref(&iter), from_mut(&mut value_len)).cast::<u8>();
                    bytes += read_all(slice::from_raw_parts(key, key_len));
                    bytes += read_all(slice::from_raw_parts(value, value_len));
                    ok(next(from_mut(&mut iter), null_mut()));
                }
            }
            black_box(bytes);
        });
    }

    fn scans(&self) {
        let next = black_box(dialsm_scan_next as unsafe extern "C" fn(_, _, _) -> _);
        let (mut entries, mut own) = (Entries::default(), dialsm::ScanBatch::new());
        self.compare(
            "bulk scan, an entry",
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
                    // SAFETY: they are what they are declared as.
                    ok(unsafe { next(from_mut(&mut scan), from_mut(&mut entries), null_mut()) });
                    if black_box(entries.is_empty()) {
                        break;
                    }
                }
            },
        );
    }

    fn puts(&self) {
        let options = WriteOptions::default();
        let put = black_box(dialsm_put as unsafe extern "C" fn(_, _, _, _, _, _, _, _) -> _);
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
                    let key = key(number);
                    let (db, k, v) = (from_ref(self.db), key.as_ptr().cast(), VALUE.as_ptr().cast());
                    // SAFETY: key and value are as long as they say.
                    ok(unsafe { put(db, null(), null(), k, 16usize, v, 100usize, null_mut()) });
                }
            },
        );
    }

    fn batches(&self) {
        let add = black_box(dialsm_batch_put as unsafe extern "C" fn(_, _, _, _, _, _, _) -> _);
        let write = black_box(dialsm_write as unsafe extern "C" fn(_, _, _, _) -> _);
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
                        let key = key(number);
                        let (to, k, v) = (from_mut(&mut batch), key.as_ptr().cast(), VALUE.as_ptr().cast());
                        // SAFETY: key and value are as long as they say.
                        ok(unsafe { add(to, null(), k, 16usize, v, 100usize, null_mut()) });
                    }
                    // SAFETY: they are what they are declared as.
                    ok(unsafe { write(from_ref(self.db), null(), from_ref(&batch), null_mut()) });
                }
            },
        );
    }
}
