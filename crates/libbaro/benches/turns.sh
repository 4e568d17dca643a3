#!/bin/sh
# Prints what a write costs a program under `baro io`, with and without --schedule: turns.c has the
# program. No agent is needed: without one, phases go on.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d -p /dev/shm)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/run/ingest" "$work/volume"
${CC:-cc} -std=gnu11 -O2 -Wall -Wextra -o "$work/turns" "$here/turns.c"
${CC:-cc} -std=gnu11 -O2 -shared -fPIC -fvisibility=hidden -o "$work/libbaro_io.so" "${SHIM:-$here/../shim}"/*.c -ldl -lpthread
export BAROGRAPH_RUN_DIR="$work/run"
printf 'without       '
"$work/turns" "$work/volume"
printf 'baro io       '
LD_PRELOAD="$work/libbaro_io.so" "$work/turns" "$work/volume"
printf -- '--schedule    '
LD_PRELOAD="$work/libbaro_io.so" BAROGRAPH_IO_SCHEDULE="$work/volume" "$work/turns" "$work/volume"
