#!/bin/sh
# Builds phases.c against the libbaro.so of a directory (target/release), and runs it beside the
# agent there: one that schedules, one that does not, and none.
set -eu
library=$(cd "${1:?the directory of libbaro.so and baro}" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d -p /dev/shm)
agent=
stop() {
    if [ -n "$agent" ]; then
        kill "$agent" && wait "$agent" || true
    fi
    agent=
}
trap 'stop; rm -rf "$work"' EXIT
ln -s "$library/libbaro.so" "$work/libbaro.so.1"
"${CC:-cc}" -O2 -D_GNU_SOURCE -Wall -Wextra -Werror -I "$here/../include" "$here/phases.c" \
    -L "$library" -Wl,-rpath,"$work" -lbaro -o "$work/phases"
printf '[schedule.volumes.scheduled]\npath = "/scheduled"\nbandwidth = 1e9\n' >"$work/on.toml"
: >"$work/off.toml"
for config in on off; do
    mkdir "$work/$config"
    echo "an agent whose I/O scheduling is $config:"
    "$library/baro" up --config "$work/$config.toml" --http off --run-dir "$work/$config/run" \
        --state-dir "$work/$config/state" >"$work/$config/log" 2>&1 &
    agent=$!
    until grep -q "barograph ready" "$work/$config/log"; do sleep 0.1; done
    BAROGRAPH_RUN_DIR="$work/$config/run" "$work/phases" "$work/$config"
    stop
done
mkdir "$work/none" "$work/none/run" "$work/none/run/ingest"
echo "no agent:"
BAROGRAPH_RUN_DIR="$work/none/run" "$work/phases" "$work/none"
