# Runs the tests of CI. Each step prints one line. A failed step also prints its failed cases and the end of its log. The logs are in build/dev-logs/.
source .dev/sanitizers.sh
source .dev/fuzz.sh

build_all() {
    source .dev/build.sh
    dev_build
}

# The releases of clang in Debian 12. Releases that are not installed are skipped. ./dev setup installs clang-14 (.dev/packages.txt).
CLANGS=(clang++-14 clang++-15 clang++-16)

# build_with COMPILER: builds everything. A compiler warning fails the build. The build is unoptimised, which finds the same warnings in half of the time.
build_with() {
    local folder="$BUILD-$1"
    if ! command -v "$1" >/dev/null; then
        printf 'SKIP: %s is not installed\n0 passed, 0 failed, 1 skipped\n' "$1"
        return
    fi
    [ -f "$folder/build.ninja" ] || CXX="ccache $1" meson setup "$folder" "${FOR_TESTS[@]}" -Doptimization=0 -Ddebug=false
    ninja -C "$folder"
}

# check_by COMPILER: compiles the programs and libraries without generating code. A compiler warning fails the check.
check_by() {
    local folder="$BUILD-check-$1"
    [ -f "$folder/build.ninja" ] || CXX="$1" meson setup "$folder" "${FOR_TESTS[@]}" -Doptimization=0 -Ddebug=false
    ninja -C "$folder" verbs_api/libibverbs/private_aliases.inc pmd_glue/steer.skel.h
    python3 .dev/syntax.py "$folder" stack verbs_api pmd_glue apps
}

# test_on_aarch64 FOLDER...: builds the tests below the FOLDERs for aarch64, with the code under test, and runs them in qemu's user mode.
test_on_aarch64() {
    [ -f "$BUILD-aarch64/build.ninja" ] ||
        meson setup "$BUILD-aarch64" --cross-file .dev/aarch64.ini -Ddaemon=false "${FOR_TESTS[@]}" -Dgrouped=true -Doptimization=1 -Ddebug=false
    # shellcheck disable=SC2046
    ninja -C "$BUILD-aarch64" $(python3 .dev/tests_below.py "$BUILD-aarch64" --targets "$@")
    TIMEOUT_MULTIPLIER=20 run_meson_tests "$BUILD-aarch64" "$@"
}

# Runs the demo as a new user does: in a build folder that does not exist yet. The demo compiles groups of sources, which needs names that differ.
test_demo() {
    rm -rf "$BUILD-demo"
    BUILD="$BUILD-demo" ./dev demo
}

other_compilers() {
    local clang
    for clang in "${CLANGS[@]}"; do step "$clang: builds without warnings" build_with "$clang"; done
    step "aarch64: unit tests and simulator under qemu" test_on_aarch64 tests/unit tests/sim
}

dev_test() {
    local quick="" full=--quick
    case "${1:-}" in
        "") ;;
        --quick) quick=yes ;;
        --full) full=--full ;;
        *) die "./dev test [--quick | --full]" ;;
    esac
    step "build" build_all
    [ "$FAILED" = 0 ] || { verdict; return 1; }
    step "layering" python3 tests/layering/check_layers.py
    step "layering check, itself" python3 tests/layering/test_check_layers.py
    step "output of programs, as tests read it" python3 tests/conformance/test_output_file.py
    step "unit tests" run_meson_tests "$BUILD" tests/unit tests/bench
    step "installation: layout, pages, paths" python3 tests/install/layout.py "$BUILD"
    step "simulator: random workloads" run_meson_tests "$BUILD" tests/sim
    step "fuzzers" run_meson_tests "$BUILD" tests/fuzz
    step "conformance: the verbs, row by row" meson test -C "$BUILD" --no-rebuild --print-errorlogs conformance_verbs conformance_verbs_two_engines
    step "conformance: rdma-core's Python suite" python3 tests/conformance/pyverbs/run.py
    step "conformance: Debian's programs over rocid" python3 tests/conformance/run.py "$full"
    step "wire truth: tshark, ICRC, Soft-RoCE" python3 tests/interop/wire/wire_truth.py
    [ -n "$quick" ] || build_ahead  # these suites leave much of the CPU time unused
    step "interop: addresses and neighbours, live" python3 tests/interop/addresses/run.py
    step "interop: the kernel's Soft-RoCE in a guest" python3 tests/interop/rxe/run.py "$full"
    step "interop: NICs, an IOMMU and systemd in a guest" python3 tests/interop/nic/run.py "$full"
    step "interop: two hosts on one machine" python3 tests/interop/hosts/run.py "$full"
    stop_building_ahead
    step "interop: two containers" python3 tests/interop/containers/run.py "$full"
    [ -n "$quick" ] || step "clang: no warnings in programs and libraries" check_by clang++-14
    [ -n "$quick" ] || step "aarch64: rings and transport under qemu" test_on_aarch64 tests/unit/base tests/unit/rings tests/unit/qp
    [ "$full" = --quick ] || other_compilers
    [ "$full" = --quick ] || step "fuzzers: an hour of libFuzzer" fuzz_all
    [ -n "$quick" ] || step "demo: in an empty build folder" test_demo
    [ -n "$quick" ] || step "installation: Debian packages in a bare root" python3 tests/install/package.py "$full"
    [ -n "$quick" ] || sanitizer_steps
    verdict
}
