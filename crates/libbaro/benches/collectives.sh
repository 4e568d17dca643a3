#!/bin/sh
# Builds collectives.c against the libbaro.so of a directory (target/release) with mpicc, and runs ranks of it at a
# server of staging, `baro stage serve`, and at a file in tmpfs:
#
#     collectives.sh DIRECTORY [RANKS [REPEATS [AGGREGATORS]]]
set -eu
library=$(cd "${1:?the directory of libbaro.so and baro}" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d -p /dev/shm)
server=
stop() {
    if [ -n "$server" ]; then
        kill "$server" && wait "$server" || true
    fi
    rm -rf "$work"
}
trap stop EXIT
ln -s "$library/libbaro.so" "$work/libbaro.so.1"
mpicc -O2 -Wall -Wextra -Werror -I "$here/../include" "$here/collectives.c" "$here/../mpi/"*.c \
    -L "$library" -Wl,-rpath,"$work" -lbaro -o "$work/collectives"
mkdir "$work/run" "$work/tier" "$work/plain"
BAROGRAPH_RUN_DIR="$work/run" "$library/baro" stage serve --socket "$work/socket" --memory 512MiB \
    --tier "$work/tier=1GiB" >"$work/log" 2>&1 &
server=$!
until [ -S "$work/socket" ]; do sleep 0.1; done
uptime
nproc
mpirun -n "${2:-4}" "$work/collectives" "$work/plain" "${3:-5}" "${4:-1}" "$work/socket"
uptime
