//! The kernel's ring: the only place where it is given addresses of our memory, and the only unsafe
//! code of the asynchronous services.
//!
//! ```text
//!   push --> slots[i] = Slot{task, part}; one entry in the submission queue, or two linked ones
//!            (write, fsync) with user_data = 2 i + (0 transfer, 1 sync)
//!   enter -> the kernel takes entries from the front of the submission queue
//!   reap --> completion entries; when the last of a slot came, slots[i] is free, the task is out
//! ```
//!
//! INVARIANT (memory): the kernel may read or write a slot's buffer and use its descriptor from
//! `push` until the slot's last completion is reaped. In between the slot owns the task, nobody
//! touches its buffer, and its bytes do not move, for a `Buf` holds them by a vector that nobody
//! grows. A slot is emptied by `reap` with its last completion, by `take_back` if the kernel never
//! saw its entries, or by `abandon`, which leaks it. `Drop` waits until all slots are empty, and
//! leaks what does not come back. Attacked by `dropped_tickets_…` in the conformance tests.
//!
//! INVARIANT (room): no more completions can be due than the completion queue holds, so it does not
//! overflow; if it did, kernels with NODROP (the only ones taken) keep what is over until the next
//! `enter`. The tests make it overflow on purpose.
//!
//! The ring is used by one thread, which submits and reaps: the kernel cancels what a thread
//! submitted when that thread ends, so callers' threads must not submit. Others ring a bell, an
//! eventfd.
//!
//! That thread sleeps in `poll`, on ring and bell, and never in `io_uring_enter`. That is one more
//! call a sleep, which costs nothing beside being woken; but monitors that run one thread of a process
//! at a time have to know which calls sleep, to let the others run meanwhile, and valgrind (3.19 for
//! one) does not know it of `io_uring_enter`: nobody would run who could ring the bell.
//!
//! Absent on purpose: fixed files and registered buffers, and a polling kernel thread (it would take a
//! processor for itself). Measured by `examples/io_bench.rs` on two busy cores: a table's write of 1 MiB
//! costs 286 us of processor time through the page cache, registered 267 us (best rounds: 247 and 242); past
//! it 48 us and 19 us, which is under a hundredth of what merging a MiB costs; direct reads of 64 KiB 9 us and
//! 5 us, of 4 KiB 4.4 us and 3.9 us, at a latency of 100 us and more that does not change. Cached reads of
//! 4 KiB fall from 1.6 us to 0.6 us, but those do not come here.

#![allow(unsafe_code)]

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, poll};

use super::kernel::{Completion, Echo, Kernel, try_out};
use super::task::{Part, Task};
use crate::error::{Error, ErrorKind};

/// How long `Drop` looks for completions that the kernel no longer lets us wait for.
const LAST_LOOKS: u32 = 10_000;
const LAST_PAUSE: Duration = Duration::from_millis(1);

/// Whether a completion is of the sync that follows a transfer.
fn is_sync(user_data: u64) -> bool {
    user_data & 1 == 1
}

/// Sleeps until the ring has a completion, somebody rings, a signal comes or the time is over. What
/// makes that impossible at the moment only makes it short.
fn sleep(ring: &IoUring, bell: &Bell, at_most: Option<Timespec>) {
    let mut on = [PollFd::new(ring, PollFlags::IN), PollFd::new(&*bell.0, PollFlags::IN)];
    match poll(&mut on, at_most.as_ref()) {
        Ok(_) if on[1].revents().contains(PollFlags::IN) => bell.hush(),
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(_) => std::thread::sleep(LAST_PAUSE),
    }
}

/// A ring just set up, which has to show that it works.
struct Fresh<'a> {
    ring: &'a mut IoUring,
    bell: &'a Bell,
}

impl Echo for Fresh<'_> {
    fn send(&mut self) -> io::Result<()> {
        let nop = opcode::Nop::new().build();
        // SAFETY: a no-op uses no memory.
        unsafe { self.ring.submission().push(&nop) }.expect("an empty queue has room");
        // Filters may refuse this call alone.
        self.ring.submit().map(|_| ())
    }

    fn has_come_back(&mut self, within: Duration) -> bool {
        if self.ring.completion().is_empty() {
            let within = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: within.subsec_nanos().into() };
            sleep(self.ring, self.bell, Some(within));
        }
        self.ring.completion().next().is_some()
    }
}

/// Wakes the thread that sleeps in `enter`.
#[derive(Clone)]
pub(super) struct Bell(Arc<OwnedFd>);

impl Bell {
    pub(super) fn ring(&self) {
        // Fails only when it has been rung 2^64 - 2 times unheard, and then it is ringing.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    fn hush(&self) {
        // Fails only when it is silent.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

struct Slot {
    task: Task,
    part: Part,
    /// Completions still to come.
    due: u32,
    res: Option<i32>,
    sync_res: Option<i32>,
}

pub(super) struct Uring {
    /// Declared before `slots`, though `Drop` empties those first anyway.
    ring: IoUring,
    bell: Bell,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    /// `user_data` of the entries in the submission queue, oldest first.
    queued: VecDeque<u64>,
    /// Completions that may still come.
    due: usize,
    due_max: usize,
    /// Parts that are over without a completion, after the ring broke.
    halves: Vec<Completion>,
    is_broken: bool,
}

impl Uring {
    /// Sets a ring up and tries it out.
    ///
    /// # Errors
    /// The kernel's refusal, with the step at which it came.
    pub(super) fn open(entries: u32) -> io::Result<Uring> {
        Uring::open_with(entries, entries * 2, entries as usize * 2)
    }

    /// `due_max` above the completion queue's size lets it overflow.
    pub(super) fn open_with(entries: u32, cq_entries: u32, due_max: usize) -> io::Result<Uring> {
        let at = |step: &'static str| move |e: io::Error| io::Error::new(e.kind(), format!("{step}: {e}"));
        // A child must not see the queues: `dontfork`. The descriptor closes on exec by itself.
        let mut ring = IoUring::builder()
            .dontfork()
            .setup_clamp()
            .setup_cqsize(cq_entries)
            .build(entries)
            .map_err(at("setup"))?;
        if !ring.params().is_feature_nodrop() {
            return Err(io::Error::other("this kernel drops completions"));
        }
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe).map_err(at("probe"))?;
        let codes =
            [opcode::Read::CODE, opcode::Write::CODE, opcode::Fsync::CODE, opcode::SyncFileRange::CODE];
        if !codes.iter().all(|code| probe.is_supported(*code)) {
            return Err(io::Error::other("this kernel lacks an operation"));
        }
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| at("eventfd")(e.into()))?;
        let bell = Bell(Arc::new(bell));
        try_out(&mut Fresh { ring: &mut ring, bell: &bell }).map_err(at("enter"))?;
        Ok(Uring {
            ring,
            bell,
            slots: Vec::new(),
            free: Vec::new(),
            queued: VecDeque::new(),
            due: 0,
            due_max,
            halves: Vec::new(),
            is_broken: false,
        })
    }

    pub(super) fn bell(&self) -> Bell {
        self.bell.clone()
    }

    /// Bounds the kernel's threads that do what would block; to be called on the thread that
    /// submits, as they are that thread's own. A kernel that does not know this has its own bound.
    pub(super) fn limit_workers(&self, threads: u32) {
        let _ = self.ring.submitter().register_iowq_max_workers(&mut [threads, 0]);
    }

    fn has_room(&mut self, entries: usize) -> bool {
        let sq = self.ring.submission();
        sq.capacity() - sq.len() >= entries && self.due + entries <= self.due_max
    }

    /// Queues an entry; room was checked.
    ///
    /// # Safety
    /// Memory and descriptor that the entry names stay valid, and nobody touches the memory, until
    /// its completion is reaped.
    unsafe fn queue(&mut self, entry: squeue::Entry, user_data: u64) {
        // SAFETY: passed on to the caller.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(user_data)) };
        pushed.expect("room was checked, and one thread pushes");
        self.queued.push_back(user_data);
    }

    fn note(&mut self, user_data: u64, res: i32) -> Option<Completion> {
        let index = (user_data / 2) as usize;
        let slot = self.slots[index].as_mut().expect("a completion's slot is full until its last one");
        let part_res = if is_sync(user_data) { &mut slot.sync_res } else { &mut slot.res };
        *part_res = Some(res);
        slot.due -= 1;
        self.due -= 1;
        if slot.due > 0 { None } else { self.take(index) }
    }

    /// Empties a slot of which no completion is due.
    fn take(&mut self, index: usize) -> Option<Completion> {
        let Slot { task, part, res, sync_res, .. } = self.slots[index].take()?;
        self.free.push(index);
        let res = res.expect("a slot is taken after its completion");
        Some(Completion { task, part, res, sync_res })
    }

    fn forget_consumed(&mut self) {
        let left = self.ring.submission().len();
        while self.queued.len() > left {
            self.queued.pop_front();
        }
    }
}

impl Kernel for Uring {
    fn can_do(&self, task: &Task) -> bool {
        task.dir.is_some() || task.op.file().is_some_and(|file| file.fd().is_some())
    }

    fn push(&mut self, task: Task) -> Result<(), Task> {
        let part = task.part();
        let entries = if matches!(part, Part::Transfer { then_sync: true, .. }) { 2 } else { 1 };
        if !self.has_room(entries) {
            return Err(task);
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let slot = Slot { task, part, due: entries as u32, res: None, sync_res: None };
        let Slot { task, .. } = self.slots[index].insert(slot);
        let file_fd = task.op.file().and_then(|file| file.fd()).map(|fd| fd.as_raw_fd());
        let dir_fd = task.dir.as_ref().map(|fd| fd.as_raw_fd());
        let fd = types::Fd(file_fd.or(dir_fd).expect("the driver pushes only what has a descriptor"));
        let data_sync = opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build();
        let first = match part {
            Part::SyncData => data_sync.clone(),
            Part::SyncDir => opcode::Fsync::new(fd).build(),
            Part::Writeback { offset, len } => {
                // The ring's call takes 32 bits, and 0 would be all that follows. What is beyond waits
                // for the sync.
                let len = u32::try_from(len).unwrap_or(u32::MAX);
                let flags = libc::SYNC_FILE_RANGE_WRITE;
                opcode::SyncFileRange::new(fd, len).offset(offset).flags(flags).build()
            }
            Part::Transfer { is_write, from, to, offset, .. } => {
                let buf = task.op.buf_mut().expect("only operations with a buffer transfer");
                let bytes = &mut buf[from..to];
                // Parts are at most 2^30 bytes.
                let (address, len) = (bytes.as_mut_ptr(), bytes.len() as u32);
                if is_write {
                    opcode::Write::new(fd, address, len).offset(offset).build()
                } else {
                    opcode::Read::new(fd, address, len).offset(offset).build()
                }
            }
        };
        let user_data = index as u64 * 2;
        let flags = if entries == 2 { squeue::Flags::IO_LINK } else { squeue::Flags::empty() };
        // SAFETY: address and length are of the slot's own buffer, the descriptor is kept open by
        // the slot's task, and the slot stays as it is until the completion (the first invariant).
        unsafe { self.queue(first.flags(flags), user_data) };
        if entries == 2 {
            // SAFETY: a sync uses no memory; the descriptor as above.
            unsafe { self.queue(data_sync, user_data + 1) };
        }
        self.due += entries;
        Ok(())
    }

    fn enter(&mut self, wait: bool) -> io::Result<()> {
        let entered = self.ring.submit();
        self.forget_consumed();
        match entered.map_err(|e| (e.raw_os_error(), e)) {
            Ok(_) => {
                // What the kernel has not taken yet must not wait for a completion.
                if wait && self.queued.is_empty() && self.ring.completion().is_empty() {
                    sleep(&self.ring, &self.bell, None);
                }
                Ok(())
            }
            Err((Some(libc::EINTR), _)) => Ok(()),
            // No memory at the moment, or completions must be reaped first: what was not taken
            // stays in the queue.
            Err((Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM), _)) => {
                if self.ring.completion().is_empty() {
                    std::thread::sleep(LAST_PAUSE);
                }
                Ok(())
            }
            Err((_, e)) => {
                self.is_broken = true;
                Err(e)
            }
        }
    }

    fn reap(&mut self) -> Option<Completion> {
        if let Some(half) = self.halves.pop() {
            return Some(half);
        }
        loop {
            let entry = self.ring.completion().next()?;
            if let Some(whole) = self.note(entry.user_data(), entry.result()) {
                return Some(whole);
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn take_back(&mut self) -> Vec<Task> {
        self.is_broken = true;
        let mut tasks = Vec::new();
        // Newest first, so that of a pair the sync comes before its write.
        while let Some(user_data) = self.queued.pop_back() {
            let index = (user_data / 2) as usize;
            let slot = self.slots[index].as_mut().expect("queued entries have a slot");
            slot.due -= 1;
            self.due -= 1;
            match (is_sync(user_data), slot.due, slot.res) {
                // The kernel knows nothing of it.
                (false, 0, _) => {
                    tasks.extend(self.slots[index].take().map(|slot| slot.task));
                    self.free.push(index);
                }
                // It took the write without the sync, and the write is over.
                (true, 0, Some(_)) => {
                    slot.sync_res = Some(-libc::ECANCELED);
                    let half = self.take(index);
                    self.halves.extend(half);
                }
                (true, ..) => slot.sync_res = Some(-libc::ECANCELED),
                (false, ..) => {}
            }
        }
        tasks.reverse();
        tasks
    }

    fn abandon(&mut self) {
        for slot in self.slots.drain(..).flatten() {
            let e = Error::new(ErrorKind::Io, "io_uring was taken away; the outcome is not known");
            slot.task.leak(e);
        }
        self.free.clear();
        self.due = 0;
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        let mut looks = 0;
        while self.in_flight() > 0 {
            if self.is_broken {
                looks += 1;
                if looks > LAST_LOOKS {
                    return self.abandon();
                }
                std::thread::sleep(LAST_PAUSE);
            } else if self.enter(true).is_err() {
                drop(self.take_back());
            }
            while let Some(completion) = self.reap() {
                drop(completion);
            }
        }
    }
}
