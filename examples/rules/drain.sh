#!/bin/sh
# Moves the files that were written longest ago to another directory, until a share of the file system
# is free: drain.sh FROM TO FREE-PERCENT
#
# A file has its name in TO when it is whole, and is removed from FROM after that. It may be run again
# after it was killed: what was half copied is copied anew. Names with a newline stay.
set -eu
[ $# -eq 3 ] || { echo "drain.sh: write FROM TO FREE-PERCENT" >&2; exit 64; }
to=$(mkdir -p -- "$2" && cd -- "$2" && pwd)
cd -- "$1"
is_free() {
    df --output=size,avail -B1 . | tail -n 1 |
        { read -r size free; [ $((free / (size / 100 + 1))) -ge "$1" ]; }
}
# All names with the time of their last writing, the earliest first.
find . -xdev -type f -name '*' ! -name '*
*' -printf '%T@ %P\n' | sort -n | cut -d ' ' -f 2- |
    while IFS= read -r file; do
        if is_free "$3"; then
            break
        fi
        mkdir -p -- "$to/$(dirname -- "$file")"
        cp -p -- "$file" "$to/$file.part"
        mv -- "$to/$file.part" "$to/$file"
        rm -- "$file"
        printf '%s\n' "$file"
    done
