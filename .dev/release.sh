# Builds the release in two passes. The first pass records a profile of a fixed workload. The second pass compiles with this profile (docs/tuning.md).
# `meson install -C build-release` installs the release.

PRODUCTS=(apps/rocid/rocid apps/roci/roci verbs_api/libibverbs/libibverbs.so.1 verbs_api/librdmacm/librdmacm.so.1)

# dev_release [TARGETS…]: builds the release. Also builds TARGETS.
dev_release() {
    local folder="${RELEASE:-build-release}"
    say "1 of 3: a build that counts what it executes"
    configure "$folder" -Dtests=true -Db_pgo=generate
    find "$folder" -name '*.gcda' -delete
    ninja -C "$folder" tests/bench/transport_bench
    say "2 of 3: the bench's workload (some seconds)"
    .dev/train.sh "$folder"
    say "3 of 3: the build by that profile"
    meson configure "$folder" -Db_pgo=use
    ninja -C "$folder" "${PRODUCTS[@]}" "$@"
    [ $# != 0 ] || meson configure "$folder" -Dtests=false  # so that `meson install` does not build the tests
    note "built in $folder; meson install -C $folder installs it"
}
