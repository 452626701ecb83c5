#!/bin/sh
# run.sh ROCID LIBIBVERBS PROGRAM...: starts a rocid and runs each conformance program with IPv4 addresses. Programs
# with traffic also run with IPv6 addresses. The script fails if a program fails. A program skips the tests of
# features that the device does not report. rocid reports every tested feature, so a skip counts as a failure too,
# except with ROCI_MAY_SKIP=1. ROCI_ENGINES is the number of engines (default 1).
set -u
rocid=$1
library=$(dirname "$2")
shift 2
dir=$(mktemp -d)
"$rocid" --loopback --socket "$dir/rocid.sock" --set engine.count="${ROCI_ENGINES:-1}" >"$dir/rocid.log" 2>&1 &
pid=$!
trap 'kill $pid 2>/dev/null; wait $pid 2>/dev/null; rm -rf "$dir"' EXIT
tries=0
while [ ! -S "$dir/rocid.sock" ]; do
    tries=$((tries + 1))
    if [ $tries -gt 100 ]; then
        cat "$dir/rocid.log"
        echo "rocid does not start"
        exit 1
    fi
    sleep 0.1
done
failed=0
run() {
    echo "== $(basename "$2"), GID $1"
    ROCI_SOCKET=$dir/rocid.sock ROCI_ROCID=$rocid ROCI_GID=$1 LD_LIBRARY_PATH=$library "$2" --gtest_brief=1 >"$dir/output" 2>&1 || failed=1
    cat "$dir/output"
    if grep -q '^\[  SKIPPED \]' "$dir/output" && [ -z "${ROCI_MAY_SKIP:-}" ]; then
        echo "our own device may not skip"
        failed=1
    fi
}
ipv4=1 ipv6=2
for program in "$@"; do
    run $ipv4 "$program"
    case $program in
        *transports | *operations | *multicast | *srq | *tag_matching) run $ipv6 "$program" ;;
    esac
done
if ! kill -0 $pid 2>/dev/null; then
    cat "$dir/rocid.log"
    echo "rocid died"
    failed=1
fi
exit $failed
