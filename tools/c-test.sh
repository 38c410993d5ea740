#!/usr/bin/env bash
# Runs the C test program, the C examples and the test of the C++ header against the static library, watched over.
#
#   tools/c-test.sh sanitize     C sources with AddressSanitizer and UndefinedBehaviorSanitizer; leaks, too
#   tools/c-test.sh valgrind     under memcheck: the library's own accesses, as well; leaks, too
set -euo pipefail
cd "$(dirname "$0")/.."

how=${1:-}
case $how in
    sanitize) flags="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer" ;;
    valgrind) flags= ;;
    *) sed -n '2,/^set/p' "$0" | sed -e '/^set/d' -e 's/^# \{0,1\}//' >&2; exit 2 ;;
esac

# Memory is theirs: the tests do not limit it.
export DIALSM_TEST_WATCHED=1

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cargo build --locked -p dialsm-capi
target=$(cargo metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')

build() { # program, sources
    local program=$1
    shift
    # shellcheck disable=SC2086
    ${CC:-cc} -std=c11 -D_DEFAULT_SOURCE -g -O1 -Wall -Wextra -Wpedantic -Werror $flags -I include "$@" \
        "$target/debug/libdialsm_capi.a" -lgcc_s -lutil -lpthread -lm -ldl -o "$program"
}

watched() { # program, arguments
    if [ "$how" = valgrind ]; then
        # What is reached only through the middle of a block, as reference counts are, counts as "possible".
        valgrind --quiet --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite,indirect \
            --show-leak-kinds=definite,indirect --child-silent-after-fork=yes "$@"
    else
        ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1 "$@"
    fi
}

build "$scratch/test" capi/tests/c/*.c
mkdir "$scratch/here"
watched "$scratch/test" "$scratch/here"
for source in capi/examples/*.c; do
    name=$(basename "$source" .c)
    build "$scratch/$name" "$source"
    case $name in
        write_burst) watched "$scratch/$name" "$scratch/$name.db" 4 ;;
        merge_and_checkpoint) watched "$scratch/$name" "$scratch/$name.db" "$scratch/$name.copy" ;;
        *) watched "$scratch/$name" "$scratch/$name.db" ;;
    esac
done
# shellcheck disable=SC2086
${CXX:-c++} -std=c++17 -g -O1 -Wall -Wextra -Wpedantic -Werror $flags -I include -I bindings/cpp bindings/cpp/tests/test.cpp \
    "$target/debug/libdialsm_capi.a" -lgcc_s -lutil -lpthread -lm -ldl -o "$scratch/cpp"
mkdir "$scratch/there"
watched "$scratch/cpp" "$scratch/there"
echo "$how: nothing found"
