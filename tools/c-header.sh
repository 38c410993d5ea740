#!/usr/bin/env bash
# Makes include/dialsm.h, the C setters of all options and the list of the C interface from their sources.
# With --check nothing is written, and what is not up to date is an error.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo run --quiet --locked -p dialsm-capi-header -- "$@"
