#!/usr/bin/env bash
# Deferred against synchronous hand-off, and both against RocksDB: on the disk of the directory given, and on
# a device made slow on purpose (tools/slow-device.sh, as root). About half an hour on a quiet machine with
# two processors; needs 12 GB free.
#
#   tools/handoff.sh OUT [WORDS...]
#
#   OUT/normal/, OUT/slow/    cells as JSON, state to resume from, table.md
#   OUT/db, OUT/device        databases and the slow device, gone when this ends
#   HANDOFF_PARTS             "normal slow" unless said otherwise
#   DIALSM_ROCKSDB_LIB        RocksDB's shared library (tools/peers/build-rocksdb.sh builds one)
#
# Words given are added to each cell's command line, as `--rounds 3` or `--engines lsm-core,rocksdb`. Run again
# with the same words after an interruption, it goes on behind the last cell that was done.
set -euo pipefail

[ $# -ge 1 ] || { sed -n '2,14s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
here=$(cd "$(dirname "$0")" && pwd)
bytes_per_s=20971520

cd "$here/.."
cargo build --release --locked -p dialsm-bench
bench=$PWD/target/release/dialsm-bench

normal() {
    "$bench" suite handoff --out "$out/normal" --db "$out/db" "$@"
    rmdir "$out/db"
}

slow() {
    trap '"$here/slow-device.sh" down "$out/device"' EXIT
    "$here/slow-device.sh" up "$out/device" "$bytes_per_s" 6G
    "$bench" suite handoff-slow --out "$out/slow" --db "$out/device/mnt/db" "$@"
}

for part in ${HANDOFF_PARTS:-normal slow}; do
    case $part in
        normal) normal "$@" ;;
        slow) slow "$@" ;;
        *) echo "handoff: no part '$part' (there are: normal slow)" >&2; exit 2 ;;
    esac
done
for table in "$out"/*/table.md; do
    printf '\n%s\n' "$table"
    cat "$table"
done
