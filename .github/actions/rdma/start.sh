#!/usr/bin/env bash
# Starts a rocid for the rest of a job. Writes variables to $GITHUB_ENV, so that RDMA programs of later steps use this rocid, and the path of its
# socket to $GITHUB_OUTPUT. Each variable ROCI_FAULT_KEY sets the key of the same name in the section [fault]. rocid ends with the job.
set -euo pipefail
folder="$(mktemp -d "${RUNNER_TEMP:-/tmp}/rocinante-XXXXXX")"
socket="$folder/rocid.sock"
rocid="${ROCID:-$(command -v rocid || echo /usr/local/sbin/rocid)}"
words=(--socket "$socket")
if [ -n "${ROCI_CONFIG:-}" ]; then words+=(--config "$ROCI_CONFIG"); else words+=(--loopback); fi
for name in DROP CORRUPT REORDER DUPLICATE DELAY_US SEED; do
    value="ROCI_FAULT_$name"
    [ -z "${!value:-}" ] || words+=(--set "fault.${name,,}=${!value}")
done
mkfifo "$folder/ready"
setsid "$rocid" "${words[@]}" --ready-fd 3 3>"$folder/ready" >"$folder/rocid.log" 2>&1 </dev/null &
if ! timeout 60 head -n 1 "$folder/ready" | grep -q ready; then
    cat "$folder/rocid.log" >&2
    exit 1
fi
libraries="$("${ROCI:-roci}" run --socket "$socket" --no-view -- printenv LD_LIBRARY_PATH)"
{
    echo "ROCI_SOCKET=$socket"
    echo "LD_LIBRARY_PATH=$libraries"
} >>"$GITHUB_ENV"
echo "socket=$socket" >>"$GITHUB_OUTPUT"
echo "rocid (process $!) serves $socket with: ${words[*]}"
