//! Seeks over shards ask the disk once for all of them.

use std::path::Path;
use std::sync::Arc;

use dialsm_core::{ReadOptions, WriteOptions};
use dialsm_io::{Env, SimEnv};

use super::{key, open, options};

#[test]
fn a_seek_reads_the_blocks_of_all_shards_together() {
    let sim = SimEnv::new(3);
    let env: Arc<dyn Env> = sim.clone();
    sim.run(|| {
        // One table a shard, in the last level: by itself each shard lacks but one block.
        let db = open(&env, Path::new("/db"), &options(4, 0, 0));
        for n in 0..2000 {
            db.put(&WriteOptions::default(), &key(n), &[b'v'; 50]).expect("put");
        }
        db.compact_range(&Default::default(), None, None).expect("compact");
        db.wait_until_idle().expect("idle");
        let read = ReadOptions { fill_cache: false, ..ReadOptions::default() };
        let batched = || db.metrics().counters.batched_reads;
        let mut together = 0;
        for n in (7..2000).step_by(97) {
            let before = batched();
            {
                let mut iter = db.iter(&read).expect("iter");
                iter.seek(&key(n)).expect("seek");
                assert_eq!(iter.key(), key(n));
                // Backward, too.
                iter.seek_for_prev(&key(n)).expect("seek");
                assert_eq!(iter.key(), key(n));
            }
            together += batched() - before;
        }
        let seeks = (7..2000).step_by(97).count() as u64;
        println!("{together} blocks for {seeks} seeks");
        assert!(together >= 4 * seeks, "{together} blocks were read together in {seeks} seeks");
        // Off, nothing is.
        db.set_options(&[("batch_reads", "false")]).expect("set");
        let before = batched();
        let mut iter = db.iter(&read).expect("iter");
        iter.seek(&key(1000)).expect("seek");
        drop(iter);
        assert_eq!(batched(), before);
    });
}
