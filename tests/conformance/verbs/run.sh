#!/bin/sh
# run.sh ROCID LIBIBVERBS PROGRAM...: starts a rocid of its own and runs each conformance program against it. Fails if one fails.
set -u
rocid=$1
library=$(dirname "$2")
shift 2
dir=$(mktemp -d)
"$rocid" --loopback --socket "$dir/rocid.sock" >"$dir/rocid.log" 2>&1 &
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
for program in "$@"; do
    echo "== $(basename "$program")"
    ROCI_SOCKET=$dir/rocid.sock ROCI_ROCID=$rocid LD_LIBRARY_PATH=$library "$program" --gtest_brief=1 || failed=1
done
if ! kill -0 $pid 2>/dev/null; then
    cat "$dir/rocid.log"
    echo "rocid died"
    failed=1
fi
exit $failed
