#!/usr/bin/busybox sh
# The first process of the guest. An initramfs permits no pivot_root, which the sandboxes of systemd need. So the
# script first makes the root an ordinary mount. Then it loads the modules, starts the agents, and executes systemd.
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
