# Runs the fuzz targets with libFuzzer (clang, ASan and UBSan). Inputs that reach new code stay in $BUILD-fuzz/corpus/TARGET.

FUZZ_SECONDS="${FUZZ_SECONDS:-3600}"

build_libfuzzer() {
    [ -f "$BUILD-fuzz/build.ninja" ] ||
        CXX="ccache clang++" meson setup "$BUILD-fuzz" "${FOR_TESTS[@]}" -Dlibfuzzer=true -Doptimization=1 -Db_lundef=false
    ninja -C "$BUILD-fuzz" tests/fuzz/libfuzzer tests/fuzz/fuzz
}

# fuzz_target TARGET SECONDS: runs a target. Prints the numbers of inputs and of covered edges.
fuzz_target() {
    local target="$1" seconds="$2" corpus="$BUILD-fuzz/corpus/$1" log="$BUILD-fuzz/$1.log" status=0
    mkdir -p "$corpus"
    "$BUILD-fuzz/tests/fuzz/fuzz" "$target" --write-seeds "$corpus"
    ROCI_FUZZ_TARGET="$target" "$BUILD-fuzz/tests/fuzz/libfuzzer" -max_total_time="$seconds" -max_len=16384 -timeout=20 -print_final_stats=1 \
        -artifact_prefix="$BUILD-fuzz/$target-" "$corpus" $(find tests/data/fuzz -type d -name "$target") >"$log" 2>&1 || status=$?
    printf '%s: %s inputs, coverage %s\n' "$target" "$(grep -oE 'number_of_executed_units: +[0-9]+' "$log" | grep -oE '[0-9]+$')" \
        "$(grep -oE 'cov: [0-9]+ ft: [0-9]+' "$log" | tail -n 1)"
    [ "$status" = 0 ] || tail -n 60 "$log"
    return "$status"
}

# Divides FUZZ_SECONDS between the targets.
fuzz_all() {
    local targets target
    build_libfuzzer
    targets=($("$BUILD-fuzz/tests/fuzz/fuzz" --list))
    for target in "${targets[@]}"; do
        fuzz_target "$target" $((FUZZ_SECONDS / ${#targets[@]}))
    done
}
