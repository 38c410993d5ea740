//! Prints what tables cost, in ns for each entry: `cargo run --release --example table_bench`.
//!
//! Orientation only: nothing is asserted, and the file is in memory.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a program around the engine: it has its own clock, threads and arguments"
)]

use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use dialsm_core::Result;
use dialsm_core::cache::BlockCache;
use dialsm_core::format::{FileHeader, FileKind};
use dialsm_core::key::{Comparator, internal_key};
use dialsm_core::read::internal::InternalIter;
use dialsm_core::table::{
    Compression, IterSpec, ReadSpec, ReadStats, TableOptions, TableReader, TableWriter,
};
use dialsm_core::types::{FileNumber, SEQNO_MAX};
use dialsm_io::File;
use dialsm_io::fs::Advice;

struct MemFile(PathBuf, RwLock<Vec<u8>>);

impl File for MemFile {
    fn path(&self) -> &Path {
        &self.0
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let bytes = self.1.read().expect("no writer panicked");
        let from = (offset as usize).min(bytes.len());
        let n = buf.len().min(bytes.len() - from);
        buf[..n].copy_from_slice(&bytes[from..from + n]);
        Ok(n)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let mut bytes = self.1.write().expect("no writer panicked");
        let end = offset as usize + buf.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset as usize..end].copy_from_slice(buf);
        Ok(())
    }
    fn sync_data(&self) -> Result<()> {
        Ok(())
    }
    fn start_writeback(&self, _: u64, _: u64) {}
    fn allocate(&self, _: u64, _: u64) -> Result<()> {
        Ok(())
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.1.write().expect("no writer panicked").resize(len as usize, 0);
        Ok(())
    }
    fn len(&self) -> Result<u64> {
        Ok(self.1.read().expect("no writer panicked").len() as u64)
    }
    fn advise(&self, _: Advice) {}
}

/// Processor time of this thread so far: a busy machine disturbs it less than the clock.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0))
}

/// Times `rounds` steps, made by calling `call` with 0, 1, .., and prints the cost of one.
fn time(what: &str, rounds: usize, call: impl FnMut(usize)) {
    time_all(what, rounds, || (0..rounds).for_each(call));
}

/// Times one call that makes `steps` steps.
fn time_all(what: &str, steps: usize, call: impl FnOnce()) {
    let (wall, cpu) = (Instant::now(), cpu_time());
    call();
    let (wall, cpu) = (wall.elapsed().as_nanos() as f64, (cpu_time() - cpu).as_nanos() as f64);
    println!("  {what:<28} {:>7.1} ns, {:>7.1} ns of processor", wall / steps as f64, cpu / steps as f64);
}

fn scan(table: &Arc<TableReader>, spec: IterSpec, back: bool) -> usize {
    let (mut it, mut bytes) = (table.iter(spec), 0);
    if back { it.seek_to_last() } else { it.seek_to_first() }.expect("intact");
    while it.valid() {
        bytes += it.value().len() + it.key().len();
        if back { it.prev() } else { it.next() }.expect("intact");
    }
    bytes
}

fn main() {
    let n = 500_000;
    let keys: Vec<[u8; 24]> = (0..n)
        .map(|i| internal_key(format!("{:016}", i * 2).as_bytes(), i as u64 + 1, 7))
        .map(|key| key.try_into().expect("16 + 8 bytes"))
        .collect();
    // Half random, half runs, so that compression has something to do.
    let noise: Vec<u8> = (0..1u32 << 16).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    let value = |i: usize| {
        let mut v = [b'v'; 100];
        v[..50].copy_from_slice(&noise[(i * 13) % 60_000..][..50]);
        v
    };
    let order: Vec<usize> = (0..n).map(|i| (i * 7_368_787) % n).collect();
    for compression in [Compression::None, Compression::Lz4] {
        println!("{compression:?}, {n} entries of 16 + 100 bytes");
        let file = Arc::new(MemFile("bench.tbl".into(), RwLock::default()));
        let header = FileHeader { kind: FileKind::Table, db_id: [1; 16], number: FileNumber(1) };
        let options = TableOptions { compression, ..TableOptions::default() };
        file.set_len(100 << 20).expect("memory");
        file.set_len(0).expect("memory");
        let mut writer =
            TableWriter::new(file.clone(), header, Comparator::Bytewise, options).expect("valid options");
        time("add", n, |i| writer.add(&keys[i], &value(i)).expect("in order"));
        let start = Instant::now();
        let meta = writer.finish().expect("memory takes all");
        println!("  finish {:?}, {} bytes", start.elapsed(), meta.file_bytes);
        let open = |cache_bytes| {
            let cache = Arc::new(BlockCache::new(cache_bytes));
            let number = FileNumber(1);
            TableReader::open(file.clone(), &[1; 16], number, meta.file_bytes, Comparator::Bytewise, cache)
                .expect("intact")
        };
        let start = Instant::now();
        let table = open(1 << 30);
        println!("  open {:?}, {} bytes in memory", start.elapsed(), table.memory_bytes());
        let (spec, mut stats) = (ReadSpec::default(), ReadStats::default());
        let mut get = |table: &TableReader, key: &[u8]| {
            table.get(key, SEQNO_MAX, &spec, &mut stats).expect("intact").is_some()
        };
        let user = |i: usize| &keys[order[i]][..16];
        time("nothing, random keys", n, |i| {
            std::hint::black_box(user(i)[3]);
        });
        time("get, random, cache cold", n, |i| assert!(get(&table, user(i))));
        time("get, random, in cache", n, |i| assert!(get(&table, user(i))));
        time("get, in order, in cache", n, |i| assert!(get(&table, &keys[i][..16])));
        let mut absent = [0; 16];
        time("get, absent", n, |i| {
            absent.copy_from_slice(user(i));
            absent[15] += 1;
            std::hint::black_box(get(&table, &absent));
        });
        let uncached = open(0);
        time("get, random, no cache", n / 4, |i| assert!(get(&uncached, user(i))));
        let mut it = table.iter(IterSpec::default());
        time("seek, random, in cache", n / 4, |i| it.seek(&keys[order[i]]).expect("intact"));
        for (what, spec, back) in [
            ("next, in cache", IterSpec::default(), false),
            ("prev, in cache", IterSpec::default(), true),
            ("next, whole table", IterSpec::whole_table(), false),
        ] {
            time_all(what, n, || {
                std::hint::black_box(scan(&table, spec, back));
            });
        }
    }
}
