use std::fmt::Write as _;

use super::*;
use crate::ErrorKind;

/// A legal text value of each option that differs from its default.
fn other_value(info: &OptionInfo) -> String {
    match info.value_type {
        OptionType::Bool => (info.default != "true").to_string(),
        OptionType::Choice(words) => {
            words.iter().find(|w| **w != info.default).expect("a choice has two words").to_string()
        }
        OptionType::Number => format!("{}.25", (info.min + 6).min(info.max.saturating_sub(1))),
        OptionType::Integer => (info.min + 6).to_string(),
    }
}

#[test]
fn defaults_are_valid_and_round_trip() {
    let mut options = vec![Options::default()];
    for cores in [0, 1, 2, 7, 5000] {
        for memory in [0, 1 << 20, 1 << 30, 24 << 30, u64::MAX] {
            options.push(Options::for_machine(cores, memory));
        }
    }
    for options in options {
        options.validate().expect("defaults fit together");
        let text = options.to_text();
        assert_eq!(Options::from_text(&text).expect("own text").to_text(), text);
    }
    let machine = Options::for_machine(8, 16 << 30);
    assert_eq!((machine.background_jobs_max, machine.subcompactions_max), (8, 8));
    assert_eq!(machine.block_cache_bytes, 2 << 30);
    assert_eq!(machine.write_buffer_bytes, 64 << 20);
}

#[test]
fn every_option_round_trips_alone() {
    assert!(describe().len() >= 29);
    for info in describe() {
        let other = other_value(info);
        let mut options = Options::default();
        assert_eq!(options.get(info.name).expect("known"), info.default, "{}", info.name);
        options.set(info.name, &other).unwrap_or_else(|e| panic!("{} = {other}: {e}", info.name));
        let shown = options.get(info.name).expect("known");
        assert_ne!(shown, info.default, "{}", info.name);
        let read = Options::from_text(&options.to_text()).expect("own text");
        assert_eq!(read.to_text(), options.to_text());
        let usual = Options::default().to_text();
        let is_usual = |line: &&str| usual.lines().any(|other| other == *line);
        let changed = read.to_text().lines().filter(|line| !is_usual(line)).count();
        assert_eq!(changed, 1, "{} changed one line", info.name);
    }
}

#[test]
fn ranges_hold_at_both_ends() {
    let mut checked = 0;
    for info in describe() {
        if !matches!(info.value_type, OptionType::Integer | OptionType::Number) {
            continue;
        }
        let mut options = Options::default();
        for legal in [info.min, info.max] {
            options.set(info.name, &legal.to_string()).expect("an end of the range is in it");
        }
        let before = options.to_text();
        let below = info.min.checked_sub(1);
        for illegal in [below, Some(info.max + 1)].into_iter().flatten() {
            let error = options.set(info.name, &illegal.to_string()).expect_err("out of range");
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().contains(info.name) && error.message().contains("..="), "{error}");
            checked += 1;
        }
        assert_eq!(options.to_text(), before, "a failed set changes nothing");
    }
    assert!(checked > 40, "{checked}");
}

#[test]
fn sizes_take_suffixes_and_nothing_else_does() {
    let mut options = Options::default();
    for (text, bytes) in [("65536", 65536), ("64K", 65536), ("64 k", 65536), ("3m", 3 << 20), ("2G", 2 << 30)]
    {
        options.set("write_buffer_bytes", text).expect("a size");
        assert_eq!(options.write_buffer_bytes, bytes, "{text}");
    }
    options.set("pending_compaction_hard_bytes", "1T").expect("a size");
    assert_eq!(options.pending_compaction_hard_bytes, 1 << 40);
    for bad in [
        "",
        "K",
        "-1",
        "+1",
        "1.5M",
        "64MB",
        "64MiB",
        "1 000",
        "0x10",
        "16777216T",
        "99999999999999999999",
        "é",
    ] {
        assert!(options.set("write_buffer_bytes", bad).is_err(), "{bad:?}");
    }
    for (name, bad) in [
        ("level0_stop_trigger", "1K"),
        ("filter_bits_per_key", "NaN"),
        ("filter_bits_per_key", "1e1"),
        ("filter_bits_per_key", "-1"),
        ("error_if_exists", "yes"),
        ("compression", "LZ4"),
    ] {
        assert!(options.set(name, bad).is_err(), "{name} = {bad}");
    }
}

#[test]
fn text_names_every_bad_line_and_changes_nothing() {
    let text = "# a comment\n\nwrite_buffer_bytes = 1M # so\nno_such = 1\nerror_if_exists\n  error_if_exists = maybe\n\
                table_bytes=2M\ntable_bytes = 3M\n";
    let mut options = Options::default();
    let error = options.apply_text(text).expect_err("four bad lines");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    for part in [
        "line 4: option \"no_such\": no such option",
        "line 5: want",
        "line 6: option \"error_if_exists\"",
        "line 8",
    ] {
        assert!(error.message().contains(part), "{part} in {error}");
    }
    assert_eq!(options.to_text(), Options::default().to_text());
    options.apply_text("\r\n write_buffer_bytes =1M\r\n#x = y\r\n").expect("legal");
    assert_eq!(options.write_buffer_bytes, 1 << 20);
}

#[test]
fn validate_reports_all_problems_at_once() {
    let options = Options {
        write_buffers_max: 1,
        filter_bits_per_key: f64::NAN,
        level0_compaction_trigger: 30,
        level0_stop_trigger: 10,
        pending_compaction_soft_bytes: 300 << 30,
        ..Options::default()
    };
    let error = options.validate().expect_err("five problems");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    for part in [
        "write_buffers_max: 1 is not in 2..=64",
        "filter_bits_per_key",
        "level0_slowdown_trigger is below level0_compaction_trigger",
        "level0_stop_trigger is below level0_slowdown_trigger",
        "pending_compaction_hard_bytes is below",
    ] {
        assert!(error.message().contains(part), "{part} in {error}");
    }
    let zstd = Options { compression_bottom: Compression::Zstd, ..Options::default() };
    assert_eq!(zstd.validate().is_ok(), cfg!(feature = "zstd"));
}

#[test]
fn unknown_names_are_errors() {
    let mut options = Options::default();
    assert_eq!(options.set("nope", "1").expect_err("unknown").kind(), ErrorKind::InvalidArgument);
    assert_eq!(options.get("").expect_err("unknown").kind(), ErrorKind::InvalidArgument);
}

/// docs/OPTIONS.md as it should be.
fn document() -> String {
    let mut out = String::from(
        "# Options\n\n\
         Made from the table in `lsm-core/src/options/table.rs`; do not edit. After a change of the table run\n\
         `UPDATE=1 cargo test -p dialsm-core options_document`.\n\n\
         Text form: one `name = value` a line, `#` starts a comment. Byte sizes take K, M, G and T (powers of\n\
         1024). *live* options may be changed on an open database; the others count when it is opened. Options *of each\n\
         keyspace* stand in the database's options for the default keyspace, and for those without their own.\n",
    );
    for info in describe() {
        let unit = match info.unit.as_str() {
            "" => String::new(),
            unit => format!(" {unit}"),
        };
        let text = |n| value::integer_text(n, info.unit);
        let values = match info.value_type {
            OptionType::Bool => "true or false".into(),
            OptionType::Choice(words) => words.join(", "),
            OptionType::Integer | OptionType::Number => format!("{} to {}", text(info.min), text(info.max)),
        };
        let when = if info.live { "live" } else { "at open" };
        let whose = match info.scope {
            OptionScope::Database => "of the database",
            OptionScope::Keyspace => "of each keyspace",
        };
        let doc: Vec<&str> = info.doc.lines().map(str::trim).collect();
        write!(
            out,
            "\n## {}\n\nDefault {}{unit}; {values}; {when}; {whose}.\n\n{}\n",
            info.name,
            info.default,
            doc.join("\n")
        )
        .expect("writing to a string cannot fail");
    }
    out.push_str(
        "\n## Without a text form\n\n\
         Comparator, merge operator, prefix extractor, router and event listeners are objects, given at each opening. So are the paths of\n\
         `shard_dirs`, directories for the tables of shards: at most 255, by default none, so that all tables lie in the\n\
         database's own directory. New tables of shard i go to the i-th, from the front again behind the last. Which\n\
         directories an opening needs, makes and refuses is told at `Options::shard_dirs`; `Options::load` knows those of\n\
         the last opening.\n",
    );
    out
}

#[test]
fn options_document_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/OPTIONS.md");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, document()).expect("docs/ is writable");
    }
    let found = std::fs::read_to_string(path).expect("docs/OPTIONS.md is there");
    assert!(found == document(), "docs/OPTIONS.md is old: run the test with UPDATE=1");
}

#[test]
fn a_keyspace_has_its_part_of_the_table() {
    let keyspace: Vec<&OptionInfo> = describe().iter().filter(|i| i.scope == OptionScope::Keyspace).collect();
    assert!(keyspace.len() >= 17 && keyspace.len() < describe().len());
    let mut options = KeyspaceOptions::default();
    assert_eq!(options.to_text().lines().count(), keyspace.len());
    for info in describe() {
        let value = other_value(info);
        let set = options.set(info.name, &value);
        if info.scope == OptionScope::Database {
            assert_eq!(
                set.expect_err("one of the database").kind(),
                ErrorKind::InvalidArgument,
                "{}",
                info.name
            );
            assert!(options.get(info.name).is_err());
            continue;
        }
        set.expect("one of the keyspace");
        let mut database = Options::default();
        database.set_keyspace(&options);
        assert_eq!(database.get(info.name).expect("known"), options.get(info.name).expect("known"));
        assert_eq!(database.keyspace().to_text(), options.to_text());
        assert_ne!(options.to_text(), KeyspaceOptions::default().to_text());
        options = KeyspaceOptions::default();
    }
    options.write_buffers_max = 1;
    assert!(options.validate().expect_err("out of range").message().contains("write_buffers_max"));
}
