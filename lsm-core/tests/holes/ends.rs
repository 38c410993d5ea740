//! H42: closing lets go of nothing that is not settled.

use dialsm_core::CompactRangeOptions;
use dialsm_io::{Fault, OpKind, Rule};

use crate::bench::{Bench, CUTS, EIO, ENOSPC, by_hand, contents, is, synced};

/// The outputs of a compaction are live, their edit can't be written: closing, dropping and the last
/// reader's end leave the inputs where they are.
#[test]
fn h42_closing_with_an_unsettled_compaction_keeps_its_inputs() {
    for errno in [EIO, ENOSPC] {
        for close in [true, false] {
            Bench::run(|bench| {
                let db = bench.open(&by_hand());
                for round in 0..3u8 {
                    (0..20u8).for_each(|i| db.put(&synced(), &[i], &[round; 200]).expect("put"));
                    db.flush().expect("flush");
                }
                db.wait_until_idle().expect("idle");
                let model = contents(&db);
                let inputs = bench.names(".sst");
                bench.disk().set_tracing(true);
                for op in [OpKind::Write, OpKind::Create] {
                    bench.faults.add(Rule::every(op, Fault::Errno(errno)).on("MANIFEST"));
                }
                let iter = db.iter(&Default::default()).expect("iterator");
                db.compact_range(&CompactRangeOptions::default(), None, None).expect_err("no edit");
                assert!(bench.names(".sst").len() > inputs.len(), "the outputs are there");
                assert!(contents(&db) == model);
                if close {
                    let _ = db.close();
                }
                drop(db);
                drop(iter);
                let trace = bench.disk().trace();
                let gone: Vec<_> = trace
                    .iter()
                    .filter(|c| is(c, OpKind::Unlink, ".sst") || is(c, OpKind::Unlink, ".log"))
                    .collect();
                assert!(gone.is_empty(), "{gone:?}");
                assert!(inputs.iter().all(|name| bench.names(".sst").contains(name)));
                for policy in CUTS {
                    let db = bench.cut(policy).open(&by_hand());
                    db.verify(&mut |_, _| {}).expect("verify");
                    assert!(contents(&db) == model, "{policy:?}");
                }
            });
        }
    }
}
