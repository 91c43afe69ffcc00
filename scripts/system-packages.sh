#!/bin/sh
# usage: system-packages.sh PACKAGE...
# Install those of the Debian packages that are missing, where that is possible. Where it is not, say what that means
# and succeed: tests that need them are skipped (with CI=true, those of a browser fail).
set -eu

missing=
for package in "$@"; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

without() {
    echo "system packages: $1; not installed:$missing. The tests that need them are skipped." >&2
    exit 0
}

[ "$(. /etc/os-release 2>/dev/null && echo "${ID:-}")" = debian ] || without "this is not Debian"
if [ "$(id -u)" = 0 ]; then
    as_root=
elif sudo -n true 2>/dev/null; then
    as_root=sudo
else
    without "neither root nor sudo without a password"
fi

echo "system packages: installing$missing" >&2
apt() {
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 "$@" </dev/null
}
# shellcheck disable=SC2086 # one word per package
{ apt update && apt install -y --no-install-recommends $missing; } || without "apt-get failed"
