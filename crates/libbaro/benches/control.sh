#!/bin/sh
# Builds control.c against the libbaro.so of a directory (target/release), and runs it beside the
# agent there.
set -eu
library=$(cd "${1:?the directory of libbaro.so and baro}" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d -p /dev/shm)
agent=
stop() {
    if [ -n "$agent" ]; then
        kill "$agent" && wait "$agent" || true
    fi
    rm -rf "$work"
}
trap stop EXIT
ln -s "$library/libbaro.so" "$work/libbaro.so.1"
"${CC:-cc}" -O2 -D_GNU_SOURCE -Wall -Wextra -Werror -I "$here/../include" "$here/control.c" \
    -L "$library" -Wl,-rpath,"$work" -lbaro -o "$work/control"
"$library/baro" up --http off --run-dir "$work/run" --state-dir "$work/state" >"$work/log" 2>&1 &
agent=$!
until grep -q "barograph ready" "$work/log"; do sleep 0.1; done
BAROGRAPH_RUN_DIR="$work/run" "$work/control"
