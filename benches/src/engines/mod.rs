//! The engines this build has, by name.

#[allow(unsafe_code)] // Calls through the C interface.
mod dialsm_c;
#[cfg(feature = "fjall")]
mod fjall;
mod lsm_core;
mod null;
mod rocksdb;
#[allow(unsafe_code)] // Calls through the C interface.
mod rocksdb_ffi;
mod rocksdb_stats;
mod shard_looks;
mod spec;

use crate::config::EngineOptions;
use crate::engine::KvEngine;
use anyhow::{Result, bail};
use lsm_core::Kind;
use spec::Spec;
use std::path::Path;

const BUILT: &[&str] = &[
    "dialsm",
    "dialsm-c",
    "lsm-core",
    "null",
    "rocksdb",
    #[cfg(feature = "fjall")]
    "fjall",
];

/// The names of the engines of this build.
pub(crate) fn built() -> &'static [&'static str] {
    BUILT
}

/// Checks a word of `--engines`, as far as no engine has to be opened for it.
///
/// # Errors
/// This build has no engine of that name, or the engine no option that the word names.
pub(crate) fn check(word: &str) -> Result<()> {
    let spec = Spec::parse(word)?;
    if !BUILT.contains(&spec.engine) {
        bail!("unknown engine '{}' (this build has {})", spec.engine, built().join(", "));
    }
    match spec.engine {
        "dialsm" | "dialsm-c" | "lsm-core" => lsm_core::check(&spec.settings),
        #[cfg(feature = "fjall")]
        "fjall" => fjall::check(&spec.settings),
        // Its library reads them, when it opens.
        "rocksdb" => Ok(()),
        _ => spec.refuse_settings(),
    }
}

/// Says what is missing on this machine for an engine, before a run is begun.
///
/// # Errors
/// The engine cannot be opened here.
pub(crate) fn probe(word: &str, options: &EngineOptions) -> Result<()> {
    let spec = Spec::parse(word)?;
    if spec.engine == "rocksdb" { rocksdb::probe(options, &spec.settings) } else { Ok(()) }
}

/// Opens an engine on `dir` with all the keyspaces that [`KvEngine::create_keyspaces`] made there.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_with_keyspaces(
    word: &str,
    dir: &Path,
    options: &EngineOptions,
    keyspaces: u32,
) -> Result<Box<dyn KvEngine>> {
    let spec = Spec::parse(word)?;
    match spec.engine {
        // Its interface wants them named.
        "rocksdb" => rocksdb::open(dir, options, &spec.settings, keyspaces),
        _ => open(word, dir, options),
    }
}

/// Opens an engine, a word of `--engines`, on `dir`, which it makes if it is missing.
///
/// # Errors
/// The engine's own, or options that it does not have.
pub(crate) fn open(word: &str, dir: &Path, options: &EngineOptions) -> Result<Box<dyn KvEngine>> {
    let spec = Spec::parse(word)?;
    match spec.engine {
        "dialsm" => lsm_core::open(Kind::Shards, dir, options, &spec.settings),
        "dialsm-c" => dialsm_c::open(dir, options, &spec.settings),
        "lsm-core" => lsm_core::open(Kind::Tree, dir, options, &spec.settings),
        "null" => Ok(Box::new(null::NullEngine)),
        "rocksdb" => rocksdb::open(dir, options, &spec.settings, 0),
        #[cfg(feature = "fjall")]
        "fjall" => fjall::open(dir, options, &spec.settings),
        other => bail!("engine '{other}' is not in this build"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{BatchEntry, Routing, WriteOpts};
    use crate::generate::{KeyBuf, Rng};
    use crate::tempdir::TempDir;
    use std::collections::BTreeMap;
    use std::time::Duration;

    type Model = BTreeMap<Vec<u8>, Vec<u8>>;

    /// The engines that keep data and can be opened on this machine.
    fn real_engines() -> Vec<&'static str> {
        let usable = |name: &&&str| match probe(name, &EngineOptions::default()) {
            Ok(()) => true,
            Err(error) => {
                println!("skipped: {error}");
                false
            }
        };
        BUILT.iter().filter(|name| **name != "null").filter(usable).copied().collect()
    }

    fn small() -> EngineOptions {
        EngineOptions { write_buffer_size: 1 << 20, bloom_bits: 10.0, ..EngineOptions::default() }
    }

    fn get(engine: &dyn KvEngine, key: &[u8]) -> Option<Vec<u8>> {
        let mut value = None;
        let found = engine.get(key, &mut |bytes| value = Some(bytes.to_vec())).unwrap();
        assert_eq!(found, value.is_some());
        value
    }

    fn check_scans(engine: &dyn KvEngine, model: &Model) {
        let mut cursor = engine.cursor().unwrap();
        cursor.seek_to_first().unwrap();
        for (key, value) in model {
            assert!(cursor.valid() && cursor.key() == key && cursor.value() == value);
            cursor.next().unwrap();
        }
        assert!(!cursor.valid());
        cursor.seek_to_last().unwrap();
        for (key, value) in model.iter().rev() {
            assert!(cursor.valid() && cursor.key() == key && cursor.value() == value);
            cursor.prev().unwrap();
        }
        assert!(!cursor.valid());
    }

    fn check_seeks(engine: &dyn KvEngine, model: &Model, rng: &mut Rng) -> u32 {
        let (mut cursor, mut key, mut turns) = (engine.cursor().unwrap(), KeyBuf::new(12), 0);
        for _ in 0..50 {
            let target = key.set(rng.below(600));
            cursor.seek(target).unwrap();
            let mut range = model.range(target.to_vec()..);
            let first = range.next();
            assert_eq!(cursor.valid().then(|| cursor.key().to_vec()).as_ref(), first.map(|(key, _)| key));
            if let (Some((first, _)), Some((second, _))) = (first, range.next()) {
                cursor.next().unwrap();
                assert_eq!(cursor.key(), second);
                cursor.prev().unwrap();
                assert_eq!(cursor.key(), first);
                turns += 1;
            }
        }
        turns
    }

    #[test]
    fn adapters_agree_with_a_map() {
        for name in real_engines() {
            let dir = TempDir::new().unwrap();
            let mut engine = open(name, &dir.path().join("db"), &small()).unwrap();
            let (mut model, mut rng, mut key) = (Model::new(), Rng::new(7, 7), KeyBuf::new(12));
            let (mut puts, mut deletes, mut batches, mut turns) = (0, 0, 0, 0);
            for step in 0..3_000u32 {
                let bytes = key.set(rng.below(500)).to_vec();
                let value = vec![step as u8; rng.below(2_000) as usize];
                let opts = WriteOpts { sync: step % 500 == 0, disable_wal: false };
                match rng.below(10) {
                    0..5 => {
                        engine.put(&bytes, &value, opts).unwrap();
                        model.insert(bytes, value);
                        puts += 1;
                    }
                    5..8 => {
                        engine.delete(&bytes, opts).unwrap();
                        model.remove(&bytes);
                        deletes += 1;
                    }
                    _ => {
                        let other = key.set(rng.below(500)).to_vec();
                        let entries = [
                            BatchEntry { key: &bytes, value: None },
                            BatchEntry { key: &other, value: Some(&value) },
                        ];
                        engine.write_batch(&entries, opts).unwrap();
                        model.remove(&bytes);
                        model.insert(other, value);
                        batches += 1;
                    }
                }
                if step % 1_000 == 999 {
                    engine.flush().unwrap();
                    engine.settle(Duration::from_secs(20)).unwrap();
                    check_scans(engine.as_ref(), &model);
                    turns += check_seeks(engine.as_ref(), &model, &mut rng);
                    engine.close().unwrap();
                    engine = open(name, &dir.path().join("db"), &small()).unwrap();
                }
            }
            for number in 0..500 {
                let bytes = key.set(number);
                assert_eq!(get(engine.as_ref(), bytes).as_ref(), model.get(bytes), "{name} {number}");
            }
            let keys: Vec<Vec<u8>> = (0..500).map(|number| KeyBuf::new(12).set(number).to_vec()).collect();
            let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let mut bytes = 0;
            let found = engine.multi_get(&slices, &mut |value| bytes += value.len()).unwrap();
            assert_eq!((found, bytes), (model.len() as u64, model.values().map(Vec::len).sum()));
            engine.close().unwrap();
            assert!(puts > 1_000 && deletes > 500 && batches > 300 && turns > 80, "{name}");
        }
    }

    #[test]
    fn a_variant_runs_under_its_own_options() {
        let usable = real_engines();
        for (word, shown) in [
            ("lsm-core:deferred_sync=false", "deferred_sync = false"),
            ("lsm-core:write_buffer_bytes=2M", "write_buffer_bytes = 2M"),
            ("dialsm:shards=2:redirect=false", "redirect = false"),
            ("dialsm:clue_capping=false", "clue_capping = false"),
            ("rocksdb:write_buffer_size=2097152", "write_buffer_size=2097152"),
        ] {
            if !usable.contains(&word.split(':').next().unwrap()) {
                continue;
            }
            let dir = TempDir::new().unwrap();
            check(word).unwrap();
            probe(word, &small()).unwrap();
            let engine = open(word, &dir.path().join("db"), &small()).unwrap();
            assert!(engine.options_text().contains(shown), "{word}: {}", engine.options_text());
            engine.put(b"key", b"value", WriteOpts::default()).unwrap();
            engine.flush().unwrap();
            if word == "lsm-core:deferred_sync=false" {
                let flushed = engine.stats().unwrap().background;
                assert!(
                    flushed.flush_sync_seconds.unwrap() > 0.0,
                    "a flush that waits for its sync counts it"
                );
            }
            assert_eq!(get(engine.as_ref(), b"key").as_deref(), Some(&b"value"[..]));
            engine.close().unwrap();
        }
        if usable.contains(&"rocksdb") {
            assert!(probe("rocksdb:no_such_option=1", &small()).is_err());
        }
    }

    #[test]
    fn shards_are_the_runs_unless_the_engine_is_named_with_its_own() {
        for (word, shown) in [("dialsm", "shards = 3 "), ("dialsm:shards=2", "shards = 2 ")] {
            let dir = TempDir::new().unwrap();
            let options = EngineOptions { shards: 3, disable_wal: true, ..small() };
            let engine = open(word, &dir.path().join("db"), &options).unwrap();
            let text = engine.options_text();
            assert!(text.contains(shown) && text.contains("log = false"), "{word}: {text}");
            assert_eq!(
                (engine.clues(), engine.stats().unwrap().routing),
                (Some(0), Some(Routing::default()))
            );
            engine.close().unwrap();
            // What the database was created with stays, and another number is refused.
            assert!(open("dialsm:shards=5", &dir.path().join("db"), &options).is_err());
        }
        let dir = TempDir::new().unwrap();
        let engine = open("lsm-core", dir.path(), &small()).unwrap();
        assert_eq!((engine.clues(), engine.stats().unwrap().routing), (None, None));
        engine.close().unwrap();
    }

    #[test]
    fn tables_of_shards_lie_where_they_are_told_to() {
        let dir = TempDir::new().unwrap();
        let shard_dirs = vec![dir.path().join("a"), dir.path().join("b")];
        let options = EngineOptions { shards: 2, shard_dirs, ..small() };
        let path = dir.path().join("db");
        let engine = open("dialsm", &path, &options).unwrap();
        (0..100u8).for_each(|i| engine.put(&[i; 8], b"value", WriteOpts::default()).unwrap());
        engine.flush().unwrap();
        engine.close().unwrap();
        for part in options.shard_dirs_of(&path) {
            let tables = std::fs::read_dir(&part).unwrap().map(|entry| entry.unwrap().path());
            assert_eq!(tables.filter(|path| path.extension() == Some("sst".as_ref())).count(), 1, "{part:?}");
        }
        options.remove_db(&path).unwrap();
        assert!(!path.exists() && options.shard_dirs_of(&path).iter().all(|part| !part.exists()));
    }

    #[test]
    fn redirected_writes_are_counted_until_they_are_rolled_back() {
        redirected_writes_are_counted(false);
    }

    #[test]
    fn without_a_log_writes_are_redirected_too() {
        redirected_writes_are_counted(true);
    }

    /// Memtables of 32 values each are full sooner than a table is written, so that writes are redirected.
    fn redirected_writes_are_counted(disable_wal: bool) {
        const KEYS: u64 = 20_000;
        let dir = TempDir::new().unwrap();
        let options = EngineOptions { write_buffer_size: 256 << 10, disable_wal, ..small() };
        let opts = WriteOpts { sync: false, disable_wal };
        let engine = open("dialsm:shards=4:rollback=false", &dir.path().join("db"), &options).unwrap();
        let (value, mut key) = ([7; 2_000], KeyBuf::new(12));
        let mut looks = Vec::new();
        for number in 0..KEYS {
            engine.put(key.set(number), &value, opts).unwrap();
            if number % 100 == 0 {
                looks.push(engine.look().shards);
            }
        }
        // Looking is not redirecting: all below holds as if nobody had looked.
        assert!(looks[1..].iter().all(|shards| shards.len() == 4));
        let limits = engine.shard_limits(4);
        for shard in 0..4 {
            let of_shard = || looks[1..].iter().map(|shards| shards[shard]);
            let most = of_shard().map(|look| look.memtable_bytes).max().unwrap();
            let limit = limits[shard].memtable_bytes.unwrap();
            assert!(most > limit / 2 && most < 2 * limit, "{most} of {limit}");
            assert!(of_shard().any(|look| look.is_open));
        }
        assert!(looks.iter().flatten().any(|look| !look.is_open));
        let (routing, clues) = (engine.stats().unwrap().routing.unwrap(), engine.clues().unwrap());
        assert!(routing.redirects > 100 && clues > 0, "{routing:?}, {clues}");
        assert_eq!(routing.redirected_bytes, routing.redirects * (12 + 2_000));
        assert_eq!(engine.stats().unwrap().redirected, Some(routing.redirects));
        assert_eq!(clues, routing.redirects, "each left a clue, and nothing has removed one");
        let found = (0..KEYS).filter(|&number| get(engine.as_ref(), key.set(number)).is_some()).count();
        assert_eq!(found as u64, KEYS);
        let hops = engine.stats().unwrap().routing.unwrap().clue_hops;
        assert_eq!(hops, clues, "each key is read once, and each clue is one key's");
        engine.flush().unwrap();
        engine.settle(Duration::from_secs(60)).unwrap();
        engine.close().unwrap();

        let engine = open("dialsm", &dir.path().join("db"), &options).unwrap();
        engine.flush().unwrap();
        engine.settle(Duration::from_secs(60)).unwrap();
        let routing = engine.stats().unwrap().routing.unwrap();
        assert_eq!(engine.clues(), Some(0));
        assert_eq!((routing.clues_rolled_back, routing.redirects), (clues, 0), "{routing:?}");
        assert!(routing.rollbacks > 0 && routing.redirected_dropped > 0, "{routing:?}");
        engine.close().unwrap();
    }

    #[test]
    fn without_a_log_fjall_has_to_be_told_to_keep_its_own() {
        if !BUILT.contains(&"fjall") {
            return;
        }
        let (opts, dir) = (WriteOpts { sync: false, disable_wal: true }, TempDir::new().unwrap());
        for (word, writes) in [("fjall", false), ("fjall:journal=always", true)] {
            check(word).unwrap();
            let engine = open(word, &dir.path().join(word), &small()).unwrap();
            assert_eq!(engine.put(b"key", b"value", opts).is_ok(), writes, "{word}");
            engine.close().unwrap();
        }
        assert!(check("fjall:journal=never").is_err() && check("fjall:shards=2").is_err());
    }

    #[test]
    fn an_engine_says_why_it_cannot_be_opened() {
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, b"x").unwrap();
        for name in real_engines() {
            assert!(open(name, &file, &small()).is_err(), "{name} opened a file as a database");
        }
        let missing = EngineOptions { rocksdb_lib: Some("/nowhere/librocksdb.so".into()), ..small() };
        assert!(probe("rocksdb", &missing).unwrap_err().to_string().contains("/nowhere/librocksdb.so"));
        assert!(open("leveldb", dir.path(), &small()).is_err());
    }
}
