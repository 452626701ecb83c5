# Runs the fuzz targets with libFuzzer (clang, ASan and UBSan). Inputs that reach new code stay in $BUILD-fuzz/corpus/TARGET. An input that fails stays in
# $BUILD-fuzz/TARGET-crash-HASH, and `$BUILD-fuzz/tests/fuzz/fuzz TARGET FILE` repeats it.

FUZZ_SECONDS="${FUZZ_SECONDS:-3600}"

# Builds the fuzz targets. Prints the end of the log if the build fails.
build_libfuzzer() {
    local log="$BUILD-fuzz/build.log" status=0
    mkdir -p "$BUILD-fuzz"
    {
        { [ -f "$BUILD-fuzz/build.ninja" ] ||
            CXX="ccache clang++" meson setup "$BUILD-fuzz" "${FOR_TESTS[@]}" -Dlibfuzzer=true -Doptimization=1 -Db_lundef=false; } &&
            ninja -C "$BUILD-fuzz" tests/fuzz/libfuzzer tests/fuzz/fuzz
    } >"$log" 2>&1 || status=$?
    [ "$status" = 0 ] || tail -n 60 "$log"
    return "$status"
}

# fuzz_target TARGET SECONDS: runs a target. Prints one line with the numbers of inputs and of covered edges.
fuzz_target() {
    local target="$1" seconds="$2" corpus="$BUILD-fuzz/corpus/$1" log="$BUILD-fuzz/$1.log" start=$SECONDS status=0
    mkdir -p "$corpus"
    {
        "$BUILD-fuzz/tests/fuzz/fuzz" "$target" --write-seeds "$corpus" &&
            ROCI_FUZZ_TARGET="$target" "$BUILD-fuzz/tests/fuzz/libfuzzer" -max_total_time="$seconds" -max_len=16384 -timeout=20 -print_final_stats=1 \
                -artifact_prefix="$BUILD-fuzz/$target-" "$corpus" $(find tests/data/fuzz -type d -name "$target")
    } >"$log" 2>&1 || status=$?
    printf '%-9s %-6s %5d s, %s inputs, %s\n' "$target" "$([ "$status" = 0 ] && echo ok || echo FAILED)" $((SECONDS - start)) \
        "$(grep -oE 'number_of_executed_units: +[0-9]+' "$log" | grep -oE '[0-9]+$')" "$(grep -oE 'cov: [0-9]+ ft: [0-9]+' "$log" | tail -n 1)"
    return "$status"
}

# Divides FUZZ_SECONDS between the targets. A target that fails does not stop the others. After the last target, prints the end of the log of each target that
# failed.
fuzz_all() {
    local targets target failed=()
    build_libfuzzer || return
    targets=($("$BUILD-fuzz/tests/fuzz/fuzz" --list))
    for target in "${targets[@]}"; do
        fuzz_target "$target" $((FUZZ_SECONDS / ${#targets[@]})) || failed+=("$target")
    done
    for target in "${failed[@]}"; do tail -n 60 "$BUILD-fuzz/$target.log"; done
    printf '%d passed, %d failed\n' $((${#targets[@]} - ${#failed[@]})) ${#failed[@]}
    [ ${#failed[@]} = 0 ]
}
