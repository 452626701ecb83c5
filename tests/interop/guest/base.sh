# The first steps of every guest's first process, in a shell of busybox.
# Programs that are also builtins of this shell are called by their full path.
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

# modules LIST: loads the kernel modules that the file /modules/LIST names. LIST is "boot" or "later".
modules() {
    for module in $(cat /modules/$1); do insmod /modules/$module.ko || echo "guest: no $module"; done
}

# Starts one agent (agent.sh) per virtio port, and starts it again if it ends.
agents() {
    local tries=0 port
    while [ -z "$(cat /sys/class/virtio-ports/*/name 2>/dev/null)" ] && [ $tries -lt 200 ]; do tries=$((tries + 1)); sleep 0.02; done
    for port in /sys/class/virtio-ports/*; do
        while :; do agent /dev/${port##*/}; sleep 1; done &
    done
}
