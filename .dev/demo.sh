# Installs the packages of the demo, builds Rocinante, and runs Debian's RDMA programs over rocid. ./dev sources this file.

HUGEPAGES_WANTED=256  # pages of 2 MiB, for the rings and frame buffers of the demo
HUGEPAGES=/sys/kernel/mm/hugepages/hugepages-2048kB

reserve_hugepages() {
    local have
    have="$(cat "$HUGEPAGES/nr_hugepages" 2>/dev/null || echo 0)"
    if [ "$have" -ge "$HUGEPAGES_WANTED" ]; then
        note "$have hugepages of 2 MiB are reserved already"
        return
    fi
    as_root sh -c "echo $HUGEPAGES_WANTED >$HUGEPAGES/nr_hugepages" 2>/dev/null || true
    have="$(cat "$HUGEPAGES/nr_hugepages" 2>/dev/null || echo 0)"
    if [ "$have" -ge "$HUGEPAGES_WANTED" ]; then
        note "reserved $have hugepages of 2 MiB"
    else
        note "hugepages: $have of $HUGEPAGES_WANTED could be reserved here; rocid uses ordinary pages, which is slower but right"
    fi
}

DEMO_FOLDER="" DEMO_ROCID=""

start_demo_rocid() {
    DEMO_FOLDER="$(mktemp -d /tmp/roci-demo-XXXXXX)"
    export ROCI_SOCKET="$DEMO_FOLDER/rocid.sock"
    mkfifo "$DEMO_FOLDER/ready"
    "$ROCID" --loopback --socket "$ROCI_SOCKET" --ready-fd 3 3>"$DEMO_FOLDER/ready" >"$DEMO_FOLDER/rocid.log" 2>&1 </dev/null &
    DEMO_ROCID=$!
    if ! timeout 60 head -n 1 "$DEMO_FOLDER/ready" | grep -q ready; then
        sed 's/^/   | /' "$DEMO_FOLDER/rocid.log"
        die "rocid did not start; its log is above"
    fi
    note "rocid runs (process $DEMO_ROCID) with two devices, roci0 and roci1, wired back to back; it says:"
    grep -iE 'huge|pages|engine|device' "$DEMO_FOLDER/rocid.log" | tail -n 6 | sed 's/^/   | /' || true
}

stop_demo() {
    local status=0
    [ -n "$DEMO_ROCID" ] || return 0
    kill -TERM "$DEMO_ROCID" 2>/dev/null || true
    wait "$DEMO_ROCID" || status=$?
    DEMO_ROCID=""
    rm -rf "$DEMO_FOLDER"
    return "$status"
}

# Waits until a program listens on a TCP port of this machine, but not longer than 15 s.
wait_for_port() {
    local hex n
    hex="$(printf ':%04X' "$1")"
    for n in $(seq 300); do
        awk -v port="$hex\$" '$4 == "0A" && $2 ~ port { found = 1 } END { exit !found }' /proc/net/tcp /proc/net/tcp6 2>/dev/null && return
        sleep 0.05
    done
    die "no server on port $1 after $((n / 20)) s"
}

# pair PROGRAM ARGS…: runs the unmodified program as a server on roci0 and as a client on roci1. Writes the client's output to $DEMO_FOLDER/client.
pair() {
    local program="$1" port=18600 server status=0
    shift
    note "\$ roci run -- $program -d roci0 $*   &   roci run -- $program -d roci1 $* 127.0.0.1"
    timeout 60 "$ROCI" run -- "$program" -d roci0 -p $port "$@" >"$DEMO_FOLDER/server" 2>&1 &
    server=$!
    wait_for_port $port
    timeout 60 "$ROCI" run -- "$program" -d roci1 -p $port "$@" 127.0.0.1 >"$DEMO_FOLDER/client" 2>&1 || status=$?
    wait "$server" || status=$?
    if [ "$status" != 0 ]; then
        sed 's/^/   | /' "$DEMO_FOLDER/server" "$DEMO_FOLDER/client"
        die "$program returned $status"
    fi
}

demo_devices() {
    say "1. The devices, as Debian's ibv_devinfo sees them"
    note "\$ roci run -- ibv_devinfo"
    "$ROCI" run -- ibv_devinfo >"$DEMO_FOLDER/devinfo"
    grep -E 'hca_id|state|active_mtu|link_layer|fw_ver' "$DEMO_FOLDER/devinfo" | sed 's/^/   | /'
}

demo_pingpong() {
    say "2. ibv_rc_pingpong: 1000 messages of 4 KiB each way, received data validated"
    pair ibv_rc_pingpong -g 1 -c
    sed 's/^/   | /' "$DEMO_FOLDER/client"
}

demo_bandwidth() {
    say "3. ib_write_bw: RDMA WRITE, 64 KiB each"
    pair ib_write_bw -x 1 -F -D 2
    grep -A1 '#bytes' "$DEMO_FOLDER/client" | sed 's/^/   | /'
}

explain() {
    local usec mbytes
    usec="$(sed -nE 's/.* = ([0-9.]+) usec\/iter.*/\1/p' "$1")"
    mbytes="$2"
    say "What happened"
    cat <<TEXT
   No RDMA hardware and no kernel module took part. rocid ran a RoCEv2 transport in user space; the programs are Debian's own, unmodified:
   they loaded Rocinante's libibverbs.so.1 and reached rocid through shared memory. Every message went through real RoCEv2 packets
   (Ethernet, IP, UDP, BTH, invariant CRC) from roci0 to roci1 and back.
     round trip of a 4 KiB message:  ${usec:-?} microseconds
     RDMA WRITE bandwidth:           ${mbytes:-?} MB/s
   Both figures: $(nproc) CPUs for 3 busy threads (rocid's engine, two programs), load average $(cut -d ' ' -f 1 /proc/loadavg) of other programs included. With fewer
   free CPUs than threads they are the scheduler's more than RDMA's.
   Your own programs: $ROCI run -- PROGRAM ARGS…
   This build compiles fast and lacks whole-program optimisation. ./dev release builds the optimised programs.
TEXT
}

# Builds only the programs and libraries of the demo, in groups of sources if nothing is built yet. Then ccache would only cost time, because no other build has
# these groups. On a terminal, shows the progress line of ninja. Otherwise prints one line per tenth of the steps.
build_demo() {
    local log status=0
    local targets=(apps/rocid/rocid apps/roci/roci verbs_api/libibverbs/libibverbs.so.1 verbs_api/librdmacm/librdmacm.so.1 verbs_api/preload/librocinante-view.so)
    log="$(mktemp /tmp/roci-demo-build-XXXXXX)"
    if [ ! -f "$BUILD/build.ninja" ]; then
        export CCACHE_DISABLE=1
        configure "$BUILD" -Dgrouped=true >"$log" 2>&1
    fi || { tail -n 40 "$log"; die "meson setup failed; all of it: $log"; }
    if [ -t 1 ]; then
        NINJA_STATUS='   [%f of %t, %e s] ' ninja -C "$BUILD" "${targets[@]}" || status=$?
    else
        NINJA_STATUS='[%f/%t] ' ninja -C "$BUILD" "${targets[@]}" 2>&1 | tee "$log" | tenths || status=$?
    fi
    [ "$status" = 0 ] || { tail -n 40 "$log"; die "the build failed"; }
    rm -f "$log"
}

# Reads lines of ninja such as "[17/150] …". Prints the first line of each tenth of the steps, as "17 of 150". This is not in awk, because Debian's awk reads a
# pipe in blocks and prints the lines of a whole block at once.
tenths() {
    local line last=0
    while IFS= read -r line; do
        [[ "$line" =~ ^\[([0-9]+)/([0-9]+)\] ]] || continue
        [ $((10 * BASH_REMATCH[1] / BASH_REMATCH[2])) -gt "$last" ] || continue
        last=$((10 * BASH_REMATCH[1] / BASH_REMATCH[2]))
        note "${BASH_REMATCH[1]} of ${BASH_REMATCH[2]}"
    done
}

dev_demo() {
    local usec_file mbytes
    say "installing what is missing"
    source .dev/setup.sh
    dev_setup demo
    say "hugepages"
    reserve_hugepages
    say "building rocid, roci and the client libraries (the first time takes some minutes)"
    build_demo
    say "starting rocid on the loopback"
    trap stop_demo EXIT
    start_demo_rocid
    demo_devices
    demo_pingpong
    usec_file="$DEMO_FOLDER/pingpong"
    cp "$DEMO_FOLDER/client" "$usec_file"
    demo_bandwidth
    mbytes="$(awk '/^ *65536 / { print int($4) }' "$DEMO_FOLDER/client")"
    explain "$usec_file" "$mbytes"
    stop_demo || die "rocid did not stop cleanly"
    say "rocid has stopped; nothing is left running"
}
