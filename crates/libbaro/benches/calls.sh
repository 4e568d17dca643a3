#!/bin/sh
# Builds and runs calls.c against the libbaro.so of a directory (target/release), in its own run
# directory.
set -eu
library=$(cd "${1:?the directory of libbaro.so}" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d -p /dev/shm)
trap 'rm -rf "$work"' EXIT
ln -s "$library/libbaro.so" "$work/libbaro.so.1"
"${CC:-cc}" -O2 -D_GNU_SOURCE -Wall -Wextra -Werror -I "$here/../include" "$here/calls.c" \
    -L "$library" -Wl,-rpath,"$work" -lbaro -lpthread -o "$work/calls"
mkdir "$work/run"
BAROGRAPH_RUN_DIR="$work/run" "$work/calls"
