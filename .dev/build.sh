# dev_build: everything, tests and benchmarks included, into $BUILD.
dev_build() {
    configure "$BUILD" "${FOR_TESTS[@]}"
    ninja -C "$BUILD" "$@"
}
