//! Files written front to back without waiting: contents beside a model over every service, buffered
//! and past the page cache; errors, drops and power cuts in the middle.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dialsm_io::env::JobHandle;
use dialsm_io::fs::{Advice, Op, OpenOptions, Ticket};
use dialsm_io::ring::BUF_ALIGN;
use dialsm_io::{
    Access, AsyncIo, Buf, CrashPolicy, CreateOptions, Env, ErrorKind, Event, Fault, FaultFs, File, Fs,
    IoKind, IoOp, IoOptions, Job, Landing, Nanos, OpKind, OsEnv, OsFs, Result, Rule, SimEnv, SimIoOptions,
    SplitMix64, StreamOptions, StreamWriter,
};

const SMALL: usize = if cfg!(miri) { 1 } else { 10 };

/// One service and where it may write, directly or not.
struct World {
    name: String,
    env: Arc<dyn Env>,
    io: Arc<dyn AsyncIo>,
    base: PathBuf,
    direct: bool,
    fault: Arc<FaultFs>,
}

/// Runs `check` over all services. With `tap` a wrapper that can fail stands before the file system, so
/// that a ring has no descriptors and makes plain calls.
fn on_all(tap: bool, check: impl Fn(&World)) {
    for direct in [false, true] {
        if !cfg!(miri) {
            on_os(tap, direct, &check);
        }
        for seed in 0..if cfg!(miri) { 1 } else { 6 } {
            let sim = SimEnv::new(seed);
            let fault = FaultFs::new(sim.sim_fs().clone());
            let env = sim.on_fs(sim.sim_fs().clone(), fault.clone());
            sim.run(|| {
                let base = PathBuf::from("/base");
                env.fs().create_dir_all(&base).unwrap();
                let io = match seed % 3 {
                    0 => env.start_io(&IoOptions { use_ring: false, ..IoOptions::default() }).unwrap(),
                    1 => env.start_io(&IoOptions::default()).unwrap(),
                    _ => env.start_sim_io(unkind()).unwrap(),
                };
                let name = format!("seed {seed}, direct {direct}: {}", io.report());
                let world = World { name, env: env.clone(), io, base, direct, fault };
                check(&world);
                world.end();
            });
        }
    }
}

fn unkind() -> SimIoOptions {
    SimIoOptions { slow_permille: 300, short_permille: 600, ..SimIoOptions::default() }
}

fn on_os(tap: bool, direct: bool, check: &impl Fn(&World)) {
    for (kind, options) in [
        (IoKind::Pool, IoOptions { use_ring: false, ..IoOptions::default() }),
        (IoKind::Pool, IoOptions { use_ring: false, pool_threads: 1, ..IoOptions::default() }),
        (IoKind::Ring, IoOptions::default()),
        (IoKind::Ring, IoOptions { ring_entries: 1, ..IoOptions::default() }),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let fault = FaultFs::new(OsFs::new());
        let env = if tap { OsEnv::with_fs(fault.clone()) } else { OsEnv::new() };
        let io = env.start_io(&options).unwrap();
        if io.kind() != kind {
            eprintln!("not tested here: {}", io.report());
            continue;
        }
        let name = format!("direct {direct}: {}", io.report());
        let world = World { name, env, io, base: dir.path().to_path_buf(), direct, fault };
        let probe = world.create("probe");
        if direct && !probe.is_direct() {
            eprintln!("not tested here: files past the page cache");
            continue;
        }
        check(&world);
        world.end();
    }
}

impl World {
    fn create(&self, name: &str) -> Arc<dyn File> {
        let options = CreateOptions { direct: self.direct };
        self.env.fs().create_with(&self.base.join(name), options).unwrap()
    }

    fn stream(&self, file: &Arc<dyn File>, buf_bytes: usize) -> StreamWriter {
        let options = StreamOptions { buf_bytes, writeback_bytes: 3 * buf_bytes as u64 };
        StreamWriter::new(Arc::clone(&self.io), Arc::clone(file), None, options).unwrap()
    }

    /// Counts `is_so` where the seed decides it, not the moment.
    fn count(&self, counter: &AtomicU64, is_so: bool) {
        let is_seeded = self.io.kind() == IoKind::Sim;
        counter.fetch_add(u64::from(is_seeded && is_so), Ordering::Relaxed);
    }

    fn contents(&self, name: &str) -> Vec<u8> {
        read_all(&*self.env.fs().open(&self.base.join(name), Access::Read).unwrap())
    }

    /// Every operation has ended, and no thread or buffer is left.
    fn end(&self) {
        self.io.shutdown();
        let stats = self.io.stats();
        assert_eq!((stats.submitted_count, stats.in_flight_bytes), (stats.completed_count, 0));
    }
}

fn read_all(file: &dyn File) -> Vec<u8> {
    let mut bytes = vec![0xee; file.len().unwrap() as usize + 10];
    let n = file.read_at(&mut bytes, 0).unwrap();
    assert_eq!(n as u64, file.len().unwrap());
    bytes.truncate(n);
    bytes
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = SplitMix64::new(seed);
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
    bytes.truncate(len);
    bytes
}

/// Writes `bytes` in random pieces; the first error, else the landing.
fn write_pieces(stream: StreamWriter, bytes: &[u8], rng: &mut SplitMix64) -> Result<Landing> {
    let (mut stream, mut rest) = (stream, bytes);
    while !rest.is_empty() {
        let most = [1, 100, 5000, 20_000, 100_000][rng.below(5) as usize];
        let (now, later) = rest.split_at(rest.len().min(1 + rng.below(most) as usize));
        stream.write(now)?;
        rest = later;
        assert_eq!(stream.len(), (bytes.len() - rest.len()) as u64);
        assert!(stream.bytes_in_flight() <= stream.len());
    }
    Ok(stream.finish())
}

#[test]
fn contents_equal_a_model_over_every_service() {
    let (under_way, short) = (AtomicU64::new(0), AtomicU64::new(0));
    on_all(false, |w| {
        let mut rng = SplitMix64::new(5);
        let buf_bytes = [BUF_ALIGN, 4 * BUF_ALIGN, 64 * BUF_ALIGN];
        let edges = [0, 1, 4095, 4096, 4097, 8192, 16_384, 16_385, 262_144, 262_145];
        let count = if cfg!(miri) { 8 } else { 40 };
        for no in 0..count {
            let len = match edges.get(no) {
                Some(len) if !cfg!(miri) || *len < 10_000 => *len,
                _ => rng.below(SMALL as u64 * 60_000) as usize,
            };
            let (name, bytes) = (format!("f{no}"), pattern(no as u64, len));
            let file = w.create(&name);
            let stream = w.stream(&file, buf_bytes[no % 3]);
            let mut landing = write_pieces(stream, &bytes, &mut rng).unwrap();
            w.count(&under_way, !landing.is_done());
            let landed = if rng.chance(1, 2) {
                while !landing.is_done() {
                    assert!(landing.bytes_in_flight() > 0);
                    w.env.sleep(10_000);
                }
                let landed = landing.try_take().expect("it is done").unwrap();
                assert_eq!(landing.bytes_in_flight(), 0);
                assert!(landing.try_take().expect("it stays so").is_ok());
                landed
            } else {
                landing.wait().unwrap()
            };
            assert!(Arc::ptr_eq(&landed, &file), "{}: another handle came back", w.name);
            assert_eq!(landed.len().unwrap(), len as u64, "{}: length of {name}", w.name);
            assert!(read_all(&*landed) == bytes, "{}: {name} of {len} bytes by its handle", w.name);
            assert!(w.contents(&name) == bytes, "{}: {name} of {len} bytes", w.name);
        }
        let stats = w.io.stats();
        short.fetch_add(stats.short_count, Ordering::Relaxed);
        // What is aligned needs no help, also where the kernel takes nothing else.
        assert_eq!(stats.helped_count, 0, "{}: {stats:?}", w.name);
    });
    let (under_way, short) = (under_way.into_inner(), short.into_inner());
    let wanted = if cfg!(miri) { (4, 0) } else { (100, 100) };
    assert!(under_way >= wanted.0 && short >= wanted.1, "{under_way} under way, {short} cut short");
}

/// A file whose writes stand still while its gate is shut, and that notes the buffers they come from.
struct Gated {
    inner: Arc<dyn File>,
    is_open: AtomicBool,
    buffers: Mutex<BTreeSet<usize>>,
    /// Where each write ended, and each request for write-back reached.
    written: Mutex<BTreeSet<u64>>,
    written_back: AtomicU64,
}

impl Gated {
    fn new(is_open: bool) -> Arc<Gated> {
        let inner = dialsm_io::SimFs::new(1).create(Path::new("/a")).unwrap();
        Arc::new(Gated {
            inner,
            is_open: AtomicBool::new(is_open),
            buffers: Mutex::default(),
            written: Mutex::default(),
            written_back: AtomicU64::new(0),
        })
    }

    fn buffers(&self) -> BTreeSet<usize> {
        self.buffers.lock().unwrap().clone()
    }
}

impl File for Gated {
    fn path(&self) -> &Path {
        self.inner.path()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.inner.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        while !self.is_open.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.buffers.lock().unwrap().insert(buf.as_ptr() as usize);
        self.inner.write_at(buf, offset)?;
        self.written.lock().unwrap().insert(offset);
        Ok(())
    }
    fn sync_data(&self) -> Result<()> {
        self.inner.sync_data()
    }
    fn start_writeback(&self, offset: u64, len: u64) {
        // Ranges follow each other, and hold nothing that was not written.
        assert_eq!(self.written_back.fetch_add(len, Ordering::SeqCst), offset);
        let written = self.written.lock().unwrap();
        assert!((offset..offset + len).step_by(BUF_ALIGN).all(|at| written.contains(&at)));
    }
    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.allocate(offset, len)
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.inner.set_len(len)
    }
    fn len(&self) -> Result<u64> {
        self.inner.len()
    }
    fn advise(&self, advice: Advice) {
        self.inner.advise(advice);
    }
    fn submit(&self, op: Op) -> Box<dyn Ticket> {
        self.inner.submit(op)
    }
}

fn small_options() -> StreamOptions {
    StreamOptions { buf_bytes: BUF_ALIGN, writeback_bytes: 2 * BUF_ALIGN as u64 }
}

/// While the disk stands still the stream goes on, in further buffers; once it is back these serve for
/// all that follows.
#[test]
#[cfg_attr(miri, ignore = "threads of the real environment")]
fn a_stream_never_waits_and_reuses_its_buffers() {
    let env = OsEnv::new();
    let io = env.start_io(&IoOptions { use_ring: false, ..IoOptions::default() }).unwrap();
    let file = Gated::new(false);
    let event = env.event();
    let seen = event.epoch();
    // The last handle on a service waits for its end when it is dropped, so it may not be the stream's.
    let (io_kept, notify) = (Arc::clone(&io), Some(Arc::clone(&event)));
    let mut stream = StreamWriter::new(io_kept, file.clone(), notify, small_options()).unwrap();
    let bytes = pattern(1, 50 * BUF_ALIGN);
    stream.write(&bytes).unwrap();
    assert_eq!((stream.bytes_in_flight(), stream.len()), (bytes.len() as u64, bytes.len() as u64));
    assert_eq!((event.epoch(), file.written_back.load(Ordering::SeqCst)), (seen, 0));
    file.is_open.store(true, Ordering::SeqCst);
    while file.len().unwrap() < bytes.len() as u64 || event.epoch() < seen + 50 {
        assert!(event.wait(event.epoch(), Some(env.now() + 60_000_000_000)) || event.epoch() >= seen + 50);
    }
    stream.write(&[1]).unwrap();
    assert_eq!(stream.bytes_in_flight(), 0, "what has ended is reaped");
    assert_eq!(file.written_back.load(Ordering::SeqCst), bytes.len() as u64);
    assert_eq!(file.buffers().len(), 50);
    for block in pattern(2, 200 * BUF_ALIGN)[1..].chunks(BUF_ALIGN) {
        stream.write(block).unwrap();
        while file.len().unwrap() < stream.len() / BUF_ALIGN as u64 * BUF_ALIGN as u64 {
            env.sleep(10_000);
        }
    }
    assert_eq!(file.buffers().len(), 50, "more buffers than ever were under way");

    file.is_open.store(false, Ordering::SeqCst);
    stream.write(&[7; 5000]).unwrap();
    let mut landing = stream.finish();
    assert!(!landing.is_done() && landing.try_take().is_none() && landing.bytes_in_flight() > 0);
    file.is_open.store(true, Ordering::SeqCst);
    let landed = landing.wait().unwrap();
    assert_eq!(landed.len().unwrap(), 250 * BUF_ALIGN as u64 + 5000);
    assert!(read_all(&*landed)[..bytes.len()] == bytes);
}

#[test]
fn one_buffer_is_enough_where_writes_are_over_at_once() {
    let sim = SimEnv::new(1);
    let io = Plain(sim).start_io(&IoOptions::default()).unwrap();
    assert_eq!(io.kind(), IoKind::Inline);
    let file = Gated::new(true);
    let mut stream = StreamWriter::new(io, file.clone(), None, small_options()).unwrap();
    let bytes = pattern(3, 100 * BUF_ALIGN + 17);
    bytes.chunks(1000).for_each(|piece| stream.write(piece).unwrap());
    assert_eq!(stream.bytes_in_flight(), 0);
    let mut landing = stream.finish();
    assert!(landing.is_done());
    assert!(read_all(&*landing.try_take().unwrap().unwrap()) == bytes);
    assert_eq!(file.buffers().len(), 1);
}

/// An environment that says nothing of asynchronous I/O.
struct Plain(Arc<SimEnv>);

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

/// The n-th write fails, for every n: whatever the fault left behind, no file comes out, all calls
/// after the error was seen fail with it, and nobody hangs. The same for the cut to length.
#[test]
fn an_error_of_any_write_is_the_outcome() {
    let (at_write, at_landing, at_cut) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    on_all(true, |w| {
        let mut rng = SplitMix64::new(9);
        let bytes = pattern(1, 12 * BUF_ALIGN + 100);
        let mut no = 0;
        for fault in [
            Fault::Errno(libc::EIO),
            Fault::TornWrite(5000, libc::ENOSPC),
            Fault::ErrnoAfter(libc::EIO),
            Fault::Panic,
        ] {
            for nth in (1..18).step_by(if cfg!(miri) { 6 } else { 1 }) {
                no += 1;
                w.fault.clear();
                w.fault.add(Rule::nth(OpKind::Write, nth, fault).on(&format!("f{no}.")));
                let before = w.fault.injected();
                let name = format!("f{no}.");
                let file = w.create(&name);
                let outcome = match write_pieces(w.stream(&file, BUF_ALIGN), &bytes, &mut rng) {
                    Err(e) => {
                        w.count(&at_write, true);
                        Err(e)
                    }
                    Ok(landing) => {
                        let outcome = landing.wait();
                        w.count(&at_landing, outcome.is_err());
                        outcome
                    }
                };
                match outcome {
                    Ok(landed) => {
                        assert!(nth > 13, "{}: write {nth} was to fail", w.name);
                        assert!(read_all(&*landed) == bytes);
                    }
                    // A simulated write may be more pieces than one, so that a later one is the n-th.
                    Err(e) => {
                        assert!(nth <= 13 || w.io.kind() == IoKind::Sim);
                        assert_eq!(w.fault.injected(), before + 1, "{}: {e}", w.name);
                        let kind = match fault {
                            Fault::TornWrite(..) => ErrorKind::NoSpace,
                            Fault::Panic => ErrorKind::Internal,
                            _ => ErrorKind::Io,
                        };
                        assert_eq!(e.kind(), kind, "{}: {e}", w.name);
                    }
                }
            }
        }
        w.fault.clear();
        w.fault.add(Rule::every(OpKind::SetLen, Fault::Errno(libc::EIO)));
        let file = w.create("cut");
        let outcome = write_pieces(w.stream(&file, BUF_ALIGN), &bytes, &mut rng).unwrap().wait();
        assert_eq!(outcome.is_err(), w.direct, "{}", w.name);
        w.count(&at_cut, outcome.is_err());
    });
    let counts = [at_write, at_landing, at_cut].map(AtomicU64::into_inner);
    let wanted = if cfg!(miri) { [3, 1, 1] } else { [100, 50, 4] };
    assert!(counts.iter().zip(wanted).all(|(n, wanted)| *n >= wanted), "{counts:?}");
}

/// After an error was seen, writes, the landing, and what it says later all have that error.
#[test]
fn an_error_stays() {
    on_all(true, |w| {
        w.fault.add(Rule::nth(OpKind::Write, 2, Fault::Errno(libc::EIO)));
        let file = w.create("a");
        let mut stream = w.stream(&file, BUF_ALIGN);
        let piece = vec![1; BUF_ALIGN];
        let first = loop {
            match stream.write(&piece) {
                Ok(()) => w.env.sleep(100_000),
                Err(e) => break e,
            }
            assert!(stream.len() < 100_000 * BUF_ALIGN as u64, "{}: the error never shows", w.name);
        };
        let len = stream.len();
        for _ in 0..10 {
            assert_eq!(stream.write(&piece).unwrap_err().to_string(), first.to_string());
        }
        assert_eq!(stream.len(), len, "bytes were taken in after the error");
        let writes = w.io.stats().submitted_count;
        let mut landing = stream.finish();
        assert_eq!(w.io.stats().submitted_count, writes, "written after the error");
        while !landing.is_done() {
            w.env.sleep(100_000);
        }
        for _ in 0..2 {
            let outcome = landing.try_take().expect("it is done");
            assert_eq!(outcome.map(|_| ()).unwrap_err().to_string(), first.to_string());
        }
        assert_eq!(landing.wait().map(|_| ()).unwrap_err().to_string(), first.to_string());
    });
}

/// Streams and landings dropped at any moment: what was submitted is written all the same.
#[test]
fn a_drop_in_the_middle_withdraws_nothing() {
    let dropped_under_way = AtomicU64::new(0);
    on_all(false, |w| {
        let mut rng = SplitMix64::new(4);
        let count = 3 * SMALL;
        let mut expected = Vec::new();
        for no in 0..count {
            let (name, bytes) = (format!("f{no}"), pattern(no as u64, rng.below(200_000) as usize));
            let file = w.create(&name);
            let mut stream = w.stream(&file, 2 * BUF_ALIGN);
            stream.write(&bytes).unwrap();
            let whole = bytes.len() / (2 * BUF_ALIGN) * 2 * BUF_ALIGN;
            let is_under_way = if rng.chance(1, 2) {
                let is_under_way = stream.bytes_in_flight() > 0;
                drop(stream);
                expected.push((name, bytes[..whole].to_vec()));
                is_under_way
            } else {
                let landing = stream.finish();
                let is_under_way = !landing.is_done();
                drop(landing);
                let mut bytes = bytes;
                if w.direct {
                    bytes.resize(bytes.len().next_multiple_of(BUF_ALIGN), 0);
                }
                expected.push((name, bytes));
                is_under_way
            };
            drop(file);
            w.count(&dropped_under_way, is_under_way);
        }
        w.io.shutdown();
        for (name, bytes) in expected {
            assert!(w.contents(&name) == bytes, "{}: {name} of {} bytes", w.name, bytes.len());
        }
    });
    let n = dropped_under_way.into_inner();
    assert!(n >= if cfg!(miri) { 1 } else { 50 }, "{n}");
}

/// Of a file that has landed a power cut may leave nothing; of one that was synced through the handle
/// it leaves all, with the exact length.
#[test]
fn a_power_cut_between_landing_and_sync_finds_nothing_promised() {
    let (mut lost, mut partly) = (0, 0);
    let seeds = if cfg!(miri) { 2 } else { 100 };
    for seed in 0..seeds {
        let env = SimEnv::new(seed);
        env.run(|| {
            let io = env.start_sim_io(unkind()).unwrap();
            let (path, root) = (Path::new("/a"), Path::new("/"));
            let options = CreateOptions { direct: seed % 2 == 0 };
            let file = env.fs().create_with(path, options).unwrap();
            env.fs().sync_dir(root).unwrap();
            let bytes = pattern(seed, 20_000 + seed as usize * 37);
            let options = StreamOptions { buf_bytes: BUF_ALIGN, ..StreamOptions::default() };
            let mut stream = StreamWriter::new(Arc::clone(&io), file, None, options).unwrap();
            stream.write(&bytes).unwrap();
            let left = |policy| {
                let image = env.sim_fs().crash_image(policy);
                read_all(&*image.open(path, Access::Read).unwrap())
            };
            let landed = stream.finish().wait().unwrap();
            assert!(left(CrashPolicy::DropUnsynced).is_empty(), "seed {seed}: durable without a sync");
            for round in 0..10 {
                let after = left(CrashPolicy::Random(round));
                lost += u64::from(after.len() < bytes.len());
                partly += u64::from(!after.is_empty() && after != bytes);
            }
            let sync = io.submit(IoOp::SyncData { file: landed }).wait();
            assert!(sync.result.is_ok());
            for policy in [CrashPolicy::DropUnsynced, CrashPolicy::Random(seed)] {
                assert!(left(policy) == bytes, "seed {seed}: synced bytes are gone");
            }
        });
    }
    assert!(lost >= seeds && partly >= seeds, "{lost} {partly}");
}

/// A reaper that looks at many landings whenever its event moves misses none.
#[test]
fn a_reaper_woken_by_the_event_sees_every_landing() {
    let waits = AtomicU64::new(0);
    on_all(false, |w| {
        let event = w.env.event();
        let mut landings = Vec::new();
        for no in 0..SMALL {
            let file = w.create(&format!("f{no}"));
            let options = StreamOptions { buf_bytes: BUF_ALIGN, ..StreamOptions::default() };
            let notify = Some(Arc::clone(&event));
            let mut stream = StreamWriter::new(Arc::clone(&w.io), file, notify, options).unwrap();
            stream.write(&pattern(no as u64, no * 10_001)).unwrap();
            landings.push((no, stream.finish()));
        }
        while !landings.is_empty() {
            let seen = event.epoch();
            let before = landings.len();
            landings.retain_mut(|(no, landing)| match landing.try_take() {
                None => true,
                Some(landed) => {
                    assert!(read_all(&*landed.unwrap()) == pattern(*no as u64, *no * 10_001));
                    false
                }
            });
            if landings.len() == before {
                w.count(&waits, true);
                let deadline = w.env.now() + 60_000_000_000;
                assert!(event.wait(seen, Some(deadline)), "{}: not woken", w.name);
            }
        }
    });
    let n = waits.into_inner();
    assert!(n >= if cfg!(miri) { 1 } else { 20 }, "it seldom waited: {n}");
}

/// Past the page cache a service takes operations of any alignment: the kernel never sees them so.
#[test]
#[cfg_attr(miri, ignore = "real files")]
fn unaligned_operations_past_the_page_cache_are_helped() {
    on_os(false, true, &|w: &World| {
        let file = w.create("a");
        let mut rng = SplitMix64::new(2);
        let mut model: Vec<u8> = Vec::new();
        let mut unaligned = 0;
        for round in 0..200 {
            let (offset, len) = (rng.below(60_000) as usize, 1 + rng.below(9000) as usize);
            let (offset, len) = match round % 4 {
                0 => (offset / BUF_ALIGN * BUF_ALIGN, len.next_multiple_of(BUF_ALIGN)),
                1 => (offset / BUF_ALIGN * BUF_ALIGN, len),
                _ => (offset, len),
            };
            let bytes = pattern(round, len);
            let mut buf = if round % 3 == 0 { Buf::from(Vec::new()) } else { Buf::with_capacity(len) };
            buf.extend_from_slice(&bytes);
            unaligned += u64::from(round % 4 > 0);
            let write = IoOp::Write { file: Arc::clone(&file), buf, offset: offset as u64 };
            assert_eq!(w.io.submit(write).wait().result.unwrap(), len, "{}", w.name);
            model.resize(model.len().max(offset + len), 0);
            model[offset..offset + len].copy_from_slice(&bytes);
            assert_eq!(file.len().unwrap(), model.len() as u64);

            let (from, len) = (rng.below(model.len() as u64) as usize, 1 + rng.below(9000) as usize);
            let read = IoOp::Read { file: Arc::clone(&file), buf: Buf::zeroed(len), offset: from as u64 };
            let done = w.io.submit(read).wait();
            let held = &model[from..model.len().min(from + len)];
            assert_eq!(done.result.unwrap(), held.len(), "{}: {len} bytes from {from}", w.name);
            assert!(*done.buf == *held, "{}: {len} bytes from {from}", w.name);
        }
        assert!(read_all(&*file) == model && w.contents("a") == model, "{}", w.name);
        let stats = w.io.stats();
        assert_eq!(w.io.kind() == IoKind::Ring, stats.helped_count >= unaligned, "{}: {stats:?}", w.name);
    });
}

/// The simulation refuses what would be slow in life, so that other tests find it.
#[test]
fn the_simulation_refuses_unaligned_writes_past_the_page_cache() {
    let env = SimEnv::new(1);
    let fs = env.sim_fs();
    let options = CreateOptions { direct: true };
    let file = fs.create_with(Path::new("/a"), options).unwrap();
    assert!(file.is_direct() && !fs.create(Path::new("/b")).unwrap().is_direct());
    let blocks = Buf::zeroed(3 * BUF_ALIGN);
    file.write_at(&blocks[..BUF_ALIGN], BUF_ALIGN as u64).unwrap();
    file.write_at(&[], 5).unwrap();
    for (bytes, offset) in
        [(&blocks[..100], 0), (&blocks[..BUF_ALIGN], 100), (&blocks[512..][..BUF_ALIGN], 0)]
    {
        let refused = file.write_at(bytes, offset).unwrap_err();
        assert_eq!((refused.os_code(), refused.path()), (Some(libc::EINVAL), Some(file.path())));
    }
    let reader = fs.open_with(Path::new("/a"), Access::Read, OpenOptions { direct: true }).unwrap();
    assert!(reader.is_direct());
    assert_eq!(reader.read_at(&mut [0; 100], 8100).unwrap(), 92, "reads may be as they like");
}

#[test]
fn options_out_of_range_are_refused() {
    let sim = SimEnv::new(1);
    let io = Plain(Arc::clone(&sim)).start_io(&IoOptions::default()).unwrap();
    let file = sim.fs().create(Path::new("/a")).unwrap();
    for buf_bytes in [0, 1, 4095, 4097, 6000, (1 << 30) + 4096] {
        let options = StreamOptions { buf_bytes, ..StreamOptions::default() };
        let refused = StreamWriter::new(Arc::clone(&io), Arc::clone(&file), None, options);
        assert_eq!(refused.map(|_| ()).unwrap_err().kind(), ErrorKind::InvalidArgument, "{buf_bytes}");
    }
}
