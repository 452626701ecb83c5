# Functions for all commands of ./dev. When ./dev sources this file, the working directory is the root of the repository.

BUILD="${BUILD:-build}"
# Clones in other folders share the objects of ccache. In exchange, the debug information of a shared object names the folder of the first clone.
export CCACHE_NOHASHDIR=1
export ROCI="$PWD/$BUILD/apps/roci/roci" ROCID="$PWD/$BUILD/apps/rocid/rocid"

say() { printf '\n== %s\n' "$*"; }
note() { printf '   %s\n' "$*"; }
die() {
    printf 'dev: %s\n' "$*" >&2
    exit 1
}

# Runs a command as root: directly if the user is root, otherwise by sudo. Fails if there is no sudo.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        return 1
    fi
}

# wanted_packages [demo]: prints the packages of .dev/packages.txt. With `demo`, prints only the packages of the demo. They are above the first line
# that begins with "# === ".
wanted_packages() {
    if [ "${1:-}" = demo ]; then sed '/^# === /q' .dev/packages.txt; else cat .dev/packages.txt; fi | grep -vE '^\s*(#|$)'
}

missing_packages() {
    local package
    for package in $(wanted_packages "$@"); do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' || echo "$package"
    done
}

# configure FOLDER [meson options]: sets up the build folder FOLDER. If the folder is set up already, changes its options.
configure() {
    local folder="$1"
    shift
    if [ ! -f "$folder/build.ninja" ]; then
        meson setup "$folder" "$@"
    elif [ $# != 0 ]; then
        meson configure "$folder" "$@"
    fi
}

# Options of the builds that run tests. `werror` is off in other builds, because users may have compilers that give more warnings.
FOR_TESTS=(-Dtests=true -Dwerror=true -Dgrouped=false)

# Prints the names of the C++ files. `./dev check` checks their format, and `./dev format` corrects it.
sources() { git ls-files 'apps/*.[ch]pp' 'stack/*.[ch]pp' 'pmd_glue/*.[ch]pp' 'verbs_api/*.[ch]pp' 'tests/*.[ch]pp'; }

# --- steps: each step is counted, timed and logged -------------------------------------------------------------------------

LOGS="$BUILD/dev-logs"
PASSED=0 FAILED=0 SKIPPED=0

# count_of WORD LOG: prints the number before WORD in the last line of the log. For example, it prints 12 for the word "passed" in "12 passed, 0 failed".
# Prints nothing if the line has no such number.
count_of() { tail -n 1 "$2" | grep -oE "[0-9]+ $1" | grep -oE '[0-9]+' || true; }

# step NAME COMMAND…: runs a command as a step. If the last line of its output contains "N passed, M failed", the step counts as N + M tests. Otherwise it
# counts as one test.
step() {
    local name="$1" log start status=0
    shift
    mkdir -p "$LOGS"
    log="$LOGS/${name//[^a-zA-Z0-9]/-}.log"
    start=$SECONDS
    printf '%-52s ' "$name"
    # The command is not the condition of an `if`, because such a condition disables `set -e` in the functions that it calls.
    set +e
    (
        set -e
        "$@"
    ) >"$log" 2>&1 </dev/null
    status=$?
    set -e
    tally "$status" "$log"
    if [ "$status" = 0 ]; then
        printf 'ok     %4d s  %s\n' $((SECONDS - start)) "$(tail -n 1 "$log" | grep -E '[0-9]+ passed' || true)"
    else
        printf 'FAILED %4d s  %s\n' $((SECONDS - start)) "$log"
        # The lines after the line of a failed case contain the reason.
        grep -E -A 3 '^(FAIL|\[  FAILED|.*: error:|.*ERROR: )' "$log" | head -n 100 | sed 's/^/    /' || true
        tail -n 25 "$log" | sed 's/^/    | /'
    fi
    return 0
}

tally() {
    local status="$1" log="$2" passed failed skipped
    passed="$(count_of passed "$log")"
    failed="$(count_of failed "$log")"
    skipped="$(count_of skipped "$log")"
    if [ -z "$passed" ] || [ -z "$failed" ]; then
        passed=$((status == 0 ? 1 : 0)) failed=$((status == 0 ? 0 : 1))
    elif [ "$status" != 0 ] && [ "$failed" = 0 ]; then
        failed=1
    fi
    PASSED=$((PASSED + passed)) FAILED=$((FAILED + failed)) SKIPPED=$((SKIPPED + ${skipped:-0}))
}

# Prints the summary. Returns 1 if a step has failed.
verdict() {
    [ "$SKIPPED" = 0 ] || printf '\n%d skipped; the logs in %s say why\n' "$SKIPPED" "$LOGS"
    printf '\n%d passed, %d failed\n' "$PASSED" "$FAILED"
    [ "$FAILED" = 0 ]
}
