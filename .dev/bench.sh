# Measures figures and their anchors in one run (docs/tuning.md). Prints a table and writes bench.json and bench.html into the build folder.
# `vs-rxe` compares with the kernel's Soft-RoCE in an emulated guest.
# `loss` runs perftest with frames dropped at random.

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
    python3 tests/bench/run.py --build "$BUILD" "$@"
}
