#!/bin/sh
# train.sh BUILD-FOLDER: runs a fixed workload with a build that counts executed code (-Db_pgo=generate). The result is a profile for the
# compiler. The numbers of rounds are fixed, and nothing depends on a clock. So the same sources give the same profile.
set -eu
bench="$1/tests/bench/transport_bench"
# Columns: operation, bytes, QPs, requests per post, rounds
while read -r operation bytes qps batch rounds; do
    "$bench" --net-ring --fixed "$operation" "$bytes" "$qps" "$batch" "$rounds" >/dev/null
done <<'ROWS'
write 64 1 32 8000
write 64 16 32 1500
write 64 16 1 20000
write 64 10000 1 20
write 4096 16 32 300
write 65536 1 16 1000
write 1048576 1 8 150
send 64 1 32 8000
send 64 16 32 1500
send 4096 16 32 300
send 65536 1 16 1000
read 64 1 32 8000
read 64 16 32 1500
read 4096 16 32 300
read 65536 1 16 1000
ROWS
