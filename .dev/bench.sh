# Figures next to their anchors, measured in one run (docs/tuning.md): a table, bench.json and bench.html in the build folder.
# `vs-rxe`: compared with the kernel's Soft-RoCE, in an emulated guest.
# `loss`: perftest with frames dropped at random.
# `udp`: port = "udp" beside the kernel's sockets on one veth. `migration`: QEMU moves a machine's memory over it, and over TCP.

dev_bench() {
    source .dev/build.sh
    dev_build >/dev/null
    if [ "${1:-}" = vs-rxe ]; then
        python3 tests/bench/vs_rxe/run.py --build "$BUILD" "${@:2}"
        return
    fi
    case "${1:-}" in
        loss | udp | migration)
            python3 "tests/bench/$1.py" --build "$BUILD" "${@:2}"
            return
            ;;
    esac
    python3 tests/bench/run.py --build "$BUILD" "$@"
}
