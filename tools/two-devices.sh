#!/usr/bin/env bash
# DiaLSM's shards on one device and spread over two, both made slow on purpose (tools/slow-device.sh, as root): what a
# second device brings. About a quarter of an hour; needs 16 GB free.
#
#   tools/two-devices.sh OUT [WORDS...]
#
#   OUT/SIZE-SHARDS-DEVICES.json  each run
#   OUT/a, OUT/b                  the devices, gone when this ends; manifests lie on the disk of OUT/db
#
# Words given are added to each command line. No log, as in the paper; so all that is written goes to the devices.
set -euo pipefail

[ $# -ge 1 ] || { sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
here=$(cd "$(dirname "$0")" && pwd)
bytes_per_s=20971520

cd "$here/.."
cargo build --release --locked -p dialsm-bench
bench=$PWD/target/release/dialsm-bench

down() { for device in a b; do "$here/slow-device.sh" down "$out/$device"; done; }
trap down EXIT
for device in a b; do "$here/slow-device.sh" up "$out/$device" "$bytes_per_s" 8G; done

for size in 128 8000; do
    for shards in 1 2 4 8; do
        for devices in 1 2; do
            dirs=$out/a/mnt/db
            [ "$devices" = 1 ] || dirs=$dirs,$out/b/mnt/db
            "$bench" fillrandom --engines dialsm --shards "$shards" --shard_dirs "$dirs" --value_size "$size" \
                --num $((3000000000 / (size + 16))) --duration 30 --threads 4 --disable_wal --rounds 1 --warmup 0 \
                --bloom_bits 10 --db "$out/db" --json "$out/$size-$shards-$devices.json" "$@"
        done
    done
done
