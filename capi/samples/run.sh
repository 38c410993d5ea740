#!/usr/bin/env bash
# Installs the library into a directory of its own, builds each sample against that, and runs it.
set -euo pipefail
cd "$(dirname "$0")"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
profile=${1:-dev}

../../tools/install.sh --prefix "$scratch/usr" --profile "$profile"

says_hello() { # program, arguments
    local said
    said=$("$@" "$scratch/db")
    rm -rf "$scratch/db"
    [ "$said" = "hello world" ] || { echo "$1 said: $said" >&2; exit 1; }
    echo "ok: $1"
}

if command -v pkg-config > /dev/null; then
    PKG_CONFIG_PATH=$scratch/usr/lib/pkgconfig pkg-config/build.sh "$scratch/hello"
    says_hello "$scratch/hello"
    says_hello "$scratch/hello-static"
    # The program asks for the library by its soname.
    objdump -p "$scratch/hello" | grep -q 'NEEDED *libdialsm\.so\.[0-9]*\.[0-9]*$'
else
    echo "skipped: no pkg-config here"
fi

if command -v cmake > /dev/null; then
    cmake -S cmake -B "$scratch/cmake" -DCMAKE_PREFIX_PATH="$scratch/usr" > /dev/null
    cmake --build "$scratch/cmake" > /dev/null
    says_hello "$scratch/cmake/hello"
    says_hello "$scratch/cmake/hello-static"
    # One that is not there is not found.
    if cmake -S cmake -B "$scratch/other" -DCMAKE_PREFIX_PATH="$scratch/none" > /dev/null 2>&1; then
        echo "found a package that is not there" >&2
        exit 1
    fi
else
    echo "skipped: no cmake here"
fi

target=$(cargo metadata --no-deps --format-version 1 --manifest-path ../Cargo.toml \
    | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
cargo build --quiet --locked --manifest-path rust/Cargo.toml --target-dir "$target"
says_hello "$target/debug/hello"
