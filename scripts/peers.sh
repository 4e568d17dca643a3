#!/bin/sh
# Installs the peers that `make bench` measures beside barograph, from the system's packages: Redis, NATS,
# Prometheus' node_exporter and Performance Co-Pilot. It is a script of its own because only root
# may run it.
#
# No service is started, and the package manager is never left with half-done work: a package that
# is not installed completely is removed again and reported as skipped. The script succeeds even so,
# since the benchmark reports a missing peer.
set -u

PEERS="redis-server nats-server prometheus-node-exporter pcp"
POLICY=/usr/sbin/policy-rc.d
export DEBIAN_FRONTEND=noninteractive
# APT waits for another package manager that is at work, for at most two minutes.

say() { echo "peers: $*" >&2; }

if [ "$(id -u)" != 0 ]; then
    say "SKIPPED: not root, so nothing is installed"
    exit 0
fi
if ! command -v apt-get >/dev/null; then
    say "SKIPPED: no apt-get here"
    exit 0
fi

saved=$(mktemp -d)
restore() {
    rm -f "$POLICY"
    [ -e "$saved/policy" ] && mv "$saved/policy" "$POLICY"
    rm -rf "$saved"
}
[ -e "$POLICY" ] && mv "$POLICY" "$saved/policy"
trap restore EXIT
trap 'exit 1' INT TERM
# While this file says 101, no package's script starts a service (invoke-rc.d(8)). Scripts that call
# systemctl by name (those of pcp do, and fail if systemd does not run) find one that does nothing.
printf '#!/bin/sh\nexit 101\n' >"$POLICY"
mkdir "$saved/bin"
printf '#!/bin/sh\nexit 0\n' >"$saved/bin/systemctl"
chmod 755 "$POLICY" "$saved/bin/systemctl"
PATH="$saved/bin:$PATH"
APT="apt-get -o DPkg::Lock::Timeout=120 -o DPkg::Path=$PATH -y -q"

whole() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# Packages that dpkg has begun and not finished: neither installed nor removed, with or without
# their configuration.
halves() {
    dpkg-query -W -f '${db:Status-Abbrev} ${binary:Package}\n' 2>/dev/null |
        awk '$1 !~ /^(ii|hi|rc|un|pn)$/ { print $2 }'
}

take_out() {
    for package in $(halves); do
        say "taking out $package, which did not install whole"
        dpkg --purge --force-all "$package" >/dev/null 2>&1 ||
            dpkg --remove --force-all "$package" >/dev/null 2>&1
    done
    $APT -f install >/dev/null 2>&1
}

if [ -n "$(halves)" ]; then
    say "SKIPPED: packages of this system are half installed already: $(halves | tr '\n' ' ')"
    exit 0
fi
updated=no
for peer in $PEERS; do
    if whole "$peer"; then
        say "$peer is here"
        continue
    fi
    if [ $updated = no ]; then
        $APT update >/dev/null 2>&1 || say "the package lists could not be renewed"
        updated=yes
    fi
    if $APT install --no-install-recommends "$peer" >"$saved/log" 2>&1 && whole "$peer"; then
        say "$peer installed"
    else
        say "SKIPPED $peer: $(tail -n 3 "$saved/log" | tr '\n' ' ')"
        take_out
    fi
done
# pmcd needs the table of metrics, which its service would make at its first start.
names=/var/lib/pcp/pmns
if whole pcp && [ ! -e $names/root ]; then
    (cd $names && ./Rebuild -s) >/dev/null 2>&1 || say "the metrics of pcp could not be listed"
fi
if [ -n "$(halves)" ]; then
    say "still half installed: $(halves | tr '\n' ' ')"
    exit 1
fi
