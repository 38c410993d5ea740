#!/usr/bin/env bash
# Builds RocksDB's shared library from the source that the crate librocksdb-sys carries: the newest
# release there is, for `dialsm-bench --rocksdb-lib`. Outside the workspace and CI on purpose: it
# compiles some 350 C++ files, about half an hour on two cores.
#
#   tools/peers/build-rocksdb.sh OUTPUT_DIR [CRATE_VERSION]
#
# Leaves OUTPUT_DIR/librocksdb.so.MAJOR.MINOR. Objects are kept in OUTPUT_DIR/obj-VERSION, so an
# interrupted build goes on where it stopped. Needs cargo, g++ (C++20) and an x86-64 or ARM64 machine.
# No compressor is compiled in: the comparison runs without compression.
set -euo pipefail

if [ $# -lt 1 ]; then
    sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
# The crates numbered like RocksDB itself (6.x) are its old ones.
version=${2:-0}
cxx=${CXX:-g++}
jobs=${JOBS:-$(nproc)}

# The registry's client fetches the crate, by way of a project that only names it.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/src"
: >"$scratch/src/lib.rs"
cat >"$scratch/Cargo.toml" <<MANIFEST
[package]
name = "fetch-librocksdb-sys"
version = "0.0.0"
edition = "2021"

[dependencies]
librocksdb-sys = { version = "$version", default-features = false }

[workspace]
MANIFEST
cargo vendor --quiet --manifest-path "$scratch/Cargo.toml" "$scratch/vendor" >/dev/null
source=$scratch/vendor/librocksdb-sys

release_of() {
    sed -n "s/^#define ROCKSDB_$1 \([0-9]*\).*/\1/p" "$source/rocksdb/include/rocksdb/version.h"
}
release=$(release_of MAJOR).$(release_of MINOR)
objects=$out/obj-$release.$(release_of PATCH)
mkdir -p "$objects"

# As RocksDB's own makefile builds a release, for this system.
flags="-std=c++20 -O2 -fPIC -DNDEBUG -w -include cstdint
    -DHAVE_ALIGNED_NEW -DHAVE_UINT128_EXTENSION -DOS_LINUX -DROCKSDB_PLATFORM_POSIX -DROCKSDB_LIB_IO_POSIX
    -DROCKSDB_SCHED_GETCPU_PRESENT -DROCKSDB_AUXV_GETAUXVAL_PRESENT -DROCKSDB_FALLOCATE_PRESENT
    -DROCKSDB_RANGESYNC_PRESENT -I. -Iinclude -Ithird-party/gtest-1.8.1/fused-src"
case $(uname -m) in
    x86_64) flags="$flags -msse4.2 -mpclmul -DHAVE_SSE42 -DHAVE_PCLMUL" ;;
    aarch64) flags="$flags -march=armv8-a+crc+crypto" ;;
    *) echo "build-rocksdb.sh: untried on $(uname -m): checksums may be slow" >&2 ;;
esac

compile() {
    local object=$objects/${1//\//_}.o
    [ -s "$object" ] && return
    # Under another name first: an object that is there is a whole one.
    # shellcheck disable=SC2086 # The flags are words.
    nice -n 19 "$cxx" $flags -c "$1" -o "$object.part"
    mv "$object.part" "$object"
}
export -f compile
export objects cxx flags

cd "$source/rocksdb"
tr -s ' \t' '\n' <../rocksdb_lib_sources.txt | grep '\.cc$' | grep -vx 'util/build_version.cc' |
    xargs -P "$jobs" -I{} bash -euc 'compile "$1"' _ {}
cd "$source"
cp build_version.cc rocksdb/build_version.cc
(cd rocksdb && compile build_version.cc)

library=$out/librocksdb.so.$release
"$cxx" -shared -Wl,-soname,"librocksdb.so.$release" -o "$library.part" "$objects"/*.o -lpthread -ldl -lrt
mv "$library.part" "$library"
echo "$library"
