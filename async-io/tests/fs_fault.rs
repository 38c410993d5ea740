//! Injected faults befall exactly the calls that the rules name.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dialsm_io::{Access, ErrorKind, Fault, FaultFs, File, Fs, OpKind, Rule, SimFs};

fn p(path: &str) -> &Path {
    Path::new(path)
}

/// Calls every call that can fail, once, and gives the kinds of the errors.
fn call_all(fs: &FaultFs, file: &dyn File) -> Vec<(OpKind, Option<ErrorKind>)> {
    let kind = |outcome: dialsm_io::Result<()>| outcome.err().map(|e| e.kind());
    vec![
        (OpKind::Create, kind(fs.create(p("/new")).map(drop))),
        (OpKind::Open, kind(fs.open(p("/a"), Access::Read).map(drop))),
        (OpKind::HardLink, kind(fs.hard_link(p("/a"), p("/link")))),
        (OpKind::Rename, kind(fs.rename(p("/link"), p("/moved")))),
        (OpKind::Unlink, kind(fs.unlink(p("/gone")))),
        (OpKind::CreateDir, kind(fs.create_dir_all(p("/dir")))),
        (OpKind::RemoveDir, kind(fs.remove_dir(p("/empty")))),
        (OpKind::List, kind(fs.list(p("/")).map(drop))),
        (OpKind::SyncDir, kind(fs.sync_dir(p("/")))),
        (OpKind::Lock, kind(fs.lock(p("/LOCK"), dialsm_io::LockMode::Exclusive).map(drop))),
        (OpKind::Read, kind(file.read_at(&mut [0], 0).map(drop))),
        (OpKind::Write, kind(file.write_at(b"x", 0))),
        (OpKind::Sync, kind(file.sync_data())),
        (OpKind::StartWriteback, {
            file.start_writeback(0, 1);
            None
        }),
        (OpKind::Allocate, kind(file.allocate(0, 1))),
        (OpKind::SetLen, kind(file.set_len(1))),
    ]
}

fn fresh() -> (Arc<SimFs>, Arc<FaultFs>, Arc<dyn File>) {
    let sim = SimFs::new(0);
    sim.create(p("/gone")).unwrap();
    sim.create_dir_all(p("/empty")).unwrap();
    let fs = FaultFs::new(sim.clone());
    let file = fs.create(p("/a")).unwrap();
    (sim, fs, file)
}

#[test]
fn each_op_can_be_failed_alone() {
    for op in OpKind::ALL {
        for (fault, kind) in
            [(Fault::Errno(libc::EIO), ErrorKind::Io), (Fault::ErrnoAfter(libc::ENOSPC), ErrorKind::NoSpace)]
        {
            let (_, fs, file) = fresh();
            fs.add(Rule::every(op, fault));
            // A failed link leaves nothing to rename.
            let is_follow_up = |called| op == OpKind::HardLink && called == OpKind::Rename;
            let outcomes = call_all(&fs, &*file);
            assert_eq!(outcomes.len(), OpKind::ALL.len());
            for (called, outcome) in outcomes.into_iter().filter(|(called, _)| !is_follow_up(*called)) {
                // A hint has no outcome.
                let fails = called == op && op != OpKind::StartWriteback;
                assert_eq!(outcome, fails.then_some(kind), "{called:?} under a rule for {op:?}");
                assert_eq!(fs.calls(called), 1 + u64::from(called == OpKind::Create));
            }
            assert_eq!(fs.injected(), 1);
        }
    }
}

#[test]
fn rules_count_calls_and_match_paths() {
    let (_, fs, a) = fresh();
    let b = fs.create(p("/b.log")).unwrap();
    fs.add(Rule { times: 2, ..Rule::nth(OpKind::Sync, 3, Fault::Errno(libc::EIO)).on(".log") });
    let outcomes: Vec<_> = (0..6).map(|_| (a.sync_data().is_ok(), b.sync_data().is_ok())).collect();
    assert_eq!(outcomes.iter().filter(|(a, _)| *a).count(), 6, "the other file is spared");
    assert_eq!(outcomes.iter().map(|(_, b)| *b).collect::<Vec<_>>(), [true, true, false, false, true, true]);
    assert_eq!((fs.calls(OpKind::Sync), fs.injected()), (12, 2));
    fs.add(Rule::every(OpKind::Rename, Fault::Errno(libc::EACCES)).on("CURRENT"));
    assert_eq!(fs.rename(p("/a"), p("/CURRENT")).unwrap_err().kind(), ErrorKind::ReadOnly);
    fs.clear();
    fs.rename(p("/a"), p("/CURRENT")).unwrap();
}

#[test]
fn a_failed_call_has_no_effect_or_all_of_it() {
    let (sim, fs, file) = fresh();
    fs.add(Rule::nth(OpKind::Create, 1, Fault::Errno(libc::EIO)));
    assert!(fs.create(p("/x")).is_err());
    assert!(!sim.exists(p("/x")).unwrap());
    fs.add(Rule::nth(OpKind::Create, 1, Fault::ErrnoAfter(libc::EIO)));
    assert!(fs.create(p("/x")).is_err());
    assert!(sim.exists(p("/x")).unwrap());
    fs.add(Rule::nth(OpKind::Write, 1, Fault::TornWrite(2, libc::EIO)));
    let torn = file.write_at(b"abcd", 10).unwrap_err();
    assert_eq!((torn.offset(), torn.path()), (Some(10), Some(p("/a"))));
    assert_eq!(file.len().unwrap(), 12);
    fs.add(Rule::nth(OpKind::Read, 1, Fault::ShortRead(1)));
    let mut buf = [0; 8];
    assert_eq!(file.read_at(&mut buf, 10).unwrap(), 1);
    assert_eq!(file.read_at(&mut buf, 10).unwrap(), 2);
}

#[test]
fn delays_go_through_the_sleeper() {
    let (_, fs, file) = fresh();
    let slept = Arc::new(AtomicU64::new(0));
    let sum = Arc::clone(&slept);
    fs.set_sleeper(Arc::new(move |nanos| {
        sum.fetch_add(nanos, Ordering::SeqCst);
    }));
    fs.add(Rule { times: 2, ..Rule::nth(OpKind::Sync, 1, Fault::Delay(50)) });
    file.sync_data().unwrap();
    file.sync_data().unwrap();
    file.sync_data().unwrap();
    assert_eq!(slept.load(Ordering::SeqCst), 100);
}
