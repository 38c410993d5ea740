//! Random operations over several keyspaces that come and go, beside one ordered map for each: batches
//! across them, snapshots across them, flushes, compactions, reopening.

use std::sync::Arc;

use dialsm_core::{
    CompactRangeOptions, Db, ErrorKind, FlushOptions, Keyspace, KeyspaceOptions, Options, ReadOptions,
    Snapshot, WriteBatch, WriteOptions,
};

use super::{World, drain, open, reversed, world, world_at};
use crate::hostile::{Model, Real, Rng, tiny};

/// Names that keyspaces may have here; odd ones run backwards.
const NAMES: [&str; 8] = ["default", "one", "zwei", "trois", "four", "fünf", "six", "sept"];

#[derive(Default, Debug)]
struct Driven {
    created: u64,
    dropped: u64,
    reborn: u64,
    batches_across: u64,
    snapshot_reads: u64,
    moments: u64,
    iterators_over_a_drop: u64,
    stale_calls: u64,
    reopens: u64,
    flushes: u64,
    compactions: u64,
}

struct Held {
    snapshot: Snapshot,
    world: World,
    /// The keyspaces that were there; one of the same name may be another by now.
    ids: Vec<u32>,
}

struct Run {
    real: Real,
    options: Options,
    db: Option<Db>,
    world: World,
    held: Vec<Held>,
    gone: Vec<Keyspace>,
    rng: Rng,
    driven: Driven,
    ids_seen: Vec<u32>,
}

fn options_of(name: &str, options: &Options) -> KeyspaceOptions {
    let at = NAMES.iter().position(|known| *known == name).expect("one of the names");
    if at % 2 == 1 { reversed(options) } else { options.keyspace() }
}

impl Run {
    fn new(seed: u64, options: Options) -> Run {
        let real = Real::new();
        let db = real.open(&options);
        Run {
            real,
            options,
            db: Some(db),
            world: World::from([("default".into(), Model::new())]),
            held: Vec::new(),
            gone: Vec::new(),
            rng: Rng(seed),
            driven: Driven::default(),
            ids_seen: Vec::new(),
        }
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("open")
    }

    fn any(&mut self) -> Keyspace {
        let at = self.rng.below(self.world.len() as u64) as usize;
        let name = self.world.keys().nth(at).expect("below the length");
        self.db().keyspace(name).expect("the model has it")
    }

    fn key(&mut self) -> Vec<u8> {
        format!("key{:04}", self.rng.below(700)).into_bytes()
    }

    fn value(&mut self) -> Vec<u8> {
        let len = [0, 20, 100, 2000][self.rng.below(4) as usize];
        let byte = self.rng.next() as u8;
        (0..len).map(|i| byte.wrapping_add(i as u8)).collect()
    }

    fn model(&mut self, keyspace: &Keyspace) -> &mut Model {
        self.world.get_mut(keyspace.name()).expect("the model has it")
    }

    fn step(&mut self) {
        match self.rng.below(1000) {
            0..350 => {
                let (keyspace, key, value) = (self.any(), self.key(), self.value());
                self.db().put_in(&WriteOptions::default(), &keyspace, &key, &value).expect("put");
                self.model(&keyspace).insert(key, value);
            }
            350..420 => {
                let (keyspace, key) = (self.any(), self.key());
                self.db().delete_in(&WriteOptions::default(), &keyspace, &key).expect("delete");
                self.model(&keyspace).remove(&key);
            }
            420..560 => self.batch(),
            560..850 => self.get(),
            850..890 => self.scan(),
            890..920 => self.hold(),
            920..945 if !self.held.is_empty() => {
                let at = self.rng.below(self.held.len() as u64) as usize;
                self.held.swap_remove(at);
            }
            945..960 => self.create(),
            960..970 => self.drop_one(),
            970..980 => self.use_stale(),
            980..987 => {
                let keyspace = self.any();
                self.db().flush_in(&FlushOptions::default(), &keyspace).expect("flush");
            }
            987..989 => self.db().flush_all(&FlushOptions::default()).expect("flush all"),
            989..992 => {
                let keyspace = self.any();
                let options = CompactRangeOptions { rewrite_bottom: true, ..Default::default() };
                self.db().compact_range_in(&options, &keyspace, None, None).expect("compact");
            }
            992..994 => self.reopen(),
            _ => {}
        }
    }

    fn batch(&mut self) {
        let mut batch = WriteBatch::new();
        let mut touched = Vec::new();
        for _ in 0..=self.rng.below(10) {
            let (keyspace, key) = (self.any(), self.key());
            touched.push(keyspace.id());
            if self.rng.below(4) == 0 {
                batch.delete_in(keyspace.id(), &key).expect("delete");
                self.model(&keyspace).remove(&key);
            } else {
                let value = self.value();
                batch.put_in(keyspace.id(), &key, &value).expect("put");
                self.model(&keyspace).insert(key, value);
            }
        }
        touched.sort_unstable();
        touched.dedup();
        self.driven.batches_across += u64::from(touched.len() > 1);
        let sync = self.rng.below(8) == 0;
        self.db().write(&WriteOptions { sync, ..WriteOptions::default() }, batch).expect("write");
    }

    fn get(&mut self) {
        let (keyspace, key) = (self.any(), self.key());
        let (mut options, mut expected) = (ReadOptions::default(), self.world[keyspace.name()].get(&key));
        let side = self.rng.below(8) as usize;
        if let Some(held) = self.held.get(side) {
            options.snapshot = Some(held.snapshot.clone());
            // A keyspace that is younger than the snapshot is empty in it.
            let same = held.ids.contains(&keyspace.id());
            expected = held.world.get(keyspace.name()).filter(|_| same).and_then(|model| model.get(&key));
            self.driven.snapshot_reads += 1;
        }
        let found = self.db().get_in(&options, &keyspace, &key).expect("get");
        assert_eq!(found.as_deref(), expected.map(Vec::as_slice), "{keyspace:?} {key:?}");
        let many = self.db().multi_get_in(&options, &keyspace, &[&key, b"none", &key]).expect("multi_get");
        assert_eq!((many[0].as_deref(), many[1].as_deref()), (expected.map(Vec::as_slice), None));
        assert_eq!(many[0], many[2]);
    }

    /// All keyspaces at one moment, now or of a snapshot.
    fn scan(&mut self) {
        let side = self.rng.below(8) as usize;
        self.driven.moments += 1;
        let Some(held) = self.held.get(side) else {
            assert!(world(self.db()) == self.world, "the keyspaces differ from the model");
            return;
        };
        let options = ReadOptions { snapshot: Some(held.snapshot.clone()), ..ReadOptions::default() };
        let mut expected = World::new();
        for name in self.world.keys() {
            let id = self.db().keyspace(name).expect("the model has it").id();
            let model = held.world.get(name).filter(|_| held.ids.contains(&id));
            expected.insert(name.clone(), model.cloned().unwrap_or_default());
        }
        assert!(world_at(self.db(), &options) == expected, "the keyspaces differ from the snapshot's model");
    }

    fn hold(&mut self) {
        if self.held.len() < 4 {
            let ids = self.world.keys().map(|name| self.db().keyspace(name).expect("there").id()).collect();
            let held = Held { snapshot: self.db().snapshot(), world: self.world.clone(), ids };
            self.held.push(held);
        }
    }

    fn create(&mut self) {
        let name = NAMES[self.rng.below(NAMES.len() as u64) as usize];
        let created = self.db().create_keyspace(name, options_of(name, &self.options));
        if self.world.contains_key(name) {
            assert_eq!(created.expect_err("it is there").kind(), ErrorKind::AlreadyExists);
            return;
        }
        let keyspace = created.expect("create");
        assert!(!self.ids_seen.contains(&keyspace.id()), "an id was given out twice");
        self.ids_seen.push(keyspace.id());
        self.driven.reborn += u64::from(self.gone.iter().any(|gone| gone.name() == name));
        self.world.insert(name.into(), Model::new());
        self.driven.created += 1;
    }

    fn drop_one(&mut self) {
        let keyspace = self.any();
        if keyspace.id() == 0 {
            let error = self.db().drop_keyspace(&keyspace).expect_err("the default one stays");
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            return;
        }
        let mut iter = self.db().iter_in(&ReadOptions::default(), &keyspace).expect("iter");
        self.db().drop_keyspace(&keyspace).expect("drop");
        let model = self.world.remove(keyspace.name()).expect("the model has it");
        let seen: Model = drain(&mut iter).expect("an iterator from before").into_iter().collect();
        assert!(seen == model, "an iterator from before the drop sees something else");
        self.driven.iterators_over_a_drop += u64::from(!seen.is_empty());
        self.driven.dropped += 1;
        self.gone.push(keyspace);
    }

    fn use_stale(&mut self) {
        if self.gone.is_empty() {
            return;
        }
        let at = self.rng.below(self.gone.len() as u64) as usize;
        let (stale, db) = (&self.gone[at], self.db());
        let (write, read) = (WriteOptions::default(), ReadOptions::default());
        let mut across = WriteBatch::new();
        across.put(b"key0000", b"never").expect("put");
        across.put_in(stale.id(), b"key0000", b"never").expect("put");
        let errors = [
            db.put_in(&write, stale, b"k", b"v").err(),
            db.delete_in(&write, stale, b"k").err(),
            db.single_delete_in(&write, stale, b"k").err(),
            db.write(&write, across).err(),
            db.get_in(&read, stale, b"k").err(),
            db.multi_get_in(&read, stale, &[b"k"]).err(),
            db.iter_in(&read, stale).err(),
            db.flush_in(&FlushOptions::default(), stale).err(),
            db.compact_range_in(&CompactRangeOptions::default(), stale, None, None).err(),
            db.property_in(stale, "dialsm.stats").err(),
            db.drop_keyspace(stale).err(),
        ];
        for (i, error) in errors.iter().enumerate() {
            assert_eq!(error.as_ref().map(|e| e.kind()), Some(ErrorKind::NotFound), "call {i}: {error:?}");
        }
        self.driven.stale_calls += 1;
    }

    fn reopen(&mut self) {
        self.count_jobs();
        self.held.clear();
        self.gone.clear();
        let db = self.db.take().expect("open");
        if self.rng.below(2) == 0 {
            db.close().expect("close");
        }
        drop(db);
        // Those with another order have to be named; the others may be.
        let named: Vec<(&str, KeyspaceOptions)> = NAMES
            .iter()
            .enumerate()
            .filter(|(at, name)| *at > 0 && self.world.contains_key(**name))
            .filter(|(at, _)| at % 2 == 1 || self.rng.below(2) == 0)
            .map(|(_, name)| (*name, options_of(name, &self.options)))
            .collect();
        let names = Db::list_keyspaces(self.real.env.as_ref(), &self.real.path()).expect("list");
        assert_eq!(names.len(), self.world.len());
        assert!(names.iter().all(|name| self.world.contains_key(name)));
        let db = open(Arc::clone(&self.real.env), &self.real.path(), &self.options, &named);
        assert_eq!(db.keyspaces(), names);
        assert!(world(&db) == self.world, "the keyspaces differ from the model after reopening");
        self.db = Some(db);
        self.driven.reopens += 1;
    }

    fn count_jobs(&mut self) {
        self.driven.flushes += self.db().metrics().counters.flushes;
        self.driven.compactions += self.db().compactions();
    }

    fn finish(mut self, steps: u64) -> Driven {
        for _ in 0..steps {
            self.step();
        }
        self.db().verify(&mut |_, _| {}).expect("verify");
        self.reopen();
        self.db().wait_until_idle().expect("idle");
        println!("{:?}", self.driven);
        self.driven
    }
}

fn check(driven: &Driven) {
    assert!(driven.created >= 60 && driven.dropped >= 40 && driven.reborn >= 20, "{driven:?}");
    assert!(driven.batches_across > 1000 && driven.snapshot_reads > 500, "{driven:?}");
    assert!(driven.moments > 300 && driven.iterators_over_a_drop >= 30, "{driven:?}");
    assert!(driven.stale_calls > 30 && driven.reopens > 15, "{driven:?}");
    assert!(driven.flushes > 200 && driven.compactions > 50, "{driven:?}");
}

#[test]
fn random_keyspaces_agree_with_the_model() {
    check(&Run::new(21, tiny()).finish(20_000));
}

/// Memtables switched by the common budget and by the length of the log rather than by their own size.
#[test]
fn random_keyspaces_under_common_bounds() {
    let options = Options {
        write_buffer_bytes: 256 << 10,
        write_buffers_total_bytes: 256 << 10,
        log_total_bytes_max: 1 << 20,
        ..tiny()
    };
    check(&Run::new(22, options).finish(20_000));
}
