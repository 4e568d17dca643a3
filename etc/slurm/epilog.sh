#!/bin/sh
# Epilog of Slurm: removes what prolog.sh wrote down of this job. It never fails: an epilog that does
# takes the node out of service.
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

# As in prolog.sh: only whoever runs this may write there, or somebody could lay a link for us to follow.
own() {
    [ -d "$1" ] && [ ! -h "$1" ] &&
        [ -n "$(find "$1" -prune -user "$(id -u)" ! -perm -020 ! -perm -002)" ]
}

directory=${1:-/run/barograph-jobs}
job=${SLURM_JOB_ID-}
case "$job" in
    '' | *[!0-9]*) exit 0 ;;
esac
# What is not there is gone already.
[ -d "$directory" ] || exit 0
if ! own "$directory"; then
    log "job $job: $directory is not ours alone, nothing is removed there"
    exit 0
fi
rm -f -- "$directory/$job" "$directory/.$job".*
