# Builds with sanitizers. ASan and UBSan check the unit tests, the simulator and the fuzzers. UBSan alone checks memory registration. TSan checks rings, lcores,
# memory windows and the client library.

# build_and_test FOLDER SANITIZERS TESTS-BELOW…: builds the tests below the folders TESTS-BELOW in the build folder FOLDER with SANITIZERS, and runs these tests.
# The code under test is compiled in groups of sources, because CI builds these folders from nothing, which takes less time with groups.
build_and_test() {
    local folder="$1" sanitizers="$2" targets
    shift 2
    configure "$folder" "${FOR_TESTS[@]}" -Dgrouped=true "-Db_sanitize=$sanitizers" -Db_lundef=false -Doptimization=1
    targets="$(python3 .dev/tests_below.py "$folder" --targets "$@")"
    # shellcheck disable=SC2086
    ninja -C "$folder" $targets
    run_meson_tests "$folder" "$@"
}

# run_meson_tests BUILD-FOLDER TESTS-BELOW…: runs the tests below the folders TESTS-BELOW. The last line of the output contains the numbers of passed and failed cases.
run_meson_tests() {
    local folder="$1" names status=0
    shift
    names="$(python3 .dev/tests_below.py "$folder" --names "$@")"
    # shellcheck disable=SC2086
    meson test -C "$folder" --no-rebuild --print-errorlogs --timeout-multiplier "${TIMEOUT_MULTIPLIER:-3}" $names || status=$?
    python3 .dev/count_tests.py "$folder/meson-logs/testlog.json"
    return "$status"
}

# Runs conformance_threads with a client library that is built with TSan. TSan checks only one process, so rocid comes from the ordinary build.
threads_under_tsan() {
    local folder="$BUILD-tsan" library=verbs_api/libibverbs/libibverbs.so.1 program=tests/conformance/verbs/conformance_threads
    ninja -C "$folder" "$library" "$program"
    ninja -C "$BUILD" apps/rocid/rocid
    tests/conformance/verbs/run.sh "$ROCID" "$folder/$library" "$folder/$program"
}

# ASan must not handle SIGSEGV (handle_segv=0), because the client library handles write faults if userfaultfd is denied.
export ASAN_OPTIONS="detect_leaks=1:abort_on_error=0:strict_string_checks=1:handle_segv=0" UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1"
export TSAN_OPTIONS="halt_on_error=1"

# Runs the tests in the builds with sanitizers. Tests of memory registration run without ASan. They move whole pages of their process, and these pages
# would contain redzones of ASan. They also measure the memory of the machine, lock pages (with ASan, mlock does nothing) and handle faults.
# The tables compare figures, and sim_tables takes up to 15 minutes with ASan. sim_flows runs the same kinds of flows in their place.
sanitizer_steps() {
    step "ASan + UBSan: unit, simulator, fuzzers" \
        build_and_test "$BUILD-asan" address,undefined tests/unit tests/sim tests/fuzz -tests/sim/sim_tables -tests/sim/sim_far_tables -tests/unit/client/memory -tests/unit/client/symbols.sh -tests/unit/client/releases.py
    step "UBSan: memory adoption" build_and_test "$BUILD-ubsan" undefined tests/unit/client/memory
    step "TSan: rings, doorbells, commands, epochs, lcores, memory windows" build_and_test "$BUILD-tsan" thread tests/unit/rings tests/unit/pmd/unit_pmd_lcore tests/unit/mem
    step "TSan: the client library under threads" threads_under_tsan
}
