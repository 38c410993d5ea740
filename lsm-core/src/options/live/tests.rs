use std::collections::BTreeSet;
use std::path::Path;

use dialsm_io::{Access, Fault, FaultFs, Fs, OpKind, Priority, Rule, SimEnv};

use super::*;
use crate::compaction::plan::Reason;
use crate::options::{Compression, describe};
use crate::write::stall::Admission;
use crate::{
    CompactRangeOptions, Db, ErrorKind, FlushOptions, Keyspace, ScanOptions, StallCause, WriteOptions,
};

const DIR: &str = "/db";

/// Nothing happens by itself, so that what a change does can be seen.
fn quiet() -> Options {
    Options {
        automatic_compaction: false,
        write_buffer_bytes: 64 << 20,
        level0_compaction_trigger: 1000,
        level0_slowdown_trigger: 100_000,
        level0_stop_trigger: 100_000,
        log_recycle_max: 0,
        compression: Compression::None,
        compression_bottom: Compression::None,
        info_log_level: super::super::InfoLogLevel::Off,
        ..Options::default()
    }
}

/// An open database in a simulation.
struct Case {
    env: Arc<SimEnv>,
    db: Db,
}

impl Case {
    fn engine(&self) -> &Arc<Engine> {
        &self.db.handle.engine
    }

    fn set(&self, name: &str, value: &str) {
        self.db.set_options(&[(name, value)]).unwrap_or_else(|e| panic!("{name} = {value}: {e}"));
    }

    /// Puts `count` keys from `first` on, with values of `bytes` bytes that compress well.
    fn put(&self, first: u32, count: u32, bytes: usize) {
        for n in first..first + count {
            let key = format!("a key with a long common front {n:08}");
            self.db.put(&WriteOptions::default(), key.as_bytes(), &vec![n as u8; bytes]).expect("put");
        }
    }

    /// One table in level 0 with `count` keys from `first` on.
    fn table(&self, first: u32, count: u32, bytes: usize) {
        self.put(first, count, bytes);
        self.db.flush().expect("flush");
    }

    fn compact(&self) {
        let options = CompactRangeOptions { rewrite_bottom: true, ..CompactRangeOptions::default() };
        self.db.compact_range(&options, None, None).expect("compact");
    }

    /// Bytes and blocks of each live table.
    fn tables(&self) -> Vec<(u64, u64)> {
        let view = self.engine().space.trees[0].view();
        let tables = view.version.all_tables().map(|(_, table)| {
            let reader = self.engine().open_table(&self.engine().space.trees[0], table).expect("open");
            (table.file_bytes(), reader.properties().data_blocks)
        });
        tables.collect()
    }

    /// Bytes of the newest table in level 0.
    fn newest(&self) -> u64 {
        self.engine().space.trees[0].view().version.l0()[0].file_bytes()
    }

    fn admission(&self) -> Admission {
        self.engine().space.trees[0].stall.admission()
    }

    fn logs_on_disk(&self) -> usize {
        let names = self.env.sim_fs().list(Path::new(DIR)).expect("list");
        names.iter().filter(|name| name.ends_with(".log")).count()
    }
}

type Check = fn(&Case);

/// For each live option: that it does what it says from the change on, and did not before.
const CHECKS: &[(&str, Check)] = &[
    // Taken from the options in force by each group, job or door that asks.
    ("redirect", |c| {
        c.set("redirect", "false");
        assert!(!c.engine().options.load().redirect);
    }),
    ("redirect_pressure", |c| {
        c.set("redirect_pressure", "0.5");
        assert_eq!(c.engine().options.load().redirect_pressure, 0.5);
    }),
    ("clue_reserve_bytes", |c| {
        let tree = &c.engine().space.trees[0];
        c.put(0, 200, 1000);
        c.set("clue_reserve_bytes", "4K");
        assert_eq!(c.engine().options.load().clue_reserve_bytes, 4096);
        assert!(tree.has_reserve(4096), "a memtable that is not full has room for a clue");
    }),
    ("clues_max", |c| {
        c.set("clues_max", "7");
        assert_eq!(c.engine().options.load().clues_max, 7);
    }),
    ("clue_bytes_max", |c| {
        c.set("clue_bytes_max", "7M");
        assert_eq!(c.engine().options.load().clue_bytes_max, 7 << 20);
    }),
    ("clue_capping", |c| {
        c.set("clue_capping", "false");
        assert!(!c.engine().options.load().clue_capping);
    }),
    ("clue_cache", |c| {
        c.set("clue_cache", "false");
        assert!(!c.engine().options.load().clue_cache);
    }),
    ("rollback", |c| {
        c.set("rollback", "false");
        assert!(!c.engine().options.load().rollback);
    }),
    ("write_buffer_bytes", |c| {
        c.put(0, 200, 1000);
        assert!(c.db.is_idle() && c.engine().space.trees[0].view().version.l0().is_empty());
        c.set("write_buffer_bytes", "64K");
        c.put(0, 1, 10);
        c.db.wait_until_idle().expect("idle");
        assert_eq!(c.engine().space.trees[0].view().version.l0().len(), 1);
    }),
    ("write_buffers_max", |c| {
        c.set("write_buffer_bytes", "64K");
        // As if a flush were running all the time.
        c.engine().space.trees[0].lock().flushing = true;
        let mut written = 0;
        while c.admission() == Admission::Open {
            c.put(written, 1, 1000);
            written += 1;
        }
        assert_eq!(c.admission(), Admission::Stopped(StallCause::Memtable));
        c.set("write_buffers_max", "3");
        assert_eq!(c.admission(), Admission::Open);
        c.engine().space.trees[0].lock().flushing = false;
    }),
    ("write_buffers_total_bytes", |c| {
        // Of another keyspace, whose own bound is far away.
        let other = c.db.create_keyspace("other", quiet().keyspace()).expect("create");
        for n in 0..200u32 {
            c.db.put_in(&WriteOptions::default(), &other, &n.to_be_bytes(), &[1; 1000]).expect("put");
        }
        c.db.set_options(&[("write_buffer_bytes", "64K"), ("write_buffers_total_bytes", "1G")]).expect("set");
        c.put(0, 1, 10);
        assert!(c.db.is_idle() && other.0.trees[0].view().version.l0().is_empty());
        c.set("write_buffers_total_bytes", "128K");
        c.put(1, 1, 10);
        c.db.wait_until_idle().expect("idle");
        assert_eq!(other.0.trees[0].view().version.l0().len(), 1);
        c.db.drop_keyspace(&other).expect("drop");
    }),
    ("background_bytes_per_second", |c| {
        let begin = || {
            let now = c.env.now();
            c.engine().handoff.limiter.acquire(Priority::Deep, 1 << 20, Some(now)).map(|_permit| ())
        };
        (0..5).for_each(|_| begin().expect("no cap"));
        c.set("background_bytes_per_second", "64K");
        begin().expect("what the cap saved up");
        assert_eq!(begin().expect_err("in debt").kind(), ErrorKind::TimedOut);
    }),
    ("retained_bytes_max", |c| {
        c.db.set_options(&[("level0_compaction_trigger", "2"), ("retained_bytes_max", "1M")]).expect("set");
        // As if a compaction of that size were not settled.
        let hold =
            || c.engine().handoff.retained.try_reserve(2 << 20, u64::MAX, Reason::Manual).expect("no bound");
        for compacted in [true, false, false] {
            c.table(0, 10, 100);
            // Over the bottom level there is no way down but a merge.
            compacted.then(|| c.compact());
        }
        let held = hold();
        c.set("automatic_compaction", "true");
        c.env.sleep(1_000_000_000);
        assert_eq!(c.engine().space.trees[0].view().version.l0().len(), 2, "no room for its inputs");
        c.set("retained_bytes_max", "8M");
        c.db.wait_until_idle().expect("idle");
        assert_eq!(c.engine().space.trees[0].view().version.l0().len(), 0);
        drop(held);
    }),
    ("max_write_group_bytes", |c| {
        assert_eq!(groups_of_six_waiting(c), 1);
        c.set("max_write_group_bytes", "4K");
        assert_eq!(groups_of_six_waiting(c), 3);
    }),
    ("background_jobs_max", |c| {
        let workers = || c.engine().scheduler.jobs().workers;
        assert_eq!(workers(), 2);
        for (wanted, text) in [(5, "5"), (2, "2"), (4, "4"), (3, "3"), (6, "6")] {
            c.set("background_jobs_max", text);
            while workers() != wanted {
                assert!(workers() > wanted, "they are started before the call returns");
                c.env.sleep(1_000_000);
            }
        }
        let live = c.env.live_threads();
        assert_eq!(live.iter().filter(|name| name.starts_with("dialsm-bg")).count(), 6, "{live:?}");
    }),
    ("subcompactions_max", |c| {
        let outputs = || {
            (0..4).for_each(|i| c.table(i * 200, 1000, 100));
            c.compact();
            c.tables().len()
        };
        c.set("subcompactions_max", "1");
        assert_eq!(outputs(), 1);
        c.set("subcompactions_max", "4");
        assert!(outputs() > 1);
    }),
    ("automatic_compaction", |c| {
        c.set("level0_compaction_trigger", "2");
        (0..3).for_each(|_| c.table(0, 100, 100));
        assert_eq!((c.db.wait_until_idle().is_ok(), c.db.compactions()), (true, 0));
        c.set("automatic_compaction", "true");
        c.db.wait_until_idle().expect("idle");
        assert!(c.db.compactions() > 0);
    }),
    ("level0_compaction_trigger", |c| {
        c.set("automatic_compaction", "true");
        (0..3).for_each(|_| c.table(0, 100, 100));
        assert_eq!((c.db.wait_until_idle().is_ok(), c.db.compactions()), (true, 0));
        c.set("level0_compaction_trigger", "2");
        c.db.wait_until_idle().expect("idle");
        assert!(c.db.compactions() > 0);
    }),
    ("level0_slowdown_trigger", |c| {
        three_runs(c);
        c.db.set_options(&[("level0_compaction_trigger", "2"), ("level0_slowdown_trigger", "2")])
            .expect("set");
        assert!(matches!(c.admission(), Admission::Delayed(StallCause::Level0, _)));
        c.set("level0_slowdown_trigger", "4");
        assert_eq!(c.admission(), Admission::Open);
    }),
    ("level0_stop_trigger", |c| {
        three_runs(c);
        let low = ["level0_compaction_trigger", "level0_slowdown_trigger", "level0_stop_trigger"];
        c.db.set_options(&low.map(|name| (name, "2"))).expect("set");
        assert_eq!(c.admission(), Admission::Stopped(StallCause::Level0));
        // A writer that is stopped already goes on.
        let (db, env) = (c.db.clone(), c.env.clone());
        let job = Box::new(move || db.put(&WriteOptions::default(), b"stopped", b"v").expect("put"));
        let writer = env.spawn("writer", job).expect("spawn");
        c.env.sleep(30_000_000);
        assert!(c.db.get(&Default::default(), b"stopped").expect("get").is_none());
        c.db.set_options(&low.map(|name| (name, "1000"))).expect("set");
        writer.join();
        assert!(c.db.get(&Default::default(), b"stopped").expect("get").is_some());
    }),
    ("level0_patience", |c| {
        (0..3).for_each(|_| c.table(0, 100, 100));
        c.db.set_options(&[("level0_compaction_trigger", "2"), ("automatic_compaction", "true")])
            .expect("set");
        c.env.sleep(1_000_000);
        assert_eq!(c.db.compactions(), 0);
        c.set("level0_patience", "false");
        c.env.sleep(1_000_000);
        assert!(c.db.compactions() > 0);
    }),
    ("read_compaction", |c| {
        (0..3).for_each(|_| c.table(0, 100, 100));
        c.db.set_options(&[("level0_patience", "false"), ("automatic_compaction", "true")]).expect("set");
        let read_much = || {
            for _ in 0..20_000 {
                c.db.iter(&Default::default()).expect("iter").seek_to_first().expect("seek");
            }
            c.env.sleep(1_000_000_000);
            c.db.compactions()
        };
        let before = read_much();
        assert!(before > 0);
        c.set("read_compaction", "false");
        c.table(0, 100, 100);
        assert_eq!(read_much(), before);
    }),
    ("pending_compaction_soft_bytes", |c| {
        owe_three_mib(c);
        c.set("pending_compaction_soft_bytes", "1M");
        assert!(matches!(c.admission(), Admission::Delayed(StallCause::Pending, _)));
        c.set("pending_compaction_soft_bytes", "1G");
        assert_eq!(c.admission(), Admission::Open);
    }),
    ("pending_compaction_hard_bytes", |c| {
        owe_three_mib(c);
        let both = ["pending_compaction_soft_bytes", "pending_compaction_hard_bytes"];
        c.db.set_options(&both.map(|name| (name, "1M"))).expect("set");
        assert_eq!(c.admission(), Admission::Stopped(StallCause::Pending));
        c.set("pending_compaction_hard_bytes", "1G");
        assert!(!matches!(c.admission(), Admission::Stopped(_)));
    }),
    ("delayed_write_bytes_per_s", |c| {
        three_runs(c);
        c.db.set_options(&[("level0_compaction_trigger", "2"), ("level0_slowdown_trigger", "2")])
            .expect("set");
        let pace = |text: &str| {
            c.set("delayed_write_bytes_per_s", text);
            c.env.sleep(1_000_000_000);
            let before = c.env.now();
            c.put(5000, 50, 10_000);
            c.env.now() - before
        };
        // On the simulated clock.
        let (slow, fast) = (pace("64K"), pace("64G"));
        assert!(slow > 100_000_000 && fast < slow / 10, "{slow} {fast}");
    }),
    ("level_base_bytes", |c| {
        c.set("automatic_compaction", "true");
        c.table(0, 300, 1000);
        assert_eq!((c.db.wait_until_idle().is_ok(), c.db.compactions()), (true, 0));
        c.set("level_base_bytes", "64K");
        c.db.wait_until_idle().expect("idle");
        assert!(c.db.compactions() > 0);
    }),
    ("level_multiplier", |c| {
        assert_eq!(c.engine().space.trees[0].options.load().strategy.level_ratio, 10);
        c.set("level_multiplier", "3");
        assert_eq!(c.engine().space.trees[0].options.load().strategy.level_ratio, 3);
    }),
    ("table_bytes", |c| {
        c.table(0, 1000, 1000);
        c.compact();
        assert_eq!(c.tables().len(), 1);
        c.set("table_bytes", "64K");
        c.compact();
        assert!(c.tables().len() > 8, "{:?}", c.tables());
    }),
    ("block_bytes", |c| {
        c.table(0, 1000, 100);
        c.compact();
        let before = c.tables()[0].1;
        c.set("block_bytes", "512");
        c.compact();
        assert!(c.tables()[0].1 > 4 * before, "{before} {:?}", c.tables());
    }),
    ("block_restart_interval", |c| {
        c.table(0, 1000, 10);
        let before = c.newest();
        c.set("block_restart_interval", "1");
        c.table(0, 1000, 10);
        assert!(c.newest() > before + 10_000, "whole keys take more room: {before} {}", c.newest());
    }),
    ("filter_bits_per_key", |c| {
        c.table(0, 8000, 10);
        let before = c.newest();
        c.set("filter_bits_per_key", "0");
        c.table(0, 8000, 10);
        assert!(c.newest() + 8000 < before, "{before} {}", c.newest());
    }),
    ("filter_whole_keys", |c| {
        c.table(0, 8000, 10);
        let before = c.newest();
        // There is no prefix extractor, so nothing is left for the filter.
        c.set("filter_whole_keys", "false");
        c.table(0, 8000, 10);
        assert!(c.newest() + 8000 < before, "{before} {}", c.newest());
    }),
    ("compression", |c| {
        c.table(0, 100, 3000);
        let before = c.newest();
        c.set("compression", "lz4");
        c.table(0, 100, 3000);
        assert!(c.newest() < before / 4, "{before} {}", c.newest());
    }),
    ("compression_bottom", |c| {
        c.table(0, 100, 3000);
        c.compact();
        let before = c.tables()[0].0;
        c.set("compression_bottom", "lz4");
        c.compact();
        assert!(c.tables()[0].0 < before / 4, "{before} {:?}", c.tables());
    }),
    ("block_cache_bytes", |c| {
        c.table(0, 3000, 1000);
        let read_all = || {
            let mut iter = c.db.iter(&Default::default()).expect("iter");
            iter.seek_to_first().expect("seek");
            while iter.valid() {
                let found = c.db.get(&Default::default(), iter.key()).expect("get");
                assert!(found.is_some());
                iter.next().expect("next");
            }
            c.engine().blocks.usage()
        };
        assert!(read_all() > 2 << 20);
        for (text, bytes) in [("1M", 1 << 20), ("0", 0), ("512K", 512 << 10)] {
            c.set("block_cache_bytes", text);
            assert!(c.engine().blocks.usage() <= bytes, "at once");
            let used = read_all();
            assert!(used <= bytes && used >= bytes / 2, "{text}: {used}");
        }
        c.set("block_cache_bytes", "64M");
        assert!(read_all() > 2 << 20);
    }),
    ("batch_reads", |c| {
        c.set("block_cache_bytes", "0");
        // Two blocks of one table, and the blocks that a scan begins with in two.
        (0..2).for_each(|i| c.table(i, 2000, 100));
        let batched = || {
            let before = c.db.metrics().counters.batched_reads;
            let mut iter = c.db.iter(&Default::default()).expect("iter");
            iter.seek_to_first().expect("seek");
            let keys = [iter.key().to_vec(), {
                iter.seek_to_last().expect("seek");
                iter.key().to_vec()
            }];
            drop(iter);
            let found = c.db.multi_get(&Default::default(), &[&keys[0], &keys[1]]).expect("multi_get");
            assert!(found.iter().all(Option::is_some));
            c.db.metrics().counters.batched_reads - before
        };
        assert_eq!(batched(), 6);
        c.set("batch_reads", "false");
        assert_eq!(batched(), 0);
    }),
    ("scan_threads", |c| {
        c.table(0, 500, 100);
        let is_ahead = || {
            let options = ScanOptions { long_bytes: 0, batch_bytes: 1000, ..ScanOptions::default() };
            let mut scan = c.db.scan(&Default::default(), &options).expect("scan");
            let mut entries = 0;
            while let Some(batch) = scan.next_batch().expect("a batch") {
                entries += batch.len();
            }
            assert!(entries > 0);
            let threads = c.env.live_threads().iter().filter(|name| name.starts_with("dialsm-scan")).count();
            (scan.is_ahead(), threads)
        };
        assert_eq!(is_ahead(), (false, 0));
        c.set("scan_threads", "2");
        assert_eq!(is_ahead(), (true, 2));
        c.set("scan_threads", "0");
        assert_eq!(is_ahead(), (false, 2));
        c.set("scan_threads", "1");
    }),
    ("open_tables_max", |c| {
        let open = || {
            c.tables();
            c.engine().tables.len()
        };
        (0..40).for_each(|i| c.table(i, 1, 10));
        assert_eq!(open(), 40);
        c.set("open_tables_max", "16");
        assert!(c.engine().tables.len() <= 16, "at once: {}", c.engine().tables.len());
        assert!((8..=16).contains(&open()), "{}", open());
        c.set("open_tables_max", "400");
        assert_eq!(open(), 40);
    }),
    ("table_cache_bytes", |c| {
        // Filters of some 120 KiB each.
        c.set("filter_bits_per_key", "64");
        (0..12).for_each(|i| c.table(i * 15_000, 15_000, 0));
        let open = || {
            c.tables();
            c.engine().tables.len()
        };
        assert_eq!(open(), 12);
        c.set("table_cache_bytes", "1M");
        assert!(c.engine().tables.usage() <= 1 << 20, "at once");
        assert!((2..=9).contains(&open()), "{}", open());
        c.set("table_cache_bytes", "60M");
        assert_eq!(open(), 12);
    }),
    ("log_segment_bytes", |c| {
        c.put(0, 200, 1000);
        assert_eq!(c.engine().log.size().1, 1);
        c.set("log_segment_bytes", "64K");
        c.put(0, 200, 1000);
        assert!(c.engine().log.size().1 >= 3, "{:?}", c.engine().log.size());
    }),
    ("log_recycle_max", |c| {
        c.set("log_segment_bytes", "64K");
        c.table(0, 500, 1000);
        assert_eq!(c.logs_on_disk(), 1);
        c.set("log_recycle_max", "3");
        c.table(0, 500, 1000);
        assert_eq!(c.logs_on_disk(), 4);
        c.set("log_recycle_max", "1");
        assert_eq!(c.logs_on_disk(), 2, "at once");
    }),
    ("log_total_bytes_max", |c| {
        c.set("log_segment_bytes", "64K");
        c.put(0, 2000, 1000);
        assert!(c.db.is_idle() && c.engine().space.trees[0].view().version.l0().is_empty());
        c.set("log_total_bytes_max", "1M");
        c.put(0, 1, 10);
        c.db.wait_until_idle().expect("idle");
        assert_eq!(c.engine().space.trees[0].view().version.l0().len(), 1);
    }),
];

/// Three tables in level 0, compaction on but held back.
fn three_runs(c: &Case) {
    (0..3).for_each(|_| c.table(0, 100, 100));
    c.engine().space.trees[0].lock().compactions_paused += 1;
    c.set("automatic_compaction", "true");
    assert_eq!(c.admission(), Admission::Open);
}

/// Some 3 MiB in level 0 that are due to go, compaction on but held back.
fn owe_three_mib(c: &Case) {
    c.table(0, 3000, 1000);
    c.engine().space.trees[0].lock().compactions_paused += 1;
    let due = [("automatic_compaction", "true"), ("level_base_bytes", "64K")];
    c.db.set_options(&due).expect("set");
    assert_eq!(c.admission(), Admission::Open);
}

/// In how many groups six writers of 2000 bytes commit that found the queue led.
fn groups_of_six_waiting(c: &Case) -> u64 {
    let engine = c.engine();
    let before = c.db.metrics().counters.write_groups;
    let writers = engine.commit.between_groups(engine, |_, _| {
        let writers: Vec<_> = (0..6u8)
            .map(|i| {
                let db = c.db.clone();
                let job = Box::new(move || db.put(&WriteOptions::default(), &[i], &[i; 2000]).expect("put"));
                c.env.spawn("writer", job).expect("spawn")
            })
            .collect();
        while engine.commit.waiting() < 6 {
            c.env.sleep(1000);
        }
        writers
    });
    writers.into_iter().for_each(|writer| writer.join());
    c.db.metrics().counters.write_groups - before
}

#[test]
fn every_live_option_takes_effect() {
    let covered: BTreeSet<&str> = CHECKS.iter().map(|(name, _)| *name).collect();
    let live: BTreeSet<&str> = describe().iter().filter(|info| info.live).map(|info| info.name).collect();
    assert_eq!(covered, live, "every live option has a check here, and no other");
    for (index, (name, check)) in CHECKS.iter().enumerate() {
        println!("{name}");
        let env = SimEnv::new(index as u64);
        env.run(|| {
            let db = Db::open(env.clone(), Path::new(DIR), quiet()).expect("open");
            let case = Case { env: env.clone(), db };
            check(&case);
            case.db.close().expect("close");
            drop(case);
            // The change was written down, and is not applied by an opening.
            let saved = Options::load(env.as_ref(), Path::new(DIR)).expect("saved");
            assert_ne!(saved.get(name).expect("known"), quiet().get(name).expect("known"), "{name}");
            let db = Db::open(env.clone(), Path::new(DIR), quiet()).expect("open");
            assert_eq!(db.options().to_text(), quiet().to_text());
        });
    }
}

fn in_memory() -> (Arc<FaultFs>, Db) {
    let faults = FaultFs::new(dialsm_io::SimFs::new(1));
    let db = Db::open(dialsm_io::OsEnv::with_fs(faults.clone()), Path::new(DIR), quiet()).expect("open");
    (faults, db)
}

fn options_file(fs: &dyn Fs) -> (String, Vec<u8>) {
    let names = fs.list(Path::new(DIR)).expect("list");
    let mut found = names.into_iter().filter(|name| name.starts_with("OPTIONS"));
    let name = found.next().expect("an OPTIONS file");
    assert_eq!(found.next(), None, "only one");
    let file = fs.open(&Path::new(DIR).join(&name), Access::Read).expect("open");
    let mut bytes = vec![0; file.len().expect("length") as usize];
    file.read_at(&mut bytes, 0).expect("read");
    (name, bytes)
}

#[test]
fn all_problems_are_named_and_nothing_changes() {
    let (fs, db) = in_memory();
    let before = (db.options().to_text(), options_file(fs.as_ref()));
    let error = db
        .set_options(&[
            ("table_bytes", "1M"),
            ("no_such", "1"),
            ("recovery_mode", "absolute_consistency"),
            ("write_buffers_max", "1"),
            ("block_bytes", "many"),
            ("table_bytes", "2M"),
            ("level0_stop_trigger", "3"),
        ])
        .expect_err("six problems");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    for part in [
        "\"no_such\": no such option",
        "\"recovery_mode\": it can't be changed",
        "\"write_buffers_max\": 1 is not in 2..=64",
        "\"block_bytes\": want a whole number",
        "\"table_bytes\": named twice",
        "level0_stop_trigger is below level0_slowdown_trigger",
    ] {
        assert!(error.message().contains(part), "{part} in {error}");
    }
    assert_eq!((db.options().to_text(), options_file(fs.as_ref())), before);
    db.set_options(&[]).expect("nothing to do");
    assert_eq!((db.options().to_text(), options_file(fs.as_ref())), before);
    db.set_options(&[("table_bytes", " 1M "), ("block_bytes", "8K")]).expect("legal");
    let (name, text) = options_file(fs.as_ref());
    assert!(name > before.1.0, "a new number");
    let text = String::from_utf8(text).expect("text");
    assert!(text.contains("table_bytes = 1M\n") && text.contains("block_bytes = 8K\n"), "{text}");
    assert!(text.ends_with(&db.options().to_text()));
    db.close().expect("close");
    let late = db.set_options(&[("table_bytes", "2M")]).expect_err("closed");
    assert_eq!(late.kind(), ErrorKind::Closed);
}

#[test]
fn a_file_that_can_not_be_written_leaves_all_as_it_was() {
    let (fs, db) = in_memory();
    let before = (db.options().to_text(), options_file(fs.as_ref()));
    let mut failed = 0;
    for op in [OpKind::Create, OpKind::Write, OpKind::Sync, OpKind::Rename, OpKind::SyncDir] {
        for fault in [Fault::Errno(libc::EIO), Fault::ErrnoAfter(libc::ENOSPC)] {
            fs.add(Rule::nth(op, 1, fault).on(if op == OpKind::SyncDir { DIR } else { "OPTIONS" }));
            let changes = [("background_jobs_max", "4"), ("table_bytes", "1M")];
            db.set_options(&changes).expect_err("the file can't be written");
            fs.clear();
            failed += 1;
            assert_eq!((db.options().to_text(), options_file(fs.as_ref())), before, "{op:?}");
            let scheduler = &db.handle.engine.scheduler;
            while scheduler.jobs().workers > 2 {
                std::thread::yield_now();
            }
        }
    }
    assert_eq!(failed, 10);
    db.set_options(&[("table_bytes", "1M")]).expect("again");
    assert_eq!(db.options().table_bytes, 1 << 20);
}

#[test]
fn each_keyspace_has_options_of_its_own() {
    let (fs, db) = in_memory();
    let own = KeyspaceOptions { level_multiplier: 4.0, ..quiet().keyspace() };
    let one = db.create_keyspace("one", own).expect("create");
    let two = db.create_keyspace("two \"\\", quiet().keyspace()).expect("create");
    let (before, others) = (db.options().to_text(), two.options().to_text());
    db.set_options_in(&one, &[("write_buffer_bytes", "64K"), ("table_bytes", "1M")]).expect("set");
    assert_eq!((one.options().table_bytes, one.options().level_multiplier), (1 << 20, 4.0));
    assert_eq!((db.options().to_text(), two.options().to_text()), (before, others));
    for keyspace in [&one, &two] {
        for n in 0..200u32 {
            db.put_in(&WriteOptions::default(), keyspace, &n.to_be_bytes(), &[1; 1000]).expect("put");
        }
    }
    db.wait_until_idle().expect("idle");
    let tables = |keyspace: &Keyspace| keyspace.0.trees[0].view().version.l0().len();
    assert!(tables(&one) > 0 && tables(&two) == 0);

    let default = db.default_keyspace();
    db.set_options_in(&default, &[("block_bytes", "8K")]).expect("set");
    assert_eq!((db.options().block_bytes, default.options().block_bytes), (8 << 10, 8 << 10));
    db.set_options(&[("block_bytes", "16K")]).expect("set");
    assert_eq!((db.options().block_bytes, default.options().block_bytes), (16 << 10, 16 << 10));
    assert_eq!((one.options().block_bytes, two.options().block_bytes), (4 << 10, 4 << 10));

    let names = |text: &[u8]| String::from_utf8_lossy(text).matches("[keyspace ").count();
    let saved = options_file(fs.as_ref());
    assert_eq!(names(&saved.1), 2);
    for keyspace in [&one, &default] {
        let error = db
            .set_options_in(keyspace, &[("block_cache_bytes", "1M"), ("block_bytes", "1K"), ("no", "1")])
            .expect_err("not of a keyspace");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains("\"block_cache_bytes\": it is one of the database"), "{error}");
        assert!(error.message().contains("\"no\": no such option"), "{error}");
    }
    assert_eq!(options_file(fs.as_ref()), saved);
    let env = dialsm_io::OsEnv::with_fs(fs.clone());
    let (read, sections) = Options::load_all(env.as_ref(), Path::new(DIR)).expect("saved");
    assert_eq!(read.to_text(), db.options().to_text());
    for ((name, options), keyspace) in sections.iter().zip([&one, &two]) {
        assert_eq!((&name[..], options.to_text()), (keyspace.name(), keyspace.options().to_text()));
    }

    let (_, other_db) = in_memory();
    let foreign = db.set_options_in(&other_db.default_keyspace(), &[("block_bytes", "1K")]);
    assert_eq!(foreign.expect_err("of another database").kind(), ErrorKind::InvalidArgument);
    db.drop_keyspace(&one).expect("drop");
    let gone = db.set_options_in(&one, &[("block_bytes", "1K")]).expect_err("dropped");
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    assert_eq!(names(&options_file(fs.as_ref()).1), 1);
}

/// Changes from several threads beside writers and flushes, and a close in the middle.
#[test]
fn changes_beside_writers_and_a_close() {
    for seed in 0..20 {
        let env = SimEnv::new(seed);
        env.run(|| {
            let options =
                Options { automatic_compaction: true, write_buffer_bytes: 64 << 10, ..Options::default() };
            let db = Db::open(env.clone(), Path::new(DIR), options).expect("open");
            env.switch_at_io();
            let mut threads = Vec::new();
            for thread in 0..4u32 {
                let (db, env) = (db.clone(), env.clone());
                let spawner = env.clone();
                let job = Box::new(move || {
                    for n in 0..60u32 {
                        let outcome = match (thread, n % 4) {
                            (0, 0) => {
                                db.set_options(&[("background_jobs_max", ["2", "5", "3"][n as usize % 3])])
                            }
                            (0, 1) => db.set_options(&[("table_bytes", "64K"), ("block_bytes", "1K")]),
                            (1, 0) => {
                                db.set_options(&[("open_tables_max", ["16", "512"][n as usize / 4 % 2])])
                            }
                            (1, 1) => {
                                db.flush_with(&FlushOptions { wait: false, allow_stall: true, atomic: false })
                            }
                            _ => db.put(&WriteOptions::default(), &n.to_be_bytes(), &[1; 3000]),
                        };
                        match outcome {
                            Ok(()) => {}
                            Err(error) if error.kind() == ErrorKind::Closed => return,
                            Err(error) => panic!("{error}"),
                        }
                        env.yield_now();
                    }
                });
                threads.push(spawner.spawn("user", job).expect("spawn"));
            }
            env.sleep(seed * 3_000_000);
            db.close().expect("close");
            let live = env.live_threads();
            let workers = live.iter().filter(|name| name.starts_with("dialsm-bg")).count();
            assert_eq!(workers, 0, "all workers are joined: {live:?}");
            threads.into_iter().for_each(|thread| thread.join());
            env.sim_fs().clear_call_hooks();
            drop(db);
            let saved = Options::load(env.as_ref(), Path::new(DIR)).expect("saved");
            saved.validate().expect("what is saved fits together");
        });
    }
}
