#!/usr/bin/env bash
# Runs every test of the project, part by part. A part that fails does not stop the others.
# The last line is the sum: `N passed, N failed`. A part without tests of its own (a build of the
# documents, a smoke run) counts as one.
set -euo pipefail
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0
failed=0
failures=()

add() { # part, passed, failed
    passed=$((passed + $2))
    failed=$((failed + $3))
    if [ "$3" -gt 0 ]; then failures+=("$1"); fi
    echo "-- $1: $2 passed, $3 failed"
}

# Runs cargo's tests and adds up their result lines. A build that fails, or a test program that ends
# without a result line, is one failure.
cargo_tests() { # part, cargo test arguments
    local part=$1 status=0 sums
    shift
    echo "== $part: cargo test $*"
    cargo test --locked --no-fail-fast "$@" 2>&1 | tee "$scratch/out" || status=$?
    sums=$(awk '/^test result: / { p += $4; f += $6 } END { print p + 0, f + 0 }' "$scratch/out")
    local p=${sums% *} f=${sums#* }
    if [ "$status" -ne 0 ] && [ "$f" -eq 0 ]; then f=1; fi
    # No test at all means that none was found, not that all is well.
    if [ "$p" -eq 0 ] && [ "$f" -eq 0 ]; then f=1; fi
    add "$part" "$p" "$f"
}

check() { # part, command
    local part=$1
    shift
    echo "== $part"
    # In a shell of its own: `set -e` has no force inside a condition.
    set +e
    (set -e; "$@")
    local status=$?
    set -e
    if [ "$status" -eq 0 ]; then add "$part" 1 0; else add "$part" 0 1; fi
}

# The toolchain is the stated rust-version or newer; clippy's incompatible_msrv, denied for the
# whole workspace, refuses any call of the standard library that the stated version lacks.
rust_version_is_met() {
    local stated found
    stated=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
    found=$(rustc --version | sed 's/^rustc \([0-9.]*\).*/\1/')
    echo "rust-version $stated, rustc $found"
    [ "$(printf '%s\n' "$stated" "$found" | sort -V | head -n 1)" = "$stated" ]
    grep -q '^incompatible_msrv = "deny"$' Cargo.toml
}

documents() {
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --document-private-items
}

# Load, read, dump, load the dump, compare: through the program, as a user has it.
command_line() {
    local dialsm=target/debug/dialsm here=$scratch/command_line
    cargo build --locked -p dialsm-tools
    mkdir "$here"
    awk 'BEGIN { for (i = 0; i < 20000; i++) printf "key%d\tvalue \\t %d\n", (i * 7919) % 20000, i }' > "$here/in"
    "$dialsm" load "$here/a" "$here/in"
    "$dialsm" verify "$here/a"
    "$dialsm" dump "$here/a" > "$here/dump1"
    LC_ALL=C sort "$here/in" | cmp - "$here/dump1"
    "$dialsm" load "$here/b" "$here/dump1"
    "$dialsm" dump "$here/b" --format json > "$here/json"
    "$dialsm" load "$here/c" "$here/json" --format json
    "$dialsm" compact "$here/c"
    "$dialsm" dump "$here/c" | cmp - "$here/dump1"
    "$dialsm" put "$here/c" key7 changed --sync
    [ "$("$dialsm" get "$here/c" key7)" = changed ]
    "$dialsm" delete "$here/c" key7
    local status=0
    "$dialsm" get "$here/c" key7 || status=$?
    [ "$status" -eq 1 ]
}

# Every kind of operation once, and the figures where the JSON file promises them.
benchmark_program() {
    local out=$scratch/bench.json
    cargo build --locked -p dialsm-bench
    target/debug/dialsm-bench --benchmarks fillrandom,overwrite,readrandom,seekrandom,deleterandom,ycsba \
        --engines lsm-core,null --num 3000 --threads 2 --rounds 1 --json "$out" --report "$scratch/page" > "$scratch/table"
    grep -q 'Throughput and stalls' "$scratch/page/report.html"
    target/debug/dialsm-bench report "$scratch/page2" "$out" "$out"
    cat "$scratch/table"
    grep -q '"engine":"lsm-core"' "$out"
    grep -q '"metric":"ops_per_sec"' "$out"
    grep -q 'fillrandom' "$scratch/table"
}

check "rust-version" rust_version_is_met
cargo_tests "workspace" --workspace
# Checks that are too costly for users, and the compressor that is not built by default.
cargo_tests "invariants and zstd" -p dialsm-core -p dialsm-tools \
    --features dialsm-core/invariants,dialsm-core/zstd
# The same tests with keyspaces cut into shards and many values redirected: no test may tell the difference.
# (Left out are those that count the tables or syncs of one tree, or that let one call fail while nothing else runs.)
sharded() { # options, permille redirected, cargo test arguments
    local options=$1 permille=$2
    shift 2
    export DIALSM_TEST_OPTIONS=$options DIALSM_TEST_REDIRECT=$permille
    cargo_tests "with $options, $permille of 1000 redirected" -p dialsm-core --features dialsm-core/invariants,dialsm-core/zstd \
        "$@" -- --skip a_compaction_that_ends_while_a_flush_settles --skip tables_are_copied_where_they_can_not_be_linked \
        --skip properties_are_those_of_the_keyspace --skip a_single_keyspace_is_flushed_without --skip memory:: \
        --skip what_a_manual_compaction_left_unsettled
    unset DIALSM_TEST_OPTIONS DIALSM_TEST_REDIRECT
}
sharded shards=2 500 --test model --test mixed_threads --test sim
sharded shards=4 300 --test model --test mixed_threads --test merge --test crash --test sim --test faults \
    --test full_disk --test keyspaces --test checkpoint --test read_only --test kill
sharded shards=8,clue_capping=false,clue_cache=false 300 --test model --test mixed_threads --test sim
check "documents" documents
check "command line" command_line
check "C interface under sanitizers" tools/c-test.sh sanitize
check "C packages" capi/samples/run.sh
check "benchmark program" benchmark_program

echo
for part in "${failures[@]}"; do echo "FAILED: $part"; done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
