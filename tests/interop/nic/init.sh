#!/usr/bin/busybox sh
# First process of the guest: makes the root a mount like any other (no pivot_root on an initramfs, and systemd's sandboxes need one),
# loads the modules, starts the agents, and becomes systemd.
. /usr/lib/guest/base.sh
if [ "$1" != rooted ]; then
    mkdir -p /mnt
    mount --bind / /mnt
    cd /mnt
    mount --move . /
    exec chroot . /init rooted
fi
cd /
chmod 755 /
chmod 1777 /tmp
mkdir -p /var/tmp
ln -s /run /var/run
mounts
modules boot
modules later
/usr/bin/ip link set lo up
agents
echo "guest: ready"
exec /usr/lib/systemd/systemd
