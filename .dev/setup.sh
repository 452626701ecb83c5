install_packages() { as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"; }

# dev_setup [demo]: installs the missing packages of .dev/packages.txt. With `demo`, installs only the missing packages of the demo.
dev_setup() {
    local missing
    missing="$(missing_packages "$@")"
    if [ -z "$missing" ]; then
        note "all packages are installed"
        return
    fi
    command -v apt-get >/dev/null || die "this is not Debian: install by hand what .dev/packages.txt lists"
    say "installing $(wc -w <<<"$missing") Debian packages"
    # shellcheck disable=SC2086
    install_packages $missing || { as_root apt-get update && install_packages $missing; } ||
        die "could not install them; as root: apt-get update && apt-get install" $missing
}
