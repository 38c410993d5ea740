#!/usr/bin/env bash
# What is too slow for every change: Miri, a big-endian machine under Miri, the C interface under sanitizers and valgrind, the long tests that are
# ignored by default, and many power cuts and kills. Needs a nightly toolchain with miri and rust-src
# for the first two.
#
#   tools/deep-check.sh [miri] [big-endian] [c-interface] [long] [switches] [stress]      all of them without an argument
#
# Prints what it ran; a part that cannot run here is named at the end, and is no success.
set -euo pipefail
cd "$(dirname "$0")/.."

parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(miri big-endian c-interface long switches stress)
report=()
bad=0

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

run() { # name, command that runs tests
    local name=$1 status=0 begun=$SECONDS
    shift
    echo "== $name: $*"
    "$@" 2>&1 | tee "$scratch/out" || status=$?
    # A filter that matches nothing, because somebody renamed a module, is no success.
    grep -q '^test result: ok\. [1-9]' "$scratch/out" || status=1
    if [ "$status" -eq 0 ]; then
        report+=("ok      $name ($((SECONDS - begun)) s)")
    else
        report+=("FAILED  $name ($((SECONDS - begun)) s)")
        bad=1
    fi
}

has_miri() { cargo +nightly miri --version > /dev/null 2>&1; }

# Random tests of codecs take many minutes each here (those of `batch` 10) and are left to the ordinary run.
#
# The parts of the engine that hold unsafe code, share memory without locks, or read bytes that
# somebody else may have written; and all that is quick enough beside them. Tests which start
# processes or use real files are outside Miri's reach.
miri() {
    if ! has_miri; then report+=("MISSING miri: no nightly toolchain with it"); bad=1; return; fi
    local area seed
    for area in coding:: key:: batch::tests::the_wire_form batch::tests::bounds batch::tests::reserved \
        checksum:: format:: filename:: slice:: snapshot:: table::block table::filter::tests::golden \
        table::filter::tests::damaged table::index table::properties wal::format \
        version::edit::tests::unknown version::edit::tests::nonsense handoff::ledger::tests::a_ routing:: \
        compaction::visibility::tests::one_key write::budget memtable::; do
        run "miri $area" cargo +nightly miri test -p dialsm-core --lib -- "$area"
    done
    # Other interleavings of the lock-free parts.
    for seed in 1 2 3; do
        run "miri memtable, seed $seed" env MIRIFLAGS="-Zmiri-seed=$seed" \
            cargo +nightly miri test -p dialsm-core --lib -- memtable::tests::concurrent memtable::arena
    done
}

# Everything that reaches a file is little-endian; only another machine can tell.
big_endian() {
    if ! has_miri; then report+=("MISSING big-endian: no nightly toolchain with miri"); bad=1; return; fi
    local area
    for area in coding:: key:: batch::tests::the_wire_form batch::tests::bounds batch::tests::reserved \
        checksum:: format:: table::block table::filter::tests::golden table::filter::tests::damaged \
        table::index table::properties table::tests::the_format_does_not_move wal::format \
        version::edit::tests::unknown memtable::tests::a_repeat; do
        run "s390x $area" cargo +nightly miri test --target s390x-unknown-linux-gnu -p dialsm-core --lib -- "$area"
    done
}

long() {
    # The test profile is optimized; building all of it once more for release takes longer than it spares.
    run "ignored tests" cargo test --locked --workspace -- --ignored
    run "ignored tests, invariants on" cargo test --locked -p dialsm-core --features invariants -- --ignored
}

# However tables are written and made durable, all tests say the same.
switches() {
    local options
    for options in deferred_sync=false asynchronous_writes=true direct_writes=true \
        use_io_uring=false,asynchronous_writes=true batch_reads=false; do
        run "with $options" env "DIALSM_TEST_OPTIONS=$options" cargo test --locked -p dialsm-core \
            --test crash --test faults --test field_cases --test full_disk --test keyspaces --test kill \
            --test mixed --test mixed_threads --test model --test multi_get --test sim --test checkpoint
    done
    for options in shards=2,clue_cache=false shards=4 shards=8,clue_capping=false shards=4,rollback=false,deferred_sync=false; do
        run "with $options" env "DIALSM_TEST_OPTIONS=$options" DIALSM_TEST_REDIRECT=300 cargo test --locked -p dialsm-core \
            --test crash --test faults --test full_disk --test kill --test mixed_threads --test model --test sim \
            -- --skip a_compaction_that_ends_while_a_flush_settles --skip what_a_manual_compaction_left_unsettled
    done
    # On a real disk a test that reads all it writes, in tiny blocks, would not come to an end.
    run "with direct reads" env DIALSM_TEST_OPTIONS=direct_writes=true,direct_reads=true \
        cargo test --locked -p dialsm-core --test crash --test mixed --test model --test multi_get --test sim
}

# The C test program and the examples.
c_interface() {
    local how status begun
    for how in sanitize valgrind; do
        if [ "$how" = valgrind ] && ! command -v valgrind > /dev/null; then
            report+=("MISSING valgrind")
            bad=1
            continue
        fi
        status=0 begun=$SECONDS
        echo "== C interface: $how"
        tools/c-test.sh "$how" || status=$?
        if [ "$status" -eq 0 ]; then
            report+=("ok      C interface, $how ($((SECONDS - begun)) s)")
        else
            report+=("FAILED  C interface, $how ($((SECONDS - begun)) s)")
            bad=1
        fi
    done
}

stress_step() { # name, expected exit code, pattern of the last line, arguments
    local name=$1 code=$2 pattern=$3 status=0 begun=$SECONDS
    shift 3
    echo "== stress $name: dialsm-stress $*"
    target/release/dialsm-stress "$@" 2>&1 | tee "$scratch/out" || status=$?
    if [ "$status" -eq "$code" ] && tail -n 1 "$scratch/out" | grep -Eq "$pattern"; then
        report+=("ok      stress $name ($((SECONDS - begun)) s): $(tail -n 1 "$scratch/out")")
    else
        report+=("FAILED  stress $name ($((SECONDS - begun)) s): $(tail -n 1 "$scratch/out")")
        bad=1
    fi
}

# Power cuts in the simulation, 10,000 and more without those in recoveries; each step that the engine
# leaves out on purpose is found; killed processes.
stress() {
    cargo build --locked --release -p dialsm-tools --bin dialsm-stress
    stress_step "power cuts" 0 '^sim: [0-9]{5,} cuts, .* 0 violations$' sim --seed 1 --runs 300 --cuts-per-run 40
    stress_step "power cuts without log" 0 '^sim: [0-9]{5,} cuts, .* 0 violations$' \
        sim --seed 1000 --runs 200 --cuts-per-run 40 --log off
    local fault
    for fault in dir-sync early-unlink fsync-retry lost-clues early-collect; do
        stress_step "break $fault" 1 ' [1-9][0-9]* violations$' sim --seed 1 --runs 20 --break "$fault" --no-shrink
    done
    stress_step "kills" 0 '^kill: 100 kills, [1-9][0-9]* .* 0 violations$' kill --dir "$scratch/kill" --runs 100
}

for part in "${parts[@]}"; do
    case $part in
        miri) miri ;;
        big-endian) big_endian ;;
        c-interface) c_interface ;;
        long) long ;;
        stress) stress ;;
        switches) switches ;;
        *) echo "deep-check: no part '$part' (there are miri, big-endian, c-interface, long, switches, stress)" >&2; exit 2 ;;
    esac
done

echo
printf '%s\n' "${report[@]}"
exit "$bad"
