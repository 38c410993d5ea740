//! The real kernel's ring in corners that the service keeps away from. Where the machine refuses
//! io_uring there is nothing to test.

use std::sync::Arc;

use super::*;
use crate::env::Fork;
use crate::env::os::OsEnv;
use crate::fs::{File, Fs};
use crate::ring::task::Front;
use crate::ring::{Buf, IoOp, IoTicket};

struct World {
    front: Front,
    file: Arc<dyn File>,
    _dir: tempfile::TempDir,
}

fn world() -> World {
    let dir = tempfile::tempdir().unwrap();
    let env = OsEnv::new();
    let file = crate::fs::os::OsFs::new().create(&dir.path().join("a")).unwrap();
    file.write_at(&[5; 1000], 0).unwrap();
    World { front: Front::new(&*env, Fork::default()), file, _dir: dir }
}

impl World {
    fn read(&self, len: usize) -> (Task, IoTicket) {
        let op = IoOp::Read { file: Arc::clone(&self.file), buf: Buf::zeroed(len), offset: 0 };
        let Ok(both) = self.front.admit(op, None) else { panic!("refused") };
        both
    }
}

fn open(entries: u32, cq_entries: u32, due_max: usize) -> Option<Uring> {
    match Uring::open_with(entries, cq_entries, due_max) {
        Ok(uring) => Some(uring),
        Err(e) => {
            eprintln!("not tested here: {e}");
            None
        }
    }
}

/// More completions than the queue holds, none reaped: all of them come in the end.
#[test]
fn an_overflowing_completion_queue_loses_nothing() {
    let Some(mut uring) = open(4, 4, 100) else { return };
    let world = world();
    let mut tickets = Vec::new();
    for len in 1..=60 {
        let (mut task, ticket) = world.read(len);
        // Full queues are handed over and tried again.
        while let Err(back) = uring.push(task) {
            task = back;
            uring.enter(false).unwrap();
        }
        tickets.push((len, ticket));
    }
    uring.enter(false).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert!(uring.ring.submission().cq_overflow(), "the queue did not overflow, so this tests nothing");
    let mut count = 0;
    while count < 60 {
        uring.enter(true).unwrap();
        while let Some(Completion { mut task, res, .. }) = uring.reap() {
            task.done = res as usize;
            task.succeed();
            count += 1;
        }
    }
    assert_eq!((uring.in_flight(), uring.due), (0, 0));
    for (len, ticket) in tickets {
        assert_eq!(&*ticket.wait().buf, vec![5; len], "another's bytes");
    }
}

#[test]
fn a_full_ring_hands_the_task_back() {
    let Some(mut uring) = open(4, 8, 7) else { return };
    let world = world();
    let mut refused = 0;
    for _ in 0..10 {
        let (task, ticket) = world.read(10);
        if let Err(task) = uring.push(task) {
            refused += 1;
            task.succeed();
            assert!(ticket.is_done());
        }
    }
    assert_eq!(refused, 10 - 4, "four entries");
    assert_eq!(uring.in_flight(), 4);
}

/// What the kernel never heard of comes back, in order; what it has is waited for.
#[test]
fn tasks_are_taken_back_from_a_broken_ring() {
    let Some(mut uring) = open(8, 16, 15) else { return };
    let world = world();
    let op =
        |no: u64| IoOp::WriteThenSync { file: Arc::clone(&world.file), buf: vec![1; 10].into(), offset: no };
    for no in 0..2 {
        let Ok((task, _)) = world.front.admit(op(no), None) else { panic!("refused") };
        assert!(uring.push(task).is_ok());
    }
    uring.enter(false).unwrap();
    for len in 100..103 {
        assert!(uring.push(world.read(len).0).is_ok());
    }
    let Ok((task, _)) = world.front.admit(op(9), None) else { panic!("refused") };
    assert!(uring.push(task).is_ok());
    let lens: Vec<_> = uring.take_back().iter().map(|task| task.op.buf().unwrap().len()).collect();
    assert_eq!(lens, [100, 101, 102, 10]);
    assert_eq!(uring.in_flight(), 2);
    let mut whole = 0;
    while uring.in_flight() > 0 {
        while let Some(completion) = uring.reap() {
            assert_eq!((completion.res, completion.sync_res), (10, Some(0)));
            whole += 1;
        }
        std::thread::sleep(LAST_PAUSE);
    }
    assert_eq!(whole, 2);
}

/// A ring that goes while operations are under way waits for them; their tickets end.
#[test]
fn drop_waits_for_what_is_under_way() {
    let Some(mut uring) = open(32, 64, 60) else { return };
    let world = world();
    let mut tickets = Vec::new();
    for no in 0..20 {
        let (task, ticket) = world.read(500 + no);
        assert!(uring.push(task).is_ok());
        tickets.push(ticket);
        if no == 10 {
            uring.enter(false).unwrap();
        }
    }
    drop(uring);
    for ticket in tickets {
        assert!(ticket.is_done());
        assert_eq!(ticket.wait().result.unwrap_err().kind(), ErrorKind::Internal);
    }
    assert_eq!(world.front.counts().snapshot().in_flight_bytes, 0);
}

#[test]
fn the_bell_wakes_who_waits_and_rings_until_it_is_heard() {
    let Some(mut uring) = open(4, 8, 7) else { return };
    let bell = uring.bell();
    for round in 0..50 {
        let bell = bell.clone();
        if round % 2 == 0 {
            bell.ring();
            bell.ring();
            uring.enter(true).unwrap();
        } else {
            let ringer = std::thread::spawn(move || bell.ring());
            uring.enter(true).unwrap();
            ringer.join().unwrap();
        }
        assert!(uring.reap().is_none());
    }
}
