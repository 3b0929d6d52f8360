# Installs, uses, upgrades, removes and purges the packages in a copy of this system: an overlay
# over / in a mount namespace. $1 is the folder of the packages. tests/packages.rs runs it.
set -eu
scratch=$(mktemp -d)
daemon= holder=
# A process that is left after a failure would keep the output open.
trap 'kill $daemon $holder 2>/dev/null || true; umount -R -l "$scratch"; rmdir "$scratch"' EXIT
mount -t tmpfs tmpfs "$scratch"
mkdir "$scratch/upper" "$scratch/work" "$scratch/root" "$scratch/packages"
cp "$1"/*.deb "$scratch/packages"
mount -t overlay -o "lowerdir=/,upperdir=$scratch/upper,workdir=$scratch/work" overlay \
    "$scratch/root"
root=$scratch/root
mount --bind /proc "$root/proc"
mount --bind /sys "$root/sys"
mount --bind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
mv "$scratch"/packages/*.deb "$root/tmp"
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C "$@"; }

echo '== install'
inside sh -ec 'dpkg -i /tmp/libtalea0_* /tmp/libtalea-dev_* /tmp/talea_* /tmp/talead_* /tmp/talea-rtkit_*'
inside id talea
inside id talea-rtkit
inside talea --version
inside talea check /etc/talea/talead.toml
inside man -w talead.toml >/dev/null 2>&1 || inside test -f /usr/share/man/man5/talead.toml.5.gz
inside sh -ec 'cd /tmp; printf "#include <talea.h>\nint main(void) { return talea_version() == 0; }\n" >a.c
cc -o a a.c $(pkg-config --cflags --libs talea) && ./a'

echo '== serve'
serve() {
    # Without the function, so that the number is that of the daemon.
    chroot "$root" /usr/sbin/talead --config /etc/talea/talead.toml & daemon=$!
    for try in $(seq 100); do inside talea status >/dev/null 2>&1 && break; sleep 0.1; done
    inside talea status
}
# Spec, thread and budget of the only grant, whether the kernel holds it, and the kernel's policy.
grant() {
    inside talea list --json | tr -d ' \n' |
        grep -Eo '"(spec|tid|runtime_ns|held)":[a-z0-9]+' | sort -u
    chrt -p "$holder"
}
serve
inside talea run --priority 30 --plugin fp -- chrt -p 0
# Its other lines are about this computer.
found=$(inside talea doctor || true)
for check in configuration daemon leftovers; do
    echo "$found" | grep -E "^ok +$check " || { echo "$found"; exit 1; }
done

echo '== upgrade while a user holds a SCHED_DEADLINE grant'
# An ordinary user of the group audio, by a rule that the administrator has added.
printf '[[rule]]\ndomain = "@audio"\nplugin = "edf"\nmax_utilization = 0.5\n' \
    >>"$root/etc/talea/talead.toml"
kill -HUP "$daemon"
for try in $(seq 100); do inside talea status | grep -q ' 1 access rule' && break; sleep 0.1; done
chroot --userspec=60001:60001 --groups=audio "$root" /usr/bin/talea run \
    --runtime 2ms --period 10ms -- sleep 600 & run=$!
for try in $(seq 100); do
    holder=$(inside talea list --json | tr -d ' \n' | grep -Eo '"tid":[0-9]+' | cut -d: -f2)
    [ -n "$holder" ] && break
    sleep 0.1
done
before=$(grant)
echo "$before"
echo "$before" | grep -q SCHED_DEADLINE
old=$(inside stat -c %i /usr/sbin/talead)
inside sh -ec 'dpkg -i /tmp/libtalea0_* /tmp/talea_* /tmp/talead_* </dev/null'
grep -q '^domain = "@audio"' "$root/etc/talea/talead.toml"
test "$old" != "$(inside stat -c %i /usr/sbin/talead)"
test "$before" = "$(grant)"
# A service manager restarts the daemon as the package asks it to; here is none.
kill "$daemon"
wait "$daemon" || true
chrt -p "$holder" | grep -q SCHED_DEADLINE
serve
test "$before" = "$(grant)"

echo '== remove'
inside dpkg -r talea-rtkit talead talea libtalea-dev libtalea0
wait "$daemon" || true
# The removal has ended the grant, and not its thread.
chrt -p "$holder" | grep -q SCHED_OTHER
kill "$holder"
wait "$run" || true
daemon= holder=
test ! -e "$root/run/talea"
test -f "$root/etc/talea/talead.toml"
inside sh -ec '! command -v talea talead'
inside test ! -e /usr/share/dbus-1/system.d/org.freedesktop.RealtimeKit1.conf
inside dpkg -P talea-rtkit talead libtalea0
if inside id talea 2>/dev/null || inside id talea-rtkit 2>/dev/null; then echo 'the user is still there' >&2; exit 1; fi

echo '== left'
# What differs from this system, without the data base of dpkg, logs, and the files of users.
cd "$scratch/upper"
find . \( -type f -o -type l \) | grep -i tale || true
echo '== end'
