#!/bin/sh
# Epilog of Slurm: removes the file that prolog.sh wrote for this job. It never fails, since a
# failing epilog takes the node out of service.
set -eu
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH

log() {
    logger -t barograph-epilog -- "$1" 2>/dev/null || printf 'barograph-epilog: %s\n' "$1" >&2 || :
}
finish() {
    status=$?
    trap - EXIT
    [ "$status" -eq 0 ] || log "job ${SLURM_JOB_ID-}: not removed (status $status)" || :
    exit 0
}
trap finish EXIT
trap 'exit 1' HUP INT TERM

# As in prolog.sh: only the user who runs this script may write there, otherwise somebody could
# create a link that the script would follow.
own() {
    [ -d "$1" ] && [ ! -h "$1" ] &&
        [ -n "$(find "$1" -prune -user "$(id -u)" ! -perm -020 ! -perm -002)" ]
}

directory=${1:-/run/barograph-jobs}
job=${SLURM_JOB_ID-}
case "$job" in
    '' | *[!0-9]*) exit 0 ;;
esac
# Without a directory there is nothing to remove.
[ -d "$directory" ] || exit 0
if ! own "$directory"; then
    log "job $job: $directory is not ours alone, nothing is removed there"
    exit 0
fi
rm -f -- "$directory/$job" "$directory/.$job".*
