#!/bin/sh
# Installs the files of this folder, and starts the daemon where systemd runs.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=
if [ $# -eq 2 ] && [ "$1" = --root ]; then
    root=${2%/}
elif [ $# -ne 0 ]; then
    echo "usage: $0 [--root DIR]" >&2
    exit 2
fi
if [ -z "$root" ] && [ "$(id -u)" -ne 0 ]; then
    echo "$0: only root can install below /: sudo $0" >&2
    exit 1
fi
while read -r file; do
    to=$root/$file
    mkdir -p "$(dirname "$to")"
    case $file in
    etc/*)
        if [ -e "$to" ]; then
            echo "$to stays as it is"
            continue
        fi
        ;;
    esac
    # Beside and renamed: a running program keeps its old file.
    cp -a "$here/files/$file" "$to.new"
    [ "$(id -u)" -ne 0 ] || chown -h 0:0 "$to.new"
    mv -f "$to.new" "$to"
done <"$here/MANIFEST"
echo "installed below ${root:-/}"
if [ -z "$root" ]; then
    ldconfig
    if command -v systemd-sysusers >/dev/null; then
        systemd-sysusers talea.conf
    else
        echo "the daemon runs as the user talea: create it, or change User= in talead.service"
    fi
    if [ -d /run/systemd/system ]; then
        systemctl daemon-reload
        systemctl enable talead.socket talead.service
        systemctl restart talead.socket talead.service
        # An administrator enables deployments; a new daemon adopts the programs.
        systemctl try-restart talea-deploy.service
    fi
    echo "next: talea doctor"
fi
