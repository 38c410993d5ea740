//! Who makes calls that wait for the disk. A thread that merges, or that fills tables in a flush, makes
//! no sync of a table or the directory, starts no write-back, and waits for no ticket, as long as
//! syncs are deferred. With `deferred_sync` off it does all of that, and here it is seen.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use dialsm_core::Options;
use dialsm_io::OpKind;

use crate::common::DIR;
use crate::drive::{self, Load, Run};
use crate::options_of;

/// What the threads that merge have done.
#[derive(Default, Debug)]
struct Seen {
    /// Tables that they began.
    tables: BTreeMap<String, u64>,
    table_syncs: u64,
    dir_syncs: u64,
    write_backs: u64,
    ticket_waits: u64,
    /// The same calls, by others.
    by_others: u64,
    write_backs_by_others: u64,
    ticket_waits_by_others: u64,
}

fn is_table(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "sst")
}

impl Seen {
    /// Looks at a run. Threads that merge are those that began a table: workers of the engine, and
    /// users within a compaction by hand.
    fn add(&mut self, run: &Run) {
        let began = |call: &&dialsm_io::Call| call.op == Some(OpKind::Create) && is_table(&call.path);
        let merging: BTreeSet<&str> = run.calls.iter().filter(began).map(|c| c.thread.as_str()).collect();
        for call in &run.calls {
            let is_own = merging.contains(call.thread.as_str());
            let (table, dir) = (is_table(&call.path), call.path == Path::new(DIR));
            let count = match call.op {
                Some(OpKind::Create) if table => self.tables.entry(call.thread.clone()).or_default(),
                Some(OpKind::Sync) if table && is_own => &mut self.table_syncs,
                Some(OpKind::SyncDir) if dir && is_own => &mut self.dir_syncs,
                Some(OpKind::StartWriteback) if is_own => &mut self.write_backs,
                Some(OpKind::StartWriteback) => &mut self.write_backs_by_others,
                Some(OpKind::Sync | OpKind::SyncDir) if table || dir => &mut self.by_others,
                _ => continue,
            };
            *count += 1;
        }
        for line in run.schedule.lines() {
            let mut words = line.split(' ').skip(1);
            if words.next() == Some("ticket") {
                let is_own = words.next().is_some_and(|thread| merging.contains(thread));
                *if is_own { &mut self.ticket_waits } else { &mut self.ticket_waits_by_others } += 1;
            }
        }
    }

    /// Whether workers and users have both merged, `least` times at least.
    fn have_merged(&self, least: u64) -> bool {
        let by = |name: &str| -> u64 {
            self.tables.iter().filter(|(thread, _)| thread.starts_with(name)).map(|(_, n)| n).sum()
        };
        by("dialsm-bg") >= least && by("compactor") >= least / 4
    }
}

/// Tables large enough for a write-back on the way.
fn large(options: &Options) -> (Load, Options) {
    let load = Load { seed: 77, writes: 60, value_max: 400_000, failing_syncs: false };
    let bytes = 8 << 20;
    let options = Options {
        write_buffer_bytes: bytes,
        table_bytes: bytes,
        log_segment_bytes: bytes,
        level_base_bytes: 2 * bytes,
        // Where writes take time they end when all threads wait, and that a merge never does.
        use_io_uring: false,
        direct_writes: false,
        ..options.clone()
    };
    (load, options)
}

fn look(deferred: bool) -> Seen {
    let mut seen = Seen::default();
    for seed in 100..110u64 {
        let load = Load { failing_syncs: deferred && seed.is_multiple_of(4), ..Load::usual(seed) };
        seen.add(&drive::run(&load, &options_of(seed, deferred)));
    }
    for seed in 77..79 {
        let (load, options) = large(&options_of(1, deferred));
        seen.add(&drive::run(&Load { seed, ..load }, &options));
    }
    println!("deferred {deferred}: {seen:?}");
    seen
}

#[test]
fn a_thread_that_merges_makes_no_call_that_waits_for_the_disk() {
    let seen = look(true);
    let made = (seen.table_syncs, seen.dir_syncs, seen.write_backs, seen.ticket_waits);
    assert_eq!(made, (0, 0, 0, 0), "{seen:?}");
    assert!(seen.have_merged(200), "{seen:?}");
    assert!(seen.by_others > 500 && seen.write_backs_by_others >= 4, "{seen:?}");
}

/// What the test above looks for is there when it is asked for.
#[test]
fn with_deferred_sync_off_whoever_merges_waits() {
    let seen = look(false);
    assert!(seen.have_merged(200), "{seen:?}");
    assert!(seen.table_syncs > 300 && seen.dir_syncs > 100, "{seen:?}");
    assert!(seen.write_backs > 300 && seen.ticket_waits > 100, "{seen:?}");
}
