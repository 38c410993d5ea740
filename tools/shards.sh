#!/usr/bin/env bash
# DiaLSM's shards against its own single tree, RocksDB and fjall, in the paper's settings and in db_bench's, and
# what clues cost by themselves. Under an hour on a quiet machine with two processors; needs 20 GB free.
#
#   tools/shards.sh OUT [WORDS...]
#
#   OUT/                      cells as JSON, state to resume from, table.md
#   OUT/db                    databases, gone when this ends
#   DIALSM_ROCKSDB_LIB        RocksDB's shared library (tools/peers/build-rocksdb.sh builds one)
#
# Words given are added to each cell's command line: `--shards 8`, `--rounds 5 --aa`, or `--only paper-fill,clues` for a
# part of the cells (a closed loop comes before its open one). Run again with the same words but for --only, it
# goes on behind what is done.
set -euo pipefail

[ $# -ge 1 ] || { sed -n '2,13s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")/.."

cargo build --release --locked -p dialsm-bench --features fjall
target/release/dialsm-bench suite shards --out "$out" --db "$out/db" "$@"
rmdir "$out/db"
printf '\n%s\n' "$out/table.md"
cat "$out/table.md"
