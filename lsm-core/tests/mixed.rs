//! Everything at once, at random, beside a model: keyspaces that come and go in three orders, operands
//! good and bad, range deletes, snapshots, scans of prefixes, live options, checkpoints, readers, and
//! openings with other extractors and sizes. A seed replays what the caller did.
//!
//! ```text
//! step: write │ read │ hold a snapshot │ flush, compact │ set options │ create, drop
//!       │ checkpoint: open it, change it, move into it │ reopen: as a reader, without operators, anew
//! ```
//! The model of a keyspace is a map from keys to values, in byte order whatever the keyspace's own is. A value
//! that its operator cannot make is [`Value::Bad`]: reading it must fail with `Callback`, every time, until it
//! is put or deleted over.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the engine")]

#[path = "hostile/mod.rs"]
mod hostile;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dialsm_core::key::{Comparator, UserComparator};
use dialsm_core::{
    CompactRangeOptions, Db, DbIterator, ErrorKind, FlushOptions, Keyspace, KeyspaceOptions, MergeOperator,
    Options, PrefixExtractor, ReadOptions, Snapshot, WriteBatch, WriteOptions,
};
use hostile::{Real, Rng, kind_of, tiny};

/// Names of keyspaces; the place of a name says in which order its keys are.
const NAMES: [&str; 7] = ["default", "back", "long", "d", "é", "f f", "gone"];

/// What keys are made of: the least and the greatest byte, a delimiter, and its neighbour.
const ALPHABET: [u8; 5] = [0x00, b'a', b'b', b'/', 0xff];

/// The operand that the operator cannot take.
const BAD: &[u8] = b"!";
/// The one that it panics at.
const PANIC: &[u8] = b"?";

#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Is(Vec<u8>),
    Bad,
}

type Model = BTreeMap<Vec<u8>, Value>;

/// By id, so that a keyspace that has taken a dropped one's name is another.
type World = BTreeMap<u32, Model>;

/// Operands one behind the other, fewer than a hundred bytes of them at the end.
struct Tail;

impl Tail {
    fn fold<'a>(parts: impl Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
        let mut all = Vec::new();
        for part in parts {
            assert!(part != PANIC, "an operator that panics on purpose");
            if part == BAD {
                return None;
            }
            all.extend_from_slice(part);
        }
        Some(all.split_off(all.len().saturating_sub(100)))
    }
}

impl MergeOperator for Tail {
    fn name(&self) -> &str {
        "test.tail"
    }

    fn full_merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        // A base may have any bytes, those of a bad operand too.
        let tail = Tail::fold(operands.iter().copied())?;
        let mut all = [base.unwrap_or_default(), &tail].concat();
        Some(all.split_off(all.len().saturating_sub(100)))
    }

    fn partial_merge(&self, _: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let folded = Tail::fold(operands.iter().copied())?;
        (folded != BAD && folded != PANIC).then_some(folded)
    }
}

/// Shorter keys first.
struct ByLength;

impl UserComparator for ByLength {
    fn name(&self) -> &str {
        "test.by-length"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.len().cmp(&b.len()).then_with(|| a.cmp(b))
    }
}

fn compare(name: &str, a: &[u8], b: &[u8]) -> Ordering {
    match name {
        "back" | "é" => b.cmp(a),
        "long" | "f f" => ByLength.compare(a, b),
        _ => a.cmp(b),
    }
}

fn comparator(name: &str) -> Comparator {
    match name {
        "back" | "é" => Comparator::ReverseBytewise,
        "long" | "f f" => Comparator::Custom(Arc::new(ByLength)),
        _ => Comparator::Bytewise,
    }
}

/// Fixed prefixes lie together in all three orders only if length decides nothing: not in `ByLength`.
fn extractor(name: &str, rng: &mut Rng) -> Option<PrefixExtractor> {
    if matches!(name, "long" | "f f") {
        return None;
    }
    match rng.below(6) {
        0 => None,
        1 => Some(PrefixExtractor::Fixed(2)),
        2 => Some(PrefixExtractor::Fixed(1)),
        3 => Some(PrefixExtractor::Capped(2)),
        4 => Some(PrefixExtractor::Capped(3)),
        _ => Some(PrefixExtractor::Delimiter(b'/')),
    }
}

fn options_of(name: &str, rng: &mut Rng) -> KeyspaceOptions {
    let base = Options { block_bytes: [64, 256, 1024][rng.below(3) as usize], ..tiny() };
    KeyspaceOptions {
        comparator: comparator(name),
        merge_operator: Some(Arc::new(Tail)),
        prefix_extractor: extractor(name, rng),
        filter_whole_keys: rng.below(2) == 0,
        filter_bits_per_key: [0.0, 4.0, 10.0][rng.below(3) as usize],
        ..base.keyspace()
    }
}

fn options(rng: &mut Rng) -> Options {
    let own = options_of("default", rng);
    Options {
        merge_operator: own.merge_operator,
        prefix_extractor: own.prefix_extractor,
        filter_whole_keys: own.filter_whole_keys,
        filter_bits_per_key: own.filter_bits_per_key,
        block_bytes: own.block_bytes,
        level0_compaction_trigger: 2,
        open_tables_max: [16, 512][rng.below(2) as usize],
        log_recycle_max: rng.below(3) as usize,
        ..tiny()
    }
}

struct Held {
    snapshot: Snapshot,
    world: World,
}

/// Cursors over keyspaces that may be gone by now, and what they have to show.
struct Cursor {
    iter: DbIterator,
    name: String,
    model: Model,
}

#[derive(Default, Debug)]
struct Driven {
    created: u64,
    dropped: u64,
    range_deletes: u64,
    covered: u64,
    merges: u64,
    bad_reads: u64,
    snapshot_reads: u64,
    old_cursors: u64,
    prefix_scans: u64,
    bounded_scans: u64,
    options_set: u64,
    options_refused: u64,
    checkpoints: u64,
    moves: u64,
    reopens: u64,
    readers: u64,
    without_operator: u64,
    unlogged: u64,
    flushes: u64,
    compactions: u64,
}

struct Run {
    real: Real,
    /// Which directory holds the database now; it moves into its checkpoints.
    home: PathBuf,
    homes: u64,
    db: Option<Db>,
    names: BTreeMap<u32, String>,
    world: World,
    held: Vec<Held>,
    cursors: Vec<Cursor>,
    gone: Vec<Keyspace>,
    /// Something was written past the log, so that only `close` keeps it.
    unlogged: bool,
    rng: Rng,
    driven: Driven,
}

impl Run {
    fn new(seed: u64) -> Run {
        let real = Real::new();
        let mut rng = Rng(seed);
        let home = real.dir.path().join("db0");
        let db = Db::open(Arc::clone(&real.env), &home, options(&mut rng)).expect("open");
        Run {
            real,
            home,
            homes: 1,
            db: Some(db),
            names: BTreeMap::from([(0, "default".into())]),
            world: World::from([(0, Model::new())]),
            held: Vec::new(),
            cursors: Vec::new(),
            gone: Vec::new(),
            unlogged: false,
            rng,
            driven: Driven::default(),
        }
    }

    fn db(&self) -> Db {
        self.db.clone().expect("open")
    }

    fn any(&mut self) -> Keyspace {
        let at = self.rng.below(self.names.len() as u64) as usize;
        let name = self.names.values().nth(at).expect("below the length");
        self.db().keyspace(name).expect("the model has it")
    }

    fn key(&mut self) -> Vec<u8> {
        let len = self.rng.below(6).min(4);
        (0..len).map(|_| ALPHABET[self.rng.below(5) as usize]).collect()
    }

    fn value(&mut self) -> Vec<u8> {
        let len = [0, 1, 30, 200, 1500][self.rng.below(5) as usize];
        let byte = self.rng.next() as u8;
        (0..len).map(|i| byte.wrapping_add(i as u8)).collect()
    }

    fn operand(&mut self) -> Vec<u8> {
        match self.rng.below(60) {
            0 => BAD.to_vec(),
            1 => PANIC.to_vec(),
            n => vec![b'A' + (n % 26) as u8; (n % 7) as usize],
        }
    }

    fn write_options(&mut self) -> WriteOptions {
        let disable_log = self.rng.below(100) == 0;
        self.unlogged |= disable_log;
        self.driven.unlogged += u64::from(disable_log);
        WriteOptions { sync: !disable_log && self.rng.below(50) == 0, disable_log, ..WriteOptions::default() }
    }

    /// Adds a random operation to the batch and to the model.
    fn operation(&mut self, batch: &mut WriteBatch) {
        let keyspace = self.any();
        let id = keyspace.id();
        let key = self.key();
        match self.rng.below(20) {
            0..9 => {
                let value = self.value();
                batch.put_in(id, &key, &value).expect("put");
                self.model(id).insert(key, Value::Is(value));
            }
            9..12 => {
                batch.delete_in(id, &key).expect("delete");
                self.model(id).remove(&key);
            }
            12..18 => {
                let operand = self.operand();
                batch.merge_in(id, &key, &operand).expect("merge");
                let merged = match self.world[&id].get(&key) {
                    Some(Value::Bad) => Value::Bad,
                    _ if operand == BAD || operand == PANIC => Value::Bad,
                    Some(Value::Is(base)) => tail([base.as_slice(), &operand].concat()),
                    None => tail(operand),
                };
                self.model(id).insert(key, merged);
                self.driven.merges += 1;
            }
            _ => {
                let (from, to) = self.ends(keyspace.name());
                batch.delete_range_in(id, &from, &to).expect("delete_range");
                let name = self.names[&id].clone();
                let before = self.world[&id].len();
                self.model(id).retain(|key, _| !within(&name, key, Some(&from), Some(&to)));
                self.driven.range_deletes += 1;
                self.driven.covered += (before - self.world[&id].len()) as u64;
            }
        }
    }

    fn model(&mut self, id: u32) -> &mut Model {
        self.world.get_mut(&id).expect("the model has it")
    }

    /// Two keys in the keyspace's order: often equal, neighbours, or around one key alone.
    fn ends(&mut self, name: &str) -> (Vec<u8>, Vec<u8>) {
        let one = self.key();
        let mut other = self.key();
        match self.rng.below(8) {
            0 => other.clone_from(&one),
            1 if compare(name, &one, &[&one[..], &[0]].concat()).is_lt() => {
                other = [&one[..], &[0]].concat();
            }
            2..6 => {
                // Near each other, or soon nothing would be left.
                other.clone_from(&one);
                other.pop();
                other.push(ALPHABET[self.rng.below(5) as usize]);
            }
            _ => {}
        }
        if compare(name, &one, &other).is_le() { (one, other) } else { (other, one) }
    }

    fn write(&mut self) {
        let mut batch = WriteBatch::new();
        let count = if self.rng.below(4) == 0 { 1 + self.rng.below(12) } else { 1 };
        for _ in 0..count {
            self.operation(&mut batch);
        }
        let options = self.write_options();
        self.db().write(&options, batch).expect("write");
    }

    /// Calls that must change nothing.
    fn refused(&mut self) {
        let keyspace = self.any();
        let (from, to) = self.ends(keyspace.name());
        let write = WriteOptions::default();
        let mut batch = WriteBatch::new();
        batch.put_in(keyspace.id(), b"a", b"never").expect("put");
        if from != to {
            let backward = self.db().delete_range_in(&write, &keyspace, &to, &from);
            assert_eq!(kind_of(backward), ErrorKind::InvalidArgument);
            batch.delete_range_in(keyspace.id(), &to, &from).expect("a batch does not know the order");
            assert_eq!(kind_of(self.db().write(&write, batch.clone())), ErrorKind::InvalidArgument);
        }
        if let Some(gone) = self.gone.last() {
            let mut batch = WriteBatch::new();
            batch.put_in(keyspace.id(), b"a", b"never").expect("put");
            batch.merge_in(gone.id(), b"a", b"never").expect("merge");
            assert_eq!(kind_of(self.db().write(&write, batch)), ErrorKind::NotFound);
            assert_eq!(
                kind_of(self.db().iter_in(&ReadOptions::default(), gone).map(drop)),
                ErrorKind::NotFound
            );
            assert_eq!(kind_of(self.db().set_options_in(gone, &[])), ErrorKind::NotFound);
        }
    }

    /// A view to read: now, or a snapshot with its model. A keyspace younger than it is empty there.
    fn view(&mut self, id: u32) -> (ReadOptions, Model) {
        let fill_cache = self.rng.below(2) == 0;
        let side = self.rng.below(6) as usize;
        let Some(held) = self.held.get(side) else {
            return (ReadOptions { fill_cache, ..ReadOptions::default() }, self.world[&id].clone());
        };
        self.driven.snapshot_reads += 1;
        let snapshot = Some(held.snapshot.clone());
        let model = held.world.get(&id).cloned().unwrap_or_default();
        (ReadOptions { snapshot, fill_cache, ..ReadOptions::default() }, model)
    }

    fn get(&mut self) {
        let keyspace = self.any();
        let (options, model) = self.view(keyspace.id());
        let keys: Vec<Vec<u8>> = (0..4).map(|_| self.key()).collect();
        for key in &keys {
            let found = self.db().get_in(&options, &keyspace, key);
            match model.get(key) {
                None => assert_eq!(found.expect("get").as_deref(), None, "{keyspace:?} {key:?}"),
                Some(Value::Is(value)) => {
                    assert_eq!(found.expect("get").as_deref(), Some(&value[..]), "{keyspace:?} {key:?}");
                }
                Some(Value::Bad) => {
                    assert_eq!(kind_of(found), ErrorKind::Callback, "{keyspace:?} {key:?}");
                    self.driven.bad_reads += 1;
                }
            }
        }
        if keys.iter().all(|key| model.get(key) != Some(&Value::Bad)) {
            let asked: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let found = self.db().multi_get_in(&options, &keyspace, &asked).expect("multi_get");
            for (key, found) in keys.iter().zip(found) {
                assert_eq!(found.map(|value| Value::Is(value.to_vec())).as_ref(), model.get(key));
            }
        }
    }

    /// A scan with random bounds, from a random place, with turns.
    fn scan(&mut self) {
        let keyspace = self.any();
        let name = keyspace.name().to_owned();
        let (mut options, model) = self.view(keyspace.id());
        let (from, to) = self.ends(&name);
        if self.rng.below(3) == 0 {
            options.lower_bound = Some(from);
        }
        if self.rng.below(3) == 0 {
            options.upper_bound = Some(to);
        }
        if matches!(comparator(&name), Comparator::Bytewise) && self.rng.below(3) == 0 {
            let prefix: Vec<u8> = self.key().into_iter().take(3).collect();
            options = options.with_prefix(&prefix);
            self.driven.prefix_scans += 1;
        }
        let (lower, upper) = (options.lower_bound.as_deref(), options.upper_bound.as_deref());
        let shown = in_order(&name, &model, lower, upper);
        let mut iter = self.db().iter_in(&options, &keyspace).expect("iter");
        self.driven.bounded_scans += u64::from(lower.is_some() || upper.is_some());
        walk(&mut iter, &mut self.rng, &name, &shown);
        check_all(&mut iter, &shown);
    }

    /// A scan that ends with its prefix.
    fn same_prefix(&mut self) {
        let keyspace = self.any();
        let Some(extractor) = keyspace.options().prefix_extractor.clone() else { return };
        let (options, model) = self.view(keyspace.id());
        let options = ReadOptions { prefix_same_as_start: true, ..options };
        let target = self.key();
        let Some(prefix) = extractor.extract(&target).expect("a built-in one") else { return };
        let has = |key: &[u8]| extractor.extract(key).expect("a built-in one") == Some(prefix);
        let name = keyspace.name();
        let all = in_order(name, &model, None, None);
        let at = all.partition_point(|(key, _)| compare(name, key, &target).is_lt());
        let ahead: Vec<_> = all[at..].iter().take_while(|(key, _)| has(key)).cloned().collect();
        let mut iter = self.db().iter_in(&options, &keyspace).expect("iter");
        let mut found = iter.seek(&target);
        for expected in &ahead {
            if expected.1 == Value::Bad {
                assert_eq!(kind_of(found), ErrorKind::Callback);
                return;
            }
            found.as_ref().expect("a step");
            assert_eq!(
                iter.valid().then(|| entry(&iter)).as_ref(),
                Some(expected),
                "{extractor:?} {target:?}"
            );
            found = iter.next();
        }
        // One that is bad behind the prefix may be met on the way to its end.
        assert!(!iter.valid(), "{extractor:?} {target:?} shows what has another prefix");
        assert!(found.is_ok() || ahead.len() + at < all.len());
        self.driven.prefix_scans += 1;
    }

    fn hold(&mut self) {
        if self.held.len() >= 4 {
            let at = self.rng.below(4) as usize;
            self.held.swap_remove(at);
        }
        self.held.push(Held { snapshot: self.db().snapshot(), world: self.world.clone() });
    }

    /// Opens a cursor, or looks at all of one that is held.
    fn cursor(&mut self) {
        if self.cursors.len() < 3 {
            let keyspace = self.any();
            let (options, model) = self.view(keyspace.id());
            let iter = self.db().iter_in(&options, &keyspace).expect("iter");
            self.cursors.push(Cursor { iter, name: keyspace.name().into(), model });
            return;
        }
        let at = self.rng.below(3) as usize;
        let mut cursor = self.cursors.swap_remove(at);
        let shown = in_order(&cursor.name, &cursor.model, None, None);
        walk(&mut cursor.iter, &mut self.rng, &cursor.name, &shown);
        check_all(&mut cursor.iter, &shown);
        self.driven.old_cursors += 1;
    }

    fn set_options(&mut self) {
        const GOOD: [(&str, [&str; 3]); 11] = [
            ("write_buffer_bytes", ["64K", "70000", "1M"]),
            ("write_buffers_max", ["2", "3", "64"]),
            ("level0_compaction_trigger", ["1", "2", "6"]),
            ("table_bytes", ["64K", "100K", "1M"]),
            ("block_bytes", ["64", "4K", "64K"]),
            ("block_restart_interval", ["1", "16", "1024"]),
            ("filter_bits_per_key", ["0", "0.5", "64"]),
            ("filter_whole_keys", ["true", "false", "true"]),
            ("compression", ["none", "lz4", "none"]),
            ("level_multiplier", ["2", "3.5", "100"]),
            ("level_base_bytes", ["64K", "256K", "10M"]),
        ];
        const OF_DATABASE: [(&str, [&str; 3]); 7] = [
            ("background_jobs_max", ["2", "3", "7"]),
            ("subcompactions_max", ["1", "2", "5"]),
            ("write_buffers_total_bytes", ["0", "1M", "2M"]),
            ("block_cache_bytes", ["0", "10K", "1M"]),
            ("open_tables_max", ["16", "100", "512"]),
            ("max_write_group_bytes", ["4K", "1M", "64K"]),
            ("log_total_bytes_max", ["1M", "2M", "4M"]),
        ];
        const NONSENSE: [(&str, &str); 10] = [
            ("write_buffer_bytes", "0"),
            ("write_buffer_bytes", "-1"),
            ("write_buffer_bytes", "99999999999999999999999T"),
            ("level_multiplier", "NaN"),
            ("filter_bits_per_key", "inf"),
            ("level0_stop_trigger", "1"),
            ("create_if_missing", "false"),
            ("compression", ""),
            ("", ""),
            ("recovery_mode", "point_in_time\nx"),
        ];
        let keyspace = self.any();
        let third = self.rng.below(3) as usize;
        if self.rng.below(4) == 0 {
            let (before, whole) = (keyspace.options().to_text(), self.db().options().to_text());
            let bad = NONSENSE[self.rng.below(10) as usize];
            let changes = [("block_bytes", "777"), bad];
            assert_eq!(kind_of(self.db().set_options_in(&keyspace, &changes)), ErrorKind::InvalidArgument);
            assert_eq!(kind_of(self.db().set_options(&changes)), ErrorKind::InvalidArgument, "{bad:?}");
            assert_eq!(before, keyspace.options().to_text(), "a refused change changed something");
            assert_eq!(whole, self.db().options().to_text(), "a refused change changed something");
            self.driven.options_refused += 1;
        } else if self.rng.below(2) == 0 {
            let (name, values) = GOOD[self.rng.below(11) as usize];
            self.db().set_options_in(&keyspace, &[(name, values[third])]).expect("set_options_in");
            self.driven.options_set += 1;
        } else {
            let (name, values) = OF_DATABASE[self.rng.below(7) as usize];
            self.db().set_options(&[(name, values[third])]).expect("set_options");
            self.driven.options_set += 1;
        }
    }

    fn create(&mut self) {
        let name = NAMES[self.rng.below(7) as usize];
        let own = options_of(name, &mut self.rng);
        let created = self.db().create_keyspace(name, own);
        if self.names.values().any(|there| there == name) {
            assert_eq!(kind_of(created), ErrorKind::AlreadyExists);
            return;
        }
        let keyspace = created.expect("create");
        assert!(self.names.keys().all(|id| *id < keyspace.id()), "ids ascend");
        self.names.insert(keyspace.id(), name.into());
        self.world.insert(keyspace.id(), Model::new());
        self.driven.created += 1;
    }

    fn drop_one(&mut self) {
        let keyspace = self.any();
        if keyspace.id() == 0 {
            return;
        }
        self.db().drop_keyspace(&keyspace).expect("drop");
        self.names.remove(&keyspace.id());
        self.world.remove(&keyspace.id());
        self.gone.push(keyspace);
        self.driven.dropped += 1;
    }

    fn compact(&mut self) {
        let keyspace = self.any();
        let (from, to) = self.ends(keyspace.name());
        let (from, to) = match self.rng.below(3) {
            0 => (None, None),
            1 => (Some(from), None),
            _ => (Some(from), Some(to)),
        };
        let rewrite_bottom = self.rng.below(2) == 0;
        let options = CompactRangeOptions { rewrite_bottom, ..CompactRangeOptions::default() };
        self.db().compact_range_in(&options, &keyspace, from.as_deref(), to.as_deref()).expect("compact");
    }

    fn named(&mut self) -> Vec<(String, KeyspaceOptions)> {
        let names: Vec<String> = self.names.values().skip(1).cloned().collect();
        names.into_iter().map(|name| (name.clone(), options_of(&name, &mut self.rng))).collect()
    }

    /// Opens what is at `path`, with other extractors and sizes than before.
    fn open(&mut self, path: &Path, for_reading: bool) -> Db {
        let named = self.named();
        let named: Vec<(&str, KeyspaceOptions)> =
            named.iter().map(|(name, own)| (name.as_str(), own.clone())).collect();
        let (env, options) = (Arc::clone(&self.real.env), options(&mut self.rng));
        let opened = if for_reading {
            Db::open_read_only_with(env, path, options, &named)
        } else {
            Db::open_with(env, path, options, &named)
        };
        opened.expect("open")
    }

    fn check_world(&mut self, db: &Db) {
        let names: Vec<&String> = self.names.values().collect();
        assert_eq!(db.keyspaces().iter().collect::<Vec<_>>(), names);
        let keyspaces: Vec<Keyspace> = names.iter().map(|name| db.keyspace(name).expect("listed")).collect();
        let all: Vec<&Keyspace> = keyspaces.iter().collect();
        let iters = db.iters(&ReadOptions::default(), &all).expect("iterators");
        for (keyspace, mut iter) in keyspaces.iter().zip(iters) {
            let shown = in_order(keyspace.name(), &self.world[&keyspace.id()], None, None);
            check_all(&mut iter, &shown);
        }
    }

    fn checkpoint(&mut self) {
        let target = self.real.dir.path().join(format!("db{}", self.homes));
        self.homes += 1;
        self.db().checkpoint(&target).expect("checkpoint");
        assert_eq!(kind_of(self.db().checkpoint(&target)), ErrorKind::AlreadyExists);
        self.driven.checkpoints += 1;
        if self.rng.below(3) == 0 {
            // On in the copy: what it was made of goes.
            self.close(true);
            Db::destroy(self.real.env.as_ref(), &self.home).expect("destroy");
            assert!(!self.home.exists(), "destroy leaves files");
            self.home = target;
            let home = self.home.clone();
            let db = self.open(&home, false);
            self.check_world(&db);
            self.db = Some(db);
            self.driven.moves += 1;
            return;
        }
        let for_reading = self.rng.below(2) == 0;
        let copy = self.open(&target, for_reading);
        self.check_world(&copy);
        let written = copy.delete_range(&WriteOptions::default(), b"", &[0xff; 9]);
        if for_reading {
            assert_eq!(kind_of(written), ErrorKind::ReadOnly);
        } else {
            written.expect("the copy takes writes");
            copy.flush_all(&FlushOptions::default()).expect("flush");
            let again = self.real.dir.path().join("again");
            copy.checkpoint(&again).expect("a checkpoint of a checkpoint");
            Db::destroy(self.real.env.as_ref(), &again).expect("destroy");
        }
        copy.close().expect("close");
        drop(copy);
        Db::destroy(self.real.env.as_ref(), &target).expect("destroy");
        assert!(!target.exists(), "destroy leaves files");
    }

    fn close(&mut self, by_calling: bool) {
        self.driven.flushes += self.db().metrics().counters.flushes;
        self.driven.compactions += self.db().compactions();
        self.held.clear();
        self.cursors.clear();
        self.gone.clear();
        let db = self.db.take().expect("open");
        if by_calling || self.unlogged {
            db.close().expect("close");
        }
        self.unlogged = false;
    }

    fn reopen(&mut self) {
        let by_calling = self.rng.below(2) == 0;
        self.close(by_calling);
        let home = self.home.clone();
        if self.rng.below(3) == 0 {
            let readers = [self.open(&home, true), self.open(&home, true)];
            for reader in &readers {
                self.check_world(reader);
                assert_eq!(kind_of(reader.checkpoint(&home.join("x"))), ErrorKind::ReadOnly);
                assert_eq!(
                    kind_of(reader.create_keyspace("new", KeyspaceOptions::default())),
                    ErrorKind::ReadOnly
                );
            }
            let writer = Db::open(Arc::clone(&self.real.env), &home, Options::default());
            assert_eq!(kind_of(writer.map(drop)), ErrorKind::Busy);
            self.driven.readers += 1;
        }
        if self.rng.below(3) == 0 {
            self.without_operator(&home);
        }
        let db = self.open(&home, false);
        self.check_world(&db);
        self.db = Some(db);
        self.driven.reopens += 1;
    }

    /// An opening in between that has no operator, and so may lose no operand, whatever it rewrites.
    fn without_operator(&mut self, home: &Path) {
        let mut named = self.named();
        named.iter_mut().for_each(|(_, own)| own.merge_operator = None);
        let named: Vec<(&str, KeyspaceOptions)> =
            named.iter().map(|(name, own)| (name.as_str(), own.clone())).collect();
        let options = Options { merge_operator: None, ..options(&mut self.rng) };
        let db = Db::open_with(Arc::clone(&self.real.env), home, options, &named).expect("open");
        for name in db.keyspaces() {
            let keyspace = db.keyspace(&name).expect("listed");
            let merged = db.merge_in(&WriteOptions::default(), &keyspace, b"a", b"b");
            assert_eq!(kind_of(merged), ErrorKind::InvalidArgument);
            let options = CompactRangeOptions { rewrite_bottom: true, ..CompactRangeOptions::default() };
            db.compact_range_in(&options, &keyspace, None, None).expect("compact");
        }
        db.close().expect("close");
        self.driven.without_operator += 1;
    }

    fn step(&mut self) {
        match self.rng.below(1000) {
            0..520 => self.write(),
            520..700 => self.get(),
            700..760 => self.scan(),
            760..800 => self.same_prefix(),
            800..830 => self.hold(),
            830..860 => self.cursor(),
            860..880 => self.set_options(),
            880..900 => self.refused(),
            900..925 => self.create(),
            925..937 => self.drop_one(),
            937..950 => {
                let keyspace = self.any();
                self.db().flush_in(&FlushOptions::default(), &keyspace).expect("flush");
            }
            950..955 => {
                let atomic = self.rng.below(2) == 0;
                self.db().flush_all(&FlushOptions { atomic, ..FlushOptions::default() }).expect("flush all");
            }
            955..965 => self.compact(),
            965..970 => self.checkpoint(),
            970..976 => self.reopen(),
            976..980 => self.held.clear(),
            _ => {}
        }
    }

    fn finish(mut self, steps: u64) -> Driven {
        for _ in 0..steps {
            self.step();
        }
        let db = self.db();
        db.verify(&mut |_, _| {}).expect("verify");
        self.check_world(&db);
        drop(db);
        self.reopen();
        self.close(true);
        Db::destroy(self.real.env.as_ref(), &self.home).expect("destroy");
        let left: Vec<_> = std::fs::read_dir(self.real.dir.path()).expect("list").collect();
        assert!(left.is_empty(), "files are left: {left:?}");
        println!("{:?}", self.driven);
        self.driven
    }
}

fn tail(mut value: Vec<u8>) -> Value {
    Value::Is(value.split_off(value.len().saturating_sub(100)))
}

fn within(name: &str, key: &[u8], lower: Option<&[u8]>, upper: Option<&[u8]>) -> bool {
    lower.is_none_or(|lower| compare(name, lower, key).is_le())
        && upper.is_none_or(|upper| compare(name, key, upper).is_lt())
}

/// What a scan has to show.
fn in_order(name: &str, model: &Model, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Vec<(Vec<u8>, Value)> {
    let mut shown: Vec<(Vec<u8>, Value)> = model
        .iter()
        .filter(|(key, _)| within(name, key, lower, upper))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    shown.sort_by(|a, b| compare(name, &a.0, &b.0));
    shown
}

fn entry(iter: &DbIterator) -> (Vec<u8>, Value) {
    (iter.key().to_vec(), Value::Is(iter.value().to_vec()))
}

/// Whether the cursor, after a move that ended with `moved`, stands where it should: at `shown[at]`. An entry
/// that is bad is an error, after which the cursor stands nowhere; false then.
fn stands(
    iter: &DbIterator,
    moved: dialsm_core::Result<()>,
    shown: &[(Vec<u8>, Value)],
    at: Option<usize>,
) -> bool {
    match at.and_then(|at| shown.get(at)) {
        Some((_, Value::Bad)) => {
            assert_eq!(kind_of(moved), ErrorKind::Callback);
            assert!(!iter.valid(), "a cursor that failed stands somewhere");
            false
        }
        expected => {
            moved.expect("a move of a cursor");
            assert_eq!(iter.valid().then(|| entry(iter)).as_ref(), expected);
            expected.is_some()
        }
    }
}

/// Seeks and steps in both directions.
fn walk(iter: &mut DbIterator, rng: &mut Rng, name: &str, shown: &[(Vec<u8>, Value)]) {
    for _ in 0..6 {
        let len = rng.below(5);
        let target: Vec<u8> = (0..len).map(|_| ALPHABET[rng.below(5) as usize]).collect();
        let before = shown.partition_point(|(key, _)| compare(name, key, &target).is_lt());
        let up_to = shown.partition_point(|(key, _)| compare(name, key, &target).is_le());
        let (mut at, moved) = match rng.below(2) {
            0 => (Some(before), iter.seek(&target)),
            _ => (up_to.checked_sub(1), iter.seek_for_prev(&target)),
        };
        let mut fine = stands(iter, moved, shown, at);
        for _ in 0..rng.below(12) {
            if !fine {
                break;
            }
            let here = at.expect("it stands somewhere");
            let moved;
            (at, moved) = match rng.below(2) {
                0 => (Some(here + 1), iter.next()),
                _ => (here.checked_sub(1), iter.prev()),
            };
            fine = stands(iter, moved, shown, at);
        }
    }
}

/// All of the cursor, in both directions; over what is bad by seeking beyond it.
fn check_all(iter: &mut DbIterator, shown: &[(Vec<u8>, Value)]) {
    let mut moved = iter.seek_to_first();
    for at in 0..=shown.len() {
        let fine = stands(iter, moved, shown, Some(at));
        moved = match shown.get(at + 1) {
            _ if fine => iter.next(),
            Some((next, _)) => iter.seek(next),
            None => break,
        };
    }
    let mut moved = iter.seek_to_last();
    for at in (0..shown.len()).rev() {
        let fine = stands(iter, moved, shown, Some(at));
        moved = match at.checked_sub(1) {
            _ if fine => iter.prev(),
            Some(next) => iter.seek_for_prev(&shown[next].0),
            None => break,
        };
    }
}

/// The operator's panics are caught by the engine; nobody has to read of them.
fn quiet() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !info.payload_as_str().is_some_and(|text| text.contains("panics on purpose")) {
                usual(info);
            }
        }));
    });
}

#[test]
fn everything_at_once_agrees_with_the_model() {
    quiet();
    let driven = Run::new(1).finish(6000);
    assert!(driven.created >= 40 && driven.dropped >= 25, "{driven:?}");
    assert!(driven.range_deletes > 400 && driven.covered > 400 && driven.merges > 1000, "{driven:?}");
    assert!(driven.bad_reads > 5 && driven.snapshot_reads > 300 && driven.old_cursors > 30, "{driven:?}");
    assert!(driven.prefix_scans > 80 && driven.bounded_scans > 100, "{driven:?}");
    assert!(driven.options_set > 50 && driven.options_refused > 10, "{driven:?}");
    assert!(driven.checkpoints > 10 && driven.moves > 3 && driven.reopens > 15, "{driven:?}");
    assert!(driven.readers > 3 && driven.without_operator > 3 && driven.unlogged > 10, "{driven:?}");
    assert!(driven.flushes > 100 && driven.compactions > 30, "{driven:?}");
}

/// `MIXED_SEED` is the first one, `MIXED_SEEDS` how many.
#[test]
#[ignore = "minutes; tools/deep-check.sh"]
fn everything_at_once_with_many_seeds() {
    quiet();
    let number = |name, usual| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual);
    let first = number("MIXED_SEED", 100);
    for seed in first..first + number("MIXED_SEEDS", 50) {
        println!("seed {seed}");
        Run::new(seed).finish(3000);
    }
}
