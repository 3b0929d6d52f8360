#!/bin/sh
# Takes all grants back, ends a deployment, stops the daemons and removes the files of this folder. The configuration
# stays.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=
if [ $# -eq 2 ] && [ "$1" = --root ]; then
    root=${2%/}
elif [ $# -ne 0 ]; then
    echo "usage: $0 [--root DIR]" >&2
    exit 2
fi
if [ -z "$root" ]; then
    if [ "$(id -u)" -ne 0 ]; then
        echo "$0: only root can remove files below /: sudo $0" >&2
        exit 1
    fi
    /usr/sbin/talead stop --release >/dev/null 2>&1 || true
    # Ends the programs of a deployment: a program may take 5 s, then it is killed.
    if /usr/bin/talea deploy remove >/dev/null 2>&1; then
        for _ in 1 2 3 4 5 6 7 8 9 10; do
            [ -n "$(ls -A /run/talea-deploy/programs 2>/dev/null)" ] || break
            sleep 1
        done
    fi
    if [ -d /run/systemd/system ]; then
        systemctl disable --now talead.socket talead.service talead-plugin.socket talea-deploy.service || true
    fi
    # Programs that no daemon ends: it was stopped before, or the command is not installed.
    for file in /run/talea-deploy/programs/*; do
        group=$(sed -n 's/.*"group": *"\([^"]*\)".*/\1/p' "$file" 2>/dev/null) || true
        if [ -n "$group" ] && [ -e "$group/cgroup.kill" ]; then
            echo 1 >"$group/cgroup.kill" || true
        fi
    done
fi
while read -r file; do
    case $file in
    etc/*) continue ;;
    esac
    rm -f "$root/$file"
    # Folders that are empty now.
    rmdir -p --ignore-fail-on-non-empty "$(dirname "$root/$file")" 2>/dev/null || true
done <"$here/MANIFEST"
if [ -z "$root" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
