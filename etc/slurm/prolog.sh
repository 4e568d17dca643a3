#!/bin/sh
# Prolog of Slurm: writes the user and the size of this job for barograph, in one file for each job.
#
# It never fails a job: it writes every problem to the log and ends with 0. It reads no name and no
# command line of a job. `README.md` beside it describes the installation.
#
# Slurm gives a prolog no search path, and a special environment
# (https://slurm.schedmd.com/prolog_epilog.html): SLURM_JOB_ID, SLURM_JOB_USER and SLURM_JOB_UID
# always, the others depending on the release. Missing values stay empty.
set -eu
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
LC_ALL=C
export LC_ALL
umask 022

new=
log() {
    logger -t barograph-prolog -- "$1" 2>/dev/null || printf 'barograph-prolog: %s\n' "$1" >&2 || :
}
finish() {
    status=$?
    trap - EXIT
    [ -z "$new" ] || rm -f -- "$new" || :
    [ "$status" -eq 0 ] || log "job ${SLURM_JOB_ID-}: not written down (status $status)" || :
    exit 0
}
trap finish EXIT
trap 'exit 1' HUP INT TERM

# Prints a text as one line, without control characters, at most 256 bytes long.
text() {
    printf '%s' "${1-}" | tr -d '\000-\037\177' | cut -c 1-256
}
# Prints a number of at most 17 digits; anything else prints nothing.
count() {
    case "${1-}" in
        '' | *[!0-9]* | ??????????????????*) ;;
        *) printf '%s' "$1" ;;
    esac
}
# Prints the sum of a list like `16(x2),8`: processors on each node.
processors() {
    sum=0
    rest=${1-}
    while [ -n "$rest" ]; do
        part=${rest%%,*}
        case "$rest" in *,*) rest=${rest#*,} ;; *) rest= ;; esac
        times=1
        case "$part" in
            *'(x'*')')
                times=${part#*'(x'}
                times=${times%')'}
                part=${part%%'('*}
                ;;
        esac
        for number in "$part" "$times"; do
            case "$number" in '' | 0?* | *[!0-9]* | ????????*) return 0 ;; esac
        done
        sum=$((sum + part * times))
    done
    [ "$sum" -eq 0 ] || printf '%s' "$sum"
}

# Only the user who runs this script may write there, otherwise somebody could create a link that
# the script would follow.
own() {
    [ -d "$1" ] && [ ! -h "$1" ] &&
        [ -n "$(find "$1" -prune -user "$(id -u)" ! -perm -020 ! -perm -002)" ]
}

directory=${1:-/run/barograph-jobs}
job=$(count "${SLURM_JOB_ID-}")
if [ -z "$job" ]; then
    log "no job: SLURM_JOB_ID is \"$(text "${SLURM_JOB_ID-}")\""
    exit 0
fi
[ -d "$directory" ] || mkdir -m 0755 "$directory" 2>/dev/null || :
if ! own "$directory"; then
    log "job $job: $directory is not ours alone, nothing is written there"
    exit 0
fi

start=$(count "${SLURM_JOB_START_TIME-}")
[ -n "$start" ] || start=$(date +%s)
# Readers ignore names that begin with a dot, and the rename is atomic.
new=$directory/.$job.$$
rm -f -- "$new"
set -C
{
    printf 'user=%s\n' "$(text "${SLURM_JOB_USER-}")"
    printf 'uid=%s\n' "$(count "${SLURM_JOB_UID-}")"
    printf 'account=%s\n' "$(text "${SLURM_JOB_ACCOUNT-}")"
    printf 'partition=%s\n' "$(text "${SLURM_JOB_PARTITION-}")"
    printf 'nodes=%s\n' "$(count "${SLURM_JOB_NUM_NODES-}")"
    printf 'ntasks=%s\n' "$(count "${SLURM_JOB_NTASKS-}")"
    printf 'cpus=%s\n' "$(processors "${SLURM_JOB_CPUS_PER_NODE-}")"
    printf 'start=%s\n' "$start"
    printf 'node=%s\n' "$(text "${SLURMD_NODENAME-}")"
} >"$new"
mv -f -- "$new" "$directory/$job"
new=
