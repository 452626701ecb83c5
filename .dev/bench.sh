# Figures beside their anchors, measured in one run (docs/tuning.md): a table, bench.json and bench.html in the build folder.

dev_bench() {
    source .dev/build.sh
    dev_build >/dev/null
    python3 tests/bench/run.py --build "$BUILD" "$@"
}
