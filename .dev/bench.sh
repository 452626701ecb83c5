# Figures next to their anchors, measured in one run (docs/tuning.md): a table, bench.json and bench.html in the build folder.
# `vs-rxe`: compared with the kernel's Soft-RoCE, in an emulated guest.
# `loss`: perftest with frames dropped at random.
# `udp`: port = "udp" beside the kernel's sockets on one veth.

dev_bench() {
    source .dev/build.sh
    dev_build >/dev/null
    if [ "${1:-}" = vs-rxe ]; then
        python3 tests/bench/vs_rxe/run.py --build "$BUILD" "${@:2}"
        return
    fi
    if [ "${1:-}" = loss ]; then
        python3 tests/bench/loss.py --build "$BUILD" "${@:2}"
        return
    fi
    if [ "${1:-}" = udp ]; then
        python3 tests/bench/udp.py --build "$BUILD" "${@:2}"
        return
    fi
    python3 tests/bench/run.py --build "$BUILD" "$@"
}
