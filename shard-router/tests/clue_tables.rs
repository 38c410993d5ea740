//! Tables of clues beside those of values, where a compaction leaves the clues in level 0.

use std::time::{Duration, Instant};

use dialsm::testing::ForcedRouter;
use dialsm::{Db, Options, WriteOptions};

const MIB: u64 = 1 << 20;
/// Far more than it takes: only a compaction that waits for itself takes longer.
const LIMIT: Duration = Duration::from_secs(120);

fn number(db: &Db, name: &str) -> u64 {
    db.property(name).unwrap().parse().unwrap()
}

/// The values of a shard are more than may be under way to the disk at one time, so its compaction takes its
/// turn at the limiter table by table, with the clues' table open all the while.
#[test]
fn a_compaction_does_not_wait_at_the_limiter_for_its_own_clues() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        shards: 2,
        rollback: false,
        automatic_compaction: false,
        background_in_flight_bytes_max: 4 * MIB,
        write_buffer_bytes: 4 * MIB,
        table_bytes: MIB,
        router: Some(ForcedRouter::object(300, 1)),
        ..Options::default()
    };
    let db = Db::open(dir.path(), options).unwrap();
    let value: Vec<u8> = (0..4000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for key in 0..6_000u32 {
        db.put(&WriteOptions::default(), &key.to_be_bytes(), &value).unwrap();
    }
    db.flush().unwrap();
    let clues = number(&db, "dialsm.clues");
    assert!(clues > 1_000 && db.compactions() == 0, "{clues} clues");

    db.set_options(&[("automatic_compaction", "true")]).unwrap();
    let begun = Instant::now();
    while db.compactions() < 2 || !db.is_idle() {
        assert!(begun.elapsed() < LIMIT, "still compacting: {}", db.stats_text());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(number(&db, "dialsm.clues"), clues, "all are in level 0");
    let deep: u64 = (1..7).map(|level| number(&db, &format!("dialsm.bytes-at-level{level}"))).sum();
    assert!(deep > 2 * 4 * MIB && number(&db, "dialsm.num-files-at-level0") > 0, "{}", db.stats_text());
    db.close().unwrap();
}
