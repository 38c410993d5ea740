//! One large file written by plain calls and through a stream over each service, buffered and past the
//! page cache, each until it is durable: MB/s, and CPU seconds of this process (threads of the
//! kernel that work for it among them where they are counted as its own) and of the whole machine.
//!
//! Arguments: a directory, and how many MiB (2048 unless said).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use dialsm_io::env::JobHandle;
use dialsm_io::{
    AsyncIo, CreateOptions, Env, Event, File, Fs, IoOptions, Job, Nanos, OsEnv, Result, StreamOptions,
    StreamWriter,
};

const PIECE_BYTES: usize = 32 << 10;

/// CPU seconds so far: of this process, and of the whole machine.
fn cpu() -> (f64, f64) {
    let fields = |path: &str, skip: usize| -> Vec<f64> {
        let text = std::fs::read_to_string(path).expect("a Linux");
        let line = text.lines().next().expect("a line");
        line.split_whitespace().skip(skip).filter_map(|word| word.parse().ok()).collect()
    };
    // Fields 14 and 15: user and system ticks, of which there are 100 a second. The name has no blanks.
    let own: f64 = fields("/proc/self/stat", 13)[..2].iter().sum();
    // User, nice, system; then idle and waiting; then interrupts.
    let all = fields("/proc/stat", 1);
    (own / 100.0, (all[0] + all[1] + all[2] + all[5] + all[6]) / 100.0)
}

fn plain(file: &Arc<dyn File>, bytes: u64) {
    let (piece, mut buf, mut at, mut back) = (vec![7; PIECE_BYTES], Vec::new(), 0, 0);
    while at < bytes {
        while buf.len() < 512 << 10 {
            buf.extend_from_slice(&piece);
        }
        file.write_at(&buf, at).expect("write");
        at += buf.len() as u64;
        buf.clear();
        if at - back >= 4 << 20 {
            file.start_writeback(back, at - back);
            back = at;
        }
    }
}

fn streamed(
    io: &Arc<dyn AsyncIo>,
    file: Arc<dyn File>,
    bytes: u64,
    buf_bytes: usize,
) -> (Arc<dyn File>, u64) {
    let options = StreamOptions { buf_bytes, ..StreamOptions::default() };
    let mut stream = StreamWriter::new(Arc::clone(io), file, None, options).expect("options");
    let (piece, mut peak) = (vec![7; PIECE_BYTES], 0);
    while stream.len() < bytes {
        stream.write(&piece).expect("write");
        peak = peak.max(stream.bytes_in_flight());
        // In the engine the limiter bounds this.
        while stream.bytes_in_flight() > 64 << 20 {
            std::thread::sleep(std::time::Duration::from_micros(100));
            stream.write(&[]).expect("write");
        }
    }
    (stream.finish().wait().expect("landing"), peak)
}

/// An environment that says nothing of asynchronous I/O.
struct Plain(Arc<OsEnv>);

impl Env for Plain {
    fn fs(&self) -> &Arc<dyn Fs> {
        self.0.fs()
    }
    fn now(&self) -> Nanos {
        self.0.now()
    }
    fn wall_ms(&self) -> u64 {
        self.0.wall_ms()
    }
    fn random_u64(&self) -> u64 {
        self.0.random_u64()
    }
    fn spawn(&self, name: &str, job: Job) -> Result<Box<dyn JobHandle>> {
        self.0.spawn(name, job)
    }
    fn event(&self) -> Arc<dyn Event> {
        self.0.event()
    }
    fn sleep(&self, nanos: Nanos) {
        self.0.sleep(nanos);
    }
    fn yield_now(&self) {
        self.0.yield_now();
    }
    fn check_fork(&self) -> Result<()> {
        self.0.check_fork()
    }
}

fn main() {
    let dir = PathBuf::from(std::env::args().nth(1).expect("a directory"));
    let bytes = std::env::args().nth(2).map_or(2048, |n| n.parse().expect("MiB")) << 20;
    let env = OsEnv::new();
    let pool = env.start_io(&IoOptions { use_ring: false, ..IoOptions::default() }).expect("pool");
    let ring = env.start_io(&IoOptions::default()).expect("ring");
    println!("{}; {}", pool.report(), ring.report());
    let inline = Plain(Arc::clone(&env)).start_io(&IoOptions::default()).expect("inline");
    let path = dir.join("stream_bench.data");
    let run = |name: &str, direct: bool, write: &dyn Fn(Arc<dyn File>) -> (Arc<dyn File>, u64)| {
        let _ = std::fs::remove_file(&path);
        let file = env.fs().create_with(&path, CreateOptions { direct }).expect("create");
        assert_eq!(file.is_direct(), direct, "the file system refuses direct I/O");
        let (before, started) = (cpu(), Instant::now());
        let (file, peak) = write(file);
        let written = started.elapsed().as_secs_f64();
        file.sync_data().expect("sync");
        let (seconds, after) = (started.elapsed().as_secs_f64(), cpu());
        println!(
            "{name:32} {:6.0} MB/s with sync ({:6.0} without), CPU {:5.2} s own, {:5.2} s machine, peak {} MiB",
            bytes as f64 / 1e6 / seconds,
            bytes as f64 / 1e6 / written,
            after.0 - before.0,
            after.1 - before.1,
            peak >> 20,
        );
    };
    // The first of all meets a cold machine.
    run("warm-up", false, &|file| {
        plain(&file, bytes / 4);
        (file, 0)
    });
    for _ in 0..2 {
        run("plain write_at", false, &|file| {
            plain(&file, bytes);
            (file, 0)
        });
        for (name, io) in [("inline", &inline), ("pool", &pool), ("ring", &ring)] {
            run(&format!("stream, {name}, 1 MiB"), false, &|file| streamed(io, file, bytes, 1 << 20));
        }
        for (name, io, buf_bytes) in [
            ("direct ring, 512 KiB", &ring, 512 << 10),
            ("direct ring, 1 MiB", &ring, 1 << 20),
            ("direct pool, 1 MiB", &pool, 1 << 20),
        ] {
            run(&format!("stream, {name}"), true, &|file| streamed(io, file, bytes, buf_bytes));
        }
    }
    std::fs::remove_file(&path).expect("remove");
}
