use super::*;
use crate::write::stall::StallReport;

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
        let snapshot = metrics.snapshot();
        let mut shards = vec![ShardMetrics::default()];
        // With one shard, all look-ups are its.
        shards[0].counters.gets = snapshot.counters.gets;
        let only = MetricsSnapshot { counters: snapshot.counters, shards, ..Default::default() };
        assert_eq!(snapshot, only);
    }
    for level in 0..LEVELS {
        for (index, counter) in LevelCounter::ALL.iter().enumerate() {
            let metrics = Metrics::new();
            metrics.add_level(*counter, level, 5);
            let snapshot = metrics.snapshot();
            assert_eq!(snapshot.levels[level].entries()[index].1, 5);
            let sum: u64 = snapshot.levels.iter().flat_map(|l| l.entries()).map(|(_, v)| v).sum();
            assert_eq!(sum, 5);
            assert_eq!(snapshot.counters, Counters::default());
            assert_eq!(snapshot.stalls, [StallCounters::default(); 3]);
        }
    }
    for shard in 0..3 {
        for (index, counter) in ShardCounter::ALL.iter().enumerate() {
            let metrics = Metrics::of_shards(3);
            match counter {
                ShardCounter::Gets => (0..5).for_each(|_| metrics.add_get_of_shard(shard)),
                _ => metrics.add_to_shard(shard, *counter, 5),
            }
            let snapshot = metrics.snapshot();
            assert_eq!(snapshot.shards[usize::from(shard)].counters.entries()[index].1, 5);
            let all = snapshot.shards.iter().flat_map(|s| s.counters.entries()).map(|(_, v)| v);
            assert_eq!((snapshot.shards.len(), all.sum::<u64>()), (3, 5));
        }
    }
}

#[test]
fn look_ups_of_many_shards_are_told_apart() {
    let metrics = Metrics::of_shards(100);
    (0..100).for_each(|shard| (0..=shard).for_each(|_| metrics.add_get_of_shard(shard)));
    let gets: Vec<u64> = metrics.snapshot().shards.iter().map(|shard| shard.counters.gets).collect();
    assert_eq!(gets, Vec::from_iter(1..=100));
}

#[test]
fn one_call_in_so_many_is_sampled() {
    let metrics = Metrics::new();
    let sampled = (0..10 * SAMPLE_EVERY).filter(|_| metrics.count_call(Counter::Gets)).count();
    assert_eq!((sampled, metrics.total(Counter::Gets)), (10, 10 * SAMPLE_EVERY));
}

#[test]
fn stalls_groups_and_jobs_count_all_their_parts() {
    let metrics = Metrics::new();
    for (n, cause) in StallCause::ALL.into_iter().enumerate() {
        metrics.add_stall(0, cause, 10 * (n as u64 + 1));
    }
    metrics.add_group(32, 3200);
    metrics.add_log_sync(300_000);
    metrics.add_flush(0, 3200, 6400, 77);
    metrics.add_compaction(0, 6, 100, 3200, 5);
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
    metrics.add_flush(0, 50, 100, 1);
    metrics.add_stall(0, StallCause::Level0, 42);
    let snapshot = metrics.snapshot();
    let (text, json) = (snapshot.to_text(), snapshot.to_json());
    for (name, value) in snapshot.counters.entries() {
        assert!(json.contains(&format!("\"{name}\":{value}")), "{name} in {json}");
        let is_its = |line: &&str| line.split_whitespace().next() == Some(name);
        let line = text.lines().rfind(is_its).expect("a line for each counter");
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

/// A snapshot with everything in it that a database can have.
fn full() -> MetricsSnapshot {
    let metrics = Metrics::of_shards(2);
    metrics.add(Counter::Gets, 10);
    metrics.add_group(2, 50);
    metrics.add_flush(1, 50, 100, 1_000_000_001);
    metrics.add_compaction(0, 6, 100, 3200, 5);
    metrics.add_stall(1, StallCause::Pending, 1_500);
    metrics.add_level(LevelCounter::GetPasses, 6, 15);
    metrics.add_level(LevelCounter::GetHits, 6, 10);
    (0..1000).for_each(|n| metrics.get_ns.record(n * n));
    let mut stalls = StallReport::default();
    (stalls.all.count, stalls.all.total_ns) = (3, 1_230_000_000);
    stalls.by_cause.iter_mut().for_each(|times| times.count = 2);
    let names = ["default", "a \"quoted\" \\ name, {with} = all"];
    MetricsSnapshot {
        clock_ns: 17,
        keyspaces: names.map(|name| KeyspaceMetrics { name: name.to_owned(), stalls }).to_vec(),
        trees: names
            .iter()
            .flat_map(|name| {
                [0, 1].map(|shard| TreeMetrics { keyspace: (*name).to_owned(), shard, ..Default::default() })
            })
            .collect(),
        ..metrics.snapshot()
    }
}

/// A sample line: name, labels, value.
type Sample = (String, Vec<(String, String)>, f64);

/// Reads a line as the format's specification has it.
fn parse_sample(line: &str) -> Sample {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let end = line.find(|c| !is_name(c)).expect("a name is followed by something");
    let (name, mut rest) = line.split_at(end);
    assert!(!name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()), "{line}");
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, behind) = rest.split_once("=\"").expect("a label has a quoted value");
            let fits = label.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            assert!(fits && !label.is_empty() && !label.starts_with("__"), "{line}");
            let (mut value, mut chars) = (String::new(), behind.char_indices());
            let end = loop {
                match chars.next().expect("the quote is closed") {
                    (at, '"') => break at,
                    (_, '\\') => match chars.next().expect("something is escaped").1 {
                        'n' => value.push('\n'),
                        c @ ('"' | '\\') => value.push(c),
                        c => panic!("\\{c} in {line}"),
                    },
                    (_, c) => value.push(c),
                }
            };
            labels.push((label.to_owned(), value));
            rest = &behind[end + 1..];
            match rest.strip_prefix(',') {
                Some(next) => rest = next,
                None => break,
            }
        }
        rest = rest.strip_prefix('}').expect("the labels are closed");
    }
    let value = rest.strip_prefix(' ').expect("a space before the value");
    (name.to_owned(), labels, value.parse().expect("a number"))
}

/// The families of a text, each with its type and samples; checked for all that the format asks.
fn parse_prometheus(text: &str) -> Vec<(String, String, Vec<Sample>)> {
    assert!(text.ends_with('\n'));
    let mut families: Vec<(String, String, Vec<Sample>)> = Vec::new();
    let mut helped = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("name and text");
            assert!(!help.trim().is_empty());
            helped = Some(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("name and type");
            assert_eq!(helped.take().as_deref(), Some(name));
            assert!(["counter", "gauge", "histogram"].contains(&kind));
            families.push((name.to_owned(), kind.to_owned(), Vec::new()));
        } else {
            let sample = parse_sample(line);
            let (name, kind, samples) = families.last_mut().expect("a type comes first");
            let suffixes: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(suffixes.iter().any(|suffix| sample.0 == format!("{name}{suffix}")), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            samples.push(sample);
        }
    }
    families
}

#[test]
fn prometheus_text_is_well_formed() {
    let snapshot = full();
    let text = snapshot.to_prometheus();
    let families = parse_prometheus(&text);
    // Also without the suffix that OpenMetrics leaves out of a family's name.
    let stem = |name: &str| name.trim_end_matches("_total").to_owned();
    let names: std::collections::BTreeSet<String> = families.iter().map(|(name, ..)| stem(name)).collect();
    assert_eq!(names.len(), families.len(), "a name stands for one family");
    let mut series = std::collections::BTreeSet::new();
    for (name, kind, samples) in &families {
        assert!(name.starts_with("dialsm_") && !name.contains("_ns"), "{name}");
        assert!(!samples.is_empty(), "{name}");
        for (sample, labels, value) in samples {
            assert!(*value >= 0.0);
            assert!(series.insert((sample.clone(), labels.clone())), "{sample} {labels:?} stands twice");
            let known = ["keyspace", "shard", "level", "cause", "le"];
            assert!(labels.iter().all(|(label, _)| known.contains(&label.as_str())), "{labels:?}");
        }
        if kind == "histogram" {
            check_histogram(name, samples);
        }
    }
    let value = |name: &str, labels: &[(&str, &str)]| {
        let labels: Vec<_> = labels.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let samples = families.iter().flat_map(|(.., samples)| samples);
        let mut found = samples.filter(|(sample, l, _)| sample == name && *l == labels);
        found.next().unwrap_or_else(|| panic!("{name} {labels:?}")).2
    };
    assert_eq!(value("dialsm_gets_total", &[]), 10.0);
    assert_eq!(value("dialsm_shard_flush_seconds_total", &[("shard", "1")]), 1.000000001);
    assert_eq!(value("dialsm_level_compaction_write_bytes_total", &[("level", "6")]), 3200.0);
    assert_eq!(value("dialsm_level_read_amplification", &[("level", "6")]), 2.5);
    assert_eq!(value("dialsm_stall_wait_seconds_total", &[("shard", "1"), ("cause", "pending")]), 1.5e-6);
    let odd = snapshot.keyspaces[1].name.as_str();
    assert_eq!(value("dialsm_any_stall_seconds_total", &[("keyspace", odd)]), 1.23);
    assert_eq!(value("dialsm_stalls_total", &[("keyspace", odd), ("cause", "l0")]), 2.0);
    let of_level = [("keyspace", odd), ("shard", "1"), ("level", "3")];
    assert_eq!(value("dialsm_tree_level_bytes", &of_level), 0.0);
    assert_eq!(value("dialsm_get_duration_seconds_count", &[]), 1000.0);
    // 1023 ns is the first bound: 0 to 31 squared are below.
    assert_eq!(value("dialsm_get_duration_seconds_bucket", &[("le", "0.000001023")]), 32.0);
}

fn check_histogram(name: &str, samples: &[Sample]) {
    let bucket = format!("{name}_bucket");
    let buckets: Vec<(f64, f64)> = samples
        .iter()
        .filter(|(sample, ..)| *sample == bucket)
        .map(|(_, labels, count)| match &labels[..] {
            [(le, bound)] if le == "le" => (bound.parse().expect("a number"), *count),
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{buckets:?}");
    let last = buckets.last().expect("one for all");
    assert_eq!(last.0, f64::INFINITY);
    let of = |suffix: &str| {
        samples.iter().find(|(sample, ..)| *sample == format!("{name}{suffix}")).expect("it is there").2
    };
    assert_eq!(of("_count"), last.1);
    assert!(of("_sum") >= 0.0);
}

#[test]
fn described_and_exported_metrics_are_the_same() {
    let described: Vec<(String, String)> =
        describe().into_iter().map(|info| (info.name, info.kind.as_str().to_owned())).collect();
    let exported: Vec<(String, String)> =
        parse_prometheus(&full().to_prometheus()).into_iter().map(|(name, kind, _)| (name, kind)).collect();
    assert_eq!(described, exported);
}

/// docs/METRICS.md as it should be.
fn document() -> String {
    let mut out = String::from(
        "# Metrics\n\n\
         Made from the lists in `lsm-core/src/metrics.rs` and `metrics/snapshot.rs`; do not edit. After a change there run\n\
         `UPDATE=1 cargo test -p dialsm-core metrics_document`.\n\n\
         All of it is always counted (what that costs: [BENCHMARKS.md](BENCHMARKS.md)) and comes in four forms: as a\n\
         struct (`Db::metrics`), as tables (`MetricsSnapshot::to_text`, `dialsm stats DB`), as JSON (`to_json`, `dialsm\n\
         stats DB --json`) and as the text that Prometheus scrapes (`to_prometheus`, `dialsm stats DB --prometheus`, and the\n\
         property `dialsm.stats-prometheus`, which any binding can ask for). The names here are Prometheus'; the struct and the\n\
         JSON have them without `dialsm_` and the words for what a label says, with `_ns` and nanoseconds in the place of\n\
         `_seconds`.\n\n\
         `dialsm stats` opens the database for reading only, which excludes a writer: of a database that is closed it shows\n\
         what is in its files. Counters begin at 0 with each opening.\n\n\
         - *shard*: counts are of all keyspaces together. *keyspace*, *shard*: one tree. *level*: 0 is where flushes go.\n\
         - *cause* of a stall: `memtable` (it is full, or all together are), `l0` (too many runs there), `pending` (compaction\n\
         owes too much). A *wait* is one write's; a *stall* is an interval in which some write of a keyspace waited. Causes may\n\
         overlap; those for any cause do not.\n\
         - One look-up and one write in 256 is timed, chosen by their count in the thread's share of the counters. Everything\n\
         else is timed and counted each. A histogram's buckets are exact; quantiles of the struct, the text and the JSON are at\n\
         most 1/32 above the true ones.\n\
         - Numbers that a change happens between are not of one moment, but those of one tree's levels are.\n\n\
         | metric | type | unit | labels | meaning |\n\
         |---|---|---|---|---|\n",
    );
    for info in describe() {
        let labels = info.labels.join(", ");
        out += &format!(
            "| `{}` | {} | {} | {labels} | {} |\n",
            info.name,
            info.kind.as_str(),
            info.unit,
            info.help
        );
    }
    out
}

#[test]
fn metrics_document_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/METRICS.md");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, document()).expect("docs/ is writable");
    }
    let found = std::fs::read_to_string(path).expect("docs/METRICS.md is there");
    assert!(found == document(), "docs/METRICS.md is old: run the test with UPDATE=1");
}
