//! The driver over a fake kernel that is as unkind as the documentation allows.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::env::Fork;
use crate::env::sim::SimEnv;
use crate::error::ErrorKind;
use crate::fs::sim::{CrashPolicy, SimFs};
use crate::fs::{Access, Advice, File, Fs};
use crate::ring::kernel::{Echo, try_out};
use crate::ring::pool::Workers;
use crate::ring::task::Front;
use crate::ring::{BUF_ALIGN, Buf, IoOp, IoTicket, is_aligned};
use crate::rng::SplitMix64;

/// How unkind, each in a thousand.
#[derive(Clone, Copy, Default)]
struct Moods {
    /// Transfers cut short.
    short: u64,
    /// Parts that did not run: EINTR, EAGAIN or ECANCELED.
    not_run: u64,
    /// Syncs linked behind a short write that run all the same, as old kernels had it.
    sync_runs_anyway: u64,
    /// Parts that fail for good.
    fails: u64,
    /// Parts that only plain calls can do.
    unsupported: u64,
    /// Calls of `enter` after which the ring is gone.
    gone: u64,
}

struct FakeKernel {
    rng: SplitMix64,
    moods: Moods,
    room: usize,
    /// Queued, and not heard of by the kernel before `enter`.
    queued: Vec<(Task, Part)>,
    taken: Vec<(Task, Part)>,
    done: VecDeque<Completion>,
    is_gone: bool,
    /// Completions that never come.
    lost: Vec<(Task, Part)>,
}

impl FakeKernel {
    fn new(seed: u64, moods: Moods) -> FakeKernel {
        let (queued, taken, lost) = (Vec::new(), Vec::new(), Vec::new());
        let rng = SplitMix64::new(seed);
        FakeKernel { rng, moods, room: 6, queued, taken, done: VecDeque::new(), is_gone: false, lost }
    }

    fn is_mood(&mut self, permille: u64) -> bool {
        self.rng.chance(permille, 1000)
    }

    fn did_not_run(&mut self) -> i32 {
        -[libc::EINTR, libc::EAGAIN, libc::ECANCELED][self.rng.below(3) as usize]
    }

    fn sync(&mut self, file: &Arc<dyn File>) -> i32 {
        if self.is_mood(self.moods.not_run) {
            return self.did_not_run();
        }
        if self.is_mood(self.moods.fails) {
            return -libc::EIO;
        }
        file.sync_data().unwrap();
        0
    }

    fn transfer(&mut self, task: &mut Task, part: Part) -> i32 {
        let Part::Transfer { is_write, from, to, offset, .. } = part else { panic!("not a transfer") };
        let moods = self.moods;
        if self.is_mood(moods.not_run) {
            return self.did_not_run();
        }
        if self.is_mood(moods.unsupported) {
            return -libc::EOPNOTSUPP;
        }
        if self.is_mood(moods.fails) {
            return -libc::ENOSPC;
        }
        let mut len = to - from;
        if len > 1 && self.is_mood(moods.short) {
            len = 1 + self.rng.below(len as u64 - 1) as usize;
        }
        let file = Arc::clone(task.op.file().unwrap());
        let asked = &task.op.buf().unwrap()[from..to];
        assert!(!file.is_direct() || is_aligned(asked, offset), "the kernel would refuse it");
        let bytes = &mut task.op.buf_mut().unwrap()[from..from + len];
        if is_write {
            file.write_at(bytes, offset).unwrap();
            len as i32
        } else {
            file.read_at(bytes, offset).unwrap() as i32
        }
    }

    fn perform(&mut self, mut task: Task, part: Part) -> Completion {
        let Some(file) = task.op.file().cloned() else {
            return Completion { task, part, res: 0, sync_res: None };
        };
        if let Part::Writeback { .. } = part {
            let res = if self.is_mood(self.moods.fails) { -libc::ENOSPC } else { 0 };
            return Completion { task, part, res, sync_res: None };
        }
        if part == Part::SyncData {
            let res = self.sync(&file);
            return Completion { task, part, res, sync_res: None };
        }
        let res = self.transfer(&mut task, part);
        let sync_res = match part {
            Part::Transfer { from, to, then_sync: true, .. } => {
                let is_whole = res == (to - from) as i32;
                let runs = is_whole || (res > 0 && self.is_mood(self.moods.sync_runs_anyway));
                Some(if runs { self.sync(&file) } else { -libc::ECANCELED })
            }
            _ => None,
        };
        Completion { task, part, res, sync_res }
    }
}

impl Kernel for FakeKernel {
    fn can_do(&self, task: &Task) -> bool {
        task.op.file().is_some()
    }

    fn push(&mut self, task: Task) -> std::result::Result<(), Task> {
        if self.in_flight() >= self.room {
            return Err(task);
        }
        let part = task.part();
        self.queued.push((task, part));
        Ok(())
    }

    fn enter(&mut self, _wait: bool) -> io::Result<()> {
        if self.is_gone || self.is_mood(self.moods.gone) {
            self.is_gone = true;
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        // Takes some of what is queued, in order; does some of what it has, in any order.
        let n = self.rng.below(self.queued.len() as u64 + 1) as usize;
        self.taken.extend(self.queued.drain(..n));
        Ok(())
    }

    fn reap(&mut self) -> Option<Completion> {
        if !self.taken.is_empty() && self.is_mood(700) {
            let nth = self.rng.below(self.taken.len() as u64) as usize;
            let (task, part) = self.taken.swap_remove(nth);
            let completion = self.perform(task, part);
            self.done.push_back(completion);
        }
        self.done.pop_front()
    }

    fn in_flight(&self) -> usize {
        self.queued.len() + self.taken.len() + self.done.len() + self.lost.len()
    }

    fn take_back(&mut self) -> Vec<Task> {
        self.queued.drain(..).map(|(task, _)| task).collect()
    }

    fn abandon(&mut self) {
        for (task, _) in self.taken.drain(..).chain(self.lost.drain(..)) {
            task.leak(crate::error::Error::new(ErrorKind::Io, "given up"));
        }
    }
}

/// A driver in a simulation, and what is needed to feed it.
struct World {
    env: Arc<SimEnv>,
    front: Front,
    helper: Workers,
}

impl World {
    fn new(seed: u64) -> World {
        let env = SimEnv::new(seed);
        env.set_switch_at_notify(false);
        let front = Front::new(&*env, Fork::default());
        let helper = env.run(|| Workers::start(&*env, 1, "help").unwrap());
        World { env, front, helper }
    }

    fn driver(&self, seed: u64, moods: Moods) -> Driver<FakeKernel> {
        Driver::new(FakeKernel::new(seed, moods), self.helper.pusher())
    }

    fn submit(&self, driver: &mut Driver<FakeKernel>, op: IoOp) -> IoTicket {
        let Ok((task, ticket)) = self.front.admit(op, None) else { panic!("refused") };
        driver.take_on([task]);
        ticket
    }
}

/// Lets a driver work until it is idle; false when the ring went away in between.
fn drive(driver: &mut Driver<FakeKernel>) -> bool {
    for _ in 0..100_000 {
        driver.push();
        if driver.is_idle() {
            return true;
        }
        if driver.turn(true).is_err() {
            driver.wind_down(1000, &|| ());
            return false;
        }
    }
    panic!("it never gets idle");
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = SplitMix64::new(seed);
    (0..len).map(|_| rng.next_u64() as u8).collect()
}

fn survivors(fs: &SimFs, path: &Path) -> Vec<u8> {
    let file = fs.crash_image(CrashPolicy::DropUnsynced).open(path, Access::Read).unwrap();
    let mut held = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut held, 0).unwrap();
    held
}

/// Kernels that are tried out: when the no-op comes back, if ever, and how often that was looked for.
struct Echoing {
    refuses: Option<i32>,
    comes_back_at: Option<u32>,
    sent: u32,
    looks: u32,
}

impl Echo for Echoing {
    fn send(&mut self) -> io::Result<()> {
        self.sent += 1;
        self.refuses.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
    }

    fn has_come_back(&mut self, within: Duration) -> bool {
        assert!(within > Duration::ZERO && within < Duration::from_secs(1), "{within:?}");
        self.looks += 1;
        self.comes_back_at.is_some_and(|at| self.looks > at)
    }
}

/// Under some monitors and emulators a kernel takes operations and never ends them: it is found out
/// before anything is entrusted to it, by waits that end.
#[test]
fn a_kernel_that_never_ends_a_no_op_is_refused() {
    let kernel = |refuses, comes_back_at| Echoing { refuses, comes_back_at, sent: 0, looks: 0 };
    let mut never = kernel(None, None);
    let error = try_out(&mut never).unwrap_err();
    assert_eq!((error.kind(), never.sent, never.looks), (io::ErrorKind::TimedOut, 1, 10));
    assert!(error.to_string().contains("no-op"), "{error}");
    for at in [0, 1, 9] {
        let mut late = kernel(None, Some(at));
        try_out(&mut late).unwrap();
        assert_eq!((late.sent, late.looks), (1, at + 1));
    }
    let mut refusing = kernel(Some(libc::EPERM), Some(0));
    let error = try_out(&mut refusing).unwrap_err();
    assert_eq!((error.raw_os_error(), refusing.looks), (Some(libc::EPERM), 0));
}

/// One write with its sync at a time, then a power cut: the whole write is there whenever the
/// ticket said so, whatever became of the link.
#[test]
fn a_short_write_never_lets_its_sync_count() {
    let (mut short, mut retried, mut good, mut failed) = (0, 0, 0, 0);
    for seed in 0..if cfg!(miri) { 10 } else { 300 } {
        let world = World::new(seed);
        world.env.clone().run(|| {
            let moods =
                Moods { short: 600, not_run: 200, sync_runs_anyway: 500, fails: 30, ..Moods::default() };
            let mut driver = world.driver(seed, moods);
            let fs = world.env.sim_fs();
            let file = fs.create(Path::new("/a")).unwrap();
            fs.sync_dir(Path::new("/")).unwrap();
            let mut at = 0;
            for round in 0..4 {
                let data = bytes(seed + round, 300);
                let buf = data.clone().into();
                let op = IoOp::WriteThenSync { file: Arc::clone(&file), buf, offset: at };
                let ticket = world.submit(&mut driver, op);
                assert!(drive(&mut driver));
                let done = ticket.wait();
                assert!(*done.buf == *data, "the buffer comes back, failed or not");
                match done.result {
                    Ok(n) => {
                        assert_eq!(n, 300);
                        let held = survivors(fs, Path::new("/a"));
                        assert!(held.get(at as usize..at as usize + 300) == Some(&data[..]), "seed {seed}");
                        at += 300;
                        good += 1;
                    }
                    Err(e) => {
                        assert!(matches!(e.kind(), ErrorKind::Io | ErrorKind::NoSpace), "{e}");
                        failed += 1;
                    }
                }
            }
            let stats = world.front.counts().snapshot();
            short += stats.short_count;
            retried += stats.retried_count;
            world.helper.shutdown();
        });
    }
    if !cfg!(miri) {
        assert!(
            short >= 1000 && retried >= 500 && good >= 500 && failed >= 50,
            "{short} {retried} {good} {failed}"
        );
    }
}

/// Many operations at once under every mood; each ticket ends, with the right bytes.
#[test]
fn every_ticket_ends_with_the_right_bytes_under_every_mood() {
    let (mut helped, mut short, mut gone) = (0, 0, 0);
    for seed in 0..if cfg!(miri) { 8 } else { 200 } {
        let world = World::new(seed);
        world.env.clone().run(|| {
            let mut rng = SplitMix64::new(seed);
            let moods = Moods {
                short: rng.below(800),
                not_run: [0, 100, 600, 950][rng.below(4) as usize],
                unsupported: rng.below(2) * 50,
                gone: if seed % 4 == 3 { 30 } else { 0 },
                ..Moods::default()
            };
            let mut driver = world.driver(seed, moods);
            let fs = world.env.sim_fs();
            let file = fs.create(Path::new("/a")).unwrap();
            let mut tickets = Vec::new();
            for slot in 0..30 {
                let buf = bytes(slot, 200).into();
                let op = IoOp::Write { file: Arc::clone(&file), buf, offset: slot * 200 };
                tickets.push((slot, world.submit(&mut driver, op)));
            }
            tickets.push((1000, world.submit(&mut driver, IoOp::SyncDir { dir: "/".into() })));
            let mut is_there = drive(&mut driver);
            for (slot, ticket) in tickets {
                let done = ticket.wait();
                assert!(done.result.is_ok(), "seed {seed}: {done:?}");
                assert!(slot == 1000 || *done.buf == *bytes(slot, 200));
            }
            let mut tickets = Vec::new();
            for slot in 0..31 {
                let (file, buf) = (Arc::clone(&file), vec![0; 200].into());
                tickets.push((slot, world.submit(&mut driver, IoOp::Read { file, buf, offset: slot * 200 })));
            }
            if is_there {
                is_there = drive(&mut driver);
            } else {
                driver.wind_down(1000, &|| ());
            }
            for (slot, ticket) in tickets {
                let done = ticket.wait();
                let len = if slot < 30 { 200 } else { 0 };
                assert_eq!(done.result.unwrap(), len, "seed {seed}: slot {slot}");
                assert!(*done.buf == bytes(slot, 200)[..len]);
            }
            gone += u32::from(!is_there);
            let stats = world.front.counts().snapshot();
            helped += stats.helped_count;
            short += stats.short_count;
            assert_eq!((stats.submitted_count, stats.in_flight_bytes), (stats.completed_count, 0));
            world.helper.shutdown();
        });
    }
    if !cfg!(miri) {
        assert!(helped >= 500 && short >= 2000 && gone >= 20, "{helped} {short} {gone}");
    }
}

/// Whatever the kernel says to a hint, there is nothing to be done.
#[test]
fn a_refused_write_back_is_no_failure() {
    let world = World::new(3);
    world.env.clone().run(|| {
        let mut driver = world.driver(3, Moods { fails: 500, ..Moods::default() });
        let file = world.env.sim_fs().create(Path::new("/a")).unwrap();
        for no in 0..50 {
            let op = IoOp::StartWriteback { file: Arc::clone(&file), offset: no * 4096, len: 4096 };
            let ticket = world.submit(&mut driver, op);
            assert!(drive(&mut driver));
            assert_eq!(ticket.wait().result.unwrap(), 0);
        }
        let stats = world.front.counts().snapshot();
        assert_eq!((stats.completed_count, stats.failed_count, stats.retried_count), (50, 0, 0));
        world.helper.shutdown();
    });
}

/// The ring is taken away and some completions never come: those tickets end with an error, and
/// what the kernel may still write to is not freed. It leaks, and Miri knows no leak on purpose.
#[test]
#[cfg_attr(miri, ignore)]
fn what_never_comes_back_is_given_up() {
    let world = World::new(1);
    world.env.clone().run(|| {
        let mut driver = world.driver(1, Moods::default());
        let fs = world.env.sim_fs();
        let file = fs.create(Path::new("/a")).unwrap();
        let op = |no: u64| IoOp::Write { file: Arc::clone(&file), buf: vec![1; 10].into(), offset: no * 10 };
        let tickets: Vec<_> = (0..4).map(|no| world.submit(&mut driver, op(no))).collect();
        driver.push();
        let mut queued = driver.kernel.queued.drain(..).collect::<Vec<_>>();
        driver.kernel.lost.push(queued.remove(0));
        driver.kernel.taken.push(queued.remove(0));
        driver.kernel.queued = queued;
        driver.kernel.is_gone = true;
        assert!(driver.turn(true).is_err());
        let looks = std::cell::Cell::new(0);
        driver.wind_down(50, &|| looks.set(looks.get() + 1));
        assert_eq!(looks.get(), 50);
        let outcomes: Vec<_> = tickets.into_iter().map(|ticket| ticket.wait().result.is_ok()).collect();
        assert_eq!(outcomes, [false, true, true, true]);
        assert!(driver.is_idle());
        world.helper.shutdown();
    });
}

/// A file past the page cache that helps itself with unaligned calls, as the real one does.
struct PastCache(Arc<dyn File>);

impl File for PastCache {
    fn path(&self) -> &Path {
        self.0.path()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, crate::Error> {
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), crate::Error> {
        self.0.write_at(buf, offset)
    }
    fn sync_data(&self) -> Result<(), crate::Error> {
        self.0.sync_data()
    }
    fn start_writeback(&self, offset: u64, len: u64) {
        self.0.start_writeback(offset, len);
    }
    fn allocate(&self, offset: u64, len: u64) -> Result<(), crate::Error> {
        self.0.allocate(offset, len)
    }
    fn set_len(&self, len: u64) -> Result<(), crate::Error> {
        self.0.set_len(len)
    }
    fn len(&self) -> Result<u64, crate::Error> {
        self.0.len()
    }
    fn advise(&self, advice: Advice) {
        self.0.advise(advice);
    }
    fn is_direct(&self) -> bool {
        true
    }
}

/// Past the page cache the kernel is given aligned parts only; the others, rests of short transfers
/// among them, are done all the same.
#[test]
fn unaligned_parts_past_the_page_cache_are_left_to_the_helper() {
    let (mut raw, mut helped) = (0, 0);
    for seed in 0..20 {
        let world = World::new(seed);
        world.env.run(|| {
            let inner = world.env.sim_fs().create(Path::new("/a")).unwrap();
            let file: Arc<dyn File> = Arc::new(PastCache(inner));
            let moods = Moods { short: if seed % 2 == 0 { 300 } else { 0 }, ..Moods::default() };
            let mut driver = world.driver(seed, moods);
            let mut rng = SplitMix64::new(seed);
            let mut at = 0u64;
            for round in 0..20 {
                let len = if round % 3 == 0 { 1 + rng.below(9000) as usize } else { 2 * BUF_ALIGN };
                let mut buf = Buf::with_capacity(len);
                buf.extend_from_slice(&bytes(round, len));
                if round % 3 == 1 {
                    at = at.next_multiple_of(BUF_ALIGN as u64);
                }
                let op = IoOp::WriteThenSync { file: Arc::clone(&file), buf, offset: at };
                let ticket = world.submit(&mut driver, op);
                assert!(drive(&mut driver));
                let done = ticket.wait();
                assert_eq!(done.result.unwrap(), len);
                let mut held = vec![0; len];
                assert_eq!(file.read_at(&mut held, at).unwrap(), len);
                assert!(held == *done.buf && held == bytes(round, len), "seed {seed}");
                at += len as u64;
            }
            let stats = world.front.counts().snapshot();
            raw += stats.completed_count - stats.helped_count;
            helped += stats.helped_count;
            world.helper.shutdown();
        });
    }
    assert!(raw >= 50 && helped >= 100, "{raw} {helped}");
}
