#!/bin/sh
# install_completion.sh FOLDER PROGRAM...: installs PROGRAM.completion of the build folder as FOLDER/PROGRAM. `meson install` runs this script.
set -eu
folder=$MESON_INSTALL_DESTDIR_PREFIX/$1
shift
mkdir -p "$folder"
for program in "$@"; do
    install -m 644 "$MESON_BUILD_ROOT/config/$program.completion" "$folder/$program"
done
