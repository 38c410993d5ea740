#!/usr/bin/env bash
# A device made slow on purpose, the same for whatever writes to it: a file system on a loop device
# whose writes the kernel throttles.
#
#   tools/slow-device.sh up DIR [BYTES_PER_S] [SIZE]   20971520 bytes a second and 4G, unless said otherwise
#   tools/slow-device.sh down DIR                      takes all of it away again, contents included
#
#   DIR/disk.img ── loop device ── ext4 at DIR/mnt
#        └── DIR/blkio: block-I/O controller, bytes a second that may be written to the loop device
#
# The file is sparse and grows by what is written, up to SIZE. Needs root, and a kernel with the
# block-I/O controller of cgroup version 1 that nobody else uses.
set -euo pipefail

say() { echo "slow-device: $*" >&2; }
fail() { say "$*"; exit 1; }
usage() { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }

# The loop device that is made of the image, if there is one.
loop_of() { losetup --noheadings --output NAME --associated "$1/disk.img" 2> /dev/null | head -n 1; }

# Major and minor number of a device, as the controller names it.
number_of() { printf '%d:%d' "$((16#$(stat -c %t "$1")))" "$((16#$(stat -c %T "$1")))"; }

down() {
    local dir=$1 loop
    if mountpoint -q "$dir/mnt"; then
        # Without the throttle first: what waits to be written back would take minutes.
        loop=$(loop_of "$dir")
        [ -z "$loop" ] || throttle "$dir" "$loop" 0 || true
        umount "$dir/mnt" || fail "$dir/mnt is in use"
    fi
    loop=$(loop_of "$dir")
    [ -z "$loop" ] || losetup --detach "$loop"
    if mountpoint -q "$dir/blkio"; then umount "$dir/blkio"; fi
    rm -f "$dir/disk.img"
    for part in mnt blkio; do [ ! -d "$dir/$part" ] || rmdir "$dir/$part"; done
    [ ! -d "$dir" ] || rmdir --ignore-fail-on-non-empty "$dir"
}

throttle() {
    mountpoint -q "$1/blkio" || return 1
    echo "$(number_of "$2") $3" > "$1/blkio/blkio.throttle.write_bps_device"
}

up() {
    local dir=$1 rate=$2 size=$3 loop
    [ ! -e "$dir/disk.img" ] || fail "$dir/disk.img is there already: 'down' first"
    mkdir -p "$dir/mnt" "$dir/blkio"
    # What is half made goes away again.
    trap 'down "$dir"' ERR
    trap 'down "$dir"; exit 1' INT TERM
    truncate -s "$size" "$dir/disk.img"
    # Direct: or each byte would be in the page cache twice. Not every file system can.
    loop=$(losetup --show --direct-io=on --find "$dir/disk.img" 2> /dev/null) \
        || loop=$(losetup --show --find "$dir/disk.img")
    mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0,nodiscard "$loop"
    mount "$loop" "$dir/mnt"
    mount -t cgroup -o blkio none "$dir/blkio"
    throttle "$dir" "$loop" "$rate"
    trap - ERR INT TERM
    say "$dir/mnt: $loop, $rate bytes a second"
}

[ $# -ge 2 ] || usage
[ "$(id -u)" = 0 ] || fail "loop devices, mounts and throttles need root"
case $1 in
    up)
        [ $# -le 4 ] || usage
        rate=${3:-20971520}
        case $rate in '' | *[!0-9]*) fail "'$rate' is no number of bytes a second" ;; esac
        up "$2" "$rate" "${4:-4G}"
        ;;
    down)
        [ $# -eq 2 ] || usage
        down "$2"
        ;;
    *) usage ;;
esac
