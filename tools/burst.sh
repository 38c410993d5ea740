#!/usr/bin/env bash
# The main job: a burst of writes on DiaLSM, on its own single tree and on RocksDB, side by side, each with the
# settings that an application gets which sets nothing. Under two minutes after the build; ends in a table.
#
# Words given are added to the command line, for instance `--value_size 8000` or `--json FILE`.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --release --locked -p dialsm-bench
bench=target/release/dialsm-bench

engines=dialsm,lsm-core,rocksdb
# One write tells whether a library is there, and says on standard error what is missing.
if ! "$bench" fillseq --engines rocksdb --num 1 --rounds 1 --warmup 0 > /dev/null; then
    echo "burst: without RocksDB there is nothing to compare with: DiaLSM and its single tree alone" >&2
    engines=dialsm,lsm-core
fi

# 4 writers put values of 1000 bytes under random keys of a million, into an empty database, as fast
# as it takes them. The first engine runs twice a round; what its two runs differ by is what counts
# as equal. After each run the table waits until the engine has nothing left to do, and says how long
# that took.
exec "$bench" fillrandom --engines "$engines" --own-defaults \
    --num 1000000 --value_size 1000 --threads 4 --duration 6 --rounds 2 "$@"
