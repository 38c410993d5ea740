//! What a reader has in hands when the world changes between its two looks.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use dialsm_io::SimEnv;

use crate::options::{Options, ReadOptions, WriteOptions};
use crate::read::get::{self, ReadContext};
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
            let mut context = ReadContext::default();
            let found =
                get::get(engine, &engine.space, &view, b"k", seqno, &ReadOptions::default(), &mut context)
                    .expect("get");
            let expected = if seqno == 1 { b"1" } else { b"2" };
            assert_eq!(found.as_deref(), Some(expected.as_slice()), "at sequence {seqno}");
            assert_eq!(looks.load(Ordering::Relaxed), 2, "it looked again, once");
        });
    }
}
