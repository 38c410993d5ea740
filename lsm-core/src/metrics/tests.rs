use super::*;

#[test]
fn every_counter_lands_in_its_own_field() {
    for (index, counter) in Counter::ALL.iter().enumerate() {
        let metrics = Metrics::new();
        metrics.add(*counter, 3);
        metrics.add(*counter, 4);
        let entries = metrics.snapshot().counters.entries();
        for (at, (name, value)) in entries.iter().enumerate() {
            assert_eq!(*value, if at == index { 7 } else { 0 }, "{name}");
        }
        let only = MetricsSnapshot { counters: metrics.snapshot().counters, ..Default::default() };
        assert_eq!(metrics.snapshot(), only);
    }
    for level in 0..LEVELS + 2 {
        for (index, counter) in LevelCounter::ALL.iter().enumerate() {
            let metrics = Metrics::new();
            metrics.add_level(*counter, level, 5);
            let snapshot = metrics.snapshot();
            assert_eq!(snapshot.levels[level.min(LEVELS - 1)].entries()[index].1, 5);
            let sum: u64 = snapshot.levels.iter().flat_map(|l| l.entries()).map(|(_, v)| v).sum();
            assert_eq!(sum, 5);
            assert_eq!(snapshot.counters, Counters::default());
            assert_eq!(snapshot.stalls, [StallCounters::default(); 3]);
        }
    }
}

#[test]
fn stalls_groups_and_jobs_count_all_their_parts() {
    let metrics = Metrics::new();
    for (n, cause) in StallCause::ALL.into_iter().enumerate() {
        metrics.add_stall(cause, 10 * (n as u64 + 1));
    }
    metrics.add_group(32, 3200);
    metrics.add_log_sync(300_000);
    metrics.add_flush(3200, 6400, 77);
    metrics.add_compaction(6, 100, 3200, 5);
    let snapshot = metrics.snapshot();
    for (n, cause) in StallCause::ALL.into_iter().enumerate() {
        assert_eq!(snapshot.stall(cause), StallCounters { count: 1, ns: 10 * (n as u64 + 1) });
    }
    assert_eq!((snapshot.stall_ns.count(), snapshot.stall_ns.sum), (3, 60));
    assert_eq!(
        (snapshot.group_ops.max, snapshot.counters.writes, snapshot.counters.write_groups),
        (32, 32, 1)
    );
    assert_eq!((snapshot.counters.log_syncs, snapshot.log_sync_ns.max), (1, 300_000));
    assert_eq!((snapshot.counters.flushes, snapshot.flush_ns.sum), (1, 77));
    assert_eq!((snapshot.counters.flush_input_bytes, snapshot.counters.flush_bytes), (3200, 6400));
    assert_eq!((snapshot.levels[6].compactions, snapshot.compaction_ns.sum), (1, 5));
    assert_eq!(snapshot.write_amplification(), Some(3.0));
    assert_eq!(MetricsSnapshot::default().write_amplification(), None);
}

#[test]
fn threads_lose_nothing() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 5_000;
    let metrics = Metrics::new();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for n in 0..ROUNDS {
                    metrics.add(Counter::Gets, 1);
                    metrics.add_all(&[(Counter::FilterChecked, 2), (Counter::FilterUseful, n % 2)]);
                    metrics.table_opened();
                    metrics.group_ops.record(n);
                }
            });
        }
    });
    // Closed by another thread than the one that opened: shards go negative, the sum does not.
    for _ in 0..THREADS * ROUNDS - 3 {
        metrics.table_closed();
    }
    let snapshot = metrics.snapshot();
    assert_eq!(snapshot.counters.gets, THREADS * ROUNDS);
    assert_eq!(snapshot.counters.filter_checked, 2 * THREADS * ROUNDS);
    assert_eq!(snapshot.counters.filter_useful, THREADS * ROUNDS / 2);
    assert_eq!(snapshot.counters.open_tables, 3);
    assert_eq!(snapshot.group_ops.count(), THREADS * ROUNDS);
    assert_eq!(snapshot.group_ops.max, ROUNDS - 1);
}

#[test]
fn threads_spread_over_shards() {
    let mut indexes: Vec<usize> = std::thread::scope(|scope| {
        let barrier = std::sync::Arc::new(std::sync::Barrier::new(8));
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let barrier = barrier.clone();
                scope.spawn(move || {
                    // All alive at once, or they would share one stack after the other.
                    barrier.wait();
                    let index = shard_index();
                    barrier.wait();
                    index
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().expect("the thread only reads an address")).collect()
    });
    assert!(indexes.iter().all(|index| *index < SHARDS));
    indexes.sort_unstable();
    indexes.dedup();
    assert!(indexes.len() >= 3, "8 threads on {} shards", indexes.len());
}

#[test]
fn reports_name_every_value() {
    let metrics = Metrics::new();
    metrics.add(Counter::Gets, 123_456_789);
    metrics.add_group(2, 50);
    metrics.add_flush(50, 100, 1);
    metrics.add_stall(StallCause::Level0, 42);
    let snapshot = metrics.snapshot();
    let (text, json) = (snapshot.to_text(), snapshot.to_json());
    for (name, value) in snapshot.counters.entries() {
        assert!(json.contains(&format!("\"{name}\":{value}")), "{name} in {json}");
        let line = text.lines().find(|l| l.starts_with(name)).expect("a line for each counter");
        assert!(line.ends_with(&value.to_string()), "{line}");
    }
    for cause in StallCause::ALL {
        assert!(text.contains(cause.as_str()));
    }
    assert!(json.contains("\"l0\":{\"count\":1,\"ns\":42}"), "{json}");
    assert!(json.contains("\"write_amplification\":2.0000"), "{json}");
    assert!(json.contains("\"group_ops\":{\"count\":1,\"sum\":2,\"p50\":2,"), "{json}");
    let depth = json.bytes().fold(0i32, |depth, b| match b {
        b'{' | b'[' => depth + 1,
        b'}' | b']' => depth - 1,
        _ => depth,
    });
    assert_eq!(depth, 0);
    assert_eq!(json.matches("\"get_hits\"").count(), LEVELS);
    assert!(!json.contains(",,") && !json.contains(",}") && !json.contains("{,"));
}

#[test]
fn open_tables_never_shows_a_negative_number() {
    let metrics = Metrics::new();
    metrics.table_closed();
    assert_eq!(metrics.snapshot().counters.open_tables, 0);
}
