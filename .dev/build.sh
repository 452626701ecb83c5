# dev_build: everything, into $BUILD.
dev_build() {
    configure "$BUILD"
    ninja -C "$BUILD" "$@"
}
