#!/bin/bash
# Make sure that a program is there: system_tool.sh PROGRAM DEBIAN_PACKAGE...
# Installs the packages where this is Debian and we are root; otherwise says what is needed and stops.
# Of prometheus only promtool is taken out of the package: installed, it would start a server now and at every boot.
set -euo pipefail
program=$1
shift
present() {
    if [ "$program" = node ]; then
        command -v npm >/dev/null && node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null
        return
    fi
    command -v "$program" >/dev/null || { [ "$program" = chromium ] && command -v chromium-browser google-chrome >/dev/null; }
}
if present; then
    exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "The tests need $program; install it (Debian: sudo apt-get install $*) and run the same command again." >&2
    exit 1
fi
echo "Installing $* with apt-get (some minutes at most)"
export DEBIAN_FRONTEND=noninteractive
apt-get update -q=2
if [ "$program" = promtool ]; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    (cd "$folder" && apt-get download -q=2 -o APT::Sandbox::User=root "$@")
    dpkg-deb --fsys-tarfile "$folder"/*.deb | tar -x -C "$folder" ./usr/bin/promtool
    install -m 755 "$folder/usr/bin/promtool" /usr/local/bin/promtool
else
    apt-get install -q=2 --no-install-recommends "$@"
fi
if ! present; then
    echo "$* from apt-get did not bring a usable $program (node must be 20 or newer); install it yourself and run the same command again." >&2
    exit 1
fi
