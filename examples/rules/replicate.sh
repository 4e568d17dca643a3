#!/bin/sh
# Copies a file to a directory, with its checksum beside it: replicate.sh FILE DIRECTORY
#
# The copy gets its name when it is whole and its checksum is there. It may be run again for the same
# file, as an action is whose outcome is unknown.
set -eu
name=$(basename -- "$1")
mkdir -p -- "$2"
new="$2/.$name.$$"
trap 'rm -f -- "$new"' EXIT
cp -- "$1" "$new"
(cd -- "$(dirname -- "$1")" && sha256sum -- "$name") > "$2/$name.sha256"
mv -- "$new" "$2/$name"
