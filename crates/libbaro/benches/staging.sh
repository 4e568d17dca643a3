#!/bin/sh
# Builds staging.c against the libbaro.so of a directory (target/release), and runs it at a server of
# staging, the example `stage_server` there.
set -eu
library=$(cd "${1:?the directory of libbaro.so and examples/stage_server}" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d -p /dev/shm)
server=
stop() {
    # The server stops at the end of its input.
    exec 3>&-
    if [ -n "$server" ]; then
        wait "$server" || true
    fi
    rm -rf "$work"
}
trap stop EXIT
ln -s "$library/libbaro.so" "$work/libbaro.so.1"
"${CC:-cc}" -O2 -D_GNU_SOURCE -Wall -Wextra -Werror -I "$here/../include" "$here/staging.c" \
    -L "$library" -Wl,-rpath,"$work" -lbaro -o "$work/staging"
mkdir "$work/tier"
mkfifo "$work/commands"
"$library/examples/stage_server" "$work/socket" 67108864 "$work/tier" <"$work/commands" >"$work/log" &
server=$!
exec 3>"$work/commands"
until grep -q ready "$work/log"; do sleep 0.1; done
uptime
"$work/staging" "$work/socket"
