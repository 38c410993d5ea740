//! Deferred sync: what a request covers, batching, bounds, failures that stay, shutdown.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dialsm_io::{
    Access, Buf, CrashPolicy, Durability, DurabilityOptions, DurableFile, DurableRequest, Env, ErrorKind,
    Fault, FaultFs, File, Fs, IoOp, IoOptions, Limiter, LimiterOptions, OpKind, OsEnv, Priority, Rule,
    SimEnv, SplitMix64,
};

const MS: u64 = 1_000_000;

fn start(env: &Arc<dyn Env>, options: DurabilityOptions) -> Arc<Durability> {
    let io = env.start_io(&IoOptions::default()).unwrap();
    Durability::start(env, io, options).unwrap()
}

fn request(files: &[&Arc<dyn File>], dir: Option<&Path>) -> DurableRequest {
    let file = |file: &&Arc<dyn File>| DurableFile { file: Arc::clone(file), bytes: file.len().unwrap() };
    DurableRequest {
        files: files.iter().map(file).collect(),
        dir: dir.map(Path::to_path_buf),
        ..DurableRequest::default()
    }
}

/// A simulation whose file system fails on demand.
fn faulty(seed: u64) -> (Arc<SimEnv>, Arc<SimEnv>, Arc<FaultFs>) {
    let sim = SimEnv::new(seed);
    let fault = FaultFs::new(sim.sim_fs().clone());
    let clock = sim.clone();
    fault.set_sleeper(Arc::new(move |nanos| clock.sleep(nanos)));
    let env = sim.on_fs(sim.sim_fs().clone(), fault.clone());
    (sim, env, fault)
}

#[test]
fn files_and_their_names_survive_a_power_cut_once_the_ticket_is_done() {
    let (mut early, mut cuts, mut dir_syncs) = (0, 0, 0);
    for seed in 0..100 {
        let sim = SimEnv::new(seed);
        sim.run(|| {
            let env: Arc<dyn Env> = sim.clone();
            let durability = start(&env, DurabilityOptions::default());
            let dir = Path::new("/db");
            env.fs().create_dir_all(dir).unwrap();
            env.fs().sync_dir(Path::new("/")).unwrap();
            let mut tickets: Vec<(PathBuf, Vec<u8>, _)> = Vec::new();
            let mut rng = SplitMix64::new(seed);
            for no in 0..20 {
                let path = dir.join(format!("f{no}"));
                let file = env.fs().create(&path).unwrap();
                let bytes = vec![no as u8 + 1; 1 + rng.below(9000) as usize];
                file.write_at(&bytes, 0).unwrap();
                tickets.push((path, bytes, durability.request(request(&[&file], Some(dir)))));
                drop(file);
                env.sleep(rng.below(MS / 2));
                let image = sim.sim_fs().crash_image(CrashPolicy::DropUnsynced);
                for (path, bytes, ticket) in &tickets {
                    let Some(outcome) = ticket.outcome() else {
                        early += 1;
                        continue;
                    };
                    assert!(outcome.is_ok());
                    cuts += 1;
                    let file = image.open(path, Access::Read).expect("its name is durable");
                    let mut held = vec![0; bytes.len() + 1];
                    assert_eq!(file.read_at(&mut held, 0).unwrap(), bytes.len(), "seed {seed}");
                    assert!(held[..bytes.len()] == **bytes, "seed {seed}");
                }
            }
            for (_, _, ticket) in &tickets {
                ticket.wait().unwrap();
                assert!(ticket.wait_until(Some(0)));
            }
            durability.shutdown();
            let stats = durability.stats();
            assert_eq!((stats.request_count, stats.ended_count, stats.failed_count), (20, 20, 0));
            dir_syncs += stats.dir_sync_count;
            let late = durability.request(DurableRequest::default());
            assert_eq!(late.wait().unwrap_err().kind(), ErrorKind::Closed);
        });
    }
    assert!(early >= 500 && cuts >= 5000, "{early} {cuts}");
    assert!(dir_syncs < 1900, "2000 requests, {dir_syncs} directory syncs: they are batched");
}

/// The trace of calls shows what was synced when: each request's files after the request, and its
/// directory after its files; never two syncs of a file at once; never too many bytes.
#[test]
fn syncs_come_after_their_request_and_within_the_bound() {
    for seed in 0..30 {
        let sim = SimEnv::new(seed);
        let fs = sim.sim_fs().clone();
        fs.set_tracing(true);
        sim.run(|| {
            let env: Arc<dyn Env> = sim.clone();
            let options = DurabilityOptions { in_flight_bytes_max: 10_000, in_flight_files_max: 3 };
            let durability = start(&env, options);
            let files: Vec<_> =
                (0..8).map(|n| env.fs().create(Path::new(&format!("/f{n}"))).unwrap()).collect();
            let mut rng = SplitMix64::new(seed);
            let mut tickets = Vec::new();
            for no in 0..60 {
                let some: Vec<_> = files.iter().filter(|_| rng.chance(1, 3)).collect();
                some.iter().for_each(|file| file.write_at(&[1; 4000], 0).unwrap());
                let dir = rng.chance(1, 2).then_some(Path::new("/"));
                fs.note(&format!("request {no}"));
                let paths: Vec<PathBuf> = some.iter().map(|file| file.path().to_path_buf()).collect();
                tickets.push((no, paths, dir.is_some(), durability.request(request(&some, dir))));
                if rng.chance(1, 2) {
                    env.sleep(rng.below(MS));
                }
            }
            for (no, _, _, ticket) in &tickets {
                ticket.wait().unwrap();
                fs.note(&format!("done {no}"));
            }
            durability.shutdown();
            let stats = durability.stats();
            assert!(stats.in_flight_bytes_peak <= 10_000, "{stats:?}");
            assert!(stats.in_flight_bytes_peak >= 8000, "two at once: {stats:?}");
            assert_eq!(stats.in_flight_bytes, 0);
            let trace = fs.trace();
            let place = |text: &str| trace.iter().position(|call| call.path == Path::new(text)).unwrap();
            for (no, paths, has_dir, _) in tickets {
                let calls = &trace[place(&format!("request {no}"))..place(&format!("done {no}"))];
                let first =
                    |op, path: &Path| calls.iter().position(|call| call.op == Some(op) && call.path == path);
                let last =
                    |op, path: &Path| calls.iter().rposition(|call| call.op == Some(op) && call.path == path);
                let dir = last(OpKind::SyncDir, Path::new("/"));
                assert!(dir.is_some() || !has_dir, "seed {seed}: request {no}");
                for path in paths {
                    let synced = first(OpKind::Sync, &path).expect("synced after the request");
                    assert!(!has_dir || dir.unwrap() > synced, "seed {seed}: directory before file");
                }
            }
        });
    }
}

#[test]
fn a_file_larger_than_the_bound_goes_alone() {
    let sim = SimEnv::new(4);
    sim.run(|| {
        let env: Arc<dyn Env> = sim.clone();
        let options = DurabilityOptions { in_flight_bytes_max: 1000, in_flight_files_max: 8 };
        let durability = start(&env, options);
        let files: Vec<_> = (0..6).map(|n| env.fs().create(Path::new(&format!("/f{n}"))).unwrap()).collect();
        files.iter().for_each(|file| file.write_at(&[1; 5000], 0).unwrap());
        let tickets: Vec<_> = files.iter().map(|file| durability.request(request(&[file], None))).collect();
        tickets.iter().for_each(|ticket| ticket.wait().unwrap());
        assert_eq!(durability.stats().in_flight_bytes_peak, 5000);
        let empty = durability.request(DurableRequest::default());
        empty.wait().unwrap();
    });
}

/// The sync of one file fails: that file is never synced again, whoever asks, other files are.
#[test]
fn a_failed_sync_is_for_ever_and_never_tried_again() {
    for seed in 0..50 {
        let (sim, env, fault) = faulty(seed);
        sim.run(|| {
            let env: Arc<dyn Env> = env.clone();
            let durability = start(&env, DurabilityOptions::default());
            let create = |name: &str| {
                let file = env.fs().create(Path::new(name)).unwrap();
                file.write_at(b"data", 0).unwrap();
                file
            };
            let (good, bad) = (create("/good"), create("/bad"));
            fault.add(Rule::nth(OpKind::Sync, 1, Fault::Errno(libc::EIO)).on("bad"));
            let root = Path::new("/");
            let together = durability.request(request(&[&good, &bad], Some(root)));
            // At once, while the first may be under way: it must not slip through as a second sync.
            let again = durability.request(request(&[&bad], Some(root)));
            for ticket in [&together, &again] {
                let e = ticket.wait().unwrap_err();
                assert_eq!((e.kind(), e.path()), (ErrorKind::Io, Some(Path::new("/bad"))));
            }
            let syncs = fault.calls(OpKind::Sync);
            let other_handle = env.fs().open(Path::new("/bad"), Access::ReadWrite).unwrap();
            for file in [&bad, &other_handle] {
                assert!(durability.request(request(&[file], None)).wait().is_err());
            }
            assert_eq!(fault.calls(OpKind::Sync), syncs, "seed {seed}: a failed sync was tried again");
            assert!(durability.failure(Path::new("/bad")).is_some());
            durability.request(request(&[&good], Some(root))).wait().unwrap();
            env.fs().unlink(Path::new("/bad")).unwrap();
            durability.forget(Path::new("/bad"));
            let fresh = create("/bad");
            durability.request(request(&[&fresh], Some(root))).wait().unwrap();

            fault.add(Rule::nth(OpKind::SyncDir, 1, Fault::ErrnoAfter(libc::EIO)));
            assert!(durability.request(request(&[&good], Some(root))).wait().is_err());
            let dir_syncs = fault.calls(OpKind::SyncDir);
            assert!(durability.request(request(&[], Some(root))).wait().is_err());
            assert_eq!(fault.calls(OpKind::SyncDir), dir_syncs, "the directory was tried again");
            durability.request(request(&[&good], None)).wait().unwrap();
        });
    }
}

/// Permits return when the request has ended, not when it was made, and then the event tells.
#[test]
fn bytes_return_at_completion() {
    let (sim, env, fault) = faulty(8);
    sim.run(|| {
        let env: Arc<dyn Env> = env.clone();
        let durability = start(&env, DurabilityOptions::default());
        let limiter = Limiter::new(&env, LimiterOptions::default()).unwrap();
        let file = env.fs().create(Path::new("/a")).unwrap();
        file.write_at(&[1; 1000], 0).unwrap();
        fault.add(Rule::nth(OpKind::Sync, 1, Fault::Delay(20 * MS)));
        let permits = (0..2).map(|_| limiter.acquire(Priority::Deep, 500, None).unwrap()).collect();
        let event = env.event();
        let seen = event.epoch();
        let notify = Some(Arc::clone(&event));
        let ticket =
            durability.request(DurableRequest { permits, notify, ..request(&[&file], Some(Path::new("/"))) });
        env.sleep(10 * MS);
        assert!(ticket.outcome().is_none());
        assert_eq!(limiter.stats().in_flight_bytes[Priority::Deep as usize], 1000);
        assert!(event.wait(seen, None));
        assert!(ticket.outcome().expect("notified when done").is_ok());
        assert_eq!(limiter.stats().in_flight_bytes, [0; 4]);
    });
}

/// Dropped tickets, many threads, shutdown in the middle; on the real file system.
#[test]
fn shutdown_ends_every_request() {
    let dir = tempfile::tempdir().unwrap();
    for use_ring in [true, false] {
        let os = OsEnv::new();
        let env: Arc<dyn Env> = os.clone();
        let io = env.start_io(&IoOptions { use_ring, ..IoOptions::default() }).unwrap();
        let durability = Durability::start(&env, Arc::clone(&io), DurabilityOptions::default()).unwrap();
        let base = dir.path().join(use_ring.to_string());
        env.fs().create_dir_all(&base).unwrap();
        let job = |no: u64| {
            let (env, io) = (Arc::clone(&env), Arc::clone(&io));
            let (durability, base) = (Arc::clone(&durability), base.clone());
            move || {
                let mut by_kind: BTreeMap<&str, u32> = BTreeMap::new();
                for round in 0..10_000 {
                    let file = env.fs().create(&base.join(format!("{no}-{round}"))).unwrap();
                    let buf = Buf::zeroed(5000);
                    let write = io.submit(IoOp::Write { file: Arc::clone(&file), buf, offset: 0 });
                    assert!(write.wait().result.is_ok());
                    let ticket = durability.request(request(&[&file], Some(&base)));
                    drop(file);
                    if round % 3 == 0 {
                        continue;
                    }
                    match ticket.wait() {
                        Ok(()) => *by_kind.entry("ok").or_default() += 1,
                        Err(e) => {
                            assert_eq!(e.kind(), ErrorKind::Closed, "{e}");
                            break;
                        }
                    }
                }
                assert!(by_kind["ok"] > 0);
            }
        };
        let jobs: Vec<_> =
            (0..4).map(|no| env.spawn(&format!("job{no}"), Box::new(job(no))).unwrap()).collect();
        while durability.stats().ended_count < 100 {
            env.sleep(MS);
        }
        durability.shutdown();
        let stats = durability.stats();
        assert_eq!(stats.in_flight_bytes, 0);
        jobs.into_iter().for_each(|job| job.join());
        assert_eq!(os.panics(), 0);
        let stats = durability.stats();
        assert_eq!(stats.request_count, stats.ended_count, "{stats:?}");
        assert!(stats.dir_sync_count < stats.file_sync_count, "{stats:?}");
        let names: BTreeSet<String> = env.fs().list(&base).unwrap().into_iter().collect();
        assert!(names.len() as u64 >= stats.ended_count - stats.failed_count);
    }
}
