# Figures: Google Benchmark programs, then perftest over a rocid on the loopback.

bench_programs() { find "$BUILD/tests/bench" -maxdepth 1 -type f -executable 2>/dev/null | sort; }

dev_bench() {
    local program
    source .dev/build.sh
    dev_build >/dev/null
    for program in $(bench_programs); do
        say "$(basename "$program")"
        "$program" "$@"
    done
    say "perftest, roci0 to roci1, one rocid on the loopback"
    python3 tests/conformance/figures.py
}
