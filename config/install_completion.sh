#!/bin/sh
# install_completion.sh FOLDER PROGRAM...: run by `meson install`. It installs PROGRAM.completion of the build folder as PROGRAM.
set -eu
folder=$MESON_INSTALL_DESTDIR_PREFIX/$1
shift
mkdir -p "$folder"
for program in "$@"; do
    install -m 644 "$MESON_BUILD_ROOT/config/$program.completion" "$folder/$program"
done
