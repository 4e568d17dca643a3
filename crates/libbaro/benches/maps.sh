#!/bin/sh
# Builds maps.c against the libbaro.so of a directory (target/release), and runs it without an agent:
# it tells itself what an agent would.
set -eu
library=$(cd "${1:?the directory of libbaro.so}" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d -p /dev/shm)
trap 'rm -rf "$work"' EXIT
ln -s "$library/libbaro.so" "$work/libbaro.so.1"
"${CC:-cc}" -O2 -D_GNU_SOURCE -Wall -Wextra -Werror -I "$here/../include" "$here/maps.c" \
    -L "$library" -Wl,-rpath,"$work" -lbaro -o "$work/maps"
mkdir "$work/run" "$work/run/ingest"
BAROGRAPH_RUN_DIR="$work/run" "$work/maps" "$work/run/ingest"
