#!/bin/sh
# Compares a copy with its checksum and notes it: verify.sh FILE CATALOGUE
#
# Ends with 75, which asks for another attempt, if the checksum is not that of the file: the copy may
# be replaced.
set -eu
cd -- "$(dirname -- "$1")"
name=$(basename -- "$1")
sha256sum --check --status -- "$name.sha256" || exit 75
grep -qxF -- "$name" "$2" 2> /dev/null || printf '%s\n' "$name" >> "$2"
