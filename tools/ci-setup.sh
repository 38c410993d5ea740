#!/usr/bin/env bash
# Brings a fresh Debian machine that has cargo and a C compiler to where tools/test.sh can run.
# Installs only what is missing. RocksDB's library is only what the comparison is made with, so
# that without it (no network, another system) everything else still runs, and a note says so.
set -euo pipefail

note() { echo "ci-setup: $*" >&2; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo > /dev/null; then sudo -n "$@"; else return 1; fi
}

for component in rustfmt clippy; do
    if ! cargo "${component/rustfmt/fmt}" --version > /dev/null 2>&1; then
        note "installing $component"
        rustup component add "$component"
    fi
done

if ! command -v cc > /dev/null; then
    note "a C compiler is missing: the zstd feature needs one to build"
    exit 1
fi

# What the C interface's samples and tests are built with, beside a C compiler; those that are missing are skipped there.
for program in pkg-config cmake clang; do
    if ! command -v "$program" > /dev/null; then
        as_root apt-get update -q && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$program" \
            || note "no $program: what needs it is skipped"
    fi
done

# Through a file, since with pipefail a grep that has seen enough would end ldconfig with an error.
libraries=$(ldconfig -p 2> /dev/null || /sbin/ldconfig -p)
if ! grep -q 'librocksdb\.so' <<< "$libraries" && [ -z "${DIALSM_ROCKSDB_LIB:-}" ]; then
    install_rocksdb() {
        as_root apt-get update -q
        # Debian names the package by release: 7.8 in bookworm.
        local package
        package=$(apt-cache pkgnames librocksdb | grep -v -e -dev -e java | sort -V | tail -n 1)
        [ -n "$package" ] && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y "$package"
    }
    if ! install_rocksdb; then
        note "no RocksDB library: the tests that compare with it are skipped, each with a note"
    fi
fi
