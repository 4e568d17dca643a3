#!/bin/sh
# Removes files that were not read or written for some days: purge.sh [--dry-run] DIRECTORY DAYS
#
# With --dry-run it lists them, and removes nothing. Directories and symbolic links stay, and so does
# what lies on other file systems.
set -eu
act=-delete
if [ "$1" = --dry-run ]; then
    act=
    shift
fi
case $2 in
'' | *[!0-9]*) echo "purge.sh: $2 is no number of days" >&2; exit 64 ;;
esac
cd -- "$1"
# A file is as many days old as whole days have passed since.
find . -xdev -type f -mtime "+$2" -atime "+$2" -print $act
