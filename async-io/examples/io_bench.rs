//! Plain calls, pool and ring against each other, and registered buffers and fixed files against
//! ordinary ones, in alternating rounds in a directory given as the first argument. Prints medians;
//! on a shared machine only their ratios mean something.

#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use dialsm_io::{
    Access, Advice, AsyncIo, Buf, Env, File, IoOp, IoOptions, IoTicket, OsEnv, ReadAt, SplitMix64,
};
use io_uring::{IoUring, opcode, squeue, types};

const ROUNDS: usize = 15;
const FILE_BYTES: u64 = 128 << 20;
const BATCH: usize = 32;

type Times = BTreeMap<String, Vec<f64>>;

fn time(times: &mut Times, name: &str, run: impl FnOnce()) {
    let started = Instant::now();
    run();
    times.entry(name.to_owned()).or_default().push(started.elapsed().as_secs_f64() * 1e6);
}

fn write_plain(file: &Arc<dyn File>, bytes: usize, count: u64) {
    let buf = vec![3; bytes];
    (0..count).for_each(|no| file.write_at(&buf, no * bytes as u64).expect("write"));
    file.sync_data().expect("sync");
}

/// Eight writes under way, then a sync.
fn write_async(io: &dyn AsyncIo, file: &Arc<dyn File>, bytes: usize, count: u64) {
    let mut under_way: std::collections::VecDeque<IoTicket> = std::collections::VecDeque::new();
    let mut spare: Vec<Buf> = (0..8).map(|_| Buf::zeroed(bytes)).collect();
    for no in 0..count {
        let buf = spare.pop().unwrap_or_else(|| {
            let done = under_way.pop_front().expect("eight are under way").wait();
            done.result.expect("write");
            done.buf
        });
        under_way.push_back(io.submit(IoOp::Write { file: file.clone(), buf, offset: no * bytes as u64 }));
    }
    under_way.into_iter().for_each(|ticket| assert_eq!(ticket.wait().result.expect("write"), bytes));
    io.submit(IoOp::SyncData { file: file.clone() }).wait().result.expect("sync");
}

fn reads_plain(file: &Arc<dyn File>, offsets: &[u64]) {
    let mut buf = vec![0; 4096];
    offsets.iter().for_each(|offset| assert_eq!(file.read_at(&mut buf, *offset).expect("read"), 4096));
}

fn reads_async(io: &dyn AsyncIo, file: &Arc<dyn File>, offsets: &[u64]) {
    let read = |offset: &u64| ReadAt { file: file.clone(), buf: Buf::zeroed(4096), offset: *offset };
    for ticket in io.read_many(offsets.iter().map(read).collect()) {
        ticket.wait().result.expect("read");
    }
}

/// Processor time of this process so far, the kernel's threads for its ring included, in microseconds.
fn cpu_us() -> f64 {
    let usage = usage();
    let us = |t: libc::timeval| t.tv_sec as f64 * 1e6 + t.tv_usec as f64;
    us(usage.ru_utime) + us(usage.ru_stime)
}

fn usage() -> libc::rusage {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the place is valid, and all zeros are a value of it should the call fail.
    unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    }
}

/// Direct or cached transfers of some size, several at a time, on a ring of our own.
struct Raw {
    ring: IoUring,
    file: std::fs::File,
    bufs: Vec<Buf>,
    size: usize,
}

impl Raw {
    fn new(path: &Path, flags: i32, size: usize, at_once: usize) -> Raw {
        let file = std::fs::OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
        let file = file.expect("open");
        let ring = IoUring::new(64).expect("a machine with io_uring");
        let mut bufs: Vec<Buf> = (0..at_once).map(|_| Buf::zeroed(size)).collect();
        let iovecs: Vec<_> = bufs
            .iter_mut()
            .map(|buf| libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() })
            .collect();
        // SAFETY: the buffers live in the same value as the ring and do not move in memory.
        unsafe { ring.submitter().register_buffers(&iovecs) }.expect("register buffers");
        ring.submitter().register_files(&[file.as_raw_fd()]).expect("register files");
        Raw { ring, file, bufs, size }
    }

    fn run(&mut self, offsets: &[u64], fixed: bool, write: bool) {
        for (no, offset) in offsets.iter().enumerate() {
            let (address, len) = (self.bufs[no].as_mut_ptr(), self.size as u32);
            let (index, fd) = (types::Fixed(0), types::Fd(self.file.as_raw_fd()));
            let entry: squeue::Entry = match (fixed, write) {
                (true, false) => {
                    opcode::ReadFixed::new(index, address, len, no as u16).offset(*offset).build()
                }
                (true, true) => {
                    opcode::WriteFixed::new(index, address, len, no as u16).offset(*offset).build()
                }
                (false, false) => opcode::Read::new(fd, address, len).offset(*offset).build(),
                (false, true) => opcode::Write::new(fd, address, len).offset(*offset).build(),
            };
            // SAFETY: the buffers live until all completions are reaped below.
            unsafe { self.ring.submission().push(&entry) }.expect("64 entries");
        }
        self.ring.submit_and_wait(offsets.len()).expect("enter");
        let done = self.ring.completion().filter(|entry| entry.result() == self.size as i32).count();
        assert_eq!(done, offsets.len());
    }
}

fn main() {
    let dir = PathBuf::from(std::env::args().nth(1).expect("a directory"));
    let env = OsEnv::new();
    let pool = env.start_io(&IoOptions { use_ring: false, ..IoOptions::default() }).expect("pool");
    let ring = env.start_io(&IoOptions::default()).expect("ring");
    println!("{}\n{}", pool.report(), ring.report());
    let path = dir.join("io_bench.data");
    let _ = std::fs::remove_file(&path);
    let file = env.fs().create(&path).expect("create");
    write_plain(&file, 1 << 20, FILE_BYTES >> 20);
    let reader = env.fs().open(&path, Access::Read).expect("open");
    let mut rng = SplitMix64::new(1);
    let mut times = Times::new();
    let mut raws = Vec::new();
    for (size, name, at_once) in
        [(4 << 10, "4 KiB", BATCH), (64 << 10, "64 KiB", BATCH), (1 << 20, "1 MiB", 8)]
    {
        raws.push((Raw::new(&path, libc::O_DIRECT, size, at_once), "direct", name));
        raws.push((Raw::new(&path, 0, size, at_once), "cached", name));
    }
    for _ in 0..ROUNDS {
        for (size, name) in [(1 << 20, "1 MiB"), (64 << 10, "64 KiB")] {
            let count = (16 << 20) / size as u64;
            time(&mut times, &format!("write 16 MiB by {name}, sync: plain"), || {
                write_plain(&file, size, count);
            });
            time(&mut times, &format!("write 16 MiB by {name}, sync: pool"), || {
                write_async(&*pool, &file, size, count);
            });
            time(&mut times, &format!("write 16 MiB by {name}, sync: ring"), || {
                write_async(&*ring, &file, size, count);
            });
        }
        let mut offsets =
            || -> Vec<u64> { (0..BATCH).map(|_| rng.below(FILE_BYTES / 4096) * 4096).collect() };
        for name in ["cold", "hot"] {
            let mut some = offsets();
            let mut next = || {
                if name == "cold" {
                    reader.advise(Advice::DontNeed);
                    some = offsets();
                }
                some.clone()
            };
            let batch = next();
            reads_plain(&reader, &batch);
            let batch = next();
            time(&mut times, &format!("{BATCH} reads of 4 KiB, {name}: plain"), || {
                reads_plain(&reader, &batch);
            });
            let batch = next();
            time(&mut times, &format!("{BATCH} reads of 4 KiB, {name}: pool"), || {
                reads_async(&*pool, &reader, &batch);
            });
            let batch = next();
            time(&mut times, &format!("{BATCH} reads of 4 KiB, {name}: ring"), || {
                reads_async(&*ring, &reader, &batch);
            });
        }
        for (raw, name, size) in &mut raws {
            let (bytes, at_once) = (raw.size as u64, raw.bufs.len());
            let batch = |_| (0..at_once).map(|_| rng.below(FILE_BYTES / bytes) * bytes).collect();
            let some: Vec<Vec<u64>> = (0..20).map(batch).collect();
            for write in [false, true] {
                let what = if write { "writes" } else { "reads" };
                some.iter().for_each(|batch| raw.run(batch, false, write));
                for (fixed, how) in [(false, "ordinary"), (true, "registered")] {
                    let (name, before) = (format!("20 x {at_once} {name} {what} of {size}: {how}"), cpu_us());
                    time(&mut times, &name, || some.iter().for_each(|batch| raw.run(batch, fixed, write)));
                    times.entry(name + ", processor").or_default().push(cpu_us() - before);
                }
            }
        }
    }
    for (name, mut all) in times {
        all.sort_by(f64::total_cmp);
        println!("{name:55} {:10.0} us (best {:.0})", all[all.len() / 2], all[0]);
    }
    std::fs::remove_file(&path).expect("remove");
}
