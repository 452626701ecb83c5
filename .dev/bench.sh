# `./dev bench` measures each figure and its reference figures in the same run (docs/tuning.md). It prints a table and writes bench.json and bench.html into
# the build folder. The first argument may select another benchmark:
# `vs-rxe` compares with the kernel's Soft-RoCE in an emulated guest.
# `loss` runs perftest while frames are dropped at random.
# `isolation` measures the latency and the message rate of a user while another user overloads rocid.
# `shared` compares the latency over rocid with that over TCP. The engine and two programs use the same CPUs.
# `udp` compares `port = "udp"` with sockets of the kernel on the same veth pair.
# `migration` measures QEMU's live migration over `udp` and over TCP.
# `cost` counts the instructions that the counters and the journal need per message. It builds only its own programs.

dev_bench() {
    source .dev/build.sh
    if [ "${1:-}" = cost ]; then
        configure "$BUILD" "${FOR_TESTS[@]}"
        python3 tests/bench/cost.py --build "$BUILD" "${@:2}"
        return
    fi
    dev_build >/dev/null
    if [ "${1:-}" = vs-rxe ]; then
        python3 tests/bench/vs_rxe/run.py --build "$BUILD" "${@:2}"
        return
    fi
    case "${1:-}" in
        loss | isolation | shared | udp | migration)
            python3 "tests/bench/$1.py" --build "$BUILD" "${@:2}"
            return
            ;;
    esac
    python3 tests/bench/run.py --build "$BUILD" "$@"
}
