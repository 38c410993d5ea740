//! What a reader has in hands when the world changes between its two looks.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use dialsm_io::{CrashPolicy, Env, OpKind, SimEnv};

use crate::batch::WriteBatch;
use crate::options::{FlushOptions, Options, ReadOptions, WriteOptions};
use crate::read::get;
use crate::routing::{Router, RouterObject, ShardState};
use crate::types::SeqNo;
use crate::{Db, merge_operator};

/// K@1 is visible. While a reader looks, K@2 is written and becomes a table of which K@1 is no part any
/// more; before or behind the instant at which the reader takes the visible sequence. What it ends up
/// with must hold K at its sequence (H6).
#[test]
fn h06_a_view_and_its_sequence_belong_together() {
    for is_sequence_first in [true, false] {
        let env = SimEnv::new(1);
        env.run(|| {
            let merge_operator = Some(merge_operator::append(b"+"));
            let options = Options { automatic_compaction: false, merge_operator, ..Options::default() };
            let db = Db::open(env.clone(), Path::new("/db"), options).expect("open");
            let put = |value: &[u8]| db.put(&WriteOptions::default(), b"k", value).expect("put");
            let engine = &db.handle.engine;
            put(b"1");
            let looks = AtomicU32::new(0);
            let visible = || engine.commit.visible().load(Ordering::Acquire);
            let change = || {
                put(b"2");
                db.flush().expect("flush");
                assert_eq!(engine.space.trees[0].view().version.l0().len(), 1, "the view has changed");
            };
            let (view, seqno): (_, SeqNo) = engine.space.views().load_at(|| {
                if looks.fetch_add(1, Ordering::Relaxed) > 0 {
                    visible()
                } else if is_sequence_first {
                    let seqno = visible();
                    change();
                    seqno
                } else {
                    change();
                    visible()
                }
            });
            let found = get::get(engine, &engine.space, &view, b"k", seqno, &ReadOptions::default(), None)
                .expect("get");
            let expected = if seqno == 1 { b"1" } else { b"2" };
            assert_eq!(found.as_deref(), Some(expected.as_slice()), "at sequence {seqno}");
            assert_eq!(looks.load(Ordering::Relaxed), 2, "it looked again, once");
        });
    }
}

/// Keys that begin with `b` belong to shard 1, and all values to the other shard, while it is on.
struct Detour(AtomicBool);

impl Router for Detour {
    fn place(&self, _: &[u8; 16], _: u16, key: &[u8]) -> u16 {
        u16::from(key.starts_with(b"b"))
    }

    fn fallback(&self, primary: u16, _: &[ShardState]) -> Option<u16> {
        self.0.load(Ordering::SeqCst).then_some(1 - primary)
    }

    fn shards_by_default(&self, _: usize) -> u16 {
        2
    }

    fn is_asked_always(&self) -> bool {
        true
    }
}

/// While a reader looks, the fallback's memtable is switched, and a value goes into the new one, its clue
/// into the primary's, which the reader's view has. The reader must not see the clue in a view that lacks the
/// value (H6).
#[test]
fn h06_a_view_of_all_shards_and_its_sequence_belong_together() {
    for is_sequence_first in [true, false] {
        let env = SimEnv::new(1);
        env.run(|| {
            let detour = Arc::new(Detour(AtomicBool::new(false)));
            let options = Options {
                shards: 2,
                router: Some(RouterObject(detour.clone())),
                write_buffer_bytes: 64 << 10,
                automatic_compaction: false,
                rollback: false,
                ..Options::default()
            };
            let db = Db::open(env.clone(), Path::new("/db"), options).expect("open");
            let put = |key: &[u8], value: &[u8]| db.put(&WriteOptions::default(), key, value).expect("put");
            let engine = &db.handle.engine;
            let trees = &engine.space.trees;
            put(b"a1", b"older");
            (0..20u8).for_each(|i| put(&[b'b', i], &[i; 3000]));
            let looks = AtomicU32::new(0);
            let visible = || engine.commit.visible().load(Ordering::Acquire);
            let change = || {
                let before = trees[1].view().active.clone();
                (0..10u8).for_each(|i| put(&[b'b', b'b', i], &[i; 3000]));
                detour.0.store(true, Ordering::SeqCst);
                put(b"a1", b"redirected");
                detour.0.store(false, Ordering::SeqCst);
                assert!(!Arc::ptr_eq(&before, &trees[1].view().active), "switched");
                assert_eq!(trees[0].view().active.table.clues().0, 1);
            };
            let before = visible();
            let (view, seqno): (_, SeqNo) = engine.space.views().load_at(|| {
                if looks.fetch_add(1, Ordering::Relaxed) > 0 {
                    visible()
                } else if is_sequence_first {
                    let seqno = visible();
                    change();
                    seqno
                } else {
                    change();
                    visible()
                }
            });
            let options = ReadOptions::default();
            let found = get::get(engine, &engine.space, &view, b"a1", seqno, &options, None);
            let expected = if seqno == before { &b"older"[..] } else { b"redirected" };
            assert_eq!(found.expect("get").as_deref(), Some(expected), "at sequence {seqno}");
            assert!(looks.load(Ordering::Relaxed) >= 2, "it looked again");
        });
    }
}

/// Two trees are flushed as one; the first table is durable, and then the keyspace of the second is dropped. Until
/// the drop is in the manifest a power cut brings the keyspace back, with all of the batch or nothing.
#[test]
fn h28_a_drop_does_not_tear_an_atomic_flush() {
    let root = SimEnv::new(1);
    root.run(|| {
        let options =
            Options { log: false, atomic_flush: true, automatic_compaction: false, ..Options::default() };
        let dir = Path::new("/db");
        let db = Db::open(root.clone(), dir, options.clone()).expect("open");
        let x = db.create_keyspace("x", options.keyspace()).expect("create");
        let mut batch = WriteBatch::new();
        [0, x.id()].into_iter().for_each(|id| batch.put_in(id, b"k", b"v").expect("put"));
        db.write(&WriteOptions::default(), batch).expect("write");
        // The flush of the second one stands still.
        let (event, is_open, tables) = (root.event(), Arc::new(AtomicBool::new(false)), AtomicU32::new(0));
        let (gate, opened) = (event.clone(), is_open.clone());
        root.sim_fs().add_call_hook(Arc::new(move |call| {
            let is_table = call.op == Some(OpKind::Create) && call.path.extension() == Some("sst".as_ref());
            if is_table && tables.fetch_add(1, Ordering::SeqCst) > 0 {
                loop {
                    let seen = gate.epoch();
                    if opened.load(Ordering::SeqCst) {
                        break;
                    }
                    gate.wait(seen, None);
                }
            }
        }));
        db.flush_all(&FlushOptions { wait: false, ..FlushOptions::default() }).expect("seal");
        root.sleep(1_000_000_000);
        let engine = &db.handle.engine;
        let durable = || engine.space.trees[0].view().version.l0().len();
        assert_eq!(durable(), 1, "the first is live");
        let last = engine.commit.between_groups(engine, |_, _| x.0.set_dropped());
        engine.versions.settle(engine).expect("settle");
        let image = root.sim_fs().crash_image(CrashPolicy::DropUnsynced);
        let cut = root.on_fs(image.clone(), image);
        let after = Db::open(cut, dir, options.clone()).expect("open");
        let there = [None, after.keyspace("x")].map(|keyspace| match keyspace {
            None => after.get(&ReadOptions::default(), b"k").expect("get").is_some(),
            Some(x) => after.get_in(&ReadOptions::default(), &x, b"k").expect("get").is_some(),
        });
        let is_back = after.keyspace("x").is_some();
        // Before anything is asserted: nobody may stand there for ever.
        engine.versions.drop_keyspace(engine, last).expect("drop");
        is_open.store(true, Ordering::SeqCst);
        event.notify();
        db.wait_until_idle().expect("idle");
        assert!(is_back, "its drop was not written");
        assert_eq!(there[0], there[1], "half of the batch");
        assert_eq!(db.get(&ReadOptions::default(), b"k").expect("get").as_deref(), Some(b"v".as_slice()));
    });
}
