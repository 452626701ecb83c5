#!/bin/sh
# Reserves PAGES hugepages of 2 MiB for rocid, until the next boot. Without an argument, prints the numbers of reserved and of free pages.
#   config/hugepages.sh [PAGES]
# With the default configuration (one engine), rocid uses about 28 pages. The queues of clients use further pages.
set -eu
pool=/sys/kernel/mm/hugepages/hugepages-2048kB
if [ ! -d "$pool" ]; then
    echo "this kernel has no 2 MiB hugepages" >&2
    exit 1
fi
show() { echo "2 MiB hugepages: $(cat $pool/nr_hugepages) reserved, $(cat $pool/free_hugepages) free"; }
if [ $# -eq 0 ]; then
    show
    exit 0
fi
case $1 in
    '' | *[!0-9]*) echo "usage: $0 [PAGES]" >&2; exit 2 ;;
esac
if ! { echo "$1" > $pool/nr_hugepages; } 2>/dev/null; then
    echo "cannot write $pool/nr_hugepages: run as root" >&2
    exit 1
fi
show
if [ "$(cat $pool/nr_hugepages)" -lt "$1" ]; then
    echo "memory is too fragmented for $1 pages: try again after a boot, or set hugepages=$1 on the kernel command line" >&2
    exit 1
fi
