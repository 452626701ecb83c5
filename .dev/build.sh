# dev_build: builds everything, including tests and benchmarks, into $BUILD.
dev_build() {
    configure "$BUILD" "${FOR_TESTS[@]}"
    ninja -C "$BUILD" "$@"
}
