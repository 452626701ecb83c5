#!/usr/bin/env bash
# Installs Rocinante from the checkout of this action, unless roci is in PATH already.
set -euo pipefail
if command -v roci >/dev/null; then
    exit 0
fi
cd "$(dirname "$(readlink -f "$0")")/../../.."
[ "$(id -u)" = 0 ] || { echo "the action installs packages: run the job in a container (container: debian:12)" >&2; exit 1; }
apt-get update
source .dev/common.sh
source .dev/setup.sh
dev_setup demo
configure build --prefix /usr/local
ninja -C build
meson install -C build --no-rebuild --quiet
