# Builds with sanitizers. ASan and UBSan check the unit tests, the simulator and the fuzzers. UBSan alone checks memory registration. TSan checks rings, lcores,
# memory windows and the client library.

# The builds: sanitizers, and folders of the tests. A folder after "-" is left out. Tests of memory registration run without ASan. They move whole pages of
# their process, and these pages would contain redzones of ASan. They also measure the memory of the machine, lock pages (with ASan, mlock does nothing) and
# handle faults. The tables compare figures, and sim_tables takes up to 15 minutes with ASan. sim_flows runs the same kinds of flows in their place.
declare -A SANITIZERS=([asan]=address,undefined [ubsan]=undefined [tsan]=thread)
declare -A SANITIZED=(
    [asan]="tests/unit tests/sim tests/fuzz -tests/sim/sim_tables -tests/sim/sim_far_tables
            -tests/unit/client/memory -tests/unit/client/symbols.sh -tests/unit/client/releases.py"
    [ubsan]="tests/unit/client/memory"
    [tsan]="tests/unit/rings tests/unit/pmd/unit_pmd_lcore tests/unit/mem"
)

# build_sanitized NAME: builds the programs of SANITIZED[NAME] in the build folder for NAME. The code under test is compiled in groups of sources, because CI
# builds these folders from nothing, which takes less time with groups.
build_sanitized() {
    local folder="$BUILD-$1" targets
    configure "$folder" "${FOR_TESTS[@]}" -Dgrouped=true "-Db_sanitize=${SANITIZERS[$1]}" -Db_lundef=false -Doptimization=1
    # shellcheck disable=SC2086
    targets="$(python3 .dev/tests_below.py "$folder" --targets ${SANITIZED[$1]})"
    # shellcheck disable=SC2086
    ninja -C "$folder" $targets
}

build_and_test() {
    build_sanitized "$1"
    # shellcheck disable=SC2086
    run_meson_tests "$BUILD-$1" ${SANITIZED[$1]}
}

# build_ahead: starts the builds with sanitizers in the background, for the time of steps that mostly wait. The builds get only CPU time that no other process
# wants (SCHED_IDLE; Linux may give a session its own share of the CPUs, so this session asks for the smallest). Errors do not matter here, because the steps of
# the sanitizers build again.
BUILDS_AHEAD=""
build_ahead() {
    setsid chrt --idle 0 bash -euo pipefail -c '[ ! -w /proc/self/autogroup ] || echo 19 >/proc/self/autogroup; source .dev/common.sh; source .dev/sanitizers.sh; for name in asan ubsan tsan; do build_sanitized $name; done' \
        >"$LOGS/build-ahead.log" 2>&1 </dev/null &
    BUILDS_AHEAD=$!
    trap stop_building_ahead EXIT
}

# stop_building_ahead: ends the builds of build_ahead. What they have compiled remains.
stop_building_ahead() {
    [ -n "$BUILDS_AHEAD" ] || return 0
    local tries
    for tries in {1..50}; do  # ninja first removes the files that it has not finished
        kill -TERM -- "-$BUILDS_AHEAD" 2>/dev/null || break
        sleep 0.2
    done
    kill -KILL -- "$BUILDS_AHEAD" "-$BUILDS_AHEAD" 2>/dev/null || true
    wait "$BUILDS_AHEAD" 2>/dev/null || true
    BUILDS_AHEAD=""
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

# Runs the tests in the builds with sanitizers.
sanitizer_steps() {
    step "ASan + UBSan: unit, simulator, fuzzers" build_and_test asan
    step "UBSan: memory adoption" build_and_test ubsan
    step "TSan: rings, doorbells, commands, epochs, lcores, memory windows" build_and_test tsan
    step "TSan: the client library under threads" threads_under_tsan
}
