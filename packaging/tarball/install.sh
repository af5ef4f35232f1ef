#!/bin/sh
# Installs Laggard without a network, from the wheels beside this file.
#
#   ./install.sh agent            on a node
#   ./install.sh aggregator       on the monitoring host: laggard-aggregator and laggard
#
# Programs go to /opt/laggard. Run by root it also makes the user laggard and installs the units and the sample
# configuration; it starts nothing, and keeps existing configuration. Run it again to upgrade.
#   --prefix DIR    programs elsewhere, and nothing but programs
#   PYTHON=...      another interpreter than python3.@MINOR@, of the same minor version
set -eu
from=$PWD
cd "$(dirname "$0")"

fail() {
    echo "install.sh: $1" >&2
    exit 2
}

prefix=/opt/laggard
programs_only=
which=
while [ $# -gt 0 ]; do
    case $1 in
        agent | aggregator) which=$1 ;;
        --prefix)
            [ $# -gt 1 ] || fail "--prefix needs a folder"
            case $2 in
                /*) prefix=$2 ;;
                *) prefix=$from/$2 ;;
            esac
            programs_only=yes
            shift
            ;;
        *) fail "expected agent or aggregator, and perhaps --prefix DIR, got $1" ;;
    esac
    shift
done
[ "$which" ] || fail "expected agent or aggregator"
[ "$programs_only" ] || [ "$(id -u)" = 0 ] || fail "needs root, or --prefix DIR"
python=$(command -v "${PYTHON:-python3.@MINOR@}") || fail "needs python3.@MINOR@; these wheels are built for it"
"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, @MINOR@))' || fail "$python is not Python 3.@MINOR@"

case $which in
    agent) wanted=laggard ;;
    aggregator) wanted='laggard[aggregator,broker]' ;;
esac
[ -e "$prefix/bin/python" ] || "$python" -m venv "$prefix" || fail "$python -m venv failed (Debian: python3-venv)"
"$prefix/bin/python" -m pip --quiet --isolated --disable-pip-version-check install \
    --no-index --find-links wheels --no-cache-dir --upgrade "$wanted"
# Upgrades of the same version number are wanted too: this tarball is what is to be there.
"$prefix/bin/python" -m pip --quiet --isolated --disable-pip-version-check install \
    --no-index --find-links wheels --no-cache-dir --no-deps --force-reinstall laggard
# The packages have this in /usr/share/laggard-aggregator, /usr/bin and /usr/share/doc/laggard-aggregator.
if [ "$which" = aggregator ]; then
    rm -rf "$prefix/share/laggard-aggregator" "$prefix/share/doc/laggard-aggregator"
    mkdir -p "$prefix/share/doc/laggard-aggregator"
    cp -R deploy "$prefix/share/laggard-aggregator"
    cp -R README.md CHANGELOG.md SECURITY.md docs systemd bench agent aggregator "$prefix/share/doc/laggard-aggregator"
    ln -s ../../laggard-aggregator "$prefix/share/doc/laggard-aggregator/deploy"
    install -m 755 deploy/pki/laggard-ca "$prefix/bin/laggard-ca"
fi
echo "installed: $("$prefix/bin/laggard-$which" --version) in $prefix"
[ "$programs_only" ] && exit 0

install -D -m 644 systemd/sysusers.d/laggard.conf /etc/sysusers.d/laggard.conf
systemd-sysusers /etc/sysusers.d/laggard.conf
install -D -m 644 "systemd/laggard-$which.service" "/etc/systemd/system/laggard-$which.service"
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    systemctl try-restart "laggard-$which"
fi
if [ -e "/etc/laggard/$which.toml" ]; then
    echo "kept: /etc/laggard/$which.toml"
else
    install -D -m 644 "deploy/$which.toml" "/etc/laggard/$which.toml"
    echo "now edit /etc/laggard/$which.toml, then: systemctl enable --now laggard-$which"
fi
