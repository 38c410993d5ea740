#!/usr/bin/env bash
# Builds the C library and installs it.
#
#   tools/install.sh [--prefix DIR] [--destdir DIR] [--profile release|dev] [--features LIST]
#
# --prefix     where programs find it; /usr/local by default
# --destdir    put in front of every path that is written, and in no file: for packages
# --profile    how it is built; release by default
# --features   of the package dialsm-capi: zstd
#
#   lib/libdialsm.so.X.Y, libdialsm.so -> it, libdialsm.a
#   lib/pkgconfig/dialsm.pc                  pkg-config --cflags --libs dialsm
#   lib/cmake/dialsm/                        find_package(dialsm): dialsm::dialsm, dialsm::static
#   include/dialsm.h, include/dialsm.hpp
set -euo pipefail

usage() { sed -n '2,/^set/p' "$0" | sed -e '/^set/d' -e 's/^# \{0,1\}//' >&2; exit 2; }

prefix=/usr/local
destdir=
profile=release
features=
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage
    case $1 in
        --prefix) prefix=$2 ;;
        --destdir) destdir=$2 ;;
        --profile) profile=$2 ;;
        --features) features=$2 ;;
        *) usage ;;
    esac
    shift 2
done
case $prefix in /*) ;; *) echo "install: --prefix wants an absolute path" >&2; exit 2 ;; esac
case $profile in
    release) built=release ;;
    dev) built=debug ;;
    *) usage ;;
esac

cd "$(dirname "$0")/.."
cargo build --locked -p dialsm-capi --profile "$profile" --features "$features"
target=$(cargo metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/$built

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
soversion=${version%.*}
lib=$destdir$prefix/lib
install -d "$lib/pkgconfig" "$lib/cmake/dialsm" "$destdir$prefix/include"
install -m 755 "$target/libdialsm_capi.so" "$lib/libdialsm.so.$soversion"
ln -sfn "libdialsm.so.$soversion" "$lib/libdialsm.so"
install -m 644 "$target/libdialsm_capi.a" "$lib/libdialsm.a"
install -m 644 include/dialsm.h "$destdir$prefix/include/dialsm.h"
if [ -f bindings/cpp/dialsm.hpp ]; then
    install -m 644 bindings/cpp/dialsm.hpp "$destdir$prefix/include/dialsm.hpp"
fi

fill() { # source, destination
    sed -e "s|@PREFIX@|$prefix|g" -e "s|@VERSION@|$version|g" -e "s|@SOVERSION@|$soversion|g" "$1" > "$2"
    chmod 644 "$2"
}
fill capi/packaging/dialsm.pc.in "$lib/pkgconfig/dialsm.pc"
fill capi/packaging/dialsmConfig.cmake.in "$lib/cmake/dialsm/dialsmConfig.cmake"
fill capi/packaging/dialsmConfigVersion.cmake.in "$lib/cmake/dialsm/dialsmConfigVersion.cmake"
echo "installed dialsm $version in $destdir$prefix"
