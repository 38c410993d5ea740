//! A redirect, the flushes of its two halves, a rollback and a collection, one after the other, and a power cut
//! at every call on files in between: with a log, without one, and with all trees flushed as one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dialsm_core::{ClueJobs, Db, Options};
use dialsm_io::{CrashPolicy, SimFs};
use parking_lot::Mutex;

use crate::bench::{Bench, CUTS, Model, SECOND, contents, get, put};
use crate::detour::{compact, delete, flush_alone, shards};

/// What happens between two points of the history.
const STEPS: [&str; 6] = ["setting up", "redirect", "first flush", "second flush", "rollback", "collection"];

struct Cut {
    image: Arc<SimFs>,
    policy: CrashPolicy,
    step: usize,
    jobs: ClueJobs,
}

/// Takes two images at every call.
fn cut_everywhere(bench: &Bench, db: &Db, step: &Arc<AtomicUsize>) -> Arc<Mutex<Vec<Cut>>> {
    let cuts: Arc<Mutex<Vec<Cut>>> = Arc::default();
    let (into, disk, db, step) = (cuts.clone(), bench.disk().clone(), db.clone(), step.clone());
    bench.disk().add_call_hook(Arc::new(move |_| {
        let (step, jobs) = (step.load(Ordering::SeqCst), db.clue_jobs());
        let other = CUTS[1 + into.lock().len() / 2 % (CUTS.len() - 1)];
        for policy in [CrashPolicy::DropUnsynced, other] {
            into.lock().push(Cut { image: disk.crash_image(policy), policy, step, jobs });
        }
    }));
    cuts
}

/// Whether a cut may have left this: `has_values` where the redirected halves are durable, `is_promised` where all
/// is.
fn is_legal(found: &Model, has_values: bool, is_promised: bool) -> bool {
    let value = |key: &[u8]| found.get(key).map(Vec::as_slice);
    let newer = value(b"a1") == Some(b"newer");
    let both = newer && value(b"a2") == Some(b"operand");
    let all = both && value(b"a3").is_none();
    let in_between = (newer || value(b"a1") == Some(b"older"))
        && value(b"a2").is_none_or(|value| value == b"operand")
        && value(b"a3").is_none_or(|value| value == b"deleted");
    value(b"b1") == Some(b"value")
        && match (is_promised, has_values) {
            (true, _) => all,
            (false, true) => both,
            (false, false) => in_between,
        }
}

fn every_call_is_cut_at(logged: bool, atomic_flush: bool, order: [u8; 2]) {
    Bench::run(|bench| {
        let (detour, options) = shards(2);
        let options = Options { log: logged, atomic_flush, ..options };
        let db = bench.open(&options);
        put(&db, b"a1", b"older");
        put(&db, b"b1", b"value");
        db.flush().expect("flush");
        let step = Arc::new(AtomicUsize::new(0));
        let cuts = cut_everywhere(bench, &db, &step);
        let next = || step.fetch_add(1, Ordering::SeqCst);
        next();
        detour.put(&db, 1, b"a1", b"newer");
        detour.merge(&db, 1, b"a2", b"operand");
        detour.put(&db, 1, b"a3", b"deleted");
        delete(&db, b"a3");
        if logged {
            db.sync().expect("sync");
        }
        next();
        flush_alone(bench, &db, order[0]);
        next();
        flush_alone(bench, &db, order[1]);
        next();
        db.rollback().expect("rollback");
        next();
        // The writes count as a burst for a while.
        bench.sleep(SECOND);
        db.set_options(&[("rollback", "true")]).expect("set");
        db.wait_until_idle().expect("idle");
        let counters = db.metrics().counters;
        assert_eq!((counters.clues_rolled_back, counters.redirected_dropped), (2, 3));
        bench.disk().clear_call_hooks();
        let cuts = std::mem::take(&mut *cuts.lock());
        let promised_from = if logged { 2 } else { 4 };
        let (mut by_step, mut in_jobs, mut halves) = ([0; STEPS.len()], [0; 4], 0);
        for Cut { image, policy, step, jobs } in cuts {
            let when = format!("{policy:?}, in step {:?}", STEPS[step]);
            let at = bench.with_disk(image);
            let db = at.open(&options);
            let found = contents(&db);
            // Once its fallback is flushed a redirected value is there, without log, too (FC-1).
            let has_values = step >= 3 && order[0] == b'b';
            assert!(is_legal(&found, has_values, step >= promised_from), "{when}");
            let report = db.verify(&mut |_, _| {}).expect("verify");
            for key in [b"a1", b"a2", b"a3", b"b1"] {
                assert_eq!(get(&db, key).as_ref(), found.get(key.as_slice()), "{when}");
            }
            // One half was in tables alone: the other came from the log, or the clue was made again, or is void.
            halves += u64::from(db.metrics().counters.redirects_completed + report.void_clues > 0);
            db.rollback().expect("rollback");
            compact(&db, Some(6));
            assert!(contents(&db) == found, "{when}: a rollback or a compaction changed what was found");
            by_step[step] += 1;
            let jobs = [
                jobs.rollbacks_running,
                jobs.rollbacks_live,
                jobs.collections_running,
                jobs.collections_live,
            ];
            in_jobs.iter_mut().zip(jobs).for_each(|(count, running)| *count += usize::from(running > 0));
        }
        println!("log {logged}, as one {atomic_flush}: {by_step:?}, in jobs {in_jobs:?}, half {halves}");
        // Two images a call; a flush without log makes seven.
        assert!(by_step[2..].iter().all(|count| *count >= 14), "{by_step:?}");
        assert!(in_jobs.iter().all(|count| *count >= 4), "{in_jobs:?}");
        // Without a log, and flushed as one, there are no halves.
        assert!(halves > 0 || atomic_flush, "no cut was between the two flushes");
    });
}

#[test]
fn every_call_is_cut_at_with_log() {
    every_call_is_cut_at(true, false, [b'a', b'b']);
    every_call_is_cut_at(true, false, [b'b', b'a']);
}

#[test]
fn every_call_is_cut_at_without_log() {
    every_call_is_cut_at(false, false, [b'a', b'b']);
    every_call_is_cut_at(false, false, [b'b', b'a']);
    every_call_is_cut_at(false, true, [b'a', b'b']);
}
