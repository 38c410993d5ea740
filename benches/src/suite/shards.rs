//! Shards against one tree, RocksDB and fjall: each cell once as in the paper, and once as in db_bench.
//!
//! ```text
//!   paper-*     no log, no slowing down before writes stop, no block cache; memtables, tables and the first
//!               level at half of db_bench's sizes, so that 3 GB fill level 0 as the paper's 800 GB did
//!   default-*   db_bench's own settings, with the log
//!   clues-*     dialsm alone, as in the paper: what clues and their rollback cost
//! ```
//! All sizes and threads are a database's totals, and equal: memtables, background jobs, level 0 in
//! bytes, the first level. All have sub-compactions, as the paper's RocksDB. fjall can't leave its journal
//! out, and says so in its name; RocksDB and our own engines alone set the rate of open loops.
//!
//! A cell takes under four minutes and all take about an hour, one round each. `--rounds 5 --aa` and
//! `--only` make headlines of some; `--shards` says with how many `dialsm` runs.

/// The rows of a cell. The first is what the others are compared with.
macro_rules! peers {
    () => {
        "dialsm,dialsm:redirect=false,lsm-core,rocksdb,fjall:journal=always"
    };
}

/// What all cells have.
macro_rules! common {
    () => {
        " --subcompactions 2 --rounds 1 --warmup 0 --noaa --engines "
    };
}

/// The paper's settings, scaled.
macro_rules! paper {
    () => {
        " --disable_wal --level0_slowdown_writes_trigger 36 --cache_size 0 --write_buffer_size 32M \
         --target_file_size_base 32M --max_bytes_for_level_base 128M"
    };
}

macro_rules! cells {
    (
        both { $($name:literal: $words:literal, $engines:expr;)+ }
        clues { $($clue_name:literal: $clue_words:literal, $clue_engines:literal;)+ }
    ) => {
        &[
            $((concat!("paper-", $name), concat!($words, paper!(), common!(), $engines)),)+
            $((concat!("default-", $name), concat!($words, common!(), $engines)),)+
            $(($clue_name, concat!($clue_words, paper!(), common!(), $clue_engines)),)+
        ]
    };
}

/// Every cell of this suite.
pub(super) const CELLS: &[(&str, &str)] = cells! {
    both {
        "fill-100": "fillrandom --value_size 100 --num 3000000 --writes 750000 --threads 4", peers!();
        "fill-1k": "fillrandom --value_size 1000 --num 2000000 --writes 500000 --threads 4", peers!();
        "fill-1k-open": "fillrandom --value_size 1000 --num 2000000 --writes 500000 --threads 4", peers!();
        "fill-8k": "fillrandom --value_size 8000 --num 375000 --writes 93750 --threads 4", peers!();
        "fill-8k-open": "fillrandom --value_size 8000 --num 375000 --writes 93750 --threads 4", peers!();
        "fill-8k-shards": "fillrandom --value_size 8000 --num 375000 --writes 93750 --threads 4",
            "dialsm:shards=1,dialsm:shards=2,dialsm:shards=4,dialsm:shards=8,lsm-core";
        "mix-90": "readrandomwriterandom --readwritepercent 90 --value_size 1000 --num 700000 --duration 6 --threads 4",
            peers!();
        "mix-50": "readrandomwriterandom --readwritepercent 50 --value_size 1000 --num 700000 --duration 6 --threads 4",
            peers!();
        "mix-50-open":
            "readrandomwriterandom --readwritepercent 50 --value_size 1000 --num 700000 --duration 6 --threads 4",
            peers!();
        "mix-10": "readrandomwriterandom --readwritepercent 10 --value_size 1000 --num 700000 --duration 6 --threads 4",
            peers!();
        "ycsb": "ycsba,ycsbc,ycsbe --value_size 1000 --num 700000 --duration 12 --threads 4", peers!();
        "scan-128": "seekrandom --seek_nexts 127 --value_size 1000 --num 500000 --duration 4 --threads 1", peers!();
        "scan-1k": "seekrandom --seek_nexts 1023 --value_size 1000 --num 500000 --duration 4 --threads 1", peers!();
        "scan-16k": "seekrandom --seek_nexts 16383 --value_size 1000 --num 500000 --duration 4 --threads 1", peers!();
    }
    clues {
        // Reads find the clues that rollback did not get, in level 0 or sunk; or none.
        "clues-read": "fillrandom,readrandom --value_size 8000 --num 250000 --writes 62500 --reads 50000 --threads 4",
            "dialsm,dialsm:redirect=false,dialsm:rollback=false,dialsm:clue_capping=false,\
             dialsm:rollback=false:clue_capping=false";
        // The paper's turns of writing and reading: what a rollback costs, and what it gives back.
        "clues-rollback":
            "fillrandom,readrandom,overwrite,readrandom --value_size 8000 --num 250000 --writes 62500 --reads 50000 \
             --threads 4",
            "dialsm,dialsm:rollback=false,dialsm:redirect=false";
    }
};
