#!/bin/sh
# A C compiler and pkg-config, nothing else. Usage: build.sh PROGRAM. PKG_CONFIG_PATH says where dialsm.pc is.
set -eu
cd "$(dirname "$0")"
libdir=$(pkg-config --variable=libdir dialsm)
# shellcheck disable=SC2046
${CC:-cc} -std=c11 -Wall -Wextra -Wpedantic -Werror ../hello.c -o "$1" \
    $(pkg-config --cflags --libs dialsm) -Wl,-rpath,"$libdir"
# shellcheck disable=SC2046
${CC:-cc} -std=c11 -Wall -Wextra -Wpedantic -Werror ../hello.c -o "$1-static" \
    $(pkg-config --cflags dialsm) "$libdir/libdialsm.a" $(pkg-config --libs --static dialsm | sed 's/-ldialsm//')
