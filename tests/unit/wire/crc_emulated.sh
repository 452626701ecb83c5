#!/usr/bin/env bash
# Tests the CRC kernels for ARMv8 and, on x86-64, for x86-64 processors with fewer features. qemu runs the compiled kernels. The exit code is 77
# (skipped) if a compiler or qemu is missing.
#   crc_emulated.sh SOURCE_ROOT
set -euo pipefail
root=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
skipped=0

build() {  # arguments: COMPILER OUTPUT
    "$1" -std=c++20 -O2 -static -fno-strict-aliasing -Wall -Wextra -Werror -I"$root/stack" "$root"/stack/wire/crc/*.cpp \
        "$root/tests/unit/wire/crc_check.cpp" -o "$2"
}

# emulate ARCHITECTURE COMPILER, then pairs: a processor as qemu names it, and the kernels that must be available on it.
emulate() {
    local arch=$1 compiler=$2 qemu
    shift 2
    if ! command -v "$compiler" >/dev/null; then
        echo "skipped: no $compiler (Debian: g++-${arch/_/-}-linux-gnu)"
        skipped=77
        return
    fi
    build "$compiler" "$work/$arch"
    qemu=$(command -v "qemu-$arch" || command -v "qemu-$arch-static" || true)
    if [ -z "$qemu" ]; then
        echo "skipped: compiled for $arch, but there is no qemu-$arch to run it (Debian: qemu-user)"
        skipped=77
        return
    fi
    while [ $# -gt 0 ]; do
        echo "$arch, $1:"
        "$qemu" -cpu "$1" "$work/$arch" "$2"
        shift 2
    done
}

emulate aarch64 aarch64-linux-gnu-g++ max pmull,armv8-crc,table cortex-a57 pmull,armv8-crc,table
if [ "$(uname -m)" = x86_64 ]; then
    emulate x86_64 x86_64-linux-gnu-g++ Westmere pclmul,table qemu64 table
fi
exit $skipped
