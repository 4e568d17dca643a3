#!/bin/sh
# Keeps a copy of a folder in step: mirror.sh FOLDER COPY
#
# It is for a rule on all changes of a watched folder. Each call makes the changed path, and the old
# one of a rename, in COPY what it is in FOLDER now. So it does not matter how often or how late it
# is called, only that it is called after each change. COPY is a directory, such as one of a lab
# server that is mounted here; the two are not to lie within each other.
set -eu
folder=${1%/} copy=${2%/}

# Makes a path of COPY a directory. A link there, also one that leads to a directory, is none.
directory() {
    if [ -L "$1" ] || { [ -e "$1" ] && [ ! -d "$1" ]; }; then rm -f -- "$1"; fi
    mkdir -p -- "$1"
}

# Makes all directories of COPY above a path what they are in FOLDER: calls come late, so that what
# is a directory now may still be a file or a link in COPY.
above() {
    at=$copy left=$1
    while [ "$left" != "${left#*/}" ]; do
        at=$at/${left%%/*} left=${left#*/}
        directory "$at"
    done
}

mirror() {
    case $1 in
    "$folder"/*) rest=${1#"$folder"/} ;;
    *) return 0 ;;
    esac
    case /$rest/ in
    */../* | */./* | *//*) return 0 ;;
    esac
    from=$folder/$rest to=$copy/$rest
    if [ -L "$from" ] || [ -f "$from" ]; then
        above "$rest"
        if [ -d "$to" ] && [ ! -L "$to" ]; then rm -rf -- "$to"; fi
        # Under another name until it is whole. A file that is gone meanwhile has a later event.
        part=$copy/.mirror-$$
        rm -f -- "$part"
        if cp -P --preserve=mode,timestamps -- "$from" "$part"; then
            mv -fT -- "$part" "$to"
        elif [ -e "$from" ]; then
            exit 75
        fi
    elif [ -d "$from" ]; then
        above "$rest"
        directory "$to"
        # What a directory brings along has no events of its own.
        for name in "$from"/* "$from"/.[!.]* "$from"/..?*; do
            if [ -e "$name" ] || [ -L "$name" ]; then (mirror "$name"); fi
        done
    else
        rm -rf -- "$to"
    fi
}

mirror "$BAROGRAPH_PATH"
if [ -n "$BAROGRAPH_OLD_PATH" ]; then mirror "$BAROGRAPH_OLD_PATH"; fi
