# The first steps of the first process of each guest. A busybox shell executes them. A program with the name of a
# builtin of this shell must be called by its full path.
export PATH=/usr/bin HOME=/root TERM=dumb

mounts() {
    mount -t devtmpfs dev /dev
    mount -t proc proc /proc
    mount -t sysfs sys /sys
    mkdir -p /dev/shm /dev/pts
    mount -t tmpfs shm /dev/shm
    mount -t devpts pts /dev/pts
    exec </dev/console >/dev/console 2>&1
}

# modules LIST: loads the kernel modules that are listed in the file /modules/LIST. LIST is "boot" or "later".
modules() {
    for module in $(cat /modules/$1); do insmod /modules/$module.ko || echo "guest: no $module"; done
}

# Starts one agent (agent.sh) per virtio port. If an agent ends, starts it again.
agents() {
    local tries=0 port
    while [ -z "$(cat /sys/class/virtio-ports/*/name 2>/dev/null)" ] && [ $tries -lt 200 ]; do tries=$((tries + 1)); sleep 0.02; done
    for port in /sys/class/virtio-ports/*; do
        while :; do agent /dev/${port##*/}; sleep 1; done &
    done
}
